"""`compile`: a function or module in, one that is compiled when it is called out.

(`reset` lies in convert_frame.py; disable, graph_break, is_compiling, mark_dynamic and mark_static,
by which a program tells the compiler what to do, in extras/directions.py.)

    >>> model = minidynamo.compile(model, backend="eager")      # behaves like the module
Mirrors torch/_dynamo/eval_frame.py and decorators.py.
"""

import functools
import types
from collections.abc import Callable
from typing import Any, cast

import torch

from . import _frame_hook, coverage, frame_hook, hooks
from .backends import Backend
from .convert_frame import FrameCompiler
from .exceptions import did_you_mean

PARAMETERS = ("fn_or_module", "backend", "mode", "dynamic", "fullgraph")
CHOICES = {  # option of `compile` -> its values
    "mode": (None, "default", "reduce-overhead", "max-autotune"),
    "dynamic": (None, True, False),
    "fullgraph": (False, True),
}


def with_known_options(function: Callable) -> Callable:
    """`function`, which says what was meant where the name of an option is wrong."""

    @functools.wraps(function)
    def called(*args: Any, **options: Any) -> Any:
        check_options(**{name: v for name, v in options.items() if name not in PARAMETERS})
        return function(*args, **options)

    return called


@with_known_options
def compile(
    fn_or_module: Any = None,
    *,
    backend: str | Backend = "inductor",
    fullgraph: bool = False,
    dynamic: bool | None = None,
    mode: str | None = None,
) -> Any:
    """A compiled version of a function or module; without one, a decorator.

    dynamic: which sizes are symbols: None (those that changed between calls), True (all of the
    arguments'), False (none); see dynamic.py. Raises TypeError if it is given something that cannot
    be called, ValueError for a backend, mode, dynamic or fullgraph that there is not.
    """
    options = {"mode": mode, "dynamic": dynamic, "fullgraph": fullgraph}
    check_options(**options)
    if fn_or_module is None:
        return functools.partial(compile, backend=backend, **cast(Any, options))
    coverage.load()  # which may have a compiler for these options
    return compiled_by(FrameCompiler.of(backend, **options), fn_or_module)


def check_options(**options: Any) -> None:
    """Raises TypeError for an option that there is not, ValueError for a value."""
    for name, value in options.items():
        if name == "backend":
            continue
        if name not in CHOICES:
            raise TypeError(f"compile() has no {name}={did_you_mean(name, ['backend', *CHOICES])}")
        # 1 == True, but dynamic=1 is a mistake: the types are compared, too
        if (type(value), value) not in [(type(choice), choice) for choice in CHOICES[name]]:
            raise ValueError(
                f"there is no {name}={value!r}: use {' or '.join(map(repr, CHOICES[name]))}"
            )


def compiled_by(compiler: FrameCompiler, fn_or_module: Any) -> Any:
    """A function or module whose frames this compiler compiles."""
    if not callable(fn_or_module):
        raise TypeError(
            f"a function or a module can be compiled, not {type(fn_or_module).__name__}"
        )
    for prepare in hooks.TARGETS:
        fn_or_module = prepare(fn_or_module)
    if isinstance(fn_or_module, torch.nn.Module):
        return CompiledModule(fn_or_module, compiler)
    if hasattr(fn_or_module, "__code__"):  # who tells of frames asks for it (extras/told.py)
        compiler.compiled_by_name[id(fn_or_module.__code__)] = fn_or_module.__code__
    if isinstance(
        fn_or_module, frame_hook.Switched
    ):  # compiled already, or disabled: this wish is newer
        fn_or_module = fn_or_module.__wrapped__
    return named_like(fn_or_module, frame_hook.enabled(fn_or_module, compiler))


def named_like(fn: Any, made: Any) -> Any:
    """`made`, which gets the name, documentation and attributes of `fn`."""
    for name in functools.WRAPPER_ASSIGNMENTS:
        if hasattr(fn, name):
            setattr(made, name, getattr(fn, name))
    if isinstance(fn, types.FunctionType):
        made.__dict__.update(fn.__dict__)
    return made


# --- calls of ours inside of torch.compile's
DISABLED: list[Callable] = []  # `call`, for torch.compile to leave alone


def call(function: Callable, /, *args: Any, **kwargs: Any) -> Any:
    return function(*args, **kwargs)


def call_alone(function: Callable, /, *args: Any, **kwargs: Any) -> Any:
    """Call a compiled function with torch.compile off in this thread: else it would compile the
    code that stands in the place of the function's, and our compiler with it.  The hook calls this
    where torch's frame evaluator is installed.  (The other way round nothing is needed: frames of
    torch/_dynamo, and all that they call, are left alone.)"""
    if not DISABLED:  # (loads torch._dynamo, which is there where torch's evaluator is installed)
        DISABLED.append(torch.compiler.disable(call))
    return DISABLED[0](function, *args, **kwargs)


_frame_hook.set_alone(call_alone)


# attributes of a `CompiledModule` that are not the original's
OWN = set("_orig_mod _run _compiler __class__ __call__ __dict__".split())


class CompiledModule(torch.nn.Module):
    """A module whose calls are compiled; everything else is the original's."""

    def __init__(self, module: torch.nn.Module, compiler: FrameCompiler) -> None:
        # past our own `__setattr__`, and without nn.Module's state: the original has that
        self.__dict__["_orig_mod"], self.__dict__["_compiler"] = module, compiler
        self.__dict__["_run"] = frame_hook.enabled(module, compiler)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._run(*args, **kwargs)

    def __getattribute__(self, name: str) -> Any:
        if name in OWN:
            return object.__getattribute__(self, name)
        return getattr(object.__getattribute__(self, "_orig_mod"), name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._orig_mod, name, value)
