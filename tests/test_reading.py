"""What the README and the course say about the core's files is true: which there are, how long.

`make sizes` writes the README's tables anew.
"""

import re
from pathlib import Path

import pytest

from tools import sizes

ROOT = sizes.ROOT
NOTEBOOKS = sorted((ROOT / "notebooks" / "src").glob("*.py"))
NEAR = 0.1  # a file may be so much longer or shorter than the README says
FEW = 10  # lines that do not matter


def told_lines() -> dict[str, int]:
    """{file of the core: its lines}, as the README's table has them."""
    table = (ROOT / "README.md").read_text().split(sizes.TABLES.format("reading"))[1]
    found = {}
    for row in table.splitlines():
        folder = re.search(r"\| `(\S+/)`: ", row)
        if folder:
            files = re.findall(r"`(\S+)` (\d+)", row)
            found |= {folder[1] + name: int(lines) for name, lines in files}
    return found


def test_the_readme_names_every_file_of_the_core_with_about_its_lines():
    measured = sizes.measure()
    core = {n: s.lines for n, s in measured.items() if sizes.part_of(n) == "core" and s.lines}
    told = told_lines()
    assert told.keys() == core.keys(), "run `make sizes`"
    wrong = {n: (told[n], core[n]) for n in core if abs(told[n] - core[n]) > FEW + NEAR * core[n]}
    assert not wrong, "run `make sizes`"
    assert sum(told.values()) == pytest.approx(sum(core.values()), rel=0.03), "run `make sizes`"


def test_the_check_finds_a_file_that_is_not_told(monkeypatch):
    sources = sizes.measure() | {"minidynamo/new.py": sizes.Size(100, 800)}
    monkeypatch.setattr(sizes, "measure", lambda: sources)
    with pytest.raises(AssertionError, match="make sizes"):
        test_the_readme_names_every_file_of_the_core_with_about_its_lines()


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_each_chapter_names_files_that_there_are(path: Path):
    first = path.read_text().split("# %%")[1]
    told = first.split("**Core files of this chapter:**")[1]
    files = re.findall(r"`(mini\S+)`", told)
    assert files and all((ROOT / name).exists() for name in files)
