"""Results of rows that stay in the kernel, or go from one kernel to others, are numbered as its
loops run: more loops merge."""

import random
import types

import pytest
import sympy
import torch
import torch.nn.functional as F

import minidynamo
from miniinductor import config
from miniinductor.speed.values_between import Digit, merged, renumbered


def programs(x, bias):
    mean = x.mean(1, keepdim=True)
    deviation = (x - mean).square().mean(1, keepdim=True)
    return (
        x - mean,
        (x - mean) * torch.rsqrt(deviation + 1e-3),
        F.normalize(x, dim=1) + bias,
        torch.softmax(x, 1),
        x.amax(1, keepdim=True) - x,
    )


def both_kept(x, bias):
    """What is a result, too, keeps its layout."""
    mean = x.mean(1, keepdim=True)
    return x - mean, mean, mean * 2 + bias[..., :1, :1]


@pytest.mark.parametrize("seed", range(10))
def test_any_layout(seed):
    draw = random.Random(seed)
    shape = [draw.randint(1, 5), draw.randint(1, 70), draw.randint(1, 30), draw.randint(1, 30)]
    order = draw.sample(range(4), 4)
    dtype = draw.choice([torch.float32, torch.bfloat16, torch.float16, torch.float64])
    generator = torch.Generator().manual_seed(seed)
    stored = [shape[axis] + draw.randint(0, 2) * (seed % 2) for axis in order]
    x = torch.randn(stored, generator=generator).to(dtype)
    x = x.permute([order.index(axis) for axis in range(4)])
    x = x[tuple(slice(n) for n in shape)] if seed % 2 else x
    bias = torch.randn(shape[1], 1, 1, generator=generator).to(dtype)
    for f in (programs, both_kept):
        minidynamo.reset()
        for found, expected in zip(minidynamo.compile(f)(x, bias), f(x, bias), strict=True):
            torch.testing.assert_close(found, expected, rtol=2e-2, atol=2e-2)
            strides = zip(found.shape, found.stride(), expected.stride())
            assert all(ours == theirs for size, ours, theirs in strides if size > 1)


def test_loops_of_memory_merge():
    x = torch.randn(4, 64, 14, 14).transpose(-1, -2)
    f = lambda x: x - x.mean(1, keepdim=True)  # noqa: E731
    minidynamo.reset()
    torch.testing.assert_close(minidynamo.compile(f)(x), f(x))
    [kernel] = minidynamo.records.frames[-1].backend_record.kernels
    assert "< 196;" in kernel.source and "< 14;" not in kernel.source


# --- values_between.py ----------------------------------------------------------------------------
def read_in_many_ways(x, bias):
    """Along other loops, with other neighbours, a part of it, by two readers, by an eager kernel,
    at places that are computed, and of a reduction over several axes."""
    mean, largest = x.mean(1, keepdim=True), x.amax((0, 2), keepdim=True)
    n, _, h, w = mean.shape
    flat = mean.reshape(n, h * w)
    return (
        (x - mean) * (mean + 1),
        mean.transpose(-1, -2).contiguous() * 2,
        flat.flip(1) + flat,
        mean[..., 1:] - mean[..., :-1],
        torch.mm(flat.float(), flat.float().t()),
        flat[:, torch.arange(h * w - 1, -1, -1)] * 3,
        x - largest,
        x * largest,
        torch.softmax(x.sum((0, 3)).float(), 0),
    )


@pytest.mark.parametrize("fusion", [True, False])
@pytest.mark.parametrize("seed", range(8))
def test_any_layout_between_kernels(seed, fusion):
    draw = random.Random(seed)
    shape = [draw.randint(1, 5), draw.randint(1, 40), draw.randint(2, 30), draw.randint(2, 30)]
    order = draw.sample(range(4), 4)
    dtype = draw.choice([torch.float32, torch.bfloat16, torch.float16, torch.float64])
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn([shape[axis] for axis in order], generator=generator).to(dtype)
    x = x.permute([order.index(axis) for axis in range(4)])
    bias = torch.randn(shape[1], 1, 1, generator=generator).to(dtype)
    for f in (read_in_many_ways, programs, both_kept):
        minidynamo.reset()
        with config.patch(fusion=fusion):
            result = minidynamo.compile(f, dynamic=False)(x, bias)
        for found, expected in zip(result, f(x, bias), strict=True):
            torch.testing.assert_close(found, expected, rtol=2e-2, atol=2e-2)
            strides = zip(found.shape, found.stride(), expected.stride())
            assert all(ours == theirs for size, ours, theirs in strides if size > 1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_nothing_lies_across_between_kernels(dtype):
    """The mean of an image's channels and what is subtracted from it are two kernels here; where
    the mean is a result, too, it lies as eager's, and is read across."""
    x = torch.randn(4, 32, 112, 112).to(dtype).transpose(-1, -2)
    x[0, 1, 2, 3], x[1, 2, 3, 4] = torch.nan, torch.inf
    f = lambda x: x - x.mean(1, keepdim=True)  # noqa: E731
    kept = lambda x: (f(x), x.mean(1, keepdim=True))  # noqa: E731
    minidynamo.reset()
    torch.testing.assert_close(minidynamo.compile(f)(x), f(x), equal_nan=True)
    kernels = minidynamo.records.frames[-1].backend_record.kernels
    assert len(kernels) == 2 and all("_tile" not in k.source for k in kernels)
    assert "< 12544;" in kernels[1].source
    minidynamo.reset()
    for found, expected in zip(minidynamo.compile(kept)(x), kept(x), strict=True):
        torch.testing.assert_close(found, expected, equal_nan=True)
        assert found.stride() == expected.stride()


def test_sizes_that_are_not_known_stay_in_their_order():
    f = lambda x: x - x.mean(1, keepdim=True)  # noqa: E731
    compiled = minidynamo.compile(f, dynamic=True)
    for shape in [(4, 32, 112, 112), (3, 32, 90, 110), (1, 2, 3, 4), (2, 5, 0, 3)]:
        x = torch.randn(shape).transpose(-1, -2)
        torch.testing.assert_close(compiled(x), f(x))


@pytest.mark.parametrize("windows, place", [(2, "5*a + 20*b"), (3, None)])
def test_loops_that_overlap_carry_nothing(windows, place):
    """Windows of 8, every 4: the third would end in the next digit of the writer's numbering."""
    a, b = sympy.symbols("a b", integer=True)
    digits = merged([Digit(4, 1, 5), Digit(3, 4, 20), Digit(5, 12, 1)])
    body = types.SimpleNamespace(ranges=lambda: {a: 8, b: windows})
    found = renumbered(a + 4 * b, body, digits)
    assert found == (sympy.sympify(place, locals={"a": a, "b": b}) if place else None)
