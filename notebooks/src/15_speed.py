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
# "1.8 times faster" says nothing unless one knows how the factor was measured. The factor is of no
# use unless one knows *why* the program became faster. This notebook measures the compiler that you
# have read. It then takes the compiler apart, switch by switch, and compares it with what the
# machine could do at best.
#
# **What you will learn:** how a measurement goes wrong; interleaving, medians, quartiles; speedups
# against eager and `torch.compile`; ablation, and how it misleads; the roofline; Amdahl's law, or why a
# model gains less than its kernels.
#
# **Files of this chapter:** `miniinductor/config.py`, the loops of the C++ writer (`lanes.py` and
# `layouts.py` in `miniinductor/codegen/cpp/`), and `benchmarks/`.

# %%
import time

import torch

import minidynamo
import miniinductor
from benchmarks.runner import interleave, keep_freed_memory, ratio
from benchmarks.suites import machine, measure
from benchmarks.workloads import WORKLOADS
from minidynamo.explain import Table

torch.manual_seed(0)
torch.set_grad_enabled(False)
# with one thread, other programs on this machine disturb the times least
torch.set_num_threads(1)
# malloc keeps freed memory: otherwise chance decides which version pays for new pages (notebook 13)
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
# Which of these figures is the answer? The first compiled call includes the compilation. Later calls
# differ by whatever else the machine was doing.
# <!-- shows: n("compiled, first call") > 10 * n("compiled, again") -->
#
# A machine may also get slower during the measurement, because of heat or a neighbour. Then the version
# that is measured last loses. So a measurement takes four precautions:
#
# * It warms up.
# * It runs the versions **in turns**, so that a slow moment hits all of them.
# * It takes ratios **within a round**.
# * It reports the **median with quartiles**. If the quartiles of two versions overlap, it has shown no
#   difference.
#
# The heart of such a runner is two loops:

# %% tags=["volatile"]
def in_turns(variants, rounds=9):
    """{name: its seconds in each round}; every version runs once in a round."""
    found = {name: [] for name in variants}
    for _ in range(rounds):
        for name, function in variants.items():
            begin = time.perf_counter()
            function()
            found[name].append(time.perf_counter() - begin)
    return found

found = in_turns({"eager": lambda: program(x), "compiled": lambda: compiled(x)})
ratios = sorted(a / b for a, b in zip(found["eager"], found["compiled"]))
print("eager / compiled, round by round, sorted:", " ".join(f"{value:.1f}" for value in ratios))

# %% [markdown]
# Every round favours the compiled version, but the rounds differ. So one round proves little, and the
# median of all rounds says more.
# <!-- shows: n("sorted:") > 1 and n("sorted:", 8) > 1.1 * n("sorted:") -->
#
# The real runner is `interleave` in `benchmarks/runner.py`. It prefers the rounds in which no other
# process took the processor. Each round of an ablation (below) runs the versions in another order;
# otherwise the version that follows a slow one would find an emptied cache in every round. A short
# program runs several times (`batch`), until one measurement is long enough for the clock:

# %%
from parts import part

part(interleave, ("begin = clock", "row[name]"))

# %% [markdown]
# `row` has the seconds of one call in this round.

# %% [markdown]
# `measure` of `benchmarks/suites` uses this runner. Before it times a program, it compares the result
# with eager's. A wrong result is an error, and gets no row in the table.
#
# ## Kernels and models against eager and `torch.compile`
#
# The next figure has six small programs and two models. A value above 1 is faster than eager:

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
# Where the quartiles of two values overlap, neither is the winner. The next table has the same figures as
# numbers. Compilation is paid once; the other columns are paid at every call:
# <!-- general -->

# %% tags=["volatile"]
def with_spread(value):
    return f"{value[0]:.2f}  [{value[1]:.2f} to {value[2]:.2f}]" if value else "-"

