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
# # 13 · The wrapper, memory planning, autotuning, CUDA Graphs
#
# Kernels compute; something has to call them in order, give them memory, and hand the results back. That something runs on every call, so it must cost next to nothing. It also decides how
# much memory the program needs, and, on a GPU, whether the processor is ever idle.
#
# **What you will learn:** what a call costs beside its kernels; the generated wrapper; lifetimes and an arena; why outputs are special; the launcher; choosing block sizes by timing, and how
# timing goes wrong; record and replay, its three traps, and how CUDA Graphs avoid them.
#
# **Files of this chapter:** `miniinductor/runtime/memory.py`, `miniinductor/runtime/wrapper.py`, `miniinductor/runtime/`.

# %%
import ctypes
import os

os.environ["TRITON_INTERPRET"] = "1"    # kernels for a GPU run on the CPU here, as in notebook 12

import torch

import minidynamo
import miniinductor
from benchmarks.runner import interleave, keep_freed_memory
from minidynamo.explain import Code, Table, excerpt
from miniinductor.toolchain.cpp import build_kernels

torch.manual_seed(0)
torch.set_grad_enabled(False);

# %% [markdown]
# ## The naive version: walk over the graph
#
# The obvious way to run a list of kernels is to walk over it: look up the inputs, allocate the output, call, store the result under its name. Here are ten small kernels in a row, run by such a
# loop, and by straight-line code:

# %%
plus_one = """extern "C" int NAME(void** args) {
    const float* x = (const float*)args[0]; float* out = (float*)args[1];
    for (long i = 0; i < 16; i++) out[i] = x[i] + 1;
    return 0;
}"""
(kernel,) = build_kernels([(plus_one, "plus_one")])
# (kernel, input, output, shape, dtype)
program = [(kernel, f"v{n}", f"v{n + 1}", (16,), torch.float32) for n in range(10)]

def walk(x):
    values = {"v0": x}
    for run, source, target, shape, dtype in program:
        values[target] = torch.empty(shape, dtype=dtype)
        run(values[source], values[target])
    return values["v10"]

kept = [torch.empty(16) for _ in range(9)]

lines = ["def straight(x):", "    v10 = empty(16)"]
lines += [f"    kernel({'x' if n == 0 else f'v{n}'}, v{n + 1})" for n in range(10)] + ["    return v10"]
scope = {"kernel": kernel, "empty": torch.empty, **{f"v{n + 1}": t for n, t in enumerate(kept)}}
exec("\n".join(lines), scope)
straight = scope["straight"]
x = torch.zeros(16)
print("both:", walk(x)[0].item(), straight(x)[0].item())
Code("\n".join(lines), "python", "the same program as straight-line code; v1 to v9 are kept between calls")

# %% [markdown]
# It is a plain program. Nothing in it decides anything, and nothing is looked up. What is that worth?

# %% tags=["volatile"]
timings = interleave({"walk": lambda: walk(x), "straight-line": lambda: straight(x),
                      "nine allocations, and nothing else": lambda: [torch.empty(16) for _ in range(9)],
                      "eager": lambda: x + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1}, budget=1)
Table(["", "microseconds per call"], [(name, f"{t.median * 1e6:.1f}") for name, t in timings.items()],
      "ten kernels on 16 numbers")

# %% [markdown]
# The straight line makes nine allocations less; the third row says what those cost. The rest of the difference is looking things up.
#
# For large tensors, allocation costs something else: a fresh page of memory must be mapped and cleared by the operating system when it is first touched.

# %% tags=["volatile"]
torch.set_num_threads(1)                # here and below: neighbours disturb one core least
size = 16 << 20
old = torch.empty(size)
timings = interleave({"write into kept memory": lambda: old.fill_(1.0),
                      "write into fresh memory": lambda: torch.empty(size).fill_(1.0)}, budget=1.5)
