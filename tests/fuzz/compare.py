"""What a program did, as plain data: two runs are the same program if their data are equal.

In:   any Python values.   Out: nested tuples in which every object met twice is a back reference,
      so that aliasing counts.

    >>> describe([a, a]) == describe([a, a.clone()])
    False
Tensors: type, dtype, shape, strides, requires_grad, offset and storage (aliasing of memory), and
the bytes of their values.
"""

import collections
import contextlib
import inspect
import io
import itertools
import re
import sys
import types

import torch

CONSTANTS = (int, str, float, bool, bytes, type(None))
ADDRESS = re.compile(r" at 0x[0-9a-f]+")


class Rounded(str):
    """A number of a few digits; one more or less in the last makes no difference: where two numbers
    are nearly the same, one may be rounded up and the other down."""

    def __eq__(self, other):
        if type(other) is not Rounded or str.__eq__(self, other):
            return type(other) is Rounded
        (first, power), (second, second_power) = (n.split("e") for n in (self, other))
        places = 10 ** len(first.partition(".")[2])
        step = float(first) - float(second) * 10 ** (int(second_power) - int(power))
        return abs(step) * places < 1.5

    def __ne__(self, other):
        return not self == other

    __hash__ = None


def rounded(number, digits):
    is_finite = abs(number) < float("inf")
    return Rounded(f"{number:.{digits - 1}e}") if is_finite and number else str(number)


PLAIN = (bool, int, str, bytes, range, slice, type(Ellipsis), torch.dtype, torch.device)


class Describer:
    def __init__(self, digits=None):
        self.seen, self.storages, self.alive, self.digits = {}, {}, [], digits

    def __call__(self, value):
        kind = type(value)
        if value is None or kind in PLAIN:
            return value if kind is not bool else ("bool", value)
        if kind in (float, complex):
            return (
                kind.__name__,
                repr(value) if self.digits is None else f"{value:.{self.digits}g}",
            )
        if kind is tuple and all(
            type(item) in CONSTANTS for item in value
        ):  # whether equal constants are one object is not told
            return ("tuple", None, *map(self, value))
        if id(value) in self.seen:
            return ("seen", self.seen[id(value)])
        self.seen[id(value)] = len(self.seen)
        self.alive.append(value)  # ids stay taken
        if isinstance(value, torch.Tensor):
            return self.tensor(value)
        if isinstance(value, dict):
            extra = self(value.default_factory) if kind is collections.defaultdict else None
            return (
                kind.__name__,
                extra,
                *((self(k), self(v)) for k, v in value.items()),
                *self.attributes(value),
            )
        if isinstance(value, (set, frozenset)):
            return (kind.__name__, *sorted(map(repr, map(self, value))))
        if isinstance(value, (list, tuple, collections.deque)):
            return (
                kind.__name__,
                getattr(value, "maxlen", None),
                *map(self, value),
                *self.attributes(value),
            )
        if isinstance(value, BaseException):
            return self.error(value)
        if kind is types.FunctionType:
            cells = [
                self(c.cell_contents) if not _empty(c) else "empty" for c in value.__closure__ or ()
            ]
            return (
                "function",
                value.__name__,
                value.__qualname__,
                self(value.__defaults__),
                self(value.__kwdefaults__),
                *cells,
            )
        if kind is types.MethodType:
            return ("method", self(value.__func__), self(value.__self__))
        if isinstance(value, (type, types.ModuleType, types.BuiltinFunctionType)):
            return (kind.__name__, value.__name__)
        if inspect.getattr_static(kind, "__next__", None) is not None:  # asks no metaclass
            return (kind.__name__, *self.steps(value))
        return (kind.__name__, *self.attributes(value))

    def steps(self, iterator):
        try:
            for item in itertools.islice(iterator, 50):
                yield self(item)
        except Exception as error:  # of a generator's body, or of a function that it maps
            yield "raised", self.error(error)

    def attributes(self, value):
        names = [
            n
            for base in type(value).__mro__
            for n in (
                [base.__dict__["__slots__"]]
                if isinstance(base.__dict__.get("__slots__", ()), str)
                else base.__dict__.get("__slots__", ())
            )
        ]
        found = [(n, self(getattr(value, n))) for n in names if hasattr(value, n)]
        return found + [(n, self(v)) for n, v in getattr(value, "__dict__", {}).items()]

    def tensor(self, value):
        place = value.untyped_storage().data_ptr() if value.numel() else None
        with torch.no_grad():
            data = value.detach().contiguous()
            data = (
                "meta"
                if data.is_meta
                else repr(data.tolist())
                if self.digits is None
                else [rounded(float(v), self.digits) for v in data.flatten().tolist()]
            )
        return (
            type(value).__name__,
            value.dtype,
            tuple(value.shape),
            value.stride() if value.numel() else None,  # steps to nowhere
            value.requires_grad,
            value.is_leaf,
            value.is_inference(),
            value.storage_offset(),
            place and self.storages.setdefault(place, len(self.storages)),
            data,
            self(value.grad) if value.is_leaf else None,
            *self.attributes(value),
        )

    def error(self, value):
        if isinstance(value, RecursionError):
            # its text says whether the last of so many calls was C's: that is the depth of the
            # first one
            return type(value).__name__
        return (
            type(value).__name__,
            *[ADDRESS.sub("", a) if isinstance(a, str) else self(a) for a in value.args],
            self(value.__cause__),
            self(value.__context__),
            value.__suppress_context__,
            tuple(getattr(value, "__notes__", ())),
            *self.attributes(value),
        )


