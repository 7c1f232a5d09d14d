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
# The graph from minidynamo still has in-place writes and views, and it has no gradients. Three
# steps prepare it for the code generator. A tracer *below autograd* records the graph again,
# together with its backward pass: this is the *joint graph*. Functionalization makes writes and
# views explicit. Then a cut divides the joint graph into a forward graph and a backward graph, so
# that the forward graph saves few bytes for the backward graph.
#
# **What you will learn:** why eager autograd cannot differentiate a compiled forward; the ATen
# trace; functionalization; the joint graph; how a minimum cut weighs memory against recomputation;
# what surrounds the two compiled graphs.
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
# ## The naive version: compile the forward, leave the rest to autograd
#
# Eager autograd builds its tape from the operations that really run. A fused kernel is one
# operation for which autograd has no formula:

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
# The numbers are right, but the result has no gradient. Could we wrap the kernel, so that autograd calls a backward
# function of ours? That function would need formulas. Eager autograd has one for each *operation*, and most formulas need values that the
# forward pass saved. Here is what eager saves:
# <!-- shows: has("the numbers agree: True") and has("requires_grad: False") -->

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
# The first row is `x`, which is in memory anyway. The third tensor is the second one times 2, so
# one multiplication would recompute it. Eager does not know that. A compiler that sees forward
# *and* backward knows it.
# <!-- shows: count("(4, 8)") == 3 and n("tanh(x @ w) * 2 ", 2) == 128 -->
#
# *The kitchen.* A cook who reads one line of the recipe at a time keeps every bowl, in case it is needed again. A cook who
# has read the whole recipe, dessert included, keeps one bowl and refills the others.
# *Exactly:* a value is either saved in the forward graph or recomputed in the backward graph.
#
# ## Tracing below autograd
#
# Autograd is a layer. Each operation first records its backward function, then calls the
# actual kernel below. A tracer *below* that layer sees every operation that reaches a kernel. When
# `torch.autograd.grad` runs, these are the backward operations. So nobody has to write a derivative:

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
# The operations after `-- backward` come from autograd: `sigmoid_backward`, and a product with a transposed
# matrix (`t`, `mm`). A `detach` returns the same tensor, without its history.
# <!-- shows: has("-- backward") and has("sigmoid_backward") -->
#
# The real tracer does the same on **fake tensors**, which have a shape and a dtype but no data. It also writes a graph. Its
# method has the same name:

# %%
from miniinductor.autograd.tracer import Tracer
from parts import part

part(Tracer.__torch_dispatch__, ("if func in SAME_VALUE", "return"), "return self.decompose_or_record")

# %% [markdown]
# An operation that returns its argument's value, such as `detach`, needs no node (`same_value`). The last line
# decomposes an operation into simpler ones, if it has a decomposition. Otherwise it adds a node to the graph.
# <!-- shows: has("same_value") and has("decompose_or_record") -->
#
# ## Functionalization
#
# The compiler fuses and reorders kernels, so no kernel may overwrite another one's input. Functionalization turns each write into a
# new value, and makes each view of a written tensor again from that value. Compare a graph before and after:

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
# `add_` became `add`, and `mul_` became `mul`. `select_scatter` returns the whole matrix
# with the new row in it.
#
# The caller sees a write to an *input*. So the new value of the input becomes an extra output,
# which is copied back at the end. (`in_place` writes to no input, so the second list of the
# functional outputs is empty.) Batch-norm statistics and kv-caches work in this way.
#
# ## The joint graph
#
# The inputs of the joint graph are the program's inputs and parameters ("primals"), and one gradient per output ("tangents").
# Its outputs are the results, and the gradients of the primals. In the next picture a dashed node depends on a tangent, so
# only the backward graph can compute it. A double line marks a value that is saved:

# %%
def layer(x, w):
    return F.gelu(torch.tanh(x @ w) * 2)

e = minidynamo.explain(layer)(x, w)
e.result.sum().backward()
e.joint

# %% [markdown]
# All other nodes have a plain line. Some of them belong to a derivative, too, such as
# `1 - tanh(x) ** 2`. But they depend on the inputs alone, so either graph could compute them. If a
# plain node makes a value and a dashed node reads it, the value must be saved or recomputed. Here
# are the saved values, each with the reason:
# <!-- shows: n("the cut (") == 128 -->

# %%
e.saved