kept, fresh = (timing.median for timing in timings.values())
print(f"fresh memory takes {fresh / kept:.1f} times as long")
Table(["", "milliseconds"], [(name, f"{t.median * 1e3:.2f}") for name, t in timings.items()], "64 MB")

# %% [markdown]
# The second row pays in every call for pages that the system hands out when they are first written. Kept memory was paid for once.
#
# ## The wrapper
#
# So miniinductor writes straight-line Python, once per graph, with everything decided: sizes, strides, which bytes each buffer gets, when a tensor may go.
#
# *The kitchen.* Not a cook who reads the recipe line by line and looks for a free bowl each time, but a table laid beforehand: every bowl stands where it will be needed, used ones are used again.
# *Exactly:* liveness is known from the graph, so placement is a compile-time problem.

# %%
class MLP(torch.nn.Module):
    def __init__(self, width=256, depth=4):
        super().__init__()
        self.layers = torch.nn.ModuleList([torch.nn.Linear(width, width) for _ in range(depth)])
        self.norm = torch.nn.LayerNorm(width)

    def forward(self, x):
        for layer in self.layers:
            x = x + torch.nn.functional.gelu(layer(x))
        return self.norm(x)

model, h = MLP(), torch.randn(64, 256)
e = minidynamo.explain(model)(h)
print("right:", torch.allclose(e.result, model(h), atol=1e-5))
e.wrapper

# %% [markdown]
# `workspace` is the planned memory: a call takes one from a list, and puts it back at the end. Library kernels are called through their `out=` forms where they have one, so that they write
# into planned memory, too. The code that writes this code:

# %%
from miniinductor.runtime import memory
from miniinductor.runtime.wrapper import WrapperWriter

excerpt(WrapperWriter.emit)

# %% [markdown]
# A step is a kernel of ours, a part of a result that has several, or a call of the library. Behind it
# stands a `del` for names that nobody reads any more. (`Marked` is a line that remembers why it is
# there.)
#
# ## Memory planning
#
# Each buffer *lives* from the step that makes it to the last step that reads it. Two buffers whose lives do not overlap may have the same bytes. All buffers get an offset in one **arena**:
#
# 1. go through the buffers in the order in which they are made;
# 2. look at the ones already placed whose lives overlap with this one: their bytes are taken;
# 3. take the lowest gap that is large enough.

# %%
excerpt(memory.place_in_arena)

# %% [markdown]
# And one thing more: a kernel that reads each element of a buffer for the last time, just before it writes the same element of its own result, may write *over* it (`in_place`).
#
# At each step of the wrapper (left to right) the buffers that live are stacked: the height is what lives. Solid boxes lie in the arena, dashed ones are tensors of their own:

# %%
e.memory_picture

# %% [markdown]
# The arena itself, step by step. (Use the buttons, or the arrow keys.) Bytes that are free again are
# taken by the next buffer that fits:

# %%
from steppers import arena_walk

arena_walk(e.memory_picture)

# %% [markdown]
# The same program with `buffer_reuse=False`. Every buffer has memory of its own. As many bytes live at
# each step, but each call asks for all of them anew:

# %%
with miniinductor.config.patch(buffer_reuse=False):
    without = minidynamo.explain(model)(h)
without.memory_picture

# %% [markdown]
# Every box is dashed now. First fit is not optimal (finding the optimum is as hard as bin packing). It is close, and it takes no time.
#
# ### What must not lie in the arena
#
# The arena is kept for the next call. A result that lies in it changes under the caller's hands:

# %%
arena = torch.empty(3)

def careless(x):
    torch.mul(x, 2, out=arena)
    return arena

first = careless(torch.ones(3))
second = careless(torch.ones(3) * 5)
print("the first result, after the second call:", first)

