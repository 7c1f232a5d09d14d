"""What replacement code calls: small helpers that rebuild objects and replay mutations.

In:   values from the stack of a replacement code.   Out: the objects as the traced program left
      them.

    >>> new_object(Point, {"x": 1}, None)       # an instance without running __init__ again
"""

import collections
import gc


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
