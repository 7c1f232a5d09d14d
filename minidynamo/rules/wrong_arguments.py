"""Arguments that do not fit a function's parameters: the TypeError of the traced program.

    def f(x, *, scale): ...
    f(x, 2)         # TypeError: f() takes 1 positional argument but 2 were given

In:   a FunctionVar and the arguments.   Out: CPython's own words.
"""

import types
from typing import NoReturn

from ..extras.extending import extends
from ..exceptions import Break
from ..foreign import ours
from ..symbolic_eval.operations import Operations
from ..variables.base import Args, Named
from ..variables.functions import FunctionVar


@extends(Operations)
class WrongArguments(Operations):
    def wrong_arguments(self, function: FunctionVar, args: Args, kwargs: Named) -> NoReturn:
        """CPython says what is wrong with the arguments: it is asked to call a function that has
        these parameters with them, and finds that out before any code runs."""
        code, cells = function.code, tuple(types.CellType() for _ in function.code.co_freevars)
        like = types.FunctionType(code, {}, function.name, function.defaults, cells)
        like.__kwdefaults__, like.__qualname__ = function.kwdefaults, function.name
        try:
            like(*args, **kwargs)
        except ours(TypeError) as error:
            self.raise_(TypeError, *error.args)
        raise Break("arguments", f"the arguments of {function.name}()")
