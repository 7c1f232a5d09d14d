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
# # 06 · Graph breaks and resume functions
#
# Some operations cannot go into a graph: a `print`, a branch on a tensor's value, a call into a
# library whose code cannot be traced. The earlier mechanisms of notebook 01 gave up at such a
# place, or continued and were wrong. minidynamo compiles the operations before such a place, leaves
# the operation itself to Python, and compiles the operations after the place. The place is called a
# **graph break**. The rest of the function becomes a **resume function**.
#
# **What you will learn:** what must survive a break; how the rest of a function becomes a function;
# how loops, `with` and `try` blocks are split; what happens at a break inside an inlined call; how to
# read the records of breaks, and how to remove the breaks.
#
# **Files of this chapter:** `minidynamo/convert/conversion.py`, `minidynamo/rebuild/replacement.py`,
# `minidynamo/rebuild/resume.py`.

# %%
import dis

import torch

import minidynamo
from minidynamo.bytecode import disassemble
from minidynamo.explain import Code, Table, excerpt
from minidynamo.rebuild.resume import resume_code

torch.manual_seed(0)
torch.set_grad_enabled(False);

# %% [markdown]
# ## The naive version: give up
#
# The simplest answer to an unknown operation is to run the whole frame as plain Python. The result
# is right, and `torch.compile` does the same with a frame that it cannot split. But then one
# `print` switches the compiler off for the whole function around it. In the next cell the backend
# collects the graphs that it receives. `fullgraph=True` turns a break into an error, and at an
# error the plain function runs:

# %%
def talkative(x):
    x = torch.relu(x) + 1           # could be one kernel
    print("the mean is", float(x.mean()))
    return x * 2 - 1                # could be one kernel

graphs = []

def or_give_up(function):
    compiled = minidynamo.compile(
        function, fullgraph=True, backend=lambda gm, _: graphs.append(gm) or gm.forward
    )
    def call(x):
        try:
            return compiled(x)
        except minidynamo.Unsupported:
            return function(x)
    return call

print(or_give_up(talkative)(torch.tensor([-1.0, 3.0])), "and", len(graphs), "graphs")

# %% [markdown]
# The result is right, and nothing was compiled. minidynamo itself does better. Its report has a row for each frame that it evaluated:
# <!-- shows: has("and 0 graphs") -->

# %%
e = minidynamo.explain(talkative)(torch.tensor([-1.0, 3.0]))
e

# %% [markdown]
# minidynamo made three frames of one function: the beginning of the function, and two resume functions. The first and the last frame have a
# graph. The one in the middle covers the code between `float` and `print`, and there is nothing to compile:
# <!-- shows: count("<resume of talkative at line 3>") == 2 -->

# %%
for frame in e.frames:
    graph = frame.record.graph
    calls = [n.name for n in graph.graph.nodes if n.op.startswith("call")] if graph else "nothing to compile"
    print(frame.record.function, "->", calls)

# %% [markdown]
# The lists name the operations that each frame captured. Why did the first frame end?
# <!-- shows: has("nothing to compile") and count("->") == 3 -->

# %%
e.frames[0].breaks

# %% [markdown]
# `float` needs the value of a tensor. While minidynamo traces, that value does not exist yet. A
# break of this kind is called *data-dependent*. The `print` in the same line causes a second break,
# in the next frame. The picture shows for each line what runs it:
# <!-- shows: has("1 graph break") and has("data-dependent") -->

# %%
e.frames_picture

# %% [markdown]
# Step through the same lines in the order of execution. (Use the buttons, or the arrow keys.) Look at the parameters of the
# resume functions: they are the values that survive the break.
# <!-- shows: has("the call of print()") -->

# %%
from steppers import breaks_walk

breaks_walk(e)

# %% [markdown]
# *The kitchen.* The recipe says "now phone the supplier and use whatever he has". The recipe cannot
# say in advance what the supplier has. So the recipe ends there, the cook phones, and a second
# recipe begins with "you have a hot pan and whatever he sold you". *Exactly:* at a break the frame
# holds local variables, a stack of half-evaluated expressions, and perhaps open `with` blocks. The
# code that continues needs all three.
# <!-- shows: count("Frame") == 5 -->
#
# ## The rest of a function as a function
#
# Take `talkative` at the first instruction after the `print` line. Only the local `x` is *alive*
# there (later code reads it), and the stack is empty. So the rest is a function of `x`:

# %%
body = disassemble(talkative.__code__)
line_4 = talkative.__code__.co_firstlineno + 3
first_of_line_4 = next(n for n, ins in enumerate(body) if ins.pos and ins.pos[0] == line_4)
rest = resume_code(talkative.__code__, first_of_line_4, stack=[], live={"x"})
print("parameters:", rest.co_varnames[:rest.co_argcount])
listed = dis.Bytecode(rest).dis().splitlines()
print("\n".join([*listed[:5], "  ...", *listed[-6:]]))         # its beginning and its end

# %% [markdown]
# The first two instructions are new: one begins the function, the other jumps to line 4. The
# original body follows, whole and in order. So a resume function is a few new instructions,
# followed by the original body. The new instructions restore the stack and jump to the right place.
# Loops, `with` and `try` need no special treatment: the jump leads into the original body, where
# the loop or the block still surrounds its target.
# <!-- shows: has("JUMP_FORWARD") and count("RESUME") == 2 -->
#
# The result is an ordinary function. Call it:

# %%
import types

resumed = types.FunctionType(rest, globals())
resumed(torch.tensor([1.0, 4.0]))

# %% [markdown]
# The next picture shows `talkative` and its resume function side by side, and connects instructions
# of the same source line. The first two instructions of the resume function are new. Everything
# below them is the body of `talkative` again. The jump skips the lines that have already run:
# <!-- shows: has("tensor([1., 7.])") -->

# %%
from minidynamo.explain.draw_code import draw_resume

draw_resume(talkative, resumed)

# %% [markdown]
# A value on the stack becomes one more parameter. In `a() + b()`, a break at the call of `b` leaves
# the result of `a()` on the stack. The argument `stack=` of `resume_code` describes the stack from
# the bottom to the top. A `"v"` is a value. An `"n"` is a NULL, which CPython pushes before some
# calls. The argument `live=` names the locals that the rest still reads. The next cell breaks
# before an addition, when both operands are on the stack. minidynamo names the parameters for them
# `.1s0` and `.1s1`: no variable of a program can have a name with a dot.
# <!-- general -->

# %%
def sum_of_two(x):
    return torch.sin(x) + float(x.max())

body = disassemble(sum_of_two.__code__)
addition = next(n for n, ins in enumerate(body) if ins.op == "BINARY_OP")
rest = resume_code(sum_of_two.__code__, addition, stack=["v", "v"], live=set())
print("parameters:", rest.co_varnames[:rest.co_argcount], "(the left and right operand of +)")
types.FunctionType(rest, globals())(torch.ones(2), 10.0)

# %% [markdown]
# The rest of `sum_of_two` ran alone. We gave it two operands of our choice; at a real break they
# are the two values on the stack.
# <!-- shows: has("('.1s0', '.1s1')") and has("tensor([11., 11.])") -->
#
# ## The replacement code at a break
#
# The replacement code of `talkative` calls the graph, then performs the unsupported call. Then it
# calls the resume function with every live value, and returns its result. A call of the resume
# function begins a frame of its own. The frame hook sees this frame, so minidynamo captures and
# compiles it like any other. Here are the original bytecode and the replacement:

# %%
e.frames[0].bytecode

# %% [markdown]
# Look for three calls in the replacement (unfold the rest to see all of it): the graph, `float` in
# plain Python, and `hand_over`. The last one calls the resume function with the values in the list.
# (The call at the very beginning only updates the counters.) The graph returns two results: the
# mean, which `float` receives, and the new `x`, which is still alive.
# <!-- shows: has("original bytecode") -->
#
# ## A branch on data
#
# At `if y.sum() > 0` the break is *at the jump*. Each side of the branch becomes a resume function. minidynamo compiles a
# side when the program first takes it. Call the function with both signs, and print the compiled frames each time:

# %%
def branch(x):
    y = x * 2
    if y.sum() > 0:
        return torch.relu(y)
    return torch.sin(y)

minidynamo.reset()
compiled = minidynamo.compile(branch)
compiled(torch.ones(3))
print("after a positive input: ", sorted(minidynamo.counters["frames"]))
compiled(-torch.ones(3))
print("after a negative input: ", sorted(minidynamo.counters["frames"]))
assert torch.equal(compiled(-torch.ones(3)), branch(-torch.ones(3)))

# %% [markdown]
# The first call compiled the side at line 4, the second call the side at line 5.
# <!-- shows: has("'<resume of branch at line 5>'") -->
#
# ## Loops, `with`, `try`, nested calls
#
# A break must not change the order of what a program prints, computes and cleans up. The next program has breaks in
# a `with` block, in a `try` block, in a loop and in a nested call:

# %%
class Logged:
    def __init__(self, name): self.name = name
    def __enter__(self): print("enter", self.name)
    def __exit__(self, *error): print("exit", self.name, "after", error[0].__name__ if error[0] else "no error")

def inner(x):
    x = x + 1
    minidynamo.graph_break()
    return x * 3

def everything(x):
    for step in range(2):
        with Logged(f"step {step}"):
            try:
                x = inner(x)
                print("step", step, "sum", x.sum().item())
            finally:
                x = x - 1
    return x

minidynamo.reset()
compiled = minidynamo.compile(everything)
result = compiled(torch.ones(2))
print("-- plain Python:")
assert torch.equal(result, everything(torch.ones(2)))

# %% [markdown]
# Both versions printed the same lines. Here are the breaks, in the order in which minidynamo found them:
# <!-- shows: count("step 0 sum 12.0") == 2 and count("step 1 sum 36.0") == 2 -->

# %%
Table(["frame", "what", "where", "hint"],
      [(record.function, b.reason, f"line {b.line}", b.hint)
       for record in minidynamo.records.frames for b in record.graph_breaks])

# %% [markdown]
# `graph_break()` has two rows. A break inside an inlined call splits the *caller* at the call. Then `inner` runs as
# a frame of its own, and is split as well.
# <!-- shows: count("minidynamo.graph_break() was called") == 2 -->
#
# `item()` has two rows too. The resume functions around it were compiled for `step == 0`, so the
# second turn compiles them again. The rows of `print` at lines 3 and 4 belong to `__enter__` and
# `__exit__`.
#
# One break belongs to the `for` itself. When the second turn begins, a resume function continues a
# loop whose iterator an earlier frame made. The evaluator does not trace such an iterator, so its
# next step is a break. This break is a consequence of the others, and `minidynamo.counters` counts
# it under `loop_splits`.
#
# ## How the evaluator finds the place
#
# The evaluator does not plan ahead. It evaluates until some operation raises `Break`. Then it notes the number of
# the step, discards all its results, and evaluates the frame again from the start. This time it stops just before that
# step. A half-evaluated inlined call leaves nothing behind, because the whole attempt is discarded.

# %%
from minidynamo.evaluate.evaluator import RootFrame

excerpt(RootFrame.loop)

# %% [markdown]
# `super().loop()` evaluates one instruction after the other. A `Break` may come from a call within
# a call, and it arrives here. `break_at` adds the step to the dictionary `forced` and discards this
# attempt. The next attempt asks the following method before each operation:

# %%
from parts import part

part(RootFrame.ends_here, ("if self.info", "return"))

# %% [markdown]
# `forced` maps the steps at which earlier attempts broke to the reasons. When the current step is
# one of them, the method stores the place of the break in `self.split`, and the loop ends.
# (`groups` says which operations belong to one instruction of CPython. A frame is split only
# between such instructions.)
# <!-- shows: has("self.forced[self.step]") -->
#
# ## No breaks allowed
#
# With `fullgraph=True` a break is an error, which names your line:

# %%
try:
    minidynamo.compile(talkative, fullgraph=True)(torch.ones(2))
except minidynamo.Unsupported as error:
    print(error)

