"""What a chapter's text says about the output above it, tied to that output.

In:   marks in the text cells of notebooks/src, each on a line of its own at the end of a paragraph:
          <!-- shows: n("forward:") == 9 and n("backward:") > n("forward:") -->
          <!-- general -->         the sentence states no fact about the output
Out:  `contradicted`: the marks that an output contradicts; `untied`: sentences without a mark.

A mark is a Python expression about the nearest output above it.  It may use
    n(label, k=0)     the number k of those behind `label`, in the first line that has it
    has(text)         is it in the output, whatever the spaces?
    count(text)       how often is it there?
The stored notebooks and the pages have no marks: `build.read` takes them out.
"""

import html
import re
from collections.abc import Iterator, Sequence
from typing import Any

MARK = re.compile(r"^<!-- (?:shows: (.*?)|general) -->\n?", re.M)
NUMBER = re.compile(r"-?\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?")
CLAIM = re.compile(  # a number, an order or a comparison
    r"\d|\b(?:two|three|four|five|six|seven|eight|nine|ten|twelve|once|twice|half|nothing|none|only"
    r"|same|equal|agree\w*|all|every|as many|more|less|fewer|most|least|faster|fastest|slow\w+"
    r"|larg\w+|small\w*|long\w+|short\w*|high\w*|low\w*|first|second|third|fourth|last)\b",
    re.I,
)


def shown(cell: Any) -> str:
    """The text of a cell's outputs: what is printed, and tables and code in their plain form."""
    outputs = [o.get("text") or o.get("data", {}).get("text/plain", "") for o in cell["outputs"]]
    return html.unescape("\n".join("".join(text) for text in outputs))


class Output:
    """What a mark may ask about an output."""

    def __init__(self, text: str) -> None:
        self.text = text

    def n(self, label: str, k: int = 0) -> float:
        behind = next(line.partition(label)[2] for line in self.text.splitlines() if label in line)
        return float(NUMBER.findall(behind)[k].replace(",", ""))

    def has(self, text: str) -> bool:
        return self.count(text) > 0

    def count(self, text: str) -> int:
        return " ".join(self.text.split()).count(" ".join(text.split()))

    def holds(self, mark: str) -> bool:
        """An expression whose label is not there is as wrong as one that is false."""
        try:
            return bool(eval(mark, {"n": self.n, "has": self.has, "count": self.count}))
        except (StopIteration, IndexError):
            return False


def pairs(source: Sequence[Any], run: Sequence[Any]) -> Iterator[tuple[Any, Any, bool]]:
    """(a text cell, the nearest cell above it that has an output, is it the very next one?)."""
    above, at = None, 0
    for number, (cell, ran) in enumerate(zip(source, run, strict=True)):
        if cell["cell_type"] == "markdown" and above is not None:
            yield cell, above, at == number - 1
        elif ran.get("outputs"):
            above, at = ran, number


def contradicted(source: Sequence[Any], run: Sequence[Any], measured: bool = True) -> list[str]:
    """The marks that are false.  measured: those about timings, too."""
    return [
        mark
        for cell, above, _ in pairs(source, run)
        if measured or "volatile" not in above["metadata"].get("tags", [])
        for mark in MARK.findall(cell["source"])
        if mark and not Output(shown(above)).holds(mark)
    ]


def untied(source: Sequence[Any], run: Sequence[Any]) -> list[str]:
    """First paragraphs behind an output that state a number, an order or a comparison, unmarked."""
    paragraphs = [
        cell["source"].split("\n\n")[0] for cell, _, is_next in pairs(source, run) if is_next
    ]
    said = [
        (p, re.sub(r"`[^`]*`|^#.*|^\*\*\d.*|<.*?>|[Nn]otebook \d+", "", p, flags=re.M))
        for p in paragraphs
    ]
    return [p for p, text in said if CLAIM.search(text) and not MARK.search(p)]
