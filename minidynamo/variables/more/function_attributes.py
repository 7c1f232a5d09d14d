"""Attributes of Python functions: `__name__`, `__defaults__`, those that a program sets.

In:   a FunctionVar and a name.   Out: the attribute, guarded if the function is from outside.

    >>> function.getattr(tx, "__name__")
"""

from __future__ import annotations

import types
from typing import TYPE_CHECKING

from ...exceptions import Break
from ...foreign import ours
from ..base import Variable, extends
from ..constant import ConstantVar
from ..containers import DictVar, TupleVar
from ..functions import FunctionVar

if TYPE_CHECKING:
    from ...symbolic_eval.evaluator import Frame


def written(name: str) -> bool:
    """Is this a field of every function that a program may replace?"""
    try:
        setattr(written, name, getattr(written, name))
    except ours(AttributeError, TypeError):
        return False
    return True


WRITABLE = frozenset(filter(written, dir(written)))


@extends(FunctionVar)
class FunctionAttributes(FunctionVar):
    def getattr(self, tx: Frame, name: str) -> Variable:
        if isinstance(self.attrs, DictVar) and name in self.attrs.items:
            return self.attrs.get(tx, ConstantVar(name))
        if name == "__dict__":
            return dict_of(self, tx)
        if self.fn is not None:
            return real_attribute(self, tx, name)
        if name in MADE_HERE:
            return MADE_HERE[name](self)
        return Variable.getattr(self, tx, name)

    def setattr(self, tx: Frame, name: str, value: Variable) -> None:
        if self.fn is not None:
            raise Break("attribute", f"setting .{name} of the function {self.name}")
        if name in ("__name__", "__qualname__"):
            self.name = value.as_constant()
        elif name == "__annotations__":
            self.annotations = value
        dict_of(self, tx).store(tx, ConstantVar(name), value)


def real_attribute(self: FunctionVar, tx: Frame, name: str) -> Variable:
    try:
        value = getattr(self.fn, name)
    except ours(AttributeError) as error:
        tx.raise_(AttributeError, *error.args)
    if name in ("__globals__", "__closure__"):
        raise Break("attribute", f"function.{name} is not traced")
    source = self.source or tx.output.tree.pinned(self.fn)
    if name not in WRITABLE and hasattr(types.FunctionType, name):
        return tx.output.wrap_pinned(value)
    return tx.output.wrap(value, source.attr(name))


def annotations_of(self: FunctionVar) -> Variable:
    self.annotations = self.annotations or DictVar({})
    return self.annotations


def dict_of(self: FunctionVar, tx: Frame) -> DictVar:
    if self.attrs is None and self.fn is None:
        self.attrs = DictVar({})
    elif self.attrs is None:
        source = self.source or tx.output.tree.pinned(self.fn)
        self.attrs = tx.output.wrap(vars(self.fn), source.attr("__dict__"))
    return self.attrs


MADE_HERE = {  # attributes of a function that was made in this frame
    "__name__": lambda f: ConstantVar(f.name.rpartition(".")[2]),
    "__qualname__": lambda f: ConstantVar(f.name),
    "__code__": lambda f: ConstantVar(f.code),
    "__doc__": lambda f: ConstantVar(
        next((doc for doc in f.code.co_consts[:1] if isinstance(doc, str)), None)
    ),
    "__module__": lambda f: ConstantVar(f.globals.get("__name__")),
    "__annotations__": annotations_of,
    "__defaults__": lambda f: TupleVar(list(f.defaults)) if f.defaults else ConstantVar(None),
}
