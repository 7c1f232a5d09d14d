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
# So far every graph was made for one shape, and a guard said so. Batches that are not full,
# sentences of different lengths, a text that grows by a word at a time: real programs change sizes
# all the time. A compiler that starts again for each of them is slower than no compiler.
#
# **What you will learn:** symbols and hints; how a branch on a size becomes a guard, or needs none;
# why 0 and 1 are special; when two sizes are the same symbol; static, automatic and dynamic
# compilation; kernels with sizes as arguments; what cannot be symbolic. The paper tells this in its
# section 5.
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
# **One graph per shape.** That is what static compilation does, until it gives up:

# %%
def average(x, w):
    return torch.softmax(x @ w, -1).sum(0) / x.shape[0]

calls = [(torch.randn(n, 8), torch.randn(8, 8)) for n in range(2, 16)]
print("compilations after each call:", compilations(average, calls, dynamic=False))
print(list(minidynamo.counters["skipped"])[0])

# %% [markdown]
# After four graphs, none of which answered a second call, the compiler stops: all further lengths
# run as plain Python.
#
# **One graph, and hope.** Capture for one size and run for all. The Python number `x.shape[0]` is a
# constant of the graph:

# %%
import prior

tape = prior.record(lambda x: x.sum(0) / x.shape[0], torch.ones(4, 2))
print("mean of eight rows of ones, from a graph that was captured with four:", tape(torch.ones(8, 2)))

# %% [markdown]
# The mean of ones is one. The graph has divided by four, and nobody was told.
#
# **Padding.** Fill up to a fixed size. It works, costs the work on the padding, and the program has
# to know about it. (Notebook 16 does it. Exercise 14.3 makes it cheaper.)
#
# ## The idea: run the program on symbols
#
# Give each size a **symbol** and let the program compute with it. The program asks
# `if z.size(0) > 2`, and Python needs `True` or `False` *now*. So a symbolic size also has a
# **hint**: its value in this run. The hint answers, and the question is written down. It becomes a
# guard.
#
# *The kitchen.* "For n guests, take 2n eggs; since there were more than six of us, I used the large
# pan." *Exactly:* an expression over the symbols, and a condition under which the same path is
# taken again.
#
# In a few lines:

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
# Two paths, two sets of guards, and each graph may be used for *all* sizes for which its guards
# hold.
#
# Is the first guard needed? If every symbol were at least 2, then `s0 + s1` would be at least 4,
# and the question would have only one answer. A guard that cannot fail need not be checked.
#
# ## The real thing
#
# The paper's example, captured with `dynamic=True`:

# %%
def f(x, y):
    z = torch.cat([x, y])
    if z.size(0) > 2:
        return z.mul(2)
    return z.add(2)

e = minidynamo.explain(f, dynamic=True)(torch.randn(3), torch.randn(4))
e.symbols

# %% [markdown]
# The symbol table: a symbol per size, its hint, where it is read from, and its range. The questions
# that were asked:

# %%
e.decisions

# %% [markdown]
# `s0 + s1 > 2` is always so, because a symbol is at least 2 here. (The other two were asked
# by torch's own shape functions, for the multiplication in line 4.) What is left to check:

# %%
e.size_guards

# %% [markdown]
# The branch is not among them. With `> 6` instead, the answer depends on the sizes, and the question becomes a guard:

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
# Two graphs for five shapes: one per side of the branch. Each graph owns a region in the plane of
# sizes. (Use the buttons, or the arrow keys.) After each call the guard function of every entry is
# asked about every point:

# %%
from steppers import region_walk

minidynamo.reset()
compiled = minidynamo.compile(g, dynamic=True, backend="eager")
region_walk(compiled, lambda a, b: (torch.randn(a), torch.randn(b)), [*sizes[:4], (1, 5)],
            lambda: minidynamo.records.frames)

# %% [markdown]
# The second region is a diagonal: two equal sizes have one symbol. A size of 1 lies in no region of
# the others; it has an entry of its own.
#
# `decide` is where a question arrives. It asks `prove` first. What is proved needs no guard; for the
# rest the hint answers, and the answer is learned.

# %%
from minidynamo.shapes.symbolic_shapes import ShapeEnv

excerpt(ShapeEnv.decide)

