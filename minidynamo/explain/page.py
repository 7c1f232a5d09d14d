"""The explorer: a document of an Explanation as one HTML file that needs nothing but itself.

In:   what `Explanation.to_json()` gives (schema.json).
Out:  HTML: the data, deflated; the page's script and style (the folder page/, a file a pane); and,
      for a reader without scripts, source, breaks, guards, graphs and kernels as text.

    >>> e = minidynamo.explain(f)(x)
    >>> e.save("page.html")

The script's files are modules that import one another by name.  A page has no other files to
import, so `script` makes each a function, and each import a look into what was made before.
# PyTorch: tlparse writes a folder of pages, one for each artifact of the log.
"""

import base64
import json
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .layout import Pictures
from .packing import pack, pack_pictures
from .palette import page_variables

FOLDER = Path(__file__).parent / "page"
DRAWN = (
    "fx",
    "aten",
    "joint",
    "pass",
    "loop_ir",
    "fused",
)  # kinds of stages that are drawn as graphs
# What a reader without scripts gets, in the order in which it is left out when there is much.
STATIC = ("kernel", "fx", "aten", "loop_ir", "joint", "fused", "wrapper", "bytecode")
STATIC_CHARACTERS = 200_000  # of an entry's stages and guards together
NEAR = 40  # lines of a long file that are kept around one that something points to
LONG = 300  # lines


def render(document: dict[str, Any], pane: str = "") -> str:
    """The page of a document.  pane: the name of the one pane to show ("fusion", "memory"...)."""
    import jinja2
    from markupsafe import Markup

    environment = jinja2.Environment(
        autoescape=True, loader=jinja2.FileSystemLoader(FOLDER), trim_blocks=True
    )
    content = pack(with_near_lines(document)) | {"layouts": layouts(document)}
    return environment.get_template("page.html.jinja").render(
        document=document,
        pane=pane,
        arguments=", ".join(map(argument_text, document["call"]["arguments"])),
        frames=[static_frame(frame) for frame in document["frames"]],
        style=Markup(style()),
        script=Markup(script()),
        data=Markup(deflated(content)),
    )


def style() -> str:
    """The style sheet of every page."""
    return page_variables() + "\n" + (FOLDER / "style.css").read_text(encoding="utf-8")


def deflated(value: Any) -> str:
    """JSON, deflated, as base64: what `unpack` of page/packing.js reads."""
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    return base64.b64encode(zlib.compress(text.encode())).decode()


def layouts(document: dict[str, Any]) -> dict[str, Any]:
    """Where the boxes of every stage with a graph lie: see layout.py."""
    pictures = Pictures()
    stages = {
        stage["id"]: pictures.of_stage(stage)
        for entry in entries(document)
        for stage in entry["stages"]
        if stage["kind"] in DRAWN and stage["nodes"]
    }
    return {"pictures": pack_pictures(pictures.drawn), "stages": stages}


