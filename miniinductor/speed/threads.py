"""Whether threads are worth starting, where only a call knows: sizes are symbols.

    #pragma omp parallel for schedule(static) if (s0*64 >= 16384)

Without this file the sizes of the run that is compiled decide.
"""

import math

from .. import config
from ..codegen.cpp import CppKernelWriter
from ..codegen.plan import PARALLEL_WORK

plain_decide_threads = CppKernelWriter.decide_threads


def decide_threads(self: CppKernelWriter) -> None:
    plain_decide_threads(self)
    sizes = (*self.plan.outer, *self.plan.inner)
    if not all(isinstance(n, int) for n in sizes):
        self.parallel = config.openmp and not self.has_scatter
        enough = -(-PARALLEL_WORK // self.plan.work_per_element)
        self.threads_if = f"{self.size(math.prod(sizes))} >= {enough}"


setattr(CppKernelWriter, "decide_threads", decide_threads)
