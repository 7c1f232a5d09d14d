"""Hashes of everything that the compilers make: a refactoring proves itself by equal ones.

    python tools/artifacts.py make before.json [--whole] [--jobs 2] [--texts folder]
    python tools/artifacts.py make after.json
    python tools/artifacts.py compare before.json after.json

For each program (the tour programs, public models, OpInfo samples, random graphs and random
programs) the texts of every stage are hashed: guards, replacement bytecode, FX graph, ATen graph,
loop IR, fused IR, kernels (C++ and Triton) and wrapper.  Addresses and `id()`s are masked first.
`make` without `--whole` takes a sample of about a minute once the kernel cache is filled.
`compare` names each program and stage that differs, and exits with 1 if one does; `--texts` keeps
the texts themselves, for `diff -r`.
"""

import argparse
import concurrent.futures
import contextlib
import ctypes
import dis
import hashlib
import io
import json
import multiprocessing
import os
import random
import re
import sys
import types
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]
os.environ.setdefault("TRITON_INTERPRET", "1")
os.environ["PYTHONHASHSEED"] = "0"  # of the worker processes

MASKS = (
    (re.compile(r"0x[0-9a-f]{6,}"), "ADDRESS"),
    (re.compile(r"\b[0-9]{13,}\b"), "NUMBER"),  # ids and addresses; no size is that large
)
SAMPLE_MODELS = ("GPT2LMHeadModel", "ElectraForMaskedLM", "T5ForConditionalGeneration")
EVERY = {
    "sample": {"ops": 12, "graphs": 60, "programs": 60},
    "whole": {"ops": 1, "graphs": 600, "programs": 400},
}


def mask(text: str) -> str:
    text = text.replace(str(ROOT), "ROOT")
    for pattern, name in MASKS:
        text = pattern.sub(name, text)
    return text


def bytecode_text(code: types.CodeType) -> str:
    """Instructions and constants of a code object, and of those inside it."""
    lines = [f"{i.opname} {i.arg} {i.argrepr}" for i in dis.get_instructions(code)]
    inner = [c for c in code.co_consts if isinstance(c, types.CodeType)]
    return "\n".join([code.co_name, *lines, *map(bytecode_text, inner)])


def compiled_texts(record, prefix: str = "") -> Iterator[tuple[str, str]]:
    """(stage, text) of a CompileRecord; of its backward half, too."""
    for name in ("aten_graph", "functional_graph", "joint_graph"):
        graph = getattr(record, name)
        if graph is not None:
            yield prefix + name, str(getattr(graph, "graph", graph))
    yield prefix + "loop_ir", record.loop_ir or ""
    yield prefix + "fused_ir", record.fused_ir or ""
    yield prefix + "fusions", "\n".join(map(str, record.fusions))
    for kernel in record.kernels:
        yield prefix + f"kernel {kernel.language}", kernel.source
    yield prefix + "wrapper", record.wrapper_source
    yield prefix + "memory", "\n".join(map(str, record.memory_plan))
    yield prefix + "notes", "\n".join(record.notes)
    yield prefix + "fallbacks", "\n".join(map(str, record.fallbacks))
    if record.backward is not None:
        yield from compiled_texts(record.backward, prefix + "backward ")


def frame_texts(record) -> Iterator[tuple[str, str]]:
    """(stage, text) of a FrameRecord."""
    yield "breaks", "\n".join(map(str, record.graph_breaks))
    yield "skipped", record.skipped
    yield "error", record.error
    if record.guard_function is not None:
        yield "guards", record.guard_function.source + "\n".join(map(str, record.guards))
    if record.replacement_code is not None:
        yield "bytecode", bytecode_text(record.replacement_code)
    if record.graph is not None:
        yield "fx", str(record.graph.graph)
    if record.backend_record is not None:
        yield from compiled_texts(record.backend_record)


def texts_of_frames() -> dict[str, str]:
    """All stages of all frames that were compiled since the last reset."""
    from minidynamo import records

    found: dict[str, str] = {}
    for record in records.frames:
        for stage, text in frame_texts(record):
            found[stage] = found.get(stage, "") + mask(text) + "\n"
    return found


@contextlib.contextmanager
def nothing_is_built() -> Iterator[None]:
    """Kernels are written, and g++ is not called: the callable must not be called, either."""
    from miniinductor import toolchain as build

    class Library:
        def __getattr__(self, name: str) -> Callable:
            return ctypes.CDLL(None).abs  # any address: nobody calls it

        __getitem__ = __getattr__

    before = build.libraries_of
    build.libraries_of = lambda texts: {name: Library() for name in texts}
    try:
        yield
    finally:
        build.libraries_of = before


# --- the programs --------------------------------------------------------------------------------
def run_tour(name: str) -> dict[str, str]:
    from tour_programs import TOURS

    import minidynamo

    TOURS[name](minidynamo.compile)
    return texts_of_frames()


def run_model(name: str, train: bool) -> dict[str, str]:
    import torch

    import minidynamo
    from benchmarks import public_models

    model, inputs, targets = public_models.build(name)
    model.train(train)
    compiled = minidynamo.compile(model)
    with torch.set_grad_enabled(train):
        output = compiled(**inputs, **(targets if train else {}))
        if train:
            public_models.loss_of(output).backward()
    return texts_of_frames()


