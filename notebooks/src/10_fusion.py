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
# # 10 · Scheduling and fusion
#
# After lowering there is a list of buffers, each with a loop body. Inlining has removed the values
# that nobody needs to store. The scheduler decides which of the remaining bodies run in **one
# kernel**, and in which order the kernels run.
#
# **What you will learn:** why fewer bytes mean less time; dependencies from index expressions; when
# two loop nests may share a kernel; kinds of fusion; greedy choice; reading the record of every
# decision. At the end you write the fusion rule.
#
# **Files of this chapter:** `miniinductor/ir/dependencies.py`, `miniinductor/ir/recording.py`, `miniinductor/schedule/nodes.py`,
# `miniinductor/schedule/scheduler.py`.

# %%
import torch

import minidynamo
import miniinductor
from minidynamo.explain import Code, Table, draw_graph, excerpt

torch.manual_seed(0)
torch.set_grad_enabled(False);

# %% [markdown]
# ## Why: bytes
#
# A modern core multiplies many numbers in the time in which one cache line comes from main memory.
# For pointwise work and reductions, time is bytes.
#
# *The kitchen.* Walking to the shelf takes longer than chopping. Chop, salt and mix in one go at
# the counter. *Exactly:* each kernel streams its inputs from main memory through the caches into
# registers, and its outputs back.

# %%
def softmax(x):
    return torch.softmax(x, -1)

x = torch.randn(512, 1000)

def traffic(**switches):
    with miniinductor.config.patch(**switches):
        e = minidynamo.explain(softmax)(x)
    kernels = e.main.compiled.kernels
    return len(kernels), sum(k.bytes_read + k.bytes_written for k in kernels) / 1e6

rows = [(name, *traffic(**switches)) for name, switches in
        (("nothing fused", {"fusion": False, "inlining": False}), ("inlining only", {"fusion": False}),
         ("fusion and inlining", {}))]
Table(["", "kernels", "megabytes moved"], [(n, k, f"{b:.1f}") for n, k, b in rows],
      "softmax of 512 x 1000 float32 (2.0 MB)")

# %% [markdown]
# The difference is written and read again by the next kernel: that is what fusion removes.
#
# ## The naive rule fails
#
# "Fuse whatever is next to each other and has the same shape." Here is a program on which that rule
# gives wrong numbers:

# %%
def shifted(x):
    y = torch.sin(x)                    # buffer y
    return y + torch.roll(y, 1)         # reads y[i] and y[i - 1]

def naive_kernel(x):
    y, out = torch.full_like(x, float("nan")), torch.empty_like(x)
    for i in range(len(x)):             # one loop for both: same shape!
        y[i] = torch.sin(x[i])
        out[i] = y[i] + y[i - 1]        # at i = 0 this is y[-1], which has not been computed
    return out

v = torch.arange(4.0)
print("eager:", shifted(v))
print("naive:", naive_kernel(v))

# %% [markdown]
# The rule must look at *which element* is read. That is what symbolic index expressions are for.
#
# ## Dependencies
#
# Each body is run once with a handler that records its loads and stores: buffer name and index
# expression, in the loop variables.

# %%
from miniinductor.ir.recording import Recorder

excerpt(Recorder.emit)

# %% [markdown]
# `emit` writes one operation down and gives back its number (`Ref`). An operation that was seen before
# is not written twice (`seen`). A `load` and a `store` have their index expression among their
# arguments, and nothing else in the list depends on the loops:

# %%
from miniinductor.ir.dependencies import Instruction

excerpt(Instruction.expressions)

# %% [markdown]
# So the list says which elements are read and written, and two bodies can be compared. Two nests may
# share a kernel if
#
# 1. they run over the same loops (after splitting or merging them);
# 2. each element that the second reads of the first's result is the element written *in the same
#    iteration*;
# 3. no third node must run between them (a cycle).
#
# Reductions need a word more. A sum over a row is complete only when the row has ended. So condition 2
# speaks of the *outer* loop there (one iteration for each row), and the reader gets an inner loop of
# its own, behind that of the sum. Both inner loops stand in one kernel, and the row stays in the
# cache. The code below also refuses the opposite: a body outside of the inner loop that reads many
# elements of what is made inside.

# %%
from miniinductor.schedule.scheduler import Scheduler

excerpt(Scheduler.check_accesses)

