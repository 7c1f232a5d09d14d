"""The dependency rule, the list of what may be used of torch, and what every file must have."""

import ast
import tomllib
from pathlib import Path

import networkx
import pytest

from tools import sizes
from tools.sizes import file_imports

ROOT = Path(__file__).resolve().parent.parent
FILES = sorted(
    p for package in ("minidynamo", "miniinductor") for p in (ROOT / package).rglob("*.py")
)
FORBIDDEN = (
    "torch._dynamo",
    "torch._inductor",
    "torch._functorch",
    "torch._C._dynamo",
    "torch.fx.experimental.proxy_tensor",
    "torch.fx.experimental.symbolic_shapes",
    "torch.jit",
    "torch.export",
)
REACHES_INDUCTOR = ("minidynamo/backends.py", "minidynamo/errors.py", "minidynamo/explain/")


def name(path):
    return str(path.relative_to(ROOT))


def dotted(node):
    parts = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(parts)]) if isinstance(node, ast.Name) else ""


def imports(tree):
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif (
            isinstance(node, ast.Call)
            and dotted(node.func).endswith("import_module")
            and node.args
            and isinstance(node.args[0], ast.Constant)
        ):
            yield node.args[0].value


def uses(tree):
    """Imports, and attributes of torch that are called or handed on as functions."""
    yield from imports(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            yield dotted(node.func)


def forbidden_uses(source):
    return sorted(
        {
            u
            for u in uses(ast.parse(source))
            if u and (u == "torch.compile" or u.startswith(FORBIDDEN))
        }
    )


@pytest.mark.parametrize("path", FILES, ids=name)
def test_uses_nothing_of_torchs_own_compiler(path):
    harmless = ("torch.jit.is_scripting", "torch.jit.is_tracing")
    found = [use for use in forbidden_uses(path.read_text()) if use not in harmless]
    assert not found, f"{name(path)} uses {found}"


def test_one_file_names_torchs_entry_point_to_replace_it():
    """explain --redirect: the one allowed mention, which is no call."""
    named = {
        name(path)
        for path in FILES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute) and dotted(node) == "torch.compile"
    }
    assert named == {"minidynamo/explain/redirect.py"}


@pytest.mark.parametrize(
    "source",
    [
        "import torch._dynamo",
        "from torch import _inductor",
        "torch.compile(f)",
        "from torch.fx.experimental.proxy_tensor import make_fx",
        "torch.jit.trace(f, x)",
    ],
)
def test_the_check_itself_fails_on_a_planted_use(source):
    assert forbidden_uses(source)


@pytest.mark.parametrize("path", FILES, ids=name)
def test_data_flows_one_way(path):
    used = set(imports(ast.parse(path.read_text())))
    if name(path).startswith("miniinductor/"):
        assert not any(u.split(".")[0] == "minidynamo" for u in used)
    elif not name(path).startswith(REACHES_INDUCTOR):
        reached = [u for u in used if u.split(".")[0] == "miniinductor" and u != "miniinductor"]
        shared = tuple(
            f"miniinductor.{part}"
            for part in (
                "sizes",
                "errors",
                "options",
                "__version__",
                "autograd.fake_mode",
                "autograd.eager_graphs",
            )
        )
        assert all(u.startswith(shared) for u in reached), reached


def circles(edges):
    """Sets of files that import one another."""
    graph = networkx.DiGraph(edges)
    return [sorted(c) for c in networkx.strongly_connected_components(graph) if len(c) > 1]


@pytest.mark.parametrize("package", ["miniinductor", "minidynamo"])
def test_no_circle_of_files(package):
    files = [path for path in FILES if name(path).startswith(f"{package}/")]
    assert not circles(file_imports(files))


def folder_of(file):
    """miniinductor/runtime/memory.py -> miniinductor/runtime; a file in none is its own."""
    package, *inside = file.split("/")
    return f"{package}/{inside[0]}"


def test_no_circle_of_folders_in_miniinductor():
    """Each folder, and each file beside them, is reached by later ones alone: runtime (what runs
    while a compiled graph is called) knows none of those that compile, autograd no lowering, the
    writers of kernels neither the plan of memory nor the wrapper."""
    files = [path for path in FILES if name(path).startswith("miniinductor/")]
    edges = {(folder_of(a), folder_of(b)) for a, b in file_imports(files)}
    assert not circles({(a, b) for a, b in edges if a != b})


def test_the_check_of_circles_itself_fails_on_a_planted_one(tmp_path):
    (tmp_path / "a.py").write_text("def f():\n    from .b import g\n")
    (tmp_path / "b.py").write_text("from . import a\n")
    files = [tmp_path / "a.py", tmp_path / "b.py"]
    assert circles(file_imports(files, tmp_path)) == [["a.py", "b.py"]]


def test_the_packages_keep_their_budget_and_functions_their_limits():
    assert sizes.broken_rules() == []


def test_the_check_of_sizes_itself_fails_on_what_is_too_large(tmp_path, monkeypatch):
    (tmp_path / "data.json").write_text("[1,\n2]\n")
    assert sizes.text_size(tmp_path / "data.json") == sizes.Size(2, 5)
    monkeypatch.setattr(sizes, "BUDGET", (0, 0))
    monkeypatch.setattr(sizes, "BENCHMARKS_BUDGET", 10)
    monkeypatch.setattr(sizes, "LIMITS", (5, 3))
    found = sizes.broken_rules()
    assert "are allowed" in found[0] and any("complexity" in sentence for sentence in found)
    assert any("lines of the benchmarks; 10 are allowed" in sentence for sentence in found)


def strictly_typed():
    """The modules, some with a star, in which mypy asks every function for its types."""
    for part in tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["mypy"]["overrides"]:
        if part.get("disallow_untyped_defs"):
            yield from part["module"]


