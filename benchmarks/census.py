"""One case of the census: compiled, checked, timed; and what many rows say together.

In:   a `Case`.  Out: a row: seconds of eager, ours, torch.compile and a copy of as many bytes, in
      rounds whose order is drawn; ratios with quartiles; a word on *why* (`why`).

    >>> row = measure(case, "cpu", {"peer": True})
    >>> row["torch.compile / ours"], row["share of the copy"], row["why"]

`summary(rows)`: geometric means within classes, then over them (each class weighs the same), the
5th percentile, the worst.
"""

import random
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch

import minidynamo

from .census_grid import IN_THE_ISSUE, Case
from .runner import Timing, interleave, ratio, tensors_of

Row = dict[str, Any]
LAUNCH = 12e-6  # seconds: a kernel below this is a launch and little else
TRANSCENDENTAL = (
    *("exp", "log", "sin", "cos", "tanh", "erf", "sigmoid", "pow", "atan", "sinh", "cosh"),
    *("gelu", "silu", "mish", "softplus", "atan2", "asinh", "expm1", "log1p"),
)


def compilers(peer: bool) -> dict[str, tuple[Callable, Callable]]:
    """{label: (compile, forget what was compiled)}."""
    if peer:
        import torch._inductor.config

        # what the processor says that it can is not tried out, in a process of its own, by each of
        # ours: with 16 of them that took 40 seconds
        torch._inductor.config.cpp.vec_isa_ok = True
    found = {"ours": (minidynamo.compile, minidynamo.reset)}
    return found | {"torch.compile": (torch.compile, torch.compiler.reset)} if peer else found


def in_fair_order(cases: Iterable[Case], seed: int) -> list[Case]:
    """One case of each class, then another of each, and so on, drawn by the seed: every beginning
    is a fair sample.  The classes that an issue names stand first in each round."""
    order, classes = random.Random(seed), defaultdict(list)
    for case in cases:
        classes[case.kind].append(case)
    for found in classes.values():
        order.shuffle(found)
    named = sorted(classes, key=lambda kind: (kind not in IN_THE_ISSUE, kind))
    most = max(map(len, classes.values()), default=0)
    return [classes[k][n] for n in range(most) for k in named if n < len(classes[k])]


# --- one row --------------------------------------------------------------------------------------
def size(tensor: torch.Tensor) -> int:
    """Bytes of the numbers that it really has: those of broadcast axes count once."""
    count = 1
    for length, stride in zip(tensor.shape, tensor.stride()):
        count *= length if stride else 1
    return count * tensor.element_size()