def run_op(name: str, language: str) -> dict[str, str]:
    import torch
    from sweeps.ops import graph_of, samples_of
    from torch.testing._internal.common_methods_invocations import op_db

    import miniinductor

    found: dict[str, str] = {}
    for op in op_db:
        if op.name + (f".{op.variant_test_name}" if op.variant_test_name else "") != name:
            continue
        dtype = (
            torch.float32 if torch.float32 in op.dtypes else next(iter(sorted(op.dtypes, key=str)))
        )
        gm, tensors = graph_of(op, samples_of(op, dtype, 3))
        with nothing_is_built(), torch.no_grad(), miniinductor.config.patch(cpu_backend=language):
            record = miniinductor.compile_fx(gm, tensors).record
            for stage, text in compiled_texts(record):
                found[stage] = found.get(stage, "") + mask(text) + "\n"
    return found


def run_graph(seed: int, language: str) -> dict[str, str]:
    import torch
    from sweeps.graphs import batch

    import miniinductor

    gm, inputs, _, _ = batch([seed])
    found: dict[str, str] = {}
    with nothing_is_built(), torch.no_grad(), miniinductor.config.patch(cpu_backend=language):
        for stage, text in compiled_texts(miniinductor.compile_fx(gm, inputs).record):
            found[stage] = found.get(stage, "") + mask(text) + "\n"
    return found


def run_program(seed: int) -> dict[str, str]:
    from fuzz.programs import program
    from fuzz.run_programs import side

    side(program(seed), seed, "eager", calls=3)
    return texts_of_frames()


KINDS: dict[str, Callable[..., dict[str, str]]] = {
    "tour": run_tour,
    "model": run_model,
    "op": run_op,
    "graph": run_graph,
    "program": run_program,
}


def every_program(whole: bool) -> list[tuple]:
    from torch.testing._internal.common_methods_invocations import op_db
    from tour_programs import TOURS

    from benchmarks.public_models import NAMES

    size = EVERY["whole" if whole else "sample"]
    ops = [op.name + (f".{op.variant_test_name}" if op.variant_test_name else "") for op in op_db]
    ops = list(dict.fromkeys(ops))[:: size["ops"]]
    models = NAMES if whole else SAMPLE_MODELS
    programs: list[tuple] = [("tour", name) for name in TOURS]
    programs += [("model", name, train) for name in models for train in (False, True)]
    programs += [("op", name, language) for name in ops for language in ("cpp", "triton")]
    programs += [
        ("graph", seed, language)
        for seed in range(size["graphs"])
        for language in ("cpp", "triton")
    ]
    programs += [("program", seed) for seed in range(size["programs"])]
    return programs


def work(program: tuple) -> tuple[str, dict[str, str]]:
    """(name of the program, {stage: text}); what it raises is a text, too."""
    import numpy
    import torch

    import minidynamo

    torch.set_num_threads(2)
    warnings.simplefilter("ignore")
    random.seed(0)
    numpy.random.seed(0)
    torch.manual_seed(0)
    minidynamo.reset()
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            texts = KINDS[program[0]](*program[1:])
    except Exception as error:
        texts = {"raised": mask(f"{type(error).__name__}: {error}")}
    return " ".join(map(str, program)), texts


def make(path: str, whole: bool, jobs: int, folder: str | None) -> None:
    programs = every_program(whole)
    hashes = {}
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(jobs, context, max_tasks_per_child=200) as pool:
        for name, texts in pool.map(work, programs, chunksize=4):
            hashes[name] = {
                stage: hashlib.sha1(text.encode()).hexdigest()[:12] for stage, text in texts.items()
            }
            if folder:
                place = Path(folder) / re.sub(r"[^\w.-]", "_", name)
                place.mkdir(parents=True, exist_ok=True)
                for stage, text in texts.items():
                    (place / stage.replace(" ", "_")).write_text(text)
    Path(path).write_text(json.dumps(hashes, indent=0, sort_keys=True))
    raised = sum("raised" in stages for stages in hashes.values())
    print(f"{len(hashes)} programs, {sum(map(len, hashes.values()))} texts, {raised} raised")


def compare(first: str, second: str) -> int:
    before, after = (json.loads(Path(path).read_text()) for path in (first, second))
    shared = [name for name in before if name in after]
    different = 0
    for name in shared:
        stages = sorted(before[name].keys() | after[name].keys())
        changed = [s for s in stages if before[name].get(s) != after[name].get(s)]
        if changed:
            different += 1
            print(f"{name}: {', '.join(changed)}")
    print(f"{len(shared)} programs in both, {different} differ")
    return different > 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    making = commands.add_parser("make")
    making.add_argument("path")
    making.add_argument("--whole", action="store_true")
    making.add_argument("--jobs", type=int, default=1)
    making.add_argument("--texts", help="a folder for the texts themselves")
    comparing = commands.add_parser("compare")
    comparing.add_argument("first")
    comparing.add_argument("second")
    options = parser.parse_args()
    if options.command == "make":
        make(options.path, options.whole, options.jobs, options.texts)
    else:
        sys.exit(compare(options.first, options.second))


if __name__ == "__main__":
    main()
