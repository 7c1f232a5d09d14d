"""From a real value and its source to a variable, with guards on what is assumed of the value.

In:   `wrap(value, source)`.   Out: a variable; guards on `source`.

    >>> output.wrap(self.config, source)     # ObjectVar, guarded by its type; attributes come later
    >>> wrap_tensor(builder, x, tree.local("x")).fake.shape

A tensor becomes a node of the graph (a placeholder, or a parameter that the graph holds) with a
fake tensor, and guards on dtype, device, sizes, strides and gradient; parameters and buffers are
guarded by identity, too.  A constant becomes its value, guarded, or a symbol for a number that has
changed.  Tensors without sizes and strides that a graph could be made of are refused by name
(docs/how_it_is_tested.md has the whole table).

`wrap_pinned(value)` is for objects that nobody is expected to replace (torch's functions, classes,
code objects).  A value has the rule of its exact type (the tables of `registry.py`), else that of
the first class in the lists below whose instance it is.  What no rule takes may be passed on.
Mirrors torch/_dynamo/variables/builder.py (wrap_tensor, wrap_literal) and guards.py (TENSOR_MATCH).
"""

from __future__ import annotations

import collections
import enum
import functools
import random
import threading
import types
import weakref
from typing import Any, NoReturn, cast

import torch

from miniinductor.errors import ours

from ..errors import Break
from ..guards.checks import KNOWS_NAMES, constant_check, has_long_text, literal
from ..guards.guards import FUNCTION_FIELDS, Guard, is_state
from ..guards.sources import SourceTree
from ..shapes.dynamic import SizePolicy, guard_strides, guard_tensor
from .base import (
    Added,
    Lazy,
    OpaqueVar,
    OutputGraph,
    Source,
    Variable,
    can_change,
    current_line,
    trusted,
)
from .classes import ClassVar, PyModuleVar
from .constant import ARRAYS, HASHED_BY_IDENTITY, LITERALS, ConstantVar, is_constant_value
from .dicts import DictVar, TupleVar, named
from .floats import wrap_float
from .functions import CallableVar, CellVar
from .nn_modules import module_name, wrap_module
from .objects import ExceptionVar
from .registry import BY_VALUE, PINNED, SHARED, Rule, Table, by_identity
from .symbolic import symbolic_fake_of, symbolic_int
from .tensor import TensorVar
from . import containers  # noqa: F401
from .containers import (
    C_CALLABLES,
    CONTENTS,
    TYPING,
    TypingVar,
    is_fixed_callable,
    is_plain_named_tuple,
    wrap_instance,
    wrap_object,
    wrap_optimizer,
)

BY_IDENTITY = (enum.Enum, torch.dtype, torch.layout, torch.memory_format)
COMPRESSED = (torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc)


def wrap_constant(builder: Any, value: Any, source: Source) -> Variable:
    """A constant at `source`; an int or float is a symbol if the policy of sizes says so."""
    if type(value) is int and builder.policy.of_int(value, source):
        builder.guard(source, "TYPE", "type({0}) is int")
        return symbolic_int(builder, value, source)
    number = wrap_float(builder, value, source) if type(value) is float else None
    if number is not None:
        return number
    check, pin = constant_check(value)
    if isinstance(pin, BY_IDENTITY):
        check = "{0} is {pin}"
    builder.guard(source, "EQUALS", check, pin)
    # another NaN may lie there later: containers find it as the object that it is
    return ConstantVar(value, source=source if value != value else None)


def wrap_tensor(builder: OutputGraph, value: Any, source: Source) -> TensorVar:
    """A placeholder of the graph, or a parameter that the graph holds."""
    refused = kind_without_graph(value)
    if refused is not None:
        raise Break("tensor", f"{refused} is not traced", "give the compiled function others")
    wrap = wrap_parameter if builder.is_held(source) else wrap_input
    variable = wrap(builder, value, source)
    builder.by_fake[id(variable.fake)] = variable
    return variable