# %% [markdown]
# Without `fullgraph=True` the same text would be a row of `breaks`.
# <!-- shows: has("graph break under fullgraph=True") -->
#
# ## What a break costs
#
# Each break ends a graph. Nothing is fused across the break, and the resume function has guards of
# its own to check. And an intermediate result that could have stayed in a register must be written
# to memory. Compare the times of one call (on one core, measured as notebook 15 explains):

# %% tags=["volatile"]
import time

from benchmarks.runner import interleave, keep_freed_memory

torch.set_num_threads(1)
keep_freed_memory()             # otherwise chance decides who pays for fresh pages of memory

def smooth(x):
    for _ in range(4):
        x = torch.relu(x * 1.1 + 0.1)
    return x

def broken(x):
    for _ in range(4):
        x = torch.relu(x * 1.1 + 0.1)
        minidynamo.graph_break()
    return x

x = torch.randn(2048, 1024)
minidynamo.reset()
variants = {
    "eager": lambda: smooth(x),
    "compiled": (lambda f: lambda: f(x))(minidynamo.compile(smooth)),
    "compiled, a break per step": (lambda f: lambda: f(x))(minidynamo.compile(broken)),
}
timings = interleave(variants, budget=1.5, clock=time.process_time)   # the processor's time: other processes count least
Table(["", "microseconds"], [(name, f"{timing.median * 1e6:.0f}") for name, timing in timings.items()])

# %% [markdown]
# The last two rows compute the same numbers. Their difference is what the breaks cost.
# <!-- shows: n("compiled, a break per step") > n("compiled  ") -->
#
# ## A real model
#
# This ResNet has somebody's debugging line in the middle of `forward`: a hook that prints. The model's result must stay
# right, and the record must tell where to look:

# %%
from benchmarks.models import resnet

model, inputs = resnet(size=64)
expected = model(**inputs).logits

def debugging_hook(module, args, output):
    print("stage output is finite:", bool(torch.isfinite(output).all()))

handle = model.resnet.encoder.stages[1].register_forward_hook(debugging_hook)
minidynamo.reset()
compiled = minidynamo.compile(model, backend="eager")
logits = compiled(**inputs).logits
breaks = dict(minidynamo.counters["graph_breaks"])
print("right:", torch.allclose(logits, expected, atol=1e-4), "  graphs:", sum(minidynamo.counters["graphs"].values()))
handle.remove()
minidynamo.reset()
minidynamo.compile(model, backend="eager", fullgraph=True)(**inputs)
print("without the hook, graphs:", sum(minidynamo.counters["graphs"].values()))
Table(["times", "break"], [(n, text) for text, n in breaks.items()])

# %% [markdown]
# Every break of the table is at one place: the line of the hook, where `bool` needs a tensor's value. The line is counted once
# for the hook itself and once for each module around it, because a break inside an inlined call splits the caller, too. Without
# the hook the model is one graph.
# <!-- shows: has("right: True") and has("without the hook, graphs: 1") and count("at notebook:7") >= 1 -->
#
# ## Exercises
#
# **06.1** (warm-up) *Remove the breaks.* Write `clipped` so that it computes the same numbers as `original`
# (below it) without a graph break.
#
# *Hints.* A branch on data that only chooses between two tensors is `torch.where`. A Python number
# computed from a tensor can stay a tensor.

# %% tags=["exercise"]
def clipped(x: torch.Tensor) -> torch.Tensor:
    """x / max(|x|) if the sum of x is positive, else -x.  No graph break."""
    ### BEGIN SOLUTION
    return torch.where(x.sum() > 0, x / x.abs().max(), -x)
    ### END SOLUTION

def original(x):
    if x.sum() > 0:
        return x / float(x.abs().max())
    return -x

# %% tags=["check"]
from exercises import check

check("06.1", clipped)

# %% [markdown]
# **06.2** (core) *What is alive?* Write `alive(function, line)`. It returns the set of local
# variables that may still be read when execution reaches the beginning of the `line`-th line of the
# function (1 is the `def` line). The functions are straight-line code without jumps. The parameters
# of a resume function are the variables that are alive.
#
# *Hints.* Walk *backwards* over `disassemble(function.__code__)`, from the end to the first
# instruction of that line: `LOAD_FAST` makes its variable alive, `STORE_FAST` ends its life.
# `ins.pos[0]` is the line number; `function.__code__.co_firstlineno` is the line of the `def`.

