"""Which sizes and ints of a frame become symbols: `compile(dynamic=...)`, marks on tensors, and
what earlier calls showed; and the guards on shapes and strides of tensors.

In:   a tensor or int and its source, while the frame is traced.
Out:  the dimensions to make symbolic; what was met is noted, for the next compilation of the same
      code to compare with.

    >>> policy = SizePolicy(dynamic=None, earlier=[entry.record.sizes for entry in entries])
    >>> policy.of_tensor(x, source)      # {0}: size 0 was another one when compiled before

| dynamic | a size is a symbol |
|---|---|
| None | if it had another value in an earlier compilation ("automatic dynamic"), or is marked |
| True | as with None; at once if the tensor is an argument, or an int argument |
| False | never |

Sizes of 0 and 1 are never symbols; ints of closures and globals only once they change.  A symbol
that the program pinned (it needed the number) is a number in the next attempt.
Mirrors torch/_dynamo/variables/builder.py (`_automatic_dynamic`) and pgo.py (paper section 5).
# PyTorch: what was seen is kept per code object in `frame_state`; here it lies with the cache
# entries and goes with them.
"""

from collections.abc import Collection, Iterable, Sequence
from typing import Any

import torch

from miniinductor.sizes.expressions import python_code

from ..errors import SpecializationError
from ..guards.checks import KNOWS_NAMES, layout_of
from ..guards.guards import Guard, is_state
from ..guards.sources import Source
from .symbolic_shapes import can_be_symbolic

META = torch._C._autograd.CreationMeta
# the kinds of sources by which an argument, or an item of one, is reached
ARGUMENT = {"local", "item", "list_item", "tuple_item", "dict_item"}


def is_argument(source: Source) -> bool:
    """Is the value at `source` an argument, or an item of one?"""
    node: Source | None = source
    while node is not None and node.kind in ARGUMENT:
        node = node.base
    return node is None


def is_forbidden_when_written(tensor: torch.Tensor) -> bool:
    """Is the tensor a view that was made without gradients, of a tensor that needs them?

        with torch.no_grad():
            v = w.view(2, 2)    # autograd refuses to say anything of v once w or v is written

    Its sizes stay numbers: a fake of symbolic sizes is no view, and would not refuse.  (The results
    of `unbind` are forbidden, too, with symbolic sizes as without.)"""
    if not tensor.requires_grad or not tensor._is_view():
        return False
    made = torch._C._autograd._get_creation_meta(tensor)
    return made not in (META.DEFAULT, META.MULTI_OUTPUT_NODE)


Dims = int | Sequence[int]  # one dimension, or several


def mark_dynamic(tensor: torch.Tensor, dim: Dims) -> None:
    """Size `dim` of `tensor` is a symbol when it is compiled.  The compiled call raises
    SpecializationError where its number is needed."""
    mark(tensor, "_minidynamo_dynamic", dim)


def mark_static(tensor: Any, dim: Dims | None = None) -> Any:
    """Size `dim` of `tensor` (None: every size) is a number when it is compiled, also with
    dynamic=True.  A class of modules is given back as it is: what is read of a module is guarded
    anyway."""
    if isinstance(tensor, type) and issubclass(tensor, torch.nn.Module):
        return tensor
    mark(tensor, "_minidynamo_static", range(tensor.dim()) if dim is None else dim)
    return None


def mark(tensor: torch.Tensor, name: str, dim: Dims) -> None:
    """Note dimensions, counted from the front, on the tensor; `Tensor.size` raises TypeError or
    IndexError for what is none of its dimensions."""
    dims = [dim] if isinstance(dim, int) else dim
    sizes = {d % len(tensor.shape) for d in dims if torch.Tensor.size(tensor, d) >= 0}
    vars(tensor).setdefault(name, set()).update(sizes)


