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
# # 18 · Many GPUs
#
# Several processes train one model. Each process has a GPU and data of its own. After every
# backward pass the processes average their gradients, and sending gradients takes time. Good
# libraries hide that time: they send the last layers' gradients while the GPU still computes the
# first layers' gradients. If a compiler makes one graph of the backward pass, all gradients become
# ready at once, and sending waits. The chapter measures this delay, and then cuts the graph to
# remove it.
#
# **What you will learn:** what `torchrun`, DDP and FSDP2 do; why one backward graph delays
# communication; how to cut a graph so that sending and computing overlap; when the cut makes a step
# faster.
#
# **Files of this chapter:** `miniinductor/autograd/runtime.py`, `miniinductor/pieces.py`.

# %%
import statistics

import torch

import minidynamo
import miniinductor
from benchmarks import plots, two_ranks
from minidynamo.explain import Table, excerpt

# %% [markdown]
# ## Two processes
#
# `torchrun` starts the same program several times. Environment variables tell each process its
# place: `RANK` is its number, and `WORLD_SIZE` is the number of processes. The processes find each
# other through a **backend of communication**: NCCL between GPUs, gloo between CPUs. Two processes
# on one CPU are enough here. This function starts them:

# %%
excerpt(two_ranks.run)

# %% [markdown]
# `--nproc-per-node=2` asks for two processes, which print rows as JSON. The function returns these
# rows. The next cell calls it, and takes half a minute or more. All figures that this notebook
# measures come from this run:
# <!-- shows: has("--nproc-per-node=2") and has("json.loads") -->

# %%
rows = two_ranks.run()
parts = {part: [row for row in rows if row["part"] == part] for part in ("naive", "FSDP2", "DDP")}
print("parts:", ", ".join(parts))

# %% [markdown]
# ## The naive version
#
# Both processes begin with equal weights, and each process trains on different rows. What happens
# if each process uses only its own gradients?
#
# <details><summary>Predict: after three steps, are the weights of both processes still equal?</summary>
#
# No. Each process has taken its own steps. They now train two models, and each model sees half of
# the data. No process raises an error, and each loss falls.
#
# </details>

# %%
from parts import part

part(two_ranks.naive, ("for _ in range(3)", "optimizer.step()"))

# %% [markdown]
# `dist.all_reduce` adds up the gradients of all ranks, and gives each rank the sum. Divided by the
# number of ranks, the sum is the average. (A *rank* is a process.) The next cell compares the
# ranks' weights with and without the average:
# <!-- shows: has("dist.all_reduce(parameter.grad)") -->

# %%
for row in parts["naive"]:
    print(f"averaged: {row['averaged']!s:6} largest difference between the ranks' weights: {row['apart']:.1e}")
assert parts["naive"][0]["apart"] > 0 == parts["naive"][1]["apart"]

# %% [markdown]
# Without the average, the ranks' weights drift apart, and no error is raised. With the average, they
# stay equal to the last bit.
# <!-- shows: n("averaged: False") > 0 and n("averaged: True") == 0 -->
#
# The loop with the average is right, but slow: it sends nothing before the whole backward pass is
# over.
#
# ## Buckets
#
# `DistributedDataParallel` (**DDP**) does better. It puts parameters into **buckets** of about 25 MiB, the
# last layers first. A hook at each parameter fires when its gradient is ready. After the last hook of a
# bucket, DDP sends the bucket, and the backward pass goes on meanwhile.
#
# Between two processes of one machine the exchange is too fast to see. So the program simulates a
# slow wire. It gives DDP a communication hook, which hands each bucket to a second thread. That
# thread first waits as long as a slow wire would need, and then averages the bucket:

# %%
excerpt(two_ranks.Wire.carry)

# %% [markdown]
# `sleep` is the slow wire, and `all_reduce` is the real exchange. How slow is the wire, and how large is
# the model?
# <!-- shows: has("time.sleep(") and has("dist.all_reduce(buffer)") -->

