"""Objects and tensors with a `__torch_function__` as arguments of torch's functions.

    class Metric:
        def __torch_function__(self, function, types, args=(), kwargs=None): ...

    y = torch.sin(Metric(x))        # traced: metric.__torch_function__(torch.sin, (Metric,), ...)

In:   an operation with such an object among its arguments, or in a list of them, on its way into
      the graph.
Out:  what the object makes of it: nothing of the object is in the graph.

Which function torch names, with which types, in which order, torch itself says, as it does for
modes (`function_modes.Call`): the call is made with instances of the same classes on which no
`__init__` ran, and ends where the first object would be asked.  Torch's own `__torch_function__`,
which subclasses of tensors inherit, is a rule here; variables/more/tensor_subclasses.py has them.
Mirrors torch/_dynamo/variables/torch_function.py.
"""

import contextlib
import functools
import types
from collections.abc import Iterable, Iterator
from typing import Any

import torch

from .extending import extends
from ..exceptions import Break
from ..foreign import ours
from ..graph_capture import OutputGraph
from ..rules.c_methods import method_of
from ..rules.torch_state import at
from ..symbolic_eval.evaluator import Frame
from ..symbolic_eval.registry import rule
from ..symbolic_eval.torch_rules import is_leaf
from ..variables.base import RUNNING, Args, Named, Variable
from ..variables.constant import ConstantVar
from ..variables.containers import SequenceVar
from ..variables.lookup import MISSING, lookup
from ..variables.more.tensor_subclasses import Subclassed, guard_asked, is_asked, of_class, retyped
from ..variables.objects import ObjectVar
from ..variables.tensor import TensorVar
from .function_modes import Call, modes_of, read

KIND = "__torch_function__"
NAME = "__torch_function__"
HINT = "call the function with what the object contains"


def overloads(variable: Any) -> bool:
    """Does torch ask this argument what its functions mean?"""
    if isinstance(variable, Subclassed):
        return is_asked(variable)
    return isinstance(variable, ObjectVar) and lookup(variable.cls, NAME)[1] is not MISSING


def leaves(tx: Frame, values: Iterable[Any]) -> Iterator[Variable]:
    """The arguments, and what lies in lists and tuples of them: torch looks no deeper."""
    for value in values:
        value = value.realize(tx)
        yield value
        if isinstance(value, SequenceVar) and value.cls in (list, tuple):
            yield from (item.realize(tx) for item in value.items)


class ObjectCall(Call):
    """A call with stand-ins for objects, too: torch looks at their classes alone."""

    def stand_in(self, variable: Variable) -> Any:
        variable = variable.realize(RUNNING[-1])
        if isinstance(variable, Subclassed):
            made = retyped(super().stand_in(variable.plain), variable.cls)
            self.stands_for[id(made)] = made, variable
            return made
        if not overloads(variable):
            return super().stand_in(variable)
        assert isinstance(variable, ObjectVar)
        cls = variable.cls
        _, found = lookup(cls, NAME)
        unusual = lookup(cls, "__getattribute__")[1] is not object.__getattribute__
        of_class = isinstance(found, (classmethod, staticmethod))  # torch warns of others
        if unusual or lookup(cls, "__del__")[1] is not MISSING or not of_class:
            raise Break(KIND, f"a {cls.__name__} as an argument of a torch function", HINT)
        try:
            made = object.__new__(cls)
        except ours(TypeError):
            raise Break(KIND, f"a {cls.__name__}, which C code makes", HINT) from None
        self.stands_for[id(made)] = made, variable
        return made

    def variable_of(self, output: OutputGraph, value: Any) -> Variable:
        found = self.stands_for.get(id(value))
        return super().variable_of(output, value) if found is None else found[1]


