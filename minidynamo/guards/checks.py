"""What guards compare: constants, keys of dictionaries, the thread's state, layouts of tensors; and
the names that their text may use.

In:   a value that an entry assumes.  Out: the text of a check, with `{0}` for the value of a later
      call, and the object to pin, if there is one.

    >>> constant_check(3)
    ('type({0}) is int and {0} == 3', None)

A tensor's layout (class, dtype, device, sizes, strides, bits, gradients) is read as bytes by
`layouts.c`.  Where libtorch lacks a function that layouts.c calls, or the tensor is not dense, its
guards are printed one by one.

Mirrors `CONSTANT_MATCH` of torch/_dynamo/guards.py, TensorCheck of csrc/dynamo/guards.cpp.
"""

import ctypes
import functools
import gc
import math
import numbers
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.autograd import forward_ad

from miniinductor.autograd.fake_mode import INFERENCE, PASSED_OVER, keys

from ..frame import _frame_hook
from . import _layouts  # type: ignore[attr-defined]

SINGLETONS = (None, True, False, Ellipsis, NotImplemented)


def has_long_text(value: Any) -> bool:
    """Is the value too long to be written into the guard?  Then the entry holds the object itself.
    Python refuses to write an int of over 4300 digits."""
    if type(value) is int:
        return value.bit_length() > 10_000
    return type(value) in (str, bytes) and len(value) > 10_000


def literal(value: object) -> str:
    """The text of a constant in a guard's check.  Checks go through `str.format`, so braces are
    doubled."""
    return repr(value).replace("{", "{{").replace("}", "}}")


def constant_check(value: Any) -> tuple[str, Any]:
    """(check, object to pin or None): equal *and* of the same type, with -0.0 and nan told
    apart."""
    kind = type(value)
    if any(value is single for single in SINGLETONS):
        return f"{{0}} is {value!r}", None
    is_plain = kind in (int, str, bytes) and not has_long_text(value)
    if is_plain or kind is float and math.isfinite(value) and value != 0.0:
        return f"type({{0}}) is {kind.__name__} and {{0}} == {literal(value)}", None
    if kind in (float, complex):
        return f"type({{0}}) is {kind.__name__} and repr({{0}}) == {repr(value)!r}", None
    if hasattr(kind, "tobytes"):  # a number of NumPy's: its bytes tell -0.0 and nan apart
        same = f"{{0}}.tobytes() == {literal(value.tobytes())}"
        return "type({0}) is type({pin}) and " + same, value
    if kind in (range, slice):  # range(0, 3, 2) == range(0, 4, 2), slice(1) == slice(True)
        return "exact_key({0}) == {pin}", exact_key(value)
    return "type({0}) is type({pin}) and {0} == {pin}", value


def exact_key(value: Any) -> Any:
    """What stands for a key of a dictionary, or an element of a set.  To Python 1, True and 1.0 are
    one key, but a program that walks the keys sees which one it is."""
    kind = type(value)
    if kind is str or kind is int:
        return kind, value
    if kind in (tuple, frozenset):
        return kind, kind(map(exact_key, value))
    if kind in (range, slice):
        return kind, *map(exact_key, (value.start, value.stop, value.step))
    if isinstance(value, torch.Tensor):  # `==` of two gives a tensor
        return id(value)
    if isinstance(value, numbers.Number) and value == value:
        return kind, repr(value)  # of -0.0
    return kind, value


def keys_check(keys: Sequence[Any], text: str = "{0}") -> tuple[str, Any]:
    """(check, object to pin): `text` has these keys, in this order."""
    if all(type(key) is str for key in keys):
        return f"[*{text}] == {{pin}} and {{{{*map(type, {text})}}}} <= {{{{str}}}}", [*keys]
    return f"[*map(exact_key, {text})] == {{pin}}", [*map(exact_key, keys)]


