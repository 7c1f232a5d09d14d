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
# Some things cannot go into a graph: a `print`, a branch on a tensor's value, a call into a library
# that nobody can look into. The earlier mechanisms of notebook 01 gave up, or went on and were
# wrong. minidynamo compiles what comes before, lets Python do the thing itself, and compiles what
# comes after. The place is a **graph break**; the rest of the function becomes a **resume
# function**.
#
# **What you will learn:** what must survive a break; how the rest of a function becomes a function;
# loops, `with` and `try` blocks; breaks inside inlined calls; how to read the records and get rid
# of breaks.
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
# If evaluation meets something unknown, run the whole frame as plain Python. That is right, and it
# is what `torch.compile` does with a frame that it cannot split. But then one `print` switches the
# compiler off for everything around it. Here is the naive version: a backend counts what it is given,
# and a break gives the frame up (`fullgraph=True` makes a break an error):

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
# The numbers are right, and nothing was compiled. Now minidynamo as it is:

# %%
e = minidynamo.explain(talkative)(torch.tensor([-1.0, 3.0]))
e

# %% [markdown]
# There are several frames: the start, and resume functions. The first and the last have a graph.
# Between `float` and `print` there is nothing to compile.

# %%
for frame in e.frames:
    graph = frame.record.graph
    calls = [n.name for n in graph.graph.nodes if n.op.startswith("call")] if graph else "nothing to compile"
    print(frame.record.function, "->", calls)

# %% [markdown]
# Each frame is a piece of the function, with the operations that it captured. Why did the first one
# end?

# %%
e.frames[0].breaks

# %% [markdown]
# A number is wanted from a tensor, and the graph has none yet: that is what *data-dependent* means. Which
# line ran where? `float` and `print` stand in one line, so there are two breaks in it:

# %%
e.frames_picture

# %% [markdown]
# The same in order. (Use the buttons, or the arrow keys.) Look at the parameters of the resume
# functions: they are what survives the break.

# %%
from steppers import breaks_walk

breaks_walk(e)

# %% [markdown]
# *The kitchen.* The recipe says "now phone the supplier and use whatever he has". Nobody can write
# that down in advance. So the recipe ends there, the cook phones, and a second recipe begins with
# "you have a hot pan and whatever he sold you". *Exactly:* at a break the frame holds local
# variables, a stack of half-finished expressions, and perhaps open `with` blocks. All of it must
# reach the code that goes on.
#
# ## The rest of a function as a function
#
# Take `talkative` at the instruction after the `print` line. What is alive there? The local `x`,
# and an empty stack. So the rest is a function of `x`:

# %%
body = disassemble(talkative.__code__)
line_4 = talkative.__code__.co_firstlineno + 3
first_of_line_4 = next(n for n, ins in enumerate(body) if ins.pos and ins.pos[0] == line_4)
rest = resume_code(talkative.__code__, first_of_line_4, stack=[], live={"x"})
print("parameters:", rest.co_varnames[:rest.co_argcount])
listed = dis.Bytecode(rest).dis().splitlines()
print("\n".join([*listed[:5], "  ...", *listed[-6:]]))         # its beginning and its end

# %% [markdown]
# The first two instructions are new: begin, and jump to line 4. The original body is still there, whole and in order. In front of it is a short prefix that
# restores the stack and jumps to the right place. That is why loops, `with` and `try` need no
# special treatment: the code around the target is the code that always was around it.
#
# It is an ordinary function. Call it:

# %%
import types

resumed = types.FunctionType(rest, globals())
resumed(torch.tensor([1.0, 4.0]))

# %% [markdown]
# Beside each other, line by line of the source: the prefix is new, everything below it is the body
# of `talkative` again, and the jump leads over the lines that were done already:

# %%
from minidynamo.explain.draw_code import draw_resume

draw_resume(talkative, resumed)

# %% [markdown]
# A value that was on the stack arrives as one more parameter. In `a() + b()`, a break at the call
# of `b` leaves the result of `a()` on the stack. `stack=` says what lies there, from the bottom:
# `"v"` is a value, `"n"` one of the NULLs that calls put there; `live=` names the locals that are
# still needed.

# %%
def sum_of_two(x):
    return torch.sin(x) + float(x.max())

body = disassemble(sum_of_two.__code__)
addition = next(n for n, ins in enumerate(body) if ins.op == "BINARY_OP")
rest = resume_code(sum_of_two.__code__, addition, stack=["v", "v"], live=set())
print("parameters:", rest.co_varnames[:rest.co_argcount], "(the left and right operand of +)")
types.FunctionType(rest, globals())(torch.ones(2), 10.0)

# %% [markdown]
# The rest of the function ran alone, given what was alive at the break.
#
# ## The replacement code at a break
#
# What runs instead of `talkative` ends with: do the unsupported call, then call the resume function
# with everything that is alive, and return what it returns. The resume function is a frame like any
# other: the hook asks about it, so it gets captured and compiled in turn, when it is first reached.

# %%
e.frames[0].bytecode

