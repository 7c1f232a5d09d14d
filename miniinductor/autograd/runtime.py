"""A compiled forward and a compiled backward as one `torch.autograd.Function`.

In:   a captured graph that needs gradients.  Out: a callable on the graph's inputs whose results
      have history.

    >>> plan, parts = plan_training(gm, [x], record, Options())            # compile.py
    >>> back = Backward(plan.cut.names, lambda: parts, record, compile_graph, start, entry=None)
    >>> run = connect(plan, plan.program.start(), back, held_tensors(gm))
    >>> run(x)[0].square().sum().backward()         # x.grad and the parameters' are there now
    >>> x.grad.shape
    torch.Size([4, 8])

What the function does around the two compiled halves:
- parameters and buffers are arguments, so that autograd sees them: their hooks fire, `.grad`
  accumulates;
- saved values go through `ctx.save_for_backward`, so that saved-tensor hooks and autograd's version
  checks work;
- a written tensor with history is returned and copied back outside, with autograd on; buffers are
  written inside;
- outputs that are inputs, views of inputs or of one another are made outside (joint.py plans it);
- a gradient in other strides, or negated lazily, is copied; differentiating twice raises.
Mirrors torch/_functorch/_aot_autograd/runtime_wrappers.py.
"""

import copy
import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.utils._pytree as pytree
from torch import fx

from .. import config
from ..exceptions import CannotLower, CompilerError
from ..foreign import ThreadState, faults
from ..hooks import Entry
from ..records import CompileRecord, Later
from ..runtime.program import in_layout
from ..sizes.symbols import fill
from .joint import Joint, has_lazy_bits, replay
from .partition import Parts, without_tangents
from .tracer import without_autocast

aten = torch.ops.aten


def undisturbed(function: Callable) -> Callable:
    """`function`, to be called by autograd wherever `backward()` stands.  A front end that watches
    Python puts its own here, so that it does not watch the backward half being compiled."""
    return function


@dataclass
class Cut:
    """How the halves fit together.  Primals are the graph's inputs, then the tensors that it
    holds."""

    # for each saved value: which primal it is, or None: it follows the forward half's results
    saved_inputs: list
    saved_strides: list
    gradients: list  # for each primal the position among the backward half's outputs, or None
    tangents: list  # (result, strides in which the backward half wants its gradient)
    names: list  # the tangents' placeholders


@dataclass
class Plan:
    """What running a compiled graph takes, as plain data: kept on disk."""

    joint: Joint  # how outputs are made of results.  (Its graphs are not kept.)
    program: Any  # a Program, or what stands for one: of the forward half
    cut: Any = None  # training: a Cut
    shared_memory: bool = False  # it writes: no two tensors may share memory
    may_refuse: bool = False  # kernels look at values, and nothing else happens: see eager.py

    def __getstate__(self) -> dict[str, Any]:
        joint = copy.copy(self.joint)
        joint.recorded = joint.graph = None
        return self.__dict__ | {"joint": joint}


def cut_of(joint: Joint, parts: Parts) -> Cut:
    """What running the halves takes, as plain data."""
    # a saved primal is passed on as it is; the others follow the results
    primals = {
        n.target: i
        for i, n in enumerate(n for n in joint.graph.graph.nodes if n.op == "placeholder")
    }
    overwritten = {f"primal{w.primal}" for w in joint.writes}
    return Cut(
        [
            primals[n.target] if n.op == "placeholder" and n.target not in overwritten else None
            for n in parts.saved
        ],
        [n.meta["val"].stride() for n in parts.saved],
        parts.gradients,
        [(i, node.meta["val"].stride()) for i, node in zip(joint.tangents, parts.tangents)],
        [n.name for n in parts.tangents],
    )


