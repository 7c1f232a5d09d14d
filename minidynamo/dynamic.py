"""Which sizes and ints of a frame become symbols: `compile(dynamic=...)`, marks on tensors, and
what earlier calls showed.

In:   a tensor or int and its source, while the frame is traced.
Out:  the dimensions (and strides) to make symbolic; what was met is noted, for the next compilation
      of the same code to compare with.

    >>> policy = SizePolicy(dynamic=None, earlier=[entry.record.sizes for entry in entries])
    >>> policy.of_tensor(x, source)      # ({0}, set()): size 0 was another one when compiled before

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

from collections.abc import Iterable, Sequence
from typing import Any

import torch

from . import config
from .sources import Source
from .symbolic_shapes import can_be_symbolic

# the kinds of sources by which an argument, or an item of one, is reached
ARGUMENT = {"local", "item", "list_item", "tuple_item", "dict_item"}


class SizePolicy:
    """The rules for one conversion.

    `met` is what the attempt saw: `(source, (shape, strides), symbolic dimensions, dimensions with
    a symbolic stride)` for a tensor, `(source, number, is it a symbol?)` for an int or float."""

    def __init__(self, dynamic: bool | None, earlier: Iterable[Any] = ()) -> None:
        self.dynamic = dynamic
        # do sizes and numbers that only the run knows stay in the graph?
        self.unbacked = config.capture_scalar_outputs and dynamic is not False
        self.pinned: dict[str, tuple[float, str]] = {}  # name -> (value, line)
        self.met: list[Any] = []
        # (name, type of what was seen) -> the rows of `met`, without their sources, of earlier
        # compilations
        self.earlier: dict[tuple[str, type], list[Any]] = {}
        for met in earlier if dynamic is not False else ():
            for source, *seen in met:
                self.earlier.setdefault((source.name(), type(seen[0])), []).append(seen)

    def start(self) -> None:
        """A new attempt."""
        self.met = []

    def of_tensor(self, tensor: torch.Tensor, source: Source) -> tuple[set[int], set[int]]:
        """(dimensions, dimensions whose stride is a symbol of its own)."""
        if self.dynamic is False or not can_be_symbolic(tensor):
            return set(), set()
        name = source.name()
        shape = tuple(tensor.shape)
        layout = tensor.stride()
        marked, static = self.marks(tensor, name)
        dims = set(marked)
        if self.dynamic and source.root().kind in ("local", "free"):
            dims = set(range(tensor.dim()))
        strides = {d for d in dims if layout[d] > 1 and self.dynamic}
        self._add_what_changed(name, shape, layout, dims, strides)
        dims = {
            d for d in dims - static if shape[d] > 1 and f"{name}.shape[{d}]" not in self.pinned
        }
        self.met.append((source, (shape, layout), dims, strides))
        return dims, strides

    def marks(self, tensor: torch.Tensor, name: str) -> tuple[set[int], set[int]]:
        """The dimensions that the program wants as symbols, and those as numbers; see
        extras/directions.py."""
        return set(), set()

    def check_marks(self, found: Iterable[tuple[str, float, str]]) -> None:
        """SpecializationError if one of [(source name, value, line)] was to be a symbol."""

    def _add_what_changed(
        self,
        name: str,
        shape: Sequence[int],
        layout: Sequence[int],
        dims: set[int],
        strides: set[int],
    ) -> None:
        """Add the dimensions whose size (stride) was another one when the code was compiled before,
        or a symbol already."""
        for (old_shape, old_layout), old_dims, old_steps in self.earlier.get((name, tuple), ()):
            if len(old_shape) != len(shape):
                continue
            for d in range(len(shape)):
                if old_shape[d] != shape[d] or d in old_dims:
                    dims.add(d)
                if old_layout[d] != layout[d] and old_layout[d] > 1 or d in old_steps:
                    strides.add(d)

    def of_int(self, value: int, source: Source) -> bool:
        """Is this int a symbol?"""
        if self.dynamic is False or source.root().kind not in ("local", "free", "pinned"):
            return False
        chosen = (
            value >= 2
            and source.name() not in self.pinned
            and (self.dynamic is True and self._is_argument(source) or self.changed(value, source))
        )
        self.met.append((source, value, chosen))
        return chosen

    def changed(self, value: float, source: Source) -> bool:
        """Was it another number when the code was compiled before, or a symbol already?"""
        earlier = self.earlier.get((source.name(), type(value)), ())
        return any(old != value or symbolic for old, symbolic in earlier)

    def _is_argument(self, source: Source | None) -> bool:
        """Is it an argument, or an item of one?"""
        while source is not None and source.kind in ARGUMENT:
            source = source.base
        return source is None

    def pin(self, found: Iterable[tuple[str, float, str]]) -> bool:
        """Note [(source name, value, line)] that the program needed as numbers: are some of them
        new, so that tracing again helps?"""
        new = [row for row in found if row[0] not in self.pinned]
        self.pinned.update({name: (value, line) for name, value, line in new})
        return bool(new)
