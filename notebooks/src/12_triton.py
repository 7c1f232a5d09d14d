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
# The loop IR knows nothing about processors. The handler of notebook 11 wrote C++ loops; another
# handler, over the same scheduler, writes GPU kernels. They are written in **Triton**, a language
# inside Python in which one writes what happens to a *tile* of a tensor, and a compiler decides
# which thread holds which element.
#
# **What you will learn:** how a GPU reads memory, and why a kernel must be cut up differently
# there; a kernel in CUDA C++ and the same one in Triton; masks; the four shapes of kernel that the
# generator writes; the online softmax; what becomes of a Triton kernel (TTGIR, PTX), without having
# a GPU; how close to the machine the kernels came on a real one.
#
# **No GPU is needed.** Triton has an interpreter that runs a kernel on CPU tensors, program by
# program, with numpy arrays as tiles. It must be chosen before triton is imported. It is slow, so
# nothing is timed in it: the times below were recorded on a GPU and say so. (Triton's packages
# exist for Linux only.)
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
from minidynamo.explain import Code, Table, excerpt
from minidynamo.explain.views import Several

torch.manual_seed(0)
torch.set_grad_enabled(False)

# %% [markdown]
# ## A GPU in a few sentences
#
# A GPU of the H100's kind has 132 processors, each with four schedulers and tens of thousands of
# registers. Threads run in **warps** of 32 that execute one instruction together. A kernel is a
# program that is started many times at once (a *grid*); each start knows its number. Memory is far
# away, and moved in **sectors of 32 bytes** (four of them are one line of the cache, 128 bytes). If the
# 32 threads of a warp ask for 32 neighbouring floats, those lie in four sectors, if the first
# of them begins a sector, and every byte is used. If they ask for 32 scattered floats, 32 sectors are moved, and 28 of each 32 bytes are thrown
# away. Three things hide the distance: other warps that run in the meantime, several loads of one
# thread that are under way at once, and copies into shared memory that run beside the arithmetic.
#
# *The kitchen.* A hundred and thirty-two kitchens, one cellar. A porter brings crates of eight
# bottles. If the 32 cooks of a team want 32 neighbouring bottles, four crates are enough. *Exactly:*
# **coalescing**: the addresses that a warp reads in one instruction are merged into sectors.

# %%
from drawings import gpu

gpu()

# %% [markdown]
# ## The naive version: one thread per row
#
# The C++ kernel for softmax has an outer loop over rows, one row per iteration. The obvious GPU
# kernel gives each thread a row. Count what one warp moves in order to read the same 32 rows both
# ways (the sectors of two instructions are counted twice: no cache is assumed):

# %%
def sectors(addresses, size=32):
    """Sectors that one load instruction of a warp touches; the byte address of each thread that takes part."""
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
Table(["", "load instructions", "most sectors in one", "bytes moved", "per useful byte"],
      [(name, len(found), max(found), f"{32 * sum(found):,}", f"{32 * sum(found) / useful:.2f}")
       for name, found in measured.items()], "the same 32 rows of 1000 float32, read by one warp")

# %% [markdown]
# Which bytes are these? The first loads of both ways, and the last one of a row, in which few threads
# take part. (Use the buttons, or the arrow keys.)

# %%
from steppers import warp_walk

warp_walk({"a thread per row": thread_per_row[:2], "a warp per row": warp_per_row[:2], "the end of a row": warp_per_row[31:32]})

# %% [markdown]
# In the first way each thread's number lies in a sector of its own. In the second one eight neighbours
# share a sector.
#
# A cache helps the first way: the next column lies in the same sector, if that is still there. With
# thousands of threads it often is not.

# %%
assert max(measured["a thread per row"]) == 32 and max(measured["a warp per row"]) <= 5
print("thrown away, a thread per row:", f"{1 - useful / (32 * sum(measured['a thread per row'])):.0%}")

