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
# A captured program needs a form that other programs can read and change. In PyTorch this form is
# the **FX graph**. minidynamo produces FX graphs, and every backend receives them.
#
# **What you will learn:** the six kinds of nodes; how a graph becomes Python code; how to
# interpret, rewrite and draw a graph; what a *backend* is. At the end you write *passes*, functions
# that rewrite a graph.
#
# **Files of this chapter:** `minidynamo/graph/output_graph.py`, `minidynamo/graph/graph_module.py`,
# `minidynamo/backends.py`, `miniinductor/passes/graph_passes.py`.

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
# In chapter 01 the tape was a list of `(operation, arguments, result slot)`. That is enough to
# replay a program, but not to *change* it. Which operations use `v3`? May `v3` be deleted? If you
# insert an operation, which slots must be renumbered? On a tape, each answer needs a search:

# %%
tape = [("relu", ["v0"], "v1"), ("add", ["v1", "v1"], "v2"), ("mul", ["v0", "v0"], "v3")]
uses = {name: [row for row in tape if name in row[1]] for name in ("v1", "v2", "v3")}
print("v3 is used by", uses["v3"], "- so it can go; but each question is a search through the whole tape")

# %% [markdown]
# A graph keeps the answer with each node. A node knows its inputs (`node.args`) and its users
# (`node.users`), and FX keeps the two consistent.
# <!-- shows: has("used by []") -->
#
# *The kitchen.* A tape lists what the cook did, in that order. A graph is the recipe card that says
# which bowl goes into which pot. Two steps may swap if neither feeds the other. *Exactly:* nodes
# are operations, and edges are values. The graph keeps its nodes in a topological order: every node
# comes after its inputs.
#
# ## Six kinds of nodes
#
# FX has only six kinds of nodes. The attribute `op` names the kind, and `target` says what is
# called or read:
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
# You can build a graph by hand. This one doubles its input and clamps the result:

# %%
graph = fx.Graph()
x = graph.placeholder("x")
doubled = graph.call_function(operator.mul, (x, 2))
clipped = graph.call_method("clamp", (doubled,), {"min": 0.0})
graph.output(clipped)
print(graph)
print("inputs of clamp:", clipped.args, clipped.kwargs, "   users of mul:", list(doubled.users))

# %% [markdown]
# FX prints a node as `%mul`, and `num_users` counts its users. A `GraphModule` is a graph together
# with Python code that FX generates from it. In this code, a statement such as `x = None` drops a
# value that no later line reads:

# %%
module = fx.GraphModule(torch.nn.Module(), graph)
print(module.code)
module(torch.tensor([-1.0, 3.0]))

# %% [markdown]
# The graph module runs like any other module: it doubled both numbers, and raised -2 to 0.
# <!-- shows: has("tensor([0., 6.])") -->
#
# ## What minidynamo writes down
#
# A *backend* is any function that takes a `GraphModule` and example inputs and returns something
# callable. The simplest backend compiles nothing: it keeps the graph for us to read, and returns
# the generated `forward`. (If a backend raises an error, the compiled call raises
# `minidynamo.BackendError`, whose `__cause__` is that error.)

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
# The generated code reads like the `forward` above. (`torch._C._nn.linear` is the function behind
# `torch.nn.functional.linear`, and a captured graph always returns a tuple.) Three things differ:
# <!-- shows: has("def forward(self, x)") -->
#
# * The `if` is gone. minidynamo decided it while capturing, and a guard remembers the decision.
# * Calls of modules (`call_module`) are gone. minidynamo *inlined* them: the graph has the
#   functions that the modules call. A backend could not look into a call of `self.up`, and so could
#   not fuse what it computes.
# * The weights are `get_attr` nodes, which read the module's own parameters. (In graphs of
#   `torch.compile` each weight is a `placeholder`, which the caller passes in each call.)
#
# ## Metadata
#
# Each node carries a dictionary, `node.meta`. minidynamo stores the value's *fake tensor* there,
# which has a shape, a dtype and strides but no data. It also stores the user's line and the path of
# the module. The next table has the shape and the module of each node:

# %%
rows = []
for node in seen[0].graph.nodes:
    value = node.meta.get("example_value", node.meta.get("val"))
    shape = tuple(value.shape) if hasattr(value, "shape") else ""
    rows.append((node.op, node.name, shape, node.meta.get("module_path", "")))
