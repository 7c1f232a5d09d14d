"""Second derivatives of compiled code: its gradients by eager formulas, where somebody will
differentiate them.

In:   a compiled graph's call with `config.double_backward = "eager"`, and the gradients of its
      results under `create_graph=True`.
Out:  the gradients of its inputs, with a history of their own.

    >>> with miniinductor.config.patch(double_backward="eager"):
    ...     [slope] = torch.autograd.grad(compiled(x).sum(), x, create_graph=True)
    >>> (slope.norm() - 1).square().backward()              # a gradient penalty

The compiled backward half has no derivative.  So a call keeps what it was given; a backward pass
that is recorded runs the captured graph again by eager kernels, and asks autograd for its
gradients, as `torch.utils.checkpoint` does: random ops draw the numbers of the first run.  Every
further derivative is then eager's.  A backward pass that nobody differentiates stays compiled.
PyTorch: raises; `torch/_functorch/_aot_autograd/runtime_wrappers.py` has the same DelayedError.
Left out, and refused by name: graphs that write to what needs gradients, that call modules, that
take a random generator, and random numbers that were drawn by generated kernels.
"""

import contextlib
from collections.abc import Sequence
from typing import Any

import torch
import torch.utils._pytree as pytree
from torch import fx

from ... import config
from ...hooks import extends
from ..joint import Joint, needs_gradient
from ..runtime import Backward, Halves, held_tensors

MESSAGE = (
    "compiled code cannot be differentiated twice here: {}. Compile this function with "
    'backend="eager", or leave it uncompiled, where second derivatives are needed.'
)
FUSED = "generated kernels draw its random numbers (config.fallback_random is off)"


class Refused(Exception):
    """This call cannot be run again; its text says why."""


