"""Scans in C++: cumsum, cumprod, logcumsumexp; each iteration of the loop has a result of its own.

In:   the value that one iteration adds.  Out: the name of the running total.

    float scan0 = 0;
    for (int64_t r0 = 0; r0 < 100; r0++) {
        scan0 = scan0 + tmp0;
        out0[r0] = scan0;
    }
"""

import torch

from ..codegen.code import call, code, named
from ..codegen.common import Value
from ..codegen.cpp import CppKernelWriter
from ..codegen.cpp_expressions import compute_type


def scan(self: CppKernelWriter, dtype: torch.dtype, kind: str, value: Value) -> Value:
    if self.plan.is_pointwise or not self.plan.bodies[self.node.name].inner:  # one element
        return Value(code("({} + 0)", value), dtype) if kind == "sum" else value  # 0 + -0.0 is 0.0
    total, c_type = named(self.outside.fresh("scan")), compute_type(dtype)
    start, combined = {
        "sum": ("0", code("{} + {}", total, value)),
        "prod": ("1", code("{} * {}", total, value)),
        "logaddexp": ("-mini::inf", call("logaddexp", total, value)),
    }[kind]
    self.outside.add(f"{c_type} {total} = {start};")
    self.scope.add(code("{} = {};", total, combined))
    return Value(total, dtype, True)


setattr(CppKernelWriter, "scan", scan)
