"""Two calls of `compile` with the same backend and options share their compiled entries.

In:   the backend and the options.   Out: the same `FrameCompiler` each time.

    minidynamo.compile(f)(x)
    minidynamo.compile(f)(x)        # is not compiled again

Without this file each call of `compile` begins anew.
"""

import types
import weakref
from typing import Any

from .extending import extends
from ..convert_frame import FrameCompiler


# (backend, options) -> compiler.  Only what it compiled keeps it alive, for a backend of the user's
# may hold a model.
COMPILERS: "weakref.WeakValueDictionary[Any, FrameCompiler]" = weakref.WeakValueDictionary()


def identity(backend: object) -> Any:
    """A key by which two backends that are alive can be told apart.  It is no `==`: two callables
    may say that they are equal, and compile in different ways."""
    if isinstance(backend, str):
        return backend
    if isinstance(backend, types.MethodType):  # `obj.method` is a new object each time
        return id(backend.__self__), id(backend.__func__)
    return id(backend)


def shared_compiler(cls: type[FrameCompiler], backend: Any, **options: Any) -> FrameCompiler:
    key = (identity(backend), *sorted(options.items()))
    compiler = COMPILERS.get(key)
    if compiler is None:
        compiler = COMPILERS[key] = cls(backend, **options)
    return compiler


extends(FrameCompiler, "of")(classmethod(shared_compiler))
