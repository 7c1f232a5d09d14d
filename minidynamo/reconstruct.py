"""Replacement code: load the graph's inputs, call it, rebuild values, replay mutations, then return or go on.

In:   the root frame after tracing and its `OutputGraph`.
Out:  a code object with the same parameters: a short prefix, then `RETURN_VALUE`; or, after a graph break, the original
      body with a jump to the instruction that was not traced and, behind it, a call of the continuation.

    >>> dis.dis(replacement_code)       # LOAD_CONST graph; LOAD_FAST x; CALL; UNPACK_SEQUENCE; ...; RETURN_VALUE

All new values are pushed before the first mutation is written, so that a swap reads the old state on both sides.
Mirrors torch/_dynamo/codegen.py, side_effects.py and resume_execution.py (paper sections 3.6 and 3.8).
"""
import collections
import dis
import functools
import math
import sys
import types

import torch

from . import frame_hook, runtime
from .bytecode import Instruction, assemble, disassemble
from .exceptions import SkipFrame
from .frame_hook import hand_over, tail
from .resume import resume_code
from .symbolic_numbers import python_code
from .variables.base import NULL, Lazy, OpaqueVar
from .variables.constant import ConstantVar, is_constant_value
from .variables.containers import DictVar, ListVar, SetVar, TupleVar
from .variables.functions import CellVar, PartialVar
from .variables.iterators import IteratorVar
from .variables.objects import ObjectVar
from .variables.symbolic import SymVar

V = sys.version_info[:2]
SHARED = (ListVar, DictVar, SetVar, ObjectVar, CellVar, IteratorVar)      # objects whose identity the program can see
NO_RESULT = ("STORE", "DELETE", "POP", "RETURN", "RAISE", "RERAISE", "JUMP", "END_FOR")


