"""Forms of Triton kernels that are chosen for speed (miniinductor/gpu), in Triton's interpreter:
right for odd sizes, 16-bit and integer dtypes, NaN, and sizes that are symbols."""

import os

import pytest

pytest.importorskip("triton", reason="triton is not installed (it has wheels for Linux only)")
if os.environ.get("TRITON_INTERPRET") != "1":
    pytest.skip("needs TRITON_INTERPRET=1 (tests/conftest.py sets it)", allow_module_level=True)

import torch
import torch.nn.functional as F

import minidynamo
from miniinductor import config


@pytest.fixture(autouse=True)
def through_triton():
    torch.manual_seed(0)
    minidynamo.reset()
    with config.patch(cpu_backend="triton"), torch.no_grad():
        yield
    minidynamo.reset()


def compiled(function, *args, **how):
    """(result, record of its graph)."""
    got = minidynamo.compile(function, fullgraph=True, **how)(*args)
    return got, minidynamo.records.frames[-1].backend_record


def check(function, *args, rtol=1e-5, atol=1e-5, kernels=None, **how):
    """It gives what eager gives; its kernels' sources."""
    got, record = compiled(function, *args, **how)
    torch.testing.assert_close(got, function(*args), rtol=rtol, atol=atol, equal_nan=True)
    assert kernels in (None, len(record.kernels)), [k.name for k in record.kernels]
    return "\n".join(kernel.source for kernel in record.kernels)


# --- positions made of indices (gpu/bounds.py) ----------------------------------------------------
@pytest.mark.parametrize("align", [False, True])
@pytest.mark.parametrize("size", [(7, 13), (29, 31), (5, 1), (1, 64)])
def test_positions_of_resampling_are_neither_checked_nor_wide(size, align):
    x = torch.randn(2, 3, 11, 9)
    for mode in ("nearest", "bilinear"):
        aligned = {} if mode == "nearest" else {"align_corners": align}
        text = check(lambda v: F.interpolate(v, size=size, mode=mode, **aligned) + 1, x)  # noqa: B023
        assert "device_assert" not in text and "int64" not in text


def test_a_position_that_may_be_out_of_range_is_checked():
    x = torch.randn(11, 9)

    text = check(lambda v: v[(torch.arange(12, dtype=torch.float32) * 0.9 - 2.5).to(torch.int64)], x)  # negative ones wrap
    assert "device_assert" in text and "int64" not in text


def test_integers_that_grow_beyond_32_bits_have_64():
    def grows(x):
        i = torch.arange(x.shape[0])
        j = i * 3_000_000 + 7
        return i + x, j * j, j // 5 - (j % 3), torch.where(i > 3, i, j * 1000), (i.double() / 3).long()

    check(grows, torch.randn(1500))
    check(lambda x: (torch.arange(x.shape[0]) - 70).cumsum(0) + (torch.arange(70) > 2).sum(), torch.randn(70))
    check(lambda x: (torch.arange(300).to(torch.int8), torch.arange(70).max() + x), torch.randn(70))
