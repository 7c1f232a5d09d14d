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
# A fused group of loop bodies becomes one C++ function. The function has loops outside and one line
# per operation inside; it reads each input and writes each output once. An ordinary C++ compiler
# turns it into fast machine code, if it can *vectorise* the loops. It then uses vector
# instructions, each of which computes several numbers at once.
#
# *The kitchen.* The recipe is translated for a cook who is very fast and takes every word
# literally. So the translation leaves nothing out and says nothing twice. The cook has a tool that
# cracks eight eggs at once, and the recipe is arranged so that the tool fits. *Exactly:* the kernel
# computes equal subexpressions once, and has no branches in its arithmetic, so the compiler can use
# vector instructions.
#
# **What you will learn:** a code generator as one more handler; common subexpressions; what GCC
# needs in order to vectorise. Then threads, accurate sums, transposed access, compile time and
# caching. At the end you write parts of a generator, and a kernel by hand.
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
# A body is a Python function over `ops` (chapter 09). A handler becomes a code generator if its
# values are *names of C variables* and its operations append lines:

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
# The next cell compiles the kernel and runs it. (`build_kernels` replaces `NAME` by the kernel's
# name. Every kernel takes an array of pointers, so that one launcher can call all kernels.)
# <!-- shows: count("for (") == 1 -->

# %%
from miniinductor.toolchain import build_kernels

(kernel,) = build_kernels([(source, "tiny")])
x, out = torch.randn(1000), torch.empty(1000)
kernel(x, out)
torch.equal(out, torch.relu(2 * x + x))

# %% [markdown]
# The kernel's result equals eager's in every element.
# <!-- shows: has("True") -->
#
# ## Where it fails
#
# The kernel above loads `x[i]` twice. And its `maximum` loses NaN: `nan > 0` is false, so the
# result is 0, where torch returns NaN:

# %%
x[0] = float("nan")
kernel(x, out)
print("tiny:", out[0], "  torch:", torch.relu(x)[0])

# %% [markdown]
# The real generator knows the dtype of every value. It calls functions of the *prelude*, our own
# header, which compute as torch does. It also computes each expression once. `CppScope` collects
# the lines of one loop body, and its method `temporary` returns the variable of an expression:
# <!-- shows: has("tiny: tensor(0.)") and has("tensor(nan)") -->

# %%
from miniinductor.codegen.cpp import expressions as cpp_expressions

excerpt(cpp_expressions.CppScope.temporary)

# %% [markdown]
# `lookup` searches this scope and the scopes around it for the expression. If a scope has computed
# the expression, `temporary` returns the variable of that scope. Otherwise `temporary` writes a new
# line with the C type. (`playing.value` is the graph operation whose body runs now. `makers` lists
# the operations that use a value; the generated comments name them.) The end of a loop ends its
# scope.
#
# Here is `exp` of the prelude. `fma(a, b, c)` is `a * b + c`, and `horner` evaluates a polynomial.
# Adding `SHIFT` rounds a number to an integer. `scaled(1.f, half)` is a power of two, so the last
# line multiplies by two of them:

# %%
from pathlib import Path

prelude = (Path(miniinductor.__file__).parent / "codegen" / "cpp" / "maths.h").read_text()
start = prelude.index("OP float exp(float x0)")
Code(prelude[start:prelude.index("\n}", start) + 2], "cpp", "exp, from the prelude")

# %% [markdown]
# `exp` has no branch: `? :` between two numbers is a selection, not a jump. The function handles
# NaN, overflow and underflow by arithmetic, and calls no library. So GCC can turn it into vector
# instructions. `std::exp` is a library function. GCC calls it for one element after the other,
# unless `-ffast-math` allows it to ignore NaN and infinity.
# <!-- shows: not has("if (") and has("? -176.f : x0") -->
#
# ## A pointwise kernel
#
# The next cell shows the kernel of a gelu and a product. Its comments name the buffers and the
# graph operations:

# %%
def gelu_gate(x, y):
    return torch.nn.functional.gelu(x) * y

arguments = torch.randn(512, 1000), torch.randn(512, 1000)
e = minidynamo.explain(gelu_gate)(*arguments)
e.kernels

