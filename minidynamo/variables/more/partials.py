"""functools.partial objects from outside.

In:   a real partial and its source.   Out: a PartialVar whose parts are read through the source.

    >>> wrap_partial(builder, functools.partial(f, 2.0), source).call(tx, [x], {})

Mirrors torch/_dynamo/variables/functions.py (FunctoolsPartialVariable).
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from ..functions import PartialVar
from ..registry import SHARED

if TYPE_CHECKING:
    from ...graph_capture import OutputGraph
    from ...sources import Source


@SHARED.rule(functools.partial)
def wrap_partial(builder: OutputGraph, value: Any, source: Source) -> PartialVar:
    """As many arguments, for the same names; the rest is guarded where it is used."""
    lengths = f"len({{0}}.args) == {len(value.args)} and [*{{0}}.keywords] == {{pin}}"
    builder.guard(source, "LENGTH", lengths, list(value.keywords))
    wrap = builder.wrap
    args = [wrap(a, source.attr("args").item(n)) for n, a in enumerate(value.args)]
    kwargs = {k: wrap(v, source.attr("keywords").item(k)) for k, v in value.keywords.items()}
    return PartialVar(wrap(value.func, source.attr("func")), args, kwargs, value, source=source)
