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
# # 03 · The frame hook: asking CPython for every function call
#
# `minidynamo.compile(f)` returns something that behaves like `f`. When it is called, minidynamo has
# to get between Python and the function *and the functions that it calls*, see their bytecode, and
# let something else run instead. CPython has a door for this: PEP 523.
#
# **What you will learn:** what a frame and a code object are; why wrapping functions is not enough;
# PEP 523; how our hook swaps a code object; the per-code cache; why the hook costs nothing when it
# is off.
#
# **Files of this chapter:** `minidynamo/frame/frame_hook.c`, `minidynamo/frame/frame_hook.py`,
# `minidynamo/convert/convert_frame.py`, `minidynamo/convert/entries.py`.

# %%
import dis
import time

import torch

import minidynamo
from minidynamo.frame import frame_hook
from minidynamo.explain import Code, Table, excerpt

torch.manual_seed(0)
torch.set_grad_enabled(False);

# %% [markdown]
# ## A call in CPython
#
# A function object points to a **code object**: bytecode, constants, names. Calling it creates a
# **frame**: the code object, an array of local variables, a value stack, and the place where
# execution stands. The evaluator then runs the frame.

# %%
def area(width, height):
    product = width * height
    return product

code = area.__code__
Table(["field of the code object", "value"],
      [("co_name", code.co_name), ("co_varnames", code.co_varnames), ("co_consts", code.co_consts),
       ("co_stacksize", code.co_stacksize), ("bytes of bytecode", len(code.co_code))])

# %% [markdown]
# The code object knows names and sizes. It knows no values: those belong to the frame.

# %%
dis.dis(area)

# %% [markdown]
# The columns: line of the source, place in the bytecode, instruction, its argument. `RESUME` marks
# where a frame starts and does nothing.
#
# *The kitchen.* The code object is the recipe card; a frame is one cook at one stove with that
# card, a finger on the current line and bowls on the counter. *Exactly:* one code object, many
# frames; recursion has several at once.
#
# ## The naive version: a wrapper
#
# Why not a decorator that looks at the arguments and decides?

# %%
log = []

def naive_compile(function):
    def wrapper(*args):
        log.append(function.__name__)       # here one could compile and run something else
        return function(*args)
    return wrapper

def inner(x):
    return torch.relu(x)

@naive_compile
def outer(x):
    print("a graph break")                  # cannot be captured ...
    return inner(x) + 1                     # ... but what follows, and `inner`, could be

outer(torch.randn(3))
log

# %% [markdown]
# `outer` cannot be captured as a whole, so the wrapper has to give it up as a whole: it never
# learns about `inner`, nor can it compile *the rest* of `outer` after the `print`. We need to be
# asked about every frame that runs inside.
#
# ## PEP 523
#
# CPython keeps a function pointer per interpreter: "evaluate this frame". An extension may replace
# it. Ours is in `minidynamo/frame/frame_hook.c`; here is what it looks like from Python. The callback is
# asked once about each new code object:

# %%
asked = []

def callback(function, code, args):
    asked.append((code.co_name, args))
    frame_hook.set_cache(code, None)        # from now on, leave this code alone
    return None                             # nothing to run instead

def helper(a):
    return a + 1

def program(a):
    return helper(a) * helper(a + 10)

hooked = frame_hook.enabled(program, callback)
print(hooked(1))
asked

# %% [markdown]
# `helper` was seen although nobody wrapped it, and it was asked about *before its first instruction
# ran*, with its arguments bound. It was asked about once, because the callback said "leave it
# alone".
#
# ## Swapping the code
#
# A callback may answer with `(guard, code)`. If `guard(function, *args)` is true, the frame runs
# `code` instead. Same parameters, other instructions:

# %%
def slow_double(x):
    total = x
    for _ in range(1):
        total = total + x
    return total

def fast_double(x):
    return x * 2

def replace(function, code, args):
    if code is slow_double.__code__:
        return (lambda function, x: isinstance(x, int)), fast_double.__code__
    return None

hooked = frame_hook.enabled(slow_double, replace)
print(hooked(21), "- and what ran was fast_double:", frame_hook.get_cache(slow_double.__code__)[0][1].co_name)

# %% [markdown]
# For a string the guard is false. So the callback is asked again. It answers with one more entry of
# the same kind. The new code runs at once: the callback has seen the arguments, so nobody asks the
# guard about them. Our naive callback never looked. So each such call adds one more useless entry:

# %%
print(hooked("ab"), hooked(1.5))
print(len(frame_hook.get_cache(slow_double.__code__)), "entries in the cache of this code object")

# %% [markdown]
# That the guard is not asked about the frame for which the entry was made can be shown. Here is a
# guard that is never true:

# %%
def original(x):
    return "the original"

def other(x):
    return "the replacement"

def hasty(function, code, args):
    return ((lambda *_: False), other.__code__) if code is original.__code__ else None

print(frame_hook.enabled(original, hasty)(1))

# %% [markdown]
# The whole decision, drawn from the cache of `slow_double` as it is now:

# %%
from minidynamo.explain.draw_code import draw_cache

draw_cache(slow_double)

# %% [markdown]
# Read it from the top. The guards are asked one after the other. The callback is asked only where all
# of them say no.
#
# The same decision, step by step, with a callback that looks at its arguments. (Use the buttons, or
# the arrow keys.) Each guard was really asked, and each call really made:

# %%
from steppers import call_walk

def added_to_itself(x):
    return x + x

def of_int(x):
    return 2 * x

def of_text(x):
    return x * 2

def careful(function, code, args):
    kind, known = type(args[0]), {int: of_int, str: of_text}
    if code is added_to_itself.__code__ and kind in known:
        return (lambda function, x: type(x) is kind), known[kind].__code__
    return None

hooked = frame_hook.enabled(added_to_itself, careful)
call_walk(added_to_itself, hooked, [(21,), (4,), ("ab",), (1.5,), (7,)])

# %% [markdown]
# See what happens for `1.5`: every guard is asked, the callback says nothing, and the original runs.
#
# The C side, where it happens: the code object in the frame is replaced before the evaluator
# starts.

# %%
import re
from pathlib import Path

text = (Path(minidynamo.__file__).parent / "frame/frame_hook.c").read_text()
header = text[:text.index("*/") + 2]
Code(header, "c", "frame_hook.c, its header")

# %% [markdown]
# The header says what comes in and what goes out, as each file of ours does. What differs between the
# versions of CPython stands behind it. Here is where a frame keeps its code, in 3.13 and in 3.12:

# %%
start = text.index("#  if PY_VERSION_HEX >= 0x030D0000")
Code(text[start:text.index("#  endif", start) + 8], "c", "frame_hook.c, CPython 3.12 and 3.13")

# %% [markdown]
# `swap_code` is the whole trick: the frame gets another code object, and its instruction pointer is set
# to the beginning of it.
#
# PyTorch builds a second frame (a "shadow frame") for the replacement code, copies the arguments,
# and frees it afterwards. We point the frame that is already there at other code. That is possible
# because a frame that has not run yet holds nothing but its arguments.
#
# ## Three details that make it sound
#
# 1. **Once per code object.** The cache hangs on the code object itself (`_PyCode_SetExtra`), so a
#    lookup is a pointer away.
# 2. **Per thread.** The callback is thread-local. A thread that did not ask for compilation is not
#    affected.
# 3. **The hook's own Python runs without the hook**: guards, callbacks, and the compiler would
#    otherwise compile themselves.

# %%
import threading

def who(x):
    return threading.current_thread().name

asked.clear()
hooked = frame_hook.enabled(lambda: who(1), callback)
other = threading.Thread(target=who, args=(1,))
hooked(), other.start(), other.join()
[name for name, _ in asked]

# %% [markdown]
# Only the frames of the hooked thread were seen: the lambda, its `who`, and what `who` called in
# the `threading` module.
#
# ## What it costs
#
# When the evaluator pointer is replaced, *every* Python call in the process goes through our
# function first. So it is installed only while some thread is inside a compiled call, and removed
# when the last one leaves. Outside, Python runs at full speed:

# %% tags=["volatile"]
def fib(n):
    return n if n < 2 else fib(n - 1) + fib(n - 2)

