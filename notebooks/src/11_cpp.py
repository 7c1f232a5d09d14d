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
# # 11 · C++ and OpenMP code generation
#
# A fused group of loop bodies becomes one C++ function. It has loops outside and one line per operation
# inside, and it reads and writes memory once. An ordinary C++ compiler turns it into fast machine code, if the
# generator writes code that the compiler can vectorise.
#
# *The kitchen.* The recipe is translated for a cook who is very fast and takes every word literally.
# So the translation leaves nothing out and says nothing twice. The cook has a tool that cracks eight eggs at once, and
# the recipe is arranged so that the tool fits. *Exactly:* the kernel computes common subexpressions once, has no branches in its
# arithmetic, and uses vector instructions.
#
# **What you will learn:** a code generator as one more handler; common subexpressions; what GCC needs in order to vectorise;
# threads; accurate sums; transposed access; why compile time
# matters; building and caching. At the end you write parts of a generator, and a kernel by hand.
#
# **Files of this chapter:** `miniinductor/codegen/kernels.py`, `miniinductor/codegen/`.

# %%
import sympy
import torch

import minidynamo
import miniinductor
from minidynamo.explain import Code, Table, excerpt
from miniinductor.ir.ops import OP_NAMES, OpsHandler, ops, set_handler

torch.manual_seed(0)
torch.set_grad_enabled(False);

# %% [markdown]
# ## A small generator
#
# A body is a Python function over `ops` (notebook 09). A handler becomes a code generator if its values are *names of C
# variables* and its operations append lines:

# %%
class TinyCpp(OpsHandler):
    """Each op appends a line `const float tN = ...;` and returns `tN`."""

    def __init__(self):
        self.lines = []

    def line(self, expression):
        name = f"t{len(self.lines)}"
        self.lines.append(f"const float {name} = {expression};")
        return name

    def load(self, name, index): return self.line(f"{name}[{index}]")
    def constant(self, value, dtype): return f"{float(value)}f"
    def add(self, a, b): return self.line(f"{a} + {b}")
    def mul(self, a, b): return self.line(f"{a} * {b}")
    def maximum(self, a, b): return self.line(f"{a} > {b} ? {a} : {b}")
    def store(self, name, index, value, mode=None): self.lines.append(f"{name}[{index}] = {value};")

def body(i):
    x = ops.load("x", i)
    twice = ops.mul(x, ops.constant(2, torch.float32))
    ops.store("out", i, ops.maximum(ops.add(twice, ops.load("x", i)), ops.constant(0, torch.float32)))

def tiny_kernel(body, n):
    with set_handler(TinyCpp()) as handler:
        body(sympy.Symbol("i"))
    inner = "\n".join("        " + line for line in handler.lines)
    return ('extern "C" int NAME(void** args) {\n    const float* x = (const float*)args[0];\n    float* out = (float*)args[1];\n'
            f"    for (long i = 0; i < {n}; i++) {{\n{inner}\n    }}\n    return 0;\n}}")

source = tiny_kernel(body, 1000)
Code(source, "cpp", "our small generator wrote this")

# %% [markdown]
# The kernel compiles and runs. (The build replaces `NAME` by the kernel's name. Every kernel has the same
# signature, an array of pointers, so that one launcher can call all of them.)
# <!-- shows: count("for (") == 1 -->

# %%
from miniinductor.toolchain import build_kernels

(kernel,) = build_kernels([(source, "tiny")])
x, out = torch.randn(1000), torch.empty(1000)
kernel(x, out)
torch.equal(out, torch.relu(2 * x + x))

# %% [markdown]
# The result has the same bits as eager's.
# <!-- shows: has("True") -->
#
# ## Where it fails
#
# The small generator loads `x[i]` twice. And its `maximum` loses NaN: `nan > 0` is false, so the result is 0, where torch
# returns NaN:

# %%
x[0] = float("nan")
kernel(x, out)
print("tiny:", out[0], "  torch:", torch.relu(x)[0])

