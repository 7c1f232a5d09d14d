"""What eager's kernels do that fake tensors do not know: the kernels themselves are asked.

In:   an ATen overload, its arguments, and sometimes its fake result.
Out:  why eager refuses the arguments (`refusal` and its kin); the result in the strides
      in which eager's kernel gives it (`corrected`).

    >>> refusal(aten.add.Tensor, (fake_uint16, fake_uint16), {})
    '"add_stub" not implemented for \\'UInt16\\''
    >>> ask(aten.logical_and.default, (rows, columns), {}, as_it_is).layouts
    (((10, 10, 5), (50, 1, 10)),)

Loops, and torch's decompositions, compute with every dtype that they can spell; shape functions ask
for few of them, and some give other strides than kernels do.  No list of ours could say what ATen
does, so the op runs once on zeros, laid out as the question needs it; answers are kept for the
process.  The usual call asks nothing: `USUAL` and `RIGHT` say what has been tried.
Left out: GPUs, where asking would launch kernels while others may be recorded, and the strides of
results of random ops.  Two questions are asked about a GPU's tensors too: those of tensors without
elements, there, and those of numbers that a dtype may not hold, of tensors on the CPU.
"""

import functools
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.utils._pytree as pytree
from torch.utils._python_dispatch import _disable_current_modes

from ..fake_mode import FakeMode
from ..foreign import ours
from ..ops import exact_key
from ..sizes.symbols import hint, same
from .mode import EAGER

aten = torch.ops.aten
Op = torch._ops.OpOverload
Numbers = tuple[Any, ...]  # sizes or strides, symbols among them
Layout = tuple[tuple[int, ...], tuple[int, ...]]  # sizes, strides
SYMBOLIC = {torch.SymInt: int, torch.SymFloat: float, torch.SymBool: bool}
RARE_TO_MAKE = (torch.uint16, torch.uint32, torch.uint64)
FEW = 1 << 12  # elements of a tensor for which a kernel runs in no time
INTEGER = frozenset([int])
MANY = 1 << 20  # of one for which it may run where smaller ones tell nothing


@dataclass(frozen=True)
class Sample:
    """Stands for a tensor of zeros."""

    dtype: torch.dtype
    device: torch.device
    sizes: tuple[int, ...]
    strides: tuple[int, ...]


@dataclass(frozen=True)
class Answer:
    error: Exception | None
    layouts: tuple[Layout, ...] = ()  # of the tensors among the results


SampleOf = Callable[[torch.Tensor], Sample]
_answers: dict[tuple, Answer] = {}


def ask(op: Op, args: tuple, kwargs: dict, sample_of: SampleOf) -> Answer:
    """What eager's kernel does with these arguments, and a sample in place of each tensor."""
    leaves, spec = pytree.tree_flatten((args, kwargs))
    question = [sample_of(x) if isinstance(x, torch.Tensor) else in_this_call(x) for x in leaves]
    key = (op, spec, *map(exact_key, question))
    if key not in _answers:
        _answers[key] = _run(op, question, spec)
    return _answers[key]


def in_this_call(leaf: Any) -> Any:
    """A number in place of a symbol, which would be decided on."""
    if isinstance(leaf, torch.SymInt):
        return hint(leaf, 1)
    return SYMBOLIC[type(leaf)](1) if type(leaf) in SYMBOLIC else leaf


def _run(op: Op, question: list, spec: Any) -> Answer:
    def zeros(leaf: Any) -> Any:
        if not isinstance(leaf, Sample):
            return leaf
        made = torch.empty_strided(leaf.sizes, leaf.strides, dtype=leaf.dtype, device=leaf.device)
        return made.fill_(1 if takes_pivots(op) else 0)

    with (
        _disable_current_modes(),
        torch.no_grad(),
        torch._C._DisablePythonDispatcher(),
        torch.random.fork_rng(devices=[], enabled=is_random(op)),
    ):
        try:
            args, kwargs = pytree.tree_unflatten([zeros(leaf) for leaf in question], spec)
            made = tensors_in(op(*args, **kwargs))
        except ours(Exception) as error:
            return Answer(error.with_traceback(None))
    return Answer(None, tuple([(tuple(t.shape), t.stride()) for t in made]))


