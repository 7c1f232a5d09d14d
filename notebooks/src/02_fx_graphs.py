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
# # 02 · FX graphs: a program as data
#
# Whatever captures a program must write it down in some form that other programs can read and
# change. In PyTorch this form is the **FX graph**. It is what minidynamo produces and what every
# backend receives.
#
# **What you will learn:** the six kinds of nodes; how a graph is Python code and back;
# interpreting, transforming and drawing it; what a *backend* is. At the end you write three graph
# passes of your own.
#
# **Files of this chapter:** `minidynamo/graph/output_graph.py`, `minidynamo/graph/graph_module.py`,
# `minidynamo/backends.py`.

# %%
import operator
from collections import Counter

import torch
import torch.fx as fx

import minidynamo
from minidynamo.explain import Code, Table, draw_graph

torch.manual_seed(0)
torch.set_grad_enabled(False);

# %% [markdown]
# ## Why not just a list?
#
# In notebook 01 the tape was a list of `(operation, arguments, result slot)`. That is enough to
# replay. It is not enough to *change* the program: who uses `v3`? May `v5` be deleted? If I insert
# an operation, what must be renumbered?

# %%
tape = [("relu", ["v0"], "v1"), ("add", ["v1", "v1"], "v2"), ("mul", ["v0", "v0"], "v3")]
uses = {name: [row for row in tape if name in row[1]] for name in ("v1", "v2", "v3")}
print("v3 is used by", uses["v3"], "- so it can go; but each question is a search through the whole tape")

# %% [markdown]
# A graph keeps the answer with each node: its inputs (`node.args`) and its users (`node.users`),
# both ways, always consistent.
#
# *The kitchen.* A tape is the order in which the cook did things. A graph is the recipe card that
# says which bowl goes into which pot; two steps that do not feed each other may swap. *Exactly:*
# nodes are operations, edges are values, and the list order is one valid topological order.
#
# ## Six kinds of nodes
#
# | op | what it is | target |
# |---|---|---|
# | `placeholder` | an input | its name |
# | `get_attr` | a tensor that the module owns | the path to it |
# | `call_function` | `torch.relu(x)`, `operator.add(x, y)` | the function |
# | `call_method` | `x.view(2, 3)` | the method's name |
# | `call_module` | `self.linear(x)` | the path to the module |
# | `output` | what is returned | "output" |
#
# Build one by hand:

# %%
graph = fx.Graph()
x = graph.placeholder("x")
doubled = graph.call_function(operator.mul, (x, 2))
clipped = graph.call_method("clamp", (doubled,), {"min": 0.0})
graph.output(clipped)
print(graph)
print("inputs of clamp:", clipped.args, clipped.kwargs, "   users of mul:", list(doubled.users))

# %% [markdown]
# A `GraphModule` is the graph together with generated Python code that runs it. The graph prints as
# a program because it *is* one:

# %%
module = fx.GraphModule(torch.nn.Module(), graph)
print(module.code)
module(torch.tensor([-1.0, 3.0]))

# %% [markdown]
# The graph module runs like any module, and gives the same numbers.
#
# ## What minidynamo writes down
#
# A backend is any function that takes a `GraphModule` and example inputs and gives back something
# callable. The simplest one looks and returns the graph unchanged. (If your own raises an error,
# the call raises `minidynamo.BackendError`, whose `__cause__` is that error.)

# %%
seen = []

def look(gm, example_inputs):
    seen.append(gm)
    return gm.forward

class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = torch.nn.Linear(8, 32), torch.nn.Linear(32, 8)

    def forward(self, x, scale=None):
        hidden = torch.nn.functional.gelu(self.up(x))
        if scale is not None:                       # decided while capturing: a guard, not a node
            hidden = hidden * scale
        return x + self.down(hidden)

block = Block()
minidynamo.compile(block, backend=look)(torch.randn(4, 8))
print(seen[0].code)

