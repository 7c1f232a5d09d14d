"""Compiled gradients that somebody differentiates: an error that says what to do.

In:   the two directions of a compiled graph.  Out: the same, whose gradients raise under
      `create_graph=True` when they are differentiated.

    >>> [slope] = torch.autograd.grad(compiled(x).sum(), x, create_graph=True)
    >>> slope.sum().backward()
    Traceback (most recent call last):
    RuntimeError: compiled code cannot be differentiated twice: ...

linked_gradients.py raises where one tensor alone would be reached, twice.py differentiates by eager
formulas instead.  Without this file torch's own words say that it cannot be done.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ...hooks import extends
from ..runtime import Halves

TWICE = (
    b"compiled code cannot be differentiated twice: its backward half has no derivative. Where "
    b'second derivatives are needed, set miniinductor.config.double_backward = "eager" before this '
    b'function is called, or compile it with backend="eager".'
)


@extends(Halves)
class RefusedTwice(Halves):
    def differentiable(self) -> Callable:
        return self.backward

    def links(self, ctx: Any, kept: Sequence[torch.Tensor], given: Sequence[Any]) -> list[Any]:
        """Tensors whose histories hold all that the gradients depend on.  kept: what was saved."""
        return []

    def backward(self, ctx: Any, *given: torch.Tensor | None) -> tuple:
        if torch.is_grad_enabled():  # create_graph=True; what is saved is given away below
            ctx.links = self.links(ctx, ctx.saved_tensors, given)
        return super().backward(ctx, *given)

    def gradients(self, ctx: Any, saved: list[Any], arrived: list[Any]) -> Sequence[Any]:
        recording = torch.is_grad_enabled()
        links = ctx.__dict__.pop("links", [])
        try:  # calls of C alone: an exception may come at any time, in an `__exit__` too
            torch._C._set_grad_enabled(False)
            values = super().gradients(ctx, saved, arrived)
        finally:
            torch._C._set_grad_enabled(recording)
        if not recording:
            return values
        return once_only(values, links, getattr(ctx, "refusal", TWICE))


def once_only(gradients: Sequence[Any], links: Sequence[torch.Tensor], message: bytes) -> list[Any]:
    """Gradients that raise an error when somebody differentiates them, also by one of `links`
    alone."""
    there = [gradient.detach().requires_grad_() for gradient in gradients if gradient is not None]
    refuse = torch._C._functions.DelayedError(message, len(there) + len(links) + 1)
    refusing = iter(refuse(*there, *links, torch.empty(0)))
    return [gradient if gradient is None else next(refusing) for gradient in gradients]
