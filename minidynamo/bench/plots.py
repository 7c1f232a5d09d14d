"""Plots of benchmark rows, measured here or recorded elsewhere.

In:   rows of `suites.measure`, or a file of `results/`.  Out: a matplotlib figure.

    >>> speedup_bars(rows, machine())
    >>> recorded_bars(recorded("h100_gpu_kernels"), "GB/s", ("copy", "eager", "ours", "torch.compile"))
"""
import json
from pathlib import Path

RESULTS = Path(__file__).parent / "results"
LOOKS = {"copy": ("", "#555555"), "eager": ("", "#ffffff"), "ours": ("", "#3367d6"), "torch.compile": ("///", "#c6d4f2")}


def recorded(name):
    """The stored run `results/NAME.json`: {"machine", "command", "rows"}."""
    return json.loads((RESULTS / f"{name}.json").read_text())


def where_recorded(run):
    about = run["machine"]
    return f"recorded on {about['device']}, {about['date']}, torch {about['torch']}, triton {about['triton']}"


def recorded_bars(run, unit, variants, rows=None, label=None):
    """One group of bars per row of a recorded run: row[unit][variant].  rows: which names (default: all that have the unit)."""
    import matplotlib.pyplot as plt
    chosen = [r for r in run["rows"] if unit in r and (rows is None or r["name"] in rows)]
    figure, axes = plt.subplots(figsize=(9, 0.9 + 0.17 * (len(variants) + 1) * len(chosen)), layout="constrained")
    step = 0.84 / len(variants)
    for number, variant in enumerate(variants):
        hatch, colour = LOOKS.get(variant, ("..", "#dddddd"))
        at = [k + (number - (len(variants) - 1) / 2) * step for k in range(len(chosen))]
        bars = axes.barh(at, [r[unit].get(variant, 0) for r in chosen], step, color=colour, edgecolor="black", hatch=hatch, label=variant)
        axes.bar_label(bars, [f"{r[unit][variant]:,.3g}" if r[unit].get(variant, 1e9) < 100 else f"{r[unit].get(variant, 0):,.0f}"
                              for r in chosen], fontsize=7, padding=2)
    axes.set_yticks(range(len(chosen)), [r["name"] for r in chosen], fontsize=8)
    axes.invert_yaxis()
    axes.set_xlabel(label or unit)
    axes.set_title(where_recorded(run), fontsize=8)
    figure.legend(frameon=False, fontsize=8, ncols=len(variants), loc="outside lower center")
    return figure


def speedup_bars(rows, about=None):
    """Bars of eager / ours and eager / torch.compile with quartiles; above the line at 1 is faster than eager.

    Hatching tells the bars apart without colour; the value stands above each bar.
    """
    import matplotlib.pyplot as plt
    figure, axes = plt.subplots(figsize=(1.6 + 1.5 * len(rows), 3.6), layout="constrained")
    for offset, label, hatch, colour in ((-0.2, "ours", "", "#3367d6"), (0.2, "torch.compile", "///", "#c6d4f2")):
        for position, row in enumerate(rows):
            value = row.get(f"eager / {label}")
            if value is None:
                continue
            middle, low, high = value
            axes.bar(position + offset, middle, 0.38, color=colour, edgecolor="black", hatch=hatch,
                     label=label if position == 0 else None)
            axes.errorbar(position + offset, middle, [[middle - low], [high - middle]], color="black", capsize=3)
            axes.annotate(f"{middle:.1f}", (position + offset, high), ha="center", va="bottom", fontsize=8)
    axes.axhline(1, color="black", linewidth=1, linestyle="--")
    axes.set_xticks(range(len(rows)), [row["name"] for row in rows])
    axes.set_yscale("log")
    axes.set_ylabel("times faster than eager")
    axes.legend(frameon=False)
    if about:
        axes.set_title(f"{about['device']}, {about['threads']} threads, torch {about['torch']}", fontsize=9)
    return figure
