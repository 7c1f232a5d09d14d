"""Earlier ways to get a graph out of a PyTorch program, each in miniature, to see how it fails.

    recording.py  run once, record every operation, replay the tape        (torch.jit.trace)
    scripting.py  compile the source text of a Python subset               (torch.jit.script)
    symbolic.py   run once with objects that stand for tensors             (torch.fx.symbolic_trace)
    lazy.py       collect operations until a value is needed, hash, cache  (torch/csrc/lazy)
    staging.py    trace a pure function on abstract values                 (JAX's jit)

Each file is a small working capture mechanism.  None is used by minidynamo: they are
what section 2 of the paper compares with, and notebook 01 runs them side by side.
"""

from .lazy import LazyTensor, lazy
from .recording import record
from .scripting import NotScriptable, script
from .staging import stage
from .symbolic import CannotTrace, symbolic_trace

__all__ = [
    "record",
    "script",
    "NotScriptable",
    "symbolic_trace",
    "CannotTrace",
    "lazy",
    "LazyTensor",
    "stage",
]
