"""functools.partial objects.

In:   a real partial and its source.   Out: a PartialVar whose parts are read through the source.

    >>> wrap_partial(builder, functools.partial(f, 2.0), source).call(tx, [x], {})

Mirrors torch/_dynamo/variables/functions.py (FunctoolsPartialVariable).
"""

import functools
from typing import Any

from ..base import Args, Codegen, Frame, Named, OutputGraph, Source, Variable
from ..containers import TupleVar, named
from ..registry import SHARED
from .dictionaries import mapping


def new_partial(args: Any, kwargs: dict[str, Any]) -> functools.partial:
    return functools.partial(*args, **kwargs)


class PartialVar(Variable):
    """functools.partial."""

    function: Variable
    args: list[Variable]
    kwargs: dict[str, Variable]
    cls = functools.partial
    shared = True

    getattr = Variable.generic_getattr  # which refuses

    def call(self, tx: Frame, args: Args, kwargs: Named) -> Variable:
        return self.function.call(tx, [*self.args, *args], {**self.kwargs, **kwargs})

    def reconstruct(self, cg: Codegen) -> None:
        kwargs = functools.partial(mapping, cg, named(self.kwargs))
        cg.call_object(new_partial, TupleVar([self.function, *self.args]), kwargs)


@SHARED.rule(functools.partial)
def wrap_partial(builder: OutputGraph, value: Any, source: Source) -> PartialVar:
    """As many arguments, for the same names; the rest is guarded where it is used."""
    lengths = f"len({{0}}.args) == {len(value.args)} and [*{{0}}.keywords] == {{pin}}"
    builder.guard(source, "LENGTH", lengths, list(value.keywords))
    wrap = builder.wrap
    args = [wrap(a, source.attr("args").item(n)) for n, a in enumerate(value.args)]
    kwargs = {k: wrap(v, source.attr("keywords").item(k)) for k, v in value.keywords.items()}
    return PartialVar(wrap(value.func, source.attr("func")), args, kwargs, source=source)
