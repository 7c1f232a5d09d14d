"""The recorded tables of the paper's experiments, for notebook 17 and docs/paper.md.

In:   files of `results/` (h100_paper, h100_paper_ablation, cpu_paper_capture).
Out:  lists of rows for a table, one sentence of where they come from, a figure.

    >>> HEADLINE["inference"], HEADLINE["training"]
    (2.27, 1.41)

What the paper reports is in `HEADLINE` and `CAPTURED`, and labelled as the paper's wherever it is
shown: another GPU (an A100), other versions, larger batches, other models.
"""

import json
import statistics
import textwrap
from collections import Counter
from typing import Any

from .ablation import ABLATION, CUDA_GRAPH, WITH_ALL
from .measure import COLUMNS, OURS, PEER, Row
from .mechanisms import CANNOT, MECHANISMS, WORKS, WRONG, table
from .tables import NOT_MEASURED, failures, mean, summary

# PyTorch 2 paper (ASPLOS 2024): abstract, and section 6's share of models that are captured.
HEADLINE = {"inference": 2.27, "training": 1.41}
CAPTURED = {"TorchBench": 93, "Hugging Face": 100, "TIMM": 100}
Cells = list[list[str]]


def shown(value: float | None, digits: int = 2) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def where(run: Row) -> str:
    """The device, the versions, the date; the commands that measure it again, one a sitting."""
    about = run["machine"]
    versions = [f"{name} {about[name]}" for name in ("torch", "triton") if name in about]
    return f"{', '.join([about['device'], *versions, about['date']])}: {commands_of(run)}"


def commands_of(run: Row) -> str:
    """The commands of a run's sittings; of many the last, and how many came before."""
    sittings = run.get("sittings", [{"command": run["command"], "GPUs": 1}])
    if len(sittings) > 2:
        return f"{command_of(sittings[-1])},\nthe last of {len(sittings)} sittings"
    return ",\nthen\n".join(map(command_of, sittings))


def command_of(sitting: Row) -> str:
    several = f"on {sitting['GPUs']} GPUs\n" if sitting["GPUs"] > 1 else ""
    note = f"\n({sitting['note']})" if "note" in sitting else ""
    return f"{several}{spanned(sitting['command'])}{note}"


def spanned(command: str) -> str:
    """A command as a code span of Markdown, which may go over several lines."""
    return "`" + textwrap.fill(command, 96, break_on_hyphens=False) + "`"


def sittings(run: Row) -> tuple[list[str], Cells]:
    """Every sitting in which rows were measured, the first one first."""
    cells = [
        [str(one["GPUs"]), f"`{one['command']}`", one.get("note", "")] for one in run["sittings"]
    ]
    return ["GPUs", "command", ""], cells


def speedups(run: Row) -> tuple[list[str], Cells]:
    """Geometric means over eager, of the models that are right with both compilers."""
    head = ["column", "group", "models", "right: ours", PEER, "speedup: ours", PEER]
    head += [f"{PEER} / ours", "first call, s: ours", PEER, "the paper (A100)"]
    cells = []
    for column, groups in summary(run["rows"]).items():
        if column == "capture":
            continue
        for group, cell in groups.items():
            both = cell.get("side by side", {})
            line = [column, group, str(cell["models"])]
            line += [right_of(cell, label) for label in (OURS, PEER)]
            line += [shown(both.get(key)) for key in (OURS, PEER, f"{PEER} / {OURS}")]
            line += [shown(cell[label].get("first call s"), 1) for label in (OURS, PEER)]
            kind = column.split()[0]
            cells.append([*line, shown(HEADLINE[kind]) if group == "all" else ""])
    return head, cells


def right_of(cell: Row, label: str) -> str:
    """ "11 of 12 (2 not finished)", without the models whose time the other compiler had used
    up."""
    found = cell[label]
    late = found.get("not finished", 0)
    judged = cell["models"] - found.get("not known", 0) - late
    return f"{found['right']} of {judged}" + (f" ({late} not finished)" if late else "")


def overheads(run: Row) -> tuple[list[str], Cells]:
    """Time with a backend that runs the graph as it is, over eager's: below 1, capture gains."""
    head = ["group", "models", "time / eager's: ours", PEER, "slowest: ours", PEER]
    cells = []
    rows = [row for row in run["rows"] if row["column"] == "capture"]
    for group in ("transformers", "timm", "others", "all"):
        chosen = [r for r in rows if group in (r["group"], "all") and f"{PEER} / {OURS}" in r]
        if not chosen:
            continue
        times = {
            label: [1 / row[f"eager / {label}"][0] for row in chosen] for label in (OURS, PEER)
        }
        line = [shown(mean(times[label]), 3) for label in (OURS, PEER)]
        line += [shown(max(times[label]), 3) for label in (OURS, PEER)]
        cells.append([group, str(len(chosen)), *line])
    return head, cells


def call_overheads(run: Row) -> tuple[list[str], Cells]:
    """Microseconds of processor time a call beyond eager's, of tiny models on a CPU."""
    head = ["beyond eager's, microseconds a call", "models", "median", "least", "most"]
    cells = []
    for label in (OURS, PEER):
        found = [1e6 * r["overhead"][label] for r in run["rows"] if label in r.get("overhead", {})]
        line = [statistics.median(found), min(found), max(found)] if found else [None] * 3
        cells.append([label, str(len(found)), *(shown(value, 0) for value in line)])
    return head, cells


