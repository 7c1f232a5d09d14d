"""Change one thing of a tensor between two calls, for everything that a tensor has.

    python -m tests.soundness.tensors --count 2000 --modes eager,aot_eager,inductor

A case is `(tensor, place, program, change)`: a tensor lies at a place (argument, parameter, buffer,
global, closure, attribute, list, dictionary), a program reads it there, is called, the tensor is
changed, the program is called again; a twin does the same as plain Python.

What can be read and what can be changed is found by reflection: every attribute and every method
without arguments that answers with a plain value; every attribute that can be set, and every method
that works in place, to (with) each of `candidates()` that torch accepts.
"""

import functools
import gc
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from ..fuzz import compare
from . import errors, runner
from .modes import Mode
from .tables import lambdas

PLAIN = (
    *(bool, int, float, str, tuple, type(None)),
    *(torch.Size, torch.dtype, torch.device, torch.layout),
)
ADDRESSES = set(("data_ptr _cdata _typed_storage __hash__ const_data_ptr mutable_data_ptr").split())
NOT_ASKED = ADDRESSES | {
    # processes and threads, or a value that is another one each time
    *("share_memory_", "is_shared", "__sizeof__", "__repr__", "__str__", "__dir__"),
    *("__reduce__", "__reduce_ex__", "__getstate__", "__init__", "__init_subclass__"),
    "__weakref__",  # fake tensors are kept by weak references
    "retain_grad",  # that is a change
    # torch counts a program's own writes and reads of the base; nobody else's business
    *("_version", "backward", "grad_fn", "__subclasshook__", "_use_count"),
}
RANDOM = ("bernoulli_", "cauchy_", "exponential_", "geometric_", "log_normal_", "normal_")
NOT_CALLED = {*RANDOM, "random_", "uniform_", "share_memory_", "backward_", "pin_memory_"}


# --- the tensors and where they lie ---------------------------------------------------------------
TENSORS: dict[str, Callable[[], torch.Tensor]] = {
    "matrix": lambda: torch.arange(1.0, 10).view(3, 3),
    "part": lambda: torch.arange(40.0)[3:27].view(4, 6)[:3, 1:4],
    "complex": lambda: torch.complex(torch.arange(9.0), torch.arange(1.0, 10)).view(3, 3),
    "leaf": lambda: torch.arange(1.0, 10).view(3, 3).requires_grad_(),
    "integers": lambda: torch.arange(9).view(3, 3),
}


@dataclass
class World:
    """A program that finds its tensor `t` somewhere, and takes another one, `x`."""

    t: torch.Tensor
    x: torch.Tensor
    call: Callable  # of `function(x)`, or `function(x, t)`


GLOBAL = None


class Module(torch.nn.Module):
    def __init__(self, program: Callable):
        super().__init__()
        self.program = program

    def forward(self, x: torch.Tensor) -> Any:
        return self.program(x, self.t)


class Thing:
    pass


def argument(program: Callable, t: torch.Tensor) -> tuple[Callable, Callable]:
    return program, lambda function, x: function(x, t)


def parameter(program: Callable, t: torch.Tensor) -> tuple[Callable, Callable]:
    module = Module(program)
    module.register_parameter("t", t)
    return module, lambda function, x: function(x)


def buffer(program: Callable, t: torch.Tensor) -> tuple[Callable, Callable]:
    module = Module(program)
    module.register_buffer("t", t)
    return module, lambda function, x: function(x)


def in_globals(program: Callable, t: torch.Tensor) -> tuple[Callable, Callable]:
    def function(x):
        return program(x, GLOBAL)

    def call(function: Callable, x: torch.Tensor) -> Any:
        global GLOBAL
        GLOBAL = t
        return function(x)

    return function, call


def in_closure(program: Callable, t: torch.Tensor) -> tuple[Callable, Callable]:
    def function(x):
        return program(x, t)

    return function, lambda function, x: function(x)


def in_attribute(program: Callable, t: torch.Tensor) -> tuple[Callable, Callable]:
    thing = Thing()
    thing.t = t

    def function(x):
        return program(x, thing.t)

    return function, lambda function, x: function(x)


def in_list(program: Callable, t: torch.Tensor) -> tuple[Callable, Callable]:
    def function(x, tensors):
        return program(x, tensors[1])

    return function, lambda function, x: function(x, [x, t])


def in_dictionary(program: Callable, t: torch.Tensor) -> tuple[Callable, Callable]:
    table = {"t": t}

    def function(x):
        return program(x, table["t"])

    return function, lambda function, x: function(x)