# %% tags=["exercise"]
def alive(function, line: int) -> set:
    """Names of the locals that are read at or after `line` before they are written."""
    ### BEGIN SOLUTION
    names, start = set(), function.__code__.co_firstlineno + line - 1
    for ins in reversed(disassemble(function.__code__)):
        if ins.pos is None or ins.pos[0] is None or ins.pos[0] < start:
            continue
        if ins.op == "STORE_FAST":
            names.discard(ins.arg)
        elif ins.op == "LOAD_FAST":
            names.add(ins.arg)
    return names
    ### END SOLUTION

# %% tags=["check"]
check("06.2", alive)

# %% [markdown]
# **06.3** (stretch) *A resume function by hand.* Write `rest_from(function, line)`. It returns the rest of a
# straight-line function, from the beginning of that line, as a function of the locals that are alive
# there.
#
# *Hints.* `resume_code(code, k, stack=[], live=...)` makes the code; `k` is the index of the line's first
# instruction. `types.FunctionType(code, function.__globals__)` makes it a function. Exercise 06.2 finds `live`.

# %% tags=["exercise"]
def rest_from(function, line: int):
    """The part of `function` from `line` on, as a function."""
    ### BEGIN SOLUTION
    code = function.__code__
    k = next(n for n, ins in enumerate(disassemble(code)) if ins.pos and ins.pos[0] == code.co_firstlineno + line - 1)
    return types.FunctionType(resume_code(code, k, stack=[], live=alive(function, line)), function.__globals__)
    ### END SOLUTION

# %% tags=["check"]
check("06.3", rest_from)

# %% [markdown]
# **06.4** (stretch) *Where to break.* A break costs less where fewer bytes are alive: each variable
# that is alive becomes a result of the code before the break and a parameter of the rest. Write
# `best_break(function, sizes, places)`. `places` is a list of line numbers; return the one at whose
# beginning the fewest bytes are alive. `sizes` maps a variable's name to its bytes. If several
# lines have equally few, return the first of them in `places`.
#
# *Hints.* `alive` of exercise 06.2 does most of the work.
#
# <details><summary>Predict: is the best place always the first line?</summary>
#
# No. A reduction makes a small value out of a large one. After it, few bytes are alive.
#
# </details>

# %% tags=["exercise"]
def best_break(function, sizes: dict, places: list) -> int:
    """The line at whose beginning the fewest bytes are alive."""
    ### BEGIN SOLUTION
    return min(places, key=lambda line: sum(sizes[name] for name in alive(function, line)))
    ### END SOLUTION

# %% tags=["check"]
check("06.4", best_break)

