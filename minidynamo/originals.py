"""What Python and torch had under their names when the compiler was imported.

    >>> torch.relu = lambda x: x - 1
    >>> MODULES[id(vars(torch))]["relu"], made_by_torch(torch.relu)
    (<built-in method relu of type object at 0x...>, False)

A rule of `torch.relu`, or a node of the graph that calls it, means torch's own function.  Where a
program has put one of its own there, extras/replaced_functions.py finds it with these copies, and
it is traced instead.
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
BUILTINS = dict(vars(builtins))
TENSOR, NN_MODULE = dict(vars(torch.Tensor)), dict(vars(torch.nn.Module))
MODULES = {  # id of a module's dictionary -> a copy of it
    id(vars(module)): dict(vars(module))
    for name in ("torch", "torch._VF", *LEAF_MODULES)
    if isinstance(module := sys.modules.get(name), types.ModuleType)
}


def made_by_torch(value: object) -> bool:
    """Is this a Python function of torch's, by where its globals are?  (`functools.wraps` copies
    `__module__`.)"""
    inner = getattr(value, "__func__", value)
    if not isinstance(inner, types.FunctionType):
        return False
    name = inner.__globals__.get("__name__")
    return type(name) is str and name.partition(".")[0] == "torch"
