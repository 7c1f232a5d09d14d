"""`a is b`, and whether two items are the same as containers compare them.

In:   two variables.
Out:  the answer on the host, guarded where other objects may lie at the same sources later.

    >>> tx.same(a, b), tx.same_or_equal(a, b)
"""

from __future__ import annotations

from typing import Any

from ..exceptions import Break
from ..symbolic_eval import operators
from ..symbolic_eval.opcodes import pushes
from ..symbolic_eval.operations import Operations
from ..variables.base import Variable, extends
from ..variables.constant import ConstantVar
from ..variables.more.asked_identity import note_asked
from ..variables.symbolic import SymVar
from ..variables.tensor import TensorVar


@extends(Operations)
class Sameness(Operations):
    def same(self, a: Variable, b: Variable) -> bool:
        """a is b."""
        symbols = SymVar in (type(a), type(b)) and a is not b
        if symbols and a.python_type() is b.python_type():  # are both one object in this run?
            a, b = operators.pinned(a), operators.pinned(b)
        first, second = a.identity(), b.identity()
        self.guard_same(a, b, first, second)
        if isinstance(a, ConstantVar) and isinstance(b, ConstantVar):
            if first is not second and type(first) is type(second) and first == second:
                asked = f"are two equal constants ({first!r:.50}) one object?"
                raise Break("identity", asked, "compare with ==")
        return first is second

    def guard_same(self: Any, a: Variable, b: Variable, first: Any, second: Any) -> None:
        """Guard the answer of `a is b`, unless other guards imply it already: those on the types of
        `a` and `b` do where they differ."""
        note_asked(self, *(value for value in (a, b) if isinstance(value, TensorVar)))
        sources = [v.source for v in (a, b) if v.source is not None and v.source.kind != "pinned"]
        if a is b or not sources or isinstance(a, (TensorVar, ConstantVar)):
            return
        if a.python_type() is not b.python_type():
            return
        word = "is" if first is second else "is not"
        if len(sources) == 2:
            self.output.guard_pair(f"{{0}} {word} {{1}}", *sources)
            return
        other = second if a.source is sources[0] else first
        if not isinstance(other, Variable):  # an object made in this frame is never the one outside
            self.output.guard(sources[0], ("SAME", id(other)), f"{{0}} {word} {{pin}}", other)

    def equal(self: Any, a: Variable, b: Variable) -> bool:
        """bool(a == b) on the host."""
        return self.compare("==", a, b).truth(self)

    def same_or_equal(self, a: Variable, b: Variable) -> bool:
        """As containers compare: `a is b or a == b`."""
        if isinstance(a, ConstantVar) and isinstance(b, ConstantVar):
            return a.value is b.value or self.equal(a, b)
        return self.same(a, b) or self.equal(a, b)


pushes({"IS_OP": lambda frame, invert: ConstantVar(frame.same(*frame.popn(2)) != bool(invert))})
