"""Which way a reduction's tiles run on a GPU: each read counts for the elements that it touches."""

import pytest
import torch
import torch.nn.functional as F

import minidynamo
from miniinductor import config
from miniinductor.gpu import tile_plan
from miniinductor.gpu.split_reductions import wanted_chunks

pytest.importorskip("triton", reason="triton is not installed (it has wheels for Linux only)")


@pytest.mark.parametrize(
    "along_x, function, shapes",
    [
        # (rows of a table outweigh their indices)
        (True, lambda t, i: F.embedding(i.view(-1, 4), t).sum(1), [(50, 64), (100,)]),
        # (two numbers of a row do not outweigh it)
        (False, lambda x, y, z: (x * y + z).sum(-1), [(40, 200), (40, 1), (40, 1)]),
        (False, lambda x, r: (x * r).sum(-1), [(40, 200), (200,)]),
        (True, lambda x, r, s: (x * r + s).sum(0), [(200, 40), (200, 1), (200, 1)]),
    ],
)
def test_a_read_counts_for_what_it_touches(along_x, function, shapes, monkeypatch):
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    found, plain = [], tile_plan.runs_along_x

    def seen(*arguments):
        found.append(plain(*arguments))
        return found[-1]

    monkeypatch.setattr(tile_plan, "runs_along_x", seen)
    inputs = [torch.randn(shape) for shape in shapes]
    if len(shapes[-1]) == 1 and along_x:
        inputs[-1] = torch.randint(shapes[0][0], shapes[-1])
    with config.patch(cpu_backend="triton", split_reductions=False), torch.no_grad():
        result = minidynamo.compile(function)(*inputs)
    assert found and set(found) == {along_x}
    assert torch.allclose(result, function(*inputs), atol=1e-3)


def test_few_rows_that_no_tile_holds_are_cut():
    assert wanted_chunks(64, 4096, columns=False) == 0
    assert wanted_chunks(64, 200_704, columns=False) > 8
    assert wanted_chunks(132, 200_704, columns=False) == 0
