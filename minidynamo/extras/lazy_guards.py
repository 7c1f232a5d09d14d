"""Guards are compiled when they are first asked: many entries never are.

In:   the text of a guard function.   Out: a function that compiles it in its first call.

Without this file the text is compiled at once.
"""

import builtins
import types
from typing import Any

from .extending import extends
from ..guards import GuardFunction


@extends(GuardFunction)
class Lazily(GuardFunction):
    def compiled(self) -> types.FunctionType:
        self.namespace["compile_check"] = self.compile
        # C code that imports a module asks the running function's globals (torch.jit.trace does).
        self.namespace["__builtins__"] = builtins
        check = types.FunctionType(compile_first.__code__, self.namespace, "check")
        self.namespace["check"] = check
        return check

    def compile(self) -> None:
        """Give `check` the code of its text."""
        made: dict[str, Any] = {}
        exec(compile(self.source, "<minidynamo guard>", "exec"), made)
        self.check.__code__ = made["check"].__code__


def compile_first(*parameters: Any) -> Any:
    """What `check` does in its first call: compile its text, and answer by that.

    `check` has the code of this function at first, and globals of its own: `globals()` is then
    `GuardFunction.namespace`, not this module's."""
    names: Any = globals()
    names["compile_check"]()
    return names["check"](*parameters)
