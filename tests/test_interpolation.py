"""Linear resampling has eager's infinities, and a NaN only where eager has one."""

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
@pytest.mark.parametrize("size", [40, 70])
def test_16_bits(dtype: torch.dtype, size: int) -> None:
    """Weights are rounded where eager rounds them: few sums, added in another order, differ.  What
    is only moved keeps its bits."""
    for rank, last in ((3, False), (4, False), (4, True), (5, False), (5, True)):
        x = image(rank, 11).to(dtype)
        x = torch.cat([x, x * 3], 1)
        layout = {4: torch.channels_last, 5: torch.channels_last_3d}.get(rank)
        x = x.contiguous(memory_format=layout) if last else x
        for mode in ["nearest"] * (rank == 4) + [MODES[rank]]:
            f = lambda x: F.interpolate(x, size=size, mode=mode)  # noqa: B023, E731
            minidynamo.reset()
            got, want = minidynamo.compile(f)(x).nan_to_num(7), f(x).nan_to_num(7)
            differs = (got != want).float().mean()
            assert differs == 0 if mode == "nearest" else differs < 0.002, (rank, last, differs)
            [kernel] = records.frames[-1].backend_record.kernels
            if kernel.source.startswith("extern"):
                assert ("gathered(" in kernel.source) != last, kernel.source
                assert ("int16_t*" in kernel.source) == (mode == "nearest")


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
