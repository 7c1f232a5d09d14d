"""Indices that are symbols: `weight[token]`, `state[5 * i + 1] = x`, `cache[:, position] = key`.

In:   an index of a tensor on its way into the graph, a symbolic int among numbers, slices, None and
      an ellipsis.
Out:  `torch.select` for each symbol, and the rest of the index: torch's own indexing would ask for
      the number, and each position would be compiled for anew.

Beside tensors as indices the symbol stays what it is, and is taken as a number.
"""

import operator
from typing import Any

import torch

from .base import Variable
from .constant import ConstantVar
from .dicts import TupleVar
from .sequences import SliceVar
from .symbolic import SymVar
from .tensor import TensorVar

ELLIPSIS = ConstantVar(...)


def is_symbol(variable: Variable) -> bool:
    return type(variable) is SymVar and variable.python_type() is int


def dimensions(items: list[Variable], tensor: torch.Tensor) -> list[int | None] | None:
    """Which dimension each item of an index is about, counted from the end behind an ellipsis; None
    for those that are about none.  None for the whole where an item is something else."""
    found: list[int | None] = []
    for place, item in enumerate(items):
        if not is_symbol(item) and type(item) is not SliceVar:
            value = item.value if type(item) is ConstantVar else ()
            if value is ...:
                return found_before_and_behind(found, items[place + 1 :], tensor)
            if value is not None and type(value) not in (int, slice):
                return None
            if value is None:
                found.append(None)
                continue
        found.append(sum(dim is not None for dim in found))
    return found


def found_before_and_behind(
    before: list[int | None], behind: list[Variable], tensor: torch.Tensor
) -> list[int | None] | None:
    """The same for an index with an ellipsis, where those before it are known."""
    after = dimensions(behind, tensor)
    if after is None or any(type(item) is ConstantVar and item.value is ... for item in behind):
        return None
    count = sum(dim is not None for dim in after)
    first = tensor.dim() - count
    return [*before, None, *[None if dim is None else first + dim for dim in after]]


def select_symbols(tx: Any, target: Any, args: Any, kwargs: Any) -> tuple[Any, Any, Any]:
    """The call to record in place of an index with symbols."""
    if target not in (operator.getitem, operator.setitem) or type(args[0]) is not TensorVar:
        return target, args, kwargs
    tensor, key, *value = args
    items = list(key.iterate(tx)) if type(key) is TupleVar else [key]
    if not any(map(is_symbol, items)):
        return target, args, kwargs
    places = dimensions(items, tensor.fake)
    if places is None or sum(dim is not None for dim in places) > tensor.fake.dim():
        return target, args, kwargs
    selected = [(dim, item) for dim, item in zip(places, items) if is_symbol(item)]
    rest = [item for item in items if not is_symbol(item)]
    if not value and not rest:
        dim, item = selected.pop(0)
    for later, symbol in reversed(selected):
        tensor = tx.node(torch.select, [tensor, ConstantVar(later), symbol])
    if not value and not rest:
        return torch.select, [tensor, ConstantVar(dim), item], {}
    return target, [tensor, TupleVar(rest or [ELLIPSIS]), *value], kwargs
