"""A sample of the generators of bits, layouts, and changed tensors."""

import math

import pytest
import torch
import torch.nn.functional as F

import minidynamo
from tests.soundness import layouts, runner, tensors


def test_operators_on_unusual_layouts():
    assert runner.sample(layouts, 16, "aot_eager", first=3) == []


def test_a_tensor_changes_between_two_calls():
    assert runner.sample(tensors, 30, "eager,aot_eager", first=0) == []
    assert runner.sample(tensors, 6, "inductor", first=100) == []


def transposed(*shape):
    return torch.arange(math.prod(shape), dtype=torch.float32).view(shape).mT


def by_pixel(*shape):
    formats = {4: torch.channels_last, 5: torch.channels_last_3d}
    return torch.randn(shape).contiguous(memory_format=formats[len(shape)])


def complex_of(function):
    return lambda x: function(torch.complex(x, x))


@pytest.mark.parametrize(
    "function, x",
    [
        (F.logsigmoid, transposed(5, 6)),
        (lambda x: F.pad(x, (1, 1, 1, 1), mode="reflect"), by_pixel(1, 3, 4, 4)),
        (lambda x: F.pad(x, (1,) * 6, mode="reflect"), by_pixel(1, 3, 4, 4, 4)),
        (lambda x: F.pad(x, (1, 1, 1, 1), mode="replicate"), by_pixel(1, 3, 4, 4)),
        (lambda x: F.pad(x, (1,) * 6, mode="replicate"), by_pixel(1, 3, 4, 4, 4)),
        (lambda x: F.channel_shuffle(x, 2), by_pixel(1, 4, 5, 5)),
        (lambda x: F.batch_norm(x, None, None, training=True), transposed(2, 3, 4)),
        (lambda x: F.batch_norm(x, x[0, :, 0], x[1, :, 0]), transposed(2, 3, 4)),
        (lambda x: torch.slice_scatter(x, x[:2] + 1, 0, 0, 2), torch.ones(4).expand(5, 4)),
        (lambda x: torch.select_scatter(x, x[0] + 1, 0, 0), torch.ones(4).expand(5, 4)),
        (lambda x: torch.normal(x, x + 1), transposed(5, 6)),
        (complex_of(torch.angle), transposed(5, 6)),
        (lambda x: torch.fft.rfft(x, dim=1), transposed(5, 6, 7)),
        (complex_of(lambda x: torch.fft.fft2(x, dim=(0, 2))), transposed(5, 6, 7)),
        (complex_of(lambda x: torch.fft.irfft2(x, dim=(2, 0))), transposed(5, 6, 7)),
        (lambda x: F.interpolate(x, 3), torch.arange(20.0).as_strided((2, 3, 4), (1, 1, 1))),
        (lambda x: F.interpolate(x, scale_factor=0.6), by_pixel(2, 3, 4, 4, 4)),
    ],
)
def test_results_lie_in_memory_as_eagers(function, x):
    """torch's shape functions say other strides, or the op's decomposition gives others."""

    def asked(x):
        y = function(x)
        return y, y.stride()

    with torch.no_grad(), minidynamo.config.patch(raise_internal_errors=True):
        want = function(x)
        for backend in ("eager", "inductor"):
            torch.manual_seed(0)
            got, stride = minidynamo.compile(asked, backend=backend)(x)
            assert got.stride() == stride == want.stride()
