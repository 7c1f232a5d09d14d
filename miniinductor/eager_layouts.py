"""In which strides does eager's kernel give its result?  Shape functions do not always know.

In:   an ATen overload, its arguments, and its fake results.  Out: the strides of each result tensor.

    >>> strides_in_eager(aten.logical_and.default, (rows, columns), {}, fake_results)
    [(50, 1, 10)]

Where all arguments lie in memory row by row, fake tensors are right.  Elsewhere the kernel itself is
asked, once for each question in a process: on zeros of the same sizes where they are few, and else,
of an op that works element by element, on two elements a dimension in the same order of strides.
Left out: GPUs, for the reason that eager_support.py gives, views, random ops, and sizes that are
symbols of ops that compute otherwise than element by element.
"""

from collections.abc import Sequence
from typing import Any

import torch
import torch.utils._pytree as pytree
from torch.fx.node import map_aggregate
from torch.utils._python_dispatch import _disable_current_modes

from .eager_support import FEW, SYMBOLIC, are_plain
from .foreign import ours
from .ops import exact_key
from .sizes.symbols import hint, same

aten = torch.ops.aten
Numbers = tuple[Any, ...]  # sizes or strides, symbols among them
Layout = tuple[tuple[int, ...], tuple[int, ...]]  # sizes, strides
# they compute otherwise than element by element, but the order of strides decides theirs, too
BY_ORDER = {
    aten.max_unpool2d.default,
    aten.channel_shuffle.default,
    aten.native_batch_norm.default,
    aten._native_batch_norm_legit.default,
    aten._native_batch_norm_legit.no_stats,
    aten._batch_norm_with_update.default,
    aten._native_batch_norm_legit_no_training.default,
    aten.log_sigmoid_forward.default,
}
# whose results are new tensors, row by row, however their arguments lie
PRODUCTS = {aten.mm.default, aten.addmm.default, aten.bmm.default}
_answers: dict[tuple, list[Layout]] = {}


def strides_in_eager(
    op: torch._ops.OpOverload, args: tuple, kwargs: dict, results: Sequence[torch.Tensor]
) -> list[Numbers]:
    """The strides of the fake `results`, corrected where eager's kernel gives others."""
    faked = [tuple(result.stride()) for result in results]
    tensors: list[torch.Tensor] = []
    map_aggregate((args, kwargs), lambda leaf: collect(leaf, tensors))
    if op in PRODUCTS or all(map(is_row_by_row, tensors)) or not is_new(op, tensors):
        return faked
    leaves, spec = pytree.tree_flatten((args, kwargs))
    layouts = [exact_layout(t) for t in tensors]
    if None in layouts:
        if torch.Tag.pointwise not in op.tags and op not in BY_ORDER:
            return faked
        layouts = [least_layout(t) for t in tensors]
    samples = iter(layouts)
    question = [
        (t.dtype, next(samples)) if isinstance(t, torch.Tensor) else in_this_call(t) for t in leaves
    ]
    key = (op, spec, *map(exact_key, question))
    if key not in _answers:
        _answers[key] = _ask(op, question, spec)
    if len(_answers[key]) != len(results):
        return faked
    return [as_given(*answer) for answer in zip(results, _answers[key])]


def collect(leaf: Any, tensors: list[torch.Tensor]) -> None:
    if isinstance(leaf, torch.Tensor):
        tensors.append(leaf)


def is_new(op: torch._ops.OpOverload, tensors: list[torch.Tensor]) -> bool:
    """Does the op's kernel choose the memory of its results?  It may be asked, then."""
    given = any(result.alias_info for result in op._schema.returns)
    return not given and torch.Tag.nondeterministic_seeded not in op.tags and are_plain(tensors)


def is_row_by_row(tensor: torch.Tensor) -> bool:
    """Has it the very strides of a new tensor, in dimensions of size 1 as well?"""
    expected: Any = 1
    for n, stride in zip(reversed(tensor.shape), reversed(tensor.stride())):
        if stride is not expected and not same(stride, expected):
            return False
        expected = expected * n if type(n) is not int else expected * max(n, 1)
    return True


def exact_layout(tensor: torch.Tensor) -> Layout | None:
    """Its sizes and strides, if they are numbers, and few."""
    sizes, strides = tuple(tensor.shape), tuple(tensor.stride())
    if any(type(n) is not int for n in (*sizes, *strides)) or tensor.numel() > FEW:
        return None
    return sizes, strides


def least_layout(tensor: torch.Tensor) -> Layout:
    """At most two elements a dimension, in the order in which the tensor's dimensions lie."""
    sizes = tuple([min(hint(n, 2), 2) for n in tensor.shape])
    strides = [hint(stride, 1 << 40) for stride in tensor.stride()]
    return sizes, dense_strides(sizes, strides)


def dense_strides(sizes: Sequence[Any], like: Sequence[int]) -> Numbers:
    """Strides without gaps, in the order of the strides `like`; what is expanded stays so."""
    made: list[Any] = [0] * len(sizes)
    expected: Any = 1
    for dim in sorted(reversed(range(len(sizes))), key=lambda d: like[d]):
        if like[dim] == 0:
            continue
        made[dim] = expected
        expected = expected * sizes[dim]
    return tuple(made)


def as_given(result: torch.Tensor, answer: Layout) -> Numbers:
    """The strides of a result whose sample came out as `answer`."""
    faked = tuple(result.stride())
    sizes, strides = answer
    if sizes == tuple(result.shape):
        return strides
    if len(sizes) != len(faked) or dense_strides(sizes, strides) != strides:
        return faked
    found = dense_strides(result.shape, strides)
    differ = [not same(a, b) for n, a, b in zip(result.shape, found, faked) if not same(n, 1)]
    return found if any(differ) else faked


def in_this_call(leaf: Any) -> Any:
    """A number in place of a symbol."""
    if isinstance(leaf, torch.SymInt):
        return hint(leaf, 1)
    return SYMBOLIC[type(leaf)](1) if type(leaf) in SYMBOLIC else leaf


def _ask(op: torch._ops.OpOverload, question: list, spec: Any) -> list[Layout]:
    """The layouts of what the op gives for zeros of these dtypes and layouts; [] if it raises."""

    def sample(leaf: Any) -> Any:
        if not (isinstance(leaf, tuple) and isinstance(leaf[0], torch.dtype)):
            return leaf
        dtype, (sizes, strides) = leaf
        return torch.empty_strided(sizes, strides, dtype=dtype).zero_()

    with _disable_current_modes(), torch.no_grad(), torch._C._DisablePythonDispatcher():
        args, kwargs = pytree.tree_unflatten([sample(leaf) for leaf in question], spec)
        try:
            made = pytree.tree_leaves(op(*args, **kwargs))
        except ours(Exception):
            return []
    return [(tuple(t.shape), t.stride()) for t in made if isinstance(t, torch.Tensor)]