# %% [markdown]
# It reads like the `forward` that was written, with its modules taken apart. (`x = None` behind a `;`
# lets go of a tensor that nobody reads any more.)
#
# Three things to notice. There is no `if`: it was decided, and a guard remembers. There is no
# `call_module`: calls of modules were *inlined* down to functions, because a graph that stops at
# `self.up` could not be fused across it. And the weights are `get_attr` nodes: reads of the
# module's own parameters, not copies of them. (`torch.compile` makes inputs of them: there each
# weight is a `placeholder`, which its caller passes at each call.)
#
# ## Metadata
#
# A node carries a dictionary, `node.meta`. minidynamo fills in the value's *fake tensor* (shape,
# dtype, strides, no data), the user's line and the path of the module it came from.

# %%
rows = []
for node in seen[0].graph.nodes:
    value = node.meta.get("example_value", node.meta.get("val"))
    shape = tuple(value.shape) if hasattr(value, "shape") else ""
    rows.append((node.op, node.name, shape, node.meta.get("module_path", "")))
Table(["op", "name", "shape", "module"], rows)

# %% [markdown]
# Pictures come from the same data. Shapes distinguish inputs, operations and the output:

# %%
draw_graph(seen[0], "Block")

# %% [markdown]
# Arrows are values. What has no arrow between it can run in any order.
#
# ## Reading a graph: an interpreter
#
# An interpreter is a loop over the nodes with an environment, which holds the value of each node. It
# is short, and every analysis of a graph is a variation of it.

# %%
def interpret(gm, *inputs):
    environment, inputs = {}, iter(inputs)
    look_up = lambda value: fx.node.map_arg(value, lambda node: environment[node])
    for node in gm.graph.nodes:
        args, kwargs = look_up(node.args), look_up(node.kwargs)
        if node.op == "placeholder":
            environment[node] = next(inputs)
        elif node.op == "call_function":
            environment[node] = node.target(*args, **kwargs)
        elif node.op == "call_method":
            environment[node] = getattr(args[0], node.target)(*args[1:], **kwargs)
        elif node.op == "output":
            return args[0]

interpret(module, torch.tensor([-1.0, 3.0]))

# %% [markdown]
# The same numbers as before. `get_attr` is left out here; a graph with weights needs one branch more.
#
# The same loop with *bytes* as values tells how much memory traffic eager mode causes:

# %%
def eager_bytes(gm):
    def size(node):
        value = node.meta.get("example_value")
        return value.numel() * value.element_size() if isinstance(value, torch.Tensor) else 0
    return sum(size(node) + sum(size(source) for source in node.all_input_nodes)
               for node in gm.graph.nodes if node.op.startswith("call"))

print("Block moves", eager_bytes(seen[0]), "bytes in eager mode")

# %% [markdown]
# Every operation counts what it reads and what it writes. A value between two operations is counted
# twice: that is what fusion saves.
#
# ## Changing a graph: a pass
#
# A pass walks over the graph and rewrites it. This one removes multiplications by one. The
# important call is `replace_all_uses_with`: every user of the old node now reads the new one.

# %%
def remove_mul_by_one(gm):
    for node in list(gm.graph.nodes):
        if node.op == "call_function" and node.target is operator.mul and node.args[1] == 1:
            node.replace_all_uses_with(node.args[0])
            gm.graph.erase_node(node)
    gm.recompile()
    return gm

def padded(x):
    return torch.relu(x * 1) * 1

graphs = []
minidynamo.compile(
    padded, backend=lambda gm, _: graphs.append(remove_mul_by_one(gm)) or gm.forward
)(torch.randn(3))
print(graphs[0].code)

# %% [markdown]
# Both products are gone.
#
# **A naive pass fails.** `x * 1` is not always `x`: if `x` holds integers and the factor is `1.0`,
# the product has another dtype. And it is never the same *object*: a caller that writes into the
# result must not write into `x`. Passes are where compilers get numbers wrong.

# %%
def promotes(x):
    return x * 1.0

wrong = minidynamo.compile(promotes, backend=lambda gm, _: remove_mul_by_one(gm).forward)(
    torch.tensor([1, 2])
)
print("eager:", promotes(torch.tensor([1, 2])).dtype, "  after the naive pass:", wrong.dtype)
minidynamo.reset()

# %% [markdown]
# Eager gives floating-point numbers, the rewritten graph integers: a wrong result, without a word.
#
# miniinductor has no pass for `x * 1`. It has one for copies, casts and reshapes that change
# nothing. It looks at the metadata first, and leaves alone what reaches the output:

# %%
from minidynamo.explain import excerpt
from miniinductor.passes.graph_passes import remove_no_ops

excerpt(remove_no_ops)

# %% [markdown]
# (`CLEANING` in `graph_passes.py` is the list of passes. `NO_OPS` are the operations that it looks
# at, `COUNTS_PLACES` those that see where in its memory a tensor begins.)
#
# The real pass asks for more than the naive one. `alike` compares the metadata of both values: dtype,
# shape and strides must stay. `stand_in` lets the users of the copy read what was copied.
#
# ## A real model
#
# BERT with 12 layers is one graph. Which operations is it made of?

# %%
from benchmarks.models import bert

model, inputs = bert()
seen.clear()
minidynamo.compile(model, backend=look, fullgraph=True)(**inputs)
counts = Counter(
    getattr(n.target, "__name__", n.target) for n in seen[0].graph.nodes if n.op.startswith("call")
)
Table(["operation", "times"], counts.most_common(12), f"BERT: {sum(counts.values())} operations")

# %% [markdown]
# A few kinds of operations make up nearly all of a model. Drawn by module:

# %%
draw_graph(seen[0], "BERT", by_module=True, depth=2)

# %% [markdown]
# Nearly everything is in the layers of the encoder. The pooler at the end is small.
#
# ## Exercises
#
# **02.1** (warm-up) Write `largest_value(gm)`: the name of the node whose value has the most elements (inputs
# and outputs do not count).
#
# *Hints.* Only nodes whose `op` starts with `"call"`. The value is `node.meta["example_value"]`.

# %% tags=["exercise"]
def largest_value(gm: fx.GraphModule) -> str:
    """Name of the call node with the largest value."""
    ### BEGIN SOLUTION
    calls = [n for n in gm.graph.nodes if n.op.startswith("call") and isinstance(n.meta.get("example_value"), torch.Tensor)]
    return max(calls, key=lambda n: n.meta["example_value"].numel()).name
    ### END SOLUTION

# %% tags=["check"]
from exercises import check

check("02.1", largest_value)

# %% [markdown]
# **02.2** (core) *Common subexpressions.* Write the pass `merge_equal(gm)`: when two nodes call the same
# function with the same arguments, the second is replaced by the first. Return the graph module,
# recompiled. Three things must stay as they are. Two random operations are two (`RANDOM`). In a
# graph that writes to a tensor (`writes` tells) nothing may be merged: a value may change between
# two equal calls. And what the program returns (`returned` tells) stays an object of its own.
#
# *Hints.* Walk in order; keep a dictionary from `(node.target, exact(node.args), exact(node.kwargs))`
# to the first node. `1`, `1.0` and `True` are *equal* in Python, and the same key of a dictionary;
# `x * 1` and `x * 1.0` are different programs. `exact` makes a key that tells them apart.
# `call_function` only.

# %% tags=["support"]
RANDOM = (torch.rand_like, torch.randn_like, torch.nn.functional.dropout)
IN_PLACE = ("iadd", "isub", "imul", "itruediv", "setitem")      # operators that write

def exact(value):
    """A key: equal for two arguments only if they are the same node, or have one type and text."""
    if isinstance(value, fx.Node):
        return value
    if isinstance(value, (list, tuple)):
        return type(value), tuple(exact(part) for part in value)
    if isinstance(value, dict):
        return tuple((name, exact(value[name])) for name in sorted(value))
    return type(value), repr(value)

def writes(gm: fx.GraphModule) -> bool:
    """Does any node write to a tensor?  By name: `add_`, `relu_`, `iadd`, `setitem`, `out=`."""
    names = [getattr(node.target, "__name__", str(node.target)) for node in gm.graph.nodes
             if node.op in ("call_function", "call_method")]
    in_place = any(name.rstrip("_") != name and not name.endswith("__") for name in names)
    operators = set(IN_PLACE) & set(names)
    return in_place or bool(operators) or any("out" in node.kwargs for node in gm.graph.nodes)

def returned(node: fx.Node) -> bool:
    return any(user.op == "output" for user in node.users)

# %% [markdown]
# Now the pass:

# %% tags=["exercise"]
def merge_equal(gm: fx.GraphModule) -> fx.GraphModule:
    """Each pure call is computed once."""
    ### BEGIN SOLUTION
    if writes(gm):
        return gm
    first = {}
    for node in list(gm.graph.nodes):
        if node.op != "call_function" or node.target in RANDOM or returned(node):
            continue
        earlier = first.setdefault((node.target, exact(node.args), exact(node.kwargs)), node)
        if earlier is not node:
            node.replace_all_uses_with(earlier)
            gm.graph.erase_node(node)
    gm.recompile()
    return gm
    ### END SOLUTION

# %% tags=["check"]
check("02.2", merge_equal)

# %% [markdown]
# **02.3** (stretch) *A safe version.* Repair `remove_mul_by_one`: remove `x * one` only where nothing can
# tell the difference in the numbers: the result has the dtype and shape of `x`.
#
# *Hints.* Compare `node.meta["example_value"]` with that of `node.args[0]`, which may be a number:
# `isinstance(..., fx.Node)` tells.

# %% tags=["exercise"]
def remove_mul_by_one_safely(gm: fx.GraphModule) -> fx.GraphModule:
    """Like remove_mul_by_one, but never changes a dtype or a shape."""
    ### BEGIN SOLUTION
    for node in list(gm.graph.nodes):
        if node.op == "call_function" and node.target is operator.mul and isinstance(node.args[0], fx.Node) \
                and isinstance(node.args[1], (int, float)) and node.args[1] == 1:
            before, after = node.args[0].meta["example_value"], node.meta["example_value"]
            if (before.dtype, before.shape) == (after.dtype, after.shape):
                node.replace_all_uses_with(node.args[0])
                gm.graph.erase_node(node)
    gm.recompile()
    return gm
    ### END SOLUTION

# %% tags=["check"]
check("02.3", remove_mul_by_one_safely)

# %% [markdown]
# **02.4** (core) *Dead code.* Write `remove_dead(gm)`: remove every operation whose value nobody reads, and then those
# that only fed it. Two kinds must stay, read or not: operations that write to a tensor, and random
# ones, since each takes numbers from the generator. Return the graph module, recompiled.
#
# *Hints.* Walk backwards over a list of the nodes; `node.users` says who reads. `writes_itself` below
# tells of one node whether it writes: `add_`, but also `x += 1` and `x[0] = 1`. `RANDOM` is the list from
# above. Inputs and the output are no operations.
#
# <details><summary>Predict: why is one walk enough, and in which direction?</summary>
#
# Backwards. What an operation fed on is looked at after it, when it is gone already.
#
# </details>

# %% tags=["support"]
def writes_itself(node: fx.Node) -> bool:
    """Does it write?  `add_`, `relu_`, an operator such as `+=`, `x[0] = ...`, or `out=`."""
    name = getattr(node.target, "__name__", str(node.target))
    in_place = name.endswith("_") and not name.endswith("__")
    return in_place or name in IN_PLACE or "out" in node.kwargs

# %% tags=["exercise"]
def remove_dead(gm: fx.GraphModule) -> fx.GraphModule:
    """Without operations that nobody needs."""
    ### BEGIN SOLUTION
    for node in reversed(list(gm.graph.nodes)):
        if node.op in ("call_function", "call_method") and not node.users:
            if not writes_itself(node) and node.target not in RANDOM:
                gm.graph.erase_node(node)
    gm.recompile()
    return gm
    ### END SOLUTION

# %% tags=["check"]
check("02.4", remove_dead)

