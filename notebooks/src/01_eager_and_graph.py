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
# # 01 · Eager mode, graph mode, and five ways to get from one to the other
#
# A compiler needs to see more than one operation at a time: it needs a *graph*. A PyTorch program
# is not a graph. It is a Python program that happens to call tensor operations, one after the
# other. This notebook builds five earlier ways of getting a graph out of it, each in a short file.
# Each one fails in its own way. The failures are the requirements of everything that follows.
#
# **What you will learn:** what eager mode is and why people love it; what a graph buys;
# record/replay, scripting, symbolic tracing, lazy tensors and staging; what becomes of them on
# inputs that they have not seen; and what none of them can do.
#
# The paper tells this story in its section 2.
#
# **Files of this chapter:** none yet; the five ways stand in `notebooks/prior/`.

# %%
import time

import torch
import prior
from minidynamo.explain import Code, Table, excerpt

torch.manual_seed(0);

# %% [markdown]
# ## Eager mode: the program *is* the model
#
# In eager mode each line runs when Python reaches it. One can print, use a debugger, write an `if`,
# keep a list, call any library. That is why PyTorch won. The price is that at the moment an
# operation runs nobody knows what comes next.
#
# *The kitchen.* Eager mode is a cook who is told one step at a time through the kitchen door. He
# cannot put the second pan on the stove early, because he does not know there will be a second pan.
# *Exactly:* each call goes through Python, the dispatcher, autograd and a kernel launch, and each
# kernel reads its inputs from memory and writes its output to memory.

# %%
def score(x, threshold=0.0):
    """Something a person would write: a branch on data, a Python number from a tensor, a list."""
    history = []
    y = x * 2
    history.append(y.mean())
    if y.sum() > threshold:             # decided by the *values* in y
        y = torch.relu(y)
    else:
        y = -y
    scale = float(x.abs().max())        # a tensor becomes a Python number
    return y / scale, len(history)

positive, negative = torch.tensor([1.0, 2.0, -0.5]), torch.tensor([-1.0, -2.0, 0.5])
print("positive:", score(positive))
print("negative:", score(negative))

# %% [markdown]
# Two inputs, two different sequences of operations. Every capture mechanism below is asked to
# handle parts of this function.
#
# ## 1 · Record and replay
#
# Run the function once, write down each operation, and replay the tape. `torch.jit.trace` works
# like this. (`notebooks/prior/` holds the five miniatures. PyTorch calls `__torch_function__`
# instead of an operation while such an object is active; a *slot* is a numbered place for a tensor,
# printed as `v0`, `v1`, ...)

# %%
excerpt(prior.recording.Recording.__torch_function__)

# %% [markdown]
# Each operation on a recorded tensor comes through here, and is written onto the tape.

# %%
def branch(x):
    y = x * 2
    if y.sum() > 0:
        y = torch.relu(y)
    else:
        y = -y
    return y

tape = prior.record(branch, positive)
tape

# %% [markdown]
# A tape is *one way through the program*. Both inputs, and the lines their entries come from:

# %%
from prior.tapes import draw_tapes

draw_tapes(branch, positive, negative)

# %% [markdown]
# The comparison is on the tape, what Python *did* with its result is not. The tape of `positive` is
# wrong for `negative`, **silently**:

# %%
print("eager :", branch(negative))
print("replay:", tape(negative))

# %% [markdown]
# The original does the same, with a warning:

# %%
import warnings

with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    traced = torch.jit.trace(branch, positive, check_trace=False)
print("replay:", traced(negative))
print(
    "warning:",
    str(next(w.message for w in caught if "Python boolean" in str(w.message))).split(".")[0],
)

# %% [markdown]
# A Python number is frozen in the same way. `float(x.abs().max())` was 2.0 when the tape was made,
# so it is 2.0 for ever:

# %%
def normalised(x):
    return x / float(x.abs().max())

tape = prior.record(normalised, positive)
print(tape)
print("eager :", normalised(torch.tensor([10.0])))
print("replay:", tape(torch.tensor([10.0])))

