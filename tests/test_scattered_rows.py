"""Scatters of rows: positions are checked, and what they add is computed in their own kernel."""

import pytest
import torch

import minidynamo
from benchmarks.error_bound import assert_near
from miniinductor import config
from record_helpers import last_compiled


def test_an_index_out_of_range_is_found_by_whoever_has_it():
    function = minidynamo.compile(lambda t, i, v: t.index_add(0, i, v))
    table, index = torch.zeros(50, 64), torch.zeros(2000, dtype=torch.int64)
    function(table, index, torch.ones(2000, 64))
    for bad in (50, -1):
        index[1234] = bad
        with pytest.raises((IndexError, RuntimeError)):
            function(table, index, torch.ones(2000, 64))


def segment_sums(x, i):
    e = x.exp()
    return e, x.new_zeros(40, 8).index_add(0, i, e)


def two_sums(x, i):
    return x.new_zeros(40, 8).index_add(0, i, x.exp()), x.new_ones(41, 8).index_add(0, i, x)


def reads_sums(x, i):
    sums = x.new_zeros(40, 8).index_add(0, i, x)
    return x / sums[i]


def reads_old(x, i):
    e = x[:40].exp()
    return e.index_add(0, i, x), e[i] + x


def of_rows(x, i):
    return x.new_zeros(40).index_add(0, i, x.sum(1))


@pytest.mark.parametrize(
    "function, kernels",  # what is scattered into is a kernel of its own in each
    [(segment_sums, 2), (two_sums, 3), (reads_sums, 3), (reads_old, 2), (of_rows, 3)],
)
@pytest.mark.parametrize("backend", ["cpp", "triton"])
def test_a_scatter_is_fused_with_what_it_adds(function, kernels, backend):
    x, i = torch.randn(300, 8), torch.randint(0, 40, (300,))
    minidynamo.reset()
    with config.patch(cpu_backend=backend):
        assert_near(minidynamo.compile(function)(x, i), function(x, i))
    record = last_compiled().backend_record
    if backend == "triton":
        assert len(record.kernels) == kernels
    minidynamo.reset()
