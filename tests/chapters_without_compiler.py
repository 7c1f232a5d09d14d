"""The course on a machine without a C++ compiler: which cells of each chapter run.

    python tests/chapters_without_compiler.py [NAME ...]        # `make test-without-compiler`

In:   notebooks/src/, each with its exercises solved.   Out: a table, and exit status 1 where it is
      not the one of docs/platforms.md.

Every chapter has a process of its own, an empty PATH (so that neither `g++` nor `clang++` is found)
and an empty kernel cache.  A cell fails where it, or an exercise's check, raises.  (20 minutes on 2
cores.)
"""

import contextlib
import io
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "platforms.md"
ROW = re.compile(r"^\| (\d\d_\w+) \| (\d+) of (\d+) \|", re.M)


def expected() -> dict[str, tuple[int, int]]:
    """{chapter: (cells that run, cells)}, as the page has it."""
    return {name: (int(run), int(every)) for name, run, every in ROW.findall(PAGE.read_text())}


def run_chapter(name: str) -> None:
    """Run all cells here, and print how many did."""
    sys.path[:0] = [str(ROOT), str(ROOT / "notebooks")]
    os.chdir(ROOT / "notebooks")
    from IPython.core.interactiveshell import InteractiveShell

    import build

    shell, ran, every = InteractiveShell.instance(), 0, 0
    for cell in build.solved(build.read(name)).cells:
        if cell.cell_type == "code":
            with contextlib.redirect_stdout(io.StringIO()):
                ran += shell.run_cell(cell.source).success
            every += 1
    print(f"{name}: {ran} of {every}")


def without_compiler(name: str) -> str:
    """What `run_chapter` prints in a process that finds no compiler."""
    with tempfile.TemporaryDirectory() as folder:
        cache, mine = f"{folder}/cache", f"{folder}/my_compiler"
        shutil.copytree(ROOT / "notebooks/reference/my_compiler", mine)
        hidden = {"PATH": folder, "MINIINDUCTOR_CACHE": cache, "CXX": "", "MY_COMPILER": mine}
        paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
        variables = os.environ | hidden | {"PYTHONPATH": os.pathsep.join(paths)}
        command = [sys.executable, "-W", "ignore", __file__, "--here", name]
        done = subprocess.run(command, env=variables, capture_output=True, text=True)
        return (done.stdout.strip().splitlines() or [f"{name}: {done.stderr[-300:]}"])[-1]


def main(names: list[str]) -> int:
    others = 0
    for name, (ran, every) in expected().items():
        if not names or name in names:
            line, page = without_compiler(name), f"{name}: {ran} of {every}"
            others += line != page
            print(line, f"   docs/platforms.md says {page}" if line != page else "", flush=True)
    return int(others > 0)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--here"]:
        run_chapter(sys.argv[2])
    else:
        sys.exit(main(sys.argv[1:]))