def kind_without_graph(value: Any) -> str | None:
    """The name of a kind that is not traced, which fake tensors do not know, or only half; or None.
    (Sparse COO tensors and those of oneDNN are.)  PyTorch: the same for most of them."""
    if type(value) not in (torch.Tensor, torch.nn.Parameter):
        return f"the tensor subclass {type(value).__name__}"
    if value.is_quantized:
        return "a quantised tensor"
    if value.layout in COMPRESSED:
        return f"a sparse tensor ({value.layout})"
    if value.is_nested:
        return "a nested tensor"
    if KNOWS_NAMES and value.has_names():
        return "a tensor with named dimensions"
    try:
        value.is_leaf
    except ours(RuntimeError):  # made without gradients; then its memory was written with them
        return "a view that was written in another mode, of which autograd tells nothing,"
    return None


def wrap_parameter(builder: OutputGraph, value: torch.Tensor, source: Source) -> TensorVar:
    """A parameter or buffer of a module: held by the graph, guarded by its identity."""
    builder.guard_fixed(source, value)
    guard_tensor(builder, value, source)  # `p.data = ...`, `p.t_()` keep the identity
    name = builder.unique_name(module_name(source))
    fake = builder.fake_of(value)
    node = builder.add_attribute(name, fake)
    builder.attributes[name] = value
    return TensorVar(node, fake, type(value), value, source=source)


def wrap_input(builder: OutputGraph, value: torch.Tensor, source: Source) -> TensorVar:
    """A placeholder; some of its sizes and strides are symbols, if the policy says so."""
    dims = builder.policy.of_tensor(value, source)
    guard_tensor(builder, value, source, dims)
    if dims is None:
        fake = builder.fake_of(value)
    else:
        fake = symbolic_fake_of(builder, value, source, dims)
    node = builder.add_input(builder.unique_name(source.name()), fake)
    variable = TensorVar(node, fake, type(value), value, source=source)
    builder.inputs.append(variable)
    if dims is not None:
        builder.input_layouts[id(variable)] = fake.shape, fake.stride()
        guard_strides(builder, fake, source)
    return variable


GLOBAL_HOOKS = [
    f"_global_{kind}_hooks" for kind in ("forward", "forward_pre", "backward", "backward_pre")
]
WRITTEN = (str, int, bool, type(None))  # classes of what is written into a guard
SELF_GUARDED = (torch.Tensor, torch.nn.Module)  # their rules guard the type, among other things


