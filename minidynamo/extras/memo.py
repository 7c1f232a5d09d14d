"""A faster text for guard functions: what cannot have changed since the last call is skipped.

What hangs below a module or a global by dictionaries alone (most of it) stands behind a memo
(`guard_memo.c`): `if not memo(*watched):` skips it while no dictionary on the way has been written
and no parameter has another dtype, shape or strides.  So do an argument's own checks:
`if not as_before_0(x):` skips what is said of a tensor's class, dtype, device, sizes, strides and
bits, and whether it requires gradients, while the argument is like that of the last call.  Where
sizes are symbols, it skips all of that but for sizes and strides.

In:   the tree of sources that every printer gets.   Out: its text, registered in `PRINTERS`.

    if not as_before_0(x):
        if not (type(x) is P_Tensor and x.dtype is P_float32 and ...): return False
        as_before_0.remember([], [], x)

Mirrors the dict tags of torch/csrc/dynamo/guards.cpp.
"""

import collections
import ctypes
import functools
import types
from collections.abc import Callable
from typing import Any

import torch

from ._guard_memo import Memo, use_torch
from ..guards import FUNCTION_FIELDS, MODULE_TABLES, PRINTERS, Guard
from ..sources import Source, SourceTree
from .guard_tree import TreePrinter
from .view_bits import KNOWS_NAMES

# Kinds of guards of identity and of constants.  (NO_HOOKS: the memo looks whether they are empty.)
FIXED = {"ID", "SAME", "EQ", "EQUALS", "MODULE", "NO_HOOKS"}
# Those that stay true while what they look at is the same object.
LASTING = FIXED - {"EQUALS"} | {"TYPE", "CODE", "MRO", "ALIAS", "DISTINCT"}
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
        for name in ("is_neg", "is_conj", "_is_zerotensor", "is_inference")
    ],
    "_ZNK3c1010TensorImpl13requires_gradEv",
    "_ZN2at4impl9has_namesEPKN3c1010TensorImplE",  # the last: of names of dimensions, before 2.13
)


@functools.cache
def layouts_are_watched() -> bool:
    """Has libtorch the functions by which the memos read a tensor's layout?  Without them the
    guards run in each call."""
    library = ctypes.CDLL(torch._C.__file__)  # finds what it depends on, too
    found: list[Any] = [getattr(library, name, None) for name in LAYOUT_FUNCTIONS]
    if None in found[: len(found) if KNOWS_NAMES else -1]:
        return False
    probe = torch.empty(2, 3).t().requires_grad_()
    addresses = [ctypes.cast(function, ctypes.c_void_p).value or 0 for function in found]
    return use_torch(probe, probe._cdata, tuple(addresses))


def tensor_of(node: Source) -> torch.Tensor:
    """The tensor whose identity is guarded at this source."""
    (tensor,) = node.guards["ID"].pins.values()
    return tensor


def can_be_watched(tensor: torch.Tensor) -> bool:
    """Is it a tensor whose layout the memo can read, of numbers at strides?"""
    if tensor.layout is not torch.strided or tensor.dim() > MOST_DIMENSIONS:
        return False
    return layouts_are_watched()


def is_of_layout(guard: Guard) -> bool:
    """Does it look at nothing but the class, dtype, sizes and the like of a tensor, of which all
    must be what they were?  Where a size may be another one, no STRIDE is guarded beside it."""
    about = guard.kind in LAYOUT_GUARDS or guard.kind == "GRAD"
    return about and isinstance(guard.source, Source) and "STRIDE" in guard.source.guards


def is_of_layout_but_for_sizes(guard: Guard) -> bool:
    """The same where sizes are symbols: then only the number of dimensions is guarded beside it."""
    if not isinstance(guard.source, Source) or {"STRIDE", "LAYOUT"} & guard.source.guards.keys():
        return False
    if guard.kind == "SHAPE":
        return guard.check.startswith("{0}.dim() ==")
    return guard.kind in LAYOUT_GUARDS or guard.kind == "GRAD"


VALUE = "\0"  # in the conditions of one source: where its value is read


