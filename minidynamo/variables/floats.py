"""Floats that change from call to call: a clock (`self.t += dt`), a scheduler's learning rate.

In:   a float at a source that had another value in an earlier compilation.
Out:  a SymVar of a float symbol.  What the program computes with it is computed in Python, again in
      each call; where an operation takes a tensor for it, it is an input of the graph: a 0-d
      float64 tensor, which `floats_as_tensors` makes.

    >>> wrap_float(builder, 0.1, source)        # None: a constant, guarded by its value, at first
    >>> wrap_float(builder, 0.2, source)        # then symbolic f0

Whatever needs the number itself (an operation that takes no tensor there) pins it, and tracing
starts over.  # PyTorch: torch.SymFloat, turned into tensors later
(torch/fx/passes/_tensorify_python_scalars.py).
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterable
from typing import Any

import sympy
import torch

from miniinductor.sizes.prover import LARGEST, Symbol

from ..shapes.symbolic_numbers import SymNode, is_of_floats
from .base import Frame, OutputGraph, Source, Variable
from .constant import ConstantVar
from .registry import rule_of_each
from .sequences import SequenceVar
from .symbolic import SymVar, pinned
from .tensor import TensorVar

FINITE = "type({0}) is float and -1e308 < {0} < 1e308"


def wrap_float(builder: OutputGraph, value: float, source: Source) -> Variable | None:
    """A symbol from its second value on; None: a constant, guarded by its value."""
    policy = builder.policy
    if policy.dynamic is False:
        return None
    if not policy.is_symbol(source.name(), float, value, is_wanted=False, least=-1e308):
        return None
    builder.guard(source, "FLOAT", FINITE)
    if source not in builder.floats:
        builder.fake_mode.cache_enabled = False  # it hashes the numbers that ops are given
        env = builder.shape_env
        symbol = sympy.Symbol(f"f{len(env.table)}", real=True)
        env.table[symbol] = Symbol(symbol, value, [source], -LARGEST, LARGEST, env.where())
        number = torch.SymFloat(SymNode(env, symbol, float, value))
        builder.floats[source] = SymVar(number, source=source)
    return builder.floats[source]


def is_float(variable: Any) -> bool:
    """Is the variable a float that is computed from a float symbol?"""
    kind = type(variable.value) if type(variable) is SymVar else None
    return kind is torch.SymFloat and is_of_floats(variable.value.node)


# ---- in the graph
class FloatInput(TensorVar):
    """The placeholder of a float: `expr`, over symbols, is what the program computes it from."""

    expr: Any = None


def tensor_of(output: OutputGraph, variable: SymVar) -> TensorVar:
    """The float as a 0-d float64 tensor in the graph; the same one for the same expression."""
    expr, hint = variable.value.node.expr, variable.value.node.hint
    known = output.floats.get(expr)
    if known is None:
        real = torch.tensor(float(hint), dtype=torch.float64)
        node = output.add_input(output.unique_name("number"), output.fake_of(real))
        symbol = min(expr.free_symbols, key=str)
        source = output.shape_env.table[symbol].sources[0]
        given = (node, node.meta["example_value"], float, real)
        output.inputs.append(FloatInput(*given, source=source, expr=expr))
        known = output.floats[expr] = TensorVar(*given, source=source)
    return known


def beside(tx: Frame, variable: SymVar, others: Iterable[Variable]) -> Variable:
    """What to use where `others` are the call's other arguments.  A number takes the dtype of the
    tensors it meets; a 0-d tensor only does so beside floating tensors that have dimensions, and is
    cast beside others."""
    met = [other.fake for other in others if isinstance(other, TensorVar)]
    tensor = tensor_of(tx.output, variable)
    if any(t.dim() and (t.is_floating_point() or t.is_complex()) for t in met):
        return tensor
    dtype = functools.reduce(torch.promote_types, [torch.result_type(t, 1.0) for t in met])
    if dtype.itemsize == 2:  # eager computes these in float32, and rounds the result
        return pinned(variable)
    return tensor.method_node(tx, "to", [ConstantVar(dtype)], {})


# operations that take a 0-d tensor as they take a number
ARITHMETIC = frozenset(
    """
    add sub mul div true_divide truediv iadd isub imul itruediv add_ sub_ mul_ div_ true_divide_
    gt ge lt le eq ne greater greater_equal less less_equal not_equal where
    floordiv floor_divide floor_divide_ mod remainder remainder_ fmod fmod_
    _foreach_add _foreach_mul _foreach_div _foreach_add_ _foreach_mul_ _foreach_div_
    """.split()
)
SCALED_SUMS = ("add", "sub", "foreach_add", "foreach_sub")  # x + alpha * y


def with_tensors(tx: Frame, target: Any, args: Any, kwargs: Any) -> Any:
    """(target, args, kwargs) of a call in the graph where each float is a tensor, if the operation
    takes one there; else it is a number, and pinned."""
    if not any(map(is_float, (*args, *kwargs.values()))):
        return target, args, kwargs
    if target in (operator.mul, operator.truediv) and is_float(args[0]):
        # as Tensor.__rmul__ and Tensor.__rtruediv__ compute, which round so
        other = args[1] if target is operator.mul else args[1].method_node(tx, "reciprocal", [], {})
        target, args = operator.mul, [other, args[0]]
    name = target if isinstance(target, str) else getattr(target, "__name__", "")
    members = [*args, *(t for a in args if isinstance(a, SequenceVar) for t in a.iterate(tx))]
    is_scaled = name.strip("_") in SCALED_SUMS and is_float(kwargs.get("alpha"))
    if is_scaled and len(args) == 2 and can_be_scaled(members):
        multiply = torch._foreach_mul if isinstance(args[1], SequenceVar) else operator.mul
        args, kwargs = [args[0], tx.node(multiply, [args[1], kwargs["alpha"]])], {}
    takes_tensors = name in ARITHMETIC and any(isinstance(a, TensorVar) for a in members)

    def given(value: Any) -> Variable:
        if not is_float(value):
            return value
        return beside(tx, value, members) if takes_tensors else pinned(value)

    return target, list(map(given, args)), {key: given(value) for key, value in kwargs.items()}


def can_be_scaled(values: Iterable[Variable]) -> bool:
    """May `x + alpha * y` of these tensors be two operations?  In 16 bits eager computes it in
    float32 and rounds once; for integers it takes no float."""
    kinds = {t.fake.dtype for t in values if isinstance(t, TensorVar)}
    return kinds <= {torch.float32, torch.float64}


SCALED = {"addcmul": ("add", "*"), "addcdiv": ("add", "/")}
SCALED |= {f"{name}_": (f"{add}_", symbol) for name, (add, symbol) in SCALED.items()}


@rule_of_each(*(getattr(torch.Tensor, name) for name in SCALED))
def _scaled(method: Any, tx: Frame, tensor: TensorVar, *args: Any, **kwargs: Variable) -> Variable:
    """addcmul, addcdiv: a `value` that is a tensor (what follows from an optimizer's step count),
    or a float that changes, is multiplied in."""
    value: Any = kwargs.get("value")
    if is_float(value) and can_be_scaled([tensor, *args]):
        value = beside(tx, value, args)
    if not isinstance(value, TensorVar):
        return tensor.method_node(tx, method.__name__, args, kwargs)
    add, symbol = SCALED[method.__name__]
    change = tx.binary(symbol, tx.binary("*", value, args[0]), args[1])
    return tensor.call_method(tx, add, [change], {})


def floats_as_tensors(compiled: Callable, output: OutputGraph) -> Callable:
    """`compiled`, with tensors in the place of the inputs that are floats for the program."""
    places = [n for n, variable in enumerate(output.inputs) if type(variable) is FloatInput]

    def run(*args: Any) -> Any:
        tensors = list(args)
        for n in places:
            tensors[n] = torch.tensor(args[n], dtype=torch.float64)
        return compiled(*tensors)

    return run if places else compiled