class Builder:
    """The half of `OutputGraph` that knows values, and what is assumed of them."""

    policy: SizePolicy

    def __init__(self) -> None:
        self.tree = SourceTree()
        # guards on no single source: two that are (not) one object, sizes, strides, an empty cell
        self.pair_guards: list[Guard] = []
        self.memo: dict[int, tuple[Variable, Any]] = {}  # id of an object at a source -> it, kept
        self.pinned_memo: dict[int, tuple[Variable, Any]] = {}
        self.by_fake: dict[int, Any] = {}  # id of a fake -> its variable
        # variables of objects from outside: writes to them are repeated
        self.sourced: list[Variable] = []
        self.layouts: dict[bytes, bytes] = {}  # each once
        # names that are not there -> the line that asked
        self.absent: dict[Source, dict[str, str]] = {}
        self.asked: dict[int, Source] = {}  # id of an object that is a key by identity -> where
        self.generators: list[Any] = []  # that this frame has made

    # ---- guards
    def guard(self, source: Source, kind: Any, check: str, value: Any = None) -> None:
        """Hang a guard on `source`, once for each `kind`: a name, or (name, what tells it from
        others of that name).  `{pin}` in the check stands for `value`."""
        if kind in source.guards:
            return
        pins: dict[str, Any] = {}
        if "{pin}" in check:
            if type(value) in WRITTEN and not has_long_text(value):
                text = literal(value)
            else:
                text = self.tree.pinned(value).key
                pins = {text: value}
            check = check.replace("{pin}", text)
        name = kind if isinstance(kind, str) else kind[0]
        source.guards[kind] = Guard(name, source, check, pins, current_line())

    def guard_absent(self, source: Source, name: str) -> None:
        """The dictionary at `source` has no `name`, and must have none later."""
        self.absent.setdefault(source, {}).setdefault(name, current_line())

    def guard_absences(self) -> None:
        """One guard of all names that a dictionary must not have: modules are asked for many."""
        for source, names in self.absent.items():
            if "KEYS" not in source.guards:
                texts = "".join([f"{literal(name)}, " for name in sorted(names)])
                check = f"{{0}}.keys().isdisjoint(({texts}))"
                line = next(iter(names.values()))
                source.guards["ABSENT"] = Guard("ABSENT", source, check, {}, line)

    def guard_pair(self, check: str, *sources: Source) -> None:
        """A guard on several sources, `{0}`, `{1}`... in the check."""
        alike = check == "{0} is {1}"
        guard = Guard("ALIAS" if alike else "DISTINCT", sources, check, {}, current_line())
        self.pair_guards.append(guard)

    def guard_no_global_hooks(self) -> None:
        """No hooks are installed for all modules, and none must be later."""
        table = torch.nn.modules.module
        for name in GLOBAL_HOOKS:
            self.guard(self.tree.pinned(getattr(table, name), name), "NO_HOOKS", "not {0}")
            if getattr(table, name):
                raise Break("module", "global module hooks are installed")

    def guard_offsets(self, given: list[torch.Tensor]) -> None:
        """as_strided counts places from the start of a memory.  The inputs that lie in it must
        begin where they do now."""
        storages = {fake.untyped_storage()._cdata for fake in given}
        for variable in self.by_fake.values():
            real, fake = variable.value, variable.fake
            if real is None or real.layout is not torch.strided:  # None: made in the frame
                continue
            if fake.untyped_storage()._cdata in storages:
                check = f"{{0}}.storage_offset() == {real.storage_offset()}"
                self.guard(variable.source, "OFFSET", check)

    # ---- variables
    def wrap(self, value: Any, source: Source) -> Variable:
        """The variable of a real value that lies at `source`."""
        if is_constant_value(value):
            return wrap_constant(self, value, source)
        rule = rule_of(value, BY_VALUE, BY_VALUE_OF_BASES)
        if rule is not None:
            return rule(self, value, source)
        known = self.memo.get(id(value))
        if known is not None:
            self.guard_alias(known[0], value, source)
            return known[0]
        variable = self.wrap_shared(value, source)
        self.memo[id(value)] = (variable, value)
        return variable

    def wrap_shared(self, value: Any, source: Source) -> Variable:
        """The variable of an object that was not met before."""
        if source.kind != "pinned" and not issubclass(type(value), SELF_GUARDED):
            self.guard(source, "TYPE", "type({0}) is {pin}", type(value))
        rule: Rule = rule_of(value, SHARED, SHARED_OF_BASES) or wrap_object
        try:
            return rule(self, value, source)
        except Break as broken:
            self.guard(source, "TYPE", "type({0}) is {pin}", type(value))
            return OpaqueVar(value, broken, source=source)

    def guard_alias(self, variable: Variable, value: Any, source: Source) -> None:
        """An object that has a variable lies at this source, too: it must in later calls.

        f(x, x): the second source is guarded to be the first.  An object that is fixed (pinned),
        where an argument was it already: that argument is guarded to be this very object."""
        known = variable.source
        if known is None:
            return
        if source.kind != "pinned":
            if known is not source and source.alias_of is None:
                source.alias_of = known
                self.guard_pair("{0} is {1}", source, known)
        elif known.kind != "pinned":  # an object that is fixed, met before at a source
            self.guard(known, ("SAME", id(value)), "{0} is {pin}", value)

    def wrap_pinned(self, value: Any) -> Variable:
        """A variable for an object held by reference, without a guard on the object itself."""
        if is_constant_value(value):
            return ConstantVar(value)
        known = self.pinned_memo.get(id(value))
        if known is None:
            rule = rule_of(value, PINNED, PINNED_OF_BASES)
            if rule is not None:
                variable = rule(self, value)
            elif is_fixed_callable(value):
                variable = CallableVar(value)
            else:
                variable = self.wrap(value, self.tree.pinned(value))
            known = self.pinned_memo[id(value)] = (variable, value)
        return known[0]

    def wrap_class_attribute(self, owner: Any, found: Any, name: str) -> Variable:
        """What `lookup` found on a class, guarded by its value; `guard_classes` guards descriptors.

        A static or class method is the function in it.  What classes of torch and the standard
        library hold is taken as it is, but for constants in those that a program can write.
        """
        source = self.tree.pinned(owner).child("class_item", name)
        if isinstance(found, (staticmethod, classmethod)):
            self.guard_fixed(source, found)
            return self.wrap_pinned(found.__func__)
        if not trusted(getattr(owner, "__module__", None)):
            return self.wrap(found, source)
        if can_change(owner) and not hasattr(type(found), "__get__"):
            if is_constant_value(found):
                return self.wrap(found, source)
            self.guard_fixed(source, found)
        return self.wrap_pinned(found)

    def wrap_cell(self, cell: Any, source: Source, inside: Source | None = None) -> Any:
        """The variable of a closure cell, one however many functions share it.  inside: the source
        of what the cell contains."""
        known = self.memo.get(id(cell))
        if known is None:
            try:
                content = Lazy(cell.cell_contents, inside or source.child("cell"))
            except ours(ValueError):
                self.guard(source, "EMPTY", "{0} == {pin}", types.CellType())
                content = None
            known = self.memo[id(cell)] = (CellVar(content, cell, source=source), cell)
        elif {source.root().kind, known[0].source.root().kind} != {"pinned"}:  # functions are fixed
            self.guard_alias(known[0], cell, source)
        return known[0]

    def wrap_key(self, key: Any) -> Variable:
        """The variable of a key of a dictionary: a constant, or what hashes by its identity or by
        its parts."""
        if is_constant_value(key):
            return ConstantVar(key)
        if type(key) in (torch.Tensor, torch.nn.Parameter):
            known, variable = self.memo.get(id(key)), self.wrap_pinned(key)
            if known is not None and variable.source.kind != "pinned":
                self.guard_fixed(variable.source, key)
            return variable
        by_parts = isinstance(key, tuple) and all(
            type(part) in LITERALS or isinstance(part, type) for part in key
        )
        if by_parts or isinstance(key, HASHED_BY_IDENTITY):
            return cast(Any, self).wrap_result(key)
        raise Break("dictionary", f"a dictionary with a {type(key).__name__} as a key")

    def fields_of(self, value: Any, source: Source) -> Any:
        """The instance __dict__ as a DictVar whose entries are wrapped when read."""
        own = object.__getattribute__(value, "__dict__")
        known = self.memo.get(id(own))
        if type(own) is not dict:  # `self.__dict__ = self`
            raise Break("object", f"a {type(value).__name__} whose __dict__ is no plain dict")
        if known is None:
            items = named({name: Lazy(item, source.item(name)) for name, item in own.items()})
            fields = self.replayed(DictVar(items, source=source, real_keys=list(items)))
            known = self.memo[id(own)] = (fields, own)
        else:
            self.guard_alias(known[0], own, source)
        return known[0]

    def is_held(self, source: Source) -> bool:
        """Does the graph hold the tensor at `source`, as it does parameters and buffers?  Not where
        a call may bring another one.  PyTorch: all are placeholders
        (`inline_inbuilt_nn_modules`)."""
        policy = self.policy
        return (
            is_state(source) and not policy.fresh_modules and source.name() not in policy.replaced
        )

    def replayed(self, variable: Added) -> Added:
        """The variable of an object from outside: what is written to it is repeated behind the
        graph."""
        self.sourced.append(variable)
        return variable

    def guard_fixed(self, source: Source, value: Any) -> None:
        """At `source` lies this very object, or a constant like it."""
        if is_constant_value(value):
            self.guard(source, "EQUALS", *constant_check(value))
        else:
            self.guard(source, "ID", "{0} is {pin}", value)

    def guard_function(self, function: Any) -> None:
        """A function that the entry holds has the code and the defaults that it has now: all of
        them can be replaced."""
        source = self.tree.pinned(function)
        self.guard(source, "CODE", "{0}.__code__ is {pin}", function.__code__)
        for name in FUNCTION_FIELDS:
            value = getattr(function, name)
            self.guard(source, ("DEFAULTS", name), f"{{0}}.{name} is {{pin}}", value)

    def note_key(self, variable: Any) -> None:
        """An object from outside is looked up by its identity: `x in {y}`, `names[id(x)]`.  The
        same ones must be one object in later calls, too, and others not (`guard_keys_apart`)."""
        if variable.source is None:
            return
        real = variable.value if isinstance(variable, TensorVar) else variable.identity()
        first = self.asked.setdefault(id(real), variable.source)
        if first is not variable.source:
            self.guard_pair("{0} is {1}", first, variable.source)


