"""Random numbers: every operation of torch that draws, found by reflection; numbers and the
generator's state as in eager.

    python -m tests.soundness.randomness --modes aot_eager,inductor,inductor-training

Enumerated: operators with the tag `nondeterministic_seeded` (functional, in place, `out=`),
functions and modules of torch.nn with dropout or a `training` flag, recurrent and attention
modules, distributions, initialisers.  Each one stands in a program that draws before and after it:
in one call, in a helper, across a graph break, before an error, for nobody; called twice.
"""

import inspect
import itertools
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

import minidynamo
import miniinductor
from benchmarks.error_bound import too_far

from . import runner
from .modes import Mode

SHAPES = ("plain", "helper", "break", "raises", "two orders", "unread")
KINDS = ("operator", "functional", "module", "distribution", "initialiser")


def example(name: str, kind: str, number: int) -> Any:
    """A value for an argument of an operator, by its name and type; None where there is none to
    give."""
    by_name = {
        **{"p": 0.4, "dropout_p": 0.3, "lower": 0.1, "upper": 0.3, "std": 1.5, "mean": 0.5},
        **{"lambd": 1.5, "median": 0.5, "sigma": 1.0, "low": 0, "high": 7, "from": 1, "to": 9},
        **{"n": 6, "num_samples": 2, "size": [3, 4], "kernel_size": [2, 2], "output_size": [2, 2]},
        **dict.fromkeys(("prob", "count"), torch.tensor([5.0, 3.0])),
        **dict.fromkeys(("train", "training", "replacement"), True),
    }
    if name in ("count", "prob") and "Tensor" in kind:
        return torch.tensor([5.0, 3.0]) if name == "count" else torch.tensor([0.5, 0.2])
    if name in by_name and "Tensor" not in kind:
        return by_name[name]
    if kind == "Tensor":
        return torch.linspace(0.1, 0.9, 12).reshape(3, 4)
    return None


def operators() -> list[str]:
    found = []
    for name in torch._C._dispatch_get_all_op_names():
        if not name.startswith("aten::"):
            continue
        packet, _, overload = name.removeprefix("aten::").partition(".")
        op = getattr(getattr(torch.ops.aten, packet, None), overload or "default", None)
        if op is not None and torch.Tag.nondeterministic_seeded in op.tags:
            found.append(f"{packet}.{overload or 'default'}")
    return sorted(found)


def operator_call(name: str, with_generator: bool) -> Callable | None:
    """x -> the operator's result, or None where this file has no arguments for it (eager refuses
    them)."""
    packet, overload = name.split(".", 1)
    op = getattr(getattr(torch.ops.aten, packet), overload)
    args, kwargs, out = [], {}, []
    for number, argument in enumerate(op._schema.arguments):
        kind = str(argument.type)
        if argument.name == "generator":
            if with_generator:
                kwargs["generator"] = torch.Generator
            continue
        if argument.is_out:
            out.append(argument.name)
            continue
        if argument.has_default_value() and argument.name not in ("train", "training", "dropout_p"):
            continue
        value = example(argument.name, kind, number)
        if value is None:
            return None
        if argument.kwarg_only:
            kwargs[argument.name] = value
        else:
            args.append(value)
    if with_generator and "generator" not in kwargs:
        return None
    function = getattr(torch.ops.aten, packet)
    public = getattr(torch, packet, None) or getattr(torch.Tensor, packet, None) or function

    def call(x):
        given = [arg.clone() if isinstance(arg, torch.Tensor) else arg for arg in args]
        extra = dict(kwargs)
        if given and isinstance(given[0], torch.Tensor) and given[0].shape == x.shape:
            given[0] = x * 0.1 + given[0]
        if with_generator:
            extra["generator"] = GENERATOR
        for key in out:
            extra[key] = torch.empty(0, dtype=torch.float32)
        return (function if out else public)(*given, **extra)

    return call


GENERATOR = torch.Generator()


