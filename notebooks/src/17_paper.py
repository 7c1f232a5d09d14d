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
# # 17 · The paper's tables, measured again
#
# The PyTorch 2 paper ends with tables: speedups, the share of models captured, the overhead. Most people
# know `torch.compile` by these tables. You have read a compiler of the same design. This chapter asks the
# same questions of it, and of the original beside it.
#
# **What you will learn:** what a geometric mean of speedups hides; how a benchmark of many models is
# organised; why two honest tables differ; which ways of capturing a graph are silently wrong.
#
# **Files of this chapter:** none; the tables are made in `benchmarks/paper/`, beside the core.

# %%
import statistics

import torch

import minidynamo
from benchmarks.paper import measure, mechanisms, report
from benchmarks.paper.models import MODELS, fair_order
from minidynamo.explain import Table

torch.set_num_threads(1)
Table(["the paper's figure", ""],
      [(f"{kind}: speedup over eager, A100", value) for kind, value in report.HEADLINE.items()]
      + [(f"captured of {name}, %", value) for name, value in report.CAPTURED.items()],
      "what the paper reports, in section 6")

# %% [markdown]
# Readers remember these two means and three percentages.
# <!-- shows: n("inference: speedup over eager, A", 1) == 2.27 and count("captured of") == 3 -->
#
# ## The naive table
#
# Take some models, time eager, time the compiled call, and average the ratios. Such a table has four
# faults:
#
# * A compiler that computes wrong numbers may be fast.
# * A model that fails is left out, so a compiler that fails at hard models looks better.
# * An arithmetic mean depends on which side is called slow.
# * Whoever chooses the models chooses the result.
#
# Here a judge checks each result before it is timed. The judge compares with float64 where the model runs
# in float64, and otherwise with eager's own result. Only a right result has a speedup. The tables count
# and list what failed. They compare two compilers over the models that are right with both. In a few
# lines:

# %%
def is_right(found, eager, exact):
    """Is a result at most twice as far from float64's as eager's is?"""
    error, of_eager = ((one - exact).norm() / exact.norm() for one in (found, eager))
    return bool(error <= 2 * of_eager)

x = torch.randn(64, 1000)
eager, exact = torch.softmax(x, -1), torch.softmax(x.double(), -1)
print("compiled:", is_right(minidynamo.compile(lambda x: torch.softmax(x, -1))(x), eager, exact))
print("computed in bfloat16:", is_right(torch.softmax(x.bfloat16(), -1), eager, exact))

# %% [markdown]
# The compiled result passes, and a result with fewer digits does not. The real `Judge` in
# `benchmarks/paper/measure.py` also asks what eager itself does: whether its results are random, and
# whether they repeat.
# <!-- shows: has("compiled: True") and has("bfloat16: False") -->
#
# The order of the models is drawn once. Any prefix of the list is a fair sample of the three groups. So a
# measurement may stop at any time. The next table begins each line with the group:

# %%
print(len(MODELS), "models; the first of them:")
for name in fair_order()[:6]:
    print(f"    {MODELS[name]:13} {name}")

# %% [markdown]
# ## Five models, here and now
#
# These models run on one thread of this machine, and are small enough for a notebook. The next cell
# times each model, in eager and compiled by our compiler. Products and convolutions of a library
# take most of their time, and a compiler calls that library as eager does. A compiler can win the
# work between them:

# %% tags=["volatile"]
from benchmarks.models import bert, gpt2
from benchmarks.paper.others import OTHERS
from benchmarks.runner import interleave, ratio

def five():
    for name, batch in (("point cloud", 2), ("actor-critic", 4), ("sine network", 1024)):
        yield name, *OTHERS[name](batch)
    for name, make in (("GPT-2, 1 layer", gpt2), ("BERT, 1 layer", bert)):
        yield name, *make(layers=1, sequence=32)

def live(name, model, inputs):
    minidynamo.reset()
    compiled = minidynamo.compile(model.eval())
    with torch.no_grad():
        expected, found = model(**inputs), compiled(**inputs)
        pairs = zip(floats(expected), floats(found), strict=True)
        right = all(torch.allclose(a, b, atol=1e-3) for a, b in pairs)
        times = interleave(
            {"eager": lambda: model(**inputs), "ours": lambda: compiled(**inputs)}, budget=1.0
        )
    return name, right, ratio(times, "eager", "ours")

def floats(value):
    return [t for t in mechanisms.tensors_of(value) if t.is_floating_point()]

