"""Guards: what an entry assumes, as objects, and the one readable Python function that checks them
all.

In:   `Guard`s on the nodes of a `SourceTree`.
Out:  `GuardFunction`: `.check(func, *parameters) -> bool`, `.source` (its text), `.guards`,
      `.first_failure(...)`.

    >>> print(entry.guards.source)
    def check(this_function, x):
        if not as_before_0(x):
            if not (type(x) is P_Tensor and x.dtype is P_float32 and ...): return False
            as_before_0.remember(x)
        return True

Names.  A parameter is called what the program calls it, unless the text uses that word for
something else: a parameter `len` is `len_` in a function that asks for lengths (`name_parameters`),
so that no name of the program hides one of ours.

The function follows the tree: each prefix is evaluated once and kept in a local.  The arguments'
own checks come first (they fail most often), then the thread's state, then everything below.  An
exception while checking means False: a missing attribute is a failed guard.  One that comes from
elsewhere (foreign.py) leaves the user's call.

What hangs below a module or a global by dictionaries alone (most of it) stands behind a memo
(`guard_memo.c`): `if not memo():` skips it while no dictionary on the way has been written and no
parameter has another dtype, shape or strides.  So do an argument's own checks, where all its sizes
are numbers: `if not as_before_0(x):` skips what is said of a tensor's class, dtype, device, sizes,
strides and bits, and whether it requires gradients, while the argument is like that of the last
call.

Mirrors torch/_dynamo/guards.py and the C++ guard tree of torch/csrc/dynamo/guards.cpp (paper
section 3.3).
# PyTorch: the tree is built from C++ nodes, with dict tags for the same purpose; a generated Python function can be read.
"""

import collections
import ctypes
import functools
import gc
import math
import re
import types
from dataclasses import dataclass, field
from typing import Any

import torch

from . import config
from ._guard_memo import LayoutMemo, Memo, use_torch
from .exceptions import SkipFrame
from .foreign import is_foreign, ours
from .sources import KINDS, identifier, name_of

MODULE_TABLES = ("_parameters", "_buffers", "_modules")  # nn.Module keeps these dicts itself
FIXED = {
    "ID",
    "SAME",
    "EQ",
    "GLOBAL",
    "EQUALS",
    "MODULE",
    "NO_HOOKS",
}  # of identity and of constants (hooks: see `_below`)
LASTING = FIXED - {"EQUALS"} | {"TYPE", "CODE", "MRO", "ALIAS", "DISTINCT"}
FUNCTION_FIELDS = ("__defaults__", "__kwdefaults__")  # whose replacement a memo notices
PARAMETER = re.compile("\1([0-9]+)\1")  # the n-th parameter, until it has its name
WORD = re.compile(r"(?<![\w.'\"])[^\W\d]\w*")  # what a text may mean by a name: no attributes
SPACED = str.maketrans("()[]{},:=!<>+-*/%|&^~@\n", " " * 23)  # `words` reads each word once
LAYOUT = (
    "layout"  # `Guard.row` of what a memo sees by itself: class, dtype, sizes, strides, bits...
)
LAYOUT_GUARDS = ("TENSOR", "DTYPE", "DEVICE", "SHAPE", "STRIDE", "VIEW_BITS")
MOST_DIMENSIONS = 16  # as in guard_memo.c
LAYOUT_FUNCTIONS = (
    *[
        f"aoti_torch_get_{name}"
        for name in ("layout", "dtype", "device_type", "device_index", "dim", "sizes", "strides")
    ],
    # at::native::is_neg(const Tensor &) and its neighbours: the C functions above have none of them
    *[
        f"_ZN2at6native{len(name)}{name}ERKNS_6TensorE"
        for name in ("is_neg", "is_conj", "_is_zerotensor")
    ],
    "_ZNK3c1010TensorImpl13requires_gradEv",
)


