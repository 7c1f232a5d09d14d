"""Chapter 07: what the function did to objects that live on.

While a frame is evaluated nothing may happen to the program's own objects: the evaluation may
break off, and the compiled code has to do it again in every call.  So an object from outside is
an `Outside`, which remembers what was written to it, and answers reads accordingly.  The compiled
code *replays* the final state, once, after the graph has run.

Every change goes through the `Journal`, which can take changes back: where a function that was
being inlined turns out not to be capturable, what it did so far must be undone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .graph import Refused


class Outside:
    """An object that existed before the frame ran.  value: itself.  source: where it is found.

    items: its elements as they are now, once they were looked at.  written: attributes."""

    def __init__(self, value: Any, source: str) -> None:
        self.value = value
        self.source = source
        self.items: Any = None
        self.written: dict[str, Any] = {}


class Journal:
    """Changes in the order in which they happened, each with what undoes it."""

    def __init__(self) -> None:
        self.undo: list[Callable[[], Any]] = []
        self.changed: list[Outside] = []

    def append(self, target: list, value: Any) -> None:
        """Append now; note what takes it away again."""
        target.append(value)
        self.undo.append(target.pop)

    def set_item(self, target: Any, key: Any, value: Any) -> None:
        """Set one element of a list or dict now; note what brings it back, or takes it away."""
        if isinstance(target, list) or key in target:
            before = target[key]
            self.undo.append(lambda: target.__setitem__(key, before))
        else:
            self.undo.append(lambda: target.pop(key))
        target[key] = value

    def set_attribute(self, target: Outside, name: str, value: Any) -> None:
        """Write it down in `written`, to be undone like an element; the target is noted."""
        self.note(target)
        self.set_item(target.written, name, value)

    def note(self, target: Outside) -> None:
        """It is about to be changed, and has to be replayed: so `changed`, until that is undone."""
        self.changed.append(target)
        self.undo.append(self.changed.pop)

    def items_of(self, target: Any) -> Any:
        """The list or dict to change for `target`, which may be one that the frame has made.  Of
        an `Outside` it is `items` (no list: Refused); that it changes is noted."""
        if not isinstance(target, Outside):
            return target
        if not isinstance(target.items, list):
            raise Refused(f"a change of {type(target.value).__name__}")
        self.note(target)
        return target.items

    def back_to(self, length: int) -> None:
        """Undo all but the first `length` changes."""
        while len(self.undo) > length:
            self.undo.pop()()


def replay(target: Outside, found: Any, rebuild: Callable[[Any], Any]) -> None:
    """Do to the object `found` what was done to `target`: its attributes; and of a list the items,
    if they were looked at.  rebuild: symbolic value -> value."""
    for name, value in target.written.items():
        setattr(found, name, rebuild(value))
    if isinstance(found, list) and target.items is not None:
        found[:] = [rebuild(value) for value in target.items]