# %% [markdown]
# **Requirement 1:** a captured graph must come with the conditions under which it is right.
#
# ## 2 · Scripting: compile the text
#
# If running the program loses the `if`, read the program instead. `torch.jit.script` parses the
# source and compiles it. Ours is a checker and an interpreter over Python's `ast`:

# %%
excerpt(prior.scripting.Script.check)

# %% [markdown]
# Everything outside of the known kinds of syntax is refused, with its line.

# %%
scripted = prior.script(branch)
print(scripted)
print("eager   :", branch(negative))
print("scripted:", scripted(negative))

# %% [markdown]
# The branch survived. But every construct of Python has to be written into the compiler, and a
# model is not written in a subset:

# %%
def with_a_list(x):
    parts = [x, x * 2]
    return torch.cat(parts)

def with_a_helper(x):
    return branch(x) + 1

def with_a_fstring(x):
    name = f"layer {1}"
    return x

for function in (with_a_list, with_a_helper, with_a_fstring):
    try:
        prior.script(function)
    except prior.NotScriptable as error:
        print(f"{function.__name__:15} {error}")

# %% [markdown]
# The real one knows far more of Python than our small one, and still:

# %%
def logits(model_output: dict, **options):
    return {k: v * options.get("scale", 1) for k, v in model_output.items()}

try:
    torch.jit.script(logits)
except Exception as error:
    print(type(error).__name__, "-", next(line for line in str(error).splitlines() if line.strip()))

# %% [markdown]
# **Requirement 2:** the input is Python, all of it. What cannot be captured must still run.
#
# ## 3 · Symbolic tracing: run the program on stand-ins
#
# `torch.fx.symbolic_trace` calls the function with objects that look like tensors and write down
# what is done to them. No source text is needed, and any Python *around* the tensors works:

# %%
excerpt(prior.symbolic.StandIn)

# %% [markdown]
# Whatever is asked of the stand-in becomes a node: `tracer.call` writes it down. (`flat` lists what
# stands in nested tuples and lists.) It has no numbers to answer with, so the last two methods refuse.

# %%
print(prior.symbolic_trace(with_a_list))

# %% [markdown]
# A stand-in has no value, so Python cannot branch on it:

# %%
try:
    prior.symbolic_trace(branch)
except prior.CannotTrace as error:
    print("ours:", error)
try:
    torch.fx.symbolic_trace(branch)
except torch.fx.proxy.TraceError as error:
    print("fx  :", error)

# %% [markdown]
# Worse than an error is what passes unnoticed. A random number, a flag, a counter: whatever is not
# a tensor is evaluated while tracing and becomes part of the graph.

# %%
training = True

def dropout_if_training(x):
    return x * 0.5 if training else x

graph = torch.fx.symbolic_trace(dropout_if_training)
training = False
print("eager :", dropout_if_training(torch.ones(2)))
print("graph :", graph(torch.ones(2)))

# %% [markdown]
# **Requirement 3:** every Python value that the graph depends on must be known and checked, not
# just the tensors.
#
# ## 4 · Lazy tensors: never stop running Python
#
# Let Python run as always, but let operations only *collect* what is to be done. When somebody
# needs a value, turn what was collected into a graph, look it up by a hash, compile it if it is
# new. PyTorch/XLA works like this. It handles everything:

# %%
from prior.lazy import COUNTS, lazy

for x in (positive, negative):
    print("eager:", branch(x), "  lazy:", branch(lazy(x)).compute())
COUNTS

# %% [markdown]
# Two inputs took two branches, so there were more graphs than functions. Each call was hashed twice:
# once for the condition, whose value Python needs, and once for the result. The condition was the
# same graph both times, so one compilation less was needed. What is hashed is a
# description of everything that waits: each operation with its arguments, inputs by number, shape
# and dtype. `describe` builds it and lists operations and inputs on its way. Here is the
# description of a small graph, nested as the operations are:

# %%
from prior.lazy import PROGRAMS, describe

waiting = torch.relu(lazy(positive) * 2) + 1
operations, inputs = [], []
describe(waiting, operations, inputs, {})

