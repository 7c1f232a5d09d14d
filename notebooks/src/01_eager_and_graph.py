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
# is not a graph. It is a Python program that calls tensor operations, one after the other. A
# *capture mechanism* turns such a program into a graph. This chapter builds five mechanisms that
# are older than `torch.compile`, each in a short file. Each of them fails, and each failure becomes
# a requirement for the rest of the course.
#
# **What you will learn:** what eager mode is and why people love it; how record/replay, scripting,
# symbolic tracing, lazy tensors and staging work. You also see what each mechanism does with a new
# input.
#
# Section 2 of the PyTorch 2 paper, which chapter 00 names at its end, tells the same story.
#
# **Files of this chapter:** none of the compiler yet. The five mechanisms are in
# `notebooks/prior/`.

# %%
import time

import torch
import prior
from minidynamo.explain import Code, Table, excerpt

torch.manual_seed(0);

# %% [markdown]
# ## Eager mode: the program *is* the model
#
# In eager mode each line runs when Python reaches it. You can print, use a debugger, write an `if`,
# keep a list, or call any library. That is why people like PyTorch. But eager mode has a price:
# when an operation runs, PyTorch does not know which operation comes next.
#
# *The kitchen.* Eager mode is a cook who hears one step at a time through the kitchen door. The
# cook cannot put the second pan on the stove early, because nobody has mentioned a second pan yet.
# *Exactly:* each call goes through Python, the dispatcher, autograd and a kernel launch. Each
# kernel reads its inputs from memory and writes its output to memory.
#
# The function `score` is typical of what people write in eager mode:

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
# The two inputs cause two different sequences of operations. Each mechanism below must handle the
# parts of `score`: its branch, its Python number, its list.
# <!-- shows: has("positive: (tensor([1., 2., 0.]), 1)") and has("-0.5") -->
#
# ## 1 · Record and replay
#
# The first mechanism runs the function once, writes each operation onto a tape, and later replays
# the tape. `torch.jit.trace` is such a recorder. Ours is the class `Recording`. While a `Recording`
# is active, PyTorch calls its method `__torch_function__` in place of each operation. The method
# gives every tensor a numbered *slot*, which prints as `v0`, `v1`, ...

# %%
excerpt(prior.recording.Recording.__torch_function__)

# %% [markdown]
# The method runs the operation and appends it to the tape. (`encode` replaces the tensors among the
# arguments by their slots.) Now record a function with a branch:

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
# A tape is *one way through the program*. The picture below has two tapes, one for each input. It
# connects each entry of a tape with the line of the program that it comes from:
# <!-- general -->

# %%
from prior.tapes import draw_tapes

draw_tapes(branch, positive, negative)

# %% [markdown]
# The comparison is on the tape, but what Python *did* with its result is not. So the tape of
# `positive` is **silently** wrong for `negative`:

# %%
print("eager :", branch(negative))
print("replay:", tape(negative))

# %% [markdown]
# PyTorch's own `torch.jit.trace` gives the same wrong answer, with a warning:
# <!-- shows: has("eager : tensor([ 2., 4., -1.])") and has("replay: tensor([0., 0., 1.])") -->

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
# A tape freezes Python numbers in the same way. While the next cell records `normalised`,
# `float(x.abs().max())` is 2.0. So every replay divides by 2.0:
# <!-- shows: has("warning:") and has("replay: tensor([0., 0., 1.])") -->

# %%
def normalised(x):
    return x / float(x.abs().max())

tape = prior.record(normalised, positive)
print(tape)
print("eager :", normalised(torch.tensor([10.0])))
print("replay:", tape(torch.tensor([10.0])))

# %% [markdown]
# **Requirement 1:** a captured graph must come with the conditions under which it is right.
# <!-- shows: has("div(v0, 2.0)") and has("eager : tensor([1.])") and has("replay: tensor([5.])") -->
#
# ## 2 · Scripting: compile the text
#
# If running the program loses the `if`, read the program instead. `torch.jit.script` parses the
# source text and compiles it. Our miniature uses Python's module `ast` (*abstract syntax tree*),
# which turns source text into a tree of nodes. A checker walks over this tree before an interpreter
# runs it. Only some kinds of nodes belong to the scripted language, and `KNOWN` lists them:

# %%
excerpt(prior.scripting.Script.check)

# %% [markdown]
# The checker refuses a node of any kind that `KNOWN` lacks, and names its line. The function
# `branch` passes:
# <!-- shows: has("raise NotScriptable") -->

# %%
scripted = prior.script(branch)
print(scripted)
print("eager   :", branch(negative))
print("scripted:", scripted(negative))

# %% [markdown]
# The branch survived. But a compiler of source text must implement every construct of Python that a
# program uses, and people use nearly all of them:
# <!-- shows: count("tensor([ 2., 4., -1.])") == 2 -->

