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
# # 00 · The tour: GPT-2 through a compiler you can read
#
# `torch.compile(model)` makes a PyTorch program faster without changing it. How? This course
# rebuilds it, small and real:
#
# * **minidynamo** watches Python run, and turns a function into a *graph* of tensor operations,
#   plus *guards* that say when the graph may be used again;
# * **miniinductor** turns that graph into *fused kernels*: C++ that computes many operations in one
#   pass over memory.
#
# In this tour the real GPT-2 (12 layers, random weights) goes through every stage, and at each
# stage you look at what is there.
#
# **What you will learn:** the names of the stages, what each takes and gives, and where the speed
# comes from.
#
# *A picture to keep in mind.* Eager PyTorch is a cook who fetches the ingredients, performs one
# step, puts everything back on the shelf, and then reads the next step. Capture is an observer who
# writes down the recipe while the cook works. The compiler is the one who reads the whole recipe
# and notices that five steps can happen in the same pan. *Exactly:* the shelf is main memory, the
# pan is the CPU's registers and cache, and a step is one kernel.
#
# **Files of this chapter:** `minidynamo/convert/convert_frame.py` and `miniinductor/compile.py`, the
# two drivers; each stage is a call there.

# %%
import torch
import minidynamo
import miniinductor

torch.set_grad_enabled(False)
torch.manual_seed(0);

# %% [markdown]
# ## The problem: eager mode forgets between operations
#
# Eager PyTorch runs one kernel per operation. Each reads its inputs from memory and writes its
# result to memory, even if the next operation reads it back at once. For a chain of cheap
# operations the memory traffic is nearly all of the time.

# %%
def scaled_gelu(x, y):
    return torch.nn.functional.gelu(2 * x + 1) * torch.sigmoid(y)

x, y = torch.randn(1024, 1024), torch.randn(1024, 1024)
megabytes = x.numel() * 4 / 1e6
print(f"five operations, each reading and writing {megabytes:.1f} MB or more:")
print(f"  eager moves 2x:2, +1:2, gelu:2, sigmoid:2, *:3 -> {11 * megabytes:.0f} MB")
print(f"  needed: read x, read y, write the result       -> {3 * megabytes:.0f} MB")

# %% [markdown]
# Compile it. `explain` runs the function through our compiler and keeps every stage.

# %%
e = minidynamo.explain(scaled_gelu)(x, y)
print("same numbers as eager:", torch.allclose(e.result, scaled_gelu(x, y), atol=1e-5))
e

# %% [markdown]
# Each row is a frame, which is one call of a Python function. Its operations became a graph, and the
# graph became kernels. An *eager kernel* would be a call of PyTorch's own kernel, for an operation
# that we write no code for. Here there is none.
#
# ## Stage 1 · The frame hook
#
# CPython lets an extension decide how a *frame* (one call of a Python function) is evaluated: PEP
# 523. Our hook (`minidynamo/frame/frame_hook.c`) swaps the frame's code object before its first
# instruction runs. The first listing is the bytecode that Python compiled from `scaled_gelu`. The second
# is what ran instead: count the call, call the compiled graph with `x` and `y`, return its result.
# (Behind that, folded away, stands the original again: if the graph raises an error, the program goes on there, so
# that the error comes from the user's own line.)

# %%
e.bytecode

# %% [markdown]
# The first is what Python would run, the second what runs now: a call of the compiled graph, and
# a return.
#
# ## Stage 2 · Symbolic evaluation: from bytecode to a graph
#
# To write the replacement, minidynamo *evaluates the original bytecode symbolically*: a stack
# machine in Python (`minidynamo/evaluate/`) on which a tensor is a node of a graph that is
# being built. `2 * x` does not multiply; it adds a node `mul`.

# %%
e.graph

