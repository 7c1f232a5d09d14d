"""Tensors and constants from outside, and the guards on them.

In:   a real tensor or constant and its source.
Out:  of a tensor a node of the graph (a placeholder, or a parameter that the graph holds) with a
      fake tensor, and guards on dtype, device, sizes, strides, gradient; of a constant its value,
      guarded, or a symbol for an int that has changed.

    >>> wrap_tensor(builder, x, tree.local("x")).fake.shape

Tensors without sizes and strides that a graph could be made of are refused by name
(docs/how_it_is_tested.md has the whole table).  Parameters and buffers are guarded by identity,
which holds the rest of them fast.
Mirrors torch/_dynamo/variables/builder.py (wrap_tensor, wrap_literal) and guards.py (TENSOR_MATCH).
"""

from __future__ import annotations

import enum
from collections.abc import Collection
from typing import Any

import torch

from miniinductor.errors import ours
from miniinductor.sizes.printing import python_code

from ..errors import Break
from ..guards.guards import Guard, constant_check
from ..guards.sources import module_name
from ..variables.base import OutputGraph, Source, Variable
from ..variables.constant import ConstantVar
from ..variables.tensor import TensorVar

BY_IDENTITY = (enum.Enum, torch.dtype, torch.layout, torch.memory_format)
COMPRESSED = (torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc)
KNOWS_NAMES = hasattr(torch.Tensor, "has_names")  # named dimensions went with torch 2.13


def wrap_constant(builder: Any, value: Any, source: Source) -> Variable:
    """A constant at `source`; an int is a symbol if the policy of sizes says so."""
    if type(value) is int and builder.policy.of_int(value, source):
        builder.guard(source, "TYPE", "type({0}) is int")
        return builder.symbolic_int(value, source)
    check, pin = constant_check(value)
    if isinstance(pin, BY_IDENTITY):
        check = "{0} is {pin}"
    builder.guard(source, "EQUALS", check, pin)
    # another NaN may lie there later: containers find it as the object that it is
    return ConstantVar(value, source=source if value != value else None)


def wrap_tensor(builder: OutputGraph, value: Any, source: Source) -> TensorVar:
    """A placeholder of the graph, or a parameter that the graph holds."""
    refused = kind_without_graph(value)
    if refused is not None:
        raise Break("tensor", f"{refused} is not traced", "give the compiled function others")
    wrap = wrap_parameter if builder.is_held(source) else wrap_input
    variable = wrap(builder, value, source)
    builder.by_fake[id(variable.fake)] = variable
    return variable


def kind_without_graph(value: Any) -> str | None:
    """The name of a kind that is not traced, which fake tensors do not know, or only half; or None.
    (Sparse COO tensors and those of oneDNN are.)  PyTorch: the same for most of them."""
    if type(value) not in (torch.Tensor, torch.nn.Parameter):
        return f"the tensor subclass {type(value).__name__}"
    if value.is_quantized:
        return "a quantised tensor"
    if value.layout in COMPRESSED:
        return f"a sparse tensor ({value.layout})"
    if value.is_nested:
        return "a nested tensor"
    if KNOWS_NAMES and value.has_names():
        return "a tensor with named dimensions"
    try:
        value.is_leaf
    except ours(RuntimeError):  # made without gradients; then its memory was written with them
        return "a view that was written in another mode, of which autograd tells nothing,"
    return None


def wrap_parameter(builder: OutputGraph, value: torch.Tensor, source: Source) -> TensorVar:
    """A parameter or buffer of a module: held by the graph, guarded by its identity."""
    builder.guard(source, "ID", "{0} is {pin}", value)
    guard_tensor(builder, value, source)  # `p.data = ...`, `p.t_()` keep the identity
    if torch.is_grad_enabled():
        builder.guard(source, "GRAD", "{0}.requires_grad is {pin}", value.requires_grad)
    name = builder.unique_name(module_name(source))
    fake = builder.fake_of(value)
    node = builder.add_input("get_attr", name, fake)
    builder.attributes[name] = value
    return TensorVar(node, fake, type(value), value, source=source)


