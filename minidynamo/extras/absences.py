"""One guard for all the names that a dictionary must not have: modules are asked for many.

In:   the dictionaries and classes that a frame has asked, and the names that it did not find.
Out:  `x.__dict__.keys().isdisjoint(("_call_impl", "forward"))`, where no guard says which keys the
      dictionary has.
"""

from .extending import extends, noted
from .. import hooks
from ..graph_capture import OutputGraph
from ..guards import Guard, literal
from ..sources import Source


class Absent(dict[Source, dict[str, str]]):
    """Source of a dictionary -> {name that must stay absent: line that asked}."""


@extends(OutputGraph)
def guard_absent(output: OutputGraph, source: Source, name: str) -> None:
    noted(output, Absent).setdefault(source, {}).setdefault(name, output.line())


class Undefined(dict[type, set[str]]):
    """Class -> names that it must not define."""


@extends(OutputGraph)
def guard_undefined(output: OutputGraph, cls: type, name: str) -> None:
    noted(output, Undefined).setdefault(cls, set()).add(name)


@hooks.GUARDS.append
def guard_absences(output: OutputGraph) -> None:
    for cls, undefined in noted(output, Undefined).items():
        check = f"{{0}}.__dict__.keys().isdisjoint({literal(tuple(sorted(undefined)))})"
        output.guard(output.tree.pinned(cls), "ABSENT", check)
    for source, names in noted(output, Absent).items():
        if "KEYS" not in source.guards:
            check = f"{{0}}.keys().isdisjoint({literal(tuple(sorted(names)))})"
            line = next(iter(names.values()))
            source.guards["ABSENT"] = Guard("ABSENT", source, check, {}, line)
