"""Special functions, which are eager's kernels; ops in rare forms, at their edges."""

import math

import pytest
import torch
import torch.nn.functional as F

import minidynamo

EDGES = [
    0.0,
    -0.0,
    1,
    -1,
    2,
    -2,
    0.5,
    8,
    -8,
    5,
    -5,
    1e-30,
    100,
    -100,
    math.inf,
    -math.inf,
    math.nan,
]


def points():
    torch.manual_seed(0)
    return torch.cat([torch.tensor(EDGES), torch.randn(40) * 4, torch.rand(20)])


SPECIAL = [
    "i0",
    "i1",
    "bessel_j1",
    "airy_ai",
    "erfcx",
    "ndtri",
    "digamma",
    "chebyshev_polynomial_t",
]


@pytest.mark.parametrize("name", SPECIAL)
def test_special_functions_are_eagers_kernels(name):
    """The graph has the kernel's result, to the bit, and its record says so."""
    function, x = getattr(torch.special, name), points()
    args = (x, torch.tensor(5)) if name.startswith("chebyshev") else (x,)
    minidynamo.reset()
    result = minidynamo.compile(lambda *args: function(*args) * 2, fullgraph=True)(*args)
    [frame] = minidynamo.records.frames
    assert [name in fallback.op for fallback in frame.backend_record.fallbacks] == [True]
    torch.testing.assert_close(result, function(*args) * 2, equal_nan=True, rtol=0, atol=0)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.bool, torch.float64], ids=str)
def test_other_dtypes_empty_and_not_contiguous(dtype):
    x = (points()[17:].reshape(6, 10) * 2).to(dtype).t()[::2]

    def program(x, nothing):
        return [f(v) for f in (torch.i0, torch.digamma) for v in (x, nothing, x[0, 0])]

    minidynamo.reset()
    ours = minidynamo.compile(program, fullgraph=True)(x, x[:0])
    for a, b in zip(ours, program(x, x[:0])):
        torch.testing.assert_close(a, b, equal_nan=True)
        assert a.stride() == b.stride()


def rare(x, index, grid, image):
    pooled, places = F.max_pool2d(image, 2, return_indices=True)
    pieces = torch.unsafe_split(x, 2)
    scalar = x[0, 0]
    return [
        *torch.frexp(x),
        torch.angle(x),
        x.put(index, x[0, :3]),
        x.put(index[:0], x[0, :0]),
        x.take(index[:0]),
        scalar.index_add(0, index[0] * 0, x[0, 1]),
        scalar.index_fill(0, index[0] * 0, 2.0),
        torch.dot(x[0], x[1]),
        torch.mv(x, x[0]),
        F.max_unpool2d(pooled, places, 2),
        F.unfold(image[:0], 2),
        torch.stack([x[:0], x[:0]]),
        F.avg_pool3d(image[:0, None], 2),
        F.grid_sample(image, grid, padding_mode="zeros", align_corners=True),
        F.grid_sample(image, grid, "nearest", "reflection", align_corners=False),
        torch.tril_indices(4, 5, 1),
        [piece * 2 for piece in pieces],
        pieces[0],
    ]


def test_rare_forms():
    torch.manual_seed(0)
    x = torch.randn(4, 5) * 100
    x[0, 0], x[0, 1], x[1, 2], x[1, 3] = -0.0, 1e-45, 1.0, 8388607.5
    index, image, grid = torch.tensor([3, 7, 1]), torch.randn(2, 3, 4, 6), torch.randn(2, 3, 3, 2)
    grid[0, 0, 0, 0], grid[0, 1, 1, 1], grid[1, 0, 2, 0] = math.nan, math.inf, 3e38
    minidynamo.reset()
    compiled = minidynamo.compile(rare, fullgraph=True)
    torch.testing.assert_close(
        compiled(x, index, grid, image), rare(x, index, grid, image), equal_nan=True
    )
    special = torch.tensor([math.inf, -math.inf, math.nan, 0.0, -0.0])
    edges = minidynamo.compile(lambda x: (*torch.frexp(x), torch.angle(x)), fullgraph=True)
    expected = (*torch.frexp(special), torch.angle(special))
    for a, b in zip(edges(special), expected):
        torch.testing.assert_close(a, b, equal_nan=True, rtol=0, atol=0)
        assert torch.equal(a.signbit(), b.signbit()) or a.isnan().any()
    assert not compiled(x, index, grid, image)[-1]._is_view()


def test_average_pools_that_eager_refuses_in_bfloat16():
    x = torch.randn(1, 2, 4, 6, 8, dtype=torch.bfloat16)
    minidynamo.reset()
    compiled = minidynamo.compile(lambda x: F.adaptive_avg_pool3d(x, (2, 3, 4)), fullgraph=True)
    exact, eager = (F.adaptive_avg_pool3d(v, (2, 3, 4)).double() for v in (x.double(), x))
    assert (compiled(x).double() - exact).norm() <= (eager - exact).norm()
