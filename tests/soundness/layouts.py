"""Bits and layouts: every operator of the OpInfo sweep on tensors that lie in memory in unusual
ways.

    python -m tests.soundness.layouts --count 300 --modes inductor,aot_eager

In:   the OpInfos of `torch.testing` (see tests/sweeps/ops.py), two samples of each.
Out:  for each layout of `LAYOUTS` the same call on tensors laid out like that; compiled, it must
      give eager's values, dtypes, strides, bits and aliases, or raise an exception of eager's type.

Five kinds of case, each `(kind, number of the OpInfo, seed)`:
- "call": the operator's tensors are arguments; all layouts that eager accepts in one function;
- "lazy": what the operator gives, or a view of it, is negated or conjugated by a bit, and perhaps
  written; it is computed in the frame, and is a result;
- "write": the in-place variant; what the arguments hold afterwards is compared, too;
- "module": the tensors are buffers of a module, which are laid out anew between the calls;
- "gradient": backward gets gradients that are laid out like that.
"""

import random
from collections.abc import Callable
from typing import Any

import torch
import torch.utils._pytree as pytree
from torch.testing._internal.common_methods_invocations import op_db

import minidynamo
from benchmarks.error_bound import too_far

from ..sweeps import ops as sweep
from . import errors, runner
from .modes import Mode

KINDS = ("call", "lazy", "write", "module", "gradient")
PER_OP = 2  # samples
BIT_CHANGES = 2  # layouts that a module's buffers take in one case: each is compiled anew
LEFT_OUT = {
    # their results are not told by their arguments' values
    *sweep.CONTENT_UNDEFINED,
    "to_sparse",  # no strides
}
# (operator, layout) of which eager makes nothing that could be compared
WITHOUT_MEANING = {
    ("_chunk_cat", "no_dimensions"),  # eager's kernel ends the process
    # a vector of -1 sizes: RuntimeError from torch.NAME, ValueError from torch.ops.aten.NAME
    ("native_batch_norm", "no_dimensions"),
    ("_native_batch_norm_legit", "no_dimensions"),
    # eager's own kernel leaves memory as it found it: NaNs and 1e22 in one call, others in the next
    ("nn.functional.scaled_dot_product_attention", "overlapping"),
    # it becomes larger than its memory, which then ends in what nobody has written
    *(
        (name, layout)
        for name in ("resize_", "resize_as_")
        for layout in ("expanded", "overlapping", "empty", "one_element", "no_dimensions")
    ),
}


# --- layouts: each gives a tensor of its own, with the values of `t` unless it says so ------------
def plain(t: torch.Tensor) -> torch.Tensor:
    return t.clone(memory_format=torch.contiguous_format)


def negated(t: torch.Tensor) -> torch.Tensor:
    return torch._neg_view(-plain(t)) if t.is_floating_point() or t.is_complex() else plain(t)


def conjugated(t: torch.Tensor) -> torch.Tensor:
    return plain(t).conj_physical().conj() if t.is_complex() else plain(t)


def imaginary(t: torch.Tensor) -> torch.Tensor:
    """The negated view that programs make: the imaginary part of a conjugate."""
    if t.dtype not in (torch.float32, torch.float64):
        return plain(t)
    return torch.complex(torch.zeros_like(plain(t)), -plain(t)).conj().imag


def transposed(t: torch.Tensor) -> torch.Tensor:
    return t.mT.clone(memory_format=torch.contiguous_format).mT if t.dim() > 1 else plain(t)


def channels_last(t: torch.Tensor) -> torch.Tensor:
    formats = {4: torch.channels_last, 5: torch.channels_last_3d}
    return t.clone(memory_format=formats.get(t.dim(), torch.contiguous_format))


def offset(t: torch.Tensor) -> torch.Tensor:
    """One element behind the start of its storage."""
    return t.new_zeros(t.numel() + 1)[1:].view(t.shape).copy_(t)


def stepped(t: torch.Tensor) -> torch.Tensor:
    """Every other element of each row."""
    if not t.dim():
        return plain(t)
    return t.new_zeros(*t.shape[:-1], 2 * t.shape[-1])[..., 1::2].copy_(t)


