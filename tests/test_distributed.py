"""Two processes on one host: DDP and FSDP2 around and inside of what is compiled (gloo, CPU).

The checks are in distributed_worker.py; one start of two processes runs nearly all of them.
"""

import json
import os
import subprocess
import sys
import types

import pytest

WORKER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "distributed_worker.py")
CHECKS = [
    "ddp_around",
    "ddp_inside",
    "fsdp_around",
    "one_graph_for_each_block_of_fsdp",
    "pieces_are_sent_one_by_one",
    "checkpoints_cross",
    "ranks_share_a_cache",
]


def two_processes(folder, *checks):
    """The finished `torchrun`."""
    root = os.path.dirname(os.path.dirname(WORKER))
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    return subprocess.run(
        [*command, WORKER, str(folder), *checks],
        env=dict(os.environ, PYTHONPATH=root, OMP_NUM_THREADS="1"),
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


def test_the_others_end_with_an_error_when_a_rank_dies(tmp_path):
    ended = two_processes(tmp_path, "a_rank_dies")  # its time limit: nobody hangs
    assert ended.returncode != 0 and "has ended" not in ended.stderr, ended.stderr[-3000:]
    assert "exitcode  : 3" in ended.stderr, ended.stderr[-3000:]


def test_rows_of_the_suite_come_as_they_are_written(tmp_path):
    from minidynamo.bench.suites import distributed

    rows = [
        {"name": "eager", "wrapping": "DDP", "ranks": 2, "ms": [3.0, 2.0, 4.0]},
        {"name": "eager", "wrapping": "DDP", "ranks": 1, "ms": [2.0, 2.0, 2.0]},
        {"name": "ours", "wrapping": "DDP", "ranks": 2, "failed": "why"},
    ]
    path = tmp_path / "rows"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    ended = types.SimpleNamespace(poll=lambda: 0)
    assert list(distributed.followed(str(path), ended)) == rows
    [scaled] = distributed.scaling(rows)
    assert scaled["weak scaling"] == pytest.approx(2 / 3) and "2 ranks: 0.67" in (
        distributed.show(scaled)
    )
    assert "failed: why" in distributed.show(rows[2])
