"""Script: compile the *source text* of a function, for as much of Python as the compiler knows.

In:   a function whose source can be read.  Out: a `Script`: a list of instructions with nested
      blocks; callable.

    >>> script(function_with_an_if)          # the `if` is in the program
    >>> script(function_with_a_dict)         # NotScriptable: Dict is not part of the language

Mirrors torch.jit.script (torch/jit/frontend.py): a second language that looks like Python.  Control
flow is kept, but every construct has to be written into the compiler; what the program calls must
be in the language too.
"""

import ast
import inspect
import operator
import textwrap
from collections.abc import Callable
from typing import Any

import torch

BINARY = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.MatMult: operator.matmul,
    ast.Pow: operator.pow,
}
COMPARE = {
    ast.Gt: operator.gt,
    ast.Lt: operator.lt,
    ast.GtE: operator.ge,
    ast.LtE: operator.le,
    ast.Eq: operator.eq,
}
MODULES = {"torch": torch, "F": torch.nn.functional}


class NotScriptable(Exception):
    """The function uses something that the language does not have."""


class Script:
    """`body` is a syntax tree that was checked: only what `run` knows is in it."""

    def __init__(self, function: Callable) -> None:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
        found = [n for n in tree.body if isinstance(n, ast.FunctionDef)]
        if len(found) != 1:
            raise NotScriptable("only a function written with `def` can be scripted")
        (self.definition,) = found
        self.parameters = [a.arg for a in self.definition.args.args]
        for statement in self.definition.body:
            self.check(statement)

    KNOWN = (
        ast.Assign,
        ast.Return,
        ast.If,
        ast.While,
        ast.Name,
        ast.Constant,
        ast.BinOp,
        ast.Compare,
        ast.Call,
        ast.Attribute,
        ast.UnaryOp,
        ast.USub,
        ast.Load,
        ast.Store,
        *BINARY,
        *COMPARE,
    )

    def check(self, node: ast.AST) -> None:
        if not isinstance(node, self.KNOWN):
            raise NotScriptable(
                f"line {getattr(node, 'lineno', '?')}: {type(node).__name__} is not part of the "
                "language: "
                f"{ast.unparse(node)}"
            )
        if isinstance(node, ast.Call) and not isinstance(node.func, ast.Attribute):
            raise NotScriptable(
                f"line {node.lineno}: the call of {ast.unparse(node.func)}: only torch functions "
                "and tensor methods"
            )
        for child in ast.iter_child_nodes(node):
            self.check(child)

    def __call__(self, *inputs: Any) -> Any:
        names = dict(MODULES, **dict(zip(self.parameters, inputs, strict=True)))
        return self.block(self.definition.body, names)

    def block(self, statements: list[ast.stmt], names: dict[str, Any]) -> Any:
        for statement in statements:
            if isinstance(statement, ast.Assign):
                (target,) = statement.targets[:1]
                names[target.id] = self.value(statement.value, names)  # type: ignore[attr-defined]
            elif isinstance(statement, ast.Return):
                return self.value(statement.value, names) if statement.value else None
            elif isinstance(statement, ast.If):
                branch = statement.body if self.value(statement.test, names) else statement.orelse
                if (result := self.block(branch, names)) is not None:
                    return result
            elif isinstance(statement, ast.While):
                while self.value(statement.test, names):
                    if (result := self.block(statement.body, names)) is not None:
                        return result
        return None

    def value(self, node: ast.expr, names: dict[str, Any]) -> Any:
        match node:
            case ast.Constant(value):
                return value
            case ast.Name(name):
                if name not in names:
                    raise NotScriptable(
                        f"line {node.lineno}: the name {name!r} is not a parameter or a local "
                        "variable"
                    )
                return names[name]
            case ast.UnaryOp(operand=operand):
                return -self.value(operand, names)
            case ast.BinOp(left, op, right):
                return BINARY[type(op)](self.value(left, names), self.value(right, names))
            case ast.Compare(left, [op], [right]):
                return COMPARE[type(op)](self.value(left, names), self.value(right, names))
            case ast.Attribute(value, name):
                return getattr(self.value(value, names), name)
            case ast.Call(function, args):
                return self.value(function, names)(*[self.value(a, names) for a in args])

    def __repr__(self) -> str:
        return ast.unparse(self.definition)


def script(function: Callable) -> Script:
    """The scripted function; raises NotScriptable with the line that is outside the language."""
    return Script(function)
