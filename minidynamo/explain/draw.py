"""Drawing FX graphs, guards and memory as SVG, and counts of compilations; text: `draw_code.py`.

In:   an `fx.Graph` or a `CompileRecord`.  Out: a `Picture` or `Timeline` with `.svg` and `.text`
      (the same content without a picture).

    >>> draw_graph(gm.graph)                # in a notebook: the picture
    >>> print(draw_graph(gm.graph).text)    # in a terminal

A large graph is drawn by module first: one box per module path, edges where data flows, the number
of operations inside. Kinds differ by shape and line, not by colour alone, so that a black and white
print is legible; each SVG element carries the id of its node.
"""

import html
import re
import textwrap
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .palette import TEXT_FACE, picture_style
from .views import many

# what each SVG of ours says of itself: dark on light; palette.py has the dark colours
SVG = f'xmlns="http://www.w3.org/2000/svg" font-family="{TEXT_FACE}" style="background:#ffffff"'
LARGE = 150  # nodes; above it, boxes are modules
PRIMALS = "inputs and parameters"  # one box in the picture of a large joint graph
STYLES = {  # node kind -> shape, line, fill
    "placeholder": ("invhouse", "solid", "#e8f0fe"),
    "get_attr": ("note", "dashed", "#f3f3f3"),
    "call": ("box", "solid", "#ffffff"),
    "output": ("house", "bold", "#e6f4ea"),
    "module": ("box3d", "solid", "#fff8e1"),
    "backward": ("box", "dashed", "#fce8e6"),
    "saved": ("box", "bold", "#feefc3"),
    "backward module": ("box3d", "dashed", "#fce8e6"),
    "saving module": ("box3d", "bold", "#feefc3"),
}


class Drawn:
    """Something with `title`, `svg` (or None) and `text`."""

    def _repr_html_(self):
        svg, text = self.svg, html.escape(self.text)
        if svg is None:
            return f"<pre>{text}</pre>"
        return (
            f"{picture_style()}"
            '<div class="picture" style="max-height:640px;overflow:auto;border:1px solid #8885">'
            f"{svg}</div>"
            f"<details><summary>{html.escape(self.title)}, as text</summary><pre>{text}"
            "</pre></details>"
        )

    def __repr__(self):
        return self.text


@dataclass(repr=False)
class Picture(Drawn):
    """A drawn graph: nodes {id: (label, kind)}, edges [(from, to) or (from, to, label)]; rendered
    when asked for."""

    title: str
    nodes: dict
    edges: list

    @property
    def text(self) -> str:
        incoming: dict[str, list[str]] = {}
        for a, b, *label in self.edges:
            incoming.setdefault(b, []).append(f"{a} ({label[0]})" if label else a)
        about = lambda name, label: ", ".join(
            line.rstrip(",") for line in label.splitlines() if line != name
        )  # noqa: E731
        return "\n".join(
            [self.title]
            + [
                f"  {name}: {about(name, label)}".removesuffix(": ")
                + (f"  <- {', '.join(incoming[name])}" if name in incoming else "")
                for name, (label, _) in self.nodes.items()
            ]
        )

    def _graph(self):
        import pygraphviz

        graph = pygraphviz.AGraph(
            directed=True, name=self.title, rankdir="TB", nodesep=0.15, ranksep=0.25
        )
        graph.node_attr.update(fontname="Helvetica", fontsize=10, height=0.25)
        graph.edge_attr.update(arrowsize=0.6, color="#555555")
        for name, (label, kind) in self.nodes.items():
            shape, line, fill = STYLES[kind]
            graph.add_node(
                name,
                id=name,
                label=label,
                shape=shape,
                style=f"filled,{line}",
                fillcolor=fill,
                peripheries=1 + (kind == "saved"),
                margin="0.12,0.09" if shape == "box3d" else "0.08,0.04",
                tooltip=label.replace("\n", " "),
            )
        for a, b, *label in self.edges:
            graph.add_edge(
                a,
                b,
                **({"label": label[0], "fontname": "Helvetica", "fontsize": 9} if label else {}),
            )
        return graph

    @property
    def svg(self) -> str | None:
        """SVG text, or None where no Graphviz is to be had."""
        try:
            data = self._graph().draw(format="svg", prog="dot").decode()
        except (ImportError, OSError):
            return None
        start = data.index("<svg")
        return data[start:].replace(
            "<svg", f'<svg role="img" aria-label="{html.escape(self.title)}"', 1
        )

    def png(self, path: str) -> None:
        self._graph().draw(path, format="png", prog="dot")


