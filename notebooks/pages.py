"""What the site adds to the notebooks: a map, minutes, "you are here", links.

In:   the notebooks of a build, the glossary, the sources of the packages.
Out:  the same notebooks with links (to chapters, terms, files, the paper), with a text for each
      plot, and with a head that says where the reader is; the map and the picture of the index;
      pages of the files that are linked, and of the explorers that a chapter shows.

    >>> pages.minutes(notebook)
    45

Minutes are computed, never written: words / 200 + lines of code / 12 + 8 for each exercise + the
lines of the own compiler that everyone writes / 2, rounded up to 5.  What a line or a word costs
is a guess of people who teach; that the same guess is used for every chapter makes the figures
comparable.
"""

import functools
import html
import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from exercises.own_compiler import lines_to_write

ROOT = Path(__file__).resolve().parent.parent
PAPER = "https://doi.org/10.1145/3620665.3640366"
WORDS_A_MINUTE, LINES_A_MINUTE, FOR_AN_EXERCISE, OWN_LINES_A_MINUTE = 200, 12, 8, 2
LEVELS = {1: "easy", 2: "medium", 3: "hard"}


@dataclass(frozen=True)
class Chapter:
    """A chapter on the map: the stage it is about, how hard it is, which chapters come before."""

    name: str
    title: str
    stage: str
    level: int
    needs: tuple[str, ...]

    @property
    def number(self) -> str:
        return self.name[:2]


@dataclass(frozen=True)
class Part:
    title: str
    about: str
    chapters: tuple[Chapter, ...]


PARTS = (
    Part(
        "First",
        "every stage once, and the tools of the course",
        (
            Chapter("00_tour", "The tour", "GPT-2 through every stage", 1, ()),
            Chapter("01_eager_and_graph", "Eager and graph", "five older ways", 1, ()),
            Chapter("02_fx_graphs", "FX graphs", "a program as data", 1, ("01",)),
        ),
    ),
    Part(
        "Capture: minidynamo",
        "from running Python to a graph and guards",
        (
            Chapter("03_frame_hook", "The frame hook", "a call comes in", 2, ("01",)),
            Chapter("04_bytecode", "Bytecode", "run it on symbols", 2, ("02", "03")),
            Chapter("05_guards", "Guards", "when the graph is right", 2, ("04",)),
            Chapter("06_graph_breaks", "Graph breaks", "stop and go on", 3, ("04", "05")),
            Chapter("07_side_effects", "Side effects", "writes, once and in order", 2, ("05",)),
        ),
    ),
    Part(
        "Compilation: miniinductor",
        "from a graph to kernels",
        (
            Chapter("08_autograd", "Autograd", "forward and backward, and the cut", 3, ("02",)),
            Chapter("09_loop_ir", "Loop IR", "tensors as functions", 2, ("02",)),
            Chapter("10_fusion", "Fusion", "what shares a kernel", 2, ("09",)),
            Chapter("11_cpp", "C++", "loops for a CPU", 2, ("09", "10")),
            Chapter("12_triton", "Triton", "tiles for a GPU", 3, ("09", "10")),
            Chapter("13_wrapper", "The wrapper", "memory, launches, tuning", 2, ("10",)),
        ),
    ),
    Part(
        "The whole, again",
        "sizes that change, speed, a model that learns",
        (
            Chapter("14_dynamic_shapes", "Dynamic shapes", "sizes as symbols", 3, ("05", "09")),
            Chapter("15_speed", "Speed", "measure, take apart", 2, ("10", "13")),
            Chapter("16_capstone", "Capstone", "train a small GPT", 2, ("08", "13")),
            Chapter("17_paper", "The paper's tables", "measured again", 1, ("01", "15")),
            Chapter("18_many_gpus", "Many GPUs", "send while you compute", 2, ("08",)),
        ),
    ),
)
CHAPTERS = {chapter.number: chapter for part in PARTS for chapter in part.chapters}


