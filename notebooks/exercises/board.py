"""The student's board: each exercise and each piece, with its state and its points.

In:   what `check` wrote down in the notebooks (`progress.json`, beside `my_compiler/`), and the
      student's package, whose pieces are checked now.
Out:  a line for each, and the sum.

    $ make progress
    chapter  what      state        points
    00       00.1      PASS          2 of  2  who is first
    02       graph     FAIL         30 of 32  tensor operations as a graph, and passes
    06       breaks+   NOT WRITTEN   0 of 17  what cannot be captured runs as Python
    ...

An exercise has the points of its level (`POINTS`), in the share of its rows that pass; a piece has
a point for each row.  `breaks` is what everyone writes of a piece, `breaks+` what the curious add.
"""

import contextlib
import io
import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path

from . import CHECKS, POINTS, Row, level, load, points, state
from .own_checks import CHECKS as PIECE_CHECKS
from .own_checks import both_sizes, earned, rows_of
from .own_compiler import PIECES, STUDENT, own

NOTES = STUDENT.with_name("progress.json")  # {exercise: [state, points]}, as last checked


@dataclass(frozen=True)
class Line:
    """One row of the board."""

    chapter: str
    what: str
    state: str
    points: float
    most: int
    title: str

    def __str__(self) -> str:
        points = f"{self.points:5g} of {self.most:3}"
        return f"{self.chapter:7}  {self.what:9} {self.state:12} {points}  {self.title}"


def notes() -> dict[str, list]:
    return json.loads(NOTES.read_text()) if NOTES.exists() else {}


def note(name: str, rows: list[Row]) -> None:
    """Write down how an exercise was answered, where a notebook asks: builds and tests do not."""
    if "ipykernel" not in sys.modules:
        return
    found = notes() | {name: [state(rows), points(name, rows)]}
    draft = NOTES.with_suffix(f".{os.getpid()}")
    draft.write_text(json.dumps(found, indent=1, sort_keys=True))
    draft.replace(NOTES)


def exercises() -> list[Line]:
    """As they were last checked."""
    load()
    found = notes()
    lines = []
    for name, (title, _) in sorted(CHECKS.items()):
        said, earned = found.get(name, ["NOT WRITTEN", 0])
        lines.append(Line(name[:2], name, said, earned, POINTS[level(name)], title))
    return lines


def pieces(folder: Path = STUDENT) -> list[Line]:
    """As their files are now."""
    lines = []
    with contextlib.redirect_stdout(io.StringIO()):  # who stands in for what is missing
        try:
            own(folder)
        except SyntaxError as error:
            return [Line("", "pieces", "FAIL", 0, 0, f"Python cannot read {error}")]
        for name, (title, _) in PIECE_CHECKS.items():
            everyone, curious = both_sizes(rows_of(name))
            for what, rows in ((name, everyone), (f"{name}+", curious)):
                if rows:
                    numbers = earned(rows), len(rows)
                    lines.append(Line(PIECES[name].chapter, what, state(rows), *numbers, title))
    return lines


def total(lines: list[Line]) -> str:
    points, most = sum(line.points for line in lines), sum(line.most for line in lines)
    done = sum(line.state == "PASS" for line in lines)
    return f"{done} of {len(lines)} done, {points:g} of {most} points"


def board() -> str:
    lines = sorted([*exercises(), *pieces()], key=lambda line: line.chapter)
    curious = [line for line in lines if line.what.endswith("+")]
    everyone = [line for line in lines if line not in curious]
    head = f"{'chapter':7}  {'what':9} {'state':12} {'points':>12}"
    ends = [f"everyone: {total(everyone)}", f"the curious add (+): {total(curious)}"]
    return "\n".join([head, *map(str, lines), *ends])


if __name__ == "__main__":
    print(board())
