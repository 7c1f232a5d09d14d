"""`id(a)`.

In, out: see `symbolic_eval.registry`.

    names = {id(parameter): name for name, parameter in model.named_parameters()}

id() of what the entry holds, or guards by its identity anyway, is a constant, and so is that of an
object from outside, with a guard on the number.  Of a tensor that is an argument it differs from
call to call, as it does of an object that the frame makes: such numbers may be compared with each
other.  As keys, and beside numbers from outside, which may be ids, they are graph breaks.
Mirrors torch/_dynamo/variables/builtin.py (`call_id`).
"""

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
from ..variables.objects import ObjectVar
from ..variables.symbolic import SymVar
from ..variables.tensor import TensorVar


# --- id(a) ----------------------------------------------------------------------------------------
class IdVar(Variable):
    """id() of an object that is another one in each call."""

    of: Variable
    cls = int

    def reconstruct(self, cg: Codegen) -> None:
        cg.call_object(id, self.of)


@comparison(IdVar)
def _compare(tx: Frame, symbol: str, a: Any, b: Any) -> Variable | None:
    if symbol not in ("==", "!=") or type(a) is not IdVar or type(b) is not IdVar:
        if any(isinstance(value, (ConstantVar, SymVar)) for value in (a, b)):
            hint = "look the object up, and not its id"
            raise Break("hash", "id() of an argument beside numbers from outside", hint)
        return None
    return ConstantVar(tx.same(a.of, b.of) is (symbol == "=="))


@rule(id)
def _id(tx: Frame, value: Variable, /) -> Variable:
    found = fixed_object(tx, value)
    return IdVar(value) if found is None else ConstantVar(id(found))


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