# %% [markdown]
# No address and no value of a tensor is in it: equal work gives an equal key. Python numbers are in
# it, and that has a price. A number that changes in each step makes each step a new graph:

# %%
rows = []
for what, run in (("the same number, four steps", lambda step: lazy(positive) * 2 + 1),
                  ("other values, four steps", lambda step: lazy(positive * step) * 3 + 1),
                  ("another length in each step", lambda step: lazy(torch.ones(step + 1)) * 5 + 1),
                  ("the number of the step in it", lambda step: lazy(positive) * step + 7)):
    before = dict(COUNTS)
    for step in range(1, 5):
        run(step).compute()
    rows.append((what, *(COUNTS[k] - before[k] for k in ("graphs hashed", "graphs compiled"))))
Table(["program", "hashed", "compiled"], rows)

# %% [markdown]
# Values may change without a new graph; shapes and Python numbers may not. Four steps hash four
# times in every row, also where nothing was new.

# %% [markdown]
# Nothing is lost, because nothing is skipped: the whole Python program runs *every time*, and then
# the graph is built and hashed again, every time, to find out that it is the same as yesterday.

# %% tags=["volatile"]
def chain(x):
    for _ in range(50):
        x = x * 1.01 + 0.1
    return x

def seconds(function, repeats=200):
    function()
    start = time.perf_counter()
    for _ in range(repeats):
        function()
    return (time.perf_counter() - start) / repeats

x = torch.ones(16)
print(f"eager                     {seconds(lambda: chain(x)) * 1e6:7.0f} us")
print(f"lazy, always a cache hit  {seconds(lambda: chain(lazy(x)).compute()) * 1e6:7.0f} us")

# %% [markdown]
# A real lazy system overlaps this cost with the device's work; with small operations the cost still
# shows (paper, section 2).
#
# **Requirement 4:** on a cache hit, the captured Python must not run at all.
#
# ## 5 · Staging: let the user promise
#
# JAX's `jit` traces like number 3, on abstract values (shape and dtype, no numbers), once per
# combination of shapes and dtypes. On a hit Python is skipped. It is simple and fast because the
# *user* promises that the function is pure.

# %%
@prior.stage
def noisy(x):
    print("tracing")
    return torch.sin(x) * 2

noisy(torch.ones(3)), noisy(torch.ones(3))

# %% [markdown]
# `tracing` was printed once: the second call ran what was staged, without the print.

# %%
print(list(noisy.programs.values())[0].graph)

# %% [markdown]
# JAX keeps the stages apart and lets one look at each: `trace`, `lower`, `compile`, run. The first
# gives a *jaxpr*, a list of typed equations. Ours has the same content. Each stand-in knows shape
# and dtype, so the graph of `noisy` can be printed that way:

# %%
def as_equations(graph, abstract):
    """The graph as typed equations; `abstract`: what to say of the inputs, by name."""
    head = ", ".join(
        f"{node.name}:{abstract[node.name]}" for node in graph.nodes if node.op == "placeholder"
    )
    lines = [f"    {node.name} = {getattr(node.target, '__name__', node.target)} {' '.join(map(str, node.args))}"
             for node in graph.nodes if node.op == "call_function"]
    result = next(node.args[0] for node in graph.nodes if node.op == "output")
    return f"{{ lambda {head}. let\n" + "\n".join(lines) + f"\n  in ({result},) }}"

(shape, dtype), = next(iter(noisy.programs))
print(as_equations(next(iter(noisy.programs.values())).graph, {"x": f"f32[{shape[0]}]"}))

# %% [markdown]
# A branch on data is no equation, so the user writes it as a function of functions, `lax.cond` in
# JAX. Both sides are traced, and a `where` or a real branch chooses when the program runs. A small
# `cond` for staged code:

# %%
def cond(predicate, if_true, if_false, x):
    """Both sides are traced; the values choose."""
    return torch.where(predicate, if_true(x), if_false(x))

@prior.stage
def branch_for_staging(x):
    y = x * 2
    return cond(y.sum() > 0, torch.relu, torch.neg, y)

