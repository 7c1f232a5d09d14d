"""What the rows of `--suite paper` say together: the paper's tables and its figure.

In:   rows of `measure.measure`.  Out: dictionaries for JSON.

    >>> rows = [{"name": "a", "group": "timm", "column": "capture", "problem": {},
    ...          "seconds": {"eager": 2.0, "ours": 1.0}, "eager / ours": [2.0, 1.9, 2.1]}]
    >>> summary(rows)["capture"]["all"]["ours"]
    {'right': 1, 'geometric mean': 2.0}
"""

import statistics
from collections.abc import Iterable
from typing import Any

from .measure import COLUMNS, OURS, PEER

Row = dict[str, Any]
GROUPS = ("transformers", "timm", "others", "all")
UNFINISHED = "not finished in"  # the limit of a sitting in which many models compiled at once
NOT_MEASURED = ("absent", "eager failed", "left out")  # says nothing about a compiler


def summary(rows: Iterable[Row]) -> dict[str, dict[str, Row]]:
    """{column: {group: what both compilers reached there}}."""
    rows = list(rows)
    found: dict[str, dict[str, Row]] = {}
    for column in COLUMNS:
        for group in GROUPS:
            chosen = [r for r in rows if r["column"] == column and group in (r["group"], "all")]
            if chosen:
                found.setdefault(column, {})[group] = of_group(chosen)
    return found


def of_group(rows: list[Row]) -> Row:
    """Counts and geometric means of one table's cell.

    models: those that eager runs here.  right: those whose compiled result is right.  Speedups are
    over the right ones; "side by side" holds those that are right with both compilers.
    """
    counted = [row for row in rows if not any(why in row for why in NOT_MEASURED)]
    cell: Row = {"models": len(counted), "absent": len(rows) - len(counted)}
    for label in (OURS, PEER):
        cell[label] = of_compiler(counted, label)
    both = [row for row in counted if f"{PEER} / {OURS}" in row]
    if both:
        cell["side by side"] = side_by_side(both)
    return cell


def of_compiler(rows: list[Row], label: str) -> Row:
    """One compiler's part of a cell; what did not happen is left out."""
    compared = [row for row in rows if f"eager / {label}" in row]
    found: Row = {
        "right": len(compared),
        "geometric mean": mean([row[f"eager / {label}"][0] for row in compared]),
    }
    unknown = sum(not_known(row, label) for row in rows)
    late = sum(UNFINISHED in row.get("problem", {}).get(label, "") for row in rows)
    first = [row["first call s"][label] for row in compared if "first call s" in row]
    found |= {"not known": unknown} if unknown else {}
    found |= {"not finished": late} if late else {}
    return found | ({"first call s": mean(first)} if first else {})


def side_by_side(both: list[Row]) -> Row:
    """Of the rows that are right with both compilers."""
    found: Row = {
        "models": len(both),
        OURS: mean([row[f"eager / {OURS}"][0] for row in both]),
        PEER: mean([row[f"eager / {PEER}"][0] for row in both]),
        f"{PEER} / {OURS}": mean([row[f"{PEER} / {OURS}"][0] for row in both]),
    }
    peaks = [row["peak bytes"] for row in both if row.get("peak bytes", {}).get("eager")]
    if peaks:
        for label in (OURS, PEER):
            ratios = [one[label] / one["eager"] for one in peaks]
            found[f"{label}'s peak / eager's"] = mean(ratios)
    return found


def not_known(row: Row, label: str) -> bool:
    """Did the other compiler take the time away before this one could be timed?"""
    problems = row.get("problem", {})
    asked = f"eager / {label}" in row or label in problems
    return not asked and bool(problems)


def mean(values: list[float]) -> float | None:
    """The geometric mean, or None of nothing."""
    return statistics.geometric_mean(values) if values else None


def failures(rows: Iterable[Row], label: str) -> list[tuple[str, str, str]]:
    """(model, column, cause) wherever this compiler gave no right result."""
    found = []
    for row in rows:
        cause = row.get("failed") or row.get("problem", {}).get(label)
        if cause and not any(why in row for why in NOT_MEASURED):
            found.append((row["name"], row["column"], cause))
    return found