PLACES = {
    place.__name__: place
    for place in (
        *(argument, parameter, buffer, in_globals, in_closure, in_attribute, in_list),
        in_dictionary,
    )
}


# --- what can be read -----------------------------------------------------------------------------
def attempt(function: Callable, *args: Any) -> Any:
    """What it gives, or the exception."""
    try:
        return function(*args)
    except Exception as error:
        return error


def is_plain(value: Any) -> bool:
    if isinstance(value, (tuple, list)) and type(value) is not torch.Size:
        return all(map(is_plain, value))
    return type(value) in PLAIN


@functools.cache
def readings() -> tuple[str, ...]:
    """Names of attributes, and of methods (with brackets), that answer with a plain value."""
    found = []
    for name in dir(torch.Tensor):
        if name in NOT_ASKED or name.endswith("_") and not name.startswith("_"):
            continue
        for make in TENSORS.values():
            value = attempt(getattr, make(), name)
            if is_plain(value):
                found.append(name)
                break
            if callable(value) and is_plain(attempt(value)):
                found.append(f"{name}()")
                break
    return tuple(dict.fromkeys(found))


@functools.cache
def reading(name: str) -> Callable:
    return eval(f"lambda x, t: (x + 1, t.{name})")  # a frame without a graph is plain Python


def written(x, t):
    t.add_(1)
    return t + x.sum()


def both_written(x, t):
    x.mul_(2)
    return t * 3


PROGRAMS: dict[str, Callable] = {
    "sum": lambda x, t: t * 2 + x,
    "product": lambda x, t: (t.mT @ t).sum(0) + t[0],
    "view": lambda x, t: t[1:],
    "itself": lambda x, t: t,
    "contiguous": lambda x, t: t.contiguous(),
    "flat": lambda x, t: t.reshape(-1),
    "clone": lambda x, t: t.clone(),
    "conjugate": lambda x, t: t.conj() * t,
    "strided": lambda x, t: torch.as_strided(t, (2,), (1,), 4) * 2,
    "gradient": lambda x, t: t.grad,
    "own attribute": lambda x, t: getattr(t, "note", 3),
    # with a graph: a frame without one runs as plain Python
    "class": lambda x, t: (x * 2, type(t) is torch.Tensor, isinstance(t, torch.nn.Parameter)),
    "written": written,
    "both written": both_written,
}


def programs() -> dict[str, Callable]:
    return PROGRAMS | {name: reading(name) for name in readings()}


# --- what can be changed --------------------------------------------------------------------------
class Own(torch.Tensor):
    pass


@functools.cache
def candidates() -> dict[str, Callable[[World], tuple]]:
    """What attributes are set to, and methods called with."""
    return lambdas(
        "world",
        globals(),
        """
        (): (); None: (None,); True: (True,); False: (False,); 0: (0,); 0, 1: (0, 1);
        names: ("rows", "columns"); name tuple: (("rows", "columns"),); sizes: ((1, 9),);
        fewer: ((2, 2),); size, stride: ((3, 3), (1, 3)); size, stride, offset: ((2, 2), (2, 1), 1);
        the other: (world.x,); the other's data: (world.x.detach(),);
        a part of the other: (world.x.detach()[1:],); its transpose: (world.t.detach().t(),);
        its clone: (world.t.detach().clone(),);
        a negated view: (torch._neg_view(world.t.detach() + 1),);
        a conjugated view: (world.t.detach().conj(),);
        an expanded row: (world.t.detach()[:1].clone().expand(3, 3),);
        doubles: (world.t.detach().double(),); complex numbers: (world.t.detach() * 1j,);
        behind an offset: (torch.arange(30).to(world.t.dtype)[1:10].view(3, 3),);
        nothing: (world.t.detach()[:0],);
        a storage: (torch.arange(30).to(world.t.dtype).untyped_storage(),);
        part of a storage: (torch.arange(30).to(world.t.dtype).untyped_storage(), 2, (3, 3),
            (4, 1));
        a hook: ((lambda gradient: gradient * 2),); a Parameter's class: (torch.nn.Parameter,);
        a class of its own: (Own,)
        """,
    )


def apply(world: World, name: str, given: str) -> None:
    values = candidates()[given](world)
    if name.endswith("="):
        (value,) = values
        setattr(world.t, name[:-1], value)
    elif name == "del note":
        world.t.note = 1
        del world.t.note
    else:
        getattr(world.t, name)(*values)


