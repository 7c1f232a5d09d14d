"""Forms of C++ kernels that the census of kernels asked for: odd sizes, types, dynamic sizes, one
thread and several.  Many programs are one graph here, since compiling is what costs time."""

import contextlib
import re

import pytest
import torch

import minidynamo

HALVES = (torch.bfloat16, torch.float16)


@contextlib.contextmanager
def threads(number):
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def is_close(found, expected, exact):
    """Is it at most a little further from the same in float64 than eager's?"""
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    if not found.is_floating_point():
        return torch.equal(found, expected)
    both = (found.double(), expected.double())
    if not all(torch.equal(both[0].isnan(), other.isnan()) for other in (both[1], exact)):
        return False
    ours, theirs = ((value - exact).nan_to_num().norm() for value in both)
    return bool(ours <= 2 * theirs + 1e-5 * exact.nan_to_num().norm() + 1e-6)


def check(function, inputs, dynamic=False, twice=()):
    """Against eager, with one thread and with three; twice: inputs of a second call."""
    for number in (1, 3):
        with threads(number):
            minidynamo.reset()
            compiled = minidynamo.compile(function, dynamic=dynamic or None)
            for arguments in filter(None, (inputs, twice)):
                wide = [t.double() if t.is_floating_point() else t for t in arguments]
                results = zip(compiled(*arguments), function(*arguments), function(*wide))
                for place, (found, expected, exact) in enumerate(results):
                    assert is_close(found, expected, exact), (number, place)
    return minidynamo.records.frames[-1].backend_record


def sources(record):
    return "\n".join(kernel.source for kernel in record.kernels)


# --- reductions whose lanes run along an outer loop -----------------------------------------------
def short_axes(a, b, table, index):
    difference = a[:, None] - b[None]
    bags = table[index.view(-1, 5)]
    return (
        difference.square().sum(-1),
        difference.abs().amax(-1),
        (difference * 2).argmax(-1),
        torch.exp(-difference.square().sum(-1)).sum(-1),
        bags.sum(1),
        bags.float().amax(1) + 1,
    )


@pytest.mark.parametrize("dtype", [torch.float32, *HALVES])
def test_a_short_axis_is_reduced_by_lanes_along_a_long_one(dtype):
    torch.manual_seed(0)
    a, b, table = torch.randn(67, 7), torch.randn(131, 7), torch.randn(90, 71)
    inputs = [a.to(dtype), b.to(dtype), table.to(dtype), torch.randint(-90, 90, (65 * 5,))]
    assert "turned0" in sources(check(short_axes, inputs))


def test_an_index_out_of_range_is_told_by_lanes_along_columns():
    table, index = torch.randn(90, 71), torch.randint(90, (65 * 5,))
    compiled = minidynamo.compile(lambda t, i: t[i.view(-1, 5)].sum(1))
    compiled(table, index)
    index[77] = 90
    with pytest.raises(IndexError):
        compiled(table, index)


def test_a_short_axis_of_dynamic_sizes():
    torch.manual_seed(0)
    inputs, twice = (
        [torch.randn(n, 5), torch.randn(m, 5), torch.randn(40, 70), torch.randint(40, (n * 5,))]
        for n, m in ((66, 132), (80, 45))
    )
    check(short_axes, inputs, dynamic=True, twice=twice)


def test_threads_share_rows_whose_number_is_a_sum():
    torch.manual_seed(0)
    padded = lambda c: (torch.nn.functional.pad(c, (1, 2, 1, 0)).sum(0),)  # noqa: E731
    check(padded, [torch.randn(130, 257)], dynamic=True, twice=[torch.randn(97, 140)])


# --- 16 bits --------------------------------------------------------------------------------------
def of_halves(x, row):
    return (
        torch.softmax(x, -1),
        (x * row).sum(-1),
        (x - row).abs().amax(-1),
        x.argmax(-1),
        (x * 2).sum(0),
        x.amax(0),
        (x - x.mean(0)) * row,
        torch.var_mean(x, -1)[0],
        torch.cat([x + 1, torch.relu(x)], 0),
        torch.where(x > row, -x, x.clamp(-0.3, 0.7)),
        x.cumsum(1),
    )


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("dynamic", [False, True])
def test_halves_under_reductions(dtype, dynamic):
    torch.manual_seed(0)
    x, row = torch.randn(53, 701), torch.randn(701)
    x[3, 5], x[4, 6], x[5, 7] = torch.nan, torch.inf, -0.0
    other = [torch.randn(41, 1031).to(dtype), torch.randn(1031).to(dtype)]
    check(of_halves, [x.to(dtype), row.to(dtype)], dynamic, other if dynamic else ())


