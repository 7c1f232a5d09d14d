"""Errors, and values at the edge: every OpInfo on inputs that its kernels check, or that arithmetic
treats apart.

    python -m tests.soundness.errors --count 2000 --modes eager,aot_eager,inductor,inductor-dynamic
    ERRORS_OPS=index_add,linalg.inv python -m tests.soundness.errors --count 1000000

A case is (name of the OpInfo, what was done to its inputs, dtype, number of the sample).  The
compiled call must give what the eager call gives: the value (tolerance: the op sweep's; NaN where
NaN is, zeros of the same sign), or the exception, of the same type and with the same first line.
With internal errors raised a backend may word its error in its own way, but must raise one;
without, plain Python runs behind it and says what eager says.  Where eager raises, the call must
raise as well when only the first element of its result is read.
"""

import copy
import functools
import os
import random
import re
import sys

import torch
import torch.utils._pytree as pytree

import minidynamo
from tests.soundness import runner
from tests.soundness.modes import Mode
from tests.sweeps import ops as sweep

INTEGERS = (torch.int64, torch.int32, torch.uint8, torch.bool)
UNSIGNED = (torch.uint16, torch.uint32, torch.uint64)
ALL_DTYPES = (
    *(torch.float32, torch.float64, torch.bfloat16, torch.float16),
    *(*INTEGERS, torch.int8, torch.int16, *UNSIGNED, torch.complex64),
)
SPECIAL = (-0.0, 0.0, float("nan"), float("inf"), -float("inf"), 1e-40, -1e-40, -1.0, 2.0)
# what they leave in a result is nobody's promise, or they do not compute with tensors
LEFT_OUT = re.compile(
    r"to_sparse|empty|ctc_loss|jiterator|^sparse|_nested|attention|cudnn|^svd_lowrank|pca_lowrank|"
    r"as_strided|resize|nn.functional.rrelu|uniform|^item|tolist|"
    r"^_segment_reduce"  # eager's kernel is told not to look at offsets, and ends the process
)
# eager's kernels trust what these are given, and write outside of their memory or end the process:
# rows to exchange; a matrix with NaN, which goes to LAPACK unseen
TRUSTING = re.compile(r"ldl_solve|lu_solve|linalg.eigvals$")
HARMLESS = ("untouched", "empty", "all empty", "error inputs")


# --- what is done to the inputs -------------------------------------------------------------------
def untouched(sample, draw):
    return sample


def mapped(change):
    def apply(sample, draw):
        return pytree.tree_map_only(torch.Tensor, lambda t: change(t, draw), sample)

    return apply


def filled(value):
    return mapped(lambda t, draw: torch.full_like(t, value) if is_number(t, value) else t)


def is_number(tensor, value):
    if tensor.dtype is torch.bool:
        return False
    return tensor.dtype.is_signed or value >= 0


def with_special(tensor, draw):
    """Some elements become NaN, infinite, -0.0, subnormal; of integers the least, the greatest, 0
    and -1."""
    if tensor.dtype is torch.bool or not tensor.numel() or tensor.dtype in UNSIGNED:
        return tensor
    result = tensor.detach().clone(memory_format=torch.contiguous_format)
    values = SPECIAL
    if not (tensor.is_floating_point() or tensor.is_complex()):
        info = torch.iinfo(tensor.dtype)
        values = (info.min, info.max, 0, 1)
    flat = result.view(-1)
    for _ in range(min(3, flat.numel())):
        flat[draw.randrange(flat.numel())] = draw.choice(values)
    return result


def with_wrong_positions(tensor, draw):
    """Integers that may be positions, classes or counts: one of them is too large, or negative."""
    if tensor.dtype not in (torch.int64, torch.int32) or not tensor.numel():
        return tensor
    result = tensor.clone(memory_format=torch.contiguous_format)
    result.view(-1)[draw.randrange(result.numel())] = draw.choice((-1, -2, -1000, 5, 7, 1000))
    return result


def with_positions_of(dtype):
    return mapped(lambda t, draw: t.to(dtype) if t.dtype in (torch.int64, torch.int32) else t)


