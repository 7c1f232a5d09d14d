"""Containers: list, tuple, torch.Size, named tuples, deque; dict, OrderedDict, defaultdict, set,
frozenset; dict views and proxies.

In:   host lists and dicts of variables.   Out: the same methods as Python's, on variables.

    >>> ListVar([a, b]).call_method(tx, "append", [c], {})        # recorded; replayed after the graph if it was the user's list

A container with a source fills itself lazily and guards only what was read: the length of a list,
one key of a dict. Mirrors torch/_dynamo/variables/lists.py and dicts.py.
"""

import collections
import functools
import operator
import types

import torch

from ..exceptions import Break
from ..foreign import ours
from .base import Lazy, Variable, current
from .constant import ConstantVar
from .symbolic import SymVar


class Container(Variable):
    """What all of them have: the special methods by name, and no hash where Python gives none."""

    __slots__ = ()

    def hash_key(self, tx):
        if self.cls.__hash__ is None:
            name = "collections." * (self.cls is not list and self.cls.__module__ == "collections")
            tx.raise_(TypeError, f"unhashable type: '{name}{self.cls.__name__}'")
        return super().hash_key(tx)

    def getattr(self, tx, name):
        return tx.method_of(self, name)

    def method___len__(self, tx):
        return tx.output.wrap_result(self.length(tx))

    def method___iter__(self, tx):
        return tx.iter_of(self)

    def method___getitem__(self, tx, key, /):
        return self.getitem(tx, key)

    def method___setitem__(self, tx, key, value, /):
        self.setitem(tx, key, value)

    def method___delitem__(self, tx, key, /):
        self.delitem(tx, key)

    def method___contains__(self, tx, item, /):
        return ConstantVar(self.contains(tx, item))


class SequenceVar(Container):
    """Items in order; `cls` is the exact Python type, `resized` counts the changes that were more
    than another item in a place."""

    __slots__ = ("items", "cls", "extra", "resized")

    def __init__(self, items, cls, source=None):
        self.source, self.mutated, self.items, self.cls, self.extra, self.resized = (
            source,
            False,
            items,
            cls,
            None,
            0,
        )

    def item(self, tx, index):
        found = self.items[index]
        if type(found) is Lazy:
            found = self.items[index] = found.realize(tx)
        return found

    def is_constant(self):
        return all(item.is_constant() for item in self.items)

    def as_constant(self):
        values = [
            (item.realize(current()) if type(item) is Lazy else item).as_constant()
            for item in self.items
        ]
        return (
            self.cls(*values)
            if hasattr(self.cls, "_fields")
            else self.cls(values, self.extra)
            if self.cls is collections.deque
            else self.cls(values)
        )

    def truth(self, tx):
        return bool(self.items)

    def length(self, tx):
        return len(self.items)

    def iterate(self, tx):
        index, resized = 0, self.resized
        while index < len(self.items):  # the list may grow while it is walked, as in Python
            yield self.item(tx, index)
            index += 1
            self.check_unchanged(tx, resized)

    def check_unchanged(self, tx, resized):
        """A deque that was `resized` so often when its walk began."""
        if self.cls is collections.deque and self.resized > resized:
            tx.raise_(RuntimeError, "deque mutated during iteration")

    def index_of(self, tx, key):
        if self.cls is collections.deque and key.python_type() is slice:
            tx.raise_(TypeError, "sequence index must be integer, not 'slice'")
        if not key.is_constant() and not isinstance(key, (SymVar, SliceVar)):
            raise Break(
                "item", f"an index that is not a constant ({key})", "index with a Python int"
            )
        return key.as_constant()

    def getitem(self, tx, key):
        index = self.index_of(tx, key)
        if isinstance(index, slice):
            if index.step == 0:
                tx.raise_(ValueError, "slice step cannot be zero")
            whole = self.cls is tuple and range(len(self.items))[index] == range(
                len(self.items)
            )  # CPython makes no copy
            return self if whole else SequenceVar_of(self.cls, self.items[index])
        if not hasattr(index, "__index__"):
            if self.cls is collections.deque:
                kind = type(index).__name__
                tx.raise_(TypeError, f"sequence index must be integer, not '{kind}'")
            tx.raise_(
                TypeError,
                f"{self.cls.__name__} indices must be integers or slices, not {type(index).__name__}",
            )
        try:
            return self.item(tx, index)
        except ours(IndexError):
            tx.raise_(IndexError, f"{self.cls.__name__} index out of range")

    def getattr(self, tx, name):
        if name == "maxlen" and self.cls is collections.deque:
            return ConstantVar(self.extra)
        if self.cls.__module__ == "torch.return_types" and name in self.cls.__match_args__:
            return self.item(tx, self.cls.__match_args__.index(name))
        return super().getattr(tx, name)

    def method_index(self, tx, value, start=ConstantVar(0), stop=ConstantVar(None), /):
        first, last, _ = slice(start.as_constant(), stop.as_constant()).indices(len(self.items))
        for n, item in enumerate(self.iterate(tx)):
            if first <= n < last and (tx.same_or_equal(item, value)):
                return ConstantVar(n)
        tx.raise_(
            ValueError,
            f"{tx.text_of(value)!r} is not in {self.cls.__name__}"
            if isinstance(self, ListVar)
            else "tuple.index(x): x not in tuple",
        )

    def method_count(self, tx, value, /):
        return ConstantVar(sum(tx.same_or_equal(item, value) for item in self.iterate(tx)))

    def method_numel(self, tx):
        return functools.reduce(lambda a, b: tx.binary("*", a, b), self.iterate(tx), ConstantVar(1))

    def reconstruct(self, cg):
        cg.sequence(self)