# ---- minutes
def minutes(notebook) -> int:
    """How long a student needs, by the formula of this file's header."""
    words, lines = 0, 0
    exercises, own_lines = 0, 0
    for cell in notebook.cells:
        tags = cell.metadata.get("tags", [])
        if cell.cell_type == "markdown":
            words += len(re.sub(r"<[^>]*>", " ", cell.source).split())
        elif "exercise" in tags:
            exercises += 1
        elif "piece" in tags:
            found = re.search(r'^check_piece\("(\w+)"\)', cell.source, re.M)
            own_lines += lines_to_write(found[1]) if found else 0
        elif "check" not in tags:
            lines += sum(bool(line.strip()) for line in cell.source.splitlines())
    needed = words / WORDS_A_MINUTE + lines / LINES_A_MINUTE
    needed += FOR_AN_EXERCISE * exercises + own_lines / OWN_LINES_A_MINUTE
    return 5 * math.ceil(needed / 5)


def duration(number: int) -> str:
    """ "45 minutes", "1 h 20"."""
    hours, rest = divmod(number, 60)
    if not hours:
        return f"{rest} minutes"
    return f"{hours} h" + (f" {rest:02}" if rest else "")


# ---- the map, and where one is on it
def link_to(chapter: Chapter, words: str) -> str:
    return f'<a href="{chapter.name}.html">{html.escape(words)}</a>'


def needs(chapter: Chapter) -> str:
    if not chapter.needs:
        return "needs nothing before it"
    return "needs " + ", ".join(link_to(CHAPTERS[n], n) for n in chapter.needs)


def course_map(times: dict[str, int]) -> str:
    """The pipeline as a picture of links; times: {chapter's name: minutes}."""
    rows = []
    for part in PARTS:
        stages = "".join(
            f'<li><a class="stage" href="{c.name}.html"><b>{c.number} {html.escape(c.title)}</b>'
            f"<span>{html.escape(c.stage)}</span></a>"
            f'<p><span class="level" title="{LEVELS[c.level]}">{"●" * c.level}{"○" * (3 - c.level)}'
            f'<span class="aside"> {LEVELS[c.level]}</span></span> {duration(times[c.name])}<br>'
            f"{needs(c)}</p></li>"
            for c in part.chapters
            if c.name in times
        )
        whole = duration(sum(times.get(c.name, 0) for c in part.chapters))
        rows.append(
            f'<section class="part"><h2>{html.escape(part.title)}</h2>'
            f"<p>{html.escape(part.about)}; {whole} with exercises</p><ol>{stages}</ol></section>"
        )
    whole = duration(sum(times.values()))
    about = "Easy ●○○, medium ●●○, hard ●●●. Minutes are computed from words, code and exercises."
    return f'<div class="map">{"".join(rows)}<p>{about} The whole course: {whole}.</p></div>'


def here(name: str, time: int) -> str:
    """Where a chapter is: the stages of the pipeline, its own marked; minutes, level, needs."""
    chapter, groups = CHAPTERS[name[:2]], []
    for part in PARTS:
        steps = "".join(
            f'<a href="{c.name}.html" title="{html.escape(c.title)}"'
            f"{' aria-current=page' if c is chapter else ''}>{c.number}</a>"
            for c in part.chapters
        )
        groups.append(f'<span class="group"><span>{html.escape(part.title)}</span>{steps}</span>')
    return (
        f'<nav class="here" aria-label="you are here">{"".join(groups)}'
        f"<p>You are here: <b>{html.escape(chapter.title)}</b>, {html.escape(chapter.stage)}. "
        f"{duration(time)}, {LEVELS[chapter.level]}, {needs(chapter)}. "
        f'<a href="index.html">The map</a>. Run it: <a href="notebooks/{chapter.name}.ipynb" '
        f"download>{chapter.name}.ipynb</a></p></nav>"
    )