Table(["op", "name", "shape", "module"], rows)

# %% [markdown]
# `draw_graph` makes a picture from the same data. The shape of a box tells inputs, operations and
# the output apart, and an arrow is a value:
# <!-- general -->

# %%
draw_graph(seen[0], "Block")

# %% [markdown]
# Two operations that no path of arrows connects can run in any order.
# <!-- general -->
#
# ## Reading a graph: an interpreter
#
# An interpreter is a loop over the nodes. Its environment maps each node that was computed to its
# value. The interpreter is short, and every analysis of a graph is a variation of it:

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
# The result is the same as the graph module's. (The interpreter lacks `get_attr`; a graph with
# weights needs one more branch.)
# <!-- shows: has("tensor([0., 6.])") -->
#
# A similar loop adds up the memory traffic of eager mode, in bytes. Every operation reads its
# inputs and writes its result:

# %%
def eager_bytes(gm):
    def size(node):
        value = node.meta.get("example_value")
        return value.numel() * value.element_size() if isinstance(value, torch.Tensor) else 0
    return sum(size(node) + sum(size(source) for source in node.all_input_nodes)
               for node in gm.graph.nodes if node.op.startswith("call"))

print("Block moves", eager_bytes(seen[0]), "bytes in eager mode")

# %% [markdown]
# A value between two operations counts at least twice: it is written once, and read by each user.
# Fusion can save this traffic.
# <!-- shows: n("Block moves") > 0 -->
#
# ## Changing a graph: a pass
#
# A *pass* walks over the graph and rewrites it. The pass below removes multiplications by one. Its
# important call is `replace_all_uses_with`: every user of the product `x * 1` then reads `x`
# instead. Now the product has no users, and `erase_node` may remove it:

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
# Both products are gone. But this naive pass is wrong, in two ways. First, if `x` holds integers
# and the factor is `1.0`, the product has a different dtype from `x`. Second, the product is a new
# *object*: a caller that writes into it must not change `x`. The next cell shows the first mistake:
# <!-- shows: not has("mul") and has("relu") -->

# %%
def promotes(x):
    return x * 1.0

wrong = minidynamo.compile(promotes, backend=lambda gm, _: remove_mul_by_one(gm).forward)(
    torch.tensor([1, 2])
)
print("eager:", promotes(torch.tensor([1, 2])).dtype, "  after the naive pass:", wrong.dtype)
minidynamo.reset()

# %% [markdown]
# Eager returns floating-point numbers, and the rewritten graph returns integers. The result is
# wrong, and no error says so.
#
# How does miniinductor avoid both mistakes? Its pass `remove_no_ops` removes copies, casts and
# reshapes that change nothing. In the excerpt, `node` is such an operation and `source` its input.
# `meta["val"]` is the fake tensor of a node. Four more names occur:
#
# * `NO_OPS` is the set of operations that the pass may remove.
# * `alike(a, b)` says whether two values have the same dtype, shape and strides.
# * `offset` is the place in memory at which a tensor begins. `counts_offsets` is true if the graph
#   contains an operation that depends on this place.
# * `stand_in(node, source)` lets the users of `node` read `source`, and removes `node`. It refuses
#   if a caller could write into a value that is now shared.

# %%
from miniinductor.passes.graph_passes import remove_no_ops
from parts import part

part(remove_no_ops, ("for node in list", "continue"), ("copy, given", "removed += stand_in"))

# %% [markdown]
# The naive pass looked only at the operation and its factor. The real pass also compares the fake
# tensors of both values, and keeps every node that the graph returns. (`CLEANING` in the same file
# lists all passes in their order.)
# <!-- shows: has("alike(copy, given)") -->
#
# ## A real model
#
# BERT with 12 layers becomes one graph. Which operations does the graph have? The next table counts
# the twelve most frequent ones:

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
# A few kinds of operations make up nearly all of the model. The next picture has one box per
# module, with the number of its operations:
# <!-- shows: n("linear  ") + n("transpose  ") + n("view  ") > 0.5 * n("BERT:") -->

# %%
draw_graph(seen[0], "BERT", by_module=True, depth=2)

