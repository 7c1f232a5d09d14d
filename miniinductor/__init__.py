"""miniinductor: an FX graph in, fused kernels out.

    >>> compiled = miniinductor.compile_fx(gm, example_inputs)
    >>> compiled(*example_inputs)           # what gm(*example_inputs) gives
    >>> compiled.record                     # every stage: graphs, loop IR, fusions, kernels, times

Mirrors torch/_inductor (paper section 4).  The stages, in order: autograd/, graph_passes/, lowering/, scheduler,
codegen/, runtime/.
"""

from . import config
from .compile import aot_eager, compile_fx
from .records import CompileRecord

__all__ = ["aot_eager", "compile_fx", "config", "CompileRecord"]
