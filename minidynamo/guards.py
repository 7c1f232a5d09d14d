"""Guards: what an entry assumes, as objects, and the one readable Python function that checks them
all.

In:   `Guard`s on the nodes of a `SourceTree`.
Out:  `GuardFunction`: `.check(func, *parameters) -> bool`, `.source` (its text), `.guards`,
      `.first_failure(...)`.

    >>> print(entry.record.guard_function.source)
    def check(this_function, x):
        try:
            if not (type(x) is P_Tensor and x.dtype is P_float32 and ...): return False
            ...
        return True

Names.  A parameter is called what the program calls it, unless the text uses that word for
something else: a parameter `len` is `len_` in a function that asks for lengths (`name_parameters`),
so that no name of the program hides one of ours.

The function follows the tree: each prefix is evaluated once and kept in a local.  The arguments'
own checks come first (they fail most often), then the thread's state, then everything below.  An
exception while checking means False: a missing attribute is a failed guard.  One that comes from
elsewhere (foreign.py) leaves the user's call.

`extras/memo.py` prints another text, which skips what cannot have changed since the last call.

Mirrors torch/_dynamo/guards.py and the C++ guard tree of torch/csrc/dynamo/guards.cpp (paper
section 3.3).
# PyTorch: the tree is built from C++ nodes; a generated Python function can be read.
"""

import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from . import config
from .exceptions import SkipFrame
from .foreign import is_foreign, ours
from .sources import KINDS, Source, SourceTree, identifier

# What the accesses and checks call by name; coverage adds some.
NAMES: dict[str, Any] = {"math": math}

MODULE_TABLES = ("_parameters", "_buffers", "_modules")  # nn.Module keeps these dicts itself
FUNCTION_FIELDS = ("__defaults__", "__kwdefaults__")
SINGLETONS = (None, True, False, Ellipsis, NotImplemented)
# The text is printed before it is known which names are free in it: parameter 2 is "\1" "2" "\1"
# in it at first.
PARAMETER = re.compile("\1([0-9]+)\1")
WORD = re.compile(r"(?<![\w.'\"])[^\W\d]\w*")  # a word of a text that may be a name: no attribute


@dataclass(slots=True)
class Guard:
    """One assumption: `check` is Python with `{0}` for the guarded value (`{1}`... where `source`
    is a tuple); `pins` are the objects it names."""

    kind: str
    source: Any  # a Source, a tuple of them, or None
    check: str
    pins: dict = field(default_factory=dict)
    line: str = ""

    def text(self, written: Callable[[Source], str]) -> str:
        """The check, where each source is written so."""
        if isinstance(self.source, tuple):
            return self.check.format(*map(written, self.source))
        return self.check.format("" if self.source is None else written(self.source))

    @property
    def code(self) -> str:
        return self.text(Source.name)

    def __str__(self) -> str:
        line = f"    # {self.line}" if self.line else ""
        return f"{self.kind:12} {self.code}{line}"


def has_long_text(value: Any) -> bool:
    """Is it too long to be written into the guard, so that the entry holds the object itself?
    Python refuses to write an int of over 4300 digits."""
    if type(value) is int:
        return value.bit_length() > 10_000
    return type(value) in (str, bytes) and len(value) > 10_000


def literal(value: object) -> str:
    """A constant as it stands in a guard's check.  That is a text for `str.format`: braces are
    doubled."""
    return repr(value).replace("{", "{{").replace("}", "}}")


def constant_check(value: Any) -> tuple[str, Any]:
    """(check, object to pin or None): equal *and* of the same type, with -0.0 and nan told
    apart."""
    kind = type(value)
    if any(value is single for single in SINGLETONS):
        return f"{{0}} is {value!r}", None
    if kind in (int, str, bytes) and not has_long_text(value):
        return f"type({{0}}) is {kind.__name__} and {{0}} == {literal(value)}", None
    if kind is float and math.isfinite(value) and value != 0.0:
        return f"type({{0}}) is float and {{0}} == {value!r}", None
    if kind in (float, complex):
        return f"type({{0}}) is {kind.__name__} and repr({{0}}) == {repr(value)!r}", None
    if hasattr(type(value), "tobytes"):  # a number of NumPy's: its bytes tell -0.0 and nan apart
        same = f"{{0}}.tobytes() == {literal(value.tobytes())}"
        return "type({0}) is type({pin}) and " + same, value
    return "type({0}) is type({pin}) and {0} == {pin}", value


