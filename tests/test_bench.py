"""The benchmark runner on tiny inputs: what it measures is right; no test depends on a time."""

import json

import pytest
import torch

import minidynamo
from benchmarks import runner, suites


def test_a_row_has_every_figure():
    with torch.no_grad():
        row = suites.measure("relu", lambda x: torch.relu(x) + 1, [torch.randn(8)], {}, peer=False)
    assert row["ours difference"] < 1e-6
    assert set(row["seconds"]) == {"eager", "ours"} and row["eager / ours"][0] > 0
    assert row["ours compile"]["wall"] > 0 and "relu" in suites.format_row(row)


def test_a_wrong_result_is_not_timed(monkeypatch):
    monkeypatch.setattr(minidynamo, "compile", lambda f: lambda x: f(x) + 1)
    row = suites.measure("wrong", lambda x: x * 2, [torch.ones(2)], {}, peer=False)
    assert "ours" not in row["seconds"] and "wrong" in suites.format_row(row)


def test_interleaving_counts_every_round():
    calls = []
    timings = runner.interleave(
        {"a": lambda: calls.append("a"), "b": lambda: calls.append("b")}, budget=0, rounds=(3, 3)
    )
    assert len(timings["a"].seconds) == len(timings["b"].seconds) == 3
    middle, low, high = runner.ratio(timings, "a", "b")
    assert low <= middle <= high


def test_an_ablation_switches_off_one_thing_and_keeps_the_numbers():
    from benchmarks.suites import ablation

    assert {"fusion", "inlining", "buffer reuse", "fusion and inlining"} <= set(
        ablation.switches()
    ) and "verify" not in ablation.switches()
    x = torch.randn(64, 100)
    with torch.no_grad():
        row = ablation.ablate("softmax", lambda x: torch.softmax(x, -1), [x], budget=0)
    assert (
        row["kernels"]["all on"]
        == 1
        < row["kernels"]["fusion"]
        < row["kernels"]["fusion and inlining"]
    )
    assert row["megabytes"]["all on"] == 2 * x.numel() * 4 / 1e6 < row["megabytes"]["fusion"]
    assert all(len(value) == 3 for value in row["slower without"].values())
    with torch.no_grad():
        assert ablation.ablate(
            "one", lambda x: x + 1, [x], budget=0, chosen={"scalar": {"vectorize": False}}
        )["kernels"] == {"all on": 1, "scalar": 1}


def test_help_has_a_line_for_each_suite_and_a_wrong_name_is_answered(capsys):
    from benchmarks.__main__ import main

    with pytest.raises(SystemExit):
        main(["--help"])
    lines = capsys.readouterr().out.split("suites:")[1].strip().splitlines()
    told = dict(line.split(None, 1) for line in lines)
    assert all(len(told[name]) > 20 for name in suites.SUITES)
    with pytest.raises(SystemExit):
        main(["--suite", "overhed"])
    assert "did you mean overhead?" in capsys.readouterr().err


def test_programs_are_counted_and_a_run_goes_on_behind_its_file(tmp_path, capsys):
    from benchmarks.__main__ import main

    file = str(tmp_path / "rows.json")
    arguments = ["--suite", "programs", "--no-peer", "--json", file, "--resume", "--only"]
    assert main([*arguments, "^breaks/locks$;^styles/gaussian_process$"]) == 0
    assert main([*arguments, "^breaks/locks$;^breaks/unique$"]) == 0
    with open(file) as read:
        found = json.load(read)
    assert [row["name"].split("/")[1] for row in found["rows"]] == [
        "locks",
        "gaussian_process",
        "unique",
    ]
    assert all(row["ours"]["results"] and row["ours"]["random"] for row in found["rows"])
    assert found["summary"]["styles"]["ours"] == {
        "whole": 1,
        "graphs": 1,
        "breaks": 0,
        "recompilations": 0,
        "given up": 0,
        "wrong": 0,
    }
    assert len(suites.programs.programs()) >= 60