for x in (positive, negative):
    print("eager:", branch(x), "  staged:", branch_for_staging(x))
print("programs:", len(branch_for_staging.programs))

# %% [markdown]
# Right for both, with one program. But `branch` had to be written anew, and so would every library
# that it calls.
#
# Remember the `print` in `noisy`: it happened once. In JAX this is the documented contract. For existing
# PyTorch programs it is a changed program:

# %%
calls = []

@prior.stage
def counted(x):
    calls.append(1)
    return x + 1

for _ in range(5):
    counted(torch.ones(3))
print("calls counted:", len(calls), "of 5")

# %% [markdown]
# **Requirement 5:** side effects happen as often, and in the order, that plain Python has them.
#
# ## The real ones, on inputs that they have not seen
#
# Each mechanism captures a program on one input and is asked about *another*. `torch.jit` and
# `torch.fx` are PyTorch's own; lazy tensors and staging are ours. Five programs, each with one thing
# that ordinary PyTorch programs do:

# %%
def rows_added(x):
    total = torch.zeros(2)
    for row in x:                       # as often as there are rows
        total = total + row
    return total

scaled = 3.0

def with_a_global(x):
    return x * scaled

seen = []

def with_an_effect(x):
    seen.append(1)
    return x + len(seen)                # the effect is read again

def real_trace(function, x):
    return torch.jit.trace(function, x, check_trace=False)

MECHANISMS = {
    "torch.jit.trace": real_trace,
    "torch.jit.script": lambda function, x: torch.jit.script(function),
    "torch.fx": lambda function, x: torch.fx.symbolic_trace(function),
    "lazy (ours)": lambda function, x: lambda other: function(lazy(other)).compute(),
    "staging (ours)": lambda function, x: prior.stage(function),
}
PROGRAMS_AND_INPUTS = [
    ("a branch on data", branch, positive, negative),
    ("a number from a tensor", normalised, positive, torch.tensor([10.0])),
    ("a loop over the rows", rows_added, torch.ones(3, 2), torch.ones(5, 2)),
    ("a global that changes", with_a_global, positive, positive),
    ("an effect", with_an_effect, positive, positive),
]

def outcome(capture, function, first, other):
    """Capture on `first`, ask about `other`: "right", "WRONG", or why it was refused."""
    global scaled
    scaled = 3.0
    seen.clear()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            captured = capture(function, first)
            captured(first)
            scaled = 4.0
            calls_before = len(seen)
            result = captured(other)
    except Exception as error:
        return f"refused: {type(error).__name__}"
    del seen[calls_before:]
    expected = function(other)
    same = result.shape == expected.shape and torch.allclose(result, expected)
    return "right" if same else "WRONG"

rows = [(what, *(outcome(capture, *case) for capture in MECHANISMS.values()))
        for what, *case in PROGRAMS_AND_INPUTS]
Table(["program", *MECHANISMS], rows, "captured on one input, asked about another")

# %% [markdown]
# Read a column at a time. Tracing accepts every program, and is then mostly wrong; its unrolled loop
# at least notices that the rows do not fit. Scripting is right where it does not refuse. Symbolic
# tracing refuses what it cannot see, and freezes what is not a tensor. Lazy tensors refuse only what
# our small class lacks. Staging behaves like symbolic tracing: it *is* one, with shapes.
#
# ## ONNX: a format does not capture
#
# ONNX is sometimes named beside these. It is a *format* for graphs, and a good one, with a fixed list
# of operators. The graph must come from somewhere, and it is as good as that capture. The exporter's
# first half on the same function, once through `torch.jit.trace`, once through `torch.jit.script`:

# %%
import re

from torch.onnx import utils as onnx_utils

class Branch(torch.nn.Module):
    def forward(self, x):
        return branch(x)

def onnx_operators(module):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        graph, *_ = onnx_utils._model_to_graph(module, (positive,))
    return re.findall(r"= onnx::(\w+)", str(graph))

print("traced  :", " ".join(onnx_operators(Branch())))
print("scripted:", " ".join(onnx_operators(torch.jit.script(Branch()))))

