"""The FX graph under construction, with everything one attempt at a frame collects: inputs,
attributes, guards.

In:   `call_graph("call_function", torch.add, [x, y], {})` from the evaluator, variables as
      arguments.
Out:  a node in `graph` (executed once with fake tensors) and a variable for its result;
      `finish(outputs)` gives the `fx.GraphModule` and its example inputs for the backend.

    >>> output.call_graph(tx, "call_method", "relu", [x], {})

Parameters and buffers of modules are `get_attr` nodes guarded by identity; other tensors are
placeholders.  Each node's meta holds `example_value`, `stack_trace`, `source_line`, `user_stack`
and `module_path`. Mirrors torch/_dynamo/output_graph.py (paper section 3.5).
"""

import builtins
import contextlib
import dis
import functools
import keyword
import linecache
import operator
import re
import sys
import types
import weakref

import torch
import torch.fx
import torch.utils._pytree as pytree
from torch._dispatch.python import enable_python_dispatcher
from torch._subclasses import fake_tensor

from miniinductor.fake_mode import FakeMode

from . import config, runtime
from .dynamic import SizePolicy
from .exceptions import Break
from .foreign import ours
from .guards import Guard, constant_check, has_long_text, literal
from .originals import replaced_in_module, replaced_in_tensor
from .sources import SourceTree, module_path, numbered
from .symbolic_numbers import EXPRESSIONS
from .symbolic_shapes import (
    DataDependentDecision,
    ShapeEnv,
    can_be_symbolic,
    fake_like,
    symbolic_fake,
)
from .variables.builder import Builder
from .variables.constant import ConstantVar, is_constant_value
from .variables.containers import DictVar, ListVar, TupleVar
from .variables.functions import CellVar
from .variables.modules import GlobalsVar
from .variables.lookup import lookup
from .variables.registry import RESULTS, prepared
from .variables.symbolic import SYMBOLIC, SymVar, data_dependent, wrap_symbolic
from .variables.tensor import TensorVar

LITERAL_KEYS = (str, int, bool, type(None))
PLAIN_OPERATORS = {
    getattr(operator, "i" + name): getattr(operator, name)
    for name in (
        "add",
        "sub",
        "mul",
        "truediv",
        "floordiv",
        "mod",
        "pow",
        "matmul",
        "lshift",
        "rshift",
    )
}
PLAIN_OPERATORS.update(
    {operator.iand: operator.and_, operator.ior: operator.or_, operator.ixor: operator.xor}
)


SIZE = re.compile(r"[su]\d+")  # what the symbols of sizes are called, here and in the backend


@functools.cache
def global_paths(code: types.CodeType) -> list[tuple[str, ...]]:
    """`("torch", "nn", "init")` for each `torch.nn.init` that the code may read: a global's name,
    and attributes."""
    paths, open_path = [], False
    for instruction in dis.get_instructions(code):
        if instruction.opname == "LOAD_GLOBAL":
            paths.append((instruction.argval,))
            open_path = True
        elif open_path and instruction.opname in ("LOAD_ATTR", "LOAD_METHOD"):
            paths[-1] += (instruction.argval,)
        elif instruction.opname not in ("CACHE", "PRECALL"):
            open_path = False
    return list(dict.fromkeys(paths))


@functools.cache
def reserved_names():
    """Names that mean something in the text, or in an object, of an `fx.GraphModule`."""
    module = torch.fx.GraphModule(torch.nn.Module(), torch.fx.Graph())
    words = (*keyword.kwlist, *dir(builtins), *torch.fx.graph._custom_builtins)
    return {"self", *words, *dir(module)}


def state_of(tensor):
    """What an in-place operation on a tensor changes: torch's count of writes, and metadata
    (`requires_grad_()`, `t_()`); None for inference tensors, where torch does not count."""
    if tensor.is_inference():
        return None
    return (
        tensor._version,
        tensor.requires_grad,
        plain(tensor.shape),
        tensor.layout is torch.strided and plain(tensor.stride()),
    )