# %% [markdown]
# Read it from top to bottom: inputs, operations with their shapes, the output.
#
# ## Stage 3 · Guards: when may the graph be used again?
#
# The graph is right for *this* `x`: float32, this shape. Every assumption made on the way is a
# **guard**. They become one generated Python function, which runs before each call. You can read
# it. Names that begin with `P_` are objects that the guard holds on to: `P_Tensor` is the class
# `torch.Tensor`, `P_G_torch` the dictionary of the module `torch`. `state_...` is what a setting of
# PyTorch was when the graph was made.

# %%
e.guards

# %% [markdown]
# Each row is one assumption. If one of them fails, the graph is not used. The first rows are about
# settings of PyTorch. The last ones watch the class `Tensor`: nobody gave it another `__add__`.

# %%
e.guard_source

# %% [markdown]
# Every line that ends with `return False` is a group of guards. `layout(x)` reads class, dtype, sizes,
# strides and more of a tensor at once, as bytes (notebook 05).
#
# Another shape fails a guard, and the function is compiled once more. This time the sizes that
# changed become symbols, so that a third shape needs no compilation (notebook 14):

# %%
minidynamo.reset()
compiled = minidynamo.compile(scaled_gelu)
compiled(x, y)
compiled(x, y)
compiled(x[:3], y[:3])
compiled(x[:7], y[:7])
print(minidynamo.counters)

# %% [markdown]
# Four calls needed two graphs. `recompiles` names the guard that was false for the third call. The
# second graph has symbols for the sizes, so the fourth call compiled nothing. The first graph is kept.
#
# ## Stage 4 · ATen: a small vocabulary
#
# PyTorch has more operations than anybody wants to write kernels for. miniinductor traces the graph
# once more, below autograd, where everything is an **ATen** operation. It *decomposes* many of those
# into simpler ones, and removes in-place writes (*functionalization*). `gelu` is now made of `erf`,
# `mul` and `add`.

# %%
e.aten

# %% [markdown]
# Operations have become smaller and fewer in kind. Each is one that a kernel can be written for.
#
# ## Stage 5 · The loop IR: tensors as functions of an index
#
# *Lowering* turns each ATen operation into a Python function from an index to a value, over a
# closed set of scalar operations (`miniinductor/ir/ops.py`). A pointwise operation that calls its
# producer's function has *inlined* it: all of them have become one loop body. `buf0` is the
# only *buffer*, a tensor that gets memory; the `tmp`s are values of one element.

# %%
e.loop_ir

# %% [markdown]
# Each buffer is a loop: what it loads, computes and stores for one element.
#
# ## Stage 6 · C++
#
# The same Python function, run with a handler that prints C++ (`miniinductor/codegen/cpp/kernel_writer.py`),
# gives the kernel. One loop, each element read once and written once.

# %%
e.kernels

# %% [markdown]
# One function, with a loop in it: nothing is left of the single operations.
#
# ## Stage 7 · The wrapper
#
# What is called in the end is a short Python function that allocates memory and launches kernels.

# %%
e.wrapper

# %% [markdown]
# Read it as a program: memory for the result is taken, the kernel fills it, and it is returned.
#
# ## A reduction: softmax in one kernel
#
# `softmax` has two reductions (a maximum and a sum) and pointwise work between and after them. The
# *scheduler* (`miniinductor/schedule/scheduler.py`) decides what shares a kernel, and records why, or why
# not.

# %%
s = minidynamo.explain(lambda x: torch.softmax(x, -1))(x)
s.fusion

# %% [markdown]
# Each row is a pair of loops that was looked at, and why they became one, or did not.

# %%
s.kernels

# %% [markdown]
# Fewer kernels than operations. The exponentials of one row wait in `scratch0`, which is small enough
# for the cache. No intermediate value of the whole matrix is ever written to memory.
#
# ## When capture must stop: graph breaks
#
# A `print` cannot go into a graph. minidynamo compiles what comes before it, lets Python run the
# `print`, and continues in a **resume function** that holds the rest. The program behaves as
# before, and the break is recorded with its line.

# %%
def talkative(x):
    x = torch.relu(x) + 1
    print("hello from the middle")
    return x * 2

