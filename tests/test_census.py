"""The census of kernels: its cases are what their names say, its sample is fair, what it concludes
follows from the rows; no test depends on a time."""

import itertools

import pytest
import torch

from benchmarks import census
from benchmarks.census_grid import CLASSES, IN_THE_ISSUE, Case, Spec, grid


def test_every_case_has_a_name_of_its_own_and_some_are_held_out():
    for device in ("cpu", "cuda"):
        cases = grid(device)
        assert {case.kind for case in cases.values()} == set(CLASSES) >= set(IN_THE_ISSUE)
        for kind in CLASSES:
            found = [case.is_held_out for case in cases.values() if case.kind == kind]
            assert len(found) >= 20 and not all(found), kind


def test_inputs_are_the_same_in_every_process_and_have_their_layout():
    spec = Spec((2, 3, 4, 5), torch.bfloat16, "last")
    one, two = spec.tensor("cpu", 3), spec.tensor("cpu", 3)
    assert one.equal(two) and one.shape == (2, 3, 4, 5) and one.dtype == torch.bfloat16
    assert one.is_contiguous(memory_format=torch.channels_last)
    assert Spec((4, 6), layout="permuted").tensor("cpu", 0).stride() == (1, 4)
    assert Spec((9,), torch.int64, high=3).tensor("cpu", 0).max() < 3


def test_every_beginning_is_a_fair_sample():
    ordered = census.in_fair_order(grid("cpu").values(), seed=5)
    first = [case.kind for case in ordered[: len(CLASSES)]]
    assert sorted(first) == sorted(CLASSES) and set(first[: len(IN_THE_ISSUE)]) == set(IN_THE_ISSUE)
    again, other = (census.in_fair_order(grid("cpu").values(), seed) for seed in (5, 6))
    names, same, others = ([case.name for case in found] for found in (ordered, again, other))
    assert names == same != others and sorted(names) == sorted(others)


def test_a_row_says_what_moved_and_a_wrong_one_has_no_time(monkeypatch):
    import minidynamo

    case = Case("mine", "one", lambda x, r: x * r, (Spec((64, 32)), Spec((32,))))
    with torch.no_grad():
        row = census.measure(case, "cpu", peer=False, budget=0)
        assert row["least bytes"] == row["bytes"] == 4 * (64 * 32 * 2 + 32)
        assert row["kernels"] == 1 and not row["eager kernels"] and "eager / ours" in row
        assert isinstance(census.why(row, "cpu"), str)
        monkeypatch.setattr(minidynamo, "compile", lambda f: lambda x, r: f(x, r) + 1)
        row = census.measure(case, "cpu", peer=False, budget=0)
        assert "ours" in row["wrong"] and "ours" not in row["seconds"]
        assert "wrong" in census.why(row, "cpu")


@pytest.mark.parametrize("kind", sorted(CLASSES))
def test_the_cases_of_a_class_run(kind):
    """On meta tensors (that ours computes them rightly is the census's own check)."""
    for name, function, specs in itertools.islice(CLASSES[kind](1, "cpu"), 0, None, 7):
        with torch.device("meta"):
            inputs = [torch.empty(spec.shape, dtype=spec.dtype) for spec in specs]
        assert census.tensors_of(function(*inputs)), name
