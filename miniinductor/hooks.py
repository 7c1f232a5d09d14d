"""Where coverage enters the driver and the tracer: registries that the core owns and asks.

    @call_rule(torch.lstm)                  # how the tracer runs a call of the captured graph
    def lstm(interpreter, target, args, kwargs): ...

    CUTTERS.append(compile_pieces)          # how a graph with unknown sizes is compiled in pieces
    JOINERS.append(join_groups)             # several groups of a schedule as one
    PLAN_CACHES.append(GraphCache())        # where plans are kept

    >>> sorted(getattr(function, "__name__", "") for function in CALLS)[:1]
    ['gru']

All of them empty, every graph is compiled anew, one with sizes that only the run knows runs
eagerly, and every call is traced as torch's own rules take it apart.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from torch import fx

from .records import CompileRecord

if TYPE_CHECKING:
    from .nodes import Schedule, ScheduledNode

# --- the tracer -----------------------------------------------------------------------------------
# (interpreter, target, args, kwargs) -> what the call gives; `interpreter.plain_call` is the rest
CallRule = Callable[[fx.Interpreter, Any, tuple, dict[str, Any]], Any]
CALLS: dict[Any, CallRule] = {}


def call_rule(*targets: Any) -> Callable[[CallRule], CallRule]:
    """Register how calls of these functions in a captured graph are run under the tracer."""

    def register(rule: CallRule) -> CallRule:
        CALLS.update(dict.fromkeys(targets, rule))
        return rule

    return register


# --- the driver -----------------------------------------------------------------------------------
# (graph, how a piece is compiled: (graph, examples) -> CompiledGraph, record) -> the callable, or
# None where the graph cannot be cut
Cutter = Callable[[fx.GraphModule, Callable[..., Any], CompileRecord], Callable[..., Any] | None]
CUTTERS: list[Cutter] = []

# (schedule, record) -> its nodes, of which some stand for several; in any order
Joiner = Callable[["Schedule", CompileRecord], "list[ScheduledNode]"]
JOINERS: list[Joiner] = []


class Entry(Protocol):
    """A place for one graph's plan, and for its backward halves (`part`)."""

    def load(self, part: str = "") -> Any:
        """What was stored, or None."""

    def store(self, value: Any, part: str = "") -> str | None:
        """Why it could not be kept, or None."""


class PlanCache(Protocol):
    """Keeps plans between processes."""

    def entry(
        self,
        gm: fx.GraphModule,
        inputs: Sequence[object],
        mode: str | None,
        record: CompileRecord,
    ) -> Entry | None:
        """The graph's place; None, and a note, where what it depends on cannot be written down."""

    def parts_again(
        self,
        gm: fx.GraphModule,
        inputs: Sequence[object],
        make_plan: Callable[..., Any],
        record: CompileRecord,
        is_training: bool,
    ) -> Callable[[], Any]:
        """Of a plan that came from the cache: a function that traces the graph again, for what is
        not kept (graphs, in the record; the parts of the joint graph, which it returns).
        make_plan: (graph, inputs, record) -> (plan, parts)."""


PLAN_CACHES: list[PlanCache] = []
