"""C functions of the standard library that take callbacks, written in Python: the evaluator traces these instead.

In:   the same arguments.   Out: the same results.

    >>> reduce(operator.add, [1, 2, 3])
    6
Mirrors torch/_dynamo/polyfills.
"""
import collections
import functools

NOTHING = object()


def reduce(function, values, initial=NOTHING):
    values = iter(values)
    if initial is NOTHING:
        initial = next(values, NOTHING)
        if initial is NOTHING:
            raise TypeError("reduce() of empty iterable with no initial value")
    for value in values:
        initial = function(initial, value)
    return initial


def count_elements(counts, values):
    """collections.Counter.update"""
    for value in values:
        counts[value] = counts.get(value, 0) + 1


def itemgetter_call(items, value):
    if len(items) == 1:
        return value[items[0]]
    return tuple([value[item] for item in items])


def attrgetter_call(names, value):
    found = []
    for name in names:
        part = value
        for step in name.split("."):
            part = getattr(part, step)
        found.append(part)
    return found[0] if len(names) == 1 else tuple(found)


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
    for key, hook in module._forward_hooks.items():
        changed = hook(module, args, kwargs, result) if key in module._forward_hooks_with_kwargs else hook(module, args, result)
        if changed is not None:
            result = changed
    return result


POLYFILLS = {functools.reduce: reduce, collections._count_elements: count_elements}
