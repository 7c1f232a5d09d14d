"""Functions of the core in whose place coverage puts better ones.

In:   a function that does the plain thing.  Out: the same, until another takes its place.

    >>> @replaceable                        # the core
    ... def opened(size): return size
    >>> @opened.replaced                    # a file of coverage, when it is loaded
    ... def with_multiples(size): return f"8 * {size}_by_8"
    >>> opened("s0")
    '8 * s0_by_8'

For classes there is `extends` in hooks.py.  This file imports nothing: sizes/ uses it.
"""

import functools
from collections.abc import Callable
from typing import Generic, ParamSpec, TypeVar

Given = ParamSpec("Given")
Result = TypeVar("Result")


class replaceable(Generic[Given, Result]):
    """Decorator: whoever calls the function calls what stands in its place, wherever it has the
    name from."""

    def __init__(self, plain: Callable[Given, Result]) -> None:
        functools.update_wrapper(self, plain)
        self.answer = plain

    def __call__(self, *args: Given.args, **kwargs: Given.kwargs) -> Result:
        return self.answer(*args, **kwargs)

    def replaced(self, better: Callable[Given, Result]) -> Callable[Given, Result]:
        """Decorator: `better` takes its place."""
        self.answer = better
        return better
