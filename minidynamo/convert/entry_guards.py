"""The guards of a whole entry: the thread's state, and inputs that must stay apart.

In:   the `OutputGraph` of a frame that was traced.   Out: its `GuardFunction`.

    >>> [str(guard) for guard in state_guards()][0]
    'GRAD_MODE    grad_mode() == state_grad_mode'

Mirrors `GlobalStateGuard` and the aliasing guards of torch/_dynamo/guards.py.
"""

import inspect
import types
from collections.abc import Callable
from typing import Any

import torch
from torch.autograd import forward_ad

from miniinductor.autograd.fake_mode import INFERENCE, PASSED_OVER, keys

from ..bytecode.assembler import parameter_count
from ..frame import _frame_hook
from ..graph.output_graph import OutputGraph
from ..guards.guards import Guard, GuardFunction
from ..guards.sources import Source
from ..variables.base import guard_classes
from ..variables.tensor import TensorVar

Reader = tuple[str, Callable[[], Any]]  # the kind of a guard, and what reads the state

STATE: tuple[Reader, ...] = (
    ("GRAD_MODE", torch.is_grad_enabled),
    ("INFERENCE", torch.is_inference_mode_enabled),
    ("AUTOCAST", torch._C._is_any_autocast_enabled),
    ("DTYPE", torch.get_default_dtype),
    ("DETERMINISTIC", torch._C._get_deterministic_algorithms),
    ("FUNCTION_MODES", torch._C._len_torch_function_stack),
    ("DUAL_LEVEL", lambda: forward_ad._current_level),  # tensors may have tangents
)
# Within a dispatch mode or a transform of functorch (vmap, grad) no compiled frame runs at all: the
# frame hook looks, or this guard where it cannot.
if not _frame_hook.watch_dispatch_keys(PASSED_OVER, INFERENCE):
    STATE += (("DISPATCH_KEYS", keys),)
OWN_DICT = ("dict", "raw_dict")  # sources of an object's `__dict__`, which belongs to it alone


def autocast_dtypes() -> list[tuple[bool, torch.dtype]]:
    """Is autocast on, on which device, in which dtype?"""
    kinds = ("cpu", "cuda")
    return [(torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind)) for kind in kinds]


def state_guards() -> list[Guard]:
    """The thread's state is what it is now; details only where they matter now."""
    readers = list(STATE)
    if torch._C._is_any_autocast_enabled():
        readers.append(("AUTOCAST_DTYPES", autocast_dtypes))
    if torch._C._len_torch_function_stack():  # `with torch.device(...)` is a mode
        readers.append(("DEFAULT_DEVICE", torch.get_default_device))
    guards = []
    for name, read in readers:
        called = name.lower()
        pins = {called: read, "state_" + called: read()}
        guards.append(Guard(name, None, f"{called}() == state_{called}", pins))
    return guards


def entry_guards(output: OutputGraph, code: types.CodeType) -> GuardFunction:
    """Everything that the entry assumes, as one function."""
    state = state_guards()
    guard_inputs_apart(output)
    guard_keys_apart(output)
    guard_written_apart(output, code)
    guard_classes(output)
    output.policy.check_marks(output.shape_env.pinned())  # the backend may have needed a number
    output.guard_absences()
    output.pair_guards += output.shape_env.guards()
    parameters = list(code.co_varnames[: parameter_count(code)])
    return GuardFunction(output.tree, parameters, state, output.pair_guards)


def guard_inputs_apart(output: OutputGraph) -> None:
    """Inputs that are different tensors now must be different later: writes may reach both."""
    tensors = [variable.source for variable in output.inputs if type(variable) is TensorVar]
    guard_apart(output, tensors)


def guard_keys_apart(output: OutputGraph) -> None:
    """Objects that were keys by their identity are different ones later, too."""
    asked = [*output.asked.values()]
    if not all(source.kind == "pinned" or "ID" in source.guards for source in asked):
        guard_apart(output, asked)


def guard_apart(output: OutputGraph, sources: list[Source]) -> None:
    """At all these sources lie different objects."""
    if len(sources) > 1:
        # three of them: `len({id(x), id(y), id(z)}) == 3`; braces of the set itself are doubled
        ids = ", ".join(f"id({{{n}}})" for n in range(len(sources)))
        output.guard_pair("len({{" + ids + "}}) == " + str(len(sources)), *sources)


def guard_written_apart(output: OutputGraph, code: types.CodeType) -> None:
    """A write must not reach something that was taken for another object.

    def f(a, b): a.append(1); return len(b)     # a, b: two lists now, and never the same one"""
    fresh: Source | None = None  # the dictionary of **keywords is made in each call
    if code.co_flags & inspect.CO_VARKEYWORDS:
        fresh = output.tree.locals.get(code.co_varnames[parameter_count(code) - 1])
    sources = {id(variable): written_source(variable.source) for variable in output.sourced}
    # (of a module the `__dict__` alone is there, and its id may be guarded)
    kinds = {sources[id(variable)]: variable.python_type() for variable in output.sourced}
    known = [source for source in kinds if source and "MODULE" not in source.guards]
    for variable in output.sourced:
        source = sources[id(variable)]
        if not variable.mutated or source is fresh or source not in known:
            continue
        known.remove(source)  # each pair once
        for other in known:
            if other.kind != "pinned" and kinds[other] is kinds[source]:
                output.guard_pair("{0} is not {1}", source, other)


def written_source(source: Source | None) -> Source | None:
    """The object that a write there reaches: an object's `__dict__` belongs to it alone."""
    return source.base if source is not None and source.kind in OWN_DICT else source
