"""The ways in which each case is compiled.  A generator names those that can tell it something.

    with MODES["inductor-dynamic"].active():
        compiled = MODES["inductor-dynamic"].compile(function)

`active()` sets the options, and forgets all entries before and after.  Internal errors of both
packages raise: a frame that falls back to plain Python in silence counts as a difference.
"""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import minidynamo
import miniinductor


@dataclass(frozen=True)
class Mode:
    """How a program is compiled and run.

    training: the case should need gradients, where it can, and compare them.
    """

    name: str
    options: dict[str, Any]
    inductor: dict[str, Any] = field(default_factory=dict)
    training: bool = False

    def compile(self, function: Any) -> Callable:
        return minidynamo.compile(function, **self.options)

    @contextlib.contextmanager
    def active(self) -> Iterator[None]:
        changes = {"raise_internal_errors": True, **self.inductor}
        with contextlib.ExitStack() as stack:
            stack.enter_context(minidynamo.config.patch(raise_internal_errors=True))
            stack.enter_context(miniinductor.config.patch(**changes))
            minidynamo.reset()
            try:
                yield
            finally:
                minidynamo.reset()


MODES = {
    mode.name: mode
    for mode in (
        Mode("eager", {"backend": "eager"}),
        Mode("eager-dynamic", {"backend": "eager", "dynamic": True}),
        Mode("aot_eager", {"backend": "aot_eager"}),
        Mode("aot_eager-training", {"backend": "aot_eager"}, training=True),
        Mode("inductor", {"backend": "inductor"}),
        Mode("inductor-dynamic", {"backend": "inductor", "dynamic": True}),
        Mode("inductor-training", {"backend": "inductor"}, training=True),
        Mode("reduce-overhead", {"backend": "inductor", "mode": "reduce-overhead"}),
        Mode("triton", {"backend": "inductor"}, {"cpu_backend": "triton"}),
    )
}


def chosen(names: str) -> list[Mode]:
    """The modes of a comma-separated list."""
    unknown = [name for name in names.split(",") if name not in MODES]
    if unknown:
        raise SystemExit(f"unknown modes {unknown}: choose from {', '.join(MODES)}")
    return [MODES[name] for name in names.split(",")]
