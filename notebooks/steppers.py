"""Pictures that move: what happens step by step, drawn from what the packages really did.

In:   live objects: a cache, a machine, guards, records of fusions, a plan of memory.
Out:  a `Stepper`: in a notebook or page a picture with buttons; in text form a numbered list.

    >>> stepper = fusion_rounds(explanation.main.compiled)
    >>> stepper.steps[0].caption
    'buf0 and buf1: fused (epilogue), 8,192 bytes saved'

Each step has a caption and panels.  A panel is an SVG as wide as a phone.  On a screen they stand
side by side, on a phone one below the other.
Where no script runs (a stored notebook on a
web site, a printed page) the last step is shown, and all captions stand below it as a list.
Colours follow the reader's theme.  Arrow keys, Home and End move; the buttons are real buttons.
"""

import hashlib
import html
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from minidynamo.explain.views import DARK, LIGHT

WIDTH, ROW, CHARACTER, LETTERS, MOST_ROWS = 350, 18, 6.7, 50, 16
COLOURS = {
    "light": "--st-ink:#1f1f1f;--st-faint:#5f6368;--st-line:#8a8f98;--st-paper:#ffffff;"
    "--st-now:#cfe0ff;--st-good:#cdebd2;--st-bad:#f9d3cf;--st-part:#e4e8ef",
    "dark": "--st-ink:#e8e8e8;--st-faint:#b3b8bf;--st-line:#7d838c;--st-paper:#1b1d20;"
    "--st-now:#234a86;--st-good:#1f5a31;--st-bad:#7a2a25;--st-part:#33383f",
}
BOX = ".stepper"
STYLE = "".join(
    [
        f"{BOX}{{{COLOURS['light']};margin:0;border:1px solid var(--st-line);border-radius:6px;",
        "padding:10px;background:var(--st-paper);color:var(--st-ink);max-width:1090px}",
        f"@media(prefers-color-scheme:dark){{{BOX}{{{COLOURS['dark']}}}}}",
        f"{DARK.format(BOX)}{{{COLOURS['dark']}}}",
        f"{LIGHT.format(BOX)}{{{COLOURS['light']}}}",
        f"{BOX} .st-panels{{display:flex;flex-wrap:wrap;gap:8px;align-items:flex-start}}",
        f"{BOX} .st-panels[hidden]{{display:none}}",
        f"{BOX} svg{{flex:1 1 300px;max-width:430px;min-width:0;width:100%;height:auto;",
        "background:var(--st-paper)}",
        f"{BOX} text{{fill:var(--st-ink);font:11px DejaVu Sans Mono,Menlo,Consolas,monospace}}",
        f"{BOX} .st-h{{font-weight:bold}}{BOX} .st-faint{{fill:var(--st-faint)}}",
        f"{BOX} .st-now{{fill:var(--st-now)}}{BOX} .st-good{{fill:var(--st-good)}}",
        f"{BOX} .st-bad{{fill:var(--st-bad)}}{BOX} .st-part{{fill:var(--st-part)}}",
        f"{BOX} .st-none{{fill:none}}{BOX} .st-box{{stroke:var(--st-line)}}",
        f"{BOX} .st-ring{{fill:none;stroke:var(--st-ink);stroke-width:2}}",
        f"{BOX} .st-bar{{display:flex;gap:6px;align-items:center;margin-bottom:6px}}",
        f"{BOX} .st-bar[hidden]{{display:none}}",
        f"{BOX} button{{min-width:44px;min-height:32px;border:1px solid var(--st-line);",
        "border-radius:4px;background:var(--st-part);color:var(--st-ink);cursor:pointer}",
        f"{BOX} input{{flex:1;min-width:60px}}",
        f"{BOX} .st-said{{margin:4px 0 8px;min-height:2.8em;color:var(--st-ink)}}",
        f"{BOX} .st-title{{font-weight:bold;margin:0 0 6px;color:var(--st-ink)}}",
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
def text(x: float, y: float, words: str, look: str = "", anchor: str = "start") -> str:
    of_look = f' class="{look}"' if look else ""
    at = f' text-anchor="{anchor}"' if anchor != "start" else ""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}"{of_look}{at} xml:space="preserve">'
        f"{html.escape(words)}</text>"
    )


def box(x: float, y: float, width: float, height: float, look: str) -> str:
    return (
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" rx="2" '
        f'class="{look} st-box"/>'
    )


