"""The FX graph under construction, and what else one attempt at a frame collects: inputs,
attributes, changes of the thread's state, and (in its base class, variables/builder.py) values and
guards.

In:   `call_graph("call_function", torch.add, [x, y], {})` from the evaluator, variables as
      arguments.
Out:  a node in `graph` (executed once with fake tensors) and a variable for its result;
      `finish(outputs)` gives the `fx.GraphModule` and its example inputs for the backend.

    >>> output.call_graph(tx, "call_method", "relu", [x], {})

Parameters and buffers of modules are `get_attr` nodes guarded by identity; other tensors are
placeholders.  Each node's meta holds `example_value`, what it gave for fake tensors, and where in
the program it comes from: `source_line` (file, line, its text), `user_stack` (the calls that led
there), `instruction` (at which byte of the root's code it ends), `module_path` ("h.0.mlp", of the
module that is being called); `stack_trace` is what torch.fx prints where a node fails.

Sizes and ints that may change are symbols, with placeholders of their own (variables/symbolic.py).

    with torch.no_grad():   # a change of grad mode or autocast is a node, and made while tracing
        y = x + 1
        graph_break()       # the replacement code sets grad mode to False again behind the graph

Mirrors torch/_dynamo/output_graph.py (paper sections 3.5 and 5).  Left out: inference mode and
devices that are entered in a frame (the graph breaks there).
"""

import builtins
import contextlib
import functools
import keyword
import linecache
import re
import sys
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.fx
from torch._dispatch.python import enable_python_dispatcher

from miniinductor.autograd.fake_mode import FakeMode, let_go
from miniinductor.errors import ours

from .. import config
from ..errors import Break, SkipFrame
from ..guards.originals import replaced_in_tensor
from ..guards.sources import numbered
from ..shapes.dynamic import SizePolicy
from ..shapes.symbolic_shapes import ShapeEnv
from ..variables.base import Args, Named, Variable, current_line, lookup
from ..variables.classes import GlobalsVar
from ..variables.floats import with_tensors
from ..variables.tensor import TensorVar, failure, select_symbols, wrap_non_tensor
from ..variables.builder import Builder
from . import graph_module
from .graph_module import holds_tensor


@dataclass
class StateChanges:
    """What a frame does to the thread's state."""

    # (setter, its first arguments) -> value, of what the frame sets
    before: dict[Any, Any] = field(default_factory=dict)
    after: dict[Any, Any] = field(default_factory=dict)
    autocast_depth: int = 0  # autocast regions entered less those left


SIZE = re.compile(r"[su]\d+")  # what the symbols of sizes are called, here and in the backend


@functools.cache
def reserved_names() -> set[str]:
    """Names that mean something in the text, or in an object, of an `fx.GraphModule`."""
    module = torch.fx.GraphModule(torch.nn.Module(), torch.fx.Graph())
    words = (*keyword.kwlist, *dir(builtins), *torch.fx.graph._custom_builtins)
    return {"self", *words, *dir(module)}


# ---- which tensors an operation has written: those that are not as they were
def state_of(tensor: torch.Tensor) -> Any:
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


def plain(sizes: Iterable[Any]) -> tuple[Any, ...]:
    """Sizes as things that can be compared.

    `s0 == s1` of two symbolic sizes would be a decision, with a guard: their expressions are
    compared.  They are not simplified: that the operation has found s0 to be 3 is no write."""
    return tuple([n.node._expr if type(n) is torch.SymInt else n for n in sizes])


def changed(given: list[tuple[torch.Tensor, Any]]) -> list[torch.Tensor]:
    """The tensors whose state has changed since it was taken."""
    return [tensor for tensor, state in given if state is None or state != state_of(tensor)]


def states(args: Iterable[Any], kwargs: dict[str, Any]) -> list[tuple[torch.Tensor, Any]]:
    """[(tensor, state)] of the tensors among the arguments, also those in lists."""
    return [
        (leaf, state_of(leaf))
        for arg in (*args, *kwargs.values())
        for leaf in (arg if type(arg) in (list, tuple) else (arg,))
        if isinstance(leaf, torch.Tensor)
    ]


