"""a + 0, a - 0 and a * 1 of integers are a: C++ that computes indices becomes shorter.

In:   an operation of a C++ kernel.  Out: one of its operands, or the operation.

    const int64_t tmp1 = tmp0 * 1 + 0;          ->      tmp0
"""

from ..codegen.common import Value
from ..codegen.cpp_expressions import CppExpressions

plain_binary = CppExpressions.binary


def binary(self: CppExpressions, op: str, a: Value, b: Value) -> Value:
    unchanged = neutral_dropped(op, *self.alike(a, b))
    return plain_binary(self, op, a, b) if unchanged is None else unchanged


def neutral_dropped(op: str, a: Value, b: Value) -> Value | None:
    """a, for a + 0, a - 0 and a * 1 of integers (of floats, -0.0 + 0 is 0.0); b likewise."""
    neutral = {"add": 0, "sub": 0, "mul": 1}.get(op)
    if neutral is None or a.dtype.is_floating_point:
        return None
    if b.number == neutral:
        return a
    return b if a.number == neutral and op != "sub" else None


setattr(CppExpressions, "binary", binary)