# %%
def with_a_list(x):
    parts = [x, x * 2]
    return torch.cat(parts)

def with_a_helper(x):
    return branch(x) + 1

def with_an_fstring(x):
    name = f"layer {1}"
    return x

for function in (with_a_list, with_a_helper, with_an_fstring):
    try:
        prior.script(function)
    except prior.NotScriptable as error:
        print(f"{function.__name__:16}{error}")

# %% [markdown]
# `torch.jit.script` knows far more of Python than our miniature, and still refuses ordinary code.
# The next function takes keyword arguments (`**options`):
# <!-- shows: count("line 2:") == 3 -->

# %%
def logits(model_output: dict, **options):
    return {k: v * options.get("scale", 1) for k, v in model_output.items()}

try:
    torch.jit.script(logits)
except Exception as error:
    print(type(error).__name__, "-", next(line for line in str(error).splitlines() if line.strip()))

# %% [markdown]
# **Requirement 2:** the compiler must accept all of Python. Code that it cannot capture must still
# run.
# <!-- shows: has("NotSupportedError") -->
#
# ## 3 · Symbolic tracing: run the program on stand-ins
#
# `torch.fx.symbolic_trace` calls the function with *stand-ins*, objects that look like tensors. A
# stand-in reports every operation to a *tracer*, which records it. This mechanism needs no source
# text, and any Python *around* the tensors works.
#
# Here is our class of stand-ins. The attribute `node` serves the tracer of this section, and
# `abstract` the tracer of section 5. The function `flat` lists the elements of nested tuples and
# lists.

# %%
excerpt(prior.symbolic.StandIn)

# %% [markdown]
# The method `tracer.call` writes each operation down as a node of a graph. A stand-in has no
# numbers, so `__bool__` and `__iter__` refuse to answer. Scripting refused `with_a_list`; symbolic
# tracing captures it:
# <!-- shows: has("class StandIn") -->

# %%
print(prior.symbolic_trace(with_a_list))

# %% [markdown]
# But the function with a branch fails, since Python cannot branch on a stand-in:

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
# Silent mistakes are worse than errors. While tracing, Python reads flags and counters and draws
# random numbers. Each such value becomes a constant of the graph:
# <!-- shows: count("ours:") == 1 and count("fx :") == 1 -->

# %%
training = True

def dropout_if_training(x):
    return x * 0.5 if training else x

graph = torch.fx.symbolic_trace(dropout_if_training)
training = False
print("eager :", dropout_if_training(torch.ones(2)))
print("graph :", graph(torch.ones(2)))

# %% [markdown]
# **Requirement 3:** the compiler must know and check every Python value that the graph depends on,
# not just the tensors.
# <!-- shows: has("eager : tensor([1., 1.])") and has("graph : tensor([0.5000, 0.5000])") -->
#
# ## 4 · Lazy tensors: never stop running Python
#
# The fourth mechanism lets Python run as always, but tensor operations compute nothing. They only
# *collect* the work. When the program needs a value, the collected operations become a graph. The
# system computes a key of the graph, looks it up in a hash table, and compiles the graph if it is
# new. PyTorch/XLA works like this. Both branches of `branch` come out right:

# %%
from prior.lazy import COUNTS, lazy

for x in (positive, negative):
    print("eager:", branch(x), "  lazy:", branch(lazy(x)).compute())
COUNTS

# %% [markdown]
# Each call hashed two graphs: one for the condition, whose value Python needs, and one for the
# result. The condition had the same graph in both calls, so only three of the four graphs were
# compiled.
# <!-- shows: n("'graphs hashed':") == 4 and n("'graphs compiled':") == 3 -->
#
# The key describes all collected operations with their arguments. For an input it has the position
# among the inputs, the shape and the dtype. The function `describe` builds the key, nested as the
# operations are. It also fills two lists, with the operations and the inputs. (Its last argument, a
# dictionary, remembers which tensors have been described.) Here is the key of a small graph:

# %%
from prior.lazy import PROGRAMS, describe

waiting = torch.relu(lazy(positive) * 2) + 1
operations, inputs = [], []
describe(waiting, operations, inputs, {})

# %% [markdown]
# The key contains no address and no value of a tensor, so equal work gives an equal key. But it
# contains Python numbers: a number that changes in each step makes a new graph in each step. The
# next table counts graphs over four steps of four programs:
# <!-- shows: not has("0x") -->

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
# A new tensor value needs no new graph, but a new shape or a new Python number does. Every program
# hashed four graphs, even where three of them were known.
# <!-- shows: n("the same number, four steps", 1) == n("other values, four steps", 1) == 1 and n("another length in each step", 1) == n("the number of the step in it", 1) == 4 -->

