"""Numbers that only the run knows, given as sizes: none of them is negative.

    torch.zeros(count.item(), 3)        x.split(lengths.tolist())

In:   an operation that raises for a negative size, before it is recorded.
Out:  checks in the graph, `u0 >= 0` (the parts of a split: `u0 + u1 == 6`), and the facts for
      all that follows.

A slice may be cut, and a negative end counts from behind: the graph takes it that neither happens.
Where a check fails, what the graph has done is undone, and the call runs as plain Python.
Mirrors the run-time assertions of torch/fx/experimental/symbolic_shapes.py.
"""

import math
import operator
from collections.abc import Iterator
from typing import Any

import torch

from .. import hooks
from ..variables.base import Variable, peek
from ..variables.constant import ConstantVar
from ..variables.containers import SequenceVar, TupleVar
from ..variables.more.slices import SliceVar
from ..variables.symbolic import SymVar
from ..variables.tensor import TensorVar
from .torch_functions import check_in_graph

FUNCTIONS = {torch.zeros, torch.ones, torch.empty, torch.full, torch.rand, torch.randn}
FUNCTIONS |= {torch.split, torch.split_with_sizes, torch.Tensor.split}
SPLITS = {"split", "split_with_sizes"}
SQUEEZES = {"squeeze", "squeeze_"}
SHAPES = {"reshape", "view"}
METHODS = {"new_zeros", "new_ones", "new_empty", "new_full", "split", "split_with_sizes"}


def numbers_in(values: Any) -> Iterator[SymVar]:
    for value in values:
        value = peek(value)
        if isinstance(value, SequenceVar):
            yield from numbers_in(value.items)
        elif type(value) is SymVar and value.python_type() is int:
            yield value


def promise(tx: Any, condition: Any) -> None:
    """A check in the graph; then a fact.  Nothing where the answer is known."""
    unknown = isinstance(condition, torch.SymBool) and not condition.node.has_hint()
    if unknown and tx.output.shape_env.prove(condition.node.expr) is None:
        if tx.output.policy.sizes_alone:
            bool(condition)  # nothing is promised by default: it breaks the graph
        check_in_graph(tx, condition)
        tx.output.shape_env.learn(condition.node.expr)


def promise_parts(tx: Any, tensor: TensorVar, sizes: Variable, dim: Any) -> None:
    """x.split([a, b], dim): the parts are all of x."""
    numbers, shape = list(numbers_in([sizes])), tensor.fake.shape
    if not numbers or type(dim) is not int or not -len(shape) <= dim < len(shape):
        return
    parts = [part for part in sizes.iterate(tx) if isinstance(part, (ConstantVar, SymVar))]
    if len(parts) == len(list(sizes.iterate(tx))):
        promise(tx, sum(part.value for part in parts) == shape[dim])


def promise_shape(tx: Any, tensor: TensorVar, sizes: list[Any]) -> None:
    """x.reshape(a, b): no size is negative, and the elements are all of x."""
    numbers = [getattr(peek(size), "value", None) for size in sizes]
    if not all(isinstance(number, (int, torch.SymInt)) for number in numbers):
        return
    if any(unknown(number) for number in numbers):
        for number in numbers:
            if unknown(number):
                promise(tx, number >= 0)
        if all(unknown(number) or number >= 0 for number in numbers):
            promise(tx, math.prod(numbers) == tensor.fake.numel())


def promise_range(tx: Any, args: Any, kwargs: dict[str, Variable]) -> None:
    """torch.arange(n), torch.arange(low, high): the end is not below the start."""
    ends = [getattr(peek(value), "value", None) for value in args]
    plain = all(isinstance(end, (int, torch.SymInt)) for end in ends)
    if plain and len(ends) in (1, 2) and not kwargs.keys() & {"start", "end", "step"}:
        low, high = [0, *ends][-2:]
        promise(tx, low <= high)


def promise_ends(tx: Any, tensor: TensorVar, key: Variable) -> None:
    """x[a:b], x[:, :n]: nothing is cut.  Where something is, the check fails, and the call runs as
    plain Python; so nothing is promised behind a write, which would have to be undone."""
    keys = key.items if isinstance(key, TupleVar) else [key]
    if tx.output.written:
        return
    for size, one in zip(tensor.fake.shape, keys):
        one = peek(one)
        if type(one) is ConstantVar and type(one.value) in (int, slice):
            continue
        if type(one) is not SliceVar or peek(one.parts[2]).identity() is not None:
            return
        low, high = (getattr(peek(part), "value", "a tensor") for part in one.parts[:2])
        ends = [0 if low is None else low, size if high is None else high, size]
        if not all(isinstance(end, (int, torch.SymInt)) for end in ends):
            return
        if any(unknown(end) for end in ends[:2]):
            for first, second in zip([0, *ends], ends):
                promise(tx, first <= second)


def promise_many(tx: Any, tensor: TensorVar, dims: list[Any]) -> None:
    """x.squeeze(dims): no size is 1 that only the run knows, so that the result has the dimensions
    which it is taken to have."""
    shape = tensor.fake.shape
    known = [getattr(dim, "value", None) for dim in dims]
    for d in known if known and all(type(d) is int for d in known) else range(len(shape)):
        if -len(shape) <= d < len(shape) and unknown(shape[d]):
            promise(tx, shape[d] != 1)


def unknown(number: Any) -> bool:
    return isinstance(number, torch.SymInt) and not number.node.has_hint()


def promise_of_tensors(tx: Any, target: Any, args: Any, kwargs: dict[str, Variable]) -> None:
    """What a slice, a squeeze, a range or a new shape takes for granted."""
    name = getattr(target, "__name__", target)
    if target is torch.arange:
        promise_range(tx, args, kwargs)
    if not args or type(args[0]) is not TensorVar:
        return
    tensor, rest = args[0], args[1:]
    if target is operator.getitem and not kwargs:
        promise_ends(tx, tensor, args[1])
    if name in SQUEEZES:
        dims = [*rest, *kwargs.values()]
        flat = dims[0].items if dims and isinstance(dims[0], SequenceVar) else dims
        promise_many(tx, tensor, list(map(peek, flat)))
    if name in SHAPES and rest and not kwargs:
        promise_shape(tx, tensor, rest[0].items if isinstance(rest[0], SequenceVar) else rest)


def promise_sizes(
    tx: Any, target: Any, args: Any, kwargs: dict[str, Variable]
) -> tuple[Any, Any, Any]:
    """The arguments as they are, with checks in front of the node that takes them as sizes."""
    if not tx.output.policy.unbacked:
        return target, args, kwargs
    promise_of_tensors(tx, target, args, kwargs)
    takes = target in METHODS if isinstance(target, str) else target in FUNCTIONS
    if not takes:
        return target, args, kwargs
    given = (*args, kwargs["size"]) if "size" in kwargs else args
    if target in (torch.full, "new_full") and "fill_value" not in kwargs:
        given = given[:-1]
    for number in numbers_in(given):
        promise(tx, number.value >= 0)
    if getattr(target, "__name__", target) in SPLITS and len(args) > 1:
        dim = args[2] if len(args) > 2 else kwargs.get("dim", ConstantVar(0))
        promise_parts(tx, args[0], args[1], getattr(dim, "value", None))
    return target, args, kwargs


hooks.BEFORE_NODES.append(promise_sizes)
