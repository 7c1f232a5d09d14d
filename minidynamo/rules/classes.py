"""Calls of classes that are made in ways of their own: named tuples, enums, modules.

Pair(1, 2)        Color(3)        torch.nn.Flatten()
"""

import enum
import functools
import types

import torch

from ..exceptions import Break
from ..symbolic_eval.registry import class_with_base
from ..variables.classes import ClassVar
from ..variables.lookup import lookup


@class_with_base(tuple)
def _named_tuple(tx, cls, args, kwargs):
    if hasattr(cls, "_fields") and isinstance(cls.__new__, types.FunctionType):
        return tx.output.wrap_pinned(cls.__new__).call(tx, [ClassVar(cls), *args], kwargs)
    if cls.__module__ == "torch.return_types":
        raise Break("class", f"making a {cls.__name__}")
    return None


@class_with_base(enum.Enum)
def _enum(tx, cls, args, kwargs):
    if type(cls) is not enum.EnumMeta:
        return None
    return tx.fold_pinned(cls, *[value.as_constant() for value in args])


@class_with_base(torch.nn.Module)
def _module(tx, cls, args, kwargs):
    """One of torch's that has neither parameters, nor buffers, nor submodules."""
    if not lookup(cls, "__init__")[0].__module__.startswith("torch.nn.modules."):
        return None
    if not all(value.is_constant() for value in (*args, *kwargs.values())):
        return None
    named = {name: value.as_constant() for name, value in kwargs.items()}
    make = functools.partial(cls, *[value.as_constant() for value in args], **named)
    made = make()
    tables = (made._parameters, made._buffers, made._modules)
    if any(value is not None for table in tables for value in table.values()):
        return None
    tx.output.makers[id(made)] = make
    return tx.output.wrap_pinned(made)


@class_with_base(torch.Tensor, torch.autograd.Function)
def _refuse(tx, cls, args, kwargs):
    raise Break("class", f"making a {cls.__name__}")
