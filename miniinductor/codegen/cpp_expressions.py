"""Scalar ops in, C++ expressions out: types, constants, and one rule per op or family of ops.

In:   `Value`s (a name in the generated code and its dtype).  Out: `Value`s.  An expression gets a
      name by `self.temporary`; a check that fails sets a bit of `error` by `self.error_if`.

    >>> writer.add(Value("tmp0", torch.float32), Value("1.5f", torch.float32))
    ...                                                 # const float tmp1 = tmp0 + 1.5f;
    Value(text='tmp1', dtype=torch.float32, inner=False, number=None)

Functions of the prelude carry the ops' names, so that most families are one line here.
lowerings/half_types.py adds bfloat16 and float16, lowerings/rare_integers.py other integers.

Mirrors CppOverrides in torch/_inductor/codegen/cpp.py.
"""

import math
from collections.abc import Callable
from typing import Any

import sympy
import torch

from .. import config
from ..ir import playing
from ..ops import BINARY, COMPARISON, TESTS, UNARY, OpsHandler
from ..sizes.symbols import Size
from .common import INFIX as INFIX_OF_ALL
from .common import LOGICAL, Scope, Value, install_family
from .plan import KernelPlan
from .tree import Branch, Line, Statement

# dtype -> (type in memory, type of arithmetic)
TYPES: dict[torch.dtype, tuple[str, str]] = {
    torch.float32: ("float", "float"),
    torch.float64: ("double", "double"),
    torch.int64: ("int64_t", "int64_t"),
    torch.int32: ("int32_t", "int32_t"),
    torch.uint8: ("uint8_t", "uint8_t"),
    # bytes in memory go through vector registers; gcc takes bools one by one
    torch.bool: ("uint8_t", "bool"),
}
IN_ARRAYS = {"bool": "uint8_t"}  # of values that loops keep: the same
SUFFIXES = {torch.int64: "LL"}  # of numbers in the text
INFIX = {**INFIX_OF_ALL, "truediv": "/"}
INTEGER_DIVISIONS = ("floordiv", "truncdiv", "remainder", "fmod")
OF_EACH_TYPE = ("maximum", "minimum", "remainder", "floordiv")  # templates of the prelude


def memory_type(dtype: torch.dtype) -> str:
    """Raises NotImplementedError."""
    if dtype not in TYPES:
        raise NotImplementedError(f"there is no type of C++ for {dtype}")
    return TYPES[dtype][0]


def compute_type(dtype: torch.dtype) -> str:
    return TYPES[dtype][1]


def limit_text(dtype: torch.dtype, lowest: bool) -> str:
    if dtype.is_floating_point:
        return "-mini::inf" if lowest else "mini::inf"
    if dtype is torch.bool:
        return "false" if lowest else "true"
    info = torch.iinfo(dtype)
    return constant_text(info.min if lowest else info.max, dtype)


def constant_text(value: bool | int | float, dtype: torch.dtype) -> str:
    if dtype is torch.bool:
        return "true" if value else "false"
    if dtype.is_floating_point:
        return float_text(float(value), compute_type(dtype) == "double")
    number = wrapped(value, dtype)
    if number == -(2**63):
        return "(-9223372036854775807LL - 1)"
    return f"{number}{'ull' if number >= 2**63 else SUFFIXES.get(dtype, '')}"


def wrapped(value: float, dtype: torch.dtype) -> int:
    """As torch converts a scalar to an integer type: -1 is 255 in uint8."""
    info = torch.iinfo(dtype)
    return (int(value) - info.min) % (info.max - info.min + 1) + info.min


def float_text(value: float, is_double: bool) -> str:
    if not is_double:
        value = torch.tensor(value, dtype=torch.float32).item()
    if math.isfinite(value):
        return repr(value) if is_double else f"{value!r}f"
    name = "mini::nan" if math.isnan(value) else "mini::inf"
    if value < 0:
        name = f"-{name}"
    return f"(double){name}" if is_double else name


class CppScope(Scope):
    """The statements of one nesting level."""

    def __init__(self, parent: "CppScope | None" = None, is_mask: bool = False):
        super().__init__(parent)
        self.lines: list[Statement] = []
        self.is_mask = is_mask  # they run under a condition

    def temporary(self, expression: str, c_type: str) -> str:
        """The name of a value; an expression is computed once."""
        name = self.lookup((expression, c_type))
        if name is None:
            name = self.known[expression, c_type] = self.fresh("tmp")
            self.makers[name] = [playing.value]
            self.add(f"const {c_type} {name} = {expression};", self.makers[name])
        return name

    def add(self, line: str, origin: Any = None) -> None:
        """origin: what the line is for, if not for the instruction that is being played."""
        self.lines.append(Line(line, origin=origin or playing.value))


