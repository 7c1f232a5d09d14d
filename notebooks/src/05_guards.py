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
# While it evaluates a function, minidynamo makes assumptions: `flag` is true, the list has three
# entries, `x` is float32. The graph is right only as long as these assumptions hold. A **guard** is
# such an assumption, written as a check on the inputs. To write the check, the compiler must know
# where each value came from: its **source**.
#
# **What you will learn:** how lazy values avoid guards; how sources form a tree; what is guarded
# and what is not; what the generated guard function looks like; when recompilation stops; how
# guards differ from asserts.
#
# **Files of this chapter:** `minidynamo/variables/`, `minidynamo/guards/sources.py`,
# `minidynamo/guards/guards.py`, `minidynamo/convert/entries.py`.

# %%
import torch

import minidynamo
from minidynamo.explain import Table

torch.manual_seed(0)
torch.set_grad_enabled(False);

# %% [markdown]
# ## The naive version: key the cache by the arguments
#
# The staging of chapter 01 used the shapes and dtypes of the arguments as the key of its cache. But
# a Python function may depend on more than its arguments:

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
# A key made of *everything* (all globals and all attributes, recursively) would be right, but
# computing it would take longer than the function. minidynamo notes only what the evaluator *looked
# at*. The cell changes the item that `scaled` reads, and then adds one that `scaled` does not read.
# (`backend="eager"` runs the captured graph by eager kernels, since this chapter needs no generated
# code.)
# <!-- shows: has("eager: tensor([10., 10.])") and has("staged: tensor([2., 2.]) <- wrong") -->

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
# Only the change of the item that `scaled` reads caused a recompilation. The last line shows the
# guard that failed. (`P_G___main__` is the dictionary of this notebook's globals.)
# <!-- shows: n("recompiles:") == 1 and has("['scale'] == 2.0") -->
#
# *The kitchen.* Someone wrote the recipe while watching the cook, and added in the margin: "the
# oven was at 180 degrees; there were four eggs". Before using the recipe again, read the margin.
# *Exactly:* a guard is a Boolean expression over the function's arguments and surroundings. A cache
# entry may run if all of its guards are true.
#
# ## Lazy values
#
# How does minidynamo know what the evaluator looked at? It wraps each argument as a `Lazy` value
# and assumes nothing about it. The first operation that needs the value calls `realize`, which
# makes a variable of the right class and adds its guards. (`tx` is the frame that is being
# evaluated, and `tx.output` holds its graph and its guards.)

# %%
from minidynamo.variables.base import Lazy
from parts import part

part(Lazy, ("def __init__", "self.variable"), ("def realize", "return"))

# %% [markdown]
# The next function has three parameters and never looks at the second, `ignored`. The table shows
# the guards of its entry, without those on PyTorch's settings. (A name that begins with `P_` is an
# object that the guard compares with. `P_Tensor` is the class `torch.Tensor`, for example.)
# <!-- shows: has("class Lazy") -->

# %%
def uses_one(x, ignored, flag):
    if flag:
        return x + 1
    return ignored

e = minidynamo.explain(uses_one, backend="eager")(torch.ones(2), object(), True)
Table(["kind", "assumption"], [(g.kind, g.code) for g in e.main.record.guards if g.source is not None])

# %% [markdown]
# `ignored` has no guard. `flag` has one, since the `if` used its value. The last two rows protect
# the meaning of `+`. `__mro__` is the list of classes in which Python looks for a method, and the
# last row checks that nobody has given `Tensor` an `__add__` of its own. The other rows are
# explained below.
# <!-- shows: not has("ignored") and has("EQUALS flag is True") and has("MRO") -->
#
# ## Sources: where did a value come from?
#
# Each value that was read from somewhere carries a `Source`. Sources form a tree: a parameter, then
# one of its attributes, then an item of that attribute, and so on. minidynamo uses this tree twice:
# to write guards, and to load the value again in the replacement code. The cell builds one source
# by hand. Its table lists nine kinds of access, with the Python text of each:

# %%
from minidynamo.guards.sources import KINDS, SourceTree

tree = SourceTree()
source = tree.local("self").attr("layers").item(0).attr("weight")
print(source.name())
Table(["kind", "written as"], list(KINDS.items())[:9], "how an access is written ({p}: the parent, {k}: the key)")

# %% [markdown]
# The text of a guard is made of such accesses. `free` reads a variable of an enclosing function.
# The `pinned` kinds name an object that the entry holds, such as the dictionary of the globals.
#
# ## What gets guarded
#
# Different Python operations cause different guards. The table below has seven small programs and
# the guards of each. It leaves out the guards that every entry has, and guards that a program above
# has caused already:

