"""Tensors of a subclass that inherits torch's own `__torch_function__`, or switches it off.

    class Image(torch.Tensor): ...          # torch gives what is computed of it the same class

In:   a tensor of such a class as an argument, or `x.as_subclass(Image)` in the frame.
Out:  a `Subclassed` variable, whose `plain` is the tensor of the graph: the graph has plain tensors
      alone, which share memory and history with those of the program.  `dispatch` gives what an
      operation makes of them its class.

Refused are classes with a `__torch_function__` or `__torch_dispatch__` of their own, with operators
of their own, made by C code or by torch.  So are other objects with a `__torch_function__` as
arguments of torch's functions, and entering torch-function modes.
Mirrors torch/_dynamo/variables/torch_function.py (TensorWithTFOverrideVariable).
"""

from collections.abc import Sequence
from typing import Any

import torch

from ...exceptions import Break
from ...extras.extending import extends
from ...guards import NAMES
from ...rules.c_methods import method_of
from ...rules.torch_state import at
from ...sources import KINDS
from ...symbolic_eval.registry import rule
from ..base import Args, Codegen, Frame, Named, OutputGraph, Source, Variable
from ..constant import ConstantVar
from ..containers import SequenceVar
from ..lookup import METHODS, MISSING, can_change, lookup
from ..objects import method_of_class
from ..registry import SHARED
from ..tensor import TensorVar
from ..wrap_tensors import wrap_input

KIND = "tensor subclass"
NAME = "__torch_function__"
TORCHS_OWN = (torch.Tensor, torch.nn.Parameter)
UNASKED = torch._C._disabled_torch_function_impl  # what a class has that torch is not to ask
INHERITED = (torch.Tensor.__dict__[NAME], UNASKED)
# special methods of tensors that a class may have, too: none of them is an operation
HARMLESS = frozenset(
    """
    __doc__ __module__ __dict__ __weakref__ __new__ __init__ __repr__ __str__ __format__ __reduce__
    __reduce_ex__ __deepcopy__ __init_subclass__ __annotations__ __torch_function__
    """.split()
)
SPECIAL = {n for n in dir(torch.Tensor) if n.startswith("__")} - HARMLESS | {"__getattr__"}
# What `plain`, another object over the memory of a tensor from outside, would tell or keep wrongly.
HISTORY = frozenset(
    """
    grad is_leaf grad_fn _grad _grad_fn _base retains_grad output_nr _backward_hooks _is_view
    _post_accumulate_grad_hooks retain_grad register_hook register_post_accumulate_grad_hook
    """.split()
)


def retyped(tensor: torch.Tensor, cls: type) -> Any:
    """The same memory and history as a tensor of another class; no `__torch_function__` runs."""
    return UNASKED(torch.Tensor.as_subclass, (), (tensor, cls), {})


@torch.enable_grad()  # the frame may turn it on: the history must be there
def as_plain(tensor: torch.Tensor) -> torch.Tensor:
    return retyped(tensor, torch.Tensor)


KINDS["as_plain"], NAMES["as_plain"] = "as_plain({p})", as_plain


# ---- which classes
def is_subclass(kind: type) -> bool:
    return issubclass(kind, torch.Tensor) and kind not in TORCHS_OWN


def check_class(kind: type) -> None:
    """Raises Break for a class that means more than torch's own `__torch_function__` does."""
    own = [cls for cls in kind.__mro__ if cls not in torch.nn.Parameter.__mro__]
    of_torch = str(kind.__module__).partition(".")[0] == "torch" or not can_change(kind)
    dispatched = lookup(kind, "__torch_dispatch__")[0] not in TORCHS_OWN
    own_meaning = lookup(kind, NAME)[1] not in INHERITED or any(SPECIAL & {*vars(c)} for c in own)
    if of_torch or dispatched or own_meaning or not issubclass(type(kind), type(torch.Tensor)):
        raise Break(KIND, f"the tensor subclass {kind.__name__} is not traced")
    for name in sorted(SPECIAL):  # and they must not come later
        lookup(kind, name)


def guard_asked(output: OutputGraph) -> None:
    """Nobody has told torch to leave such classes alone (`DisableTorchFunctionSubclass`)."""
    enabled = torch._C._is_torch_function_enabled
    output.guard(output.tree.pinned(enabled), "STATE", "{0}()")
    if not enabled():
        raise Break(KIND, "an object with a __torch_function__ that is not to be asked")


def is_asked(kind: type) -> bool:
    """Does torch give results the class?"""
    return lookup(kind, NAME)[1] is not UNASKED


# ---- operations
def of_class(tx: Frame, plain: Any, kind: type) -> Variable:
    """The tensor of the graph as one of the class."""
    if kind is torch.nn.Parameter:
        raise Break(KIND, "as_subclass(nn.Parameter)")
    check_class(kind)
    if is_asked(kind):
        guard_asked(tx.output)
    return Subclassed(plain.node, plain.fake, kind, None, plain)


