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
# # 16 · Capstone: train a small GPT with the compiled stack
#
# This chapter puts everything together. A transformer in plain PyTorch is captured from its
# bytecode, differentiated ahead of time, cut, lowered, fused and compiled to C++. A compiled
# optimizer trains it until it writes sentences. You know every stage. Now you use them together,
# look inside while they work, and change them.
#
# **What you will learn:** how to write a training loop that compiles; which lines break graphs or
# cause recompilations, and how to find them; what the compiled step contains; whether the compiled
# model learns the same; where to go from here.
#
# **Files of this chapter:** you have seen them all; `miniinductor/compile.py` once more.

# %%
import copy
import math
import random
import textwrap

import torch
import torch.nn as nn
import torch.nn.functional as F

import minidynamo
import miniinductor
from minidynamo.explain import Code, Table

torch.manual_seed(0)
# a model this small gains nothing from more threads
torch.set_num_threads(1)

# %% [markdown]
# ## The data: a kitchen that never closes
#
# The model learns to write text, letter by letter. The next cell draws the text from a small
# grammar. So you need no download, and you see at a glance whether a sentence is right:

# %%
WHO = ["the cook", "the baker", "a waiter", "the chef", "a guest"]
DOES = {"cuts": ["the bread", "a red onion", "the cheese"], "stirs": ["the soup", "a thin sauce"],
        "washes": ["the pan", "two plates"], "carries": ["the soup", "two plates", "the wine"],
        "tastes": ["the soup", "the wine", "a thin sauce"]}
HOW = ["slowly", "with care", "in the cellar", "near the oven", "and hums"]

def sentence(draw):
    verb = draw.choice(sorted(DOES))
    words = [draw.choice(WHO), verb, draw.choice(DOES[verb])]
    return " ".join(words + [draw.choice(HOW)] * (draw.random() < 0.5)) + "."

draw = random.Random(0)
text = " ".join(sentence(draw) for _ in range(3000))
letters = sorted(set(text))
number = {letter: n for n, letter in enumerate(letters)}
data = torch.tensor([number[letter] for letter in text])
print(f"{len(text):,} letters, {len(letters)} different ones")
print(textwrap.fill(text[:300], 100))

# %% [markdown]
# Every sentence has the same order: who, does, what, and perhaps how.
# <!-- general -->
#
# ## The model: plain PyTorch

# %% tags=["support"]
import torch
import torch.nn as nn
import torch.nn.functional as F

