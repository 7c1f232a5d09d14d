"""Tensors without data, under which both packages trace; what eager's kernels do that fake tensors
do not know; and the thread's state that torch's dispatcher looks at beside an operation's tensors.

`FakeMode` is torch's FakeTensorMode, with results that lie in memory as eager's kernels lay them
out.  In: an op, and its arguments.  Out: the fake result.

    >>> with FakeMode(static_shapes=True) as mode:
    ...     mode.from_tensor(torch.ones(1, 2, 1)).movedim(0, -1).add(1).stride()
    (1, 1, 2)

While an op runs under a mode, C++ takes the mode off its stack, and puts it back when the op ends
or raises.  It aborts the process if another fake mode lies there by then.  That happens when an
exception, such as one of a signal's handler, cuts a `with fake_mode:` block inside of torch short.
So `FakeMode` clears this place whenever it raises.

Eager's kernels themselves are asked.  In: an ATen overload and its arguments.  Out: why eager
refuses them (`refusal`); how its results lie in memory (`layouts`); whether it may raise because of
what its tensors hold (`may_raise`): a position may be out of range, say.

    >>> refusal(aten.add.Tensor, (fake_uint16, fake_uint16), {})
    '"add_stub" not implemented for \\'UInt16\\''
    >>> layouts(aten.logical_and.default, (rows, columns), {})
    (((10, 10, 5), (50, 1, 10)),)

Decompositions compute with every dtype and shape, and our loops would, too; shape functions look at
less than kernels do.  So the op runs once on zeros of the shapes of this call, or of two elements a
dimension where it is large; answers are kept for the process.  In place of a symbol stands its
number in this call: what is refused wrongly is computed by eager's kernel.  Tensors on a GPU are
asked only where missing elements matter, with tensors on the CPU.  A call that may raise runs for
all of its elements (lowering/extern.py), unless nobody reads its result: then it is dead code, as
in PyTorch.

`is_unusual()`: would kernels of ours pass by what the program has asked for?  Then plain Python
runs (minidynamo), and the graph op by op (a backward half).

    with Mode(): ...            # a TorchDispatchMode: the key Python is in the thread's set
    torch.func.vmap(f)(x)       # FuncTorchBatched and others
    with dual_level(): ...      # tensors have tangents

Which keys a thread includes and excludes, and who answers for them:

    key                                       in a thread           who looks
    BackendSelect                             always included       nobody: harmless
    Autocast*                                 excluded, or not      guarded: AUTOCAST
    Named                                     excluded, or not      nobody: harmless
    ADInplaceOrView, Autograd*                of inference mode     guarded: INFERENCE
    all others, and Autograd* otherwise       seldom                refused
"""

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.utils._pytree as pytree
from torch import fx
from torch._prims_common import make_contiguous_strides_for
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode, in_kernel_invocation_manager
from torch.autograd import forward_ad
from torch.utils._python_dispatch import _disable_current_modes

from ..errors import ours
from ..ir.ops import exact_key
from ..sizes.symbols import hint, is_contiguous, is_symbolic, same

aten = torch.ops.aten
Op = torch._ops.OpOverload
Layout = tuple[tuple[int, ...], tuple[int, ...]]  # sizes, strides
SYMBOLIC = {torch.SymInt: int, torch.SymFloat: float, torch.SymBool: bool}
FEW = 1 << 12  # elements: eager's kernel is always asked with tensors of this size
MANY = 1 << 20  # elements: asked with so many only where a smaller sample would not answer


# --- what is asked --------------------------------------------------------------------------------
@dataclass(frozen=True)
class Sample:
    """Stands for a tensor of zeros."""

    dtype: torch.dtype
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    device: str = "cpu"


@dataclass(frozen=True)
class Answer:
    error: Exception | None
    layouts: tuple[Layout, ...] = ()  # of the tensors among the results


_answers: dict[tuple, Answer] = {}


def ask(op: Op, args: tuple, kwargs: dict, sample_of: Callable[[Any], Sample]) -> Answer:
    """What eager's kernel does with these arguments, and a sample in place of each tensor."""
    leaves, spec = pytree.tree_flatten((args, kwargs))
    question = [sample_of(x) if isinstance(x, torch.Tensor) else in_this_call(x) for x in leaves]
    key = (op, spec, torch.get_default_dtype(), *map(exact_key, question))
    if key not in _answers:
        _answers[key] = _run(op, question, spec)
    return _answers[key]


