"""Sizes that only the run knows stay in the graph by default, where no decision needs them.

In:   a frame that breaks at an op whose result has such a size: x[mask], nonzero(), unique().
Out:  the frame traced again with symbols for those sizes (unbacked_sizes.py), until something has
      to know one: then the graph is split at the op that makes it, as if there were no symbols.

    edges = edge_index[:, edge_index[0] != edge_index[1]]      # u0 columns
    degree.scatter_add_(0, edges[1], ones)                     # nobody asks how many: one graph

    rows = x[mask]                                             # here the graph is split
    return rows.sum() if rows.shape[0] > 2 else x              # ... because of this

Numbers (`.item()`) are left to `config.capture_scalar_outputs` and to fullgraph=True, for programs
decide by them as a rule.  Where a backend cannot do without a size, or an op raises, the frame is
traced without such symbols, too.  PyTorch: `capture_dynamic_output_shape_ops`, off by default; a
decision breaks the graph where it is met.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, cast

import torch
from torch._subclasses.fake_tensor import FakeTensor

from .extending import extends, noted
from .. import config, hooks, records
from ..conversion import Conversion
from ..entries import CacheEntry
from ..foreign import ours
from ..graph_capture import OutputGraph
from ..symbolic_shapes import ShapeEnv

from .rare_nodes import UnknownSize, describe
from .unbacked_sizes import ASKED, MADE, DataDependentDecision, UnbackedPolicy

HINT = "keep the size, or the decision about it, outside the compiled function"
# breaks that a program need not have with numbers for sizes
DOUBTFUL = ("op failed", "fake tensor", "torch")
# operations that give their tensor itself, a view or a copy
MAY_COPY = {"contiguous", "reshape", "reshape_as", "flatten", "ravel"}


class Makers(dict[Any, tuple[int, UnknownSize]]):
    """symbol -> (step of the root at which an op made it, the break that this would have been)."""


# ---- what is met while a frame is traced
@MADE.append
def note_makers(output: OutputGraph, tx: Any, node: torch.fx.Node, symbols: set[Any]) -> None:
    reason = f"{describe(node.target)} needs the tensor's values"
    for symbol in symbols:
        made = UnknownSize("data-dependent", reason, HINT, stack=tx.user_stack())
        noted(output, Makers)[symbol] = (output.root.group_step, made)


@hooks.TRACING.append
@contextmanager
def without_numbers(output: OutputGraph) -> Iterator[None]:
    """Sizes alone are symbols: what reads a number breaks the graph."""
    if output.policy.sizes_alone:
        setattr(output.shape_env, "allow_scalar_outputs", False)
        setattr(output.shape_env, "asks_for_ones", True)  # see miniinductor/fakes/own_rules.py
    yield


@hooks.AFTER_FAKES.append
def ask_for_copies(
    output: OutputGraph, target: Any, given: list[torch.Tensor], result: Any
) -> None:
    """`y.t().reshape(-1)` is a view where y has one row, and a copy where it has more: that is a
    decision, too.  (Fake tensors take a size that nobody knows for none of 0 and 1.)"""
    name = getattr(target, "__name__", target)
    if not output.policy.sizes_alone or name not in MAY_COPY or not isinstance(result, FakeTensor):
        return
    memory = result.untyped_storage()._cdata
    if all(fake.untyped_storage()._cdata != memory for fake in given):
        for size in result.shape:
            bool(size > 1)


# ---- what is made of it
@hooks.WAYS_ON.append
def keep_sizes(conversion: Conversion) -> bool:
    """After an attempt that broke: is the break another one with symbols, or without them?"""
    policy = cast(UnbackedPolicy, conversion.policy)
    step, found = next(reversed(conversion.forced.items()))
    if policy.sizes_alone is None:
        is_wanted = config.capture_unknown_sizes and policy.dynamic is not False
        if not is_wanted or conversion.compiler.fullgraph or not isinstance(found, UnknownSize):
            return False
        policy.unbacked = policy.sizes_alone = True
        del conversion.forced[step]
    elif policy.sizes_alone and isinstance(found, DataDependentDecision):
        split_at_maker(conversion, step)
    elif policy.sizes_alone and found.kind in DOUBTFUL:
        give_up(conversion)
        del conversion.forced[step]
    return True


def split_at_maker(conversion: Conversion, step: int) -> None:
    """The decision at `step` needs a size: the op that makes it is left to plain Python."""
    output = conversion.attempts[-1]
    makers = noted(output, Makers)
    asked = cast(AskedInVain, output.shape_env).in_vain
    found = [makers[symbol] for symbol in asked if symbol in makers]
    if found:
        decision = conversion.forced.pop(step)
        made_at, maker = min(found, key=lambda row: row[0])
        maker.reason += f": {decision.reason}"
        conversion.forced[made_at] = maker


def give_up(conversion: Conversion) -> None:
    policy = cast(UnbackedPolicy, conversion.policy)
    policy.unbacked = policy.sizes_alone = False


# ---- backends
class Hopeless(BaseException):
    """A backend asks for a size that only the run knows: it shall have numbers.  (No Exception:
    the backend would run the graph eagerly.)"""


plain_run = Conversion.run


@extends(ShapeEnv)
class AskedInVain(ShapeEnv):
    is_final = False  # does a backend ask now, which may have numbers instead?
    in_vain: Any = ()  # symbols of the last question that could not be answered


@ASKED.append
def note_question(env: ShapeEnv, expr: Any) -> None:
    sizes = cast(AskedInVain, env)
    sizes.in_vain = expr.free_symbols
    if sizes.is_final:
        raise Hopeless(str(expr))


@hooks.BACKENDS.append
def with_numbers_at_last(conversion: Conversion, backend: Callable[..., Any]) -> Any:
    """The backend; Hopeless where it cannot do without a size."""
    if not conversion.policy.sizes_alone:
        return backend
    env = cast(AskedInVain, conversion.attempts[-1].shape_env)

    def ask(gm: Any, example_inputs: Any, **options: Any) -> Any:
        env.is_final = True
        try:
            return backend(gm, example_inputs, **options)
        except ours(Exception) as error:
            raise Hopeless(str(error)) from error
        finally:
            env.is_final = False

    return ask


@extends(Conversion)
def run(conversion: Conversion) -> CacheEntry | None:
    """Conversion.run, twice if need be."""
    try:
        return plain_run(conversion)
    except Hopeless:
        pass
    records.counters["graphs"][conversion.record.function] -= 1
    give_up(conversion)
    return plain_run(conversion)