def without_elements(sample, draw):
    """One dimension of each tensor becomes empty: the same for tensors of one rank."""
    dim = draw.randrange(4)
    empty = lambda t: t.narrow(dim % t.dim(), 0, 0) if t.dim() else t  # noqa: E731
    return pytree.tree_map_only(torch.Tensor, empty, sample)


def without_any(sample, draw):
    return pytree.tree_map_only(torch.Tensor, lambda t: t.new_zeros([0] * t.dim()), sample)


def one_tensor(change):
    """What is done to one tensor of the sample."""

    def apply(sample, draw):
        leaves, spec = pytree.tree_flatten(sample)
        places = [n for n, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]
        place = draw.choice(places or [0])
        if places:
            leaves[place] = change(leaves[place], draw)
        return pytree.tree_unflatten(leaves, spec)

    return apply


def of_another_rank(tensor, draw):
    if draw.randrange(2) or not tensor.dim() or not tensor.shape[0]:
        return tensor.unsqueeze(draw.randrange(tensor.dim() + 1))
    return tensor.select(0, 0)


def of_another_dtype(tensor, draw):
    return tensor.to(draw.choice([d for d in ALL_DTYPES if d is not tensor.dtype]))


def with_another_number(sample, draw):
    """(True and False choose what is computed, and sizes would be too large.)"""
    leaves, spec = pytree.tree_flatten(sample)
    places = [n for n, leaf in enumerate(leaves) if type(leaf) in (int, float, complex)]
    if places:
        leaves[draw.choice(places)] = draw.choice(NUMBERS)
    return pytree.tree_unflatten(leaves, spec)


NUMBERS = (-1, 300, 1.5, True, 1j, float("nan"), float("inf"), -0.0, 70000)
CHANGES = {
    "untouched": untouched,
    "zeros": filled(0),
    "minus one": filled(-1),
    "two": filled(2),
    "special": mapped(with_special),
    "special again": mapped(with_special),
    "positions": mapped(with_wrong_positions),
    "positions again": mapped(with_wrong_positions),
    "positions int32": with_positions_of(torch.int32),
    "positions uint8": with_positions_of(torch.uint8),
    "positions bool": with_positions_of(torch.bool),
    "empty": without_elements,
    "all empty": without_any,
    "rank": one_tensor(of_another_rank),
    "rank again": one_tensor(of_another_rank),
    "dtype": one_tensor(of_another_dtype),
    "dtype again": one_tensor(of_another_dtype),
    "number": with_another_number,
    "number again": with_another_number,
    "overlap": untouched,
    "overlap again": untouched,
    "parts": untouched,
    "error inputs": None,
}


# --- cases ----------------------------------------------------------------------------------------
@functools.cache
def infos():
    from torch.testing._internal.common_methods_invocations import op_db

    named = {f"{op.name}.{op.variant_test_name}".rstrip("."): op for op in op_db}
    return {name: op for name, op in named.items() if not LEFT_OUT.search(name)}


def everything(names):
    for name in names:
        taken = infos()[name].supported_dtypes("cpu")
        for dtype in ALL_DTYPES:
            text = str(dtype).removeprefix("torch.")
            if dtype not in taken:
                yield name, "untouched", text, 0
                continue
            for change in HARMLESS if TRUSTING.search(name) else CHANGES:
                for number in range(2):
                    yield name, change, text, number


def cases(count, first):
    found = list(everything(wanted_names()))
    return random.Random(first).sample(found, min(count, len(found)))


def wanted_names():
    return focus("ERRORS_OPS") or list(infos())


def focus(variable):
    """The names that the environment, or the mutant that is tried, asks for; [] means all."""
    from tests.soundness.mutants_errors import FOCUS

    chosen = os.environ.get(variable, "")
    if "--mutant" in sys.argv:
        chosen = FOCUS.get(sys.argv[sys.argv.index("--mutant") + 1], "")
    return [name for name in chosen.split(",") if name]


