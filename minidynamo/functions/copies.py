"""copy.copy and copy.deepcopy of containers and plain objects: transformers copies its
configurations in `forward`.

    copy.copy(point)        copy.deepcopy(config)

In, out: see `variables/registry.py`.  Objects with a protocol of their own break the graph.
"""

import copy
from collections.abc import Callable
from typing import Any

from ..errors import Break
from ..evaluate.evaluator import Frame
from ..variables.registry import rules
from ..variables.base import Variable
from ..variables.classes import ClassVar
from ..variables.constant import ConstantVar
from ..variables.dicts import DictVar, ListVar, SetVar, TupleVar
from ..variables.functions import CallableVar, FunctionVar
from ..variables.base import lookup
from ..variables.nn_modules import ModuleVar
from ..variables.objects import ObjectVar

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
