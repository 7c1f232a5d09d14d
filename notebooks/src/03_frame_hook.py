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
# `minidynamo.compile(f)` returns a function that behaves like `f`. When that function is called,
# minidynamo must see the bytecode of `f` *and of the functions that `f` calls*, and it must be able
# to run other code in their place. CPython has an interface for this: PEP 523.
#
# **What you will learn:** what a frame and a code object are; why wrapping functions is not enough;
# what PEP 523 offers; how our hook swaps a code object; how the cache of a code object works; why
# the hook costs nothing when it is off.
#
# **Files of this chapter:** `minidynamo/frame/frame_hook.c`, `minidynamo/frame/frame_hook.py`,
# `minidynamo/convert/convert_frame.py`, `minidynamo/convert/entries.py`.

# %%
import dis
import time

import torch

import minidynamo
from minidynamo.frame import frame_hook
from minidynamo.explain import Code, Table

torch.manual_seed(0)
torch.set_grad_enabled(False);

# %% [markdown]
# ## A call in CPython
#
# A function object points to a **code object**, which holds bytecode, constants and names. A call
# of the function creates a **frame**. The frame holds the code object, the local variables, a stack
# of values, and the position of the next instruction. CPython's *evaluator* then runs the frame.

# %%
def area(width, height):
    product = width * height
    return product

code = area.__code__
Table(["field of the code object", "value"],
      [("co_name", code.co_name), ("co_varnames", code.co_varnames), ("co_consts", code.co_consts),
       ("co_stacksize", code.co_stacksize), ("bytes of bytecode", len(code.co_code))])

# %% [markdown]
# The code object knows names and sizes, but no values of variables: those belong to the frame. The
# module `dis` prints the bytecode. The columns are the line of the source, the position in the
# bytecode, the instruction, and its argument:

# %%
dis.dis(area)

# %% [markdown]
# `RESUME` marks the start of a frame and does nothing else.
# <!-- shows: count("RESUME") == 1 -->
#
# *The kitchen.* The code object is the recipe card. A frame is one cook at one stove with that
# card, a finger on the current line, and bowls on the counter. *Exactly:* one code object can have
# many frames. A recursive function has several at once.
#
# ## The naive version: a wrapper
#
# Why not use a decorator that looks at the arguments and decides what to run? The cell wraps
# `outer` in one and logs each function that the wrapper sees:

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
# The log has `outer` only. `outer` cannot be captured as a whole, so the wrapper must give it up as
# a whole. The wrapper never learns of `inner`, and it cannot compile *the rest* of `outer` after
# the `print`. We need a mechanism that sees every frame inside the call.
# <!-- shows: has("['outer']") -->
#
# ## PEP 523
#
# CPython calls the evaluator through a function pointer, and an extension may replace this pointer.
# The extension of minidynamo is `minidynamo/frame/frame_hook.c`, the *hook*. Before a frame runs,
# the hook calls a Python function, the *callback*, with the frame's function, its code object and
# its arguments. The callback below only keeps a record. Its call `set_cache(code, None)` tells the
# hook never to ask about this code object again:

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
# The hook saw `helper`, although nobody had wrapped it. It asked *before the first instruction of
# `helper` ran*, when the arguments were already bound. `helper` was called twice. The hook asked
# about the first call only, because of `set_cache`.
# <!-- shows: has("('helper', (1,))") and count("helper") == 1 -->
#
# ## Swapping the code
#
# A callback may also answer with an *entry*: a pair `(guard, code)`. The frame then runs `code`,
# which must have the same parameters as the original. The hook keeps the entry in a cache that
# belongs to the original code object. For each later frame of this code object it first calls
# `guard(function, *args)`. If the guard is true, the frame runs the entry's code, and nobody asks
# the callback.
#
# The callback below replaces `slow_double` by `fast_double`, with a guard that accepts integers:

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
# What happens for a string or a float? The guard of the first entry is false, so the hook asks the
# callback once more. Our naive callback does not look at the argument. It returns a second entry of
# the same kind, whose code runs at once. This entry is useless, since its guard accepts integers
# only. Each further call with such an argument adds one more:
# <!-- shows: has("42 - and what ran was fast_double") -->

