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
# `torch.compile(model)` makes a PyTorch program faster without changing it. This course rebuilds
# `torch.compile`, small and real, so that you can read how it works:
#
# * **minidynamo** watches Python run. It turns a function into a *graph* of tensor operations, and
#   adds *guards*, which say when the graph may be used again.
# * **miniinductor** turns the graph into *fused kernels*: C++ code that computes many operations in
#   one pass over memory.
#
# The tour follows one program through every stage, from Python bytecode to C++. It takes about 20
# minutes to read.
#
# **What you will learn:** the names of the stages, what each takes and gives, and where the speed
# comes from.
#
# **Files of this chapter:** `minidynamo/convert/convert_frame.py` and `miniinductor/compile.py`.
# Each is a driver, which calls the stages of its package in order.
#
# The next cell shows the result that the tour explains. It compiles the real GPT-2 (with random
# weights), checks its output against *eager* PyTorch (PyTorch without a compiler), and measures the
# processor time of both.

# %% tags=["volatile"]
import torch
import minidynamo
from benchmarks.models import gpt2
from benchmarks.runner import interleave
from time import process_time

torch.set_grad_enabled(False)           # the tour computes results only; chapter 08 trains
torch.set_num_threads(1)
torch.manual_seed(0)

model, inputs = gpt2()
compiled_model = minidynamo.compile(model)
expected = model(**inputs).logits
torch.testing.assert_close(compiled_model(**inputs).logits, expected, rtol=1e-4, atol=1e-4)

times = interleave({"eager": lambda: model(**inputs), "compiled": lambda: compiled_model(**inputs)},
                   clock=process_time)
eager, compiled = (times[name].median * 1e3 for name in ("eager", "compiled"))
print(f"GPT-2: eager {eager:.0f} ms, compiled {compiled:.0f} ms, {eager / compiled:.2f} times as fast")

# %% [markdown]
# Where does the difference come from? A small function shows this better than a model of 12 layers.
# <!-- shows: n("compiled") < n("eager") -->
#
# ## The problem: eager mode forgets between operations
#
# Eager PyTorch runs one *kernel* per operation: a compiled loop over all elements. Each kernel
# reads its inputs from memory and writes its result to memory, even if the next operation reads
# that result at once. In a chain of cheap operations, nearly all of the time goes into this memory
# traffic.
#
# *A picture to keep in mind.* Eager PyTorch is a cook who fetches the ingredients, performs one
# step, puts everything back on the shelf, and then reads the next step. Capture is like an
# observer, who writes down the recipe while the cook works. The compiler reads the whole recipe and
# notices that five steps fit into the same pan. *Exactly:* the shelf is main memory, the pan is the
# CPU's registers and cache, and a step is one kernel.

# %%
def scaled_gelu(x, y):
    return torch.nn.functional.gelu(2 * x + 1) * torch.sigmoid(y)

x, y = torch.randn(1024, 1024), torch.randn(1024, 1024)
megabytes = x.numel() * 4 / 1e6
print(f"each tensor has {megabytes:.1f} MB")
print(f"eager moves 2 tensors for 2*x, 2 for +1, 2 for gelu, 2 for sigmoid, 3 for *: {11 * megabytes:.0f} MB")
print(f"needed are 3: read x, read y, write the result: {3 * megabytes:.0f} MB")

# %% [markdown]
# A compiler that sees all five operations at once can avoid the traffic between them. Our compiler
# has these stages, in order:
# <!-- shows: has(": 46 MB") and has(": 13 MB") -->
#
# | stage | takes | gives | more in |
# |---|---|---|---|
# | 1 frame hook | a call of a Python function | the function's bytecode | chapter 03 |
# | 2 symbolic evaluation | bytecode | a graph | chapter 04 |
# | 3 guards | what the evaluation assumed | a check that runs before each call | chapter 05 |
# | 4 ATen | the graph | a graph of fewer, simpler operations | chapter 08 |
# | 5 lowering | ATen operations | loops (*loop IR*) | chapter 09 |
# | 6 fusion | loops | fewer loops | chapter 10 |
# | 7 code generation | loops | C++ or Triton kernels | chapters 11, 12 |
# | 8 wrapper | kernels | one Python function that launches them | chapter 13 |
#
# `minidynamo.explain` compiles a function, calls it, and keeps the product of every stage. It
# prints one row per *frame*: a frame is one call of a Python function. The row counts the captured
# operations, the guards, the *graph breaks* (places where the capture had to stop), the generated
# kernels, and the calls of PyTorch's own kernels (*eager kernels*). If a frame could not be
# compiled, the last column says why.

