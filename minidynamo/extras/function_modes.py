"""Torch-function modes that a frame enters: the program's `__torch_function__` is traced.

    with Doubling():            # a TorchFunctionMode of the program's
        y = torch.sin(x)        # traced: mode.__torch_function__(torch.sin, (), (x,), None)

In:   `torch._C._push_on_torch_function_stack(mode)`, which entering a mode calls, and operations on
      their way into the graph.
Out:  what the mode makes of each operation.  Nothing of the mode is in the graph; one that is still
      entered where the frame ends or breaks is entered for real behind the graph.

Which operations a mode sees, and under which names, torch itself says: each is called with fake
tensors under a mode of ours, which notes the function and its arguments and stops there.  (`x + y`
is `Tensor.add`, `x.shape` is `Tensor.shape.__get__`, and functions written in Python are seen whole
only if they ask.)  A frame that begins inside of a mode is left to plain Python.
Mirrors torch/_dynamo/variables/torch_function.py.
"""

import functools
import types
from collections.abc import Callable
from typing import Any

import torch
from torch.fx import _symbolic_trace
from torch.overrides import TorchFunctionMode
from torch.utils._device import DeviceContext

from .extending import extends
from .. import hooks
from ..exceptions import Break
from ..foreign import ours
from ..convert_frame import FrameCompiler
from ..graph_capture import OutputGraph
from ..reconstruct import Codegen
from ..symbolic_eval.evaluator import Frame
from ..symbolic_eval.registry import rule
from ..symbolic_eval.torch_rules import is_leaf
from ..variables.base import Args, Named, Variable
from ..variables.constant import ConstantVar
from ..variables.containers import DictVar, ListVar, TupleVar, named
from ..variables.symbolic import SymVar
from ..variables.tensor import TensorVar

KIND = "torch-function mode"
HINT = "enter the mode outside the compiled function"
GETTERS = (types.GetSetDescriptorType, property)


class Noted(Exception):
    """Torch has asked the mode: that is all that was wanted."""


class Note(TorchFunctionMode):
    """Stands where the program's mode would: `seen` is what that would be called with."""

    seen: Any = None

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen = func, types, args, kwargs
        raise Noted


def modes_of(output: OutputGraph) -> list[Variable]:
    """The modes that the frame has entered, the innermost last."""
    return vars(output).setdefault("function_modes", [])


# ---- entering and leaving
@rule(torch._C._push_on_torch_function_stack)
def _push(tx: Frame, mode: Variable) -> None:
    modes_of(tx.output).append(mode)


@rule(torch._C._pop_torch_function_stack)
def _pop(tx: Frame) -> Variable:
    modes = modes_of(tx.output)
    if not modes:
        raise Break(KIND, "a torch-function mode is left that was entered outside", HINT)
    return modes.pop()


rule(torch._C._len_torch_function_stack)(lambda tx: len(modes_of(tx.output)))
rule(torch._C._is_torch_function_mode_enabled)(lambda tx: bool(modes_of(tx.output)))


def enter_for_real(cg: Codegen) -> None:
    """Behind the frame's writes: its modes are entered as plain Python would have them."""
    for mode in vars(cg.output).get("function_modes", ()):
        cg.call_object(torch._C._push_on_torch_function_stack, mode)
        cg.emit("POP_TOP")


