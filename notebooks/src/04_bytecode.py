# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # 04 · Bytecode and symbolic evaluation
#
# The hook hands us a code object and the arguments. Now we have to find out *which tensor
# operations it will perform*, without performing them, and with all of Python in it. The answer is
# to run the bytecode on a machine of our own whose values are symbols.
#
# **What you will learn:** how CPython's stack machine works; why bytecode and not source text; one
# instruction set for three Python versions; a small symbolic evaluator; what the real one adds:
# inlining, exceptions, loops. At the end you write opcode handlers.
#
# **Files of this chapter:** `minidynamo/bytecode/`, `minidynamo/evaluate/`.

# %%
import dis
import operator

import torch
import torch.fx as fx

import minidynamo
from minidynamo.bytecode import canonical, disassemble
from minidynamo.explain import Code, Table, excerpt

torch.manual_seed(0)
torch.set_grad_enabled(False);

# %% [markdown]
# ## A stack machine
#
# CPython's instructions take their operands from a stack and put their results on it. `a * b + 1`:

# %%
def polynomial(a, b):
    return a * b + 1

dis.dis(polynomial)

# %% [markdown]
# *The kitchen.* Plates are stacked on the counter. "Multiply" takes the two top plates and puts one
# back. *Exactly:* each frame has an array of local variables and a stack whose depth is known for
# every instruction.
#
# Why bytecode and not source? Because it is what really runs. Source may be missing, may be a
# lambda among others on one line, and has a great many forms (decorators, comprehensions, `with`,
# star-unpacking). The compiler has already turned all of them into one small set of instructions.
#
# The trouble: each CPython version changes the instructions. Take a function with a branch:

# %%
def chosen(x, flag):
    return x + 1 if flag else x - 1

dis.dis(chosen)

# %% [markdown]
# This is what 3.11 makes of it. Its jump has the direction in the name; later versions have one
# `POP_JUMP_IF_FALSE` for both. (`>>` marks a place that something jumps to.) On 3.11 a call is `PUSH_NULL, LOAD, PRECALL, CALL`; on 3.12 `PRECALL` is gone; on 3.13 the order
# of the callable and the NULL is different and two variables may be loaded by one instruction.
# minidynamo translates all of them to one **canonical** set first, so that the evaluator never asks
# for a version. Each line of a source text, what this Python made of it, and the canonical
# operations:

# %%
from minidynamo.explain.draw_code import draw_bytecode

def with_a_loop(x):
    for power in range(3):
        x = torch.sin(x) * power
    return x

draw_bytecode(with_a_loop)

# %% [markdown]
# A jump's argument is the number of an operation, so `FOR_ITER` names the place behind the loop.
# The translation is one table of cases:

# %%
from minidynamo.bytecode.canonical import translate

excerpt(translate)

# %% [markdown]
# Each version's instruction becomes none, one or more canonical ones. `DROPPED`, `RENAMED` and `RULES`
# are the table; what stands in none of them stays as it is.
#
# ## A small symbolic evaluator
#
# Two kinds of values: Python objects that we know, and nodes of an FX graph that stand for tensors.
# An operation on known values is simply done; an operation that involves a node becomes a node.

# %% tags=["support"]
import builtins

