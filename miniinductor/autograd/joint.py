"""The joint graph: forward and backward of a program as one straight line of ATen ops.

In:   a captured `fx.GraphModule`, example inputs, the tensors that it holds (parameters, buffers).
      Out: a `Joint`.

    y = x @ w                       primal0, primal1, tangent0 ->
    backward(tangent)      =>         mm = mm(primal0, primal1)
                                      dx = mm(tangent0, t(primal1));  dw = mm(t(primal0), tangent0)
                                      return ((mm,), (dx, dw)), []

    >>> joint = trace_joint(gm, inputs, held=[])
    >>> [node.name for node in joint.graph.graph.nodes]
    ['primal0', 'primal1', 'tangent0', 'mm_default', 't_default', 'mm_default_1', 't_default_1',
    'mm_default_2', 'output']

The program runs once on fake tensors under our tracer *with autograd on*; then
`torch.autograd.grad` runs too, and since the tracer sits below autograd, the backward ops land in
the same graph.  Nothing about derivatives is written here.

The captured graph is run node by node (`OriginInterpreter`): each recorded op knows the FX node and
the line of the program that it came from, those of the backward half the line whose gradient they
compute.  Some calls are traced otherwise than torch takes them apart:

    @call_rule(torch.lstm)
    def lstm(interpreter, target, args, kwargs): ...

An output that is an input, a number, or another output again, or that shares memory with one, is no
output of the autograd function: `outputs.py` plans how it is made outside, as eager would give it,
and knows programs whose history one autograd function cannot have.

Mirrors torch/_functorch/_aot_autograd (paper section 3.10).  Left out: tensor subclasses, outputs
that are leaves made inside the graph (refused); for a written input that had no history, the
gradient with respect to its *new* value (nobody's leaf) sees what was computed from it outside
only, as in PyTorch.  A write through `.data` counts as any other.
"""

import bisect
import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.utils._pytree as pytree
from torch import fx
from torch._dispatch.python import enable_python_dispatcher

from ..errors import CannotTrace, blaming, is_fault, ours
from ..options import Current
from .functionalize import functionalize
from .outputs import (
    Output,
    StandIn,
    ViewPlanner,
    check_histories,
    forget_history,
    has_several_outputs,
    history_of,
    is_tensor,
    needs_gradient,
    unreached,
)
from .tracer import (
    Decompositions,
    Tracer,
    fake_inputs,
    input_name,
    new_tracer,
    no_autocast,
    run_traced,
    without_autocast,
)

# (interpreter, target, args, kwargs) -> what the call gives; `interpreter.plain_call` is the rest
CallRule = Callable[[fx.Interpreter, Any, tuple, dict[str, Any]], Any]
CALLS: dict[Any, CallRule] = {}
# What autograd calls as the backward of a compiled graph in place of a function: the function
# itself.  A front end with a frame hook sets `disabled` around a compilation, since otherwise the
# hook would see the backward graph being compiled.
undisturbed = Current(lambda function: function)


def call_rule(*targets: Any) -> Callable[[CallRule], CallRule]:
    """Register how calls of these functions in a captured graph are run under the tracer."""

    def register(rule: CallRule) -> CallRule:
        CALLS.update(dict.fromkeys(targets, rule))
        return rule

    return register