def expanded(t: torch.Tensor) -> torch.Tensor:
    """Stride 0: the first row for each row (other values)."""
    return plain(t[:1]).expand(t.shape) if t.dim() and t.shape[0] else plain(t)


def overlapping(t: torch.Tensor) -> torch.Tensor:
    """Neighbouring rows share all but one element (other values)."""
    if not t.dim() or not t.numel():
        return plain(t)
    return plain(t).flatten().as_strided(t.shape, [1] * t.dim())


def empty(t: torch.Tensor) -> torch.Tensor:
    return plain(t[:0]) if t.dim() else plain(t)


def one_element(t: torch.Tensor) -> torch.Tensor:
    return plain(t[tuple(slice(0, 1) for _ in t.shape)])


def no_dimensions(t: torch.Tensor) -> torch.Tensor:
    return plain(t.flatten()[0]) if t.numel() else plain(t)


LAYOUTS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    layout.__name__: layout
    for layout in (
        *(plain, negated, conjugated, imaginary, transposed, channels_last, offset, stepped),
        *(expanded, overlapping, empty, one_element, no_dimensions),
    )
}


# --- samples --------------------------------------------------------------------------------------
def dtypes_of(op: Any) -> list[torch.dtype]:
    """A real one and a complex one."""
    supported = op.supported_dtypes("cpu")
    real = [d for d in (torch.float32, torch.int64, torch.bool) if d in supported][:1]
    return real + [d for d in (torch.complex64,) if d in supported]


def laid_out(tree: Any, layout: Callable) -> Any:
    """Fresh tensors in place of the tensors of `tree`; the same one for the same one."""
    made: dict[int, torch.Tensor] = {}

    def one(t: torch.Tensor) -> torch.Tensor:
        if id(t) not in made:
            strided = t.layout is torch.strided and not t.is_nested
            made[id(t)] = layout(t.detach()) if strided else t.detach().clone()
        return made[id(t)]

    return pytree.tree_map_only(torch.Tensor, one, tree)


def samples_of(op: Any) -> list[tuple[tuple, dict]]:
    return [
        (args, kwargs)
        for dtype in dtypes_of(op)
        for args, kwargs, _ in sweep.samples_of(op, dtype, PER_OP)
    ]


# --- what a run did -------------------------------------------------------------------------------
def run(function: Callable, *args: Any) -> Any:
    """The result, or the exception."""
    torch.manual_seed(sweep.SEED)
    try:
        return function(*args)
    except Exception as error:
        return error


def strides_of(t: torch.Tensor) -> tuple | None:
    """Strides that mean something: of sizes above 1, of tensors that have elements."""
    if t.layout is not torch.strided or not t.numel():
        return None
    return t.stride()


def about(t: torch.Tensor) -> tuple:
    return (
        t.dtype,
        tuple(t.shape),
        strides_of(t),
        t.layout is torch.strided and (t.is_neg(), t.is_conj()),
    )


def shared(results: Any, arguments: Any) -> list:
    """For each result the number of the argument whose memory it shares, or None."""

    def place(t: torch.Tensor) -> int | None:
        known = t.layout is torch.strided and not t.is_nested and t.untyped_storage().data_ptr()
        return known or None

    def tensors(tree: Any) -> list[torch.Tensor]:
        return [t for t in pytree.tree_leaves(tree) if isinstance(t, torch.Tensor)]

    places = [place(t) for t in tensors(arguments)]
    found = [place(t) for t in tensors(results)]
    return [places.index(at) if at in places and at is not None else None for at in found]


