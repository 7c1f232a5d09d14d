"""minidynamo: Python functions in, FX graphs and guarded replacement bytecode out.

    >>> import torch, minidynamo
    >>> @minidynamo.compile(backend="eager")
    ... def f(x):
    ...     return torch.relu(x) + 1

The folders in the order in which a call flows through them: `frame/` (the hook, in C), `convert/`,
`bytecode/`, `evaluate/`, `variables/`, `functions/`, `guards/`, `shapes/`, `graph/`,
`rebuild/`.  `minidynamo.bytecode`, `.rebuild.resume` and `.frame.frame_hook` import
without torch: everything else loads on first use. Mirrors torch/_dynamo (paper section 3).
"""

import importlib
import sys
from typing import Any

from miniinductor import __version__ as __version__

_HOME = {  # public name -> the file where it lies
    "compile": "api",
    "reset": "convert.convert_frame",
    "disable": "frame.frame_hook",
    "graph_break": "frame.frame_hook",
    "is_compiling": "frame.frame_hook",
    "mark_dynamic": "shapes.dynamic",
    "mark_static": "shapes.dynamic",
    "register_backend": "backends",
    "torch_backend": "backends",
    "list_backends": "backends",
    "counters": "records",
    "Unsupported": "errors",
    "BackendError": "errors",
}
__all__ = [*_HOME, "config", "explain"]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        importlib.import_module(f"{__name__}.{_HOME[name]}")
    elif name in ("config", "records", "backends", "explain"):
        globals()[name] = importlib.import_module(f"{__name__}.{name}")
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    # All names of a file that is loaded become attributes of the package at once: a compiled
    # function that reads one finds it, and no import has to be traced.
    for public, file in _HOME.items():
        value = getattr(sys.modules.get(f"{__name__}.{file}"), public, None)
        if value is not None:
            globals().setdefault(public, value)
    return globals()[name]


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOME])
