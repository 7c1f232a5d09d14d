"""Forms of Triton kernels that are chosen for speed, in Triton's interpreter: right for odd sizes,
16-bit and integer dtypes, NaN, and sizes that are symbols."""

import os

import pytest

pytest.importorskip("triton", reason="triton is not installed (it has wheels for Linux only)")
if os.environ.get("TRITON_INTERPRET") != "1":
    pytest.skip("needs TRITON_INTERPRET=1 (tests/conftest.py sets it)", allow_module_level=True)

import torch
import torch.nn.functional as F

import minidynamo
from miniinductor import config
from miniinductor.codegen.kernels import Kernel
from miniinductor.codegen.triton.build import TUNED, work_of, worth_tuning
from miniinductor.codegen.triton.tile_plan import Launch, pointwise_configs
from miniinductor.toolchain import strip_comments


@pytest.fixture(autouse=True)
def through_triton():
    torch.manual_seed(0)
    minidynamo.reset()
    with config.patch(cpu_backend="triton"), torch.no_grad():
        yield
    minidynamo.reset()


def compiled(function, *args, **how):
    """(result, record of its graph)."""
    minidynamo.reset()
    got = minidynamo.compile(function, fullgraph=True, **how)(*args)
    return got, minidynamo.records.frames[-1].backend_record


def check(function, *args, rtol=1e-5, atol=1e-5, kernels=None, **how):
    """It gives what eager gives; its kernels' sources."""
    got, record = compiled(function, *args, **how)
    torch.testing.assert_close(got, function(*args), rtol=rtol, atol=atol, equal_nan=True)
    assert kernels in (None, len(record.kernels)), [k.name for k in record.kernels]
    return "\n".join(kernel.source for kernel in record.kernels)


def test_a_position_that_may_be_out_of_range_is_checked():
    x = torch.randn(11, 9)

    text = check(
        lambda v: v[(torch.arange(12, dtype=torch.float32) * 0.9 - 2.5).to(torch.int64)], x
    )  # negative ones wrap
    assert "device_assert" in text


