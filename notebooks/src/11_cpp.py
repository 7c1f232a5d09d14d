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
# A fused group of loop bodies becomes one C++ function: loops outside, one line per operation
# inside, memory read once and written once. The compiler that everybody has does the rest, if the
# code is written so that it can.
#
# *The kitchen.* The recipe is translated for a cook who is very fast and takes every word literally.
# So nothing is left out, and nothing is said twice. He has a tool that cracks eight eggs at once: the
# recipe is arranged so that he can use it. *Exactly:* common subexpressions once, branch-free
# arithmetic, vector instructions.
#
# **What you will learn:** a code generator as one more handler; common subexpressions and index
# printing; what lets GCC vectorise; threads; accurate sums; transposed access; why compile time
# matters; building and caching. At the end you write parts of a generator and a kernel by hand.
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
# The body is a Python function over `ops` (notebook 09). A handler whose values are *names of C
# variables* and whose operations append lines is a code generator:

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
# It compiles and runs. (`NAME` is replaced by the kernel's name; every kernel has this one
# signature, an array of pointers, so that one launcher can call them all.)

# %%
from miniinductor.toolchain.cpp import build_kernels

(kernel,) = build_kernels([(source, "tiny")])
x, out = torch.randn(1000), torch.empty(1000)
kernel(x, out)
torch.equal(out, torch.relu(2 * x + x))

# %% [markdown]
# True: the same bits as eager.
#
# ## Where it fails
#
# `x[i]` is loaded twice. `maximum` loses NaN: `nan > 0` is false, so the result is 0, where torch
# says NaN:

# %%
x[0] = float("nan")
kernel(x, out)
print("tiny:", out[0], "  torch:", torch.relu(x)[0])

# %% [markdown]
# The real generator knows the dtype of every value, writes an expression once (`CppScope`), and takes
# its maths from a small prelude with torch's semantics.

# %%
from miniinductor.codegen.cpp import expressions as cpp_expressions

excerpt(cpp_expressions.CppScope.temporary)

# %% [markdown]
# `lookup` asks this scope and those around it whether the expression was computed already. If so, its
# name is the answer. If not, a new line is written, with the C type. (`makers` keeps for which
# operations of the graph a value was computed: the comments come from there.) Leaving a loop forgets
# its scope.
#
# And the maths? Here is `exp`:

# %%
from pathlib import Path

prelude = (Path(miniinductor.__file__).parent / "codegen" / "cpp" / "maths.h").read_text()
start = prelude.index("OP float exp(float x0)")
Code(prelude[start:prelude.index("\n}", start) + 2], "cpp", "exp, from the prelude")

# %% [markdown]
# `exp` has no branch: `? :` between two numbers is a selection, not a jump. It calls no library. So GCC
# can turn it into vector instructions. And it handles NaN, overflow and underflow by arithmetic. A
# kernel with `std::exp` inside runs one element at a time.
#
# ## A pointwise kernel

# %%
def gelu_gate(x, y):
    return torch.nn.functional.gelu(x) * y

arguments = torch.randn(512, 1000), torch.randn(512, 1000)
e = minidynamo.explain(gelu_gate)(*arguments)
e.kernels

# %% [markdown]
# The two dimensions were merged into one loop, since both inputs are contiguous.
# `#pragma omp parallel for simd`: threads outside, vectors inside. The same in the plain style:

# %%
with miniinductor.config.patch(vectorize=False, openmp=False):
    e = minidynamo.explain(gelu_gate)(*arguments)
e.kernels

# %% [markdown]
# Only the `#pragma` is gone. GCC may still find out by itself that it can use vectors; with the pragma it
# is told.
#
# ## A reduction, fused
#
# Softmax walks three times over a row, which stays in the cache. `exp(x - max)` is kept in a small
# array on the stack, so nothing is computed twice:

# %%
e = minidynamo.explain(lambda x: torch.softmax(x, -1))(arguments[0])
e.kernels

# %% [markdown]
# `acc0` is the maximum of the row, `acc1` the sum, and `scratch0` the small array. `lane0` has one
# partial result for each lane of the vectors. And `mini::maximum` keeps a NaN, which the small generator's `maximum` loses.
#
# ## Sums that are right
#
# Adding many float32 numbers one after the other loses digits: each addition rounds. Vector lanes
# help (each lane adds fewer), chunks help more. Here are ten million:

# %%
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
ours = minidynamo.compile(lambda x: x.sum(-1))(ones).item()
error = lambda value: abs(value - exact) / exact
Table(["", "relative error"], [("one running sum in float32", f"{error(in_sequence.item()):.0e}"),
                               ("eager's sum", f"{error(ones.sum(-1).item()):.0e}"),
                               ("our kernel", "below 1e-6" if error(ours) < 1e-6 else f"{error(ours):.0e}")])

# %% [markdown]
# The running sum has lost all but its first digit: near the end each number is too small to change the
# total by the right amount.
#
# ## Transposed access
#
# `x + y.t()` reads `y` across its rows. Straight loops use one number of every cache line they
# fetch. The generator copies small tiles first:

# %%
e = minidynamo.explain(lambda x, y: x + y.t())(torch.randn(512, 1000), torch.randn(1000, 512))
e.kernels

# %% [markdown]
# The two outer loops walk over tiles. The first two inside of them copy one tile of `y`, line by line, into
# `tile0`. The inner loops read from there, where every number of a line is used.
#
# ## How close to the machine?
#
# A roofline: a kernel can be limited by memory traffic or by arithmetic. Measure on one core what a
# plain copy of the same size reaches, and compare:

# %% tags=["volatile"] alt="Bars from zero: the useful bytes a second of each kernel, ours blue and eager grey; a dashed line shows a plain copy"
from benchmarks.runner import interleave, keep_freed_memory

torch.set_num_threads(1)                # neighbours disturb one core least
keep_freed_memory()                     # or else chance decides who pays for fresh pages of memory
x, y = torch.randn(4096, 1024), torch.randn(4096, 1024)
out = torch.empty_like(x)
programs = {"gelu(x) * y": (gelu_gate, (x, y), 3), "softmax": (lambda x: torch.softmax(x, -1), (x,), 2),
            "sum of each row": (lambda x: x.sum(-1), (x,), 1)}
variants = {"copy": lambda: out.copy_(x)}
for name, (function, inputs, _) in programs.items():
    compiled = minidynamo.compile(function)
    compiled(*inputs)
    variants[name] = lambda compiled=compiled, inputs=inputs: compiled(*inputs)
    variants[name + ", eager"] = lambda function=function, inputs=inputs: function(*inputs)
timings = interleave(variants, budget=4)
size = x.numel() * 4 / 1e9
passes = {"copy": 2} | {
    name: programs[name.removesuffix(", eager")][2] for name in variants if name != "copy"
}
rate = {name: passes[name] * size / timings[name].median for name in variants}

import matplotlib.pyplot as plt

figure, axis = plt.subplots()
names = list(rate)[::-1]
axis.barh(names, [rate[n] for n in names], color=["C2" if "eager" in n else "C0" for n in names])
axis.axvline(rate["copy"], linestyle="--", color="black")
axis.set_xlabel("GB/s of necessary traffic, longer is better (dashed: a plain copy)");

# %% [markdown]
# A bar is a program. Its length is how many useful bytes it moves in a second.
#
# Reading alone is faster than copying, so a sum may pass the dashed line. Where our bar is shorter
# than eager's or than the copy's, there is something left to find. On the machine that ran this page:

# %% tags=["volatile"]
for name in programs:
    best = max(rate["copy"], rate[name + ", eager"])
    verdict = "nothing left" if rate[name] > 0.9 * best else "something left to find"
    print(f"{name:16} ours {rate[name]:5.1f} GB/s, eager {rate[name + ', eager']:5.1f}, copy {rate['copy']:5.1f}: {verdict}")

# %% [markdown]
# (Our sum adds in chunks, for accuracy. That may cost something where reading is all there is to do.)
#
# ## What threads bring
#
# `#pragma omp parallel for` cuts a loop into pieces, one for each thread. Two questions decide what
# that brings. Are there free cores? And does the kernel wait for arithmetic, of which each core has
# its own, or for memory, which all cores share? Three kernels, with one thread and with more:

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
scaling = {}
for name, (function, inputs) in work.items():
    run = minidynamo.compile(function)
    variants = {}
    for threads in counts:
        def with_threads(run=run, inputs=inputs, threads=threads):
            torch.set_num_threads(threads)
            run(*inputs)
        with_threads()                  # compiles
        variants[threads] = with_threads
    scaling[name] = {n: t.median for n, t in interleave(variants, budget=1.5).items()}
