"""Two processes on one host: DDP and FSDP2 around and inside of what is compiled (gloo, CPU).

The checks are in distributed_worker.py; one start of two processes runs nearly all of them.
"""

import copy
import json
import os
import socket
import subprocess
import sys
import types

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import minidynamo
import miniinductor

WORKER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "distributed_worker.py")
CHECKS = (
    "ddp_around ddp_inside fsdp_around one_graph_for_each_block_of_fsdp "
    "pieces_are_sent_one_by_one checkpoints_cross "
    "tensor_parallel ranks_share_a_cache"
).split()


def environment():
    root = os.path.dirname(os.path.dirname(WORKER))
    return dict(os.environ, PYTHONPATH=root, OMP_NUM_THREADS="1")


def two_processes(folder, *checks):
    """The finished `torchrun`."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    return subprocess.run(
        [*command, WORKER, str(folder), *checks],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=300,
    )


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return two_processes(tmp_path_factory.mktemp("shared"), *CHECKS)


@pytest.mark.parametrize("check", CHECKS)
def test_two_processes(check, run):
    assert run.stdout.count(f"passed {check} ") == 2, run.stdout + run.stderr[-3000:]


def test_the_other_ends_with_an_error_when_a_rank_dies(tmp_path):
    """Without `torchrun`, which would end it anyway."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    ranks = []
    for rank in range(2):
        place = {"RANK": str(rank), "WORLD_SIZE": "2", "MASTER_PORT": str(port)}
        ranks.append(
            subprocess.Popen(
                [sys.executable, WORKER, str(tmp_path), "a_rank_dies"],
                env=environment() | place | {"MASTER_ADDR": "127.0.0.1"},
                stderr=subprocess.PIPE,
                text=True,
            )
        )
    try:
        errors = [rank.communicate(timeout=300)[1] for rank in ranks]  # nobody hangs
    finally:
        for rank in ranks:
            rank.kill()
    assert ranks[1].returncode == 3, errors[1]
    assert ranks[0].returncode == 1 and "has ended" not in errors[0], errors[0]
    assert "Error" in errors[0].strip().splitlines()[-1], errors[0]


# --- gradient_buckets, in one process -------------------------------------------------------------
class Crossing(nn.Module):
    """What crosses from piece to piece: a view, a tuple, a shared weight, a written buffer."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.third = (nn.Linear(6, 6) for _ in range(3))
        self.norm = nn.BatchNorm1d(6)

    def forward(self, x):
        y = self.first(x)
        view = y[:, :2]
        halves = self.norm(self.second(y)).split(3, 1)
        y = y.clone()
        y[0] = 0
        z = self.third(halves[0].repeat(1, 2)) + halves[1].repeat(1, 2)
        view = view * 2
        return F.linear(z, self.first.weight) + y, view, x.shape[0]


@pytest.mark.parametrize("dynamic", [False, True])
def test_a_graph_in_pieces_has_the_numbers_of_the_whole(dynamic):
    torch.manual_seed(0)
    eager = Crossing()
    model = copy.deepcopy(eager)
    compiled = minidynamo.compile(model, dynamic=dynamic)
    with miniinductor.config.patch(gradient_buckets=100):
        for rows in (5, 7):
            x = torch.randn(rows, 6)
            results = []
            for run, parameters in ((compiled, model), (eager, eager)):
                parameters.zero_grad()
                y, view, count = run(x)
                (y.square().sum() + view.sum()).backward()
                results.append((y, view, count, [p.grad for p in parameters.parameters()]))
            torch.testing.assert_close(*results)
            torch.testing.assert_close(*map(dict, (model.named_buffers(), eager.named_buffers())))
    frames = [f for f in minidynamo.records.frames if f.code is Crossing.forward.__code__]
    notes = [frame.backend_record.notes for frame in frames]
    assert notes
    assert all("in 3 pieces: gradient_buckets" in note for note in notes), notes


# --- the suite ------------------------------------------------------------------------------------
def test_rows_of_the_suite_come_as_they_are_written(tmp_path):
    from benchmarks.suites import distributed

    rows = [
        {"name": "eager", "wrapping": "DDP", "ranks": 2, "ms": [3.0, 2.0, 4.0]},
        {"name": "eager", "wrapping": "DDP", "ranks": 1, "ms": [2.0, 2.0, 2.0]},
        {"name": "ours", "wrapping": "DDP", "ranks": 2, "failed": "why"},
    ]
    path = tmp_path / "rows"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert list(distributed.followed(str(path), types.SimpleNamespace(poll=lambda: 0))) == rows
    [scaled] = distributed.scaling(rows)
    assert scaled["weak scaling"] == pytest.approx(2 / 3) and "2 ranks: 0.67" in (
        distributed.show(scaled)
    )
    assert "failed: why" in distributed.show(rows[2])


@pytest.mark.parametrize("eager_fails", [False, True])
def test_a_row_is_right_within_twice_the_distance_of_eager(monkeypatch, eager_fails):
    """The distance from float32.  Without a row of eager only the tolerance is left."""
    from benchmarks.suites import distributed

    class Variant:
        def __init__(self, rank, wrapping, how=distributed.EAGER, narrow=True):
            if eager_fails and narrow and how == distributed.EAGER:
                raise ValueError("no memory")
            eager = how == distributed.EAGER
            self.off = narrow * (0.05 if eager else 0.08 if not how[2] else 0.12)

        step = losses = lambda self: torch.ones(1)
        gradients = lambda self: [("weight", torch.full((1,), 1 + self.off))]  # noqa: E731

    def compared(rank, found, exact, limit, reduced):
        off = (found["weight"] - exact["weight"]).item()
        return {"difference": off, "right": off <= limit}

    names = {"Variant": Variant, "compared": compared, "timed": lambda *_: None}
    for name, stand_in in names.items():
        monkeypatch.setattr(distributed, name, stand_in)
    options = types.SimpleNamespace(only="", no_peer=True, held=[])
    written = {}
    rank = types.SimpleNamespace(world=2, tolerance=1e-2)
    comparison = distributed.COMPARISONS[0]
    distributed.measure(
        rank, comparison, options, lambda row: written.update({row.get("name"): row})
    )
    assert ("failed" in written["eager"]) == eager_fails
    assert written["ours inside"]["right"] == (not eager_fails)
    assert not written["ours inside, in pieces"]["right"]
