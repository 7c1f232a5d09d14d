"""(coverage) Tensors without sizes and strides that a graph could be made of are refused by name.

In:   a tensor of a kind that fake tensors do not know, or only half.
Out:  a graph break that names the kind; the frame, or what uses the tensor, runs as plain Python.

    >>> minidynamo.compile(f)(x.to_sparse_csr())        # right, and eager
    >>> minidynamo.counters["graph_breaks"]
    Counter({'a sparse tensor (torch.sparse_csr) is not traced at example.py:3': 1})

docs/how_it_is_tested.md has the whole table.  Sparse COO tensors and those of oneDNN are captured;
miniinductor runs their graphs eagerly.
PyTorch: the same for most of them; quantised tensors raise inside of fake tensors.
"""

from typing import Any, NoReturn

import torch

from ...exceptions import Break
from ...foreign import ours
from ..registry import SHARED
from ...layouts import KNOWS_NAMES

PLAIN = (torch.Tensor, torch.nn.Parameter)
COMPRESSED = (torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc)


def kind_of(value: torch.Tensor) -> str | None:
    """The name of a kind that is not traced, or None.  The tensor's class is not asked: its
    `__torch_function__` is the program's, which would see what plain Python does not ask."""
    with torch._C.DisableTorchFunctionSubclass():
        if value.is_quantized:
            return "a quantised tensor"
        if value.layout in COMPRESSED:
            return f"a sparse tensor ({value.layout})"
        if value.is_nested and type(value) in PLAIN:
            return "a nested tensor"
    return None


@SHARED.rule(
    test=lambda value: issubclass(type(value), torch.Tensor) and kind_of(value) is not None, order=5
)
def refuse(builder: Any, value: Any, source: Any) -> NoReturn:
    raise Break("tensor", f"{kind_of(value)} is not traced", "give the compiled function others")


def tells_history(value: torch.Tensor) -> bool:
    """Does autograd answer questions about this tensor?  Not of a view that was made without
    gradients, after a write to its memory with gradients."""
    try:
        return value.is_leaf is not None
    except ours(RuntimeError):
        return False


@SHARED.rule(
    test=lambda value: type(value) in PLAIN and (has_names(value) or not tells_history(value)),
    order=6,
)
def refuse_plain(builder: Any, value: Any, source: Any) -> NoReturn:
    if not tells_history(value):
        raise Break("tensor", "a view that was written in another mode: autograd refuses it")
    raise Break("tensor", "a tensor with named dimensions", "drop them: tensor.rename(None)")


def has_names(value: Any) -> bool:
    return KNOWS_NAMES and value.has_names()
