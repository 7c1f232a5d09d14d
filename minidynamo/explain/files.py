"""The source files that an explanation points into, and places in them.

In:   file names as code objects have them, and line numbers.  Out: `Files.table()`, the files with
      their text, and places: {"file": "file0", "line": 12}.

    >>> files = Files()
    >>> files.place("model.py", 12)
    {'file': 'file0', 'line': 12}

A source line is an object like any other; its id is "file0:12".
"""

import linecache
import os
from typing import Any

from .callers import rank_of

Place = dict[str, Any]


def shown_path(path: str) -> str:
    """The path without the machine's folders: below the current folder, or below site-packages,
    else its last two parts."""
    for folder in ("/site-packages/", "/dist-packages/"):
        if folder in path:
            return path.rpartition(folder)[2]
    here = os.path.join(os.getcwd(), "")
    if path.startswith(here):
        return path[len(here) :]
    if path.startswith("<"):
        return path
    return "/".join(path.replace("\\", "/").split("/")[-2:])


class Files:
    """Files get their number when something points into them for the first time."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}
        self.known: dict[str, str] = {}  # path as code names it -> id

    def file(self, path: str) -> str:
        if path not in self.known:
            whole = path
            if not path.startswith("<") and os.path.isfile(path):
                whole = os.path.abspath(path)  # a script's code names it as the command line did
            number = self.numbers.setdefault(whole, len(self.numbers))
            self.known[path] = f"file{number}"
        return self.known[path]

    def place(self, path: str | None, line: int | None) -> Place | None:
        if not path or not line:
            return None
        return {"file": self.file(path), "line": line}

    def line_id(self, path: str, line: int) -> str:
        """The id of a source line."""
        return f"{self.file(path)}:{line}"

    def written_place(self, text: Any) -> Place | None:
        """The place that records write as "file.py:12", or as (file, line, text)."""
        if isinstance(text, (tuple, list)) and len(text) >= 2:
            return self.place(text[0], text[1])
        path, _, line = str(text or "").rpartition(":")
        return self.place(path, int(line)) if path and line.isdigit() else None

    def table(self) -> list[dict[str, Any]]:
        """All files that have a number, with their text ("" where nobody knows it): the user's own
        first, then libraries', an optimizer's last."""
        in_order = sorted(self.numbers.items(), key=lambda item: rank_of(item[0]))
        return [
            {
                "id": f"file{number}",
                "path": shown_path(path),
                "first_line": 1,
                "text": "".join(linecache.getlines(path)),
            }
            for path, number in in_order
        ]
