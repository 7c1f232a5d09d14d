"""What is known of eager's kernels beside fake tensors, and a fake mode that asks for it.

In:   an op, and its arguments.  Out: the fake result, as eager's kernel lays it out.

An exception from outside may cut it short.  While an op runs under a mode, C++ keeps the mode aside
and puts it back when the op ends, or raises.  It ends the process if it finds a fake mode in that
place by then: one whose `with` block in torch was cut short, between its `__enter__` and its
`__exit__`, by a signal's handler, say.  So the mode leaves its place free, whatever is raised.

What torch warns of while it looks at a tensor is no error, where the program has made warnings
errors:

    warnings.simplefilter("error")
    compiled(x * 2)             # torch reads the `.grad` of this tensor, which is no leaf

torch hides that warning where it is shown.  A filter raises it before that, and the frame would
run as plain Python.  The program's filters are looked at again only then: they are the process's,
and another thread may be changing them.
"""

import functools
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from ..fake_mode import FakeMode

FAKE = torch._C._TorchDispatchModeKey.FAKE


@dataclass
class Eager:
    """What is known of eager's kernels beside fake tensors: nothing, unless fakes/eager.py asks.

    refusal: (op, args, kwargs) -> why eager has no kernel for these dtypes, or "".
    refusal_of_unread: (op, args, kwargs) -> the same of a call that nobody reads, or "".
    refusal_of_nothing: (op, args, kwargs) -> why it refuses a tensor without elements, or "".
    corrected: (mode, op, fake result, args, kwargs) -> the result as the kernel lays it out.
    own: op -> (mode, op, args, kwargs) -> the fake result, or None where torch's rule is asked.
    """

    refusal: Callable[..., str] = lambda op, args, kwargs: ""
    refusal_of_unread: Callable[..., str] = lambda op, args, kwargs: ""
    refusal_of_nothing: Callable[..., str] = lambda op, args, kwargs: ""
    corrected: Callable[..., Any] = lambda mode, op, out, args, kwargs: out
    own: dict[Any, Callable[..., Any]] = field(default_factory=dict)


EAGER = Eager()


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


def dispatch(
    self: FakeMode,
    func: Any,
    types: Sequence[type],
    args: Sequence[object] = (),
    kwargs: Mapping[str, object] | None = None,
) -> Any:
    try:
        refuse_real_writes(func, args, kwargs or {})
        rule = EAGER.own.get(func)
        out = rule and rule(self, func, args, kwargs or {})
        if out is None:
            out = FakeTensorMode.__torch_dispatch__(self, func, types, args, kwargs or {})
        return EAGER.corrected(self, func, out, args, kwargs or {})
    except BaseException:
        torch._C._unset_dispatch_mode(FAKE)
        raise


setattr(FakeMode, "__torch_dispatch__", dispatch)  # (none of the wrapping that torch's own has)


# --- warnings that are errors ---------------------------------------------------------------------
NO_LEAF = "The .grad attribute of a Tensor that is not a leaf"


def from_tensor(self: FakeMode, tensor: torch.Tensor, **options: Any) -> torch.Tensor:
    try:
        return FakeTensorMode.from_tensor(self, tensor, **options)
    except UserWarning as warning:
        if not str(warning).startswith(NO_LEAF):
            raise
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=re.escape(NO_LEAF))
        return FakeTensorMode.from_tensor(self, tensor, **options)


setattr(FakeMode, "from_tensor", from_tensor)