# %% [markdown]
# Seven of eight bytes are moved for nothing. So the loop order of C++ is wrong here: *threads* must run along memory, and the reduction goes
# across threads. In CUDA C++, by hand, it looks like this. One *block* of threads takes a row; the
# maximum and the sum are found by each thread for its own elements, then within each warp with
# shuffle instructions, then across warps through shared memory:

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
# It is right but for NaN (`fmaxf` forgets it), and it reads the row three times. Keeping the row in
# registers, loading four floats at a time and choosing the number of threads would each be another
# rewrite. None of this is about softmax.
#
# ## The same in Triton
#
# In Triton a *program* (a block of threads) computes a tile. `tl.arange` is a tile of indices,
# `tl.load` fetches a tile, `tl.max` reduces one. There are no threads in the text, no shared
# memory, no synchronisation: Triton's compiler chooses which thread holds which elements, and
# inserts the shuffles.

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
# True. A row of 1024 elements fills a tile of 1024 exactly. Not every row does.
#
# ### Masks
#
# A tile's size is a power of two. A row of 1000 does not fill one of 1024, and beyond the row lies
# somebody else's memory. A load with a *mask* reads only where the mask is true, and gives `other`
# elsewhere. Which `other`? The first idea, 0, is wrong:

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
# What lies beyond the row must be the *neutral element* of what follows: 0 for a sum, minus
# infinity for a maximum. By hand one gives the load the right `other` (exercise 12.1). A generator
# knows what follows. It may load 0 and put the neutral element in just before the reduction, or load
# the neutral element itself.
#
# ## A generator: one more handler
#
# Compare with `TinyCpp` in notebook 11. The values are names of *tiles*, and the loop is gone:

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

Code(tiny_triton_kernel(body), "python", "the same body as ever, as Triton")

# %% [markdown]
# Only the printing of loads and stores has changed; the body knows nothing of Triton. It runs in four
# programs here, of which the last has a tile that sticks out:

# %%
from miniinductor.codegen.triton.build import source_file
from miniinductor.codegen.triton.interpreter import load_interpreted

# a kernel must stand in a file: Triton reads its text
file = source_file(tiny_triton_kernel(body))
tiny = load_interpreted(file, "tiny")
x, out = torch.randn(1000), torch.empty(1000)
tiny[(4,)](x, out, 1000, BLOCK=256)
torch.allclose(out, torch.exp(-2 * x + x))

# %% [markdown]
# True: beyond the end nothing was loaded and nothing was stored.
#
# ## The real generator
#
# `miniinductor/codegen/triton/kernel_writer.py` takes the same fused groups as the C++ generator. What it adds
# is knowledge about tiles: a value is a name, a dtype, and the *axes* along which it varies. A mean
# per row is a column `[XBLOCK, 1]`; it broadcasts against `[XBLOCK, RBLOCK]` by itself.

# %%
from miniinductor.codegen.triton.kernel_writer import TritonKernelWriter

excerpt(TritonKernelWriter.load)

# %% [markdown]
# A value that this kernel has made already is a name in `values`. A value whose body is cheap is computed
# again (`replay`). `Pending` is for the online softmax below. Whatever is left is a load from memory,
# `load_tile`.
#
# With `cpu_backend="triton"` the compiler writes Triton for CPU tensors, and the interpreter runs
# it. One function, both generators:

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
# C++ walks along the row three times, and in two of the walks it reads the input. The Triton kernel reads
# the row *once*: it fits into the registers of a block, so maximum, exponentials,
# sum and division work on the same tile.
#
# ## Four shapes of kernel
#
# Each picture is a tensor. One program computes the elements of one shade. The number of the program is
# written into its first element:

# %%
from drawings import kernel_shapes

kernel_shapes()

