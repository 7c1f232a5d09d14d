"""float16 in blocks that stay in registers (speed/half_blocks.py): eager's results, all lengths."""

import pytest
import torch

import minidynamo

LENGTHS = [*range(1, 71), 95, 127, 128, 129, 191, 500, 1000, 1823, 4097]
SPECIAL = [float("nan"), float("inf"), -float("inf"), -0.0, 0.0, 65504.0, 6e-8, -6e-8]

PROGRAMS = {
    "rounded twice": lambda x, y: (x * y + x) * y,
    "sum of products": lambda x, y: (x * y[:, :1]).sum(-1),
    "extremes": lambda x, y: ((x + y).amax(-1), (x * y).amin(-1)),
    "softmax": lambda x, y: torch.softmax(x + y, -1),
    "product": lambda x, y: (x * 0.01 + 1).prod(-1, dtype=torch.float32),
    "wide": lambda x, y: (x.float() * 2 + y).sum(-1),
    "flags": lambda x, y: (x > y).any(-1),
    "places": lambda x, y: (x + y).argmax(-1),
}


def rows(length, special):
    generator = torch.Generator().manual_seed(length)
    x, y = (torch.randn(5, length, generator=generator).half() for _ in range(2))
    if special:
        x.view(-1)[: len(SPECIAL)] = torch.tensor(SPECIAL).half()[: x.numel()]
    return x, y


SUMS = ("sum of products", "softmax", "product", "wide")  # their order differs


def same(found, expected):
    """Bit by bit, but for which NaN it is."""
    if isinstance(expected, tuple):
        return len(found) == len(expected) and all(map(same, found, expected))
    both = (found, expected)
    nan, signs = (torch.equal(f(both[0]), f(both[1])) for f in (torch.isnan, torch.signbit))
    return (
        found.dtype == expected.dtype
        and nan
        and (signs or bool(expected.isnan().any()))
        and (torch.equal(*[t.nan_to_num() if t.is_floating_point() else t for t in both]))
    )


def check(name, compiled, length):
    for special in (False, True):
        inputs = rows(length, special)
        found = compiled(*inputs)
        if name in SUMS:
            expected = PROGRAMS[name](*inputs)
            assert torch.allclose(found, expected, 2e-2, 1e-2, equal_nan=True), (length, special)
        else:
            assert same(found, PROGRAMS[name](*inputs)), (length, special)


@pytest.mark.parametrize("name", PROGRAMS)
def test_any_length_in_one_kernel(name):
    compiled = minidynamo.compile(PROGRAMS[name], dynamic=True)
    for length in LENGTHS:
        check(name, compiled, length)


@pytest.mark.parametrize("name", PROGRAMS)
def test_known_lengths(name):
    for length in (1, 31, 63, 64, 65, 100, 130, 1823, 4097):
        minidynamo.reset()
        check(name, minidynamo.compile(PROGRAMS[name], dynamic=False), length)


def kernel_of(function, *inputs):
    minidynamo.reset()
    minidynamo.compile(function)(*inputs)
    [kernel] = minidynamo.records.frames[-1].backend_record.kernels
    return str(kernel.source)


def test_blocks_have_a_length_that_the_compiler_knows():
    x = torch.randn(8, 1000).half()
    source = kernel_of(lambda x: (x * 3).sum(-1), x)
    assert "for (int64_t r0_run = 0; r0_run < 960; r0_run += 64)" in source
    assert "for (int64_t k = 0; k < 64; k++)" in source
    assert "mini::round_to_float16(step0, step0, 64);" in source
    assert "mini::round_to_float16(step0, step0, 40);" in source  # what is left of 1000


@pytest.mark.parametrize("length", [*range(17, 71, 4), 18, 31, 32, 33, 36, 48, 63, 64, 100, 196])
def test_what_fills_no_vector(length):
    """A known length: lanes without an element add nothing, whatever they would compute of zeros
    (here 0/0, log(0), and extremes of which zero would be one), and write nothing."""

    def f(x, y, z):
        return (
            ((x * y) / x).float().sum(-1),
            (x * 0 - 3).amax(-1),
            (x.abs() + 1).amin(-1),
            (y + 2).log().sum(-1, dtype=torch.float32),
            (x.float() * 0.01 + 2).prod(-1),
            torch.softmax(x * y, -1),
            (z + x.mean((0, 1), keepdim=True), z + 1),
        )

    generator = torch.Generator().manual_seed(length)
    x, y = (torch.rand(3, 5, length, generator=generator).half() + 0.5 for _ in range(2))
    z = torch.rand(3, 5, length + 3, generator=generator).half()[..., 1:-2]
    minidynamo.reset()
    found = minidynamo.compile(f)(x, y, z)
    for one, expected in zip(found[:-1], f(x, y, z)[:-1], strict=True):
        torch.testing.assert_close(one, expected)
    torch.testing.assert_close(found[-1], f(x, y, z)[-1])


def test_what_is_left_is_one_loop_of_whole_vectors():
    minidynamo.reset()
    minidynamo.compile(lambda x: x.square().mean(-1))(torch.randn(64, 37).half())
    [kernel] = minidynamo.records.frames[-1].backend_record.kernels
    assert "k < 48" in kernel.source and "< 37 ?" in kernel.source and "rest0" not in kernel.source


def test_lanes_that_read_memory_are_counted():
    """Beyond the last element of a row of floats memory may end: such lanes do not run."""
    minidynamo.reset()
    f = lambda x, y: (x + y).sum(-1)  # noqa: E731
    x, y = torch.randn(64, 37).half(), torch.randn(64, 37)
    torch.testing.assert_close(minidynamo.compile(f)(x, y), f(x, y))
    [kernel] = minidynamo.records.frames[-1].backend_record.kernels
    assert "< 37 ?" not in kernel.source
