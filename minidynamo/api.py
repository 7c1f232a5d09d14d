"""`compile`: a function or module in, one that is compiled when it is called out.

    >>> model = minidynamo.compile(model, backend="eager")      # behaves like the module

What a call of the compiled function runs, until there is a cache entry:

    frame/frame_hook.c          a `Switched` object turns the hook on; the hook stops the new frame
    convert/convert_frame.py    `FrameCompiler.__call__`: may this frame be compiled?
    convert/conversion.py       `Conversion.run`: trace, backend, replacement code, guards

(`reset` lies in convert_frame.py; disable, graph_break and is_compiling in frame_hook.py;
mark_dynamic and mark_static in dynamic.py.)

A compiled module is copied and pickled as a call of `compile` with the same options; a compiled
function as functions are, by its name in its module.

Mirrors torch/_dynamo/eval_frame.py and decorators.py.
"""

import copyreg
import functools
import importlib
import operator
import types
from collections.abc import Callable
from typing import Any, cast

import torch

from miniinductor.options import did_you_mean

from . import config, records
from .backends import Backend
from .convert.convert_frame import FrameCompiler, skip_reason
from .errors import Unsupported
from .frame import frame_hook
from .frame.frame_hook import named_like

TRACE = "minidynamo.explain.trace"  # named, not imported: it stands on top of everything
CHOICES = {  # option of `compile` -> its values
    "mode": (None, "default", "reduce-overhead", "max-autotune"),
    "dynamic": (None, True, False),
    "fullgraph": (False, True),
}


def compile(
    fn_or_module: Any = None,
    *,
    backend: str | Backend = "inductor",
    fullgraph: bool = False,
    dynamic: bool | None = None,
    mode: str | None = None,
    **misspelt: Any,
) -> Any:
    """A compiled version of a function or module; without one, a decorator.

    dynamic: which sizes are symbols: None (those that changed between calls), True (all of the
    arguments'), False (none); see dynamic.py. Raises TypeError if it is given something that cannot
    be called, ValueError for a backend, mode, dynamic or fullgraph that there is not.
    """
    options = {"mode": mode, "dynamic": dynamic, "fullgraph": fullgraph}
    check_options(**options, **misspelt)
    if fn_or_module is None:
        return functools.partial(compile, backend=backend, **cast(Any, options))
    if config.trace_folder:
        importlib.import_module(TRACE).start_in(config.trace_folder)
    return compiled_by(FrameCompiler.of(backend, **options), fn_or_module)


def check_options(**options: Any) -> None:
    """Raises TypeError for an option that there is not, ValueError for a value."""
    for name, value in options.items():
        if name == "backend":
            continue
        if name not in CHOICES:
            known = ["backend", *CHOICES]
            text = f"there is no option {name!r}; there are {', '.join(known)}"
            raise TypeError(text + did_you_mean(name, known))
        if value not in CHOICES[name]:
            raise ValueError(
                f"there is no {name}={value!r}: use {' or '.join(map(repr, CHOICES[name]))}"
            )


def compiled_by(compiler: FrameCompiler, fn_or_module: Any) -> Any:
    """A function or module whose frames this compiler compiles."""
    if not callable(fn_or_module):
        raise TypeError(
            f"a function or a module can be compiled, not {type(fn_or_module).__name__}"
        )
    warn_if_skipped(fn_or_module, compiler.fullgraph)
    if isinstance(fn_or_module, torch.nn.Module):
        return CompiledModule(fn_or_module, compiler)
    if hasattr(fn_or_module, "__code__"):
        code = fn_or_module.__code__
        compiler.compiled_by_name[id(code)] = code
        if compiler.fullgraph and not frame_hook.get_cache(code):
            frame_hook.set_cache(code, [])  # it may have been skipped without fullgraph
    if isinstance(fn_or_module, frame_hook.Switched):
        # compiled already, or disabled: this call of `compile` replaces that
        fn_or_module = fn_or_module.__wrapped__
    return named_like(fn_or_module, frame_hook.enabled(fn_or_module, compiler))


def warn_if_skipped(target: Any, fullgraph: bool) -> None:
    """Warn once if frames of the function given to `compile` are never compiled (torch's own).
    Unsupported under fullgraph=True, unless the function is wrapped around another."""
    text = ""
    if isinstance(target, types.BuiltinFunctionType):
        text = f"{target.__name__} runs as plain Python: it is written in C"
    code = getattr(target, "__code__", None)
    if code is not None and (reason := skip_reason(code)):
        place = f"{code.co_filename}:{code.co_firstlineno}"
        text = f"{code.co_name} ({place}) runs as plain Python: it is {reason}"
    if text and fullgraph and not hasattr(target, "__wrapped__"):
        raise Unsupported(text)
    if text:
        records.warn_once(text, text)


# attributes of a `CompiledModule` that are not the original's
OWN = set("_orig_mod _run _compiler _returning __class__ __call__ __dict__".split())
# methods of torch.nn.Module that return the module itself: here they return the compiled one
RETURN_THEMSELVES = """apply bfloat16 cpu cuda double eval float half ipu mtia requires_grad_
    share_memory to to_empty train type xpu""".split()


class CompiledModule(torch.nn.Module):
    """A module whose calls are compiled; everything else is the original's."""

    _orig_mod: Any
    _compiler: FrameCompiler
    _run: Callable[..., Any]

    def __init__(self, module: torch.nn.Module, compiler: FrameCompiler) -> None:
        # past our own `__setattr__`, and without nn.Module's state: the original has that
        run = frame_hook.enabled(module, compiler)
        self.__dict__.update(_orig_mod=module, _compiler=compiler, _run=run)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._run(*args, **kwargs)

    def __getattribute__(self, name: str) -> Any:
        if name in OWN:
            return object.__getattribute__(self, name)
        found = getattr(self._orig_mod, name)
        if name in RETURN_THEMSELVES:
            return functools.partial(self._returning, found)
        return found

    def _returning(self, method: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        result = method(*args, **kwargs)
        return self if result is self._orig_mod else result

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._orig_mod, name, value)

    def __delattr__(self, name: str) -> None:
        delattr(self._orig_mod, name)

    # what Python looks for in the class
    def __getitem__(self, key: Any) -> Any:
        return self._orig_mod[key]

    def __len__(self) -> int:
        return len(self._orig_mod)

    def __iter__(self) -> Any:
        return iter(self._orig_mod)

    def __repr__(self) -> str:
        return f"CompiledModule({self._orig_mod!r})"


# --- copies ---------------------------------------------------------------------------------------
def options_of(compiler: FrameCompiler) -> dict[str, Any]:
    """What `compile` was given."""
    return dict(
        # a backend that was given itself is found again as pickle finds functions
        backend=compiler.backend_name if compiler.registered else compiler.backend,
        fullgraph=compiler.fullgraph,
        dynamic=compiler.dynamic,
        mode=compiler.mode,
    )


def module_reduced(module: CompiledModule) -> tuple[Any, ...]:
    """What `copy` and `pickle` ask for."""
    return functools.partial(compile, **options_of(module._compiler)), (module._orig_mod,)


copyreg.pickle(CompiledModule, module_reduced)


# A compiled function is pickled by its name, as plain functions are.
copyreg.pickle(frame_hook.Switched, operator.attrgetter("__qualname__"))
