"""Statistics of the largest, the smallest and no numbers (lowering/reductions.py), and zeros of
either sign: eager's, over axes, dtypes and sizes that are symbols."""

import math

import pytest
import torch

import minidynamo

INFINITY, NAN = math.inf, math.nan
STATISTICS = {name: getattr(torch, name) for name in ("var", "std", "var_mean", "std_mean")}
AXES = {"all": None, "rows": [-1], "columns": [0], "two": [0, 2]}
# what some elements become: nothing, the first, one between, the last, two of both signs
PLACES = {
    "finite": {},
    "first": {0: INFINITY},
    "between": {40: -INFINITY},
    "last": {-1: INFINITY},
    "two": {-1: INFINITY, -2: INFINITY},
    "both": {3: INFINITY, 5: -INFINITY},
    "nan": {7: NAN},
}
DTYPES = [torch.float64, torch.float32, torch.bfloat16, torch.float16]
DIGITS = dict(zip(DTYPES, (1e-12, 1e-5, 1.6e-2, 2e-3)))
SIZES = {
    torch.float64: (1.0, 1e100, 1e-100),
    torch.float32: (1.0, 1e20, 1e-30, 1e37, 1e-36, 3e9, 1e-12),
    torch.bfloat16: (1.0, 1e20, 1e-30, 1e37),
    torch.float16: (1.0, 300.0, 1e-3),
}


def the_same(ours, eager, size):
    """The mean may lie near 0, and is judged by the size of the elements."""
    for number, (a, b) in enumerate(zip(ours, eager, strict=True)):
        assert a.dtype == b.dtype and a.shape == b.shape and a.stride() == b.stride()
        tiny = torch.finfo(b.dtype).tiny  # (a variance of 1e-60 is no number of float32)
        margin = DIGITS[b.dtype]
        room = max(tiny, number * margin * size)
        torch.testing.assert_close(a, b, rtol=margin, atol=room, equal_nan=True)


def several(value):
    return value if isinstance(value, tuple) else (value,)


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", STATISTICS)
def test_statistics_of_every_size_of_number(name, dtype, dynamic):
    def function(x):
        """Over all axes, each in one way, in one graph."""
        return [
            several(STATISTICS[name](x, axes, correction=n % 3, keepdim=bool(n % 2)))
            for n, axes in enumerate(AXES.values())
        ]

    minidynamo.reset()
    compiled = minidynamo.compile(function, dynamic=dynamic)
    x = torch.randn(5, 3, 7, dtype=torch.float64, generator=torch.manual_seed(0)) + 0.5
    for size in SIZES[dtype]:
        for special in PLACES.values():
            given = (x * size).to(dtype)
            for place, value in special.items():
                given.view(-1)[place] = value
            for laid_out in (given, given.mT.contiguous().mT):
                pairs = zip(AXES, compiled(laid_out), function(laid_out), strict=True)
                for axes, ours, eager in pairs:
                    if size > 1e36 and axes == "all" and dtype == torch.float32:
                        continue  # eager's sum, of all elements, overflows: its std is infinite
                    if len(eager) == 2:  # the mean of infinities may be NaN, in eager elsewhere
                        kept = eager[1].dim() == 3
                        mean = laid_out.double().mean(AXES[axes], keepdim=kept).to(dtype)
                        is_lost = ours[0].isnan() & ours[1].isnan()
                        eager = eager[0], torch.where(is_lost, ours[1], mean)
                    the_same(ours, eager, size)
    assert not minidynamo.records.frames[-1].backend_record.fallbacks


def test_a_sum_that_overflows_has_a_mean():
    """Each value once: eager's own full variance of float32 overflows, too, over axes it does not.
    (A power of two: whatever is added, their mean is exactly that.)"""
    x = torch.full((3, 32), 2.0**126)
    for name in ("var_mean", "std_mean"):
        function = STATISTICS[name]
        assert [t.tolist() for t in minidynamo.compile(lambda x: function(x, 1))(x)] == [
            [0.0] * 3,
            [2.0**126] * 3,
        ]
