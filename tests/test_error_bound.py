"""The one bound under which floating-point results count as the same, and who uses another."""

import re
from pathlib import Path

import pytest
import torch

from benchmarks.error_bound import (
    allowed_error,
    assert_near,
    assert_no_worse,
    tolerance,
    too_far,
    worse_than,
)

ROOT = Path(__file__).parent.parent
FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64]
X = torch.linspace(-3, 3, 50)


@pytest.mark.parametrize("dtype", FLOATS)
def test_what_is_nearer_than_the_bound_and_what_is_not(dtype):
    x = X.to(dtype)
    eps = torch.finfo(dtype).eps
    assert tolerance(dtype) == eps ** (2 / 3) and allowed_error(0.0, dtype) == eps
    assert not too_far(x, x) and not too_far(x * (1 + eps), x)
    assert "is allowed" in too_far(x * (1 + 10 * tolerance(dtype)), x)
    assert not too_far(x * (1 + 10 * tolerance(dtype)), x, 30, because="of this test")
    if not dtype.is_complex:
        exact = x.double()
        assert not worse_than(x, x, exact) and not worse_than(x + eps, x + eps, exact)
        times = 8 if dtype != torch.float64 else 10 * tolerance(dtype) / eps
        assert "is allowed" in worse_than(x * (1 + times * eps), x, exact)
        assert_no_worse(x, x, exact)


def test_the_rest_is_eagers():
    nan, infinite = torch.tensor([1.0, torch.nan]), torch.tensor([1.0, torch.inf])
    assert not too_far(nan, nan) and not too_far(infinite, infinite)
    assert not worse_than(nan, nan, nan.double())
    assert "NaN in 0 places" in too_far(torch.ones(2), nan)
    assert "0 infinities" in too_far(torch.ones(2), infinite)
    assert "another sign" in too_far(infinite * torch.tensor([1.0, -1.0]), infinite)
    assert "torch.float64[2] instead of torch.float32[2]" in too_far(nan.double(), nan)
    assert "[2] instead of" in too_far(X[:2], X[:3])
    assert too_far(torch.tensor([1, 2]), torch.tensor([1, 3])) == "1 other numbers"
    assert not too_far(torch.zeros(0), torch.zeros(0))
    with pytest.raises(TypeError, match="reason"):
        too_far(X, X, times=2)
    assert_near({"a": [X, 1, None]}, {"a": [X, 1, None]})
    with pytest.raises(AssertionError, match="tensor 1"):
        assert_near((X, X + 1), (X, X))
    with pytest.raises(AssertionError, match="instead of"):
        assert_near((X, 1), (X, 2))


# Suites that have bounds of their own, and why.  (Single tests may have one where they say it:
# test_cpp.py, test_triton.py and test_gpu.py measure functions in units in the last place.)
OWN = {
    "tests/sweeps/ops.py": "torch's own bounds of each op come first",
    "benchmarks/suites/programs.py": "programs of dozens of steps, whatever compiles them",
    "tests/distributed_worker.py": "sums over processes come in another order",
    "tests/soundness/writes.py": "equal to the bit, but for gradients of equal maxima: 1e-6",
}
NUMBERS = re.compile(r"\b[ra]tol\s*[=:]|[\"'][ra]tol[\"']")


def test_suites_that_have_a_bound_of_their_own_say_why():
    found = set()
    for folder in ("tests", "tools", "benchmarks"):
        for path in (ROOT / folder).rglob("*.py"):
            text = re.sub(r"rtol=0, atol=0", "", path.read_text())  # exactly equal is no bound
            if NUMBERS.search(text) and not path.name.startswith("test_"):
                found.add(path.relative_to(ROOT).as_posix())
    assert found == set(OWN)
