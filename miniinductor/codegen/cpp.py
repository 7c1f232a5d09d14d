"""One fused group in, one C++ function out.

In:   a scheduler `Group` and the names whose values must be in memory afterwards.  Out: a `Kernel`: source, and which
buffers and sizes it takes, in order.

    // buf0: softmax_1
    extern "C" int softmax_kernel(void** args) {
        const float* in0 = (const float*)args[0];
        float* out0 = (float*)args[1];
        int error = 0;
        #pragma omp parallel for schedule(static)
        for (int64_t x0 = 0; x0 < 4096; x0++) {
            float acc0 = -mini::inf;
            #pragma omp simd reduction(mini::maximum:acc0)
            for (int64_t r0 = 0; r0 < 1024; r0++) {
                ...

Every kernel is: outer loops (threads), and in them a sequence of *stages*, each an inner loop (vector lanes) followed by
statements per outer iteration.  A reduction ends a stage; what needs its result goes into the next.  A value made in
one stage's inner loop and read in a later one lies in a small scratch array, which stays in the cache.
Pointers are named by position, never by buffer, so that equal layers of a model give equal sources, compiled once.

Mirrors torch/_inductor/codegen/cpp.py (paper section 4.4 and 4.6).  Left out: explicit vector types (the compiler
vectorises; see the prelude), GEMM templates.
"""
import math
import re
from dataclasses import dataclass, field

import sympy
import torch

from .. import config
from ..dependencies import int_or_none, loop_variable, loop_variables, merge_loops, stride_of
from ..ops import BINARY, COMPARISON, UNARY, OpsHandler
from .common import Scope, Value, indent, index_text

PARALLEL_WORK = 1 << 15     # scalar operations below which starting threads costs more than they save
CHUNK = 512                 # longest run of float additions into one accumulator; chunks are then added in double
ROWS_CHUNK = 128            # the same where rows are added up
COLUMNS = 512               # outer elements reduced together, when a reduction steps through memory by rows
ROWS = 4                    # rows added at a time there: one load and store of the accumulator per four elements
TILE = 32                   # square tile of a transposed access
SCRATCH_BYTES = 1 << 17     # stack for values between stages
MOST_PARTS = 512            # partial results of a reduction that is itself spread over threads

