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
# # 07 · Closures, mutation, side effects
#
# A graph computes values. A Python function also *changes* objects: it appends to a list, sets
# `self.counter`, rebinds a global, advances an iterator, writes into a tensor in place. If the
# graph is called instead of the function, what performs these changes?
#
# **What you will learn:** how minidynamo simulates writes while tracing and replays them in each
# call; which writes are redundant; why identity and aliasing matter. Then objects that a frame
# makes, closures and cells, and in-place operations on tensors.
#
# **Files of this chapter:** `minidynamo/rebuild/replacement.py`,
# `minidynamo/variables/sequences.py`, `minidynamo/variables/dicts.py`,
# `minidynamo/variables/objects.py`.

# %%
import torch

import minidynamo
import prior
from minidynamo.explain import Table, excerpt

torch.manual_seed(0)
torch.set_grad_enabled(False);

# %% [markdown]
# ## Two naive versions
#
# The first naive version *performs the writes while tracing*. Then they happen once, at compile
# time, and never again (as with staging in chapter 01). The second *drops the writes*. Then code
# that reads the objects later finds values that differ from eager mode. The next cell shows the
# first version fail:

# %%
history = []

def step(x):
    history.append(len(history))
    return x + 1

staged = prior.stage(step)
for _ in range(3):
    staged(torch.ones(1))
print("after three calls:", history, "<- should have three entries")

# %% [markdown]
# The list has one entry instead of three: the append ran while tracing, and in no later call.
# <!-- shows: has("after three calls: [0]") -->
#
# ## Simulate now, replay later
#
# minidynamo's evaluator performs each write on a *symbolic* object. It leaves the real object alone
# while tracing, so it may give up a capture at any point. At the end of the frame it generates code
# that gives the real objects the final state of the symbolic ones. This code runs after the graph,
# in each call. The next cell calls a function with writes three times, plain and compiled. Each
# call needs a graph of its own, since `scale` is a number that changes:

# %%
def training_step(x, log, state):
    log.append("start")
    y = x * state["scale"]
    state["scale"] = state["scale"] + 1
    state["steps"] = state.get("steps", 0) + 1
    log.append("end")
    return y

def run(function):
    log, state, results = [], {"scale": 1}, []
    for _ in range(3):
        results.append(function(torch.ones(1), log, state).item())
    return results, log, state

minidynamo.reset()
print("plain   :", run(training_step))
print("compiled:", run(minidynamo.compile(training_step, backend="eager")))
print("graphs compiled:", sum(minidynamo.counters["graphs"].values()), "(the graph depends on state['scale'])")

# %% [markdown]
# Both versions return the same numbers and leave the same list and dictionary. The next cell shows
# where the writes are: the graph has only the multiplication, and the replacement bytecode has the
# writes. (Its first call counts the calls; `.mg0` is a variable for the result of the graph.)
# <!-- shows: count("([1.0, 2.0, 3.0], ['start', 'end', 'start', 'end', 'start', 'end'], {'scale': 4, 'steps': 3})") == 2 -->

# %%
e = minidynamo.explain(training_step, backend="eager")(torch.ones(1), [], {"scale": 1})
print(e.main.record.graph.code)
e.bytecode[1]

# %% [markdown]
# Each `STORE_SUBSCR` is a write. The three writes follow the call of the graph and precede
# `RETURN_VALUE`. The code below them is the original body, which runs if the graph raises an error.
# <!-- shows: count("STORE_SUBSCR") >= 3 and has("mul = x * 1") -->
#
# Bytecode is hard to read. Here is the replacement as Python, next to the program. A band connects
# each line that writes with the write that replaces it:

# %%
e.replay

