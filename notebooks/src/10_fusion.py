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
# Lowering returns a list of buffers, each with a loop body. Inlining has already removed the values
# that need no buffer. The scheduler decides which of the remaining bodies run in **one
# kernel**, and in which order the kernels run.
#
# **What you will learn:** why fewer bytes mean less time; how index expressions give dependencies; when
# two loop nests may share a kernel; the kinds of fusion; the greedy choice among pairs; how to read the record of every
# decision. At the end you write the fusion rule.
#
# **Files of this chapter:** `miniinductor/ir/dependencies.py`, `miniinductor/ir/handlers.py`, `miniinductor/schedule/nodes.py`,
# `miniinductor/schedule/scheduler.py`.

# %%
import torch

import minidynamo
import miniinductor
from minidynamo.explain import Code, Table, draw_graph, excerpt

torch.manual_seed(0)
torch.set_grad_enabled(False);

# %% [markdown]
# ## Why: fewer bytes
#
# A modern core performs many multiplications in the time that one cache line needs to arrive from main memory.
# So the time of pointwise operations and reductions is the time to move their bytes.
#
# *The kitchen.* Walking to the shelf takes longer than chopping. Chop, salt and mix in one go at
# the counter. *Exactly:* each kernel streams its inputs from main memory through the caches into
# registers, and its outputs back.
#
# The next table counts the kernels of a softmax and the bytes that they move, for three settings of the compiler:

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
assert round(rows[0][2] / rows[2][2], 1) == 4
Table(["", "kernels", "megabytes moved"], [(n, k, f"{b:.1f}") for n, k, b in rows],
      "softmax of 512 x 1000 float32 (2.0 MB)")

# %% [markdown]
# Each kernel without fusion writes its result to memory, and the next kernel reads that result again. The fused kernel moves a
# quarter of the bytes: it reads the input once and writes the output once.
# <!-- shows: n("nothing fused", 1) > 3.9 * n("fusion and inlining", 1) and n("fusion and inlining") == 1 -->
#
# ## The naive rule fails
#
# The naive rule fuses any two neighbours of the same shape. Here is a program for which that rule
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
# The two versions differ in the first element. So the rule must look at *which element* is read. Symbolic index expressions answer that question.
# <!-- shows: has("tensor([0.1411,") and has("naive: tensor([ nan,") -->
#
# ## Dependencies
#
# The compiler runs each body once with a handler that records its operations. A load or a store is
# recorded with its buffer and its index, which is an expression in the loop variables. The method
# `emit` of the handler records one operation:

# %%
from miniinductor.ir.handlers import Recorder
from parts import part

part(Recorder.emit, ("key =", "return self.seen"), "self.instructions", "return")

# %% [markdown]
# `emit` appends an `Instruction` to the list, and returns the number of its result. An operation that is already
# in the list (`seen`) is not recorded again, unless it is a `store` or has a body of its own (`block`). A `load` and a `store` have their index
# expression among their arguments, and `expressions` finds it there:

# %%
from miniinductor.ir.dependencies import Instruction

excerpt(Instruction.expressions)

# %% [markdown]
# So the list gives the elements that a body reads and writes, and the scheduler can compare two
# bodies. A buffer with its loop nest is a *node* of the scheduler. Nodes that share a kernel are a
# *group*. Two loop nests may share a kernel if
# <!-- shows: has("sympy.Expr") -->
#
# 1. they run over the same loops (after splitting or merging them);
# 2. each element that the second nest reads of the first one's result is the element written *in the same
#    iteration*;
# 3. no third node depends on the first and is needed by the second. Such a node would have to run in the middle of
#    the fused kernel (a cycle).
#
# Reductions need one more rule. The sum of a row is complete only at the end of the row. So condition 2
# applies to the *outer* loop, with one iteration for each row. The reader gets an inner loop of
# its own, after the loop of the sum. Both inner loops are in one kernel, and the row stays in the
# cache. Condition 2 is this part of the scheduler:

# %%
from miniinductor.schedule.scheduler import Scheduler

part(Scheduler.check_accesses, ("for writer, reader", ")"))

