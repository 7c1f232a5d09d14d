"""Custom autograd functions, each of which is one node, and torch.utils.checkpoint, whose body is
traced in its place.

In:   a class and the arguments of its `apply`; a body and its arguments.
Out:  the node, whose Python the backend's trace runs, and no call; guards on all that its methods
      read from outside; a break where that cannot be guarded, or where they write there.

    class Scaled(torch.autograd.Function):
        factor = 2.0
        def forward(ctx, x):
            return x * Scaled.factor                # guarded (of OPTIONS["factor"]: a break)
        def backward(ctx, gradient):
            return gradient * 2.0                   # (of Scaled.factor: a break)

    y = checkpoint(block, x, use_reentrant=False)

A guard holds at the call.  A number or a tensor may be another one by the time that `backward`
reads it, so that breaks.  (Functions, classes and modules that it reads are those of the call.)
What is read is found in the bytecode: a global or a closure's variable, and the attributes that are
asked of it at once.

Nodes of a checkpoint's body are marked, and the backward half of miniinductor computes what they
give from the body's inputs (`autograd/partition.py`); random numbers are kept.  The backends
"eager" and "aot_eager" keep all, as if there were no checkpoint.  A body that writes (the
statistics of a batch norm) would write twice in plain Python: it breaks the graph, as do functions
that choose what to keep.
Mirrors torch/_dynamo/variables/higher_order_ops.py (AutogradFunctionApplyVariable, which traces
both methods, and CheckpointHigherOrderVariable).
"""

import dis
import types
from collections.abc import Iterator
from typing import Any

import torch
import torch.utils.checkpoint as torchs

from ..errors import Break
from ..guards.originals import path_from
from ..variables.base import MISSING, Frame, Variable, is_programs, lookup, trusted
from ..variables.classes import ClassVar, PyModuleVar
from ..variables.constant import ConstantVar
from ..variables.dicts import DictVar, SequenceVar, TupleVar
from ..variables.functions import CallableVar, CellVar, FunctionVar
from ..variables.registry import NONE, rule
from ..variables.symbolic import pinned
from ..variables.tensor import TensorVar

METHODS = ("forward", "setup_context", "backward", "vjp")
LATE = METHODS[2:]  # they run after the call
LOADS = {"LOAD_GLOBAL", "LOAD_NAME"}
LOADS_OF_CELLS = {"LOAD_DEREF", "LOAD_CLASSDEREF", "LOAD_FROM_DICT_OR_DEREF"}
WRITES = {"STORE_GLOBAL", "DELETE_GLOBAL"}
WRITES_TO_CELLS = {"STORE_DEREF", "DELETE_DEREF"}
# what has effects, or reads what this file does not see
REFUSED: tuple[Any, ...] = (print, input, open, exec, eval, compile, __import__, next, iter, id)
REFUSED += (getattr, hasattr, setattr, delattr, vars, dir, globals, locals)
OPTIONS = frozenset(("context_fn", "debug", "determinism_check", "early_stop"))  # of a checkpoint


