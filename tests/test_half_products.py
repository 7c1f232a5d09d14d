"""Products of float16 matrices on a CPU, computed in float32: numbers, special values, and which
products stay as they are.  Each is compared with eager and with float64."""

import contextlib
import math

import pytest
import torch

import minidynamo
from benchmarks.error_bound import assert_near
from miniinductor.passes import half_products
from test_graph_passes import check, compiled_of

WIDENED = "products of halves in float32"
INF, NAN = math.inf, math.nan


@pytest.fixture(autouse=True)
def without_half_instructions(monkeypatch):
    torch.manual_seed(0)
    monkeypatch.setattr(half_products, "lacks_half_instructions", lambda: True)


def halves(*shape: int) -> torch.Tensor:
    return torch.randn(shape).half()


def plain(q, k, v):
    return torch.softmax(q @ k.transpose(-1, -2) * 0.125, -1) @ v


def causal(q, k, v):
    scores = q @ k.transpose(-1, -2) / 8
    allowed = torch.ones(scores.shape[-2:], dtype=torch.bool).tril()
    return torch.softmax(scores.masked_fill(~allowed, -INF), -1) @ v


def capped(q, k, v):
    scores = torch.tanh(q @ k.transpose(-1, -2) / 50) * 50
    return torch.softmax(scores.float(), -1).to(q.dtype) @ v


def near_eager(function, *inputs):
    """The record, after ours gave what eager gives."""
    with torch.no_grad():
        compiled = compiled_of(function, *inputs)
        (got,), want = compiled(*inputs), function(*inputs)
    assert (got.dtype, got.stride()) == (want.dtype, want.stride())
    assert_near(got, want)
    return compiled.record


@pytest.mark.parametrize("attention", [plain, causal, capped])
@pytest.mark.parametrize("shape", [(1, 2, 128, 64), (2, 3, 129, 40), (1, 5, 101, 33)])
def test_attention_by_hand(attention, shape):
    record = near_eager(attention, *[halves(*shape) for _ in range(3)])
    assert record.notes_of(f"2 {WIDENED}")


@pytest.mark.parametrize("special", [INF, -INF, NAN, 65504.0, 6e-8])
@pytest.mark.parametrize("place", range(3))
def test_special_values(special, place):
    tensors = [halves(1, 2, 129, 40) for _ in range(3)]
    tensors[place][0, 1, 7, 2] = special
    assert near_eager(plain, *tensors).notes_of(WIDENED)


@pytest.mark.parametrize("sign", [1, -1])
def test_what_overflows_in_float16_is_infinite(sign):
    a, b = torch.full((64, 100), 300.0).half(), torch.full((100, 70), sign * 300.0).half()
    a[5] = 1
    a[6, 50:] = -300  # sums that are far too large on the way, and 0 in the end
    with torch.no_grad():
        compiled = compiled_of(lambda a, b: a @ b, a, b)
        (got,) = compiled(a, b)
    assert compiled.record.notes_of(WIDENED)
    assert torch.equal(got, a @ b)
    assert (got[0] == sign * INF).all() and (got[6] == 0).all() and got[5].isfinite().all()


@pytest.mark.parametrize("by_rows", [True, False])
def test_a_bias_is_added_before_the_one_rounding(by_rows):
    """70016 - 10000 is a float16 number, though 70016 is none."""
    a, b = torch.full((64, 64), 64.0).half(), torch.full((64, 65), 17.1).half()
    b = b if by_rows else b.t().contiguous().t()
    bias = torch.full((65,), -10000.0).half()
    with torch.no_grad():
        compiled = compiled_of(lambda c, a, b: torch.addmm(c, a, b), bias, a, b)
        (got,) = compiled(bias, a, b)
    assert compiled.record.notes_of(WIDENED) and got.isfinite().all()
    assert_near(got, torch.addmm(bias, a, b))


@pytest.mark.parametrize("rows", [1 << 7, 131])
@pytest.mark.parametrize("bias", [True, False])
def test_layers_of_a_model(rows, bias):
    layer = torch.nn.Linear(65, 72, bias=bias).half()
    assert check(layer, halves(2, rows, 65)).notes_of(f"1 {WIDENED}")


def test_a_matrix_times_itself_is_cast_once():
    with torch.no_grad():
        compiled = compiled_of(lambda a: a @ a @ a, halves(80, 80))
    assert compiled.record.notes_of(f"2 {WIDENED}")
    near_eager(lambda a: a @ a, halves(80, 80))


@pytest.mark.parametrize(
    "a, b",
    [
        ((8, 16), (16, 8)),  # too small
        ((1, 1024), (1024, 1024)),  # one multiplication for each number
        ((96, 1, 64), (96, 64, 512)),
        ((0, 256), (256, 1024)),
        ((256, 0), (0, 1024)),
    ],
)
def test_products_that_stay_as_they_are(a, b):
    assert not near_eager(lambda a, b: a @ b, halves(*a), halves(*b)).notes_of(WIDENED)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int32])
def test_other_types_stay_as_they_are(dtype):
    a, b = (halves(128, 128).mul(8).to(dtype) for _ in range(2))
    assert not near_eager(lambda a, b: a @ b, a, b).notes_of(WIDENED)


def test_processors_that_multiply_halves(monkeypatch):
    monkeypatch.setattr(half_products, "lacks_half_instructions", lambda: False)
    assert not near_eager(lambda a, b: a @ b, halves(128, 128), halves(128, 128)).notes_of(WIDENED)


@contextlib.contextmanager
def allowed(precision: str):
    """Float32 products may be computed in less."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(precision)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


@pytest.mark.parametrize("precision", ["high", "medium"])
def test_float32_of_lower_precision_is_not_used(precision, monkeypatch):
    """Also where a program allows it after it was compiled."""
    a, b = halves(128, 128), halves(128, 128)
    with torch.no_grad():
        compiled = compiled_of(lambda a, b: a @ b, a, b)
        (exact,) = compiled(a, b)
        assert compiled.record.notes_of(WIDENED) and half_products.products_are_exact()
        with allowed(precision):
            assert not half_products.products_are_exact()
            (got,), want = compiled(a, b), a @ b
    assert torch.equal(got, want)
    assert_near(exact, want)


@pytest.mark.parametrize("dynamic", [True, False])
def test_sizes_that_change_and_gradients(dynamic):
    compiled = minidynamo.compile(plain, dynamic=dynamic)
    for length in (96, 129, 150):
        tensors = [halves(1, 2, length, 40).requires_grad_() for _ in range(3)]
        twins = [t.detach().clone().requires_grad_() for t in tensors]
        got, want = compiled(*tensors), plain(*twins)
        assert_near(got, want)
        got.sum().backward(), want.sum().backward()
        for ours, eager in zip(tensors, twins):
            assert_near(ours.grad, eager.grad)
