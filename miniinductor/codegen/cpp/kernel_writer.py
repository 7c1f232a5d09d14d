"""One fused group in, one C++ function out.

In:   a scheduler `Group` and the names whose values must be in memory afterwards.  Out: a `Kernel`:
      source, and which buffers and sizes it takes, in order.

    // computes buf0: exp
    extern "C" int NAME(void** args) {
        const float* in0 = (const float*)args[0];    // arg0
        float* out0 = (float*)args[1];    // buf0: exp
        #pragma omp parallel for schedule(static)
        for (int64_t x0 = 0; x0 < 4096; x0++) {
            #pragma omp simd
            for (int64_t r0 = 0; r0 < 1024; r0++) {
                const float tmp0 = in0[r0 + 1024*x0];
                const float tmp1 = mini::exp(tmp0);
                out0[r0 + 1024*x0] = tmp1;
            }
        }
        return 0;
    }

Every kernel is: outer loops (threads), and in them a sequence of *stages*, each an inner loop
(vector lanes) followed by statements per outer iteration (kernel_plan.py).  A value made in one
stage's inner loop and read in a later one *crosses* stages.  It lies in a scratch buffer on the
stack, which stays in the cache, or in memory if it is too large for that.  layouts.py chooses the
loops around the stages; expressions.py has the rule of each op.

Pointers are named by position, never by buffer, so that equal layers of a model give equal sources,
which are compiled once.

Mirrors torch/_inductor/codegen/cpp.py (paper section 4.4 and 4.6).  Left out: explicit vector types
(the compiler vectorises; see the prelude), GEMM templates.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import sympy
import torch

from ... import config
from ...ir.dependencies import Instruction
from ...ir.loops import Buffer, playing
from ...ir.ops import is_loop_variable, price
from ...records import Listing, Marked, indent
from ...schedule.after_fusion import SIZE, Foreach
from ...schedule.nodes import Group, Node
from ...sizes.expressions import Position, flatten, index_text
from ...sizes.symbols import Size
from ..kernels import Kernel, Order, Value, about_lines, of_all_parts, origin_text, summary
from ..kernel_plan import (
    PARALLEL_WORK,
    KernelPlan,
    can_unroll,
    estimate,
    lanes_along_memory,
    plan_kernel,
    with_lanes,
)
from .expressions import (
    SMALL_FLOATS,
    CppExpressions,
    CppScope,
    SmallTable,
    TableScope,
    as_computed,
    combined,
    compute_type,
    memory_type,
)
from .lanes import Plain, longest
from .layouts import LAYOUTS, converted_together
from .statements import (
    Bound,
    Line,
    Pragma,
    Statement,
    Statements,
    has_branch,
    nest,
    printed,
    sets_error,
)

# buffer, index, value, mode and instruction of a store
Deferred: TypeAlias = tuple[str, sympy.Expr, Value, str | None, Any]
STACK_BYTES = 1 << 18  # for values between stages
LONGEST_TABLE = 1024  # iterations of a loop whose values may be kept in arrays
UNROLLED = 32  # iterations up to which gcc may unroll a loop wholly: 16, unless flags say otherwise
BARRIER = Line('asm volatile("");', origin="keeps the compiler from making vectors of the loop")


class CppKernelWriter(CppExpressions):
    """Plays the bodies of a group into C++ lines."""

    shares_lanes = False  # do threads share the lanes of each loop?

    def __init__(
        self,
        group: Group,
        buffers: Mapping[str, Buffer],
        keep: Iterable[str],
        order: Order = {},
        overwritten: Mapping[str, str] = {},
    ):
        """overwritten: buffer -> input whose memory it takes."""
        self.group, self.buffers, self.keep = group, buffers, set(keep)
        self.order, self.overwritten = order, overwritten
        self.pointers: dict[str, str] = {}  # buffer name -> C name
        self.sizes: list[sympy.Symbol] = []
        self.names: set[sympy.Symbol] = set()  # indices that are variables of the kernel: tmp3
        self.values: dict[str, Value] = {}  # buffer -> its element that was computed or read last
        self.stored: list[str] = []
        self.read: list[str] = []
        self.reads_again = False  # may it read an element again, after results have been written?
        self.rounded, self.short_nan = {}, set()
        self.has_scatter = bool(group.targets)
        self.only_moves = all(self.moves_only(n.body) for n in group.nodes)
        self.overwrites = not overwritten.keys().isdisjoint(group.names)
        self.constants = CppScope()  # statements before the loops, of no variable
        self.outside = CppScope(self.constants)  # statements per outer iteration
        self.tables: list[tuple[dict, TableScope]] = []
        self.table_of = {}
        self.inner_symbols = set()
        self.accumulators: list[Any] = []  # (reductions.py)
        # stores of accumulators, to be written after their loop
        self.deferred: list[Deferred] = []
        self.inner_variables = set()
        self.lane: sympy.Symbol | None = None  # the innermost of these
        self.scratch: dict[str, str] = {}  # buffer -> the scratch array that holds its elements

    # -- plan --------------------------------------------------------------------------------------
    def plan_loops(self) -> KernelPlan:
        plan = plan_kernel(self.group.nodes)
        if not plan.is_pointwise:
            return plan
        bodies = list(plan.bodies.values())
        if can_unroll(plan, self.overwritten):
            bodies = [body.unrolled() for body in bodies]
        if plan.outer and config.tiling and not self.has_scatter:
            bodies = lanes_along_memory(bodies)
        return with_lanes(plan, bodies)

    def decide(self) -> None:
        """Choose the kernel's form from its plan alone, before a line is written."""
        self.decide_threads()
        self.layout = next(one for layout in LAYOUTS if (one := layout(self)).applies())
        self.plan_crossings()
        if type(self.layout) is Plain:
            self.plan_tables()

    def plan_tables(self) -> None:
        """Plan tables: costly values that depend on one loop variable only are computed once."""
        plan, bodies = self.plan, self.plan.bodies.values()
        for v, n in [*zip(plan.r[-1:], plan.inner[-1:]), *zip(plan.x, plan.outer)]:
            times = plan.outer_count // (1 if v in plan.r else max(1, estimate((n,))))
            found = [i for body in bodies for i in body.depending_only_on([v])]
            is_costly = any(i.op == "indirect_indexing" or price(i.op) > 1 for i in found)
            if is_costly and times >= 8 and longest(n) <= LONGEST_TABLE:
                self.add_table({v: n}, found)
        constants = [id(i) for body in bodies for i in body.depending_only_on([])]
        self.table_of.update(dict.fromkeys(constants, self.constants))

    def add_table(self, loops: dict[sympy.Symbol, Size], found: Iterable[Instruction]) -> None:
        """Compute once what the instructions say, which depends on these loops only."""
        place, count = flatten(loops, loops.values()), self.size(math.prod(loops.values()))
        kind = SmallTable if isinstance(count, int) and count <= LONGEST_TABLE else TableScope
        table = kind(self.outside, f"[{self.index(place)}]", count)
        self.tables.append((loops, table))
        self.table_of.update(dict.fromkeys(map(id, found), table))
        self.outside = CppScope(table)

    def decide_threads(self) -> None:
        plan, self.threads_if = self.plan, ""  # of symbolic sizes: the condition for threads
        work = math.prod((*plan.outer, *plan.inner, plan.work_per_element))
        self.parallel = config.openmp
        if isinstance(work, int):
            self.parallel &= work >= PARALLEL_WORK
        else:
            self.threads_if = f"{self.size(work)} >= {PARALLEL_WORK}"

    def plan_crossings(self) -> None:
        """Choose scratch buffers or memory for values that cross stages."""
        count = math.prod(self.plan.inner)
        room = STACK_BYTES if self.layout.keeps_stack and isinstance(count, int) else 0
        for node in self.plan.crossing():
            nbytes = count * max(4, self.buffers[node.name].layout.dtype.itemsize)
            if node.name in self.keep:
                continue
            if room and nbytes <= room:
                room -= nbytes
                self.scratch[node.name] = f"scratch{len(self.scratch)}"
            else:
                self.keep.add(node.name)

    # -- writing -----------------------------------------------------------------------------------
    def write(self) -> Kernel:
        self.plan = self.plan_loops()
        self.decide()
        loops = self.layout.loop_nest(self.layout.kernel_body())
        for variables, table in reversed(self.tables):
            lane, *around = [(v, 0, self.size(n)) for v, n in variables.items()]
            fill = self.layout.along(*lane, table.lines)
            loops = [*table.arrays, *nest(fill, around), *loops]
        return self.function([*self.constants.lines, *loops])

    def function(self, lines: list[Statement]) -> Kernel:
        return self.finish(self.pointer_lines("args[{}]") + lines, list(self.pointers))

    def finish(self, lines: list[Statement], buffers: Sequence[str]) -> Kernel:
        """The kernel, whose arguments are pointers to `buffers` and then the sizes."""
        checks = sets_error(lines)
        head = [ending("int error = 0;")] if checks else []
        arguments = [*buffers, *self.sizes]
        for symbol in self.sizes:
            text = f"const int64_t {symbol} = (int64_t)args[{arguments.index(symbol)}];"
            head.append(Marked.of(text, reason="a size, which the kernel is given"))
        end = ending("return error;" if checks else "return 0;")
        body = [*head, *printed(lines), end]
        names, about = [n.name for n in self.plan.nodes], about_lines(self.plan.nodes, self.order)
        source = [
            Marked.of('extern "C" int NAME(void** args) {', marks=names),
            *indent(Marked.of(f"// {line}", marks=names) for line in about),
            *indent(body),
            ending("}"),
        ]
        listing = Listing.of(source)
        return Kernel(
            listing + "\n",
            arguments,
            list(self.stored),
            list(self.read),
            summary(self.group.nodes, self.order),
            self.reads_again,
            about=listing.about,
        )

    def pointer_lines(self, place: str) -> list[Statement]:
        """Declarations of the pointers; place: the text of an argument, with {} for its number."""
        written = {self.overwritten.get(name, name) for name in self.stored}
        lines: list[Statement] = []
        for number, (name, pointer) in enumerate(self.pointers.items()):
            c_type = memory_type(self.dtype_of(name))
            if name not in written:
                c_type = f"const {c_type}"
            made_by = origin_text(self.buffers[name], self.order)
            value = f"({c_type}*){place.format(number)}"
            text = f"{c_type}* {pointer} = {value};    // {name}{made_by}"
            lines.append(Line(text, origin="where a buffer lies"))
        return lines

    def scratch_place(self, name: str) -> str:
        return f"{self.scratch[name]}[{self.index(flatten(self.plan.r, self.plan.inner))}]"

    def write_into(self, scope: CppScope, inner_variables: Iterable[sympy.Symbol]) -> None:
        """From now on statements go to `scope`, which lies inside of the loops over these.  Names
        may be used anew there."""
        *_, self.lane = None, *inner_variables
        self.scope, self.inner_variables = scope, set(inner_variables)

    def play(self, node: Node) -> None:
        self.node = node
        if len(self.plan.nodes) > 1:
            text = f"// {node.name}{origin_text(node.buffer, self.order)}"
            self.scope.add(text, "a comment")
        self.plan.bodies[node.name].play(self)

    # -- lanes -------------------------------------------------------------------------------------
    def vector_loop(
        self, variable: object, start: Bound, end: Bound, lines: Statements, pragma: Pragma
    ) -> list[Statement]:
        """A loop over lanes, and before it what keeps loops around it from being vectorised.

        gcc 12 vectorises this loop wrongly (wrong elements, taken from memory that nobody wrote):

            for (x = 0; x < 20; x++) {                  two elements of one array in each iteration,
                float a = 0, b = 0;                     both loaded under the same condition
                if (2 <= x && x < 18) a = in[2*x];
                out[2*x] = a;
                if (2 <= x && x < 18) b = in[2*x + 1];
                out[2*x + 1] = b;
            }

        What must hold of a loop that is vectorised: an iteration writes at most one element through
        each pointer, or loads nothing under a condition.  It holds of the lanes that we mark, but
        of no loop around short lanes: unrolled, they are the loop above.  A loop with an empty
        `asm` in it is never vectorised, and costs nothing.  (-fno-tree-loop-vectorize would stop
        the marked loops, too.)"""
        count = end - start if isinstance(start, int) and isinstance(end, int) else 0
        fence = [BARRIER] if count <= UNROLLED and has_branch(lines) else []
        return [*fence, *nest(lines, [(variable, start, end)], pragma)]

    def simd(self) -> Pragma:
        """Vector lanes of an innermost loop; of a long one with little around it, threads, too."""
        if not self.lanes_are_free():
            return Pragma()
        plan = self.plan
        is_long = plan.inner_count >= 1024 and plan.outer_count < 8
        if plan.is_pointwise and self.parallel and is_long and type(self.layout) is Plain:
            return Pragma("parallel for", True, condition=self.threads_if)
        return Pragma(simd=True)

    def lanes_are_free(self) -> bool:
        return config.vectorize and not self.layout.is_serial and not self.group.has_scan

    # -- memory ------------------------------------------------------------------------------------
    def pointer(self, name: str, written: bool) -> str:
        name = self.overwritten.get(name, name)
        if name not in self.pointers:
            kind = "out" if written else "in"
            number = sum(p.startswith(kind) for p in self.pointers.values())
            self.pointers[name] = f"{kind}{number}"
        return self.pointers[name]

    def index(self, expr: sympy.Expr) -> str:
        """The text of an index.  Sizes in it become arguments of the kernel."""
        for symbol in sorted(expr.free_symbols, key=str):
            if symbol not in (*self.sizes, *self.names) and not is_loop_variable(symbol):
                self.sizes.append(symbol)
        return index_text(expr)

    def position(self, name: str) -> Position:
        """A value of the generated code, for an index."""
        symbol = Position(name, integer=True)
        self.names.add(symbol)
        return symbol

    def size(self, number: Size) -> int | str:
        """A loop's size: a number, or the text of one."""
        return number if isinstance(number, int) else self.index(number)

    def load(self, name: str, index: sympy.Expr) -> Value:
        if name in self.values:
            return self.values[name]
        dtype = self.dtype_of(name)
        if name in self.scratch:
            return self.temporary(self.scratch_place(name), dtype, True)
        inner = self.changes_inside(index.free_symbols)
        if 0 in self.buffers[name].layout.size:
            return self.constant(0, dtype)  # it has no element; the check of the index raises
        if name not in (*self.stored, *self.read):
            self.read.append(name)
        element = self.layout.element(name, index, False)
        if dtype.itemsize < 4 and self.inner_symbols & index.free_symbols:
            element = f"mini::gathered({self.pointer(name, False)}, {self.index(index)})"
        wide = converted_together(self, "Widened", element, dtype, index)
        value = self.temporary(wide or as_computed(element, dtype), dtype, inner)
        self.rounded.setdefault(value.text, value.text)
        if dtype is torch.bfloat16:
            self.short_nan.add(value.text)
        return value

    def store(self, name: str, index: sympy.Expr, value: Value, mode: str | None = None) -> None:
        if self.inner_variables and any(a.name == value.text for a in self.accumulators):
            self.deferred.append((name, index, value, mode, playing.value))
            return
        dtype = self.dtype_of(name)
        self.values[name] = Value(value.text, dtype, value.inner, value.number)
        if name in self.scratch:
            self.scope.add(f"{self.scratch_place(name)} = {value};")
        if name not in self.keep:
            return
        if name not in self.stored:
            self.stored.append(name)
        old = self.overwritten.get(name)
        if old in self.group.read_names and not self.group.is_reduction:
            self.load(old, index)  # before it is overwritten: other bodies of this loop may need it
        target, new = self.layout.element(name, index, True), self.unrounded(value)
        if mode:
            new = combined(mode, as_computed(target, dtype), value, compute_type(dtype))
        wide = converted_together(self, "Narrowed", target, dtype, index)  # (a scatter has none)
        stored = new if wide else self.narrow(new, value, dtype)
        self.scope.add(f"{wide or target} = {stored};")

    # -- reductions
    def store_deferred(self, place: str = "") -> None:
        """Store the accumulators (their elements at `place`), once their loop has ended."""
        results = {a.name: a.result for a in self.accumulators}
        deferred, self.deferred = self.deferred, []
        for name, index, value, mode, instruction in deferred:
            with playing.set(instruction):
                wide = torch.float32 if value.dtype in SMALL_FLOATS else value.dtype
                result = Value(results[value.text](value.dtype, place), wide)
                self.store(name, index, self.to_dtype(result, value.dtype), mode)

    @property
    def has_one_element(self) -> bool:
        """Is there no loop of what is reduced, or scanned?"""
        return self.plan.is_pointwise or not self.plan.bodies[self.node.name].inner

    def reduction(
        self,
        dtype: torch.dtype,
        src_dtype: torch.dtype,
        kind: str,
        value: Value,
        flat_index: sympy.Expr,
    ) -> Value:
        from .reductions import ACCUMULATORS

        make = ACCUMULATORS[kind]
        if self.has_one_element:  # nothing to reduce
            return make.of_one(self, value, dtype)
        element_dtype = src_dtype if make.of_elements else dtype
        accumulator = make(self.outside.fresh("acc"), kind, element_dtype)
        accumulator.take(self, value, flat_index)
        self.accumulators.append(accumulator)
        return Value(accumulator.name, dtype)

    def scan(self, dtype: torch.dtype, kind: str, value: Value) -> Value:
        """A running total: each iteration of the loop has a result of its own."""
        if self.has_one_element:
            # 0 + -0.0 is 0.0
            plus_zero = Value(f"({value} + 0)", dtype, value.inner)
            return plus_zero if kind == "sum" else value
        total = self.outside.fresh("scan")
        start, added = {
            "sum": ("0", f"{total} + {value}"),
            "prod": ("1", f"{total} * {value}"),
            "logaddexp": (
                f"-mini::inf, {total}_most = -mini::inf, {total}_rest = 0",
                f"mini::logaddexp({total}_most, {total}_rest, {value})",
            ),
        }[kind]
        self.outside.add(f"{compute_type(dtype)} {total} = {start};")
        self.scope.add(f"{total} = {added};")
        return Value(total, dtype, True)