def functionals() -> dict[str, Callable]:
    """Functions of torch.nn.functional with a probability and a switch, and torch's own."""
    found = {}
    for name, function in vars(F).items():
        if name.startswith("_") or not callable(function) or inspect.isclass(function):
            continue
        try:
            names = set(inspect.signature(function).parameters)
        except (TypeError, ValueError):
            continue
        if names >= {"input", "p", "training"} or names >= {"input", "training", "lower"}:
            found[name] = lambda x, f=function: f(x, training=True)
            if "inplace" in names:
                found[name + " in place"] = lambda x, f=function: f(
                    x * 1, training=True, inplace=True
                )
            found[name + " in eval"] = lambda x, f=function: f(x, training=False)
    found["gumbel_softmax"] = lambda x: F.gumbel_softmax(x)
    found["hard gumbel_softmax"] = lambda x: F.gumbel_softmax(x, hard=True)
    found["attention"] = lambda x: F.scaled_dot_product_attention(x, x, x, dropout_p=0.3)
    found["fractional_max_pool2d"] = lambda x: F.fractional_max_pool2d(
        x[None], 2, output_size=(2, 2)
    )
    return found


def modules() -> dict[str, Callable[[], torch.nn.Module]]:
    """Every module of torch.nn whose constructor takes a dropout, or whose name tells it."""
    found, nn = {}, torch.nn
    for name, cls in vars(nn).items():
        if not inspect.isclass(cls) or not issubclass(cls, nn.Module):
            continue
        if "Dropout" in name or name == "RReLU":
            found[name] = cls
    for cls, layers, both in itertools.product((nn.RNN, nn.GRU, nn.LSTM), (1, 3), (False, True)):
        name = f"{cls.__name__} {layers}{' both ways' if both else ''}"
        found[name] = lambda cls=cls, layers=layers, both=both: cls(
            4, 4, layers, dropout=0.4 if layers > 1 else 0.0, bidirectional=both
        )
    found["LSTM batch first"] = lambda: nn.LSTM(4, 5, 2, dropout=0.4, batch_first=True)
    found["LSTM projected"] = lambda: nn.LSTM(4, 5, 2, dropout=0.4, proj_size=2)
    found["RNN relu"] = lambda: nn.RNN(4, 5, 2, dropout=0.4, nonlinearity="relu")
    found["encoder layer"] = lambda: nn.TransformerEncoderLayer(4, 2, 8, dropout=0.3)
    found["decoder layer"] = lambda: AsOne(nn.TransformerDecoderLayer(4, 2, 8, dropout=0.3), 2)
    found["attention module"] = lambda: AsOne(nn.MultiheadAttention(4, 2, dropout=0.3), 3)
    return found


class AsOne(torch.nn.Module):
    """A module that takes its one argument several times."""

    def __init__(self, inner, count):
        super().__init__()
        self.inner, self.count = inner, count

    def forward(self, x):
        return self.inner(*[x] * self.count)


def distributions() -> dict[str, Callable]:
    """Every distribution of one or two positive parameters."""
    found = {}
    for name in torch.distributions.__all__:
        cls = getattr(torch.distributions, name)
        if not inspect.isclass(cls) or not issubclass(cls, torch.distributions.Distribution):
            continue
        for count in (1, 2):
            try:
                cls(*[torch.full((3,), 0.4)] * count).sample()
            except Exception:
                continue
            found[f"{name} of {count}"] = lambda x, cls=cls, count=count: cls(
                *[x[:, 0].detach().sigmoid()] * count
            ).sample()
            break
    return found


def initialisers() -> dict[str, Callable]:
    names = [name for name in dir(torch.nn.init) if name.endswith("_") and name[0] != "_"]
    wanted = {"constant_": (0.3,), "sparse_": (0.5,)}
    found = {}
    for name in names:
        function = getattr(torch.nn.init, name)
        found[name] = lambda x, f=function, rest=wanted.get(name, ()): f(
            torch.empty(3, 4, 2, 2) if f is torch.nn.init.dirac_ else torch.empty(3, 4), *rest
        )
    return found