# %%
print(hooked("ab"), hooked(1.5))
print(len(frame_hook.get_cache(slow_double.__code__)), "entries in the cache of this code object")

# %% [markdown]
# The code of a new entry runs at once because the hook trusts the callback, which has seen the
# arguments. The hook does not call the guard for the frame for which the entry was made. A guard
# that is never true proves this:
# <!-- shows: has("3 entries in the cache") -->

# %%
def original(x):
    return "the original"

def other(x):
    return "the replacement"

def hasty(function, code, args):
    return ((lambda *_: False), other.__code__) if code is original.__code__ else None

print(frame_hook.enabled(original, hasty)(1))

# %% [markdown]
# The picture shows the whole decision, with the cache of `slow_double` as it is now. Read it from
# the top: a frame starts, the hook calls one guard after the other, and the first true guard
# decides. The hook asks the callback only if all guards are false:
# <!-- shows: has("the replacement") -->

# %%
from minidynamo.explain.draw_code import draw_cache

draw_cache(slow_double)

# %% [markdown]
# A better callback looks at the arguments before it answers. The next cell shows the same decision
# step by step for such a callback and five calls. (Use the buttons or the arrow keys.) All calls
# and guards in it really ran:
# <!-- shows: count("guard") >= 3 -->

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
# Look at the call with `1.5`. The hook calls every guard, the callback returns None, and the
# original code runs. The cache has no useless entry.
# <!-- shows: has("the callback says nothing. The original runs: 3.0.") -->
#
# Now the C side of the hook. The header of its file says what comes in and what goes out:

# %%
import re
from pathlib import Path

text = (Path(minidynamo.__file__).parent / "frame/frame_hook.c").read_text()
header = text[:text.index("*/") + 2]
Code(header, "c", "frame_hook.c, its header")

# %% [markdown]
# The fields of a frame differ between versions of CPython, so the hook hides them behind macros.
# Two of these macros read and replace the code of a frame `f`. The first pair is for CPython 3.13,
# the second for CPython 3.12:
# <!-- shows: has("PEP 523") -->

# %%
start = text.index("#  if PY_VERSION_HEX >= 0x030D0000")
Code(text[start:text.index("#  endif", start) + 8], "c", "frame_hook.c, CPython 3.12 and 3.13")

# %% [markdown]
# `swap_code` does the swap. It gives the frame another code object and sets the instruction pointer
# to the beginning of the new bytecode.
#
# PyTorch does more: it builds a second frame (a "shadow frame") for the replacement code, copies
# the arguments into it, and frees it afterwards. Our hook reuses the frame that exists. This is
# possible because a frame that has not run yet holds nothing but its arguments.
#
# ## Three details that make the hook sound
#
# 1. **One cache per code object.** The cache is attached to the code object itself
#    (`_PyCode_SetExtra`), so the hook finds it without a search.
# 2. **One callback per thread.** A thread that did not ask for compilation is not affected.
# 3. **The hook's own Python code runs without the hook.** Otherwise guards, callbacks and the
#    compiler would compile themselves.
#
# The second detail can be seen. Inside a hooked call, the cell runs `who` in a second thread and
# then in the main thread. The callback records each call of `who` that the hook reports:

# %%
import threading

def who(thread):
    return thread

def two_threads():
    other = threading.Thread(target=who, args=("the other thread",))
    other.start(), other.join()
    return who("the main thread")

def record(function, code, args):
    if code is who.__code__:
        reported.append(args)

reported = []
frame_hook.enabled(two_threads, record)()
reported

