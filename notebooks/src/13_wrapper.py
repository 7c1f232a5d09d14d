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
# Kernels compute. Something must call them in order, give them memory, and return the results. The
# **wrapper** does this on every call, so it must cost next to nothing. It also decides how much
# memory the program needs, and whether a GPU has to wait for the CPU.
#
# **What you will learn:** what a call costs besides its kernels; the generated wrapper; lifetimes
# and an arena; why outputs are special; the launcher; how timing chooses block sizes, and how
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
from minidynamo.explain import Code, Table
from miniinductor.toolchain import build_kernels

torch.manual_seed(0)
torch.set_grad_enabled(False);

# %% [markdown]
# ## The naive version: walk over the graph
#
# The obvious way to run a list of kernels is to walk over the list. For each kernel, the loop looks up
# the inputs, allocates the output, calls the kernel, and stores the result under its name. The next cell
# runs ten small kernels in such a loop, and in straight-line code:

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
# Both give the same result. The second version is a plain program: it decides nothing and looks nothing
# up. How much time does that save?
# <!-- shows: has("both: 10.0 10.0") and count("kernel(") == 10 -->

# %% tags=["volatile"]
timings = interleave({"walk": lambda: walk(x), "straight-line": lambda: straight(x),
                      "nine allocations, and nothing else": lambda: [torch.empty(16) for _ in range(9)],
                      "eager": lambda: x + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1}, budget=1)
Table(["", "microseconds per call"], [(name, f"{t.median * 1e6:.1f}") for name, t in timings.items()],
      "ten kernels on 16 numbers")

# %% [markdown]
# The straight-line code takes less time. It makes nine fewer allocations (the third row shows their
# cost), and it looks nothing up.
# <!-- shows: n("straight-line") < n("walk") -->
#
# For large tensors, allocation has another cost. The operating system must map and clear a fresh page of
# memory when the program first touches it. The next cell writes 64 MB into memory that it keeps, and into
# fresh memory:

# %% tags=["volatile"]
torch.set_num_threads(1)                # other processes disturb one core least
size = 16 << 20
old = torch.empty(size)
timings = interleave({"write into kept memory": lambda: old.fill_(1.0),
                      "write into fresh memory": lambda: torch.empty(size).fill_(1.0)}, budget=1.5)
kept, fresh = (timing.median for timing in timings.values())
print(f"fresh memory takes {fresh / kept:.1f} times as long")
Table(["", "milliseconds"], [(name, f"{t.median * 1e3:.2f}") for name, t in timings.items()], "64 MB")

# %% [markdown]
# Writing into fresh memory takes several times as long, because the system maps and clears new
# pages in every call. Kept memory was mapped only once.
# <!-- shows: n("fresh memory takes") > 2 -->
#
# ## The wrapper
#
# So miniinductor writes straight-line Python, once per graph. It decides everything beforehand: sizes,
# strides, which bytes each buffer gets, and when a tensor may be freed.
#
# *The kitchen.* A slow cook reads the recipe line by line and looks for a free bowl each time. A good
# cook lays the table beforehand: every bowl is where the recipe needs it, and used bowls are used again.
# *Exactly:* the graph says when each buffer is alive, so the compiler can choose its place.

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
# `workspace` is the planned memory: a tuple with one tensor for each buffer. A call takes one
# workspace from a list, and puts it back at the end. Many library kernels have an `out=` form. The
# wrapper calls this form, so library kernels write into planned memory, too.
# <!-- shows: has("workspaces.pop()") -->
#
# The class `WrapperWriter` writes this text. The next excerpt writes one step. A *step* is a call
# of a kernel of ours or of a library:

# %%
from miniinductor.runtime import memory
from miniinductor.runtime.wrapper import WrapperWriter
from parts import part

part(WrapperWriter.emit, ("if isinstance(step", "self.emit_eager"))