# %%
print(f"{two_ranks.BUCKET / 1e6:.0f} MB a bucket, {two_ranks.WIRE / 1e6:.0f} MB a second")
print(f"{two_ranks.BLOCKS} blocks, each of {two_ranks.WIDTH} x {two_ranks.INNER} x 2 weights")

# %% [markdown]
# At this speed sending a bucket takes long enough to be visible in the figure.
# <!-- shows: has("200 MB a second") -->
#
# <details><summary>Predict: the module is compiled, then wrapped in DDP. When is the first bucket sent?</summary>
#
# After the whole backward pass. The compiled backward graph is one node of autograd's graph. It
# returns all gradients when it ends, so no hook fires earlier.
#
# </details>
#
# The next figure shows three versions of one training step. Time runs from left to right. A solid
# box is a computation, and a hatched box is a bucket on its way. The program measured the beginning
# and the end of each box. The dotted line is the end of the step:

# %% tags=["volatile"] alt="For each way to wrap the model a time line: solid boxes are computing, hatched ones are buckets on the wire, a dotted line ends the step"
plots.timelines(parts["DDP"]);

# %% [markdown]
# * **eager**: the first bucket leaves after the first block's backward. Each other bucket follows when its
#   block is done and the wire is free.
# * **one graph**: the computation is one box. The wire is idle until the box ends, and then carries
#   all buckets.
# * **in pieces**: the graph is cut. The computation is several boxes again, and the first bucket
#   leaves after the first box.
# <!-- general -->
#
# The next table has the same times as numbers. Time on the wire after the last computation is
# **exposed**: the step waits for it. Time on the wire before that is hidden.

# %% tags=["volatile"]
def spans(row, lane):
    return [span for span in row["spans"] if span[0] == lane]

def first_sent(row):
    return min(begin for _, _, begin, _ in spans(row, "wire"))

def last_computed(row):
    return max(end for *_, end in spans(row, "compute"))

Table(["", "first bucket leaves, ms", "computing ends, ms", "step ends, ms", "exposed, ms"],
      [(row["name"], *(f"{1e3 * t:.0f}" for t in (first_sent(row), last_computed(row), row["seconds"],
                                                 row["seconds"] - last_computed(row))))
       for row in parts["DDP"]], "the same as numbers")

# %% [markdown]
# With one graph, the first bucket leaves when the computation ends, or later. In eager mode, and
# with a graph in pieces, it leaves long before.
# <!-- shows: n("one graph") >= n("one graph", 1) and n("eager") < n("eager", 1) / 2 and n("in pieces") < n("in pieces", 1) / 2 -->
#
# The next cell checks the order of events and the gradients:

# %%
for row in parts["DDP"]:
    early = first_sent(row) < last_computed(row)
    print(f"{row['name']:10} boxes of computing: {len(spans(row, 'compute'))}   sends while it computes: {early}"
          f"   gradients are eager's: {row['off'] < 1e-4}")
assert [first_sent(row) < last_computed(row) for row in parts["DDP"]] == [True, False, True]

# %% [markdown]
# The gradients are right in all three versions. Only the order of events, and so the time, differs.
# <!-- shows: count("gradients are eager's: True") == 3 and count("computes: True") == 2 and count("computes: False") == 1 -->
#
# ## Why one graph delays
#
# A compiled function with gradients is one `torch.autograd.Function` (chapter 08). Its backward is
# one call: saved values and tangents go in, and all gradients come out. The class `Backward` makes
# that call. It compiles the backward graph at the first call:

# %%
from miniinductor.autograd.runtime import Backward

part(Backward.called, ("if self.run is None", "return self.run"))