# %% [markdown]
# Four lines of the program write. Three writes remain, and each stores a *final* value. One
# assignment to the whole list replaces the two appends.
# <!-- shows: count("state['scale'] = 2") == 1 and count("log[:] =") == 1 and count("state['steps'] = 1") == 1 -->
#
# *The kitchen.* Somebody watches the cook and writes the recipe down, but takes nothing from the
# drawer. The recipe ends with "take two spoons from the drawer", and whoever follows it takes two
# spoons. *Exactly:* a mutation changes the `Variable`, which stands for the object, and marks it
# `mutated`. Then `replacement.py` writes code for every mutated variable whose object existed
# before the frame.
#
# Two parts of the compiler do this work. The first part simulates a write; here it appends to a
# symbolic list:

# %%
from minidynamo.variables.sequences import ListVar

excerpt(ListVar.method_append)

# %% [markdown]
# The symbolic list changes at once; the real list does not change yet. `_changed` marks the
# variable as mutated.
# <!-- shows: has("self.items.append(value)") and has("self._changed()") -->
#
# The second part, `Codegen`, generates the replacement code of all marked variables. Its method
# `emit` writes one bytecode instruction:

# %%
from minidynamo.rebuild.replacement import Codegen
from parts import part

part(Codegen.mutations, ("written:", "self.emit"))

# %% [markdown]
# `sourced` has the variables of objects that existed before the frame. Each `replay` emits code
# that pushes the new values on the stack, and appends its store instruction to `commits`. The
# stores are emitted last. They pop the values off the stack, so they are emitted in reverse order.
# <!-- shows: has("reversed(self.commits)") -->
#
# ## In order, and without the redundant writes
#
# All new values are computed before the first write is replayed. Otherwise a swap would read its
# own result:

# %%
def swap(x, pair):
    pair[0], pair[1] = pair[1], pair[0]
    return x + pair[0]

pair = [1, 2]
minidynamo.compile(swap, backend="eager")(torch.ones(1), pair), pair

# %% [markdown]
# The pair is swapped, and `x + pair[0]` used the new first element.
# <!-- shows: has("(tensor([3.]), [2, 1])") -->
#
# Only the final state of an object matters. In the next program ten writes to an attribute become
# one:

# %%
class Counter:
    def __init__(self): self.value = 0

def count_to_ten(x, counter):
    for _ in range(10):
        counter.value += 1
    return x + counter.value

minidynamo.explain(count_to_ten, backend="eager")(torch.ones(1), Counter()).replay

# %% [markdown]
# One store of the last value is left. Dropping the others is correct, because no other Python code
# runs between the writes and could read the attribute. A class with its own `__setattr__` *does*
# run code at each write. So minidynamo evaluates `__setattr__` like any other function, once per
# write.
# <!-- shows: count("counter.value = 10") == 1 -->
#
# ## Identity: one object, one variable
#
# A list that a program knows by two names must stay one list. So minidynamo keeps one variable for
# each real object. The compiled code may rely on two inputs being one object, or being two objects.
# In both cases a guard checks that. The next cell first passes the same list as both arguments,
# then two lists. The counter at the end gives the reason for the recompilation:

# %%
def two_names(x, a, b):
    a.append(1)
    return x * len(b)

minidynamo.reset()
compiled = minidynamo.compile(two_names, backend="eager")
shared = []
print("the same list:   ", compiled(torch.ones(1), shared, shared).item(), shared)
first, second = [], []
print("different lists: ", compiled(torch.ones(1), first, second).item(), first, second)
minidynamo.counters["recompiles"]

# %% [markdown]
# In the second call the guard `b is a` failed, so minidynamo compiled the function again.
# <!-- shows: has("'two_names: b is a is false': 1") -->
#
# ## Objects that a frame makes
#
# An object that the frame makes exists only symbolically at first. It *escapes* if the frame
# returns it, stores it in an older object, or leaves it to a closure. The replacement code builds
# the objects that escape, and no others. The last lines of the next cell look for two constants in
# the new code. One belongs to an object that escapes, the other to an object that does not:

# %%
from dataclasses import dataclass

