"""(coverage) Compiled functions are copied and pickled; methods that return the module return the
compiled one.

    >>> compiled = minidynamo.compile(model).eval().to(torch.float64)
    >>> type(compiled).__name__
    'CompiledModule'
    >>> pickle.loads(pickle.dumps(minidynamo.compile(math_of_mine, dynamic=True)))
    <compiled <function math_of_mine at ...>>

A compiled function that lies in its module under its own name (`@minidynamo.compile`) is pickled as
that name, and a copy of it is itself, as with functions.  Any other is pickled as a call of
`compile` with the same options.  What pickles by value instead (cloudpickle) finds the same.

PyTorch: an OptimizedModule's `eval()` returns the plain module's, too (`_orig_mod` is looked
through); torch.compile'd functions are closures, which cannot be pickled.
"""

import copyreg
import functools
import operator
import sys
from collections.abc import Callable
from typing import Any

import torch

from .extending import extends
from .. import api, frame_hook
from ..convert_frame import FrameCompiler
from ..foreign import ours

from .directions import disable

# methods of torch.nn.Module that return the module itself
RETURN_THEMSELVES = """apply bfloat16 cpu cuda double eval float half ipu mtia requires_grad_
    share_memory to to_empty train type xpu""".split()


# --- modules --------------------------------------------------------------------------------------
def returning_compiled(name: str) -> Callable[..., Any]:
    """The method of this name of the module itself; where that returns the module, the compiled
    one is returned."""

    @functools.wraps(getattr(torch.nn.Module, name))
    def method(self: api.CompiledModule, *args: Any, **kwargs: Any) -> Any:
        result = getattr(self._orig_mod, name)(*args, **kwargs)
        return self if result is self._orig_mod else result

    return method


for _name in RETURN_THEMSELVES:
    extends(api.CompiledModule, _name)(returning_compiled(_name))
api.OWN.update(RETURN_THEMSELVES)


def shown(module: torch.nn.Module) -> str:
    return f"CompiledModule({module!r})"


def of_the_module(name: str) -> Callable[..., Any]:
    """A special method, which Python looks for in the class: the module's own."""
    return lambda self, *args: getattr(operator, name)(self._orig_mod, *args)


for _name in ("__getitem__", "__setitem__", "__delitem__", "__contains__"):
    extends(api.CompiledModule, _name)(of_the_module(_name))
for _name, _function in (("__len__", len), ("__iter__", iter), ("__repr__", shown)):
    extends(api.CompiledModule, _name)(lambda self, of=_function: of(self._orig_mod))


@extends(api.CompiledModule, "__delattr__")
def delete(module: api.CompiledModule, name: str) -> None:
    delattr(module._orig_mod, name)


def options_of(compiler: FrameCompiler) -> dict[str, Any]:
    """What `compile` was given."""
    return dict(
        # a backend that was given itself is found again as pickle finds functions
        backend=compiler.backend_name if compiler.registered else compiler.backend,
        fullgraph=compiler.fullgraph,
        dynamic=compiler.dynamic,
        mode=compiler.mode,
    )


def module_reduced(module: api.CompiledModule) -> tuple[Any, ...]:
    """What `copy` and `pickle` ask for."""
    return functools.partial(api.compile, **options_of(module._compiler)), (module._orig_mod,)


copyreg.pickle(api.CompiledModule, module_reduced)


# --- functions ------------------------------------------------------------------------------------
def lies_in_its_module(function: frame_hook.Switched) -> bool:
    """Does its module have it under its name, so that pickle finds it there?"""
    home = sys.modules.get(getattr(function, "__module__", None) or "")
    try:
        return operator.attrgetter(function.__qualname__)(home) is function
    except ours(AttributeError):
        return False


def reduced(function: frame_hook.Switched) -> str | tuple[Any, ...]:
    """What `copy` and `pickle` ask for.  Raises TypeError for a hook with a callback that is no
    compiler."""
    if lies_in_its_module(function):
        return function.__qualname__
    compiler = function.__callback__
    if compiler is None:
        return disable, (function.__wrapped__,)
    if not isinstance(compiler, FrameCompiler):
        raise TypeError(f"cannot copy or pickle {function!r}: its callback is {compiler!r}")
    again = functools.partial(api.compile, **options_of(compiler))
    return again, (function.__wrapped__,), function.__dict__ or None


copyreg.pickle(frame_hook.Switched, reduced)