def world_of(tensor: str, place: str, program: Callable) -> tuple[World, Callable]:
    """(the World, the function that it calls)."""
    t = TENSORS[tensor]()
    if place == "parameter":
        t = torch.nn.Parameter(t.detach(), t.requires_grad)
    function, call = PLACES[place](program, t)
    return World(t, torch.arange(9.0).view(3, 3) + 0.5, call), function


def layout(t: torch.Tensor) -> list:
    """What methods that work in place change, if it is more than values."""
    about = [type(t), t.dtype, t.shape, t.layout, t.requires_grad, t.is_neg(), t.is_conj()]
    if t.layout is torch.strided:
        about += [t.stride(), t.storage_offset(), t.untyped_storage()._cdata, t.data_ptr()]
    return about


def state(t: torch.Tensor) -> list:
    """Everything of `readings()` but values."""
    names = [name for name in readings() if name != "tolist()"]
    answers = [attempt(reading(name), None, t) for name in names]
    found = [value if is_plain(value) else type(value).__name__ for value in answers]
    return [*found, *layout(t), t.grad is None, repr(attempt(len, t._backward_hooks))]


@functools.cache
def changes(tensor: str, place: str) -> tuple[tuple[str, str], ...]:
    """(name, candidate) of what torch accepts and what changes more than values."""
    # torch.utils.swap_tensors is left out: it refuses tensors that have a weak reference, and those
    # that torch's fake tensors were made of have one as long as what was compiled lives.
    found = [("add_", "True"), ("note=", "0"), ("del note", "()")]
    names = dir(torch.Tensor)
    methods = [n for n in names if n.endswith("_") and not n.startswith("_")]
    methods = [n for n in methods if n not in NOT_CALLED and callable(getattr(torch.Tensor, n))]
    others = [n for n in names if "hook" in n and not n.startswith("_") or n == "retain_grad"]
    attributes = [n for n in names if not callable(getattr(torch.Tensor, n, None))]
    others += [f"{n}=" for n in attributes if not n.startswith("_")] + ["__class__="]
    for look, chosen in ((layout, methods), (state, others)):
        for name in chosen:
            for given in candidates():
                world, _ = world_of(tensor, place, PROGRAMS["sum"])
                before = look(world.t)
                if isinstance(attempt(apply, world, name, given), Exception):
                    continue
                if look(world.t) != before:
                    found.append((name, given))
    return tuple(found)


# --- the cases ------------------------------------------------------------------------------------
def cases(count: int, first: int) -> list[tuple]:
    """`count` of all combinations, which are many."""
    names, drawn = list(programs()), []
    for seed in range(first, first + count):
        chance = random.Random(seed)
        tensor, place = chance.choice(list(TENSORS)), chance.choice(list(PLACES))
        # half of them: programs that compute with the tensor
        program = chance.choice(list(PROGRAMS) if chance.random() < 0.5 else names)
        drawn.append((tensor, place, program, seed))
    return drawn


def run(world: World, function: Callable) -> tuple:
    """What a call gave, and what the two tensors are afterwards."""
    result = attempt(world.call, function, world.x)
    describe = compare.Describer()
    if isinstance(result, Exception):
        result = type(result)
    return describe(result), describe(world.t), describe(world.x)


def check(case: tuple, mode: Mode) -> str:
    tensor, place, name, seed = case
    program = programs()[name]
    chance = random.Random(seed)
    found = changes("complex" if tensor == "complex" else "matrix", "argument")
    wanted = errors.focus("TENSORS_CHANGES")
    if wanted:
        found = [(method, given) for method, given in found if method in wanted]
    change = chance.choice(found)
    if place in ("parameter", "buffer") and change[0] == "names=":
        return ""  # the memo does not watch names, which torch has given up; tensors keep values
    plain, ours = world_of(tensor, place, program), world_of(tensor, place, program)
    compiled = mode.compile(ours[1])
    for number in range(4):
        if number == 2:  # twice as it was: the second call may read what the first remembered
            happened = [attempt(apply, world, *change) for world, _ in (plain, ours)]
            if isinstance(happened[0], Exception):
                return ""
            if isinstance(happened[1], Exception):
                return f"the change {change} is refused: {happened[1]!r}"
        want, got = run(plain[0], plain[1]), run(ours[0], compiled)
        if want != got:
            return f"call {number}, the change is {change}: {compare.first_difference(want, got)}"
    gc.collect()  # a tensor swapped or resized must not be met by the next case
    return ""


if __name__ == "__main__":
    runner.main("tests.soundness.tensors", default_modes="eager,aot_eager,inductor")
