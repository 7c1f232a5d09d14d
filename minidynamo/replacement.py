"""Replacement code: load the graph's inputs, call it, rebuild values, replay mutations, then return
or go on.

In:   the root frame after tracing and its `OutputGraph`.
Out:  a code object with the same parameters: a short prefix, then `RETURN_VALUE`; or, after a graph
      break, the original body with a jump to the instruction that was not traced and, behind it,
      calls of continuations: one for what follows, one for where it jumps, one for the handler that
      it is in.

    >>> dis.dis(replacement_code)       # LOAD_CONST graph; LOAD_FAST x; CALL; ...; RETURN_VALUE

Mirrors torch/_dynamo/resume_execution.py and symbolic_convert.py's create_call_resume_at (paper
sections 3.7 and 3.8).
"""

import dis
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from .bytecode import Instruction, assemble, disassemble, emit
from .bytecode.assembler import parameter_count
from .exceptions import SkipFrame
from .frame_hook import hand_over, tail
from .reconstruct import Codegen
from .resume import HANDLED, LASTI, NULL, VALUE, resume_code, unwind
from .symbolic_eval import evaluator
from .variables import base
from .variables.base import Handled, Lazy, OpaqueVar, Variable, peek
from .variables.constant import is_constant_value
from .variables.exceptions import ExceptionVar
from .variables.objects import ObjectVar
from .variables.symbolic import SymVar

V = sys.version_info[:2]
INSTANCES = (ObjectVar, ExceptionVar)  # not modules
NO_RESULT = (
    "STORE",
    "DELETE",
    "POP",
    "RETURN",
    "RAISE",
    "RERAISE",
    "JUMP",
    "END_FOR",
    "FOR_ITER",
    "UNPACK",
)  # what is on top then is no result


def rebuild(frame):
    """The `Codegen` that runs after the graph: values and mutations, then the return or the state
    at the split.

    Raises `Break` with the `step` that made it, where a value cannot be rebuilt (a generator that
    has started).
    """
    tail = Codegen(frame)
    tail.enter_contexts()
    if frame.split is None:
        tail.value(frame.returned)
        tail.mutations()
        tail.set_state(frame.output.state_after, frame.output.autocast_depth)
        tail.emit("RETURN_VALUE", None, -1)
    else:
        _push_state(tail, frame)
    return tail


class GraphCall(NamedTuple):
    """How the replacement code calls the compiled graph: nothing to call, if there is no graph."""

    function: Callable[..., Any] | None
    inputs: list[Variable]
    raised: Callable[[], None] | None  # called in the handler when `function` has raised


def replacement(frame, tail, compile_graph, tick=None):
    """The code object.  `compile_graph(outputs)` gives (callable or None, input variables, what to
    call if it raises); `tick()` counts calls."""
    graph, inputs, raised = compile_graph(tail.outputs)
    head = Codegen(frame)
    head.temps, head.prefix = tail.temps, tail.prefix
    if tick is not None:
        head.call_object(tick)
        head.emit("POP_TOP", None, -1)
    plain = []
    env = frame.output.shape_env
    symbols = {
        **tail.symbols,
        **{
            variable.node.name: variable.value.node._expr
            for variable in inputs
            if type(variable) is SymVar
        },
    }
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
    names = (
        tail.temps
        + [f"{head.prefix}g{n}" for n in range(len(tail.outputs))]
        + [head.prefix + symbol.name for symbol in symbols]
    )
    if frame.split is not None:  # nothing made here lives longer than in the original
        for name in names:
            tail.emit("DELETE_FAST", name)
    return _assemble(
        frame,
        head.instructions + tail.instructions,
        plain,
        names,
        max(head.max_depth, tail.max_depth),
    )


def _run_plainly(frame, raised):
    """The graph raised: the handler in front of the original body.  Nothing has happened yet but
    what the graph did, so plain Python repeats it, up to the error with its own message and line,
    or up to the program's own handler.
    # PyTorch: the graph's error leaves the frame, whatever `try` stood around the operation."""
    handler = Codegen(frame)
    handler.emit("PUSH_EXC_INFO", None, 2)
    handler.call_object(raised)
    cleanup = [
        Instruction("COPY", 3),
        Instruction("POP_EXCEPT"),
        Instruction("RERAISE", 1),
    ]  # `raised` raises: no longer handled
    for instruction in handler.instructions:
        instruction.exc = cleanup[0], 1, True
    for op in ("POP_TOP", "POP_TOP", "POP_EXCEPT"):
        handler.emit(op, None, -1)
    handler.set_state(frame.output.state_before)
    return cleanup + handler.instructions


