"""Where the boxes of a graph lie on the explorer's page.

In:   a stage of the document that `Explanation.to_json()` gives (explain/schema.json).
Out:  pictures of at most `MOST_BOXES` boxes, in whole units: [x, y, width, height] of each box, and
      each arrow as the points of a Bézier curve.

    >>> pictures = Pictures()
    >>> pictures.of_stage(stage)["transformer.h.0.attn"]
    {"picture": 3, "members": [12, 13, 14, ...]}

Nobody reads a picture of more boxes, and Graphviz takes 20 seconds for 500: a larger stage is a
picture of groups (modules, or runs of operations), each with a picture of its own.  Two groups of
the same structure, like the layers of a transformer, share one picture.
"""

from collections.abc import Iterable, Sequence
from typing import Any

MOST_BOXES = 60
MOST_GROUPS = 30  # arrows between groups are many, and take Graphviz long
IN_A_PART = 30  # operations, where a group is too large and has no groups within it
HEIGHT = 34
WIDTHS = (60, 90, 120, 160, 200)  # few, so that alike groups are the same picture
LETTER = 6.6  # units of width
FEW = 2  # operations that are boxes themselves rather than a group
OTHERS = "other operations"  # those that belong to no module

Edge = tuple[int, int]
Member = int | str  # an index into a stage's nodes, or the name of a view


class Pictures:
    """All pictures of a page, each once: `drawn` is what the page gets."""

    def __init__(self) -> None:
        self.drawn: list[dict[str, Any]] = []
        self.known: dict[Any, int] = {}

    def of_stage(self, stage: dict[str, Any]) -> dict[str, dict[str, Any]]:
        """The views of a stage by name; "" is the whole."""
        nodes = stage["nodes"]
        index = {node["id"]: n for n, node in enumerate(nodes)}
        edges = [
            (index[source], n)
            for n, node in enumerate(nodes)
            for source in node["inputs"]
            if source in index
        ]
        is_ir = stage.get("kind") in ("loop_ir", "fused")  # its groups are kernels, not modules
        groups = ["buffers" if is_ir else node["group"] for node in nodes]
        views = views_of(groups, boxes_of(stage))
        found = {}
        for name, members in views.items():
            widths = [self.width(nodes, member) for member in members]
            arrows = edges_between([inside(member, views) for member in members], edges)
            found[name] = {"picture": self.picture(widths, arrows), "members": members}
        return found

    def width(self, nodes: Sequence[dict[str, Any]], member: Member) -> int:
        """How wide a box must be for its two lines."""
        if isinstance(member, str):
            return fitting(len(member))
        node = nodes[member]
        return fitting(max(len(node["name"]), len(node["op"]) + len(node["shape"]) + 1))

    def picture(self, widths: Sequence[int], edges: Sequence[Edge]) -> int:
        """The number of the picture with these boxes and arrows; laid out if it is new."""
        key = (tuple(widths), tuple(edges))
        if key not in self.known:
            self.known[key] = len(self.drawn)
            self.drawn.append(laid_out(widths, edges))
        return self.known[key]


def fitting(letters: int) -> int:
    """The smallest width that holds a line of so many letters."""
    wanted = letters * LETTER + 10
    return next((width for width in WIDTHS if width >= wanted), WIDTHS[-1])


# --- which boxes a picture has --------------------------------------------------------------------
def boxes_of(stage: dict[str, Any]) -> list[int]:
    """The nodes that become boxes: of the loop IR the buffers, after fusion the kernels."""
    kind, nodes = stage.get("kind"), stage["nodes"]
    if kind == "loop_ir":
        return [n for n, node in enumerate(nodes) if ":" not in node["name"]]
    if kind == "fused":
        return [n for n, node in enumerate(nodes) if node["op"] == "group" or "." in node["op"]]
    return list(range(len(nodes)))


def views_of(groups: Sequence[str], boxes: list[int]) -> dict[str, list[Member]]:
    """The views of a stage whose node n belongs to module `groups[n]` ("": to none): name ->
    what its boxes are.  boxes: the nodes that are drawn."""
    views: dict[str, list[Member]] = {}
    add_view(views, "", boxes, groups)
    return views


def add_view(
    views: dict[str, list[Member]], name: str, members: list[int], groups: Sequence[str]
) -> None:
    """The view `name` of these nodes, and those of the groups within it."""
    if len(members) <= MOST_BOXES:
        views[name] = list(members)
        return
    views[name] = []  # the name is taken
    within = grouped(members, groups)
    if len(within) == 1:
        within = runs(name or next(iter(within)), members)
    boxes: list[Member] = []
    for group, nodes in apart(within).items():
        if len(nodes) <= FEW:
            boxes += nodes
        else:
            title, number = group, 1
            while title in views:  # a module that two stretches of the whole have
                number += 1
                title = f"{group} ({number})"
            boxes.append(title)
            add_view(views, title, nodes, groups)
    views[name] = boxes


def grouped(members: Sequence[int], groups: Sequence[str]) -> dict[str, list[int]]:
    """The nodes by module, as deep within modules as gives at most `MOST_GROUPS` groups."""
    for depth in range(max(groups[n].count(".") for n in members) + 1, 0, -1):
        found: dict[str, list[int]] = {}
        for n in members:
            found.setdefault(".".join(groups[n].split(".")[:depth]) or OTHERS, []).append(n)
        if len(found) <= MOST_GROUPS:
            return found
    return {OTHERS: list(members)}


