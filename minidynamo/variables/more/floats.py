"""Floats that change from call to call: a clock (`self.t += dt`), a scheduler's learning rate.

In:   a float at a source that had another value in an earlier compilation.
Out:  a SymVar of a float symbol.  What the program computes with it is computed in Python, again in
      each call; where a tensor meets it, it is an input of the graph: a 0-d float64 tensor, which
      `floats_as_tensors` makes.

    >>> wrap_float(builder, 0.1, source)        # a constant, guarded by its value, at first
    >>> wrap_float(builder, 0.2, source)        # then symbolic f0

Whatever needs the number itself (an argument of an op that takes no tensor there) pins it, and
tracing starts over.  # PyTorch: torch.SymFloat, turned into tensors later
(torch/fx/passes/_tensorify_python_scalars.py).
"""

import functools
import math
import operator
from collections.abc import Callable, Iterable
from typing import Any

import sympy
import torch

from miniinductor.sizes.facts import LARGEST, Symbol

from ...extras.extending import extends, noted
from ... import hooks
from ...graph_capture import OutputGraph
from ...symbolic_inputs import symbolic_node
from ...symbolic_numbers import SymNode
from ...symbolic_shapes import Decision, ShapeEnv
from ..base import Frame, Source, Variable
from ..constant import ConstantVar, wrap_constant
from ..containers import SequenceVar
from ..registry import BY_VALUE
from .unpinned import pinned
from ..symbolic import CALLS, SymVar
from ..tensor import TensorVar


class Floats(dict[Any, Any]):
    """Source, or expression over symbols -> the float's variable."""


FINITE = "type({0}) is float and -1e308 < {0} < 1e308"


@BY_VALUE.rule(float)
def wrap_float(builder: OutputGraph, value: Any, source: Source) -> Variable:
    """In the place of the core's rule, which takes every float as a constant."""
    policy = builder.policy
    if policy.dynamic is False:
        return wrap_constant(builder, value, source)
    name = source.name()
    is_free = abs(value) < 1e308 and name not in policy.pinned
    chosen = is_free and policy.changed(name, float, value)
    policy.met.append((name, float, value, chosen))
    if not chosen:
        return wrap_constant(builder, value, source)
    builder.guard(source, "FLOAT", FINITE)
    floats = noted(builder, Floats)
    known = floats.get(source)
    if known is None:
        builder.fake_mode.cache_enabled = False  # it hashes the numbers that ops are given
        number = create_float(builder.shape_env, value, source)
        known = floats[source] = SymVar(number, source=source)
    return known


def create_float(env: Any, value: float, source: Source) -> torch.SymFloat:
    """A SymFloat for a float that is `value` in this run."""
    number = sum(not symbol.is_integer for symbol in env.table)
    symbol = sympy.Symbol(f"f{number}", real=True)
    env.table[symbol] = Symbol(symbol, value, [source], -LARGEST, LARGEST, env.where())
    return torch.SymFloat(SymNode(env, symbol, float, value))


specialize = ShapeEnv.specialize


@extends(ShapeEnv, "specialize")
def pin_float(env: ShapeEnv, expr: sympy.Expr, line: str | None = None) -> Any:
    """The number of a float symbol, which is one from now on: tracing starts over."""
    expr = env.simplify(sympy.sympify(expr))
    if not expr.is_Symbol or expr.is_integer or env.table[expr].hint is None:
        return specialize(env, expr, line)
    row = env.table[expr]
    row.pinned_at = line or env.where()
    env.replacements[expr] = number = sympy.Float(row.hint)
    env.decisions.append(Decision(sympy.Eq(expr, number), False, row.pinned_at))
    env.forget_answers()
    return row.hint


def is_float(variable: Any) -> bool:
    """Is it a float that is made of a float symbol?"""
    if type(variable) is not SymVar or type(variable.value) is not torch.SymFloat:
        return False
    return made_of_floats(variable.value)


def is_pinned(variable: Any) -> bool:
    """Was it such a float, until the program needed its number?"""
    kind = type(variable.value) if type(variable) is SymVar else None
    return kind is torch.SymFloat and not variable.value.node.expr.free_symbols


def made_of_floats(number: Any) -> bool:
    env = number.node.shape_env
    symbols = number.node.expr.free_symbols
    return any(not symbol.is_integer and env.table[symbol].sources for symbol in symbols)


