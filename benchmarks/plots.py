"""Plots of benchmark rows, measured here or recorded elsewhere.

In:   rows of `suites.measure`, or a file of `results/`.  Out: a matplotlib figure.

    >>> speedup_bars(rows, machine())
    >>> loss_curves(recorded("training_curves_cpu"))
    >>> recorded_bars(recorded("h100_gpu_kernels"), "GB/s", ("copy", "eager", "ours"))
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Run = dict[str, Any]  # a stored run, or one row of it
RESULTS = Path(__file__).parent / "results"
# hatch and colour of each variant, the same in all plots; what plots share besides (fonts, frames)
# is in notebooks/matplotlibrc, which matplotlib reads in the folder of the notebooks
LOOKS = {
    "copy": ("", "#44546e"),
    "eager": ("", "#9aa3b2"),
    "ours": ("", "#3367d6"),
    "torch.compile": ("///", "#e8a33d"),
    "wire": ("///", "#cdebd2"),
}
OURS = LOOKS["ours"][1]
NO_GAIN = "#d5dcea"  # of an optimisation whose quartiles touch one


def recorded(name: str) -> Run:
    """The stored run `results/NAME.json`: {"machine", "command", "rows"}."""
    return json.loads((RESULTS / f"{name}.json").read_text())


def latest(pattern: str) -> dict | None:
    """The newest stored run whose name fits `pattern` ("h*_distributed*"), or None."""
    runs = [json.loads(path.read_text()) for path in sorted(RESULTS.glob(f"{pattern}.json"))]
    return max(runs, key=lambda run: run["machine"]["date"], default=None)


def where_recorded(run: Run) -> str:
    about = run["machine"]
    triton = f", triton {about['triton']}" if "triton" in about else ""
    return f"recorded on {about['device']}, {about['date']}, torch {about['torch']}{triton}"


def recorded_bars(
    run: Run,
    unit: str,
    variants: Sequence[str],
    rows: Sequence[str] | None = None,
    label: str | None = None,
) -> "Figure":
    """One group of bars per row of a recorded run: row[unit][variant].  rows: which names (default:
    all that have the unit)."""
    import matplotlib.pyplot as plt

    found = {r["name"]: r[unit] for r in run["rows"] if unit in r}
    chosen = {name: found[name] for name in (found if rows is None else rows) if name in found}
    height = 0.9 + 0.115 * (len(variants) + 1) * len(chosen)
    figure, axes = plt.subplots(figsize=(8, height), layout="constrained")
    step = 0.84 / len(variants)
    for number, variant in enumerate(variants):
        hatch, colour = LOOKS.get(variant, ("..", "#dddddd"))
        looks: dict[str, Any] = dict(color=colour, hatch=hatch)
        at = [k + (number - (len(variants) - 1) / 2) * step for k in range(len(chosen))]
        values = [figures.get(variant, 0) for figures in chosen.values()]
        bars = axes.barh(at, values, step, label=variant, **looks)
        texts = [f"{v:,.3g}" if 0 < v < 100 else f"{v:,.0f}" for v in values]
        axes.bar_label(bars, texts, fontsize=7, padding=2)
    axes.set_yticks(range(len(chosen)), list(chosen))
    axes.set_ylim(len(chosen) - 0.5, -0.5)
    axes.grid(visible=False, axis="y")
    better = "shorter" if unit == "ms" else "longer"
    axes.set_xlabel(f"{label or unit} ({better} is better)")
    axes.set_title(where_recorded(run))
    figure.legend(ncols=len(variants), loc="outside lower center")
    return figure


def loss_curves(run: Run) -> "Figure":
    """One panel per row of recorded steps of AdamW: eager's loss as circles, ours as a line."""
    import matplotlib.pyplot as plt

    rows = run["rows"]
    size = (3.2 * len(rows), 2.9)
    figure, panels = plt.subplots(1, len(rows), figsize=size, layout="constrained", squeeze=False)
    for axes, row in zip(panels[0], rows):
        steps = range(1, len(row["eager"]) + 1)
        axes.plot(steps, row["eager"], "o", color=LOOKS["eager"][1], label="eager")
        axes.plot(steps, row["ours"], "-", color=OURS, label="compiled")
        axes.set_title(
            f"{row['name']}\nlargest difference {row['largest difference']:.0e} of the first loss\n"
            f"saved for backward {row['our bytes'] / row['eager bytes']:.2f} of eager's bytes",
            fontsize=8,
        )
        axes.set_xlabel("step of AdamW")
    figure.suptitle(where_recorded(run))
    panels[0][0].set_ylabel("loss")
    panels[0][0].legend()
    return figure


