"""The standard library: functools, operator, inspect, logging.

    operator.itemgetter(1)(row)
    cached(3)        logger.debug("...")

In, out: see `symbolic_eval.registry`.  Mirrors torch/_dynamo/variables/misc.py and functions.py.

itertools: the real iterators of C run on variables, which `Host` and `Iterable` hand to them.

    itertools.chain(xs, ys)        itertools.product(xs, repeat=2)

In, out: see `symbolic_eval.registry`.  Mirrors torch/_dynamo/variables/iter.py.

copy.copy and copy.deepcopy of containers and plain objects: transformers copies its
configurations in `forward`.

    copy.copy(point)        copy.deepcopy(config)

In, out: see `symbolic_eval.registry`.  Objects with a protocol of their own break the graph.
"""

import copy
import dataclasses
import functools
import inspect
import itertools
import logging
import operator
import os
import sys
import types
import warnings
from collections.abc import Callable
from typing import Any

from ..errors import Break
from ..evaluate.calls import callable_of_type
from ..evaluate.evaluator import Frame
from ..evaluate.opcodes import exc_info
from ..evaluate.operations import on_host
from ..variables.base import NULL, Variable, current, lookup, trusted
from ..variables.classes import ClassVar
from ..variables.constant import ConstantVar
from ..variables.dicts import DictVar, ListVar, TupleVar
from ..variables.exceptions import nothing_handled
from ..variables.functions import BoundMethodVar, CallableVar, FunctionVar, PartialVar
from ..variables.iterators import LibraryIterator
from ..variables.nn_modules import ModuleVar
from ..variables.objects import ObjectVar
from ..variables.rules import NONE, refused, rule, rules
from ..variables.sets import SetVar


@rule(functools.partial)
def _partial(tx, function, /, *args, **kwargs):
    if isinstance(function, PartialVar):
        args, kwargs = [*function.args, *args], {**function.kwargs, **kwargs}
        function = function.function
    return PartialVar(function, list(args), kwargs)


@rule(types.MethodType)
def _method(tx, function, instance, /):
    if instance.identity() is None or not hasattr(function.python_type(), "__call__"):
        raise Break("arguments", f"a method of {function} and {instance}")
    return BoundMethodVar(function, instance)


# What these remember depends on the process alone, or on their arguments (and `warning_once` of
# transformers prints once, wherever that is).
PURE_CACHES = ("einops", "transformers.utils")


@callable_of_type(functools._lru_cache_wrapper)
def _cached(tx, function, args, kwargs):
    """Of torch, Python and `PURE_CACHES`: called now.  Others may read what the frame has written
    before, draw numbers, print: a miss and what is evicted must come where the program has them."""
    home = function.__module__ or ""
    if not trusted(home) and not home.startswith(PURE_CACHES):
        raise Break("cached function", f"{function.__qualname__} is cached by functools")
    if not all(may_be_a_key(value) for value in (*args, *kwargs.values())):
        return tx.output.wrap_pinned(function.__wrapped__).call(tx, args, kwargs)
    return tx.fold_pinned(on_host(function, args, kwargs))


def may_be_a_key(value: Variable) -> bool:
    """Is this a constant, or a logger?"""
    if value.is_constant():
        return True
    return isinstance(value, ObjectVar) and isinstance(value.value, logging.Logger)


# ---- operator.itemgetter and its like


@callable_of_type(operator.itemgetter)
def _items(tx, function, args, kwargs):
    if len(args) != 1:
        return None
    keys = function.__reduce__()[1]
    return one_or_all([args[0].getitem(tx, tx.output.wrap_result(key)) for key in keys])


@callable_of_type(operator.attrgetter)
def _attributes(tx, function, args, kwargs):
    if len(args) != 1:
        return None
    found = []
    for path in function.__reduce__()[1]:
        value = args[0]
        for name in path.split("."):
            value = value.getattr(tx, name)
        found.append(value)
    return one_or_all(found)


def one_or_all(found: list[Variable]) -> Variable:
    return TupleVar(found) if len(found) > 1 else found[0]


# ---- inspect, logging


def _fields(tx, value):
    """Fixed for a class: nothing is guarded."""
    cls = value.value if isinstance(value, ClassVar) else value.python_type()
    if not dataclasses.is_dataclass(cls):
        raise Break("arguments", f"dataclasses.fields() of {value}")
    return TupleVar([tx.output.wrap_pinned(field) for field in dataclasses.fields(cls)])


def _locals(tx):
    code, found = tx.code, {**{name: cell.load(tx) for name, cell in tx.cells.items()}, **tx.locals}
    names = [
        name
        for name in dict.fromkeys((*code.co_varnames, *code.co_cellvars, *code.co_freevars))
        if name[0] != "." and found.get(name) not in (None, NULL)
    ]
    return DictVar({name: (ConstantVar(name), found[name].realize(tx)) for name in names})