class OriginInterpreter(fx.Interpreter):
    """Runs the captured graph under a tracer, so that each ATen node knows from which FX node and
    line of the user it came.

    starts: for each FX node the next free sequence number of autograd when the node starts.
      (Autograd numbers its functions as they are made, so the functions that the node makes have
      numbers from there on.)  origins: for each FX node the meta of what it computes."""

    def __init__(self, gm: fx.GraphModule, tracer: Tracer) -> None:
        super().__init__(gm)
        self.extra_traceback = False  # what is raised keeps its own words
        self.tracer = tracer
        self.starts: list[int] = []
        self.origins: list[dict[str, Any]] = []
        # id of a tensor -> (the tensor, so that it keeps its id; what call rules know of it)
        self.scores: dict[int, tuple[Any, Any]] = {}

    def run_node(self, node: fx.Node) -> Any:
        # (what the front end has written down of each node)
        kept = ("source_line", "stack_trace", "user_stack", "module_path", "checkpointed")
        self.tracer.meta = {key: node.meta[key] for key in kept if key in node.meta}
        self.tracer.meta["origins"] = frozenset([node.name])
        self.starts.append(torch._C._autograd._get_sequence_nr())
        result = super().run_node(node)
        self.origins.append(self.tracer.meta)
        return result

    def find_origin(self) -> None:
        """Set the tracer's `meta` in backward: what autograd computes now gets the origin of the
        forward node whose gradient it is.

        That is the last node whose start is not above the number of autograd's function.  (A node
        that made no function has the same start as the next one.)  Where two gradients of one value
        are added, the sum counts with the function that gave the later one."""
        function = torch._C._current_autograd_node()
        if function is not None:
            place = bisect.bisect_right(self.starts, function._sequence_nr()) - 1
            origin = self.origins[place] if place >= 0 else {}
            self.tracer.meta = dict(origin, backward=True)

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        return CALLS.get(target, OriginInterpreter.plain_call)(self, target, args, kwargs)

    call_method = call_function

    def plain_call(self, target: Any, args: Any, kwargs: Any) -> Any:
        """The call as torch's own rules take it apart."""
        run = super().call_method if isinstance(target, str) else super().call_function
        return run(target, args, kwargs)

    def get_attr(self, target: Any, args: Any, kwargs: Any) -> Any:
        tensor = self.fetch_attr(target)
        if not is_tensor(tensor):
            return tensor
        self.tracer.constant(tensor, target)
        return self.tracer.to_fake(tensor)


@dataclass
class Write:
    """A primal that the program writes.  result: where its new value stands among the results, if
    the write is recorded by autograd; None: it is written inside (buffers, statistics)."""

    primal: int
    result: int | None = None


@dataclass
class Joint:
    """graph: primals and tangents -> ((results, gradients of the primals), new values of written
    primals)."""

    recorded: Any = None  # fx.GraphModule, as traced, with writes
    graph: Any = None  # fx.GraphModule, functional
    structure: Any = None  # pytree of the program's output
    writes: list[Write] = field(default_factory=list)
    count: int = 0  # how many results
    tangents: list[int] = field(default_factory=list)  # results that get one, in order
    written: list[tuple[str, str]] = field(default_factory=list)  # (op, target)
    # position among the inputs -> name, of inputs that are sizes
    symbols: dict[int, str] = field(default_factory=dict)
    outputs: list[Output] = field(default_factory=list)  # how each output leaf is made
    unreached: list[int] = field(default_factory=list)  # primals on which no result depends


@contextlib.contextmanager
def autograd_errors() -> Iterator[None]:
    """An error of autograd's in the block becomes CannotTrace."""
    try:
        yield
    except ours(RuntimeError) as error:
        reason = str(error).partition("\n")[0] or repr(error)
        raise CannotTrace(f"autograd refuses the program: {reason}") from error


def held_tensors(gm: fx.GraphModule) -> list[torch.Tensor]:
    """The distinct tensors behind get_attr nodes: parameters and buffers."""
    return list({id(t): t for t in [*gm.parameters(), *gm.buffers()]}.values())


def trace_joint(
    gm: fx.GraphModule,
    inputs: Sequence[Any],
    held: Sequence[torch.Tensor],
    decompositions: Decompositions | None = None,
) -> Joint:
    """Trace forward and backward of `gm(*inputs)`; `held`: the tensors behind its get_attr nodes.

    Placeholders: primal0.. for [*inputs, *held], then tangents.  Raises CannotTrace, also where
    autograd itself refuses the program (a saved tensor was written): it then runs eagerly, and
    raises what eager raises.
    """
    return ProgramTrace(gm, inputs, held, decompositions, "primal").with_gradients()


def trace_forward(
    gm: fx.GraphModule, inputs: Sequence[Any], decompositions: Decompositions | None = None
) -> Joint:
    """Trace `gm(*inputs)` without gradients: a Joint whose graph gives (results, new values of
    written tensors).

    Parameters and buffers stay get_attr nodes.  Raises CannotTrace.
    """
    return ProgramTrace(gm, inputs, (), decompositions, "arg").without_gradients()


