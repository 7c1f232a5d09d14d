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

Names.  A parameter is called what the program calls it, unless the text may use that word for
something else: a parameter `len` is `L_len` (`sources.identifier`), so that no name of the program
hides one of ours.

The function follows the tree.  The arguments' own checks come first (they fail most often), then
the thread's state, then everything below.  An exception while checking means False: a missing
attribute is a failed guard.  One that comes from elsewhere (a signal's) leaves the user's call.

What checks compare, checks.py says.  One comparison of a tensor's layout stands for its guards:

    layout(x) == P_float32_4_4

Guards on what a module holds (`settle`) are checked again only after a write to one of the
dictionaries on the way.  Otherwise only the parameters' layouts are compared:

    if not still(state_seen, state_held, self):
        ...                                     # all of them
        state_seen[0] = note(self, ...)

Mirrors torch/_dynamo/guards.py, and the C++ guard tree and TensorCheck of
torch/csrc/dynamo/guards.cpp (paper section 3.3).
# PyTorch: the tree is built from C++ nodes; a generated Python function can be read.
"""

import builtins
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from miniinductor.errors import is_foreign, ours

from .. import config
from ..errors import SkipFrame
from .checks import NAMES
from .sources import Source, SourceTree, identifier

MODULE_TABLES = ("_parameters", "_buffers", "_modules")  # nn.Module keeps these dicts itself
FUNCTION_FIELDS = ("__defaults__", "__kwdefaults__")
# The kinds of guards that one comparison of a tensor's layout stands for (checks.py).
BY_LAYOUT = {"TENSOR", "DTYPE", "SHAPE", "STRIDE", "DEVICE", "VIEW_BITS", "GRAD"}


def is_state(source: Any) -> bool:
    """Does the source read an entry of a module's `_parameters`, `_buffers` or `_modules`?"""
    table = source.base if isinstance(source, Source) else None
    return table is not None and table.kind == "item" and table.key in MODULE_TABLES


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
        """The check as Python; `written` gives the text of each source."""
        if isinstance(self.source, tuple):
            return self.check.format(*map(written, self.source))
        return self.check.format("" if self.source is None else written(self.source))

    @property
    def code(self) -> str:
        return self.text(str)

    def __str__(self) -> str:
        line = f"    # {self.line}" if self.line else ""
        return f"{self.kind:12} {self.code}{line}"


def access(node: Source) -> str:
    """The whole access, over the parameters of a check."""
    return node.expr(None if node.base is None else access(node.base))


def kinds_of(node: Source) -> set[str]:
    return {guard.kind for guard in node.guards.values()}


def of_layout(node: Source) -> set[str]:
    """The kinds of a tensor's guards that its layout stands for."""
    found = kinds_of(node) & BY_LAYOUT if node.layout else set()
    # where sizes are symbols, so are strides
    return found - {"STRIDE"} if ".startswith(" in node.layout else found


def is_held(node: Source) -> bool:
    """Is it a tensor, such as a parameter, of which only the object and its layout are guarded?"""
    return kinds_of(node) - of_layout(node) == {"ID"} and " == " in node.layout


FIXED = {"ID", "EQUALS", "EQ"}  # guards on what never changes
SETTLED = FIXED | {"TYPE", "ABSENT", "KEYS", "NO_HOOKS", "TUPLE"}


class GuardPrinter:
    """The tree of sources as lines of Python: what several guards read is read once.

    v1 = x.__dict__
    v2 = v1['config']
    if not (type(v2) is P_Config and v2.size == 3): return False
    """

    def __init__(self, tree: SourceTree, pair_guards: Sequence[Guard]) -> None:
        self.tree = tree
        self.pair_guards = pair_guards
        self.namespace: dict[str, Any] = {pin.key: pin.value for pin in tree.pins.values()}
        self.guards: list[Guard] = []
        self.lines: list[str] = []
        # source -> the local or global of the check function that holds its value
        self.names = {pin: pin.key for pin in tree.pins.values()}
        self.names.update({node: identifier(name) for name, node in tree.locals.items()})
        self.paired = {node for guard in pair_guards for node in guard.source}
        self.anchors: list[Source] = []  # what is read from these is settled, see `settle`
        self.inside = False  # are settled guards being printed?
        self.held: list[Any] = []  # tensors among those, and their layouts

    def print(self, state_guards: list[Guard]) -> None:
        tree = self.tree
        for node in tree.locals.values():
            self.check(node, self.names[node])
        self.line([self.text(guard) for guard in state_guards])
        for node in filter(self.is_needed, tree.frees.values()):
            self.check(node, self.assign(node, None))
        for pin in tree.pins.values():
            pin.guards.pop("TYPE", None)  # the entry itself holds the object: it stays what it is
            self.check(pin, pin.key)
        for root in (*tree.locals.values(), *tree.frees.values(), *tree.pins.values()):
            self.below(root)
        if self.anchors:
            self.settle()
        for guard in self.pair_guards:
            self.line([self.text(guard, *[self.names[node] for node in guard.source])])

    def settle(self) -> None:
        """Guards that hold as long as nobody writes to the dictionaries on the way: they are
        checked again after a write."""
        outside, self.lines, self.inside, known = self.lines, [], True, len(self.names)
        for node in self.anchors:
            self.below(node)
        anchors = [self.names[node] for node in self.anchors]
        seen = ", ".join([*anchors, *[*self.names.values()][known:]])
        self.namespace |= {"state_seen": [b""], "state_held": tuple(self.held)}
        self.lines = [
            *outside,
            f"        if not still(state_seen, state_held, {', '.join(anchors)}):",
            *["    " + line for line in self.lines],
            f"            state_seen[0] = note({seen})",
        ]

    def is_settled(self, node: Source) -> bool:
        """Is all that is read from `node` an item of a dictionary or tuple, or a `__dict__`?"""
        return all(
            child.kind in ("dict", "item")
            and child not in self.paired
            and (is_held(child) or kinds_of(child) <= SETTLED)
            and self.is_settled(child)
            for child in node.children.values()
        )

    def is_needed(self, node: Source) -> bool:
        """Is there anything to look at, at `node` or below?"""
        if node.guards or node in self.paired:
            return True
        return any(map(self.is_needed, node.children.values()))

    def below(self, node: Source) -> None:
        """The guards of everything that is read from `node`: leaves first."""
        children = [*filter(self.is_needed, node.children.values())]
        # no tuple, as a function's defaults are: it has no version, so `still` is false for it
        is_tuple = "TUPLE" in kinds_of(node) or node.key == "__defaults__"
        may_settle = node.root().kind != "pinned" and not is_tuple
        if not self.inside and children and may_settle and self.is_settled(node):
            self.anchors.append(node)
            return
        inner = list[Source]()
        for child in children:
            held = is_held(child)
            if child.children or child in self.paired or not (held or kinds_of(child) <= FIXED):
                inner.append(child)
                continue
            self.check(child, child.expr(self.names[node]))
            if held and self.inside:
                layout = self.namespace[child.layout.split(" == ")[1]]
                self.held += [*child.guards["ID"].pins.values(), layout]
        for child in inner:
            self.check(child, self.assign(child, self.names[node]))
            self.below(child)

    def check(self, node: Source, value: str) -> None:
        """The guards of one source, whose value is `value` in the text."""
        kinds = of_layout(node)
        texts = {
            node.layout.format(value) if guard.kind in kinds else self.text(guard, value): guard
            for guard in node.guards.values()
        }
        self.line(list(texts))
        self.guards += [guard for guard in node.guards.values() if guard.kind in kinds]

    def line(self, conditions: list[str]) -> None:
        if conditions:
            self.lines.append(f"        if not ({' and '.join(conditions)}): return False")

    def text(self, guard: Guard, *names: str) -> str:
        """One guard, as it stands in the text."""
        self.guards.append(guard)
        self.namespace.update(guard.pins)
        return guard.check.format(*names)

    def assign(self, node: Source, parent: str | None) -> str:
        """Read the value of `node` into a local."""
        name = self.names[node] = f"v{len(self.names)}"
        self.lines.append(f"        {name} = {node.expr(parent)}")
        return name


class GuardFunction:
    """The check of one cache entry: `check`, its text `source`, and the `guards` in it."""

    def __init__(
        self,
        tree: SourceTree,
        parameters: Sequence[str],
        state_guards: list[Guard],
        pair_guards: list[Guard],
    ) -> None:
        self.parameters = [identifier(name) for name in parameters]
        printer = GuardPrinter(tree, pair_guards)
        printer.print(state_guards)
        if len(printer.guards) > config.guard_limit:
            raise SkipFrame(f"it would take {len(printer.guards):,} guards")
        # those of the thread's state first
        self.guards = sorted(printer.guards, key=lambda guard: guard.source is not None)
        self.source = "\n".join(
            [
                f"def check({', '.join(['this_function', *self.parameters])}):",
                "    try:",
                *(printer.lines or ["        pass"]),
                "        return True",
                "    except Exception as error:",
                "        return answer_failure(error)",
                "",
            ]
        )
        self.namespace: dict[str, Any] = {
            **NAMES,
            "answer_failure": answer_failure,
            # C code that imports a module asks the running function's globals (torch.jit.trace)
            "__builtins__": builtins,
            **printer.namespace,
        }
        exec(compile(self.source, "<minidynamo guard>", "exec"), self.namespace)
        self.check: Any = self.namespace["check"]

    def first_failure(self, func: Any, *values: Any) -> tuple[Guard, str] | None:
        """(guard, reason) of the first guard that is false for these parameters, or None."""
        return next(self.failures(func, *values), None)

    def failures(self, func: Any, *values: Any) -> Iterator[tuple[Guard, str]]:
        """(guard, reason) of each guard that is false for these parameters."""
        scope = self.scope(func, *values)
        for guard in self.guards:
            try:
                text = self.evaluable(guard)
                with torch._C.DisableTorchFunction():  # a subclass's is the program's
                    holds = eval(text, scope)
                if not holds:
                    yield guard, f"{text} is false"
            except ours(Exception) as error:
                yield guard, f"{type(error).__name__}: {error}"

    def evaluable(self, guard: Guard) -> str:
        """The check, over the parameters of `check`."""
        return guard.text(access)

    def scope(self, func: Any, *values: Any) -> dict[str, Any]:
        """What the names in the guards mean in a call with these parameters."""
        return dict(self.namespace, this_function=func, **dict(zip(self.parameters, values)))


def answer_failure(error: BaseException) -> bool:
    """False: what the guards look at is not there.  A foreign exception leaves the user's call."""
    if is_foreign(error):
        raise error
    return False