class Backward:
    """The backward half, compiled when it is first needed: only then it is known which results
    reached the loss.

    A model that returns logits and a loss is mostly differentiated by its loss alone; the graph for
    that case has nothing of the logits' gradient left.  # PyTorch: compiles with the forward half
    and fills in zeros.
    """

    def __init__(
        self,
        names: list[str],
        parts: Callable[[], Parts],
        record: CompileRecord,
        compile_graph: Callable,
        start: Callable,
        entry: Entry | None,
    ) -> None:
        """parts(): the Parts; they are traced again where the forward half came from disk.
        start(program, record): the callable."""
        self.names, self.parts, self.record = names, parts, record
        self.compile_graph, self.start, self.entry = compile_graph, start, entry
        self.variants: dict[tuple[bool, ...], Callable] = {}

    def __call__(
        self, sizes: Sequence[int], saved: list[torch.Tensor], given: list[torch.Tensor | None]
    ) -> Any:
        arrived = tuple(tangent is not None for tangent in given)
        run = self.variants.get(arrived)
        if run is None:
            run = self.variants[arrived] = ThreadState().around(self.compile, arrived)
        tensors = [*sizes, *saved, *[tangent for tangent in given if tangent is not None]]
        # each is freed after its last use, while gradients take up memory
        saved.clear()
        given.clear()
        return run(tensors)

    def compile(self, arrived: tuple[bool, ...]) -> Callable:
        part, record = "".join("01"[there] for there in arrived), self.record
        half = record.backward = type(record)(input_graph=record.input_graph)
        for name in ("aten_graph", "joint_graph"):
            setattr(half, name, Later(functools.partial(getattr, record, name)))
        half.functional_graph = Later(lambda: self.graph(arrived))
        program = self.entry and half.restored(self.entry.load(part))
        if program:
            half.loop_ir, half.fused_ir = (
                Later(functools.partial(self.text, arrived, name))
                for name in ("loop_ir", "fused_ir")
            )
            return self.started(program, half)
        try:
            graph = half.functional_graph = self.graph(arrived)
            before = guards_of(graph)
            program = self.compile_graph(graph, half, [])
            if guards_of(graph) == before:
                half.keep(self.entry, program, part)
                return self.started(program, half)
            reason = (
                "compiling it would assume something of symbolic sizes, but the guards were "
                "settled with the forward half"
            )
        except (CannotLower, CompilerError) as error:
            reason = str(error)
        except faults() as error:  # of ours: the step goes on with the right numbers
            if config.raise_internal_errors:
                raise
            reason = f"internal error, {type(error).__name__}: {error}"
        half.notes.append(f"runs with eager kernels: {reason}")
        return lambda tensors: graph(*tensors)[0]

    def graph(self, arrived: tuple[bool, ...]) -> fx.GraphModule:
        graph = without_tangents(
            self.parts().backward, [name for name, there in zip(self.names, arrived) if not there]
        )
        graph.meta["owned"] = True
        return graph

    def text(self, arrived: tuple[bool, ...], name: str) -> str:
        record = type(self.record)(joint_graph=self.record.joint_graph)
        self.compile_graph(self.graph(arrived), record, [])
        return getattr(record, name)

    def started(self, program: Any, half: CompileRecord) -> Callable:
        run = self.start(program, half)
        return getattr(run, "owned", None) or (lambda tensors: run(*tensors))


def guards_of(graph: fx.GraphModule) -> list[str]:
    """What was assumed of the graph's symbolic sizes so far."""
    sizes = [
        n.meta["val"]
        for n in graph.graph.find_nodes(op="placeholder")
        if isinstance(n.meta["val"], torch.SymInt)
    ]
    return list(map(str, sizes[0].node.shape_env.guards())) if sizes else []


def held_tensors(gm: fx.GraphModule) -> list[torch.Tensor]:
    """The distinct tensors behind get_attr nodes: parameters and buffers."""
    return list({id(t): t for t in [*gm.parameters(), *gm.buffers()]}.values())


def inner_writes(forward: fx.GraphModule, joint: Joint) -> fx.GraphModule:
    """Leave in the forward graph's second output only the writes that autograd does not record."""
    output = next(n for n in forward.graph.nodes if n.op == "output")
    results, writes = output.args[0]
    by_name = dict(zip([target for _, target in joint.written], writes))
    output.args = (
        (results, [by_name[f"primal{w.primal}"] for w in joint.writes if w.result is None]),
    )
    forward.recompile()
    return forward


def connect(
    plan: Plan, run_forward: Callable, run_backward: Callable, held: Sequence[torch.Tensor]
) -> Callable:
    """The callable: an autograd function around the two halves, and the aliases around that."""
    halves = Halves(plan, run_forward, run_backward)
    joint = plan.joint
    apply = halves.function().apply if joint.tangents else halves.without_history
    if joint.tangents and joint.unreached:
        apply = functools.partial(apply_detached, apply, joint.unreached)
    outside = [w for w in joint.writes if w.result is not None]

    def run(*inputs: Any) -> Any:
        results = without_autocast(apply, *inputs, *held)
        if outside:
            primals = [*inputs, *held]
            for write in outside:
                # autograd is on: the input gets new history
                primals[write.primal].copy_(results[write.result])
        return results

    return with_outputs(joint, run, held)