# %%
e = minidynamo.explain(scaled_gelu)(x, y)
print("same numbers as eager:", torch.allclose(e.result, scaled_gelu(x, y), atol=1e-5))
e

# %% [markdown]
# All five operations became one kernel. The following stages show how.
# <!-- shows: has("same numbers as eager: True") and n("scaled_gelu  ") == 5 and n("scaled_gelu  ", 3) == 1 -->
#
# ## Stage 1 · The frame hook
#
# CPython lets an extension decide how a frame is evaluated (PEP 523). Our hook,
# `minidynamo/frame/frame_hook.c`, gives the frame other bytecode before its first instruction runs.
# The picture shows the original function and, translated back to Python, what runs in its place.

# %%
e.replay

# %% [markdown]
# The replacement calls the compiled graph and returns its result. Python's own bytecode for the
# five operations never runs. (The right side would also list writes to objects, but `scaled_gelu`
# makes none.)
# <!-- shows: has("results = graph(x, y)") -->
#
# ## Stage 2 · Symbolic evaluation: from bytecode to a graph
#
# Where does the graph come from? minidynamo *evaluates the original bytecode symbolically*. Its
# evaluator (`minidynamo/evaluate/`) runs the bytecode instruction by instruction, but a tensor in
# it is only a node of a graph. `2 * x` multiplies nothing: it adds a node `mul`. The picture shows
# the finished graph from top to bottom: inputs, operations with their shapes, and the output.

# %%
e.graph

# %% [markdown]
# This kind of graph is called an *FX graph*. `gelu` and `sigmoid` are independent of each other, so
# a compiler may compute them in any order.
#
# ## Stage 3 · Guards: when may the graph be used again?
#
# The graph is right for *this* `x`: this shape, this memory layout, on a CPU, without gradients.
# Every assumption of the evaluation becomes a **guard**. The table shows four guards on `x`. A
# stride is the distance in memory between neighbours along a dimension.

# %%
from minidynamo.explain import Table

guards = e.main.record.guards
wanted = ("SHAPE", "STRIDE", "DEVICE", "GRAD")
shown = [g for g in guards if g.kind in wanted and g.source is not None and g.code.startswith("x.")]
Table(["kind", "assumption"], [(g.kind, g.code) for g in shown])

# %% [markdown]
# All guards of a graph are compiled into one Python function. It runs before each call, and the
# graph is used only if it returns True. (Chapter 05 explains the other guards.)
# <!-- shows: has("SHAPE x.shape == (1024, 1024)") -->
#
# What happens when a guard fails? Four calls with three different shapes show it:

# %%
minidynamo.reset()
compiled = minidynamo.compile(scaled_gelu)
compiled(x, y)
compiled(x, y)
compiled(x[:3], y[:3])
compiled(x[:7], y[:7])
print(minidynamo.counters)

# %% [markdown]
# Four calls needed two graphs. `recompiles` names the guard that failed in the third call. The
# compiler then replaced the size that had changed by a symbol. The second graph is therefore right
# for the fourth call as well (chapter 14).
# <!-- shows: n("graphs:") == 2 and n("recompiles:") == 1 and has("x.shape == (1024, 1024) is false") -->
#
# ## Stage 4 · ATen: fewer kinds of operations
#
# PyTorch has far more operations than anyone wants to write kernels for. miniinductor therefore
# traces the graph once more, at a lower level, where every operation belongs to PyTorch's internal
# library **ATen**. It *decomposes* complicated operations into simple ones and replaces in-place
# writes by new values (*functionalization*). The listing has one line per operation: the name of
# its result, the operation, and its arguments. The inputs `x` and `y` are now called `arg0` and
# `arg1`.

