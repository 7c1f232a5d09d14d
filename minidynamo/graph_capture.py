"""The FX graph under construction, with everything one attempt at a frame collects: inputs, attributes, guards.

In:   `call_graph("call_function", torch.add, [x, y], {})` from the evaluator, variables as arguments.
Out:  a node in `graph` (executed once with fake tensors) and a variable for its result; `finish(outputs)` gives the
      `fx.GraphModule` and its example inputs for the backend.

    >>> output.call_graph(tx, "call_method", "relu", [x], {})

Parameters and buffers of modules are `get_attr` nodes guarded by identity; other tensors are placeholders.  Each node's
meta holds `example_value`, `stack_trace`, `source_line`, `user_stack` and `module_path`.
Mirrors torch/_dynamo/output_graph.py (paper section 3.5).
"""
import contextlib
import functools
import linecache
import operator

import torch
import torch.fx
from torch._subclasses import fake_tensor

from .exceptions import Break
from .guards import Guard
from .sources import SourceTree
from .variables.base import Lazy
from .variables.builder import Builder
from .variables.constant import ConstantVar, is_constant_value
from .variables.containers import DictVar, ListVar, SetVar, SliceVar, TupleVar
from .variables.objects import GlobalsVar
from .variables.tensor import FloatVar, TensorVar, with_tensors

LITERAL_KEYS = (str, int, bool, type(None))
PLAIN_OPERATORS = {getattr(operator, "i" + name): getattr(operator, name) for name in
                   ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "lshift", "rshift")}
PLAIN_OPERATORS.update({operator.iand: operator.and_, operator.ior: operator.or_, operator.ixor: operator.xor})


def state_of(tensor):
    """What an in-place operation on a tensor changes: torch's count of writes, and metadata (`requires_grad_()`, `t_()`); None for inference
    tensors, where torch does not count."""
    if tensor.is_inference():
        return None
    return tensor._version, tensor.requires_grad, tensor.shape, tensor.layout is torch.strided and tensor.stride()


def states(args, kwargs):
    """[(tensor, state)] of the tensors among the arguments, also those in lists."""
    return [(leaf, state_of(leaf)) for arg in (*args, *kwargs.values()) for leaf in (arg if type(arg) in (list, tuple) else (arg,))
            if isinstance(leaf, torch.Tensor)]


