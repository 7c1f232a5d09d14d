"""What a trace assumes beside the values that it reads: the process's state, torch's functions and
classes, where tensors begin in memory.

In:   the `OutputGraph` of an attempt.   Out: guards on its tree of sources.

    >>> output.guard_state(functools.partial(torch.is_grad_enabled), True)

These functions are methods of `OutputGraph`.  Mirrors parts of torch/_dynamo/guards.py.
"""

import dis
import functools
import sys
import types
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch

from .exceptions import Break
from .guards import constant_check
from .originals import replaced_in_module, replaced_in_tensor
from .variables.base import Variable
from .variables.constant import is_constant_value
from .variables.functions import CellVar
from .variables.lookup import lookup
from .variables.tensor import TensorVar

if TYPE_CHECKING:
    from .graph_capture import OutputGraph


@functools.cache
def global_paths(code: types.CodeType) -> list[tuple[str, ...]]:
    """`("torch", "nn", "init")` for each `torch.nn.init` that the code may read: a global's name,
    and attributes."""
    paths: list[tuple[str, ...]] = []
    open_path = False
    for instruction in dis.get_instructions(code):
        if instruction.opname == "LOAD_GLOBAL":
            paths.append((instruction.argval,))
            open_path = True
        elif open_path and instruction.opname in ("LOAD_ATTR", "LOAD_METHOD"):
            paths[-1] += (instruction.argval,)
        elif instruction.opname not in ("CACHE", "PRECALL"):
            open_path = False
    return list(dict.fromkeys(paths))


def guard_state(output: "OutputGraph", call: functools.partial[Any], value: Any) -> None:
    """`call` (a functools.partial) read `value` from the process's state: it must give the same
    again.  What the frame itself sets is guarded on entry."""
    name = call.func.__name__
    if output.state_before and ("grad" in name or "autocast" in name):
        return
    arguments = ", ".join(
        [*map(repr, call.args), *(f"{k}={v!r}" for k, v in call.keywords.items())]
    )
    output.guard(
        output.tree.pinned(call.func),
        ("STATE", arguments),
        f"{{0}}({arguments}) == {{pin}}",
        value,
    )


def guard_globals(output: "OutputGraph", function: Any) -> None:
    """A backend will trace `function`, and take what its globals are now for constants."""
    source = output.globals_of(function.__globals__).source
    for name in function.__code__.co_names:
        if name not in function.__globals__:
            continue
        value = function.__globals__[name]
        if is_constant_value(value):
            output.guard(source.item(name), "GLOBAL", *constant_check(value))
        elif callable(value):
            output.guard(source.item(name), "GLOBAL", "{0} is {pin}", value)


def calls_replaced(output: "OutputGraph", function: Any, goes_on: Callable[[Any], bool]) -> bool:
    """Does torch's `function`, which the graph would call whole, find something of the
    program's under the names in its code?

    What it finds is guarded.  goes_on: whether a function that is found so is looked at,
    too."""
    known = output.read_functions.get(id(function))
    if known is not None:
        return known[1]
    replaced = False
    output.read_functions[id(function)] = function, replaced
    for first, *path in global_paths(function.__code__):
        place: dict[str, Any] = function.__globals__
        value: Any = None
        for name in (first, *path):
            if name not in place:
                break
            value = place[name]
            output.guard_fixed(output.globals_of(place).source.item(name), value)
            replaced = replaced or replaced_in_module(place, name)
            if not isinstance(value, types.ModuleType):
                break
            place = value.__dict__
        if isinstance(value, types.FunctionType) and goes_on(value):
            output.guard_function(value)
            replaced = output.calls_replaced(value, goes_on) or replaced
    output.read_functions[id(function)] = function, replaced
    return replaced


def lets_go(output: "OutputGraph", value: Any) -> bool:
    """May `value`, which was alive when the frame began, be gone by now in plain Python: has
    anything been written, or a parameter been rebound that may have held it?"""
    cells = [variable for variable, _ in output.memo.values() if type(variable) is CellVar]
    rebound = [
        was.value
        for name, was in output.root.bound.items()
        if name not in output.root.cells
        and getattr(output.root.locals.get(name), "source", None) is not was.source
    ]
    known = (*output.sourced, *cells, *output.root.cells.values())
    if any(variable.mutated for variable in known):
        return True
    if any(module.written for module in output.globals.values()):
        return True
    return any(
        was is value or not is_constant_value(was) and not isinstance(was, torch.Tensor)
        for was in rebound
    )


def nothing_handled(output: "OutputGraph") -> bool:
    """Does the frame run outside of all `except` blocks?  Guarded if so."""
    if not output.handling:
        output.guard(output.tree.pinned(sys.exc_info), "HANDLING", "{0}()[1] is None")
    return not output.handling


def guard_flag(output: "OutputGraph", variable: Variable, name: str) -> None:
    """`tensor.is_...()` was read of an input."""
    if (
        type(variable) is TensorVar
        and variable.value is not None
        and name.startswith(("is_", "_is_"))
        and hasattr(torch.Tensor, name)
    ):
        output.guard(
            variable.source,
            ("FLAG", name),
            f"{{0}}.{name}() is {getattr(variable.value, name)()}",
        )


def guard_offsets(output: "OutputGraph", fakes: list[torch.Tensor]) -> None:
    """Places are counted from the start of these tensors' memory: where the inputs begin that
    lie there must stay as it is."""
    known = [v for v in output.by_fake.values() if v.value is not None]  # not made in the frame
    storages = {fake.untyped_storage()._cdata for fake in fakes}
    for variable in known:
        real, fake = variable.value, variable.fake
        if real.layout is torch.strided and fake.untyped_storage()._cdata in storages:
            check = f"{{0}}.storage_offset() == {real.storage_offset()}"
            output.guard(variable.source, "OFFSET", check)


def guard_no_global_hooks(output: "OutputGraph") -> None:
    if not output.global_hooks_guarded:
        output.global_hooks_guarded = True
        hooks = torch.nn.modules.module
        for name in (
            "_global_forward_hooks",
            "_global_forward_pre_hooks",
            "_global_backward_hooks",
            "_global_backward_pre_hooks",
        ):
            output.guard(output.tree.pinned(getattr(hooks, name), name), "NO_HOOKS", "not {0}")
            if getattr(hooks, name):
                raise Break("module", "global module hooks are installed")


def guard_operator(target: Any, args: Sequence[Variable]) -> None:
    """An operator on tensors is what torch has made it: `torch.Tensor.__add__` may be replaced,
    too."""
    if not any(type(arg) is TensorVar for arg in args):
        return
    name = target.__name__.strip("_")
    for special in (f"__{name}__", f"__r{name}__"):
        owner, found = lookup(torch.Tensor, special)
        if replaced_in_tensor(owner, special, found):
            raise Break("tensor method", f"Tensor.{special}, which the program has replaced")
