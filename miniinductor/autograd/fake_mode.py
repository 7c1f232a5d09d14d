"""Tensors without data, under which both packages trace; and the thread's state that torch's
dispatcher looks at beside an operation's tensors.

`FakeMode` is torch's FakeTensorMode, with results that lie in memory as eager's kernels lay them
out (eager_answers.py).  In: an op, and its arguments.  Out: the fake result.

    >>> with FakeMode(static_shapes=True) as mode:
    ...     mode.from_tensor(torch.ones(1, 2, 1)).movedim(0, -1).add(1).stride()
    (1, 1, 2)

An exception from outside may cut it short.  While an op runs under a mode, C++ keeps the mode aside
and puts it back when the op ends, or raises.  It ends the process if it finds a fake mode in that
place by then: one whose `with` block in torch was cut short, between its `__enter__` and its
`__exit__`, by a signal's handler, say.  So the mode leaves its place free, whatever is raised.

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
from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.utils._pytree as pytree
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode, in_kernel_invocation_manager
from torch.autograd import forward_ad

from ..sizes.symbols import is_contiguous, is_symbolic, same
from .eager_answers import Layout, dense_strides, layouts, tensors_in

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


aten = torch.ops.aten
FAKE = torch._C._TorchDispatchModeKey.FAKE
CONVOLUTIONS = {aten.convolution.default, aten.convolution_backward.default}


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
            out = convolution(self, func, args, kwargs) if func in CONVOLUTIONS else None
            if out is None:
                out = FakeTensorMode.__torch_dispatch__(self, func, types, args, kwargs)
            return laid_out(self, out, layouts(func, tuple(args), dict(kwargs)))
        except BaseException:
            torch._C._unset_dispatch_mode(FAKE)
            raise


def let_go(mode: FakeTensorMode) -> None:
    """Forget which real tensors the mode knows, once a trace has ended: `torch.utils.swap_tensors`
    refuses one to which a weak reference points.  What it makes from then on are other fakes."""
    mode.fake_tensor_converter.meta_converter.describer.lookup_tensor.clear()


@functools.cache
def written_arguments(func: Any) -> list[tuple[int, str]]:
    """(place, name) of the arguments that the op writes."""
    arguments = func._schema.arguments if hasattr(func, "_schema") else []
    is_written = [a.alias_info is not None and a.alias_info.is_write for a in arguments]
    return [(n, a.name) for n, a in enumerate(arguments) if is_written[n]]


def refuse_real_writes(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """A tensor that is no fake one would be written while the program is only looked at, by a
    custom function's `forward` that counts its calls in a global tensor, say."""
    for place, name in written_arguments(func):
        given = args[place] if place < len(args) else kwargs.get(name)
        for tensor in given if isinstance(given, (list, tuple)) else [given]:
            if isinstance(tensor, torch.Tensor) and not isinstance(tensor, FakeTensor):
                raise RuntimeError(f"{func} writes to a tensor from outside")


# --- strides --------------------------------------------------------------------------------------
def laid_out(mode: FakeMode, out: Any, answers: Sequence[Layout]) -> Any:
    """The fake result `out`, whose tensors eager's kernel gives like the answers."""
    results = tensors_in(out)
    if not answers or len(answers) != len(results):
        return out
    wanted = [strides_like(*pair) for pair in zip(results, answers)]
    if all(all(map(same, r.stride(), strides)) for r, strides in zip(results, wanted)):
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
    """Of contiguous tensors on a CPU, contiguous whichever of eager's kernels runs.  Torch's rule
    asks which: whether a symbolic input has more than 20480 elements, which would be a guard."""
    tensors = tensors_in(*args, *kwargs.values())
    if not any(map(is_symbolic, tensors)) or len({t.dtype for t in tensors}) > 1:
        return None
    if not all(t.device.type == "cpu" and is_contiguous(t) for t in tensors):
        return None

    def faked(out: torch.Tensor) -> torch.Tensor:
        return FakeTensor(mode, out.contiguous(), torch.device("cpu"))

    with in_kernel_invocation_manager(mode):
        return pytree.tree_map_only(torch.Tensor, faked, op(*args, **kwargs))