def means(pattern, module):
    """`a.*` is `a` and what is in it."""
    return pattern == module or pattern.endswith(".*") and f"{module}.".startswith(pattern[:-1])


def test_mypy_is_told_of_no_file_that_is_gone():
    modules = {sizes.dotted_name(path, ROOT) for path in FILES}
    assert [p for p in strictly_typed() if not any(means(p, m) for m in modules)] == []


def untyped_results(tree):
    """The public functions and methods of a file that do not say what they give."""
    for node in ast.walk(tree):
        inside = node.body if isinstance(node, ast.Module | ast.ClassDef) else ()
        for function in inside:
            is_public = isinstance(function, ast.FunctionDef) and not function.name.startswith("_")
            if is_public and function.returns is None:
                yield function.name


@pytest.mark.parametrize("path", FILES, ids=name)
def test_public_functions_of_miniinductor_say_what_they_give(path):
    if name(path).startswith("miniinductor"):
        assert list(untyped_results(ast.parse(path.read_text()))) == []


@pytest.mark.parametrize("path", FILES, ids=name)
def test_every_file_explains_itself(path):
    text = path.read_text()
    assert ast.get_docstring(ast.parse(text)), f"{name(path)} has no header"
    assert len(text.splitlines()) <= 1300, f"{name(path)} is too long to read"
    for word in ("TODO", "FIXME", "XXX"):
        assert word not in text


def test_no_path_of_this_machine_is_committed():
    texts = [
        *ROOT.glob("*.md"),
        *ROOT.glob("*.yml"),
        *ROOT.glob("*.toml"),
        *(ROOT / "notebooks").rglob("*.py"),
        *(ROOT / "notebooks").glob("*.ipynb"),
        *FILES,
    ]
    for path in texts:
        text = path.read_text()
        assert str(ROOT) + "/" not in text and str(Path.home()) + "/" not in text, path


def test_imports_without_torch():
    """Bytecode, resume functions and the hook must be importable where torch is not installed."""
    import subprocess
    import sys

    code = (
        "import sys; sys.modules['torch'] = None\n"
        "import minidynamo, minidynamo.bytecode, minidynamo.rebuild.resume\n"
        "import minidynamo.frame.frame_hook\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)


# --- code that is written is never read again -----------------------------------------------------
WRITERS = ("codegen", "gpu", "lowerings")
SEARCHES = (
    "startswith",
    "endswith",
    "find",
    "split",
    "splitlines",
    "partition",
    "replace",
    "count",
)
READ = {  # what these read is no line that a writer has made, or the whole kernel at its end
    "miniinductor/codegen/cpp/kernel_writer.py": "prints the whole kernel",
    "miniinductor/codegen/triton/kernel_text.py": "a finished kernel: its indices become wide",
    "miniinductor/codegen/triton/products.py": "the lines of a template",
}


def is_written_text(node):
    """`line.text`, or what is named like a text that a writer has made."""
    if isinstance(node, ast.Attribute):
        return node.attr == "text"
    return isinstance(node, ast.Name) and node.id in ("line", "text", "source", "expression")


def reads_of_written_code(source):
    """Where regular expressions, searches or the printer are applied to lines of kernels."""
    found, tree = [], ast.parse(source)
    counted = {
        node.args[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and dotted(node.func) == "len" and node.args
    }  # how long a text is says nothing of what is in it
    for node in ast.walk(tree):
        if isinstance(node, ast.Import) and any(alias.name == "re" for alias in node.names):
            found.append("import re")
        elif isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.In | ast.NotIn):
            if is_written_text(node.comparators[0]):
                found.append(ast.unparse(node))
        elif isinstance(node, ast.Call) and node not in counted:
            is_search = isinstance(node.func, ast.Attribute) and node.func.attr in SEARCHES
            if dotted(node.func) == "printed" or is_search and is_written_text(node.func.value):
                found.append(ast.unparse(node))
    return found


def test_no_writer_of_kernels_reads_what_it_has_written():
    found = {}
    for folder in WRITERS:
        for path in (ROOT / "miniinductor" / folder).rglob("*.py"):
            reads = reads_of_written_code(path.read_text())
            if reads and path.name != "statements.py":
                found[name(path)] = reads
    assert found.keys() == READ.keys(), {f: found[f] for f in found.keys() - READ.keys()}


@pytest.mark.parametrize(
    "source",
    [
        "import re",
        "line.text.startswith('//')",
        "is_slow = 'mini::exp' in line",
        "names = [one for one in printed(body)]",
    ],
)
def test_the_check_of_writers_itself_fails_on_a_planted_search(source):
    assert reads_of_written_code(source)


MAKES_TENSORS = {"empty", "ones", "zeros", "tensor", "full", "rand", "randn", "arange", "eye"}


def tensors_at_import(tree):
    """Lines that make a tensor when the file is imported."""
    waiting, found = list(tree.body), []
    while waiting:
        node = waiting.pop()
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            continue
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if ast.unparse(node.func.value) == "torch" and node.func.attr in MAKES_TENSORS:
                found.append(node.lineno)
        waiting += ast.iter_child_nodes(node)
    return found


def test_no_file_makes_a_tensor_when_it_is_imported():
    """Most files are imported in the first compiled call: under inference mode, such a tensor
    would be an inference tensor for good, and all training in the process would run eagerly."""
    found = {}
    for package in ("minidynamo", "miniinductor"):
        for path in sorted((ROOT / package).rglob("*.py")):
            name = str(path.relative_to(ROOT))
            found[name] = tensors_at_import(ast.parse(path.read_text()))
    assert {name: lines for name, lines in found.items() if lines} == {}
    assert tensors_at_import(ast.parse("import torch\nNOTHING = torch.empty(0)")) == [2]
