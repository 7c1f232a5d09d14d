"""The forward and the backward half of a cache entry, and what their records hold beside stages.

In:   an entry's `FrameRecord`.  Out: a `Direction` for each compiled half: rows of the document for
      its fusions, saved values, memory and eager kernels.

    >>> e = minidynamo.explain(f)(x)
    >>> [direction.id for direction in directions_of(e.main.record, "f0.0")]
    ['f0.0/forward']

entry_stages.py adds what it finds on its way: kernels, measured steps, the flow of bytes.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from .files import Files
from .stages import Node, Stage


@dataclass
class Direction:
    """The forward or the backward half of an entry: its compiler's record, and what the document
    says of it."""

    name: str  # "forward" | "backward"
    id: str
    record: Any  # CompileRecord
    fusions: list[Node] = field(default_factory=list)
    kernels: list[Node] = field(default_factory=list)
    saved: list[Node] = field(default_factory=list)
    memory: list[Node] = field(default_factory=list)
    eager_kernels: list[Node] = field(default_factory=list)
    steps: list[Node] = field(default_factory=list)
    flow: list[Node] = field(default_factory=list)
    # id of a step -> ids of all that it came from, up to the graph that was lowered
    came_from: dict[str, set[str]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def directions_of(record: Any, entry: str) -> list[Direction]:
    compiled = record.backend_record
    if compiled is None:
        return []
    found = [Direction("forward", f"{entry}/forward", compiled)]
    if compiled.backward is not None:
        found.append(Direction("backward", f"{entry}/backward", compiled.backward))
    return found


# --- what else the record holds -------------------------------------------------------------------
def described_rows(direction: Direction, lowered: Stage, joint: Stage | None, files: Files) -> None:
    """Fusions, saved values, memory and eager kernels of one direction.  lowered, joint: the graphs
    that they name nodes of."""
    compiled = direction.record
    direction.notes = list(compiled.notes)
    for n, one in enumerate(compiled.fusions):
        direction.fusions.append(
            {
                "id": f"{direction.id}/fusion{n}",
                "first": one.first,
                "second": one.second,
                "nodes": buffer_ids(direction, [*one.first.split("+"), *one.second.split("+")]),
                "fused": one.fused,
                "category": one.category,
                "reason": one.reason,
                "bytes_saved": int(one.bytes_saved),
            }
        )
    for n, one in enumerate(compiled.saved):
        nodes = (joint or lowered).ids([one.name])
        direction.saved.append(
            {
                "id": f"{direction.id}/saved{n}",
                "node": nodes[0] if nodes else "",
                "shape": one.shape,
                "bytes": int(one.bytes),
                "is_input": one.is_input,
                "reason": one.reason,
                "place": files.written_place(one.line),
            }
        )
    for n, one in enumerate(compiled.fallbacks):
        place = files.written_place(one.line)
        origins = lowered.ids([one.node])
        if not origins and place:
            origins = [f"{place['file']}:{place['line']}"]
        steps = [
            row
            for row in direction.steps
            if not row["kernel"] and direction.came_from[row["id"]].intersection(origins)
        ]
        direction.eager_kernels.append(
            {
                "id": f"{direction.id}/eager{n}",
                "op": one.op,
                "kind": one.kind,
                "reason": one.reason,
                "place": place,
                "origins": origins,
                "seconds": sum(row["seconds"] for row in steps) if steps else None,
                "bytes": sum(row["bytes"] for row in steps) if steps else None,
            }
        )
    if compiled.memory_lives:
        direction.memory.append(memory(direction))


def buffer_ids(direction: Direction, names: Iterable[str]) -> list[str]:
    """Ids of buffers in the fused loop IR; other texts are left out."""
    return [f"{direction.id}/fused/{name}" for name in names if name.isidentifier()]


def memory(direction: Direction) -> Node:
    compiled = direction.record
    lives = [
        {
            "id": f"{direction.id}/life{n}",
            "buffer": f"{direction.id}/fused/{name}",
            "offset": offset if offset is None else int(offset),
            "bytes": int(nbytes) if is_number(nbytes) else 0,
            "first": first,
            "last": last,
        }
        for n, (name, offset, nbytes, first, last) in enumerate(compiled.memory_lives)
    ]
    steps = list(map(str, compiled.memory_steps))
    peak = max(
        sum(one["bytes"] for one in lives if one["first"] <= n <= one["last"])
        for n in range(max(len(steps), 1))
    )
    return {"direction": direction.name, "peak_live_bytes": peak, "steps": steps, "lives": lives}


def is_number(value: Any) -> bool:
    return isinstance(value, int) or bool(getattr(value, "is_Integer", False))
