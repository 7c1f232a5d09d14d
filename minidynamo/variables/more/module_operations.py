"""Writes to torch.nn.Modules, slices of a ModuleList; attributes of Python modules.

In:   `self.count = ...` in forward.   Out: the write, kept for replay; a break for parameters.

    >>> module.setattr(tx, "count", ConstantVar(1))
"""

import types
from typing import Any

import torch
import torch.fx

from ...extras.extending import extends
from ...exceptions import Break, Restart
from ...originals import NN_MODULE
from ..base import Codegen, Frame, Source, Variable, current
from ..constant import ConstantVar
from ..containers import DictVar, TupleVar
from ..lookup import MISSING, lookup, trusted
from ..modules import PyModuleVar
from ..nn_modules import HOOKS, ModuleVar
from ..objects import ObjectVar


class ModuleListVar(TupleVar):
    """A slice of a ModuleList, made in this frame: walked, indexed, measured."""

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


plain_calls_forward = ModuleVar.calls_forward
plain_module_getattr = PyModuleVar.getattr
plain_fallback: Any = ObjectVar.fallback_getattr
plain_has_hooks = ModuleVar.has_hooks
plain_table: Any = ModuleVar.table


@extends(ModuleVar)
class ModuleOperations(ModuleVar):
    def fallback_getattr(self, tx: Frame, name: str, fallback: Any) -> Variable:
        if fallback is not NN_MODULE["__getattr__"]:
            return plain_fallback(self, tx, name, fallback)
        return self.module_getattr(tx, name)  # without a guard on torch's function

    def table(self, tx: Frame, name: str) -> DictVar:
        """A program may have taken it away, or put something else in its place."""
        found = plain_table(self, tx, name)
        if found is None:
            return DictVar({})
        if not isinstance(found, DictVar):
            raise Break("module", f"a {self.cls.__name__} whose {name} is no dictionary")
        return found

    def has_hooks(self, tx: Frame) -> bool:
        """Refuses hooks that torch's own code would not run here, and tables that are not what
        torch has made."""
        for name in HOOKS:
            if name not in self.fields.items:
                raise Break("module", f"a {self.cls.__name__} without {name}")
            if lookup(self.cls, name)[0] is not None:
                raise Break("module", f"{self.cls.__name__}.{name} is the program's own")
        if not plain_has_hooks(self, tx):
            return False
        if self.value._backward_hooks or self.value._backward_pre_hooks:
            raise Break("module", f"backward hooks of {self.cls.__name__}")
        always = "_forward_hooks_always_called"  # torch's code omits them while compiling
        if self.value.__dict__.get(always, True):
            raise Break("module", f"hooks of {self.cls.__name__} that are always called")
        tx.output.guard(self.fields.source.item(always), "NO_HOOKS", "not {0}")
        return True

    def calls_forward(self) -> bool:
        """The `__call__` of a torch.fx.GraphModule only makes errors readable."""
        rest = ("_wrapped_call_impl", "_call_impl")
        if any(self.fields.get(current(), ConstantVar(name)) for name in rest):
            return False  # the program has put its own on this one
        if not issubclass(self.cls, torch.fx.GraphModule):
            return plain_calls_forward(self)
        wrapped = lookup(self.cls, "_wrapped_call")[1]
        torchs = (
            getattr(lookup(self.cls, "__call__")[1], "__module__", "") == "torch.fx.graph_module"
        )
        same = all(lookup(self.cls, name)[1] is NN_MODULE[name] for name in rest)
        return torchs and same and getattr(wrapped, "cls_call", self) is None

    def getitem(self, tx: Frame, key: Variable) -> Variable:
        if (
            self.cls is torch.nn.ModuleList
            and key.is_constant()
            and isinstance(key.as_constant(), slice)
        ):
            children = [value for _, value in self.table(tx, "_modules").pairs(tx)]
            return ModuleListVar(children[key.as_constant()], torch.nn.ModuleList)
        return ObjectVar.getitem(self, tx, key)

    def setattr(self, tx: Frame, name: str, value: Variable) -> None:
        setter = lookup(self.cls, "__setattr__")[1]
        if setter is NN_MODULE["__setattr__"]:
            self.module_setattr(tx, name, value)
        else:
            ObjectVar.setattr(self, tx, name, value)

    def module_setattr(self, tx: Frame, name: str, value: Variable) -> None:
        """nn.Module.__setattr__, where it only stores."""
        kind = value.python_type()
        if issubclass(kind, torch.nn.Parameter):
            raise Break(
                "module",
                f"assigning a Parameter to self.{name} in forward",
                "assign it in __init__",
            )
        if name in self.table(tx, "_parameters").items or name in self.table(tx, "_modules").items:
            raise Break("module", f"replacing the parameter or submodule self.{name} in forward")
        if issubclass(kind, torch.nn.Module):
            torchs = tx.output.wrap_pinned(NN_MODULE["__setattr__"])
            tx.inline(torchs, [self, ConstantVar(name), value], {})
            return
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


@extends(PyModuleVar)
class PythonModules(PyModuleVar):
    def name(self) -> object:
        return self.value.__dict__.get("__name__")

    def getattr(self, tx: Frame, name: str) -> Variable:
        values = self.value.__dict__
        if not trusted(self.name()):
            return plain_module_getattr(self, tx, name)
        if name not in values:  # a program may set it later
            tx.output.guard_absent(tx.output.globals_of(values).source, name)
        # A switch such as torch.backends.cudnn.enabled is a property of the module's class.
        if name in type(self.value).__dict__:
            value = tx.run_now(getattr, self.value, name)
            return tx.output.wrap(value, tx.output.tree.pinned(self.value).attr(name))
        if name in values:
            return plain_module_getattr(self, tx, name)
        return tx.output.wrap_pinned(tx.run_now(getattr, self.value, name))

    def setattr(self, tx: Frame, name: str, value: Variable) -> None:
        if type(self.value) is not types.ModuleType:  # torch.backends.cudnn: a switch, perhaps
            raise Break("attribute", f"{self}.{name} = ... of a {type(self.value).__name__}")
        tx.output.globals_of(self.value.__dict__).written[name] = value

    def other(self, tx: Frame, name: str) -> Any:
        """What is not in the module's dictionary: asked of its class, then of its `__getattr__`."""
        output = tx.output
        if self.name() == __name__.partition(".")[0]:
            getattr(self.value, name, None)  # ours, which looks for a name when it is first used
            if name in self.value.__dict__:
                return self.getattr(tx, name)
        entries = output.tree.pinned(self.value.__dict__, f"G_{self.name()}")
        written = output.globals_of(self.value.__dict__).written
        if name in written:
            return written[name]
        output.guard_absent(entries, name)
        if lookup(type(self.value), name)[1] is not MISSING:
            value = tx.run_now(getattr, self.value, name)
            if name == "__dict__":
                return output.wrap_pinned(value)
            return output.wrap(value, output.tree.pinned(self.value).attr(name))
        if "__getattr__" in self.value.__dict__:
            function = output.wrap(self.value.__getattr__, entries.item("__getattr__"))
            return function.call(tx, [ConstantVar(name)], {})
        output.guard_absent(entries, "__getattr__")
        return tx.run_now(getattr, self.value, name)  # raises
