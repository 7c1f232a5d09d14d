"""Images: pooling over two dimensions, nearest and linear resampling.

In:   max_pool2d, avg_pool2d.  Out: a `Pointwise` that reads every element of its window.
In:   upsample_nearest2d; upsample_linear1d, bilinear2d, trilinear3d.  Out: the nearest pixel; the
      weighted sum of neighbours that eager's kernels compute.

    max_pool2d(x, 3, padding=1):  the window of output i starts at i*stride - 1; what lies outside x
                                  is less than all else
    a * (1 - w) + b * w           here: an infinity with a weight above zero gives an infinity
    a + (b - a) * w               torch's rule: the same for finite values, NaN where b - a is

Mirrors torch/_inductor/lowering.py (`max_pool2d_with_indices`, `avg_pool2d`) and, in the values of
infinities, aten/src/ATen/native/cpu/UpSampleKernel.cpp.  Left out: large windows, averages over
windows of which not all elements count, three dimensions, adaptive pools (they run as eager
kernels).
"""

import functools
import itertools
import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import sympy
import torch
import torch.nn.functional as F
from torch import Tensor
from torch._prims_common import suggest_memory_format
from torch.utils._python_dispatch import _disable_current_modes

from ..autograd.joint import call_rule
from ..devices import recomputes
from ..errors import CannotTrace
from ..ir.loops import Index, TensorBox
from ..ir.ops import NARROW, Value, compute_dtype, ops
from ..sizes.symbols import is_nonnegative, is_symbolic, same
from .decompositions import decomposition, upcast, whole
from .registry import WIDE, Call, NotLowered, aten, cast, lower, made
from .views import between

UNROLLED = 27  # elements of a window, which are written out


# --- pooling --------------------------------------------------------------------------------------
def _pair(value: Any) -> list[Any]:
    values = list(value) if isinstance(value, (list, tuple)) else [value]
    return values * 2 if len(values) == 1 else values


class Windows:
    """The window of each output: of one size, at equal distances, perhaps reaching out of x."""

    def __init__(
        self, call: Call, x: TensorBox, kernel: Any, stride: Any, padding: Any, dilation: Any = 1
    ) -> None:
        if 0 in call.first.size or 0 in x.get_size():
            raise NotLowered("pooling of an empty tensor")
        self.counts, self.padding, self.dilation = map(_pair, (kernel, padding, dilation))
        if math.prod(self.counts) > UNROLLED:
            raise NotLowered(f"a window of more than {UNROLLED} elements")
        self.stride = _pair(stride) or self.counts
        self.sizes, self.outputs = x.get_size()[-2:], call.first.size[-2:]
        self.load = x.make_loader()  # now: what is stored later must not be read by this value
        self.places = list(itertools.product(*map(range, self.counts)))

    def place(self, d: int, output: Any, k: int) -> Any:
        """Where in x, along dimension d, element k of the window of an output lies."""
        return output * self.stride[d] - self.padding[d] + k * self.dilation[d]

    def reaches(self, d: int, k: int = -1) -> bool:
        """May element k of a window lie behind x?"""
        last = self.place(d, self.outputs[d] - 1, range(self.counts[d])[k])
        return not is_nonnegative(sympy.sympify(self.sizes[d] - 1 - last))

    def element(
        self, index: Index, at: tuple[int, ...], outside: float
    ) -> tuple[Value | None, Value, sympy.Expr]:
        """Element `at` of the window of output `index`, as (is it inside x? None: always; its
        value, `outside` if it is not; its flat place)."""
        batch, places = list(index[:-2]), [self.place(d, index[d - 2], at[d]) for d in (0, 1)]
        flat = places[0] * self.sizes[1] + places[1]
        tests = []
        for d, place in enumerate(places):
            if self.place(d, 0, at[d]) < 0:
                tests.append(between(place, 0, None))
            if self.reaches(d, at[d]):
                tests.append(between(place, None, self.sizes[d]))
        if not tests:
            return None, self.load(batch + places), flat
        inside = functools.reduce(ops.logical_and, tests)
        return inside, ops.masked(inside, lambda: self.load(batch + places), outside), flat


@lower(aten.max_pool2d_with_indices.default)
def max_pool(
    call: Call,
    x: TensorBox,
    kernel: Any,
    stride: Any = (),
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
) -> list[TensorBox]:
    """[largest element, its place]: the first among equals; a NaN is the largest, the last one of
    several, as in eager."""
    if not x.dtype.is_floating_point:
        raise NotLowered("the largest of integers")
    windows, lowest = Windows(call, x, kernel, stride, padding, dilation), float("-inf")

    def largest(index: Index) -> Value:
        values = [windows.element(index, at, lowest)[1] for at in windows.places]
        return functools.reduce(lambda best, new: ops.maximum(new, best), values)

    def place(index: Index) -> Value:
        """-1 until there is an element."""
        best, where = ops.constant(lowest, x.dtype), ops.constant(-1, torch.int64)
        for at in windows.places:
            inside, value, flat = windows.element(index, at, lowest)
            is_first = ops.lt(where, ops.constant(0, torch.int64))
            better = ops.logical_or(ops.logical_or(ops.gt(value, best), is_first), ops.isnan(value))
            if inside is not None:
                better = ops.logical_and(inside, better)
            where = ops.where(better, ops.index_expr(flat, torch.int64), where)
            best = ops.maximum(value, best)
        return where

    bodies = zip(call.value, (largest, place))
    return [made(call, body, x, dtype=layout.dtype) for layout, body in bodies]


