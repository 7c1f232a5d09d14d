"""functools.partial objects.

In:   a real partial and its source.   Out: a PartialVar whose parts are read through the source.

    >>> wrap_partial(builder, functools.partial(f, 2.0), source).call(tx, [x], {})

Mirrors torch/_dynamo/variables/functions.py (FunctoolsPartialVariable).
"""

import functools
from typing import Any

from ..base import Args, Codegen, Frame, Named, OutputGraph, Source, Variable
from ..constant import ConstantVar
from ..containers import DictVar, TupleVar, named
from ..registry import SHARED
from .dictionaries import mapping


def new_partial(args: Any, kwargs: dict[str, Any]) -> functools.partial:
    return functools.partial(*args, **kwargs)


class PartialVar(Variable):
    """functools.partial; `value` is the real one that came from outside."""

    function: Variable
    args: list[Variable]
    kwargs: dict[str, Variable]
    value: Any
    cls = functools.partial
    shared = True

    def real(self) -> Any:
        return functools.partial(
            self.function.real(),
            *[a.real() for a in self.args],
            **{k: v.real() for k, v in self.kwargs.items()},
        )

    def getattr(self, tx: Frame, name: str) -> Variable:
        if name == "func":
            return self.function
        if name == "args":
            return TupleVar(list(self.args))
        if name == "keywords":
            return DictVar(named(self.kwargs))
        if self.value is not None:  # its __dict__ is made once somebody asks for it
            fields = tx.output.fields_of(self.value, self.source.instance_dict())
            if name == "__dict__":
                return fields
            own = fields.get(tx, ConstantVar(name))
            if own is not None:
                return own
        return super().getattr(tx, name)

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
    return PartialVar(wrap(value.func, source.attr("func")), args, kwargs, value, source=source)
