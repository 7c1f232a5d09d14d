"""An explanation as one value of JSON: all frames, entries, stages, and which object came from
which.

In:   an `Explanation`.  Out: a dictionary for `json.dumps`, as schema.json describes it.

    >>> document = explain(f)(x).to_json()
    >>> [stage["title"] for stage in document["frames"][0]["entries"][0]["stages"]]
    ['Bytecode', 'Replacement bytecode', 'FX graph', ...]
    >>> kernel = document["frames"][0]["entries"][0]["kernels"][0]
    >>> Origins(document).lines(kernel["nodes"][0])      # source lines, transitively
    ['file0:...']

Ids are unique in the document, and made of readable parts.  Whatever is not known is null or "".
"""

import datetime
import inspect
import json
import os
import platform
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

import miniinductor
from miniinductor.sizes.prover import LARGEST, Symbol

from .. import config
from ..rebuild.resume import CALL_PREFIXES
from ..records import shown
from .callers import OPTIMIZER, OWN, caller_of, rank_of
from .directions import Direction, directions_of
from .entry_stages import stages_of
from .files import Files
from .measure import copy_rate, sheet_of
from .stages import Stage, instruction_ends

SCHEMA = Path(__file__).with_name("schema.json")


def schema() -> dict[str, Any]:
    """The JSON Schema (2020-12) of `to_json`'s value."""
    return json.loads(SCHEMA.read_text(encoding="utf-8"))


def document(explanation: Any) -> dict[str, Any]:
    """The whole explanation."""
    files = Files()
    records = [frame.record for frame in explanation.frames]
    looks = explanation.looks
    frames = frames_of(records, files, looks)
    if explanation.script:  # the user's own file, also where all that is compiled is a library's
        files.file(explanation.script)
    given = list(getattr(explanation, "arguments", []))
    if given and frames:  # the call also has what its graph does not read, and what is no tensor
        frames[0]["arguments"] = given
    return {
        "schema": 1,
        "made": made() | {"copy": copied(records) if looks and looks.measure else None},
        "call": {"name": explanation.name, "arguments": given},
        "opens": opens(frames, records, bool(explanation.script)),
        "frames": frames,
        "files": files.table(),
        "counters": {group: dict(found) for group, found in explanation.counters.items()},
    }


def opens(frames: list[dict[str, Any]], records: list[Any], is_script: bool) -> dict[str, Any]:
    """What the page shows first: the first entry with a graph, an optimizer's only where there is
    no other, and the user's line that called it; of `explain(f)` the user's own f, which is nearer
    than the line that asks."""
    ranks = {r.function: rank_of(r.code.co_filename) for r in records if r.code is not None}
    in_order = sorted(frames, key=lambda frame: ranks.get(frame["function"]) == OPTIMIZER)
    for found in in_order:
        place = found["caller"]
        if not is_script and ranks.get(found["function"]) == OWN and found["file"]:
            place = {"file": found["file"], "line": max(1, found["first_line"])}
        for one in found["entries"]:
            if any(stage["kind"] == "fx" for stage in one["stages"]):
                return {"entry": one["id"], "place": place}
    return {"entry": "", "place": next((each["caller"] for each in in_order), None)}


# --- where and from what it was made --------------------------------------------------------------
def made() -> dict[str, Any]:
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else None
    return {
        "date": datetime.datetime.now().isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "minidynamo": version_of("minidynamo"),
        "process": {"pid": os.getpid(), "rank": rank()},
        "machine": {"cpu": processor(), "cores": os.cpu_count() or 1, "gpu": gpu},
        "options": {
            "minidynamo": switches(config),
            "miniinductor": switches(miniinductor.config, without=("cache_dir",)),
        },
    }


def rank() -> int | None:
    """This process's number among those that torchrun started."""
    text = os.environ.get("RANK", "")
    return int(text) if text.isdigit() else None


def copied(records: list[Any]) -> dict[str, Any]:
    """How many bytes a second a copy moves where the kernels ran: the roof of the others."""
    halves = [half for r in records for half in directions_of(r, "")]
    sheets = [sheet_of(half.record) for half in halves]
    kind = next((sheet.device.type for sheet in sheets if sheet is not None), "cpu")
    return {"device": kind, "bytes_per_second": copy_rate(kind)}


