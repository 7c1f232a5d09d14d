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
# The PyTorch 2 paper ends with tables: so much faster, so many models captured, so little overhead.
# They are what most people know of `torch.compile`. You have read a compiler of the same design. So
# ask the same questions of it, and of the original beside it.
#
# **What you will learn:** what stands behind a geometric mean of speedups; how a benchmark of many
# models is organised; why two honest tables differ; which ways of capturing a graph are silently
# wrong.
#
# **Files of this chapter:** none; the tables are made in `benchmarks/paper/`, beside the
# core.

# %%
import statistics

import torch

import minidynamo
from benchmarks.paper import measure, mechanisms, report
from benchmarks.paper.models import MODELS, fair_order
from minidynamo.explain import Table, excerpt

torch.set_num_threads(1)
Table(["the paper's figure", ""],
      [(f"{kind}: speedup over eager, A100", value) for kind, value in report.HEADLINE.items()]
      + [(f"captured of {name}, %", value) for name, value in report.CAPTURED.items()],
      "what the paper reports, in section 6")

# %% [markdown]
# Two means and three percentages: that is what is remembered.
#
# ## The naive table
#
# Take models, time eager, time the compiled call, average the ratios. Much is wrong with it. A
# compiler that computes nonsense is fast. A model that fails is left out, so a compiler that fails
# at hard ones looks better. An arithmetic mean depends on which side is called slow. And whoever
# chooses the models chooses the result.
#
# Here each result is judged before it is timed: against float64 where the model runs in it, else
# against eager's own result. Only what is right has a speedup, and what failed is counted and
# listed. Two compilers are compared over the models that are right with both.

# %%
excerpt(measure.Judge)

# %% [markdown]
# The first lines ask what eager itself does. Are its results random? Do they repeat? How far are they from
# float64 (`exact`)? `problem` then asks whether a compiler's error is allowed: it may be a little larger
# than eager's, and no more.
#
# The order is drawn once. Every beginning of it holds the three groups in their shares. So one may
# stop at any time, and what was measured is still a fair sample:

# %%
print(len(MODELS), "models; the first of them:")
for name in fair_order()[:6]:
    print(f"    {MODELS[name]:13} {name}")

# %% [markdown]
# In the first column stands the group.
#
# ## Five models, here and now
#
# They run on one thread of this machine, and are small enough for a notebook. Each is run by eager,
# and by ours. Most of their time goes into the library's products and convolutions, which a compiler
# calls as eager does. It can win what lies between them.

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
# A figure whose quartiles lie on both sides of one says nothing.
#
# ## Speedups on a GPU
#
# These tables were recorded, not run here. Above each stand the machine, the versions, the date and the
# command. The tables have those models of the sample that were finished before the sitting ended.
# Training takes longer to compile, so there are fewer of them.

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
# A row is one group of models in one of four settings: inference or training, in float32 or in 16 bits.
# `torch` stands for `torch.compile`. First ask how many models there are, and how many of them are
# right: a mean over few says little. Now the means, over the models that both get right:

# %%
recorded_table("h100_paper", columns(report.speedups, ours=5, torch=6, paper=10),
               "eager's time / the compiler's: geometric means", again=True)

# %% [markdown]
# The last column is the paper's figure, measured on an A100; it has one for all models together. What a
# speedup costs is the first call:

# %%
recorded_table("h100_paper", columns(report.speedups, ours=8, torch=9),
               "seconds of the first call: means", again=True)

# %% [markdown]
# It is paid once. The speedups again, as pictures: above are the models in the order of
# their speedups; below, how many models have which speedup:

# %% alt="For each column of the paper: the speedups of all models, sorted, ours and torch.compile's, with the paper's mean, and a histogram of them"
run = report.recorded("h100_paper")
if run:
    report.draw(run);

# %% [markdown]
# **Why inference differs from the paper's.** The dotted line is the paper's mean. This is another GPU:
# the faster the products, the larger is the share of everything around them, which fusion removes. In
# float32 products are slow, so the mean is below the paper's. In bfloat16 they are fast, so it is above.
# It is another eager mode, too. Its attention is one library kernel by now, where the paper's models ran
# several. And these are other models, in small batches. Small batches are short of work for a GPU, so
# the time of launches counts for more.
#
# **Why training differs.** In both tables backward is mostly products and convolutions. In float32
# they take nearly all the time, and a compiler calls the library for them. With autocast, eager runs
# the casts around them one by one. A compiler fuses the casts, so there is more to win.
#
# **Why the groups differ.** Language models have long chains of small operations between products.
# Image models are convolutions first. A mean over another mixture is another mean. That alone explains
# why nobody's single figure is yours.
#
# ## What is not in the table

# %%
recorded_table("h100_paper", report.unfinished, "rows without a right result, and why")

# %% [markdown]
# A limit of time is part of the method: a model that one compiler does not finish within it counts
# against that compiler. It says nothing about the other one.
#
# ## The price of capture
#
# Capture with a backend that runs the graph as it is. What differs from eager then is the frame
# hook, the guards, and Python that is no longer run:

# %%
over = {"ours": 2, "torch": 3, "worst ours": 4, "worst torch": 5}
recorded_table("h100_paper", columns(report.overheads, names=1, **over),
               "time over eager's; below one the graph is faster")

# %% [markdown]
# The mean over all is below one: on average, capturing alone makes a model a little faster. On a CPU, where a tiny model is
# nothing but Python, one can count it in microseconds. A negative figure is time that was saved:

# %%
recorded_table("cpu_paper_capture", report.call_overheads, "tiny models on a CPU, one thread")

# %% [markdown]
# The paper calls its overhead small, and so it is here: a guard costs less than the modules' own
# Python, which the graph skips. It can be seen where a model has graph breaks, or does so little
# that a call's guards are a part of it.
#
# ## Ways to capture
#
# Notebook 01 showed on small programs how each older mechanism fails. Here they meet the models of
# the list. The model is captured in eval mode; then come other values in a larger batch, then
# `train()`:

# %%
excerpt(mechanisms.after_train)

# %% [markdown]
# `model` is what was captured, `plain` a copy that nobody touched, and `graph` the result. Three answers are
# possible: it works, it cannot, it is wrong.

# %%
if run := report.recorded("cpu_paper_capture"):
    print(report.whole_graphs(run))
recorded_table("cpu_paper_capture", report.captures, "for how many models each mechanism works")

# %% [markdown]
# Look at the third column first. A mechanism that *cannot* says so. One that is wrong says nothing. The
# next table has the causes:

# %%
recorded_table("cpu_paper_capture", report.capture_causes, "the most frequent causes")

# %% [markdown]
# **Why this differs from the paper's share.** The paper counts models of its three suites that run
# at all under capture. Here a mechanism must also follow the model into training mode, and be right
# there. A trace keeps the mode in which it was made: it is wrong without a word wherever there is
# dropout. The lazy tensors are this course's miniature, which knows no shapes before it computes.
#
# ## Ablation
#
# What notebook 15 did for one kernel, over models on the GPU: each optimisation off alone, all of
# them off, and a CUDA graph on top.

# %%
recorded_table("h100_paper_ablation", report.ablations, "geometric means over the models")

# %% [markdown]
# The first row is eager, and the row in parentheses adds something. Every other row takes something
# away: above one the model is slower without it, below one it is faster. The last column counts
# kernels.
#
# **Why this differs from the paper's.** Its largest effect is fusion together with inlining. The same
# can be seen here wherever a model has chains to fuse. Alone, each of the two stands in for the
# other: the time without both is more than the product of the two. A CUDA graph takes launches away.
# It wins where the GPU waits for the next launch (the column of the least), and nothing where the GPU
# is the slower side.
#
# ## Exercises
#
# **17.1** (warm-up) *Side by side.* Write `side_by_side(rows)`: the geometric means of "eager / ours" and of
# "eager / torch.compile" over the rows that have both. A row is a dictionary with these keys. Each has
# a list, of which the median is the first item. A key may be missing.
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
# **17.2** (core) *Silently wrong.* Write `forgets_the_mode(capture, model, x)`. The model is
# in eval mode, and `capture(model, x)` makes a callable of it. Capture first, then call
# `model.train()`. Return True if the callable does not follow the model into training mode. Random
# numbers must not decide: draw from the same seed.
#
# *Hints.* `torch.manual_seed` before each of the two calls. Call `train()` on the captured object,
# too, if it has it.

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
# **17.3** (stretch) *What was counted.* Write `shares(rows)`: of all models, in percent, `(captured whole, right)`. A row
# has `"graphs"` and `"breaks"`, and `"right"`, unless it has `"failed"`. A model is captured whole if it
# has one graph, no break, and the result is right.
#
# *Hints.* What failed counts below the line, and never above it.
#
# <details><summary>Predict: one compiler leaves out the models that it cannot do. What becomes of its percentage?</summary>
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
# **17.4** (stretch) *The model that moves the mean.* With few models a single one can carry the figure. Write
# `most_telling(speedups)`: `speedups` maps a model to its speedup. Return the name of the model whose
# removal changes the geometric mean most, as a factor, and the mean without it.
#
# *Hints.* Half as much is as large a change as twice as much: compare `abs(log(...))`.
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
# * `benchmarks/dynamo/` in the PyTorch repository: the three suites of the paper, run every night,
#   with a dashboard. Accuracy comes first there, too.
# * `torch/_dynamo/testing.py` has counters of graphs and operations, which its tests compare.
# * Paper, section 6: all the tables that this chapter measures again.
#
# **See it in the real `torch.compile`.** `torch._dynamo.explain(model)(x)` counts graphs and breaks of a model of your own. Ours is
# `minidynamo.explain(model)(x)`.
#
# ## Recap
#
# * A speedup counts only with a right result; what failed is counted, with its cause.
# * Two compilers are compared over the same models, by geometric means.
# * An order that is fair at every beginning lets one stop when time is over.
# * A capture that works today may be silently wrong tomorrow: flip the mode, change the inputs.
#
# Next: many GPUs. (For models of your own: `python -m benchmarks --suite paper` takes any of the
# list.)
