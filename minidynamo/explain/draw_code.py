"""Pictures of capture: texts side by side whose lines belong together, caches, closures.

In:   functions, code objects and records.  Out: `Columns` or `Picture`, each with `.svg` and
      `.text`.

    >>> draw_bytecode(f)                # source | bytecode | canonical operations
    >>> draw_frames(minidynamo.explain(f)(x))       # source | what captured, or ran, each line
    >>> draw_closure(add)               # functions and the cells they hold

Mirrors what depyf and tlparse show as separate texts.  Bands join lines by outline and shade, so
that no colour is needed.
"""

import html
import inspect
import itertools
import re
import textwrap
import types
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..bytecode import canonical, disassemble
from ..frame.frame_hook import Switched, get_cache
from .draw import Drawn, Picture
from .palette import CODE_FACE
from .views import many

# of a character, of a line, between columns; in points at font size 11
WIDTH, ROW, GAP = 6.65, 17, 46


@dataclass(repr=False)
class Columns(Drawn):
    """Texts side by side.  columns: [(heading, [line, ...])]; links: [(column, first, last, first,
    last of the next column)], lines counted from 0; notes: {(column, line): text}, lines in a
    dashed box with a remark."""

    title: str
    columns: list
    links: list
    notes: dict = field(default_factory=dict)

    @property
    def text(self) -> str:
        parts = [self.title]
        for c, (heading, lines) in enumerate(self.columns):
            parts.append(
                f"{heading}"
                + (f" (-> lines of: {self.columns[c + 1][0]})" if c + 1 < len(self.columns) else "")
            )
            for n, line in enumerate(lines):
                aims = [
                    f"{p + 1}" + (f" to {q + 1}" if q > p else "")
                    for k, a, b, p, q in self.links
                    if k == c and a <= n <= b
                ]
                remarks = [f"({self.notes[c, n]})"] if (c, n) in self.notes else []
                parts.append(
                    f"  {n + 1:2}  {line}"
                    + "    ".join(["", *remarks, *([f"-> {', '.join(aims)}"] if aims else [])])
                )
        return "\n".join(parts)

    @property
    def svg(self) -> str:
        shown = [
            [
                line + (f"   ({self.notes[c, n]})" if (c, n) in self.notes else "")
                for n, line in enumerate(lines)
            ]
            for c, (_, lines) in enumerate(self.columns)
        ]
        widths = [
            max(map(len, [heading, *lines])) * WIDTH + 14
            for (heading, _), lines in zip(self.columns, shown)
        ]
        lefts = [2 + sum(widths[:c]) + GAP * c for c in range(len(shown))]
        height = max(map(len, shown)) * ROW
        pitch = [max(ROW, min(2.5 * ROW, height / max(1, len(lines)))) for lines in shown]
        at = lambda column, line: 26 + pitch[column] * line  # noqa: E731
        low = lambda column, line: 26 + pitch[column] * line + ROW  # noqa: E731
        parts, total = [], lefts[-1] + widths[-1] + 2
        for n, (c, a, b, p, q) in enumerate(self.links):
            fill, line = ("#e1e7f3", "#44546e") if n % 2 == 0 else ("#fafafa", "#888888")
            left, edge = lefts[c], lefts[c + 1]
            right, end = left + widths[c], edge + widths[c + 1]
            across = (left, right, edge, end, end, edge, right, left)
            down = (at(c, a), at(c + 1, p), low(c + 1, q), low(c, b))  # each of two corners
            corners = (f"{x:.1f},{down[k // 2]:.1f}" for k, x in enumerate(across))
            parts.append(
                f'<polygon points="{" ".join(corners)}" fill="{fill}" stroke="{line}" '
                'stroke-width="0.7"/>'
            )
        for c, n in self.notes:
            parts.append(
                f'<rect x="{lefts[c]:.1f}" y="{at(c, n):.1f}" width="{widths[c]:.1f}" height="{ROW}'
                '" fill="none" stroke="#000" stroke-dasharray="4,3"/>'
            )
        for c, lines in enumerate(shown):
            parts.append(
                f'<text x="{lefts[c] + 7:.1f}" y="14" font-weight="bold">'
                f"{html.escape(self.columns[c][0])}</text>"
            )
            parts += [
                f'<text x="{lefts[c] + 7:.1f}" y="{at(c, n) + 12.5:.1f}" xml:space="preserve">'
                f"{html.escape(line)}</text>"
                for n, line in enumerate(lines)
            ]
        bottom = max(low(c, len(lines) - 1) for c, lines in enumerate(shown)) + 4
        return (
            f'<svg role="img" aria-label="{html.escape(self.title)}" width="{total:.0f}" height="'
            f'{bottom:.0f}" viewBox="0 0 {total:.0f} {bottom:.0f}" '
            f'xmlns="http://www.w3.org/2000/svg" font-family="{CODE_FACE}" '
            'font-size="11" style="background:#ffffff">'
            f"{''.join(parts)}</svg>"
        )


