"""Operations whose result is no tensor, or says less than eager's: what they tell is guarded.

In:   an operation on its way into the graph, from `OutputGraph.call_graph`.
Out:  guards, and the variable of a result that holds no tensor.

    if x.is_contiguous(): ...       # FLAG: x.is_contiguous() is True
    torch.get_num_threads()         # STATE: it gives the same again
    torch.as_strided(x, (2,), (1,), 5)      # OFFSET: where x begins in its memory
"""

import functools
import operator
from typing import Any

import torch
import torch.utils._pytree as pytree
from torch._subclasses import fake_tensor

from .extending import extends, noted
from .. import hooks
from ..exceptions import Break
from ..foreign import ours
from ..graph_capture import OutputGraph
from ..variables.base import Variable
from ..variables.tensor import TensorVar
from .thread_state import StateChanges

# what fake tensors raise where an op needs to know the numbers in a tensor
NEEDS_DATA = (fake_tensor.DataDependentOutputException, fake_tensor.DynamicOutputShapeException)
NAMES = "add sub mul truediv floordiv mod pow matmul lshift rshift and or xor".split()
PLAIN_OPERATORS = {  # operator.iadd -> operator.add
    vars(operator)[f"__i{name}__"]: vars(operator)[f"__{name}__"] for name in NAMES
}


plain_fake = OutputGraph.fake_of


def describe(target: Any) -> str:
    """What an op is called in a message."""
    if isinstance(target, str):
        return f"Tensor.{target}"
    name = getattr(target, "__qualname__", None) or getattr(target, "__name__", target)
    return str(name)


@extends(OutputGraph)
class CarefulGraph(OutputGraph):
    def failure(self, target: Any, error: Exception) -> Break:
        if isinstance(error, NEEDS_DATA):
            return Break(
                "data-dependent",
                f"{describe(target)} needs the tensor's values ({error})",
                "the shape or value depends on data; keep it outside the compiled function",
            )
        if isinstance(error, fake_tensor.UnsupportedFakeTensorException):
            return Break("fake tensor", f"{describe(target)}: {error}")
        text = str(error).strip().partition("\n")[0]
        reason = f"{describe(target)} failed while tracing: {type(error).__name__}: {text}"
        return Break("op failed", reason)

    def fake_of(self, tensor: torch.Tensor) -> torch.Tensor:
        try:
            return plain_fake(self, tensor)
        except ours(AssertionError) as error:
            # of a view, after its base changed (requires_grad_) while tracing
            raise Break("fake tensor", f"a tensor whose base changed: {error}") from None


def plain_operator(tx: Any, target: Any, args: Any, kwargs: Any) -> tuple[Any, Any, Any]:
    """`2 += tensor` is `2 + tensor`."""
    if target in PLAIN_OPERATORS and not isinstance(args[0], TensorVar):
        target = PLAIN_OPERATORS[target]
    return target, args, kwargs


class Untold(set[int]):
    """Ids of fakes that do not tell whether they need gradients."""


def note_untold(output: OutputGraph, target: Any, given: list[torch.Tensor], result: Any) -> None:
    """Remember, as `Untold`, results of which their fakes do not tell rightly whether they
    need gradients.

    In inference mode a view of a tensor that needs gradients needs them, too; fake tensors forget
    that where the view is made of other operations (`view_as`, `flatten`).  And a tensor that needs
    gradients, written there, has a history that autograd refuses to tell."""
    inference, untold = torch.is_inference_mode_enabled(), noted(output, Untold)
    if not inference and not untold:
        return
    learning = inference and any(tensor.requires_grad for tensor in given)
    for made in pytree.tree_leaves(result):
        if not isinstance(made, torch.Tensor):
            continue
        written = any(made is tensor for tensor in given)
        forgotten = learning and not made.is_inference() and made.requires_grad == written
        if forgotten or not written and any(id(tensor) in untold for tensor in given):
            untold.add(id(made))


def guard_offsets(output: OutputGraph, target: Any, given: list[torch.Tensor], result: Any) -> None:
    """as_strided counts places from the start of a memory.  The inputs that lie in it must begin
    where they do now."""
    if "as_strided" not in getattr(target, "__name__", target):
        return
    storages = {fake.untyped_storage()._cdata for fake in given}
    for variable in output.by_fake.values():
        real, fake = variable.value, variable.fake
        if real is None or real.layout is not torch.strided:  # None: made in the frame
            continue
        if fake.untyped_storage()._cdata in storages:
            check = f"{{0}}.storage_offset() == {real.storage_offset()}"
            output.guard(variable.source, "OFFSET", check)


# methods that tell which object a tensor is, and where its memory lies
OF_ITSELF = {"__hash__", "data_ptr", "const_data_ptr", "mutable_data_ptr", "storage_type"}


@extends(OutputGraph)
def answer(
    output: OutputGraph,
    tx: Any,
    op: str,
    target: Any,
    args: Any,
    kwargs: Any,
    result: Any,
    written: Any,
) -> Variable:
    """A call that gave no tensor: it read a flag of a tensor or the process's state, gave or
    wrote."""
    name = target if op == "call_method" else target.__name__
    if args and name != "type" and (name in OF_ITSELF or tells_of_itself(result)):
        raise Break("string", f"{name}() of a tensor: a fake one would answer for it")
    if not args and not kwargs and name.startswith(("is_", "get_", "are_")):
        guard_state(output, functools.partial(target), result)
    elif len(args) == 1 and not kwargs:
        guard_flag(output, args[0], name)
    if result is None and (op == "call_function" or written):
        node = output.add_node(tx, op, target, args, kwargs, None)
        output.written += [(node, tensor) for tensor in written]
    return output.wrap_result(result)


def tells_of_itself(result: Any) -> bool:
    """Is it text, a class or a function, or a list of such?  A fake tensor tells of itself."""
    if isinstance(result, (list, tuple)):
        return any(map(tells_of_itself, result))
    return isinstance(result, (str, bytes, type)) or callable(result)


def guard_state(output: OutputGraph, call: functools.partial[Any], value: Any) -> None:
    """`call` (a functools.partial) read `value` from the process's state: it must give the same
    again.  What the frame itself sets is guarded on entry."""
    name = call.func.__name__
    if noted(output, StateChanges).before and ("grad" in name or "autocast" in name):
        return
    named = [f"{k}={v!r}" for k, v in call.keywords.items()]
    arguments = ", ".join([*map(repr, call.args), *named])
    check = f"{{0}}({arguments}) == {{pin}}"
    output.guard(output.tree.pinned(call.func), ("STATE", arguments), check, value)


def guard_flag(output: OutputGraph, variable: Variable, name: str) -> None:
    """`tensor.is_...()` was read of an input."""
    if type(variable) is not TensorVar or variable.value is None:
        return
    if name.startswith(("is_", "_is_")) and hasattr(torch.Tensor, name):
        check = f"{{0}}.{name}() is {getattr(variable.value, name)()}"
        output.guard(variable.source, ("FLAG", name), check)


hooks.BEFORE_NODES.append(plain_operator)
hooks.AFTER_FAKES += [note_untold, guard_offsets]
