"""Writes what can be written of the documentation: the API from the docstrings, figures from JSON.

    python tools/documentation.py            # writes the pages and the README's table anew
    python tools/documentation.py --check    # names the pages that are not as they would be written

In:   the packages' docstrings, `benchmarks/results/*.json`.
Out:  docs/api.md, docs/combinations.md, docs/paper.md, the README's table of figures.

Other pages of docs/ are written by hand.  tests/test_documentation.py holds both kinds to the code.
"""

import argparse
import ast
import importlib
import inspect
import json
import re
import statistics
import sys
import textwrap
from collections.abc import Iterable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results"
MARK = "<!-- written by `make docs`: figures -->"
SPREAD = 1.5  # quartiles of a ratio further apart than this were taken on too busy a machine
PRECISIONS = {"bf16": "bfloat16", "fp32": "float32"}


def results(name: str) -> dict[str, Any]:
    return json.loads((RESULTS / f"{name}.json").read_text())


# --- the README's figures -------------------------------------------------------------------------
def figures_table() -> str:
    """Geometric means of torch.compile / ours and eager / ours over the models of one kind."""
    found = results("h100_gpu_models")
    models = "GPT-2, BERT, Llama, ViT, ResNet-50, ConvNeXt, MobileNetV3"
    columns = [
        models,
        "rows",
        "torch.compile / ours",
        "eager / ours",
        "torch.compile / ours at worst",
    ]
    rows = [f"| {' | '.join(columns)} |", "|---|---|---|---|---|"]
    for training in (False, True):
        for short, precision in PRECISIONS.items():
            times = [
                row["ms"]
                for row in found["rows"]
                if short in row["name"] and ("training" in row["name"]) is training
            ]
            kind = "training (forward and backward)" if training else "inference"
            peer, eager = (
                [ms[other] / ms["ours"] for ms in times] for other in ("torch.compile", "eager")
            )
            mean = statistics.geometric_mean
            rows.append(
                f"| {kind}, {precision} | {len(times)} | {mean(peer):.2f} | {mean(eager):.2f} "
                f"| {min(peer):.2f} |"
            )
    return "\n".join([*rows, "", made_by(found)])


def made_by(found: dict[str, Any]) -> str:
    """The machine, the versions, the commands and the date of a file of results."""
    from benchmarks.paper import report

    machine = found["machine"]
    threads = machine["threads"]
    parts = [machine["device"], f"{threads} thread{'s' if threads > 1 else ''}"]
    parts += [f"{name} {machine[name]}" for name in ("torch", "triton") if name in machine]
    text = f"{', '.join(parts)};\n{report.commands_of(found)},"
    fits = len(text.splitlines()[-1]) + len(machine["date"]) + 2 <= 100
    return f"{text}{' ' if fits else chr(10)}{machine['date']}."


def readme() -> str:
    before, _, after = (ROOT / "README.md").read_text().split(MARK)
    return MARK.join([before, f"\n\n{figures_table()}\n", after])


# --- docs/combinations.md -------------------------------------------------------------------------
COMBINATIONS = """# Two captures, two compilers, four combinations

<!-- written by `make docs` from benchmarks/results/combinations_cpu.json -->

A compiler of PyTorch programs has two halves: one *captures* graphs from running Python, the other
*compiles* them. Ours have the same interface as torch.compile's: the capture passes an
`fx.GraphModule` and example inputs, and the compiler returns a callable. So each capture works with
each compiler:

```python
torch.compile(f)  # theirs and theirs
torch.compile(f, backend="miniinductor")  # their capture, our compiler
minidynamo.compile(f, backend=lookup_backend("inductor"))  # our capture, their compiler
minidynamo.compile(f)  # ours and ours
```

Install the package, and torch.compile finds `"miniinductor"` by its name (an entry point in the
group `torch_dynamo_backends`); `options={{"fusion": False}}` sets options of `miniinductor.config`.
The packages import nothing of torch's compiler, so you look up its backends yourself: `from
torch._dynamo.backends.registry import lookup_backend`. Mark a backend of your own that calls
torch's compiler with `@minidynamo.torch_backend`.

**Sizes that change** become numbers at the border, and the capture adds a guard. So each new size
is compiled again, up to the limit of recompilations. (torch.compile makes symbols of such sizes
unless you pass `dynamic=False`. With `backend="miniinductor"` such a graph runs eagerly.)

## Which half makes which difference

{rows}

The table counts graphs and kernels over all calls, in training forward and backward. The last
column divides eager's time by the compiled call's (above 1: faster than eager). It has the median
over interleaved rounds, and the quartiles; it has no median if the quartiles are far apart. Compare
rows of one program.

The times are processor seconds of one thread, which do not count while other programs run. The
rows of training are older (2026-11-22), and count real time. Compile times are measured elsewhere
(`--suite compile-time`, one process for each): in one process the second combination would find
what the first has built.

{made_by}

The capture decides the number of graphs, and the compiler the number of kernels. If both captures
find the same graphs, the compiler decides nearly all of the time, too.

## What does not cross

With `capture_dynamic_output_shape_ops`, torch.compile captures sizes that are unknown until the
graph runs. Graphs with such sizes, and graphs with higher-order operators (`torch.cond`), run
eagerly if torch.compile passes them to miniinductor. The logger `minidynamo` says so. A float that
changes from call to call becomes a tensor if the program only combines it with tensors of floats.
Otherwise it becomes a number with a guard.
"""


