"""Python modules (`import math`) and the globals of one.

In:   reads and writes of names.
Out:  values, guarded by name.  What torch and the standard library have under a name is one object,
      guarded by its identity (a function may be replaced: `F.relu = mine`).  Writes are kept, and
      replayed after the graph.

    >>> output.globals_of(function.globals).load(tx, "CONFIG")

Mirrors torch/_dynamo/variables/misc.py (PythonModuleVariable) and symbolic_convert.py
(LOAD_GLOBAL).
"""

from __future__ import annotations

import sys
import types

from ..errors import Break
from .base import Codegen, Frame, OutputGraph, RealVar, Variable, trusted
from .constant import ConstantVar

PACKAGE = __name__.partition(".")[0]


class PyModuleVar(RealVar):
    """A Python module (`import math`)."""

    def name(self) -> object:
        return self.value.__dict__.get("__name__")

    def getattr(self, tx: Frame, name: str) -> Variable:
        values, entries = self.value.__dict__, tx.output.globals_of(self.value.__dict__)
        if self.name() == PACKAGE:
            getattr(self.value, name, None)  # ours looks for a name when it is first used
        if trusted(self.name()):
            if name not in values:  # a program may set it later
                tx.output.guard_absent(entries.source, name)
            # A switch such as torch.backends.cudnn.enabled is a property of the module's class.
            if name in type(self.value).__dict__:
                value = tx.run_now(getattr, self.value, name)
                return tx.output.wrap(value, tx.output.tree.pinned(self.value).attr(name))
            if name not in values:
                return tx.output.wrap_pinned(tx.run_now(getattr, self.value, name))
        if name in values or name in entries.written:
            return entries.load(tx, name)
        is_plain = type(self.value) is types.ModuleType and "__getattr__" not in values
        if not is_plain or hasattr(types.ModuleType, name):
            raise Break("attribute", f"{self}.{name}, which is not among its globals")
        for missing in (name, "__getattr__"):
            tx.output.guard_absent(entries.source, missing)
        return tx.run_now(getattr, self.value, name)  # raises

    def setattr(self, tx: Frame, name: str, value: Variable) -> None:
        if type(self.value) is not types.ModuleType:  # torch.backends.cudnn: a switch, perhaps
            raise Break("attribute", f"{self}.{name} = ... of a {type(self.value).__name__}")
        tx.output.globals_of(self.value.__dict__).written[name] = value

    def __repr__(self) -> str:
        return f"module {self.name()}"


class GlobalsVar:
    """One module's globals: reads are guarded by name, writes are kept and replayed."""

    def __init__(self, values: dict, output: OutputGraph) -> None:
        self.values = values
        self.output = output
        self.written: dict[str, Variable] = {}
        self.cache: dict[str, Variable] = {}
        # Programs replace sys.stdout, sys.path, sys.argv...
        self.trusted = trusted(values.get("__name__")) and values is not vars(sys)
        builtins = values.get("__builtins__", __builtins__)  # the module, or its dictionary
        self.builtins = builtins if isinstance(builtins, dict) else vars(builtins)
        self.source = output.tree.pinned(values, "G_" + str(values.get("__name__", "")))

    def load(self, tx: Frame, name: str) -> Variable:
        found = self.written.get(name) or self.cache.get(name)
        if found is None:
            found = self.cache[name] = self._read(tx, name)
        return found

    def _read(self, tx: Frame, name: str) -> Variable:
        output = self.output
        if name in self.values:
            value, source = self.values[name], self.source.item(name)
            if not self.trusted:
                return output.wrap(value, source)
            output.guard_fixed(source, value)
            return output.wrap_pinned(value)
        builtins = output.tree.pinned(self.builtins, "builtins")
        if name not in self.builtins:
            output.guard_absent(self.source, name)
            output.guard_absent(builtins, name)
            tx.raise_(NameError, f"name {name!r} is not defined")
        output.guard(self.source, ("BUILTIN", name), "{pin} not in {0}", name)
        output.guard_fixed(builtins.item(name), self.builtins[name])
        return output.wrap_pinned(self.builtins[name])

    def replay(self, cg: Codegen) -> None:
        entries = RealVar(self.values)
        for name, value in reversed(self.written.items()):
            cg.commit_item(entries, ConstantVar(name), value)