# %%
for node in e.main.compiled.functional_graph.graph.nodes:
    if node.op == "call_function":
        print(f"{node.name:16} = {node.target._opname:8}{node.args}")

# %% [markdown]
# `gelu` is gone. It is now made of `mul`, `erf` and `add`, which many other operations need as
# well. A code generator that knows these few simple operations can compile the others as well.
# <!-- shows: not has("gelu") and has("erf") and has("add_tensor") -->
#
# ## Stage 5 · Lowering: tensors as functions of an index
#
# *Lowering* turns each ATen operation into a Python function from an index to a value. An operation
# that needs a value of another operation calls that operation's function, so both become one loop
# body (*inlining*). The result is the **loop IR** (IR: intermediate representation). It has these
# names:
#
# * `buf0` is a *buffer*, a tensor that gets memory;
# * `i0` and `i1` are the row and the column of the element that is computed;
# * `tmp0`, `tmp1`, ... are values of this one element, which never go to memory.

# %%
import re
from minidynamo.explain import Code

def without_comments(source):
    """Generated code without its comments, which only name nodes of the graph."""
    lines = [re.sub(r"\s*(//|#(?! *pragma)).*", "", line) for line in source.splitlines()]
    return "\n".join(line for line in lines if line)

Code(without_comments(e.main.compiled.loop_ir), "python", "loop IR of scaled_gelu")

# %% [markdown]
# Nine ATen operations became one loop with two loads and one store. Inlining alone has removed the
# memory traffic between them.
# <!-- shows: count("load(") == 2 and count("store(") == 1 -->
#
# ## Stage 6 · Fusion: which loops share a kernel?
#
# Inlining stops at a *reduction*, an operation such as a sum or a maximum that needs many elements.
# Take `softmax`, which has two of them. It is lowered to four loops:
#
# * `buf0`: the maximum of each row;
# * `buf1`: the exponentials of each element less this maximum;
# * `buf2`: the sum of the exponentials in each row;
# * `buf3`: the quotients.
#
# The *scheduler* (`miniinductor/schedule/scheduler.py`) decides which loops share a kernel. Each
# row of the table is one decision: the two candidates, the answer, its category (chapter 10) and
# reason, and the bytes that need not be moved any more.

# %%
s = minidynamo.explain(lambda x: torch.softmax(x, -1))(x)
print("kernels:", len(s.main.compiled.kernels))
s.fusion

# %% [markdown]
# All four loops share one kernel. It keeps the exponentials of one row in the cache and never
# writes the whole matrix of them to memory. Each of the first two rows saves at least one pass over
# this matrix.
# <!-- shows: n("kernels:") == 1 and has("3 of 3 considered pairs were fused") -->
#
# ## Stage 7 · Code generation
#
# The code generator (`miniinductor/codegen/cpp/kernel_writer.py`) writes each loop as C++. Back to
# `scaled_gelu`: `in0` and `in1` are its inputs `x` and `y`, `out0` is its result, and `r0` counts
# the elements. The kernel's name is made of the operations in it. The first lines only unpack the
# arguments.

# %%
(kernel,) = e.main.compiled.kernels
Code(without_comments(kernel.source), "cpp", "the kernel of scaled_gelu")

# %% [markdown]
# The kernel reads each element of `x` and `y` once and writes each result once: three tensors of
# traffic instead of eleven. (`mini::` marks functions of our own small C++ library. The `#pragma`
# spreads the loop over cores and vector units.)
# <!-- shows: count("in0[r0]") == 1 and count("in1[r0]") == 1 -->
#
# ## Stage 8 · The wrapper
#
# The last stage writes the Python function that is called in the end. It allocates memory, launches
# the kernels and returns the results.

# %%
e.wrapper