def _value(node):
    return node.meta.get("val", node.meta.get("example_value"))


def shape_text(value: Any) -> str:
    """f32[3, 4] for a tensor, else nothing."""
    if hasattr(value, "dtype") and hasattr(value, "shape"):
        name = str(value.dtype).removeprefix("torch.")
        short = {
            "float32": "f32",
            "float64": "f64",
            "bfloat16": "bf16",
            "float16": "f16",
            "int64": "i64",
            "int32": "i32",
        }
        return f"{short.get(name, name)}{list(value.shape)}"
    return ""


def target_text(node: Any) -> str:
    target = node.target
    if isinstance(target, str):
        return target
    return str(target) if hasattr(target, "_schema") else getattr(target, "__name__", str(target))


def draw_graph(
    graph: Any,
    title: str = "FX graph",
    by_module: bool | None = None,
    depth: int = 3,
    marks: Mapping[Any, tuple[str, str]] | None = None,
    saved: Collection[Any] = (),
) -> Picture:
    """A Picture of an fx.Graph; by_module: None (only if it is large) | True | False.  depth: parts
    of a module path.

    marks: {node name: (kind, note)}, to draw some nodes as another kind with one more line of text.
    saved: SavedActivations, counted by module.
    """
    marks = marks or {}
    graph = getattr(graph, "graph", graph)
    calls = [n for n in graph.nodes if n.op not in ("get_attr",)]
    if by_module or by_module is None and len(calls) > LARGE:
        return _by_module(
            graph, title, depth, marks, {s.name: s.bytes for s in saved if not s.is_input}
        )
    nodes, edges = {}, []
    for node in graph.nodes:
        kind = node.op if node.op in STYLES else "call"
        target = target_text(node)
        plain = kind != "call" or re.sub(r"_\d+$", "", node.name) == target
        head = node.name if plain else f"{node.name}\n{target}"
        kind, note = marks.get(node.name, (kind, ""))
        nodes[node.name] = (f"{head}\n{shape_text(_value(node))}\n{note}".rstrip(), kind)
        edges += [(source.name, node.name) for source in node.all_input_nodes]
    return Picture(title, nodes, edges)


def _by_module(graph, title, depth, marks, saved):
    group, counts, kept = {}, {}, {}
    for node in graph.nodes:
        if node.op == "get_attr":
            continue
        path = ".".join(str(node.meta.get("module_path", "")).split(".")[:depth])
        backward = " backward" if marks.get(node.name, ("",))[0] == "backward" else ""
        group[node] = (
            (PRIMALS if str(node.target).startswith("primal") else node.name)
            if node.op in ("placeholder", "output")
            else (path or "(top level)") + backward
        )
        counts[group[node]] = counts.get(group[node], 0) + 1
        kept[group[node]] = kept.get(group[node], 0) + saved.get(node.name, 0)
    nodes, edges = {}, []
    for node, name in group.items():
        if name == PRIMALS:
            nodes[name] = (f"{name}\n{counts[name]} tensors", node.op)
        elif node.op in ("placeholder", "output"):
            nodes[name] = (f"{name}\n{shape_text(_value(node))}".rstrip(), node.op)
        else:
            note = f"\nsaved: {kept[name]:,} bytes" if kept[name] else ""
            nodes[name] = (
                f"{name}\n{many(counts[name], 'operation')}{note}",
                "backward module"
                if name.endswith(" backward")
                else "saving module"
                if note
                else "module",
            )
        for source in node.all_input_nodes:
            if source in group and group[source] != name and (group[source], name) not in edges:
                edges.append((group[source], name))
    return Picture(f"{title}, by module ({many(len(group), 'node')})", nodes, edges)


def draw_joint(record: Any, by_module: bool | None = None) -> Picture:
    """The joint graph of training: forward plain, backward dashed and red, what is saved between
    them yellow with a double line, with its bytes."""
    graph = record.joint_graph.graph
    marks: dict[str, tuple[str, str]] = {}
    for node in graph.nodes:  # backward: what depends on a gradient that comes in
        if (
            node.op == "output"
            or node.op == "placeholder"
            and not str(node.target).startswith("tangent")
        ):
            continue
        if node.op == "placeholder" or any(
            marks.get(s.name, ("",))[0] == "backward" for s in node.all_input_nodes
        ):
            marks[node.name] = ("backward", "")
    marks |= {
        s.name: (
            "saved",
            "kept: an input" if s.is_input else f"saved: {s.bytes:,} bytes ({s.reason})",
        )
        for s in record.saved
    }
    total = sum(s.bytes for s in record.saved if not s.is_input)
    return draw_graph(
        graph,
        f"joint graph: forward, backward, and the cut ({total:,} bytes saved)",
        by_module,
        marks=marks,
        saved=record.saved,
    )


