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
# # 05 · Variables, sources, guards
#
# While evaluating, minidynamo decided things: `flag` was true, the list had three entries, `x` was
# float32. The graph is right only while these decisions stay right. A **guard** is such an
# assumption, written as a check on the inputs. To write it one has to know where each value came
# from: its **source**.
#
# **What you will learn:** variables and lazy values; sources as a tree; what is guarded and what is
# not; the generated guard function; recompilation and its limit; whether guards are asserts.
#
# **Files of this chapter:** `minidynamo/variables/`, `minidynamo/guards/sources.py`,
# `minidynamo/guards/guards.py`, `minidynamo/convert/entries.py`.

# %%
import torch

import minidynamo
from minidynamo.explain import Code, Table, excerpt

torch.manual_seed(0)
torch.set_grad_enabled(False);

# %% [markdown]
# ## The naive version: key the cache by the arguments
#
# The stager of notebook 01 cached by shape and dtype. A Python function depends on more than its
# arguments:

# %%
import prior

settings = {"scale": 2.0}

def scaled(x):
    return x * settings["scale"]

staged = prior.stage(scaled)
staged(torch.ones(2))
settings["scale"] = 10.0
print("eager:", scaled(torch.ones(2)), "  staged:", staged(torch.ones(2)), "<- wrong")

# %% [markdown]
# One could key by *everything*: all globals, all attributes, recursively. That would be right, and
# slower than the function. The way out: note what the evaluator *looked at* while it ran.

# %%
compiled = minidynamo.compile(scaled, backend="eager")
settings["scale"] = 2.0
print(compiled(torch.ones(2)))
settings["scale"] = 10.0
print(compiled(torch.ones(2)))
settings["unrelated"] = "something else"
compiled(torch.ones(2))
print(minidynamo.counters)

# %% [markdown]
# One recompilation, for the entry that was read; none for the one that was not. The last line is the
# guard that failed. (`P_G___main__` is the dictionary of our globals.)
#
# *The kitchen.* Someone wrote the recipe while watching the cook. Beside it, in the margin: "the
# oven was at 180 degrees; there were four eggs". Before using the recipe again, read the margin.
# *Exactly:* a guard is a Boolean expression over the function's arguments and surroundings; the
# entry may run if all of its guards are true.
#
# ## Lazy values
#
# Arguments are wrapped as `Lazy`: nothing is assumed about a value that nobody looks at.

# %%
from minidynamo.variables.base import Lazy

excerpt(Lazy)

# %% [markdown]
# `realize` is the moment at which somebody asks: a variable of the right class is made then, with its
# guards. (`tx` is the frame that is being evaluated. `argument` is how rules of calls take what they
# are given.) Three parameters, of which one is never looked at:

# %%
def uses_one(x, ignored, flag):
    if flag:
        return x + 1
    return ignored

e = minidynamo.explain(uses_one, backend="eager")(torch.ones(2), object(), True)
Table(["kind", "assumption"], [(g.kind, g.code) for g in e.main.record.guards if g.source is not None])

# %% [markdown]
# `ignored` has no guard. `flag` has one: its value was used. The last two rows are about `+`: the bases of
# `Tensor` are the same (`__mro__` is the list of classes in which Python looks for a method), and
# nobody gave `Tensor` an `__add__` of its own. The rows before are explained below.
#
# ## Sources: where did it come from?
#
# Each value that was read from somewhere carries a `Source`, a node of a tree: local, then
# attribute, then item. The same tree is used to write guards, and to load the value again in the
# replacement code.

# %%
from minidynamo.guards.sources import KINDS, SourceTree

tree = SourceTree()
source = tree.local("self").attr("layers").item(0).attr("weight")
print(source.name())
Table(["kind", "written as"], list(KINDS.items())[:9], "how an access is written ({p}: the parent, {k}: the key)")

# %% [markdown]
# Every kind of access can be written as Python again; the guard is that text.
#
# ## What gets guarded
#
# A table of small programs and the guards that they cause. The guards on the thread's state, which
# every entry has, are left out. So is what a program above has caused already:

# %%
class Settings:
    def __init__(self):
        self.scale, self.names = 2, ["a", "b"]