class TupleVar(SequenceVar):
    """tuple, torch.Size, namedtuple."""

    __slots__ = ()

    def __init__(self, items, cls=tuple, source=None):
        super().__init__(items, cls, source)

    def hash_key(self, tx):
        return tuple(self.item(tx, n).hash_key(tx) for n in range(len(self.items)))

    def setitem(self, tx, key, value):
        tx.raise_(TypeError, f"{self.cls.__name__!r} object does not support item assignment")

    def method__replace(self, tx, **changes):
        if not changes.keys() <= {*self.cls._fields}:
            raise Break("arguments", f"no such field of {self.cls.__name__}")
        items = [changes.get(name, item) for name, item in zip(self.cls._fields, self.items)]
        return TupleVar(items, self.cls)

    def method__asdict(self, tx):
        return DictVar(
            {name: (ConstantVar(name), item) for name, item in zip(self.cls._fields, self.items)}
        )


class ListVar(SequenceVar):
    """list and collections.deque (`extra` is its maxlen)."""

    __slots__ = ()

    def __init__(self, items, cls=list, source=None):
        super().__init__(items, cls, source)

    def is_constant(self):
        return False

    def _changed(self):
        self.mutated, self.resized = True, self.resized + 1
        if self.extra is not None:
            del self.items[: max(0, len(self.items) - self.extra)]

    def setitem(self, tx, key, value):
        index = self.index_of(tx, key)
        if isinstance(index, slice):
            before, index, value = len(self.items), self._place(index), tx.listed_fast(value)
            if index.step not in (None, 1) and len(self.items) != before:
                raise Break("item", "a list that changes while a slice of it is assigned")
        try:
            self.items[index] = value
        except ours(IndexError, TypeError, ValueError) as error:
            tx.raise_(type(error), *error.args)
        self.mutated = True

    def _place(self, index):
        """Where a slice lies: CPython looks before it walks the values, which may change the
        list."""
        if index.step not in (None, 1):
            return index
        start, stop, _ = index.indices(len(self.items))
        return slice(start, max(start, stop))

    def delitem(self, tx, key):
        try:
            del self.items[self.index_of(tx, key)]
        except ours(IndexError, TypeError) as error:
            tx.raise_(type(error), *error.args)
        self._changed()

    def method_append(self, tx, value, /):
        self.items.append(value)
        self._changed()

    def method_appendleft(self, tx, value, /):
        self.items.insert(0, value)
        self.mutated, self.resized = True, self.resized + 1
        if self.extra is not None:
            del self.items[self.extra :]

    def method_extendleft(self, tx, values, /):
        for value in self._others(tx, values):
            self.method_appendleft(tx, value)

    def method_rotate(self, tx, n=ConstantVar(1), /):
        shift = n.as_constant() % len(self.items) if self.items else 0
        self.items[:] = (
            self.items[len(self.items) - shift :] + self.items[: len(self.items) - shift]
        )
        self._changed()

    def method_extend(self, tx, values, /):
        # Each item is there before the next is asked for: the iterator may look, or raise.
        for value in self._others(tx, values):
            self.method_append(tx, value)
        if self.cls is list:
            self.mutated = True

    def _others(self, tx, values):
        """What to walk when this list takes `values`: a copy, if that is the list itself."""
        if values is self or getattr(values, "payload", None) is self:
            return list(self.iterate(tx))
        walk = values.iterate(tx)
        if self.cls is list:
            tx.length_hint(values)
        return walk

    def method_insert(self, tx, index, value, /):
        if self.extra is not None and len(self.items) >= self.extra:
            tx.raise_(IndexError, "deque already at its maximum size")
        self.items.insert(tx.fold(operator.index, index.as_constant()).value, value)
        self._changed()

    def method_pop(self, tx, index=ConstantVar(-1), /):
        if not self.items:
            tx.raise_(
                IndexError, "pop from empty list" if self.cls is list else "pop from an empty deque"
            )
        value = (
            self.getitem(tx, index)
            if -len(self.items) <= index.as_constant() < len(self.items)
            else None
        )
        if value is None:
            tx.raise_(IndexError, "pop index out of range")
        del self.items[index.as_constant()]
        self._changed()
        return value

    def method_popleft(self, tx):
        return self.method_pop(tx, ConstantVar(0))

    def method_remove(self, tx, value, /):
        for n, item in enumerate(self.iterate(tx)):
            if tx.same_or_equal(item, value):
                del self.items[n : n + 1]
                return self._changed()
        tx.raise_(ValueError, f"{self.cls.__name__}.remove(x): x not in {self.cls.__name__}")

    def method_clear(self, tx):
        self.items.clear()
        self._changed()

    def method_reverse(self, tx):
        self.items.reverse()
        self.mutated = True

    def method_copy(self, tx):
        made = ListVar(list(self.items), self.cls)
        made.extra = self.extra
        return made

    def method_sort(self, tx, /, *, key=None, reverse=ConstantVar(False)):
        # The list is empty while it is sorted: the key function may look.
        items = list(self.iterate(tx))
        self.items.clear()
        self._changed()
        resized = self.resized
        try:
            items = tx.sorted(items, key, reverse)
        finally:
            changed = self.resized != resized
            self.items[:] = items
        if changed:
            tx.raise_(ValueError, "list modified during sort")