# %% [markdown]
# An input counts no bytes, because it is in memory anyway. `mm_default` is a matrix product of an
# eager kernel, which must not be computed again.
#
# ## The cut
#
# Where should the joint graph be divided? This figure moves the cut along the forward operations, from the first value to
# the last. Each value that crosses the cut must be kept. (Use the buttons, or the arrow keys.)

# %%
from steppers import cut_walk

cut_walk(e.main.compiled)

# %% [markdown]
# An early cut keeps few bytes and recomputes many values; a late cut keeps many bytes. The best cut
# need not be at one point of the order: it may keep an early value of one branch and a late value
# of another. And it must not compute a matrix product twice.
# <!-- shows: has("128 bytes") and has("384 bytes") -->
#
# The **minimum cut** is a problem with a textbook algorithm. It works on a network with two extra
# nodes, a *source* and a *sink*. Each value becomes an edge whose capacity is its number of bytes.
# Values that must not be recomputed (matrix products, random numbers) are connected to the source.
# Values that the backward graph reads are connected to the sink. The algorithm finds the cheapest
# set of values that separates source and sink. (Think of water in pipes. A pipe is as wide as its
# value has bytes. Which pipes do you close, with the least total width, so that no water arrives?)
#
# The function `why_saved` decides which values must be saved. Here is the middle of it:

# %%
from miniinductor.autograd import partition

part(partition.why_saved, ("if is_random", "return"), ("if is_view_node", 'return "eager kernel"'))

# %% [markdown]
# An answer other than `""` is a reason to save the value. Random numbers are tested at the top, so
# no later line overrules their reason. A view costs nothing, and a value from nothing (`zeros`,
# `arange`) costs little, so both are recomputed. `wants_again` is true where the user asked for
# recomputation with `torch.utils.checkpoint`. `is_cheap` is true if miniinductor generates a kernel
# for the operation. Calls of library kernels are not cheap, so they do not run twice.
# <!-- shows: has('return "random"') and has('return "eager kernel"') -->
#
# `choose_saved` ends with the cut itself:

# %%
part(partition.choose_saved, ("reasons =", "return"))

# %% [markdown]
# `reasons` maps a value to its reason, or to `""`. Its keys are the values that the backward graph
# reads, or would read after recomputing others. `smallest_cut` finds the minimum cut. A value is
# saved if the cut goes through its edge: the edge begins on the side of the source, and does not
# end there.
#
# The next table compares eager with three policies, on one block:

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
kept = {name: size for name, size, _ in rows}
assert kept["recompute-all"] < kept["min-cut"] < kept["eager"] < kept["save-everything"]
Table(["policy", "bytes kept", "which"], rows, "a transformer block's feed-forward half")

# %% [markdown]
# `save-everything` keeps more bytes than eager. It also saves intermediate results of *decomposed*
# operations, which eager's kernels never store. `min-cut` keeps fewer bytes than either, since it
# recomputes cheap values.
# <!-- shows: n("min-cut") < n("eager") < n("save-everything") -->
#
# `recompute-all` keeps the fewest bytes, but only a little fewer than `min-cut`. The two rows differ by the two results called
# `mean`, which are small and come from reductions over all of `h`. `min-cut` saves such a result, because a second reduction costs more time than
# its few bytes are worth.
#
# Every policy saves dropout's random numbers, as the mask (`bernoulli`) or as the scaled mask that
# is multiplied with the data (`div`). If the backward graph drew them again, it would get a
# different mask, and compute the gradient of a different function.
#
# ## Around the two graphs
#
# One `torch.autograd.Function` wraps both compiled graphs, so that the rest of autograd still
# works: `.grad` accumulates, hooks fire, parameters may be shared, and `torch.autograd.grad`
# works. The header of its file lists the duties of this function:

# %%
from miniinductor.autograd import runtime

text = runtime.__doc__
Code(text[text.index("What the function does"):], "text", "the header of miniinductor/autograd/runtime.py, its end")

