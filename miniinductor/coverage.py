"""Loads the folders whose files register what they add: lowerings, passes, rules.

    coverage.load()             # once, before the first graph is compiled

PyTorch: `torch/_inductor` registers lowerings by decorator, too, but imports its files by name.
"""

import contextlib
import functools
import gc
import importlib
import pkgutil
from collections.abc import Iterator

FOLDERS = ("passes", "lowerings", "gpu", "extras")


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
    """Import every module in these folders of a package, in the order of their names."""
    for folder in folders:
        home = importlib.import_module(f"{package}.{folder}")
        for name in sorted(found.name for found in pkgutil.iter_modules(home.__path__)):
            importlib.import_module(f"{home.__name__}.{name}")


@functools.cache
def load() -> None:
    """Load miniinductor's folders, once."""
    load_folders("miniinductor", FOLDERS)
