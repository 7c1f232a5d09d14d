"""Forms of C++ kernels that the census of kernels asked for: odd sizes, types, dynamic sizes, one
thread and several.  Many programs are one graph here, since compiling is what costs time."""

import contextlib

import pytest
import torch

import minidynamo

HALVES = (torch.bfloat16, torch.float16)


@contextlib.contextmanager
def threads(number):
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def is_close(found, expected, exact):
    """Is it at most a little further from the same in float64 than eager's?"""
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    if not found.is_floating_point():
        return torch.equal(found, expected)
    both = (found.double(), expected.double())
    if not all(torch.equal(both[0].isnan(), other.isnan()) for other in (both[1], exact)):
        return False
    ours, theirs = ((value - exact).nan_to_num().norm() for value in both)
    return bool(ours <= 2 * theirs + 1e-5 * exact.nan_to_num().norm() + 1e-6)


def check(function, inputs, dynamic=False, twice=()):
    """Against eager, with one thread and with three; twice: inputs of a second call."""
    for number in (1, 3):
        with threads(number):
            minidynamo.reset()
            compiled = minidynamo.compile(function, dynamic=dynamic or None)
            for arguments in filter(None, (inputs, twice)):
                wide = [t.double() if t.is_floating_point() else t for t in arguments]
                results = zip(compiled(*arguments), function(*arguments), function(*wide))
                for place, (found, expected, exact) in enumerate(results):
                    assert is_close(found, expected, exact), (number, place)
    return minidynamo.records.frames[-1].backend_record


# --- reductions whose lanes run along an outer loop -----------------------------------------------
def short_axes(a, b, table, index):
    difference = a[:, None] - b[None]
    bags = table[index.view(-1, 5)]
    return (
        difference.square().sum(-1),
        difference.abs().amax(-1),
        (difference * 2).argmax(-1),
        torch.exp(-difference.square().sum(-1)).sum(-1),
        bags.sum(1),
        bags.float().amax(1) + 1,
    )


@pytest.mark.parametrize("dtype", [torch.float32, *HALVES])
def test_a_short_axis_is_reduced(dtype):
    torch.manual_seed(0)
    a, b, table = torch.randn(67, 7), torch.randn(131, 7), torch.randn(90, 71)
    inputs = [a.to(dtype), b.to(dtype), table.to(dtype), torch.randint(-90, 90, (65 * 5,))]
    check(short_axes, inputs)


def test_an_index_out_of_range_is_told_by_lanes_along_columns():
    table, index = torch.randn(90, 71), torch.randint(90, (65 * 5,))
    compiled = minidynamo.compile(lambda t, i: t[i.view(-1, 5)].sum(1))
    compiled(table, index)
    index[77] = 90
    with pytest.raises(IndexError):
        compiled(table, index)


# --- 16 bits --------------------------------------------------------------------------------------
def test_every_float16_is_read_and_rounded_to():
    every = torch.arange(-(2**15), 2**15).to(torch.int16).view(torch.float16)
    near = every.float() * torch.tensor([1, 1 + 2**-11, 1 - 2**-12, 1 + 2**-11 + 2**-20])[:, None]
    edges = torch.tensor([65519.99, 65520.0, 1e38, 2e-8, 3e-8, 2.0**-24, -(2.0**-25), -0.0])

    def both(every, near, edges):
        rounded = [t.half().float() for t in (near, edges)]
        return every.float(), every.float().flip(0) + 1, *rounded, *[1 / t for t in rounded]

    for found, expected in zip(
        minidynamo.compile(both)(every, near, edges), both(every, near, edges)
    ):
        assert torch.equal(found.nan_to_num(nan=7.0), expected.nan_to_num(nan=7.0))


# --- joined rows ----------------------------------------------------------------------------------
@pytest.mark.parametrize("dtype", (torch.float32, *HALVES, torch.float64))
def test_joined_rows_are_reduced(dtype):
    x, y, z = torch.randn(9, 70).to(dtype), torch.randn(9, 130).to(dtype), torch.randn(9, 33)
    y[2, 100], x[3, 5] = torch.nan, torch.inf

    def program(x, y, z):
        one, other = torch.cat([x, y], -1), torch.cat([y, z.to(y.dtype), x * 2], -1)
        padded = torch.nn.functional.pad(x, (20, 30), value=1.5)
        return (
            one.sum(-1),
            one.amax(-1),
            torch.softmax(other, -1),
            other.argmax(-1),
            torch.nn.functional.layer_norm(one, (200,)),
            (padded * padded).mean(-1),
            (other > 0).any(-1),
        )

    check(program, [x, y, z])
    check(program, [x, y, z], dynamic=True, twice=[t.clone() for t in (x, y, z)])
