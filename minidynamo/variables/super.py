"""super(): attributes of an object, found behind one of its classes.

In:   a class and an object.   Out: what the classes after it define, bound to the object.

    >>> SuperVar(Child, instance).getattr(tx, "forward")

Mirrors torch/_dynamo/variables/misc.py (SuperVariable).
"""

from __future__ import annotations

import types
from typing import TYPE_CHECKING, Any

from ..exceptions import Break
from .base import Variable
from .classes import ClassVar
from .functions import BOUND, BoundMethodVar
from .lookup import METHODS, MISSING, lookup_in
from .objects import ObjectVar, method_of_class

if TYPE_CHECKING:
    from ..reconstruct import Codegen
    from ..symbolic_eval.evaluator import Frame


class SuperVar(Variable):
    """super(cls, obj)."""

    start: type
    object: Any
    cls = super

    def getattr(self, tx: Frame, name: str) -> Variable:
        bound_to_class = (
            isinstance(self.object, ClassVar) and self.start in self.object.value.__mro__
        )  # else in a metaclass
        mro = (self.object.value if bound_to_class else self.object.python_type()).__mro__
        owner, found = lookup_in(mro[0], mro[mro.index(self.start) + 1 :], name)
        if found is MISSING:
            return tx.method_of(self, name)
        if name == "__class__":  # its own, not the object's
            return tx.output.wrap_pinned(super)
        if name == "__new__":
            return tx.output.wrap_pinned(
                found.__func__ if isinstance(found, staticmethod) else found
            )
        if not bound_to_class and isinstance(self.object, ObjectVar):
            if isinstance(found, property):
                return tx.output.wrap_pinned(found.fget).call(tx, [self.object], {})
            return self.object.class_attribute(tx, owner, found, name)
        instance, cls = (
            (None, self.object)
            if bound_to_class
            else (self.object, tx.output.wrap_pinned(self.object.python_type()))
        )
        if isinstance(found, types.ClassMethodDescriptorType):
            raise Break("class", f"super().{name}, a class method in C")
        if isinstance(found, METHODS):
            return method_of_class(tx, owner, found, name, instance, cls)
        return (
            tx.output.wrap_pinned(found)
            if instance is None
            else BoundMethodVar.of_descriptor(found, instance)
            if type(found) in BOUND
            else BoundMethodVar(tx.output.wrap_pinned(found), instance)
        )

    def reconstruct(self, cg: Codegen) -> None:
        cg.call_object(super, ClassVar(self.start), self.object)