# %% [markdown]
# When the replacement bytecode of stage 1 calls `graph`, this function runs.
# <!-- shows: has("erf_add_sigmoid_mul_0(arg0, arg1, buf0)") -->
#
# ## When capture must stop: graph breaks
#
# A `print` cannot go into a graph. minidynamo compiles what comes before the `print` and lets
# Python run the `print` itself. A **resume function** holds the rest of the program, and minidynamo
# compiles it as well. The program behaves as before.

# %%
def talkative(x):
    x = torch.relu(x) + 1
    print("hello from the middle")
    return x * 2

t = minidynamo.explain(talkative)(torch.randn(4))
t

# %% [markdown]
# The table has two frames: the part before the `print`, and the resume function for the part after
# it. Each has a kernel of its own. minidynamo records every graph break with its line, its reason,
# and a hint on how to avoid it:
# <!-- shows: count("talkative  ") + count("talkative at line") >= 2 and count("<resume of talkative") == 1 -->

# %%
t.frames[0].breaks

# %% [markdown]
# ## The real model: GPT-2
#
# The same stages compile the whole model of the first cell. It comes from the library transformers,
# and was not written for our compiler.

# %%
g = minidynamo.explain(model)(**inputs)
print(f"{model.config.n_layer} layers, {sum(p.numel() for p in model.parameters()) / 1e6:.0f} million parameters")
print("one graph, no break:", len(g.frames) == 1 and not g.frames[0].record.graph_breaks)
g

# %% [markdown]
# One frame holds the whole model: the evaluator *inlined* every function that `forward` calls. The
# graph is large, so the picture draws one box per module. (Its 517 nodes are the 515 operations,
# the input and the output.)
# <!-- shows: has("one graph, no break: True") and count("GPT2LMHeadModel.forward") == 1 -->

# %%
g.graph

# %% [markdown]
# The twelve blocks `transformer.h.0` to `transformer.h.11` have the same number of operations.
# Which operations became kernels of ours? Matrix products and attention did not. They stay *library
# calls*, the eager kernels of the table above, since experts have tuned these kernels for years.
# Everything between the library calls is generated:
# <!-- shows: count("42 operations") == 12 -->

# %%
from collections import Counter

record = g.main.compiled
print(len(record.kernels), "generated kernels, between these library calls:")
for op, count in Counter(f.op for f in record.fallbacks).items():
    print(f"{count:4} calls of {op}")

# %% [markdown]
# One of the generated kernels computes GPT-2's version of `gelu`, which uses `tanh`:
# <!-- shows: has("12 calls of aten._scaled_dot_product_flash_attention_for_cpu") -->

# %%
gelu = next(k for k in record.kernels if "tanh" in k.source)
Code(without_comments(gelu.source), "cpp", f"{gelu.name}, of GPT-2")

# %% [markdown]
# You have read a kernel like this one in stage 7: one loop, one load, one store. Eager PyTorch runs
# the same formula as eight operations.
# <!-- shows: count("for (") == 1 and count("in0[r0]") == 1 and count("out0[r0] =") == 1 -->
#
# ## What does compiling cost?
#
# Compiling takes time, but only in the first call. The table shows how long each stage of this
# compilation took. The row `capture: backend` is the time for which minidynamo waits for
# miniinductor, so it contains all rows that begin with `miniinductor`. (Chapters 08 to 13 explain
# these rows.)

# %% tags=["volatile"]
g.times

# %% [markdown]
# `compile kernels` is the C++ compiler's share. It was short here, since the first cell had
# compiled the same kernels and stored them on disk.
# <!-- shows: has("compile kernels") -->
#
# ## When is it faster?
#
# The plot compares three ways to run a program: eager, our compiler, and the real `torch.compile`.
# All three take turns in one process, on one core. A bar is eager's processor time divided by that
# of the compiled program, as a median over all rounds. Above the dashed line at 1, the compiled
# program is faster. The thin lines are quartiles.

