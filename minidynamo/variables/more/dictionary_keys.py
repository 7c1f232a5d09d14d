"""Keys of dictionaries that are no constants: parameters in an optimizer's state, classes...

In:   a key of a dictionary from outside.
Out:  its variable, which hashes by its value or as an object.

    optimizer.state[parameter]["step"]          handlers[type(node)](node)
"""

import types
import typing
from typing import Any

import torch

from ..base import OutputGraph, Variable
from ..constant import LITERALS
from ..registry import KEYS

HASHED_BY_IDENTITY = (
    *(type, types.FunctionType, types.BuiltinFunctionType),
    *(types.GenericAlias, types.UnionType, typing._Final),
)


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
