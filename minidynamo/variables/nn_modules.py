"""torch.nn.Module: parameters, buffers and submodules, and what calling a module runs.

In:   attribute reads and writes, calls.   Out: what `forward` gives, with the forward hooks.

    >>> ModuleVar(nn.Linear, value=layer, source=src).call(tx, [x], {})

Mirrors torch/_dynamo/variables/nn_module.py.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.modules.lazy import LazyModuleMixin

from ..exceptions import Break
from ..guards import MODULE_TABLES
from ..originals import NN_MODULE
from .base import Args, Frame, Named, OutputGraph, Source, Variable
from .constant import ConstantVar
from .containers import DictVar
from .lookup import MISSING, lookup
from .objects import ObjectVar, fields_of
from .registry import SHARED

CALLING = ("__call__", "_wrapped_call_impl", "_call_impl")  # what runs the hooks, then `forward`
HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


class ModuleVar(ObjectVar):
    """torch.nn.Module: parameters, buffers and submodules live in dicts of their own; calling runs
    `forward`."""

    def table(self, tx: Frame, name: str) -> DictVar:
        """The dictionary of this name, one of `MODULE_TABLES`."""
        return self.fields.get(tx, ConstantVar(name))

    def module_getattr(self, tx: Frame, name: str) -> Variable:
        """nn.Module.__getattr__."""
        for table in MODULE_TABLES:
            found = self.table(tx, table).get(tx, ConstantVar(name))
            if found is not None:
                return found
        tx.raise_(AttributeError, f"'{self.cls.__name__}' object has no attribute '{name}'")

    def generic_getattr(self, tx: Frame, name: str) -> Variable:
        # As the base class does it, but without raising the AttributeError that leads to
        # __getattr__: parameters and submodules are found there.
        if (
            lookup(self.cls, name)[1] is MISSING
            and lookup(self.cls, "__getattr__")[1] is NN_MODULE["__getattr__"]
            and self.fields.get(tx, ConstantVar(name)) is None
        ):
            return self.module_getattr(tx, name)
        return super().generic_getattr(tx, name)

    def calls_forward(self) -> bool:
        """Does a call of it run torch's code, and so the hooks and `forward`?"""
        return all(lookup(self.cls, name)[1] is NN_MODULE[name] for name in CALLING)

    def call(self, tx: Frame, args: Args, kwargs: Named) -> Variable:
        if not self.calls_forward():
            return super().call(tx, args, kwargs)
        tx.output.guard_no_global_hooks()
        if not self.has_hooks(tx):
            return self.run_forward(tx, args, kwargs)
        # torch's own code runs the hooks, traced by more/object_operations.py (else: a break)
        return super().call(tx, args, kwargs)

    def run_forward(self, tx: Frame, args: Args, kwargs: Named) -> Variable:
        return self.getattr(tx, "forward").call(tx, args, kwargs)

    def has_hooks(self, tx: Frame) -> bool:
        """Has the program registered hooks?  Those tables that are empty are guarded."""
        empty = [name for name in HOOKS if not self.value.__dict__[name]]
        for name in empty:
            tx.output.guard(self.fields.source.item(name), "NO_HOOKS", "not {0}")
        return len(empty) < len(HOOKS)


@SHARED.rule(test=lambda value: issubclass(type(value), torch.nn.Module), order=20)
def wrap_module(builder: OutputGraph, value: Any, source: Source) -> Variable:
    """A module.  One that another module holds, or of which each call brings another, is guarded by
    its type alone: whatever is read of it is guarded, and one in its place of which all that holds
    is as good."""
    kind = type(value)
    if issubclass(kind, LazyModuleMixin):
        reason = f"the first call of a {kind.__name__} gives it its parameters"
        raise Break("module", reason, "call the model once before it is compiled")
    inner = source.base is not None and source.base.key == "_modules"
    if inner or builder.policy.of_module(value, source):
        builder.guard(source, "TYPE", "type({0}) is {pin}", kind)
        if not inner:
            builder.of_any.add(source)
    else:
        # by its id: the entry is not to keep it alive
        builder.guard(source, "MODULE", f"id({{0}}) == {id(value)}")
        builder.modules.append(value)
    return ModuleVar(kind, value, fields_of(builder, value, source), source=source)
