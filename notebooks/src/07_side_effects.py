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
# A graph computes values. A Python function also *changes things*: it appends to a list, sets
# `self.counter`, rebinds a global, advances an iterator, writes into a tensor in place. If the
# graph is called instead of the function, who does that?
#
# **What you will learn:** simulation now, replay later; identity and aliasing; redundant writes;
# objects that are born inside and escape; closures and cells; in-place operations on tensors.
#
# **Files of this chapter:** `minidynamo/rebuild/replacement.py`, `minidynamo/rebuild/replacement.py`,
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
# *Do the writes while tracing*: they happen once, at compile time, and never again (the stager of
# notebook 01). *Do not do them*: the program is changed. Here is the first one, failing:

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
# One entry instead of three: the append ran while tracing, and never again.
#
# ## Simulate now, replay later
#
# The evaluator performs each write on its *symbolic* object. The real list is not touched while
# tracing, so that an attempt can be thrown away. When the frame is done, code is generated that
# brings the real objects to the state the symbolic ones ended in. It runs after the graph, on each
# call.

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
# The graph contains only the multiplication. The rest is in the replacement bytecode, after the
# call of the graph:

# %%
e = minidynamo.explain(training_step, backend="eager")(torch.ones(1), [], {"scale": 1})
print(e.main.record.graph.code)
e.bytecode[1]

# %% [markdown]
# The stores (`STORE_SUBSCR`) stand behind the call of the graph, and in front of the `RETURN_VALUE`. What
# follows is for errors: the original once more.
#
# Bytecode is hard on the eyes. The same, written back as Python, beside the program: four lines
# that write have become three writes, each of a *final* value: the two appends are one.

# %%
e.replay

# %% [markdown]
# A band leads from each line that writes to the write that remains of it.
#
# *The kitchen.* The observer who writes the recipe down does not eat from the plates. He notes "at
# the end, two spoons are missing from the drawer", and whoever uses the recipe takes two spoons.
# *Exactly:* a mutation is applied to the `Variable`, marks it `mutated`, and `reconstruct.py`
# writes code for every variable that is mutated and existed before the frame.
#
# Both sides in the code. An append to a symbolic list, and the writes that are generated for all
# that changed (each line of `mutations` *emits* bytecode; `commits` keeps the stores for last):

# %%
from minidynamo.variables.sequences import ListVar

excerpt(ListVar.method_append)

# %% [markdown]
# The list of the symbolic world changes at once; the real one waits. `_changed` marks the variable, so
# that the writer of the replacement code finds it:

# %%
from minidynamo.rebuild.replacement import Codegen

excerpt(Codegen.mutations)

# %% [markdown]
# `sourced` are the variables that existed before the frame. Each `replay` pushes the new values, and
# leaves its store in `commits`. The stores come last. They take the values off the stack, so they run
# from the last to the first.
#
# ## In order, and without the redundant ones
#
# Writes are replayed after *all* new values were computed. Otherwise a swap would read its own
# result:

# %%
def swap(x, pair):
    pair[0], pair[1] = pair[1], pair[0]
    return x + pair[0]

pair = [1, 2]
minidynamo.compile(swap, backend="eager")(torch.ones(1), pair), pair

# %% [markdown]
# The pair is swapped, and `x` was added to what stands first after the swap. Only the final state
# counts: ten writes to an attribute become one.

# %%
class Counter:
    def __init__(self): self.value = 0

def count_to_ten(x, counter):
    for _ in range(10):
        counter.value += 1
    return x + counter.value

minidynamo.explain(count_to_ten, backend="eager")(torch.ones(1), Counter()).replay

# %% [markdown]
# One store is left, of the last value. Is that allowed? Nobody can look in between: the graph has no Python in it. A class with its own
# `__setattr__` *can* look, so its method is evaluated like any other function, each time.
#
# ## Identity: one object, one variable
#
# The same list under two names must be one list. Variables are remembered by the identity of the
# real object, and when the graph relies on two inputs being the same or different, that is a guard:

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
# Whether two names mean one list is an assumption, too, with a guard of its own.
#
# ## Born inside
#
# An object made inside the frame exists only symbolically. If it escapes (is returned, stored
# somewhere, captured by a closure), it is built for real at the end; otherwise it never exists.

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
# The `Output` and its list are made anew in each call, by code that is written for them. The dictionary
# `temporary` never existed: only what was read from it is there.
#
# ## Closures and cells
#
# A variable that an inner function uses lives in a *cell*. Cells are objects with identity too:
# `nonlocal` writes to them, and closures that escape keep them.

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
# Both closures that came out of the compiled function hold the *same* cell, as they must: what
# `add` writes, `read` sees. Drawn from the two real functions:

# %%
from minidynamo.explain.draw_code import draw_closure

draw_closure(add, read)

