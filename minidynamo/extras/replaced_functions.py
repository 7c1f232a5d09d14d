"""Functions of torch's in whose place the program has put its own (`torch.relu = mine`).

In:   a function or operator of torch's that the graph would call whole; a finished graph.
Out:  whether it finds something of the program's, which is guarded; a graph whose text calls the
      functions that were captured, whatever their names mean later.  A frame is left alone where
      something is replaced that our own code needs (`len`, `torch.Tensor.shape`).

What torch had at first is in `originals.py`.
"""

import builtins
import dis
import functools
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.fx

from .extending import extends, noted
from .. import hooks
from ..exceptions import Break, SkipFrame
from ..graph_capture import OutputGraph
from ..originals import BUILTINS, LEAF_MODULES, MODULES, NN_MODULE, TENSOR, made_by_torch
from ..symbolic_eval.operations import Operations
from ..symbolic_eval.registry import RULES
from ..symbolic_eval.torch_rules import is_leaf
from ..variables.base import Args, Frame, Named, Variable
from ..variables.lookup import lookup
from ..variables.objects import ObjectVar, method_of_class
from ..variables.tensor import TensorVar

MISSING = object()


FIELDS = frozenset(  # what C code keeps in a tensor: `shape`, `dtype`...
    name
    for name in dir(torch._C.TensorBase)
    if isinstance(getattr(torch._C.TensorBase, name, None), types.GetSetDescriptorType)
)


def replaced_in_module(values: dict, name: str) -> bool:
    """Has the program put something of its own under this name of one of torch's modules?"""
    was, found = MODULES.get(id(values), {}).get(name, MISSING), values[name]
    return was is not MISSING and found is not was and callable(was) and not made_by_torch(found)


def replaced_in_tensor(owner: type, name: str, found: object) -> bool:
    """Is `found`, the attribute of this name of `owner`, the program's, although torch's tensors
    have one of that name?"""
    if owner is not torch.Tensor or name not in TENSOR and not hasattr(torch._C.TensorBase, name):
        return False
    return found is not TENSOR.get(name, MISSING) and not made_by_torch(found)


def in_leaf_module(function: types.FunctionType) -> bool:
    """Is this one of the Python functions that a graph calls whole?"""
    return function.__globals__.get("__name__") in LEAF_MODULES


@contextmanager
def nothing_needed_replaced(output: OutputGraph) -> Iterator[None]:
    """Refuse a frame where the program has replaced what our own code needs."""
    if replaced := unusable():
        raise SkipFrame(f"{replaced} is the program's own")
    yield


def unusable() -> str:
    """What our own code needs and the program has replaced: a field of tensors (`shape`), a builtin
    function that has a rule, how a graph's module finds its parameters; or ''."""
    if vars(torch.nn.Module).get("__getattr__") is not NN_MODULE["__getattr__"]:
        return "torch.nn.Module.__getattr__"
    for name, found in vars(builtins).items():
        was = BUILTINS.get(name, found)
        if found is not was and was in RULES:
            return f"builtins.{name}"
    fields = vars(torch.Tensor)
    for name in FIELDS.intersection(fields):
        if fields[name] is not TENSOR.get(name, MISSING):
            return f"torch.Tensor.{name}"
    return ""


@functools.cache
def global_paths(code: types.CodeType) -> list[tuple[str, ...]]:
    """`("torch", "nn", "init")` for each `torch.nn.init` that the code may read: a global's name,
    and attributes."""
    paths: list[tuple[str, ...]] = []
    open_path = False  # is the last path's value on top of the stack, so that it may go on?
    for instruction in dis.get_instructions(code):
        if instruction.opname == "LOAD_GLOBAL":
            paths.append((instruction.argval,))
            open_path = True
        elif open_path and instruction.opname in ("LOAD_ATTR", "LOAD_METHOD"):
            paths[-1] += (instruction.argval,)
        elif instruction.opname not in ("CACHE", "PRECALL"):
            open_path = False
    return list(dict.fromkeys(paths))


class ReadFunctions(dict[int, tuple[Any, bool]]):
    """Id -> (function of torch's, does it call what the program replaced)."""


