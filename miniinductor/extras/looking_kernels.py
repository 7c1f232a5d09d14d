"""Operations that look at values while they run: to refuse one, or to know the size of one result.

In:   a call of the captured graph, or an ATen op on its way, that fake tensors refuse.
Out:  one node, an eager kernel, of whose results those may be read whose sizes are known; or a
      check in the graph in the place of the question.

    torch.linalg.lstsq(a, b)[0]     # the residuals' size follows from the rank
    F.ctc_loss(x, y, n, m)          # `n` and `m` are read, to fold the loss
    F.gaussian_nll_loss(x, y, var)  # refuses a negative variance

Without gradients only: backward reads what has no known size.  What is read after all has the
graph run eagerly.
"""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import fx

from ..autograd.tracer import Tracer
from ..exceptions import DataDependent
from ..hooks import extends
from ..autograd.more.rules import call_rule, op_rule
from .eager_kernels import REPORT

aten = torch.ops.aten
LOSSES = (aten._ctc_loss.default, aten._ctc_loss.Tensor)


def recorded(tracer: Any, op: Any, args: tuple, kwargs: dict, out: tuple, unread: Any) -> tuple:
    """A node of `op`, whose results are like `out`; those at the places `unread` are of sizes that
    nobody knows yet."""
    node = tracer.graph.call_function(op, *tracer.nodes_of((tuple(args), dict(kwargs))))
    node.meta.update(tracer.meta, recording=torch.is_grad_enabled(), traced=(node.name,))
    tracer.bind_output(out, node)
    for place in unread:
        vars(tracer).setdefault("unread", {})[id(out[place])] = out[place]
    return out


def needs_gradients(tracer: Any) -> bool:
    """Is this the joint trace of forward and backward?"""
    return tracer.before_record is not None


@extends(Tracer)
class LookingTracer(Tracer):
    """Knows results whose sizes follow from values: `unread`, id -> the tensor.  Whoever reads one
    has the graph run eagerly."""

    unread: dict[int, Any]
    answered_with_no: str | None = None  # the message of the check that asks instead

    def node_of(self, tensor: torch.Tensor) -> fx.Node:
        if id(tensor) in getattr(self, "unread", ()):
            raise DataDependent("a result whose size follows from the data of a tensor")
        return super().node_of(tensor)


# ---- losses
@op_rule(lambda op: op in LOSSES, order=60)
def ctc_loss(tracer: Any, op: Any, args: tuple, kwargs: dict) -> Any:
    """(loss of each sequence, what backward needs): the sizes of the second follow from values, and
    nobody reads it without gradients."""
    if needs_gradients(tracer):
        return NotImplemented
    scores = tracer.to_fake(args[0])
    with tracer.fake_mode:
        losses = scores.new_empty(scores.shape[1:2] if scores.dim() == 3 else ())
        unread = scores.new_empty((0,))
    return recorded(tracer, op, args, kwargs, (losses, unread), [1])


@call_rule(F.gaussian_nll_loss)
def gaussian_nll_loss(
    interpreter: Any, target: Callable, args: tuple, kwargs: dict
) -> torch.Tensor:
    """The question whether a variance is below zero is answered with no, and asked again by a check
    in the graph."""
    tracer = interpreter.tracer
    if needs_gradients(tracer):
        return interpreter.plain_call(target, args, kwargs)
    tracer.answered_with_no = "var has negative entry/entries " + REPORT + "gaussian_nll_loss)"
    try:
        return interpreter.plain_call(target, args, kwargs)
    finally:
        tracer.answered_with_no = None


@op_rule(lambda op: op is aten._local_scalar_dense.default, order=60)
def answer(tracer: Any, op: Any, args: tuple, kwargs: dict) -> Any:
    message = getattr(tracer, "answered_with_no", None)
    if message is None or args[0].dtype is not torch.bool:
        return NotImplemented
    with tracer:
        torch._assert_async(torch.logical_not(args[0]), message)
    return False


# ---- least squares
@op_rule(lambda op: op is aten.linalg_lstsq.default, order=60)
def least_squares(tracer: Any, op: Any, args: tuple, kwargs: dict) -> Any:
    """(solution, residuals, rank, singular values).  Eager gives residuals only where the matrix is
    tall and has full rank, which two of LAPACK's drivers find out."""
    names = ("self", "b", "rcond", "driver")
    given = dict(zip(names, args)) | kwargs
    matrix, other = tracer.to_fake(given["self"]), tracer.to_fake(given["b"])
    driver = given.get("driver") or "gelsy"
    alike = matrix.dim() == other.dim() >= 2 and matrix.shape[:-1] == other.shape[:-1]
    if needs_gradients(tracer) or not matrix.is_cpu or not alike or 0 in other.shape:
        return NotImplemented  # eager says what is wrong, or takes `b` for vectors
    *batch, rows, columns = matrix.shape
    if any(type(size) is not int for size in (*matrix.shape, *other.shape)) or columns == 0:
        return NotImplemented
    real = matrix.real.dtype if matrix.is_complex() else matrix.dtype
    with tracer.fake_mode:
        # LAPACK writes column by column, where `b` was
        memory = other.new_empty((*batch, other.shape[-1], max(rows, columns)))
        solution = memory.mT[..., :columns, :]
        # gels takes the rank for full, gelsy gives none, and the others give some by the rank
        tall, given_always = rows > columns, driver == "gels"
        sizes = (*batch, other.shape[-1]) if tall and given_always else (0,)
        residuals = other.new_empty(sizes, dtype=real)
        rank = other.new_empty((0,) if driver == "gels" else batch, dtype=torch.int64)
        several = driver in ("gelss", "gelsd")
        values = residuals.new_empty((*batch, min(rows, columns)) if several else (0,))
    unread = [1] if tall and several else []
    return recorded(tracer, op, args, kwargs, (solution, residuals, rank, values), unread)
