"""--suite paper: the tables of the PyTorch 2 paper's section 6, over as many models as there
is time for.

    --device cpu|cuda
    --columns "inference fp32;training AMP"     some of measure.COLUMNS (all); or "ablation", or
                    "mechanisms": ways to capture, side by side, of tiny models on the CPU
    --seconds N     the sitting ends after so long: what is not finished then is not recorded
    --row-seconds N a row may take so long, the start of its process included (170)
    --jobs N        models that compile at the same time; each is timed alone.  0: in this process.
                    Where there are several GPUs, models take them in turn; each GPU has its own
                    share of the processors, so that what runs beside it takes nothing from it
    --resume        the rows that --json has already are kept: go on behind them
    --only NAME     these models

The order is drawn once: every beginning of it is a fair sample of the three groups.  Tables say how
many models they hold.  A model that failed is listed with its cause, and counts as such.
"""

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import torch

from ..paper.ablation import ABLATION, ablated
from ..paper.alone import FOLDER, signal_all
from ..paper.measure import COLUMNS, DURING, OURS, PEER, Row, measure, release
from ..paper.mechanisms import COLUMN, compare
from ..paper.models import MODELS, fair_order
from ..paper.report import print_tables
from ..paper.tables import UNFINISHED
from .common import suite, wanted

ROW_SECONDS = 170  # that a row may take, where --row-seconds does not say otherwise
ROW = "@row "  # begins the line of a row on the standard output of a model's process
MEASURES = dict.fromkeys(COLUMNS, measure) | {ABLATION: ablated, COLUMN: compare}


@suite("paper")
def paper(options: Any, result: dict[str, Any]) -> Iterator[Row]:
    """The tables of the PyTorch 2 paper, over many models; ablations, ways to capture."""
    columns = options.columns.split(";") if options.columns else list(COLUMNS)
    if unknown := [column for column in columns if column not in MEASURES]:
        raise SystemExit(f"no column {unknown[0]!r}: there are {', '.join(MEASURES)}")
    order = fair_order(options.seed)
    names = [name for name in order if wanted(name, options)]
    if options.jobs == 0:
        yield from measured_here(names, columns, options)
        return
    result |= {"of device": options.device, "models": len(MODELS), "seed": options.seed}
    result["command"] += f' --columns "{options.columns}"' if options.columns else ""
    result["command"] += f" --row-seconds {options.row_seconds:g}" if options.row_seconds else ""
    earlier = read_earlier(options) if options.resume else {}
    sitting = {"command": result["command"], "GPUs": len(visible_gpus(options))}
    result["sittings"] = [*earlier.get("sittings", []), sitting]
    kept = earlier.get("rows", [])
    yield from kept
    done = {(row["name"], row["column"]) for row in kept}
    waiting = {}
    for name in names:  # each model begins with another column: a cut is fair to all of them
        first = order.index(name) % len(columns)
        turned = columns[first:] + columns[:first]
        waiting[name] = [column for column in turned if (name, column) not in done]
    for row in all_rows(waiting, options):
        print(shown(row), flush=True)
        yield row
    print_tables(result)


def measured_here(names: list[str], columns: list[str], options: Any) -> Iterator[Row]:
    """The rows, measured in this process, each printed for the process that waits for it."""
    for name in names:
        for column in columns:
            try:
                row = MEASURES[column](name, column, options.device, not options.no_peer)
            except torch.OutOfMemoryError:  # with other models on the GPU; it comes again
                release(options.device)
                continue
            print(f"{ROW}{json.dumps(row)}", flush=True)
            yield row


def read_earlier(options: Any) -> Row:
    """An earlier --json file: its rows, several a model, and the sittings that gave them."""
    if not options.json or not os.path.exists(options.json):
        return {}
    with open(options.json) as file:
        return json.load(file)


def all_rows(waiting: dict[str, list[str]], options: Any) -> Iterator[Row]:
    """The rows of all models in the order in which they are done."""
    found: queue.Queue[Row | None] = queue.Queue()
    end = time.monotonic() + (options.seconds or 200)
    with tempfile.TemporaryDirectory() as folder:
        gpus = visible_gpus(options)
        for gpu in gpus:
            os.mkdir(os.path.join(folder, f"gpu{gpu}"))

        def of_model(name: str, gpu: str) -> None:
            try:
                place = Place(gpu, os.path.join(folder, f"gpu{gpu}"), shares[gpu])
                for row in rows_of(name, waiting[name], options, end, place):
                    found.put(row)
            finally:
                found.put(None)

        shares = shares_of_processors(gpus)
        with ThreadPoolExecutor(options.jobs) as pool:
            for number, name in enumerate(waiting):
                pool.submit(of_model, name, gpus[number % len(gpus)])
            unfinished = len(waiting)
            while unfinished:
                row = found.get()
                if row is None:
                    unfinished -= 1
                else:
                    yield row


