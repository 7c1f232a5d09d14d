"""What few programs need where a compiled graph is called: results that share memory, inputs that
are written through `.data`, or on which no result depends.

In:   the inputs of a call.
Out:  what the program would give, with eager's history, versions, hooks.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ...hooks import RUNNERS, extends
from ...sizes.symbols import fill
from ..joint import Joint, Views, replay
from ..runtime import Halves


@dataclass
class Alias:
    """A result that shares memory with a primal, or with another result, but has a history of its
    own: a custom autograd function made it, from which autograd would not find its way by the views
    alone.  It is made inside of our autograd function, as there.

    result: its position among the results.  kind: "input" (at: a primal) or "computed" (at: a
    result, perhaps itself).
    """

    result: int
    kind: str
    at: int
    views: Views


@extends(Halves)
class CarefulHalves(Halves):
    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        views = [alias.views for alias in self.joint.aliases]
        self.views_of_aliases = fill(views, list(self.joint.symbols.values()))

    def function(self) -> Callable:
        apply, unreached = super().function(), self.joint.unreached

        def apply_detached(*primals: Any) -> Any:
            """`apply`, where the primals that no result depends on take no part in autograd."""
            given = list(primals)
            for place in unreached:
                given[place] = given[place].detach()
            return apply(*given)

        return apply_detached if unreached else apply

    def results(self, values: Sequence[Any], primals: Sequence[Any]) -> list[Any]:
        results, joint = super().results(values, primals), self.joint
        if joint.aliases:
            sizes = [primals[i] for i in joint.symbols]
            for alias, views in zip(joint.aliases, self.views_of_aliases(*sizes)):
                source = primals[alias.at] if alias.kind == "input" else results[alias.at]
                results[alias.result] = replay(source, views) if views else source.view_as(source)
        return results


def by_data(joint: Joint, run: Callable) -> Callable:
    """`run`, which is given `.data` of the inputs that the program writes through `.data` alone:
    autograd does not count such writes."""

    def call(*inputs: Any) -> Any:
        given = list(inputs)
        for place in joint.uncounted:
            given[place] = given[place].data
        return run(*given)

    return call if joint.uncounted else run


RUNNERS.append(by_data)