class CppExpressions(OpsHandler):
    """The ops without memory and reductions; `CppKernelWriter` adds those, and sets these."""

    plan: KernelPlan
    scope: CppScope
    inner_variables: set[sympy.Symbol]  # of the loops that run the lanes; empty outside of them
    inner_symbols: set[sympy.Symbol]  # indirect indices that change along the lanes
    temporary: Callable[[str, torch.dtype, bool], Value]  # names an expression
    index: Callable[[sympy.Expr], str]
    local: Callable[[str], sympy.Symbol]
    size: Callable[[Size], str]
    changes_inside: Callable[[sympy.Expr], bool]
    ask: Callable[..., Any]
    scope_of: Callable[[bool], CppScope]

    # -- indices at run time
    def indirect_indexing(self, value: Value, size: Size, wrap_neg: bool = True) -> sympy.Expr:
        size_text = self.index(sympy.sympify(size))
        index = self.to_dtype(value, torch.int64)
        if wrap_neg:
            index = self.temporary(
                f"{index} < 0 ? {index} + {size_text} : {index}", torch.int64, value.inner
            )
        bad = self.temporary(f"(uint64_t){index} >= (uint64_t){size_text}", torch.bool, value.inner)
        self.error_if(bad, "INDEX_ERROR")
        index = self.temporary(f"{bad} ? 0 : {index}", torch.int64, value.inner)
        symbol = self.local(index.text)
        if value.inner:
            self.inner_symbols.add(symbol)
        return symbol

    def error_if(self, condition: Value, error: str) -> None:
        # not `condition ? error : 0`: in a branch of a vector loop, gcc 12 loses it
        line = Line(f"error |= (int){condition}*mini::{error};", sets_error=True)
        lines = self.ask("error_lines", condition)
        if lines is None:
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
        text, inner = self.index(expr), self.changes_inside(expr)
        if dtype is torch.int64:
            if expr.is_Integer:
                return Value(text, dtype, number=int(expr))
            return self.temporary(text, dtype, inner)
        return self.temporary(f"({compute_type(dtype)})({text})", dtype, inner)

    def to_dtype(self, x: Value, dtype: torch.dtype, src_dtype: torch.dtype | None = None) -> Value:
        source = x.dtype
        if dtype == source:
            return x
        if dtype is torch.bool:
            return self.temporary(f"{x} != 0", dtype, x.inner)
        if source is torch.bool and dtype.is_floating_point:
            # gcc does not vectorize a cast of a bool; a choice between two numbers it does
            text = f"{x} ? {constant_text(1, dtype)} : {constant_text(0, dtype)}"
            return self.temporary(text, dtype, x.inner)
        if source.is_floating_point and not dtype.is_floating_point:
            return self.temporary(f"mini::to_integer<{compute_type(dtype)}>({x})", dtype, x.inner)
        return self.temporary(f"({compute_type(dtype)}){x}", dtype, x.inner)

    def where(self, condition: Value, a: Value, b: Value) -> Value:
        inner = condition.inner or a.inner or b.inner
        return self.temporary(f"{condition} ? {a} : {b}", a.dtype, inner)

    def masked(self, mask: Value, body: Callable[[], Value], other: bool | int | float) -> Value:
        outside = self.scope
        inside = CppScope(outside, is_mask=True)
        self.scope = inside
        value = body()
        self.scope = outside
        if mask.text == "false":
            return self.constant(other, value.dtype)
        inner, name = bool(self.inner_variables), outside.fresh("tmp")
        is_along_lanes = inner and self.inner_variables.issubset(self.plan.r)
        if is_along_lanes and not mask.inner and config.vectorize:
            # gcc vectorizes no branch on what is the same for all lanes
            count = self.temporary(
                f"{mask} ? {self.size(self.plan.inner[-1])} : 0", torch.int64, False
            )
            mask = Value(f"{self.plan.r[-1]} < {count}", torch.bool, True)
        outside.add(f"{compute_type(value.dtype)} {name} = {constant_text(other, value.dtype)};")
        inside.add(f"{name} = {value};")
        outside.lines.append(Branch(str(mask), inside.lines))
        return Value(name, value.dtype, inner)

    def unary(self, op: str, x: Value) -> Value:
        if op == "neg":
            return self.temporary(f"-{x}", x.dtype, x.inner)
        if op == "bitwise_not":
            return self.temporary(f"{'!' if x.dtype is torch.bool else '~'}{x}", x.dtype, x.inner)
        if op == "logical_not":
            return self.temporary(f"{x} == 0", torch.bool, x.inner)
        dtype = torch.bool if op in TESTS else x.dtype
        return self.temporary(f"mini::{op}({x})", dtype, x.inner)

    def binary(self, op: str, a: Value, b: Value) -> Value:
        inner = a.inner or b.inner
        if op in INTEGER_DIVISIONS and not a.dtype.is_floating_point:
            if not b.number:
                self.error_if(self.temporary(f"{b} == 0", torch.bool, inner), "ZERO_DIVISION")
        dtype = torch.bool if op in COMPARISON or op in LOGICAL else a.dtype
        return self.temporary(binary_text(op, a, b), dtype, inner)


def binary_text(op: str, a: Value, b: Value) -> str:
    if op in INFIX:
        return f"{a} {INFIX[op]} {b}"
    if op in LOGICAL:
        if a.dtype == b.dtype == torch.bool:
            return f"{a} {LOGICAL[op]} {b}"
        return f"({a} != 0) {LOGICAL[op]} ({b} != 0)"
    is_template = not a.dtype.is_floating_point or op in OF_EACH_TYPE
    name = f"{op}<{compute_type(a.dtype)}>" if is_template else op
    return f"mini::{name}({a}, {b})"


install_family(CppExpressions, UNARY, "unary")
install_family(CppExpressions, BINARY + COMPARISON, "binary")
