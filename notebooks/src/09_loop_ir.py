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
# # 09 · Decompositions and the define-by-run loop IR
#
# A backend has a graph of ATen operations. There are far too many of them: a kernel for each pair that one might want to fuse is out of the question.
# Two steps make the problem small: **decompose** complicated operations into simpler ones, and write each of the simple ones as *one element's computation*.
#
# **What you will learn:** decompositions; tensors as functions of an index; why an IR made of Python functions is so short; handlers; views as index maths;
# reductions; when a value is stored. At the end you add an operation to the compiler.
#
# **Files of this chapter:** `miniinductor/ir/ops.py`, `miniinductor/ir/loops.py`, `miniinductor/ir/recording.py`, `miniinductor/runtime/interpreter.py`,
# `miniinductor/lowering/`.

# %%
import sympy
import torch

import minidynamo
import miniinductor
from minidynamo.explain import Code, Table, excerpt
from miniinductor.ir.ops import ops, set_handler

torch.manual_seed(0)
torch.set_grad_enabled(False);

# %% [markdown]
# ## Decompositions
#
# `softmax` has a kernel of its own in eager mode. For a fusing compiler that kernel is a wall: nothing can be fused into it. Written with simpler operations, it is
# two reductions and some pointwise work:

# %%
from miniinductor.lowering import decompositions

excerpt(decompositions.softmax)

# %% [markdown]
# Two reductions and some arithmetic: nothing of softmax is special any more.

# %%
e = minidynamo.explain(lambda x: torch.softmax(x, -1))(torch.randn(4, 8))
e.aten

# %% [markdown]
# Some decompositions are ours, because their *form* decides what can be fused. The rest are PyTorch's own, which are a maintained library of formulas.

# %%
table = decompositions.table()
print(
    len([op for op in table if op in decompositions.OURS]),
    "decompositions are ours, the others are torch's",
)

# %% [markdown]
# What has no decomposition is lowered directly, or is a call of eager's kernel.
#
# ## The naive IR: one loop per operation
#
# Now each operation that is left must become loops. The obvious way is to write a loop for each and let each fill a buffer:

# %%
def relu_loop(x, out):
    for i in range(len(x)):
        out[i] = max(x[i], 0.0)

def double_loop(x, out):
    for i in range(len(x)):
        out[i] = x[i] * 2

x, a, b = [-1.0, 3.0], [0.0] * 2, [0.0] * 2
relu_loop(x, a)
double_loop(a, b)
print(b, "- with a buffer `a` in between that nobody asked for")

# %% [markdown]
# Fusing them means merging two loop nests: matching their variables, substituting, removing the buffer. Compilers have done that for decades, with a lot of code.
#
# ## The trick: a tensor is a function from an index to a value
#
# Do not write the loop. Write what happens *at index i*, as a Python function. Then composing two operations is calling a function:

# %%
def relu(load):
    return lambda i: ops.maximum(load(i), ops.constant(0, torch.float32))

def double(load):
    return lambda i: ops.mul(load(i), ops.constant(2, torch.float32))

load_x = lambda i: ops.load("x", i)
body = double(relu(load_x))             # fusion has happened: there is no buffer in between

# %% [markdown]
# A composed operation is a closure that holds its producer's function. This chain of closures is all there is of a "graph". (A cell is where a closure keeps a
# variable of the function around it: notebook 07.)

# %%
from minidynamo.explain.draw_code import Columns, draw_closure

draw_closure(body, title="double(relu(load_x)): functions, and the cells that they hold")

# %% [markdown]
# Three functions, and each holds the one before it.
#
# `ops` is a namespace that does nothing by itself. What `ops.mul` *does* depends on the handler that is installed while the body runs. Run it with a handler that prints:

# %%
from miniinductor.ir.handlers import PrintHandler

i = sympy.Symbol("i", integer=True, nonnegative=True)

def show(body, *index):
    printer = PrintHandler()
    with set_handler(printer):
        body(*index)
    return "\n".join(printer.lines)

print(show(body, i))

# %% [markdown]
# With a handler that works out dtypes, the same body gives a dtype:

# %%
from miniinductor.ir.handlers import DtypeHandler

