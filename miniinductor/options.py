"""Options: the `config` of both packages, and values that a block of the program sets.

In:   a module whose variables are options with their defaults.  Out: its `patch`, and a module to
      which no other name can be assigned: a typo would change nothing, in silence.

    patch = checked(__name__)               # the last line of a config.py

    >>> minidynamo.config.recompile_limt = 2
    Traceback (most recent call last):
    AttributeError: minidynamo.config has no option 'recompile_limt': did you mean recompile_limit?

Mirrors torch/utils/_config_module.py.

`Timed` records of both packages announce what happens; `explain` listens.

`Current` is a value that a `with` block sets for the thread it runs in: the handler, the graph
under construction, what is known of sizes.

    >>> handler = Current("none")
    >>> with handler.set("a handler"):
    ...     handler.value
    'a handler'
    >>> handler.value
    'none'
"""

import contextlib
import difflib
import sys
import threading
import time
import types
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any


class Options(types.ModuleType):
    """A module whose options are there already."""

    def __setattr__(self, name: str, value: Any) -> None:
        """Raises AttributeError for a name that is no option, see `check`."""
        if not name.startswith("__"):  # (those are Python's own: __file__, __loader__)
            check(self, name, value)
        super().__setattr__(name, value)


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """ ": did you mean fusion?" for a typo, or nothing."""
    near = difflib.get_close_matches(name, [*known], 1)
    return f": did you mean {near[0]}?" if near else ""


def check(module: types.ModuleType, name: str, value: Any) -> None:
    """Raises AttributeError if the module has no option of this name, TypeError if the option is a
    number (True and False are), and the value is not, ValueError if the option has words, and the
    value is none of them."""
    if name.startswith("_") or name not in vars(module):
        meant = did_you_mean(name, vars(module))
        raise AttributeError(f"{module.__name__} has no option {name!r}{meant}")
    words = vars(module).get("_WORDS", {}).get(name, (value,))
    if isinstance(vars(module)[name], (int, float)) and not isinstance(value, (int, float)):
        raise TypeError(f"{module.__name__}.{name} is a number or a bool, not {value!r}")
    if value not in words:
        raise ValueError(f"{module.__name__}.{name} is {' or '.join(words)}, not {value!r}")


def checked(name: str) -> Callable[..., AbstractContextManager[None]]:
    """Make the module of this name one of options; its `patch`."""
    module = sys.modules[name]
    module.__class__ = Options

    @contextmanager
    def patch(**changes: Any) -> Iterator[None]:
        """Set options for the block.  What is no option raises, see `check`."""
        for changed, value in changes.items():
            check(module, changed, value)
        before = {changed: getattr(module, changed) for changed in changes}
        vars(module).update(changes)
        try:
            yield
        finally:
            vars(module).update(before)

    return patch


class Current(threading.local):
    def __init__(self, value: Any = None) -> None:
        self.value = value  # what every thread begins with

    @contextlib.contextmanager
    def set(self, value: Any) -> Iterator[Any]:
        before, self.value = self.value, value
        try:
            yield value
        finally:
            self.value = before


Listener = Callable[[str, Any, Any], None]  # (what happens, the record of what, and some more)
LISTENERS: list[Listener] = []


def listen(listener: Listener) -> None:
    """Call `listener` for each announcement from now on."""
    LISTENERS.append(listener)


def announce(what: str, record: Any, more: Any = None) -> None:
    for listener in LISTENERS:
        listener(what, record, more)


class Timed:
    """A record of something that is compiled in stages."""

    times: dict[str, float]  # stage -> seconds

    @contextmanager
    def timed(self, stage: str) -> Iterator[None]:
        announce("begin", self, stage)
        start = time.perf_counter()
        try:
            yield
        finally:
            self.times[stage] = self.times.get(stage, 0.0) + time.perf_counter() - start
            announce("end", self, stage)