# %% [markdown]
# *Pointwise* kernels flatten all loops into one. A *tile* kernel reads along one axis and writes
# along the other, each in whole lines. A *persistent* reduction holds complete rows. If a row is
# too long for that, a *looped* one walks along it. How large are the blocks? A table has good guesses for each kind, and the best of them is found by
# timing (notebook 13). These are the candidates for
# an H100:

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
# A row of the table is a kind of kernel. `num_warps` says how many warps
# share the work of one program. `STAGES` says how many steps of a loop are loaded ahead.
#
# A transposed read, as a tile kernel. In C++ the generator copied small squares through the cache;
# here each program does the same with its tile:

# %%
both(lambda x, y: x.t() + y, torch.randn(64, 96), torch.randn(96, 64))

# %% [markdown]
# In the Triton kernel the transpose is in an index: no data was moved for it.
#
# ## Long rows: the online softmax
#
# A cross entropy over a large vocabulary needs `max` and then `sum(exp(x - max))`. A looped kernel would walk along the row twice. One walk is enough, if the sum is kept *relative to the
# maximum so far* and corrected whenever the maximum grows:
#
#     m' = max(m, v)
#     s' = s * exp(m - m') + exp(v - m')
#
# The generator recognises the pair of reductions (`try_online`) and keeps a running pair per group
# of neighbours:

# %%
long_rows, labels = torch.randn(70, 40_000), torch.randint(0, 40_000, (70,))
with miniinductor.config.patch(cpu_backend="triton"):
    e = minidynamo.explain(lambda x, y: torch.nn.functional.cross_entropy(x, y))(long_rows, labels)
torch.testing.assert_close(e.result, torch.nn.functional.cross_entropy(long_rows, labels))
kernel = e.main.compiled.kernels[0]
print("walks along the row:", kernel.source.count("for r_start"))
Code(kernel.source, "python", f"cross entropy: {kernel.name}")

# %% [markdown]
# The first line counts the loops along the row: both reductions share one.
#
# ## What the compiler makes of it
#
# Triton compiles for a GPU that is not there, if it is told which. Our build does so in worker
# processes anyway (they must not import the interpreter). The stages: Triton's own IR, the same
# with *layouts* (TTGIR: which thread holds which element), LLVM IR, PTX (NVIDIA's portable
# assembly), machine code.

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
# `sizePerThread`, `threadsPerWarp`, `warpsPerCTA` (a CTA is a block of threads): the first layout
# says that each thread holds four neighbouring elements, so that a warp loads four whole cache lines with one
# instruction. What we wrote by hand in CUDA (shuffles, shared memory, barriers) has been inserted:

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
# (`sm_90` is NVIDIA's name for processors of this kind.) Two loads of four floats for each of 128
# threads: that is a row of 1024, read once. The shuffles belong
# to the two reductions. The assembly itself, around the loads:

# %% tags=["volatile"]
ptx = [line for line in ptx if line.strip() and not line.lstrip().startswith((".loc", "//", ".file", "$L__tmp"))]
at = next(n for n, line in enumerate(ptx) if "ld.global" in line)
Code("\n".join(ptx[at - 4:at + 26]), "text", "PTX, around the load of the row")

# %% [markdown]
# Two loads; then every number is multiplied by a half (`0f3F000000` is 0.5), and the maximum of eight
# numbers begins, two at a time. `max.NaN` is the maximum that keeps a NaN.
#
# Both languages side by side:
#
# | | CUDA C++ | Triton |
# |---|---|---|
# | one writes what | one thread does | one tile (a block of threads) does |
# | addresses, vector loads | by hand | from the layout that the compiler chooses |
# | reductions | shuffles, shared memory, barriers, by hand | `tl.sum`, `tl.max`, `tl.reduce` |
# | odd sizes | `if` | masks |
# | number of threads | chosen, the code depends on it | `num_warps`: a number to tune |
# | jumps that depend on data, other work for each warp, odd data structures | anything | hardly, or not |
# | as the target of a generator | long texts | an expression per op |
#
# ## A real model
#
# Everything that GPT-2 needs, in the interpreter. The scheduler's groups are the same ones, so
# there are as many kernels as in C++:

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
# Both backends agree with eager. This kernel looks two embeddings up, adds them and normalises the row.
# At the end of a line stands the operation of the graph that it is for.
#
# ## On a real GPU
#
# `python -m benchmarks --suite gpu-kernels` compares with a copy of the same run: nothing
# that must read its input and write its output can be much faster than copying. These figures were
# **recorded** on the machine named in the title; nothing of them was measured where this notebook
# ran.

