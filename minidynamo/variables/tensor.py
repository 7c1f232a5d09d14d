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
A call that gives no tensor is answered by the fake one, and guarded (`wrap_non_tensor`):

    if x.is_contiguous(): ...       # FLAG: x.is_contiguous() is True
    torch.get_num_threads()         # STATE: it gives the same again

Mirrors torch/_dynamo/variables/tensor.py, and side_effects.py (paper section 3.5).
"""

from __future__ import annotations

import functools
import operator
import types
from collections.abc import Callable, Iterator, Sequence
from dataclasses import field
from typing import Any

import torch
from torch._subclasses import fake_tensor

from miniinductor.errors import ours

from ..errors import Break, SkipFrame
from ..guards.checks import literal
from ..guards.originals import guard_calls, in_leaf_module, made_by_torch, replaced_in_tensor
from .base import Args, Codegen, Frame, Named, OutputGraph, Variable, lookup
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
        return self.method_node(tx, "unbind", [ConstantVar(0)], {}).iterate(tx)

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
        if self.value is not None and name in self.value.__dict__:
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


def select_symbols(tx: Any, target: Any, args: Any) -> Any:
    """The arguments of a call of `target`.  An index with symbols (`weight[token]`,
    `cache[:, position] = key`) becomes a `torch.select` for each symbol, and the rest of the index:
    torch's own indexing would ask for the number, and each position would be compiled anew.  (It
    does so beside tensors, None or an ellipsis.)"""
    if target not in (operator.getitem, operator.setitem) or type(args[0]) is not TensorVar:
        return args
    tensor, key, *value = args
    items = list(key.iterate(tx)) if type(key) is TupleVar else [key]
    kinds = [item.python_type() for item in items]
    symbols = [type(item) is SymVar and item.python_type() is int for item in items]
    if not any(symbols) or not {*kinds} <= {int, slice} or len(items) > tensor.fake.dim():
        return args
    for dim, item in reversed([*enumerate(items)]):
        if symbols[dim]:
            tensor = tx.node(torch.select, [tensor, ConstantVar(dim), item])
    rest = [item for item, is_symbol in zip(items, symbols) if not is_symbol]
    return [tensor, TupleVar(rest or [ConstantVar(...)]), *value]


# ---- calls that give no tensor
# methods that tell which object a tensor is, and where its memory lies
OF_ITSELF = {"__hash__", "data_ptr", "const_data_ptr", "mutable_data_ptr", "storage_type"}


def wrap_non_tensor(
    output: OutputGraph,
    tx: Any,
    op: str,
    target: Any,
    args: Any,
    kwargs: Any,
    result: Any,
    written: Any,
) -> Variable:
    """The result of a call that gave no tensor.  If the call read a flag of a tensor or the
    process's state, that is guarded; if it only wrote, it becomes a node."""
    name = target if op == "call_method" else target.__name__
    if args and name != "type" and (name in OF_ITSELF or tells_of_itself(result)):
        raise Break("string", f"{name}() of a tensor: a fake one would answer for it")
    if not args and not kwargs and name.startswith(("is_", "get_", "are_")):
        guard_outer_state(output, functools.partial(target), result)
    elif len(args) == 1 and not kwargs:
        guard_flag(output, args[0], name)
    if result is None and (op == "call_function" or written):
        node = output.add_node(tx, op, target, args, kwargs, None)
        output.written += [(node, tensor) for tensor in written]
    return output.wrap_result(result)


def tells_of_itself(result: Any) -> bool:
    """Is the result text, a class or a function, or a list of such?  A fake tensor would describe
    itself there, and not the real tensor."""
    if isinstance(result, (list, tuple)):
        return any(map(tells_of_itself, result))
    return isinstance(result, (str, bytes, type)) or callable(result)


def guard_outer_state(output: OutputGraph, call: functools.partial[Any], value: Any) -> None:
    """As `guard_state`, but for what the frame itself may have set, which is guarded on entry."""
    name = call.func.__name__
    if not output.state.before or not ("grad" in name or "autocast" in name):
        guard_state(output, call, value)


def guard_state(output: OutputGraph, call: functools.partial[Any], value: Any) -> None:
    """`call` read `value` from the process's state: it must give the same again."""
    texts = [written(output, argument) for argument in call.args]
    texts += [f"{k}={written(output, argument)}" for k, argument in call.keywords.items()]
    check = f"{{0}}({', '.join(texts)}) == {{pin}}"
    key = repr((call.args, call.keywords))
    output.guard(output.tree.pinned(call.func), ("STATE", key), check, value)


def written(output: OutputGraph, argument: Any) -> str:
    """A constant in the text of a guard; the entry holds what has no literal, such as a device."""
    if argument is None or type(argument) in (bool, int, str):
        return literal(argument)
    return output.tree.pinned(argument).key


def guard_flag(output: OutputGraph, variable: Variable, name: str) -> None:
    """`tensor.is_...()` was read of an input."""
    if type(variable) is not TensorVar or variable.value is None:
        return
    if name.startswith(("is_", "_is_")) and hasattr(torch.Tensor, name):
        check = f"{{0}}.{name}() is {getattr(variable.value, name)()}"
        output.guard(variable.source, ("FLAG", name), check)


# ---- calls that fake tensors cannot run
# what fake tensors raise where an op needs to know the numbers in a tensor
NEEDS_DATA = (fake_tensor.DataDependentOutputException, fake_tensor.DynamicOutputShapeException)


def failure(output: OutputGraph, target: Any, args: Sequence[Any], error: Exception) -> Exception:
    """Why an operation cannot be run with fake tensors: an error of the program's, which plain
    Python raises with its own message; or it needs the numbers in a tensor."""
    name = getattr(target, "__qualname__", None) or getattr(target, "__name__", target)
    called = f"Tensor.{target}" if isinstance(target, str) else str(name)
    if isinstance(error, NEEDS_DATA):
        return Break(
            "data-dependent",
            f"{called} needs the tensor's values ({error})",
            "the shape or value depends on data; keep it outside the compiled function",
        )
    if isinstance(error, fake_tensor.UnsupportedFakeTensorException):
        return Break("fake tensor", f"{called}: {error}")
    text = str(error).strip().partition("\n")[0]
    reason = f"{called} failed while tracing: {type(error).__name__}: {text}"
    bases = [output.by_fake.get(id(getattr(arg, "_base", None))) for arg in args]
    if "place" in text and any(base and base.source is None for base in bases):
        return SkipFrame(reason)  # a write to a view, which is none behind a graph break
    return Break("op failed", reason)
