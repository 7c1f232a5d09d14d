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
# One model, several processes, each with a GPU and data of its own. After every backward pass the
# processes agree on a gradient. Sending it takes time, and good libraries hide that time: they send
# the last layers' gradients while the first layers' are still computed. A compiler that makes one
# graph of the backward pass takes exactly this away. This chapter measures it, and mends it.
#
# **What you will learn:** what `torchrun`, DDP and FSDP2 do; why one graph for the backward delays
# communication; how a graph is cut so that sending and computing overlap; when that is worth it.
#
# **Files of this chapter:** `miniinductor/autograd/runtime.py`, `miniinductor/pieces.py`.

# %%
import statistics

import torch

import minidynamo
import miniinductor
from benchmarks import plots, two_ranks
from minidynamo.explain import Code, Table, excerpt

# %% [markdown]
# ## Two processes
#
# `torchrun` starts the same program several times. It tells each process its place in environment
# variables: `RANK` is its number, `WORLD_SIZE` how many there are. They find each other through a
# **backend of communication**: NCCL between GPUs, gloo between CPUs. Here two processes on one CPU
# are enough. This is how the notebook starts them:

# %%
excerpt(two_ranks.run)

# %% [markdown]
# The answer is a list of rows, one for each part of this chapter. Everything live below comes from
# this one run. It takes a while:

# %%
rows = two_ranks.run()
parts = {part: [row for row in rows if row["part"] == part] for part in ("naive", "FSDP2", "DDP")}
print("parts:", ", ".join(parts))

# %% [markdown]
# `--nproc-per-node=2` asks for two processes, and each prints rows as JSON.
#
# ## The naive version
#
# Both processes begin with equal weights. Each sees other rows. What happens if each trains on its
# own gradients?
#
# <details><summary>Predict: after three steps, are the weights of the two still equal?</summary>
#
# No. Each has taken its own steps. Two models are trained now, and both see half of the data. No
# error is raised; each loss looks fine.
#
# </details>

# %%
excerpt(two_ranks.naive)

# %% [markdown]
# `dist.all_reduce` adds up what the ranks have, and gives the sum to each. Divided by their number it is the
# average. With and without it:

# %%
for row in parts["naive"]:
    print(f"averaged: {row['averaged']!s:6} largest difference between the ranks' weights: {row['apart']:.1e}")
assert parts["naive"][0]["apart"] > 0 == parts["naive"][1]["apart"]

# %% [markdown]
# Without the average the ranks drift apart in silence. With it they stay equal to the last bit. The
# loop is right, and slow: nothing is sent before the whole backward pass is over.
#
# ## Buckets
#
# `DistributedDataParallel` (**DDP**) does better. It puts parameters into **buckets** of about
# 25 MiB, the last layers first. A hook at each parameter fires when its gradient is there. When the
# last one of a bucket has fired, the bucket is sent, and backward goes on meanwhile.
#
# To see this on one machine the wire must be slow. The program gives DDP a communication hook: a
# bucket waits as long as a slow wire would need, in a thread of its own, and is averaged then:

# %%
excerpt(two_ranks.Wire.carry)

# %% [markdown]
# `sleep` is the slow wire, and `all_reduce` the real exchange. How slow, and for which model?

# %%
print(f"{two_ranks.BUCKET / 1e6:.0f} MB a bucket, {two_ranks.WIRE / 1e6:.0f} MB a second")
print(f"{two_ranks.BLOCKS} blocks, each of {two_ranks.WIDTH} x {two_ranks.INNER} x 2 weights")

# %% [markdown]
# <details><summary>Predict: the module is compiled, then wrapped in DDP. When is the first bucket sent?</summary>
#
# After the whole backward pass. The compiled backward half is one node of autograd's graph. It gives
# all its gradients when it ends, so all hooks fire then.
#
# </details>

# %% tags=["volatile"] alt="For each way to wrap the model a time line: solid boxes are computing, hatched ones are buckets on the wire, a dotted line ends the step"
plots.timelines(parts["DDP"]);

