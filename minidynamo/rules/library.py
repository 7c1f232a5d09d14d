"""The standard library: functools, operator, inspect, logging.

    operator.itemgetter(1)(row)
    cached(3)        logger.debug("...")

In, out: see `symbolic_eval.registry`.  Mirrors torch/_dynamo/variables/misc.py and functions.py.
"""

import dataclasses
import functools
import inspect
import logging
import operator
import os
import sys
import types
import warnings

from ..exceptions import Break
from ..symbolic_eval.operations import on_host
from ..symbolic_eval.registry import refused, rule, rules
from ..symbolic_eval.calls import callable_of_type
from ..variables.base import NULL, Variable
from ..variables.classes import ClassVar
from ..variables.constant import ConstantVar
from ..variables.containers import DictVar, TupleVar
from ..variables.functions import BoundMethodVar, PartialVar
from ..variables.lookup import trusted
from ..variables.objects import ObjectVar


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


rules(
    {
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