def SequenceVar_of(cls, items):
    """A new sequence of exactly this type."""
    if cls is list or cls is collections.deque:
        return ListVar(list(items), cls)
    return TupleVar(list(items), tuple if hasattr(cls, "_fields") else cls)


class DictVar(Container):
    """`items`: host key -> (key variable, value variable).  `cls`: dict, OrderedDict or defaultdict
    (with `factory`).

    With a source, a key that was read is guarded alone; walking the dict or asking its length
    guards all keys.  Writes are kept in `written` and `deleted`, so that replay can store just the
    keys that changed."""

    __slots__ = ("items", "cls", "factory", "written", "rewritten", "real_keys", "removed", "base")

    def __init__(self, items, cls=dict, source=None, factory=None):
        self.source, self.mutated, self.items, self.cls, self.factory = (
            source,
            False,
            items,
            cls,
            factory,
        )
        self.written, self.rewritten, self.real_keys = (
            {},
            False,
            list(items) if source is not None else (),
        )
        self.removed = 0  # how often a key was removed or moved
        self.base = None  # of an instance of a subclass: the class whose methods answer for it

    def keys_check(self, tx):
        """How a guard reads the keys: the methods of a user's subclass are not asked."""
        if self.base is None:
            return "{0}"
        return tx.output.tree.pinned(self.base).key + ".keys({0})"

    def guard_keys(self, tx):
        if self.source is not None and "KEYS" not in self.source.guards:
            keys = self.keys_check(tx)
            if any(isinstance(key, torch.Tensor) for key in self.real_keys):
                tx.output.guard(
                    self.source,
                    "KEYS",
                    f"[*map(id, {keys})] == {{pin}}",
                    [id(key) for key in self.real_keys],
                )
            else:
                tx.output.guard(self.source, "KEYS", f"[*{keys}] == {{pin}}", self.real_keys)

    def guard_key(self, tx, kind, host):
        """That `host` is among the keys (PRESENT) or is not (ABSENT).

        Where it is no real key: that the keys are these.
        """
        if isinstance(host, (Variable, tuple)):
            self.guard_keys(tx)
        elif "KEYS" in self.source.guards:
            return
        elif kind == "PRESENT":
            check = f"{{key}} in {self.keys_check(tx)}"
            tx.output.guard(self.source, (kind, host), check, host)
        elif type(host) is str and self.base is None:
            tx.output.guard_absent(self.source, host)
        else:
            check = f"{{key}} not in {self.keys_check(tx)}"
            tx.output.guard(self.source, (kind, host), check, host)

    def get(self, tx, key):
        """The value under `key`, or None; guarded either way."""
        host = key.hash_key(tx)
        pair = self.items.get(host)
        if pair is None:
            if self.source is not None and host not in self.written:
                self.guard_key(tx, "ABSENT", host)
            return None
        value = pair[1]
        if type(value) is Lazy:
            read, value = value.source, value.realize(tx)
            self.items[host] = (pair[0], value)
            if (
                self.source is not None
                and not read.guards
                and not read.children
                and read.alias_of is None
            ):
                self.guard_key(tx, "PRESENT", host)
        return value

    def store(self, tx, key, value):
        host = key.hash_key(tx)
        old = self.items.get(host)
        self.items[host] = (old[0] if old else key, value)
        if (
            self.written.get(host, True) is True
        ):  # the first key stays: 1.0, perhaps, where 1 is written later, or where the dict has 1
            self.written[host] = key  # (the next one that this entry meets may not have it)
        self.mutated = True

    def remove(self, tx, key):
        self.guard_keys(tx)  # replay writes all that are left
        self.items.pop(key.hash_key(tx))
        self.written[key.hash_key(tx)] = True
        self.removed += 1
        self.mutated = self.rewritten = True

    def getattr(self, tx, name):
        if name == "default_factory" and self.cls is collections.defaultdict:
            return self.factory.realize(tx) if self.factory is not None else ConstantVar(None)
        return super().getattr(tx, name)

    def truth(self, tx):
        return self.length(tx) > 0

    def length(self, tx):
        self.guard_keys(tx)
        return len(self.items)

    def keys(self, tx):
        self.guard_keys(tx)
        return [pair[0].realize(tx) for pair in self.items.values()]

    def pairs(self, tx):
        return [(key, self.get(tx, key)) for key in self.keys(tx)]

    def iterate(self, tx):
        return iter(self.keys(tx))

    def getitem(self, tx, key):
        value = self.get(tx, key)
        if value is None:
            if self.factory is not None and self.factory.realize(tx).identity() is not None:
                value = self.factory.realize(tx).call(tx, [], {})
                self.store(tx, key, value)
                return value
            tx.raise_var(KeyError, [key])
        return value

    def setitem(self, tx, key, value):
        self.store(tx, key, value)

    def delitem(self, tx, key):
        if self.get(tx, key) is None:
            tx.raise_var(KeyError, [key])
        self.remove(tx, key)

    def contains(self, tx, key):
        found = self.items.get(key.hash_key(tx))
        if found is not None and type(found[1]) is Lazy and self.source is not None:
            self.guard_key(tx, "PRESENT", key.hash_key(tx))
            return True
        return found is not None or self.get(tx, key) is not None

    def as_constant(self):
        pairs = [(key.as_constant(), value.as_constant()) for key, value in self.pairs(current())]
        return (
            self.cls(pairs)
            if self.cls is not collections.defaultdict
            else self.cls(self.factory and self.factory.as_constant(), pairs)
        )

    def method_get(self, tx, key, default=ConstantVar(None), /):
        value = self.get(tx, key)
        return default if value is None else value

    def method_keys(self, tx):
        return DictViewVar(self, "keys")

    def method_values(self, tx):
        return DictViewVar(self, "values")

    def method_items(self, tx):
        return DictViewVar(self, "items")

    def method_pop(self, tx, key, *default):
        value = self.get(tx, key)
        if value is None:
            if default:
                return default[0]
            tx.raise_var(KeyError, [key])
        self.remove(tx, key)
        return value

    def method_popitem(self, tx, last=ConstantVar(True)):
        keys = self.keys(tx)
        if not keys:
            tx.raise_(KeyError, "popitem(): dictionary is empty")
        key = keys[-1 if last.as_constant() else 0]
        return TupleVar([key, self.method_pop(tx, key)])

    def method_setdefault(self, tx, key, default=ConstantVar(None), /):
        value = self.get(tx, key)
        if value is None:
            self.store(tx, key, default)
            value = default
        return value

    def method_update(self, tx, other=None, /, **named):
        live = self.cls is collections.OrderedDict
        for key, value in dict_pairs(tx, other, live) if other is not None else ():
            self.store(tx, key, value)
        for name, value in named.items():
            self.store(tx, ConstantVar(name), value)

    def method_clear(self, tx):
        self.guard_keys(tx)
        self.items.clear()
        self.mutated = self.rewritten = True

    def method_copy(self, tx):
        self.guard_keys(tx)
        return DictVar(dict(self.items), self.cls, factory=self.factory)

    def method_move_to_end(self, tx, key, last=ConstantVar(True)):
        host = key.hash_key(tx)
        self.getitem(tx, key)
        self.guard_keys(tx)
        pair = self.items.pop(host)
        self.items = (
            {**self.items, host: pair} if last.as_constant() else {host: pair, **self.items}
        )
        self.removed += 1
        self.mutated = self.rewritten = True

    def reconstruct(self, cg):
        cg.dictionary(self)