# %%
import re

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

rows = {}                                                       # each guard once
for function in programs():
    arguments = (torch.ones(2),) if function.__name__ == "closure" else (torch.ones(2), Settings())
    for guard in minidynamo.explain(function, backend="eager")(*arguments).main.record.guards:
        several = isinstance(guard.source, tuple)               # a guard may look at several values
        if guard.source is None or (not several and guard.source.name() == "x"):
            continue                                            # the thread's state, or the tensor
        text = re.sub(r"(P_\w+?)_\d+\b", r"\1", guard.check if several else guard.code)    # P_tuple_1: P_tuple
        rows.setdefault(text, (function.__name__, guard.kind, text))
Table(["program", "kind", "guard"], list(rows.values()))

# %% [markdown]
# Read the rows program by program:
#
# * `closure` checks that the number from the enclosing function is still 3.
# * `attribute` checks the class of `s` and the value of `s.scale`. The `ABSENT` guards make sure
#   that Python would still find `scale` there: a `scale` or a `__getattribute__` in the class would
#   come first.
# * `length` checks the length of the list, but not its items. Its guards `BUILTIN` and `ID` check
#   that the name `len` still means Python's `len`.
# * `type_test` checks that the name `Settings` still means the same class.
# * `has` checks that the attribute `missing` is still missing.
# * `key` checks the one item that `in` looked at.
# * `identity` adds no guard, since a tensor and a `Settings` can never be the same object.
#
# A tensor has guards of its own. The next table has those of `x` in `x + 1`:

# %%
e = minidynamo.explain(lambda x: x + 1, backend="eager")(torch.ones(2, 3))
Table(["kind", "assumption"], [(g.kind, g.code) for g in e.main.record.guards if g.source is not None])

# %% [markdown]
# Every tensor argument has these guards. `VIEW_BITS` checks two flags of a tensor: `is_neg()` marks
# a negation that was not computed yet, and `_is_zerotensor()` marks zeros that have no memory. The
# *values* of a tensor have no guard, since they flow through the graph.
# <!-- shows: has("VIEW_BITS") -->
#
# Every entry also has guards on its surroundings, such as grad mode, autocast and the default
# dtype. These settings change what a PyTorch operation does.
#
# The picture shows the guards of one entry as a tree. Its roots are the parameters and the objects
# that the entry holds. The values that were read from a root are below it, with the kinds of their
# guards:

# %%
e = minidynamo.explain(lambda x, s: x * s.scale + len(s.names), backend="eager")(
    torch.ones(2), Settings()
)
e.guard_tree

# %% [markdown]
# The path to `scale` leads through `s` and its `__dict__`. If the guard on `s` fails, nothing below
# `s` is checked.
# <!-- shows: has("s.__dict__['scale']") -->
#
# The next cell runs these guards one after the other on three calls. (Use the buttons or the arrow
# keys.) The first call changes nothing, the second changes an attribute deep in the tree, and the
# third changes the shape of `x`:

# %%
from steppers import guard_walk

larger = Settings()
larger.scale = 5
guard_walk(e.main.record, {"the same": (torch.ones(2), Settings()), "another scale": (torch.ones(2), larger),
                           "another shape": (torch.ones(3), Settings())})

# %% [markdown]
# The guards on `x` come first, since shapes change often and are cheap to check.
# <!-- shows: has("1. the same: nothing was asked yet. 2. the same: all checks on x hold.") -->

# %% [markdown]
# ## The guard function
#
# minidynamo generates one Python function from all guards of an entry. This function runs before
# each call. Its first parameter, `this_function`, is the compiled function itself. Two kinds of
# generated names occur in it:
#
# * `P_...` are *pins*: objects that the entry keeps alive, so that a comparison by `is` stays
#   meaningful.
# * `state_...` are settings of PyTorch at the time of the capture. `state_grad_mode` says whether
#   gradients were enabled.
#
# `layout(x)` is a function in C. It returns the class, dtype, sizes, strides, device and flags of a
# tensor as one sequence of bytes, so one comparison replaces seven guards. `still` is another
# function in C, for values that are stored in a module. It asks whether any dictionary on the way
# to these values was written to since the last check. If none was, `still` compares only the
# layouts of the parameters, and the other guards on the module are skipped.

# %%
e = minidynamo.explain(lambda x: x + 1, backend="eager")(torch.ones(2, 3))
e.guard_source

