"""From a real value and its source to a variable, guarding what is assumed: the one place where
reality enters.

In:   `wrap(value, source)`.   Out: a variable; guards on `source`.

    >>> output.wrap(self.config, source)     # ObjectVar, guarded by its type; attributes are wrapped when they are read

`wrap_pinned(value)` is for objects that nobody is expected to replace (torch's functions, classes,
code objects). Mirrors torch/_dynamo/variables/builder.py.
"""

import collections
import enum
import functools
import gc
import types
import typing
import weakref

import torch

from miniinductor.sizes.printing import python_code

from .. import config
from ..exceptions import Break
from ..foreign import ours
from ..guards import FUNCTION_FIELDS, LAYOUT, Guard, constant_check
from .base import Lazy, OpaqueVar
from .constant import LITERALS, ConstantVar, is_constant_value
from .containers import DictVar, ListVar, ProxyVar, SetVar, TupleVar
from .functions import BoundMethodVar, CallableVar, CellVar, FunctionVar, MethodVar
from .modules import PyModuleVar
from .objects import (
    ClassVar,
    MemberVar,
    ModuleVar,
    ObjectVar,
    WeakRefVar,
    can_change,
    lookup,
    partial_of,
    trusted,
)
from .tensor import FloatVar, TensorVar

C_CALLABLES = (
    types.BuiltinFunctionType,
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
    types.MethodWrapperType,
    types.ClassMethodDescriptorType,
    types.GetSetDescriptorType,
    functools._lru_cache_wrapper,
    torch._ops.OpOverload,
    torch._ops.OpOverloadPacket,
    type(torch.ops.aten),
)
TENSOR_TYPES = (torch.Tensor, torch.nn.Parameter)


def view_bits_check(value: torch.Tensor) -> str:
    """The check that a tensor is negated or conjugated lazily, or stands for zeros without memory,
    as `value` is."""
    checks = [f"{{0}}.is_neg() is {value.is_neg()}"]
    if value.is_complex():
        checks.append(f"{{0}}.is_conj() is {value.is_conj()}")
    checks.append(f"{{0}}._is_zerotensor() is {value._is_zerotensor()}")
    return " and ".join(checks)


def tells_history(value: torch.Tensor) -> bool:
    """Does autograd answer questions about this tensor?  Not of a view that was made without
    gradients, after a write to its memory with gradients."""
    try:
        return value.is_leaf is not None
    except ours(RuntimeError):
        return False