def version_of(package: str) -> str:
    import importlib.metadata

    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""


def processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def switches(module: Any, without: tuple[str, ...] = ()) -> dict[str, Any]:
    """The options of a config module, as texts where JSON has no such value."""
    found = {}
    for name, value in vars(module).items():
        plain = isinstance(value, (bool, int, float, str, tuple, list, type(None)))
        if plain and not name.startswith("_") and name not in without:
            found[name] = value if isinstance(value, (bool, int, float, str)) else str(value)
    return found


def describe_arguments(function: Any, args: tuple, kwargs: dict[str, Any]) -> list[dict[str, Any]]:
    """The arguments of a call: tensors by their layout, anything else as a short text."""
    try:
        target = function.forward if isinstance(function, torch.nn.Module) else function
        bound = inspect.signature(target).bind(*args, **kwargs).arguments
    except (TypeError, ValueError):
        bound = {**{f"argument {n}": value for n, value in enumerate(args)}, **kwargs}
    return [row for name, value in bound.items() for row in described(name, value)]


def described(path: str, value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, torch.Tensor):
        yield {
            "path": path,
            "kind": "tensor",
            "dtype": str(value.dtype).removeprefix("torch."),
            "shape": [int(n) for n in value.shape],
            "stride": [int(n) for n in value.stride()] if value.layout == torch.strided else [],
            "device": str(value.device),
            "requires_grad": value.requires_grad,
        }
    elif type(value) in (list, tuple):
        for n, item in enumerate(value):
            yield from described(f"{path}[{n}]", item)
    elif type(value) is dict:
        for key, item in value.items():
            yield from described(f"{path}[{key!r}]", item)
    else:
        yield {"path": path, "kind": type(value).__name__, "text": short(value)}


def graph_arguments(record: Any) -> list[dict[str, Any]]:
    """The tensors among a frame's locals that its graph takes, as they were in the call for which
    it was compiled; sizes that are symbols by their values."""
    if record.graph is None:
        return []
    found = {}
    placeholders = record.graph.graph.find_nodes(op="placeholder")
    for source, node in zip(record.input_sources, placeholders):
        value, path = node.meta.get("val", node.meta.get("example_value")), str(source)
        if path.isidentifier() and isinstance(value, torch.Tensor):
            sizes = [[*map(in_this_call, numbers)] for numbers in (value.shape, value.stride())]
            example = torch.empty_strided(
                *sizes, dtype=value.dtype, device="meta", requires_grad=value.requires_grad
            )
            found[path] = [*described(path, example)][0] | {"device": str(value.device)}
    return [*found.values()]


def in_this_call(size: Any) -> int:
    """A size, or the value of its symbol in this run."""
    return size if isinstance(size, int) else int(size.node.hint or 0)


def short(value: Any, width: int = 120) -> str:
    """A value as text that is not too long; what cannot be printed says so."""
    try:
        text = repr(value)
    except Exception as error:  # a program's own __repr__
        text = f"<{type(value).__name__}, whose repr raises {type(error).__name__}>"
    return text if len(text) <= width else text[: width - 3] + "..."


# --- frames ---------------------------------------------------------------------------------------
def frames_of(records: list[Any], files: Files, looks: Any = None) -> list[dict[str, Any]]:
    """One frame for each code object, with an entry for each time that it was compiled."""
    by_code: dict[int, list[Any]] = {}
    for record in records:
        by_code.setdefault(id(record.code), []).append(record)
    names = {code: f"f{n}" for n, code in enumerate(by_code)}
    parents = parents_of(records, names)
    found: dict[str, dict[str, Any]] = {}
    for code, group in by_code.items():
        made = frame(names[code], group, parents.get(code), files, looks)
        if made["parent"] in found:  # it goes on behind a break: the same line called the whole
            made["caller"] = found[made["parent"]]["caller"]
        found[made["id"]] = made
    return [*found.values()]


def parents_of(records: list[Any], names: dict[int, str]) -> dict[int, str]:
    """Of the code of a resume function: the frame whose replacement code makes that function."""
    found: dict[int, str] = {}
    for record in records:
        for made_code in codes_in(record.replacement_code):
            if id(made_code) in names and id(made_code) != id(record.code):
                found.setdefault(id(made_code), names[id(record.code)])
    return found


