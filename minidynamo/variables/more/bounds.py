"""How large a constant may a fold make?  Asked before the call: `10 ** 10 ** 8` must not be
computed while tracing.

In:   the name of an operator, function or method, and its constant arguments.   Out: whether to
      refuse.

    >>> too_large("*", ("a", 10**9)), too_large("ljust", ("a", 10)), too_large("<<", (1, 10**12))
    (True, False, True)

What is refused is run by plain Python, after a graph break.
"""

import re
from collections.abc import Callable
from typing import Any

from ...extras.extending import extends
from ... import config
from ...exceptions import Break
from ...foreign import ours
from ...symbolic_eval.operations import Operations


BYTES_PER_STEP = 8  # a frame of `config.step_limit` steps may hold so many bytes in one constant
NUMBER = re.compile(r"\d+")


def bits(value: Any) -> int:
    return value.bit_length() if isinstance(value, int) else 0


def size(value: Any) -> int:
    """Bytes of one argument."""
    if isinstance(value, (str, bytes)):
        return len(value)
    return bits(value) // 8


def number(value: Any) -> int:
    return value if isinstance(value, int) else 0


def repeated(a: Any, b: Any) -> int:
    if isinstance(a, (str, bytes)):
        return len(a) * number(b)
    if isinstance(b, (str, bytes)):
        return len(b) * number(a)
    return size(a) + size(b)


def power(a: Any, b: Any, *modulus: Any) -> int:
    return 0 if modulus else bits(a) * number(b) // 8


def shifted(a: Any, b: Any) -> int:
    return (bits(a) + number(b)) // 8


def formatted(*values: Any) -> int:
    """The widths that a format's text names, or that are among the arguments."""
    named = [int(n) for v in values if isinstance(v, str) for n in NUMBER.findall(v[:10_000])]
    return max([0, *named, *map(number, values[1:])])


def padded(text: Any, width: Any = 0, *rest: Any) -> int:
    return number(width)


def falling(n: Any, k: Any = None) -> int:
    """n * (n - 1) * ... of k factors."""
    return bits(n) * number(n if k is None else k) // 8


def chosen(n: Any, k: Any) -> int:
    return falling(n, min(number(k), max(0, number(n) - number(k))))


def replaced(text: Any, old: Any, new: Any, *rest: Any) -> int:
    return (size(text) // max(1, size(old)) + 1) * size(new)


ESTIMATES: dict[str, Callable[..., int]] = {
    **dict.fromkeys(("+", "add", "__add__", "concat"), lambda a, b: size(a) + size(b)),
    **dict.fromkeys(("*", "mul", "__mul__", "__rmul__"), repeated),
    **dict.fromkeys(("**", "pow", "__pow__"), power),
    "__rpow__": lambda a, b, *modulus: power(b, a, *modulus),
    **dict.fromkeys(("<<", "lshift", "__lshift__"), shifted),
    "__rlshift__": lambda a, b: shifted(b, a),
    **dict.fromkeys(("%", "mod", "__mod__", "format", "__format__"), formatted),
    **dict.fromkeys(("ljust", "rjust", "center", "zfill", "to_bytes"), padded),
    "expandtabs": lambda text, width=8: size(text) * number(width),
    "replace": replaced,
    "bytes": lambda count=0, *rest: number(count),
    "factorial": falling,
    "perm": falling,
    "comb": chosen,
    "ldexp": lambda a, b: 0,
}


def too_large(name: str, values: tuple) -> bool:
    """Would the result be larger than a frame's constants may be?"""
    estimate = ESTIMATES.get(name.rstrip("=") or name)
    if estimate is None:
        return False
    try:
        return estimate(*values) > BYTES_PER_STEP * config.step_limit
    except ours(TypeError):  # other arguments than it takes: the call raises at once
        return False


@extends(Operations)
class Bounded(Operations):
    def check_size(self, name: str, *values: Any) -> None:
        if too_large(name, values):
            text = f"a constant of more than {BYTES_PER_STEP} * config.step_limit bytes"
            raise Break("limit", text)
