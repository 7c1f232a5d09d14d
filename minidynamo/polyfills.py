"""C functions of the standard library that take callbacks, written in Python: the evaluator traces
these instead.

In:   the same arguments.   Out: the same results.

    >>> reduce(operator.add, [1, 2, 3])
    6
Mirrors torch/_dynamo/polyfills.
"""

import collections
import functools

import torch
from torch.utils._pytree import tree_flatten, tree_unflatten

NOTHING = object()


def reduce(function, values, initial=NOTHING):
    values = iter(values)
    if initial is NOTHING:
        initial = next(values, NOTHING)
        if initial is NOTHING:
            raise TypeError("reduce() of empty iterable with no initial value")
    # No `for`: it would ask for an iterator once more, and the program may see that.
    while (value := next(values, NOTHING)) is not NOTHING:
        initial = function(initial, value)
    return initial


def count_elements(counts, values):
    """collections.Counter.update"""
    for value in values:
        counts[value] = counts.get(value, 0) + 1


def call_with_hooks(module, args, kwargs):
    """nn.Module._call_impl without backward hooks."""
    for key, hook in module._forward_pre_hooks.items():
        if key in module._forward_pre_hooks_with_kwargs:
            changed = hook(module, args, kwargs)
            if changed is not None:
                args, kwargs = changed
        else:
            changed = hook(module, args)
            if changed is not None:
                args = changed if isinstance(changed, tuple) else (changed,)
    result = module.forward(*args, **kwargs)
    _ = module._forward_hooks_always_called  # eager asks for it, too
    for key, hook in module._forward_hooks.items():
        changed = (
            hook(module, args, kwargs, result)
            if key in module._forward_hooks_with_kwargs
            else hook(module, args, result)
        )
        if changed is not None:
            result = changed
    return result


def associative_scan(combine_fn, xs, dim, reverse=False, combine_mode="pointwise"):
    """torch's prototype, step by step, as eager loops do it.  # PyTorch: an operator of its own,
    whose depth is logarithmic."""
    leaves, spec = tree_flatten(xs)
    steps = list(zip(*[leaf.unbind(dim) for leaf in leaves]))
    if reverse:
        steps.reverse()
    done = [steps[0]]
    for step in steps[1:]:
        done.append(
            tree_flatten(
                combine_fn(tree_unflatten(list(done[-1]), spec), tree_unflatten(list(step), spec))
            )[0]
        )
    if reverse:
        done.reverse()
    return tree_unflatten([torch.stack(parts, dim) for parts in zip(*done)], spec)


POLYFILLS = {functools.reduce: reduce, collections._count_elements: count_elements}