def inputs_of(op, change, dtype, number, seed):
    """(args, kwargs) of one sample, or None where the OpInfo has none.  A dtype that it does not
    take: of another, converted."""
    draw = random.Random(seed)
    torch.manual_seed(sweep.SEED)
    if change == "error inputs":
        if op.error_inputs_func is None:
            return None
        found = [e.sample_input for e in op.error_inputs("cpu")]
    else:
        taken = op.supported_dtypes("cpu")
        source = dtype if dtype in taken else next((d for d in ALL_DTYPES if d in taken), None)
        if source is None:
            return None
        found = list(op.sample_inputs("cpu", source, requires_grad=False))
    small = [
        (s.input, s.args, s.kwargs)
        for s in found
        if all(t.numel() < 2000 for t in pytree.tree_leaves(s.input) if isinstance(t, torch.Tensor))
    ]
    if not small:
        return None
    sample = draw.choice(small)
    if change != "error inputs":
        if source is not dtype:
            convert = lambda t: t.to(dtype) if t.dtype is source else t  # noqa: E731
            sample = pytree.tree_map_only(torch.Tensor, convert, sample)
        sample = CHANGES[change](sample, draw)
    first, args, kwargs = sample
    return (first, *args), kwargs


# --- programs -------------------------------------------------------------------------------------
def program_of(op, change, seed):
    """A function of the sample; None where the op has no form in place."""
    if not change.startswith(("overlap", "parts")):
        return lambda *args, **kwargs: op.op(*args, **kwargs)
    draw, written = random.Random(seed), op.inplace_variant
    if written is None:
        return None
    if change == "parts":
        cut = draw.choice([torch.unbind, lambda x: x.split(1), lambda x: x.chunk(2)])

        def in_part(x, *args, **kwargs):
            whole = x.clone()
            part = cut(whole)[0]
            written(part, *args, **kwargs)
            return whole, part

        return in_part
    share = draw.choice(OVERLAPS)

    def over_itself(x, *args, **kwargs):
        memory = torch.cat([x.reshape(-1), x.reshape(-1)[:1]]) if x.numel() else x.clone()
        base = memory[: x.numel()].view(x.shape)

        def shared(other):
            alike = isinstance(other, torch.Tensor) and other.dtype == x.dtype
            return share(base, memory) if alike and other.shape == x.shape else other

        written(base, *pytree.tree_map(shared, args), **pytree.tree_map(shared, kwargs))
        return memory.clone()

    return over_itself


OVERLAPS = (
    lambda base, memory: base,
    lambda base, memory: base.detach(),
    lambda base, memory: base[:],
    lambda base, memory: (
        base.mT if base.dim() > 1 and base.mT.shape == base.shape else base.flip(0)
    ),
    lambda base, memory: memory[1 : 1 + base.numel()].view(base.shape),
    lambda base, memory: base[:1].expand(base.shape) if base.dim() else base,
)


# --- running and comparing ------------------------------------------------------------------------
def outcome(function, args, kwargs, training):
    """("value", leaves) or ("error", type, first line)."""
    args, kwargs = copy.deepcopy((args, kwargs))
    tensors = [t for t in pytree.tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor)]
    torch.manual_seed(sweep.SEED)
    try:
        with torch.set_grad_enabled(training):
            if training:
                for t in tensors:
                    if t.is_leaf and (t.is_floating_point() or t.is_complex()):
                        t.requires_grad_()
            values = pytree.tree_leaves(function(*args, **kwargs))
            if training:
                values += gradients(values, tensors)
    except Exception as error:
        return "error", type(error), str(error).split("\n")[0]
    return "value", [v.detach() if isinstance(v, torch.Tensor) else v for v in values]


def gradients(values, tensors):
    outputs = [v for v in values if isinstance(v, torch.Tensor) and v.requires_grad]
    if not outputs:
        return []
    total = sum(v.abs().sum() for v in outputs)
    return torch.autograd.grad(total, [t for t in tensors if t.requires_grad], allow_unused=True)