@functools.cache
def takes_pivots(op: Op) -> bool:
    """Does the op take numbers of rows that count from 1, as LAPACK's do?  Some kernels trust them
    (linalg_ldl_solve, linalg_lu_solve): with 0 they write in front of the matrix."""
    return any("pivots" in argument.name.lower() for argument in op._schema.arguments)


def tensors_in(*values: Any) -> list[torch.Tensor]:
    found = []
    for value in values:
        if isinstance(value, torch.Tensor):
            found.append(value)
        elif isinstance(value, (tuple, list)):
            found += tensors_in(*value)
    return found


def are_plain(tensors: Sequence[torch.Tensor]) -> bool:
    return all(t.device.type == "cpu" and t.layout is torch.strided for t in tensors)


# --- samples --------------------------------------------------------------------------------------
def as_it_is(tensor: torch.Tensor) -> Sample:
    """Its sizes and strides in this call."""
    sizes = tuple([hint(n, 2) for n in tensor.shape])
    strides = tuple([hint(n, 1) for n in tensor.stride()])
    return Sample(tensor.dtype, tensor.device, sizes, strides)


def least(tensor: torch.Tensor) -> Sample:
    """At most two elements a dimension, in the order in which the tensor's dimensions lie.
    (argmax of one complex number succeeds, of two it does not.)"""
    sizes = tuple([min(hint(n, 2), 2) for n in tensor.shape])
    strides = [hint(stride, 1 << 40) for stride in tensor.stride()]
    return Sample(tensor.dtype, tensor.device, sizes, dense_strides(sizes, strides))


def least_row_by_row(tensor: torch.Tensor) -> Sample:
    """At most two elements a dimension; symbols have two."""
    sizes = tuple([1 if type(n) is int and n == 1 else 2 for n in tensor.shape])
    return Sample(
        tensor.dtype, tensor.device, sizes, dense_strides(sizes, range(len(sizes), 0, -1))
    )


def dense_strides(sizes: Sequence[Any], like: Sequence[int]) -> Numbers:
    """Strides without gaps, in the order of the strides `like`; what is expanded stays so."""
    made: list[Any] = [0] * len(sizes)
    expected: Any = 1
    for dim in sorted(reversed(range(len(sizes))), key=lambda d: like[d]):
        if like[dim] == 0:
            continue
        made[dim] = expected
        expected = expected * sizes[dim]
    return tuple(made)


def count(tensor: torch.Tensor) -> int:
    """How many elements it has in this call."""
    total = 1
    for n in tensor.shape:
        total *= hint(n, 1)
    return total


def is_empty(tensor: torch.Tensor) -> bool:
    """Has it no elements in this call?"""
    sizes = tensor.shape
    if not INTEGER.issuperset(map(type, sizes)):
        return 0 in map(hint, sizes)
    return 0 in sizes


def is_exact(tensor: torch.Tensor) -> bool:
    """Are all its sizes and strides numbers?"""
    return all(type(n) is int for n in (*tensor.shape, *tensor.stride()))


# --- what eager refuses ---------------------------------------------------------------------------
ABOUT_DTYPES = re.compile(
    r"not implemented for|not supported for|dtype|scalar type|data type|expected .* type", re.I
)
F, I, B = torch.float32, torch.int64, torch.bool  # noqa: E741
# dtypes of a call's tensors -> names of ops that have a kernel for them
USUAL = {
    (F, I): {"embedding", "embedding_dense_backward", "gather", "index_select"},
    (F, I, F): {"_unsafe_index_put", "index_put", "scatter", "scatter_add"},
    (F, B, I, F): {"_unsafe_masked_index_put_accumulate"},
    (F, B): {"masked_fill"},
    (B, F): {"where"},
    (B, F, F): {"where"},
    (I,): {"ge", "gt", "le", "lt", "eq", "ne", "add", "mul", "clamp"},
    (B, B): {"__and__", "bitwise_and"},
    (B,): {"bitwise_not", "triu", "tril"},
}
# and of float32 alone these, and what works element by element, but for what wants integers
OF_FLOATS = """
    _softmax _softmax_backward_data _log_softmax _log_softmax_backward_data native_layer_norm
    native_layer_norm_backward sum mean amax amin var_mean cat clone _unsafe_view new_zeros mm bmm
    addmm
"""
FLOAT_OPS = frozenset(OF_FLOATS.split())
WANTS_INTEGERS = re.compile("bitwise|shift|gcd|lcm|__|where|mask")


