"""Floats that change from call to call (a scheduler's learning rate): tensors in the graph.

In:   a float at a source that had another value in an earlier call.
Out:  a FloatVar: a placeholder of the graph; `floats_as_tensors` makes the tensor at each call.

    >>> wrap_float(builder, 0.1, source)        # a constant, guarded by its value, at first
"""

from __future__ import annotations

import functools
import operator
import types
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import torch

from ... import hooks
from ..base import Codegen, Frame, OutputGraph, Source, Variable
from ..constant import ConstantVar, argument_of, wrap_constant
from ..containers import SequenceVar
from ..registry import BY_VALUE
from ..symbolic import Unpinned
from ..tensor import TensorVar


if TYPE_CHECKING:
    from ...conversion import Conversion
    from ...convert_frame import FrameCompiler
    from ...guards import Guard
    from ...symbolic_eval.evaluator import RootFrame


class FloatVar(Unpinned):
    """A float that changes from call to call (a scheduler's learning rate): a float for the
    program, a 0-d float64 tensor in the graph.

    Arithmetic with it stays in the graph.  Whatever needs its value (a branch, a constant argument)
    pins it: `pin` puts back the guards that make it a constant.  One that the program reads has a
    source; what follows from it has none.
    # PyTorch: torch.SymFloat, turned into tensors later
    # (torch/fx/passes/_tensorify_python_scalars.py).
    """

    cls = float
    value: float
    tensor: TensorVar
    pin: Callable

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
        tensors = [v.tensor if isinstance(v, FloatVar) else v for v in operands]
        made: Any = tx.node(operation, tensors)
        value = operation(*[v.value for v in operands])
        return FloatVar(value, made, lambda: [v.pin() for v in floats])


ARITHMETIC = frozenset(
    """
    add sub mul div true_divide truediv iadd isub imul itruediv add_ sub_ mul_ div_ true_divide_
    _foreach_add _foreach_mul _foreach_div _foreach_add_ _foreach_mul_ _foreach_div_
    """.split()
)


def with_tensors(tx: Frame, target: Any, args: Any, kwargs: Any) -> Any:
    """(target, args, kwargs) of a call in the graph where each FloatVar is a tensor, if the
    operation takes one there, or else a constant."""
    given = (*args, *kwargs.values())
    if not tx.output.floats or not any(isinstance(value, FloatVar) for value in given):
        return target, args, kwargs
    name = target if isinstance(target, str) else getattr(target, "__name__", "")
    alpha = kwargs.get("alpha")
    if (
        isinstance(alpha, FloatVar)
        and name.strip("_") in ("add", "sub", "foreach_add", "foreach_sub")
        and len(args) == 2
    ):
        # x + alpha * y
        multiply = torch._foreach_mul if isinstance(args[1], SequenceVar) else operator.mul
        product = tx.node(multiply, [args[1], alpha])
        args, kwargs = [args[0], product], {}
    if name in ARITHMETIC and any(isinstance(a, (TensorVar, SequenceVar)) for a in args):
        args = [a.beside(tx, args) if isinstance(a, FloatVar) else a for a in args]
    constant = lambda v: ConstantVar(v.as_constant()) if isinstance(v, FloatVar) else v  # noqa: E731
    return target, [constant(a) for a in args], {k: constant(v) for k, v in kwargs.items()}


hooks.BEFORE_NODES.append(with_tensors)


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
        tensor = TensorVar(node, node.meta["example_value"], float, real, source=source)
        builder.inputs.append(tensor)
        pin = functools.partial(wrap_constant, builder, value, source)
        builder.float_inputs[source] = FloatVar(value, tensor, pin, source=source)
    return builder.float_inputs[source]


# ---- which floats change, and the graph that takes them
CONSTANT: frozenset[str] = frozenset()  # in FrameCompiler.floats: every float is a constant


def note_float(compiler: FrameCompiler, code: types.CodeType, failed: Guard) -> None:
    """A float that has changed is an input of the next graph."""
    if failed.kind != "EQUALS" or "is float" not in failed.check:
        return
    if compiler.dynamic is False or compiler.backend_name == "eager":
        return
    names = compiler.floats.setdefault(code, set())
    if names is not CONSTANT:
        names.add(failed.source.name())


def take_floats_as_constants(conversion: Conversion, frame: RootFrame) -> bool:
    """A float that is no constant may be what broke the graph."""
    if frame.split is None or not frame.output.float_inputs:
        return False
    conversion.compiler.floats[conversion.code] = CONSTANT
    return True


def floats_as_tensors(compiled: Callable, output: OutputGraph, results: object) -> Callable:
    """`compiled`, with tensors in the place of the inputs that are floats for the program."""
    inputs = enumerate(output.inputs)
    places = [n for n, variable in inputs if type(variable) is TensorVar and variable.cls is float]

    def run(*args: Any) -> Any:
        tensors = list(args)
        for n in places:
            tensors[n] = torch.tensor(args[n], dtype=torch.float64)
        return compiled(*tensors)

    return run if places else compiled


hooks.FAILED_GUARDS.append(note_float)
hooks.LESSONS.append(take_floats_as_constants)
hooks.ADAPTERS.append(floats_as_tensors)
