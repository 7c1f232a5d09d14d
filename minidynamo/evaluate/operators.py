"""Python's operators: who is asked, in which order, and what numbers and tensors answer.

In:   the symbol and the operands, as variables.  Out: a variable; the program's TypeError; a break.

    >>> binary(tx, "+", tensor, ConstantVar(1))      # a node of the graph

It goes as in CPython's abstract.c.  `a + b` asks `a` (`left_operand`), then `b` (`right_operand`);
`a += b` asks `a` first whether it can be changed (`in_place`).  A comparison asks `a`, then `b`
(`comparison`); `-a` asks `a` (`unary_operand`).  Who does not know how returns None.  Objects,
sequences, sets, dictionaries and classes answer in minidynamo/evaluate/operators.py, which also
knows what Python says where nobody knows how (`last_operand`, `last_comparison`).
Mirrors torch/_dynamo/variables/builtin.py.

Operators of sequences, sets, dictionaries and their views, floats that change, classes and
objects; what Python says where nobody knows how.

    [1] + [2]        {1} | {2}        {"a": 1} | {"b": 2}        d.keys() & {1}
    lr * 0.1        int | None        Point(1, 2) + Point(3, 4)

In, out: as in `symbolic_eval.operators`, whose registries these handlers join.
"""

import collections
import operator as host
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import torch

from .. import config
from ..errors import Break
from ..variables.base import BINARY, OpaqueVar, Variable, compared_by_identity, lookup
from ..variables.classes import ClassVar
from ..variables.constant import NUMPY, ConstantVar
from ..variables.dicts import (
    Container,
    DictVar,
    DictViewVar,
    ListVar,
    SequenceVar,
    SetVar,
    TupleVar,
)
from ..variables.functions import BoundMethodVar, MethodVar
from ..variables.objects import ObjectVar, is_inherited
from ..variables.registry import ByClass
from ..variables.sequences import sequence_of
from ..variables.symbolic import SymVar, apply, pinned
from ..variables.tensor import TensorVar

if TYPE_CHECKING:
    from .evaluator import Frame


class Operator(NamedTuple):
    """One of Python's binary operators."""

    symbol: str  # as the program writes it: "+="
    plain: str  # "+"
    name: str  # of its methods: "add" of __add__, __radd__, __iadd__
    function: Callable  # that computes it: operator.iadd
    in_place: bool


SYMBOLS = "+ - * / // % ** @ & | ^ << >>".split()
OPERATORS: dict[str, Operator] = {}
for _plain, _name in zip(SYMBOLS, BINARY):
    _function, _updating = getattr(host, f"__{_name}__"), getattr(host, f"__i{_name}__")
    OPERATORS[_plain] = Operator(_plain, _plain, _name, _function, False)
    OPERATORS[_plain + "="] = Operator(_plain + "=", _plain, _name, _updating, True)
COMPARISONS: dict[str, Callable] = {"<": host.lt, "<=": host.le, "==": host.eq}
COMPARISONS |= {"!=": host.ne, ">": host.gt, ">=": host.ge}
# Binary operators: handler(tx, operator, a, b).
left_operand, right_operand, in_place, last_operand = ByClass(), ByClass(), ByClass(), ByClass()
# Comparisons: handler(tx, symbol, a, b); `a` or `b` is of the class
comparison, last_comparison = ByClass(), ByClass()


UNARY: dict[str, Callable] = {"-": host.neg, "+": host.pos, "~": host.invert, "not": host.not_}
unary_operand = ByClass()  # handler(tx, symbol, a)


# ---- who is asked
def binary(tx: "Frame", symbol: str, a: Variable, b: Variable) -> Variable:
    """`a + b`, `a += b`..."""
    operator = OPERATORS[symbol]
    questions = [(left_operand, a), (right_operand, b), (last_operand, a)]
    if operator.in_place:
        questions.insert(0, (in_place, a))
    for registry, asked in questions:
        result = registry.ask(type(asked), tx, operator, a, b)
        if result is not None:
            return result
    raise Break("operator", f"{operator.plain} of {a} and {b}")


