"""The student's own compiler: stubs, who stands in for what is missing, checks that can fail."""

import ast
import os
import shutil
import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "notebooks"))

from exercises import ExerciseFailed, own_checks, own_compiler  # noqa: E402
from exercises.own_compiler import EMPTY, PIECES  # noqa: E402
from exercises.wrong_pieces import WRONG_PIECES  # noqa: E402

from tools import sizes  # noqa: E402

PARTS = [(name, part) for name, piece in PIECES.items() for part in piece.parts]


@pytest.fixture(autouse=True)
def forgotten():
    yield
    own_compiler.forget()


class Without(own_compiler.Finder):
    """The reference, but for one function."""

    def __init__(self, folder, name, part):
        super().__init__(folder)
        self.name, self.part = name, part

    def exec_module(self, module):
        path = Path(module.__spec__.origin)
        source = path.read_text()
        if path.stem == self.name:
            indent = " " * (own_compiler.functions(source)[self.part].col_offset + 4)
            source = own_compiler.with_bodies(source, {self.part: [indent + EMPTY]})
        exec(compile(source, str(path), "exec"), module.__dict__)


@pytest.mark.parametrize("name", PIECES)
def test_the_reference_passes_every_row(name, tmp_path, capsys):
    shutil.copytree(own_compiler.REFERENCE, tmp_path / "mine")
    package = own_compiler.own(tmp_path / "mine")
    own_checks.check_piece(name, package)
    with torch.no_grad():  # as some chapters are
        own_checks.check_piece(name, package)
    assert not set(capsys.readouterr().out.split()) & {"FAIL", "NOT"}


@pytest.mark.parametrize("name", PIECES)
def test_nothing_passes_where_nothing_is_written(name, tmp_path, capsys):
    own_compiler.begin(name, tmp_path / "mine")
    with pytest.raises(ExerciseFailed):
        own_checks.check_piece(name, own_compiler.own(tmp_path / "mine"))
    said = capsys.readouterr().out
    assert "NOT WRITTEN" in said and "PASS" not in said


@pytest.mark.parametrize("name, part", PARTS)
def test_each_part_is_missed(name, part, tmp_path):
    own_compiler.forget()
    sys.meta_path.insert(0, Without(tmp_path / "none", name, part))
    try:
        rows = own_checks.rows_of(name)
    except NotImplementedError:
        return
    assert not all(row.passed for row in rows)


@pytest.mark.parametrize("name, part", PARTS)
def test_each_part_says_what_it_should_do(name, part):
    """A student sees its first line and its docstring, and nothing else of it."""
    assert ast.get_docstring(own_compiler.functions(own_compiler.stub(name))[part])


@pytest.mark.parametrize("name", PIECES)
def test_stubs_and_solutions_are_one_text(name):
    reference, stub = own_compiler.reference(name), own_compiler.stub(name)
    assert own_compiler.missing(stub, PIECES[name].parts) == [*PIECES[name].parts]
    assert own_compiler.completed(name, stub) == (reference, [*PIECES[name].parts])


def test_the_reference_stands_in_and_says_so(tmp_path, capsys):
    folder = tmp_path / "my_compiler"
    path = own_compiler.begin("graph", folder)
    written = written_bodies("graph")["softmax"]
    path.write_text(own_compiler.with_bodies(path.read_text(), {"softmax": written}))
    own_compiler.begin("graph", folder)  # keeps what was written
    capsys.readouterr()
    with pytest.raises(ExerciseFailed, match="rows are not written$"):
        own_checks.check_piece("graph", own_compiler.own(folder))
    printed = capsys.readouterr().out
    assert len([line for line in printed.splitlines() if "stands in" in line]) == 2
    assert "not begun, the reference stands in: autograd, breaks" in printed
    own_checks.module("gpu")  # imported later, told later
    assert capsys.readouterr().out == "not begun, the reference stands in: gpu\n"
    said = next(line for line in printed.splitlines() if line.startswith("graph.py"))
    assert "without_repetition" in said and "softmax" not in said


def test_wrong_answers_fail(tmp_path, capsys):
    folder = tmp_path / "my_compiler"
    path = own_compiler.begin("graph", folder)
    wrong = ["    e = x.exp()", "    return e / e.sum(dim, keepdim=True)"]  # overflows
    path.write_text(own_compiler.with_bodies(path.read_text(), {"softmax": wrong}))
    with pytest.raises(ExerciseFailed):
        own_checks.check_piece("graph", own_compiler.own(folder))


class Mistaken(own_compiler.Finder):
    """The reference, with one piece's text changed."""

    def __init__(self, folder: Path, name: str, source: str) -> None:
        super().__init__(folder)
        self.name, self.source = name, source

    def exec_module(self, module):
        path = Path(module.__spec__.origin)
        source = self.source if path.stem == self.name else path.read_text()
        exec(compile(source, str(path), "exec"), module.__dict__)


def written_bodies(name: str) -> dict[str, list[str]]:
    """The reference's bodies of all parts."""
    source = own_compiler.reference(name)
    lines, defined = source.splitlines(), own_compiler.functions(source)
    return {p: [lines[n] for n in own_compiler.body_lines(defined[p])] for p in PIECES[name].parts}


MISTAKES = [(name, why) for name, mistakes in WRONG_PIECES.items() for why in mistakes]


@pytest.mark.parametrize("name, why", MISTAKES)
def test_a_plausible_mistake_fails_in_the_row_that_is_written_beside_it(
    name: str, why: str, tmp_path: Path
) -> None:
    if name == "gpu" and os.environ.get("TRITON_INTERPRET") != "1":
        pytest.skip("these rows need Triton's interpreter, chosen before triton is imported")
    right, wrong, label = WRONG_PIECES[name][why]
    source = own_compiler.reference(name)
    assert source.count(right) == 1
    own_compiler.forget()
    sys.meta_path.insert(0, Mistaken(tmp_path / "none", name, source.replace(right, wrong)))
    assert label in [row.label for row in own_checks.rows_of(name) if not row.passed]


def test_it_stays_small_and_much_of_it_is_the_students():
    """Lines of code without comments and docstrings; what the student writes of them."""
    files = sorted(own_compiler.REFERENCE.glob("*.py"))
    assert sum(sizes.python_size(path, path.name).lines for path in files) <= 1545
    assert sum(map(own_compiler.lines_to_write, PIECES)) >= 760


def test_a_piece_that_there_is_not():
    with pytest.raises(KeyError, match="graph, hook, machine"):
        own_compiler.begin("lexer")