# dtype -> (type in memory, type of arithmetic)
TYPES = {
    torch.float32: ("float", "float"), torch.float64: ("double", "double"),
    torch.bfloat16: ("mini::bfloat16", "float"), torch.float16: ("mini::float16", "float"),
    torch.int64: ("int64_t", "int64_t"), torch.int32: ("int32_t", "int32_t"), torch.int16: ("int16_t", "int16_t"),
    torch.int8: ("int8_t", "int8_t"), torch.uint8: ("uint8_t", "uint8_t"), torch.bool: ("bool", "bool"),
    torch.uint16: ("uint16_t", "uint16_t"), torch.uint32: ("uint32_t", "uint32_t"),
    torch.uint64: ("uint64_t", "uint64_t"),
}
NARROW = {torch.bfloat16: "bfloat16", torch.float16: "float16"}
INFIX = {"add": "+", "sub": "-", "mul": "*", "truediv": "/", "bitwise_and": "&", "bitwise_or": "|", "bitwise_xor": "^",
         "eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
LOGICAL = {"logical_and": "&", "logical_or": "|", "logical_xor": "^"}
INTEGER_DIVISIONS = ("floordiv", "truncdiv", "remainder", "fmod")
# kind -> (initial value, combining expression, OpenMP's name of it)
REDUCERS = {
    "sum": ("0", "{a} + {b}", "+"), "prod": ("1", "{a} * {b}", "*"),
    "max": ("lowest", "mini::maximum({a}, {b})", "max"), "min": ("highest", "mini::minimum({a}, {b})", "min"),
    "any": ("0", "{a} | {b}", "|"), "xor_sum": ("0", "{a} ^ {b}", "^"),
    "argmax": ("lowest", "mini::larger({a}, {b})", None),
    "argmin": ("highest", "mini::smaller({a}, {b})", None),
}


def memory_type(dtype):
    return TYPES[dtype][0]


def compute_type(dtype):
    return TYPES[dtype][1]


@dataclass
class Kernel:
    """`source` has NAME where the function's name goes.  `arguments`: buffer names and size symbols, in order."""
    source: str
    arguments: list
    stored: list            # names of the group whose values it writes to memory
    read: list
    summary: str            # a short word for the kernel's name: "softmax", "add_gelu"


@dataclass
class Accumulator:
    name: str
    kind: str
    dtype: torch.dtype      # of the elements (max, argmax) or of the result (sum, prod)
    term: str = ""          # what one iteration adds
    over_chunks: bool = False   # it adds up partial sums: in double, so that their number costs no accuracy

    @property
    def c_type(self):
        if self.over_chunks and self.loses_bits:
            return "double"
        if self.kind.startswith("arg"):
            return f"mini::Extreme<{compute_type(self.dtype)}>"
        return "int32_t" if self.kind == "any" else compute_type(self.dtype)

    @property
    def initial(self):
        start = REDUCERS[self.kind][0]
        if start in ("lowest", "highest"):
            start = limit_text(self.dtype, start == "lowest")
        return f"{{{start}, INT64_MAX}}" .replace("INT64_MAX", "0x7fffffffffffffffLL") if self.kind.startswith("arg") \
            else start

    @property
    def clause(self):
        operator = REDUCERS[self.kind][2]
        watch = f" reduction(|:{self.nan_flag})" if self.nan_flag else ""
        return operator and f" reduction({operator}:{self.name}){watch}"

    @property
    def nan_flag(self):
        """Vector maximum instructions drop NaN, so lanes take the plain maximum and note whether they saw one."""
        return f"{self.name}_nan" if self.kind in ("max", "min") and self.dtype.is_floating_point else None

    def before_lanes(self):
        return [f"int32_t {self.nan_flag} = 0;"] if self.nan_flag else []

    def in_lanes(self):
        if not self.nan_flag:
            return [self.update(self.term)]
        sign = ">" if self.kind == "max" else "<"
        return [f"{self.name} = {self.term} {sign} {self.name} ? {self.term} : {self.name};",
                f"{self.nan_flag} |= {self.term} != {self.term};"]

    def after_lanes(self):
        return [f"{self.name} = {self.nan_flag} ? mini::nan : {self.name};"] if self.nan_flag else []

    @property
    def loses_bits(self):
        """Does a long run of it lose accuracy?"""
        return self.kind in ("sum", "prod") and self.dtype.is_floating_point

    def renamed(self, prefix):
        return Accumulator(re.sub(r"^[a-z]+", prefix, self.name), self.kind, self.dtype, self.term)

    def combine(self, a, b):
        return REDUCERS[self.kind][1].format(a=a, b=b)

    def update(self, term, place=""):
        target = self.name + place
        return f"{target} = {self.combine(target, term)};"


def array_declarations(accumulators, width):
    lines = []
    for a in accumulators:
        lines += [f"{a.c_type} {a.name}[{width}];", f"for (int64_t k = 0; k < {width}; k++) {a.name}[k] = {a.initial};"]
    return lines


def declarations(accumulators):
    return [f"{a.c_type} {a.name} = {a.initial};" for a in accumulators]


def limit_text(dtype, lowest):
    if dtype.is_floating_point:
        return "-mini::inf" if lowest else "mini::inf"
    if dtype is torch.bool:
        return "false" if lowest else "true"
    info = torch.iinfo(dtype)
    return constant_text(info.min if lowest else info.max, dtype)


def constant_text(value, dtype):
    if dtype is torch.bool:
        return "true" if value else "false"
    if dtype.is_floating_point:
        value = float(value)
        if math.isnan(value):
            return "mini::nan" if compute_type(dtype) == "float" else "(double)mini::nan"
        if math.isinf(value):
            text = "mini::inf" if value > 0 else "-mini::inf"
            return text if compute_type(dtype) == "float" else f"(double){text}"
        if compute_type(dtype) == "double":
            return repr(value)
        single = torch.tensor(value, dtype=torch.float32).item()
        if math.isinf(single):
            return "mini::inf" if single > 0 else "-mini::inf"
        return repr(single) + "f"
    value = int(value)
    if value == -2**63:
        return "(-9223372036854775807LL - 1)"
    suffix = "ull" if value >= 2**63 else "LL" if dtype in (torch.int64, torch.uint64, torch.uint32) else ""
    return f"{value}{suffix}"


class CppKernelWriter(OpsHandler):
    """Plays the bodies of a group into C++ lines."""

    def __init__(self, group, buffers, keep, order=None):
        self.buffers, self.keep = buffers, set(keep)
        self.order = order              # FX node name -> its place in the graph; None: by name
        self.nodes, self.group = list(group.nodes), group
        self.outer, self.inner = group.outer, group.inner
        self.pointers, self.sizes = {}, []              # buffer name -> C name; size symbols
        self.values, self.raw = {}, {}                  # buffer -> Value now at hand; rounded value -> its 16 bit form
        self.scratch, self.stored, self.read = {}, [], []
        self.has_scatter = bool(group.targets)
        self.inner_symbols = set()

    # -- plan ------------------------------------------------------------------------------------------------------
    def plan_loops(self):
        bodies = merge_loops([n.body for n in self.nodes])
        self.outer = bodies[0].outer
        self.inner = max((b.inner for b in bodies), key=len)
        self.is_pointwise = not self.inner
        if self.is_pointwise:
            self.outer, self.inner = self.outer[:-1], self.outer[-1:]
            if self.inner:
                bodies = [b.as_full(self.outer, self.inner) for b in bodies]
        self.bodies = {n.name: b for n, b in zip(self.nodes, bodies)}
        self.x = loop_variables("x", len(self.outer))
        self.r = loop_variables("r", len(self.inner))
        self.outer_count = estimate(self.outer)
        self.inner_count = estimate(self.inner)
        operations = sum(len(b.instructions) for b in bodies)
        self.by_rows = self.is_outer_reduction()
        self.tile = self.plan_tile()
        self.tile_loads = {}            # element -> (array, type in memory)
        work = self.outer_count * self.inner_count * max(1, operations // 4)
        self.parallel = config.openmp and work >= PARALLEL_WORK and not self.has_scatter

    def is_outer_reduction(self):
        """Do the reduction's reads step through memory by the last outer loop rather than by the reduction's?"""
        if self.is_pointwise or not self.outer or self.outer_count < 2:
            return False
        last, lane = self.x[-1], self.r[-1]
        votes = 0
        for node in self.nodes:
            if not self.bodies[node.name].inner:
                continue
            if not node.is_reduction or any(k.startswith("arg") for k in self.bodies[node.name].reduction_kinds()):
                return False
            for access in self.bodies[node.name].reads():
                along, across = (int_or_none(stride_of(access.index, v)) for v in (last, lane))
                votes += (along == 1 and across != 1) - (across == 1 and along != 1)
        return votes > 0 and int_or_none(self.outer[-1]) is not None

    def plan_stages(self):
        """stage of each node: inner nodes run in inner loop `stage`, outer ones right after it."""
        self.stage, makers = {}, {n.name: n for n in self.nodes}
        self.is_inner = {n.name: bool(self.bodies[n.name].inner) for n in self.nodes}
        ordered, pending = [], list(self.nodes)
        while pending:          # data-flow order inside the kernel
            done = {n.name for n in ordered}
            ready = [n for n in pending
                     if all(a.name in done or a.name == n.name or a.name not in makers for a in n.body.reads())]
            ordered += ready
            pending = [n for n in pending if n not in ready]
        self.nodes = ordered
        for node in ordered:
            inner = self.is_inner[node.name]
            stage = 0 if inner else -1
            for access in node.body.reads():
                producer = makers.get(access.name)
                if producer is None or producer is node:
                    continue
                same_loop = not inner or (self.is_inner[producer.name] and not producer.is_reduction) \
                    or self.is_pointwise
                stage = max(stage, self.stage[producer.name] + (0 if same_loop else 1))
            self.stage[node.name] = stage
        self.last_stage = max(self.stage.values())
        self.spread = (self.parallel and not self.is_pointwise and self.outer_count < 8
                       and self.inner_count * 1 >= PARALLEL_WORK and int_or_none(math.prod(self.inner)) is not None
                       and not (self.by_rows and self.outer_count > COLUMNS))
        for node in ordered:    # values that cross stages
            later = [n for n in ordered if self.stage[n.name] > self.stage[node.name] and self.is_inner[n.name]
                     and any(a.name == node.name for a in n.body.reads())]
            if self.is_inner[node.name] and not node.is_reduction and later and node.name not in self.keep:
                size = int_or_none(math.prod(self.inner))
                taken = sum(self.scratch_bytes.values()) if hasattr(self, "scratch_bytes") else 0
                nbytes = size * 8 if size else SCRATCH_BYTES + 1
                if self.spread or self.by_rows or taken + nbytes > SCRATCH_BYTES:
                    self.keep.add(node.name)
                else:
                    self.scratch_bytes = {**getattr(self, "scratch_bytes", {}), node.name: nbytes}
                    self.scratch[node.name] = f"scratch{len(self.scratch)}"

    # -- writing ---------------------------------------------------------------------------------------------------
    def write(self):
        self.plan_loops()
        self.plan_stages()
        self.outside = Scope()
        if self.by_rows:
            body = self.write_by_rows()
        else:
            body = self.write_stages()
        lines = self.loop_nest(body)
        head = ["int error = 0;"] if any("error" in line for line in lines) else []
        arguments, pointer_lines = [], []
        for name, pointer in self.pointers.items():
            const = "" if name in self.stored else "const "
            c_type = memory_type(self.buffers[name].layout.dtype)
            made_by = origin_text(getattr(self.buffers[name], "origins", ()), self.order, limit=3)
            pointer_lines.append(f"{const}{c_type}* {pointer} = ({const}{c_type}*)args[{len(arguments)}];"
                                 f"    // {name}{made_by}")
            arguments.append(name)
        for symbol in self.sizes:
            pointer_lines.append(f"const int64_t {symbol} = (int64_t)args[{len(arguments)}];")
            arguments.append(symbol)
        origins = {o for n in self.nodes for o in n.buffer.origins}
        lines = [f"// computes {', '.join(n.name for n in self.nodes)}{origin_text(origins, self.order, limit=12)}",
                 'extern "C" int NAME(void** args) {',
                 *indent(pointer_lines + head + lines + ["return error;" if head else "return 0;"]), "}"]
        source = fold_error_clauses("\n".join(lines))
        return Kernel(source, arguments, list(self.stored), list(self.read),
                      summary(self.group, self.order))

    def write_stages(self):
        """Outer iteration = per stage: accumulators, inner loop, statements after it."""
        outside = self.outside
        for name, array in self.scratch.items():
            c_type = compute_type(self.buffers[name].layout.dtype)
            outside.add(f"{c_type} {array}[{math.prod(self.inner)}];")
        for stage in range(-1, self.last_stage + 1):
            inner_nodes = [n for n in self.nodes if self.stage[n.name] == stage and self.is_inner[n.name]]
            if inner_nodes:
                self.write_inner_stage(inner_nodes)
            self.where_am_i(outside, ())
            for node in self.nodes:
                if self.stage[node.name] == stage and not self.is_inner[node.name]:
                    self.play(node)
        return outside.lines

    def where_am_i(self, scope, inner_variables):
        self.scope, self.inner_variables = scope, set(inner_variables)

    def play(self, node):
        self.node = node
        if len(self.nodes) > 1:
            self.scope.add(f"// {node.name}{origin_text(node.buffer.origins, self.order)}")
        self.bodies[node.name].play(self)

    def write_inner_stage(self, nodes):
        outside, inside = self.outside, Scope(self.outside)
        self.accumulators, self.deferred = [], []
        self.where_am_i(inside, self.r)
        for node in nodes:
            self.play(node)
        for node in nodes:      # next stages cannot see values of this loop
            if not node.is_reduction:
                self.values.pop(node.name, None)
        outside.lines += self.inner_loop(inside.lines)
        self.where_am_i(outside, ())
        for name, index, value, mode in self.deferred:
            self.store(name, index, self.finished(value), mode)

    def inner_loop(self, lines):
        """The loops over r0, r1, ... around `lines`, spread over threads where there are few outer iterations."""
        accumulators = self.accumulators
        first, size = self.r[0], index_text(self.inner[0])
        if not self.spread:
            loops = self.chunks(lines, accumulators, "0", size)     # decides the accumulators' types
            return declarations(accumulators) + loops
        rest = max(1, estimate(self.inner[1:]))
        rows = max(1, CHUNK // rest, -(-int(self.inner[0]) // MOST_PARTS))
        blocks = -(-int(self.inner[0]) // rows)
        of_block = [a.renamed("block") for a in accumulators]
        for accumulator in accumulators:
            accumulator.over_chunks = True
        body = self.chunks(lines, of_block, f"{first}_block", f"{first}_end")
        body = [f"const int64_t {first}_block = block * {rows};",
                f"const int64_t {first}_end = mini::minimum<int64_t>({first}_block + {rows}, {size});",
                *declarations(of_block), *body, *[f"{b.name}s[block] = {b.name};" for b in of_block]]
        loop = f"for (int64_t block = 0; block < {blocks}; block++) {{"
        result = [f"{b.c_type} {b.name}s[{blocks}];" for b in of_block]
        result += ["#pragma omp parallel for schedule(static)ERROR_CLAUSE", loop, *indent(body), "}"]
        result += declarations(accumulators)
        if accumulators:
            result += [loop, *indent([a.update(f"{b.name}s[block]") for a, b in zip(accumulators, of_block)]), "}"]
        return result

    def chunks(self, lines, accumulators, start, end):
        """Loops over r0 (from start to end), r1, ...: the innermost runs on vector lanes into accumulators of its own."""
        if not accumulators or len(self.r) == 1:
            lines = self.lanes(lines, accumulators, start, end)
        else:
            parts = [a.renamed("part") for a in accumulators]
            for accumulator in accumulators:
                accumulator.over_chunks = True
            lines = [*declarations(parts), *self.lanes(lines, parts, "0", index_text(self.inner[-1])),
                     *[a.update(p.name) for a, p in zip(accumulators, parts)]]
        for number, (variable, size) in reversed(list(enumerate(zip(self.r[:-1], self.inner[:-1])))):
            low, high = ("0", index_text(size)) if number else (start, end)
            lines = [f"for (int64_t {variable} = {low}; {variable} < {high}; {variable}++) {{", *indent(lines), "}"]
        return lines

    def lanes(self, lines, accumulators, start, end):
        """The innermost loop.  A long sum of floats is the sum of the sums of chunks."""
        lane = self.r[-1]
        if len(self.r) > 1 and not accumulators:
            start, end = "0", index_text(self.inner[-1])
        if estimate(self.inner[-1:]) > 2 * CHUNK and any(a.loses_bits for a in accumulators):
            chunks = [a.renamed("chunk") for a in accumulators]
            for accumulator in accumulators:
                accumulator.over_chunks = True
            body = [f"const int64_t {lane}_stop = mini::minimum<int64_t>({lane}_chunk + {CHUNK}, {end});",
                    *declarations(chunks), *self.one_loop(lines, chunks, f"{lane}_chunk", f"{lane}_stop"),
                    *[a.update(c.name) for a, c in zip(accumulators, chunks)]]
            return [f"for (int64_t {lane}_chunk = {start}; {lane}_chunk < {end}; {lane}_chunk += {CHUNK}) {{",
                    *indent(body), "}"]
        return self.one_loop(lines, accumulators, start, end)

    def one_loop(self, lines, accumulators, start, end):
        lane = self.r[-1]
        lines = lines + [line for a in accumulators for line in a.in_lanes()]
        return [*[line for a in accumulators for line in a.before_lanes()],
                *self.simd(accumulators, lines),
                f"for (int64_t {lane} = {start}; {lane} < {end}; {lane}++) {{", *indent(lines), "}",
                *[line for a in accumulators for line in a.after_lanes()]]

    def simd(self, accumulators, lines):
        if not config.vectorize or any(a.clause is None for a in accumulators) or not self.lanes_are_free():
            return []
        clauses = "".join(a.clause for a in accumulators)
        parallel = self.is_pointwise and self.parallel and (not self.outer or self.outer_count < 8) \
            and self.inner_count >= 1024 and self.tile is None
        head = "#pragma omp parallel for simd schedule(static)" if parallel else "#pragma omp simd"
        return [head + clauses + "ERROR_CLAUSE"]

    def lanes_are_free(self):
        """False where two lanes might write the same element (a scatter by an index that changes along the lanes)."""
        return not self.has_scatter or self.scatter_is_row_wise

    def loop_nest(self, lines):
        """The outer loops around `lines`."""
        if self.tile is not None:
            return self.tiled_nest(lines, self.tile)
        threads = self.parallel and self.outer and not self.spread and not (self.is_pointwise and self.outer_count < 8)
        loops = [(str(v), index_text(n)) for v, n in zip(self.x, self.outer)]
        if self.by_rows:
            loops = loops[:-1]
        for variable, size in reversed(loops):
            lines = [f"for (int64_t {variable} = 0; {variable} < {size}; {variable}++) {{", *indent(lines), "}"]
        if threads:
            depth = len(self.outer)
            collapse = f" collapse({depth})" if depth > 1 else ""
            lines.insert(0, f"#pragma omp parallel for{collapse} schedule(static)ERROR_CLAUSE")
        elif not self.outer and not self.inner:
            lines = ["{", *indent(lines), "}"]
        return lines

    # -- transposed access: run over square tiles, so that both sides use whole cache lines
    def plan_tile(self):
        if not self.is_pointwise or not self.inner or self.has_scatter:
            return None
        for number in range(len(self.x)):
            size, lanes = int_or_none(self.outer[number]), int_or_none(self.inner[-1])
            if size and lanes and min(size, lanes) >= 8 and size * lanes >= TILE * TILE and any(
                    self.is_transposed(access.index, number) for b in self.bodies.values() for access in b.reads()):
                return number
        return None

    def is_transposed(self, index, number):
        """Does the read step by one along outer loop `number`, and further along the lanes?"""
        along_lanes = int_or_none(stride_of(index, self.r[-1]))
        return (along_lanes not in (0, 1, None) and stride_of(index, self.x[number]) == 1
                and not any(s.name.startswith(("tmp", "indirect")) for s in index.free_symbols))

    def tiled_nest(self, lines, number):
        """`lines` is the loop over lanes; it becomes the inside of a tile of x<number> and the lanes."""
        variable, lane = str(self.x[number]), str(self.r[-1])
        head = next(i for i, line in enumerate(lines) if line.startswith(f"for (int64_t {lane}"))
        lanes = index_text(self.inner[-1])
        lines = [line.replace("parallel for simd schedule(static)", "simd") for line in lines]
        lines[head] = (f"for (int64_t {lane} = {lane}_tile; {lane} < mini::minimum<int64_t>({lane}_tile + {TILE}, "
                       f"{lanes}); {lane}++) {{")
        size = index_text(self.outer[number])
        columns_head = f"for (int64_t {variable} = {variable}_tile; {variable} < mini::minimum<int64_t>({variable}_tile + " \
                       f"{TILE}, {size}); {variable}++)"
        fill = []
        for element, (array, c_type) in self.tile_loads.items():
            fill += [f"{c_type} {array}[{TILE}][{TILE}];", lines[head], f"    {columns_head}",
                     f"        {array}[{variable} - {variable}_tile][{lane} - {lane}_tile] = {element};", "}"]
        lines = fill + [f"for (int64_t {variable} = {variable}_tile; {variable} < mini::minimum<int64_t>({variable}_tile + "
                 f"{TILE}, {size}); {variable}++) {{", *indent(lines), "}"]
        loops = [(str(v), index_text(n), 1) for k, (v, n) in enumerate(zip(self.x, self.outer)) if k != number]
        loops += [(f"{variable}_tile", size, TILE), (f"{lane}_tile", lanes, TILE)]
        for name, end, step in reversed(loops):
            advance = f"{name}++" if step == 1 else f"{name} += {step}"
            lines = [f"for (int64_t {name} = 0; {name} < {end}; {advance}) {{", *indent(lines), "}"]
        if self.parallel:
            lines.insert(0, f"#pragma omp parallel for collapse({len(loops)}) schedule(static)ERROR_CLAUSE")
        return lines

    # -- reductions over rows: lanes run along the last outer loop, accumulators are arrays
    def write_by_rows(self):
        column, size = self.x[-1], int(self.outer[-1])
        width = min(size, COLUMNS)
        self.base = f"{column}_block"
        lines = []
        self.arrays = {}                # buffer -> array that holds its value for each column of the block
        for stage in range(-1, self.last_stage + 1):
            inner_nodes = [n for n in self.nodes if self.stage[n.name] == stage and self.is_inner[n.name]]
            outer_nodes = [n for n in self.nodes if self.stage[n.name] == stage and not self.is_inner[n.name]]
            deferred, accumulators = [], []
            if inner_nodes:
                stage_lines, deferred, accumulators = self.rows_loop(inner_nodes, width)
                lines += stage_lines
            if deferred or outer_nodes:
                scope = Scope()
                scope.counter = self.outside.counter
                self.where_am_i(scope, ())
                self.values = {}
                self.accumulators = accumulators
                for name, index, value, mode in deferred:
                    self.store(name, index, self.finished(value), mode)
                for node in outer_nodes:
                    self.play(node)
                for name in [name for name, *_ in deferred] + [n.name for n in outer_nodes]:
                    if any(a.name == name for n in self.nodes if self.stage[n.name] > stage for a in n.body.reads()):
                        array = self.arrays[name] = f"column{len(self.arrays)}"
                        value = self.values[name]
                        lines.append(f"{compute_type(value.dtype)} {array}[{width}];")
                        scope.add(f"{array}[{column} - {self.base}] = {value};")
                lines += self.columns_loop(scope.lines)
        end = index_text(size)
        head = f"for (int64_t {self.base} = 0; {self.base} < {end}; {self.base} += {width}) {{"
        bound = f"const int64_t {column}_end = mini::minimum<int64_t>({self.base} + {width}, {end});"
        return [head, *indent([bound] + lines), "}"]

    def columns_loop(self, lines):
        column = self.x[-1]
        pragma = ["#pragma omp simdERROR_CLAUSE"] if config.vectorize else []
        return [*pragma, f"for (int64_t {column} = {self.base}; {column} < {column}_end; {column}++) {{",
                *indent(lines), "}"]

    def rows_loop(self, nodes, width):
        column = self.x[-1]
        row, rows = self.r[-1], index_text(self.inner[-1])

        def body(step):
            """The nodes for row `row + step`: lines, and what each adds to its accumulator."""
            scope = Scope()
            scope.counter = self.outside.counter
            self.values, self.accumulators, self.deferred = {}, [], []
            self.where_am_i(scope, (column, *self.r))
            saved = self.bodies
            if step:
                self.bodies = {n: b.substitute(b.outer, b.inner, {row: row + step}) if b.inner else b
                               for n, b in saved.items()}
            first = self.outside.counter.get("acc", -1)
            for node in nodes:
                self.play(node)
            self.bodies = saved
            if step:
                self.outside.counter["acc"] = first
            return scope.lines, self.accumulators, self.deferred

        steps = [body(step) for step in range(ROWS)]
        accumulators, deferred = steps[0][1], steps[0][2]
        place = f"[{column} - {self.base}]"
        together, one = [], steps[0][0][:]
        for lines, _, _ in steps:
            together += lines
        for k, accumulator in enumerate(accumulators):
            parts = [s[1][k].term for s in steps]
            pairs = accumulator.combine(f"({accumulator.combine(parts[0], parts[1])})",
                                        f"({accumulator.combine(parts[2], parts[3])})")
            together.append(accumulator.update(f"({pairs})", place))
            one.append(accumulator.update(parts[0], place))
        count = int_or_none(self.inner[-1])
        whole = f"{rows} - {ROWS - 1}"
        loops = [f"int64_t {row} = 0;"]
        if count is None or count >= ROWS:
            loops += [f"for (; {row} < {whole}; {row} += {ROWS}) {{", *indent(self.columns_loop(together)), "}"]
        if count is None or count % ROWS:
            loops += [f"for (; {row} < {rows}; {row}++) {{", *indent(self.columns_loop(one)), "}"]
        lines = ["{", *indent(loops), "}"]
        if estimate(self.inner[-1:]) > 2 * ROWS_CHUNK and any(a.loses_bits for a in accumulators):
            lines = self.chunks_of_rows(loops, accumulators, width, row, rows)
        for variable, size in reversed(list(zip(self.r[:-1], self.inner[:-1]))):
            lines = [f"for (int64_t {variable} = 0; {variable} < {index_text(size)}; {variable}++) {{",
                     *indent(lines), "}"]
        return array_declarations(accumulators, width) + lines, deferred, accumulators

    def chunks_of_rows(self, loops, accumulators, width, row, rows):
        """Sum ROWS_CHUNK rows apart and add them up."""
        inside = [re.sub(r"\bacc(\d+)\[", r"part\1[", line).replace(f"int64_t {row} = 0", f"int64_t {row} = {row}_chunk")
                  .replace(f"{row} < {rows} ", f"{row} < {row}_stop ").replace(f"{row} < {rows};", f"{row} < {row}_stop;")
                  for line in loops]
        parts = [a.renamed("part") for a in accumulators]
        for accumulator in accumulators:
            accumulator.over_chunks = True
        merge = [f"for (int64_t k = 0; k < {width}; k++) {a.update(p.name + '[k]', '[k]')}"
                 for a, p in zip(accumulators, parts)]
        return [f"for (int64_t {row}_chunk = 0; {row}_chunk < {rows}; {row}_chunk += {ROWS_CHUNK}) {{",
                *indent([f"const int64_t {row}_stop = mini::minimum<int64_t>({row}_chunk + {ROWS_CHUNK}, {rows});",
                         *array_declarations(parts, width), *inside, *merge]), "}"]

    # -- memory ----------------------------------------------------------------------------------------------------
    def pointer(self, name, written):
        if name not in self.pointers:
            kind = "out" if written else "in"
            number = sum(p.startswith(kind) for p in self.pointers.values())
            self.pointers[name] = f"{kind}{number}"
        return self.pointers[name]

    def index(self, expr):
        """Print an index; sizes in it become arguments."""
        for symbol in sorted(expr.free_symbols, key=str):
            if symbol not in self.sizes and not re.fullmatch(r"[xr]\d+|tmp\d+", symbol.name):
                self.sizes.append(symbol)
        return index_text(expr)

    def changes_inside(self, expr):
        return any(s in self.inner_variables or s in self.inner_symbols for s in expr.free_symbols)

    def temporary(self, expression, dtype, inner, c_type=None):
        """Name a value at the outermost level where it is known."""
        scope = self.scope
        if not inner and self.inner_variables and not self.in_mask() and not self.by_rows:
            scope = self.outside
        name = self.scope.lookup((expression, c_type or compute_type(dtype)))
        if name is None:
            name = scope.temporary(expression, c_type or compute_type(dtype))
        return Value(name, dtype, inner)

    def in_mask(self):
        return getattr(self.scope, "is_mask", False)

    def load(self, name, index):
        if name in self.values:
            return self.values[name]
        dtype = self.buffers[name].layout.dtype
        if self.by_rows and name in self.arrays:
            return Value(f"{self.arrays[name]}[{self.x[-1]} - {self.base}]", dtype, True)
        inner = self.changes_inside(index)
        if name in self.scratch:
            return self.temporary(f"{self.scratch[name]}[{self.flat_inner()}]", dtype, True)
        if int_or_none(self.buffers[name].layout.numel) == 0:      # no element to read: the index is out of range, too
            return self.constant(0, dtype)
        if name not in self.stored and name not in self.read:
            self.read.append(name)
        element = f"{self.pointer(name, False)}[{self.index(index)}]"
        if self.tile is not None and not self.in_mask() and self.is_transposed(index, self.tile):
            if element not in self.tile_loads:
                self.tile_loads[element] = (f"tile{len(self.tile_loads)}", memory_type(dtype))
            variable, lane = self.x[self.tile], self.r[-1]
            element = f"{self.tile_loads[element][0]}[{variable} - {variable}_tile][{lane} - {lane}_tile]"
        if dtype in NARROW:
            element = f"mini::to_float({element})"
        return self.temporary(element, dtype, inner)

    def flat_inner(self):
        linear = sympy.Integer(0)
        for variable, size in zip(self.r, self.inner):
            linear = linear * size + variable
        return index_text(sympy.expand(linear))

    def store(self, name, index, value, mode=None):
        if value.text in self.pending_names():
            self.deferred.append((name, index, value, mode))
            return
        dtype = self.buffers[name].layout.dtype
        self.values[name] = Value(value.text, dtype, value.inner)
        if name in self.scratch:
            self.scope.add(f"{self.scratch[name]}[{self.flat_inner()}] = {value};")
        if name not in self.keep:
            return
        if name not in self.stored:
            self.stored.append(name)
        target = f"{self.pointer(name, True)}[{self.index(index)}]"
        if mode == "atomic_add":
            self.scatter_is_row_wise = stride_of(index, self.r[-1]) not in (0, None) and not any(
                s in self.inner_symbols for s in index.free_symbols) if self.r else False
            if dtype in NARROW:
                sum_text = f"mini::to_float({target}) + {value}"
                self.scope.add(f"{target} = mini::to_{NARROW[dtype]}({sum_text});")
            else:
                self.scope.add(f"{target} {'|' if dtype is torch.bool else '+'}= {value};")
            return
        self.scatter_is_row_wise = False
        if dtype in NARROW:
            text = self.raw.get((value.text, dtype)) or f"mini::to_{NARROW[dtype]}({value})"
        else:
            text = value.text
        self.scope.add(f"{target} = {text};")

    # -- reductions
    def pending_names(self):
        return {a.name for a in getattr(self, "accumulators", ())} if self.inner_variables else set()

    def finished(self, value):
        """The accumulator as a plain value, once its loop has ended."""
        accumulator = next(a for a in self.accumulators if a.name == value.text)
        place = f"[{self.x[-1]} - {self.base}]" if self.by_rows else ""
        text = accumulator.name + place
        if accumulator.kind.startswith("arg"):
            text += ".index"
        elif accumulator.kind == "any":
            text = f"({text} != 0)"
        elif accumulator.c_type == "double" and compute_type(value.dtype) != "double":
            text = f"(float){text}"
        return Value(text, value.dtype, self.by_rows)

    def reduction(self, dtype, src_dtype, kind, value, flat_index):
        if self.is_pointwise or not self.bodies[self.node.name].inner:      # one element: nothing to reduce
            if kind.startswith("arg"):
                return Value("0", dtype)
            if kind == "any":
                return self.to_dtype(value, torch.bool)
            return value if value.dtype == dtype else self.to_dtype(value, dtype)
        element_dtype = dtype if kind in ("sum", "prod", "xor_sum") else src_dtype
        if kind != "any" and value.dtype != element_dtype:
            value = self.to_dtype(value, element_dtype) if element_dtype not in NARROW else value
        accumulator = Accumulator(self.outside.fresh("acc"), kind, element_dtype)
        if kind.startswith("arg"):
            accumulator.term = f"{accumulator.c_type}{{{value}, {self.index(flat_index)}}}"
        elif kind == "any":
            accumulator.term = f"int32_t({value} != 0)"
        else:
            accumulator.term = value.text
        self.accumulators.append(accumulator)
        return Value(accumulator.name, dtype)

    # -- indices at run time
    def indirect_indexing(self, value, size, check=True, wrap_neg=True):
        size_text = self.index(sympy.sympify(size))
        index = self.to_dtype(value, torch.int64)
        if wrap_neg:
            index = self.temporary(f"{index} < 0 ? {index} + {size_text} : {index}", torch.int64, value.inner)
        if check:
            bad = self.temporary(f"(uint64_t){index} >= (uint64_t){size_text}", torch.bool, value.inner)
            self.error_if(bad, "INDEX_ERROR")
            index = self.temporary(f"{bad} ? 0 : {index}", torch.int64, value.inner)
        symbol = sympy.Symbol(index.text, integer=True)
        if value.inner:
            self.inner_symbols.add(symbol)
        return symbol

    def error_if(self, condition, error):
        scope = self.scope
        if not condition.inner and self.inner_variables and not self.in_mask() and not self.by_rows:
            scope = self.outside
        line = f"error |= {condition} ? mini::{error} : 0;"
        if line not in scope.lines:
            scope.add(line)

    # -- arithmetic --------------------------------------------------------------------------------------------------
    def constant(self, value, dtype):
        return Value(constant_text(value, dtype), dtype)

    def index_expr(self, expr, dtype):
        expr = sympy.sympify(expr)
        text, inner = self.index(expr), self.changes_inside(expr)
        if dtype is torch.int64:
            return Value(text, dtype) if expr.is_Integer else self.temporary(text, dtype, inner)
        return self.temporary(f"({compute_type(dtype)})({text})", dtype, inner)

    def to_dtype(self, x, dtype, src_dtype=None):
        source = x.dtype
        if dtype == source:
            return x
        if dtype in NARROW:
            wide = x if compute_type(source) == "float" else self.temporary(f"(float){x}", torch.float32, x.inner)
            if source is torch.bool:
                return Value(wide.text, dtype, x.inner)
            narrow = self.temporary(f"mini::to_{NARROW[dtype]}({wide})", dtype, x.inner, c_type=memory_type(dtype))
            value = self.temporary(f"mini::to_float({narrow})", dtype, x.inner)
            self.raw[value.text, dtype] = narrow.text
            return value
        if source in NARROW and dtype is torch.float32:
            return Value(x.text, dtype, x.inner)
        if dtype is torch.bool:
            return self.temporary(f"{x} != 0", dtype, x.inner)
        if source.is_floating_point and not dtype.is_floating_point:
            return self.temporary(f"mini::to_integer<{compute_type(dtype)}>({x})", dtype, x.inner)
        return self.temporary(f"({compute_type(dtype)}){x}", dtype, x.inner)

    def to_dtype_bitcast(self, x, dtype, src_dtype):
        text = x.text
        if src_dtype in NARROW:
            text = f"mini::to_{NARROW[src_dtype]}({text})"
        text = f"mini::bits<{memory_type(dtype)}>({text})"
        return self.temporary(f"mini::to_float({text})" if dtype in NARROW else text, dtype, x.inner)

    def where(self, condition, a, b):
        a, b = self.alike(a, b)
        inner = condition.inner or a.inner or b.inner
        return self.temporary(f"{condition} ? {a} : {b}", a.dtype, inner)

    def alike(self, a, b):
        """Python numbers among the arguments take the other's dtype."""
        if not isinstance(a, Value):
            a = self.constant(a, b.dtype)
        if not isinstance(b, Value):
            b = self.constant(b, a.dtype)
        return a, b

    def masked(self, mask, body, other):
        outside = self.scope
        inside = Scope(outside)
        inside.is_mask = True
        self.scope = inside
        value = body()
        self.scope = outside
        inner = bool(self.inner_variables)
        name = outside.fresh("tmp")
        lines = [f"{compute_type(value.dtype)} {name} = {constant_text(other, value.dtype)};",
                 f"if ({mask}) {{", *indent(inside.lines + [f"{name} = {value};"]), "}"]
        outside.lines += lines
        return Value(name, value.dtype, inner)

    def fma(self, a, b, c):
        return self.temporary(f"mini::fma({a}, {b}, {c})", a.dtype, a.inner or b.inner or c.inner)

    def rand(self, seed, offset):
        return self.temporary(f"mini::rand({seed}, {offset})", torch.float32, seed.inner or offset.inner)

    def randn(self, seed, offset):
        return self.temporary(f"mini::randn({seed}, {offset})", torch.float32, seed.inner or offset.inner)

    def randint(self, seed, offset, low, high):
        return self.temporary(f"mini::randint({seed}, {offset}, {low}, {high})", torch.int64,
                              seed.inner or offset.inner)

    def unary(self, op, x):
        if op == "neg":
            return self.temporary(f"-{x}", x.dtype, x.inner)
        if op == "bitwise_not":
            return self.temporary(f"{'!' if x.dtype is torch.bool else '~'}{x}", x.dtype, x.inner)
        if op == "logical_not":
            return self.temporary(f"{x} == 0", torch.bool, x.inner)
        dtype = torch.bool if op in ("isnan", "isinf", "signbit") else x.dtype
        return self.temporary(f"mini::{op}({x})", dtype, x.inner)

    def binary(self, op, a, b):
        a, b = self.alike(a, b)
        inner = a.inner or b.inner
        neutral = {"add": "0", "sub": "0", "mul": "1"}.get(op)
        if neutral and not a.dtype.is_floating_point:
            if b.text.removesuffix("LL") == neutral:
                return a
            if a.text.removesuffix("LL") == neutral and op != "sub":
                return b
        if op in LOGICAL and a.dtype == b.dtype == torch.bool:
            return self.temporary(f"{a} {LOGICAL[op]} {b}", torch.bool, inner)
        if op in LOGICAL:
            return self.temporary(f"({a} != 0) {LOGICAL[op]} ({b} != 0)", torch.bool, inner)
        dtype = torch.bool if op in COMPARISON else a.dtype
        if op in INTEGER_DIVISIONS and not a.dtype.is_floating_point and not re.fullmatch(r"-?[1-9]\d*(LL)?", b.text):
            self.error_if(self.temporary(f"{b} == 0", torch.bool, inner), "ZERO_DIVISION")
        if op in INFIX:
            return self.temporary(f"{a} {INFIX[op]} {b}", dtype, inner)
        c_type = compute_type(a.dtype)
        return self.temporary(f"mini::{op}<{c_type}>({a}, {b})" if not a.dtype.is_floating_point or op in (
            "maximum", "minimum", "remainder", "floordiv") else f"mini::{op}({a}, {b})", dtype, inner)


def _install(names, family):
    for name in names:
        if name not in vars(CppKernelWriter):
            setattr(CppKernelWriter, name,
                    lambda self, *args, _name=name: getattr(self, family)(_name, *args))


_install(UNARY, "unary")
_install(BINARY + COMPARISON, "binary")


def estimate(sizes):
    """Number of iterations; an unknown size counts as 128."""
    return math.prod(int_or_none(n) if int_or_none(n) is not None else 128 for n in sizes)


def fold_error_clauses(source):
    """Loops whose body sets `error` need to say so in their pragma."""
    lines = source.splitlines()
    for number, line in enumerate(lines):
        if "ERROR_CLAUSE" in line:
            margin = len(line) - len(line.lstrip())
            inside = []
            for later in lines[number + 1:]:
                inside.append(later)
                if later.startswith(" " * margin + "}"):
                    break
            uses = any("error |=" in later for later in inside)
            lines[number] = line.replace("ERROR_CLAUSE", " reduction(|:error)" if uses else "")
    return "\n".join(lines) + "\n"


def in_graph_order(origins, order):
    """Names of the FX nodes, in the order of their graph; what is not computed (inputs, parameters) left out."""
    names = {str(o) for o in origins}
    return sorted(names) if order is None else sorted(names & order.keys(), key=order.get)


def origin_text(origins, order, limit=8):
    """": add, mul, ... (3 before)", for comments."""
    names = in_graph_order(origins, order)
    more = f"{len(names) - limit} more, ..., " if len(names) > limit else ""
    return f": {more}{', '.join(names[-limit:])}" if names else ""


def summary(group, order):
    """"add_gelu": the last few FX ops of the group, each once."""
    words = []
    for name in reversed(in_graph_order({o for n in group.nodes for o in n.buffer.origins}, order)):
        word = re.sub(r"(_(default|tensor_scalar|tensor|scalar|int|dim|self|correction))?(_\d+)?$", "", name.lower())
        word = word.strip("_")
        if word.isidentifier() and word not in words and word not in ("view", "unsqueeze", "permute", "expand"):
            words.insert(0, word)
        if len(words) == 4:
            break
    return "_".join(words)[:40].strip("_") or ("reduction" if group.is_reduction else "pointwise")


def strip_comments(source):
    return re.sub(r"[ \t]*//[^\n]*", "", source)
