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
