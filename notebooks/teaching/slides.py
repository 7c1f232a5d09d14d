"""A deck of slides for each chapter, made of its stored notebook.

usage: python notebooks/teaching/slides.py [FOLDER]         (default: build/slides)

In:   notebooks/NN_name.ipynb.
Out:  FOLDER/NN_name.html: one file without anything from elsewhere.  A slide for each heading: its
      first sentences, the first short code, the first output that fits (a stepper, a picture, a
      table, a few lines).  Arrow keys and the buttons move; printing gives a page for each slide.

A slide is not written by hand, so it cannot say what the notebook no longer says.
"""

import html
import json
import re
import sys
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
MOST_SENTENCES, MOST_LINES, MOST_LETTERS = 4, 15, 60_000
LEFT_OUT = ("Exercises", "Your own compiler", "Projects", "What else lives here")
STYLE = """
:root { color-scheme: light dark }
body { margin: 0; font: 1.25rem/1.45 sans-serif }
section { min-height: 92vh; padding: 4vh 6vw; box-sizing: border-box; break-after: page }
section[hidden] { display: none }
h1 { font-size: 1.9rem; margin: 0 0 1rem }
pre { font-size: 0.95rem; overflow-x: auto; background: light-dark(#f4f6fa, #262a30);
      padding: 0.6rem }
nav { position: fixed; right: 1rem; bottom: 0.6rem }
button { min-width: 44px; min-height: 36px }
img, .picture svg { max-width: 100%; height: auto }
img { background: #fff }
table { font-size: 0.9rem }
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
    title: str
    points: list[str] = field(default_factory=list)
    code: str = ""
    shown: str = ""

    def markup(self) -> str:
        points = "".join(f"<li>{marked(point)}</li>" for point in self.points)
        code = f"<pre>{html.escape(self.code)}</pre>" if self.code else ""
        return (
            f"<section><h1>{marked(self.title)}</h1><ul>{points}</ul>{code}{self.shown}</section>"
        )


def marked(text: str) -> str:
    """Markdown's code and emphasis as HTML."""
    text = html.escape(text)
    text = re.sub(r"`([^`]*)`", r"<code>\1</code>", text)
    text = re.sub(r"\*\*(.+?)\*\*", r"<b>\1</b>", text)
    return re.sub(r"\*(.+?)\*", r"<i>\1</i>", text)


def sentences(text: str) -> list[str]:
    """The first sentences of a section's prose; lists and tables are left to the notebook."""
    prose = [
        part
        for part in re.split(r"\n\s*\n", text)
        if not re.match(r"[|<#]|    ", part.lstrip("\n"))
    ]
    found: list[str] = []
    for part in prose:
        if re.match(r"(\*|\d+\.) ", part):
            found += re.split(r"\n(?=\* |\d+\. )", part)
        else:
            found += re.split(r"(?<=[.!?]) +(?=[A-Z`*(]|mini)", " ".join(part.split()))
    whole = [" ".join(sentence.split()) for sentence in found if sentence.strip()]
    return [re.sub(r"^(\*|\d+\.) ", "", sentence) for sentence in whole[:MOST_SENTENCES]]


def output_of(cell: dict) -> str:
    """An output that fits on a slide, as HTML, or ""."""
    for output in cell.get("outputs", []):
        data = output.get("data", {})
        if "image/png" in data:
            picture = "".join(data["image/png"]).strip()
            return f'<img alt="a plot" src="data:image/png;base64,{picture}">'
        markup = "".join(data.get("text/html", ""))
        if markup and len(markup) <= MOST_LETTERS:
            return markup
        text = "".join(output.get("text", "") or data.get("text/plain", "")).rstrip()
        if text and len(text.splitlines()) <= MOST_LINES and not markup:
            return f"<pre>{html.escape(text)}</pre>"
    return ""


def slides_of(notebook: dict) -> list[Slide]:
    slides: list[Slide] = []
    for cell in notebook["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            for part in re.split(r"(?m)^(?=#{1,3} )", source):
                heading = re.match(r"#+ (.*)", part)
                if heading:
                    slides.append(Slide(heading[1], sentences(part[heading.end() :])))
        elif slides and not {"exercise", "check"} & set(cell["metadata"].get("tags", [])):
            slide = slides[-1]
            imports = all(
                re.match(r"(import|from) |torch\.(manual_seed|set_)|$", line)
                for line in source.splitlines()
            )
            if not slide.code and not imports and len(source.splitlines()) <= MOST_LINES:
                slide.code = source
            slide.shown = slide.shown or output_of(cell)
    return [slide for slide in slides if not slide.title.startswith(LEFT_OUT)]


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
