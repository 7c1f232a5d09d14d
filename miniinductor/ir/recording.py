"""Records a loop body: its closure runs once under a handler that writes each op down.

In:   a `ComputedBuffer` (closures over `ops`).  Out: a `LoopBody` (dependencies.py).

    >>> trace(buffer).reads()
    [Access(name='arg0', index=8*x0 + x1, mode=None)]

The recorder keeps an integer that is computed from `index_expr`s and constants as an expression,
and uses that in an index: x[arange(n) + 1] reads x at x0 + 1, and no index is loaded or checked.

Mirrors torch/_inductor/dependencies.py and index_propagation.py.
"""

import functools
import itertools
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import sympy
import torch

from ..sizes.expressions import FloorDiv, Position, flatten
from ..sizes.symbols import Size, lies_in
from .dependencies import Instruction, LoopBody, Ref, Result
from .loops import ComputedBuffer, origin, playing, run_body
from .ops import OpsHandler, exact_key, loop_variables, set_handler

FOLLOWED = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "maximum": sympy.Max,
    "minimum": sympy.Min,
    "abs": sympy.Abs,
}


def _record_plain(name: str) -> Callable:
    return lambda self, *args, **kwargs: self.emit(name, *args, *kwargs.values())


class Recorder(OpsHandler, rest=_record_plain):
    """Writes each op down, equal ones once, and follows the integers that are known."""

    buffer = ""  # whose body it is
    flat_reduction_index: sympy.Expr

    def __init__(self, ranges: Mapping[sympy.Symbol, Size]):
        self.instructions: list[Instruction] = []
        self.seen: dict[tuple, object] = {}
        self.count = itertools.count()
        self.ranges = ranges
        # Ref -> the expression that it equals, and its dtype
        self.known: dict[object, tuple[sympy.Expr, torch.dtype]] = {}

    def emit(
        self, op: str, *args: object, block: tuple = (), make: Callable[[int], Result] = Ref
    ) -> Result:
        """Record an op, or find an equal one.  make: gives the result, from its number."""
        key = (op, exact_key(args))
        if not block and op != "store" and key in self.seen:
            return self.seen[key]
        result = make(next(self.count))
        first, node = (self.buffer, result), origin.value
        if playing.value is not None:
            first, node = playing.value.first, playing.value.origin
        self.instructions.append(Instruction(op, args, result, block, node, first))
        self.seen[key] = result
        return result

    def reduction(
        self,
        dtype: torch.dtype,
        src_dtype: torch.dtype,
        kind: str,
        value: Ref,
        flat: sympy.Expr | None = None,
    ) -> Ref:
        if flat is None:  # (a sum asks for no place: its loops may be merged in any order)
            flat = self.flat_reduction_index if kind.startswith("arg") else sympy.Integer(0)
        return self.emit("reduction", dtype, src_dtype, kind, value, flat)

    def indirect_indexing(self, value: Ref, size: Size, wrap_neg: bool = True) -> sympy.Expr:
        known = self.expressions(value)
        if known is not None and lies_in(known[0], size, self.ranges):
            return known[0]

        def position(number: int) -> sympy.Symbol:
            return Position(f"indirect{number}", integer=True)

        return self.emit("indirect_indexing", value, size, wrap_neg, make=position)

    def masked(self, mask: Ref, body: Callable[[], Ref], other: object) -> Ref:
        outside, seen = self.instructions, self.seen
        self.instructions, self.seen = [], dict(seen)
        value = body()
        block, self.instructions, self.seen = tuple(self.instructions), outside, seen
        return self.emit("masked", mask, value, other, block=block)

    def body(self, outer: tuple[Size, ...], inner: tuple[Size, ...]) -> LoopBody:
        """What was recorded, as the body of these loops."""
        body = LoopBody(outer, inner, without_unused(self.instructions))
        return body.rewritten(lambda e: e)  # (simplified)

    # -- integers that are known
    def expressions(self, *args: object) -> list[sympy.Expr] | None:
        """The expressions that these values equal, if all have one."""
        return [self.known[a][0] for a in args] if self.known.keys() >= set(args) else None

    def knows(self, result: Ref, expr: sympy.Expr | None, dtype: torch.dtype) -> Ref:
        """Note that `result` equals `expr`: only of int32 and int64, which hold every index
        without wrapping."""
        if expr is not None and dtype in (torch.int32, torch.int64):
            self.known[result] = expr, dtype
        return result

    def index_expr(self, expr: Size, dtype: torch.dtype) -> Ref:
        expr = sympy.sympify(expr)
        return self.knows(self.emit("index_expr", expr, dtype), expr, dtype)

    def constant(self, value: bool | int | float, dtype: torch.dtype) -> Ref:
        number = sympy.Integer(int(value)) if isinstance(value, int) else None
        return self.knows(self.emit("constant", value, dtype), number, dtype)

    def to_dtype(self, x: Ref, dtype: torch.dtype, src_dtype: torch.dtype | None = None) -> Ref:
        expr, _ = self.known.get(x, (None, None))
        return self.knows(self.emit("to_dtype", x, dtype, src_dtype), expr, dtype)

    def arithmetic(self, op: str, *args: Ref) -> Ref:
        result, known = self.emit(op, *args), self.expressions(*args)
        if known is not None:
            self.known[result] = sympy.expand(FOLLOWED[op](*known)), self.known[args[0]][1]
        return result

    def floordiv(self, a: Ref, b: Ref) -> Ref:
        """Of an index of 32 bits by a number: no check, it is not zero."""
        known = self.expressions(a, b)
        if known and known[1].is_positive and lies_in(known[0], 1 << 31, self.ranges):
            return self.index_expr(FloorDiv(*known), self.known[a][1])
        return self.emit("floordiv", a, b)

    add, sub, mul, maximum, minimum, abs = map(
        functools.partialmethod, [arithmetic] * len(FOLLOWED), FOLLOWED
    )


def trace(buffer: ComputedBuffer) -> LoopBody:
    """ComputedBuffer -> LoopBody over its own ranges."""
    data = buffer.data
    outer, inner = tuple(data.ranges), tuple(data.reduction_ranges)
    x, r = loop_variables("x", len(outer)), loop_variables("r", len(inner))
    recorder = Recorder(dict(zip(x + r, outer + inner)))
    recorder.flat_reduction_index, recorder.buffer = flatten(r, inner), buffer.name
    with origin.set(""), set_handler(recorder):
        run_body(buffer, x, r)
    return recorder.body(outer, inner)


DIVISIONS = ("floordiv", "truncdiv", "remainder", "fmod")  # of integers, they may be by zero
MAY_RAISE = ("indirect_indexing", *DIVISIONS)
HAS_EFFECT = ("store", *MAY_RAISE)


def without_unused(instructions: Sequence[Instruction]) -> list[Instruction]:
    """Only those whose result something uses.

    Checks stay though nobody uses their result: x[i] of an x with one row reads the same element
    for each i, but must raise for i = 1."""
    used: set[object] = set()

    def sweep(block: Sequence[Instruction]) -> list[Instruction]:
        kept = []
        for instruction in reversed(block):
            if instruction.op not in HAS_EFFECT and instruction.result not in used:
                continue
            used.update(arg for arg in instruction.args if isinstance(arg, Ref))
            used.update(*[expr.free_symbols for expr in instruction.expressions()])
            if instruction.block:
                instruction = replace(instruction, block=tuple(sweep(instruction.block)))
            kept.append(instruction)
        return kept[::-1]

    return sweep(instructions)
