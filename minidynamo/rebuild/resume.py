"""Resume functions: the rest of a function after a graph break, as a function of its own.

In:   a code object, the instruction to go on at, what lies on the stack there, which locals are
      bound.
Out:  a code object whose parameters are those locals and stack values; calling it continues the
      original.

        def f(x):                       # stack at the break: [], locals: x, y
            y = x + 1
            print("hello")      <- graph break at this call
            return y * 2        <- <resume of f at line 4>(x, y) starts here

The body is kept whole and in order behind a short prefix, so loops, `with` and `try` blocks need no
special handling:

    COPY_FREE_VARS n; RESUME; <push the stack values>; <clear their slots>; JUMP_FORWARD target;
    <original body>

The original's cells and free variables arrive as free variables.  A resume function that is split
again goes on in another one of the *original* (`origins`), so that a loop that breaks in each turn
comes back to the same two or three code objects.

Mirrors torch/_dynamo/resume_execution.py (paper section 3.7).  Left out: generators, `except`
blocks (an exception that is being handled belongs to the thread), methods that call `super()`.
"""

import copy
import functools
import inspect
import types
import weakref
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

from ..bytecode import Instruction, assemble, assembler, disassemble
from ..bytecode.assembler import LASTI, NULL, VALUE, VERSION, stack_effect
from ..bytecode.canonical import END_FOR_OPS
from ..errors import SkipFrame
from ..frame._frame_hook import hand_over, tail_call

if TYPE_CHECKING:
    from ..evaluate.evaluator import RootFrame

GENERATOR_LIKE = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
# id(code) -> {(k, stack, live): resume code}; equal code objects may be of different files
_cache: dict[int, dict[Any, types.CodeType]] = {}
# id(resume code) -> (weak reference to the original, its index of each instruction or None)
origins: dict[int, tuple[Any, list[int | None]]] = {}


def is_resume_code(code: types.CodeType) -> bool:
    """Is this the code of a resume function?"""
    return code.co_name.startswith("<resume of")


def function_name(code: types.CodeType) -> str:
    """The name of the user's function, also for a resume function of it."""
    return code.co_name.split("<resume of ")[-1].split(" at line")[0]


class CannotSplit(SkipFrame):
    """No resume function can start here; the message says why.  The frame runs as plain Python,
    recorded as skipped."""


def closure_names(code: types.CodeType) -> tuple[str, ...]:
    """Variables that live in cells, its own and free ones: a resume function closes over all."""
    return code.co_cellvars + code.co_freevars


def _stack_names(stack: Sequence[str]) -> list[str]:
    """The parameters of the resume function for the values on the stack."""
    return [f".1s{i}" for i, kind in enumerate(stack) if kind == VALUE]


def restored(kind: str, name: str) -> list[Instruction]:
    """Code that pushes a stack slot of this kind again, a value from the local `name`."""
    if kind == NULL:
        return assembler.push_null()
    if kind == LASTI:  # any number will do, the traceback is made already
        return assembler.load_const(0)
    return assembler.load_fast(name)


def resume_code(
    code: types.CodeType, k: int, stack: Sequence[str], live: Collection[str]
) -> types.CodeType:
    """Code that continues `code` before its k-th instruction.

    stack: kinds from the bottom.  live: names of the bound locals to carry over (a local that may
    be unbound must not be named: CPython 3.12+ does not check). Raises CannotSplit.  The same
    arguments give the same code object, whose compiled entries are shared.
    """
    if id(code) in origins:
        reference, indices = origins[id(code)]
        original = reference()
        place = indices[k]
        if original is None or place is None:
            raise CannotSplit(f"{code.co_name}: what it continues is gone")
        return resume_code(original, place, stack, live)
    if id(code) not in _cache:
        _cache[id(code)] = {}
        weakref.finalize(code, _cache.pop, id(code), None)
    made = _cache[id(code)]
    key = (k, tuple(stack), frozenset(live))
    if key not in made:
        made[key] = _make_resume_code(code, *key)
    return made[key]


def _make_resume_code(
    code: types.CodeType, k: int, stack: Sequence[str], live: Collection[str]
) -> types.CodeType:
    body = disassemble(code)
    check_splittable(code, body, k)
    index = {id(ins): n for n, ins in enumerate(body)}
    free = closure_names(code)
    plain = [name for name in code.co_varnames if name not in free]
    params = [name for name in plain if name in live] + _stack_names(stack)
    unbound = [name for name in plain if name not in live]
    prefix = _prefix(stack, body[k], len(free))
    line = _line_at(code, body, k)
    rest = [ins for ins in body if ins.op not in ("COPY_FREE_VARS", "MAKE_CELL")]
    made = assemble(
        code,
        prefix + rest,
        co_varnames=tuple(params + unbound),
        co_cellvars=(),
        co_freevars=free,
        co_stacksize=max(code.co_stacksize, len(stack)) + 3,
        parameters=len(params),
        co_name=f"<resume of {function_name(code)} at line {line}>",
    )
    origins[id(made)] = weakref.ref(code), [index.get(id(ins)) for ins in prefix + rest]
    weakref.finalize(made, origins.pop, id(made), None)
    return made


