"""id(): the address of an object as a number; the classes below a class.

    names = {id(parameter): name for name, parameter in model.named_parameters()}

In, out: see `symbolic_eval.registry`.  Of what the entry holds, or guards by its identity anyway,
the number is a constant.  Of a tensor that is an argument it differs from call to call, as it does
of an object that the frame makes: such numbers may be compared with each other, and kept in sets
and as keys.
Mirrors torch/_dynamo/variables/builtin.py (`call_id`).
"""

from __future__ import annotations

from typing import Any

import torch

from ..exceptions import Break
from ..symbolic_eval.operators import comparison
from ..symbolic_eval.registry import rule
from ..variables.base import Codegen, Frame, Variable
from ..variables.classes import ClassVar
from ..variables.constant import ConstantVar
from ..variables.functions import FunctionVar
from ..variables.modules import PyModuleVar
from ..variables.more.asked_identity import note_asked
from ..variables.objects import ObjectVar
from ..variables.tensor import TensorVar


class Ids(dict[type, set[str]]):
    """Types of the objects that were asked -> "constant" and "key": what their numbers became."""


def note(tx: Frame, value: Variable, became: str) -> None:
    """A constant and a key may be numbers of one object, where neither knows of the other."""
    known = tx.output.noted(Ids).setdefault(value.python_type(), set())
    known.add(became)
    if len(known) > 1:
        raise Break("hash", f"the id of {value} beside those of objects that the entry holds")


class IdVar(Variable):
    """id() of an object that is another one in each call."""

    of: Variable
    cls = int

    def hash_key(self, tx: Frame) -> Any:
        note(tx, self.of, "key")
        note_asked(tx, self.of)
        return "id", id(self.of.identity())

    def reconstruct(self, cg: Codegen) -> None:
        cg.call_object(id, self.of)


@comparison(IdVar)
def _compare(tx: Frame, symbol: str, a: Any, b: Any) -> Variable | None:
    if symbol not in ("==", "!=") or type(a) is not IdVar or type(b) is not IdVar:
        return None
    return ConstantVar(tx.same(a.of, b.of) is (symbol == "=="))


@rule(id)
def _id(tx: Frame, value: Variable, /) -> Variable:
    found = fixed_object(tx, value)
    if found is None:
        return IdVar(value)
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
    if not isinstance(real, torch.nn.Module):
        return None
    tx.output.guard(source, "ID", f"id({{0}}) == {id(real)}")
    tx.output.modules.append(real)  # the entry goes with it
    return real