def visible_gpus(options: Any) -> list[str]:
    """The GPUs that the models take in turn, as CUDA_VISIBLE_DEVICES names them; [""]: none."""
    if options.device != "cuda":
        return [""]
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    return named.split(",") if named else list(map(str, range(torch.cuda.device_count())))


@dataclass(frozen=True)
class Place:
    """Where a model's process runs."""

    gpu: str  # as CUDA_VISIBLE_DEVICES names it; "": none
    folder: str  # of the processes that are stopped while one of them times (`alone`)
    processors: set[int]


def shares_of_processors(gpus: list[str]) -> dict[str, set[int]]:
    """GPU -> the processors of its processes; all of them where the system cannot say."""
    if not hasattr(os, "sched_getaffinity"):
        return {gpu: set() for gpu in gpus}
    usable = sorted(os.sched_getaffinity(0))
    size = len(usable) // len(gpus)
    return {gpu: set(usable[i * size : (i + 1) * size]) for i, gpu in enumerate(gpus)}


def rows_of(name: str, columns: list[str], options: Any, end: float, place: Place) -> Iterator[Row]:
    """A model's rows as they come, from a process of its own; after a crash or a column that takes
    too long, another process goes on with the other columns.  None when the time is over."""
    while columns and time.monotonic() < end:
        process = Process(name, columns, options, end, place)
        for row in process.rows():
            columns = [column for column in columns if column != row["column"]]
            yield row
        if time.monotonic() > end or not process.problem:
            return  # cut short by the end, or without memory: measured next time
        failed, *columns = columns
        about = {"name": name, "group": MODELS[name], "column": failed}
        if process.during in (OURS, PEER):
            yield about | {"problem": {process.during: process.problem}, "seconds": {}}
        else:
            yield about | {"failed": process.problem}


class Process:
    """A process that measures one model, and is killed when a row takes too long."""

    def __init__(
        self, name: str, columns: list[str], options: Any, end: float, place: Place
    ) -> None:
        command = [sys.executable, "-W", "ignore", "-m", "benchmarks", "--suite", "paper"]
        command += ["--only", f"^{name}$", "--device", options.device]
        command += ["--jobs", "0", "--columns", ";".join(columns)]
        command += ["--no-peer"] if options.no_peer else []
        command += ["--threads", str(options.threads)] if options.threads else []
        self.problem, self.during, self.end = "", "", end
        self.limit: float = options.row_seconds or ROW_SECONDS
        self.errors = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            text=True,
            start_new_session=True,
            env=os.environ | {"CUDA_VISIBLE_DEVICES": place.gpu, FOLDER: place.folder},
        )
        if place.processors:
            with contextlib.suppress(ProcessLookupError):
                os.sched_setaffinity(self.process.pid, place.processors)
        self.folder = place.folder
        self.entry = os.path.join(self.folder, str(self.process.pid))
        with open(self.entry, "w"):
            pass
        self.timer = threading.Timer(0, self.kill)
        self.wait()

    def wait(self) -> None:
        """Kill the process if there is no row for so long, or at the end of the sitting."""
        self.timer.cancel()
        limit = max(0.0, min(self.limit, self.end - time.monotonic()))
        self.timer = threading.Timer(limit, self.kill)
        self.timer.start()

    def kill(self) -> None:
        self.problem = f"{UNFINISHED} {self.limit:.0f} s"
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        signal_all(self.folder, signal.SIGCONT)  # it may have been the one that timed

    def rows(self) -> Iterator[Row]:
        """Its rows; afterwards `problem` says how it ended, "" if well."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith(DURING):
                self.during = line.removeprefix(DURING).strip()
            elif line.startswith(ROW):
                self.wait()
                self.during = ""
                yield json.loads(line.removeprefix(ROW))
        code = self.process.wait()
        self.timer.cancel()
        os.unlink(self.entry)
        if code and not self.problem:
            self.errors.seek(0)
            last = (self.errors.read().strip().splitlines() or [""])[-1][:200]
            self.problem = f"exit {code}: {last}"
        self.errors.close()


def shown(row: Row) -> str:
    """A line of the terminal."""
    title = f"{row['name'][:36]:36} {row['column']:15}"
    for why in ("absent", "failed", "eager failed", "left out"):
        if why in row:
            return f"{title} {why}: {row[why][:90]}"
    if "state" in row:
        return f"{title} " + ", ".join(f"{label} {state}" for label, state in row["state"].items())
    seconds = row["seconds"]
    figures = [
        f"{label} {seconds[label] * 1e3:.2f} ms" if label in seconds else f"{label} -"
        for label in ("eager", "ours", "torch.compile")
    ]
    first = ", ".join(f"{value:.1f}" for value in row.get("first call s", {}).values())
    problems = "; ".join(f"{label}: {why}" for label, why in row["problem"].items())
    return f"{title} {', '.join(figures)}; first call s {first} {problems[:160]}"