class OutputGraph(Builder):
    """One attempt.  `inputs`: tensor variables behind the placeholders, in order."""

    def __init__(self, input_sources=(), generates_code=True, floats=()):
        self.floats, self.float_inputs = floats, {}         # names of floats that change from call to call; source -> FloatVar
        self.generates_code = generates_code        # does the backend rely on parameters' shapes and devices?
        self.tree = SourceTree()
        self.graph = torch.fx.Graph()
        self.fake_mode = fake_tensor.FakeTensorMode(static_shapes=True)
        self.inputs, self.attributes, self.by_fake, self.memo, self.pinned_memo = [], {}, {}, {}, {}
        self.globals, self.pair_guards, self.sourced, self.module_stack, self.modules = {}, [], [], [], []
        self.input_sources = input_sources          # names of tensors that must be placeholders (replaced buffers)
        self.last_input, self.calls, self.frame, self.root, self.global_hooks_guarded = None, 0, None, None, False
        self.makers = {}            # id of a stateless module made in the frame -> partial that makes it
        self.autocast_depth = 0                     # autocast regions entered less those left
        self.state_before, self.state_after = {}, {}        # (setter, its first arguments) -> the thread's state
        self.names, self.written = {}, []           # written: (node, fake tensor it changed in place)

    # ---- guards
    def guard(self, source, kind, check, value=None):
        """Hang a guard on `source`; `{pin}` and `{key}` in the check stand for `value`."""
        if kind in source.guards:
            return
        pins = {}
        for field in ("{pin}", "{key}"):
            if field in check:
                if type(value) in LITERAL_KEYS:
                    text = repr(value).replace("{", "{{").replace("}", "}}")
                else:
                    pin = self.tree.pinned(value)
                    text, pins = pin.key, {pin.key: value}
                check = check.replace(field, text)
        name = kind if isinstance(kind, str) else kind[0]
        source.guards[kind] = Guard(name, source, check, pins, self.frame.user_line() if self.frame is not None else "")

    def guard_pair(self, check, *sources):
        line = self.frame.user_line() if self.frame is not None else ""
        self.pair_guards.append(Guard("ALIAS" if " is {" in check else "DISTINCT", sources, check, {}, line))

    def guard_state(self, call, value):
        """`call` (a functools.partial) read `value` from the process's state: it must give the same again.  What the frame itself sets is guarded on entry."""
        name = call.func.__name__
        if self.state_before and ("grad" in name or "autocast" in name):
            return
        arguments = ", ".join([*map(repr, call.args), *(f"{k}={v!r}" for k, v in call.keywords.items())])
        self.guard(self.tree.pinned(call.func), ("STATE", arguments), f"{{0}}({arguments}) == {{pin}}", value)

    def guard_flag(self, variable, name):
        """`tensor.is_...()` was read of an input."""
        if type(variable) is TensorVar and variable.value is not None and name.startswith(("is_", "_is_")) and hasattr(torch.Tensor, name):
            self.guard(variable.source, ("FLAG", name), f"{{0}}.{name}() is {getattr(variable.value, name)()}")

    def guard_no_global_hooks(self):
        if not self.global_hooks_guarded:
            self.global_hooks_guarded = True
            hooks = torch.nn.modules.module
            for name in ("_global_forward_hooks", "_global_forward_pre_hooks", "_global_backward_hooks",
                         "_global_backward_pre_hooks"):
                self.guard(self.tree.pinned(getattr(hooks, name), name), "NO_HOOKS", "not {0}")
                if getattr(hooks, name):
                    raise Break("module", "global module hooks are installed")

    def globals_of(self, values):
        found = self.globals.get(id(values))
        if found is None:
            found = self.globals[id(values)] = GlobalsVar(values, self)
        return found

    def as_input(self, source):
        """The tensor at `source` is replaced while tracing: it must be a placeholder, not part of the graph's state."""
        if source.name() not in self.input_sources:
            self.input_sources.add(source.name())
            raise Break("restart", "a buffer is replaced in forward")

    # ---- inputs
    def unique_name(self, text):
        text = "".join(c if c.isalnum() else "_" for c in text).strip("_")
        while "__" in text:
            text = text.replace("__", "_")
        text = text if text and not text[0].isdigit() else "t_" + text
        count = self.names[text] = self.names.get(text, -1) + 1
        return f"{text}_{count}" if count else text

    def add_input(self, kind, name, fake):
        """A placeholder (kept before everything else) or get_attr node."""
        graph = self.graph
        with graph.inserting_after(self.last_input) if kind == "placeholder" and self.last_input is not None else \
                graph.inserting_before(next(iter(graph.nodes), None)) if kind == "placeholder" and len(graph.nodes) else \
                contextlib.nullcontext():
            node = graph.create_node(kind, name, name=name)
        if kind == "placeholder":
            self.last_input = node
        node.meta["example_value"] = fake
        return node

    def fake_of(self, tensor):
        try:
            return self.fake_mode.from_tensor(tensor, static_shapes=True)
        except AssertionError as error:     # of a view, after its base changed (requires_grad_) while tracing
            raise Break("fake tensor", f"a tensor whose base changed: {error}") from None

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
        if target in PLAIN_OPERATORS and type(args[0]) is not TensorVar:      # `2 += tensor` is `2 + tensor`
            target = PLAIN_OPERATORS[target]
        if self.floats and any(isinstance(a, FloatVar) for a in (*args, *kwargs.values())):
            args, kwargs = with_tensors(tx, target, args, kwargs)
        fake_args = [self.to_fake(a) for a in args]
        fake_kwargs = {k: self.to_fake(v) for k, v in kwargs.items()}
        before = states(fake_args, fake_kwargs)
        try:
            with self.fake_mode:
                if op == "call_function":
                    result = target(*fake_args, **fake_kwargs)
                else:
                    result = getattr(fake_args[0], target)(*fake_args[1:], **fake_kwargs)
        except (fake_tensor.DataDependentOutputException, fake_tensor.DynamicOutputShapeException) as error:
            raise Break("data-dependent", f"{describe(target)} needs the tensor's values ({error})",
                        "the shape or value depends on data; keep it outside the compiled function") from None
        except fake_tensor.UnsupportedFakeTensorException as error:
            raise Break("fake tensor", f"{describe(target)}: {error}") from None
        except Exception as error:     # the program's own error: plain Python raises it, with its own message
            text = str(error).strip()
            raise Break("op failed", f"{describe(target)} failed while tracing: {type(error).__name__}: "
                                     f"{text.splitlines()[0] if text else ''}") from None
        written = [tensor for tensor, state in before if state is None or state != state_of(tensor)]
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
            return known        # an argument came back as it was: x.contiguous(), dropout(x, training=False)
        node = self._node(tx, op, target, args, kwargs, result)
        self.written += [(node, tensor) for tensor in written]
        return known if known is not None else self._wrap_output(node, result)

    def call_state(self, tx, setter, values):
        """A change of the thread's state: made now for the ops that follow, and recorded."""
        node = self._node(tx, "call_function", setter, [ConstantVar(value) for value in values], {}, None)
        self.calls -= 1
        setter(*values)
        return node

    def _node(self, tx, op, target, args, kwargs, result):
        node = self.graph.create_node(op, target, tuple(self.to_node(a) for a in args),
                                      {k: self.to_node(v) for k, v in kwargs.items()})
        self.calls += 1
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
        if kind is TensorVar:
            return variable.fake
        if kind is ConstantVar:
            return variable.value
        if kind is FloatVar:
            return variable.as_constant()
        if kind is Lazy:
            return self.to_fake(variable.realize(self.frame))
        if kind is TupleVar:
            items = [self.to_fake(variable.item(self.frame, n)) for n in range(len(variable.items))]
            return variable.cls(*items) if hasattr(variable.cls, "_fields") else \
                tuple(items) if variable.cls is torch.Size else variable.cls(items)
        if kind is ListVar:
            return [self.to_fake(item) for item in variable.iterate(self.frame)]
        if kind is DictVar:
            return {key.as_constant(): self.to_fake(value) for key, value in variable.pairs(self.frame)}
        if kind is SliceVar:
            return slice(*[self.to_fake(part) for part in variable.parts])
        identity = variable.identity()
        if identity is not variable and callable(identity):
            return identity
        raise Break("argument", f"{variable} as an argument of a torch function")

    def to_node(self, variable):
        """The argument as it stands in the graph."""
        kind = type(variable)
        if kind is TensorVar:
            return variable.node
        if kind is ConstantVar or kind is FloatVar:
            return variable.value
        if kind is Lazy:
            return self.to_node(variable.realize(self.frame))
        if kind is TupleVar:
            items = [self.to_node(item) for item in variable.items]
            return variable.cls(*items) if hasattr(variable.cls, "_fields") else tuple(items)
        if kind is ListVar:
            return [self.to_node(item) for item in variable.items]
        if kind is DictVar:
            return {key.as_constant(): self.to_node(value) for key, value in variable.pairs(self.frame)}
        if kind is SliceVar:
            return slice(*[self.to_node(part) for part in variable.parts])
        return variable.identity()

    def wrap_result(self, value):
        """A value that a folded call gave: constants and containers of constants; anything else is pinned."""
        if is_constant_value(value):
            return ConstantVar(value)
        kind = type(value)
        if kind is tuple or kind is torch.Size or isinstance(value, tuple) and hasattr(kind, "_fields"):
            return TupleVar([self.wrap_result(item) for item in value], kind)
        if kind is list:
            return ListVar([self.wrap_result(item) for item in value])
        if kind is dict:
            pairs = [(self.wrap_result(k), self.wrap_result(v)) for k, v in value.items()]
            return DictVar({k.hash_key(self.frame): (k, v) for k, v in pairs})
        if kind in (set, frozenset):
            return SetVar.of(self.frame, [self.wrap_result(item) for item in value], kind)
        if isinstance(value, torch.Tensor):
            raise Break("argument", "a folded call gave a tensor")
        return self.wrap_pinned(value)

    # ---- the end
    def forget(self):
        """Break the cycles that would keep the program's values alive until Python collects garbage."""
        frame, self.frame = self.root, None
        for table in (self.memo, self.pinned_memo, self.by_fake, self.sourced, self.globals, *((frame.locals, frame.cells, frame.stack) if frame else ())):
            table.clear()

    def first_write(self):
        """The first node that writes to an input, parameter or buffer, perhaps through a view, or None."""
        storages = {storage(node.meta["example_value"]) for node in self.graph.nodes if node.op in ("placeholder", "get_attr")}
        return next((node for node, written in self.written if storage(written) in storages), None)

    def finish(self, outputs):
        """The captured GraphModule, returning `outputs` as a tuple, and the real example inputs."""
        self.graph.output(tuple(variable.node for variable in outputs))
        used = []
        for variable in self.inputs:
            if variable.node.users:
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
        return torch.fx.GraphModule(root, self.graph, "CapturedGraph"), [variable.value for variable in used]


def storage(fake):
    return fake.untyped_storage()._cdata if fake.layout is torch.strided else id(fake)


def describe(target):
    return f"Tensor.{target}" if isinstance(target, str) else getattr(target, "__qualname__", None) or \
        getattr(target, "__name__", str(target))


def module_path(source):
    """"transformer.h.0.attn" for self.transformer.h[0].attn."""
    parts = []
    while source is not None:
        if source.kind == "item" and source.base is not None and source.base.kind == "item" and source.base.key == "_modules":
            parts.append(str(source.key))
        source = source.base
    return ".".join(reversed(parts))
