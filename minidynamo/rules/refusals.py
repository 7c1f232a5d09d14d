"""The handler of what always breaks the graph.

rules({warnings.warn: refused("warning", "warnings.warn()", "warn outside")})
"""

from collections.abc import Callable
from typing import NoReturn

from ..exceptions import Break
from ..variables.base import Frame, Variable


def refused(kind: str, reason: str, hint: str = "") -> Callable:
    def refuse(tx: Frame, *args: Variable, **kwargs: Variable) -> NoReturn:
        raise Break(kind, reason, hint)

    return refuse