# ---- which rule a value has, where its exact type has none: the first of these classes whose
# instance it is, says it
Rules = list[tuple[Any, Rule]]
UNTRACED: tuple[Any, ...] = (*weakref.ProxyTypes, threading.local, random.Random)
UNTRACED += (collections.deque, super, *ARRAYS)


def refuse(builder: Builder, value: Any, source: Source) -> NoReturn:
    """State of its own in C or in each thread, NumPy's arrays, rare containers of C."""
    raise Break("object", f"a {type(value).__name__} is not traced", "use it outside")


class WeakRefVar(OpaqueVar):
    """A call gives its object, which plain Python may have let go by then if the frame has written
    anything."""

    def call(self, tx: Any, args: Any, kwargs: Any) -> Variable:
        if args or kwargs or any(known.mutated for known in tx.output.sourced):
            raise self.broken
        return tx.output.wrap(self.value(), self.source.child("call"))


def wrap_weak_reference(builder: Builder, value: Any, source: Source) -> Variable:
    return WeakRefVar(value, Break("object", "a weak reference is not traced"), source=source)


BY_VALUE_OF_BASES: Rules = [(type, by_identity), (TYPING, by_identity)]
SHARED_OF_BASES: Rules = [
    (weakref.ref, wrap_weak_reference),
    (UNTRACED, refuse),
    (torch.Tensor, wrap_tensor),
    (torch.nn.Module, wrap_module),
    (BaseException, functools.partial(wrap_object, variable_class=ExceptionVar)),
    (torch.optim.Optimizer, wrap_optimizer),
    ((tuple, *CONTENTS), wrap_instance),
]
PINNED_OF_BASES: Rules = [
    (type, lambda builder, value: ClassVar(value)),
    (types.ModuleType, lambda builder, value: PyModuleVar(value)),
    (C_CALLABLES, lambda builder, value: CallableVar(value)),
    (TYPING, lambda builder, value: TypingVar(value)),
]


def rule_of(value: Any, table: Table, of_bases: Rules) -> Any:
    """The rule for this value, or None.  (`isinstance` would read `value.__class__`, and may run
    the program's code.)"""
    kind = type(value)
    rules = (rule for bases, rule in of_bases if issubclass(kind, bases))
    return table.get(kind) or next(rules, None)


def pinned_result(output: Builder, value: Any) -> Variable:
    """What else a folded call gave is held by the entry; not what each call makes anew."""
    kind = type(value)
    if issubclass(kind, tuple) and is_plain_named_tuple(kind):
        return TupleVar([cast(Any, output).wrap_result(item) for item in value], kind)
    if isinstance(value, torch.Tensor):
        raise Break("argument", "a folded call gave a tensor")
    if hasattr(kind, "__next__") or kind in (bytearray, set, *ARRAYS):
        raise Break("constant", f"a call gave a {kind.__name__}")
    return output.wrap_pinned(value)