# ---- in the graph
class FloatInput(TensorVar):
    """The placeholder of a float: `expr`, over symbols, is what the program computes it from."""

    expr: Any = None


def tensor_of(output: OutputGraph, variable: SymVar) -> TensorVar:
    """The float as a 0-d float64 tensor in the graph; the same one for the same expression."""
    expr = variable.value.node.expr
    floats = noted(output, Floats)
    known = floats.get(expr)
    if known is None:
        real = torch.tensor(example_of(variable), dtype=torch.float64)
        node = output.add_input("placeholder", output.unique_name("number"), output.fake_of(real))
        symbol = min(expr.free_symbols, key=str)
        source = output.shape_env.table[symbol].sources[0]
        given = (node, node.meta["example_value"], float, real)
        output.inputs.append(FloatInput(*given, source=source, expr=expr))
        known = floats[expr] = TensorVar(*given, source=source)
    return known


def example_of(variable: SymVar) -> float:
    """Its number in this run; some other, where only the run knows it (rules/drawn_numbers.py)."""
    hint = variable.value.node.hint
    return 0.5 if hint is None else float(hint)


def beside(tx: Frame, variable: SymVar, others: Iterable[Variable]) -> Variable:
    """What to use where `others` are the call's other arguments.  A number takes the dtype of the
    tensors it meets; a 0-d tensor only does so beside floating tensors that have dimensions, and is
    cast beside others."""
    met = [
        t.fake
        for other in others
        for t in (other.iterate(tx) if isinstance(other, SequenceVar) else (other,))
        if isinstance(t, TensorVar)
    ]
    tensor = tensor_of(tx.output, variable)
    if any(t.dim() and (t.is_floating_point() or t.is_complex()) for t in met):
        return tensor
    dtype = functools.reduce(torch.promote_types, [torch.result_type(t, 1.0) for t in met])
    if dtype.itemsize == 2:  # eager multiplies in float32 and rounds once
        return pinned(variable)
    return tx.output.call_graph(tx, "call_method", "to", [tensor, ConstantVar(dtype)], {})


ARITHMETIC = frozenset(
    """
    add sub mul div true_divide truediv iadd isub imul itruediv add_ sub_ mul_ div_ true_divide_
    _foreach_add _foreach_mul _foreach_div _foreach_add_ _foreach_mul_ _foreach_div_
    gt ge lt le eq ne greater greater_equal less less_equal not_equal
    floordiv floor_divide floor_divide_ mod remainder remainder_ fmod fmod_
    where clamp_min clamp_max copysign
    """.split()
)
# name -> which argument a number is written with; the tensor that is written has floats
WRITTEN = {"masked_fill": 2, "masked_fill_": 2, "fill_": 1, "setitem": 2}
SCALED_SUMS = ("add", "sub", "foreach_add", "foreach_sub")  # x + alpha * y
CLAMPS = ("clamp", "clip")
CLAMPED_ONCE = ("clamp_min", "clamp_max")


def with_tensors(tx: Frame, target: Any, args: Any, kwargs: Any) -> Any:
    """(target, args, kwargs) of a call in the graph where each float is a tensor, if the operation
    takes one there; else it is pinned once it is to stand in the graph."""
    if not noted(tx.output, Floats):
        return target, args, kwargs
    args = [value.constant() if is_pinned(value) else value for value in args]
    if not any(map(is_float, (*args, *kwargs.values()))):
        return target, args, kwargs
    name = target if isinstance(target, str) else getattr(target, "__name__", "")
    if name in CLAMPS:
        return clamped(tx, target, args, kwargs)
    if target is torch.tensor and len(args) == 1 and not kwargs:
        dtype = ConstantVar(torch.get_default_dtype())
        number = [tensor_of(tx.output, args[0]), dtype]
        return torch.clone, [tx.output.call_graph(tx, "call_method", "to", number, {})], {}
    if target is torch.full and len(args) == 2 and kwargs.keys() <= {"dtype", "device"}:
        ones: Any = tx.node(torch.ones, [args[0]], kwargs)
        if ones.fake.is_floating_point():
            target, name, args, kwargs = operator.mul, "mul", [ones, args[1]], {}
    is_scaled = name.strip("_") in SCALED_SUMS and is_float(kwargs.get("alpha"))
    if is_scaled and len(args) == 2 and not has_halves(tx, args[1]):
        multiply = torch._foreach_mul if isinstance(args[1], SequenceVar) else operator.mul
        args, kwargs = [args[0], tx.node(multiply, [args[1], kwargs["alpha"]])], {}
    return target, with_numbers(tx, name, args), kwargs