# ---- an operation within a mode
class Call:
    """A call as torch is to see it: tensors without memory stand for the frame's, of their class
    and sizes (`stands_for`: id -> (stand-in, variable))."""

    def __init__(self, args: Args, kwargs: Named) -> None:
        self.stands_for: dict[int, tuple[Any, Variable]] = {}
        self.args = [self.stand_in(value) for value in args]
        self.kwargs = {name: self.stand_in(value) for name, value in kwargs.items()}

    def stand_in(self, variable: Variable) -> Any:
        if not isinstance(variable, TensorVar):
            if type(variable) is SymVar:
                return variable.fake
            return variable.argument(self.stand_in)
        sizes = [n if type(n) is int else 2 for n in variable.fake.shape]
        made = torch.empty(sizes, dtype=variable.fake.dtype, device="meta")
        if variable.cls is torch.nn.Parameter:
            made = torch.nn.Parameter(made, requires_grad=False)
        self.stands_for[id(made)] = made, variable
        return made

    def seen(self, function: Callable) -> tuple[Any, Any, Any, Any] | None:
        """What torch calls a mode with: function, types, args, kwargs.  None: it does not."""
        note = Note()
        try:
            with note:
                if self.kwargs:
                    function(*self.args, **self.kwargs)
                else:
                    function(*self.args)
        except Noted:
            pass
        except ours(Exception) as error:
            if note.seen is None:
                raise Break(KIND, f"a call that fails within a mode: {error}"[:200]) from None
        return note.seen

    def given(self, output: OutputGraph, function: Any, kinds: Any, args: Any) -> list[Variable]:
        """What a `__torch_function__` is given first: the function, classes and arguments."""
        return [
            output.wrap_pinned(function),
            TupleVar([output.wrap_pinned(kind) for kind in kinds]),
            TupleVar([self.variable_of(output, value) for value in args]),
        ]

    def named(self, output: OutputGraph, kwargs: dict[str, Any]) -> Variable:
        values = {name: self.variable_of(output, value) for name, value in kwargs.items()}
        return DictVar(named(values))

    def variable_of(self, output: OutputGraph, value: Any) -> Variable:
        """The variable of an argument that torch gives to a mode."""
        if isinstance(value, torch.Tensor):
            if id(value) not in self.stands_for:
                raise Break(KIND, "a mode is given a tensor that is none of the frame's")
            return self.stands_for[id(value)][1]
        if type(value) in (tuple, torch.Size):
            return TupleVar([self.variable_of(output, item) for item in value], type(value))
        if type(value) is list:
            return ListVar([self.variable_of(output, item) for item in value])
        return output.wrap_result(value)


def through_modes(
    tx: Frame, function: Callable, args: Args, kwargs: Named, known: Any = None
) -> Variable | None:
    """What the innermost mode makes of a call; None where torch asks none.  known: only if it is
    this very function that the mode sees."""
    if not vars(tx.output).get("function_modes"):
        return None
    call = Call(args, kwargs)
    seen = call.seen(function)
    if seen is None or known is not None and seen[0] is not known:
        return None
    return asked(tx, call, seen)


def asked(tx: Frame, call: Call, seen: tuple[Any, Any, Any, Any]) -> Variable:
    """mode.__torch_function__(...) of the innermost mode, while that is set aside."""
    function, kinds, args, kwargs = seen
    output, modes = tx.output, modes_of(tx.output)
    given = [*call.given(output, function, kinds, args), ConstantVar(None)]
    # A mode that is asked by another mode's `function(*args, **(kwargs or {}))` is given a dict.
    if kwargs is None and vars(output).get("modes_running"):
        kwargs = {}
    if kwargs is not None:
        given[3] = call.named(output, kwargs)
    mode = modes.pop()
    running = vars(output).get("modes_running", 0)
    vars(output)["modes_running"] = running + 1
    try:
        result = mode.call_method(tx, "__torch_function__", given, {})
    finally:
        modes.append(mode)
        vars(output)["modes_running"] = running
    if result.identity() is NotImplemented:
        raise Break(KIND, "a mode that gives NotImplemented")
    return result


def unseen_alias(tx: Frame, tensor: TensorVar) -> Variable:
    """Another tensor over the same memory, which no mode sees: torch asks none in `as_subclass` and
    `torch.Tensor(x)`."""
    modes = modes_of(tx.output)
    entered = modes.copy()
    modes.clear()
    try:
        return tx.node(torch.ops.aten.alias.default, [tensor])
    finally:
        modes.extend(entered)


# ---- where operations come by
call_graph, call_c, call_function = OutputGraph.call_graph, Frame.call_c, Frame.call_function
read_attribute, call_method = TensorVar.getattr, TensorVar.call_method


