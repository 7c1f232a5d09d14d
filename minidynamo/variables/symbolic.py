"""Symbolic numbers: sizes and ints that differ from call to call.

In:   `x.shape[0]` of a tensor with symbolic sizes, an int argument that changed.
Out:  arithmetic on them makes other symbolic numbers; a comparison that the program branches on is
      a guard; where Python itself needs the number (range, a list's length, text) it is pinned:
      `as_constant` answers with the number of this run and guards it.

    >>> tx.binary("+", SymVar(x.shape[0]), ConstantVar(1))      # SymVar, no guard
    >>> SymVar(x.shape[0] > 3).truth(tx)                        # True; guard: x.shape[0] >= 4

`reconstruct` computes the value again from the inputs' sizes: the program gets plain ints.  In the
graph a symbol is a placeholder of its own (`symbolic_int`), before everything that has it as a
size.
Mirrors torch/_dynamo/variables/tensor.py (SymNodeVariable).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import sympy
import torch

from miniinductor.errors import ours
from miniinductor.sizes.symbols import SYMBOLIC

from ..errors import Break
from ..shapes.symbolic_numbers import CALLS, IN_GRAPH, NOT_FINITE, is_of_floats
from ..shapes.symbolic_shapes import can_be_symbolic, fake_like, symbolic_fake
from .base import Codegen, Frame, OutputGraph, Source, Variable
from .constant import ConstantVar


class SymVar(Variable):
    """`value`: a torch.SymInt, SymFloat or SymBool; `node`: its placeholder, of a symbol that is an
    input of the graph.

    What it is asked beside arithmetic (`n.bit_length()`, `table[n]`) is asked of the constant that
    it is in this run, and that is guarded."""

    value: Any
    node: Any = None

    @property
    def fake(self) -> Any:
        """What operations are run with: the number, once the symbols in it are pinned."""
        constant = self.value.node.constant
        return self.value if constant is None else constant

    @property
    def expr(self) -> sympy.Expr:
        """What an input of the graph is computed from: its own symbol.  (Simplified it would be a
        number, once the symbol is pinned.)"""
        return self.value.node._expr

    def python_type(self) -> type:
        return self.value.node.pytype

    def as_constant(self) -> Any:
        node = self.value.node
        return node.guard_bool() if node.pytype is bool else node.guard_int()

    def constant(self) -> ConstantVar:
        return ConstantVar(self.as_constant())

    def hash_key(self, tx: Frame) -> Any:
        return self.as_constant()

    def getattr(self, tx: Frame, name: str) -> Variable:
        if name == "__class__":
            return tx.output.wrap_pinned(self.python_type())
        return self.constant().getattr(tx, name)

    def call_method(self, tx: Frame, name: str, args: Any, kwargs: Any) -> Any:
        return self.constant().call_method(tx, name, args, kwargs)

    def truth(self, tx: Frame) -> bool:
        return bool(self.value) if self.python_type() is bool else bool(self.value != 0)

    def reconstruct(self, cg: Codegen) -> None:
        cg.symbolic(self.value.node.expr)

    def __repr__(self) -> str:
        return f"symbolic {self.value}"


def pinned(variable: Variable) -> Variable:
    """The number of this run, guarded, for a symbol; else the variable itself."""
    return variable.constant() if type(variable) is SymVar else variable


def wrap_symbolic(value: Any) -> Variable:
    """The variable of a SymInt, SymFloat or SymBool; a constant where it depends on no symbol any
    more."""
    constant = value.node.constant
    return SymVar(value) if constant is None else ConstantVar(constant)


def is_number(variable: Variable) -> bool:
    plain = type(variable) is ConstantVar and type(variable.value) in (int, float, bool)
    return plain or type(variable) is SymVar


def apply(tx: Frame, function: Callable, *variables: Any) -> Variable | None:
    """What `function` gives for symbolic and constant numbers; None where torch cannot compute it
    with symbols, or where it raises (a division by zero): the caller computes with numbers then."""
    if not all(map(is_number, variables)):
        return None
    try:
        value = CALLS.get(function, function)(*[variable.value for variable in variables])
        symbolic = type(value) in SYMBOLIC and not value.node.expr.has(*NOT_FINITE)
        if symbolic or type(value) in (int, float, bool):
            return tx.output.wrap_result(value)
    except Break:
        raise
    except ours(Exception):
        pass
    return None


# ---- placeholders of symbols, and nodes that compute with them
def symbolic_fake_of(
    output: OutputGraph, value: torch.Tensor, source: Source, dims: set[int]
) -> torch.Tensor:
    """A fake whose sizes `dims` are symbols; their placeholders come before the tensor's."""
    shape = source.attr("shape")
    output.fake_mode.cache_enabled = False  # its key would be the sizes' hints
    sources = {d: shape.item(d) for d in sorted(dims)}
    fake = symbolic_fake(output.fake_mode, output.shape_env, value, sources)
    add_symbols(output)
    return fake


def symbolic_int(output: OutputGraph, value: int, source: Source) -> SymVar:
    """An int of the arguments as a symbol of its own: any number from 0 on.

    (Sizes stay numbers below 2, since broadcasting depends on them.  An int that is used as a
    size is asked whether it is 0 or 1.)"""
    made = output.shape_env.create_number(value, source)
    add_symbols(output)
    return SymVar(made, source=source)


def add_symbols(output: OutputGraph) -> None:
    """Placeholders of the symbols that have none yet."""
    output.fake_mode.cache_enabled = False
    for symbol, row in output.shape_env.table.items():
        if symbol not in output.symbol_nodes and row.sources and symbol.is_integer:
            value = output.shape_env.wrap(symbol)
            node = output.symbol_nodes[symbol] = output.add_input(symbol.name, value)
            output.inputs.append(SymVar(value, node, source=row.sources[0]))


def symbolic_node(output: OutputGraph, tx: Any, value: Any) -> Any:
    """The node that computes a SymInt, SymFloat or SymBool from the symbols; each expression
    once."""
    if type(value) is torch.SymBool and value.node.has_hint():
        return bool(value)  # decided, and guarded
    if type(value) is not torch.SymBool and is_of_floats(value.node):
        return value.node.guard_int()  # the operation takes no tensor for it

    def build(expr: Any) -> Any:
        if expr.is_number:
            return int(expr) if expr.is_Integer else float(expr)
        node = output.symbol_nodes.get(expr)
        if node is None:
            call = functools.partial(output.graph.call_function, IN_GRAPH[type(expr)])
            first, *others = [build(a) for a in expr.args]
            if others:
                node = functools.reduce(lambda a, b: call((a, b)), others, first)
            else:
                node = call((first,))
            output.describe_node(
                tx, node, output.shape_env.wrap(expr) if expr.is_integer else value
            )
            output.symbol_nodes[expr] = node
        return node

    return build(value.node.expr)


def unwritten_fake(output: OutputGraph, variable: Any) -> torch.Tensor:
    """A fake of the input as it is before the graph runs.  The variable's own fake has seen the
    traced operations: `x.t_()` has swapped its sizes."""
    tensor = variable.value
    if not can_be_symbolic(tensor):
        return variable.fake
    as_it_is = tensor.shape, tensor.stride()
    layout = output.input_layouts.get(id(variable), as_it_is)
    return fake_like(output.fake_mode, tensor, *layout)