# %% [markdown]
# The generator merged the two dimensions into one loop, because both inputs are contiguous.
# `#pragma omp parallel for simd` asks for threads and for vector instructions. The next cell
# switches both off:
# <!-- shows: count("for (") == 1 and has("#pragma omp parallel for simd") -->

# %%
with miniinductor.config.patch(vectorize=False, openmp=False):
    e = minidynamo.explain(gelu_gate)(*arguments)
e.kernels

# %% [markdown]
# Only the `#pragma` is gone. GCC may still discover by itself that the loop can use vector
# instructions; with the pragma it need not prove this.
# <!-- shows: not has("#pragma") and count("for (") == 1 -->
#
# ## A reduction, fused
#
# The kernel of softmax goes through each row three times, and the row stays in the cache. The three
# loops compute the maximum, the sum of the exponentials, and the quotients. The second loop keeps
# `exp(x - max)` in a small array on the stack, so the third does not compute it again:

# %%
e = minidynamo.explain(lambda x: torch.softmax(x, -1))(arguments[0])
e.kernels

# %% [markdown]
# `acc0` is the maximum of the row, `acc1` is the sum, and `scratch0` is the small array. `lane0`
# has 64 partial results, called *lanes*, so that vector instructions can update many of them at
# once. The loop over `r0_group` takes 64 elements at a time. Two shorter loops take the last 32 and
# 8 elements, and have lanes of their own (`lane32_0` and `lane8_0`). `mini::maximum` keeps a NaN,
# which the small generator's `maximum` loses.
# <!-- shows: has("float lane0[64]") and has("scratch0[1000]") and has("acc1") -->
#
# ## Accurate sums
#
# A running sum of many float32 numbers loses digits, because each addition rounds. Lanes help,
# since each lane adds fewer numbers. It helps more to sum each *chunk* of the numbers, and then add
# the sums. The next cell adds ten million numbers in three ways:

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
# The running sum is wrong by 9 percent: near the end the total is so large that the addition rounds
# away a part of each number. The errors of eager and of our kernel are both below one millionth.
# <!-- shows: 8 < 100 * n("one running sum in float", 1) < 10 and n("eager's sum") < 1e-6 and n("our kernel") < 1e-6 -->
#
# ## Transposed access
#
# `x + y.t()` reads `y` down its columns. The processor fetches memory in cache lines of 16 float32
# numbers, and a plain loop would use only one number of each line. So the generator first transposes
# small tiles:

# %%
e = minidynamo.explain(lambda x, y: x + y.t())(torch.randn(512, 1000), torch.randn(1000, 512))
e.kernels

# %% [markdown]
# The two outer loops go over the tiles. `mini::transpose` reads 16 rows of `y`, of 16 numbers each:
# whole cache lines. It interleaves them in vector registers until the rows are columns, and puts
# them into `tile0`. The last two loops read from `tile0`, where the next number is in the same cache
# line. 1000 is no multiple of 16: the last tile begins at 984 and computes some numbers again.
# <!-- shows: has("float tile0[16][16]") -->
#
# ## How close to the limit of the machine?
#
# Either memory or arithmetic limits the speed of a kernel. The kernels here do little arithmetic,
# so memory limits them. The next cell measures this limit on one core. It is the best rate of
# copying, adding and summing the rows of tensors of 64 MB, which no cache can hold. (The file
# `roof.py` beside this notebook has the measurement; chapter 15 uses it as well.) The programs take
# turns with our kernels and eager's. A bar is the rate at which a program moves its inputs and
# outputs, and the dashed line is the limit. The title names the machine:

# %% tags=["volatile"] alt="Bars from zero: the useful bytes a second of each program, ours and eager; a dashed line shows the limit"
import matplotlib.pyplot as plt

from benchmarks.plots import LOOKS
from benchmarks.runner import interleave, keep_freed_memory
from roof import BYTES, large, measure_roof, this_machine