def through_objects(
    tx: Frame, function: Any, args: Args, kwargs: Named, known: Any = None
) -> Variable | None:
    """What the objects among the arguments make of a call; None where torch asks none.  known: only
    if it is this very function that they are asked about."""
    if vars(tx.output).get("unasked"):
        return None
    if not any(map(overloads, leaves(tx, (*args, *kwargs.values())))):
        return None
    if modes_of(tx.output):
        raise Break(KIND, "objects with a __torch_function__ within a mode", HINT)
    guard_asked(tx.output)
    call = ObjectCall(args, kwargs)
    seen = call.seen(function)
    if seen is None or known is not None and seen[0] is not known:
        return None
    return asked(tx, call, seen)


def asked(tx: Frame, call: ObjectCall, seen: tuple[Any, Any, Any, Any]) -> Variable:
    """The first answer: torch asks one object of each class, those of subclasses first."""
    function, kinds, args, kwargs = seen
    output = tx.output
    given = call.given(output, function, kinds, args)
    if kwargs is not None:
        given.append(call.named(output, kwargs))
    for kind in kinds:
        objects = [v for _, v in call.stands_for.values() if v.python_type() is kind]
        result = objects[0].call_method(tx, NAME, list(given), {})
        if result.identity() is not NotImplemented:
            return result
    raise Break(KIND, "no object knows what a torch function means")  # plain Python raises


# ---- where operations come by
call_graph, call_c, call_function = OutputGraph.call_graph, Frame.call_c, Frame.call_function


@extends(OutputGraph, "call_graph")
def around_graph(
    output: OutputGraph, tx: Frame, op: str, target: Any, args: Any, kwargs: Named
) -> Variable:
    function = getattr(torch.Tensor, target) if op == "call_method" else target
    found = through_objects(tx, function, args, kwargs)
    if found is not None:
        return found
    result = call_graph(output, tx, op, target, args, kwargs)
    given = [v for v in leaves(tx, (*args, *kwargs.values())) if isinstance(v, Subclassed)]
    return with_its_class(result, given) if given else result


def with_its_class(result: Variable, given: list[Subclassed]) -> Variable:
    """`x.add_(y)` gives x itself; so does torch.broadcast_tensors(x, y), in a list."""
    if isinstance(result, TensorVar):
        return next((value for value in given if value.plain is result), result)
    if isinstance(result, SequenceVar) and result.source is None:
        result.items[:] = [with_its_class(item, given) for item in result.items]
    return result


@extends(Frame, "call_c")
def around_c(tx: Frame, function: Any, args: Args, kwargs: Named) -> Variable:
    found = None
    if isinstance(function, types.BuiltinFunctionType) and is_leaf(function):
        found = through_objects(tx, function, args, kwargs)
    return call_c(tx, function, args, kwargs) if found is None else found


@extends(Frame, "call_function")
def around_function(tx: Frame, function: Any, args: Args, kwargs: Named) -> Variable:
    """A function of torch's that is written in Python: the objects are asked if it asks first; else
    by what it calls."""
    found = None
    if function.fn is not None and is_leaf(function.fn):
        found = through_objects(tx, function.fn, args, kwargs, function.fn)
    return call_function(tx, function, args, kwargs) if found is None else found


plain_method = TensorVar.call_method


@extends(TensorVar, "call_method")
def around_method(tensor: TensorVar, tx: Frame, name: str, args: Args, kwargs: Named) -> Variable:
    method, found = getattr(torch.Tensor, name, None), None
    if (args or kwargs) and callable(method):
        found = through_objects(tx, method, [tensor, *args], kwargs)
    return plain_method(tensor, tx, name, args, kwargs) if found is None else found


torchs_attribute, torchs_method = Subclassed.torchs, Subclassed.torchs_method


@extends(Subclassed, "torchs")
def around_attribute(tensor: Subclassed, tx: Frame, name: str) -> Variable:
    found = through_objects(tx, functools.partial(read, name), [tensor], {})
    return torchs_attribute(tensor, tx, name) if found is None else found