def test_every_float16_is_read_and_rounded_to():
    every = torch.arange(-(2**15), 2**15).to(torch.int16).view(torch.float16)
    near = every.float() * torch.tensor([1, 1 + 2**-11, 1 - 2**-12, 1 + 2**-11 + 2**-20])[:, None]
    edges = torch.tensor([65519.99, 65520.0, 1e38, 2e-8, 3e-8, 2.0**-24, -(2.0**-25), -0.0])

    def both(every, near, edges):
        rounded = [t.half().float() for t in (near, edges)]
        return every.float(), every.float().flip(0) + 1, *rounded, *[1 / t for t in rounded]

    for found, expected in zip(
        minidynamo.compile(both)(every, near, edges), both(every, near, edges)
    ):
        assert torch.equal(found.nan_to_num(nan=7.0), expected.nan_to_num(nan=7.0))


def test_what_16_bits_hold_is_not_rounded():
    record = check(lambda x: (torch.relu(x.abs()).amax(-1),), [torch.randn(9, 300).bfloat16()])
    assert "round_bfloat16" not in sources(record)


@pytest.mark.parametrize("dtype", HALVES)
def test_whole_numbers_and_bytes_are_not_rounded(dtype):
    """Every element of 16 bits, rounded to an integer, and every byte."""
    x = torch.arange(-(2**15), 2**15).to(torch.int16).view(dtype)
    small, large = torch.arange(-128, 128).to(torch.int8), torch.arange(256).to(torch.uint8)

    def whole(x, small, large):
        found = (x.round(), x.floor(), x.ceil(), x.trunc())
        return (*[y.neg() for y in found], -small.to(dtype), large.to(dtype).abs())

    record = check(whole, [x, small, large])
    assert "round_bfloat16" not in sources(record) and "round_float16" not in sources(record)
    for one, eager in zip(minidynamo.compile(whole)(x, small, large), whole(x, small, large)):
        assert torch.equal(one.nan_to_num(7), eager.nan_to_num(7))


def test_sums_of_what_was_rounded_and_what_was_not():
    x, y = torch.randn(2, 40, 333).half()

    def program(x, y):
        product = x * y + 1
        squares = (product * product).float()
        truths = (product * 2).clamp(-1, 1).all(-1), ((product * y) > 0).any(-1)
        extremes = (squares + x).amax(-1), product.argmax(-1), (product * 3).argmin(0)
        return product, squares.sum(-1), squares.half(), *truths, *extremes

    check(program, [x, y])
    check(program, [x, y], dynamic=True, twice=[t[:, :150].contiguous() for t in (x, y)])


