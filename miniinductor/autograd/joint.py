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

What cannot be an output of the autograd function is planned here: an output that is an input, or a
view of one, or a view of another output, is made again outside of it by the same views (`Output`),
as eager would give it. Mirrors torch/_functorch/_aot_autograd (paper section 3.10).  Left out:
tensor subclasses, outputs that are leaves made inside the graph (refused); for a written input that
had no history, the gradient with respect to its *new* value (nobody's leaf) sees what was computed
from it outside only, as in PyTorch.
"""

import bisect
import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import torch
import torch.utils._pytree as pytree
from torch import fx
from torch._dispatch.python import enable_python_dispatcher
from torch.utils._python_dispatch import _disable_current_modes

from ..exceptions import CannotTrace
from ..foreign import ours
from ..fake_mode import FakeMode
from .functionalize import Node, functionalize
from .tracer import (
    Decompositions,
    OriginInterpreter,
    Tracer,
    ambient_autocast,
    fake_inputs,
    input_name,
    new_fake_mode,
    no_autocast,
    run_traced,
)

aten = torch.ops.aten
Views: TypeAlias = Sequence[tuple]  # (op, args, kwargs, the tracer's `recording_mode`)


@dataclass
class Output:
    """How one output leaf is made.

    kind: "value" (at: a constant, or a size), "input" (at: position among the primals), "held" (at:
    a tensor of the graph's module), "computed" (at: position among the results), "output" (at:
    position among the output leaves). views: (op, args, kwargs, the tracer's `recording_mode`) to
    apply to it; None: the very object.
    """

    kind: str
    at: Any
    views: Views | None = None


@dataclass
class Alias:
    """A result that shares memory with a primal, or with another result, but has a history of its
    own: a custom autograd function made it, from which autograd would not find its way by the views
    alone.  It is made inside of our autograd function, as there.

    result: its position among the results.  kind: "input" (at: a primal) or "computed" (at: a
    result, perhaps itself).
    """

    result: int
    kind: str
    at: int
    views: tuple


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
    outputs: list[Output] = field(default_factory=list)  # of each leaf
    order: list[int] = field(default_factory=list)  # in which the leaves are made
    aliases: list[Alias] = field(default_factory=list)  # of each result that is one
    structure: Any = None  # pytree of the program's output
    writes: list[Write] = field(default_factory=list)
    # primals that results do not depend on; that are written through `.data` alone
    unreached: list[int] = field(default_factory=list)
    uncounted: list[int] = field(default_factory=list)
    count: int = 0  # results
    tangents: list[int] = field(default_factory=list)  # results that get one, in order
    written: list[tuple[str, str]] = field(default_factory=list)  # (op, target)
    # position among the inputs -> name, of inputs that are sizes
    symbols: dict[int, str] = field(default_factory=dict)

    def record(self, tracer: Tracer, name: str) -> None:
        """What the tracer has recorded, and its functional form."""
        self.recorded = tracer.module(name)
        self.graph, self.written = functionalize(self.recorded)
        self.symbols = {
            i: n.target
            for i, n in enumerate(self.graph.graph.find_nodes(op="placeholder"))
            if isinstance(n.meta["val"], torch.SymInt)
        }

    def find_uncounted(self, tracer: Tracer, objects: Sequence[Any]) -> None:
        """Which primals are written through `.data` alone, which leaves their version alone?"""
        places = {tracer.node_of(t).target: i for i, t in enumerate(objects) if is_tensor(t)}
        outside = not torch.is_inference_mode_enabled()
        for op, target in self.written:
            held = op != "placeholder"
            thing = tracer.to_fake(tracer.constants[target]) if held else objects[places[target]]
            if id(thing) in tracer.versions_raised:
                if thing.is_inference() and outside:  # values are written when all is computed
                    raise CannotTrace("an inference tensor is written in a block of inference mode")
            elif held:
                raise CannotTrace("a constant of the graph is written through .data")
            else:
                self.uncounted.append(places[target])

    @property
    def is_plain(self) -> bool:
        """Are the results the outputs, one for one?  Then there is nothing to rebuild."""
        return [(o.kind, o.at, o.views) for o in self.outputs] == [
            ("computed", i, None) for i in range(self.count)
        ] and (
            self.structure.type in (tuple, list)
            and all(child.is_leaf() for child in self.structure.children())
        )


class StandIn(torch.autograd.Function):
    """A tensor that needs gradients and is no leaf, so that the program may write to it."""

    @staticmethod
    def forward(ctx: Any, leaf: torch.Tensor) -> torch.Tensor:
        ctx.set_materialize_grads(False)  # no gradient is not a gradient of zeros
        return torch.empty_strided(leaf.shape, leaf.stride(), dtype=leaf.dtype, device=leaf.device)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        return gradient


def is_tensor(value: Any) -> bool:
    return isinstance(value, torch.Tensor)


def needs_gradient(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.requires_grad


def with_history(fake_mode: FakeMode, tensor: torch.Tensor, leaf: torch.Tensor) -> torch.Tensor:
    """The fake `leaf`, or a tensor made of it, that needs gradients and is a leaf as `tensor`
    is."""
    if not needs_gradient(tensor):
        return leaf
    with torch.inference_mode(leaf.is_inference()), fake_mode, torch.enable_grad():
        leaf.requires_grad_()
        if tensor.is_leaf:
            return leaf
        return StandIn.apply(leaf)


def with_histories(fake_mode: FakeMode, tensors: Sequence[Any], leaves: Sequence[Any]) -> list[Any]:
    return [with_history(fake_mode, tensor, leaf) for tensor, leaf in zip(tensors, leaves)]


def check_histories(tensors: Sequence[Any], objects: Sequence[Any]) -> None:
    """Raise CannotTrace if the program has changed whether an input needs gradients other than by
    writing to it: `detach_`, `requires_grad_`.  (Autograd lets nobody write to a leaf that needs
    gradients, so one that has a history now was detached before.)"""
    for tensor, thing in zip(tensors, objects):
        if not isinstance(tensor, torch.Tensor):
            continue
        was_learned = tensor.is_leaf and tensor.requires_grad
        if thing.grad_fn is not None and not was_learned:
            continue
        before, now = (tensor.requires_grad, tensor.is_leaf), (thing.requires_grad, thing.is_leaf)
        if before != now:
            raise CannotTrace("the program changes an input's requires_grad, or detaches it")


class BackwardOrigins:
    """Gives each backward op the origin (module, user line) of the forward op that it
    differentiates."""

    def __init__(self, tracer: Tracer) -> None:
        self.tracer = tracer
        self.starts: list[int] = []
        self.metas: list[dict[str, Any]] = []

    def forward(self) -> None:
        self.starts.append(torch._C._autograd._get_sequence_nr())
        self.metas.append(self.tracer.meta)

    def backward(self) -> None:
        node = torch._C._current_autograd_node()
        if node is not None:
            at = bisect.bisect_right(self.starts, node._sequence_nr()) - 1
            self.tracer.meta = (
                dict(self.metas[at], backward=True)
                if 0 <= at < len(self.metas)
                else {"backward": True}
            )


class JointInterpreter(OriginInterpreter):
    def __init__(
        self,
        gm: fx.GraphModule,
        tracer: Tracer,
        origins: BackwardOrigins,
        attributes: dict[int, Any],
    ) -> None:
        super().__init__(gm, tracer)
        self.origins, self.attributes = origins, attributes

    def run_node(self, node: fx.Node) -> Any:
        result = super().run_node(node)
        self.origins.forward()
        return result

    def get_attr(self, target: Any, args: Any, kwargs: Any) -> Any:
        return self.attributes[id(self.fetch_attr(target))]


@contextlib.contextmanager
def autograd_errors() -> Iterator[None]:
    try:
        yield
    except ours(RuntimeError) as error:
        if getattr(error, "needs_data", False):  # the front end's: a size that only the run knows
            raise
        raise CannotTrace(
            f"autograd refuses the program: {str(error).splitlines()[0] if str(error) else error!r}"
        ) from error


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
    return JointTrace(gm, inputs, held, decompositions).run()


class JointTrace:
    """One trace of a program and of its gradients.

    leaves: what autograd differentiates by.  objects: what the program gets, in the same order.
    results: what the autograd function will return.  recorded: primals that autograd saw written ->
    where their new value stands among the results.
    """

    def __init__(
        self,
        gm: fx.GraphModule,
        inputs: Sequence[Any],
        held: Sequence[torch.Tensor],
        decompositions: Decompositions | None,
    ) -> None:
        self.gm, self.primals, self.joint = gm, [*inputs, *held], Joint()
        self.arguments, self.held = len(inputs), held
        self.fake_mode = new_fake_mode()
        self.tracer = Tracer(self.fake_mode, decompositions)
        self.leaves = fake_inputs(self.fake_mode, self.primals)
        self.objects: list[Any] = []
        for place, (tensor, leaf) in enumerate(zip(self.primals, self.leaves)):
            thing = with_history(self.fake_mode, tensor, leaf)
            self.objects.append(thing)
            self.tracer.placeholder(input_name(gm, place, leaf, "primal"), thing)
        self.histories = [getattr(thing, "grad_fn", None) for thing in self.objects]
        self.origins = BackwardOrigins(self.tracer)
        self.results: list[torch.Tensor] = []
        self.recorded: dict[int, int] = {}

    def run(self) -> Joint:
        with (
            torch.autograd.set_multithreading_enabled(False),
            torch.autograd.set_detect_anomaly(False),  # it reads values
            enable_python_dispatcher(),
            self.fake_mode,
            self.tracer,
        ):
            self.plan_results(self.run_program())
            self.check_gradients()
            gradients = self.differentiate()
        self.write_down(gradients)
        return self.joint

    def run_program(self) -> Any:
        """What the program gives for the fakes."""
        attributes = {id(t): o for t, o in zip(self.held, self.objects[self.arguments :])}
        interpreter = JointInterpreter(self.gm, self.tracer, self.origins, attributes)
        recording = torch.is_grad_enabled()
        with ambient_autocast(), autograd_errors():
            try:
                return interpreter.run(*self.objects[: self.arguments])
            finally:
                torch._C._set_grad_enabled(recording)

    def plan_results(self, out: Any) -> None:
        """Which tensors the autograd function returns: outputs, then written primals."""
        flat, self.joint.structure = pytree.tree_flatten(out)
        check_histories(self.primals, self.objects)
        self.results = plan_outputs(self.joint, self.tracer, flat, self.objects)
        for place, (thing, history) in enumerate(zip(self.objects, self.histories)):
            if not needs_gradient(thing) or thing.grad_fn is history:
                continue
            if history is not None and history not in history_of([thing]):
                raise CannotTrace("the program detaches an input, then writes to it")
            self.recorded[place] = len(self.results)
            self.results.append(thing)
        self.joint.count = len(self.results)
        self.joint.tangents = [i for i, r in enumerate(self.results) if needs_gradient(r)]

    def check_gradients(self) -> None:
        """Raise CannotTrace where one autograd function could not stand for the program's."""
        joint = self.joint
        differentiated = [self.results[i] for i in joint.tangents]
        history = history_of(differentiated)
        joint.unreached = unreached(self.leaves, history)
        if joint.tangents and len(joint.unreached) == sum(map(needs_gradient, self.leaves)):
            raise CannotTrace("outputs need gradients because of a leaf that was made inside")
        if len(differentiated) > 1 and any(map(has_several_outputs, history)):
            # without_tangents() takes what does not arrive for zero, and all that follows from it
            raise CannotTrace(
                "a custom autograd function with several outputs: its backward must see "
                "which of them reached the loss"
            )
        if any(alias.kind == "input" and alias.at in self.recorded for alias in joint.aliases):
            raise CannotTrace("a custom autograd function gave a view of an input that is written")

    def differentiate(self) -> list[torch.Tensor | None]:
        """The gradient of each primal, traced; None for those without."""
        tangents = self.make_tangents()
        learned = [needs_gradient(tensor) for tensor in self.primals]
        sources = [leaf for leaf, learns in zip(self.leaves, learned) if learns]
        found: Sequence[torch.Tensor | None] = [None] * len(sources)
        self.tracer.before_record = self.origins.backward
        with no_autocast(), autograd_errors():
            if tangents and sources:
                outputs = [self.results[i] for i in self.joint.tangents]
                found = torch.autograd.grad(outputs, sources, tangents, allow_unused=True)
        self.tracer.before_record = None
        gradients = iter(found)
        return [next(gradients) if learns else None for learns in learned]

    def make_tangents(self) -> list[torch.Tensor]:
        """A placeholder for the gradient of each result that gets one, after those of the
        primals."""
        last = list(self.tracer.graph.nodes)[len(self.primals) - 1] if self.primals else None
        tangents = []
        for i in self.joint.tangents:
            with _disable_current_modes(), self.fake_mode:
                # dense, even if the result is an expand()
                tangent = torch.empty_like(self.results[i].detach())
            with self.tracer.graph.inserting_after(last):
                last = self.tracer.placeholder(f"tangent{i}", tangent)
            tangents.append(tangent)
        return tangents

    def write_down(self, gradients: Sequence[torch.Tensor | None]) -> None:
        """The joint graph, and what it writes."""
        joint, tracer = self.joint, self.tracer
        aliases = {alias.result for alias in joint.aliases if alias.at != alias.result}
        computed = [None if i in aliases else result for i, result in enumerate(self.results)]
        tracer.graph.output(tracer.nodes_of((computed, gradients)))
        _forget_history(tracer.graph)
        joint.record(tracer, "JointGraph")
        joint.find_uncounted(tracer, self.objects)
        names = {f"primal{i}": i for i in range(len(self.primals))}
        joint.writes = [
            Write(names[target], self.recorded.get(names[target])) for _, target in joint.written
        ]


def trace_forward(
    gm: fx.GraphModule, inputs: Sequence[Any], decompositions: Decompositions | None = None
) -> Joint:
    """The same without gradients: a Joint whose graph gives (results, new values of written
    tensors).

    Parameters and buffers stay get_attr nodes.  Raises CannotTrace.
    """
    with autograd_errors():
        tracer, objects, out = run_traced(gm, inputs, decompositions, with_histories)
    joint = Joint()
    flat, joint.structure = pytree.tree_flatten(out)
    check_histories(inputs, objects)
    for name, tensor in tracer.constants.items():
        check_histories([tensor], [tracer.to_fake(tensor)])
    results = plan_outputs(joint, tracer, flat, objects)
    if any(result.requires_grad for result in results):
        raise CannotTrace("an output needs gradients, though no input does where they are recorded")
    joint.count = len(results)
    tracer.graph.output(tracer.nodes_of(results))
    if any(map(needs_gradient, objects)):
        _forget_history(tracer.graph)
    joint.record(tracer, "AtenGraph")
    joint.find_uncounted(tracer, objects)
    return joint


def plan_outputs(
    joint: Joint, tracer: Tracer, flat: list[Any], objects: Sequence[Any]
) -> list[torch.Tensor]:
    """Fill joint.outputs, joint.order and joint.aliases; returns the tensors that the autograd
    function must return.

    Raises CannotTrace where an output would not have the place in autograd's history that eager
    gives it.
    """
    with autograd_errors():
        return OutputPlanner(joint, tracer, flat, objects).plan()


class OutputPlanner:
    """One pass over the output leaves of a program that was run on fake tensors.

    positions: id of a fake primal -> its position.  made: id of a leaf -> (root, steps) of its
    derivation. places: id of a leaf -> where it first stands among the leaves.
    """

    def __init__(
        self, joint: Joint, tracer: Tracer, flat: list[Any], objects: Sequence[Any]
    ) -> None:
        self.joint, self.tracer, self.flat, self.objects = joint, tracer, flat, objects
        self.positions = {id(thing): i for i, thing in enumerate(objects)}
        self.results: list[torch.Tensor] = []
        self.where: dict[int, int] = {}  # id of a result -> its position
        self.places: dict[int, int] = {}
        self.made: dict[int, tuple[Any, tuple]] = {}
        self.sharing: dict[int, list[torch.Tensor]] = {}
        for i, leaf in enumerate(flat):
            if isinstance(leaf, torch.Tensor) and id(leaf) not in self.places:
                self.places[id(leaf)] = i
                root, _ = self.made[id(leaf)] = tracer.derivation(leaf)
                self.sharing.setdefault(id(root), []).append(leaf)

    def plan(self) -> list[torch.Tensor]:
        joint = self.joint
        joint.outputs = [self.output(i, leaf) for i, leaf in enumerate(self.flat)]
        depth = [len(self.made[id(leaf)][1]) if id(leaf) in self.made else 0 for leaf in self.flat]
        joint.order = sorted(range(len(self.flat)), key=depth.__getitem__)
        for leaf, output in zip(self.flat, joint.outputs):
            self.check(leaf, output)
        return self.results

    def result(self, tensor: torch.Tensor) -> int:
        """The position among the results of `tensor`, which becomes one."""
        if id(tensor) not in self.where:
            self.where[id(tensor)] = len(self.results)
            self.results.append(tensor)
        return self.where[id(tensor)]

    def output(self, place: int, leaf: Any) -> Output:
        if not isinstance(leaf, torch.Tensor):
            return Output("value", leaf)
        if id(leaf) in self.positions:
            return Output("input", self.positions[id(leaf)])
        root, steps = self.made[id(leaf)]
        if self.places[id(leaf)] != place:  # the same tensor again
            return Output("output", self.places[id(leaf)])
        if leaf.requires_grad and leaf.is_leaf and not leaf._is_view():
            raise CannotTrace("an output is a leaf that requires gradients and was made inside")
        source = self.outer_source(root)
        if source is None:
            if self.is_own(leaf, root):
                return self.own_result(leaf, root)
            source = self.shared_result(root)
        if leaf is root:
            return source
        near, last_steps = self.tracer.derivation(leaf, {*self.places, *self.positions})
        if passes_custom_function(leaf, near):
            return self.alias(leaf, root, source, steps)
        if near is root:
            return Output(source.kind, source.at, steps)
        return Output("output", self.places[id(near)], last_steps)

    def outer_source(self, root: torch.Tensor) -> Output | None:
        """What a view is made of, if that is none of the results."""
        if id(root) in self.positions:
            return Output("input", self.positions[id(root)])
        node: Node = self.tracer.node_of(root)
        if node.op == "get_attr":
            return Output("held", self.tracer.constants[node.target])
        return None

    def is_own(self, leaf: torch.Tensor, root: torch.Tensor) -> bool:
        """Can the leaf itself be a result: does no other output share its memory, and can it come
        out of an autograd function as it is?"""
        is_alone = len(self.sharing[id(root)]) == 1
        return is_alone and not (leaf.requires_grad and leaf.is_leaf) and not has_lazy_bits(leaf)

    def own_result(self, leaf: torch.Tensor, root: torch.Tensor) -> Output:
        if passes_custom_function(leaf, root) and leaf._is_view():
            at = len(self.results)
            self.joint.aliases.append(Alias(at, "computed", at, ()))
        return Output("computed", self.result(leaf))

    def shared_result(self, root: torch.Tensor) -> Output:
        """The root of several outputs, as a result of which they will be views."""
        if any(t.requires_grad for t in self.sharing[id(root)]) and not root.requires_grad:
            raise CannotTrace(
                "outputs share memory in a way that their common source does not know"
            )
        return Output("computed", self.result(root))

    def alias(self, leaf: torch.Tensor, root: torch.Tensor, source: Output, steps: tuple) -> Output:
        """The leaf as a result that is made by these steps, with a history of its own."""
        if source.kind == "held":
            raise CannotTrace("an output shares memory with a constant, and has a history")
        if not is_view_of(leaf, root):
            raise CannotTrace("a custom autograd function gave a view of another output's data")
        self.joint.aliases.append(Alias(len(self.results), source.kind, source.at, steps))
        return Output("computed", self.result(leaf))

    def check(self, leaf: torch.Tensor, output: Output) -> None:
        """Would the leaf, made as planned, be to autograd what it was when the program ran?"""
        if not isinstance(leaf, torch.Tensor) or output.views is None:
            return
        source = self.flat[output.at] if output.kind == "output" else self.source(output)
        with _disable_current_modes(), self.tracer.fake_mode:
            again = replay(source, output.views)
        would_be, is_now = about_history(again, source), about_history(leaf, source)
        if would_be != is_now:
            raise CannotTrace(
                f"an output is a view whose history would differ: {would_be} instead of {is_now}"
            )

    def source(self, output: Output) -> torch.Tensor:
        """The fake tensor that a view is made of."""
        if output.kind == "input":
            return self.objects[output.at]
        if output.kind == "held":
            return self.tracer.to_fake(output.at)
        return self.results[output.at]


MODES = {
    "grad": torch.enable_grad,
    "no_grad": torch.no_grad,
    "inference": torch.inference_mode,
}


def about_history(tensor: torch.Tensor, source: torch.Tensor) -> dict[str, bool]:
    """What a program can ask of the history of a tensor that was made of `source`."""
    return {
        "requires_grad": tensor.requires_grad,
        "is_leaf": tensor.is_leaf,
        "_is_view": tensor._is_view(),
        "a view of its source": is_view_of(tensor, source),
    }


def is_view_of(tensor: torch.Tensor, source: torch.Tensor) -> bool:
    """Is `tensor` to autograd a view of `source`, or of what that is a view of?"""
    base = source if source._base is None else source._base
    return tensor._base is base


def replay(tensor: torch.Tensor, views: Views) -> torch.Tensor:
    """The views that lead from `tensor` to an output, made with autograd on or off as in the
    program."""
    for op, args, kwargs, mode in views:
        with MODES[mode]():
            tensor = op(tensor, *args, **kwargs)
    return tensor


def is_custom(function: Any) -> bool:
    """Is it the backward of somebody's torch.autograd.Function?"""
    return isinstance(function, torch.autograd.function.BackwardCFunction)


def passes_custom_function(leaf: torch.Tensor, source: torch.Tensor) -> bool:
    """Does a custom autograd function stand between `source` and its view `leaf`, so that the views
    alone would lose it?"""
    function, end = leaf.grad_fn, source.grad_fn
    while function is not None and function is not end:
        if is_custom(function):
            return True
        function = next((following for following, _ in function.next_functions), None)
    return False


def history_of(tensors: Sequence[Any]) -> set[Any]:
    """The functions of autograd through which gradients of these tensors would pass."""
    work, seen = [t.grad_fn for t in tensors], set()
    while work:
        function = work.pop()
        if function is None or function in seen:
            continue
        seen.add(function)
        work.extend(following for following, _ in function.next_functions)
    return seen


def unreached(leaves: Sequence[Any], history: set[Any]) -> list[int]:
    """Which of the leaves have no part in the history?  Autograd would tell their hooks so, if it
    met them among the arguments of our function; eager does not."""
    met = {id(getattr(function, "variable", None)) for function in history}
    return [i for i, leaf in enumerate(leaves) if needs_gradient(leaf) and id(leaf) not in met]


def has_several_outputs(function: Any) -> bool:
    """Is it the backward of a custom autograd function that gets several gradients?

    PyTorch keeps to itself how many: where it does not tell, there may be several."""
    if not is_custom(function) or getattr(function, "_forward_cls", None) is StandIn:
        return False
    metadata = getattr(function, "_input_metadata", None)
    return metadata is None or len(metadata) > 1


def has_lazy_bits(tensor: torch.Tensor) -> bool:
    """Does its memory hold something else than its values (`z.conj()`, `z.conj().imag`, zeros
    without memory)?"""
    return tensor.is_neg() or tensor.is_conj() or tensor._is_zerotensor()


def _forget_history(graph: fx.Graph) -> None:
    """Detach every node's fake tensor: the fake autograd graph has done its work."""
    detached = {}

    def detach(value: Any) -> Any:
        if isinstance(value, torch.Tensor) and (value.requires_grad or value.grad_fn is not None):
            if id(value) not in detached:
                detached[id(value)] = (value, value.detach())
            return detached[id(value)][1]
        return value

    for node in graph.nodes:
        if "val" in node.meta:
            node.meta["val"] = pytree.tree_map(detach, node.meta["val"])