with set_handler(DtypeHandler(lambda name: torch.float32)):
    print(body(i))

# %% [markdown]
# *The kitchen.* A recipe written as instructions that can be *followed*, *read aloud*, *priced* or *translated*, depending on who gets it. *Exactly:* the IR is
# **define-by-run**: a program of the IR is a Python function, and running it against different implementations of `ops` prints it, finds its memory
# accesses, infers its types, executes it with torch, or writes C++ or Triton. No tree of nodes, no visitor.
#
# The same body before three handlers. The one in the middle is written on the spot: it answers with C++ expressions, and is a small code generator (notebook 11 makes a real one of it):

# %%
from miniinductor.ir.ops import OpsHandler

class CppWords(OpsHandler):
    """The value of each op is a C++ expression; `lines` keeps one line per op."""

    def __init__(self):
        self.lines = []

    def line(self, expression):
        self.lines.append(f"float t{len(self.lines)} = {expression};")
        return f"t{len(self.lines) - 1}"

    def load(self, name, index): return self.line(f"{name}[{index}]")
    def constant(self, value, dtype): return self.line(f"{float(value)}f")
    def maximum(self, a, b): return self.line(f"std::max({a}, {b})")
    def mul(self, a, b): return self.line(f"{a} * {b}")

class DtypeLines(DtypeHandler):
    """The dtypes again, with a line per op."""
    lines = ()

for name in ("load", "constant", "maximum", "mul"):
    def noted(self, *args, name=name):
        dtype = getattr(DtypeHandler, name)(self, *args)
        self.lines = (*self.lines, f"{name} -> {dtype}".replace("torch.", ""))
        return dtype
    setattr(DtypeLines, name, noted)

columns = []
for heading, handler in (("PrintHandler: text", PrintHandler()), ("CppWords: C++", CppWords()),
                         ("DtypeHandler: dtypes", DtypeLines(lambda name: torch.float32))):
    with set_handler(handler):
        body(i)
    columns.append((heading, list(handler.lines)))
Columns("one body, three handlers", columns, [(c, k, k, k, k) for c in (0, 1) for k in range(len(columns[0][1]))])

# %% [markdown]
# The vocabulary is closed. `OpsHandler` names every operation, and a test checks that each handler has each of them:

# %%
from miniinductor.ir.ops import BINARY, COMPARISON, OP_NAMES, REDUCTIONS, UNARY

print(len(OP_NAMES), "operations, among them:", ", ".join(n for n in OP_NAMES if n not in UNARY + BINARY + COMPARISON))
print("reductions:", ", ".join(REDUCTIONS))

# %% [markdown]
# A reduction is a body with a way to combine two values. `scan` is its sister, which keeps every value
# on the way (`cumsum`). `masked` computes only where a condition holds.
#
# ## Views cost nothing
#
# A transpose is a function that swaps the indices *before* loading. So are slices, expands, flips, reshapes:

# %%
load_matrix = lambda r, c: ops.load("x", 8 * r + c)                 # a 4 x 8 matrix, row after row

transposed = lambda r, c: load_matrix(c, r)
every_other = lambda r, c: transposed(2 * r, c)

r, c = sympy.symbols("r c", integer=True, nonnegative=True)
print(show(every_other, r, c))

# %% [markdown]
# Three views, no copy: they have become arithmetic on one index, which sympy simplifies.
#
# ## Lowering: ATen operation to IR
#
# A lowering takes boxes (`TensorBox`) that hold such functions and returns a new box. Most are one word of a table. *Promotion* says which dtype the result has: `INT_TO_FLOAT`, for one, makes floats of integers
# first, as `torch.exp` does:

# %%
from miniinductor.lowering import pointwise

Table(["ATen op, and op of the IR", "promotion"],
      [(name, str(p).split(".")[-1]) for name, p in list(pointwise.UNARY.items())[:8]])

# %% [markdown]
# A row is a lowering: a name of torch, which is an operation of the loop IR, too. All of them go
# through one function. Its second half does the work:

# %%
import inspect

from miniinductor.lowering import registry

