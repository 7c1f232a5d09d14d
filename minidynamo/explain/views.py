"""One stage of compilation as something a notebook and a terminal can show.

In:   text or objects.  Out: `Code`, `Table`, `Several`: each has `_repr_html_` (highlighted) and a
      plain text form.

    >>> Code("int main() {}", "cpp", "a kernel")
"""

import contextlib
import html
import inspect
import textwrap
from dataclasses import dataclass
from typing import Any

MOST_LINES = 15  # of an excerpt that are shown unfolded
ROWS_IN_VIEW = 15  # of a table
LEXERS = {"triton": "python"}  # languages that pygments knows by another name
# Colours of the two themes.  Each stands out from its background by at least 4.5:1 (WCAG 2, AA).
THEMES = {
    "light": {
        "background": "#f8f8f8",
        "text": "#1f1f1f",
        "comment": "#5f6368",
        "keyword": "#7a1fa2",
        "string": "#1b6e1b",
        "number": "#9a3b00",
        "name": "#0b57d0",
    },
    "dark": {
        "background": "#1e1e1e",
        "text": "#e6e6e6",
        "comment": "#a8adb3",
        "keyword": "#d7a6ff",
        "string": "#9fd89f",
        "number": "#ffb77a",
        "name": "#8ab4f8",
    },
}
# what each colour is for: beginnings of pygments' short names of tokens ("kn", "s2", "mi")
TOKENS = {
    "comment": ("c", "c1", "cm", "ch", "cs", "cp", "cpf"),
    "keyword": ("k", "kc", "kd", "kn", "kp", "kr", "kt", "ow"),
    "string": ("s", "s1", "s2", "sa", "sb", "sc", "sd", "se", "si", "sx", "sr", "ss"),
    "number": ("m", "mb", "mf", "mh", "mi", "mo", "il"),
    "name": ("nf", "nc", "nd", "nb", "bp", "fm"),
}
# who says that a notebook or page is dark: the system, JupyterLab, VS Code, or a switch of the page
DARK = '[data-jp-theme-light="false"] {0},.vscode-dark {0},[data-theme="dark"] {0}'
LIGHT = '[data-jp-theme-light="true"] {0},.vscode-light {0},[data-theme="light"] {0}'


def many(number: int, noun: str) -> str:
    """ "1 graph break", "2 graph breaks"."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def folded(source: str, width: int = 110) -> str:
    """Python with long conditions that stand in parentheses broken before an `and`: as valid as
    before."""
    lines = []
    for line in source.splitlines():
        first, *others = line.split(" and ")
        lines.append(first)
        for part in others:
            if len(lines[-1]) + len(part) + 5 > width:
                lines.append(" " * (len(line) - len(line.lstrip()) + 8) + "and " + part)
            else:
                lines[-1] += " and " + part
    return "\n".join(lines)


def theme(name: str) -> str:
    """The colours of a theme as CSS variables."""
    return "".join(f"--mini-{part}:{colour};" for part, colour in THEMES[name].items())


def code_style() -> str:
    """A `<style>` for `Code.html`: colours by class, which follow the reader's theme."""
    box = ".mini-code"
    rules = [
        f"{box}{{{theme('light')}background:var(--mini-background);color:var(--mini-text);"
        "overflow:auto;font-size:12px}",
        f"{box} pre{{background:none;color:inherit;margin:0;padding:6px 8px;line-height:1.35}}",
        f"{box} summary{{padding:2px 8px;cursor:pointer}}",
        f"@media(prefers-color-scheme:dark){{{box}{{{theme('dark')}}}}}",
        f"{DARK.format(box)}{{{theme('dark')}}}",
        f"{LIGHT.format(box)}{{{theme('light')}}}",
        f"@media print{{{box}{{{theme('light')}}}}}",
    ]
    for part, tokens in TOKENS.items():
        names = ",".join(f"{box} .mini-{token}" for token in tokens)
        rules.append(f"{names}{{color:var(--mini-{part})}}")
    return f"<style>{''.join(rules)}</style>"


