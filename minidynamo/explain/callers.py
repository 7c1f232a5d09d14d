"""Which line of the user's own program called a compiled frame.

In:   Python's stack, when a frame is about to be evaluated symbolically.
Out:  `caller_of(record)`, the innermost line in a file of the user: a script, a cell of a
      notebook, a module outside of site-packages.

    >>> caller_of(minidynamo.records.frames[-1])
    ('/home/me/train.py', 31)

The page opens there: a compiled model of a library is called by a program that nobody compiled.
"""

import functools
import linecache
import os
import sys
import sysconfig
import types
import weakref
from typing import Any

import torch

import miniinductor
from miniinductor.options import listen

from ..records import FrameRecord

HOMES = [sysconfig.get_paths()[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")]
OURS = [os.path.dirname(os.path.dirname(__file__)), os.path.dirname(miniinductor.__file__)]
FOLDERS = tuple(os.path.join(each, "") for each in [*HOMES, *OURS, os.path.dirname(torch.__file__)])
INSTALLED = ("/site-packages/", "/dist-packages/")
OWN, LIBRARY, OPTIMIZER = range(3)  # in which order files and frames are shown

Call = tuple[str, int]
CALLERS: "weakref.WeakKeyDictionary[FrameRecord, Call]" = weakref.WeakKeyDictionary()


@functools.cache
def rank_of(path: str) -> int:
    """OWN, LIBRARY or OPTIMIZER, of a file."""
    plain = path.replace("\\", "/")
    if "torch/optim/" in plain:
        return OPTIMIZER
    is_written = not path.startswith("<frozen") and bool(linecache.getlines(path))
    is_library = path.startswith(FOLDERS) or any(part in plain for part in INSTALLED)
    return OWN if is_written and not is_library else LIBRARY


def caller_of(record: FrameRecord) -> Call | None:
    """(file, line); None where a library alone led to the frame."""
    return CALLERS.get(record)


def note_caller(what: str, record: Any, root: Any) -> None:
    """Before a frame is evaluated: the user's first frame below the one that is compiled."""
    below: types.FrameType | None = sys._getframe(1) if what == "evaluate" else None
    while below is not None:
        code = below.f_code
        if code is not record.code and rank_of(code.co_filename) == OWN:
            CALLERS[record] = code.co_filename, below.f_lineno
            return
        below = below.f_back


listen(note_caller)