# %% [markdown]
# `run(tensors)` calls the compiled backward graph. Autograd receives all gradients when that call
# returns. One large graph lets the compiler fuse more. Many small graphs let sending overlap with
# computing.
# <!-- shows: has("return self.run(tensors)") -->
#
# ## Cutting the graph again
#
# `miniinductor.config.gradient_buckets` is a number of bytes. If it is not 0, the compiler cuts the
# captured graph into pieces, each with about this many bytes of parameters. Every piece has its own
# forward and backward graph. Autograd runs the backward graph of the last piece first. The hooks of
# that piece fire before autograd starts the next backward graph.
#
# The function `buckets` walks over the graph once. It keeps a list of pieces (`runs`), the parameters that
# an operation reads for the first time (`new`), and the bytes of the current piece (`count`):

# %%
from miniinductor import pieces

part(pieces.buckets, ("if new and count", "count = 0"))

# %% [markdown]
# A new piece begins at an operation that reads a new parameter, if the current piece has enough
# bytes. It must not begin at an operation that takes an item of a tuple (`reads_tuple`), because a
# tuple cannot pass between pieces. A parameter that an earlier operation has read adds no bytes,
# because its gradient is sent only once.
# <!-- shows: has("if new and count >= limit and not reads_tuple") -->
#
# `in_pieces` in `miniinductor/pieces.py` then compiles each piece, and makes one function of all
# pieces. The next cell captures a real model, GPT-2 with two layers, without cutting it:

# %%
from benchmarks.models import gpt2

model, inputs = gpt2(layers=2, sequence=16)
captured = []

def keep(gm, example_inputs):
    captured.append(gm)
    return gm.forward

minidynamo.compile(model.train(), backend=keep)(**inputs)
print(len(captured), "graph")

# %% [markdown]
# The captured graph has all parameters of the model in it. The next table cuts it with four limits:
# <!-- shows: has("1 graph") -->

# %%
def megabytes(gm, run):
    names = {n.target for node in run for n in node.all_input_nodes if n.op == "get_attr"}
    parameters = {id(p): p for p in map(gm.get_parameter, names)}
    return sum(p.numel() * p.element_size() for p in parameters.values()) / 2**20

def cut_at(limit):
    runs = [step.members for step in pieces.buckets(captured[0], limit << 20)]
    return (f"{limit} MiB", len(runs), ", ".join(str(len(run)) for run in runs),
            ", ".join(f"{megabytes(captured[0], run):.0f}" for run in runs))

Table(
    ["limit", "pieces", "operations in each", "MiB of parameters in each"],
    [cut_at(n) for n in (1, 8, 25, 1000)],
)

# %% [markdown]
# The first piece is large whatever the limit: an embedding is one parameter, and a parameter is not
# cut. The gradient of the embedding is also the last to be ready. The output layer reads the same
# weights, so the table lists them again in the last piece. Their gradient is sent only once.
# <!-- shows: count("147") == 6 and n("1000 MiB") == 1 -->
#
# <details><summary>Predict: what do smaller pieces cost?</summary>
#
# No kernel spans two pieces, so operations on both sides of a border are not fused. Values that
# cross a border are saved for backward. And each piece adds a call of a forward graph and of a
# backward graph.
#
# </details>
#
# ## FSDP2
#
# DDP holds the whole model on every rank. `fully_shard` (**FSDP2**) holds a part on each rank.
# Before a block computes, FSDP2 gathers the block's parameters from all ranks, and frees them
# afterwards. In backward it gathers them again. Then it averages the gradients, and each rank keeps
# its part. Hooks before and after each block do this.
#
# So a compiled function may run between the hooks of one block, or contain the hooks of all blocks.
# The program tries both:

# %%
part(two_ranks.sharded, ("for block in model", "fully_shard(block"))

# %% [markdown]
# `fully_shard` adds the hooks to the block, and only `block.forward` is compiled. So the hooks run
# outside the compiled function. The next table compares both ways:
# <!-- general -->

# %%
Table(["what is compiled", "graphs", "breaks", "gradients are eager's", "share of the weights on this rank"],
      [(row["name"], row["graphs"], row["breaks"], row["off"] < 1e-4, f"{row['here'] / row['whole']:.2f}")
       for row in parts["FSDP2"]])

