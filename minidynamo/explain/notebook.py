"""The explorer in a notebook: a picture that needs no script, and the live page below it.

In:   an Explanation.
Out:  HTML: an <img> (code hosts show it, and run no scripts), and an <iframe> whose page stands in
      the cell's output (`srcdoc`), so that it works offline and in built pages.

    >>> e                       # the picture and the explorer
    >>> e.pane("fusion")        # one pane of it
"""

import base64
import functools
import html
from typing import Any

from .page import render
from .palette import TEXT_FACE
from .views import many

PANES = (
    "flow source stages kernels guards map fusion memory saved times bytecode compare table".split()
)
LARGEST = 600_000  # characters of a page that is put into a notebook; a larger one is saved instead
KINDS = ("fx", "aten", "loop_ir", "kernel")  # stages that the picture counts, in their order
TITLES = {"fx": "FX graph", "aten": "ATen graph", "loop_ir": "loop IR", "kernel": "kernels"}
COLUMN, ROW, WIDE, HIGH = 170, 64, 140, 40
ROWS = 8  # entries in the picture


class Embedded:
    """The explorer, or one pane of it, in a cell of a notebook.  In a terminal: what it is."""

    def __init__(self, explanation: Any, pane: str = "") -> None:
        if pane and pane not in PANES:
            raise ValueError(f"there is no pane {pane!r}: use {', '.join(PANES)}")
        self.explanation, self.pane = explanation, pane

    @functools.cached_property
    def document(self) -> dict[str, Any]:
        return self.explanation.to_json()

    def __repr__(self) -> str:
        shown = f"the pane {self.pane!r}" if self.pane else "the explorer"
        return f"<{shown} of {self.explanation.name}; save('page.html') writes the whole page>"

    def _repr_html_(self) -> str:
        page = render(self.document, self.pane)
        if len(page) > LARGEST:
            live = "<p><code>e.save('page.html')</code> writes the explorer of this program.</p>"
        else:
            high = 460 if self.pane else 820
            title = f"The explorer of {self.explanation.name} {self.pane}".rstrip()
            live = (
                f'<iframe srcdoc="{html.escape(page)}" title="{html.escape(title)}" '
                f'style="width:100%;height:{high}px;border:1px solid #ccc"></iframe>'
            )
        return live if self.pane else image(picture(self.document)) + live


def image(svg: str) -> str:
    """An SVG as a picture that no page takes apart."""
    data = base64.b64encode(svg.encode()).decode()
    return f'<p><img alt="The stages of each entry" src="data:image/svg+xml;base64,{data}"></p>'


def picture(document: dict[str, Any]) -> str:
    """One row of boxes for each entry: how much there is in each stage."""
    entries = [(frame, entry) for frame in document["frames"] for entry in frame["entries"]]
    shapes = []
    for row, (frame, entry) in enumerate(entries[:ROWS]):
        for column, (title, text) in enumerate(boxes(frame, entry)):
            shapes += drawn(12 + column * COLUMN, 12 + row * ROW, title, text, column > 0)
    width = (len(KINDS) + 1) * COLUMN
    height = max(1, min(len(entries), ROWS)) * ROW + 8
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}"><rect width="100%" height="100%" fill="#ffffff"/>'
        f"{''.join(shapes)}</svg>"
    )


def boxes(frame: dict[str, Any], entry: dict[str, Any]) -> list[tuple[str, str]]:
    """(title, text) of an entry's boxes: its frame, then its stages."""
    rows = [(frame["function"], f"{many(len(entry['guards']), 'guard')}")]
    for kind in KINDS:
        stages = [stage for stage in entry["stages"] if stage["kind"] == kind]
        if kind == "kernel":
            text = f"{len(entry['kernels'])}, and {len(entry['eager_kernels'])} eager"
        else:
            text = many(len(stages[-1]["nodes"]) if stages else 0, "node")
        rows.append((TITLES[kind], text))
    return rows


def drawn(x: int, y: int, title: str, text: str, has_arrow: bool) -> list[str]:
    """A box with two lines of text, and the arrow that leads to it."""
    short = title if len(title) <= 20 else title[:19] + "…"
    middle = y + HIGH // 2
    found = [
        f'<rect x="{x}" y="{y}" width="{WIDE}" height="{HIGH}" rx="6" fill="#f3f3f3" '
        'stroke="#555555"/>',
        *[
            f'<text x="{x + WIDE // 2}" y="{y + down}" text-anchor="middle" '
            f'font-family="{TEXT_FACE}" font-size="{size}" fill="#1f1f1f">'
            f"{html.escape(line)}</text>"
            for line, down, size in ((short, 17, 12), (text, 33, 11))
        ],
    ]
    if has_arrow:
        start = x - (COLUMN - WIDE) + 3
        found.append(
            f'<path d="M{start},{middle} H{x - 4} m-5,-4 l5,4 l-5,4" fill="none" stroke="#555555"/>'
        )
    return found
