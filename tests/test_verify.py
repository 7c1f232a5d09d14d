"""The verifier finds graphs that make no sense."""

import pytest
import torch
from front_helpers import lower

from miniinductor.ir.handlers import BadGraph, verify_graph
from miniinductor.ir.loops import BufferView
from miniinductor.ir.ops import ops


def graph():
    return lower(lambda x: (x.sum(1) + 1, x @ x.t()), [torch.randn(4, 32)])[0]


def spoil_dtype(g):
    g.operations[0].data.src_dtype = torch.float64


def spoil_order(g):
    del g.operations[0]


def spoil_bounds(g):
    inner = g.operations[0].data.inner_fn
    g.operations[0].data.inner_fn = lambda index, rindex: inner([index[0] + 1], rindex)


def spoil_output(g):
    g.outputs[0] = BufferView("buf9", (4, 4), (4, 1), 0)


def spoil_store(g):
    data = g.operations[-1].data
    inner = data.inner_fn
    data.inner_fn = lambda index: ops.to_dtype(inner(index), torch.int64)


@pytest.mark.parametrize(
    "spoil,what",
    [
        (spoil_dtype, "reduction sum of torch.float64"),
        (spoil_order, "nothing made before"),
        (spoil_bounds, "elements 32 to 159 of 128"),
        (spoil_output, "nothing made before"),
        (spoil_store, "is given torch.int64"),
    ],
    ids=lambda x: getattr(x, "__name__", ""),
)
def test_a_spoilt_graph_is_refused(spoil, what):
    g = graph()
    verify_graph(g)
    spoil(g)
    with pytest.raises(BadGraph, match=what):
        verify_graph(g)
