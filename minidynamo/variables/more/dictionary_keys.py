"""Keys of dictionaries that are no constants: parameters in an optimizer's state, classes...

In:   a key of a dictionary from outside.
Out:  its variable, which hashes by its value or as an object; guards on all keys of a dictionary
      with such keys, or of an OrderedDict; a guard on the one key that was read of any other.

    optimizer.state[parameter]["step"]          handlers[type(node)](node)
"""

import collections
import types
import typing
from typing import Any

import torch

from ...extras.extending import extends
from ...guards import exact_key
from ..base import Frame, OutputGraph, Variable
from ..constant import LITERALS, is_constant_value
from ..containers import DictVar
from ..builder import Builder
from ..registry import Registry

HASHED_BY_IDENTITY = (
    *(type, types.FunctionType, types.BuiltinFunctionType),
    *(types.GenericAlias, types.UnionType, typing._Final),
)


# Keys of dictionaries that are no constants: rules take (builder, key).
KEYS = Registry()
plain_guard_keys, plain_key = DictVar.guard_keys, Builder.wrap_key


@extends(Builder)
def wrap_key(builder: Any, key: Any) -> Variable:
    rule = None if is_constant_value(key) else KEYS.of(key)
    return plain_key(builder, key) if rule is None else rule(builder, key)


@extends(DictVar)
class GuardedKeys(DictVar):
    def guard_keys(self, tx: Frame) -> None:
        """The guard KEYS reads an OrderedDict's order.  Its table has the same keys, and must have
        them later: dict.__setitem__() writes to the table alone, and len() asks the table."""
        plain_guard_keys(self, tx)
        if self.source is not None and issubclass(self.cls, collections.OrderedDict):
            table = f"{tx.output.tree.pinned(dict).key}.keys({{0}})"
            check = f"{{{{*map(exact_key, {table})}}}} == {{pin}}"
            tx.output.guard(self.source, "TABLE", check, {*map(exact_key, self.real_keys)})

    def guard_key(self, tx: Frame, kind: str, host: Any) -> None:
        """A key that was read is guarded alone, where a guard can name it; walking the dictionary
        or asking its length guards all keys."""
        if isinstance(host, (Variable, tuple)):
            self.guard_keys(tx)
        elif "KEYS" in self.source.guards:
            return
        elif kind == "ABSENT" and type(host) is str and self.keys_text == "{0}":
            tx.output.guard_absent(self.source, host)
        else:
            word = "in" if kind == "PRESENT" else "not in"
            check = f"{{pin}} {word} {self.keys_text}"
            tx.output.guard(self.source, (kind, host), check, host)


@KEYS.rule(torch.Tensor, torch.nn.Parameter)
def tensor_as_key(builder: OutputGraph, key: Any) -> Variable:
    known, variable = builder.memo.get(id(key)), builder.wrap_pinned(key)
    if known is not None and variable.source.kind != "pinned":
        builder.guard(variable.source, "ID", "{0} is {pin}", key)
    return variable


def is_hashed_by_parts(key: Any) -> bool:
    return isinstance(key, tuple) and all(
        type(part) in LITERALS or isinstance(part, type) for part in key
    )


@KEYS.rule(test=lambda key: isinstance(key, HASHED_BY_IDENTITY) or is_hashed_by_parts(key))
def object_as_key(builder: OutputGraph, key: Any) -> Variable:
    return builder.wrap_result(key)
