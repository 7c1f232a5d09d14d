"""Chapter 05: where values came from, and what must hold next time.

A *source* is the text of an expression that finds a value again in the next call: `a0` is the
first parameter, `F` the function itself, and so on outwards: `a0.layers[1].weight`.

`Guards` collects what the capture has relied on.  Each check is an expression over sources;
together they are one function, which the frame hook asks before it runs what was compiled:

    >>> guards = Guards(f)
    >>> guards.equals("a1", 3)
    >>> guards.build()(f, x, 4)
    False

No name of the user's can be seen by a guard, or hide one of its own: parameters are `a0`, `a1`,
..., and all else lies in a dictionary that the guard has for itself.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import torch

from .graph import Refused

CONSTANTS = (int, float, bool, str, type(None), torch.dtype)


def same(value: Any, expected: Any) -> bool:
    """Of one type and one value; 0.0 and -0.0 are two values."""
    return type(value) is type(expected) and value == expected and repr(value) == repr(expected)


def tensor_fits(
    tensor: Any,
    dtype: torch.dtype,
    shape: tuple[int | None, ...],
    requires_grad: bool,
    contiguous: bool,
) -> bool:
    """Is it a plain tensor on the CPU, like the one that was captured?  None: any size over 1."""
    if type(tensor) not in (torch.Tensor, torch.nn.Parameter) or tensor.device.type != "cpu":
        return False
    if (tensor.dtype, tensor.requires_grad) != (dtype, requires_grad) or tensor.is_neg():
        return False
    if tensor.is_contiguous() != contiguous:
        return False
    return tensor.ndim == len(shape) and all(
        wanted == size or wanted is None and size > 1
        for wanted, size in zip(shape, tensor.shape, strict=True)
    )


def modes() -> tuple[bool, bool, bool]:
    """The process's state that decides over results: gradients, autocast, hooks of all modules."""
    hooks = bool(torch.nn.modules.module._has_any_global_hook())
    return torch.is_grad_enabled(), torch.is_autocast_enabled("cpu"), hooks


class Guards:
    """Checks over the parameters of one function."""

    def __init__(self, function: types.FunctionType) -> None:
        code = function.__code__
        self.names: dict[str, Any] = {"same": same, "tensor_fits": tensor_fits, "modes": modes}
        stars = bool(code.co_flags & 4) + bool(code.co_flags & 8)  # *args and **kwargs
        count = code.co_argcount + code.co_kwonlyargcount + stars
        self.parameters = ", ".join(["F", *(f"a{number}" for number in range(count))])
        self.checks: dict[str, None] = {}  # a set that keeps its order
        self.identical("F.__globals__", function.__globals__)
        if function.__closure__:
            self.identical("F", function)
        if any(modes()[1:]):
            raise Refused("autocast, or hooks of all modules")
        self.add(f"modes() == {modes()}")

    def name(self, value: Any) -> str:
        """A name by which checks may speak of this very object (which lives on with them)."""
        name = f"c{id(value)}"
        self.names[name] = value
        return name

    def add(self, check: str) -> None:
        self.checks.setdefault(check)

    def identical(self, source: str, value: Any) -> None:
        self.add(f"{source} is {self.name(value)}")

    def equals(self, source: str, value: Any) -> None:
        """Add the check that `same` says yes.  Refused for what does not equal itself (NaN)."""
        if value != value:
            raise Refused("a number that does not equal itself")
        self.add(f"same({source}, {self.name(value)})")

    def has_type(self, source: str, value: Any) -> None:
        self.add(f"type({source}) is {self.name(type(value))}")

    def tensor(self, source: str, tensor: torch.Tensor, shape: tuple[int | None, ...]) -> None:
        """Add the check that `tensor_fits` says yes for what this tensor is; of its sizes `shape`
        counts.  Refused for a tensor that does not fit itself: it is not plain."""
        flags = tensor.requires_grad, tensor.is_contiguous()
        if not tensor_fits(tensor, tensor.dtype, tuple(tensor.shape), *flags):
            raise Refused(f"a tensor that is not plain: {type(tensor).__name__}, {tensor.device}")
        dtype = self.name(tensor.dtype)
        self.add(f"tensor_fits({source}, {dtype}, {shape!r}, {flags[0]}, {flags[1]})")

    def function_of_arguments(self, expression: str) -> Callable:
        """`expression`, a text over sources, as a function of what a guard is given."""
        return eval(f"lambda {self.parameters}: {expression}", self.names)

    def build(self) -> Callable[..., bool]:
        """All checks as one function.  A source that cannot be found any more is a failed check."""
        check = self.function_of_arguments(" and ".join(self.checks))

        def guard(*arguments: Any) -> bool:
            try:
                return check(*arguments)
            except (AttributeError, LookupError, TypeError):
                return False

        return guard
