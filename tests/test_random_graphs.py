"""Random graphs (tests/sweeps/graphs.py): compiled against the interpreter of the loop IR against
eager.  `make fuzz-graphs` runs 5,000."""

import pytest
import torch
from front_helpers import interpret

import miniinductor
from tests.sweeps import graphs


@pytest.mark.parametrize("first", range(0, 72, 12))
def test_three_ways(first):
    assert graphs.check(list(range(first, first + 12))) == []


@pytest.mark.parametrize(
    "seeds",
    [
        [78, 1064, 2975, 3192, 3525],
        *[[*range(first, first + 12)] for first in range(200_000, 200_060, 12)],
    ],
)
def test_triton(seeds):
    """The first ones: -1 as an unsigned number; truth values and libdevice's results without
    dimensions."""
    pytest.importorskip("triton")
    with miniinductor.config.patch(cpu_backend="triton"):
        assert graphs.check(seeds, interpreter=False) == []


@pytest.mark.parametrize("first", range(100_000, 100_192, 24))
def test_lowered_against_eager(first):
    gm, inputs, tolerances, seeds = graphs.batch(range(first, first + 24))
    eager, (ours, record) = (
        gm(*map(graphs.clone_input, inputs)),
        interpret(gm, list(map(graphs.clone_input, inputs))),
    )
    fakes = [
        n.meta["val"]
        for n in next(n for n in record.aten_graph.graph.nodes if n.op == "output").args[0]
    ]
    for seed, *values in zip(seeds, ours, eager, tolerances, fakes):
        assert graphs.difference(*values) is None, f"seed {seed}"


def test_loops_over_nothing_are_told_apart():
    """Where one size is 0, so is every product with it: that alone does not say which loops of a
    pointwise operation are a reduction's outer ones."""
    assert graphs.check([70_079], interpreter=False) == []


def test_a_wrong_value_is_found():
    x = torch.arange(5.0)
    assert (
        graphs.difference(x + 1e-6, x, 0.0, x)
        and graphs.difference(x + 1e-3, x, 2e-5, x)
        and graphs.difference(x.double(), x, 0.0, x)
    )
    assert graphs.difference(x + 1e-6, x, 2e-5, x) is None


def test_products_in_a_row_read_nothing_behind_their_own_writes():
    """Lanes of a tile that are computed twice, where the result takes memory that they read."""
    assert graphs.check([500_108, 500_133], interpreter=False) == []
