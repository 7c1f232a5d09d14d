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
(vector lanes) followed by statements per outer iteration (plan.py).  A value made in one stage's
inner loop and read in a later one *crosses*: it waits in a small array on the stack, which stays in
the cache; where it is too large for that, in memory, that of a result (a *guest*) if that is only
written later:

    out0[r0] = exp(in0[r0] - max);
    out0[r0] = out0[r0] / sum;

Pointers are named by position, never by buffer, so that equal layers of
a model give equal sources, compiled once.

Mirrors torch/_inductor/codegen/cpp.py (paper section 4.4 and 4.6).  Left out: explicit vector types
(the compiler vectorises; see the prelude), GEMM templates.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import sympy
import torch

from ... import config
from ...ir.dependencies import LoopBody, stride_of
from ...ir.loops import Buffer, playing
from ...ir.ops import is_loop_variable
from ...records import Listing, Marked, indent
from ...schedule.nodes import Group, Node
from ...sizes.expressions import Position, flatten
from ...sizes.symbols import Size
from ..common import (
    Code,
    Kernel,
    Value,
    call,
    code,
    element,
    index_code,
    named,
    origin_text,
    summary,
)
from ..plan import PARALLEL_WORK, KernelPlan, plan_kernel, with_lanes
from ..tree import (
    Block,
    Bound,
    Branch,
    Comment,
    Line,
    Loop,
    Pragma,
    Statement,
    Statements,
    has_branch,
    nest,
    printed,
    sets_error,
)
from .expressions import HALVES, CppExpressions, CppScope, compute_type, memory_type
from .reductions import (
    ACCUMULATORS,
    ARRAY_TYPES,
    STACK,
    Accumulator,
    Lanes,
    Spread,
    Sums,
    declarations,
)
from .rows import Rows
from .strategy import Strategy
from .tiles import Tables, Tiles

# buffer, index, value, mode and instruction of a store
Deferred: TypeAlias = tuple[str, sympy.Expr, Value, str | None, Any]
STACK_BYTES = 1 << 17  # for values between stages
SMALL = 2048  # elements of each where their number is a symbol: more lie in memory of the thread
UNROLLED = 32  # iterations up to which gcc may unroll a loop wholly: 16, unless flags say otherwise
BARRIER = Line('asm volatile("");', origin="keeps the compiler from making vectors of the loop")
STRATEGIES: list[type[Strategy]] = [Rows, Spread, Tiles, Tables]  # as they are asked


