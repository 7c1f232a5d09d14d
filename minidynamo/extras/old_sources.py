"""The texts of graphs that have died are forgotten.

In:   the GraphModules that torch.fx makes.   Out: nothing, at their end.

torch.fx keeps the text of every GraphModule that ever was, for tracebacks.
"""

import linecache
import weakref

import torch

from .. import hooks


def forget_source(file: str) -> None:
    """torch.fx keeps the text of every GraphModule that ever was, for tracebacks."""
    linecache.cache.pop(file, None)
    torch.fx.graph_module._loader.eval_cache.pop(file, None)


@hooks.GRAPH_MODULES.append
def forget_at_its_end(_: object, made: torch.fx.GraphModule) -> None:
    weakref.finalize(made, forget_source, type(made).forward.__code__.co_filename).atexit = False
