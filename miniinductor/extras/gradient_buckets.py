"""A training graph in several pieces, so that its gradients do not all arrive at its end.

In:   a captured graph that needs gradients, and `config.gradient_buckets`, bytes of parameters.
Out:  a callable like the graph: pieces that are compiled one by one, each with a forward and a
      backward half of its own.

    >>> with miniinductor.config.patch(gradient_buckets=25 << 20):
    ...     model = DistributedDataParallel(minidynamo.compile(model))
    ...     model(x).sum().backward()       # the first call compiles

One compiled backward half gives all gradients when it ends.  Autograd's hooks run then, and DDP,
which sends a bucket of gradients as soon as its last one is there, has nothing left to compute
meanwhile.  Of pieces, autograd runs the last one's backward half first and hands its gradients
over before the next begins: they travel while that one computes.  What it costs: no kernel spans
two pieces, and what crosses a border is saved.

Mirrors torch/_dynamo/backends/distributed.py (DDPOptimizer), which looks for DDP itself, and fills
buckets from the end of the graph.  Here the user asks, and buckets are filled from its start.
"""

import itertools
import operator
from collections.abc import Callable
from typing import Any

import torch
from torch import fx

from .. import config
from ..compile import Compilation, needs_gradients
from ..hooks import extends
from ..sizes.symbols import SYMBOLIC
from .pieces import OUTSIDE, InPieces, Piece, changes_state, in_turn, piece_of, value_of


def buckets(gm: fx.GraphModule, limit: int) -> list[list[fx.Node]]:
    """The graph's ops in runs of about `limit` bytes of parameters each, cut only where nothing but
    tensors crosses."""
    runs: list[list[fx.Node]] = [[]]
    seen: set[int] = set()
    count = 0
    for node in gm.graph.nodes:
        if node.op in OUTSIDE:
            continue
        new = [p for p in parameters_of(gm, node) if id(p) not in seen]
        if new and count >= limit and may_cut_before(node):
            runs.append([])
            count = 0
        seen.update(map(id, new))
        count += sum(p.numel() * p.element_size() for p in new)
        runs[-1].append(node)
    return runs


def parameters_of(gm: fx.GraphModule, node: fx.Node) -> list[torch.Tensor]:
    """The tensors held by the graph that this op reads and that get gradients."""
    names = [str(source.target) for source in node.all_input_nodes if source.op == "get_attr"]
    held = [operator.attrgetter(name)(gm) for name in names]
    return [tensor for tensor in held if tensor.requires_grad]


def may_cut_before(node: fx.Node) -> bool:
    """Do only tensors, and numbers made of the graph's symbols, cross in front of this op?  (The
    items of a tuple stay with the tuple.)"""
    earlier = itertools.takewhile(lambda one: one is not node, node.graph.nodes)
    inner = [one for one in earlier if one.op not in OUTSIDE]
    others = [one for one in inner if not isinstance(value_of(one), (torch.Tensor, *SYMBOLIC))]
    return not any(node <= user for one in others for user in one.users)


@extends(Compilation)
class InBuckets(InPieces):
    def compiled(self) -> Callable[..., Any]:
        run = self.in_buckets() if self.wants_buckets() else None
        return super().compiled() if run is None else run

    def wants_buckets(self) -> bool:
        """Is this a training graph that can be cut?"""
        if not config.gradient_buckets or self.mode == "reduce-overhead":
            return False
        if not needs_gradients(self.gm, self.inputs):
            return False
        *_, output = self.gm.graph.nodes
        given = [value_of(node) for node in output.all_input_nodes if node.op not in OUTSIDE]
        only_tensors = all(isinstance(value, torch.Tensor) for value in given)
        return only_tensors and not any(map(changes_state, self.gm.graph.nodes))

    def in_buckets(self) -> Callable[..., Any] | None:
        """The pieces, compiled; None where there is only one."""
        runs = buckets(self.gm, config.gradient_buckets)
        if len(runs) == 1:
            return None
        program = list[Piece]()
        with config.patch(gradient_buckets=0):  # a piece is not cut again
            for members in runs:
                here = set(members)
                used = [n for n in members if any(user not in here for user in n.users)]
                made = [n for n in used if isinstance(value_of(n), torch.Tensor)]
                compiler = self.compile_piece
                piece = piece_of(self.gm, members, made, compiler, self.record)
                program.append(piece)
        self.record.notes.append(f"in {len(runs)} pieces: gradient_buckets")
        return in_turn(self.gm, program)