class GuardPrinter:
    """The tree of sources as lines of Python, every prefix evaluated once.

    `places`: what stands for each parameter in the text.  The printer of extras/memo.py, which is
    registered in `PRINTERS`, prints the tree in two sections, of which the first is skipped in most
    calls; here there is one section."""

    def __init__(self, tree: SourceTree, places: dict[str, str]) -> None:
        self.tree = tree
        self.namespace: dict[str, Any] = {pin.key: pin.value for pin in tree.pins.values()}
        self.guards: list[Guard] = []
        self.lines: list[str] = []
        self.indent = " " * 8
        self.count = 0
        # source -> the local or global of the check function that holds its value
        self.names = {pin: pin.key for pin in tree.pins.values()}
        self.names.update({node: places[name] for name, node in tree.locals.items()})
        self.pair_nodes: set[Source] = set()  # sources of its guards on several sources

    def print(self, state_guards: list[Guard], pair_guards: list[Guard]) -> None:
        tree = self.tree
        for node in tree.locals.values():
            self.argument(node, self.names[node])
        self.conditions(state_guards, "")
        for node in tree.frees.values():
            if node.guards or node.children or any(node in pair.source for pair in pair_guards):
                self.assign(node, None)
                self.conditions(node.guards.values(), self.names[node])
        for pin in tree.pins.values():
            pin.guards.pop("TYPE", None)  # the entry itself holds the object: it stays what it is
        roots = [*tree.locals.values(), *tree.frees.values(), *tree.pins.values()]
        self.sections(roots, pair_guards)

    # ---- what the printer of extras/memo.py does in its own way
    def argument(self, node: Source, name: str) -> None:
        """The guards of an argument, or of a local behind a graph break."""
        self.conditions(node.guards.values(), name)

    def sections(self, roots: list[Source], pair_guards: list[Guard]) -> None:
        """Everything below the roots."""
        self.section(roots, pair_guards)

    def wanted(self, node: Source) -> list[Guard]:
        """The guards of `node` that belong to this section."""
        return list(node.guards.values())

    def is_read_on(self, node: Source) -> bool:
        """Does the value of `node` need a name?"""
        return bool(node.children) or node in self.pair_nodes

    def named(self, node: Source, name: str) -> None:
        """Called when the value of `node` was given a name in the text."""

    # ---- printing
    def section(self, roots: list[Source], pair_guards: list[Guard]) -> None:
        self.pair_nodes = {node for guard in pair_guards for node in guard.source}
        for root in filter(self.needed, roots):
            name = self.names[root]
            self.named(root, name)
            if root.kind == "pinned":
                self.conditions(self.wanted(root), name)
            self.below(root, name)
        for guard in pair_guards:  # identity between sources, last: both sides have names by now
            self.conditions([guard], *[self.names[node] for node in guard.source])

    def needed(self, node: Source) -> bool:
        """Is there anything to look at in this section, at `node` or below?"""
        own = node in self.pair_nodes or bool(self.wanted(node))
        return own or any(map(self.needed, node.children.values()))

    def below(self, node: Source, name: str) -> None:
        """The guards of everything below `node`, whose value is called `name`.

        A child that has children gets a name, and so a line, of its own.  The others, most of them,
        are leaves, of which eight share a line: `if not (x.a is P_a and ...): return False`.
        """
        leaves: list[str] = []
        inner = []
        for child in filter(self.needed, node.children.values()):
            if self.is_read_on(child):
                inner.append(child)
            else:
                leaves += self.leaf_conditions(child, child.expr(name))
        for start in range(0, len(leaves), 8):
            self.line(leaves[start : start + 8])
        for child in inner:
            below = self.assign(child, name)
            self.named(child, below)
            self.conditions(self.wanted(child), below)
            self.below(child, below)

    def leaf_conditions(self, node: Source, value: str) -> list[str]:
        """Conditions on `value`, an expression like `v1.scale`."""
        return [self.render(guard, value) for guard in self.wanted(node)]

    def conditions(self, guards: Iterable[Guard], *names: str) -> None:
        self.line([self.render(guard, *names) for guard in guards])

    def line(self, conditions: list[str]) -> None:
        if conditions:
            self.lines.append(f"{self.indent}if not ({' and '.join(conditions)}): return False")

    def render(self, guard: Guard, *names: str) -> str:
        self.guards.append(guard)
        self.namespace.update(guard.pins)
        return guard.check.format(*names)

    def assign(self, node: Source, parent: str | None) -> str:
        self.count += 1
        name = self.names[node] = node.label or f"v{self.count}"
        self.lines.append(f"{self.indent}{name} = {node.expr(parent)}")
        return name


