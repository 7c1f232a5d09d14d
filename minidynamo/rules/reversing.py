"""reversed(): of objects, sequences, dictionaries and their views.

for value in reversed(d.values()): ...
"""

from ..exceptions import Break
from ..symbolic_eval.registry import rules
from ..variables.constant import ConstantVar
from ..variables.containers import DictVar, DictViewVar, SequenceVar, TupleVar
from ..variables.functions import BoundMethodVar, FunctionVar
from ..variables.iterators import HostIterator, SequenceIterator
from ..variables.lookup import lookup, type_text
from ..variables.more.proxies import ProxyVar
from ..variables.objects import ObjectVar


def _reversed(tx, value, /):
    if isinstance(value, ObjectVar):
        method = value.special(tx, "__reversed__")
        if isinstance(method, BoundMethodVar) and isinstance(method.function, FunctionVar):
            return method.call(tx, [], {})
        if method is not None and value.payload is not None:
            return _reversed(tx, value.payload)
        if method is None and (
            lookup(value.cls, "__reversed__")[1] is None
            or not hasattr(value.cls, "__getitem__")
            or not hasattr(value.cls, "__len__")
        ):
            tx.raise_(TypeError, f"'{type_text(value.cls)}' object is not reversible")
        items = (
            list(value.iterate(tx))
            if value.payload is not None
            else [value.getitem(tx, ConstantVar(n)) for n in range(value.length(tx))]
        )
        return tx.iter_of(TupleVar(items[::-1]))
    if isinstance(value, ConstantVar) and isinstance(value.value, range):
        return tx.iter_of(ConstantVar(value.value[::-1]))
    if isinstance(value, SequenceVar):
        return SequenceIterator(value, len(value.items) - 1, -1)
    if isinstance(value, ConstantVar):
        if hasattr(type(value.value), "__getitem__"):
            raise Break("iteration", "reversed() of text")  # whose iterator is one of its own
        tx.raise_(TypeError, f"'{type_text(value.python_type())}' object is not reversible")
    if isinstance(value, (DictVar, DictViewVar, ProxyVar)):
        like = getattr(value, "dict", value).cls()
        kind = getattr(value, "kind", None)  # of a dict's view
        return HostIterator(
            iter(list(value.iterate(tx))[::-1]),
            type(reversed(getattr(like, kind)() if kind else like)),
        )
    tx.raise_(TypeError, f"'{type_text(value.python_type())}' object is not reversible")


rules(
    {
        reversed: _reversed,
    }
)
