"""What costs the user speed or graphs is said once.

    >>> tell("f", "f runs as plain Python")         # a warning of the logger `minidynamo`
    >>> tell("f", "f runs as plain Python")         # nothing

In:   what it is about, and the text.   Out: a warning, until `minidynamo.reset()` only one for
each.
"""

import logging
from typing import Any

from .. import hooks

LOG = logging.getLogger("minidynamo")
TOLD: set[Any] = set()  # what `tell` was told about


def tell(about: Any, text: str) -> None:
    """Warn, once for each `about`, of what costs the user speed or graphs."""
    if about not in TOLD:
        TOLD.add(about)
        LOG.warning(text)


hooks.RESETS.append(TOLD.clear)