# %% [markdown]
# `emit_kernel` writes the call of a kernel, and `emit_eager` the call of a library. The omitted
# lines add a `del` for tensors outside of the workspace that no later step reads.
#
# ## Memory planning
#
# Each buffer *lives* from the step that makes it to the last step that reads it. Two buffers may
# share bytes if they never live at the same time. The planner gives every buffer an offset in one
# piece of memory, the **arena**, of which each workspace has its own. It works in three steps:
#
# 1. Take the buffers in the order in which the program makes them.
# 2. Among the buffers that already have a place, find those that live at the same time. Their bytes
#    are taken.
# 3. Choose the lowest gap that is large enough.

# %%
part(memory.place_in_arena, ("offset = 0", "offset = max"))

# %% [markdown]
# `arena` lists the buffers that already have a place. `born` and `dies` are the first and the last
# step of the new buffer. The loop goes over the other buffers from low addresses to high ones, and
# stops at a gap that is large enough.
# <!-- general -->
#
# One more rule saves memory: writing *in place* (the option `in_place`). A kernel may read an
# element of a buffer for the last time, and then write the same element of its own result. Then the
# result may take the buffer's bytes. In the next picture such a buffer ends one step before that
# kernel.
#
# The next picture shows each step of the wrapper, from left to right. It stacks the buffers that live at
# that step, so the height is the memory in use. A solid box is in the arena. A dashed box is a tensor of
# its own:

# %%
e.memory_picture

# %% [markdown]
# The height never exceeds three buffers. The next picture shows the arena itself, step by step.
# (Use the buttons, or the arrow keys.) A new buffer takes bytes that have become free:
# <!-- shows: n("at most") == 3 * 65536 -->

# %%
from steppers import arena_walk

arena_walk(e.memory_picture)

# %% [markdown]
# Seven buffers share the bytes of two. The next cell compiles the same program with
# `buffer_reuse=False`, so that every buffer has memory of its own:
# <!-- shows: n("8 steps, an arena of") == 2 * 65536 -->

# %%
with miniinductor.config.patch(buffer_reuse=False):
    without = minidynamo.explain(model)(h)
without.memory_picture

# %% [markdown]
# Every box is dashed now. The peak is the same as before, but each call allocates all eight buffers
# anew.
# <!-- shows: n("at most") == 196608 and n("arena") == 0 and n("tensors of their own") == 8 * 65536 -->
#
# The first gap is not always the best one, and finding the best plan is as hard as bin packing. The
# planner takes the first gap because that is fast.
#
# ### What must not lie in the arena
#
# The next call uses the arena again. So a result in the arena changes after the caller has received it:

# %%
arena = torch.empty(3)

def careless(x):
    torch.mul(x, 2, out=arena)
    return arena

first = careless(torch.ones(3))
second = careless(torch.ones(3) * 5)
print("the first result, after the second call:", first)

# %% [markdown]
# The second call has overwritten the first result.
# <!-- shows: count("10.") == 3 -->
#
# So graph outputs are fresh tensors, outside of the arena. The same holds for every buffer that an
# output may *alias*, which means that both share memory. An eager kernel's schema (its declared
# signature) may say that its result can be a view of an argument. Such an argument stays out of the
# arena. Threads and recursive calls take different arenas from a list, and put them back.
#
# ## A real model
#
# The next picture shows GPT-2 with all layers. It leaves out the last product, whose result would be
# larger than everything else. The dashed stairs are keys and values of each layer. They are outputs (the
# cache for generating the next token), so they must stay. The other dashed boxes are results that
# library kernels allocate themselves:

# %%
from benchmarks.models import gpt2

gpt, inputs = gpt2()
g = minidynamo.explain(gpt.transformer)(**inputs)
g.memory_picture

# %% [markdown]
# Height is bytes, and left to right is time. The top edge is the peak. Who allocates the tensors outside
# the arena?

# %%
from collections import Counter

