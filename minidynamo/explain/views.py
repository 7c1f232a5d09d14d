"""One stage of compilation as something a notebook and a terminal can show.

In:   text or objects.  Out: `Code`, `Table`, `Several`: each has `_repr_html_` (highlighted) and a
      plain text form.

    >>> Code("int main() {}", "cpp", "a kernel")
"""

from typing import Any
import html
import inspect
import textwrap
from dataclasses import dataclass

LEXERS = {"triton": "python"}  # languages that pygments knows by another name


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


@dataclass
class Code:
    """Source text; language is a pygments name ("python", "cpp", "text") or "triton"."""

    source: str
    language: str = "python"
    title: str = ""

    def _repr_html_(self):
        head = f"<b>{html.escape(self.title)}</b>" if self.title else ""
        try:
            from pygments import highlight
            from pygments.formatters import HtmlFormatter
            from pygments.lexers import get_lexer_by_name

            body = highlight(
                self.source,
                get_lexer_by_name(LEXERS.get(self.language, self.language)),
                HtmlFormatter(noclasses=True, style="friendly"),
            )
        except ImportError:
            body = f"<pre>{html.escape(self.source)}</pre>"
        return f'{head}<div style="max-height:520px;overflow:auto;font-size:12px">{body}</div>'

    def __repr__(self):
        return (f"# {self.title}\n" if self.title else "") + self.source


def excerpt(thing: Any, title: str | None = None) -> Code:
    """The source of a function or class of ours (or anybody's) as `Code`, titled with its file."""
    file = inspect.getsourcefile(thing).replace("\\", "/")
    for package in ("/minidynamo/", "/miniinductor/", "/torch/"):
        if package in file:
            file = file[file.rindex(package) + 1 :]
            break
    else:
        file = "this notebook"
    name = getattr(thing, "__qualname__", thing.__name__)
    return Code(
        textwrap.dedent(inspect.getsource(thing)).rstrip(), "python", title or f"{name}, {file}"
    )


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
        parts = [part._repr_html_() for part in self.parts]
        return (
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
