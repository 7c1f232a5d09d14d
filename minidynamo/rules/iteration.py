"""itertools: the real iterators of C run on variables, which `Host` and `Iterable` hand to them.

    itertools.chain(xs, ys)        itertools.product(xs, repeat=2)

In, out: see `symbolic_eval.registry`.  Mirrors torch/_dynamo/variables/iter.py.
"""

import itertools
import operator

from ..exceptions import Break
from ..symbolic_eval.registry import NONE, rule
from ..variables.base import Variable, current
from ..variables.functions import CallableVar
from ..variables.more.iterators import LibraryIterator


class Iterable:
    """A variable for host code, which asks for its iterator when it needs it."""

    def __init__(self, tx, values, convert=None):
        self.values, self.convert = values, convert

    def __iter__(self):
        host = Host(current(), self.values)
        return host if self.convert is None else map(self.convert, host)

    def __length_hint__(self):
        current().length_hint(self.values)
        return 0


class Host:
    """An iterator variable for host code, perhaps of another frame than the one that asks for the
    next value."""

    def __init__(self, tx, values):
        self.iterator = tx.iter_of(values)

    def __iter__(self):
        return self

    def __next__(self):
        current().output.count_step()
        value = self.iterator.next(current())
        if value is None:
            raise StopIteration
        return value


def _function(tx, function):
    function = SUM if function.identity() is None else function  # accumulate's None
    return lambda *args: function.call(current(), list(args), {})


def _test(tx, function):
    return lambda value: (
        value if function.identity() is None else function.call(current(), [value], {})
    ).truth(current())


AS_HOST = {
    "iterable": Iterable,
    "iterables": lambda tx, values: Iterable(tx, values, lambda value: Iterable(tx, value)),
    "function": _function,
    "test": _test,
    "rows": lambda tx, values: Iterable(tx, values, lambda row: tuple(current().listed(row))),
    "truths": lambda tx, values: Iterable(tx, values, lambda value: value.truth(current())),
    "number": lambda tx, value: value.as_constant(),
    "value": lambda tx, value: value,
    "initial": lambda tx, value: None if value.identity() is None else value,
}
SUM = CallableVar(operator.add)
ITERTOOLS = {  # positional arguments (... repeats the one before), keywords, defaults
    itertools.chain: ("iterable ...", {}),
    itertools.chain.from_iterable: ("iterables", {}),
    itertools.cycle: ("iterable", {}),
    itertools.pairwise: ("iterable", {}),
    itertools.compress: ("iterable truths", {}),
    itertools.islice: ("iterable number ...", {}),
    itertools.repeat: ("value number", {"times": "number"}),
    itertools.count: ("number number", {"start": "number", "step": "number"}),
    itertools.product: ("iterable ...", {"repeat": "number"}),
    itertools.permutations: ("iterable number", {}),
    itertools.combinations: ("iterable number", {}),
    itertools.combinations_with_replacement: ("iterable number", {}),
    itertools.takewhile: ("test iterable", {}),
    itertools.dropwhile: ("test iterable", {}),
    itertools.filterfalse: ("test iterable", {}),
    itertools.starmap: ("function rows", {}),
    itertools.accumulate: (
        "iterable function",
        {"func": "function", "initial": "initial"},
        {"func": SUM},
    ),
    itertools.zip_longest: ("iterable ...", {"fillvalue": "value"}, {"fillvalue": NONE}),
}
if hasattr(itertools, "batched"):
    ITERTOOLS[itertools.batched] = "iterable number", {"strict": "number"}


def _itertools_rule(real, positional, keywords, defaults={}):
    kinds = positional.split()
    if kinds[-1] == "...":
        kinds = kinds[:-1] + kinds[-2:-1] * 250

    def make(tx, *args, **kwargs):
        if len(args) > len(kinds) or not kwargs.keys() <= keywords.keys():
            raise Break("arguments", f"the arguments of itertools.{real.__name__}()")
        if kinds[-1] == "iterable" or len(args) < len(kinds):
            kwargs = {**defaults, **kwargs}
        values = [AS_HOST[kind](tx, value) for kind, value in zip(kinds, args)]
        named = {name: AS_HOST[keywords[name]](tx, value) for name, value in kwargs.items()}
        return library_iterator(tx, tx.run_c(real, *values, **named))

    return make


for _real, _row in ITERTOOLS.items():
    rule(_real)(_itertools_rule(_real, *_row))


def library_iterator(tx, iterator, cls=None) -> Variable:
    made = tx.user_stack(), tx.output.root.group_step
    return LibraryIterator(iterator, made, cls or type(iterator))