# %% [markdown]
# Lazy tensors lose nothing, because they skip nothing. The whole Python program runs in every step.
# The system then describes and hashes the collected work again, only to find a graph that it knows.
# What does this cost? The next cell measures a chain of small operations:

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
# A real lazy system hides part of this cost: Python runs ahead while the device computes. With
# small operations the cost still shows (section 2 of the paper).
# <!-- shows: n("lazy, always a cache hit") > n("eager") -->
#
# **Requirement 4:** on a cache hit, the captured Python code must not run at all.
#
# ## 5 · Staging: let the user promise
#
# JAX's `jit` traces a function once per combination of shapes and dtypes, on abstract values that
# have a shape and a dtype but no numbers. Later calls with the same shapes skip Python. This
# mechanism is simple and fast, because the *user* promises that the function is *pure*. A pure
# function has no side effects and depends on its arguments only.

# %%
@prior.stage
def noisy(x):
    print("tracing")
    return torch.sin(x) * 2

noisy(torch.ones(3)), noisy(torch.ones(3))

# %% [markdown]
# Python printed `tracing` once. The second call ran the staged graph, which has no `print`:
# <!-- shows: count("tracing") == 1 -->

# %%
print(list(noisy.programs.values())[0].graph)

# %% [markdown]
# JAX has separate stages that you can look at: `trace`, `lower`, `compile`, run. Its `trace` gives
# a *jaxpr*, a list of typed equations. Our graph has the same content, so it can be printed in the
# same form:
# <!-- general -->

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
# A branch on data is no equation. So the user of JAX passes both sides as functions to `lax.cond`.
# JAX traces both functions, and the compiled program runs one of them. Our small `cond` is simpler:
# it computes both sides and selects one result:
# <!-- general -->

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
# One staged program is right for both inputs. But we had to rewrite `branch`, and would have to
# rewrite every library with such a branch.
# <!-- shows: n("programs:") == 1 and count("tensor([2., 4., 0.])") == 2 and count("tensor([ 2., 4., -1.])") == 2 -->
#
# Remember the `print` in `noisy`, which ran once in two calls. JAX documents this behaviour. But an
# existing PyTorch program expects its side effects in every call. Staging loses them:

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
# **Requirement 5:** side effects must happen as often as in plain Python, and in the same order.
# <!-- shows: n("calls counted:") == 1 -->
#
# ## All five, on inputs that they have not seen
#
# Now each mechanism captures a program on one input and computes it for *another*. `torch.jit` and
# `torch.fx` are PyTorch's own; lazy tensors and staging are our miniatures. Each of the five
# programs does one thing that is common in PyTorch programs. The table says whether the second
# answer was right or wrong, or which error refused it:

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
# Read the table one column at a time:
#
# * `torch.jit.trace` is wrong in four of the five rows. In the loop over the rows it has recorded
#   three rows, so five rows raise an error.
# * `torch.jit.script` is right wherever it does not refuse.
# * `torch.fx` refuses what needs a tensor's values or its number of rows. It freezes the global and
#   the length of the list, which are not tensors.
# * Lazy tensors are never wrong. The two refusals are operations that our small class lacks.
# * Staging behaves like `torch.fx` in every row: it *is* symbolic tracing, with shapes.
#
# ## ONNX: a format does not capture
#
# People sometimes list ONNX with these mechanisms. But ONNX is a *format* for graphs, with a fixed
# list of operators. Another mechanism must capture the graph before ONNX can store it. The next
# cell exports `branch` twice, once through `torch.jit.trace` and once through `torch.jit.script`,
# and lists the operators in each file:

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
# ONNX has an operator `If`, but only the scripted graph uses it. The traced graph is wrong for
# `negative`, as its tape was. Today's exporter (`torch.onnx.export` with `dynamo=True`) takes its
# graph from `torch.export`.
# <!-- shows: has("scripted: Constant Mul ReduceSum Constant Greater Cast If") and not has("Relu If") -->
#
# ## Summary, and the way out
#
# The next table sums up the five mechanisms, with one question per column. Does the mechanism
# handle a branch on data? Does it accept any Python code? Does it keep side effects? Does it skip
# Python when the graph is known? Can it give wrong answers? The last row is the subject of this
# course; the list below the table explains its *graph break*.
#
# | mechanism | branch on data | any Python | keeps side effects | skips Python | wrong answers |
# |---|---|---|---|---|---|
# | record/replay | no | runs it, but forgets it | no | yes | **silently** |
# | scripting | yes | no | refuses most | yes | no |
# | symbolic trace | error | around tensors | no | yes | **silently**, after a flag changes |
# | lazy tensors | yes | yes | yes | **no** | no |
# | staging | error | around tensors | no | yes | if the function is not pure |
# | **minidynamo / TorchDynamo** | graph break | yes | yes | yes | no |
#
# TorchDynamo works on *bytecode*, which is what Python really executes:
#
# * It evaluates bytecode symbolically, like a program on stand-ins.
# * Every assumption becomes a **guard** (requirements 1 and 3).
# * Code that cannot be captured causes a **graph break** and runs as plain Python (requirement 2).
# * On a cache hit, the original bytecode does not run (requirement 4).
# * The replacement code repeats the program's side effects in their order (requirement 5).
#
# The function `score` from the beginning has a branch, a number from a tensor, and a list. The next
# cell compiles it and calls it with three inputs. The `assert` compares each answer with eager's.
# The counters then say what was compiled, where capture stopped, and why something was compiled
# again:

# %%
import minidynamo

compiled = minidynamo.compile(score)
for x in (positive, negative, torch.tensor([10.0])):
    assert str(compiled(x)) == str(score(x))
print(minidynamo.counters)

# %% [markdown]
# All three answers are right. The counters list two kinds of graph breaks, one at the branch on
# `y.sum()` and one at the `float()`. The code behind a break becomes a *resume function*, which is
# compiled like any other (chapter 06). The last lines name the guards that failed: the third input
# has a different shape.
# <!-- shows: n("graph_breaks:") == 5 and count("x a branch on a tensor's value") == 1 and count("x Tensor.__float__()") == 1 -->
#
# How do the mechanisms handle a real model? BERT takes its inputs by name and returns a data class.
# Each mechanism captures BERT on one text and must then handle a *shorter* text. The table says
# whether the numbers were right, or quotes the error:

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
# Only `minidynamo` is right. The recording has frozen the length of the first text. Scripting finds
# no source text for a class of the library. The other three fail at ordinary Python code in the
# model: an assignment to an element, and a loop.
# <!-- shows: count("failed") == 5 and count("right") == 1 -->
#
# ## Exercises
#
# **01.1** (warm-up) *Is a recording safe?* Write `is_safe(function, a, b)`. It records `function`
# on `a` and replays the tape on `b`. It returns True if the replay gives eager's answer for `b`.
# (`torch.jit.trace(..., check_inputs=...)` does the same. Such a test is not enough: another input
# may still take another branch.)
#
# *Hints.* `prior.record(function, a)` returns the tape; call the tape with `b`. Compare with
# `torch.equal`.

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
# **01.2** (core) *Lists in the script.* The scripted language lacks list displays such as `[a, b]`.
# Write a subclass of `Script` that accepts and evaluates them.
#
# *Hints.* `KNOWN` is the tuple of accepted node classes; add `ast.List`. The method `value(node,
# names)` evaluates an expression. Handle `ast.List` there (its elements are in `node.elts`), and
# leave all other nodes to `super()`.

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
# **01.3** (stretch) *A better key.* `prior.stage` traces again for each new shape, but not when a
# *global flag* changes. Write `stage_with(function, read)`. The function depends on the value that
# `read()` returns, so the cache key must contain this value. You have then invented a guard.
#
# *Hints.* Keep a dictionary with one `prior.stage(function)` for each value of `read()`.

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
# **01.4** (stretch) *The same program?* Lazy tensors look a program up before they compile it. The
# key must not depend on the names of values, but it must depend on which operation reads which
# value. A program here is a list of `(operation, inputs, result)`, whose inputs are names or
# numbers. Write `canonical(program)`, which returns a tuple. Two programs must give equal tuples if
# they differ in names alone, and different tuples otherwise.
#
# *Hints.* Number the names in the order in which you meet them. Keep the program's own numbers with
# their type, since `1` and `1.0` are different programs. Mark which entries are names, so that the
# first name never equals the number 0.
#
# <details><summary>Predict: is add(x, y), then mul(t, x), the same program as add(b, a), then mul(t, b)?</summary>
#
# Yes. Rename `x` to `b` and `y` to `a`. With `mul(t, a)` at the end, the programs would differ.
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
# | symbolic trace | `torch/fx/_symbolic_trace.py` | still used to rewrite models; its graph format is that of chapter 02 |
# | lazy tensors | `torch/csrc/lazy/` | PyTorch/XLA |
# | TorchDynamo | `torch/_dynamo/` | `torch.compile` |
#
# **See it in the real `torch.compile`.** `TORCH_LOGS=graph_breaks python program.py` prints every
# place where capture stops and Python goes on.
#
# ## Recap
#
# * Eager mode runs a Python program; a compiler needs a graph.
# * Running a program once loses everything that is not a tensor operation. Reading its text covers
#   a subset of Python. Running the whole program in each call costs time.
# * A good capture states its conditions, accepts all of Python, checks every dependency, skips
#   Python on a cache hit, and keeps side effects.
#
# Next: the graph itself.
