"""When two floating-point results count as the same: one bound, for benchmarks and tests.

In:   a compiled result, eager's, and perhaps the exact one: eager's in float64.
Out:  "" or a sentence that says what differs.

    >>> x = torch.linspace(0, 1, 100)
    >>> worse_than(x.sin(), x.sin(), x.double().sin())
    ''
    >>> too_far(x.sin() + 1e-3, x.sin())
    '0.001 from eager where 2.4e-05 is allowed'

Shape, dtype, NaNs and infinities must be eager's; numbers that are not floating-point must be
equal.  For the others let eps be the distance from 1 to the next number of the dtype.

**With the exact result.**  The root mean square of what is wrong with ours is at most twice that
of eager, and eps of the exact result's.  (Twice: other orders of summation round as well as
eager's, but not the same.  eps: where eager happens to be exact.  A result in float64 has none
that is more exact, and is judged as without.)

**Without it.**  No element is further from eager's than eps ** (2/3) of the largest one, or of 1 if
all are smaller: of the digits that the dtype has, a third may be lost.  That is 2.4e-5 in float32,
3.7e-11 in float64, 3.9e-2 in bfloat16, 9.8e-3 in float16.  The largest one is the scale, since
sums lose digits of what was added.

Who allows more gives `times` and `because`, in words; without a reason that is a TypeError.
Mirrors torch.testing.assert_close, whose bounds are constants of each dtype.
"""

from typing import Any

import torch
import torch.utils._pytree as pytree


def tolerance(dtype: torch.dtype) -> float:
    """How far from eager's largest element one of ours may be; 0 where numbers are exact."""
    if not (dtype.is_floating_point or dtype.is_complex):
        return 0.0
    return torch.finfo(dtype).eps ** (2 / 3)


def allowed_error(eager: float, dtype: torch.dtype) -> float:
    """The largest relative error that ours may have where eager has this one (both against
    float64)."""
    return 2 * eager + torch.finfo(dtype).eps


def too_far(
    ours: torch.Tensor, eager: torch.Tensor, times: float = 1, because: str = "", scale: float = 1.0
) -> str:
    """What is wrong with ours, judged by eager's.  times: so many bounds are allowed.  scale: the
    largest number on the way to the result, if that is larger than the result's and 1."""
    if times != 1 and not because:
        raise TypeError("a wider bound needs a reason")
    problem = other_kind(ours, eager)
    if problem or not eager.numel():
        return problem
    if not tolerance(eager.dtype):
        return "" if torch.equal(ours, eager) else f"{int((ours != eager).sum())} other numbers"
    limit = times * tolerance(eager.dtype) * max(scale, largest(eager))
    found = largest(wide(ours) - wide(eager))
    return "" if found <= limit else f"{found:.2g} from eager where {limit:.2g} is allowed"


def worse_than(ours: torch.Tensor, eager: torch.Tensor, exact: torch.Tensor) -> str:
    """What is wrong with ours, judged by the exact result and by eager's distance to that."""
    problem = other_kind(ours, eager)
    if problem or not eager.numel():
        return problem
    if not tolerance(eager.dtype) or eager.dtype == exact.dtype:
        return too_far(ours, eager)
    known = exact.isfinite() & eager.isfinite()
    error, least, scale = (
        root_mean_square((wide(t) - wide(exact)).where(known, 0))
        for t in (ours, eager, torch.zeros_like(eager))
    )
    limit = allowed_error(least / scale, eager.dtype) * scale if scale else 2 * least
    return "" if error <= limit else f"error {error:.2g} where {limit:.2g} is allowed"


def assert_near(ours: Any, eager: Any, times: float = 1, because: str = "") -> None:
    """The same of tensors in lists, tuples and dictionaries, whose other leaves are to be equal.
    Raises AssertionError with what `too_far` says."""
    (found, kind), (expected, wanted) = map(pytree.tree_flatten, (ours, eager))
    assert kind == wanted, f"{kind} instead of {wanted}"
    for number, (one, other) in enumerate(zip(found, expected)):
        if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
            problem = too_far(one, other, times, because)
            assert not problem, f"tensor {number}: {problem}"
        else:
            assert one is other or one == other, f"{one!r} instead of {other!r}"


def assert_no_worse(ours: torch.Tensor, eager: torch.Tensor, exact: torch.Tensor) -> None:
    """Raises AssertionError with what `worse_than` says."""
    problem = worse_than(ours, eager, exact)
    assert not problem, problem


# --- parts ----------------------------------------------------------------------------------------
def other_kind(ours: torch.Tensor, eager: torch.Tensor) -> str:
    """What differs beside roundings."""
    if ours.dtype != eager.dtype or ours.shape != eager.shape:
        return f"{ours.dtype}{list(ours.shape)} instead of {eager.dtype}{list(eager.shape)}"
    if not tolerance(eager.dtype):
        return ""  # (an integer has neither; not every dtype of them is one that torch asks)
    if not torch.equal(ours.isnan(), eager.isnan()):
        return f"NaN in {int(ours.isnan().sum())} places instead of {int(eager.isnan().sum())}"
    if not torch.equal(ours.isinf(), eager.isinf()):
        return f"{int(ours.isinf().sum())} infinities instead of {int(eager.isinf().sum())}"
    are_same = ours.where(ours.isinf(), 0) == eager.where(eager.isinf(), 0)
    return "" if bool(are_same.all()) or eager.is_complex() else "infinities of another sign"


def wide(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.to(torch.complex128 if tensor.is_complex() else torch.float64)


def largest(tensor: torch.Tensor) -> float:
    """The largest finite magnitude."""
    sizes = wide(tensor).abs()
    return float(sizes.where(sizes.isfinite(), 0).max())


def root_mean_square(tensor: torch.Tensor) -> float:
    return float(tensor.abs().square().mean().sqrt())
