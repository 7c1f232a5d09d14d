"""Scatters of rows: positions are checked, and what they add is computed in their own kernel."""

import functools

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


@pytest.mark.parametrize("width", [17, 96, 100])
def test_threads_share_the_columns_of_a_scatter(width, request):
    """Each element is added to in order; rows whose last axis is another one have no columns."""
    request.addfinalizer(functools.partial(torch.set_num_threads, torch.get_num_threads()))
    table, index, x = (
        torch.randn(50, width),
        torch.randint(0, 50, (3000,)),
        torch.randn(3000, width),
    )
    results = []
    for threads in (1, 3):
        torch.set_num_threads(threads)
        minidynamo.reset()
        function = minidynamo.compile(lambda t, i, v: t.index_add(0, i, v), fullgraph=True)
        results.append(function(table, index, x))
        source = last_compiled().backend_record.kernels[-1].source
        assert "column_end" in source and ("parallel for" in source) == (threads > 1)
    assert torch.equal(*results)
    assert_near(results[0], table.index_add(0, index, x))
    turned = minidynamo.compile(lambda t, i, v: t.t().index_add(1, i, v.t()), fullgraph=True)
    assert_near(turned(table, index, x), table.t().index_add(1, index, x.t()))


def sums(x, i, rows=40):
    return x.new_zeros(rows, *x.shape[1:]).index_add(0, i, x)


CASES = {  # -> kernels: what is added to is made by one of its own
    "vertical": (lambda x, i: (x.exp(), sums(x.exp(), i)), 2),
    "two": (lambda x, i: (sums(x.exp(), i), sums(x, i, 41)), 2),
    "sums are read": (lambda x, i: x / sums(x, i)[i], 3),
    "what was there is read": (lambda x, i: (x[:40].exp().index_add(0, i, x), x.exp()[i] + x), 2),
    "a reduction": (lambda x, i: sums(x.sum(1), i), 3),
}


@pytest.mark.parametrize("function, kernels", CASES.values(), ids=CASES)
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