@extends(Halves)
class TwiceHalves(Halves):
    """The halves, of which a call may be run again by eager kernels."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.autocast = autocast_now()

    def forward(self, ctx: Any, *primals: Any) -> tuple:
        if config.double_backward != "eager" or not isinstance(self.run_backward, Backward):
            return super().forward(ctx, *primals)
        graph: Any = self.run_backward.record.input_graph
        call = Call(self.joint, graph, self.autocast, primals)
        results = super().forward(ctx, *primals)
        call.drew = any(
            not torch.equal(state, random_state(device)) for device, state in call.random.items()
        )
        ctx.call = call
        return results

    def backward(self, ctx: Any, *given: torch.Tensor | None) -> tuple:
        call = getattr(ctx, "call", None)
        if call is None:
            return super().backward(ctx, *given)
        if not torch.is_grad_enabled():
            if not torch._C._autograd._get_current_graph_task_keep_graph():
                ctx.call = None  # as autograd frees what it has saved
            return super().backward(ctx, *given)
        wanted = [
            place
            for place, at in enumerate(self.cut.gradients)
            if at is not None and ctx.needs_input_grad[place]
        ]
        try:
            return call.gradients(given, wanted)
        except Refused as reason:
            ctx.refusal = MESSAGE.format(reason).encode()
        return super().backward(ctx, *given)


class Call:
    """What one call of a compiled graph was given, so that it can be run again.

    primals: the inputs and the tensors that the graph holds, with copies of those that it writes.
    versions: of each tensor among them, as autograd counts writes.
    random: the state of each device's generator before the call.  drew: has the call changed one?

    (It holds the inputs, not copies: one that is written afterwards with autograd on, as in
    `h += compiled(h)`, is freed when its backward pass has run.)
    """

    drew = False

    def __init__(
        self, joint: Joint, graph: fx.GraphModule, autocast: list, primals: Sequence[Any]
    ) -> None:
        self.joint, self.graph, self.autocast = joint, graph, autocast
        self.primals = list(primals)
        for write in joint.writes:
            self.primals[write.primal] = primals[write.primal].detach().clone()
        self.versions = [version_of(primal) for primal in self.primals]
        tensors = [primal for primal in primals if isinstance(primal, torch.Tensor)]
        devices = {torch.device("cpu"), *[t.device for t in tensors if t.device.type == "cuda"]}
        self.random = {device: random_state(device) for device in devices}

    def gradients(self, given: Sequence[torch.Tensor | None], wanted: list[int]) -> tuple:
        """The gradient of each primal, None of those that are not wanted.

        given: the gradients of the results.  Raises Refused."""
        self.check()
        arguments = list(self.primals)
        for place in wanted:  # another object, that has no part in what made the other arguments
            arguments[place] = arguments[place].view_as(arguments[place])
        for write in self.joint.writes:
            arguments[write.primal] = arguments[write.primal].clone()
        arrived = {i: t for i in self.joint.tangents if (t := given[i]) is not None}
        results = self.results(arguments, arrived)
        found = torch.autograd.grad(
            results,
            [arguments[place] for place in wanted],
            list(arrived.values()),
            create_graph=True,
            allow_unused=True,
        )
        by_place = dict(zip(wanted, found))
        return tuple([by_place.get(place) for place in range(len(arguments))])

    def check(self) -> None:
        """Raise Refused if the graph cannot be run again with the same results."""
        if self.drew and not config.fallback_random:
            raise Refused(FUSED)
        for write in self.joint.writes:
            if write.result is not None or needs_gradient(self.primals[write.primal]):
                raise Refused("it writes to a tensor that needs gradients")
        for node in self.graph.graph.nodes:
            if node.op == "call_module":
                raise Refused(f"its graph calls a module, {node.target}")
            if node.kwargs.get("generator") is not None:
                raise Refused("it draws from a random generator of the program's")
        for primal, version in zip(self.primals, self.versions):
            if version_of(primal) != version:
                raise Refused("an input was modified by an in-place operation after the call")

    def results(self, arguments: list[Any], arrived: dict[int, torch.Tensor]) -> list[torch.Tensor]:
        """The results of these positions, computed again with autograd on."""
        count = len(self.graph.graph.find_nodes(op="placeholder"))
        held = {id(t): new for t, new in zip(held_tensors(self.graph), arguments[count:])}
        with same_random_numbers(self.random), same_autocast(self.autocast), torch.enable_grad():
            out = WithTensors(self.graph, held).run(*arguments[:count])
        leaves = pytree.tree_leaves(out)
        computed: dict[int, torch.Tensor] = {}
        for leaf, output in zip(leaves, self.joint.outputs):
            if output.kind == "computed":  # or a view of a result that is no output itself
                result = leaf if output.views is None else leaf._base
                computed[output.at] = computed.get(output.at, result)
        for place, gradient in arrived.items():
            result = computed.get(place)
            if result is None or not result.requires_grad or result.shape != gradient.shape:
                raise Refused("an output is a view of something that is not an output")
        return [computed[place] for place in arrived]


class WithTensors(fx.Interpreter):
    """Runs a graph with other tensors in place of those that it holds.  held: id -> the other."""

    def __init__(self, graph: fx.GraphModule, held: dict[int, torch.Tensor]) -> None:
        super().__init__(graph)
        self.extra_traceback = False
        self.held = held

    def get_attr(self, target: Any, args: Any, kwargs: Any) -> Any:
        value = self.fetch_attr(target)
        if isinstance(value, torch.nn.Module):
            raise Refused(f"its graph calls a module, {target}")
        return self.held.get(id(value), value)


def version_of(value: Any) -> int | None:
    """How often a tensor was written; None of what has no count."""
    has_count = isinstance(value, torch.Tensor) and not value.is_inference()
    return value._version if has_count else None


# --- the state of the first run -------------------------------------------------------------------
def random_state(device: torch.device) -> torch.Tensor:
    if device.type == "cuda":
        return torch.cuda.get_rng_state(device)
    return torch.get_rng_state()


def set_random_state(device: torch.device, state: torch.Tensor) -> None:
    if device.type == "cuda":
        torch.cuda.set_rng_state(state, device)
    else:
        torch.set_rng_state(state)


@contextlib.contextmanager
def same_random_numbers(before: dict[torch.device, torch.Tensor]) -> Any:
    """Random ops of the block draw from these states; afterwards the generators are as they
    were."""
    now = {device: random_state(device) for device in before}
    try:
        for device, state in before.items():
            set_random_state(device, state)
        yield
    finally:
        for device, state in now.items():
            set_random_state(device, state)


def autocast_now() -> list[tuple[str, bool, torch.dtype]]:
    return [
        (device, torch.is_autocast_enabled(device), torch.get_autocast_dtype(device))
        for device in ("cpu", "cuda")
    ]


@contextlib.contextmanager
def same_autocast(wanted: list[tuple[str, bool, torch.dtype]]) -> Any:
    """Autocast in the block is as it was when the graph was compiled."""
    with contextlib.ExitStack() as stack:
        for (device, enabled, dtype), (_, is_on, _) in zip(wanted, autocast_now()):
            if enabled or is_on:
                stack.enter_context(torch.autocast(device, dtype, enabled, cache_enabled=False))
        yield
