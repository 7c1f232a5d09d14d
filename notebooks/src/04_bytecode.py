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
# The hook passes a code object and its arguments to the compiler. Which *tensor operations* will
# this code perform? The compiler must find them without performing them, whatever Python code the
# user has written. It runs the bytecode on a machine of its own, whose values are symbols.
#
# **What you will learn:** how CPython's stack machine works; why the compiler reads bytecode, not
# source text; how one instruction set serves three Pythons. Then a small symbolic evaluator, and
# what the real one adds: loops, inlining, exceptions. At the end you write *handlers*, the
# functions that evaluate one kind of instruction.
#
# **Files of this chapter:** `minidynamo/bytecode/`, `minidynamo/evaluate/`.

# %%
import dis
import operator

import torch
import torch.fx as fx

import minidynamo
from minidynamo.bytecode import canonical, disassemble
from minidynamo.explain import Table

torch.manual_seed(0)
torch.set_grad_enabled(False);

# %% [markdown]
# ## A stack machine
#
# CPython's instructions take their operands from a stack and push their results onto it. Here is
# the bytecode of `a * b + 1`. The columns are the source line, the offset of the instruction, its
# name and its argument. `RESUME` marks the start of a function and computes nothing:

# %%
def polynomial(a, b):
    return a * b + 1

dis.dis(polynomial)

# %% [markdown]
# *The kitchen.* Plates are stacked on the counter. "Multiply" takes the two top plates and puts one
# back. *Exactly:* each frame has an array of local variables and a stack whose depth is known for
# every instruction.
# <!-- shows: has("BINARY_OP") -->
#
# Why bytecode and not source text? Bytecode is what really runs. The source may be missing, or it
# may be one of several lambdas on one line. Source text also has a great many forms, such as
# decorators, comprehensions, `with` and star-unpacking. Python's own compiler has already turned
# all of them into one small set of instructions.
#
# But this set changes with each version of CPython. The next function has a branch, and its jumps
# are an example. (In the listing, `>>` marks the target of a jump.)

# %%
def chosen(x, flag):
    return x + 1 if flag else x - 1

dis.dis(chosen)

# %% [markdown]
# The versions of CPython differ in several places:
#
# * In 3.11 the name of a jump contains its direction. Later versions have one `POP_JUMP_IF_FALSE`
#   for both directions.
# * In 3.11 a call is `PUSH_NULL, LOAD, PRECALL, CALL`. In 3.12 `PRECALL` is gone. (The `NULL` fills
#   a place on the stack. In a call of a method, the object takes this place.)
# * In 3.13 the callable comes before the `NULL`, and one instruction may load two variables.
#
# minidynamo therefore translates the bytecode into one **canonical** instruction set, on which its
# evaluator works. The next picture connects each line of a function with the bytecode of this
# Python, and the bytecode with the canonical operations. The argument of a jump is the number of
# its target:

# %%
from minidynamo.explain.draw_code import draw_bytecode

def with_a_loop(x):
    for power in range(3):
        x = torch.sin(x) * power
    return x

draw_bytecode(with_a_loop)

# %% [markdown]
# `PRECALL` is gone, and `JUMP_BACKWARD` has become `JUMP`. `PUSH_NULL` is new: in the bytecode, a
# flag of `LOAD_GLOBAL` pushes the `NULL`. The function `translate` translates one instruction, with
# three tables. `RENAMED` has new names, `DROPPED` has instructions to leave out, and `RULES` has a
# function for each instruction that needs more work:
# <!-- shows: has("PRECALL") and has("JUMP") -->

# %%
from minidynamo.bytecode.canonical import translate
from parts import part

part(translate, ("op = ", "return []"), ("if op in RULES", "return [(op, ins"))