# %% [markdown]
# From the top: `simplify` uses what is known already. If `prove` has an answer, that is it. If not, the
# question may fall into parts (`decide_parts`). The hint comes last, and `learn` makes a guard of the
# answer. A size that has no hint is a `DataDependentDecision`: a graph break.
#
# How does `prove` work? The simplest of its means: a question `a > b` is a question about the *gap*
# `a - b`. Write each symbol as `2 + (something not negative)`. For `s0 + s1 > 2` the gap is
# `s0 + s1 - 2`, that is 2 plus two things that are not negative. So it is at least 2, and the answer is
# always yes. With a negative coefficient nothing follows. Interval arithmetic does the rest. (Exercise
# 14.2 is this step, by hand.)

# %%
env = ShapeEnv()
s0, s1 = (env.create_symbol(hint).node.expr for hint in (3, 4))
for question in (s0 + s1 > 2, s0 + s1 > 6, s0 * s1 > s0, s0 < 2):
    answer = {True: "always", False: "never", None: "it depends: a guard"}[env.prove(question)]
    print(f"{str(question):14} {answer}")

# %% [markdown]
# Only the second would become a guard.
#
# Symbols flow through everything: torch's own shape functions compute with them (fake tensors take
# a `torch.SymInt` wherever they take an `int`). In the graph each symbol is an input, and shapes
# are expressions:

# %%
e.graph_text

# %% [markdown]
# `s0 + s1` is the shape of a tensor here, as `7` would be in a static graph. There is no branch: it was
# decided.
#
# ## 0, 1 and equal sizes
#
# **0 and 1 are never symbols.** A dimension of size 1 is broadcast; one of size 0 is empty. If
# sizes might be 1, every addition of two tensors would be a question. So they are numbers, and
# guarded:

# %%
shapes = [((5, 6), (5, 6)), ((7, 3), (7, 3)), ((7, 3), (1, 3)), ((4, 9), (1, 9))]
counts = compilations(
    lambda x, y: x + y, [(torch.randn(a), torch.randn(b)) for a, b in shapes], dynamic=True
)
print(counts, "- the third call broadcasts")

# %% [markdown]
# The fourth call finds the third's graph: a one, and any other size.
#
# **Equal sizes share a symbol.** Two dimensions that have the same size in this run probably mean
# the same thing (`x` and its mask, `q` and `k`). They get one symbol, and a guard that they are
# equal ("duck shaping": if it looks like the same size...). It saves questions. When it guesses
# wrong, the guard fails and there is a second compilation, without the assumption:

# %%
e = minidynamo.explain(lambda x, y: (x * 2, y * 3), dynamic=True)(torch.randn(5), torch.randn(5))
print(e.size_guards)
pairs = [(5, 5), (6, 6), (6, 7), (8, 9)]
print(compilations(lambda x, y: (x * 2, y * 3), [(torch.randn(a), torch.randn(b)) for a, b in pairs], dynamic=True))

# %% [markdown]
# `EQUAL` is the guess. The third call proves it wrong, and its graph fits the fourth.
#
# ## What needs the number
#
# A loop over a size must be unrolled, so it needs the number. So does a list of that length, or
# text that is compared (an f-string that is only passed on is put together when the program runs).
# The symbol is **pinned**: it becomes a number in the next attempt, with a guard, and the record
# says which line is to blame:

# %%
def over_rows(x):
    total = 0
    for i in range(x.shape[0]):
        total = total + x[i]
    return total

e = minidynamo.explain(over_rows, dynamic=True)(torch.randn(4, 3))
e.symbols

# %% [markdown]
# Line 3 is the loop. The other size stays a symbol.
#
# If the size was *marked* as dynamic, that is an error instead of a silent slow-down:

# %%
x = torch.randn(4, 3)
minidynamo.mark_dynamic(x, 0)
minidynamo.reset()
try:
    minidynamo.compile(over_rows)(x)
except Exception as error:
    print(f"{type(error).__name__}: {error}")

# %% [markdown]
# The message names the size, the line, and what to do.
#
# And a size that depends on *values* (`x[x > 0]`) has no hint at all: nobody knows it before the
# program runs. So the graph breaks at the op that makes it, and the break names the op and its line.
# (PyTorch can keep it in the graph as an *unbacked* symbol `u0`, as long as nobody asks about it.)

# %%
def positive(x):
    return (x[x > 0] + 1).exp() * 2

minidynamo.explain(positive, dynamic=True)(torch.randn(8)).breaks