def difference(op: Any, call: tuple, want: Any, got: Any) -> str:
    """call: the arguments, as (args, kwargs), for a judgement of rounding."""
    if isinstance(want, Exception) or isinstance(got, Exception):
        if type(want) is type(got):
            return ""
        return f"eager {want!r:.200}, compiled {got!r:.300}"
    ours, eager = pytree.tree_leaves(got), pytree.tree_leaves(want)
    if len(ours) != len(eager):
        return f"{len(ours)} results instead of {len(eager)}"
    for a, b in zip(ours, eager):
        if not isinstance(b, torch.Tensor):
            if type(a) is not type(b) or a != b and a == a:
                return f"{a!r} instead of {b!r}"
            continue
        if about(a) != about(b):
            return f"(dtype, shape, strides, bits) {about(a)} instead of {about(b)}"
    dtype = next((t.dtype for t in eager if isinstance(t, torch.Tensor)), torch.float32)
    return sweep.difference(op, got, (*call, want), dtype) or ""


# --- the three kinds ------------------------------------------------------------------------------
def check_calls(op: Any, calls: list[tuple], target: Callable, mode: Mode) -> str:
    """Each of [(layout, args, kwargs)] by `target`, all that eager accepts in one function."""

    def every(arguments: list[tuple]) -> list:
        return [target(*args, **kwargs) for args, kwargs in arguments]

    accepted, refused = [], []
    for name, args, kwargs in calls:
        call = [laid_out((args, kwargs), LAYOUTS[name])]
        wanted = run(every, call)
        (refused if isinstance(wanted, Exception) else accepted).append((name, args, kwargs))
    groups = [[call] for call in refused] + ([accepted] if accepted else [])
    while groups:
        group = groups.pop(0)
        minidynamo.reset()
        ours, eagers = (
            [laid_out((args, kwargs), LAYOUTS[name]) for name, args, kwargs in group]
            for _ in range(2)
        )
        want, got = run(every, eagers), run(mode.compile(every), ours)
        problem = difference(op, (([],), {}), want, got) if len(group) > 1 else ""
        if problem or isinstance(got, Exception) and len(group) > 1:
            groups += [[call] for call in group]  # which one is it?
            continue
        if len(group) == 1:
            name, args, kwargs = group[0]
            problem = difference(op, laid_out((args, kwargs), LAYOUTS[name]), want, got)
        if not problem:
            problem = (
                difference(op, (([],), {}), eagers, ours) and "the arguments afterwards differ"
            )
        if not problem and not isinstance(want, Exception):
            aliases = shared(want, eagers), shared(got, ours)
            if aliases[0] != aliases[1]:
                problem = f"results share memory with arguments {aliases[1]}, eager {aliases[0]}"
        if problem:
            return f"{op.name} on {[name for name, *_ in group]} tensors: {problem}"
    return ""


def lazily(target: Callable, is_written: bool) -> Callable:
    """`target`, of whose first result that is computed with floats comes the conjugate, and the
    imaginary part of that: both are bits, and one memory."""

    def call(*args: Any, **kwargs: Any) -> Any:
        results = target(*args, **kwargs)
        first = results[0] if isinstance(results, (tuple, list)) else results
        if not isinstance(first, torch.Tensor) or first.dtype not in (torch.float32, torch.cfloat):
            return results
        made = first.conj() if first.is_complex() else torch.complex(first, first).conj()
        seen = made.imag[..., 1:] if made.dim() else made.imag
        if is_written:
            seen.add_(1)
            return made, seen
        return made if first.is_complex() else seen

    return call


class Holder(torch.nn.Module):
    """Calls an operator on its own buffers."""

    def __init__(self, target: Callable, args: tuple, kwargs: dict):
        super().__init__()
        leaves, self.structure = pytree.tree_flatten((args, kwargs))
        self.target, self.leaves = target, leaves
        self.tensors = [n for n, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]
        for n in self.tensors:
            self.register_buffer(f"tensor{n}", leaves[n])

    def forward(self) -> Any:
        leaves = list(self.leaves)
        for n in self.tensors:
            leaves[n] = getattr(self, f"tensor{n}")
        args, kwargs = pytree.tree_unflatten(leaves, self.structure)
        return self.target(*args, **kwargs)

    def take(self, tree: Any) -> None:
        """The buffers become tensors that lie like those of `tree`: the same objects."""
        leaves = pytree.tree_leaves(tree)
        for n in self.tensors:
            getattr(self, f"tensor{n}").data = leaves[n]