class Block(nn.Module):
    """Attention and a feed-forward part, each with a residual connection; `feed_forward`: another module of this width."""

    def __init__(self, width, heads, feed_forward=None):
        super().__init__()
        self.norm1, self.norm2, self.heads = nn.LayerNorm(width), nn.LayerNorm(width), heads
        self.qkv, self.project = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.feed_forward = feed_forward or nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(),
                                                          nn.Linear(4 * width, width))

    def forward(self, x):
        batch, time, width = x.shape
        q, k, v = (part.view(batch, time, self.heads, width // self.heads).transpose(1, 2)
                   for part in self.qkv(self.norm1(x)).split(width, -1))
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.project(attended.transpose(1, 2).reshape(batch, time, width))
        return x + self.feed_forward(self.norm2(x))

class GPT(nn.Module):
    """Letters (batch, time) to logits (batch, time, letters); with targets: to the loss."""

    def __init__(self, letters, width=64, heads=4, layers=2, context=48, feed_forward=lambda width: None):
        super().__init__()
        self.context = context
        self.letter, self.position = nn.Embedding(letters, width), nn.Embedding(context, width)
        self.blocks = nn.ModuleList(Block(width, heads, feed_forward(width)) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, letters, bias=False)

    def forward(self, x, targets=None):
        h = self.letter(x) + self.position.weight[:x.shape[1]]
        for block in self.blocks:
            h = block(h)
        logits = self.head(self.norm(h))
        return logits if targets is None else F.cross_entropy(logits.flatten(0, 1), targets.flatten())

# %%
model = GPT(len(letters))
print(f"{sum(p.numel() for p in model.parameters()):,} parameters")

def batch(step, size=12, context=48):
    """The same letters for the same step, whoever asks."""
    starts = torch.randint(
        len(data) - context - 1, (size,), generator=torch.Generator().manual_seed(step)
    )
    pieces = torch.stack([data[s:s + context + 1] for s in starts])
    return pieces[:, :-1].contiguous(), pieces[:, 1:].contiguous()

# %% [markdown]
# `batch` returns two tensors: pieces of the text, and the same pieces one letter further on. The
# second tensor has the letters that the model should guess.
# <!-- general -->
#
# ## The naive loop: compile what is there
#
# People often write the whole step as one function. The next cell compiles such a step and runs it
# four times. Its table lists the graph breaks that these lines cause. (It leaves out breaks inside
# the optimizer's own code.) The first column counts captures that met the break; steps that need no
# new capture do not count:

# %%
history = []

def naive_step(model, optimizer, x, y, step):
    loss = model(x, y)
    # a look at the loss
    print(f"step {step}: the loss is {'high' if loss.item() > 2 else 'low'}")
    history.append(loss)
    optimizer.zero_grad()
    loss.backward()
    for group in optimizer.param_groups:                    # a schedule
        group["lr"] = 1e-3 * (step + 1) / 5
    optimizer.step()

def fresh(lr=1e-3):
    trained = copy.deepcopy(model)
    return trained, torch.optim.AdamW(trained.parameters(), lr=lr)

minidynamo.reset()
trained, optimizer = fresh()
step_function = minidynamo.compile(naive_step)
for step in range(4):
    step_function(trained, optimizer, *batch(step), step)
mine = ("item()", "print", "backward()")
Table(["times", "graph break"],
      [(n, why) for why, n in minidynamo.counters["graph_breaks"].items() if any(word in why for word in mine)])

# %% [markdown]
# Line 6 breaks the graph twice, and line 9 once. How often was the step compiled? The next table
# names, for the first eight recompilations, the function or resume function (notebook 06):
# <!-- shows: count("notebook:6") == 2 and count("notebook:9") == 1 -->

# %%
again = [why for why in minidynamo.counters["recompiles"] if "naive_step" in why or why.startswith("step")]
print(len(again), "recompilations in 4 steps")
Table(["function", "guard that failed"], [why.split(": ", 1) for why in again[:8]], "the first eight")

# %% [markdown]
# The step works, but it breaks graphs and is compiled again in every step. The counters name lines
# and guards. Four habits cause this:
# <!-- shows: count("naive_step  ") + count("naive_step type") >= 3 and has("recompilations in 4 steps") -->
#
# * **`loss.item()` and `print` inside the step.** `item()` asks for a number that does not exist
#   while the graph is built, and a graph cannot print. Look at the loss outside the step, and not
#   each time.
# * **A step number that is a Python int.** At first it is a constant of the graph, with a guard.
#   The length of a list that grows (`history`) is a constant in each new graph. Keep both outside
#   the step.
# * **A learning rate that is a Python float.** It is a constant at first, too. When it changes, the
#   compiler compiles the optimizer once more, with the rate as an input. A tensor is an input from
#   the start.
# * **`loss.backward()` inside the step.** Call it outside: autograd calls the compiled backward
#   graph by itself.
#
# ## The loop that compiles
#
# The next cell runs five steps without these habits, and prints all counters:

# %%
minidynamo.reset()
trained, optimizer = fresh(lr=torch.tensor(1e-3))
compiled_model, compiled_update = minidynamo.compile(trained), minidynamo.compile(optimizer.step)
for step in range(5):
    loss = compiled_model(*batch(step))
    loss.backward()
    optimizer.param_groups[0]["lr"].fill_(1e-3 * (step + 1) / 5)
    compiled_update()
    optimizer.zero_grad()
print(minidynamo.counters)

# %% [markdown]
# The compiler compiled two frames: one graph for the model and one for the optimizer. It never
# compiled again. A new optimizer has no state, and its first step makes the state. The compiler
# makes it before it captures the step, so all steps see the same state.
# <!-- shows: n("frames:") == 2 and has("1 x forward") and has("1 x step") and n("graphs:") == 2 and not has("recompiles") -->
#
# ## What is inside
#
# The next cell counts the kernels of the model's forward and backward graph. Below them it shows
# the captured graph:

# %%
minidynamo.reset()
e = minidynamo.explain(trained)(*batch(0))
e.result.backward()
record = e.main.compiled
print(f"forward: {len(record.kernels)} kernels, backward: {len(record.backward.kernels)} kernels, "
      f"{sum(s.bytes for s in record.saved if not s.is_input):,} bytes kept between them")
e.graph

# %% [markdown]
# The graph has two blocks, one after the other, with the same operations and different weights. The
# backward graph has more kernels than the forward graph. The next cell shows the backward kernel
# with the most operations:
# <!-- shows: n("backward:") > 2 * n("forward:") and has("blocks_0_qkv_weight") and has("blocks_1_qkv_weight") -->

# %%
longest = max(record.backward.kernels, key=lambda k: len(k.nodes))
Code(longest.source, "cpp", "the backward kernel with the most operations")

# %% [markdown]
# The loop over `r0_group` computes values of the forward graph again, because the forward graph did
# not keep them. It also adds up two sums for each row, `acc0` and `acc1`. The last loop uses them,
# for the derivative of the layer norm. The next picture shows the memory of the forward graph. Each
# box is a buffer; it begins at the kernel that writes the buffer, and ends at the last kernel that
# reads it:
# <!-- shows: has("acc0") and has("acc1") -->

# %%
e.memory_picture

# %% [markdown]
# Most boxes reach the right edge, because the backward graph needs these buffers. Only the others
# share memory, in the arena (notebook 13).
# <!-- shows: n("arena") < n("tensors of their own") / 2 -->
#
# ## Training, twice
#
# The next cell trains the model twice, in eager mode and compiled. Both runs have the same first
# weights, batches and learning rates:

# %%
STEPS = 300

def schedule(step, top=1e-2, warm=20):
    return top * min(1, (step + 1) / warm) * (0.1 + 0.9 * 0.5 * (1 + math.cos(math.pi * step / STEPS)))

def train(compiled):
    minidynamo.reset()
    trained, optimizer = fresh(lr=torch.tensor(1e-3))
    compiler = minidynamo.compile if compiled else lambda function: function
    forward, update = compiler(trained), compiler(optimizer.step)
    losses = []
    for step in range(STEPS):
        loss = forward(*batch(step))
        loss.backward()
        optimizer.param_groups[0]["lr"].fill_(schedule(step))
        update()
        optimizer.zero_grad()
        losses.append(loss.detach())
        if step == 1:
            settled = len(minidynamo.records.frames)
    print("compilations after the second step:", len(minidynamo.records.frames) - settled)
    return trained, torch.stack(losses)

eager_model, eager_losses = train(compiled=False)
compiled_trained, compiled_losses = train(compiled=True)
print("largest difference of the losses in the first 20 steps below 0.001:",
      (eager_losses - compiled_losses)[:20].abs().max().item() < 1e-3)
print("both end below 0.4:", max(eager_losses[-9:].mean(), compiled_losses[-9:].mean()).item() < 0.4)

# %% [markdown]
# Nothing was compiled after the second step. The next figure has both curves:
# <!-- shows: count("compilations after the second step: 0") == 2 and count(": True") == 2 -->

# %% tags=["volatile"] alt="Two curves of the loss over the training steps: the compiled model's lies on eager's; a dotted line shows guessing"
import matplotlib.pyplot as plt

figure, axis = plt.subplots()
axis.plot(eager_losses, color="C2", linewidth=4, label="eager")
axis.plot(compiled_losses, color="C0", linewidth=1, label="compiled")
axis.axhline(math.log(len(letters)), color="black", linewidth=0.6, linestyle=":")
axis.annotate("guessing among all letters", (STEPS * 0.6, math.log(len(letters)) - 0.17), fontsize=8)
axis.set(xlabel="step", ylabel="loss (nats per letter, lower is better)")
axis.legend();

# %% [markdown]
# The two curves coincide. Their values are not equal to the last bit: a fused kernel adds numbers
# in a different order, so it rounds differently. These differences grow over many steps. Both runs
# are right.
# <!-- general -->
#
# ## Time per step
#
# The next table times a whole training step: forward, backward and optimizer. The last column divides
# eager's time by the row's, so above 1 the row is faster:

# %% tags=["volatile"]
from benchmarks.runner import interleave, peer_compile, ratio

def stepper(compiler):
    trained, optimizer = fresh(lr=torch.tensor(1e-3))
    forward, update = compiler(trained), compiler(optimizer.step)
    x, y = batch(0)

    def once():
        forward(x, y).backward()
        update()
        optimizer.zero_grad()
    once(), once()
    return once

minidynamo.reset()
variants = {"eager": stepper(lambda f: f), "ours": stepper(minidynamo.compile), "torch.compile": stepper(peer_compile)}
timings = interleave(variants, budget=6)
rows = []
for name, timing in timings.items():
    middle, low, high = ratio(timings, "eager", name)
    rows.append((name, f"{timing.median * 1e3:.1f}", f"{middle:.2f}  [{low:.2f} to {high:.2f}]"))
Table(["", "milliseconds per step", "eager / this, with quartiles"], rows, "forward, backward and AdamW")

# %% [markdown]
# Do ours and `torch.compile` differ? The next cell takes their ratio in each round of the
# measurement, and prints the median with quartiles:
# <!-- general -->

# %% tags=["volatile"]
middle, low, high = ratio(timings, "torch.compile", "ours")
if low > 1:
    verdict = "ours is faster"
elif high < 1:
    verdict = "ours is slower: there is something left to find (project 4)"
else:
    verdict = "nothing is shown: the quartiles lie on both sides of 1"
print(f"torch.compile's time / ours: {middle:.2f}  [{low:.2f} to {high:.2f}]: {verdict}")

# %% [markdown]
# A model this small has short kernels. Much of a step is Python code between kernels, so the
# figures differ from run to run.
# <!-- general -->
#
# ## It speaks
#
# A model that generates text receives one more letter in each call. In notebook 14 the length
# became a symbol, in a second compilation. Here the loop pads the input to the full context, and
# reads the result at the last letter's position. So one static graph serves all lengths:

# %% tags=["volatile"]
@torch.no_grad()
def write(model, start, length, seed=0):
    torch.manual_seed(seed)
    run = minidynamo.compile(model)
    known = [number[letter] for letter in start]
    for _ in range(length):
        window = known[-model.context:]
        x = torch.zeros(1, model.context, dtype=torch.long)
        # what comes later is not looked at: attention is causal
        x[0, :len(window)] = torch.tensor(window)
        probabilities = F.softmax(run(x)[0, len(window) - 1] / 0.7, -1)
        known.append(torch.multinomial(probabilities, 1).item())
    return "".join(letters[n] for n in known)

minidynamo.reset()
untrained = write(copy.deepcopy(model), "the cook ", 60)
minidynamo.reset()
trained_text = write(compiled_trained, "the cook ", 240)
print(f"before: {untrained!r}\n\nafter {STEPS} steps:")
print(textwrap.fill(trained_text, 100))
print("\ngraphs:", sum(minidynamo.counters["graphs"].values()), "  recompilations:",
      sum(minidynamo.counters["recompiles"].values()))

# %% [markdown]
# Before training the text is noise. Afterwards it has words, and mostly sentences. One graph served all
# lengths. How many sentences follow the grammar?
# <!-- shows: n("graphs:") == 1 and n("recompilations:") == 0 -->

# %% tags=["volatile"]
import re

patterns = re.compile("|".join(f"(?:{'|'.join(WHO)}) {verb} (?:{'|'.join(things)})(?: (?:{'|'.join(HOW)}))?"
                               for verb, things in DOES.items()))
sentences = [s.strip() for s in trained_text.split(".")[:-1]]
print("right sentences:", sum(bool(patterns.fullmatch(s)) for s in sentences), "of", len(sentences))

# %% [markdown]
# A model with so few parameters, trained for so few steps, still misspells some words.
# <!-- shows: n("right sentences:") < n("right sentences:", 1) -->
#
# ## The compiled model is still your model
#
# Parameters, checkpoints and modes belong to the module, and compiling changes none of them. A checkpoint
# of the compiled model loads into an eager model:

# %%
import io

file = io.BytesIO()
torch.save(minidynamo.compile(compiled_trained).state_dict(), file)
file.seek(0)
loaded = GPT(len(letters))
print(loaded.load_state_dict(torch.load(file)))
x, y = batch(999)
with torch.no_grad():
    print("the same loss in eager mode:",
          torch.allclose(loaded(x, y), minidynamo.compile(compiled_trained)(x, y), atol=1e-4))

# %% [markdown]
# All keys match, because compiling changes no parameter's name. Both models compute the same loss.
# <!-- shows: has("All keys matched successfully") and has("eager mode: True") -->
#
# ## Your own compiler trains a GPT
#
# All files of your compiler are in `my_compiler` now. The next cell prints one line for each piece:
# its chapter, how many of everyone's checks pass, and how many of the checks for the curious.
# `NOT WRITTEN` means that you have not begun the piece. The reference solution then takes its
# place, and no check counts:

# %% tags=["volatile"]
from exercises.own_checks import all_pieces

all_pieces()

# %% [markdown]
# (This page was built without a student, so no piece is written.)
# <!-- shows: has("NOT WRITTEN") and not has("PASS") -->
#
# The rest of this chapter needs only the functions that everyone writes.
#
# Now use the whole compiler. `exercises/small_gpt.py` is a small GPT in plain PyTorch: embeddings,
# attention, layer norms, gelu, cross entropy. The next cell trains it three times, from the same
# weights and with the same data: in eager mode, with your compiler, and with minidynamo and
# miniinductor. The table has the loss of four steps:

# %% tags=["volatile"]
import contextlib
import io
import time

from exercises.own_compiler import own
from exercises.small_gpt import GPT as SmallGPT

with contextlib.redirect_stdout(io.StringIO()):       # (the board above says which pieces are yours)
    my_compiler = own()

torch.manual_seed(0)
start = SmallGPT(tokens=64, width=64, heads=4, layers=2, length=32)
tokens = torch.randint(0, 64, (16, 33))

def train_with(compiler, steps=40):
    """The losses, and the seconds of the last step."""
    model = copy.deepcopy(start)
    run, optimizer = compiler(model), torch.optim.AdamW(model.parameters(), lr=3e-3)
    losses = []
    for _ in range(steps):
        begin = time.perf_counter()
        optimizer.zero_grad()
        loss = run(tokens[:, :-1], tokens[:, 1:])
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, time.perf_counter() - begin, run

curves = {
    "eager": train_with(lambda model: model),
    "your compiler": train_with(my_compiler.compile),
    "minidynamo and miniinductor": train_with(minidynamo.compile),
}
Table(["", "first loss", "after 10", "after 20", "last loss", "ms of the last step"],
      [(name, *(f"{losses[n]:.4f}" for n in (0, 10, 20, -1)), f"{seconds * 1e3:.1f}")
       for name, (losses, seconds, _) in curves.items()])

# %% [markdown]
# The three losses of each column agree. So the gradients agree, too, up to rounding. (The next cell
# asserts for all steps that the losses agree to 1e-4. The last column times a single step, on a
# busy machine.)
# <!-- shows: all(abs(n("eager", k) - n("your compiler", k)) + abs(n("eager", k) - n("minidynamo and miniinductor", k)) < 4e-4 for k in range(4)) -->
#
# Your compiler captured one graph, cut its joint graph in two, and fused each half. The next table
# counts operations, kernels that you generate, the loops in them, and calls of torch's own kernels:

# %%
compiler = curves["your compiler"][2].compiler
[entry] = compiler.entries
halves = {"forward": entry.program.forward, "backward": entry.program.backward}
for name, (losses, _, _) in curves.items():
    assert all(abs(a - b) < 1e-4 for a, b in zip(losses, curves["eager"][0])), name
Table(["half", "operations", "kernels of yours", "loops in them", "kernels of torch"],
      [(name, len(half.graph.nodes), len(half.sources),
        sum(len(unit.loops) for unit in half.units if hasattr(unit, "loops")),
        sum(not hasattr(unit, "loops") for unit in half.units)) for name, half in halves.items()])

# %% [markdown]
# There are more loops than kernels, because fusion puts several loops into one kernel. The backward
# half has about twice as many operations as the forward half.
# <!-- shows: n("forward", 2) > n("forward", 1) and 1.5 < n("backward") / n("forward") < 2.5 -->
#
# How much faster does fusion make the operations between the matrix products? The next cell times
# three programs, each with tensors of eight megabytes. The versions take turns, as in notebook 15.
# A ratio above 1 means that the compiled program is faster than eager:

# %% tags=["volatile"]
parts = {
    "gelu of a sum": lambda x: F.gelu(x + 1.0, approximate="tanh"),
    "softmax of a scaled tensor": lambda x: torch.softmax(x * 0.125, -1),
    "layer norm and a sum": lambda x: x + F.layer_norm(x, (512,)),
}

rows = []
with torch.no_grad():
    x = torch.randn(4096, 512)
    for name, function in parts.items():
        compiled = [function, my_compiler.compile(function), minidynamo.compile(function)]
        turns = interleave({n: (lambda run=run: run(x)) for n, run in enumerate(compiled)}, budget=1.5)
        eager, yours, theirs = (turns[n].median for n in range(3))
        ratios = f"{eager / yours:.2f}", f"{eager / theirs:.2f}"
        rows.append((name, *(f"{t * 1e3:.2f}" for t in (eager, yours, theirs)), *ratios))
assert len(rows) == len(parts)
Table(["program", "eager ms", "your compiler ms", "minidynamo ms", "eager / yours", "eager / minidynamo"], rows)

# %% [markdown]
# If your ratio is near minidynamo's, then fusion alone brings most of the gain.
# <!-- general -->
#
# The two packages have the same structure as your files, and handle many more programs. They
# capture most of Python; your machine knows few instructions, and no exceptions. They handle
# strides, dtypes, aliases, writes, random numbers and most operations. They also run on GPUs, and
# keep compiled kernels on disk.

# %% [markdown]
# ## Exercises
#
# **16.1** (warm-up) *Another feed-forward part.* Write `SwiGLU(width)`: a module without biases
# that computes `down(silu(gate(x)) * up(x))`. `gate` and `up` map `width` to
# `hidden = 8 * width // 3`, and `down` maps back. The check trains a compiled GPT with it, and
# compares gradients with eager's. It also asks whether the pointwise part became one kernel.
#
# *Hints.* `nn.Linear(width, hidden, bias=False)`, named `gate`, `up`, `down`. `F.silu`.

# %% tags=["exercise"]
class SwiGLU(nn.Module):
    """down(silu(gate(x)) * up(x)), hidden width 8/3 of the width, no biases."""
    ### BEGIN SOLUTION instead of pass
    def __init__(self, width):
        super().__init__()
        hidden = 8 * width // 3
        self.gate, self.up = nn.Linear(width, hidden, bias=False), nn.Linear(width, hidden, bias=False)
        self.down = nn.Linear(hidden, width, bias=False)

    def forward(self, x):
        return self.down(F.silu(self.gate(x)) * self.up(x))
    ### END SOLUTION

# %% tags=["check"]
from exercises import check

check("16.1", (SwiGLU, GPT))

# %% [markdown]
# **16.2** (core) *A training step without recompilations.* Write
# `make_step(model, learning_rates)`. It returns a function of `(x, y)`. Each call performs one step
# of AdamW, with the next learning rate of the list. It returns the loss as a detached tensor.
# Compile the model and the optimizer's step. The check counts graphs: one of the model and one of
# the optimizer, however many learning rates the list has. It also asks whether the rate is a
# tensor.
#
# *Hints.* Make the optimizer with `lr=torch.tensor(...)`, and change that tensor with `fill_`. Keep
# an iterator over the rates.

# %% tags=["exercise"]
def make_step(model, learning_rates: list):
    """A function (x, y) -> loss that trains `model` compiled."""
    ### BEGIN SOLUTION
    optimizer = torch.optim.AdamW(model.parameters(), lr=torch.tensor(learning_rates[0]))
    forward, update, rates = minidynamo.compile(model), minidynamo.compile(optimizer.step), iter(learning_rates)

    def step(x, y):
        optimizer.param_groups[0]["lr"].fill_(next(rates))
        optimizer.zero_grad()
        loss = forward(x, y)
        loss.backward()
        update()
        return loss.detach()
    return step
    ### END SOLUTION

# %% tags=["check"]
check("16.2", (make_step, GPT))

# %% [markdown]
# **16.3** (stretch) *Generate with one graph.* Write `continue_text(model, known, length)`. It appends the most
# probable next letter, `length` times, to the list `known` of numbers. The list may become longer than
# the context. Compile the model, and use exactly one graph, however long the text is.
#
# *Hints.* Pad to `model.context`. Which position of the result has the answer?

# %% tags=["exercise"]
@torch.no_grad()
def continue_text(model, known: list, length: int) -> list:
    """`known` and `length` more numbers."""
    ### BEGIN SOLUTION
    run, known = minidynamo.compile(model), list(known)
    for _ in range(length):
        window = known[-model.context:]
        x = torch.zeros(1, model.context, dtype=torch.long)
        x[0, :len(window)] = torch.tensor(window)
        known.append(run(x)[0, len(window) - 1].argmax().item())
    return known
    ### END SOLUTION

# %% tags=["check"]
check("16.3", (continue_text, GPT))

# %% [markdown]
# **16.4** (core) *Explain a regression.* A training step is slower than it was yesterday. Write
# `culprit(before, after)`. Both arguments map a kernel to `(calls, milliseconds a call)`. Return
# `(kernel, why)` for the kernel whose cost has grown most. Return None if no kernel costs more.
# `why` is one of three texts:
#
# * `"new"`, if the kernel was not there before;
# * `"more calls"`, if the calls explain more of the difference than the milliseconds a call do;
# * `"slower"` otherwise.
#
# *Hints.* Cost is calls times milliseconds. Compute the cost with the new calls and the old
# milliseconds: its distance to the old cost is what the calls explain. Do the same with the old
# calls and the new milliseconds. Both dictionaries may be empty.
#
# <details><summary>Predict: one kernel is new, and another kernel with the same cost is gone. Is that a regression?</summary>
#
# The whole step is not slower. But `culprit` asks whose cost has grown most, and names the new
# kernel. So look also at the kernels that are gone.
#
# </details>

# %% tags=["exercise"]
def culprit(before: dict, after: dict):
    """(kernel, "new" | "more calls" | "slower"), or None."""
    ### BEGIN SOLUTION
    def cost(kernels, name):
        calls, each = kernels.get(name, (0, 0.0))
        return calls * each

    def why(name):
        if name not in before:
            return "new"
        (old_calls, old_each), (calls, each) = before[name], after[name]
        by_calls, by_time = (calls - old_calls) * old_each, (each - old_each) * old_calls
        return "more calls" if by_calls > by_time else "slower"

    worst = max(after, key=lambda name: cost(after, name) - cost(before, name), default=None)
    if worst is None or cost(after, worst) <= cost(before, worst):
        return None
    return worst, why(worst)
    ### END SOLUTION

# %% tags=["check"]
check("16.4", culprit)

# %% [markdown]
# ## Projects
#
# These projects are open-ended. Each begins where a notebook ended.
#
# 1. **An op of your own, from end to end.** Add RMSNorm as a decomposition (chapter 09) with a
#    gradient (08). Check that forward and backward are one kernel each. Train the GPT with it.
# 2. **Another random op.** With `fallback_random=False` kernels draw dropout masks themselves
#    (`miniinductor/lowering/random.py`, 08). Find a random operation that is still an eager call.
#    Write its lowering (09), for C++ (11) and for Triton (12). The same seed must give the same
#    numbers in both.
# 3. **A product of your own.** Exercise 12.2 puts pointwise work into the kernel of a product, as
#    `codegen/triton/products.py` does on a GPU. The C++ backend always calls a library. Give it a template
#    for small matrices, with an epilogue (11), chosen by timing (13).
# 4. **A fusion that pays.** Find two kernels of this model's backward graph that are not fused, and read
#    the recorded reason (10). Make these two kernels fuse, or show with a roofline (15) that the fusion
#    would gain nothing.
# 5. **A bytecode you miss.** Find a Python construct that breaks a graph (`minidynamo.counters`). Teach the
#    evaluator to capture it (04, 06). Do not forget the guard.

# %% [markdown]
# ## What else lives here
#
# The next list has every public name of this chapter's core files, with one sentence each. Unfold a file,
# then a name, to see its first lines. The build makes the list from the sources.

# %% tags=["volatile"]
from minidynamo.explain import also_here

also_here(
    "miniinductor/compile.py",
    "miniinductor/options.py",
    "miniinductor/autograd/fake_mode.py",
    "miniinductor/errors.py",
)

# %% [markdown]
# ## What real PyTorch has
#
# * `torch._dynamo.compiled_autograd` captures the backward pass as a whole, with accumulation and
#   hooks. So a whole training step can be one graph.
# * `torch/_inductor/fx_passes/` rewrites attention, fuses optimizer steps over all parameters (foreach
#   kernels), and overlaps communication.
# * FSDP, mixed precision and `torch.utils.checkpoint` work with compiled graphs. Speedups for three
#   suites: see the paper, section 6.
#
# **See it in the real `torch.compile`.** `TORCH_LOGS=recompiles python program.py` names, for each
# recompilation, the guard that failed.
#
# ## Recap
#
# * Compile the model and the optimizer's step. Keep logging, `item()` and `backward()` outside.
# * A value that changes in every step should be a tensor. If it is not, the counters name the guard
#   that failed.
# * The compiled model learns the same, although fused kernels round differently.
# * You have seen every stage of a real compiler, and written most of them.
#
# Next: the paper's tables, measured again.