def plain(sizes):
    """Sizes to compare without a guard: symbolic ones by their expressions."""
    return tuple([n.node.expr if type(n) is torch.SymInt else n for n in sizes])


def states(args, kwargs):
    """[(tensor, state)] of the tensors among the arguments, also those in lists."""
    return [
        (leaf, state_of(leaf))
        for arg in (*args, *kwargs.values())
        for leaf in (arg if type(arg) in (list, tuple) else (arg,))
        if isinstance(leaf, torch.Tensor)
    ]


class OutputGraph(Builder):
    """One attempt.  `inputs`: variables behind the placeholders, in order: symbols, then the
    tensors that have them as sizes."""

    def __init__(self, input_sources=(), generates_code=True, floats=(), policy=None):
        self.floats, self.float_inputs = (
            floats,
            {},
        )  # names of floats that change from call to call; source -> FloatVar
        self.policy = policy or SizePolicy(False)
        self.shape_env = ShapeEnv(lambda: self.frame.user_line() if self.frame is not None else "")
        self.unbacked = {}  # symbol that only the run knows -> SymVar of the node that gives it
        self.symbol_nodes, self.symbolic_inputs = (
            {},
            {},
        )  # expression over the symbols -> node; id of an input -> (sizes, strides)
        self.generates_code = (
            generates_code  # does the backend rely on parameters' shapes and devices?
        )
        self.tree = SourceTree()
        self.graph = torch.fx.Graph()
        self.fake_mode = FakeMode(static_shapes=True)
        if config.capture_scalar_outputs and self.policy.dynamic is not False:
            self.fake_mode.shape_env, self.fake_mode.cache_enabled = self.shape_env, False
        self.inputs, self.attributes, self.by_fake, self.memo, self.pinned_memo = [], {}, {}, {}, {}
        self.globals, self.pair_guards, self.sourced, self.module_stack, self.modules = (
            {},
            [],
            [],
            [],
            [],
        )
        self.input_sources = (
            input_sources  # names of tensors that must be placeholders (replaced buffers)
        )
        self.handling = (
            sys.exc_info()[1] is not None
        )  # does the frame run in an `except` block of its callers?
        self.steps = 0  # instructions traced so far
        self.generators = []  # made while tracing
        self.last_input, self.calls, self.frame, self.root, self.global_hooks_guarded = (
            None,
            0,
            None,
            None,
            False,
        )
        self.makers = {}  # id of a stateless module made in the frame -> partial that makes it
        self.autocast_depth = 0  # autocast regions entered less those left
        self.state_before, self.state_after = (
            {},
            {},
        )  # (setter, its first arguments) -> the thread's state
        # context managers of C (`torch_state.ContextVar`) that the graph has entered and not left
        self.entered = []
        # id -> (function of torch's, does it call what the program replaced)
        self.read_functions = {}
        self.names, self.written = {}, []  # written: (node, fake tensor it changed in place)
        self.untold = set()  # ids of fakes that do not tell whether they need gradients
        self.members = {}  # id of a member of an enumeration -> its MemberVar
        self.absent = {}  # source of a dictionary -> {name that must stay absent: line that asked}

    def count_step(self):
        """One instruction, or one step of something that walks: an analysis has so many."""
        self.steps += 1
        if self.steps > config.step_limit:
            raise Break(
                "limit",
                f"more than {config.step_limit} instructions in the calls of one frame "
                "(config.step_limit)",
            )

    def check_generators(self):
        """A generator that was left inside a `try` or `with` runs its end when plain Python lets it
        go."""
        for generator in self.generators:
            if generator.must_be_closed():
                raise Break(
                    "generator",
                    f"the generator {generator.frame.code.co_name} is left inside a try or with",
                    "consume it, or close it",
                    *generator.made,
                )

    # ---- guards
    def guard(self, source, kind, check, value=None, row=None):
        """Hang a guard on `source`; `{pin}` and `{key}` in the check stand for `value`.  row: LAYOUT,
        where the check looks at nothing but what the memos see of a tensor."""
        if kind in source.guards:
            return
        pins = {}
        for field in ("{pin}", "{key}"):
            if field in check:
                if type(value) in LITERAL_KEYS and not has_long_text(value):
                    text = literal(value)
                else:
                    pin = self.tree.pinned(value)
                    text, pins = pin.key, {pin.key: value}
                check = check.replace(field, text)
        name = kind if isinstance(kind, str) else kind[0]
        source.guards[kind] = Guard(
            name,
            source,
            check,
            pins,
            self.frame.user_line() if self.frame is not None else "",
            row,
        )

    def guard_absent(self, source, name):
        """The dictionary at `source` has no `name`, and must have none later."""
        line = self.frame.user_line() if self.frame is not None else ""
        self.absent.setdefault(source, {}).setdefault(name, line)

    def guard_absences(self):
        """One guard for all the names that a dictionary must not have: modules are asked for
        many."""
        for source, names in self.absent.items():
            if "KEYS" not in source.guards:
                check = f"{{0}}.keys().isdisjoint({literal(tuple(sorted(names)))})"
                line = next(iter(names.values()))
                source.guards["ABSENT"] = Guard("ABSENT", source, check, {}, line)

    def guard_pair(self, check, *sources):
        line = self.frame.user_line() if self.frame is not None else ""
        self.pair_guards.append(
            Guard("ALIAS" if " is {" in check else "DISTINCT", sources, check, {}, line)
        )

    def guard_state(self, call, value):
        """`call` (a functools.partial) read `value` from the process's state: it must give the same
        again.  What the frame itself sets is guarded on entry."""
        name = call.func.__name__
        if self.state_before and ("grad" in name or "autocast" in name):
            return
        arguments = ", ".join(
            [*map(repr, call.args), *(f"{k}={v!r}" for k, v in call.keywords.items())]
        )
        self.guard(
            self.tree.pinned(call.func),
            ("STATE", arguments),
            f"{{0}}({arguments}) == {{pin}}",
            value,
        )

    def guard_globals(self, function):
        """A backend will trace `function`, and take what its globals are now for constants."""
        names, source = function.__code__.co_names, self.globals_of(function.__globals__).source
        for name in names:
            value = function.__globals__.get(name)
            if name in function.__globals__ and (is_constant_value(value) or callable(value)):
                check, pin = (
                    constant_check(value) if is_constant_value(value) else ("{0} is {pin}", value)
                )
                self.guard(source.item(name), "GLOBAL", check, pin)

    def calls_replaced(self, function, goes_on):
        """Does torch's `function`, which the graph would call whole, find something of the
        program's under the names in its code?

        What it finds is guarded.  goes_on: whether a function that is found so is looked at,
        too."""
        known = self.read_functions.get(id(function))
        if known is not None:
            return known[1]
        replaced = False
        self.read_functions[id(function)] = function, replaced
        for first, *path in global_paths(function.__code__):
            place, value = function.__globals__, None
            for name in (first, *path):
                if name not in place:
                    break
                value = place[name]
                self.guard_fixed(self.globals_of(place).source.item(name), value)
                replaced = replaced or replaced_in_module(place, name)
                if not isinstance(value, types.ModuleType):
                    break
                place = value.__dict__
            if isinstance(value, types.FunctionType) and goes_on(value):
                self.guard_function(value)
                replaced = self.calls_replaced(value, goes_on) or replaced
        self.read_functions[id(function)] = function, replaced
        return replaced

    def lets_go(self, value):
        """May `value`, which was alive when the frame began, be gone by now in plain Python: has
        anything been written, or a parameter been rebound that may have held it?"""
        cells = [variable for variable, _ in self.memo.values() if type(variable) is CellVar]
        rebound = [
            was.value
            for name, was in self.root.bound.items()
            if name not in self.root.cells
            and getattr(self.root.locals.get(name), "source", None) is not was.source
        ]
        return (
            any(variable.mutated for variable in (*self.sourced, *cells, *self.root.cells.values()))
            or any(module.written for module in self.globals.values())
            or any(
                was is value or not is_constant_value(was) and not isinstance(was, torch.Tensor)
                for was in rebound
            )
        )

    def nothing_handled(self):
        """Does the frame run outside of all `except` blocks?  Guarded if so."""
        if not self.handling:
            self.guard(self.tree.pinned(sys.exc_info), "HANDLING", "{0}()[1] is None")
        return not self.handling

    def guard_flag(self, variable, name):
        """`tensor.is_...()` was read of an input."""
        if (
            type(variable) is TensorVar
            and variable.value is not None
            and name.startswith(("is_", "_is_"))
            and hasattr(torch.Tensor, name)
        ):
            self.guard(
                variable.source,
                ("FLAG", name),
                f"{{0}}.{name}() is {getattr(variable.value, name)()}",
            )

    def guard_offsets(self, fakes: list[torch.Tensor]) -> None:
        """Places are counted from the start of these tensors' memory: where the inputs begin that
        lie there must stay as it is."""
        known = [v for v in self.by_fake.values() if v.value is not None]  # not made in the frame
        storages = {fake.untyped_storage()._cdata for fake in fakes}
        for variable in known:
            real, fake = variable.value, variable.fake
            if real.layout is torch.strided and fake.untyped_storage()._cdata in storages:
                check = f"{{0}}.storage_offset() == {real.storage_offset()}"
                self.guard(variable.source, "OFFSET", check)

    def guard_no_global_hooks(self):
        if not self.global_hooks_guarded:
            self.global_hooks_guarded = True
            hooks = torch.nn.modules.module
            for name in (
                "_global_forward_hooks",
                "_global_forward_pre_hooks",
                "_global_backward_hooks",
                "_global_backward_pre_hooks",
            ):
                self.guard(self.tree.pinned(getattr(hooks, name), name), "NO_HOOKS", "not {0}")
                if getattr(hooks, name):
                    raise Break("module", "global module hooks are installed")

    def globals_of(self, values):
        found = self.globals.get(id(values))
        if found is None:
            found = self.globals[id(values)] = GlobalsVar(values, self)
        return found

    def as_input(self, source):
        """The tensor at `source` is replaced while tracing: it must be a placeholder, not part of
        the graph's state."""
        if source.name() not in self.input_sources:
            self.input_sources.add(source.name())
            raise Break("restart", "a buffer is replaced in forward")

    # ---- inputs
    def unique_name(self, text):
        """A name for a placeholder or an attribute of the graph that nothing else in the generated
        module has."""
        text = "".join(c if c.isascii() and c.isalnum() else "_" for c in text).strip("_")
        while "__" in text:
            text = text.replace("__", "_")
        text = text if text and not text[0].isdigit() else "t_" + text
        if text in reserved_names() or SIZE.fullmatch(text):
            text += "_"
        return numbered(text, self.names)

    def add_input(self, kind, name, fake):
        """A placeholder (kept before everything else) or get_attr node."""
        graph = self.graph
        with (
            graph.inserting_after(self.last_input)
            if kind == "placeholder" and self.last_input is not None
            else graph.inserting_before(next(iter(graph.nodes), None))
            if kind == "placeholder" and len(graph.nodes)
            else contextlib.nullcontext()
        ):
            node = graph.create_node(kind, name, name=name)
        if kind == "placeholder":
            self.last_input = node
            if not SIZE.fullmatch(
                name
            ):  # the parameter of the generated function is called what the node is
                node.target = node.name
        node.meta["example_value"] = fake
        return node

    def fake_of(self, tensor):
        try:
            return self.fake_mode.from_tensor(tensor, static_shapes=True)
        except ours(AssertionError) as error:
            # of a view, after its base changed (requires_grad_) while tracing
            raise Break("fake tensor", f"a tensor whose base changed: {error}") from None

    # ---- symbolic sizes
    def symbolic_fake_of(self, value, source, dims, strides):
        """A fake whose sizes `dims` are symbols; their placeholders come before the tensor's."""
        shape = source.attr("shape")
        self.fake_mode.cache_enabled = False  # its key would be the sizes' hints
        fake = symbolic_fake(
            self.fake_mode,
            self.shape_env,
            value,
            dims,
            shape.item,
            lambda d: source.child("stride", d) if d in strides else None,
        )
        self.add_symbols()
        return fake

    def symbolic_int(self, value, source):
        made = self.shape_env.create_symbol(value, source, duck=False)
        self.add_symbols()
        return SymVar(made, source)

    def add_symbols(self):
        """Placeholders of the symbols that have none yet."""
        self.fake_mode.cache_enabled = False
        for symbol, row in self.shape_env.table.items():
            if symbol not in self.symbol_nodes and row.sources:
                row.sources[0].label = symbol.name if row.sources[0].kind != "local" else None
                value = self.shape_env.wrap(symbol)
                node = self.symbol_nodes[symbol] = self.add_input("placeholder", symbol.name, value)
                self.inputs.append(SymVar(value, row.sources[0], node))

    def add_unbacked(self, tx, node, result):
        """Nodes of the sizes and numbers that `node` made and only the run knows."""
        for symbol, row in self.shape_env.table.items():
            if row.hint is None and symbol not in self.symbol_nodes:
                value, size = result, node
                if isinstance(result, torch.Tensor):
                    place = next(
                        (
                            d
                            for d, n in enumerate(result.shape)
                            if type(n) is torch.SymInt and n.node._expr == symbol
                        ),
                        None,
                    )
                    if place is None:
                        raise Break(
                            "data-dependent",
                            f"a result of {describe(node.target)} whose size only the run knows",
                        )
                    value, size = (
                        self.shape_env.wrap(symbol),
                        self.graph.call_method("size", (node, place)),
                    )
                    self.describe_node(tx, size, value)
                self.symbol_nodes[symbol] = size
                self.unbacked[symbol] = SymVar(value, node=size)

    def symbolic_node(self, tx, value):
        """The node that computes a SymInt, SymFloat or SymBool from the symbols; each expression
        once."""
        if type(value) is torch.SymBool and value.node.has_hint():
            return bool(value)

        def build(expr):
            if expr.is_number:
                return int(expr) if expr.is_Integer else float(expr)
            node = self.symbol_nodes.get(expr)
            if node is None:
                function, binary = EXPRESSIONS[type(expr)]
                parts = [build(a) for a in expr.args]
                if binary:
                    node = functools.reduce(
                        lambda a, b: self.graph.call_function(function, (a, b)), parts
                    )
                else:
                    node = self.graph.call_function(function, tuple(parts))
                self.describe_node(
                    tx, node, self.shape_env.wrap(expr) if expr.is_integer else value
                )
                self.symbol_nodes[expr] = node
            return node

        return build(value.node.expr)

    # ---- nodes
    @contextlib.contextmanager
    def inside_module(self, module):
        self.module_stack.append(module_path(module.source))
        try:
            yield
        finally:
            self.module_stack.pop()

    def call_graph(self, tx, op, target, args, kwargs):
        """Run once with fake tensors, record, wrap the result."""
        if (
            target in PLAIN_OPERATORS and type(args[0]) is not TensorVar
        ):  # `2 += tensor` is `2 + tensor`
            target = PLAIN_OPERATORS[target]
        if self.floats:
            args, kwargs = prepared(tx, target, args, kwargs)
        fake_args = [self.to_fake(a) for a in args]
        fake_kwargs = {k: self.to_fake(v) for k, v in kwargs.items()}
        if op == "call_function" and getattr(target, "__module__", None) == "_operator":
            guard_operator(target, [*args, *kwargs.values()])
        before = states(fake_args, fake_kwargs)
        if "as_strided" in getattr(target, "__name__", target):
            self.guard_offsets([tensor for tensor, _ in before])
        self.shape_env.running = describe(target)
        try:
            with (
                self.fake_mode,
                enable_python_dispatcher() if self.symbol_nodes else contextlib.nullcontext(),
            ):
                if op == "call_function":
                    result = target(*fake_args, **fake_kwargs)
                else:
                    result = getattr(fake_args[0], target)(*fake_args[1:], **fake_kwargs)
        except (
            fake_tensor.DataDependentOutputException,
            fake_tensor.DynamicOutputShapeException,
        ) as error:
            raise Break(
                "data-dependent",
                f"{describe(target)} needs the tensor's values ({error})",
                "the shape or value depends on data; keep it outside the compiled function",
            ) from None
        except DataDependentDecision as error:
            raise data_dependent(error) from None
        except fake_tensor.UnsupportedFakeTensorException as error:
            raise Break("fake tensor", f"{describe(target)}: {error}") from None
        except ours(Exception) as error:
            # the program's own error: plain Python raises it, with its own message
            text = str(error).strip()
            raise Break(
                "op failed",
                f"{describe(target)} failed while tracing: {type(error).__name__}: "
                f"{text.splitlines()[0] if text else ''}",
            ) from None
        if (
            config.capture_scalar_outputs
            and type(result) in SYMBOLIC
            and not result.node.has_hint()
            and result.node._expr not in self.symbol_nodes
        ):
            self.add_unbacked(tx, self._node(tx, op, target, args, kwargs, result), result)
        written = [tensor for tensor, state in before if state is None or state != state_of(tensor)]
        if self.untold or torch.is_inference_mode_enabled():
            self.note_untold([tensor for tensor, _ in before], result)
        if not self._holds_tensor(result):
            if not args and not kwargs and target.__name__.startswith(("is_", "get_", "are_")):
                self.guard_state(functools.partial(target), result)
            elif len(args) == 1 and not kwargs:
                self.guard_flag(args[0], target if op == "call_method" else target.__name__)
            if result is None and (op == "call_function" or written):
                node = self._node(tx, op, target, args, kwargs, None)
                self.written += [(node, tensor) for tensor in written]
            return self.wrap_result(result)
        known = self.by_fake.get(id(result))
        if known is not None and not written:
            return (
                known  # an argument came back as it was: x.contiguous(), dropout(x, training=False)
            )
        node = self._node(tx, op, target, args, kwargs, result)
        if config.capture_scalar_outputs:
            self.add_unbacked(tx, node, result)
        self.written += [(node, tensor) for tensor in written]
        return known if known is not None else self._wrap_output(node, result)

    def note_untold(self, given, result):
        """Remember results whose history their fakes do not tell.

        In inference mode a view of a tensor that needs gradients needs them, too; fake tensors
        forget that where the view is made of other operations (`view_as`, `flatten`)."""
        inference = torch.is_inference_mode_enabled()
        learning = inference and any(tensor.requires_grad for tensor in given)
        for made in pytree.tree_leaves(result):
            if not isinstance(made, torch.Tensor) or any(made is tensor for tensor in given):
                continue
            forgotten = learning and not made.is_inference() and not made.requires_grad
            if forgotten or any(id(tensor) in self.untold for tensor in given):
                self.untold.add(id(made))

    def call_state(self, tx, setter, values):
        """A change of the thread's state: made now for the ops that follow, and recorded."""
        node = self._node(
            tx, "call_function", setter, [ConstantVar(value) for value in values], {}, None
        )
        self.calls -= 1
        setter(*values)
        return node

    def _node(self, tx, op, target, args, kwargs, result):
        node = self.graph.create_node(
            op,
            target,
            tuple(self.to_node(a) for a in args),
            {k: self.to_node(v) for k, v in kwargs.items()},
        )
        self.calls += 1
        return self.describe_node(tx, node, result)

    def describe_node(self, tx, node, result):
        meta = node.meta
        meta["example_value"] = result
        meta["user_stack"] = stack = tx.user_stack()
        file, line, function = stack[-1]
        text = linecache.getline(file, line).strip()
        meta["source_line"] = (file, line, text)
        node.stack_trace = f'  File "{file}", line {line}, in {function}\n    {text}'
        if self.module_stack:
            meta["module_path"] = self.module_stack[-1]
        return node

    def _holds_tensor(self, value):
        if isinstance(value, torch.Tensor):
            return True
        if isinstance(value, (tuple, list)):
            return any(self._holds_tensor(item) for item in value)
        return False

    def _wrap_output(self, node, value):
        if isinstance(value, torch.Tensor):
            known = self.by_fake.get(id(value))
            if known is not None:
                return known
            variable = TensorVar(node, value)
            self.by_fake[id(value)] = variable
            return variable
        if isinstance(value, (tuple, list)):
            items = []
            for n, item in enumerate(value):
                if self._holds_tensor(item):
                    part = self.graph.create_node("call_function", operator.getitem, (node, n))
                    part.meta = dict(node.meta, example_value=item)
                    items.append(self._wrap_output(part, item))
                else:
                    items.append(self.wrap_result(item))
            return ListVar(items) if type(value) is list else TupleVar(items, type(value))
        return self.wrap_result(value)

    def to_fake(self, variable):
        """The value to run with fake tensors."""
        kind = type(variable)
        if kind is TensorVar or kind is SymVar:
            return variable.fake
        return variable.argument(self.to_fake)

    def to_node(self, variable):
        """The argument as it stands in the graph."""
        kind = type(variable)
        if kind is TensorVar:
            return variable.node
        if kind is SymVar:
            return self.symbolic_node(self.frame, variable.value)
        return variable.argument(self.to_node)

    def wrap_result(self, value):
        """A value that a folded call gave: constants and containers of constants; anything else is
        pinned."""
        if is_constant_value(value):
            return ConstantVar(value)
        kind = type(value)
        if kind in SYMBOLIC:
            return wrap_symbolic(value)
        if (
            kind is tuple
            or kind is torch.Size
            or isinstance(value, tuple)
            and hasattr(kind, "_fields")
        ):
            return TupleVar([self.wrap_result(item) for item in value], kind)
        if kind is list:
            return ListVar([self.wrap_result(item) for item in value])
        if kind is dict:
            pairs = [(self.wrap_result(k), self.wrap_result(v)) for k, v in value.items()]
            return DictVar({k.hash_key(self.frame): (k, v) for k, v in pairs})
        rule = RESULTS.of(value)
        if rule is not None:
            return rule(self, value)
        if isinstance(value, torch.Tensor):
            raise Break("argument", "a folded call gave a tensor")
        if hasattr(kind, "__next__") or kind in (bytearray, set):  # made anew in each call
            raise Break("constant", f"a call gave a {kind.__name__}")
        return self.wrap_pinned(value)

    # ---- the end
    def forget(self):
        """Break the cycles that would keep the program's values alive until Python collects
        garbage.

        Or for good: fake tensors hold the shape environment through C++, where Python sees no
        cycle."""
        self.shape_env.where = str
        frame, self.frame = self.root, None
        for table in (
            self.memo,
            self.pinned_memo,
            self.by_fake,
            self.sourced,
            self.globals,
            *((frame.locals, frame.bound, frame.cells, frame.stack) if frame else ()),
        ):
            table.clear()

    def finish(self, outputs):
        """The captured GraphModule, returning `outputs` as a tuple, and the real example inputs."""
        for _ in self.entered:
            self.graph.call_function(runtime.leave)
        self.graph.output(tuple(variable.node for variable in outputs))
        sizes = {
            symbol
            for variable in self.inputs
            if type(variable) is TensorVar and variable.node.users
            for symbol in symbols_of(variable.fake)
        }
        used = []
        for variable in self.inputs:
            if (
                variable.node.users
                or type(variable) is SymVar
                and variable.value.node._expr in sizes
            ):
                used.append(variable)
            else:
                self.graph.erase_node(variable.node)
        for node in list(self.graph.nodes):
            if node.op == "get_attr" and not node.users:
                self.graph.erase_node(node)
        self.inputs = used
        root = torch.nn.Module()
        for name, tensor in self.attributes.items():
            if isinstance(tensor, torch.nn.Parameter):
                root.register_parameter(name, tensor)
            else:
                root.register_buffer(name, tensor)
        examples = [variable.value for variable in used]
        if any(type(variable) is SymVar for variable in used):
            examples = [
                variable.value if type(variable) is SymVar else self.unwritten_fake(variable)
                for variable in used
            ]
        made = torch.fx.GraphModule(root, self.graph, "CapturedGraph")
        call_by_object(made)
        weakref.finalize(
            made, forget_source, type(made).forward.__code__.co_filename
        ).atexit = False
        return made, examples

    def unwritten_fake(self, variable):
        """A fake of the input as it is before the graph runs."""
        sizes, strides = self.symbolic_inputs.get(id(variable), (variable.value.shape, None))
        if strides is None and not can_be_symbolic(variable.value):
            return variable.fake
        return fake_like(
            self.fake_mode,
            variable.value,
            sizes,
            variable.value.stride() if strides is None else strides,
        )


