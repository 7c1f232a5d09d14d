"""The standard library and NumPy: functools, operator, inspect, logging, copy, numpy.

    functools.partial(f, 1)(x)        cached(3)        operator.itemgetter(1)(row)
    logger.debug("...")               numpy.sqrt(64)

In:   the arguments of the call, as variables.   Out: a variable; a break.

Of copy.copy and copy.deepcopy, containers and plain objects are traced; objects with a protocol of
their own break the graph.  A number of NumPy's is a constant, as Python's are, and a function of
such constants is called now.  Arrays are not traced: calls that give one or take one are graph
breaks, as is `tensor.numpy()`.
Mirrors torch/_dynamo/variables/misc.py and functions.py.
# PyTorch: torch._numpy computes with arrays in the graph (NumpyNdarrayVariable).
"""

import copy
import dataclasses
import functools
import inspect
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
from ..evaluate.exceptions import exc_info
from ..evaluate.operations import on_host
from ..variables.base import Args, Frame, Named, Variable, lookup, trusted
from ..variables.classes import ClassVar
from ..variables.constant import ARRAYS, ConstantVar
from ..variables.dicts import DictVar, ListVar, SetVar, TupleVar
from ..variables.functions import BoundMethodVar, CallableVar, FunctionVar, PartialVar
from ..variables.nn_modules import ModuleVar
from ..variables.objects import ObjectVar, nothing_handled
from ..variables.registry import NONE, refused, rule, rule_of_each, rules


# ---- functools, types
@rule(functools.partial)
def _partial(tx: Frame, function: Any, /, *args: Any, **kwargs: Any) -> Variable:
    if isinstance(function, PartialVar):
        args, kwargs = (*function.args, *args), {**function.kwargs, **kwargs}
        function = function.function
    return PartialVar(function, list(args), kwargs)


@rule(types.MethodType)
def _method(tx: Frame, function: Variable, instance: Variable, /) -> Variable:
    if instance.identity() is None or not hasattr(function.python_type(), "__call__"):
        raise Break("arguments", f"a method of {function} and {instance}")
    return BoundMethodVar(function, instance)


# What these remember depends on the process alone, or on their arguments (and `warning_once` of
# transformers prints once, wherever that is).
PURE_CACHES = ("einops", "transformers.utils")


@callable_of_type(functools._lru_cache_wrapper)
def _cached(tx: Frame, function: Any, args: Args, kwargs: Named) -> Variable:
    """Cached functions of torch, Python and `PURE_CACHES` are called while tracing.  Others break
    the graph: they may read what the frame has written, draw numbers or print, on each miss."""
    home = function.__module__ or ""
    if not trusted(home) and not home.startswith(PURE_CACHES):
        raise Break("cached function", f"{function.__qualname__} is cached by functools")
    if not all(may_be_a_key(value) for value in (*args, *kwargs.values())):
        return tx.call_fixed(function.__wrapped__, *args, **kwargs)
    return tx.fold(on_host(function, args, kwargs))


def may_be_a_key(value: Variable) -> bool:
    """Is this a constant, or a logger?"""
    if value.is_constant():
        return True
    return isinstance(value, ObjectVar) and isinstance(value.value, logging.Logger)


# ---- operator.itemgetter and its like
@callable_of_type(operator.itemgetter)
def _items(tx: Frame, function: Any, args: Args, kwargs: Named) -> Variable:
    keys = function.__reduce__()[1]
    return one_or_all([args[0].getitem(tx, tx.output.wrap_result(key)) for key in keys])


@callable_of_type(operator.attrgetter)
def _attributes(tx: Frame, function: Any, args: Args, kwargs: Named) -> Variable:
    def read(value: Variable, name: str) -> Variable:
        return value.getattr(tx, name)

    paths = function.__reduce__()[1]
    return one_or_all([functools.reduce(read, path.split("."), args[0]) for path in paths])


def one_or_all(found: list[Variable]) -> Variable:
    return TupleVar(found) if len(found) > 1 else found[0]


# ---- dataclasses, logging, the exception that is being handled
def _fields(tx: Frame, value: Any) -> Variable:
    """Fixed for a class: nothing is guarded."""
    cls = value.value if isinstance(value, ClassVar) else value.python_type()
    if not dataclasses.is_dataclass(cls):
        raise Break("arguments", f"dataclasses.fields() of {value}")
    return TupleVar([tx.output.wrap_pinned(field) for field in dataclasses.fields(cls)])


