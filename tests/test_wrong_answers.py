"""No check lets a plausible wrong answer through, and each exercise has three of them beside it
(`notebooks/exercises/wrong_answers.py`, `wrong_edits.py`)."""

import re
import sys
from pathlib import Path

import pytest

pytest.importorskip("jupytext")
NOTEBOOKS = Path(__file__).resolve().parent.parent / "notebooks"
sys.path.insert(0, str(NOTEBOOKS))
sys.path.insert(0, str(Path(__file__).resolve().parent))
import exercises  # noqa: E402
from exercises.feedback import SAYS  # noqa: E402
from exercises.wrong_answers import WRONG  # noqa: E402
from exercises.wrong_edits import EDITS, edited  # noqa: E402
from test_notebooks import EXERCISES, answers  # noqa: E402

import build  # noqa: E402

AT_LEAST = 3
ALL_CASES = [
    (name, why) for _, name in EXERCISES for why in [*WRONG.get(name, {}), *EDITS.get(name, {})]
]
CAPSTONE = "16."  # these train a model: `make exercises` runs them (tests/capstone_answers.py)
CASES = [case for case in ALL_CASES if not case[0].startswith(CAPSTONE)]


def wrong_answer(name, why):
    """The answer as the student's notebook would hand it to `check`."""
    if why in WRONG.get(name, {}):
        return WRONG[name][why]
    chapter = next(chapter for chapter, exercise in EXERCISES if exercise == name)

    def prepared(notebook):
        notebook = build.solved(notebook)
        checked = next(
            n
            for n, c in enumerate(notebook.cells)
            if re.search(f'^check\\("{name}"', c.source, re.M)
        )
        cell = next(c for c in notebook.cells[checked::-1] if "exercise" in build.tags(c))
        cell.source = edited(cell.source, EDITS[name][why])
        return notebook

    prepared.__name__ = f"wrong_{name}_{why}"
    return answers(chapter, prepared)[name]


def assert_it_fails_as_written(name, why):
    exercises.load()
    rows = exercises.rows_of(exercises.CHECKS[name][1], wrong_answer(name, why))
    assert [row.detail for row in rows if row.label == "the check itself could not go on"] == []
    assert SAYS[name, why] in [row.label for row in rows if not row.passed]


@pytest.mark.parametrize("name, why", CASES)
def test_a_wrong_answer_fails_in_the_row_that_is_written_beside_it(name, why, monkeypatch):
    monkeypatch.chdir(NOTEBOOKS)
    assert_it_fails_as_written(name, why)


@pytest.mark.parametrize("chapter, name", EXERCISES)
def test_each_exercise_has_three_wrong_answers(chapter, name):
    """Of all chapters: a new exercise without them is red."""
    assert len(WRONG.get(name, {})) + len(EDITS.get(name, {})) >= AT_LEAST


def test_no_wrong_answer_is_left_of_an_exercise_that_is_gone():
    assert set(WRONG) | set(EDITS) <= {name for _, name in EXERCISES}
    assert set(SAYS) == set(ALL_CASES)
