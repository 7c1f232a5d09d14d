"""Tensors: a node of the FX graph and a fake tensor that knows shape, dtype, device and
requires_grad.

In:   attribute reads and writes, methods and operators on it.
Out:  graph nodes (through `tx.output.call_graph`), constants for metadata; what needs the *values*
      breaks the graph.  What a program sets (`p.grad = None`, `x.scale = 2`) is given back when it
      is read, and set behind the graph.

    >>> TensorVar(node, fake).getattr(tx, "shape")      # TupleVar of constants, no node

A method that is no plain node is a method `method_...` here, or has a rule of its own, as functions
have: `rule(torch.Tensor.register_hook)`.  What torch itself keeps in a tensor (`requires_grad`,
`names`, `data`) cannot be set.  An index that is a symbol (`weight[token]`) becomes a `select`.
Mirrors torch/_dynamo/variables/tensor.py, and side_effects.py (paper section 3.5).
"""

from __future__ import annotations

import operator
import types
from collections.abc import Callable, Iterator
from dataclasses import field
from typing import Any

import torch

from miniinductor.errors import ours

from ..errors import Break, SkipFrame
from ..guards.originals import guard_calls, in_leaf_module, made_by_torch, replaced_in_tensor
from .base import Args, Codegen, Frame, Named, Variable, lookup
from .constant import ConstantVar
from .dicts import TupleVar
from .objects import method_of_class
from .registry import RULES
from .symbolic import SymVar

# Attributes and methods that the fake tensor answers, without a node.
METADATA_NAMES = """
    dtype device layout ndim requires_grad is_leaf is_cuda is_cpu is_sparse is_quantized is_meta
    is_mps is_xpu is_mkldnn is_nested itemsize nbytes names output_nr is_sparse_csr is_mtia
    is_ipu is_xla is_vulkan is_maia
    """
METADATA = {name for name in METADATA_NAMES.split() if hasattr(torch.Tensor, name)}
METADATA_METHODS = frozenset("dim ndimension numel nelement stride".split())
UNGUARDED = {"is_leaf", "output_nr", "names"}  # of an input: guarded when they are read
HISTORY = {"requires_grad", "is_leaf"}
VIEWS = frozenset("T mT H mH real imag data".split())
# Methods that need a tensor's values: fake tensors have those of constants alone.
VALUE_METHODS = frozenset(
    "item tolist numpy __int__ __float__ __bool__ __index__ __complex__ __array__".split()
)
NOT_TRACED = frozenset(
    """
    backward _is_view retain_grad share_memory_ data_ptr storage untyped_storage _typed_storage
    storage_offset __dlpack__ pin_memory set_ apply_ map_ __reduce_ex__ __deepcopy__ record_stream
    __setattr__ __delattr__ as_subclass __hash__ new detach_ requires_grad_
    """.split()
)
HINT = "set it outside the compiled function"