picture = g.memory_picture
own = [(picture.steps[first], last == len(picture.steps) - 1) for _, offset, _, first, last in picture.blocks if offset is None]
Table(["allocated by", "lives to the end", "tensors of their own"],
      [(step, "yes" if stays else "no", n) for (step, stays), n in
       Counter((step.rstrip("_0123456789"), stays) for step, stays in own).most_common(6)], "the most frequent")

# %% [markdown]
# `_linear_pointwise` is a product of the library oneDNN, which makes its own result. The row `buf`
# counts kernels with several results, here attention. The 24 tensors of `split_transpose_cat` are
# the keys and values: they live to the end because the graph returns them. The other tensors are
# freed earlier, except three of the last step: the two that it reads, and the model's result.
# <!-- shows: n("split_transpose_cat") == 24 and n("_linear_pointwise") > 24 -->
#
# ## The launcher
#
# A kernel is a C function that takes an array of pointers. The **launcher** turns tensors into these
# pointers and calls the function. `tensor.data_ptr()` is a Python method call for each argument, and
# `ctypes` calls the function:

# %%
from miniinductor.toolchain import Kernel

part(Kernel.__call__, ("numbers =", "error = self.function"))

# %% [markdown]
# `struct.pack` makes the array of pointers. `self.function` then calls the kernel and releases Python's
# lock, so that other threads can run meanwhile. (Under `torch.profiler`, the kernel's name appears in the
# profile.) What does a launch cost?

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
# A launch takes about as long as a small eager addition, and longer than eager's cheapest operation. But
# one launch replaces all the operations that the kernel fuses.
# <!-- shows: n("cheapest eager operation: a.detach()") < n("our launcher  ") < 2 * n("torch.add(a, b, out=b)") -->
#
# ## Autotuning
#
# Nobody can compute the best size of a tile, or the best number of threads. Both depend on caches,
# on registers, and on what else the kernel does. So a compiler builds several versions, times them,
# keeps the winner, and remembers it on disk. This is **autotuning**.
#
# The C++ generator adds a row up in several *lanes*, which lie side by side in vector registers
# (notebook 11). Their number is a constant that we chose by timing on one machine. The next cell times
# several numbers on yours:

# %% tags=["volatile"] alt="Bars from zero: the time of sums of rows for each number of lanes, with quartiles; the generator's choice is blue"
from miniinductor.codegen.cpp import lanes

def sums_of_rows(x, y):
    return (x * y).sum(1)

m, n = 256, 1024
x, y = torch.randn(m, n), torch.randn(m, n)
captured = []                           # the graph, captured once; compiled once per number
minidynamo.compile(sums_of_rows, backend=lambda gm, inputs: captured.append((gm, inputs)) or gm)(x, y)
(graph, inputs), = captured
variants = {}
usual = lanes.WIDTHS
for most in (4, 8, 16, 32, 64, 128):
    lanes.WIDTHS = tuple(most >> k for k in range(most.bit_length()))       # the last elements take fewer
    compiled = miniinductor.compile_fx(graph, inputs)
    variants[f"{most} lanes"] = lambda compiled=compiled: compiled(*inputs)
lanes.WIDTHS = usual
chosen = f"{usual[0]} lanes"
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
    title=f"(x * y).sum(1), {m} x {n}, by number of lanes (blue: the generator's choice)",
);

# %% [markdown]
# Each bar is a number of lanes, and the thin line on it spans the quartiles. Where two of these lines
# overlap, the measurement shows no difference.
# <!-- general -->
#
# A Triton kernel is tuned while your program is compiled. The tuner takes each kernel that moves
# many bytes, and times its candidates (notebook 12) on tensors of the right sizes. With
# `mode="max-autotune"` it does so for every kernel. The next cell is such a tuner in a few lines,
# with the numbers of lanes above as candidates:

# %% tags=["volatile"]
import statistics

def too_large():
    raise RuntimeError("it needs more memory than there is")

