"""Tensors of a subclass: their operations go by the class's `__torch_function__`, which is traced.

    class Image(torch.Tensor): ...          # torch gives what is computed of it the same class

In:   a tensor of such a class as an argument, or `x.as_subclass(Image)` in the frame.
Out:  a `Subclassed` variable, whose `plain` is the tensor of the graph: the graph has plain tensors
      alone, which share memory and history with those of the program.

extras/torch_function_objects.py asks the class what an operation means; torch's own
`__torch_function__`, which most classes inherit, is a rule there.  Classes with a
`__torch_dispatch__`, with operators of their own, made by C code or by torch are refused.
Mirrors torch/_dynamo/variables/torch_function.py (TensorWithTFOverrideVariable).
"""

from typing import Any

import torch

from ...extras.extending import extends
from ...exceptions import Break
from ...extras.function_modes import unseen_alias
from ...guards import NAMES
from ...sources import KINDS
from ..base import Args, Codegen, Frame, Named, OutputGraph, Source, Variable
from ..constant import ConstantVar
from ..lookup import METHODS, MISSING, can_change, lookup
from ..objects import method_of_class
from ..registry import SHARED
from ..tensor import TensorVar
from ..wrap_tensors import wrap_input

KIND = "tensor subclass"
NAME = "__torch_function__"
TORCHS_OWN = (torch.Tensor, torch.nn.Parameter)
UNASKED = torch._C._disabled_torch_function_impl  # what a class has that torch is not to ask
# special methods that a class may have: none of them is an operation of this file's variables
HARMLESS = frozenset(
    """
    __module__ __doc__ __dict__ __weakref__ __annotations__ __qualname__ __parameters__ __new__
    __orig_bases__ __init__ __repr__ __str__ __format__ __reduce__ __reduce_ex__ __deepcopy__
    __init_subclass__ __class_getitem__ __static_attributes__ __firstlineno__ __torch_function__
    __annotate__ __annotate_func__ __annotations_cache__ __type_params__ __abstractmethods__
    __slotnames__
    """.split()
)
SPECIAL = sorted(n for n in dir(torch.Tensor) if n.startswith("__") and n not in HARMLESS)

# What `plain`, another object over the memory of a tensor from outside, would tell or keep wrongly.
HISTORY = frozenset(
    """
    is_leaf grad_fn _grad _grad_fn _base retains_grad output_nr _backward_hooks _is_view
    _post_accumulate_grad_hooks retain_grad register_hook register_post_accumulate_grad_hook
    """.split()
)


def retyped(tensor: torch.Tensor, cls: type) -> Any:
    """The same memory and history as a tensor of another class; no `__torch_function__` runs."""
    return UNASKED(torch.Tensor.as_subclass, (), (tensor, cls), {})


def as_plain(tensor: torch.Tensor) -> torch.Tensor:
    return retyped(tensor, torch.Tensor)


def unasked_grad(tensor: torch.Tensor) -> Any:
    return UNASKED(vars(torch._C.TensorBase)["grad"].__get__, (), (tensor,), {})


for _function in (as_plain, unasked_grad):
    _name = _function.__name__
    KINDS[_name], NAMES[_name] = _name + "({p})", _function


def is_subclass(kind: type) -> bool:
    return issubclass(kind, torch.Tensor) and kind not in TORCHS_OWN


def check_class(kind: type) -> None:
    """Raises Break for a class whose operations are more than its `__torch_function__`."""
    own = [cls for cls in kind.__mro__ if cls not in torch.nn.Parameter.__mro__]
    special = {n for cls in own for n in vars(cls) if n.startswith("__") and n.endswith("__")}
    of_torch = str(kind.__module__).partition(".")[0] == "torch" or not can_change(kind)
    dispatched = lookup(kind, "__torch_dispatch__")[0] not in TORCHS_OWN
    _, found = lookup(kind, NAME)
    known = isinstance(found, (classmethod, staticmethod)) or found is UNASKED
    unusual = not issubclass(type(kind), (type(torch.Tensor),)) or not known
    if of_torch or dispatched or unusual or not special <= HARMLESS:
        raise Break(KIND, f"the tensor subclass {kind.__name__} is not traced")
    for name in SPECIAL:  # and they must not come later
        lookup(kind, name)


