"""The joint graph: forward and backward of a program as one straight line of ATen ops.

In:   a captured `fx.GraphModule`, example inputs, the tensors that it holds (parameters, buffers).  Out: a `Joint`.

    y = x @ w                       primal0, primal1, tangent0 ->
    backward(tangent)      =>         mm = mm(primal0, primal1)
                                      dx = mm(tangent0, t(primal1));  dw = mm(t(primal0), tangent0)
                                      return ((mm,), (dx, dw)), []

    >>> joint = trace_joint(gm, inputs, held=[])
    >>> [node.name for node in joint.graph.graph.nodes]
    ['primal0', 'primal1', 'tangent0', 'mm_default', 't_default', 'mm_default_1', 't_default_1', 'mm_default_2', 'output']

The program runs once on fake tensors under our tracer *with autograd on*; then `torch.autograd.grad` runs too, and since
the tracer sits below autograd, the backward ops land in the same graph.  Nothing about derivatives is written here.

What cannot be an output of the autograd function is planned here: an output that is an input, or a view of one, or a view
of another output, is made again outside of it by the same views (`Output`), as eager would give it.
Mirrors torch/_functorch/_aot_autograd (paper section 3.10).  Left out: tensor subclasses, outputs that are
leaves made inside the graph (refused); for a written input that had no history, the gradient with respect to its *new*
value (nobody's leaf) sees what was computed from it outside only, as in PyTorch.
"""

import bisect
import contextlib
import operator
from dataclasses import dataclass, field

import torch
import torch.utils._pytree as pytree
from torch import fx
from torch._dispatch.python import enable_python_dispatcher
from torch.utils._python_dispatch import _disable_current_modes