@dataclass(slots=True)
class Guard:
    """One assumption: `check` is Python with `{0}` for the guarded value (`{1}`... where `source`
    is a tuple); `pins` are the objects it names."""

    kind: str
    source: Any  # a Source, a tuple of them, or None
    check: str
    pins: dict = field(default_factory=dict)
    line: str = ""
    row: str | None = None  # LAYOUT, where that is all the check looks at

    @property
    def code(self):
        sources = (
            self.source
            if isinstance(self.source, tuple)
            else (self.source,)
            if self.source is not None
            else ("",)
        )
        return self.check.format(*map(name_of, sources))

    def __str__(self):
        return f"{self.kind:12} {self.code}" + (f"    # {self.line}" if self.line else "")


@functools.cache
def layouts_are_watched() -> bool:
    """Has libtorch the functions by which the memos read a tensor's layout?  Without them the
    guards run in each call."""
    library = ctypes.CDLL(torch._C.__file__)  # finds what it depends on, too
    found = [getattr(library, name, None) for name in LAYOUT_FUNCTIONS]
    if None in found:
        return False
    probe = torch.empty(2, 3).t().requires_grad_()
    addresses = [ctypes.cast(function, ctypes.c_void_p).value for function in found]
    return use_torch(probe, probe._cdata, tuple(addresses))


def tensor_of(node) -> torch.Tensor:
    """The tensor whose identity is guarded at this source."""
    (tensor,) = node.guards["ID"].pins.values()
    return tensor


def can_be_watched(tensor: torch.Tensor) -> bool:
    """Is it a tensor whose layout the memo can read, of numbers at strides?"""
    if tensor.layout is not torch.strided or tensor.dim() > MOST_DIMENSIONS:
        return False
    return layouts_are_watched()


def has_long_text(value):
    """Is it pinned, and not written into the guard?  Python refuses to write an int of over 4300
    digits."""
    if type(value) is int:
        return value.bit_length() > 10_000
    return type(value) in (str, bytes) and len(value) > 10_000


def literal(value):
    """A constant as it stands in a guard's check, where braces are places."""
    return repr(value).replace("{", "{{").replace("}", "}}")


def constant_check(value):
    """(check, object to pin or None): equal *and* of the same type, with -0.0 and nan told
    apart."""
    kind = type(value)
    if (
        value is None
        or value is True
        or value is False
        or value is Ellipsis
        or value is NotImplemented
    ):
        return f"{{0}} is {value!r}", None
    if has_long_text(value):
        return "type({0}) is type({pin}) and {0} == {pin}", value
    if kind is int or kind is str or kind is bytes:
        return f"type({{0}}) is {kind.__name__} and {{0}} == " + repr(value).replace(
            "{", "{{"
        ).replace("}", "}}"), None
    if kind is float:
        if value != value:
            return "type({0}) is float and {0} != {0}", None
        if value == 0.0:
            return (
                f"type({{0}}) is float and {{0}} == 0.0 and copysign(1.0, {{0}}) == {math.copysign(1.0, value)}",
                None,
            )
        if math.isinf(value):
            return f"type({{0}}) is float and {{0}} == float('{value}')", None
        return f"type({{0}}) is float and {{0}} == {value!r}", None
    if kind is complex:
        return f"type({{0}}) is complex and repr({{0}}) == {repr(value)!r}", None
    if hasattr(value, "tobytes"):  # a number of NumPy's: -0.0 and nan again
        return "type({0}) is type({pin}) and {0}.tobytes() == " + repr(value.tobytes()).replace(
            "{", "{{"
        ).replace("}", "}}"), value
    return "type({0}) is type({pin}) and {0} == {pin}", value


