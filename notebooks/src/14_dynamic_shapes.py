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
# # 14 · Dynamic shapes
#
# So far every graph was compiled for one shape, and a guard checked that shape. Real programs
# change sizes all the time: a batch is not full, sentences differ in length, a text grows word by
# word. A compiler that starts again for each size is slower than no compiler.
#
# **What you will learn:** symbols and hints; how a branch on a size becomes a guard, or needs none;
# why 0 and 1 are special; when two sizes share a symbol; static, automatic and dynamic compilation;
# kernels with sizes as arguments; what cannot be symbolic. The paper describes symbolic shapes in
# its section 5.
#
# **Files of this chapter:** `minidynamo/shapes/dynamic.py`, `minidynamo/shapes/symbolic_shapes.py`,
# `minidynamo/shapes/symbolic_numbers.py`, `miniinductor/sizes/`.

# %%
import sympy
import torch

import minidynamo
import miniinductor
from minidynamo.explain import Code, Table, excerpt
from minidynamo.explain import compilations, draw_compilations

torch.manual_seed(0)
torch.set_grad_enabled(False);

# %% [markdown]
# ## Three naive versions
#
# **One graph per shape.** Static compilation makes a new graph for each shape. The next cell calls
# a function with many lengths:

# %%
def average(x, w):
    return torch.softmax(x @ w, -1).sum(0) / x.shape[0]

calls = [(torch.randn(n, 8), torch.randn(8, 8)) for n in range(2, 16)]
print("compilations after each call:", compilations(average, calls, dynamic=False))
print(list(minidynamo.counters["skipped"])[0])

# %% [markdown]
# The compiler gives up after four graphs, because none of them answered a second call. All further
# lengths run as plain Python.
# <!-- shows: has("[1, 2, 3, 4, 4, 4,") and has("was compiled 4 times, each for a single call") -->
#
# **One graph for all shapes, unchecked.** Capture the graph for one size, and run it for all. The Python
# number `x.shape[0]` is then a constant of the graph:

# %%
import prior

tape = prior.record(lambda x: x.sum(0) / x.shape[0], torch.ones(4, 2))
print("mean of eight rows of ones, from a graph that was captured with four:", tape(torch.ones(8, 2)))

# %% [markdown]
# The mean of ones is one, but the graph returns two. It has divided by four, and it raised no error.
# <!-- shows: has("tensor([2., 2.])") -->
#
# **Padding.** Fill each input up to a fixed size. Padding works. But the computer also computes the
# rows that were filled in, and the program must cut them off. (Notebook 16 pads its inputs.
# Exercise 14.3 makes padding cheaper.)
#
# ## The idea: run the program on symbols
#
# Give each size a **symbol**, and let the program compute with symbols. But the program asks
# `if z.size(0) > 2`, and Python needs `True` or `False` *now*. So a symbolic size also has a
# **hint**: its value in this run. The hint answers the question, and the compiler writes down
# question and answer. They become a guard.
#
# *The kitchen.* "For n guests, take 2n eggs. There were more than six of us, so I used the large
# pan." *Exactly:* "2n eggs" is an expression over a symbol. "More than six" is the condition under
# which the program takes the same path again.
#
# The next cell has such a size in a few lines:

# %% tags=["support"]
import sympy

class Size:
    """A size: an expression over symbols, its value in this run, and the list in which questions are written down."""

    def __init__(self, expression, hint, asked):
        self.expression, self.hint, self.asked = sympy.sympify(expression), hint, asked

    def combine(self, other, operation):
        expression, hint = (other.expression, other.hint) if isinstance(other, Size) else (sympy.Integer(other), other)
        return Size(operation(self.expression, expression), operation(self.hint, hint), self.asked)

    def __add__(self, other): return self.combine(other, lambda a, b: a + b)
    def __mul__(self, other): return self.combine(other, lambda a, b: a * b)
    __radd__, __rmul__ = __add__, __mul__

    def decide(self, other, relation):
        """True or False for this run; what was found true is written down."""
        expression, hint = (other.expression, other.hint) if isinstance(other, Size) else (sympy.Integer(other), other)
        answer = bool(relation(sympy.Integer(self.hint), sympy.Integer(hint)))
        fact = relation(self.expression, expression)
        self.asked.append(fact if answer else sympy.Not(fact))
        return answer

    def __gt__(self, other): return self.decide(other, sympy.Gt)
    def __lt__(self, other): return self.decide(other, sympy.Lt)
    def __eq__(self, other): return self.decide(other, sympy.Eq)
    __hash__ = None

