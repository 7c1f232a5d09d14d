"""Where coverage enters the conversion of a frame: registries that the core owns and asks.

    TRACING.append(thread_state)            # a `with` block in which a frame is evaluated
    AFTER_WRITES.append(set_again)          # code that stands behind the replayed writes
    ADAPTERS.append(floats_as_tensors)      # something around what the backend has compiled

All of them empty: a graph has no effect but on tensors, an error that it raises leaves the frame,
and a graph break before the first tensor leaves the frame to plain Python.
"""

from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

    from .conversion import Conversion
    from .entries import CacheEntry
    from .graph_capture import OutputGraph
    from .reconstruct import Codegen
    from .records import FrameRecord
    from .replacement import Tail
    from .variables.base import Variable

# --- before and while a frame is traced -----------------------------------------------------------
TARGETS: list[Callable[[Any], Any]] = []  # what `compile` was given -> what is compiled for it
# the frame is evaluated within these
TRACING: "list[Callable[[OutputGraph], AbstractContextManager[None]]]" = []
# called with (record, entries that did not fit, function, arguments) before one more is made; or is
# not, because there are `config.recompile_limit` of them
RECOMPILING: "list[Callable[[FrameRecord, Sequence[CacheEntry], Any, Sequence[Any]], None]]" = []
# (conversion): after an attempt that met a break; will the next one go another way?  If none will,
# fullgraph=True forbids the break
WAYS_ON: "list[Callable[[Conversion], bool]]" = []

COMPILED: "list[Callable[[Conversion, CacheEntry], None]]" = []  # told of each entry that is made
RESETS: list[Callable[[], None]] = []  # what `minidynamo.reset()` forgets beside the entries

# --- the replacement code -------------------------------------------------------------------------
BEFORE_VALUES: "list[Callable[[Codegen], None]]" = []  # in front of what rebuilds values
AFTER_WRITES: "list[Callable[[Codegen], None]]" = []  # behind what repeats the frame's writes
# (tail) at a graph break: names of locals that live on though no instruction reads them; raises
# SkipFrame where the frame's state cannot be handed on
KEPT: "list[Callable[[Tail], Collection[str]]]" = []

# --- the graph ------------------------------------------------------------------------------------
# (frame, target, args, kwargs) of an operation -> (target, args, kwargs) to record instead
BEFORE_NODES: list[Callable[[Any, Any, Any, Any], tuple[Any, Any, Any]]] = []
# (output, target, tensors that it was given, result) of one that has run with fake tensors
AFTER_FAKES: "list[Callable[[OutputGraph, Any, list[torch.Tensor], Any], None]]" = []
# (output, what torch.fx has made of its graph), before a backend sees that
GRAPH_MODULES: "list[Callable[[OutputGraph, torch.fx.GraphModule], None]]" = []
Compiled = Callable[..., Any]
# (conversion, backend) -> the same backend, as a graph is given to it; the last one is outermost
BACKENDS: "list[Callable[[Conversion, Any], Any]]" = []
# (compiled graph, output, its results) -> what is called instead; the last one is outermost
ADAPTERS: "list[Callable[[Compiled, OutputGraph, list[Variable]], Compiled]]" = []
