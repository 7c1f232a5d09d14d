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
# # 12 · Triton code generation, and Triton beside CUDA
#
# The loop IR knows nothing about processors. The handler of notebook 11 wrote C++ loops. Another
# handler, over the same scheduler, writes GPU kernels. It writes them in **Triton**, a language inside
# Python. A Triton program says what happens to a *tile* of a tensor, and a compiler decides which thread
# holds which element.
#
# **What you will learn:** how a GPU reads memory, and why a kernel is divided differently there; one
# kernel in CUDA C++ and in Triton; masks; the four shapes of kernel that the generator writes; the
# online softmax; what Triton makes of a kernel (TTGIR, PTX); how close our kernels come to the
# bandwidth of a real GPU.
#
# **You need no GPU.** Triton has an interpreter, which runs a kernel on CPU tensors, one program after
# the other. Choose it before you import triton. The interpreter is slow, so this notebook times nothing
# in it. The GPU times below were recorded, and each title names the machine. (Triton's packages exist
# for Linux only.)
#
# **Files of this chapter:** `miniinductor/devices.py`, `miniinductor/codegen/triton/`.

# %%
import os

os.environ["TRITON_INTERPRET"] = "1"

import torch
import triton
import triton.language as tl

import minidynamo
import miniinductor
from minidynamo.explain import Code, Table
from minidynamo.explain.views import Several

torch.manual_seed(0)
torch.set_grad_enabled(False);

# %% [markdown]
# ## A GPU in a few sentences
#
# A GPU such as the H100 has 132 processors (*multiprocessors*). Each has four schedulers, tens of
# thousands of registers, and a small fast *shared memory*. Threads run in **warps** of 32, and the
# threads of a warp execute one instruction together. A kernel is a program that the GPU runs many times
# at once. Each run is a *block* of threads. The blocks form a *grid*, and each block knows its number in
# the grid.
#
# The next picture shows these parts:

# %%
from drawings import gpu

gpu()

# %% [markdown]
# Memory is far away from the registers. Data moves in **sectors of 32 bytes**; four sectors form a line
# of the cache, which has 128 bytes.
# <!-- general -->
#
# Suppose that the 32 threads of a warp read 32 neighbouring floats, and that the first
# float begins a sector. These floats fill four sectors, and the warp uses every byte. If the threads
# read 32 scattered floats instead, 32 sectors move, and the warp throws 28 of each 32 bytes away.
#
# A GPU hides the distance to memory in three ways. Other warps run in the meantime. One thread has
# several loads under way at once. Copies into shared memory run at the same time as arithmetic.
#
# *The kitchen.* A hundred and thirty-two kitchens share one cellar. A porter brings crates of eight
# bottles. If the 32 cooks of a team want 32 neighbouring bottles, four crates are enough. *Exactly:*
# **coalescing** merges the addresses that a warp reads in one instruction into sectors.
#
# ## The naive version: one thread per row
#
# The C++ kernel for softmax has an outer loop over rows, one row per iteration. The obvious GPU kernel
# gives each thread a row. The next cell counts the bytes that one warp moves to read the same 32 rows in
# two ways. The count assumes no cache: a sector that two instructions read counts twice.

