"""The code that is read is the code that runs: no file changes what another one has."""

import ast
import contextlib
import functools
import gc
import importlib
import inspect
import re
import textwrap
import types
from pathlib import Path

import pytest
import torch

import minidynamo

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("minidynamo", "miniinductor")
OURS = tuple(str(ROOT / package) for package in PACKAGES)
TREES = {p: ast.parse(p.read_text()) for o in OURS for p in sorted(Path(o).rglob("*.py"))}
# methods that change a table or a list
CHANGES = set("update append insert extend setdefault add clear pop popitem remove discard".split())
FILLS = {  # files that set attributes by name, or write into a `__dict__` -> of what
    "minidynamo/api.py": "the program's module; itself, past its own __setattr__",
    "minidynamo/backends.py": "the program's function",
    "minidynamo/frame/frame_hook.py": "a new object, named like the program's function",
    "minidynamo/shapes/dynamic.py": "the program's tensor",
    "minidynamo/variables/objects.py": "the program's object, made again",
    "minidynamo/explain/explanation.py": "itself: a stage is kept",
    "minidynamo/explain/command.py": "the program's __main__",
    "miniinductor/options.py": "a module's options, for a block of the program",
}  # (a class of ours may be filled in its own file)
# Classes with a __getattr__: of the program's module, of torch, of Triton, of their own file.
ANSWER_FOR_OTHERS = set(
    "CompiledModule Libdevice CheckedMemory FrameExplanation Explanation".split()
)
CHANGES_LIBRARIES = {  # files that write into what another project defines, or its loggers
    "minidynamo/convert/convert_frame.py": "torch's logger says nothing of what a break tells",
    "minidynamo/explain/command.py": "sys: the program's arguments and __main__",
    "minidynamo/explain/__init__.py": "sys.modules: its own entry",
    "minidynamo/explain/redirect.py": "torch.compile, on purpose",
    "miniinductor/codegen/triton/interpreter.py": "Triton's interpreter, which is for tests alone",
    "miniinductor/codegen/triton/worker.py": "os.environ of a process of ours",
}
ASSEMBLES = {  # files that make something of a class or module when another file defines it
    "minidynamo/explain/__init__.py": "itself: a module that is called",
    "minidynamo/variables/base.py": "constructors from annotated names, as @dataclass does",
    "miniinductor/options.py": "a config.py, which asks for it",
}
OF_FX = {*dir(torch.fx.Node), "target", "args", "kwargs", "meta"}  # attributes of torch's nodes
OUTSIDE_WRITES = 117  # fields of a record, a frame, a writer of kernels... set by another file


def dotted(path):
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def is_ours(module):
    return str(module).startswith(PACKAGES)


def nodes(kind, *trees):
    return (n for tree in trees or TREES.values() for n in ast.walk(tree) if isinstance(n, kind))


def ours():
    """The modules of both packages, all of them loaded."""
    return [importlib.import_module(dotted(p)) for p in TREES if p.stem != "__main__"]


def classes_of(module):
    """(class, its class line)"""
    lines = {node.name: node for node in nodes(ast.ClassDef, TREES[Path(module.__file__)])}
    for cls in vars(module).values():
        if isinstance(cls, type) and cls.__module__ == module.__name__:
            yield cls, lines.get(cls.__name__)


def files_of(value):
    """Files of ours in which the functions lie that a value is made of."""
    for part in [value, *[getattr(value, name, None) for name in ("__func__", "fget", "fset")]]:
        code = getattr(inspect.unwrap(part) if callable(part) else part, "__code__", None)
        if isinstance(code, types.CodeType) and code.co_filename.startswith(OURS):
            yield code.co_filename


def named_in(line):
    """What a class's body defines by a name that one can look for."""
    for statement in line.body if line else ():
        if isinstance(statement, (ast.FunctionDef, ast.ClassDef)):
            yield statement.name
        for target in getattr(statement, "targets", [getattr(statement, "target", None)]):
            yield from (n.id for n in ast.walk(target) if isinstance(n, ast.Name)) if target else ()


def foreign_methods(module):
    """module.Class.method, for methods that another file has put there.  (A decorator or a keyword
    of the class line is read with the class.)"""
    for cls, line in classes_of(module):
        if line and (line.decorator_list or line.keywords):
            continue
        for name, value in vars(cls).items():
            if {*files_of(value)} - {module.__file__} and name not in set(named_in(line)):
                yield f"{module.__name__}.{cls.__name__}.{name}"


def chain_of(node):
    """The names of `a.B["c"].d` or `vars(a)`, the root first."""
    if isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("vars", "getattr", "type"):
        return [*chain_of(node.args[0]), node.func.id] if node.args else []
    if isinstance(node, (ast.Attribute, ast.Subscript)):
        return [*chain_of(node.value), getattr(node, "attr", "[]")]
    return [node.id] if isinstance(node, ast.Name) else []