# %% [markdown]
# The real generator knows the dtype of every value, and takes
# its maths from a small prelude with torch's semantics. It also computes each expression once. `CppScope` has the lines of one loop
# body, and its method `temporary` returns the variable of an expression:
# <!-- shows: has("tiny: tensor(0.)") and has("tensor(nan)") -->

# %%
from miniinductor.codegen.cpp import expressions as cpp_expressions

excerpt(cpp_expressions.CppScope.temporary)

# %% [markdown]
# `lookup` searches this scope and the scopes around it for the expression. If it was computed already, its
# variable is the answer. Otherwise `temporary` writes a new line with the C type. (`makers` lists the
# graph operations for which a value was computed; the generated comments name them.) The end of a loop ends
# its scope.
#
# The maths comes from the prelude. Here is its `exp`:

# %%
from pathlib import Path

prelude = (Path(miniinductor.__file__).parent / "codegen" / "cpp" / "maths.h").read_text()
start = prelude.index("OP float exp(float x0)")
Code(prelude[start:prelude.index("\n}", start) + 2], "cpp", "exp, from the prelude")

# %% [markdown]
# `exp` has no branch: `? :` between two numbers is a selection, not a jump. It calls no library. So GCC
# can turn it into vector instructions. It handles NaN, overflow and underflow by arithmetic. `std::exp` would be a call of
# the library. Without `-ffast-math`, which gives up NaN and infinity, GCC makes that call for one element after the other.
# <!-- shows: not has("if (") and has("? -176.f : x0") -->
#
# ## A pointwise kernel
#
# Here is the kernel of a gelu and a product. The comments name the buffers and the graph operations:

# %%
def gelu_gate(x, y):
    return torch.nn.functional.gelu(x) * y

arguments = torch.randn(512, 1000), torch.randn(512, 1000)
e = minidynamo.explain(gelu_gate)(*arguments)
e.kernels

# %% [markdown]
# The generator merged the two dimensions into one loop, because both inputs are contiguous.
# `#pragma omp parallel for simd` asks for threads outside and vector instructions inside. Switch both off:
# <!-- shows: count("for (") == 1 and has("#pragma omp parallel for simd") -->

# %%
with miniinductor.config.patch(vectorize=False, openmp=False):
    e = minidynamo.explain(gelu_gate)(*arguments)
e.kernels

# %% [markdown]
# Only the `#pragma` is gone. GCC may still discover by itself that it can use vector instructions; the pragma
# demands them.
# <!-- shows: not has("#pragma") and count("for (") == 1 -->
#
# ## A reduction, fused
#
# The kernel of softmax goes through each row three times, and the row stays in the cache. The second loop keeps `exp(x - max)` in a small
# array on the stack, so the third loop does not compute it again:

# %%
e = minidynamo.explain(lambda x: torch.softmax(x, -1))(arguments[0])
e.kernels

# %% [markdown]
# `acc0` is the maximum of the row, `acc1` is the sum, and `scratch0` is the small array. `lane0` has 64
# partial results, so that vector instructions can update many of them at once. `mini::maximum` keeps a NaN, which the small
# generator's `maximum` loses.
# <!-- shows: has("float lane0[64]") and has("scratch0[1000]") and has("acc1") -->
#
# ## Accurate sums
#
# A running sum of many float32 numbers loses digits, because each addition rounds. Vector lanes
# help, since each lane adds fewer numbers. Chunks help more. Add ten million numbers in three ways:

# %% tags=["volatile"]
ones = torch.full((1, 10_000_000), 0.1)
exact = ones.double().sum().item()
running_sum = """extern "C" int NAME(void** args) {
    const float* x = (const float*)args[0];
    float total = 0;
    for (long i = 0; i < 10000000; i++) total += x[i];
    *(float*)args[1] = total;
    return 0;
}"""
in_sequence = torch.empty(1)
build_kernels([(running_sum, "running")])[0](ones, in_sequence)
sums = {"one running sum in float32": in_sequence.item(), "eager's sum": ones.sum(-1).item(),
        "our kernel": minidynamo.compile(lambda x: x.sum(-1))(ones).item()}