torch.set_num_threads(1)

figure, axis = plt.subplots()
for marker, (name, seconds) in zip("osd", scaling.items()):
    axis.plot(counts, [seconds[1] / seconds[n] for n in counts], marker=marker, label=name)
axis.plot(counts, counts, color="black", linestyle="--", label="perfect")
axis.set(xticks=counts, xlabel=f"threads (this machine has {cores} cores)", ylabel="times faster than one thread")
axis.set_ylim(bottom=0)
axis.legend();

# %% [markdown]
# The dashed line is what one hopes for. It needs cores that nobody else uses: a loop ends when its
# slowest piece ends, so on a busy machine two threads can be slower than one. Said in words, for the
# machine that ran this page:

# %% tags=["volatile"]
most = counts[-1]
for name, seconds in scaling.items():
    gain = seconds[1] / seconds[most]
    verdict = "no use" if gain < 1.1 else "some use" if gain < 0.75 * most else "nearly all that is possible"
    print(f"{name:38} {most} threads: {gain:.2f} times one thread, {verdict}")

# %% [markdown]
# So the generator asks whether there is enough to do before it writes the pragma. Starting and
# joining threads costs microseconds, and a small kernel is done by then. The same function on the
# small and on the large array, read from the generated code:

# %%
def pragmas(function, *inputs):
    e = minidynamo.explain(function)(*inputs)
    return [line.strip() for kernel in e.main.compiled.kernels for line in kernel.source.splitlines()
            if "#pragma omp" in line]

for inputs in ((small,), (x,)):
    print(tuple(inputs[0].shape), pragmas(lambda x: torch.exp(torch.sin(x)), *inputs))

# %% [markdown]
# `parallel` stands in the second only; `simd`, the vectors, in both. (`error` is how a kernel says that
# something went wrong. Here it would be an angle too large for the fast sine: then the kernel runs once
# more, with the exact one.) Sums need care: with threads each piece has its own partial result, and these are added at the end.
# Another number of threads is then another order of additions, so the last digits may differ.
#
# ## Compile time is part of the product
#
# A C++ kernel that includes torch's headers, as TorchInductor's do, makes the C++ compiler read those
# first. Ours include nothing. (The tables of notebooks 00 and 15 measure both.) All kernels of a graph go into a few files that are compiled at the same time, kernels
# that are equal are compiled once, and shared objects stay on disk under a key of source, flags,
# compiler and CPU.

# %%
from miniinductor.toolchain import cpp as build

excerpt(build.cache_key)

# %% [markdown]
# The key holds everything that changes the machine code: torch's version, the command with its flags,
# the compiler, the processor and the source. Comments are left out.

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
# The second figure is a look-up of a file.
#
# ## A real model
#
# BERT has many equal layers. How many kernels are called, and how many are different?

# %%
from benchmarks.models import bert
from miniinductor.toolchain.cpp import strip_comments

model, inputs = bert()
e = minidynamo.explain(model)(**inputs)
kernels = e.main.compiled.kernels
different = {strip_comments(k.source).replace(k.name, "") for k in kernels}
print(f"{len(kernels)} kernel calls, {len(different)} different kernels")

# %% [markdown]
# Equal sources are compiled once, however many layers call them.

# %%
longest = max(kernels, key=lambda k: len(k.nodes))
Code(longest.source, "cpp", "the one that computes the most buffers")

