"""The teacher's kit: slides say what the notebooks say; the students' tree holds no solution."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("jupytext")
ROOT = Path(__file__).resolve().parent.parent
NOTEBOOKS = ROOT / "notebooks"
sys.path[:0] = [str(NOTEBOOKS), str(NOTEBOOKS / "teaching"), str(ROOT / "tests")]
import release  # noqa: E402

import build  # noqa: E402

NAMES = sorted(p.stem for p in (NOTEBOOKS / "src").glob("*.py"))


@pytest.fixture(scope="module")
def student(tmp_path_factory):
    return release.release(tmp_path_factory.mktemp("release") / "student")


def solution_lines():
    """Lines that stand in solutions and nowhere else in the course."""
    sources = [(NOTEBOOKS / "src" / f"{name}.py").read_text() for name in NAMES]
    shown = "\n".join(build.SOLUTION.sub("", source) for source in sources)
    for source in sources:
        for found in build.SOLUTION.finditer(source):
            body = [line.strip() for line in found[0].splitlines() if "### " not in line]
            yield from (line for line in body if len(line) > 45 and line not in shown)


def test_the_students_tree_holds_no_solution(student):
    text = "\n".join(
        path.read_text()
        for path in student.glob("notebooks/**/*")
        if path.suffix in (".py", ".ipynb") and "chapter_" not in path.name
    )
    text = text.replace('\\"', '"')
    lines = set(solution_lines())
    assert len(lines) > 40 and [line for line in lines if line in text] == []
    assert not list(student.glob("notebooks/src")) and not list(
        student.glob("notebooks/**/graph.py")
    )
    assert not (student / "notebooks" / "teaching").exists()


def test_the_packed_reference_stands_in(student, tmp_path, monkeypatch, capsys):
    """In the students' tree a piece is begun, and the rest comes from the packed file."""
    from exercises import ExerciseFailed, own_checks, own_compiler

    reference = student / "notebooks" / "reference"
    monkeypatch.setattr(own_compiler, "REFERENCE", reference / "my_compiler")
    monkeypatch.setattr(own_compiler, "PACKED", reference / "my_compiler.packed")
    own_compiler.packed.cache_clear()
    try:
        path = own_compiler.begin("graph", tmp_path / "mine")
        with pytest.raises(ExerciseFailed, match="rows are not written$"):
            own_checks.check_piece("graph", own_compiler.own(tmp_path / "mine"))
    finally:
        own_compiler.packed.cache_clear()
        own_compiler.forget()
    said = capsys.readouterr().out
    assert "the reference stands in" in said and "FAIL" not in said
    assert "your turn" in path.read_text()


def test_the_students_tree_has_a_start_and_no_dead_link(student):
    from exercises import POINTS, own_compiler

    targets = set(re.findall(r"^([\w-]+):", (student / "Makefile").read_text(), re.M))
    start = (student / "START_HERE.md").read_text()
    said = {name for path in (student / "START_HERE.md", student / "README.md")
            for name in re.findall(r"\bmake (\w+)", path.read_text())}  # fmt: skip
    assert {"start", "progress"} <= said & targets and said <= targets
    for path in student.rglob("*.md"):
        links = re.findall(r"\]\((?!https?:|#)([^)#]+)", path.read_text())
        assert all((path.parent / link).exists() for link in links), path
    assert "has 2, 4 or\n6 points" in start and [*POINTS.values()] == [2, 4, 6]
    assert own_compiler.two_sizes() in start
    cells = "".join(path.read_text() for path in (student / "notebooks").glob("*.ipynb"))
    imported = set(re.findall(r'"(?:from|import) (\w+)', cells))
    beside = imported & {path.stem for path in NOTEBOOKS.glob("*.py")}
    assert "steppers" in beside
    assert [name for name in beside if not (student / "notebooks" / f"{name}.py").exists()] == []
    text = "see [this one](LICENSE), [that\none](../no.md) and [a site](https://x.org)"
    expected = "see [this one](LICENSE), that\none and [a site](https://x.org)"
    assert release.without_dead_links(text, student) == expected