def compare(tx: "Frame", symbol: str, a: Variable, b: Variable) -> Variable:
    """`a < b`, `a == b`...  (A value that is not traced can be compared where its class leaves that
    to its identity.)"""
    for operand in (a, b):
        if isinstance(operand, OpaqueVar) and not (
            symbol in ("==", "!=") and compared_by_identity(operand)
        ):
            raise operand.broken
    for registry, asked in ((comparison, a), (comparison, b), (last_comparison, a)):
        result = registry.ask(type(asked), tx, symbol, a, b)
        if result is not None:
            return result
    raise Break("compare", f"{a} {symbol} {b}")


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
def _constants(tx: "Frame", operator: Operator, a: ConstantVar, b: Variable) -> Variable | None:
    if type(b) is not ConstantVar:
        return None
    return tx.fold(operator.function, a.value, b.value)


@comparison(ConstantVar)
def _compare_constants(tx: "Frame", symbol: str, a: Variable, b: Variable) -> Variable | None:
    if type(a) is not ConstantVar or type(b) is not ConstantVar:
        return None
    return tx.fold(COMPARISONS[symbol], a.value, b.value)


# ---- symbols (sizes and numbers that differ from call to call), and tensors: nodes of the graph
@left_operand(SymVar)
@right_operand(SymVar)
def _symbols(tx: "Frame", operator: Operator, a: Variable, b: Variable) -> Variable | None:
    """Symbolic where torch can compute so.  Beside another operand that is neither tensor nor
    object, the symbol becomes the number of this run."""
    is_rounded = operator.plain == "//" and float in (a.python_type(), b.python_type())
    # (of floats torch computes math.floor(a / b), which rounds twice)
    result = None if is_rounded else apply(tx, operator.function, a, b)
    if result is not None or isinstance(a, (TensorVar, ObjectVar)):
        return result
    if isinstance(b, (TensorVar, ObjectVar)):
        return None
    return binary(tx, operator.symbol, pinned(a), pinned(b))


@left_operand(TensorVar)
def _tensor_left(tx: "Frame", operator: Operator, a: Variable, b: Variable) -> Variable:
    return tx.node(operator.function, [a, b])


@right_operand(TensorVar)
def _tensor_right(tx: "Frame", operator: Operator, a: Variable, b: Variable) -> Variable | None:
    return None if isinstance(a, ObjectVar) else tx.node(operator.function, [a, b])


@comparison(TensorVar)
def _compare_tensors(tx: "Frame", symbol: str, a: Variable, b: Variable) -> Variable | None:
    other = b if isinstance(a, TensorVar) else a
    if not isinstance(other, (TensorVar, ConstantVar)) and type(other) is not SymVar:
        return None  # its own handler knows better
    if symbol in ("==", "!=") and other.identity() is None:
        return ConstantVar(symbol == "!=")  # `tensor == None` is False
    return tx.node(COMPARISONS[symbol], [a, b])


@comparison(SymVar)
def _compare_symbols(tx: "Frame", symbol: str, a: Variable, b: Variable) -> Variable | None:
    return apply(tx, COMPARISONS[symbol], a, b)


@unary_operand(SymVar)
def _unary_symbol(tx: "Frame", symbol: str, a: SymVar) -> Variable:
    result = apply(tx, UNARY[symbol], a)
    return unary(tx, symbol, a.constant()) if result is None else result


@unary_operand(TensorVar)
def _unary_tensor(tx: "Frame", symbol: str, a: Variable) -> Variable:
    return tx.node(UNARY[symbol], [a])


SWAPPED = {"<": ">", "<=": ">=", "==": "==", "!=": "!=", ">": "<", ">=": "<="}
VALUES = (int, float, complex, str, bytes)  # of C: a program's subclass has its operators, too
BOUND = (BoundMethodVar, MethodVar)
METHODS = {"|": "union", "&": "intersection", "-": "difference", "^": "symmetric_difference"}
UPDATING = {symbol: f"{name}_update" for symbol, name in METHODS.items()} | {"|": "update"}


# ---- where neither operand knows how
@last_operand(Variable)
def _last_operand(tx, operator, a, b):
    """Sequences are asked; Python's own types complain in their own words."""
    result = of_sequences(tx, operator, a, b)
    if result is not None:
        return result
    if not isinstance(a, ObjectVar) and not isinstance(b, ObjectVar):
        if callable(a.identity()) and callable(b.identity()):
            return tx.fold_pinned(operator.function, a.identity(), b.identity())
        return tx.fold(operator.function, a.as_constant(), b.as_constant())
    kinds = a.python_type(), b.python_type()
    if any(hasattr(kind, "__getitem__") for kind in kinds):
        raise Break("operator", f"{operator.plain} of {a} and {b}")  # sequences have words, too
    leave_to_c(a, b, operator.plain)
    first, second = (kind.__name__ for kind in kinds)
    written = "** or pow()" if operator.symbol == "**" else operator.symbol
    tx.raise_(TypeError, f"unsupported operand type(s) for {written}: '{first}' and '{second}'")


