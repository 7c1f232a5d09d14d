"""A compiled forward and a compiled backward as one `torch.autograd.Function`.

In:   the two halves of a joint graph.  Out: a callable on the graph's inputs whose results have
      history.

    >>> joint = trace_joint(gm, [x], held)              # held: the parameters and buffers
    >>> parts = partition(joint, 1 + len(held), is_cheap)
    >>> back = Backward(parts, record, compile_graph, start)
    >>> run = connect(joint, parts, start_forward(parts), back, held)
    >>> run(x)[0].square().sum().backward()         # x.grad and the parameters' are there now
    >>> x.grad.shape
    torch.Size([4, 8])

What the function does around the two compiled graphs:
- parameters and buffers are arguments, so that autograd sees them: their hooks fire, `.grad`
  accumulates;
- saved values go through `ctx.save_for_backward`, so that saved-tensor hooks and autograd's version
  checks work;
- a written tensor with history is returned and copied back outside, with autograd on; buffers are
  written inside;
- outputs that are inputs, views of inputs or of one another are made outside (outputs.py);
- a gradient in other strides, or negated lazily, is copied; create_graph=True raises.
Mirrors torch/_functorch/_aot_autograd/runtime_wrappers.py.
"""

import copy
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import fx

from .. import config
from ..errors import CannotLower, CompilerError, ThreadState, faults
from ..records import CompileRecord, first_line, warn_once
from ..sizes.symbols import fill, symbolic_placeholders
from . import fake_mode
from .eager_graphs import in_layout, runnable, writable
from .joint import Joint, undisturbed
from .outputs import with_outputs
from .tracer import without_autocast

if TYPE_CHECKING:
    from .partition import Parts


class Backward:
    """The backward graph, compiled when it is first needed, for each set of gradients that arrives.

    It may be refused where the forward graph was compiled: guards on symbolic sizes cannot be added
    any more.  Then it runs with eager kernels.

    missing: names of the tangents that do not arrive.  variants: such names -> the same backward
    graph without them.
    # PyTorch: compiles it with the forward half, and fills in zeros.
    """

    run: Callable | None = None  # once it is compiled
    missing: tuple[str, ...] = ()

    def __init__(
        self, parts: "Parts", record: CompileRecord, compile_graph: Callable, start: Callable
    ) -> None:
        """record: of the forward half.  compile_graph(graph, record, []): gives a program;
        start(program, record): its callable."""
        self.parts, self.record = parts, record
        self.tangents = [str(node.target) for node in parts.tangents]
        self.compile_graph, self.start = compile_graph, start
        self.variants: dict[tuple[str, ...], Backward] = {}

    def __call__(
        self, sizes: Sequence[int], saved: list[torch.Tensor], given: list[torch.Tensor | None]
    ) -> Any:
        pairs = zip(self.tangents, given)
        missing = tuple([name for name, tangent in pairs if tangent is None])
        variant = self.variants.get(missing)
        if variant is None:
            variant = self.variants[missing] = copy.copy(self)
            variant.missing, variant.variants = missing, {}
        tensors = [*sizes, *saved, *[tangent for tangent in given if tangent is not None]]
        saved.clear()
        given.clear()
        return variant.called(tensors)

    def called(self, tensors: list[Any]) -> Any:
        """The gradients.  Only the list `tensors` holds the inputs, so that the compiled graph can
        free each after its last use."""
        if fake_mode.is_unusual():  # a dispatch mode, vmap...: it sees each operation
            return runnable(self.graph())(*tensors)[0]
        if self.run is None:
            self.run = ThreadState().around(self.compile)
        return self.run(tensors)

    def compile(self) -> Callable:
        """The callable, of a list of its inputs; with eager kernels where the half cannot be
        compiled."""
        record = self.record
        half = record.backward = type(record)(input_graph=record.input_graph)
        half.keeps_steps = record.keeps_steps
        half.aten_graph, half.joint_graph = record.aten_graph, record.joint_graph
        try:
            run = self.start(self.program(half), half)
            return getattr(run, "owned", None) or (lambda tensors: run(*tensors))
        except (CannotLower, CompilerError) as error:
            reason = str(error)
        except faults() as error:  # of ours: the step goes on with the right numbers
            if config.raise_internal_errors:
                raise
            reason = f"internal error, {type(error).__name__}: {error}"
        half.notes.append(f"runs with eager kernels: {reason}")
        graph = self.graph()
        warn_once(f"the backward half of {first_line(graph)} runs with eager kernels: {reason}")
        eager = runnable(graph)
        return lambda tensors: eager(*tensors)[0]

    def program(self, half: CompileRecord) -> Any:
        graph = half.functional_graph = self.graph()
        before = guards_of(graph)
        program = self.compile_graph(graph, half, [])
        if guards_of(graph) != before:
            raise CannotLower(
                "compiling it would assume something of symbolic sizes, but the guards were "
                "settled with the forward half"
            )
        return program

    def graph(self) -> fx.GraphModule:
        graph = self.parts.backward
        if self.missing:
            from .missing_tangents import WithoutTangents

            graph = WithoutTangents(graph, self.missing).run()
        graph.meta["owned"] = True  # its inputs: wrapper.py frees each after its last use
        return graph


def guards_of(graph: fx.GraphModule) -> list[str]:
    """What was assumed of the graph's symbolic sizes so far."""
    sizes = symbolic_placeholders(graph.graph)
    return list(map(str, sizes[0].shape_env.guards())) if sizes else []