def refusal(op: Op, args: tuple, kwargs: dict) -> str:
    """Why eager has no kernel for tensors of these dtypes; "" where it has one, or where that is
    not known."""
    tensors = tensors_in(*args, *kwargs.values())
    if refused := refusal_of_numbers(op, args, kwargs, tensors):
        return refused
    if op in FILLS and not holds(tensors[0].dtype, args[FILLS[op]].dtype):
        return f"only the kernel knows whether {tensors[0].dtype} holds a tensor's number"
    if not tensors:
        return refusal_to_make(op, args, kwargs)
    if has_kernel(op, (*args, *kwargs.values()), tensors):
        return ""
    if not are_plain(tensors) or is_random(op):
        return ""
    if any(a.alias_info for a in op._schema.arguments):  # a view does not compute
        return ""
    message = _dtype_error(op, args, kwargs, least_row_by_row)
    if message is None and max(map(count, tensors)) <= FEW:
        # it wants other sizes: a convolution with padding, a pixel_shuffle
        of_this_call = row_by_row if all(map(is_exact, tensors)) else as_it_is
        message = _dtype_error(op, args, kwargs, of_this_call)
    return message or ""


INTEGERS = torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64
RANGES = {dtype: (torch.iinfo(dtype).min, torch.iinfo(dtype).max) for dtype in INTEGERS} | {
    dtype: (torch.finfo(dtype).min, torch.finfo(dtype).max)
    for dtype in (torch.float16, torch.bfloat16, F)
}
LARGE = 2**62
INT64 = RANGES[torch.int64]
TOO_LARGE = "cannot be converted to type"
# what these make has as many elements as an argument says: its position -> a small number
MAKERS: dict[Op, tuple[int, Any] | None] = {
    aten.full.default: (0, [2]),
    aten.scalar_tensor.default: None,
    aten.arange.start_step: None,
}
MAKERS |= {aten.linspace.default: (2, 2), aten.logspace.default: (2, 2)}
# these look whether self's dtype holds the number in a tensor: its position
FILLS = {aten.masked_fill.Tensor: 2, aten.index_fill.int_Tensor: 3}


@functools.cache
def places_of_numbers(op: Op) -> tuple[tuple[int, str], ...]:
    """(position, name) of the arguments that are numbers to compute with, and not sizes."""
    arguments = enumerate(op._schema.arguments) if hasattr(op, "_schema") else ()
    return tuple([(n, a.name) for n, a in arguments if "number" in str(a.type)])


def refusal_of_numbers(op: Op, args: tuple, kwargs: dict, tensors: list[torch.Tensor]) -> str:
    """Why eager cannot compute with a number of the call: a dtype does not hold it, or the op does
    not take numbers of its kind.

    x.half().masked_fill(mask, -1e10) raises.  Our kernels would make it an infinity."""
    places = places_of_numbers(op)
    if not places:
        return ""
    numbers = [args[n] if n < len(args) else kwargs.get(name) for n, name in places]
    dtypes = {t.dtype for t in tensors} or {torch.get_default_dtype()}
    if kwargs.get("dtype") is not None:
        dtypes = {kwargs["dtype"]}
    if all(fits(number, dtype) for number in numbers for dtype in dtypes):
        return ""
    if not tensors:
        if op not in MAKERS:
            return ""
        if op is aten.arange.start_step:
            args = (args[0], *args[:1], *args[2:])  # a range that ends where it begins
        elif small := MAKERS[op]:
            args = (*args[: small[0]], small[1], *args[small[0] + 1 :])

    def error_with(change: Callable[[Any], Any], dtype_of: Callable = lambda dtype: dtype) -> str:
        """What the kernel says where the numbers are changed."""

        def on_cpu(x: torch.Tensor) -> Sample:
            cpu = torch.device("cpu")
            return replace(least_row_by_row(x), device=cpu, dtype=dtype_of(x.dtype))

        changed = list(args)
        for n, _ in places:
            changed[n : n + 1] = [change(argument) for argument in changed[n : n + 1]]
        names = {name for _, name in places}
        options = {k: change(v) if k in names else v for k, v in kwargs.items() if k != "device"}
        error = ask(op, tuple(changed), options, on_cpu).error
        return "" if error is None else str(error).split("\n")[0] or type(error).__name__

    refused = error_with(largest)
    # another error may be that of the small tensors
    return refused if TOO_LARGE in refused or (refused and not error_with(one, usual)) else ""