def test_the_board_says_what_is_written(student, tmp_path, monkeypatch):
    """In the students' tree: an exercise as it was last checked, a piece as it is."""
    notebooks = student / "notebooks"
    (notebooks / "my_compiler").mkdir()
    program = """
import sys, types
from exercises import CHECKS, board, check, own_compiler
sys.modules["ipykernel"] = types.ModuleType("ipykernel")    # as in a notebook
own_compiler.begin("hook")
for name, answer in (("15.2", lambda ratios: 1.0), ("10.2", "empty")):
    try:
        check(name, answer)
    except AssertionError as error:
        print("SAID", error._render_traceback_())
graph = own_compiler.begin("graph")
body = "    return ()"
graph.write_text(own_compiler.with_bodies(graph.read_text(), {"broadcast": [body]}))
board.PIECE_CHECKS = {name: board.PIECE_CHECKS[name] for name in ("graph", "hook")}
print(board.board())
"""
    environment = {**os.environ, "PYTHONPATH": f"{notebooks}{os.pathsep}{ROOT}"}
    environment.pop("MY_COMPILER", None)
    run = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program],
        env=environment, capture_output=True, text=True, cwd=notebooks,
    )  # fmt: skip
    assert run.returncode == 0, run.stdout + run.stderr
    assert re.search(r"SAID \['\d of \d rows fail'\]", run.stdout)
    lines = {
        line.split()[1]: line for line in run.stdout.split("chapter  what")[1].splitlines()[1:]
    }
    assert "FAIL" in lines["15.2"] and "NOT WRITTEN" in lines["15.1"]
    assert "FAIL" in lines["graph"] and "NOT WRITTEN      0 of" in lines["hook"]
    assert re.search(r"^everyone: 0 of \d+ done, [\d.]+ of \d+ points$", run.stdout, re.M)


HALF = {  # an answer that is right in some rows only
    "10.1": lambda write, read: write[0] == read[0],
    "10.2": lambda a, b, sizes: sum(sizes[n] for n in a["reads"] & b["reads"]),
    "14.2": lambda terms, constant: constant + 2 * sum(terms.values()),
    "15.2": lambda ratios: ratios[0] if len(ratios) == 1 else 1.0,
}
MARKED = re.compile(r"### BEGIN HIDDEN TESTS\n.*?### END HIDDEN TESTS\n", re.S)


def graded_cells():
    """{exercise: its cell in the nbgrader source}"""
    cells = [c for name in NAMES for c in build.assignment(build.read(name)).cells]
    found = [(re.search(r'^points = grade\("([\d.]+)"', c.source, re.M), c) for c in cells]
    return {match[1]: cell for match, cell in found if match}


def points(source, answer):
    """What the last value of a graded cell is, as nbgrader takes it."""
    call = re.search(r'grade\("[\d.]+", (.+?)(?:, more=.*)?\)$', source, re.M)[1]
    scope = {call: answer}
    exec(source, scope)
    return scope["points"]


def test_every_exercise_is_graded_with_the_points_of_its_level():
    import exercises
    from exercises import CHECKS, POINTS, level, load
    from exercises.hidden import HIDDEN

    load()
    cells = graded_cells()
    assert set(cells) == set(CHECKS) and set(HIDDEN) <= set(CHECKS) and len(HIDDEN) >= 10
    for name, cell in cells.items():
        assert cell.metadata["nbgrader"]["points"] == POINTS[level(name)]
        assert cell.source.rstrip().endswith("points")
        assert bool(MARKED.search(cell.source)) == (name in HIDDEN)
    told = (NOTEBOOKS / "teaching" / "README.md").read_text()
    assert ", ".join(f"{name} {points}" for name, points in POINTS.items()) in told
    pages = [build.__doc__, (ROOT / "docs" / "testing.md").read_text(), exercises.__doc__]
    assert not any(re.search(r"\bpoints? (?:is|are) \d|\b(one|\d) points?\b", p) for p in pages)


