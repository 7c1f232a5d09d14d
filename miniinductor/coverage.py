"""Loads the folders whose files register what they add: lowerings, passes, rules.

    coverage.load()             # once, before the first graph is compiled

PyTorch: `torch/_inductor` registers lowerings by decorator, too, but imports its files by name.
"""

import contextlib
import functools
import gc
import importlib
from collections.abc import Iterator

STAGES = ("lowering", "passes.graph_passes", "languages")  # they fill tables when they are imported


@contextlib.contextmanager
def without_collecting() -> Iterator[None]:
    """The garbage collector rests: what importing makes stays, and is soon much to look through."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


@functools.cache
def load() -> None:
    """Load these, once."""
    with without_collecting():
        for stage in STAGES:
            importlib.import_module(f"miniinductor.{stage}")