# %% [markdown]
# **Each block:** there is one graph for each block, and no break. The hooks run as plain Python
# between the graphs. **The whole:** the hooks are in the middle of the captured code. They gather
# parameters, wait, and swap parameters. A graph cannot hold these operations, so the capture breaks
# around them. The gradients are right both ways. Prefer compiling each block: it needs no break.
# <!-- shows: n("each block") == 6 and n("each block", 1) == 0 and n("the whole", 1) >= 6 and count("True") == 3 -->
#
# ## Recorded with NCCL
#
# A fast wire joins the GPUs of one host. The next table was recorded with a deep GPT-2, by the
# command `python -m benchmarks --suite distributed`. *Inside* means that the module is compiled,
# and then wrapped. *Around* means that the wrapped module is compiled. A row is right if its loss
# and all gradients are eager's, and the gradients are equal on all ranks. `TP` is tensor parallel:
# each rank holds some columns or rows of each weight, so its gradients need not be equal to those
# of other ranks:

# %%
run = plots.recorded("h100_x2_distributed")
timed = [row for row in run["rows"] if "ms" in row]
print(plots.where_recorded(run), f"({run['processes']} processes)")
def shown(row, column):
    value = row.get(column, "-")
    return value if value == "-" else f"{value[0] if isinstance(value, list) else value:.1f}"

Table(["", "", "ranks", "ms a step", "eager in the same rounds", "exposed", "first step, s", "peak, GiB", "right"],
      [(row["wrapping"], row["name"], row["ranks"], shown(row, "ms"), shown(row, "eager_ms"),
        shown(row, "exposed_ms"), f"{row['first_s']:.0f}", f"{row['peak'] / 2**30:.1f}", "yes" if row["right"] else "NO")
       for row in timed], "recorded; medians")

# %% [markdown]
# Every row is right. With DDP on two ranks, ours inside takes about half of eager's time. In pieces
# the step takes longer than with one graph.
# <!-- shows: not has("NO") and n("DDP    ours inside", 1) < 0.6 * n("DDP    ours inside", 2) and n("DDP    ours inside, in pieces", 1) > n("DDP    ours inside", 1) -->
#
# Tensor parallel weights are DTensors. `torch.compile` traces the operations of DTensors, and is
# much faster than ours. Ours breaks the graph around them, and is about as fast as eager.
# <!-- shows: 0.9 < n("TP     ours around", 1) / n("TP     ours around", 2) < 1.1 and n("TP     torch.compile around", 1) < 0.5 * n("TP     torch.compile around", 2) -->
#
# The next figure shows DDP and FSDP2. Each step was also timed without communication. A bar is a
# step, and its hatched part is the difference, the exposed time:

# %% alt="Bars from zero: milliseconds a step without communication, and hatched what communication adds"
plots.communication_bars(run["rows"]);

# %% [markdown]
# Does cutting the graph pay on this wire? The next cell answers, and prints the **weak scaling** of
# each version. Weak scaling divides the step time of one process by the step time of all processes,
# with the same batch on each. At 1, communication costs nothing. (One value is above 1: the two
# step times come from different runs.)
# <!-- general -->

# %%
def median_of(wrapping, name, column="ms"):
    found = [row[column] for row in timed if (row["wrapping"], row["name"]) == (wrapping, name) and row["ranks"] > 1]
    return (found[0] if column == "exposed_ms" else found[0][0]) if found else None

whole, pieces = (median_of("DDP", name) for name in ("ours inside", "ours inside, in pieces"))
if whole and pieces:
    better = "in pieces" if pieces < whole else "as one graph"
    print(
        f"DDP on this wire is faster {better}: {whole:.1f} ms as one graph, {pieces:.1f} ms in pieces"
    )
for row in run["rows"]:
    if "weak scaling" in row:
        print(f"{row['wrapping']:6} {row['name']:26} weak scaling {row['from']} -> {row['to']}: {row['weak scaling']:.2f}")
    elif "failed" in row:
        print(f"{row.get('wrapping', ''):6} {row['name']:26} failed: {row['failed'][:80]}")