def race(candidates, budget=2):
    """The name of the fastest; candidates: name -> a function that loads it, or raises RuntimeError."""
    ready = {}
    for name, load in candidates.items():
        try:
            ready[name] = load()
        except RuntimeError as error:
            print(f"{name} is left out: {error}")
    timings = interleave(ready, budget=budget)
    return min(timings, key=lambda name: statistics.quantiles(timings[name].seconds, n=4)[0])

candidates = {name: (lambda run=run: run) for name, run in variants.items()} | {"9999 lanes": too_large}
print("the winner is", race(candidates))

# %% [markdown]
# A GPU's driver refuses a configuration that needs more registers or shared memory than a processor
# has. The tuner leaves such a configuration out, and times the others.
# <!-- shows: has("9999 lanes is left out") and has("the winner is") -->
#
# Three details matter. The candidates take turns, so a machine that slows down hurts all of them.
# The *lower quartile* counts: a disturbance can only add time, and the minimum would depend on a
# single run. And the real tuner leaves the random number generator alone, because tuning must not
# change the program's numbers. `CudaCode.choose` in `miniinductor/codegen/triton/build.py` is that
# tuner. It stores the winner's name beside the machine code, so each machine tunes a kernel once.
#
# ## A product from a template
#
# Lowering to loops does not give a fast matrix product. But the form of a fast one is known: tiles,
# an accumulator in registers, a walk along the inner axis. So a person writes the kernel once, with
# holes, and the compiler fills the holes. `TEMPLATE` in `miniinductor/codegen/triton/products.py`
# is that text. Its holes are sizes, pointers, masks and the *epilogue* after the loop. The epilogue
# is the pointwise work that reads the product while the product is still in registers. In the next
# cell a product, a bias and a GELU become one kernel, which runs in Triton's interpreter:

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
# The template wrote the first lines; the `tmp` lines came from the loop IR. The kernel stores nothing
# between them. `MBLOCK`, `NBLOCK` and `KBLOCK`, the sizes of the tiles, are still arguments.
# <!-- shows: n("kernels:") == 1 and has("as eager: True") -->
#
# Which tiles are best? The tuner's list depends on the sizes. A large product is fast with large
# tiles, because a tile of m x n loads m + n numbers for each m * n multiplications. A small product
# needs many programs, at least one for each processor. The next table has the list for an H100:

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
# The product of 512 could use large tiles, too, but then most processors would have nothing to do. Its
# first candidate has 128 programs, nearly one for each processor.
# <!-- shows: n("512 x 512 x 512", 4) == 128 and n("4096 x 4096 x 4096", 5) > n("512 x 512 x 512", 5) -->
#
# Large tiles improve the last column, and small tiles give more programs. No formula weighs one
# against the other, so the compiler times the candidates. A library kernel can be one more
# candidate. An earlier version of our compiler timed the fused kernel against a library call that
# is followed by a second kernel. PyTorch still does this (`torch/_inductor/select_algorithm.py`).
#
# Was it worth timing the template against the library? These figures were *recorded* on the machine
# that the title names. (In them, `c` is a whole matrix.) Eager runs a library product, an addition
# and a GELU. Ours runs the library's product and one kernel for the rest. When this was recorded,
# `max-autotune` also timed the fused template against these two kernels:

# %%
from benchmarks.plots import recorded, where_recorded

run = recorded("h100_gpu_kernels")
row = next(row for row in run["rows"] if row["name"].startswith("gelu(a@b+c)"))
Table(["variant", "ms", "quartiles", "first call, s"],
      [(name, f"{ms:.4f}", "{:.4f} to {:.4f}".format(*row["ms quartiles"][name]), f"{row['compile s'][name]:.1f}" if name in row["compile s"] else "-")
       for name, ms in row["ms"].items()], f"{row['name']}, {where_recorded(run)}")

# %% [markdown]
# Compare a difference with the quartiles before you believe it. The next cell computes two factors:
# <!-- general -->

