"""Rules for the standard library: typing, dataclasses, inspect, copy, warnings, logging.

In, out: as in `builtin_rules`, whose table these rules join.

    >>> RULES[dataclasses.fields](tx, [class_variable], {})
Mirrors torch/_dynamo/variables/misc.py and the polyfills of torch/_dynamo.
"""
import contextlib
import copy
import dataclasses
import inspect
import logging
import sys
import typing
import warnings

from ..exceptions import Break
from ..variables.constant import ConstantVar
from ..variables.containers import DictVar, ListVar, SetVar, TupleVar
from ..variables.functions import CallableVar, FunctionVar
from ..variables.objects import ClassVar, ModuleVar, ObjectVar, lookup
from .builtin_rules import NONE, RULES, rule

@rule(typing.cast)
def _cast(tx, args, kwargs):
    return args[1]


@rule(dataclasses.fields)
def _fields(tx, args, kwargs):
    cls = args[0].value if isinstance(args[0], ClassVar) else args[0].python_type()
    return TupleVar([tx.output.wrap_pinned(field) for field in dataclasses.fields(cls)])


@rule(dataclasses.is_dataclass)
def _is_dataclass(tx, args, kwargs):
    return ConstantVar(hasattr(args[0].value if isinstance(args[0], ClassVar) else args[0].python_type(), "__dataclass_fields__"))


def _fold_inspect(function):
    return lambda tx, args, kwargs: tx.fold_pinned(lambda: function(*[a.real() for a in args], **{k: v.real() for k, v in kwargs.items()}))


for _function in (inspect.signature, inspect.isfunction, inspect.isclass, inspect.ismethod, inspect.isgeneratorfunction,
                  inspect.getfullargspec):
    RULES[_function] = _fold_inspect(_function)


@rule(sys.exc_info)
def _exc_info(tx, args, kwargs):
    """For contextlib's ExitStack, which asks whether an exception is being handled around it."""
    frame = tx
    while frame is not None and not frame.handled:
        frame = frame.parent
    if frame is not None or tx.code.co_filename != contextlib.__file__:
        raise Break("C function", "the call of sys.exc_info()")
    return TupleVar([NONE] * 3)


@rule(warnings.warn)
def _warn(tx, args, kwargs):
    raise Break("warning", "warnings.warn()", "warn outside the compiled function")


@rule(copy.copy)
def _copy(tx, args, kwargs):
    value = args[0]
    if isinstance(value, (ListVar, DictVar, SetVar)):
        return value.call_method(tx, "copy", [], {})
    if isinstance(value, (ConstantVar, TupleVar, ClassVar, FunctionVar)):
        return value
    return copied_object(tx, value, "__copy__", lambda item: item)


@rule(copy.deepcopy)
def _deepcopy(tx, args, kwargs):
    return deep_copy(tx, args[0], {})


def deep_copy(tx, value, done):
    """copy.deepcopy of containers and plain objects."""
    if isinstance(value, (ConstantVar, ClassVar, FunctionVar, CallableVar)):
        return value
    if id(value) in done:
        return done[id(value)]
    if isinstance(value, DictVar):
        made = done[id(value)] = DictVar({}, value.cls, factory=value.factory)
        for key, item in value.pairs(tx):
            made.store(tx, key, deep_copy(tx, item, done))
        return made
    if isinstance(value, SetVar):
        return value.method_copy(tx)
    if isinstance(value, ListVar):
        made = done[id(value)] = ListVar([], value.cls)
        made.extra = value.extra
        made.items.extend(deep_copy(tx, item, done) for item in value.iterate(tx))
        return made
    if isinstance(value, TupleVar):
        return TupleVar([deep_copy(tx, item, done) for item in value.iterate(tx)], value.cls)
    return copied_object(tx, value, "__deepcopy__", lambda item: deep_copy(tx, item, done))


def copied_object(tx, value, special, copy_item):
    """A plain object with its fields copied; anything with a protocol of its own breaks the graph."""
    if not isinstance(value, ObjectVar) or value.payload is not None or value.fields is None or \
            isinstance(value, ModuleVar) or any(lookup(value.cls, name)[0] not in (None, object) for name in
                                                (special, "__reduce_ex__", "__reduce__", "__getstate__", "__setstate__", "__slots__")):
        raise Break("C function", f"copying {value}")
    fields = DictVar({})
    for key, item in value.fields.pairs(tx):
        fields.store(tx, key, copy_item(item))
    return ObjectVar(value.cls, fields=fields)


@rule(logging.getLogger)
def _get_logger(tx, args, kwargs):
    return tx.output.wrap_pinned(logging.getLogger(*[a.as_constant() for a in args]))


def _log_rule(level):
    def log(tx, args, kwargs):
        """Logger.debug/info...: nothing happens while the level is off (guarded); else the graph breaks."""
        logger = args[0].real()
        if logger.isEnabledFor(level):
            raise Break("logging", f"Logger call at level {logging.getLevelName(level)}", "log outside the compiled function")
        tx.output.guard(tx.output.tree.pinned(logger), ("LOGGER", level), f"{{0}}.isEnabledFor({level}) is False")
        return NONE
    return log


for _name, _level in (("debug", 10), ("info", 20), ("warning", 30), ("error", 40), ("critical", 50)):
    RULES[getattr(logging.Logger, _name)] = _log_rule(_level)