found = [live(*one) for one in five()]
Table(["", "right", "eager / ours", "quartiles"],
      [(n, "yes" if right else "NO", f"{r[0]:.2f}", f"{r[1]:.2f} to {r[2]:.2f}") for n, right, r in found])

# %% [markdown]
# If the quartiles of a row are on both sides of 1, the row shows no difference.
# <!-- shows: count("yes") == 5 and not has("NO") -->
#
# ## Speedups on a GPU
#
# The following tables were recorded; this notebook runs none of them. The lines above each table give the
# machine, the versions, the date and the command. A table has those models of the sample that finished
# before the session ended. Training takes longer to compile, so it has fewer models.
#
# A row is one group of models in one of four settings: inference or training, in float32 or in 16 bits.
# `torch` means `torch.compile`. The first table counts the models, and how many of them are right:

# %%
def recorded_table(name, make, title, again=False):
    """A table of a stored run, with where it comes from (unless it is the run of the table above)."""
    run = report.recorded(name)
    if run is None:
        return print(f"{title}: not recorded yet")
    head, cells = make(run)
    if not again:
        print(report.where(run))
    return Table(head, cells, title)

def columns(make, names=2, **wanted):
    """`make`, with some columns only: {its new name: its number}. A row is named by the first ones."""
    def narrow(run):
        _, cells = make(run)
        # how many were not finished is told below, model by model
        rows = [(" ".join(row[:names]), *(row[n].split(" (")[0] for n in wanted.values()))
                for row in cells]
        return ["", *wanted], rows
    return narrow

recorded_table("h100_paper", columns(report.speedups, models=2, ours=3, torch=4),
               "how many models are right")

# %% [markdown]
# Nearly all models are right with both compilers. A mean over few models says little, so keep these counts
# in mind. The next table has the mean speedups over the models that are right with both. The paper gives
# one figure for all groups together, measured on an A100:
# <!-- shows: n("inference fp32 all", 1) == n("inference fp32 all", 2) and n("training AMP all", 2) - n("training AMP all", 1) <= 1 -->

# %%
recorded_table("h100_paper", columns(report.speedups, ours=5, torch=6, paper=10),
               "eager's time / the compiler's: geometric means", again=True)

# %% [markdown]
# In float32 both inference means are below the paper's. In bfloat16 our mean is above it. In training our
# mean is below the paper's in float32, and above it with autocast (AMP).
# <!-- shows: n("inference fp32 all") < n("inference fp32 all", 2) and n("inference bf16 all") > n("inference bf16 all", 2) and n("training fp32 all") < n("training fp32 all", 2) and n("training AMP all") > n("training AMP all", 2) -->
#
# A speedup costs the time of the first call:

# %%
recorded_table("h100_paper", columns(report.speedups, ours=8, torch=9),
               "seconds of the first call: means", again=True)

# %% [markdown]
# Ours compiles in about a third of the time. The first call is paid once. The next figure shows the
# speedups again. The upper row has the models in order of their speedup; the lower row counts the models
# with each speedup:
# <!-- shows: all(0.2 < n(f"{kind} all") / n(f"{kind} all", 1) < 0.4 for kind in ("inference fp32", "inference bf16", "training fp32", "training AMP")) -->

# %% alt="For each column of the paper: the speedups of all models, sorted, ours and torch.compile's, with the paper's mean, and a histogram of them"
run = report.recorded("h100_paper")
if run:
    report.draw(run);

# %% [markdown]
# **Why inference differs from the paper's.** The dotted line is the paper's mean. This GPU is faster. The
# faster the products are, the larger is the share of everything around them, which fusion removes. In
# float32 products are slow, so the mean is below the paper's. In bfloat16 they are fast, so it is above.
# <!-- general -->
#
# Eager mode has changed, too. Eager attention is now one library kernel, where the paper's models ran
# several. The models also differ from the paper's, and run in small batches. A small batch is little
# work for a GPU, so the time of launches counts for more.
#
# **Why training differs.** In both tables most of the backward pass is products and convolutions. In
# float32 they take nearly all the time, and a compiler calls the library for them. With autocast, eager
# runs the casts around them one by one. A compiler fuses the casts, so it can win more.
#
# **Why the groups differ.** Language models have long chains of small operations between products. Image
# models are mostly convolutions. A mean over another mixture is another mean. That alone explains why
# nobody's single figure is yours.
#
# ## What is not in the table
#
# The next table lists the rows without a right result, and the cause:

# %%
recorded_table("h100_paper", report.unfinished, "rows without a right result, and why")

