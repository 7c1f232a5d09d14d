"""No check lets a plausible wrong answer through (`notebooks/exercises/wrong_answers.py`)."""

import sys
from pathlib import Path

import pytest

NOTEBOOKS = Path(__file__).resolve().parent.parent / "notebooks"
sys.path.insert(0, str(NOTEBOOKS))
import exercises  # noqa: E402
from exercises.wrong_answers import WRONG  # noqa: E402

CASES = [(name, why) for name, answers in WRONG.items() for why in answers]


@pytest.mark.parametrize("name, why", CASES)
def test_a_wrong_answer_fails(name, why, monkeypatch):
    monkeypatch.chdir(NOTEBOOKS)
    exercises.load()
    rows = exercises.rows_of(exercises.CHECKS[name][1], WRONG[name][why])
    assert not all(row.passed for row in rows)
    stopped = [row.detail for row in rows if row.label == "the check itself could not go on"]
    assert stopped == []
