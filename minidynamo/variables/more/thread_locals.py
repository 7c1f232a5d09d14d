"""threading.local: attributes that each thread has for itself.

In:   a name.   Out: what this thread has under it, guarded there; a break for writes and methods.

    >>> getattr(STATE, "depth", 0)      # guard: not hasattr(STATE, 'depth')
"""

import threading
from typing import Any

from ...exceptions import Break
from ..base import Frame, OutputGraph, Source, Variable
from ..lookup import MISSING, lookup
from ..registry import SHARED


class ThreadLocalVar(Variable):
    value: Any
    cls: type = threading.local

    def identity(self) -> Any:
        return self.value

    def getattr(self, tx: Frame, name: str) -> Variable:
        if name in vars(self.value):
            return tx.output.wrap(vars(self.value)[name], self.source.attr(name))
        if lookup(self.cls, name)[1] is not MISSING:
            raise Break("attribute", f".{name} of a {self.cls.__name__}")
        tx.output.guard(self.source, ("ABSENT", name), "not hasattr({0}, {pin})", name)
        tx.raise_(AttributeError, f"'{self.cls.__name__}' object has no attribute '{name}'")


@SHARED.rule(test=lambda value: issubclass(type(value), threading.local), order=30)
def wrap_thread_local(builder: OutputGraph, value: Any, source: Source) -> Variable:
    return ThreadLocalVar(value, type(value), source=source)