def speedup_bars(rows: list[Run], about: Run | None = None) -> "Figure":
    """Bars of eager / ours and eager / torch.compile with quartiles; above the line at 1 is faster
    than eager.

    Bars begin at zero, so their lengths may be compared.  Hatching tells them apart without
    colour; the value is written above each bar.
    """
    import matplotlib.pyplot as plt

    size = (min(9.6, 1.6 + 1.5 * len(rows)), 3.6)
    figure, axes = plt.subplots(figsize=size, layout="constrained")
    for offset, label in ((-0.2, "ours"), (0.2, "torch.compile")):
        hatch, colour = LOOKS[label]
        looks: dict[str, Any] = dict(color=colour, hatch=hatch, capsize=3)
        for position, row in enumerate(rows):
            if f"eager / {label}" in row:
                middle, low, high = row[f"eager / {label}"]
                place, spread = position + offset, [[middle - low], [high - middle]]
                name = label if position == 0 else None
                axes.bar(place, middle, 0.38, yerr=spread, label=name, **looks)
                above: dict[str, Any] = dict(ha="center", va="bottom", fontsize=8)
                axes.annotate(f"{middle:.1f}", (place, high), **above)
    axes.axhline(1, color="black", linewidth=1, linestyle="--")
    axes.set_xticks(range(len(rows)), [row["name"] for row in rows])
    axes.set_ylim(0, 1.1 * axes.get_ylim()[1])
    axes.grid(visible=False, axis="x")
    axes.set_ylabel("times faster than eager\n(higher is better)")
    axes.legend()
    if about:
        axes.set_title(where(about))
    return figure


def where(about: Run) -> str:
    threads = "1 thread" if about["threads"] == 1 else f"{about['threads']} threads"
    return f"{about['device']}, {threads}, torch {about['torch']}"


