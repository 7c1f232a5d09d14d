"""Functions of torch.jit.script: the Python function that was given to it is traced.

    @torch.jit.script
    def gelu(x: torch.Tensor, scale: float): ...

    gelu(x, 2)          # a graph break: TorchScript makes a float of the number

In, out: see `symbolic_eval.registry`.  Arguments that TorchScript converts or copies are graph
breaks.
Mirrors torch/_dynamo/variables/functions.py (`_torchdynamo_inline`).
# PyTorch: arguments are not converted.
"""

from typing import Any

import torch

from ..exceptions import Break
from ..variables.base import Args, Frame, Named, RealVar, Variable
from ..variables.constant import ConstantVar
from ..variables.registry import BY_VALUE, PINNED, by_identity
from ..variables.tensor import TensorVar

SCRIPTED = torch._C.ScriptFunction
HINT = "compile the Python function instead"


class ScriptedVar(RealVar):
    """A function of TorchScript."""

    def call(self, tx: Frame, args: Args, kwargs: Named) -> Variable:
        function = getattr(self.value, "_torchdynamo_inline", None)
        if function is None:  # torch.jit.trace keeps none
            raise Break("TorchScript", f"{self} has no Python source", HINT)
        kinds = {argument.name: argument.type for argument in self.value.schema.arguments}
        for name, value in {**dict(zip(kinds, args)), **kwargs}.items():
            if not is_passed_on(kinds.get(name), value):
                raise Break("TorchScript", f"{name}, which TorchScript converts or copies", HINT)
        return tx.output.wrap_pinned(function).call(tx, args, kwargs)

    def __repr__(self) -> str:
        return f"the TorchScript function {self.value.name}"


def is_passed_on(kind: Any, value: Variable) -> bool:
    """Does a parameter of this type of TorchScript get the argument as it is?"""
    if isinstance(value, TensorVar):
        return True
    whole = kind is not None and kind.kind() == "FloatType" and value.python_type() is not float
    return not whole and isinstance(value, ConstantVar)


PINNED.rule(SCRIPTED)(lambda builder, value: ScriptedVar(value))
BY_VALUE.rule(SCRIPTED)(by_identity)  # what is read of it does not change
