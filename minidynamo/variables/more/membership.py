"""`x in values`.

In:   a container and an item, as variables.   Out: the answer on the host.

    >>> DictVar(named({"a": x})).contains(tx, ConstantVar("a"))
    True
"""

from ...extras.extending import extends
from ...symbolic_eval.opcodes import pushes
from ..base import Frame, Lazy, Variable
from ..constant import ConstantVar
from ..containers import DictVar, DictViewVar


def in_one_of(container: Variable, tx: Frame, item: Variable) -> bool:
    """By walking the container, as Python does where a class has no `__contains__`."""
    return any(tx.same_or_equal(value, item) for value in container.iterate(tx))


@extends(Variable)
class Walked(Variable):
    contains = in_one_of


@extends(ConstantVar)
class InConstant(ConstantVar):
    def contains(self, tx: Frame, item: Variable) -> bool:
        return tx.fold(lambda: item.as_constant() in self.value).value


@extends(DictVar)
class InDict(DictVar):
    def contains(self, tx: Frame, key: Variable) -> bool:
        found = self.items.get(key.hash_key(tx))
        if found is not None and type(found[1]) is Lazy and self.source is not None:
            self.guard_key(tx, "PRESENT", key.hash_key(tx))
            return True
        return found is not None or self.get(tx, key) is not None


@extends(DictViewVar)
class InView(DictViewVar):
    def contains(self, tx: Frame, item: Variable) -> bool:
        return self.dict.contains(tx, item) if self.kind == "keys" else in_one_of(self, tx, item)


def contains(frame: Frame, item: Variable, container: Variable) -> bool:
    return container.contains(frame, item)


pushes(
    {
        "CONTAINS_OP": lambda frame, invert: ConstantVar(
            contains(frame, *frame.popn(2)) != bool(invert)
        )
    }
)
