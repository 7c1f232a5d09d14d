"""Containers that few programs make: sets, deque, defaultdict, OrderedDict, proxies, slices.

collections.deque(xs, 3)        frozenset(xs)        slice(1, n)
"""

import collections
import types

import torch

from ..exceptions import Break
from ..symbolic_eval.builtin_rules import EMPTY, updated
from ..symbolic_eval.opcodes import slice_of
from ..symbolic_eval.registry import NONE, refused, rules
from ..variables.containers import DictVar, TupleVar
from ..variables.lookup import MISSING, lookup
from ..variables.more.deques import DequeVar
from ..variables.more.proxies import ProxyVar
from ..variables.more.sets import SetVar


def _frozenset(tx, values=EMPTY, /):
    return (
        values
        if isinstance(values, SetVar) and values.cls is frozenset
        else SetVar.made(tx, values, frozenset)
    )


def _deque(tx, values=EMPTY, maxlen=NONE):
    limit = maxlen.as_constant()
    if limit is not None and (type(limit) is not int or limit < 0):
        raise Break("arguments", "the maxlen of a deque")
    made = DequeVar(list(values.iterate(tx)), maxlen=limit)
    made._changed()
    made.mutated = False
    return made


def _defaultdict(tx, factory=None, /, *args, **kwargs):
    if (
        factory is not None
        and factory.identity() is not None
        and lookup(factory.python_type(), "__call__")[1] is MISSING
    ):
        tx.raise_(TypeError, "first argument must be callable or None")
    return updated(DictVar({}, collections.defaultdict, factory=factory), tx, args, kwargs)


rules(
    {
        frozenset: _frozenset,
        collections.deque: _deque,
        collections.defaultdict: _defaultdict,
        collections.OrderedDict: lambda tx, *args, **kwargs: updated(
            DictVar({}, collections.OrderedDict), tx, args, kwargs
        ),
        types.MappingProxyType: lambda tx, of, /: (
            ProxyVar(of) if type(of) is DictVar else refused("class", f"a mappingproxy of {of}")(tx)
        ),
        torch.Size: lambda tx, values=EMPTY, /: TupleVar(list(values.iterate(tx)), torch.Size),
        slice: lambda tx, first, second=None, step=NONE, /: slice_of(
            [NONE, first, step] if second is None else [first, second, step]
        ),
    }
)