def dict_pairs(tx, other, live=False):
    """(key, value) variables of a mapping or of an iterable of pairs, one after the other: what
    walks them stores each before it asks for the next.  `live`: of an OrderedDict, which makes no
    list of a mapping's keys first."""
    payload = getattr(other, "payload", None)
    if isinstance(other, DictVar):
        yield from other.pairs(tx)
    elif isinstance(payload, DictVar) and other.cls.__iter__ in (
        dict.__iter__,
        collections.OrderedDict.__iter__,
    ):
        yield from payload.pairs(tx)
    elif tx.has_attr(other, "keys"):
        keys = other.call_method(tx, "keys", [], {})
        for key in keys.iterate(tx) if live else tx.listed_fast(keys):
            yield key, other.getitem(tx, key)
    else:
        if live and tx.has_attr(other, "items"):
            other = other.call_method(tx, "items", [], {})
        for n, pair in enumerate(other.iterate(tx)):
            yield _pair(tx, pair, n, live)


def _pair(tx, pair, n, live):
    items = tx.listed_fast(pair) if hasattr(pair.python_type(), "__iter__") else None
    if items is None or live and len(items) != 2:
        raise Break("arguments", f"the element #{n} of a dictionary's update is no pair")
    if len(items) != 2:
        tx.raise_(
            ValueError,
            f"dictionary update sequence element #{n} has length {len(items)}; 2 is required",
        )
    return items


