"""A sample of the generators of bits, layouts, and changed tensors."""

import math

import pytest
import torch
import torch.nn.functional as F

import minidynamo
from tests.soundness import layouts, runner, tensors


def test_operators_on_unusual_layouts():
    assert runner.sample(layouts, 40, "aot_eager", first=3) == []


def test_a_tensor_changes_between_two_calls():
    assert runner.sample(tensors, 60, "eager,aot_eager", first=0) == []
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


POSITIONS, PLACES = torch.tensor([1, 0]), torch.zeros(5, 2, 16, dtype=torch.long)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x[:, POSITIONS],  # it may raise, so it is stored at once
        lambda x: x.index_put((POSITIONS,), x[:2, :1]),
        lambda x: x.index_fill(1, POSITIONS, 2.0),
        lambda x: x.index_add(1, POSITIONS, x[:, :2]),
        lambda x: x.scatter(1, PLACES, 1.0),
        lambda x: x.gather(1, PLACES),
        lambda x: x.sum(1, True),
        lambda x: x.cummax(1)[0],
    ],
)
def test_a_view_of_a_result_lies_in_memory_as_eagers(function):
    x = torch.randn(320).as_strided((5, 4, 16), (4, 1, 20))
    every_other = lambda x: function(x)[:, :, ::2]  # noqa: E731
    want, got = every_other(x), minidynamo.compile(every_other)(x)
    assert got.stride() == want.stride() and torch.equal(got, want)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: torch.select_scatter(x, x[0], 0, 7),
        lambda x: torch.slice_scatter(x, x, 1, 1),
        lambda x: torch.diagonal_scatter(x, x[0, :2], 2),
        lambda x: torch.native_batch_norm(x[0, 0], None, None, None, None, True, 0.1, 1e-5),
        lambda x: F.interpolate(x[None, None], scale_factor=0.1, mode="bilinear"),
    ],
)
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_what_eager_refuses_is_refused(function, backend):
    x = torch.ones(2, 3)
    with torch.no_grad():
        with pytest.raises((RuntimeError, IndexError)) as eager:
            function(x)
        minidynamo.reset()
        with pytest.raises((RuntimeError, IndexError, ValueError)) as ours:
            minidynamo.compile(function, backend=backend)(x)
    if "SmallVector" not in str(eager.value):  # torch.ops gives it another type
        assert type(ours.value) is type(eager.value)
