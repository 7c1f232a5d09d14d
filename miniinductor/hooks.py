"""Where coverage enters: classes of the core that it makes to do more.

    @extends(Tracer)
    class CarefulTracer(Tracer): ...

    tracer = extended(Tracer)(fake_mode)    # where the core makes an object

One function in place of another: replaceable.py.  With nothing registered, every graph is compiled
anew.
"""

import functools
from collections.abc import Callable
from typing import Any, TypeVar

Class = TypeVar("Class", bound=type)
EXTENDED: dict[type, list[type]] = {}  # a class of the core -> its subclasses in coverage


def extends(core: type) -> Callable[[Class], Class]:
    """Decorator: this subclass of a class of the core takes its place, with others that do."""

    def register(subclass: Class) -> Class:
        EXTENDED.setdefault(core, []).insert(0, subclass)
        extended.cache_clear()
        return subclass

    return register


@functools.cache
def extended(core: Any) -> Any:
    """The class, with all that coverage adds to it; what was registered last comes first."""
    return type(core.__name__, (*EXTENDED.get(core, ()), core), {})