def sign_difference(ours, eager):
    """Zeros of another sign, or NaN on one side only."""
    for number, (a, b) in enumerate(zip(ours, eager)):
        if not (isinstance(b, torch.Tensor) and b.is_floating_point()):
            continue
        if not torch.equal(a.isnan(), b.isnan()):
            return f"result {number}: NaN at other places"
        zero = (a == 0) & (b == 0)
        if not torch.equal(a.signbit() & zero, b.signbit() & zero):
            return f"result {number}: zeros of another sign"
    return ""


def check(case, mode: Mode) -> str:
    name, change, dtype_name, number = case
    op, dtype = infos()[name], getattr(torch, dtype_name)
    given = inputs_of(op, change, dtype, number, repr(case))
    if given is None:
        return ""
    args, kwargs = given

    plain = program_of(op, change, repr(case))
    if plain is None:
        return ""
    eager = outcome(plain, args, kwargs, mode.training)
    ours = outcome(mode.compile(plain), args, kwargs, mode.training)
    if eager[0] == "error":
        if ours[0] == "value":
            return f"a value where eager raises {eager[1].__name__}: {eager[2]}: {ours[1]!r:.300}"
        with minidynamo.config.patch(raise_internal_errors=False):
            minidynamo.reset()
            ours = outcome(mode.compile(plain), args, kwargs, mode.training)
        if ours != eager:
            return f"eager {eager!r:.300}   ours {ours!r:.300}"
        return lost_check(plain, args, kwargs, mode)
    if ours[0] == "error":
        return f"raises {ours[1].__name__}: {ours[2]:.300} where eager gives {eager[1]!r:.200}"
    if name in LOSSES_OF_NOTHING and not args[0].numel():
        return ""  # eager's kernel returns without writing its result
    found, expected = compared(name, args, ours[1]), compared(name, args, eager[1])
    problem = sweep.difference(op, found, (args, kwargs, expected), dtype)
    if problem is None and not has_any_sign(name) and not is_uninitialised(name):
        problem = sign_difference(found, expected)
    return problem or ""


def compared(name, args, value):
    """`value` without what eager itself leaves open: whether the mean of a row with an infinity is
    infinite or NaN hangs on the vector lane in which the infinity comes; at poles it rounds."""
    if name == "native_layer_norm" and not args[0].isfinite().all():
        return pytree.tree_leaves(value)[:1]
    if name.startswith("polygamma") and args[0].is_floating_point():  # docs/limits.md
        is_pole = (args[0] < 0) & (args[0] == args[0].double().trunc())
        return [value[0].masked_fill(is_pole, 0), *value[1:]]
    return value


def lost_check(function, args, kwargs, mode):
    """The call raises: so must a program that does not read all of its result."""

    def part(*args, **kwargs):
        leaves = pytree.tree_leaves(function(*args, **kwargs))
        return [t.reshape(-1)[:1] + 1 for t in leaves if isinstance(t, torch.Tensor)]

    minidynamo.reset()
    if outcome(mode.compile(part), args, kwargs, mode.training)[0] == "value":
        return "a value where eager raises, the result being read in part"
    return ""


def is_uninitialised(name):
    """Eager's recurrence for these returns a variable that it has not set where x is no number
    (`chebyshev_polynomial_u_forward` in ATen/native/Math.h: other numbers in each run)."""
    return "chebyshev_polynomial_" in name


def has_any_sign(name):
    """Where eager itself gives zeros of either sign for one value: its vector loop and its scalar
    loop differ, or its threads do."""
    return name in ANY_SIGN or name.startswith(("linalg", "fft"))


LOSSES_OF_NOTHING = ("nn.functional.multi_margin_loss", "nn.functional.multilabel_margin_loss")
ANY_SIGN = {
    *"max min maximum minimum fmax fmin amax amin clamp clamp_max clamp_min".split(),
    "nn.functional.softshrink",
    "native_layer_norm",  # eager multiplies (x - mean) * rstd out, in vectors, then adds
}

if __name__ == "__main__":
    runner.main("tests.soundness.errors", default_modes="eager,aot_eager,inductor,inductor-dynamic")