def entries(document: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for frame in document["frames"]:
        yield from frame["entries"]


# --- the script -----------------------------------------------------------------------------------
def script(first: str = "main.js") -> str:
    """The modules of page/ that `first` needs in one text, each a function, behind those that it
    imports."""
    done: dict[str, str] = {}

    def add(name: str) -> None:
        lines = (FOLDER / name).read_text().splitlines()
        imports = [line for line in lines if line.startswith("import ")]
        for line in imports:
            if imported_file(line) not in done:
                add(imported_file(line))
        done[name] = as_function(name, lines)

    add(first)
    return "\n".join(["const modules = {};", *done.values()])


def imported_file(line: str) -> str:
    """import { make } from "./dom.js"; -> dom.js"""
    return line.partition('"./')[2].partition('"')[0]


def as_function(name: str, lines: list[str]) -> str:
    """A module as a function that gives what it exports, called once."""
    body, exported = [], []
    for line in lines:
        if line.startswith("import "):
            names = line.partition("{")[2].partition("}")[0]
            body.append(f'const {{{names}}} = modules["{imported_file(line)}"];')
        elif line.startswith("export "):
            body.append(line.removeprefix("export "))
            words = line.replace("(", " ").replace("async ", "").split()
            exported.append(words[2])  # export function NAME, export const NAME
        else:
            body.append(line)
    given = f"return {{ {', '.join(exported)} }};"
    return "\n".join([f'modules["{name}"] = (() => {{', *body, given, "})();"])


# --- what there is to show ------------------------------------------------------------------------
def argument_text(argument: dict[str, Any]) -> str:
    """ "x: float32[8, 16]" of a tensor, "n: 3" of anything else."""
    if argument["kind"] == "tensor":
        return f"{argument['path']}: {argument['dtype']}{argument['shape']}"
    return f"{argument['path']}: {argument.get('text', argument['kind'])}"


def with_near_lines(document: dict[str, Any]) -> dict[str, Any]:
    """The document with long files emptied where nothing points; line numbers stay."""
    pointed: dict[str, set[int]] = {}
    for file, line in places(document["frames"]):
        pointed.setdefault(file, set()).update(range(line - NEAR, line + NEAR + 1))
    files = []
    for file in document["files"]:
        lines = file["text"].split("\n")
        near = pointed.get(file["id"]) or set(range(LONG))
        if len(lines) > LONG:
            numbered = enumerate(lines, file["first_line"])
            lines = [line if number in near else "" for number, line in numbered]
        files.append(file | {"text": "\n".join(lines)})
    return document | {"files": files}


def places(frames: list[dict[str, Any]]) -> Iterator[tuple[str, int]]:
    """Every (file, line) that something points to."""
    found: list[dict[str, Any] | None] = []
    for frame in frames:
        lines = range(frame["first_line"], frame["last_line"] + 1)
        yield from ((frame["file"], line) for line in lines if frame["file"])
        found.append(frame["caller"])
        found += [call for broken in frame["breaks"] for call in broken["stack"]]
        for entry in frame["entries"]:
            found += [guard["line"] for guard in entry["guards"]]
            found += [node["place"] for stage in entry["stages"] for node in stage["nodes"]]
            found += [kernel["place"] for kernel in entry["eager_kernels"]]
    yield from {(one["file"], one["line"]) for one in found if one and one["file"]}


def short_path(text: str) -> str:
    """A guard's text without the tables in which nn.Module keeps its parts:
    self.__dict__['_modules']['h'] -> self.h."""
    for table in ("_modules", "_parameters", "_buffers"):
        first, *rest = text.split(f".__dict__['{table}']['")
        text = first + "".join("." + part.replace("']", "", 1) for part in rest)
    return text


def static_frame(frame: dict[str, Any]) -> dict[str, Any]:
    """A frame as texts, for the part of the page that needs no script."""
    return frame | {"entries": [static_entry(entry) for entry in frame["entries"]]}


def static_entry(entry: dict[str, Any]) -> dict[str, Any]:
    """{"id", "again", "texts"}: the entry's guards and stages as (title, text)."""
    again = entry["recompiled_because"]
    left = STATIC_CHARACTERS
    texts = []
    guards = "\n".join(
        f"{guard['kind']:12} {short_path(guard['code'])}" for guard in entry["guards"]
    )
    stages = sorted(entry["stages"], key=lambda stage: rank(stage["kind"]))
    wanted = [(-1, f"{len(entry['guards'])} guards", guards)]
    wanted += [(s["step"], title_of(s), s["text"]) for s in stages if s["kind"] in STATIC]
    for step, title, text in wanted:
        shown = text if len(text) <= left else cut(text, left)
        left -= len(shown)
        texts.append((step, title, shown))
    told = again and f"{again['kind']} {again['text']}"
    return {"id": entry["id"], "again": told, "texts": [row[1:] for row in sorted(texts)]}


def rank(kind: str) -> int:
    return STATIC.index(kind) if kind in STATIC else len(STATIC)


def title_of(stage: dict[str, Any]) -> str:
    direction = f" ({stage['direction']})" if stage["direction"] else ""
    return stage["title"] + direction


def cut(text: str, left: int) -> str:
    """As many whole lines as fit, and how many there were."""
    kept = text[: max(0, left)].rpartition("\n")[0]
    missing = text.count("\n") - kept.count("\n")
    return f"{kept}\n... {missing} more lines: they are in the page's data, and shown by its script"