class Subclassed(TensorVar):
    """`plain`: the variable of the same tensor without its class; `fields`: the instance's
    `__dict__`, of one from outside."""

    shared = overloads = True
    plain: Any = None
    fields: Any = None

    def argument(self, part: Any) -> Any:
        return part(self.plain)

    def dispatch(self, tx: Frame, given: Sequence["Subclassed"], result: Variable) -> Variable:
        """What an operation of the `given` tensors has given, in their class, as
        torch._tensor._convert does it."""
        if isinstance(result, SequenceVar) and issubclass(result.cls, (tuple, list)):
            items = [self.dispatch(tx, given, item.realize(tx)) for item in result.items]
            return type(result)(items, result.cls)
        if not isinstance(result, TensorVar):
            return result
        for value in given:
            if value.plain is result:  # x.add_(y) gives x itself
                return value
        kinds = {value.cls for value in given if is_asked(value.cls)}
        asked = [kind for kind in kinds if all(issubclass(kind, other) for other in kinds)]
        if kinds and not asked:
            raise Break(KIND, "tensors of several subclasses in one operation")
        return of_class(tx, result, asked[0]) if asked else result

    def getattr(self, tx: Frame, name: str) -> Variable:
        owner, found = lookup(self.cls, name)
        if name == "__class__":
            return tx.output.wrap_pinned(self.cls)
        if owner is not None and owner in torch.nn.Parameter.__mro__:
            if name in HARMLESS:
                raise Break("attribute", f".{name} of a {self.cls.__name__}")
            return tx.method_of(self, name) if callable(found) else self.torchs(tx, name)
        if isinstance(found, property) and found.fget is not None:
            return tx.output.wrap_pinned(found.fget).call(tx, [self], {})
        if hasattr(type(found), "__set__"):
            raise Break("attribute", f".{name} of a {self.cls.__name__}")
        set_by_program = self.fields and self.fields.get(tx, ConstantVar(name))
        if set_by_program is not None:
            return set_by_program
        if isinstance(found, METHODS):
            return method_of_class(tx, owner, found, name, self, tx.output.wrap_pinned(self.cls))
        if found is MISSING:
            tx.raise_(AttributeError, f"'{self.cls.__name__}' object has no attribute '{name}'")
        if hasattr(type(found), "__get__"):
            raise Break("attribute", f".{name} of a {self.cls.__name__}")
        return tx.output.wrap_class_attribute(owner, found, name)

    def torchs(self, tx: Frame, name: str) -> Variable:
        """An attribute that torch defines."""
        self.check_history(tx, name)
        found = self.plain.getattr(tx, name)
        return found if name == "data" else self.dispatch(tx, [self], found)

    def call_method(self, tx: Frame, name: str, args: Args, kwargs: Named) -> Variable:
        owner, _ = lookup(self.cls, name)
        if owner not in torch.nn.Parameter.__mro__:
            return self.getattr(tx, name).call(tx, args, kwargs)
        return self.torchs_method(tx, name, args, kwargs)

    def torchs_method(self, tx: Frame, name: str, args: Args, kwargs: Named) -> Variable:
        """A method that torch defines, also where the class has another of that name."""
        self.check_history(tx, name)
        result = self.plain.call_method(tx, name, args, kwargs)
        others = [value for value in (*args, *kwargs.values()) if isinstance(value, Subclassed)]
        return result if name == "as_subclass" else self.dispatch(tx, [self, *others], result)

    def check_history(self, tx: Frame, name: str) -> None:
        if self.source is not None and name in HISTORY:
            raise Break(KIND, f".{name} of a {self.cls.__name__}")

    def length(self, tx: Frame) -> Any:
        return self.plain.length(tx)

    def iterate(self, tx: Frame) -> Any:
        if not self.fake.dim():
            raise Break(KIND, f"iterating over a {self.cls.__name__}")
        return self.torchs_method(tx, "unbind", [ConstantVar(0)], {}).iterate(tx)

    def refuse(self, *args: Any) -> Any:
        raise Break(KIND, f"an operation of a {self.cls.__name__} that is not traced")

    truth = contains = setattr = delattr = hash_key = refuse  # type: ignore[assignment]

    def reconstruct(self, cg: Codegen) -> None:
        cg.call_object(retyped, self.plain, lambda: cg.pinned(self.cls))


@SHARED.rule(
    test=lambda value: issubclass(type(value), torch.Tensor) and type(value) not in TORCHS_OWN,
    order=9,
)
def wrap_subclassed(builder: OutputGraph, value: Any, source: Source) -> Variable:
    kind = type(value)
    check_class(kind)
    if torch.nn.parameter.is_lazy(value):
        raise Break(KIND, f"the tensor subclass {kind.__name__} is not traced")
    if is_asked(kind):
        guard_asked(builder)
    builder.guard(source, "TYPE", "type({0}) is {pin}", kind)
    own = source.child("as_plain")
    plain = wrap_input(builder, as_plain(value), own)
    builder.by_fake[id(plain.fake)] = plain
    fields = builder.fields_of(value, source.instance_dict()) if kind.__dictoffset__ else None
    return Subclassed(plain.node, plain.fake, kind, None, plain, fields, source=source)


@extends(TensorVar)
def method_as_subclass(self: TensorVar, tx: Frame, cls: Variable) -> Variable:
    """Another tensor over the same memory."""
    kind = cls.identity()
    if not isinstance(kind, type) or not issubclass(kind, torch.Tensor):
        raise Break(KIND, f"as_subclass() of {cls}")  # plain Python raises
    alias = tx.node(torch.ops.aten.alias.default, [self])
    return alias if kind is torch.Tensor else of_class(tx, alias, kind)


@method_of(Subclassed)
def _method_of_torchs(
    tx: Frame, descriptor: Any, tensor: Subclassed, rest: Args, kwargs: Named
) -> Variable:
    """torch.Tensor.add(x, y), whatever the class of x calls `add`."""
    return tensor.torchs_method(tx, descriptor.__name__, rest, kwargs)


def _any_overloads(tx: Frame, *values: Variable) -> Variable:
    """Torch's Python code asks whether an object decides what it means."""
    for value in values:
        value = value.realize(tx)
        if type(value) is not TensorVar and not value.is_constant():
            raise Break(KIND, f"{value} as an argument of a torch function")
    return ConstantVar(False)


rule(at("overrides.has_torch_function_variadic"), at("overrides.has_torch_function_unary"))(
    _any_overloads
)
rule(at("overrides.has_torch_function"))(lambda tx, values: _any_overloads(tx, *values.iterate(tx)))
