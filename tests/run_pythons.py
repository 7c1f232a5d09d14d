"""The tests that need no torch, on every CPython 3.11, 3.12 and 3.13 of this machine.

In:   interpreters named python3.11 .. python3.13 on PATH or under pyenv's `versions` folder.
Out:  a table; exit status 1 if a version failed or none was found.  Each version gets a fresh
      virtual environment and a copy of the sources, in which the frame hook is built; the working
      tree is left alone.

    python tests/run_pythons.py [pytest arguments]
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
TESTS = ["tests/test_bytecode.py", "tests/test_resume.py", "tests/test_hook.py"]
HELPERS = ["tests/conftest.py", "tests/other_evaluator.py", "tests/split_points.py"]
BUILD = """
from setuptools import Extension, setup
flags = ["-O2", "-Wall", "-Werror"]
places = {"minidynamo.frame._frame_hook": "minidynamo/frame/frame_hook.c",
          "minidynamo.guards._layouts": "minidynamo/guards/layouts.c"}
modules = [Extension(name, [file], extra_compile_args=flags) for name, file in places.items()]
setup(name="hook", packages=[], ext_modules=modules)
"""
VERSIONS = ("3.11", "3.12", "3.13")


def interpreters():
    """{"3.11": path, ...}: those on PATH first, then pyenv's newest."""
    found = {}
    pyenv = pathlib.Path(os.environ.get("PYENV_ROOT", pathlib.Path.home() / ".pyenv")) / "versions"
    for version in VERSIONS:
        candidates = [shutil.which(f"python{version}"), sys.executable]
        candidates += sorted(
            pyenv.glob(f"{version}.*/bin/python"),
            key=lambda p: [int(n) for n in re.findall(r"\d+", p.parts[-3])],
            reverse=True,
        )
        for candidate in filter(None, candidates):
            command = [
                str(candidate),
                "-c",
                "import sys, sysconfig, venv; print('%d.%d' % sys.version_info[:2])",
            ]
            answer = subprocess.run(
                command, capture_output=True, text=True
            )  # a pyenv shim may answer with an error
            if answer.stdout.strip() == version:
                found[version] = str(candidate)
                break
    return found


def copy_sources(folder):
    """minidynamo's torch-free files and their tests."""
    (folder / "tests").mkdir()
    for name in TESTS + HELPERS:
        shutil.copy(ROOT / name, folder / name)
    for package in ("minidynamo", "miniinductor"):
        ignored = shutil.ignore_patterns("*.so", "__pycache__")
        shutil.copytree(ROOT / package, folder / package, ignore=ignored)
    (folder / "setup.py").write_text(BUILD)


def test(python, arguments):
    """(what happened, output) for one interpreter."""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        copy_sources(folder)
        own = str(folder / "environment" / "bin" / "python")
        steps = {
            "virtual environment": [python, "-m", "venv", "environment"],
            "installation": [
                *(own, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"),
                *("pytest", "setuptools"),
            ],
            "build": [own, "setup.py", "--quiet", "build_ext", "--inplace"],
            "tests": [
                *(own, "-X", "faulthandler", "-m", "pytest", "-q", "-p", "no:cacheprovider"),
                *(*arguments, *TESTS),
            ],
        }
        environment = {**os.environ, "PYTHONPATH": str(folder)}
        for step, command in steps.items():
            done = subprocess.run(
                command,
                cwd=folder,
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            if done.returncode:
                return f"{step} failed", done.stdout
    return done.stdout.strip().splitlines()[-1].strip("= "), ""


def main(arguments):
    found, failed = interpreters(), False
    print(f"{'CPython':8} {'result':45} interpreter")
    for version in VERSIONS:
        if version not in found:
            print(f"{version:8} {'not on this machine':45}")
            continue
        result, output = test(found[version], arguments)
        print(f"{version:8} {result:45} {found[version]}", flush=True)
        if output:
            failed = True
            print(output)
    return 1 if failed or not found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