# %% [markdown]
# The hook reported the main thread's call of `who` only, although the other thread ran while the
# hook was on.
# <!-- shows: has("[('the main thread',)]") -->
#
# ## What the hook costs
#
# While the evaluator pointer is replaced, *every* Python call in the process goes through our C
# function first. So minidynamo installs the hook only while some thread is inside a compiled call,
# and removes it when the last thread leaves. The cell measures many small calls before, inside and
# after such a call:

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
# The time with the hook on, less the time before, is the price of the hook. The time after should
# be close to the time before, since the hook was off again.
# <!-- shows: n("hook on") > n("before") -->
#
# ## The real callback
#
# minidynamo's own callback is `FrameCompiler`. It first calls `skip_reason`, which returns why a
# frame should run as it is, or None. Most reasons depend on the file of the code: `OURS`,
# `STANDARD` and `SITE` are the folders of minidynamo, of Python's standard library, and of
# installed packages. The last reason depends on the kind of function. (`GENERATORS` are the flags
# of generators and coroutines, and `.0` is the hidden parameter of a comprehension.)

# %%
from minidynamo.convert.convert_frame import skip_reason
from parts import part

part(
    skip_reason,
    ("file =", 'return "minidynamo'),
    ("if file.startswith(STANDARD)", 'return "the standard'),
    ("if code.co_flags", "if"),
    ('return "a generator', "return None"),
)

# %% [markdown]
# The lines that are left out treat miniinductor, torch, NumPy and two special cases in the same
# way. Torch has an exception: minidynamo does compile the `forward` of torch's layers and the
# `step` of its optimizers.
# <!-- shows: has("the standard library") -->
#
# What does the callback do with a real model? The cell compiles GPT-2 with two layers and prints
# one row per compiled frame:

# %%
from benchmarks.models import gpt2

model, inputs = gpt2(layers=2)
e = minidynamo.explain(model)(**inputs)
modules = {n.meta.get("module_path") for n in e.main.record.graph.graph.nodes} - {None, ""}
print(len(e.frames), "frame was compiled; the", len(modules), "modules inside it were inlined by the symbolic evaluator, not by the hook")
e

# %% [markdown]
# The whole model is one frame. *Inlined* means that the evaluator ran the calls of these modules
# itself while it captured that frame (chapter 04).
# <!-- shows: has("1 frame was compiled") -->
#
# Next, the model gets a text of another length. The guards of the first entry are then false, so
# the hook asks the callback again. The picture shows the cache after that call. (The library
# transformers wraps `forward` in a decorator, so the code object is called `wrapper`.)

# %%
longer = {name: torch.cat([value, value], 1) for name, value in inputs.items()}
e.compiled_function(**longer)
draw_cache(e.main.record.code)

