"""Shared objects of kernels are kept on disk, and several are compiled at a time.

In:   sources of kernels (runtime/build.py).  Out: their libraries, each compiled once in the life
      of its folder (disk.py), under a key of everything that it depends on.

    >>> len(cache_key("int f() { return 1; }", compiler_command()))     # of torch, processor, ...
    40

PyTorch: torch/_inductor/codecache.py.  Left out: remote caches.
"""

import ctypes
import os
from collections.abc import Sequence

import torch

from ..exceptions import CompilerError
from ..foreign import ours
from ..runtime.build import compiler_command, libraries_of, prelude, strip_comments
from .careful_compiler import Compiler, compiler_version, cpu_name, look_at
from .disk import digest, disk, remove_file

KERNELS_PER_FILE = 6


@libraries_of.replaced
def kept_libraries_of(texts: dict[str, str]) -> dict[str, ctypes.CDLL]:
    """The kernels in a few files, which are compiled side by side where they are not on disk."""
    look_at(texts)
    files = max(1, min(os.cpu_count() or 1, -(-len(texts) // KERNELS_PER_FILE)))
    parts = [[prelude(), *list(texts.values())[i::files]] for i in range(files)]
    libraries = build_shared_objects(["\n".join(part) for part in parts])
    return {name: libraries[number % files] for number, name in enumerate(texts)}


def build_shared_objects(sources: Sequence[str]) -> list[ctypes.CDLL]:
    """Load each source's shared object, compiling in parallel those that are not on disk."""
    command = compiler_command()
    names = [cache_key(source, command) + ".so" for source in sources]
    libraries = {name: load(name) for name in names}
    missing = {n: source for n, source in zip(names, sources) if libraries[n] is None}
    if missing:
        Compiler().make(missing)
    for name in missing:
        libraries[name] = load(name)
        if libraries[name] is None:
            raise CompilerError(f"the compiler made {name}, but it cannot be loaded")
    return [library for name in names if (library := libraries[name]) is not None]


def load(name: str) -> ctypes.CDLL | None:
    """The library, or None where there is none or it is damaged."""
    found = disk().find(name)
    if found is None:
        return None
    try:
        return ctypes.CDLL(found[0])
    except ours(OSError):
        remove_file(found[0])
        return None


def cache_key(source: str, command: list[str]) -> str:
    """A name for what `command` makes of `source` here: another torch, compiler, flag or processor
    gives another."""
    about = compiler_version(Compiler().words()), cpu_name()
    return digest(torch.__version__, *command, *about, strip_comments(source))
