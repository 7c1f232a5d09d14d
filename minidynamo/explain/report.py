"""`python -m minidynamo report folder`: one index of all that the processes of a job compiled.

    MINI_TRACE=traces torchrun --nproc-per-node 2 train.py      # a page for each process
    python -m minidynamo report traces                          # traces/index.html

In:   the pages in a folder: each holds its whole document.
Out:  index.html beside them: every frame with its compile seconds, graph breaks and
      recompilations, the dearest first; processes (ranks) side by side, with what differs marked.

    >>> [row.function for row in rows_of(pages_in(Path("traces")))]
    ['Net.forward', 'Adam.step']

# PyTorch: tlparse reads the logs of TORCH_TRACE=folder, a folder of pages for each rank.
"""

import base64
import json
import re
import sys
import zlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .views import many

USAGE = """usage: python -m minidynamo report folder [-o index.html]
       one index of the pages that MINI_TRACE=folder (or explain -o) wrote there

example:  MINI_TRACE=traces torchrun --nproc-per-node 2 train.py
          python -m minidynamo report traces"""
DATA = re.compile(r'id="data">(.*?)</script>', re.DOTALL)
SPENT = ("capture: ", "backward: ")  # stages that lie beside one another; others lie within these


@dataclass
class Page:
    """A page that a process wrote."""

    path: Path
    document: dict[str, Any]

    @property
    def label(self) -> str:
        """ "rank 1", or the name of the page."""
        rank = self.document["made"]["process"]["rank"]
        return f"rank {rank}" if rank is not None else self.path.stem

    @property
    def order(self) -> tuple[int, str]:
        rank = self.document["made"]["process"]["rank"]
        return (rank if rank is not None else -1), self.path.name


@dataclass
class Cell:
    """What one process did about a function.  again: guards that failed; breaks: their reasons."""

    link: str
    seconds: float = 0.0
    calls: int = 0
    entries: int = 0
    kernels: int = 0
    breaks: list[str] = field(default_factory=list)
    again: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    @property
    def decisions(self) -> tuple:
        """What all ranks of a job should have alike."""
        return self.entries, tuple(self.breaks), tuple(self.again), tuple(self.failures)


@dataclass
class Row:
    """A function, with a cell for each process that compiled it."""

    function: str
    place: str
    cells: dict[str, Cell] = field(default_factory=dict)

    @property
    def seconds(self) -> float:
        """The others wait for the slowest."""
        return max(cell.seconds for cell in self.cells.values())

    def differs(self, labels: list[str]) -> bool:
        """Did the processes decide differently, or did one of them not compile it?"""
        return len({cell.decisions for cell in self.cells.values()}) > 1 or len(self.cells) < len(
            labels
        )


# --- reading --------------------------------------------------------------------------------------
def pages_in(folder: Path) -> list[Page]:
    """The pages of a folder by rank; files that hold no document are left out."""
    found = []
    for path in sorted(folder.glob("*.html")):
        data = DATA.search(path.read_text(encoding="utf-8", errors="replace"))
        if data is not None:
            found.append(Page(path, json.loads(zlib.decompress(base64.b64decode(data[1])))))
    return sorted(found, key=lambda page: page.order)


def labels_of(pages: list[Page]) -> list[str]:
    """A label for each page; a rank that was started twice has the page's name, too."""
    labels = [page.label for page in pages]
    return [
        label if labels.count(label) == 1 else f"{label}, {page.path.stem}"
        for label, page in zip(labels, pages)
    ]


def rows_of(pages: list[Page]) -> list[Row]:
    """A row for each function of the program, the dearest first."""
    rows: dict[tuple[str, str], Row] = {}
    for page, label in zip(pages, labels_of(pages)):
        paths = {file["id"]: file["path"] for file in page.document["files"]}
        for frame in page.document["frames"]:
            place = f"{paths.get(frame['file'], 'no file')}:{frame['first_line']}"
            row = rows.setdefault((frame["function"], place), Row(frame["function"], place))
            cell = row.cells.setdefault(label, Cell(f"{page.path.name}#{frame['id']}"))
            add_frame(cell, frame, paths)
    return sorted(rows.values(), key=lambda row: -row.seconds)


def add_frame(cell: Cell, frame: dict[str, Any], paths: dict[str, str]) -> None:
    """Code that was made twice (a closure in a loop) shares a cell."""
    cell.calls += frame["calls"]
    for found in frame["breaks"]:
        innermost = found["stack"][-1] if found["stack"] else None
        where = f" at {innermost['path']}:{innermost['line']}" if innermost else ""
        cell.breaks.append(found["reason"] + where)
    cell.failures += [
        text.strip().split("\n")[-1] for text in (frame["error"], frame["skipped"]) if text
    ]
    for entry in frame["entries"]:
        cell.entries += 1
        cell.kernels += len(entry["kernels"])
        cell.seconds += sum(s for stage, s in entry["times"].items() if stage.startswith(SPENT))
        why = entry["recompiled_because"]
        if why:
            line = why["line"] and f", {paths[why['line']['file']]}:{why['line']['line']}"
            values = (
                f"expected {why['expected']}, was {why['actual']}"
                if why["expected"]
                else why["text"]
            )
            cell.again.append(f"{why['kind']}: {values}{line or ''}")


# --- writing --------------------------------------------------------------------------------------
def render(pages: list[Page]) -> str:
    """The index as HTML, which needs no script."""
    import jinja2
    from markupsafe import Markup

    from .page import FOLDER, style

    labels, rows = labels_of(pages), rows_of(pages)
    cells = [[row.cells[label] for row in rows if label in row.cells] for label in labels]
    environment = jinja2.Environment(
        autoescape=True, loader=jinja2.FileSystemLoader(FOLDER), trim_blocks=True
    )
    totals = [
        {
            "label": label,
            "link": page.path.name,
            "seconds": sum(cell.seconds for cell in found),
            "entries": sum(cell.entries for cell in found),
            "breaks": sum(len(cell.breaks) for cell in found),
            "again": sum(len(cell.again) for cell in found),
            "kernels": sum(cell.kernels for cell in found),
            "failures": sum(len(cell.failures) for cell in found),
        }
        for page, label, found in zip(pages, labels, cells)
    ]
    return environment.get_template("report.html.jinja").render(
        labels=labels,
        rows=rows,
        totals=totals,
        most=max((row.seconds for row in rows), default=0.0),
        style=Markup(style()),
    )


def main(arguments: list[str]) -> int:
    """Write the index of a folder; the exit status."""
    if arguments and arguments[0] in ("-h", "--help"):
        print(USAGE)
        return 0
    if (
        len(arguments) not in (1, 3)
        or len(arguments) == 3
        and arguments[1] not in ("-o", "--output")
    ):
        print(USAGE, file=sys.stderr)
        return 2
    folder = Path(arguments[0])
    if not folder.is_dir():
        print(f"there is no folder {arguments[0]!r}", file=sys.stderr)
        return 2
    target = Path(arguments[2]) if len(arguments) == 3 else folder / "index.html"
    if not target.absolute().parent.is_dir():
        print(f"there is no folder {str(target.parent)!r}", file=sys.stderr)
        return 2
    pages = pages_in(folder)
    if not pages:
        print(f"{folder} has no page: run the job with MINI_TRACE={folder}", file=sys.stderr)
        return 1
    target.write_text(render(pages), encoding="utf-8")
    functions, processes = len(rows_of(pages)), "process" if len(pages) == 1 else "processes"
    print(f"{len(pages)} {processes}, {many(functions, 'function')}: {target}")
    return 0
