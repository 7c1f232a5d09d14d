"""What a pointwise kernel reads or writes along an outer loop: bits as eager's, whole lines.

Each program is arithmetic that IEEE determines, so eager's bits are the only right ones."""

import pytest
import torch
from record_helpers import last_compiled

import minidynamo

PROGRAMS = {
    "rolled": lambda x: x.roll((3, 5), (2, 3)) + x,
    "rolled, dense": lambda x: x.roll((3, 5), (2, 3)).contiguous() + x.contiguous(),
    "integers": lambda x: (x.transpose(1, 3) * 10).to(torch.int8).contiguous(),
    "transposed": lambda x: x.transpose(-1, -2) * 2 + x.reshape(x.transpose(-1, -2).shape),
    "dense": lambda x: x.contiguous() * 3 - 1,
    "flipped": lambda x: x.flip(2).contiguous() + x.contiguous(),
    "shifted": lambda x: (x[..., 1:] * 2 - x[..., :-1]).contiguous(),
    "copied": lambda x: (y := x.transpose(1, 3).contiguous(), y * 2)[0],
}
DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64)
SHAPES = [(2, 32, 56, 56), (1, 3, 70, 90), (2, 40, 19, 23), (1, 33, 17, 130)]


@pytest.fixture(params=[1, 2])
def threads(request):
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


def images(dtype):
    generator = torch.Generator().manual_seed(0)
    for shape in SHAPES:
        x = torch.randn(shape, generator=generator).to(dtype)
        yield from (x, x.contiguous(memory_format=torch.channels_last))


def kernel_of(function, x):
    minidynamo.reset()
    found = minidynamo.compile(function, fullgraph=True)(x)
    record = last_compiled().backend_record
    return found, "\n".join(kernel.source for kernel in record.kernels)


@pytest.mark.parametrize("dtype", DTYPES)
def test_bits_are_eagers(dtype, threads):
    everything = list(images(dtype))
    functions = list(PROGRAMS.values())

    def all_of(*tensors):
        return [function(x) for x in tensors for function in functions]

    minidynamo.reset()
    found = minidynamo.compile(all_of, fullgraph=True)(*everything)
    for one, eager in zip(found, all_of(*everything), strict=True):
        assert (one.dtype, one.stride()) == (eager.dtype, eager.stride())
        assert torch.equal(one, eager)


def test_lanes_that_lie_anywhere_go_through_tiles():
    """Two reads that lie otherwise than the result: it is the result that is transposed."""
    x = torch.randn(2, 32, 56, 56).to(torch.bfloat16)
    last = x.contiguous(memory_format=torch.channels_last)
    assert "mini::transpose(&in0" in kernel_of(PROGRAMS["dense"], last)[1]
    assert "mini::transpose(*tile0, 16, 16, &out0" in kernel_of(PROGRAMS["shifted"], last)[1]


def test_copies_of_small_floats_keep_their_bits():
    x = torch.arange(2**16, dtype=torch.int32).to(torch.int16).view(64, 1024)
    for dtype in (torch.float16, torch.bfloat16):
        found, source = kernel_of(lambda x: x.t().contiguous(), x.view(dtype))
        assert torch.equal(found.view(torch.int16), x.t()) and "mini::to_float16" not in source


def test_in_place_no_lane_is_computed_twice():
    for lanes in (41, 64, 70):
        x, y = torch.randn(4, lanes, 37), torch.randn(4, 37, lanes)
        expected = y.clone().mul_(3).add_(x.transpose(-1, -2))
        minidynamo.reset()
        minidynamo.compile(lambda x, y: y.mul_(3).add_(x.transpose(-1, -2)))(x, y)
        assert torch.equal(y, expected)
