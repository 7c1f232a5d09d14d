"""torch.tensor([height, 2]) and x.new_tensor(returns) of numbers that are symbols: the numbers stay
symbols, and a node of the graph makes the tensor of them.

In:   nested lists or tuples that hold a symbolic number.  Out: a tensor of the graph; None: torch
      is given the numbers of this run, which are guarded.

    torch.tensor([x.shape[0], 3])       # stack((full((), s0), full((), 3)))

`torch.tensor([x.max(), y.max()])` of tensors that hold one number is a `torch.stack` of copies, if
they have one dtype and no gradients.

What torch.tensor makes of plain numbers is known while tracing: `.tolist()` and `bool(...)` give
Python's numbers back.  To ask that of a tensor of symbols is a graph break.
# PyTorch: symbols stay in torch.tensor, and are unbacked where they are read out.
"""

import functools
from typing import Any

import torch

from ..errors import Break
from ..graph.graph_module import guard_state
from ..variables.base import Frame, Variable
from ..variables.constant import ConstantVar
from ..variables.dicts import ListVar, TupleVar
from ..variables.registry import rule
from ..variables.symbolic import SymVar
from ..variables.tensor import TensorVar
from .torch_state import at

MOST = 32  # numbers in one tensor; each is a node
# Of others torch refuses some numbers: torch.tensor(300, dtype=torch.uint8).
DTYPES = (torch.int64, torch.float32, torch.float64)


def of_symbols(
    tx: Frame, data: Variable, dtype: torch.dtype | None, device: Variable | None
) -> Variable | None:
    """torch.tensor(data, dtype=dtype, device=device)"""
    numbers, shape = [], sizes_of(data)
    if shape is None:
        return None
    collect(data, numbers)
    if len(numbers) > MOST or not any(is_symbol(number) for number in numbers):
        return None
    kinds = {number.python_type() for number in numbers}
    if not kinds <= {int, float}:
        return None
    if dtype is None:
        dtype = torch.get_default_dtype() if float in kinds else torch.int64
    if dtype not in DTYPES or float in kinds and dtype is torch.int64:
        return None
    parts = [element(tx, number, dtype, device) for number in numbers]
    made: Any = parts[0]
    if shape:
        made = tx.node(torch.stack, [ListVar(parts)])
    if len(shape) > 1:
        made = tx.node(torch.reshape, [made, TupleVar([ConstantVar(size) for size in shape])])
    return made


def of_tensors(
    tx: Frame, data: Variable, dtype: torch.dtype | None, device: Variable | None
) -> Variable | None:
    """torch.tensor(data, dtype=dtype), where all the numbers are 0-d tensors of the CPU's."""
    parts: list[Any] = []
    shape = sizes_of(data)
    if shape is None or device is not None:
        return None
    collect(data, parts)
    if len(parts) > MOST or not all(type(part) is TensorVar for part in parts):
        return None
    fakes = [part.fake for part in parts]
    kinds = {(fake.dtype, fake.is_cpu, fake.requires_grad, fake.layout) for fake in fakes}
    wanted = (dtype or fakes[0].dtype, True, False, torch.strided)
    if kinds != {wanted} or fakes[0].is_complex():
        return None
    guard_state(tx.output, functools.partial(torch._C._get_default_device), "cpu")
    made = tx.node(torch.stack, [ListVar(parts)])
    if len(shape) == 1:
        return made
    return tx.node(torch.reshape, [made, TupleVar([ConstantVar(size) for size in shape])])


def sizes_of(data: Variable) -> tuple[int, ...] | None:
    """The sizes of the tensor; None where torch has to say what is wrong, or there is nothing."""
    if isinstance(data, (ConstantVar, SymVar)) or type(data) is TensorVar and not data.fake.dim():
        return ()
    if not isinstance(data, (ListVar, TupleVar)) or not data.items:
        return None
    inner = {sizes_of(item) for item in data.items}
    first = next(iter(inner))
    if len(inner) > 1 or first is None:
        return None
    return (len(data.items), *first)


def collect(data: Any, numbers: list[Any]) -> None:
    """The numbers in nested lists, in their order."""
    if isinstance(data, (ListVar, TupleVar)):
        for item in data.items:
            collect(item, numbers)
    else:
        numbers.append(data)


