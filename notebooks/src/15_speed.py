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
# # 15 · Where the speed comes from: benchmarks and ablation
#
# A number such as "1.8 times faster" says nothing unless one knows how it was measured, and nothing
# useful unless one knows *why*. This notebook measures the compiler that you have read, takes it
# apart switch by switch, and compares it with what the machine could do at best.
#
# **What you will learn:** how a measurement goes wrong; interleaving, medians, quartiles; speedups
# against eager and `torch.compile`; ablation, and how it misleads; the roofline; Amdahl's law, or
# why a model gains less than its kernels.
#
# **Files of this chapter:** `miniinductor/config.py`, the strategies of the C++ writer (`rows.py`,
# `tables.py` and `tiles.py` in `miniinductor/codegen/`), and `benchmarks/`.

# %%
import time

import torch

import minidynamo
import miniinductor
from benchmarks.runner import interleave, keep_freed_memory, ratio
from benchmarks.suites import machine, measure
from benchmarks.workloads import WORKLOADS
from minidynamo.explain import Code, Table, excerpt

torch.manual_seed(0)
torch.set_grad_enabled(False)
# one core: what it does is the compiler's doing, and neighbours disturb it least
torch.set_num_threads(1)
# malloc keeps what is freed: or else chance decides which version pays for fresh pages (notebook 13)
keep_freed_memory();

# %% [markdown]
# ## The naive measurement
#
# Run each version once and look at the clock:

# %% tags=["volatile"]
def program(x):
    return torch.nn.functional.gelu(2 * x + 1) * torch.sigmoid(x)

x = torch.randn(2048, 1024)
compiled = minidynamo.compile(lambda x: program(x))

def seconds(function):
    start = time.perf_counter()
    function(x)
    return time.perf_counter() - start

naive = [("eager, first call", seconds(program)), ("compiled, first call", seconds(compiled)),
         ("eager, again", seconds(program)), ("compiled, again", seconds(compiled)),
         ("compiled, once more", seconds(compiled))]
Table(["", "milliseconds"], [(name, f"{value * 1e3:.2f}") for name, value in naive])

# %% [markdown]
# Which of these is the answer? The first compiled call includes the compilation. Later ones differ
# by whatever else the machine was doing. And if a machine gets slower while one measures (heat, a
# neighbour), the version that is measured last loses.
#
# The runner of this project does four things about it. It warms up. It runs the versions **in
# turns**, so that a slow moment hits all. It takes ratios **within a round**. It reports the
# **median with quartiles**: if the quartiles of two versions overlap, nothing has been shown. Where
# many versions are alike (the ablation below), each round has another order: the one behind a slow
# version finds emptied caches.

# %%
excerpt(interleave)

# %% [markdown]
# First each version is called twice, to see how many calls make a batch long enough to be timed. Then
# come the rounds. In each, every version gets one batch. The last lines choose the rounds in which
# nobody else took our processor. A ratio is taken round by round:

# %%
excerpt(ratio)

# %% [markdown]
# And before anything is timed, the result is compared with eager's. A wrong result is an error, and
# gets no row in the table.
#
# ## Kernels and models against eager and `torch.compile`

# %% tags=["volatile"] alt="Bars from zero for each model: eager's time divided by the time of miniinductor and of torch.compile, with quartiles; a dashed line at one"
from benchmarks.plots import speedup_bars
from benchmarks.models import bert, gpt2

rows = []
for name in ("gelu*sigmoid", "softmax", "layer norm", "sum dim 0", "transpose+add", "tiny (per call)"):
    function, arguments = WORKLOADS[name]()
    rows.append(measure(name, function, arguments, {}, budget=1.0))
for name, make in (("GPT-2, 2 layers", gpt2), ("BERT, 2 layers", bert)):
    model, inputs = make(layers=2, sequence=64)
    rows.append(measure(name, model, [], inputs, budget=2.0))
speedup_bars(rows, machine());

# %% [markdown]
# A bar beyond one is faster than eager. Where the quartiles of two bars overlap, do not call one of them
# the winner. The numbers:

