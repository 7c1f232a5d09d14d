"""Drawings in the reader's colours: what pictures are made of, and those that do not move.

In:   numbers and words.
Out:  SVG elements as text; a `Drawing`, which shows itself in a notebook and on a page.

    >>> drawing = kernel_shapes()
    >>> drawing.title
    'four shapes of kernel: elements of one shade are computed by one program'

A shape has a look (a class), never a colour: the style sheet puts the colour of the reader's theme
in its place.  Each drawing has a text, for those who do not see it.
"""

import html
from collections.abc import Callable
from dataclasses import dataclass

from minidynamo.explain.palette import CODE_FACE, LOOKS
from minidynamo.explain.views import DARK, LIGHT

FILLED = ("paper", "now", "good", "bad", "part", "warm")


def colours(theme: int) -> str:
    """The looks of a theme (0: light, 1: dark) as CSS variables."""
    return ";".join(f"--st-{name}:{pair[theme]}" for name, pair in LOOKS.items())


def style(box: str) -> str:
    """Rules for the drawings in `box`."""
    rules = [
        f"{box}{{{colours(0)};margin:0;border:1px solid var(--st-line);border-radius:6px;"
        "padding:10px;background:var(--st-paper);color:var(--st-ink);max-width:1090px}",
        f"@media(prefers-color-scheme:dark){{{box}{{{colours(1)}}}}}",
        f"{DARK.format(box)}{{{colours(1)}}}",
        f"{LIGHT.format(box)}{{{colours(0)}}}",
        f"{box} svg{{background:var(--st-paper)}}",
        f"{box} text{{fill:var(--st-ink);font:11px {CODE_FACE}}}",
        f"{box} .st-h{{font-weight:bold}}{box} text.st-faint{{fill:var(--st-faint)}}",
        *(f"{box} .st-{name}{{fill:var(--st-{name})}}" for name in FILLED),
        f"{box} .st-none{{fill:none}}{box} .st-box{{stroke:var(--st-line)}}",
        f"{box} .st-ring{{fill:none;stroke:var(--st-ink);stroke-width:2}}",
        f"{box} .st-cut{{fill:none;stroke:var(--st-ink);stroke-width:2;stroke-dasharray:5 4}}",
        f"{box} .st-wire{{fill:none;stroke:var(--st-line);stroke-width:1.2}}",
        f"{box} .st-live{{fill:none;stroke:var(--st-ink);stroke-width:2}}",
        f"{box} .st-tip{{fill:var(--st-ink)}}",
        f"{box} .st-title{{font-weight:bold;margin:0 0 6px;color:var(--st-ink)}}",
    ]
    return "".join(rules)


# ---- elements
def text(x: float, y: float, words: str, look: str = "", anchor: str = "start") -> str:
    of_look = f' class="{look}"' if look else ""
    at = f' text-anchor="{anchor}"' if anchor != "start" else ""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}"{of_look}{at} xml:space="preserve">'
        f"{html.escape(words)}</text>"
    )


def box(x: float, y: float, width: float, height: float, look: str, round: float = 2) -> str:
    return (
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{max(width, 0):.1f}" height="{max(height, 0):.1f}" '
        f'rx="{round:g}" class="{look} st-box"/>'
    )


def line(x1: float, y1: float, x2: float, y2: float, look: str = "st-wire") -> str:
    return f'<path d="M{x1:.1f},{y1:.1f}L{x2:.1f},{y2:.1f}" class="{look}"/>'


def curve(x1: float, y1: float, x2: float, y2: float, look: str = "st-wire") -> str:
    """From one point to another one, leaving and arriving upright."""
    middle = (y1 + y2) / 2
    return (
        f'<path d="M{x1:.1f},{y1:.1f}C{x1:.1f},{middle:.1f} {x2:.1f},{middle:.1f} '
        f'{x2:.1f},{y2:.1f}" class="{look}"/>'
    )


def arrow(x1: float, y1: float, x2: float, y2: float, look: str = "st-wire") -> str:
    """A straight line with a tip; it is level or upright."""
    dx, dy = (x2 > x1) - (x2 < x1), (y2 > y1) - (y2 < y1)
    tip = (
        f"M{x2:.1f},{y2:.1f}L{x2 - 7 * dx - 4 * dy:.1f},{y2 - 7 * dy - 4 * dx:.1f}"
        f"L{x2 - 7 * dx + 4 * dy:.1f},{y2 - 7 * dy + 4 * dx:.1f}Z"
    )
    return line(x1, y1, x2 - 5 * dx, y2 - 5 * dy, look) + f'<path d="{tip}" class="st-tip"/>'


# ---- a drawing
@dataclass(repr=False)
class Drawing:
    """A title, an SVG and what it shows in words."""

    title: str
    body: str
    width: float
    height: float
    words: str

    def __repr__(self) -> str:
        return f"{self.title}\n{self.words}"

    def _repr_html_(self) -> str:
        said = html.escape(f"{self.title}. {self.words}")
        return (
            f"<style>{style('.drawing')}.drawing svg{{width:100%;height:auto;"
            f"max-width:{1.25 * self.width:.0f}px;min-width:min(560px,{self.width:.0f}px)}}"
            '.drawing{overflow-x:auto}</style><figure class="drawing">'
            f'<p class="st-title">{html.escape(self.title)}</p>'
            f'<svg role="img" aria-label="{said}" viewBox="0 0 {self.width:.0f} {self.height:.0f}" '
            f'width="{self.width:.0f}" height="{self.height:.0f}">{self.body}</svg></figure>'
        )