def source_lines(code: types.CodeType | None) -> tuple[list[str], int]:
    """(lines of the function's source without their common indentation, number of the first one);
    decorators are left out.  Without a source (`exec`, a prompt): a line for each that
    has code; none of a function that is gone."""
    if code is None:
        return [], 0
    try:
        lines, first = inspect.getsourcelines(code)
    except (OSError, TypeError):
        numbers = sorted({line for _, _, line in code.co_lines() if line})
        first = numbers[0] if numbers else code.co_firstlineno
        last = numbers[-1] if numbers else first
        return [f"(line {number})" for number in range(first, last + 1)], first
    start = next(
        (n for n, line in enumerate(lines) if line.lstrip().startswith(("def ", "async "))), 0
    )
    return textwrap.dedent("".join(lines[start:])).rstrip().splitlines(), first + start


def runs(keys: Iterable[Any]) -> list[tuple[Any, int, int]]:
    """[(key, first index, last index)] of equal neighbours."""
    found = []
    for key, group in itertools.groupby(enumerate(keys), lambda pair: pair[1]):
        numbers = [n for n, _ in group]
        found.append((key, numbers[0], numbers[-1]))
    return found


def numbered(instructions: Sequence[Any], target: Callable[[Any], Any]) -> list[str]:
    """One text per instruction; a jump names target(instruction), the number of the one that it
    goes to."""

    def argument(ins):
        if ins.arg is None:
            return ""
        return repr(ins.arg) if target(ins) is None else f"to {target(ins)}"

    return [f"{n:2} {ins.op} {argument(ins)}".rstrip() for n, ins in enumerate(instructions)]


def draw_bytecode(function: Callable) -> Columns:
    """Source | CPython's instructions | minidynamo's canonical operations."""
    code = function.__code__
    lines, first = source_lines(code)
    body = [
        ins for ins in disassemble(code) if ins.op not in ("RESUME", "COPY_FREE_VARS", "MAKE_CELL")
    ]
    place = {id(ins): n for n, ins in enumerate(body)}
    operations = [op for op in canonical(disassemble(code))[0] if op.op != "MAKE_CELL"]
    line_of = lambda ins: ins.pos[0] - first if ins.pos and ins.pos[0] else 0  # noqa: E731
    native, neutral = runs(map(line_of, body)), runs(line_of(op.instruction) for op in operations)
    links = [(0, line, line, a, b) for line, a, b in native] + [
        (1, a, b, p, q) for (_, a, b), (_, p, q) in zip(native, neutral)
    ]
    jumps = {op.op for op in operations if "JUMP" in op.op or op.op == "FOR_ITER"}
    return Columns(
        f"{function.__name__}: source, bytecode of this Python, canonical operations",
        [
            ("source", lines),
            ("bytecode", numbered(body, lambda ins: place.get(id(ins.arg)))),
            ("canonical", numbered(operations, lambda op: op.arg if op.op in jumps else None)),
        ],
        links,
    )