def _log(level, tx, logger, *args, **kwargs):
    """Logger.debug/info...: nothing happens while the level is off (guarded); else the graph
    breaks."""
    logger = logger.real()
    if tx.run_now(logger.isEnabledFor, level):
        text = f"Logger call at level {logging.getLevelName(level)}"
        raise Break("logging", text, "log outside the compiled function")
    check = f"{{0}}.isEnabledFor({level}) is False"
    tx.output.guard(tx.output.tree.pinned(logger), ("LOGGER", level), check)


# ---- the exception that is being handled
def _exception(tx: Frame) -> Variable:
    handled = tx.handling()
    if handled is None and not nothing_handled(tx.output):
        raise Break("exception", "what is being handled around this frame")
    return NONE if handled is None else handled


def _exc_info(tx: Frame) -> TupleVar:
    handled = _exception(tx)
    return TupleVar([NONE] * 3 if handled is NONE else exc_info(tx, handled))


rules(
    {
        sys.exception: _exception,
        sys.exc_info: _exc_info,
        sys.intern: lambda tx, text: tx.fold(sys.intern, text.as_constant()),
        os.fspath: lambda tx, path: tx.fold(os.fspath, path.as_constant()),
        dataclasses.fields: _fields,
        locals: _locals,
        warnings.warn: refused("warning", "warnings.warn()", "warn outside the compiled function"),
    }
)
for _name in ("_path_normpath", "_path_splitroot", "_path_splitroot_ex"):  # pathlib, os.path
    if _split := getattr(sys.modules[os.name], _name, None):
        rule(_split)(lambda tx, path, _split=_split: tx.fold(_split, path.as_constant()))
for _function in (
    *(operator.itemgetter, operator.attrgetter, object),
    *(inspect.Parameter, inspect.signature, inspect.getfullargspec, logging.getLogger),
):  # what they make from real objects is the same each time
    rule(_function)(
        lambda tx, *args, _function=_function, **kwargs: tx.fold_pinned(
            on_host(_function, args, kwargs)
        )
    )
for _name in ("debug", "info", "warning", "error", "critical"):
    _level = getattr(logging, _name.upper())
    rule(getattr(logging.Logger, _name))(functools.partial(_log, _level))


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


PROTOCOL = ("__reduce_ex__", "__reduce__", "__getstate__", "__setstate__", "__slots__")


def shallow_copy(tx: Frame, value: Variable) -> Variable:
    if isinstance(value, (ListVar, DictVar, SetVar)):
        return value.call_method(tx, "copy", [], {})
    if isinstance(value, (ConstantVar, TupleVar, ClassVar, FunctionVar)):
        return value
    return copied_object(tx, value, "__copy__", lambda item: item)


def deep_copy(tx: Frame, value: Variable, done: dict[int, Any]) -> Variable:
    """done: id of a variable that was met before -> its copy."""
    if isinstance(value, (ConstantVar, ClassVar, FunctionVar, CallableVar)):
        return value
    if id(value) in done:
        return done[id(value)]
    if isinstance(value, DictVar):
        made = done[id(value)] = value.call_method(tx, "copy", [], {})
        for key, item in value.pairs(tx):
            made.store(tx, key, deep_copy(tx, item, done))
        return made
    if isinstance(value, SetVar):
        return value.method_copy(tx)
    if isinstance(value, ListVar):
        made = done[id(value)] = value.method_copy(tx)
        made.items[:] = [deep_copy(tx, item, done) for item in value.iterate(tx)]
        return made
    if isinstance(value, TupleVar):
        return TupleVar([deep_copy(tx, item, done) for item in value.iterate(tx)], value.cls)
    return copied_object(tx, value, "__deepcopy__", lambda item: deep_copy(tx, item, done))


def copied_object(
    tx: Frame, value: Variable, special: str, copy_item: Callable[[Variable], Variable]
) -> ObjectVar:
    """A plain object with its fields copied."""
    plain = isinstance(value, ObjectVar) and not isinstance(value, ModuleVar)
    if not plain or value.payload is not None or value.fields is None:
        raise Break("C function", f"copying {value}")
    if any(lookup(value.cls, name)[0] not in (None, object) for name in (special, *PROTOCOL)):
        raise Break("C function", f"copying {value}")
    fields = DictVar({})
    for key, item in value.fields.pairs(tx):
        fields.store(tx, key, copy_item(item))
    return ObjectVar(value.cls, fields=fields)


rules({copy.copy: shallow_copy, copy.deepcopy: lambda tx, value: deep_copy(tx, value, {})})