@dataclass
class Output:
    value: torch.Tensor
    parts: list

def makes_objects(x):
    temporary = {"a": [x, x + 1], "b": {"unused": 3}}
    return Output(temporary["a"][1] * 2, [len(temporary), "made inside"])

print(minidynamo.compile(makes_objects, backend="eager", fullgraph=True)(torch.ones(2)))
explanation = minidynamo.explain(makes_objects, backend="eager")(torch.ones(2))
new_code, *_ = str(explanation.bytecode[1]).split("RETURN_VALUE")     # without the original body
print({text: text in new_code for text in ("made inside", "unused")})

# %% [markdown]
# The replacement code builds a new `Output` and a new list in each call. It contains no `"unused"`,
# so it does not build the dictionary `temporary`. The program needs only the values that it reads
# from this dictionary.
# <!-- shows: has("Output(value=tensor([4., 4.]), parts=[2, 'made inside'])") and has("'made inside': True, 'unused': False") -->
#
# ## Closures and cells
#
# Python stores a variable that an inner function uses in a *cell*. A cell is an object like any
# other: `nonlocal` writes to it, and closures that escape keep it. The next function returns two
# closures over one variable:

# %%
def make_accumulator(x):
    total = x * 0

    def add(amount):
        nonlocal total
        total = total + amount
        return total

    def read():
        return total

    add(x)
    add(x)
    return add, read

minidynamo.reset()
add, read = minidynamo.compile(make_accumulator, backend="eager", fullgraph=True)(torch.ones(1))
print(read(), add(torch.tensor([10.0])), read(), " type of add:", type(add).__name__)

# %% [markdown]
# The compiled function returned two real functions, which share *one* cell: `read` returns what
# `add` wrote. The next picture is drawn from the cells of these functions:
# <!-- shows: has("tensor([12.]) tensor([12.])") -->

# %%
from minidynamo.explain.draw_code import draw_closure

draw_closure(add, read)

# %% [markdown]
# Both functions point to one cell.
#
# ## Iterators, globals, attributes of modules
#
# The next model changes a global, an attribute, a buffer and an iterator:

# %%
calls = 0

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.seen = 0
        self.register_buffer("mean", torch.zeros(2))

    def forward(self, x, stream):
        global calls
        calls += 1
        self.seen += len(x)
        self.mean = 0.9 * self.mean + 0.1 * x.mean(0)       # a buffer, replaced
        return x * next(stream)                             # an iterator, advanced

model, stream = Model(), iter([1, 2, 3])
compiled = minidynamo.compile(model, backend="eager")
print([compiled(torch.ones(4, 2), stream)[0, 0].item() for _ in range(2)], "next:", next(stream))
print("calls", calls, " seen", model.seen, " mean", model.mean)

# %% [markdown]
# The two calls changed `calls`, `seen` and `mean` twice, and advanced the iterator by two.
# <!-- shows: n("next:") == 3 and n("calls") == 2 -->
#
# ## In-place tensor operations
#
# `x.add_(1)` is a tensor operation, so it goes into the graph as it is. minidynamo need not replay
# the write, since the graph performs it. But minidynamo must record that the graph changes its
# input. The next stage, in miniinductor, turns such a graph into a graph without writes
# (*functionalization*, chapter 08):

# %%
def in_place(x):
    view = x[0]
    view.add_(1)
    return x.sum()

e = minidynamo.explain(in_place, backend="eager")(torch.zeros(2, 2))
print(e.main.record.graph.code)

# %% [markdown]
# The graph has the write `add_` at the place where the program made it.
#
# ## A real model
#
# When GPT-2 generates text, it keeps the keys and values of its attention layers in a cache. The
# caller passes the cache to the model, which changes and returns it. These changes are side
# effects:

# %%
from benchmarks.models import gpt2
from transformers import DynamicCache

