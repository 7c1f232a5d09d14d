"""Loads the folders beside the core: each file in them registers what it adds.

    coverage.load()             # once, before the first graph is compiled
    coverage.absent             # files that were skipped, because one that they need is not there

The core imports nothing of these folders.  It owns registries (lowerings, passes, devices,
strategies of the C++ writer), and does the plain thing where nothing is registered: an eager
kernel, a graph break, less speed.  Delete a file, and everything that does not need it still works.
PyTorch: `torch/_inductor` registers lowerings by decorator, too, but imports its files by name.
"""

import contextlib
import functools
import gc
import importlib
import pkgutil
from collections.abc import Iterator

from .foreign import ours

FOLDERS = ("autograd.more", "passes", "lowerings", "gpu", "extras")
absent: list[str] = []  # dotted names
# The folders of both packages: minidynamo's are loaded first, and some need files of these.
known: list[str] = [f"miniinductor.{folder}" for folder in FOLDERS]


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


@without_collecting()
def load_folders(package: str, folders: tuple[str, ...]) -> None:
    """Import every module in these folders of a package, in the order of their names.

    A module that imports one which is not there is skipped, and named in `absent`.

    Raises ModuleNotFoundError if the missing module lies outside of the folders.
    """
    inside = [f"{package}.{folder}" for folder in folders]
    known.extend(inside)
    for folder in inside:
        for name in [folder, *modules_in(folder)]:
            try:
                importlib.import_module(name)
            except ours(ImportError) as error:
                if not names_absent_file(error):
                    raise
                absent.append(name)


def names_absent_file(error: ImportError) -> bool:
    """Did `import a.b`, or `from a import b`, not find a file of these folders?"""
    if isinstance(error, ModuleNotFoundError):
        return (error.name or "").startswith(tuple(known))
    return error.name in known


def modules_in(folder: str) -> list[str]:
    """The dotted names of a folder's modules; none if the folder is missing."""
    try:
        package = importlib.import_module(folder)
    except ModuleNotFoundError as error:
        if error.name != folder:
            raise
        return []
    return sorted(f"{folder}.{found.name}" for found in pkgutil.iter_modules(package.__path__))


@functools.cache
def load() -> None:
    """Load miniinductor's coverage, once."""
    load_folders("miniinductor", FOLDERS)
