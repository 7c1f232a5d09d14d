"""Change one thing, for every kind of thing that a compiled function can read.

    python -m tests.soundness.change --modes eager,inductor [--only "^.'enum'"]

A *kind* is a program text that makes one `subject` (`change_kinds.py`).  Reflection over the live
subject finds every *place* in it: attributes, slots, properties, dictionary entries, elements of
containers, the attributes of its classes, and names that are absent; nothing is listed by hand.  A
case changes one place in one way that its type allows.  Every reader program looks at the place
before the change, after it, and after it was set back; a plain twin of the subject goes through the
same, and results, errors and the state of the subject must agree.

Tensors and functions are replaced, but not looked into: other generators do that.
"""

import builtins
import collections
import copy
import enum
import functools
import random
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from tests.fuzz.compare import difference, outcome

from . import runner
from .change_kinds import HEADER, KINDS
from .modes import Mode

FILE = "<a program of tests.soundness.change>"
LITERALS = (str, int, float, bool, bytes, type(None))
FRESH = "fresh_name"  # absent everywhere
DEPTH = 3
FUNCTIONS = (types.FunctionType, staticmethod, classmethod)
NOT_ENTERED = (torch.Tensor, *FUNCTIONS, type, types.ModuleType, *LITERALS, enum.Enum)
IMMUTABLE_TYPE = 1 << 8
ABSENT = object()
# What this generator itself needs of its programs' modules, and what Python writes at any time: a
# class's flags say whether a version for the caches of its attributes was given to it.
NOT_CHANGED = ("__builtins__", "torch", "nn", "this_module", "this_world", "S", "__flags__")


@dataclass(frozen=True)
class Place:
    """Where something can change: `parent` is an expression over `s`, the subject."""

    parent: str
    kind: str  # "attribute", "key", "index", "element" or "class"
    name: Any


# ---- reflection: the places of a subject
def own_names(value: Any) -> list[str]:
    """Names that the object itself has: its dictionary, its slots, settable things of C."""
    names = dict.fromkeys(getattr(value, "__dict__", ()))
    for cls in type(value).__mro__:
        if cls.__module__ == "builtins" and cls is not types.CellType:
            continue
        for name, found in vars(cls).items():
            if name.startswith("__"):
                continue
            is_member = isinstance(found, types.MemberDescriptorType)
            if is_member or hasattr(type(found), "__set__"):
                names[name] = None
    return [name for name in names if isinstance(name, str)]


def class_names(value: Any) -> list[str]:
    """Names that the user's classes of the object define: an instance may shadow them."""
    names: dict[str, None] = {}
    for cls in type(value).__mro__:
        if cls.__module__ == "program":
            names |= dict.fromkeys(vars(cls))
    return [name for name in names if not (name.startswith("__") and name.endswith("__"))]


def special_names(cls: type) -> list[str]:
    """Special methods of a user's class; those that only Python's own machinery reads are left."""
    machinery = ("__module__", "__dict__", "__weakref__", "__doc__", "__annotations__", "__slots__")
    return [name for name in vars(cls) if name.startswith("__") and name not in machinery]


def places(value: Any, text: str = "s", depth: int = DEPTH, seen: set | None = None) -> Iterator:
    seen = set() if seen is None else seen
    if isinstance(value, NOT_ENTERED) and depth < DEPTH or id(value) in seen or depth == 0:
        return
    if value is ABSENT:
        return
    seen.add(id(value))
    if isinstance(value, types.ModuleType | type):
        yield from namespace_places(value, text, depth, seen)
        return
    if isinstance(value, dict):
        for key in [*value, FRESH]:
            if isinstance(key, LITERALS):
                yield Place(text, "key", key)
                if key in value:
                    yield from places(value[key], f"{text}[{key!r}]", depth - 1, seen)
    elif isinstance(value, (list, collections.deque, tuple)):
        for n, item in enumerate(value):
            if not isinstance(value, tuple):
                yield Place(text, "index", n)
            yield from places(item, f"{text}[{n}]", depth - 1, seen)
        if not isinstance(value, tuple):
            yield Place(text, "index", len(value))
    elif isinstance(value, set):
        for item in sorted(value, key=repr):
            yield Place(text, "element", item)
        yield Place(text, "element", FRESH)
    yield from attribute_places(value, text, depth, seen)


