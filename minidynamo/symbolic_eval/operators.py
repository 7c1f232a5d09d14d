"""Python's operators: who is asked, in which order, and what numbers, tensors, sequences and objects
answer.

In:   the symbol and the operands, as variables.   Out: a variable; the program's TypeError; a break.

    >>> binary(tx, "+", tensor, ConstantVar(1))      # a node of the graph

It goes as in CPython's abstract.c.  `a + b` asks `a` (`left_operand`), then `b` (`right_operand`),
the other way round where `b` is of a subclass that has its own method; then the sequences
(`sequence_operand`).  `a += b` asks `a` first whether it can be changed (`in_place`).  A comparison
asks `a`, then `b` (`comparison`).  Who does not know how returns None.  Sets, dictionaries and
classes answer in minidynamo/rules/operators.py.  Mirrors torch/_dynamo/variables/builtin.py.
"""

import collections
import operator as host
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from .. import config
from ..exceptions import Break
from ..variables.base import OpaqueVar, Variable
from ..variables.constant import ConstantVar
from ..variables.containers import ListVar, SequenceVar, SequenceVar_of, TupleVar
from ..variables.functions import BoundMethodVar, MethodVar
from ..variables.lookup import lookup, type_text
from ..variables.objects import ObjectVar
from ..variables.symbolic import SymVar, Unpinned, apply
from ..variables.tensor import TensorVar
from .registry import ByClass

if TYPE_CHECKING:
    from .evaluator import Frame

METHODS = (BoundMethodVar, MethodVar)


class Operator(NamedTuple):
    """One of Python's binary operators."""

    symbol: str  # as the program writes it: "+="
    plain: str  # "+"
    name: str  # of its methods: "add" of __add__, __radd__, __iadd__
    function: Callable  # that computes it: operator.iadd
    in_place: bool


PLAIN = dict(
    zip(
        "+ - * / // % ** @ & | ^ << >>".split(),
        "add sub mul truediv floordiv mod pow matmul and or xor lshift rshift".split(),
    )
)
OPERATORS: dict[str, Operator] = {}
for _plain, _name in PLAIN.items():
    _function, _updating = getattr(host, f"__{_name}__"), getattr(host, f"__i{_name}__")
    OPERATORS[_plain] = Operator(_plain, _plain, _name, _function, False)
    OPERATORS[_plain + "="] = Operator(_plain + "=", _plain, _name, _updating, True)
COMPARING = (host.lt, host.le, host.eq, host.ne, host.gt, host.ge)
COMPARISONS = dict(zip("< <= == != > >=".split(), COMPARING))
SWAPPED = {"<": ">", "<=": ">=", "==": "==", "!=": "!=", ">": "<", ">=": "<="}
VALUES = (int, float, complex, str, bytes)  # of C: a program's subclass has its operators, too
UNARY: dict[str, Callable] = {"-": host.neg, "+": host.pos, "~": host.invert, "not": host.not_}

# class of a variable -> handler(tx, operator, a, b) of binary operators
left_operand, right_operand, in_place, sequence_operand = ByClass(), ByClass(), ByClass(), ByClass()
comparison = ByClass()  # -> handler(tx, symbol, a, b): one of the two is of the class
unary_operand = ByClass()  # -> handler(tx, symbol, a)


# ---- who is asked
def binary(tx: "Frame", symbol: str, a: Variable, b: Variable) -> Variable:
    """`a + b`, `a += b`..."""
    operator = OPERATORS[symbol]
    for registry, asked in attempts(operator, a, b):
        result = registry.ask(type(asked), tx, operator, a, b)
        if result is not None:
            return result
    return unsupported(tx, operator, a, b)


def attempts(operator: Operator, a: Variable, b: Variable) -> Iterator[tuple[ByClass, Variable]]:
    """What is asked of whom, in CPython's order (binary_iop1, slot_nb_add)."""
    if operator.in_place:
        yield in_place, a
    if overrides(b, a, f"__r{operator.name}__"):
        yield right_operand, b
        yield left_operand, a
    else:
        yield left_operand, a
        if not (isinstance(a, ObjectVar) and a.cls is b.python_type()):
            yield right_operand, b
    yield sequence_operand, a
    yield sequence_operand, b


def overrides(b: Variable, a: Variable, method: str) -> bool:
    """Is `b` of a subclass of `a`'s class, with a method of its own?"""
    if not (isinstance(a, ObjectVar) and is_of_subclass(b, a)):
        return False
    return lookup(b.cls, method)[1] is not lookup(a.cls, method)[1]


def is_of_subclass(b: Variable, a: Variable) -> bool:
    """Is `b` an object of a subclass of `a`'s class?"""
    if not isinstance(b, ObjectVar):
        return False
    kind = a.python_type()
    return b.cls is not kind and issubclass(b.cls, kind)


