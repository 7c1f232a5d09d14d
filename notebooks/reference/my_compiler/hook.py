"""Chapter 03: every call of a Python function passes by.

`compile(f)` returns f with the frame hook switched on.  Inside of its calls, CPython asks
`Compiler.frame` about each code object that it is going to run and that has no fitting entry.
The answer is an entry, (guard, code to run instead), or None: leave it as it is.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from minidynamo.frame import frame_hook

from .breaks import Entry, split

LIMIT = 8  # entries of one code object; beyond it the frame runs as plain Python
LIBRARIES = (str(Path(torch.__file__).parent), str(Path(types.__file__).parent))


class Compiler:
    """The callback of the frame hook, and what it has done so far.

    entries: what was compiled, in order.  left_alone: {code that is left to Python: why}."""

    def __init__(self) -> None:
        self.callback = self.frame  # by which the hook knows whose entries are whose
        self.entries: list[Entry] = []
        # (`set_cache(code, None)` would say so to all compilers)
        self.left_alone: dict[types.CodeType, str] = {}

    def frame(self, function: Any, code: types.CodeType, args: tuple) -> Any:
        """An entry for this frame, or None."""
        if code in self.left_alone or code.co_filename.startswith(LIBRARIES):
            return None
        before = [entry for entry in self.entries if entry.code is code]
        found: Any = f"{LIMIT} entries, and none of them fits"
        if len(before) < LIMIT:
            found = split(function, code, args, before)
        if isinstance(found, str):
            self.left_alone[code] = found
            return None
        self.entries.append(found)
        return found.guard, found.replacement, self.callback


def compile(function: Callable) -> Callable:
    """`function`, or a module, compiled when it is called.  Its `compiler` shows what was done."""
    compiler = Compiler()
    compiled = frame_hook.enabled(function, compiler.callback)

    def call(*args: Any, **kwargs: Any) -> Any:
        return compiled(*args, **kwargs)

    call.compiler = compiler  # type: ignore[attr-defined]
    return call