# %% [markdown]
# The index of a read must be the index at which the other group writes that buffer. `Refused`
# carries the reason, which is stored in the record of decisions. (The omitted lines refuse a body
# that is outside of the inner loop and reads a value from inside.)
#
# ## Kinds
#
# The scheduler distinguishes five kinds of pairs. The table gives the first and the second node of each kind:
#
# | kind | first | second | example |
# |---|---|---|---|
# | vertical | pointwise | pointwise that reads it | a value stored for several users, and one of them |
# | prologue | pointwise | reduction that reads it | `sum(exp(x))` with `exp(x)` stored |
# | epilogue | reduction | pointwise that reads it | `x / sum(x)` |
# | reductions | reduction | reduction over the same loops | `max`, then `sum(exp(x - max))` |
# | horizontal | any | independent, reads the same data | `sin(x)` and `cos(x)` |
#
# The record for softmax has a row for each pair that the scheduler considered:

# %%
e = minidynamo.explain(softmax)(x)
e.fusion

# %% [markdown]
# Three decisions made one kernel of four loop nests. `buf1+buf2` is a group that was fused before.
# <!-- shows: has("3 of 3 considered pairs were fused") -->
#
# The next picture has the four buffers on the left and the kernel that computes them on the right:

# %%
e.kernel_picture

# %% [markdown]
# All four buffers belong to one kernel. After fusion the loop IR has one header, and four bodies with the same loop
# variables:
# <!-- shows: has("4 buffers before fusion, 1 kernel after") -->

# %%
e.fused_ir

# %% [markdown]
# Only this kernel reads `buf0`, `buf1` and `buf2`, so they need not reach memory.
# <!-- shows: has("buf3") -->
#
# Step through the decisions one by one. (Use the buttons, or the arrow keys.) The groups at that
# time are on the left:

# %%
from steppers import fusion_rounds

fusion_rounds(e.main.compiled)

# %% [markdown]
# The scheduler does not follow the order of the program. It takes the possible pair that saves the most bytes, and
# then compares all pairs again.
# <!-- shows: n("2. buf1 and buf2: fused (prologue),") < n("3. buf1+buf2 and buf3: fused (epilogue),") -->
#
# Refusals are recorded, too. In the next program `x.sum(0)` and `x.sum(1)` read the same matrix, but
# cannot share loops:

# %%
e = minidynamo.explain(lambda x: (x.sum(0), x.sum(1), (x + 1).t() @ x))(torch.randn(64, 48))
fusion_rounds(e.main.compiled)

# %% [markdown]
# `x.sum(0)` goes down the columns, and `x.sum(1)` goes along the rows. The third result needs `x + 1`,
# which goes along the rows as well. So `x + 1` (`buf2`) shares a kernel with `x.sum(1)` (`buf1`).
# <!-- shows: has("buf1 and buf2: fused (horizontal)") and count("not fused (horizontal)") == 2 -->
#
# ## Choosing: greedy, by score
#
# Often a node could be fused with any of several others, but not with all of them. The scheduler
# sorts the candidate pairs by kind, bytes saved and nearness. It fuses the best pair, and sorts
# again. This greedy choice need not be the best one. TorchInductor chooses in the same way. The
# score of a pair is a tuple:

# %%
part(Scheduler.candidates, "found =", ("def score", "return category"), "return sorted")

# %% [markdown]
# `self.category` returns the kind of a pair and the bytes that fusing it saves. `rank` is the place
# of a node in the program. Tuples compare from the left: a pair that is not horizontal comes first,
# then the pair that saves more bytes, then the nearer pair, and then the pair whose first node is
# earlier in the program (`-a`). The first node of a pair comes before the second in the program, so
# `a - b` is larger for a nearer pair.
# <!-- shows: has('category != "horizontal", saved') -->
#
# How much time does each step save? The next table compares four settings of the compiler with eager, measured on one core:

# %% tags=["volatile"]
import time

from benchmarks.runner import interleave, keep_freed_memory