t = minidynamo.explain(talkative)(torch.randn(4))
t

# %% [markdown]
# Two frames: the part before the `print`, and the part behind it. Each has a graph and a kernel.

# %%
t.frames[0].breaks

# %% [markdown]
# The break is recorded with its line and its reason.
#
# ## The real model: GPT-2
#
# The same stages, on the whole model, written by people who did not think of us.

# %%
from benchmarks.models import gpt2

model, inputs = gpt2()
g = minidynamo.explain(model)(**inputs)
expected = model(**inputs)
print(f"{model.config.n_layer} layers, {sum(p.numel() for p in model.parameters()) / 1e6:.0f} million parameters")
print("one graph, no break:", len(g.frames) == 1 and not g.frames[0].record.graph_breaks)
print(
    "largest difference to eager below 1e-4:",
    (g.result.logits - expected.logits).abs().max().item() < 1e-4,
)
g

# %% [markdown]
# One frame, one graph. The last column that has a number counts calls of PyTorch's own kernels: they
# come below. The graph is large, so it is drawn by module first.

# %%
g.graph

# %% [markdown]
# The twelve blocks are alike: as many operations in each. Matrix products and attention stay *library calls*: nobody writes a better matrix product in an
# afternoon. Everything between them is fused.

# %%
from collections import Counter
record = g.main.compiled
print(len(record.kernels), "fused kernels generated here, between these library calls:")
for op, count in Counter(f.op for f in record.fallbacks).items():
    print(f"{count:4} calls of {op}")

# %% [markdown]
# One of them, with the nodes of the graph that it came from. It computes a residual addition and the
# layer norm that follows. It looks the embeddings up again, too: the compiler found that cheaper than
# keeping their sum in memory.

# %%
longest = max(record.kernels, key=lambda k: len(k.nodes))
from minidynamo.explain import Code
Code(longest.source, longest.language, f"{longest.name}, of: {', '.join(map(str, longest.origins))}")

# %% [markdown]
# Nobody has to read all of it. Two things are worth a look. The outer loop is over the positions of
# the text, and each inner loop walks along one row. `error` notes an index that is out of range, so
# that the call can raise as eager does.
#
# Where does compile time go? `capture: backend` is the time for which capture waits for miniinductor.
# It contains all rows that begin with `miniinductor`.

# %% tags=["volatile"]
g.times

# %% [markdown]
# Which row is the longest of those that contain no other? C++ compilation is short here if these
# kernels were compiled before: then they lie on disk.
#
# ## Is it faster?
#
# Measured on one core of the machine that ran this notebook: eager, ours, and the real
# `torch.compile`, interleaved in one process. The bars are medians of eager's time over the
# compiled time (above 1 is faster than eager), the lines are quartiles. Each compiler has compiled
# something before, so that no row pays for starting it.

# %% tags=["volatile"] alt="Bars from zero for each program: eager's time divided by the time of miniinductor and of torch.compile, with quartiles; a dashed line at one"
from benchmarks.plots import speedup_bars
from benchmarks.runner import keep_freed_memory, peer_compile
from benchmarks.suites import machine, measure
from benchmarks.workloads import WORKLOADS

# neighbours disturb one core least, and what is faster is the compiler's doing (notebook 15)
torch.set_num_threads(1)
# or else chance decides who pays for fresh pages of memory (notebook 13)
keep_freed_memory()
for compiler in (minidynamo.compile, peer_compile):
    compiler(lambda x: x + 1)(torch.ones(4))                # starts it
rows = []
for name in ("gelu*sigmoid", "softmax", "layer norm", "tiny (per call)"):
    function, arguments = WORKLOADS[name]()
    rows.append(measure(name, function, arguments, {}))
rows.append(measure("GPT-2", model, [], inputs))
speedup_bars(rows, machine());

# %% [markdown]
# A bar beyond one is faster than eager.