def captures(run: Row) -> tuple[list[str], Cells]:
    """For how many models each mechanism works, gives a wrong result, or cannot."""
    if not any("state" in row for row in run["rows"]):
        return [], []
    head = ["mechanism", WORKS, WRONG, CANNOT, "share that works", "seconds of capture"]
    cells = []
    for label, cell in table(run["rows"]).items():
        count = sum(cell[state] for state in (WORKS, WRONG, CANNOT))
        line = [str(cell[state]) for state in (WORKS, WRONG, CANNOT)]
        share = f"{100 * cell[WORKS] / count:.0f} %" if count else "-"
        cells.append([label, *line, share, shown(cell["seconds"])])
    return head, cells


def capture_causes(run: Row, most: int = 4) -> tuple[list[str], Cells]:
    """Why, most frequent first."""
    cells = []
    for label in MECHANISMS:
        causes = Counter(
            f"{row['state'][label]}: {row['cause'][label].split(': ')[0]}"
            for row in run["rows"]
            if label in row.get("cause", {})
        )
        cells += [[label, cause, str(count)] for cause, count in causes.most_common(most)]
    for row in run["rows"]:
        if "failed" in row:
            cells.append(["(all)", f"{row['name']} is left out: {row['failed']}", "1"])
    return ["mechanism", "what happened", "models"], cells


def whole_graphs(run: Row) -> str:
    """A sentence on ours: graphs, and frames with breaks."""
    rows = [row for row in run["rows"] if "graphs" in row]
    whole = sum(not row["breaks"] for row in rows)
    return f"Of {len(rows)} models ours captures {whole} without a graph break."


def ablations(run: Row) -> tuple[list[str], Cells]:
    """Time without an optimisation over the time with all of them, over the models."""
    rows = [row for row in run["rows"] if "slower without" in row]
    labels = list(dict.fromkeys(label for row in rows for label in row["slower without"]))
    cells = []
    for label in labels:
        found = [row["slower without"][label][0] for row in rows if label in row["slower without"]]
        if label == "eager":
            name = "eager"
        else:
            name = label if label == CUDA_GRAPH else f"without {label}"
        kernels = [
            row["kernels"][label] / row["kernels"][WITH_ALL]
            for row in rows
            if label in row["kernels"] and row["kernels"].get(WITH_ALL)
        ]
        line = [str(len(found)), shown(mean(found)), shown(min(found)), shown(max(found))]
        cells.append([name, *line, shown(mean(kernels))])
    for row in run["rows"]:
        if row.get("column") == ABLATION and (why := row.get("left out") or row.get("failed")):
            cells.append([f"({row['name']} is left out: {why.split(':')[0]})", *["-"] * 5])
    head = ["", "models", "time / time with all", "least", "most", "kernels / kernels with all"]
    return head, cells


def unfinished(run: Row) -> tuple[list[str], Cells]:
    """Every row without a right result, with its cause; and what could not be asked here."""
    cells = [
        [label, name, column, on_one_line(cause)]
        for label in (OURS, PEER)
        for name, column, cause in failures(run["rows"], label)
    ]
    for row in run["rows"]:
        for why in NOT_MEASURED:
            if why in row:
                cells.append([why, row["name"], row["column"], on_one_line(row[why])])
    return ["", "model", "column", "cause"], cells


def on_one_line(cause: str) -> str:
    """The beginning of a message, as a cell of a table."""
    return " ".join(cause.split()).replace("|", "/")[:110]


def draw(run: Row) -> Any:
    """A figure: of each column the sorted speedups, and a histogram of them."""
    import matplotlib.pyplot as plt

    from ..plots import LOOKS

    columns = [column for column in COLUMNS if column != "capture"]
    figure, axes = plt.subplots(2, len(columns), figsize=(11, 5), layout="constrained")
    ours, peer = LOOKS["ours"][1], LOOKS["torch.compile"][1]
    for place, column in enumerate(columns):
        curve, bars = axes[0][place], axes[1][place]
        found = {
            label: sorted(
                row[f"eager / {label}"][0]
                for row in run["rows"]
                if row["column"] == column and f"eager / {label}" in row
            )
            for label in (OURS, PEER)
        }
        for label, colour, line in ((OURS, ours, "-"), (PEER, peer, "--")):
            curve.plot(found[label], line, color=colour, label=label)
        curve.axhline(HEADLINE[column.split()[0]], color="black", linestyle=":", label="paper")
        curve.set(title=column, xlabel="models, sorted", ylabel="speedup over eager")
        bars.hist(list(found.values()), 8, color=[ours, peer], label=[OURS, PEER])
        bars.set(xlabel="speedup over eager", ylabel="models")
    axes[0][0].legend()
    return figure


def print_tables(run: Row) -> None:
    """Enter the summary into a run, and print the tables that it has rows for."""
    run["summary"] = summary(run["rows"])
    for make in (speedups, overheads, ablations, captures, unfinished):
        head, cells = make(run)
        if cells:
            print(f"\n{(make.__doc__ or '').strip()}")
            widths = [max(map(len, column)) for column in zip(head, *cells)]
            for line in (head, *cells):
                print("  ".join(f"{cell:{width}}" for cell, width in zip(line, widths)))


def recorded(name: str) -> Row | None:
    """The run `results/NAME.json`, or None where it has not been made yet."""
    from ..plots import RESULTS

    path = RESULTS / f"{name}.json"
    return json.loads(path.read_text()) if path.exists() else None