@extends(OutputGraph, "call_graph")
def around_graph(
    output: OutputGraph, tx: Frame, op: str, target: Any, args: Any, kwargs: Named
) -> Variable:
    function = getattr(torch.Tensor, target) if op == "call_method" else target
    found = through_modes(tx, function, args, kwargs)
    return call_graph(output, tx, op, target, args, kwargs) if found is None else found


@extends(Frame, "call_c")
def around_c(tx: Frame, function: Any, args: Args, kwargs: Named) -> Variable:
    if type(function) is types.MethodWrapperType and isinstance(function.__self__, GETTERS):
        if function.__name__ == "__get__" and args and isinstance(args[0], TensorVar):
            return args[0].getattr(tx, function.__self__.__name__)
    found = None
    if vars(tx.output).get("function_modes"):
        if function is torch._C._set_grad_enabled or is_leaf(function):
            found = through_modes(tx, function, args, kwargs)
    return call_c(tx, function, args, kwargs) if found is None else found


@extends(Frame, "call_function")
def around_function(tx: Frame, function: Any, args: Args, kwargs: Named) -> Variable:
    """A function of torch's that is written in Python: a mode sees it if it asks first; else what
    it calls."""
    if vars(tx.output).get("function_modes") and function.fn is not None and is_leaf(function.fn):
        found = through_modes(tx, function.fn, args, kwargs, function.fn)
        return tx.inline(function, args, kwargs) if found is None else found
    return call_function(tx, function, args, kwargs)


@extends(TensorVar, "getattr")
def around_attribute(tensor: TensorVar, tx: Frame, name: str) -> Variable:
    found = None
    if isinstance(getattr(torch.Tensor, name, None), GETTERS):
        found = through_modes(tx, functools.partial(read, name), [tensor], {})
    return read_attribute(tensor, tx, name) if found is None else found


def read(name: str, tensor: torch.Tensor) -> Any:
    return getattr(tensor, name)


@extends(TensorVar, "call_method")
def around_method(tensor: TensorVar, tx: Frame, name: str, args: Args, kwargs: Named) -> Variable:
    method, found = getattr(torch.Tensor, name, None), None
    if callable(method):
        found = through_modes(tx, method, [tensor, *args], kwargs)
    return call_method(tensor, tx, name, args, kwargs) if found is None else found


def refusing(name: str) -> Callable:
    """The operation of tensors `name`, refused within a mode: torch asks that, and here it is no
    node."""
    plain = getattr(TensorVar, name)

    def operation(tensor: TensorVar, tx: Frame, *args: Any) -> Any:
        if vars(tx.output).get("function_modes"):
            raise Break(KIND, f"the {name} of a tensor within a mode", HINT)
        return plain(tensor, tx, *args)

    return operation


for _name in ("truth", "iterate", "contains", "setattr", "delattr"):
    extends(TensorVar, _name)(refusing(_name))
plain_length = TensorVar.length


@extends(TensorVar)
def length(tensor: TensorVar, tx: Frame) -> Any:
    if vars(tx.output).get("function_modes"):
        return tensor.call_method(tx, "__len__", [], {}).as_constant()
    return plain_length(tensor, tx)


hooks.AFTER_WRITES.append(enter_for_real)


# ---- frames that begin inside of a mode, or of another tracer
left_alone_before = FrameCompiler.is_left_alone


@extends(FrameCompiler)
def is_left_alone(compiler: FrameCompiler, code: types.CodeType, owner: int | None) -> bool:
    """Compiling would show the mode what the compiler asks of tensors, and a compiled graph its
    kernels.  (A default device is a mode, too: torch's own, which is guarded.)  Under
    `torch.fx.symbolic_trace` plain Python runs as well: its proxies are to see the operations."""
    if _symbolic_trace._is_fx_tracing_flag:
        return True
    for place in range(torch._C._len_torch_function_stack()):
        if type(torch._C._get_function_stack_at(place)) is not DeviceContext:
            return True
    return left_alone_before(compiler, code, owner)
