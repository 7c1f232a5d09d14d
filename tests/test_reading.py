"""What README.md, docs/files.md and the course say about the files is true: which there are, how
long.

`make sizes` writes the tables anew.
"""

import re
from pathlib import Path

import pytest

from tools import sizes

ROOT = sizes.ROOT
NOTEBOOKS = sorted((ROOT / "notebooks" / "src").glob("*.py"))
NEAR = 0.1  # a file may be so much longer or shorter than the page says
FEW = 10  # lines that do not matter


def told_lines() -> dict[str, int]:
    """{file: its lines}, as the table of docs/files.md has them."""
    found = {}
    for row in sizes.FILES.read_text().split(sizes.TABLE)[1].splitlines():
        folder = re.search(r"\| `(\S+/)`: ", row)
        if folder:
            files = re.findall(r"`(\S+)` (\d+)", row)
            found |= {folder[1] + name: int(lines) for name, lines in files}
    return found


def test_the_reading_list_has_about_the_lines_of_its_files():
    measured = sizes.measure()
    files = [name for names in sizes.chapters(measured).values() for name in names]
    read = {name: measured[name].lines for name in files}
    told = told_lines()
    assert told.keys() == read.keys(), "run `make sizes`"
    wrong = {n: (told[n], read[n]) for n in read if abs(told[n] - read[n]) > FEW + NEAR * read[n]}
    assert not wrong, "run `make sizes`"
    assert sum(told.values()) == pytest.approx(sum(read.values()), rel=0.03), "run `make sizes`"


def test_the_readme_says_how_large_it_all_is():
    told, found = (
        [int(n.replace(",", "")) for n in re.findall(r"\| ([\d,]+) \|$", text, re.M)]
        for text in (
            sizes.README.read_text().split(sizes.SIZE_TABLE)[1],
            "\n".join(sizes.size_table(sizes.measure())),
        )
    )
    assert len(told) == 3 and told == pytest.approx(found, rel=0.03), "run `make sizes`"


def test_the_check_finds_a_file_that_is_not_told(monkeypatch):
    monkeypatch.setattr(sizes, "READING", sizes.READING + "    minidynamo/explain listing.py\n")
    with pytest.raises(AssertionError, match="make sizes"):
        test_the_reading_list_has_about_the_lines_of_its_files()


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_each_chapter_names_files_that_there_are(path: Path):
    first = path.read_text().split("# %%")[1]
    files = re.findall(r"`(\w+/\S+)`", first.split("**Files of this chapter:**")[1])
    assert files and all((ROOT / name).exists() for name in files)