@dataclass
class Code:
    """Source text; language is a pygments name ("python", "cpp", "text") or "triton"."""

    source: str
    language: str = "python"
    title: str = ""
    shown: int = 30  # lines; in a notebook the others are folded

    def html(self) -> str:
        """The highlighted text, for a page that has `code_style()`."""
        head = f"<b>{html.escape(self.title)}</b>" if self.title else ""
        body = html.escape(self.source)
        with contextlib.suppress(ImportError):
            from pygments import highlight
            from pygments.formatters import HtmlFormatter
            from pygments.lexers import get_lexer_by_name

            lexer = get_lexer_by_name(LEXERS.get(self.language, self.language), stripnl=False)
            # of a text in several lines each line has its own colours: the lines can be parted
            body = highlight(self.source, lexer, HtmlFormatter(nowrap=True, classprefix="mini-"))
        return f'{head}<div class="mini-code">{self.parted(body.splitlines())}</div>'

    def parted(self, lines: list[str]) -> str:
        """The first lines, and the others to be unfolded."""
        first, others = lines[: self.shown], lines[self.shown :]
        text = "<pre>" + "\n".join(first) + "</pre>"
        if not others:
            return text
        summary = f"<summary>{many(len(others), 'more line')}</summary>"
        return f"{text}<details>{summary}<pre>" + "\n".join(others) + "</pre></details>"

    def _repr_html_(self):
        return code_style() + self.html()

    def __repr__(self):
        return (f"# {self.title}\n" if self.title else "") + self.source


def excerpt(thing: Any) -> Code:
    """The source of a function or class of ours (or anybody's) as `Code`, titled with its file; in
    a notebook its first lines, the others to be unfolded."""
    file = inspect.getsourcefile(thing).replace("\\", "/")
    for package in ("/minidynamo/", "/miniinductor/", "/torch/", "/benchmarks/", "/prior/"):
        if package in file:
            file = file[file.rindex(package) + 1 :]
            break
    else:
        file = "this notebook"
    name = getattr(thing, "__qualname__", thing.__name__)
    source = textwrap.dedent(inspect.getsource(thing)).rstrip()
    return Code(source, "python", f"{name}, {file}", shown=MOST_LINES)


@dataclass
class Table:
    """Rows of cells under column names."""

    columns: list
    rows: list
    title: str = ""

    def _repr_html_(self):
        cell = lambda tag, value: (
            f"<{tag} style='text-align:left;padding:2px 10px'>{html.escape(str(value))}</{tag}>"
        )  # noqa: E731
        head = "".join(cell("th", c) for c in self.columns)
        body = "".join("<tr>" + "".join(cell("td", v) for v in row) + "</tr>" for row in self.rows)
        title = f"<b>{html.escape(self.title)}</b>" if self.title else ""
        table = f"<table><tr>{head}</tr>{body}</table>"
        if len(self.rows) > ROWS_IN_VIEW:  # says that there is more than one sees
            title += f" <i>{len(self.rows)} rows, to be scrolled through</i>"
        return f"{title}<div style='max-height:420px;overflow:auto'>{table}</div>"

    def __repr__(self):
        texts = [[str(c) for c in self.columns]] + [[str(v) for v in row] for row in self.rows]
        widths = [max(len(row[k]) for row in texts) for k in range(len(self.columns))]
        lines = [
            "  ".join(value.ljust(w) for value, w in zip(row, widths)).rstrip() for row in texts
        ]
        return "\n".join(
            ([self.title] if self.title else [])
            + [lines[0], "-" * min(sum(widths) + 2 * len(widths), 110), *lines[1:]]
        )


@dataclass
class Several:
    """Views one after the other; in a notebook, if asked for, side by side."""

    parts: list
    side_by_side: bool = False

    def _repr_html_(self):
        parts = [
            part.html() if isinstance(part, Code) else part._repr_html_() for part in self.parts
        ]
        style = code_style() if any(isinstance(part, Code) for part in self.parts) else ""
        return style + (
            "<br>".join(parts)
            if not self.side_by_side
            else (
                "<div style='display:flex;gap:16px;flex-wrap:wrap'>"
                + "".join(f"<div style='flex:1;min-width:320px'>{part}</div>" for part in parts)
                + "</div>"
            )
        )

    def __repr__(self):
        return "\n\n".join(map(repr, self.parts))

    def __getitem__(self, index):
        return self.parts[index]

    def __len__(self):
        return len(self.parts)
