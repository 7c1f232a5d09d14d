"""Double precision in vectors (doubles.h): exp and sigmoid under names of their own.

In:   exp, sigmoid of float64.  Out: mini::exp_double(x), mini::sigmoid_double(x): the prelude's
      exp(double) calls libm, which no vector loop does.  The header's other functions are overloads
      of the prelude's templates; sin and cos of doubles have two forms (fast_forms.py).
"""

from collections.abc import Callable
from pathlib import Path

import torch

from ..codegen.cpp_expressions import CppExpressions, Value
from ..runtime.build import PRELUDES
from . import fast_forms  # noqa: F401  (its header comes first)


def of_doubles(op: str, plain: Callable[..., Value]) -> Callable[..., Value]:
    """The writer's method for an op whose form for doubles has a name of its own."""

    def method(self: CppExpressions, x: Value) -> Value:
        if x.dtype != torch.float64:
            return plain(self, x)
        return self.temporary(f"mini::{op}_double({x})", x.dtype, x.inner)

    return method


for _op in ("exp", "sigmoid"):
    setattr(CppExpressions, _op, of_doubles(_op, getattr(CppExpressions, _op)))
PRELUDES.append(Path(__file__).with_name("doubles.h"))
