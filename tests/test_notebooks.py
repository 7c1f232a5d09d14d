"""The stored notebook is its source, executed: same cells, no error, no path of a machine, no stray
noise; exercises check."""

import json
import linecache
import re
import subprocess
import sys
from pathlib import Path

import pytest

jupytext = pytest.importorskip("jupytext")
NOTEBOOKS = Path(__file__).resolve().parent.parent / "notebooks"
sys.path.insert(0, str(NOTEBOOKS))
import exercises  # noqa: E402

import build  # noqa: E402

NAMES = sorted(p.stem for p in (NOTEBOOKS / "src").glob("*.py"))


@pytest.mark.parametrize("name", NAMES)
def test_the_stored_notebook_has_the_cells_of_its_source(name):
    source = build.student(build.read(name))
    stored = json.loads((NOTEBOOKS / f"{name}.ipynb").read_text())
    assert [(c.cell_type, c.source) for c in source.cells] == [
        (c["cell_type"], "".join(c["source"])) for c in stored["cells"]
    ]


@pytest.mark.parametrize("name", NAMES)
def test_outputs_are_there_and_clean(name):
    text = (NOTEBOOKS / f"{name}.ipynb").read_text()
    stored = json.loads(text)
    code = [c for c in stored["cells"] if c["cell_type"] == "code"]
    assert all(c["execution_count"] or "check" in c["metadata"].get("tags", []) for c in code)
    assert not any(o["output_type"] == "error" for c in code for o in c["outputs"])
    explaining = [c for c in code if not {"exercise", "check"} & set(c["metadata"].get("tags", []))]
    assert sum(bool(c["outputs"]) for c in explaining) > len(explaining) // 2
    assert "/tmp/" not in text and "site-packages/" not in text
    assert len(text) < 1_500_000


def answers(name, prepare):
    """{exercise: the student's answer}, from the exercise cells of one notebook, with the imports
    those cells need."""
    notebook = prepare(build.read(name))
    scope = {}
    for number, cell in enumerate(notebook.cells):
        if cell.cell_type != "code":
            continue
        if {"exercise", "support"} & set(build.tags(cell)):
            # Triton reads a kernel's text, as in a notebook
            file = f"<{name}, cell {number}, {prepare.__name__}>"
            linecache.cache[file] = len(cell.source), None, cell.source.splitlines(True), file
            exec(compile(cell.source, file, "exec"), scope)
        elif "check" not in build.tags(cell):
            imports = [
                line for line in cell.source.splitlines() if re.match(r"(import|from) ", line)
            ]
            exec("\n".join(imports), scope)
    calls = {
        m[1]: m[2]
        for cell in notebook.cells
        if "check" in build.tags(cell)
        for m in re.finditer(r'^check\("([\d.]+)", (.+)\)$', cell.source, re.M)
    }
    return {exercise: eval(argument, scope) for exercise, argument in calls.items()}


EXERCISES = sorted(
    {
        (name, m)
        for name in NAMES
        for m in re.findall(r'check\("([\d.]+)"', (NOTEBOOKS / "src" / f"{name}.py").read_text())
    }
)


@pytest.mark.parametrize("name, exercise", EXERCISES)
def test_the_solution_passes_and_an_empty_answer_fails(name, exercise, capsys, monkeypatch):
    monkeypatch.chdir(NOTEBOOKS)
    exercises.check(exercise, answers(name, build.solved)[exercise])
    assert "FAIL" not in capsys.readouterr().out
    empty = answers(name, build.student)[exercise]
    with pytest.raises(exercises.ExerciseFailed):
        exercises.check(exercise, empty)
    printed = capsys.readouterr().out
    assert ("  FAIL  " in printed) != ("  NOT WRITTEN  " in printed) and "PASS" not in printed


FRESH = """
import contextlib, io, os, sys
sys.path[:0] = sys.argv[1:]
import minidynamo, exercises, build
from test_notebooks import EXERCISES, answers

exercises.load()
for name, exercise in [one for one in EXERCISES if one[1][:2] in ("03", "04", "05", "06", "07")]:
    sys.stdout.flush()
    child = os.fork()
    if not child:
        said = io.StringIO()
        try:
            with contextlib.redirect_stdout(said):
                exercises.check(exercise, answers(name, build.solved)[exercise])
        except BaseException:
            print(exercise, said.getvalue(), flush=True)
        os._exit(0)
    os.waitpid(child, 0)
"""


def test_a_check_needs_nothing_that_ran_before():
    """Of the chapters on capture: a student begins anew, and runs one exercise.  (minidynamo loads
    its coverage with the first compilation, so a rule may not be there yet.)"""
    folders = [str(NOTEBOOKS), str(NOTEBOOKS.parent / "tests"), str(NOTEBOOKS.parent)]
    command = [sys.executable, "-W", "ignore", "-c", FRESH, *folders]
    ran = subprocess.run(command, cwd=NOTEBOOKS, capture_output=True, text=True, timeout=300)
    assert (ran.returncode, ran.stdout) == (0, ""), ran.stderr[-2000:]


CONSTANTS = [None, 0, 1, True, False, "", "x", [], {}, set()]
CLASSES = ("09.3", "11.1", "11.2", "12.1", "12.2", "12.3")  # the answer is a class, or a kernel


def constant(empty, value):
    """An answer that always gives `value`, in place of the empty one."""
    answer = lambda *args, **kwargs: value  # noqa: E731
    return (answer, *empty[1:]) if isinstance(empty, tuple) else answer