class Reads:
    """What the methods of one custom function read from outside, guarded.

    late: does what is looked at run after the call?
    seen: functions that were looked at, and whether they were late."""

    def __init__(self, tx: Frame, cls: type) -> None:
        self.tx, self.cls = tx, cls
        self.late = False
        self.seen: set[tuple[types.FunctionType, bool]] = set()

    def refuse(self, what: str) -> Break:
        hint = "give apply() what changes as an argument"
        return Break("autograd function", f"{self.cls.__name__}: {what}", hint)

    def methods(self) -> None:
        for name in METHODS:
            owner, found = lookup(self.cls, name)
            if found is MISSING or owner is torch.autograd.Function:
                continue
            source = self.tx.output.tree.pinned(owner).child("class_item", name)
            self.tx.output.guard_fixed(source, found)
            self.late = name in LATE and torch.is_grad_enabled()
            found = getattr(found, "__func__", found)
            if isinstance(found, types.FunctionType):
                self.function(found)

    def function(self, function: types.FunctionType) -> None:
        if (function, self.late) in self.seen:
            return
        self.seen.add((function, self.late))
        output = self.tx.output
        whole: Any = output.wrap_pinned(function)  # guards its code and its defaults
        for default in (*whole.defaults, *whole.kwdefaults.values()):
            self.value(default.realize(self.tx), "a default")
        cells = dict(zip(function.__code__.co_freevars, whole.closure))
        reads = output.globals_of(function.__globals__)
        for name, path, is_cell in reads_of(function.__code__):
            if name is None:
                raise self.refuse(f"{function.__name__} writes {path[0]}")
            if is_cell:
                found = cells[name].load(self.tx)
            elif name in reads.written:
                raise self.refuse(f"it reads {name}, which this frame has written")
            else:
                found = reads.load(self.tx, name)
            # what a decorator of torch's has bound stays: torch.amp.custom_bwd(device_type="cuda")
            stays = is_cell and not is_programs(function)
            self.read(found, ".".join([name, *path]), path, stays)

    def read(self, found: Variable, text: str, path: list[str], stays: bool) -> None:
        """`found` and its attributes, one of the other."""
        for name in path:
            if is_written(found):
                raise self.refuse(f"it reads {text}, which this frame has written")
            if isinstance(found, PyModuleVar) and trusted(found.value.__name__):
                return
            if is_data(found):
                break
            found = found.getattr(self.tx, name)
        if self.late and not stays and is_data(pinned(found)):
            raise self.refuse(f"its backward reads {text}, which may change after the call")
        self.value(found, text)

    def value(self, found: Variable, text: str) -> None:
        """Guard a value that the function reads; of a function of the program, also what that
        reads."""
        found = pinned(found)
        if isinstance(found, TensorVar) and found.source is not None:
            self.tx.output.guard_fixed(found.source, found.value)
        elif isinstance(found, FunctionVar) and found.fn is not None:
            if found.source is not None:
                self.tx.output.guard_fixed(found.source, found.fn)
            if is_programs(found.fn):
                self.function(found.fn)
        elif isinstance(found, TupleVar):
            for item in found.iterate(self.tx):
                self.value(item, text)
        elif not is_fixed(found):
            raise self.refuse(f"it reads {text}, which may change or be changed")


def is_fixed(found: Any) -> bool:
    """A module, a class of torch's or Python's, an operation in C, a constant?"""
    if isinstance(found, CallableVar):
        return found.value not in REFUSED
    if isinstance(found, ClassVar):
        return trusted(found.value.__module__)
    return isinstance(found, PyModuleVar) or is_data(found)


def is_data(variable: Variable) -> bool:
    """A number, a text, a tensor, a tuple of them?"""
    if isinstance(variable, (TensorVar, TupleVar)):
        return True
    return variable.is_constant() and not isinstance(variable, ClassVar)


def is_written(variable: Any) -> bool:
    """Has the frame changed it?  The real object is as it was."""
    fields = getattr(variable, "fields", None)
    return variable.mutated or fields is not None and fields.mutated


def reads_of(code: types.CodeType) -> Iterator[tuple[str | None, list[str], bool]]:
    """(name, attributes asked of it, is it a closure's variable?) of what the code loads from
    outside; name None: it writes there."""
    for inner in codes(code):
        own = set(code.co_freevars) & set(inner.co_freevars)
        steps = [*dis.get_instructions(inner)]
        for place, step in enumerate(steps):
            is_cell = step.argval in own
            if step.opname in WRITES or step.opname in WRITES_TO_CELLS and is_cell:
                yield None, [str(step.argval)], is_cell
            elif step.opname == "IMPORT_NAME" and not trusted(step.argval):
                yield None, [f"what importing {step.argval} gives"], False
            elif step.opname in LOADS or step.opname in LOADS_OF_CELLS and is_cell:
                name, *path = path_from(steps, place)
                yield name, path, is_cell


