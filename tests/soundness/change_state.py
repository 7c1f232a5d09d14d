"""Change one thing of torch's global state between two calls: flags, modes, defaults, global hooks.

    python -m tests.soundness.change_state --modes eager,inductor [--count 500]

What can be read and what can be set is found by reflection over the live torch: functions without
arguments named `is_*`, `get_*`, `are_*`, `*_enabled`; functions `set_*` and the like, with every
value that they accept and that some reader notices; attributes of `torch.backends.*` (and the other
modules of switches); context managers without arguments; `register_module_*` hooks of all modules.
A case is (setter, value).  All readers run before, after and after it was set back.
"""

import contextlib
import functools
import inspect
import random
import sys
import types
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from tests.fuzz.compare import difference, outcome

from . import runner
from .modes import Mode

FILE = "<a program of tests.soundness.change_state>"
VALUES = (
    *(True, False, 1, 2, 0, torch.float64, torch.float16, torch.float32),
    *"high highest meta cpu default warn ieee tf32 none".split(),
)
NOT_STATE = ("seed", "rng", "sharing", "deleter", "vital", "printoptions", "module", "from")
SWITCHES = "torch.backends"
SIMPLE = (bool, int, float, str, type(None), torch.dtype, torch.device)


# ---- what can be read
def functions_of(module: Any, prefix: str) -> list[str]:
    """Functions of no argument whose name says that they read the state, and that give a value."""
    found = []
    for name in sorted(dir(module)):
        asks = name.startswith(("is_", "get_", "are_")) or name.endswith("_enabled")
        if not asks or name.startswith("_") or any(part in name for part in NOT_STATE):
            continue
        try:
            if isinstance(getattr(module, name)(), SIMPLE):
                found.append(f"{prefix}.{name}()")
        except Exception:
            continue
    return found


def switch_modules() -> dict[str, Any]:
    return {
        name: module
        for name, module in sorted(sys.modules.items())
        if name.startswith(SWITCHES) and isinstance(module, types.ModuleType)
    }


def switches() -> list[str]:
    """Attributes of modules that hold a plain value, such as torch.backends.mkldnn.enabled."""
    found = []
    for text, module in switch_modules().items():
        for name in sorted({*dir(type(module)), *vars(module)}):
            if name.startswith("_") or name.isupper() or name in dir(types.ModuleType):
                continue
            with contextlib.suppress(Exception):
                if isinstance(getattr(module, name), (bool, str)):
                    found.append(f"{text}.{name}")
    return found


@functools.cache
def asked() -> list[str]:
    """Expressions that read the state."""
    texts = functions_of(torch, "torch") + functions_of(torch.autograd, "torch.autograd")
    for text, module in switch_modules().items():
        texts += functions_of(module, text)
    texts += functions_of(torch.utils._python_dispatch, "torch.utils._python_dispatch")
    texts += ["torch.is_autocast_enabled('cpu')", "torch.get_autocast_dtype('cpu')"]
    return [*dict.fromkeys(texts), *switches()]


INSTEAD = (
    ("torch.autocast('cpu', torch.bfloat16)", "torch.autocast('cpu', torch.float16)"),
    ("torch.device('cpu')", "torch.device('meta')"),
    ("torch.no_grad()", "torch.inference_mode()"),
)
COMPUTATIONS = (
    "x * 2; torch.ones(3); torch.arange(3) * 0.5; "
    "torch.zeros(2, dtype=torch.int64) / 2; torch.tensor([1.0, 2.0]); "
    "x @ x.t(); linear(x); torch.nn.functional.linear(x, w) * w.sum(); "
    "torch.nn.functional.scaled_dot_product_attention(x[None], x[None], x[None]); "
    "torch.empty(2).shape, torch.get_default_dtype(); context_of(x); "
    "(x @ x).dtype, linear(x).dtype"
).split("; ")


HEADER = """
def context_of(x):
    try:
        raise KeyError("inner")
    except KeyError as error:
        return error.__context__ is None
"""


def bodies() -> list[str]:
    return [*COMPUTATIONS, *asked()]


# ---- what can be set
@dataclass(frozen=True)
class Setting:
    """`kind`: "call" (a function with one argument), "attribute", "context", "hook"."""

    kind: str
    name: str
    value: str = ""


def setters() -> list[str]:
    found = []
    modules = {"torch": torch, "torch.autograd": torch.autograd, **switch_modules()}
    for text, module in modules.items():
        for name in sorted(dir(module)):
            sets = name.startswith(("set_", "use_", "enable_", "allow_"))
            if sets and not any(part in name for part in NOT_STATE):
                found.append(f"{text}.{name}")
    return [*dict.fromkeys(found)]


def contexts() -> list[str]:
    """Context managers of torch that need no argument, or a device's name."""
    found = []
    modules = {"torch": torch, "torch.autograd": torch.autograd, **switch_modules()}
    modules |= {"torch.overrides": torch.overrides}
    modules |= {"torch.utils._python_dispatch": torch.utils._python_dispatch}
    for text, module in modules.items():
        for name in sorted(dir(module)):
            value = getattr(module, name, None)
            manages = inspect.isclass(value) and hasattr(value, "__enter__")
            wrapped = inspect.isfunction(value) and hasattr(value, "__wrapped__")
            wrapped = wrapped and inspect.isgeneratorfunction(value.__wrapped__)
            if name.startswith("_") or not (manages or wrapped):
                continue
            for argument in ("", "False", "True", "'cpu'", "'meta'"):
                found.append((f"{text}.{name}", argument))
    return [*dict.fromkeys(found)]