@lower(aten.avg_pool2d.default)
def avg_pool(
    call: Call,
    x: TensorBox,
    kernel: Any,
    stride: Any = (),
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> TensorBox:
    """total / elements of the window + 0.0: no average is -0.0, as in eager."""
    windows, dtype = Windows(call, x, kernel, stride, padding), call.value.dtype
    if divisor_override is not None or not dtype.is_floating_point:
        raise NotLowered("an average of integers, or with a divisor of its own")
    reaches = any(windows.padding) or any(map(windows.reaches, (0, 1)))
    if reaches and (ceil_mode or not count_include_pad):
        raise NotLowered("averages over windows of which not all elements count")
    compute = compute_dtype(dtype)

    def body(index: Index) -> Value:
        values = [windows.element(index, at, 0)[1] for at in windows.places]
        total = functools.reduce(ops.add, [cast(value, x.dtype, compute) for value in values])
        average = ops.truediv(total, ops.constant(len(values), compute))
        return cast(ops.add(average, ops.constant(0.0, compute)), compute, dtype)

    return made(call, body, x)


# --- resampling -----------------------------------------------------------------------------------
CHANNELS_LAST_FROM = 16  # channels; with fewer a GPU's result is contiguous


@decomposition(
    aten.upsample_linear1d.default,
    aten.upsample_bilinear2d.default,
    aten.upsample_trilinear3d.default,
)
def linear(x: Tensor, output_size: Sequence[int], align_corners: bool, *scales: Any) -> Any:
    """Over one, two or three dimensions.  scales: how often each becomes as large, or None: what
    the sizes say."""
    if x.dtype not in (*WIDE, *NARROW) or any(same(n, 0) for n in output_size):
        return NotImplemented  # (eager refuses results without pixels)
    keeps_weights = x.dtype in WIDE or recomputes(x.device) or mixes_floats(x, output_size)
    places = []
    for d, (count, scale) in enumerate(zip(output_size, (*scales, None, None, None))):
        shape = [-1] + [1] * (len(output_size) - 1 - d)
        *pair, weight = neighbours(x, 2 + d, count, align_corners, scale)
        weight = weight if keeps_weights else weight.to(x.dtype)
        places.append([t.reshape(shape) for t in (*pair, weight)])

    def mixed(*at: Tensor) -> Tensor:
        """The values at these places of the first dimensions."""
        if len(at) == len(places):
            return upcast(aten._unsafe_index(x, [None, None, *at]))
        before, after, weight = places[len(at)]
        return mixed(*at, before) * (1 - weight) + mixed(*at, after) * weight

    return in_layout_of(x, mixed().to(x.dtype), CHANNELS_LAST_FROM)


def mixes_floats(x: Tensor, output_size: Sequence[int]) -> bool:
    """Does eager's kernel on a CPU keep weights of 16-bit pixels as floats?  That for channels-last
    images does, to which small ones and those of three channels are copied; others round them."""
    if x.dim() == 4 and (x.shape[1] == 3 or sum(output_size) <= 128):
        return True
    layout = suggest_memory_format(x)
    return x.shape[1] > 3 and x.stride(1) == 1 and x.is_contiguous(memory_format=layout)


def in_layout_of(x: Tensor, result: Tensor, least: int) -> Tensor:
    """In eager's layout, also where there is a single channel.  least: channels; with fewer a GPU's
    result is contiguous."""
    layout = suggest_memory_format(x)
    if x.is_cuda and x.shape[1] < least:
        layout = torch.contiguous_format
    return result.clone(memory_format=layout)


@decomposition(aten.upsample_nearest2d.default)
def nearest(x: Tensor, output_size: Sequence[int], *scales: Any) -> Any:
    """scales: as of `linear`."""
    if is_forgotten(x, scales) or any(same(n, 0) for n in output_size):
        return NotImplemented
    rows, columns = (
        pixels(x, dim, count, step_between(x, dim, count, scale), 0.0, torch.float32)[0]
        for dim, count, scale in zip((2, 3), output_size, (*scales, None, None))
    )
    return in_layout_of(x, aten._unsafe_index(x, [None, None, rows.unsqueeze(-1), columns]), 4)


def is_forgotten(x: Tensor, scales: Sequence[Any]) -> bool:
    """Does eager's kernel take the sizes alone?  It may where 1.1 or 2.1 times a size is once or
    twice that."""
    return any(0 < scale % 1 * n < 1 for scale in scales if scale for n in x.shape[2:])


def step_between(x: Tensor, dim: int, count: int, scale: float | None) -> Any:
    """How many pixels lie between two of `count` places."""
    return 1.0 / scale if scale is not None and scale > 0 else x.shape[dim] / count


def pixels(
    x: Tensor, dim: int, count: int, step: Any, shift: float, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """For `count` places along an image's dimension: the last pixel that is not behind each, and
    where it lies among the pixels, never before the first one.

    On a GPU, integers compute the pixel if they give what floats give: kernels then see where the
    pixels lie, and check no index."""

    def by_floats(place: Tensor) -> Tensor:
        return ((place.to(dtype) + shift) * step - shift).clamp(min=0.0)

    place = torch.arange(count, device=x.device)
    exact = by_floats(place)
    before = exact.to(torch.int64)
    if recomputes(x.device) and isinstance(step, float) and isinstance(count, int):
        over, under = Fraction(step).limit_denominator(4096).as_integer_ratio()

        def by_integers(place: Tensor) -> Tensor:
            twice = place * (2 * over) + int(2 * shift) * (over - under)
            return twice.clamp(min=0) // (2 * under)

        with _disable_current_modes():
            real = torch.arange(count)
            is_same = torch.equal(by_floats(real).to(torch.int64), by_integers(real))
        if is_same:
            before = by_integers(place)
    return before.clamp(0, x.shape[dim] - 1), exact


def neighbours(
    x: Tensor, dim: int, count: int, align_corners: bool, scale: float | None
) -> tuple[Tensor, Tensor, Tensor]:
    """For `count` places along an image's dimension: the pixel before each, the pixel after it, and
    the weight of the second.

    Eager takes one pixel twice where nothing is resampled: its neighbour may be infinite."""
    size, dtype = x.shape[dim], compute_dtype(x.dtype)
    if same(size, count):
        place = torch.arange(count, device=x.device)
        return place, place, torch.zeros_like(place, dtype=dtype)
    step, shift = step_between(x, dim, count, scale), 0.5
    if align_corners:
        step, shift = (size - 1) / (count - 1) if count > 1 else 0.0, 0.0
    before, exact = pixels(x, dim, count, step, shift, dtype)
    return before, (before + 1).clamp(0, size - 1), (exact - before).clamp(0.0, 1.0)


# --- the calls of a program -----------------------------------------------------------------------
# torch's C++ code takes another way for fake tensors than for real ones.  (Of all operators that
# are tested so by OpInfos; with indices both ways are one.)
@call_rule(F.max_pool1d, torch.max_pool1d, torch.ops.aten.max_pool1d.default)
def pooled(interpreter: Any, target: Callable, args: tuple, kwargs: dict) -> Any:
    """Eager's kernel takes no integers; what fake tensors see in its place does."""
    out = interpreter.plain_call(target, args, kwargs)
    if isinstance(out, torch.Tensor) and not out.is_floating_point():
        raise CannotTrace(f"eager may refuse the largest of {out.dtype}")
    return out


@call_rule(F.interpolate, F.upsample, F.upsample_nearest, F.upsample_bilinear, F.grid_sample)
def resampled(interpreter: Any, target: Callable, args: tuple, kwargs: dict) -> Any:
    """torch's C++ code in front of the kernels computes sizes of numbers alone; for symbols there
    are Python's rules, which compute infinities in another way where neighbours are mixed."""
    values = [*args, *kwargs.values()]
    if not is_symbolic(values):
        return whole(interpreter, target, args, kwargs)
    if target in (F.interpolate, F.upsample):
        out = by_sizes(*args, **kwargs)
        if out is not NotImplemented:
            return out
        if "nearest" in values or not any(isinstance(value, str) for value in values):
            return interpreter.plain_call(target, args, kwargs)
    raise CannotTrace("an image is resampled whose sizes are symbols, and pixels are mixed")


def by_sizes(
    input: torch.Tensor,
    size: Any = None,
    scale_factor: Any = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    *more: Any,
    **named: Any,
) -> Any:
    """Linear resampling; NotImplemented for what else F.interpolate does."""
    kind = {3: "linear", 4: "bilinear", 5: "trilinear"}.get(input.dim())
    each = scale_factor if size is None else size
    each = list(each) if isinstance(each, (list, tuple)) else [each] * (input.dim() - 2)
    if mode == "nearest" and size is None and is_forgotten(input, each):
        raise CannotTrace("eager's nearest pixels may be those of the sizes alone")
    if mode != kind or any(more) or any(named.values()):
        return NotImplemented
    if size is not None:
        return linear(input, each, bool(align_corners))
    sizes = [math.trunc(n * float(scale)) for n, scale in zip(input.shape[2:], each)]
    return linear(input, sizes, bool(align_corners), *map(float, each))
