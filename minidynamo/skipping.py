"""Which frames are left alone, and why.

In:   a code object that the hook is about to run.   Out: a reason in words, or None to compile it.

    >>> skip_reason(json.dumps.__code__)
    'the standard library'

Mirrors torch/_dynamo/trace_rules.py.
"""

import inspect
import os
import sysconfig
import types
from collections.abc import Callable

import torch


OURS = os.path.dirname(os.path.abspath(__file__)) + os.sep
MINIINDUCTOR = os.path.join(os.path.dirname(os.path.dirname(OURS)), "miniinductor") + os.sep
BENCH = os.path.join(OURS, "bench") + os.sep  # its workloads are user programs
TORCH = os.path.dirname(torch.__file__) + os.sep
# (code of torch's): is it compiled all the same?  See extras/left_alone.py
COMPILED: list[Callable[[types.CodeType], bool]] = []
STANDARD = tuple({sysconfig.get_path(name) + os.sep for name in ("stdlib", "platstdlib")})
SITE = tuple({sysconfig.get_path(name) + os.sep for name in ("purelib", "platlib")})
NUMPY = os.path.join("site-packages", "numpy", "")
GENERATORS = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR


def skip_reason(code: types.CodeType) -> str | None:
    """Why frames of this code are left alone, or None."""
    file = code.co_filename
    if file.startswith(OURS) and not file.startswith(BENCH):
        return "minidynamo's own code"
    if file.startswith(MINIINDUCTOR):  # what autograd and programs call of a compiled graph's
        return "miniinductor's own code"
    if file.startswith(TORCH):
        return None if any(ask(code) for ask in COMPILED) else "torch's own code"
    if NUMPY in file:
        return "NumPy's own code"
    if file.startswith("<") and code.co_name == "<module>" or file.startswith("<frozen"):
        return "not a function"
    if file.startswith(STANDARD) and not file.startswith(SITE):
        return "the standard library"
    if code.co_flags & GENERATORS or ".0" in code.co_varnames:
        # `.0` is the iterator that the code of a comprehension is given: it was made before
        return "a generator, coroutine or comprehension"
    return None
