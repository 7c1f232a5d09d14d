"""Write the students' tree: everything that a student runs, and no solution.

usage: python notebooks/teaching/release.py [FOLDER]        (default: build/student)

In:   this repository.
Out:  FOLDER: both packages, the stored notebooks, the exercises' checks, the pictures that move,
      and the reference of the student's own compiler, packed.  Left out: `notebooks/src`, which
      holds the solutions, the readable reference, `notebooks/teaching`, the tests, what builds the
      site.

What a check compares with is in the students' hands, as it must be: the checks run on their
machines.  Hidden tests are for nbgrader (`notebooks/build.py --nbgrader`).
"""

import shutil
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "notebooks"))

KEPT = (
    *("README.md", "LICENSE", "CITATION.cff", "pyproject.toml", "setup.py", "environment.yml"),
    *("docs", "minidynamo", "miniinductor", "benchmarks", "tools"),
    *("notebooks/exercises", "notebooks/prior", "notebooks/steppers.py"),
    "notebooks/parts.py",
)
START_HERE = """# Start here

`make start` installs everything into `.venv` (you need Python 3.11 to 3.13 with headers, and a C++
compiler; it takes a few minutes) and opens JupyterLab at chapter 00.  Without `make`:

    python3 tools/setup_environment.py .venv torch==2.13.0
    .venv/bin/jupyter lab notebooks/00_tour.ipynb

An exercise is a cell to fill in; the cell behind it checks the answer.  Your own compiler lies in
`notebooks/my_compiler/`: `begin("graph")` in chapter 02 makes its first file, which you open in an
editor.  `make progress` prints what of it is written, chapter by chapter.
"""
MAKEFILE = """start: .venv/.ready
\t.venv/bin/jupyter lab notebooks/00_tour.ipynb

progress: .venv/.ready
\t@cd notebooks && ../.venv/bin/python -m exercises.own_checks

.venv/.ready:
\tsh tools/find_python.sh "$(PYTHON)" tools/setup_environment.py .venv torch==2.13.0
\ttouch $@

.PHONY: start progress
"""
UNWANTED = shutil.ignore_patterns(
    "__pycache__",
    "*.so",
    "*.pyc",
    "build",
    "*.egg-info",
    "wrong_*.py",
    "feedback.py",
    "hidden.py",
    "other_pieces.py",
)


def release(folder: Path) -> Path:
    """Write the tree into `folder`, which is made anew."""
    from exercises import own_compiler

    shutil.rmtree(folder, ignore_errors=True)
    for name in KEPT:
        source, target = ROOT / name, folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target, ignore=UNWANTED)
        else:
            shutil.copy(source, target)
    for path in sorted((ROOT / "notebooks").glob("*.ipynb")):
        shutil.copy(path, folder / "notebooks")
    packed = folder / own_compiler.PACKED.relative_to(ROOT)
    packed.parent.mkdir()
    packed.write_bytes(own_compiler.pack())
    (folder / "START_HERE.md").write_text(START_HERE)
    (folder / "Makefile").write_text(MAKEFILE)
    return folder


if __name__ == "__main__":
    print(release(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "build" / "student"))
