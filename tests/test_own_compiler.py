"""The student's own compiler: stubs, who stands in for what is missing, checks that can fail."""

import ast
import importlib
import os
import re
import shutil
import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "notebooks"))

from exercises import ExerciseFailed, own_checks, own_compiler  # noqa: E402
from exercises.own_compiler import EMPTY, PIECES  # noqa: E402
from exercises.small_gpt import GPT  # noqa: E402
from exercises.wrong_pieces import WRONG_PIECES  # noqa: E402

from tools import sizes  # noqa: E402

PARTS = [(name, part) for name, piece in PIECES.items() for part in piece.parts]


@pytest.fixture(autouse=True)
def forgotten():
    yield
    own_compiler.forget()


class Changed(own_compiler.Finder):
    """The reference, with what `change(piece, source)` makes of its texts; nothing stands in."""

    def exec_module(self, module):
        path = Path(module.__spec__.origin)
        exec(compile(self.change(path.stem, path.read_text()), str(path), "exec"), module.__dict__)


def use(folder, change):
    own_compiler.forget()
    finder = Changed(folder / "none")
    finder.change = change
    sys.meta_path.insert(0, finder)


def without(source, parts):
    indents = {p: " " * (own_compiler.functions(source)[p].col_offset + 4) for p in parts}
    return own_compiler.with_bodies(source, {p: [indents[p] + EMPTY] for p in parts})


def curious(piece):
    return PIECES[piece].curious if piece in PIECES else ()


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
    assert "PASS" not in said and max(map(len, re.findall("NOT WRITTEN.*", said))) < 170


@pytest.mark.parametrize("name, part", PARTS)
def test_each_part_is_missed(name, part, tmp_path):
    use(tmp_path, lambda piece, source: without(source, [part] if piece == name else []))
    rows = own_checks.both_sizes(own_checks.rows_of(name))[part in PIECES[name].curious]
    assert not all(row.passed for row in rows)


def test_what_everyone_writes_trains_the_gpt_alone(tmp_path):
    """It captures one graph and fuses it: at most 600 lines, none of those that the curious add."""
    use(tmp_path, lambda piece, source: without(source, curious(piece)))
    losses = []
    for train in (lambda model: model, importlib.import_module("my_compiler").compile):
        torch.manual_seed(0)
        model, data = GPT(32, 32, 2, 1, 16), torch.randint(0, 32, (4, 17))
        run, optimizer = train(model), torch.optim.SGD(model.parameters(), lr=0.2)
        for _ in range(3):
            loss = run(data[:, :-1], data[:, 1:])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    torch.testing.assert_close(losses[3:], losses[:3], rtol=1e-4, atol=1e-4)
    [entry] = run.compiler.entries
    assert entry.reason == "" and losses[2] < losses[0]
    for half in (entry.program.forward, entry.program.backward):
        assert any(len(getattr(unit, "loops", ())) > 3 for unit in half.units)


@pytest.mark.parametrize("name", [name for name in PIECES if PIECES[name].everyone])
def test_a_piece_passes_without_what_the_curious_add(name, tmp_path, capsys):
    (tmp_path / "mine").mkdir()
    for path in own_compiler.REFERENCE.glob("*.py"):
        (tmp_path / "mine" / path.name).write_text(without(path.read_text(), curious(path.stem)))
    own_checks.check_piece(name, own_compiler.own(tmp_path / "mine"))
    everyone, _, more = capsys.readouterr().out.partition("for the curious:")
    assert "PASS" in everyone and not {"FAIL", "NOT"} & {*everyone.split()}
    assert "PASS" not in more and ("NOT WRITTEN" in more) == bool(curious(name))


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
    assert own_compiler.reference(name).count(right) == 1
    use(tmp_path, lambda piece, text: text.replace(right, wrong) if piece == name else text)
    assert label in [row.label for row in own_checks.rows_of(name) if not row.passed]


def test_it_stays_small_and_much_of_it_is_the_students():
    """Lines of code without comments and docstrings; what the student writes of them."""
    files = own_compiler.REFERENCE.glob("*.py")
    assert sum(sizes.python_size(path, path.name).lines for path in files) <= 1555
    assert 580 <= sum(map(own_compiler.lines_to_write, PIECES)) <= 600
    assert sum(own_compiler.lines_to_write(name, curious=True) for name in PIECES) >= 120


def test_a_piece_that_there_is_not():
    with pytest.raises(KeyError, match="graph, hook, machine"):
        own_compiler.begin("lexer")
