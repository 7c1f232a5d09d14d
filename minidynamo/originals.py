"""What torch had under its names when minidynamo was imported: what a program has put there since
is known by it.

    >>> torch.relu = lambda x: x - 1
    >>> replaced_in_module(vars(torch), "relu")
    True

Rules and graph nodes stand for torch's own functions and methods; what a program has replaced
(`torch.Tensor.relu = mine`) is traced as the program's.  That nothing is replaced later is guarded
where it is looked up.
"""

import builtins
import sys
import types

import torch

LEAF_MODULES = tuple(
    """
    torch.nn.functional torch._C._nn torch.functional torch._C._special torch._C._linalg
    torch._C._fft torch.special torch.linalg torch.fft torch._jit_internal
    torch._C._VariableFunctions torch._C._sparse torch.sparse torch._C._nested
    """.split()
)
MISSING = object()
BUILTINS = dict(vars(builtins))
TENSOR, NN_MODULE = dict(vars(torch.Tensor)), dict(vars(torch.nn.Module))
MODULES = {
    id(vars(module)): dict(vars(module))
    for name in ("torch", "torch._VF", *LEAF_MODULES)
    if isinstance(module := sys.modules.get(name), types.ModuleType)
}


def made_by_torch(value) -> bool:
    """Is this a Python function of torch's, by where its globals are?  (`functools.wraps` copies
    `__module__`.)"""
    inner = getattr(value, "__func__", value)
    if not isinstance(inner, types.FunctionType):
        return False
    return inner.__globals__.get("__name__", "").partition(".")[0] == "torch"


def replaced_in_module(values: dict, name: str) -> bool:
    """Has the program put something of its own under this name of one of torch's modules?"""
    was, found = MODULES.get(id(values), {}).get(name, MISSING), values[name]
    return was is not MISSING and found is not was and callable(was) and not made_by_torch(found)


def replaced_in_tensor(owner: type, name: str, found: object) -> bool:
    """Is this attribute, found on `owner`, the program's, where torch has one, too?"""
    if owner is not torch.Tensor or name not in TENSOR and not hasattr(torch._C.TensorBase, name):
        return False
    return found is not TENSOR.get(name, MISSING) and not made_by_torch(found)


def in_leaf_module(function: types.FunctionType) -> bool:
    """Is this one of the Python functions that a graph calls whole?"""
    return function.__globals__.get("__name__") in LEAF_MODULES