# %% [markdown]
# An instruction in none of the tables stays as it is.
# <!-- shows: has("return [(op, ins.arg)]") -->
#
# ## A small symbolic evaluator
#
# Our small machine has two kinds of values: plain Python objects, which are known while capturing,
# and nodes of an FX graph, which represent tensors. If all operands of an operation are known, the
# machine computes the operation. If one operand is a node, the machine adds a new node to the
# graph. One method handles each canonical instruction:

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
        """Compute it if everything is known, else add a node."""
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
        callee = [value for value in self.pop(2) if value is not NULL][0]       # (NULL, f), in 3.13 (f, NULL)
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
# The graph has one node for each of the two operations. The next cell steps through the evaluation,
# with the stack and the graph after each instruction. (Use the buttons or the arrow keys.)
# <!-- shows: count("call_function") == 2 -->

# %%
from steppers import machine_run

machine_run(Machine(polynomial, ["a", "b"]), "polynomial")

# %% [markdown]
# Where CPython's stack would hold tensors, this stack holds nodes. The graph grows whenever an
# operation has a node among its operands. `RETURN_VALUE` adds the last node, the output.
# <!-- shows: count("the graph has one more node") == 3 -->
#
# Known values leave no trace in the graph. In `chosen` the value of `flag` is known, so the machine
# can decide the branch. The graph contains only the side that was taken:

# %%
for flag in (True, False):
    machine = Machine(chosen, ["x"], {"flag": flag})
    machine.run()
    print(flag, "->", [f"{n.target.__name__}{n.args}" for n in machine.graph.nodes if n.op == "call_function"])

# %% [markdown]
# (Each later call of the compiled code must check that `flag` is still the same. Such checks are
# the subject of chapter 05.)
# <!-- shows: has("True -> ['add(x, 1)']") and has("False -> ['sub(x, 1)']") -->
#
# ## Where the small machine fails
#
# Two functions show what the small machine lacks. `with_a_loop` needs iterators, and
# `with_a_helper` calls another Python function:

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
# The machine stops at the first function. For the second it builds a useless graph: the node
# `polynomial` is a call of a Python function, and no backend can compile Python code. The machine
# must **inline** such a call: a second machine evaluates the function and writes into the same
# graph.
# <!-- shows: has("with_a_loop -> NotImplementedError") and has("with_a_helper -> ['polynomial', 'mul']") -->
#
# ## The real evaluator
#
# The real evaluator in `minidynamo/evaluate/` has the same structure: a loop and one handler per
# canonical instruction. In the excerpt, `ops` is the list of prepared instructions. Each has a
# handler `run`, its argument `arg`, and an `except_entry`, which says where an exception of the
# instruction is handled. A handler returns True at the end of the function:

# %%
from minidynamo.evaluate import evaluator, opcodes

part(evaluator.Frame.loop, ("ops =", "run, arg"), ("self.pc += 1", "raise"))

# %% [markdown]
# The real loop does what the small one does: it fetches an instruction, looks up its handler, and
# calls it. An `ObservedException` is an exception of the evaluated *program*, not of the compiler.
# The method `caught` continues at the program's `except`, if it has one.
# <!-- shows: has("ObservedException") -->
#
# The method `inline` evaluates a call of a Python function. `bind` pairs the parameters with the
# arguments:

# %%
part(evaluator.Frame.inline, ("code =", "code"), ("frame = Frame", "frame"), ("return frame.run", "return"))

# %% [markdown]
# Inlining needs no more than a second `Frame` with the same `output`, which holds the graph. (The
# lines that are left out are about coroutines and generators.)
# <!-- shows: has("Frame(self.output,") -->
#
# The method `unwind` handles an exception. CPython keeps an *exception table* beside the bytecode.
# For each range of instructions, an entry of the table names the `target` to jump to and the
# `depth` to which the stack must shrink. The flag `lasti` says whether the handler also needs the
# position of the instruction that raised:

# %%
part(evaluator.Frame.unwind, ("target, depth", "self.pc"))

# %% [markdown]
# `unwind` drops the operands of the unfinished expression from the stack and pushes the exception.
# It continues at `target`, where the `except` begins.
#
# In sum, the real evaluator adds four things to the small machine:
#
# * Every value is a `Variable`, which knows where it came from (chapter 05).
# * A call of a Python function gets a `Frame` of its own that shares the graph.
# * An exception is handled as the exception table of the evaluated program says.
# * An operation that the evaluator cannot capture raises `Break`, and the compiler splits the frame
#   there (chapter 06).
#
# How many kinds of instructions does the evaluator handle?