# %%
ms = row["ms"]
print(f"one kernel behind the library's product instead of two: {ms['eager'] / ms['ours']:.2f} times faster than eager")
print(f"the race on top of that: {ms['ours'] / ms['ours max-autotune']:.3f} times")

# %% [markdown]
# For this product the gain of the race between the two is smaller than the quartiles, and the race
# took compile time. The authors of the library have tuned it for large square products. For other
# shapes a race may gain more.
# <!-- shows: n("two:") > 1.05 and abs(n("the race on top of that:") - 1) < 0.01 -->
#
# So we removed the race. Our compiler uses the template for results whose rows have an odd number
# of elements, as GPT-2's logits have. The library is slow for such rows.
#
# ## CUDA Graphs: record and replay
#
# A GPU executes what is in its queue. If the CPU needs longer to queue a kernel than the kernel
# runs, the GPU waits. Small models are often slow for this reason. The remedy is to record the
# queue once. The GPU then replays all of it at one command.
#
# A few lines on the CPU show the idea. A *stream* launches kernels. While it captures, it writes them
# down instead, with the **addresses** of their arguments:

# %% tags=["support"]
class Stream:
    """launch(kernel, *tensors) runs the kernel; while capturing it only records it.  replay() runs the record."""

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
# The stream replayed ten launches, and each launch added one. Now use the recording for another input.
# **Trap 1:** the recording holds the address of the *old* input:
# <!-- shows: n("recorded with 0:") == 10 -->

# %%
def naive_graphed(new_x):
    stream.replay()
    return recorded_output

print("for 5:", naive_graphed(torch.full((16,), 5.0))[0].item(), "  should be 15")

# %% [markdown]
# The replay ignores the new input. So the recording must have an input of its own, into which each call
# copies.
# <!-- shows: n("for 5:") == 10 -->
#
# **Trap 2** is the trap of the arena: the next replay overwrites the output. **Trap 3:** Python ran
# only once, while recording. So a branch or a number that depends on a tensor's value is frozen. A
# stream that captures computes nothing, so it must refuse a program that asks for a value.
#
# Our code for real CUDA graphs copies inputs before each replay:

# %%
from miniinductor.runtime import cuda_graphs

part(cuda_graphs.Recording.replay, ("if self.own", "inputs[i].copy_"))

# %% [markdown]
# `own` holds the recording's own inputs, and each call copies into them (trap 1). `play` starts the
# recorded kernels. The loop copies back what the program writes to its inputs. The rest of the method
# copies the results out (trap 2). Another function refuses a graph that must not be recorded (trap 3):
# <!-- general -->

# %%
part(cuda_graphs.refusal, ("for buffer in", "return f"))

# %% [markdown]
# A `tag` of an operation can say that Python needs the value of the result, or that its shape
# depends on values. The mode `reduce-overhead` asks for CUDA graphs. This machine has no GPU, so
# the compiler accepts the mode, makes no CUDA graph, and records why:

# %%
e = minidynamo.explain(model, mode="reduce-overhead")(h)
print("\n".join(e.main.compiled.notes_of("CUDA graph")) or "recorded")

# %% [markdown]
# `refusal` asks for the device before it looks at tags. What would a recording bring on a GPU? The
# next figure was **recorded** on the machine that its title names. It shows the same compiled
# kernels, without and with a CUDA graph:
# <!-- shows: has("the graph does not run on a GPU") -->

# %% alt="Bars from zero: milliseconds per call of each model with and without a CUDA graph, for eager, ours and torch.compile"
from benchmarks.plots import recorded, recorded_bars, where_recorded

run = recorded("h100_gpu_models")
rows = {r["name"]: r for r in run["rows"]}
pairs = [name for name in rows if name + ", CUDA graphs" in rows]
recorded_bars(run, "ms", ("eager", "ours", "torch.compile"),
              rows=[n for name in pairs for n in (name, name + ", CUDA graphs")], label="milliseconds per call");