Table(["", "eager ms", "eager / ours", "eager / torch.compile", "compile time: ours", "compile time: torch.compile"],
      [(r["name"], f"{r['seconds']['eager'] * 1e3:.3f}", with_spread(r.get("eager / ours")),
        with_spread(r.get("eager / torch.compile")),
        f"{r['ours compile']['wall']:.2f} s", f"{r['torch.compile compile']['wall']:.2f} s") for r in rows],
      "medians, and quartiles of the ratios")

# %% [markdown]
# `gelu*sigmoid` becomes several times faster. Layer norm gains far less, or nothing.
# <!-- shows: n("gelu*sigmoid", 1) > 2 and n("gelu*sigmoid", 1) > 1.5 * n("layer norm", 1) -->
#
# Both compilers fall below 1 in some rows. In softmax, layer norm and the sum, eager already runs one
# hand-written kernel, so a generated kernel has little to win. `tiny` has almost no work, so it measures
# the price of a call: guards and a wrapper in Python, against eager's dispatch. These rows use one
# thread and one shape, on the machine in the title; another machine may order them differently.
#
# ## Ablation: take one thing away
#
# Why does `gelu*sigmoid` gain so much, and layer norm so little? Look at what eager does for each.
# `gelu*sigmoid` is a chain of operations, and each operation reads and writes memory. Layer norm is *one*
# eager kernel already. It reads once and writes once, so fusion has nothing to remove. The next table
# counts the bytes:

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
Table(["", "eager operations", "eager moves", "our kernels", "ours move", "ratio"], found)

# %% [markdown]
# If only memory counts, fusion can make the chain 3.7 times faster, and layer norm no faster.
# <!-- shows: n("gelu*sigmoid", 4) == 3.7 and n("layer norm", 4) == 1 -->
#
# Nearly every optimisation of miniinductor has a switch. An **ablation** compiles the same captured graph
# with everything on, and then once for each switch with that switch off. These are the switches:

# %%
print(", ".join(ablation.switches()))

# %% [markdown]
# The last entry turns two switches off together. First count what does not depend on the clock. The next
# table has the number of kernels, and the bytes that they move:
# <!-- shows: has("fusion and inlining") -->

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
# Fusion matters for the second and the last program. For the first program, turning off fusion
# alone or inlining alone changes nothing. The program needs more kernels only if both are off.
# <!-- shows: n("fusion", 2) > n("all on", 2) and n("fusion", 6) > n("all on", 6) and n("fusion", 1) == n("inlining", 1) == n("all on", 1) < n("fusion and inlining", 1) -->
#
# The next figure has the times. A value above 1 means that the optimisation makes the program
# faster:

# %% tags=["volatile"] alt="Bars from zero for each program: how many times slower it is without one optimisation; a dashed line at one"
from benchmarks.plots import ablation_bars

ablation_bars(ablated, machine());

# %% [markdown]
# **How ablation misleads.** For a chain of pointwise operations, neither fusion alone nor inlining alone
# matters: each does the other's work. Only with *both* off do you see what they bring. An ablation that
# takes one thing away measures what is lost *given everything else*. Here it would call both useless.
# <!-- general -->
#
# The next table says what each switch saves, and where that shows:
#
# | switch | what it saves | shows in |
# |---|---|---|
# | inlining | memory for values that only one reader needs | the chain, together with fusion |
# | fusion | passes over memory: reductions and their readers share one; launches | layer norm, softmax, models |
# | buffer reuse | fresh memory pages, cache lines (notebook 13) | many intermediates |
# | in place | a buffer of its own, where a result may overwrite its last input | long chains of layers |
# | foreach | calls: equal kernels on different tensors become one | an optimizer's step over many parameters |
# | tiling | partly used cache lines, where a read runs across memory (notebook 11) | `x + y.t()` |
# | row reductions | scalar sums where rows are reduced: lanes run over outputs | sums over dim 0 |
# | onednn products | slow library calls for products that are not fused | GPT-2, BERT |
# | loop reordering | a pass over memory, where two loop nests run in different orders | batch norm |
# | channels last | conversions to the order of dimensions that convolutions like best | image models |
# | vectorize | scalar inner loops: it adds `omp simd`, where GCC would decide alone | reductions, exp, erf |
# | openmp | time, through the other cores | large tensors; not here, with one core |
#
# Some parts have no switch, because nothing could replace them: the generated guards, the launcher,
# and the straight-line wrapper. The `tiny` row above shows their effect.
#
# Training adds a decision of its own: the cut between forward and backward graph (notebook 08). The next
# table compares three policies for the cut:

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
# Recomputing everything keeps the fewest bytes, and needs one kernel more in the backward graph. The
# minimum cut keeps little more. It keeps what a product of the backward graph reads, because that must be
# in memory anyway, and computes the rest again.
# <!-- shows: n("recompute-all") < n("min-cut") < n("save-everything") / 2 and n("recompute-all", 2) == n("min-cut", 2) + 1 -->
#
# ## The roofline
#
# How fast *could* a kernel be? Two limits hold: bytes per second from memory, and operations per second
# in the cores. A kernel with few operations per byte can at best run at memory's speed. A kernel with
# many can at best run at the speed of the cores.
#
# The next cells measure both limits on this machine. The limit of memory is that of notebook 11:
# the best rate of copying, adding and summing tensors of 64 MB, which no cache can hold. All
# programs here use tensors of this size, too. A matrix product gives the limit of the cores. First
# the table counts the operations of each kernel in the loop IR (an `exp` counts as one), and the
# bytes of its inputs and outputs:

# %%
from miniinductor.ir.handlers import trace
from miniinductor.ir.loops import ComputedBuffer
from miniinductor.lowering import lower_graph
from miniinductor.ir.ops import BINARY, UNARY
from miniinductor.records import CompileRecord
from roof import large, measure_roof, this_machine

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

one, other = large(), large()
arguments = {
    "add": (lambda x, y: x + y, [one, other]),
    "gelu*sigmoid": (WORKLOADS["gelu*sigmoid"]()[0], [one, other]),
    "softmax": (WORKLOADS["softmax"]()[0], [one]),
    "layer norm": (WORKLOADS["layer norm"]()[0], [one, torch.randn(1024), torch.randn(1024)]),
}
counted = {}
for name, (function, inputs) in arguments.items():
    e = minidynamo.explain(lambda *a, function=function: function(*a))(*inputs)
    necessary = sum(t.numel() * 4 for t in [*inputs, e.result])
    counted[name] = operations(e.main.compiled), necessary
Table(["", "operations per element of the first input", "bytes", "operations per byte"],
      [(name, round(ops / arguments[name][1][0].numel(), 1), bytes_, f"{ops / bytes_:.2f}")
       for name, (ops, bytes_) in counted.items()])

# %% [markdown]
# All four programs do less than two operations for each byte. A core does more operations than that
# while memory delivers a byte, so memory limits all four. The last column is the position on the
# horizontal axis of the next figure:
# <!-- shows: all(n(name, 2) < 2 for name in ("add", "gelu*sigmoid", "softmax", "layer norm")) -->

# %% tags=["volatile"] alt="A roofline: operations a second over operations per byte; circles are our kernels, squares are eager's, below the roof of memory and arithmetic"
from benchmarks.plots import roofline

m, product = torch.randn(1024, 1024), torch.empty(1024, 1024)
variants = {"product": lambda: torch.mm(m, m, out=product)}
for name, (function, inputs) in arguments.items():
    graph, example = ablation.captured(function, inputs)
    compiled = miniinductor.compile_fx(graph, example)
    variants[name] = lambda run=compiled, inputs=example: run(*inputs)
    variants[name + ", eager"] = lambda run=function, inputs=inputs: run(*inputs)
roof = measure_roof(variants, budget=8)
peak = 2 * 1024 ** 3 / roof.seconds["product"]
points = {"product of 1024 x 1024": (2 * 1024 ** 3 / (3 * 4 * 1024 ** 2), peak)}
for name, (ops, bytes_) in counted.items():
    for label in (name, name + ", eager"):
        points[label] = ops / bytes_, ops / roof.seconds[label]
roofline(points, roof.bandwidth, peak, machine());

