"""What a result shares with the arguments: every function and Tensor method that may return its
argument, a view or a copy.

    python -m tests.soundness.aliases --modes eager,aot_eager,inductor

A case is (where the function comes from, its name, the number of the sample, who writes, dtype).
The program calls the function; then the result, or the argument, is written, inside of the frame or
outside.  Afterwards everything that can be seen must be eager's: the values of results and
arguments, which of them are one object, which share memory. The functions are found by reflection:
Tensor methods that take no argument, and every OpInfo with its samples.
"""

import copy
import functools
import random
import warnings

import torch
import torch.utils._pytree as pytree

from benchmarks.error_bound import too_far
from tests.soundness import errors, runner
from tests.soundness.modes import Mode
from tests.soundness.tables import lambdas

WRITES = ("result outside", "argument outside", "result inside", "argument inside")
DTYPES = ("float32", "int64", "float64")
LAYOUTS = {
    "plain": lambda: torch.arange(6.0).reshape(2, 3),
    "transposed": lambda: torch.arange(6.0).reshape(3, 2).t(),
    "part": lambda: torch.arange(12.0).reshape(3, 4)[1:, 1:],
    "scalar": lambda: torch.tensor(3.0),
    "vector": lambda: torch.arange(4.0),
}
# calls that take a tensor and give one that may be the same: constructors and conversions, with the
# arguments that matter
CONVERSIONS = lambdas(
    "t",
    globals(),
    """
    torch.tensor: torch.tensor(t); torch.tensor dtype: torch.tensor(t, dtype=t.dtype);
    torch.tensor device: torch.tensor(t, device="cpu"); torch.as_tensor: torch.as_tensor(t);
    torch.as_tensor dtype: torch.as_tensor(t, dtype=t.dtype);
    torch.as_tensor other: torch.as_tensor(t, dtype=torch.float16); torch.asarray: torch.asarray(t);
    torch.asarray copy: torch.asarray(t, copy=True);
    torch.asarray same: torch.asarray(t, copy=False); new_tensor: t.new_tensor(t);
    to: t.to(t.dtype); to copy: t.to(t.dtype, copy=True); to device: t.to("cpu"); to other: t.to(t);
    to layout: t.to(memory_format=torch.contiguous_format); type: t.type(t.dtype);
    type_as: t.type_as(t); clone: t.clone(memory_format=torch.contiguous_format);
    contiguous: t.contiguous(memory_format=torch.contiguous_format); reshape: t.reshape(t.shape);
    reshape flat: t.reshape(-1); view_as: t.view_as(t); expand_as: t.expand_as(t);
    expand: t.expand(t.shape); broadcast_to: torch.broadcast_to(t, t.shape);
    broadcast_tensors: torch.broadcast_tensors(t, t); flatten: t.flatten(); ravel: t.ravel();
    atleast_1d: torch.atleast_1d(t); atleast_2d: torch.atleast_2d(t);
    atleast_3d: torch.atleast_3d(t); all items: t[...]; repeat: t.repeat([1] * t.dim());
    tile: t.tile(()); roll: t.roll(0); cat: torch.cat([t]) if t.dim() else t;
    stack: torch.stack([t]); where: torch.where(t == t, t, t); plus: +t; sum of nothing: t.sum(());
    dropout: torch.nn.functional.dropout(t, 0.0);
    dropout off: torch.nn.functional.dropout(t, 0.5, training=False);
    pad: torch.nn.functional.pad(t, [0, 0]) if t.dim() else t;
    identity: torch.nn.functional.relu6(t) if t.is_floating_point() else t; copy.copy: copy.copy(t);
    copy.deepcopy: copy.deepcopy(t); einsum: torch.einsum("...->...", t); real: t.real;
    data: t.data; transposed twice: t.mT.mT if t.dim() > 1 else t
""",
)
# methods that end in something else than a tensor's value, or whose result is nobody's promise
LEFT_OUT = frozenset(
    "backward __reduce__ __del__ share_memory_ pin_memory record_stream to_sparse to_mkldnn dlpack "
    "__dlpack__ __dlpack_device__ storage untyped_storage data_ptr numpy __array__ __dir__ "
    "__repr__ __sizeof__ retain_grad new random_ new_empty module_load register_hook share_memory "
    "ipu cuda xpu vulkan mtia hpu".split()
)


