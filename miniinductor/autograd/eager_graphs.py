"""Graphs that run with eager kernels, also graphs that torch.fx would print as another program.

In:   an fx.GraphModule.
Out:  `runnable`: its `forward`, or an interpreter where the printed text is wrong; `Interpreted`:
      the Program of backend aot_eager; `with_eager_errors`: a compiled function that raises eager's
      exception where a kernel refuses a value.

    (-2) ** t               # printed as `-2 ** t`, which is -(2 ** t)
    t * complex(1, inf)     # printed as `(1+infj)`, which is no Python
    aten.random.from(t)     # nor is this

    >>> run = Interpreted(functional, written=[]).start()       # stands for a Program
    >>> told = with_eager_errors(run, gm)

Mirrors `aot_eager` (torch/_dynamo/backends/debugging.py).
"""

import cmath
import keyword
import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.utils._pytree as pytree
from torch import fx
from torch.fx._lazy_graph_module import _LazyGraphModule
from torch.fx.graph import inplace_methods
from torch.fx.node import map_aggregate

from ..errors import ours
from ..sizes.symbols import SYMBOLIC
from .fake_mode import is_random


def runnable(gm: fx.GraphModule) -> Callable:
    """What runs `gm`.  Not the module itself: hooks for all modules would see it."""
    if any(map(is_misprinted, gm.graph.nodes)):
        return EagerGraph(gm).run
    _LazyGraphModule.force_recompile(gm)
    return gm.forward


class EagerGraph(fx.Interpreter):
    """Runs a graph node by node.  Sizes in its arguments are those of this run."""

    def run(self, *args: Any, **kwargs: Any) -> Any:
        self.sizes: dict[str, Any] = {"math": math}
        return super().run(*args, **kwargs)

    def run_node(self, n: fx.Node) -> Any:
        value = super().run_node(n)
        if n.op == "placeholder" and isinstance(n.meta.get("val"), SYMBOLIC):
            self.sizes[str(n.meta["val"])] = value
        return value

    def fetch_args_kwargs_from_env(self, n: fx.Node) -> Any:
        return map_aggregate(super().fetch_args_kwargs_from_env(n), self.in_this_run)

    def in_this_run(self, value: Any) -> Any:
        """The number that a symbolic one is now: its text, computed from the sizes."""
        return eval(str(value), self.sizes) if isinstance(value, SYMBOLIC) else value


def is_misprinted(node: fx.Node) -> bool:
    """Does torch.fx print this call as something else?"""
    if keyword.iskeyword(getattr(node.target, "_overloadname", "")):
        return True
    is_exact = all(map(is_printed_exactly, pytree.tree_leaves((node.args, node.kwargs))))
    return not is_exact or is_operator_of_number(node.target, node.args)


def is_operator_of_number(target: Any, args: tuple) -> bool:
    """Is the call a power of a number (which may have a sign), or `+=` and the like of a number?"""
    if getattr(target, "__module__", "") != "_operator" or isinstance(args[0], fx.Node):
        return False
    return target.__name__ == "pow" or target.__name__ in inplace_methods


def is_printed_exactly(value: Any) -> bool:
    """Does torch.fx print this number exactly?  It does not print the sign of a NaN, loses that of
    -0.0 in a complex number, and prints `infj`, which Python takes for a name."""
    if type(value) is float:
        return not math.isnan(value) or math.copysign(1, value) > 0
    if type(value) is not complex:
        return True
    return cmath.isfinite(value) and repr(eval(repr(value))) == repr(value)


# --- in place of generated kernels ----------------------------------------------------------------
def writable(values: Sequence[Any]) -> list[Any]:
    """The values, with another tensor object for each view: the program could not write to one
    that was made without autograd."""
    return [v.detach() if isinstance(v, torch.Tensor) and v._is_view() else v for v in values]


class Interpreted:
    """Stands for a Program: the functional graph run by eager kernels; mutated inputs are written
    back."""

    device = torch.device("cpu")  # of its kernels: it has none that could be recorded or replayed

    def __init__(self, gm: fx.GraphModule, written: Sequence[tuple[str, str]]):
        self.gm, self.written = gm, written

    def start(self) -> Callable:
        graph = runnable(self.gm)
        names = [n.target for n in self.gm.graph.nodes if n.op == "placeholder"]

        def run(*inputs: object) -> list:
            recording = torch.is_grad_enabled()
            try:  # `with torch.no_grad()` could be cut short by an exception in its `__exit__`
                torch._C._set_grad_enabled(False)
                outputs, values = graph(*inputs)
                by_name = dict(zip(names, inputs))
                for (op, name), value in zip(self.written, values):
                    held = op != "placeholder"
                    holder = operator.attrgetter(name)(self.gm) if held else by_name[name]
                    holder.copy_(value)
                return writable(pytree.tree_leaves(outputs))
            finally:
                torch._C._set_grad_enabled(recording)

        return run


# --- errors ---------------------------------------------------------------------------------------
def draws(functional: fx.GraphModule) -> bool:
    """Does the graph draw random numbers?  Then a second run differs from the first."""
    return any(is_random(node.target) for node in functional.graph.nodes)


REPORT = "(in compiled kernel "  # how the message of a kernel that refuses a value ends


def with_eager_errors(run: Callable, gm: fx.GraphModule) -> Callable:
    """`run`, the function of a graph that neither draws nor writes.  Where one of our kernels
    refuses a value, the graph runs once more with eager kernels, which raise the exception that the
    program expects: scatter raises a RuntimeError, and our kernels always an IndexError."""

    def call(*inputs: object) -> object:
        try:
            return run(*inputs)
        except ours(IndexError, RuntimeError) as error:
            if REPORT not in str(error):
                raise
            report = error
        try:
            # (`gm()` would print the error, and run the program's hooks of all modules)
            runnable(gm)(*inputs)
            raise report  # eager has nothing to say: what our kernel has seen is not hidden
        finally:
            del report  # it knows this frame, which knows the inputs

    return call


def in_layout(tensor: Any, stride: tuple[int, ...]) -> Any:
    """The tensor, copied if its strides are others; strides of dimensions of size 1 do not
    matter."""
    if tensor.stride() == stride or not tensor.numel():
        return tensor
    if all(n == 1 or a == b for n, a, b in zip(tensor.shape, tensor.stride(), stride)):
        return tensor
    return tensor.new_empty_strided(tensor.shape, stride).copy_(tensor)