BINARY = {"+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv, "@": operator.matmul}
COMPARE = {"<": operator.lt, ">": operator.gt, "==": operator.eq, "!=": operator.ne, "<=": operator.le,
           ">=": operator.ge}
NULL = object()

class Machine:
    """Evaluates canonical bytecode; `run` returns the result and leaves the operations in `graph`."""

    def __init__(self, function, tensors, known=None):
        self.graph, self.globals = fx.Graph(), function.__globals__
        self.locals = dict(known or {}) | {name: self.graph.placeholder(name) for name in tensors}
        self.operations, _ = canonical(disassemble(function.__code__))
        self.stack, self.pc, self.trace = [], 0, []

    def run(self):
        while True:
            operation = self.operations[self.pc]
            self.pc += 1
            handler = getattr(self, operation.op, None)
            if handler is None:
                raise NotImplementedError(f"no handler for {operation}")
            self.trace.append((str(operation), list(self.stack)))
            if handler(operation.arg):
                self.graph.output(self.stack[-1])
                return self.stack[-1]

    def emit(self, function, *args):
        """Do it if everything is known, else write it down."""
        if any(isinstance(a, fx.Node) for a in args):
            return self.graph.call_function(function, args)
        return function(*args)

    def pop(self, count):
        values = self.stack[len(self.stack) - count:]
        del self.stack[len(self.stack) - count:]
        return values

    # one method per canonical opcode
    def LOAD_FAST(self, name):          self.stack.append(self.locals[name])
    def STORE_FAST(self, name):         self.locals[name] = self.stack.pop()
    def LOAD_CONST(self, value):        self.stack.append(value)
    def LOAD_GLOBAL(self, name):        self.stack.append(self.globals.get(name, getattr(builtins, name, None)))
    def LOAD_ATTR(self, name):          self.stack.append(getattr(self.stack.pop(), name))
    def LOAD_METHOD(self, name):        self.stack += [NULL, getattr(self.stack.pop(), name)]
    def PUSH_NULL(self, _):             self.stack.append(NULL)
    def POP_TOP(self, _):               self.stack.pop()
    def COPY(self, n):                  self.stack.append(self.stack[-n])
    def BINARY_OP(self, symbol):        self.stack.append(self.emit(BINARY[symbol], *self.pop(2)))
    def COMPARE_OP(self, symbol):       self.stack.append(self.emit(COMPARE[symbol], *self.pop(2)))
    def JUMP(self, target):             self.pc = target
    def RETURN_VALUE(self, _):          return True

    def CALL(self, count):
        *args, = self.pop(count)
        callee = [value for value in self.pop(2) if value is not NULL][0]       # (NULL, f) or (f, NULL)
        self.stack.append(self.emit(callee, *args))

    def POP_JUMP_IF_FALSE(self, target):
        condition = self.stack.pop()
        if isinstance(condition, fx.Node):
            raise RuntimeError("this branch depends on a tensor")
        if not condition:
            self.pc = target

# %%
machine = Machine(polynomial, ["a", "b"])
machine.run()
print(machine.graph)

# %% [markdown]
# Two nodes for two operations, and `1` is a number in one of them. How did they come about? Watch the
# instructions, the stack and the graph. (Use the buttons, or the arrow keys.)

# %%
from steppers import machine_run

machine_run(Machine(polynomial, ["a", "b"]), "polynomial")

# %% [markdown]
# The stack holds *names of results* where CPython's would hold tensors. The graph grows where an
# operation met such a name.
#
# Known values disappear. `flag` is known, so the branch is decided, and only the branch that was
# taken is in the graph:

# %%
for flag in (True, False):
    machine = Machine(chosen, ["x"], {"flag": flag})
    machine.run()
    print(flag, "->", [f"{n.target.__name__}{n.args}" for n in machine.graph.nodes if n.op == "call_function"])

# %% [markdown]
# (Someone has to check next time that `flag` is still the same. Notebook 05.)
#
# ## Where the small machine fails
#
# The loop from above needs iterators, a helper function needs a second frame, an exception needs
# the exception table:

# %%
def with_a_helper(x):
    return polynomial(x, x) * 2

for function in (with_a_loop, with_a_helper):
    try:
        machine = Machine(function, ["x"])
        machine.run()
        calls = [n.target.__name__ for n in machine.graph.nodes if n.op == "call_function"]
        print(function.__name__, "->", calls)
    except Exception as error:
        print(function.__name__, "->", f"{type(error).__name__}: {error}")

# %% [markdown]
# The second one did not fail, it did something useless: the graph contains a call of `polynomial`,
# a Python function that no backend can look into. It has to be **inlined**: evaluated by another
# machine that writes into the same graph.
#
# ## The real evaluator
#
# `minidynamo/evaluate/` has the same shape: a loop, a table of handlers, one function per
# canonical opcode.

# %%
from minidynamo.evaluate import evaluator, opcodes

excerpt(evaluator.Frame.loop)

# %% [markdown]
# The real loop is the small one: fetch, look up the handler, call it. It counts its steps, so that an
# endless loop of the program ends in a graph break. An `ObservedException` is an exception of the
# *program*: `caught` goes on at its handler, if there is one.

# %%
excerpt(evaluator.Frame.inline)

# %% [markdown]
# A second frame with the same `output`, which holds the graph: that is inlining. `bind` gives each
# parameter its argument. A generator gets a frame as well, which runs when somebody asks for a value.

# %%
excerpt(evaluator.Frame.unwind)

# %% [markdown]
# What the program was doing is taken off the stack, the exception is put onto it, and evaluation goes on
# at `target`, where the `except` begins.
#
# In sum, what the real evaluator adds to ours:
#
# * every value is a `Variable` that knows where it came from (notebook 05);
# * a call of a Python function pushes a new `Frame` that shares the graph: inlining;
# * an exception looks up the exception table of the *evaluated* program. CPython keeps this table
#   beside the bytecode. For each range of instructions it names the handler to jump to, and how deep
#   the stack is there. A flag, `lasti`, says whether the handler also wants the place of the error
#   on the stack;
# * whatever has no rule raises `Break`, and the frame is split there (notebook 06).

# %%
handlers = opcodes.HANDLERS
print(len(handlers), "canonical opcodes, for example:", ", ".join(list(handlers)[:12]), "...")

# %% [markdown]
# Each handler is one canonical opcode. None of them knows which Python it runs on.

# %%
for function in (with_a_loop, with_a_helper):
    e = minidynamo.explain(function, backend="eager")(torch.ones(2))
    print(function.__name__, "->", [n.name for n in e.main.record.graph.graph.nodes if n.op.startswith("call")])

# %% [markdown]
# `polynomial` is gone: its two operations stand there, then the one behind the call. In `with_a_loop`
# the loop is unrolled: `range(3)` is known. Exceptions of the program are
# evaluated too, and leave nothing in the graph:

# %%
def with_an_exception(x, options):
    try:
        scale = options["scale"]
    except KeyError:
        scale = 2
    finally:
        x = x + 1
    return x * scale

e = minidynamo.explain(with_an_exception, backend="eager")(torch.ones(2), {})
print(e.main.record.graph.code)
print("breaks:", len(e.main.record.graph_breaks))

# %% [markdown]
# No break, and no `try` in the graph. The `KeyError` was raised and caught while tracing: `scale` is the
# `2` in the product. (A guard remembers that the key was missing.)
#
# ## A real model
#
# How many bytecode instructions does the evaluator execute to capture BERT? We count by wrapping
# the handlers.

# %%
from collections import Counter
from benchmarks.models import bert
from minidynamo.evaluate.evaluator import _CACHE as prepared

counts = Counter()

def counting(handlers):
    def counted(name, handler):
        def run(frame, arg):
            counts[name] += 1
            return handler(frame, arg)
        return run
    return {name: counted(name, handler) for name, handler in handlers.items()}

original = dict(handlers)
prepared.clear()                # code that was translated before keeps its handlers
handlers.update(counting(handlers))
try:
    model, inputs = bert(layers=2)
    e = minidynamo.explain(model, backend="eager")(**inputs)
finally:
    handlers.update(original)
    prepared.clear()
operations = sum(n.op.startswith("call") for n in e.main.record.graph.graph.nodes)
print(f"more than {sum(counts.values()) // 1000} thousand instructions were evaluated",
      f"to find {operations} tensor operations")

# %% [markdown]
# Nearly all of them move values to and from the stack. The most frequent ones:

# %% tags=["volatile"]
Table(["opcode", "times"], counts.most_common(8))

# %% [markdown]
# Eager mode evaluates all of these instructions on *every* call. A compiled call evaluates none of
# them. It pays for its guards instead (notebook 05).
#
# ## Exercises
#
# **04.1** (warm-up) *Loops.* Give the small machine `GET_ITER` and `FOR_ITER`. `GET_ITER` replaces the top of
# the stack by an iterator over it. `FOR_ITER target` pushes the next item, or, when there is none,
# removes the iterator and continues at `target` (the canonical target is already behind the loop's
# end).
#
# *Hints.* `next(iterator, NULL)`. The sequence is always known in this exercise.

# %% tags=["exercise"]
class LoopingMachine(Machine):
    """The small machine, with `for` loops over known sequences."""
    ### BEGIN SOLUTION instead of pass
    def GET_ITER(self, _):
        self.stack.append(iter(self.stack.pop()))

    def FOR_ITER(self, target):
        item = next(self.stack[-1], NULL)
        if item is NULL:
            self.stack.pop()
            self.pc = target
        else:
            self.stack.append(item)
    ### END SOLUTION

# %% tags=["check"]
from exercises import check

check("04.1", LoopingMachine)

# %% [markdown]
# **04.2** (core) *Inlining.* Override `CALL`: a call of a Python function (it has a `__code__`) is
# evaluated by a second machine that writes into the same graph; everything else goes on as before.
#
# *Hints.* Pop the arguments and the callee as `Machine.CALL` does.
# `inner = type(self)(callee, [])`, then set `inner.graph = self.graph` and `inner.locals` from
# `callee.__code__.co_varnames`. `run` adds an output node to the graph, which you do not want:
# write the loop again, or remove the node (`self.graph.erase_node`).

# %% tags=["exercise"]
class InliningMachine(Machine):
    """The small machine, which looks into the functions it calls."""
    ### BEGIN SOLUTION instead of pass
    def CALL(self, count):
        args = self.pop(count)
        callee = [value for value in self.pop(2) if value is not NULL][0]
        if hasattr(callee, "__code__"):
            inner = type(self)(callee, [])
            inner.graph, inner.locals = self.graph, dict(zip(callee.__code__.co_varnames, args))
            self.stack.append(inner.run())
            (output,) = [n for n in self.graph.nodes if n.op == "output"]
            self.graph.erase_node(output)
        else:
            self.stack.append(self.emit(callee, *args))
    ### END SOLUTION

# %% tags=["check"]
check("04.2", InliningMachine)

# %% [markdown]
# **04.3** (stretch) *The real evaluator.* `match` on sequences asks for lengths with `GET_LEN`: push
# `len(top of stack)`, leaving the top where it is. Write the handler. The check takes minidynamo's
# own handler away, puts yours in its place, and captures a `match` statement with it.
#
# *Hints.* `frame.stack` is a list of `Variable`s. Every variable has `length(frame)`, which returns
# an `int`. A known value is a `ConstantVar(value)`.

# %% tags=["exercise"]
from minidynamo.variables.constant import ConstantVar

def GET_LEN(frame, _):
    """Push the length of the top of the stack."""
    ### BEGIN SOLUTION
    frame.stack.append(ConstantVar(frame.stack[-1].length(frame)))
    ### END SOLUTION

# %% tags=["check"]
check("04.3", GET_LEN)

# %% [markdown]
# **04.4** (core) *Tuples.* Give the small machine `BUILD_TUPLE count` and `UNPACK_SEQUENCE count`. The first takes
# `count` values off the stack and pushes one tuple of them. The second takes a tuple off and pushes
# its items, so that the *first* item is on top: the stores that follow take them from left to right.
#
# *Hints.* `self.pop(count)` gives the values in their order. A tuple of nodes is a tuple that is known.
#
# <details><summary>Predict: does a, b = b, a write anything into the graph?</summary>
#
# No. Names change places on the stack; no tensor operation runs. (CPython swaps two without any
# tuple; the check uses four.)
#
# </details>

# %% tags=["exercise"]
class TupleMachine(Machine):
    """The small machine, with tuples."""
    ### BEGIN SOLUTION instead of pass
    def BUILD_TUPLE(self, count):
        self.stack.append(tuple(self.pop(count)))

    def UNPACK_SEQUENCE(self, count):
        self.stack += self.stack.pop()[::-1]
    ### END SOLUTION

# %% tags=["check"]
check("04.4", TupleMachine)

# %% [markdown]
# ## Your own compiler: the stack machine
#
# **The piece.** The machine of this chapter, grown up. Its values are nodes of the graph, objects
# from outside, and plain Python values. You write the step of its loop and most of its instructions.
# What a call takes from the stack is yours, too, what it does, and how a function is inlined.
#
# <details><summary>Hint: start</summary>
#
# An instruction is a method of its name. `step` looks it up, refuses what it does not find, and
# moves `pc` on *before* it calls the handler, so that a jump may set it.
#
# </details>
# <details><summary>Hint: the stack</summary>
#
# `COPY 1` copies the top. `SWAP n` exchanges the top with the n-th value from above.
# `UNPACK_SEQUENCE` leaves the *first* element on top.
# `pop(n)` takes n values at once, the lowest first. That is the order of operands, too.
# `self.items` gives what a container holds, and refuses a tensor.
#
# </details>
# <details><summary>Hint: calls</summary>
#
# Three things can lie below the arguments. `NULL, f` and `f, NULL` are plain calls: which of the two
# it is depends on Python's version. `f, x` is a method and its object, so `x` goes before the other
# arguments. Compare with `is NULL`.
#
# </details>
# <details><summary>Hint: inlining</summary>
#
# Another `Machine` with the same `Capture`. `inspect.signature(function, follow_wrapped=False).bind(...)`
# finds out which argument goes where, and `apply_defaults` fills in what was not given. Only constants
# are guarded as defaults. Any other may change later: `Refused`.
#
# </details>
# <details><summary>Hint: what is called</summary>
#
# Ask in the order of the docstring of `call`. A `Bound` is called with its `first` in front. Of an
# `Outside` look at its `value`. `self._forward(module)` gives what a module calls. What `TORCH` and `PLAIN`
# get are the items of containers from outside: `capture.items(arg)` leaves all else as it is.
#
# `list.append` writes: `capture.journal.append(capture.journal.items_of(target), value)`, after
# `self.items(target)` has looked at it. Only an `Outside` that is a Python function is inlined. All else is
# `Refused`.
#
# </details>
# <details><summary>Hint: attributes and globals</summary>
#
# `Bound(METHODS[name], value)` is a method of a node; its shape is a `torch.Size`. Another object's
# attributes are chapter 05's: `capture.attribute`.
#
# `self.source` finds the function: a global lies at `{self.source}.__globals__['name']`. `capture.wrap(value, source)`
# gives what may lie on the stack.
#
# </details>

# %%
from exercises.own_compiler import begin

begin("machine");

# %% [markdown]
# The line names what is yours. Write it in that file, then ask for a check, as often as you like:

# %% tags=["check", "piece"]
from exercises.own_checks import check_piece

check_piece("machine")

# %% [markdown]
# ## What else lives here
#
# Every public name of this chapter's core files, with one sentence each. Unfold a file, then a name:
# its first lines are there. The list is made from the sources when the page is built.

# %% tags=["volatile"]
from minidynamo.explain import also_here

also_here("minidynamo/bytecode/", "minidynamo/evaluate/")

# %% [markdown]
# ## What real PyTorch has
#
# * `torch/_dynamo/symbolic_convert.py`: the evaluator, with the version checks inside each opcode
#   method (we translate first).
# * `torch/_dynamo/bytecode_transformation.py`: assembler and disassembler.
# * `torch/_dynamo/polyfills/`: library functions rewritten in Python so that they can be inlined.
#   Paper, section 3.
#
# **See it in the real `torch.compile`.** `TORCH_LOGS=trace_bytecode python program.py` prints each instruction with the symbolic stack before
# it. `TORCH_LOGS=bytecode` prints the code before and after.
#
# ## Recap
#
# * Bytecode is a small language for a stack machine; evaluate it on symbols and the tensor
#   operations fall out.
# * Known values are computed while capturing; the graph holds only what involves tensors.
# * Function calls are inlined, loops over known sequences unrolled, exceptions followed.
#
# Next: where each value came from, and what must hold for the graph to be right again.
