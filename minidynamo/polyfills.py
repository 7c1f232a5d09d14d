"""C functions of the standard library that take callbacks, written in Python: the evaluator traces these instead.

In:   the same arguments.   Out: the same results.

    >>> reduce(operator.add, [1, 2, 3])
    6
Mirrors torch/_dynamo/polyfills.
"""
import functools
import itertools

NOTHING = object()


def reduce(function, values, initial=NOTHING):
    values = iter(values)
    if initial is NOTHING:
        initial = next(values)
    for value in values:
        initial = function(initial, value)
    return initial


def accumulate(values, function=None, *, initial=None):
    total = initial
    first = initial is None
    for value in values:
        if first:
            total, first = value, False
        else:
            if initial is not None and total is initial:
                yield total
            total = total + value if function is None else function(total, value)
        yield total


def chain(*iterables):
    for values in iterables:
        yield from values


def from_iterable(iterables):
    for values in iterables:
        yield from values


def repeat(value, times=None):
    while times is None or times > 0:
        yield value
        times = None if times is None else times - 1


def count(start=0, step=1):
    while True:
        yield start
        start = start + step


def cycle(values):
    seen = list(values)
    while seen:
        for value in seen:
            yield value


def islice(values, *bounds):
    bounds = slice(*bounds)
    start, stop, step = bounds.start or 0, bounds.stop, bounds.step or 1
    index, wanted = 0, start
    values = iter(values)
    while stop is None or wanted < stop:
        for value in values:
            index += 1
            if index > wanted:
                yield value
                break
        else:
            return
        wanted += step


def product(*pools, repeat=1):
    results = [()]
    for pool in [list(pool) for pool in pools] * repeat:
        results = [(*head, value) for head in results for value in pool]
    yield from results


def zip_longest(*iterables, fillvalue=None):
    columns = [list(values) for values in iterables]
    for row in range(max([len(column) for column in columns], default=0)):
        yield tuple([column[row] if row < len(column) else fillvalue for column in columns])


def starmap(function, values):
    for value in values:
        yield function(*value)


def takewhile(test, values):
    for value in values:
        if not test(value):
            return
        yield value


def dropwhile(test, values):
    dropping = True
    for value in values:
        if dropping and test(value):
            continue
        dropping = False
        yield value


def filterfalse(test, values):
    for value in values:
        if not (value if test is None else test(value)):
            yield value


def compress(values, selectors):
    for value, selected in zip(values, selectors):
        if selected:
            yield value


def permutations(values, length=None):
    values = list(values)
    for indices in product(range(len(values)), repeat=len(values) if length is None else length):
        if len(set(indices)) == len(indices):
            yield tuple([values[n] for n in indices])


def combinations(values, length):
    values = list(values)
    for indices in product(range(len(values)), repeat=length):
        if all([a < b for a, b in pairwise(indices)]):
            yield tuple([values[n] for n in indices])


def combinations_with_replacement(values, length):
    values = list(values)
    for indices in product(range(len(values)), repeat=length):
        if all([a <= b for a, b in pairwise(indices)]):
            yield tuple([values[n] for n in indices])


def count_elements(counts, values):
    """collections.Counter.update"""
    for value in values:
        counts[value] = counts.get(value, 0) + 1


def pairwise(values):
    values = list(values)
    for n in range(len(values) - 1):
        yield values[n], values[n + 1]


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


def minimum(values, key, best, larger):
    for value in values:
        if best is NOTHING:
            best = value
        elif larger:
            best = value if key(value) > key(best) else best
        else:
            best = value if key(value) < key(best) else best
    return best


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


POLYFILLS = {functools.reduce: reduce, itertools.accumulate: accumulate, itertools.chain: chain, itertools.repeat: repeat,
             itertools.count: count, itertools.cycle: cycle, itertools.islice: islice, itertools.product: product,
             itertools.zip_longest: zip_longest, itertools.starmap: starmap, itertools.takewhile: takewhile,
             itertools.dropwhile: dropwhile, itertools.pairwise: pairwise, itertools.filterfalse: filterfalse,
             itertools.compress: compress, itertools.permutations: permutations, itertools.combinations: combinations,
             itertools.combinations_with_replacement: combinations_with_replacement}