def cases(count: int, first: int) -> list[tuple[str, str, str]]:
    named = {
        "operator": [*operators(), *[f"{name} generator" for name in operators()]],
        "functional": functionals(),
        "module": modules(),
        "distribution": distributions(),
        "initialiser": initialisers(),
    }
    return [
        (kind, name, SHAPES[number % len(SHAPES)])
        for kind in KINDS
        for number, name in enumerate(named[kind])
    ]


def thing_of(kind: str, name: str) -> Callable | None:
    if kind == "operator":
        return operator_call(name.removesuffix(" generator"), name.endswith(" generator"))
    if kind == "module":
        torch.manual_seed(3)
        return modules()[name]()
    return {"functional": functionals, "distribution": distributions, "initialiser": initialisers}[
        kind
    ]()[name]


def program(shape: str, thing: Callable) -> Callable:
    def helper(x):
        return torch.rand(2), thing(x)

    def f(x):
        before = torch.rand(3)
        if shape == "helper":
            drawn = helper(x)
        elif shape == "break":
            minidynamo.graph_break()
            drawn = thing(x)
            minidynamo.graph_break()
        elif shape == "two orders":
            late, early = F.dropout(x), thing(x)
            drawn = [early, late * 2]
        else:
            drawn = thing(x)
        if shape == "unread":
            drawn = before
        if shape == "raises":
            drawn = drawn, x.reshape(-1)[torch.tensor([700])]
        return before, drawn, torch.randn(2), F.dropout(x, 0.5)

    return f


def leaves(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, (tuple, list)):
        return [leaf for item in value for leaf in leaves(item)]
    return []


def run(function: Callable, training: bool) -> list:
    """Two calls: [(numbers or the error's type, states of the generators)]."""
    found = []
    torch.manual_seed(11)
    GENERATOR.manual_seed(12)
    for call in range(2):
        x = torch.linspace(-1, 1, 48).reshape(4, 3, 4).requires_grad_(training)[call]
        gradients = []
        with torch.set_grad_enabled(training):
            try:
                values = leaves(function(x))
                losses = [value.sum() for value in values if value.requires_grad]
            except Exception as error:
                values, losses = [type(error).__name__], []
            if losses:
                try:
                    gradients = list(torch.autograd.grad(sum(losses), x, allow_unused=True))
                except RuntimeError as error:  # many draws have no derivative
                    gradients = [type(error).__name__]
        found.append((values, gradients, (torch.get_rng_state(), GENERATOR.get_state())))
    return found


def same(one: Any, other: Any) -> bool:
    if not isinstance(one, torch.Tensor) or not isinstance(other, torch.Tensor):
        return one is other or type(one) is type(other) and one == other
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    return not too_far(one, other, 4, "logarithms of random numbers")


def check(case: tuple[str, str, str], mode: Mode) -> str:
    kind, name, shape = case
    thing = thing_of(kind, name)
    if thing is None:
        return ""
    eager = run(program(shape, thing), mode.training)
    if eager[0][0] and isinstance(eager[0][0][0], str) and shape != "raises":
        return ""  # no arguments that this operator takes
    # (what a graph drew that raises stays drawn: docs/limits.md)
    looked_at = ("numbers", "gradients", "state")[: 2 if shape == "raises" else 3]
    seen = {"raise_internal_errors": shape != "raises"}
    with minidynamo.config.patch(**seen), miniinductor.config.patch(**seen):
        compiled = run(mode.compile(program(shape, thing)), mode.training)
    for call, (want, got) in enumerate(zip(eager, compiled)):
        for about, a, b in zip(looked_at, want, got):
            if len(a) != len(b) or not all(map(same, a, b)):
                return f"call {call}: other {about}\neager    {a!r:.600}\ncompiled {b!r:.600}"
    return ""


if __name__ == "__main__":
    runner.main("tests.soundness.randomness", "eager,aot_eager,inductor,inductor-training")
