"""random.Random(seed), made in the frame: its numbers are known while tracing.

In:   a seed that is a constant.  Out: a generator whose draws are constants; where it leaves the
      frame, one in the same state.

    order = random.Random(epoch).sample(range(len(blocks)), 2)

A generator from outside draws others in each call: it stays a graph break (but the module's own,
see drawn_numbers.py), and so does one that the system seeds.  Mirrors RandomVariable in
torch/_dynamo/variables/user_defined.py.
"""

import random
from typing import Any

from ..exceptions import Break
from ..symbolic_eval.operations import on_host
from ..symbolic_eval.registry import rule
from ..variables.base import Args, Codegen, Frame, Named, Variable
from ..variables.constant import ConstantVar
from ..variables.containers import ListVar, TupleVar
from ..variables.functions import MethodVar

BY_POSITION = ("choice", "sample", "shuffle")  # look at how many elements there are, not at them


def in_state(state: Any) -> random.Random:
    """A generator that goes on from there."""
    made = random.Random(0)
    made.setstate(state)
    return made


class RandomVar(Variable):
    """A generator of this frame's; `host`: the same one, which draws while the frame is traced."""

    host: random.Random
    cls = random.Random
    shared = True

    def getattr(self, tx: Frame, name: str) -> Variable:
        if name.startswith("_") or not callable(getattr(self.host, name, None)):
            raise Break("attribute", f".{name} of a random.Random")
        return MethodVar(self, name)

    def call_method(self, tx: Frame, name: str, args: Args, kwargs: Named) -> Variable:
        if name.startswith("_") or name == "seed" and not (args or kwargs):
            raise Break("method", f"random.Random.{name}()")
        if name in BY_POSITION and args and not args[0].is_constant():
            return self.by_position(tx, name, args, kwargs)
        if name == "shuffle":
            raise Break("method", f"random.Random.shuffle() of {args}")
        return tx.fold(on_host(getattr(self.host, name), args, kwargs, "as_constant"))

    def by_position(self, tx: Frame, name: str, args: Args, kwargs: Named) -> Variable:
        """The same draw among the numbers of the elements' places."""
        values, *rest = args
        if type(values) not in (ListVar, TupleVar):
            raise Break("method", f"random.Random.{name}() of {values}")
        items: list[Variable] = list(values.iterate(tx))
        places = list(range(len(items)))
        draw = on_host(getattr(self.host, name), rest, kwargs, "as_constant")
        found = tx.run_now(draw.func, places, *draw.args, **draw.keywords)
        if name == "choice":
            return items[found]
        if name == "sample":
            return ListVar([items[place] for place in found])
        for place, origin in enumerate(places):
            values.setitem(tx, ConstantVar(place), items[origin])
        return tx.NONE

    def reconstruct(self, cg: Codegen) -> None:
        state = self.host.getstate()
        cg.call_object(in_state, lambda: cg.load_const(state))


@rule(random.Random)
def _random(tx: Frame, seed: Any = None) -> Variable:
    if seed is None or seed.identity() is None:
        raise Break("random", "a generator that the system seeds", "give it a seed")
    value = seed.as_constant()
    if type(value) not in (int, float, str, bytes):
        raise Break("random", f"a generator seeded by {seed}")
    return RandomVar(random.Random(value))
