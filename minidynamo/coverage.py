"""Loads the folders beside minidynamo's core: each file in them registers what it adds.

    coverage.load()             # once, before the first frame is captured

The core imports nothing of these folders.  Where it says "extras/x.py does y", that file enters in
one of four ways:

* registries, which the core asks and whose emptiness means a graph break: what a call means
  (`symbolic_eval/registry.py`), who answers an operator (`operators.py`), how a value becomes a
  variable (`variables/registry.py`), opcodes (`HANDLERS`);
* lists of functions to call on the way of a frame (`hooks.py`);
* methods: `@extends(ListVar)` gives a class of the core more of them, or takes the place of one
  that does the plain thing (`extras/extending.py`);
* classes in a list, of which the last is used (`guards.PRINTERS`).

See `miniinductor.coverage`.
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
