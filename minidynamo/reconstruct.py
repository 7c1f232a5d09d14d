"""Code that rebuilds values and replays mutations: from variables back to Python.

In:   variables, when the graph has run.   Out: instructions, in `Codegen.instructions`.

    >>> cg = Codegen(frame)
    >>> cg.value(frame.returned)        # LOAD_FAST .mg0; LOAD_CONST 1; BUILD_TUPLE 2

All new values are pushed before the first mutation is written, so that a swap reads the old state
on both sides. Mirrors torch/_dynamo/codegen.py and side_effects.py (paper section 3.6).
"""

import collections
import functools
import math
import sys
import types
from collections.abc import Callable
from typing import Any

import torch

from miniinductor.sizes.printing import python_code

from . import frame_hook, runtime
from .bytecode import Instruction, emit
from .exceptions import SkipFrame
from .variables.base import Lazy, Variable
from .variables.constant import ConstantVar, is_constant_value
from .variables.containers import DictVar, ListVar, SetVar, SliceVar, TupleVar
from .variables.functions import CellVar, PartialVar
from .variables.iterators import IteratorVar
from .variables.objects import ObjectVar

V, NONE = sys.version_info[:2], ConstantVar(None)
SHARED = (
    ListVar,
    DictVar,
    SetVar,
    ObjectVar,
    CellVar,
    IteratorVar,
)  # objects whose identity the program can see


BY_CALL = {
    "raw_dict": object.__getattribute__,
    "dict_item": dict.__getitem__,
    "list_item": list.__getitem__,
    "tuple_item": tuple.__getitem__,
    "stride": torch.Tensor.stride,
    "getattr": getattr,
    "behind": runtime.behind,
}  # kinds of sources -> function of the base and the key
BY_ATTRIBUTE = {
    "attr": None,
    "dict": "__dict__",
    "cell": "cell_contents",
    "closure": "__closure__",
    "class_item": "__dict__",
}


WRITES = {"STORE_SUBSCR": -3, "STORE_DEREF": -1, "STORE_ATTR": -2}  # what they do to the stack


def replacer_of(variable: Any) -> Callable[..., None]:
    """What gives a container other items in place."""
    if isinstance(variable, DictVar):
        return runtime.replace_dict
    if variable.cls is collections.deque and not variable.resized:
        return runtime.replace_each
    return runtime.replace_items


def is_literal(variable):
    """Is it a tuple that may be a constant of the replacement code?"""
    return (
        variable.cls is tuple
        and not any(type(peek(v)) is Lazy for v in variable.items)
        and variable.is_constant()
        and all(is_constant_value(peek(v).as_constant()) for v in variable.items)
    )