def cut(words: Any, letters: int = LETTERS) -> str:
    line = " ".join(str(words).split("\n"))
    return line if len(line) <= letters else line[: letters - 1] + "…"


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
        before = [f"guard {n}, for {entry[1].co_name}" for n, entry in enumerate(entries)]
        start = f"{written}: the frame is there, its arguments are bound, nothing has run."
        steps.append(Step(start, [lines("the call", [written], now=0), lines("cache", before)]))
        looks: dict[int, str] = {}
        for n, verdict in enumerate(verdicts):
            if verdict is None:
                break
            looks[n] = "st-good" if verdict else "st-bad"
            said = f"{written}: guard {n} {asked[verdict]}."
            panels = [lines("the call", [written], now=0), lines("cache", before, dict(looks))]
            steps.append(Step(said, panels))
        result = hooked(*args)
        now = list(get_cache(code) or [])
        if True in verdicts:
            ran = entries[verdicts.index(True)][1].co_name
            said = f"{written}: the code of {ran} runs in this frame. The result: {result!r}."
            assert len(now) == len(entries)
        elif len(now) > len(entries):
            ran = now[-1][1].co_name
            said = (
                f"{written}: no guard holds, so the callback is asked. It gives a new entry, and "
                f"the code of {ran} runs. The result: {result!r}."
            )
        else:
            ran = code.co_name
            said = f"{written}: the callback says nothing. The original runs: {result!r}."
        after = [f"guard {n}, for {entry[1].co_name}" for n, entry in enumerate(now)]
        new = {n: "st-now" for n in range(len(entries), len(now))}
        panels = [lines("what runs", [f"{ran} -> {result!r}"], now=0), lines("cache", after, new)]
        steps.append(Step(said, panels))
    return Stepper(f"calls of {code.co_name}: hook, cache, guards", steps)


# ---- 04: instruction, stack, graph
class _Watching(list):
    """The trace of a machine, which also notes how far the graph has grown."""

    def __init__(self, machine: Any) -> None:
        super().__init__()
        self.machine, self.nodes = machine, []

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
            lines("graph", nodes, new, now=len(nodes) - 1 if len(nodes) > MOST_ROWS else None),
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
        tree = lines("what is guarded", rows, {})
        steps.append(Step(f"{label}: nothing was asked yet.", [tree]))
        for n in range(end):
            looks = {k: "st-good" for k in range(n + 1)}
            said = f"{label}: all checks on {list(subjects)[n]} hold."
            checks = [guard.code for guard in list(subjects.values())[n]]
            shown = lines("what is guarded", rows, looks, now=n)
            steps.append(Step(said, [shown, lines("its checks", checks)]))
        if failed is None:
            said, looks = (
                f"{label}: every guard holds, the entry runs.",
                dict.fromkeys(range(len(rows)), "st-good"),
            )
            steps.append(Step(said, [lines("what is guarded", rows, looks)]))
            continue
        looks = {k: "st-good" for k in range(end)} | {end: "st-bad"}
        said = f"{label}: {failed[1]}. The rest is not asked, and this entry does not run."
        shown = [lines("what is guarded", rows, looks), lines("the check", [failed[0].code], now=0)]
        steps.append(Step(said, shown))
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
def breaks_walk(explanation: Any) -> Stepper:
    """The lines of a function that breaks, in the order in which they ran, and what ran them."""
    from minidynamo.explain.draw_code import draw_frames

    picture = draw_frames(explanation)
    (_, source), (_, shown) = picture.columns
    lines_of = {k: line for _, line, _, k, _ in picture.links}
    frames, steps = explanation.frames, []
    for k, words in enumerate(shown):
        line, number = lines_of.get(k), int(words.split("frame ")[1].split(":")[0])
        record = frames[number].record
        takes = list(record.code.co_varnames[: record.code.co_argcount])
        name = record.code.co_name
        about = [f"code: {name}", f"parameters: {', '.join(takes)}"]
        kind = "the compiled graph" if "graph of" in words else "plain Python"
        about += [f"{kind}:", *[f"  {part}" for part in words.split(": ", 1)[1].split(", ")]]
        at = f"line {line + 1}" if line is not None else "this place"
        said = f"Frame {number} ({name}): {at} is run by {kind}."
        now = {line: "st-good" if "graph of" in words else "st-bad"} if line is not None else {}
        panels = [lines("the function", source, now, now=line), lines("who runs it", about, now=2)]
        steps.append(Step(said, panels))
    return Stepper(f"{explanation.name}: {len(frames)} frames, one after the other", steps)


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
    steps = []
    for k, node in enumerate(forward):
        kept = crossing(k)
        told = ", ".join(value.name for value in kept) or "nothing"
        said = f"The cut behind {node.name}: {told} would be kept, {amounts[k]:,} bytes."
        said += " What comes later is computed again." if k + 1 < len(forward) else ""
        looks = {place[value]: "st-now" for value in kept}
        steps.append(Step(said, [lines("forward values", names, looks), _bars(amounts, k)]))
    chosen = {each.name: each.bytes for each in compiled.saved if not each.is_input}
    total = sum(chosen.values())
    looks = {n: "st-good" for n, node in enumerate(forward) if node.name in chosen}
    said = f"The cut that was chosen keeps {', '.join(chosen) or 'inputs only'}: {total:,} bytes."
    last = [lines("forward values", names, looks), _bars([*amounts, total], len(amounts))]
    steps.append(Step(said, last))
    return Stepper("where to cut the joint graph: bytes kept for the backward half", steps)


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
def fusion_rounds(compiled: Any, most: int = 24) -> Stepper:
    """The scheduler's decisions in their order: which pair was looked at, what was decided, and
    the groups (one kernel each) that there are then."""
    names: list[str] = []
    for decision in compiled.fusions:
        for name in f"{decision.first}+{decision.second}".split("+"):
            if name not in names and " " not in name:
                names.append(name)
    groups, steps = [[name] for name in sorted(names)], []
    for decision in compiled.fusions[:most]:
        pair = [set(decision.first.split("+")), set(decision.second.split("+"))]
        if decision.fused:
            joined = [name for g in groups if set(g) & (pair[0] | pair[1]) for name in g]
            at = next(n for n, g in enumerate(groups) if set(g) & pair[0])
            groups = [
                joined if n == at else g
                for n, g in enumerate(groups)
                if n == at or not set(g) & (pair[0] | pair[1])
            ]
        rows = [" + ".join(g) for g in groups]
        look = "st-good" if decision.fused else "st-bad"
        looks = {n: look for n, g in enumerate(groups) if set(g) & (pair[0] | pair[1])}
        verdict = "fused" if decision.fused else "not fused"
        said = f"{decision.first} and {decision.second}: {verdict} ({decision.category}), "
        said += f"{decision.bytes_saved:,} bytes saved" if decision.fused else f"{decision.reason}"
        about = [
            f"first:  {decision.first}",
            f"second: {decision.second}",
            f"kind:   {decision.category}",
        ]
        about += [f"bytes:  {decision.bytes_saved:,}", f"{verdict}"]
        steps.append(
            Step(
                said,
                [
                    lines("groups: one kernel each", rows, looks),
                    lines("the pair", about, {4: look}),
                ],
            )
        )
    return Stepper(f"{len(compiled.fusions)} decisions of the scheduler, in their order", steps)


