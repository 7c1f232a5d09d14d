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
# A backend receives a graph of ATen operations. Nobody can write a kernel for each pair of operations that might be fused: there are too many.
# Two steps make the problem small. The backend **decomposes** complicated operations into simpler ones. Then it writes each simple operation as *the computation of one element*.
#
# **What you will learn:** decompositions; tensors as functions of an index; why an IR made of Python functions is so short; handlers; views as arithmetic on indices;
# reductions; when a value is stored. At the end you add an operation to the compiler.
#
# **Files of this chapter:** `miniinductor/ir/ops.py`, `miniinductor/ir/loops.py`, `miniinductor/ir/handlers.py`, `miniinductor/runtime/interpreter.py`,
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
# Eager mode has one kernel for `softmax`. A fusing compiler cannot look into that kernel, so it can fuse nothing into it. The decomposition writes `softmax`
# with simpler operations, two reductions and some arithmetic. (`upcast` converts float16 to float32, and `same` asks whether two sizes are equal.)

# %%
from miniinductor.lowering import decompositions

excerpt(decompositions.softmax)

# %% [markdown]
# After decomposition the graph has only simple operations. (`x = None` frees a value after its last
# reader. The second list of the result is for inputs that the program writes to; here it is empty.)
# <!-- shows: has("torch.exp(wide") -->

# %%
e = minidynamo.explain(lambda x: torch.softmax(x, -1))(torch.randn(4, 8))
e.aten

# %% [markdown]
# miniinductor has decompositions of its own where their *form* decides what can be fused. The others are PyTorch's, a maintained library of formulas:

# %%
table = decompositions.table()
print(
    len([op for op in table if op in decompositions.OURS]),
    "decompositions are ours, the others are torch's",
)

# %% [markdown]
# An operation without a decomposition is lowered directly, or it calls eager's kernel.
# <!-- shows: has("decompositions are ours") -->
#
# ## The naive IR: one loop per operation
#
# Each operation that is left must become loops. The naive way is to write one loop for each, which fills a buffer:

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
# The result is right, but nobody asked for the buffer `a`. Fusing the two functions means merging two loop nests: match their variables, substitute the value,
# remove the buffer. Compilers have done that for decades, with a lot of code.
# <!-- shows: has("[0.0, 6.0]") -->
#
# ## The trick: a tensor is a function from an index to a value
#
# Do not write the loop. Write the computation *at index i*, as a Python function. Then composing two operations means calling a function:

# %%
def relu(load):
    return lambda i: ops.maximum(load(i), ops.constant(0, torch.float32))

def double(load):
    return lambda i: ops.mul(load(i), ops.constant(2, torch.float32))

load_x = lambda i: ops.load("x", i)
body = double(relu(load_x))             # fusion has happened: there is no buffer in between

# %% [markdown]
# `body` is fused already: it has no buffer between the two operations. A composed operation is a closure that holds its producer's function. These closures are
# the whole "graph". (A cell is the place where a closure keeps a
# variable of the function around it: notebook 07.)

# %%
from minidynamo.explain.draw_code import Columns, draw_closure

draw_closure(body, title="double(relu(load_x)): functions, and the cells that they hold")

# %% [markdown]
# The picture has three functions. Each holds the function that computes its input.
# <!-- shows: count(": cell load") == 2 and count("function2:") == 1 -->
#
# `ops` is a namespace without an implementation. The meaning of `ops.mul` depends on the handler that is installed while the body runs. Here is a handler that prints each operation:

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
# The next handler computes dtypes. With it, the same body returns a dtype:
# <!-- shows: count("tmp") >= 5 -->

# %%
from miniinductor.ir.handlers import DtypeHandler

with set_handler(DtypeHandler(lambda name: torch.float32)):
    print(body(i))

# %% [markdown]
# *The kitchen.* A recipe can be *followed*, *read aloud*, *priced* or *translated*, depending on who gets it. *Exactly:* the IR is
# **define-by-run**. A program of the IR is a Python function. Run it with different implementations of `ops`, and it prints itself, reports its memory
# accesses, infers its types, runs with torch, or becomes C++ or Triton. The IR needs no tree of nodes and no visitor.
#
# The next picture shows the same body with three handlers, line by line. The handler in the middle is defined in the cell. Its values are C++ expressions, so it is a small code generator (notebook 11 makes a real one of it):

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
# The set of operations is closed. `OpsHandler` names every operation, and a test checks that each handler has each of them:
# <!-- shows: has("PrintHandler") and has("DtypeHandler") -->

# %%
from miniinductor.ir.ops import BINARY, COMPARISON, OP_NAMES, REDUCTIONS, UNARY

print(len(OP_NAMES), "operations, among them:", ", ".join(n for n in OP_NAMES if n not in UNARY + BINARY + COMPARISON))
print("reductions:", ", ".join(REDUCTIONS))

# %% [markdown]
# A reduction is a body with a function that combines two values. A `scan`, such as `cumsum`, keeps every intermediate value
# as well. `masked` computes only where a condition holds.
# <!-- shows: has("77 operations") and has("scan") -->
#
# ## Views cost nothing
#
# A transpose is a function that swaps the indices *before* the load. Slices, expands, flips and reshapes change the indices in the same way:

# %%
load_matrix = lambda r, c: ops.load("x", 8 * r + c)                 # a 4 x 8 matrix, row after row

transposed = lambda r, c: load_matrix(c, r)
every_other = lambda r, c: transposed(2 * r, c)

r, c = sympy.symbols("r c", integer=True, nonnegative=True)
print(show(every_other, r, c))

# %% [markdown]
# The two views moved no data. They became arithmetic on one index, which sympy simplifies.
# <!-- shows: has("8*c + 2*r") -->
#
# ## Lowering: from an ATen operation to the IR
#
# A lowering receives boxes (`TensorBox`) that hold such functions, and returns a new box. Most lowerings are one line of a table, which gives the name of the operation and its *promotion*.
# The promotion decides the dtype of the result. For example, `INT_TO_FLOAT` converts integers to floats
# first, as `torch.exp` does:

# %%
from miniinductor.lowering import pointwise

Table(["ATen op, and op of the IR", "promotion"],
      [(name, str(p).split(".")[-1]) for name, p in list(pointwise.UNARY.items())[:8]])

# %% [markdown]
# Each row is a lowering. Its operation has the same name in torch and in the loop IR. One function implements all of the rows. Here is its second half.
# `compute` is the dtype to compute in, `result` the dtype of the result, and `call` the ATen call:
# <!-- shows: has("exp") and has("sqrt") -->

# %%
import inspect

from miniinductor.lowering import registry

whole = inspect.getsource(registry.pointwise)
Code(whole[whole.index("    compute = "):], "python", "pointwise, its second half, miniinductor/lowering/registry.py")

# %% [markdown]
# `body` is the function of an index. It asks each operand for its element at that index (`load(index)`), passes
# the elements to `function`, and converts the result. The function contains no loop. `made` puts the
# body into a box.
#
# Here is the loop IR of softmax, before fusion. Each buffer has a body; `r0` is the variable of the reduction. The subtraction has one reader, `exp`, and is
# inlined into the body of `exp`. `exp(x - max)` has two readers, the sum and the division, and is expensive. So it is stored, as `buf1`. (Whether `buf1` ever
# reaches memory is decided later: notebook 10.)

# %%
e.loop_ir

# %% [markdown]
# Each buffer is a loop nest over its indices. A reduction has one more loop variable, which its result does not have.
# <!-- shows: count("reduction i0 < 4, r0 < 8") == 2 -->
#
# ## When is a value stored?
#
# If the compiler inlined everything, it would compute shared values again and again. It **realizes** a value (gives it a buffer) when storing is cheaper. One
# function decides, and here is its end. `users` is the number of readers. `cost` counts the reads and the operations of one element; one `exp` costs as much as
# many cheap operations:

# %%
from miniinductor.lowering import graph as lowering_graph
from parts import part

part(lowering_graph.should_realize, ("reads, operations", "return"))

# %% [markdown]
# A value with several readers is stored if it reads more than `many_reads` elements or takes more than `many_ops` operations. A value of more than
# `HUGE` operations is stored even for a single reader, so that no kernel grows without end. Count the kernels for a cheap value and for an expensive one:
# <!-- shows: has("operations > HUGE") -->

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
# The program computes the cheap value in both readers. It stores `exp` with a kernel of its own.
#
# A reduction is always realized: its readers need the whole result before they can start. Compile a chain of operations, with inlining and without:

# %%
def chain(x):
    return (torch.sin(x) + 1) * torch.cos(x) - x

for inlining in (True, False):
    with miniinductor.config.patch(inlining=inlining, fusion=False):
        e = minidynamo.explain(chain)(torch.randn(100))
        print(f"inlining={inlining}: {len(e.main.compiled.kernels)} kernel(s)")

# %% [markdown]
# Without inlining each operation is a loop nest of its own.
#
# ## The IR has a meaning that one can run
#
# One handler executes the IR with torch tensors. It is slow and simple, because it is the *definition* of the IR: tests compare every code generator with it. Its values are tensors over all
# iterations at once, and each op is the torch operation of its name. Here is its `load`:

# %%
from miniinductor.runtime.interpreter import InterpreterHandler, run_graph

part(InterpreterHandler.load, "flat, where", "return flat[where]")