# ---- pictures
def with_texts(notebook: Any, source: Any) -> Any:
    """Each plot gets the text that its cell has in `source` (alt="..."), or else the last sentence
    before it."""
    before = ""
    for cell, written in zip(notebook.cells, source.cells, strict=True):
        if cell.cell_type == "markdown":
            prose = plain_text(re.sub(r"[*`#]", "", cell.source))
            before = re.split(r"(?<=[.!?:]) ", prose)[-1].rstrip(":") or before
        elif any("image/png" in output.get("data", {}) for output in cell.outputs):
            words = written.metadata.get("alt") or f"A plot. {before}"
            cell.metadata["mystnb"] = {"image": {"alt": words}}
    return notebook


IFRAME = re.compile(r"""<iframe\s+srcdoc="([^"]*)"\s+title="([^"]*)"[^>]*>\s*</iframe>""", re.S)


def explorers_apart(folder: Path) -> None:
    """An explorer in a chapter becomes a page of its own, a picture of one and a link: it is made
    for a whole window."""
    (folder / "explorer").mkdir(exist_ok=True)
    for page in folder.glob("*.html"):
        count = 0

        def linked(frame: re.Match, chapter=page.stem) -> str:
            nonlocal count
            count += 1
            name = f"explorer/{chapter}-{count}.html"
            (folder / name).write_text(html.unescape(frame[1]))
            picture = '<img src="_static/explorer.png" alt="An explorer: source, stages, kernels '
            picture += 'and guards beside each other; a line is lit in all of them"/>'
            shown, note = (picture, " (the picture: another program)") if count == 1 else ("", "")
            return (
                f'<p class="explorer"><a href="{name}">{shown}'
                f"{frame[2]}: open the page{note}</a></p>"
            )

        page.write_text(IFRAME.sub(linked, page.read_text()))


def front_picture() -> str:
    """The picture of the index: a small program on its way, as the packages compiled it."""
    import torch
    from steppers import journey

    import minidynamo

    def attention(q, k):
        s = q @ k * 0.125
        return s.softmax(-1)

    with torch.no_grad():
        explained = minidynamo.explain(attention)(torch.randn(256, 64), torch.randn(64, 256))
    return journey(explained, attention)._repr_html_()


# ---- links
# what stays as it is: code, links, headings, HTML, tables' rules
FIXED = re.compile(
    r"```.*?```|^#[^\n]*$|^ {4}[^\n]*$|`[^`]*`|!?\[[^\]]*\]\([^)]*\)|<a .*?</a>|<[^>]*>",
    re.S | re.M,
)
CHAPTER = re.compile(r"\b([Nn]otebooks?|[Cc]hapters?) (\d\d)((?:(?:, | and | to )\d\d)*)")
OURS = re.compile(r"`((?:minidynamo|miniinductor)/[\w/]+\.(?:py|c|h))`")
FOLDER = re.compile(r"`((?:minidynamo|miniinductor)(?:/\w+)*)/`")
OF_PAPER = re.compile(
    r"\b([Pp]aper)(?=,?\s+\(?(?:section|in its|tells))|(?<=The )(paper)(?= tells|:)"
)
AMBIGUOUS = {"hint", "cell", "source", "tape", "pin", "program", "kernel", "frame"}


@dataclass(frozen=True)
class Term:
    """An entry of the glossary: its name, the words it is looked for by, what it says."""

    name: str
    words: tuple[str, ...]
    says: str

    @property
    def anchor(self) -> str:
        return "term-" + re.sub(r"\W+", "-", self.name.lower()).strip("-")


def glossary(text: str) -> list[Term]:
    """The terms of glossary.md: a line with the name, then lines that begin with a colon."""
    found = []
    for name, says in re.findall(r"^(\S[^\n]*)\n: ([^\n]+)", text, re.M):
        words = [w.strip() for w in re.sub(r"\(.*?\)", "", name).split(",")]
        is_plain = "(" not in name and name not in AMBIGUOUS
        found.append(Term(name, tuple(words) if is_plain else (), says))
    return found