def in_this_call(leaf: Any) -> Any:
    """A number in place of a symbol, which would be decided on; the CPU in place of a GPU."""
    if isinstance(leaf, torch.SymInt):
        return hint(leaf, 1)
    if isinstance(leaf, torch.device):
        return torch.device("cpu")
    return SYMBOLIC[type(leaf)](1) if type(leaf) in SYMBOLIC else leaf


def _run(op: Op, question: list, spec: Any) -> Answer:
    def zeros(leaf: Any) -> Any:
        if not isinstance(leaf, Sample):
            return leaf
        made = torch.empty_strided(leaf.sizes, leaf.strides, dtype=leaf.dtype, device=leaf.device)
        return made.fill_(1 if wants_ones(op) else 0)

    with _disable_current_modes(), torch.no_grad(), torch._C._DisablePythonDispatcher():
        try:
            args, kwargs = pytree.tree_unflatten([zeros(leaf) for leaf in question], spec)
            with torch.random.fork_rng(devices=()):  # a kernel may draw, tagged or not
                made = tensors_in(op(*args, **kwargs))
        except ours(Exception) as error:
            return Answer(error.with_traceback(None))
    return Answer(None, tuple([(tuple(t.shape), t.stride()) for t in made]))


@functools.cache
def wants_ones(op: Op) -> bool:
    """Must samples be of ones?  Yes for divisions, and for LAPACK's row numbers, which count from
    1: with 0 some kernels write in front of the matrix."""
    has_pivots = any("pivots" in argument.name.lower() for argument in op._schema.arguments)
    return has_pivots or name_of(op).startswith(("div", "floor_div", "remainder", "fmod"))


@functools.cache
def name_of(target: Any) -> str:
    """ "add" for aten.add.Tensor, "" for what is no ATen op."""
    schema = getattr(target, "_schema", None)
    return schema.name.split("::")[1] if schema is not None else ""


def is_random(target: Any) -> bool:
    """Does the op draw random numbers?"""
    return torch.Tag.nondeterministic_seeded in getattr(target, "tags", ())


def tensors_in(*values: Any) -> list[torch.Tensor]:
    found = []
    for value in values:
        if isinstance(value, torch.Tensor):
            found.append(value)
        elif isinstance(value, (tuple, list)):
            found += tensors_in(*value)
    return found


def as_it_is(tensor: torch.Tensor) -> Sample:
    """Its sizes and strides in this call."""
    sizes = tuple([hint(n, 2) for n in tensor.shape])
    return Sample(tensor.dtype, sizes, tuple([hint(n, 1) for n in tensor.stride()]))


def small(tensor: torch.Tensor) -> Sample:
    """At most two elements a dimension, in the order in which the tensor's dimensions lie."""
    sample = as_it_is(tensor)
    sizes = tuple([min(n, 2) for n in sample.sizes])
    return replace(sample, sizes=sizes, strides=dense_strides(sizes, sample.strides))


def small_of_usual_dtype(tensor: torch.Tensor) -> Sample:
    """As `small`, in int64 or float32, for which every kernel is written."""
    is_integer = not (tensor.dtype.is_floating_point or tensor.dtype.is_complex)
    return replace(small(tensor), dtype=torch.int64 if is_integer else torch.float32)


def without_data(tensor: torch.Tensor) -> Sample:
    return replace(as_it_is(tensor), device="meta")


def dense_strides(sizes: Sequence[Any], like: Sequence[int]) -> tuple[Any, ...]:
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
    """How many elements the tensor has in this call."""
    return math.prod([hint(n, 1) for n in tensor.shape])


def are_plain(tensors: Sequence[torch.Tensor]) -> bool:
    return all(t.device.type == "cpu" and t.layout is torch.strided for t in tensors)


# --- what eager refuses ---------------------------------------------------------------------------
# fake tensors look neither whether there is such a part, nor whether it has the other's shape
WRITES_PART = {getattr(aten, f"{name}_scatter").default for name in ("diagonal", "select", "slice")}
# these look whether self's dtype holds the number in a tensor: its position
FILLS = {aten.masked_fill.Tensor: 2, aten.index_fill.int_Tensor: 3}
HOLD_SIZES = (torch.int64, torch.bfloat16, torch.float32, torch.float64)