@pytest.mark.parametrize("name, exercise", EXERCISES)
def test_no_row_passes_for_an_answer_that_gives_nothing(name, exercise, monkeypatch):
    """And no exercise for one that always gives the same (but those of two chapters that compile
    models)."""
    monkeypatch.chdir(NOTEBOOKS)
    exercises.load()
    empty, check = answers(name, build.student)[exercise], exercises.CHECKS[exercise][1]
    rows = exercises.rows_of(check, constant(empty, None))
    assert [row.label for row in rows if row.passed] == []
    heavy = name[:2] in ("13", "16") or exercise in CLASSES
    for value in () if heavy else CONSTANTS:
        rows = exercises.rows_of(check, constant(empty, value))
        assert not all(row.passed for row in rows), value


def test_feedback_names_what_was_swallowed():
    """g++'s first error, the largest difference and its index, an error inside the compiler."""
    from miniinductor.toolchain import build_kernels

    source = 'extern "C" int NAME(void** args) { return nothing_of_that_name; }'
    said = exercises.row("", lambda: build_kernels([(source, "wrong")])).detail
    assert "nothing_of_that_name" in said
    import torch

    a, b = torch.zeros(3), torch.tensor([0.0, 5.0, 1.0])
    said = exercises.row("", lambda: exercises.close(a, b)).detail
    assert "5.0 at index (1,)" in said
    watched = exercises.Watched(lambda: 1 / 0)

    def swallowing():
        try:
            return watched()
        except ZeroDivisionError:
            return 1

    assert "ZeroDivisionError" in exercises.row("", lambda: watched.around(swallowing), 1).detail
    assert "never called" in exercises.row("", lambda: watched.around(lambda: 1), 1).detail


def test_every_registered_exercise_is_in_a_notebook():
    exercises.load()
    assert {e for _, e in EXERCISES} == set(exercises.CHECKS)


def test_an_exercise_needs_no_later_chapter():
    for name, exercise in EXERCISES:
        assert exercise.startswith(name[:2] + ".")


def test_a_planted_edit_of_a_stored_output_is_found():
    import copy

    import nbformat

    stored = nbformat.read(NOTEBOOKS / f"{NAMES[1]}.ipynb", as_version=4)
    edited = copy.deepcopy(stored)
    assert build.differences(stored, edited) == []
    cell = next(
        c
        for c in edited.cells
        if c.cell_type == "code" and build.texts(c) and "volatile" not in build.tags(c)
    )
    cell.outputs[0] = nbformat.v4.new_output("stream", text="something else")
    assert len(build.differences(stored, edited)) == 1


def test_one_notebook_runs_again_to_the_same_outputs():
    """The others: `make test-notebooks`."""
    import nbformat

    name = "01_eager_and_graph"
    fresh = build.execute(build.student(build.read(name)))
    assert build.differences(nbformat.read(NOTEBOOKS / f"{name}.ipynb", as_version=4), fresh) == []


def test_broken_links_and_things_from_elsewhere_are_found(tmp_path):
    from check_site import broken_links

    (tmp_path / "a.html").write_text(
        '<h1 id="top">A</h1><a href="b.html#here">b</a><a href="#top">up</a>'
        '<a href="https://example.org">elsewhere</a>'
    )
    (tmp_path / "b.html").write_text(
        '<p id="here"><a href="a.html">a</a><img alt="a b c" src="data:,"></p>'
    )
    assert broken_links(tmp_path) == []
    (tmp_path / "c.html").write_text(
        '<a href="b.html#gone">1</a><a href="gone.html">2</a><img src="gone.png">'
        '<script src="https://example.org/x.js"></script>'
    )
    assert [line.rpartition(": ")[2] for line in broken_links(tmp_path)] == [
        "a picture without a text",
        "there is no such anchor",
        "there is no such file",
        "there is no such file",
        "loaded from another place",
    ]


PARTS = {  # what every notebook has, as a pattern of its source
    "what you will learn": r"\*\*What you will learn:\*\*",
    "the naive version failing": r"(?i)naive|## The problem|\bfail",
    "code of ours": r"excerpt\(|Code\(|\bpart\(",
    "a real model": r"benchmarks\.models|class GPT\(",
    "what PyTorch does beyond": r"## What real PyTorch",
    "a file of PyTorch": r"`(torch|benchmarks)/\w+",
    "a section of the paper": r"(?i)paper[^.\n]{0,30} sections? \d|section (\d )?of the",
    "a recap": r"## Recap",
    "what comes next": r"# Next: |## Projects",
}


@pytest.mark.parametrize("name", NAMES)
def test_every_notebook_has_its_parts_and_pictures(name):
    source = (NOTEBOOKS / "src" / f"{name}.py").read_text()
    assert [part for part, pattern in PARTS.items() if not re.search(pattern, source)] == []
    assert 4 <= sum(n == name for n, _ in EXERCISES) <= 6
    outputs = [
        o.get("data", {})
        for c in json.loads((NOTEBOOKS / f"{name}.ipynb").read_text())["cells"]
        for o in c.get("outputs", [])
    ]
    drawn = [
        data
        for data in outputs
        if "image/png" in data or "<svg" in "".join(data.get("text/html", ""))
    ]
    assert drawn and all(
        'aria-label="' in html
        for data in drawn
        if "<svg" in (html := "".join(data.get("text/html", "")))
    )
