"""max(a, 2) and min(a, 2) are one comparison, which lets a NaN through.

const float tmp1 = tmp0 < 2.0f ? 2.0f : tmp0;
"""

import math

import torch

from ..codegen.common import Value
from ..codegen.cpp_expressions import CppExpressions

plain_binary = CppExpressions.binary


def binary(self: CppExpressions, op: str, a: Value, b: Value) -> Value:
    numbers = [v.number is not None and math.isfinite(v.number) for v in (a, b)]
    if op not in ("maximum", "minimum") or not any(numbers) or a.dtype == torch.bool:
        return plain_binary(self, op, a, b)
    value, number = (b, a) if numbers[0] else (a, b)
    sign = "<" if op == "maximum" else ">"
    return self.make("{0} {1} {2} ? {2} : {0}", a.dtype, value, sign, number)


setattr(CppExpressions, "binary", binary)