# %% [markdown]
# On this wire one graph is faster than pieces. Little time is exposed on a fast wire, so pieces can
# hide little, and each piece has its own cost. On a slow wire, or between hosts, pieces can be
# faster, as in the timeline above. Measure it on your machines: the option is one line.
# <!-- shows: has("faster as one graph") -->
#
# FSDP2 sends more than DDP: weights twice and gradients once in every step. It saves memory, not
# time.
#
# ## Four GPUs
#
# The same suite has also run on four H200s, with the same model and the same batch on each rank.
# A bar of the next figure is a step again, and its hatched part is the exposed time:
# <!-- general -->

# %% alt="Bars from zero for four GPUs: milliseconds a step without communication, and hatched what communication adds"
four = plots.recorded("h200_x4_distributed")
print(plots.where_recorded(four), f"({four['processes']} processes)")
of_four = sorted((row for row in four["rows"] if row.get("ranks") == 4), key=lambda row: row["wrapping"])
plots.communication_bars(of_four);

# %% [markdown]
# The next table has the same steps as numbers. Weak scaling goes from one process to four. *Losses
# apart* compares the losses of five steps of SGD with eager's, and shows the largest relative
# difference. Eager in bfloat16 rounds its gradients, so this run compares all gradients with
# eager's in float32. A row is right if it is at most twice as far from them as eager in bfloat16:
# <!-- general -->

# %%
alone = {(row["wrapping"], row["name"]): row for row in four["rows"] if row.get("ranks") == 1}
scaled = {(row["wrapping"], row["name"]): f"{row['weak scaling']:.2f}"
          for row in four["rows"] if row.get("to") == 4}

def apart(row):
    pairs = zip(row.get("losses", ()), row.get("eager_losses", ()))
    return max((abs(a - b) / b for a, b in pairs), default=None)

def line(row):
    single, off = alone.get((row["wrapping"], row["name"]), {}), apart(row)
    return (row["wrapping"], row["name"], shown(row, "ms"), shown(row, "eager_ms"),
            shown(row, "exposed_ms"), shown(single, "exposed_ms"), f"{row['peak'] / 2**30:.1f}",
            scaled.get((row["wrapping"], row["name"]), "-"), "-" if off is None else f"{off:.0e}",
            "yes" if row["right"] else "NO")

Table(["", "", "ms a step", "eager in the same rounds", "exposed", "exposed, one process", "peak, GiB",
       "weak scaling", "losses apart", "right"],
      [line(row) for row in of_four], "recorded; medians")