class Codegen:
    """Emits instructions and keeps count of the stack."""

    def __init__(self, frame):
        self.frame, self.code, self.output = frame, frame.code, frame.output
        self.instructions, self.temps, self.variable_temps, self.outputs = [], [], {}, []
        self.symbols = {}               # name -> symbol of the sizes that are used; the head reads them before the graph runs
        self.depth = self.max_depth = 0
        self.prefix = ".m"
        while any(name.startswith(self.prefix) for name in self.code.co_varnames):
            self.prefix += "_"
        self.constants = {}
        self.building, self.late = set(), []        # late: iterators to be positioned once the lists that they walk are written
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
        if V < (3, 12):
            self.emit("PRECALL", count)
        self.emit("CALL", count, -count - 1)

    def call_nullary(self):
        """Call the callable on top of the stack."""
        temp = self.temp()
        self.store_fast(temp)
        self.start_call(lambda: self.load_fast(temp))
        self.finish_call(0)

    def call_object(self, function, *args):
        self.start_call(lambda: self.load_const(function))
        for arg in args:
            self.value(arg)
        self.finish_call(len(args))

    def call_helper(self, name, *args):
        self.call_object(getattr(runtime, name), *args)

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
        elif isinstance(variable, SHARED) or isinstance(variable, (TupleVar, PartialVar)) and not variable.is_constant():
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
        if kind in ("raw_dict", "dict_item", "list_item", "tuple_item"):
            function = {"raw_dict": object.__getattribute__, "dict_item": dict.__getitem__, "list_item": list.__getitem__,
                        "tuple_item": tuple.__getitem__}[kind]
            self.start_call(lambda: self.load_const(function))
            self.load_source(source.base)
            self.load_const("__dict__" if kind == "raw_dict" else key)
            self.finish_call(2)
            return
        if kind == "stride":
            self.start_call(lambda: self.load_const(torch.Tensor.stride))
            self.load_source(source.base)
            self.load_const(key)
            self.finish_call(2)
            return
        if kind == "getattr":
            self.start_call(lambda: self.load_const(getattr))
            self.load_source(source.base)
            self.load_const(key)
            self.finish_call(2)
            return
        self.load_source(source.base)
        if kind == "attr":
            self.load_attr(key)
        elif kind == "dict":
            self.load_attr("__dict__")
        elif kind == "cell":
            self.load_attr("cell_contents")
        else:
            if kind in ("closure", "class_item"):
                self.load_attr("__closure__" if kind == "closure" else "__dict__")
            self.load_const(self.pins[key] if kind == "pinned_item" else key)
            self.emit("BINARY_SUBSCR", None, -1)

    def pinned(self, value):
        """An object that the entry holds; a stateless module made in the frame is made anew in each call, once."""
        maker = self.output.makers.get(id(value))
        if maker is None:
            self.load_const(value)
        elif id(value) in self.variable_temps:
            self.load_fast(self.variable_temps[id(value)][0])
        else:
            self.start_call(lambda: self.load_const(maker))
            self.finish_call(0)
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
        self.start_call(lambda: self.load_const(size_function(python_code(expr), tuple(sorted(s.name for s in expr.free_symbols)))))
        symbols = sorted(expr.free_symbols, key=lambda s: s.name)
        for symbol in symbols:
            self.symbolic(symbol)
        self.finish_call(len(symbols))

    def build(self, op, values):
        for value in values:
            self.value(value)
        self.emit(op, len(values), 1 - len(values))

    def sequence(self, variable):
        cls = variable.cls
        if variable.is_constant() and all(is_constant_value(v.as_constant()) for v in map(_peek, variable.items)) \
                and cls is tuple and not any(type(_peek(v)) is Lazy for v in variable.items):
            self.load_const(self.constants.setdefault(id(variable), variable.as_constant()))        # one object, however often it is loaded
        elif cls is list:
            self.build("BUILD_LIST", variable.items)
        elif cls is tuple:
            self.build("BUILD_TUPLE", variable.items)
        elif cls is collections.deque:
            self.start_call(lambda: self.load_const(cls))
            self.build("BUILD_TUPLE", variable.items)
            self.load_const(variable.extra)
            self.finish_call(2)
        elif hasattr(cls, "_fields"):
            self.start_call(lambda: self.load_const(tuple.__new__))
            self.load_const(cls)
            self.build("BUILD_TUPLE", variable.items)
            self.finish_call(2)
        else:
            self.start_call(lambda: self.load_const(cls))
            self.build("BUILD_TUPLE", variable.items)
            self.finish_call(1)

    def dictionary(self, variable):
        if variable.cls is dict:
            self.mapping(variable.items)
        elif variable.cls is collections.OrderedDict:
            self.start_call(lambda: self.load_const(collections.OrderedDict))
            self.mapping(variable.items)
            self.finish_call(1)
        else:
            self.start_call(lambda: self.load_const(variable.cls))
            self.value(variable.factory) if variable.factory is not None else self.load_const(None)
            self.mapping(variable.items)
            self.finish_call(2)

    def mapping(self, items):
        for key, value in items.values():
            self.value(key)
            self.value(value)
        self.emit("BUILD_MAP", len(items), 1 - 2 * len(items))

    def set(self, variable):
        if variable.cls is frozenset:
            self.start_call(lambda: self.load_const(frozenset))
            self.build("BUILD_TUPLE", list(variable.items.values()))
            self.finish_call(1)
        else:
            self.build("BUILD_SET", list(variable.items.values()))

    def object(self, variable):
        if variable.value is not None:
            self.load_const(variable.value)
            return
        if issubclass(variable.cls, BaseException):
            if "__traceback__" in variable.slots:
                self.value(variable.slots["__traceback__"])         # refuses, unless it was set to None
                self.emit("POP_TOP", None, -1)
            self.start_call(lambda: self.load_const(runtime.new_exception))
            self.load_const(variable.cls)
            self.build("BUILD_TUPLE", variable.init_args or [])
            self.mapping(variable.fields.items if variable.fields is not None else {})
            for name in ("__cause__", "__context__"):
                self.value(variable.slots.get(name, ConstantVar(None)))
            self.value(variable.slots.get("__suppress_context__", ConstantVar(False)))
            self.finish_call(6)
            return
        self.start_call(lambda: self.load_const(runtime.new_object))
        self.load_const(variable.cls)
        self.mapping(variable.fields.items if variable.fields is not None else {})
        self.mapping({n: (ConstantVar(n), v) for n, v in variable.slots.items() if v is not None})
        if variable.payload is None:
            self.load_const(None)
        elif isinstance(variable.payload, DictVar):
            self.mapping(variable.payload.items)
        else:
            items = variable.payload.items
            self.build("BUILD_TUPLE", items if isinstance(items, list) else list(items.values()))
        self.finish_call(4)

    def cell(self, variable):
        known = self.variable_temps.get(id(variable))
        if known is not None:
            self.load_fast(known[0])
        elif isinstance(variable.cell, str):            # the root's own cell, or one of its free variables
            self.emit("LOAD_CLOSURE" if V < (3, 13) else "LOAD_FAST", variable.cell, 1)
        elif variable.source is not None:
            self.load_source(variable.source)
        else:
            self.start_call(lambda: self.load_const(types.CellType))
            self.finish_call(0)
            self.remember(variable)
            if variable.content is not None:            # after `remember`: a closure may refer to itself
                self.value(variable.content)
                self.emit("COPY", 2, 1)
                self.emit("STORE_ATTR", "cell_contents", -2)

    def function(self, variable):
        if variable.fn is not None:
            self.load_const(variable.fn)
            return
        plain = not (variable.defaults or variable.kwdefaults or variable.attrs or variable.annotations)
        code = variable.code
        self.start_call(lambda: self.load_const(types.FunctionType))
        self.load_const(code)
        self.load_const(variable.globals)
        self.load_const(variable.name.rpartition(".")[2])
        self.load_const(None)
        for cell in variable.closure:
            self.cell(cell)
        self.emit("BUILD_TUPLE", len(variable.closure), 1 - len(variable.closure))
        self.finish_call(5)
        if not plain or variable.name != code.co_qualname:
            temp = self.temp()
            self.store_fast(temp)
            self.start_call(lambda: self.load_const(runtime.new_function))
            self.load_fast(temp)
            self.value(TupleVar(list(variable.defaults)) if variable.defaults else ConstantVar(None))
            self.mapping({k: (ConstantVar(k), v) for k, v in variable.kwdefaults.items()})
            self.load_const(variable.name)
            self.mapping(variable.attrs.items if variable.attrs is not None else {})
            self.value(variable.annotations or ConstantVar(None))
            self.finish_call(6)
        self.remember(variable)

    # ---- side effects
    def mutations(self):
        """Push everything that mutations need; return the instructions that write it, to be emitted afterwards."""
        commits, start = [], self.depth

        def commit(*instructions):
            commits.append((instructions, self.depth))

        store = (("STORE_SUBSCR", None),)
        for variable in list(self.output.sourced):
            if isinstance(variable, ObjectVar):
                for name, value in variable.slots.items() if variable.mutated and variable.source is not None else ():
                    helper = runtime.del_slot if value is None else runtime.set_slot
                    self.start_call(lambda: self.load_const(helper))
                    self.value(variable)
                    self.load_const(name)
                    if value is not None:
                        self.value(value)
                    commit(("call", 2 if value is None else 3))
            elif not variable.mutated:
                continue
            elif isinstance(variable, ListVar) and variable.cls is list:
                self.build("BUILD_LIST", variable.items)
                self.value(variable)
                self.load_const(slice(None))
                commit(*store)
            elif isinstance(variable, DictVar) and not variable.rewritten and variable.source.kind in ("dict", "raw_dict") or \
                    isinstance(variable, DictVar) and not variable.rewritten and variable.cls in (dict, collections.defaultdict) and variable.source.kind != "payload":
                for host in reversed(variable.written):         # written back last first: new keys keep their order
                    self.value(variable.items[host][1])
                    self.value(variable)
                    self.value(variable.written[host])
                    commit(*store)
            else:
                helper = runtime.replace_dict if isinstance(variable, DictVar) else runtime.replace_items
                self.start_call(lambda: self.load_const(helper))
                self.value(variable)
                if isinstance(variable, DictVar):
                    self.mapping(variable.items)
                else:
                    self.build("BUILD_TUPLE", variable.items if isinstance(variable.items, list) else list(variable.items.values()))
                commit(("call", 2))
        for values in self.output.globals.values():
            for name, value in reversed(values.written.items()):
                self.value(value)
                self.load_const(values.values)
                self.load_const(name)
                commit(*store)
        for cell in self.mutated_cells():
            if cell.content is None:
                raise SkipFrame("a closure variable was deleted")
            self.value(cell.content)
            if isinstance(cell.cell, str):
                commit(("STORE_DEREF", cell.cell))
            else:
                self.cell(cell)
                commit(("STORE_ATTR", "cell_contents"))
        for instructions, depth in reversed(commits):
            for op, arg in instructions:
                if op == "call":
                    self.finish_call(arg)
                    self.emit("POP_TOP", None, -1)
                else:
                    self.emit(op, arg, {"STORE_SUBSCR": -3, "STORE_DEREF": -1, "STORE_ATTR": -2}[op])
        for iterator in self.late:
            self.call_helper("position", iterator, ConstantVar(iterator.index))
            self.emit("POP_TOP", None, -1)
        assert self.depth == start, "mutations left the stack unbalanced"

    def mutated_cells(self):
        own = [cell for cell in self.frame.cells.values() if cell.mutated]
        others = [variable for variable, _ in self.output.memo.values() if type(variable) is CellVar and variable.mutated
                  and variable not in own]
        return own + others

    def restore_state(self, values):
        """The thread's grad mode and the like: those that the traced code left changed, or all as they were before it."""
        for (setter, key), final in values.items():
            self.start_call(lambda: self.load_const(setter))
            for part in key:
                self.load_const(part)
            self.load_const(final)
            self.finish_call(len(key) + 1)
            self.emit("POP_TOP", None, -1)
        depth = self.output.autocast_depth
        for _ in range(abs(depth)):
            self.call_object(torch.autocast_increment_nesting if depth > 0 else torch.autocast_decrement_nesting)
            self.emit("POP_TOP", None, -1)