torch.set_num_threads(1)                # other processes disturb one core least
keep_freed_memory()                     # otherwise chance decides who pays for fresh pages of memory
one, other = large(), large()
programs = {                            # name: how many tensors it must read or write, function, inputs
    "gelu(x) * y": (3, gelu_gate, (one, other)),
    "softmax": (2, lambda x: torch.softmax(x, -1), (one,)),
    "sum of each row": (1, lambda x: x.sum(-1), (one,)),
}
variants = {}
for name, (_, function, inputs) in programs.items():
    for who, run in (("ours", minidynamo.compile(function)), ("eager", function)):
        variants[who, name] = lambda run=run, inputs=inputs: run(*inputs)
roof = measure_roof(variants)
rate = {(who, name): programs[name][0] * BYTES / roof.seconds[who, name] / 1e9 for who, name in variants}
limit = roof.bandwidth / 1e9

figure, axis = plt.subplots(figsize=(7, 2.8), layout="constrained")
for shift, who in ((-0.2, "ours"), (0.2, "eager")):
    hatch, colour = LOOKS[who]
    axis.barh([k + shift for k in range(len(programs))], [rate[who, n] for n in programs], 0.4, label=who,
              color=colour, hatch=hatch)
axis.set_yticks(range(len(programs)), list(programs))
axis.invert_yaxis()
axis.axvline(limit, linestyle="--", color="black", label=f"limit: {roof.fastest}")
axis.set_xlabel("GB/s of necessary traffic (longer is better)")
axis.set_title(this_machine())
axis.legend(fontsize=8, loc="upper left", bbox_to_anchor=(1, 1));

# %% [markdown]
# The next cell prints the same rates as percentages of the limit:
# <!-- general -->

# %% tags=["volatile"]
print(f"the limit is the rate of {roof.fastest}: {limit:.0f} GB/s on {this_machine()}")
for name in programs:
    ours, eager = rate["ours", name], rate["eager", name]
    print(f"{name:16} ours {ours:5.1f} GB/s, {ours / limit:4.0%} of the limit;   eager {eager:5.1f} GB/s, {eager / limit:4.0%}")

# %% [markdown]
# No program can be faster than memory. A figure above 100% has one of two causes. Either other
# processes disturbed the measurement of the limit, or a large cache kept a part of the data.
# <!-- general -->
#
# If the limit comes from summing rows, a program that writes stays below it. The processor reads a
# cache line before it writes to it, and the bars do not count this traffic. Every other kernel far
# below the limit could be faster. Softmax computes an exponential and a division for each element,
# so arithmetic takes part of its time. The sum of each row only reads. If eager's bar is longer
# than ours there, eager's kernel is better: both sums are equally accurate.
#
# ## What threads bring
#
# `#pragma omp parallel for` divides a loop into one piece for each thread. The gain depends on what
# the kernel waits for. Each core has its own arithmetic, but all cores share the memory. The gain
# also depends on free cores. The next plot shows three kernels, with one thread and with more, on
# the machine in its title. The dashed line is a perfect gain:

# %% tags=["volatile"] alt="Lines: how many times faster than one thread three kernels run with more threads; a dashed line shows the perfect gain"
import os

cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
counts = sorted({1, 2, cores})[:3]
small, x, y = torch.randn(64, 64), torch.randn(4096, 1024), torch.randn(4096, 1024)
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
    scaling[name] = {n: min(t.seconds) for n, t in interleave(variants, budget=4).items()}    # the best round
torch.set_num_threads(1)

figure, axis = plt.subplots()
for marker, (name, seconds) in zip("osd", scaling.items()):
    axis.plot(counts, [seconds[1] / seconds[n] for n in counts], marker=marker, label=name)
axis.plot(counts, counts, color="black", linestyle="--", label="perfect")
axis.set(xticks=counts, xlabel="threads", ylabel="times faster than one thread", title=this_machine())
axis.set_ylim(bottom=0)
axis.legend();

# %% [markdown]
# A parallel loop ends when its slowest piece ends. So threads make a kernel faster only if no other
# process uses their cores. The plot uses the best of many rounds, which other processes disturb
# least. The next cell prints its figures:
# <!-- general -->

# %% tags=["volatile"]
most = counts[-1]
print(f"measured on {this_machine()}:")
for name, seconds in scaling.items():
    print(f"{name:38} {most} threads: {seconds[1] / seconds[most]:.2f} times as fast as one")