# %% [markdown]
# All reads of the second must fit the writes of the first, index by index. `Refused` carries the
# reason, which ends in the record of decisions.
#
# ## Kinds
#
# | kind | first | second | example |
# |---|---|---|---|
# | vertical | pointwise | pointwise that reads it | a value stored for several users, and one of them |
# | prologue | pointwise | reduction that reads it | `sum(exp(x))` with `exp(x)` stored |
# | epilogue | reduction | pointwise that reads it | `x / sum(x)` |
# | reductions | reduction | reduction over the same loops | `max`, then `sum(exp(x - max))` |
# | horizontal | any | independent, reads the same data | `sin(x)` and `cos(x)` |

# %%
e = minidynamo.explain(softmax)(x)
e.fusion

# %% [markdown]
# Three decisions made one kernel of four loop nests. `buf1+buf2` is a group that was fused before.
#
# Before and after: the buffers, each with loops of its own, and the one kernel that computes all of
# them.

# %%
e.kernel_picture

# %% [markdown]
# All four lead to one kernel. In the loop IR after fusion they stand below one head, with the same loop
# variables:

# %%
e.fused_ir

# %% [markdown]
# `buf0`, `buf1` and `buf2` are read in this kernel only, so they need not reach memory.
#
# Round by round. (Use the buttons, or the arrow keys.) Each step is a decision; on the left are the
# groups that there are then:

# %%
from steppers import fusion_rounds

fusion_rounds(e.main.compiled)

# %% [markdown]
# The scheduler does not go from first to last. Of these pairs it takes the one that saves most, and
# asks anew.
#
# Refusals are recorded with the same care. `x.sum(0)` and `x.sum(1)` read the same matrix and
# cannot share loops:

# %%
e = minidynamo.explain(lambda x: (x.sum(0), x.sum(1), (x + 1).t() @ x))(torch.randn(64, 48))
fusion_rounds(e.main.compiled)

# %% [markdown]
# `x.sum(1)` walks along the rows, and `x.sum(0)` down the columns. The third result needs `x + 1`,
# which walks along the rows, too. So it shares a kernel with `x.sum(1)`.
#
# ## Choosing: greedy, by score
#
# Often a node could be fused with several others, and not with all. The scheduler sorts the
# candidate pairs by kind, bytes saved and nearness, takes the best, and asks again. This is not
# optimal; it is what TorchInductor does, and it is good.

# %%
excerpt(Scheduler.candidates)

# %% [markdown]
# `category` says the kind and the bytes of a pair, and `REACH` how far apart the two may stand. The
# score is a tuple: whatever is not horizontal comes first, then more bytes, then nearer ones.
#
# How much does each step bring? Measured here on one core, one switch at a time:

# %% tags=["volatile"]
from benchmarks.runner import interleave, keep_freed_memory

torch.set_num_threads(1)                # neighbours disturb one core least
keep_freed_memory()                     # or else chance decides who pays for fresh pages of memory

def layer_norm_gelu(x, w, b):
    return torch.nn.functional.gelu(torch.nn.functional.layer_norm(x, (x.shape[-1],), w, b)) + x

arguments = torch.randn(2048, 1024), torch.randn(1024), torch.randn(1024)
captured = []                           # the graph, captured once; compiled four times
minidynamo.compile(layer_norm_gelu, backend=lambda gm, inputs: captured.append((gm, inputs)) or gm)(
    *arguments
)
(graph, inputs), = captured
variants = {"eager": lambda: layer_norm_gelu(*arguments)}
for name, switches in (("neither", {"fusion": False, "inlining": False}), ("inlining", {"fusion": False}),
                       ("fusion", {"inlining": False}), ("both", {})):
    with miniinductor.config.patch(**switches):
        compiled = miniinductor.compile_fx(graph, inputs)
    variants[name] = lambda compiled=compiled: compiled(*inputs)
timings = interleave(variants, budget=3)
Table(["", "milliseconds", "eager / this"],
      [(name, f"{t.median * 1e3:.2f}", f"{timings['eager'].median / t.median:.2f}") for name, t in timings.items()])

# %% [markdown]
# Decomposition alone makes many small operations out of eager's few kernels, and each of them walks
# through memory. It pays because the parts are fused again.

# %% tags=["volatile"]
neither, both = (timings["eager"].median / timings[name].median for name in ("neither", "both"))
print(f"neither fused nor inlined: {neither:.2f} times eager's speed; with both: {both:.2f} times")

# %% [markdown]
# Below one means slower than eager. So a compiler that decomposes has to fuse.
#
# ## Order and memory
#
# After fusion the kernels are put into an order in which every reader comes after its writer, and
# buffers that are no longer needed lend their memory to later ones:

# %%
def three_layers(x, w):
    return torch.relu(torch.relu(torch.relu(x @ w) @ w) @ w)

e = minidynamo.explain(three_layers)(torch.randn(64, 64), torch.randn(64, 64))
e.memory

