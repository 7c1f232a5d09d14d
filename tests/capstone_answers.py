"""Wrong answers to the exercises of notebook 16, which train a model (`make exercises`)."""

import pytest
from test_wrong_answers import ALL_CASES, CAPSTONE, NOTEBOOKS, assert_it_fails_as_written


@pytest.mark.parametrize("name, why", [c for c in ALL_CASES if c[0].startswith(CAPSTONE)])
def test_a_wrong_answer_fails_in_the_row_that_is_written_beside_it(name, why, monkeypatch):
    monkeypatch.chdir(NOTEBOOKS)
    assert_it_fails_as_written(name, why)