# %%
def concatenated(a, b):
    """The sizes of the paper's example: z = cat(x, y), then a branch on z.size(0)."""
    z = a + b
    return "multiply" if z > 2 else "add"

def traced(program, **sizes):
    asked = []
    result = program(
        *[Size(sympy.Symbol(name, integer=True), value, asked) for name, value in sizes.items()]
    )
    return result, asked

print(traced(concatenated, s0=3, s1=4))
print(traced(concatenated, s0=1, s1=1))

# %% [markdown]
# The program has two paths, and each path has its own guard. A graph may serve *all* sizes for
# which its guards hold.
# <!-- shows: has("[s0 + s1 > 2]") and has("[s0 + s1 <= 2]") -->
#
# Is the first guard needed? Suppose that every symbol is at least 2. Then `s0 + s1` is at least 4, and
# the question has only one answer. A guard that cannot fail need not be checked.
#
# ## The real thing
#
# The next cell captures the paper's example with `dynamic=True`. Its table has one row for each symbol:
# the hint ("value here"), the place where the symbol is read, and its range:

# %%
def f(x, y):
    z = torch.cat([x, y])
    if z.size(0) > 2:
        return z.mul(2)
    return z.add(2)

e = minidynamo.explain(f, dynamic=True)(torch.randn(3), torch.randn(4))
e.symbols

# %% [markdown]
# Both ranges begin at 2. The next table lists the questions that the program asked about sizes:
# <!-- shows: has("s0 3 x.shape[0] 2 ...") and has("s1 4 y.shape[0] 2 ...") -->

# %%
e.decisions

# %% [markdown]
# `s0 + s1 > 2` is always true, because each symbol is at least 2. (torch's own shape functions
# asked the other two questions, when they computed the shape of `z.mul(2)` in line 4.) Which guards
# are left to check?
# <!-- shows: count("always so") == 3 -->

# %%
e.size_guards

# %% [markdown]
# The branch is not among the guards. With `> 6` instead, the answer depends on the sizes, and the
# question becomes a guard:
# <!-- shows: not has("SIZES") -->

# %%
def g(x, y):
    z = torch.cat([x, y])
    if z.size(0) > 6:
        return z.mul(2)
    return z.add(2)

e6 = minidynamo.explain(g, dynamic=True)(torch.randn(3), torch.randn(4))
print(e6.size_guards)
sizes = [(3, 4), (5, 9), (2, 2), (3, 3), (4, 4)]
counts = compilations(g, [(torch.randn(a), torch.randn(b)) for a, b in sizes], dynamic=True)
print("compilations for", sizes, ":", counts)

# %% [markdown]
# Two graphs serve five shapes. Each graph belongs to one side of the branch.
# <!-- shows: has("SIZES x.shape[0] + y.shape[0] > 6") and has("[1, 1, 2, 2, 2]") -->
#
# Each graph serves a region in the plane of sizes. The next picture shows these regions, after each
# call. To draw it, we ask the guard function of every entry about every point. (Use the buttons, or
# the arrow keys.)

# %%
from steppers import region_walk

minidynamo.reset()
compiled = minidynamo.compile(g, dynamic=True, backend="eager")
region_walk(compiled, lambda a, b: (torch.randn(a), torch.randn(b)), [*sizes[:4], (1, 5)],
            lambda: minidynamo.records.frames)

# %% [markdown]
# The region of entry 1 is a diagonal: its two sizes were equal, so they share a symbol. The last
# call has a size of 1. No earlier region contains a 1, so the call gets an entry of its own. (The
# section "0, 1 and equal sizes" explains both.)
# <!-- shows: has("Sizes (1, 5): no entry fits, entry 2 is compiled") -->
#
# In minidynamo the class `ShapeEnv` answers such questions. Its method `decide` first asks `prove`.
# An answer with a proof needs no guard. Without a proof the hint answers. `is_proved` says whether
# there was a proof, and `value` is the answer. The last lines of the method make the guard:

# %%
from minidynamo.shapes.symbolic_shapes import ShapeEnv
from parts import part

part(ShapeEnv.decide, ("fact =", "self.learn"))

# %% [markdown]
# `note` writes the question down for the table of questions above. `learn` makes a guard of an
# answer without a proof. A size without a hint raises `DataDependentDecision`, and the graph
# breaks.
#
# How does `prove` work? Its simplest means is the *gap*: the question `a > b` asks whether the gap
# `a - b` is positive. Every symbol is at least 2, so write it as 2 plus a number that is not
# negative. For `s0 + s1 > 2` the gap is `s0 + s1 - 2`, which is 2 plus two such numbers. So the gap
# is at least 2, and the answer is always yes. If such a number is subtracted, the gap has no lower
# bound, and this step proves nothing. (You write the step in exercise 14.2.) The next cell asks
# `prove` four questions:

# %%
env = ShapeEnv()
s0, s1 = (env.create_symbol(hint).node.expr for hint in (3, 4))
for question in (s0 + s1 > 2, s0 + s1 > 6, s0 * s1 > s0, s0 < 2):
    answer = {True: "always", False: "never", None: "it depends: a guard"}[env.prove(question)]
    print(f"{str(question):14} {answer}")

# %% [markdown]
# Only `s0 + s1 > 6` would become a guard.
# <!-- shows: count("it depends: a guard") == 1 and has("s0 + s1 > 6 it depends") -->
#
# Every operation computes its result's shape, and torch's own shape functions accept symbols. (Fake
# tensors take a `torch.SymInt` wherever they take an `int`.) In the graph each symbol is an input,
# and shapes are expressions:

# %%
e.graph_text

# %% [markdown]
# `s0 + s1` is the shape of a tensor here, as `7` would be in a static graph. The graph has no branch,
# because the compiler has decided it.
# <!-- shows: has('cat: "f32[s0 + s1]"') and not has("if ") -->
#
# ## 0, 1 and equal sizes
#
# **0 and 1 are never symbols.** A dimension of size 1 is broadcast, and a tensor with a dimension
# of size 0 is empty. If a symbol could be 1, every addition of two tensors would ask about it. So
# 0 and 1 stay numbers, with a guard:

# %%
shapes = [((5, 6), (5, 6)), ((7, 3), (7, 3)), ((7, 3), (1, 3)), ((4, 9), (1, 9))]
counts = compilations(
    lambda x, y: x + y, [(torch.randn(a), torch.randn(b)) for a, b in shapes], dynamic=True
)
print(counts, "- the third call broadcasts")

# %% [markdown]
# The third call has a size of 1 and needs a graph of its own. The fourth call fits that graph: its
# second tensor also has a size of 1, and its other sizes are symbols.
# <!-- shows: has("[1, 1, 2, 2]") -->
#
# **Equal sizes share a symbol.** Two dimensions of the same size probably mean the same thing: `x`
# and its mask, `q` and `k`. They get one symbol, and a guard that they are equal. This is **duck
# shaping**: if it looks like the same size, it is the same size. With a shared symbol the compiler
# asks fewer questions. If a later call has different sizes, the guard fails, and the compiler
# compiles again without the assumption:

# %%
e = minidynamo.explain(lambda x, y: (x * 2, y * 3), dynamic=True)(torch.randn(5), torch.randn(5))
print(e.size_guards)
pairs = [(5, 5), (6, 6), (6, 7), (8, 9)]
print(compilations(lambda x, y: (x * 2, y * 3), [(torch.randn(a), torch.randn(b)) for a, b in pairs], dynamic=True))

# %% [markdown]
# The guard `EQUAL` states the assumption that both sizes are equal. In the third call the sizes
# differ, so the guard fails. The new graph also fits the fourth call.
# <!-- shows: has("EQUAL") and has("[1, 1, 2, 2]") -->
#
# ## What needs the number
#
# The compiler unrolls a loop over a size, so it needs the number. It also needs the number for a
# list of that length, and for text that the program compares. (An f-string that the program only
# passes on is built at run time.) The compiler **pins** such a size: it begins the capture again,
# and the size is now a number with a guard. The table of symbols names the line that needed the
# number:

# %%
def over_rows(x):
    total = 0
    for i in range(x.shape[0]):
        total = total + x[i]
    return total

e = minidynamo.explain(over_rows, dynamic=True)(torch.randn(4, 3))
e.symbols

# %% [markdown]
# Line 3 is the loop, and it pins `x.shape[0]`. The other size stays a symbol.
# <!-- shows: has("x.shape[0] a number, which this line needs") and has("s0 3 x.shape[1]") -->
#
# Pinning costs a compilation for each number. If you *mark* the size as dynamic, the compiler raises an
# error instead:

# %%
x = torch.randn(4, 3)
minidynamo.mark_dynamic(x, 0)
minidynamo.reset()
try:
    minidynamo.compile(over_rows)(x)
except Exception as error:
    print(f"{type(error).__name__}: {error}")

# %% [markdown]
# The message names the size and the line, and says what to do.
#
# Some sizes depend on *values*, as in `x[x > 0]`. Such a size has no hint, because the values do
# not exist while the compiler traces. So the graph breaks at the operation that makes the size. The
# break names the operation and its line. (PyTorch can keep the size in the graph as an *unbacked*
# symbol `u0`, as long as nobody asks about it.)

# %%
def positive(x):
    return (x[x > 0] + 1).exp() * 2

minidynamo.explain(positive, dynamic=True)(torch.randn(8)).breaks

# %% [markdown]
# The only break is at the line of `x[x > 0]`, and it names the operation.
# <!-- shows: has("1 graph break") and has("aten.nonzero") -->
#
# ## Static, automatic, dynamic
#
# Symbols are not free: the C++ compiler can optimise a loop better if it knows the loop's bound. So
# which sizes should be symbols? Nobody knows before the second call. So the default,
# `dynamic=None`, is **automatic**: the first compilation is static. When a guard on a size fails,
# the next compilation makes *that* size a symbol. The class `SizePolicy` decides for each size:

# %%
from minidynamo.shapes.dynamic import SizePolicy

excerpt(SizePolicy.is_symbol)

# %% [markdown]
# `pinned` has the sizes that some line needs as numbers. `is_wanted` is true if you asked for a
# symbol. `met` collects every number, for the next compilation. The method `changed` looks at the
# numbers of earlier compilations:
# <!-- general -->

# %%
excerpt(SizePolicy.changed)

# %% [markdown]
# `earlier` has the numbers that earlier compilations of this code have met. A size becomes a symbol
# if it has changed, or if it was a symbol before. (Strides, and ints of the program, become symbols
# in the same way.)
# <!-- general -->
#
# The next cell compares the three policies. Each call has a new length:

# %% alt="Stairs: compilations over the sizes of a sweep; the static stairs rise with each size, automatic and dynamic ones stay low"
steps = list(range(2, 26))
sweep = [(torch.randn(n, 8), torch.randn(8, 8)) for n in steps]
with minidynamo.config.patch(recompile_limit=100):
    counts = {label: compilations(average, sweep, dynamic=option, backend="eager")
              for label, option in (("static", False), ("automatic", None), ("dynamic", True))}
print({label: values[-1] for label, values in counts.items()})
draw_compilations(counts, steps);

# %% [markdown]
# The automatic policy compiles twice. The next table has the guards of its second graph:
# <!-- shows: n("'automatic':") == 2 and n("'static':") == 24 and n("'dynamic':") == 1 -->

# %%
minidynamo.reset()
compiled = minidynamo.compile(average)
for arguments in sweep[:3]:
    compiled(*arguments)
record = minidynamo.records.frames[-1]
Table(["kind", "assumption"], [(guard.kind, guard.code) for guard in record.guards if guard.kind in ("SHAPE", "RANGE", "EQUAL", "SIZES")],
      "the second entry's guards on sizes")

