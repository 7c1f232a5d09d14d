"""What a loop body reads and writes, and over which loops, as data: two bodies can be compared.

In:   a `ComputedBuffer` (closures over `ops`).  Out: a `LoopBody`: a list of the ops, in which the
      index expressions are over x0, x1, ... (outer loops) and r0, r1, ... (reduction).

    >>> body = trace(buffer)     # exp of 4 x 8 elements: the closure runs once, under a recorder
    >>> body.reads()
    [Access(name='arg0', index=8*x0 + x1, mode=None)]
    >>> body.simplify_loops().outer           # both loops run through memory as one
    (32,)
    >>> values = body.play(handler)           # the recorded ops, seen through another handler

Loops change by rewriting index expressions, never by running the closure again:
    drop size-1 loops; merge neighbours that run through memory as one; and `split_to`, the opposite
    of merging, to make two bodies run over the same loops; sort them in the order of memory.

handlers.py makes the bodies.  Mirrors torch/_inductor/dependencies.py and loop_body.py.  Left out:
value ranges.
"""

import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeAlias

import sympy

from ..records import lines_of
from ..sizes.expressions import FloorDiv, Mod, flatten
from ..sizes.symbols import Size, hint, quotient, same, simplify
from ..sizes.symbols import size as size_of
from .loops import playing
from .ops import OpsHandler, is_loop_variable, loop_variable, loop_variables, price


class Access(NamedTuple):
    """Buffer `name` at linear offset `index`; mode is that of a store."""

    name: str
    index: sympy.Expr
    mode: str | None = None


class Ref(NamedTuple):
    """The value that instruction number `number` computed."""

    number: int


OF_MORE = ("store", "reduction", "scan")  # ops whose results depend on more than their arguments
Result: TypeAlias = Ref | sympy.Symbol  # a symbol is what an indirect_indexing makes


@dataclass
class Instruction:
    op: str
    args: tuple  # a `Ref` stands for a value; loop variables occur in sympy expressions alone
    result: Result
    block: tuple["Instruction", ...] = ()  # the instructions of a masked body
    origin: str = ""  # the FX node it comes from
    # (buffer, result) of the instruction that was recorded first, whatever was made of it since
    first: tuple[str, Result] = ("", Ref(0))

    @property
    def about(self) -> tuple[str, str]:
        """(what later stages call it, such as "buf0.3", its FX node)"""
        buffer, result = self.first
        return f"{buffer}.{result.number if isinstance(result, Ref) else result}", self.origin

    def expressions(self) -> list[sympy.Expr]:
        """The indices and sizes among its arguments."""
        return [arg for arg in self.args if isinstance(arg, sympy.Expr)]

    def rewritten(self, change: Callable[[sympy.Expr], sympy.Expr]) -> "Instruction":
        """The same with change(expression) in place of each; in its block, too."""
        if not self.block and not self.expressions():
            return self
        args = tuple(change(arg) if isinstance(arg, sympy.Expr) else arg for arg in self.args)
        return replace(self, args=args, block=tuple(i.rewritten(change) for i in self.block))

    def moved(self, by: int) -> "Instruction":
        """The same, in a list of instructions whose numbers begin later."""
        values = (*self.args, self.result)  # (an indirect index keeps its symbol)
        *args, result = (Ref(v.number + by) if isinstance(v, Ref) else v for v in values)
        block = tuple(i.moved(by) for i in self.block)
        return replace(self, args=tuple(args), result=result, block=block)


# --- linear forms ---------------------------------------------------------------------------------
@functools.lru_cache(100_000)
def linear_form(expr: sympy.Expr) -> tuple[dict[sympy.Symbol, sympy.Expr], frozenset[sympy.Symbol]]:
    """(coefficient of each loop variable, loop variables that occur in some other way).

    8*x0 + r0 + x1//2 is ({x0: 8, r0: 1}, {x1})."""
    coefficients, tangled = {}, set()
    for term in sympy.Add.make_args(sympy.expand(expr)):
        variables = [s for s in term.free_symbols if is_loop_variable(s)]
        if len(variables) == 1:
            coefficient, factor = term.as_independent(variables[0], as_Add=False)
            if factor == variables[0]:
                coefficients[factor] = coefficients.get(factor, 0) + coefficient
                continue
        tangled.update(variables)
    return coefficients, frozenset(tangled)


