"""Pieces of generated C++ that know what they are made of, so that nobody reads them again.

In:   a template and its parts.  Out: its text, and with it the names that it reads and what it uses
      of the prelude.

    >>> index = Code("3*x0", reads=("x0",))
    >>> value = call("exp", element(named("in0"), index))
    >>> value, value.reads, sorted(value.uses)
    ('mini::exp(in0[3*x0])', ('in0', 'x0'), ['[]', 'exp'])

A strategy that moves lines, or asks what they cost, asks these (tree.py).
A plain text as a part adds nothing: the name of a type, a number.
"""

import functools
from collections.abc import Iterable
from typing import Any

import sympy

from ..sizes.printing import functions_of, index_text, names_of

NOTHING: frozenset[str] = frozenset()


class Code(str):
    """reads: variables, arrays and pointers, as often as they stand there; uses: names of the
    prelude, "/" and "%", and "[]" where an element is read at a place that may be computed."""

    reads: tuple[str, ...]
    uses: frozenset[str]

    def __new__(
        cls, text: str, reads: Iterable[str] = (), uses: frozenset[str] = NOTHING
    ) -> "Code":
        made = super().__new__(cls, text)
        made.reads, made.uses = tuple(reads), uses
        return made


def named(name: object) -> Code:
    """A variable, an array or a pointer of the generated code."""
    return Code(str(name), [str(name)])


def code(template: str, *parts: Any, uses: frozenset[str] = NOTHING) -> Code:
    """The template with these parts in its braces: pieces of code, values, or plain texts."""
    reads: list[str] = []
    for part in parts:
        piece = getattr(part, "text", part)  # of a value: its name
        if isinstance(piece, Code):
            reads += piece.reads
            uses |= piece.uses
    return Code(template.format(*parts), reads, uses)


def call(function: str, *arguments: Any, of: str = "") -> Code:
    """A call of a function of the prelude.  of: the arguments of a template."""
    places = ", ".join(["{}"] * len(arguments))
    name = f"{function}<{of}>" if of else function
    return code(f"mini::{name}({places})", *arguments, uses=frozenset([function]))


def element(array: Code, place: object) -> Code:
    return code("{}[{}]", array, place, uses=frozenset(["[]"]))


@functools.lru_cache(50_000)
def index_code(expr: sympy.Expr) -> Code:
    """An index.  NotImplementedError where there is no text for it."""
    return Code(index_text(expr), names_of(expr), functions_of(expr))