# %% [markdown]
# ONNX has an `If`, but only the scripted graph uses it: the traced file is wrong for `negative`, as
# its tape was. Today's exporter (`torch.onnx.export` with `dynamo=True`) takes its graph from
# `torch.export`.
#
# ## The table, and the way out
#
# | mechanism | branch on data | any Python | keeps side effects | Python skipped on a hit | wrong answers |
# |---|---|---|---|---|---|
# | record/replay | no | looks like it | no | yes | **silently** |
# | scripting | yes | no | refuses most | yes | no |
# | symbolic trace | error | around tensors | no | yes | **silently** (flags) |
# | lazy tensors | yes | yes | yes | **no** | no |
# | staging | error | around tensors | no | yes | if the promise is broken |
# | **minidynamo / TorchDynamo** | graph break | yes | yes | yes | no |
#
# The idea of TorchDynamo: work on *bytecode*. That is what Python really executes, so all of Python
# is there; it can be evaluated symbolically like number 3; every assumption becomes a **guard**
# (requirements 1 and 3); what cannot be captured becomes a **graph break** and runs as plain Python
# (requirement 2); on a hit the original bytecode does not run (4); writes and prints are replayed
# (5).

# %%
import minidynamo

compiled = minidynamo.compile(score)
for x in (positive, negative, torch.tensor([10.0])):
    assert str(compiled(x)) == str(score(x))
print(minidynamo.counters)

# %% [markdown]
# Three inputs, right each time, and the breaks are on record: the branch on `y.sum()` and the
# `float()`. (What follows a break is a function of its own, a *resume function*: notebook 06.)
#
# The same comparison on a real model. BERT takes its inputs by name and returns a data class. Each
# mechanism sees one text, and is then asked about a *shorter* one: a recording that is only played
# for its own input proves nothing.

# %%
from benchmarks.models import bert

model, inputs = bert(layers=2)
rows = []
with torch.no_grad():
    ids, states = inputs["input_ids"], lambda ids: model(input_ids=ids).last_hidden_state
    shorter = ids[:, :100]
    expected = states(shorter)

    def captured_by_minidynamo():
        compiled = minidynamo.compile(states, backend="eager", fullgraph=True)
        compiled(ids)
        return compiled(shorter)

    for name, capture in (("record/replay (ours)", lambda: prior.record(states, ids)(shorter)),
                          ("script (torch.jit)", lambda: torch.jit.script(model)(shorter)),
                          ("symbolic trace (torch.fx)", lambda: torch.fx.symbolic_trace(model)(shorter)),
                          ("lazy tensors (ours)", lambda: states(lazy(shorter)).compute()),
                          ("staging (ours)", lambda: prior.stage(states)(shorter)),
                          ("minidynamo", captured_by_minidynamo)):
        try:
            result = capture()
            same = result.shape == expected.shape and torch.allclose(result, expected, atol=1e-5)
            rows.append((name, "right" if same else "wrong numbers", ""))
        except Exception as error:
            rows.append((name, "failed", f"{type(error).__name__}: {str(error).strip().splitlines()[0][:80]}"))
Table(["mechanism", "a shorter text", ""], rows, "BERT, 2 layers")

# %% [markdown]
# Only the last row is right. The recording has frozen the length of the first text. The others do not
# get through a model that was written for people.
#
# ## Exercises
#
# **01.1** (warm-up) The recorder freezes Python numbers. Write `is_safe(function, a, b)`: record on `a`,
# replay on `b`, and return True if the replay agrees with eager on `b`. (This is what
# `torch.jit.trace(..., check_inputs=...)` does. Why is it not enough?)
#
# *Hints.* `prior.record(function, a)` gives the tape; call it on `b`. Compare with `torch.equal`.

# %% tags=["exercise"]
def is_safe(function, a: torch.Tensor, b: torch.Tensor) -> bool:
    """True if the recording of `function` on `a` gives eager's answer on `b`."""
    ### BEGIN SOLUTION
    return torch.equal(prior.record(function, a)(b), function(b))
    ### END SOLUTION

# %% tags=["check"]
from exercises import check