# %% [markdown]
# ## Your own compiler: breaking and going on
#
# **The piece.** Where the machine refuses an instruction, your compiler splits the frame. A first
# call, the *prefix*, does the work before that place. Then the refused *statement* runs as it was
# written, and a call of a *resume function* does the rest. minidynamo splits at the instruction.
# Your compiler splits between two statements, where the stack is empty, and so your part is much
# shorter.
#
# Everyone writes three functions: `evaluate` finds the place of the break, `split` makes an entry,
# and `Entry.prefix` is the first call. A frame without a break needs these, too: its prefix does
# all the work. The curious write the break itself: where a statement ends, the code of the rest
# with its resume function, and two guards.
#
# <details><summary>Hint: the place of the break</summary>
#
# `evaluate` makes the `Capture` and the `Machine`, and gives the machine its arguments:
# `capture.wrap(value, "a0")` for the first, and so on.
#
# A statement begins where the stack is empty. One instruction of the original may be several
# operations here, and a break between two of them could not be repaired. So `machine.pc` must be one
# of `machine.first.values()`, too. Remember a *copy* of the locals, because the machine continues to change them.
#
# </details>
# <details><summary>Hint: sizes that change</summary>
#
# First evaluate without symbols. `capture.shapes` has the shapes of the inputs, by source. `changed(now,
# earlier)`, of chapter 14, compares two such dictionaries. It returns a set of `(source, dimension)`, which
# `evaluate` takes as `dynamic`. If the shapes of any earlier entry differ, evaluate again.
#
# </details>
# <details><summary>Hint: the prefix</summary>
#
# Find the values of all sources, run the program, rebuild the values that live on, *then* replay the
# effects. The order matters: a source may lead through an object that an effect changes.
#
# `find` takes the function itself first, then the frame's arguments. The program takes a list of
# tensors, and the sizes as `{symbol: size}`. One dictionary maps each node of
# `inputs` and `outputs`, and each `Outside` of `objects`, to its value in this call.
# `partial(self._leaf, real, sizes, made)`
# is the `leaf` that the given `rebuild` needs. `replay(target, found, rebuild)`, of chapter 07, does to
# the object `found` what the frame did to `target`.
#
# </details>
# <details><summary>Hint for the curious: the end of a statement</summary>
#
# Add up `stack_effect(instruction)`. The argument of a jump is an `Instruction`. A statement may contain a jump
# only as its last instruction, forwards, with an empty stack. There the control flow forks, and each side gets a resume
# function. An instruction inside a `try` or a `with` has an `exc`.
#
# </details>
# <details><summary>Hint for the curious: a resume function that breaks</summary>
#
# A loop that breaks in each turn would make a new function each time. Look up the original in
# `ORIGINS`, and subtract the number of instructions that were put in front of it. Then the second
# turn finds the code of the first.
#
# </details>
# <details><summary>Hint for the curious: the guards</summary>
#
# Two lists of this call may be one list in the next call, and then a write to one changes the other.
# So each object that is `changed` needs a guard against each other object of its type in `capture.known`:
# `{source} is not {other source}`.
#
# `capture.facts` are texts over symbols; `capture.sizes` tells where the number of a symbol is found. A `lambda` in
# the check can give the numbers their names.
#
# </details>
# <details><summary>Hint for the curious: the resume function</summary>
#
# `machine.first` maps the id of a native instruction to the operation that it begins. The refused
# statement starts at the *last* native instruction of `machine.pc`. Copy its instructions with
# `replace(ins, exc=None)`, because the copy of a jump gets a different target. Variables that the
# statement stores are locals of the rest, too.
#
# </details>

# %%
from exercises.own_compiler import begin

begin("breaks");

# %% [markdown]
# The output names the functions that you write. Write them in that file, then run the check as
# often as you like:

# %% tags=["check", "piece"]
from exercises.own_checks import check_piece

check_piece("breaks")

# %% [markdown]
# ## What else lives here
#
# The list has every public name of this chapter's main files, with one sentence each. Unfold a file, then a name,
# to see its first lines. The list is made from the sources when the page is built.

# %% tags=["volatile"]
from minidynamo.explain import also_here

also_here("minidynamo/convert/conversion.py", "minidynamo/rebuild/resume.py")

# %% [markdown]
# ## What real PyTorch has
#
# * `torch/_dynamo/resume_execution.py` makes resume functions in the same way. It re-enters `with` blocks by generated code.
#   Paper, section 3.
# * `torch/_dynamo/exc.py` and `graph_break_hints.py` have the kinds of breaks and their hints.
#   `TORCH_LOGS=graph_breaks` prints them; here `MINI_DEBUG=1` does.
# * PyTorch can also break inside an inlined function and resume there, if
#   `torch._dynamo.config.nested_graph_breaks` is set. minidynamo splits the caller at the call.
#
# **See it in the real `torch.compile`.** `TORCH_LOGS=graph_breaks python program.py` prints each break with its reason and your line.
#
# ## Recap
#
# * A break splits a frame into a compiled first part, one instruction of plain Python, and a resume
#   function.
# * The resume function begins with a few instructions that restore the stack. The original code
#   follows them. minidynamo captures it like any function.
# * Every break is a record with kind, reason, hint and line; `fullgraph=True` makes it an error.
#
# Next: writes that other code can see.
