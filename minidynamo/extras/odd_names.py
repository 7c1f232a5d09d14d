"""Attributes whose names Python cannot spell as `x.name`: `setattr(config, "learning rate", 0.1)`.

In:   the source of an object, and a name.   Out: the source of the attribute.

    >>> tree.local("config").attr("learning rate").name()
    "getattr(config, 'learning rate')"
"""

import keyword

from .extending import extends
from ..sources import KINDS, Source


KINDS["getattr"] = "getattr({p}, {k!r})"


def is_attribute(name: str) -> bool:
    """Can Python spell `x.name`?  (It reads some letters as others, and keywords as keywords.)"""
    return name.isidentifier() and name.isascii() and not keyword.iskeyword(name)


@extends(Source)
def attr(source: Source, name: str) -> Source:
    return source.child("attr" if is_attribute(name) else "getattr", name)