# %%
handlers = opcodes.HANDLERS
print(len(handlers), "canonical opcodes, for example:", ", ".join(list(handlers)[:12]), "...")

# %% [markdown]
# The handlers serve all three versions of Python. (A few of them ask for the version, where the
# versions leave different values on the stack.) Now the real evaluator captures the two functions
# on which the small machine failed:
# <!-- general -->

# %%
for function in (with_a_loop, with_a_helper):
    e = minidynamo.explain(function, backend="eager")(torch.ones(2))
    print(function.__name__, "->", [n.name for n in e.main.record.graph.graph.nodes if n.op.startswith("call")])

# %% [markdown]
# In `with_a_loop` the evaluator unrolled the loop, since `range(3)` is known. In `with_a_helper` it
# inlined `polynomial`: the graph has the two operations of `polynomial`, and then the product with
# 2.
# <!-- shows: has("['sin', 'mul', 'sin_1', 'mul_1', 'sin_2', 'mul_2']") and has("with_a_helper -> ['mul', 'add', 'mul_1']") -->
#
# The evaluator also follows exceptions of the program. The function below raises a `KeyError` and
# catches it:

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
# The graph has no `try`, and the frame has no break. The evaluator raised and caught the `KeyError`
# while capturing, so `scale` is the `2` in the product. (A guard remembers that the key was
# missing.)
#
# ## A real model
#
# How many instructions does the evaluator execute to capture BERT with two layers? The next cell
# wraps every handler in a function that counts:

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
# The evaluator needs many instructions per tensor operation. The next table has the most frequent
# kinds. Most of them only load values or store them:
# <!-- shows: n("more than") * 1000 > 50 * n("to find") -->

# %% tags=["volatile"]
Table(["opcode", "times"], counts.most_common(8))

