"""Loop bodies: what they read and write, and the rewriting of their loops."""

import pytest
import sympy
import torch
from backend_helpers import make_graph, missing_ops, pointwise, reduce

from miniinductor.ir.dependencies import linear_form, loop_variable, merge_loops, stride_of
from miniinductor.ir.ops import ops
from miniinductor.ir.handlers import Recorder, trace
from miniinductor.schedule.common_loops import common_loops

x0, x1, r0 = loop_variable("x", 0), loop_variable("x", 1), loop_variable("r", 0)


def bodies(function, *tensors):
    return [trace(b) for b in make_graph(function, *tensors).operations]


def test_the_recorder_defines_every_op():
    assert missing_ops(Recorder) == []


def test_reads_and_writes_are_linear_expressions():
    [body] = bodies(lambda a, b: [pointwise(ops.add, a, b)], torch.randn(4, 8), torch.randn(8))
    assert {(a.name, a.index) for a in body.reads()} == {("arg0", 8 * x0 + x1), ("arg1", x1)}
    assert [(a.name, a.index) for a in body.writes()] == [("buf0", 8 * x0 + x1)]


def test_a_size_is_no_loop_variable_whatever_its_name_is():
    size = sympy.Symbol("x7", integer=True, positive=True)
    assert linear_form(size * x0 + x1) == ({x0: size, x1: 1}, frozenset())


def test_equal_ops_are_recorded_once():
    [body] = bodies(
        lambda a: [pointwise(lambda v: ops.add(ops.exp(v), ops.exp(v)), a)], torch.randn(4)
    )
    assert [i.op for i in body.instructions] == ["load", "exp", "add", "store"]


def test_results_nobody_uses_are_dropped():
    def wasteful(v):
        ops.sin(v)
        return ops.neg(v)

    [body] = bodies(lambda a: [pointwise(wasteful, a)], torch.randn(4))
    assert [i.op for i in body.instructions] == ["load", "neg", "store"]


@pytest.mark.parametrize(
    "tensor,loops",
    [
        (torch.randn(4, 8), (32,)),
        (torch.randn(4, 1, 8), (32,)),
        (torch.randn(8, 4).t(), (4, 8)),
        (torch.randn(4, 16)[:, ::2], (32,)),
        (torch.randn(4, 9)[:, 1:], (4, 8)),
        (torch.randn(2, 3, 4).permute(0, 2, 1), (2, 4, 3)),
        (torch.randn(1, 1), ()),
    ],
)
def test_simplified_loops(tensor, loops):
    [body] = bodies(lambda a: [pointwise(ops.neg, a)], tensor)
    assert body.simplify_loops().outer == loops


def test_a_reduction_keeps_outer_and_inner_loops_apart():
    [body] = bodies(lambda a: [reduce(a, "sum", [1, 2])], torch.randn(4, 8, 3))
    body = body.simplify_loops()
    assert (body.outer, body.inner) == ((4,), (24,))
    assert body.reads()[0].index == 24 * x0 + r0 and body.writes()[0].index == x0


@pytest.mark.parametrize("kind,loops", [("sum", (24,)), ("max", (24,)), ("argmax", (8, 3))])
def test_loops_of_a_reduction_merge_in_the_order_of_memory(kind, loops):
    """Only argmax asks for places, which follow the axes: its loops stay as they are."""
    [body] = bodies(lambda a: [reduce(a, kind, [1, 2])], torch.randn(4, 3, 8).transpose(1, 2))
    assert body.simplify_loops().inner == loops


def test_merging_needs_every_access_to_agree():
    (first,) = bodies(lambda a: [pointwise(ops.neg, a)], torch.randn(4, 8))
    (second,) = bodies(lambda a: [pointwise(ops.neg, a)], torch.randn(8, 4).t())
    assert [b.outer for b in merge_loops([first])] == [(32,)]
    assert [b.outer for b in merge_loops([first, second])] == [(4, 8)] * 2


def test_splitting_undoes_merging():
    [body] = bodies(lambda a: [pointwise(ops.neg, a)], torch.randn(4, 8))
    split = body.simplify_loops().split_to((4, 2, 4), ())
    assert split.reads()[0].index == 8 * x0 + 4 * x1 + loop_variable("x", 2)
    assert merge_loops([split])[0].outer == (32,)


@pytest.mark.parametrize(
    "a,b,common",
    [
        ((6, 4), (2, 12), (2, 3, 4)),
        ((24,), (6, 4), (6, 4)),
        ((4, 6), (6, 4), None),
        ((8,), (9,), None),
        ((), (), ()),
        ((2, 3, 4), (24,), (2, 3, 4)),
        ((0,), (0, 3), None),
    ],
)
def test_common_loops(a, b, common):
    assert common_loops(a, b) == common


def test_linear_forms():
    n = sympy.Symbol("n", integer=True)
    assert stride_of(3 * x0 + n * x1 + 7, x0) == 3 and stride_of(3 * x0 + n * x1, x1) == n
    assert stride_of(x0 * x1, x0) is None and stride_of(x0, x1) == 0
    assert linear_form(x0 * x1 + x0)[1] == {x0, x1}
