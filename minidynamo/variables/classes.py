"""Classes and modules, held by reference: what lies under a name; super().

In:   arguments or the name of an attribute.
Out:  an instance: the rules say what calling a class makes (`calls.call_class`); attributes, found
      as `type.__getattribute__` finds them, and guarded; of `super()` what the classes behind one
      define, bound to the object.
In:   reads and writes of names in a module (`import math`), and of its globals.
Out:  values, guarded by name.  What torch and the standard library have under a name is one object,
      guarded by its identity (a function may be replaced: `F.relu = mine`).  Writes are kept, and
      replayed after the graph.

    >>> ClassVar(Config).call(tx, [], {"hidden_size": ConstantVar(8)})      # an ObjectVar
    >>> SuperVar(Child, instance).getattr(tx, "forward")
    >>> output.globals_of(function.globals).load(tx, "CONFIG")

Mirrors torch/_dynamo/variables/user_defined.py (UserDefinedClassVariable), misc.py (SuperVariable,
PythonModuleVariable) and symbolic_convert.py (LOAD_GLOBAL).
"""

from __future__ import annotations

import sys
import types
from typing import Any

from ..errors import Break
from .base import (
    METHODS,
    MISSING,
    Args,
    Codegen,
    Frame,
    Named,
    OutputGraph,
    RealVar,
    Variable,
    can_change,
    is_programs,
    lookup,
    mro_of,
    trusted,
)
from .constant import ConstantVar
from .functions import BOUND, BoundMethodVar, bound_descriptor
from .objects import ObjectVar, method_of_class

OF_EVERY_CLASS = frozenset(
    """
    __name__ __qualname__ __module__ __mro__ __bases__ __doc__ __class__ __dict__ __subclasses__
    __flags__ __base__ mro
    """.split()
)  # these attributes are asked of `type`, and not of the bases


class ClassVar(RealVar):
    """A class.  Calling it makes an instance: `__new__`, `__init__`, traced."""

    def is_constant(self) -> bool:
        return True

    as_constant = RealVar.real

    def call(self, tx: Frame, args: Args, kwargs: Named) -> Variable:
        return tx.call_class(self.value, args, kwargs)

    def getattr(self, tx: Frame, name: str) -> Variable:
        cls = self.value
        if name in OF_EVERY_CLASS:
            return self.own_attribute(tx, name)
        self.refuse_own_lookup()
        owner, found = lookup(cls, name)
        if found is MISSING or isinstance(lookup(type(cls), name)[1], property):
            return self.of_metaclass(tx, name)
        if isinstance(found, METHODS):
            return method_of_class(tx, owner, found, name, None, self)
        if is_programs(lookup(type(found), "__get__")[1]):
            raise Break("attribute", f"the descriptor {cls.__name__}.{name}")
        if hasattr(type(found), "__get__"):
            return tx.fold(getattr, cls, name)
        return tx.output.wrap_class_attribute(owner, found, name)

    def refuse_own_operator(self, *names: str) -> None:
        """What a metaclass of the program's computes is not what it computes later."""
        for name in names:
            if is_programs(lookup(type(self.value), name)[1]):
                raise Break("class", f"{name} of the metaclass {type(self.value).__name__}")

    def refuse_own_lookup(self) -> None:
        kind = type(self.value)
        if kind is not type and isinstance(lookup(kind, "__getattribute__")[1], METHODS):
            raise Break("class", f"__getattribute__ of the metaclass {kind.__name__}")

    def of_metaclass(self, tx: Frame, name: str) -> Variable:
        """An attribute of the metaclass, of which methods get the class."""
        kind = type(self.value)
        owner, found = lookup(kind, name)
        if isinstance(found, types.FunctionType):
            return BoundMethodVar(tx.output.wrap_pinned(found), self)
        if found is MISSING and lookup(kind, "__getattr__")[1] is MISSING:
            text = f"type object '{self.value.__name__}' has no attribute '{name}'"
            tx.raise_(AttributeError, text)
        if found is not MISSING and not hasattr(type(found), "__get__"):
            return tx.output.wrap_class_attribute(owner, found, name)
        if not callable(found) or found is MISSING:
            raise Break("class", f"{self.value.__name__}.{name}, by its metaclass")
        return bound_descriptor(found, self)

    def truth(self, tx: Frame) -> bool:
        self.refuse_own_operator("__bool__", "__len__")
        return True

    def hash_key(self, tx: Frame) -> Any:
        self.refuse_own_operator("__hash__", "__eq__")
        return self.value

    def own_attribute(self, tx: Frame, name: str) -> Variable:
        """What `type` itself answers: a name, the bases, a docstring..."""
        cls = self.value
        if name == "__flags__":
            raise Break("attribute", "__flags__ of a class, into which Python writes at any time")
        mro_of(cls)  # guards it
        value = tx.run_now(getattr, cls, name)
        if can_change(cls) and (value is None or isinstance(value, (str, dict))):
            return tx.output.wrap(value, tx.output.tree.pinned(cls).attr(name))
        return tx.fold(getattr, cls, name)

    def getitem(self, tx: Frame, key: Variable) -> Variable:
        if lookup(type(self.value), "__getitem__")[1] is not MISSING:
            raise Break("class", f"an item of the class {self.value.__name__}")
        found = lookup(self.value, "__class_getitem__")[1]
        if found is MISSING or is_programs(found):
            return Variable.getitem(self, tx, key)
        return tx.fold(lambda: self.value[key.as_constant()])

    def __repr__(self) -> str:
        return f"the class {self.value.__qualname__}"


class SuperVar(Variable):
    """super(cls, obj)."""

    start: type
    object: Any
    cls = super

    def getattr(self, tx: Frame, name: str) -> Variable:
        # A class is bound as a class, unless `start` is its metaclass, or a base of that.
        bound_to_class = (
            isinstance(self.object, ClassVar) and self.start in self.object.value.__mro__
        )
        kind = self.object.value if bound_to_class else self.object.python_type()
        mro = kind.__mro__
        owner, found = lookup(mro[0], name, mro[mro.index(self.start) + 1 :])
        if found is MISSING or name == "__class__":  # its own, not the object's
            return tx.method_of(self, name)
        if name == "__new__":
            return tx.output.wrap_pinned(getattr(found, "__func__", found))
        if not bound_to_class and isinstance(self.object, ObjectVar):
            if isinstance(found, property):
                return tx.call_fixed(found.fget, self.object)
            return self.object.class_attribute(tx, owner, found, name)
        if isinstance(found, METHODS):
            instance = None if bound_to_class else self.object
            return method_of_class(tx, owner, found, name, instance, tx.output.wrap_pinned(kind))
        if not hasattr(type(found), "__get__"):
            return tx.output.wrap_class_attribute(owner, found, name)
        if bound_to_class or type(found) not in BOUND:
            raise Break("class", f"super().{name}, a descriptor")
        return bound_descriptor(found, self.object)

    def reconstruct(self, cg: Codegen) -> None:
        cg.call_object(super, ClassVar(self.start), self.object)


# ---- modules
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