@functools.lru_cache(1000)
def size_function(text, names):
    """The function of symbols that computes `text`; never compiled itself."""
    function = eval(compile(f"lambda {', '.join(names)}: {text}", "<minidynamo sizes>", "eval"), {"math": math})
    frame_hook.set_cache(function.__code__, None)
    return function


def _peek(variable):
    return variable.peek() if type(variable) is Lazy else variable


def rebuild(frame):
    """The `Codegen` that runs after the graph: values and mutations, then the return or the state at the split.

    Raises `Break` with the `step` that made it, where a value cannot be rebuilt (a generator that has started).
    """
    tail = Codegen(frame)
    if frame.split is None:
        tail.value(frame.returned)
        tail.mutations()
        tail.restore_state(frame.output.state_after)
        tail.emit("RETURN_VALUE", None, -1)
    else:
        _push_state(tail, frame)
    return tail


def replacement(frame, tail, compile_graph, tick=None):
    """The code object.  `compile_graph(outputs)` gives (callable or None, input variables, what to call if it raises);
    `tick()` counts calls."""
    graph, inputs, raised = compile_graph(tail.outputs)
    head = Codegen(frame)
    head.temps, head.prefix = tail.temps, tail.prefix
    if tick is not None:
        head.start_call(lambda: head.load_const(tick))
        head.finish_call(0)
        head.emit("POP_TOP", None, -1)
    plain = []
    env = frame.output.shape_env
    symbols = {**tail.symbols, **{variable.node.name: variable.value.node._expr for variable in inputs if type(variable) is SymVar}}
    symbols = list(dict.fromkeys(symbols.values()))
    for symbol in symbols:
        head.load_source(env.table[symbol].sources[0])
        head.store_fast(head.prefix + symbol.name)
    if graph is not None:
        plain = _run_plainly(frame, raised)
        start = len(head.instructions)
        head.start_call(lambda: head.load_const(graph))
        for variable in inputs:
            if type(variable) is SymVar:
                head.load_fast(head.prefix + variable.value.node._expr.name)
            else:
                head.load_source(variable.source)
        head.finish_call(len(inputs))
        for instruction in head.instructions[start:]:
            instruction.exc = plain[3], 0, False
        head.emit("UNPACK_SEQUENCE", len(tail.outputs), len(tail.outputs) - 1)
        for n in range(len(tail.outputs)):
            head.store_fast(f"{head.prefix}g{n}")
    names = tail.temps + [f"{head.prefix}g{n}" for n in range(len(tail.outputs))] + [head.prefix + symbol.name for symbol in symbols]
    if frame.split is not None:         # nothing made here lives longer than in the original
        for name in names:
            tail.emit("DELETE_FAST", name)
    return _assemble(frame, head.instructions + tail.instructions, plain, names, max(head.max_depth, tail.max_depth))