torch.set_num_threads(1)                # other processes disturb one core least
keep_freed_memory()                     # otherwise chance decides who pays for fresh pages of memory

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
timings = interleave(variants, budget=3, clock=time.process_time)   # the processor's time: other processes count least
Table(["", "milliseconds", "eager / this"],
      [(name, f"{t.median * 1e3:.2f}", f"{timings['eager'].median / t.median:.2f}") for name, t in timings.items()])

# %% [markdown]
# Decomposition alone turns eager's few kernels into many small operations, and each of them streams its data
# through memory. Compare the row `neither` with the row `both`:
# <!-- shows: n("neither") > n("eager  ") -->

# %% tags=["volatile"]
neither, both = (timings["eager"].median / timings[name].median for name in ("neither", "both"))
print(f"neither fused nor inlined: {neither:.2f} times eager's speed; with both: {both:.2f} times")

# %% [markdown]
# A number below 1 means slower than eager. So a compiler that decomposes has to fuse.
# <!-- shows: n("inlined:") < 1 < n("with both:") -->
#
# ## Order and memory
#
# After fusion the scheduler orders the kernels so that every reader comes after its writer. Then
# later buffers can reuse the memory of buffers that are no longer needed. Here is the memory of each buffer:

# %%
def three_layers(x, w):
    return torch.relu(torch.relu(torch.relu(x @ w) @ w) @ w)

e = minidynamo.explain(three_layers)(torch.randn(64, 64), torch.randn(64, 64))
e.memory

# %% [markdown]
# `in place of` means that the kernel reads the old buffer for the last time and writes its
# result over it. `reuse of` means that no later kernel reads the old buffer. `new` is fresh memory. (The result, `buf5`, must get new memory:
# notebook 13 gives the reason.)
# <!-- shows: count("in place of") == 2 and count("reuse of") == 1 and has("buf5 new") -->
#
# ## A real model
#
# The next table counts the scheduler's decisions for BERT, by kind:

# %%
from collections import Counter
from benchmarks.models import bert

model, inputs = bert(layers=4)
e = minidynamo.explain(model)(**inputs)
fusions = e.main.compiled.fusions
Table(["fused", "kind", "pairs"],
      [("yes" if f else "no", c, n) for (f, c), n in sorted(Counter((d.fused, d.category) for d in fusions).items())])

# %% [markdown]
# Every epilogue pair was fused, and most prologue pairs were refused. Here are the reasons:
# <!-- shows: not has("no epilogue") and n("no     prologue") > n("yes    prologue") > 0 -->

# %%
reasons = Counter(d.reason for d in fusions if not d.fused)
assert len(reasons) == 1 and all(d.fused for d in fusions if d.category == "epilogue")
Table(["pairs", "refused because"], [(n, reason) for reason, n in reasons.items()])

# %% [markdown]
# All refusals have one reason: another node, such as a library call, needs the result of the first
# loop nest and computes an input of the second.
# <!-- shows: count("(a cycle)") == 1 -->
#
# The next picture shows which buffers share a kernel in a BERT of two layers. Library calls (matrix products, attention) are not fused,
# so they divide the list:

# %%
minidynamo.explain(bert(layers=2)[0])(**inputs).kernel_picture