def _push_state(tail, frame):
    """Stack, live locals, mutations; then write the locals.  The original instruction runs next."""
    position = frame.split[0]
    for name in frame.code.co_cellvars:
        if frame.info.may_be_deleted(position, name) or (
            name in frame.cells
            and frame.cells[name].content is None
            and frame.info.may_be_unbound(position, name)
        ):  # a free variable of the continuation, where reading it raises another error
            raise SkipFrame(f"the closure variable {name} may be unbound after a graph break")
    handling, slots = any(kind_of(item) == HANDLED for item in frame.stack), []
    for item in frame.stack:
        if handling and item is not base.NULL:
            # kept beside the stack until nothing can raise any more: exceptions are handled from
            # then on
            tail.value(item.exception if kind_of(item) == HANDLED else item)
            slots.append(tail.temp())
            tail.store_fast(slots[-1])
        elif not handling:
            tail.value(item)
    frame.kept = frozenset(
        name
        for name, value in frame.locals.items()
        if _holds(value) or id(value) in tail.variable_temps and type(value) in INSTANCES
    )
    live, stores = frame.info.live_before(position) | frame.kept, []
    for name in frame.code.co_varnames:
        value = frame.locals.get(name)
        if value is None or name not in live:
            continue
        source = value.source
        if source is not None and source.kind == "local" and source.key == name:
            continue
        tail.value(value)
        stores.append(name)
    tail.mutations()
    tail.set_state(frame.output.state_after, frame.output.autocast_depth)
    for name in reversed(stores):
        tail.store_fast(name)
    for (
        name,
        was,
    ) in frame.bound.items():
        # what the traced part unbound must not reappear, nor live on where it is bound anew and not
        # read
        value = frame.locals.get(name)
        if (
            value is None or name not in live and value.source is not was.source and _holds(was)
        ) and name not in frame.code.co_cellvars:
            tail.emit("DELETE_FAST", name)
    for item in frame.stack if handling else ():
        if item is base.NULL:
            tail.push_null()
            continue
        tail.load_fast(slots.pop(0))
        if kind_of(item) == HANDLED:
            tail.emit("PUSH_EXC_INFO", effect=1)
            tail.emit("POP_TOP", effect=-1)


def _holds(value):
    """Does this local hold an argument whose end the program may notice (a lock, a temporary file),
    whether it is read again or not?  An object made here can be noticed only once it is rebuilt for
    something else."""
    return (
        value.source is not None
        and value.source.kind == "local"
        and isinstance(peek(value), (Lazy, ObjectVar, OpaqueVar))
        and not (
            type(peek(value)) is Lazy
            and (is_constant_value(value.value) or issubclass(type(value.value), torch.Tensor))
        )
    )


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
        more = Continuations(frame, body, *frame.info.natives[frame.split[0]])
        body, varnames, depth = (
            more.body(start, prefix, plain),
            varnames + more.names,
            depth + more.depth,
        )
    count = parameter_count(code)
    return assemble(
        code,
        body,
        varnames=varnames,
        stacksize=max(code.co_stacksize, depth) + 4,
        co_argcount=count,
        co_posonlyargcount=0,
        co_kwonlyargcount=0,
        co_flags=code.co_flags & ~(4 | 8),
    )