model, inputs = gpt2(layers=2)
plain, cached = DynamicCache(config=model.config), DynamicCache(config=model.config)
compiled = minidynamo.compile(model, backend="eager")
a = model(**inputs, past_key_values=plain, use_cache=True)
b = compiled(**inputs, past_key_values=cached, use_cache=True)
print("same logits:", torch.equal(a.logits, b.logits))
print("the cache that came back is the one passed in:", b.past_key_values is cached)
print("cached positions:", cached.get_seq_length(), " same contents:",
      all(torch.equal(p.keys, c.keys) for p, c in zip(plain.layers, cached.layers)))

# %% [markdown]
# The compiled model filled the caller's cache, not a copy of it, with the same keys and values as
# eager.
# <!-- shows: count("True") == 3 -->
#
# ## Exercises
#
# **07.1** (warm-up) *Predict.* What are the three values that `puzzle` returns after `a = [1];
# puzzle(torch.ones(1), a, a)`? Write them into the list that `predicted` returns, without running
# `puzzle`. The check compiles `puzzle` and compares.
#
# *Hints.* `a` and `b` are the same list. `a += ...` changes this list; `b = b + ...` makes a new
# one.

# %% tags=["support"]
def puzzle(x, a, b):
    a += [2]
    b = b + [3]
    b.append(4)
    return x * len(a), len(a), len(b)

# %% tags=["exercise"]
def predicted() -> list:
    """[first element of the returned tensor, second value, third value]"""
    ### BEGIN SOLUTION
    return [2.0, 2, 4]
    ### END SOLUTION

# %% tags=["check"]
from exercises import check

check("07.1", predicted)

# %% [markdown]
# **07.2** (core) *A recorder of writes.* Write a class `Shadow` for a tracer; `Shadow(real)` wraps
# the list `real`. Reads of the shadow see the writes made so far. The real list does not change
# until `replay()`, which makes the real list equal to the shadow *in place*. The class needs
# `append`, `__getitem__`, `__setitem__`, `__len__` and `replay`.
#
# *Hints.* Keep a copy. Replay with a slice assignment, so that the list stays the same object.

# %% tags=["exercise"]
class Shadow:
    """A list whose writes wait for `replay()`."""
    ### BEGIN SOLUTION instead of pass
    def __init__(self, real):
        self.real, self.items = real, list(real)

    def append(self, value):
        self.items.append(value)

    def __getitem__(self, index):
        return self.items[index]

    def __setitem__(self, index, value):
        self.items[index] = value

    def __len__(self):
        return len(self.items)

    def replay(self):
        self.real[:] = self.items
    ### END SOLUTION

# %% tags=["check"]
check("07.2", Shadow)

# %% [markdown]
# **07.3** (stretch) *Find the hidden write.* Write `writes_of(function, *args)`. It returns the
# names of the list and dict arguments whose contents a compiled call of the function changes.
# (minidynamo's own tests compare arguments in this way.)
#
# *Hints.* Copy the arguments (`copy.deepcopy`), call `minidynamo.compile(function,
# backend="eager")`, and compare. The parameters' names are in `function.__code__.co_varnames`. The
# lists and dicts contain only numbers and strings. (Tensors would need `torch.equal`.)

# %% tags=["exercise"]
import copy

def writes_of(function, *args) -> set:
    """Names of the list and dict parameters that `function` changes."""
    ### BEGIN SOLUTION
    before = copy.deepcopy(args)
    minidynamo.compile(function, backend="eager")(*args)
    names = function.__code__.co_varnames
    return {name for name, old, new in zip(names, before, args) if isinstance(new, (list, dict)) and old != new}
    ### END SOLUTION

# %% tags=["check"]
check("07.3", writes_of)