errors = {name: abs(value - exact) / exact for name, value in sums.items()}
assert errors["one running sum in float32"] > 0.05 and max(errors["eager's sum"], errors["our kernel"]) < 1e-6
Table(["", "relative error"], [(name, f"{error:.0e}") for name, error in errors.items()])

# %% [markdown]
# The running sum is wrong by 9 percent: near the end the total is so large that each
# addition rounds most of the number away. The errors of eager and of our kernel are both below one millionth.
# <!-- shows: 8 < 100 * n("one running sum in float", 1) < 10 and n("eager's sum") < 1e-6 and n("our kernel") < 1e-6 -->
#
# ## Transposed access
#
# `x + y.t()` reads `y` down its columns. A plain loop would use one number of every cache line that it
# fetches. So the generator first copies small tiles:

# %%
e = minidynamo.explain(lambda x, y: x + y.t())(torch.randn(512, 1000), torch.randn(1000, 512))
e.kernels

# %% [markdown]
# The two outer loops go over the tiles. The first two loops inside them copy one tile of `y`, line by line, into
# `tile0`. The last two loops read from `tile0`, where the next number is in the same cache line.
# <!-- shows: has("float tile0[64][64]") -->
#
# ## How close to the machine?
#
# Memory traffic or arithmetic limits a kernel. The kernels here do little arithmetic, so memory is the limit.
# The next cell measures that limit on one core, as notebook 15 does: the best rate of copying, adding and summing 16 MB.
# Then it measures our kernels and eager. A bar is the rate at which a program moves its inputs and outputs; the dashed line is the limit.

# %% tags=["volatile"] alt="Bars from zero: the useful bytes a second of each program, ours and eager; a dashed line shows the limit"
import time

from benchmarks.plots import LOOKS
from benchmarks.runner import interleave, keep_freed_memory

torch.set_num_threads(1)                # other processes disturb one core least
keep_freed_memory()                     # or else chance decides who pays for fresh pages of memory
x, y = torch.randn(4096, 1024), torch.randn(4096, 1024)
out = torch.empty_like(x)
limits = {"copying": (2, lambda: out.copy_(x)), "adding": (3, lambda: torch.add(x, y, out=out)),
          "summing": (1, lambda: x.sum())}
programs = {"gelu(x) * y": (3, gelu_gate, (x, y)), "softmax": (2, lambda x: torch.softmax(x, -1), (x,)),
            "sum of each row": (1, lambda x: x.sum(-1), (x,))}
variants, passes = {}, {}               # passes: how often 16 MB must be read or written
for name, (n, run) in limits.items():
    variants[name], passes[name] = run, n
for name, (n, function, inputs) in programs.items():
    compiled = minidynamo.compile(function)
    compiled(*inputs)
    variants["ours", name] = lambda compiled=compiled, inputs=inputs: compiled(*inputs)
    variants["eager", name] = lambda function=function, inputs=inputs: function(*inputs)
    passes["ours", name] = passes["eager", name] = n
# the processor's time, and the best round of each: other processes count least
timings = interleave(variants, budget=4, clock=time.process_time)
rate = {name: passes[name] * x.numel() * 4 / 1e9 / min(timings[name].seconds) for name in variants}
best = max(limits, key=rate.get)

import matplotlib.pyplot as plt

figure, axis = plt.subplots(figsize=(7, 2.8), layout="constrained")
for shift, who in ((-0.2, "ours"), (0.2, "eager")):
    hatch, colour = LOOKS[who]
    axis.barh([k + shift for k in range(len(programs))], [rate[who, n] for n in programs], 0.4, label=who,
              color=colour, hatch=hatch)
axis.set_yticks(range(len(programs)), list(programs))
axis.invert_yaxis()
axis.axvline(rate[best], linestyle="--", color="black", label=f"limit: {best}")
axis.set_xlabel("GB/s of necessary traffic (longer is better)")
axis.legend(fontsize=8);

