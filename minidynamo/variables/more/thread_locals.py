"""threading.local: attributes that each thread has for itself.

In:   a name.
Out:  what this thread has under it, guarded there; writes, repeated behind the graph; a break for
      methods.

    >>> getattr(STATE, "depth", 0)      # guard: not hasattr(STATE, 'depth')
"""

import threading
from typing import Any, NoReturn

from ...exceptions import Break
from ..base import Codegen, Frame, OutputGraph, Source, Variable
from ..constant import ConstantVar
from ..lookup import MISSING, lookup
from ..registry import SHARED
from .writing_calls import commit_call


def let_go(state: threading.local, name: str) -> None:
    """The frame deletes it, or has set it and deleted it."""
    if hasattr(state, name):
        delattr(state, name)


class ThreadLocalVar(Variable):
    value: Any
    cls: type = threading.local

    def identity(self) -> Any:
        return self.value

    def __post_init__(self) -> None:
        self.written: dict[str, Variable | None] = {}  # None: deleted

    def getattr(self, tx: Frame, name: str) -> Variable:
        if name in self.written:
            return self.written[name] or self.missing(tx, name)
        if name in vars(self.value):
            return tx.output.wrap(vars(self.value)[name], self.source.attr(name))
        if lookup(self.cls, name)[1] is not MISSING:
            raise Break("attribute", f".{name} of a {self.cls.__name__}")
        tx.output.guard(self.source, ("ABSENT", name), "not hasattr({0}, {pin})", name)
        return self.missing(tx, name)

    def missing(self, tx: Frame, name: str) -> NoReturn:
        tx.raise_(AttributeError, f"'{self.cls.__name__}' object has no attribute '{name}'")

    def setattr(self, tx: Frame, name: str, value: Variable | None) -> None:
        if self.cls is not threading.local or lookup(self.cls, name)[1] is not MISSING:
            raise Break("attribute", f"setting .{name} of a {self.cls.__name__}")
        if not self.mutated:
            self.mutated = True
            tx.output.sourced.append(self)
        self.written[name] = value

    def delattr(self, tx: Frame, name: str) -> None:
        self.getattr(tx, name)
        self.setattr(tx, name, None)

    def replay(self, cg: Codegen) -> None:
        for name, value in self.written.items():
            if value is None:
                commit_call(cg, let_go, self, ConstantVar(name))
            else:
                commit_call(cg, setattr, self, ConstantVar(name), value)


@SHARED.rule(test=lambda value: issubclass(type(value), threading.local), order=30)
def wrap_thread_local(builder: OutputGraph, value: Any, source: Source) -> Variable:
    return ThreadLocalVar(value, type(value), source=source)