def refusal(op: Op, args: tuple, kwargs: dict) -> str:
    """Why eager raises for dtypes, shapes or numbers of the call; "" where it computes, or where
    that is not known."""
    tensors = tensors_in(*args, *kwargs.values())
    if doubt := doubt_about_numbers(op, args, kwargs, tensors):
        return doubt
    if not tensors or not computes(op):
        return ""
    if not are_plain(tensors) and all(map(count, tensors)):
        return ""
    is_exact = max(map(count, tensors)) <= (MANY if op in WRITES_PART else FEW)
    error = ask(op, args, kwargs, as_it_is if is_exact else small).error
    if error is None or not is_exact and ask(op, args, kwargs, small_of_usual_dtype).error:
        return ""  # or it is about the small sizes
    return str(error).split("\n")[0] or type(error).__name__


@functools.cache
def computes(op: Op) -> bool:
    """Is this an ATen op that makes tensors, and no view, random op or backward formula?  (Eager
    gives formulas what its own forward kernels have saved.)"""
    schema = getattr(op, "_schema", None)
    if schema is None or op.namespace != "aten" or not schema.returns:
        return False
    is_view = any(a.alias_info and not a.alias_info.is_write for a in schema.arguments)
    return not (is_view or is_random(op) or schema.name.endswith("_backward"))


@functools.cache
def numbers_of(op: Op) -> frozenset[int | str]:
    """Positions and names of the arguments that are numbers to compute with, and not sizes."""
    arguments = enumerate(op._schema.arguments) if hasattr(op, "_schema") else ()
    found = [(n, a.name) for n, a in arguments if "number" in str(a.type)]
    return frozenset([key for pair in found for key in pair])


def doubt_about_numbers(op: Op, args: tuple, kwargs: dict, tensors: list[torch.Tensor]) -> str:
    """Why the dtypes may not hold a number of the call; "" if they hold all.  (Eager's
    x.half().masked_fill(mask, -1e10) raises, where our kernel would make an infinity.)"""
    if op in FILLS and args[FILLS[op]].dtype not in (tensors[0].dtype, torch.bool):
        return f"only the kernel knows whether {tensors[0].dtype} holds a tensor's number"
    dtypes = [kwargs["dtype"]] if kwargs.get("dtype") is not None else [t.dtype for t in tensors]
    found = [n for at, n in (*enumerate(args), *kwargs.items()) if at in numbers_of(op)]
    for number in pytree.tree_leaves(found):
        for dtype in dtypes or [torch.get_default_dtype()]:
            if isinstance(number, torch.SymInt) and dtype not in HOLD_SIZES:
                return f"only the run knows whether {dtype} holds a symbol"
            known = number is None or isinstance(number, tuple(SYMBOLIC))
            if not known and not holds(dtype, exact_key(number)):
                return f"only the kernel knows whether {dtype} holds {number}"
    return ""


@functools.cache
def holds(dtype: torch.dtype, key: tuple[type, Any]) -> bool:
    kind, number = key
    if kind is int and not -(2**63) <= number < 2**63:
        return False
    with _disable_current_modes():
        try:
            torch.zeros(2, dtype=dtype).fill_(kind(number))
        except ours(Exception):
            return False
    return True


# --- what may raise because of what tensors hold --------------------------------------------------
# names without overloads: of ops that look at positions, at classes, at matrices, at ranges
RAISING = frozenset(
    """
    index index_put _unsafe_index_put index_select gather scatter scatter_add scatter_reduce
    index_add index_copy index_fill index_reduce take put embedding embedding_renorm _embedding_bag
    _embedding_bag_forward_only max_unpool2d max_unpool3d searchsorted lu_unpack repeat_interleave
    segment_reduce bincount _pack_padded_sequence
    nll_loss_forward nll_loss2d_forward multi_margin_loss multilabel_margin_loss_forward _ctc_loss
    binary_cross_entropy
    _linalg_eigh _linalg_svd linalg_eig linalg_eigvals _linalg_eigvals linalg_lstsq linalg_cholesky
    cholesky cholesky_inverse geqrf linalg_qr
    histc histogram histogramdd _histogramdd_from_bin_cts linspace logspace
    """.split()
)
DIVISIONS = ("floor_divide", "remainder", "fmod", "div")  # of integers, by zero


