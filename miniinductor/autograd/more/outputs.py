"""Outputs that are inputs, numbers, or made of other outputs: how each leaf is made, and by whom.

In:   `joint.outputs`, the plan of views.py.  Out: what gives the program's outputs.

    def f(x):
        y = x + 1
        return x, y, y, 3        # Output("input", 0), ("computed", 0), ("output", 1), ("value", 3)

Mirrors torch/_functorch/_aot_autograd/runtime_wrappers.py.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
import torch.utils._pytree as pytree

from ...sizes.symbols import fill
from ..joint import Joint
from ..runtime import with_outputs

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


def is_plain(joint: Joint) -> bool:
    """Are the results the outputs, one for one?  Then there is nothing to rebuild."""
    results = [Output("computed", i) for i in range(joint.count)]
    is_flat = all(child.is_leaf() for child in joint.structure.children())
    return joint.structure.type in (tuple, list) and is_flat and joint.outputs == results


plain_with_outputs = with_outputs.answer


@with_outputs.replaced
def with_planned_outputs(
    joint: Joint, run: Callable, held: Sequence[torch.Tensor] | None = None
) -> Callable:
    """`run`, which gives results, as a callable that gives the program's outputs: in their
    structure, inputs as the very objects, views made of what they are views of."""
    if not joint.outputs and joint.structure.num_leaves:  # nobody has planned them: no views.py
        return plain_with_outputs(joint, run, held)
    if held is None and is_plain(joint):
        return run
    tensors = held or ()
    plan, order, structure = joint.outputs, joint.order, joint.structure
    numbers = fill([(output.at, output.views) for output in plan], list(joint.symbols.values()))

    def call(*inputs: Any) -> Any:
        leaves: list[Any] = [None] * len(plan)
        places = {"computed": run(*inputs), "output": leaves, "input": (*inputs, *tensors)}
        made = numbers(*[inputs[i] for i in joint.symbols])
        for place in order:
            kind, (at, views) = plan[place].kind, made[place]
            leaf = places[kind][at] if kind in places else at
            leaves[place] = leaf if views is None else replay(leaf, views)
        return pytree.tree_unflatten(leaves, structure)

    return call
