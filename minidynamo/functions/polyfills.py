"""Functions of C and of functorch, written in Python: the evaluator traces these instead.

In:   the same arguments.   Out: the same results.

    >>> reduce(operator.add, [1, 2, 3])
    6
    >>> torch.func.functional_call(module, {"weight": w}, (x,))
    >>> torch.nn.utils.clip_grad_norm_(module.parameters(), 1.0)

`functional_call` puts tensors into the module and takes them out again: both are traced, and the
module is as it was.
Mirrors torch/_dynamo/polyfills, variables/torch.py (`handle_functional_call`).

Functions of torch.jit.script: the Python function that was given to it is traced.

    @torch.jit.script
    def gelu(x: torch.Tensor, scale: float): ...

    gelu(x, 2)          # a graph break: TorchScript makes a float of the number

In, out: see `symbolic_eval.registry`.  Arguments that TorchScript converts or copies are graph
breaks.
Mirrors torch/_dynamo/variables/functions.py (`_torchdynamo_inline`).
# PyTorch: arguments are not converted.
"""

import collections
import functools
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch.nn.utils import stateless
from torch.utils._pytree import tree_flatten, tree_unflatten

from ..errors import Break
from ..variables.base import Args, Frame, Named, RealVar, Variable
from ..variables.constant import ConstantVar
from ..variables.registry import BY_VALUE, PINNED, by_identity, rule
from ..variables.tensor import TensorVar
from .torch_state import at

NOTHING = object()


def reduce(
    function: Callable[[Any, Any], Any], values: Iterable[Any], initial: Any = NOTHING
) -> Any:
    values = iter(values)
    if initial is NOTHING:
        initial = next(values, NOTHING)
        if initial is NOTHING:
            raise TypeError("reduce() of empty iterable with no initial value")
    # No `for`: it would ask for an iterator once more, and the program may see that.
    while (value := next(values, NOTHING)) is not NOTHING:
        initial = function(initial, value)
    return initial


def count_elements(counts: dict[Any, int], values: Iterable[Any]) -> None:
    """collections.Counter.update"""
    for value in values:
        counts[value] = counts.get(value, 0) + 1


def associative_scan(
    combine_fn: Callable[..., Any],
    xs: Any,
    dim: int,
    reverse: bool = False,
    combine_mode: str = "pointwise",
) -> Any:
    """torch's prototype, step by step, as eager loops do it.  # PyTorch: an operator of its own,
    whose depth is logarithmic."""
    leaves, spec = tree_flatten(xs)
    steps = list(zip(*[leaf.unbind(dim) for leaf in leaves]))
    if reverse:
        steps.reverse()
    done: list[Any] = [steps[0]]
    for step in steps[1:]:
        before = tree_unflatten(list(done[-1]), spec)
        combined = combine_fn(before, tree_unflatten(list(step), spec))
        done.append(tree_flatten(combined)[0])
    if reverse:
        done.reverse()
    return tree_unflatten([torch.stack(parts, dim) for parts in zip(*done)], spec)


def grouped(lists: list[list[Any]], order: list[Any], with_indices: bool = False) -> dict[Any, Any]:
    """`torch._C._group_tensors_by_device_and_dtype`, of which the first list says how to group, and
    `order` in which order the groups come."""
    groups: dict[Any, Any] = {key: ([[] for _ in lists], []) for key in order}
    for number, tensor in enumerate(lists[0]):
        found, indices = groups[tensor.device, tensor.dtype]
        for members, given in zip(found, lists):
            if given:
                members.append(given[number])
        if with_indices:
            indices.append(number)
    return groups


@rule(torch._C._group_tensors_by_device_and_dtype)
def _group(tx: Frame, lists: Variable, with_indices: Any = ConstantVar(False), /) -> Variable:
    first = next(iter(lists.iterate(tx)), None)
    tensors = [] if first is None else list(first.iterate(tx))
    if not tensors or not all(isinstance(tensor, TensorVar) for tensor in tensors):
        raise Break("torch", "a list of tensors to group, in which something else lies")
    order = tx.output.wrap_pinned(order_of_groups([tensor.fake for tensor in tensors]))
    return tx.inline(tx.output.wrap_pinned(grouped), [lists, order, with_indices], {})


def order_of_groups(tensors: list[Any]) -> list[tuple[torch.device, torch.dtype]]:
    """The order is that of a hash table of C++, and sums depend on it: C++ itself is asked."""
    groups = torch._C._group_tensors_by_device_and_dtype([tensors], True)
    return [
        (tensors[indices[0]].device, tensors[indices[0]].dtype) for _, indices in groups.values()
    ]


def traced(function: Callable, instead: Any) -> None:
    """A call of `instead` is one of `function`, which is traced."""

    @rule(instead)
    def trace(tx: Frame, *args: Any, **kwargs: Any) -> Variable:
        return tx.inline(tx.output.wrap_pinned(function), list(args), kwargs)


traced(reduce, functools.reduce)
traced(count_elements, getattr(collections, "_count_elements"))
traced(associative_scan, at("_higher_order_ops.associative_scan"))
for _function in (torch.func.functional_call, stateless.functional_call):
    traced(_function, _function)  # it lies where torch's code is not traced


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


PINNED(SCRIPTED)(lambda builder, value: ScriptedVar(value))
BY_VALUE(SCRIPTED)(by_identity)  # what is read of it does not change
