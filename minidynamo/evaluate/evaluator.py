"""A frame of the symbolic machine: runs canonical opcodes on variables, inlines calls, unwinds
exceptions.

In:   a function variable and its bound parameters.   Out: the returned variable; graph, guards,
      side effects on `output`.

    >>> frame = Frame(output, function, bound_locals, parent=None)
    >>> frame.run()                     # -> the returned variable, or a signal of `errors.py`

Every other file calls the frame that asks `tx` (translator).  From an instruction to a node:

    opcodes.py          HANDLERS["BINARY_OP"](frame, "@"), and so on for each opcode
    operators.py        tx.binary("@", x, y): which operand is asked for its rule, in which order
    calls.py            tx.call_function(torch.softmax): a rule, a node of the graph, or inlined
    operations.py       tx.node, tx.fold, tx.iter_of...: what rules and opcodes use
    output_graph.py     OutputGraph.call_graph: runs the op on fake tensors, and adds the node

Only the root frame can be split.  Whatever cannot be traced raises `Break`; the root loop turns it
into a `Restart`: the frame is traced again from its start, and ends at the instruction that broke,
so that a half-done inlined call leaves nothing behind.
Mirrors torch/_dynamo/symbolic_convert.py (InstructionTranslator; paper sections 3.4 and 3.7).
"""

from __future__ import annotations

import inspect
import types
import weakref
from typing import TYPE_CHECKING, Any, NoReturn

from .. import config
from ..bytecode import canonical, disassemble
from ..bytecode.canonical import liveness
from ..errors import Break, ObservedException, Restart, SkipFrame
from ..guards.originals import OURS, TORCH
from ..rebuild.resume import LASTI, function_name
from ..variables.base import running
from ..variables.constant import ConstantVar
from ..variables.functions import bind
from ..variables.iterators import GeneratorVar
from . import exceptions as exceptions  # which registers its opcodes
from .opcodes import HANDLERS, unsupported
from .operations import Operations

if TYPE_CHECKING:
    from ..graph.output_graph import OutputGraph
    from ..variables.base import Args, Named, Variable
    from ..variables.classes import GlobalsVar
    from ..variables.functions import FunctionVar

GENERATOR = inspect.CO_GENERATOR
ASYNC = inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR | inspect.CO_ITERABLE_COROUTINE
MAX_DEPTH = 120  # of inlined calls: one takes several of the compiler's own
_CACHE: dict[int, "CodeInfo"] = {}


# ---- what is known of a code object
class CodeInfo:
    """What the evaluator needs to know about a code object: lists with one entry for each canonical
    operation, and which variables are read later.  Mirrors torch/_dynamo/bytecode_analysis.py.

    >>> code_info(f.__code__).live_before(0)        # frozenset({"x"}): `y` is written first"""

    def __init__(self, code: types.CodeType) -> None:
        natives = disassemble(code)
        self.operations, first = canonical(natives)
        # of each native instruction: the operation that it begins with
        self.beginnings = [first[id(native)] for native in natives]
        # of each operation: the number of the native instruction that it belongs to, and the
        # operation with which that begins
        index = {id(native): n for n, native in enumerate(natives)}
        self.native_numbers = [index[id(operation.instruction)] for operation in self.operations]
        self.groups = [self.beginnings[number] for number in self.native_numbers]
        # the operations, ready to be run: handler, argument, exception entry, line
        self.ops: list[tuple[Any, Any, Any, int]] = []
        line = code.co_firstlineno
        for operation in self.operations:
            pos = operation.instruction.pos
            if pos and pos[0] is not None:
                line = pos[0]
            run, arg = HANDLERS.get(operation.op), operation.arg
            if run is None:  # refused by its name
                run, arg = unsupported, operation.op
            self.ops.append((run, arg, operation.exc, line))
        # of torch's files and ours: a graph break names the line of the program that called them
        self.internal = code.co_filename.startswith((TORCH, OURS))
        self._live: list[frozenset[str]] | None = None

    def live_before(self, position: int) -> frozenset[str]:
        """Names of locals that may be read from canonical operation `position` on."""
        if self._live is None:
            self._live = liveness(self.operations)
        return self._live[position]