# %% [markdown]
# ## Your own compiler: the graph
#
# After this course you keep a compiler of your own. From here on each chapter adds one file to a
# package, `my_compiler`, that lies beside the notebooks. You write its heart; the rest of the file is
# there, to be read. In the end it captures a small GPT in one graph, differentiates it, fuses it,
# writes C++ and trains it (chapter 16).
#
# `begin` writes the file of this chapter, with `raise NotImplementedError("your turn")` where your
# part goes. Open it in an editor. Nothing waits for you: where a function of yours is missing the
# reference stands in, and this is said aloud. `check_piece` looks at your file as it is now.
#
# **The piece.** `Node` behaves like a tensor: `x * 2` writes a node into its graph. There are few
# operations; everything else is composed of them. Yours are the methods that count and move
# dimensions, the shapes of results, how a graph is run, two passes, and what is composed: softmax,
# layer norm, gelu, linear and cross entropy.
#
# <details><summary>Hint: start</summary>
#
# `broadcast` goes from the right: `shape[-1]`, `shape[-2]`, ... A size of 1 gives way to any other.
# What cannot be done is refused: `raise Refused("why")`. `_matmul` returns two things, the shape and
# the dtype; its docstring says which products are refused.
#
# </details>
# <details><summary>Hint: running</summary>
#
# `EAGER[node.op]` computes a node from the values of its arguments; what is no node is its own value. An
# input takes the next tensor. A dictionary says which value each node has.
#
# </details>
# <details><summary>Hint: passes</summary>
#
# For dead code walk *backwards* from the outputs. For equal operations keep a dictionary; its key
# must tell `1` from `1.0` and `True`, which are equal in Python. A node that is not kept may be an
# argument of a later one: look up what stands for it. Inputs and outputs are always kept. In both
# passes the node is changed in place: `graph.nodes = [...]`, `node.args = ...`.
#
# </details>
# <details><summary>Hint: reshape and transpose</summary>
#
# Both end in an operation that is there: `graph.add("reshape", self, sizes)`, and `self.permute(...)`.
# `product(sizes)` multiplies; what is left for a -1 is a quotient of two products. `self.dims` makes
# dimensions that are counted from the end positive: `d % self.ndim`, where `plain(d)` makes a number
# of a size.
#
# </details>
# <details><summary>Hint: softmax</summary>
#
# `exp` of 1000 is infinite in float32. Subtract the largest element of the row first; the quotient
# stays the same.
#
# </details>
# <details><summary>Hint: layer norm</summary>
#
# Subtract the mean of each row (`mean(-1, keepdim=True)`). Divide by the root of the mean square of
# what is left, plus `eps`.
#
# </details>
# <details><summary>Hint: cross entropy</summary>
#
# The logarithm of the softmax is `x - m - log(sum(exp(x - m)))`, where `m` is the row's largest element.
# Then `logits.graph.add("nll", ..., target)` takes the right class of each row, and the mean.
#
# </details>

# %%
from exercises.own_compiler import begin

begin("graph");

# %% [markdown]
# The line names what is yours. Write it in that file, then ask for a check, as often as you like:

# %% tags=["check", "piece"]
from exercises.own_checks import check_piece

check_piece("graph")

# %% [markdown]
# ## What else lives here
#
# Every public name of this chapter's core files, with one sentence each. Unfold a file, then a name:
# its first lines are there. The list is made from the sources when the page is built.

# %% tags=["volatile"]
from minidynamo.explain import also_here

also_here(
    "minidynamo/graph/output_graph.py",
    "minidynamo/graph/graph_module.py",
    "minidynamo/graph/graph_module.py",
    "minidynamo/backends.py",
    "miniinductor/passes/graph_passes.py",
)

# %% [markdown]
# ## What real PyTorch has
#
# * `torch/fx/graph.py`, `torch/fx/node.py`, `torch/fx/graph_module.py`: the format is the same one;
#   we use it, not a copy of it. Paper, section 2.
# * `torch/fx/interpreter.py`: the loop above, as a class to inherit from.
# * `torch/_inductor/fx_passes/`: hundreds of rewrites; `torch/_inductor/pattern_matcher.py` matches
#   patterns written as Python functions.
# * Inputs in real graphs can also be sizes (`SymInt`); notebook 14.
#
# **See it in the real `torch.compile`.** `TORCH_LOGS=graph_code python program.py` prints each captured graph as code, as it is handed to the
# backend.
#
# ## Recap
#
# * A graph is a program as data: nodes with inputs *and* users.
# * minidynamo's graphs hold functions and methods only; control flow was decided (guards), modules
#   were inlined, weights are `get_attr` nodes (in `torch.compile`: inputs).
# * A backend is a function from a graph to a callable; a pass is a function from a graph to a
#   graph, and must prove that nobody can tell.
#
# Next: how minidynamo gets to see the program at all.