def codes(code: types.CodeType) -> Iterator[types.CodeType]:
    """The code and those of the functions that it makes."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from codes(constant)


@rule(getattr(torch.autograd.Function.apply, "__func__"))
def _apply(tx: Any, function: Any, *args: Any, **kwargs: Any) -> Variable:
    """Run with fake tensors now, traced again by a backend that looks inside."""
    cls = function.as_constant()
    fakes = [arg.fake for arg in args if type(arg) is TensorVar]
    # Only real tensors, and not their fakes, know whether autograd records a view of these.
    if fakes and torch.is_inference_mode_enabled() or any(map(torch.is_inference, fakes)):
        raise Break("autograd function", f"{cls.__name__}.apply of what inference mode has made")
    reads = Reads(tx, cls)
    reads.methods()
    if any(isinstance(value, (FunctionVar, CallableVar)) for value in args):
        raise reads.refuse("it is given a function")

    def apply(*values: Any, **named: Any) -> Any:
        return cls.apply(*values, **named)

    apply.__name__ = f"{cls.__name__}_apply"
    if not cls.__module__.startswith("torch."):  # where torch.fx would look for it by its name
        apply.__module__ = cls.__module__
    return tx.node(apply, list(args), kwargs)


# ---- torch.utils.checkpoint
HINT = "use checkpoint(function, ..., use_reentrant=False)"


@rule(torchs.checkpoint)
def _checkpoint(tx: Frame, function: Any, /, *args: Any, **kwargs: Any) -> Variable:
    """function(*args, **kwargs), its nodes marked: those of the results are kept."""
    reentrant = kwargs.pop("use_reentrant", NONE).identity()
    keeps = kwargs.pop("preserve_rng_state", ConstantVar(True)).identity()
    if reentrant not in (True, False) or keeps is not True or not OPTIONS.isdisjoint(kwargs):
        raise Break("checkpoint", "torch.utils.checkpoint with these options", HINT)
    learning = any(isinstance(value, TensorVar) and value.fake.requires_grad for value in args)
    if reentrant and torch.is_grad_enabled() and (kwargs or not learning):
        text = "a checkpoint with use_reentrant=True, whose arguments need no gradients"
        raise Break("checkpoint", text, HINT)
    output = tx.output
    last = next(iter(reversed(output.graph.nodes)), None)
    writes, changed = len(output.written), written_objects(tx)
    for variable in changed:
        variable.mutated = False
    result = function.call(tx, list(args), kwargs)
    repeated = written_objects(tx)
    for variable in changed:
        variable.mutated = True
    if torch.is_grad_enabled() and (repeated or len(output.written) > writes):
        text = "a checkpointed function that writes, and would write again in the backward pass"
        raise Break("checkpoint", text, "write outside the checkpoint")
    results = {id(tensor.node) for tensor in tensors_in(result)}
    for node in reversed(output.graph.nodes):
        if node is last:
            break
        if node.op.startswith("call"):
            node.meta["checkpointed"] = "result" if id(node) in results else "body"
    return result


def written_objects(tx: Frame) -> list[Any]:
    """The objects, globals and cells from outside that the frame has written so far."""
    output = tx.output
    known: list[Any] = [*output.sourced, *[variable for variable, _ in output.memo.values()]]
    frame: Any = tx
    while frame is not None:
        known += [cell for cell in frame.cells.values() if type(cell) is CellVar]
        frame = frame.parent
    return [variable for variable in known if variable.mutated]


def tensors_in(value: Any) -> Iterator[TensorVar]:
    if isinstance(value, TensorVar):
        yield value
    elif isinstance(value, SequenceVar):
        for item in value.items:
            yield from tensors_in(item)
    elif isinstance(value, DictVar):
        for _, item in value.items.values():
            yield from tensors_in(item)