class Codegen:
    """Emits instructions and keeps count of the stack."""

    def __init__(self, frame):
        self.frame, self.code, self.output = frame, frame.code, frame.output
        self.instructions, self.temps, self.variable_temps, self.outputs = [], [], {}, []
        # name -> symbol of the sizes that are used; the head reads them before the graph runs
        self.symbols = {}
        self.depth = self.max_depth = 0
        self.prefix = ".m"
        while any(name.startswith(self.prefix) for name in self.code.co_varnames):
            self.prefix += "_"
        self.constants = {}
        self.building, self.late = (
            set(),
            [],
        )  # late: iterators to be positioned once the lists that they walk are written
        # (instruction, argument) of the writes to come, whose values are on the stack
        self.writes: list[tuple[str, Any]] = []
        self.pins = {pin.key: pin.value for pin in self.output.tree.pins.values()}

    # ---- instructions
    def emit(self, op, arg=None, effect=0, flags=0):
        self.instructions.append(Instruction(op, arg, flags))
        self.depth += effect
        self.max_depth = max(self.max_depth, self.depth + 2)

    def load_const(self, value):
        self.emit("LOAD_CONST", value, 1)

    def load_fast(self, name):
        self.emit("LOAD_FAST", name, 1)

    def store_fast(self, name):
        self.emit("STORE_FAST", name, -1)

    def load_attr(self, name):
        self.emit("LOAD_ATTR", name)

    def push_null(self):
        self.emit("PUSH_NULL", None, 1)

    def start_call(self, load):
        """The callable; its arguments follow, then `finish_call`."""
        if V >= (3, 13):
            load()
            self.push_null()
        else:
            self.push_null()
            load()

    def finish_call(self, count):
        self.instructions += emit.call_n(count)
        self.depth -= count + 1

    def call_object(self, function, *args):
        """Call a fixed object.  An argument is a variable, or something to call that pushes it."""
        self.finish_call(self.push_call(function, *args))

    def push_call(self, function, *args):
        """Everything that `finish_call` needs; the number of arguments."""
        self.start_call(lambda: self.load_const(function))
        for arg in args:
            self.value(arg) if isinstance(arg, Variable) else arg()
        return len(args)

    def call_object_kw(self, function, args, kwargs):
        self.push_null()
        self.load_const(function)
        if V >= (3, 13):
            self.emit("SWAP", 2)
        self.value(TupleVar(args))
        self.value(DictVar({k: (ConstantVar(k), v) for k, v in kwargs.items()}))
        self.emit("CALL_FUNCTION_EX", 1, -3)

    def temp(self):
        name = f"{self.prefix}{len(self.temps)}"
        self.temps.append(name)
        return name

    # ---- values
    def value(self, variable):
        """Push the value of `variable`."""
        if type(variable) is Lazy:
            if variable.variable is None:
                self.load_source(variable.source)
                return
            variable = variable.variable
        known = self.variable_temps.get(id(variable))
        if known is not None:
            self.load_fast(known[0])
        elif type(variable) is CellVar:
            self.cell(variable)
        elif variable.source is not None:
            self.load_source(variable.source)
        elif (
            isinstance(variable, SHARED)
            or isinstance(variable, (TupleVar, SliceVar, PartialVar))
            and not is_literal(variable)
        ):
            if id(variable) in self.building:
                raise SkipFrame("a container that contains itself")
            self.building.add(id(variable))
            variable.reconstruct(self)
            self.building.discard(id(variable))
            self.remember(variable)
        else:
            variable.reconstruct(self)

    def remember(self, variable):
        name = self.temp()
        self.emit("COPY", 1, 1)
        self.store_fast(name)
        self.variable_temps[id(variable)] = (name, variable)

    def load_source(self, source):
        kind, key = source.kind, source.key
        if kind == "local":
            self.emit("LOAD_DEREF" if key in self.code.co_cellvars else "LOAD_FAST", key, 1)
            return
        if kind == "free":
            self.emit("LOAD_DEREF", key[1], 1)
            return
        if kind == "pinned":
            self.pinned(source.value)
            return
        if kind in BY_CALL:
            self.call_object(
                BY_CALL[kind],
                lambda: self.load_source(source.base),
                lambda: self.load_const("__dict__" if kind == "raw_dict" else key),
            )
            return
        if kind == "call":
            self.start_call(lambda: self.load_source(source.base))
            self.finish_call(0)
            return
        self.load_source(source.base)
        if kind in BY_ATTRIBUTE:
            self.load_attr(BY_ATTRIBUTE[kind] or key)
        if kind not in ("attr", "dict", "cell"):
            self.load_const(self.pins[key] if kind == "pinned_item" else key)
            self.emit("BINARY_SUBSCR", None, -1)

    def pinned(self, value):
        """An object that the entry holds; a stateless module made in the frame is made anew in each
        call, once."""
        maker = self.output.makers.get(id(value))
        if maker is None:
            self.load_const(value)
        elif id(value) in self.variable_temps:
            self.load_fast(self.variable_temps[id(value)][0])
        else:
            self.call_object(maker)
            self.variable_temps[id(value)] = self.temp(), value
            self.emit("COPY", 1, 1)
            self.store_fast(self.variable_temps[id(value)][0])

    def load_graph_output(self, variable):
        if variable not in self.outputs:
            self.outputs.append(variable)
        self.load_fast(f"{self.prefix}g{self.outputs.index(variable)}")

    def symbolic(self, expr):
        """A number over the inputs' sizes."""
        if expr in self.output.unbacked:
            self.load_graph_output(self.output.unbacked[expr])
            return
        if expr.is_Symbol:
            self.symbols[expr.name] = expr
            self.load_fast(self.prefix + expr.name)
            return
        symbols = sorted(expr.free_symbols, key=lambda s: s.name)
        self.call_object(
            size_function(python_code(expr), tuple(s.name for s in symbols)),
            *[functools.partial(self.symbolic, s) for s in symbols],
        )

    def build(self, op, values):
        for value in values:
            self.value(value)
        self.emit(op, len(values), 1 - len(values))

    def sequence(self, variable):
        cls, items = variable.cls, lambda: self.build("BUILD_TUPLE", variable.items)
        if is_literal(variable):
            self.load_const(
                self.constants.setdefault(id(variable), variable.as_constant())
            )  # one object, however often it is loaded
        elif cls is list:
            self.build("BUILD_LIST", variable.items)
        elif cls is tuple:
            items()
        elif cls is collections.deque:
            self.call_object(cls, items, ConstantVar(variable.extra))
        elif hasattr(cls, "_fields"):
            self.call_object(tuple.__new__, lambda: self.load_const(cls), items)
        else:
            self.call_object(cls, items)

    def dictionary(self, variable):
        items = functools.partial(self.mapping, variable.items)
        if variable.cls is dict:
            items()
        else:
            self.call_object(
                variable.cls,
                *([] if variable.cls is collections.OrderedDict else [variable.factory or NONE]),
                items,
            )

    def mapping(self, items):
        for key, value in items.values():
            self.value(key)
            self.value(value)
        self.emit("BUILD_MAP", len(items), 1 - 2 * len(items))

    def set(self, variable):
        if variable.cls is frozenset:
            self.call_object(frozenset, lambda: self.build("BUILD_TUPLE", variable.order_to_add()))
        else:
            self.build("BUILD_SET", variable.order_to_add())

    def object(self, variable):
        if variable.value is not None:
            self.load_const(variable.value)
            return
        cls, slots, payload = (
            functools.partial(self.load_const, variable.cls),
            variable.slots,
            variable.payload,
        )
        fields = functools.partial(
            self.mapping, variable.fields.items if variable.fields is not None else {}
        )
        if issubclass(variable.cls, BaseException):
            if "__traceback__" in slots:
                self.value(slots["__traceback__"])  # refuses, unless it was set to None
                self.emit("POP_TOP", None, -1)
            self.call_object(
                runtime.new_exception,
                cls,
                lambda: self.build("BUILD_TUPLE", variable.init_args or []),
                fields,
                slots.get("__cause__", NONE),
                slots.get("__context__", NONE),
                slots.get("__suppress_context__", ConstantVar(False)),
            )
            return
        self.call_object(
            runtime.new_object,
            cls,
            fields,
            lambda: self.mapping(
                {n: (ConstantVar(n), v) for n, v in slots.items() if v is not None}
            ),
            NONE if payload is None else functools.partial(self.contents, payload),
        )

    def contents(self, variable):
        """Items of a container as a dict or tuple."""
        if isinstance(variable, DictVar):
            self.mapping(variable.items)
        else:
            self.build(
                "BUILD_TUPLE",
                variable.items
                if isinstance(variable.items, list)
                else list(variable.items.values()),
            )

    def cell(self, variable):
        if isinstance(variable.cell, str):  # the root's own cell, or one of its free variables
            self.emit(emit.load_cell()[0].op, variable.cell, 1)
        elif variable.source is not None:
            self.load_source(variable.source)
        else:
            self.call_object(types.CellType)
            self.remember(variable)
            if variable.content is not None:  # after `remember`: a closure may refer to itself
                self.value(variable.content)
                self.emit("COPY", 2, 1)
                self.emit("STORE_ATTR", "cell_contents", -2)

    def function(self, variable):
        if variable.fn is not None:
            self.load_const(variable.fn)
            return
        plain = not (
            variable.defaults or variable.kwdefaults or variable.attrs or variable.annotations
        )

        def made():
            self.call_object(
                types.FunctionType,
                *[
                    functools.partial(self.load_const, part)
                    for part in (
                        variable.code,
                        variable.globals,
                        variable.name.rpartition(".")[2],
                        None,
                    )
                ],
                lambda: self.build("BUILD_TUPLE", variable.closure),
            )

        if plain and variable.name == variable.code.co_qualname:
            made()
        else:
            self.call_object(
                runtime.new_function,
                made,
                TupleVar(list(variable.defaults)) if variable.defaults else NONE,
                lambda: self.mapping(
                    {k: (ConstantVar(k), v) for k, v in variable.kwdefaults.items()}
                ),
                ConstantVar(variable.name),
                lambda: self.mapping(variable.attrs.items if variable.attrs is not None else {}),
                variable.annotations or NONE,
            )
        self.remember(variable)

    # ---- side effects
    def mutations(self) -> None:
        """Push everything that mutations need, then write it, the last one first."""
        start = self.depth
        inside = {
            id(variable.payload)
            for variable in self.output.sourced
            if isinstance(variable, ObjectVar)
        }
        for variable in list(self.output.sourced):
            if isinstance(variable, ObjectVar):
                self.write_slots(variable)
            elif variable.mutated:
                self.write_contents(variable, id(variable) in inside)
        for values in self.output.globals.values():
            for name, value in reversed(values.written.items()):
                self.value(value)
                self.load_const(values.values)
                self.load_const(name)
                self.writes.append(("STORE_SUBSCR", None))
        for cell in self.mutated_cells():
            self.write_cell(cell)
        for op, arg in reversed(self.writes):
            if op == "CALL":
                self.finish_call(arg)
                self.emit("POP_TOP", None, -1)
            else:
                self.emit(op, arg, WRITES[op])
        for iterator in self.late:
            self.call_object(runtime.position, iterator, ConstantVar(iterator.index))
            self.emit("POP_TOP", None, -1)
        assert self.depth == start, "mutations left the stack unbalanced"

    def call_later(self, function: Any, *args: Any) -> None:
        """A call that writes: its arguments are pushed now."""
        self.writes.append(("CALL", self.push_call(function, *args)))

    def write_slots(self, variable: ObjectVar) -> None:
        if not variable.mutated or variable.source is None:
            return
        for name, value in variable.slots.items():
            if value is None:
                self.call_later(object.__delattr__, variable, ConstantVar(name))
            else:
                self.call_later(object.__setattr__, variable, ConstantVar(name), value)

    def write_contents(self, variable: Any, inside: bool) -> None:
        """inside: it is what an instance of a subclass of list or dict holds."""
        if isinstance(variable, ListVar) and variable.cls is list:
            everything = functools.partial(self.load_const, slice(None))
            items = functools.partial(self.build, "BUILD_LIST", variable.items)
            self.write_item(variable, inside, everything, items)
        elif isinstance(variable, DictVar) and not variable.rewritten:
            # written back last first: new keys keep their order
            for host, key in reversed(variable.written.items()):
                name = functools.partial(self.value, key)
                item = functools.partial(self.value, variable.items[host][1])
                self.write_item(variable, inside, name, item)
        elif isinstance(variable, SetVar):
            writes = [TupleVar([ConstantVar(name), *v]) for name, v in variable.written]
            self.call_later(runtime.write_set, variable, TupleVar(writes))
        else:
            contents = functools.partial(self.contents, variable)
            self.call_later(replacer_of(variable), variable, contents)

    def write_item(
        self, variable: Any, inside: bool, key: Callable[[], None], value: Callable[[], None]
    ) -> None:
        """variable[key] = value, without a method of the class whose instance this is the inside
        of: the trace has run it."""
        if inside:
            self.call_later(variable.cls.__setitem__, variable, key, value)
            return
        value()
        self.value(variable)
        key()
        self.writes.append(("STORE_SUBSCR", None))

    def write_cell(self, cell: CellVar) -> None:
        if cell.content is None:
            self.call_later(runtime.empty, cell)
        elif isinstance(cell.cell, str):
            self.value(cell.content)
            self.writes.append(("STORE_DEREF", cell.cell))
        else:
            self.value(cell.content)
            self.value(cell)
            self.writes.append(("STORE_ATTR", "cell_contents"))

    def mutated_cells(self):
        own = [cell for cell in self.frame.cells.values() if cell.mutated]
        others = [
            variable
            for variable, _ in self.output.memo.values()
            if type(variable) is CellVar and variable.mutated and variable not in own
        ]
        return own + others

    def set_state(self, values, nesting=0):
        """The thread's grad mode and the like: those that the traced code left changed, or all as
        they were before it."""
        calls = [(setter, *key, final) for (setter, key), final in values.items()]
        calls += [
            (torch.autocast_increment_nesting if nesting > 0 else torch.autocast_decrement_nesting,)
        ] * abs(nesting)
        for function, *args in calls:
            self.call_object(function, *[functools.partial(self.load_const, arg) for arg in args])
            self.emit("POP_TOP", None, -1)

    def enter_contexts(self):
        """Those that the traced code entered and has not left: the graph, which may be none, leaves
        them at its end."""
        for context in self.output.entered:
            self.set_state(context.state)
            self.call_object(
                runtime.entered,
                functools.partial(self.load_const, context.make),
                ConstantVar(context.arg),
            )
            self.remember(context)
            self.emit("POP_TOP", None, -1)


@functools.lru_cache(1000)
def size_function(text, names):
    """The function of symbols that computes `text`; never compiled itself."""
    function = eval(
        compile(f"lambda {', '.join(names)}: {text}", "<minidynamo sizes>", "eval"), {"math": math}
    )
    frame_hook.set_cache(function.__code__, None)
    return function


def peek(variable):
    return variable.peek() if type(variable) is Lazy else variable
