"""A frame that asks too much about sizes: they become numbers, which is told.

In:   a decision of a frame whose questions have cost more than `config.size_steps`.
Out:  the sizes in it as numbers of this run, guarded; a warning with the user's line, once.

Without this file such a frame is compiled for as long as its questions take.
"""

import sympy

from .. import config, records
from ..symbolic_shapes import ShapeEnv


def give_up(env: ShapeEnv, expr: sympy.Expr) -> None:
    """The sizes in `expr` are numbers from now on."""
    for symbol in sorted(env.simplify(expr).free_symbols, key=str):
        row = env.table[symbol]
        if row.hint is None or symbol in env.replacements:
            continue
        text = (
            f"{row.sources[0]} is taken as a number, and not as a symbol, at {env.where()}: what "
            f"the program asks about sizes is too long to be answered for all of them (more than "
            f"config.size_steps = {config.size_steps} steps)"
        )
        env.specialize(symbol)
        records.tell(text, text)
        records.counters["sizes"][text] += 1


ShapeEnv.give_up = give_up