def is_symbol(number: Variable) -> bool:
    return type(number) is SymVar


def element(tx: Frame, number: Any, dtype: torch.dtype, device: Variable | None) -> Variable:
    """A 0-d tensor.  torch makes float32 of an int by way of a double."""
    to_dtype = ConstantVar(dtype)
    is_int = number.python_type() is int
    wide = torch.int64 if is_int else torch.float64
    options = {"dtype": ConstantVar(wide)} | ({} if device is None else {"device": device})
    made: Any = tx.node(torch.full, [TupleVar([]), number], options)
    if is_int and dtype is torch.float32:
        wide = torch.float64
        made = tx.output.call_graph(tx, "call_method", "to", [made, ConstantVar(wide)], {})
    if wide is not dtype:
        made = tx.output.call_graph(tx, "call_method", "to", [made, to_dtype], {})
    return made


@rule(torch.Tensor.new_tensor)
def _new_tensor(tx: Frame, tensor: TensorVar, *args: Variable, **kwargs: Variable) -> Variable:
    """A tensor of this one's dtype and device."""
    if len(args) == 1 and not kwargs:
        fake = tensor.fake
        made = of_symbols(tx, args[0].realize(tx), fake.dtype, ConstantVar(fake.device))
        if made is not None:
            return made
    return tensor.method_node(tx, "new_tensor", args, kwargs)


# ---- the ways of old: torch.Tensor([1.5]), torch.LongTensor(2, 3)
NAMES = "Float Double Half BFloat16 Long Int Short Char Byte Bool".split()


def _legacy(dtype: torch.dtype | None, tx: Frame, *args: Variable, **kwargs: Variable) -> Variable:
    """`torch.Tensor(2, 3)` and `torch.Tensor(x.shape)` are `torch.empty` of these sizes,
    `torch.LongTensor((1, 2))` is `torch.tensor` of these numbers, `torch.Tensor(x)` is a view of
    `x` if that has the dtype.  All else (a storage, an array) is a graph break.

    `dtype`: None for torch.Tensor, which takes the default.  Mirrors `_call_legacy_tensor...`."""
    if kwargs:
        raise Break("arguments", "a legacy constructor of tensors with named arguments")
    if len(args) == 1 and is_alike(args[0], dtype):
        return tx.node(torch.ops.aten.alias.default, [args[0]])
    if dtype is None:
        guard_state(tx.output, functools.partial(torch._C._get_default_device), "cpu")
        dtype = torch.get_default_dtype()
    options = {"dtype": ConstantVar(dtype), "device": ConstantVar(torch.device("cpu"))}
    if all(is_size(value) for value in args):
        return tx.node(torch.empty, [TupleVar(list(args))], options)
    if len(args) > 1 or not isinstance(args[0], (ListVar, TupleVar)):
        raise Break("class", f"a tensor made of {args[0]}", "use torch.tensor or torch.empty")
    if args[0].cls is torch.Size:
        return tx.node(torch.empty, [args[0]], options)
    return tx.call_c(torch.tensor, [args[0]], options)


def is_alike(value: Variable, dtype: torch.dtype | None) -> bool:
    """Is it a plain tensor of the CPU's, of this dtype?"""
    if type(value) is not TensorVar or value.cls not in (torch.Tensor, torch.nn.Parameter):
        return False
    plain = value.fake.layout is torch.strided and value.fake.is_cpu
    return plain and dtype in (None, value.fake.dtype)


def is_size(value: Variable) -> bool:
    return isinstance(value, (ConstantVar, SymVar)) and value.python_type() is int


if torch._C._get_default_device() == "cpu":
    rule(torch.Tensor)(functools.partial(_legacy, None))
for _name in NAMES:
    _class = at(_name + "Tensor")
    if _class is not None:
        rule(_class)(functools.partial(_legacy, _class.dtype))


@rule(at("_shape_as_tensor"))
def _shape_as_tensor(tx: Frame, tensor: Variable) -> Variable:
    """The sizes as numbers in a tensor."""
    sizes = tensor.getattr(tx, "shape")
    if not all(type(size) is ConstantVar for size in sizes.iterate(tx)):
        raise Break("op", "torch._shape_as_tensor() of symbolic sizes")
    return tx.node(torch.tensor, [TupleVar(list(sizes.iterate(tx)))])