# %% [markdown]
# The layers of the encoder contain nearly all operations.
# <!-- shows: n("encoder.layer:") > 0.9 * 265 -->
#
# ## Exercises
#
# **02.1** (warm-up) *The largest value.* Write `largest_value(gm)`. It returns the name of the node
# whose value has the most elements. Inputs and outputs do not count.
#
# *Hints.* Look only at nodes whose `op` starts with `"call"`. The value is
# `node.meta["example_value"]`.

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
# **02.2** (core) *Common subexpressions.* Two nodes may call the same function with the same
# arguments. Write the pass `merge_equal(gm)`, which replaces the second such node by the first.
# Call `gm.recompile()` at the end and return `gm`. The pass must not merge nodes in three cases:
#
# * if they are random operations (`RANDOM`), since each draws its own numbers;
# * if the graph writes to a tensor (`writes(gm)` says so), since a value may change between two
#   equal calls;
# * if the program returns them (`returned(node)` says so), since each must be an object of its own.
#
# *Hints.* Walk over the nodes in order, and look at `call_function` only. Keep a dictionary from
# `(node.target, exact(node.args), exact(node.kwargs))` to the first node with this key. Why
# `exact`? In Python `1`, `1.0` and `True` are *equal*, so a dictionary takes them for the same key.
# But `x * 1` and `x * 1.0` are different programs. `exact` tells them apart.

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
# **02.3** (stretch) *A safe version.* Repair `remove_mul_by_one`. It should remove a product with
# one only if the product has the dtype and the shape of `x`.
#
# *Hints.* Compare the `meta["example_value"]` of the product with that of its first argument,
# `node.args[0]`. The first argument may also be a number: check it with `isinstance(..., fx.Node)`.

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
# **02.4** (core) *Dead code.* Write `remove_dead(gm)`. It removes every operation whose value
# nobody reads, and then the operations that only fed it. Two kinds of operations must stay in any
# case: those that write to a tensor, and random ones, since each advances the random generator.
# Call `gm.recompile()` at the end and return `gm`.
#
# *Hints.* Copy the nodes into a list first, since the pass erases some of them. `node.users` holds
# the readers. `writes_itself(node)`, defined below, says whether a node writes, as `add_`, `x += 1`
# and `x[0] = 1` do. `RANDOM` is the tuple from above. Inputs and the output must stay as well.
#
# <details><summary>Predict: one walk over the nodes is enough. In which direction?</summary>
#
# Backwards. The walk then reaches the inputs of an operation after the operation itself has been
# removed.
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
# At the end of this course you will have written a compiler of your own. From this chapter on, most
# chapters add one file to a package, `my_compiler`, beside the notebooks. You write the most
# important functions of each file; the others are given. The finished compiler captures a small GPT
# in one graph, differentiates it, fuses it, writes C++ and trains it (chapter 16).
#
# Your compiler comes in two sizes. *Everyone* writes what the GPT needs. *The curious* add more:
# graph breaks, writes to lists and objects, kernels in Triton, and sizes that are symbols. The
# table counts the lines of the reference solution:

# %%
from exercises.own_compiler import begin, two_sizes

print(two_sizes())

