"""Numbers that Python's `random` draws in a frame: drawn anew in each call, in front of the graph.

    x * random.uniform(0.9, 1.1)        # one graph, whose factor is an input
    x + random.randint(-3, 3)

In:   a call of the module's own generator: `random.random()`, and what asks that and computes
      (`uniform`), `randint`, `randrange(low, high)`.
Out:  a float without a value while tracing (a symbol without a hint), or an int that may
      meet tensors alone.  The replacement code draws all of them, in the program's order.

While a frame is traced nothing is drawn.  A decision about such a number breaks the graph: plain
Python goes on with the number that was drawn.  Where the graph raises, and plain Python runs the
frame again, the generator is put back, so that it draws the same.  A generator of the program's
stays a graph break, as do `seed` and `choice`.
Mirrors `random_calls` in torch/_dynamo/output_graph.py and variables/builtin.py.
"""

import _random
import random
import threading
from collections.abc import Callable
from typing import Any

import sympy
import torch

from ..extras.extending import noted
from .. import hooks
from ..exceptions import Break
from ..foreign import ours
from ..graph_capture import OutputGraph
from ..reconstruct import Codegen
from ..symbolic_eval.registry import rule
from ..variables.base import Frame, Variable
from ..variables.constant import ConstantVar
from ..variables.more.floats import create_float, tensor_of
from ..variables.symbolic import SymVar
from ..variables.tensor import TensorVar
from .choices import operand_beside
from .random_numbers import RandomVar

GENERATOR: Any = vars(random)["_inst"]  # that of the module's functions
KIND, HINT = "random", "draw it outside the compiled function, or seed a generator in it"
MOST_EXACT = 1 << 24  # every int up to here is one in float32


class Draws(list[Callable[[], Any]]):
    """What a frame draws, in its order.  Reading the first notes where the generator stood."""

    def __init__(self) -> None:
        super().__init__()
        self.symbols: list[sympy.Symbol] = []
        self.before = threading.local()

    def __getitem__(self, place: Any) -> Any:
        if place == 0:
            self.before.state = GENERATOR.getstate()
        return super().__getitem__(place)()

    def put_back(self) -> None:
        GENERATOR.setstate(self.before.state)


def drawn(tx: Frame, draw: Callable[[], Any]) -> SymVar:
    """The variable of a number that the replacement code draws."""
    output: OutputGraph = tx.output
    draws, env = noted(output, Draws), output.shape_env
    output.fake_mode.cache_enabled = False  # it hashes the numbers that ops are given
    source = output.tree.pinned(draws).item(len(draws))
    made = SymVar(create_float(env, None, source, f"random.{draw.__name__}()"))
    draws.append(draw)
    draws.symbols.append(made.expr)
    return made


def refuse(what: str) -> Break:
    return Break(KIND, f"random.{what}() of a generator that the program holds", HINT)


@rule(_random.Random.random)
def _random_random(tx: Frame, self: Any, /) -> Variable:
    if isinstance(self, RandomVar):
        return self.call_method(tx, "random", [], {})
    if getattr(self, "value", None) is not GENERATOR:
        raise refuse("random")
    return drawn(tx, GENERATOR.random)


@rule(random.random)
def _of_the_module(tx: Frame) -> Variable:
    return drawn(tx, GENERATOR.random)


# ---- ints
class DrawnInt(Variable):
    """An int of a known range: in the graph a tensor, which may be added to, multiplied with... one
    of floats or int64 that has dimensions."""

    number: SymVar
    made: tuple[Any, int]  # where the program was, and at which step of the root frame
    in_graph: TensorVar | None = None
    cls = int

    def argument(self, part: Callable[[Variable], Any]) -> Any:
        return part(self.in_graph)

    def reconstruct(self, cg: Codegen) -> None:
        cg.value(self.number)


class DrawnInts(list[DrawnInt]):
    """Those of this attempt."""


def drawn_int(tx: Frame, draw: Callable[[], Any], low: int, high: int) -> Variable:
    if not -MOST_EXACT < low <= high < MOST_EXACT:
        raise Break(KIND, "a random int of a large range", HINT)
    number = drawn(tx, draw)
    whole = [tensor_of(tx.output, number), ConstantVar(torch.int64)]
    in_graph: Any = tx.output.call_graph(tx, "call_method", "to", whole, {})
    found = DrawnInt(number, (tx.user_stack(), tx.output.root.group_step), in_graph)
    noted(tx.output, DrawnInts).append(found)
    return found


def bounds_of(values: tuple[Variable, ...]) -> list[int] | None:
    numbers = [value.value if type(value) is ConstantVar else None for value in values]
    return None if any(type(number) is not int for number in numbers) else numbers


def int_rule(name: str, highest: int) -> Callable[..., Variable]:
    """random.randint(low, high): both may come; randrange(low, high): the second one does not."""
    function = vars(random.Random)[name]

    def draw_int(tx: Frame, self: Any, /, *args: Variable, **kwargs: Variable) -> Variable:
        bounds = bounds_of(args)
        is_known = bounds is not None and not kwargs and 0 < len(args) <= 2
        if getattr(self, "value", None) is not GENERATOR or not is_known:
            return tx.inline(tx.output.wrap_pinned(function), [self, *args], kwargs)
        low, high = [0, *bounds][-2:]
        if low > high + highest or name == "randint" and len(args) < 2:
            raise Break("arguments", f"the arguments of random.{name}()")

        def draw() -> int:
            return getattr(GENERATOR, name)(*bounds)

        draw.__name__ = name
        return drawn_int(tx, draw, low, high + highest)

    return draw_int


rule(random.Random.randint)(int_rule("randint", 0))
rule(random.Random.randrange)(int_rule("randrange", -1))


def is_beside_tensor(user: torch.fx.Node, number: torch.fx.Node) -> bool:
    """Is the int beside a tensor of a dtype that holds it?"""
    other = operand_beside(user, number)
    return other is not None and other.dtype in (torch.float32, torch.float64, torch.int64)


# ---- in front of the graph, and behind its error
def draw_in_order(cg: Codegen) -> None:
    """Also those that nobody reads; and no function of the program's, run by the graph, between."""
    draws = noted(cg.output, Draws)
    cg.symbols.extend(draws.symbols)
    for found in noted(cg.output, DrawnInts):
        node = found.in_graph.node
        if not all(is_beside_tensor(user, node) for user in node.users):
            raise Break(KIND, "a random int that is no operand beside a tensor", HINT, *found.made)
    if draws and any(is_programs(node) for node in cg.output.graph.nodes):
        raise Break(KIND, "random numbers beside an autograd function of the program's", HINT)


def is_programs(node: torch.fx.Node) -> bool:
    """Does the graph run a Python function of the program's there?"""
    module = getattr(node.target, "__module__", None) or ""
    known = module.partition(".")[0] in ("torch", "minidynamo", "_operator", "math", "builtins")
    return node.op == "call_function" and bool(module) and not known


def with_the_same_numbers(compiled: Callable, output: OutputGraph, results: object) -> Callable:
    """Where the graph raises, plain Python may run the frame from its start."""
    draws = noted(output, Draws)

    def run(*args: Any) -> Any:
        try:
            return compiled(*args)
        except ours(BaseException):
            draws.put_back()
            raise

    return run if draws else compiled


hooks.BEFORE_VALUES.append(draw_in_order)
hooks.ADAPTERS.append(with_the_same_numbers)