def draw_cache(function: Any) -> Picture:
    """What the hook does when a frame of `function` (or of a code object) starts: its cache entries
    in order, and what comes after the last."""
    code = getattr(function, "__code__", function)
    name, entries = code.co_name, get_cache(code) or []
    nodes = {
        "frame": (f"a frame of {name} starts", "placeholder"),
        "plain": (f"the original code of {name} runs", "output"),
        "callback": ("ask the callback", "module"),
        "new": ("the answer joins the cache\nand its replacement runs", "call"),
    }
    edges, before = [], ("frame", "hook on")
    for n, entry in enumerate(entries):
        guard, replacement, *_ = entry
        about = getattr(getattr(entry, "record", None), "guards", None)
        nodes[f"guard{n}"] = (
            f"guard {n}: {f'{len(about)} checks' if about else guard.__name__}",
            "get_attr",
        )
        nodes[f"code{n}"] = (
            f"replacement {n}: {replacement.co_name}\n{len(disassemble(replacement))} instructions",
            "call",
        )
        edges += [(before[0], f"guard{n}", before[1]), (f"guard{n}", f"code{n}", "true")]
        before = f"guard{n}", "false"
    edges += [
        (before[0], "callback", before[1]),
        ("callback", "plain", "None"),
        ("callback", "new", "(guard, code)"),
        ("frame", "plain", "hook off"),
    ]
    return Picture(f"a call of {name}: {len(entries)} cache entries", nodes, edges)


def draw_frames(explanation: Any) -> Columns:
    """The user's function | what became of its lines: graphs of frames, and what plain Python ran
    at the breaks."""
    lines, first = source_lines(explanation.frames[0].record.code if explanation.frames else None)
    shown, where = [], []
    for number, frame in enumerate(explanation.frames):
        record = frame.record
        nodes = (
            [
                n
                for n in record.graph.graph.nodes
                if n.op.startswith("call") and n.meta.get("user_stack")
            ]
            if record.graph is not None
            else []
        )
        for line, a, b in runs(n.meta["user_stack"][0][1] for n in nodes):
            shown.append(f"frame {number}: graph of {', '.join(n.name for n in nodes[a : b + 1])}")
            where.append(line)
        for found in record.graph_breaks:
            shown.append(f"after frame {number}: plain Python, {found.reason}")
            where.append(found.stack[0][1])
    links = [
        (0, line - first, line - first, k, k)
        for k, line in enumerate(where)
        if 0 <= line - first < len(lines)
    ]
    return Columns(
        f"{explanation.name}: {len(explanation.frames)} frames",
        [("the function", lines), ("what runs its lines", shown)],
        links,
    )


def draw_resume(function: Callable, resumed: Any) -> Columns:
    """A function's bytecode | that of a resume function of it: a prefix, then the same body
    again."""
    body, code = disassemble(function.__code__), disassemble(resumed.__code__)
    start = len(code) - len(body)  # the body is kept whole
    place = {id(ins): n for n, ins in enumerate(body)}, {id(ins): n for n, ins in enumerate(code)}
    lines = runs(ins.pos[0] if ins.pos else None for ins in body)
    texts = [
        numbered(each, lambda ins, at=where: at.get(id(ins.arg)))  # type: ignore[misc]
        for each, where in zip((body, code), place)
    ]
    return Columns(
        f"{function.__name__} and {resumed.__code__.co_name}",
        [(f"{function.__name__}", texts[0]), ("resume function", texts[1])],
        [(0, a, b, a + start, b + start) for _, a, b in lines],
        {(1, n): "new" for n in range(start)},
    )