# %% [markdown]
# `x.shape[0]` has changed, so it is a symbol with a range. Every other size is a number.
# <!-- shows: count("RANGE") == 1 and has("w.shape == (8, 8)") and has("x.shape[1] == 8") -->
#
# ## Kernels with sizes as arguments
#
# In the loop IR every size is a sympy integer (notebook 09). With symbols it is a sympy expression,
# and so are loop bounds, strides and indices. The kernel receives the symbols as arguments, and the
# wrapper computes the sizes of buffers.
#
# The next output shows the kernels of the second entry:

# %%
from minidynamo.explain.explanation import FrameExplanation

dynamic = FrameExplanation(record)
dynamic.kernels

# %% [markdown]
# `s0` is an argument and the bound of a loop. Starting threads takes time, so the kernel decides at
# run time whether it has enough work for them: `if (16*s0 >= 32768)`, in operations. The next output
# is the wrapper of the same entry:
# <!-- shows: has("if (16*s0 >= 32768)") and has("x0 < s0") -->

# %%
dynamic.wrapper

# %% [markdown]
# The wrapper receives `s0`, too, and allocates every buffer of length `s0` in each call.
# <!-- shows: has("empty_cpu((s0,)") and has("def call(s0,") -->
#
# The scheduler of notebook 10 asks whether two loops have the same bounds. With symbols it compares
# expressions, and asks the same `ShapeEnv`. Memory planning (notebook 13) leaves out buffers whose
# size has a symbol, because the arena's size is fixed when the graph is compiled.
#
# ## A real model: GPT-2 writes
#
# When GPT-2 generates text, each call has one token more than the last. How often does each policy
# compile?

# %%
from benchmarks.models import gpt2

model, inputs = gpt2(layers=2, sequence=16)

def generate(run, ids, tokens):
    for _ in range(tokens):
        logits = run(input_ids=ids, use_cache=False).logits
        ids = torch.cat([ids, logits[:, -1].argmax(-1, keepdim=True)], 1)
    return ids

expected = generate(model, inputs["input_ids"], 8)
rows = []
for label, option in (("static", False), ("automatic", None), ("dynamic", True)):
    minidynamo.reset()
    with minidynamo.config.patch(recompile_limit=100):
        ids = generate(minidynamo.compile(model, dynamic=option), inputs["input_ids"], 8)
    rows.append((label, minidynamo.counters["graphs"].total(), torch.equal(ids, expected)))
Table(["", "compilations", "the same tokens as eager"], rows, "GPT-2, 2 layers: 8 tokens after a prompt of 16")

# %% [markdown]
# All policies write the same text. The static policy compiles for every token, the automatic one
# twice, and the dynamic one once.
# <!-- shows: n("static") == 8 and n("automatic") == 2 and n("dynamic") == 1 and count("True") == 3 -->
#
# How many guards about sizes does such a model need?

# %%
e = minidynamo.explain(model, dynamic=True)(input_ids=inputs["input_ids"], use_cache=False)
print(len(e.decisions.rows), "questions about sizes; guards needed for", sum(row[1] == "guard" for row in e.decisions.rows))
e.size_guards

# %% [markdown]
# Proofs answered every question. Only one range and the stride of the input are checked in each
# call.
# <!-- shows: n("guards needed for") == 0 and count("RANGE") == 1 and count("STRIDE") == 1 -->
#
# ## What a symbol costs
#
# The next cell compiles one program for one shape, and for all shapes:

# %% tags=["volatile"]
from benchmarks.runner import interleave, ratio

def layer(x, w, b):
    return torch.nn.functional.gelu(torch.nn.functional.layer_norm(x, (x.shape[-1],), w, b)) + x

torch.set_num_threads(1)
arguments = torch.randn(512, 768), torch.randn(768), torch.randn(768)
variants = {"eager": lambda: layer(*arguments)}
for label, option in (("static", False), ("dynamic", True)):
    compiled = minidynamo.compile(lambda x, w, b: layer(x, w, b), dynamic=option)
    compiled(*arguments)
    variants[label] = lambda compiled=compiled: compiled(*arguments)
timings = interleave(variants, budget=2)
factor, low, high = ratio(timings, "dynamic", "static")
print(f"the symbol costs a factor of {factor:.2f}  [{low:.2f} to {high:.2f}]")
Table(["", "microseconds"], [(label, f"{t.median * 1e6:.0f}") for label, t in timings.items()])