# %% [markdown]
# Look for the calls: the graph, the plain Python in the middle, the resume function (unfold the rest
# to see it). In the second listing the graph gives two results: `x`, which lives on, and the mean, which `float` is called with.
#
# ## A branch on data
#
# At `if y.sum() > 0` the break is *at the jump*. Both sides become resume functions, but only the
# side that is taken is compiled, when it is taken first:

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
# Each side of the branch is a resume function of its own, compiled when it is first taken.
#
# ## Loops, `with`, `try`, nested calls
#
# Printing order, values and cleanup are those of plain Python:

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
# Line by line the same, whatever was in the middle. And these were the breaks:

# %%
Table(["what", "where", "hint"],
      [(b.reason, f"line {b.line}", b.hint) for record in minidynamo.records.frames for b in record.graph_breaks])

# %% [markdown]
# Some rows come twice, once for each turn of the loop. A loop that goes on in a resume function has an
# iterator from before that function: its next step is a break, too.
#
# A break inside the inlined call of `inner` splits the *caller* at the call; `inner` itself then
# runs as a frame of its own, and is split there.
#
# ## How the place is found
#
# The evaluator does not plan ahead. It runs; when something raises `Break`, it remembers the step,
# throws away everything, and evaluates again from the start, stopping just before that step. A
# half-done inlined call leaves nothing behind, because the attempt that went into it was thrown
# away.

# %%
from minidynamo.evaluate.evaluator import RootFrame

excerpt(RootFrame.loop)

# %% [markdown]
# A `Break` may come from deep below, from a call in a call. It arrives here, and `break_at` throws this
# attempt away. Before that it notes the step in `forced`. The next attempt asks before each operation:

# %%
excerpt(RootFrame.ends_here)

# %% [markdown]
# `forced` holds the steps at which earlier attempts broke. When the count of steps comes to one of them,
# the place is noted (`split`) and the loop ends. (`groups` says which operations belong to one
# instruction of CPython: a frame is split between instructions only.)
#
# ## No breaks allowed
#
# `fullgraph=True` turns the record into an exception with your line:

# %%
try:
    minidynamo.compile(talkative, fullgraph=True)(torch.ones(2))
except minidynamo.Unsupported as error:
    print(error)

# %% [markdown]
# The error names the line. Without `fullgraph=True` the same text would be a row of `breaks`.
#
# ## What a break costs
#
# Each break ends a graph: no fusion across it, another guard check, another call. And an
# intermediate that could have stayed in a register must be written to memory. (Measured on one
# core, as notebook 15 explains.)

# %% tags=["volatile"]
from benchmarks.runner import interleave, keep_freed_memory

torch.set_num_threads(1)
keep_freed_memory()             # or else chance decides who pays for fresh pages of memory

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
timings = interleave(variants, budget=1.5)
Table(["", "microseconds"], [(name, f"{timing.median * 1e6:.0f}") for name, timing in timings.items()])

# %% [markdown]
# Compare the last two rows. They compute the same; the difference is what the breaks cost.
#
# ## A real model
#
# ResNet with someone's debugging line in the middle of `forward`: a hook that prints. The model is
# still right, and the record says where to look.

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
handle.remove()
print("right:", torch.allclose(logits, expected, atol=1e-4), "  graphs:", sum(minidynamo.counters["graphs"].values()))
Table(["times", "break"], [(n, text) for text, n in minidynamo.counters["graph_breaks"].items()])