# %% [markdown]
# Eager mode executes all of these instructions in *every* call. A compiled call executes none of
# them, but it has to check its guards (chapter 05).
# <!-- shows: n("LOAD_FAST") > n("CALL") -->
#
# ## Exercises
#
# **04.1** (warm-up) *Loops.* Give the small machine the instructions `GET_ITER` and `FOR_ITER`.
# `GET_ITER` replaces the top of the stack by an iterator over it. `FOR_ITER target` pushes the next
# item. If no item is left, it removes the iterator and continues at `target`, which is the first
# instruction after the loop.
#
# *Hints.* Use `next(iterator, NULL)`. The sequence is always known in this exercise.

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
# **04.2** (core) *Inlining.* Override `CALL`. A second machine must evaluate a call of a Python
# function (which has a `__code__`), and must write into the same graph. All other calls work as
# before.
#
# *Hints.* Pop the arguments and the callee as `Machine.CALL` does. Make the second machine with
# `inner = type(self)(callee, [])`. Then set `inner.graph = self.graph`, and store the arguments in
# `inner.locals` under the names in `callee.__code__.co_varnames`. The method `run` also adds an
# output node, which does not belong there. Write the loop again, or remove this node with
# `self.graph.erase_node`.

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
# **04.3** (stretch) *The real evaluator.* A `match` on a sequence uses the instruction `GET_LEN`.
# This instruction pushes the length of the top of the stack, and leaves the top itself on the
# stack. Write the handler. The check replaces minidynamo's own handler by yours and captures a
# `match` statement.
#
# *Hints.* `frame.stack` is a list of `Variable`s. Every variable has a method `length(frame)`,
# which returns an `int`. A known value is a `ConstantVar(value)`.

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
# **04.4** (core) *Tuples.* Give the small machine `BUILD_TUPLE count` and `UNPACK_SEQUENCE count`.
# The first takes `count` values off the stack and pushes one tuple of them. The second takes a
# tuple off and pushes its items, with the *first* item on top. The stores that follow then take the
# items from left to right.
#
# *Hints.* `self.pop(count)` returns the values in their order. A tuple needs no node of its own:
# keep it on the stack as a Python tuple.
#
# <details><summary>Predict: does a, b = b, a add a node to the graph?</summary>
#
# No. Values change places on the stack, but no tensor operation runs. (CPython swaps two values
# without a tuple, so the check uses four.)
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
# **The piece.** You extend the machine of this chapter. Its values are nodes of the graph, objects
# from outside the frame (`Outside`), and plain Python values. You write the step of its loop, most
# of its instructions, the call, and inlining. (The given `_call_with` takes the callee and its
# arguments from the stack.) The head of the file explains the names that the hints use.
#
# <details><summary>Hint: start</summary>
#
# The method that handles an instruction has the instruction's name. `step` looks up this method and
# refuses an instruction that has none. It increases `pc` *before* it calls the method, so that a
# jump may change `pc`.
#
# </details>
# <details><summary>Hint: the stack</summary>
#
# `COPY 1` copies the top. `SWAP n` exchanges the top with the n-th value from the top.
# `UNPACK_SEQUENCE` leaves the *first* element on top. `pop(n)` removes n values at once and returns
# them with the lowest first, which is also the order of operands. `self.items` returns the elements
# of a container, and refuses a tensor.
#
# </details>
# <details><summary>Hint: inlining</summary>
#
# Use another `Machine` with the same `Capture`. `inspect.signature(function,
# follow_wrapped=False).bind(...)` finds the parameter of each argument, and `apply_defaults` fills
# in the other parameters. Refuse a default that is not a constant (`Refused`): no guard would
# notice if it changed.
#
# </details>
# <details><summary>Hint: what is called</summary>
#
# Check the cases in the order of the docstring of `call`. A `Bound` is a function with its first
# argument: call the function with `first` before the other arguments. For an `Outside`, decide by
# its `value`. `self._forward(module)` returns the function that a module calls. Functions in
# `TORCH` and `PLAIN` get the items of a container from outside: `capture.items(arg)` returns them,
# and returns every other argument unchanged.
#
# `list.append` changes a list, so the journal of chapter 07 must record it. First call
# `self.items(target)`, then `capture.journal.append(capture.journal.items_of(target), value)`.
# Inline an `Outside` only if it is a Python function. Refuse everything else.
#
# </details>
# <details><summary>Hint: attributes and globals</summary>
#
# A method of a node is `Bound(METHODS[name], value)`; the shape of a node is a `torch.Size`. For
# attributes of other objects, call `capture.attribute` (chapter 05).
#
# `self.source` is the source of the function, so the source of a global is
# `{self.source}.__globals__['name']`. `capture.wrap(value, source)` turns a value from outside into
# a value of the machine.
#
# </details>

# %%
from exercises.own_compiler import begin

begin("machine");

# %% [markdown]
# The output names your functions. Write them in that file, and run the check as often as you like:

# %% tags=["check", "piece"]
from exercises.own_checks import check_piece

check_piece("machine")

# %% [markdown]
# ## What else lives here
#
# The list below has every public name of this chapter's core files, with one sentence each. Unfold
# a file, then a name, to see its first lines. The list is made from the sources when the page is
# built.

# %% tags=["volatile"]
from minidynamo.explain import also_here

also_here("minidynamo/bytecode/", "minidynamo/evaluate/")

# %% [markdown]
# ## What real PyTorch has
#
# * `torch/_dynamo/symbolic_convert.py` is the evaluator. It checks the version of Python inside its
#   instruction methods, where minidynamo translates first. Section 3 of the paper describes it.
# * `torch/_dynamo/bytecode_transformation.py` has the assembler and the disassembler.
# * `torch/_dynamo/polyfills/` has library functions, rewritten in Python so that the evaluator can
#   inline them.
#
# **See it in the real `torch.compile`.** `TORCH_LOGS=trace_bytecode python program.py` prints each
# instruction with the symbolic stack before it. `TORCH_LOGS=bytecode` prints the original and the
# replacement bytecode.
#
# ## Recap
#
# * Bytecode is a small language for a stack machine. Evaluating it on symbols yields the tensor
#   operations.
# * The evaluator computes known values while it captures. The graph contains only operations on
#   tensors.
# * The evaluator inlines function calls, unrolls loops over known sequences, and follows
#   exceptions.
#
# Next: where each value came from, and what must hold for the graph to be right again.