whole = inspect.getsource(registry.pointwise)
Code(whole[whole.index("    compute = "):], "python", "pointwise, its second half, miniinductor/lowering/registry.py")

# %% [markdown]
# `body` is the function of an index. It asks each operand for its element there (`load(index)`), hands
# the elements to `function`, and converts what comes back. No loop is written here. `made` puts the
# body into a box.
#
# The result for softmax. Each buffer has a body; `r0` is the variable that is reduced over. The subtraction has one reader, `exp`, and is inlined into its body. `exp(x - max)` itself has two
# readers, the sum and the division, and it is dear: it was stored, as `buf1`. (Whether `buf1` ever reaches memory is decided later: notebook 10.)

# %%
e.loop_ir

# %% [markdown]
# Each buffer is a loop over its indices. A reduction has one more index, which it walks and drops.
#
# ## When is a value stored?
#
# Inlining everything would compute shared values again and again. A value is **realized** (given a buffer) when storing is cheaper. The rule is one function. `cost` counts the reads and the
# operations of one element; an `exp` counts as many cheap ones. Two readers alone do not store a value: it must also read more than `many_reads` elements, or take more than `MANY_OPS` operations.
# A value of more than `HUGE` operations is stored for a single reader, so that no kernel grows without end:

# %%
from miniinductor.lowering import graph as lowering_graph

excerpt(lowering_graph.should_realize)

# %% [markdown]
# The question is what is cheaper: to compute again, or to write and read.

# %%
def read_twice(cheap):
    def program(x):
        value = x - 1 if cheap else torch.exp(x - 1)
        return value * 2, value.sum()
    with miniinductor.config.patch(fusion=False):
        return len(minidynamo.explain(program)(torch.randn(100)).main.compiled.kernels)

print("kernels, if nothing is fused and a cheap value has two readers:", read_twice(cheap=True))
print("kernels, if nothing is fused and exp(x - 1) has two readers:   ", read_twice(cheap=False))
assert read_twice(cheap=True) < read_twice(cheap=False)
print("MANY_READS", lowering_graph.MANY_READS, " MANY_OPS", lowering_graph.MANY_OPS, " HUGE", lowering_graph.HUGE)

# %% [markdown]
# The cheap value was computed in each of its readers. `exp` was stored, by a kernel of its own.
#
# Reductions are always realized: their value is needed as a whole before anybody can use it. Compare with inlining switched off:

# %%
def chain(x):
    return (torch.sin(x) + 1) * torch.cos(x) - x

for inlining in (True, False):
    with miniinductor.config.patch(inlining=inlining, fusion=False):
        e = minidynamo.explain(chain)(torch.randn(100))
        print(f"inlining={inlining}: {len(e.main.compiled.kernels)} kernel(s)")

# %% [markdown]
# With inlining off each operation is a loop of its own.
#
# ## The IR has a meaning that one can run
#
# One of the handlers executes the IR with torch tensors, slowly and plainly. It is the *definition* of the IR; every code generator is tested against it. A value is a tensor over all
# iterations at once, and an op is the torch operation of its name:

# %%
from miniinductor.runtime.interpreter import InterpreterHandler, run_graph

excerpt(InterpreterHandler.load)

# %% [markdown]
# `memory` holds every buffer as one long row of numbers. `evaluate` works the index out for all
# iterations at once, and `flat[where]` picks the numbers. The rest is care: masks, empty buffers, and
# an error where an index is out of bounds.

# %%
from miniinductor.lowering import lower_graph
from miniinductor.records import CompileRecord

values = torch.tensor([[-1.0, 3.0, -2.0]])
softmax_graph = minidynamo.explain(lambda x: torch.softmax(x, -1))(
    values
).main.compiled.functional_graph
lowered = lower_graph(softmax_graph, CompileRecord(), ())
print(lowered)                                          # the loop IR: a list of buffers with bodies
print("run by the interpreter:", run_graph(lowered, [values])[0])
print("eager:                 ", torch.softmax(values, -1))

# %% [markdown]
# The numbers are eager's. So the text above is a *program*, and we know what it means.
#
# ## A real model
#
# What becomes of GPT-2's operations?

# %%
from benchmarks.models import gpt2

