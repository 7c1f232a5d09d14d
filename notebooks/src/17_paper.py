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
# The PyTorch 2 paper ends with tables: speedups, the share of models captured, the overhead. Most
# people know `torch.compile` by these tables. You have read a compiler of the same design. This
# chapter measures that compiler, and `torch.compile` beside it, in the same ways.
#
# **What you will learn:** what a mean of speedups hides; how to organise a benchmark of many
# models; why two honest tables differ; which ways of capturing a graph are silently wrong.
#
# **Files of this chapter:** none of the two packages. `benchmarks/paper/` makes the tables.

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
# Readers remember two mean speedups and three percentages.
# <!-- shows: n("inference: speedup over eager, A", 1) == 2.27 and count("captured of") == 3 -->
#
# ## The naive table
#
# Take some models, time eager, time the compiled call, and average the ratios. Such a table has four
# faults:
#
# * A compiler that computes wrong numbers may be fast.
# * Models that fail are left out, so a compiler that fails at hard models looks better.
# * With an arithmetic mean of ratios, each of two compilers can win: it depends on whose time is
#   divided.
# * Whoever chooses the models chooses the result.
#
# Here a judge checks each result before the model is timed. If the model also runs in float64, the
# judge compares errors against that result; otherwise it compares with eager's result. Only a right
# result has a speedup. The tables count and list failures, and compare two compilers over the
# models that are right with both. The next cell has a judge in a few lines:

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
# `benchmarks/paper/measure.py` also tests eager itself: some models draw random numbers, and some
# give a different result in each run.
# <!-- shows: has("compiled: True") and has("bfloat16: False") -->
#
# The models come from three groups: the libraries transformers and timm, and others. Their order
# was drawn once, and any prefix of the list is a fair sample of the groups. So a measurement may
# stop at any time. Each line of the next output has a group and a model:

# %%
print(len(MODELS), "models; the first of them:")
for name in fair_order()[:6]:
    print(f"    {MODELS[name]:13} {name}")

# %% [markdown]
# ## Five models, here and now
#
# The next cell times five small models on one thread of this machine, in eager mode and compiled by
# our compiler. Matrix products and convolutions take most of their time, and both versions call the
# same library for them. A compiler can only speed up the operations between them:

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
# If the two quartiles of a row lie on both sides of 1, the row shows no difference.
# <!-- shows: count("yes") == 5 and not has("NO") -->
#
# ## Speedups on a GPU
#
# This notebook does not measure the following tables: they were recorded. The lines above a table
# give the machine, the versions, the date and the command. (A *sitting* is one session on that
# machine.) Training takes longer to compile, so fewer models were reached.
#
# A row is one group of models in one of four settings: inference or training, in float32 (`fp32`)
# or in 16 bits (`bf16`, or autocast, `AMP`). `torch` means `torch.compile`. In the first table,
# `54 of 56 (4 not finished)` says that 56 results were judged, and 54 are right. Four more models
# were not finished in the time that a row may take:

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
    """`make` with some columns only, {new name: number}; the first columns name a row."""
    def narrow(run):
        _, cells = make(run)
        rows = [(" ".join(row[:names]), *(row[n] for n in wanted.values())) for row in cells]
        return ["", *wanted], rows
    return narrow

recorded_table("h100_paper", columns(report.speedups, models=2, ours=3, torch=4),
               "how many models are right")

# %% [markdown]
# Nearly all judged results are right, with both compilers. But many training rows were not
# finished, most of them by `torch.compile`. A mean over few models says little, so keep these
# counts in mind. The next table has geometric means of the speedups, over the models that are right
# with both compilers. The last column has the paper's means over all its models, on an A100:
# <!-- shows: n("inference fp32 all", 1) == n("inference fp32 all", 2) and n("training AMP all", 2) - n("training AMP all", 1) <= 1 and has("54 of 56 (4 not finished)") and n("training fp32 all", 5) > 30 -->

# %%
recorded_table("h100_paper", columns(report.speedups, ours=5, torch=6, paper=10),
               "eager's time / the compiler's: geometric means", again=True)

# %% [markdown]
# Compare the rows `all`. In float32 inference both means are below the paper's. In bfloat16 our
# mean is above it. In training our mean is below the paper's in float32, and above it with
# autocast.
# <!-- shows: n("inference fp32 all") < n("inference fp32 all", 2) and n("inference bf16 all") > n("inference bf16 all", 2) and n("training fp32 all") < n("training fp32 all", 2) and n("training AMP all") > n("training AMP all", 2) -->
#
# Each speedup has a price: the first call compiles. The next table has its mean time:

# %%
recorded_table("h100_paper", columns(report.speedups, ours=8, torch=9),
               "seconds of the first call: means", again=True)

# %% [markdown]
# Our first call takes less than a third of `torch.compile`'s time. A program spends this time only
# once. The next figure shows the speedups of all models, one setting a column. The upper row has
# the models in order of their speedup; the lower row counts the models with each speedup. The
# dotted line is the paper's mean:
# <!-- shows: all(0.2 < n(f"{kind} all") / n(f"{kind} all", 1) < 1 / 3 for kind in ("inference fp32", "inference bf16", "training fp32", "training AMP")) -->

# %% alt="For each column of the paper: the speedups of all models, sorted, ours and torch.compile's, with the paper's mean, and a histogram of them"
run = report.recorded("h100_paper")
if run:
    report.draw(run);

# %% [markdown]
# **Why inference differs from the paper's.** This GPU computes matrix products faster than an A100.
# So the operations around the products take a larger share of the time, and fusion speeds up these
# operations. In float32 products are slow on this GPU, too, and our mean is below the paper's. In
# bfloat16 they are fast, and our mean is above.
# <!-- general -->
#
# Eager mode has changed, too. Eager attention is now one library kernel, where the paper's models
# ran several. The models also differ from the paper's, and run in small batches. With little work
# in each kernel, launches take a larger share of the time.
#
# **Why training differs.** Most of a backward pass is products and convolutions. In float32 they
# take nearly all the time, and a compiler calls the library for them. Autocast adds casts around
# them, which eager runs one by one. A compiler fuses the casts, so it gains more.
#
# **Why the groups differ.** Language models have long chains of small operations between products.
# Image models are mostly convolutions. So the mean depends on the mixture of models, and a
# published mean need not hold for your model.
#
# ## What is not in the table
#
# The next table lists each model without a right result, its setting (`column`), and the cause:

# %%
recorded_table("h100_paper", report.unfinished, "rows without a right result, and why")

# %% [markdown]
# Most of these rows reached the time limit that we set for a row. The means leave such a model out
# for both compilers. So they say nothing about the models that only one compiler finishes. Read
# this list together with the means.
# <!-- shows: count("not finished in") > 20 -->
#
# ## The price of capture
#
# Capture can be timed alone, with a backend that runs the graph as it is. Three things then differ
# from eager: the frame hook, the guards, and the Python code that no longer runs. The next table
# has the time of a call, divided by eager's, as a geometric mean and at worst:

# %%
over = {"ours": 2, "torch": 3, "worst ours": 4, "worst torch": 5}
recorded_table("h100_paper", columns(report.overheads, names=1, **over),
               "time over eager's; below one the graph is faster")

# %% [markdown]
# Both means over all models are below 1: on average, capture alone makes a model a little faster.
# <!-- shows: 0.8 < n("all  ") < 1 and 0.8 < n("all  ", 1) < 1 -->
#
# The next table has the same difference for models on a CPU, in microseconds a call. A negative
# figure is time saved:

# %%
recorded_table("cpu_paper_capture", report.call_overheads, "models on a CPU, one thread")

# %% [markdown]
# The paper calls its overhead small. Here the median call is even faster than eager's: the guards
# cost less than the modules' own Python, which the graph skips. A few models are slower than in
# eager mode, as the last column shows.
# <!-- shows: n("ours", 1) < 0 and n("torch.compile", 1) < 0 and n("ours", 3) > 0 -->
#
# ## Ways to capture
#
# Notebook 01 showed on small programs how each older mechanism fails. The same can be tested with
# the models of the list. Each mechanism captures a model in eval mode. The test then passes other
# values in a larger batch. Last, it calls `train()`:

# %%
from parts import part

part(mechanisms.after_train, ("for one in", "one.train()"))

# %% [markdown]
# `model` is the captured model, `plain` is an untouched copy, and `graph` is the result of the
# capture. After `train()` all three must still agree. The next table counts the models for which a
# mechanism works, gives a wrong result, or cannot capture the model:
# <!-- general -->

# %%
if run := report.recorded("cpu_paper_capture"):
    print(report.whole_graphs(run))
recorded_table("cpu_paper_capture", report.captures, "for how many models each mechanism works")

