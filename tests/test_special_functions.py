"""Special functions as kernels, beside eager's in float64; ops in rare forms, at their edges."""

import math

import mpmath
import pytest
import torch
import torch.nn.functional as F

import minidynamo
import miniinductor.config as config
from miniinductor.lowerings.special import OF_ONE

aten = torch.ops.aten
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
# eager's kernels are right to six digits only, in float64, too
IMPRECISE = {
    "special_bessel_j0": lambda x: mpmath.besselj(0, x),
    "special_bessel_j1": lambda x: mpmath.besselj(1, x),
    "special_bessel_y0": lambda x: mpmath.bessely(0, x) if x > 0 else math.nan,
    "special_bessel_y1": lambda x: mpmath.bessely(1, x) if x > 0 else math.nan,
    "special_airy_ai": mpmath.airyai,
}
FUNCTIONS = {name: getattr(aten, name).default for name in OF_ONE} | {
    f"polygamma {n}": lambda x, n=n: torch.polygamma(n, x) for n in (0, 1, 2, 5)
}


def points():
    torch.manual_seed(0)
    return torch.cat([torch.tensor(EDGES), torch.randn(40) * 4, torch.rand(20)])


def exact_values(name, x):
    exact = FUNCTIONS[name](x.double())
    for i, v in enumerate(x.tolist() if name in IMPRECISE else ()):
        if math.isfinite(v) and v:
            exact[i] = float(IMPRECISE[name](v))
    return exact


def errors(values, exact):
    """In units of float32's last place."""
    size = exact.float().abs()
    return (values.double() - exact).abs() / (torch.nextafter(size, torch.tensor(math.inf)) - size)


def all_of(x, names):
    return {name: FUNCTIONS[name](x) for name in names}


@pytest.mark.parametrize("backend", ["cpp", "triton"])
def test_never_further_from_the_function_than_eager(backend):
    if backend == "triton":
        pytest.importorskip("triton")
    # in Triton's interpreter a few, for the sake of time
    names = list(FUNCTIONS) if backend == "cpp" else [*FUNCTIONS][4::5]
    x = points()
    with config.patch(cpu_backend=backend):
        minidynamo.reset()
        compiled = minidynamo.compile(all_of, fullgraph=True)
        results = compiled(x, names)
    for name, ours in results.items():
        eager, exact = FUNCTIONS[name](x), exact_values(name, x)
        known = exact.isfinite() & ours.isfinite() & eager.isfinite()
        ours_off, eager_off = errors(ours, exact)[known], errors(eager, exact)[known]
        assert bool(((ours_off <= 4) | (ours_off <= 2 * eager_off)).all()), name
        # infinite, or no number, where eager is; a pole of eager's trigamma is a large number
        is_other = (ours.isnan() != eager.isnan()) | (ours.isinf() & eager.isfinite())
        assert not is_other.any() or name == "polygamma 1", (name, x[is_other])


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


def test_chebyshev_polynomials():
    """Small and large orders, inside and outside of -1 to 1, where eager overflows; not a number
    as an order."""
    kinds = [f"{s}chebyshev_polynomial_{k}" for s in ("", "shifted_") for k in "tuvw"]
    functions = [getattr(torch.special, kind) for kind in kinds]
    x = torch.tensor([*EDGES, 0.3, -0.7, 1.25, -3.5]).repeat_interleave(8)
    n = torch.tensor([-3, 0, 1, 2.7, 8, 9, 30, math.nan]).repeat(len(x) // 8)
    minidynamo.reset()
    compiled = minidynamo.compile(lambda x, n: [f(x, n) for f in functions], fullgraph=True)
    for function, ours in zip(functions, compiled(x, n)):
        torch.testing.assert_close(ours, function(x, n), equal_nan=True, rtol=1e-4, atol=1e-5)


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