def _run_plainly(frame, raised):
    """The graph raised: the handler in front of the original body.  Nothing has happened yet but what the graph did, so plain
    Python repeats it, up to the error with its own message and line, or up to the program's own handler.
    # PyTorch: the graph's error leaves the frame, whatever `try` stood around the operation."""
    handler = Codegen(frame)
    handler.emit("PUSH_EXC_INFO", None, 2)
    handler.start_call(lambda: handler.load_const(raised))
    handler.finish_call(0)
    cleanup = [Instruction("COPY", 3), Instruction("POP_EXCEPT"), Instruction("RERAISE", 1)]      # `raised` raises: no longer handled
    for instruction in handler.instructions:
        instruction.exc = cleanup[0], 1, True
    for op in ("POP_TOP", "POP_TOP", "POP_EXCEPT"):
        handler.emit(op, None, -1)
    handler.restore_state(frame.output.state_before)
    return cleanup + handler.instructions


def _push_state(tail, frame):
    """Stack, live locals, mutations; then write the locals.  The original instruction runs next."""
    position = frame.split[0]
    for name in frame.code.co_cellvars:         # a free variable of the continuation, which raises another error
        if name in frame.cells and frame.cells[name].content is None and frame.info.may_be_unbound(position, name):
            raise SkipFrame(f"the closure variable {name} may be unbound after a graph break")
    for item in frame.stack:
        tail.value(item)
    live, stores = frame.info.live_before(position), []
    frame.kept = [name for name, value in frame.locals.items() if name not in live and _holds(value)]
    for name in frame.code.co_varnames:
        value = frame.locals.get(name)
        if value is None or name not in live and name not in frame.kept:
            continue
        source = value.source
        if source is not None and source.kind == "local" and source.key == name:
            continue
        tail.value(value)
        stores.append(name)
    tail.mutations()
    tail.restore_state(frame.output.state_after)
    for name in reversed(stores):
        tail.store_fast(name)
    for name in frame.code.co_varnames:         # what the traced part unbound must not reappear
        if name not in frame.locals and name in _parameters(frame.code) and name not in frame.code.co_cellvars:
            tail.emit("DELETE_FAST", name)