def programs():
    offset = 3
    def closure(x): return x + offset
    def attribute(x, s): return x * s.scale
    def length(x, s): return x * len(s.names)
    def type_test(x, s): return x + 1 if isinstance(s, Settings) else x * 2
    def has(x, s): return x + 1 if hasattr(s, "missing") else x * 2
    def key(x, s): return x + {"a": 1}["a"] if "a" in s.names else x * 2
    def identity(x, s): return x + 1 if x is s else x * 2
    return closure, attribute, length, type_test, has, key, identity

rows, seen = [], set()
for function in programs():
    arguments = (torch.ones(2),) if function.__name__ == "closure" else (torch.ones(2), Settings())
    record = minidynamo.explain(function, backend="eager")(*arguments).main.record
    for guard in record.guards:
        if guard.source is not None and not (isinstance(guard.source, tuple) is False and guard.source.name() == "x"):
            code = guard.check if isinstance(guard.source, tuple) else guard.code
            rows.append((function.__name__, guard.kind, code))
rows = [row for row in rows if row[2] not in seen and not seen.add(row[2])]
Table(["program", "kind", "guard"], rows)

# %% [markdown]
# Each row can be read as a question. `closure`: is the number that it closes over still 3? `attribute`:
# does `s` have its class, has that class no `scale` of its own that would win (`ABSENT`), and is the
# value the same? `length` asks for the length of the list and not for its items. `BUILTIN` and `ID`
# are about the name `len`: nobody has put another function there. `has` asks that the attribute is
# still missing. `identity` causes nothing new: a tensor and a `Settings` can never be one object.
#
# Tensors: type, dtype, shape, strides, `requires_grad` and device. `VIEW_BITS` is about two bits that
# a tensor may carry. `is_neg()`: it is negated, but nobody has computed that yet. `_is_zerotensor()`:
# it stands for zeros, without memory. The *values* are not guarded: they flow through the graph.

# %%
e = minidynamo.explain(lambda x: x + 1, backend="eager")(torch.ones(2, 3))
Table(["kind", "assumption"], [(g.kind, g.code) for g in e.main.record.guards if g.source is not None])

# %% [markdown]
# Every tensor argument has these rows. And the surroundings: grad mode, autocast, default dtype and so on, because the same Python means
# other operations under them.
#
# Drawn as a tree: the roots are parameters and objects that the entry holds, below them what was
# read from them, each with the kinds of guards on it. A value that is read twice stands there once.

# %%
e = minidynamo.explain(lambda x, s: x * s.scale + len(s.names), backend="eager")(
    torch.ones(2), Settings()
)
e.guard_tree

# %% [markdown]
# The way to `scale` goes over `s` and its `__dict__`. If `s` has another class, nobody asks further.
#
# Now change something, and ask the guards. (Use the buttons, or the arrow keys.) First nothing is
# changed, then an attribute deep in the tree, then the shape of `x`:

# %%
from steppers import guard_walk

larger = Settings()
larger.scale = 5
guard_walk(e.main.record, {"the same": (torch.ones(2), Settings()), "another scale": (torch.ones(2), larger),
                           "another shape": (torch.ones(3), Settings())})

# %% [markdown]
# What fails often is asked early: a shape is cheap to look at, and needs no way down the tree.

# %% [markdown]
# ## The guard function
#
# All guards of an entry become one Python function. Prefixes that several guards share are read
# once. It is what really runs before each call. What it compares with is kept under names that
# begin with `P_` (*pins*: while the entry lives, these objects do, so that an `is` stays
# meaningful):

# %%
e = minidynamo.explain(lambda x: x + 1, backend="eager")(torch.ones(2, 3))
e.guard_source

# %% [markdown]
# This is the function that runs before each call: one condition after the other. A false one answers
# `False`. An error is an answer too (`answer_failure`). With an object that has attributes it looks so:

# %%
e = minidynamo.explain(programs()[2], backend="eager")(torch.ones(2), Settings())
e.guard_source