def leave_to_c(a: Variable, b: Variable, symbol: str) -> None:
    """An object of a subclass of int or str, whose own methods do not know how: int's might."""
    for operand in (a, b):
        if isinstance(operand, ObjectVar) and issubclass(operand.cls, VALUES):
            raise Break("operator", f"{symbol} of {a} and {b}")


@last_comparison(Variable)
def _last_comparison(tx, symbol, a, b):
    if is_symbol_and_number(a, b) or is_symbol_and_number(b, a):
        return tx.compare(symbol, pinned(a), pinned(b))
    if symbol in ("==", "!="):
        return ConstantVar(same_value(tx, a, b) == (symbol == "=="))
    return tx.fold(COMPARISONS[symbol], a.as_constant(), b.as_constant())


def is_symbol_and_number(a: Variable, b: Variable) -> bool:
    """Are they a symbol and a number that it is not computed with (NumPy's, a complex one)?"""
    return type(a) is SymVar and type(b) is ConstantVar and type(b.value) in (*NUMPY, complex)


def same_value(tx, a: Variable, b: Variable) -> bool:
    """a == b, where no container, tensor or object of a Python class is among the two."""
    if isinstance(a, BOUND) and isinstance(b, BOUND):
        return same_method(tx, a, b)
    if compared_by_identity(a) and compared_by_identity(b):
        return tx.same(a, b)
    if type(a) is not type(b) and not (a.is_constant() and b.is_constant()):
        return tx.same(a, b)
    return tx.fold(host.eq, a.real(), b.real()).value


def same_method(tx, a: Any, b: Any) -> bool:
    """Two bound methods are equal if their functions are, bound to the same object."""
    if a.python_type() is not b.python_type() or not tx.same(a.instance, b.instance):
        return False
    if isinstance(a, MethodVar) or isinstance(b, MethodVar):
        raise Break("compare", "methods of C")
    return tx.equal(a.function, b.function)


# ---- lists and tuples
def of_sequences(tx, operator: Operator, a: Variable, b: Variable) -> Variable | None:
    """`+` and `*` of lists and tuples."""
    if isinstance(a, SequenceVar) and operator.plain == "+":
        return concatenated(tx, operator, a, b)
    if isinstance(a, SequenceVar) and operator.plain == "*":
        return repeated(tx, operator, a, b)
    if isinstance(b, SequenceVar) and operator.plain == "*":
        return repeated(tx, OPERATORS["*"], b, a)
    return None


def concatenated(tx, operator: Operator, a: SequenceVar, b: Variable) -> Variable | None:
    """`a + b`, `a += b`."""
    if operator.in_place and isinstance(a, ListVar):
        a.method_extend(tx, b)
        return a
    if a.cls is tuple and type(b) is TupleVar and b.cls is tuple and not b.items:
        return a  # CPython makes no copy
    if not isinstance(b, SequenceVar):
        return None
    if isinstance(a, ListVar) != isinstance(b, ListVar):
        first, second = a.cls.__name__, b.cls.__name__
        tx.raise_(TypeError, f'can only concatenate {first} (not "{second}") to {first}')
    items = [*a.iterate(tx), *b.iterate(tx)]
    is_shape = torch.Size in (a.cls, b.cls)  # `(2,) + x.shape` is one, too
    if is_shape and not all(issubclass(item.python_type(), int) for item in items):
        raise Break("operator", f"{operator.plain} of a torch.Size and what holds other than ints")
    return sequence_of(torch.Size if is_shape else a.cls, items)


def repeated(tx, operator: Operator, a: SequenceVar, b: Variable) -> Variable | None:
    """`a * b`, `a *= b`."""
    if not (isinstance(b, ConstantVar) and isinstance(b.value, int)):
        return None
    if a.cls is tuple and b.value == 1:
        return a  # CPython makes no copy
    if len(a.items) * b.value > config.step_limit:
        raise Break("limit", f"{len(a.items) * b.value} items in one {a.cls.__name__}")
    items = list(a.iterate(tx)) * b.value
    if operator.in_place and isinstance(a, ListVar):
        a.items[:] = items
        a._changed()
        return a
    return sequence_of(a.cls, items)


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
            return ConstantVar(symbol == "!=") if equality else tx.compare(symbol, left, right)
        n += 1
    return tx.fold(COMPARISONS[symbol], len(a.items), len(b.items))