# %% [markdown]
# Two rows belong together: a model without a recording, and below it the same model with one. The next
# table has the same figures as numbers:
# <!-- general -->

# %%
Table(["model", "eager", "ours", "ours, CUDA graphs", "torch.compile, CUDA graphs"],
      [(name, *(f"{value:.2f}" for value in (rows[name]["ms"]["eager"], rows[name]["ms"]["ours"],
                                             rows[name + ", CUDA graphs"]["ms"]["ours"],
                                             rows[name + ", CUDA graphs"]["ms"]["torch.compile"]))) for name in pairs],
      f"milliseconds; {where_recorded(run)}")

# %% [markdown]
# Models with short kernels gain most. One sentence of text through GPT-2 is little work for a GPU:
# without the recording, launches took most of the time.
# <!-- shows: n("GPT-2 b1 s64 bf16", 1) > 2 * n("GPT-2 b1 s64 bf16", 2) and n("MobileNetV3 b32 bf16", 1) > 2 * n("MobileNetV3 b32 bf16", 2) -->
#
# A batch of images in float32 keeps the GPU busy, and the recording brings little. In bfloat16 the same
# kernels take about half as long, so launches matter again. A recording also has a price: each call
# copies inputs in and results out. In a training step, long kernels hide the launches, and nothing is
# left to gain.
# <!-- shows: 0.5 < n("ResNet-50 b32 bf16", 2) / n("ResNet-50 b32 fp32", 2) < 0.6 and n("training", 2) >= n("training", 1) -->
#
# If this machine has a GPU, the next cell runs the first pair of rows:

# %% tags=["volatile"]
from benchmarks.runner import on_this_gpu

print(on_this_gpu("gpu-models", "GPT-2 b1 s64"))

# %% [markdown]
# Is each gain larger than the noise? Eager does the same in both rows of a pair, so the difference of
# its two times is noise. The next cell compares each gain with that difference:
# <!-- general -->

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
# A recording is worth most where kernels are short. For the two models with long kernels the measurement
# shows nothing.
# <!-- shows: count("a gain") == 3 and count("nothing is shown") == 2 -->
#
# ## Exercises
#
# **13.1** (warm-up) *Place a buffer.* Write `lowest_gap(taken, size)`. `taken` has `(offset, length)` pairs of
# blocks that are in use at the same time, in any order; they may overlap each other. Return the lowest
# offset at which `size` bytes are free. The check puts your function into the real wrapper and compiles a
# GPT-2 layer with it.
#
# *Hints.* Sort the blocks. Walk upwards, and remember the highest end of the blocks that you have
# passed. A gap of exactly `size` bytes is large enough.

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
# **13.2** (core) *Record and replay, right.* Write `graphed(program)`. `program(stream, x)` launches kernels on a
# `Stream` and returns a tensor. `graphed` returns a function of `x`. This function captures in its first
# call, replays in every call, and avoids traps 1 and 2. The check records a compiled kernel of a real
# graph with it.
#
# *Hints.* Give the recording an input of its own with `torch.empty_like(x)`, and fill it with
# `copy_`. Capturing computes nothing, so the first call must replay, too. Return a `clone`.

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
# **13.3** (stretch) *Choose by timing.* Write `fastest(candidates, seconds, rounds)`.
# `seconds(candidate)` runs a candidate once and returns how long that took. The machine is noisy:
# some runs are interrupted and take ten times as long, and the whole machine gets slower while you
# measure. Make at most `rounds` calls per candidate.
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
# **13.4** (stretch) *The whole plan.* Write `place_all(lives)`. `lives` is a list of `(name, size,
# first, last)`: a buffer lives from its first step to its last, both included. Return `{name: offset}`.
# Two buffers that live at one step must not overlap. Place the largest buffer first, each at the lowest
# gap. If two buffers have equal size, first place the one that begins earlier.
#
# *Hints.* Pass to `lowest_gap` the blocks that are in use at the same time: the buffers that have a
# place and live at a step of the new buffer.
#
# <details><summary>Predict: why the largest first?</summary>
#
# A small block in the wrong place splits a gap. Large blocks fit into few gaps, so they choose first.
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
# **The piece.** The wrapper calls the kernels in order. You write its text, and the call of one unit.
# You also make three decisions of the memory planner: what other units read, which memory a buffer gets,
# and which memory is free after a unit. The last part is the backward graph: when a program needs one,
# how to make both graphs, and how autograd calls the backward graph.
#
# <details><summary>Hint: calls</summary>
#
# A product of matrices is `EAGER[...]`. A kernel gets its buffers, then the symbols. Indent the lines of
# `call` by four spaces. `text_of(shape)` is the text of a shape.
#
# </details>
# <details><summary>Hint: memory</summary>
#
# A free buffer fits if it has the same number of elements and the same dtype. Compare the numbers as
# text, because sizes may be symbols.
#
# </details>
# <details><summary>Hint: freeing memory</summary>
#
# What an output needs is never free. Your planner cannot reuse memory that torch has allocated;
# `del` gives it back. A value in registers was never a variable, so its `del` would raise
# `NameError`. The inputs belong to the caller, so you need not delete them.
#
# </details>
# <details><summary>Hint: gradients</summary>
#
# `ctx` has what `forward` left there: `halves`, `sizes`, `number` and `saved_tensors`. Autograd
# expects one value for each argument of `forward`: `None` for `halves` and for `sizes`, then one
# for each tensor.
#
# `differentiate(graph, wanted)` appends to the graph, so remember inputs and outputs before you
# call it. It returns the tangents and the gradients; pass both to `cut`. A wanted input may have no
# gradient (`None`). Each value that `cut` returns becomes an output of the forward graph, after the
# others. It also becomes an input of the backward graph, in front of the tangents.
#
# </details>