# %% [markdown]
# Most causes are a limit of time, which is part of the method. A model that one compiler does not finish
# counts against that compiler. This failure says nothing about the other compiler.
# <!-- shows: count("not finished in") > 20 -->
#
# ## The price of capture
#
# Capture can be timed alone, with a backend that runs the graph as it is. Three things then differ from
# eager: the frame hook, the guards, and the Python code that no longer runs. The next table has the time
# over eager's:

# %%
over = {"ours": 2, "torch": 3, "worst ours": 4, "worst torch": 5}
recorded_table("h100_paper", columns(report.overheads, names=1, **over),
               "time over eager's; below one the graph is faster")

# %% [markdown]
# The mean over all models is below 1: on average, capturing alone makes a model a little faster.
# <!-- shows: 0.8 < n("all  ") < 1 and 0.8 < n("all  ", 1) < 1 -->
#
# On a CPU, a tiny model is little more than Python, so the difference can be counted in microseconds. A
# negative figure is time saved:

# %%
recorded_table("cpu_paper_capture", report.call_overheads, "tiny models on a CPU, one thread")

# %% [markdown]
# The paper calls its overhead small. Here the median call is even faster than eager's. A guard costs less
# than the modules' own Python, which the graph skips. The overhead shows in models with graph breaks, and
# in models that do very little.
# <!-- shows: n("ours", 1) < 0 and n("torch.compile", 1) < 0 and n("ours", 3) > 0 -->
#
# ## Ways to capture
#
# Notebook 01 showed on small programs how each older mechanism fails. The next table has the same test
# for the models of the list. Each mechanism captures the model in eval mode. The test then passes other
# values in a larger batch. Last, it calls `train()`:

# %%
from parts import part

part(mechanisms.after_train, ("for one in", "one.train()"))

# %% [markdown]
# `model` is the captured model, `plain` an untouched copy, and `graph` the result of the capture. All
# three must then agree. A mechanism works, cannot capture the model, or gives a wrong result:
# <!-- general -->

# %%
if run := report.recorded("cpu_paper_capture"):
    print(report.whole_graphs(run))
recorded_table("cpu_paper_capture", report.captures, "for how many models each mechanism works")

# %% [markdown]
# Look at the column of wrong results first. A mechanism that *cannot* capture a model says so. A mechanism
# that is wrong says nothing, as `torch.jit.trace` for more than half of the models.
# <!-- shows: n("torch.jit.trace", 1) > n("torch.jit.trace") and n("torch.jit.script", 1) == 0 and n("ours  ", 1) == 0 -->
#
# The next table has the causes:

# %%
recorded_table("cpu_paper_capture", report.capture_causes, "the most frequent causes")

# %% [markdown]
# **Why this differs from the paper's share.** The paper counts models of its three suites that run at all
# under capture. Here a mechanism must also follow the model into training mode, and be right there. A
# trace keeps the mode in which it was made. So it is silently wrong wherever a model has dropout.
# <!-- shows: n("torch.jit.trace", 0) > 20 and has("wrong result: after train()") -->
#
# The lazy tensors are this course's miniature, which knows no shapes before it computes.
#
# ## Ablation
#
# Notebook 15 did an ablation for single kernels. The next table does one over models on the GPU. The first
# row is eager. The row in parentheses adds a CUDA graph. Every other row takes something away: above 1
# the model is slower without it. The last column counts kernels:

# %%
recorded_table("h100_paper_ablation", report.ablations, "geometric means over the models")

# %% [markdown]
# **Why this differs from the paper's.** Its largest effect is fusion together with inlining. The same
# shows here in models with chains to fuse. Alone, each of the two does the other's work: the time without
# both is more than the product of the two.
# <!-- shows: n("without fusion and inlining", 1) > n("without fusion", 1) * n("without inlining", 1) -->
#
# A CUDA graph removes launches. It wins where the GPU waits for the next launch (the column "least"), and
# nothing where the GPU is the slower side (the column "most").
# <!-- shows: n("(with a CUDA graph)", 2) < 0.5 and n("(with a CUDA graph)", 3) > 1 -->
#
# ## Exercises
#
# **17.1** (warm-up) *Side by side.* Write `side_by_side(rows)`: the geometric means of "eager / ours" and of
# "eager / torch.compile" over the rows that have both. A row is a dictionary with these keys. Each key has
# a list, and the median is its first item. A key may be missing.
#
# *Hints.* `statistics.geometric_mean`. Choose the rows before you average.

# %% tags=["support"]
from exercises import check