def unsupported(tx: "Frame", operator: Operator, a: Variable, b: Variable) -> Variable:
    """Nobody knew how: Python's own types say so in their own words."""
    if not isinstance(a, ObjectVar) and not isinstance(b, ObjectVar):
        if callable(a.identity()) and callable(b.identity()):
            return tx.fold_pinned(operator.function, a.identity(), b.identity())
        return tx.fold(operator.function, a.as_constant(), b.as_constant())
    kinds = a.python_type(), b.python_type()
    if any(hasattr(kind, "__getitem__") for kind in kinds):
        raise Break("operator", f"{operator.plain} of {a} and {b}")  # sequences have words, too
    leave_to_c(a, b, operator.plain)
    first, second = map(type_text, kinds)
    written = "** or pow()" if operator.symbol == "**" else operator.symbol
    tx.raise_(TypeError, f"unsupported operand type(s) for {written}: '{first}' and '{second}'")


def leave_to_c(a: Variable, b: Variable, symbol: str) -> None:
    """An object of a subclass of int or str, whose own methods do not know how: int's might."""
    for operand in (a, b):
        if isinstance(operand, ObjectVar) and issubclass(operand.cls, VALUES):
            raise Break("operator", f"{symbol} of {a} and {b}")


def compare(tx: "Frame", symbol: str, a: Variable, b: Variable) -> Variable:
    """`a < b`, `a == b`..."""
    for operand in (a, b):
        if isinstance(operand, OpaqueVar) and not (
            symbol in ("==", "!=") and compared_by_identity(operand)
        ):
            raise operand.broken
    for asked in (a, b):
        result = comparison.ask(type(asked), tx, symbol, a, b)
        if result is not None:
            return result
    if symbol in ("==", "!="):
        return ConstantVar(same_value(tx, a, b) == (symbol == "=="))
    return tx.fold(COMPARISONS[symbol], a.as_constant(), b.as_constant())


def compared_by_identity(variable: Variable) -> bool:
    return lookup(variable.python_type(), "__eq__")[1] is object.__eq__


def same_value(tx: "Frame", a: Variable, b: Variable) -> bool:
    """a == b, where no container, tensor or object of a Python class is among the two."""
    if isinstance(a, METHODS) and isinstance(b, METHODS):
        return same_method(tx, a, b)
    if compared_by_identity(a) and compared_by_identity(b):
        return tx.same(a, b)
    if type(a) is not type(b) and not (a.is_constant() and b.is_constant()):
        return tx.same(a, b)
    return tx.fold(host.eq, a.real(), b.real()).value


def same_method(tx: "Frame", a: Any, b: Any) -> bool:
    """Two bound methods are equal if their functions are, bound to the same object."""
    if a.python_type() is not b.python_type() or not tx.same(a.instance, b.instance):
        return False
    if isinstance(a, MethodVar) or isinstance(b, MethodVar):
        return a.method_name() == b.method_name()
    return tx.equal(a.function, b.function)


def unary(tx: "Frame", symbol: str, a: Variable) -> Variable:
    """`-a`, `not a`..."""
    if symbol == "not":
        return ConstantVar(not a.truth(tx))
    result = unary_operand.ask(type(a), tx, symbol, a)
    if result is None:
        return tx.fold(UNARY[symbol], a.as_constant())
    return result


# ---- constants: computed now
@left_operand(ConstantVar)
def _constants(tx, operator, a, b):
    if type(b) is not ConstantVar:
        return None
    tx.check_size(operator.symbol, a.value, b.value)
    return tx.fold(operator.function, a.value, b.value)


@comparison(ConstantVar)
def _compare_constants(tx, symbol, a, b):
    if type(a) is not ConstantVar or type(b) is not ConstantVar:
        return None
    return tx.fold(COMPARISONS[symbol], a.value, b.value)


# ---- symbols: sizes and numbers that differ from call to call
@left_operand(SymVar)
@right_operand(SymVar)
def _symbols(tx, operator, a, b):
    """Symbolic where torch computes so; what is neither tensor nor object needs the number."""
    result = apply(tx, operator.function, a, b)
    if result is not None or isinstance(a, (TensorVar, ObjectVar)):
        return result
    if isinstance(b, (TensorVar, ObjectVar)):
        return None
    return binary(tx, operator.symbol, pinned(a), pinned(b))


def pinned(variable: Variable) -> Variable:
    """The number of this run, guarded, for a symbol; else the variable itself."""
    return variable.constant() if type(variable) is SymVar else variable


@comparison(SymVar)
def _compare_symbols(tx, symbol, a, b):
    return apply(tx, COMPARISONS[symbol], a, b)


@unary_operand(SymVar)
def _unary_symbol(tx, symbol, a):
    result = apply(tx, UNARY[symbol], a)
    return unary(tx, symbol, a.constant()) if result is None else result


