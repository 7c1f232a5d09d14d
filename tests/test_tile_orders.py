"""Which way a reduction's tiles run on a GPU: each read counts for the elements that it touches."""

import pytest
import sympy
import torch
import torch.nn.functional as F

import minidynamo
from miniinductor import config
from miniinductor.gpu import block_sizes, tile_plan
from miniinductor.gpu.block_sizes import block_configs
from miniinductor.gpu.split_reductions import wanted_chunks
from miniinductor.handlers import loop_variables

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


@pytest.mark.parametrize(
    "sizes, index, expected",
    [
        ((7, 37, 129), "4773*x0 + 129*x1 + x2", "xindex"),
        ((7, 37, 129), "4773*x0 + 129*x1 + x2 + 33411*r0", "33411*r0 + xindex"),
        ((7, 37, 129), "2*(4773*x0 + 129*x1 + x2) + 5", "2*xindex + 5"),
        ((7, 37, 129), "5000*x0 + 129*x1 + x2", "5000*x0 + (xindex % 4773)"),
        ((7, 37, 129), "129*x1 + x2", "xindex % 4773"),
        ((7, 37, 128), "5000*x0 + 128*x1 + x2", "5000*x0 + 128*x1 + x2"),  # Triton sees it
        ((7, 37, 129), "4773*x0 + x1 + 37*x2", "4773*x0 + x1 + 37*x2"),
        ((7, 37, 129), "4773*x0 + 129*x1 + x2**2", "4773*x0 + 129*x1 + x2**2"),
        ((7, 37, 129), "4773*x0 + 129*x1 + x2 + x1**2", "4773*x0 + 129*x1 + x1**2 + x2"),
        ((129,), "x0 + 3", "x0 + 3"),
        ((), "7", "7"),
    ],
)
def test_loops_that_follow_each_other_in_memory_are_one_index(sizes, index, expected):
    variables = loop_variables("x", max(1, len(sizes)))
    named = {str(v): v for v in [*variables, *loop_variables("r", 1)]}
    axis = tile_plan.Axis("x", variables, sizes or (1,), "")
    found = axis.over_flat(sympy.sympify(index, named))
    parts = [sorted(text.split(" + ")) for text in (str(found), expected)]
    assert parts[0] == parts[1]


def test_few_rows_that_no_tile_holds_are_cut():
    assert wanted_chunks(64, 4096, columns=False) == 0
    assert wanted_chunks(64, 200_704, columns=False) > 8
    assert wanted_chunks(132, 200_704, columns=False) == 0


def test_many_columns_are_not_cut_into_a_few_chunks():
    assert wanted_chunks(33_411, 480, columns=True) == 0  # three
    assert wanted_chunks(33_411, 4096, columns=True) >= 4
    assert wanted_chunks(6400, 480, columns=True) == 3  # these are needed for every processor


@pytest.mark.parametrize("r", [3, 8, 13])
def test_a_thread_may_hold_the_whole_of_short_columns(r, monkeypatch):
    """Else the warps of a program have to wait for each other at each result."""
    monkeypatch.setattr(block_sizes, "is_interpreting", lambda: False)
    found = block_configs("persistent", {"x": 1 << 21, "r": r}, columns=True)
    assert any(one.elements // (32 * one.num_warps) >= 4 * one.block("r") for one in found)


def test_blocks_of_a_size_that_only_the_run_knows_are_large(monkeypatch):
    """They were those of 512 elements: 32 for each program, of 46 million."""
    monkeypatch.setattr(block_sizes, "is_interpreting", lambda: False)
    rows = sympy.Symbol("u0", integer=True)
    axis = tile_plan.Axis("x", [sympy.Symbol("x0"), sympy.Symbol("x1")], (rows, 256), "")
    assert tile_plan.likely(axis.numel) == 256 * tile_plan.LIKELY
    configs = tile_plan.blocks_to_try("pointwise", [axis], [], False)
    assert min(config.elements for config in configs) >= 256