# %% [markdown]
# Here are the same rates as parts of the limit:
# <!-- general -->

# %% tags=["volatile"]
print(f"the limit is the rate of {best}: {rate[best]:.0f} GB/s")
for name in programs:
    ours, eager = rate["ours", name], rate["eager", name]
    print(f"{name:16} ours {ours:5.1f} GB/s, {ours / rate[best]:4.0%} of the limit;   eager {eager:5.1f} GB/s, {eager / rate[best]:4.0%}")

# %% [markdown]
# (A result above the limit means that the machine was slower while the limit was measured, or that a cache kept a part of the data.)
# <!-- general -->
#
# A program that writes stays below a limit that comes from summing: the processor reads a cache line before it
# writes to it, and the bars do not count that traffic. Any other kernel far below the limit could be faster. Softmax computes an exponential and a division for each element, so arithmetic takes
# part of its time. The sum of each row only reads. If eager's bar is longer than ours there, eager's
# kernel is better. Accuracy is no excuse, since both sums are accurate.
#
# ## What threads bring
#
# `#pragma omp parallel for` divides a loop into one piece for each thread. The gain depends on two questions.
# Does the kernel wait for arithmetic, which each core has for itself, or for memory, which all cores share? And are there free
# cores? The next plot shows three kernels, with one thread and with more. The dashed line is a perfect gain:

# %% tags=["volatile"] alt="Lines: how many times faster than one thread three kernels run with more threads; a dashed line shows the perfect gain"
import os

cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
counts = sorted({1, 2, cores})[:3]
small = torch.randn(64, 64)
work = {
    "exp(sin(x)) of 4 million: arithmetic": (lambda x: torch.exp(torch.sin(x)), (x,)),
    "x + y of 4 million: memory": (lambda x, y: x + y, (x, y)),
    "exp(sin(x)) of 4 thousand: too small": (lambda x: torch.exp(torch.sin(x)), (small,)),
}
scaling, waiting = {}, os.getloadavg()[0]       # processes that run or wait for a core
for name, (function, inputs) in work.items():
    run = minidynamo.compile(function)
    variants = {}
    for threads in counts:
        def with_threads(run=run, inputs=inputs, threads=threads):
            torch.set_num_threads(threads)
            run(*inputs)
        with_threads()                  # compiles
        variants[threads] = with_threads
    scaling[name] = {n: min(t.seconds) for n, t in interleave(variants, budget=1.5).items()}    # the best round
torch.set_num_threads(1)

figure, axis = plt.subplots()
for marker, (name, seconds) in zip("osd", scaling.items()):
    axis.plot(counts, [seconds[1] / seconds[n] for n in counts], marker=marker, label=name)
axis.plot(counts, counts, color="black", linestyle="--", label="perfect")
axis.set(xticks=counts, xlabel=f"threads (this machine has {cores} cores)", ylabel="times faster than one thread")
axis.set_ylim(bottom=0)
axis.legend();

# %% [markdown]
# A parallel loop ends when its slowest piece ends. So threads bring a gain only on cores that no other process uses.
# The next cell prints the gains, and how many processes wanted a core just before the measurement:
# <!-- general -->

# %% tags=["volatile"]
most = counts[-1]
for name, seconds in scaling.items():
    print(f"{name:38} {most} threads: {seconds[1] / seconds[most]:.2f} times as fast as one")
if waiting > cores / 2:
    print(f"BUSY: {waiting:.0f} processes wanted these {cores} cores, which disturbs the gains. Measure on a quiet machine.")
else:
    print(f"quiet: {waiting:.0f} other processes wanted these {cores} cores")

# %% [markdown]
# If the last line says BUSY, other processes used the cores, and the numbers say nothing about the kernels. On a quiet machine expect the
# largest gain for arithmetic, because each core brings its own, and a smaller one for memory, because the cores share it. Expect no
# gain for the small kernel: starting and joining threads takes microseconds, longer than the kernel runs. So the generator
# writes the pragma for threads only where the work is large. Compare the pragmas of one function, for the
# small and for the large array:
# <!-- general -->

