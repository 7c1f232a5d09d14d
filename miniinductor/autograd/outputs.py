"""Outputs that are inputs, numbers, or share memory: how each leaf is made, and by whom; programs
whose history one autograd function cannot have.

In:   the output leaves of a traced program.
Out:  `Output`s, perhaps with views, which are replayed outside of the autograd function; and what
      gives the program's outputs.

    def f(x):
        y = x + 1
        return x, x.t(), y, y[0]
        # Output("input", 0), ("input", 0, [t]), ("computed", 0), ("computed", 0, [select])

Each output is, to autograd, what it was when the program ran; where it would not be, CannotTrace is
raised, and the program runs eagerly:

    x.requires_grad_()                     # an input's place in autograd's history changes
    y = MyFunction.apply(x)[0]              # where MyFunction has several outputs: its backward
                                            # must see which of them reached the loss

Mirrors torch/_functorch/_aot_autograd/runtime_wrappers.py (alias_of_input and its kin).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import torch
import torch.utils._pytree as pytree
from torch import fx
from torch.utils._python_dispatch import _disable_current_modes

from ..errors import CannotTrace
from ..sizes.symbols import fill
from .functionalize import COUNTS_PLACES, Node
from .tracer import Tracer

if TYPE_CHECKING:
    from .joint import Joint

Views: TypeAlias = Sequence[tuple]  # (op, args, kwargs, the mode of autograd, see MODES)
MODES = {"grad": torch.enable_grad, "no_grad": torch.no_grad, "inference": torch.inference_mode}


@dataclass
class Output:
    """How one output leaf is made.

    kind: "value" (at: a constant, or a size)
          "input" (at: a position among the primals)
          "held" (at: a tensor of the graph's module)
          "computed" (at: a position among the results)
          "output" (at: a position among the output leaves)
    views: what is applied to that; None: the output is the very object.
    """

    kind: str
    at: Any
    views: Views | None = None


def replay(tensor: torch.Tensor, views: Views) -> torch.Tensor:
    """`tensor` seen through `views`, each made with autograd on or off as in the program."""
    for op, args, kwargs, mode in views:
        with MODES[mode]():
            tensor = op(tensor, *args, **kwargs)
    return tensor


def is_plain(joint: "Joint") -> bool:
    """Are the results the outputs, one for one?  Then there is nothing to rebuild."""
    results = [Output("computed", i) for i in range(joint.count)]
    is_flat = all(child.is_leaf() for child in joint.structure.children())
    return joint.structure.type in (tuple, list) and is_flat and joint.outputs == results


def with_outputs(
    joint: "Joint", run: Callable, held: Sequence[torch.Tensor] | None = None
) -> Callable:
    """`run`, which gives results, as a callable that gives the program's outputs: in their
    structure, inputs as the very objects, views made of what they are views of.

    held: in training, the tensors of the graph's module."""
    if held is None and is_plain(joint):
        return run
    tensors = held or ()
    plan, structure = joint.outputs, joint.structure
    numbers = fill([(output.at, output.views) for output in plan], list(joint.symbols.values()))

    def call(*inputs: Any) -> Any:
        leaves: list[Any] = []
        places = {"computed": run(*inputs), "output": leaves, "input": (*inputs, *tensors)}
        for output, (at, views) in zip(plan, numbers(*[inputs[i] for i in joint.symbols])):
            leaf = places[output.kind][at] if output.kind in places else at
            leaves.append(leaf if views is None else replay(leaf, views))
        return pytree.tree_unflatten(leaves, structure)

    return call


class ViewPlanner:
    """One pass over the output leaves of a program that was run on fake tensors.

    positions: id of a fake primal -> its position.  places: id of a leaf -> where it first stands
    among the leaves.  made: id of a leaf -> (root, steps) of its derivation.  sharers: id of a root
    -> the leaves that are made of it.  where: id of a result -> its position.
    """

    def __init__(
        self, joint: "Joint", tracer: Tracer, flat: list[Any], objects: Sequence[Any]
    ) -> None:
        self.joint, self.tracer, self.flat, self.objects = joint, tracer, flat, objects
        self.positions = {id(thing): i for i, thing in enumerate(objects)}
        self.results: list[torch.Tensor] = []
        tensors = [(i, leaf) for i, leaf in enumerate(flat) if is_tensor(leaf)]
        self.places = {id(leaf): i for i, leaf in reversed(tensors)}
        self.where: dict[int, int] = {}
        self.made: dict[int, tuple[Any, tuple]] = {}
        self.sharers: dict[int, list[torch.Tensor]] = {}
        for leaf in {id(leaf): leaf for _, leaf in tensors}.values():
            root, _ = self.made[id(leaf)] = self.tracer.derivation(leaf)
            self.sharers.setdefault(id(root), []).append(leaf)

    def plan(self) -> list[torch.Tensor]:
        """The results; fills joint.outputs.

        Raises CannotTrace where an output would not have the place in autograd's history that eager
        gives it."""
        self.joint.outputs = [self.output(i, leaf) for i, leaf in enumerate(self.flat)]
        return self.results

    def output(self, place: int, leaf: Any) -> Output:
        if not is_tensor(leaf):
            return Output("value", leaf)
        if id(leaf) in self.positions:
            return Output("input", self.positions[id(leaf)])
        if self.places[id(leaf)] != place:  # the same tensor again
            return Output("output", self.places[id(leaf)])
        root, steps = self.made[id(leaf)]
        check_is_made_by_graph(leaf, root)
        outside = self.outside(root, steps)
        if outside is not None:
            return self.checked(leaf, *outside)
        if is_view_of_leaf(leaf):
            raise CannotTrace("an output is a view of a leaf that was made inside")
        if leaf is root or self.is_own(leaf, root, steps):
            return Output("computed", self.result(leaf))
        return self.replayed(leaf, root, steps)

    def outside(self, root: torch.Tensor, steps: tuple) -> tuple[torch.Tensor, Output] | None:
        """What was there before the graph ran, if `root` was, and the output that is a view of
        it."""
        if id(root) in self.positions:
            return root, Output("input", self.positions[id(root)], steps)
        node: Node = self.tracer.node_of(root)
        if node.op != "get_attr":
            return None
        held = self.tracer.constants[node.target]
        return self.tracer.to_fake(held), Output("held", held, steps)

    def replayed(self, leaf: torch.Tensor, root: torch.Tensor, steps: tuple) -> Output:
        """A view of a result, which is made anew of it outside of the autograd function."""
        if any(op in COUNTS_PLACES for op, *_ in steps):
            raise CannotTrace("outputs share memory by as_strided()")
        if any(t.requires_grad for t in self.sharers[id(root)]) and not root.requires_grad:
            raise CannotTrace("outputs share memory otherwise than their common source knows")
        return self.checked(leaf, root, Output("computed", self.result(root), steps))

    def result(self, tensor: torch.Tensor) -> int:
        """The position among the results of `tensor`, which becomes one."""
        if id(tensor) not in self.where:
            self.where[id(tensor)] = len(self.results)
            self.results.append(tensor)
        return self.where[id(tensor)]

    def is_own(self, leaf: torch.Tensor, root: torch.Tensor, steps: tuple) -> bool:
        """Can the leaf itself be a result: does no other output share its memory, and can it come
        out of an autograd function as it is?  (A view that inference mode has made of what needs
        gradients needs them, too; its fake does not.)"""
        is_alone = len(self.sharers[id(root)]) == 1
        if root.requires_grad and any(mode == "inference" for *_, mode in steps):
            return False
        return is_alone and not (leaf.requires_grad and leaf.is_leaf) and not has_lazy_bits(leaf)

    def checked(self, leaf: Any, source: torch.Tensor, output: Output) -> Output:
        """The output, if the leaf, made as planned, is to autograd what it was when the program
        ran."""
        assert output.views is not None
        with _disable_current_modes(), self.tracer.fake_mode:
            again = replay(source, output.views)
        would_be, is_now = about_history(again, source), about_history(leaf, source)
        if would_be != is_now:
            raise CannotTrace(
                f"an output is a view whose history would differ: {would_be} instead of {is_now}"
            )
        return output


def check_is_made_by_graph(leaf: torch.Tensor, root: torch.Tensor) -> None:
    """CannotTrace if autograd, or a custom function, has another part in this output."""
    if leaf.requires_grad and leaf.is_leaf and not leaf._is_view():
        raise CannotTrace("an output is a leaf that requires gradients and was made inside")
    if leaf._is_view() and passes_custom_function(leaf, root):
        raise CannotTrace("a custom autograd function gave a view")


def about_history(tensor: torch.Tensor, source: torch.Tensor) -> dict[str, bool]:
    """What a program can ask of the history of a tensor that was made of `source`."""
    return {
        "requires_grad": tensor.requires_grad,
        "is_leaf": tensor.is_leaf,
        "_is_view": tensor._is_view(),
        "a view of its source": tensor._base is (source if source._base is None else source._base),
    }


def is_view_of_leaf(tensor: torch.Tensor) -> bool:
    """Is the tensor a view of a leaf that requires gradients?  Eager refuses to write to such a
    view."""
    base = tensor._base
    return base is not None and base.requires_grad and base.is_leaf


def is_custom(function: Any) -> bool:
    """Is this the backward of a torch.autograd.Function of the program's?"""
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


def is_tensor(value: Any) -> bool:
    return isinstance(value, torch.Tensor)


def needs_gradient(value: Any) -> bool:
    return is_tensor(value) and value.requires_grad


def has_lazy_bits(tensor: torch.Tensor) -> bool:
    """Does the tensor's memory hold something else than its values (`z.conj()`, `z.conj().imag`,
    zeros without memory)?"""
    return tensor.is_neg() or tensor.is_conj() or tensor._is_zerotensor()


class StandIn(torch.autograd.Function):
    """A tensor that needs gradients and is no leaf, so that the program may write to it."""

    @staticmethod
    def forward(ctx: Any, leaf: torch.Tensor) -> torch.Tensor:
        ctx.set_materialize_grads(False)  # no gradient is not a gradient of zeros
        return leaf.new_empty_strided(leaf.shape, leaf.stride())

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        return gradient


def check_histories(tensors: Sequence[Any], objects: Sequence[Any]) -> None:
    """Raise CannotTrace if the program has changed whether an input needs gradients other than by
    writing to it: `detach_`, `requires_grad_`.  (Autograd lets nobody write to a leaf that needs
    gradients, so one that has a history now was detached before.)"""
    for tensor, thing in zip(tensors, objects):
        if not is_tensor(tensor):
            continue
        was_learned = tensor.is_leaf and tensor.requires_grad
        if thing.grad_fn is not None and not was_learned:
            continue
        before, now = (tensor.requires_grad, tensor.is_leaf), (thing.requires_grad, thing.is_leaf)
        if before != now:
            raise CannotTrace("the program changes an input's requires_grad, or detaches it")


def history_of(tensors: Sequence[Any]) -> set[Any]:
    """The functions of autograd through which gradients of these tensors would pass."""
    work, seen = [t.grad_fn for t in tensors], set()
    while work:
        function = work.pop()
        if function is not None and function not in seen:
            seen.add(function)
            work.extend(following for following, _ in function.next_functions)
    return seen


def unreached(leaves: Sequence[Any], history: set[Any]) -> list[int]:
    """The leaves that are not in the history.  If they were arguments of our function, autograd
    would run their hooks; eager does not."""
    met = {id(getattr(function, "variable", None)) for function in history}
    return [i for i, leaf in enumerate(leaves) if needs_gradient(leaf) and id(leaf) not in met]


def has_several_outputs(function: Any) -> bool:
    """Is this the backward of a custom autograd function that gets several gradients?

    PyTorch keeps to itself how many: where it does not tell, there may be several."""
    if not is_custom(function) or getattr(function, "_forward_cls", None) is StandIn:
        return False
    metadata = getattr(function, "_input_metadata", None)
    return metadata is None or len(metadata) > 1


def forget_history(graph: fx.Graph) -> None:
    """Detach every node's fake tensor: the fake autograd graph has done its work."""
    detached: dict[int, torch.Tensor] = {}

    def detach(value: Any) -> Any:
        if needs_gradient(value) and id(value) not in detached:
            detached[id(value)] = value.detach()
        return detached.get(id(value), value)

    values = [(node, node.meta["val"]) for node in graph.nodes if "val" in node.meta]
    for node, value in values:  # a list keeps all of them alive: ids stay unique
        node.meta["val"] = pytree.tree_map(detach, value)
