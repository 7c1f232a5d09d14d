"""Types as CPython's messages name them.

>>> type_text(int), type_text(collections.deque)
('int', 'collections.deque')
"""

from ..lookup import HEAP_TYPE

# Types of C that look like classes made in Python; but messages name their module, too.  The
# types themselves are coverage.
DOTTED: set[type] = set()


def type_text(cls: type) -> str:
    """A type as CPython's messages name it: those written in C with their module."""
    made_in_python = cls.__flags__ & HEAP_TYPE and "__module__" in cls.__dict__
    if cls.__module__ == "builtins" or made_in_python and cls not in DOTTED:
        return cls.__name__
    return f"{cls.__module__}.{cls.__name__}"