# ---- tensors: nodes of the graph
@left_operand(TensorVar)
def _tensor_left(tx, operator, a, b):
    return tx.output.call_graph(tx, "call_function", operator.function, [a, b], {})


@right_operand(TensorVar)
def _tensor_right(tx, operator, a, b):
    if isinstance(a, ObjectVar):
        return None
    return tx.output.call_graph(tx, "call_function", operator.function, [a, b], {})


@comparison(TensorVar)
def _compare_tensors(tx, symbol, a, b):
    other = b if isinstance(a, TensorVar) else a
    if isinstance(other, ObjectVar) or isinstance(other, Unpinned) and type(other) is not SymVar:
        return None  # they know better
    a_value = isinstance(other, (TensorVar, ConstantVar, SymVar)) and other.identity() is not None
    if not a_value and symbol in ("==", "!="):
        return ConstantVar(symbol == "!=")
    return tx.output.call_graph(tx, "call_function", COMPARISONS[symbol], [a, b], {})


@unary_operand(TensorVar)
def _unary_tensor(tx, symbol, a):
    return tx.output.call_graph(tx, "call_function", UNARY[symbol], [a], {})


# ---- lists and tuples
@sequence_operand(SequenceVar)
def _sequences(tx, operator, a, b):
    if not isinstance(a, SequenceVar):
        if operator.plain == "*" and isinstance(a, ConstantVar):
            return repeated(tx, OPERATORS["*"], b, a)
        return None
    if operator.plain == "+":
        return concatenated(tx, operator, a, b)
    if operator.plain == "*":
        return repeated(tx, operator, a, b)
    return None


def concatenated(tx: "Frame", operator: Operator, a: SequenceVar, b: Variable) -> Variable | None:
    """`a + b`, `a += b`."""
    if operator.in_place and isinstance(a, ListVar):
        a.method_extend(tx, b)
        return a
    if a.cls is tuple and type(b) is TupleVar and not b.items:
        return a  # CPython makes no copy
    check_deque(operator, a, b)
    if not isinstance(b, SequenceVar):
        return None
    if isinstance(a, ListVar) != isinstance(b, ListVar):
        first, second = a.cls.__name__, b.cls.__name__
        tx.raise_(TypeError, f'can only concatenate {first} (not "{second}") to {first}')
    return SequenceVar_of(a.cls, [*a.iterate(tx), *b.iterate(tx)])


def repeated(tx: "Frame", operator: Operator, a: SequenceVar, b: Variable) -> Variable | None:
    """`a * b`, `a *= b`."""
    if not (isinstance(b, ConstantVar) and isinstance(b.value, int)):
        return None
    if a.cls is tuple and b.value == 1:
        return a  # CPython makes no copy
    check_deque(operator, a, b)
    if len(a.items) * b.value > config.step_limit:
        raise Break("limit", f"{len(a.items) * b.value} items in one {a.cls.__name__}")
    items = list(a.iterate(tx)) * b.value
    if operator.in_place and isinstance(a, ListVar):
        a.items[:] = items
        a._changed()
        return a
    return SequenceVar_of(a.cls, items)


def check_deque(operator: Operator, a: Variable, b: Variable) -> None:
    if not operator.in_place and collections.deque in (a.cls, b.cls):
        raise Break("C function", f"the operator {operator.plain} of a deque")


@comparison(SequenceVar)
def _compare_sequences(tx, symbol, a, b):
    if not isinstance(a, SequenceVar) or not isinstance(b, SequenceVar):
        return None
    first, second = kind_of_sequence(a), kind_of_sequence(b)
    equality = symbol in ("==", "!=")
    if first is not second and equality:
        return ConstantVar(symbol == "!=")
    if first is not second:
        not_supported(tx, symbol, a, b)
    if a.cls is list and equality and len(a.items) != len(b.items):
        return ConstantVar(symbol == "!=")
    n = 0
    while n < min(len(a.items), len(b.items)):  # comparing items may change the lists
        left, right = a.item(tx, n), b.item(tx, n)
        if not tx.same_or_equal(left, right):
            if n >= min(len(a.items), len(b.items)):
                break
            return ConstantVar(symbol == "!=") if equality else compare(tx, symbol, left, right)
        n += 1
    return tx.fold(COMPARISONS[symbol], len(a.items), len(b.items))


def kind_of_sequence(sequence: SequenceVar) -> type:
    """A list or deque is compared with its like, a tuple with any other."""
    return sequence.cls if isinstance(sequence, ListVar) else tuple


def not_supported(tx: "Frame", symbol: str, a: Variable, b: Variable) -> NoReturn:
    first, second = type_text(a.python_type()), type_text(b.python_type())
    tx.raise_(TypeError, f"'{symbol}' not supported between instances of '{first}' and '{second}'")