# %% [markdown]
# The one break is at the line of `x[x > 0]`, and it names the operation.
#
# ## Static, automatic, dynamic
#
# Symbols are not free: an expression in a loop bound hides its size from the C++ compiler, and
# constant sizes allow more simplification. Which sizes should be symbols? Nobody knows before the
# second call. So the default, `dynamic=None`, is **automatic**: the first compilation is static.
# When a guard on a size fails, the next one makes *that* size a symbol.

# %%
from minidynamo.shapes.dynamic import SizePolicy

excerpt(SizePolicy.is_symbol)

# %% [markdown]
# `pinned` are the sizes that some line needs as numbers. `is_wanted` is true where the user asked for a
# symbol. Every number that is met is written down in `met`, for the next compilation. And what has
# changed?

# %%
excerpt(SizePolicy.changed)

# %% [markdown]
# `earlier` is what earlier compilations of this code have met. A size that is another one now, or was a
# symbol before, becomes a symbol. (Strides and other ints become
# symbols in the same way.) Three policies, for ever new lengths:

# %% alt="Stairs: compilations over the sizes of a sweep; the static stairs rise with each size, automatic and dynamic ones stay low"
steps = list(range(2, 26))
sweep = [(torch.randn(n, 8), torch.randn(8, 8)) for n in steps]
with minidynamo.config.patch(recompile_limit=100):
    counts = {label: compilations(average, sweep, dynamic=option, backend="eager")
              for label, option in (("static", False), ("automatic", None), ("dynamic", True))}
print({label: values[-1] for label, values in counts.items()})
draw_compilations(counts, steps);

# %% [markdown]
# Two compilations, and only the size that changed is a symbol; the 8 columns stay a number:

# %%
minidynamo.reset()
compiled = minidynamo.compile(average)
for arguments in sweep[:3]:
    compiled(*arguments)
record = minidynamo.records.frames[-1]
Table(["kind", "assumption"], [(guard.kind, guard.code) for guard in record.guards if guard.kind in ("SHAPE", "RANGE", "EQUAL", "SIZES")],
      "the second entry's guards on sizes")

# %% [markdown]
# `x.shape[0]` has a range, and everything else is a number.
#
# ## Kernels with sizes as arguments
#
# In miniinductor, sizes were sympy integers all along (notebook 09); now they are expressions. Loop
# bounds, strides and index expressions carry symbols; the symbols arrive as arguments of the
# kernel, and the wrapper computes the sizes of buffers.
#
# The kernel and the wrapper of the second entry:

# %%
from minidynamo.explain.explanation import FrameExplanation

dynamic = FrameExplanation(record)
dynamic.kernels

# %% [markdown]
# `s0` is an argument and the bound of a loop. Whether threads are worth their start is asked at run time
# now: `if (8*s0 >= 16384)`. And the second kernel's sum runs in chunks, since the length of the column
# is not known.

# %%
dynamic.wrapper

# %% [markdown]
# The wrapper gets `s0` as well, and makes what is `s0` long anew in each call.
#
# The scheduler's question of notebook 10, *do two loops have the same bounds?*, is now a question
# about expressions, asked of the same environment. Memory planning leaves out what has a symbol for
# its size: it has no place in an arena of fixed bytes.
#
# ## A real model: GPT-2 writes
#
# The text grows by one token at a time. Static: a compilation per token. Automatic: two.

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
# The text is the same in each row. What differs is how often somebody waited for the compiler. How many
# guards about sizes does such a model need?

# %%
e = minidynamo.explain(model, dynamic=True)(input_ids=inputs["input_ids"], use_cache=False)
print(len(e.decisions.rows), "questions about sizes; guards needed for", sum(row[1] == "guard" for row in e.decisions.rows))
e.size_guards

