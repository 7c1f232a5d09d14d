"""Functionalization: no writes are left, and values, views and written inputs are those of
eager."""

import pytest
import torch
import torch.nn.functional as F
from front_helpers import check, trace

from miniinductor.autograd.functionalize import functionalize


def write_through_views(x):
    y = x.clone()
    part = y[1:3]
    part.add_(1)
    y.t()[0].zero_()
    return y, part


def write_scalar(x):
    y = x.clone()
    y[0] = 1.0
    y[:, 1:3] += 2
    return y


def write_pieces(x):
    y = x.clone()
    first, second = y.split(4, 1)
    first.add_(1)
    return y, second


def write_unbound(x):
    y = x.clone()
    first, *_ = y.unbind(1)
    first.mul_(3)
    return y


def read_old_view_after_write(x):
    y = x * 1
    view = y.view(-1)
    y.add_(1)
    other = view[3:]
    other.mul_(2)
    return view, y, other


def copy_between_views(x):
    y = x.clone()
    y[0].copy_(y[1])
    y[:, 0], y[:, 1] = y[:, 1].clone(), y[:, 0].clone()
    y[:, 2:4].add_(y[:, :2])  # apart, though the spans in memory overlap
    return y


def chain(x):
    return (x + 1).relu_().mul_(2).clamp_(max=3).t()


PROGRAMS = [
    write_through_views,
    write_scalar,
    write_pieces,
    write_unbound,
    read_old_view_after_write,
    copy_between_views,
    chain,
    lambda x: x.add_(1),
    lambda x: (x.add_(1), x * 2)[1],
    lambda x: (x.view(-1)[3:9].mul_(2), x.sum())[1],
    lambda x: (x.t()[2].fill_(7), None)[1],
    lambda x: x.clone().view(32)[3:7].mul_(2),
    lambda x: torch.add(x, x, out=torch.empty(4, 8)),
    lambda x: x.half().add_(x),
    lambda x: x.clone().masked_fill_(x > 0, 0.0),
    lambda x: torch.zeros(4, 4).diagonal().copy_(x[:, 0]),
    lambda x: x.clone().index_put_((torch.tensor([0, 2]),), torch.ones(8)),
    lambda x: F.silu(x.clone(), inplace=True) + F.hardswish(x.clone(), inplace=True),
    lambda x: x.clone().index_fill_(0, torch.tensor([1]), 2.0),
    lambda x: x.zero_() + 1,
    lambda x: x.clone().expand(2, 4, 8) + 1,
    lambda x: x.copy_(x.flip(0)),
    lambda x: (x.unsqueeze(0)[0].add_(3), x.select(1, 2))[1] * 1,
]


@pytest.mark.parametrize("number", range(len(PROGRAMS)))
def test_against_eager(number):
    check(PROGRAMS[number], torch.randn(4, 8), native=False, strides=False)


@pytest.mark.parametrize("number", range(len(PROGRAMS)))
def test_no_write_is_left(number):
    with torch.no_grad():
        gm, _ = functionalize(trace(PROGRAMS[number], [torch.randn(4, 8)]))
    written = [
        str(n.target)
        for n in gm.graph.nodes
        if getattr(n.target, "_schema", None) and n.target._schema.is_mutable
    ]
    assert written == []


def test_written_inputs_are_named():
    with torch.no_grad():
        gm, written = functionalize(
            trace(lambda a, b: (b.add_(a), a + 1)[1], [torch.randn(3), torch.randn(3)])
        )
    assert written == [("placeholder", "arg1")]
    outputs, values = gm(torch.ones(3), torch.ones(3))
    assert torch.equal(values[0], torch.full((3,), 2.0)) and torch.equal(
        outputs, torch.full((3,), 2.0)
    )