def attribute_places(value: Any, text: str, depth: int, seen: set) -> Iterator:
    kept = own_names(value)
    for name in kept:
        yield Place(text, "attribute", name)
    in_tables = []
    if isinstance(value, torch.nn.Module):
        in_tables = [*value._parameters, *value._buffers, *value._modules]
    for name in dict.fromkeys((*in_tables, *class_names(value), FRESH)):
        if name not in kept:
            yield Place(text, "attribute", name)
    if type(value).__module__ == "program":
        yield Place(text, "class", None)
    for n, cls in enumerate(type(value).__mro__):
        if cls.__flags__ & IMMUTABLE_TYPE or id(cls) in seen:
            continue
        seen.add(id(cls))
        if cls.__module__ == "program":
            names = [*dict.fromkeys((*class_names(value), *special_names(cls), *kept))]
        else:
            names = [name for name in kept if not name.startswith("_")]  # torch needs the others
        for name in dict.fromkeys((*names, *in_tables, "__getattr__", FRESH)):
            yield Place(f"type({text}).__mro__[{n}]", "attribute", name)
    for name in kept:
        if name in getattr(value, "__dict__", ()):
            yield from places(value.__dict__[name], f"{text}.__dict__[{name!r}]", depth - 1, seen)
        else:
            yield from places(raw(value, name), f"{text}.{name}", depth - 1, seen)


def namespace_places(value: Any, text: str, depth: int, seen: set) -> Iterator:
    """The places of a Python module or of a class that is itself the subject."""
    names = [name for name in vars(value) if name not in ("__dict__", "__weakref__")]
    if isinstance(value, type):
        names += [name for name, kept in vars(type).items() if hasattr(type(kept), "__set__")]
        names += [*vars(type(value))] if type(value) is not type else []
    names = [name for name in names if name not in NOT_CHANGED]
    if isinstance(value, types.ModuleType):  # its globals may hide builtins
        used = {name for f in vars(value).values() for name in names_of(f)}
        names += sorted(used & {*dir(builtins)})
    for name in dict.fromkeys((*names, FRESH, "__getattr__")):
        yield Place(text, "attribute", name)
    if type(value).__module__ == "program":
        for name in dict.fromkeys((*vars(type(value)), *names, FRESH)):
            yield Place(f"type({text})", "attribute", name)
    for name in names:
        if name in vars(value):
            yield from places(vars(value)[name], f"{text}.{name}", depth - 1, seen)


def names_of(function: Any) -> tuple:
    return getattr(getattr(function, "__code__", None), "co_names", ())


# ---- changes: other values, in every way that the type allows
def other(value: Any) -> Any:
    """Another value of the same type."""
    if value is ABSENT:
        return 5.0
    if isinstance(value, bool):
        return not value
    if isinstance(value, enum.Enum):
        return [member for member in type(value) if member is not value][-1]
    if isinstance(value, (int, float, complex)):
        return type(value)(value + 1)
    if isinstance(value, str):
        return value + "_z"
    if isinstance(value, torch.nn.Parameter):
        return torch.nn.Parameter(value.detach() * 2 + 1)
    if isinstance(value, torch.Tensor):
        return value.detach() * 2 + 1
    if isinstance(value, torch.nn.Module):
        made = copy.deepcopy(value)
        for parameter in made.parameters():
            parameter.data = parameter.data * 2 + 1
        return made
    if isinstance(value, dict):
        made = copy.copy(value)
        dict.__setitem__(made, FRESH, 3.0)
        return made
    if isinstance(value, (list, collections.deque)):
        made = copy.copy(value)
        made.append(3.0)
        return made
    if isinstance(value, (set, frozenset)):
        return type(value)([*value, "other"])
    if type(value) is tuple and value and all(isinstance(item, type) for item in value):
        return (other_class(value[0]), *value[1:])  # bases of a class
    if isinstance(value, tuple) and type(value) is tuple:
        return (*value, 3.0)
    if isinstance(value, torch.dtype):
        return torch.float64
    if isinstance(value, property):
        return property(lambda self: 11.0)
    if isinstance(value, (staticmethod, classmethod)):
        return type(value)(changed_function(value.__func__))
    if isinstance(value, types.FunctionType):
        return changed_function(value)
    if isinstance(value, types.BuiltinFunctionType):  # a neighbour of it
        names = [name for name in dir(value.__self__) if not name.startswith("_")]
        near = [getattr(value.__self__, name) for name in names if name != value.__name__]
        return next(found for found in near if type(found) is type(value))
    if isinstance(value, type):
        return type(value.__name__ + "Other", (value,), {})
    return copy.copy(value)