def apart(within: dict[str, list[int]]) -> dict[str, list[int]]:
    """A module's own nodes run between those of its parts (a residual sum): a box for each stretch,
    so that no arrow has to go back."""
    owner = {n: group for group, nodes in within.items() for n in nodes}
    around = {group for group in within if any(each.startswith(f"{group}.") for each in within)}
    stretches: dict[str, list[list[int]]] = {}
    before = ""
    for n in sorted(owner):
        group = owner[n]
        found = stretches.setdefault(group, [])
        if not found or (before != group and (group in around or group == OTHERS)):
            found.append([])
        found[-1].append(n)
        before = group
    if sum(map(len, stretches.values())) > MOST_BOXES:  # parts of which each has its own
        return within
    parts: dict[str, list[int]] = {}
    for group, found in stretches.items():
        for k, nodes in enumerate(found):
            title = f"{group}, its own" if group in around else group
            parts[f"{group}, part {k + 1}" if len(found) > 1 else title] = nodes
    return parts


def runs(name: str, members: Sequence[int]) -> dict[str, list[int]]:
    """Nodes without modules: parts, of which there are few, in their order."""
    size = max(IN_A_PART, -(-len(members) // MOST_GROUPS))
    starts = range(0, len(members), size)
    return {f"{name}, part {n + 1}": list(members[s : s + size]) for n, s in enumerate(starts)}


def inside(member: Member, views: dict[str, list[Member]]) -> set[int]:
    """The nodes of a box."""
    if isinstance(member, int):
        return {member}
    return set().union(*(inside(each, views) for each in views[member]))


def edges_between(boxes: Sequence[Iterable[int]], edges: Iterable[Edge]) -> list[Edge]:
    """The arrows between boxes, each once, where `edges` go from node to node."""
    box = {node: number for number, nodes in enumerate(boxes) for node in nodes}
    joined = ((box[a], box[b]) for a, b in edges if a in box and b in box)
    return [*dict.fromkeys(edge for edge in joined if edge[0] != edge[1])]


# --- where they lie -------------------------------------------------------------------------------
def laid_out(widths: Sequence[int], edges: Sequence[Edge]) -> dict[str, Any]:
    """{"width", "height", "boxes", "edges"}, by Graphviz, or in plain rows where there is none."""
    if not edges:
        return in_rows(widths, edges)
    try:
        import pygraphviz

        graph = pygraphviz.AGraph(directed=True, nodesep=0.2, ranksep=0.32)
        graph.node_attr.update(shape="box", label="", fixedsize="true", height=HEIGHT / 72)
        for number, width in enumerate(widths):
            graph.add_node(number, width=width / 72)
        graph.edge_attr.update(arrowhead="none")  # the page draws it: the line goes to the box
        graph.add_edges_from(edges)
        return read_plain(graph.draw(format="plain", prog="dot").decode(), len(widths))
    except (ImportError, OSError):
        return in_rows(widths, edges)


def read_plain(text: str, count: int) -> dict[str, Any]:
    """What Graphviz's "plain" format says: inches, from the lower left corner."""
    boxes: list[list[int]] = [[]] * count
    edges, width, height = [], 0.0, 0.0
    for line in text.splitlines():
        kind, *words = line.split()
        if kind == "graph":
            width, height = float(words[1]), float(words[2])
        elif kind == "node":
            x, y, wide, high = map(float, words[1:5])
            left, top = x - wide / 2, height - y - high / 2
            boxes[int(words[0])] = [round(72 * each) for each in (left, top, wide, high)]
        elif kind == "edge":
            points = list(map(float, words[3 : 3 + 2 * int(words[2])]))
            points[1::2] = [height - y for y in points[1::2]]
            edges.append([int(words[0]), int(words[1]), *(round(72 * each) for each in points)])
    return {
        "width": round(72 * width),
        "height": round(72 * height),
        "boxes": boxes,
        "edges": edges,
    }


def in_rows(widths: Sequence[int], edges: Sequence[Edge]) -> dict[str, Any]:
    """Each box one row below the lowest of those that it reads."""
    row = [0] * len(widths)
    for source, target in sorted(edges, key=lambda edge: edge[1]):
        row[target] = max(row[target], row[source] + 1)
    filled = [0] * (max(row, default=0) + 1)
    boxes = []
    for width, number in zip(widths, row):
        boxes.append([filled[number], number * 2 * HEIGHT, width, HEIGHT])
        filled[number] += width + 16
    lines = [[a, b, *curve(boxes[a], boxes[b])] for a, b in edges]
    return {
        "width": max(filled),
        "height": len(filled) * 2 * HEIGHT,
        "boxes": boxes,
        "edges": lines,
    }


def curve(source: Sequence[int], target: Sequence[int]) -> list[int]:
    """From the lower edge of a box to the upper edge of another."""
    x, y = source[0] + source[2] // 2, source[1] + source[3]
    to_x, to_y = target[0] + target[2] // 2, target[1]
    middle = (y + to_y) // 2
    return [x, y, x, middle, to_x, middle, to_x, to_y]
