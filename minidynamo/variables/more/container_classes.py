"""OrderedDict, defaultdict, and instances of a program's subclasses of dict, list and tuple.

In:   a real container of such a class and its source.
Out:  a DictVar; of an instance, an ObjectVar whose contents are its `payload`.

    >>> class Config(dict): ...
    >>> output.wrap(Config(a=1), source).payload        # a DictVar; its guards ask dict's methods

The program's class may have an `__len__` or `__setitem__` of its own, which guards and the code
behind the graph must not run.
Mirrors torch/_dynamo/variables/builder.py (UserDefinedDictVariable, UserDefinedListVariable).
"""

import collections
from collections.abc import Callable
from typing import Any


from ...extras.extending import extends
from ...exceptions import Break
from ...foreign import ours
from ...reconstruct import Codegen, Part
from ...sources import KINDS
from ..base import Lazy, OutputGraph, Source, Variable
from ..containers import DictVar, ListVar
from ..objects import ObjectVar, wrap_object
from ..registry import SHARED
from ..wrap_containers import pairs_of
from . import dictionary_keys  # noqa: F401  (guards an OrderedDict's keys)
from .writing_calls import commit_call

# the methods of the program's class are not asked
for _type in (dict, list, tuple):
    KINDS[f"{_type.__name__}_item"] = f"{_type.__name__}.__getitem__({{p}}, {{k!r}})"
plain_item = Codegen.commit_item


# ---- what the standard library's own classes hold
@SHARED.rule(collections.OrderedDict, collections.defaultdict)
def special_dict(builder: OutputGraph, value: Any, source: Source) -> Variable:
    pairs = real_pairs(value)
    items = pairs_of(builder, pairs, source)
    keys = [key for key, _ in pairs]
    variable: Any = DictVar(items, type(value), source=source, real_keys=keys)
    if type(value) is collections.defaultdict and value.default_factory is not None:
        variable.factory = Lazy(value.default_factory, source.attr("default_factory"))
    if type(value).__dictoffset__:  # such as `state_dict()._metadata`
        if value.__dict__:
            raise Break("attribute", "an OrderedDict that has attributes")
        builder.guard(source, "NO_ATTRIBUTES", "not {0}.__dict__")
    return builder.replayed(variable)


def real_pairs(value: Any) -> list[tuple[Any, Any]]:
    """Keys and values in the order that the program sees: dict.items() of an OrderedDict forgets
    move_to_end()."""
    if not isinstance(value, collections.OrderedDict):
        return [*dict.items(value)]
    try:
        pairs = [*collections.OrderedDict.items(value)]
    except ours(KeyError, RuntimeError):
        pairs = None
    # dict.__setitem__() and the like leave the order alone: then len() and iter() disagree.
    if pairs is None or len(pairs) != dict.__len__(value):
        raise Break("dictionary", "an OrderedDict that was written by dict's methods")
    return pairs


# ---- what an instance of a program's class holds
def contents_of_list(builder: OutputGraph, value: Any, source: Source, base: type) -> ListVar:
    values = list.__getitem__(value, slice(None))
    builder.guard(source, "LENGTH", f"list.__len__({{0}}) == {len(values)}")
    items = [Lazy(item, source.child("list_item", n)) for n, item in enumerate(values)]
    return ListVar(items, source=source)


def contents_of_dict(builder: OutputGraph, value: Any, source: Source, base: type) -> DictVar:
    if dict.__contains__(value, "__builtins__"):
        raise Break("dictionary", "a module's globals as a dictionary")
    pairs = real_pairs(value)
    items = pairs_of(builder, pairs, source, "dict_item")
    keys = [key for key, _ in pairs]
    keys_text = builder.tree.pinned(base).key + ".keys({0})"
    return DictVar(items, base, source=source, real_keys=keys, keys_text=keys_text)


CONTENTS: dict[type, Callable[..., Variable]] = {
    collections.OrderedDict: contents_of_dict,
    dict: contents_of_dict,
    list: contents_of_list,
}


@SHARED.rule(test=lambda value: issubclass(type(value), (tuple, *CONTENTS)), order=99)
def wrap_instance(builder: OutputGraph, value: Any, source: Source) -> ObjectVar:
    """An instance of a class of the program's that inherits from a container."""
    if issubclass(type(value), tuple):
        raise Break("object", f"a {type(value).__name__}, of a subclass of tuple")
    variable = wrap_object(builder, value, source)
    base = next(base for base in CONTENTS if issubclass(type(value), base))
    variable.payload = CONTENTS[base](builder, value, source, base)
    builder.sourced.insert(-1, variable.payload)  # its writes are repeated with the instance's
    return variable


# ---- what differs from the containers that they inherit from
@extends(Codegen)
class Contents(Codegen):
    inside: set[int]  # ids of the variables that are the contents of an object

    def commit_item(self, container: Any, key: Part, value: Part) -> None:
        """container[key] = value.  For the contents of an object it is the `__setitem__` of list or
        dict: that of the object's class was traced, and must not run again."""
        if "inside" not in vars(self):
            self.inside = {id(variable.payload) for variable in self.output.sourced}
        if id(container) in self.inside:
            commit_call(self, container.cls.__setitem__, container, key, value)
        else:
            plain_item(self, container, key, value)