# %% [markdown]
# The function evaluates one condition after the other and returns `False` at the first that is
# false. An exception counts as false as well (`answer_failure`). The guard function of `length` has
# an object with attributes among its arguments:
# <!-- shows: has("return answer_failure(error)") and has("return False") -->

# %%
e = minidynamo.explain(programs()[2], backend="eager")(torch.ones(2), Settings())
e.guard_source

# %% [markdown]
# The variables `v13` and `v14` hold values on the path to the list, so that several guards can
# share them. If `s.names` no longer exists, reading it raises an exception, and the guard is false.
# <!-- shows: has("v13 = s.__dict__") and has("v14 = v13['names']") -->
#
# The generated function only says True or False. To explain a recompilation to people,
# `first_failure` checks the guards again and returns the first that is false, with its text. Here
# the list has grown:

# %%
longer = Settings()
longer.names.append("c")
guard, reason = e.main.record.guard_function.first_failure(None, torch.ones(2), longer)
reason

# %% [markdown]
# ## Recompilation, and when it stops
#
# If no entry fits, minidynamo captures the frame again and adds an entry. A function that gets a
# new constant in each call would be compiled in each call. So the number of entries has a limit.
# The cell sets it to 3. (By default, a number that changes becomes an input of the graph, as
# chapter 14 shows. Here `dynamic=False` keeps it a constant.)

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
# minidynamo compiled the function three times and then gave up. If your own program is slow, look
# at `recompiles` first: it names the guards that failed. `skipped` says that the limit was reached.
# <!-- shows: n("frames:") == 3 and has("was compiled 3 times (config.recompile_limit)") -->
#
# ## Are guards asserts?
#
# Both check something at run time, but they differ in what happens when the check fails. An assert
# states an assumption of the *programmer*. If it is false, the program has a bug, and the assert
# stops it. A guard states an assumption of the *compiler*. If it is false, the program is fine, and
# the compiler needs another entry. So the program must never notice a guard: a guard may not raise,
# print, or change anything. All guards are checked *before* the code runs, while an assert runs
# where the programmer put it.
#
# The function below has an assert of its own on `n`, and minidynamo adds a guard on `n`:

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
# A guard on `n` failed twice. The first time, minidynamo compiled a new entry. The second time, the
# program's own assert failed, and the program raised its error as in eager mode.
# <!-- shows: n("recompiles:") == 2 and has("AssertionError: n must be positive") -->
#
# ## Soundness
#
# A missing guard is the worst kind of bug: the result is wrong, and no error says so. The tests of
# this project therefore attack the guards. They compile a program, change *one* thing at random,
# and call the program again. The second result must be right, with or without a recompilation. The
# cell does the same by hand, with six changes of a model:

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
# Every result is right. Four of the changes made a guard fail, which the last column names. After
# the other two the old graph was still right: it reads the weight in each call, so the *numbers* in
# the weight may change.
# <!-- shows: count("right") == 6 and count("no recompilation needed") == 2 -->
#
# ## A real model
#
# How many guards does GPT-2 with four layers need? The table has the ten most frequent kinds:

# %%
from collections import Counter
from benchmarks.models import gpt2

model, inputs = gpt2(layers=4)
e = minidynamo.explain(model, backend="eager")(**inputs)
Table(["kind", "guards"], Counter(g.kind for g in e.main.record.guards).most_common(10),
      f"GPT-2, 4 layers: more than {len(e.main.record.guards) // 100 * 100} guards")

