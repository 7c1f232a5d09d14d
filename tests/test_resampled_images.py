"""Images in other sizes, padded and shuffled; short lanes are joined, maybe twice."""

import random

import pytest
import torch
import torch.nn.functional as F

import minidynamo


def compiled(function, *inputs):
    """(result, its kernels' text); nothing runs eagerly."""
    minidynamo.reset()
    result = minidynamo.compile(function, fullgraph=True)(*inputs)
    record = minidynamo.records.frames[-1].backend_record
    assert not record.fallbacks
    return result, "\n".join(kernel.source for kernel in record.kernels)


def image(shape, dtype, last):
    generator = torch.Generator().manual_seed(sum(shape))
    x = torch.randn(shape, generator=generator).to(dtype)
    return x.to(memory_format=torch.channels_last) if last else x


@pytest.mark.parametrize("mode", ["nearest", "nearest-exact"])
@pytest.mark.parametrize("seed", range(4))
def test_sizes_of_any_ratio(mode, seed):
    """Also those that are no whole multiple, where eager's rounding in float32 decides."""
    draw = random.Random(seed)
    for _ in range(6):
        shape = (2, draw.choice([1, 3, 4, 7, 17]), draw.randint(1, 70), draw.randint(1, 70))
        dtype = draw.choice([torch.float32, torch.bfloat16, torch.float16, torch.float64])
        x = image(shape, dtype, draw.random() < 0.5)
        x = x[:, :, draw.randint(0, 1) * (shape[2] > 1) :]  # memory that begins elsewhere
        if draw.random() < 0.5:
            how = {"scale_factor": draw.choice([0.5, 1.5, 2.0, 3.0, 2.3])}
        else:
            how = {"size": (draw.randint(1, 140), draw.randint(1, 140))}
        f = lambda x: F.interpolate(x, mode=mode, **how) + 1  # noqa: B023, E731
        try:
            expected = f(x)
        except RuntimeError:  # a result without pixels
            continue
        minidynamo.reset()
        assert torch.equal(minidynamo.compile(f)(x), expected), (shape, dtype, how)
        # eager finds "exact" pixels of float64 in float64, and is asked to
        is_eager = dtype == torch.float64 and mode == "nearest-exact"
        record = minidynamo.records.frames[-1].backend_record
        assert bool(record.fallbacks) == is_eager


@pytest.mark.parametrize("channels", [1, 2, 3, 5, 7])
@pytest.mark.parametrize("width", [9, 28, 112])
def test_short_lanes_are_joined_twice(channels, width):
    """(width, 2, channels) as one loop, whose places lie in a table that all rows share."""
    x = image((2, channels, 8, width), torch.bfloat16, True)
    f = lambda x: F.interpolate(x, scale_factor=2) * 3  # noqa: E731
    result, source = compiled(f, x)
    assert torch.equal(result, f(x))
    if channels == 3 and width == 112:
        assert "table0" in source and "r0 < 3;" not in source and "r0 < 6;" not in source


def test_padding_and_shuffling_of_few_channels():
    def f(x):
        shuffled = F.pixel_shuffle(F.pixel_unshuffle(x, 2) + 1, 2) * 2
        return shuffled, F.pad(x, (1, 2, 3, 0)) * 2, x.roll((3, 5), (2, 3)) + x, x.flip(1, 3) + x

    for channels in (1, 2, 3, 6):
        for last in (False, True):
            x = image((2, channels, 14, 26), torch.float32, last)
            result, _ = compiled(f, x)
            for found, expected in zip(result, f(x), strict=True):
                torch.testing.assert_close(found, expected)