class Continuations:
    """The original body with a jump to the instruction that was not traced (native ones `begin` to
    `end`), and calls of resume functions."""

    def __init__(self, frame, body, begin, end):
        self.frame, self.code, self.natives, self.begin, self.end = (
            frame,
            frame.code,
            list(body),
            begin,
            end,
        )
        self.index = {id(instruction): n for n, instruction in enumerate(body)}
        self.kinds = [kind_of(item) for item in frame.stack]
        self.bound = {name for name, value in frame.locals.items() if value is not base.NULL}
        self.names = tuple(f".s{n}" for n in range(len(self.kinds) + 8))
        self.depth = len(self.kinds) + len(self.bound) + len(self.code.co_cellvars) + 8
        # An exception of a resume function leaves this frame, too, without a line of it in the
        # traceback: its own is where the program is.
        self.passed = [
            Instruction("COPY", 1),
            *emit.load_attr("__traceback__"),
            *emit.load_attr("tb_next"),
            Instruction("COPY", 2),
            *emit.store_attr("__traceback__"),
            Instruction("RERAISE", 0),
        ]

    def body(self, start, prefix, plain):
        """The instructions: `prefix`, behind the first `start`, jumps to `begin`; behind `end` and
        in the handler around it stand the calls."""
        natives, native, out = self.natives, self.natives[self.end], list(self.natives)
        appended, target = self.passed, native.arg if isinstance(native.arg, Instruction) else None
        fall = self.after(self.end + 1)
        if native.op == "FOR_ITER" and V >= (
            3,
            12,
        ):  # its exit must reach END_FOR; the loop's continuation stands behind it
            place = self.index[id(target)] + (1 if V < (3, 13) else 2)
            out[place:place] = self.after(place, exhausted=True) or []
            target = None
        out[self.end + 1 : self.end + 1] = fall or []
        taken = self.after(self.index[id(target)], jump=True) if target is not None else None
        if taken is not None:
            if "BACKWARD" in native.op:  # the block stands behind: jump forward to it
                native.op = native.op.replace("BACKWARD", "FORWARD")
            native.arg, appended = taken[0], taken + appended
        if native.exc and not self.leaves(native.exc):
            handler, depth, lasti = native.exc
            caught = self.call(
                self.index[id(handler)], self.kinds[:depth] + [LASTI] * lasti + [VALUE], native.pos
            )
            appended = caught + appended
            for instruction in natives[self.begin : self.end + 1]:
                instruction.exc = caught[0], depth, lasti
        jump = Instruction("JUMP_FORWARD", natives[self.begin], pos=natives[self.begin].pos)
        if V >= (3, 13) and native.op in (
            "POP_JUMP_IF_TRUE",
            "POP_JUMP_IF_FALSE",
            "UNARY_NOT",
        ):  # these take a bool, ours may be a tensor
            jump.arg = Instruction("TO_BOOL", exc=native.exc, pos=native.pos)
            out.insert(out.index(natives[self.begin]), jump.arg)
        return out[:start] + prefix + [jump] + plain + out[start:] + appended

    def leaves(self, exc):
        """Does this handler only end the handling of another exception, and let its own leave the
        frame?"""
        while exc is not None and exc[0].op != "PUSH_EXC_INFO":
            n = self.index[id(exc[0])]
            while self.natives[n].op != "RERAISE":
                n += 1
            exc = self.natives[n].exc
        return exc is None

    def after(self, where, jump=False, exhausted=False):
        """Instructions that go on at native instruction `where` after this one has fallen through,
        or has jumped; None to go on in this frame.

        exhausted: a FOR_ITER that ended; from 3.12 on it has popped its iterator and skipped
        END_FOR itself.
        """
        natives, native, kinds = self.natives, self.natives[self.end], list(self.kinds)
        if (
            where >= len(natives)
            or native.op
            in ("RETURN_VALUE", "RAISE_VARARGS", "RERAISE", "LOAD_METHOD", "LOAD_SUPER_ATTR")
            or native.flags
        ):
            return None
        target = natives[where]
        if (
            target.op in ("END_FOR", "RETURN_VALUE")
            or target.op == "POP_TOP"
            and natives[where - 1].op == "END_FOR"
        ):
            return None
        if exhausted:
            kinds.pop()
        for n in range(self.begin, self.end + 1) if not exhausted else ():
            effect = _effect(natives[n], jump and n == self.end)
            if effect < 0:
                del kinds[effect:]
            else:
                kinds += [VALUE] * effect
        if kinds and not exhausted and not native.op.startswith(NO_RESULT):
            kinds[-1] = VALUE
        if native.op == "BEFORE_WITH":
            kinds[-2] = VALUE
        return self.call(where, kinds, target.pos)

    def call(self, where, kinds, pos):
        """Instructions that empty the stack and return what the resume function for native
        instruction `where` returns."""
        code, info = self.code, self.frame.info
        position = next((n for n, (first, last) in enumerate(info.natives) if first >= where), None)
        if position is None:
            return None
        made = resume_code(
            code, where, kinds, (info.live_before(position) | self.frame.kept) & self.bound
        )
        temps = self.names[: len(kinds)]
        taken = [temp for temp, kind in zip(temps, kinds) if kind in (VALUE, HANDLED)]
        args = []
        for name in [
            *made.co_varnames[: made.co_argcount - len(taken)],
            *taken,
        ]:  # moved: the caller must not keep what the rest lets go
            args += emit.load_fast(name) + emit.delete_fast(name)
        args += emit.build_list(made.co_argcount)
        function = emit.make_function(made, code.co_cellvars + code.co_freevars)
        if code.co_name.startswith(
            "<resume of"
        ):  # `hand_over`, which called it, calls what it returns
            call = emit.load_const(tail) + function + args + emit.build_tuple(3)
        else:
            call = emit.call(emit.load_const(hand_over), function, args)
            call[-1].exc = self.passed[0], 0, False
        out = unwind(kinds, temps) + call + emit.return_value()
        for instruction in out:
            instruction.pos = pos
        return out


def kind_of(item):
    """What `resume` calls a slot of the stack that holds this."""
    if type(item) is Handled:
        return VALUE if item.exception is None else HANDLED
    return NULL if item is base.NULL else LASTI if item is evaluator.LASTI else VALUE


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