# %% alt="Bars from zero for each kernel on an H100: the useful bytes a second of a copy, of eager, of our kernel and of torch.compile"
from benchmarks.plots import recorded, recorded_bars, where_recorded

run = recorded("h100_gpu_kernels")
recorded_bars(
    run, "GB/s", ("copy", "eager", "ours", "torch.compile"), label="GB/s of necessary traffic"
);

# %% [markdown]
# The copy is the measure: a kernel that reads and writes once can hardly be faster. A ratio just above
# 1 says how exact the measurement is. The same as numbers:

# %%
Table(["kernel", "eager ms", "ours ms", "torch.compile ms", "ours / copy"],
      [(r["name"], *(f"{r['ms'][v]:.3f}" for v in ("eager", "ours", "torch.compile")),
        f"{r['ours / copy']:.2f}") for r in run["rows"] if "ours / copy" in r],
      where_recorded(run))

# %% [markdown]
# Which rows are furthest from the copy, and so have something left to find?

# %%
for row in sorted((r for r in run["rows"] if "ours / copy" in r), key=lambda r: r["ours / copy"])[:3]:
    print(f"{row['name']:24} {row['ours / copy']:.0%} of the copy's bandwidth")

# %% [markdown]
# If this machine has a GPU, one row of the suite runs here, in a process of its own:

# %% tags=["volatile"]
from benchmarks.runner import on_this_gpu

print(on_this_gpu("gpu-kernels", "softmax"))

# %% [markdown]
# Where there is one, the times of eager, ours and `torch.compile` stand here.
#
# ## What limits a small call
#
# The last row of the same recorded run has four pointwise operations on 16 numbers, which are no
# work at all for a GPU:

# %%
tiny_call = next(r for r in run["rows"] if "us" in r)
Table(
    ["variant", "microseconds per call"],
    [(variant, f"{value:.1f}") for variant, value in tiny_call["us"].items()],
    f"{tiny_call['name']}, {where_recorded(run)}",
)

