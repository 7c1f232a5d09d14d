"""Scalar ops in, C++ expressions out: types, constants, and one rule per op or family of ops.

In:   `Value`s (a name in the generated code and its dtype).  Out: `Value`s.  An expression gets a
      name by `self.temporary`; a check that fails sets a bit of `error` by `self.error_if`.

    >>> writer.add(Value("tmp0", torch.float32), Value("1.5f", torch.float32))
    ...                                                 # const float tmp1 = tmp0 + 1.5f;
    Value(text='tmp1', dtype=torch.float32, inner=False, number=None)

Functions of the prelude carry the ops' names, so that most families are one line here.

bfloat16, float16 and float8 are 16 or 8 bits in memory, and floats while they are computed with.
Eager rounds after each operation, and so do we, where bits may be lost: not after abs or maximum,
which commute with rounding, and not again as a rounded value is stored.

A body under a condition, which must not touch memory where that is false, is a branch:

    float tmp4 = 0.0f;
    if (tmp3) {
        const float tmp5 = in0[r0];
        tmp4 = tmp5;
    }

Mirrors CppOverrides in torch/_inductor/codegen/cpp.py.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

import sympy
import torch

from ... import config
from ...ir.dependencies import LoopBody
from ...ir.loops import Buffer, playing
from ...ir.ops import COMPARISON, INTEGER_DIVISIONS, NARROW, TESTS, OpsHandler
from ...sizes.symbols import Size
from ..kernels import INFIX as INFIX_OF_ALL
from ..kernels import LOGICAL, Scope, Value, wrapped
from ..kernel_plan import KernelPlan
from .statements import Branch, Line, Statement

# floats while they are computed with
SMALL_FLOATS = {getattr(torch, t): t for t in "bfloat16 float16 float8_e4m3fn float8_e5m2".split()}
INTEGERS = "int8 int16 int32 int64 uint8 uint16 uint32 uint64"
# dtype -> (type in memory, type of arithmetic)
TYPES: dict[torch.dtype, tuple[str, str]] = {
    torch.float32: ("float", "float"),
    torch.float64: ("double", "double"),
    # bytes in memory go through vector registers; gcc takes bools one by one
    torch.bool: ("uint8_t", "bool"),
    **{dtype: (f"mini::{name}", "float") for dtype, name in SMALL_FLOATS.items()},
    **{getattr(torch, t): (f"{t}_t",) * 2 for t in INTEGERS.split()},
}
SUFFIXES = dict.fromkeys((torch.int64, torch.uint32, torch.uint64), "LL")  # of numbers in the text
INFIX = {**INFIX_OF_ALL, "truediv": "/"}
# a reduction's kind, or a scatter's mode -> what keeps one of two elements
EXTREMES = {
    "max": "maximum",
    "min": "minimum",
    "amax": "maximum",
    "amin": "minimum",
    "argmax": "larger",
    "argmin": "smaller",
}
OF_EACH_TYPE = ("remainder", "floordiv", "maximum", "minimum")  # templates of the prelude
# templates: the rounded result is the result of rounded operands
MONOTONE = {
    *("-{}", "mini::abs({})", "{} ? {} : {}"),
    *("mini::maximum<float>({}, {})", "mini::minimum<float>({}, {})"),
}
ARITHMETIC = {*MONOTONE, "{} {} {}"}


def memory_type(dtype: torch.dtype) -> str:
    """Raises NotImplementedError."""
    if dtype not in TYPES:
        raise NotImplementedError(f"there is no type of C++ for {dtype}")
    return TYPES[dtype][0]


def compute_type(dtype: torch.dtype) -> str:
    return TYPES[dtype][1]


def array_type(c_type: str) -> str:
    """The type of the elements of an array: gcc takes bools one by one."""
    return "uint8_t" if c_type == "bool" else c_type


def constant_text(value: bool | int | float, dtype: torch.dtype) -> str:
    if dtype is torch.bool:
        return "true" if value else "false"
    if dtype.is_floating_point:
        number = torch.tensor(float(value), dtype=dtype).item()
        return float_text(number, compute_type(dtype) == "double")
    number = wrapped(value, dtype)
    if number == -(2**63):
        # C has no negative numbers: it would negate 2^63
        return "(-9223372036854775807LL - 1)"
    return f"{number}{'ull' if number >= 2**63 else SUFFIXES.get(dtype, '')}"


def float_text(value: float, is_double: bool) -> str:
    if math.isfinite(value):
        return repr(value) if is_double else f"{value!r}f"
    name = "nan" if math.isnan(value) else "inf"
    cast, sign = "(double)" if is_double else "", "-" if value < 0 else ""
    return f"{cast}{sign}mini::{name}"


def as_computed(element: str, dtype: torch.dtype) -> str:
    """An element in memory, as what is computed with."""
    return f"mini::to_float({element})" if dtype in SMALL_FLOATS else element


def combined(mode: str, there: str, value: Value, c_type: str) -> str:
    """What a scatter stores, made of what is there."""
    if mode == "sum":
        return f"{there} {'|' if c_type == 'bool' else '+'} {value}"
    if mode == "prod":
        return f"{there} * {value}"
    return f"mini::{EXTREMES[mode]}<{c_type}>({there}, {value})"


class CppScope(Scope):
    """The statements of one nesting level."""

    place = ""  # of the element that is computed, where each value is an array

    def __init__(self, parent: "CppScope | None" = None, is_mask: bool = False):
        super().__init__(parent)
        self.lines: list[Statement] = []
        self.is_mask = is_mask  # they run under a condition

    def beside(self) -> "CppScope":
        """One that knows none of the values here, and takes none of their names."""
        scope = CppScope()
        scope.counter = self.counter
        return scope

    def temporary(self, expression: str, c_type: str) -> str:
        """The name of a value; an expression is computed once."""
        name = self.lookup((expression, c_type))
        if name is None:
            new = self.fresh("tmp")
            name = self.known[expression, c_type] = new + self.place
            makers = self.makers[name] = [playing.value]
            target = self.declared(new, c_type)
            self.lines.append(Line(f"{target} = {expression};", origin=makers))
        return name

    def declared(self, name: str, c_type: str) -> str:
        """What stands on the left where the value of that name is computed."""
        return f"const {c_type} {name}"

    def add(self, line: str, origin: Any = None) -> None:
        """origin: what the line is for, if not for the instruction that is being played."""
        self.lines.append(Line(line, origin=origin or playing.value))


class TableScope(CppScope):
    """Values that depend on few loop variables only: each is an array, which is filled once before
    the loops.  Positions and weights of resampling are such, the deviations of channels, and short
    rows that are read many times.

    place: "[x0]", the element of an iteration."""

    array = "mini::Table<{}> {}({});"

    def __init__(self, parent: CppScope, place: str, count: int | str):
        super().__init__(parent)
        self.place, self.count = place, count
        self.arrays: list[Statement] = []

    def declared(self, name: str, c_type: str) -> str:
        self.arrays.append(Line(self.array.format(array_type(c_type), name, self.count)))
        return name + self.place


class SmallTable(TableScope):
    """One on the stack."""

    array = "{} {}[{}];"


class CppExpressions(OpsHandler):
    """The ops without memory and reductions; `CppKernelWriter` adds those, and sets these."""

    plan: KernelPlan
    only_moves: bool  # does the kernel compute no 16-bit floats?
    buffers: Mapping[str, Buffer]
    scope: CppScope
    outside: CppScope  # statements per outer iteration
    table_of: dict[int, CppScope]  # id of an instruction -> where it is computed once
    inner_variables: set[sympy.Symbol]  # of the loops that run the lanes; empty outside of them
    inner_symbols: set[sympy.Symbol]  # indirect indices that change along the lanes
    index: Callable[[sympy.Expr], str]
    position: Callable[[str], sympy.Symbol]
    size: Callable[[Size], int | str]
    # a float that fewer bits hold -> the one of which it was made, or itself
    rounded: dict[str, str]
    short_nan: set[str]  # floats of which a NaN has no lower bits, so that no rounding carries

    # -- names
    def make(self, template: str, dtype: torch.dtype, *parts: Any) -> Value:
        """The value of an expression of these parts; it changes where they do."""
        values = [part for part in parts if isinstance(part, Value)]
        value = self.temporary(template.format(*parts), dtype, any(p.inner for p in values))
        variable = {p.text for p in values[-2:] if p.number is None}
        if template in ARITHMETIC and variable <= self.short_nan:
            self.short_nan.add(value.text)
        if dtype in SMALL_FLOATS and template in MONOTONE and variable <= self.rounded.keys():
            wide = [replace(p, text=self.unrounded(p)) for p in values]
            self.rounded[value.text] = self.make(template, torch.float32, *wide).text
        return value

    def unrounded(self, x: Value) -> str:
        """The text of a value as it was before a dtype of fewer bits rounded it."""
        return self.rounded.get(x.text, x.text) if x.dtype in SMALL_FLOATS else x.text

    def call(self, function: str, dtype: torch.dtype, *arguments: Value, of: str = "") -> Value:
        """The value of a call of a function of the prelude.  of: the arguments of a template."""
        template = f"mini::{function}{f'<{of}>' if of else ''}"
        places = ", ".join(["{}"] * len(arguments))
        return self.make(f"{template}({places})", dtype, *arguments)

    def rand(self, seed: Value, offset: Value) -> Value:
        return self.call("rand", torch.float32, seed, offset)

    def temporary(self, expression: str, dtype: torch.dtype, inner: bool) -> Value:
        """Name a value at the outermost level where it is known."""
        c_type = compute_type(dtype)
        known = self.scope.lookup((expression, c_type))
        name = known or self.scope_of(inner).temporary(expression, c_type)
        return Value(name, dtype, inner)

    def scope_of(self, inner: bool) -> CppScope:
        """Where a value is computed: outside of the lanes, if it does not change along them."""
        if id(playing.value) in self.table_of:
            return self.table_of[id(playing.value)]
        if not inner and self.inner_variables and not self.scope.is_mask:
            return self.outside
        return self.scope

    def changes_inside(self, symbols: Iterable[Any]) -> bool:
        return not self.inner_variables.union(self.inner_symbols).isdisjoint(symbols)

    # -- 16-bit elements
    def dtype_of(self, name: str) -> torch.dtype:
        """Of a buffer's elements: where they are only moved, 16-bit floats are integers."""
        is_moved = self.only_moves and self.is_short(name)
        return torch.int16 if is_moved else self.buffers[name].layout.dtype

    def is_short(self, name: str) -> bool:
        return self.buffers[name].layout.dtype in NARROW

    def moves_only(self, body: LoopBody) -> bool:
        """Are 16-bit floats loaded for stores alone, and nothing else stored in 16 bits?"""
        loaded = {i.result for i in body.walk() if i.op == "load" and self.is_short(i.args[0])}
        return all(
            (i.op == "store" and self.is_short(i.args[0])) != loaded.isdisjoint(i.args)
            for i in body.walk()
        )

    def narrow(self, new: str, value: Value, dtype: torch.dtype) -> str:
        """The text of what is stored.  new: the value before it was rounded to the dtype."""
        if dtype is torch.bfloat16 and value.text in self.rounded and new in self.short_nan:
            return f"mini::upper_bfloat16({value})"
        return f"mini::to_{SMALL_FLOATS[dtype]}({new})" if dtype in SMALL_FLOATS else new

    # -- indices at run time
    def indirect_indexing(
        self, value: Value, size: Size | None, wrap_neg: bool = True
    ) -> sympy.Expr:
        index = self.to_dtype(value, torch.int64)
        if size is not None:
            end = self.index(sympy.sympify(size))
            if wrap_neg:
                index = self.make("{0} < 0 ? {0} + {1} : {0}", torch.int64, index, end)
            bad = self.make("(uint64_t){} >= (uint64_t){}", torch.bool, index, end)
            self.error_if(bad, "INDEX_ERROR")
            index = self.make("{} ? 0 : {}", torch.int64, bad, index)
        # gcc 12 reads at 0 and -1 if it sees that positions are truth values, so it must not see it
        index = self.make("{} ^ mini::hidden_zero", torch.int64, index)
        symbol = self.position(index.text)
        if value.inner:
            self.inner_symbols.add(symbol)
        return symbol

    def error_if(self, condition: Value, error: str) -> None:
        # not `condition ? error : 0`: in a branch of a vector loop, gcc 12 loses it
        line = Line(f"error |= (int){condition}*mini::{error};", sets_error=True)
        lines = self.scope_of(condition.inner).lines
        if line not in lines:
            lines.append(line)

    # -- arithmetic --------------------------------------------------------------------------------
    def constant(self, value: bool | int | float, dtype: torch.dtype) -> Value:
        is_integer = not (dtype.is_floating_point or dtype is torch.bool)
        number = wrapped(value, dtype) if is_integer else value
        return Value(constant_text(value, dtype), dtype, number=number)

    def index_expr(self, expr: Size, dtype: torch.dtype) -> Value:
        expr = sympy.sympify(expr)
        text, inner = self.index(expr), self.changes_inside(expr.free_symbols)
        if dtype is torch.int64:
            if expr.is_Integer:
                return Value(text, dtype, number=int(expr))
            return self.temporary(text, dtype, inner)
        return self.temporary(f"({compute_type(dtype)})({text})", dtype, inner)

    def to_dtype(self, x: Value, dtype: torch.dtype, src_dtype: torch.dtype | None = None) -> Value:
        source = x.dtype
        if dtype == source:
            return x
        if dtype in SMALL_FLOATS:
            wide = self.to_dtype(x, torch.float32)
            of = "false" if dtype is torch.bfloat16 and wide.text in self.short_nan else ""
            value = self.call(f"round_{SMALL_FLOATS[dtype]}", dtype, wide, of=of)
            self.rounded[value.text] = wide.text
            if dtype is torch.bfloat16:
                self.short_nan.add(value.text)
            return value
        if source in SMALL_FLOATS and dtype is torch.float32:
            return Value(x.text, dtype, x.inner, x.number)
        if dtype is torch.bool:
            return self.make("{} != 0", dtype, x)
        if source is torch.bool and dtype.is_floating_point:
            # gcc does not vectorize a cast of a bool; a choice between two numbers it does
            one, zero = constant_text(1, dtype), constant_text(0, dtype)
            return self.make("{} ? {} : {}", dtype, x, one, zero)
        if source.is_floating_point and not dtype.is_floating_point:
            return self.call("to_integer", dtype, x, of=compute_type(dtype))
        return self.make("({}){}", dtype, compute_type(dtype), x)

    def where(self, condition: Value, a: Value, b: Value) -> Value:
        return self.make("{} ? {} : {}", a.dtype, condition, a, b)

    def masked(self, mask: Value, body: Callable[[], Value], other: bool | int | float) -> Value:
        if mask.text == "true":
            return body()
        outside = self.scope
        self.scope = CppScope(outside, is_mask=True)
        value = body()
        inside, self.scope = self.scope, outside
        if mask.text == "false":
            return self.constant(other, value.dtype)
        inner, name = bool(self.inner_variables), outside.fresh("tmp")
        mask = self.mask_of_lanes(mask)
        start = self.constant(other, value.dtype)
        outside.add(f"{compute_type(value.dtype)} {name} = {start};")
        inside.add(f"{name} = {value};")
        outside.lines.append(Branch(mask.text, inside.lines))
        return Value(name, value.dtype, inner)

    def mask_of_lanes(self, mask: Value) -> Value:
        """An equal mask, which differs from lane to lane: gcc makes no vectors of a loop around a
        branch on what is the same for all lanes."""
        is_along_lanes = self.inner_variables and self.inner_variables.issubset(self.plan.r)
        if not is_along_lanes or mask.inner or not config.vectorize:
            return mask
        count = self.make("{} ? {} : 0", torch.int64, mask, self.size(self.plan.inner[-1]))
        return Value(f"{self.plan.r[-1]} < {count}", torch.bool, True)

    def unary(self, op: str, x: Value) -> Value:
        if op == "neg":
            return self.make("-{}", x.dtype, x)
        if op == "bitwise_not":
            return self.make("!{}" if x.dtype is torch.bool else "~{}", x.dtype, x)
        if op == "logical_not":
            return self.make("{} == 0", torch.bool, x)
        return self.call(op, torch.bool if op in TESTS else x.dtype, x)

    def binary(self, op: str, a: Value, b: Value) -> Value:
        dtype = torch.bool if op in COMPARISON or op in LOGICAL else a.dtype
        if op in INTEGER_DIVISIONS and not a.dtype.is_floating_point and not b.number:
            self.error_if(self.make("{} == 0", torch.bool, b), "ZERO_DIVISION")
        if op in INFIX:
            return self.make("{} {} {}", dtype, a, INFIX[op], b)
        if op in LOGICAL:
            are_bools = a.dtype == b.dtype == torch.bool
            template = "{} {} {}" if are_bools else "({} != 0) {} ({} != 0)"
            return self.make(template, dtype, a, LOGICAL[op], b)
        is_template = not a.dtype.is_floating_point or op in OF_EACH_TYPE
        return self.call(op, dtype, a, b, of=compute_type(a.dtype) if is_template else "")
