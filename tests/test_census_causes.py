"""Causes that a census of kernels found on CPUs (issue "kernels that nobody chose"): each form is
written where it was meant, and gives what eager gives."""

import pytest
import torch
import torch.nn.functional as F
from torch.utils import _pytree as pytree

import minidynamo

HALVES = [torch.bfloat16, torch.float16]
DTYPES = [torch.float32, torch.float64, *HALVES]


def compiled(function, *inputs):
    """(result, its kernels' text); nothing runs eagerly."""
    minidynamo.reset()
    result = minidynamo.compile(function, fullgraph=True)(*inputs)
    record = minidynamo.records.frames[-1].backend_record
    assert not record.fallbacks
    return result, "\n".join(kernel.source for kernel in record.kernels)


def numbers(*shape, dtype=torch.float32, special=False):
    generator = torch.Generator().manual_seed(sum(shape))
    x = torch.randn(shape, generator=generator)
    if special:
        drawn = torch.rand(shape, generator=generator)
        x[drawn < 0.02], x[drawn > 0.98] = torch.nan, -torch.inf
        x[(drawn > 0.4) & (drawn < 0.42)] = -0.0
    return x.to(dtype)


def is_same(a, b):
    """Bit by bit, but for which NaN it is."""
    words = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[a.element_size()]
    nan = a.isnan() & b.isnan()
    return a.dtype == b.dtype and bool(((a.view(words) == b.view(words)) | nan).all())


# argmax down columns: several rows in turn, each by two choices (arrays.py: taken_in_turn)
@pytest.mark.parametrize("dtype", [*DTYPES, torch.int64, torch.int32, torch.uint8])
@pytest.mark.parametrize("shape", [(37, 77), (4, 64), (3, 130), (258, 33)])
@pytest.mark.parametrize("name", ["argmax", "argmin"])
def test_the_best_rows_are_the_first_ones_and_nan_is_best(name, shape, dtype):
    x = numbers(*shape, special=dtype.is_floating_point)
    x = (x.nan_to_num(0.0) * 3).abs().to(dtype) if not dtype.is_floating_point else x.to(dtype)
    x[:, 1], x[:, 2], x[:, 3] = 0, 1, x[0, 3]  # all alike
    if dtype.is_floating_point:
        x[:, 4], x[:, 5], x[:, 6] = torch.inf, -torch.inf, torch.nan
        x[::2, 7], x[1::2, 7] = 0.0, -0.0
        x[1:, 8], x[0, 8] = torch.nan, torch.inf
    result, source = compiled(lambda x: getattr(x, name)(0), x)
    assert torch.equal(result, getattr(x, name)(0))
    if shape[0] >= 4:
        assert "acc0_there" in source and "acc0_take = " not in source.split("part = 1")[0]


def test_extremes_of_float16_columns_keep_nan():
    x = numbers(33, 77, dtype=torch.float16, special=True)
    for f in (lambda x: x.amax(0), lambda x: x.amin(0), lambda x: x.square().amax(0)):
        assert is_same(compiled(f, x)[0], f(x))


@pytest.mark.parametrize("width", [5, 8, 9, 16, 31, 37, 48, 63, 64])
def test_short_rows_of_float16(width):
    """What they add up, and what they store."""

    def f(x, y, z):
        return (
            x.square().mean((1, 3)),
            (x.amax((1, 3)), (x.abs() + 1).amin((1, 3))),
            (x.abs().log() + y / x).sum((1, 3)),
            (x.float() + z).sum((1, 3)),
            x - x.mean((1, 3), keepdim=True),
            x.isnan().any(3).any(1),
        )

    x = numbers(4, 6, 11, width, dtype=torch.float16).abs() + 0.1
    y, z = torch.rand(4, 6, 11, width).half(), torch.randn(4, 6, 11, width)
    result, _ = compiled(f, x, y, z)
    for a, b in zip(pytree.tree_leaves(result), pytree.tree_leaves(f(x, y, z)), strict=True):
        torch.testing.assert_close(a, b, rtol=4e-3, atol=4e-3)
    for special in (torch.nan, torch.inf, -torch.inf, -0.0):
        x[1, 2, 3, -1] = special
        result, _ = compiled(lambda x: (x.amax((1, 3)), x - x.amin((1, 3), keepdim=True)), x)
        assert is_same(result[0], x.amax((1, 3)))
        assert is_same(result[1], x - x.amin((1, 3), keepdim=True))


# --- exact_values.py ------------------------------------------------------------------------------
def test_bfloat16_that_was_only_selected_is_not_rounded():
    x = numbers(4, 32, 20, 20, dtype=torch.bfloat16, special=True)
    x = x.contiguous(memory_format=torch.channels_last)
    f = lambda x: F.max_pool2d(torch.relu(x), 2)  # noqa: E731
    result, source = compiled(f, x)
    assert is_same(result, f(x)) and "mini::upper_half(" in source and "to_bfloat16" not in source