def imported(tree):
    """The names of a file that were imported from files of ours."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.level or is_ours(node.module)):
            yield from (alias.asname or alias.name for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (a.asname or a.name.split(".")[0] for a in node.names if is_ours(a.name))
        elif isinstance(node, (ast.Assign, ast.AnnAssign)) and isinstance(node.value, ast.Call):
            if ast.unparse(node.value.func).endswith("import_module"):
                stored = (n for n in nodes(ast.Name, node) if isinstance(n.ctx, ast.Store))
                yield from (name.id for name in stored)


def written(node):
    """The names of what a node writes into, the root first."""
    if isinstance(node, (ast.Attribute, ast.Subscript)) and not isinstance(node.ctx, ast.Load):
        return chain_of(node)
    if isinstance(node, ast.AugAssign):
        return chain_of(node.target)
    if isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("setattr", "delattr"):
        return chain_of(node.args[0])
    if isinstance(node, ast.Call) and getattr(node.func, "attr", "") in CHANGES:
        names = chain_of(node.func.value)
        return names if names[1:] or names and names[0].isupper() else []
    return []


def foreign_writes(tree, name):
    """Where something is written into that was imported from a file of ours."""
    names = set(imported(tree))
    for node in ast.walk(tree):
        if names & {*written(node)[:1]}:
            yield f"{name}:{node.lineno}: {ast.unparse(node)[:80]}"


def test_other_projects_are_changed_and_classes_assembled_in_few_places():
    changing, assembling = set(), set()
    for path, tree in TREES.items():
        imports = (*nodes(ast.Import, tree), *nodes(ast.ImportFrom, tree))
        names = {(a.asname or a.name).split(".")[0] for n in imports for a in n.names}
        names -= set(imported(tree))
        for node in ast.walk(tree):
            file, chain = path.relative_to(ROOT).as_posix(), written(node)
            if names & {*chain[:1]} or getattr(node, "attr", "") in ("addFilter", "addHandler"):
                changing.add(file)
            if getattr(node, "name", "") == "__init_subclass__" or "__class__" in chain[1:]:
                assembling.add(file)
    assert (changing, assembling) == (CHANGES_LIBRARIES.keys(), ASSEMBLES.keys())


def test_no_file_gives_methods_to_a_class_of_another_one():
    assert [method for module in ours() for method in foreign_methods(module)] == []


def test_no_file_writes_into_what_it_has_imported():
    assert [write for path in TREES for write in foreign_writes(TREES[path], dotted(path))] == []


PLANTED = """setattr(Graph, '__repr__', text); Graph.rank = 3; graph, Graph.rank = 4, 3
HANDLERS['RETURN'] = returned; del HANDLERS['RETURN']; HANDLERS.update(more); HANDLERS |= more
core.HANDLERS.clear(); records.frames.append(more); vars(core).update(more); ir.origin = 3"""


@pytest.mark.parametrize("planted", re.split("; |\n", PLANTED))
def test_the_check_finds_a_planted_one(planted):
    imports = "from . import core, records\nfrom .core import Graph, HANDLERS\n"
    imports += "ir = importlib.import_module('miniinductor.ir')\n"
    assert [*foreign_writes(ast.parse(imports + planted), "planted")]


def test_a_method_that_is_put_into_a_class_is_found(monkeypatch):
    from minidynamo.guards import checks, sources

    monkeypatch.setattr(sources.Source, "planted", checks.exact_key, raising=False)
    assert "minidynamo.guards.sources.Source.planted" in [*foreign_methods(sources)]


def fills():
    for path, tree in TREES.items():
        classes = {node.name for node in nodes(ast.ClassDef, tree)}
        for node in ast.walk(tree):
            by = {getattr(getattr(node, "func", None), "id", "")} & {"setattr", "delattr"}
            by = by or {"vars", "__dict__"} & {*written(node)}
            if by and written(node)[0] not in classes:
                yield path.relative_to(ROOT).as_posix()


def test_attributes_are_set_by_name_on_objects_of_the_program_alone():
    assert set(fills()) == FILLS.keys()


def test_classes_stand_in_class_lines_with_four_bases_and_answer_for_no_other_file():
    for module in ours():
        for cls, line in classes_of(module):
            assert line, f"{cls} is assembled by a call"
            assert len(line.bases) <= 4, cls
    makers = ("type", "types.new_class", "make_dataclass")
    calls = [call for call in nodes(ast.Call) if ast.unparse(call.func) in makers]
    assert [ast.unparse(call) for call in calls if len(call.args) > 1] == []
    asked = {"__getattr__", "__getattribute__"}
    found = {node.name for node in nodes(ast.ClassDef) if asked & set(named_in(node))}
    assert found == ANSWER_FOR_OTHERS


def outside_writes():
    """`record.graph = ...` in another file than the class's, found by the field's name."""
    owners = {}
    for path, tree in TREES.items():
        for line in nodes(ast.ClassDef, tree):
            own = [n.attr for n in nodes(ast.Attribute, line) if written(n)[:-1] == ["self"]]
            for name in (*named_in(line), *own):
                owners.setdefault(name, set()).add(path)
    for path, tree in TREES.items():
        for node in nodes(ast.Attribute, tree):
            elsewhere = owners.get(node.attr, set()) - {path}
            if written(node)[1:] and elsewhere == owners.get(node.attr) and node.attr not in OF_FX:
                yield f"{dotted(path)}:{node.lineno}: {ast.unparse(node)}"


def test_fields_are_rarely_set_from_outside():
    found = [one for one in outside_writes() if "redirect" not in one]  # torch.compile, on purpose
    assert len(found) <= OUTSIDE_WRITES, "\n".join(found)


# --- while a program compiles ---------------------------------------------------------------------
def code_of():
    """Place -> function or class of ours: in modules, in their tables, and in classes."""
    found = {}
    for module in ours():
        places = {(module.__name__,): vars(module)}
        for name, value in vars(module).items():
            if type(value) is dict and name.isupper():
                places[module.__name__, name] = value
        for cls, _ in classes_of(module):
            places[module.__name__, cls.__name__] = vars(cls)
        for place, table in places.items():
            for key, value in [*table.items()]:
                if any(files_of(value)) or isinstance(value, type) and is_ours(value.__module__):
                    found[*place, key] = value
    return found


def changes(before):
    now = code_of()
    lazily = {
        (package,) for package in PACKAGES
    }  # `minidynamo.compile` is looked up when asked for
    added = {place for place in now.keys() - before.keys() if place[:-1] not in lazily}
    return added | {place for place, value in before.items() if now.get(place) is not value}


def train(backend="inductor"):
    module = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4), torch.nn.ReLU())
    explained = minidynamo.explain(module, backend=backend, dynamic=True)(torch.randn(3, 4))
    explained.result.sum().backward()
    return explained


def test_compiling_and_explaining_change_no_code():
    train()
    before, meanwhile = code_of(), []

    def backend(gm, inputs):
        meanwhile.extend(changes(before))
        return minidynamo.backends.inductor(gm, inputs)

    train(backend)
    train().to_json()
    assert not meanwhile and not changes(before), changes(before)


def test_a_function_that_is_swapped_is_found(monkeypatch):
    before = code_of()
    monkeypatch.setattr(minidynamo.records, "remember", print)
    rules = importlib.import_module("miniinductor.lowering").LOWERINGS
    monkeypatch.setitem(rules, "print", next(iter(rules.values())))
    places = {("minidynamo.records", "remember"), ("miniinductor.lowering", "LOWERINGS", "print")}
    assert places <= changes(before)


@functools.cache
def declared(cls):
    """Names that a class defines, annotates, or writes as `self.name`; of a library's class also
    what the rest of its file writes."""
    names = set(vars(cls))
    with contextlib.suppress(TypeError):
        names |= inspect.get_annotations(cls).keys()
    own = is_ours(cls.__module__)
    with contextlib.suppress(OSError, TypeError):  # a class of C has no text
        text = inspect.getsource(cls if own else inspect.getmodule(cls))
        for node in ast.walk(ast.parse(textwrap.dedent(text))):
            if isinstance(node, ast.Attribute) and (not own or ast.unparse(node.value) == "self"):
                names.add(node.attr)
    return names


def undeclared():
    """Attributes of objects of ours that no class declares."""
    found = set()
    for value in gc.get_objects():
        cls = type(value)
        if is_ours(cls.__module__) and not isinstance(value, (type, types.ModuleType)):
            names = getattr(value, "__dict__", {}).keys() - set().union(*map(declared, cls.__mro__))
            found |= {f"{cls.__module__}.{cls.__name__}.{name}" for name in names}
    return found


def test_classes_declare_the_attributes_of_their_objects():
    meanwhile = set()

    def backend(gm, inputs):
        meanwhile.update(undeclared())
        return minidynamo.backends.inductor(gm, inputs)

    explained = train(backend)
    assert explained and meanwhile | undeclared() == set()
    explained.planted = 3
    assert undeclared() == {"minidynamo.explain.explanation.Explanation.planted"}


# --- tables ---------------------------------------------------------------------------------------
def test_tables_refuse_a_second_entry():
    from miniinductor import devices

    opcodes = importlib.import_module("minidynamo.evaluate.opcodes")
    for second in (
        lambda: opcodes.register("BINARY_OP", print),
        lambda: minidynamo.register_backend(print, name="inductor"),
        lambda: devices.register_device(devices.Device("cpu")),
        lambda: devices.register_language(devices.LANGUAGES["cpp"]),
    ):
        with pytest.raises(ValueError):
            second()


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
