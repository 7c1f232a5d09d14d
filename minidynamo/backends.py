"""The registry of backends: what compiles a captured graph.

In:   a name or a callable.   Out: `backend(gm: fx.GraphModule, example_inputs: list) ->
      callable(*tensors) -> tuple of tensors`.

    >>> @register_backend
    ... def show(gm, example_inputs):
    ...     gm.graph.print_tabular()
    ...     return gm.forward

A backend of torch's own, or one of the user's that says that it ends in torch's compiler, gets
graphs without symbols: each size is a number there.  A graph that writes runs as it is: torch's
compilers look which inputs share memory, and have torch.compile guard that.

    >>> from torch._dynamo.backends.registry import lookup_backend      # the user's line, not ours
    >>> minidynamo.compile(f, backend=lookup_backend("inductor"))

Mirrors torch/_dynamo/backends/registry.py and debugging.py (paper section 3.9).
"""

import functools
import importlib
import types
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import fx

from miniinductor.options import did_you_mean

from . import config, records
from .errors import BackendError
from .frame import frame_hook

if TYPE_CHECKING:
    from .convert.conversion import Conversion

Backend = Callable[..., Callable]
_REGISTRY: dict[str, Backend] = {}


def register_backend(fn: Backend | None = None, *, name: str | None = None) -> Any:
    """Register `fn` under its own or the given name; also a decorator.  ValueError for the name of
    one of ours."""
    if fn is None:
        return lambda function: register_backend(function, name=name)
    name = name or fn.__name__
    if getattr(_REGISTRY.get(name), "__module__", "") == __name__:
        raise ValueError(f"there is a backend {name!r} already, minidynamo's own")
    _REGISTRY[name] = fn
    return fn


def list_backends() -> list[str]:
    return sorted(_REGISTRY)


def lookup_backend(backend: str | Backend) -> tuple[str, Backend]:
    """(name, callable) of a registered name or of any callable."""
    if callable(backend):
        return getattr(backend, "__name__", type(backend).__name__), backend
    known = list_backends()
    if backend not in known:
        raise ValueError(
            f"unknown backend {backend!r}; there are {', '.join(known)}, or pass a callable"
            + did_you_mean(backend, known)
        )
    return backend, _REGISTRY[backend]


@register_backend(name="inductor")
def inductor(
    gm: fx.GraphModule, example_inputs: Sequence[Any], mode: str | None = None
) -> Callable:
    """miniinductor: fused kernels.

    Where `backward()` is called in a compiled function, the hook is on while miniinductor compiles
    and runs the backward graph.  miniinductor knows nothing of hooks, so it is told here how to
    call a function with the hook off."""
    # imported by name when it is first used: a program with another backend needs none of it
    joint = importlib.import_module("miniinductor.autograd.joint")
    with joint.undisturbed.set(frame_hook.disabled):
        return importlib.import_module("miniinductor").compile_fx(gm, example_inputs, mode=mode)


@register_backend(name="eager")
def eager(
    gm: fx.GraphModule, example_inputs: Sequence[Any], mode: str | None = None
) -> Callable[..., Any]:
    """Run the captured graph as it is: shows capture alone.

    The graph's code reads parameters from a plain namespace: nn.Module.__getattr__ would cost more
    than small ops."""
    attributes = types.SimpleNamespace(
        **dict(gm.named_parameters(remove_duplicate=False)),
        **dict(gm.named_buffers(remove_duplicate=False)),
    )
    return types.MethodType(type(gm).forward, attributes)


@register_backend(name="aot_eager")
def aot_eager(
    gm: fx.GraphModule, example_inputs: Sequence[Any], mode: str | None = None
) -> Callable[..., Any]:
    """miniinductor's trace and functionalization, then eager kernels."""
    return importlib.import_module("miniinductor").aot_eager(gm, example_inputs)


# ---- torch's own compiler, on either side
def miniinductor(
    gm: fx.GraphModule,
    example_inputs: Sequence[Any],
    *,
    mode: str | None = None,
    options: dict[str, Any] | None = None,
) -> Callable[..., Any]:
    """miniinductor as a backend of torch.compile, which finds it under this name by the entry point
    in pyproject.toml; options: of miniinductor.config.  A graph with sizes that change runs
    eagerly: torch hands the sizes over as inputs."""
    if not all(isinstance(value, torch.Tensor) for value in example_inputs):
        text = "backend miniinductor: a graph with sizes that change runs eagerly"
        records.warn_once(text, text)
        return gm.forward
    compiler = importlib.import_module("miniinductor")
    with compiler.config.patch(**(options or {})):
        return compiler.compile_fx(gm, example_inputs, mode=mode)


TORCHS = ("torch._dynamo.", "torch._inductor.", "torch._functorch.")  # where they lie


def torch_backend(backend: Callable[..., Any]) -> Callable[..., Any]:
    """`backend`, which hands its graphs to torch's own compiler: sizes are numbers.  Also a
    decorator.  Backends that lie in torch need it not."""
    setattr(backend, "is_torchs", True)
    return backend


def is_torchs(backend: Any) -> bool:
    """Does the backend come from torch, or hand its graphs to one that does?"""
    while isinstance(backend, functools.partial):
        backend = backend.func
    home = getattr(backend, "__module__", None) or type(backend).__module__
    return getattr(backend, "is_torchs", False) or f"{home}.".startswith(TORCHS)


# ---- a backend that fails
def note_failure(conversion: "Conversion", error: Exception, is_ours: bool) -> None:
    """Record that the backend failed.  Raises BackendError for a user's backend unless
    `config.suppress_backend_errors`; errors of ours under `config.raise_internal_errors`, as
    the tests do."""
    name = conversion.compiler.backend_name
    if is_ours and config.raise_internal_errors:
        raise error
    if is_ours or config.suppress_backend_errors:
        records.note_error(error, conversion, f"backend {name}")
        return
    line = records.user_line(conversion)
    raise BackendError(
        f"the backend {name!r} failed for {conversion.record.function} at {line}: "
        f"{type(error).__name__}: {error}\n"
        "  hint: minidynamo.config.suppress_backend_errors = True runs the frame eagerly"
    ) from error


def tuple_of(compiled: Callable[..., Any], name: str) -> Callable[..., Any]:
    """What a user's backend has made, with a check that it returns a tuple.  (The rows of a single
    tensor would be taken for the graph's results.)"""

    def run(*inputs: Any) -> Any:
        found = compiled(*inputs)
        if isinstance(found, (tuple, list)):
            return found
        raise BackendError(
            f"what the backend {name!r} made gives a {type(found).__name__}, no tuple\n"
            "  hint: a graph's results are a tuple, also where it has one: return (result,)"
        )

    return run
