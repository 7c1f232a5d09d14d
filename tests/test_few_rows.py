"""Sums of a few rows are written out (speed/few_rows.py): right, and only where it was meant."""

import pytest
import torch

import minidynamo

WRITTEN_OUT = {
    "windows": (lambda x: x.unfold(-1, 3, 1).sum(-1), (8, 5, 9, 56)),
    "heads": (lambda x: x.view(4, -1).sum(0), (4, 333, 7)),
    "middle": (lambda x: torch.relu(x.exp().sum(1) - 2), (33, 2, 77)),
    "mean": (lambda x: x.mean(1, keepdim=True), (5, 3, 41, 41)),
}
STAYS = {
    "of points": lambda x: x.view(-1, 3).sum(-1),
    "of five rows": lambda x: x.view(-1, 5, 64).sum(1),
    "largest": lambda x: x.view(-1, 3, 64).amax(1),
    "centred": lambda x: x.view(-1, 3, 64) - x.view(-1, 3, 64).mean(1, keepdim=True),
    "float16": lambda x: x.half().view(-1, 3, 64).sum(1),
    "bfloat16": lambda x: x.bfloat16().view(-1, 3, 64).sum(1),
}


def notes() -> str:
    return "\n".join(map(str, minidynamo.records.frames[-1].backend_record.notes))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int32, torch.int64])
@pytest.mark.parametrize("name", WRITTEN_OUT)
def test_few_rows_are_written_out(name, dtype):
    function, shape = WRITTEN_OUT[name]
    if not dtype.is_floating_point and name in ("middle", "mean"):
        pytest.skip("of floats")
    x = (torch.randn(shape, generator=torch.Generator().manual_seed(0)) * 9).to(dtype)
    found, expected = minidynamo.compile(function)(x), function(x)
    assert found.dtype == expected.dtype
    torch.testing.assert_close(found, expected)
    if dtype in (torch.float32, torch.float64, torch.int64):
        assert "written out" in notes()


def test_special_values():
    x = torch.randn(40, 3, 77)
    x[0, 0], x[1, 1], x[2, 2], x[3] = torch.nan, torch.inf, -torch.inf, -0.0
    x[4, 0], x[4, 1] = torch.inf, -torch.inf
    found, expected = minidynamo.compile(lambda x: x.sum(1))(x), x.sum(1)
    assert "written out" in notes()
    torch.testing.assert_close(found, expected, equal_nan=True)
    assert torch.signbit(found[3]).equal(torch.signbit(expected[3]))


@pytest.mark.parametrize("name", STAYS)
def test_what_stays_a_reduction(name):
    x = torch.randn(64 * 3 * 5 * 16, generator=torch.Generator().manual_seed(0))
    found, expected = minidynamo.compile(STAYS[name])(x), STAYS[name](x)
    assert "written out" not in notes()
    near = 1e-5 if expected.dtype == torch.float32 else 2e-2
    torch.testing.assert_close(found, expected, rtol=near, atol=near)


def test_gradients_and_sizes_that_change():
    function = minidynamo.compile(lambda x: x.exp().sum(1).square().sum(), dynamic=None)
    for length in (64, 80, 3, 0):
        x, y = (torch.linspace(-1, 1, 20 * 3 * length).view(20, 3, length) for _ in range(2))
        function(x.requires_grad_()).backward()
        y.requires_grad_().exp().sum(1).square().sum().backward()
        torch.testing.assert_close(x.grad, y.grad)