# %% [markdown]
# **07.4** (stretch) *One journal for all.* `Shadow` records the writes to one list. A program
# writes to many lists. The order may matter, because two names can refer to one list. Write a class
# `Journal` with three methods. `write(target, method, *args)` records a write, such as `write(a,
# "append", 3)`, and changes no list. `read(target)` returns the list as it would be after the
# writes so far. `replay()` performs all writes once, in order, on the real objects.
#
# *Hints.* Two empty lists are equal, but not the same object: find the writes to a target by `is`.
# `read` can return a copy on which the recorded writes were performed.
#
# <details><summary>Predict: a and b are one list. Does read(b) see a write through a?</summary>
#
# Yes: there is one list, with two names.
#
# </details>

# %% tags=["exercise"]
class Journal:
    """Writes to lists, noted now and performed later."""
    ### BEGIN SOLUTION instead of pass
    def __init__(self):
        self.writes = []

    def write(self, target, method, *args):
        self.writes.append((target, method, args))

    def read(self, target):
        shown = list(target)
        for written, method, args in self.writes:
            if written is target:
                getattr(shown, method)(*args)
        return shown

    def replay(self):
        for target, method, args in self.writes:
            getattr(target, method)(*args)
        self.writes = []
    ### END SOLUTION

# %% tags=["check"]
check("07.4", Journal)

# %% [markdown]
# ## Your own compiler: effects
#
# **The piece.** While your compiler evaluates a frame, it must not change the program's own
# objects. It changes copies of their elements, and `Journal` records each change together with a
# function that undoes it. After the graph has run, `replay` writes the final elements and
# attributes of one changed object into the real one. The GPT of the capstone changes no object, so
# this piece is for the curious.
#
# <details><summary>Hint: the journal</summary>
#
# Each change appends one function to `undo`. Undoing goes backwards.
#
# `note` appends to `changed`, and adds to `undo` a function that removes the entry. `items_of`
# notes an object from outside the frame, and returns its `items`. A list that the frame made needs
# no note.
#
# </details>
# <details><summary>Hint: elements</summary>
#
# `set_item` writes into a list, or into the dictionary `written`, which maps attributes to their
# new values. If the dictionary did not have the key before, undoing must remove the key. Read the
# old value before you overwrite it.
#
# </details>
# <details><summary>Hint: replay</summary>
#
# Let `found` be the real list. `found[:] = ...` changes the caller's list; `found = ...` would only
# rebind your variable.
#
# </details>

# %%
from exercises.own_compiler import begin

begin("effects");

# %% [markdown]
# The output names your functions. Write them in that file, and run the check as often as you like:

# %% tags=["check", "piece"]
from exercises.own_checks import check_piece

check_piece("effects")

# %% [markdown]
# ## What else lives here
#
# The list below has every public name of `replacement.py`, with one sentence each. Unfold the file,
# then a name, to see its first lines. The list is made from the source when the page is built.

# %% tags=["volatile"]
from minidynamo.explain import also_here

also_here("minidynamo/rebuild/replacement.py")

# %% [markdown]
# ## What real PyTorch has
#
# * `torch/_dynamo/side_effects.py` has a table of mutations, and generates bytecode that replays
#   them (section 3 of the paper). Its symbolic objects never change. minidynamo changes the
#   symbolic object itself. So two names for one object need no bookkeeping, and a failed capture is
#   simply discarded.
# * Higher-order operators (`torch.cond`, `checkpoint`) forbid side effects inside their bodies.
#
# **See it in the real `torch.compile`.** `TORCH_LOGS=side_effects python program.py` names each
# changed object, and the line that changes it. `TORCH_LOGS=bytecode` shows the writes at the end of
# the new code.
#
# ## Recap
#
# * minidynamo simulates writes on symbolic objects and replays them after the graph. The new code
#   computes all new values before the first write, and leaves out redundant writes.
# * One real object is one variable. Assumptions about aliasing are guards.
# * An object made inside the frame is built only if it escapes. Closures and cells are objects,
#   too.
#
# Next: the graph leaves minidynamo and enters miniinductor.