def wrap_input(builder: OutputGraph, value: torch.Tensor, source: Source) -> TensorVar:
    """A placeholder; some of its sizes and strides are symbols, if the policy says so."""
    dims = builder.policy.of_tensor(value, source)
    guard_tensor(builder, value, source, dims)
    builder.guard(source, "GRAD", "{0}.requires_grad is {pin}", value.requires_grad)
    if dims is None:
        fake = builder.fake_of(value)
    else:
        fake = builder.symbolic_fake_of(value, source, dims)
    node = builder.add_input("placeholder", builder.unique_name(source.name()), fake)
    variable = TensorVar(node, fake, type(value), value, source=source)
    builder.inputs.append(variable)
    if dims is not None:
        builder.input_layouts[id(variable)] = fake.shape, fake.stride()
        guard_strides(builder, fake, source)
    return variable


def guard_tensor(
    builder: OutputGraph,
    value: torch.Tensor,
    source: Source,
    symbolic: Collection[int] | None = None,
) -> None:
    """What is assumed of a tensor, but for gradients: a guard for each thing, which says what has
    changed.

    symbolic: dimensions whose sizes are symbols; `guard_strides` and the ShapeEnv guard those, and
    the strides.  None: sizes and strides are numbers."""
    if "ID" not in source.guards:
        builder.guard(source, "TENSOR", "type({0}) is {pin}", type(value))
    builder.guard(source, "DTYPE", "{0}.dtype is {pin}", value.dtype)
    if symbolic is not None:
        builder.guard(source, "SHAPE", f"{{0}}.dim() == {value.dim()}")
        fixed = [f"{{0}}[{d}] == {n}" for d, n in enumerate(value.shape) if d not in symbolic]
        if fixed:
            builder.guard(source.attr("shape"), "SHAPE", " and ".join(fixed))
    else:
        builder.guard(source, "SHAPE", f"{{0}}.shape == {tuple(value.shape)}")
        if value.layout is torch.strided:
            builder.guard(source, "STRIDE", f"{{0}}.stride() == {value.stride()}")
        else:
            builder.guard(source, "LAYOUT", "{0}.layout is {pin}", value.layout)
    if value.is_cpu:  # asking for `device` makes an object
        builder.guard(source, "DEVICE", "{0}.is_cpu")
    else:
        builder.guard(source, "DEVICE", "{0}.device == {pin}", value.device)
    builder.guard(source, "VIEW_BITS", view_bits_check(value))


def view_bits_check(value: torch.Tensor) -> str:
    """The check that a tensor answers as `value` does: is it negated or conjugated lazily, or made
    in inference mode?  That matters where gradients are recorded: such a tensor cannot be saved for
    backward."""
    names = (
        ["is_neg", "_is_zerotensor"]
        + ["is_conj"] * value.is_complex()
        + ["has_names"] * KNOWS_NAMES
    )
    if value.is_inference() or torch.is_grad_enabled() and not torch.is_inference_mode_enabled():
        names.append("is_inference")
    return " and ".join(f"{{0}}.{bit}() is {getattr(value, bit)()}" for bit in names)


def guard_strides(builder: OutputGraph, fake: Any, source: Source) -> None:
    """Strides that follow the symbolic sizes."""
    strides = fake.stride()
    symbolic = [n.node.expr for n in strides if type(n) is torch.SymInt]
    symbols = sorted(set().union(*[expr.free_symbols for expr in symbolic]), key=str)
    names = {symbol: f"{{{n}}}" for n, symbol in enumerate(symbols, 1)}
    steps = [
        python_code(n.node.expr, names) if type(n) is torch.SymInt else str(n) for n in strides
    ]
    comma = "," if len(steps) == 1 else ""
    check = f"{{0}}.stride() == ({', '.join(steps)}{comma})"
    sources = [builder.shape_env.table[symbol].sources[0] for symbol in symbols]
    builder.pair_guards.append(Guard("STRIDE", (source, *sources), check))