def draw_fusion(record: Any) -> Columns:
    """The buffers that lowering made | the kernels that compute them, library calls among them, in
    order."""
    heads = [
        line.partition("    # ")[0] for line in record.loop_ir.splitlines() if line[:1].strip()
    ]
    makers = {buffer: kernel.name for kernel in record.kernels for buffer in kernel.nodes}
    for (
        head
    ) in heads:  # `buf4: float32[8] = aten.mm.default(...)`, or an item of such a result: `buf7[1]`
        name, _, what = head.replace(": ", " = ", 1).partition(" = ")
        call = what.partition(" = ")[2]
        makers.setdefault(
            name, makers.get(call.partition("[")[0]) or f"library: {call.partition('(')[0]}"
        )
    kernels, links = [], []
    for number, (_, group) in enumerate(
        itertools.groupby(enumerate(heads), lambda pair: makers[pair[1].partition(":")[0]])
    ):
        members = [n for n, _ in group]
        kernels.append(makers[heads[members[0]].partition(":")[0]])
        links.append((0, members[0], members[-1], number, number))
    return Columns(
        f"{len(heads)} buffers before fusion, {many(len(record.kernels), 'kernel')} after",
        [
            ("buffers", [head if len(head) < 62 else head[:58] + " ..." for head in heads]),
            ("computed by", kernels),
        ],
        links,
    )


# ---- side effects
class Reader:
    """A stack machine over texts: what an operation leaves on it is Python source."""

    def __init__(self) -> None:
        self.stack: list[str] = []
        self.names: dict[str, str] = {}  # what the temporaries of a replacement hold
        self.found: list[tuple[str, str]] = []

    def pop(self, count: int) -> list[str]:
        """The topmost texts, the lowest of them first."""
        return [self.stack.pop() for _ in range(count)][::-1]

    def write(self, target: str) -> None:
        value = self.stack.pop()
        if target.startswith("."):  # a temporary of ours
            self.names[target] = value
        else:
            self.found.append(("write", f"{target} = {value}"))

    def load_constant(self, value: Any) -> None:
        if isinstance(value, Switched):
            text = "graph"
        elif isinstance(value, slice) and value == slice(None):
            text = ":"
        elif isinstance(value, dict):
            text = "globals()"
        else:
            text = getattr(value, "__name__", None) or repr(value)
        self.stack.append(text)

    def load_name(self, name: str) -> None:
        self.stack.append(self.names.get(name, name))

    def load_attribute(self, name: str) -> None:
        self.stack.append(f"{self.stack.pop()}.{name}")

    def store_attribute(self, name: str) -> None:
        self.write(f"{self.stack.pop()}.{name}")

    def load_item(self, _: Any) -> None:
        target, key = self.pop(2)
        self.stack.append(f"{target}[{key}]")

    def store_item(self, _: Any) -> None:
        target, key = self.pop(2)
        self.write(f"{target}[{key}]")

    def build_list(self, count: int) -> None:
        self.stack.append(f"[{', '.join(self.pop(count))}]")

    def build_tuple(self, count: int) -> None:
        comma = "," if count == 1 else ""
        self.stack.append(f"({', '.join(self.pop(count))}{comma})")

    def call(self, count: int) -> None:
        arguments = ", ".join(self.pop(count))
        called = self.stack.pop()
        if called == "graph":
            self.found.append(("graph", f"results = graph({arguments})"))
            self.stack.append("results")
        else:
            self.stack.append(f"{called}({arguments})")

    def unpack(self, count: int) -> None:
        value = self.stack.pop()
        self.stack += [f"{value}[{n}]" for n in reversed(range(count))]

    def copy(self, depth: int) -> None:
        self.stack.append(self.stack[-depth])

    def swap(self, depth: int) -> None:
        self.stack[-1], self.stack[-depth] = self.stack[-depth], self.stack[-1]

    def drop(self, _: Any) -> None:
        value = self.stack.pop()
        if "(" in value and "__next__" not in value:
            self.found.append(("write", value))

    def nothing(self, _: Any) -> None:
        pass


