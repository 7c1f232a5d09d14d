"""Modules that a frame makes, and writes to modules: torch's own Python code, traced.

    head = nn.Sequential(nn.ReLU(), self.body[-1])      # made anew in each call
    self.pool = nn.Identity()                           # in forward, where it is missing

In, out: see `symbolic_eval.registry`.  A module from outside has its own ways, which read its
tables without a guard on torch's functions; for one that is made here `nn.Module.__init__`,
`__setattr__` and `__getattr__` are functions like others.
Mirrors torch/_dynamo/variables/user_defined.py (UserDefinedObjectVariable) and nn_module.py.
"""

from __future__ import annotations

from typing import Any

import torch

from ..originals import NN_MODULE
from ..symbolic_eval.registry import RULES, rule
from ..variables.base import Frame, Variable
from ..variables.constant import ConstantVar
from ..variables.nn_modules import ModuleVar


def traced(tx: Frame, name: str, *args: Variable, **kwargs: Variable) -> Variable:
    """torch.nn.Module's own method, as Python."""
    return tx.inline(tx.output.wrap_pinned(NN_MODULE[name]), list(args), kwargs)


def know_init() -> None:
    """torch.compile, once used, has put its own function in the place of Module.__init__, which
    calls that and counts modules."""
    init = torch.nn.Module.__init__
    if getattr(init, "__module__", "").startswith("torch._dynamo.") and init not in RULES:
        rule(init)(lambda tx, *args, **kwargs: traced(tx, "__init__", *args, **kwargs))


@rule(torch.nn.Module.__setattr__)
def _setattr(tx: Frame, self: Any, name: Variable, value: Variable, /) -> Variable:
    if not isinstance(self, ModuleVar):
        return traced(tx, "__setattr__", self, name, value)
    self.module_setattr(tx, name.as_constant(), value)
    return ConstantVar(None)


@rule(torch.nn.Module.__getattr__)
def _getattr(tx: Frame, self: Any, name: Variable, /) -> Variable:
    if not isinstance(self, ModuleVar):
        return traced(tx, "__getattr__", self, name)
    return self.module_getattr(tx, name.as_constant())