class MemoPrinter(TreePrinter):
    """Two sections: what lasts while nothing that was read on the way has been written, behind the
    memo; then the rest."""

    def __init__(self, tree: SourceTree, called: dict[str, str]) -> None:
        super().__init__(tree, called)
        self.lasting: bool | None = None  # which section is printed; None: neither, yet
        self.known_lasting: dict[Source, bool] = {}
        self.read: list[str] = []  # names of what the memo looks at
        self.hooks: list[str] = []  # of dictionaries of which it only looks whether they are empty
        self.watched: dict[int, torch.Tensor] = {}  # id -> tensor whose layout the memo watches
        self.divided: dict[Source, dict[bool, list[Guard]]] = {}  # {does it last: its guards}
        self.layouts_hidden = False  # does the memo look at layouts instead of the text?
        self.layout_count = 0  # arguments that have a memo of their own

    # ---- what lasts while nothing that was read on the way has been written
    def lasts(self, node: Source) -> bool:
        """Does reading `node` give the same object again?"""
        found = self.known_lasting.get(node)
        if found is None:
            if node.base is None:
                found = node.kind == "pinned" or "MODULE" in node.guards
            else:
                rule = READS.get(node.kind)
                found = rule is not None and self.lasts(node.base) and rule(self, node, node.base)
            self.known_lasting[node] = found
        return found

    def kinds(self, node: Source) -> list[type]:
        """The class of the value of `node`, where it is known: in a list of at most one."""
        if node.kind == "pinned":
            return [type(node.value)]
        guard = node.guards.get("TYPE")
        return [] if guard is None else list(guard.pins.values())

    def is_a(self, node: Source, *wanted: type) -> bool:
        """Is the value of `node` a dict (tuple, function) for sure?

        What only may be an OrderedDict counts as a dict: the memo itself looks (`remember`)."""
        kinds = self.kinds(node)
        if dict in wanted and not kinds:
            own = node.kind in ("dict", "raw_dict")
            return own or node.key in (*MODULE_TABLES, "__kwdefaults__")
        return any(found in wanted for found in kinds)

    def guard_lasts(self, node: Source, guard: Guard) -> bool:
        if not self.lasts(node):
            return False
        rule = HOLDS.get(guard.kind)
        if rule is not None:
            return rule(self, node)
        if guard.kind in LASTING:
            return True
        return is_of_layout(guard) and "ID" in node.guards and can_be_watched(tensor_of(node))

    def pair_lasts(self, guard: Guard) -> bool:
        return guard.kind in LASTING and all(map(self.lasts, guard.source))

    # ---- printing
    def argument(self, node: Source, name: str) -> None:
        any_size = "STRIDE" not in node.guards
        is_seen = is_of_layout_but_for_sizes if any_size else is_of_layout
        layout, others = [], []
        for guard in node.guards.values():
            if is_seen(guard) and layouts_are_watched():
                layout.append(guard)
            else:
                others.append(guard)
        if layout:
            self.layout(layout, name, any_size)
        self.conditions(others, name)

    def layout(self, guards: list[Guard], name: str, any_size: bool) -> None:
        """What a memo of its own sees of an argument."""
        memo = f"as_before_{self.layout_count}"
        self.layout_count += 1
        self.namespace[memo] = Memo(any_size)
        self.lines.append(f"{self.indent}if not {memo}({name}):")
        self.indent += "    "
        self.conditions(guards, name)
        self.lines.append(f"{self.indent}{memo}.remember([], [], {name})")
        self.indent = self.indent[4:]

    def sections(self, roots: list[Source], pair_guards: list[Guard]) -> None:
        lasting = [guard for guard in pair_guards if self.pair_lasts(guard)]
        self.lasting, start = True, len(self.lines)
        self.indent += "    "
        self.section(roots, lasting)
        if len(self.lines) > start:
            self.remember(start)
        self.indent = self.indent[4:]
        self.lasting = False
        self.section(roots, [guard for guard in pair_guards if not self.pair_lasts(guard)])

    def remember(self, start: int) -> None:
        """The lines from `start` on are skipped while the memo holds."""
        memo, watched = Memo(), tuple(self.watched.values())
        memo.watch(*watched)
        self.namespace.update(memo=memo, watched=watched)
        tensors = "*watched" if watched else ""
        self.lines.insert(start, f"{self.indent[4:]}if not memo({tensors}):")
        if self.layouts_hidden:
            self.lines.append(f"{self.indent}if not memo.lie({tensors}): return False")
        read, hooks = ", ".join(self.read), ", ".join(self.hooks)
        self.lines.append(f"{self.indent}memo.remember([{read}], [{hooks}], {tensors})")

    def wanted(self, node: Source) -> list[Guard]:
        found = self.divided.get(node)
        if found is None:
            found = self.divided[node] = {True: [], False: []}
            for guard in node.guards.values():
                found[self.guard_lasts(node, guard)].append(guard)
        return found[bool(self.lasting)]

    def is_read_on(self, node: Source) -> bool:
        if super().is_read_on(node):
            return True
        if not self.lasting:
            return False
        return any(
            guard.kind not in FIXED and not is_of_layout(guard) for guard in self.wanted(node)
        )

    def named(self, node: Source, name: str) -> None:
        self.read.append(name)
        if any(issubclass(kind, collections.OrderedDict) for kind in self.kinds(node)):
            self.hooks.append(name)  # none of the guards in this section asks for its order

    def leaf_conditions(self, node: Source, value: str) -> list[str]:
        """Conditions on `value`, an expression like `v1.scale`.  Where several read it, the first
        reads the expression, and the others what it gave:
        `type((leaf := v1.scale)) is float and leaf == 0.5`."""
        guards, hidden = self.leaf(node, value)
        if sum(guard.check.count("{0}") for guard in guards) > 1:
            value = f"(leaf := {value})"
        conditions = []
        for guard in guards:
            text = self.render(guard, VALUE)
            conditions.append(text.replace(VALUE, value, 1).replace(VALUE, "leaf"))
            value = "leaf"
        self.guards += hidden
        return conditions

    def leaf(self, node: Source, value: str) -> tuple[list[Guard], list[Guard]]:
        """The guards of a node without a name: those that are printed, and those that the memo
        looks at in their place."""
        if "NO_HOOKS" in node.guards:
            self.hooks.append(value)
        wanted = self.wanted(node)
        hidden = [guard for guard in wanted if guard.kind != "GRAD" and is_of_layout(guard)]
        if not self.lasting or len(hidden) < len(LAYOUT_GUARDS):
            return wanted, []
        self.watch(node)
        self.layouts_hidden = True  # `memo.lie(...)` stands for them
        return [guard for guard in wanted if guard.kind not in LAYOUT_GUARDS], hidden

    def render(self, guard: Guard, *names: str) -> str:
        if self.lasting and is_of_layout(guard):
            self.watch(guard.source)
        return super().render(guard, *names)

    def watch(self, node: Source) -> None:
        tensor = tensor_of(node)
        self.watched[id(tensor)] = tensor


