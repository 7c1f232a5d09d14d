"""The standard library: typing, dataclasses, inspect, os, copy, warnings, logging.

In, out: see `symbolic_eval.registry`.

    >>> RULES[dataclasses.fields](tx, [class_variable], {})
Mirrors torch/_dynamo/variables/misc.py and the polyfills of torch/_dynamo.
"""

import collections
import copy
import dataclasses
import functools
import inspect
import logging
import os
import sys
import types
import typing
import warnings

from ..exceptions import Break
from ..variables.base import NULL
from ..variables.constant import ConstantVar
from ..variables.containers import DictVar, ListVar, TupleVar
from ..variables.functions import BoundMethodVar, CallableVar, FunctionVar
from ..variables.more.partials import PartialVar
from ..variables.more.sets import SetVar
from ..variables.classes import ClassVar
from ..variables.lookup import lookup
from ..variables.nn_modules import ModuleVar
from ..variables.objects import ObjectVar
from ..symbolic_eval.registry import NONE, refused, rules
from .opcodes_exceptions import exc_info


def _class_of(value):
    return value.value if isinstance(value, ClassVar) else value.python_type()


def _fields(tx, value):
    if not dataclasses.is_dataclass(_class_of(value)):
        raise Break("arguments", f"dataclasses.fields() of {value}")
    return TupleVar(
        [tx.output.wrap_pinned(field) for field in dataclasses.fields(_class_of(value))]
    )


def _fold_inspect(function, tx, *args, **kwargs):
    return tx.fold_pinned(
        lambda: function(*[a.real() for a in args], **{k: v.real() for k, v in kwargs.items()})
    )


def _is_generator_function(tx, function):
    while isinstance(function, (BoundMethodVar, PartialVar)):
        function = function.function
    return ConstantVar(
        isinstance(function, FunctionVar) and bool(function.code.co_flags & inspect.CO_GENERATOR)
    )


def _locals(tx):
    code, found = tx.code, {**{name: cell.load(tx) for name, cell in tx.cells.items()}, **tx.locals}
    names = [
        name
        for name in dict.fromkeys((*code.co_varnames, *code.co_cellvars, *code.co_freevars))
        if name[0] != "." and found.get(name) not in (None, NULL)
    ]
    return DictVar({name: (ConstantVar(name), found[name].realize(tx)) for name in names})


def _exception(tx):
    handled = tx.handling()
    if handled is None and not tx.output.nothing_handled():
        raise Break("exception", "what is being handled around this frame")
    return handled


def _exc_info(tx):
    handled = _exception(tx)
    return TupleVar([NONE] * 3 if handled is None else exc_info(tx, handled))


def _copy(tx, value):
    if isinstance(value, (ListVar, DictVar, SetVar)) and not with_attributes(value):
        return value.call_method(tx, "copy", [], {})
    if isinstance(value, (ConstantVar, TupleVar, ClassVar, FunctionVar)):
        return value
    return copied_object(tx, value, "__copy__", lambda item: item)


def with_attributes(value):
    """May it have any?  An OrderedDict from outside may."""
    return value.cls is collections.OrderedDict and value.source is not None


def deep_copy(tx, value, done):
    """copy.deepcopy of containers and plain objects."""
    if isinstance(value, (ConstantVar, ClassVar, FunctionVar, CallableVar)):
        return value
    if id(value) in done:
        return done[id(value)]
    if isinstance(value, DictVar) and not with_attributes(value):
        made = done[id(value)] = DictVar({}, value.cls, factory=value.factory)
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


def copied_object(tx, value, special, copy_item):
    """A plain object with its fields copied; anything with a protocol of its own breaks the
    graph."""
    if (
        not isinstance(value, ObjectVar)
        or value.payload is not None
        or value.fields is None
        or isinstance(value, ModuleVar)
        or any(
            lookup(value.cls, name)[0] not in (None, object)
            for name in (
                special,
                "__reduce_ex__",
                "__reduce__",
                "__getstate__",
                "__setstate__",
                "__slots__",
            )
        )
    ):
        raise Break("C function", f"copying {value}")
    fields = DictVar({})
    for key, item in value.fields.pairs(tx):
        fields.store(tx, key, copy_item(item))
    return ObjectVar(value.cls, fields=fields)


def _log(level, tx, logger, *args, **kwargs):
    """Logger.debug/info...: nothing happens while the level is off (guarded); else the graph
    breaks."""
    logger = logger.real()
    if tx.run_now(logger.isEnabledFor, level):
        raise Break(
            "logging",
            f"Logger call at level {logging.getLevelName(level)}",
            "log outside the compiled function",
        )
    tx.output.guard(
        tx.output.tree.pinned(logger), ("LOGGER", level), f"{{0}}.isEnabledFor({level}) is False"
    )


rules(
    {
        typing.cast: lambda tx, kind, value: value,
        os.fspath: lambda tx, path: tx.fold(os.fspath, path.as_constant()),
        dataclasses.fields: _fields,
        dataclasses.is_dataclass: lambda tx, value: ConstantVar(
            hasattr(_class_of(value), "__dataclass_fields__")
        ),
        **{
            function: functools.partial(_fold_inspect, function)
            for function in (inspect.signature, inspect.getfullargspec)
        },
        inspect.isfunction: lambda tx, value: ConstantVar(
            issubclass(value.python_type(), types.FunctionType)
        ),
        inspect.isclass: lambda tx, value: ConstantVar(issubclass(value.python_type(), type)),
        inspect.ismethod: lambda tx, value: ConstantVar(
            issubclass(value.python_type(), types.MethodType)
        ),
        inspect.isgeneratorfunction: _is_generator_function,
        locals: _locals,
        sys.exception: _exception,
        sys.exc_info: _exc_info,
        warnings.warn: refused("warning", "warnings.warn()", "warn outside the compiled function"),
        copy.copy: _copy,
        copy.deepcopy: lambda tx, value: deep_copy(tx, value, {}),
        logging.getLogger: lambda tx, *name: tx.output.wrap_pinned(
            logging.getLogger(*[a.as_constant() for a in name])
        ),
        **{
            getattr(logging.Logger, name): functools.partial(_log, level)
            for name, level in (
                ("debug", 10),
                ("info", 20),
                ("warning", 30),
                ("error", 40),
                ("critical", 50),
            )
        },
    }
)