def stride_of(expr: sympy.Expr, variable: sympy.Symbol) -> sympy.Expr | None:
    """Step of `expr` per step of the variable: an expression, or None where it is not constant."""
    coefficients, tangled = linear_form(expr)
    return None if variable in tangled else coefficients.get(variable, sympy.Integer(0))


# --- the body and its loops -----------------------------------------------------------------------
@dataclass(eq=False, repr=False)
class LoopNest:
    """What has outer loops x0, x1, ... and in them inner loops r0, r1, ...: a body, the bodies of a
    kernel, a kernel's plan."""

    outer: tuple[Size, ...]  # sizes of x0, x1, ...
    inner: tuple[Size, ...]  # sizes of r0, r1, ...

    @property
    def x(self) -> list[sympy.Symbol]:
        return loop_variables("x", len(self.outer))

    @property
    def r(self) -> list[sympy.Symbol]:
        return loop_variables("r", len(self.inner))

    def ranges(self) -> dict[sympy.Symbol, Size]:
        return dict(zip(self.x + self.r, (*self.outer, *self.inner)))


@dataclass(repr=False)
class LoopBody(LoopNest):
    instructions: list[Instruction]

    def __repr__(self) -> str:
        return "\n    ".join(lines_of(self))

    @functools.cached_property
    def indices(self) -> list[sympy.Expr]:
        """Every index, and every size that a check compares with, once."""
        return list(dict.fromkeys(expr for i in self.walk() for expr in i.expressions()))

    def walk(self, instructions: Iterable[Instruction] | None = None) -> Iterator[Instruction]:
        for instruction in self.instructions if instructions is None else instructions:
            if instruction.block:
                yield from self.walk(instruction.block)
            yield instruction

    def depending_only_on(
        self, variables: Iterable[sympy.Symbol], reads: bool = False
    ) -> list[Instruction]:
        """The instructions that depend on no other loop variable, nor on memory unless `reads`."""
        wanted, found = set(variables), []
        needs: dict[object, set] = {v: {v} for v in self.ranges()}
        for i in self.instructions:
            refs = [arg for arg in i.args if isinstance(arg, Ref)]
            refs += [symbol for expr in i.expressions() for symbol in expr.free_symbols]
            of_more = i.block or i.op in OF_MORE or i.op == "load" and not reads
            needs[i.result] = set().union(
                {i.op} if of_more else (), *[needs.get(r, ()) for r in refs]
            )
            if needs[i.result] <= wanted:
                found.append(i)
        return found

    def reads(self) -> list[Access]:
        return [Access(*i.args) for i in self.walk() if i.op == "load"]

    def writes(self) -> list[Access]:
        return [Access(*i.args[:2], mode=i.args[3]) for i in self.walk() if i.op == "store"]

    def work(self) -> int:
        """What one element costs, in simple operations."""
        return sum(price(i.op) for i in self.walk())

    def reduction_kinds(self) -> list[str]:
        return [i.args[2] for i in self.walk() if i.op == "reduction"]

    def has_scan(self) -> bool:
        return any(i.op == "scan" for i in self.instructions)

    def play(
        self,
        handler: OpsHandler,
        instructions: Sequence[Instruction] | None = None,
        values: dict | None = None,
    ) -> dict:
        """Call `handler` with each recorded op; {result of an instruction: what the handler
        returned}.  In indices, the recorded symbol of an indirect_indexing becomes the handler's.

        instructions, values: those of a masked block, and what is known outside of it."""
        values = {} if values is None else values
        symbols = {k: v for k, v in values.items() if isinstance(k, sympy.Symbol)}

        def decode(arg: Any) -> Any:
            if isinstance(arg, Ref):
                return values[arg]
            if symbols and isinstance(arg, sympy.Expr):
                return arg.xreplace(symbols)
            return arg

        for instruction in self.instructions if instructions is None else instructions:
            with playing.set(instruction):
                if instruction.op == "masked":
                    mask, _, other = instruction.args
                    block = functools.partial(self.play_block, handler, instruction, values)
                    result = handler.masked(values[mask], block, other)
                else:
                    result = getattr(handler, instruction.op)(*map(decode, instruction.args))
            values[instruction.result] = result
            if isinstance(instruction.result, sympy.Symbol):
                symbols[instruction.result] = result
        return values

    def play_block(self, handler: OpsHandler, masked: Instruction, values: dict) -> Any:
        """The value of a masked body; nothing else that it computes is seen outside."""
        return self.play(handler, masked.block, dict(values))[masked.args[1]]

    # -- rewriting the loops
    def substitute(
        self,
        outer: Sequence[Size],
        inner: Sequence[Size],
        mapping: Mapping[sympy.Symbol, sympy.Expr],
    ) -> "LoopBody":
        """The same body over other loops: `mapping` gives the old variables in terms of the new
        ones."""
        mapping = {old: new for old, new in mapping.items() if old != new}
        body = replace(self, outer=tuple(outer), inner=tuple(inner))
        if not mapping:
            return body
        return body.rewritten(lambda expr: sympy.expand(expr.xreplace(mapping)))

    def rewritten(self, change: Callable[[sympy.Expr], sympy.Expr]) -> "LoopBody":
        """The same with change(index), simplified, in place of each index."""
        ranges = self.ranges()
        changed = functools.cache(lambda expr: simplify(change(expr), ranges))
        return replace(self, instructions=[i.rewritten(changed) for i in self.instructions])

    def split_to(self, outer: Sequence[Size], inner: Sequence[Size]) -> "LoopBody":
        """Run over the finer loops `outer`, `inner`: each old loop is a product of neighbouring new
        ones.  (A pointwise body may run over the loops of a reduction: its last become r0, ...)"""
        if (tuple(outer), tuple(inner)) == (self.outer, self.inner):
            return self
        variables = [*loop_variables("x", len(outer)), *loop_variables("r", len(inner))]
        new = list(zip(variables, (*outer, *inner)))
        mapping = {}
        for old, size in self.ranges().items():
            part, covered = [], 1
            # until they have as many iterations; new loops of size 1 belong to the old loop before
            while new and (new[0][1] == 1 or not same(covered, size)):
                part.append(new.pop(0))
                covered = covered * part[-1][1]
            mapping[old] = flatten([v for v, _ in part], [n for _, n in part])
        return self.substitute(outer, inner, mapping)

    def with_loops(self, kept: Sequence[sympy.Symbol]) -> "LoopBody":
        """The same body over these of its loops, in this order: they become x0, x1, ... and r0, r1,
        ...; those that are left out run once."""
        sizes = self.ranges()
        x, r = [v for v in kept if v in self.x], [v for v in kept if v in self.r]
        mapping = dict.fromkeys(sizes, sympy.Integer(0))
        mapping.update(zip(x + r, loop_variables("x", len(x)) + loop_variables("r", len(r))))
        return self.substitute([sizes[v] for v in x], [sizes[v] for v in r], mapping)

    def merged(self, around: sympy.Symbol, inside: sympy.Symbol) -> "LoopBody":
        """Two loops, one right inside the other, as one.  A body without reduction loops, in a
        group that has some, stays as it is."""
        sizes = self.ranges()
        if around not in sizes:
            return self
        sizes[inside] = sizes[around] * sizes[inside]
        outer, inner = tuple(sizes[v] for v in self.x), tuple(sizes[v] for v in self.r)
        body = replace(self, outer=outer, inner=inner)
        return body.with_loops([v for v in sizes if v != around])

    def unrolled(self) -> "LoopBody":
        """A body whose indirect indices are the same in all iterations of its last outer loop, with
        these in a row."""
        *outer, count = self.outer
        step, instructions = 1 + max(getattr(i.result, "number", 0) for i in self.walk()), []
        for k in range(count):
            once = self.substitute(outer, self.inner, {self.x[-1]: sympy.Integer(k)})
            instructions += [i.moved(k * step) for i in once.instructions]
        return replace(self, outer=tuple(outer), instructions=instructions)

    def simplify_loops(self) -> "LoopBody":
        """Fewest loops, in the order of memory."""
        several = [v for v, size in self.ranges().items() if size != 1]
        return merge_loops([in_order_of_memory(self.with_loops(several))])[0]


