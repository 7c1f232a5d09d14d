"""What Python and torch had under their names when the compiler was imported, and what a program
has put in its place since.

    >>> torch.relu = lambda x: x - 1
    >>> MODULES[id(vars(torch))]["relu"], made_by_torch(torch.relu)
    (<built-in method relu of type object at 0x...>, False)

In:   a function or method of torch's that the graph would call whole.
Out:  guards on what it finds, and a graph break where that is the program's.
"""

import builtins
import dis
import functools
import os
import sys
import types
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch

from ..errors import Break

if TYPE_CHECKING:
    from ..graph.output_graph import OutputGraph

LEAF_MODULES = tuple(
    """
    torch.nn.functional torch._C._nn torch.functional torch._C._special torch._C._linalg
    torch._C._fft torch.special torch.linalg torch.fft torch._jit_internal
    torch._C._VariableFunctions torch._C._sparse torch.sparse torch._C._nested
    """.split()
)
# the folders of torch's files and of ours
TORCH = os.path.dirname(torch.__file__) + os.sep
OPTIMIZERS = os.path.join(TORCH, "optim", "")
OURS = os.path.dirname(os.path.dirname(__file__)) + os.sep
BUILTINS = dict(vars(builtins))
TENSOR, NN_MODULE = dict(vars(torch.Tensor)), dict(vars(torch.nn.Module))
MODULES = {  # id of a module's dictionary -> a copy of it
    id(vars(module)): dict(vars(module))
    for name in ("torch", "torch._VF", *LEAF_MODULES)
    if isinstance(module := sys.modules.get(name), types.ModuleType)
}
MISSING = object()


def made_by_torch(value: object) -> bool:
    """Is this a Python function of torch's, by where its globals are?  (`functools.wraps` copies
    `__module__`.)"""
    inner = getattr(value, "__func__", value)
    if not isinstance(inner, types.FunctionType):
        return False
    name = inner.__globals__.get("__name__")
    return type(name) is str and name.partition(".")[0] == "torch"


def replaced_in_tensor(owner: type, name: str, found: object) -> bool:
    """Is `found`, the attribute of this name of `owner`, the program's, although torch's tensors
    have one of that name?"""
    if owner is not torch.Tensor or name not in TENSOR and not hasattr(torch._C.TensorBase, name):
        return False
    return found is not TENSOR.get(name, MISSING) and not made_by_torch(found)


def in_leaf_module(function: types.FunctionType) -> bool:
    """Is this one of the Python functions that a graph calls whole?"""
    return function.__globals__.get("__name__") in LEAF_MODULES


def path_from(steps: Sequence[dis.Instruction], place: int) -> tuple[str, ...]:
    """The name that instruction `place` loads, and the attributes that are asked of it at once:
    `("torch", "nn", "init")` of `torch.nn.init`."""
    end = place + 1
    while steps[end].opname in ("LOAD_ATTR", "LOAD_METHOD"):
        end += 1
    return tuple([step.argval for step in steps[place:end]])


@functools.cache
def global_paths(code: types.CodeType) -> list[tuple[str, ...]]:
    """The globals that the code may read, and the attributes that it asks of them, each once."""
    steps = [*dis.get_instructions(code)]
    paths = [path_from(steps, n) for n, step in enumerate(steps) if step.opname == "LOAD_GLOBAL"]
    return list(dict.fromkeys(paths))


def guard_calls(output: "OutputGraph", function: Any, goes_on: Callable[[Any], bool]) -> None:
    """torch's `function`, which the graph calls whole, finds something under the names in its code:
    that is guarded.  Break if it is the program's.

    goes_on: whether a function that is found so is looked at, too."""
    if function in output.read_functions:
        return
    output.read_functions.add(function)
    for first, *path in global_paths(function.__code__):
        place: dict[str, Any] = function.__globals__
        value: Any = None
        for name in (first, *path):
            if name not in place:
                break
            value = place[name]
            output.guard_fixed(output.globals_of(place).source.item(name), value)
            was = MODULES.get(id(place), {}).get(name, value)
            if value is not was and callable(was) and not made_by_torch(value):
                raise Break("replaced", f"{name}, which the program has replaced, in torch's code")
            if not isinstance(value, types.ModuleType):
                break
            place = value.__dict__
        if isinstance(value, types.FunctionType) and goes_on(value):
            output.guard_function(value)
            guard_calls(output, value, goes_on)
