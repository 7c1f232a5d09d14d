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
from typing import Any

from .base import Codegen, Frame, OutputGraph, RealVar, Variable, refusal
from .constant import ConstantVar
from .lookup import trusted
from .registry import BY_VALUE, PINNED, by_identity


class PyModuleVar(RealVar):
    """A Python module (`import math`)."""

    def getattr(self, tx: Frame, name: str) -> Variable:
        if name in self.value.__dict__:
            return tx.output.globals_of(self.value.__dict__).load(tx, name)
        return self.other(tx, name)

    other = refusal("attribute", "{self}.{1}, which is not among its globals")  # (tx, name)

    def __repr__(self) -> str:
        return f"module {self.value.__dict__.get('__name__')}"


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


def is_module(value: Any) -> bool:
    return issubclass(type(value), types.ModuleType)


BY_VALUE.rule(types.ModuleType)(by_identity)
PINNED.rule(test=is_module, order=20)(lambda builder, value: PyModuleVar(value))
