"""How files of coverage add to the classes of the core, and what they write down in an attempt.

    @extends(ListVar)
    class ListMethods(ListVar):                 # its methods become methods of ListVar
        def method_sort(self, tx): ...

    noted(output, Steps).count += 1             # a `Steps()` of this attempt's own

The core neither imports nor needs this: a method of it that coverage extends does the plain thing.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from ..graph_capture import OutputGraph

Added = TypeVar("Added", bound=Any)
Note = TypeVar("Note")


def extends(cls: type, *names: str) -> Callable[[Added], Added]:
    """A decorator: `cls` gets the methods of the class below it; or the function below it, under
    these names, else under its own."""

    def add(added: Added) -> Added:
        if isinstance(added, type):
            methods = {n: method for n, method in vars(added).items() if not n.startswith("__")}
        else:
            methods = dict.fromkeys(names or [added.__name__], added)
        for name, method in methods.items():
            setattr(cls, name, method)
        return added

    return add


def notes_of(output: "OutputGraph") -> dict[type, Any]:
    """All that files of coverage have written down in this attempt."""
    return vars(output).setdefault("notes", {})


def noted(output: "OutputGraph", kind: type[Note]) -> Note:
    """What a file of coverage writes down in this attempt: one `kind()`, which it defines."""
    notes = notes_of(output)
    if kind not in notes:
        notes[kind] = kind()
    return notes[kind]
