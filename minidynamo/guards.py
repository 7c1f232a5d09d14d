"""Guards: what an entry assumes, as objects, and the one readable Python function that checks them all.

In:   `Guard`s on the nodes of a `SourceTree`.
Out:  `GuardFunction`: `.check(func, *parameters) -> bool`, `.source` (its text), `.guards`, `.first_failure(...)`.

    >>> print(entry.guards.source)
    def check(this_function, x):
        if not (type(x) is P_Tensor and x.dtype is P_float32 and x.shape == (2, 3) and ...): return False
        return True

The function follows the tree: each prefix is evaluated once and kept in a local.  The arguments' own checks come first
(they fail most often), then the thread's state, then everything below.  Any exception while checking means False: a
missing attribute is a failed guard.

Mirrors torch/_dynamo/guards.py and the C++ guard tree of torch/csrc/dynamo/guards.cpp (paper section 3.3).
# PyTorch: the tree is built from C++ nodes; a generated Python function is within a small factor and can be read.
"""
import math
import weakref
from dataclasses import dataclass, field

from .sources import identifier


@dataclass(slots=True)
class Guard:
    """One assumption: `check` is Python with `{0}` for the guarded value (`{1}`... where `source` is a tuple); `pins` are the objects it names."""
    kind: str
    source: object
    check: str
    pins: dict = field(default_factory=dict)
    line: str = ""

    @property
    def code(self):
        sources = self.source if isinstance(self.source, tuple) else (self.source,) if self.source is not None else ("",)
        return self.check.format(*[getattr(source, "name", str)() for source in sources])

    def __str__(self):
        return f"{self.kind:12} {self.code}" + (f"    # {self.line}" if self.line else "")


def constant_check(value):
    """(check, object to pin or None): equal *and* of the same type, with -0.0 and nan told apart."""
    kind = type(value)
    if value is None or value is True or value is False or value is Ellipsis or value is NotImplemented:
        return f"{{0}} is {value!r}", None
    if kind is int or kind is str or kind is bytes:
        return f"type({{0}}) is {kind.__name__} and {{0}} == " + repr(value).replace("{", "{{").replace("}", "}}"), None
    if kind is float:
        if value != value:
            return "type({0}) is float and {0} != {0}", None
        if value == 0.0:
            return f"type({{0}}) is float and {{0}} == 0.0 and copysign(1.0, {{0}}) == {math.copysign(1.0, value)}", None
        if math.isinf(value):
            return f"type({{0}}) is float and {{0}} == float('{value}')", None
        return f"type({{0}}) is float and {{0}} == {value!r}", None
    if kind is complex:
        return f"type({{0}}) is complex and repr({{0}}) == {repr(value)!r}", None
    return "type({0}) is type({pin}) and {0} == {pin}", value


class GuardFunction:
    """The compiled check of one cache entry."""

    def __init__(self, tree, parameters, state_guards, pair_guards):
        self.parameters = parameters = [identifier(name) for name in parameters]
        self.namespace = {"copysign": math.copysign, "math": math}
        self.guards = list(state_guards)
        self.lines, self.names, self.count = [], {}, 0
        self._pair_nodes = {node for guard in pair_guards for node in guard.source}
        for pin in tree.pins.values():
            self.namespace[pin.key] = pin.value
            self.names[pin] = pin.key
        for name, node in tree.locals.items():
            self.names[node] = identifier(name)
        for node in tree.locals.values():
            self._own_checks(node, self.names[node])
        self._conditions([self._render(guard, "") for guard in state_guards])
        for node in tree.locals.values():
            self._below(node, self.names[node])
        for node in tree.frees.values():
            self._visit(node, None)
        for pin in tree.pins.values():
            pin.guards.pop("TYPE", None)        # of an object that the entry itself holds
            self._own_checks(pin, pin.key)
            self._below(pin, pin.key)
        for guard in pair_guards:       # identity between sources, last: both sides have names by now
            self.guards.append(guard)
            self.namespace.update(guard.pins)
            self._conditions([guard.check.format(*[self.names[node] for node in guard.source])])
        body = [f"        {line}" for line in self.lines] or ["        pass"]
        self.source = "\n".join([f"def check({', '.join(['this_function', *parameters])}):", "    try:", *body,
                                 "        return True", "    except Exception:", "        return False", ""])
        exec(compile(self.source, "<minidynamo guard>", "exec"), self.namespace)
        self.check = self.namespace["check"]

    def _render(self, guard, name):
        self.namespace.update(guard.pins)
        return guard.check.format(name)

    def _conditions(self, conditions):
        if conditions:
            self.lines.append(f"if not ({' and '.join(conditions)}): return False")

    def _own_checks(self, node, name):
        self.guards.extend(node.guards.values())
        self._conditions([self._render(guard, name) for guard in node.guards.values()])

    def _below(self, node, name):
        inner = [c for c in node.children.values() if c.children or c in self._pair_nodes]
        leaves = []                     # children with nothing below them need no name for long
        for child in node.children.values():
            if child not in inner:
                value = f"(leaf := {child.expr(name)})" if sum(g.check.count("{0}") for g in child.guards.values()) > 1 else child.expr(name)
                for guard in child.guards.values():
                    self.guards.append(guard)
                    leaves.append(self._render(guard, "\0").replace("\0", value, 1).replace("\0", "leaf"))
                    value = "leaf"
        for start in range(0, len(leaves), 8):
            self._conditions(leaves[start:start + 8])
        for child in inner:
            self._visit(child, name)

    def _visit(self, node, parent):
        if not self._needed(node):
            return
        self.count += 1
        name = self.names[node] = node.label or f"v{self.count}"
        self.lines.append(f"{name} = {node.expr(parent)}")
        self._own_checks(node, name)
        self._below(node, name)

    def _needed(self, node):
        return bool(node.guards) or node in self._pair_nodes or any(self._needed(c) for c in node.children.values())

    def first_failure(self, func, *values):
        """(guard, reason) of the first guard that is false for these parameters, or None."""
        scope = dict(self.namespace, this_function=func, **dict(zip(self.parameters, values)))
        for guard in self.guards:
            try:
                if isinstance(guard.source, tuple):
                    text = guard.check.format(*[_evaluable(node) for node in guard.source])
                else:
                    text = guard.check.format(_evaluable(guard.source) if guard.source is not None else "")
                if not eval(text, scope):
                    return guard, f"{text} is false"
            except Exception as error:
                return guard, f"{type(error).__name__}: {error}"
        return None


def _evaluable(node):
    return node.expr(_evaluable(node.base) if node.base is not None else None)


def watch(objects, on_death):
    """Weak references to `objects` that call `on_death` once one of them dies; keep the returned list alive."""
    def dead(_):
        on_death()
    return [weakref.ref(obj, dead) for obj in objects]