model, inputs = gpt2(layers=2)
e = minidynamo.explain(model)(**inputs)
compiled = e.main.compiled
nodes = [n for n in compiled.functional_graph.graph.nodes if n.op == "call_function"]
loops = compiled.loop_ir.count(" = pointwise") + compiled.loop_ir.count(" = reduction")
print(f"{len(nodes)} ATen operations -> {loops} loop nests and "
      f"{len(compiled.fallbacks)} calls of library kernels")
print("\n".join(compiled.loop_ir.splitlines()[:24]))

# %% [markdown]
# `indirect_indexing` is an index that is read from a tensor: the row of the embedding. `no wrap` says
# that negative numbers do not count from the end here. Both loops compute the sum of the two
# embeddings again, as it is cheap.
#
# ## Exercises
#
# **09.1** (warm-up) *A decomposition.* The operation `course::hat` below is new to PyTorch and to the compiler: `hat(x) = max(0, 1 - |x|)`. Write its decomposition into torch
# operations. The check registers it and looks that no eager fallback is left.
#
# *Hints.* Any torch functions may be used; they are traced to ATen.

# %% tags=["support"]
@torch.library.custom_op("course::hat", mutates_args=())
def hat(x: torch.Tensor) -> torch.Tensor:
    return torch.relu(1 - x.abs())

@hat.register_fake
def _(x):
    return torch.empty_like(x)

# %% tags=["exercise"]
def hat_decomposition(x: torch.Tensor) -> torch.Tensor:
    """max(0, 1 - |x|) from simple torch operations."""
    ### BEGIN SOLUTION
    return torch.clamp_min(1 - torch.abs(x), 0)
    ### END SOLUTION

# %% tags=["check"]
from exercises import check

check("09.1", hat_decomposition)

# %% [markdown]
# **09.2** (core) *A lowering.* Now write the same operation directly in the loop IR, as a lowering. The check registers it, compiles `hat(x) * 2 + 1` and expects *one* kernel.
#
# *Hints.* `registry.pointwise(call, function, x)`, where `function` maps one value to one value with `ops`. A constant needs a dtype:
# `ops.constant(1, x.dtype)`. There are `ops.sub`, `ops.abs`, `ops.maximum`.

# %% tags=["exercise"]
def lower_hat(call, x):
    """The lowering of course::hat: a TensorBox."""
    ### BEGIN SOLUTION
    one, zero = (lambda: ops.constant(1, x.dtype)), (lambda: ops.constant(0, x.dtype))
    return registry.pointwise(call, lambda v: ops.maximum(ops.sub(one(), ops.abs(v)), zero()), x)
    ### END SOLUTION

# %% tags=["check"]
check("09.2", lower_hat)

# %% [markdown]
# **09.3** (stretch) *A handler.* Write a handler that counts: how many loads and how many arithmetic operations one element of a body costs.
#
# *Hints.* Subclass `CountingBase` below: it has every op, and each one calls `self.count(name)` and returns a dummy. Override `count`. Loads are the op `"load"`;
# `"constant"` costs nothing.

# %% tags=["support"]
from miniinductor.ir.ops import OP_NAMES, OpsHandler

class CountingBase(OpsHandler):
    """Each op reports its name to `count`."""
    loads = arithmetic = 0

    def count(self, name):
        pass

for _name in OP_NAMES:
    setattr(CountingBase, _name, lambda self, *args, name=_name, **kwargs: self.count(name))

# %% tags=["exercise"]
class Counter(CountingBase):
    """After a body ran: `loads` and `arithmetic` (everything that is neither a load nor a constant)."""
    ### BEGIN SOLUTION instead of pass
    def count(self, name):
        if name == "load":
            self.loads += 1
        elif name != "constant":
            self.arithmetic += 1
    ### END SOLUTION

# %% tags=["check"]
check("09.3", Counter)