# %%
def sectors(addresses, size=32):
    """How many sectors one load instruction touches; addresses: one byte address for each thread that takes part."""
    return len({address // size for address in addresses})

rows, columns, warp = 32, 1000, range(32)
# thread t reads row t, one column after the other
thread_per_row = [[4 * (t * columns + k) for t in warp] for k in range(columns)]
# the 32 threads share a row; in the last step of a row fewer of them take part
warp_per_row = [[4 * (row * columns + k + t) for t in warp if k + t < columns]
                for row in range(rows) for k in range(0, columns, len(warp))]
useful = 4 * rows * columns
measured = {name: [sectors(one) for one in loads] for name, loads in
            (("a thread per row", thread_per_row), ("a warp per row", warp_per_row))}
Table(["", "load instructions", "most sectors in a load", "bytes moved", "moved per useful byte"],
      [(name, len(found), max(found), f"{32 * sum(found):,}", f"{32 * sum(found) / useful:.2f}")
       for name, found in measured.items()], "the same 32 rows of 1000 float32, read by one warp")

# %% [markdown]
# A warp that shares a row moves no byte twice. A thread per row moves eight bytes for each useful one.
# Which bytes move? The picture shows the first loads of both ways, and the last load of a row, in which
# few threads take part. (Use the buttons, or the arrow keys.)
# <!-- shows: n("a warp per row", 3) == 1 and n("a thread per row", 3) == 8 -->

# %%
from steppers import warp_walk

warp_walk({"a thread per row": thread_per_row[:2], "a warp per row": warp_per_row[:2], "the end of a row": warp_per_row[31:32]})

# %% [markdown]
# With a thread per row, each thread reads from a sector of its own. With a warp per row, eight
# neighbours share a sector.
# <!-- shows: has("a thread per row, load 1: 32 threads want 128 bytes in 32 sectors") and has("a warp per row, load 1: 32 threads want 128 bytes in 4 sectors") -->
#
# A cache helps a thread per row: the next column is in the same sector, which the cache may still hold.
# With thousands of threads, the sector has often left the cache. How much of the traffic is thrown away
# then?

# %%
assert max(measured["a thread per row"]) == 32 and max(measured["a warp per row"]) <= 5
print("thrown away, a thread per row:", f"{1 - useful / (32 * sum(measured['a thread per row'])):.0%}")

# %% [markdown]
# A thread per row moves seven of eight bytes for nothing.
# <!-- shows: n("thrown away, a thread per row:") == round(100 * 7 / 8) -->
#
# So the loop order of C++ is wrong on a GPU. Threads must run along memory, and the reduction must
# go across threads. The next cell does so by hand, in CUDA C++. One *block* of threads takes a row.
# Each thread first reduces its own elements. Shuffle instructions pass values between the threads
# of a warp, and combine the results of its threads. Shared memory then combines the results of the
# warps:

# %%
cuda = r"""
__device__ float block_reduce(float value, bool maximum, float* shared) {
    for (int offset = 16; offset; offset /= 2) {                        // within a warp
        float other = __shfl_xor_sync(~0u, value, offset);
        value = maximum ? fmaxf(value, other) : value + other;
    }
    if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = value;        // one value per warp
    __syncthreads();
    value = threadIdx.x < blockDim.x / 32 ? shared[threadIdx.x] : (maximum ? -INFINITY : 0);
    if (threadIdx.x < 32)
        for (int offset = 16; offset; offset /= 2) {
            float other = __shfl_xor_sync(~0u, value, offset);
            value = maximum ? fmaxf(value, other) : value + other;
        }
    if (threadIdx.x == 0) shared[0] = value;
    __syncthreads();
    value = shared[0];
    __syncthreads();                                        // nobody may write `shared` again before all have read
    return value;
}
__global__ void softmax(const float* in, float* out, int columns) {     // blockDim.x = 256, gridDim.x = rows
    __shared__ float shared[32];
    const float* row = in + (long)blockIdx.x * columns;
    float top = -INFINITY, total = 0;
    for (int k = threadIdx.x; k < columns; k += blockDim.x) top = fmaxf(top, row[k]);
    top = block_reduce(top, true, shared);
    for (int k = threadIdx.x; k < columns; k += blockDim.x) total += expf(row[k] - top);
    total = block_reduce(total, false, shared);
    for (int k = threadIdx.x; k < columns; k += blockDim.x)
        out[(long)blockIdx.x * columns + k] = expf(row[k] - top) / total;
}
"""
Code(cuda.strip(), "cuda", "softmax in CUDA C++, by hand (shown, not run)")

# %% [markdown]
# The kernel is right except for NaN, which `fmaxf` forgets. It reads the row three times.
# <!-- shows: count("row[k]") == 3 -->
#
# Three improvements would each be another rewrite: keep the row in registers, load four floats at a
# time, choose the number of threads. None of them has to do with softmax.
#
# ## The same in Triton
#
# In Triton a *program* (a block of threads) computes a tile. `tl.arange` makes a tile of indices,
# `tl.load` reads a tile, and `tl.max` reduces one. The text has no threads, no shared memory and no
# synchronisation. Triton's compiler chooses which thread holds which elements, and inserts the shuffles.
# (`tl.constexpr` marks a number that is known when the kernel is compiled.)

# %%
@triton.jit
def softmax_by_hand(source, out, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    k = tl.arange(0, BLOCK)
    values = tl.load(source + row * columns + k)
    top = tl.max(values, 0)
    e = tl.exp(values - top)
    tl.store(out + row * columns + k, e / tl.sum(e, 0))

x = torch.randn(8, 1024)
out = torch.empty_like(x)
softmax_by_hand[(8,)](x, out, 1024, BLOCK=1024)             # a grid of 8 programs
torch.allclose(out, torch.softmax(x, -1))

# %% [markdown]
# The result is eager's. A row of 1024 elements fills a tile of 1024 exactly. Rows of other lengths
# do not.
# <!-- shows: has("True") -->
#
# ### Masks
#
# A tile's size is a power of two. A row of 1000 elements does not fill a tile of 1024, and the
# memory after the row holds other data. A load with a *mask* reads only where the mask is true, and
# gives `other` elsewhere. Which value should `other` have? The first idea, 0, is wrong:

# %%
@triton.jit
def row_max_wrong(source, out, columns, BLOCK: tl.constexpr):
    row, k = tl.program_id(0), tl.arange(0, BLOCK)
    values = tl.load(source + row * columns + k, mask=k < columns, other=0)
    tl.store(out + row, tl.max(values, 0))

negative = -torch.rand(3, 1000) - 1
top = torch.empty(3)
row_max_wrong[(3,)](negative, top, 1000, BLOCK=1024)
print("with other=0:", top, "  right:", negative.amax(1))

# %% [markdown]
# Every element is negative, and the kernel returns 0, which is in no row.
# <!-- shows: has("tensor([0., 0., 0.])") and count("-1.00") == 3 -->
#
# Beyond the row a load must give the *neutral element* of the reduction: 0 for a sum, minus infinity
# for a maximum. In a kernel written by hand, you pass the right `other` (exercise 12.1). A generator
# knows which reduction follows. It may load 0 and put the neutral element in just before the reduction,
# or load the neutral element itself.
#
# ## A generator: one more handler
#
# Compare this class with `TinyCpp` in notebook 11. Its values are names of *tiles*, and the loop is
# gone:

# %%
from miniinductor.ir.ops import OpsHandler, ops, set_handler

class TinyTriton(OpsHandler):
    """Each op appends a line `tN = ...` and returns `tN`; `index` is a tile of indices, `inside` its mask."""

    def __init__(self):
        self.lines = []

    def line(self, expression):
        name = f"t{len(self.lines)}"
        self.lines.append(f"{name} = {expression}")
        return name

    def load(self, name, index): return self.line(f"tl.load({name} + {index}, inside, other=0)")
    def constant(self, value, dtype): return repr(float(value))
    def add(self, a, b): return self.line(f"{a} + {b}")
    def mul(self, a, b): return self.line(f"{a} * {b}")
    def exp(self, a): return self.line(f"tl.exp({a})")
    def store(self, name, index, value, mode=None): self.lines.append(f"tl.store({name} + {index}, {value}, inside)")

def body(i):
    v = ops.load("x", i)
    ops.store("out", i, ops.exp(ops.add(ops.mul(v, ops.constant(-2, torch.float32)), v)))

def tiny_triton_kernel(body):
    with set_handler(TinyTriton()) as handler:
        body("index")
    inner = "\n".join("    " + line for line in handler.lines)
    return ("import triton\nimport triton.language as tl\n\n\n@triton.jit\ndef tiny(x, out, n, BLOCK: tl.constexpr):\n"
            f"    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)\n    inside = index < n\n{inner}\n")

Code(tiny_triton_kernel(body), "python", "the body of notebook 11, as Triton")

# %% [markdown]
# The loop is gone, and loads and stores have a mask. The body is unchanged: it knows nothing of Triton.
# The next cell runs the kernel in four programs. The tile of the last program reaches beyond the end:
# <!-- shows: has("tl.store(out + index, t3, inside)") -->

# %%
from miniinductor.codegen.triton.build import source_file
from miniinductor.codegen.triton.interpreter import load_interpreted

# Triton reads a kernel's text from its file
file = source_file(tiny_triton_kernel(body))
tiny = load_interpreted(file, "tiny")
x, out = torch.randn(1000), torch.empty(1000)
tiny[(4,)](x, out, 1000, BLOCK=256)
torch.allclose(out, torch.exp(-2 * x + x))

# %% [markdown]
# The result is eager's. The mask kept the last program inside the tensor.
# <!-- shows: has("True") -->
#
# ## The real generator
#
# `miniinductor/codegen/triton/kernel_writer.py` takes the same fused groups as the C++ generator.
# It also knows about tiles. A value there has a name, a dtype, and the *axes* along which it
# varies. A tile has `XBLOCK` rows and `RBLOCK` columns. A mean per row is a column `[XBLOCK, 1]`,
# and Triton broadcasts it against a tile `[XBLOCK, RBLOCK]`.
#
# A load of the real writer begins with a question: did this kernel compute the value itself?

# %%
from miniinductor.codegen.triton.kernel_writer import TritonKernelWriter
from parts import part

part(TritonKernelWriter.load, ("if name in self.values", "return self.values[name]"))

# %% [markdown]
# `values` maps each buffer that this kernel has computed to its tile. Such a value needs no load. The
# rest of the method handles the other cases, and its last line loads a tile from memory.
# <!-- general -->
#
# With `cpu_backend="triton"` the compiler writes Triton for CPU tensors, and the interpreter runs it.
# The next cell compiles one function with both generators:

# %%
def scaled_softmax(x):
    return torch.softmax(x * 0.5, -1)

def both(function, *arguments):
    """The kernels in C++ and in Triton, side by side; both results are compared with eager's."""
    sources = []
    for backend in ("cpp", "triton"):
        with miniinductor.config.patch(cpu_backend=backend):
            e = minidynamo.explain(function)(*arguments)
        torch.testing.assert_close(e.result, function(*arguments), rtol=1e-4, atol=1e-5)
        kernels = e.main.compiled.kernels
        sources.append(Code("\n\n".join(k.source for k in kernels), "cpp" if backend == "cpp" else "python",
                            f"{backend}: {len(kernels)} kernel"))
    return Several(sources, side_by_side=True)

x = torch.randn(300, 1000)
both(scaled_softmax, x)

# %% [markdown]
# The C++ kernel walks along the row three times, and reads the input in two of these walks. The Triton
# kernel reads the row *once*. The row fits into the registers of a block, so maximum, exponentials, sum
# and division work on the same tile.
# <!-- shows: count("tl.load(") == 1 -->
#
# ## Four shapes of kernel
#
# The next picture shows four tensors, one for each shape of kernel. One program computes the
# elements of one shade. The first of these elements shows the number of the program:

# %%
from drawings import kernel_shapes

kernel_shapes()

# %% [markdown]
# A *pointwise* kernel flattens all loops into one. A *tile* kernel reads along one axis and writes
# along the other, each in whole lines. A *persistent* reduction holds complete rows. A *looped*
# reduction walks along a row that is too long to hold.
# <!-- general -->
#
# How large should the blocks be? A table has good guesses for each shape, and timing finds the best of
# them (notebook 13). The next table shows such guesses for an H100. `num_warps` says how many warps share
# the work of one program. `STAGES` says how many steps of a loop are loaded ahead.

# %%
from miniinductor.codegen.triton.tile_plan import block_configs

# the sizes for a GPU; the interpreter prefers a few large tiles
os.environ["TRITON_INTERPRET"] = "0"
shapes = [("pointwise", {"x": 1 << 24}), ("tile", {"y": 4096, "x": 4096}), ("persistent", {"x": 16384, "r": 1024}),
          ("looped", {"x": 64, "r": 1 << 20})]
candidates = [
    (kind, str(sizes), " | ".join(str(c) for c in block_configs(kind, sizes)[:3]))
    for kind, sizes in shapes
]
os.environ["TRITON_INTERPRET"] = "1"
Table(["kind", "sizes", "the first three candidates"], candidates)

# %% [markdown]
# Each row is a shape of kernel, and each candidate is a choice of block sizes and of `num_warps`.
#
# The next function reads one input transposed, so it needs a tile kernel. In C++ the generator copies
# small squares through the cache. In Triton each program loads one tile of each input:

# %%
both(lambda x, y: x.t() + y, torch.randn(64, 96), torch.randn(96, 64))

# %% [markdown]
# In the Triton kernel the transpose is only an index: no kernel moves data for it.
# <!-- shows: count("1 kernel") == 2 -->
#
# ## Long rows: the online softmax
#
# A cross entropy over a large vocabulary needs `max` and then `sum(exp(x - max))`. A looped kernel would
# walk along the row twice. One walk is enough with the **online softmax**. It keeps the sum *relative to
# the maximum so far*, and corrects the sum when the maximum grows. For the next element `v`, the maximum
# `m` and the sum `s` become
#
#     m' = max(m, v)
#     s' = s * exp(m - m') + exp(v - m')
#
# The lowering of a sum recognises its argument (`softmax_input`). The sum becomes a reduction of
# the loop IR, `sumexp`, whose loop (`SumOfExp`) keeps a running pair for each group of neighbours.
# (The cell sets `split_reductions=False`. Otherwise the compiler would divide each of these few
# rows into parts that fit into a tile, and give each part a program.)

# %%
long_rows, labels = torch.randn(70, 40_000), torch.randint(0, 40_000, (70,))
with miniinductor.config.patch(cpu_backend="triton", split_reductions=False):
    e = minidynamo.explain(lambda x, y: torch.nn.functional.cross_entropy(x, y))(long_rows, labels)
torch.testing.assert_close(e.result, torch.nn.functional.cross_entropy(long_rows, labels))
kernel = e.main.compiled.kernels[0]
print("walks along the row:", kernel.source.count("for r_start"))
Code(kernel.source, "python", f"cross entropy: {kernel.name}")

# %% [markdown]
# Both reductions share one loop along the row.
# <!-- shows: n("walks along the row:") == 1 -->
#
# ## What the compiler makes of it
#
# Triton can compile for a GPU that this machine does not have. Our build compiles in worker processes,
# because this process has switched to the interpreter and so cannot compile. Triton goes through five
# stages: its own IR; the same IR with *layouts* (TTGIR), which say which thread holds which element;
# LLVM IR; PTX, which is NVIDIA's portable assembly; and machine code.

# %% tags=["volatile"]
import re
import tempfile
from pathlib import Path
from miniinductor.codegen.triton.build import compile_all

def compile_for_h100(source, name, constants, num_warps):
    """{"ttgir": text, "ptx": text} of a Triton source with one input and one output of float32."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernel.py"
        path.write_text(source)
        job = {"path": str(path), "name": name, "aligned": ["in0", "out0"],
               "signature": {"in0": "*fp32", "out0": "*fp32"} | {b: "constexpr" for b in constants},
               "constants": constants, "num_warps": num_warps, "num_stages": 1, "asserts": False, "capability": 90,
               "kept": "kernel", "triton_cache": folder, "kinds": ["ttgir", "ptx"]}
        answer = compile_all([job])["kernel"]
        assert "error" not in answer, answer
        return answer

with miniinductor.config.patch(cpu_backend="triton"):
    (kernel,) = minidynamo.explain(scaled_softmax)(torch.randn(256, 1024)).main.compiled.kernels
stages = compile_for_h100(kernel.source, kernel.name, {"XBLOCK": 1, "RBLOCK": 1024}, num_warps=4)
telling = re.compile(r"#blocked\d* =|tt\.load|tt\.reduce|tt\.store|math\.|divf|mulf")
interesting = [re.sub(r" loc\(.*?\)$", "", line) for line in stages["ttgir"].splitlines() if telling.search(line)]
Code("\n".join(interesting), "text", "TTGIR of the softmax kernel, an excerpt: each tensor type names its layout")

# %% [markdown]
# A layout names `sizePerThread`, `threadsPerWarp` and `warpsPerCTA` (a CTA is a block of threads). The
# first layout says that each thread holds four neighbouring elements. So a warp loads four whole cache
# lines with one instruction.
# <!-- shows: has("sizePerThread = [1, 4], threadsPerWarp = [1, 32]") -->
#
# Triton has inserted what we wrote by hand in CUDA: shuffles, shared memory and barriers. The next table
# counts the instructions of the kernel:

# %% tags=["volatile"]
kinds = {"ld.global.v4": "loads of four floats", "ld.global.b32": "loads of one",
         "shfl.sync": "shuffles inside a warp", "st.shared": "writes to shared memory",
         "ld.shared": "reads of shared memory", "bar.sync": "barriers", "ex2.approx": "exponentials",
         "fma.rn": "fused multiply-adds", "div.": "divisions", "st.global.v4": "stores of four floats"}
ptx = stages["ptx"].replace(".L1::evict_last", "").splitlines()
counted = {text: sum(kind in line for line in ptx) for kind, text in kinds.items()}
Table(["instruction", "what", "in the kernel"], [(k, text, counted[text]) for k, text in kinds.items()],
      "PTX for sm_90, 128 threads, a row of 1024")

# %% [markdown]
# Each of 128 threads loads four floats twice: that is a row of 1024, read once. The shuffles belong to
# the two reductions. (`sm_90` is NVIDIA's name for processors of this kind.)
# <!-- shows: n("loads of four floats") == 2 and n("loads of one") == 0 and n("shuffles inside a warp") > 0 -->
#
# The next cell shows the assembly around the loads:

# %% tags=["volatile"]
ptx = [line for line in ptx if line.strip() and not line.lstrip().startswith((".loc", "//", ".file", "$L__tmp"))]
at = next(n for n, line in enumerate(ptx) if "ld.global" in line)
Code("\n".join(ptx[at - 4:at + 26]), "text", "PTX, around the load of the row")

# %% [markdown]
# The kernel has two loads. It then multiplies every number by a half (`0f3F000000` is 0.5). The maximum
# of eight numbers follows, two at a time. `max.NaN` is a maximum that keeps a NaN.
# <!-- shows: count("ld.global.v4") == 2 and has("0f3F000000") and has("max.NaN") -->
#
# The next table compares both languages:
#
# | | CUDA C++ | Triton |
# |---|---|---|
# | the text says what | one thread does | one tile (a block of threads) does |
# | addresses, vector loads | by hand | from the layout that the compiler chooses |
# | reductions | shuffles, shared memory, barriers, by hand | `tl.sum`, `tl.max`, `tl.reduce` |
# | odd sizes | `if` | masks |
# | number of threads | fixed in the code | `num_warps`: a number to tune |
# | jumps that depend on data, different work for each warp, irregular data structures | anything | little or nothing |
# | as the target of a generator | long texts | one expression per op |
#
# ## A real model
#
# The interpreter runs everything that GPT-2 needs. Both backends get the same fused groups from the
# scheduler, so they should write the same number of kernels:

# %%
from benchmarks.models import gpt2

model, inputs = gpt2(layers=2, sequence=16)
counts = {}
for backend in ("cpp", "triton"):
    with miniinductor.config.patch(cpu_backend=backend, split_reductions=False):
        e = minidynamo.explain(model)(**inputs)
    counts[backend] = len(e.main.compiled.kernels)
    difference = (e.result.logits - model(**inputs).logits).abs().max().item()
    print(f"{backend}: {counts[backend]} kernels, difference to eager below 1e-4: {difference < 1e-4}")
longest = max(e.main.compiled.kernels, key=lambda k: len(k.nodes))
Code(longest.source, "python", f"{longest.name}: {', '.join(longest.nodes)}")

# %% [markdown]
# Both backends write nine kernels and agree with eager. The kernel above looks up two embeddings, adds
# them and normalises the row. The comment at the end of a line names the graph's operation.
# <!-- shows: n("cpp:") == 9 and n("triton:") == 9 and count("below 1e-4: True") == 2 -->
#
# ## On a real GPU
#
# A kernel that must read its input and write its output can hardly be faster than a copy of the same
# bytes. `python -m benchmarks --suite gpu-kernels` compares each kernel with such a copy in the same
# run. The figures below were **recorded** on the machine that the title names. This notebook measured
# none of them.

# %% alt="Bars from zero for each kernel on an H100: the useful bytes a second of a copy, of eager, of our kernel and of torch.compile"
from benchmarks.plots import recorded, recorded_bars, where_recorded

run = recorded("h100_gpu_kernels")
recorded_bars(
    run, "GB/s", ("copy", "eager", "ours", "torch.compile"), label="GB/s of necessary traffic"
);

# %% [markdown]
# The copy is the reference. A kernel cannot move the same bytes faster than the copy, so a ratio of
# 1.02 shows how large the error of the measurement is. The next table has the same run as numbers;
# its last column divides our bandwidth by the copy's:
# <!-- general -->

# %%
Table(["kernel", "eager ms", "ours ms", "torch.compile ms", "ours / copy"],
      [(r["name"], *(f"{r['ms'][v]:.3f}" for v in ("eager", "ours", "torch.compile")),
        f"{r['ours / copy']:.2f}") for r in run["rows"] if "ours / copy" in r],
      where_recorded(run))

# %% [markdown]
# Most kernels reach the copy's bandwidth. Which kernels are furthest from that?
# <!-- shows: n("softmax fp32", 3) >= 1 and n("layer norm bf16", 3) >= 1 -->

# %%
for row in sorted((r for r in run["rows"] if "ours / copy" in r), key=lambda r: r["ours / copy"])[:3]:
    print(f"{row['name']:24} {row['ours / copy']:.0%} of the copy's bandwidth")

# %% [markdown]
# Sums over dim 0 are furthest from the copy. They read much and write little.
# <!-- shows: n("sum dim 0 bf16") < n("sum dim 0 fp32") < 97 -->
#
# If this machine has a GPU, the next cell runs one row of the suite in a process of its own:

# %% tags=["volatile"]
from benchmarks.runner import on_this_gpu

print(on_this_gpu("gpu-kernels", "softmax"))

# %% [markdown]
# With a GPU, the cell prints the times of eager, ours and `torch.compile`.
#
# ## What limits a small call
#
# The last row of the same recorded run has four pointwise operations on 16 numbers. That is almost no
# work for a GPU:

# %%
tiny_call = next(r for r in run["rows"] if "us" in r)
Table(
    ["variant", "microseconds per call"],
    [(variant, f"{value:.1f}") for variant, value in tiny_call["us"].items()],
    f"{tiny_call['name']}, {where_recorded(run)}",
)

# %% [markdown]
# These microseconds are the price of *calling*: Python, launches, allocation. Notebook 13 reduces this
# price, and also chooses block sizes by timing.
#
# ## Exercises
#
# **12.1** (warm-up) *The neutral element.* Repair `row_max_wrong`. The kernel must give the row maximum for any
# row length up to `BLOCK`, also for negative rows and for rows of minus infinity.
#
# *Hints.* A kernel may use `float("-inf")`. Pass it as `other=`.

# %% tags=["exercise"]
@triton.jit
def row_max(source, out, columns, BLOCK: tl.constexpr):
    """out[row] = max of source[row, :]."""
    ### BEGIN SOLUTION instead of pass
    row, k = tl.program_id(0), tl.arange(0, BLOCK)
    values = tl.load(source + row * columns + k, mask=k < columns, other=float("-inf"))
    tl.store(out + row, tl.max(values, 0))
    ### END SOLUTION

# %% tags=["check"]
from exercises import check

check("12.1", row_max)

# %% [markdown]
# **12.2** (core) *An epilogue.* Below is a matrix product in Triton. Each program accumulates one
# tile of `a @ b` in `acc`. Our Triton backend calls a library for products by default, so the
# operations after a product are a kernel of their own, which reads the product again. Write the
# handler that puts this work *into* the product's kernel. The check runs the real loop body of the
# compiled graph with your handler, and puts the handler's lines where the template says `EPILOGUE`.
#
# *Hints.* `TinyEpilogue` has the arithmetic. Write `load` and `store`.
#
# * The buffer `self.product` needs no load: its value is called `acc`.
# * Read other buffers at `index`, a sympy expression in `x0` (a column of row numbers) and `x1` (a row of
#   column numbers). The template defines both. `index_text(index, "triton")` prints the expression.
# * The mask is called `inside`.
# * The template calls the output `out`, whatever its name in the graph.
# * Call `self.pointer(name)` for the pointer of another buffer.

# %% tags=["support"]
from miniinductor.ir.ops import OpsHandler
from miniinductor.sizes.expressions import index_text

MATMUL = '''import triton
import triton.language as tl


@triton.jit
def matmul(POINTERS, M, N, K, TILE: tl.constexpr):
    x0 = tl.program_id(0) * TILE + tl.arange(0, TILE)[:, None]
    x1 = tl.program_id(1) * TILE + tl.arange(0, TILE)[None, :]
    inside = (x0 < M) & (x1 < N)
    acc = tl.zeros([TILE, TILE], tl.float32)
    for start in range(0, K, TILE):
        k = start + tl.arange(0, TILE)
        a_tile = tl.load(a + x0 * K + k[None, :], (x0 < M) & (k[None, :] < K), other=0)
        b_tile = tl.load(b + k[:, None] * N + x1, (k[:, None] < K) & (x1 < N), other=0)
        acc += tl.dot(a_tile, b_tile)
    EPILOGUE
'''

class TinyEpilogue(OpsHandler):
    """Pointwise ops on tiles; `product` is the name of the matrix product's buffer."""

    def __init__(self, product):
        self.product, self.lines, self.pointers = product, [], []

    def line(self, expression):
        self.lines.append(f"t{len(self.lines)} = {expression}")
        return f"t{len(self.lines) - 1}"

    def pointer(self, name):
        if name not in self.pointers:
            self.pointers.append(name)
        return name

    def constant(self, value, dtype): return repr(float(value))
    def add(self, a, b): return self.line(f"{a} + {b}")
    def sub(self, a, b): return self.line(f"{a} - {b}")
    def mul(self, a, b): return self.line(f"{a} * {b}")
    def exp(self, a): return self.line(f"tl.exp({a})")
    def erf(self, a): return self.line(f"tl.erf({a})")
    def sigmoid(self, a): return self.line(f"tl.sigmoid({a})")
    def maximum(self, a, b): return self.line(f"tl.maximum({a}, {b})")
    def relu(self, a): return self.line(f"tl.maximum({a}, 0.0)")

# %% tags=["exercise"]
class Epilogue(TinyEpilogue):
    """The accumulator instead of a load; everything else from memory."""
    ### BEGIN SOLUTION instead of pass
    def load(self, name, index):
        if name == self.product:
            return "acc"
        return self.line(f"tl.load({self.pointer(name)} + {index_text(index, 'triton')}, inside, other=0)")

    def store(self, name, index, value, mode=None):
        self.lines.append(f"tl.store(out + {index_text(index, 'triton')}, {value}, inside)")
    ### END SOLUTION

# %% tags=["check"]
check("12.2", (Epilogue, MATMUL))

# %% [markdown]
# **12.3** (stretch) *Merging two softmaxes.* The online softmax keeps pairs `(m, s)`: the maximum of a set of
# numbers, and the sum of `exp(v - m)` over the set. Write how to merge two pairs. With your function,
# `tl.reduce` finds both in one pass and in any order. Lanes, warps and programs share work in this way.
#
# *Hints.* The formula above merges a pair with a set of one number. A set may contain only minus
# infinity; then `m - m` is NaN. Subtract 0 where the new maximum is minus infinity (`tl.where`).

# %% tags=["exercise"]
@triton.jit
def merge(m1, s1, m2, s2):
    """(m, s) of both sets together."""
    ### BEGIN SOLUTION instead of pass
    m = tl.maximum(m1, m2)
    base = tl.where(m == float("-inf"), 0.0, m)
    return m, s1 * tl.exp(m1 - base) + s2 * tl.exp(m2 - base)
    ### END SOLUTION

# %% tags=["check"]
check("12.3", merge)

# %% [markdown]
# **12.4** (core) *Sectors.* Memory moves in sectors of 32 bytes. The function `sectors` above
# assumes that no number crosses into the next sector, and that all lanes take part. Write
# `sectors(addresses, size)`: the number of sectors that one load of a warp moves. `addresses` has a
# byte address for each lane, or None for a lane that is masked off. Each lane reads `size` bytes,
# which may cross into the next sector.
#
# *Hints.* The first and the last byte of a lane give its sectors. If several lanes read from one
# sector, count that sector once.
#
# <details><summary>Predict: a warp reads a row of float32 from an address that is no multiple of the sector. How many sectors?</summary>
#
# One sector more than its bytes would fill: the warp uses only a part of the first sector and of
# the last one.
#
# </details>

# %% tags=["exercise"]
def sectors(addresses: list, size: int) -> int:
    """The number of 32-byte sectors that are moved."""
    ### BEGIN SOLUTION
    touched = set()
    for address in addresses:
        if address is not None:
            touched |= set(range(address // 32, (address + size - 1) // 32 + 1))
    return len(touched)
    ### END SOLUTION

# %% tags=["check"]
check("12.4", sectors)

# %% [markdown]
# ## Your own compiler: the same in Triton
#
# **The piece.** One program computes a row, and one vector holds all its columns. The writer of
# chapter 11 writes the expressions, with different `forms`. You write the head of the kernel, one
# loop, a load, a number, and the step from text to function. The check runs your kernel in Triton's
# interpreter. The capstone trains on the CPU, so this piece is for the curious.
#
# <details><summary>Hint: rows</summary>
#
# `tl.program_id(0)` is one number. The last row index is its remainder by the last size. Divide and
# continue with the next size.
#
# </details>
# <details><summary>Hint: columns</summary>
#
# The vector `c = tl.arange(0, BLOCK)` has the next power of two as its length. Call its mask `inside`:
# `REDUCTIONS` and `place` use this name. An element beyond the last column must not be loaded, not be
# stored, and not be part of a sum.
#
# </details>
# <details><summary>Hint: values</summary>
#
# Remember the name of each result: the next loop of this kernel uses the variable, not the memory.
# `text` first asks `registers`, and then `place`. If this kernel computes the value but has not done so
# yet, raise `Refused`.
#
# </details>
# <details><summary>Hint: building</summary>
#
# `exec(compile(source, name, "exec"), variables)` runs the text. Triton reads the text again from
# `linecache.cache[name]`. Call the kernel as `variables["kernel"][(programs,)](*arguments,
# BLOCK=...)`. The next power of two is `1 << (n - 1).bit_length()`.
#
# </details>

# %%
from exercises.own_compiler import begin

begin("gpu");

# %% [markdown]
# The line names the functions that you write. Edit that file, and run the check as often as you like:

# %% tags=["check", "piece"]
from exercises.own_checks import check_piece

check_piece("gpu")

# %% [markdown]
# ## What else lives here
#
# The next list has every public name of this chapter's core files, with one sentence each. Unfold a file,
# then a name, to see its first lines. The build makes the list from the sources.

# %% tags=["volatile"]
from minidynamo.explain import also_here

also_here("miniinductor/devices.py")

# %% [markdown]
# ## What real PyTorch has
#
# * `torch/_inductor/codegen/triton.py`: the same handler. It also has templates with epilogues for matrix
#   products and convolutions (`torch/_inductor/kernel/mm.py`, jinja), cooperative and split reductions,
#   and tensor descriptors. Paper, section 4.
# * `torch/_inductor/runtime/triton_heuristics.py`: the candidates, and their timing.
# * Triton itself: *Triton: an intermediate language and compiler for tiled neural network
#   computations*, MAPL 2019.
#
# **See it in the real `torch.compile`.** `TORCH_LOGS=kernel_code python program.py` prints every Triton
# kernel when it is compiled.
#
# ## Recap
#
# * On a GPU neighbouring threads should read neighbouring addresses. The loop order of C++ is wrong
#   there.
# * A Triton program computes a tile. The compiler gives elements to threads, and inserts what a CUDA
#   programmer writes by hand.
# * The generator is one more handler. Its values know their axes; masks and neutral elements make odd
#   sizes right.
# * A kernel reads a row once if the row fits. Two reductions of a long row share one walk.
#
# Next: who calls the kernels, where their memory comes from, and how timing finds the best block size.
