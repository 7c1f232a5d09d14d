"""The README and docs/ say what is: pages that are written from the code are up to date, figures
are those of their JSON, links lead somewhere, every environment variable is told.
"""

import ast
import contextlib
import io
import re
from pathlib import Path

import pytest
import yaml

from tools import documentation

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text()
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "CHANGELOG.md",
    *sorted((ROOT / "docs").glob("*.md")),
]
OPTIONS = (ROOT / "docs" / "options.md").read_text()
READERS = {"environ.get", "environ.setdefault", "os.getenv", "environ.pop"}


def names(path: Path) -> str:
    return str(path.relative_to(ROOT))


# --- pages ----------------------------------------------------------------------------------------
def test_what_is_written_from_code_and_figures_is_up_to_date():
    assert not list(documentation.stale()), "run `make docs`"


def test_the_check_of_pages_finds_a_changed_figure(monkeypatch):
    found = documentation.results("h100_gpu_models")
    found["rows"][0]["ms"]["ours"] *= 2
    monkeypatch.setattr(documentation, "results", lambda name: found)
    assert documentation.readme() != README


@pytest.mark.parametrize("path", PAGES, ids=names)
def test_links_lead_to_files(path: Path):
    targets = re.findall(r"\]\((?!https?:)([^)#]+)", path.read_text())
    assert all((path.parent / target).exists() for target in targets), targets


@pytest.mark.parametrize("path", PAGES, ids=names)
def test_tests_that_are_named_exist(path: Path):
    for file, test in re.findall(r"`(tests/\w+\.py)::(\w+)`", path.read_text()):
        body = ast.parse((ROOT / file).read_text()).body
        assert test in {node.name for node in body if isinstance(node, ast.FunctionDef)}, test


def without_test(page: str) -> list[str]:
    """The rows of its tables of promises that name no test, and no target of the Makefile."""
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.M))
    sections = re.split(r"^## ", page, flags=re.M)
    tables = [text for text in sections if text.startswith(("Each promise", "At home"))]
    rows = [row for text in tables for row in re.findall(r"^\| (?!promise)\S.*$", text, re.M)]
    assert len(tables) == 2 and len(rows) >= 50
    return [
        row
        for row in rows
        if not re.search(r"`tests/\w+\.py::\w+`", row)
        and not targets.intersection(re.findall(r"`make ([\w-]+)`", row))
    ]


def test_each_promise_has_a_test():
    page = (ROOT / "docs" / "how_it_is_tested.md").read_text()
    assert not without_test(page)
    name = "`tests/test_hook.py::test_where_another_tool_is_installed_functions_run_as_they_are`"
    assert len(without_test(page.replace(name, "`make sure`"))) == 1  # it finds one that has none


@pytest.mark.parametrize("path", PAGES, ids=names)
def test_lines_are_short(path: Path):
    """But for tables, and what is written from docstrings."""
    lines = path.read_text().splitlines()
    assert not [line for line in lines if len(line) > 100 and not line.startswith("|")]


def test_the_readme_is_short_and_begins_with_a_picture():
    assert len(README.splitlines()) <= 90
    assert "explorer.png)" in README.split("## ")[0]


def test_all_figures_of_the_readme_stand_in_tables_that_are_written():
    """A figure in its prose would be nobody's to check: there are only versions."""
    prose = re.sub(r"(?s)<!-- written by.*?-->.*?<!-- written by.*?-->", "", README)
    prose = re.sub(r"(?s)```.*?```|`[^`]*`|\]\([^)]*\)|^\|.*?$", "", prose, flags=re.M)
    numbers = re.findall(r"(?<![\w.-])\d+(?:\.\d+)+(?![\w])|\b\d+ ?(?:%|times|ms|GB)", prose)
    assert set(numbers) <= {"3.11", "3.13", "2.11", "2.13"}


def test_the_example_of_the_readme_prints_what_it_says(tmp_path, monkeypatch):
    program, output = re.findall(r"```(?:python)?\n(.*?)```", README.split("## Use")[1], re.S)[:2]
    file = tmp_path / "example.py"
    file.write_text(program)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(program, str(file), "exec"), {"__name__": "__main__"})
    # guards differ between Pythons
    said, found = ([re.sub(r"\d+", "N", row.rstrip()) for row in text.strip().splitlines()]
                   for text in (output, printed.getvalue()))  # fmt: skip
    assert said == found