@extends(Subclassed, "torchs_method")
def around_own_method(
    tensor: Subclassed, tx: Frame, name: str, args: Args, kwargs: Named
) -> Variable:
    found = through_objects(tx, getattr(torch.Tensor, name), [tensor, *args], kwargs)
    return torchs_method(tensor, tx, name, args, kwargs) if found is None else found


@method_of(Subclassed)
def _method_of_torchs(
    tx: Frame, descriptor: Any, tensor: Subclassed, rest: Args, kwargs: Named
) -> Variable:
    """torch.Tensor.add(x, y), whatever the class of x calls `add`."""
    return tensor.torchs_method(tx, descriptor.__name__, rest, kwargs)


# ---- torch's own __torch_function__, and what it is within
class Unasked:
    """torch._C.DisableTorchFunctionSubclass, written in Python; `real`: that, where it is entered
    outside of a trace."""

    real: Any = None

    def __enter__(self) -> None:
        begin_unasked(self)

    def __exit__(self, *raised: Any) -> None:
        end_unasked(self)


def begin_unasked(manager: Unasked) -> None:
    manager.real = torch._C.DisableTorchFunctionSubclass()
    manager.real.__enter__()


def end_unasked(manager: Unasked) -> None:
    manager.real.__exit__(None, None, None)


@rule(begin_unasked)
def _begin(tx: Frame, manager: Variable) -> None:
    vars(tx.output)["unasked"] = vars(tx.output).get("unasked", 0) + 1


@rule(end_unasked)
def _end(tx: Frame, manager: Variable) -> None:
    vars(tx.output)["unasked"] -= 1


@rule(torch._C.DisableTorchFunctionSubclass)
def _disabled(tx: Frame) -> Variable:
    """Not in the outermost frame: a graph break within would have to enter it for real."""
    if tx is tx.output.root:
        raise Break(KIND, "torch._C.DisableTorchFunctionSubclass()", HINT)
    return tx.output.wrap_pinned(Unasked).call(tx, [], {})


@contextlib.contextmanager
def unasked(tx: Frame) -> Iterator[None]:
    """As under `torch._C.DisableTorchFunctionSubclass()`."""
    state = vars(tx.output)
    before = state.get("unasked", 0)
    state["unasked"] = before + 1
    try:
        yield
    finally:
        state["unasked"] = before


@rule(torch.Tensor.__torch_function__.__func__)  # type: ignore[attr-defined]
def _default(
    tx: Frame, cls: Variable, func: Variable, kinds: Variable, args: Any = None, kwargs: Any = None
) -> Variable:
    own, function = cls.identity(), func.identity()
    if not all(issubclass(own, kind.identity()) for kind in kinds.iterate(tx)):
        return tx.output.wrap_pinned(NotImplemented)
    given = [] if args is None else tx.listed(args)
    named_ones: Named = {}
    if kwargs is not None and kwargs.identity() is not None:
        named_ones = {key.as_constant(): value for key, value in kwargs.pairs(tx)}
    with unasked(tx):
        result = func.call(tx, given, named_ones)
    if function in torch.overrides.get_default_nowrap_functions():
        return result
    return converted(tx, result, own)


def converted(tx: Frame, result: Variable, kind: type) -> Variable:
    """torch._tensor._convert."""
    if isinstance(result, SequenceVar) and issubclass(result.cls, (tuple, list)):
        items = [converted(tx, item.realize(tx), kind) for item in result.items]
        return type(result)(items, result.cls)
    if not isinstance(result, TensorVar) or issubclass(result.cls, kind):
        return result
    return of_class(tx, result, kind)


# ---- questions
def _any_overloads(tx: Frame, *values: Variable) -> Variable:
    return ConstantVar(any(map(overloads, leaves(tx, values))))


rule(at("overrides.has_torch_function_variadic"), at("overrides.has_torch_function_unary"))(
    _any_overloads
)
rule(at("overrides.has_torch_function"))(lambda tx, values: _any_overloads(tx, *values.iterate(tx)))