# %% [markdown]
# That is the price of *calling*: Python, launches, allocation. And we chose block sizes by a table.
# Both are the subject of notebook 13.
#
# ## Exercises
#
# **12.1** (warm-up) *The neutral element.* Repair `row_max_wrong`: the row maximum, for any row length up to
# `BLOCK`, negative rows and rows of minus infinity included.
#
# *Hints.* `float("-inf")` works in a kernel. `other=` takes it.

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
# **12.2** (core) *An epilogue.* Below is a matrix product in Triton: each program accumulates one tile of
# `a @ b` in `acc`. Our Triton backend calls a library for products by default, so what follows one
# is a kernel of its own, which reads the product again. Write the handler that puts it *into* the
# product's kernel instead: the real loop body of the compiled graph is played into it, and its
# lines stand where the template says `EPILOGUE`.
#
# *Hints.* `TinyEpilogue` has the arithmetic. Write `load` and `store`. A load of the buffer
# `self.product` is no load any more: the value is called `acc`. Other buffers are read at `index`,
# a sympy expression in `x0` (a column of row numbers) and `x1` (a row of column numbers), which the
# template defines; `index_text(index, "triton")` prints it. The mask is called `inside`. The output
# is called `out` in the template, whatever its name in the graph. Pointers of other buffers: call
# `self.pointer(name)`.

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
# numbers, and the sum of `exp(v - m)` over it. Write how two pairs are merged. With it, `tl.reduce`
# finds both in one pass, in any order: that is how the work is spread over lanes, warps and
# programs.
#
# *Hints.* The formula above merges with a set of one number. A set may hold nothing but minus
# infinity; then `m - m` is NaN. Subtract 0 instead where the new maximum is minus infinity
# (`tl.where`).

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
# **12.4** (core) *Sectors.* Memory moves in sectors of 32 bytes. The `sectors` above counted numbers that
# begin in a sector, for lanes that all take part. Write `sectors(addresses, size)`: how many of them one
# load of a warp moves. `addresses` has a byte address for each lane, or None for a lane that is masked
# off. Each lane reads `size` bytes, which may cross into the next sector.
#
# *Hints.* The first and the last byte of a lane tell its sectors. Two lanes in one sector move it once.
#
# <details><summary>Predict: a row of float32, read by a warp from an address that is no multiple of the sector. How many?</summary>
#
# One more than needed: the first and the last sector are only used in part.
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
# **The piece.** One program a row, one vector for all its columns. The writer of chapter 11 writes the
# expressions, with other `forms`. You write the head of the kernel, what becomes of one loop, a load, a
# number, and how the text becomes a function. The check runs it in Triton's interpreter.
#
# <details><summary>Hint: rows</summary>
#
# `tl.program_id(0)` is one number. The last row index is its remainder by the last size; divide and
# go on.
#
# </details>
# <details><summary>Hint: columns</summary>
#
# The vector `c = tl.arange(0, BLOCK)` has the length of the next power of two; `inside` is its mask, by
# which `REDUCTIONS` and `place` call it. What lies beyond the last column must not be
# loaded, not stored, and not be part of a sum.
#
# </details>
# <details><summary>Hint: values</summary>
#
# Remember the name of each result: the next loop of this kernel uses the variable, not the memory.
# `text` asks `registers` first; what they do not have is asked of `place`. If this kernel makes it, it
# is not there yet: `Refused`.
#
# </details>
# <details><summary>Hint: building</summary>
#
# `exec(compile(source, name, "exec"), variables)` runs the text; `linecache.cache[name]` lets Triton read it
# again. `variables["kernel"][(programs,)](*arguments, BLOCK=...)` is a call. `1 << (n - 1).bit_length()` is
# the next power of two.
#
# </details>

# %%
from exercises.own_compiler import begin

begin("gpu");

# %% [markdown]
# The line names what is yours. Write it in that file, then ask for a check, as often as you like:

# %% tags=["check", "piece"]
from exercises.own_checks import check_piece

check_piece("gpu")

# %% [markdown]
# ## What else lives here
#
# Every public name of this chapter's core files, with one sentence each. Unfold a file, then a name:
# its first lines are there. The list is made from the sources when the page is built.

# %% tags=["volatile"]
from minidynamo.explain import also_here

also_here("miniinductor/devices.py")

# %% [markdown]
# ## What real PyTorch has
#
# * `torch/_inductor/codegen/triton.py`: the same handler; plus templates for matrix products and
#   convolutions with epilogues (`torch/_inductor/kernel/mm.py`, jinja), cooperative and split
#   reductions, tensor descriptors. Paper, section 4.
# * `torch/_inductor/runtime/triton_heuristics.py`: the candidates, and the timing.
# * Triton itself: *Triton: an intermediate language and compiler for tiled neural network
#   computations*, MAPL 2019.
#
# **See it in the real `torch.compile`.** `TORCH_LOGS=kernel_code python program.py` prints every Triton kernel as it is compiled.
#
# ## Recap
#
# * A GPU wants neighbouring threads at neighbouring addresses; the loop order of C++ is wrong
#   there.
# * Triton programs compute tiles; the compiler places elements on threads and inserts what CUDA has
#   one write by hand.
# * The generator is one more handler. Its values know their axes; masks and neutral elements make
#   odd sizes right.
# * Rows that fit are read once; two reductions of a long row share one walk.
#
# Next: who calls the kernels, where their memory comes from, and how the best block size is found.