# %% [markdown]
# Each row is a buffer. `in place of`: its kernel reads the old buffer for the last time, and writes the
# result over it. `reuse of`: the old buffer was no longer needed before. Else the memory is new. (`buf5`, the result, must get new memory:
# notebook 13 says why.)
#
# ## A real model
#
# BERT: which decisions were taken, and why were pairs refused?

# %%
from collections import Counter
from benchmarks.models import bert

model, inputs = bert(layers=4)
e = minidynamo.explain(model)(**inputs)
fusions = e.main.compiled.fusions
Table(["fused", "kind", "pairs"],
      [("yes" if f else "no", c, n) for (f, c), n in sorted(Counter((d.fused, d.category) for d in fusions).items())])

# %% [markdown]
# The kinds tell where most pairs are lost, and where they are won. Why were they refused?

# %%
Table(["pairs", "refused because"],
      [(n, reason) for reason, n in Counter(d.reason for d in fusions if not d.fused).most_common(5)])

# %% [markdown]
# All for one reason. Between two such loops stands a library call, which needs the first and feeds the
# second.
#
# Which buffers share a kernel in two of the layers? Library calls (matrix products, attention) stay
# as they are and cut the list into pieces:

# %%
minidynamo.explain(bert(layers=2)[0])(**inputs).kernel_picture

# %% [markdown]
# Between two library calls there is one kernel, and often the same one in each layer.
#
# ## Exercises
#
# **10.1** (warm-up) *Same iteration?* Two one-dimensional loop nests over `i` in `[0, n)`. The first writes
# `y[write(i)]`; the second reads `y[read(i)]`, where both are linear: `a * i + b`. Write
# `may_fuse(write, read)` for pairs `(a, b)`: True if the element that is read in iteration `i` is
# the one written in iteration `i`.
#
# *Hints.* This is condition 2, for one loop.

# %% tags=["exercise"]
def may_fuse(write: tuple, read: tuple) -> bool:
    """May a nest that writes y[write] and one that reads y[read] share a kernel?"""
    ### BEGIN SOLUTION
    return tuple(write) == tuple(read)
    ### END SOLUTION

# %% tags=["check"]
from exercises import check

check("10.1", may_fuse)

# %% [markdown]
# **10.2** (core) *Bytes saved.* Write `bytes_saved(first, second, sizes)`: what fusing two nodes saves. A
# node is `{"reads": set, "writes": set}` of buffer names; `sizes` gives bytes. Fusing saves one
# read of every buffer that both read, and one read of every buffer that the first writes and the
# second reads. (The write itself is saved only if nobody else needs the buffer; leave that aside.
# The real scheduler is simpler still: it counts shared reads only for pairs between which nothing
# flows, the *horizontal* ones of the table. Here both count.)
#
# *Hints.* `a & b` is what two sets have in common, `a | b` what is in either.

# %% tags=["exercise"]
def bytes_saved(first: dict, second: dict, sizes: dict) -> int:
    """Memory traffic that the fused kernel does not cause."""
    ### BEGIN SOLUTION
    shared = (first["reads"] | first["writes"]) & second["reads"]
    return sum(sizes[name] for name in shared)
    ### END SOLUTION

# %% tags=["check"]
check("10.2", bytes_saved)

# %% [markdown]
# **10.3** (stretch) *A fusion rule that beats the naive one.* The scheduler orders its candidate pairs with a
# score. Write `better_score(category, saved, distance)`; pairs with larger scores (tuples compare
# from the left) are tried first. The check also puts your score into the real scheduler, compiles a
# program with it, and compares numbers and memory traffic.
#
# *Hints.* `category` is a string, one of the kinds in the table above; `saved` is bytes; `distance` is
# how far apart the nodes are (0 or more). What matters most? The text before the measurement says it.

# %% tags=["exercise"]
def better_score(category: str, saved: int, distance: int) -> tuple:
    """Larger is better."""
    ### BEGIN SOLUTION
    return (category != "horizontal", saved, -distance)
    ### END SOLUTION

# %% tags=["check"]
check("10.3", better_score)

# %% [markdown]
# **10.4** (stretch) *Greedy fusion.* Write `fuse(nodes, sizes)`. `nodes` maps a name to
# `{"reads": set, "writes": set}`, in the order in which the program runs them. Begin with one group
# for each node. Of all pairs of groups that save bytes, merge the pair that saves most, and begin
# again. Do not merge a pair if that makes a **cycle**: if one group depends on the other through a
# third. Return a list of sets of names. For the bytes use `bytes_saved`, asked in both directions;
# the larger answer counts.
#
# *Hints.* Group `b` needs group `a` if `b` reads what `a` writes. Walk from `b` along the needs,
# without the direct step to `a`. If the walk meets `a`, the merged group would wait for itself.
#
# <details><summary>Predict: a makes y; b turns y into z; c reads y and z. May a and c be one?</summary>
#
# No. `b` needs `a`, and `c` needs `b`. One kernel of `a` and `c` would have to run before `b` and
# after it. First fuse `b` with one of them; then nothing stands between.
#
# </details>