class Torch:
    """What the text of a graph calls `torch`: the functions that were captured, whatever their
    names mean later."""

    def __init__(self, module):
        self._module = module

    def __getattr__(self, name):
        return getattr(self._module, name)


def call_by_object(made: torch.fx.GraphModule) -> None:
    """torch.fx writes torch's functions by their names: the text must mean those of the nodes
    (`F.relu = mine` may come later)."""
    root = Torch(torch)
    for node in made.graph.nodes:
        if node.op != "call_function" or not torch.fx.graph._is_from_torch(node.target):
            continue
        first, *path, last = torch.fx.node._get_qualified_name(node.target).split(".")
        if first != "torch":
            continue
        place = root
        for name in path:
            inner = vars(place).get(name)
            if inner is None:
                inner = vars(place)[name] = Torch(getattr(place, name))
            place = inner
        vars(place)[last] = node.target
    made.forward.__func__.__globals__["torch"] = root


def forget_source(file):
    """torch.fx keeps the text of every GraphModule that ever was, for tracebacks."""
    linecache.cache.pop(file, None)
    torch.fx.graph_module._loader.eval_cache.pop(file, None)


def symbols_of(fake):
    """The symbols in a fake tensor's sizes and strides."""
    sizes = (*fake.shape, *fake.stride()) if fake.layout is torch.strided else fake.shape
    return {
        symbol for n in sizes if type(n) is torch.SymInt for symbol in n.node._expr.free_symbols
    }


def guard_operator(target, args):
    """An operator on tensors is what torch has made it: `torch.Tensor.__add__` may be replaced,
    too."""
    if not any(type(arg) is TensorVar for arg in args):
        return
    name = target.__name__.strip("_")
    for special in (f"__{name}__", f"__r{name}__"):
        owner, found = lookup(torch.Tensor, special)
        if replaced_in_tensor(owner, special, found):
            raise Break("tensor method", f"Tensor.{special}, which the program has replaced")


def describe(target):
    return (
        f"Tensor.{target}"
        if isinstance(target, str)
        else getattr(target, "__qualname__", None) or getattr(target, "__name__", str(target))
    )
