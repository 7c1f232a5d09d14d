"""environment.yml and pyproject.toml describe the same set-up."""

import tomllib
from pathlib import Path

import pytest

yaml = pytest.importorskip("yaml")
ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
ENVIRONMENT = yaml.safe_load((ROOT / "environment.yml").read_text())


def test_conda_brings_only_what_pip_cannot():
    names = {
        str(d).split(">")[0].split("=")[0]
        for d in ENVIRONMENT["dependencies"]
        if isinstance(d, str)
    }
    assert names == {"python", "pip", "cxx-compiler", "graphviz"}
    assert ENVIRONMENT["channels"] == ["conda-forge", "nodefaults"]


def test_the_pip_part_is_one_line_whose_extra_exists():
    (pip,) = [d["pip"] for d in ENVIRONMENT["dependencies"] if isinstance(d, dict)]
    assert len(pip) == 1 and pip[0].startswith("-e .[")
    assert set(pip[0].split("[")[1].rstrip("]").split(",")) <= set(PROJECT["optional-dependencies"])


def test_the_same_pythons():
    (python,) = [d for d in ENVIRONMENT["dependencies"] if str(d).startswith("python")]
    assert python.removeprefix("python") == PROJECT["requires-python"]


def test_the_extras_the_issue_names_exist():
    assert {"notebooks", "test"} <= set(PROJECT["optional-dependencies"])


def test_readme_names_the_two_commands():
    text = (ROOT / "README.md").read_text()
    makefile = (ROOT / "Makefile").read_text()
    for command in ("course", "test"):
        assert f"make {command}" in text and f"\n{command}:" in makefile