# %% [markdown]
# The most frequent kind, `ID`, checks that a name still means the same object. Three others protect
# the calls of modules and functions: no hooks were added (`NO_HOOKS`), and default values
# (`DEFAULTS`) and code (`CODE`) are the same.
# <!-- shows: n("ID  ") > n("NO_HOOKS") and has("DEFAULTS") and has("CODE") -->
#
# ## Exercises
#
# **05.1** (warm-up) *A guard by hand.* Write `guard_for(function, *args)`. It returns a guard: a
# Python function of the same arguments. The guard returns True if each tensor argument has the same
# dtype and shape as now, and each other argument has the same type and value as now. Otherwise it
# returns False.
#
# *Hints.* Build a list of facts about `args`, and return a closure that checks them. `1 == True` in
# Python, so compare types too. For a value of another type the guard must return False and must not
# raise.

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
# **05.2** (core) *Which guard fails first?* The `record` of an entry was `e.main.record` above.
# Write `why(record, *args)`. It returns the text of the first guard that is false for these
# arguments, or `"all guards hold"`.
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
# **05.3** (stretch) *A new guard kind.* `torch.backends.mkldnn.enabled` may change which kernel
# runs. Write `mkldnn_guard()`. It returns a `Guard` that holds as long as the flag has its current
# value. The check builds a guard function with your guard and then changes the flag.
#
# *Hints.* Call `Guard(kind, source, check, pins)`. A guard on the surroundings has `source=None`.
# `check` is Python text, and `pins` is a dictionary of the names in this text. See how
# `state_guards` in `minidynamo/convert/entries.py` makes the guard for grad mode.

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
# **05.4** (stretch) *A guard that lets too much through.* Write `counterexample(guard, graph,
# function, candidates)`. It returns the first tuple of arguments in `candidates` that the guard
# lets through although `graph` and `function` give different results. If there is none, it returns
# None. This project tests its own guards in the same way: it changes one thing and looks whether a
# guard noticed.
#
# *Hints.* Results are tensors or numbers. Two results differ if their types, dtypes, shapes or
# numbers differ. Here NaN equals NaN. A guard that raises does not hold. If `function` raises and
# `graph` returns a result, they differ.
#
# <details><summary>Predict: a guard compares x.shape only. Which changes of x does it miss?</summary>
#
# It misses the dtype, the device, the strides, `requires_grad`, and a subclass of Tensor.
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
# **The piece.** Every value from outside has a *source*, the text of an expression that finds the
# value again. `Guards` collects checks over sources, and `build` makes one function of all checks.
# You also write two of the checks: whether two constants are the same, and whether a tensor fits.
# `Capture` wraps values from outside for the machine's stack and asks `Guards` for the checks. You
# write how it wraps constants, tensors, other objects, and the items and attributes of objects.
# The curious also write `Capture.symbol`, which makes a symbol of a size that changes (chapter 14).
#
# <details><summary>Hint: constants</summary>
#
# In Python `1 == 1.0 == True`, and `0.0 == -0.0`. In a program each of these values may give a
# different result.
#
# </details>
# <details><summary>Hint: tensors</summary>
#
# Compare what the capture has looked at: class, device, dtype, gradients and shape. (Leave out the
# strides, since the compiled program makes its inputs contiguous.) A size of `None` means a symbol:
# it fits any size over 1.
#
# `Guards.tensor` adds the text of a call of `tensor_fits`. A dtype has no text of its own, so
# `self.name(dtype)` makes a name for it. Sizes and flags are their own text.
#
# </details>
# <details><summary>Hint: the guard function</summary>
#
# Join the checks with `and`. If a source cannot be followed any more (a missing key, a missing
# attribute), the guard has failed. The program must not see the exception.
#
# </details>
# <details><summary>Hint: objects that were wrapped before</summary>
#
# `known` is a dictionary from the id of an object to three things: its wrapped value, its source,
# and the object itself. (Keeping the object makes sure that no other object gets its id.) If an
# object has a second source, add the check `{source} is {other}`.
#
# </details>
# <details><summary>Hint: sources go outwards</summary>
#
# The source of an item is `{source}[{n}]`, of an attribute `{source}.{name}`, and of a method's
# function `{source}.{name}.__func__`. Wrap each of these values in turn. Look first in `written`,
# which has what the frame itself has written. Refuse a property, since the evaluator has not seen
# its code. For a method of a built-in class, such as `list.append`, take the function of the class:
# `getattr(type(...), name)`.
#
# </details>

# %%
from exercises.own_compiler import begin

begin("guards");

# %% [markdown]
# The output names your functions. Write them in that file, and run the check as often as you like:

# %% tags=["check", "piece"]
from exercises.own_checks import check_piece

check_piece("guards")

# %% [markdown]
# ## What else lives here
#
# The list below has every public name of this chapter's core files, with one sentence each. Unfold
# a file, then a name, to see its first lines. The list is made from the sources when the page is
# built.

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
# * `torch/_dynamo/guards.py` and `torch/csrc/dynamo/guards.cpp` build a tree of C++ objects per
#   entry. Paper, section 3.
# * `torch/_dynamo/source.py` has one class per kind of access. `torch/_dynamo/variables/` has the
#   variables.
# * A symbolic size has guards such as `x.shape[0] > 1` (chapter 14).
#
# **See it in the real `torch.compile`.** `TORCH_LOGS=guards python program.py` prints the tree of
# guards of each entry. Each guard names the line of your program that caused it.
#
# ## Recap
#
# * Values are lazy. Looking at one creates a guard on its source.
# * An entry runs if its guard function, one generated Python function, returns True.
# * If a guard fails, another entry runs or the frame is compiled again. The program never notices.
#
# Next: what happens when the evaluation cannot go on.