# %% [markdown]
# Look at the column of wrong results first. A mechanism that *cannot* capture a model says so. A
# mechanism that is wrong says nothing, and `torch.jit.trace` is wrong for more than half of the
# models.
# <!-- shows: n("torch.jit.trace", 1) > n("torch.jit.trace") and n("torch.jit.script", 1) == 0 and n("ours  ", 1) == 0 -->
#
# The next table has the most frequent causes, and the models that were not finished:

# %%
recorded_table("cpu_paper_capture", report.capture_causes, "the most frequent causes")

# %% [markdown]
# **Why this differs from the paper's share.** The paper counts the models that run at all under
# capture. Here a mechanism must also follow the model into training mode, and be right there. A
# trace keeps the mode in which it was made, so it is silently wrong for every model with dropout.
# <!-- shows: n("torch.jit.trace", 0) > 20 and has("wrong result: after train()") -->
#
# The row of lazy tensors is the small version of notebook 01. It knows no shape before it computes,
# so most models fail under it.
#
# ## Ablation
#
# Notebook 15 did an ablation for single kernels. The next table has one for whole models on a GPU.
# Each row divides a version's time by the time with all optimisations on. A row `without` something
# switches it off: above 1, the model is slower without it. One row adds a CUDA graph. `least` and
# `most` are the extreme models, and the last column compares the number of kernels. The last lines
# name models that are left out:

# %%
recorded_table("h100_paper_ablation", report.ablations, "geometric means over the models")

# %% [markdown]
# **Why this differs from the paper's.** In the paper, fusion and inlining together have the largest
# effect, and they do here, too. Switching off only one of the two costs little, because the other
# then removes most of the stores. So the factor without both is larger than the product of the two
# single factors.
# <!-- shows: n("without fusion and inlining", 1) > n("without fusion", 1) * n("without inlining", 1) -->
#
# A CUDA graph removes launches. It helps a model whose GPU waits for launches (the column `least`).
# It does not help a model whose GPU is always busy (the column `most`).
# <!-- shows: n("(with a CUDA graph)", 2) < 0.5 and n("(with a CUDA graph)", 3) > 1 -->
#
# ## Exercises
#
# **17.1** (warm-up) *Side by side.* Write `side_by_side(rows)`: the geometric means of "eager /
# ours" and of "eager / torch.compile" over the rows that have both. A row is a dictionary with
# these two keys. The value of a key is a list, and its first item is the median. A key may be
# missing.
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
# **17.2** (core) *Silently wrong.* Write `forgets_the_mode(capture, model, x)`. The model is in
# eval mode, and `capture(model, x)` makes a callable of it. Capture first, then call
# `model.train()`. Return True if the callable does not follow the model into training mode. Dropout
# draws random numbers, so give both calls the same seed.
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
# **17.3** (stretch) *What was counted.* Write `shares(rows)`, which returns two percentages of all
# models: those that were captured whole, and those that are right. Each row is a model: a
# dictionary with `"graphs"`, `"breaks"` and `"right"`, or only with `"failed"`. A model is captured
# whole if it has one graph, no break, and a right result.
#
# *Hints.* A failed model counts in the denominator of both fractions, and never in the numerator.
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
# **17.4** (stretch) *The model that moves the mean.* A single model can decide the mean of a short
# list. Write `most_telling(speedups)`. `speedups` maps a model to its speedup. Return the name of
# the model whose removal changes the geometric mean by the largest factor, and the mean without
# that model.
#
# *Hints.* A factor of 1/2 is as large a change as a factor of 2: compare `abs(log(...))`.
#
# <details><summary>Predict: one model is four times faster, another five times slower. Which one moves the mean more?</summary>
#
# The slow one, if the speedups of the others are near one. A factor of five is larger than a factor
# of four.
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
# * `benchmarks/dynamo/` in the PyTorch repository runs the three suites of the paper every night,
#   with a dashboard. It also checks results before it counts a speedup.
# * `torch/_dynamo/testing.py` has counters of graphs and operations, which PyTorch's tests compare.
# * Section 6 of the paper has the tables that this chapter measures again.
#
# **See it in the real `torch.compile`.** `torch._dynamo.explain(model)(x)` counts graphs and breaks
# of your own model. `minidynamo.explain(model)(x)` does the same for ours.
#
# ## Recap
#
# * A speedup counts only with a right result. Count what failed, with its cause.
# * Compare two compilers over the same models, by geometric means.
# * Any prefix of a fair order is a fair sample, so a measurement may stop at any time.
# * A capture can be right for one call and silently wrong for the next. Test it with other inputs,
#   and in the other mode.
#
# Next: many GPUs. (`python -m benchmarks --suite paper --only NAME` measures one model of the
# list.)
