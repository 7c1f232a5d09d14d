"""A tracer that also knows how each tensor was derived, and gives results in eager's strides.

In:   the ops of a trace, as the core's tracer records them.
Out:  `derivation(tensor)`: what it is a view of, and by which steps; `versions_raised`: the tensors
      whose version a write has raised.

    v = x.t()[0]; w = v.data
    tracer.derivation(w)    # (x, [(aten.t, (), {}, "grad"), ..., (data_of, ...)])

Outputs of a program that share memory are made again by these steps (views.py).  Ops that write are
taken apart, too: `silu_` is a copy of `silu`.
"""

import functools
import operator
from collections.abc import Callable, Collection
from typing import Any

import torch
import torch.utils._pytree as pytree
from torch import fx

from ...eager_answers import is_row_by_row
from ...exceptions import CannotFunctionalize
from ...hooks import extends
from ...more.swapped_tensors import let_go
from ...sizes.symbols import hint, same, same_sizes, sizes
from ..functionalize import functional_form, is_view
from ..tracer import LIFT, Op, OriginInterpreter, Tracer, of_tensors

aten = torch.ops.aten
DTYPES = {complex: torch.complex128, float: torch.float64, int: torch.int64, bool: torch.bool}


def recording_mode() -> str:
    """How autograd treats a view that is made now: "inference", "grad" or "no_grad"."""
    if torch.is_inference_mode_enabled():
        return "inference"
    return "grad" if torch.is_grad_enabled() else "no_grad"


def data_of(tensor: torch.Tensor) -> torch.Tensor:
    """The step of a view that `.data` is: no part of autograd's history, writes are not counted."""
    return tensor.data


def tensors_in(tree: Any) -> list[torch.Tensor]:
    met: list[torch.Tensor] = []
    of_tensors(tree, met.append)
    return met


def written_and_read(op: Op, args: tuple, kwargs: dict) -> tuple[list, list]:
    """The tensors that the call writes; those that it only reads."""
    written: list[torch.Tensor] = []
    read: list[torch.Tensor] = []
    for place, argument in enumerate(op._schema.arguments):
        value = args[place] if place < len(args) else kwargs.get(argument.name)
        is_written = argument.alias_info is not None and argument.alias_info.is_write
        (written if is_written else read).extend(tensors_in(value))
    return written, read


def order_in_memory(tensor: torch.Tensor) -> list[int]:
    """The dimensions, the one with the largest stride first."""
    return sorted(range(tensor.dim()), key=lambda d: hint(tensor.stride(d), 0), reverse=True)