def int_or_none(value: object) -> int | None:
    if isinstance(value, int):
        return value
    return int(value) if getattr(value, "is_Integer", False) else None


def merge_loops(bodies: list[LoopBody]) -> list[LoopBody]:
    """Merge neighbouring loops of bodies that run together, where every index of every body allows
    it: one step of the outer loop moves it as far as all steps of the inner one, as in
    8*x0 + x1 with x1 < 8."""
    for prefix in "xr":
        number = 0
        while True:
            # of a body that has the reduction loops, too, if one has
            sizes = max((body.ranges() for body in bodies), key=len, default={})
            a, b = loop_variable(prefix, number), loop_variable(prefix, number + 1)
            if b not in sizes:
                break
            indices = [index for body in bodies for index in body.indices]
            if all(mergeable(index, a, b, sizes[b]) for index in indices):
                bodies = [body.merged(a, b) for body in bodies]
            else:
                number += 1
    return bodies


def mergeable(index: sympy.Expr, a: sympy.Symbol, b: sympy.Symbol, size_of_b: Size) -> bool:
    coefficients, tangled = linear_form(index)
    if a in tangled or b in tangled:
        return False
    return same(coefficients.get(a, 0), coefficients.get(b, 0) * size_of_b)


# --- loops in the order of memory -----------------------------------------------------------------
def in_order_of_memory(body: LoopBody) -> LoopBody:
    """The body over loops that step through memory in its order: quotients become loops of their
    own, and loops are sorted.

        out[x0 + 64*x1] = ...           # x1, x0: the innermost loop takes the smallest steps
        out[8*x0 + x1] = in[x1//4]      # x0, x1, x2 with x2 < 4: in[x1]

    Mirrors torch/_inductor/ir.py (`simplify_and_reorder`)."""
    body = split_divisions(body)
    return body.with_loops(stride_order(body, "x") + stride_order(body, "r"))