# %% tags=["volatile"]
def with_spread(value):
    return f"{value[0]:.2f}  [{value[1]:.2f} to {value[2]:.2f}]" if value else "-"

Table(["", "eager ms", "eager / ours", "eager / torch.compile", "compile time: ours", "compile time: torch.compile"],
      [(r["name"], f"{r['seconds']['eager'] * 1e3:.3f}", with_spread(r.get("eager / ours")),
        with_spread(r.get("eager / torch.compile")),
        f"{r['ours compile']['wall']:.2f} s", f"{r['torch.compile compile']['wall']:.2f} s") for r in rows],
      "medians, and quartiles of the ratios")

# %% [markdown]
# Read a row with its quartiles. Compilation is paid once; the other columns are paid at every call.
#
# ## Ablation: take one thing away
#
# Why does `gelu*sigmoid` gain so much, and layer norm so little? Look at what eager does for each.
# `gelu*sigmoid` is a chain of operations, and each reads and writes memory. Layer norm is *one* eager
# kernel already: it reads once and writes once, and nothing is left to fuse. In bytes:

# %%
from benchmarks.suites import ablation

def eager_traffic(function, inputs):
    """(operations, bytes that they read and write) of the captured graph, one kernel for each operation."""
    graph, _ = ablation.captured(function, inputs)
    size = lambda node: (value := node.meta["example_value"]).numel() * value.element_size()
    calls = [node for node in graph.graph.nodes if node.op.startswith("call")]
    return len(calls), sum(size(node) + sum(map(size, node.all_input_nodes)) for node in calls)

found = []
for name in ("gelu*sigmoid", "layer norm"):
    function, inputs = WORKLOADS[name]()
    kernels = minidynamo.explain(lambda *a, function=function: function(*a))(
        *inputs
    ).main.compiled.kernels
    ours = sum(k.bytes_read + k.bytes_written for k in kernels)
    count, moved = eager_traffic(function, inputs)
    found.append((name, count, f"{moved / 1e6:.0f} MB", len(kernels), f"{ours / 1e6:.0f} MB", f"{moved / ours:.1f}"))
Table(["", "eager operations", "they move", "our kernels", "they move", "ratio"], found)

# %% [markdown]
# The ratios say what fusion can win at most, where nothing but memory counts.
#
# Nearly every optimisation of miniinductor has a switch. (What has none is named below.) Compile the
# same captured graph once with everything on, and once per switch with that one off:

# %%
excerpt(ablation.switches)

# %% [markdown]
# First what does not depend on the clock: how many kernels there are, and how many bytes they move.

# %%
def layer_norm_gelu(x, w, b):
    return torch.nn.functional.gelu(torch.nn.functional.layer_norm(x, (x.shape[-1],), w, b)) + x

layer = bert(layers=1)[0].encoder.layer[0]                # one layer of BERT, on hidden states
programs = [
    ("gelu(2x+1) * sigmoid(x)", program, [x], {}),
    ("layer norm, gelu, residual", layer_norm_gelu, [x, torch.randn(1024), torch.randn(1024)], {}),
    ("x + y.t()", lambda x, y: x + y.t(), [torch.randn(1024, 1024), torch.randn(1024, 1024)], {}),
    ("a layer of BERT", lambda h: layer(h), [torch.randn(1, 128, 768)], {}),
]
ablated = [ablation.ablate(*one, budget=2.0) for one in programs]
labels = list(ablated[0]["kernels"])
cell = lambda r, label: f"{r['kernels'][label]}, {r['megabytes'][label]:.1f} MB"
Table(
    ["off", *(r["name"] for r in ablated)],
    [(label, *(cell(r, label) for r in ablated)) for label in labels],
    "kernels, and megabytes that they read and write",
)

# %% [markdown]
# Fusion matters for the second and the last program. In the first program all rows are alike but the
# last one, where fusion and inlining are off together. Keep that in mind. Then the clock:

# %% tags=["volatile"] alt="Bars from zero for each program: how many times slower it is without one optimisation; a dashed line at one"
from benchmarks.plots import ablation_bars

ablation_bars(ablated, machine());

