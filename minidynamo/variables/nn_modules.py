"""torch.nn.Module: parameters, buffers and submodules, and what calling a module runs.

In:   attribute reads and writes, calls; `self.layers[1:]` of a ModuleList.
Out:  what `forward` gives, with the forward hooks; writes, kept for replay; a break for parameters.
      Nodes that are made meanwhile know in which submodule they lie ("h.0.mlp"), by which
      explanations group a graph.

    >>> ModuleVar(nn.Linear, value=layer, source=src).call(tx, [x], {})

Mirrors torch/_dynamo/variables/nn_module.py.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.fx
from torch.nn.modules.lazy import LazyModuleMixin

from ..errors import Break, Restart
from ..guards.guards import MODULE_TABLES
from ..guards.originals import NN_MODULE
from .base import Args, Codegen, Frame, Named, OutputGraph, Source, Variable, current, lookup
from .constant import ConstantVar
from .dicts import DictVar, TupleVar
from .iterators import SequenceIterator, iterator_of
from .objects import ObjectVar, fields_of

CALLING = ("__call__", "_wrapped_call_impl", "_call_impl")  # what runs the hooks, then `forward`
HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


def module_path(source: Source | None) -> str:
    """ "transformer.h.0.attn" for self.transformer.h[0].attn."""
    parts = []
    while source is not None:
        table = source.base
        if source.kind == "item" and table is not None and table.kind == "item":
            if table.key == "_modules":
                parts.append(str(source.key))
        source = table
    return ".".join(reversed(parts))


def module_name(source: Any) -> str:
    """ "h.0.weight" for a parameter's source."""
    owner = source.base.base
    while owner is not None and owner.kind in ("dict", "raw_dict"):
        owner = owner.base
    path = module_path(owner)
    return f"{path}.{source.key}" if path else str(source.key)


class ModuleListVar(TupleVar):
    """A slice of a ModuleList, made in this frame: walked, indexed, measured."""

    def is_constant(self) -> bool:
        return False

    argument = Variable.argument

    def getitem(self, tx: Frame, key: Variable, /) -> Variable:
        found = self.index_of(tx, key)
        return (
            ModuleListVar(self.items[found], self.cls)
            if isinstance(found, slice)
            else super().getitem(tx, key)
        )

    def reconstruct(self, cg: Codegen) -> None:
        cg.call_object(torch.nn.ModuleList, TupleVar(self.items))


# A ModuleList is walked by an iterator of a dictionary, which cannot be set to an index.
iterator_of(ModuleListVar)(lambda tx, part: SequenceIterator(TupleVar(part.items)))