# ---- 12: a warp and its sectors
def warp_walk(ways: dict[str, list[list[int]]], size: int = 32, instructions: int = 3) -> Stepper:
    """The first load instructions of each way: which sectors the addresses of a warp touch, and
    which of their bytes are used."""
    steps = []
    for name, loads in ways.items():
        for number, addresses in enumerate(loads[:instructions]):
            touched = sorted({address // size for address in addresses})
            used, moved = 4 * len(addresses), size * len(touched)
            parts = []
            for n, sector in enumerate(touched):
                x, y = 4 + (n % 4) * 86, (n // 4) * 26
                for k in range(size // 4):
                    is_used = sector * size + 4 * k in set(addresses)
                    look = "st-good" if is_used else "st-bad"
                    parts.append(box(x + k * 10, y, 9, 12, look))
                parts.append(text(x, y + 22, f"{sector * size:,}", "st-faint"))
            tall = ((len(touched) + 3) // 4) * 26 + 4
            noun = "sector" if len(touched) == 1 else "sectors"
            said = (
                f"{name}, load {number + 1}: {len(addresses)} threads want {used} "
                f"bytes in {len(touched)} {noun}; {moved} bytes are moved."
            )
            asked = [f"thread {t:2}: byte {a:,}" for t, a in enumerate(addresses)]
            panels = [
                lines("what the threads ask for", asked, {}, now=0),
                Panel("sectors moved (4 bytes a box; used or not)", "".join(parts), tall),
            ]
            steps.append(Step(said, panels))
    return Stepper("one load instruction of a warp, and the sectors that it moves", steps)


# ---- 13: the arena over time
def arena_walk(picture: Any) -> Stepper:
    """The plan of memory, step by step: which bytes of the arena are in use."""
    steps, whole = [], max(picture.arena, 1)
    held = [block for block in picture.blocks if block[1] is not None]
    own = [block for block in picture.blocks if block[1] is None]
    for k, name in enumerate(picture.steps):
        live = [block for block in held if block[3] <= k <= block[4]]
        parts = [box(10, 0, 150, 280, "st-none")]
        for buffer, offset, size, first, _ in live:
            y, tall = offset * 280 / whole, max(2.0, size * 280 / whole)
            parts.append(box(10, y, 150, tall, "st-now" if first == k else "st-part"))
            if tall >= 12:
                parts.append(text(16, y + 12, buffer))
            parts.append(text(166, y + min(12, tall), f"{offset:,}", "st-faint"))
        born = [block[0] for block in picture.blocks if block[3] == k]
        gone = [block[0] for block in picture.blocks if block[4] == k - 1]
        beside = [f"{block[0]}: {block[2]:,} bytes" for block in own if block[3] <= k <= block[4]]
        used = sum(block[2] for block in live)
        said = f"{name}: {used:,} of {picture.arena:,} bytes of the arena are in use"
        said += f"; made: {', '.join(born)}" if born else ""
        said += f"; free again: {', '.join(gone)}." if gone else "."
        panels = [
            lines("steps of the wrapper", picture.steps, now=k),
            Panel("the arena, by offset", "".join(parts), 284),
            lines("tensors of their own", beside),
        ]
        steps.append(Step(said, panels))
    return Stepper(f"{len(picture.steps)} steps, an arena of {picture.arena:,} bytes", steps)


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