# %% [markdown]
# A bar is the time without one thing over the time with everything: beyond one it was of use.
#
# **How ablation misleads.** For a chain of pointwise operations, neither fusion alone nor inlining
# alone matters: each does the other's work. Only with *both* off does one see what they bring. An
# ablation that takes away one thing at a time measures what is lost *given everything else*; it
# would call both useless.
#
# What each is for:
#
# | switch | what it saves | shows in |
# |---|---|---|
# | inlining | values that nobody else needs never get memory | the chain, together with fusion |
# | fusion | reductions and their readers share one pass; one launch instead of several | layer norm, softmax, models |
# | buffer reuse | fresh memory pages, cache lines (notebook 13) | many intermediates |
# | in place | a buffer of its own for what can be written over its last input | long chains of layers |
# | foreach | calls: equal kernels on different tensors become one | an optimizer's step over many parameters |
# | tiling | whole cache lines where a read runs across memory (notebook 11) | `x + y.t()` |
# | lane tables | what is the same in each row is computed once; short innermost loops are joined with the loop around | images that are enlarged, short rows |
# | row reductions | vector lanes over outputs where rows are reduced | sums over dim 0 |
# | onednn products | better library calls for what is not fused | GPT-2, BERT |
# | loop reordering | a pass over memory, where two loop nests run in different orders | batch norm |
# | channels last | the order of dimensions that convolutions like best | image models |
# | vectorize | `omp simd` in the inner loop: without it, GCC decides alone | reductions, exp, erf |
# | openmp | the other cores | large tensors; not here, where one core is measured |
#
# Some of what makes the compiler fast has no switch, because there is nothing to switch to: the
# generated guards, the C launcher, the straight-line wrapper. That is the `tiny` row above.
#
# Training adds a decision of its own, the cut between forward and backward (notebook 08):

# %%
class Block(torch.nn.Module):
    def __init__(self, width=128):
        super().__init__()
        self.norm = torch.nn.LayerNorm(width)
        self.up, self.down = torch.nn.Linear(width, 4 * width), torch.nn.Linear(4 * width, width)

    def forward(self, x):
        return x + self.down(torch.nn.functional.gelu(self.up(self.norm(x))))

block, h = Block(), torch.randn(256, 128)
kept = []
for policy in ("save-everything", "min-cut", "recompute-all"):
    with torch.enable_grad(), miniinductor.config.patch(partition=policy):
        e = minidynamo.explain(block)(h)
        e.result.sum().backward()
    compiled = e.main.compiled
    kept.append((policy, sum(s.bytes for s in compiled.saved if not s.is_input), len(compiled.kernels),
                 len(compiled.backward.kernels)))
Table(["partition", "bytes kept for backward", "forward kernels", "backward kernels"], kept)

# %% [markdown]
# Recomputing everything keeps the fewest bytes, and needs one kernel more in the backward half. The
# minimum cut lies between: what a product of the backward half reads must lie in memory in any case,
# so it is kept, and only the rest is computed again.
#
# ## The roofline
#
# How fast *could* a kernel be? Two limits: bytes per second from memory, operations per second in
# the cores. A kernel with few operations per byte can at best run at memory's speed; one with many,
# at the cores'. Measure both limits here. For memory take the best of three, on tensors as large as
# the kernels' own: copying, adding two, summing one. For arithmetic take a matrix product. Then place
# the kernels: operations are counted in the loop IR (an `exp` counts as one), bytes are those of
# inputs and outputs.

# %%
from miniinductor.ir.recording import trace
from miniinductor.ir.loops import ComputedBuffer
from miniinductor.lowering import lower_graph
from miniinductor.ir.ops import BINARY, UNARY
from miniinductor.records import CompileRecord

def operations(record):
    """Arithmetic operations of the whole graph: those of each loop body, times its iterations."""
    graph, total = lower_graph(record.functional_graph, CompileRecord(), ()), 0
    for buffer in graph.operations:
        if isinstance(buffer, ComputedBuffer):
            body, iterations = trace(buffer), 1
            for n in (*body.outer, *body.inner):
                iterations *= int(n)
            total += iterations * sum(
                instruction.op in (*BINARY, *UNARY, "reduction") for instruction in body.walk()
            )
    return total

