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
    minidynamo.reset()
    got = minidynamo.compile(function, fullgraph=True, **how)(*args)
    return got, minidynamo.records.frames[-1].backend_record


def check(function, *args, rtol=1e-5, atol=1e-5, kernels=None, **how):
    """It gives what eager gives; its kernels' sources."""
    got, record = compiled(function, *args, **how)
    torch.testing.assert_close(got, function(*args), rtol=rtol, atol=atol, equal_nan=True)
    assert kernels in (None, len(record.kernels)), [k.name for k in record.kernels]
    return "\n".join(kernel.source for kernel in record.kernels)


# --- positions made of indices (gpu/bounds.py) ----------------------------------------------------


def test_a_reduction_of_what_all_rows_share_is_one_number():
    x, w = torch.randn(300, 70), torch.randn(70)
    text = check(lambda v, w: F.cosine_similarity(v, w, dim=-1), x, w, kernels=1)
    assert "tl.reshape(" in text
    for dtype in (torch.float32, torch.float16, torch.int32):
        y, u = (x * 9).to(dtype), (w * 9).to(dtype)
        check(lambda v, w: v.sum(-1) + w.expand(300, 70).sum(-1), y, u, rtol=1e-3)
        check(lambda v, w: (v.amax(-1), w.expand(300, 70).amax(-1)), y, u)
        check(lambda v, w: (v > 3).any(-1) | (w > 30).expand(300, 70).any(-1), y, u)
    check(lambda v: v * v.new_full((300, 70), 0.5).sum(-1, keepdim=True), x)
    index = torch.randint(3, (70,))
    check(lambda v, i: v.sum(-1) + v[:, 0][i.expand(300, 70).sum(-1)], x, index)


# --- 16 bits --------------------------------------------------------------------------------------


# --- scans ----------------------------------------------------------------------------------------


def test_a_position_that_may_be_out_of_range_is_checked():
    x = torch.randn(11, 9)

    text = check(
        lambda v: v[(torch.arange(12, dtype=torch.float32) * 0.9 - 2.5).to(torch.int64)], x
    )  # negative ones wrap
    assert "device_assert" in text and "int64" not in text


def test_integers_that_grow_beyond_32_bits_have_64():
    def grows(x):
        i = torch.arange(x.shape[0])
        j = i * 3_000_000 + 7
        return (
            i + x,
            j * j,
            j // 5 - (j % 3),
            torch.where(i > 3, i, j * 1000),
            (i.double() / 3).long(),
        )

    check(grows, torch.randn(1500))
    check(
        lambda x: (torch.arange(x.shape[0]) - 70).cumsum(0) + (torch.arange(70) > 2).sum(),
        torch.randn(70),
    )
    check(lambda x: (torch.arange(300).to(torch.int8), torch.arange(70).max() + x), torch.randn(70))


# --- reductions in other forms (gpu/split_reductions.py) ------------------------------------------
def test_reductions_over_few_elements_are_written_out():
    x = torch.randn(90, 5, 37)
    x[3, 2, 1], x[4] = torch.nan, -0.0
    for dtype in (torch.float32, torch.bfloat16, torch.int32):
        for reduce in (torch.sum, torch.amax, torch.amin):
            text = check(lambda v: reduce(v, 1) * 2, x.nan_to_num().to(dtype) * 9, kernels=1)  # noqa: B023
            assert "RBLOCK" not in text
    got, _ = compiled(lambda v: v.sum(1), x)
    assert torch.equal(torch.signbit(got), torch.signbit(x.sum(1)))
    check(lambda v: v.amax(1), x)
    check(lambda v: v.unfold(2, 3, 1).sum(-1).amax(2), x, kernels=1)
    index = torch.randint(90, (4096,))
    check(lambda t, i: F.embedding(i.view(-1, 4), t).sum(1), torch.randn(90, 20), index, kernels=1)


@pytest.mark.parametrize("shape", [(1, 300_001), (3, 70_000), (70_000, 3), (2, 300, 301)])
def test_positions_of_extremes_of_long_rows_are_found_in_chunks(shape):
    x = torch.randn(shape).round(decimals=1)
    dim = 0 if shape[0] > shape[-1] else -1
    flat = x.view(-1)
    for change in (lambda: None, lambda: flat.index_fill_(0, torch.tensor([65_000, 8]), torch.nan)):
        change()
        for function in (torch.argmax, torch.argmin):
            got, record = compiled(lambda v: function(v), x)  # noqa: B023
            assert got == function(x) and len(record.kernels) >= 2
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


# --- variances of parts (lowerings/statistics.py) -------------------------------------------------
STATISTICS = {  # shape, memory format, dimensions
    "planes": ((40, 12, 19, 21), False, (0, 2, 3)),
    "channels last": ((32, 24, 16, 14), True, (0, 2, 3)),
    "channels last, an image": ((8, 40, 32, 32), True, (2, 3)),
    "rows": ((3, 65_536), False, (1,)),
    "all": ((3, 65_536), False, None),
    "columns": ((8192, 24), False, (0,)),
    "odd": ((8191, 24), False, (0,)),
    "one of three": ((1024, 6, 70), False, (0, 2)),
}


@pytest.mark.parametrize("name", STATISTICS)
def test_variances_are_put_together_of_parts(name):
    shape, last, dims = STATISTICS[name]
    x = torch.randn(shape) * 2 + 7
    if last:
        x = x.contiguous(memory_format=torch.channels_last)
    for dtype, correction in ((torch.float32, 1), (torch.bfloat16, 0)):
        y = x.to(dtype)
        how = {"correction": correction, "keepdim": correction == 0}
        got, _ = compiled(lambda v: torch.var_mean(v, dims, **how), y)  # noqa: B023
        exact = torch.var_mean(y.double(), dims, **how)
        for a, b in zip(got, exact):
            assert a.shape == b.shape and a.dtype == dtype
            rtol = 1e-5 if dtype == torch.float32 else 2**-8
            torch.testing.assert_close(a.double(), b, rtol=rtol, atol=1e-6)


# --- running values (lowerings/scans.py) ----------------------------------------------------------
def test_a_reduction_of_everything_is_made_with_the_rows_it_depends_on():
    a, b = torch.randn(2, 700, 60)

    def divergence(x, y):
        return F.kl_div(
            F.log_softmax(x, -1), F.log_softmax(y, -1), reduction="sum", log_target=True
        )

    check(divergence, a, b, rtol=1e-4, atol=1e-2, kernels=2)
    check(lambda x: (x - x.amax(1, keepdim=True)).exp().mean(), a, rtol=1e-4, kernels=2)


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