# %% [markdown]
# The slope is the limit of memory, and the flat line is the limit of the cores. How close does each point
# come to the limit above it?
# <!-- general -->

# %% tags=["volatile"]
print(f"limit of memory ({roof.fastest}): {roof.bandwidth / 1e9:.0f} GB/s, "
      f"of the cores: {peak / 1e9:.0f} G operations/s; {this_machine()}")
for name, (intensity, speed) in points.items():
    print(f"{name:24} {speed / min(peak, roof.bandwidth * intensity):4.0%} of its limit")

# %% [markdown]
# Better arithmetic cannot raise a point on the slope. Only moving fewer bytes can: fuse the kernel
# with its neighbours. A kernel whose point is well below the slope could still become faster.
# Softmax and `gelu*sigmoid` are below it because they compute exponentials: the table counts each
# as one operation, but each takes many instructions (as in notebook 11).
# <!-- shows: n("product of 1024 x 1024") == 100 and n("gelu*sigmoid  ") > n("gelu*sigmoid, eager") -->
#
# (No limit is sharp. A cache may keep a part of the data, and other processes may slow the machine
# down while the limit is measured. So a point may be above its limit.)
#
# ## Why models gain less: Amdahl's law
#
# On a CPU, most of a transformer's time goes into matrix products, and fusion changes nothing about
# those. If a share `p` of the time becomes `g` times faster, the whole becomes
#
#     1 / ((1 - p) + p / g)
#
# times faster. However large `g` is, that is no more than `1 / (1 - p)`. The next table splits the time of
# eager GPT-2 by operation:

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
print(f"fusing the rest can gain at most a factor of {bound:.2f}; the table above has {gained:.2f}")
if gained > bound:
    print("so the products themselves got faster, too")
else:
    print("so fusion alone may explain it" if gained > 1 else "so fusion has not paid in this model")
Table(["operation", "share of eager's time"], [(key, f"{t / whole:.1%}") for key, t in top])

# %% [markdown]
# Products and attention take nearly all of eager's time. If a model gains more than the bound, its
# *products* got faster, too: ours calls oneDNN for large ones
# (`miniinductor/passes/library_layouts.py`, switch `onednn_products`).
# <!-- shows: n("library products and attention:") > 80 and n("at most a factor of") < n("the table above has") -->
#
# So the next gain must come from the products. They can read fewer bytes, with weights that are
# packed in advance or have a smaller dtype. Their kernels can also include the pointwise operations
# that follow, as a template does (notebook 13).
#
# ## On a GPU
#
# On a GPU the products take a smaller share, because its cores are so fast, and launches cost more. The
# next figures were **recorded** on the machine in the title:

# %% alt="Bars from zero: milliseconds of each model on the recorded GPU, for eager, ours and torch.compile"
from benchmarks.plots import recorded, recorded_bars, where_recorded

run = recorded("h100_gpu_models")
for training in (False, True):
    names = [r["name"] for r in run["rows"] if ("training" in r["name"]) == training]
    if names:
        recorded_bars(run, "ms", ("eager", "ours", "torch.compile"), names,
                      "milliseconds per training step" if training else "milliseconds per call")

# %% [markdown]
# Shorter bars are faster. In rows with CUDA graphs one command starts all kernels of a call
# (notebook 13). The next table has the ratios, the time of compilation, and the error against
# float64 divided by eager's:
# <!-- general -->

# %%
gains = [(r["name"], f"{r['ms']['eager'] / r['ms']['ours']:.2f}", f"{r['ms']['eager'] / r['ms']['torch.compile']:.2f}",
          f"{r['compile s']['ours']:.1f} s", f"{r['compile s']['torch.compile']:.1f} s",
          *(f"{r['error'][variant] / r['error']['eager']:.1f}" for variant in ("ours", "torch.compile"))) for r in run["rows"]]
Table(["model", "eager / ours", "eager / torch.compile", "compile time: ours", "compile time: torch.compile",
       "error / eager's: ours", "error / eager's: torch.compile"], gains,
      where_recorded(run))

