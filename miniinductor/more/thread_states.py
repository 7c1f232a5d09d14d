"""What compiling may change for a thread beside grad mode: autocast, dispatch modes, and hooks.

In:   a `ThreadState` that begins to look (foreign.py).  Out: for each state a function that puts it
      back, with calls of C alone where an exception from outside must not come in between.

    ThreadState().around(work)      # autocast is as it was, though `work` was cut short in a `with`

An exception may come while the state is put back.  So that is done twice, the second time where the
first was cut short.

The user's saved-tensor hooks are taken away while a frame is compiled: they are meant for the
tensors of the run, not for fake ones.
"""

import functools
import itertools
import operator
from collections.abc import Callable
from typing import Any

import torch
from torch.utils import _python_dispatch as modes

from ..foreign import STATES, ThreadState
from ..replaceable import replaceable


def together(take: Callable, *calls: tuple) -> Callable:
    """A function that makes these calls once, each a tuple (function of C, its arguments...), and
    gives their results to `take`, another function of C.

    Python looks for signals, and for what other threads have set, only between two instructions.
    Here everything that runs is C, the returned function too, so an exception from outside comes
    before all of the calls or after all of them."""
    return functools.partial(take, itertools.starmap(operator.call, calls))


# --- autocast -------------------------------------------------------------------------------------
def autocast(state: ThreadState) -> Callable[[], None]:
    devices = [
        (device, torch.is_autocast_enabled(device), torch.get_autocast_dtype(device))
        for device in ("cpu", "cuda")
    ]
    caches, depth = torch.is_autocast_cache_enabled(), autocast_nesting()

    def put_back() -> None:
        for device, enabled, dtype in devices:
            if torch.is_autocast_enabled(device) != enabled:
                torch.set_autocast_enabled(device, enabled)
            if torch.get_autocast_dtype(device) != dtype:
                torch.set_autocast_dtype(device, dtype)
        if torch.is_autocast_cache_enabled() != caches:
            torch.set_autocast_cache_enabled(caches)
        if autocast_nesting() != depth:
            restore_autocast_nesting(depth)

    return put_back


def autocast_nesting() -> int:
    """How many `with autocast` blocks are open: the counter has no getter of its own."""
    depth = torch.autocast_increment_nesting() - 1
    torch.autocast_decrement_nesting()
    return depth


def restore_autocast_nesting(depth: int) -> None:
    while autocast_nesting() > depth:
        torch.autocast_decrement_nesting()
    while autocast_nesting() < depth:
        torch.autocast_increment_nesting()
    if depth == 0:
        torch.clear_autocast_cache()


# --- dispatch modes -------------------------------------------------------------------------------
def dispatch_modes(state: ThreadState) -> Callable[[], None]:
    before = modes._get_current_dispatch_mode_stack()

    def put_back() -> None:
        if modes._get_current_dispatch_mode_stack() != before:
            for mode in reversed(modes._get_current_dispatch_mode_stack()):
                modes._pop_mode(getattr(mode, "_mode_key", None))
            for mode in before:
                modes._push_mode(mode)

    return put_back


# --- hooks of saved tensors -----------------------------------------------------------------------
def take_hooks(state: Any) -> None:
    """Take the user's saved-tensor hooks away: `state.hooks` has the pairs, and after each the None
    that `pop` gave."""
    top = torch._C._autograd._top_saved_tensors_default_hooks
    pop = torch._C._autograd._pop_saved_tensors_default_hooks
    while top(False) is not None:
        together(state.hooks.extend, (top, False), (pop,))()


def saved_tensor_hooks(state: Any) -> Callable[[], None]:
    push = torch._C._autograd._push_saved_tensors_default_hooks

    def put_back() -> None:
        if state.hooks:
            again = [(push, *pair) for pair in reversed(state.hooks) if pair is not None]
            together(list, *again, (state.hooks.clear,))()

    return put_back


# --- all of it ------------------------------------------------------------------------------------
STATES += [autocast, dispatch_modes, saved_tensor_hooks]
plain_init, plain_put_back = ThreadState.__init__, ThreadState.put_back


@replaceable
def cut_short(error: BaseException) -> None:
    """Told of the exception that has cut the compiler short."""


def init(self: Any) -> None:
    plain_init(self)
    self.hooks = []  # of the user, for saved tensors, while they are taken away
    self.others = [remember(self) for remember in STATES]


def around(self: Any, work: Callable, *arguments: Any) -> Any:
    """work(*arguments), after which the state is as it was, whatever was raised."""
    try:
        try:
            self.begin()
            result = work(*arguments)
        finally:
            self.put_back()
    except BaseException as error:  # perhaps one that came in the middle of that
        self.put_back(error)
        raise
    finally:
        self.others.clear()  # which know this object: no cycle is left
    return result


def put_back(self: Any, error: BaseException | None = None) -> None:
    """error: what cut the work short.  What its frames of ours had entered is left first."""
    if error is not None:
        cut_short(error)
    for put_back_one in self.others:
        put_back_one()
    plain_put_back(self, error)


setattr(ThreadState, "__init__", init)
for _method in (around, put_back, take_hooks):
    setattr(ThreadState, _method.__name__, _method)