def code_info(code: types.CodeType) -> CodeInfo:
    found = _CACHE.get(id(code))
    if found is None:
        found = _CACHE[id(code)] = CodeInfo(code)
        weakref.finalize(code, _CACHE.pop, id(code), None)
    return found


# ---- frames
class LastInstruction(ConstantVar):
    """Where an exception was raised, which some handlers find on the stack; only a RERAISE looks at
    it."""

    stack_kind = LASTI


class Frame(Operations):
    """One activation of a Python function, as CPython's frames are."""

    def __init__(
        self,
        output: OutputGraph,
        function: FunctionVar,
        bound: dict[str, Any],
        parent: Frame | None = None,
    ) -> None:
        code = function.code
        self.output = output
        self.function = function
        self.code = code
        self.parent = parent
        self.info = code_info(code)
        self.globals: GlobalsVar = output.globals_of(function.globals)
        self.locals = bound  # name -> variable
        self.cells: dict[str, Any] = dict(zip(code.co_freevars, function.closure))
        self.stack: list[Any] = []
        self.handled: list[Any] = []  # the exceptions that are being handled, the innermost last
        self.pc = 0  # the operation that comes next
        self.returned: Any = ConstantVar(None)
        self.yielded: Any = None
        self.depth: int = parent.depth + 1 if parent is not None else 0
        self.line = code.co_firstlineno
        if self.depth > MAX_DEPTH:
            raise Break("depth", f"calls nest deeper than {MAX_DEPTH} while tracing")

    # ---- where are we
    def user_stack(self) -> list[tuple[str, int, str]]:
        """(file, line, function) from the outermost frame to the innermost one that is not torch's
        or ours.  The rest of a function behind a graph break counts as the function."""
        frames = []
        frame: Frame | None = self
        while frame:
            if not frame.info.internal or frame.parent is None:
                code = frame.code
                frames.append((code.co_filename, frame.line, function_name(code)))
            frame = frame.parent
        return frames[::-1]

    def user_line(self) -> str:
        file, line, _ = self.user_stack()[-1]
        return f"{file}:{line}"

    # ---- running
    def run(self) -> Any:
        try:
            with running.set(self):
                self.loop()
            return self.returned
        except Break as broken:
            # here it is known how deep in which calls it was met: the root only knows its own line
            broken.stack = broken.stack or self.user_stack()
            raise

    def loop(self) -> None:
        ops = self.info.ops
        while True:
            run, arg, except_entry, self.line = ops[self.pc]
            if self.ends_here():
                return
            self.pc += 1
            try:
                if run(self, arg) is True:
                    return
            except ObservedException as raised:
                if not self.caught(raised, except_entry):
                    raise

    def ends_here(self) -> bool:
        """Count the next step.  True if the frame ends before it and leaves the rest to plain
        Python, which only the root frame can do."""
        self.output.count_step()
        return False

    def caught(self, raised: ObservedException, entry: Any) -> bool:
        """Go on at the program's handler `entry`; False if there is none."""
        if entry is not None:
            self.unwind(raised.var, entry)
        return entry is not None

    def unwind(self, exception: Variable, entry: tuple[int, int, bool]) -> None:
        """Go to the handler of the instruction that raised."""
        target, depth, lasti = entry
        del self.stack[depth:]
        if lasti:
            self.stack.append(LastInstruction(0))
        self.stack.append(exception)
        self.pc = target

    def popn(self, n: int) -> list[Any]:
        start = len(self.stack) - n
        values = self.stack[start:]
        del self.stack[start:]
        return values

    # ---- calls
    def inline(self, function: Any, args: Args, kwargs: Named) -> Variable:
        code = function.code
        if code.co_flags & ASYNC:
            raise Break("coroutine", f"the coroutine {function.name} is not traced")
        frame = Frame(self.output, function, bind(self, function, args, kwargs), self)
        if code.co_flags & GENERATOR:
            return GeneratorVar(frame)
        return frame.run()

    def resume_generator(self, tx: Frame, sent: Variable | None) -> Variable | None:
        """Run until the next yield: the yielded variable, or None when the body returned."""
        self.parent, self.yielded = tx, None
        if sent is not None:
            self.stack.append(sent)
        self.run()
        return self.yielded


