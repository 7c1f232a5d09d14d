"""Where a value comes from: one tree of sources per captured frame.

In:   the evaluator asks for children: `tree.local("x").attr("config").item("hidden")`.
Out:  guards hang on the nodes (`guards.py` prints the tree as one Python function, every prefix
      evaluated once) and `rebuild/replacement.py` loads the value again.

    >>> tree = SourceTree()
    >>> tree.local("self").instance_dict().item("training").name()
    "self.__dict__['training']"

Mirrors torch/_dynamo/source.py (paper section 3.3), where each access is a class of its own; here
it is a row of `KINDS`.
"""

import builtins
import keyword
import re
from typing import Any

from .checks import NAMES

# kind -> how the access is written, given the parent's name and the key: guards evaluate this, and
# the code that loads the value again is compiled from it.
KINDS = {
    "local": "{k}",
    "free": "this_function.__closure__[{k[0]}].cell_contents",  # the key is (index, name)
    "free_cell": "this_function.__closure__[{k}]",
    "pinned": "{k}",
    "attr": "{p}.{k}",
    "getattr": "getattr({p}, {k!r})",
    "item": "{p}[{k!r}]",
    "pinned_item": "{p}[{k}]",
    "dict": "{p}.__dict__",
    "raw_dict": "object.__getattribute__({p}, '__dict__')",  # the class overrides __getattribute__
    "call": "{p}()",  # of a weak reference
    "closure": "{p}.__closure__[{k}]",
    "cell": "{p}.cell_contents",
    "class_item": "{p}.__dict__[{k!r}]",
    # the methods of the program's class are not asked
    **{f"{cls}_item": cls + ".__getitem__({p}, {k!r})" for cls in ("dict", "list", "tuple")},
    "behind": "get_referents({p})[0]",  # of a mappingproxy
}


# other words in the text of a check: locals, objects of the thread's state, what it calls
TAKEN = re.compile(r"v\d+|[LP]_.*|state_.*|this_function|answer_failure|error")
NEITHER_LETTER_NOR_DIGIT = re.compile("[^0-9A-Za-z]")


def identifier(name: str) -> str:
    """A local variable's name in the text of a check: `.1s0` of a resume function becomes `L__1s0`.

    One that is called like something that the text uses gets an `L_`, too (`L_len`): no two things
    share a name."""
    is_taken = TAKEN.fullmatch(name) or name in NAMES or hasattr(builtins, name)
    if name.isidentifier() and not is_taken:
        return name
    return "L_" + "".join(c if c.isalnum() or c == "_" else "_" for c in name)


def numbered(hint: str, taken: dict[str, int]) -> str:
    """`hint`, or `hint_1`, `hint_2`..., whichever is not among `taken` (name -> the last number
    tried for it)."""
    name = hint
    while name in taken:
        taken[hint] += 1
        name = f"{hint}_{taken[hint]}"
    taken[name] = 0
    return name


class Source:
    """A node: `base` is the value it is read from, `key` the name or index, `guards` what was
    assumed about it."""

    __slots__ = ("kind", "base", "key", "children", "guards", "layout", "value", "alias_of")

    def __init__(self, kind: str, base: "Source | None", key: Any, value: Any = None) -> None:
        self.kind = kind
        self.base = base
        self.key = key
        self.value = value
        self.children: dict[Any, "Source"] = {}
        self.guards: dict[Any, Any] = {}
        self.layout = ""  # of a tensor: one check that stands for guards on its layout
        self.alias_of: "Source | None" = None

    def child(self, kind: str, key: Any = None) -> "Source":
        slot = (kind, type(key), key)  # 1 == True
        found = self.children.get(slot)
        if found is None:
            found = self.children[slot] = Source(kind, self, key)
        return found

    def attr(self, name: str) -> "Source":
        """(Python spells keywords, and some letters, otherwise than `x.name`.)"""
        plain = name.isidentifier() and name.isascii() and not keyword.iskeyword(name)
        return self.child("attr" if plain else "getattr", name)

    def item(self, key: Any) -> "Source":
        return self.child("item", key)

    def instance_dict(self, plain: bool = True) -> "Source":
        return self.child("dict" if plain else "raw_dict")

    def expr(self, parent: str | None) -> str:
        """This access as Python, where `parent` names the base."""
        key = identifier(self.key) if self.kind == "local" else self.key
        return KINDS[self.kind].format(p=parent, k=key)

    def name(self) -> str:
        """The whole access, as a student reads it."""
        if self.kind == "free":
            return identifier(self.key[1])
        return self.expr(self.base.name() if self.base else None)

    __repr__ = name

    def root(self) -> "Source":
        return self.base.root() if self.base else self


class SourceTree:
    """The roots of one frame: its parameters, its closure, and objects pinned by reference (globals
    dicts, classes)."""

    def __init__(self) -> None:
        self.locals: dict[str, Source] = {}
        self.frees: dict[str, Source] = {}
        self.pins: dict[int, Source] = {}  # id(object) -> its source, which keeps the object alive
        self.names: dict[str, int] = {}

    def local(self, name: str) -> Source:
        return self.locals.setdefault(name, Source("local", None, name))

    def free(self, index: int, name: str) -> Source:
        return self.frees.setdefault(name, Source("free", None, (index, name)))

    def free_cell(self, index: int) -> Source:
        """The cell itself of a variable of the closure; `free` is what it contains."""
        return self.frees.setdefault(f"cell {index}", Source("free_cell", None, index))

    def pinned(self, value: Any, hint: object = None) -> Source:
        """A source for an object that the entry holds by reference."""
        found = self.pins.get(id(value))
        if found is None:
            known = str(hint or getattr(value, "__name__", None) or type(value).__name__)
            # `P_` and the hint, with a number where that is taken
            name = numbered("P_" + NEITHER_LETTER_NOR_DIGIT.sub("_", known), self.names)
            found = self.pins[id(value)] = Source("pinned", None, name, value)
        return found
