"""The packages need nothing but themselves: without explain, benchmarks, notebooks and tools the
compiler's own tests pass."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TAKEN_AWAY = ("benchmarks", "notebooks", "tools")
TESTS = """
    test_capture_language.py
    test_breaks.py::test_in_finally_and_else
    test_breaks.py::test_in_a_with_block
    test_capture_guards.py::test_module_changes
    test_capture_guards.py::test_the_gradient_is_guarded
    test_bytecode.py::test_exception_table_encoding
    test_dependencies.py
    test_cpp.py::test_strides
    test_cpp.py::test_statistics_over_rows
    test_training.py::test_pitfall_2_a_written_input_with_history
    test_training.py::test_a_module_trains
    test_soundness_keys.py::test_objects_as_keys
""".split()


def test_without_everything_around_them_the_packages_pass_their_tests(tmp_path):
    for package in ("minidynamo", "miniinductor"):
        left_out = shutil.ignore_patterns("__pycache__", "explain")
        shutil.copytree(ROOT / package, tmp_path / package, ignore=left_out)
    shutil.copytree(
        ROOT / "tests", tmp_path / "tests", ignore=shutil.ignore_patterns("__pycache__")
    )
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    for name in TAKEN_AWAY:  # not found elsewhere, either
        (tmp_path / f"{name}.py").write_text("raise ImportError('taken away')\n")
    command = [sys.executable, "-m", "pytest", "-x", "-p", "no:cacheprovider"]
    done = subprocess.run(
        command + [f"tests/{test}" for test in TESTS],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