# %% [markdown]
# `memory` holds every buffer as one flat tensor. `evaluate` computes the index of all
# iterations at once, and `flat[where]` picks the numbers. The omitted lines handle masks and empty buffers, and raise
# an error if an index is out of bounds. The next cell prints softmax in the loop IR and runs that IR:
# <!-- shows: has("return flat[where]") -->

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
# The interpreter's numbers are eager's. So the text above is a *program* with a defined meaning.
#
# ## A real model
#
# How many loop nests does GPT-2 need, and how does its loop IR begin?

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
# `indirect_indexing` is an index that is read from a tensor. Here it is the row of the embedding. `index_expr` makes a value of an index, here the position in
# the text. `no wrap` means that negative numbers do not count from the end. Both loop nests compute the sum of the two embeddings, because recomputing it is
# cheap.
# <!-- shows: has("indirect_indexing(tmp0, 50257, no wrap)") -->
#
# ## Exercises
#
# **09.1** (warm-up) *A decomposition.* The operation `course::hat` below is new to PyTorch and to the compiler: `hat(x) = max(0, 1 - |x|)`. Write its decomposition into torch
# operations. The check registers your function and makes sure that no eager kernel is left.
#
# *Hints.* You may use any torch functions; they are traced to ATen.

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
# **09.2** (core) *A lowering.* Write the same operation directly in the loop IR, as a lowering. The check registers it, compiles `hat(x) * 2 + 1` and expects *one* kernel.
#
# *Hints.* `registry.pointwise(call, function, x)` makes the box; `function` maps one value to one value with `ops`. A constant needs a dtype:
# `ops.constant(1, x.dtype)`. Use `ops.sub`, `ops.abs` and `ops.maximum`.

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
# **09.3** (stretch) *A handler.* Write a handler that counts the loads and the arithmetic operations of one element of a body.
#
# *Hints.* Subclass `CountingBase` below. It has every op, and each op calls `self.count(name)` and returns a dummy. Override `count`. A load is the op `"load"`;
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
# **09.4** (core) *Views are functions of indices.* A loader maps an index, a tuple of ints, to a
# number. A view is another loader: it changes the index and asks the first loader. Write
# `view(load, kind, *how)` for three kinds. `"permute", order`: dimension `d` of the view is
# dimension `order[d]` of the source. `"slice", dim, start, step`: as `x[start::step]` in one
# dimension. `"expand", dim`: the source has size 1 in that dimension, and the view may have any
# size there.
#
# *Hints.* Return a function of the new index. With which index does it call `load`? For permute, write down where
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
# **The piece.** `lower` turns the graph into loops and calls of torch's kernels. A value without a
# loop of its own is a function from an index to an expression. You write six things: the lowering
# of each node; the reads and the cost of an expression; the element of an argument; the index
# functions of pointwise operations, `permute` and `reshape`; the two ways to make a loop; and the
# arguments of torch's kernels.
#
# <details><summary>Hint: nodes</summary>
#
# `VIEWS`, `POINTWISE` and `REDUCTIONS` tell the kind of a node's operation. `users` counts its
# readers. The second argument of a reduction is a tuple of dimensions.
#
# </details>
# <details><summary>Hint: expressions</summary>
#
# `loads` goes through `Apply` recursively. `element` must accept numbers, too: a number is its own
# element. An argument of fewer dimensions uses only the *last* places of the index.
#
# </details>
# <details><summary>Hint: views</summary>
#
# `permute` moves the index, not the numbers: dimension `order[k]` of the source is dimension `k` of
# the result. `reshape` is free if it only adds or removes sizes of 1. Then the other dimensions have the same sizes in the same order
# (compare them as texts). Each of them finds its place in the new index, and the rest
# is `"0"`.
#
# </details>
# <details><summary>Hint: loops</summary>
#
# The index of a stored value is `(i0, i1, ..., c)`: `rows_and_column` makes it, and `at` puts `"0"`
# in the dimensions of size 1. `self.add(node, Loop, rows, columns, reduction, value)` writes the
# step. The last dimension gives the columns, and the other dimensions give the rows. Treat a value
# without dimensions as a row with one column. A reduction loops over the shape of its *argument*.
#
# </details>

# %%
from exercises.own_compiler import begin

begin("loops");

# %% [markdown]
# The line names the functions that you write. Write them in that file, then run the check as often as you like:

# %% tags=["check", "piece"]
from exercises.own_checks import check_piece

check_piece("loops")

# %% [markdown]
# ## What else lives here
#
# The list has every public name of this chapter's main files, with one sentence each. Unfold a file, then a name,
# to see its first lines. The list is made from the sources when the page is built.

# %% tags=["volatile"]
from minidynamo.explain import also_here

also_here(
    "miniinductor/ir/ops.py",
    "miniinductor/ir/loops.py",
    "miniinductor/ir/handlers.py",
    "miniinductor/lowering/decompositions.py",
    "miniinductor/lowering/",
)

# %% [markdown]
# ## What real PyTorch has
#
# * `torch/_inductor/ir.py`, `torch/_inductor/lowering.py` and `torch/_inductor/virtualized.py` have the same design. They decide layouts late, and have templates and many more rules. Paper, section 4.
# * `torch/_decomp/` has the decompositions that we use, too.
# * The idea of an interpreter as the definition comes from tinygrad's `ops_python.py`.
#
# **See it in the real `torch.compile`.** `TORCH_LOGS=ir_pre_fusion python program.py` prints the loop IR, before anything is fused.
#
# ## Recap
#
# * Decompositions leave fewer kinds of operations, and show what is inside the complicated ones.
# * A tensor is a function from an index to a value. Composing functions fuses operations. Views are arithmetic on indices.
# * The handler decides the meaning of `ops`; the set of ops is closed.
# * A value is stored when that is cheaper than recomputing it.
#
# Next: which stored values share a kernel.
