"""What each pass changed in a graph, as stages: the lines that went, and those that came.

In:   the steps of a `CompileRecord` (config.keep_steps): the graph after each pass, as a listing.
Out:  for each pass that changed something a stage whose text is the difference.

    >>> [stage.title for stage in History(traced).stages(record.steps, direction)]
    ['functionalization', 'no-ops', 'common subexpressions', 'dead code']

A node that a pass made comes from the nodes that went in its stead: those that were traced for the
same op of the program.
"""

import difflib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from miniinductor.records import Listing

from .stages import Stage
from .views import many

SAME = "  ... "  # and how many lines a pass left as they were


@dataclass
class History:
    """latest: name of a node -> (its id in the pass that made or changed it, its marks)."""

    traced: Stage
    lines: list[tuple[str, str, tuple, str]]  # text, name, marks and op of each node
    latest: dict[str, tuple[str, tuple]] = field(default_factory=dict)
    # the lines before a pass, by the name of the node, and by each of its marks
    by_name: dict[str, list[tuple]] = field(default_factory=dict)
    by_mark: dict[str, list[tuple]] = field(default_factory=dict)

    def copy(self) -> "History":
        return History(self.traced, self.lines, dict(self.latest))

    def id_of(self, name: str, marks: Any) -> str:
        """The object that a pass made of the node; "" where none has touched it."""
        found, made_of = self.latest.get(name, ("", ()))
        return found if made_of == tuple(marks) else ""

    def before(self, name: str, marks: tuple) -> list[str]:
        """The node as it was before the pass."""
        known = self.id_of(name, marks)
        return [known] if known else self.traced.ids([name])

    def stages(self, steps: Sequence[tuple[str, Listing]], half: str) -> Iterator[Stage]:
        """half: the id of the direction."""
        seen: list[str] = []
        for title, listing in steps:
            lines = lines_of(listing)
            seen.append(title)
            again = f"-{seen.count(title)}" if seen.count(title) > 1 else ""
            name = f"{half}/pass-{title.replace(' ', '-')}{again}"
            stage = self.difference(name, title, lines)
            if any(not text.startswith(SAME) for text in stage.texts):
                yield stage
            self.lines = lines

    def difference(self, name: str, title: str, after: list[tuple]) -> Stage:
        stage = Stage(name, "pass", title, language="text")
        self.by_name, self.by_mark = {}, {}
        for one in self.lines:
            self.by_name.setdefault(one[1], []).append(one)
            for mark in one[2]:
                self.by_mark.setdefault(mark, []).append(one)
        olds, news = [one[0] for one in self.lines], [one[0] for one in after]
        matcher = difflib.SequenceMatcher(None, olds, news, autojunk=False)
        for what, a, b, c, d in matcher.get_opcodes():
            if what == "equal":
                stage.line(f"{SAME}{many(b - a, 'line')}")
                continue
            gone, come = self.lines[a:b], after[c:d]
            if title == "partition" and gone:  # which takes one half of the nodes
                stage.line(f"  {many(b - a, 'line')} of the other half")
                gone = []
            for text, node, marks, _ in gone:
                stage.line(f"- {text}", self.before(node, marks))
            for text, node, marks, op in come:
                origins = self.origins(node, marks)
                reason = "" if origins else f"made by the pass: {title}"
                stage.line(f"+ {text}", [stage.node(node, op, origins, reason=reason)])
        for _, node, marks, _ in after:
            if node in stage.names:
                self.latest[node] = (stage.names[node], marks)
        return stage

    def origins(self, node: str, marks: tuple) -> list[str]:
        """Ids of what a new or changed node came from."""
        same = [one for one in self.by_name.get(node, []) if one[2] == marks]
        kin = same or [one for mark in marks for one in self.by_mark.get(mark, [])]
        found = [made for one in kin for made in self.before(one[1], one[2])]
        return found or self.traced.ids(marks)


def lines_of(listing: Listing) -> list[tuple[str, str, tuple, str]]:
    texts = listing.split("\n") if listing else []
    return [
        (text, name, tuple(marks), op) for text, (name, marks, _, op) in zip(texts, listing.about)
    ]
