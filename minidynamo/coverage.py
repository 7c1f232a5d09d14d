"""Loads the folders whose files register what they add to tables: what a call means
(`symbolic_eval/registry.py`), who answers an operator (`operators.py`), how a value becomes a
variable (`variables/registry.py`), opcodes (`HANDLERS`).

    coverage.load()             # once, before the first frame is captured
"""

import functools
import importlib

from miniinductor.coverage import load_folders

from . import config

FOLDERS = ("rules", "variables.more")
TRACE = "minidynamo.explain.trace"  # named, not imported: it stands on top of everything


@functools.cache
def load() -> None:
    """Load these files, once, and what both packages trace with."""
    load_folders("minidynamo", FOLDERS)
    if config.trace_folder:
        importlib.import_module(TRACE).start_in(config.trace_folder)
