"""`Variable`: the protocol of symbolic values, and `Lazy`, a value nobody has looked at yet.

In:   the evaluator's operations (attribute, call, item, iteration, truth) with symbolic arguments.
Out:  other variables; graph nodes and guards as side products; `Break` where tracing must stop.

    >>> list_variable.call_method(tx, "append", [constant], {})

Every operation has a default that raises `Break`, naming the type: refusing is the base case.
Mirrors torch/_dynamo/variables/base.py (VariableTracker).
# PyTorch: mutation is recorded beside immutable trackers; here a variable *is* the symbolic object
# and is mutated in place: aliasing comes for free, and a failed attempt throws everything away and
# traces again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast, dataclass_transform

from ..exceptions import Break
from ..foreign import ours

if TYPE_CHECKING:  # what the annotations of variables name
    from ..graph_capture import OutputGraph as OutputGraph
    from ..reconstruct import Codegen as Codegen
    from ..sources import Source as Source
    from ..symbolic_eval.evaluator import Frame as Frame
else:
    OutputGraph = Codegen = Source = Frame = Any
Args = list["Variable"]  # the positional arguments of a call
Named = dict[str, "Variable"]  # those with names

# The frames that are being evaluated, the innermost last (one compile at a time).
RUNNING: list[Any] = []


def current() -> Frame:
    """The frame that is being evaluated."""
    return RUNNING[-1]


@dataclass_transform(eq_default=False, field_specifiers=(field,))
class Fields:
    """Its subclasses are dataclasses, compared by identity: their annotated names are what their
    constructors take, in that order, and `source`."""

    def __init_subclass__(cls) -> None:
        dataclass(eq=False, repr=False)(cls)


class Variable(Fields):
    """One symbolic value.  `source` says where the real one came from (None: made in this
    frame)."""

    source: Any = field(default=None, kw_only=True)  # a Source, or None
    mutated: bool = field(default=False, init=False)
    cls = cast(Any, None)  # its Python type, if that is known
    native = False  # is it a method that the instance's variable implements?
    shared = False  # can the program see that it is one object?  Then it is rebuilt once
    payload = cast(Any, None)  # what an instance of a subclass of list, dict... contains

    # ---- what it is
    def realize(self, tx: Frame) -> Variable:
        return self

    def python_type(self) -> type:
        if self.cls is None:
            raise Break("type", f"the type of {self} is not known while tracing")
        return self.cls

    def is_constant(self) -> bool:
        return False

    def as_constant(self) -> Any:
        raise Break("constant", f"{self} is not a constant")

    def real(self) -> Any:
        """The real Python object that stands behind this variable, if it is one that calls may be
        folded on."""
        return self.as_constant()

    def identity(self) -> Any:
        """Two variables are the same object iff their identities are the same object."""
        return self

    def hash_key(self, tx: Frame) -> Any:
        """A host-side key for dictionaries and sets."""
        raise Break("hash", f"{self} as a dictionary key is not traced")

    # ---- operations
    def getattr(self, tx: Frame, name: str) -> Variable:
        return tx.method_of(self, name)

    def generic_getattr(self, tx: Frame, name: str) -> Variable:
        raise Break("attribute", f"reading .{name} of {self} is not traced")

    def setattr(self, tx: Frame, name: str, value: Variable) -> None:
        raise Break("attribute", f"setting .{name} of {self} is not traced")

    def delattr(self, tx: Frame, name: str) -> None:
        raise Break("attribute", f"deleting .{name} of {self} is not traced")

    # object.__setattr__ and object.__delattr__, called by name
    generic_setattr, generic_delattr = setattr, delattr

    def call(self, tx: Frame, args: Args, kwargs: Named) -> Variable:
        raise Break("call", f"calling {self} is not traced")

    def call_method(self, tx: Frame, name: str, args: Args, kwargs: Named) -> Variable:
        method = getattr(self, "method_" + name, None)
        if method is not None:
            try:
                result = method(tx, *args, **kwargs)
                return tx.NONE if result is None else result
            except ours(TypeError) as error:
                if error.__traceback__.tb_next is not None:  # the method had begun to run
                    raise
                # The arguments do not fit its parameters: plain Python says what is wrong.
                raise Break("method", f"the arguments of .{name}() of {self}") from None
        found: Any = self.getattr(tx, name)
        if found.native and found.instance is self:  # calling it would come back here
            raise Break("method", f"the method .{name}() of {self} is not traced")
        return found.call(tx, args, kwargs)

    def truth(self, tx: Frame) -> bool:
        if self.cls is None or hasattr(self.cls, "__bool__") or hasattr(self.cls, "__len__"):
            raise Break("truth", f"the truth of {self} is not known while tracing")
        return True

    def iterate(self, tx: Frame) -> Iterator[Variable]:
        """A host iterator over variables."""
        raise Break("iteration", f"iterating over {self} is not traced")

    def length(self, tx: Frame) -> Any:
        raise Break("length", f"len({self}) is not traced")

    def getitem(self, tx: Frame, key: Variable) -> Variable:
        raise Break("item", f"{self}[...] is not traced")

    def setitem(self, tx: Frame, key: Variable, value: Variable) -> None:
        raise Break("item", f"{self}[...] = ... is not traced")

    def delitem(self, tx: Frame, key: Variable) -> None:
        raise Break("item", f"del {self}[...] is not traced")

    def contains(self, tx: Frame, item: Variable) -> bool:
        raise Break("item", f"... in {self} is not traced")

    # ---- in the graph
    def argument(self, part: Callable[[Variable], Any]) -> Any:
        """What stands for it among the arguments of a node of the graph; `part` says what stands
        for an item that it contains."""
        raise Break("argument", f"{self} as an argument of a torch function")

    # ---- rebuilding
    def reconstruct(self, cg: Codegen) -> None:
        """Emit code that pushes this value; only called when `source` cannot give it."""
        raise Break("reconstruct", f"{self} cannot be rebuilt after a graph break")

    def replay(self, cg: Codegen) -> None:
        """Push what it takes to repeat the writes of this frame, and tell `cg` what then writes."""
        if self.mutated:
            raise Break("reconstruct", f"writes to {self} cannot be repeated")

    def __repr__(self) -> str:
        name = type(self).__name__.removesuffix("Var").lower()
        return f"{name}({self.source.name()})" if self.source is not None else name


def extends(cls: type) -> Callable[[type], type]:
    """A decorator for coverage: the methods of the class below it are added to `cls`."""

    def add(methods: type) -> type:
        for name, method in vars(methods).items():
            if not name.startswith("__"):
                setattr(cls, name, method)
        return methods

    return add


class RealVar(Variable):
    """A value that tracing may look at: `value` is the object itself (a number, a class, a function
    of C, a module)."""

    value: Any

    def python_type(self) -> type:
        return type(self.value)

    def real(self) -> Any:
        return self.value

    identity = real

    def hash_key(self, tx: Frame) -> Any:
        return self.value

    def truth(self, tx: Frame) -> bool:
        return True

    def argument(self, part: Callable[[Variable], Any]) -> Any:
        return self.value if callable(self.value) else super().argument(part)

    def reconstruct(self, cg: Codegen) -> None:
        cg.pinned(self.value)


class Lazy(Variable):
    """A real value and its source.  Nobody has looked at it yet, so there is no guard on it."""

    def __init__(self, value: Any, source: Source) -> None:
        self.value, self.source = value, source
        self.variable: Any = None

    def realize(self, tx: Frame) -> Variable:
        if self.variable is None:
            self.variable = tx.output.wrap(self.value, self.source)
        return self.variable

    def argument(self, part: Callable[[Variable], Any]) -> Any:
        return part(self.realize(current()))


def peek(variable: Variable) -> Variable:
    """What stands behind a Lazy at which somebody has looked; else the variable itself."""
    if type(variable) is Lazy and variable.variable is not None:
        return variable.variable
    return variable


class OpaqueVar(RealVar):
    """A real value that cannot be traced: it may be passed on; using it breaks the graph."""

    broken: Break

    def _refuse(self, *args: Variable) -> Any:
        raise self.broken


REFUSED = (
    *("as_constant", "real", "hash_key", "getattr", "setattr", "delattr", "call", "call_method"),
    *("truth", "iterate", "length", "getitem", "setitem", "delitem", "contains"),
)
for _name in REFUSED:
    setattr(OpaqueVar, _name, OpaqueVar._refuse)


class Null(Variable):
    """The NULL that CPython's call protocol pushes, and unbound slots that inlined comprehensions
    save."""

    def reconstruct(self, cg: Codegen) -> None:
        cg.push_null()

    def __repr__(self) -> str:
        return "NULL"


class Handled(Variable):
    """What PUSH_EXC_INFO leaves below an exception that is being handled: POP_EXCEPT takes it, and
    sets `exception` to None."""

    exception: Any

    def reconstruct(self, cg: Codegen) -> None:
        cg.load_const(None)


NULL = Null()