# %% [markdown]
# On a machine without other work, the kernel with much arithmetic gains the most: two cores do
# nearly twice the arithmetic of one. The kernel that waits for memory gains less, because the cores
# share the memory. With many cores this difference is larger than with two. On a busy machine all
# gains are smaller. The small kernel gains nothing, because it has no threads: starting and joining
# them would take longer than the kernel runs. So the generator writes the pragma for threads only
# where the work is large. The next cell prints the pragmas of one function, for the small and for
# the large array:
# <!-- general -->

# %%
def pragmas(function, *inputs):
    e = minidynamo.explain(function)(*inputs)
    return [line.strip() for kernel in e.main.compiled.kernels for line in kernel.source.splitlines()
            if "#pragma omp" in line]

for inputs in ((small,), (x,)):
    print(tuple(inputs[0].shape), pragmas(lambda x: torch.exp(torch.sin(x)), *inputs))

# %% [markdown]
# Only the second pragma has `parallel`; both have `simd`, the vector instructions.  Sums need care.
# With threads each piece has its own partial result, and the kernel adds the partial results at the
# end. A different number of threads adds in a different order, so the last digits may differ.
# <!-- shows: count("parallel") == 1 and count("simd") == 2 -->
#
# ## Compile time is part of the product
#
# TorchInductor's C++ kernels include torch's headers, and the C++ compiler reads those first. Our
# kernels include only the prelude. (Tables in chapters 00 and 15 measure both.) All kernels of a
# graph go into a few files, which are compiled at the same time. Equal kernels are compiled once.
# The compiled files (shared objects) stay on disk, under a name that `cache_key` computes:

# %%
from miniinductor import toolchain as build

excerpt(build.cache_key)

# %% [markdown]
# The key depends on everything that may change the machine code. That is torch's version, the
# command with its flags, the compiler, the processor, and the source without its comments. The next
# cell compiles a function twice, first with an empty cache:
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
# The second compilation found the shared object on disk, and did not call the C++ compiler.
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
# Equal sources are compiled once, however many layers call them. The next cell shows the kernel
# that computes the most buffers:
# <!-- shows: has("38 kernel calls, 4 different kernels") -->

# %%
longest = max(kernels, key=lambda k: len(k.nodes))
Code(longest.source, "cpp", "the one that computes the most buffers")

# %% [markdown]
# The kernel looks up three embeddings, adds them, and normalises the sum. The row stays in
# `scratch0`. Each of the 64 lanes in `lane0` adds few numbers, so it loses few digits; `sum_of`
# adds the lanes. An index outside its table sets a bit of `error`, and the kernel reads row 0
# instead. The caller then raises an error.
# <!-- shows: has("scratch0[768]") and has("lane0[64]") -->
#
# ## Exercises
#
# **11.1** (warm-up) *Write once.* Give `TinyCpp` common subexpressions: if `line` has written an
# expression before, it returns the old name and appends nothing.
#
# *Hints.* Override `line`. Keep a dictionary from each expression to its name.

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
# **11.2** (core) *NaN.* Repair `maximum`: if either operand is NaN, the result is NaN. Write an
# expression that GCC can vectorise, without a branch and without a library call.
#
# *Hints.* `a != a` is true exactly for NaN. If `a` is NaN, return `a`. Otherwise `a > b ? a : b` is
# enough: a comparison with NaN is false, so it returns `b` when `b` is NaN.

# %% tags=["exercise"]
class TinyCppNan(TinyCppBase):
    """maximum treats NaN as torch.maximum does."""
    ### BEGIN SOLUTION instead of pass
    def maximum(self, a, b):
        return self.line(f"{a} != {a} || {a} > {b} ? {a} : {b}")
    ### END SOLUTION

# %% tags=["check"]
check("11.2", TinyCppNan)

