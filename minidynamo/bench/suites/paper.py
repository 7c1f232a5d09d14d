"""--suite paper: the tables of the PyTorch 2 paper's section 6, over as many models as there
is time for.

    --device cpu|cuda
    --columns "inference fp32;training AMP"     some of measure.COLUMNS (all)
    --seconds N     no model is begun after so long
    --jobs N        models that compile at the same time; each is timed alone.  0: in this process
    --resume        the rows that --json has already are kept: go on behind them
    --only NAME     these models

The order is drawn once: every beginning of it is a fair sample of the three groups.  Tables say how
many models they hold.  A model that failed is listed with its cause, and counts as such.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from ..paper.measure import COLUMNS, Row, measure
from ..paper.models import MODELS, fair_order
from ..paper.tables import print_tables
from .common import suite, wanted

LIMIT = 420  # seconds that a model may take for all its columns


@suite("paper")
def paper(options: Any, result: dict[str, Any]) -> Iterator[Row]:
    """Rows of one model after another, then the tables."""
    columns = options.columns.split(";") if options.columns else list(COLUMNS)
    if unknown := [column for column in columns if column not in COLUMNS]:
        raise SystemExit(f"no column {unknown[0]!r}: there are {', '.join(COLUMNS)}")
    names = [name for name in fair_order(options.seed) if wanted(name, options)]
    if options.jobs == 0:
        for name in names:
            for column in columns:
                yield measure(name, column, options.device, not options.no_peer)
        return
    result |= {"of device": options.device, "models": len(MODELS), "seed": options.seed}
    kept = read_all(options) if options.resume else []
    yield from kept
    done = {(row["name"], row["column"]) for row in kept}
    end = time.monotonic() + options.seconds
    waiting = {n: [c for c in columns if (n, c) not in done] for n in names}
    with tempfile.TemporaryDirectory() as folder:
        os.environ.setdefault("MINIDYNAMO_TURNS", os.path.join(folder, ""))
        with ThreadPoolExecutor(options.jobs) as pool:
            for rows in pool.map(
                lambda name: rows_of(name, waiting[name], options, end),
                [name for name in names if waiting[name]],
            ):
                for row in rows:
                    print(shown(row), flush=True)
                    yield row
    print_tables(result)


def read_all(options: Any) -> list[Row]:
    """The rows of an earlier --json file, a list: several a model."""
    if not options.json or not os.path.exists(options.json):
        return []
    with open(options.json) as file:
        return json.load(file)["rows"]


def rows_of(name: str, columns: list[str], options: Any, end: float) -> list[Row]:
    """A model's rows, from a process of its own; none if the time is over."""
    if time.monotonic() > end:
        return []
    with tempfile.TemporaryDirectory() as folder:
        file = os.path.join(folder, "rows.json")
        command = [sys.executable, "-W", "ignore", "-m", "minidynamo.bench", "--suite", "paper"]
        command += ["--only", f"^{name}$", "--device", options.device, "--json", file]
        command += ["--jobs", "0", "--columns", ";".join(columns)]
        command += ["--no-peer"] if options.no_peer else []
        command += ["--threads", str(options.threads)] if options.threads else []
        problem = ended(command, max(30.0, min(LIMIT, end + 60 - time.monotonic())))
        rows = []
        if os.path.exists(file):
            with open(file) as found:
                rows = json.load(found)["rows"]
    missing = columns[len(rows) :]
    if time.monotonic() > end:
        return rows  # what was cut short is measured next time
    return rows + [
        {"name": name, "group": MODELS[name], "column": column, "failed": problem}
        for column in missing
    ]


def ended(command: list[str], limit: float) -> str:
    """Run a process and what it starts; how it ended, or "" if well."""
    process = subprocess.Popen(
        command,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        _, errors = process.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        return f"not finished in {limit:.0f} s"
    last = (errors.strip().splitlines() or [""])[-1][:200]
    return f"exit {process.returncode}: {last}" if process.returncode else ""


def shown(row: Row) -> str:
    """A line of the terminal."""
    title = f"{row['name'][:36]:36} {row['column']:15}"
    for why in ("absent", "failed", "eager failed"):
        if why in row:
            return f"{title} {why}: {row[why][:90]}"
    seconds = row["seconds"]
    figures = [
        f"{label} {seconds[label] * 1e3:.2f} ms" if label in seconds else f"{label} -"
        for label in ("eager", "ours", "torch.compile")
    ]
    first = ", ".join(f"{value:.1f}" for value in row.get("first call s", {}).values())
    problems = "; ".join(f"{label}: {why}" for label, why in row["problem"].items())
    return f"{title} {', '.join(figures)}; first call s {first} {problems[:160]}"