@functools.cache
def methods():
    """Names of the Tensor methods that take no argument, and give a tensor."""
    found = []
    for name in dir(torch.Tensor):
        if (
            name.startswith(("_", "to_sparse"))
            or name in LEFT_OUT
            or not callable(getattr(torch.Tensor, name))
        ):
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for dtype in (torch.float32, torch.int64):
                try:
                    result = getattr(torch.ones(2, 2, dtype=dtype), name)()
                except Exception:
                    continue
                if isinstance(result, (torch.Tensor, tuple, list)):
                    found.append(name)
                    break
    return found


def everything():
    for write in WRITES:
        for dtype in DTYPES:
            for layout in LAYOUTS:
                for name in CONVERSIONS:
                    yield "conversion", name, layout, write, dtype
                for name in methods():
                    yield "method", name, layout, write, dtype
        for name in errors.infos():
            for number in range(3):
                yield "op", name, number, write, "float32"


def cases(count, first):
    found = list(everything())
    names = errors.focus("ALIASES_NAMES")
    if names:
        found = [case for case in found if case[1] in names]
    return random.Random(first).sample(found, min(count, len(found)))


def subject(case):
    """(function, args, kwargs), or None."""
    kind, name, which, _, dtype = case
    if kind == "op":
        op = errors.infos()[name]
        given = errors.inputs_of(op, "untouched", torch.float32, which, repr((name, which)))
        return given and (op.op, *given)
    tensor = LAYOUTS[which]().to(getattr(torch, dtype))
    if kind == "conversion":
        return CONVERSIONS[name], (tensor,), {}
    return (lambda t: getattr(t, name)()), (tensor,), {}


def tensors_of(value):
    return [t for t in pytree.tree_leaves(value) if isinstance(t, torch.Tensor)]


def program(function, write):
    """The call, and a write inside of the frame."""
    if write == "result inside":

        def run(*args, **kwargs):
            result = function(*args, **kwargs)
            written(result)
            return result
    elif write == "argument inside":

        def run(*args, **kwargs):
            result = function(*args, **kwargs)
            written(args)
            return result
    else:

        def run(*args, **kwargs):
            return function(*args, **kwargs)

    return run


def written(value):
    """Add 1 to the first tensor that can be written."""
    first = value
    while isinstance(first, (tuple, list)) and first:
        first = first[0]
    if isinstance(first, torch.Tensor):
        first.add_(1)


def observed(run, args, kwargs, write):
    """Values, identities and shared memory, as plain data."""
    args, kwargs = copy.deepcopy((args, kwargs))
    torch.manual_seed(errors.sweep.SEED)
    before = [t._version for t in tensors_of((args, kwargs))]
    try:
        with torch.no_grad():
            result = run(*args, **kwargs)
            if write == "result outside":
                written(result)
            if write == "argument outside":
                written(args)
    except Exception as error:
        return "raised", type(error).__name__
    given, made = tensors_of((args, kwargs)), tensors_of(result)
    everyone = given + made
    places = [t.untyped_storage().data_ptr() if t.numel() else None for t in everyone]
    return (
        "returned",
        [next(k for k, other in enumerate(everyone) if other is t) for t in everyone],
        [place and places.index(place) for place in places],
        [
            (t.dtype, tuple(t.shape), t.stride(), t.storage_offset() if p else 0)
            for t, p in zip(everyone, places)
        ],
        [t._version > version for t, version in zip(given, before)],
        [t.detach().clone() for t in everyone],
    )


def check(case, mode: Mode) -> str:
    found = subject(case)
    if not found:
        return ""
    function, args, kwargs = found
    write = case[3]
    run = program(function, write)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        eager = observed(run, args, kwargs, write)
        ours = observed(mode.compile(run), args, kwargs, write)
    if eager[0] == "raised":
        # what a failing program had written before belongs to the tests of `undo`
        return "" if ours == eager else f"eager {eager}   ours {ours!r:.300}"
    if ours[0] == "raised":
        return f"ours {ours}   eager {eager!r:.300}"
    if "norm" in case[1]:
        # eager's batch norms write their statistics without counting it; ours may count
        ours[4][:] = [theirs and own for theirs, own in zip(eager[4], ours[4])]
    for what, a, b in zip(("", "identities", "memories", "layouts", "versions"), eager, ours):
        # eager's batch norm writes its running statistics without counting; ours counts
        if a != b and not (what == "versions" and "batch_norm" in case[1]):
            return f"{what}: eager {a}   ours {b}"
    for number, (a, b) in enumerate(zip(eager[-1], ours[-1])):
        if too_far(b, a, 40, "updates of many kinds, one after the other"):
            return f"tensor {number}: eager {a}   ours {b}"
    return ""


if __name__ == "__main__":
    runner.main(
        "tests.soundness.aliases", default_modes="eager,aot_eager,inductor,inductor-dynamic"
    )
