"""A container that contains itself cannot be rebuilt: its frame runs as plain Python.

    rows = [x]
    rows.append(rows)
    print("a graph break")

Without this file such a frame is given up once Python's recursion limit is reached.
"""

from .extending import extends, noted
from ..exceptions import SkipFrame
from ..reconstruct import Codegen
from ..variables.base import Variable

plain_rebuild = Codegen.rebuild


class Building(set[int]):
    """Ids of the containers that are being rebuilt."""


@extends(Codegen)
def rebuild(cg: Codegen, variable: Variable) -> None:
    if not variable.shared:
        plain_rebuild(cg, variable)
        return
    building = noted(cg.output, Building)
    if id(variable) in building:
        raise SkipFrame("a container that contains itself")
    building.add(id(variable))
    plain_rebuild(cg, variable)
    building.discard(id(variable))
