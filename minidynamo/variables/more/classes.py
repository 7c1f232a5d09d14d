"""Attributes of classes, and what operations on a class ask of its metaclass.

In:   a ClassVar and a name, or operands.   Out: what `type.__getattribute__` finds, guarded.

    >>> ClassVar(Config).getattr(tx, "hidden_size")
"""

import types
from collections.abc import Iterator
from typing import Any

from ...extras.extending import extends
from ...exceptions import Break
from ..base import Codegen, Frame, Variable
from ..classes import ClassVar
from ..constant import ConstantVar
from ..functions import BoundMethodVar
from ..lookup import METHODS, MISSING, WALKED, can_change, is_programs, lookup
from ..objects import is_inherited, method_of_class
from ..symbolic import SymVar
from ..tensor import TensorVar
from .functions import bound_descriptor
from .object_operations import truth_by_methods
from .writing_calls import commit_call

OF_EVERY_CLASS = frozenset(
    """
    __name__ __qualname__ __module__ __mro__ __bases__ __doc__ __class__ __dict__ __subclasses__
    __flags__ __base__ mro
    """.split()
)  # these attributes are asked of `type`, and not of the bases


@extends(ClassVar)
class ClassAttributes(ClassVar):
    def getattr(self, tx: Frame, name: str) -> Variable:
        cls = self.value
        if name in OF_EVERY_CLASS:
            return self.own_attribute(tx, name)
        self.refuse_own_lookup()
        owner, found = lookup(cls, name)
        meta_owner, meta = lookup(type(cls), name)
        if (
            meta is not MISSING
            and (found is MISSING or isinstance(meta, property))
            and type(cls) is not type
        ):
            if isinstance(meta, types.FunctionType):
                return BoundMethodVar(tx.output.wrap_pinned(meta), self)
            if isinstance(meta, property):
                return tx.output.wrap_pinned(meta.fget).call(tx, [self], {})
        if found is MISSING:
            if meta is not MISSING:
                if not hasattr(type(meta), "__get__"):
                    return tx.output.wrap_class_attribute(meta_owner, meta, name)
                if callable(meta):
                    return bound_descriptor(meta, self)
                return self.own_attribute(tx, name)
            return self.fallback(tx, name)
        if isinstance(found, METHODS):
            return method_of_class(tx, owner, found, name, None, self)
        if is_programs(lookup(type(found), "__get__")[1]):
            return self.got(tx, found)
        if hasattr(type(found), "__get__"):
            return tx.fold_pinned(getattr, cls, name)
        return tx.output.wrap_class_attribute(owner, found, name)

    def got(self, tx: Frame, found: Any) -> Variable:
        """What the `__get__` of a descriptor of the program's gives, for the class itself."""
        return tx.output.wrap_pinned(found).call_method(tx, "__get__", [tx.NONE, self], {})

    def refuse_own_operator(self, *names: str) -> None:
        """What a metaclass of the program's computes is not what it computes later."""
        for name in names:
            if is_programs(lookup(type(self.value), name)[1]):
                raise Break("class", f"{name} of the metaclass {type(self.value).__name__}")

    def refuse_own_lookup(self) -> None:
        kind = type(self.value)
        if kind is not type and isinstance(lookup(kind, "__getattribute__")[1], METHODS):
            raise Break("class", f"__getattribute__ of the metaclass {kind.__name__}")

    def fallback(self, tx: Frame, name: str) -> Variable:
        """What the metaclass's `__getattr__` makes of a name that nothing defines (Python 3.11's
        EnumType looks for a member)."""
        cls = self.value
        _, getter = lookup(type(cls), "__getattr__")
        if getter is MISSING:
            tx.raise_(AttributeError, f"type object '{cls.__name__}' has no attribute '{name}'")
        return tx.output.wrap_pinned(getter).call(tx, [self, ConstantVar(name)], {})

    def special(self, tx: Frame, name: str) -> Variable | None:
        """The special method that the metaclass defines, bound, or None."""
        owner, found = lookup(type(self.value), name)
        if found is MISSING or found is None:
            return None
        if not isinstance(found, types.FunctionType):
            raise Break("class", f"{name} of the metaclass {type(self.value).__name__}")
        return BoundMethodVar(tx.output.wrap_class_attribute(owner, found, name), self)

    def truth(self, tx: Frame) -> bool:
        return truth_by_methods(tx, self)

    def hash_key(self, tx: Frame) -> Any:
        self.refuse_own_operator("__hash__", "__eq__")
        return self.value

    def own_attribute(self, tx: Frame, name: str) -> Variable:
        """What `type` itself answers: a name, the bases, a docstring..."""
        cls = self.value
        if name == "__flags__":
            raise Break("attribute", "__flags__ of a class, into which Python writes at any time")
        if name == "__dict__" and id(cls) in tx.output.class_writes:
            raise Break("attribute", "the __dict__ of a class that this frame has written")
        WALKED[cls] = None  # guards the MRO
        value = tx.run_now(getattr, cls, name)
        if can_change(cls) and (value is None or isinstance(value, (str, dict))):
            return tx.output.wrap(value, tx.output.tree.pinned(cls).attr(name))
        return tx.fold_pinned(getattr, cls, name)

    def setattr(self, tx: Frame, name: str, value: Variable) -> None:
        """Of a plain value that the class itself has: `wrap_class_attribute` finds the new one."""
        cls, plain = self.value, (ConstantVar, TensorVar, SymVar)
        is_new = name not in vars(cls) or hasattr(type(vars(cls)[name]), "__get__")
        in_c = is_inherited(type(cls), "__setattr__")
        if is_new or not in_c or not can_change(cls) or not isinstance(value.realize(tx), plain):
            raise Break("attribute", f"setting {cls.__name__}.{name} on the class")
        if id(cls) not in tx.output.class_writes:
            tx.output.class_writes[id(cls)] = {}
            self.mutated = True
            tx.output.sourced.append(self)
        tx.output.class_writes[id(cls)][name] = value.realize(tx)

    def replay(self, cg: Codegen) -> None:
        for name, value in cg.output.class_writes[id(self.value)].items():
            commit_call(cg, type.__setattr__, self, ConstantVar(name), value)

    def by_metaclass(self, tx: Frame, name: str, *args: Variable) -> Variable | None:
        """What the metaclass's special method gives, if there is one."""
        method = self.special(tx, name)
        return None if method is None else method.call(tx, [*args], {})

    def getitem(self, tx: Frame, key: Variable) -> Variable:
        found = self.by_metaclass(tx, "__getitem__", key)
        if found is not None:
            return found
        is_class = isinstance(self.value, type)
        if is_class and is_programs(lookup(self.value, "__class_getitem__")[1]):
            return self.getattr(tx, "__class_getitem__").call(tx, [key], {})
        if hasattr(self.value, "__class_getitem__"):
            return tx.fold_pinned(lambda: self.value[key.as_constant()])
        return Variable.getitem(self, tx, key)

    def iterate(self, tx: Frame) -> Iterator[Variable]:
        made = self.by_metaclass(tx, "__iter__")
        if made is None:
            tx.raise_(TypeError, f"'{type(self.value).__name__}' object is not iterable")
        return made.iterate(tx)

    def contains(self, tx: Frame, item: Variable) -> bool:
        found = self.by_metaclass(tx, "__contains__", item)
        return Variable.contains(self, tx, item) if found is None else found.truth(tx)

    def length(self, tx: Frame) -> int:
        found = self.by_metaclass(tx, "__len__")
        return tx.fold(len, self.value).value if found is None else found.as_constant()
