"""Double precision in vectors (speed/doubles.h, inverses.h): errors below 3 ulp, special values as
eager's; large angles are computed again.  Every function is in a vector loop."""

import math

import numpy
import pytest
import torch

import minidynamo

LIMITS = {  # name -> the largest argument that numbers are drawn from
    **{"exp": 745.0, "exp2": 1080.0, "expm1": 700.0, "log": 1e300, "log2": 1e300, "log1p": 1e300},
    **{"sin": 1e5, "cos": 1e5, "tanh": 25.0, "erf": 6.5, "sigmoid": 700.0},
    **{"log10": 1e300, "tan": 1e5, "sinh": 710.4, "cosh": 710.4, "atan": 1e300, "asin": 1.0},
    **{"acos": 1.0, "asinh": 1e300, "acosh": 1e300, "atanh": 1.0},
}
NUMPYS = {name: name.replace("a", "arc", 1) for name in LIMITS if name.startswith("a")}
# what these are made of are rounded, too; erf: one more of the reference
BELOW_3 = ("erf", "tanh", "tan", "asin", "acos", "acosh", "atanh")
SPECIAL = [0.0, -0.0, math.inf, -math.inf, math.nan, 5e-324, -5e-324, 1e-310, -1e-310, 1.0, -1.0]
SPECIAL += [709.7827, 710.0, -745.0, -746.0, 1024.0, 1023.9, -1075.0, 1e300, -1e300, 2.0, 0.5, 1e6]
SPECIAL += [710.47, -710.47, 710.48, -710.48, 89.0, 1e18, 1e19, -1e155, 1.7e308, 1 - 2**-53, -2.0]
SPECIAL += [math.pi / 2, math.pi, 3 * math.pi / 2, 1e5, 99999.5, 22.0, -22.0, 2**-53, -(2**-53)]


def numbers(limit: float, positive: bool) -> torch.Tensor:
    """Of all sizes up to the limit, and many near 0 and 1."""
    generator = torch.Generator().manual_seed(0)
    draw = lambda n: torch.rand(n, generator=generator, dtype=torch.float64)  # noqa: E731
    sizes = torch.exp2(torch.log2(torch.tensor(limit)) - 60 * draw(3000))
    some = torch.cat([draw(3000) * limit, sizes, draw(3000) * 2, 1 + (draw(3000) - 0.5) / 8])
    return some if positive else some * (draw(len(some)) - 0.5).sign()


def reference(name: str, x: torch.Tensor) -> numpy.ndarray:
    wide = x.numpy().astype(numpy.longdouble)
    if name == "sigmoid":
        return 1 / (1 + numpy.exp(-wide))
    if name == "erf":  # libm's is within an ulp
        return torch.erf(x).numpy().astype(numpy.longdouble)
    return getattr(numpy, NUMPYS.get(name, name))(wide)


@pytest.mark.parametrize("name", LIMITS)
def test_errors_in_ulp(name):
    function = minidynamo.compile(getattr(torch, name))
    x = numbers(LIMITS[name], positive=name in ("log", "log2", "log10", "log1p", "acosh"))
    if LIMITS[name] == 1.0:
        x = x.clamp(-1, 1)
    if name == "acosh":
        x = 1 + x
    exact = reference(name, x)
    found = function(x).numpy()
    normal = numpy.isfinite(exact) & (abs(exact) < 1.7e308) & (abs(exact) > 2.3e-308)
    unit = numpy.spacing(abs(exact[normal]).astype(numpy.float64))
    error = (abs(found[normal] - exact[normal]) / unit).max()
    assert error < (3 if name in BELOW_3 else 2), error
    tiny = numpy.isfinite(exact) & (abs(exact) <= 2.3e-308)
    assert (abs(found[tiny] - exact[tiny]) <= 2 * 5e-324).all()


@pytest.mark.parametrize("name", LIMITS)
def test_special_values_are_eagers(name):
    x = torch.tensor(SPECIAL * 3, dtype=torch.float64)
    function = getattr(torch, name)
    found, expected = minidynamo.compile(function)(x), function(x)
    if name in ("sinh", "cosh"):  # eager's are inf from 710 on
        expected = torch.from_numpy(getattr(numpy, name)(x.numpy()))
    [kernel] = minidynamo.records.frames[-1].backend_record.kernels
    assert "simd" in kernel.source
    assert torch.isnan(found).equal(torch.isnan(expected))
    zero = (expected == 0) & (x == 0)
    assert torch.signbit(found)[zero].equal(torch.signbit(expected)[zero])
    # eager's log1p of the smallest subnormal is 0
    assert torch.allclose(found, expected, rtol=1e-15, atol=5e-324, equal_nan=True)


def test_large_angles_are_computed_again():
    function = minidynamo.compile(lambda x: torch.sin(x) + torch.exp(x) * torch.tanh(x))
    x = torch.randn(1003, dtype=torch.float64)
    x[500] = -3e7
    assert torch.allclose(function(x), torch.sin(x) + torch.exp(x) * torch.tanh(x), rtol=1e-14)
    [kernel] = minidynamo.records.frames[-1].backend_record.kernels
    assert "mini::exp_double(" in kernel.source and "mini::sin<exact.v>(" in kernel.source


