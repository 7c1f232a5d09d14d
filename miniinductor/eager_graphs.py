"""A graph as a function of eager kernels, also where the text that torch.fx prints means another.

In:   an fx.GraphModule.  Out: a callable: its `forward`, or an interpreter.

    (-2) ** t               # printed as `-2 ** t`, which is -(2 ** t)
    t * complex(1, inf)     # printed as `(1+infj)`, which is no Python
    aten.random.from(t)     # nor is this
"""

import keyword
import math
from collections.abc import Callable
from typing import Any

from torch import fx
from torch.fx._lazy_graph_module import _LazyGraphModule
from torch.fx.graph import inplace_methods
from torch.fx.node import map_aggregate

from .sizes.symbols import SYMBOLIC


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
    exact: list[bool] = []
    map_aggregate((node.args, node.kwargs), lambda part: exact.append(is_printed_exactly(part)))
    return not all(exact) or is_operator_of_number(node.target, node.args)


def is_operator_of_number(target: Any, args: tuple) -> bool:
    """A power of a number, which may have a sign, or `+=` of one?"""
    if getattr(target, "__module__", "") != "_operator" or isinstance(args[0], fx.Node):
        return False
    return target.__name__ == "pow" or target.__name__ in inplace_methods


def is_printed_exactly(value: Any) -> bool:
    """Not a NaN with a sign; nor a complex number with -0.0, which loses the sign, or with `infj`,
    which is a name."""
    if type(value) is float:
        return not math.isnan(value) or math.copysign(1, value) > 0
    if type(value) is not complex:
        return True
    real, imaginary = value.real, value.imag
    is_positive = math.copysign(1, imaginary) > 0
    if real == 0:
        is_positive = is_positive and math.copysign(1, real) > 0
    is_exact = is_positive or (real != 0 and imaginary != 0)
    return is_exact and math.isfinite(real) and math.isfinite(imaginary)
