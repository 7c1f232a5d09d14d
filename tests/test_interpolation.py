"""Linear resampling has eager's infinities, and a NaN only where eager has one."""

from itertools import product

import pytest
import torch
import torch.nn.functional as F

import minidynamo
from minidynamo import records

MODES = {3: "linear", 4: "bilinear", 5: "trilinear"}


def image(rank: int, size: int) -> torch.Tensor:
    """With an infinity of each sign."""
    x = torch.randn((2, 3) + (size,) * (rank - 2), generator=torch.Generator().manual_seed(size))
    x.view(-1)[5], x.view(-1)[20] = torch.inf, -torch.inf
    return x


@pytest.mark.parametrize("rank", MODES)
@pytest.mark.parametrize("how", [{"scale_factor": 2.0}, {"size": 4}, {"scale_factor": 1.7}])
def test_infinities(rank: int, how: dict) -> None:
    def f(x):
        return F.interpolate(x, mode=MODES[rank], align_corners=how != {"size": 4}, **how)

    minidynamo.reset()
    compiled = minidynamo.compile(f, fullgraph=True)
    for size in (4, 6, 5):  # the later ones with symbolic sizes
        for x in (image(rank, size), image(rank, size).clamp(-2, 2)):
            torch.testing.assert_close(compiled(x), f(x), equal_nan=True)
    assert not any(r.backend_record.notes_of("runs eagerly") for r in records.frames)


@pytest.mark.parametrize("scale", [1.1, 1.5, 2.1])
@pytest.mark.parametrize("dynamic", [False, True])
def test_a_scale_that_changes_no_size(scale: float, dynamic: bool) -> None:
    """Eager's nearest pixels are those of the sizes: all of 8 for 1.1 times 8."""
    f = lambda x: F.interpolate(x, scale_factor=scale) + 1  # noqa: E731
    compiled = minidynamo.compile(f, dynamic=dynamic)
    for size in (8, 30, 9):
        x = torch.randn(1, 2, size, 3)
        assert torch.equal(compiled(x), f(x))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("layout", [torch.preserve_format, torch.channels_last])
def test_16_bits(dtype: torch.dtype, layout: torch.memory_format) -> None:
    """Weights are rounded where eager rounds them: few sums, added in another order, differ.  What
    is only moved keeps its bits."""
    for size, rank, is_linear in product((40, 70), MODES, (False, True)):
        x = torch.cat([image(rank, 11)] * 2, 1).to(dtype)
        x = x.contiguous(memory_format=layout) if rank == 4 else x
        mode = MODES[rank] if is_linear else "nearest"
        f = lambda x: F.interpolate(x, size, mode=mode)  # noqa: B023, E731
        minidynamo.reset()
        got, want = minidynamo.compile(f)(x).nan_to_num(7), f(x).nan_to_num(7)
        assert (got != want).float().mean() <= (0.002 if is_linear else 0), (size, rank, mode)
        source = "".join(k.source for k in records.frames[-1].backend_record.kernels)
        if rank == 4 and source.startswith("extern"):
            assert ("gathered(" in source) == (layout is torch.preserve_format)
            assert ("int16_t*" in source) != is_linear


@pytest.mark.parametrize("rank", MODES)
def test_gradients(rank: int) -> None:
    def gradient(function, size: int) -> torch.Tensor:
        x = image(rank, 4).clamp(-2, 2).requires_grad_()
        function(x, size).square().sum().backward()
        return x.grad

    def f(x, size):
        return F.interpolate(x, size=size, mode=MODES[rank])

    minidynamo.reset()
    compiled = minidynamo.compile(f, fullgraph=True)
    for size in (8, 9, 7):  # the later ones are symbols
        torch.testing.assert_close(gradient(compiled, size), gradient(f, size))
    assert not any(r.backend_record.notes_of("runs eagerly") for r in records.frames)