# ---- 12: a GPU
def multiprocessor(x: float, y: float) -> str:
    """One of a GPU's processors from near: four schedulers with their lanes, shared memory."""
    parts = [box(x, y, 392, 236, "st-paper", 6)]
    parts.append(text(x + 10, y + 18, "one multiprocessor (SM), from near", "st-h"))
    for n in range(4):
        left = x + 10 + 94 * n
        parts.append(box(left, y + 28, 88, 134, "st-part", 4))
        parts.append(text(left + 6, y + 43, f"scheduler {n}", "st-faint"))
        for lane in range(32):
            at = (left + 6 + (lane % 8) * 9.6, y + 50 + (lane // 8) * 9.6)
            parts.append(box(*at, 8, 8, "st-now" if n == 0 else "st-paper", 1))
        parts.append(text(left + 6, y + 101, "32 lanes:", "st-faint"))
        parts.append(text(left + 6, y + 114, "one warp", "st-faint"))
        parts.append(box(left + 6, y + 122, 76, 32, "st-good", 3))
        parts.append(text(left + 10, y + 135, "registers"))
        parts.append(text(left + 10, y + 149, "64 KiB", "st-faint"))
    parts.append(box(x + 10, y + 172, 372, 54, "st-good", 4))
    parts.append(text(x + 18, y + 192, "shared memory and L1 cache: 256 KiB"))
    parts.append(text(x + 18, y + 210, "read by all threads of a block", "st-faint"))
    return "".join(parts)


def gpu() -> Drawing:
    """An H100: processors, caches, memory, and the way of 32 neighbouring floats."""
    parts = [text(4, 14, "the chip: 132 multiprocessors", "st-h")]
    for n in range(132):
        look = "st-now" if n == 11 else "st-part"
        parts.append(box(4 + (n % 12) * 24, 24 + (n // 12) * 17, 20, 13, look))
    parts.append(line(288, 25, 360, 12, "st-cut") + line(288, 37, 360, 244, "st-cut"))
    parts.append(multiprocessor(360, 10))
    parts.append(box(4, 262, 748, 40, "st-warm", 4))
    parts.append(text(14, 279, "L2 cache: 50 MB, for all multiprocessors"))
    parts.append(text(14, 294, "lines of 128 bytes, of four sectors each", "st-faint"))
    parts.append(box(4, 336, 748, 50, "st-bad", 4))
    parts.append(text(14, 354, "memory (HBM): 80 GB, 3.35 TB a second: hundreds of cycles away"))
    for n in range(4):
        left = 470 + n * 68
        for k in range(8):
            parts.append(box(left + 8 * k, 364, 7, 14, "st-now", 1))
        parts.append(arrow(left + 32, 362, left + 32, 304))
        parts.append(arrow(left + 32, 262, left + 32, 248))
    parts.append(text(14, 376, "32 neighbouring floats of a warp: four sectors of 32 bytes"))
    words = (
        "132 multiprocessors, each with four schedulers; a scheduler runs a warp of 32 threads and "
        "has 64 KiB of registers. A multiprocessor has 256 KiB of shared memory and L1 cache. "
        "Below are an L2 cache of 50 MB and a memory of 80 GB. A warp that reads 32 neighbouring "
        "floats moves four sectors of 32 bytes up to its multiprocessor."
    )
    return Drawing("a GPU (H100), and the way of one load", "".join(parts), 756, 392, words)


# ---- 12: shapes of kernels
ROWS, COLUMNS, CELL = 8, 16, 21
KINDS: dict[str, tuple[str, Callable[[int, int], int]]] = {
    "pointwise [XBLOCK]": ("the flat index is cut", lambda r, c: (r * COLUMNS + c) // 24),
    "tile [YBLOCK, XBLOCK]": ("for transposes", lambda r, c: (r // 4) * 4 + c // 4),
    "persistent reduction [XBLOCK, RBLOCK]": ("whole rows", lambda r, c: r // 2),
    "looped reduction [XBLOCK, RBLOCK]": ("steps along the row", lambda r, c: r // 4),
}


def shape_of_kernel(x: float, y: float, title: str) -> str:
    about, program = KINDS[title]
    parts = [text(x, y + 12, title, "st-h"), text(x, y + 26, about, "st-faint")]
    top, seen = y + 32, set()
    for r in range(ROWS):
        for c in range(COLUMNS):
            number = program(r, c)
            turn = number + (r // 4 if title.startswith("tile") else 0)
            look = ("st-now", "st-warm", "st-good", "st-part")[turn % 4]
            parts.append(box(x + c * CELL, top + r * CELL, CELL - 1, CELL - 1, look, 1))
            if number not in seen:
                parts.append(
                    text(x + c * CELL + 10, top + r * CELL + 14, str(number), "", "middle")
                )
                seen.add(number)
    if title.startswith("looped"):
        for r in (0, 4):
            for c in range(0, COLUMNS, 4):
                parts.append(
                    box(x + c * CELL, top + r * CELL, 4 * CELL - 1, 4 * CELL - 1, "st-none")
                )
            middle = top + (r + 2) * CELL
            parts.append(arrow(x + 30, middle, x + COLUMNS * CELL - 6, middle, "st-live"))
    return "".join(parts)


def kernel_shapes() -> Drawing:
    """Which elements one program computes, for each kind of kernel; numbers are programs."""
    places = ((0, 0), (372, 0), (0, 222), (372, 222))
    body = "".join(shape_of_kernel(x, y, kind) for (x, y), kind in zip(places, KINDS, strict=True))
    words = "; ".join(f"{kind}: {about}" for kind, (about, _) in KINDS.items())
    title = "four shapes of kernel: elements of one shade are computed by one program"
    return Drawing(title, body, 712, 428, words)
