"""What replacement code calls: small helpers that rebuild objects and replay mutations.

In:   values from the stack of a replacement code.   Out: the objects as the traced program left
      them.

    >>> new_object(Point, {"x": 1}, None)       # an instance without running __init__ again
"""

import collections
import gc
import threading

import torch
import torch.fx

CONTEXTS = {"InferenceMode": torch._C._InferenceMode, "device": torch.device}


class Entered(threading.local):
    """`managers`: the context managers of C that this thread's graphs have entered and not left."""

    def __init__(self):
        self.managers = []


ENTERED = Entered()


def entered(make, value):
    """A context manager of C, entered: for the code behind a graph break to leave."""
    made = make(value)
    made.__enter__()
    return made


@torch.fx.node.has_side_effect
def enter(kind, value):
    """A node of the graph: enter inference mode (True) or a device; `leave` ends the last one."""
    ENTERED.managers.append(entered(CONTEXTS[kind], value))


@torch.fx.node.has_side_effect
def leave():
    ENTERED.managers.pop().__exit__(None, None, None)


enter.ended_by = leave  # for whoever runs the graph node by node


def unwind(depth):
    """Leave what was entered since there were `depth` of them."""
    while len(ENTERED.managers) > depth:
        leave()


def as_inference_tensors(compiled, places):
    """`compiled`, whose results at `places` were made in inference mode by the program: tensors of
    that kind, over the same memory."""

    def run(*args):
        results = list(compiled(*args))
        with torch.inference_mode():
            for n in places:
                made = results[n]
                if not made.is_inference():
                    results[n] = torch.empty(0, dtype=made.dtype, device=made.device).set_(
                        made.untyped_storage(), made.storage_offset(), made.shape, made.stride()
                    )
        return results

    return run


def new_object(cls, fields, slots, payload):
    """An instance of `cls` with this __dict__, these slots and these contents; `__init__` was
    traced, not run again."""
    base = next(
        (b for b in (collections.OrderedDict, dict, list, set) if issubclass(cls, b)), object
    )
    made = base.__new__(cls)
    if payload is not None:
        if isinstance(made, dict):
            for key, value in payload.items():
                base.__setitem__(made, key, value)
        else:
            (list.extend if base is list else set.update)(made, payload)
    if fields:
        object.__getattribute__(made, "__dict__").update(fields)
    for name, value in (slots or {}).items():
        object.__setattr__(made, name, value)
    return made


def restoring(compiled, before):
    """`compiled`, whose failure leaves the thread's state (grad mode, autocast...) as it was:
    `before` is [(setter, key, value)]."""

    def run(*args):
        depth = len(ENTERED.managers)
        try:
            return compiled(*args)
        except BaseException:
            unwind(depth)
            for setter, key, value in before:
                setter(*key, value)
            raise

    return run


def check_size(condition):
    """torch._check() of a size that only the run knows, in the graph."""
    if isinstance(condition, bool):
        torch._check(condition)


def floats_as_tensors(compiled, places):
    """`compiled`, whose arguments at `places` are floats here and 0-d tensors there."""

    def run(*args):
        args = list(args)
        for n in places:
            args[n] = torch.tensor(args[n], dtype=torch.float64)
        return compiled(*args)

    return run


def new_exception(cls, args, fields, cause, context, suppress):
    made = cls.__new__(cls, *args)
    next(b for b in cls.__mro__ if b.__module__ == "builtins").__init__(
        made, *args
    )  # sets .args, and StopIteration's .value
    if fields:
        made.__dict__.update(fields)
    made.__cause__, made.__context__, made.__suppress_context__ = cause, context, suppress
    return made


def iterator_at(sequence, index, step):
    """iter(sequence), or reversed(sequence) for step -1, with `index` to come next (None: see
    `position`), still looking at the live sequence."""
    made = iter(sequence) if step > 0 else reversed(sequence)
    if index is not None and hasattr(made, "__setstate__"):
        made.__setstate__(index)
    elif index is not None:  # a deque's
        for _ in range(index if step > 0 else len(sequence) - 1 - index):
            next(made, None)
    return made


def advanced(values, taken):
    """iter(values), `taken` steps on."""
    made = iter(values)
    for _ in range(taken):
        next(made)
    return made


LIKE = {  # class of an iterator -> an iterator of that class over these values
    type(iter("a")).__name__: lambda values: advanced("a" + "".join(values), 1),
    type(iter("\u00e9")).__name__: lambda values: advanced("\u00e9" + "".join(values), 1),
    "bytes_iterator": lambda values: iter(bytes(values)),
    "set_iterator": lambda values: iter({*values}),
    "dict_keyiterator": lambda values: iter(dict.fromkeys(values)),
    "dict_valueiterator": lambda values: iter(dict(enumerate(values)).values()),
    "dict_itemiterator": lambda values: iter(dict(values).items()),
    "odict_iterator": lambda values: iter(collections.OrderedDict(enumerate(values)).values()),
    "dict_reversekeyiterator": lambda values: reversed(dict.fromkeys(values[::-1])),
    "dict_reversevalueiterator": lambda values: reversed(dict(enumerate(values[::-1])).values()),
    "dict_reverseitemiterator": lambda values: reversed(dict(values[::-1]).items()),
}


def iterator_like(kind, values):
    """An iterator over `values` whose class is called `kind`."""
    return LIKE[kind](values)


def position(iterator, index):
    """`index` comes next, now that the list has been written: it would be cut to the list's old
    length before."""
    iterator.__setstate__(index)


def behind(proxy, _):
    """The dict of a mappingproxy."""
    return gc.get_referents(proxy)[0]


def replace_dict(target, contents):
    kind = collections.OrderedDict if isinstance(target, collections.OrderedDict) else dict
    kind.clear(target)
    for key, value in contents.items():
        kind.__setitem__(target, key, value)


def replace_items(target, contents):
    """Contents of a deque."""
    target.clear()
    target.extend(contents)


def write_set(target, writes):
    """What a frame did to a set, once more: its order depends on that."""
    for name, *values in writes:
        getattr(set, name)(target, *values)


def replace_each(target, contents):
    """Items of a deque in their places: who walks it may go on."""
    for n, value in enumerate(contents):
        target[n] = value


def empty(cell):
    del cell.cell_contents


def new_function(template, defaults, kwdefaults, name, attributes, annotations):
    template.__defaults__ = defaults
    template.__kwdefaults__ = kwdefaults or None
    template.__qualname__ = name
    template.__name__ = name.rpartition(".")[2]
    if annotations is not None:
        template.__annotations__ = annotations
    for attribute, value in (attributes or {}).items():
        setattr(template, attribute, value)
    return template
