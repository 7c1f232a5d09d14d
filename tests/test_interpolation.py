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
def test_16_bits_on_a_cpu(dtype: torch.dtype) -> None:
    """Kernels read pixels that lie apart before their lanes, and mix them as floats where eager's
    do, elsewhere an eager kernel rounds the weights; what is only moved keeps its bits."""
    x = image(4, 20).to(dtype)
    last = torch.cat([x, x * 3], 1).contiguous(memory_format=torch.channels_last)
    for mode, size, given, words in [
        ("nearest", 40, x, ["Gathered", "int16_t* out0"]),
        ("nearest", 40, last, ["int16_t* out0"]),
        ("bilinear", 40, x, ["Gathered"]),
        ("bilinear", 70, last, ["to_integer"]),
        ("bilinear", 70, x, []),
    ]:
        f = lambda x: F.interpolate(x, size=size, mode=mode)  # noqa: B023, E731
        minidynamo.reset()
        got, bound = minidynamo.compile(f)(given), 2**-7 if mode == "bilinear" and words else 0
        torch.testing.assert_close(got, f(given), rtol=bound, atol=bound, equal_nan=True)
        record = records.frames[-1].backend_record
        source = "".join(kernel.source for kernel in record.kernels)
        assert all(word in source for word in words) and bool(words) != bool(record.fallbacks)


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
