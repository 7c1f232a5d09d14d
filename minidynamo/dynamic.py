"""Which sizes and ints of a frame become symbols: `compile(dynamic=...)`, marks on tensors, and
what earlier calls showed.

In:   a tensor or int and its source, while the frame is traced.
Out:  the dimensions (and strides) to make symbolic; what was met is noted, for the next compilation
      of the same code to compare with.

    >>> policy = SizePolicy(dynamic=None, earlier=[entry.record.sizes for entry in entries])
    >>> policy.of_tensor(x, source)      # {0}: size 0 was another one when compiled before

| dynamic | a size is a symbol |
|---|---|
| None | if it had another value in an earlier compilation ("automatic dynamic"), or is marked |
| True | as with None; at once if the tensor is an argument (strides, too), or an int argument |
| False | never |

0 and 1 are never symbols; ints below 2 neither, those of closures and globals only once they
change.  A symbol that the program pinned (it needed the number) is a number in the next attempt.
Mirrors torch/_dynamo/variables/builder.py (`_automatic_dynamic`) and pgo.py (paper section 5).
# PyTorch: what was seen is kept per code object in `frame_state`; here it lies with the cache
# entries and goes with them.
"""

from collections.abc import Iterable
from typing import Any

import torch

from .sources import Source
from .symbolic_shapes import can_be_symbolic


class SizePolicy:
    """The rules for one conversion.

    `met` is what the attempt saw, a row for each number: `(name, kind, number, is it a symbol?)`.
    The name says where it lies ("x.shape[0]"); the kind is a type for ints and floats, and the
    number of dimensions for sizes and strides, so that only those of such tensors are compared."""

    def __init__(self, dynamic: bool | None, earlier: Iterable[Any] = ()) -> None:
        self.dynamic = dynamic
        self.pinned: dict[str, tuple[float, str]] = {}  # name -> (value, line)
        self.met: list[Any] = []
        # (name, kind) -> [(number, is it a symbol?)] of earlier compilations
        self.earlier: dict[tuple[str, Any], list[tuple[float, bool]]] = {}
        for met in earlier if dynamic is not False else ():
            for name, kind, *seen in met:
                self.earlier.setdefault((name, kind), []).append(seen)

    def of_tensor(self, tensor: torch.Tensor, source: Source) -> set[int] | None:
        """The dimensions whose sizes are symbols; None if all that is known of its layout are
        numbers.  (extras/symbolic_strides.py: a stride may be a symbol where no size is.)"""
        if self.dynamic is False or not can_be_symbolic(tensor):
            return None
        name, rank = source.name(), tensor.dim()
        marked, static = self.marks(tensor, name)
        everywhere = bool(self.dynamic) and source.root().kind in ("local", "free")
        dims = {
            d
            for d, size in enumerate(tensor.shape)
            if d not in static
            and self.is_symbol(f"{name}.shape[{d}]", rank, size, everywhere or d in marked)
        }
        return dims or None

    def is_symbol(self, name: str, kind: Any, number: int, is_wanted: bool) -> bool:
        """Is this number a symbol: because that is wanted, or because it has changed?"""
        is_free = number >= 2 and name not in self.pinned
        chosen = is_free and (is_wanted or self.changed(name, kind, number))
        self.met.append((name, kind, number, chosen))
        return chosen

    def changed(self, name: str, kind: Any, number: float) -> bool:
        """Was it another number when the code was compiled before, or a symbol already?"""
        earlier = self.earlier.get((name, kind), ())
        return any(old != number or symbolic for old, symbolic in earlier)

    def marks(self, tensor: torch.Tensor, name: str) -> tuple[set[int], set[int]]:
        """The dimensions that the program wants as symbols, and those as numbers; see
        extras/directions.py."""
        return set(), set()

    def of_int(self, value: int, source: Source) -> bool:
        """Is this int a symbol?"""
        if self.dynamic is False or source.root().kind not in ("local", "free", "pinned"):
            return False
        is_wanted = self.dynamic is True and self.is_argument(source)
        return self.is_symbol(source.name(), int, value, is_wanted)

    def is_argument(self, source: Source) -> bool:
        """Is it an argument?  (For extras/small_ints.py, items of one are such, too.)"""
        return source.kind == "local"

    def pin(self, found: Iterable[tuple[Source, float, str]]) -> bool:
        """Note [(source, value, line)] that the program needed as numbers: are some of them new, so
        that tracing again helps?"""
        named = {source.name(): (value, line) for source, value, line in found}
        new = {name: row for name, row in named.items() if name not in self.pinned}
        self.pinned.update(new)
        return bool(new)
