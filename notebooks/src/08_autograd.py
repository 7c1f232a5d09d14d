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
# # 08 · AOTAutograd: the joint graph, functionalization, the cut
#
# The graph from minidynamo still holds in-place writes and views, and it says nothing about
# gradients. Before kernels can be generated, three things happen: the graph is traced once more
# *below autograd*, together with its backward pass; writes and views are made explicit; and the
# joint graph is cut in two halves, forward and backward, such that little has to be kept in
# between.
#
# **What you will learn:** why autograd and a compiled forward do not get along; the ATen trace;
# functionalization; the joint graph; recomputation against memory as a minimum cut; what the pieces
# around it do.
#
# **Files of this chapter:** `miniinductor/autograd/`.

# %%
import torch
import torch.nn.functional as F

import minidynamo
import miniinductor
from minidynamo.explain import Code, Table, draw_graph, excerpt

torch.manual_seed(0);

# %% [markdown]
# ## The naive version: compile the forward, let autograd do the rest
#
# Eager autograd builds its tape from the operations that really run. A fused kernel is one
# operation that autograd has never heard of:

# %%
def model(x, w):
    return torch.sigmoid(x @ w).sum()

x, w = torch.randn(4, 8), torch.randn(8, 8, requires_grad=True)
graphs = []
minidynamo.compile(model, backend=lambda gm, inputs: graphs.append(gm) or gm.forward)(x, w)
with torch.no_grad():
    kernel = miniinductor.compile_fx(graphs[0], [x, w])     # forward only
    result = kernel(x, w)[0]
print("the numbers agree:", torch.allclose(result, model(x, w)), "   requires_grad:", result.requires_grad)

# %% [markdown]
# And if we wrapped the kernel so that autograd calls something in the backward pass, what would
# that be? Eager autograd has a formula for each *operation*, and each formula wants values that the
# forward pass kept:

# %%
kept = []
with torch.no_grad():
    values = {"x": x, "tanh(x @ w)": torch.tanh(x @ w), "tanh(x @ w) * 2": torch.tanh(x @ w) * 2}

def note(t):
    which = next(name for name, value in values.items() if torch.equal(t, value))
    kept.append((which, tuple(t.shape), t.numel() * 4))
    return t

with torch.autograd.graph.saved_tensors_hooks(note, lambda t: t):
    F.gelu(torch.tanh(x @ w) * 2).sum()
Table(["kept for backward", "shape", "bytes"], kept, "what eager keeps for sum(gelu(tanh(x @ w) * 2))")

# %% [markdown]
# The first is `x`, which is in memory anyway. The third is twice the second: one multiplication
# would give it back. Eager cannot know; a compiler that sees forward *and* backward can.
#
# *The kitchen.* Washing up as you go, you keep every bowl in case it is needed again. Someone who
# has read the whole recipe, including the dessert, keeps one bowl and refills the others.
# *Exactly:* a value is either saved in the forward half or computed again in the backward half.
#
# ## Tracing below autograd
#
# Autograd is a layer: each operation first records its backward function, then calls down to the
# actual kernels. A tracer *below* that layer sees everything that reaches the kernels, and
# therefore sees the backward operations too, when `torch.autograd.grad` runs. Nothing about
# derivatives has to be written:

# %%
from torch.utils._python_dispatch import TorchDispatchMode

class Watch(TorchDispatchMode):
    """Prints what arrives below autograd."""

    def __torch_dispatch__(self, op, types, args=(), kwargs=None):
        print(op)
        return op(*args, **(kwargs or {}))

with Watch():
    y = torch.sigmoid(x @ w).sum()
    print("-- backward")
    y.backward()

# %% [markdown]
# Below the line stand operations that nobody wrote: `sigmoid_backward`, and a product with a transposed
# matrix (`t`, `mm`). A `detach` is the same tensor for the bookkeeping of autograd.
#
# Our tracer does the same on **fake tensors** (shape and dtype, no data), and writes a graph:

# %%
from miniinductor.autograd.tracer import Tracer

excerpt(Tracer.__torch_dispatch__)

# %% [markdown]
# Read it as a list of questions. Does autograd ask for a device? Does the operation give what it was
# given (`same_value`)? Everything else goes to `traced`: what cannot be taken apart into simpler
# operations becomes a node of the graph.
#
# ## Functionalization
#
# Kernels that are fused and reordered must not overwrite each other's inputs. Each write becomes a
# new value; each view of a written tensor is made again from it:

