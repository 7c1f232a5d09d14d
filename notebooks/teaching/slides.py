"""A deck of slides for each chapter, made of its stored notebook.

usage: python notebooks/teaching/slides.py [FOLDER]         (default: build/slides)

In:   notebooks/NN_name.ipynb.
Out:  FOLDER/NN_name.html: one file without anything from elsewhere.  A slide for each heading: one
      line (the section's first short sentence), and below it what there is to see: the section's
      first picture (a stepper, a drawing, a plot), or else a table, a short output or a short code.
      Arrow keys and the buttons move; printing gives a page for each slide.

A slide is not written by hand, so it cannot say what the notebook no longer says.
"""

import html
import json
import re
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
MOST_WORDS, MOST_LINES, MOST_ROWS, MOST_LETTERS = 20, 18, 12, 600_000
# lines that are nothing to look at on a slide
SETUP = re.compile(r"(import|from|excerpt\() ?|torch\.(manual_seed|set_)|$|\S+\.environ")
LEFT_OUT = ("Exercises", "Your own compiler", "Projects", "What else lives here")
STYLE = """
:root { color-scheme: light dark }
body { margin: 0; font: 1.25rem/1.45 sans-serif }
section { min-height: 96vh; padding: 3vh 5vw; box-sizing: border-box; break-after: page }
section[hidden] { display: none }
h1 { font-size: 1.2rem; margin: 0; color: light-dark(#5f6368, #b3b8bf) }
.line { font-size: 1.8rem; line-height: 1.25; margin: 0.2rem 0 1.2rem; max-width: 60rem }
.only { font-size: 2.6rem; margin-top: 18vh }
pre { font-size: 1.15rem; overflow-x: auto; background: light-dark(#f4f6fa, #262a30);
      padding: 0.8rem; margin: 0 }
nav { position: fixed; right: 1rem; bottom: 0.6rem }
button { min-width: 44px; min-height: 36px }
.shown { overflow-x: auto }
.shown img, .shown .picture svg { max-width: 100%; max-height: 70vh; width: auto; height: auto }
.shown img { background: #fff; min-width: min(100%, 60rem) }
.shown figure { max-width: none !important; border: 0 !important; font-size: 1.05rem }
.shown figure.drawing svg { max-width: none !important; max-height: 68vh }
.shown .stepper .st-panels svg { max-width: 46vw !important; max-height: 60vh }
.shown .stepper details, .shown .st-title { display: none }
table { font-size: 1.05rem }
@media print { nav { display: none } section[hidden] { display: block } }
"""
SCRIPT = """
const slides = [...document.querySelectorAll("section")], said = document.querySelector("output");
let now = 0;
const go = n => {
  now = Math.max(0, Math.min(slides.length - 1, n));
  slides.forEach((slide, i) => { slide.hidden = i !== now; });
  said.textContent = `${now + 1} of ${slides.length}`;
};
const [back, on] = document.querySelectorAll("nav button");
back.onclick = () => go(now - 1);
on.onclick = () => go(now + 1);
onkeydown = event => {
  if (event.target.closest(".stepper, input")) return;
  const to = {ArrowLeft: now - 1, ArrowRight: now + 1, Home: 0, End: slides.length - 1}[event.key];
  if (to !== undefined) go(to);
};
go(0);
"""


@dataclass
class Slide:
    """A heading, one line, and the best thing to see that its section has."""

    title: str
    line: str = ""
    shown: str = ""
    rank: int = 9  # of what is shown: 0 is a picture

    def offer(self, rank: int, markup: str) -> None:
        """Something to see; the first one of the best kind stays."""
        if markup and rank < self.rank:
            self.rank, self.shown = rank, markup

    def markup(self) -> str:
        look = "line" if self.shown else "line only"
        shown = f'<div class="shown">{self.shown}</div>' if self.shown else ""
        return (
            f"<section><h1>{marked(self.title)}</h1>"
            f'<p class="{look}">{marked(self.line)}</p>{shown}</section>'
        )