PRINTERS: list[type[GuardPrinter]] = [GuardPrinter]  # the last one prints; coverage appends


class GuardFunction:
    """The check of one cache entry: `check`, its text `source`, and the `guards` in it."""

    def __init__(
        self,
        tree: SourceTree,
        parameters: Sequence[str],
        state_guards: list[Guard],
        pair_guards: list[Guard],
    ) -> None:
        places = {name: f"\1{n}\1" for n, name in enumerate(parameters)}
        printer = PRINTERS[-1](tree, places)
        printer.print(state_guards, pair_guards)
        if len(printer.guards) > config.guard_limit:
            raise SkipFrame(f"it would take {len(printer.guards):,} guards")
        self.guards = [
            *state_guards,
            *(guard for guard in printer.guards if guard.source is not None),
        ]
        text = "\n".join(
            [
                f"def check({', '.join(['this_function', *places.values()])}):",
                "    try:",
                *(printer.lines or ["        pass"]),
                "        return True",
                "    except Exception as error:",
                "        return answer_failure(error)",
                "",
            ]
        )
        self.parameters = name_parameters(parameters, text)
        self.source = PARAMETER.sub(lambda found: self.parameters[int(found[1])], text)
        self.called = dict(zip(parameters, self.parameters))
        self.namespace: dict[str, Any] = {
            **NAMES,
            "answer_failure": answer_failure,
            **printer.namespace,
        }
        self.check: Any = self.compiled()

    def compiled(self) -> Any:
        """The function of the text.  (extras/lazy_guards.py compiles it when it is called.)"""
        exec(compile(self.source, "<minidynamo guard>", "exec"), self.namespace)
        return self.namespace["check"]

    def first_failure(self, func: Any, *values: Any) -> tuple[Guard, str] | None:
        """(guard, reason) of the first guard that is false for these parameters, or None."""
        scope = self.scope(func, *values)
        for guard in self.guards:
            try:
                text = guard.text(self.evaluable)
                if not eval(text, scope):
                    return guard, f"{text} is false"
            except ours(Exception) as error:
                return guard, f"{type(error).__name__}: {error}"
        return None

    def scope(self, func: Any, *values: Any) -> dict[str, Any]:
        """What the names in the guards mean in a call with these parameters."""
        return dict(self.namespace, this_function=func, **dict(zip(self.parameters, values)))

    def evaluable(self, node: Source) -> str:
        """The whole access, over the parameters of `check`."""
        if node.kind == "local":
            return self.called[node.key]
        return node.expr(self.evaluable(node.base) if node.base is not None else None)


def answer_failure(error: BaseException) -> bool:
    """False: what the guards look at is not there.  A foreign exception leaves the user's call."""
    if is_foreign(error):
        raise error
    return False


def words(text: str) -> set[str]:
    """The words of `text` that may be names of variables."""
    return set(WORD.findall(text))


def name_parameters(parameters: Sequence[str], text: str) -> list[str]:
    """What each parameter is called in `text`: what the program calls it, with `_` behind it where
    the text uses that word for something else."""
    taken = words(" ".join([text, *KINDS.values()]))
    names = []
    for parameter in parameters:
        name = identifier(parameter)
        while name in taken:
            name += "_"
        taken.add(name)
        names.append(name)
    return names