def other_class(cls: type) -> type:
    """A subclass in which every attribute has another value."""
    own = {name: other(value) for name, value in vars(cls).items() if not name.startswith("__")}
    return type(cls)(cls.__name__ + "Other", (cls,), {**own, "__module__": "program"})


def changed_function(function: Callable) -> Callable:
    """A function that does what this one does, and then something more."""

    def changed(*args, **kwargs):
        result = function(*args, **kwargs)
        if isinstance(result, torch.Tensor):
            return result * 3
        if isinstance(result, (int, float)) and not isinstance(result, bool):
            return result + 1
        if isinstance(result, str):
            return result + "_changed"
        return result

    return changed


def another_type(value: Any) -> Any:
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return float(value)
    if isinstance(value, float):
        return int(value)
    if isinstance(value, (str, torch.Tensor)):
        return 2.0
    if callable(value):
        return 7.0
    if isinstance(value, property):
        return 13.0
    if value is ABSENT:
        return torch.ones(3) * 4
    return "of another type"


def equal(value: Any) -> Any:
    """Another object that is equal (for numbers: another object at least)."""
    if value is ABSENT:
        return lambda *args: 17.0
    if isinstance(value, types.FunctionType):
        made = types.FunctionType(
            value.__code__, value.__globals__, value.__name__, value.__defaults__, value.__closure__
        )
        made.__dict__.update(value.__dict__)
        return made
    if isinstance(value, (staticmethod, classmethod)):
        return type(value)(equal(value.__func__))
    if isinstance(value, property):
        return property(value.fget, value.fset, value.fdel)
    if isinstance(value, collections.deque):  # equality does not ask for the maximum
        return collections.deque(value, (value.maxlen or len(value)) + 1)
    return copy.deepcopy(value)


def as_descriptor(value: Any) -> Any:
    """What answers reads itself, where an instance's own value hid the class's before."""
    return property(lambda self: 19.0, lambda self, value: None)


WAYS = {"other": other, "type": another_type, "equal": equal, "delete": None}
CLASS_WAYS = {**WAYS, "descriptor": as_descriptor}


def answer_fresh(self: Any, name: str) -> Any:
    """A `__getattr__` that knows one more name."""
    if name == FRESH:
        return 17.0
    raise AttributeError(name)


def ways(place: Place) -> list[str]:
    if place.name == "__getattr__":
        return ["other", "delete"]
    if place.kind == "class":
        return ["subclass"]
    if place.kind == "element":
        return ["toggle", "reorder"]
    if place.kind == "key":
        return [*WAYS, "reorder", "alias"]
    if place.kind == "index":
        return [*WAYS, "insert", "alias"]
    return [*(CLASS_WAYS if place.parent.startswith("type(") else WAYS)]


def raw(parent: Any, name: str) -> Any:
    """What is kept there: no descriptor runs."""
    own = getattr(parent, "__dict__", {})
    if name in own:
        return own[name]
    if isinstance(parent, torch.nn.Module):
        for table in ("_parameters", "_buffers", "_modules"):
            if name in parent.__dict__[table]:
                return parent.__dict__[table][name]
    for cls in type(parent).__mro__:
        if hasattr(type(vars(cls).get(name)), "__set__"):
            try:
                return getattr(parent, name)
            except (AttributeError, ValueError):  # the latter of an empty cell
                return ABSENT
    return ABSENT


def change(parent: Any, place: Place, way: str) -> Callable[[], None]:
    """Do it.  The function that sets everything back."""
    if place.kind == "class":
        cls = type(parent)
        body = {"__slots__": ()} if not hasattr(parent, "__dict__") else {}
        parent.__class__ = type(cls)(cls.__name__, (cls,), {**body, "__module__": "program"})
        return lambda: setattr(parent, "__class__", cls)
    if place.kind == "attribute":
        return change_attribute(parent, place.name, way)
    return change_content(parent, place, way)


