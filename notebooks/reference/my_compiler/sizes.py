"""Chapter 14: a size that may be another one in the next call.

A `Size` is an ordinary int that remembers how it was computed.  Whoever compares it makes the
answer a *fact*, on which the compiled program relies from then on, and which the guard checks.

    >>> facts = []
    >>> n = Size(8, "s0", facts)
    >>> n * 2 + 1
    17 (s0 * 2 + 1)
    >>> n > 4, facts
    (True, ['s0 > 4'])
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterable
from typing import Any

Shapes = dict[str, tuple[int, ...]]
Operator = Callable[[int, int], Any]


class Size(int):
    """value: what it is in this call.  text: how it is computed.  facts: where comparisons go."""

    text: str
    facts: list[str]

    def __new__(cls, value: int, text: str, facts: list[str]) -> Size:
        size = super().__new__(cls, value)
        size.text = text
        size.facts = facts
        return size

    def __repr__(self) -> str:
        return f"{int(self)} ({self.text})"

    __hash__ = int.__hash__


def plain(value: Any) -> Any:
    """`value`, where only a number will do: that the program relies on it is a fact."""
    if not isinstance(value, Size):
        return value
    value.facts.append(f"{value.text} == {int(value)}")
    return int(value)


def text_of(value: Any) -> str:
    """As it is written in a kernel: a number, the way to compute a Size, a tuple of these."""
    if isinstance(value, tuple):
        return "(" + "".join(f"{text_of(item)}, " for item in value) + ")"
    return value.text if isinstance(value, Size) else repr(value)


def _computed(symbol: str, function: Operator, left: int, right: int, facts: list[str]) -> Size:
    """`left symbol right`, where one is a Size: the number by `function`, and how it is computed,
    in parentheses."""
    value = function(int(left), int(right))
    return Size(value, f"({text_of(left)} {symbol} {text_of(right)})", facts)


def _compared(symbol: str, function: Operator, left: int, right: int, facts: list[str]) -> bool:
    """The answer by `function`, which becomes a fact: `left symbol right`, or `not (...)` of that.
    Where both texts are equal, the answer is no fact: it is true of every size."""
    answer = function(int(left), int(right))
    if text_of(left) != text_of(right):
        fact = f"{text_of(left)} {symbol} {text_of(right)}"
        facts.append(fact if answer else f"not ({fact})")
    return answer


def _method(rule: Callable, symbol: str, name: str, swapped: bool = False) -> Callable:
    """The method of Size for an operator; swapped: the one for which the Size is on the right."""

    def method(self: Size, other: Any) -> Any:
        if not isinstance(other, int):
            return NotImplemented
        left, right = (other, self) if swapped else (self, other)
        return rule(symbol, getattr(operator, name), left, right, self.facts)

    return method


ARITHMETIC = {"+": "add", "-": "sub", "*": "mul", "//": "floordiv", "%": "mod"}
COMPARISONS = {"==": "eq", "!=": "ne", "<": "lt", "<=": "le", ">": "gt", ">=": "ge"}
for _symbol, _name in ARITHMETIC.items():
    setattr(Size, f"__{_name}__", _method(_computed, _symbol, _name))
    setattr(Size, f"__r{_name}__", _method(_computed, _symbol, _name, swapped=True))
for _symbol, _name in COMPARISONS.items():
    setattr(Size, f"__{_name}__", _method(_compared, _symbol, _name))


def product(sizes: Iterable[int]) -> int:
    """Of all of them; 1 for none."""
    return functools.reduce(operator.mul, sizes, 1)


def changed(now: Shapes, earlier: Shapes) -> set[tuple[str, int]]:
    """(source, dimension) of each size that is another one now.  Both: {source: its shape}; what
    only one of them knows is left out, and shapes of different length are compared from the left
    as far as both go."""
    found: set[tuple[str, int]] = set()
    for source in now.keys() & earlier.keys():
        pairs = zip(now[source], earlier[source], strict=False)
        found |= {(source, dim) for dim, (size, other) in enumerate(pairs) if size != other}
    return found
