"""Write the students' tree: everything that a student runs, and no solution.

usage: python notebooks/teaching/release.py [FOLDER]        (default: build/student)

In:   this repository.
Out:  FOLDER: START_HERE.md, a Makefile (`make start`, `make progress`), both packages, the stored
      notebooks, the exercises' checks, the pictures that move, and the reference of the student's
      own compiler, packed.  Left out: `notebooks/src`, which holds the solutions, the readable
      reference, `notebooks/teaching`, the tests, what builds the site.  A link to what is left out
      becomes plain words.

What a check compares with is in the students' hands, as it must be: the checks run on their
machines.  Hidden tests are for nbgrader (`notebooks/build.py --nbgrader`).
"""

import re
import shutil
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "notebooks"))

KEPT = (
    *("LICENSE", "CITATION.cff", "pyproject.toml", "setup.py", "environment.yml", ".devcontainer"),
    *("docs", "minidynamo", "miniinductor", "benchmarks", "tools"),
    *("notebooks/exercises", "notebooks/prior", "notebooks/parts.py", "notebooks/roof.py"),
    *("notebooks/drawings.py", "notebooks/steppers.py", "notebooks/matplotlibrc"),
)
START_HERE = """# Start here

You will build your own `torch.compile`: it captures a GPT, fuses it, writes C++ and trains it.

```
make start       # 5 minutes with the download of torch; ends in JupyterLab, at chapter 00
make progress    # 15 seconds: your board
```

`make start` installs everything into `.venv`; a busy machine needs twice as long. You need Python
3.11 to 3.13 with headers, a C++ compiler and `make`. On a machine without a browser say
`make start LAB="jupyter lab --no-browser"`; JupyterLab then prints the address to open. Without
`make`:

```
python3 tools/setup_environment.py .venv torch==2.13.0
.venv/bin/jupyter lab notebooks/00_tour.ipynb
```

## An exercise

1. Run the chapter from its top: exercises use what the cells above define.
2. Fill in the cell that says `raise NotImplementedError("your turn")`, and run it.
3. Run the cell below it. It prints a row for each thing that your answer must do: PASS, FAIL or
   NOT WRITTEN. If a row fails, one red line below says how many.

Hints stand above the exercise, folded. You may run the check as often as you like.

## Your own compiler

From chapter 02 on each chapter adds a file to `notebooks/my_compiler/`. The cell `begin("graph")`
writes the first one. Open `notebooks/my_compiler/graph.py` in JupyterLab's file browser or in your
editor, write the functions that say "your turn", save, and run `check_piece("graph")` in the
notebook. The kernel need not be restarted. You may skip a piece: the reference solution takes its
place, and its rows say NOT WRITTEN.

The compiler has two sizes. Everyone writes what captures, differentiates, fuses and trains a small
GPT. The curious add graph breaks, writes to objects, Triton, and sizes that are symbols. A piece
passes when the rows for everyone pass. The table counts the lines of the reference solution:

```
SIZES
```

## Your progress

`make progress` prints a line for each exercise and each piece, with its state and points. Exercises
appear as you last checked them in Jupyter; pieces are checked on the spot. An exercise has 2, 4 or
6 points, by its level; a piece has one for each row that passes. `breaks` is what everyone writes
of that piece, and `breaks+` what the curious add; the last two lines give both sums.

## What else is here

[The chapters](notebooks), [how to use the compiler](docs/usage.md), [its files](docs/files.md) in
the order in which a program flows through them, [what it cannot do](docs/limits.md). For a first
look in a terminal: `.venv/bin/python -m minidynamo tour`.
"""
README = """# minidynamo: the students' tree

Begin with [START_HERE.md](START_HERE.md).
"""
MAKEFILE = """LAB ?= jupyter lab

start: .venv/.ready
\t.venv/bin/$(LAB) notebooks/00_tour.ipynb

progress: .venv/.ready
\t@cd notebooks && ../.venv/bin/python -W ignore -m exercises.board

.venv/.ready:
\t@sh tools/find_python.sh "$(PYTHON)" tools/setup_environment.py .venv torch==2.13.0
\t@touch $@

.PHONY: start progress
"""
LINK = re.compile(r"(?<!!)\[([^]]*)\]\((?!https?:|#)([^)#]+)[^)]*\)")
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
    for name, text in {
        "START_HERE.md": START_HERE.replace("SIZES", own_compiler.two_sizes()),
        "README.md": README,
        "Makefile": MAKEFILE,
    }.items():
        (folder / name).write_text(text)
    for path in folder.rglob("*.md"):
        path.write_text(without_dead_links(path.read_text(), path.parent))
    return folder


def without_dead_links(text: str, folder: Path) -> str:
    """A page in which links to files that the tree lacks are plain words."""
    return LINK.sub(lambda m: m[0] if (folder / m[2]).exists() else m[1], text)


if __name__ == "__main__":
    print(release(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "build" / "student"))