def largest(number: Any) -> Any:
    """A symbol may become as large as an integer of Python's."""
    return LARGE if isinstance(number, torch.SymInt) else number


def holds(dtype: torch.dtype, other: torch.dtype) -> bool:
    """Every number of the other dtype?"""
    if dtype == other or dtype.is_complex or other == torch.bool:
        return True
    (low, high), (least, most) = (RANGES.get(d, (-math.inf, math.inf)) for d in (dtype, other))
    is_kind = dtype.is_floating_point or not (other.is_floating_point or other.is_complex)
    return is_kind and low <= least and most <= high


def one(number: Any) -> Any:
    return number if number is None else 1


def fits(number: Any, dtype: torch.dtype) -> bool:
    """Surely?  (An infinity is a number of a float's dtype, and of no integer's.)"""
    kind, is_float = type(number), dtype.is_floating_point or dtype.is_complex
    if kind is int:
        low, high = INT64 if is_float and dtype != torch.float16 else RANGES.get(dtype, (0, 1))
        return low <= number <= high
    if kind is float:
        low, high = RANGES.get(dtype, (-math.inf, math.inf))
        return is_float and (not math.isfinite(number) or low <= number <= high)
    if isinstance(number, torch.SymInt):
        return dtype not in RANGES or dtype in (torch.int64, torch.bfloat16, F)
    return kind is not bool and kind is not complex


def refusal_to_make(op: Op, args: tuple, kwargs: dict) -> str:
    """The same of an op that takes no tensor: few fill one with these whole numbers."""
    device = kwargs.get("device")
    if kwargs.get("dtype") not in RARE_TO_MAKE or (device is not None and device.type != "cpu"):
        return ""
    numbers = [n for n in pytree.tree_leaves(args) if n is not None]
    if is_random(op) or any(type(n) is not int or abs(n) > FEW for n in numbers):
        return ""
    error = ask(op, args, kwargs, as_it_is).error
    return "" if error is None else str(error).split("\n")[0]


def refusal_of_unread(op: Op, args: tuple, kwargs: dict) -> str:
    """Why eager refuses a call whose result nobody reads, for dtypes or for shapes: fake tensors
    look at fewer of these than kernels do.  "" where that is not known.

    In place of a symbol stands the size of this call: what is refused wrongly is computed."""
    if refused := refusal(op, args, kwargs):
        return refused
    tensors = tensors_in(*args, *kwargs.values())
    if not tensors or not are_plain(tensors) or is_random(op) or op.namespace != "aten":
        return ""
    if any(a.alias_info for a in op._schema.arguments):
        return ""
    if torch.Tag.pointwise in op.tags or max(map(count, tensors)) > FEW:
        return ""
    error = ask(op, args, kwargs, as_it_is).error
    return str(error).split("\n")[0] or type(error).__name__ if error is not None else ""


def has_kernel(op: Op, arguments: tuple, tensors: Sequence[torch.Tensor]) -> bool:
    """Is that known without asking?"""
    if any(isinstance(x, (complex, torch.dtype)) and x is not F for x in arguments):
        return False
    dtypes = tuple([t.dtype for t in tensors])
    if dtypes.count(F) == len(dtypes):
        return takes_floats(op)
    return dtypes in USUAL and name_of(op) in USUAL[dtypes]


@functools.cache
def takes_floats(op: Op) -> bool:
    is_pointwise = torch.Tag.pointwise in op.tags and not WANTS_INTEGERS.search(name_of(op))
    return is_pointwise or name_of(op) in FLOAT_OPS