def change_attribute(parent: Any, name: str, way: str) -> Callable[[], None]:
    before = raw(parent, name)
    tables = None
    if isinstance(parent, torch.nn.Module):  # names move between these
        tables = {
            key: dict(parent.__dict__[key]) for key in ("_parameters", "_buffers", "_modules")
        }
        tables[""] = dict(parent.__dict__)

    def set_back() -> None:
        if tables is not None:
            parent.__dict__.clear()
            parent.__dict__.update(tables[""])
            for key in ("_parameters", "_buffers", "_modules"):
                parent.__dict__[key].clear()
                parent.__dict__[key].update(tables[key])
        elif before is not ABSENT:
            store(parent, name, before)
        elif raw(parent, name) is not ABSENT:
            remove(parent, name)

    store, remove = setattr, delattr
    if isinstance(parent, type) and type(parent).__module__ != "program":
        store, remove = type.__setattr__, type.__delattr__  # an enum's are particular
    if way == "delete":
        remove(parent, name)
    elif before is ABSENT and name == "__getattr__":
        made = answer_fresh if isinstance(parent, type) else functools.partial(answer_fresh, None)
        store(parent, name, made)
    else:
        store(parent, name, CLASS_WAYS[way](before))
    return set_back


def sibling(entries: dict, name: Any) -> Any:
    """What lies beside it, of the same type if there is one: then two entries are one object."""
    others = [value for key, value in entries.items() if value is not entries.get(name)]
    alike = [value for value in others if type(value) is type(entries.get(name))]
    return (alike or others)[-1]


def change_content(parent: Any, place: Place, way: str) -> Callable[[], None]:
    if isinstance(parent, set) and way == "reorder":  # where hashes collide
        before = list(parent)
        parent.clear()
        parent.update(reversed(before))

        def reorder() -> None:
            parent.clear()
            parent.update(before)

        return reorder
    if isinstance(parent, set):
        parent.symmetric_difference_update({place.name})
        return lambda: parent.symmetric_difference_update({place.name})
    if isinstance(parent, dict):
        before = list(parent.items())
        value = dict.get(parent, place.name, ABSENT)
        if way == "delete":
            del parent[place.name]
        elif way == "alias":
            parent[place.name] = sibling(dict(before), place.name)
        elif way == "reorder" and isinstance(parent, collections.OrderedDict):
            parent.move_to_end(place.name)  # no entry is written
        elif way == "reorder":
            parent[place.name] = parent.pop(place.name)
        else:
            parent[place.name] = WAYS[way](value)

        def fill() -> None:
            parent.clear()
            parent.update(before)

        return fill
    before = list(parent)
    if way == "delete":
        del parent[place.name]
    elif way == "insert":
        parent.insert(place.name, 23.0)
    elif way == "alias":
        parent[place.name] = sibling(dict(enumerate(before)), place.name)
    elif place.name == len(parent):
        parent.append(WAYS[way](ABSENT))
    else:
        parent[place.name] = WAYS[way](parent[place.name])

    def refill() -> None:
        parent.clear()
        parent.extend(before)

    return refill


# ---- readers
def readers(place: Place) -> list[str]:
    """Bodies of functions of `x` that look at the place, in terms of the subject `s`."""
    parent = place.parent
    whole = [
        "return use(s(x), x)",
        "return use([use(v, x) for v in s], x)",
        "return len(s)",
        "return bool(s), x + 1",
        "return use(s.method(x), x)",
        f"return use([*vars({parent})], x)",
        f"return use(dir({parent}), x)",
        f"return use(type({parent}).__name__, x)",
    ]
    if place.kind == "attribute":
        name = repr(place.name)
        owner = "s" if parent.startswith("type(s)") else parent
        dotted = f"{owner}.{place.name}"
        if not place.name.isidentifier():
            dotted = f"getattr({owner}, {name})"
        return [
            f"try: return use({dotted}, x)\nexcept AttributeError: return x - 1",
            f"return use({dotted}, x)",
            f"return use(getattr({owner}, {name}, 1.5), x)",
            f"return hasattr({owner}, {name}), x + 1",
            f"return {name} in vars({owner}), x + 1",
            f"return use(vars({owner}).get({name}, 2.5), x)",
            f"return use(call({dotted}, x), x)",
            f"return use(getattr(type({owner}), {name}, 1.5), x)",
            f"return [v is {dotted} for v in vars({owner}).values()], x + 1",
            *whole,
        ]
    if place.kind == "class":
        return ["return isinstance(s, Base), type(s) is Base, x + 1", *whole]
    key = repr(place.name)
    return [
        f"try: return use({parent}[{key}], x)\nexcept (KeyError, IndexError): return x - 1",
        f"return {key} in {parent}, x + 1",
        f"return use([*{parent}], x)",
        f"return len({parent}), bool({parent}), x + 1",
        f"return use({parent}.get({key}, 1.5), x)",
        f"return use([use(v, x) for v in {parent}.values()], x)",
        f"return use([(k, use(v, x)) for k, v in {parent}.items()], x)",
        f"return use(next(iter({parent})), x)",
        f"return use({parent} == {{1}}, x)",
        f"return use([*reversed({parent})], x)",
        f"return [v is {parent}[{key}] for v in {parent}.values()], x + 1",
        f"write({parent}[{key}])\nreturn [size(v) for v in {parent}.values()], x + 1",
        *whole,
    ]


