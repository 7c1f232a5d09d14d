"""str(), repr(), ascii() and format() of values, on the host.

In:   a variable and "str", "repr", "ascii" or "format".   Out: the text; a break.

Constants are known here; objects, sets and functions answer in minidynamo/rules/text.py.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from ..variables.base import Variable
from .registry import ByClass

if TYPE_CHECKING:
    from .evaluator import Frame

CONVERT: dict[str, Callable] = {"str": str, "repr": repr, "ascii": ascii, "format": format}
text_of_class = ByClass()  # class of a variable -> handler(tx, value, how)


def text(tx: "Frame", value: Variable, how: str) -> str:
    """The text of a value."""
    found = text_of_class.ask(type(value), tx, value, how)
    if found is None:
        return tx.fold(CONVERT[how], value.as_constant()).value
    return found