# %% [markdown]
# The new lines are about `s`: its class, and the list that is found in its `__dict__`.
#
# (`layout(x)` saves work. Six guards on a tensor, one for its class, dtype, sizes, strides, device and
# bits, are one question: a function in C gives all of it as bytes, which are compared.)
#
# Any exception while checking counts as false: if `s.names` is gone, the assumption that it has
# length 2 does not hold.

# %%
from minidynamo.guards.guards import GuardFunction

excerpt(GuardFunction.first_failure)

# %% [markdown]
# It walks the same list again, and stops at the first that is false. This is for people: it runs when
# somebody wants to know *why* an entry does not fit.
#
# ## Recompilation, and when it stops
#
# When no entry fits, the frame is captured again and a second entry is added. A function that is
# called with ever new constants would compile for ever, so there is a limit, with a message.
# (Numbers that change become inputs of the graph by default, see notebook 14; `dynamic=False` keeps
# them constants.)

# %%
minidynamo.reset()

def multiplied(x, factor):
    return x * factor

compiled = minidynamo.compile(multiplied, backend="eager", dynamic=False)
with minidynamo.config.patch(recompile_limit=3):
    for factor in range(6):
        compiled(torch.ones(2), factor)
print(minidynamo.counters)

# %% [markdown]
# Three entries, and then no more. `recompiles` names the guards that failed: that is the first place to
# look. `skipped` says that the limit was reached, and what the frame does since.
#
# ## Are guards asserts?
#
# They look alike: both check something at run time. The difference is what follows when the check
# is false. An assert *stops* the program: the assumption was the programmer's. A failed guard
# *starts* something: the assumption was the compiler's, and the program is fine. So a guard must
# never be visible to the program: it may not raise, print, or change anything. And it is checked
# *before* the code runs, all of them at once; an assert stands where the programmer put it.

# %%
def positive(x, n):
    assert n > 0, "n must be positive"
    return x * n

minidynamo.reset()
compiled = minidynamo.compile(positive, backend="eager")
print(compiled(torch.ones(1), 1), compiled(torch.ones(1), 2))
try:
    compiled(torch.ones(1), -1)
except AssertionError as error:
    print("AssertionError:", error)
print("recompiles:", sum(minidynamo.counters["recompiles"].values()))

# %% [markdown]
# A guard on `n` failed twice. The first time a new entry was made; the second time evaluation met
# the program's own assert, and the program raised as it should.
#
# ## Soundness
#
# A guard that is missing is the worst kind of bug: the answer is wrong and nothing says so.
# `tests/` therefore attacks guards: compile, change *one* thing of the surroundings at random, call
# again; it must be recompiled or still right. Try it by hand:

# %%
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.scale = torch.nn.Linear(4, 4), 1.0

    def forward(self, x):
        return torch.nn.functional.dropout(self.linear(x), 0.5, self.training) * self.scale

def change_nothing(m): pass
def change_scale(m): m.scale = 3.0
def change_weight(m): m.linear.weight.data.mul_(2)
def change_module(m): m.linear = torch.nn.Linear(4, 4)
def change_mode(m): m.train()
def add_a_hook(m): m.linear.register_forward_hook(lambda module, args, output: output * 100)

rows, x = [], torch.ones(2, 4)
for change in (change_nothing, change_scale, change_weight, change_module, change_mode, add_a_hook):
    minidynamo.reset()
    model = Model().eval()
    compiled = minidynamo.compile(model, backend="eager")
    compiled(x)
    change(model)
    torch.manual_seed(1)
    got = compiled(x)
    torch.manual_seed(1)
    rows.append((change.__name__, "right" if torch.equal(got, model(x)) else "WRONG",
                 "; ".join(minidynamo.counters["recompiles"]) or "no recompilation needed"))
Table(["change", "result", "recompiled because"], rows)

# %% [markdown]
# Every row is right. Each change that could be seen in the result was seen by a guard, which the last
# column names. Where no recompilation was needed, the graph was used again: a weight's *numbers* may
# change, since the graph reads the weight.
#
# ## A real model
#
# How many guards does GPT-2 need, and of which kinds?

# %%
from collections import Counter
from benchmarks.models import gpt2