def split_divisions(body: LoopBody) -> LoopBody:
    """x//k and x%k, where k divides the size of x, become plain variables: x is split into
    (size/k, k)."""
    for _ in range(8):  # more such loops stay as they are
        cut = next(divisors(body), None)
        if cut is None:
            break
        sizes: dict[sympy.Symbol, list] = {v: [n] for v, n in body.ranges().items()}
        sizes.update([cut])
        outer = [n for v in body.x for n in sizes[v]]
        body = body.split_to(outer, [n for v in body.r for n in sizes[v]])
    return body


def divisors(body: LoopBody) -> Iterator[tuple[sympy.Symbol, list[Size]]]:
    """(loop variable, the sizes into which a quotient or remainder divides its loop)"""
    sizes = body.ranges()
    for index in body.indices:
        for division in index.atoms(FloorDiv, Mod) if index.has(FloorDiv, Mod) else ():
            variable, divisor = division.args[0], size_of(division.args[1])
            size = sizes.get(variable, 0)
            count = None if size in (0, divisor) else quotient(size, divisor)
            if count is not None:
                yield variable, [count, divisor]


def stride_order(body: LoopBody, prefix: str) -> list[sympy.Symbol]:
    """Loops sorted so that the innermost steps through memory by the smallest stride.

    The first access that tells two loops apart decides.  Stores come before loads; but loads come
    first where columns are reduced, since such a kernel might else read memory in large steps."""
    # a scan, and argmax, take the elements in their own order
    in_order = body.has_scan() or any(k.startswith("arg") for k in body.reduction_kinds())
    if prefix == "r" and in_order:
        return body.r
    accesses, compare = body.reads(), compare_strides
    if prefix == "x" and len(body.outer) > 1 and reads_lie_along_outer(body):
        accesses, compare = accesses + body.writes(), far_first
    elif prefix == "x":
        accesses = body.writes() + accesses

    def before(first: sympy.Symbol, second: sympy.Symbol) -> int:
        for access in accesses:
            strides = [stride_of(access.index, v) for v in (first, second)]
            known = [None if stride is None else hint(stride) for stride in strides]
            decided = compare(*known)
            if decided:
                return decided
        return 0

    loops = body.x if prefix == "x" else body.r
    return sorted(loops, key=functools.cmp_to_key(before))


def compare_strides(a: int | None, b: int | None) -> int:
    """-1: a loop of stride `a` belongs outside of one of stride `b`; 1: inside; 0: this access does
    not tell.  The larger stride is outside.  A stride of None is no constant."""
    if a is None or b is None or a == b or 0 in (a, b):
        return 0
    return -1 if abs(a) > abs(b) else 1


def reads_lie_along_outer(body: LoopBody) -> bool:
    """Does the body reduce columns, so that only outer loops step through memory one by one?"""
    pairs = itertools.product(body.reads(), body.ranges())
    one_by_one = {loop for access, loop in pairs if stride_of(access.index, loop) == 1}
    return bool(body.inner and one_by_one) and one_by_one.isdisjoint(body.r)


def far_first(a: int | None, b: int | None) -> int:
    """As `compare_strides`; a stride that is no constant counts as larger than 1."""
    if None in (a, b) and 1 in (a, b):
        return -1 if a is None else 1
    return compare_strides(a, b)
