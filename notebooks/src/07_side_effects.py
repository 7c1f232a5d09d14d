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
# **What you will learn:** how writes are simulated while tracing and replayed in each call; why identity and aliasing
# matter; which writes are redundant; what happens to objects that are made inside a frame and escape; closures and
# cells; in-place operations on tensors.
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
# The first naive version *performs the writes while tracing*. Then they happen once, at compile time, and never again (as in the stager of
# notebook 01). The second *drops the writes*. Then the compiled program computes something else. The next cell shows the first version
# fail:

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
# minidynamo's evaluator performs each write on a *symbolic* object. While it traces it leaves the real list alone, so
# an attempt can be discarded. At the end of the frame it generates code that
# brings the real objects into the final state of the symbolic ones. That code runs after the graph, in each
# call. Call a function with writes three times, plain and compiled:

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
# Both versions return the same numbers and leave the same list and dictionary. The graph contains only the
# multiplication. The writes are in the replacement bytecode, after the call of the graph:
# <!-- shows: count("([1.0, 2.0, 3.0], ['start', 'end', 'start', 'end', 'start', 'end'], {'scale': 4, 'steps': 3})") == 2 -->

# %%
e = minidynamo.explain(training_step, backend="eager")(torch.ones(1), [], {"scale": 1})
print(e.main.record.graph.code)
e.bytecode[1]

# %% [markdown]
# Each `STORE_SUBSCR` is a write. The three writes follow the call of the graph and precede `RETURN_VALUE`. The code below them is the
# original body, which runs if the graph raises an error.
# <!-- shows: count("STORE_SUBSCR") >= 3 and has("mul = x * 1") -->
#
# Bytecode is hard to read. Here is the replacement as Python, next to the program. A band leads from each line
# that writes to the write that remains of it:

# %%
e.replay

# %% [markdown]
# Four lines of the program write. Three writes remain, each of a *final* value: the two appends became
# one.
# <!-- shows: count("state['scale'] = 2") == 1 and count("log[:] =") == 1 and count("state['steps'] = 1") == 1 -->
#
# *The kitchen.* The observer who writes the recipe down does not eat from the plates. He notes "at
# the end, two spoons are missing from the drawer", and whoever follows the recipe takes two spoons.
# *Exactly:* a mutation changes the `Variable` and marks it `mutated`. Then `replacement.py`
# writes code for every variable that is mutated and existed before the frame.
#
# The compiler's code has both sides. The first is an append to a symbolic list:

# %%
from minidynamo.variables.sequences import ListVar

excerpt(ListVar.method_append)

# %% [markdown]
# The symbolic list changes at once; the real list does not change yet. `_changed` marks the variable, so
# that the generator of the replacement code finds it. That generator is the second side. Its method `emit` writes one
# bytecode instruction:
# <!-- shows: has("self.items.append(value)") and has("self._changed()") -->

# %%
from minidynamo.rebuild.replacement import Codegen
from parts import part

part(Codegen.mutations, ("written:", "self.emit"))

# %% [markdown]
# `sourced` has the variables that existed before the frame. Each `replay` emits code that pushes the new values on the stack, and
# appends its store instruction to `commits`. The stores are emitted last. They pop the values off the stack, so they are
# emitted in reverse order.
# <!-- shows: has("reversed(self.commits)") -->
#
# ## In order, and without the redundant writes
#
# All new values are computed before the first write is replayed. Otherwise a swap would read its own
# result:

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
# Only the final state of an object matters. In the next program ten writes to an attribute become one:

# %%
class Counter:
    def __init__(self): self.value = 0

def count_to_ten(x, counter):
    for _ in range(10):
        counter.value += 1
    return x + counter.value

minidynamo.explain(count_to_ten, backend="eager")(torch.ones(1), Counter()).replay

# %% [markdown]
# One store of the last value is left. That is correct because no Python code runs between the writes: the graph has none. A class with its own
# `__setattr__` *does* run code at each write. So minidynamo evaluates that method like any other function, once per write.
# <!-- shows: count("counter.value = 10") == 1 -->
#
# ## Identity: one object, one variable
#
# A list that a program knows by two names must stay one list. So minidynamo keeps one variable for each real object. If
# the graph relies on two inputs being the same object, or different ones, a guard checks it. The next cell calls a function
# with the same list twice, then with two lists. The counter at the end gives the reason for the recompilation:

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
# The second call failed the guard that `b` is `a`, and minidynamo compiled the function again.
# <!-- shows: has("'two_names: b is a is false': 1") -->
#
# ## Objects that a frame makes
#
# An object that the frame makes exists only symbolically at first. If it escapes (if it is returned, stored
# somewhere, or captured by a closure), the replacement code builds it. Otherwise it is never built.

# %%
from dataclasses import dataclass

@dataclass
class Output:
    value: torch.Tensor
    parts: list

def makes_objects(x):
    temporary = {"a": [x, x + 1], "b": {"unused": 3}}
    return Output(temporary["a"][1] * 2, [len(temporary), "made inside"])

minidynamo.compile(makes_objects, backend="eager", fullgraph=True)(torch.ones(2))

