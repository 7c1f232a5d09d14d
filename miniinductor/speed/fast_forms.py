"""Maths in vector code (maths.h): functions with two forms, one for all but large arguments.

In:   sin, cos, tan, fmod, remainder, floordiv of floats; sin, cos, tan of doubles.
Out:  a kernel that runs with the fast forms; if it met an argument that is too large for them, it
      runs once more, with exact ones.

    error |= (int)mini::is_large_angle(tmp0)*mini::NOT_FAST;
    const float tmp1 = mini::sin<exact.v>(tmp0);

Double precision (doubles.h): exp and sigmoid have names of their own, for the prelude's
exp(double) calls libm, which no vector loop does.  That header's other functions, and those of
inverses.h, are overloads of the prelude's templates.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from ..lowerings import arithmetic  # noqa: F401  (maths.h builds on arithmetic.h)
from ..codegen.code import call
from ..codegen.cpp import CppKernelWriter, ending
from ..codegen.cpp_expressions import CppExpressions, Value, compute_type
from ..listings import indent
from ..runtime.build import PRELUDES


IS_LARGE = {
    **dict.fromkeys(("sin", "cos", "tan"), "is_large_angle"),
    **dict.fromkeys(("fmod", "remainder", "floordiv"), "is_large_quotient"),
}
OF_DOUBLES = ("sin", "cos", "tan")
MANY = 8  # functions with two forms in one kernel, beyond which the exact ones are called


def may_run_again(writer: Any) -> bool:
    """Would the kernel give the same if it were run a second time?"""
    overwrites = any(n.name in writer.overwritten for n in writer.group.nodes)
    return not writer.has_scatter and not overwrites


def whole_body(self: CppKernelWriter, lines: list[str]) -> list[str]:
    if not self.two_forms:
        return lines
    first = ending("return mini::fast_then_exact([&](auto exact) {")
    return [first, *indent(lines), ending("});")]


def two_forms(op: str, plain: Callable[..., Value]) -> Callable[..., Value]:
    """The writer's method for an op that has two forms for floats; else it is `plain`."""

    def method(self: CppExpressions, *args: Value) -> Value:
        is_double = compute_type(args[0].dtype) == "double" and op in OF_DOUBLES
        if compute_type(args[0].dtype) != "float" and not is_double:
            return plain(self, *args)
        if not may_run_again(self):
            return self.call(op, args[0].dtype, *args, of="true")
        self.reruns = True  # with exact functions, if it must
        self.two_forms += 1
        inner = any(a.inner for a in args)
        self.error_if(Value(call(IS_LARGE[op], *args), torch.bool, inner), "NOT_FAST")
        name = op if self.two_forms <= MANY else f"{op}_of_many"
        return self.call(name, args[0].dtype, *args, of="exact.v")

    return method


setattr(CppKernelWriter, "whole_body", whole_body)
setattr(CppExpressions, "two_forms", 0)  # how many of them a kernel has so far
for _op in IS_LARGE:
    setattr(CppExpressions, _op, two_forms(_op, getattr(CppExpressions, _op)))
PRELUDES.append(Path(__file__).with_name("maths.h"))


# --- double precision -----------------------------------------------------------------------------
def of_doubles(op: str, plain: Callable[..., Value]) -> Callable[..., Value]:
    """The writer's method for an op whose form for doubles has a name of its own."""

    def method(self: CppExpressions, x: Value) -> Value:
        if x.dtype != torch.float64:
            return plain(self, x)
        return self.call(f"{op}_double", x.dtype, x)

    return method


for _op in ("exp", "sigmoid"):
    setattr(CppExpressions, _op, of_doubles(_op, getattr(CppExpressions, _op)))
PRELUDES.extend(Path(__file__).with_name(name) for name in ("doubles.h", "inverses.h"))