# %% [markdown]
# Between two library calls there is at most one kernel of ours, and the second layer uses the kernels of the first again.
# <!-- shows: has("8 kernels after") -->
#
# ## Exercises
#
# **10.1** (warm-up) *Same iteration?* There are two one-dimensional loop nests over `i` in `[0, n)`. The first writes
# `y[write(i)]`, the second reads `y[read(i)]`. Both functions are linear: `a * i + b`. Write
# `may_fuse(write, read)` for pairs `(a, b)`. It returns True if the element that is read in iteration `i` is
# the one written in iteration `i`, for every `i`.
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
# **10.2** (core) *Bytes saved.* Write `bytes_saved(first, second, sizes)`: the bytes that fusing two nodes saves. A
# node is `{"reads": set, "writes": set}` of buffer names; `sizes` gives their bytes. Fusing saves one
# read of every buffer that both read, and one read of every buffer that the first writes and the
# second reads.
#
# (The write is saved, too, if no other node needs the buffer; ignore that here.
# The real scheduler is simpler: it counts shared reads only for *horizontal* pairs, whose nodes do not
# depend on each other.)
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
# **10.3** (stretch) *A fusion rule that beats the naive one.* The scheduler orders its candidate pairs by a
# score. Write `better_score(category, saved, distance)`. The scheduler tries pairs with larger scores first (tuples compare
# from the left). The check also puts your score into the real scheduler, compiles a
# program with it, and compares numbers and memory traffic.
#
# *Hints.* `category` is a string, one of the kinds in the table above. `saved` is a number of
# bytes. `distance` is the distance between the two nodes (0 or more). What matters most? The
# section on the greedy choice has the answer.

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
# for each node. Merge the pair of groups that saves the most bytes, and repeat while some pair saves bytes.
# Do not merge a pair if that makes a **cycle**, which means that one group depends on the other through a
# third. Return a list of sets of names. For the bytes, call `bytes_saved` in both directions;
# the larger answer counts.
#
# *Hints.* Group `b` needs group `a` if `b` reads what `a` writes. Walk from `b` along the needs,
# without the direct step to `a`. If the walk meets `a`, the merged group would wait for itself.
#
# <details><summary>Predict: a makes y; b turns y into z; c reads y and z. May a and c be one?</summary>
#
# No. `b` needs `a`, and `c` needs `b`. One kernel of `a` and `c` would have to run before `b` and
# after it. First fuse `b` with one of them; then no group is between them.
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
# **The piece.** You write greedy fusion with a test for cycles. A *unit* is a kernel or a call of a
# library. Your functions say which bytes two units share, when they may be fused, what a unit
# needs, whether one depends on the other through a third, and in which order pairs are tried. They
# also do one round of fusion, and sort the result into the order in which it runs.
#
# <details><summary>Hint: bytes</summary>
#
# Two units share the buffers that the second reads and that the first reads or writes. The first of
# a pair is the unit that comes earlier in `units`.
#
# </details>
# <details><summary>Hint: when</summary>
#
# Both units must have the same rows. Compare the rows as texts, with `text_of`. From chapter 14 on
# a size may be a symbol, and two symbols may be equal by chance. The second unit may read only its
# own row of each buffer that the first writes: the first places of the index must be those of the
# loop.
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
# After each fusion compare all pairs again, because the new kernel may share more bytes with the
# others. Put it anywhere in the list, then sort: visit what a unit needs before the unit itself.
#
# </details>

# %%
from exercises.own_compiler import begin

begin("fusion");

# %% [markdown]
# The output names the functions that you write. Write them in that file, then run the check as
# often as you like:

# %% tags=["check", "piece"]
from exercises.own_checks import check_piece

check_piece("fusion")

# %% [markdown]
# ## What else lives here
#
# The list has every public name of this chapter's main files, with one sentence each. Unfold a file, then a name,
# to see its first lines. The list is made from the sources when the page is built.

# %% tags=["volatile"]
from minidynamo.explain import also_here

also_here(
    "miniinductor/ir/dependencies.py",
    "miniinductor/ir/handlers.py",
    "miniinductor/schedule/nodes.py",
    "miniinductor/schedule/scheduler.py",
    "miniinductor/schedule/after_fusion.py",
)

# %% [markdown]
# ## What real PyTorch has
#
# * `torch/_inductor/scheduler.py` has the same loop of scored pairs. It adds templates with epilogues,
#   reordering for peak memory and for communication, and measurements of a fusion before it is chosen.
#   Paper, section 4.
# * `torch/_inductor/dependencies.py`: `MemoryDep` is our `Access`, a read or a write with its
#   buffer and its index.
#
# **See it in the real `torch.compile`.** `TORCH_LOGS=fusion python program.py` prints each pair that was tried, and why it was not fused.
# `TORCH_LOGS=ir_post_fusion` shows the result.
#
# ## Recap
#
# * The time of cheap operations is the time to move their bytes, and fusion moves fewer.
# * Symbolic indices decide whether two loop nests can share iterations.
# * The scheduler is greedy: it compares kind, bytes and distance. Every refusal has a reason.
#
# Next: the kernel as C++.