def glossary_page(text: str) -> str:
    """The same page with an anchor at each term."""
    anchors = {term.name: term.anchor for term in glossary(text)}
    lines = text.splitlines()
    return "\n".join(
        f'<span id="{anchors[line]}"></span>{line}'
        if line in anchors and lines[n + 1].startswith(": ")
        else line
        for n, line in enumerate(lines)
    )


def outside(text: str, change) -> str:
    """`change` on the parts of a Markdown text that are prose."""
    parts, at = [], 0
    for fixed in FIXED.finditer(text):
        parts += [change(text[at : fixed.start()]), fixed[0]]
        at = fixed.end()
    return "".join([*parts, change(text[at:])])


def chapters_linked(text: str, own: str) -> str:
    """ "notebooks 00 and 15": a link at each number but the chapter's own."""

    def number(match: re.Match) -> str:
        chapter = CHAPTERS.get(match[0])
        return link_to(chapter, match[0]) if chapter and chapter.number != own else match[0]

    return CHAPTER.sub(lambda m: f"{m[1]} " + re.sub(r"\d\d", number, m[2] + m[3]), text)


def first_use(text: str, terms: list[Term], seen: set[str]) -> str:
    """A link at the first use of each term in a chapter."""
    for term in terms:
        if term.name in seen or not term.words:
            continue
        pattern = re.compile(
            rf"(?<![\w-])({'|'.join(map(re.escape, term.words))})(e?s)?(?![\w-])", re.I
        )
        says = html.escape(re.sub(r"[`*]", "", term.says))

        def link(match: re.Match, term=term, says=says) -> str:
            seen.add(term.name)
            return (
                f'<a class="term" href="glossary.html#{term.anchor}" title="{says}">{match[0]}</a>'
            )

        text = outside(
            text,
            lambda part, p=pattern, f=link, t=term: (
                part if t.name in seen else p.sub(f, part, count=1)
            ),
        )
    return text


def source_page(file: str) -> str:
    """The address of the page of one of our files."""
    return f"source/{file.replace('/', '.')}.html"


def files_linked(text: str, used: set[str]) -> str:
    """Files of the packages in code marks: links to their pages, which `used` collects."""

    def link(match: re.Match) -> str:
        if not (ROOT / match[1]).is_file():
            return match[0]
        used.add(match[1])
        return f'<a href="{source_page(match[1])}"><code>{match[1]}</code></a>'

    def link_folder(match: re.Match) -> str:
        if not list((ROOT / match[1]).glob("*.py")):
            return match[0]
        return f'<a href="api/{match[1].replace("/", ".")}.html"><code>{match[1]}/</code></a>'

    return FOLDER.sub(link_folder, OURS.sub(link, text))


def with_links(notebook: Any, name: str, terms: list[Term], used: set[str]) -> Any:
    """The notebook for the site: a head, and links in its prose."""
    time, seen = minutes(notebook), set()
    for number, cell in enumerate(notebook.cells):
        if cell.cell_type != "markdown":
            continue
        prose = functools.partial(chapters_linked, own=name[:2])
        text = files_linked(outside(cell.source, prose), used)
        text = outside(text, lambda part: OF_PAPER.sub(rf'<a href="{PAPER}">\g<0></a>', part))
        cell.source = first_use(text, terms, seen)
        if number == 0:
            head, _, rest = cell.source.partition("\n")
            cell.source = f"{head}\n\n{here(name, time)}\n{rest}"
    return notebook


# ---- tables on a phone
# of a table's cells at 390 pixels; what a letter takes, and what stands around a cell (course.css)
ROOM, LETTER, AROUND = 330, 7, 14
FIRST, HEAD, OTHER = 17, 16, 29  # letters after which a cell's words are put on a new line
TABLE = re.compile(r"<table\b([^>]*)>(.*?)</table>", re.S)
ROW = re.compile(r"<tr\b([^>]*)>(.*?)</tr>", re.S)
CELL = re.compile(r"<(th|td)\b([^>]*)>(.*?)</\1>", re.S)