def calls_replaced(output: OutputGraph, function: Any, goes_on: Callable[[Any], bool]) -> bool:
    """Does torch's `function`, which the graph would call whole, find something of the
    program's under the names in its code?

    What it finds is guarded.  goes_on: whether a function that is found so is looked at,
    too."""
    functions = noted(output, ReadFunctions)
    known = functions.get(id(function))
    if known is not None:
        return known[1]
    replaced = False
    functions[id(function)] = function, replaced
    for first, *path in global_paths(function.__code__):
        place: dict[str, Any] = function.__globals__
        value: Any = None
        for name in (first, *path):
            if name not in place:
                break
            value = place[name]
            output.guard_fixed(output.globals_of(place).source.item(name), value)
            replaced = replaced or replaced_in_module(place, name)
            if not isinstance(value, types.ModuleType):
                break
            place = value.__dict__
        if isinstance(value, types.FunctionType) and goes_on(value):
            output.guard_function(value)
            replaced = calls_replaced(output, value, goes_on) or replaced
    functions[id(function)] = function, replaced
    return replaced


@extends(Operations)
def call_leaf(tx: Any, function: Callable, args: Args, kwargs: Named) -> Variable:
    """A Python function is traced where the program has put one of its own in torch's place, or
    gives it an object (a module, a class of options)."""
    if isinstance(function, types.FunctionType):
        objects = any(isinstance(value, ObjectVar) for value in (*args, *kwargs.values()))
        if objects or calls_replaced(tx.output, function, is_leaf):
            return tx.inline(tx.output.wrap_pinned(function), args, kwargs)
    return tx.node(function, args, kwargs)


def look_at_operator(tx: Any, target: Any, args: Any, kwargs: Any) -> tuple[Any, Any, Any]:
    """An operator on tensors is what torch has made it: `torch.Tensor.__add__` may be replaced,
    too."""
    if getattr(target, "__module__", None) != "_operator":
        return target, args, kwargs
    if any(type(arg) is TensorVar for arg in (*args, *kwargs.values())):
        name = target.__name__.strip("_")
        for special in (f"__{name}__", f"__r{name}__"):
            owner, found = lookup(torch.Tensor, special)
            if replaced_in_tensor(owner, special, found):
                raise Break("tensor method", f"Tensor.{special}, which the program has replaced")
    return target, args, kwargs


plain_getattr, plain_call = TensorVar.getattr, TensorVar.call_method


@extends(TensorVar)
class Replaced(TensorVar):
    def getattr(self, tx: Frame, name: str) -> Variable:
        found = self.replaced(tx, name)
        return plain_getattr(self, tx, name) if found is None else found

    def call_method(self, tx: Frame, name: str, args: Args, kwargs: Named) -> Variable:
        found = self.replaced(tx, name)
        if found is None:
            return plain_call(self, tx, name, args, kwargs)
        return found.call(tx, args, kwargs)

    def replaced(self, tx: Frame, name: str) -> Variable | None:
        """What a program has put in the place of this attribute of torch's (`torch.Tensor.relu =
        mine`); a Python method of torch's that calls what the program has replaced; or None: it
        goes into the graph whole."""
        owner, found = lookup(torch.Tensor, name)
        if replaced_in_tensor(owner, name, found):
            if not isinstance(found, types.FunctionType):
                raise Break("tensor attribute", f"Tensor.{name}, which the program has replaced")
        elif not made_by_torch(found) or not calls_replaced(tx.output, found, in_leaf_module):
            return None
        return method_of_class(tx, owner, found, name, self, tx.output.wrap_pinned(self.cls))


class Torch:
    """A copy of a module of torch's, as far as a graph's text names it: what is not set here is
    read from the module."""

    def __init__(self, module: types.ModuleType) -> None:
        self._module = module

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)


def call_by_object(_: object, made: torch.fx.GraphModule) -> None:
    """torch.fx writes torch's functions by their names: the text must mean those of the nodes
    (`F.relu = mine` may come later)."""
    root = Torch(torch)
    for node in made.graph.nodes:
        if node.op != "call_function" or not torch.fx.graph._is_from_torch(node.target):
            continue
        first, *path, last = torch.fx.node._get_qualified_name(node.target).split(".")
        if first != "torch":
            continue
        place = root
        for name in path:
            inner = vars(place).get(name)
            if inner is None:
                inner = vars(place)[name] = Torch(getattr(place, name))
            place = inner
        vars(place)[last] = node.target
    forward: Any = made.forward
    forward.__func__.__globals__["torch"] = root


hooks.TRACING.append(nothing_needed_replaced)
hooks.BEFORE_NODES.append(look_at_operator)
hooks.GRAPH_MODULES.append(call_by_object)