def ablation_bars(rows: list[Run], about: Run | None = None) -> "Figure":
    """How many times slower each program is without one optimisation; lines are quartiles, dashed:
    no difference."""
    import matplotlib.pyplot as plt

    labels = list(rows[0]["slower without"])
    lines = -(-len(rows) // 2)
    size = (9, lines * (0.8 + 0.24 * len(labels)))
    figure, every = plt.subplots(
        lines, 2, figsize=size, sharey=True, layout="constrained", squeeze=False
    )
    for axes in every.flat[len(rows) :]:
        axes.set_axis_off()
    for axes, row in zip(every.flat, rows):
        for position, label in enumerate(labels):
            middle, low, high = row["slower without"][label]
            spread = [[max(0, middle - low)], [max(0, high - middle)]]
            colour = OURS if low > 1.05 else NO_GAIN
            looks: dict[str, Any] = dict(color=colour, height=0.7, capsize=2)
            axes.barh(position, middle, xerr=spread, **looks)
            axes.annotate(f" {middle:.2f}", (max(middle, high), position), va="center", fontsize=8)
        axes.axvline(1, color="black", linewidth=1, linestyle="--")
        axes.set_xlim(0, 1.25 * max(v[2] for v in row["slower without"].values()))
        axes.set_title(row["name"])
        axes.set_xlabel("times slower without (right of the line: it helps)")
        axes.set_yticks(range(len(labels)), labels)
        axes.grid(visible=False, axis="y")
    every[0][0].invert_yaxis()
    if about:
        figure.suptitle(f"{where(about)}, {about['date']}")
    return figure


def roofline(
    points: dict[str, tuple[float, float]], bandwidth: float, peak: float, about: Run | None = None
) -> "Figure":
    """points: {name: (operations per byte, operations per second)}; bandwidth in bytes/s and peak
    in operations/s give the roof."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7.5, 4), layout="constrained")
    left, right = 0.05, max(100.0, 4 * peak / bandwidth, 2 * max(i for i, _ in points.values()))
    memory, arithmetic, ridge = bandwidth / 1e9, peak / 1e9, peak / bandwidth
    roof = [memory * left, arithmetic, arithmetic]
    axes.plot([left, ridge, right], roof, color="black", linewidth=1.5)
    axes.annotate(f"memory: {memory:.0f} GB/s", (left * 1.1, memory * left * 6), fontsize=8)
    text = f"arithmetic: {arithmetic:.0f} G operations/s"
    axes.annotate(text, (ridge * 1.1, arithmetic * 1.12), fontsize=8)
    for name, (intensity, rate) in points.items():
        eager = name.endswith(", eager")
        mark, colour = ("s", LOOKS["eager"][1]) if eager else ("o", OURS)
        axes.plot(intensity, rate / 1e9, mark, color=colour, markeredgecolor="black", markersize=7)
        place: dict[str, Any] = dict(xy=(intensity, rate / 1e9), ha="left")
        if not eager and intensity >= right / 10:  # the name stands on the left of the mark
            place = dict(xy=(intensity * 1.3, rate / 1e9 / 1.5), ha="right")
        text = f"   {name}" if place["ha"] == "left" else name
        axes.annotate(text, fontsize=8, va="center", **place)
    labels = dict(xlabel="operations per byte of necessary traffic", ylabel="G operations/s")
    limits = dict(xlim=(left, right), ylim=(None, 2.5 * arithmetic))
    axes.set(xscale="log", yscale="log", **labels, **limits)
    if about:
        title = f"{where(about)}: circles ours, squares eager (higher is better)"
        axes.set_title(title)
    return figure


def timelines(rows: list[dict]) -> Any:
    """One picture for each row: what each lane did when.  rows: {"name", "seconds", "spans": (lane,
    name, begin, end)}, in seconds."""
    import matplotlib.pyplot as plt

    figure, every = plt.subplots(
        len(rows), 1, sharex=True, figsize=(9, 1.25 * len(rows) + 0.5), layout="constrained"
    )
    looks = {"compute": LOOKS["ours"], "wire": LOOKS["wire"]}
    for axes, row in zip(every, rows):
        for lane, _, begin, end in row["spans"]:
            hatch, colour = looks[lane]
            place = list(looks).index(lane)
            axes.barh(
                -place, (end - begin) * 1e3, 0.7, begin * 1e3, color=colour, hatch=hatch,
            )  # fmt: skip
        axes.axvline(row["seconds"] * 1e3, color="black", linestyle=":")
        axes.set_yticks([0, -1], looks)
        axes.set_title(f"{row['name']}: {row['seconds'] * 1e3:.0f} ms")
    every[-1].set_xlabel("ms since the backward pass began")
    return figure


def communication_bars(rows: list[dict]) -> Any:
    """A bar for each timed row of `--suite distributed` with the most ranks: a step without
    communication, and what communication adds."""
    import matplotlib.pyplot as plt

    most = max(row.get("ranks", 0) for row in rows)
    timed = [row for row in rows if "exposed_ms" in row and row["ranks"] == most]
    names = [f"{row['wrapping']}: {row['name']}" for row in timed]
    alone = [row["ms_without_communication"][0] for row in timed]
    figure, axes = plt.subplots(figsize=(9, 0.9 + 0.32 * len(timed)), layout="constrained")
    axes.barh(names, alone, color=OURS, label="without communication")
    axes.barh(
        names, [max(row["exposed_ms"], 0) for row in timed], left=alone,
        color=LOOKS["wire"][1], hatch="///", label="exposed",
    )  # fmt: skip
    axes.invert_yaxis()
    axes.set_xlabel("ms a step")
    axes.grid(visible=False, axis="y")
    axes.legend()
    return figure