class GuardFunction:
    """The compiled check of one cache entry."""

    def __init__(self, tree, parameters, state_guards, pair_guards):
        places = {name: f"\1{n}\1" for n, name in enumerate(parameters)}
        self.namespace = {
            "copysign": math.copysign,
            "get_referents": gc.get_referents,
            "answer_failure": answer_failure,
            "math": math,
            **{pin.key: pin.value for pin in tree.pins.values()},
        }
        self.guards, self.lines, self.count, self.indent, self.lasting = [], [], 0, " " * 8, None
        self.names = {
            **{pin: pin.key for pin in tree.pins.values()},
            **{node: places[name] for name, node in tree.locals.items()},
        }
        self._lasting, self._read, self._hooks = {}, [], []
        self._watched = {}  # id -> tensor whose layout the memo watches
        self._divided = {}  # node -> {does it last: its guards}
        self.layouts_hidden = False  # does the memo look at layouts instead of the text?
        self.layout_count = 0  # arguments that have a memo of their own
        for node in tree.locals.values():
            self._argument(node, self.names[node])
        self._conditions(state_guards, "")
        for node in tree.frees.values():
            if node.guards or node.children or any(node in guard.source for guard in pair_guards):
                self._assign(node, None)
                self._conditions(node.guards.values(), self.names[node])
        for pin in tree.pins.values():
            pin.guards.pop("TYPE", None)  # of an object that the entry itself holds
        roots = [*tree.locals.values(), *tree.frees.values(), *tree.pins.values()]
        for lasting in (True, False):
            self._section(
                roots,
                [guard for guard in pair_guards if self._lasts_pair(guard) is lasting],
                lasting,
            )
        if len(self.guards) > config.guard_limit:
            raise SkipFrame(f"it would take {len(self.guards):,} guards")
        self.guards = [*state_guards, *(guard for guard in self.guards if guard.source is not None)]
        text = "\n".join(
            [
                f"def check({', '.join(['this_function', *places.values()])}):",
                "    try:",
                *(self.lines or ["        pass"]),
                "        return True",
                "    except Exception as error:",
                "        return answer_failure(error)",
                "",
            ]
        )
        self.parameters = name_parameters(parameters, text)
        self.source = PARAMETER.sub(lambda found: self.parameters[int(found[1])], text)
        self.called = dict(zip(parameters, self.parameters))
        self.check = types.FunctionType(compile_first.__code__, self.namespace, "check")
        self.namespace["check"] = self.check
        self.namespace["compile_check"] = self._compile

    def _compile(self):
        """Give `check` the code of its text: many an entry is made and never asked."""
        made = {}
        exec(compile(self.source, "<minidynamo guard>", "exec"), made)
        self.check.__code__ = made["check"].__code__

    # ---- what lasts while nothing that was read on the way has been written
    def _lasts(self, node):
        """Does reading `node` give the same object again?"""
        found = self._lasting.get(node)
        if found is None:
            base = node.base
            if base is None:
                found = node.kind == "pinned" or "MODULE" in node.guards
            else:
                found = self._lasts(base) and (
                    node.kind in ("dict", "raw_dict", "type")
                    or node.kind == "class_item"
                    and isinstance(base.value, type)
                    or node.kind in ("item", "dict_item")
                    and (self._is(base, dict) or self._is(base, collections.OrderedDict))
                    or node.kind == "dict_item"
                    and any(issubclass(kind, dict) for kind in self._kinds(base))
                    or node.kind in ("item", "tuple_item")
                    and self._is(base, tuple)
                    or node.kind == "closure"
                    and self._is(base, types.FunctionType)
                    or node.kind == "cell"
                    and base.kind == "closure"
                    and "ID" in node.guards  # another object may come to lie where this one lay
                    or node.kind == "attr"
                    and node.key in FUNCTION_FIELDS
                    and type(base.value) is types.FunctionType
                )
            self._lasting[node] = found
        return found

    def _kinds(self, node):
        """The class of the value of `node`, where it is known: in a list of at most one."""
        if node.kind == "pinned":
            return [type(node.value)]
        guard = node.guards.get("TYPE")
        return [] if guard is None else [pin for pin in guard.pins.values()]

    def _is(self, node, kind):
        """Is the value of `node` a dict (tuple, function) for sure?

        What only may be an OrderedDict counts as a dict: the memo itself looks (`remember`)."""
        kinds = self._kinds(node)
        if kind is dict and not kinds:
            return node.kind in ("dict", "raw_dict") or node.key in (
                *MODULE_TABLES,
                "__kwdefaults__",
            )
        return any(found is kind for found in kinds)

    def _remember(self, node, name):
        """The memo is to look at the value of `node`, which is called `name`."""
        self._read.append(name)
        if any(issubclass(kind, collections.OrderedDict) for kind in self._kinds(node)):
            self._hooks.append(name)  # none of the guards in this section asks for its order

    def _lasts_guard(self, node, guard):
        if not self._lasts(node):
            return False
        if guard.kind in ("KEYS", "PRESENT", "ABSENT", "BUILTIN"):
            return self._is(node, dict) or isinstance(node.value, type)
        if guard.kind == "DEFAULTS":  # others may come to lie where these lay
            return node.kind == "pinned"
        return (
            guard.kind in LASTING
            or guard.kind == "EQUALS"
            and "TYPE" not in node.guards
            or guard.kind == "LENGTH"
            and self._is(node, tuple)
            or guard.row is LAYOUT
            and "ID" in node.guards
            and can_be_watched(tensor_of(node))
        )

    def _lasts_pair(self, guard):
        return guard.kind in LASTING and all(map(self._lasts, guard.source))

    # ---- printing
    def _argument(self, node, name):
        """The guards of an argument, or of a local behind a graph break."""
        layout, others = [], []
        for guard in node.guards.values():
            if guard.row is LAYOUT and layouts_are_watched():
                layout.append(guard)
            else:
                others.append(guard)
        if layout:
            self._layout(layout, name)
        self._conditions(others, name)

    def _layout(self, guards, name):
        """What a memo of its own sees of an argument."""
        memo = f"as_before_{self.layout_count}"
        self.layout_count += 1
        self.namespace[memo] = LayoutMemo()
        self.lines.append(f"{self.indent}if not {memo}({name}):")
        self.indent += "    "
        self._conditions(guards, name)
        self.lines.append(f"{self.indent}{memo}.remember({name})")
        self.indent = self.indent[4:]

    def _section(self, roots, pair_guards, lasting):
        """All that is below the roots and lasts, behind the memo; then the rest."""
        self.lasting, self._needs, self._pair_nodes, start = (
            lasting,
            {},
            {node for guard in pair_guards for node in guard.source},
            len(self.lines),
        )
        self.indent += "    " * lasting
        for root in filter(self._needed, roots):
            self._remember(root, self.names[root])
            if root.kind == "pinned":
                self._conditions(self._wanted(root), self.names[root])
            self._below(root, self.names[root])
        for guard in pair_guards:  # identity between sources, last: both sides have names by now
            self._conditions([guard], *[self.names[node] for node in guard.source])
        if lasting:
            self.indent = self.indent[4:]
            if len(self.lines) > start:
                self.namespace["memo"] = Memo([*self._watched.values()])
                if self.layouts_hidden:
                    self.lines.append(f"{self.indent}    if not memo.layouts_hold(): return False")
                self.lines.insert(start, f"{self.indent}if not memo():")
                self.lines.append(
                    f"{self.indent}    memo.remember([{', '.join(self._read)}], [{', '.join(self._hooks)}])"
                )

    def _wanted(self, node):
        """The guards of `node` that belong to this section."""
        found = self._divided.get(node)
        if found is None:
            found = self._divided[node] = {True: [], False: []}
            for guard in node.guards.values():
                found[self._lasts_guard(node, guard)].append(guard)
        return found[self.lasting]

    def _needed(self, node):
        """Is there anything to look at in this section, at `node` or below?"""
        if not node.children and not node.guards:
            return node in self._pair_nodes
        found = self._needs.get(node)
        if found is None:
            below = [self._needed(child) for child in node.children.values()]
            found = self._needs[node] = (
                node in self._pair_nodes or any(below) or bool(self._wanted(node))
            )
        return found

    def _conditions(self, guards, *names):
        self._line([self._render(guard, *names) for guard in guards])

    def _line(self, conditions):
        if conditions:
            self.lines.append(f"{self.indent}if not ({' and '.join(conditions)}): return False")

    def _render(self, guard, *names):
        self.guards.append(guard)
        self.namespace.update(guard.pins)
        if self.lasting and guard.row is LAYOUT:
            self._watch(guard.source)
        return guard.check.format(*names)

    def _assign(self, node, parent):
        self.count += 1
        name = self.names[node] = node.label or f"v{self.count}"
        self.lines.append(f"{self.indent}{name} = {node.expr(parent)}")
        return name

    def _below(self, node, name):
        leaves, inner = [], []  # children with nothing below them need no name for long
        for child in filter(self._needed, node.children.values()):
            if (
                child.children
                or child in self._pair_nodes
                or self.lasting
                and any(guard.kind not in FIXED and not guard.row for guard in self._wanted(child))
            ):
                inner.append(child)
                continue
            guards, hidden = self._hide_layout(child)
            value = child.expr(name)
            if "NO_HOOKS" in child.guards:
                self._hooks.append(value)
            if sum(guard.check.count("{0}") for guard in guards) > 1:
                value = f"(leaf := {value})"
            for guard in guards:
                leaves.append(
                    self._render(guard, "\0").replace("\0", value, 1).replace("\0", "leaf")
                )
                value = "leaf"
            self.guards += hidden
        for start in range(0, len(leaves), 8):
            self._line(leaves[start : start + 8])
        for child in inner:
            below = self._assign(child, name)
            self._remember(child, below)
            self._conditions(self._wanted(child), below)
            self._below(child, below)

    def _hide_layout(self, node):
        """(guards of this section for the text, those that `memo.layouts_hold()` stands for)."""
        wanted = self._wanted(node)
        hidden = [guard for guard in wanted if guard.row is LAYOUT and guard.kind != "GRAD"]
        if not self.lasting or len(hidden) < len(LAYOUT_GUARDS):
            return wanted, []
        self._watch(node)
        self.layouts_hidden = True
        return [guard for guard in wanted if guard.kind not in LAYOUT_GUARDS], hidden

    def _watch(self, node):
        tensor = tensor_of(node)
        self._watched[id(tensor)] = tensor

    def first_failure(self, func, *values):
        """(guard, reason) of the first guard that is false for these parameters, or None."""
        scope = dict(self.namespace, this_function=func, **dict(zip(self.parameters, values)))
        for guard in self.guards:
            try:
                if isinstance(guard.source, tuple):
                    text = guard.check.format(*map(self._evaluable, guard.source))
                else:
                    text = guard.check.format(
                        self._evaluable(guard.source) if guard.source is not None else ""
                    )
                if not eval(text, scope):
                    return guard, f"{text} is false"
            except ours(Exception) as error:
                return guard, f"{type(error).__name__}: {error}"
        return None

    def _evaluable(self, node):
        if node.kind == "local":
            return self.called[node.key]
        return node.expr(self._evaluable(node.base) if node.base is not None else None)


def compile_first(*parameters):
    """What a guard function's `check` does in its first call, in the names of the guard function."""
    compile_check()  # noqa: F821
    return check(*parameters)  # noqa: F821


def answer_failure(error):
    """False: what the guards look at is not there.  A foreign exception leaves the user's call."""
    if is_foreign(error):
        raise error
    return False


def words(text: str) -> set[str]:
    """What `text` may mean by a name."""
    return {word for part in {*text.translate(SPACED).split()} for word in WORD.findall(part)}


KIND_WORDS = words(" ".join(KINDS.values()))


def name_parameters(parameters: list[str], text: str) -> list[str]:
    """What each parameter of the program is called in `text`: as it is there, where the text does
    not use that word itself."""
    taken = words(text) | KIND_WORDS
    names = []
    for parameter in parameters:
        name = identifier(parameter)
        while name in taken:
            name += "_"
        taken.add(name)
        names.append(name)
    return names
