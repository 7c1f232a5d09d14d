"""A loop body that reads a buffer's elements from somewhere else.

In:   for names of buffers: where the element at an index lies.  Out: a `with` block, in which the
      installed handler loads it from there.

    with read_elsewhere({"b": lambda index: ("columns", ...)}):
        value = data.inner_fn(index, rindex)
"""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any, TypeAlias

import sympy

from .. import ops as loop_ops
from ..ops import Value, set_handler

# the index of an element -> (buffer, index), or None: where it was
Place: TypeAlias = Callable[[sympy.Expr], "tuple[str, sympy.Expr] | None"]


class Elsewhere:
    """The installed handler with other loads."""

    def __init__(self, own: Any, places: Mapping[str, Place]) -> None:
        self.own, self.places = own, places

    def __getattr__(self, name: str) -> Any:
        return getattr(self.own, name)

    def load(self, name: str, index: sympy.Expr) -> Value:
        place = self.places[name](index) if name in self.places else None
        return self.own.load(*(place or (name, index)))


def read_elsewhere(places: Mapping[str, Place]) -> AbstractContextManager:
    return set_handler(Elsewhere(loop_ops._handler.value, places))
