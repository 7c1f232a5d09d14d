"""Loads the folders whose files register what they know: what calls mean, kinds of values.

    coverage.load()             # once, before the first frame is captured

The evaluator finds their entries in tables: what a call means (`symbolic_eval/registry.py`), who
answers an operator (`operators.py`), how a value becomes a variable (`variables/registry.py`).
What no table knows breaks the graph.  `hooks.py` lists functions that are called on a frame's way.
"""

import functools
import importlib

from miniinductor.coverage import load_folders

from . import config

FOLDERS = ("rules", "variables.more", "extras")
TRACE = "minidynamo.explain.trace"  # named, not imported: it stands on top of everything


@functools.cache
def load() -> None:
    """Load minidynamo's coverage, once, and what both packages trace with."""
    load_folders("minidynamo", FOLDERS)
    if config.trace_folder:
        importlib.import_module(TRACE).start_in(config.trace_folder)