arguments = {"add": (lambda x, y: x + y, [torch.randn(4096, 1024), torch.randn(4096, 1024)])} | {
    name: WORKLOADS[name]() for name in ("gelu*sigmoid", "softmax", "layer norm")}
counted = {}
for name, (function, inputs) in arguments.items():
    e = minidynamo.explain(lambda *a, function=function: function(*a))(*inputs)
    necessary = sum(t.numel() * 4 for t in [*inputs, e.result])
    counted[name] = operations(e.main.compiled), necessary
Table(["", "operations per element of the first input", "bytes", "operations per byte"],
      [(name, round(ops / arguments[name][1][0].numel(), 1), bytes_, f"{ops / bytes_:.2f}")
       for name, (ops, bytes_) in counted.items()])

# %% [markdown]
# All four do few operations for each byte. So memory is their roof. The last column is the place on the
# horizontal axis:

# %% tags=["volatile"] alt="A roofline: operations a second over operations per byte; circles are our kernels, squares are eager's, below the roof of memory and arithmetic"
from benchmarks.plots import roofline

m, product = torch.randn(1024, 1024), torch.empty(1024, 1024)
one, other, big = torch.randn(4096, 1024), torch.randn(4096, 1024), torch.empty(4096, 1024)
limits = interleave({"copying": lambda: big.copy_(one), "adding": lambda: torch.add(one, other, out=big),
                     "summing": lambda: one.sum(), "product": lambda: torch.mm(m, m, out=product)}, budget=2)
passes = {"copying": 2, "adding": 3, "summing": 1}              # over 16 MB each
bandwidths = {name: n * 4 * big.numel() / limits[name].median for name, n in passes.items()}
best = max(bandwidths, key=bandwidths.get)
bandwidth, peak = bandwidths[best], 2 * 1024 ** 3 / limits["product"].median
points = {"product of 1024 x 1024": (2 * 1024 ** 3 / (3 * 4 * 1024 ** 2), peak)}
for name, (function, inputs) in arguments.items():
    graph, example = ablation.captured(function, inputs)
    compiled = miniinductor.compile_fx(graph, example)
    timed = interleave(
        {"ours": lambda: compiled(*example), "eager": lambda: function(*inputs)}, budget=1.2
    )
    ops, bytes_ = counted[name]
    points[name] = ops / bytes_, ops / timed["ours"].median
    points[name + ", eager"] = ops / bytes_, ops / timed["eager"].median
roofline(points, bandwidth, peak, machine());

# %% [markdown]
# The slope is memory's roof, the flat line is the cores'. How far is each point from the roof above it?

# %% tags=["volatile"]
print(f"the memory's roof is that of {best}: {bandwidth / 1e9:.0f} GB/s")
for name, (intensity, speed) in points.items():
    print(f"{name:24} {speed / min(peak, bandwidth * intensity):4.0%} of its roof")

# %% [markdown]
# A point on the sloped roof cannot be made faster by better arithmetic, only by moving fewer bytes:
# that is, by fusing it with its neighbours. A point under the roof has something left to find. (No
# roof is sharp. Caches keep a part of what was just written, and the machine may have been slower when
# the roof was measured. So a point may stand above it.)
#
# ## Why models gain less: Amdahl's law
#
# Most of a transformer's time on a CPU goes into matrix products, and fusion changes nothing about
# those. If a share `p` of the time becomes `g` times faster, the whole becomes
#
#     1 / ((1 - p) + p / g)
#
# times faster, and however large `g` is, no more than `1 / (1 - p)`. Eager GPT-2, by operation:

# %% tags=["volatile"]
from torch.profiler import ProfilerActivity, profile

model, inputs = gpt2(layers=2, sequence=64)                     # the model of the table above
model(**inputs)
with profile(activities=[ProfilerActivity.CPU]) as profiled:
    for _ in range(5):
        model(**inputs)