# %% [markdown]
# It looks three embeddings up, adds them, and normalises the sum. The row stays in `scratch0`. The partial
# sums in `lane0` are added at the end of a row: short chains of additions, so few digits are lost.
#
# ## Exercises
#
# **11.1** (warm-up) *Write once.* Give `TinyCpp` common subexpressions: asking for the same expression again
# returns the earlier name and appends nothing.
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
# **11.2** (core) *NaN.* Repair `maximum`: if either operand is NaN, the result is NaN. No branch, no
# library call: an expression that GCC can vectorise.
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
# a `rows x columns` float32 matrix, accurately enough: relative error below 1e-6 on ten million
# numbers. `NAME(void** args)`: `args[0]` is the matrix, `args[1]` the sums.
#
# *Hints.* An accumulator of type `double` is accurate and slow-ish. Partial sums in float over chunks
# of 16 numbers, added up in double, are accurate and fast. (The shorter the chunk, the smaller the
# error: try a larger chunk, and look at what the check says.) The last chunk of a row may be shorter. Return 0.

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
# **11.4** (stretch) *Tiles.* A transpose reads rows and writes columns. Each write touches another cache line, and by the
# time the next number of that line is due, the line is gone. Tiles help: a small square is finished
# while its lines are there. Write `in_tiles(rows, columns, tile)`: all pairs `(row, column)`, tile by
# tile; the tiles from left to right, then down; each tile row by row. Edge tiles are smaller.
#
# *Hints.* Four loops, or `range` with a step. The check counts the lines that a small cache misses.
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
# **The piece.** A kernel goes through its rows, and through the columns as often as it must. You
# decide which loops share a walk and what has to lie in memory. You write the loops over rows, what a
# column does, the end of a reduction, a whole walk, expressions and numbers, the offset of an element,
# and the whole function.
#
# <details><summary>Hint: walks</summary>
#
# A loop may join the last walk if `takes` says so; otherwise a new one begins. Never put a loop
# before one that it reads.
#
# `takes` wants as many columns, as a text. What the loop reads of this walk must not be a reduction's,
# which is not complete yet, and must be the very element that was computed: `result` of that loop.
#
# </details>
# <details><summary>Hint: memory</summary>
#
# A value lies in memory if another kernel reads it, or another walk. The result of a reduction
# stays in a register for its row.
#
# </details>
# <details><summary>Hint: rows and places</summary>
#
# `#pragma omp parallel for collapse(n)` shares `n` loops that stand directly in one another. The
# offset in a tensor of sizes `a, b, c` is `(i0 * b + i1) * c + i2`; the text is `name[offset]`.
#
# </details>
# <details><summary>Hint: reductions</summary>
#
# The sum of a row is one variable, `row_NAME`. Behind `#pragma omp simd reduction(+:row_NAME)` the C++
# compiler may keep several partial sums in a vector, and it adds them up at the end of the row. `JOIN`
# has what stands in front of the colon. `FORMS[loop.reduction]` joins two values.
#
# </details>
# <details><summary>Hint: expressions</summary>
#
# Ask `registers` and `row_values` before memory: a value that was just computed may lie nowhere else.
# `FORMS[op].format(...)` takes the texts of the arguments.
#
# </details>
# <details><summary>Hint: the function</summary>
#
# `source` casts each of `args` to a pointer of its buffer's type (`TYPES`, `__restrict__`), in the order of
# `buffers`; behind them come the symbols, as `int64_t`. Keep `LARGEST` in front: it declares what the
# pragma of a maximum needs. A number ends with `f`; infinity is `mini::inf`.
#
# </details>

# %%
from exercises.own_compiler import begin

begin("cpp");

# %% [markdown]
# The line names what is yours. Write it in that file, then ask for a check, as often as you like:

# %% tags=["check", "piece"]
from exercises.own_checks import check_piece

check_piece("cpp")

# %% [markdown]
# ## What else lives here
#
# Every public name of this chapter's core files, with one sentence each. Unfold a file, then a name:
# its first lines are there. The list is made from the sources when the page is built.

# %% tags=["volatile"]
from minidynamo.explain import also_here

also_here("miniinductor/codegen/kernels.py", "miniinductor/codegen/", "miniinductor/codegen/cpp/")

# %% [markdown]
# ## What real PyTorch has
#
# * `torch/_inductor/codegen/cpp.py`: explicit vector classes (`at::vec`), masked tails, many CPU
#   targets, GEMM templates. Paper, section 4.
# * `torch/_inductor/codecache.py`, `torch/_inductor/cpp_builder.py`: caches, also across machines.
#
# **See it in the real `torch.compile`.** `TORCH_LOGS=output_code python program.py` prints the wrapper, with the C++ of every kernel in it.
#
# ## Recap
#
# * A code generator is a handler whose values are names.
# * Branch-free scalar maths inside simple loops is what a C++ compiler vectorises best.
# * Accuracy (chunked sums, NaN) and access patterns (tiles) are the generator's job; GCC will not
#   do them.
#
# Next: the same IR on a GPU.