# %% [markdown]
# **11.3** (stretch) *A kernel by hand.* Write the C++ source of a kernel that computes the sum of
# each row of a `rows x columns` float32 matrix. The relative error must be below 1e-6 on ten
# million numbers. The signature is `NAME(void** args)`; `args[0]` is the matrix, `args[1]` the
# sums.
#
# *Hints.* An accumulator of type `double` is accurate and slower. Partial sums in float over chunks
# of 16 numbers, added up in double, are accurate and fast. (Shorter chunks have smaller errors. Try
# a larger chunk, and read the row of the check.) The last chunk of a row may be shorter. Return 0.

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
# **11.4** (stretch) *Tiles.* A transpose reads rows and writes columns. Each write touches a
# different cache line. When the loop comes to the next number of a line, the line has left the
# cache. Tiles help: the loop finishes a small square while its lines are still in the cache. Write
# `in_tiles(rows, columns, tile)`, which returns all pairs `(row, column)`, tile by tile. The tiles
# go from left to right, then down; inside a tile the pairs go row by row. Tiles at the edges are
# smaller.
#
# *Hints.* Use four loops, or `range` with a step. The check counts the lines that a small cache
# misses.
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
# **The piece.** A kernel goes through its rows, and walks over the columns of each row once or
# several times. You decide which loops share one *walk* and which values must be in memory. You
# write the loops over rows, a walk, its code for one column, and the end of a reduction. You also
# write expressions, numbers, and the offset of an element. The head of the function is given.
#
# <details><summary>Hint: walks</summary>
#
# A loop may join the last walk if `takes` allows it; otherwise a new walk begins. Never put a loop
# before one that it reads.
#
# `takes` first compares the numbers of columns: `text_of(loop.columns)`. A reduction of this walk
# is not complete yet, so the loop must not read its result. If the loop reads another value of this
# walk, it must read the element that was just computed. `other.result` is this element of the loop
# `other`.
#
# </details>
# <details><summary>Hint: memory</summary>
#
# A value must be in memory if another kernel or another walk reads it. But a walk of the same row
# finds the result of a reduction in a register.
#
# </details>
# <details><summary>Hint: rows and places</summary>
#
# `#pragma omp parallel for collapse(n)` divides the work of `n` nested loops that have no statement
# between them. The offset in a tensor of sizes `a, b, c` is `(i0 * b + i1) * c + i2`; the text is
# `name[offset]`.
#
# </details>
# <details><summary>Hint: reductions</summary>
#
# The sum of a row is one variable, `row_NAME`. After `#pragma omp simd reduction(+:row_NAME)` the
# C++ compiler may keep several partial sums in a vector. It adds them up at the end of the row.
# `JOIN` has the operator before the colon. `FORMS[loop.reduction]` joins two values.
#
# </details>
# <details><summary>Hint: expressions</summary>
#
# Look in `registers` and `row_values` before memory: a value that was just computed may not be in
# memory. `FORMS[op].format(...)` takes the texts of the arguments.
#
# </details>
# <details><summary>Hint: numbers</summary>
#
# A number ends with `f`; infinity is `mini::inf`. A symbol is an `int64_t`, so `number` casts it to
# `float`.
#
# </details>

# %%
from exercises.own_compiler import begin

begin("cpp");

# %% [markdown]
# The output names your functions. Write them in that file, and run the check as often as you like:

# %% tags=["check", "piece"]
from exercises.own_checks import check_piece

check_piece("cpp")

# %% [markdown]
# ## What else lives here
#
# The list below has every public name of this chapter's core files, with one sentence each. Unfold
# a file, then a name, to see its first lines. The list is made from the sources when the page is
# built.

# %% tags=["volatile"]
from minidynamo.explain import also_here

also_here("miniinductor/codegen/kernels.py", "miniinductor/codegen/", "miniinductor/codegen/cpp/",
          "miniinductor/toolchain.py")

# %% [markdown]
# ## What real PyTorch has
#
# * `torch/_inductor/codegen/cpp.py` has explicit vector classes (`at::vec`), masked tails, many CPU
#   targets and GEMM templates. Section 4 of the paper describes them.
# * `torch/_inductor/codecache.py` and `torch/_inductor/cpp_builder.py` have the caches, which
#   several machines can share.
#
# **See it in the real `torch.compile`.** `TORCH_LOGS=output_code python program.py` prints the
# wrapper, with the C++ of every kernel in it.
#
# ## Recap
#
# * A code generator is a handler whose values are names.
# * A C++ compiler vectorises simple loops of scalar maths without branches.
# * The generator must provide accuracy (chunked sums, NaN) and good access patterns (tiles). GCC
#   provides neither.
#
# Next: the same IR on a GPU.
