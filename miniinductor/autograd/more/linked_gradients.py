"""Gradients that may not be differentiated: also not by one tensor alone.

In:   the gradients that a compiled backward half gives under `create_graph=True`.
Out:  tensors in whose histories stands all that the gradients depend on.

    >>> [slope] = torch.autograd.grad(compiled(x).sum(), x, create_graph=True)
    >>> torch.autograd.grad((x - slope).square().sum(), x)          # MAML's inner step
    Traceback (most recent call last):
    RuntimeError: compiled code cannot be differentiated twice: ...

Autograd runs what lies between a loss and the tensors that it is asked about, and no more.  A
gradient that only raises when it is reached is not reached there: `x - slope` would be
differentiated as if `slope` were a constant, which is another number.  So the node that raises
stands in front of all of these:

- leaves among the function's inputs: autograd's own nodes name them;
- inputs that are saved for backward anyway, and the gradients that came in: they are at hand;
- other inputs with a history, as `h` in `f(h)` where f saves only `h.exp()`: an empty result of the
  function, saved, whose history is the function itself.

# PyTorch: an autograd function of its own is the backward half, with what was saved as arguments.
"""

from collections.abc import Sequence
from typing import Any

import torch

from ...hooks import extends
from ..runtime import Halves
from .refused_twice import TWICE, RefusedTwice


@extends(Halves)
class LinkedHalves(RefusedTwice):
    """needs_link: has one of the inputs a history that nothing else leads to?  Known when the first
    call has come."""

    needs_link: bool | None = None

    def forward(self, ctx: Any, *primals: Any) -> tuple:
        results = super().forward(ctx, *primals)
        if self.needs_link is None:
            self.needs_link = any(primals[place].grad_fn for place in self.unsaved())
        if not self.needs_link:
            return results
        link = torch.empty(0)
        ctx.save_for_backward(*ctx.to_save, link)
        return (*results, link)

    def unsaved(self) -> list[int]:
        """Which primals get a gradient, and are not saved?"""
        saved = set(self.cut.saved_inputs)
        gradients = enumerate(self.cut.gradients)
        return [place for place, at in gradients if at is not None and place not in saved]

    def links(self, ctx: Any, kept: Sequence[torch.Tensor], given: Sequence[Any]) -> list[Any]:
        nodes = [node for node, _ in ctx.next_functions]
        leaves = [node.variable for node in nodes if hasattr(node, "variable")]
        tensors = [tensor for tensor in (*kept, *given) if tensor is not None]
        links = [*leaves, *[tensor for tensor in tensors if tensor.requires_grad]]
        reached = {link.grad_fn for link in links}
        unreached = {node for node in nodes if node and not hasattr(node, "variable")} - reached
        if unreached and ctx not in reached:
            raise RuntimeError(TWICE.decode())  # rather now than never
        return links
