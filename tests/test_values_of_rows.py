"""Results of rows that stay in the kernel are numbered as its loops run: more loops merge."""

import random

import pytest
import torch
import torch.nn.functional as F

import minidynamo


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
