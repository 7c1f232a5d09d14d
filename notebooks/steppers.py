"""Pictures that move: what happens step by step, drawn from what the packages really did.

In:   live objects: a cache, a machine, guards, records of fusions, a plan of memory.
Out:  a `Stepper`: in a notebook or page a picture with buttons; in text form a numbered list.

    >>> stepper = fusion_rounds(explanation.main.compiled)
    >>> stepper.steps[1].caption
    'buf1 and buf2: fused (prologue), 32,768 bytes less are read; 164,864 bytes are moved now'

Each step has a caption and panels.  A panel is an SVG as wide as a phone.  On a screen they stand
side by side, on a phone one below the other.
Where no script runs (a stored notebook on a
web site, a printed page) the last step is shown, and all captions stand below it as a list.
Colours follow the reader's theme.  Arrow keys, Home and End move; the buttons are real buttons.
"""

import hashlib
import html
import inspect
import re
import textwrap
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from drawings import Drawing, arrow, box, curve, line, style, text

WIDTH, ROW, LETTERS, MOST_ROWS = 350, 18, 50, 16
BOX = ".stepper"
STYLE = "".join(
    [
        style(BOX),
        f"{BOX} .st-panels{{display:flex;flex-wrap:wrap;gap:8px;align-items:flex-start}}",
        f"{BOX} .st-panels[hidden]{{display:none}}",
        f"{BOX} svg{{flex:1 1 300px;max-width:430px;min-width:0;width:100%;height:auto}}",
        f"{BOX} .st-bar{{display:flex;gap:6px;align-items:center;margin-bottom:6px}}",
        f"{BOX} .st-bar[hidden]{{display:none}}",
        f"{BOX} button{{min-width:44px;min-height:32px;border:1px solid var(--st-line);",
        "border-radius:4px;background:var(--st-part);color:var(--st-ink);cursor:pointer}",
        f"{BOX} input{{flex:1;min-width:60px}}",
        f"{BOX} .st-said{{margin:4px 0 8px;min-height:2.8em;color:var(--st-ink)}}",
    ]
)
SCRIPT = """(() => {
const figure = document.getElementById("ID");
if (!figure || figure.dataset.live) return;
figure.dataset.live = 1;
const steps = [...figure.querySelectorAll(".st-panels")], said = figure.querySelector(".st-said");
const range = figure.querySelector("input"), [back, on] = figure.querySelectorAll("button");
const last = steps.length - 1;
let now = 0;
const go = n => {
  now = Math.max(0, Math.min(last, n));
  steps.forEach((step, i) => { step.hidden = i !== now; });
  range.value = now;
  said.textContent = `${now + 1} of ${last + 1}. ${steps[now].dataset.said}`;
  back.disabled = now === 0;
  on.disabled = now === last;
};
back.onclick = () => go(now - 1);
on.onclick = () => go(now + 1);
range.oninput = () => go(+range.value);
figure.onkeydown = event => {
  const to = {ArrowLeft: now - 1, ArrowRight: now + 1, Home: 0, End: last}[event.key];
  if (event.target !== range && to !== undefined) { event.preventDefault(); go(to); }
};
figure.querySelector(".st-bar").hidden = false;
go(0);
})()"""


@dataclass
class Panel:
    """One picture of a step: SVG elements in a box WIDTH wide."""

    heading: str
    body: str
    height: float

    def svg(self, said: str, height: float) -> str:
        tall = height + 24
        return (
            f'<svg role="img" aria-label="{html.escape(f"{self.heading}. {said}")}" '
            f'viewBox="0 0 {WIDTH} {tall:.0f}" width="{WIDTH}" height="{tall:.0f}">'
            f"{text(4, 13, self.heading, 'st-h')}"
            f'<g transform="translate(0 22)">{self.body}</g></svg>'
        )


@dataclass
class Step:
    caption: str
    panels: list[Panel]


@dataclass(repr=False)
class Stepper:
    """A title and steps; shows itself."""

    title: str
    steps: list[Step]

    def __repr__(self) -> str:
        numbered = [f"  {n}. {step.caption}" for n, step in enumerate(self.steps, 1)]
        return "\n".join([self.title, *numbered])

    def _repr_html_(self) -> str:
        name = "stepper-" + hashlib.sha256(repr(self).encode()).hexdigest()[:10]
        last, said = len(self.steps) - 1, html.escape(self.title)
        tall: dict[int, float] = {}  # the same place is as high in each step: nothing jumps
        for step in self.steps:
            for k, panel in enumerate(step.panels):
                tall[k] = max(tall.get(k, 0), panel.height)
        shown = "".join(
            f'<div class="st-panels" data-said="{html.escape(step.caption)}"'
            f"{'' if n == last else ' hidden'}>"
            + "".join(p.svg(step.caption, tall[k]) for k, p in enumerate(step.panels))
            + "</div>"
            for n, step in enumerate(self.steps)
        )
        captions = "".join(f"<li>{html.escape(step.caption)}</li>" for step in self.steps)
        return (
            f'<style>{STYLE}</style><figure class="stepper" id="{name}" role="group" '
            f'aria-label="{said}"><p class="st-title">{said}</p>'
            '<div class="st-bar" hidden><button type="button" aria-label="one step back">&#9664;'
            '</button><button type="button" aria-label="one step on">&#9654;</button>'
            f'<input type="range" min="0" max="{last}" value="{last}" aria-label="step"/></div>'
            f'<p class="st-said" aria-live="polite">{html.escape(self.steps[-1].caption)}</p>'
            f"{shown}<details><summary>all {len(self.steps)} steps as text</summary>"
            f"<ol>{captions}</ol></details></figure><script>{SCRIPT.replace('ID', name)}</script>"
        )


