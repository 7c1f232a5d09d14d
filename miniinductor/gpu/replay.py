"""mode="reduce-overhead": which programs are replayed as CUDA graphs, and what their halves share.

In:   a program of a compiled graph, on its way through the driver (compile.py).  Out: its callable;
      where a recording is right, one that is recorded and replayed (cuda_graphs.py).

    >>> compiled = miniinductor.compile_fx(gm, [x], mode="reduce-overhead")
    >>> compiled.record.notes                       # on the CPU
    ['no CUDA graph: the graph does not run on a GPU']

Mirrors the use of cudagraphify in torch/_inductor/compile_fx.py.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from ..autograd.runtime import Plan
from ..compile import Compilation
from ..hooks import extends
from ..ir import Graph
from ..records import CompileRecord
from ..runtime.program import Program
from .cuda_graphs import GraphedCall, Half, new_pools, refusal


@dataclass(frozen=True)
class Replay:
    """How the work of a call is recorded once and replayed.

    refusal: why a lowered graph must not be recorded, or None.
    new_pools: what the recordings of one training step share.
    record: (a program's function, the program, the record, which half) -> the function replayed.
    """

    refusal: Callable[[Graph, torch.device], str | None]
    new_pools: Callable[[], Any]
    record: Callable[[Callable, Program, CompileRecord, Half | None], Callable]


REPLAYS = {"cuda": Replay(refusal, new_pools, GraphedCall)}  # by the type of device


@extends(Compilation)
class Replayed(Compilation):
    pools: Any = None  # of the recordings of a training step
    results: int | None = None  # how many outputs its forward half gives the caller

    def build(self, graph: Graph, record: CompileRecord) -> Program:
        program = super().build(graph, record)
        if self.mode == "reduce-overhead":
            replay = REPLAYS.get(program.device.type)
            refused = "the graph does not run on a GPU"
            if replay is not None:
                refused = replay.refusal(graph, program.device) or ""
            program.refused = refused
        return program

    def start_training(self, plan: Plan) -> Callable:
        replay = REPLAYS.get(plan.program.device.type)
        self.pools = replay.new_pools() if replay else None
        self.results = plan.joint.count
        return super().start_training(plan)

    def start(self, program: Any, record: CompileRecord, is_backward: bool = False) -> Callable:
        run = super().start(program, record, is_backward)
        if self.mode != "reduce-overhead":
            return run
        replay = REPLAYS.get(program.device.type)
        if program.refused or replay is None:
            record.notes.append(f"no CUDA graph: {program.refused}")
            return run
        return replay.record(run, program, record, self.half(is_backward))

    def half(self, is_backward: bool) -> Half | None:
        """Which half of a training step a program is; None in inference."""
        if self.results is None:
            return None
        return Half(self.pools, None if is_backward else self.results, is_backward)