# %% tags=["volatile"] alt="Bars from zero for each program: eager's time divided by the time of miniinductor and of torch.compile, with quartiles; a dashed line at one"
from benchmarks.plots import speedup_bars
from benchmarks.runner import fresh_caches, keep_freed_memory, peer_compile, ratio, timed_first_call
from benchmarks.suites import machine
from benchmarks.workloads import WORKLOADS

COMPILERS = {"ours": minidynamo.compile, "torch.compile": peer_compile}
keep_freed_memory()                     # the same allocator settings for all three (chapter 13)
for compiler in COMPILERS.values():
    compiler(lambda x: x + 1)(torch.ones(4))                # no program pays for starting a compiler
programs = {name: WORKLOADS[name]() for name in ("gelu*sigmoid", "softmax", "layer norm", "tiny (per call)")}
programs["GPT-2"] = model, [inputs["input_ids"]]

rows, cold = [], {}
for name, (function, arguments) in programs.items():
    minidynamo.reset()
    variants = {"eager": function} | {label: compiler(function) for label, compiler in COMPILERS.items()}
    calls = {label: lambda run=run: run(*arguments) for label, run in variants.items()}
    with fresh_caches():                                    # no kernel is on disk yet
        cold[name] = [timed_first_call(calls[label])[1].cpu for label in COMPILERS]
    timings = interleave(calls, budget=5.0, clock=process_time)
    rows.append({"name": name} | {f"eager / {label}": ratio(timings, "eager", label) for label in COMPILERS})
speedup_bars(rows, machine());

# %% [markdown]
# Three things decide how high a bar is:
# <!-- general -->
#
# * *Fusion.* `gelu*sigmoid` is the function of this tour, on larger tensors. Eager runs it as five
#   kernels, both compilers as one.
# * *What eager does already.* `softmax` and `layer norm` are single operations of PyTorch, with
#   kernels that experts wrote by hand. A compiler has nothing to fuse there, and a generated loop
#   can be slower than eager's. The bar would be different in a model, where the compiler fuses such
#   an operation with its neighbours.
# * *The overhead of a call.* `tiny` computes a few numbers, so it measures what a call costs. Eager
#   starts one kernel per operation. A compiled function checks its guards and runs its wrapper.
#   This overhead is larger in `torch.compile` than in our compiler, so on such a small input
#   `torch.compile` can be slower than eager.
#
# GPT-2 has some of each: chains of operations to fuse, and matrix products that stay library calls.
#
# The first call of a compiled function also pays for the compilation. In the cell above it was
# *cold*: no kernel was on disk yet. These were the seconds of processor time:

# %% tags=["volatile"]
Table(["program", "ours", "torch.compile"], [(name, *(f"{s:.2f} s" for s in both)) for name, both in cold.items()])

# %% [markdown]
# ## Exercises
#
# Each chapter ends with exercises that check themselves: fill in the function, then run the cell
# below it. The exercises of this chapter use only what the tour has shown.
#
# **00.1** (warm-up) *How many kernels?* Write `kernels_of(function, *arguments)`. It returns how
# many kernels our compiler generates for the function. Library calls do not count.
#
# *Hints.* `minidynamo.explain(function)(*arguments)` is the `e` of this chapter. Its
# `e.main.compiled.kernels` is a list, which may be empty: count its elements. (`e.kernels` is the
# same for people to read. Where no kernel exists, it is a text that says so.)

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
# **00.2** (core) *One graph instead of two.* The function `talkative` above breaks at its `print`.
# Write `quiet(x)`, which computes the same result in *one* graph. It leaves the printing to its
# caller: it returns `(result, text to print)`. The check compiles `quiet` with `fullgraph=True`,
# which turns any graph break into an error.
#
# *Hints.* A string is a constant. A compiled function may return tensors and other Python objects.

# %% tags=["exercise"]
def quiet(x: torch.Tensor) -> tuple:
    """(what talkative returns, what it prints)."""
    ### BEGIN SOLUTION
    return (torch.relu(x) + 1) * 2, "hello from the middle"
    ### END SOLUTION

