"""Random numbers without a state: element `offset` of stream `seed`.

In:   a seed (one 64-bit integer, drawn from torch's generator, so that `torch.manual_seed` decides
      it).  Out: uniform float32 in [0, 1).

    >>> torch.ops.miniinductor.uniform(torch.tensor([7]), [2, 3])  # the same six numbers every time

Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011): ten rounds of
multiplication on a counter, so each element is computed alone, inside a fused kernel, and again in
backward instead of being kept.  The C++ prelude, Triton's library and the interpreter (`philox`)
compute the same bits.  `config.fallback_random = False` puts these rules in front of eager's random
kernels.

Mirrors torch/_inductor/fx_passes/replace_random.py.  Left out: float64 and 16-bit results,
`torch.Generator` arguments (eager's kernels).
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import sympy
import torch
from torch import Tensor

from ..ir.loops import Index, TensorBox
from ..ir.ops import Value, ops
from ..sizes.expressions import Size, flatten
from .registry import Call, aten, lower, made

WORD = 0xFFFFFFFF


def philox(seed: Tensor, offset: Tensor) -> Tensor:
    """Philox4x32-10: the first 32 random bits for each element of `offset` (int64), as int64;
    seed: int64, broadcast."""
    c0, c1 = offset & WORD, offset >> 32 & WORD
    c2 = c3 = torch.zeros_like(offset)
    k0, k1 = seed & WORD, seed >> 32 & WORD
    for _ in range(10):
        a = c0 * 0xD2511F53  # the low 64 bits, whatever the sign
        b = c2 * 0xCD9E8D57
        c0, c1 = (b >> 32 & WORD) ^ c1 ^ k0, b & WORD
        c2, c3 = (a >> 32 & WORD) ^ c3 ^ k1, a & WORD
        k0 = k0 + 0x9E3779B9 & WORD
        k1 = k1 + 0xBB67AE85 & WORD
    return c0


def fractions(seed: Tensor, offset: Tensor) -> Tensor:
    """A float32 in [0, 1) for each element of `offset`: 24 of its random bits."""
    return (philox(seed, offset) >> 8).float() * 2.0**-24


def uniform(seed: Tensor, size: Sequence[int]) -> Tensor:
    """The eager kernel of `miniinductor::uniform`."""
    return fractions(seed, torch.arange(math.prod(size), device=seed.device)).reshape(size)


LIBRARY = torch.library.Library("miniinductor", "DEF")
LIBRARY.define("uniform(Tensor seed, SymInt[] size) -> Tensor")
LIBRARY.impl("uniform", uniform, "CompositeExplicitAutograd")


@lower(torch.ops.miniinductor.uniform.default)
def lowered_uniform(call: Call, seed: TensorBox, size: Sequence[Size]) -> TensorBox:
    load, shape = seed.make_loader(), call.value.size

    def body(index: Index) -> Value:
        place = ops.index_expr(flatten(index, shape), torch.int64)
        return ops.rand(load([sympy.Integer(0)]), place)

    return made(call, body, seed)


def draw(size: Sequence[int], device: torch.device | str) -> Tensor:
    """Uniform numbers of a fresh seed, as ops that a tracer records.  The seed is the random op: it
    is drawn once, and kept."""
    return torch.ops.miniinductor.uniform(
        aten.randint.low(0, 2**62, [1], device=device), list(size)
    )


def rand(size: Sequence[int], *, dtype: Any = None, device: Any = None, **kwargs: Any) -> Any:
    is_plain = (dtype or torch.get_default_dtype()) is torch.float32
    if not is_plain or kwargs.get("generator") or kwargs.get("layout") not in (None, torch.strided):
        return NotImplemented
    return draw(size, device or torch.get_default_device())


def rand_like(x: Tensor, *, dtype: Any = None, device: Any = None, **kwargs: Any) -> Any:
    if not x.is_contiguous():
        return NotImplemented
    return rand(x.shape, dtype=dtype or x.dtype, device=device or x.device, **kwargs)


def normal(uniform_rule: Callable[..., Any]) -> Callable[..., Any]:
    """Box-Muller: two uniform numbers make a normal one."""

    def rule(*args: Any, **kwargs: Any) -> Any:
        first = uniform_rule(*args, **kwargs)
        if first is NotImplemented:
            return first
        second = draw(first.shape, first.device)
        return torch.sqrt(-2 * torch.log(1 - first)) * torch.cos(2 * math.pi * second)

    return rule


def bernoulli(
    x: Tensor, p: float | None = None, *, generator: torch.Generator | None = None
) -> Any:
    """aten.bernoulli: `x` gives the probabilities, or the shape and dtype if `p` is given."""
    if generator is not None or not x.is_contiguous():
        return NotImplemented
    return (draw(x.shape, x.device) < (x if p is None else p)).to(x.dtype)


# config.fallback_random=False: kernels of ours draw
FUSED_RANDOM = {
    aten.rand.default: rand,
    aten.rand_like.default: rand_like,
    aten.randn.default: normal(rand),
    aten.randn_like.default: normal(rand_like),
    aten.bernoulli.default: bernoulli,
    aten.bernoulli.p: bernoulli,
}