# %%
def in_place(x):
    y = x * 2
    y[0].add_(1)            # a write through a view
    y.mul_(3)
    return y

e = minidynamo.explain(in_place)(torch.randn(2, 3))
print("as traced:\n", e.main.compiled.aten_graph.code)
print("functional:\n", e.main.compiled.functional_graph.code)

# %% [markdown]
# The names tell: `add_` has become `add`, `mul_` has become `mul`. `select_scatter` is the whole matrix
# with the new row in it.
#
# A write to an *input* is seen by the caller. It becomes an extra output, which is copied back at
# the end. Batch-norm statistics and kv-caches work that way.
#
# ## The joint graph
#
# Inputs: the program's inputs and parameters ("primals"), and one gradient per output ("tangents").
# Outputs: the results, and the gradients of the primals.

# %%
def layer(x, w):
    return F.gelu(torch.tanh(x @ w) * 2)

e = minidynamo.explain(layer)(x, w)
e.result.sum().backward()
e.joint

# %% [markdown]
# Dashed nodes depend on a tangent: only the backward half can compute them. All others are drawn
# plain. Some of those belong to a derivative, too (such as `1 - tanh(x) ** 2`), but they depend on the
# inputs alone, so either half could compute them. What is saved has a double line. What lies on the
# border has to be saved, or computed again:

# %%
e.saved

# %% [markdown]
# Each row is a tensor that waits for the backward pass, with the reason. An input counts no bytes: it
# is in memory anyway.
#
# ## The cut
#
# Where should the two halves part? Let the cut slide along the forward half, from the first value to
# the last. What crosses it has to be kept. (Use the buttons, or the arrow keys.)

# %%
from steppers import cut_walk

cut_walk(e.main.compiled)

# %% [markdown]
# An early cut keeps little and computes much again; a late cut keeps much. The best cut need not be a
# straight line, and it must not ask for a matrix product twice.
#
# Draw an edge for each value with its bytes as capacity. Values that must not be computed again
# (matrix products, random numbers) are sources; what the backward half reads is the sink. The
# cheapest set of values that separates the two is a **minimum cut**, a problem with a textbook
# algorithm. (Think of water that flows from the sources to the sink through pipes as wide as the
# values have bytes: which pipes do you close, with the least total width, so that nothing arrives?)

# %%
from miniinductor.autograd import partition

excerpt(partition.why_saved)

# %% [markdown]
# The order of the questions is the policy: what must be saved comes first. `is_cheap` says whether we
# write a kernel for this operation; a call of the library is not computed twice. `wants_kept`
# and `wants_again` are wishes of the user, who utters them with `torch.utils.checkpoint`.

# %%
excerpt(partition.choose_saved)

# %% [markdown]
# `smallest_cut` solves the flow problem. A value is saved if the cut goes through it: its beginning lies
# on the side of the sources, and its end does not.
#
# Three policies on one block:

# %%
class Block(torch.nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.norm = torch.nn.LayerNorm(width)
        self.up, self.down = torch.nn.Linear(width, 4 * width), torch.nn.Linear(4 * width, width)

    def forward(self, x):
        return x + F.dropout(self.down(F.gelu(self.up(self.norm(x)))), 0.1)

block, h = Block(), torch.randn(32, 64, requires_grad=True)

def eager_bytes():
    sizes = {}
    def pack(t):
        memory = t.untyped_storage()
        if memory.data_ptr() not in known:
            sizes[memory.data_ptr()] = memory.nbytes()
        return t
    # inputs are there anyway
    known = {t.untyped_storage().data_ptr() for t in (h, *block.parameters())}
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        output = block(h)
    return sum(sizes.values()), output

rows = [("eager", eager_bytes()[0], "")]
for policy in ("save-everything", "min-cut", "recompute-all"):
    with miniinductor.config.patch(partition=policy):
        minidynamo.reset()
        e = minidynamo.explain(block)(h)
        e.result.sum().backward()
    saved = [s for s in e.main.compiled.saved if not s.is_input]
    rows.append((policy, sum(s.bytes for s in saved),
                 ", ".join(f"{s.op.removeprefix('aten.').partition('.')[0]} {s.shape}" for s in saved)))
Table(["policy", "bytes kept", "which"], rows, "a transformer block's feed-forward half")

# %% [markdown]
# "Save everything" keeps more than eager does: it keeps the results of *decomposed* operations,
# which eager's kernels compute inside. The cut keeps less than either: what is cheap is computed
# again.
#
# `recompute-all` keeps least, and pays for it. It computes the mean and the variance again, which are
# reductions. What a matrix product of the backward half reads, it has to write to memory a second
# time. The cut forbids both: it is the minimum among the choices that cost little time.
#
# Dropout's random numbers are saved under every policy, as the mask that was drawn (`bernoulli`) or
# as what it is multiplied with (`div`). Drawing them again in the backward half would give another
# mask, and a gradient of a different function.
#
# ## Around the two halves
#
# The halves are wrapped in one `torch.autograd.Function`, so that everything else of autograd goes
# on working: `.grad` accumulates, hooks fire, parameters may be shared, `torch.autograd.grad`
# works.

# %%
from miniinductor.autograd import runtime

text = runtime.__doc__
Code(text[text.index("What the function does"):], "text", "the header of miniinductor/autograd/runtime.py, its end")

# %% [markdown]
# The list is what autograd demands of anybody who steps in for it. The third point is the subtle one:
# a write to a tensor with history must be seen by autograd. Does a hook still fire?

# %%
compiled = minidynamo.compile(block)
fired = []
block.up.weight.register_hook(lambda gradient: fired.append(tuple(gradient.shape)) or None)
for parameter in block.parameters():
    parameter.grad = None
torch.manual_seed(1)
compiled(h).square().sum().backward()
ours = {name: p.grad.clone() for name, p in block.named_parameters()}
for parameter in block.parameters():
    parameter.grad = None
torch.manual_seed(1)
block(h).square().sum().backward()
print("gradients equal eager's:",
      all(torch.allclose(ours[n], p.grad, atol=1e-4, rtol=1e-3) for n, p in block.named_parameters()))
print("the hook fired twice, once compiled and once eagerly:", fired)

# %% [markdown]
# It does, and the gradients are eager's. Differentiating twice is not possible: the backward
# half was compiled without a backward of its own. The error says what to do:

# %%
def cubed(x):
    return (x ** 3).sum()

minidynamo.reset()
v = torch.randn(3, requires_grad=True)
try:
    torch.autograd.grad(minidynamo.compile(cubed)(v), v, create_graph=True)
except RuntimeError as error:
    print(error)

# %% [markdown]
# Better an error than a wrong second derivative.
#
# ## A real model
#
# GPT-2 (2 layers here) trains compiled; the loss follows eager's:

# %%
import copy
from benchmarks.models import gpt2

gpt, inputs = gpt2(layers=2, sequence=32)
inputs["labels"] = inputs["input_ids"]
losses = {}
for name in ("eager", "compiled"):
    torch.manual_seed(0)
    trained = copy.deepcopy(gpt)                # in eval mode: no dropout, so the two must agree
    minidynamo.reset()
    step = minidynamo.compile(trained) if name == "compiled" else trained
    optimizer = torch.optim.AdamW(trained.parameters(), lr=1e-4)
    losses[name] = []
    for _ in range(6):
        loss = step(**inputs).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses[name].append(loss.item())
Table(["step", "eager", "compiled"],
      [(n, f"{a:.3f}", f"{b:.3f}") for n, (a, b) in enumerate(zip(losses["eager"], losses["compiled"]))])

# %% [markdown]
# Six steps, and three digits behind the point are equal in each.
#
# At full size: GPT-2, BERT and ResNet-50, trained with AdamW and with dropout on, recorded once.
# Eager's random kernels draw in both. So the curves follow each other, but for rounding: each title
# says how far apart they come.

# %% alt="Three plots of the loss over the steps of AdamW: the circles of eager lie on the line of the compiled model"
from benchmarks.plots import loss_curves, recorded

loss_curves(recorded("training_curves_cpu"));

# %% [markdown]
# What the cut is worth in memory shows on a GPU, where it decides which batch fits: the peak of one
# training step, with eager's dropout in all three.

# %%
from benchmarks.plots import where_recorded

run = recorded("h100_training_memory")
variants = ("eager", "ours", "torch.compile")
Table(["model", *(f"{v}: peak MiB" for v in variants), *(f"{v}: ms" for v in variants)],
      [(r["name"], *(f"{r[v]['peak'] / 2 ** 20:,.0f}" if v in r else "not run" for v in variants),
        *(f"{r[v]['milliseconds']:.1f}" if v in r else "" for v in variants)) for r in run["rows"]], where_recorded(run))

# %% [markdown]
# GPT-2 needs less memory than eager in both rows. ResNet-50 needs as much: what its convolutions read
# must be kept, whoever compiles. Nothing can be won where most values are inputs of library calls.
#
# Dropout masks are part of what is saved. With `miniinductor.config.fallback_random = False` the
# kernels draw themselves (`miniinductor/lowering/random.py`: a counter-based generator, so a
# number depends on a seed and its position alone), and the backward kernels draw the same mask
# again:

# %%
def regularised(x):
    return torch.nn.functional.dropout(x.sin(), 0.1).exp()

for own in (False, True):
    minidynamo.reset()
    with miniinductor.config.patch(fallback_random=not own):
        e = minidynamo.explain(regularised)(torch.randn(1000, 100, requires_grad=True))
    print("own random numbers" if own else "eager's random numbers")
    display(e.saved)

# %% [markdown]
# A byte for each element before, and now eight bytes in all: the seed. The mask is computed again.
#
# ## Exercises
#
# **08.1** (warm-up) *Functionalize by hand.* Write `pure(x)`: the same values as `dirty`, without any
# in-place operation. It returns `(result, new value of x)`.
#
# *Hints.* Two writes, both through views; `y` is computed between them. `torch.slice_scatter`,
# `torch.select_scatter` or `torch.cat` make a new tensor with a part replaced.

# %% tags=["support"]
def dirty(x):
    """x: 4 x 3.  Writes to x."""
    x[1:3].mul_(2)
    y = x.sum(0)
    x[0] = y
    return y + x[0]

# %% tags=["exercise"]
def pure(x: torch.Tensor) -> tuple:
    """(what dirty returns, what dirty leaves in x); x itself stays as it is."""
    ### BEGIN SOLUTION
    x1 = torch.slice_scatter(x, x[1:3] * 2, 0, 1, 3)
    y = x1.sum(0)
    x2 = torch.select_scatter(x1, y, 0, 0)
    return y + x2[0], x2
    ### END SOLUTION

# %% tags=["check"]
from exercises import check

check("08.1", pure)

# %% [markdown]
# **08.2** (core) *A cut by hand.* Write `cheapest(values, edges, must, reads)`: which values to save.
# `values` maps a name to its bytes; `edges` are pairs `(from, to)`: `to` is computed from `from`;
# the values in `must` cannot be computed again; the backward half reads the values in `reads`.
# Return the set of saved values with the fewest bytes.
#
# *Hints.* `networkx.DiGraph`, each value an edge `(name, "in") -> (name, "out")` with `capacity`
# bytes; `edges` and the ends have no capacity (infinite).
# `networkx.minimum_cut(graph, source, sink)` returns the value and the two sides; a value is cut if
# its "in" is on the source's side and its "out" is not.

# %% tags=["exercise"]
import networkx

def cheapest(values: dict, edges: list, must: set, reads: set) -> set:
    """Names of the values to save."""
    ### BEGIN SOLUTION
    graph = networkx.DiGraph()
    for name, size in values.items():
        graph.add_edge((name, "in"), (name, "out"), capacity=size)
    for a, b in edges:
        graph.add_edge((a, "out"), (b, "in"))
    for name in must:
        graph.add_edge("source", (name, "in"))
    for name in reads:
        graph.add_edge((name, "out"), "sink")
    _, (near, _) = networkx.minimum_cut(graph, "source", "sink")
    return {name for name in values if (name, "in") in near and (name, "out") not in near}
    ### END SOLUTION

# %% tags=["check"]
check("08.2", cheapest)

# %% [markdown]
# **08.3** (stretch) *A policy in the real partitioner.* `why_saved(node, is_cheap, value)` returns a reason
# if a value must be saved, or `""` if it may be computed again. Write a policy that *never*
# recomputes `exp`, besides what must never be recomputed. All else stays the original's choice. The
# check puts it into the partitioner, trains a function with dropout and `exp`, and looks at what was
# saved, and at the gradients.
#
# *Hints.* Call the original for everything else: `partition.why_saved`. The operation is
# `node.target`; exp is `torch.ops.aten.exp.default`.

# %% tags=["exercise"]
from miniinductor.autograd import partition

original_policy = partition.why_saved

def keep_exp(node, is_cheap, value=None) -> str:
    """Like the original, but exp is always saved."""
    ### BEGIN SOLUTION
    if node.target is torch.ops.aten.exp.default:
        return "exp is never computed again"
    return original_policy(node, is_cheap, value)
    ### END SOLUTION

# %% tags=["check"]
check("08.3", keep_exp)

# %% [markdown]
# **08.4** (core) *Backward over a tape.* Write `gradients(tape, values, output)`. The tape is a list of
# `(operation, inputs, result)` in the order in which it ran, with `"add"` and `"mul"`. `values` maps a
# name to its number. Return a dictionary with the gradient of `output` for every name that it depends
# on, its own included.
#
# *Hints.* Walk backwards. Start with 1 for the output. A value that is used twice gets the *sum* of
# what both uses send back. `mul(x, x)` uses `x` twice, too.
#
# <details><summary>Predict: which values of the forward pass does the backward of mul need? And of add?</summary>
#
# `mul` needs both factors. `add` needs none. That is the difference between a large cut and a small
# one.
#
# </details>

# %% tags=["exercise"]
def gradients(tape: list, values: dict, output: str) -> dict:
    """d output / d name, for every name that the output depends on."""
    ### BEGIN SOLUTION
    found = {output: 1.0}
    for operation, (a, b), result in reversed(tape):
        if result not in found:
            continue
        back = found[result]
        factors = (values[b], values[a]) if operation == "mul" else (1, 1)
        for name, factor in zip((a, b), factors):
            found[name] = found.get(name, 0) + back * factor
    return found
    ### END SOLUTION

# %% tags=["check"]
check("08.4", gradients)

# %% [markdown]
# ## Your own compiler: the backward graph
#
# **The piece.** One rule for each operation, a walk from the outputs to the inputs, the cut, and
# the halves as graphs of their own. The rules write nodes into the graph that is there already: that is why the joint graph can be cut
# wherever it is narrow.
#
# <details><summary>Hint: rules</summary>
#
# A rule gives one gradient for each argument that can have one, in a tuple; numbers and sizes at the
# end may be left out. `fit` undoes broadcasting, for all rules: it sums over what was repeated. `to` may
# be a number, which has no gradient: `None`. A quotient's second gradient is `-g * result / b`. Where
# several elements are the largest they share the gradient.
#
# `_spread` gives a sum's gradient its dimensions back, with size 1; then it can be expanded. The
# inverse of `order` has, at place `d`, the place of `d` in `order`.
#
# </details>
# <details><summary>Hint: the walk</summary>
#
# Call `RULES[node.op](gradient of the node, node, *node.args)`, and send each amount, fitted, to its
# argument. A value that is used twice gets the sum of what both uses send back. An operation without
# a rule, such as `eq` or `add_rows`, sends nothing. Take a copy of `graph.nodes` before you write.
#
# </details>
# <details><summary>Hint: matrices</summary>
#
# If the second matrix is not part of the batch, make one long matrix of the batch: one product
# instead of a sum over many.
#
# </details>
# <details><summary>Hint: the cut</summary>
#
# Split each forward value into an edge as wide as its bytes. What the backward half reads leads to
# the end; what is not in `CHEAP` hangs on the start. Inputs cost nothing. Return all values that the
# cut goes through, inputs among them.
#
# </details>
# <details><summary>Hint: a part of a graph</summary>
#
# Walk backwards from the outputs, and stop at what is given. Then copy forwards: `result.input` for
# what is given, `result.add` for the rest. A dictionary says which copy stands for which node.
#
# </details>

# %%
from exercises.own_compiler import begin

begin("autograd");

# %% [markdown]
# The line names what is yours. Write it in that file, then ask for a check, as often as you like:

# %% tags=["check", "piece"]
from exercises.own_checks import check_piece

check_piece("autograd")

# %% [markdown]
# ## What else lives here
#
# Every public name of this chapter's core files, with one sentence each. Unfold a file, then a name:
# its first lines are there. The list is made from the sources when the page is built.

# %% tags=["volatile"]
from minidynamo.explain import also_here

also_here("miniinductor/autograd/")

# %% [markdown]
# ## What real PyTorch has
#
# * `torch/_functorch/aot_autograd.py` and `_aot_autograd/`: the joint trace and the wrappers around
#   it. Paper, section 3.
# * Functionalization is C++ there (`aten/src/ATen/FunctionalTensorWrapper.cpp`); ours works on the
#   finished graph, which is a straight line.
# * `torch/_functorch/partitioners.py`: the same cut, with a knapsack for a memory budget and more
#   heuristics.
#
# **See it in the real `torch.compile`.** `TORCH_LOGS=aot_joint_graph,aot_graphs python program.py` prints the joint graph, then its two halves.
#
# ## Recap
#
# * A tracer below autograd sees forward and backward; nothing about derivatives is written by hand.
# * Functionalization turns writes into new values and input writes into extra outputs.
# * The cut decides what is saved; random numbers always are, or the seed that gives them again.
#
# Next: from ATen operations to loops.
