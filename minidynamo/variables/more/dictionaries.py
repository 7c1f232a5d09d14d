"""Dictionaries: reading items, views, and code that makes them again.

In:   a dict and keys, as variables.
Out:  items, guarded one by one; `keys()`, `values()`, `items()`; instructions behind the graph.

    >>> DictVar(named({"a": x})).getitem(tx, ConstantVar("a"))      # x

Mirrors torch/_dynamo/variables/dicts.py.
"""

import functools
import collections
from collections.abc import Callable, Iterator
from typing import Any, cast

from ...extras.extending import extends
from ..base import Codegen, Frame, OutputGraph, Variable, current
from ..constant import ConstantVar
from ..containers import DictVar, DictViewVar, TupleVar
from ..registry import RESULTS
from .writing_calls import commit_call

plain_replay, values_of = DictVar.replay, DictViewVar.iterate


@extends(DictVar)
class Items(DictVar):
    factory = cast(Any, None)  # of a defaultdict
    rewritten = False  # does the replay store everything?
    removed = 0  # how often a key was removed or moved

    def truth(self, tx: Frame) -> bool:
        return self.length(tx) > 0

    def length(self, tx: Frame) -> int:
        return len(self.keys(tx))

    def getitem(self, tx: Frame, key: Variable) -> Variable:
        value = self.get(tx, key)
        if value is None:
            if self.factory is not None and self.factory.realize(tx).identity() is not None:
                value = self.factory.realize(tx).call(tx, [], {})
                self.store(tx, key, value)
                return value
            tx.raise_var(KeyError, [key])
        return value

    def method_get(self, tx: Frame, key: Variable, default: Variable = ConstantVar(None), /) -> Any:
        value = self.get(tx, key)
        return default if value is None else value

    def method_keys(self, tx: Frame) -> Any:
        return DictViewVar(self, "keys")

    def method_items(self, tx: Frame) -> Any:
        return DictViewVar(self, "items")

    def argument(self, part: Callable[[Variable], Any]) -> Any:
        return {key.as_constant(): part(value) for key, value in self.pairs(current())}


@extends(DictViewVar, "iterate")
def walk(view: DictViewVar, tx: Frame) -> Iterator[Variable]:
    if view.kind == "values":
        return values_of(view, tx)
    keys = view.dict.keys(tx)
    if view.kind == "keys":
        return iter(keys)
    return (TupleVar([key, view.dict.get(tx, key)]) for key in keys)


@extends(DictVar)
class MadeAgain(Items):
    def contents(self, cg: Codegen) -> None:
        """Push a dict of the items."""
        mapping(cg, self.items)

    def reconstruct(self, cg: Codegen) -> None:
        if self.cls is dict:
            self.contents(cg)
        elif self.cls is collections.defaultdict:
            factory = self.factory or ConstantVar(None)
            cg.call_object(self.cls, factory, functools.partial(self.contents, cg))
        else:
            cg.call_object(self.cls, functools.partial(self.contents, cg))

    def replay(self, cg: Codegen) -> None:
        if self.rewritten:
            commit_call(cg, replace_dict, self, functools.partial(self.contents, cg))
        else:
            plain_replay(self, cg)


def mapping(cg: Codegen, items: dict[Any, tuple[Variable, Any]]) -> None:
    """Push a dict: host key -> (key, value)."""
    for key, value in items.values():
        cg.value(key)
        cg.value(value)
    cg.emit("BUILD_MAP", len(items))


def replace_dict(target: Any, contents: dict) -> None:
    """Give a dict these contents, without a method that its class may have overridden."""
    kind = collections.OrderedDict if isinstance(target, collections.OrderedDict) else dict
    kind.clear(target)
    for key, value in contents.items():
        kind.__setitem__(target, key, value)


@extends(DictViewVar)
class Views(DictViewVar):
    @property
    def cls(self) -> type:
        return type(getattr({}, self.kind)())

    def length(self, tx: Frame) -> int:
        return self.dict.length(tx)

    def truth(self, tx: Frame) -> bool:
        return self.dict.truth(tx)

    def reconstruct(self, cg: Codegen) -> None:
        cg.call_object(getattr(self.dict.cls, self.kind), self.dict)


@RESULTS.rule(dict)
def result_of_call(output: OutputGraph, value: dict) -> DictVar:
    pairs = [(output.wrap_result(k), output.wrap_result(v)) for k, v in value.items()]
    return DictVar({k.hash_key(output.frame): (k, v) for k, v in pairs})