# %% [markdown]
# Every row is right. Where losses were recorded, they are eager's within a thousandth.
# <!-- shows: not has("NO") and count("yes") == 10 and max(n("DDP    ours inside", 6), n("DDP    torch.compile inside", 6), n("DDP    ours inside, in pieces", 6), n("FSDP2  ours inside", 6), n("FSDP2  torch.compile inside", 6), n("DDP    torch.compile around", 6), n("FSDP2  ours around", 6)) < 1e-3 -->
#
# With DDP, ours inside takes 43.2 ms a step, and `torch.compile` takes 83.7 ms. Eager takes 86.6 ms
# in the same rounds. Ours exposes half as much time as `torch.compile`. Its peak is 3.0 GiB, where
# `torch.compile` needs 5.0 GiB and eager needs 9.5 GiB. Pieces make the step longer here, too. Around
# DDP ours takes 41.2 ms, and `torch.compile` takes 70.8 ms.
# <!-- shows: n("DDP    ours inside") == 43.2 and n("DDP    torch.compile inside") == 83.7 and n("DDP    ours inside", 1) == 86.6 and n("DDP    ours inside", 2) < 0.55 * n("DDP    torch.compile inside", 2) and n("DDP    ours inside", 4) == 3.0 and n("DDP    torch.compile inside", 4) == 5.0 and n("DDP    eager", 3) == 9.5 and n("DDP    ours inside, in pieces") > n("DDP    ours inside") and n("DDP    ours around") == 41.2 and n("DDP    torch.compile around") == 70.8 -->
#
# With FSDP2 the three versions are close: 163.0 ms for ours inside, 173.7 ms for `torch.compile`, and
# 169.1 ms for eager. Each exposes more than 100 ms. One process sends nothing to others, and yet
# exposes 55.8 to 56.6 ms. So more than half of the exposed time is not the wire. It is the work of
# FSDP2 itself: hooks, copies and calls around each block. Compiling the blocks leaves that work as it
# is. Ours around takes 141.2 ms, where eager takes 157.8 ms in the same rounds.
# <!-- shows: n("FSDP2  ours inside") == 163.0 and n("FSDP2  torch.compile inside") == 173.7 and n("FSDP2  ours inside", 1) == 169.1 and min(n("FSDP2  eager", 1), n("FSDP2  ours inside", 2), n("FSDP2  torch.compile inside", 2)) > 100 and all(55.8 <= one <= 56.6 and one > all_four / 2 for one, all_four in ((n("FSDP2  eager", 2), n("FSDP2  eager", 1)), (n("FSDP2  ours inside", 3), n("FSDP2  ours inside", 2)), (n("FSDP2  torch.compile inside", 3), n("FSDP2  torch.compile inside", 2)))) and n("FSDP2  ours around") == 141.2 and n("FSDP2  ours around", 1) == 157.8 -->
#
# The weak scaling of DDP is 0.89 for eager. Inside it is 0.87 for ours and 0.79 for `torch.compile`,
# around it is 0.83 and 0.81. That of FSDP2 is 0.72 for eager, 0.71 for ours and for `torch.compile`
# inside, and 0.73 for ours around. Small differences mean little: eager's step with DDP took 76.8 ms
# in one group of rounds and 86.6 ms in another.
# <!-- shows: n("DDP    ours inside", 5) == 0.87 and n("DDP    eager", 4) == 0.89 and n("DDP    torch.compile inside", 5) == 0.79 and n("DDP    ours around", 5) == 0.83 and n("DDP    torch.compile around", 5) == 0.81 and n("FSDP2  eager", 4) == 0.72 and n("FSDP2  ours inside", 5) == 0.71 == n("FSDP2  torch.compile inside", 5) and n("FSDP2  ours around", 5) == 0.73 and n("DDP    eager") == 76.8 and n("DDP    ours inside", 1) == 86.6 -->
#
# ## Exercises
#
# **18.1** (warm-up) *An average over unequal batches.* The ranks' last batches may differ in
# length. Each rank has the gradient of the mean over its own rows; `counts` has the numbers of
# rows. Write `averaged(gradients, counts)`: the gradient of the mean over all rows. If a rank has
# no rows, its mean is NaN, and its gradient may be NaN, too.
#
# *Hints.* What would one process with all rows compute? A rank with twice the rows counts twice.
# Zero times NaN is NaN, so leave out a rank without rows.
#
# <details><summary>Predict: does DDP do this for you?</summary>
#
# No. DDP divides by the number of ranks. With batches of different lengths this is the gradient of
# another loss.
#
# </details>

# %% tags=["support"]
from exercises import check

# %% tags=["exercise"]
def averaged(gradients: list, counts: list):
    """The gradient of the mean over all rows; counts: the rows of each rank."""
    ### BEGIN SOLUTION
    return sum(g * n for g, n in zip(gradients, counts, strict=True) if n) / sum(counts)
    ### END SOLUTION

# %% tags=["check"]
check("18.1", averaged)

# %% [markdown]
# **18.2** (core) *Pieces.* Write `in_pieces(operations, limit)`. `operations` is a list of pairs: a name, and a
# dictionary of the parameters that the operation reads, with their bytes. Return a list of lists of names.
# A new piece begins at an operation that reads a new parameter, if the piece before it has `limit` bytes
# or more.
#
# *Hints.* Keep a set of the parameters that you have seen. A parameter that you have seen adds no
# bytes.

