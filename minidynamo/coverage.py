"""Loads the folders beside minidynamo's core: each file in them registers what it adds.

    coverage.load()             # once, before the first frame is captured

The core imports nothing of these folders.  It owns registries (rules of calls, how a value is
wrapped, opcodes), and breaks the graph where nothing is registered.  See `miniinductor.coverage`.
"""

import functools

from miniinductor.coverage import load_folders

FOLDERS = ("rules", "variables.more", "extras")


@functools.cache
def load() -> None:
    """Load minidynamo's coverage, once, and what both packages trace with."""
    load_folders("miniinductor", ("more", "fakes"))
    load_folders("minidynamo", FOLDERS)