def marked(text: str) -> str:
    """Markdown's code and emphasis as HTML."""
    text = html.escape(text)
    text = re.sub(r"`([^`]*)`", r"<code>\1</code>", text)
    text = re.sub(r"\*\*(.+?)\*\*", r"<b>\1</b>", text)
    return re.sub(r"\*(.+?)\*", r"<i>\1</i>", text)


def one_line(text: str) -> str:
    """The first short sentence of a section's prose; lists and tables are left to the notebook."""
    prose = [
        " ".join(part.split())
        for part in re.split(r"\n\s*\n", text)
        if not re.match(r"[|<#]|    |(\*|-|\d+\.) ", part.lstrip("\n"))
    ]
    found = [
        sentence
        for part in prose
        for sentence in re.split(r"(?<=[.!?:]) +(?=[A-Z`*(]|mini)", part)
        if len(sentence.split()) > 2
    ]
    short = [sentence for sentence in found if len(sentence.split()) <= MOST_WORDS]
    return (short or sorted(found, key=len) or [""])[0].rstrip(":")


def to_see(cell: dict) -> list[tuple[int, str]]:
    """(rank, HTML) of what a cell has to show: 0 a stepper, a drawing or a plot, 1 another picture,
    2 a table or a listing, 3 code with what it prints."""
    found, printed = [], ""
    for output in cell.get("outputs", []):
        data = output.get("data", {})
        markup = "".join(data.get("text/html", ""))
        text = "".join(output.get("text", "") or data.get("text/plain", "")).rstrip()
        if "image/png" in data:
            words = html.escape(cell["metadata"].get("alt", "a plot"))
            picture = "".join(data["image/png"]).strip()
            found.append((0, f'<img alt="{words}" src="data:image/png;base64,{picture}">'))
        elif "<iframe" in markup or len(markup) > MOST_LETTERS:
            continue
        elif "<svg" in markup:
            found.append((0 if re.search('class="(stepper|drawing)"', markup) else 1, markup))
        elif "<table" in markup and markup.count("<tr") <= MOST_ROWS:
            found.append((2, markup))
        elif 'class="mini-code"' in markup and len(text.splitlines()) <= MOST_LINES:
            found.append((2, markup))
        elif text and not markup:
            printed += f"\n{text}"
    code = "".join(cell["source"]) + (f"\n{printed}" if printed else "")
    is_setup = all(SETUP.match(row) for row in "".join(cell["source"]).splitlines())
    if not is_setup and len(code.splitlines()) <= MOST_LINES:
        found.append((3, f"<pre>{html.escape(code)}</pre>"))
    return found


def slides_of(notebook: dict) -> list[Slide]:
    slides: list[Slide] = []
    for cell in notebook["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            for part in re.split(r"(?m)^(?=#{1,3} )", source):
                if heading := re.match(r"#+ (.*)", part):
                    slides.append(Slide(heading[1], one_line(part[heading.end() :])))
        elif slides and not {"exercise", "check"} & set(cell["metadata"].get("tags", [])):
            for rank, markup in to_see(cell):
                slides[-1].offer(rank, markup)
    kept = [slide for slide in slides if not slide.title.startswith(LEFT_OUT)]
    return [slide for slide in kept if slide.shown or slide.line]


def deck(name: str, notebook: dict) -> str:
    from minidynamo.explain.views import code_style

    body = "".join(slide.markup() for slide in slides_of(notebook))
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{name}</title>{code_style()}<style>{STYLE}</style></head><body><main>{body}</main>"
        '<nav><button type="button" aria-label="back">&#9664;</button> '
        '<button type="button" aria-label="on">&#9654;</button> <output></output></nav>'
        f"<script>{SCRIPT}</script></body></html>"
    )


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for path in sorted((ROOT / "notebooks").glob("*.ipynb")):
        (folder / f"{path.stem}.html").write_text(deck(path.stem, json.loads(path.read_text())))
    print(folder)


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "build" / "slides")
