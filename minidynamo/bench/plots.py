"""Plots of benchmark rows.

In:   rows of `suites.measure`.  Out: a matplotlib figure.

    >>> speedup_bars(rows, machine())
"""


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
