"""Tuples that are more than tuples: named tuples, torch.Size, what `x.max(0)` gives; and those of
constants, which are loaded as one constant.

In:   a TupleVar of such a class.   Out: its named items; code that makes it again.

    >>> largest.getattr(tx, "values")       # of torch.return_types.max
"""

import functools
from collections.abc import Callable, Iterable
from typing import Any

from ...extras.extending import extends, noted
from ..base import Codegen, Frame, Lazy, OutputGraph, Variable, peek
from ..constant import is_constant_value
from ..containers import ListVar, SequenceVar, TupleVar
from ..lookup import BINARY, MISSING, lookup
from ..registry import RESULTS


# What a named tuple must have from tuple, or not at all: else it is an instance of its class.
SPECIAL = [
    *(f"__{kind}{name}__" for kind in ("", "r", "i") for name in BINARY),
    *"__lt__ __le__ __eq__ __ne__ __gt__ __ge__ __hash__ __bool__ __len__ __iter__".split(),
    *"__contains__ __getitem__ __setitem__ __delitem__ __reversed__ __call__ __init__".split(),
    *"__neg__ __pos__ __invert__ __abs__ __int__ __float__ __index__ __enter__ __next__".split(),
    *"__getattribute__ __getattr__ __setattr__ __delattr__ __length_hint__ __divmod__".split(),
]


def is_plain_named_tuple(cls: type) -> bool:
    """A class with `_fields` whose objects have no `__dict__` and no operators of their own."""
    if not hasattr(cls, "_fields") or cls.__new__ is tuple.__new__ or cls.__dictoffset__:
        return False
    known = vars(object) | vars(tuple)
    return all(lookup(cls, name)[1] is known.get(name, MISSING) for name in SPECIAL)


def sequence_of(cls: type, items: Iterable[Variable]) -> SequenceVar:
    """A new list, or a tuple of this class; a plain one where its items have names."""
    if cls is list:
        return ListVar(list(items))
    return TupleVar(list(items), tuple if hasattr(cls, "_fields") else cls)


plain_reconstruct, plain_argument = TupleVar.reconstruct, TupleVar.argument


@extends(SequenceVar)
class StructSequences(SequenceVar):
    def getattr(self, tx: Frame, name: str) -> Variable:
        if self.cls.__module__ == "torch.return_types" and name in self.cls.__match_args__:
            return self.item(tx, self.cls.__match_args__.index(name))
        return Variable.getattr(self, tx, name)


class Literals(dict[Variable, object]):
    """The constants of the replacement code that stand for tuples."""


@RESULTS.rule(
    test=lambda value: isinstance(value, tuple) and is_plain_named_tuple(type(value)), order=5
)
def named_result(output: OutputGraph, value: Any) -> Variable:
    return TupleVar([output.wrap_result(item) for item in value], type(value))


@extends(TupleVar)
class MadeAgain(TupleVar):
    def as_constant(self) -> Any:
        values = [item.as_constant() for item in self.items]
        return self.cls(*values) if hasattr(self.cls, "_fields") else self.cls(values)

    def argument(self, part: Callable[[Variable], Any]) -> Any:
        items = plain_argument(self, part)
        return self.cls(*items) if hasattr(self.cls, "_fields") else items

    def is_literal(self) -> bool:
        """May it be a constant of the replacement code?"""
        return (
            self.cls is tuple
            and not any(type(peek(item)) is Lazy or item.source for item in self.items)
            and self.is_constant()
            and all(is_constant_value(peek(item).as_constant()) for item in self.items)
        )

    @property
    def shared(self) -> bool:  # type: ignore[override]
        return not self.is_literal()

    def reconstruct(self, cg: Codegen) -> None:
        if self.is_literal():  # one object, however often it is loaded
            cg.load_const(noted(cg.output, Literals).setdefault(self, self.as_constant()))
        elif self.cls is tuple:
            plain_reconstruct(self, cg)
        elif hasattr(self.cls, "_fields"):
            cls = functools.partial(cg.pinned, self.cls)
            cg.call_object(tuple.__new__, cls, functools.partial(self.contents, cg))
        else:
            cg.call_object(self.cls, functools.partial(self.contents, cg))
