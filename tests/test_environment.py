"""environment.yml, .devcontainer and pyproject.toml describe the same set-up."""

import json
import re
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


def test_readme_names_the_commands():
    text = (ROOT / "README.md").read_text()
    makefile = (ROOT / "Makefile").read_text()
    named = set(re.findall(r"\bmake (\w+)", text))
    assert {"start", "course", "progress", "test"} <= named
    assert all(f"\n{command}:" in makefile for command in named)


def test_the_container_runs_commands_that_there_are():
    """Only this: no container was built from it (docs/testing.md says so)."""
    container = json.loads((ROOT / ".devcontainer" / "devcontainer.json").read_text())
    version = re.search(r"python:(3\.\d+)", container["image"])[1]
    assert any(line.endswith(f":: {version}") for line in PROJECT["classifiers"])
    script, *arguments = container["postCreateCommand"].split(" && ")[0].split()[1:]
    assert (ROOT / script).exists() and arguments[0] == ".venv"
    assert f"TORCH  ?= {arguments[1]}\n" in (ROOT / "Makefile").read_text()
    assert all(
        (ROOT / name).exists() for name in container["customizations"]["codespaces"]["openFiles"]
    )