# %% [markdown]
# Read each picture from left to right. A solid box is computing, a hatched one a bucket on its way.
# The dotted line is the end of the step. The boxes are measured: each is a pair of times that the
# program took.
#
# * **eager**: the first bucket leaves after the first block's backward. Each of the others follows when
#   its block is done and the wire is free.
# * **one graph**: computing is one box. The wire idles under it, then everything is sent at once.
# * **in pieces**: several boxes again, and the first bucket leaves after the first of them.

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
# The first two columns tell the difference. As one graph, the first bucket leaves when computing ends, or
# later.
#
# What is sent after the last computation is **exposed**: the step waits for it. What is sent earlier
# is hidden.

# %%
for row in parts["DDP"]:
    early = first_sent(row) < last_computed(row)
    print(f"{row['name']:10} boxes of computing: {len(spans(row, 'compute'))}   sends while it computes: {early}"
          f"   gradients are eager's: {row['off'] < 1e-4}")
assert [first_sent(row) < last_computed(row) for row in parts["DDP"]] == [True, False, True]

# %% [markdown]
# The numbers are right in all three. Only the order of events differs.
#
# ## Why one graph delays
#
# A compiled function with gradients is one `torch.autograd.Function` (chapter 08). Its backward is
# one call: saved values and tangents go in, all gradients come out.

# %%
excerpt(miniinductor.autograd.runtime.Backward.__call__)

# %% [markdown]
# `run(tensors)` is the compiled half. Autograd cannot look inside, so it learns of all gradients at
# once. Fusion wants large graphs; overlap wants many small ones. Something has to give.
#
# ## Cutting the graph again
#
# `miniinductor.config.gradient_buckets` is a number of bytes. The captured graph is cut into pieces
# that hold about so many bytes of parameters each. Every piece has a forward and a backward half of
# its own. Autograd runs the last piece's backward first, and its hooks fire before the next begins.

# %%
from miniinductor import pieces

excerpt(pieces.buckets)

# %% [markdown]
# The loop walks over the graph once. It starts a new piece at an operation that reads a new
# parameter, if the piece has enough. A parameter that was seen before costs nothing: it is sent
# once. The pieces become one function, which refuses where anything but tensors would cross:

# %%
excerpt(pieces.in_pieces)

# %% [markdown]
# A tuple must stay with its items, for instance. Now a real model: GPT-2 with two layers, captured
# as it is, and cut at several sizes.

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
# One graph came out, with all parameters of the model in it.

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
# The first piece is large whatever the limit: one embedding is one parameter, and it is not cut. Its
# gradient is also the last to be ready. The output layer reads the same weights again, so its piece
# lists them, too, though they are sent once.
#
# <details><summary>Predict: what do smaller pieces cost?</summary>
#
# No kernel spans two pieces, so chains that cross a border are not fused. What crosses is saved for
# backward. And each piece is one more call of a forward and a backward half.
#
# </details>
#
# ## FSDP2
#
# DDP holds the whole model on every rank. `fully_shard` (**FSDP2**) holds a part on each. Before a
# block computes, its parameters are gathered; afterwards they are let go. In backward once more, and
# the gradients are sent back in parts. Hooks before and after each block do this.
#
# So the question is where the compiled call stands: inside of the hooks, or around them.

# %%
excerpt(two_ranks.sharded)

# %% [markdown]
# `fully_shard` puts the hooks on. A block whose `forward` is compiled has its hooks outside. What comes out:

# %%
Table(["what is compiled", "graphs", "breaks", "gradients are eager's", "share of the weights on this rank"],
      [(row["name"], row["graphs"], row["breaks"], row["off"] < 1e-4, f"{row['here'] / row['whole']:.2f}")
       for row in parts["FSDP2"]])

# %% [markdown]
# **Each block** gives one graph a block and no break: the hooks run outside, in plain Python, as they
# were written. **The whole** has the hooks in the middle of what is captured. They gather, wait and
# swap parameters, which no graph can hold, so the capture breaks around them. The gradients are
# right both ways. Compile each block.
#
# ## Recorded with NCCL
#
# GPUs of one host are joined by a fast wire. The model is a deep GPT-2, the command `python -m
# benchmarks --suite distributed`. *Inside*: the module is compiled, then wrapped. *Around*: the wrapped module
# is compiled.