class DictViewVar(Container):
    """dict.keys(), .values() or .items(): reads through to the dict."""

    __slots__ = ("dict", "kind")

    @property
    def cls(self):
        return type(getattr({}, self.kind)())

    def iterate(self, tx):
        if self.kind == "keys":
            return iter(self.dict.keys(tx))
        pairs = ((key, self.dict.get(tx, key)) for key in self.dict.keys(tx))
        return (
            (value for _, value in pairs)
            if self.kind == "values"
            else (TupleVar([k, v]) for k, v in pairs)
        )

    def length(self, tx):
        return self.dict.length(tx)

    def truth(self, tx):
        return self.dict.truth(tx)

    def contains(self, tx, item):
        return self.dict.contains(tx, item) if self.kind == "keys" else super().contains(tx, item)

    def getattr(self, tx, name):
        return ProxyVar(self.dict) if name == "mapping" else super().getattr(tx, name)

    def reconstruct(self, cg):
        cg.call_object(getattr(self.dict.cls, self.kind), self.dict)


class ProxyVar(Container):
    """types.MappingProxyType: reads of the dict behind it."""

    __slots__ = ("dict",)
    cls = types.MappingProxyType

    def reconstruct(self, cg):
        cg.call_object(types.MappingProxyType, self.dict)


def _through(name):
    return lambda self, *args, **kwargs: getattr(self.dict, name)(*args, **kwargs)


for _name in (
    "truth",
    "length",
    "iterate",
    "getitem",
    "get",
    "contains",
    "method_get",
    "method_keys",
    "method_values",
    "method_items",
    "method_copy",
):
    setattr(ProxyVar, _name, _through(_name))