# %% [markdown]
# The replacement code builds a new `Output` and a new list in each call. It never builds the dictionary
# `temporary`: only the values that were read from it are needed.
# <!-- shows: has("Output(value=tensor([4., 4.]), parts=[2, 'made inside'])") -->
#
# ## Closures and cells
#
# A variable that an inner function uses is stored in a *cell*. A cell is an object with an identity, too:
# `nonlocal` writes to it, and closures that escape keep it.

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
print(read(), add(torch.tensor([10.0])), read(), "the escaped closures are real functions:", type(add).__name__)

# %% [markdown]
# Both closures that the compiled function returned hold the *same* cell: `read` returns what
# `add` wrote. This picture is drawn from the two real functions:
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
# `x.add_(1)` is a tensor operation, so it goes into the graph as it is. minidynamo does not have to
# replay it. But it must know about it, because the graph changes its inputs. The next stage, in miniinductor,
# turns such a graph into one without writes (*functionalization*, notebook 08).

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
# ## Real models
#
# When GPT-2 generates text, it keeps a cache of keys and values. The caller passes this object in, and the model changes
# it and returns it. All of these changes are side effects:

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
# The compiled model filled the caller's cache, not a copy of it, with the same keys and values as eager.
# <!-- shows: count("True") == 3 -->
#
# ## Exercises
#
# **07.1** (warm-up) *Predict.* What are the three values that `puzzle` returns after
# `a = [1]; puzzle(torch.ones(1), a, a)`? Fill in the list without running the function. The check compiles it and compares.
#
# *Hints.* `a` and `b` are the same list. `a += ...` changes it; `b = b + ...` makes a new one.

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
# **07.2** (core) *A recorder of writes.* Write a class `Shadow` that wraps a list for a tracer. Reads see
# the writes made so far. The real list does not change until `replay()`, which makes the real list equal to the
# shadow *in place*. The class needs `append`, `__getitem__`, `__setitem__`, `__len__` and `replay`.
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
# **07.3** (stretch) *Find the hidden write.* Write `writes_of(function, *args)`. It returns the names of the list and
# dict arguments whose contents a compiled call of the function changes. (A test harness like this
# one guards minidynamo itself.)
#
# *Hints.* Copy the arguments (`copy.deepcopy`), call
# `minidynamo.compile(function, backend="eager")`, and compare. The parameters' names are in
# `function.__code__.co_varnames`. Tensors inside would need `torch.equal`; the exercise has only numbers
# and strings.

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
# **07.4** (stretch) *One journal for all.* `Shadow` records the writes to one list. A program writes to many, in an order that may matter,
# because two names can refer to one list. Write a class `Journal` with three methods. `write(target, method, *args)` records a
# write, such as `write(a, "append", 3)`, and changes no list. `read(target)` returns the list as it would be
# after the writes so far. `replay()` performs all writes once, in order, on the real objects.
#
# *Hints.* Two empty lists are equal, but not the same object: find the writes to a target by `is`. `read` can return
# a copy on which the recorded writes were performed.
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
# **The piece.** While your compiler evaluates a frame, it must not change the program's own objects. `Journal`
# records each change together with a function that undoes it. After the graph has run, `replay` gives the real
# object the final state, once. The GPT of the capstone changes no object, so this piece is for the curious.
#
# <details><summary>Hint: the journal</summary>
#
# Each change appends one function to `undo`. Undoing goes backwards.
#
# `note` appends to `changed`, so it needs a function in `undo`, too. `items_of` notes an object from
# outside the frame, and returns its `items`. A list that the frame made needs no note.
#
# </details>
# <details><summary>Hint: elements</summary>
#
# `set_item` serves lists, and the dictionary `written` of attributes. If the dictionary did not have
# the key before, undoing must remove the key. Read the old value before you overwrite it.
#
# </details>
# <details><summary>Hint: replay</summary>
#
# `found[:] = ...` keeps the list's identity; `found = ...` would not reach the caller.
#
# </details>

# %%
from exercises.own_compiler import begin

begin("effects");

# %% [markdown]
# The line names the functions that you write. Write them in that file, then run the check as often as you like:

# %% tags=["check", "piece"]
from exercises.own_checks import check_piece

check_piece("effects")

# %% [markdown]
# ## What else lives here
#
# The list has every public name of this chapter's main file, with one sentence each. Unfold the file, then a name,
# to see its first lines. The list is made from the source when the page is built.

# %% tags=["volatile"]
from minidynamo.explain import also_here

also_here("minidynamo/rebuild/replacement.py")

# %% [markdown]
# ## What real PyTorch has
#
# * `torch/_dynamo/side_effects.py` has a table of mutations beside immutable trackers, and generates
#   bytecode that replays them. Paper, section 3. minidynamo mutates the symbolic object itself. So two names for
#   one object need no bookkeeping, and a failed attempt is simply discarded.
# * Higher-order operators (`torch.cond`, `checkpoint`) forbid side effects inside their bodies.
#
# **See it in the real `torch.compile`.** `TORCH_LOGS=side_effects python program.py` names each object that is changed, and the line that
# changes it. `TORCH_LOGS=bytecode` shows the writes at the end of the new code.
#
# ## Recap
#
# * minidynamo simulates writes on symbolic objects and replays them after the graph. All new values are computed first, and
#   redundant writes are dropped.
# * One real object is one variable. Assumptions about aliasing are guards.
# * An object made inside the frame is built only if it escapes. Closures and cells are objects, too.
#
# Next: the graph leaves minidynamo and enters miniinductor.
