"""The wheel holds all that the packages need, and works outside of the checkout.

It is built from a copy of the packages, unpacked into a folder, and used from another one.
"""

import fnmatch
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

pytest.importorskip("setuptools", "77")
pytest.importorskip("wheel")
ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("minidynamo", "miniinductor")
OUTSIDE = """
import json, sys, torch, minidynamo, miniinductor
assert minidynamo.__file__.startswith(sys.argv[1]), minidynamo.__file__
assert minidynamo.__version__ == miniinductor.__version__
f = lambda x: torch.softmax(x * 2, -1)
x = torch.randn(3, 5)
with torch.no_grad():
    torch.testing.assert_close(minidynamo.compile(f, fullgraph=True)(x), f(x))
    torch.testing.assert_close(torch.compile(f, backend="miniinductor")(x), f(x))
[record] = [r for r in minidynamo.records.frames if r.graph is not None]
assert record.backend_record.kernels, record.backend_record.notes
print("works")
"""


def run(*command: str, cwd: Path, **environment: str) -> str:
    """What the command prints.  The checkout is in none of its paths."""
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    kept = [path for path in paths if path and not Path(path).resolve().is_relative_to(ROOT)]
    paths = [environment.pop("first", ""), *kept]
    variables = os.environ | environment | {"PYTHONPATH": os.pathsep.join(filter(None, paths))}
    done = subprocess.run(command, cwd=cwd, env=variables, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory) -> Path:
    """The folder into which the wheel was unpacked."""
    source, built = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("built")
    for package in PACKAGES:
        ignored = shutil.ignore_patterns("__pycache__", "*.so")
        shutil.copytree(ROOT / package, source / package, ignore=ignored)
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    run(sys.executable, "setup.py", "-q", "bdist_wheel", "-d", str(built), cwd=source)
    (wheel,) = built.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(built / "site")
    return built / "site"


def files_in(folder: Path) -> set[str]:
    """The files of the packages, but for those that .gitignore names."""
    ignored = (ROOT / ".gitignore").read_text().replace("/", "").split()
    found = [path for package in PACKAGES for path in (folder / package).rglob("*")]
    names = {path.relative_to(folder) for path in found if path.is_file()}
    return {
        name.as_posix()
        for name in names
        if not any(fnmatch.fnmatch(part, one) for part in name.parts for one in ignored)
    }


def files_of_the_checkout(folder: Path) -> set[str]:
    """What git knows.  A copy may have no git, or lie in a checkout of something else: then what
    lies there."""
    if shutil.which("git") is None:
        return files_in(folder)
    listed = subprocess.run(
        ["git", "ls-files", *PACKAGES], cwd=folder, capture_output=True, text=True
    )
    return set(listed.stdout.split()) or files_in(folder)


@pytest.mark.parametrize("git", ["none", "no checkout", "another's", "its own"])
def test_what_a_checkout_holds_is_found_without_git_too(git, tmp_path, monkeypatch):
    names = {"minidynamo/a.py", "miniinductor/b/c.h"}
    for name in [*names, "minidynamo/__pycache__/a.pyc", "miniinductor/b/d.so", "else.py"]:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    if git == "none":
        monkeypatch.setenv("PATH", str(tmp_path))
    elif git != "no checkout":
        if shutil.which("git") is None:
            pytest.skip("git is not installed")
        (tmp_path / ".gitignore").write_text((ROOT / ".gitignore").read_text())
        run("git", "init", "-q", cwd=tmp_path)
    if git == "its own":
        run("git", "add", ".", cwd=tmp_path)
        (tmp_path / "minidynamo" / "not_added.py").touch()
    assert files_of_the_checkout(tmp_path) == names


def test_the_wheel_has_every_file_of_the_packages_and_nothing_else(unpacked):
    assert files_in(unpacked) == files_of_the_checkout(ROOT)
    assert {path.name for path in unpacked.iterdir()} - set(PACKAGES) == {
        next(unpacked.glob("*.dist-info")).name
    }
    assert len(list(unpacked.rglob("*.so"))) == 3


def test_the_wheel_works_outside_of_the_checkout(unpacked, tmp_path):
    script = tmp_path / "outside.py"
    script.write_text(OUTSIDE)
    cache = {"MINIINDUCTOR_CACHE": str(tmp_path / "cache")}
    command = [sys.executable, "-W", "ignore", str(script), str(unpacked)]
    assert "works" in run(*command, cwd=tmp_path, first=str(unpacked), **cache)


def test_there_is_one_version(unpacked):
    metadata = (next(unpacked.glob("*.dist-info")) / "METADATA").read_text()
    text = (ROOT / "miniinductor" / "__init__.py").read_text()
    version = re.search(r'^__version__ = "(.*?)"', text, re.M)[1]
    assert f"\nVersion: {version}\n" in metadata
    assert f"\nversion: {version}\n" in (ROOT / "CITATION.cff").read_text()
    assert f"\n## {version}" in (ROOT / "CHANGELOG.md").read_text()