def inner_writes(forward: fx.GraphModule, joint: Joint) -> list[tuple[str, str]]:
    """What autograd does not record of what the program writes: (op, target).

    It changes the forward graph, too: of its second output, the new values, only theirs are left,
    since the others are results."""
    output: Any = forward.graph.output_node()
    results, writes = output.args[0]
    by_name = dict(zip([target for _, target in joint.written], writes))
    names = [f"primal{w.primal}" for w in joint.writes if w.result is None]
    output.args = ((results, [by_name[name] for name in names]),)
    forward.recompile()
    return [("placeholder", name) for name in names]


def connect(
    joint: Joint,
    parts: "Parts",
    run_forward: Callable,
    run_backward: Callable,
    held: Sequence[torch.Tensor],
) -> Callable:
    """The callable: an autograd function around the two halves, and the aliases around that."""
    made = AutogradFunction(joint, parts, run_forward, run_backward)
    without_history = lambda *primals: tuple(run_forward(*primals)[: joint.count])  # noqa: E731
    apply = made.function() if joint.tangents else without_history
    outside = [w for w in joint.writes if w.result is not None]

    def run(*inputs: Any) -> Any:
        results = without_autocast(apply, *inputs, *held)
        primals = [*inputs, *held] if outside else []
        for write in outside:  # autograd is on: the input gets new history
            primals[write.primal].copy_(results[write.result])
        return results

    return with_outputs(joint, run, held)


DIFFERENTIATED = (
    "compiled code cannot be differentiated twice: its backward half has no derivative, so "
    "create_graph=True is refused. Where second derivatives are needed, leave this function "
    'uncompiled, or compile it with backend="eager".'
)


class AutogradFunction:
    """Makes the `torch.autograd.Function` around the compiled forward and backward graph.  Primals
    are the graph's inputs, then the tensors that it holds.

    saved_inputs: for each saved value the position of the primal that it is, or None: then it is an
      output of the forward half, after the results.
    gradients: for each primal the position of its gradient among the backward half's outputs, or
      None.
    strides: sizes -> (the strides of each saved value, those in which the backward half wants each
      gradient).
    """

    def __init__(
        self, joint: Joint, parts: "Parts", run_forward: Callable, run_backward: Callable
    ) -> None:
        self.joint, self.gradients = joint, parts.gradients
        self.run_forward, self.run_backward = run_forward, run_backward
        placeholders = joint.graph.graph.find_nodes(op="placeholder")
        # a saved primal is passed on as it is, unless the program overwrites it
        overwritten = {write.primal for write in joint.writes}
        unchanged = {node: i for i, node in enumerate(placeholders) if i not in overwritten}
        self.saved_inputs = [unchanged.get(node) for node in parts.saved]
        strides = [[n.meta["val"].stride() for n in half] for half in (parts.saved, parts.tangents)]
        self.strides = fill(strides, list(joint.symbols.values()))

    def function(self) -> Callable:
        """The autograd function, to be called; its two methods are this object's."""

        class Compiled(torch.autograd.Function):
            forward = staticmethod(self.forward)
            backward = staticmethod(undisturbed.value(self.backward))

        unreached = self.joint.unreached

        def apply_detached(*primals: Any) -> Any:
            """`apply`, where the primals that no result depends on take no part in autograd."""
            given = list(primals)
            for place in unreached:
                given[place] = given[place].detach()
            return Compiled.apply(*given)

        return apply_detached if unreached else Compiled.apply

    def forward(self, ctx: Any, *primals: Any) -> tuple:
        ctx.set_materialize_grads(False)  # `Backward` is told which arrived
        count = self.joint.count
        values = self.run_forward(*primals)
        results = writable(values[:count])
        kept = iter(values[count:])
        saved = [next(kept) if i is None else primals[i] for i in self.saved_inputs]
        ctx.save_for_backward(*saved)
        ctx.sizes = [primals[i] for i in self.joint.symbols]
        constant = [r for i, r in enumerate(results) if i not in self.joint.tangents]
        ctx.mark_non_differentiable(*[r for r in constant if isinstance(r, torch.Tensor)])
        return tuple(results)

    def backward(self, ctx: Any, *given: torch.Tensor | None) -> tuple:
        if all(tangent is None for tangent in given):  # nothing of this call reached the loss
            return (None,) * len(self.gradients)
        if torch.is_grad_enabled():  # create_graph=True
            raise RuntimeError(DIFFERENTIATED)
        saved_strides, tangents = self.strides(*ctx.sizes)
        saved = [in_layout(t, stride) for t, stride in zip(ctx.saved_tensors, saved_strides)]
        ctx.maybe_clear_saved_tensors()  # unless the graph is retained
        arrived = [in_memory(given[i], step) for i, step in zip(self.joint.tangents, tangents)]
        values = without_autocast(self.run_backward, ctx.sizes, saved, arrived)
        return tuple([None if at is None else values[at] for at in self.gradients])


def in_memory(tensor: torch.Tensor | None, strides: tuple[int, ...]) -> torch.Tensor | None:
    """The tensor with its values in its memory, in these strides: `y.backward(z.conj().imag)` gives
    one that is negated lazily."""
    return None if tensor is None else in_layout(tensor.resolve_conj().resolve_neg(), strides)
