"""Values that wait between two loops, where their number is symbolic: few lie on the stack.

float small_scratch0[2048];
float* scratch0 = s0 <= 2048 ? small_scratch0 : mini::scratch<float, 0>(s0);
"""

from ..codegen.cpp import SCRATCH, CppKernelWriter
from ..sizes.symbols import Size

SMALL_SCRATCH = 2048  # elements of each: more lie in memory that each thread keeps, and that grows
plain_declare_array = CppKernelWriter.declare_array


def declare_array(self: CppKernelWriter, array: str, c_type: str, count: Size) -> None:
    if isinstance(count, int):
        plain_declare_array(self, array, c_type, count)
        return
    number, size = array.removeprefix("scratch"), self.size(count)
    self.outside.add(f"{c_type} small_{array}[{SMALL_SCRATCH}];", SCRATCH)
    self.outside.add(
        f"{c_type}* {array} = {size} <= {SMALL_SCRATCH} ? small_{array} : "
        f"mini::scratch<{c_type}, {number}>({size});",
        SCRATCH,
    )


def may_use_stack(self: CppKernelWriter) -> bool:
    return all(s.keeps_stack for s in self.strategies)


setattr(CppKernelWriter, "declare_array", declare_array)
setattr(CppKernelWriter, "may_use_stack", may_use_stack)