class ProgramTrace:
    """One trace of a program, perhaps with its gradients.

    primals: the real tensors, inputs first.  Three lists are in the same order:
    leaves: the fakes with respect to which autograd differentiates.
    objects: the fakes that the program gets: the leaf itself, or a `StandIn` made of it where the
      real tensor is no leaf.
    histories: the `grad_fn` of each object before the program ran.  A new one afterwards shows that
      the program has written to the object with autograd on.
    results: what the autograd function will return.
    recorded: such written primals -> where their new values stand among the results.
    """

    def __init__(
        self,
        gm: fx.GraphModule,
        inputs: Sequence[Any],
        held: Sequence[torch.Tensor],
        decompositions: Decompositions | None,
        prefix: str,
    ) -> None:
        self.primals, self.input_count, self.joint = [*inputs, *held], len(inputs), Joint()
        self.tracer = new_tracer(decompositions)
        self.interpreter = OriginInterpreter(gm, self.tracer)
        self.leaves = fake_inputs(self.tracer.fake_mode, self.primals)
        self.objects: list[Any] = []
        for place, (tensor, leaf) in enumerate(zip(self.primals, self.leaves)):
            thing = self.with_history(tensor, leaf)
            self.objects.append(thing)
            name = input_name(gm, place, leaf, prefix)
            self.tracer.placeholder(name, thing, tensor if place >= self.input_count else None)
        self.histories = [getattr(thing, "grad_fn", None) for thing in self.objects]
        self.results: list[torch.Tensor] = []
        self.recorded: dict[int, int] = {}

    def with_history(self, tensor: Any, leaf: Any) -> Any:
        """The fake that the program gets for the real `tensor`: `leaf`, if that tensor is a leaf of
        autograd, else a `StandIn` made of it."""
        if not needs_gradient(tensor):
            return leaf
        with autograd_errors():  # of a view whose base was written in another mode
            is_leaf = tensor.is_leaf
        with torch.inference_mode(leaf.is_inference()), self.tracer.fake_mode, torch.enable_grad():
            leaf.requires_grad_()
            return leaf if is_leaf else StandIn.apply(leaf)

    def with_gradients(self) -> Joint:
        with (
            torch.autograd.set_multithreading_enabled(False),
            torch.autograd.set_detect_anomaly(False),  # it reads values
        ):
            self.plan_results(self.run_program())
            self.plan_recorded_writes()
            self.joint.tangents = [i for i, r in enumerate(self.results) if needs_gradient(r)]
            gradients = self.differentiate()
        self.finish((self.results, gradients), "JointGraph")
        # all that the program was given are primals: other tensors came with a function of its own
        if not all(name.startswith("primal") for _, name in self.joint.written):
            raise CannotTrace("a custom function writes to a tensor that it was not given")
        written = [int(name.removeprefix("primal")) for _, name in self.joint.written]
        self.joint.writes = [Write(place, self.recorded.get(place)) for place in written]
        return self.joint

    def without_gradients(self) -> Joint:
        self.plan_results(self.run_program())
        if any(result.requires_grad for result in self.results):
            raise CannotTrace("an output needs gradients, though no input of the graph does")
        self.finish(self.results, "AtenGraph")
        return self.joint

    def run_program(self) -> Any:
        """What the program returns for the fakes."""
        with blaming(lambda: self.tracer.meta), autograd_errors():
            return run_traced(self.tracer, self.interpreter.run, self.objects[: self.input_count])

    def plan_results(self, out: Any) -> None:
        """Choose the tensors that the autograd function returns: outputs, then written primals."""
        held = list(self.tracer.constants.values())
        tensors, objects = [*self.primals, *held], [*self.objects, *map(self.tracer.to_fake, held)]
        check_histories(tensors, objects)
        flat, self.joint.structure = pytree.tree_flatten(out)
        with autograd_errors():
            self.results = ViewPlanner(self.joint, self.tracer, flat, self.objects).plan()

    def plan_recorded_writes(self) -> None:
        """An object that has another `grad_fn` now was written with autograd on: its new value is a
        result, too."""
        for place, (thing, history) in enumerate(zip(self.objects, self.histories)):
            if needs_gradient(thing) and thing.grad_fn is not history:
                self.recorded[place] = len(self.results)
                self.results.append(thing)

    def differentiate(self) -> list[torch.Tensor | None]:
        """The gradient of each primal, traced; None for those without.

        Autograd calls a custom function's `backward` here, long before anybody asks for gradients.
        Where it raises, the graph runs eagerly, and raises when it is asked; what comes from
        outside, and TimeoutError and MemoryError of whomever, leaves the call at once."""
        self.check_gradients()
        tracer = self.tracer
        are_wanted = [needs_gradient(tensor) for tensor in self.primals]
        leaves = [leaf for leaf, is_wanted in zip(self.leaves, are_wanted) if is_wanted]
        with enable_python_dispatcher(), tracer.fake_mode:
            tangents = self.make_tangents()
            if not (tangents and leaves):
                return [None] * len(are_wanted)
            outputs = [self.results[i] for i in self.joint.tangents]
            tracer.before_record = self.interpreter.find_origin
            blame = blaming(lambda: tracer.meta)
            try:
                with tracer, no_autocast(), blame, autograd_errors():
                    found = torch.autograd.grad(outputs, leaves, tangents, allow_unused=True)
            except ours(Exception) as error:
                if isinstance(error, CannotTrace) or is_fault(error):
                    raise
                name = type(error).__name__
                raise CannotTrace(f"backward of the program's own raises {name}") from error
        gradients = iter(found)
        return [next(gradients) if is_wanted else None for is_wanted in are_wanted]

    def check_gradients(self) -> None:
        """Raise CannotTrace where one autograd function could not stand for the program's."""
        joint = self.joint
        for place in self.recorded:
            history = self.histories[place]
            if history is not None and history not in history_of([self.objects[place]]):
                raise CannotTrace("the program detaches an input, then writes to it")
        differentiated = [self.results[i] for i in joint.tangents]
        history = history_of(differentiated)
        joint.unreached = unreached(self.leaves, history)
        if joint.tangents and len(joint.unreached) == sum(map(needs_gradient, self.leaves)):
            raise CannotTrace("outputs need gradients because of a leaf that was made inside")
        if (self.recorded or len(differentiated) > 1) and any(map(has_several_outputs, history)):
            # Autograd refuses to write to a view in such a function.  `WithoutTangents` takes what
            # does not arrive for zero, and all that follows from it
            raise CannotTrace(
                "a custom autograd function with several outputs: its backward must see "
                "which of them reached the loss"
            )

    def make_tangents(self) -> list[torch.Tensor]:
        """A placeholder for the gradient of each result that gets one, after those of the
        primals."""
        graph, tangents = self.tracer.graph, []
        last = list(graph.nodes)[len(self.primals) - 1] if self.primals else None
        for i in self.joint.tangents:
            # dense, even if the result is an expand()
            tangents.append(torch.empty_like(self.results[i].detach()))
            with graph.inserting_after(last):
                last = self.tracer.placeholder(f"tangent{i}", tangents[-1])
        return tangents

    def finish(self, out: Any, name: str) -> None:
        """Close the recorded graph with the output `out`, and make its functional form."""
        joint, graph = self.joint, self.tracer.graph
        joint.count = len(self.results)
        graph.output(self.tracer.nodes_of(out))
        joint.recorded = self.tracer.module(name)
        if any(map(needs_gradient, self.objects)):
            forget_history(graph)
        joint.graph, joint.written = without_autocast(functionalize, joint.recorded)
        joint.symbols = {
            i: n.target
            for i, n in enumerate(joint.graph.graph.find_nodes(op="placeholder"))
            if isinstance(n.meta["val"], torch.SymInt)
        }
        if (
            joint.written
            and not torch.is_inference_mode_enabled()
            and any(t.is_inference() for t in self.leaves if is_tensor(t))
        ):
            # values are written when all is computed, and not in the block of inference mode
            raise CannotTrace("a graph that writes is given an inference tensor")