@pytest.mark.parametrize("width", [1, 2, 3, 7, 15, 33, 37, 47, 130, 196, 255, 300, 1000])
def test_rows_of_float16_of_any_length_stay_in_their_memory(width):
    """What is converted by whole vectors lies in arrays; of memory no element more is written."""
    around = torch.full((6, width + 40), 7.0).half()
    x, y = torch.randn(2, 6, width).half()
    x[2, width // 2], x[3, -1] = torch.nan, torch.inf
    rows = lambda x, y: (x.amax(-1), x.amin(0), (x + y) * 2, x.float().sum(-1))  # noqa: E731
    check(rows, [x, y])
    inside = around.as_strided((6, width), (width + 40, 1), 20)

    def written(inside, x):
        inside.copy_(x * 2 + 1)
        return inside.sum()

    minidynamo.compile(written)(inside, x)
    assert torch.equal(inside.nan_to_num(), (x * 2 + 1).nan_to_num())
    inside.fill_(7)
    assert torch.equal(around, torch.full_like(around, 7))


# --- joined rows ----------------------------------------------------------------------------------
@pytest.mark.parametrize("dtype", (torch.float32, *HALVES, torch.float64))
def test_joined_rows_are_reduced(dtype):
    x, y, z = torch.randn(9, 70).to(dtype), torch.randn(9, 130).to(dtype), torch.randn(9, 33)
    y[2, 100], x[3, 5] = torch.nan, torch.inf

    def program(x, y, z):
        one, other = torch.cat([x, y], -1), torch.cat([y, z.to(y.dtype), x * 2], -1)
        padded = torch.nn.functional.pad(x, (20, 30), value=1.5)
        return (
            one.sum(-1),
            one.amax(-1),
            torch.softmax(other, -1),
            other.argmax(-1),
            torch.nn.functional.layer_norm(one, (200,)),
            (padded * padded).mean(-1),
            (other > 0).any(-1),
        )

    check(program, [x, y, z])
    check(program, [x, y, z], dynamic=True, twice=[t.clone() for t in (x, y, z)])


@pytest.mark.parametrize("dtype", (torch.float32, *HALVES))
def test_joined_rows_that_lie_across_are_read_within_their_tensors(dtype):
    x, y = torch.randn(70, 400).to(dtype), torch.randn(60, 400).to(dtype)

    def program(x, y):
        joined = torch.cat([x.t(), y.t()], -1)
        return joined.sum(-1), torch.softmax(joined, -1), torch.cat([y.t(), x.t()], -1).amax(-1)

    wide = [torch.cat([torch.full((90, 400), torch.nan).to(dtype), t]) for t in (x, y)]
    check(program, [t[90:] for t in wide])
    check(program, [torch.cat([t, t * torch.nan])[: len(t)] for t in (x, y)])


def test_long_joined_rows_are_added_up_in_doubles():
    x, y = torch.rand(3, 7000), torch.rand(3, 1001)
    record = check(lambda x, y: (torch.cat([x, y], -1).sum(-1),), [x, y])
    assert "double acc0" in sources(record)


# --- sums that are wanted of some rows only -------------------------------------------------------
def wanted_sums(x, wanted):
    rows, columns = x.sum(-1) > 0, x.sum(0) > 0
    return (
        torch.where(rows[:, None], x * x, 0.0).sum(-1),
        torch.where((rows & wanted)[:, None], x + 1, 0.0).sum(-1),
        torch.where(columns, x + 2, 0.0).sum(0),
    )


def sums_of_all(x, wanted):
    rows = x.sum(-1) > 0
    return (
        torch.where(rows[:, None], x * x, 0.0).sum(-1),
        torch.where(rows[:, None], x, 1.0).sum(-1),
        torch.where(x > 0, x, 0.0).sum(-1),
        torch.where(wanted[:, None], x, -1.0).amax(-1),
    )


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize(
    "function, branches", [(wanted_sums, {"is_wanted", "tmp"}), (sums_of_all, set())]
)
def test_sums_that_no_row_wants_are_left_out(function, branches, dynamic):
    """Not where another sum of the same loop is wanted of each row."""
    x, other = torch.randn(67, 300), torch.randn(235, 431)
    record = check(function, (x, x[:, 0] > 1), dynamic, (other, other[:, 0] > 1))
    heads = re.findall(r"^ *if \((is_wanted|tmp)", sources(record), re.MULTILINE)
    assert set(heads) == branches


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("axis", [0, 1])
def test_a_loop_that_stores_is_not_left_out(axis, dynamic):
    """One that also adds up what no row wants."""

    def function(x):
        wanted = x.sum(axis, keepdim=True) > 1e9
        scaled = torch.where(wanted, x.square(), 0.0).sum(axis)
        return torch.softmax(x, axis), x - x.std(axis, keepdim=True), x * 2 + 1, scaled

    check(function, (torch.randn(301, 277),), dynamic, (torch.randn(130, 431),))


def test_threads_share_each_of_several_loops_over_a_symbolic_size():
    """Two stages over few, long rows, whose parts are counted when the kernel runs."""
    record = check(lambda x: (torch.std(x),), (torch.randn(300, 2500),), dynamic=True)
    assert not record.fallbacks and sources(record).count("const int64_t rows") >= 2