def name_of(op: Op) -> str:
    return op._schema.name.split("::")[1]


def is_random(op: Op) -> bool:
    return torch.Tag.nondeterministic_seeded in op.tags


def row_by_row(tensor: torch.Tensor) -> Sample:
    sizes = tuple(tensor.shape)
    return Sample(
        tensor.dtype, tensor.device, sizes, dense_strides(sizes, range(len(sizes), 0, -1))
    )


def _dtype_error(op: Op, args: tuple, kwargs: dict, sample_of: SampleOf) -> str | None:
    """What eager says to these dtypes: "" if it computes, None where the message is about something
    else, and usual dtypes are refused as well."""
    error = ask(op, args, kwargs, sample_of).error
    if error is None:
        return ""
    message = str(error).split("\n")[0] or type(error).__name__
    if ABOUT_DTYPES.search(message):
        return message
    for easier in (usual, usual_and_real):

        def sample(tensor: torch.Tensor, easier: Callable = easier) -> Sample:
            return replace(sample_of(tensor), dtype=easier(tensor.dtype))

        if ask(op, args, kwargs, sample).error is None:
            return message
    return None


def usual(dtype: torch.dtype) -> torch.dtype:
    """The dtype of the same kind for which every kernel is written."""
    if dtype.is_complex:
        return torch.complex64
    return torch.float32 if dtype.is_floating_point else torch.int64


def usual_and_real(dtype: torch.dtype) -> torch.dtype:
    return torch.float32 if dtype.is_complex else usual(dtype)


def refusal_of_nothing(op: Op, args: tuple, kwargs: dict) -> str:
    """Why eager refuses these tensors, one of which has no elements (the maximum of nothing); "" if
    it computes.

    In place of a symbol stands the size of this call: what is refused for one size is for all."""
    tensors = tensors_in(*args, *kwargs.values())
    if not any(map(is_empty, tensors)) or is_random(op):
        return ""
    if any(None in map(hint, t.shape) or count(t) > FEW for t in tensors):
        return ""
    if any(t.layout is not torch.strided for t in tensors):
        return f"{op} of a tensor that is not strided"
    error = ask(op, args, kwargs, as_it_is).error
    if not isinstance(error, (RuntimeError, IndexError, ValueError)):
        return ""
    return str(error).split("\n")[0]


# --- how results lie in memory --------------------------------------------------------------------
# Their fake results lie as eager's do: tried on 300 tensors each of up to four dimensions,
# transposed, sliced, expanded, and with any stride in dimensions of size 1.
RIGHT = frozenset(
    [aten.sum.dim_IntList, aten.mean.dim, aten.var_mean.correction]
    + [getattr(aten, name).Tensor for name in "add sub mul div ge gt le lt eq ne".split()]
    + [
        getattr(aten, name).default
        for name in """maximum minimum clone _to_copy cat amax amin _softmax mm bmm addmm baddbmm
        embedding embedding_dense_backward gather""".split()
    ]
)
# They compute otherwise than element by element, but the order of strides decides theirs, too.
BY_ORDER = {
    getattr(aten, name).default
    for name in """max_unpool2d channel_shuffle native_batch_norm _native_batch_norm_legit
    _batch_norm_with_update _native_batch_norm_legit_no_training log_sigmoid_forward
    reflection_pad2d reflection_pad3d replication_pad2d replication_pad3d native_dropout_backward
    _fft_r2c _fft_c2c""".split()
} | {aten._native_batch_norm_legit.no_stats, aten.normal.Tensor_Tensor}
# Numbers among their arguments speak of sizes: they are asked with the sizes of this call.
BY_SIZES = {aten._fft_c2r.default}
# Fake tensors do not look whether there is such a part, nor whether it has the other's shape.
WRITES_PART = {getattr(aten, f"{name}_scatter").default for name in ("diagonal", "select", "slice")}
ANSWERED_BY_SIZES = BY_SIZES | WRITES_PART
# Their results lie by the dimensions that they transform, of usual arguments as well.
TRANSFORMS = {aten._fft_r2c.default, aten._fft_c2c.default, aten._fft_c2r.default}