def codes_in(code: Any) -> list[Any]:
    if code is None:
        return []
    constants = [getattr(value, "__code__", value) for value in code.co_consts]
    return [value for value in constants if inspect.iscode(value)]


def frame(
    name: str, group: list[Any], parent: str | None, files: Files, looks: Any
) -> dict[str, Any]:
    first = group[0]
    lines, start = source_lines(first.code)
    caller = next(filter(None, map(caller_of, group)), None)
    code, entries = first.code, [r for r in group if r.replacement_code is not None]
    guards = {
        id(one): f"{name}.{n}/guard{k}"
        for n, record in enumerate(entries)
        for k, one in enumerate(record.guards)
    }
    return {
        "id": name,
        "function": first.function,
        "file": files.file(code.co_filename) if code is not None else None,
        "first_line": start,
        "last_line": start + max(len(lines), 1) - 1,
        "source": "".join(lines),
        "parent": parent,
        "skipped": next((r.skipped for r in group if r.skipped), ""),
        "error": next((r.error for r in group if r.error), ""),
        "caller": files.place(*caller) if caller else None,
        "calls": sum(r.hits + 1 for r in group if r.replacement_code is not None),
        "breaks": breaks(name, group, files),
        "arguments": next(filter(None, map(graph_arguments, entries)), []),
        "entries": [
            entry(f"{name}.{n}", record, guards, files, looks) for n, record in enumerate(entries)
        ],
    }


def source_lines(code: Any) -> tuple[list[str], int]:
    """The lines of a code object's function and the number of the first; none where nobody knows
    them."""
    if code is None:
        return [], 1
    try:
        return inspect.getsourcelines(code)
    except (OSError, TypeError, IndexError, SyntaxError):
        return [], code.co_firstlineno


def breaks(name: str, group: list[Any], files: Files) -> list[dict[str, Any]]:
    seen: dict[tuple, Any] = {}
    for record in group:
        for found in record.graph_breaks:
            seen.setdefault((found.kind, found.reason, tuple(map(tuple, found.stack))), found)
    return [
        {
            "id": f"{name}/break{n}",
            "kind": found.kind,
            "reason": found.reason,
            "hint": found.hint,
            "stack": [
                {"file": files.file(path), "path": path_of(path), "line": line, "function": where}
                for path, line, where in found.stack
            ],
        }
        for n, found in enumerate(seen.values())
    ]


def path_of(path: str) -> str:
    from .files import shown_path

    return shown_path(path)


# --- entries --------------------------------------------------------------------------------------
def entry(name: str, record: Any, ids: dict[int, str], files: Files, looks: Any) -> dict[str, Any]:
    """ids: of the guards of all entries of the frame; looks: running.Looks, or None."""
    directions = directions_of(record, name)
    stages = stages_of(record, name, directions, files)
    names: dict[Any, str] = {}
    guards = [guard(name, n, one, names, files) for n, one in enumerate(record.guards)]
    found: dict[str, Any] = {
        "id": name,
        "recompiled_because": recompiled(record, ids, files),
        "guards": guards,
        "symbols": symbols(record),
        "times": times(record),
        "stages": [stage.data(step) for step, stage in enumerate(stages)],
    }
    lists = ("fusions", "kernels", "flow", "saved", "memory", "eager_kernels", "steps", "notes")
    if looks is not None and looks.assembly:
        for direction in directions:
            set_assembly(direction)
    found |= {key: [row for one in directions for row in getattr(one, key)] for key in lists}
    return found | {"walk": walk(record, stages[0])}


def walk(record: Any, code: Stage) -> list[dict[str, Any]]:
    """The symbolic stack before each instruction of the frame, and the calls in the graph."""
    ends, stacks = instruction_ends(record.code), record.walk or {}
    found = {code.names[ends[end]]: row for end, row in stacks.items() if end in ends}
    for node, after in reversed([*zip(code.nodes, code.nodes[1:])]):
        if node["op"] in CALL_PREFIXES and after["id"] in found:
            found.setdefault(node["id"], found[after["id"]])
    return [
        {"node": node["id"], "stack": found[node["id"]][0], "calls": found[node["id"]][1]}
        for node in code.nodes
        if node["id"] in found
    ]


def set_assembly(direction: Direction) -> None:
    """The machine code of the kernels of one half."""
    from .assembly import of_kernels

    for row, text in zip(direction.kernels, of_kernels(direction.record.kernels)):
        row["assembly"] = text