def has_halves(tx: Frame, value: Variable) -> bool:
    """Is one of these tensors of 16 bits?  x + alpha * y in float32, rounded once, is what eager
    gives; y * alpha would be rounded, too."""
    tensors = value.iterate(tx) if isinstance(value, SequenceVar) else [value]
    return any(isinstance(t, TensorVar) and t.fake.dtype.itemsize == 2 for t in tensors)


def with_numbers(tx: Frame, name: str, args: Any) -> Any:
    """The arguments of the operation of this name, with tensors where it takes them."""
    last: Any = args[-1] if args else None
    if name in CLAMPED_ONCE and is_float(last) and not is_other_than_zero(last):
        return [*args[:-1], last.constant()]
    if name in WRITTEN and len(args) == WRITTEN[name] + 1 and is_float(last):
        number = tensor_of(tx.output, last) if is_floating(args[0]) else last.constant()
        return [*args[:-1], number]
    if name in ARITHMETIC and any(isinstance(a, (TensorVar, SequenceVar)) for a in args):
        return [beside(tx, a, args) if is_float(a) else a for a in args]
    return args


def clamped(tx: Frame, target: Any, args: Any, kwargs: Any) -> Any:
    """clamp(x, low, high), one end after the other: of two tensors, both would have to be some."""
    x, *rest = args
    bounds = {**dict(zip(("min", "max"), rest)), **kwargs}
    set_bounds = {name: value for name, value in bounds.items() if value.identity() is not None}
    if not bounds.keys() <= {"min", "max"} or len(rest) > 2 or not is_floating(x):
        return target, args, kwargs
    *first, last = sorted(set_bounds, reverse=True)  # first the lower one, as eager
    for name in first:
        x = tx.node(getattr(torch, f"clamp_{name}"), [x, set_bounds[name]], {})
    by_name = f"clamp_{last}"
    end = by_name if isinstance(target, str) else getattr(torch, by_name)
    return with_tensors(tx, end, [x, set_bounds[last]], {})


def is_other_than_zero(value: SymVar) -> bool:
    """Guarded.  Of -0.0 and 0.0 eager's clamp takes one by a number, and another by a tensor."""
    node = value.value.node
    return bool(node.shape_env.decide(sympy.Ne(node.expr, 0)))


def is_floating(value: Variable) -> bool:
    """Is it a tensor of floats that has dimensions?"""
    return isinstance(value, TensorVar) and value.fake.is_floating_point() and value.fake.dim() > 0


hooks.BEFORE_NODES.append(with_tensors)


def pinned_in_the_graph(output: OutputGraph, tx: Any, value: Any) -> Any:
    """The node of a symbolic number; one that is made of a float is the number of this run."""
    if type(value) is not torch.SymBool and made_of_floats(value):
        return value.node.guard_int()
    return symbolic_node(output, tx, value)


OutputGraph.symbolic_node = pinned_in_the_graph


def _scaled(name: str, symbol: str) -> Callable:
    """addcmul, addcdiv: a `value` that is a tensor (what follows from an optimizer's step count) is
    multiplied in; so is a float that changes, where the result is written in place."""

    def method(self: TensorVar, tx: Frame, *args: Any, **kwargs: Variable) -> Variable:
        value: Any = kwargs.get("value")
        if name.endswith("_") and is_float(value):
            if has_halves(tx, args[0]):  # eager computes in float32 and rounds once
                wide = [args[0], ConstantVar(torch.float32)]
                args = (tx.output.call_graph(tx, "call_method", "to", wide, {}), *args[1:])
            value = beside(tx, value, args)
        if not isinstance(value, TensorVar):
            return tx.output.call_graph(tx, "call_method", name, [self, *args], kwargs)
        change = tx.binary(symbol, tx.binary("*", value, args[0]), args[1])
        return self.call_method(tx, name.replace("cmul", "").replace("cdiv", ""), [change], {})

    return method