def seconds(function, repeats=7):
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return sorted(times)[repeats // 2]

before = seconds(lambda: fib(20))
inside = seconds(frame_hook.enabled(lambda: fib(20), callback))
after = seconds(lambda: fib(20))
print(f"before {before * 1e3:.2f} ms   with the hook on {inside * 1e3:.2f} ms   after {after * 1e3:.2f} ms")

# %% [markdown]
# The middle figure is the price of being asked; the other two should be alike.
#
# ## The real thing
#
# minidynamo's callback is `FrameCompiler`. Its first question is whether to leave the frame alone:

# %%
from minidynamo.convert import convert_frame

excerpt(convert_frame.skip_reason)

# %% [markdown]
# Each question is about the file that the code comes from. `OURS`, `TORCH`, `NUMPY` and `STANDARD` are
# the folders of these packages, and `SITE` is where installed packages lie. The programs in `BENCH`
# lie in our folder, but count as a user's. Of torch the `forward` of its layers and the `step` of its
# optimizers are compiled (`is_compiled_torch`).
#
# On a real model: which frames does it see when GPT-2 runs, and what becomes of them?

# %%
from benchmarks.models import gpt2

model, inputs = gpt2(layers=2)
e = minidynamo.explain(model)(**inputs)
modules = {n.meta.get("module_path") for n in e.main.record.graph.graph.nodes} - {None, ""}
print(len(e.frames), "frame was compiled; the", len(modules), "modules inside it were inlined by the symbolic evaluator, not by the hook")
e

# %% [markdown]
# One row, for the whole model. Now look at its cache, after one more call with a longer text.
# (`forward` is wrapped in a decorator of transformers, so the frame is called `wrapper`.) The first
# guard failed, so the callback was asked again. Why the second entry fits *all* further lengths is the subject of notebook 14:

# %%
longer = {name: torch.cat([value, value], 1) for name, value in inputs.items()}
e.compiled_function(**longer)
draw_cache(e.main.record.code)

# %% [markdown]
# Two entries: the first is for one length, the second for all others.
#
# ## Exercises
#
# **03.1** (warm-up) Write `count_calls(function, *args)`: run `function(*args)` under the hook and return
# `{name: how often a frame with that name was started}`.
#
# *Hints.* A callback that returns `None` *without* calling `set_cache` is asked again for the next
# frame of that code. Leave the hooked function itself in the count.

# %% tags=["exercise"]
def count_calls(function, *args) -> dict:
    """How often each function was called inside `function(*args)`."""
    ### BEGIN SOLUTION
    counts = {}

    def callback(function, code, args):
        counts[code.co_name] = counts.get(code.co_name, 0) + 1
        return None

    frame_hook.enabled(function, callback)(*args)
    return counts
    ### END SOLUTION

# %% tags=["check"]
from exercises import check

check("03.1", count_calls)

# %% [markdown]
# **03.2** (core) *A memo in the frame hook.* Write `memoising(function, result_of)`: a hooked version of a
# one-argument function. When its argument is an `int` that is a key of the dictionary `result_of`,
# a replacement that returns the stored result runs; otherwise the function itself.
#
# *Hints.* Build one replacement per known argument. It must have the parameters of the function, so
# the stored result cannot be one more parameter with a default. It can be a constant: compile source
# text with `repr(value)` in it (`exec`), or use `stored.__code__.replace(co_consts=...)`. The
# guard asks whether `n` is an `int` (`type(n) is int`, since `1 == 1.0 == True`) and equals the key.
# The callback is asked again whenever no entry's guard holds. It has to look at the argument itself:
# its answer runs at once.

# %% tags=["exercise"]
def memoising(function, result_of: dict):
    """`function`, answered from `result_of` where the argument is known."""
    ### BEGIN SOLUTION
    def callback(called, code, args):
        if code is not function.__code__ or type(args[0]) is not int or args[0] not in result_of:
            return None
        key, scope = args[0], {}
        (name,) = code.co_varnames[:1]
        exec(f"def stored({name}): return {result_of[key]!r}", scope)
        return (lambda called, n: type(n) is int and n == key), scope["stored"].__code__
    return frame_hook.enabled(function, callback)
    ### END SOLUTION

# %% tags=["check"]
check("03.2", memoising)

# %% [markdown]
# **03.3** (core) *The decision.* Write what the C code does with a call. `run(cache, function, args, callback)` gets a
# list of entries `(guard, code)`, and returns what ran: a code, or `"original"`. The first entry whose
# guard is true runs. If none is, `callback(args)` is asked. It answers with an entry or None. An entry
# is added to the cache, at its end, and runs at once: its guard is not asked.
#
# *Hints.* `guard(function, *args)`, as above. Change the list in place.
#
# <details><summary>Predict: a guard that is never true. How many entries after four calls?</summary>
#
# Four. Each call asks the callback again, and each answer is one more entry. That is why a real
# compiler stops after some.
#
# </details>

# %% tags=["exercise"]
def run(cache: list, function, args: tuple, callback):
    """What runs: the code of an entry, or "original"."""
    ### BEGIN SOLUTION
    for guard, code in cache:
        if guard(function, *args):
            return code
    entry = callback(args)
    if entry is None:
        return "original"
    cache.append(entry)
    return entry[1]
    ### END SOLUTION

# %% tags=["check"]
check("03.3", run)

# %% [markdown]
# **03.4** (stretch) *In its place.* Write `with_other(program, old, new)`: a hooked version of `program` in which every
# call of `old`, however deep, runs the code of `new`. Nothing is assigned: `old` itself and all
# globals stay as they are, and outside of the hooked call `old` runs.
#
# *Hints.* The callback answers for one code object only. Which guard is right when the arguments do
# not matter?

# %% tags=["exercise"]
def with_other(program, old, new):
    """`program`, with the code of `new` wherever `old` is called."""
    ### BEGIN SOLUTION
    def callback(function, code, args):
        if code is not old.__code__:
            return None
        return (lambda function, *args: True), new.__code__
    return frame_hook.enabled(program, callback)
    ### END SOLUTION

# %% tags=["check"]
check("03.4", with_other)

# %% [markdown]
# ## Your own compiler: the hook
#
# **The piece.** `compile(function)` returns the function with the hook switched on, and
# `Compiler.frame` is the callback: it answers with an entry, or leaves the frame to Python. It must
# leave a library's code alone, try nothing twice in vain, and give up after eight entries.
#
# <details><summary>Hint: start</summary>
#
# `frame_hook.enabled(function, callback)` is the function under the hook. Keep the bound method in
# an attribute: the hook compares callbacks by identity.
#
# </details>
# <details><summary>Hint: entries</summary>
#
# `split` is a function of chapter 06, and the reference stands in for it until then. Call it with
# the frame's function, its code, its arguments, and the list of this code's earlier entries. It
# returns an `Entry`, or a text that says why not. An `Entry` has a `guard` and a `replacement`, the
# code to run; its `code` is the code that it was made for. An entry for the hook is `(guard, code, callback)`.
#
# </details>
# <details><summary>Hint: leaving alone</summary>
#
# `set_cache(code, None)` would mean "never ask again" for every compiler in the process, minidynamo
# too. Remember in `left_alone` what is left to Python, and why. Entries that are there still run: the
# callback is only asked where none of them fits.
#
# </details>

# %%
from exercises.own_compiler import begin

begin("hook");

# %% [markdown]
# The line names what is yours. Write it in that file, then ask for a check, as often as you like:

# %% tags=["check", "piece"]
from exercises.own_checks import check_piece

check_piece("hook")

# %% [markdown]
# ## What else lives here
#
# Every public name of this chapter's core files, with one sentence each. Unfold a file, then a name:
# its first lines are there. The list is made from the sources when the page is built.

# %% tags=["volatile"]
from minidynamo.explain import also_here

also_here(
    "minidynamo/frame/frame_hook.py",
    "minidynamo/convert/convert_frame.py",
    "minidynamo/convert/entries.py",
)

# %% [markdown]
# ## What real PyTorch has
#
# * `torch/csrc/dynamo/eval_frame.c`, `cache_entry.cpp`, `extra_state.cpp`: the hook, with a C++
#   guard tree and shadow frames.
# * `torch/_dynamo/eval_frame.py`: the Python side; `torch/_dynamo/convert_frame.py` is the
#   callback.
# * CPython's side is `_PyInterpreterState_SetEvalFrameFunc` (PEP 523; paper, section 3). 3.11,
#   3.12 and 3.13 each changed the frame's layout.
# * Generators and coroutines: PyTorch compiles some; here their frames always run as they are.
#
# **See it in the real `torch.compile`.** `TORCH_LOGS=dynamo python program.py` prints a line for each frame that the hook hands over.
# `TORCH_LOGS=recompiles` says why an entry did not fit.
#
# ## Recap
#
# * The hook sees every frame of its thread before the first instruction, with the arguments bound.
# * A cache entry is a guard and a code object with the same parameters; the frame is pointed at it.
# * The hook is installed only while a compiled call is running.
#
# Next: what the callback does with the bytecode.
