"""Callables of functools, operator and NumPy: partial, reduce, caches, getters, ufuncs.

functools.reduce(f, xs)        operator.itemgetter(1)(row)        cached(3)        numpy.add(2, 3)
"""

import collections
import functools
import inspect
import logging
import operator
import sys
import types

from ..exceptions import Break
from ..guards import constant_check
from ..symbolic_eval.registry import callable_of_type, rule, rules, traced
from ..variables.base import Variable
from ..variables.constant import NUMPY, ConstantVar, is_constant_value
from ..variables.containers import TupleVar
from ..variables.functions import BoundMethodVar
from ..variables.lookup import trusted
from ..variables.more.partials import PartialVar
from ..variables.objects import ObjectVar
from . import polyfills


@rule(functools.partial)
def _partial(tx, function, /, *args, **kwargs):
    if isinstance(function, PartialVar):
        args, kwargs = [*function.args, *args], {**function.kwargs, **kwargs}
        function = function.function
    return PartialVar(function, list(args), kwargs, None)


@rule(types.MethodType)
def _method(tx, function, instance, /):
    if instance.identity() is None or not hasattr(function.python_type(), "__call__"):
        raise Break("arguments", f"a method of {function} and {instance}")
    return BoundMethodVar(function, instance)


rules(
    {
        functools.reduce: traced(polyfills.reduce),
        getattr(collections, "_count_elements"): traced(polyfills.count_elements),
    }
)


@callable_of_type(functools._lru_cache_wrapper)
def _cached(tx, function, args, kwargs):
    """Its results are cached by its own contract, until it is cleared; logger.warning_once(text)
    prints once."""
    if not all(may_be_a_key(value) for value in (*args, *kwargs.values())):
        return tx.output.wrap_pinned(function.__wrapped__).call(tx, args, kwargs)
    named = {name: value.real() for name, value in kwargs.items()}
    call = functools.partial(function, *[value.real() for value in args], **named)
    result = tx.fold_pinned(call)
    if not trusted(function.__module__):
        check, pin = "{0} is {pin}", call()
        if is_constant_value(pin):
            check, pin = constant_check(pin)
        source = tx.output.tree.pinned(call, function.__name__)
        tx.output.guard(source, "CACHED", check.replace("{0}", "{0}()"), pin)
    return result


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


@callable_of_type(operator.methodcaller)
def _method_call(tx, function, args, kwargs):
    if type(function.__reduce__()[0]) is not type:  # with named arguments
        return None
    name, *values = function.__reduce__()[1]
    return args[0].call_method(tx, name, [tx.output.wrap_result(item) for item in values], {})


def _folded_class(cls: type, tx, *args, **kwargs):
    named = {name: value.real() for name, value in kwargs.items()}
    return tx.output.wrap_pinned(cls(*[value.real() for value in args], **named))


for _class in (
    operator.itemgetter,
    operator.attrgetter,
    operator.methodcaller,
    inspect.Parameter,
    object,
):
    rule(_class)(functools.partial(_folded_class, _class))


# ---- NumPy's functions, on numbers


if NUMPY:

    @callable_of_type(type(sys.modules["numpy"].add))
    def _ufunc(tx, function, args, kwargs):
        if not all(type(value) is ConstantVar for value in (*args, *kwargs.values())):
            return None
        named = {name: value.value for name, value in kwargs.items()}
        result = tx.fold(function, *[value.value for value in args], **named)
        if type(result) is ConstantVar:
            return result
        raise Break("C function", f"numpy.{function.__name__}() made an array")
