"""miniinductor: an FX graph in, fused kernels out.

    >>> compiled = miniinductor.compile_fx(gm, example_inputs)
    >>> compiled(*example_inputs)           # what gm(*example_inputs) gives
    >>> compiled.record                     # every stage: graphs, loop IR, fusions, kernels, times

Mirrors torch/_inductor (paper section 4).  The stages, in order: autograd/, graph_passes/, lowering/, scheduler,
codegen/, runtime/.  They are imported when one of them is asked for: `miniinductor.foreign`, which
minidynamo uses too, has no need of them.
"""

import importlib

from . import config

_HOME = {"aot_eager": "compile", "compile_fx": "compile", "CompileRecord": "records"}
__all__ = ["aot_eager", "compile_fx", "config", "CompileRecord"]


def __getattr__(name):
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
    return globals()[name]


def __dir__():
    return sorted([*globals(), *__all__])