# %% [markdown]
# A factor of one means that the symbol is free. (The brackets have the quartiles of the factor.) A
# row has 768 elements here, and the symbol is nearly free.
# <!-- shows: 0.9 < n("the symbol costs a factor of") < 1.15 -->
#
# A symbol costs more for short rows, which this cell does not measure. The C++ compiler unrolls the
# loop over a short row of known length; it cannot unroll a loop to `s1`. A symbol for the number of
# rows costs less, because the outer loop would not be unrolled anyway. Python must also pass each
# symbol to the kernel in every call.
#
# ## Exercises
#
# **14.1** (warm-up) *More arithmetic.* `Size` knows `+` and `*`. Programs also use `//` and `%`:
# attention computes `width // heads`, and a program with windows asks `length % 4 == 0`. Give
# `SizeWithDivision` both operators.
#
# *Hints.* `self.combine(other, operation)` applies the operation to the expression and to the hint.
# For sympy expressions, `a // b` and `a % b` do the same as for ints. `combine` returns a plain
# `Size`, which cannot be divided again, so override `combine`, too.

# %% tags=["exercise"]
class SizeWithDivision(Size):
    """Size, with // and %."""
    ### BEGIN SOLUTION instead of pass
    def combine(self, other, operation):
        plain = super().combine(other, operation)
        return SizeWithDivision(plain.expression, plain.hint, plain.asked)

    def __floordiv__(self, other):
        return self.combine(other, lambda a, b: a // b)

    def __mod__(self, other):
        return self.combine(other, lambda a, b: a % b)
    ### END SOLUTION

# %% tags=["check"]
from exercises import check

check("14.1", SizeWithDivision)

# %% [markdown]
# **14.2** (core) *Always so?* Write `lowest(terms, constant)`: the smallest value of `constant +
# sum(coefficient * symbol)` over all integers `symbol >= 2`. `terms` is `{name: coefficient}`.
# Return minus infinity if no smallest value exists. With your function, `a > b` is always true if
# `lowest(a - b) > 0`. The check compares your function with the real `ShapeEnv`, and asks it about
# the paper's example.
#
# *Hints.* With a negative coefficient the sum has no lower bound.

# %% tags=["exercise"]
import math

def lowest(terms: dict, constant: int) -> float:
    """The smallest value of a linear expression over sizes that are at least 2."""
    ### BEGIN SOLUTION
    if any(coefficient < 0 for coefficient in terms.values()):
        return -math.inf
    return constant + 2 * sum(terms.values())
    ### END SOLUTION

# %% tags=["check"]
check("14.2", lowest)

# %% [markdown]
# **14.3** (stretch) *Buckets.* Sometimes a few static graphs are the best answer. Write
# `bucketed(function, sizes)` for functions that treat each row by itself: row `i` of the result depends
# only on row `i` of the argument. The returned function pads its argument with zero rows to the next of
# the `sizes`, calls `function`, and returns only the rows of the argument. It does not pad an argument
# that is larger than all `sizes`.
#
# *Hints.* `torch.nn.functional.pad(x, (0, 0, 0, missing))` adds rows. Do not compile: the check
# passes a compiled `function`, and counts its graphs.

# %% tags=["exercise"]
def bucketed(function, sizes: list):
    """function, called with a number of rows out of `sizes`."""
    ### BEGIN SOLUTION
    def call(x):
        size = next((s for s in sorted(sizes) if s >= len(x)), len(x))
        return function(torch.nn.functional.pad(x, (0, 0, 0, size - len(x))))[:len(x)]
    return call
    ### END SOLUTION

# %% tags=["check"]
check("14.3", bucketed)

# %% [markdown]
# **14.4** (core) *How many graphs?* A program calls a compiler with these `shapes`, one after the
# other, all of one rank. Write `count_graphs(shapes)`: how many graphs does the compiler make, by
# these rules?
#
# * A graph is a tuple of sizes. `None` in the tuple means a symbol, which fits every size from 2 on.
# * The compiler compiles a shape that no graph fits.
# * A size that was the same in all calls so far, this call included, stays a number.
# * Any other size becomes a symbol, except 0 and 1: they always stay numbers.
#
# *Hints.* Keep the graphs, and for each dimension the set of sizes that you have seen.
#
# <details><summary>Predict: lengths 5, 6, 7, 8, 1. How many graphs?</summary>
#
# Three. The first graph is static. The second has a symbol and fits all further lengths except 1.
#
# </details>

# %% tags=["exercise"]
def count_graphs(shapes: list) -> int:
    """The number of graphs that are made."""
    ### BEGIN SOLUTION
    graphs, seen = [], [set() for _ in shapes[0]]
    for shape in shapes:
        for sizes, size in zip(seen, shape):
            sizes.add(size)
        fits = any(all(n == size if n is not None else size >= 2 for n, size in zip(graph, shape)) for graph in graphs)
        if not fits:
            graphs.append(tuple(None if len(sizes) > 1 and size >= 2 else size for sizes, size in zip(seen, shape)))
    return len(graphs)
    ### END SOLUTION

# %% tags=["check"]
check("14.4", count_graphs)

# %% [markdown]
# ## Your own compiler: sizes
#
# **The piece.** `Size` is an int that remembers how it was computed, and records every comparison.
# Everyone writes three functions: how a size prints, the product of sizes, and what happens where
# the program needs a number. The curious add arithmetic, comparisons, and the function that finds
# the sizes that changed since an earlier call.
#
# <details><summary>Hint for the curious: arithmetic</summary>
#
# At least one of `left` and `right` is a `Size`. The result is a `Size` with the value of this call
# and the text for all calls.
#
# </details>
# <details><summary>Hint for the curious: comparisons</summary>
#
# Return the answer of this call. The *fact* is the comparison that held: `s0 > 4`, or `not (s0 > 4)`.
#
# </details>
# <details><summary>Hint: which comparisons are facts</summary>
#
# `n == n` is no fact: it holds for every size. `plain` turns a Size into a plain number, and its
# caller relies on that number. So `plain` writes a fact, too: `s0 == 8`.
#
# The text of a tuple has a comma after each item: `(s0,)` is a tuple, and `(s0)` is not.
#
# </details>

# %%
from exercises.own_compiler import begin

begin("sizes");

# %% [markdown]
# The line names the functions that you write. Edit that file, and run the check as often as you like:

# %% tags=["check", "piece"]
from exercises.own_checks import check_piece

check_piece("sizes")

# %% [markdown]
# ## What else lives here
#
# The next list has every public name of this chapter's core files, with one sentence each. Unfold a file,
# then a name, to see its first lines. The build makes the list from the sources.

# %% tags=["volatile"]
from minidynamo.explain import also_here

also_here(
    "minidynamo/shapes/dynamic.py",
    "minidynamo/shapes/symbolic_shapes.py",
    "minidynamo/shapes/symbolic_numbers.py",
    "miniinductor/sizes/",
)

# %% [markdown]
# ## What real PyTorch has
#
# * `torch/fx/experimental/symbolic_shapes.py` (ShapeEnv) and `torch/fx/experimental/sym_node.py`:
#   the same design. They also handle the constraints of `torch.export`, and can ask a theorem
#   prover to check answers. The paper, section 5, describes it.
# * `torch/_dynamo/variables/builder.py` and `torch/_dynamo/pgo.py`: automatic dynamic shapes. PyTorch keeps
#   what it learned for the next process.
# * `torch/_inductor/sizevars.py`: the questions that the code generator asks about sizes.
#   `torch._check` lets your program state facts about them.
#
# **See it in the real `torch.compile`.** `TORCH_LOGS=dynamic python program.py` prints each new symbol and
# each new guard.
#
# ## Recap
#
# * A symbolic size is an expression and a hint. The hint answers questions; the answers are guards.
# * A question with one answer for all sizes needs no guard. The sizes 0 and 1 stay numbers, and
#   equal sizes share a symbol.
# * Automatic shapes start static, and then make a symbol of each size that changed. A line that
#   needs the number pins the size, and the table of symbols names the line.
# * Kernels take sizes as arguments. Fusion compares expressions, and memory planning leaves out
#   buffers of symbolic size.
#
# Next: how much speed all of this brings.