RULES: dict[str, Callable[[Reader, Any], None]] = {
    "LOAD_CONST": Reader.load_constant,
    **dict.fromkeys(("LOAD_FAST", "LOAD_DEREF", "LOAD_GLOBAL"), Reader.load_name),
    **dict.fromkeys(("STORE_FAST", "STORE_DEREF", "STORE_GLOBAL"), Reader.write),
    **dict.fromkeys(("LOAD_ATTR", "LOAD_METHOD"), Reader.load_attribute),
    "STORE_ATTR": Reader.store_attribute,
    "STORE_SUBSCR": Reader.store_item,
    "BINARY_SUBSCR": Reader.load_item,
    "BUILD_LIST": Reader.build_list,
    "BUILD_TUPLE": Reader.build_tuple,
    "CALL": Reader.call,
    "UNPACK_SEQUENCE": Reader.unpack,
    "COPY": Reader.copy,
    "SWAP": Reader.swap,
    "POP_TOP": Reader.drop,
    "PUSH_NULL": Reader.nothing,
}


def statements(code: types.CodeType) -> list[tuple[str, str]]:
    """The straight-line start of a replacement code as Python text: [("graph" | "write" | "return",
    statement)].  An operation without a rule ends it, with `...` and the operation's name."""
    reader = Reader()
    for op in canonical(disassemble(code))[0]:
        if op.op == "RETURN_VALUE":
            return [*reader.found, ("return", f"return {reader.stack.pop()}")]
        if op.op not in RULES:
            return [*reader.found, ("return", f"... ({op.op})")]
        RULES[op.op](reader, op.arg)
    return reader.found


def draw_replay(record: Any) -> Columns:
    """The user's function | the replacement code as Python: the graph, then the writes that are
    left, then the result."""
    lines, _ = source_lines(record.code)
    texts = [
        re.sub(r"\.__dict__\['(\w+)'\]", r".\1", text)
        for _, text in statements(record.replacement_code)
    ]
    links = []
    for k, text in enumerate(texts):
        if target := re.match(
            r"(?!results\b)([\w.]+(?:\['\w+'\])?).* = ", text
        ):  # the lines that write the same
            writes = re.compile(rf"{re.escape(target[1])}( *[-+*/]?= |\.\w+\()")
            links += [
                (0, n, n, k, k)
                for n, line in enumerate(lines)
                if writes.search(line.replace('"', "'"))
            ]
    return Columns(
        f"{record.function}: the program, and what the replacement code does",
        [("the program", lines), ("the graph, then the writes that are left", texts)],
        links,
    )


# ---- closures
def draw_closure(
    *functions: Callable, title: str = "functions, and the cells that they close over"
) -> Picture:
    """Functions (boxes) and the cells they hold (notes); an arrow goes to what is held.  A cell
    that two functions share stands there once."""
    nodes, edges = {}, []
    names: dict[int, str] = {}

    def name_of(thing, kind):
        if id(thing) not in names:
            names[id(thing)] = f"{kind}{sum(name.startswith(kind) for name in names.values())}"
        return names[id(thing)]

    def visit(function):
        name = name_of(function, "function")
        if name in nodes:
            return name
        nodes[name] = (
            f"{function.__qualname__.replace('.<locals>', '')}("
            f"{', '.join(function.__code__.co_varnames[: function.__code__.co_argcount])})",
            "call",
        )
        for variable, cell in zip(function.__code__.co_freevars, function.__closure__ or ()):
            inner, content = name_of(cell, "cell"), cell.cell_contents
            held = isinstance(content, types.FunctionType)
            nodes.setdefault(
                inner,
                (
                    f"cell {variable}"
                    + ("" if held else f"\n{' '.join(repr(content).split())[:40]}"),
                    "get_attr",
                ),
            )
            edges.append((name, inner))
            if held and (inner, name_of(content, "function")) not in edges:
                edges.append((inner, visit(content)))
        return name

    for function in functions:
        visit(function)
    return Picture(title, nodes, edges)
