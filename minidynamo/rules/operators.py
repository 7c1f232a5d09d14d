"""Operators of sets, dictionaries and their views, of floats that change, and of classes.

    {1} | {2}        {"a": 1} | {"b": 2}        d.keys() & {1}        int | None        lr * 0.1

In, out: as in `symbolic_eval.operators`, whose registries these handlers join.
"""

import collections
import operator as host

from ..exceptions import Break
from ..symbolic_eval.operators import (
    COMPARISONS,
    OPERATORS,
    SWAPPED,
    binary,
    compare,
    comparison,
    in_place,
    left_operand,
    right_operand,
    unary_operand,
)
from ..variables.base import Variable
from ..variables.constant import ConstantVar
from ..variables.containers import DictVar, DictViewVar
from ..variables.classes import ClassVar
from ..variables.more.floats import FloatVar
from ..variables.more.proxies import ProxyVar
from ..variables.more.sets import SetVar
from ..variables.objects import ObjectVar
from ..variables.symbolic import SymVar
from ..variables.tensor import TensorVar

METHODS = {"|": "union", "&": "intersection", "-": "difference", "^": "symmetric_difference"}
UPDATING = {symbol: f"{name}_update" for symbol, name in METHODS.items()} | {"|": "update"}
EXACT = 2**53  # every int up to here is a float


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
    if operator.plain == "&":
        return common_of_views(tx, a, b)
    if operator.plain == "^" and any(getattr(v, "kind", "") == "items" for v in (a, b)):
        raise Break("C function", "^ of the items of a dictionary")
    whole = a.dict if isinstance(a, DictViewVar) and a.kind == "keys" else a
    made = SetVar.made(tx, whole)
    made.call_method(tx, UPDATING[operator.plain], [b], {})
    return made


def common_of_views(tx, a: Variable, b: Variable) -> Variable:
    """`&` where one is a view of a dictionary: what is in both, in the order of the smaller, or of
    the one that is no view."""
    view, other = (a, b) if isinstance(a, DictViewVar) else (b, a)
    smaller = view.length(tx) < other.length(tx)
    if isinstance(other, SetVar) and other.cls is set:
        if view.length(tx) <= other.length(tx):
            return other.method_intersection(tx, view)
    elif isinstance(other, DictViewVar) and smaller:
        view, other = other, view
    return SetVar.of(tx, (v for v in other.iterate(tx) if view.contains(tx, v)))


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


@left_operand(ProxyVar)
@right_operand(ProxyVar)
def _proxies(tx, operator, a, b):
    if operator.symbol != "|" or isinstance(a, ObjectVar) or isinstance(b, ObjectVar):
        return None
    return binary(tx, "|", proxied(a), proxied(b))


def proxied(variable: Variable) -> Variable:
    return variable.dict if type(variable) is ProxyVar else variable


@comparison(ProxyVar)
def _compare_proxies(tx, symbol, a, b):
    if type(b) is ProxyVar:
        # The left one does not know how: the proxy on the right is asked, for the reverse.
        return compare(tx, SWAPPED[symbol], b.dict, proxied(a))
    return compare(tx, symbol, proxied(a), proxied(b))


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


# ---- floats that differ from call to call (a learning rate)
@left_operand(FloatVar)
@right_operand(FloatVar)
def _floats(tx, operator, a, b):
    """Exact in float64, as Python's; a division by a number that may become 0 raises there, and is
    left to Python."""
    if isinstance(a, (TensorVar, ObjectVar, SymVar)) or isinstance(b, (TensorVar, SymVar)):
        return None
    divides = operator.plain == "/" and isinstance(b, ConstantVar) and b.value
    if is_exact(a) and is_exact(b) and (operator.plain in ("+", "-", "*") or divides):
        symbolic = a if isinstance(a, FloatVar) else b
        return symbolic.combine(tx, OPERATORS[operator.plain].function, a, b)
    return binary(tx, operator.symbol, constant_of(a), constant_of(b))


def is_exact(variable: Variable) -> bool:
    if isinstance(variable, FloatVar):
        return True
    number = isinstance(variable, ConstantVar) and type(variable.value) in (int, float)
    return number and abs(variable.value) < EXACT


def constant_of(variable: Variable) -> Variable:
    """A float's number of this run, guarded; else the variable itself."""
    return ConstantVar(variable.as_constant()) if isinstance(variable, FloatVar) else variable


@comparison(FloatVar)
def _compare_floats(tx, symbol, a, b):
    if isinstance(a, ObjectVar) or isinstance(b, ObjectVar):
        return None
    return compare(tx, symbol, constant_of(a), constant_of(b))


@unary_operand(FloatVar)
def _unary_float(tx, symbol, a):
    return a.combine(tx, host.neg, a) if symbol == "-" else None


# ---- classes: int | None
@left_operand(ClassVar)
@right_operand(ClassVar)
def _classes(tx, operator, a, b):
    first, second = a.identity(), b.identity()
    if isinstance(a, ObjectVar) or isinstance(b, ObjectVar):
        return None
    if isinstance(first, Variable) or isinstance(second, Variable):
        return None
    return tx.fold_pinned(operator.function, first, second)