check("01.1", is_safe)

# %% [markdown]
# **01.2** (core) The scripting language has no list displays. Teach it one: subclass `Script` so that
# `[a, b]` is part of the language.
#
# *Hints.* `KNOWN` is the tuple of accepted node classes: add `ast.List`. `value(node, names)`
# evaluates an expression: handle `ast.List` (its elements are in `node.elts`) and leave the rest to
# `super()`.

# %% tags=["exercise"]
import ast

class ScriptWithLists(prior.scripting.Script):
    """The scripted language, with list displays."""
    ### BEGIN SOLUTION instead of pass
    KNOWN = (*prior.scripting.Script.KNOWN, ast.List)

    def value(self, node, names):
        if isinstance(node, ast.List):
            return [self.value(element, names) for element in node.elts]
        return super().value(node, names)
    ### END SOLUTION

# %% tags=["check"]
check("01.2", ScriptWithLists)

# %% [markdown]
# **01.3** (stretch) The stager traces again for each new shape, but not when a *global flag* changes. Write
# `stage_with(function, read)`, a stager whose cache key also contains `read()`, the value of
# something the function depends on. You have just invented a guard.
#
# *Hints.* One `prior.stage(function)` per value of `read()`, kept in a dictionary, is enough.

# %% tags=["exercise"]
def stage_with(function, read):
    """A staged `function` that is traced again when `read()` gives another value."""
    ### BEGIN SOLUTION
    staged = {}

    def run(*inputs):
        key = read()
        if key not in staged:
            staged[key] = prior.stage(function)
        return staged[key](*inputs)
    return run
    ### END SOLUTION

# %% tags=["check"]
check("01.3", stage_with)

# %% [markdown]
# **01.4** (stretch) *The same program?* Lazy tensors look a program up before they compile it. Names of values must not
# matter, and the wiring must. Write `canonical(program)`. A program is a list of
# `(operation, inputs, result)`; inputs are names or numbers. Return a tuple that is equal for two
# programs exactly when they differ in names alone.
#
# *Hints.* Number the names in the order in which you meet them. Numbers in the program stay, with
# their type: `1` and `1.0` are different programs. The number of a name must not be mistaken for a
# number of the program.
#
# <details><summary>Predict: are add(x, y) then mul(t, x) and add(b, a) then mul(t, b) the same?</summary>
#
# Yes. Rename `x` to `b` and `y` to `a`. With `mul(t, a)` at the end they would differ.
#
# </details>

# %% tags=["exercise"]
def canonical(program: list) -> tuple:
    """A key that does not depend on the names of values."""
    ### BEGIN SOLUTION
    numbers = {}

    def place(value):
        if isinstance(value, str):
            return "value", numbers.setdefault(value, len(numbers))
        return type(value).__name__, repr(value)

    return tuple((operation, tuple(place(v) for v in inputs), place(result)) for operation, inputs, result in program)
    ### END SOLUTION

# %% tags=["check"]
check("01.4", canonical)

# %% [markdown]
# ## What real PyTorch has
#
# | mechanism | file | fate |
# |---|---|---|
# | record/replay | `torch/jit/_trace.py` | kept for old exports |
# | scripting | `torch/jit/frontend.py` | deprecated in favour of `torch.compile` and `torch.export` |
# | symbolic trace | `torch/fx/_symbolic_trace.py` | the tool for graph-to-graph work; the graph format lives on |
# | lazy tensors | `torch/csrc/lazy/` | PyTorch/XLA |
# | TorchDynamo | `torch/_dynamo/` | `torch.compile` |
#
# **See it in the real `torch.compile`.** `TORCH_LOGS=graph_breaks python program.py` says where today's capture gives a line back to Python.
# The older ways went on, or stopped.
#
# ## Recap
#
# * Eager mode runs a Python program; a compiler wants a graph.
# * Capture by running once loses what was not a tensor operation; capture by reading covers a
#   subset; capture by always running costs Python on each call.
# * The requirements: conditions with every graph, all of Python, every dependency checked, no
#   Python on a hit, side effects kept.
#
# Next: the graph itself.
