"""Tensors that a program makes in the ways of old: torch.Tensor([1.5]), torch.LongTensor(2, 3).

In, out: see `symbolic_eval.registry`.

| written | what it is |
|---|---|
| `torch.Tensor(2, 3)`, `torch.Tensor(x.shape)` | `torch.empty` of these sizes |
| `torch.Tensor([[1, 2]])`, `torch.LongTensor((1, 2))` | `torch.tensor` of these numbers |
| `torch.Tensor(x)`, `torch.LongTensor(x)` | a view of `x`, which has the dtype |

All else (a storage, an array, a tensor of another dtype) is a graph break.
Mirrors torch/_dynamo/variables/builtin.py and torch.py (`_call_legacy_tensor...`).
"""

import functools

import torch

from ..exceptions import Break
from ..graph_values import guard_state
from ..symbolic_eval.registry import rule
from ..variables.base import Frame, Variable
from ..variables.constant import ConstantVar
from ..variables.containers import ListVar, TupleVar
from ..variables.symbolic import SymVar
from ..variables.tensor import TensorVar
from .torch_state import at

NAMES = "Float Double Half BFloat16 Long Int Short Char Byte Bool".split()


def _legacy(dtype: torch.dtype | None, tx: Frame, *args: Variable, **kwargs: Variable) -> Variable:
    """`dtype`: None for torch.Tensor, which takes the default."""
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