def told(middle: float, low: float, high: float) -> str:
    """A ratio with its quartiles; without its median where they are far from each other."""
    if high > SPREAD * low:
        return f"not told: {low:.2f} to {high:.2f}"
    return f"{middle:.2f} ({low:.2f} to {high:.2f})"


def combinations_page() -> str:
    found = results("combinations_cpu")
    rows = ["| program | capture | compiler | graphs | kernels | eager / compiled |"]
    rows.append("|---|---|---|---|---|---|")
    for row in found["rows"]:
        rows.append(
            f"| {row['name']} | {row['capture']} | {row['backend']} | {row['graphs']} "
            f"| {row['kernels']} | {told(*row['eager / this'])} |"
        )
    return COMBINATIONS.format(rows="\n".join(rows), made_by=made_by(found))


# --- docs/paper.md --------------------------------------------------------------------------------
PAPER = """# The tables of the PyTorch 2 paper, measured here

<!-- written by `make docs` from benchmarks/results/*paper*.json -->

The paper reports {inference} times eager's speed in inference and {training} times in training, on
an A100. It captures {captured}.

The tables below are our measurements: eager, torch.compile and ours in one process for each model,
with random weights. The GPU, the versions, the batches and the models differ from the paper's. So
compare the columns of one table, not a table with the paper. [Chapter
17](../notebooks/17_paper.ipynb) draws the tables, and says why they differ from the paper's.
"""
PAPER_TABLES = (  # title, file of results, function of report.py, what to know
    (
        "Speedup over eager",
        "h100_paper",
        "speedups",
        "Geometric means over the models whose results are right with both compilers. Several\n"
        "models compile at once, so the first calls of both compilers take longer than alone. A\n"
        "model had 170 to 300 seconds; the table counts those that did not finish.",
    ),
    (
        "Overhead of capture on a GPU",
        "h100_paper",
        "overheads",
        "The backend runs the graph as it is. Below 1 the graph is faster than the Python code.",
    ),
    (
        "Ablation on a GPU",
        "h100_paper_ablation",
        "ablations",
        "Inference in bfloat16. A row switches off one optimisation or several; one row adds\n"
        "a CUDA graph.",
    ),
    (
        "Ablation on a CPU",
        "cpu_paper_ablation",
        "ablations",
        "Inference in float32 on two threads, of small models, while others compiled on other\n"
        "cores. Some switches serve all kernels, others the C++ writer alone.",
    ),
    (
        "Rows without a right result on the GPU",
        "h100_paper",
        "unfinished",
        "These models have no speedup. Two causes are known. The gradients of `fcn_resnet50` go\n"
        "through fifty batch norms: on a CPU, eager's own gradients are wrong by 0.02 in float32\n"
        "and by 1.3 under bfloat16, and ours by as much. (The judge now allows for this, with\n"
        "`measure.Judge.nudged`; it did not when these rows were measured.) DeepseekV3 sends a\n"
        "token to another expert if its score is rounded differently.",
    ),
    (
        "Sittings on the GPU",
        "h100_paper",
        "sittings",
        "A sitting is one session on the machine. Each continues after the rows of the sitting\n"
        "before it (`--resume`). Together they are one run in a fair order, which ended when its\n"
        "time was over.",
    ),
    (
        "Ways to capture",
        "cpu_paper_capture",
        "captures",
        "Each mechanism captures a model in eval mode from one batch. Then it must handle other\n"
        "values in a larger batch, and then `train()`. Seconds are geometric means over the\n"
        "models that a mechanism captures.",
    ),
    (
        "Why a mechanism does not work",
        "cpu_paper_capture",
        "capture_causes",
        "The most frequent causes.",
    ),
    (
        "Overhead of capture on a CPU",
        "cpu_paper_capture",
        "call_overheads",
        "One thread, processor time. A negative figure is time that capture saves.",
    ),
)


def markdown(head: list[str], cells: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *cells]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def paper_page() -> str:
    """Every table whose results are there, with where it comes from; what is not, by name."""
    from benchmarks.paper import report

    captured = ", ".join(f"{share} % of {name}" for name, share in report.CAPTURED.items())
    parts = [PAPER.format(**report.HEADLINE, captured=captured)]
    for title, name, function, about in PAPER_TABLES:
        run = report.recorded(name)
        if run is None:
            parts.append(f"## {title}\n\nNot recorded yet.\n")
            continue
        head, cells = getattr(report, function)(run)
        body = markdown(head, cells) if cells else "None."
        parts.append(f"## {title}\n\n{about}\n\n{body}\n\n{made_by(run)}\n")
    return "\n".join(parts)