own = {event.key: event.self_cpu_time_total for event in profiled.key_averages()}
whole = sum(own.values())
library = sum(t for key, t in own.items() if any(word in key for word in ("addmm", "::mm", "bmm", "attention")))
top = sorted(own.items(), key=lambda item: -item[1])[:7]
print(f"library products and attention: {library / whole:.0%} of eager's time")
bound = whole / library
gained = next(row["eager / ours"][0] for row in rows if row["name"] == "GPT-2, 2 layers")
print(f"nothing that fuses the rest can gain more than {bound:.2f} times; measured above: {gained:.2f} times")
if gained > bound:
    print("so the products themselves got faster, too")
else:
    print("so fusion alone may explain it" if gained > 1 else "so fusion has not paid in this model")
Table(["operation", "share of eager's time"], [(key, f"{t / whole:.1%}") for key, t in top])

# %% [markdown]
# A model that gains more than this must have got faster *products*, too: ours calls oneDNN for
# large ones (`miniinductor/passes/library_layouts.py`, switch `onednn_products`). What is left to win lies
# in the products. They can read fewer bytes: weights that are packed in advance, or a smaller dtype.
# Their kernels can take in the pointwise work behind them, as a template does (notebook 13).
#
# ## On a GPU
#
# There the share of the products is smaller, since the cores are so fast, and launches cost more.
# These rows were **recorded** on the machine in the title:

# %% alt="Bars from zero: milliseconds of each model on the recorded GPU, for eager, ours and torch.compile"
from benchmarks.plots import recorded, recorded_bars, where_recorded

run = recorded("h100_gpu_models")
for training in (False, True):
    names = [r["name"] for r in run["rows"] if ("training" in r["name"]) == training]
    if names:
        recorded_bars(run, "ms", ("eager", "ours", "torch.compile"), names,
                      "milliseconds per training step" if training else "milliseconds per call")

# %% [markdown]
# Shorter bars are faster. Rows with CUDA graphs have the same kernels, started at once (notebook 13). As
# ratios, with the time of compilation and the rounding errors:

# %%
gains = [(r["name"], f"{r['ms']['eager'] / r['ms']['ours']:.2f}", f"{r['ms']['eager'] / r['ms']['torch.compile']:.2f}",
          f"{r['compile s']['ours']:.1f} s", f"{r['compile s']['torch.compile']:.1f} s",
          *(f"{r['error'][variant] / r['error']['eager']:.1f}" for variant in ("ours", "torch.compile"))) for r in run["rows"]]
Table(["model", "eager / ours", "eager / torch.compile", "compile time: ours", "compile time: torch.compile",
       "error / eager's: ours", "error / eager's: torch.compile"], gains,
      where_recorded(run))

# %% [markdown]
# Rows where we lose are in the table, too. The errors are those against float64: a compiler rounds
# at other places than eager does, less often (below 1) or where it costs more. One row on this
# machine's GPU, if it has one:

# %% tags=["volatile"]
from benchmarks.runner import on_this_gpu

print(on_this_gpu("gpu-models", "ResNet-50 b32 bf16"))

# %% [markdown]
# Where there is one, the times of eager, ours and `torch.compile` stand here.
#
# ## Exercises
#
# **15.1** (warm-up) *A ratio with spread.* Write `speedup(slow, fast)`: two equally long lists of seconds,
# measured in turns. Return `(median, low, high)` of the ratio slow / fast: the median and the
# quartiles of the ratios of each round.
#
# *Hints.* `statistics.quantiles(values, n=4)` gives the three. Why not `median(slow) / median(fast)`?
# Its two medians may come from different rounds. Try `slow = [10, 1.1, 1.2]`, `fast = [5, 1, 0.4]`,
# where the machine was interrupted in the first round: the ratios of the rounds are 2, 1.1 and 3.

# %% tags=["exercise"]
import statistics

def speedup(slow: list, fast: list) -> tuple:
    """(median, low quartile, high quartile) of slow / fast."""
    ### BEGIN SOLUTION
    low, middle, high = statistics.quantiles([a / b for a, b in zip(slow, fast)], n=4)
    return middle, low, high
    ### END SOLUTION

