"""Random programs over requires_grad, views and custom autograd functions: the same history as
eager.

    python -m tests.soundness.gradients --count 1000 --modes aot_eager,inductor

A case is a seed.  It decides on some `torch.autograd.Function`s (what forward returns: its input, a
view, an input that it wrote, nothing, the same tensor twice, what it saved...), on a program that
calls them and changes who needs gradients, on inputs (leaves, views, results, inference tensors),
on the modes around two calls, and on what the caller does with the outputs: writes, a backward pass
through some of them, a hook.  Compared with eager: values, gradients, `requires_grad`, `is_leaf`,
whether there is a `grad_fn`, views and what they are views of, shared memory, counts of writes, the
type of what is raised.
"""

import contextlib
import random
import re
import types
import warnings
from collections.abc import Callable
from typing import Any

import torch

from . import runner
from .modes import Mode
from .tables import named

HEADER = """
import torch
from torch.autograd import Function
from torch.autograd.function import once_differentiable
"""

# what forward gives -> (expression, does it write its input?)
FORWARDS = named("""
    input: x; view: x.view(-1); transposed: x.t(); part: x[0]; double: x * 2; clone: x.clone();
    twice: y, y; with input: y, x; views of one: y, y.view(-1); two: y, x.sin(); with None: y, None;
    constant: y, 3; two inputs: x, w; detached: x.detach(); saved: saved; index: y, x.argmax()
""")
BACKWARDS = ("g * 0.5; g * 3; g.cos(); g * ctx.saved_tensors[0]; g.clamp(-0.5, 0.5); g + 1").split(
    "; "
)
CHANGES = (
    "{a}.requires_grad_()",
    "{a}.requires_grad_(False)",
    "{a}.requires_grad = True",
    "{a}.detach_()",
    # (not of views: torch 2.13 itself ends the process behind a view's retain_grad(), or a hook
    # on a view that a custom function has written)
    "None if {a}._is_view() else {a}.retain_grad()",
    "{a}.mul_(2)",
    "{a}.add_({b})",
    "{a}.view(-1).mul_(3)",
    "None if {a}._is_view() else {a}.register_hook(double)",
    "torch.set_grad_enabled({flag})",
    "seen.append(({a}.requires_grad, {a}.is_leaf, {a}.grad_fn is None, {a}._is_view()))",
)
VALUES = (
    "{a} * 2; {a} + {b}; {a} * {b}.sum(); {a}.sin(); {a}.detach(); "
    "{a}.detach().view(2, 2); {a}.view(2, 2); {a}.t(); {a}.view_as({a}); "
    "{a}.clone(); {a}.unbind(0)[0].expand(2, 2); {a}.data; {a}.contiguous(); "
    "torch.ones(2, 2, requires_grad=True); torch.zeros(2, 2)"
).split("; ")
# views, perhaps: of what nobody has they are none when compiled, and are not asked (docs/limits.md)
VIEWS = re.compile(r"\.(detach|view|t|view_as|unbind|data|contiguous)\b")
AROUND = ("torch.no_grad()", "torch.enable_grad()", "torch.inference_mode()")
INPUTS = ("leaf", "result", "plain", "view of leaf", "view of result", "no-grad view", "inference")