# %% tags=["exercise"]
def side_by_side(rows: list) -> tuple:
    """(ours, torch.compile), over the same models."""
    ### BEGIN SOLUTION
    labels = ("eager / ours", "eager / torch.compile")
    both = [row for row in rows if all(label in row for label in labels)]
    return tuple(statistics.geometric_mean([row[label][0] for row in both]) for label in labels)
    ### END SOLUTION

# %% tags=["check"]
check("17.1", side_by_side)

# %% [markdown]
# **17.2** (core) *Silently wrong.* Write `forgets_the_mode(capture, model, x)`. The model is in eval mode, and
# `capture(model, x)` makes a callable of it. Capture first, then call `model.train()`. Return True if the
# callable does not follow the model into training mode. Random numbers must not decide: draw from the same
# seed.
#
# *Hints.* Call `torch.manual_seed` before each of the two calls. Call `train()` on the captured object,
# too, if it has this method.

# %% tags=["exercise"]
def forgets_the_mode(capture, model, x) -> bool:
    """Does what was captured differ from the model after `train()`?"""
    ### BEGIN SOLUTION
    graph = capture(model, x)
    for one in (model, graph):
        if hasattr(one, "train"):
            one.train()
    torch.manual_seed(0)
    expected = model(x)
    torch.manual_seed(0)
    return not torch.allclose(graph(x), expected)
    ### END SOLUTION

# %% tags=["check"]
check("17.2", forgets_the_mode)

# %% [markdown]
# **17.3** (stretch) *What was counted.* Write `shares(rows)`: of all models, in percent, `(captured whole, right)`. A
# row has `"graphs"`, `"breaks"` and `"right"`, unless it has `"failed"`. A model is captured whole if it has
# one graph, no break, and a right result.
#
# *Hints.* A failed row counts below the line, and never above it.
#
# <details><summary>Predict: one compiler leaves out the models that it cannot compile. What becomes of its percentage?</summary>
#
# It rises. Percentages of different lists cannot be compared.
#
# </details>

# %% tags=["exercise"]
def shares(rows: list) -> tuple:
    """(percent captured as one right graph, percent right)."""
    ### BEGIN SOLUTION
    right = [row for row in rows if "failed" not in row and row["right"]]
    one = [row for row in right if (row["graphs"], row["breaks"]) == (1, 0)]
    return 100 * len(one) / len(rows), 100 * len(right) / len(rows)
    ### END SOLUTION

# %% tags=["check"]
check("17.3", shares)

# %% [markdown]
# **17.4** (stretch) *The model that moves the mean.* A single model can decide a mean over few.
# Write `most_telling(speedups)`. `speedups` maps a model to its speedup. Return the name of the
# model whose removal changes the geometric mean by the largest factor, and the mean without that
# model.
#
# *Hints.* A factor of 1/2 is as large a change as a factor of 2: compare `abs(log(...))`.
#
# <details><summary>Predict: one model is four times faster, another five times slower. Which one moves the mean more?</summary>
#
# The slow one, if the others are near one. Factors count, and five is more than four.
#
# </details>

# %% tags=["support"]
import math

# %% tags=["exercise"]
def most_telling(speedups: dict) -> tuple:
    """(model, the geometric mean of the others)."""
    ### BEGIN SOLUTION
    def without(name):
        return statistics.geometric_mean([value for other, value in speedups.items() if other != name])

    mean = statistics.geometric_mean(speedups.values())
    name = max(speedups, key=lambda name: abs(math.log(without(name) / mean)))
    return name, without(name)
    ### END SOLUTION

# %% tags=["check"]
check("17.4", most_telling)

# %% [markdown]
# ## What real PyTorch has
#
# * `benchmarks/dynamo/` in the PyTorch repository runs the three suites of the paper every night, with a
#   dashboard. Accuracy comes first there, too.
# * `torch/_dynamo/testing.py` has counters of graphs and operations, which PyTorch's tests compare.
# * Paper, section 6: all the tables that this chapter measures again.
#
# **See it in the real `torch.compile`.** `torch._dynamo.explain(model)(x)` counts graphs and breaks of your
# own model. Ours is `minidynamo.explain(model)(x)`.
#
# ## Recap
#
# * A speedup counts only with a right result. Count what failed, with its cause.
# * Compare two compilers over the same models, by geometric means.
# * Any prefix of a fair order is a fair sample, so a measurement may stop when time is over.
# * A capture may be right today and silently wrong tomorrow. Flip the mode, and change the inputs.
#
# Next: many GPUs. (For models of your own: `python -m benchmarks --suite paper` takes any model of the
# list.)