def may_raise(node: fx.Node) -> bool:
    """Can this call raise because of what its tensors hold?"""
    name = name_of(node.target)
    return only_checks(node) or name in RAISING or name in DIVISIONS and may_divide_by_zero(node)


def only_checks(node: fx.Node) -> bool:
    """Does the call return nothing (aten._assert_async, aten._linalg_check_errors after inv_ex)?"""
    schema = getattr(node.target, "_schema", None)
    return schema is not None and not schema.returns and bool(node.all_input_nodes)


def may_divide_by_zero(node: fx.Node) -> bool:
    """A division that gives integers, by something else than a number that is not 0."""
    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor) or value.is_floating_point() or len(node.args) < 2:
        return False
    divisor = node.args[1]
    return not isinstance(divisor, (int, float)) or divisor == 0


# --- how results lie in memory --------------------------------------------------------------------
# They compute otherwise than element by element, but the order of strides decides theirs, too.
BY_ORDER = {
    getattr(aten, name).default
    for name in """max_unpool2d channel_shuffle native_batch_norm _native_batch_norm_legit roll
    _batch_norm_with_update _native_batch_norm_legit_no_training log_sigmoid_forward
    reflection_pad2d reflection_pad3d replication_pad2d replication_pad3d native_dropout_backward
    _fft_r2c _fft_c2c""".split()
} | {aten._native_batch_norm_legit.no_stats, aten.normal.Tensor_Tensor}


def layouts(op: Op, args: tuple, kwargs: dict) -> tuple[Layout, ...]:
    """Sizes and strides of the op's results; none where that is not known, or as always."""
    tensors = tensors_in(*args, *kwargs.values())
    if not tensors or not follows_strides(op, tensors) or not are_plain(tensors):
        return ()
    largest = max(map(count, tensors))
    if largest <= (MANY if transforms(op) else FEW):
        return ask(op, args, kwargs, as_it_is).layouts
    if torch.Tag.pointwise in op.tags:
        return ask(op, args, kwargs, without_data).layouts
    found = ask(op, args, kwargs, small) if op in BY_ORDER else Answer(None)
    if largest <= MANY and found.error:
        return ask(op, args, kwargs, as_it_is).layouts
    return found.layouts


def follows_strides(op: Op, tensors: Sequence[torch.Tensor]) -> bool:
    """Do the arguments' strides decide those of the results, and are they unusual ones?"""
    decide = computes(op) or op in BY_ORDER
    if not decide or any(result.alias_info for result in op._schema.returns):
        return False
    are_usual = all(map(is_row_by_row, tensors)) and all(map(count, tensors))
    return transforms(op) or not are_usual


def transforms(op: Op) -> bool:
    """Is it a Fourier transform?  Its results lie by the transformed dimensions."""
    return name_of(op).startswith("_fft")


def is_row_by_row(tensor: torch.Tensor) -> bool:
    """Has the tensor the strides of a new one, in dimensions of size 1 as well?"""
    sizes = [hint(n, 1) for n in tensor.shape]
    return tuple([hint(n, 0) for n in tensor.stride()]) == make_contiguous_strides_for(sizes)


included = torch._C._dispatch_tls_local_include_set
excluded = torch._C._dispatch_tls_local_exclude_set


def bits(*names: str) -> int:
    """The keys of these names, as a set is written in one number."""
    found = 0
    for name in names:
        found |= torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, name)).raw_repr()
    return found


# (one bit beside the other, from the first to the last; some have no name in Python)
AUTOCAST = 2 * bits("AutocastPrivateUse1") - bits("AutocastCPU")
# In a backward pass torch 2.11 excludes the key of named tensors, which no graph of ours has.  It
# has no name in Python, and lies in front of Conjugate; later torchs have none.
NAMES = bits("Conjugate") >> 1 & ~bits("Functionalize")
PASSED_OVER = AUTOCAST | NAMES  # among the excluded keys
ALWAYS = bits("BackendSelect", "ADInplaceOrView")  # in the set of included keys


