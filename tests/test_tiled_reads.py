"""What a pointwise kernel reads along an outer loop (speed/tiles.py): bits as eager's, whole lines.

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


def test_lanes_that_lie_anywhere_are_copied_in_whole_lines():
    """Their places are asked for: a division for each line, not for each element."""
    x = torch.randn(2, 32, 56, 56).to(torch.bfloat16)
    last = x.contiguous(memory_format=torch.channels_last)
    rolled = kernel_of(PROGRAMS["rolled, dense"], last)[1]
    assert rolled.count("mini::transpose_rows(") == rolled.count("mini::transpose(") == 1
    assert rolled.count("%56)") == 2  # x2's, outside of the lanes, and that of a line
    few = kernel_of(PROGRAMS["integers"], torch.randn(1, 3, 70, 90))[1]
    assert "mini::transpose_rows(" in few


def layouts(shape):
    x = torch.randn(shape)
    found = [x, x.transpose(-1, -2), x.transpose(0, 1), x[..., 1:]]
    if len(shape) == 4:
        last = x.contiguous(memory_format=torch.channels_last)
        found += [last, last[:, :, ::2]]
    return found


@pytest.mark.parametrize("shape", [(2, 3, 80, 90), (3, 70, 1, 9), (5, 1, 1, 300), (30, 40, 50)])
def test_a_roll_lies_as_eagers(shape):
    """It joins two parts: images whose channels lie last keep them there, unless nothing moves."""
    size = shape[1]
    for shifts, dims in [((3, 5), (-1, -2)), ((0,), (0,)), ((size, 2), (1, 0)), ((-1,), (-1,))]:
        inputs = layouts(shape)

        def all_of(*tensors, shifts=shifts, dims=dims):
            return [torch.roll(x, shifts, dims) for x in tensors]

        minidynamo.reset()
        found = minidynamo.compile(all_of, fullgraph=True)(*inputs)
        for one, eager in zip(found, all_of(*inputs), strict=True):
            assert one.stride() == eager.stride()
            assert torch.equal(one, eager)


@pytest.mark.parametrize("shape", [(3, 3, 112, 112), (2, 5, 20, 33), (2, 3, 400, 9)])
def test_neighbours_of_few_channels_come_from_rows_converted_before(shape):
    """Three channels of a pixel fill no vector: the lanes are those of a whole row of pixels."""
    x = torch.randn(shape).to(torch.bfloat16).contiguous(memory_format=torch.channels_last)

    def enlarged(x):
        return torch.nn.functional.interpolate(x, scale_factor=2, mode="nearest") * 2 + 1

    assert torch.equal(kernel_of(enlarged, x)[0], enlarged(x))


@pytest.mark.parametrize("dtype", DTYPES)
def test_small_tiles_and_lanes_that_fill_no_vector(dtype):
    """Blocks of 8, overlapping ones, and lanes of which the last are computed twice."""
    generator = torch.Generator().manual_seed(1)
    special = torch.tensor([float("nan"), float("inf"), -float("inf"), -0.0, 0.0]).to(dtype)

    def function(x, scale):
        turned = x.transpose(-1, -2)
        return torch.relu(turned * scale).contiguous(), turned.contiguous() + scale

    for rows, lanes in [
        (8, 16),
        (9, 17),
        (12, 64),
        (14, 33),
        (37, 41),
        (70, 8),
        (15, 70),
        (23, 19),
    ]:
        x = torch.randn(3, 2, lanes, rows, generator=generator).to(dtype)
        x.view(-1)[:5] = special
        x.view(-1)[-5:] = special
        scale = torch.tensor([-1.5, 0.75]).to(dtype).reshape(1, 2, 1, 1)
        minidynamo.reset()
        found = minidynamo.compile(function, fullgraph=True, dynamic=False)(x, scale)
        for one, eager in zip(found, function(x, scale), strict=True):
            assert torch.equal(one.isnan(), eager.isnan()), (rows, lanes)
            signs = torch.signbit(one) == torch.signbit(eager)
            assert (signs | eager.isnan()).all(), (rows, lanes)
            assert torch.equal(one.nan_to_num(), eager.nan_to_num()), (rows, lanes)


def test_in_place_no_lane_is_computed_twice():
    for lanes in (41, 64, 70):
        x, y = torch.randn(4, lanes, 37), torch.randn(4, 37, lanes)
        expected = y.clone().mul_(3).add_(x.transpose(-1, -2))
        minidynamo.reset()
        minidynamo.compile(lambda x, y: y.mul_(3).add_(x.transpose(-1, -2)))(x, y)
        assert torch.equal(y, expected)


@pytest.mark.parametrize("rows", [9, 37])
def test_a_result_that_takes_the_memory_of_a_product_is_computed_once(rows):
    """Lanes that are computed twice read what they have written, where both share memory."""

    def f(x, w):
        product, turned = x @ w, (w.t() @ x.t()).t()
        return torch.relu(product * 1.5 + turned.abs()) @ w.t()

    for columns in (8, 13, 27, 40, 59):
        x, w = torch.randn(rows, rows), torch.randn(rows, columns)
        compiled = minidynamo.compile(f, dynamic=False)
        torch.testing.assert_close(compiled(x, w), f(x, w), rtol=1e-3, atol=1e-3)
        minidynamo.reset()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_transposed_copies_of_16_bits_stay_16_bits(dtype):
    """Nothing is converted, and each element comes from the tile; every bit pattern there is."""
    bits = torch.arange(-(1 << 15), 1 << 15, dtype=torch.int32).to(torch.int16)
    x = bits.reshape(4, 64, 256).view(dtype)
    found, source = kernel_of(lambda x: x.transpose(1, 2).contiguous(), x)
    assert torch.equal(found.view(torch.int16), x.transpose(1, 2).contiguous().view(torch.int16))
    assert "= tile0[" in source and "= in0[" not in source


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_gathered_row_is_as_long_as_the_longest_read_of_it(dtype):
    """Its first column, then the whole of it: both begin at the same place."""

    def doubled_column(x):
        y = x * 1
        y.transpose(0, -1)[0].mul_(2)
        return y.add_(1)

    x = torch.randn(540 * 40).to(dtype).as_strided((40, 1, 16, 8), (540, 180, 10, 1))
    minidynamo.reset()
    assert torch.equal(minidynamo.compile(doubled_column)(x), doubled_column(x))