def test_what_is_in_range_for_sure_is_not_checked():
    """Places of a resampled image are integers where floats give the same, else clamped as eager's
    are."""
    x = torch.randn(2, 9, 112, 7)
    for size in ((24, 14), (56, 7), (48, 21), (5, 3)):
        for mode in ("nearest", "bilinear"):
            text = check(lambda v: F.interpolate(v, size, mode=mode), x)
            assert "device_assert" not in text
    reflected = lambda v: F.pad(v, (2, 2, 2, 2), mode="reflect").contiguous()  # noqa: E731
    check(reflected, x.to(memory_format=torch.channels_last))
    wide = lambda v: ((torch.arange(1500) * 3_000_000) // 2 + v).long()  # noqa: E731
    assert "floordiv" in check(wide, torch.zeros(1500, dtype=torch.int64))


def test_a_thread_reads_few_elements_that_lie_apart():
    blocks = [pointwise_configs(442_368, is_apart)[0].block("x") for is_apart in (False, True)]
    assert blocks == [512, 256]


def test_a_row_that_all_x_share_is_reduced_once():
    x, row = torch.randn(37, 100), torch.randn(100)
    text = check(lambda x, r: F.cosine_similarity(x, r[None], -1), x, row, kernels=1)
    assert "broadcast_to" not in text


def test_rows_are_added_to_by_atomics_unless_sums_must_be_the_same_each_time():
    x, index, source = torch.randn(5, 6), torch.tensor([1, 3, 1, 0]), torch.randn(4, 6)
    for dim, rows in ((0, source), (1, torch.randn(5, 4))):
        text = check(lambda v: v.index_add(dim, index, rows, alpha=2), x)
        assert "atomic_add" in text
    torch.use_deterministic_algorithms(True)
    try:
        text = check(lambda v: v.index_add(0, index, source), x)
        assert "atomic_add" not in text
    finally:
        torch.use_deterministic_algorithms(False)
    with pytest.raises((IndexError, RuntimeError)):
        compiled(lambda v: v.index_add(0, torch.tensor([1, 3, -1, 0]), source), x)


def test_a_short_reduction_is_written_out():
    a, b = torch.randn(40, 3), torch.randn(50, 3)
    a[3, 1] = torch.nan
    check(lambda a, b: ((a[:, None] - b) ** 2).sum(-1).argmin(1), a, b, kernels=1)
    check(lambda x: (x.amax(-1), x.amin(-1), x.prod(-1), (x > 0).any(-1)), a)
    check(lambda x: (x.sum((0, 2)), x.mean((0, 2))), torch.randn(2, 70, 2).bfloat16(), rtol=0.02)


def test_rows_of_symbolic_length_are_one_tile_if_they_fit():
    for function in (
        lambda x: torch.softmax(x, -1),
        lambda x: F.layer_norm(x, x.shape[-1:]),
        lambda x: x * (x - x.std(-1, keepdim=True)).amin(-1, keepdim=True),
    ):
        minidynamo.reset()
        for_all = minidynamo.compile(function, fullgraph=True, dynamic=True)
        for x in (torch.randn(5, n) for n in (49, 7, 64, 65, 200, 1000)):
            torch.testing.assert_close(for_all(x), function(x), rtol=1e-5, atol=1e-5)
        [frame] = minidynamo.records.frames
        [kernel] = frame.backend_record.kernels
        tile, loops = kernel.source.split("    else:\n")
        assert "if s1 <= RBLOCK:" in tile and tile.count("tl.load") == 1 and "r_start" in loops


def test_gathered_rows_are_reduced_by_few_threads_each():
    x, i = torch.randn(30, 70), torch.randint(-30, 30, (50,))
    pairs = check(lambda x, i: (x[i] * x[i.flip(0)]).sum(-1), x, i, kernels=1)
    one_tile = lambda x, i: (x[i].logsumexp(-1), x.amax(-1)[i] - x[i, 3], x[i].softmax(-1))  # noqa: E731
    assert "for r_start in" in pairs and "r_start" not in check(one_tile, x, i)


def test_kernels_that_compute_much_are_timed_though_they_move_little():
    for rows, count in ((1 << 10, 0), (1 << 18, 1)):
        launch = Launch({"x": rows, "r": 128}, [], {}, False, [])
        work = work_of(Kernel("", [], [], [], "", launch=launch), 1 << 20)
        assert len(worth_tuning(["a"], [work])) == count
    # one hundredth of the graph's work, which equal kernels do together
    assert worth_tuning([*"abcca"], [TUNED, TUNED, TUNED, 0, 190 * TUNED]) == {*"a"}
    assert strip_comments("a = 1  # b\n    # c\nd = 2\n", "#") == "a = 1\nd = 2\n"  # equal kernels
    assert worth_tuning([*"abcb"], [97 * TUNED, TUNED, TUNED // 2, TUNED]) == {*"ab"}


def test_tiles_also_turn_what_lies_a_few_elements_apart():
    x = torch.randn(4, 3, 40, 24).to(memory_format=torch.channels_last)
    y = torch.randn(50, 60)
    texts = [check(lambda x: x.transpose(-1, -2).double().contiguous(), x)]
    texts += [check(lambda y: y[:, ::2].t().contiguous() * 2, y)]
    texts += [check(lambda y: y[::2, ::2].contiguous() * 2, y)]
    assert ["YBLOCK:" in text for text in texts] == [True, True, False]


def test_the_larger_of_two_numbers_is_not_rounded():
    x = torch.randn(9, 7).index_fill_(0, torch.tensor(2), torch.nan).bfloat16()
    texts = [check(f, x, rtol=0) for f in (lambda x: F.relu(x), lambda x: F.relu(x) * 2)]
    assert [text.count(".to(tl.bfloat16).to") for text in texts] == [0, 1]


def test_integers_that_grow_beyond_32_bits_have_64():
    def grows(x):
        i = torch.arange(x.shape[0])
        j = i * 3_000_000 + 7
        some = torch.where(i > 3, i, j * 1000), (i.double() / 3).long()
        return i + x, j * j, j // 5 - (j % 3), *some

    check(grows, torch.randn(1500))
    check(
        lambda x: (torch.arange(x.shape[0]) - 70).cumsum(0) + (torch.arange(70) > 2).sum(),
        torch.randn(70),
    )
    check(lambda x: (torch.arange(300).to(torch.int8), torch.arange(70).max() + x), torch.randn(70))


# --- reductions in other forms (codegen/triton/reductions.py) -------------------------------------


@pytest.mark.parametrize("shape", [(1, 300_001), (3, 70_000), (70_000, 3), (2, 300, 301)])
def test_positions_of_extremes_of_long_rows(shape):
    x = torch.randn(shape).round(decimals=1)
    dim = 0 if shape[0] > shape[-1] else -1
    flat = x.view(-1)
    for change in (lambda: None, lambda: flat.index_fill_(0, torch.tensor([65_000, 8]), torch.nan)):
        change()
        for function in (torch.argmax, torch.argmin):
            got, _ = compiled(lambda v: function(v), x)  # noqa: B023
            assert got == function(x)
            got, _ = compiled(lambda v: function(v, dim), x)  # noqa: B023
            assert torch.equal(got, function(x, dim))
    got, _ = compiled(lambda v: v.max(dim), x)
    assert torch.equal(got[0].nan_to_num(99), x.max(dim)[0].nan_to_num(99))
    flat.fill_(-torch.inf)
    assert compiled(lambda v: (v * 2).argmax(), x)[0] == 0


@pytest.mark.parametrize("shape", [(3, 70_000), (1, 200_000)])
def test_softmax_of_few_long_rows(shape):
    x = torch.randn(shape) * 3
    check(lambda v: torch.softmax(v, -1), x)
    check(lambda v: torch.softmax(v, -1), x.to(torch.bfloat16), rtol=1e-2)
    check(lambda v: torch.log_softmax(v, -1), x, rtol=1e-4)
    check(lambda v: torch.exp(v - v.amax(-1, keepdim=True)).sum(-1), x, rtol=1e-4)
    for value in (torch.inf, torch.nan, -torch.inf):
        for place in (slice(0, 50_000), slice(7, 8), slice(None)):
            changed = x.clone()
            changed[-1, place] = value
            check(lambda v: torch.softmax(v, -1), changed)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("last", [False, True])
def test_bilinear_resampling_is_one_kernel(last, dtype):
    x = torch.randn(2, 20, 11, 9)
    if last:
        x = x.contiguous(memory_format=torch.channels_last)
    for how in ({"scale_factor": 2.0}, {"size": (48, 13)}, {"size": (7, 1), "align_corners": True}):
        got, record = compiled(lambda v: F.interpolate(v, mode="bilinear", **how) * 2, x.to(dtype))  # noqa: B023
        exact = F.interpolate(x.to(dtype).double(), mode="bilinear", **how) * 2
        rtol = 1e-5 if dtype == torch.float32 else 2**-6
        torch.testing.assert_close(got.double(), exact, rtol=rtol, atol=rtol)
        assert got.is_contiguous() != last or got.shape[-1] == 1
        assert len(record.kernels) == 1


@pytest.mark.parametrize("rows, kernels", [(3, 0), (100, 1)])
def test_places_in_few_long_rows_are_looked_for_by_eagers_kernel(rows, kernels):
    x = torch.randn(rows, 1 << 16)
    assert torch.equal(minidynamo.compile(lambda x: x.argmax(-1))(x), x.argmax(-1))
    assert len(minidynamo.records.frames[-1].backend_record.kernels) == kernels