model, inputs = gpt2(layers=4)
e = minidynamo.explain(model, backend="eager")(**inputs)
Table(["kind", "guards"], Counter(g.kind for g in e.main.record.guards).most_common(10),
      f"GPT-2, 4 layers: more than {len(e.main.record.guards) // 100 * 100} guards")

# %% [markdown]
# Most are about *which objects* these are (`ID`), and about what a call of a module does besides its
# `forward`: no hooks (`NO_HOOKS`), the same code (`CODE`), the same default values (`DEFAULTS`).
#
# ## Exercises
#
# **05.1** (warm-up) *A guard by hand.* Write `guard_for(function, *args)`: a Python function of the same
# arguments that returns True as long as all of these hold: each tensor argument has the same dtype
# and shape, each other argument is equal to and of the same type as now. Otherwise it returns False.
#
# *Hints.* Build a list of facts while you look at `args`; return a closure that checks them.
# `1 == True` in Python: compare types too. A value of another type must give False, not an
# exception.

# %% tags=["exercise"]
def guard_for(function, *args):
    """A check that is true for arguments on which a graph captured with `args` may be used."""
    ### BEGIN SOLUTION
    def fact(value):
        return (type(value), value.dtype, tuple(value.shape)) if isinstance(value, torch.Tensor) else (type(value), value)

    facts = [fact(a) for a in args]
    return lambda *now: len(now) == len(facts) and [fact(a) for a in now] == facts
    ### END SOLUTION

# %% tags=["check"]
from exercises import check

check("05.1", guard_for)

# %% [markdown]
# **05.2** (core) *Who fails first?* Write `why(record, *args)`: the text of the first guard of a
# `FrameRecord` that is false for these arguments, or `"all guards hold"`.
#
# *Hints.* `record.guard_function.first_failure(None, *args)` returns `(guard, reason)` or None. The
# reason is the text.

# %% tags=["exercise"]
def why(record, *args) -> str:
    """The first guard that fails for `args`."""
    ### BEGIN SOLUTION
    found = record.guard_function.first_failure(None, *args)
    return found[1] if found else "all guards hold"
    ### END SOLUTION

# %% tags=["check"]
check("05.2", why)

# %% [markdown]
# **05.3** (stretch) *A new guard kind.* `torch.backends.mkldnn.enabled` may change which kernel runs. Write
# `mkldnn_guard()`: a `Guard` that holds as long as the flag has the value it has now. The check
# builds a guard function with it and changes the flag.
#
# *Hints.* `Guard(kind, source, check, pins)`: a guard on the surroundings has `source=None`;
# `check` is Python text; `pins` are the names it uses. Look at how `entries.state_guards`
# makes the guard for grad mode.

# %% tags=["exercise"]
from minidynamo.guards.guards import Guard

def mkldnn_guard() -> Guard:
    """A guard on torch.backends.mkldnn.enabled."""
    ### BEGIN SOLUTION
    backend = torch.backends.mkldnn
    return Guard("MKLDNN", None, f"P_mkldnn.enabled is {backend.enabled}", {"P_mkldnn": backend})
    ### END SOLUTION

# %% tags=["check"]
check("05.3", mkldnn_guard)

# %% [markdown]
# **05.4** (stretch) *A guard that lets too much through.* Write `counterexample(guard, graph, function, candidates)`: the
# first tuple of arguments in `candidates` for which `guard(*args)` is true, and for which `graph` and
# `function` differ. Return None if there is none. This is how the project tests its own guards: change
# one thing, and look whether anybody noticed.
#
# *Hints.* Results are tensors or numbers. They differ if the type does, the dtype, the shape, or a
# number. NaN is equal to NaN here. If the guard raises, it does not hold; what `function` raises is no
# result either, and a graph that gives one then differs.
#
# <details><summary>Predict: a guard compares x.shape. Which changes of x does it miss?</summary>
#
# The dtype, the device, strides, whether gradients are asked for, and a subclass of Tensor.
#
# </details>