def check_splittable(code: types.CodeType, body: list[Instruction], k: int) -> None:
    """Raise CannotSplit unless a resume function of `code` may start at instruction k."""
    if code.co_flags & GENERATOR_LIKE:
        raise CannotSplit(f"{code.co_name} is a generator or coroutine")
    if id(code) in origins and origins[id(code)][1][k] is None:
        raise CannotSplit("before the place where a resume function goes on")
    if is_jumped_past(body, k):
        raise CannotSplit("a specialised FOR_ITER jumps past this instruction")
    if k and body[k - 1].op in ("PRECALL", "KW_NAMES"):
        raise CannotSplit("between the parts of a call")
    if "__class__" in closure_names(code) and any(ins.arg == "super" for ins in body):
        raise CannotSplit("super() looks at the first local, which is another one in the rest")
    begun = any(ins.op == "RESUME" for ins in body[:k])
    if not begun or body[k].op in ("COPY_FREE_VARS", "MAKE_CELL", "RETURN_GENERATOR"):
        raise CannotSplit("the function has not begun")


def is_jumped_past(body: list[Instruction], k: int) -> bool:
    """Does a loop that ends jump past instruction k (END_FOR, and 3.13's POP_TOP after it)?"""
    if body[k].op in ("END_FOR", "END_SEND"):
        return True
    follows = k > 0 and body[k - 1].op == "END_FOR"
    return follows and body[k].op == "POP_TOP" and VERSION >= (3, 13)


def _prefix(stack: Sequence[str], target: Instruction, free_count: int) -> list[Instruction]:
    """What stands before the original body: the stack as it was, from the parameters for it, and a
    jump to `target`."""
    prefix = assembler.prologue(free_count)
    for n, kind in enumerate(stack):
        prefix += restored(kind, f".1s{n}")
    for name in _stack_names(stack):  # what was on the stack must not live longer than it did there
        prefix += assembler.delete_fast(name)
    prefix += assembler.jump_forward(target)
    for ins in prefix:
        ins.pos = target.pos
    return prefix


def _line_at(code: types.CodeType, body: list[Instruction], k: int) -> int:
    """The line of instruction k, or of the next that has one: a handler's first has none."""
    lines = (ins.pos[0] for ins in body[k:] if ins.pos and ins.pos[0])
    return next(lines, code.co_firstlineno)


# --- calls of resume functions --------------------------------------------------------------------
ENDS = ("RETURN_VALUE", "RAISE_VARARGS", "RERAISE")  # nothing follows these
HALF_A_CALL = ("LOAD_METHOD", "LOAD_SUPER_ATTR")
CALL_PREFIXES = ("KW_NAMES", "PRECALL")  # they belong to the CALL that follows
# From 3.13 on these accept only True or False, so a TO_BOOL precedes them.
TAKE_A_BOOL = ("POP_JUMP_IF_TRUE", "POP_JUMP_IF_FALSE", "UNARY_NOT")
# What lies on top of the stack behind an instruction is its result, unless its name begins so.
NO_RESULT = tuple("STORE DELETE POP RETURN RAISE RERAISE JUMP END_FOR FOR_ITER UNPACK".split())


