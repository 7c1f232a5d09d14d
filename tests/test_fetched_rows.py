"""Rows that are looked up in a large table are fetched some rows ahead (speed/fetched_rows.py)."""

import pytest
import torch

import minidynamo

FETCH = "__builtin_prefetch(in"
PROGRAMS = {
    "pairs": lambda t, i: (t[i] * t[i.flip(0)]).sum(-1),
    "softmax": lambda t, i: torch.softmax(t[i], -1),
    "largest": lambda t, i: t[i].amax(-1),
    "of a part": lambda t, i: (t[i[3:]] * t[i[:-3]]).sum(-1),
    "from the end": lambda t, i: (t[i] * t.flip(0)[i]).sum(-1),
}


def sources() -> str:
    kernels = minidynamo.records.frames[-1].backend_record.kernels
    return "\n".join(kernel.source for kernel in kernels)


def table(dtype: torch.dtype, rows: int = 9001, length: int = 64) -> torch.Tensor:
    return torch.randn(rows, length, generator=torch.Generator().manual_seed(0)).to(dtype)


def numbers(count: int, rows: int = 9001) -> torch.Tensor:
    found = torch.randint(-rows, rows, (count,), generator=torch.Generator().manual_seed(1))
    found[-1], found[0] = rows - 1, -rows
    return found


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", PROGRAMS)
def test_rows_are_those_of_eager(name, dtype):
    function, t, i = PROGRAMS[name], table(dtype), numbers(1003)
    found = minidynamo.compile(function)(t, i)
    assert FETCH in sources()
    near = {torch.float32: 1e-5, torch.bfloat16: 2e-2, torch.float16: 2e-3}[dtype]
    torch.testing.assert_close(found, function(t, i), rtol=near, atol=near)


def test_numbers_of_32_bits_and_embeddings():
    t, i = table(torch.float32), numbers(517).abs().int()

    def function(t, i):
        return torch.nn.functional.embedding(i.clamp(max=9000), t).sum(-1)

    torch.testing.assert_close(minidynamo.compile(function)(t, i), function(t, i))


def test_a_number_that_is_out_of_range_raises_as_before():
    t, i = table(torch.float32), numbers(1003)
    i[700] = 1 << 60
    with pytest.raises(IndexError):
        minidynamo.compile(PROGRAMS["pairs"])(t, i)


@pytest.mark.parametrize("count", [5, 6, 1003])
def test_counts_that_change(count):
    function = minidynamo.compile(PROGRAMS["pairs"], dynamic=True)
    t = table(torch.float32)
    for size in (count, count + 1, 1, 0):
        i = numbers(max(size, 1))[:size]
        torch.testing.assert_close(function(t, i), PROGRAMS["pairs"](t, i), rtol=1e-5, atol=1e-4)


def test_what_the_cache_holds_is_not_fetched():
    small = table(torch.float32, 100)
    minidynamo.compile(PROGRAMS["pairs"])(small, numbers(1003, 100))
    assert FETCH not in sources()


def test_rows_that_are_copied_are_not_fetched():
    minidynamo.compile(lambda t, i: t[i] * 2)(table(torch.float32), numbers(1003))
    assert FETCH not in sources()