# %% tags=["exercise"]
def counterexample(guard, graph, function, candidates: list):
    """The first arguments that the guard lets through and the graph gets wrong, or None."""
    ### BEGIN SOLUTION
    def outcome(call, args):
        try:
            return call(*args)
        except Exception as error:
            return type(error)

    def same(a, b):
        if type(a) is not type(b):
            return False
        if isinstance(a, torch.Tensor):
            return a.dtype == b.dtype and a.shape == b.shape and torch.allclose(a, b, equal_nan=True)
        return a == b or a != a and b != b

    for args in candidates:
        if outcome(guard, args) is True and not same(outcome(graph, args), outcome(function, args)):
            return args
    return None
    ### END SOLUTION

# %% tags=["check"]
check("05.4", counterexample)

# %% [markdown]
# ## Your own compiler: guards
#
# **The piece.** Every value from outside has a *source*, the text of an expression that finds it
# again. `Guards` collects checks over sources, and `build` makes one function of them. Two checks are
# yours as well: when two constants are the same, and when a tensor fits. `Capture` hands out the
# values that lie on the machine's stack, and asks `Guards` for the checks: what it makes of a
# constant, a tensor, another object, its items and attributes is yours.
#
# <details><summary>Hint: constants</summary>
#
# `1 == 1.0 == True`, and `0.0 == -0.0`, in Python. In a program each of these pairs makes a
# difference.
#
# </details>
# <details><summary>Hint: tensors</summary>
#
# Compare what the capture has looked at: class, device, dtype, gradients, shape. (Not the strides:
# the compiled program makes its inputs contiguous.) A size of `None` stands for a symbol: any size
# over 1.
#
# `Guards.tensor` adds the text of a call of `tensor_fits`. A dtype has no text of its own:
# `self.name(dtype)` gives it one. Sizes and flags can be written down as they are.
#
# </details>
# <details><summary>Hint: the whole</summary>
#
# Join the checks with `and`. A source that cannot be followed any more (a missing key, a missing
# attribute) is no error of the program's: the guard has failed.
#
# </details>
# <details><summary>Hint: what was met before</summary>
#
# `known` has the id of an object, and three things for it: its value here, its source, and the object
# itself (or its id could be used again). A second source for the same object: `{source} is {other}`.
#
# </details>
# <details><summary>Hint: sources go outwards</summary>
#
# An item lies at `{source}[{n}]`, an attribute at `{source}.{name}`, a method's function at
# `{source}.{name}.__func__`. Each is wrapped in turn. What the frame has written already (`written`) is
# found there, and a property is refused: it is code that nobody has looked at. For a method of a
# built-in class, such as `list.append`, take the function of the class: `getattr(type(...), name)`.
#
# A new symbol is `Size(size, name, self.facts)`; the graph's input has it in its shape.
#
# </details>

# %%
from exercises.own_compiler import begin

begin("guards");

# %% [markdown]
# The line names what is yours. Write it in that file, then ask for a check, as often as you like:

# %% tags=["check", "piece"]
from exercises.own_checks import check_piece

check_piece("guards")

# %% [markdown]
# ## What else lives here
#
# Every public name of this chapter's core files, with one sentence each. Unfold a file, then a name:
# its first lines are there. The list is made from the sources when the page is built.

# %% tags=["volatile"]
from minidynamo.explain import also_here

also_here(
    "minidynamo/variables/",
    "minidynamo/guards/sources.py",
    "minidynamo/guards/guards.py",
    "minidynamo/convert/entries.py",
)

# %% [markdown]
# ## What real PyTorch has
#
# * `torch/_dynamo/guards.py` and `torch/csrc/dynamo/guards.cpp`: a tree of C++ objects per entry.
#   Paper, section 3.
# * `torch/_dynamo/source.py`: one class per kind of access. `torch/_dynamo/variables/`: variables;
#   mutation is recorded beside immutable trackers.
# * Shapes that became symbolic have guards such as `x.shape[0] > 1`; notebook 14.
#
# **See it in the real `torch.compile`.** `TORCH_LOGS=guards python program.py` prints the tree of guards of each entry, with the line of yours
# that each one comes from.
#
# ## Recap
#
# * Values are lazy; looking at one creates a guard at its source.
# * An entry runs if its guard function, one generated Python function, returns True.
# * A failed guard means another entry or a recompilation; the program never notices.
#
# Next: what happens when evaluation cannot go on.