# --- environment variables ------------------------------------------------------------------------
def variables_read(tree: ast.AST) -> set[str]:
    """Names of environment variables that a file reads or sets."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and node.args:
            if any(ast.unparse(node.func).endswith(reader) for reader in READERS):
                found |= constants(node.args[0])
            elif ast.unparse(node.args[0]).endswith("os.environ"):
                found |= {keyword.arg for keyword in node.keywords if keyword.arg}
        if isinstance(node, ast.Subscript) and ast.unparse(node.value).endswith("environ"):
            found |= constants(node.slice)
        if isinstance(node, ast.Compare) and ast.unparse(node.comparators[0]).endswith("environ"):
            found |= constants(node.left)
    return found


def constants(node: ast.AST) -> set[str]:
    return {node.value} if isinstance(node, ast.Constant) and isinstance(node.value, str) else set()


def all_variables() -> set[str]:
    files = [
        path
        for folder in ("minidynamo", "miniinductor", "benchmarks")
        for path in (ROOT / folder).rglob("*.py")
    ]
    found = set().union(*[variables_read(ast.parse(path.read_text())) for path in files])
    for path in [
        p for package in ("minidynamo", "miniinductor") for p in (ROOT / package).rglob("*.[ch]")
    ]:
        found |= set(re.findall(r'getenv\("(\w+)"', path.read_text()))
    return found


def test_every_environment_variable_is_in_the_table():
    table = OPTIONS.split("## Environment variables")[1].split("\n## ")[0]
    told = set(re.findall(r"`([A-Z][A-Z_]+)`", table))
    found = all_variables()
    assert {"MINI_DEBUG", "MINIINDUCTOR_CACHE", "CXX", "TRITON_INTERPRET"} <= found
    assert found <= told, found - told
    others = {"PYTHON", "VENV", "TORCH", "LAB"}  # the Makefile's, and the tests'
    assert told - found <= others, told - found - others


def test_the_search_for_variables_finds_planted_ones():
    planted = "import os\nos.environ.get('A')\nos.environ['B'] = '1'\n'C' in os.environ\n"
    planted += "os.getenv('D')\ndict(os.environ, E='1')\n"
    assert variables_read(ast.parse(planted)) == {"A", "B", "C", "D", "E"}


def test_every_option_is_in_a_table():
    import miniinductor.config

    options = [n for n in miniinductor.config.switches() if n not in ("raise_internal_errors",)]
    assert not [name for name in options if f"`{name}`" not in OPTIONS]


# --- files for a code-hosting site ----------------------------------------------------------------
def test_workflow_templates_and_citation_are_well_formed():
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text())
    commands = [step.get("run", "") for job in workflow["jobs"].values() for step in job["steps"]]
    targets = set(re.findall(r"\bmake (\w+)", " ".join(commands)))
    makefile = (ROOT / "Makefile").read_text()
    assert targets and all(f"\n{target}:" in makefile for target in targets)
    files = re.findall(r"tests/\S+|\.ci/\S+", "\n".join(commands))
    assert files and all((ROOT / name).exists() for name in files)
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert {"cff-version", "message", "title", "authors", "version"} <= citation.keys()
    for template in (ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.md"):
        _, head, body = template.read_text().split("---\n", 2)
        assert {"name", "about"} <= yaml.safe_load(head).keys() and body.strip()


def test_the_census_says_what_its_rows_say():
    found = documentation.results("h200_census")["summary"]
    text = " ".join((documentation.ROOT / "docs" / "measuring.md").read_text().split())
    told = re.search(r"geometric mean (\S+), median of the rows (\S+); (\d+) rows", text)
    mean, median = found["geometric mean over classes"], found["median"]
    assert told and told.groups() == (
        f"{mean:.2f}",
        f"{median:.2f}",
        str(found["eager faster by 5 %"]),
    )
    worst = list(found["classes"].values())[:6]
    classes = re.search(r"The lowest classes are (.*?) \(`bench", text)
    assert classes and re.findall(r"\d\.\d\d", classes[1]) == [f"{v:.2f}" for v in worst]


@pytest.mark.parametrize("name, ranks, count", [("h100_x2", 2, 13), ("h200_x4", 4, 10)])
def test_the_figures_of_several_gpus_are_those_of_their_rows(name, ranks, count):
    rows = documentation.results(f"{name}_distributed")["rows"]
    text = (documentation.ROOT / "docs" / "measuring.md").read_text()
    timed = [row for row in rows if row.get("ranks") == ranks and "ms" in row]
    for row in timed:
        middle, low, high = row["ms"]
        exposed = f"{row['exposed_ms']:.1f}" if "exposed_ms" in row else "-"
        beside = f"{row['eager_ms'][0]:.1f}" if "eager_ms" in row else "-"
        figures = f"{middle:.1f} ({low:.1f} to {high:.1f}) | {exposed} | "
        figures += f"{row['peak'] / 2**30:.2f} | {row['first_s']:.1f} | {beside} |"
        assert f"| {row['wrapping']}, {row['name']} | {figures}" in text
        assert row["right"] and (row["same_on_all_ranks"] or row["wrapping"] == "TP")
    assert f"{100 * max(row['difference'] for row in timed):.0f}%" in text and len(timed) == count
    for row in rows:
        if "to" in row:
            assert f"{row['weak scaling']:.2f}" in text
