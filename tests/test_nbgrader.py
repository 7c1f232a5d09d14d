"""nbgrader's cycle on one notebook: generate the assignment, hand in answers, autograde.  Needs
`pip install -e ".[grading]"`."""

import os
import shutil
import sys
from pathlib import Path

import pytest

pytest.importorskip("nbgrader", reason="nbgrader is not installed (an optional extra: grading)")
NOTEBOOKS = Path(__file__).resolve().parent.parent / "notebooks"
sys.path.insert(0, str(NOTEBOOKS))
import build  # noqa: E402

NAME = "02_fx_graphs"


def test_solved_answers_get_all_points_and_empty_ones_none(tmp_path, monkeypatch):
    import nbformat
    from nbgrader.api import Gradebook
    from nbgrader.apps import NbGraderAPI
    from traitlets.config import Config

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(
        "PYTHONPATH",
        os.pathsep.join(
            [str(NOTEBOOKS), str(NOTEBOOKS.parent), *filter(None, [os.environ.get("PYTHONPATH")])]
        ),
    )
    monkeypatch.setenv("PATH", os.path.dirname(sys.executable) + os.pathsep + os.environ["PATH"])
    build.write_assignments([NAME], tmp_path)
    config = Config()
    (
        config.CourseDirectory.root,
        config.CourseDirectory.course_id,
        config.ExecutePreprocessor.timeout,
    ) = str(tmp_path), "minidynamo", 600
    api = NbGraderAPI(config=config)
    assert api.generate_assignment(NAME)["success"]
    released = tmp_path / "release" / NAME / f"{NAME}.ipynb"
    text = released.read_text()
    assert "BEGIN SOLUTION" not in text and "END SOLUTION" not in text
    for student in ("empty", "solved"):
        shutil.copytree(tmp_path / "release" / NAME, tmp_path / "submitted" / student / NAME)
    answers = {
        c.metadata["nbgrader"]["grade_id"]: c.source
        for c in build.solved(build.assignment(build.read(NAME))).cells
        if "nbgrader" in c.metadata
    }
    handed_in = nbformat.read(released, as_version=4)
    for cell in handed_in.cells:
        if cell.metadata.get("nbgrader", {}).get("solution"):
            cell.source = answers[cell.metadata["nbgrader"]["grade_id"]]
    nbformat.write(handed_in, tmp_path / "submitted" / "solved" / NAME / f"{NAME}.ipynb")
    for student in ("empty", "solved"):
        result = api.autograde(NAME, student)
        assert result["success"], result
    with Gradebook(f"sqlite:///{tmp_path}/gradebook.db") as book:
        scores = {
            student: book.find_submission(NAME, student).score for student in ("empty", "solved")
        }
        most = book.find_assignment(NAME).max_score
    assert scores == {"empty": 0, "solved": most} and most >= 2