def _holds(value):
    """Does this local, which is not read again, hold an argument whose end the program may notice (a lock, a temporary file)?"""
    return value.source is not None and value.source.kind == "local" and isinstance(_peek(value), (Lazy, ObjectVar, OpaqueVar)) and \
        not (type(_peek(value)) is Lazy and (is_constant_value(value.value) or issubclass(type(value.value), torch.Tensor)))


def _parameters(code):
    return code.co_varnames[:parameter_count(code)]


def parameter_count(code):
    return code.co_argcount + code.co_kwonlyargcount + bool(code.co_flags & 4) + bool(code.co_flags & 8)


def _assemble(frame, prefix, plain, names, depth):
    code = frame.code
    body = disassemble(code)
    start = next(n for n, native in enumerate(body) if native.op == "RESUME") + 1
    first, varnames = body[start - 1], code.co_varnames + tuple(names)
    for instruction in prefix + plain:
        instruction.pos = first.pos
    if frame.split is None:
        body = body[:start] + prefix + plain + (body[start:] if plain else [])
    else:
        begin, end = frame.info.natives[frame.split[0]]
        body, extra_names, extra = _with_continuations(frame, body, start, begin, end, prefix, plain)
        varnames, depth = varnames + extra_names, depth + extra
    count = parameter_count(code)
    return assemble(code, body, varnames=varnames, stacksize=max(code.co_stacksize, depth) + 4, co_argcount=count,
                    co_posonlyargcount=0, co_kwonlyargcount=0, co_flags=code.co_flags & ~(4 | 8))


def _with_continuations(frame, body, start, begin, end, prefix, plain):
    """The original body: `prefix` jumps to instruction `begin`; behind `end`, calls of resume functions."""
    code, native = frame.code, body[end]
    kinds = ["n" if item is NULL else "v" for item in frame.stack]
    bound = {name for name, value in frame.locals.items() if value is not NULL}
    target = native.arg if isinstance(native.arg, Instruction) else None
    natives = list(body)
    index = {id(instruction): n for n, instruction in enumerate(natives)}
    names = [f".s{n}" for n in range(len(kinds) + 8)]
    out, appended = list(body), []
    fall = _continuation(frame, natives, begin, end, end + 1, kinds, bound, False)
    if native.op == "FOR_ITER" and V >= (3, 12):    # its exit must reach END_FOR; the loop's continuation stands behind it
        after = index[id(target)] + (1 if V < (3, 13) else 2)
        taken = _continuation(frame, natives, begin, end, after, kinds, bound, False, exhausted=True)
        if taken is not None:
            out[after:after] = taken
        target = None
    if fall is not None:
        out[end + 1:end + 1] = fall
    if target is not None:
        taken = _continuation(frame, natives, begin, end, index[id(target)], kinds, bound, True)
        if taken is not None:
            if "BACKWARD" in native.op:         # the block stands behind: jump forward to it
                native.op = native.op.replace("BACKWARD", "FORWARD")
            native.arg = taken[0]
            appended = taken
    jump = Instruction("JUMP_FORWARD", natives[begin])
    jump.pos = natives[begin].pos
    if V >= (3, 13) and native.op in ("POP_JUMP_IF_TRUE", "POP_JUMP_IF_FALSE", "UNARY_NOT"):   # these take a bool, ours may be a tensor
        jump.arg = Instruction("TO_BOOL", exc=native.exc, pos=native.pos)
        out.insert(out.index(natives[begin]), jump.arg)
    return out[:start] + prefix + [jump] + plain + out[start:] + appended, tuple(names), len(kinds) + len(bound) + len(code.co_cellvars) + 8


