"""Guards as trees that the explorer's page evaluates: what each asks of the call's arguments.

In:   a guard of the document (schema.json), and the names of the arguments that the form shows.
Out:  nested lists, or None where the guard asks nothing of them, or what no form can tell.

    >>> Questions(["x"]).of({"code": "x.dim() == 2", "expected": ""})
    ['compare', ['call', ['attribute', ['argument', 'x'], 'dim']], '==', ['value', 2]]

A guard is Python, so Python takes it apart.  An object that it holds ("P_dtype") stands in the tree
as the text that says which it is.
"""

import ast
from collections.abc import Sequence
from typing import Any

Tree = list[Any]
FUNCTIONS = ("len", "type")  # that the page knows
TYPES = ("int", "float", "bool", "str", "tuple", "list", "dict")
SYMBOLS = {
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.Is: "==",
    ast.IsNot: "!=",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.FloorDiv: "//",
    ast.Mod: "%",
    ast.And: "and",
    ast.Or: "or",
    ast.Not: "not",
    ast.USub: "negative",
}


class Unreadable(Exception):
    """The page cannot know the value of this part."""


class Questions:
    """Trees of guards for a form with these arguments."""

    def __init__(self, arguments: Sequence[str]) -> None:
        self.names = {name: name for name in arguments}
        # a function that takes *args and **kwargs asks for them by place and by name
        self.names |= {f"kwargs[{name!r}]": name for name in arguments}
        self.names |= {f"args[{place}]": name for place, name in enumerate(arguments)}

    def of(self, guard: dict[str, Any]) -> Tree | None:
        """The tree of a guard."""
        if not any(name in guard["code"] for name in self.names):
            return None
        try:
            tree = self.tree(ast.parse(guard["code"], mode="eval").body, guard["expected"])
        except (Unreadable, SyntaxError):
            return None
        return tree if "argument" in str(tree) else None

    def tree(self, node: ast.expr, expected: str) -> Tree:
        below = lambda each: self.tree(each, expected)  # noqa: E731
        known = self.names.get(ast.unparse(node))
        if known is not None:
            return ["argument", known]
        match node:
            case ast.Constant(value=int() | float() | str() | None as value):
                return ["value", value]
            case ast.Tuple(elts=items) | ast.List(elts=items):
                return ["list", *map(below, items)]
            case ast.Attribute(value=value, attr=name):
                return ["attribute", below(value), name]
            case ast.Subscript(value=value, slice=index):
                return ["item", below(value), below(index)]
            case ast.Call(func=ast.Name(id=name), args=[value]) if name in FUNCTIONS:
                return [name, below(value)]
            case ast.Call(func=ast.Attribute() as function, args=values, keywords=[]):
                return ["call", below(function), *map(below, values)]
            case ast.Compare(left=left, ops=ops, comparators=others):
                pairs = zip(map(self.symbol, ops), map(below, others))
                return ["compare", below(left), *(part for pair in pairs for part in pair)]
            case ast.BoolOp(op=op, values=values):
                return [self.symbol(op), *map(below, values)]
            case ast.BinOp(left=left, op=op, right=right):
                return [self.symbol(op), below(left), below(right)]
            case ast.UnaryOp(op=op, operand=operand):
                return [self.symbol(op), below(operand)]
            case ast.Name(id=name) if name in TYPES:
                return ["value", name]
            case ast.Name(id=name) if name.startswith("P_") and expected:
                return ["value", told(expected)]
        raise Unreadable(ast.unparse(node))

    def symbol(self, op: Any) -> str:
        if type(op) not in SYMBOLS:
            raise Unreadable(type(op).__name__)
        return SYMBOLS[type(op)]


def told(expected: str) -> str:
    """An object that a guard holds as the form calls it: device(type='cuda', index=0) is cuda:0."""
    if not expected.startswith("device("):
        return expected
    index = expected.partition("index=")[2].rstrip(")")
    return expected.split("'")[1] + (f":{index}" if index else "")
