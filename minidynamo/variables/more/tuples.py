"""Tuples that are more than tuples: named tuples, torch.Size, what `x.max(0)` gives.

In:   a TupleVar of such a class.   Out: its named items; code that makes it again.

    >>> largest.getattr(tx, "values")       # of torch.return_types.max
"""

from __future__ import annotations

import functools

from ..base import Codegen, Frame, Variable, extends
from ..containers import SequenceVar, TupleVar

plain_reconstruct = TupleVar.reconstruct


@extends(SequenceVar)
class StructSequences(SequenceVar):
    def getattr(self, tx: Frame, name: str) -> Variable:
        if self.cls.__module__ == "torch.return_types" and name in self.cls.__match_args__:
            return self.item(tx, self.cls.__match_args__.index(name))
        return Variable.getattr(self, tx, name)


@extends(TupleVar)
class MadeAgain(TupleVar):
    def reconstruct(self, cg: Codegen) -> None:
        if self.cls is tuple:
            plain_reconstruct(self, cg)
        elif hasattr(self.cls, "_fields"):
            cls = functools.partial(cg.pinned, self.cls)
            cg.call_object(tuple.__new__, cls, cg.emitter(self.contents))
        else:
            cg.call_object(self.cls, cg.emitter(self.contents))
