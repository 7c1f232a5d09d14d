"""Opcodes of `match`.

In, out: as in `symbolic_eval.opcodes`, whose table these handlers join.
"""

from typing import Any

from ..exceptions import Break, ObservedException
from ..symbolic_eval.opcodes import opcode, pushes
from ..variables.constant import ConstantVar
from ..variables.containers import TupleVar
from ..variables.functions import CallableVar
from .polyfills import NOTHING


def values_under(frame: Any, keys: Any, subject: Any) -> ConstantVar | TupleVar:
    keys, nothing, found = list(keys.iterate(frame)), frame.output.wrap_pinned(NOTHING), []
    if len({key.hash_key(frame) for key in keys}) < len(keys):
        raise Break("match", "a pattern with one key twice")
    for key in keys:
        found.append(subject.call_method(frame, "get", [key, nothing], {}))
        if found[-1].identity() is NOTHING:
            return ConstantVar(None)
    return TupleVar(found)


@opcode
def MATCH_CLASS(frame: Any, count: int) -> None:
    subject, cls, names = frame.popn(3)
    if not CallableVar(isinstance).call(frame, [subject, cls], {}).truth(frame):
        frame.stack.append(ConstantVar(None))
        return
    values, attributes = [], ()
    if count and frame.has_attr(cls, "__match_args__"):
        attributes = cls.getattr(frame, "__match_args__").as_constant()
    elif count and cls.value.__flags__ & 1 << 22:  # _Py_TPFLAGS_MATCH_SELF: int, str...
        values = [subject]
    if type(attributes) is tuple:
        attributes = (*attributes[:count], *names.as_constant())
    if (
        type(attributes) is not tuple
        or len(values) + len({*attributes}) != count + len(names.as_constant())
        or not all(type(name) is str for name in attributes)
    ):
        raise Break("match", f"a pattern that is none of {cls}")
    try:
        values += [subject.getattr(frame, name) for name in attributes]
        frame.stack.append(TupleVar(values))
    except ObservedException as raised:
        if not issubclass(raised.var.python_type(), AttributeError):
            raise
        frame.stack.append(ConstantVar(None))


pushes(
    {
        "MATCH_SEQUENCE": lambda frame, _: ConstantVar(
            bool(frame.stack[-1].python_type().__flags__ & 1 << 5)
        ),  # Py_TPFLAGS_SEQUENCE
        "MATCH_MAPPING": lambda frame, _: ConstantVar(
            bool(frame.stack[-1].python_type().__flags__ & 1 << 6)
        ),
        "MATCH_KEYS": lambda frame, _: values_under(frame, frame.stack[-1], frame.stack[-2]),
    }
)