def kind_of_sequence(sequence: SequenceVar) -> type:
    """A list is compared with its like, a tuple with any other."""
    return sequence.cls if isinstance(sequence, ListVar) else tuple


def not_supported(tx, symbol: str, a: Variable, b: Variable) -> NoReturn:
    first, second = a.python_type().__name__, b.python_type().__name__
    tx.raise_(TypeError, f"'{symbol}' not supported between instances of '{first}' and '{second}'")


# ---- sets and the views of dictionaries
@in_place(SetVar)
def _update_set(tx, operator, a, b):
    if a.cls is not set or not isinstance(b, SetVar) or operator.plain not in UPDATING:
        return None
    a.call_method(tx, UPDATING[operator.plain], [b], {})
    return a


@left_operand(SetVar, DictViewVar)
def _sets(tx, operator, a, b):
    if operator.plain not in METHODS or not isinstance(b, (SetVar, DictViewVar)):
        return None
    if isinstance(a, SetVar) and isinstance(b, SetVar):
        return a.call_method(tx, METHODS[operator.plain], [b], {})
    raise Break("operator", f"{operator.plain} of a view of a dictionary")


@comparison(SetVar, DictViewVar)
def _compare_sets(tx, symbol, a, b):
    if not isinstance(a, (SetVar, DictViewVar)) or not isinstance(b, (SetVar, DictViewVar)):
        return None
    return tx.fold(COMPARISONS[symbol], keys_of(tx, a), keys_of(tx, b))


def keys_of(tx, variable: Variable) -> set:
    """The elements by what stands for them in a dictionary."""
    if isinstance(variable, SetVar):
        return set(variable.items)
    return {value.hash_key(tx) for value in variable.iterate(tx)}


# ---- dictionaries
@in_place(DictVar)
def _update_dict(tx, operator, a, b):
    if operator.plain != "|":
        return None
    a.method_update(tx, b)
    return a


@left_operand(DictVar)
def _dicts(tx, operator, a, b):
    if operator.plain != "|" or not isinstance(b, DictVar):
        return None
    result = a.method_copy(tx)
    if a.cls is dict:  # a subclass's __ror__ comes first
        result.cls, result.factory = b.cls, b.factory
    result.method_update(tx, b)
    return result


@comparison(DictVar)
def _compare_dicts(tx, symbol, a, b):
    if symbol not in ("==", "!=") or not isinstance(a, DictVar) or not isinstance(b, DictVar):
        return None
    same = have_equal_items(tx, a, b)
    if same and a.cls is b.cls is collections.OrderedDict:
        same = [k.hash_key(tx) for k, _ in a.pairs(tx)] == [k.hash_key(tx) for k, _ in b.pairs(tx)]
    return ConstantVar(same == (symbol == "=="))


def have_equal_items(tx, a: DictVar, b: DictVar) -> bool:
    left = a.pairs(tx)
    if len(left) != len(b.pairs(tx)):
        return False
    for key, value in left:
        other = b.get(tx, key)
        if other is None or other is not value and not tx.equal(value, other):
            return False
    return True


# ---- classes: int | None
@left_operand(ClassVar)
@right_operand(ClassVar)
def _classes(tx, operator, a, b):
    first, second = a.identity(), b.identity()
    if isinstance(a, ObjectVar) or isinstance(b, ObjectVar):
        return None
    if isinstance(first, Variable) or isinstance(second, Variable):
        return None
    for operand in (a, b):
        if isinstance(operand, ClassVar):
            operand.refuse_own_operator(*(f"__{kind}{operator.name}__" for kind in ("", "r", "i")))
    return tx.fold_pinned(operator.function, first, second)


@unary_operand(ClassVar)
def _class_alone(tx, symbol, a):
    a.refuse_own_operator(f"__{UNARY[symbol].__name__}__")


@comparison(ClassVar)
def _compare_classes(tx, symbol, a, b):
    for operand in (a, b):
        if isinstance(operand, ClassVar):
            operand.refuse_own_operator(*(f"__{f.__name__}__" for f in COMPARISONS.values()))


