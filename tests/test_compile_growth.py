"""What a C++ compiler gets to do grows with the program, and not faster: kernels are cut by what
their operations cost.  What our own stages do for each node of a graph stays small."""

import collections
import sys
from unittest import mock

import networkx
import pytest
import torch
from record_helpers import last_compiled

import minidynamo
import miniinductor
from benchmarks.error_bound import assert_near
from miniinductor.schedule import scheduler


def chain(count, step=lambda x: torch.sin(x) * 1.01):
    def function(x):
        for _ in range(count):
            x = step(x)
        return x

    return function


def wide(count):
    return lambda x: [torch.cos(x + i) * 1.01 for i in range(count)]


def kernels_of(function, x):
    found = torch.utils._pytree.tree_leaves(minidynamo.compile(function)(x))
    for ours, eager in zip(found, torch.utils._pytree.tree_leaves(function(x)), strict=True):
        assert_near(ours, eager)
    return last_compiled().backend_record.kernels


@pytest.mark.parametrize("program", [chain, wide])
def test_kernels_are_cut_by_what_they_cost(program):
    x = torch.linspace(-1, 1, 64)
    counts = [len(kernels_of(program(count), x)) for count in (40, 160)]
    assert counts[0] == 1 and 3 <= counts[1] <= 5
    assert max(len(kernel.source) for kernel in last_compiled().backend_record.kernels) < 40_000
    refused = [d.reason for d in last_compiled().backend_record.fusions if not d.fused]
    assert any(str(scheduler.MAX_WORK) in reason for reason in refused)


def test_cheap_operations_still_share_one_kernel():
    assert len(kernels_of(chain(60, lambda x: (x + 0.5) * 0.9), torch.ones(64))) == 1


@pytest.mark.parametrize("function", [torch.sin, torch.cos, torch.tan])
def test_large_angles_among_many_functions(function):
    x = torch.tensor([0.5, -3.0, 1e5, -7e7, 3e38, float("inf"), float("nan")])

    assert kernels_of(lambda x: [function(x * i) for i in range(1, 20)], x)


def test_what_is_saved_is_sought_among_numbers():
    x = torch.ones(8, requires_grad=True)
    with mock.patch.object(networkx, "minimum_cut", wraps=networkx.minimum_cut) as cut:
        assert kernels_of(chain(20), x)
    network = cut.call_args.args[0]
    assert len(network) > 20 and {type(node) for node in network} == {int}


def test_nodes_are_ordered_by_few_calls_for_each():
    with miniinductor.config.patch(fusion=False, foreach=False):
        kernels_of(wide(40), torch.ones(8))
    schedule = last_compiled().backend_record.schedule
    makers, events = schedule.makers(schedule.nodes), collections.Counter()
    sys.setprofile(lambda frame, event, _: events.update([event]))
    try:
        order = schedule.topological(schedule.nodes, makers)
    finally:
        sys.setprofile(None)
    assert order == schedule.nodes and events["call"] < 10 * len(order)
