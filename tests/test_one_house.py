"""The code that is read is the code that runs: what one file still changes in another one.

The numbers may only fall; at zero these tests stay.
"""

import ast
import importlib
import inspect
import types
from pathlib import Path

import pytest
import torch

import minidynamo

ROOT = Path(__file__).resolve().parent.parent
FOREIGN_METHODS = 2  # methods that a class has from another file, and does not name in its body
FOREIGN_WRITES = 19  # statements that write into a class, module or table of another file
TABLES = ("update", "append", "insert", "extend", "setdefault", "add")
RECORDED = ("records",)  # what is counted there is data, not code


def ours():
    """The modules of both packages without the explorer, all of them loaded."""
    for package in ("minidynamo", "miniinductor"):
        for path in sorted((ROOT / package).rglob("*.py")):
            name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
            if path.stem != "__main__" and not name.startswith("minidynamo.explain"):
                yield importlib.import_module(name.removesuffix(".__init__"))


def functions_of(value):
    parts = [value]
    if isinstance(value, (staticmethod, classmethod)):
        parts = [value.__func__]
    if isinstance(value, property):
        parts = [value.fget, value.fset]
    codes = [getattr(inspect.unwrap(p) if callable(p) else p, "__code__", None) for p in parts]
    return [code for code in codes if isinstance(code, types.CodeType)]


def named_in(body):
    """What a class's body defines by a name that one can look for."""
    for statement in body:
        if isinstance(statement, (ast.FunctionDef, ast.ClassDef)):
            yield statement.name
        for target in getattr(statement, "targets", [getattr(statement, "target", None)]):
            yield from (n.id for n in ast.walk(target) if isinstance(n, ast.Name)) if target else ()


def decorated(cls, tree):
    """Has the class a decorator, or does its file give it to a function (`family(Cpp, UNARY)`)?"""
    classes = [n for n in ast.walk(tree) if isinstance(n, ast.ClassDef) and n.name == cls.__name__]
    calls = [
        n.value for n in tree.body if isinstance(n, ast.Expr) and isinstance(n.value, ast.Call)
    ]
    given = [root_of(argument) for call in calls for argument in call.args[:1]]
    return any(node.decorator_list for node in classes) or cls.__name__ in given


def foreign_methods(module):
    """module.Class.method, for methods that another file has put there.  (A decorator that stands
    above the class is read with it.)"""
    tree = ast.parse(Path(module.__file__).read_text())
    bodies = {n.name: set(named_in(n.body)) for n in ast.walk(tree) if isinstance(n, ast.ClassDef)}
    for cls in vars(module).values():
        if not isinstance(cls, type) or cls.__module__ != module.__name__ or decorated(cls, tree):
            continue
        for name, value in vars(cls).items():
            files = {code.co_filename for code in functions_of(value)}
            foreign = [f for f in files if f.startswith(str(ROOT)) and f != module.__file__]
            if foreign and name not in bodies.get(cls.__name__, ()):
                yield f"{module.__name__}.{cls.__name__}.{name}"


def root_of(node):
    while isinstance(node, (ast.Attribute, ast.Subscript)):
        node = node.value
    return node.id if isinstance(node, ast.Name) else None


def foreign_writes(text, name):
    """Statements that write into something that was imported from a file of ours."""
    tree = ast.parse(text)
    imported = {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.level or node.module.startswith("mini"))
        for alias in node.names
    } - set(RECORDED)
    for node in ast.walk(tree):
        targets = []
        if isinstance(node, ast.Assign):
            targets = [t for t in node.targets if not isinstance(t, ast.Name)]
        elif isinstance(node, ast.AugAssign):
            targets = [node.target]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            targets = node.args[:1] if node.func.id == "setattr" else []
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            root = root_of(node.func.value) or ""
            targets = [node.func.value] if node.func.attr in TABLES and root.isupper() else []
        if any(root_of(target) in imported for target in targets):
            yield f"{name}:{node.lineno}: {ast.unparse(node)[:80]}"


def test_no_file_gives_methods_to_a_class_of_another_one():
    found = [method for module in ours() for method in foreign_methods(module)]
    assert len(found) <= FOREIGN_METHODS, "\n".join(found)


def test_no_file_writes_into_what_it_has_imported():
    texts = [(Path(module.__file__).read_text(), module.__name__) for module in ours()]
    found = [write for text, name in texts for write in foreign_writes(text, name)]
    assert len(found) <= FOREIGN_WRITES, "\n".join(found)


@pytest.mark.parametrize(
    "planted",
    [
        "setattr(Graph, '__repr__', text)",
        "Graph.rank = 3",
        "HANDLERS['RETURN'] = returned",
        "HANDLERS.update(more)",
        "HANDLERS |= more",
    ],
)
def test_the_check_finds_a_planted_one(planted):
    assert [*foreign_writes(f"from .core import Graph, HANDLERS\n{planted}\n", "planted")]


def test_a_method_that_is_put_into_a_class_is_found(monkeypatch):
    from minidynamo.guards import checks, sources

    monkeypatch.setattr(sources.Source, "planted", checks.exact_key, raising=False)
    assert "minidynamo.guards.sources.Source.planted" in [*foreign_methods(sources)]


@pytest.mark.parametrize("table", ["RULES", "SHARED", "BY_VALUE", "PINNED"])
def test_a_key_is_entered_once(table):
    from minidynamo.variables import registry

    minidynamo.compile(torch.sin, backend="eager")  # fills the tables
    entries = getattr(registry, table)
    key = next(iter(entries))
    with pytest.raises(ValueError) as raised:
        entries[key] = None
    places = str(raised.value).split(" is entered by ")[1].split(" and again by ")
    assert places[0].startswith(str(ROOT / "minidynamo")) and places[0] == entries.places[key]
    assert places[1].startswith(__file__)


def test_a_program_may_replace_its_own_entry():
    """As a cell of a notebook that is run again."""
    from minidynamo.variables.registry import Table

    table = Table()
    for _ in range(2):
        table("mine")(len)
    table("mine")(max)
    assert table["mine"] is max