def guard(name: str, number: int, one: Any, names: dict[Any, str], files: Files) -> dict[str, Any]:
    """A guard comes from the line whose evaluation asked for it.  names: of the sources so far."""

    def written(source: Any) -> str:
        if source not in names:
            base = source.base
            names[source] = source.name() if base is None else source.expr(written(base))
        return names[source]

    line = files.written_place(one.line)
    is_one = one.source is not None and not isinstance(one.source, tuple)
    return {
        "id": f"{name}/guard{number}",
        "kind": one.kind,
        "code": one.text(written),
        "path": written(one.source) if is_one else "",
        "expected": expected_value(one),
        "actual": "",  # the call that the entry was compiled for: what is expected
        "line": line,
        "origins": [f"{line['file']}:{line['line']}"] if line else [],
        "reason": "" if line else "what every graph depends on: the state of the thread",
    }


def expected_value(one: Any) -> str:
    """The object that a guard compares with.  Its code names it only: `x.dtype is P_dtype`."""
    pins = list(one.pins.values())
    return shown(pins[0]) if len(pins) == 1 else ""


def recompiled(record: Any, ids: dict[int, str], files: Files) -> dict[str, Any] | None:
    """Why the newest of the entries before did not take the call."""
    if not record.failures:
        return None
    failed = record.failures[-1]
    return {
        "guard": ids.get(id(failed.guard), ""),
        "kind": failed.guard.kind,
        "text": failed.reason,
        "expected": failed.expected,
        "actual": failed.actual,
        "line": files.written_place(failed.guard.line),
    }


def range_of(row: Symbol) -> str:
    """What the bounds of a size allow: "2 ... 64"; open above: "2 ..."."""
    low = f"{row.low} " if row.low > -LARGEST else ""
    high = f" {row.high}" if row.high < LARGEST else ""
    return f"{low}...{high}"


def symbols(record: Any) -> list[dict[str, Any]]:
    table = record.shape_env.table if record.shape_env is not None else {}
    return [
        {
            "name": str(row.name),
            "value": None if row.hint is None else int(row.hint),
            "sources": list(map(str, row.sources)) or [str(row.created_by)],
            "range": range_of(row),
        }
        for row in table.values()
    ]


def times(record: Any) -> dict[str, float]:
    spent = {f"capture: {stage}": seconds for stage, seconds in record.times.items()}
    compiled = record.backend_record
    if compiled is not None:
        spent |= {f"miniinductor: {k}": v for k, v in compiled.times.items()}
        if compiled.backward is not None:
            spent |= {f"backward: {k}": v for k, v in compiled.backward.times.items()}
    return spent


# --- following ------------------------------------------------------------------------------------
class Origins:
    """What each object of a document came from, and what was made of it."""

    def __init__(self, document: dict[str, Any]) -> None:
        self.origins: dict[str, list[str]] = {}
        self.reasons: dict[str, str] = {}
        for frame in document["frames"]:
            for one in frame["entries"]:
                for row in rows_with_origins(one):
                    self.origins[row["id"]] = row["origins"]
                    self.reasons[row["id"]] = row.get("reason", "")

    def all(self, name: str) -> set[str]:
        """Everything that the object came from, transitively."""
        found: set[str] = set()
        work = [name]
        while work:
            for origin in self.origins.get(work.pop(), ()):
                if origin not in found:
                    found.add(origin)
                    work.append(origin)
        return found

    def lines(self, name: str) -> list[str]:
        """The source lines that the object came from: "file0:12"."""
        return sorted(one for one in self.all(name) if "/" not in one)

    def own_lines(self, name: str) -> list[str]:
        """Those of them that say what is computed; not the one that called them, where the frame
        has but that one instruction."""
        inner = {name, *(one for one in self.all(name) if "/bytecode/" not in one)}
        found = {line for one in inner for line in self.origins.get(one, ()) if "/" not in line}
        return sorted(found) or self.lines(name)


def rows_with_origins(one: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """All objects of an entry that say what they came from."""
    for stage in one["stages"]:
        yield from stage["nodes"]
    yield from one["guards"]
    yield from one["eager_kernels"]


__all__ = ["Direction", "Origins", "describe_arguments", "document", "schema"]
