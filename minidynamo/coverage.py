"""Loads the folders beside minidynamo's core: each file in them registers what it adds.

    coverage.load()             # once, before the first frame is captured

The core imports nothing of these folders.  It owns registries (rules of calls, how a value is
wrapped, opcodes), and breaks the graph where nothing is registered.  See `miniinductor.coverage`.
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
    load_folders("miniinductor", ("more", "fakes"))
    load_folders("minidynamo", FOLDERS)
    if config.trace_folder:
        importlib.import_module(TRACE).start_in(config.trace_folder)