class Builder:
    """The wrapping half of `OutputGraph`."""

    def wrap(self, value, source):
        kind = type(value)
        if kind in weakref.ProxyTypes:  # whatever one asks it is asked of its object
            self.guard(source, "TYPE", "type({0}) is {pin}", kind)
            return OpaqueVar(value, source, Break("object", "a weak proxy is not traced"))
        if kind in LITERALS or is_constant_value(value):
            return self._constant(value, source)
        if kind is type or isinstance(
            value, (type, typing._Final)
        ):  # classes, typing.List and the like
            self.guard(source, "ID", "{0} is {pin}", value)
            return self.wrap_pinned(value)
        if kind is types.FunctionType:
            return self._function(value, source)
        if kind is types.BuiltinMethodType and not isinstance(
            value.__self__, (types.ModuleType, type, type(None))
        ):
            self.guard(
                source,
                "METHOD",
                f"type({{0}}) is {{pin}} and {{0}}.__name__ == {value.__name__!r}",
                kind,
            )
            return MethodVar(self.wrap(value.__self__, source.attr("__self__")), value.__name__)
        if kind in C_CALLABLES or kind is types.ModuleType:
            self.guard(
                source,
                "ID" if kind is not types.BuiltinFunctionType else "EQ",
                "{0} == {pin}"
                if kind in (types.BuiltinFunctionType, types.MethodWrapperType)
                else "{0} is {pin}",
                value,
            )
            return self.wrap_pinned(value)
        known = self.memo.get(id(value))
        if known is not None:
            variable = known[0]
            if (
                variable.source is not source
                and variable.source is not None
                and source.kind != "pinned"
            ):
                if source.alias_of is None:
                    source.alias_of = variable.source
                    self.guard_pair("{0} is {1}", source, variable.source)
            elif (
                source.kind == "pinned"
                and variable.source is not None
                and variable.source.kind != "pinned"
            ):  # an object that is fixed, met before at a source
                self.guard(variable.source, ("SAME", id(value)), "{0} is {pin}", value)
            return variable
        try:
            variable = self._new(value, kind, source)
        except Break as broken:
            if broken.kind == "restart":
                raise
            self.guard(source, "TYPE", "type({0}) is {pin}", kind)
            variable = OpaqueVar(value, source, broken)
        self.memo[id(value)] = (variable, value)
        return variable

    def _constant(self, value, source, pinned=False):
        if self.floats and type(value) is float and not pinned and source.name() in self.floats:
            return self._changing_float(value, source)
        check, pin = constant_check(value)
        if pin is not None and (
            isinstance(pin, enum.Enum)
            or type(pin) in (torch.dtype, torch.layout, torch.memory_format)
        ):
            check = "{0} is {pin}"
        if type(value) is int and self.policy.of_int(value, source):
            self.guard(source, "TYPE", "type({0}) is int")
            return self.symbolic_int(value, source)
        self.guard(source, "EQUALS", check, pin)
        return ConstantVar(value)

    def _changing_float(self, value, source):
        """A placeholder for it; `runtime.floats_as_tensors` makes the tensor at each call."""
        if source not in self.float_inputs:
            self.guard(source, "FLOAT", "type({0}) is float")
            real = torch.tensor(value, dtype=torch.float64)
            node = self.add_input(
                "placeholder", self.unique_name(source.name()), self.fake_of(real)
            )
            tensor = TensorVar(node, node.meta["example_value"], float, source, real)
            self.inputs.append(tensor)
            self.float_inputs[source] = FloatVar(
                value, tensor, functools.partial(self._constant, value, source, pinned=True), source
            )
        return self.float_inputs[source]

    def _function(self, value, source):
        if source.root().kind == "pinned" or source.kind == "pinned":
            if source.kind != "pinned":
                self.guard(source, "ID", "{0} is {pin}", value)
            return self.wrap_pinned(value)
        known = self.memo.get(id(value))
        if known is None:
            self.guard(source, "TYPE", "type({0}) is {pin}", types.FunctionType)
            self.guard(source, "CODE", "{0}.__code__ is {pin}", value.__code__)
            self._guard_defaults(value, source)
            known = self.memo[id(value)] = (self.function_of(value, source), value)
        elif known[0].source is not source:
            self.guard_pair("{0} is {1}", source, known[0].source)
        return known[0]

    def _guard_defaults(self, function, source):
        """As many defaults, for the same names: their values are guarded where they are used."""
        names = list(function.__kwdefaults__ or ())
        check = f"len({{0}}.__defaults__ or ()) == {len(function.__defaults__ or ())}"
        self.guard(source, "DEFAULTS", f"{check} and [*({{0}}.__kwdefaults__ or ())] == {names!r}")

    def guard_function(self, function):
        """A function that the entry holds has the code and the defaults that it has now: all of
        them can be replaced.

        The memo looks at the three fields (guard_memo.c), so these guards cost nothing while nobody
        writes them."""
        source = self.tree.pinned(function)
        self.guard(source, "CODE", "{0}.__code__ is {pin}", function.__code__)
        for name in FUNCTION_FIELDS:
            value = getattr(function, name)
            self.guard(source, ("DEFAULTS", name), f"{{0}}.{name} is {{pin}}", value)

    def function_of(self, fn, source, guarded=True):
        """FunctionVar of a real function; defaults and cells are read through `source`."""
        defaults = [
            self._default(d, source.attr("__defaults__").item(n), guarded)
            for n, d in enumerate(fn.__defaults__ or ())
        ]
        kwdefaults = {
            k: Lazy(d, source.attr("__kwdefaults__").item(k))  # a dictionary: it can be written
            for k, d in (fn.__kwdefaults__ or {}).items()
        }
        closure = [
            self.cell_of(cell, source.child("closure", n))
            for n, cell in enumerate(fn.__closure__ or ())
        ]
        return FunctionVar(
            fn,
            fn.__code__,
            fn.__globals__,
            fn.__qualname__,
            tuple(defaults),
            kwdefaults,
            tuple(closure),
            source,
        )

    def _default(self, value, source, guarded):
        return (
            ConstantVar(value) if not guarded and is_constant_value(value) else Lazy(value, source)
        )

    def cell_of(self, cell, source):
        known = self.memo.get(id(cell))
        if known is None:
            try:
                content = Lazy(cell.cell_contents, source.child("cell"))
            except ours(ValueError):
                self.guard(source, "EMPTY", "{0} == {pin}", types.CellType())
                content = None
            known = self.memo[id(cell)] = (CellVar(content, source, cell), cell)
        return known[0]

    def _new(self, value, kind, source):
        if kind in TENSOR_TYPES:
            return self._tensor(value, kind, source)
        if isinstance(value, torch.Tensor):
            raise Break("tensor subclass", f"the tensor subclass {kind.__name__} is not traced")
        if isinstance(value, torch.nn.Module):
            return self._module(value, kind, source)
        build = CONTAINERS.get(kind)
        if source.kind != "pinned":
            self.guard(source, "TYPE", "type({0}) is {pin}", kind)
        if build is not None:
            if kind.__dictoffset__:
                self._no_attributes(value, kind, source)
            variable = build(self, value, source)
            self.sourced.append(variable)
            return variable
        if isinstance(value, weakref.ref) and kind.__call__ is weakref.ref.__call__:
            return WeakRefVar(value, source)
        if kind is types.MappingProxyType:
            behind = gc.get_referents(value)[0]
            if type(behind) not in (dict, collections.OrderedDict):
                raise Break("dictionary", f"a mappingproxy of a {type(behind).__name__}")
            return ProxyVar(self.wrap(behind, source.child("behind")), source=source)
        if kind is types.CellType:
            return self.cell_of(value, source)
        if isinstance(value, super):  # answers for its object
            raise Break("object", "a super() object that was made before this frame")
        if kind is types.MethodType:
            return BoundMethodVar(
                self.wrap(value.__func__, source.attr("__func__")),
                self.wrap(value.__self__, source.attr("__self__")),
                source,
            )
        if kind is functools.partial:
            self.guard(
                source,
                "LENGTH",
                f"len({{0}}.args) == {len(value.args)} and [*{{0}}.keywords] == {{pin}}",
                list(value.keywords),
            )
            return partial_of(self.frame, value, source)
        if (
            isinstance(value, tuple)
            and hasattr(kind, "_fields")
            and kind.__new__ is not tuple.__new__
        ):
            return TupleVar(
                [Lazy(item, source.child("tuple_item", n)) for n, item in enumerate(value)],
                kind,
                source,
            )
        return self._object(value, kind, source)

    def _no_attributes(self, value, kind, source):
        """A container that may have attributes of its own (an OrderedDict) has none."""
        if value.__dict__:
            raise Break("attribute", f"a {kind.__name__} with attributes")
        self.guard(source, "NO_ATTRIBUTES", "not {0}.__dict__")

    def _tensor(self, value, kind, source):
        if not tells_history(value):
            raise Break("tensor", "a view that was written in another mode: autograd refuses it")
        parent = source.base
        owned = (
            parent is not None
            and parent.key in ("_parameters", "_buffers")
            and parent.kind == "item"
        )
        if owned and source.name() not in self.input_sources:
            self.guard(source, "ID", "{0} is {pin}", value)
            if config.guard_parameter_metadata:  # `p.data = ...`, `p.t_()` keep the identity
                self.guard_layout(value, kind, source)
            if torch.is_grad_enabled():
                self.guard(
                    source,
                    "GRAD",
                    "{0}.requires_grad is {pin}",
                    value.requires_grad,
                    row=LAYOUT,
                )
            name = self.unique_name(module_name(source))
            fake = self.fake_of(value)
            node = self.add_input("get_attr", name, fake)
            self.attributes[name] = value
            node.meta["module_path"] = module_name(source).rpartition(".")[0]
            variable = TensorVar(node, fake, kind, source, value)
        else:
            dims, strides = self.policy.of_tensor(value, source)
            self.guard_tensor(value, kind, source, dims if dims or strides else None)
            fake = (
                self.symbolic_fake_of(value, source, dims, strides)
                if dims or strides
                else self.fake_of(value)
            )
            node = self.add_input("placeholder", self.unique_name(source.name()), fake)
            variable = TensorVar(node, fake, kind, source, value)
            self.inputs.append(variable)
            if dims or strides:
                self.symbolic_inputs[id(variable)] = fake.shape, fake.stride()
                self.guard_strides(fake, source)
        self.by_fake[id(fake)] = variable
        return variable

    def guard_layout(self, value: torch.Tensor, kind: type, source) -> None:
        """What the memo watches of a tensor whose identity is guarded (LAYOUT), each as a guard
        that says what has changed."""
        self.guard(source, "TENSOR", "type({0}) is {pin}", kind, row=LAYOUT)
        self.guard(source, "DTYPE", "{0}.dtype is {pin}", value.dtype, row=LAYOUT)
        self.guard(source, "DEVICE", "{0}.device == {pin}", value.device, row=LAYOUT)
        self.guard(source, "SHAPE", f"{{0}}.shape == {tuple(value.shape)}", row=LAYOUT)
        if value.layout is torch.strided:
            self.guard(source, "STRIDE", f"{{0}}.stride() == {value.stride()}", row=LAYOUT)
        self.guard(source, "VIEW_BITS", view_bits_check(value), row=LAYOUT)

    def guard_tensor(self, value, kind, source, symbolic=None):
        row = LAYOUT if symbolic is None and value.layout is torch.strided else None
        self.guard(source, "TENSOR", "type({0}) is {pin}", kind, row)
        self.guard(source, "DTYPE", "{0}.dtype is {pin}", value.dtype, row)
        if symbolic is not None:  # the rest is said by `guard_strides` and the ShapeEnv
            self.guard(source, "SHAPE", f"{{0}}.dim() == {value.dim()}")
            fixed = [f"{{0}}[{d}] == {n}" for d, n in enumerate(value.shape) if d not in symbolic]
            if fixed:
                self.guard(source.attr("shape"), "SHAPE", " and ".join(fixed))
        else:
            self.guard(source, "SHAPE", f"{{0}}.shape == {tuple(value.shape)}", row=row)
        if symbolic is None and value.layout is torch.strided:
            self.guard(source, "STRIDE", f"{{0}}.stride() == {tuple(value.stride())}", row=row)
        elif symbolic is None:
            self.guard(source, "LAYOUT", "{0}.layout is {pin}", value.layout)
        self.guard(source, "GRAD", f"{{0}}.requires_grad is {value.requires_grad}", row=row)
        self.guard_place(value, source, row)
        self.guard(source, "VIEW_BITS", view_bits_check(value), row=row)

    def guard_strides(self, fake, source):
        """Strides that follow the symbolic sizes."""
        symbols = sorted(
            set().union(
                *[n.node.expr.free_symbols for n in fake.stride() if type(n) is torch.SymInt]
            ),
            key=str,
        )
        names = {symbol: f"{{{n}}}" for n, symbol in enumerate(symbols, 1)}
        steps = [
            python_code(n.node.expr, names) if type(n) is torch.SymInt else str(n)
            for n in fake.stride()
        ]
        check = f"{{0}}.stride() == ({', '.join(steps)}{',' * (len(steps) == 1)})"
        self.pair_guards.append(
            Guard("STRIDE", (source, *[self.shape_env.table[s].sources[0] for s in symbols]), check)
        )

    def guard_place(self, value, source, row=None):
        if value.is_cpu:
            self.guard(source, "DEVICE", "{0}.is_cpu", row=row)
        else:
            self.guard(source, "DEVICE", "{0}.device == {pin}", value.device, row)

    def _module(self, value, kind, source):
        if kind.__module__.startswith("torch.jit"):
            raise Break("module", "a TorchScript module is not traced")
        if issubclass(kind, torch.nn.modules.lazy.LazyModuleMixin):
            raise Break(
                "module",
                f"the first call of a {kind.__name__} gives it its parameters",
                "call the model once before it is compiled",
            )
        inner = source.base is not None and source.base.key == "_modules"
        if inner:
            self.guard(source, "TYPE", "type({0}) is {pin}", kind)
        else:
            self.guard(source, "MODULE", f"id({{0}}) == {id(value)}")
            self.modules.append(value)
        plain = lookup(kind, "__getattribute__")[1] is object.__getattribute__
        fields = self.fields_of(value, source.instance_dict(plain))
        return ModuleVar(kind, value, source, fields)

    def fields_of(self, value, source):
        """The instance __dict__ as a DictVar whose entries are wrapped when read."""
        own = object.__getattribute__(value, "__dict__")
        known = self.memo.get(id(own))
        if known is None:
            items = {}
            for name, item in own.items():
                items[name] = (ConstantVar(name), Lazy(item, source.item(name)))
            known = self.memo[id(own)] = (DictVar(items, source=source), own)
            known[0].real_keys = list(items)
            self.sourced.append(known[0])
        return known[0]

    def _object(self, value, kind, source):
        fields = None
        own = next((vars(cls)["__dict__"] for cls in kind.__mro__ if "__dict__" in vars(cls)), None)
        if type(own) not in (types.GetSetDescriptorType, types.MemberDescriptorType, type(None)):
            raise Break("object", f"a {kind.__name__}, which answers __dict__ itself")
        if kind.__dictoffset__ and own is not None:
            plain = lookup(kind, "__getattribute__")[1] is object.__getattribute__
            fields = self.fields_of(value, source.instance_dict(plain))
        if isinstance(value, torch.optim.Optimizer):
            self.modules.append(value)  # its entries, which hold its parameters, go with it
        variable = ObjectVar(kind, value, source, fields)
        for base, build in (
            (collections.OrderedDict, _dict),
            (dict, _dict),
            (list, _list),
            (tuple, _tuple),
        ):
            if isinstance(value, base):
                variable.payload = build(self, value, source, base)
                self.sourced.append(variable.payload)
                break
        self.sourced.append(variable)
        return variable

    def enum_member(self, value):
        """A member of an enumeration as an object that has attributes."""
        known = self.members.get(id(value))
        if known is None:
            source = self.tree.pinned(value)
            fields = self.fields_of(value, source.instance_dict())
            known = self.members[id(value)] = MemberVar(type(value), value, source, fields)
        return known

    def wrap_pinned(self, value):
        """A variable for an object held by reference, without a guard."""
        if is_constant_value(value):
            return ConstantVar(value)
        known = self.pinned_memo.get(id(value))
        if known is None:
            known = self.pinned_memo[id(value)] = (self._pinned(value, type(value)), value)
        return known[0]

    def _pinned(self, value, kind):
        if isinstance(value, type):
            return ClassVar(value)
        if kind is types.FunctionType:
            self.guard_function(value)
            if not (value.__closure__ or value.__defaults__ or value.__kwdefaults__):
                return FunctionVar(value, value.__code__, value.__globals__, value.__qualname__)
            variable = self.function_of(value, self.tree.pinned(value), guarded=False)
            variable.source = None
            return variable
        if kind is types.ModuleType or isinstance(value, types.ModuleType):
            return PyModuleVar(value)
        if kind in C_CALLABLES or isinstance(value, C_CALLABLES):
            return CallableVar(value)
        if (
            isinstance(value, (types.GenericAlias, typing._Final))
            or getattr(kind, "__module__", "") == "typing"
        ):
            return CallableVar(value)
        if (
            callable(value)
            and trusted(kind.__module__)
            and not hasattr(kind, "__dict__")
            and not isinstance(value, weakref.ref)
        ):
            return CallableVar(value)
        if kind is types.MethodType and isinstance(value.__self__, type):
            return BoundMethodVar(
                self.wrap_pinned(value.__func__), self.wrap_pinned(value.__self__)
            )
        return self.wrap(value, self.tree.pinned(value))

    def guard_fixed(self, source, value):
        """At `source` lies this very object, or a constant like it."""
        if is_constant_value(value):
            self.guard(source, "EQUALS", *constant_check(value))
        else:
            self.guard(source, "ID", "{0} is {pin}", value)

    def wrap_class_attribute(self, owner, found, name):
        """What `lookup` found on a class, guarded by its value; `guard_classes` guards descriptors.

        Of classes of torch and the standard library only constants are looked at.
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
            self.guard(source, "ID", "{0} is {pin}", found)
        return self.wrap_pinned(found)


def module_name(source):
    """ "h.0.weight" for a parameter's source."""
    from ..graph_capture import module_path

    owner = source.base.base
    while owner is not None and owner.kind in ("dict", "raw_dict"):
        owner = owner.base
    path = module_path(owner)
    return f"{path}.{source.key}" if path else str(source.key)