# %% tags=["volatile"]
for row in rows:
    ours, peer = (row[f"{label} compile"]["wall"] for label in ("ours", "torch.compile"))
    print(f"{row['name']:16} cold compile: ours {ours:6.2f} s, torch.compile {peer:6.2f} s")

# %% [markdown]
# Both compilers began with an empty cache here, so the first call pays for everything. In a second
# process the kernels lie on disk, and the C++ compiler's part is saved.
#
# ## Exercises
#
# Each notebook ends with exercises that check themselves: fill in the function, run the cell below
# it. Those of this chapter only ask you to find your way in what you have seen.
#
# **00.1** (warm-up) *How many kernels?* Write `kernels_of(function, *arguments)`: how many kernels our
# compiler generated for it (library calls do not count).
#
# *Hints.* `minidynamo.explain(function)(*arguments)` is the `e` of this notebook. Count
# `e.main.compiled.kernels`, a list, which may be empty. (`e.kernels` is for looking: where there is
# nothing to see it is a text that says so.)

# %% tags=["exercise"]
def kernels_of(function, *arguments) -> int:
    """The number of generated kernels."""
    ### BEGIN SOLUTION
    return len(minidynamo.explain(function)(*arguments).main.compiled.kernels)
    ### END SOLUTION

# %% tags=["check"]
from exercises import check

check("00.1", kernels_of)

# %% [markdown]
# **00.2** (core) *One graph instead of two.* `talkative` above breaks at its `print`. Write `quiet(x)`,
# which computes the same and can be captured as *one* graph, with the greeting left to the caller:
# it returns `(result, text to print)`. The check compiles it with `fullgraph=True`, which makes any
# graph break an error.
#
# *Hints.* A string is a constant. Python objects may be returned beside tensors.

# %% tags=["exercise"]
def quiet(x: torch.Tensor) -> tuple:
    """(what talkative returns, what it prints)."""
    ### BEGIN SOLUTION
    return (torch.relu(x) + 1) * 2, "hello from the middle"
    ### END SOLUTION

# %% tags=["check"]
check("00.2", quiet)

# %% [markdown]
# **00.3** (core) *What was captured?* Write `operations_of(function, *arguments)`: the names of the torch operations
# in the captured graph, in their order. Inputs, parameters and the output are no operations.
#
# *Hints.* The graph is `e.main.record.graph.graph`, and it has `nodes`. A node's `op` says what it is;
# `"call_function"` and `"call_method"` are operations. A method's `target` is its name; a function has
# a `__name__`.
#
# <details><summary>Predict: does y = x.relu() appear as a function or as a method?</summary>
#
# As a method: the graph keeps what the program said. Only the next stage makes one operation of both.
#
# </details>

# %% tags=["exercise"]
def operations_of(function, *arguments) -> list:
    """Names of the captured operations, in order."""
    ### BEGIN SOLUTION
    nodes = minidynamo.explain(function)(*arguments).main.record.graph.graph.nodes
    calls = [node for node in nodes if node.op in ("call_function", "call_method")]
    return [node.target if node.op == "call_method" else node.target.__name__ for node in calls]
    ### END SOLUTION

# %% tags=["check"]
check("00.3", operations_of)

# %% [markdown]
# **00.4** (stretch) *What does fusion save?* Run operation by operation, each result is written to memory, and each
# operand is read from it. Write `bytes_saved(function, *arguments)`: the bytes that eager moves, less
# the bytes that the generated kernels move. Count elementwise operations only.
#
# *Hints.* A kernel has `bytes_read` and `bytes_written`. For eager, walk over the nodes of the
# captured graph. A node's value is `node.meta["example_value"]`; a tensor has `numel()` and
# `element_size()`. `node.all_input_nodes` are its operands.
#
# <details><summary>Predict: of five operations in a row, which share of the bytes is saved?</summary>
#
# Eager reads and writes five times, the kernel once. Four fifths are saved.
#
# </details>