# %% [markdown]
# In three rows `torch.compile` is faster than ours. It is about 2 percent faster when it trains
# GPT-2 with batch 1 and CUDA graphs, and less than 1 percent in the other two rows. An error below
# 1 means that the compiler rounds less than eager; above 1, it rounds more.
# <!-- shows: all(lost < 1 - n(row) / n(row, 1) < most for row, lost, most in (("GPT-2 b1 s64 bf16 training, CUDA graphs", 0.015, 0.025), ("ViT-B/16 b32 fp32 training", 0, 0.01), ("GPT-2 b1 s64 bf16, CUDA graphs", 0, 0.01))) -->
#
# If this machine has a GPU, the next cell runs one row:

# %% tags=["volatile"]
from benchmarks.runner import on_this_gpu

print(on_this_gpu("gpu-models", "ResNet-50 b32 bf16"))

# %% [markdown]
# With a GPU, the cell prints the times of eager, ours and `torch.compile`.
#
# ## Exercises
#
# **15.1** (warm-up) *A ratio with spread.* Write `speedup(slow, fast)`. Both are lists of seconds of equal
# length, measured in turns. Return `(median, low, high)`: the median and the quartiles of the ratios
# slow / fast of each round.
#
# *Hints.* `statistics.quantiles(values, n=4)` gives all three. Why not `median(slow) / median(fast)`?
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
# **15.2** (core) *A mean of ratios.* Write `mean_speedup(ratios)`: one number for a whole suite. It must not
# matter which side is called "slow": the mean of the inverse ratios must be the inverse of the mean.
#
# *Hints.* The arithmetic mean of 2 and 1/2 is 1.25: each side would be faster than the other. Use
# logarithms.

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
# **15.3** (stretch) *An ablation of bytes.* Write `costly(graph, inputs, switches)`. Compile `graph` with each of
# the `switches` off alone. Return the set of switches without which the kernels move more bytes than with
# all switches on. The check uses real captured graphs.
#
# *Hints.* Put `miniinductor.config.patch(**{name: False})` around
# `miniinductor.compile_fx(graph, inputs)`. Then `compiled.record.kernels` has kernels with `bytes_read`
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
# **15.4** (core) *Amdahl.* Write `whole(parts)`. `parts` is a list of `(seconds, factor)`: a part
# took `seconds`, and became `factor` times faster. Return how many times faster the whole became.
#
# *Hints.* Divide the time before by the time after. A factor below 1 is slower.
#
# <details><summary>Predict: half of the time becomes ten times faster. The whole?</summary>
#
# Less than twice as fast. The other half stays, and is nearly all the time that is left.
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
# The next list has every public name of this chapter's core files, with one sentence each. Unfold a file,
# then a name, to see its first lines. The build makes the list from the sources.

# %% tags=["volatile"]
from minidynamo.explain import also_here

also_here(
    "miniinductor/config.py",
    "miniinductor/options.py",
    "miniinductor/records.py",
)

# %% [markdown]
# ## What real PyTorch has
#
# * `benchmarks/dynamo/` in the PyTorch repository runs the models of TorchBench, HuggingFace and TIMM
#   every night, accuracy first. Paper, section 6, with an ablation.
# * `torch/utils/benchmark` has timers with statistics. `torch._inductor.config` has hundreds of switches.
#   `TORCH_COMPILE_DEBUG=1` keeps every stage of a run.
# * The roofline: Williams, Waterman, Patterson, *Roofline: an insightful visual performance model*,
#   CACM 2009.
#
# **See it in the real `torch.compile`.** `TORCH_LOGS=perf_hints python program.py` says where a library's
# kernel was called instead of a generated one, and which optimisation was skipped.
#
# ## Recap
#
# * Warm up, take turns, compare medians with their spread, and check the numbers first.
# * The bytes that a kernel moves explain its time, and launches explain the time of small calls.
#   Matrix products limit how much a model can gain.
# * One switch at a time shows what nothing else can replace. Take two mechanisms away together if each
#   does the other's work.
# * The roofline says when to stop optimising a kernel and to fuse it instead.
#
# Next: all of it at work, in a training run.