PRINTERS.append(MemoPrinter)

# kind of a source -> is it the same object again, where its base is?
READS: dict[str, Callable[[MemoPrinter, Source, Source], bool]] = {
    "dict": lambda printer, node, base: True,
    "raw_dict": lambda printer, node, base: True,
    "class_item": lambda printer, node, base: isinstance(base.value, type),
    "item": lambda printer, node, base: printer.is_a(base, dict, collections.OrderedDict, tuple),
    "dict_item": lambda printer, node, base: (
        printer.is_a(base, dict) or any(issubclass(kind, dict) for kind in printer.kinds(base))
    ),
    "tuple_item": lambda printer, node, base: printer.is_a(base, tuple),
    "closure": lambda printer, node, base: printer.is_a(base, types.FunctionType),
    # another object may come to lie where this one lay
    "cell": lambda printer, node, base: base.kind == "closure" and "ID" in node.guards,
    "attr": lambda printer, node, base: (
        node.key in FUNCTION_FIELDS and type(base.value) is types.FunctionType
    ),
}


def has_keys(printer: MemoPrinter, node: Source) -> bool:
    return printer.is_a(node, dict) or isinstance(node.value, type)


# kind of a guard -> does it hold again, where its source is the same object?
HOLDS: dict[str, Callable[[MemoPrinter, Source], bool]] = {
    **dict.fromkeys(("KEYS", "PRESENT", "ABSENT", "BUILTIN"), has_keys),
    # others may come to lie where these lay
    "DEFAULTS": lambda printer, node: node.kind == "pinned",
    "EQUALS": lambda printer, node: "TYPE" not in node.guards,
    "LENGTH": lambda printer, node: printer.is_a(node, tuple),
}
