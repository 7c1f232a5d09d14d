"""Floats that change from call to call (a scheduler's learning rate): tensors in the graph.

In:   a float at a source that had another value in an earlier call.
Out:  a FloatVar: a placeholder of the graph; `runtime.floats_as_tensors` makes the tensor at each
      call.

    >>> wrap_float(builder, 0.1, source)        # a constant, guarded by its value, at first
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import torch

from ..constant import ConstantVar, argument_of, wrap_constant
from ..containers import SequenceVar
from ..registry import ARGUMENTS, BY_VALUE
from ..symbolic import Unpinned
from ..tensor import TensorVar

if TYPE_CHECKING:
    from ...graph_capture import OutputGraph
    from ...reconstruct import Codegen
    from ...sources import Source
    from ...symbolic_eval.evaluator import Frame
    from ..base import Variable


class FloatVar(Unpinned):
    """A float that changes from call to call (a scheduler's learning rate): a float for the
    program, a 0-d float64 tensor in the graph.

    Arithmetic with it stays in the graph.  Whatever needs its value (a branch, a constant argument)
    pins it: `pin` puts back the guards that make it a constant.  One that the program reads has a
    source; what follows from it has none.
    # PyTorch: torch.SymFloat, turned into tensors later (torch/fx/passes/_tensorify_python_scalars.py).
    """

    __slots__ = ("value", "tensor", "pin")
    cls = float

    def __init__(
        self, value: float, tensor: TensorVar, pin: Callable, source: Source | None = None
    ) -> None:
        self.source, self.mutated, self.value, self.tensor, self.pin = (
            source,
            False,
            value,
            tensor,
            pin,
        )

    def is_constant(self) -> bool:
        return True

    def as_constant(self) -> Any:
        self.pin()
        return self.value

    def argument(self, part: Any) -> Any:
        return argument_of(self.as_constant())

    def reconstruct(self, cg: Codegen) -> None:
        cg.load_const(self.as_constant())

    # ---- in the graph
    def beside(self, tx: Frame, others: Iterable[Variable]) -> Variable:
        """What to use where `others` are the call's other arguments.  A number takes the dtype of
        the tensors it meets; a 0-d tensor only does so beside floating tensors that have
        dimensions, and is cast beside others."""
        met = [
            t.fake
            for other in others
            for t in (other.iterate(tx) if isinstance(other, SequenceVar) else (other,))
            if isinstance(t, TensorVar)
        ]
        if any(t.dim() and (t.is_floating_point() or t.is_complex()) for t in met):
            return self.tensor
        dtype = functools.reduce(torch.promote_types, [torch.result_type(t, 1.0) for t in met])
        if dtype.itemsize == 2:  # eager multiplies in float32 and rounds once
            return ConstantVar(self.as_constant())
        return tx.output.call_graph(tx, "call_method", "to", [self.tensor, ConstantVar(dtype)], {})

    def combine(self, tx: Frame, operation: Any, *operands: Any) -> Variable:
        """A float from `operands`: FloatVars and ConstantVars of numbers."""
        floats = [v for v in operands if isinstance(v, FloatVar)]
        tensor: Any = tx.output.call_graph(
            tx,
            "call_function",
            operation,
            [v.tensor if isinstance(v, FloatVar) else v for v in operands],
            {},
        )
        return FloatVar(
            operation(*[v.value for v in operands]), tensor, lambda: [v.pin() for v in floats]
        )


ARITHMETIC = {
    "add",
    "sub",
    "mul",
    "div",
    "true_divide",
    "truediv",
    "iadd",
    "isub",
    "imul",
    "itruediv",
    "add_",
    "sub_",
    "mul_",
    "div_",
    "true_divide_",
    "_foreach_add",
    "_foreach_mul",
    "_foreach_div",
    "_foreach_add_",
    "_foreach_mul_",
    "_foreach_div_",
}


def with_tensors(tx: Frame, target: Any, args: Any, kwargs: Any) -> Any:
    """(args, kwargs) of a call in the graph where each FloatVar is a tensor, if the operation takes
    one there, or else a constant."""
    if not any(isinstance(value, FloatVar) for value in (*args, *kwargs.values())):
        return args, kwargs
    name = target if isinstance(target, str) else getattr(target, "__name__", "")
    alpha = kwargs.get("alpha")
    if (
        isinstance(alpha, FloatVar)
        and name.strip("_") in ("add", "sub", "foreach_add", "foreach_sub")
        and len(args) == 2
    ):
        product = (
            torch._foreach_mul if isinstance(args[1], SequenceVar) else operator.mul
        )  # x + alpha * y
        args, kwargs = (
            [args[0], tx.output.call_graph(tx, "call_function", product, [args[1], alpha], {})],
            {},
        )
    if name in ARITHMETIC and any(isinstance(a, (TensorVar, SequenceVar)) for a in args):
        args = [a.beside(tx, args) if isinstance(a, FloatVar) else a for a in args]
    constant = lambda v: ConstantVar(v.as_constant()) if isinstance(v, FloatVar) else v  # noqa: E731
    return [constant(a) for a in args], {k: constant(v) for k, v in kwargs.items()}


ARGUMENTS.append(with_tensors)


def _scaled(name: str, symbol: str) -> Callable:
    """addcmul, addcdiv: a `value` that is a tensor (what follows from an optimizer's step count) is
    multiplied in."""

    def method(self: TensorVar, tx: Frame, *args: Variable, **kwargs: Variable) -> Variable:
        value = kwargs.get("value")
        if isinstance(value, FloatVar):
            value = value.beside(tx, args)
        if not isinstance(value, TensorVar):
            return tx.output.call_graph(tx, "call_method", name, [self, *args], kwargs)
        change = tx.binary(symbol, tx.binary("*", value, args[0]), args[1])
        return self.call_method(tx, name.replace("cmul", "").replace("cdiv", ""), [change], {})

    return method


for _name, _symbol in (("addcmul", "*"), ("addcdiv", "/")):
    for _method in (_name, _name + "_"):
        setattr(TensorVar, f"method_{_method}", _scaled(_method, _symbol))


@BY_VALUE.rule(float)
def wrap_float(builder: OutputGraph, value: Any, source: Source) -> Variable:
    """In the place of the core's rule, which takes every float as a constant."""
    if not builder.floats or source.name() not in builder.floats:
        return wrap_constant(builder, value, source)
    if source not in builder.float_inputs:
        builder.guard(source, "FLOAT", "type({0}) is float")
        real = torch.tensor(value, dtype=torch.float64)
        fake = builder.fake_of(real)
        node = builder.add_input("placeholder", builder.unique_name(source.name()), fake)
        tensor = TensorVar(node, node.meta["example_value"], float, source, real)
        builder.inputs.append(tensor)
        pin = functools.partial(wrap_constant, builder, value, source)
        builder.float_inputs[source] = FloatVar(value, tensor, pin, source)
    return builder.float_inputs[source]