class World:
    """One copy of a program: its namespace, its subject, and the readers of a place."""

    def __init__(self, kind: str):
        self.module = types.ModuleType("program")
        self.values = self.module.__dict__
        self.values["__name__"] = "program"
        self.values["this_module"] = self.module
        self.values["this_world"] = self
        torch.manual_seed(0)
        torch.utils.hooks.RemovableHandle.next_id = 0  # the keys of hooks
        exec(compile(HEADER + KINDS[kind], FILE, "exec"), self.values)
        self.subject = self.values["make"]()

    @property
    def subject(self) -> Any:
        return self.values["S"]

    @subject.setter
    def subject(self, value: Any) -> None:
        self.values["S"] = value

    def at(self, place: Place) -> Any:
        return eval(place.parent, self.values, {"s": self.subject})

    def reader(self, number: int, body: str) -> Callable:
        """The subject is an argument, a global or a closure's, in turn."""
        indented = body.replace("\n", "\n        ")
        heads = (
            f"def reader(x, s):\n        {indented}",
            f"def reader(x):\n        s = S\n        {indented}",
            f"def reader(x):\n        {indented}",
        )
        text = f"def outer(s):\n    {heads[number % 3]}\n    return reader\n"
        scope: dict[str, Any] = {}
        exec(compile(text, FILE, "exec"), self.values, scope)
        function = scope["outer"](self.subject)
        if number % 3:
            return function
        return lambda x, inner=function: inner(x, self.subject)


def cases(count: int, first: int) -> list:
    """Every (kind, place, way); a sample of `count` if there are more and `count` is not 0."""
    found = []
    for kind in KINDS:
        world = World(kind)
        for place in (Place("this_world", "attribute", "subject"), *places(world.subject)):
            for way in ways(place):
                found.append((kind, place.parent, place.kind, place.name, way))
    if count and count < len(found):
        found = random.Random(first).sample(found, count)
    return found


def check(case: tuple, mode: Mode) -> str:
    kind, parent, place_kind, name, way = case
    place = Place(parent, place_kind, name)
    worlds = World(kind), World(kind)
    programs = []
    for number, body in enumerate(readers(place)):
        plain, other_one = (world.reader(number, body) for world in worlds)
        if number % 3 == 0:
            inner = mode.compile(other_one.__defaults__[0])
            other_one = lambda x, inner=inner: inner(x, worlds[1].subject)  # noqa: E731
        else:
            other_one = mode.compile(other_one)
        programs.append((body, plain, other_one))
    set_back: list[Callable] = []
    try:
        digits = None if mode.name.startswith("eager") else 4
        return phases(worlds, place, way, programs, set_back, digits)
    finally:  # classes of torch are the same in the next case
        for restore in reversed(set_back):
            restore()


def phases(
    worlds: tuple, place: Place, way: str, programs: list, set_back: list, digits: int | None
) -> str:
    """All readers before the change, after it, and after it was set back.

    They are called twice before: at the second call the memo of the guards remembers them."""
    for phase in ("before", "once more", "changed", "set back"):
        problems = []
        changed = dict.fromkeys(id(world.at(place)) for world in worlds)  # torch's classes: once
        for world, _ in zip(worlds, changed):
            try:
                if phase == "changed":
                    set_back.append(change(world.at(place), place, way))
                elif phase == "set back":
                    set_back.pop()()
                problems.append("")
            except Exception as error:
                problems.append(type(error).__name__)
        if problems[0] != problems[-1]:
            return f"the change itself: plain {problems[0]!r}, compiled {problems[-1]!r}"
        if phase == "changed" and not set_back:
            return ""  # Python does not allow this change
        for body, plain, compiled in programs:
            arguments = (torch.arange(3.0) - 1,)
            found = [outcome(f, arguments, {}, None, FILE, digits) for f in (plain, compiled)]
            report = difference(*found)
            if report:
                return f"{phase}: {body}\n{report}"
    return ""


if __name__ == "__main__":
    runner.main("tests.soundness.change", default_modes="eager", default_count=0)