def _continuation(frame, natives, begin, end, where, kinds, bound, jump, exhausted=False):
    """Instructions that call the resume function for native instruction `where`, or None to go on in this frame.

    exhausted: a FOR_ITER that ended; from 3.12 on it has popped its iterator and skipped END_FOR itself.
    """
    code, native = frame.code, natives[end]
    if where >= len(natives) or native.op in ("RETURN_VALUE", "RAISE_VARARGS", "RERAISE", "LOAD_METHOD", "LOAD_SUPER_ATTR") or native.flags:
        return None
    target = natives[where]
    if target.op in ("END_FOR", "RETURN_VALUE", "POP_TOP") and (target.op == "END_FOR" or natives[where - 1].op == "END_FOR"):
        return None
    kinds = list(kinds)
    if exhausted:
        kinds.pop()
    for n in range(begin, end + 1 if not exhausted else begin):
        effect = _effect(natives[n], jump and n == end)
        if effect < 0:
            del kinds[effect:]
        else:
            kinds += ["v"] * effect
    if kinds and not exhausted and not native.op.startswith(NO_RESULT):
        kinds[-1] = "v"
    if native.op == "BEFORE_WITH":
        kinds[-2] = "v"
    canonical_target = next((n for n, (first, last) in enumerate(frame.info.natives) if first >= where), None)
    if canonical_target is None:
        return None
    live = {name for name in frame.info.live_before(canonical_target) if name in bound}
    if target.op == "RETURN_VALUE":
        return None
    made = resume_code(code, where, tuple(kinds), frozenset(live))
    if made is None:
        return None
    free = code.co_cellvars + code.co_freevars
    temps = [f".s{n}" for n in range(len(kinds))]
    out = [Instruction("STORE_FAST", temp) for temp in reversed(temps)]
    nested = code.co_name.startswith("<resume of")      # `hand_over`, which called it, calls what it returns
    call = [Instruction("LOAD_CONST", tail)] if nested else [Instruction("PUSH_NULL"), Instruction("LOAD_CONST", hand_over)]
    if V >= (3, 13):
        call.reverse()
    for name in free:
        call.append(Instruction("LOAD_CLOSURE" if V < (3, 13) else "LOAD_FAST", name))
    if free:
        call.append(Instruction("BUILD_TUPLE", len(free)))
    call.append(Instruction("LOAD_CONST", made))
    if V >= (3, 13):
        call += [Instruction("MAKE_FUNCTION")] + ([Instruction("SET_FUNCTION_ATTRIBUTE", 8)] if free else [])
    else:
        call.append(Instruction("MAKE_FUNCTION", 8 if free else 0))
    args = list(made.co_varnames[:made.co_argcount - kinds.count("v")]) + [t for t, kind in zip(temps, kinds) if kind == "v"]
    for name in args:       # moved, not copied: the caller must not keep what the rest of the function lets go
        call += [Instruction("LOAD_FAST", name), Instruction("DELETE_FAST", name)]
    call.append(Instruction("BUILD_LIST", len(args)))
    if nested:
        for name in frame.kept:
            call += [Instruction("LOAD_CONST", name), Instruction("LOAD_FAST", name)]
        call += [Instruction("BUILD_MAP", len(frame.kept)), Instruction("BUILD_TUPLE", 4)]
    else:
        call += ([Instruction("PRECALL", 2)] if V < (3, 12) else []) + [Instruction("CALL", 2)]
    call.append(Instruction("RETURN_VALUE"))
    out += call
    for instruction in out:
        instruction.pos = target.pos
    return out


def _effect(native, jump):
    opcode = dis.opmap[native.op]
    if isinstance(native.arg, Instruction):
        arg = 0
    elif native.op in ("LOAD_GLOBAL", "LOAD_ATTR", "LOAD_SUPER_ATTR"):
        arg = native.flags
    elif opcode >= dis.HAVE_ARGUMENT:
        arg = native.arg if isinstance(native.arg, int) and opcode not in dis.hasconst else 0
    else:
        arg = None
    return dis.stack_effect(opcode, arg, jump=jump)