# --- horizontal fusion ---------------------------------------------------------------------------
PARTS = "which of the alike parts is computed"


class ForeachWriter(CppKernelWriter):
    """Horizontal fusion: several groups of the same body in, one function out.  It writes the body
    of the first part; the others differ in their pointers and number of elements.

    static const int64_t sizes[30] = {65536, 256, ...};
    #pragma omp parallel
    for (int64_t part = 0; part < 30; part++) {
        const int64_t size = sizes[part];
        float* in0 = (float*)args[part*4 + 0];
        ...
        #pragma omp for simd nowait schedule(static)
        for (int64_t r0 = 0; r0 < size; r0++) {

    Every thread takes its share of every part and never waits for the others.  The idea is torch's
    multi_tensor_apply."""

    shares_lanes = True

    def __init__(self, group: Foreach, *context: Any):
        super().__init__(group.parts[0].group, *context)
        self.parts = group.parts

    def plan_loops(self) -> KernelPlan:
        return replace(super().plan_loops(), inner=(SIZE,))

    def decide_threads(self) -> None:
        work = sum(estimate(part.group.outer) for part in self.parts) * self.plan.work_per_element
        self.parallel, self.threads_if = config.openmp and work >= PARALLEL_WORK, ""

    def size(self, number: Size) -> int | str:
        return "size" if number == SIZE else super().size(number)

    def simd(self) -> Pragma:
        if self.parallel:
            return Pragma("for", simd=config.vectorize)
        return super().simd()

    def function(self, lines: list[Statement]) -> Kernel:
        count, width, names = len(self.parts), len(self.pointers), self.parts[0].names
        memory = lambda name: self.overwritten.get(name, name)  # noqa: E731
        first = list(map(memory, names))

        body = [
            Line("const int64_t size = sizes[part];", origin=PARTS),
            *self.pointer_lines(f"args[part*{width} + {{}}]"),
            *lines,
        ]
        sizes = ", ".join(str(self.size(math.prod(part.group.outer))) for part in self.parts)
        every = [Line(f"const int64_t sizes[{count}] = {{{sizes}}};", origin=PARTS)]
        if self.parallel:
            every.append(Line("#pragma omp parallel", origin=PARTS))
        kernel = self.finish(
            every + nest(body, [("part", 0, count)]),
            [
                memory(part.names[first.index(name)])
                for part in self.parts
                for name in self.pointers
            ],
        )
        return of_all_parts(kernel, self.parts)


def ending(text: str) -> Marked:
    return Marked.of(text, reason="begins or ends the kernel")