def check_operator(target: Any, args: Iterable[Variable]) -> None:
    """An operator on tensors is what torch has made it: `torch.Tensor.__add__` may be replaced,
    too."""
    if any(type(arg) is TensorVar for arg in args):
        name = target.__name__.strip("_")
        for special in (f"__{name}__", f"__r{name}__"):
            owner, found = lookup(torch.Tensor, special)
            if replaced_in_tensor(owner, special, found):
                raise Break("tensor method", f"Tensor.{special}, which the program has replaced")


class OutputGraph(Builder):
    """One attempt.  `inputs` are the variables of the placeholders, in their order: a symbol comes
    before the tensors that have it as a size."""

    def __init__(self, generates_code: bool, policy: SizePolicy) -> None:
        super().__init__()
        # does the backend rely on parameters' shapes and devices?
        self.generates_code = generates_code
        self.policy = policy
        # the graph
        self.graph = torch.fx.Graph()
        self.inputs: list[Any] = []
        self.last_input: torch.fx.Node | None = None
        self.attributes: dict[str, torch.Tensor] = {}
        self.names: dict[str, int] = {}  # of placeholders and attributes
        self.calls = 0  # nodes that compute something
        self.read_functions: set[Any] = set()  # of torch's, whose calls are guarded
        self.written: list[tuple[torch.fx.Node, torch.Tensor]] = []  # (node, what it changed)
        # fake tensors and symbols
        self.shape_env = ShapeEnv(current_line)
        self.fake_mode = FakeMode(static_shapes=True)
        self.symbol_nodes: dict[Any, Any] = {}  # expression over the symbols -> node
        # source of a float that changes -> its variable; expression over such -> its 0-d tensor
        self.floats: dict[Any, Any] = {}
        self.input_layouts: dict[int, Any] = {}  # id of an input -> (sizes, strides)
        self.globals: dict[int, GlobalsVar] = {}
        self.modules: list[Any] = []  # (and optimizers: their entries go with them)
        self.module_paths: list[str] = []  # of the modules that are being called
        self.state = StateChanges()
        self.errors: Any = None  # of the finished graph: conversion.GraphErrors
        self.makers: dict[int, Any] = {}  # id of an object made anew in each call -> its maker
        # does the frame run in an `except` block of its callers?
        self.handling = sys.exc_info()[1] is not None
        self.steps = 0  # instructions that were traced
        self.root: Any = None  # the outermost frame

    def let_go(self) -> None:
        """Once the frame is compiled, the program's objects do not live on with the attempt: fake
        tensors hold the shape environment through C++, where the collector sees no cycle."""
        frame, self.root = self.root, None
        tables: list[Any] = [self.memo, self.pinned_memo, self.by_fake, self.sourced, self.globals]
        if frame is not None:
            tables += [frame.locals, frame.bound, frame.cells, frame.stack]
        for table in tables:
            table.clear()
        let_go(self.fake_mode)

    def count_step(self) -> None:
        """Count one instruction, or one step of an iteration.  An analysis that does not end
        (`for _ in itertools.repeat(None)`) breaks the graph."""
        self.steps += 1
        if self.steps > config.step_limit:
            raise Break(
                "limit",
                f"more than {config.step_limit} instructions in the calls of one frame "
                "(config.step_limit)",
            )

    # ---- methods that lie in graph_module.py, where `self` is called `output`
    wrap_output = graph_module.wrap_output
    wrap_result = graph_module.wrap_result
    to_fake = graph_module.to_fake
    to_node = graph_module.to_node
    finish = graph_module.finish

    def globals_of(self, values: dict[str, Any]) -> GlobalsVar:
        found = self.globals.get(id(values))
        if found is None:
            found = self.globals[id(values)] = GlobalsVar(values, self)
        return found

    # ---- inputs
    def unique_name(self, text: str) -> str:
        """A name for a placeholder or an attribute of the graph that nothing else in the generated
        module has."""
        text = re.sub("[^0-9A-Za-z]+", "_", text).strip("_")
        text = text if text and not text[0].isdigit() else "t_" + text
        reserved = SIZE.fullmatch(text) or text in reserved_names()
        return numbered(text + "_" if reserved else text, self.names)

    def add_attribute(self, name: str, fake: Any) -> torch.fx.Node:
        """The node that reads a parameter or buffer."""
        node = self.graph.create_node("get_attr", name, name=name)
        node.meta["example_value"] = fake
        return node

    def add_input(self, name: str, fake: Any) -> torch.fx.Node:
        """A placeholder: behind the others, and before everything else."""
        last = self.last_input
        with self.graph.inserting_after(last) if last else self.graph.inserting_before():
            node = self.last_input = self.graph.create_node("placeholder", name, name=name)
        if not SIZE.fullmatch(name):
            # the parameter of the generated function is called what the node is; a backend
            # knows sizes by their symbols
            node.target = node.name
        node.meta["example_value"] = fake
        return node

    def fake_of(self, tensor: torch.Tensor) -> torch.Tensor:
        with warnings.catch_warnings():  # torch reads `.grad` of what is no leaf
            warnings.simplefilter("ignore")
            try:
                return self.fake_mode.from_tensor(tensor, static_shapes=True)
            except ours(AssertionError) as error:
                # of a view, after its base changed (requires_grad_) while tracing
                raise Break("fake tensor", f"a tensor whose base changed: {error}") from None

    # ---- nodes
    def call_graph(self, tx: Any, op: str, target: Any, args: Args, kwargs: Named) -> Variable:
        """Run the op once on fake tensors, record it as a node, and wrap its result."""
        if getattr(target, "__module__", None) == "_operator":
            check_operator(target, (*args, *kwargs.values()))
            if not isinstance(args[0], TensorVar):
                target = graph_module.FUNCTIONS.get(target, target)
        args = select_symbols(tx, target, args)
        target, args, kwargs = with_tensors(tx, target, args, kwargs)
        fake_args = [self.to_fake(a) for a in args]
        fake_kwargs = {k: self.to_fake(v) for k, v in kwargs.items()}
        given = states(fake_args, fake_kwargs)
        result = self.run_fake(op, target, fake_args, fake_kwargs)
        written = changed(given)
        if "as_strided" in getattr(target, "__name__", target):
            self.guard_offsets([tensor for tensor, _ in given])
        if not holds_tensor(result):
            return wrap_non_tensor(self, tx, op, target, args, kwargs, result, written)
        known = self.by_fake.get(id(result))
        if known is not None and not written:
            # a tensor that was known came back: x.contiguous(), dropout(x, training=False)
            return known
        node = self.add_node(tx, op, target, args, kwargs, result)
        self.written += [(node, tensor) for tensor in written]
        return self.wrap_output(node, result)

    def run_fake(self, op: str, target: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """What the op gives for fake tensors.  Raises `Break` where only the run can tell."""
        # torch's rules in Python are those for symbolic sizes
        dispatcher: Any = enable_python_dispatcher if self.symbol_nodes else contextlib.nullcontext
        try:
            with self.fake_mode, dispatcher():
                if op == "call_function":
                    return target(*args, **kwargs)
                return getattr(args[0], target)(*args[1:], **kwargs)
        except (Break, SkipFrame):
            raise
        except ours(Exception) as error:
            raise failure(self, target, args, error) from None

    def add_node(
        self, tx: Any, op: str, target: Any, args: Args, kwargs: Named, result: Any
    ) -> torch.fx.Node:
        positional = tuple(self.to_node(a) for a in args)
        named = {k: self.to_node(v) for k, v in kwargs.items()}
        torch.fx.node.map_aggregate((positional, named), graph_module.check_printed)
        node = self.graph.create_node(op, target, positional, named)
        self.calls += 1
        return self.describe_node(tx, node, result)

    def describe_node(self, tx: Any, node: torch.fx.Node, result: Any) -> torch.fx.Node:
        """Set the node's meta: its example value, and where in the program it comes from."""
        stack = tx.user_stack()
        file, line, function = stack[-1]
        text = linecache.getline(file, line).strip()
        info, pc = self.root.info, self.root.pc
        node.meta.update(
            example_value=result,
            user_stack=stack,
            instruction=info.operations[pc - 1].instruction.end,
            source_line=(file, line, text),
        )
        if self.module_paths:
            node.meta["module_path"] = self.module_paths[-1]
        node.stack_trace = f'  File "{file}", line {line}, in {function}\n    {text}'
        return node