# %%
def pragmas(function, *inputs):
    e = minidynamo.explain(function)(*inputs)
    return [line.strip() for kernel in e.main.compiled.kernels for line in kernel.source.splitlines()
            if "#pragma omp" in line]

for inputs in ((small,), (x,)):
    print(tuple(inputs[0].shape), pragmas(lambda x: torch.exp(torch.sin(x)), *inputs))

# %% [markdown]
# Only the second pragma has `parallel`; both have `simd`, the vector instructions. (A kernel reports a problem in `error`.
# Here the problem would be an angle too large for the fast sine. Then the kernel runs again
# with the exact sine.) Sums need care: with threads each piece has its own partial result, and the partial results are added at the end.
# A different number of threads adds in a different order, so the last digits may differ.
# <!-- shows: count("parallel") == 1 and count("simd") == 2 -->
#
# ## Compile time is part of the product
#
# TorchInductor's C++ kernels include torch's headers, and the C++ compiler reads those
# first. Our kernels include nothing. (Tables in notebooks 00 and 15 measure both.) All kernels of a graph go into a few files, which are
# compiled at the same time. Equal kernels are compiled once. The shared objects stay on disk, under a key that `cache_key` computes:

# %%
from miniinductor import toolchain as build

excerpt(build.cache_key)

# %% [markdown]
# The key depends on everything that changes the machine code: torch's version, the command with its flags,
# the compiler, the processor, and the source without its comments. The next cell compiles a function twice, first with an empty cache:
# <!-- shows: has("cpu_flags()") and has("torch.__version__") and has("strip_comments(source)") -->

# %% tags=["volatile"]
from benchmarks.runner import fresh_caches, timed_first_call

def fresh():
    minidynamo.reset()
    compiled = minidynamo.compile(gelu_gate)
    return timed_first_call(lambda: compiled(*arguments))[1]

with fresh_caches():
    cold, warm = fresh(), fresh()
print(f"first compilation {cold.wall:.2f} s, with the shared object on disk {warm.wall:.2f} s")

# %% [markdown]
# The second compilation only looked up a file.
# <!-- shows: n("shared object on disk") < n("first compilation") -->
#
# ## A real model
#
# BERT has many equal layers. How many kernels does it call, and how many of them are different?

# %%
from benchmarks.models import bert
from miniinductor.toolchain import strip_comments

model, inputs = bert()
e = minidynamo.explain(model)(**inputs)
kernels = e.main.compiled.kernels
different = {strip_comments(k.source).replace(k.name, "") for k in kernels}
print(f"{len(kernels)} kernel calls, {len(different)} different kernels")

# %% [markdown]
# Equal sources are compiled once, however many layers call them. Here is the kernel that computes the most buffers:
# <!-- shows: has("38 kernel calls, 4 different kernels") -->

# %%
longest = max(kernels, key=lambda k: len(k.nodes))
Code(longest.source, "cpp", "the one that computes the most buffers")

# %% [markdown]
# The kernel looks up three embeddings, adds them, and normalises the sum. The row stays in `scratch0`. The 64 partial
# sums in `lane0` are added at the end of each row. Each of them adds few numbers, so few digits are lost.
# <!-- shows: has("scratch0[768]") and has("lane0[64]") -->
#
# ## Exercises
#
# **11.1** (warm-up) *Write once.* Give `TinyCpp` common subexpressions: if an expression was written before, `line`
# returns its name and appends nothing.
#
# *Hints.* Override `line`; keep a dictionary.