def corrected(mode: FakeMode, op: Op, out: Any, args: tuple, kwargs: dict) -> Any:
    """The fake result `out` in the strides that eager's kernel gives it.

    Raises what eager raises where it refuses to write a part."""
    tensors = tensors_in(*args, *kwargs.values())
    # torch.zeros(1, 0, 1) + 1 has the strides (0, 1, 0)
    of_nothing = any(map(is_empty, tensors)) and all(map(is_exact, tensors))
    if not may_choose_strides(op) and not (of_nothing and op in RIGHT):
        return out
    is_usual = op not in WRITES_PART | TRANSFORMS and not of_nothing
    if is_usual and all(map(is_row_by_row, tensors)):
        return out
    if not are_plain(tensors):
        return out
    answer = _layouts(op, args, kwargs, tensors)
    if answer.error is not None and op in WRITES_PART:
        raise type(answer.error)(str(answer.error))
    results = tensors_in(out)
    if len(answer.layouts) != len(results):
        return out
    wanted = [as_given(*pair) for pair in zip(results, answer.layouts)]
    if all(all(map(same, r.stride(), strides)) for r, strides in zip(results, wanted)):
        return out
    with mode:
        relaid = iter([r.new_empty_strided(r.shape, s) for r, s in zip(results, wanted)])
    return pytree.tree_map_only(torch.Tensor, lambda _: next(relaid), out)


@functools.cache
def may_choose_strides(op: Op) -> bool:
    """Does the op's kernel choose the memory of its results, and others strides than its fake
    kernel?"""
    if (
        op in RIGHT
        or op.namespace != "aten"
        or any(result.alias_info for result in op._schema.returns)
    ):
        return False
    return op in BY_ORDER or not is_random(op)


def is_row_by_row(tensor: torch.Tensor) -> bool:
    """Has it the very strides of a new tensor, in dimensions of size 1 as well?"""
    expected: Any = 1
    for n, stride in zip(reversed(tensor.shape), reversed(tensor.stride())):
        if type(stride) is int and type(expected) is int:
            if stride != expected:
                return False
        elif not same(stride, expected):
            return False
        expected = expected * n if type(n) is not int else expected * max(n, 1)
    return True


def _layouts(op: Op, args: tuple, kwargs: dict, tensors: list[torch.Tensor]) -> Answer:
    """The layouts of the op's results; none where that is not known."""
    largest = max(map(count, tensors))
    if largest <= FEW and all(map(is_exact, tensors)):
        return ask(op, args, kwargs, as_it_is)
    if torch.Tag.pointwise in op.tags or op in BY_ORDER:
        answer = ask(op, args, kwargs, least)
        if answer.error is None:
            return answer
    if largest <= MANY and op in BY_ORDER | ANSWERED_BY_SIZES:
        return ask(op, args, kwargs, as_it_is)
    return Answer(None)


def as_given(result: torch.Tensor, answer: Layout) -> Numbers:
    """The strides of a result whose sample came out as `answer`."""
    faked = tuple(result.stride())
    sizes, strides = answer
    if all(type(n) is int for n in result.shape) and sizes == tuple(result.shape):
        return strides  # a symbol is not compared: that would be an assumption of the program
    if len(sizes) != len(faked) or dense_strides(sizes, strides) != strides:
        return faked
    found = dense_strides(result.shape, strides)
    differ = [not same(a, b) for n, a, b in zip(result.shape, found, faked) if not same(n, 1)]
    return found if any(differ) else faked


def power(mode: FakeMode, op: Op, args: tuple, kwargs: dict) -> torch.Tensor | None:
    """True ** True is a truth value; shape functions say an integer.  (The kernel knows no other
    powers of truth values.)"""
    if args[0].dtype != torch.bool or type(args[1]) is not bool:
        return None
    with mode:
        return args[0].clone()


EAGER.refusal = refusal
EAGER.refusal_of_unread = refusal_of_unread
EAGER.refusal_of_nothing = refusal_of_nothing
EAGER.corrected = corrected
EAGER.own[aten.pow.Tensor_Scalar] = power