class GuardTree:
    """What the guards of a frame look at: `parts`, name -> what it adds to the name above it, in
    `parent`; `kinds`, name -> what is assumed about it; `around`: assumptions about nothing that
    has a name."""

    def __init__(self, guards: Iterable[Any]) -> None:
        self.parts: dict[str, str] = {}
        self.parent: dict[str, str] = {}
        self.depth: dict[str, int] = {}
        self.kinds: dict[str, list[str]] = {}
        self.around: list[str] = []
        for guard in guards:
            sources = guard.source if isinstance(guard.source, tuple) else (guard.source,)
            for source in sources:
                if source is None:
                    self.around.append(guard.kind)
                else:
                    name = self.add_path(source)
                    self.kinds.setdefault(name, []).append(guard.kind)

    def add_path(self, source: Any) -> str:
        """The source's own name; it and those above it are in the tree then."""
        path = [source]
        while path[-1].base is not None:
            path.append(path[-1].base)
        above = ""
        for name in (node.name() for node in reversed(path)):
            if name not in self.parts:
                self.parts[name] = name[len(above) :] if above and name.startswith(above) else name
                self.depth[name] = 0
                if above:
                    self.parent[name] = above
                    self.depth[name] = self.depth[above] + 1
            above = name
        return above

    def limit(self) -> int:
        """The depth at which the drawing ends: the largest that leaves it small enough."""
        depths = range(max(self.depth.values(), default=0), 0, -1)
        drawn = (d for d in depths if sum(k <= d for k in self.depth.values()) <= LARGE)
        return next(drawn, 1)

    def hidden_below(self, limit: int) -> Counter[str]:
        """How many guards look at what is deeper, under the name that is still drawn."""
        below: Counter[str] = Counter()
        for name in self.parts:
            shown = name
            while self.depth[shown] > limit:
                shown = self.parent[shown]
            if shown != name:
                below[shown] += len(self.kinds.get(name, ()))
        return below


def draw_guards(record: Any) -> Picture:
    """The tree of what was looked at, from the roots (parameters, objects held by reference) to
    what was assumed about each value."""
    tree = GuardTree(record.guards)
    limit = tree.limit()
    below = tree.hidden_below(limit)

    def listed(kinds: Iterable[str]) -> str:
        return textwrap.fill(", ".join(dict.fromkeys(kinds)), 24)

    nodes = {}
    for name, part in tree.parts.items():
        if tree.depth[name] <= limit:
            text = f"{part}\n{listed(tree.kinds.get(name, ()))}".rstrip()
            if below[name]:
                text += f"\n(+ {below[name]} guards below)"
            nodes[name] = text, "call" if name in tree.parent else "module"
    if tree.around:
        nodes["(surroundings)"] = "surroundings\n" + listed(tree.around), "get_attr"
    return Picture(
        f"{len(record.guards)} guards of {record.function}, by what they look at",
        nodes,
        [(above, name) for name, above in tree.parent.items() if name in nodes],
    )