# %% tags=["support"]
class TinyCppBase(OpsHandler):
    """TinyCpp again, for the exercises."""

    def __init__(self):
        self.lines = []

    def line(self, expression):
        name = f"t{len(self.lines)}"
        self.lines.append(f"const float {name} = {expression};")
        return name

    def load(self, name, index): return self.line(f"{name}[{index}]")
    def constant(self, value, dtype): return f"{float(value)}f"
    def add(self, a, b): return self.line(f"{a} + {b}")
    def mul(self, a, b): return self.line(f"{a} * {b}")
    def maximum(self, a, b): return self.line(f"{a} > {b} ? {a} : {b}")
    def store(self, name, index, value, mode=None): self.lines.append(f"{name}[{index}] = {value};")

# %% tags=["exercise"]
class TinyCppOnce(TinyCppBase):
    """Equal expressions are computed once."""
    ### BEGIN SOLUTION instead of pass
    def __init__(self):
        super().__init__()
        self.known = {}

    def line(self, expression):
        if expression not in self.known:
            self.known[expression] = super().line(expression)
        return self.known[expression]
    ### END SOLUTION

# %% tags=["check"]
from exercises import check

check("11.1", TinyCppOnce)

# %% [markdown]
# **11.2** (core) *NaN.* Repair `maximum`: if either operand is NaN, the result is NaN. Write an expression that GCC can
# vectorise, without a branch and without a library call.
#
# *Hints.* `a != a` is true exactly for NaN. If `a` is NaN return `a`; otherwise `a > b ? a : b`
# returns `b` when `b` is NaN. Why?

# %% tags=["exercise"]
class TinyCppNan(TinyCppBase):
    """maximum goes as torch.maximum does."""
    ### BEGIN SOLUTION instead of pass
    def maximum(self, a, b):
        return self.line(f"{a} != {a} || {a} > {b} ? {a} : {b}")
    ### END SOLUTION

# %% tags=["check"]
check("11.2", TinyCppNan)

# %% [markdown]
# **11.3** (stretch) *A kernel by hand.* Write the C++ source of a kernel that computes the sum of each row of
# a `rows x columns` float32 matrix. The relative error must be below 1e-6 on ten million
# numbers. The signature is `NAME(void** args)`; `args[0]` is the matrix, `args[1]` the sums.
#
# *Hints.* An accumulator of type `double` is accurate and slower. Partial sums in float over chunks
# of 16 numbers, added up in double, are accurate and fast. (The shorter the chunk, the smaller the
# error: try a larger chunk, and read the row of the check.) The last chunk of a row may be shorter. Return 0.

# %% tags=["exercise"]
def row_sums(rows: int, columns: int) -> str:
    """C++ source of the kernel."""
    ### BEGIN SOLUTION
    return f"""
    extern "C" int NAME(void** args) {{
        const float* in = (const float*)args[0];
        float* out = (float*)args[1];
        for (long row = 0; row < {rows}; row++) {{
            double total = 0;
            for (long chunk = 0; chunk < {columns}; chunk += 16) {{
                float part = 0;
                const long stop = chunk + 16 < {columns} ? chunk + 16 : {columns};
                for (long k = chunk; k < stop; k++) part += in[row * {columns} + k];
                total += part;
            }}
            out[row] = (float)total;
        }}
        return 0;
    }}"""
    ### END SOLUTION

# %% tags=["check"]
check("11.3", row_sums)

# %% [markdown]
# **11.4** (stretch) *Tiles.* A transpose reads rows and writes columns. Each write touches another cache line. When the
# next number of that line is written, the line has left the cache. Tiles help: the loop finishes a small square
# while its lines are still in the cache. Write `in_tiles(rows, columns, tile)`, which returns all pairs `(row, column)`, tile by
# tile. The tiles go from left to right, then down; inside a tile the pairs go row by row. Tiles at the edges are smaller.
#
# *Hints.* Use four loops, or `range` with a step. The check counts the lines that a small cache misses.
#
# <details><summary>Predict: how many misses does a tile as wide as the matrix save?</summary>
#
# None. It is the plain order again.
#
# </details>