# %% [markdown]
# Every question was answered by a proof. One range is left, and the stride of the input.
#
# ## What a symbol costs
#
# The same program, compiled for one shape and for all:

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
# A factor of one means that the symbol is free, as it should be for long rows. (Read it with its
# quartiles.) Short rows pay: the C++ compiler unrolls a short row when it knows its length, and cannot
# when the length is `s1`. The sizes are also two more numbers to pass through Python and the
# launcher: half a microsecond a call. How many rows there are hardly matters. It is the inner loops that are faster when they know their
# size.
#
# ## Exercises
#
# **14.1** (warm-up) *More arithmetic.* `Size` knows `+` and `*`. Programs also use `//` and `%` (heads of
# attention: `width // heads`; windows: `length % 4 == 0`). Give `SizeWithDivision` both.
#
# *Hints.* `self.combine(other, operation)` applies the operation to the expression and to the hint. For
# sympy expressions `a // b` and `a % b` do what they do for ints. But what `combine` returns is a plain
# `Size`, which cannot be divided again: override it, too.

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
# **14.2** (core) *Always so?* Write `lowest(terms, constant)`: the smallest value of
# `constant + sum(coefficient * symbol)` over all integers `symbol >= 2`; `terms` is
# `{name: coefficient}`. Return minus infinity if there is no smallest value. With it, `a > b` is
# always so if `lowest(a - b) > 0`. The check compares with the real `ShapeEnv`, and asks your
# function about the paper's example.
#
# *Hints.* A negative coefficient lets the sum fall without end.

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
# `bucketed(function, sizes)` for functions that treat each row by itself (row `i` of the result
# depends on row `i` of the argument only): the returned function pads its argument with zero rows
# to the next of the `sizes`, calls `function`, and returns the rows that were asked for. Larger
# arguments are not padded.
#
# *Hints.* `torch.nn.functional.pad(x, (0, 0, 0, missing))`. Compile outside: the check compiles
# `function` and counts.

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
# **14.4** (core) *How many graphs?* A compiler is called with these `shapes`, one after the other, all of one rank.
# Write `count_graphs(shapes)`: how often does it compile? A graph is a tuple of sizes. None stands for
# a symbol, which fits every size from 2 on. A shape that no graph fits is compiled. A size that was
# the same in all calls so far, this one included, stays a number. Any other becomes a symbol, but for
# 0 and 1: they always stay numbers.
#
# *Hints.* Keep the graphs, and for each dimension the set of sizes that you have seen.
#
# <details><summary>Predict: lengths 5, 6, 7, 8, 1. How many graphs?</summary>
#
# Three. The first is static, the second has a symbol and fits all further lengths but 1.
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
# **The piece.** `Size` is an int that remembers how it was computed, and tells on whoever compares
# it. You write the methods for arithmetic and for comparisons, what becomes of a size where only a
# number will do, how it is written, and which sizes have changed since an earlier call.
#
# <details><summary>Hint: arithmetic</summary>
#
# `n + 1` and `1 + n` are two methods; `swapped` says which one is meant. The result is a `Size`
# with the value of this call and the text of all calls.
#
# </details>
# <details><summary>Hint: comparisons</summary>
#
# The answer is that of this call. The *fact* is what was true: `s0 > 4`, or `not (s0 > 4)`.
#
# </details>
# <details><summary>Hint: care</summary>
#
# `n == n` is no fact. What is no int is none of a Size's business: for it the methods return
# `NotImplemented`. (`n * 0.5` is an ordinary product then.) Whoever makes a plain number of a Size
# (`plain`) relies on its value. So `plain` writes a fact, too: `s0 == 8`.
#
# A tuple's text has a comma behind each item, for `(s0,)` is a tuple and `(s0)` is none.
#
# </details>

# %%
from exercises.own_compiler import begin

begin("sizes");

# %% [markdown]
# The line names what is yours. Write it in that file, then ask for a check, as often as you like:

# %% tags=["check", "piece"]
from exercises.own_checks import check_piece

check_piece("sizes")

# %% [markdown]
# ## What else lives here
#
# Every public name of this chapter's core files, with one sentence each. Unfold a file, then a name:
# its first lines are there. The list is made from the sources when the page is built.

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
# * `torch/fx/experimental/symbolic_shapes.py` (ShapeEnv) and `torch/fx/experimental/sym_node.py`: the same
#   design. It also has the constraints of `torch.export`, and a translation to a theorem prover for
#   checking itself. Paper, section 5.
# * `torch/_dynamo/variables/builder.py` and `torch/_dynamo/pgo.py`: automatic dynamic; what was learned is kept
#   for the next process.
# * `torch/_inductor/sizevars.py`: the code generator's questions; `torch._check` lets the user
#   state facts.
#
# **See it in the real `torch.compile`.** `TORCH_LOGS=dynamic python program.py` prints each symbol as it is made, and each guard as it is
# learned.
#
# ## Recap
#
# * A symbolic size is an expression and a hint. The hint answers questions; the answers are guards.
# * What holds for all sizes that the guards let through needs no guard. 0 and 1 are numbers; equal
#   sizes share a symbol.
# * Automatic: static first, then a symbol for what changed. A line that needs the number pins it,
#   and is named.
# * Kernels take sizes as arguments; fusion and memory planning compute with expressions.
#
# Next: what all of this is worth.
