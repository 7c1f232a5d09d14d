"""One fused group in, one C++ function out.

In:   a scheduler `Group` and the names whose values must be in memory afterwards.  Out: a `Kernel`:
      source, and which buffers and sizes it takes, in order.

    // computes buf0: sum_dim_int_list
    extern "C" int NAME(void** args) {
        const float* in0 = (const float*)args[0];    // arg0
        float* out0 = (float*)args[1];    // buf0: sum_dim_int_list
        #pragma omp parallel for schedule(static)
        for (int64_t x0 = 0; x0 < 4096; x0++) {
            float acc0 = 0;
            #pragma omp simd reduction(+:acc0)
            for (int64_t r0 = 0; r0 < 1024; r0++) {
                const float tmp0 = in0[r0 + 1024*x0];
                acc0 = acc0 + tmp0;
            }
            out0[x0] = acc0;
        }
        return 0;
    }

Every kernel is: outer loops (threads), and in them a sequence of *stages*, each an inner loop
(vector lanes) followed by statements per outer iteration (plan.py).  A value made in one stage's
inner loop and read in a later one is stored (speed/scratch.py: in a small array on the stack, which
stays in the cache).
Pointers are named by position, never by buffer, so that equal layers of a model give equal sources,
compiled once.

Mirrors torch/_inductor/codegen/cpp.py (paper section 4.4 and 4.6).  Left out: explicit vector types
(the compiler vectorises; see the prelude), GEMM templates.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import sympy
import torch

from .. import config
from ..dependencies import LoopBody
from ..handlers import is_loop_variable
from ..ir import Buffer, playing
from ..nodes import Group, Node
from ..listings import Listing, Marked, indent
from ..replaceable import replaceable
from ..sizes.expressions import Position
from ..sizes.symbols import Size
from .code import Code, code, element, index_code, named
from .common import Kernel, Value, origin_text, summary
from .cpp_expressions import CppExpressions, CppScope, compute_type, memory_type
from .cpp_reductions import (
    ACCUMULATORS,
    CHUNK,
    Accumulator,
    Sums,
    bound,
    declarations,
    in_parts,
    longest,
)
from .plan import PARALLEL_WORK, KernelPlan, plan_kernel, with_lanes
from .strategy import applicable, strategies_for
from .tree import Block, Bound, Comment, Line, Pragma, Statement, Statements
from .tree import nest, printed, sets_error

# buffer, index, value, mode and instruction of a store
Deferred: TypeAlias = tuple[str, sympy.Expr, Value, str | None, Any]


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
        self.strategies = strategies_for(self)
        self.is_tiled = False  # are outer loops cut into tiles, so that no loop may be taken alone?
        self.reruns = False  # may it read something after it has written a result?
        self.has_scatter = bool(group.targets)
        self.outside = CppScope()  # statements per outer iteration
        self.inner_symbols = set()
        self.accumulators: list[Accumulator] = []
        # stores of what they hold, which wait until their loop has ended
        self.deferred: list[Deferred] = []
        self.inner_variables = set()

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
        self.strategies = applicable(self.strategies)
        self.keep |= {node.name for node in self.plan.crossing()}

    def decide_threads(self) -> None:
        plan = self.plan
        work = plan.outer_count * plan.inner_count * plan.work_per_element
        self.parallel = config.openmp and work >= PARALLEL_WORK and not self.has_scatter
        self.threads_if = ""  # what a call asks first, where sizes are symbols (speed/threads.py)

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
        return lines

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
        for stage in self.plan.stages():
            inner_nodes = self.plan.nodes_of(stage, inner=True)
            self.current_stage = stage
            if inner_nodes:
                self.write_inner_stage(inner_nodes)
            self.write_into(self.outside, ())
            for node in self.plan.nodes_of(stage, inner=False):
                self.play(node)
        return self.outside.lines

    def write_into(self, scope: CppScope, inner_variables: Iterable[sympy.Symbol]) -> None:
        """From now on statements go to `scope`, which lies inside of the loops over these."""
        self.scope, self.inner_variables = scope, set(inner_variables)

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
        """The inner loop.  (speed/pieces.py: perhaps several, for parts of the lanes.)"""
        body = self.lane_body(nodes)
        self.outside.lines += self.ask("inner_loop", body, self.accumulators)

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
        """What the first strategy answers that has an answer; else what the plain form is: the
        method of this class that is named after the question, plain_inner_loop for "inner_loop".
        Without such a method None: there is nothing to add.

        speed/questions.py has every question, with what it is given and what an answer means."""
        for one in self.strategies:
            method = getattr(one, question, None)
            answer = None if method is None else method(*args)
            if answer is not None:
                return answer
        plain = getattr(self, f"plain_{question}", None)
        return None if plain is None else plain(*args)

    def plain_inner_loop(self, lines: Statements, accumulators: Sums) -> list[Statement]:
        """The loops over r0, r1, ... around `lines`."""
        # the loops come first: if they cut the sum into chunks, the accumulators become doubles
        loops = self.chunks(lines, accumulators, 0, self.size(self.plan.inner[0]))
        return [*declarations(accumulators), *loops]

    def chunks(
        self, lines: Statements, accumulators: Sums, start: Bound, end: Bound
    ) -> list[Statement]:
        """Loops over r0 (from start to end), r1, ...  (speed/several_loops.py writes several.)"""
        if len(self.plan.r) == 1:
            return self.lanes(lines, accumulators, start, end)
        loops = self.ask("reduced_rows", lines, accumulators, start, end)
        if loops is None:
            raise NotImplementedError("a reduction over several loops")
        return loops

    def lanes(
        self, lines: Statements, accumulators: Sums, start: Bound, end: Bound
    ) -> list[Statement]:
        """The innermost loop.  A long sum of floats is the sum of the sums of chunks."""
        lane = self.plan.r[-1]
        # a vector adds to 8 or so lanes in turn, a plain loop always to the same
        plain = CHUNK if config.vectorize else CHUNK // 8
        chunk = self.ask("longest_run", lines, accumulators) or plain
        is_long = longest(self.plan.inner[-1]) > 2 * chunk
        if not is_long or not any(a.loses_bits for a in accumulators):
            return self.ask("innermost", lines, accumulators, start, end)

        def of_chunk(parts: Sums) -> list[Statement]:
            return self.ask("innermost", lines, parts, f"{lane}_chunk", f"{lane}_stop")

        body = [
            bound(f"{lane}_stop", f"{lane}_chunk + {chunk}", end),
            *in_parts(accumulators, "chunk", of_chunk),
        ]
        return nest(body, [(f"{lane}_chunk", start, end, chunk)])

    def plain_innermost(
        self, body: Statements, accumulators: Sums, start: Bound, end: Bound
    ) -> list[Statement]:
        """A loop over the lanes from `start` to `end`."""
        lines = [*body, *[line for a in accumulators for line in a.in_lanes()]]
        return [
            *[line for a in accumulators for line in a.before_lanes()],
            *nest(lines, [(self.plan.r[-1], start, end)], self.simd(accumulators)),
            *[line for a in accumulators for line in a.after_lanes()],
        ]

    def simd(self, accumulators: Sums) -> Pragma | None:
        """Vector lanes of an innermost loop; of a long one with little around it, threads, too."""
        if not config.vectorize or not self.lanes_are_free():
            return None
        if any(a.clause is None for a in accumulators):
            return None
        clauses = "".join(a.clause or "" for a in accumulators)
        plan = self.plan
        is_long = plan.inner_count >= 1024 and (not plan.outer or plan.outer_count < 8)
        if plan.is_pointwise and self.parallel and is_long and not self.is_tiled:
            return Pragma("parallel for", True, condition=self.threads_if, clauses=clauses)
        return Pragma(simd=True, clauses=clauses)

    def lanes_are_free(self) -> bool:
        """False where two lanes might write the same element, as in a scatter.
        (speed/scattered_rows.py knows scatters that do not.)"""
        return not self.group.has_scan and not self.has_scatter

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
        inner = self.changes_inside(index)
        if 0 in self.buffers[name].layout.size:
            return self.constant(0, dtype)  # it has no element; the check of the index raises
        self.note_read(name)
        place = self.ask("place_of", name, index)
        place = index if place is None else place
        found = element(self.pointer(name, False), self.index(place))
        return self.loaded(name, index, found, inner)

    def loaded(self, name: str, index: sympy.Expr, found: Code, inner: bool) -> Value:
        """The value of an element that is read from memory."""
        dtype = self.buffers[name].layout.dtype
        found = self.ask("element", name, index, dtype, found) or found
        return self.temporary(found, dtype, inner)

    def note_read(self, name: str) -> None:
        """The kernel reads what others have made."""
        if name not in (*self.stored, *self.read):
            self.read.append(name)

    def note_stored(self, name: str) -> None:
        """The kernel writes to memory."""
        if name not in self.stored:
            self.stored.append(name)

    def store(self, name: str, index: sympy.Expr, value: Value, mode: str | None = None) -> None:
        if value.text in self.pending_names():
            self.deferred.append((name, index, value, mode, playing.value))
            return
        dtype = self.buffers[name].layout.dtype
        self.values[name] = Value(value.text, dtype, value.inner, value.number)
        if name not in self.keep:
            return
        self.note_stored(name)
        old = self.overwritten.get(name)
        if old in self.group.read_names and not self.group.is_reduction:
            self.load(old, index)  # before it is overwritten: other bodies of this loop may need it
        target = code("{}[{}]", self.pointer(name, True), self.index(index))
        if mode:
            self.scope.add(code("{} = {};", target, combined(self, mode, target, value, dtype)))
            return
        self.store_element(name, index, target, value)

    def store_element(self, name: str, index: sympy.Expr, target: Code, value: Value) -> None:
        """The line that writes an element to memory."""
        self.scope.add(code("{} = {};", target, value))

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


@replaceable
def combined(
    writer: CppKernelWriter, mode: str, target: Code, value: Value, dtype: torch.dtype
) -> Code:
    """What a store of this mode makes of what is there.  (lowerings/scatters.py)"""
    raise NotImplementedError(f"a store that combines values: {mode}")


def ending(text: str) -> Marked:
    return Marked.of(text, reason="begins or ends the kernel")
