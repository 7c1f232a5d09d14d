"""super(): attributes of an object, found behind one of its classes.

In:   a class and an object.   Out: what the classes after it define, bound to the object.

    >>> SuperVar(Child, instance).getattr(tx, "forward")

Mirrors torch/_dynamo/variables/misc.py (SuperVariable).
"""

from typing import Any

from ...exceptions import Break
from ..base import Codegen, Frame, Variable
from ..classes import ClassVar
from ..lookup import METHODS, MISSING, lookup
from ..objects import ObjectVar, method_of_class
from ..functions import BOUND, bound_descriptor


class SuperVar(Variable):
    """super(cls, obj)."""

    start: type
    object: Any
    cls = super

    def getattr(self, tx: Frame, name: str) -> Variable:
        # Else to an instance, which may be a class whose metaclass this is about.
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
                return tx.output.wrap_pinned(found.fget).call(tx, [self.object], {})
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