def _list(builder, value, source, base=list):
    exact = type(value) in (list, collections.deque)
    values = value if exact else list.__getitem__(value, slice(None))
    builder.guard(
        source,
        "LENGTH",
        f"len({{0}}) == {len(values)}" if exact else f"list.__len__({{0}}) == {len(values)}",
    )
    variable = ListVar(
        [
            Lazy(item, source.child("item" if exact else "list_item", n))
            for n, item in enumerate(values)
        ],
        type(value) if exact else list,
        source,
    )
    if type(value) is collections.deque:
        builder.guard(source, "MAXLEN", f"{{0}}.maxlen == {value.maxlen}")
        variable.extra = value.maxlen
    return variable


def _tuple(builder, value, source, base=tuple):
    builder.guard(source, "LENGTH", f"len({{0}}) == {len(value)}")
    kind = (
        type(value)
        if type(value) in (tuple, torch.Size) or hasattr(type(value), "_fields")
        else tuple
    )
    return TupleVar(
        [
            Lazy(item, source.child("tuple_item" if type(value) is not kind else "item", n))
            for n, item in enumerate(value)
        ],
        kind,
        source,
    )


def _dict(builder, value, source, base=dict):
    if "__builtins__" in value:
        raise Break("dictionary", "a module's globals as a dictionary")
    exact = type(value) in (dict, collections.OrderedDict, collections.defaultdict)
    items, kind = (
        {},
        collections.OrderedDict if isinstance(value, collections.OrderedDict) else dict,
    )
    try:
        pairs = [
            *kind.items(value)
        ]  # in the order of the program: dict.items() of an OrderedDict forgets move_to_end()
    except ours(KeyError, RuntimeError):
        raise Break("dictionary", "an OrderedDict that was written by dict's methods") from None
    for key, item in pairs:
        if is_constant_value(key):
            variable = ConstantVar(key)
        elif type(key) in TENSOR_TYPES:  # an optimizer's state
            known, variable = builder.memo.get(id(key)), builder.wrap_pinned(key)
            if known is not None and variable.source.kind != "pinned":
                builder.guard(variable.source, "ID", "{0} is {pin}", key)
        elif (
            isinstance(
                key,
                (
                    type,
                    types.FunctionType,
                    types.BuiltinFunctionType,
                    types.GenericAlias,
                    types.UnionType,
                    typing._Final,
                ),
            )
            or isinstance(key, tuple)
            and all(type(part) in LITERALS or isinstance(part, type) for part in key)
        ):
            variable = builder.wrap_result(key)
        else:
            raise Break("dictionary", f"a dictionary with a {type(key).__name__} as a key")
        child = (
            source.child("item" if exact else "dict_item", key)
            if type(key) in (str, int, bool, type(None))
            else source.child("pinned_item", builder.tree.pinned(key).key)
        )
        items[variable.hash_key(builder.frame)] = (variable, Lazy(item, child))
    factory = None
    if type(value) is collections.defaultdict and value.default_factory is not None:
        factory = Lazy(value.default_factory, source.attr("default_factory"))
    made = DictVar(items, type(value) if exact else base, source, factory)
    made.real_keys = [key for key, _ in pairs]
    if not exact:
        made.base = base
    return made


def _set(builder, value, source):
    if not all(is_constant_value(item) or isinstance(item, type) for item in value):
        raise Break("set", "a set with elements that are not constants")
    builder.guard(source, "EQUALS", "{0} == {pin}", type(value)(value))
    items = [builder.wrap_pinned(item) for item in value]
    hosts = {item.hash_key(builder.frame): item for item in items}
    return SetVar(hosts, type(value), source, type(value)(hosts))


CONTAINERS = {
    list: _list,
    collections.deque: _list,
    tuple: _tuple,
    torch.Size: _tuple,
    dict: _dict,
    collections.OrderedDict: _dict,
    collections.defaultdict: _dict,
    set: _set,
    frozenset: _set,
}