class Subclassed(TensorVar):
    """`plain`: the variable of the same tensor without its class; `fields`: the instance's
    `__dict__`, and `given`: itself, of one from outside."""

    shared = True
    plain: Any = None
    fields: Any = None
    given: Any = None

    def argument(self, part: Any) -> Any:
        return part(self.plain)

    def getattr(self, tx: Frame, name: str) -> Variable:
        owner, found = lookup(self.cls, name)
        if name == "__class__":
            return tx.output.wrap_pinned(self.cls)
        if owner is not None and owner in torch.nn.Parameter.__mro__:
            if name == NAME and found is not UNASKED:
                return method_of_class(
                    tx, owner, found, name, self, tx.output.wrap_pinned(self.cls)
                )
            if name == "__dict__" or name in HARMLESS:
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
        """An attribute that torch defines (extras/torch_function_objects.py asks the class)."""
        if name == "grad" and self.source is not None:
            return tx.output.wrap(unasked_grad(self.given), self.source.child("unasked_grad"))
        self.check_history(tx, name)
        return self.plain.getattr(tx, name)

    def call_method(self, tx: Frame, name: str, args: Args, kwargs: Named) -> Variable:
        owner, _ = lookup(self.cls, name)
        if name == NAME or owner not in torch.nn.Parameter.__mro__:
            return self.getattr(tx, name).call(tx, args, kwargs)
        return self.torchs_method(tx, name, args, kwargs)

    def torchs_method(self, tx: Frame, name: str, args: Args, kwargs: Named) -> Variable:
        """A method that torch defines, also where the class has another of that name."""
        self.check_history(tx, name)
        result = self.plain.call_method(tx, name, args, kwargs)
        return self if result is self.plain else result

    def check_history(self, tx: Frame, name: str) -> None:
        """Raises Break where `plain` is another object for autograd than the program's tensor."""
        if self.source is None or name not in HISTORY:
            return
        learns = self.plain.of_fake(tx, "requires_grad")
        if learns or name not in ("is_leaf", "grad_fn"):
            raise Break(KIND, f".{name} of a {self.cls.__name__}")

    def length(self, tx: Frame) -> Any:
        return self.torchs_method(tx, "__len__", [], {}).as_constant()

    def iterate(self, tx: Frame) -> Any:
        if lookup(self.cls, NAME)[0] is not torch.Tensor or not self.fake.dim():
            raise Break(KIND, f"iterating over a {self.cls.__name__}")
        return self.torchs_method(tx, "unbind", [ConstantVar(0)], {}).iterate(tx)

    def reconstruct(self, cg: Codegen) -> None:
        cg.call_object(retyped, self.plain, lambda: cg.pinned(self.cls))


def refusing(operation: str) -> Any:
    def refuse(self: Subclassed, *args: Any) -> Any:
        raise Break(KIND, f"the {operation} of a {self.cls.__name__}")

    return refuse


for _name in ("truth", "contains", "setattr", "delattr", "hash_key"):
    extends(Subclassed, _name)(refusing(_name))


@SHARED.rule(test=lambda value: is_subclass(type(value)), order=9)
def wrap_subclassed(builder: OutputGraph, value: Any, source: Source) -> Variable:
    kind = type(value)
    check_class(kind)
    if torch.nn.parameter.is_lazy(value):
        raise Break(KIND, f"the tensor subclass {kind.__name__} is not traced")
    if kind.__torch_function__ is not UNASKED:
        guard_asked(builder)
    builder.guard(source, "TYPE", "type({0}) is {pin}", kind)
    own = source.child("as_plain")
    plain = wrap_input(builder, as_plain(value), own)
    builder.by_fake[id(plain.fake)] = plain
    fields = builder.fields_of(value, source.instance_dict()) if kind.__dictoffset__ else None
    return Subclassed(plain.node, plain.fake, kind, None, plain, fields, value, source=source)


def guard_asked(builder: OutputGraph) -> None:
    """Nobody has told torch to leave such classes alone (`DisableTorchFunctionSubclass`)."""
    enabled = torch._C._is_torch_function_enabled
    builder.guard(builder.tree.pinned(enabled), "STATE", "{0}()")
    if not enabled():
        raise Break(KIND, "an object with a __torch_function__ that is not to be asked")


@extends(TensorVar)
def method_as_subclass(self: TensorVar, tx: Frame, cls: Variable) -> Variable:
    """Another tensor over the same memory."""
    kind = cls.identity()
    if not isinstance(kind, type) or not issubclass(kind, torch.Tensor):
        raise Break(KIND, f"as_subclass() of {cls}")  # plain Python raises
    alias = unseen_alias(tx, self)
    return alias if kind is torch.Tensor else of_class(tx, alias, kind)


def of_class(tx: Frame, plain: Any, kind: type) -> Variable:
    """The tensor of the graph as one of the class."""
    if kind is torch.nn.Parameter:
        raise Break(KIND, "as_subclass(nn.Parameter)")
    check_class(kind)
    if kind.__torch_function__ is not UNASKED:  # type: ignore[attr-defined]
        guard_asked(tx.output)
    return Subclassed(plain.node, plain.fake, kind, None, plain)


def is_asked(variable: Any) -> bool:
    """Does torch ask the class of this tensor what an operation means?"""
    if not isinstance(variable, Subclassed):
        return False
    return lookup(variable.cls, NAME)[1] is not UNASKED
