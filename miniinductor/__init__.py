"""miniinductor: an FX graph in, fused kernels out.

    >>> compiled = miniinductor.compile_fx(gm, example_inputs)
    >>> compiled(*example_inputs)           # what gm(*example_inputs) gives
    >>> compiled.record                     # every stage: graphs, loop IR, fusions, kernels, times

Mirrors torch/_inductor (paper section 4).  The stages, in order: autograd/, passes/,
lowering/, ir/, schedule/, codegen/, toolchain, runtime/.  `sizes/` and `errors` are
minidynamo's, too: they load nothing else.
"""

import importlib

__version__ = "0.1.0"  # of both packages, which are one distribution

# Imported when they are first asked for: minidynamo uses sizes/ and `errors`, and must not load
# the compiler with them.
_HOME = {"aot_eager": "compile", "compile_fx": "compile", "CompileRecord": "records"}
__all__ = [*_HOME, "config"]


def __getattr__(name: str) -> object:
    if name in _HOME:
        value = getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
        globals()[name] = value
        return value
    if name == "config":
        return importlib.import_module(f"{__name__}.config")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOME])
