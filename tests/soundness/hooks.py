"""Hooks of all modules, of single modules and of tensors: there before the first call, put on and
taken off between calls.

    python -m tests.soundness.hooks --modes eager,aot_eager,inductor

A case is (way of registering, what the hook does, module, what is compiled, order).  Compared with
plain Python: results, gradients, and the list of what each hook has seen, in order.  Enumerated.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn.modules import module as registry

from ..fuzz.compare import difference_of_calls, outcome
from . import runner
from .modes import Mode

FILE = __file__
GLOBAL = (
    "register_module_forward_pre_hook",
    "register_module_forward_hook",
    "register_module_full_backward_pre_hook",
    "register_module_full_backward_hook",
)
SINGLE = (
    "register_forward_pre_hook",
    "register_forward_hook",
    "register_full_backward_pre_hook",
    "register_full_backward_hook",
)
# way of registering -> (name in the registry, the module or its first parameter, options)
WAYS: dict[str, tuple[str, dict[str, bool]]] = {
    **{name: (name, {}) for name in (*GLOBAL, *SINGLE)},
    "forward, always": ("register_module_forward_hook", {"always_call": True}),
    "forward, with kwargs": ("register_module_forward_hook", {"with_kwargs": True}),
    "single, always": ("register_forward_hook", {"always_call": True}),
    "single, with kwargs": ("register_forward_hook", {"with_kwargs": True}),
    "single, first": ("register_forward_hook", {"prepend": True}),
    "single, before, first": ("register_forward_pre_hook", {"prepend": True}),
    "single, before, with kwargs": ("register_forward_pre_hook", {"with_kwargs": True}),
    "tensor": ("register_hook", {}),
    "tensor, after": ("register_post_accumulate_grad_hook", {}),
}
DOES = ("looks", "changes", "reads", "raises", "leaves", "adds another", "writes")
ORDERS = {  # what happens before each call: + registers, - takes off the first, * changes `factor`
    "later": ("", "", "+", "", "-", ""),
    "before": ("+", "", "-", "", "+", ""),
    "two": ("", "+", "+", "", "-", "*", "-"),
    "always": ("+", "", "*", "", "*"),
    "in turns": ("", "+", "-", "+", "-", "+"),
}


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(3, 3), nn.Tanh())

    def forward(self, x: torch.Tensor, scale: float = 1.0) -> torch.Tensor:
        return self.inner(x) * scale


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.block, self.head = Block(), nn.Linear(3, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.block(x, scale=2.0))


class Registers(Net):
    """Registers a parameter, a module and a buffer in each call."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.last = nn.Parameter(x.detach() + 1)
        self.kept = nn.ReLU()
        self.register_buffer("steps", x.detach())
        return super().forward(x)


MODULES: dict[str, Callable[[Any], nn.Module]] = {
    "whole": lambda net: net,
    "block": lambda net: net.block,
    "leaf": lambda net: net.block.inner[0],
    "container": lambda net: net.block.inner,
}
# what is compiled -> its program of (net)
COMPILED: dict[str, Callable[[nn.Module, Callable], Callable]] = {
    "module": lambda net, compiled: compiled(net),
    "function": lambda net, compiled: compiled(lambda x: net(x) + 1),
    "part": lambda net, compiled: (lambda block: lambda x: net.head(block(x)))(compiled(net.block)),
    "forward": lambda net, compiled: compiled(net.forward),
}


class World:
    """A model, the hooks on it, and what they have seen."""

    def __init__(self, case: tuple, compiled: Callable) -> None:
        way, self.does, module, what, _ = case
        torch.manual_seed(0)
        self.name, self.options = WAYS[way]
        self.net: nn.Module = Registers() if "registration" in self.name else Net()
        self.net.double()  # gradients that cancel keep four digits
        self.names = {id(child): name or "whole" for name, child in self.net.named_modules()}
        target = MODULES[module](self.net)
        self.target: Any = target
        if self.name in GLOBAL:
            self.target = registry
        elif way.startswith("tensor"):
            self.target = next(target.parameters())
        self.seen: list = []
        self.handles: list = []
        self.factor, self.number = 3.0, 0
        self.function = COMPILED[what](self.net, compiled)

    def add(self) -> None:
        self.number += 1
        self.handles.append(self.put(self.hook(self.number)))

    def put(self, hook: Callable) -> Any:
        return getattr(self.target, self.name)(hook, **self.options)

    def hook(self, number: int) -> Callable:
        is_forward = "forward" in self.name
        is_pre = "pre_hook" in self.name

        def hook(*args: Any) -> Any:
            first = args[0]
            told = self.names.get(id(first), type(first).__name__)
            self.seen.append((number, told, len(args)))
            if self.does == "raises":
                raise ValueError(f"hook {number}")
            if self.does == "leaves" and self.handles:
                self.handles.pop().remove()
            if self.does == "adds another" and self.number < 3:
                self.add()
            if self.does == "writes" and isinstance(first, nn.Module):
                first.seen_by = number
            factor = self.factor if self.does == "reads" else 2.0
            if self.does not in ("changes", "reads") or "registration" in self.name:
                return None
            if self.name == "register_post_accumulate_grad_hook":
                first.grad.mul_(factor)
                return None
            if self.name == "register_hook":
                return first * factor
            if is_pre and self.options.get("with_kwargs"):
                return tuple(t * factor for t in args[1]), args[2]
            if is_forward and not is_pre:
                return args[-1] * factor
            return tuple(None if t is None else t * factor for t in args[1])

        return hook

    def step(self, event: str) -> None:
        if event == "+":
            self.add()
        elif event == "-" and self.handles:
            self.handles.pop(0).remove()
        elif event == "*":
            self.factor += 2

    def call(self, x: torch.Tensor) -> list:
        self.net.zero_grad()
        y = self.function(x)
        if y.requires_grad:
            y.sum().backward()
        grads = [x.grad, *[p.grad for n, p in self.net.named_parameters() if n != "last"]]
        return [y.detach(), *[g if g is None else g.clone() for g in grads]]

    def calls(self, events: tuple[str, ...]) -> list:
        found = []
        try:
            for event in events:
                self.step(event)
                del self.seen[:]
                x = (torch.arange(6.0).double().view(2, 3) / 8).requires_grad_()
                told = outcome(lambda x=x: self.call(x), (), {}, self.seen, FILE, digits=4)
                told.pop("lines")
                found.append(told)
        finally:
            for handle in self.handles:
                handle.remove()
        return found


def cases(count: int, first: int) -> list[tuple]:
    """All of them: `count` and `first` are not looked at."""
    return [
        (way, does, module, what, order)
        for way, (name, _) in WAYS.items()
        for does in DOES
        for module in MODULES
        if name not in GLOBAL or module == "whole"
        for what in COMPILED
        for order in ORDERS
    ]


def check(case: tuple, mode: Mode) -> str:
    events = ORDERS[case[4]]
    plain = World(case, lambda function: function).calls(events)
    return difference_of_calls(plain, World(case, mode.compile).calls(events))


def sample(number: int) -> list[tuple]:
    """Each way with each thing that a hook does, with what turns of the rest (for pytest)."""
    found, modules, compiled, orders = [], list(MODULES), list(COMPILED), list(ORDERS)
    for way, (name, _) in WAYS.items():
        for does in DOES:
            number += 1
            module = "whole" if name in GLOBAL else modules[number % 4]
            found.append((way, does, module, compiled[number // 2 % 4], orders[number % 5]))
    return found


if __name__ == "__main__":
    runner.main("tests.soundness.hooks", default_modes="eager,aot_eager,inductor")