# %% tags=["exercise"]
def in_tiles(rows: int, columns: int, tile: int) -> list:
    """[(row, column)] in the order of a tiled loop."""
    ### BEGIN SOLUTION
    return [(row, column)
            for top in range(0, rows, tile) for left in range(0, columns, tile)
            for row in range(top, min(top + tile, rows))
            for column in range(left, min(left + tile, columns))]
    ### END SOLUTION

# %% tags=["check"]
check("11.4", in_tiles)

# %% [markdown]
# ## Your own compiler: kernels in C++
#
# **The piece.** A kernel goes through its rows, and in each row through the columns, once or several times. Each time is called a walk. You
# decide which loops share a walk and which values must be in memory. You write the loops over rows, the code for
# a column, the end of a reduction, a whole walk, expressions and numbers, the offset of an element,
# and the whole function.
#
# <details><summary>Hint: walks</summary>
#
# A loop may join the last walk if `takes` allows it; otherwise a new walk begins. Never put a loop
# before one that it reads.
#
# `takes` needs the same number of columns, as a text. The loop must not read the result of a reduction of this walk,
# which is not complete yet. If it reads another value of this walk, it must read the very element that was computed: `result` of that loop.
#
# </details>
# <details><summary>Hint: memory</summary>
#
# A value must be in memory if another kernel or another walk reads it. The result of a reduction
# stays in a register for its row.
#
# </details>
# <details><summary>Hint: rows and places</summary>
#
# `#pragma omp parallel for collapse(n)` divides `n` loops that are directly nested. The
# offset in a tensor of sizes `a, b, c` is `(i0 * b + i1) * c + i2`; the text is `name[offset]`.
#
# </details>
# <details><summary>Hint: reductions</summary>
#
# The sum of a row is one variable, `row_NAME`. After `#pragma omp simd reduction(+:row_NAME)` the C++
# compiler may keep several partial sums in a vector, which it adds up at the end of the row. `JOIN`
# has the text before the colon. `FORMS[loop.reduction]` joins two values.
#
# </details>
# <details><summary>Hint: expressions</summary>
#
# Look in `registers` and `row_values` before memory: a value that was just computed may have no other place.
# `FORMS[op].format(...)` takes the texts of the arguments.
#
# </details>
# <details><summary>Hint: the function</summary>
#
# `source` casts each of `args` to a pointer of its buffer's type (`TYPES`, `__restrict__`), in the order of
# `buffers`; the symbols follow, as `int64_t`. Keep `LARGEST` in front: it declares what the
# pragma of a maximum needs. A number ends with `f`; infinity is `mini::inf`.
#
# </details>

# %%
from exercises.own_compiler import begin

begin("cpp");

# %% [markdown]
# The line names the functions that you write. Write them in that file, then run the check as often as you like:

# %% tags=["check", "piece"]
from exercises.own_checks import check_piece

check_piece("cpp")

# %% [markdown]
# ## What else lives here
#
# The list has every public name of this chapter's main files, with one sentence each. Unfold a file, then a name,
# to see its first lines. The list is made from the sources when the page is built.

# %% tags=["volatile"]
from minidynamo.explain import also_here

also_here("miniinductor/codegen/kernels.py", "miniinductor/codegen/", "miniinductor/codegen/cpp/",
          "miniinductor/toolchain.py")

# %% [markdown]
# ## What real PyTorch has
#
# * `torch/_inductor/codegen/cpp.py` has explicit vector classes (`at::vec`), masked tails, many CPU
#   targets and GEMM templates. Paper, section 4.
# * `torch/_inductor/codecache.py` and `torch/_inductor/cpp_builder.py` have the caches, which also work across machines.
#
# **See it in the real `torch.compile`.** `TORCH_LOGS=output_code python program.py` prints the wrapper, with the C++ of every kernel in it.
#
# ## Recap
#
# * A code generator is a handler whose values are names.
# * A C++ compiler vectorises simple loops of scalar maths without branches.
# * The generator is responsible for accuracy (chunked sums, NaN) and for access patterns (tiles); GCC will not
#   provide them.
#
# Next: the same IR on a GPU.