def _log(level: int, tx: Frame, logger: Any, *args: Variable, **kwargs: Variable) -> None:
    """Logger.debug/info...: nothing happens while the level is off (guarded); else the graph
    breaks."""
    logger = logger.real()
    if tx.run_now(logger.isEnabledFor, level):
        text = f"Logger call at level {logging.getLevelName(level)}"
        raise Break("logging", text, "log outside the compiled function")
    check = f"{{0}}.isEnabledFor({level}) is False"
    tx.output.guard(tx.output.tree.pinned(logger), ("LOGGER", level), check)


for _name in ("debug", "info", "warning", "error", "critical"):
    _level = getattr(logging, _name.upper())
    rule(getattr(logging.Logger, _name))(functools.partial(_log, _level))


def _exception(tx: Frame) -> Variable:
    handled = tx.handling()
    if handled is None and not nothing_handled(tx.output):
        raise Break("exception", "what is being handled around this frame")
    return NONE if handled is None else handled


def _exc_info(tx: Frame) -> Variable:
    handled = _exception(tx)
    return TupleVar([NONE] * 3 if handled is NONE else exc_info(tx, handled))


# what they make from real objects is the same each time
FIXED: tuple[Any, ...] = (operator.itemgetter, operator.attrgetter, object, logging.getLogger)
FIXED += (inspect.Parameter, inspect.signature, inspect.getfullargspec)


@rule_of_each(*FIXED)
def _pinned_result(function: Callable, tx: Frame, *args: Any, **kwargs: Variable) -> Variable:
    return tx.fold(on_host(function, args, kwargs))


rules(
    {
        sys.exception: _exception,
        sys.exc_info: _exc_info,
        dataclasses.fields: _fields,
        warnings.warn: refused("warning", "warnings.warn()", "warn outside the compiled function"),
    }
)


# ---- copy: transformers copies its configurations in `forward`
PROTOCOL = ("__reduce_ex__", "__reduce__", "__getstate__", "__setstate__", "__slots__")


def copied(tx: Frame, value: Any, done: dict[int, Any], deep: bool = True) -> Any:
    """copy.deepcopy(value), or copy.copy(value).  done: id of a variable that was met -> its
    copy."""

    def copy_item(item: Variable) -> Variable:
        return copied(tx, item, done) if deep else item

    if isinstance(value, (ConstantVar, ClassVar, FunctionVar, CallableVar)):
        return value
    if id(value) in done:
        return done[id(value)]
    if isinstance(value, TupleVar):
        items = list(map(copy_item, value.iterate(tx)))
        is_same = value.cls is tuple and items == value.items
        return done.setdefault(id(value), value if is_same else TupleVar(items, value.cls))
    is_container = isinstance(value, (DictVar, ListVar, SetVar))
    made: Any = value.call_method(tx, "copy", [], {}) if is_container else blank(value, deep)
    done[id(value)] = made
    if is_container and not deep:
        return made
    if isinstance(value, ListVar):
        made.items[:] = map(copy_item, value.iterate(tx))
        return made
    old, new = (value, made) if is_container else (value.fields, made.fields)
    if not all(key.is_constant() for key in old.iterate(tx)):
        raise Break("C function", f"copying {value}, whose keys would be copied, too")
    for key, item in old.pairs(tx) if isinstance(old, DictVar) else ():
        new.store(tx, key, copy_item(item))
    return made


def blank(value: Any, deep: bool) -> ObjectVar:
    """A plain object of the same class without fields; a break for what has its own protocol."""
    plain = isinstance(value, ObjectVar) and not isinstance(value, ModuleVar)
    if not plain or value.payload is not None or value.fields is None:
        raise Break("C function", f"copying {value}")
    names = ("__deepcopy__" if deep else "__copy__", *PROTOCOL)
    if any(lookup(value.cls, name)[0] not in (None, object) for name in names):
        raise Break("C function", f"copying {value}")
    return ObjectVar(value.cls, fields=DictVar({}))


rules(
    {
        copy.copy: lambda tx, value, /: copied(tx, value, {}, deep=False),
        copy.deepcopy: lambda tx, value, /: copied(tx, value, {}),
    }
)


# ---- functions of constants, which are called now: NumPy's among them
OF_CONSTANTS: set[Any] = {range, round, format, sys.intern, os.fspath}
if ARRAYS:
    import numpy

    OF_CONSTANTS |= {f for f in vars(numpy).values() if type(f) is numpy.ufunc}
    OF_CONSTANTS |= {numpy.prod, numpy.sum, numpy.mean}


@rule_of_each(*OF_CONSTANTS)
def _computed(function: Callable, tx: Frame, *args: Any, **kwargs: Variable) -> Variable:
    return tx.computed(function, args, kwargs)
