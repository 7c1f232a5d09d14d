"""Which frames are left alone, and why.

In:   a code object that the hook is about to run.   Out: a reason in words, or None to compile it.

    >>> skip_reason(json.dumps.__code__)
    'the standard library'

Mirrors torch/_dynamo/trace_rules.py.
"""

import builtins
import inspect
import os
import sysconfig
import types

import torch

from ..frame.originals import BUILTINS, FIELDS, NN_MODULE, TENSOR, TORCH
from ..rebuild.resume import function_name
from ..variables.registry import RULES

OURS = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
MINIINDUCTOR = os.path.join(os.path.dirname(os.path.dirname(OURS)), "miniinductor") + os.sep
# folders of torch's files, and the methods in them that are compiled
COMPILED_TORCH = {
    os.path.join(TORCH, "nn", "modules") + os.sep: "forward",
    os.path.join(TORCH, "optim") + os.sep: "step",
}
# What these files of torch's call runs as plain Python, too: the backward pass (hooks, bodies of
# checkpoints, which must run as they did in the forward pass), vmap, grad, torch.compile...
UNHOOKED = tuple(
    os.path.join(TORCH, *path.split("/"))
    for path in "autograd/__init__.py autograd/graph.py utils/checkpoint.py _functorch/ _dynamo/ "
    "_inductor/ jit/_trace.py".split()
)
STANDARD = tuple({sysconfig.get_path(name) + os.sep for name in ("stdlib", "platstdlib")})
SITE = tuple({sysconfig.get_path(name) + os.sep for name in ("purelib", "platlib")})
NUMPY = os.path.join("site-packages", "numpy", "")
GENERATORS = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR


def replaced_needed() -> str:
    """What our own code needs and the program has replaced: a field of tensors (`shape`), a builtin
    function that has a rule, how a graph's module finds its parameters; or ''."""
    if vars(torch.nn.Module).get("__getattr__") is not NN_MODULE["__getattr__"]:
        return "torch.nn.Module.__getattr__"
    for name, found in vars(builtins).items():
        if (was := BUILTINS.get(name, found)) is not found and was in RULES:
            return f"builtins.{name}"
    fields = vars(torch.Tensor)
    for name in FIELDS.intersection(fields):
        if fields[name] is not TENSOR.get(name):
            return f"torch.Tensor.{name}"
    return ""


def skip_reason(code: types.CodeType) -> str | None:
    """Why frames of this code are left alone, or None."""
    file = code.co_filename
    if file.startswith(OURS):
        return "minidynamo's own code"
    if file.startswith(MINIINDUCTOR):  # what autograd and programs call of a compiled graph's
        return "miniinductor's own code"
    if file.startswith(TORCH):
        return None if is_compiled_torch(code) else "torch's own code"
    if NUMPY in file:
        return "NumPy's own code"
    if file.startswith("<") and code.co_name == "<module>" or file.startswith("<frozen"):
        return "not a function"
    if file.startswith(STANDARD) and not file.startswith(SITE):
        return "the standard library"
    if code.co_flags & GENERATORS or ".0" in code.co_varnames:
        # `.0` is the iterator that the code of a comprehension is given: it was made before
        return "a generator, coroutine or comprehension"
    return None


def is_compiled_torch(code: types.CodeType) -> bool:
    """Is it the `forward` of one of torch's modules, or the `step` of an optimizer, or what follows
    a graph break in one?"""
    name, folders = function_name(code), COMPILED_TORCH.items()
    return any(code.co_filename.startswith(folder) and name == method for folder, method in folders)