# %% [markdown]
# The curious add about a fifth of what everyone writes. Two pieces, `effects` and `gpu`, are for
# the curious only.
# <!-- shows: n("in all", 0) <= 600 and 0.18 < n("in all", 1) / n("in all", 0) < 0.23 -->
#
# `begin` writes the file of this chapter. Each function that you write contains only `raise
# NotImplementedError("your turn")`. (In a function for the curious the text is `"your turn, if you
# are curious"`.) Open the file in an editor and write the functions. You may also go on without
# writing anything: the reference solution then takes the place of each missing function, and a
# message says so. `check_piece` checks your file as it is now, and prints one row per test. A piece
# passes when the rows for everyone pass.
#
# **The piece.** The file has a small graph of its own, which does not use FX. Its `Node` behaves
# like a tensor: `x * 2` adds a node to the graph of `x`. The graph knows a few operations, and
# everything else is composed of them. You write four parts:
#
# * the methods `mean`, `reshape`, `transpose` and `dims` of a `Node`;
# * the shapes of results, in `broadcast` and `_matmul`;
# * the interpreter `Graph.run`, and two passes that remove dead and repeated nodes;
# * softmax, layer norm, gelu, linear and cross entropy, composed of the given operations.
#
# <details><summary>Hint: start</summary>
#
# `broadcast` compares sizes from the right: `shape[-1]`, `shape[-2]`, ... If one of the two sizes
# is 1, the result has the other size. Refuse what is impossible with `raise Refused("why")`.
# `_matmul` returns the shape and the dtype; its docstring says which products to refuse.
#
# </details>
# <details><summary>Hint: running</summary>
#
# `EAGER[node.op]` computes a node from the values of its arguments. An argument that is not a node
# is its own value. Each input node takes the next of the given tensors. Keep the value of each node
# in a dictionary.
#
# </details>
# <details><summary>Hint: passes</summary>
#
# For dead code, walk *backwards* from the outputs. For equal operations, keep a dictionary whose
# key tells `1` from `1.0` and `True`, which are equal in Python. A node that you drop may be an
# argument of a later node: replace it there by the node that you kept. Always keep inputs and
# outputs. Both passes change the graph in place: `graph.nodes = [...]`, `node.args = ...`.
#
# </details>
# <details><summary>Hint: reshape and transpose</summary>
#
# Both end in a given operation: `graph.add("reshape", self, sizes)` and `self.permute(...)`.
# `product(sizes)` multiplies sizes; the size that -1 stands for is a quotient of two products.
# `self.dims` turns negative dimensions, which count from the end, into positive ones: `d %
# self.ndim`. A dimension may be a symbol of chapter 14; `plain(d)` returns its number.
#
# </details>
# <details><summary>Hint: softmax</summary>
#
# `exp` of 1000 is infinite in float32. Subtract the largest element of the row first. Softmax
# divides by a sum of the same exponentials, so its result stays the same.
#
# </details>
# <details><summary>Hint: layer norm</summary>
#
# Subtract the mean of each row (`mean(-1, keepdim=True)`). The variance is the mean of the squared
# differences. Divide by the square root of `variance + eps`.
#
# </details>
# <details><summary>Hint: cross entropy</summary>
#
# The logarithm of the softmax is `x - m - log(sum(exp(x - m)))`, where `m` is the row's largest
# element. Then `logits.graph.add("nll", ..., target)` picks the target class of each row and
# computes the mean.
#
# </details>

# %%
begin("graph");

# %% [markdown]
# The output names your functions. Write them in that file, and run the check as often as you like:

# %% tags=["check", "piece"]
from exercises.own_checks import check_piece

check_piece("graph")

# %% [markdown]
# ## What else lives here
#
# The list below has every public name of this chapter's core files, with one sentence each. Unfold
# a file, then a name, to see its first lines. The list is made from the sources when the page is
# built.

# %% tags=["volatile"]
from minidynamo.explain import also_here

also_here(
    "minidynamo/graph/output_graph.py",
    "minidynamo/graph/graph_module.py",
    "minidynamo/backends.py",
    "miniinductor/passes/graph_passes.py",
)

# %% [markdown]
# ## What real PyTorch has
#
# * `torch/fx/graph.py`, `torch/fx/node.py`, `torch/fx/graph_module.py` define the format.
#   minidynamo imports these files. Section 2 of the paper describes FX.
# * `torch/fx/interpreter.py` has the interpreter, as a class to inherit from.
# * `torch/_inductor/fx_passes/` has hundreds of rewrites. `torch/_inductor/pattern_matcher.py`
#   finds patterns that are written as Python functions.
# * Inputs of a graph can also be sizes (`SymInt`): chapter 14.
#
# **See it in the real `torch.compile`.** `TORCH_LOGS=graph_code python program.py` prints each
# captured graph as code before the backend receives it.
#
# ## Recap
#
# * A graph is a program as data: nodes with inputs *and* users.
# * minidynamo's graphs contain functions and methods only. minidynamo decided control flow and
#   inlined modules while capturing. Weights are `get_attr` nodes (in `torch.compile`: inputs).
# * A backend turns a graph into a callable. A pass turns a graph into another graph, and must check
#   that both compute the same result.
#
# Next: how minidynamo gets to see the program in the first place.