# %%
from exercises.own_compiler import begin

begin("program");

# %% [markdown]
# The output names the functions that you write. Edit that file, and run the check as often as you
# like:

# %% tags=["check", "piece"]
from exercises.own_checks import check_piece

check_piece("program")

# %% [markdown]
# ## What else lives here
#
# The next list has every public name of this chapter's core files, with one sentence each. Unfold a file,
# then a name, to see its first lines. The build makes the list from the sources.

# %% tags=["volatile"]
from minidynamo.explain import also_here

also_here(
    "miniinductor/runtime/memory.py",
    "miniinductor/runtime/wrapper.py",
    "miniinductor/runtime/",
    "miniinductor/toolchain.py",
)

# %% [markdown]
# ## What real PyTorch has
#
# * `torch/_inductor/codegen/wrapper.py` writes the wrapper in Python;
#   `torch/_inductor/codegen/cpp_wrapper_cpu.py` writes it in C++ (AOTInductor: a whole model as one shared
#   library). Paper, section 4.
# * `torch/_inductor/memory.py` and `torch/_inductor/codegen/memory_planning.py` reorder for a lower peak, and
#   plan pools. PyTorch also reuses buffers of equal size in place.
# * `torch/_inductor/cudagraph_trees.py`: several recordings share one pool and pass outputs to each other
#   without copies (ours copies outputs).
# * `torch/_inductor/select_algorithm.py` tunes among templates and library kernels.
#
# **See it in the real `torch.compile`.** `TORCH_LOGS=output_code python program.py` prints the wrapper.
# `TORCH_LOGS=cudagraphs` says what was recorded, and `TORCH_LOGS=autotuning` which candidate won.
#
# ## Recap
#
# * The wrapper is generated straight-line code. It makes no decision that the compiler could make.
# * The planner places buffers in an arena by their lifetimes. Outputs and their aliases stay out of
#   the arena.
# * Time candidates in turns, compare a robust figure, and remember the winner.
# * A recording holds addresses. Copy inputs in and outputs out, and refuse programs that ask for values.
#
# Next: what happens if the sizes change?