def function_text(draw: random.Random, name: str) -> str:
    """A class of a custom function."""
    kind = draw.choice(list(FORWARDS))
    returned, count = FORWARDS[kind], FORWARDS[kind].count(",") + 1
    separate = kind not in ("saved",) and draw.random() < 0.3
    marks, early = [], []
    if draw.random() < 0.25 and kind in ("input", "with input", "view", "two inputs"):
        early.append("x.mul_(2)")
        marks.append("ctx.mark_dirty({x})")
    if kind == "index":
        marks.append("ctx.mark_non_differentiable({out}[1])")
    elif kind in ("input", "view", "double", "clone") and draw.random() < 0.2:
        marks.append("ctx.mark_non_differentiable({out})")
    materialize = draw.random() < 0.7
    if not materialize:
        marks.append("ctx.set_materialize_grads(False)")
    what = draw.choice(("{x}", "{w}", "{x}, {w}", "{first}"))
    marks.append(f"ctx.save_for_backward({what})")
    first = "{out}" if count == 1 else "{out}[0]"
    marks = [mark.replace("{first}", first) for mark in marks]
    lines = [f"class {name}(Function):", "    @staticmethod"]
    body = [*early, "y = x * 2"]
    body += ["saved = x.exp()"] * (kind == "saved")
    body += [f"out = {returned}"]
    if separate:
        lines += ["    def forward(x, w):", *[f"        {line}" for line in [*body, "return out"]]]
        lines += ["    @staticmethod", "    def setup_context(ctx, inputs, out):"]
        lines += [
            f"        {mark.format(x='inputs[0]', w='inputs[1]', out='out')}" for mark in marks
        ]
    else:
        body += [mark.format(x="x", w="w", out="out") for mark in marks]
        lines += ["    def forward(ctx, x, w):"]
        lines += [f"        {line}" for line in [*body, "return out"]]
    lines += ["    @staticmethod"]
    lines += ["    @once_differentiable"] * (draw.random() < 0.2)
    lines += [f"    def backward(ctx, {', '.join(['g', 'h'][:count])}):"]
    if not materialize:
        lines += ["        if g is None:", "            g = h if %d > 1 else None" % count]
        lines += ["        if g is None:", "            return None, None"]
    if count > 1 and draw.random() < 0.7:
        lines += ["        if h is not None and h.shape == g.shape:", "            g = g + h * 3"]
    lines += [f"        g = {draw.choice(BACKWARDS)}"]
    lines += ["        shape = ctx.saved_tensors[0].shape"]
    lines += ["        g = g.t() if %r else g" % (kind == "transposed")]
    lines += ["        g = g.expand(2, 2) if g.numel() < 4 else g.reshape(2, 2)"]
    second = draw.choice(("None", "g * 2", "g * 2 if ctx.needs_input_grad[1] else None"))
    lines += [f"        return g, {second}"]
    return "\n".join(lines)


def program_text(draw: random.Random) -> str:
    functions = [f"Function{n}" for n in range(draw.choice((1, 1, 2)))]
    texts = [HEADER, *[function_text(draw, name) for name in functions]]
    # (a hook of one of several results of an operation may be given None, in eager)
    texts += ["def double(g):", "    return None if g is None else g * 2"]
    lines, names, views = ["seen = []"], ["x", "w"], []
    for number in range(draw.randint(1, 5)):
        a, b, flag = draw.choice(names), draw.choice(names), draw.choice(("True", "False"))
        if draw.random() < 0.35:
            change = draw.choice(CHANGES)
            a = "x" if "_is_view" in change and a in views else a
            line = change.format(a=a, b=b, flag=flag)
        else:
            name = f"v{number}"
            if draw.random() < 0.4:
                call = f"{draw.choice(functions)}.apply({a}, {b})"
                line = f"{name} = first_of({call})" if draw.random() < 0.5 else f"pair = {call}"
                line += "" if line.startswith(name) else f"; {name} = first_of(pair)"
            else:
                line = f"{name} = {draw.choice(VALUES).format(a=a, b=b)}"
                views += [name] * bool(VIEWS.search(line))
            names.append(name)
        if draw.random() < 0.25:
            lines += [f"with {draw.choice(AROUND)}:", f"    {line}"]
        else:
            lines += [line]
    made = draw.sample(names, draw.randint(1, min(3, len(names))))
    made += [name for name in names[-1:] if name not in made]
    if any(line.strip().startswith("pair") for line in lines) and draw.random() < 0.6:
        made.append("pair")
    lines += [f"return [{', '.join(made)}], seen"]
    texts += ["def first_of(value):", "    return value[0] if type(value) is tuple else value"]
    texts += ["def f(x, w):", *[f"    {line}" for line in lines]]
    return "\n".join(texts)


def tensor_of(kind: str, seed: int) -> torch.Tensor:
    """A 2 x 2 tensor of a certain history."""
    values = torch.rand(2, 2, generator=torch.Generator().manual_seed(seed)) + 0.5
    if kind == "plain":
        return values
    if kind == "inference":
        with torch.inference_mode():
            return values.clone()
    with torch.enable_grad():
        leaf = values.requires_grad_()
        if kind == "leaf":
            return leaf
        if kind == "result":
            return leaf * 1
        if kind == "view of leaf":
            return leaf.view(2, 2)
        if kind == "view of result":
            return (leaf * 1).view(2, 2)
    with torch.no_grad():
        return leaf.view(2, 2)


