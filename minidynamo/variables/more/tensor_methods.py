"""Methods of tensors that few programs call, and what may be set on a tensor.

In:   a TensorVar and arguments.   Out: a node of the graph, a constant, or a break.

    >>> tensor.call_method(tx, "requires_grad_", [], {})
"""

from collections.abc import Callable, Iterator
from typing import Any

import torch

from ...extras.extending import extends
from ...exceptions import Break
from ...foreign import ours
from ..base import Frame, Variable
from ..constant import ConstantVar
from ..tensor import TensorVar
from .tensor_metadata import Metadata


def written(tensor: TensorVar) -> dict[str, Variable]:
    """What this frame has set on the tensor: name -> value."""
    return vars(tensor).setdefault("written", {})


VALUE_METHODS = frozenset(
    """
    item tolist numpy __int__ __float__ __bool__ __index__ __complex__ __array__ cpu_numpy
    """.split()
)


BREAKING_METHODS = frozenset(
    """
    backward register_hook _is_view register_post_accumulate_grad_hook retain_grad share_memory_
    data_ptr storage untyped_storage storage_offset __dlpack__ pin_memory set_ apply_ map_
    __reduce_ex__ __deepcopy__ record_stream __setattr__ __delattr__
    """.split()
)


@extends(TensorVar)
class TensorMethods(Metadata):
    def real(self) -> Any:
        raise Break("constant", "a tensor where a constant is needed")

    def hash_key(self, tx: Frame) -> Any:
        tx.output.note_key(self)
        return self

    def truth(self, tx: Frame) -> bool:
        hint = "use torch.where, or keep the test outside"
        return self.value_of(tx, bool, "a branch on a tensor's value", hint)

    def value_of(self, tx: Frame, convert: Callable, reason: str, hint: str) -> Any:
        """The value, where fake tensors know it (a constant made in the frame); else a break."""
        try:
            with tx.output.fake_mode:
                return convert(self.fake)
        except ours(Exception):
            raise Break("data-dependent", f"{reason} ({self.describe()})", hint) from None

    def python_value(self, tx: Frame, name: str) -> Variable:
        """item() and the like: known of a constant that was made in the frame."""
        hint = "the value leaves the graph; keep it a tensor"
        value = self.value_of(tx, lambda fake: getattr(fake, name)(), f"Tensor.{name}()", hint)
        if type(value) not in (int, float, bool, complex):
            raise Break("data-dependent", f"Tensor.{name}() ({self.describe()})", hint)
        return ConstantVar(value)

    def get_grad(self, tx: Frame) -> Variable:
        if "grad" in written(self):
            return written(self)["grad"]
        if self.value is not None:
            return tx.output.wrap(self.value.grad, self.source.attr("grad"))
        return ConstantVar(None)  # no graph runs a backward pass

    def get_grad_fn(self, tx: Frame) -> Variable:
        if self.of_fake(tx, "grad_fn") is not None:
            return self._other_attribute(tx, "grad_fn")
        if self.value is not None:
            tx.output.guard(self.source, ("FLAG", "grad_fn"), "{0}.grad_fn is None")
        return ConstantVar(None)

    def method_requires_grad_(self, tx: Frame, *args: Variable, **kwargs: Variable) -> Any:
        tensor = self.fake if self.value is None else self.value
        self.of_fake(tx, "requires_grad")
        if tensor.is_inference() or tensor._is_view():  # what it needs is not told by its flag
            raise Break("tensor method", "requires_grad_() of a view or an inference tensor")
        return tx.output.call_graph(tx, "call_method", "requires_grad_", [self, *args], kwargs)

    def method_tolist(self, tx: Frame) -> Variable:
        """Its numbers one by one; those of a `torch.tensor([2, 3])` in the frame are known."""
        known = constant_of(self, tx)
        if known is not None:
            return tx.output.wrap_result(known.tolist())
        return self.python_value(tx, "tolist")

    def method_detach_(self, tx: Frame) -> Any:
        """Eager refuses a view, and no guard tells a view from another tensor of its sizes."""
        self.of_fake(tx, "requires_grad")
        if self.source is not None:
            raise Break("tensor method", "detach_() of a tensor that may be a view in another call")
        return tx.output.call_graph(tx, "call_method", "detach_", [self], {})

    def method_type(self, tx: Frame, *args: Variable, **kwargs: Variable) -> Any:
        if not args and not kwargs:
            return ConstantVar(self.fake.type())
        kind = getattr(args[0], "value", None) if args else None
        if type(kind).__name__ == "tensortype":  # torch.DoubleTensor, by its name
            args = (ConstantVar(kind.__module__ + "." + getattr(kind, "__name__")), *args[1:])
        return tx.output.call_graph(tx, "call_method", "type", [self, *args], kwargs)

    def method_new(self, tx: Frame, *args: Variable, **kwargs: Variable) -> Any:
        """x.new(size) makes a tensor of that size, x.new((2, 3)) one that holds 2 and 3: a graph
        has tuples only, so that a torch.Size is given by its name."""
        if args and getattr(args[0], "cls", None) is torch.Size:
            kwargs = kwargs | {"size": args[0]}
            args = args[1:]
        return tx.output.call_graph(tx, "call_method", "new", [self, *args], kwargs)

    def method___hash__(self, tx: Frame) -> None:
        raise Break("tensor method", "hash(tensor)")

    def iterate(self, tx: Frame) -> Iterator[Variable]:
        if not self.fake.dim():
            tx.raise_(TypeError, "iteration over a 0-d tensor")
        parts = tx.output.call_graph(tx, "call_method", "unbind", [self, ConstantVar(0)], {})
        return parts.iterate(tx)

    def contains(self, tx: Frame, item: Variable) -> bool:
        result = tx.output.call_graph(tx, "call_method", "__contains__", [self, item], {})
        return result.truth(tx)


def constant_of(tensor: TensorVar, tx: Frame) -> torch.Tensor | None:
    """The tensor itself, if the frame has made it of numbers, and nothing was written since."""
    node, memory = tensor.node, tensor.fake.untyped_storage()._cdata
    if node.op != "call_function" or node.target is not torch.tensor or node.all_input_nodes:
        return None
    if any(fake.untyped_storage()._cdata == memory for _, fake in tx.output.written):
        return None
    return torch.tensor(*node.args, **node.kwargs).detach()


def sets_what_is(self: TensorVar, tx: Frame, value: Variable) -> bool:
    """Does `tensor.requires_grad = value` neither change anything nor raise?"""
    tensor = self.fake if self.value is None else self.value
    return (
        value.as_constant() is self.fake.requires_grad
        and not tensor.is_inference()
        and not tensor._is_view()  # its own flag may differ from what it tells
        and self.getattr(tx, "is_leaf").as_constant()
    )


def _value_method(name: str) -> Callable:
    return lambda self, tx, *args, **kwargs: self.python_value(tx, name)


def _breaking_method(name: str) -> Callable:
    def method(self: TensorMethods, tx: Frame, *args: Variable, **kwargs: Variable) -> Any:
        raise Break("tensor method", f"Tensor.{name}() is not traced")

    return method


for _name in BREAKING_METHODS:
    if not hasattr(TensorVar, f"method_{_name}"):
        extends(TensorVar, f"method_{_name}")(_breaking_method(_name))
for _name in VALUE_METHODS:
    if not hasattr(TensorVar, f"method_{_name}"):  # arrays.py knows better what numpy() gives
        extends(TensorVar, f"method_{_name}")(_value_method(_name))