@pytest.mark.parametrize("name", sorted(HALF))
def test_a_solution_gets_all_points_an_empty_answer_none_half_of_one_some(name, monkeypatch):
    from exercises import CHECKS, rows_of
    from exercises.hidden import HIDDEN
    from test_notebooks import answers

    chapter = next(chapter for chapter in NAMES if chapter[:2] == name[:2])
    monkeypatch.chdir(NOTEBOOKS)
    cell = graded_cells()[name]
    most = cell.metadata["nbgrader"]["points"]
    solution, empty = (answers(chapter, how)[name] for how in (build.solved, build.student))
    for source in (cell.source, MARKED.sub("", cell.source)):  # the teacher's and the students'
        assert points(source, solution) == most and points(source, empty) == 0
        assert 0 < points(source, HALF[name]) < most
    # hidden rows count: an answer that only knows the visible ones is not worth everything
    assert all(row.passed for row in rows_of(HIDDEN[name], solution))
    assert not all(row.passed for row in rows_of(HIDDEN[name], HALF[name]))
    assert name in CHECKS


def test_solutions_pass_the_hidden_rows(monkeypatch):
    from exercises import rows_of
    from exercises.hidden import HIDDEN
    from test_notebooks import answers

    monkeypatch.chdir(NOTEBOOKS)
    for chapter in sorted({name[:2] for name in HIDDEN}):
        notebook = next(n for n in NAMES if n.startswith(chapter))
        solved, empty = answers(notebook, build.solved), answers(notebook, build.student)
        for name in (n for n in HIDDEN if n.startswith(chapter)):
            failed = [str(row) for row in rows_of(HIDDEN[name], solved[name]) if not row.passed]
            assert failed == [], name
            assert not any(row.passed for row in rows_of(HIDDEN[name], empty[name])), name


def test_the_students_tree_grades_without_hidden_rows(student):
    """It has no hidden rows, no wrong answers, and its exercises check."""
    files = {path.name for path in (student / "notebooks" / "exercises").glob("*.py")}
    hidden = {"hidden.py", "wrong_answers.py", "wrong_edits.py", "wrong_pieces.py", "feedback.py"}
    hidden |= {"other_pieces.py"}
    assert not files & hidden
    source = MARKED.sub("", graded_cells()["10.1"].source).replace("may_fuse", "tuple.__eq__")
    run = subprocess.run(
        [sys.executable, "-c", source + "\nassert points == 2, points"],
        env={**os.environ, "PYTHONPATH": f"{student / 'notebooks'}{os.pathsep}{ROOT}"},
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stdout + run.stderr


def test_the_plans_name_exercises_and_pieces_that_there_are():
    from exercises import CHECKS, load
    from exercises.own_compiler import PIECES

    load()
    text = (NOTEBOOKS / "teaching" / "README.md").read_text()
    assert set(re.findall(r"\b\d\d\.\d\b", text)) <= set(CHECKS)
    plans = text.split("## What a student")[0]
    named = {
        w
        for part in re.findall(r"pieces?:? ((?:`\w+`(?:, | and )?)+)", plans)
        for w in re.findall(r"`(\w+)`", part)
    }
    assert named == set(PIECES)
    assert {f"| {name[:2]} |" for name in NAMES} <= set(re.findall(r"\| \d\d \|", text))


@pytest.mark.parametrize("name", NAMES)
def test_a_slide_is_one_line_and_something_to_see(name):
    import slides

    notebook = json.loads((NOTEBOOKS / f"{name}.ipynb").read_text())
    deck = slides.slides_of(notebook)
    assert len(deck) > 3 and all(slide.shown or slide.line for slide in deck)
    prose = " ".join("".join(c["source"]) for c in notebook["cells"]).split()
    for slide in deck:
        assert "\n" not in slide.line and len(slide.line.split()) <= 45
        assert slide.line.split()[:-1] == [] or slide.line.split()[0] in prose
        assert slide.markup().count("<p class=") == 1 + slide.shown.count("<p class=")
    stored = any(re.search("<svg|image/png", json.dumps(c)) for c in notebook["cells"])
    assert any(re.search("<svg|<img", slide.shown) for slide in deck) == stored
    assert not re.search(r'<iframe|(?:src|href)="https?:', slides.deck(name, notebook))


def test_one_line_is_the_first_short_sentence():
    import slides

    text = "| a | table |\n\n" + "long " * 30 + "sentence. It is short: `really`. More of it."
    assert slides.one_line(text) == "It is short"
