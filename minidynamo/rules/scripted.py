"""Functions of torch.jit.script: the Python function that was given to it is traced.

    @torch.jit.script
    def gelu(x: torch.Tensor, scale: float): ...

    gelu(x, 2)          # traced as gelu(x, 2.0): TorchScript converts what its schema asks for

In, out: see `symbolic_eval.registry`.  What TorchScript does to the arguments is done here, too: a
whole number for a `float` becomes one, lists and dictionaries are copies of the caller's.  Modules
of TorchScript have no Python source that could be read; they stay graph breaks.
Mirrors torch/_dynamo/variables/functions.py (`_torchdynamo_inline`).
# PyTorch: arguments are not converted.
"""

from typing import Any

import torch

from ..exceptions import Break
from ..variables.base import Args, Frame, Named, OutputGraph, RealVar, Source, Variable
from ..variables.constant import ConstantVar
from ..variables.containers import DictVar, ListVar
from ..variables.registry import BY_VALUE, PINNED, SHARED, by_identity

SCRIPTED = torch._C.ScriptFunction
HINT = "compile the Python function instead"


class ScriptedVar(RealVar):
    """A function of TorchScript."""

    def call(self, tx: Frame, args: Args, kwargs: Named) -> Variable:
        function = getattr(self.value, "_torchdynamo_inline", None)
        if function is None:  # torch.jit.trace keeps none
            raise Break("TorchScript", f"{self} has no Python source", HINT)
        kinds = {argument.name: argument.type for argument in self.value.schema.arguments}
        positional = [converted(tx, kind, value) for kind, value in zip(kinds.values(), args)]
        positional += args[len(positional) :]
        named = {name: value for name, value in kwargs.items()}
        for name in kinds.keys() & kwargs.keys():
            named[name] = converted(tx, kinds[name], kwargs[name])
        return tx.output.wrap_pinned(function).call(tx, positional, named)

    def __repr__(self) -> str:
        return f"the TorchScript function {self.value.name}"


def converted(tx: Frame, kind: Any, value: Variable) -> Variable:
    """An argument as TorchScript passes it on to a parameter of this type."""
    name = kind.kind()
    if name == "OptionalType" and value.identity() is not None:
        return converted(tx, kind.getElementType(), value)
    if name == "FloatType" and issubclass(value.python_type(), int):
        return ConstantVar(float(value.as_constant()))
    if name == "ListType":
        element = kind.getElementType()
        return ListVar([converted(tx, element, item) for item in value.iterate(tx)])
    if name == "DictType" and isinstance(value, DictVar):
        return value.call_method(tx, "copy", [], {})
    if name in ("TupleType", "ComplexType", "InterfaceType", "ClassType"):
        raise Break("TorchScript", f"an argument of the type {kind} of TorchScript", HINT)
    return value


PINNED.rule(SCRIPTED)(lambda builder, value: ScriptedVar(value))
BY_VALUE.rule(SCRIPTED)(by_identity)  # what is read of it does not change


def is_scripted_module(value: Any) -> bool:
    kind = type(value)
    return issubclass(kind, torch.nn.Module) and kind.__module__.startswith("torch.jit")


@SHARED.rule(test=is_scripted_module, order=14)
def refuse_scripted_module(builder: OutputGraph, value: Any, source: Source) -> Variable:
    raise Break("module", "a TorchScript module is not traced")