# --- the thread's state, and all that checks call -------------------------------------------------
Reader = tuple[str, Callable[[], Any]]  # the kind of a guard, and what reads the state

STATE: tuple[Reader, ...] = (
    ("GRAD_MODE", torch.is_grad_enabled),
    ("INFERENCE", torch.is_inference_mode_enabled),
    ("AUTOCAST", torch._C._is_any_autocast_enabled),
    ("DTYPE", torch.get_default_dtype),
    ("DETERMINISTIC", torch._C._get_deterministic_algorithms),
    ("FUNCTION_MODES", torch._C._len_torch_function_stack),
    ("DUAL_LEVEL", lambda: forward_ad._current_level),  # tensors may have tangents
)
# Within a dispatch mode or a transform of functorch (vmap, grad) no compiled frame runs at all: the
# frame hook looks, or this guard where it cannot.
if not _frame_hook.watch_dispatch_keys(PASSED_OVER, INFERENCE):
    STATE += (("DISPATCH_KEYS", keys),)


def autocast_dtypes() -> list[tuple[bool, torch.dtype]]:
    """Is autocast on, on which device, in which dtype?"""
    kinds = ("cpu", "cuda")
    return [(torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind)) for kind in kinds]


# read only where they matter: under autocast, within `with torch.device(...)`, which is a mode
DETAILS: tuple[tuple[Callable[[], Any], Reader], ...] = (
    (torch._C._is_any_autocast_enabled, ("AUTOCAST_DTYPES", autocast_dtypes)),
    (torch._C._len_torch_function_stack, ("DEFAULT_DEVICE", torch.get_default_device)),
)
# what accesses and checks call by name, beside builtins
NAMES: dict[str, Any] = {
    "math": math,
    "get_referents": gc.get_referents,
    "exact_key": exact_key,
    "layout": _layouts.layout,
    "note": _layouts.note,
    "still": _layouts.still,
    **{name.lower(): read for name, read in (*STATE, *(row for _, row in DETAILS))},
}


# --- the layouts of tensors -----------------------------------------------------------------------
KNOWS_NAMES = hasattr(torch.Tensor, "has_names")  # named dimensions went with torch 2.13
HEAD = 32  # bytes in front of the sizes
FUNCTIONS = (
    *[
        f"aoti_torch_get_{name}"
        for name in ("layout", "dtype", "device_type", "device_index", "dim", "sizes", "strides")
    ],
    # at::native::is_neg(const Tensor &) and its neighbours: the C functions above have none of them
    *[
        f"_ZN2at6native{len(name)}{name}ERKNS_6TensorE"
        for name in ("is_neg", "is_conj", "_is_zerotensor", "is_inference")
    ],
    "_ZNK3c1010TensorImpl13requires_gradEv",
    "_ZN2at4impl9has_namesEPKN3c1010TensorImplE",
)


@functools.cache
def are_read() -> bool:
    """Can layouts be read?  A transpose is, and compared with what Python says of it."""
    library = ctypes.CDLL(torch._C.__file__)  # finds what it depends on, too
    found: list[Any] = [getattr(library, name, None) for name in FUNCTIONS]
    if None in found[: len(found) if KNOWS_NAMES else -1]:
        return False
    addresses = [ctypes.cast(function, ctypes.c_void_p).value or 0 for function in found]
    probe = torch.empty(2, 3).t().requires_grad_()
    _layouts.use_torch(probe, probe._cdata, tuple(addresses))
    read = memoryview(_layouts.layout(probe) or bytes(HEAD + 32))
    numbers = read[HEAD - 8 :].cast("q").tolist()
    return numbers == [2, *probe.shape, *probe.stride()] and read[20:24].tolist() == [32, 0, 0, 0]


def layout_of(tensor: torch.Tensor, any_size: bool) -> bytes | None:
    """What `layout` gives, without sizes and strides if `any_size`."""
    found = _layouts.layout(tensor) if are_read() else None
    return found and found[:HEAD] if any_size else found