# %%
run = plots.latest("h*_distributed*")
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
# A row is right if loss and every gradient are eager's, and equal on all ranks. `TP` is tensor
# parallel: each rank holds some columns and rows of each weight, so gradients differ between ranks.
# Its tensors are DTensors. torch.compile traces what they do; ours breaks the graph around them, and
# stays about as fast as eager. The picture shows the two parts of a step where communication can be
# left out:

# %% alt="Bars from zero: milliseconds a step without communication, and hatched what communication adds"
plots.communication_bars(run["rows"]);

# %% [markdown]
# A bar is a step; its hatched part is what the step waits for. On this wire, with few ranks, is it worth
# cutting the graph?

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
# **Weak scaling** divides the step of one process by the step of all, with the same batch on each:
# one would be perfect. The faster the wire, the less is exposed in the first place. Then pieces hide
# little, and cost what they always cost. On a slow wire, or between hosts, they win, as in the
# timeline above. Measure on your own wire: the option is one line.
#
# FSDP2 sends more often than DDP: weights twice and gradients once in every step. It is there for
# memory, not for speed.
#
# ## Exercises
#
# **18.1** (warm-up) *An average that is none.* The ranks' last batches differ in length. Each rank
# has the gradient of the mean over its own rows. Write `averaged(gradients, counts)`: the gradient
# of the mean over all rows. A rank may have no rows at all. The mean of nothing is NaN, and so may be
# the gradient of that rank.
#
# *Hints.* What would one process with all rows compute? A rank with twice the rows counts twice.
# Zero times NaN is NaN: leave such a rank out.
#
# <details><summary>Predict: does DDP do this for you?</summary>
#
# No. It divides by the number of ranks. With batches of different lengths that is another loss.
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
# **18.2** (core) *Pieces.* Write `in_pieces(operations, limit)`. `operations` is a list of pairs: a
# name, and a dictionary of the parameters that it reads, with their bytes. Return a list of lists of
# names. A new piece begins at an operation that reads a new parameter, when the piece before it has
# `limit` bytes or more.
#
# *Hints.* Keep a set of the parameters that you have seen. One that was seen before has no bytes.

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
# **18.3** (core) *The end of a step.* Write `finish(computing, sending)`: the time at which the last
# bucket has arrived. Piece `k` computes for `computing[k]` seconds, one piece after the other. Its
# bucket may leave then, and is on the wire for `sending[k]` seconds. The wire carries one bucket at a
# time, in order.
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
# `sending` seconds in all. Cut into `n` equal pieces, each piece costs `overhead` seconds more of
# computing. Write `best(computing, sending, overhead, most)`: the number of pieces from 1 to `most`
# with the earliest end; of equals, the fewest.
#
# *Hints.* You have `finish`. Two questions tell you if you are right: what is best on an endlessly
# fast wire, and what if a piece costs nothing?

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
# * `torch/_dynamo/backends/distributed.py`: `DDPOptimizer` looks for DDP itself, and cuts the graph
#   at DDP's own buckets. It fills them from the end of the graph.
# * `torch/distributed/fsdp/_fully_shard/_fully_shard.py`: FSDP2. Its hooks are skipped by capture,
#   so compiled blocks stand between them, as here.
# * `torch/_dynamo/compiled_autograd.py` captures the backward pass as it runs, hooks included. Then
#   `torch/_inductor/comms.py` moves sends and waits inside one graph.
# * Paper, section 3: the joint graph, of which one backward comes.
#
# **See it in the real `torch.compile`.** `TORCH_LOGS=ddp_graphs torchrun ...` prints where the graph is cut for DDP's buckets.
#
# ## Recap
#
# * Ranks agree on gradients once a step. Averages of means are right for equal batches only.
# * Sending is hidden under computing, if gradients are ready one after the other.
# * One backward graph makes them ready at once. Cut it, and they travel early again.
# * With FSDP2, compile each block: the hooks stay outside.
# * Pieces pay on a slow wire. On a fast one they may cost more than they hide. Measure.
#
# Next: a model of your own on the GPUs that you have. `python -m benchmarks --suite distributed`
# shows what is hidden, and what is exposed.
