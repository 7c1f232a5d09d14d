"""The tour programs with all coverage hidden (`make subtraction` hides each file)."""

import gc

import pytest
import subtraction

from miniinductor import coverage


def test_the_core_alone_runs_the_tours():
    assert subtraction.hidden_run(subtraction.coverage_folders(), whole=True) == ""


def test_a_hidden_core_file_is_noticed():
    problems = subtraction.hidden_run(["miniinductor.scheduler"], whole=True)
    assert "miniinductor.scheduler is hidden" in problems or "no kernel was generated" in problems


@pytest.mark.parametrize("collecting", [True, False])
def test_loading_leaves_the_garbage_collector_as_it_was(collecting):
    """Also where a module cannot be imported."""
    before = gc.isenabled()
    (gc.enable if collecting else gc.disable)()
    try:
        coverage.load_folders("no_such_package", ())
        assert gc.isenabled() == collecting
        with pytest.raises(ZeroDivisionError), coverage.without_collecting():
            assert not gc.isenabled()
            1 / 0  # noqa: B018
        assert gc.isenabled() == collecting
    finally:
        (gc.enable if before else gc.disable)()