def _empty(cell):
    try:
        cell.cell_contents
    except ValueError:
        return True


def user_lines(error, file):
    """Line numbers of the traceback within `file`.  CPython 3.11 runs STORE_FAST; LOAD_FAST as one
    instruction once the code is warm, and tells the line of the first: the line of an unbound local
    is left out.
    """
    lines, trace = [], error.__traceback__
    while trace is not None:
        code = trace.tb_frame.f_code
        if code.co_filename == file:
            lines.append(
                (code.co_name.split("<resume of ")[-1].split(" at line")[0], trace.tb_lineno)
            )
        trace = trace.tb_next
    if lines and type(error) is UnboundLocalError and sys.version_info < (3, 12):
        lines[-1] = lines[-1][0], None
    return lines[:20] if isinstance(error, RecursionError) else lines


def outcome(function, args, kwargs, watched, file, digits=None):
    """Everything one call did: result or error, printed text, and the state of `watched` (and the
    arguments) afterwards."""
    printed, lines = io.StringIO(), None
    describe = Describer(digits)
    with contextlib.redirect_stdout(printed):
        try:
            value = ("returned", function(*args, **kwargs))
        except Exception as error:
            value, lines = ("raised", error), user_lines(error, file)
    return {
        "result": describe(value),
        "lines": lines,
        "printed": ADDRESS.sub("", printed.getvalue()),
        "arguments": describe((args, kwargs)),
        "globals": describe(watched),
        "state": (
            torch.is_grad_enabled(),
            torch.is_inference_mode_enabled(),
            torch._C._len_torch_function_stack(),
        ),
    }


def difference(first, second):
    """The names of the parts in which two outcomes differ, with the first places that do."""
    return "\n".join(
        f"{name}: " + first_difference(first[name], second[name])
        for name in first
        if first[name] != second[name]
    )


def difference_of_calls(first, second):
    """The first call whose outcomes differ, and how."""
    for step, outcomes in enumerate(zip(first, second)):
        if found := difference(*outcomes):
            return f"call {step}: {found}"
    return ""


def first_difference(a, b):
    """The innermost differing pair, as text."""
    if isinstance(a, tuple) and isinstance(b, tuple) and len(a) == len(b):
        inner = [first_difference(x, y) for x, y in zip(a, b) if x != y]
        if sum(x != y for x, y in zip(a, b)) < len(a):
            return inner[0]
    return f"plain {a!r:.400}   compiled {b!r:.400}"