# %% [markdown]
# Hence: graph outputs are fresh tensors, and so is everything that an output may *alias*. An eager kernel whose schema (its declared signature) says that its result may be a view of its argument pins that argument: it stays out of the arena.
# Threads and recursive calls take different arenas from a list, and put them back.
#
# ## A real model
#
# GPT-2, all layers (without the last product, whose result would be larger than everything else). The height is what lives at each step. The dashed stairs are keys and values of each layer:
# they are outputs (the cache for generating the next token), so they must stay. The other dashed boxes are results of library kernels that allocate their own. Which ones? The second cell counts.

# %%
from benchmarks.models import gpt2

gpt, inputs = gpt2()
g = minidynamo.explain(gpt.transformer)(**inputs)
g.memory_picture

# %% [markdown]
# Height is bytes, left to right is time. The top edge is the peak. Who allocates what lies outside of the
# arena?

# %%
from collections import Counter

picture = g.memory_picture
own = [(picture.steps[first], last == len(picture.steps) - 1) for _, offset, _, first, last in picture.blocks if offset is None]
Table(["allocated by", "lives to the end", "tensors of their own"],
      [(step, "yes" if stays else "no", n) for (step, stays), n in
       Counter((step.rstrip("_0123456789"), stays) for step, stays in own).most_common(6)], "the most frequent")

# %% [markdown]
# `_linear_pointwise` is a product of the library oneDNN, which makes its own result. A `buf` is one of the several results of a library kernel, here of attention. What lives to the end is
# returned: the keys and values are the 24 of `split_transpose_cat`. The rest is given back.
#
# ## The launcher
#
# A kernel is a C function of an array of pointers. Somebody must turn a tensor into its pointer: `tensor.data_ptr()` is a Python method call per argument, and `ctypes` calls the function.

# %%
import inspect

from miniinductor.toolchain.cpp import Kernel

Code(inspect.getsource(Kernel), "python", "miniinductor/toolchain/cpp.py")

# %% [markdown]
# The first lines turn tensors into an array of pointers. Then the kernel is called, with Python's lock let go, so
# that other threads can run meanwhile. The part about the profiler is for those who look. What does it
# cost?

# %% tags=["volatile"]
(nothing,) = build_kernels([('extern "C" int NAME(void** args) { return 0; }', "nothing")])
a, b = torch.empty(16), torch.empty(16)

pointers = ctypes.c_void_p * 2
library_function = ctypes.CDLL(None).getpid         # any C function that does next to nothing

def through_ctypes():
    library_function(pointers(a.data_ptr(), b.data_ptr()))

timings = interleave({"our launcher": lambda: nothing(a, b), "ctypes and data_ptr()": through_ctypes,
                      "the cheapest eager operation: a.detach()": lambda: a.detach(),
                      "an eager operation: torch.add(a, b, out=b)": lambda: torch.add(a, b, out=b)}, budget=1)
ours, _, cheapest, _ = (timing.median for timing in timings.values())
print(f"our launcher takes {ours / cheapest:.0%} of the time of eager's cheapest operation")
Table(["", "microseconds per call"], [(name, f"{t.median * 1e6:.2f}") for name, t in timings.items()])

# %% [markdown]
# Below 100 % a kernel is started in less time than eager needs for an operation that computes nothing.
#
# ## Autotuning
#
# Many choices cannot be made by thinking: how large is a tile, how many threads? The number that is best depends on caches, registers, and on what else the kernel does. So: build several, time
# them, keep the winner, and remember it on disk.
#
# The C++ generator copies transposed reads through tiles (notebook 11). Their shape is a constant, chosen by timing on one machine. Here it is timed on yours:

# %% tags=["volatile"] alt="Bars from zero: the time of a transposed addition for each shape of the tile, with quartiles; the generator's choice is blue"
from miniinductor.codegen.cpp import layouts

def add_transposed(x, y):
    return x + y.t()

m = 2048
x, y = torch.randn(m, m), torch.randn(m, m)
captured = []                           # the graph, captured once; compiled once per tile
minidynamo.compile(add_transposed, backend=lambda gm, inputs: captured.append((gm, inputs)) or gm)(x, y)
(graph, inputs), = captured
variants = {}
usual = layouts.TILE
for shape in ((8, 8), (32, 32), (64, 64), (128, 128), (256, 128), (512, 16)):
    layouts.TILE = shape
    compiled = miniinductor.compile_fx(graph, inputs)
    variants["{} x {}".format(*shape)] = lambda compiled=compiled: compiled(*inputs)
