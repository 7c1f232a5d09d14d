"""C functions of the standard library that take callbacks, written in Python: the evaluator traces
these instead.

In:   the same arguments.   Out: the same results.

    >>> reduce(operator.add, [1, 2, 3])
    6
Mirrors torch/_dynamo/polyfills.
"""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch.utils._pytree import tree_flatten, tree_unflatten

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


def refuse_loop(reason: str) -> None:
    """The graph breaks, and torch itself says what is wrong; see rules/torch_functions.py."""


def scan(
    combine_fn: Callable[..., Any], init: Any, xs: Any, *, dim: int = 0, reverse: bool = False
) -> Any:
    """torch's prototype, step by step, as eager runs it.  # PyTorch: an operator of its own."""
    carried, carry_spec = tree_flatten(init)
    leaves, spec = tree_flatten(xs)
    if not carried or not leaves or not all(isinstance(t, torch.Tensor) for t in carried + leaves):
        refuse_loop("what is scanned or carried is not all tensors")
    steps = list(zip(*[leaf.unbind(dim) for leaf in leaves]))
    if not steps or any(leaf.shape[dim] != len(steps) for leaf in leaves):
        refuse_loop("lengths that differ, or are 0")
    kinds = [(t.shape, t.stride(), t.dtype, t.device) for t in carried]
    rows: list[Any] = []
    for step in reversed(steps) if reverse else steps:
        before = tree_unflatten(list(carried), carry_spec)
        result = combine_fn(before, tree_unflatten(list(step), spec))
        new, new_spec = tree_flatten(result[0])
        row, row_spec = tree_flatten(result[1])
        found = [(t.shape, t.stride(), t.dtype, t.device) for t in new]
        if new_spec != carry_spec or found != kinds:
            refuse_loop("what is carried changes its kind")
        if not all(isinstance(t, torch.Tensor) for t in row):
            refuse_loop("results that are not all tensors")
        carried = new
        rows.append(row)
    if reverse:
        rows.reverse()
    place = dim % leaves[0].dim()
    stacked = [torch.stack(parts) for parts in zip(*rows)]
    moved = [t.movedim(0, place) if 0 < place < t.dim() else t for t in stacked]
    return tree_unflatten(carried, carry_spec), tree_unflatten(moved, row_spec)


def map_over(function: Callable[..., Any], xs: Any, *args: Any) -> Any:
    """torch's prototype `map`: a function over the first dimension, step by step."""
    leaves, spec = tree_flatten(xs)
    if not leaves or not all(isinstance(t, torch.Tensor) and t.dim() for t in leaves):
        refuse_loop("what is mapped over is not all tensors")
    count = leaves[0].shape[0]
    if not count or any(leaf.shape[0] != count for leaf in leaves):
        refuse_loop("lengths that differ, or are 0")
    rows = []
    for step in zip(*[leaf.unbind(0) for leaf in leaves]):
        row, row_spec = tree_flatten(function(tree_unflatten(list(step), spec), *args))
        if not all(isinstance(t, torch.Tensor) for t in row):
            refuse_loop("results that are not all tensors")
        rows.append(row)
    return tree_unflatten([torch.stack(parts) for parts in zip(*rows)], row_spec)