# %% [markdown]
# Autograd expects all of this from a function that replaces its own tape. The third point is the subtle one:
# autograd must see a write to a tensor with history. Are the gradients right, and does a hook still fire?
# <!-- shows: has("written tensor with history") -->

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
# The hook fires, and the gradients are eager's. Second derivatives are not supported: the backward
# graph was compiled without a backward of its own. The error message names the alternatives:
# <!-- shows: has("gradients equal eager's: True") and has("the hook fired twice") -->

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
# An error is better than a wrong second derivative.
# <!-- shows: has("create_graph=True") -->
#
# ## A real model
#
# Here GPT-2 (with 2 layers) trains for six steps, once in eager and once compiled. The table has the loss of each step:

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
rows = [(n, f"{a:.3f}", f"{b:.3f}") for n, (a, b) in enumerate(zip(losses["eager"], losses["compiled"]))]
assert all(eager == compiled for _, eager, compiled in rows)
Table(["step", "eager", "compiled"], rows)

# %% [markdown]
# The losses are equal in each step, as far as the table shows them.
# <!-- shows: count("11.177") == 2 and count("2.345") == 2 -->
#
# The next plot has full-size models: GPT-2, BERT and ResNet-50, trained with AdamW and dropout. The
# curves were recorded once. Both versions draw their random numbers with eager's kernels, so the
# curves differ by rounding only. Each title gives the largest difference:

# %% alt="Three plots of the loss over the steps of AdamW: the circles of eager lie on the line of the compiled model"
from benchmarks.plots import loss_curves, recorded

loss_curves(recorded("training_curves_cpu"));

# %% [markdown]
# Memory matters most on a GPU, where it limits the size of the batch. The next table has the peak memory and the time of one
# training step, for eager, for miniinductor (`ours`) and for `torch.compile`. All three use eager's dropout:
# <!-- general -->

# %%
from benchmarks.plots import where_recorded

run = recorded("h100_training_memory")
variants = ("eager", "ours", "torch.compile")
Table(["model", *(f"{v}: peak MiB" for v in variants), *(f"{v}: ms" for v in variants)],
      [(r["name"], *(f"{r[v]['peak'] / 2 ** 20:,.0f}" if v in r else "not run" for v in variants),
        *(f"{r[v]['milliseconds']:.1f}" if v in r else "" for v in variants)) for r in run["rows"]], where_recorded(run))

