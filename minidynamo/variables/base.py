"""`Variable`: the protocol of symbolic values; values that nobody has looked at yet (`Lazy`) or
that cannot be traced (`OpaqueVar`); and `lookup`, the walk over a class and its bases.

In:   the evaluator's operations (attribute, call, item, iteration, truth) with symbolic arguments.
Out:  other variables; graph nodes and guards as side products; `Break` where tracing must stop.

    >>> list_variable.call_method(tx, "append", [constant], {})
    >>> lookup(bool, "bit_length")
    (<class 'int'>, <method 'bit_length' of 'int' objects>)

Every operation has a default that raises `Break`, naming the type: refusing is the base case.
`lookup` runs no descriptor; at the end of an attempt, guards say that the same walks find the same.
Classes of C cannot change; those of torch and the standard library are guarded, too, where they
can (`can_change`), but what their attributes hold is taken as fixed (`trusted`).
Mirrors torch/_dynamo/variables/base.py (VariableTracker) and user_defined.py
(UserDefinedObjectVariable.lookup_class_mro_attr).
# PyTorch: mutation is recorded beside immutable trackers; here a variable *is* the symbolic object
# and is mutated in place: aliasing comes for free, and a failed attempt throws everything away and
# traces again.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, cast, dataclass_transform

from miniinductor.errors import ours
from miniinductor.options import Current

from ..bytecode import assembler
from ..errors import Break

if TYPE_CHECKING:
    from ..evaluate.evaluator import Frame as Frame
    from ..graph.output_graph import OutputGraph as OutputGraph
    from ..guards.sources import Source as Source
    from ..rebuild.replacement import Codegen as Codegen
else:
    OutputGraph = Codegen = Source = Frame = Any

Added = TypeVar("Added", bound=Any)
Args = list["Variable"]  # the positional arguments of a call
Named = dict[str, "Variable"]  # those with names

running = Current()  # the frame that is being evaluated: for functions that are given no `tx`


def current() -> Frame:
    """The frame that is being evaluated."""
    return running.value


def current_line() -> str:
    """Where the program is."""
    return running.value.user_line() if running.value else ""


@dataclass_transform(eq_default=False, field_specifiers=(field,))
class Fields:
    """Its subclasses are dataclasses, compared by identity: their annotated names are what their
    constructors take, in that order, and `source`."""

    def __init_subclass__(cls) -> None:
        # A class that names no fields and has no __post_init__ inherits its parent's constructor.
        own = vars(cls).keys() & {"__annotations__", "__post_init__"}
        if own or len(cls.__bases__) > 1:
            dataclass(eq=False, repr=False)(cls)


def refusal(kind: str, text: str) -> Callable[..., Any]:
    """A method that refuses: it raises `Break` with this reason.

    In it `{self}` is the variable, `{0}` the first argument (mostly `tx`), `{1}` the next one."""

    def refuse(self: Variable, *args: Any) -> NoReturn:
        raise Break(kind, text.format(*args, self=self))

    return refuse


def fitting(
    unfit: Callable[[], Break], handler: Callable, tx: Frame, args: Args, kwargs: Named
) -> Any:
    """What a handler of ours gives for these arguments.  Where they do not fit its parameters, the
    graph breaks (`unfit`), and plain Python says what is wrong with them."""
    try:
        return handler(tx, *args, **kwargs)
    except ours(TypeError) as error:
        if error.__traceback__.tb_next is not None:  # the handler had begun to run
            raise
        raise unfit() from None


class Variable(Fields):
    """One symbolic value.  `source` says where the real one came from (None: made in this
    frame)."""

    source: Any = field(default=None, kw_only=True)  # a Source, or None
    mutated: bool = field(default=False, init=False)
    # What follows has no annotation: it is no argument of the constructor (see `Fields`).
    cls = cast(Any, None)  # its Python type, if that is known
    native = False  # is it a method that the instance's variable implements?
    shared = False  # can the program see that it is one object?  Then it is rebuilt once
    payload = cast(Any, None)  # what an instance of a subclass of list, dict... contains
    stack_kind = assembler.VALUE  # for the code behind a graph break that takes it off the stack

    # ---- what it is
    def realize(self, tx: Frame) -> Variable:
        return self

    def python_type(self) -> type:
        if self.cls is None:
            raise Break("type", f"the type of {self} is not known while tracing")
        return self.cls

    # From a variable to Python's own values, each with the guards that it takes:
    #   as_constant  a value that equals this one in every call (a symbol's number, then guarded)
    #   real         the object itself, for calls that read of it only what is guarded
    #   identity     what `is` compares           hash_key     what a dictionary compares
    def is_constant(self) -> bool:
        return False

    as_constant = refusal("constant", "{self} is not a constant")

    def real(self) -> Any:
        """The real Python object that stands behind this variable, if it is one that calls may be
        folded on (computed while tracing)."""
        return self.as_constant()

    def identity(self) -> Any:
        """Two variables are the same object iff their identities are the same object."""
        return self

    # (tx): a key of the compiler's own dictionaries, equal where the program's keys are
    hash_key = refusal("hash", "{self} as a dictionary key is not traced")

    # ---- operations: what a Python method gets, behind `tx`, the frame that asks
    def getattr(self, tx: Frame, name: str) -> Variable:
        return tx.method_of(self, name)

    # object.__getattribute__, __setattr__ and __delattr__, called by name: (tx, name), with a value
    generic_getattr = refusal("attribute", "reading .{1} of {self} is not traced")
    setattr = generic_setattr = refusal("attribute", "setting .{1} of {self} is not traced")
    delattr = generic_delattr = refusal("attribute", "deleting .{1} of {self} is not traced")

    call = refusal("call", "calling {self} is not traced")  # (tx, args, kwargs)

    def call_method(self, tx: Frame, name: str, args: Args, kwargs: Named) -> Variable:
        method = getattr(self, "method_" + name, None)
        if method is not None:
            unfit = lambda: Break("method", f"the arguments of .{name}() of {self}")  # noqa: E731
            result = fitting(unfit, method, tx, args, kwargs)
            return tx.NONE if result is None else result
        found: Any = self.getattr(tx, name)
        if not found.native or found.instance is not self:  # (that one would come back here)
            return found.call(tx, args, kwargs)
        raise Break("method", f"the method .{name}() of {self} is not traced")

    def truth(self, tx: Frame) -> bool:
        if self.cls is None or hasattr(self.cls, "__bool__") or hasattr(self.cls, "__len__"):
            raise Break("truth", f"the truth of {self} is not known while tracing")
        return True

    def iterated(self, tx: Frame) -> Iterator[Variable]:
        """What its iterator gives: the `iterate` of what `tx.iter_of` knows."""
        return tx.iter_of(self).rest(tx)

    # (tx): an iterator of variables
    iterate = refusal("iteration", "iterating over {self} is not traced")
    length = refusal("length", "len({self}) is not traced")
    # (tx, key or item), and the value that is set
    getitem = refusal("item", "{self}[...] is not traced")
    setitem = refusal("item", "{self}[...] = ... is not traced")
    delitem = refusal("item", "del {self}[...] is not traced")

    # (part): what a node of the graph is given for this value; part(item) is that for an item of it
    argument = refusal("argument", "{self} as an argument of a torch function")

    # ---- rebuilding
    # (cg): emit code that pushes this value; only called when `source` cannot give it
    reconstruct = refusal("reconstruct", "{self} cannot be rebuilt after a graph break")

    def replay(self, cg: Codegen) -> None:
        """Push what it takes to repeat the writes of this frame, and tell `cg` what then writes."""
        if self.mutated:
            raise Break("reconstruct", f"writes to {self} cannot be repeated")

    def __repr__(self) -> str:
        """What a message calls it."""
        name = type(self).__name__.removesuffix("Var").lower()
        return f"{name}({self.source.name()})" if self.source is not None else name

    def contains(self, tx: Frame, item: Variable) -> bool:
        """By walking it, as Python does where a class has no `__contains__`."""
        return any(tx.same_or_equal(value, item) for value in self.iterate(tx))


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

    def as_constant(self) -> Any:
        return self.realize(current()).as_constant()

    def argument(self, part: Callable[[Variable], Any]) -> Any:
        return part(self.realize(current()))


class OpaqueVar(RealVar):
    """A real value that cannot be traced: it may be passed on; using it breaks the graph."""

    broken: Break

    def _refuse(self: Any, *args: Any) -> Any:
        raise self.broken

    refused = cast(Any, _refuse)
    as_constant = real = hash_key = getattr = setattr = delattr = call = call_method = refused
    truth = iterate = length = getitem = setitem = delitem = contains = argument = refused


def peek(variable: Variable) -> Variable:
    """What stands behind a Lazy at which somebody has looked; else the variable itself."""
    if type(variable) is Lazy and variable.variable is not None:
        return variable.variable
    return variable


class Null(Variable):
    """The NULL that CPython's call protocol pushes, and unbound slots that inlined comprehensions
    save."""

    stack_kind = assembler.NULL

    def reconstruct(self, cg: Codegen) -> None:
        cg.emit("PUSH_NULL")


NULL = Null()


# Of the binary operators' methods: __add__, __radd__, __iadd__...
BINARY = "add sub mul truediv floordiv mod pow matmul and or xor lshift rshift".split()
MISSING = object()
TRUSTED_PACKAGES = frozenset(
    """
    torch builtins collections abc typing functools enum dataclasses contextlib math operator
    itertools types inspect numbers copy warnings os sys re logging threading contextvars
    _contextvars numpy random time string weakref _weakref _thread _collections_abc _abc
    genericpath posixpath io packaging importlib
    """.split()
)
IMMUTABLE_TYPE, HEAP_TYPE = 1 << 8, 1 << 9  # Py_TPFLAGS_IMMUTABLETYPE, Py_TPFLAGS_HEAPTYPE
METHODS = (types.FunctionType, staticmethod, classmethod)
DESCRIPTORS_OF_C = (
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
    types.ClassMethodDescriptorType,
    types.GetSetDescriptorType,
    types.MemberDescriptorType,
)


def trusted(module_name: object) -> bool:
    """Is this module taken as unchangeable (torch, the standard library)?  A program may give a
    module any object as its name, or none."""
    # PyTorch: the same, by skip lists.
    return type(module_name) is str and module_name.partition(".")[0] in TRUSTED_PACKAGES


def is_programs(found: object) -> bool:
    """Is this a Python function of the program's, by where its globals are?"""
    inner = getattr(found, "__func__", found)
    return isinstance(inner, types.FunctionType) and not trusted(inner.__globals__.get("__name__"))