# ---- panels
def cut(words: Any, letters: int = LETTERS) -> str:
    row = " ".join(str(words).split("\n"))
    return row if len(row) <= letters else row[: letters - 1] + "…"


def lines(
    heading: str, rows: Sequence[Any], looks: dict[int, str] | None = None, now: int | None = None
) -> Panel:
    """Lines of text; looks: {row: "st-good"...}; of many rows those around `now` are shown."""
    looks = dict(looks or {})
    if now is not None:
        looks.setdefault(now, "st-now")
    first = 0
    if len(rows) > MOST_ROWS:
        middle = now if now is not None else max(looks, default=0)
        first = max(0, min(middle - MOST_ROWS // 2, len(rows) - MOST_ROWS))
    parts = []
    for place, number in enumerate(range(first, min(len(rows), first + MOST_ROWS))):
        if number in looks:
            look = looks[number]
            parts.append(box(0.5, place * ROW + 0.5, WIDTH - 1, ROW - 1, look))
        parts.append(text(5, place * ROW + 13, cut(rows[number])))
    hidden = len(rows) - min(len(rows), MOST_ROWS)
    count = min(len(rows), MOST_ROWS)
    if hidden:
        parts.append(text(5, count * ROW + 13, f"({hidden} more)", "st-faint"))
        count += 1
    if not rows:
        parts.append(text(5, 13, "(nothing yet)", "st-faint"))
    return Panel(heading, "".join(parts), max(count, 1) * ROW)


def gates(heading: str, rows: Sequence[str], looks: dict[int, str]) -> Panel:
    """Tests that a call passes from the top to the bottom: a tick, a cross, or not asked yet."""
    last = max(looks, default=0)
    first = max(0, min(last - MOST_ROWS // 2, len(rows) - MOST_ROWS))
    shown, tall, parts = rows[first : first + MOST_ROWS], ROW + 4, []
    for place, row in enumerate(shown):
        look, y = looks.get(first + place, "st-paper"), place * tall
        if place:
            was_passed = looks.get(first + place - 1) == "st-good"
            parts.append(line(12, y - 6, 12, y + 2, "st-live" if was_passed else "st-wire"))
        parts.append(f'<circle cx="12" cy="{y + 9}" r="8" class="{look} st-box"/>')
        mark = {"st-good": "✓", "st-bad": "✗"}.get(look, "")
        parts.append(text(12, y + 13, mark, "", "middle"))
        parts.append(box(28, y, WIDTH - 30, ROW, look, 4))
        parts.append(text(34, y + 13, cut(row, 46)))
    if len(rows) > len(shown):
        parts.append(
            text(34, len(shown) * tall + 13, f"({len(rows) - len(shown)} more)", "st-faint")
        )
    return Panel(heading, "".join(parts), (min(len(rows), MOST_ROWS + 1)) * tall)


def stack(heading: str, values: Sequence[Any], room: int) -> Panel:
    """Boxes on top of each other; the last value is the top one."""
    parts = []
    for place, value in enumerate(values):
        y = (room - 1 - place) * (ROW + 4)
        parts.append(box(20, y, WIDTH - 40, ROW + 1, "st-part"))
        parts.append(text(28, y + 14, cut(value, 42)))
    floor = room * (ROW + 4)
    parts.append(f'<line x1="10" x2="{WIDTH - 10}" y1="{floor}" y2="{floor}" class="st-box"/>')
    return Panel(heading, "".join(parts), floor + 4)


def column(
    heading: str,
    names: Sequence[str],
    edges: Iterable[tuple[int, int]],
    looks: dict[int, str] | None = None,
    live: Iterable[tuple[int, int]] = (),
) -> Panel:
    """A graph whose nodes are below each other; an edge is an arc at the left."""
    parts, looks, left, live = [], looks or {}, 62, set(live)
    for start, end in edges:
        if end < len(names):
            out = left - 8 - 9 * min(end - start, 5)
            y, to = start * (ROW + 4) + 10, end * (ROW + 4) + 10
            look = "st-live" if (start, end) in live else "st-wire"
            parts.append(f'<path d="M{left},{y}C{out},{y} {out},{to} {left},{to}" class="{look}"/>')
    for n, name in enumerate(names):
        y = n * (ROW + 4)
        parts.append(box(left, y, WIDTH - left - 2, ROW + 1, looks.get(n, "st-part"), 4))
        parts.append(text(left + 6, y + 13, cut(name, 42)))
    if not names:
        parts.append(text(5, 13, "(nothing yet)", "st-faint"))
    return Panel(heading, "".join(parts), max(len(names), 1) * (ROW + 4) + 2)


# ---- 03: a call walks through the hook
def call_walk(function: Callable, hooked: Callable, calls: Iterable[tuple]) -> Stepper:
    """Each call for real.  Before it each guard in the cache is asked about the arguments; behind
    it the cache is read again, which tells whether the callback was asked."""
    from minidynamo.frame.frame_hook import get_cache

    code, steps = function.__code__, []
    asked = {True: "holds", False: "is false", None: "was not asked"}
    for args in calls:
        entries = list(get_cache(code) or [])
        verdicts: list[bool | None] = []
        for guard, *_ in entries:
            verdicts.append(None if True in verdicts else bool(guard(function, *args)))
        written = f"{code.co_name}({', '.join(map(repr, args))})"
        before = [entry[1].co_name for entry in entries]
        start = f"{written}: the frame is there, its arguments are bound, nothing has run."
        steps.append(Step(start, [_way(written, before, [])]))
        for n, verdict in enumerate(verdicts):
            if verdict is None:
                break
            said = f"{written}: guard {n} {asked[verdict]}."
            steps.append(Step(said, [_way(written, before, verdicts[: n + 1])]))
        result = hooked(*args)
        now = list(get_cache(code) or [])
        after = [entry[1].co_name for entry in now]
        if True in verdicts:
            ran = entries[verdicts.index(True)][1].co_name
            said = f"{written}: the code of {ran} runs in this frame. The result: {result!r}."
            picture = _way(written, after, verdicts, f"{ran} -> {result!r}")
            assert len(now) == len(entries)
        elif len(now) > len(entries):
            ran = now[-1][1].co_name
            said = (
                f"{written}: no guard holds, so the callback is asked. It gives a new entry, and "
                f"the code of {ran} runs. The result: {result!r}."
            )
            picture = _way(written, after, verdicts, f"{ran} -> {result!r}", is_new=True)
        else:
            ran = code.co_name
            said = f"{written}: the callback says nothing. The original runs: {result!r}."
            picture = _way(written, after, verdicts, f"{ran} -> {result!r}")
        steps.append(Step(said, [picture]))
    return Stepper(f"calls of {code.co_name}: hook, cache, guards", steps)


def _way(
    call: str, codes: Sequence[str], verdicts: Sequence[Any], ran: str = "", is_new: bool = False
) -> Panel:
    """The way of a call: down along the guards of the cache, and right where one holds."""
    parts, tall = [box(10, 0, 160, 26, "st-now", 4), text(18, 17, cut(call, 21))], 44
    looks = {True: "st-good", False: "st-bad"}
    holds = True in verdicts
    for n, code in enumerate(codes):
        y = 44 + n * tall
        fresh = is_new and n + 1 == len(codes)
        verdict = verdicts[n] if n < len(verdicts) else None
        was_asked = verdict is not None
        look = looks[bool(verdict)] if was_asked else "st-warm" if fresh else "st-paper"
        parts.append(arrow(90, y - 18, 90, y, "st-live" if was_asked else "st-wire"))
        parts.append(box(10, y, 160, 26, look, 13))
        parts.append(text(90, y + 17, f"guard {n}?", "", "middle"))
        parts.append(arrow(170, y + 13, 214, y + 13, "st-live" if verdict else "st-wire"))
        parts.append(text(176, y + 9, "yes", "st-faint"))
        runs = ran and (verdict or fresh)
        parts.append(box(214, y, 130, 26, "st-good" if runs else "st-part", 4))
        parts.append(text(222, y + 17, cut(ran if runs else code, 17)))
    y = 44 + len(codes) * tall
    to_end = bool(ran) and not holds
    parts.append(arrow(90, y - 18, 90, y, "st-live" if to_end else "st-wire"))
    parts.append(box(10, y, 160, 26, "st-warm" if to_end else "st-paper", 13))
    parts.append(text(90, y + 17, "ask the callback", "", "middle"))
    original = to_end and not is_new
    parts.append(arrow(170, y + 13, 214, y + 13, "st-live" if original else "st-wire"))
    parts.append(text(172, y + 9, "None", "st-faint"))
    parts.append(box(214, y, 130, 26, "st-good" if original else "st-part", 4))
    parts.append(text(222, y + 17, cut(ran if original else "the original", 17)))
    return Panel("the call, the cache, what runs", "".join(parts), y + 30)


# ---- 04: instruction, stack, graph
class _Watching(list):
    """The trace of a machine, which also notes how far the graph has grown."""

    def __init__(self, machine: Any) -> None:
        super().__init__()
        self.machine = machine
        self.nodes: list[list[str]] = []

    def append(self, row: Any) -> None:
        super().append(row)
        self.nodes.append([_node_text(node) for node in self.machine.graph.nodes])


def _node_text(node: Any) -> str:
    if node.op == "placeholder":
        return f"{node.name}: an input"
    if node.op == "output":
        return f"return {node.args[0]}"
    called = getattr(node.target, "__name__", node.target)
    return f"{node.name} = {called}({', '.join(map(str, node.args))})"


def machine_run(machine: Any, name: str = "a program") -> Stepper:
    """The run of a `Machine` of chapter 04: what is executed, the stack, the graph that grows."""
    machine.trace = watching = _Watching(machine)
    machine.run()
    graph = [_node_text(node) for node in machine.graph.nodes]
    order = {node: n for n, node in enumerate(machine.graph.nodes)}
    edges = [(order[used], n) for node, n in order.items() for used in node.all_input_nodes]
    instructions = [instruction for instruction, _ in watching]
    room = max([len(values) for _, values in watching] + [1])
    steps = []
    for n, (instruction, before) in enumerate(watching):
        is_last = n + 1 == len(watching)
        after = before if is_last else watching[n + 1][1]
        nodes = graph if is_last else watching.nodes[n + 1]
        grown = len(nodes) - len(watching.nodes[n])
        values = "1 value" if len(before) == 1 else f"{len(before)} values"
        said = f"{instruction}: the stack had {values}, now {len(after)}"
        said += "; the graph has one more node." if grown else "; the graph is as it was."
        new = {k: "st-now" for k in range(len(watching.nodes[n]), len(nodes))}
        shown = [str(value) for value in after]
        panels = [
            lines("instructions", instructions[: n + 1], now=n),
            stack("stack", shown, room),
            column("graph", nodes, edges, new),
        ]
        steps.append(Step(said, panels))
    return Stepper(f"{name}, evaluated symbolically: {len(steps)} instructions", steps)


# ---- 05: guards under a changed input
def guard_walk(record: Any, calls: dict[str, tuple]) -> Stepper:
    """The guards of an entry, a row for each thing that is guarded, asked for each of `calls`."""
    # as the guard function has them: the arguments first, then torch's state, then what lies below
    guards = sorted(record.guard_function.guards, key=_rank)
    subjects: dict[str, list] = {}
    for guard in guards:
        subjects.setdefault(_subject(guard), []).append(guard)
    rows = [f"{subject}: {_kinds(found)}" for subject, found in subjects.items()]
    place = {id(guard): n for n, (_, found) in enumerate(subjects.items()) for guard in found}
    steps = []
    for label, args in calls.items():
        failed = record.guard_function.first_failure(None, *args)
        end = len(rows) if failed is None else place[id(failed[0])]
        tree = gates("what is guarded", rows, {})
        steps.append(Step(f"{label}: nothing was asked yet.", [tree]))
        for n in range(end):
            looks = {k: "st-good" for k in range(n + 1)}
            said = f"{label}: all checks on {list(subjects)[n]} hold."
            checks = [guard.code for guard in list(subjects.values())[n]]
            shown = gates("what is guarded", rows, looks)
            steps.append(Step(said, [shown, lines("its checks", checks)]))
        if failed is None:
            said, looks = (
                f"{label}: every guard holds, the entry runs.",
                dict.fromkeys(range(len(rows)), "st-good"),
            )
            steps.append(Step(said, [gates("what is guarded", rows, looks)]))
            continue
        looks = {k: "st-good" for k in range(end)} | {end: "st-bad"}
        said = f"{label}: {failed[1]}. The rest is not asked, and this entry does not run."
        shown = gates("what is guarded", rows, looks)
        steps.append(Step(said, [shown, lines("the check", [failed[0].code], now=0)]))
    return Stepper(f"{record.function}: its guards, asked one after the other", steps)


def _rank(guard: Any) -> int:
    if guard.source is None:
        return 1
    return 0 if _subject(guard).isidentifier() and not _subject(guard).startswith("P_") else 2


def _subject(guard: Any) -> str:
    if guard.source is None:
        return "the state of torch"
    if isinstance(guard.source, tuple):
        return " and ".join(source.name() for source in guard.source)
    return guard.source.name()


def _kinds(guards: list) -> str:
    kinds = list(dict.fromkeys(guard.kind for guard in guards))
    return ", ".join(kinds[:3]) + (f", {len(kinds) - 3} more" if len(kinds) > 3 else "")


# ---- 06: break and resume
@dataclass
class _Frame:
    """A frame of a broken function: its name, what it takes, and what ran in it so far."""

    title: str
    takes: str
    ran: list[tuple[str, str]] = field(default_factory=list)  # (look, words)


def breaks_walk(explanation: Any) -> Stepper:
    """The lines of a function that breaks, in the order in which they ran, and what ran them."""
    from minidynamo.explain.draw_code import draw_frames

    picture = draw_frames(explanation)
    (_, source), (_, shown) = picture.columns
    lines_of = {k: row for _, row, _, k, _ in picture.links}
    records = [frame.record for frame in explanation.frames]
    frames = [
        _Frame(
            f"frame {n}: {record.code.co_name}",
            ", ".join(record.code.co_varnames[: record.code.co_argcount]),
        )
        for n, record in enumerate(records)
    ]
    steps, looks = [], {}
    for k, words in enumerate(shown):
        row, number = lines_of.get(k), int(words.split("frame ")[1].split(":")[0])
        look = "st-good" if "graph of" in words else "st-bad"
        kind = "the compiled graph" if look == "st-good" else "plain Python"
        frames[number].ran.append((look, words.split(": ", 1)[1]))
        at = f"line {row + 1}" if row is not None else "this place"
        said = f"Frame {number} ({records[number].code.co_name}): {at} is run by {kind}."
        if row is not None:
            looks[row] = look
        panels = [lines("the function", source, looks, now=row), _frames(frames, number)]
        steps.append(Step(said, panels))
    return Stepper(f"{explanation.name}: {len(frames)} frames, one after the other", steps)


def _frames(frames: Sequence[_Frame], now: int) -> Panel:
    """The frames that have begun, below each other; an arrow carries the parameters on."""
    parts, y = [], 0.0
    for n, frame in enumerate(frames[: now + 1]):
        if n:
            parts.append(arrow(40, y - 24, 40, y))
            parts.append(text(50, y - 8, cut(f"takes {frame.takes}", 44), "st-faint"))
        tall = 22 + 20 * len(frame.ran)
        parts.append(box(0.5, y, WIDTH - 1, tall + 4, "st-now" if n == now else "st-paper", 5))
        parts.append(text(8, y + 15, cut(frame.title, 48), "st-h"))
        for k, (look, words) in enumerate(frame.ran):
            parts.append(box(8, y + 22 + 20 * k, WIDTH - 16, 17, look))
            parts.append(text(13, y + 35 + 20 * k, cut(words, 46)))
        y += tall + 30
    return Panel("frames: green ran compiled, red as plain Python", "".join(parts), max(y - 24, 18))


# ---- 08: the cut
def cut_walk(compiled: Any) -> Stepper:
    """The cut between forward and backward at every place of the forward half: the values that
    cross it, in bytes.  The last step is the cut that the partitioner chose."""
    forward = _forward_calls(compiled.joint_graph.graph)
    place = {node: n for n, node in enumerate(forward)}
    needed: dict[Any, bool] = {}
    for node in reversed(forward):
        needed[node] = any(needed.get(user, user.op != "output") for user in node.users)

    def crossing(k: int) -> list:
        """Values made up to k that something behind the cut reads: backward, or what is computed
        again for it."""
        behind = lambda user: (  # noqa: E731
            needed[user] and place[user] > k if user in place else user.op != "output"
        )
        return [value for value in forward[: k + 1] if any(map(behind, value.users))]

    amounts = [sum(map(_bytes, crossing(k))) for k in range(len(forward))]
    names = [f"{node.name}: {_bytes(node):,} bytes" for node in forward]
    graph = _Forward(
        names,
        [(place[a], place[b]) for b in forward for a in b.all_input_nodes if a in place],
        {place[n] for n in forward if any(u not in place and u.op != "output" for u in n.users)},
    )
    steps = []
    for k, node in enumerate(forward):
        kept = crossing(k)
        told = ", ".join(value.name for value in kept) or "nothing"
        said = f"The cut behind {node.name}: {told} would be kept, {amounts[k]:,} bytes."
        said += " What comes later is computed again." if k + 1 < len(forward) else ""
        drawn = graph.drawn({place[value] for value in kept}, k)
        steps.append(Step(said, [drawn, _bars(amounts, k)]))
    chosen = {each.name: each.bytes for each in compiled.saved if not each.is_input}
    total = sum(chosen.values())
    said = f"The cut that was chosen keeps {', '.join(chosen) or 'inputs only'}: {total:,} bytes."
    drawn = graph.drawn({n for n, node in enumerate(forward) if node.name in chosen}, None)
    steps.append(Step(said, [drawn, _bars([*amounts, total], len(amounts))]))
    return Stepper("where to cut the joint graph: bytes kept for the backward half", steps)


@dataclass
class _Forward:
    """The forward values below each other, their edges, and the backward half beside them."""

    names: list[str]
    edges: list[tuple[int, int]]
    read_by_backward: set[int]

    def drawn(self, kept: set[int], cut_at: int | None) -> Panel:
        """With the cut behind value `cut_at`, or without a straight cut; `kept` cross it."""
        tall, right = ROW + 8, 262
        parts = [box(right + 34, 0, WIDTH - right - 36, len(self.names) * tall - 4, "st-warm", 5)]
        for n, letter in enumerate("backward"):
            parts.append(text(right + 60, 18 + 14 * n, letter, "", "middle"))
        for start, end in self.edges:
            y, to = start * tall + 10, end * tall + 10
            out = 38 - 9 * min(end - start, 4)
            crosses = start in kept and cut_at is not None and end > cut_at
            look = "st-live" if crosses else "st-wire"
            parts.append(f'<path d="M40,{y}C{out},{y} {out},{to} 40,{to}" class="{look}"/>')
        for n, name in enumerate(self.names):
            again = cut_at is not None and n > cut_at
            look = "st-good" if n in kept else "st-paper" if again else "st-part"
            parts.append(box(40, n * tall, right - 40, ROW + 2, look, 4))
            parts.append(text(46, n * tall + 14, cut(name, 31)))
            if n in self.read_by_backward:
                y, live = n * tall + 10, n in kept
                parts.append(arrow(right, y, right + 34, y, "st-live" if live else "st-wire"))
        if cut_at is not None:
            y, x = (cut_at + 1) * tall - 3, right + 16
            parts.append(f'<path d="M2,{y}L{x},{y}L{x},-2" class="st-cut"/>')
        return Panel("dashed: the cut; green: kept", "".join(parts), len(self.names) * tall)


def _forward_calls(graph: Any) -> list:
    """The operations of a joint graph that lead to a result of the program."""
    of_tangents: set = set()
    for node in graph.nodes:
        is_tangent = node.op == "placeholder" and str(node.target).startswith("tangent")
        if is_tangent or of_tangents & set(node.all_input_nodes):
            of_tangents.add(node)
    (output,) = [node for node in graph.nodes if node.op == "output"]
    wanted = {node for node in output.all_input_nodes if node not in of_tangents}
    for node in reversed(list(graph.nodes)):
        if node in wanted:
            wanted.update(node.all_input_nodes)
    return [node for node in graph.nodes if node in wanted and node.op == "call_function"]


def _bytes(node: Any) -> int:
    value = node.meta.get("val")
    return value.numel() * value.element_size() if hasattr(value, "numel") else 0


def _bars(amounts: Sequence[int], now: int) -> Panel:
    most, parts = max([*amounts, 1]), []
    for n, amount in enumerate(amounts):
        look = "st-now" if n == now else "st-part"
        parts.append(box(0.5, n * ROW + 1, max(2.0, amount * 230 / most), ROW - 3, look))
        parts.append(text(WIDTH - 4, n * ROW + 13, f"{amount:,}", anchor="end"))
    return Panel("bytes kept, for each place of the cut", "".join(parts), len(amounts) * ROW)


# ---- 10: rounds of fusion
@dataclass
class _Loop:
    """A buffer before fusion: its loops, its bytes, what its body does and reads."""

    name: str
    bytes: int
    loops: str
    ops: list[str]
    reads: list[str]


def _loops(compiled: Any) -> dict[str, _Loop]:
    """The buffers of the loop IR, by name; inputs are buffers without loops."""
    import torch

    found: dict[str, _Loop] = {}
    for node in compiled.lowered_graph.graph.nodes:
        if node.op == "placeholder":
            found[node.name] = _Loop(node.name, _bytes(node), "", [], [])
    for row in compiled.loop_ir.splitlines():
        head = re.match(r"(\w+): (\w+)\[(.*?)\] = (.*?)(?: {4}#.*)?$", row)
        if head:
            name, dtype, sizes, body = head.groups()
            size = getattr(torch, dtype).itemsize
            for number in re.findall(r"\d+", sizes):
                size *= int(number)
            called = re.match(r"([\w.]+)\(", body)  # a library kernel, and its arguments
            loops = (
                f"{called[1].removesuffix('.default')}, a library call"
                if called
                else f"for {body.partition(' ')[2]}"
            )
            reads = re.findall(r"(\w+)\[", body) if called else []
            loop = found[name] = _Loop(name, size, loops, [], reads)
        elif found and (op := re.match(r" +\w+ = (\w+)\((.*)\)$", row)):
            if op[1] == "load":
                loop.reads.append(op[2].split(",")[0])
            elif op[1] != "constant":
                loop.ops.append(op[2].split(", ")[2] if op[1] == "reduction" else op[1])
    return found


def _traffic(groups: Sequence[Sequence[str]], loops: dict[str, _Loop]) -> tuple[int, set[str]]:
    """Bytes that the kernels of `groups` read and write, and the buffers that reach memory."""
    moved, stored = 0, set()
    for group in groups:
        outside = {name for other in groups if other is not group for name in other}
        read = {name for member in group for name in loops[member].reads} - set(group)
        wanted = {name for other in outside for name in loops[other].reads}
        final = set(group) - {name for loop in loops.values() for name in loop.reads}
        written = (set(group) & wanted) | final
        moved += sum(loops[name].bytes for name in [*read, *written] if name in loops)
        stored |= written
    return moved, stored


def fusion_rounds(compiled: Any, most: int = 24) -> Stepper:
    """The scheduler's decisions in their order: loops that merge, and the bytes that fall away."""
    loops = _loops(compiled)
    groups = [[name] for name, loop in loops.items() if loop.loops]
    amounts = [_traffic(groups, loops)[0]]
    said = f"Before the first decision: a kernel for each buffer, {amounts[0]:,} bytes are moved."
    steps = [Step(said, [_kernels(groups, loops, set(), ""), _falling(amounts)])]
    for decision in compiled.fusions[:most]:
        pair = {*decision.first.split("+"), *decision.second.split("+")}
        if decision.fused:
            joined = sorted((name for g in groups if pair & set(g) for name in g), key=_number)
            groups = [g for g in groups if not pair & set(g)]
            groups = sorted([*groups, joined], key=lambda group: _number(group[-1]))
        amounts.append(_traffic(groups, loops)[0])
        verdict = "fused" if decision.fused else "not fused"
        said = f"{decision.first} and {decision.second}: {verdict} ({decision.category}), "
        said += (
            f"{decision.bytes_saved:,} bytes less are read" if decision.fused else decision.reason
        )
        said += f"; {amounts[-1]:,} bytes are moved now"
        look = "st-good" if decision.fused else "st-bad"
        steps.append(Step(said, [_kernels(groups, loops, pair, look), _falling(amounts)]))
    return Stepper(f"{len(compiled.fusions)} decisions of the scheduler, in their order", steps)


def _number(name: str) -> int:
    return int("".join(filter(str.isdigit, name)) or 0)


def _kernels(
    groups: Sequence[Sequence[str]], loops: dict[str, _Loop], pair: set[str], look: str
) -> Panel:
    """A frame for each kernel with the bodies in its loops; at the right the buffers in memory."""
    stored, edge, memory = _traffic(groups, loops)[1], 214, 256
    inputs = [name for name, loop in loops.items() if not loop.loops]
    most, at, parts = max(loop.bytes for loop in loops.values()), {}, []

    def bar(name: str, y: float) -> None:
        at[name] = y + 8
        parts.append(box(memory, y, max(3.0, 60 * loops[name].bytes / most), 16, "st-now"))
        parts.append(text(memory + 4, y + 12, name))

    for n, name in enumerate(inputs):
        bar(name, 20 * n)
    y = 20.0 * len(inputs) + 6
    for group in groups:
        tall = 22 + 20 * len(group)
        parts.append(box(0.5, y, edge, tall, look if pair & set(group) else "st-part", 5))
        widest = max((loops[name].loops for name in group), key=len)
        parts.append(text(8, y + 15, cut(widest, 30), "st-h"))
        for k, name in enumerate(group):
            top = y + 21 + 20 * k
            parts.append(box(12, top, edge - 18, 16, "st-paper"))
            ops = ", ".join(loops[name].ops)
            parts.append(text(17, top + 12, cut(f"{name}: {ops}" if ops else name, 27)))
            if name in stored:
                parts.append(arrow(edge - 6, top + 8, memory, top + 8, "st-live"))
                bar(name, top)
            for source in dict.fromkeys(loops[name].reads):
                if source in at and source not in group:
                    start, end = at[source], top + 12
                    path = f"M{memory},{start}C{memory - 34},{start} {edge + 24},{end} {edge},{end}"
                    parts.append(f'<path d="{path}" class="st-wire"/>')
        y += tall + 8
    # as high as before the first fusion: nothing jumps
    room = 20 * len(inputs) + 50 * sum(len(group) for group in groups)
    return Panel("loops, one frame a kernel; blue: in memory", "".join(parts), max(y, room))


def _falling(amounts: Sequence[int]) -> Panel:
    """Bytes moved after each decision so far; red is what fell away."""
    most, parts = max([*amounts, 1]), []
    for n, amount in enumerate(amounts):
        y, before = n * (ROW + 4), amounts[max(n - 1, 0)]
        long, was = 220 * amount / most, 220 * before / most
        parts.append(
            box(0.5, y, max(2.0, long), ROW, "st-now" if n + 1 == len(amounts) else "st-part")
        )
        if was > long:
            parts.append(box(long, y, was - long, ROW, "st-bad"))
        parts.append(text(WIDTH - 4, y + 13, f"{amount:,}", anchor="end"))
    return Panel("bytes moved; red fell away", "".join(parts), len(amounts) * (ROW + 4))


# ---- 12: a warp and its sectors
def warp_walk(ways: dict[str, list[list[int]]], size: int = 32, instructions: int = 3) -> Stepper:
    """The first load instructions of each way: which sectors the addresses of a warp touch, and
    which of their bytes are used."""
    steps, most = [], size * max(len(one) for loads in ways.values() for one in loads)
    for name, loads in ways.items():
        for number, addresses in enumerate(loads[:instructions]):
            touched = sorted({address // size for address in addresses})
            used, moved = 4 * len(addresses), size * len(touched)
            noun = "sector" if len(touched) == 1 else "sectors"
            said = (
                f"{name}, load {number + 1}: {len(addresses)} threads want {used} "
                f"bytes in {len(touched)} {noun}; {moved} bytes are moved."
            )
            panels = [_warp(addresses, touched, size), _moved(used, moved, most)]
            steps.append(Step(said, panels))
    return Stepper("one load instruction of a warp, and the sectors that it moves", steps)


def _warp(addresses: Sequence[int], touched: Sequence[int], size: int) -> Panel:
    """The lanes of a warp above, the sectors that they touch below; a line is a load."""
    words, wanted, parts, places = size // 4, set(addresses), [], {}
    a_row = 4 if len(touched) <= 8 else 8
    wide = (WIDTH - 6) / a_row
    cell = (wide - 4) / words
    rows = -(-len(touched) // a_row)
    for n, sector in enumerate(touched):
        x, y = 4 + (n % a_row) * wide, 84 + (n // a_row) * 30
        for k in range(words):
            address = sector * size + 4 * k
            look = "st-good" if address in wanted else "st-bad"
            parts.append(box(x + k * cell, y, cell - 0.6, 14, look, 1))
            places[address] = x + (k + 0.5) * cell, y
    loads = []
    for lane in range(32):
        x = 4 + lane * 10.75
        takes_part = lane < len(addresses)
        parts.append(box(x, 14, 9, 12, "st-now" if takes_part else "st-none", 1))
        if takes_part:
            loads.append(curve(x + 4.5, 26, *places[addresses[lane]]))
    parts += [text(4, 10, "32 lanes, one instruction", "st-faint"), *loads]
    parts.append(text(4, 84 + rows * 30 + 4, "a group is a sector of 32 bytes", "st-faint"))
    return Panel("a warp and its sectors", "".join(parts), 84 + rows * 30 + 10)


def _moved(used: int, moved: int, most: int) -> Panel:
    """Bytes that are moved; green are those that the threads want."""
    wide = (WIDTH - 8) / most
    parts = [text(4, 12, f"moved: {moved:,} bytes, wanted: {used:,}")]
    parts.append(box(4, 20, used * wide, 24, "st-good"))
    parts.append(
        box(4 + used * wide, 20, (moved - used) * wide, 24, "st-bad") if moved > used else ""
    )
    parts.append(text(4, 64, f"{used / moved:.1%} of what is moved is used", "st-h"))
    return Panel("bytes", "".join(parts), 70)


# ---- 13: the arena over time
def arena_walk(picture: Any) -> Stepper:
    """The plan of memory, step by step: the arena fills, and freed bytes are taken again."""
    steps, whole = [], max(picture.arena, 1)
    held = [block for block in picture.blocks if block[1] is not None]
    own = [block for block in picture.blocks if block[1] is None]
    for k, name in enumerate(picture.steps):
        live = [block for block in held if block[3] <= k <= block[4]]
        born = [block[0] for block in picture.blocks if block[3] == k]
        gone = [block[0] for block in picture.blocks if block[4] == k - 1]
        used = sum(block[2] for block in live)
        said = f"{name}: {used:,} of {picture.arena:,} bytes of the arena are in use"
        said += f"; made: {', '.join(born)}" if born else ""
        said += f"; free again: {', '.join(gone)}." if gone else "."
        panels = [
            _arena(held, k, len(picture.steps), whole),
            lines(
                "steps of the wrapper", [f"{n}: {s}" for n, s in enumerate(picture.steps)], now=k
            ),
            _own(own, k),
        ]
        steps.append(Step(said, panels))
    return Stepper(f"{len(picture.steps)} steps, an arena of {picture.arena:,} bytes", steps)


def _arena(held: Sequence[tuple], now: int, count: int, whole: int) -> Panel:
    """Offsets downwards, steps to the right; what has not been made yet is an outline."""
    tall, left = 230, 60
    wide = (WIDTH - left - 4) / count
    parts = [box(left, 0, WIDTH - left - 4, tall, "st-none")]
    for name, offset, size, first, last in held:
        y, high = offset * tall / whole, max(2.0, size * tall / whole)
        x = left + first * wide
        parts.append(box(x, y, (last - first + 1) * wide, high, "st-none"))
        if first <= now:
            until = min(last, now)
            look = "st-now" if last >= now else "st-part"
            parts.append(box(x, y, (until - first + 1) * wide, high, look))
            if high >= 12:
                parts.append(text(x + 4, y + 12, cut(name, max(3, int(wide / 7)))))
    for offset in sorted({block[1] for block in held}):
        parts.append(text(left - 4, offset * tall / whole + 10, f"{offset:,}", "st-faint", "end"))
    parts.append(box(left + now * wide, -2, wide, tall + 4, "st-ring"))
    for k in range(count):
        parts.append(text(left + (k + 0.5) * wide, tall + 16, str(k), "st-faint", "middle"))
    return Panel("the arena: offset down, step to the right", "".join(parts), tall + 22)


def _own(own: Sequence[tuple], now: int) -> Panel:
    """Tensors outside of the arena, as bars; those that live now are blue."""
    most, parts = max([block[2] for block in own] + [1]), []
    for n, (name, _, size, first, last) in enumerate(own):
        look = "st-now" if first <= now <= last else "st-part" if last < now else "st-none"
        parts.append(box(0.5, n * 34 + 16, max(2.0, (WIDTH - 4) * size / most), 14, look))
        parts.append(text(2, n * 34 + 12, f"{name}: {size:,} bytes"))
    parts += [] if own else [text(5, 13, "(none)", "st-faint")]
    return Panel("tensors of their own", "".join(parts), max(34 * len(own), 18))


# ---- 14: regions of guards
def region_walk(
    compiled: Callable, arguments: Callable, calls: list[tuple], records: Callable, end: int = 11
) -> Stepper:
    """Calls for real; after each the guard function of every entry is asked about every pair of
    sizes: the region in the plane in which the entry runs."""
    from minidynamo.explain.explanation import size_guards

    steps = []
    looks = ("st-good", "st-now", "st-bad", "st-part")
    cell = 280 / end
    for call in calls:
        before = len(records())
        compiled(*arguments(*call))
        entries = list(records())
        parts = []
        for a in range(end):
            for b in range(end):
                holding = [
                    n
                    for n, record in enumerate(entries)
                    if record.guard_function.check(None, *arguments(a, b))
                ]
                look = looks[holding[0] % 4] if holding else "st-none"
                x, y = 30 + a * cell, (end - 1 - b) * cell
                parts.append(box(x, y, cell - 1, cell - 1, look))
        x, y = 30 + (call[0] + 0.5) * cell, (end - 0.5 - call[1]) * cell
        parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{cell / 3:.1f}" class="st-ring"/>')
        parts += [
            text(30 + (a + 0.5) * cell, 294, str(a), "st-faint", "middle") for a in range(0, end, 2)
        ]
        parts += [
            text(24, (end - 0.5 - b) * cell + 4, str(b), "st-faint", "end")
            for b in range(0, end, 2)
        ]
        new = len(entries) > before
        said = f"Sizes {call}: " + (
            f"no entry fits, entry {len(entries) - 1} is compiled." if new else "an entry fits."
        )
        told = []
        for n, record in enumerate(entries):
            told.append(f"entry {n}:")
            told += [f"  {row[1]}" for row in size_guards(record).rows] or ["  fixed sizes"]
        panels = [
            Panel("s0 to the right, s1 upwards: who runs", "".join(parts), 300),
            lines("entries", told),
        ]
        steps.append(Step(said, panels))
    return Stepper("which entry runs for which sizes", steps)


# ---- the front page: a program on its way
def journey(explanation: Any, function: Callable) -> Drawing:
    """What each stage made of a program, side by side: its lines, graph, guards, loops, kernel."""
    entry, compiled = explanation.main.record, explanation.main.compiled
    source = textwrap.dedent(inspect.getsource(function)).rstrip().splitlines()
    loops = _loops(compiled)
    kernel = [row for row in compiled.kernels[-1].source.splitlines() if row.strip()]
    parts = [_stage(0, 190, "1 your Python"), *_texts(8, 52, source, 25)]
    parts.append(_stage(226, 170, "2 graph and guards"))
    nodes = [node for node in entry.graph.graph.nodes if node.op != "output"]
    for n, node in enumerate(nodes):
        y = 42 + 36 * n
        look = "st-now" if node.op == "placeholder" else "st-part"
        parts.append(box(246, y, 130, 22, look, 5) + text(311, y + 15, node.name, "", "middle"))
        if n and node.op != "placeholder":
            parts.append(arrow(311, y - 14, 311, y))
    guards = [f"{len(entry.guards)} guards say", "when it may run"]
    parts += _texts(238, 56 + 36 * len(nodes), guards, 24)
    parts.append(_stage(432, 200, "3 loops, one for each tensor"))
    made = [loop for loop in loops.values() if loop.loops]
    for n, loop in enumerate(made):
        y, is_library = 42 + 48 * n, loop.loops.endswith("library call")
        parts.append(box(440, y, 184, 40, "st-warm" if is_library else "st-part", 5))
        parts.append(text(448, y + 15, cut(loop.loops, 26)))
        parts.append(text(448, y + 32, cut(", ".join([loop.name, *loop.ops]), 26), "st-faint"))
    parts.append(_stage(668, 324, "4 one kernel of them, in C++"))
    parts += _texts(676, 52, _middle(kernel, 15), 46)
    parts += [arrow(x, 140, x + 34, 140, "st-live") for x in (191, 397, 633)]
    words = (
        f"A function of {len(source)} lines becomes a graph of {len(nodes)} nodes with "
        f"{len(entry.guards)} guards, then {len(made)} loops and library calls, then "
        f"{len(compiled.kernels)} generated kernel."
    )
    return Drawing("What the two packages make of a program", "".join(parts), 994, 300, words)


def _stage(x: float, width: float, title: str) -> str:
    return box(x, 26, width, 270, "st-paper", 6) + text(x, 16, title, "st-h")


def _texts(x: float, y: float, rows: Sequence[str], letters: int) -> list[str]:
    return [text(x, y + 16 * n, cut(row, letters)) for n, row in enumerate(rows)]


def _middle(rows: Sequence[str], most: int) -> list[str]:
    """The inner part of a kernel: from its first loop."""
    first = next((n for n, row in enumerate(rows) if row.lstrip().startswith("for")), 0)
    space = len(rows[first]) - len(rows[first].lstrip())
    return [row[space:] if not row[:space].strip() else row for row in rows[first : first + most]]
