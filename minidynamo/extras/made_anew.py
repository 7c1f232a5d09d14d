"""What each call of the program makes anew: a module without state, the class of a named tuple.

In:   `Makers`, the calls that made such objects while tracing.
Out:  code that makes the object again in each call, once.

    act = nn.ReLU()         # in the compiled function
    return act(x), act      # another object in each call
"""

from typing import Any

from .extending import extends, noted
from ..reconstruct import Codegen


class Makers(dict[int, Any]):
    """Id of an object that was made in the frame -> its maker."""


@extends(Codegen)
class MadeAnew(Codegen):
    def pinned(self, value: Any) -> None:
        """An object that the entry holds; a stateless module made in the frame is made anew in each
        call, once."""
        maker = noted(self.output, Makers).get(id(value))
        if maker is None:
            self.load_const(value)
        elif id(value) in self.variable_temps:
            self.load_fast(self.variable_temps[id(value)][0])
        else:
            self.call_object(maker)
            self.variable_temps[id(value)] = self.temp(), value
            self.emit("COPY", 1)
            self.store_fast(self.variable_temps[id(value)][0])