def measure(case: Case, device: str, *, peer: bool, budget: float = 0.4) -> Row:
    """A row.  peer: with torch.compile.  budget: seconds of timing."""
    row: Row = {"name": case.name, "class": case.kind}
    inputs = case.inputs(device)
    expected = case.function(*inputs)
    exact = case.function(*[t.double() if t.is_floating_point() else t for t in inputs])
    outputs = sum(map(size, tensors_of(expected)))
    read = sum(map(size, inputs)) if case.reads is None else case.reads
    row["least bytes"] = read + outputs
    row["outputs"] = max(t.numel() for t in tensors_of(expected))
    variants: dict[str, Callable] = {"eager": lambda: case.function(*inputs)}
    for label, (compiler, reset) in compilers(peer).items():
        try:
            reset()
            compiled, start = compiler(case.function), time.perf_counter()
            result = compiled(*inputs)
            row.setdefault("first call s", {})[label] = time.perf_counter() - start
            if label == "ours":
                row |= what_ours_did()
            if wrong := disagreement(result, expected, exact):
                row.setdefault("wrong", {})[label] = wrong
            else:
                variants[label] = lambda compiled=compiled: compiled(*inputs)
        except Exception as problem:
            row.setdefault("failed", {})[label] = f"{type(problem).__name__}: {problem}"[:300]
    del expected, exact
    half = max(1, row["least bytes"] // 2)
    source = torch.ones(half, dtype=torch.uint8, device=device)  # (zeros may share a page)
    target = torch.empty_like(source)
    variants["copy"] = lambda: target.copy_(source)
    timings = times(variants, device, budget)
    row["seconds"] = {label: timing.median for label, timing in timings.items()}
    row["rounds"] = len(timings["eager"].seconds)
    return row | ratios(timings)


def times(variants: Mapping[str, Callable], device: str, budget: float) -> dict[str, Timing]:
    """In rounds, each in an order of its own: by events on a GPU, by the host's clock on a CPU."""
    if device == "cpu":
        return interleave(variants, budget, rounds=(7, 25), shuffled=True)
    from .suites.gpu import event_times

    found = event_times(variants, rounds=25)
    return {label: Timing([ms / 1e3 for ms in each]) for label, each in found.items()}


def ratios(timings: Mapping[str, Timing]) -> Row:
    """Ratios within rounds: median and quartiles."""
    if "ours" not in timings:
        return {}
    found: Row = {"eager / ours": ratio(timings, "eager", "ours")}
    found["share of the copy"] = ratio(timings, "copy", "ours")[0]
    if "torch.compile" in timings:
        found["torch.compile / ours"] = ratio(timings, "torch.compile", "ours")
        found["torch.compile / eager"] = ratio(timings, "torch.compile", "eager")[0]
    return found


def what_ours_did() -> Row:
    """Kernels, bytes and eager kernels of what was compiled last, and how many operations of its
    graphs need more than a few instructions."""
    found: Row = {"kernels": 0, "bytes": 0, "eager kernels": [], "slow operations": 0, "breaks": 0}
    for frame in minidynamo.records.frames:
        found["breaks"] += len(frame.graph_breaks)
        if frame.graph is not None:
            names = [str(getattr(n.target, "__name__", n.target)) for n in frame.graph.graph.nodes]
            found["slow operations"] += sum(n.split(".")[0] in TRANSCENDENTAL for n in names)
        if (record := frame.backend_record) is not None:
            found["kernels"] += len(record.kernels)
            found["bytes"] += sum(k.bytes_read + k.bytes_written for k in record.kernels)
            found["eager kernels"] += [fallback.op for fallback in record.fallbacks]
    return found


def disagreement(result: Any, expected: Any, exact: Any) -> str:
    """Why a result is wrong, or "".  Its error against float64 may be twice eager's; integers must
    be eager's but for ties and rounding (99 of 100; of 16-bit inputs, full of ties, half)."""
    for a, b, c in zip(*map(tensors_of, (result, expected, exact)), strict=True):
        if a.shape != b.shape or a.dtype != b.dtype:
            return f"{a.dtype} {tuple(a.shape)} instead of {b.dtype} {tuple(b.shape)}"
        if a.is_floating_point():
            norm = c.double().norm().item() + 1e-30
            ours, theirs = ((t.double() - c.double()).norm().item() / norm for t in (a, b))
            if not ours <= 2 * theirs + 1e-6:
                return f"error {ours:.1e}, eager's {theirs:.1e}"
        elif (a == b).double().mean().item() < 0.5:
            return "other integers"
    return ""


# --- why ------------------------------------------------------------------------------------------
def why(row: Row, device: str) -> str:
    """What a roofline says of a row: why ours takes longer than the copy of its least bytes."""
    if "ours" not in row.get("seconds", {}):
        return "; ".join(
            f"{k} {row[k]['ours']}" for k in ("failed", "wrong") if "ours" in row.get(k, {})
        )
    reasons, share = [], row["share of the copy"]
    if row.get("breaks"):
        reasons.append(f"{row['breaks']} graph breaks")
    if row["eager kernels"]:
        reasons.append("eager kernels: " + ", ".join(dict.fromkeys(row["eager kernels"])))
    if share >= 0.9:
        return "; ".join([*reasons, "at the copy"])
    passes = row["bytes"] / row["least bytes"]
    if passes > 1.25:
        reasons.append(f"extra pass: {passes:.1f} times the least bytes, {row['kernels']} kernels")
    if device == "cuda" and row["seconds"]["ours"] < LAUNCH:
        reasons.append("launch-bound")
    if row["slow operations"] >= 2:
        reasons.append(f"transcendental: {row['slow operations']} operations")
    if device == "cuda" and row["outputs"] < 1024 and row["kernels"] == 1:
        reasons.append(f"occupancy: {row['outputs']} outputs in one kernel")
    return "; ".join(reasons) or "one pass: layout, block shape or latency"


# --- many rows ------------------------------------------------------------------------------------
def summary(rows: Sequence[Row], against: str = "torch.compile / ours") -> Row:
    """Geometric means of classes and over them, percentiles, the worst 20."""
    valued = [(row[against][0], row) for row in rows if against in row]
    classes = defaultdict(list)
    for value, row in valued:
        classes[row["class"]].append(value)
    means = {kind: statistics.geometric_mean(found) for kind, found in classes.items()}
    values = sorted(value for value, _ in valued)
    return {
        "rows": len(rows),
        "with figures": len(values),
        "classes": dict(sorted(means.items(), key=lambda item: item[1])),
        "counts": {kind: len(found) for kind, found in classes.items()},
        "geometric mean over classes": statistics.geometric_mean(means.values()) if means else None,
        "5th percentile": values[len(values) // 20] if values else None,
        "median": statistics.median(values) if values else None,
        "below 0.85": sum(value < 0.85 for value in values),
        "eager faster by 5 %": sum(r.get("eager / ours", [1])[0] < 0.95 for r in rows),
        "wrong": [r["name"] for r in rows if "ours" in r.get("wrong", {})],
        "failed": [r["name"] for r in rows if "ours" in r.get("failed", {})],
        "worst": [row["name"] for _, row in sorted(valued, key=lambda item: item[0])[:20]],
    }
