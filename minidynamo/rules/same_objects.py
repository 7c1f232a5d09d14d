"""Whether two objects are one: `a is b`, `id(a)`, and what containers compare items by.

In:   two variables.
Out:  the answer on the host, guarded where other objects may lie at the same sources later.

    >>> tx.same(a, b), tx.same_or_equal(a, b)

    names = {id(parameter): name for name, parameter in model.named_parameters()}

id() of what the entry holds, or guards by its identity anyway, is a constant, and so is that of an
object from outside, with a guard on the number.  Of a tensor that is an argument it differs from
call to call, as it does of an object that the frame makes: such numbers may be compared with each
other, and kept in sets and as keys.  Beside numbers from outside, which may be ids, the graph
breaks: `x * scales[id(y)]`.
Mirrors torch/_dynamo/variables/builtin.py (`call_id`).
"""

from typing import Any

import torch

from ..extras.extending import noted
from .. import hooks
from ..exceptions import Break
from ..symbolic_eval.operators import comparison
from ..symbolic_eval.registry import rule
from ..variables.base import Codegen, Frame, Variable
from ..variables.classes import ClassVar
from ..variables.constant import ConstantVar
from ..variables.functions import FunctionVar
from ..variables.modules import PyModuleVar
from ..variables.more.asked_identity import note_key
from ..variables.objects import ObjectVar
from ..variables.symbolic import SymVar
from ..variables.tensor import TensorVar


# --- id(a) ----------------------------------------------------------------------------------------
class Ids(dict[type, set[str]]):
    """Types of the objects that were asked -> "constant" and "key": what their numbers became."""


def note(tx: Frame, value: Variable, became: str) -> None:
    """A constant and a key may be numbers of one object, where neither knows of the other."""
    known = noted(tx.output, Ids).setdefault(value.python_type(), set())
    known.add(became)
    if len(known) > 1:
        raise Break("hash", f"the id of {value} beside those of objects that the entry holds")


ADDRESSES = 1 << 20  # numbers above it may be ids


class IdKey(tuple):
    """The key of such a number; `value`: what it is now.  To meet that number breaks the graph."""

    value: int

    def __hash__(self) -> int:
        return hash(self.value)

    def __eq__(self, other: Any) -> bool:
        if type(other) is int and other == self.value:
            raise beside_numbers()
        return tuple.__eq__(self, other)


def beside_numbers(*where: Any) -> Break:
    hint = "look the object up, and not its id"
    return Break("hash", "id() of an argument beside numbers from outside", hint, *where)


class IdVar(Variable):
    """id() of an object that is another one in each call."""

    of: Variable
    made: tuple[Any, int]  # where the program was, and at which step of the root frame
    cls = int

    def hash_key(self, tx: Frame) -> Any:
        note(tx, self.of, "key")
        note_key(tx, self.of)
        noted(tx.output, IdKeys).append(self)
        of = self.of
        real = of.value if isinstance(of, TensorVar) and of.value is not None else of.identity()
        key = IdKey(("id", id(of.identity())))
        key.value = id(real)
        return key

    def reconstruct(self, cg: Codegen) -> None:
        cg.call_object(id, self.of)


class IdKeys(list[IdVar]):
    """Those that were keys in this attempt."""


def refuse_numbers(cg: Codegen) -> None:
    """A container from outside that holds numbers like ids may hold this one in another call."""
    keys = noted(cg.output, IdKeys)
    if keys and any(map(may_hold_ids, cg.output.sourced)):
        raise beside_numbers(*keys[0].made)


def may_hold_ids(variable: Variable) -> bool:
    items = getattr(variable, "items", None)
    if variable.source is None or not isinstance(items, (dict, list, tuple)):
        return False
    values = [*items, *getattr(variable, "real_keys", ())]
    numbers = [getattr(value, "value", value) for value in values]
    return any(type(number) is int and number > ADDRESSES for number in numbers)


hooks.AFTER_WRITES.append(refuse_numbers)


@comparison(IdVar)
def _compare(tx: Frame, symbol: str, a: Any, b: Any) -> Variable | None:
    if symbol not in ("==", "!=") or type(a) is not IdVar or type(b) is not IdVar:
        if any(isinstance(value, (ConstantVar, SymVar)) for value in (a, b)):
            raise beside_numbers()
        return None
    return ConstantVar(tx.same(a.of, b.of) is (symbol == "=="))


@rule(id)
def _id(tx: Frame, value: Variable, /) -> Variable:
    found = fixed_object(tx, value)
    if found is None:
        return IdVar(value, (tx.user_stack(), tx.output.root.group_step))
    note(tx, value, "constant")
    return ConstantVar(id(found))


def fixed_object(tx: Frame, value: Variable) -> Any:
    """The real object, if it is the same one in every call of this entry; else None."""
    if isinstance(value, (ClassVar, PyModuleVar)):
        return value.value
    if isinstance(value, FunctionVar):
        if value.fn is not None and value.source is not None:
            tx.output.guard(value.source, "ID", "{0} is {pin}", value.fn)
        return value.fn
    real = getattr(value, "value", None)
    if real is None or not isinstance(value, (ObjectVar, TensorVar)):
        return None
    source = value.source
    if source.kind == "pinned" or "ID" in source.guards:
        return real
    if isinstance(real, torch.nn.Module):
        tx.output.guard(source, "ID", f"id({{0}}) == {id(real)}")
        tx.output.modules.append(real)  # the entry goes with it
    elif isinstance(value, ObjectVar):  # another one may have the number later: the same answer
        tx.output.guard(source, "ADDRESS", f"id({{0}}) == {id(real)}")
    else:
        return None
    return real