class SizePolicy:
    """The rules for one conversion.

    `met` is what the attempt saw, a row for each number: `(name, kind, number, is it a symbol?)`.
    The name says where it lies ("x.shape[0]"); the kind is a type for ints and floats, and the
    number of dimensions for sizes and strides, so that only those of such tensors are compared."""

    def __init__(
        self, dynamic: bool | None, earlier: Iterable[Any] = (), fresh_modules: bool = False
    ) -> None:
        self.dynamic = dynamic
        self.pinned: dict[str, tuple[float, str]] = {}  # name -> (value, line)
        # names of parameters and buffers that are placeholders, for another frame replaces them
        self.replaced: set[str] = set()
        # do calls bring modules of their own, which soon die?
        self.fresh_modules = fresh_modules
        self.met: list[Any] = []
        self.marked: set[str] = set()  # sizes that `mark_dynamic` has named, as sources are written
        # (name, kind) -> [(number, is it a symbol?)] of earlier compilations
        self.earlier: dict[tuple[str, Any], list[tuple[float, bool]]] = {}
        for met in earlier:
            for name, kind, *seen in met:
                if dynamic is not False:
                    self.earlier.setdefault((name, kind), []).append(seen)

    def of_tensor(self, tensor: torch.Tensor, source: Source) -> set[int] | None:
        """The dimensions whose sizes are symbols; None if all that is known of its layout are
        numbers."""
        can_be = can_be_symbolic(tensor) and not is_forbidden_when_written(tensor)
        if self.dynamic is False or not can_be:
            return None
        name, rank = source.name(), tensor.dim()
        marked = set(tensor.__dict__.get("_minidynamo_dynamic", ()))
        static = set(tensor.__dict__.get("_minidynamo_static", ())) - marked
        self.marked.update(f"{name}.shape[{dim}]" for dim in marked)
        everywhere = bool(self.dynamic) and source.root().kind in ("local", "free")
        dims = {
            d
            for d, size in enumerate(tensor.shape)
            if d not in static
            and self.is_symbol(f"{name}.shape[{d}]", rank, size, everywhere or d in marked)
        }
        return dims or None

    def is_symbol(
        self, name: str, kind: Any, number: float, is_wanted: bool, least: float = 2
    ) -> bool:
        """Is this number, from `least` on, a symbol: because that is wanted, or because it has
        changed?  (Infinity and what is near it is none.)"""
        is_free = number >= least and abs(number) < 1e308 and name not in self.pinned
        chosen = is_free and (is_wanted or self.changed(name, kind, number))
        self.met.append((name, kind, number, chosen))
        return chosen

    def changed(self, name: str, kind: Any, number: float) -> bool:
        """Did `name` have another number in an earlier compilation, or was it a symbol there?"""
        earlier = self.earlier.get((name, kind), ())
        return any(old != number or symbolic for old, symbolic in earlier)

    def of_int(self, value: int, source: Source) -> bool:
        """Is this int a symbol?  One that has changed is, even if it is 0 or 1 now (a counter);
        negative ones are constants."""
        if self.dynamic is False or source.root().kind not in ("local", "free", "pinned"):
            return False
        is_wanted = self.dynamic is True and value >= 2 and is_argument(source)
        return self.is_symbol(source.name(), int, value, is_wanted, least=0)

    def note_replaced(self, inputs: Iterable[Source], failed: Iterable[Guard]) -> None:
        """Parameters and buffers that are placeholders of earlier entries, or that the newest entry
        did not find: its guards that failed.

            self.low = self.low + x.min()       # in a resume function: another tensor each time
        """
        missed = [guard.source for guard in failed if guard.kind == "ID"]
        self.replaced.update(source.name() for source in (*inputs, *missed) if is_state(source))

    def pin(self, found: Iterable[tuple[Source, float, str]]) -> bool:
        """Note [(source, value, line)] that the program needed as numbers: are some of them new, so
        that tracing again helps?"""
        found = list(found)
        self.check_marks(found)
        named = {source.name(): (value, line) for source, value, line in found}
        new = {name: row for name, row in named.items() if name not in self.pinned}
        self.pinned.update(new)
        return bool(new)

    def check_marks(self, found: Iterable[tuple[Source, float, str]]) -> None:
        """SpecializationError if a size that is marked dynamic was needed as a number."""
        for source, value, line in found:
            if source.name() in self.marked:
                raise SpecializationError(
                    f"{source.name()} was marked dynamic, but {line or 'the backend'} needs it as "
                    f"the number {value}\n  hint: change that line, or leave the size unmarked: it "
                    "is a symbol, too, when calls come with another number"
                )