def plain_text(markup: str) -> str:
    return " ".join(html.unescape(re.sub(r"<[^>]*>", "", markup)).split())


def is_wide(rows: list[list[str]]) -> bool:
    """Would the columns need more room than a phone has?"""
    width = 0
    for number, (head, *cells) in enumerate(zip(*rows, strict=False)):
        most = OTHER if number else FIRST
        words = [word for cell in (head, *cells) for word in cell.split()]
        texts = [min(len(head), HEAD), *(min(len(cell), most) for cell in cells)]
        width += LETTER * max(*texts, *map(len, words), 0) + AROUND
    return width > ROOM


def stacked(table: re.Match) -> str:
    """A wide table, ready to be read on a phone: each cell knows the name of its column, and the
    style sheet shows a row as a small list.  Other tables stay as they are."""
    rows = [CELL.findall(row[1]) for row in ROW.findall(table[2])]
    texts = [[plain_text(content) for _, _, content in row] for row in rows]
    has_head = bool(rows) and all(tag == "th" for tag, _, _ in rows[0])
    if not has_head or not is_wide(texts):
        return table[0]
    names = iter(())

    def with_name(cell: re.Match) -> str:
        name = html.escape(next(names, ""), quote=True)
        role = "columnheader" if cell[1] == "th" else "cell"
        return f'<{cell[1]}{cell[2]} role="{role}" data-column="{name}">{cell[3]}</{cell[1]}>'

    def with_names(row: re.Match) -> str:
        nonlocal names
        names = iter(texts[0])
        return f'<tr{row[1]} role="row">{CELL.sub(with_name, row[2])}</tr>'

    attributes = re.sub(r"""\bclass=(["'])(.*?)\1""", "", table[1])
    classes = " ".join(["stacked", *re.findall(r"""\bclass=["'](.*?)["']""", table[1])])
    body = ROW.sub(with_names, table[2])
    return f'<table class="{classes}" role="table"{attributes}>{body}</table>'


def stack_wide_tables(folder: Path) -> None:
    """All wide tables of the built pages."""
    for page in folder.rglob("*.html"):
        page.write_text(TABLE.sub(stacked, page.read_text()))


# ---- pages of the linked files
def write_source_pages(files: set[str], folder: Path, style: str) -> None:
    """A page for each file: its text with numbered lines."""
    from pygments import highlight
    from pygments.formatters import HtmlFormatter
    from pygments.lexers import get_lexer_for_filename

    (folder / "source").mkdir(exist_ok=True)
    for file in sorted(files):
        formatter = HtmlFormatter(nowrap=True, classprefix="mini-")
        body = highlight((ROOT / file).read_text(), get_lexer_for_filename(file), formatter)
        rows = "".join(
            f'<a id="L{n}" href="#L{n}">{n:5} </a>{line}\n'
            for n, line in enumerate(body.splitlines(), 1)
        )
        page = (
            '<!doctype html><html lang="en"><head><meta charset="utf-8">'
            '<meta name="viewport" content="width=device-width,initial-scale=1">'
            f"<title>{file}</title>{style}<style>{SOURCE_STYLE}</style></head><body><main>"
            f'<p><a href="../index.html">The course</a></p><h1><code>{file}</code></h1>'
            f'<div class="mini-code" tabindex="0"><pre>{rows}</pre></div></main></body></html>'
        )
        (folder / source_page(file)).write_text(page)


SOURCE_STYLE = """
:root { color-scheme: light dark }
body { margin: 1rem auto; max-width: 64rem; padding: 0 1rem; font-family: sans-serif }
h1 { font-size: 1.1rem; overflow-wrap: anywhere }
a { color: light-dark(#0b57d0, #8ab4f8) }
.mini-code { max-height: none !important }
.mini-code a { text-decoration: none; color: var(--mini-comment); user-select: none }
"""
