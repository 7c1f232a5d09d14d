"""The files that fill the tables: what a call means (`functions/`), how a value becomes a variable,
opcodes.

    coverage.load()             # once, before the first frame is captured
"""

import functools
import importlib

from . import config

TRACE = "minidynamo.explain.trace"  # named, not imported: it stands on top of everything


@functools.cache
def load() -> None:
    """Load these files, once, and what both packages trace with."""
    importlib.import_module("minidynamo.functions")
    if config.trace_folder:
        importlib.import_module(TRACE).start_in(config.trace_folder)