# ---- guards on shapes and strides of tensors
def guard_tensor(
    builder: Any, value: torch.Tensor, source: Source, symbolic: Collection[int] | None = None
) -> None:
    """What is assumed of a tensor: a guard for each thing, which says what has changed.

    symbolic: dimensions whose sizes are symbols; `guard_strides` and the ShapeEnv guard those, and
    the strides.  None: sizes and strides are numbers."""
    if "ID" not in source.guards:
        builder.guard(source, "TENSOR", "type({0}) is {pin}", type(value))
    builder.guard(source, "DTYPE", "{0}.dtype is {pin}", value.dtype)
    if symbolic is not None:
        builder.guard(source, "SHAPE", f"{{0}}.dim() == {value.dim()}")
        fixed = [f"{{0}}[{d}] == {n}" for d, n in enumerate(value.shape) if d not in symbolic]
        if fixed:
            builder.guard(source.attr("shape"), "SHAPE", " and ".join(fixed))
    else:
        builder.guard(source, "SHAPE", f"{{0}}.shape == {tuple(value.shape)}")
        if value.layout is torch.strided:
            builder.guard(source, "STRIDE", f"{{0}}.stride() == {value.stride()}")
        else:
            builder.guard(source, "LAYOUT", "{0}.layout is {pin}", value.layout)
    builder.guard(source, "DEVICE", "{0}.device == {pin}", value.device)
    builder.guard(source, "VIEW_BITS", view_bits_check(value))
    builder.guard(source, "GRAD", "{0}.requires_grad is {pin}", value.requires_grad)
    found = layout_of(value, any_size=symbolic is not None)
    if found is not None:
        hint = "_".join(map(str, (value.dtype, *value.shape)))
        name = builder.tree.pinned(builder.layouts.setdefault(found, found), hint).key
        compared = f".startswith({name})" if symbolic is not None else f" == {name}"
        source.layout = f"layout({{0}}){compared}"


def view_bits_check(value: torch.Tensor) -> str:
    """The check that a tensor answers as `value` does: is it negated or conjugated lazily, or made
    in inference mode?  Such a tensor cannot be saved for backward."""
    names = (
        ["is_neg", "_is_zerotensor", "is_inference"]
        + ["is_conj"] * value.is_complex()
        + ["has_names"] * KNOWS_NAMES
    )
    return " and ".join(f"{{0}}.{bit}() is {getattr(value, bit)()}" for bit in names)


def guard_strides(builder: Any, fake: Any, source: Source) -> None:
    """Strides that follow the symbolic sizes."""
    strides = fake.stride()
    symbolic = [n.node.expr for n in strides if type(n) is torch.SymInt]
    symbols = sorted(set().union(*[expr.free_symbols for expr in symbolic]), key=str)
    names = {symbol: f"{{{n}}}" for n, symbol in enumerate(symbols, 1)}
    steps = [
        python_code(n.node.expr, names) if type(n) is torch.SymInt else str(n) for n in strides
    ]
    comma = "," if len(steps) == 1 else ""
    check = f"{{0}}.stride() == ({', '.join(steps)}{comma})"
    sources = [builder.shape_env.table[symbol].sources[0] for symbol in symbols]
    builder.pair_guards.append(Guard("STRIDE", (source, *sources), check))