from ..foreign import ours
from .functionalize import functionalize, is_view
from .tracer import (
    CannotTrace,
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


@dataclass
class Output:
    """How one output leaf is made.

    kind: "value" (at: a constant, or a size), "input" (at: position among the primals), "held" (at: a tensor of the graph's module),
    "computed" (at: position among the results).
    views: (op, args, kwargs, was autograd on?) to apply to it; None: the very object.  detach: eager's has no history.
    """

    kind: str
    at: object
    views: tuple = None
    detach: bool = False


@dataclass
class Write:
    """A primal that the program writes.  result: where its new value stands among the results, if the write is recorded by
    autograd; None: it is written inside (buffers, statistics)."""

    primal: int
    result: int = None


@dataclass
class Joint:
    """graph: primals and tangents -> ((results, gradients of the primals), new values of written primals)."""

    recorded: object = None  # as traced, with writes
    graph: object = None  # functional
    outputs: list = field(default_factory=list)  # Output of each leaf
    structure: object = None  # pytree of the program's output
    writes: list = field(default_factory=list)
    count: int = 0  # results
    tangents: list = field(default_factory=list)  # results that get one, in order
    written: list = field(default_factory=list)  # (op, target), as functionalize gives them
    symbols: dict = field(
        default_factory=dict
    )  # position among the inputs -> name, of inputs that are sizes

    def record(self, tracer, name):
        """What the tracer has recorded, and its functional form."""
        self.recorded = tracer.module(name)
        self.graph, self.written = functionalize(self.recorded)
        self.symbols = {
            i: n.target
            for i, n in enumerate(self.graph.graph.find_nodes(op="placeholder"))
            if isinstance(n.meta["val"], torch.SymInt)
        }

    @property
    def is_plain(self):
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
    def forward(ctx, leaf):
        return torch.empty_strided(leaf.shape, leaf.stride(), dtype=leaf.dtype, device=leaf.device)

    @staticmethod
    def backward(ctx, gradient):
        return gradient


class BackwardOrigins:
    """Gives each backward op the origin (module, user line) of the forward op that it differentiates."""

    def __init__(self, tracer):
        self.tracer, self.starts, self.metas = tracer, [], []

    def forward(self):
        self.starts.append(torch._C._autograd._get_sequence_nr())
        self.metas.append(self.tracer.meta)

    def backward(self):
        node = torch._C._current_autograd_node()
        if node is not None:
            at = bisect.bisect_right(self.starts, node._sequence_nr()) - 1
            self.tracer.meta = (
                dict(self.metas[at], backward=True)
                if 0 <= at < len(self.metas)
                else {"backward": True}
            )


class JointInterpreter(OriginInterpreter):
    def __init__(self, gm, tracer, origins, attributes):
        super().__init__(gm, tracer)
        self.origins, self.attributes = origins, attributes

    def run_node(self, node):
        result = super().run_node(node)
        self.origins.forward()
        return result

    def get_attr(self, target, args, kwargs):
        return self.attributes[id(self.fetch_attr(target))]


@contextlib.contextmanager
def autograd_errors():
    try:
        yield
    except ours(RuntimeError) as error:
        raise CannotTrace(
            f"autograd refuses the program: {str(error).splitlines()[0] if str(error) else error!r}"
        ) from error


def needs_gradient(value):
    return isinstance(value, torch.Tensor) and value.requires_grad


def trace_joint(gm, inputs, held, decompositions=None):
    """Trace forward and backward of `gm(*inputs)`; `held`: the tensors behind its get_attr nodes.

    Placeholders: primal0.. for [*inputs, *held], then tangents.  Raises CannotTrace, also where autograd itself refuses
    the program (a saved tensor was written): it then runs eagerly, and raises what eager raises.
    """
    fake_mode, primals, joint = new_fake_mode(), [*inputs, *held], Joint()
    tracer = Tracer(fake_mode, decompositions)
    leaves, objects = (
        fake_inputs(fake_mode, primals),
        [],
    )  # what autograd differentiates by; what the program gets
    for i, (tensor, leaf) in enumerate(zip(primals, leaves)):
        thing = (
            leaf.requires_grad_(tensor.requires_grad) if isinstance(leaf, torch.Tensor) else leaf
        )
        if needs_gradient(leaf) and not tensor.is_leaf:
            with fake_mode, torch.enable_grad():
                thing = StandIn.apply(leaf)
        objects.append(thing)
        tracer.placeholder(input_name(gm, i, leaf, "primal"), thing)
    histories = [getattr(t, "grad_fn", None) for t in objects]
    origins = BackwardOrigins(tracer)
    attributes = {id(t): o for t, o in zip(held, objects[len(inputs) :])}
    recording = torch.is_grad_enabled()
    with contextlib.ExitStack() as stack:
        for context in (
            torch.autograd.set_multithreading_enabled(False),
            torch.autograd.set_detect_anomaly(False),
            enable_python_dispatcher(),
            fake_mode,
            tracer,
        ):  # (anomaly detection reads values)
            stack.enter_context(context)
        with ambient_autocast(), autograd_errors():
            try:
                out = JointInterpreter(gm, tracer, origins, attributes).run(*objects[: len(inputs)])
            finally:
                torch._C._set_grad_enabled(recording)
        flat, joint.structure = pytree.tree_flatten(out)
        results = plan_outputs(joint, tracer, flat, objects)
        recorded = {}  # primals that autograd saw written -> where the new value stands
        for i, (thing, history) in enumerate(zip(objects, histories)):
            if needs_gradient(thing) and thing.grad_fn is not history:
                recorded[i] = len(results)
                results.append(thing)
        joint.count = len(results)
        joint.tangents = [
            i for i, r in enumerate(results) if isinstance(r, torch.Tensor) and r.requires_grad
        ]
        sources = [leaf for leaf, tensor in zip(leaves, primals) if needs_gradient(tensor)]
        last = list(tracer.graph.nodes)[len(primals) - 1] if primals else None
        tangents = []
        for i in joint.tangents:
            with _disable_current_modes(), fake_mode:
                tangent = torch.empty_like(
                    results[i].detach()
                )  # dense, even if the result is an expand()
            with tracer.graph.inserting_after(last):
                last = tracer.placeholder(f"tangent{i}", tangent)
            tangents.append(tangent)
        tracer.before_record = origins.backward
        with no_autocast(), autograd_errors():
            gradients = iter(
                torch.autograd.grad(
                    [results[i] for i in joint.tangents], sources, tangents, allow_unused=True
                )
                if tangents and sources
                else [None] * len(sources)
            )
        tracer.before_record = None
        gradients = [next(gradients) if needs_gradient(tensor) else None for tensor in primals]
    tracer.graph.output(tracer.nodes_of((results, gradients)))
    _forget_history(tracer.graph)
    joint.record(tracer, "JointGraph")
    names = {f"primal{i}": i for i in range(len(primals))}
    joint.writes = [
        Write(names[target], recorded.get(names[target])) for _, target in joint.written
    ]
    return joint


def trace_forward(gm, inputs, decompositions=None):
    """The same without gradients: a Joint whose graph gives (results, new values of written tensors).

    Parameters and buffers stay get_attr nodes.  Raises CannotTrace.
    """
    (tracer, objects, out), joint = run_traced(gm, inputs, decompositions), Joint()
    flat, joint.structure = pytree.tree_flatten(out)
    results = plan_outputs(joint, tracer, flat, objects)
    joint.count = len(results)
    tracer.graph.output(tracer.nodes_of(results))
    joint.record(tracer, "AtenGraph")
    return joint


def plan_outputs(joint, tracer, flat, objects):
    """Fill joint.outputs; returns the tensors that the autograd function must return."""
    positions = {id(thing): i for i, thing in enumerate(objects)}
    placeholders = {
        tracer.node_of(thing): i
        for i, thing in enumerate(objects)
        if isinstance(thing, torch.Tensor)
    }
    origin = {
        id(leaf): view_chain(tracer.node_of(leaf))
        for leaf in flat
        if isinstance(leaf, torch.Tensor)
    }
    sharing = {}  # root node -> the distinct tensors that are views of it
    for leaf in flat:
        if isinstance(leaf, torch.Tensor):
            sharing.setdefault(origin[id(leaf)][0], {})[id(leaf)] = leaf
    results, where = [], {}

    def result(tensor):
        if id(tensor) not in where:
            where[id(tensor)] = len(results)
            results.append(tensor)
        return where[id(tensor)]

    for leaf in flat:
        if not isinstance(leaf, torch.Tensor):
            joint.outputs.append(Output("value", leaf))
        elif id(leaf) in positions:
            joint.outputs.append(Output("input", positions[id(leaf)]))
        else:
            root, views = origin[id(leaf)]
            leafy = (
                leaf.requires_grad and leaf.is_leaf
            )  # a view made under no_grad is like that in eager, too
            if leafy and not leaf._is_view():
                raise CannotTrace("an output is a leaf that requires gradients and was made inside")
            if root.op == "get_attr":
                joint.outputs.append(
                    Output(
                        "held",
                        tracer.constants[root.target],
                        None if leaf is root.meta["val"] else views,
                        not leaf.requires_grad,
                    )
                )
            elif root in placeholders:
                joint.outputs.append(
                    Output("input", placeholders[root], views, not leaf.requires_grad)
                )
            elif len(sharing[root]) == 1 and not leafy:
                joint.outputs.append(Output("computed", result(leaf)))
            else:
                base = root.meta["val"]
                if any(t.requires_grad for t in sharing[root].values()) and not base.requires_grad:
                    raise CannotTrace(
                        "outputs share memory in a way that their common source does not know"
                    )
                joint.outputs.append(
                    Output(
                        "computed",
                        result(base),
                        None if leaf is base else views,
                        not leaf.requires_grad,
                    )
                )
    return results


def view_chain(node):
    """(root, calls): the node that owns the memory, and the views that lead from it to `node`."""
    calls = []
    while node.op == "call_function" and node.args and isinstance(node.args[0], fx.Node):
        if node.target is operator.getitem:
            split = node.args[0]
            if not is_view(split.target):
                break
            calls.append((node.target, node.args[1:], {}, True))
            node = split
        elif not is_view(node.target):
            break
        calls.append((node.target, node.args[1:], node.kwargs, node.meta.get("recording", True)))
        node = node.args[0]
    return node, tuple(reversed(calls))


def _forget_history(graph):
    """Detach every node's fake tensor: the fake autograd graph has done its work."""
    detached = {}

    def detach(value):
        if isinstance(value, torch.Tensor) and (value.requires_grad or value.grad_fn is not None):
            if id(value) not in detached:
                detached[id(value)] = (value, value.detach())
            return detached[id(value)][1]
        return value

    for node in graph.nodes:
        if "val" in node.meta:
            node.meta["val"] = pytree.tree_map(detach, node.meta["val"])