# %% [markdown]
# **09.4** (core) *Views are functions of indices.* A loader maps an index, a tuple of ints, to a number. A view is
# another loader: it changes the index and asks the first. Write `view(load, kind, *how)` for three
# kinds. `"permute", order`: dimension `d` of the view is dimension `order[d]` of what is below.
# `"slice", dim, start, step`: as `x[start::step]` in one dimension. `"expand", dim`: that dimension
# has size 1 below, and any size above.
#
# *Hints.* Return a function of the new index. Which index does it ask for? For permute write down where
# place `d` of the new index goes.
#
# <details><summary>Predict: how many bytes does a view of a view of a view move?</summary>
#
# None. Functions are composed; one load at the end asks for one number.
#
# </details>

# %% tags=["exercise"]
def view(load, kind: str, *how):
    """A loader of the view."""
    ### BEGIN SOLUTION
    def loaded(index):
        below = list(index)
        if kind == "permute":
            for place, dim in zip(index, how[0]):
                below[dim] = place
        elif kind == "slice":
            dim, start, step = how
            below[dim] = start + step * index[dim]
        else:
            below[how[0]] = 0
        return load(tuple(below))
    return loaded
    ### END SOLUTION

# %% tags=["check"]
check("09.4", view)

# %% [markdown]
# ## Your own compiler: loops
#
# **The piece.** `lower` turns the graph into loops and calls of torch's kernels. A value that is no
# loop of its own is a function from an index to an expression. You write what becomes of each node,
# what an expression reads and costs, how an argument's element is found, three of those functions,
# the two ways in which a loop comes to be, and what torch is called with.
#
# <details><summary>Hint: nodes</summary>
#
# `VIEWS`, `POINTWISE` and `REDUCTIONS` say what kind of operation a node has. `users` counts its
# readers. The second argument of a reduction is a tuple of dimensions.
#
# </details>
# <details><summary>Hint: expressions</summary>
#
# `loads` goes through `Apply` recursively. `element` is asked for numbers, too: they are their own
# element. An argument of fewer dimensions has only the *last* places of the index.
#
# </details>
# <details><summary>Hint: views</summary>
#
# `permute` moves the index, not the numbers: dimension `order[k]` of the source is dimension `k` of
# the result. `reshape` is free where only sizes of 1 come and go: the other dimensions, in their order,
# have the same sizes (compare them as texts). Then each finds its place in the new index, and the rest
# is `"0"`.
#
# </details>
# <details><summary>Hint: loops</summary>
#
# The index of a stored value is `(i0, i1, ..., c)`: `rows_and_column`, and `at` puts `"0"` in the
# dimensions of size 1. `self.add(node, Loop, rows, columns, reduction, value)` writes the step. Its last
# dimension is the columns, the others are the rows. A value without dimensions is one column.
# A reduction loops over the shape of its *argument*.
#
# </details>

# %%
from exercises.own_compiler import begin

begin("loops");

# %% [markdown]
# The line names what is yours. Write it in that file, then ask for a check, as often as you like:

# %% tags=["check", "piece"]
from exercises.own_checks import check_piece

check_piece("loops")

# %% [markdown]
# ## What else lives here
#
# Every public name of this chapter's core files, with one sentence each. Unfold a file, then a name:
# its first lines are there. The list is made from the sources when the page is built.

# %% tags=["volatile"]
from minidynamo.explain import also_here

also_here(
    "miniinductor/ir/ops.py",
    "miniinductor/ir/loops.py",
    "miniinductor/ir/recording.py",
    "miniinductor/lowering/decompositions.py",
    "miniinductor/lowering/",
)

# %% [markdown]
# ## What real PyTorch has
#
# * `torch/_inductor/ir.py`, `torch/_inductor/lowering.py`, `torch/_inductor/virtualized.py`: the same design, with layouts decided late, templates and many more rules. Paper, section 4.
# * `torch/_decomp/`: the decompositions we share.
# * tinygrad's `ops_python.py` gave the idea of an interpreter as the definition.
#
# **See it in the real `torch.compile`.** `TORCH_LOGS=ir_pre_fusion python program.py` prints the loop IR, before anything is fused.
#
# ## Recap
#
# * Decompositions make operations fewer and their insides visible.
# * A tensor is a function from an index to a value; composing is fusing; views are index maths.
# * The meaning of `ops` is chosen by the handler; the set of ops is closed.
# * A value is stored when that is cheaper than computing it again.
#
# Next: which of the stored ones share a kernel.
