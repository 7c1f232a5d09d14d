"""The teacher's kit: slides say what the notebooks say; the students' tree holds no solution."""

import json
import re
import sys
from pathlib import Path

import pytest

pytest.importorskip("jupytext")
ROOT = Path(__file__).resolve().parent.parent
NOTEBOOKS = ROOT / "notebooks"
sys.path[:0] = [str(NOTEBOOKS), str(NOTEBOOKS / "teaching")]
import build  # noqa: E402
import release  # noqa: E402
import slides  # noqa: E402

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
    from exercises import own_checks, own_compiler

    reference = student / "notebooks" / "reference"
    monkeypatch.setattr(own_compiler, "REFERENCE", reference / "my_compiler")
    monkeypatch.setattr(own_compiler, "PACKED", reference / "my_compiler.packed")
    own_compiler.packed.cache_clear()
    try:
        path = own_compiler.begin("graph", tmp_path / "mine")
        own_checks.check_piece("graph", own_compiler.own(tmp_path / "mine"))
    finally:
        own_compiler.packed.cache_clear()
        own_compiler.forget()
    said = capsys.readouterr().out
    assert "the reference stands in for" in said and "FAIL" not in said
    assert "your turn" in path.read_text()


@pytest.mark.parametrize("name", NAMES)
def test_slides_are_made_of_the_notebook(name):
    notebook = json.loads((NOTEBOOKS / f"{name}.ipynb").read_text())
    prose = " ".join(
        "".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "markdown"
    )
    prose = re.sub(r"[\s*]+", " ", prose)
    made = slides.slides_of(notebook)
    assert len(made) >= 5
    for slide in made:
        assert len(slide.code.splitlines()) <= slides.MOST_LINES and all(slide.points)
        for point in slide.points:
            assert re.sub(r"[\s*]+", " ", point).strip() in prose
    text = slides.deck(name, notebook)
    assert not re.search(r'(?:src|href)="https?:', text) and text.count("<section>") == len(made)


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