# %% [markdown]
# One cell, two functions: what one writes the other reads.
#
# ## Iterators, globals, attributes of modules

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
# All three changes happened as often as the function was called, and the iterator stands where it
# should.
#
# ## In-place tensor operations
#
# `x.add_(1)` is a tensor operation: it goes into the graph as it is. minidynamo does not have to
# replay it, but it must know about it: the graph's inputs change. The next stage, in miniinductor,
# turns such graphs into ones without writes (*functionalization*, notebook 08).

# %%
def in_place(x):
    view = x[0]
    view.add_(1)
    return x.sum()

e = minidynamo.explain(in_place, backend="eager")(torch.zeros(2, 2))
print(e.main.record.graph.code)

# %% [markdown]
# The write is in the graph, at the place where the program made it.
#
# ## Real models
#
# A GPT-2 that generates text keeps a cache of keys and values: an object that is passed in, changed
# inside, and returned. All of it happens through side effects.

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
# The caller's cache was filled, not a copy of it, and with the same keys and values as eager's.
#
# ## Exercises
#
# **07.1** (warm-up) *Predict.* Without running it: what are the three values that `puzzle` returns after
# `a = [1]; puzzle(torch.ones(1), a, a)`? Fill in the list. The check compiles it and compares.
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
# **07.2** (core) *A recorder of writes.* Write a class `Shadow` that wraps a list for a tracer: reads see
# the writes made so far, the real list is not touched until `replay()`. It needs `append`,
# `__getitem__`, `__setitem__`, `__len__`, and `replay()`, which makes the real list equal to the
# shadow *in place*.
#
# *Hints.* Keep a copy; replay with a slice assignment, so that the list stays the same object.

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
# **07.3** (stretch) *Find the hidden write.* Write `writes_of(function, *args)`: the names of the list and
# dict arguments whose contents a compiled call of the function changes. (A test harness like this
# one guards minidynamo itself.)
#
# *Hints.* Copy the arguments (`copy.deepcopy`), call
# `minidynamo.compile(function, backend="eager")`, compare. Parameter names are in
# `function.__code__.co_varnames`. Tensors inside need `torch.equal`; the exercise has only numbers
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
# **07.4** (stretch) *One journal for all.* `Shadow` knows one list. A program writes to many, in an order that may matter:
# two names can stand for one list. Write a class `Journal`. `write(target, method, *args)` notes a
# write, such as `write(a, "append", 3)`, and touches nothing. `read(target)` gives a list as it would be
# after the writes so far. `replay()` performs all writes, in order, on the real objects, once.
#
# *Hints.* Two empty lists are equal, and not the same: find the writes of a target by `is`. A copy with
# its writes performed on it is what `read` returns.
#
# <details><summary>Predict: a and b are one list. Does read(b) see a write through a?</summary>
#
# It must: there is one list, with two names.
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
# **The piece.** While a frame is evaluated nothing may happen to the program's own objects. `Journal`
# writes down each change together with what undoes it; `replay` does the final state to the real
# object, once, after the graph has run.
#
# <details><summary>Hint: the journal</summary>
#
# Each change appends one function to `undo`. Undoing goes backwards.
#
# `note` appends to `changed`, so it needs a function in `undo`, too. `items_of` notes an object from
# outside, and gives its `items`; a list of the frame's own needs no note.
#
# </details>
# <details><summary>Hint: elements</summary>
#
# `set_item` serves lists, and the dictionary `written` of attributes. A dictionary that did not have
# the key must not have it afterwards. What was there has to be read before it is overwritten.
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
# The line names what is yours. Write it in that file, then ask for a check, as often as you like:

# %% tags=["check", "piece"]
from exercises.own_checks import check_piece

check_piece("effects")

# %% [markdown]
# ## What else lives here
#
# Every public name of this chapter's core files, with one sentence each. Unfold a file, then a name:
# its first lines are there. The list is made from the sources when the page is built.

# %% tags=["volatile"]
from minidynamo.explain import also_here

also_here("minidynamo/rebuild/replacement.py", "minidynamo/rebuild/replacement.py")

# %% [markdown]
# ## What real PyTorch has
#
# * `torch/_dynamo/side_effects.py`: a table of mutations beside immutable trackers, replayed by
#   generated bytecode. Paper, section 3. In minidynamo the symbolic object itself
#   is mutated: aliasing comes for free, and a failed attempt is simply thrown away.
# * Higher-order operators (`torch.cond`, `checkpoint`) forbid side effects inside their bodies.
#
# **See it in the real `torch.compile`.** `TORCH_LOGS=side_effects python program.py` names each object that is changed, and the line that
# changes it. `TORCH_LOGS=bytecode` shows the writes at the end of the new code.
#
# ## Recap
#
# * Writes are simulated on symbolic objects and replayed after the graph, new values first,
#   redundant ones collapsed.
# * Identity matters: one real object is one variable; assumptions about aliasing are guards.
# * Objects born inside are built only if they escape; closures and cells are objects too.
#
# Next: the graph leaves minidynamo and enters miniinductor.
