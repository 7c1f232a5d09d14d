"""The registry of backends: what compiles a captured graph.

In:   a name or a callable.   Out: `backend(gm: fx.GraphModule, example_inputs: list) ->
      callable(*tensors) -> tuple of tensors`.

    >>> @register_backend
    ... def show(gm, example_inputs):
    ...     gm.graph.print_tabular()
    ...     return gm.forward

Mirrors torch/_dynamo/backends/registry.py (paper section 3.9).
"""

import importlib
from collections.abc import Callable, Sequence
from typing import Any

from torch import fx

from . import coverage, frame_hook
from .exceptions import did_you_mean

Backend = Callable[..., Callable]
_REGISTRY: dict[str, Backend] = {}


def register_backend(fn: Backend | None = None, *, name: str | None = None) -> Any:
    """Register `fn` under its own or the given name; also a decorator."""
    if fn is None:
        return lambda function: register_backend(function, name=name)
    _REGISTRY[name or fn.__name__] = fn
    return fn


def list_backends() -> list[str]:
    coverage.load()  # it has more
    return sorted(_REGISTRY)


def lookup_backend(backend: str | Backend) -> tuple[str, Backend]:
    """(name, callable) of a registered name or of any callable."""
    if callable(backend):
        return getattr(backend, "__name__", type(backend).__name__), backend
    known = list_backends()
    if backend not in known:
        raise ValueError(
            f"unknown backend {backend!r}{did_you_mean(backend, known)}; there are "
            f"{', '.join(known)}, or pass a callable"
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
    runtime: Any = importlib.import_module("miniinductor.autograd.runtime")
    runtime.undisturbed = frame_hook.disabled
    return importlib.import_module("miniinductor").compile_fx(gm, example_inputs, mode=mode)
