"""The public functions: compile, disable, graph_break, is_compiling, mark_dynamic, mark_static.
(`reset` lies in convert_frame.py.)

    >>> model = minidynamo.compile(model, backend="eager")      # behaves like the module
Mirrors torch/_dynamo/eval_frame.py and decorators.py.
"""

import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch

from . import frame_hook, records
from .backends import Backend
from .convert_frame import FrameCompiler
from .skipping import skip_reason
from .symbolic_eval import registry, torch_rules
from .variables.constant import ConstantVar

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
) -> Any:
    """A compiled version of a function or module; without one, a decorator.

    dynamic: which sizes are symbols: None (those that changed between calls), True (all of the
    arguments'), False (none); see dynamic.py. Raises TypeError if it is given something that cannot
    be called, ValueError for a backend, mode, dynamic or fullgraph that there is not.
    """
    check_options(mode=mode, dynamic=dynamic, fullgraph=fullgraph)
    if fn_or_module is None:
        return lambda target: compile(
            target, backend=backend, fullgraph=fullgraph, dynamic=dynamic, mode=mode
        )
    return compiled_by(FrameCompiler.of(backend, fullgraph, dynamic, mode), fn_or_module)


def check_options(**options: Any) -> None:
    for name, value in options.items():
        # 1 == True, but dynamic=1 is a mistake: the types are compared, too
        if (type(value), value) not in [(type(choice), choice) for choice in CHOICES[name]]:
            raise ValueError(
                f"there is no {name}={value!r}: use {' or '.join(map(repr, CHOICES[name]))}"
            )


def compiled_by(compiler: FrameCompiler, fn_or_module: Any) -> Any:
    """A function or module whose frames this compiler compiles."""
    if not callable(fn_or_module):
        raise TypeError(
            f"compile() takes a function or a module, not {type(fn_or_module).__name__}"
        )
    if torch_rules.is_leaf(fn_or_module):
        fn_or_module = framed(fn_or_module)
    if isinstance(fn_or_module, torch.nn.Module):
        return CompiledModule(fn_or_module, compiler)
    if hasattr(fn_or_module, "__code__"):
        code = fn_or_module.__code__
        compiler.compiled_by_name[id(code)] = code
        if reason := skip_reason(code):
            place = f"{code.co_filename}:{code.co_firstlineno}"
            records.tell(place, f"{code.co_name} ({place}) runs as plain Python: it is {reason}")
    target = fn_or_module
    if isinstance(
        target, frame_hook.Switched
    ):  # compiled already, or disabled: compile what it is of
        target = target.__wrapped__
    return named_like(target, frame_hook.enabled(target, compiler))


def named_like(fn: Any, made: Any) -> Any:
    """`made`, which gets the name and documentation of `fn`."""
    for name in functools.WRAPPER_ASSIGNMENTS:
        if hasattr(fn, name):
            setattr(made, name, getattr(fn, name))
    return made


@functools.lru_cache(None)
def framed(function: Any) -> Callable[..., Any]:
    """A Python function that only calls `function`, for functions of torch's own (F.gelu,
    torch.softmax): the hook leaves their frames alone, and compiles the frame of this one."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    call.__code__ = call.__code__.replace(
        co_name=function.__name__, co_filename=f"<{function.__module__}>"
    )
    return call


# attributes of a `CompiledModule` that are not the original's
OWN = set("_orig_mod _run _compiler __class__ __call__ __reduce_ex__ __dict__".split())


class CompiledModule(torch.nn.Module):
    """A module whose calls are compiled; everything else is the original's."""

    def __init__(self, module: torch.nn.Module, compiler: FrameCompiler) -> None:
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

    def __delattr__(self, name: str) -> None:
        delattr(self._orig_mod, name)

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        compiler = self._compiler
        options = dict(
            # one that was given itself is found again as pickle finds functions
            backend=compiler.backend_name if compiler.registered else compiler.backend,
            fullgraph=compiler.fullgraph,
            dynamic=compiler.dynamic,
            mode=compiler.mode,
        )
        return functools.partial(compile, **options), (self._orig_mod,)

    def __repr__(self) -> str:
        return f"CompiledModule({self._orig_mod!r})"

    def __len__(self) -> int:
        return len(self._orig_mod)

    def __getitem__(self, key: Any) -> Any:
        return self._orig_mod[key]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._orig_mod)


def disable(fn: Any) -> Any:
    """`fn`, run as plain Python with everything it calls."""
    return named_like(fn, frame_hook.disabled(fn))


def graph_break() -> None:
    """Ask for a graph break here; nothing in plain Python."""


def is_compiling() -> bool:
    """True while the caller is being traced."""
    return False


def mark_dynamic(tensor: torch.Tensor, dim: int) -> None:
    """Size `dim` of `tensor` is a symbol when it is compiled.  The compiled call raises
    SpecializationError where its number is needed."""
    if not -tensor.dim() <= dim < tensor.dim():
        raise IndexError(
            f"mark_dynamic: a tensor of {tensor.dim()} dimensions has no dimension {dim}"
        )
    dim %= tensor.dim()
    tensor.__dict__.setdefault("_minidynamo_dynamic", set()).add(dim)


def mark_static(tensor: torch.Tensor, dim: int | None = None) -> None:
    """Size `dim` of `tensor` (None: every size) is a number when it is compiled, also with
    dynamic=True."""
    tensor.__dict__.setdefault("_minidynamo_static", set()).update(
        range(tensor.dim()) if dim is None else [dim % tensor.dim()]
    )


registry.rules(
    {
        graph_break: registry.refused(
            "graph_break()", "minidynamo.graph_break() was called", "remove the call"
        ),
        is_compiling: lambda tx: ConstantVar(True),
    }
)