def in_c_or_library(found: object) -> bool:
    """Is this a method of C code, or one that a library wrote in Python?  A variable may then
    implement it; the program's own functions and properties are traced."""
    return isinstance(found, DESCRIPTORS_OF_C) or (
        isinstance(found, METHODS) and not is_programs(found)
    )


def can_change(cls: type) -> bool:
    """May a program write attributes of this class?  Those of C may not be written."""
    return bool(cls.__flags__ & HEAP_TYPE) and not cls.__flags__ & IMMUTABLE_TYPE


# What `lookup` was asked in this attempt.  (Module variables, as some callers have no frame; one
# frame is traced at a time.)  Classes whose MRO was walked, in order; and (class, name) -> what
# this class itself defines, or MISSING.
WALKED: dict[type, None] = {}
FOUND: dict[tuple[type, str], Any] = {}


def forget_lookups() -> None:
    WALKED.clear()
    FOUND.clear()


def mro_of(cls: type) -> tuple[type, ...]:
    """The classes in which attributes are looked up, which is guarded."""
    WALKED[cls] = None
    return cls.__mro__


def lookup(cls: type, name: str, owners: Iterable[type] | None = None) -> tuple[Any, Any]:
    """(owner, attribute) in the MRO, or in a part of it (`owners`); or (None, MISSING).  No
    descriptor is run.

    What it found, and where it found nothing, is guarded at the end (`guard_classes`).
    """
    mro = mro_of(cls)
    for owner in mro if owners is None else owners:
        found = FOUND[owner, name] = owner.__dict__.get(name, MISSING)
        if found is not MISSING:
            return owner, found
    return None, MISSING


def guard_classes(output: OutputGraph) -> None:
    """`lookup` must find the same again: each class on the way keeps its bases, what it does not
    define stays undefined, and what it defines stays the same kind of descriptor.  The value of a
    class attribute that is none is guarded where it is read."""
    for cls in filter(can_change, WALKED):
        output.guard(output.tree.pinned(cls), "MRO", "{0}.__mro__ == {pin}", cls.__mro__)
    for (cls, name), found in FOUND.items():
        if not can_change(cls):
            continue
        if found is MISSING:
            output.guard_absent(output.tree.pinned(cls).instance_dict(), name)
            continue
        source = output.tree.pinned(cls).child("class_item", name)
        if hasattr(type(found), "__get__") or found is None:  # `__hash__ = None`
            output.guard(source, "ID", "{0} is {pin}", found)
        elif "ID" not in source.guards and "EQUALS" not in source.guards:
            output.guard(source, "TYPE", "type({0}) is {pin}", type(found))
    forget_lookups()


def compared_by_identity(variable: Variable) -> bool:
    return lookup(variable.python_type(), "__eq__")[1] is object.__eq__