# %% [markdown]
# The cache has two entries. The first is right for one length. The second has a symbol for the
# length and is right for other lengths too (chapter 14).
# <!-- shows: has("2 cache entries") -->
#
# ## Exercises
#
# **03.1** (warm-up) *Count the calls.* Write `count_calls(function, *args)`. It runs
# `function(*args)` under the hook and returns a dictionary from names to numbers: how often a frame
# with this name was started.
#
# *Hints.* If a callback returns `None` *without* calling `set_cache`, the hook asks it again about
# the next frame of the same code. The hooked function itself counts as well.

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
# **03.2** (core) *A memo in the frame hook.* Write `memoising(function, result_of)`, which returns
# a hooked version of a function with one argument. If the argument is an `int` and a key of the
# dictionary `result_of`, a replacement that returns the stored result must run. Otherwise the
# function itself must run.
#
# *Hints.* Build one replacement per known argument. It must have the same parameters as the
# function, so the stored result cannot be a default of one more parameter. Make it a constant
# instead: compile source text that contains `repr(value)` (with `exec`), or use
# `stored.__code__.replace(co_consts=...)`. The guard checks that `n` is an `int` (`type(n) is int`,
# since `1 == 1.0 == True`) and equals the key. The code of a new entry runs at once, so the
# callback must check the argument itself.

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
# **03.3** (core) *The decision.* Write in Python what the C code does with a call. `run(cache,
# function, args, callback)` gets a list of entries `(guard, code)` and returns what runs: the code
# of an entry, or `"original"`. The first entry whose guard is true runs. If no guard is true, call
# `callback(args)`, which returns a new entry or None. Append a new entry to the cache; its code
# runs without a call of its guard.
#
# *Hints.* Call a guard as above: `guard(function, *args)`. Change the list in place.
#
# <details><summary>Predict: a guard is never true. How many entries are there after four calls?</summary>
#
# Four. Each call asks the callback again, and each answer adds one entry. A real compiler therefore
# limits the number of entries.
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
# **03.4** (stretch) *Another function's code.* Write `with_other(program, old, new)`, which returns
# a hooked version of `program`. Inside this version every call of `old`, however deep, runs the
# code of `new`. Do not assign anything: `old` itself and all globals stay as they are, and outside
# of the hooked call `old` runs as before.
#
# *Hints.* The callback answers for one code object only. Which guard is right if the arguments do
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
# **The piece.** `compile(function)` returns a version of the function that runs with the hook on.
# `Compiler.frame` is the callback: it answers with an entry, or leaves the frame to Python. It must
# not compile the code of libraries, must not repeat an attempt that failed, and must give up after
# eight entries.
#
# <details><summary>Hint: start</summary>
#
# `frame_hook.enabled(function, callback)` returns the hooked function. Store the bound method in an
# attribute: `self.frame` is a new object each time, and the hook compares callbacks by identity.
#
# </details>
# <details><summary>Hint: entries</summary>
#
# You will write `split` in chapter 06; until then the reference solution takes its place. Call it
# with the frame's function, its code, its arguments, and the list of this code's earlier entries.
# It returns an `Entry`, or a text that says why there is none. The `guard` of an `Entry` is its
# guard, `replacement` is the code to run, and `code` is the original code. The hook expects an
# entry as `(guard, code, callback)`.
#
# </details>
# <details><summary>Hint: leaving alone</summary>
#
# Do not use `set_cache(code, None)`: it means "never ask again" for every compiler in the process,
# minidynamo included. Remember in `left_alone` which code is left to Python, and why. Existing
# entries still run, since the hook asks the callback only if none of them fits.
#
# </details>

# %%
from exercises.own_compiler import begin

begin("hook");

# %% [markdown]
# The output names your functions. Write them in that file, and run the check as often as you like:

# %% tags=["check", "piece"]
from exercises.own_checks import check_piece

check_piece("hook")

# %% [markdown]
# ## What else lives here
#
# The list below has every public name of this chapter's core files, with one sentence each. Unfold
# a file, then a name, to see its first lines. The list is made from the sources when the page is
# built.

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
# * `torch/csrc/dynamo/eval_frame.c`, `cache_entry.cpp` and `extra_state.cpp` contain the hook, with
#   a C++ guard tree and shadow frames.
# * `torch/_dynamo/eval_frame.py` is the Python side, and `torch/_dynamo/convert_frame.py` is the
#   callback.
# * CPython's function for installing a hook is `_PyInterpreterState_SetEvalFrameFunc` (PEP 523;
#   paper, section 3). Python 3.11, 3.12 and 3.13 each changed the layout of a frame.
# * PyTorch compiles some generators and coroutines. Here, the frames of generators and coroutines
#   always run as they are.
#
# **See it in the real `torch.compile`.** `TORCH_LOGS=dynamo python program.py` prints a line for
# each frame that the hook passes to the callback. `TORCH_LOGS=recompiles` says why an entry did not
# fit.
#
# ## Recap
#
# * The hook sees every frame of its thread before the first instruction, with the arguments bound.
# * A cache entry is a guard and a code object with the same parameters. If the guard is true, the
#   frame runs this code.
# * The hook is installed only while a compiled call is running.
#
# Next: what the callback does with the bytecode.