# %% tags=["exercise"]
def in_pieces(operations: list, limit: int) -> list:
    """The operations' names in runs of about `limit` bytes of parameters."""
    ### BEGIN SOLUTION
    runs, seen, count = [[]], set(), 0
    for name, parameters in operations:
        new = {p: size for p, size in parameters.items() if p not in seen}
        if new and count >= limit:
            runs.append([])
            count = 0
        seen |= set(new)
        count += sum(new.values())
        runs[-1].append(name)
    return runs
    ### END SOLUTION

# %% tags=["check"]
check("18.2", in_pieces)

# %% [markdown]
# **18.3** (core) *The end of a step.* Write `finish(computing, sending)`: the time at which the
# last bucket has arrived. The pieces compute one after the other, piece `k` for `computing[k]`
# seconds. When a piece has computed, its bucket may leave, and is on the wire for `sending[k]`
# seconds. The wire carries one bucket at a time, in order.
#
# *Hints.* Keep two clocks. A bucket leaves when it is ready *and* the wire is free.

# %% tags=["exercise"]
def finish(computing: list, sending: list) -> float:
    """When the last bucket has arrived."""
    ### BEGIN SOLUTION
    ready = free = 0.0
    for seconds, travel in zip(computing, sending, strict=True):
        ready += seconds
        free = max(free, ready) + travel
    return max(ready, free)
    ### END SOLUTION

# %% tags=["check"]
check("18.3", finish)

# %% [markdown]
# **18.4** (stretch) *How many pieces?* A backward pass computes for `computing` seconds and sends for
# `sending` seconds in all. If it is cut into `n` equal pieces, each piece costs `overhead` seconds more
# of computing. Write `best(computing, sending, overhead, most)`: the number of pieces from 1 to `most`
# with the earliest end. If two numbers of pieces end at the same time, choose the smaller number.
#
# *Hints.* Use `finish` of exercise 18.3. Then ask yourself two questions. What is best on an
# infinitely fast wire? What is best if a piece costs nothing?

# %% tags=["exercise"]
def best(computing: float, sending: float, overhead: float, most: int) -> int:
    """The number of equal pieces with which the step ends first."""
    ### BEGIN SOLUTION
    def end(n):
        return round(finish([computing / n + overhead] * n, [sending / n] * n), 9)
    return min(range(1, most + 1), key=end)
    ### END SOLUTION

# %% tags=["check"]
check("18.4", best)

# %% [markdown]
# ## What real PyTorch has
#
# * `torch/_dynamo/backends/distributed.py`: `DDPOptimizer` notices that a model is inside DDP, and
#   cuts the graph into DDP's buckets, from the end of the graph.
# * `torch/distributed/fsdp/_fully_shard/_fully_shard.py`: FSDP2. Capture skips the hooks of FSDP2,
#   so they run between compiled blocks, as here.
# * `torch/_dynamo/compiled_autograd.py` captures the backward pass as it runs, hooks included.
#   `torch/_inductor/comms.py` then moves sends and waits inside one graph.
# * The paper, section 3, describes the joint graph, from which one backward graph is cut.
#
# **See it in the real `torch.compile`.** `TORCH_LOGS=ddp_graphs torchrun ...` prints where the graph is cut
# for DDP's buckets.
#
# ## Recap
#
# * Ranks average their gradients once a step. An average of means is right only for equal batches.
# * Computing can hide sending if gradients become ready one after the other.
# * One backward graph makes all gradients ready at once. Cut the graph, and the first gradients
#   leave early again.
# * With FSDP2, compile each block: the hooks stay outside.
# * Pieces make a step faster on a slow wire. On a fast wire they may cost more time than they hide.
#
# Next: compile a model of your own, on your own GPUs. This was the last chapter. `python -m
# benchmarks --suite distributed` repeats the recorded measurements on your machine.