class ModuleVar(ObjectVar):
    """torch.nn.Module: parameters, buffers and submodules live in dicts of their own; calling runs
    `forward`."""

    def table(self, tx: Frame, name: str) -> DictVar:
        """The dictionary of this name, one of `MODULE_TABLES`.  A program may have taken it away,
        or put something else in its place."""
        found = self.fields.get(tx, ConstantVar(name))
        if isinstance(found, DictVar):
            return found
        raise Break("module", f"a {self.cls.__name__} whose {name} is no dictionary")

    def module_getattr(self, tx: Frame, name: str) -> Variable:
        """nn.Module.__getattr__."""
        for table in MODULE_TABLES:
            found = self.table(tx, table).get(tx, ConstantVar(name))
            if found is not None:
                return found
        tx.raise_(AttributeError, f"'{self.cls.__name__}' object has no attribute '{name}'")

    def fallback_getattr(self, tx: Frame, name: str, fallback: Any) -> Variable:
        if fallback is not NN_MODULE["__getattr__"]:
            return super().fallback_getattr(tx, name, fallback)
        return self.module_getattr(tx, name)  # without a guard on torch's function

    def getitem(self, tx: Frame, key: Variable) -> Variable:
        is_slice = key.is_constant() and isinstance(key.as_constant(), slice)
        if self.cls is not torch.nn.ModuleList or not is_slice:
            return super().getitem(tx, key)
        children = [value for _, value in self.table(tx, "_modules").pairs(tx)]
        return ModuleListVar(children[key.as_constant()], torch.nn.ModuleList)

    # ---- calling
    def calls_forward(self) -> bool:
        """Does a call of it run torch's code, and so the hooks and `forward`?"""
        if any(self.fields.get(current(), ConstantVar(name)) for name in CALLING[1:]):
            return False  # the program has put its own on this one
        call, *rest = [lookup(self.cls, name)[1] for name in CALLING]
        if getattr(call, "__module__", "") == "torch.fx.graph_module":  # makes errors readable
            wrapped = lookup(self.cls, "_wrapped_call")[1]
            call = getattr(wrapped, "cls_call", self) or NN_MODULE["__call__"]
        return [call, *rest] == [NN_MODULE[name] for name in CALLING]

    def call(self, tx: Frame, args: Args, kwargs: Named) -> Variable:
        if not self.calls_forward():
            return super().call(tx, args, kwargs)
        tx.output.guard_no_global_hooks()
        if self.has_hooks(tx):
            return super().call(tx, args, kwargs)  # torch's own code runs them
        paths = tx.output.module_paths
        paths.append(module_path(self.source))
        try:
            return self.getattr(tx, "forward").call(tx, args, kwargs)
        finally:
            paths.pop()

    def has_hooks(self, tx: Frame) -> bool:
        """Has the program registered hooks?  Those tables that are empty are guarded.  Refuses
        hooks that torch's own code would not run here."""
        if not self.fields.items.keys() >= {*HOOKS}:
            raise Break("module", f"a {self.cls.__name__} without the tables of its hooks")
        empty = [name for name in HOOKS if not self.value.__dict__[name]]
        for name in empty:
            tx.output.guard(self.fields.source.item(name), "NO_HOOKS", "not {0}")
        if len(empty) == len(HOOKS):
            return False
        if self.value._backward_hooks or self.value._backward_pre_hooks:
            raise Break("module", f"backward hooks of {self.cls.__name__}")
        always = "_forward_hooks_always_called"  # torch's code omits them while compiling
        if self.value.__dict__.get(always, True):
            raise Break("module", f"hooks of {self.cls.__name__} that are always called")
        tx.output.guard(self.fields.source.item(always), "NO_HOOKS", "not {0}")
        return True

    # ---- writing
    def setattr(self, tx: Frame, name: str, value: Variable) -> None:
        setter = lookup(self.cls, "__setattr__")[1]
        if setter is NN_MODULE["__setattr__"]:
            self.module_setattr(tx, name, value)
        else:
            super().setattr(tx, name, value)

    def module_setattr(self, tx: Frame, name: str, value: Variable) -> None:
        """nn.Module.__setattr__, where it only stores."""
        is_held = any(name in self.table(tx, t).items for t in ("_parameters", "_modules"))
        if is_held or issubclass(value.python_type(), (torch.nn.Parameter, torch.nn.Module)):
            reason = f"setting the parameter or submodule self.{name} in forward"
            raise Break("module", reason, "assign it in __init__")
        buffers = self.table(tx, "_buffers")
        if name in buffers.items:
            self.become_input(tx, buffers.source.item(name))
            buffers.store(tx, ConstantVar(name), value)
        else:
            self.generic_setattr(tx, name, value)

    def become_input(self, tx: Frame, source: Source) -> None:
        """The tensor at `source` is replaced while tracing: it must be a placeholder, not part of
        the graph's state."""
        inputs = tx.output.policy.replaced
        if source.name() not in inputs:
            inputs.add(source.name())
            raise Restart()


def has_state(module: torch.nn.Module) -> bool:
    """Does the module hold parameters, buffers or modules?  (A program may put anything there.)"""
    tables = [vars(module).get(name) for name in MODULE_TABLES]
    values = [value for table in tables if isinstance(table, dict) for value in table.values()]
    return any(value is not None for value in values)


def wrap_module(builder: OutputGraph, value: Any, source: Source) -> Variable:
    """A module.  One that another module holds, or that holds nothing itself (a loss, an
    activation: each call may make another), is guarded by its type alone: whatever is read of it is
    guarded, and one in its place of which all that holds is as good."""
    kind = type(value)
    if kind.__module__.startswith("torch.jit"):
        raise Break("object", f"a {kind.__name__} is not traced", "use it outside")
    if issubclass(kind, LazyModuleMixin):
        reason = f"the first call of a {kind.__name__} gives it its parameters"
        raise Break("module", reason, "call the model once before it is compiled")
    inner = source.base is not None and source.base.key == "_modules"
    if inner or builder.policy.fresh_modules or not has_state(value):
        builder.guard(source, "TYPE", "type({0}) is {pin}", kind)
    else:
        # by its id: the entry is not to keep it alive
        builder.guard(source, "MODULE", f"id({{0}}) == {id(value)}")
        builder.modules.append(value)
    return ModuleVar(kind, value, fields_of(builder, value, source), source=source)