layouts.TILE = usual
chosen = "{} x {}".format(*usual)
keep_freed_memory()                     # no fresh pages from here on
timings = interleave(variants, budget=4)

import matplotlib.pyplot as plt

figure, axis = plt.subplots()
medians = [timings[name].median * 1e3 for name in variants]
quartiles = [sorted(timings[name].seconds) for name in variants]
low = [m - q[len(q) // 4] * 1e3 for m, q in zip(medians, quartiles)]
high = [q[3 * len(q) // 4] * 1e3 - m for m, q in zip(medians, quartiles)]
axis.bar(range(len(variants)), medians, color=["C0" if name == chosen else "C2" for name in variants])
axis.errorbar(range(len(variants)), medians, [low, high], fmt="none", color="black", capsize=3)
axis.set_xticks(range(len(variants)), variants)
axis.set(
    ylabel="milliseconds\n(shorter is better)",
    title=f"x + y.t(), {m} x {m}, by shape of the tile (blue: the generator's choice)",
);

# %% [markdown]
# A bar is a shape of the tile; the thin line on it spans the quartiles. Where two of these lines overlap,
# neither shape is shown to be better.
#
# For Triton the choice is made while the user's program is compiled. A kernel that moves many bytes is timed with each of its candidates (notebook 12), interleaved, on tensors of the right sizes; `mode="max-autotune"`
# does so for every kernel. The winner's name is stored beside the machine code, so it is found once per machine:

# %%
from miniinductor.codegen.triton.build import CudaCode

excerpt(CudaCode.timed)

# %% [markdown]
# It makes tensors of the right sizes (`example`), one callable for each configuration, and times them.
# The winner is taken here:

# %%
excerpt(CudaCode.choose)

# %% [markdown]
# A configuration that needs more registers or shared memory than there are is refused by the driver. It
# is left out; the others race.
#
# Three details matter. The candidates take turns, so that a machine that slows down hurts all of them. The *lower quartile* counts: what disturbs a run can only add to it, and the minimum rewards luck. And the
# random number generator is left alone: tuning must not change the program that asked for it.
#
# ## A product from a template
#
# A fast matrix product is not found by lowering loops. Its shape is known (tiles, an accumulator in
# registers, a walk along the inner axis), so a person writes it once, with holes, and the compiler
# fills the holes in. `TEMPLATE` in `miniinductor/codegen/triton/products.py` is that text. The holes are sizes,
# pointers, masks and, behind the loop, the *epilogue*: the pointwise work that reads the product
# while it still is in registers. Here a product, a bias and a GELU become one kernel, which runs in
# Triton's interpreter:

# %%
def product_gelu(a, b, c):
    return torch.nn.functional.gelu(a @ b + c)

a, b, c = torch.randn(100, 70), torch.randn(70, 90), torch.randn(90)
with miniinductor.config.patch(cpu_backend="triton", matmul_templates="always"):
    e = minidynamo.explain(product_gelu)(a, b, c)
    close = torch.allclose(minidynamo.compile(product_gelu)(a, b, c), product_gelu(a, b, c), atol=1e-5)
source = e.main.compiled.kernels[0].source
loop = source[source.index("    product = tl.zeros"):]
print("kernels:", len(e.main.compiled.kernels), " as eager:", close)
Code(loop.rstrip(), "triton", "the loop and the epilogue, as filled in")

# %% [markdown]
# The first lines are the template's, the `tmp` lines came from the loop IR. Nothing is stored between
# them. The sizes of the tiles are still open: `MBLOCK`, `NBLOCK`, `KBLOCK` are arguments.
#
# Which tiles? The tuner's list depends on the sizes. A large product wants large tiles, because a
# tile of m x n loads m + n numbers for each m * n multiplications. A small product wants many
# programs, one for each processor at least. For an H100:

# %%
from miniinductor.codegen.triton.tile_plan import PROCESSORS, product_configs

os.environ["TRITON_INTERPRET"] = "0"    # the list for a GPU; the interpreter has a shorter one
rows = []
for sizes in ((4096, 4096, 4096), (512, 512, 512), (64, 4096, 4096)):
    for config in product_configs(dict(zip("mnk", sizes)))[:3]:
        m, n = config.block("m"), config.block("n")
        programs = -(-sizes[0] // m) * -(-sizes[1] // n)
        rows.append((" x ".join(map(str, sizes)), str(config), programs, f"{m * n / (m + n):.0f}"))
os.environ["TRITON_INTERPRET"] = "1"
Table(["m x n x k", "candidate", "programs", "multiplications per number loaded"], rows,
      f"the first three candidates of each product, for {PROCESSORS} processors")

# %% [markdown]
# The middle product could use large tiles too, but then most processors would have nothing to do.
# Two figures pull in opposite directions, so the list is a guess and the clock decides. There is one
# more rival: the library. An earlier version of our compiler timed the fused kernel against a library
# call with a kernel behind it (PyTorch does: `torch/_inductor/select_algorithm.py`).
#
# Was it worth it? These figures were *recorded* on the machine that the title names. (There `c` is a
# whole matrix.) Eager runs a library product, an addition and a GELU. Ours runs
# the library's product and one kernel for the rest; with `max-autotune` it held that race:

# %%
from benchmarks.plots import recorded, where_recorded

run = recorded("h100_gpu_kernels")
row = next(row for row in run["rows"] if row["name"].startswith("gelu(a@b+c)"))
Table(["variant", "ms", "quartiles", "first call, s"],
      [(name, f"{ms:.4f}", "{:.4f} to {:.4f}".format(*row["ms quartiles"][name]), f"{row['compile s'][name]:.1f}" if name in row["compile s"] else "-")
       for name, ms in row["ms"].items()], f"{row['name']}, {where_recorded(run)}")

# %% [markdown]
# Compare differences with the quartiles before you believe them. The same as two factors:

# %%
ms = row["ms"]
print(f"one kernel behind the library's product instead of two: {ms['eager'] / ms['ours']:.2f} times faster than eager")
print(f"the race on top of that: {ms['ours'] / ms['ours max-autotune']:.3f} times")

# %% [markdown]
# For a large square product the race brought nothing that exceeds the quartiles, and it cost compile
# time: the library was written for such shapes. Tuning pays where nobody has tuned before. So we left
# the race out: the template is used where the rows of the result have an odd length, as GPT-2's logits
# have.
#
# ## CUDA Graphs: record and replay
#
# A GPU executes what is in its queue. If the CPU needs longer to queue a kernel than the kernel runs, the GPU waits most of the time. Small models are slow for this reason only. The remedy: record the
# queue once, and let the GPU replay all of it at one command.
#
# The idea fits into a few lines on the CPU. A *stream* launches kernels; while it captures, it writes them down instead, with the **addresses** of their arguments:

# %% tags=["support"]
class Stream:
    """launch(kernel, *tensors): runs it, or, while capturing, only writes it down.  replay(): all of that, again."""

    def __init__(self):
        self.capturing, self.log = False, []

    def launch(self, kernel, *tensors):
        if self.capturing:
            self.log.append((kernel, tensors))
        else:
            kernel(*tensors)

    def replay(self):
        for kernel, tensors in self.log:
            kernel(*tensors)

# %%
def ten_times(stream, x):
    """x + 10, in ten launches."""
    for _ in range(10):
        out = torch.empty(16)
        stream.launch(kernel, x, out)
        x = out
    return out

stream, x = Stream(), torch.zeros(16)
stream.capturing = True
recorded_output = ten_times(stream, x)
stream.capturing = False
stream.replay()
print("recorded with 0:", recorded_output[0].item())

# %% [markdown]
# Ten launches were replayed, and each added one. Now use it for another input. **Trap 1:** the recording holds the address of the *old* input:

# %%
def naive_graphed(new_x):
    stream.replay()
    return recorded_output

print("for 5:", naive_graphed(torch.full((16,), 5.0))[0].item(), "  should be 15")

# %% [markdown]
# So the recording must have an input of its own, into which each call copies. **Trap 2** is the arena's: the output is overwritten by the next replay. **Trap 3:** Python ran once, while recording; a branch
# or a number that came from a tensor's value is frozen. In a recording, nothing has been computed yet, so a program that asks for a value must be refused.
#
# Our code for real CUDA graphs does exactly this, once per stream:

# %%
from miniinductor.runtime import cuda_graphs

excerpt(cuda_graphs.Recording.replay_now)

# %% [markdown]
# `own` are the recording's own inputs: each call copies into them (trap 1). `play` starts the recorded
# kernels. What the program writes to is copied back, and results are copied out (trap 2). A graph that
# must not be recorded is refused before (trap 3):

# %%
excerpt(cuda_graphs.refusal)

# %% [markdown]
# On this machine's CPU, the mode is accepted and the refusal recorded:

# %%
e = minidynamo.explain(model, mode="reduce-overhead")(h)
print("\n".join(e.main.compiled.notes_of("CUDA graph")) or "recorded")

# %% [markdown]
# That is the first answer of `refusal`. What a recording brings, **recorded** on the machine in the title. The same compiled kernels, without and with a CUDA graph:

# %% alt="Bars from zero: milliseconds per call of each model with and without a CUDA graph, for eager, ours and torch.compile"
from benchmarks.plots import recorded, recorded_bars, where_recorded

run = recorded("h100_gpu_models")
rows = {r["name"]: r for r in run["rows"]}
pairs = [name for name in rows if name + ", CUDA graphs" in rows]
recorded_bars(run, "ms", ("eager", "ours", "torch.compile"),
              rows=[n for name in pairs for n in (name, name + ", CUDA graphs")], label="milliseconds per call");

# %% [markdown]
# Two rows belong together: a model without a recording, and below it the same with one. As numbers:

# %%
Table(["model", "eager", "ours", "ours, CUDA graphs", "torch.compile, CUDA graphs"],
      [(name, *(f"{value:.2f}" for value in (rows[name]["ms"]["eager"], rows[name]["ms"]["ours"],
                                             rows[name + ", CUDA graphs"]["ms"]["ours"],
                                             rows[name + ", CUDA graphs"]["ms"]["torch.compile"]))) for name in pairs],
      f"milliseconds; {where_recorded(run)}")

# %% [markdown]
# The small calls gain most. If this machine has a GPU, the first pair of rows runs here:

# %% tags=["volatile"]
from benchmarks.runner import on_this_gpu

print(on_this_gpu("gpu-models", "GPT-2 b1 s64"))

# %% [markdown]
# One sentence of text through GPT-2 is hardly any work for a GPU: most of the time was spent on launching. A batch of images in float32 keeps the GPU busy by itself, and the recording
# brings little; in bfloat16, where the same kernels take half as long, launches show again. A recording has a price, too: inputs are copied in, results are copied out. In a training step the launches are
# hidden behind long kernels, and nothing is left to gain. What each recording brought, and how far eager's own time differs between the two rows of a pair (both
# were measured: a difference smaller than that shows nothing):

# %%
for name in pairs:
    without, within = rows[name]["ms"], rows[name + ", CUDA graphs"]["ms"]
    spread, gain = abs(without["eager"] / within["eager"] - 1), without["ours"] / within["ours"]
    if abs(gain - 1) <= spread:
        said = "nothing is shown, the measurements differ by more"
    else:
        said = "a gain" if gain > 1 else "a loss"
    print(f"{name:30} {gain:4.2f} times as fast; eager differs by {spread:4.0%}: {said}")

# %% [markdown]
# A recording is worth most where the kernels are short. Where they are long, nothing can be shown.
#
# ## Exercises
#
# **13.1** (warm-up) *Place a buffer.* Write `lowest_gap(taken, size)`: `taken` are `(offset, length)` pairs of blocks that are in use at the same time (in any order; they may overlap each other). Return the lowest offset
# at which `size` bytes are free. The check puts it into the real wrapper and compiles a GPT-2 layer with it.
#
# *Hints.* Sort. Walk upwards, remembering how far the blocks seen so far reach. A gap that is exactly large enough is large enough.

# %% tags=["exercise"]
def lowest_gap(taken: list, size: int) -> int:
    """The lowest offset where `size` bytes are free."""
    ### BEGIN SOLUTION
    offset = 0
    for start, length in sorted(taken):
        if start - offset >= size:
            break
        offset = max(offset, start + length)
    return offset
    ### END SOLUTION

# %% tags=["check"]
from exercises import check

check("13.1", lowest_gap)

# %% [markdown]
# **13.2** (core) *Record and replay, right.* Write `graphed(program)`: `program(stream, x)` launches kernels on a `Stream` and returns a tensor. `graphed` returns a function of `x` that captures in its first call and
# replays in all calls, avoiding traps 1 and 2. The check records a compiled kernel of a real graph with it.
#
# *Hints.* An input of its own: `torch.empty_like(x)`, filled with `copy_`. Capturing computes nothing, so the first call must replay, too. Return a `clone`.

# %% tags=["exercise"]
def graphed(program):
    """A function of x that replays what program(stream, x) launched."""
    ### BEGIN SOLUTION
    stream, state = Stream(), {}

    def call(x):
        if not state:
            state["input"] = torch.empty_like(x)
            stream.capturing = True
            state["output"] = program(stream, state["input"])
            stream.capturing = False
        state["input"].copy_(x)
        stream.replay()
        return state["output"].clone()
    return call
    ### END SOLUTION

# %% tags=["check"]
check("13.2", graphed)

# %% [markdown]
# **13.3** (stretch) *Choose by timing.* Write `fastest(candidates, seconds, rounds)`: `seconds(candidate)` runs it once and returns how long that took. The machine is not kind: single runs are interrupted and take ten times
# as long, and the whole machine gets slower while you measure. At most `rounds` calls per candidate.
#
# *Hints.* `statistics.median`. In which order do you measure?

# %% tags=["exercise"]
import statistics

def fastest(candidates: list, seconds, rounds: int = 9):
    """The candidate with the smallest typical time."""
    ### BEGIN SOLUTION
    times = {candidate: [] for candidate in candidates}
    for _ in range(rounds):
        for candidate in candidates:
            times[candidate].append(seconds(candidate))
    return min(candidates, key=lambda candidate: statistics.median(times[candidate]))
    ### END SOLUTION

# %% tags=["check"]
check("13.3", fastest)

# %% [markdown]
# **13.4** (stretch) *The whole plan.* Write `place_all(lives)`: `lives` is a list of `(name, size, first, last)`: a buffer
# lives from its first step to its last, both included. Return `{name: offset}`. No two that live at one
# step may overlap. Place the largest first, each at the lowest gap; of equals, the one that begins
# first.
#
# *Hints.* `lowest_gap` wants the blocks in use at the same time: those placed already whose lives touch
# this one's.
#
# <details><summary>Predict: why the largest first?</summary>
#
# A small block in the wrong place splits a gap. Large ones fit into few gaps, so they choose first.
#
# </details>

# %% tags=["exercise"]
def place_all(lives: list) -> dict:
    """{name: offset}, so that what lives at one time does not overlap."""
    ### BEGIN SOLUTION
    offsets, placed = {}, []
    for name, size, first, last in sorted(lives, key=lambda life: (-life[1], life[2])):
        taken = [(offsets[n], s) for n, s, a, b in placed if a <= last and first <= b]
        offsets[name] = lowest_gap(taken, size)
        placed.append((name, size, first, last))
    return offsets
    ### END SOLUTION

# %% tags=["check"]
check("13.4", place_all)

# %% [markdown]
# ## Your own compiler: memory and the wrapper
#
# **The piece.** The wrapper calls the kernels in their order. You write its text, and the call of one
# unit. Three decisions of the memory planner are yours: what others read, which memory a buffer gets,
# and what may be used again behind a unit. At the end stands the way back: when a graph needs two
# halves, how they are made, and the backward half, as autograd calls it.
#
# <details><summary>Hint: calls</summary>
#
# A product of matrices is `EAGER[...]`. A kernel gets its buffers, then the symbols. The lines of
# `call` are indented by four spaces. `text_of(shape)` is a shape as a text.
#
# </details>
# <details><summary>Hint: memory</summary>
#
# A free buffer fits if it has as many elements, as a text (sizes may be symbols), and the same
# dtype.
#
# </details>
# <details><summary>Hint: letting go</summary>
#
# What an output needs is never free. What torch has allocated cannot be used again by us; `del`
# gives it back. What a kernel keeps in registers was never a variable: a `del` of it would raise
# `NameError`. The inputs are the caller's: they may stay.
#
# </details>
# <details><summary>Hint: gradients</summary>
#
# `ctx` has what `forward` left there: `halves`, `sizes`, `number` and `saved_tensors`. autograd wants
# one value for each argument of `forward`: `None` for `halves` and for `sizes`, then one for each
# tensor.
#
# The two halves: `differentiate(graph, wanted)` appends to the graph, so remember inputs and outputs
# before. It returns the tangents and the gradients, both of which `cut` asks for. A wanted
# input may have no gradient (`None`). What `cut` returns is an output of the forward half, behind the
# others, and an input of the backward half, in front of the tangents.
#
# </details>

# %%
from exercises.own_compiler import begin

begin("program");

# %% [markdown]
# The line names what is yours. Write it in that file, then ask for a check, as often as you like:

# %% tags=["check", "piece"]
from exercises.own_checks import check_piece

check_piece("program")

# %% [markdown]
# ## What else lives here
#
# Every public name of this chapter's core files, with one sentence each. Unfold a file, then a name:
# its first lines are there. The list is made from the sources when the page is built.

# %% tags=["volatile"]
from minidynamo.explain import also_here

also_here("miniinductor/runtime/memory.py", "miniinductor/runtime/wrapper.py", "miniinductor/runtime/")

# %% [markdown]
# ## What real PyTorch has
#
# * `torch/_inductor/codegen/wrapper.py`, `torch/_inductor/codegen/cpp_wrapper_cpu.py`: the Python wrapper, and one in C++ (AOTInductor: a whole model as one shared library). Paper, section 4.
# * `torch/_inductor/memory.py`, `torch/_inductor/codegen/memory_planning.py`: reordering for peak memory; in-place reuse of buffers of equal size; pools.
# * `torch/_inductor/cudagraph_trees.py`: several recordings that share one pool and hand outputs to each other without copies (ours copies outputs).
# * `torch/_inductor/select_algorithm.py`: autotuning among templates and library kernels.
#
# **See it in the real `torch.compile`.** `TORCH_LOGS=output_code python program.py` prints the wrapper. `TORCH_LOGS=cudagraphs` says what was
# recorded, and `TORCH_LOGS=autotuning` which candidate won.
#
# ## Recap
#
# * The wrapper is generated straight-line code; everything that can be decided before the call has been.
# * Lifetimes give an arena; outputs and their aliases stay out of it.
# * Time candidates in turns and compare medians; remember the winner.
# * A recording holds addresses: inputs are copied in, outputs copied out, values must not be asked for.
#
# Next: what if the sizes change?