def tensors_in(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, (list, tuple)):
        return [tensor for item in value for tensor in tensors_in(item)]
    return []


def numbers(tensor: torch.Tensor | None) -> Any:
    """The values, rounded: eager and kernels round differently."""
    if tensor is None:
        return None
    with torch.no_grad():
        return [float(f"{value:.3g}") for value in tensor.detach().flatten().tolist()]


def asked(question: Callable[[], Any]) -> Any:
    """The answer, or the type of the error: a view of what was written in another mode may not even
    be asked."""
    try:
        return question()
    except RuntimeError as error:
        return type(error).__name__


def described(outputs: list, inputs: list) -> list:
    """What can be asked of the tensors; memory is told by the number of the first that shares
    it."""
    everything = [*inputs, *outputs]
    memories = [tensor.untyped_storage()._cdata for tensor in everything]
    # the same tensor twice does not share its memory
    distinct = {id(tensor): memory for tensor, memory in zip(everything, memories)}

    def about(number: int, tensor: torch.Tensor) -> dict:
        shared = list(distinct.values()).count(memories[number]) > 1
        base = tensor._base
        return {
            "number": number,
            "values": numbers(tensor),
            "shape": (tuple(tensor.shape), tensor.stride(), tensor.dtype),
            "requires_grad": asked(lambda: tensor.requires_grad),
            "is_leaf": asked(lambda: tensor.is_leaf),
            "grad_fn": asked(lambda: tensor.grad_fn is not None),
            "inference": tensor.is_inference(),
            "memory": memories.index(memories[number]),
            "same": next(i for i, other in enumerate(everything) if other is tensor),
            # a view of a tensor that nobody has is a tensor of its own when compiled
            "view": shared and tensor._is_view(),
            "base": next((i for i, t in enumerate(everything) if t is base), None),
            "grad": asked(lambda: numbers(tensor.grad) if tensor.is_leaf else None),
        }

    return [about(number, tensor) for number, tensor in enumerate(everything)]


def consequences(plan: random.Random, outputs: list, inputs: list, leaves: list) -> list:
    """What the caller does with the outputs, and what came of it."""
    happened = []

    def attempt(name, action):
        try:
            action()
            happened.append(name)
        except Exception as error:
            # (torch 2.13 itself fails where a function that gave one tensor twice retains a grad)
            is_torchs = "INTERNAL ASSERT FAILED" in str(error)
            is_write = "modified by an inplace operation" in str(error)
            told = "torch's own" if is_torchs else "written" if is_write else type(error).__name__
            happened.append((name, told))

    tensors = tensors_in(outputs)
    factor = torch.full((), 1.5, requires_grad=True)
    if tensors and plan.random() < 0.5:
        victim = plan.choice(tensors)
        attempt("write", lambda: victim.mul_(factor if plan.random() < 0.5 else 2))
    if inputs and plan.random() < 0.2:
        attempt("write to input", lambda: inputs[0].mul_(2))
    reached = [t for t in tensors if t.is_floating_point() and plan.random() < 0.7]
    if not reached:
        reached = tensors[:1]

    def backward():
        losses = [t.mul(n + 1.0).sum() for n, t in enumerate(reached)]
        losses = [loss for loss in losses if loss.requires_grad]
        if losses:
            torch.stack(losses).sum().backward()

    attempt("backward", backward)
    happened.append([numbers(leaf.grad) for leaf in [*leaves, factor]])
    return happened


@contextlib.contextmanager
def surroundings(name: str):
    with {"grad": torch.enable_grad, "no_grad": torch.no_grad, "inference": torch.inference_mode}[
        name
    ]():
        yield