# %% [markdown]
# In both rows of GPT-2 our peak is lower than eager's. For BERT it is the same in float32, and
# lower in bfloat16. In both rows of ResNet-50 it is almost the same. Each compiler must save what
# the convolutions read. So a cut saves little where most values are inputs of library calls.
# <!-- shows: n("gpt2 float", 2) < n("gpt2 float", 1) and n("gpt2 bfloat", 2) < n("gpt2 bfloat", 1) and abs(n("resnet50 float", 2) - n("resnet50 float", 1)) < 20 -->
#
# The saved values include dropout masks. With `miniinductor.config.fallback_random = False` our
# kernels draw the random numbers (`miniinductor/lowering/random.py`). They use a counter-based generator, whose
# numbers depend on a seed and a position alone. So the backward kernels can draw the same mask
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
# Eager's random numbers need one byte for each element. Our own need eight bytes in all, for the seed, and the backward graph recomputes the mask.
# <!-- shows: has("100,000 bytes saved") and has("8 bytes saved") -->
#
# ## Exercises
#
# **08.1** (warm-up) *Functionalize by hand.* Write `pure(x)`, which computes the same values as `dirty` without any
# in-place operation. It returns `(result, new value of x)`.
#
# *Hints.* `dirty` has two writes, both through views; `y` is computed between them. `torch.slice_scatter`,
# `torch.select_scatter` or `torch.cat` make a new tensor in which a part is replaced.

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
# **08.2** (core) *A cut by hand.* Write `cheapest(values, edges, must, reads)`. It returns the set
# of values to save that has the fewest bytes. `values` maps a name to its bytes. `edges` are pairs
# `(from, to)`, where `to` is computed from `from`. The values in `must` cannot be recomputed. The
# backward graph reads the values in `reads`.
#
# *Hints.* Make a `networkx.DiGraph`. Each value is an edge `(name, "in") -> (name, "out")` with its bytes as `capacity`.
# The edges of `edges`, and those to the source and the sink, get no capacity, which means infinite.
# `networkx.minimum_cut(graph, source, sink)` returns the value of the cut and the two sides. A value is saved if
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
# if a value must be saved, or `""` if it may be recomputed. Write a policy that also saves the result of every `exp`.
# In all other cases it returns what the original returns. The
# check puts your policy into the partitioner, trains a function with dropout and `exp`, and looks at the saved
# values and the gradients.
#
# *Hints.* Call the original for everything else: `original_policy`. (While the check runs,
# `partition.why_saved` is your own function.) The operation is `node.target`; exp is
# `torch.ops.aten.exp.default`.

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
# `(operation, inputs, result)`, in the order in which the operations ran. An operation is `"add"` or `"mul"`. `values` maps a
# name to its number. Return a dictionary with the gradient of `output` for every name on which it depends,
# and for `output` itself.
#
# *Hints.* Walk backwards. Start with 1 for the output. A value that is used twice gets the *sum* of the gradients from
# both uses. `mul(x, x)` uses `x` twice, too.
#
# <details><summary>Predict: which values of the forward pass does the backward of mul need? And of add?</summary>
#
# `mul` needs both factors. `add` needs none. So a cut through multiplications is larger than one through additions.
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
# **The piece.** You write one rule for each operation, a walk from the outputs to the inputs, the cut, and
# the extraction of both graphs. The rules add nodes to the graph of the forward pass. So the result is a joint graph,
# which can be cut at any place.
#
# <details><summary>Hint: rules</summary>
#
# A rule returns one gradient for each argument that can have one, in a tuple; it may leave out
# numbers and sizes at the end. `fit` undoes broadcasting for all rules: it sums over the repeated
# elements. Its argument `to` may be a number, which has no gradient: return `None`. A quotient's
# second gradient is `-g * result / b`. If several elements are the largest, they share the
# gradient.
#
# `_spread` gives the gradient of a sum its removed dimensions back, with size 1, so that you can
# expand it. The inverse of `order` has, at place `d`, the position of `d` in `order`.
#
# </details>
# <details><summary>Hint: the walk</summary>
#
# Call `RULES[node.op](gradient of the node, node, *node.args)`, and pass each gradient through
# `fit` before you send it to its argument. A value that is used twice gets the sum of both
# gradients. An operation without a rule, such as `eq` or `add_rows`, sends nothing. Take a copy of
# `graph.nodes` before you add nodes.
#
# </details>
# <details><summary>Hint: matrices</summary>
#
# If the second matrix has no batch dimensions, join the batch of the first into one long matrix.
# Then one product replaces a sum of many.
#
# </details>
# <details><summary>Hint: the cut</summary>
#
# Split each forward value into an edge as wide as its bytes. Draw an edge to the sink from each
# value that the backward graph reads. Draw an edge from the source to each value whose operation is
# not in `CHEAP`. Inputs cost nothing. Return all values that the cut goes through, including
# inputs.
#
# </details>
# <details><summary>Hint: a part of a graph</summary>
#
# Walk backwards from the outputs, and stop at the given values. Then copy forwards: `result.input` for
# a given value, `result.add` for the rest. A dictionary maps each node to its copy.
#
# </details>

# %%
from exercises.own_compiler import begin

begin("autograd");

# %% [markdown]
# The output names the functions that you write. Write them in that file, then run the check as
# often as you like:

# %% tags=["check", "piece"]
from exercises.own_checks import check_piece

check_piece("autograd")

# %% [markdown]
# ## What else lives here
#
# The list has every public name of this chapter's main files, with one sentence each. Unfold a file, then a name,
# to see its first lines. The list is made from the sources when the page is built.

# %% tags=["volatile"]
from minidynamo.explain import also_here

also_here("miniinductor/autograd/")

# %% [markdown]
# ## What real PyTorch has
#
# * `torch/_functorch/aot_autograd.py` and `_aot_autograd/` have the joint trace and the wrappers around
#   it. Paper, section 3.
# * PyTorch's functionalization is written in C++ (`aten/src/ATen/FunctionalTensorWrapper.cpp`). Ours works on the
#   finished graph, which has no branches.
# * `torch/_functorch/partitioners.py` has the same cut, with a knapsack for a memory budget and more
#   heuristics.
#
# **See it in the real `torch.compile`.** `TORCH_LOGS=aot_joint_graph,aot_graphs python program.py` prints the joint graph, then the forward
# and the backward graph.
#
# ## Recap
#
# * A tracer below autograd sees forward and backward, so nobody writes derivatives by hand.
# * Functionalization turns writes into new values, and writes to inputs into extra outputs.
# * The cut decides what is saved. Random numbers are always saved, or the seed from which they are drawn again.
#
# Next: from ATen operations to loops.
