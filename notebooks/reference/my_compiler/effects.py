"""Chapter 07: how the function changed objects that existed before it ran.

The machine must not change the program's own objects while it evaluates a frame.  The evaluation
may stop early, and the compiled code must repeat the changes in every call.  So an `Outside` stands
for each object from outside: it stores what was written, and answers reads from that.  The compiled
code *replays* the final state, once, after the graph has run.

Every change goes through the `Journal`, which can undo it.  If the machine cannot capture a
function that it is inlining, it undoes what this function has changed so far.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .graph import Refused


class Outside:
    """An object that existed before the frame ran.  value: the object.  source: the expression
    that finds it.  items: its elements after the changes so far, once the program has read them.
    written: the new values of its attributes, by name."""

    def __init__(self, value: Any, source: str) -> None:
        self.value = value
        self.source = source
        self.items: Any = None
        self.written: dict[str, Any] = {}


class Journal:
    """undo: a function for each change, in the order of the changes.  changed: the
    objects that need a `replay`."""

    def __init__(self) -> None:
        self.undo: list[Callable[[], Any]] = []
        self.changed: list[Outside] = []

    def append(self, target: list, value: Any) -> None:
        """Append now; add a function to `undo` that removes the value again."""
        target.append(value)
        self.undo.append(target.pop)

    def set_item(self, target: Any, key: Any, value: Any) -> None:
        """Set one element of a list or dict now; add a function to `undo` that restores the old
        element, or removes the new key."""
        if isinstance(target, list) or key in target:
            before = target[key]
            self.undo.append(lambda: target.__setitem__(key, before))
        else:
            self.undo.append(lambda: target.pop(key))
        target[key] = value

    def set_attribute(self, target: Outside, name: str, value: Any) -> None:
        """Note the target, and set the element `name` of its `written`."""
        self.note(target)
        self.set_item(target.written, name, value)

    def note(self, target: Outside) -> None:
        """Append the target to `changed`, so that it is replayed; undoing removes it again."""
        self.changed.append(target)
        self.undo.append(self.changed.pop)

    def items_of(self, target: Any) -> Any:
        """The list or dict that a change of `target` must change.  A container that the frame has
        made is returned as it is.  An `Outside` is noted, and its `items` are returned; refused
        unless they are a list."""
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
    """Give the real object `found` the final state of `target`: the attributes in `written`, and
    the items of a list, if `items` is not None.  rebuild: symbolic value -> value."""
    for name, value in target.written.items():
        setattr(found, name, rebuild(value))
    if isinstance(found, list) and target.items is not None:
        found[:] = [rebuild(value) for value in target.items]