class Halves:
    """What the autograd function does in its two directions."""

    def __init__(self, plan: Plan, run_forward: Callable, run_backward: Callable) -> None:
        self.joint, self.cut = plan.joint, plan.cut
        self.run_forward, self.run_backward = run_forward, run_backward
        self.uncounted = written_by_data(plan.joint)
        self.without_tangent = [
            i for i in range(plan.joint.count) if i not in set(plan.joint.tangents)
        ]
        symbols = list(plan.joint.symbols.values())
        self.strides = fill((plan.cut.saved_strides, plan.cut.tangents), symbols)
        self.views_of_aliases = fill([alias.views for alias in plan.joint.aliases], symbols)

    def function(self) -> type[torch.autograd.Function]:
        """The autograd function; its two methods are this object's."""
        compiled = {
            "forward": staticmethod(self.forward),
            "backward": staticmethod(undisturbed(self.backward)),
        }
        return type("Compiled", (torch.autograd.Function,), compiled)

    def without_history(self, *primals: Any) -> tuple:
        return tuple(self.run_forward(*self.uncounted(primals))[: self.joint.count])

    def forward(self, ctx: Any, *primals: Any) -> tuple:
        joint, count = self.joint, self.joint.count
        values = self.run_forward(*self.uncounted(primals))
        # a view made without autograd could not be written by the program
        results = [
            v.detach() if isinstance(v, torch.Tensor) and v._is_view() else v
            for v in values[:count]
        ]
        if joint.aliases:
            self.add_aliases(results, primals)
        kept = iter(values[count:])
        saved = [next(kept) if i is None else primals[i] for i in self.cut.saved_inputs]
        ctx.save_for_backward(*saved)
        ctx.set_materialize_grads(False)
        ctx.sizes = [primals[i] for i in joint.symbols]
        constant = [results[i] for i in self.without_tangent]
        ctx.mark_non_differentiable(*[r for r in constant if isinstance(r, torch.Tensor)])
        return tuple(results)

    def add_aliases(self, results: list, primals: Sequence[Any]) -> None:
        """The results that share memory with primals or with other results."""
        sizes = [primals[i] for i in self.joint.symbols]
        for alias, views in zip(self.joint.aliases, self.views_of_aliases(*sizes)):
            source = primals[alias.at] if alias.kind == "input" else results[alias.at]
            results[alias.result] = replay(source, views) if views else source.view_as(source)

    def backward(self, ctx: Any, *given: torch.Tensor | None) -> tuple:
        if all(tangent is None for tangent in given):  # nothing of this call reached the loss
            return (None,) * len(self.cut.gradients)
        saved_strides, tangents = self.strides(*ctx.sizes)
        saved = [in_layout(t, stride) for t, stride in zip(ctx.saved_tensors, saved_strides)]
        ctx.maybe_clear_saved_tensors()  # unless the graph is retained
        arrived = [
            None if given[i] is None else in_layout(resolved(given[i]), stride)
            for i, stride in tangents
        ]
        recording = torch.is_grad_enabled()
        try:  # calls of C alone: an exception may come at any time, in an `__exit__` too
            torch._C._set_grad_enabled(False)
            values = without_autocast(self.run_backward, ctx.sizes, saved, arrived)
        finally:
            torch._C._set_grad_enabled(recording)
        if recording:  # create_graph=True
            values = OnceOnly.apply(torch.empty(0, requires_grad=True), *values)
        return tuple([None if at is None else values[at] for at in self.cut.gradients])


def apply_detached(apply: Callable, places: Sequence[int], *primals: Any) -> Any:
    """apply(*primals), where those at `places` take no part in autograd."""
    given = list(primals)
    for place in places:
        given[place] = given[place].detach()
    return apply(*given)


def written_by_data(joint: Joint) -> Callable[[Sequence[Any]], Sequence[Any]]:
    """inputs -> the inputs, with `.data` of those that the program writes through `.data` alone:
    autograd does not count such writes."""
    if not joint.uncounted:
        return lambda inputs: inputs

    def changed(inputs: Any) -> Sequence[Any]:
        inputs = list(inputs)
        for place in joint.uncounted:
            inputs[place] = inputs[place].data
        return inputs

    return changed


def resolved(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor with its values in its memory: `y.backward(z.conj().imag)` gives one that is
    negated lazily."""
    return tensor.resolve_conj().resolve_neg() if has_lazy_bits(tensor) else tensor


def with_outputs(joint: Joint, run: Callable, held: Sequence[torch.Tensor] = ()) -> Callable:
    """`run` with the program's outputs: in their structure, inputs as themselves, views as views of
    what they are views of."""
    plan, order, structure = joint.outputs, joint.order, joint.structure
    numbers = fill([(output.at, output.views) for output in plan], list(joint.symbols.values()))

    def call(*inputs: Any) -> Any:
        results = run(*inputs)
        leaves: list[Any] = [None] * len(plan)
        made = numbers(*[inputs[i] for i in joint.symbols])
        for place in order:
            kind, (at, views) = plan[place].kind, made[place]
            if kind == "computed":
                leaf = results[at]
            elif kind == "output":
                leaf = leaves[at]
            elif kind == "input":
                leaf = inputs[at] if at < len(inputs) else held[at - len(inputs)]
            else:
                leaf = at
            leaves[place] = leaf if views is None else replay(leaf, views)
        return pytree.tree_unflatten(leaves, structure)

    return call


class OnceOnly(torch.autograd.Function):
    """Gradients under create_graph=True: they have no history, and say so when somebody
    differentiates them."""

    @staticmethod
    def forward(ctx: Any, marker: torch.Tensor, *gradients: Any) -> tuple:
        return tuple(g.detach() for g in gradients)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> tuple:
        raise RuntimeError(
            "compiled code cannot be differentiated twice: its backward half has no derivative. "
            'Compile this function with backend="eager", or leave it uncompiled, where second derivatives are needed.'
        )