class SetVar(Container):
    """set and frozenset: host key -> key variable, in insertion order."""

    __slots__ = ("items", "cls")

    def __init__(self, items, cls=set, source=None):
        self.source, self.mutated, self.items, self.cls = source, False, items, cls

    @classmethod
    def of(cls, tx, values, kind=set):
        items = {}
        for value in values:  # the first of equal keys stays
            items.setdefault(value.hash_key(tx), value)
        return cls(items, kind)

    def is_constant(self):
        return self.cls is frozenset and all(item.is_constant() for item in self.items.values())

    def as_constant(self):
        return self.cls(item.as_constant() for item in self.items.values())

    def hash_key(self, tx):
        return frozenset(self.items) if self.cls is frozenset else super().hash_key(tx)

    def truth(self, tx):
        return bool(self.items)

    def length(self, tx):
        return len(self.items)

    def iterate(self, tx):
        if self.source is not None and not self.mutated:
            tx.output.guard(self.source, "ORDER", "[*{0}] == {pin}", list(self.items))
        elif (
            len(self.items) > 1
        ):  # Python's order depends on hashes: take it from a real set of the keys
            order = list(self.cls(self.items))
            return iter([self.items[key] for key in order])
        return iter(list(self.items.values()))

    def contains(self, tx, item):
        return item.hash_key(tx) in self.items

    def method_add(self, tx, value, /):
        self.items.setdefault(value.hash_key(tx), value)
        self.mutated = True

    def method_discard(self, tx, value, /):
        self.mutated |= self.items.pop(value.hash_key(tx), None) is not None

    def method_remove(self, tx, value, /):
        if value.hash_key(tx) not in self.items:
            tx.raise_var(KeyError, [value])
        self.method_discard(tx, value)

    def method_update(self, tx, *others):
        for other in others:
            for value in other.iterate(tx):
                self.method_add(tx, value)

    def method_clear(self, tx):
        self.items.clear()
        self.mutated = True

    def method_copy(self, tx):
        return self if self.cls is frozenset else SetVar(dict(self.items), self.cls)

    def method_pop(self, tx):
        if not self.items:
            tx.raise_(KeyError, "pop from an empty set")
        value = next(self.iterate(tx))
        self.method_discard(tx, value)
        return value

    def method_union(self, tx, *others):
        merged = SetVar(dict(self.items), self.cls)
        merged.method_update(tx, *others)
        merged.mutated = False
        return merged

    def method_intersection(self, tx, *others):
        found = self.items
        for other in others:
            if isinstance(other, SetVar):  # CPython walks the smaller one, and keeps its keys
                walked, asked = sorted((other.items, found), key=len)
                found = {k: v for k, v in walked.items() if k in asked}
            else:
                values = (value for value in other.iterate(tx) if value.hash_key(tx) in found)
                found = SetVar.of(tx, values).items
        return SetVar(dict(found), self.cls)

    def method_difference(self, tx, *others):
        made = SetVar(dict(self.items), self.cls)
        made.method_difference_update(tx, *others)
        made.mutated = False
        return made

    def method_symmetric_difference(self, tx, other, /):
        other = SetVar.of(tx, other.iterate(tx))  # perhaps an iterator: once
        left, right = self.method_difference(tx, other), other.method_difference(tx, self)
        return SetVar({**left.items, **right.items}, self.cls)

    def method_difference_update(self, tx, *others):
        for other in others:
            for value in other.iterate(tx):
                self.method_discard(tx, value)

    def method_issubset(self, tx, other, /):
        keys = {value.hash_key(tx) for value in other.iterate(tx)}
        return ConstantVar(all(key in keys for key in self.items))

    def method_issuperset(self, tx, other, /):
        return ConstantVar(all(value.hash_key(tx) in self.items for value in other.iterate(tx)))

    def method_isdisjoint(self, tx, other, /):
        return ConstantVar(not any(value.hash_key(tx) in self.items for value in other.iterate(tx)))

    def reconstruct(self, cg):
        cg.set(self)


def _updating(name):
    def update(self, tx, *others):
        self.items, self.mutated = getattr(self, "method_" + name)(tx, *others).items, True

    return update


for _name in ("intersection", "symmetric_difference"):
    setattr(SetVar, f"method_{_name}_update", _updating(_name))


class SliceVar(Variable):
    """A slice with parts that are not constants (x[: tensor])."""

    __slots__ = ("parts",)
    cls = slice

    def as_constant(self):
        return slice(*[part.as_constant() for part in self.parts])

    def reconstruct(self, cg):
        for part in self.parts:
            cg.value(part)
        cg.emit("BUILD_SLICE", 3, effect=-2)
