"""A document in less space, as the explorer's page holds it.

In:   what `Explanation.to_json()` gives (schema.json).
Out:  the same with each stage's nodes as columns, and what guards ask as trees (questions.py).  A
      browser reads that several times as fast: most of the 16 million characters that training a
      GPT-2 of 12 layers takes are ids, said again and again.

    >>> packed = pack(document)         # `unfolded` of page/packing.js makes the document of it

A node is its number among all nodes of the document; its id is the stage's id, "/", and its name.
A reference to a node says how far back that is, which is the same in each layer of a model.  A word
(an op, a reason, a shape, a group) is its number in `words`; names, and lines of texts, stand once,
in tables (see `Table`).  A column in which nothing stands is left out, and so is what the page does
not ask for: the path of a guard, which its code contains.
"""

import itertools
from collections.abc import Iterable, Iterator
from typing import Any

from .questions import Questions

WORDS = ("op", "reason", "shape", "group")


class Table(dict[str, int]):
    """Texts, each with its number."""

    def steps(self, texts: Iterable[str]) -> list[int]:
        """The numbers of some texts, as distances from the one that is next in the table: 0 where
        texts follow one another as they did before."""
        found, following = [], 0
        for text in texts:
            number = self.setdefault(text, len(self))
            found.append(number - following)
            following = number + 1
        return found


def pack(document: dict[str, Any]) -> dict[str, Any]:
    """The document, with stages and guards in less space, and the words that they use."""
    packer = Packer(document)
    frames = [
        frame | {"entries": [packer.entry(one, frame["arguments"]) for one in frame["entries"]]}
        for frame in document["frames"]
    ]
    tables = {key: list(getattr(packer, key)) for key in ("words", "texts", "names")}
    return document | {"frames": frames} | tables


def pack_pictures(pictures: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """The pictures of layout.py; each point of an arrow as its distance from the one before."""
    return [picture | {"edges": [*map(stepped, picture["edges"])]} for picture in pictures]


def stepped(edge: list[int]) -> list[int]:
    """[source, target, x, y, x, y...], from the second point on as distances."""
    return edge[:4] + [after - before for before, after in zip(edge[2:], edge[4:])]


class Packer:
    """Numbers of nodes, words, names and lines of texts."""

    def __init__(self, document: dict[str, Any]) -> None:
        names = (f"{stage['id']}/{node['name']}" for stage, node in nodes_of(document))
        self.numbers = {name: number for number, name in enumerate(names)}
        self.words, self.names, self.texts = Table({"": 0}), Table(), Table()
        self.first = 0  # number of a stage's first node

    def entry(self, entry: dict[str, Any], arguments: list[dict[str, Any]]) -> dict[str, Any]:
        questions = Questions([one["path"] for one in arguments])
        guards = [self.guard(guard, questions) for guard in entry["guards"]]
        flow = [row | {"nodes": self.references(row["nodes"], 0)} for row in entry["flow"]]
        stages = [self.stage(each) for each in entry["stages"]]
        return entry | {"guards": guards, "flow": flow, "stages": stages}

    def guard(self, guard: dict[str, Any], questions: Questions) -> dict[str, Any]:
        kept = {key: value for key, value in guard.items() if key != "path"}
        asks = questions.of(guard)
        return kept | ({"asks": asks} if asks else {})

    def stage(self, stage: dict[str, Any]) -> dict[str, Any]:
        nodes = stage["nodes"]
        columns: dict[str, list[Any]] = {
            "origins": self.column(node["origins"] for node in nodes),
            "inputs": self.column(node["inputs"] for node in nodes),
            "place": [place_text(node["place"]) for node in nodes],
            "bytes": [node["bytes"] for node in nodes],
        }
        for key in WORDS:
            columns[key] = [self.word(node[key]) for node in nodes]
        kept = {key: column for key, column in columns.items() if any(column)}
        kept["name"] = self.names.steps(node["name"] for node in nodes)
        lines, text = self.column(stage["lines"]), self.texts.steps(stage["text"].split("\n"))
        self.first += len(nodes)
        return stage | {"nodes": kept, "lines": lines, "text": text}

    def column(self, rows: Iterable[list[str]]) -> list[Any]:
        """What the nodes of a stage, or its lines, refer to."""
        return list(map(self.references, rows, itertools.count(self.first)))

    def word(self, text: str) -> int:
        return self.words.setdefault(text, len(self.words))

    def references(self, names: list[str], at: int) -> Any:
        """Ids: nodes by their distance from number `at`.  A single one stands without brackets;
        None is none."""
        numbers = self.numbers
        found = [at - numbers[name] if name in numbers else name for name in names]
        if len(found) == 1 and isinstance(found[0], int):
            return found[0]
        return found or None


def nodes_of(document: dict[str, Any]) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Every stage with each of its nodes."""
    for frame in document["frames"]:
        for entry in frame["entries"]:
            for stage in entry["stages"]:
                yield from ((stage, node) for node in stage["nodes"])


def place_text(place: dict[str, Any] | None) -> str:
    """The id of a source line: "file0:12"."""
    return f"{place['file']}:{place['line']}" if place else ""