def keys() -> tuple[int, int]:
    """What this thread includes and excludes, where it differs from the usual; without autocast."""
    return included().raw_repr() ^ ALWAYS, excluded().raw_repr() & ~PASSED_OVER


def keys_of_inference_mode() -> tuple[int, int]:
    with torch.inference_mode(False):
        before = keys()
    with torch.inference_mode():
        after = keys()
    return before[0] ^ after[0], before[1] ^ after[1]


INFERENCE = keys_of_inference_mode()


def is_unusual() -> bool:
    """Does torch do more in this thread than the kernels of a graph would?"""
    return keys() not in ((0, 0), INFERENCE) or forward_ad._current_level >= 0


FAKE = torch._C._TorchDispatchModeKey.FAKE
CONVOLUTIONS = {aten.convolution.default, aten.convolution_backward.default}
ATTENTION = aten._native_multi_head_attention.default


class FakeMode(FakeTensorMode):
    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # else torch wraps the handler in torch._dynamo.disable, at a cost per op

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        try:
            refuse_real_writes(func, args, kwargs)
            out: Any = convolution(self, func, args, kwargs) if func in CONVOLUTIONS else None
            if out is None:
                out = FakeTensorMode.__torch_dispatch__(self, func, types, args, kwargs)
            if func is ATTENTION and args[10:11] == (False,):
                out = out[0], None  # as eager's kernel gives no weights that nobody needs
            return laid_out(self, out, layouts(func, tuple(args), dict(kwargs)))
        except BaseException:
            torch._C._unset_dispatch_mode(FAKE)
            raise


def let_go(mode: FakeTensorMode) -> None:
    """Forget which real tensors the mode knows, once a trace has ended: `torch.utils.swap_tensors`
    refuses one to which a weak reference points.  What it makes from then on are other fakes."""
    mode.fake_tensor_converter.meta_converter.describer.lookup_tensor.clear()


@functools.cache
def written_arguments(func: Any) -> dict[int, str]:
    """{place: name} of the arguments that the op writes."""
    arguments = enumerate(func._schema.arguments) if hasattr(func, "_schema") else ()
    return {n: a.name for n, a in arguments if a.alias_info and a.alias_info.is_write}


def refuse_real_writes(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """A tensor that is no fake one would be written while the program is only looked at, by a
    custom function's `forward` that counts its calls in a global tensor, say."""
    for place, name in written_arguments(func).items():
        given = args[place] if place < len(args) else kwargs.get(name)
        if not all(isinstance(tensor, FakeTensor) for tensor in tensors_in(given)):
            raise RuntimeError(f"{func} writes to a tensor from outside")


# --- strides --------------------------------------------------------------------------------------
def laid_out(mode: FakeMode, out: Any, answers: Sequence[Layout]) -> Any:
    """The fake result `out`, in the strides that eager's kernel gave its answers."""
    results = tensors_in(out)
    wanted = [strides_like(*pair) for pair in zip(results, answers)]
    agree = (all(map(same, r.stride(), strides)) for r, strides in zip(results, wanted))
    if len(answers) != len(results) or all(agree):
        return out
    with mode:
        relaid = iter([r.new_empty_strided(r.shape, s) for r, s in zip(results, wanted)])
    return pytree.tree_map_only(torch.Tensor, lambda _: next(relaid), out)


def strides_like(result: torch.Tensor, answer: Layout) -> tuple[Any, ...]:
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


def convolution(mode: FakeMode, op: Any, args: tuple, kwargs: dict) -> Any:
    """The result for contiguous tensors on a CPU, which is contiguous whichever of eager's kernels
    runs.  (Torch's rule would ask which: a guard on whether an input has over 20480 elements.)"""
    tensors = tensors_in(*args, *kwargs.values())
    if not any(map(is_symbolic, tensors)) or len({t.dtype for t in tensors}) > 1:
        return None
    if not all(t.device.type == "cpu" and is_contiguous(t) for t in tensors):
        return None

    def faked(out: torch.Tensor) -> torch.Tensor:
        return FakeTensor(mode, out.contiguous(), torch.device("cpu"))

    with in_kernel_invocation_manager(mode):
        return pytree.tree_map_only(torch.Tensor, faked, op(*args, **kwargs))