# %% tags=["check"]
check("00.2", quiet)

# %% [markdown]
# **00.3** (core) *What was captured?* Write `operations_of(function, *arguments)`. It returns the
# names of the torch operations in the captured graph, in order. Inputs, parameters and the output
# do not count as operations.
#
# *Hints.* The graph is `e.main.record.graph.graph`, and its `nodes` are in order. The `op` of a
# node says what it is: operations have `"call_function"` or `"call_method"`. For a method, `target`
# is the name. For a function, `target` is the function, which has a `__name__`.
#
# <details><summary>Predict: does y = x.relu() appear as a function or as a method?</summary>
#
# As a method: the graph keeps the form that the program used. The next stage (ATen) turns both
# forms into the same operation.
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
# **00.4** (stretch) *What does fusion save?* Eager mode writes each result to memory and reads each
# operand from memory. Write `bytes_saved(function, *arguments)`. It returns the bytes that eager
# moves, less the bytes that the generated kernels move. The check uses elementwise operations only.
#
# *Hints.* A kernel has `bytes_read` and `bytes_written`. For eager, walk over the operations of the
# captured graph. `node.meta["example_value"]` describes the value of a node; a tensor has `numel()`
# and `element_size()`. `node.all_input_nodes` lists the operands.
#
# <details><summary>Predict: what share of the bytes does fusion save in a chain of five operations?</summary>
#
# Eager reads five times and writes five times; the kernel reads once and writes once. Fusion saves
# four fifths.
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
# The list below has every public name of this chapter's core files, with one sentence each. Unfold
# a file, then a name, to see its first lines. The list is made from the sources when the page is
# built.

# %% tags=["volatile"]
from minidynamo.explain import also_here

also_here(
    "minidynamo/api.py",
    "minidynamo/config.py",
    "minidynamo/records.py",
    "minidynamo/errors.py",
    "minidynamo/guards/originals.py",
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
# | lowering and loop IR | `miniinductor/lowering/`, `miniinductor/ir/` | `torch/_inductor/lowering.py`, `ir.py` | 4 |
# | scheduling | `miniinductor/schedule/scheduler.py` | `torch/_inductor/scheduler.py` | 4 |
# | C++ | `miniinductor/codegen/cpp/kernel_writer.py` | `torch/_inductor/codegen/cpp.py` | 4 |
# | Triton | `miniinductor/codegen/triton/kernel_writer.py` | `torch/_inductor/codegen/triton.py` | 4 |
# | memory, wrapper | `miniinductor/runtime/memory.py`, `miniinductor/runtime/wrapper.py` | `torch/_inductor/codegen/wrapper.py` | 4 |
# | symbolic sizes | `minidynamo/shapes/symbolic_shapes.py` | `torch/fx/experimental/symbolic_shapes.py` | 5 |
#
# The paper: *PyTorch 2: Faster Machine Learning Through Dynamic Python Bytecode Transformation and
# Graph Compilation*, ASPLOS 2024.
#
# **What this tour leaves out:** training (chapters 08 and 16), GPUs (chapter 12), memory planning
# and CUDA graphs (chapter 13), sizes that vary (chapter 14), and where exactly the speed comes from
# (chapter 15).
#
# **See it in the real `torch.compile`.** `TORCH_TRACE=folder python program.py` records every stage
# of a real run in `folder`. The separate tool `tlparse` turns these records into web pages:
# `tlparse folder/*.log`.
#
# ## Recap
#
# * A frame hook replaces a function's bytecode by a call of a compiled graph. **Guards** say when
#   the graph may be used.
# * **Symbolic evaluation** of the bytecode builds the graph. Code that cannot be captured causes a
#   **graph break**.
# * **Lowering** turns tensors into functions of an index. **Inlining and fusion** keep values out
#   of memory.
# * The speed comes from moving fewer bytes, and from paying Python's overhead once per graph
#   instead of once per operation.
#
# Next: why is a graph so hard to get? Chapter 01 builds five earlier ways, and shows how each one
# fails.