# %% tags=["exercise"]
def bytes_saved(function, *arguments) -> int:
    """Bytes that eager moves and the kernels do not."""
    ### BEGIN SOLUTION
    main = minidynamo.explain(function)(*arguments).main

    def size(node):
        value = node.meta["example_value"]
        return value.numel() * value.element_size()

    calls = [node for node in main.record.graph.graph.nodes if node.op.startswith("call")]
    eager = sum(size(part) for node in calls for part in (node, *node.all_input_nodes))
    return eager - sum(kernel.bytes_read + kernel.bytes_written for kernel in main.compiled.kernels)
    ### END SOLUTION

# %% tags=["check"]
check("00.4", bytes_saved)

# %% [markdown]
# ## What else lives here
#
# Every public name of this chapter's core files, with one sentence each. Unfold a file, then a name:
# its first lines are there. The list is made from the sources when the page is built.

# %% tags=["volatile"]
from minidynamo.explain import also_here

also_here(
    "minidynamo/api.py",
    "minidynamo/config.py",
    "minidynamo/records.py",
    "minidynamo/errors.py",
    "minidynamo/records.py",
    "minidynamo/guards/originals.py",
    "minidynamo/errors.py",
)

# %% [markdown]
# ## What real PyTorch does beyond this
#
# | stage | here | in PyTorch | section of the paper |
# |---|---|---|---|
# | frame hook | `minidynamo/frame/frame_hook.c` | `torch/csrc/dynamo/eval_frame.c` | 3 |
# | symbolic evaluation | `minidynamo/evaluate/` | `torch/_dynamo/symbolic_convert.py` | 3 |
# | guards | `minidynamo/guards/guards.py` | `torch/_dynamo/guards.py`, a tree in C++ | 3 |
# | graph breaks | `minidynamo/rebuild/resume.py` | `torch/_dynamo/resume_execution.py` | 3 |
# | ATen trace | `miniinductor/autograd/` | `torch/_functorch/aot_autograd.py` | 3 |
# | lowering and loop IR | `miniinductor/lowering/`, `ir.py` | `torch/_inductor/lowering.py`, `ir.py` | 4 |
# | scheduling | `miniinductor/schedule/scheduler.py` | `torch/_inductor/scheduler.py` | 4 |
# | C++ | `miniinductor/codegen/cpp/kernel_writer.py` | `torch/_inductor/codegen/cpp.py` | 4 |
# | Triton | `miniinductor/codegen/triton/kernel_writer.py` | `torch/_inductor/codegen/triton.py` | 4 |
# | memory, wrapper | `miniinductor/runtime/memory.py`, `miniinductor/runtime/wrapper.py` | `torch/_inductor/codegen/wrapper.py` | 4 |
# | symbolic sizes | `minidynamo/shapes/symbolic_shapes.py` | `torch/fx/experimental/symbolic_shapes.py` | 5 |
#
# The paper: *PyTorch 2: Faster Machine Learning Through Dynamic Python Bytecode Transformation and
# Graph Compilation*, ASPLOS 2024.
#
# **What this tour leaves out:** training (notebooks 08 and 16), GPUs (the same loop IR becomes
# Triton kernels there: notebook 12), memory planning and CUDA graphs (13), sizes that vary (14),
# and where exactly the speed comes from (15).
#
# **See it in the real `torch.compile`.** `TORCH_TRACE=folder python program.py` keeps every stage of a real run. `tlparse folder/*.log` (a tool
# of its own) makes pages of them.
#
# ## Recap
#
# * A frame hook swaps a function's bytecode for a call of a compiled graph; **guards** say when
#   that is allowed.
# * **Symbolic evaluation** of the bytecode builds the graph; what cannot be captured becomes a
#   **graph break**.
# * **Lowering** makes tensors into functions of an index; **inlining and fusion** keep values out
#   of memory.
# * The speed comes from moving fewer bytes and from paying Python's overhead once per graph instead
#   of once per operation.
#
# Next: why all this effort for a graph? What came before, and how each of it fails.