# --- docs/api.md ----------------------------------------------------------------------------------
MODULES = ("minidynamo", "miniinductor")


def entry(home: str, name: str, value: Any) -> list[str]:
    """A public name: its signature and docstring."""
    lines = [f"### `{home}.{name}`", ""]
    if inspect.ismodule(value) or not callable(value):
        kind = "module" if inspect.ismodule(value) else type(value).__name__
        first = (inspect.getdoc(value) or kind).split("\n\n")[0]
        return [*lines, f"({kind})", "", first, ""]
    try:
        parameters = [
            parameter.replace(annotation=parameter.empty)
            for parameter in inspect.signature(value).parameters.values()
        ]
        signature = f"{name}{inspect.Signature(parameters)}"
        lines += ["```", *textwrap.wrap(signature, 100), "```", ""]
    except (TypeError, ValueError):
        pass
    return [*lines, inspect.getdoc(value) or "", ""]


def methods(cls: type) -> list[tuple[str, Any]]:
    return [(n, v) for n, v in vars(cls).items() if n[0] != "_" and inspect.isfunction(v)]


def api_page() -> str:
    """The public names of both packages, and what `explain` gives."""
    lines = ["# The API", "", "<!-- written by `make docs` from the docstrings -->", ""]
    for home in MODULES:
        module = importlib.import_module(home)
        lines += [f"## {home}", "", inspect.getdoc(module).splitlines()[0], ""]
        for name in sorted(set(module.__all__)):
            lines += entry(home, name, getattr(module, name))
    explained = importlib.import_module("minidynamo.explain.explanation").Explanation
    lines += ["## What `minidynamo.explain(f)(x)` gives", "", inspect.getdoc(explained) or "", ""]
    for name, method in sorted(methods(explained)):
        lines += entry("Explanation", name, method)
    return "\n".join(lines).rstrip() + "\n"


# --- docs/files.md --------------------------------------------------------------------------------
MOST_WORDS = 25  # of a row
FILES = """# The files

## What to read first

The spine is what you read whole to understand a real `torch.compile`, in the order in which a
program flows through it. A call of a compiled function enters by `minidynamo/api.py`, whose header
names the files on the way to the first chapter. Almost two thirds of the lines that run when
`softmax(x @ y)` compiles, forward and backward, are lines of the spine. The table counts lines of
code; the hours are an estimate. The rest of each folder is more of the same.

{reading}

# All files

`make docs` writes these tables from the first sentence of each file's header.
"""


def files_page() -> str:
    """What to read first, as `make sizes` has written it, and every file of both packages, folder
    by folder, with the first sentence of its header."""
    sizes = importlib.import_module("tools.sizes")
    _, reading, _ = sizes.FILES.read_text().split(sizes.TABLE)
    folders: dict[str, list[str]] = {}
    for name in sizes.measure():
        text = about_file(ROOT / name)
        if text:
            folder, _, file = name.rpartition("/")
            folders.setdefault(folder, []).append(f"| `{file}` | {text} |")
    lines = [FILES.format(reading=sizes.TABLE.join(["", reading, ""]))]
    for folder, rows in folders.items():
        lines += [f"## `{folder}/`", "", "| file | what it holds |", "|---|---|", *rows, ""]
    return "\n".join(lines)


def about_file(path: Path) -> str:
    """The first sentence of a Python file's header, of another file its first comment."""
    text = path.read_text()
    if path.suffix == ".py":
        text = ast.get_docstring(ast.parse(text)) or ""
    elif text.startswith(("/*", "//")):
        text = re.sub(r"(?m)^[/* ]+", "", text.split("*/")[0])
    else:
        return ""
    words = " ".join(text.split("\n\n")[0].split()).split(" ")
    cut = " ".join(words[:MOST_WORDS]) + (" ..." if len(words) > MOST_WORDS else "")
    return cut.replace("|", "\\|")


# --- all of them ----------------------------------------------------------------------------------
PAGES = {
    "README.md": readme,
    "docs/combinations.md": combinations_page,
    "docs/paper.md": paper_page,
    "docs/api.md": api_page,
    "docs/files.md": files_page,
}


def stale() -> Iterable[str]:
    """The pages that are not as they would be written now."""
    return [name for name, write in PAGES.items() if (ROOT / name).read_text() != write()]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true")
    if parser.parse_args().check:
        found = list(stale())
        print("\n".join(found) or "all pages are as they would be written")
        return len(found)
    for name, write in PAGES.items():
        (ROOT / name).write_text(write())
    return 0


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    sys.exit(main())