for _name, _symbol in (("addcmul", "*"), ("addcdiv", "/")):
    for _method in (_name, _name + "_"):
        extends(TensorVar, f"method_{_method}")(_scaled(_method, _symbol))


def floats_as_tensors(compiled: Callable, output: OutputGraph, results: object) -> Callable:
    """`compiled`, with tensors in the place of the inputs that are floats for the program."""
    places = [n for n, variable in enumerate(output.inputs) if type(variable) is FloatInput]

    def run(*args: Any) -> Any:
        tensors = list(args)
        for n in places:
            tensors[n] = torch.tensor(args[n], dtype=torch.float64)
        return compiled(*tensors)

    return run if places else compiled


hooks.ADAPTERS.append(floats_as_tensors)


# ---- what torch would compute by other operations, which round
def as_node(number: Any, other: Any) -> SymNode:
    """The node of a symbolic number, or of a constant beside one."""
    if hasattr(number, "node"):
        return number.node
    return other.node.wrap_float(number) if type(number) is float else other.node.wrap_int(number)


def _exact(name: str, function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """`a // b` of floats as Python computes it, and not math.floor(a / b), which is torch's."""

    def compute(a: Any, b: Any) -> Any:
        if torch.SymFloat not in (type(a), type(b)):
            return function(a, b)
        return torch.SymFloat(getattr(as_node(a, b), name)(as_node(b, a)))

    return compute


for _name in ("floordiv", "mod"):
    for _function in (getattr(operator, _name), getattr(operator, f"i{_name}")):
        CALLS[_function] = _exact(_name, _function)


# ---- where Python raises, or gives a complex number
class OutOfDomain(ValueError):
    """The operation may raise for other floats: it is computed with the numbers of this run."""


def between(low: float, x: SymNode, high: float) -> list[sympy.Expr]:
    return [sympy.Gt(x.expr, low), sympy.Lt(x.expr, high)]


def power(base: Any, exponent: Any) -> list[sympy.Expr]:
    if exponent.expr.is_number and abs(exponent.hint) <= 16:
        if exponent.hint >= 0 and float(exponent.hint).is_integer():
            return between(-1e15, base, 1e15)
        return between(1e-15, base, 1e15)
    if base.expr.is_number and 0 < base.hint <= 1:
        return [sympy.Ge(exponent.expr, 0)]
    if base.expr.is_number and base.hint > 1:
        return [sympy.Le(exponent.expr, math.floor(300 / math.log10(base.hint)))]
    raise OutOfDomain


def divisor(a: SymNode, b: SymNode) -> list[sympy.Expr]:
    return [] if b.expr.is_number else [sympy.Ne(b.expr, 0)]


DOMAINS: dict[str, Callable[..., list[sympy.Expr]]] = {
    **dict.fromkeys("truediv int_truediv float_truediv floordiv mod".split(), divisor),
    **dict.fromkeys("pow float_pow".split(), power),
    **dict.fromkeys("sym_sin sym_cos sym_tan".split(), lambda x: between(-1e15, x, 1e15)),
    **dict.fromkeys("sym_sinh sym_cosh".split(), lambda x: between(-700, x, 700)),
    **dict.fromkeys("sym_asin sym_acos".split(), lambda x: between(-1, x, 1)),
    "sym_sqrt": lambda x: [sympy.Ge(x.expr, 0)],
    "sym_log2": lambda x: [sympy.Gt(x.expr, 0)],
}


@extends(SymNode)
def check_domain(node: SymNode, name: str, *others: SymNode) -> None:
    """Guard that an operation on floats raises nothing.  OutOfDomain where it may."""
    nodes = (node, *others)
    if all(symbol.is_integer for n in nodes for symbol in n.expr.free_symbols):
        return
    for n in nodes:
        if n.hint is None:
            return
        is_negative_zero = n.hint == 0 and math.copysign(1, n.hint) < 0
        if not math.isfinite(n.hint) or n.expr.is_number and is_negative_zero:
            raise OutOfDomain
    for relation in DOMAINS[name](*nodes) if name in DOMAINS else ():
        if not node.shape_env.decide(relation):
            raise OutOfDomain