# %% tags=["check"]
from exercises import check

check("15.1", speedup)

# %% [markdown]
# **15.2** (core) *A mean of ratios.* One number for a whole suite: `mean_speedup(ratios)`. It must not
# matter which side is called "slow": the mean of the inverse ratios has to be the inverse of the
# mean.
#
# *Hints.* The arithmetic mean of 2 and 1/2 is 1.25: both would be faster than the other.
# Logarithms.

# %% tags=["exercise"]
import math

def mean_speedup(ratios: list) -> float:
    """One figure for several speedups."""
    ### BEGIN SOLUTION
    return math.exp(sum(map(math.log, ratios)) / len(ratios))
    ### END SOLUTION

# %% tags=["check"]
check("15.2", mean_speedup)

# %% [markdown]
# **15.3** (stretch) *An ablation of bytes.* Write `costly(graph, inputs, switches)`: compile `graph` with
# each of the `switches` off alone, and return the set of those without which the kernels move more
# bytes than with all on. The check takes real captured graphs.
#
# *Hints.* `miniinductor.config.patch(**{name: False})` around
# `miniinductor.compile_fx(graph, inputs)`; then `compiled.record.kernels`, each with `bytes_read`
# and `bytes_written`.

# %% tags=["exercise"]
def costly(graph, inputs: list, switches: tuple) -> set:
    """Names of the switches that save memory traffic on their own."""
    ### BEGIN SOLUTION
    def moved(**options):
        with miniinductor.config.patch(**options):
            return sum(k.bytes_read + k.bytes_written for k in miniinductor.compile_fx(graph, inputs).record.kernels)
    least = moved()
    return {name for name in switches if moved(**{name: False}) > least}
    ### END SOLUTION

# %% tags=["check"]
check("15.3", costly)

# %% [markdown]
# **15.4** (core) *Amdahl.* Write `whole(parts)`: `parts` is a list of `(seconds, factor)`: a part took so long, and
# became so many times faster. Return how many times faster the whole became.
#
# *Hints.* Time before, divided by time after. Factors below 1 are slower.
#
# <details><summary>Predict: half of the time becomes ten times faster. The whole?</summary>
#
# Less than twice. The other half stays, and is nearly all that is left.
#
# </details>

# %% tags=["exercise"]
def whole(parts: list) -> float:
    """The speedup of the sum."""
    ### BEGIN SOLUTION
    return sum(seconds for seconds, _ in parts) / sum(seconds / factor for seconds, factor in parts)
    ### END SOLUTION

# %% tags=["check"]
check("15.4", whole)

# %% [markdown]
# ## What else lives here
#
# Every public name of this chapter's core files, with one sentence each. Unfold a file, then a name:
# its first lines are there. The list is made from the sources when the page is built.

# %% tags=["volatile"]
from minidynamo.explain import also_here

also_here(
    "miniinductor/config.py",
    "miniinductor/options.py",
    "miniinductor/records.py",
    "miniinductor/records.py",
)

# %% [markdown]
# ## What real PyTorch has
#
# * `benchmarks/dynamo/` in the PyTorch repository: TorchBench, HuggingFace and TIMM models, run
#   every night, accuracy first. Paper, section 6, with an ablation.
# * `torch/utils/benchmark`: timers with statistics. `torch._inductor.config` has hundreds of
#   switches; `TORCH_COMPILE_DEBUG=1` keeps every stage of a run.
# * The roofline: Williams, Waterman, Patterson, *Roofline: an insightful visual performance model*,
#   CACM 2009.
#
# **See it in the real `torch.compile`.** `TORCH_LOGS=perf_hints python program.py` says where a library's kernel was called instead of a
# generated one, and which optimisation was skipped.
#
# ## Recap
#
# * Warm up, take turns, compare medians with their spread, check the numbers first.
# * Bytes explain kernels; launches explain small calls; products bound models.
# * One switch at a time shows what nothing else can replace; two mechanisms that stand in for each
#   other must be taken away together.
# * The roof says when to stop optimising a kernel and start fusing it.
#
# Next: all of it at work, in a training run.
