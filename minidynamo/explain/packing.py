"""A document in less space, as the explorer's page holds it.

In:   what `Explanation.to_json()` gives (schema.json).
Out:  the same with each stage's nodes as columns, and what guards ask as trees (questions.py).  A
      browser reads that several times as fast: most of the 16 million characters that training a
      GPT-2 of 12 layers takes are ids, said again and again.

    >>> packed = pack(document)         # `unfolded` of page/packing.js makes the document of it

A node is its number among all nodes of the document; its id is the stage's id, "/", and its name.
A word (an op, a reason, a shape, a group) is its number in `words`.  A column in which nothing
stands is left out, and so is what the page does not ask for: the path of a guard, which its code
contains.
"""

from collections.abc import Iterator
from typing import Any

from .questions import Questions

WORDS = ("op", "reason", "shape", "group")


def pack(document: dict[str, Any]) -> dict[str, Any]:
    """The document, with stages and guards in less space, and the words that they use."""
    packer = Packer(document)
    frames = [
        frame | {"entries": [packer.entry(one, frame["arguments"]) for one in frame["entries"]]}
        for frame in document["frames"]
    ]
    return document | {"frames": frames, "words": list(packer.words)}


class Packer:
    """Numbers of nodes and words."""

    def __init__(self, document: dict[str, Any]) -> None:
        names = (f"{stage['id']}/{node['name']}" for stage, node in nodes_of(document))
        self.numbers = {name: number for number, name in enumerate(names)}
        self.words: dict[str, int] = {"": 0}

    def entry(self, entry: dict[str, Any], arguments: list[dict[str, Any]]) -> dict[str, Any]:
        questions = Questions([one["path"] for one in arguments])
        guards = [self.guard(guard, questions) for guard in entry["guards"]]
        flow = [row | {"nodes": self.references(row["nodes"])} for row in entry["flow"]]
        stages = [self.stage(each) for each in entry["stages"]]
        return entry | {"guards": guards, "flow": flow, "stages": stages}

    def guard(self, guard: dict[str, Any], questions: Questions) -> dict[str, Any]:
        kept = {key: value for key, value in guard.items() if key != "path"}
        asks = questions.of(guard)
        return kept | ({"asks": asks} if asks else {})

    def stage(self, stage: dict[str, Any]) -> dict[str, Any]:
        nodes = stage["nodes"]
        columns: dict[str, list[Any]] = {
            "name": [node["name"] for node in nodes],
            "origins": [self.references(node["origins"]) for node in nodes],
            "inputs": [self.references(node["inputs"]) for node in nodes],
            "place": [place_text(node["place"]) for node in nodes],
            "bytes": [node["bytes"] for node in nodes],
        }
        for key in WORDS:
            columns[key] = [self.word(node[key]) for node in nodes]
        kept = {key: column for key, column in columns.items() if any(column)}
        return stage | {"nodes": kept, "lines": [self.references(ids) for ids in stage["lines"]]}

    def word(self, text: str) -> int:
        return self.words.setdefault(text, len(self.words))

    def references(self, names: list[str]) -> Any:
        """Ids: nodes as their numbers.  A single number stands without brackets; None is none."""
        found = [self.numbers.get(name, name) for name in names]
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