class RootFrame(Frame):
    """The frame that is compiled: the root of those that are inlined.

    It counts its steps, and stops at those that broke in an earlier attempt (`forced`: step ->
    reason): the graph ends there, and plain Python goes on.

    >>> frame.split             # after run(): None, or (operation to go on at, reason)
    """

    def __init__(
        self,
        output: OutputGraph,
        function: FunctionVar,
        bound: dict[str, Any],
        forced: dict[int, Break],
    ) -> None:
        super().__init__(output, function, bound)
        self.bound = dict(bound)
        self.forced = forced
        self.step = 0
        # One native instruction may be several operations, a group.  The frame is split only in
        # front of a whole one: this is the step at which the one that runs began.
        self.group_step = 0
        self.split: tuple[int, Break] | None = None
        self.kept: set[str] = set()  # dead variables that the replacement code keeps, too
        output.root = self

    def loop(self) -> None:
        try:
            super().loop()
        except Break as broken:
            self.break_at(broken)

    def ends_here(self) -> bool:
        self.step += 1
        if self.step > config.step_limit:
            text = f"more than {config.step_limit} instructions to trace (config.step_limit)"
            raise SkipFrame(text)
        if self.info.groups[self.pc] == self.pc:
            self.group_step = self.step
        if self.step in self.forced:
            self.split = (self.pc, self.forced[self.step])
        return self.split is not None

    def caught(self, raised: ObservedException, entry: Any) -> bool:
        if entry is None:
            kind, text = raised.var.python_type().__name__, message_of(raised.var)
            reason = f"{kind} leaves the frame{text and ': ' + text}"
            stack, step = raised_at(raised.var)
            self.break_at(Break("exception", reason, stack=stack), step)
        return super().caught(raised, entry)

    def break_at(self, reason: Break, step: int | None = None) -> NoReturn:
        """Trace again, and split at `step` (default: before the native instruction that is being
        evaluated).

        Where an exception is being handled that was raised while tracing, the frame is split at
        the instruction that raised: plain Python must make the traceback, and the handler lies in
        the continuation."""
        for exception in reversed(self.handled):  # the outermost decides
            step = raised_at(exception)[1] or step
        if reason.stack is None:
            reason.stack = (running.value or self).user_stack()
        step = step or self.group_step
        # no split: the resume function would be given that local, too, and break again
        if self.info.operations[self.info.groups[self.pc - 1]].op == "LOAD_FAST":
            raise SkipFrame(f"a local variable cannot be traced: {reason.reason}") from reason
        if step in self.forced:  # this attempt was to end there, and broke while ending
            raise SkipFrame(f"cannot split here: {reason.reason}") from reason
        # The frames of its traceback, and of its context, would keep the arguments alive.
        self.forced[step] = reason.with_traceback(None)
        reason.__context__ = None
        raise Restart()


def message_of(exception: Any) -> str:
    """The message of an AttributeError or NameError; "" for other exceptions, whose messages may
    differ in each call, so that they would count as different reasons of a graph break."""
    named = issubclass(exception.python_type(), (AttributeError, NameError))
    args: Any = named and exception.init_args or ()
    return str(args[0].value) if len(args) == 1 and isinstance(args[0], ConstantVar) else ""


def raised_at(exception: Any) -> tuple[Any, int | None]:
    """The user's stack and the root's step at which an exception was raised while tracing; twice
    None for a real one."""
    traceback = exception.slots.get("__traceback__")
    return getattr(traceback, "where", (None, None))
