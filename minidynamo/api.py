"""The public functions: compile, reset, disable, graph_break, is_compiling, mark_dynamic,
mark_static.

    >>> model = minidynamo.compile(model, backend="eager")      # behaves like the module
Mirrors torch/_dynamo/eval_frame.py and decorators.py.
"""

import functools

import torch

from . import convert_frame, frame_hook
from .symbolic_eval import registry, torch_rules
from .variables.constant import ConstantVar

CHOICES = {  # option of `compile` -> its values
    "mode": (None, "default", "reduce-overhead", "max-autotune"),
    "dynamic": (None, True, False),
    "fullgraph": (False, True),
}


def compile(fn_or_module=None, *, backend="inductor", fullgraph=False, dynamic=None, mode=None):
    """A compiled version of a function or module; without one, a decorator.

    dynamic: which sizes are symbols: None (those that changed between calls), True (all of the
    arguments'), False (none); see dynamic.py. Raises TypeError if it is given something that cannot
    be called, ValueError for a backend, mode, dynamic or fullgraph that there is not.
    """
    for name, value in (("mode", mode), ("dynamic", dynamic), ("fullgraph", fullgraph)):
        # 1 == True, but dynamic=1 is a mistake: the types are compared, too
        if (type(value), value) not in [(type(choice), choice) for choice in CHOICES[name]]:
            raise ValueError(
                f"there is no {name}={value!r}: use {' or '.join(map(repr, CHOICES[name]))}"
            )
    if fn_or_module is None:
        return lambda target: compile(
            target, backend=backend, fullgraph=fullgraph, dynamic=dynamic, mode=mode
        )
    if not callable(fn_or_module):
        raise TypeError(
            f"compile() takes a function or a module, not {type(fn_or_module).__name__}"
        )
    compiler = convert_frame.FrameCompiler.of(backend, fullgraph, dynamic, mode)
    if torch_rules.is_leaf(fn_or_module):
        fn_or_module = framed(fn_or_module)
    if isinstance(fn_or_module, torch.nn.Module):
        return CompiledModule(fn_or_module, compiler)
    if hasattr(fn_or_module, "__code__"):
        compiler.compiled_by_name[id(fn_or_module.__code__)] = fn_or_module.__code__
    target = fn_or_module
    if isinstance(
        target, frame_hook.Switched
    ):  # compiled already, or disabled: compile what it is of
        target = target.__wrapped__
    return named_like(target, frame_hook.enabled(target, compiler))


def named_like(fn, made):
    """`made`, which gets the name and documentation of `fn`."""
    for name in functools.WRAPPER_ASSIGNMENTS:
        if hasattr(fn, name):
            setattr(made, name, getattr(fn, name))
    return made


@functools.lru_cache(None)
def framed(function):
    """A Python function that only calls `function`, for functions of torch's own (F.gelu,
    torch.softmax): the hook leaves their frames alone, and compiles the frame of this one."""

    @functools.wraps(function)
    def call(*args, **kwargs):
        return function(*args, **kwargs)

    call.__code__ = call.__code__.replace(
        co_name=function.__name__, co_filename=f"<{function.__module__}>"
    )
    return call


# attributes of a `CompiledModule` that are not the original's
OWN = set("_orig_mod _run _compiler __class__ __call__ __reduce_ex__ __dict__".split())


class CompiledModule(torch.nn.Module):
    """A module whose calls are compiled; everything else is the original's."""

    def __init__(self, module, compiler):
        self.__dict__["_orig_mod"], self.__dict__["_compiler"] = module, compiler
        self.__dict__["_run"] = frame_hook.enabled(module, compiler)

    def __call__(self, *args, **kwargs):
        return self._run(*args, **kwargs)

    def forward(self, *args, **kwargs):
        return self._run(*args, **kwargs)

    def __getattribute__(self, name):
        if name in OWN:
            return object.__getattribute__(self, name)
        return getattr(object.__getattribute__(self, "_orig_mod"), name)

    def __setattr__(self, name, value):
        setattr(self._orig_mod, name, value)

    def __delattr__(self, name):
        delattr(self._orig_mod, name)

    def __reduce_ex__(self, protocol):
        options = dict(
            backend=self._compiler.backend_name,
            fullgraph=self._compiler.fullgraph,
            dynamic=self._compiler.dynamic,
            mode=self._compiler.mode,
        )
        return functools.partial(compile, **options), (self._orig_mod,)

    def __repr__(self):
        return f"CompiledModule({self._orig_mod!r})"

    def __len__(self):
        return len(self._orig_mod)

    def __getitem__(self, key):
        return self._orig_mod[key]

    def __iter__(self):
        return iter(self._orig_mod)


def reset():
    """Forget every compiled entry, the counters and the records."""
    convert_frame.reset()


def disable(fn):
    """`fn`, run as plain Python with everything it calls."""
    return named_like(fn, frame_hook.disabled(fn))


def graph_break():
    """Ask for a graph break here; nothing in plain Python."""


def is_compiling():
    """True while the caller is being traced."""
    return False


def mark_dynamic(tensor, dim):
    """Size `dim` of `tensor` is a symbol when it is compiled.  The compiled call raises
    SpecializationError where its number is needed."""
    if not -tensor.dim() <= dim < tensor.dim():
        raise IndexError(
            f"mark_dynamic: a tensor of {tensor.dim()} dimensions has no dimension {dim}"
        )
    dim %= tensor.dim()
    tensor.__dict__.setdefault("_minidynamo_dynamic", set()).add(dim)


def mark_static(tensor, dim=None):
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