@extends(Tracer)
class CarefulTracer(Tracer):
    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        # id of a tensor that shares memory -> (its source, a step of a view)
        self.made_by: dict[int, tuple[Any, tuple]] = {}
        # ids of tensors whose version a write has raised: of a base, not of what it is `.data` of
        self.versions_raised: set[int] = set()
        # ids of tensors of which an as_strided() of a part has reached other parts
        self.reached_around: set[int] = set()

    def module(self, name: str) -> fx.GraphModule:
        """The recorded graph.  What it was made of may be swapped from now on."""
        let_go(self.fake_mode)
        return super().module(name)

    def fake_result(self, func: Op, args: tuple, kwargs: dict[str, Any]) -> Any:
        if func in LIFT:  # given the real tensor, the fake remembers its value
            with self.fake_mode:
                return aten.lift_fresh.default(*args)
        return super().fake_result(func, args, kwargs)

    # --- views ------------------------------------------------------------------------------------
    def share(self, tensor: Any, source: Any, op: Any, args: Any = (), kwargs: Any = None) -> None:
        """`tensor` is op(source, ...) and shares its memory."""
        step = (op, tuple(args), dict(kwargs or {}), recording_mode())
        self.made_by[id(tensor)] = (source, step)

    def share_as(self, tensor: torch.Tensor, like: torch.Tensor) -> None:
        """`tensor` has been derived as `like` was."""
        if id(like) in self.made_by:
            self.made_by[id(tensor)] = self.made_by[id(like)]

    def derivation(self, tensor: torch.Tensor, ends: Collection[int] = ()) -> tuple[Any, tuple]:
        """(root, steps): the tensor that `tensor` is a view of, and how it was made from that.

        ends: ids of tensors; the first of them on the way is the root.
        """
        steps, root = [], tensor
        while id(root) in self.made_by and (root is tensor or id(root) not in ends):
            source, step = self.made_by[id(root)]
            # autograd makes a view's tensor of the one that it was given, by a detach of its own
            if step[0] is not aten.detach.default or not root._is_view():
                steps.append(step)
            root = source
        return root, tuple(reversed(steps))

    def same_value(self, func: Op, tensor: torch.Tensor) -> torch.Tensor:
        out = super().same_value(func, tensor)
        self.share(out, self.to_fake(tensor), func)
        return out

    def record(self, func: Op, args: tuple, kwargs: dict[str, Any]) -> Any:
        if is_view(func) and type(args[0]) in DTYPES:  # autograd's `other.conj()` of `x * 2j`
            with self:
                return func(aten.scalar_tensor(args[0], dtype=DTYPES[type(args[0])]), *args[1:])
        out = self.written_apart(func, args, kwargs)
        if out is not NotImplemented:
            return out
        out = super().record(func, args, kwargs)
        if func._schema.is_mutable:
            self.note_writes(func, *of_tensors((args, kwargs), self.to_fake))
        elif is_view(func) and func not in LIFT:
            source = self.to_fake(args[0])
            for number, piece in enumerate(out if isinstance(out, (tuple, list)) else ()):
                self.share(piece, out, operator.getitem, (number,))
            if isinstance(out, (torch.Tensor, tuple, list)) and out is not source:
                self.share(out, source, func, args[1:], kwargs)
        return out

    def note_writes(self, func: Op, args: Any, kwargs: Any) -> None:
        """Writes raise the version of what the tensor is a view of; `.data` has one of its own."""
        for tensor in written_and_read(func, args, kwargs)[0]:
            while id(tensor) in self.made_by and self.made_by[id(tensor)][1][0] is not data_of:
                tensor = self.made_by[id(tensor)][0]
            self.versions_raised.add(id(tensor))

    # --- what is taken apart ----------------------------------------------------------------------
    def written_apart(self, func: Op, args: tuple, kwargs: dict[str, Any]) -> Any:
        """x.silu_() is x.copy_(silu(x)), and silu has a decomposition."""
        functional = functional_of(func) if func._schema.is_mutable else None
        decomposition = self.decomposition_of(functional, args, kwargs)
        if decomposition is not None:
            with self:
                out = decomposition(*args, **kwargs)
                if out is not NotImplemented and torch.can_cast(out.dtype, args[0].dtype):
                    return args[0].copy_(out)
        return NotImplemented

    def taken_apart(
        self, decomposition: Callable, func: Op, args: tuple, kwargs: dict[str, Any]
    ) -> Any:
        """In the strides that the op itself gives where an argument is not contiguous.

        The results are no views of what was made on the way: `torch.stack` is written as a view of
        `cat(...)`; to autograd, eager's is a tensor of its own, and `stack(...).flatten()` is a
        view of that."""
        known = len(self._alive)
        out = super().taken_apart(decomposition, func, args, kwargs)
        if out is NotImplemented:
            return out
        is_alias = any(result.alias_info for result in func._schema.returns)
        inner = {id(tensor) for tensor in self._alive[known:]}
        if not is_alias and not all(map(is_row_by_row, tensors_in((args, kwargs)))):
            wanted = pytree.tree_leaves(self.fake_result(func, args, kwargs))
            leaves, structure = pytree.tree_flatten(out)
            fresh = [id(leaf) in inner for leaf in leaves]
            out = pytree.tree_unflatten(map(self.laid_out, leaves, wanted, fresh), structure)
        if not is_view(func):
            for leaf in pytree.tree_leaves(out):
                if isinstance(leaf, torch.Tensor) and id(self.derivation(leaf)[0]) in inner:
                    self.made_by.pop(id(leaf), None)
        return out

    def laid_out(self, have: Any, want: Any, is_fresh: bool) -> Any:
        """A result in the strides of `want`; those of a size of 1 say nothing, but can be asked."""
        if not isinstance(have, torch.Tensor) or not same_sizes(have.shape, want.shape):
            return have
        steps = zip(sizes(have.shape), have.stride(), want.stride())
        if not any(n not in (0, 1) and not same(a, b) for n, a, b in steps):
            node = self.node_of(have)
            is_own = is_fresh and node.op == "call_function" and id(have) not in self.made_by
            if not is_own or same_sizes(have.stride(), want.stride()):
                return have
            self.bind(want, node)
            node.meta["val"] = want
            return want
        order = order_in_memory(want)
        back = [order.index(d) for d in range(want.dim())]
        with self:
            return have.permute(order).contiguous().permute(back)


@functools.cache
def functional_of(func: Op) -> Op | None:
    """aten.silu_ -> aten.silu, for ops that write their first argument and return it; else None."""
    schema = func._schema
    if func.namespace != "aten" or not schema.name.endswith("_") or len(schema.returns) != 1:
        return None
    if torch.Tag.inplace_view in func.tags:
        return None
    try:
        functional, written = functional_form(func)
    except CannotFunctionalize:
        return None
    return functional if written == [schema.arguments[0].name] else None


@extends(OriginInterpreter)
class CarefulInterpreter(OriginInterpreter):
    """ends: functions that leave what the program has entered (inference mode)."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.ends: list[Callable] = []

    def run(self, *args: Any, **options: Any) -> Any:
        try:
            return super().run(*args, **options)
        except BaseException:
            # now: a mode that is left after the tracer's own would bring them back
            while self.ends:
                self.ends.pop()()
            raise

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        if hasattr(target, "ended_by"):
            target(*args, **kwargs)
            return self.ends.append(target.ended_by)
        if self.ends and target is self.ends[-1]:
            self.ends.pop()
        return super().call_function(target, args, kwargs)