class CppKernelWriter(CppExpressions):
    """Plays the bodies of a group into C++ lines."""

    def __init__(
        self,
        group: Group,
        buffers: Mapping[str, Buffer],
        keep: Iterable[str],
        order: Mapping[str, int] | None = None,
        overwritten: Mapping[str, str] = {},
    ):
        """order: FX node -> its place in the graph, None: by name; overwritten: buffer -> input
        whose memory it takes."""
        self.group, self.buffers, self.keep = group, buffers, set(keep)
        self.order, self.overwritten = order, overwritten
        self.pointers: dict[str, Code] = {}  # buffer name -> C name
        self.sizes: list[sympy.Symbol] = []
        self.names: set[sympy.Symbol] = set()  # indices that are variables of the kernel: tmp3
        self.values: dict[str, Value] = {}  # buffer -> its element that was computed or read last
        self.stored: list[str] = []
        self.read: list[str] = []
        self.strategies = [strategy(self) for strategy in STRATEGIES]
        self.is_tiled = False  # are outer loops cut into tiles, so that no loop may be taken alone?
        self.reruns = False  # may it read something after it has written a result?
        self.has_scatter = bool(group.targets)
        self.outside = CppScope()  # statements per outer iteration
        self.inner_symbols, self.small = set(), set()
        self.accumulators: list[Accumulator] = []
        # stores of what they hold, which wait until their loop has ended
        self.deferred: list[Deferred] = []
        self.inner_variables = set()
        # of bfloat16 and float16 (cpp_expressions.py); copies: a value -> the element it came from
        self.exact, self.raw = set(), {}
        self.copies: dict[tuple[str, torch.dtype], Code] = {}
        self.has_fast_forms = False
        self.scratch: dict[str, Code] = {}  # buffer -> the array in which its elements wait
        self.guests: dict[str, str] = {}  # buffer -> the result in whose memory they do
        self.scatter_is_row_wise = False  # does each lane write another element?

    # -- plan --------------------------------------------------------------------------------------
    def plan_loops(self) -> KernelPlan:
        plan = plan_kernel(self.group.nodes)
        if not plan.is_pointwise:
            return plan
        bodies = list(plan.bodies.values())
        return with_lanes(plan, self.ask("longer_lanes", bodies) or bodies)

    def decide(self) -> None:
        """Which form the kernel takes: from its plan alone, before a line is written."""
        self.decide_threads()
        found = [one for one in self.strategies if one.applies()]
        self.strategies = [one for one in found if one.writes_alone] or found
        self.plan_crossings()

    def decide_threads(self) -> None:
        plan, self.threads_if = self.plan, ""  # what a call asks first, where sizes are symbols
        work = plan.outer_count * plan.inner_count * plan.work_per_element
        self.parallel = config.openmp and work >= PARALLEL_WORK and not self.has_scatter
        sizes = (*plan.outer, *plan.inner)
        if not all(isinstance(n, int) for n in sizes):
            self.parallel = config.openmp and not self.has_scatter
            enough = -(-PARALLEL_WORK // plan.work_per_element)
            self.threads_if = f"{self.size(math.prod(sizes))} >= {enough}"

    def plan_crossings(self) -> None:
        """Where values wait that one inner loop makes and a later one reads."""
        kept, nbytes = frozenset(self.keep), self.plan.inner_count * 8
        room = STACK_BYTES if all(s.keeps_stack for s in self.strategies) else 0
        for node in self.plan.crossing():
            if node.name in kept:
                continue
            if nbytes <= room:
                room -= nbytes
                self.scratch[node.name] = named(f"scratch{len(self.scratch)}")
                continue
            self.keep.add(node.name)
            [host, *others] = self.plan.later_loops(node)
            taken = {*self.overwritten, *self.guests.values()}
            if not others and host.name in kept - taken and self.may_be_guest(node, host):
                self.guests[node.name] = host.name

    def may_be_guest(self, node: Node, host: Node) -> bool:
        """Is each element of `node` read just to store one of the same size, by `host`, in the same
        place?"""
        if host.is_reduction or self.has_scatter:
            return False
        if self.buffers[host.name].layout.dtype != self.buffers[node.name].layout.dtype:
            return False
        body = self.plan.bodies[host.name]
        places = {access.index for access in body.writes()}
        places |= {access.index for access in body.reads() if access.name == node.name}
        return places == {self.plan.bodies[node.name].writes()[0].index}

    # -- writing -----------------------------------------------------------------------------------
    def write(self) -> Kernel:
        self.plan = self.plan_loops()
        self.decide()
        return self.function(self.ask("loop_nest", self.ask("kernel_body")))

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
        origins = {o for n in self.plan.nodes for o in n.buffer.origins}
        end = ending("return error;" if checks else "return 0;")
        body = self.whole_body([*head, *printed(lines), end])
        names = [n.name for n in self.plan.nodes]
        about = f"// computes {', '.join(names)}{origin_text(origins, self.order, limit=12)}"
        source = [
            Marked.of(about, marks=names),
            Marked.of('extern "C" int NAME(void** args) {', marks=names),
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
            self.reruns,
            about=listing.about,
        )

    def whole_body(self, lines: list[str]) -> list[str]:
        """What stands between the function's braces."""
        if not self.has_fast_forms:
            return lines
        first = ending("return mini::fast_then_exact([&](auto exact) {")
        return [first, *indent(lines), ending("});")]

    def pointer_lines(self, place: str) -> list[Statement]:
        """What makes pointers of the arguments; place: an argument, with {} for its number."""
        written = {self.overwritten.get(name, name) for name in self.stored}
        lines: list[Statement] = []
        for number, (name, pointer) in enumerate(self.pointers.items()):
            c_type = memory_type(self.buffers[name].layout.dtype)
            if name not in written:
                c_type = f"const {c_type}"
            made_by = origin_text(getattr(self.buffers[name], "origins", ()), self.order, limit=3)
            value = f"({c_type}*){place.format(number)}"
            text = f"{c_type}* {pointer} = {value};    // {name}{made_by}"
            lines.append(Line(text, origin="where a buffer lies"))
        return lines

    def plain_kernel_body(self) -> list[Statement]:
        """Outer iteration = per stage: accumulators, inner loop, statements after it."""
        for name, array in self.scratch.items():
            self.declare_scratch(array, compute_type(self.buffers[name].layout.dtype))
        for stage in self.plan.stages():
            inner_nodes = self.plan.nodes_of(stage, inner=True)
            self.current_stage = stage
            if inner_nodes:
                self.write_inner_stage(inner_nodes)
            self.write_into(self.outside, ())
            for node in self.plan.nodes_of(stage, inner=False):
                self.play(node)
        return self.outside.lines

    def declare_scratch(self, array: str, c_type: str) -> None:
        count = math.prod(self.plan.inner)
        if isinstance(count, int):
            self.outside.add(f"{ARRAY_TYPES.get(c_type, c_type)} {array}[{count}];", STACK)
            return
        number, size = array.removeprefix("scratch"), self.size(count)
        self.outside.add(f"{c_type} small_{array}[{SMALL}];", STACK)
        large = f"mini::scratch<{c_type}, {number}>({size})"
        self.outside.add(f"{c_type}* {array} = {size} <= {SMALL} ? small_{array} : {large};", STACK)

    def scratch_place(self, name: str) -> Code:
        place = self.index(flatten(self.plan.r, self.plan.inner))
        return code("{}[{}]", self.scratch[name], place)

    def write_into(self, scope: CppScope, inner_variables: Iterable[sympy.Symbol]) -> None:
        """From now on statements go to `scope`, which lies inside of the loops over these.  Names
        may be used anew there."""
        self.scope, self.inner_variables = scope, set(inner_variables)
        self.exact.clear()

    def play(self, node: Node, body: LoopBody | None = None) -> None:
        self.node, body = node, body or self.plan.bodies[node.name]
        if len(self.plan.nodes) > 1 and body is self.plan.bodies[node.name]:
            text = f"// {node.name}{origin_text(node.buffer.origins, self.order)}"
            self.scope.lines.append(Comment(text, origin="a comment"))
        body.play(self)

    def write_inner_stage(self, nodes: Sequence[Node]) -> None:
        self.write_lanes(nodes)
        self.write_into(self.outside, ())
        for name, index, value, mode, instruction in self.deferred:
            with playing.set(instruction):
                self.store(name, index, self.finished(value), mode)

    def write_lanes(self, nodes: Sequence[Node]) -> None:
        """The inner loop."""
        body = self.lane_body(nodes)
        first = self.ask("first_in_lanes", body) or []
        lines = self.ask("inner_loop", [*first, *body], self.accumulators)
        self.outside.lines += lines

    def lane_body(self, nodes: Sequence[Node]) -> list[Statement]:
        """What one iteration of the inner loop does."""
        inside = CppScope(self.outside)
        self.accumulators, self.deferred = [], []
        for one in self.strategies:
            one.begin_lanes()
        self.write_into(inside, self.plan.r)
        for node in nodes:
            self.play(node)
        for node in nodes:  # next stages, and other parts, cannot see values of this loop
            if not node.is_reduction:
                self.values.pop(node.name, None)
        return inside.lines

    def ask(self, question: str, *args: object) -> Any:
        """What the first strategy answers that has an answer (strategy.py has all questions); else
        what the plain form is: the method of this class that is named after the question,
        plain_inner_loop for "inner_loop".  Without such a method None: there is nothing to add."""
        for one in self.strategies:
            answer = getattr(one, question)(*args) if hasattr(one, question) else None
            if answer is not None:
                return answer
        plain = getattr(self, f"plain_{question}", None)
        return None if plain is None else plain(*args)

    def plain_inner_loop(self, lines: Statements, accumulators: Sums) -> list[Statement]:
        """The loops over r0, r1, ... around `lines`."""
        # the loops come first: if they cut a sum into chunks, the accumulators become doubles
        loops = self.chunks(lines, accumulators, 0, self.size(self.plan.inner[0]))
        return [*declarations(accumulators), *loops]

    def chunks(
        self, lines: Statements, accumulators: Sums, start: Bound, end: Bound
    ) -> list[Statement]:
        """Loops over r0 (from start to end), r1, ..."""
        rest = [(r, 0, self.size(n)) for r, n in zip(self.plan.r[1:], self.plan.inner[1:])]
        loops = [(self.plan.r[0], start, end), *rest]
        if accumulators:
            return Lanes(self, lines, accumulators, loops).statements()
        *around, (lane, first, stop) = loops
        return nest(self.along(lane, first, stop, lines), around)

    # -- lanes -------------------------------------------------------------------------------------
    def along(
        self, variable: sympy.Symbol, start: Bound, end: Bound, lines: Statements
    ) -> list[Statement]:
        """A loop over lanes that adds nothing up, or to arrays."""
        return self.vector_loop(variable, start, end, lines, self.simd())

    def lanes_of(
        self, variable: sympy.Symbol, start: Bound, end: Bound, width: int, lines: Statements
    ) -> list[Statement]:
        """The same, `width` lanes at a time, which k counts; then those that are left."""
        group, last = f"{variable}_group", f"{variable}_last"
        whole = self.lanes_from(variable, group, width, lines)
        if isinstance(start, int) and isinstance(end, int):
            stop = start + (end - start) // width * width
            found: list[Statement] = [Loop(group, start, stop, whole, width)]
            if stop - start <= width:
                found = self.lanes_from(variable, start, stop - start, lines)
            return found + self.lanes_from(variable, stop, end - stop, lines)
        text = f"const int64_t {last} = {start} + ({end} - {start})/{width}*{width};"
        left = self.lanes_from(variable, last, f"{end} - {last}", lines)
        return [
            Block(
                [
                    Line(text, origin="where groups of lanes end"),
                    Loop(group, start, last, whole, width),
                    Branch(code("{} < {}", named(last), named(end)), left),
                ]
            )
        ]

    def lanes_from(
        self, variable: sympy.Symbol, first: Bound, count: Bound, lines: Statements
    ) -> list[Statement]:
        """`count` lanes from the iteration `first` on."""
        if count == 0:
            return []
        made = Line(f"const int64_t {variable} = {first} + k;", origin="which lane it is")
        pragma = Pragma(simd=True) if config.vectorize else None
        return self.vector_loop("k", 0, count, [made, *lines], pragma)

    def vector_loop(
        self, variable: object, start: Bound, end: Bound, lines: Statements, pragma: Pragma | None
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

    def simd(self) -> Pragma | None:
        """Vector lanes of an innermost loop; of a long one with little around it, threads, too."""
        if not config.vectorize or not self.lanes_are_free():
            return None
        plan = self.plan
        is_long = plan.inner_count >= 1024 and (not plan.outer or plan.outer_count < 8)
        if plan.is_pointwise and self.parallel and is_long and not self.is_tiled:
            return Pragma("parallel for", True, condition=self.threads_if)
        return Pragma(simd=True)

    def lanes_are_free(self) -> bool:
        """False where two lanes might write the same element, as in a scatter."""
        is_free = not self.has_scatter or self.scatter_is_row_wise
        return is_free and not self.group.has_scan

    def plain_loop_nest(self, body: Statements) -> list[Statement]:
        """The kernel's outer loops around `body`."""
        loops = self.outer_loops()
        if not loops and not self.plan.inner:
            return [Block(body)]
        return self.in_threads(body, loops, len(loops))

    def outer_loops(self) -> list[tuple]:
        return [(v, 0, self.size(n)) for v, n in zip(self.plan.x, self.plan.outer)]

    def in_threads(self, body: Statements, loops: list[tuple], count: int) -> list[Statement]:
        """`body` in loops, of which threads share the first `count`."""
        pragma = None
        if count and self.shares_outer_loops():
            pragma = Pragma("parallel for", collapse=count, condition=self.threads_if)
        return nest(body, loops, pragma)

    def shares_outer_loops(self) -> bool:
        """Do threads share them?  A long loop over lanes with few around it is shared itself."""
        is_one_loop = self.plan.is_pointwise and self.plan.outer_count < 8
        return self.parallel and bool(self.plan.outer) and not is_one_loop

    # -- memory ------------------------------------------------------------------------------------
    def pointer(self, name: str, written: bool) -> Code:
        name = self.guests.get(name, name)
        name = self.overwritten.get(name, name)
        if name not in self.pointers:
            kind = "out" if written else "in"
            number = sum(p.startswith(kind) for p in self.pointers.values())
            self.pointers[name] = named(f"{kind}{number}")
        return self.pointers[name]

    def index(self, expr: sympy.Expr) -> Code:
        """The text of an index.  Sizes in it become arguments of the kernel."""
        for symbol in sorted(expr.free_symbols, key=str):
            if symbol not in (*self.sizes, *self.names) and not is_loop_variable(symbol):
                self.sizes.append(symbol)
        return index_code(expr)

    def local(self, name: object) -> sympy.Symbol:
        """A loop's variable of the generated code, for an index."""
        symbol = sympy.Symbol(str(name), integer=True, nonnegative=True)
        self.names.add(symbol)
        return symbol

    def position(self, name: str) -> Position:
        """A value of the generated code, for an index."""
        symbol = Position(name, integer=True)
        self.names.add(symbol)
        return symbol

    def size(self, number: Size) -> int | Code:
        """A loop's size: a number, or the text of one."""
        return number if isinstance(number, int) else self.index(number)

    def changes_inside(self, expr: sympy.Expr) -> bool:
        return any(s in self.inner_variables or s in self.inner_symbols for s in expr.free_symbols)

    def temporary(self, expression: Code, dtype: torch.dtype, inner: bool) -> Value:
        """Name a value at the outermost level where it is known."""
        c_type = compute_type(dtype)
        name = self.ask("name_above", expression, c_type, inner)
        if name is None:
            scope = self.scope_of(inner)
            name = self.scope.lookup((expression, c_type)) or scope.temporary(expression, c_type)
        return Value(named(name), dtype, inner)

    def scope_of(self, inner: bool) -> CppScope:
        """Where a value is computed: outside of the lanes, if it does not change along them."""
        if not inner and self.inner_variables and not self.in_mask():
            return self.outside
        return self.scope

    def in_mask(self) -> bool:
        return self.scope.is_mask

    def load(self, name: str, index: sympy.Expr) -> Value:
        if name in self.values:
            return self.values[name]
        dtype = self.buffers[name].layout.dtype
        if name in self.scratch:
            return self.temporary(self.scratch_place(name), dtype, True)
        inner = self.changes_inside(index)
        if 0 in self.buffers[name].layout.size:
            return self.constant(0, dtype)  # it has no element; the check of the index raises
        if name not in (*self.stored, *self.read, *self.guests):
            self.read.append(name)
        found = self.ask("element", name, index, dtype)
        if found is None:
            place = self.ask("place_of", name, index)
            place = index if place is None else place
            found = element(self.pointer(name, False), self.index(place))
        if dtype not in HALVES:
            return self.temporary(found, dtype, inner)
        value = self.temporary(call("to_float", found), dtype, inner)
        if not self.overwritten:
            self.copies[value.text, dtype] = found
        self.exact.add((value.text, dtype))  # 16 bits held it
        return value

    def store(self, name: str, index: sympy.Expr, value: Value, mode: str | None = None) -> None:
        if value.text in self.pending_names():
            self.deferred.append((name, index, value, mode, playing.value))
            return
        dtype = self.buffers[name].layout.dtype
        self.values[name] = Value(value.text, dtype, value.inner, value.number)
        if name in self.scratch:
            self.scope.add(code("{} = {};", self.scratch_place(name), value))
        if name not in self.keep:
            return
        if name not in (*self.stored, *self.guests):
            self.stored.append(name)
        old = self.overwritten.get(name)
        if old in self.group.read_names and not self.group.is_reduction:
            self.load(old, index)  # before it is overwritten: other bodies of this loop may need it
        target = code("{}[{}]", self.pointer(name, True), self.index(index))
        if mode:
            self.note_scatter(index)
            self.scope.add(code("{} = {};", target, self.combined(mode, target, value, dtype)))
        elif dtype in HALVES:
            key = (value.text, dtype)
            wide = self.raw.get(key, value.text)
            held = self.copies.get(key) or self.to_16_bits(wide, dtype)
            self.scope.add(code("{} = {};", target, held))
        else:
            self.scope.add(code("{} = {};", target, value))

    def to_16_bits(self, wide: Code, dtype: torch.dtype) -> Code:
        if dtype is torch.bfloat16 and (wide, dtype) in self.exact:
            return call("upper_half", wide)
        return self.narrowed("to", wide, dtype)

    def note_scatter(self, index: sympy.Expr) -> None:
        """Does a scatter write another element in each lane?"""
        lane, used = self.plan.r[-1] if self.plan.r else None, index.free_symbols
        is_apart = lane is not None and stride_of(index, lane) not in (0, None)
        self.scatter_is_row_wise = is_apart and not used & self.inner_symbols

    def combined(self, mode: str, target: Code, value: Value, dtype: torch.dtype) -> Code:
        """What a store of this mode makes of what is there."""
        if dtype in HALVES:
            there = call("to_float", target)
            return self.to_16_bits(combined(mode, there, value, torch.float32), dtype)
        return combined(mode, target, value, dtype)

    # -- reductions
    def pending_names(self) -> set[str]:
        return {a.name for a in self.accumulators} if self.inner_variables else set()

    def finished(self, value: Value) -> Value:
        """The accumulator as a plain value, once its loop has ended."""
        accumulator = next(a for a in self.accumulators if a.name == value.text)
        return Value(accumulator.result(value.dtype), value.dtype)

    def reduction(
        self,
        dtype: torch.dtype,
        src_dtype: torch.dtype,
        kind: str,
        value: Value,
        flat_index: sympy.Expr,
    ) -> Value:
        is_one_element = self.plan.is_pointwise or not self.plan.bodies[self.node.name].inner
        make = ACCUMULATORS[kind]
        if is_one_element:  # nothing to reduce
            return make.of_one(self, value, dtype)
        element_dtype = src_dtype if make.of_elements else dtype
        accumulator = make(self.outside.fresh("acc"), kind, element_dtype)
        accumulator.take(self, value, flat_index)
        self.accumulators.append(accumulator)
        return Value(named(accumulator.name), dtype)

    def scan(self, dtype: torch.dtype, kind: str, value: Value) -> Value:
        """A running total: each iteration of the loop has a result of its own."""
        if self.plan.is_pointwise or not self.plan.bodies[self.node.name].inner:  # one element
            # 0 + -0.0 is 0.0
            plus_zero = Value(code("({} + 0)", value), dtype, value.inner)
            return plus_zero if kind == "sum" else value
        total, c_type = named(self.outside.fresh("scan")), compute_type(dtype)
        start, added = {
            "sum": ("0", code("{} + {}", total, value)),
            "prod": ("1", code("{} * {}", total, value)),
            "logaddexp": ("-mini::inf", call("logaddexp", total, value)),
        }[kind]
        self.outside.add(f"{c_type} {total} = {start};")
        self.scope.add(code("{} = {};", total, added))
        return Value(total, dtype, True)


def combined(mode: str, there: Code, value: Value, dtype: torch.dtype) -> Code:
    """What a scatter stores, made of what is there."""
    operator = {"atomic_add": "|" if dtype is torch.bool else "+", "atomic_mul": "*"}
    if mode in operator:
        return code("{} {} {}", there, operator[mode], value)
    function = {"atomic_max": "maximum", "atomic_min": "minimum"}[mode]
    return call(function, there, value, of=compute_type(dtype))


def ending(text: str) -> Marked:
    return Marked.of(text, reason="begins or ends the kernel")
