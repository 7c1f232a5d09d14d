"""Which sizes and ints of a frame become symbols: `compile(dynamic=...)`, marks on tensors, and
what earlier calls showed.

In:   a tensor or int and its source, while the frame is traced.
Out:  the dimensions (and strides) to make symbolic; what was met is noted, for the next compilation
      of the same code to compare with.

    >>> policy = SizePolicy(dynamic=None, earlier=[entry.record.sizes for entry in entries])
    >>> policy.of_tensor(x, source)         # ({0}, set()): size 0 was another one when this code was compiled before

| dynamic | a size is a symbol |
|---|---|
| None | if it had another value in an earlier compilation of this code ("automatic dynamic"), or is marked |
| True | if the tensor is an argument (not a parameter or buffer); likewise its strides, and ints among the arguments |
| False | never |

0 and 1 are never symbols; ints below 2, those of closures and globals neither.  A symbol that the
program pinned (it needed the number) is a number in the next attempt. Mirrors
torch/_dynamo/variables/builder.py (`_automatic_dynamic`) and pgo.py (paper section 5).
# PyTorch: what was seen is kept per code object in `frame_state`; here it lies with the cache entries and goes with them.
"""

from .symbolic_shapes import can_be_symbolic

ARGUMENT = {
    "local",
    "item",
    "list_item",
    "tuple_item",
    "dict_item",
}  # how an int of the arguments is reached


class SizePolicy:
    """The rules for one conversion; `met` is what the attempt saw: [(source, sizes and strides or
    int, symbolic dims)]."""

    def __init__(self, dynamic, earlier=()):
        self.dynamic, self.pinned, self.met = dynamic, {}, []  # pinned: name -> (value, line)
        self.marked = {}  # name -> dimensions that mark_dynamic named
        self.earlier = {}  # (name, is it an int?) -> what was met there
        for met in earlier if dynamic is None else ():
            for source, *seen in met:
                self.earlier.setdefault((source.name(), type(seen[0]) is int), []).append(seen)

    def start(self):
        """A new attempt."""
        self.met, self.marked = [], {}

    def of_tensor(self, tensor, source):
        """(dimensions, dimensions whose stride is a symbol of its own)."""
        if self.dynamic is False or not can_be_symbolic(tensor):
            return set(), set()
        everything, name = range(tensor.dim()), source.name()
        marks = tensor.__dict__
        static, marked = (
            marks.get("_minidynamo_static", ()),
            set(marks.get("_minidynamo_dynamic", ())),
        )
        if marked:
            self.marked[name] = marked
        dims = (
            set(everything)
            if self.dynamic and source.root().kind in ("local", "free")
            else set(marked)
        )
        shape, layout = tuple(tensor.shape), tensor.stride()
        strides = {d for d in dims if layout[d] > 1 and self.dynamic}
        for (old_shape, old_strides), old_dims, old_steps in self.earlier.get((name, False), ()):
            if len(old_shape) == len(shape):
                dims.update(d for d in everything if old_shape[d] != shape[d] or d in old_dims)
                strides.update(
                    d
                    for d in everything
                    if old_strides[d] != layout[d] and old_strides[d] > 1 or d in old_steps
                )
        dims = {
            d
            for d in dims
            if f"{name}.shape[{d}]" not in self.pinned
            and (d not in static or d in marked)
            and shape[d] > 1
        }
        self.met.append((source, (shape, layout), dims, strides))
        return dims, strides

    def of_int(self, value, source):
        """Is this int a symbol?"""
        if (
            self.dynamic is False or source.root().kind != "local"
        ):  # a closure's or a global's int is fixed, as a rule
            return False
        chosen = (
            value >= 2
            and (
                self.dynamic is True
                and self._is_argument(source)
                or bool(self.earlier)
                and any(
                    old != value or symbolic
                    for old, symbolic in self.earlier.get((source.name(), True), ())
                )
            )
            and source.name() not in self.pinned
        )
        self.met.append((source, value, chosen))
        return chosen

    def _is_argument(self, source):
        while source is not None and source.kind in ARGUMENT:
            if source.base is None:
                return True
            source = source.base
        return False

    def pin(self, found):
        """Note [(source name, value, line)] that the program needed as numbers: are some of them
        new, so that tracing again helps?"""
        new = [row for row in found if row[0] not in self.pinned]
        self.pinned.update({name: (value, line) for name, value, line in new})
        return bool(new)