@dataclass(repr=False)
class Timeline(Drawn):
    """Live bytes over a wrapper's steps: at each step the buffers that live are stacked, the oldest
    at the bottom.  blocks: (buffer, offset in the arena or None for a tensor of its own, bytes,
    first step, last step).

    placed: (buffer, bytes below it, bytes, first step, last step, is it a tensor of its own?), with
      another row where what lies below changes.
    top: the most bytes that live at one step.  arena: the bytes of the arena.
    """

    title: str
    steps: list
    blocks: list

    def __post_init__(self) -> None:
        self.arena = max((o + n for _, o, n, _, _ in self.blocks if o is not None), default=0)
        rows: dict[str, list] = {block[0]: [] for block in self.blocks}
        heights = [0]
        for step in range(len(self.steps)):
            below = 0
            for name, offset, size, first, last in self.blocks:
                if first <= step <= last:
                    if rows[name] and rows[name][-1][1] == below:
                        rows[name][-1][4] = step
                    else:
                        rows[name].append([name, below, size, step, step, offset is None])
                    below += size
            heights.append(below)
        self.placed = [tuple(row) for parts in rows.values() for row in parts]
        self.top = max(heights)

    @property
    def text(self) -> str:
        lines = [self.title]
        for name, offset, size, first, last in self.blocks:
            place = f"a tensor of {size:,} bytes"
            if offset is not None:
                place = f"bytes {offset:,} to {offset + size:,} of the arena"
            steps = f"steps {first} to {last} ({self.steps[first]} to {self.steps[last]})"
            lines.append(f"  {name}: {place}, {steps}")
        return "\n".join(lines)

    @property
    def svg(self) -> str | None:
        """Steps from left to right, live bytes upwards; tensors of their own are dashed."""
        labels = 120 if len(self.steps) <= 30 else 20
        column = max(5, min(60, 620 / max(1, len(self.steps))))
        width = 92 + column * len(self.steps) + (70 if labels > 20 else 10)
        size = f"0 0 {width:.0f} {300 + labels + 24}"
        parts = [
            f'<svg role="img" aria-label="{html.escape(self.title)}" width="{width:.0f}" '
            f'height="{300 + labels + 24}" viewBox="{size}" {SVG} font-size="11">'
        ]
        names = dict.fromkeys(row[0] for row in self.placed)
        for name in names:
            parts.append(self._block([row for row in self.placed if row[0] == name], column))
        parts += [self._axis(value, column) for value in {0, self.top}]
        for number, step in enumerate(self.steps if labels > 20 else ()):
            x, y = 92 + (number + 0.5) * column + 3, 318
            parts.append(
                f'<text x="{x:.1f}" y="{y}" transform="rotate(60 {x:.1f} {y})">'
                f"{html.escape(step[:26])}</text>"
            )
        if labels == 20:
            parts.append(f'<text x="92" y="326">{len(self.steps)} steps of the wrapper</text>')
        return "".join(parts) + "</svg>"

    def _block(self, rows: list, column: float) -> str:
        """One buffer: a box for each stretch of steps in which the same lies below it."""
        name, _, size, *_ = rows[0]
        said = f"{name}: {size:,} bytes, steps {rows[0][3]} to {rows[-1][4]}"
        parts = [f'<g id="memory-{name}"><title>{said}</title>']
        for _, below, _, first, last, is_own in rows:
            x, w = 92 + first * column, (last - first + 1) * column - 1
            h = max(1.0, size * 300 / max(1, self.top))
            y = 312 - below * 300 / max(1, self.top) - h
            look = 'fill="#ffffff" stroke-dasharray="3,2"' if is_own else 'fill="#d5dcea"'
            parts.append(
                f'<rect x="{x:.1f}" y="{y:.1f}" width="{w:.1f}" height="{h:.1f}" {look} '
                'stroke="#333"/>'
            )
            if h >= 12 and w >= 7 * len(name):
                parts.append(f'<text x="{x + 3:.1f}" y="{y + h / 2 + 3:.1f}">{name}</text>')
        return "".join(parts) + "</g>"

    def _axis(self, value: int, column: float) -> str:
        unit, factor = ("MB", 1e6) if self.top >= 1e6 else ("kB", 1e3)
        y, right = 312 - value * 300 / max(1, self.top), 92 + column * len(self.steps)
        return (
            f'<line x1="88" x2="{right:.0f}" y1="{y:.1f}" y2="{y:.1f}" stroke="#666" '
            f'stroke-width="0.6"/><text x="86" y="{y + 3:.1f}" text-anchor="end">'
            f"{value / factor:.1f} {unit}</text>"
        )


def draw_memory(record: Any) -> "Timeline":
    """The bytes that live at each step of the wrapper, of what a call of it makes."""
    timeline = Timeline("", record.memory_steps, record.memory_lives)
    own = sum(n for _, o, n, _, _ in record.memory_lives if o is None)
    timeline.title = (
        f"memory: at most {record.peak_live_bytes:,} bytes live at one step, of "
        f"{many(len(record.memory_lives), 'buffer')}; arena {timeline.arena:,} bytes, "
        f"tensors of their own {own:,} bytes"
    )
    return timeline


def draw_compilations(
    counts: Mapping[str, Sequence[int]], sizes: Sequence[int], path: str | None = None
) -> Any:
    """A picture of `compilations` over a sweep: counts = {"static": [...], "automatic": [...]}.
    The matplotlib figure; also saved to `path`."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 3), layout="constrained")
    for (label, values), style in zip(counts.items(), ("-", "--", ":", "-.") * len(counts)):
        axes.step(
            sizes,
            values,
            style,
            where="post",
            label=f"{label}: {values[-1]}",
            marker="o",
            markersize=3,
        )
    axes.set(xlabel="size", ylabel="compilations so far", ylim=(0, None))
    axes.legend()
    if path is not None:
        figure.savefig(path)
    return figure