# ---- objects of Python classes: their special methods
@left_operand(ObjectVar)
def _object_left(tx, operator, a, b):
    reverse = f"__r{operator.name}__"
    if overrides(b, a, reverse):
        result = answer(tx, b, reverse, a)
        if result is not None:
            return result
    return answer(tx, a, f"__{operator.name}__", b)


@right_operand(ObjectVar)
def _object_right(tx, operator, a, b):
    reverse = f"__r{operator.name}__"
    if isinstance(a, ObjectVar) and (a.cls is b.cls or overrides(b, a, reverse)):
        return None  # it is not asked, or was asked first
    return answer(tx, b, reverse, a)


def overrides(b: Variable, a: ObjectVar, method: str) -> bool:
    """Is `b` of a subclass of `a`'s class, with a method of its own?"""
    return is_of_subclass(b, a) and lookup(b.cls, method)[1] is not lookup(a.cls, method)[1]


def is_of_subclass(b: Variable, a: Variable) -> bool:
    """Is `b` an object of a subclass of `a`'s class?"""
    kind = a.python_type()
    return isinstance(b, ObjectVar) and b.cls is not kind and issubclass(b.cls, kind)


@in_place(ObjectVar)
def _object_in_place(tx, operator, a, b):
    return answer(tx, a, f"__i{operator.name}__", b)


def answer(tx, asked: ObjectVar, name: str, other: Variable) -> Variable | None:
    """What a special method answers; None if there is none, or it answers NotImplemented."""
    method = method_of(tx, asked, name)
    if method is None:
        return None
    result = method.call(tx, [other], {})
    return None if result.identity() is NotImplemented else result


def method_of(tx, asked: ObjectVar, name: str) -> Variable | None:
    """An operator's method.  Python calls one that is None, too, and says that it cannot."""
    if lookup(asked.cls, name)[1] is None:
        raise Break("operator", f"{name} of {asked}, which is None")
    return asked.special(tx, name)


@unary_operand(ObjectVar)
def _unary_object(tx, symbol, a):
    method = method_of(tx, a, f"__{UNARY[symbol].__name__}__")
    if method is None:
        tx.raise_(TypeError, f"bad operand type for unary {symbol}: '{a.cls.__name__}'")
    return method.call(tx, [], {})


@comparison(ObjectVar)
def _compare_objects(tx, symbol, a, b):
    """CPython's do_richcompare."""
    questions = [(symbol, a, b), (SWAPPED[symbol], b, a)]
    if is_of_subclass(b, a):
        questions.reverse()
    for question, asked, other in questions:
        result = compared(tx, question, asked, other)
        if result is not None:
            return result
    leave_to_c(a, b, symbol)
    if symbol in ("==", "!="):
        return ConstantVar(tx.same(a, b) == (symbol == "=="))
    not_supported(tx, symbol, a, b)


def compared(tx, symbol: str, asked: Variable, other: Variable) -> Variable | None:
    """What the type of `asked` answers; None if it does not know how."""
    if not isinstance(asked, ObjectVar):
        return by_contents(tx, symbol, asked, other)
    name = f"__{COMPARISONS[symbol].__name__}__"
    method = lookup(asked.cls, name)[1]
    if symbol == "!=" and method is object.__ne__:
        equal = compared(tx, "==", asked, other)
        return None if equal is None else ConstantVar(not equal.truth(tx))
    if not is_inherited(asked.cls, name) or method.__objclass__ is object:
        return answer(tx, asked, name, other)
    if asked.payload is not None:
        return by_contents(tx, symbol, asked, other)
    if not asked.immutable():
        raise Break("compare", f"{asked} is compared by C code")
    result = tx.run_now(method, asked.real(), other.real())
    return None if result is NotImplemented else tx.output.wrap_result(result)


def by_contents(tx, symbol: str, asked: Variable, other: Variable) -> Variable | None:
    """A container's own method looks at what the two hold, if they are of one kind."""
    first, second = contents(asked), contents(other)
    if not isinstance(first, Container) or not isinstance(second, Container):
        return None
    if isinstance(first, SequenceVar) and isinstance(second, SequenceVar):
        if kind_of_sequence(first) is not kind_of_sequence(second):
            return None
    return tx.compare(symbol, first, second)


def contents(variable: Variable) -> Variable:
    """What a list, dict or set subclass's object holds; else the variable itself."""
    payload = getattr(variable, "payload", None)
    return variable if payload is None else payload
