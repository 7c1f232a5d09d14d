"""Writes to torch.nn.Modules, and slices of a ModuleList.

In:   `self.count = ...` in forward.   Out: the write, kept for replay; a break for parameters.

    >>> module.setattr(tx, "count", ConstantVar(1))
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from ...exceptions import Break
from ...originals import NN_MODULE
from ..base import Variable, adds_to
from ..constant import ConstantVar
from ..containers import TupleVar
from ..lookup import lookup
from ..nn_modules import ModuleVar
from ..objects import ObjectVar
from . import object_operations  # noqa: F401  (modules are objects)

if TYPE_CHECKING:
    from ...graph_capture import OutputGraph
    from ...reconstruct import Codegen
    from ...sources import Source
    from ...symbolic_eval.evaluator import Frame


class ModuleListVar(TupleVar):
    """A slice of a ModuleList, made in this frame: walked, indexed, measured."""

    __slots__ = ()

    def is_constant(self) -> bool:
        return False

    argument = Variable.argument

    def getitem(self, tx: Frame, key: Variable) -> Variable:
        found = self.index_of(tx, key)
        return (
            ModuleListVar(self.items[found], self.cls)
            if isinstance(found, slice)
            else super().getitem(tx, key)
        )

    def reconstruct(self, cg: Codegen) -> None:
        cg.call_object(torch.nn.ModuleList, TupleVar(self.items))


@adds_to(ModuleVar)
def getitem(self: ModuleVar, tx: Frame, key: Variable) -> Variable:
    if (
        self.cls is torch.nn.ModuleList
        and key.is_constant()
        and isinstance(key.as_constant(), slice)
    ):
        children = [value for _, value in self.table(tx, "_modules").pairs(tx)]
        return ModuleListVar(children[key.as_constant()], torch.nn.ModuleList)
    return ObjectVar.getitem(self, tx, key)


@adds_to(ModuleVar, "setattr")
def set_attribute(self: ModuleVar, tx: Frame, name: str, value: Variable) -> None:
    setter = lookup(self.cls, "__setattr__")[1]
    if setter is NN_MODULE["__setattr__"]:
        module_setattr(self, tx, name, value)
    else:
        ObjectVar.setattr(self, tx, name, value)


def as_input(output: OutputGraph, source: Source) -> None:
    """The tensor at `source` is replaced while tracing: it must be a placeholder, not part of the
    graph's state."""
    if source.name() not in output.input_sources:
        output.input_sources.add(source.name())
        raise Break("restart", "a buffer is replaced in forward")


@adds_to(ModuleVar)
def module_setattr(self: ModuleVar, tx: Frame, name: str, value: Variable) -> None:
    """nn.Module.__setattr__, where it only stores."""
    kind = value.python_type()
    if issubclass(kind, (torch.nn.Parameter, torch.nn.Module)):
        raise Break(
            "module",
            f"assigning a {kind.__name__} to self.{name} in forward",
            "assign it in __init__",
        )
    if name in self.table(tx, "_parameters").items or name in self.table(tx, "_modules").items:
        raise Break("module", f"replacing the parameter or submodule self.{name} in forward")
    buffers = self.table(tx, "_buffers")
    if name in buffers.items:
        as_input(tx.output, buffers.source.item(name))
        buffers.store(tx, ConstantVar(name), value)
    else:
        self.generic_setattr(tx, name, value)
