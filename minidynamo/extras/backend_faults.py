"""A backend that raises: the graph runs as it is, and this is recorded; or the user's call raises.

In:   a backend that is given a graph.   Out: what it has made; the graph itself where it failed.
      What a backend of the user's has made raises where it does not give what the graph gives.

    >>> minidynamo.compile(f, backend=mine)(x)
    minidynamo.BackendError: the backend 'mine' failed for f at example.py:3: ValueError: ...

Without this file a fault of the backend is taken for one of the compiler: the frame runs eagerly.
"""

from collections.abc import Callable, Sequence
from typing import Any

from torch import fx

from .. import backends, config, hooks
from ..conversion import Conversion
from ..exceptions import BackendError
from ..foreign import faults, ours
from .told import internal_error, note_error, user_line


def is_own(backend: object) -> bool:
    """Is it one of minidynamo's, and not one that the user wrote?"""
    return getattr(backend, "__module__", None) == backends.__name__


@hooks.BACKENDS.append
def watched(conversion: Conversion, backend: Callable[..., Any]) -> Callable[..., Any]:
    """The backend, which gives the graph itself where it fails."""

    def ask(gm: fx.GraphModule, example_inputs: Sequence[Any], **options: Any) -> Any:
        count = len(gm.graph.output_node().args[0])
        try:
            compiled = backend(gm, example_inputs, **options)
            if not callable(compiled):
                raise TypeError(
                    f"the backend returned {type(compiled).__name__}, nothing that can be called"
                )
        except backend_faults(conversion) as error:
            note_backend_error(conversion, error)
            return gm.forward
        own = conversion.compiler.backend
        if hasattr(compiled, "record") or is_own(own) or backends.is_torchs(own):
            return compiled
        if compiled is gm:
            return gm.forward  # which runs no hooks that the program has set for all modules
        if getattr(compiled, "__self__", None) is gm:
            return compiled
        return with_results(compiled, count, conversion)

    return ask


def with_results(
    compiled: Callable[..., Any], count: int, conversion: Conversion
) -> Callable[..., Any]:
    """The user's callable, which must give so many results.  Of a tensor in place of a tuple, the
    rows would be taken for them."""
    name, function = conversion.compiler.backend_name, conversion.record.function

    def run(*inputs: Any) -> Any:
        found = compiled(*inputs)
        if isinstance(found, (tuple, list)) and len(found) == count:
            return found
        seen = type(found).__name__
        if isinstance(found, (tuple, list)):
            seen += f" of {len(found)}"
        raise BackendError(
            f"what the backend {name!r} made of {function} gives a {seen}, where the graph gives a "
            f"tuple of {count}\n  hint: a graph's results are a tuple, also where it has one: "
            "return (result,)"
        )

    return run


def note_backend_error(conversion: Conversion, error: Exception) -> None:
    """The backend failed.  Raises BackendError where it is the user's, unless they want it
    otherwise."""
    compiler, record = conversion.compiler, conversion.record
    name = compiler.backend_name
    if is_own(compiler.backend):
        internal_error(error, record, f"backend {name}", user_line(conversion))
    elif config.suppress_backend_errors:
        note_error(error, record, f"backend {name}", user_line(conversion))
    else:
        raise BackendError(
            f"the backend {name!r} failed for {record.function} at {user_line(conversion)}: "
            f"{type(error).__name__}: {error}\n"
            "  hint: minidynamo.config.suppress_backend_errors = True runs the frame eagerly"
        ) from error


def backend_faults(conversion: Conversion) -> Any:
    """The exceptions of the backend that are answered by running the graph as it is: of one of
    ours, what a fault of a compiler looks like; of the user's, all that it raises itself, and
    no signal handler.  Both functions look at the exception that is being handled, so this is
    called in the `except` clause."""
    return faults() if is_own(conversion.compiler.backend) else ours(Exception)