def check_module(op: Any, sample: tuple, mode: Mode, chance: random.Random) -> str:
    args, kwargs = sample
    holder = Holder(op.op, *laid_out((args, kwargs), plain))
    compiled = mode.compile(holder)
    chosen = chance.sample(sorted(LAYOUTS), BIT_CHANGES)
    for name in ("plain", *chosen, "plain"):
        if (op.name, name) in WITHOUT_MEANING:
            continue
        call = laid_out((args, kwargs), LAYOUTS[name])
        holder.take(call)
        want, got = run(holder), run(compiled)
        problem = difference(op, call, want, got)
        if problem:
            return f"{op.name} on buffers that became {name} (of {chosen}): {problem}"
    return ""


def gradients(function: Callable, sample: tuple, layout: Callable) -> list:
    """Of the sample's tensors, where backward gets ones that are laid out by `layout`."""
    args, kwargs = laid_out(sample, plain)
    inputs = [
        t.requires_grad_()
        for t in pytree.tree_leaves((args, kwargs))
        if isinstance(t, torch.Tensor) and (t.is_floating_point() or t.is_complex())
    ]
    results = [
        t
        for t in pytree.tree_leaves(function(*args, **kwargs))
        if isinstance(t, torch.Tensor) and t.requires_grad
    ]
    if not results or any(t.layout is not torch.strided for t in results):
        return []
    given = [layout(torch.ones_like(t) * (0.5 + 0.25j if t.is_complex() else 0.5)) for t in results]
    if any(t.shape != like.shape for t, like in zip(given, results)):
        return []  # a layout that changes the shape
    return list(torch.autograd.grad(results, inputs, given, allow_unused=True))


def check_gradients(op: Any, sample: tuple, mode: Mode, chance: random.Random) -> str:
    compiled = mode.compile(lambda *args, **kwargs: op.op(*args, **kwargs))
    chosen = chance.sample(sorted(LAYOUTS), BIT_CHANGES)
    for name in ("negated", "imaginary", "conjugated", *chosen):
        want = run(gradients, op.op, sample, LAYOUTS[name])
        got = run(gradients, compiled, sample, LAYOUTS[name])
        if isinstance(want, Exception) or isinstance(got, Exception):
            if type(want) is not type(got):
                return f"{op.name}, gradients {name}: eager {want!r:.200}, compiled {got!r:.300}"
            continue
        for a, b in zip(got, want):
            if a is None and b is None:
                continue
            # values: eager hands bits on where it hands the tensor on
            if problem := too_far(a, b, 80, "gradients of every op, some of which divide"):
                return f"{op.name}, gradients {name}: {problem}"
    return ""


def cases(count: int, first: int) -> list[tuple[str, int, int]]:
    """All of them, for as many seeds as it takes; or a sample."""
    every = [
        (kind, number, 0)
        for number, op in enumerate(op_db)
        for kind in errors.focus("LAYOUTS_KINDS") or KINDS
        if op.name not in LEFT_OUT
        and (kind != "write" or op.inplace_variant is not None)
        and (kind != "gradient" or op.supports_autograd)
    ]
    if count >= len(every):
        return every
    return random.Random(first).sample(every, count)


def check(case: tuple[str, int, int], mode: Mode) -> str:
    kind, number, seed = case
    op, chance = op_db[number], random.Random(f"{number} {seed}")
    samples = samples_of(op)
    if not samples:
        return ""
    if kind == "gradient":
        return check_gradients(op, chance.choice(samples), mode, chance)
    with torch.no_grad():
        if kind == "module":
            return check_module(op, chance.choice(samples), mode, chance)
        target = op.inplace_variant if kind == "write" else op.op
        if kind == "lazy":
            calls = [("plain", *sample) for sample in samples]
            return check_calls(op, calls, lazily(target, chance.random() < 0.5), mode)
        names = [name for name in LAYOUTS if (op.name, name) not in WITHOUT_MEANING]
        calls = [(name, *sample) for sample in samples for name in names]
        return check_calls(op, calls, target, mode)


if __name__ == "__main__":
    runner.main("tests.soundness.layouts", default_modes="aot_eager,inductor")