# %% [markdown]
# All rows name one place: the line of the hook. Four times a truth value was wanted there, and once
# something was printed. Without that line the model is one graph.
#
# ## Exercises
#
# **06.1** (warm-up) *Remove the breaks.* Write `clipped` so that it gives the numbers of `original` (below
# it) with no graph break.
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
# **06.2** (core) *What is alive?* Write `alive(function, line)`: the set of local variables that may still
# be read once execution is at the beginning of the `line`-th line of the function (1 is the `def`
# line), for straight-line code without jumps. These are the resume function's parameters.
#
# *Hints.* Walk *backwards* over `disassemble(function.__code__)` from the end to the first
# instruction of that line: `LOAD_FAST` makes its variable alive, `STORE_FAST` ends its life.
# `ins.pos[0]` is the line number; `function.__code__.co_firstlineno` is that of the `def`.

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
# **06.3** (stretch) *A resume function by hand.* Write `rest_from(function, line)`: the rest of a
# straight-line function from the beginning of that line, as a function of the locals that are alive
# there.
#
# *Hints.* `resume_code(code, k, stack=[], live=...)` with `k` the index of the line's first
# instruction; then `types.FunctionType(code, function.__globals__)`. Exercise 06.2 finds `live`.

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
# **06.4** (stretch) *Where to break.* A break costs less where less is alive: each live variable becomes a result of the
# prefix and a parameter of the rest. Write `best_break(function, sizes, places)`: of these places,
# line numbers, the one at whose beginning the fewest bytes are alive. `sizes` maps a variable's name to its bytes; of
# equals, the first line counts.
#
# *Hints.* `alive` does the work.
#
# <details><summary>Predict: is the best place always the first line?</summary>
#
# No. A reduction makes something small out of something large. Behind it little is alive.
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
# **The piece.** Where the machine refuses an instruction the frame is split: a call that does what
# came before, the refused *statement* as it stands, and a call of a *resume function* for the rest.
# minidynamo splits at the instruction. Between two statements the stack is empty, and so your part is
# much shorter. You write the loop that finds the place of the break, what the first call does and
# when it may, where a statement ends, the rest of the code and its resume function, and how values are
# made anew in each call.
#
# <details><summary>Hint: the place of the break</summary>
#
# `evaluate` makes the `Capture` and the `Machine`, and gives the machine its arguments:
# `capture.wrap(value, "a0")` for the first, and so on.
#
# A statement begins where the stack is empty. One instruction of the original may be several
# operations here, and a break between two of them could not be repaired. So `machine.pc` must be one
# of `machine.first.values()`, too. Remember a *copy* of the locals: the machine goes on changing them.
#
# </details>
# <details><summary>Hint: sizes that change</summary>
#
# First evaluate with no symbols. `capture.shapes` has the shapes of the inputs, by source. `changed(now,
# earlier)`, of chapter 14, compares two of those: it gives a set of `(source, dimension)`, which is what
# `evaluate` takes as `dynamic`. If any entry before differs, evaluate again.
#
# </details>
# <details><summary>Hint: the prefix</summary>
#
# Find the values of all sources, run the program, rebuild the values that live on, *then* replay the
# effects: a source may lead through what an effect changes.
#
# `find` takes the function itself first, then the frame's arguments. The program takes a list of
# tensors, and the sizes as `{symbol: size}`. One dictionary says what stands for each node of
# `inputs` and `outputs`, and for each `Outside` of `objects`. `partial(self._leaf, real, sizes, made)`
# is the `leaf` that `rebuild` wants. `replay(target, found, rebuild)`, which chapter 07 writes, does to
# the object `found` what the frame did to `target`.
#
# </details>
# <details><summary>Hint: the end of a statement</summary>
#
# Add up `stack_effect(instruction)`. The argument of a jump is an `Instruction`. A jump may stand at
# the end only, with an empty stack and forwards: there the way forks, and each way gets a resume
# function. An instruction inside a `try` or a `with` has an `exc`.
#
# </details>
# <details><summary>Hint: the rest of a rest</summary>
#
# A loop that breaks in each turn would make a new function each time. Look up the original in
# `ORIGINS`, and subtract the prefix: then the second turn finds the code of the first.
#
# </details>
# <details><summary>Hint: the guard</summary>
#
# Two lists that the caller keeps apart may be one next time, and then a write to one changes the other.
# So of each that is `changed`, and each other of its type in `capture.known`: `{source} is not {other source}`.
#
# `capture.facts` are texts over symbols; `capture.sizes` says where a symbol's number lies. A `lambda` in
# the check can give the numbers their names. `guards.build()` makes the function.
#
# </details>
# <details><summary>Hint: the rest</summary>
#
# `machine.first` maps the id of a native instruction to the operation it begins. The refused statement
# starts at the *last* native instruction of `machine.pc`, and is copied with `replace(ins, exc=None)`: the
# copy of a jump gets another target. What the statement stores are locals for the rest, too.
#
# </details>

# %%
from exercises.own_compiler import begin

begin("breaks");

# %% [markdown]
# The line names what is yours. Write it in that file, then ask for a check, as often as you like:

# %% tags=["check", "piece"]
from exercises.own_checks import check_piece

check_piece("breaks")

# %% [markdown]
# ## What else lives here
#
# Every public name of this chapter's core files, with one sentence each. Unfold a file, then a name:
# its first lines are there. The list is made from the sources when the page is built.

# %% tags=["volatile"]
from minidynamo.explain import also_here

also_here("minidynamo/convert/conversion.py", "minidynamo/rebuild/resume.py")

# %% [markdown]
# ## What real PyTorch has
#
# * `torch/_dynamo/resume_execution.py`: the same idea; re-enters `with` blocks by generated code.
#   Paper, section 3.
# * `torch/_dynamo/exc.py`, `graph_break_hints.py`: kinds of breaks and hints.
#   `TORCH_LOGS=graph_breaks` prints them; here `MINI_DEBUG=1`.
# * PyTorch can also break inside an inlined function and resume there, if it is asked to
#   (`torch._dynamo.config.nested_graph_breaks`). Here the caller is split at the call.
#
# **See it in the real `torch.compile`.** `TORCH_LOGS=graph_breaks python program.py` prints each break with its reason and your line.
#
# ## Recap
#
# * A break splits a frame into: a compiled prefix, one instruction of plain Python, and a resume
#   function.
# * The resume function is the original code behind a prefix that restores locals and stack, and is
#   captured like any frame.
# * Every break is a record with kind, reason, hint and line; `fullgraph=True` makes it an error.
#
# Next: writes that others can see.
