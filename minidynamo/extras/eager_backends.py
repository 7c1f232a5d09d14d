"""The backends "eager" and "aot_eager": eager's kernels, to look at capture, or at it and the ATen
trace, alone.

In, out: as `backends.register_backend` says.

    >>> compiled = minidynamo.compile(f, backend="eager")       # the captured graph as it is

Mirrors torch/_dynamo/backends/debugging.py.
"""

import types
from collections.abc import Callable, Sequence
from typing import Any

from torch import fx

import miniinductor

from ..backends import register_backend


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
    return miniinductor.aot_eager(gm, example_inputs)
