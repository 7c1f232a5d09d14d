"""What a file of ours defines: each function and class with a sentence and the beginning of its
code.

In:   paths of source files, such as "minidynamo/guards/guards.py".
Out:  a `Listing`: folded, file by file.

    >>> also_here("minidynamo/records.py")        # in a notebook: names to unfold

It is made when a page is built, from the sources as they are; so it cannot go stale.
"""

import ast
import html
import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from .views import MOST_LINES, Code, code_style, many

ROOT = Path(__file__).resolve().parent.parent.parent
Definition = ast.FunctionDef | ast.ClassDef


@dataclass(frozen=True)
class Entry:
    """A public function or class. says: its docstring's first sentence, or how it is called."""

    name: str
    says: str
    code: str
    methods: tuple[str, ...] = ()


@dataclass
class Listing:
    """{file: its entries}"""

    files: dict[str, list[Entry]]

    def _repr_html_(self) -> str:
        parts = [code_style()]
        for file, entries in self.files.items():
            rows = "".join(map(shown, entries))
            parts.append(
                f"<details><summary><code>{file}</code>: {many(len(entries), 'name')}</summary>"
                f"{rows}</details>"
            )
        return "".join(parts)

    def __repr__(self) -> str:
        """The names; the sentences are in the picture, and in the file."""
        lines = [
            f"{file}: {', '.join(entry.name for entry in entries)}"
            for file, entries in self.files.items()
        ]
        return "\n".join(textwrap.fill(line, 110, subsequent_indent="    ") for line in lines)


def shown(entry: Entry) -> str:
    """An entry as HTML, its code folded."""
    methods = f" Methods: {', '.join(f'<code>{m}</code>' for m in entry.methods)}."
    return (
        f"<details style='margin-left:1.2em'><summary><code>{entry.name}</code> "
        f"{html.escape(entry.says)}{methods if entry.methods else ''}</summary>"
        f"{Code(entry.code).html()}</details>"
    )


def also_here(*files: str) -> Listing:
    """The public functions and classes of files; a folder ("minidynamo/bytecode/") is all of its
    files.  FileNotFoundError where there is none."""
    found: dict[str, list[Entry]] = {}
    for name in files:
        path = ROOT / name
        paths = sorted(path.glob("*.py")) if path.is_dir() else [path]
        for each in paths:
            entries = entries_of(each.read_text())
            if entries:
                found[each.relative_to(ROOT).as_posix()] = entries
    return Listing(found)


def entries_of(source: str) -> list[Entry]:
    """The public definitions at the top of a file, in its order."""
    lines = source.splitlines()
    return [
        Entry(node.name, sentence(node), beginning(node, lines), tuple(public_methods(node)))
        for node in ast.parse(source).body
        if isinstance(node, Definition) and not node.name.startswith("_")
    ]


def public_methods(node: Definition) -> Iterator[str]:
    """The names of a class's methods."""
    for each in node.body if isinstance(node, ast.ClassDef) else ():
        if isinstance(each, ast.FunctionDef) and not each.name.startswith("_"):
            yield each.name


def sentence(node: Definition) -> str:
    """The docstring's first sentence; where there is none, what it takes and gives."""
    text = " ".join((ast.get_docstring(node) or "").split())
    if text:
        first = re.split(r"(?<=[.?]) |: ", text)[0].rstrip(".:")
        return first if first.endswith("?") else first + "."
    if isinstance(node, ast.ClassDef):
        bases = ", ".join(map(ast.unparse, node.bases))
        return f"A class, of {bases}." if bases else "A class."
    gives = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    return f"({ast.unparse(node.args)}){gives}"


def beginning(node: Definition, lines: list[str]) -> str:
    """The definition's first lines without its docstring, at most MOST_LINES."""
    skipped: set[int] = set()
    first = node.body[0]
    if ast.get_docstring(node) and first.end_lineno and len(node.body) > 1:
        after = first.end_lineno + (not lines[first.end_lineno].strip())
        skipped = set(range(first.lineno, after + 1))
    start = min([node.lineno, *[each.lineno for each in node.decorator_list]])
    last = node.end_lineno or node.lineno
    kept = [lines[n - 1] for n in range(start, last + 1) if n not in skipped]
    if len(kept) > MOST_LINES:
        rest = len(kept) - MOST_LINES + 1
        kept = [*kept[: MOST_LINES - 1], f"    # ... {many(rest, 'line')} more"]
    return textwrap.dedent("\n".join(kept))
