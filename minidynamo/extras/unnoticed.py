"""What the program registers for the parameters, buffers and modules of all modules does not see
those that hold a captured graph.

In:   a graph that is handed to its backend.
Out:  the same, while the registry has no such hooks; those that come meanwhile, from another
      thread, stay.

    torch.nn.modules.module.register_module_parameter_registration_hook(count)
    compiled(x)                     # counts what the program registers, and nothing of ours

(Hooks of calls do not see them either: a graph is run by its `forward`.)
"""

import collections
import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from torch.nn.modules import module as registry

from .extending import extends
from ..conversion import Conversion


TABLES = [f"_global_{kind}_registration_hooks" for kind in ("parameter", "buffer", "module")]

compile_graph = Conversion.compile_graph


@contextlib.contextmanager
def nothing_registered() -> Iterator[None]:
    """No hook sees what is registered in here.  The tables themselves are kept: what removes a hook
    knows them."""
    filled = {name: getattr(registry, name) for name in TABLES if getattr(registry, name)}
    empty: dict[str, Any] = {name: collections.OrderedDict() for name in filled}
    vars(registry).update(empty)
    try:
        yield
    finally:
        vars(registry).update(filled)
        for name, table in filled.items():
            table.update(empty[name])


@extends(Conversion)
class Unnoticed(Conversion):
    def compile_graph(self, *args: Any) -> Callable | None:
        with nothing_registered():
            return compile_graph(self, *args)