class TensorVar(Variable):
    """`node` in the graph under construction, `fake` its example value, `cls` Tensor or Parameter;
    `value` the real one of an input.  `written`: what the frame has set on it."""

    node: torch.fx.Node
    fake: torch.Tensor
    cls: type = torch.Tensor
    value: torch.Tensor | None = None
    written: dict[str, Variable] = field(default_factory=dict, init=False)

    def describe(self) -> str:
        return f"{str(self.fake.dtype).removeprefix('torch.')}{list(self.fake.shape)}"

    def reconstruct(self, cg: Codegen) -> None:
        cg.load_graph_output(self)

    def hash_key(self, tx: Frame) -> Any:
        tx.output.note_key(self)
        return self

    # ---- operations
    def getitem(self, tx: Frame, key: Variable) -> Variable:
        return tx.node(operator.getitem, [self, key])

    def setitem(self, tx: Frame, key: Variable, value: Variable) -> None:
        tx.node(operator.setitem, [self, key, value])

    def iterate(self, tx: Frame) -> Iterator[Variable]:
        if not self.fake.dim():
            tx.raise_(TypeError, "iteration over a 0-d tensor")
        parts = tx.output.call_graph(tx, "call_method", "unbind", [self, ConstantVar(0)], {})
        return parts.iterate(tx)

    def length(self, tx: Frame) -> Any:
        if not self.fake.dim():
            tx.raise_(TypeError, "len() of a 0-d tensor")
        return self.fake.shape[0]

    # ---- reading attributes
    def getattr(self, tx: Frame, name: str) -> Variable:
        found = self.replaced(tx, name)
        if found is not None:
            return found
        if name in METADATA:
            return self.metadata(tx, name)
        if name in VIEWS:
            return tx.node(getattr, [self, ConstantVar(name)])
        read = getattr(self, "get_" + name, None)
        return read(tx) if read is not None else self.other_attribute(tx, name)

    def metadata(self, tx: Frame, name: str) -> Variable:
        if name in UNGUARDED and self.value is not None:
            found = getattr(self.value, name)
            tx.output.guard(self.source, ("FLAG", name), f"{{0}}.{name} == {{pin}}", found)
        return tx.output.wrap_result(self.of_fake(tx, name))

    def of_fake(self, tx: Frame, name: str) -> Any:
        """The fake tensor's attribute.  In inference mode a view of a tensor that needs gradients
        needs them, too, which fakes forget; of one that was written in another mode, autograd may
        refuse to tell it."""
        if name in HISTORY and torch.is_inference_mode_enabled():
            raise Break("tensor attribute", f"Tensor.{name} in inference mode")
        try:
            return getattr(self.fake, name)
        except ours(RuntimeError) as error:
            raise Break("tensor attribute", f"Tensor.{name}: {str(error)[:80]}") from None

    def get_shape(self, tx: Frame) -> Variable:
        return tx.output.wrap_result(self.fake.shape)

    def get_grad(self, tx: Frame) -> Variable:
        if "grad" in self.written:
            return self.written["grad"]
        if self.value is not None:
            return tx.output.wrap(self.value.grad, self.source.attr("grad"))
        return ConstantVar(None)  # no graph runs a backward pass

    def other_attribute(self, tx: Frame, name: str) -> Variable:
        """What the frame has set, what the program has put on the tensor, or a method."""
        if name in self.written:
            return self.written[name]
        if self.value is not None and name in getattr(self.value, "__dict__", {}):
            return tx.output.wrap(self.value.__dict__[name], self.source.attr(name))
        if not hasattr(torch.Tensor, name) and hasattr(self.cls, name):
            raise Break("tensor attribute", f"{self.cls.__name__}.{name} is the program's")
        found = getattr(torch.Tensor, name, None)
        if found is None:
            if self.value is not None:
                tx.output.guard(self.source, ("ABSENT", name), "not hasattr({0}, {pin})", name)
            tx.raise_(AttributeError, f"'{self.cls.__name__}' object has no attribute '{name}'")
        if not callable(found):
            raise Break("tensor attribute", f"Tensor.{name} is not traced")
        return tx.method_of(self, name)

    def replaced(self, tx: Frame, name: str) -> Variable | None:
        """What the program has assigned to this attribute of torch.Tensor (`torch.Tensor.relu =
        mine`); None if it is still torch's own."""
        owner, found = lookup(torch.Tensor, name)
        if not replaced_in_tensor(owner, name, found):
            if made_by_torch(found):
                guard_calls(tx.output, found, in_leaf_module)
            return None
        if not isinstance(found, types.FunctionType):
            raise Break("tensor attribute", f"Tensor.{name}, which the program has replaced")
        return method_of_class(tx, owner, found, name, self, tx.output.wrap_pinned(self.cls))

    # ---- setting attributes
    def setattr(self, tx: Frame, name: str, value: Variable) -> None:
        if name == "data" and value is self:  # module.to(...) that changes nothing
            return
        is_plain = not hasattr(torch.Tensor, name) and not name.startswith("_")
        if not is_plain and not (name == "grad" and value.identity() is None):
            raise Break("tensor attribute", f"setting Tensor.{name}", HINT)
        if not self.mutated:
            self.mutated = True
            tx.output.sourced.append(self)
        self.written[name] = value

    def replay(self, cg: Codegen) -> None:
        for name, value in self.written.items():
            cg.value(value)
            cg.value(self)
            cg.commit("STORE_ATTR", name)

    # ---- methods
    def call_method(self, tx: Frame, name: str, args: Args, kwargs: Named) -> Variable:
        found = self.replaced(tx, name)
        if found is not None:
            return found.call(tx, args, kwargs)
        if name in METADATA_METHODS:
            values = [value.as_constant() for value in (*args, *kwargs.values())]
            return tx.fold(getattr(self.fake, name), *values)
        method = getattr(self, "method_" + name, None)
        if method is not None:
            return method(tx, *args, **kwargs)
        known = getattr(torch.Tensor, name, None)
        if not callable(known):  # a property, or on this tensor alone
            return self.getattr(tx, name).call(tx, args, kwargs)
        if known in RULES:
            return RULES[known](tx, [self, *args], kwargs)
        if name in VALUE_METHODS:
            return self.python_value(tx, name)
        if name in ("detach_", "requires_grad_") and self.source is None and self.fake._is_view():
            raise SkipFrame(f"Tensor.{name}() of a view, which is none behind a graph break")
        if name in NOT_TRACED:
            raise Break("tensor method", f"Tensor.{name}() is not traced")
        return self.method_node(tx, name, args, kwargs)

    def method_node(self, tx: Frame, name: str, args: Any, kwargs: Named) -> Variable:
        return tx.output.call_graph(tx, "call_method", name, [self, *args], kwargs)

    def method_size(self, tx: Frame, dim: Variable | None = None) -> Any:
        if dim is None or dim.identity() is None:
            return self.get_shape(tx)
        return tx.fold(self.fake.size, dim.as_constant())

    def method_type(self, tx: Frame, *args: Variable, **kwargs: Variable) -> Any:
        if not args and not kwargs:
            return ConstantVar(self.fake.type())
        if args and type(getattr(args[0], "value", None)).__name__ == "tensortype":
            raise Break("tensor method", "Tensor.type() of a legacy class", "give it a dtype")
        return self.method_node(tx, "type", args, kwargs)

    # ---- values: known where the frame has made a constant
    def truth(self, tx: Frame) -> bool:
        hint = "use torch.where, or keep the test outside"
        return self.value_of(tx, bool, "a branch on a tensor's value", hint)

    def value_of(self, tx: Frame, convert: Callable, reason: str, hint: str) -> Any:
        """The value, where fake tensors know it; else a break."""
        try:
            with tx.output.fake_mode:
                return convert(self.fake)
        except ours(Exception):
            raise Break("data-dependent", f"{reason} ({self.describe()})", hint) from None

    def python_value(self, tx: Frame, name: str) -> Variable:
        """item() and the like."""
        hint = "the value leaves the graph; keep it a tensor"
        value = self.value_of(tx, lambda fake: getattr(fake, name)(), f"Tensor.{name}()", hint)
        if type(value) not in (int, float, bool, complex):
            raise Break("data-dependent", f"Tensor.{name}() ({self.describe()})", hint)
        return ConstantVar(value)


def select_symbols(tx: Any, target: Any, args: Any, kwargs: Any) -> tuple[Any, Any, Any]:
    """The call to record in place of an index with symbols (`weight[token]`, `cache[:, position] =
    key`): a `torch.select` for each symbol, and the rest of the index.  torch's own indexing would
    ask for the number, and each position would be compiled for anew; so it is beside tensors, None
    or an ellipsis."""
    if target not in (operator.getitem, operator.setitem) or type(args[0]) is not TensorVar:
        return target, args, kwargs
    tensor, key, *value = args
    items = list(key.iterate(tx)) if type(key) is TupleVar else [key]
    kinds = [item.python_type() for item in items]
    symbols = [type(item) is SymVar and item.python_type() is int for item in items]
    if not any(symbols) or not {*kinds} <= {int, slice} or len(items) > tensor.fake.dim():
        return target, args, kwargs
    for dim, item in reversed([*enumerate(items)]):
        if symbols[dim]:
            tensor = tx.node(torch.select, [tensor, ConstantVar(dim), item])
    rest = [item for item, is_symbol in zip(items, symbols) if not is_symbol]
    return target, [tensor, TupleVar(rest or [ConstantVar(...)]), *value], kwargs