class Continuations:
    """At a graph break: the instruction that was not traced (of CPython's own, the "native" ones,
    number `untraced`, with its prefixes), and calls of resume functions.

        <prefix>
        POP_JUMP_IF_FALSE taken
        <return what the resume function for what follows gives>
        taken: <return what the resume function for where it jumps gives>
    """

    def __init__(
        self, frame: "RootFrame", bound: set[str], body: list[Instruction], untraced: int
    ) -> None:
        """bound: the frame's locals that have a value."""
        self.frame = frame
        self.code = frame.code
        self.natives = body  # CPython's own instructions
        # copies, for they get other jumps and handlers here
        self.end = begin = untraced
        while body[begin - 1].op in CALL_PREFIXES:
            begin -= 1
        self.untraced = [copy.copy(native) for native in body[begin : untraced + 1]]
        self.index = {id(instruction): n for n, instruction in enumerate(body)}
        self.kinds = [item.stack_kind for item in frame.stack]
        self.bound = bound
        # locals that a stack is emptied into; an instruction adds fewer than 8 values
        self.names = tuple(f".s{n}" for n in range(len(self.kinds) + 8))
        self.depth = len(self.kinds) + len(self.bound) + len(self.code.co_cellvars) + 8

    def instructions(self) -> list[Instruction]:
        """The instruction that was not traced, and three parts: what goes on behind it; what goes
        on where it jumps, if it does; what goes on in the handler around it, if there is one."""
        last = self.untraced[-1]
        behind = self.after(self.end + 1, self.kinds_behind())
        if isinstance(last.arg, Instruction):
            last.op = last.op.replace("BACKWARD", "FORWARD")
            last.arg, *jumped = self.jumped(self.index[id(last.arg)])
            behind += [last.arg, *jumped]
        behind += self.caught()
        if VERSION >= (3, 13) and last.op in TAKE_A_BOOL:  # the value on our stack may be a tensor
            self.untraced.insert(0, Instruction("TO_BOOL", exc=last.exc, pos=last.pos))
        return self.untraced + behind + self.reraise

    @functools.cached_property
    def reraise(self) -> list[Instruction]:
        """Let an exception of a resume function leave this frame, too.  The resume function's line
        of the traceback is where the program is; this frame's is taken out (`tb_next`)."""
        return [
            Instruction("COPY", 1),
            Instruction("LOAD_ATTR", "__traceback__"),
            Instruction("LOAD_ATTR", "tb_next"),
            Instruction("COPY", 2),
            Instruction("STORE_ATTR", "__traceback__"),
            Instruction("RERAISE", 0),
        ]

    def jumped(self, target: int) -> list[Instruction]:
        """What goes on where the instruction jumps."""
        if self.untraced[-1].op != "FOR_ITER":
            return self.after(target, self.kinds_behind(jump=True))
        # A loop that ends has popped its iterator.  What stands at its exit it jumps over, but
        # CPython wants to see it there.
        follows = target + END_FOR_OPS
        exit = [copy.copy(native) for native in self.natives[target:follows]]
        return exit + self.after(follows, self.kinds[:-1])

    def caught(self) -> list[Instruction]:
        """The call of what follows in the handler around the instruction, if there is one.

        with lock:
            print("hello")      # what follows has two beginnings: behind the call, and there
        """
        exc = self.untraced[-1].exc
        if not exc:
            return []
        handler, depth, lasti = exc
        kinds = self.kinds[:depth] + [LASTI] * lasti + [VALUE]
        call = self.call(self.index[id(handler)], kinds)
        for instruction in call:
            instruction.pos = self.untraced[-1].pos
        for instruction in self.untraced:
            instruction.exc = call[0], depth, lasti
        return call

    def after(self, where: int, kinds: list[str]) -> list[Instruction]:
        """What goes on at native instruction `where`, with such a stack: its resume function, or
        the original body, where none can start."""
        if where == len(self.natives) or self.untraced[-1].op in ENDS:
            return []
        if self.can_start(where):
            return self.call(where, kinds)
        target = self.natives[where]
        return [Instruction("JUMP_FORWARD", target, pos=target.pos)]

    def can_start(self, where: int) -> bool:
        """Can a resume function start at native instruction `where`?"""
        native = self.untraced[-1]
        if native.op in HALF_A_CALL or native.flags:  # flags: it has begun a call, too
            return False
        return self.natives[where].op != "RETURN_VALUE" and not is_jumped_past(self.natives, where)

    def kinds_behind(self, jump: bool = False) -> list[str]:
        """What lies on the stack once the instruction has run."""
        kinds, last = list(self.kinds), self.untraced[-1]
        for native in self.untraced:
            effect = stack_effect(native, jump and native is last)
            if effect < 0:
                del kinds[effect:]
            else:
                kinds += [VALUE] * effect
        if kinds and not last.op.startswith(NO_RESULT):  # a CALL's result lies where a NULL was
            kinds[-1] = VALUE
        if last.op == "BEFORE_WITH":  # the bound `__exit__` below its result
            kinds[-2] = VALUE
        return kinds

    def call(self, where: int, kinds: list[str]) -> list[Instruction]:
        """Instructions that empty the stack and return what the resume function for native
        instruction `where` returns."""
        code, info = self.code, self.frame.info
        live = info.live_before(info.beginnings[where]).union(self.frame.kept) & self.bound
        made = resume_code(code, where, kinds, live)
        temps = self.names[: len(kinds)]
        stack = [temp for temp, kind in zip(temps, kinds) if kind == VALUE]
        names = [*made.co_varnames[: made.co_argcount - len(stack)], *stack]
        function = assembler.make_function(made, closure_names(code))
        out = [ins for temp in reversed(temps) for ins in assembler.store_fast(temp)]
        out += self.go_on(function, names) + assembler.return_value()
        for instruction in out:
            instruction.pos = self.natives[where].pos
        return out

    def go_on(self, function: list[Instruction], names: list[str]) -> list[Instruction]:
        """The call of a resume function with these variables, which the program does not see:
        `hand_over(function, list)` of the frame hook leaves the arguments to the callee alone, and
        a loop that breaks in each turn does not nest deeper, as a resume function that is split
        again returns what is to be called next."""
        arguments: list[Instruction] = []
        for name in names:
            # and deleted here: the caller must not keep alive what the rest lets go
            arguments += assembler.load_fast(name) + assembler.delete_fast(name)
        arguments.append(Instruction("BUILD_LIST", len(names)))
        if is_resume_code(self.code):  # `hand_over` has called it, and calls what it returns
            return assembler.load_const(tail_call) + function + arguments + assembler.build_tuple(3)
        call = assembler.call(assembler.load_const(hand_over), function, arguments)
        call[-1].exc = self.reraise[0], 0, False
        return call