# %% tags=["exercise"]
def fuse(nodes: dict, sizes: dict) -> list:
    """Groups of names, merged greedily by the bytes that are saved."""
    ### BEGIN SOLUTION
    groups = [frozenset([name]) for name in nodes]

    def both(group):
        return {kind: set().union(*[nodes[n][kind] for n in group]) for kind in ("reads", "writes")}

    def needs(b, a):
        return bool(both(b)["reads"] & both(a)["writes"])

    def through_a_third(b, a):
        waiting, seen = [g for g in groups if g not in (a, b) and needs(b, g)], set()
        while waiting:
            group = waiting.pop()
            if needs(group, a):
                return True
            seen.add(group)
            waiting += [g for g in groups if g not in seen and g not in (a, b) and needs(group, g)]
        return False

    def saved(a, b):
        first, second = both(a), both(b)
        return max(bytes_saved(first, second, sizes), bytes_saved(second, first, sizes))

    while True:
        pairs = [(saved(a, b), a, b) for i, a in enumerate(groups) for b in groups[i + 1:]]
        pairs = [p for p in pairs if p[0] and not through_a_third(p[2], p[1]) and not through_a_third(p[1], p[2])]
        if not pairs:
            return [set(group) for group in groups]
        _, a, b = max(pairs, key=lambda p: p[0])
        groups = [a | b if group == a else group for group in groups if group != b]
    ### END SOLUTION

# %% tags=["check"]
check("10.4", fuse)

# %% [markdown]
# ## Your own compiler: fusion
#
# **The piece.** Greedy fusion with a test for cycles. All of it is yours: which bytes two kernels
# share, when they may be one, what a unit needs, whether one depends on the other through a third, in
# which order pairs are tried, a round of fusion, and in which order the result runs.
#
# <details><summary>Hint: bytes</summary>
#
# What both touch: what the second reads of all that the first reads or writes. Of a pair the first
# is the one that stands earlier in `units`.
#
# </details>
# <details><summary>Hint: when</summary>
#
# Same rows, compared as texts (`text_of`): from chapter 14 on a size may be a symbol, and two symbols
# may be equal by chance. And of each buffer that the first makes the second may read nothing but its own row:
# the first places of the index must be those of the loop.
#
# </details>
# <details><summary>Hint: cycles</summary>
#
# Walk from the second to what it needs, and on from there, without the direct edge to the first. If
# you meet the first, fusing would make a kernel that waits for itself.
#
# </details>
# <details><summary>Hint: rounds</summary>
#
# After each fusion everything is asked anew: the new kernel shares other bytes. Put it anywhere, then
# sort: visit what a unit needs before the unit itself.
#
# </details>

# %%
from exercises.own_compiler import begin

begin("fusion");

# %% [markdown]
# The line names what is yours. Write it in that file, then ask for a check, as often as you like:

# %% tags=["check", "piece"]
from exercises.own_checks import check_piece

check_piece("fusion")

# %% [markdown]
# ## What else lives here
#
# Every public name of this chapter's core files, with one sentence each. Unfold a file, then a name:
# its first lines are there. The list is made from the sources when the page is built.

# %% tags=["volatile"]
from minidynamo.explain import also_here

also_here(
    "miniinductor/ir/dependencies.py",
    "miniinductor/ir/recording.py",
    "miniinductor/schedule/nodes.py",
    "miniinductor/schedule/scheduler.py",
    "miniinductor/schedule/after_fusion.py",
)

# %% [markdown]
# ## What real PyTorch has
#
# * `torch/_inductor/scheduler.py`: the same loop of scored pairs; plus templates with epilogues,
#   reordering for peak memory and for communication, benchmarking a fusion before taking it.
#   Paper, section 4.
# * `torch/_inductor/dependencies.py`: `MemoryDep` is our `Access`.
#
# **See it in the real `torch.compile`.** `TORCH_LOGS=fusion python program.py` prints each pair that was tried, and why it was not fused.
# `TORCH_LOGS=ir_post_fusion` shows what came out.
#
# ## Recap
#
# * For cheap operations, time is bytes; fusion is there to move fewer.
# * Symbolic indices decide whether two nests can share iterations.
# * Greedy by kind, bytes and distance; every refusal has a reason.
#
# Next: the kernel as C++.
