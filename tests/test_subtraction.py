"""The tour programs with all coverage hidden (`make subtraction` hides each file)."""

import subtraction


def test_the_core_alone_runs_the_tours():
    assert subtraction.hidden_run(subtraction.coverage_folders(), whole=True) == ""


def test_a_hidden_core_file_is_noticed():
    problems = subtraction.hidden_run(["miniinductor.scheduler"], whole=True)
    assert "miniinductor.scheduler is hidden" in problems or "no kernel was generated" in problems