def snapshot() -> list[str]:
    """What all readers of the state say now."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        values = [repr(attempt(text)) for text in asked()]
        values += [repr(attempt(text)) for text in ("torch.ones(2)", "torch.tensor(1.0) + w.sum()")]
    return values


def scope() -> dict[str, Any]:
    torch.manual_seed(0)
    w = torch.nn.Parameter(torch.ones(3, 3))
    return {"torch": torch, "w": w, "linear": torch.nn.Linear(3, 3)}


SCOPE = scope()


def attempt(text: str) -> Any:
    try:
        return eval(text, SCOPE)
    except Exception as error:
        return type(error).__name__


@contextlib.contextmanager
def in_force(setting: Setting):
    """The setting holds within; what was before holds again afterwards."""
    value = eval(setting.value, {"torch": torch}) if setting.value else None
    if setting.kind == "context":
        manager = eval(setting.name, SCOPE)
        with manager(value) if setting.value else manager():
            yield
    elif setting.kind == "attribute":
        owner, _, name = setting.name.rpartition(".")
        module = sys.modules[owner]
        before = getattr(module, name)
        setattr(module, name, value)
        try:
            yield
        finally:
            setattr(module, name, before)
    elif setting.kind == "hook":
        handle = HOOKS[setting.name]()
        try:
            yield
        finally:
            handle.remove()
            torch.nn.modules.module._global_is_full_backward_hook = None  # else one kind for good
    else:
        before = snapshot()
        function = eval(setting.name, SCOPE)
        function(value)
        try:
            yield
        finally:
            for candidate in (None, *VALUES):
                if snapshot() == before:
                    break
                with contextlib.suppress(Exception):
                    function(candidate)


def global_hooks() -> dict[str, Callable]:
    """All functions that install a hook for every module; the result shows what the hooks do."""
    module = torch.nn.modules.module

    def forward(called, args, result):
        return result + 1

    def before(called, args):
        return (args[0] * 2,) if args else None

    def registration(owner, name, buffer_or_parameter):
        return None

    hooks = {"forward_hook": forward, "forward_pre_hook": before}
    return {
        name: lambda install=getattr(module, name), kind=name: install(
            next((hook for end, hook in hooks.items() if kind.endswith(end)), registration)
        )
        for name in sorted(dir(module))
        if name.startswith("register_module_")
    }


HOOKS = global_hooks()


def noticed(setting: Setting) -> tuple | None:
    """What readers see of it; None if it fails, nobody sees it, or it cannot be set back."""
    before = snapshot()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with in_force(setting):
                during = snapshot()
                if not isinstance(attempt("torch.ones(2) + 1"), torch.Tensor):
                    return None  # a bare mode, in which nothing works
    except Exception:
        return None
    return tuple(during) if during != before and snapshot() == before else None


@functools.cache
def settings() -> list[Setting]:
    """One setting of each setter for each state that it can bring about."""
    every = [Setting("call", name, repr(value)) for name in setters() for value in VALUES]
    every += [Setting("context", name, argument) for name, argument in contexts()]
    for text in switches():
        owner, _, name = text.rpartition(".")
        value = getattr(sys.modules[owner], name)
        others = [not value] if isinstance(value, bool) else [v for v in VALUES if v != value]
        every += [Setting("attribute", text, repr(other)) for other in others]
    different: dict[tuple, Setting] = {}
    for setting in every:
        seen = noticed(setting)
        if seen is not None:
            different.setdefault((setting.kind, setting.name, seen), setting)
    hooks = [Setting("handled", "an exception"), *(Setting("hook", name) for name in HOOKS)]
    instead = [Setting("instead", *pair) for pair in INSTEAD]
    return [*different.values(), *hooks, *instead]


def cases(count: int, first: int) -> list:
    """(setting, number of a group of readers): all of them, or a sample."""
    groups = range(0, len(bodies()), 10)
    found = [
        (setting.kind, setting.name, setting.value, start)
        for setting in settings()
        for start in groups
    ]
    if count and count < len(found):
        found = random.Random(first).sample(found, count)
    return found


def readers(start: int) -> list[Callable]:
    made = []
    for body in bodies()[start : start + 10]:
        text = f"def reader(x, w, linear):\n    return x + 1, {body}\n"
        values = {"torch": torch}
        exec(compile(HEADER + text, FILE, "exec"), values)
        values["reader"].__doc__ = body
        made.append(values["reader"])
    return made


def check(case: tuple, mode: Mode) -> str:
    kind, name, value, start = case
    plain = readers(start)
    compiled = [mode.compile(function) for function in readers(start)]
    arguments = (torch.arange(9.0).reshape(3, 3), SCOPE["w"], SCOPE["linear"])
    setting = Setting(kind, name, value)

    def compare(phase: str) -> str:
        for function, other in zip(plain, compiled):
            digits = None if mode.name.startswith("eager") else 4
            found = [outcome(f, arguments, {}, None, FILE, digits) for f in (function, other)]
            report = difference(*found)
            if report:
                return f"{phase}: {function.__doc__}\n{report}"
        return ""

    if kind == "instead":  # one context manager where there was another
        with eval(name, SCOPE):
            report = compare("before")
        with eval(value, SCOPE):
            report = report or compare("changed") or compare("changed, second call")
        with eval(name, SCOPE):
            return report or compare("set back")
    report = compare("before")
    if not report:
        if kind == "handled":
            try:
                raise ValueError("being handled")
            except ValueError:
                return compare("changed") or compare("changed, second call")
        with in_force(setting):
            report = compare("changed") or compare("changed, second call")
    return report or compare("set back")


if __name__ == "__main__":
    runner.main("tests.soundness.change_state", default_modes="eager", default_count=0)
