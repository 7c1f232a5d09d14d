"""Functions of C, of functorch and of TorchScript, as Python that the evaluator traces instead.

In:   the same arguments.   Out: the same results.

    >>> reduce(operator.add, [1, 2, 3])
    6
    >>> list(islice(count(2), 3))
    [2, 3, 4]
    >>> torch.func.functional_call(module, {"weight": w}, (x,))

`functional_call` puts tensors into the module and takes them out again: both are traced, and the
module is as it was.  Of a function of torch.jit.script the Python function that was given to it is
traced, unless TorchScript converts or copies an argument.  Iterators of itertools are generators of
ours; those that are not here (`tee`, `groupby`, `compress`) break the graph.
Mirrors torch/_dynamo/polyfills, and variables/functions.py (`_torchdynamo_inline`).
"""

import collections
import functools
import itertools
from typing import Any

import torch
from torch.nn.utils import stateless

from ..errors import Break
from ..variables.base import Args, Frame, Named, RealVar, Variable
from ..variables.constant import ConstantVar
from ..variables.dicts import DictVar, ListVar, TupleVar
from ..variables.registry import BY_VALUE, PINNED, by_identity, rule, rule_of_each
from ..variables.tensor import TensorVar

NOTHING = object()


# ---- functools, collections
def reduce(function: Any, values: Any, initial: Any = NOTHING) -> Any:
    values = iter(values)
    if initial is NOTHING:
        initial = next(values, NOTHING)
        if initial is NOTHING:
            raise TypeError("reduce() of empty iterable with no initial value")
    # No `for`: it would ask for an iterator once more, and the program may see that.
    while (value := next(values, NOTHING)) is not NOTHING:
        initial = function(initial, value)
    return initial


def count_elements(counts: Any, values: Any) -> None:
    """collections.Counter.update"""
    for value in values:
        counts[value] = counts.get(value, 0) + 1


# ---- itertools
def from_iterable(iterables: Any) -> Any:
    for values in iterables:
        for value in values:
            yield value


def chain(*iterables: Any) -> Any:
    return from_iterable(iterables)


def islice(values: Any, first: Any, stop: Any = NOTHING) -> Any:
    start, stop = (0, first) if stop is NOTHING else (first or 0, stop)
    if start < 0 or stop is not None and stop < 0:
        raise ValueError("Indices for islice() must be None or an integer: 0 <= x <= sys.maxsize.")
    numbered = enumerate(values) if stop is None else zip(range(max(start, stop)), values)
    for n, value in numbered:
        if n >= start:
            yield value


def repeat(object: Any, times: Any = None) -> Any:
    while times is None:
        yield object
    for _ in range(times):
        yield object


def count(start: Any = 0, step: Any = 1) -> Any:
    while True:
        yield start
        start += step


def cycle(values: Any) -> Any:
    kept = []
    for value in values:
        yield value
        kept.append(value)
    while kept:
        for value in kept:
            yield value


def pairwise(values: Any) -> Any:
    before = NOTHING
    for value in values:
        if before is not NOTHING:
            yield before, value
        before = value


def zip_longest(*iterables: Any, fillvalue: Any = None) -> Any:
    iterators = [iter(values) for values in iterables]
    while True:
        row = [next(values, NOTHING) for values in iterators]
        if all(value is NOTHING for value in row):
            return
        yield tuple([fillvalue if value is NOTHING else value for value in row])


def accumulate(iterable: Any, func: Any = None, *, initial: Any = None) -> Any:
    values = iter(iterable)
    total = next(values, NOTHING) if initial is None else initial
    if total is NOTHING:
        return
    yield total
    for value in values:
        total = total + value if func is None else func(total, value)
        yield total


def starmap(function: Any, rows: Any) -> Any:
    for row in rows:
        yield function(*row)


def takewhile(test: Any, values: Any) -> Any:
    for value in values:
        if not test(value):
            return
        yield value


def dropwhile(test: Any, values: Any) -> Any:
    dropping = True
    for value in values:
        dropping = dropping and test(value)
        if not dropping:
            yield value


def traced(function: Any, instead: Any) -> None:
    """A call of `instead` is one of `function`, which is traced."""

    @rule(instead)
    def trace(tx: Frame, *args: Any, **kwargs: Any) -> Variable:
        return tx.inline(tx.output.wrap_pinned(function), list(args), kwargs)


traced(reduce, functools.reduce)
traced(count_elements, getattr(collections, "_count_elements"))
traced(from_iterable, itertools.chain.from_iterable)
ITERATORS: tuple[Any, ...] = (chain, islice, repeat, count, cycle, pairwise, zip_longest)
ITERATORS += (accumulate, starmap, takewhile, dropwhile)
for _iterator in ITERATORS:
    traced(_iterator, getattr(itertools, _iterator.__name__))
for _function in (torch.func.functional_call, stateless.functional_call):
    traced(_function, _function)  # it lies where torch's code is not traced


@rule_of_each(itertools.product, itertools.combinations, itertools.permutations)
def _rows(real: Any, tx: Frame, *pools: Any, **options: Any) -> Variable:
    """itertools.product, combinations, permutations: all rows at once."""
    count = len(pools) if real is itertools.product else 1
    if len(pools) < count:
        raise Break("arguments", f"{real.__name__}() without an iterable by position")
    values = [tx.listed(pool) for pool in pools[:count]]
    numbers = [value.as_constant() for value in pools[count:]]
    named = {name: value.as_constant() for name, value in options.items()}
    rows: list[Variable] = []
    for row in tx.run_now(real, *values, *numbers, **named):
        tx.output.count_step()
        rows.append(TupleVar(list(row)))
    return tx.iter_of(ListVar(rows))


# ---- lists of tensors, for torch's optimizers and for clipping
@rule(torch._C._group_tensors_by_device_and_dtype)
def _group(tx: Frame, lists: Variable, with_indices: Any = ConstantVar(False), /) -> Variable:
    """One group, of the first list's device and dtype."""
    given: list[Any] = [ListVar(list(each.iterate(tx))) for each in lists.iterate(tx)]
    tensors = given[0].items if given else []
    if not all(isinstance(tensor, TensorVar) for tensor in tensors):
        raise Break("torch", "a list of tensors to group, in which something else lies")
    kinds = {(tensor.fake.device, tensor.fake.dtype) for tensor in tensors}
    if len(kinds) != 1:
        raise Break("torch", "tensors of several devices or dtypes, to be grouped")
    numbers = range(len(tensors) if with_indices.truth(tx) else 0)
    indices = ListVar([ConstantVar(number) for number in numbers])
    groups = DictVar({})
    kind = TupleVar([ConstantVar(part) for part in kinds.pop()])
    groups.store(tx, kind, TupleVar([ListVar(given), indices]))
    return groups


# ---- TorchScript
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
        return tx.call_fixed(function, *args, **kwargs)


def is_passed_on(kind: Any, value: Variable) -> bool:
    """Does a parameter of this type of TorchScript get the argument as it is?"""
    if isinstance(value, TensorVar):
        return True
    whole = kind is not None and kind.kind() == "FloatType" and value.python_type() is not float
    return not whole and isinstance(value, ConstantVar)


PINNED(torch._C.ScriptFunction)(lambda builder, value: ScriptedVar(value))
BY_VALUE(torch._C.ScriptFunction)(by_identity)  # what is read of it does not change