def run(function: Any, seed: int, training: bool) -> list:
    """Two calls and all that comes of them."""
    draw, found = random.Random(seed + 1), []
    kinds = ("leaf", "result", "view of result") if training else INPUTS
    chosen = [draw.choice(kinds), draw.choice(kinds)]
    for call in range(2):
        # requires_grad changed between the calls
        if call and draw.random() < 0.5:
            chosen[draw.randrange(2)] = draw.choice(kinds)
        around = "grad" if training else draw.choice(("grad", "grad", "no_grad", "inference"))
        inputs = [tensor_of(kind, n) for n, kind in enumerate(chosen)]
        leaves = [t if t._base is None else t._base for t in inputs]
        leaves = [t for t in leaves if t.is_leaf and not t.is_inference()]
        before = [None if t.is_inference() else t._version for t in inputs]
        step: dict[str, Any] = {"kinds": tuple(chosen), "around": around}
        outputs = []
        plan = random.Random(draw.random())
        try:
            with surroundings(around):
                outputs, step["seen"] = function(*inputs)
        except Exception as error:
            step["raised"] = type(error).__name__
        after = [None if t.is_inference() else t._version for t in inputs]
        step["writes"] = [now != was for now, was in zip(after, before)]
        step["state"] = (torch.is_grad_enabled(), torch.is_inference_mode_enabled())
        step["tensors"] = described(tensors_in(outputs), inputs)
        torch.set_grad_enabled(True)
        step["then"] = consequences(plan, outputs, inputs, leaves)
        step["finally"] = described(tensors_in(outputs), inputs)
        found.append(step)
    return found


def drop_incomparable(eager: list, compiled: list, text: str) -> None:
    """What need not be the same.

    After a write of the caller's: compiled code keeps other values for backward than eager, so
    either may refuse to go on. Where the program raises: `raise_internal_errors` leaves out the
    plain run that would repeat its writes.

    Where torch fails inside, in eager alone.  Where the program writes what a function has saved,
    behind a graph break: eager alone refuses to go on (docs/limits.md).

    After a write of the caller's to a view that eager has made where gradients are off, around the
    program or inside of it: eager may refuse it for the sake of what it is a view of.  If nobody
    has that, the compiled one is none.

    Versions where something was written through `.data`: docs/limits.md.
    """
    for one, other in zip(eager, compiled):
        if ".data" in text:
            one["writes"] = other["writes"]
        if "raised" in one and one["raised"] == other.get("raised"):
            for step in (one, other):
                for name in ("writes", "tensors", "then", "finally"):
                    del step[name]
            continue
        wrote = any(name in ("write", "write to input") for name in one["then"])
        eager_saw_a_write = ("backward", "written") in one["then"]
        for step in (one, other):  # what the error says is no difference
            step["then"] = [
                (what[0], "RuntimeError") if what[1:] == ("written",) else what
                for what in step["then"]
            ]
        refused = ("backward", "RuntimeError")
        only_eager_refuses = ("write", "RuntimeError") in one["then"] and "write" in other["then"]
        ways = ("_mode()", "no_grad()", "set_grad_enabled(False)")
        without_gradients = one["around"] != "grad" or any(way in text for way in ways)
        eager_fails = any(what[1:] == ("torch's own",) for what in one["then"])
        breaks = any(name in text for name in ("retain_grad", "register_hook", "inference_mode()"))
        eager_fails |= breaks and eager_saw_a_write
        if (
            eager_fails
            or (wrote and refused in (one["then"] + other["then"]))
            or (only_eager_refuses and without_gradients)
        ):
            for step in (one, other):
                del step["then"], step["finally"]


def first_difference(eager: Any, compiled: Any, path: str = "") -> str:
    if isinstance(eager, dict):
        pairs = [
            (f"{path}.{key}", eager.get(key), compiled.get(key)) for key in {**eager, **compiled}
        ]
    elif isinstance(eager, list) and isinstance(compiled, list) and len(eager) == len(compiled):
        pairs = [(f"{path}[{i}]", a, b) for i, (a, b) in enumerate(zip(eager, compiled))]
    else:
        return f"{path}: eager {eager!r}, compiled {compiled!r}"
    return next((first_difference(a, b, at) for at, a, b in pairs if a != b), "")


def cases(count: int, first: int) -> list[int]:
    return list(range(first, first + count))


def check(case: int, mode: Mode) -> str:
    text = program_text(random.Random(case))

    def module():
        made = types.ModuleType("gradients_program")
        exec(compile(text, f"<gradients {case}>", "exec"), made.__dict__)
        return made

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        eager = run(module().f, case, mode.training)
        compiled = run(mode.compile(module().f), case, mode.training)
    drop_incomparable(eager, compiled, text)
    if str(eager) == str(compiled):
        return ""
    return f"{first_difference(eager, compiled)}\n{text}"


if __name__ == "__main__":
    runner.main(
        "tests.soundness.gradients",
        "eager,aot_eager,aot_eager-training,inductor,inductor-dynamic,inductor-training",
    )