def both(x: torch.Tensor) -> list[torch.Tensor]:
    """Every pair of these numbers."""
    return [t.reshape(-1).contiguous() for t in torch.meshgrid(x, x, indexing="ij")]


PAIRS = [("pow", 2), ("atan2", 2), ("hypot", 2)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name, limit", PAIRS)
def test_functions_of_two_numbers(name, limit, dtype):
    generator = torch.Generator().manual_seed(0)
    draw = lambda: torch.rand(30_000, generator=generator, dtype=torch.float64) - 0.5  # noqa: E731
    sizes = lambda: draw().sign() * torch.exp2(draw() * 250)  # noqa: E731
    a, b = torch.cat([sizes(), draw() * 4, draw()]), torch.cat([sizes(), draw() * 4, draw() * 8])
    if name == "pow":  # from the smallest result to the largest
        a = torch.cat([sizes().abs(), 0.1 + (draw() + 0.5) * 3, 1 + draw() / 1e5])
        b = (
            torch.cat([draw(), draw(), draw()])
            * (250 if dtype == torch.float32 else 2000)
            / a.log2()
        )
    a, b = a.to(dtype), b.to(dtype)
    function = minidynamo.compile(getattr(torch, name))
    wide = numpy.longdouble if dtype == torch.float64 else numpy.float64
    reference = getattr(numpy, {"pow": "power", "atan2": "arctan2"}.get(name, name))
    exact, found = reference(a.numpy().astype(wide), b.numpy().astype(wide)), function(a, b).numpy()
    least, most = torch.finfo(dtype).tiny, torch.finfo(dtype).max
    normal = (abs(exact) > least) & (abs(exact) < most)
    unit = numpy.spacing(abs(exact[normal]).astype(found.dtype))
    assert (abs(found[normal] - exact[normal]) / unit).max() < limit
    ends = exact[~normal].astype(found.dtype)
    near = 2 * least * torch.finfo(dtype).eps  # two subnormals
    with numpy.errstate(invalid="ignore"):
        assert ((abs(found[~normal] - ends) <= near) | (found[~normal] == ends)).all()


def ends(dtype: torch.dtype) -> torch.Tensor:
    """Numbers at which functions of two take turns."""
    more = [3.0, -3.0, 1 / 3, 2.0**52 + 1, 2.0**53, 2.0**53 - 1, 1 - 2.0**53, 2.0**52 + 0.5]
    more += [
        2.0**51 + 0.5,
        2.0**24 - 1,
        1 - 2.0**24,
        2.0**23 + 0.5,
        -math.nan,
        1e-30,
        1e31,
        1.7e308,
    ]
    return torch.tensor(SPECIAL + more, dtype=torch.float64).to(dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", [name for name, _ in PAIRS])
def test_functions_of_two_special_numbers(name, dtype):
    a, b = both(ends(dtype))
    function = getattr(torch, name)
    found, expected = minidynamo.compile(function)(a, b), function(a, b)
    assert torch.isnan(found).equal(torch.isnan(expected))
    known = ~expected.isnan()
    assert torch.signbit(found)[known].equal(torch.signbit(expected)[known])
    near = 1e-15 if dtype == torch.float64 else 3e-7
    tiny = torch.finfo(dtype).smallest_normal * torch.finfo(dtype).eps
    assert torch.allclose(found, expected, rtol=near, atol=tiny, equal_nan=True)


def test_powers_of_whole_numbers_are_exact():
    a, b = torch.arange(-12.0, 13.0, dtype=torch.float64), torch.arange(14.0, dtype=torch.float64)
    a, b = (t.reshape(-1).contiguous() for t in torch.meshgrid(a, b, indexing="ij"))
    expected = [float(int(x) ** int(y)) for x, y in zip(a.tolist(), b.tolist())]
    assert minidynamo.compile(torch.pow)(a, b).tolist() == expected


@pytest.mark.parametrize("name", ["log1p", "expm1", "asinh", "acosh", "atanh"])
def test_float32_near_0_and_near_its_largest(name):
    sizes = torch.exp2(torch.arange(-149.0, 128.0, 0.25, dtype=torch.float64))
    x = torch.cat([sizes, -sizes, 1 + sizes, sizes[sizes < 1] - 1, ends(torch.float64)]).float()
    exact = getattr(torch, name)(x.double())
    found = minidynamo.compile(getattr(torch, name))(x).double()
    single = exact.float()
    assert torch.isnan(found).equal(torch.isnan(exact))
    assert torch.signbit(found)[~exact.isnan()].equal(torch.signbit(exact)[~exact.isnan()])
    finite = single.isfinite()
    assert found[~finite].float().nan_to_num(1.0).equal(single[~finite].nan_to_num(1.0))
    unit = torch.nextafter(single.abs(), torch.tensor(math.inf)) - single.abs()
    error = ((found - exact).abs() / unit.double())[finite]
    assert error.max() < 3, x[finite][error.argmax()]
