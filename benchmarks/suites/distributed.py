"""--suite distributed: training over several processes: DDP, FSDP2, tensor parallel.

It starts itself under `torch.distributed.run`: one process for each GPU (`--nproc` for another
number), or two gloo processes with a tiny model where there is no GPU.  Then once more with one
process, and with half as many as before down to two, which gives the weak scaling: every rank has
the same batch of its own each time.

    python -m benchmarks --suite distributed --json distributed.json
    --seconds N     stop after so long; rows that are there stay
    --resume        keep the rows of --json that have times or a reason, go on behind them

model       GPT-2, 24 layers, 8 x 512 tokens a rank, under bfloat16 (DDP: autocast, FSDP2: its
            MixedPrecisionPolicy); on the CPU 2 layers of width 32, 2 x 16 tokens, float32.  Without
            dropout, so that all variants see the same numbers.  A step is zero_grad, forward, loss
            and backward; no optimizer.
            TP: the columns and rows of each block's MLP lie on different ranks, the rest on all;
            all ranks have the same batch, so it has no weak scaling.
variants    eager; ours and torch.compile *inside* (the module is compiled, then wrapped; with FSDP2
            each block is), and *around* (the wrapped module is compiled); ours inside in pieces of
            25 MiB of parameters (`miniinductor.config.gradient_buckets`), whose gradients are sent
            while the earlier layers' are computed.
order       one comparison after the other (COMPARISONS): eager, ours and torch.compile of one kind
            live in the same processes, and run in another random order each round (the same on all
            ranks), so that a run that is cut has whole comparisons.
figures     milliseconds a step (median, quartiles; CUDA events on GPUs), with communication and
            without it (not TP, which cannot leave it out), in the same round; exposed: the median
            of the differences.  eager_ms: eager in the same rounds.  peak: bytes above what lay on
            the GPU before the step, plus this rank's share of the weights.  first_s: the first
            step, which compiles.
right       difference: how far the loss, or the worst gradient, is from eager's in float32,
            relative to its norm.  At most twice that of the row of eager is right (or `tolerance`,
            if that is more).  Gradients must also be the same on all ranks (but for TP, where each
            rank computes them); of eager nothing else is asked.  losses, eager_losses: of rank 0
            in STEPS steps of SGD, behind all timing.

A variant that fails is a row with the reason; those behind it are measured all the same, in new
processes if it took its own along.
"""

import argparse
import contextlib
import copy
import gc
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Iterator
from typing import Any, TypeAlias

import torch
import torch.distributed as dist
from torch import nn

import minidynamo
import miniinductor

from ..models import builder
from ..runner import timed_first_call
from .common import suite, wanted

LIMIT = 300  # seconds without a new row; a rank that hangs ends there
# bucket: bytes of parameters in a piece; 25 MiB is the size of DDP's own buckets
WIDE = {"layers": 24, "batch": 8, "sequence": 512, "bucket": 25 << 20}
TINY = {"layers": 2, "batch": 2, "sequence": 16, "bucket": 32 << 10}
ROUNDS, STEPS = 10, 5
How: TypeAlias = tuple[Callable | None, bool, bool]  # (compiler, around, in pieces)
EAGER: How = None, False, False


# --- the process that the user has started --------------------------------------------------------
@suite("distributed")
def distributed(options: Any, result: Any) -> Iterator[dict]:
    """Training with DDP, FSDP2 and tensor parallel, on all GPUs and on one (gloo on a CPU)."""
    gpus = torch.cuda.device_count()
    result["processes"] = ranks = getattr(options, "nproc", None) or gpus or 2
    rows = result["rows"]
    if options.resume:
        rows += earlier_rows(options.json, result["machine"])
    end = time.monotonic() + (options.seconds or float("inf"))
    halves = [ranks >> k for k in range(1, ranks.bit_length())]
    for world in dict.fromkeys((ranks, 1, *halves)):
        for row in rows_of(world, options, rows, end):
            if row["name"] == "eager" and place(row) in finished(rows):
                continue  # the first comparison's; the others have it in eager_ms
            # a row comes when it is right, and again with its figures
            rows[:] = [earlier for earlier in rows if place(earlier) != place(row)]
            print(show(row), flush=True)
            yield row
    for row in list(scaling(rows)):
        print(show(row), flush=True)
        yield row
    if time.monotonic() >= end:
        print("the time is up; --resume goes on behind these rows", flush=True)


def earlier_rows(path: str | None, here: dict) -> list[dict]:
    """What an earlier run has finished.  SystemExit if that was on another machine or torch."""
    if not path or not os.path.exists(path):
        return []
    with open(path) as file:
        earlier = json.load(file)
    for what in ("device", "torch"):
        if earlier["machine"][what] != here[what]:
            raise SystemExit(f"{path}: {what} {earlier['machine'][what]}, here {here[what]}")
    done = finished(earlier["rows"])
    return [row for row in earlier["rows"] if place(row) in done]


def finished(rows: list[dict]) -> set[tuple]:
    """Places of what need not be measured again."""
    return {place(row) for row in rows if "ranks" in row and ("ms" in row or "failed" in row)}


def place(row: dict) -> tuple:
    """What tells rows apart."""
    return row.get("ranks"), row.get("wrapping"), row["name"]


def rows_of(world: int, options: Any, rows: list[dict], end: float) -> Iterator[dict]:
    """The rows of `world` processes, each as soon as it is there.  What takes the processes along
    (a crash, LIMIT seconds without a row) is a row with the reason, and new processes go on.

    rows: grows while this runs, by what this yields."""
    while time.monotonic() < end:
        done = finished(rows)
        held = [[wrapping, name] for ranks, wrapping, name in done if ranks == world]
        if not any(waiting(world, one, options, held) for one in COMPARISONS):
            return
        begun: list[dict] = []
        reason = yield from rows_of_one_start(world, options, held, end, begun)
        if time.monotonic() >= end:
            return
        failed = [row for row in begun if place(row) not in finished(rows)]
        for row in failed:
            yield row | {"failed": reason or "ended without a row"}
        if finished(rows) == done:  # a start that brings nothing is not tried again
            yield {"name": f"{world} processes", "failed": reason or "ended without a row"}
            return


def rows_of_one_start(
    world: int, options: Any, held: list, end: float, begun: list[dict]
) -> Generator[dict, None, str]:
    """Start `world` processes; yield their rows.  Returns why they ended, if not by themselves.

    held: what they leave out.  begun: is filled with what they were at when they ended."""
    with tempfile.TemporaryDirectory() as folder:
        lines, log = os.path.join(folder, "rows"), os.path.join(folder, "log")
        environment = {"OMP_NUM_THREADS": str(options.threads or 1)} | os.environ
        open(lines, "w").close()
        with open(log, "w") as output:
            command = command_of(world, options, held, lines)
            process = subprocess.Popen(command, env=environment, stdout=output, stderr=output)
        try:
            for line in followed(lines, process, end):
                if "begun" in line:
                    begun[:] = line["begun"]
                else:
                    yield line
        finally:
            stop(process)
        if not process.returncode:
            begun.clear()
            return ""
        with open(log) as output:
            return f"exit {process.returncode}: {output.read()[-3000:]}"


def command_of(world: int, options: Any, held: list, lines: str) -> list[str]:
    command = [sys.executable, "-W", "ignore", "-m", "torch.distributed.run", "--standalone"]
    command += [f"--nproc-per-node={world}", "-m", __name__, "--rows", lines]
    command += ["--only", options.only, "--held", json.dumps(held)]
    return command + ["--no-peer"] * options.no_peer


def followed(
    path: str, process: subprocess.Popen, end: float = float("inf")
) -> Generator[dict, None, None]:
    """The lines of a file that a process writes, until it ends, hangs, or the time is up."""
    heard = time.monotonic()
    with open(path) as lines:
        running, rest = True, ""
        while running:
            running = process.poll() is None and time.monotonic() < min(end, heard + LIMIT)
            rest += lines.read()
            *whole, rest = rest.split("\n")  # the last may not be whole yet
            for line in whole:
                heard = time.monotonic()
                yield json.loads(line)
            time.sleep(0.1)


def stop(process: subprocess.Popen) -> None:
    """End the agent and its ranks: asked, it ends them; killed, it would leave them running."""
    process.terminate()
    try:
        process.wait(timeout=40)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def scaling(rows: list[dict]) -> Iterator[dict]:
    """One row a variant: a step of one process divided by a step of all."""
    alone = {(r["wrapping"], r["name"]): r for r in rows if r.get("ranks") == 1 and "ms" in r}
    for row in rows:
        single = alone.get((row.get("wrapping"), row["name"]))
        if single and row.get("ranks", 1) > 1 and "ms" in row:
            about = {"name": row["name"], "wrapping": row["wrapping"]}
            quotient = single["ms"][0] / row["ms"][0]
            yield about | {"weak scaling": quotient, "from": 1, "to": row["ranks"]}


def show(row: dict) -> str:
    name = f"{row.get('wrapping', ''):6} {row['name']:28}"
    if "failed" in row:
        return f"{name} failed: {row['failed']}"
    if "weak scaling" in row:
        return f"{name} {row['from']} -> {row['to']} ranks: {row['weak scaling']:.2f}"
    text = f"{name} {row['ranks']} ranks  first {row['first_s']:6.1f} s"
    if "ms" in row:
        middle, low, high = row["ms"]
        text += f"  {middle:8.2f} ms [{low:.2f}-{high:.2f}]"
        if "exposed_ms" in row:
            text += f"  exposed {row['exposed_ms']:6.2f} ms"
        text += f"  peak {row['peak'] / 2**30:.2f} GiB"
    return text + ("" if row["right"] else f"  WRONG: {row['difference']:.1e}")


# --- one rank -------------------------------------------------------------------------------------
class Rank:
    """What one process knows: its place, its device, the model that all start from, its data."""

    def __init__(self) -> None:
        self.gpu = torch.cuda.is_available()
        local = dist.get_node_local_rank()
        self.device = torch.device("cuda", local) if self.gpu else torch.device("cpu")
        if self.gpu:
            torch.cuda.set_device(self.device)
            dist.init_process_group("nccl", device_id=self.device)
        else:
            dist.init_process_group("gloo")
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        self.size = size = WIDE if self.gpu else TINY
        self.original = model_of(size, wide=self.gpu)
        self.ids, self.same_ids = self.words(1 + self.rank), self.words(1)
        self.tolerance = 1e-2 if self.gpu else 1e-4  # of bfloat16 and of float32

    def words(self, seed: int) -> torch.Tensor:
        vocabulary = self.original.config.vocab_size
        shape = (self.size["batch"], self.size["sequence"])
        generator = torch.Generator().manual_seed(seed)
        return torch.randint(0, vocabulary, shape, generator=generator).to(self.device)

    def model(self) -> nn.Module:
        return copy.deepcopy(self.original).to(self.device)


def model_of(size: dict, wide: bool) -> nn.Module:
    """GPT-2 with random weights, the same on each rank, without dropout."""
    narrow = {} if wide else {"n_embd": 32, "n_head": 4, "vocab_size": 128, "n_positions": 32}
    make = builder("GPT2LMHeadModel", "GPT2Config", "n_layer", use_cache=False, **narrow)
    return make(size["layers"])[0]


class Variant:
    """A wrapped model: its steps, with communication and without.

    wrapping: DDP | FSDP2 | TP. how: its entry in COMPARISONS. narrow: in bfloat16 on a GPU."""

    def __init__(self, rank: Rank, wrapping: str, how: How = EAGER, narrow: bool = True) -> None:
        self.rank, self.wrapping, (compiler, around, pieces) = rank, wrapping, how
        self.is_mixed = rank.gpu and wrapping != "FSDP2" and narrow
        self.buckets = rank.size["bucket"] if pieces else 0
        inside = compiler if not around else None
        self.wrapped = WRAPPINGS[wrapping](rank, rank.model(), inside)
        self.run: Callable = compiler(self.wrapped) if compiler and around else self.wrapped

    def step(self) -> torch.Tensor:
        """One step; its loss."""
        self.wrapped.zero_grad(set_to_none=True)
        ids = self.rank.same_ids if self.wrapping == "TP" else self.rank.ids
        with miniinductor.config.patch(gradient_buckets=self.buckets):  # read when it compiles
            with torch.autocast(ids.device.type, torch.bfloat16, enabled=self.is_mixed):
                loss = self.run(input_ids=ids, labels=ids).loss
            loss.backward()
        return loss.detach()

    def losses(self) -> list[float]:
        """Of STEPS steps with SGD, which change the weights."""
        optimizer, found = torch.optim.SGD(self.wrapped.parameters(), lr=1e-2), []
        self.step()  # sends what steps without communication have kept
        for _ in range(STEPS):
            found.append(self.step().item())
            optimizer.step()
        return found

    def gradients(self) -> Iterator[tuple[str, torch.Tensor]]:
        """(name, whole gradient) of every parameter; all ranks must ask."""
        for name, parameter in self.wrapped.named_parameters():
            gradient = parameter.grad
            if gradient is not None:
                whole = getattr(gradient, "full_tensor", lambda gradient=gradient: gradient)()
                short = name.replace("_orig_mod.", "").replace("module.", "")
                yield short, whole.detach().float().clone()  # DDP writes its buckets again

    def weights(self) -> int:
        """Bytes of this rank's parameters."""
        local = [getattr(p, "to_local", lambda p=p: p)() for p in self.wrapped.parameters()]
        return sum(p.numel() * p.element_size() for p in local)

    @contextlib.contextmanager
    def silent(self) -> Iterator[None]:
        """Steps inside send nothing."""
        if self.wrapping == "DDP":
            with self.wrapped.no_sync():
                yield
            return
        self.keep_whole(True)
        try:
            yield
        finally:
            self.keep_whole(False)
            for module in self.wrapped.modules():
                if hasattr(module, "reshard"):
                    module.reshard()

    def keep_whole(self, whole: bool) -> None:
        """FSDP2: after the first step inside, parameters lie whole on every rank, and gradients
        stay there."""
        self.wrapped.set_requires_gradient_sync(not whole)
        self.wrapped.set_reshard_after_backward(not whole)
        for module in self.wrapped.modules():
            if hasattr(module, "set_reshard_after_forward"):
                shares = not whole and module is not self.wrapped
                module.set_reshard_after_forward(shares, recurse=False)


def with_ddp(rank: Rank, model: nn.Module, compiler: Callable | None) -> nn.Module:
    """DDP around the module, which is compiled first."""
    module = compiler(model) if compiler else model
    ids = [rank.device.index] if rank.gpu else None
    return nn.parallel.DistributedDataParallel(module, device_ids=ids, gradient_as_bucket_view=True)


def with_fsdp(rank: Rank, model: nn.Module, compiler: Callable | None) -> nn.Module:
    """Each block, then the rest, sharded over all ranks; each block is compiled first, so that
    FSDP2's hooks run outside of the graphs."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    mesh = init_device_mesh(rank.device.type, (rank.world,))
    half = torch.bfloat16 if rank.gpu else None
    policy = MixedPrecisionPolicy(param_dtype=half, reduce_dtype=torch.float32 if half else None)
    for block in model.transformer.h:
        if compiler:
            block.forward = compiler(block.forward)
        fully_shard(block, mesh=mesh, mp_policy=policy)
    return fully_shard(model, mesh=mesh, mp_policy=policy)


def with_tensor_parallel(rank: Rank, model: nn.Module, compiler: Callable | None) -> nn.Module:
    """Each MLP's first weight is split by columns, its second by rows.  Attention stays whole: the
    three projections of GPT-2 are one weight, whose columns no plan splits by heads."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import parallel

    mesh = init_device_mesh(rank.device.type, (rank.world,))
    for block in model.transformer.h:
        mlp = block.mlp
        mlp.c_fc, mlp.c_proj = linear_of(mlp.c_fc), linear_of(mlp.c_proj)
        plan = {"c_fc": parallel.ColwiseParallel(), "c_proj": parallel.RowwiseParallel()}
        parallel.parallelize_module(mlp, mesh, plan)
    return compiler(model) if compiler else model


def linear_of(layer: Any) -> nn.Linear:
    """transformers' Conv1D has a Linear's weight transposed, and no plan knows it."""
    linear = nn.Linear(*layer.weight.shape, device=layer.weight.device)
    with torch.no_grad():
        linear.weight.copy_(layer.weight.t())
        linear.bias.copy_(layer.bias)
    return linear


WRAPPINGS = {"DDP": with_ddp, "FSDP2": with_fsdp, "TP": with_tensor_parallel}


# (wrapping, {name: how}), beside eager; what matters most is first
Comparison: TypeAlias = tuple[str, dict[str, How]]
INSIDE: dict[str, How] = {
    "ours inside": (minidynamo.compile, False, False),
    "torch.compile inside": (torch.compile, False, False),
}
AROUND: dict[str, How] = {
    "ours around": (minidynamo.compile, True, False),
    "torch.compile around": (torch.compile, True, False),
}
COMPARISONS: list[Comparison] = [
    ("DDP", INSIDE | {"ours inside, in pieces": (minidynamo.compile, False, True)}),
    ("FSDP2", INSIDE),
    ("TP", AROUND),
    ("DDP", AROUND),
    ("FSDP2", {"ours around": (minidynamo.compile, True, False)}),
]


def waiting(world: int, comparison: Comparison, options: Any, held: list) -> list[str]:
    """The variants of a comparison that have no row yet, behind eager, which all are held against.

    held: [wrapping, name] of what has one."""
    wrapping, others = comparison
    if world == 1 and wrapping == "TP":
        return []  # nothing is split
    names = []
    for name, (compiler, *_) in others.items():
        if compiler is torch.compile and options.no_peer:
            continue
        if wanted(f"{wrapping} {name}", options) and [wrapping, name] not in held:
            names.append(name)
    eager = wanted(f"{wrapping} eager", options) and [wrapping, "eager"] not in held
    return ["eager", *names] if names or eager else []


# --- measuring ------------------------------------------------------------------------------------
def measure(rank: Rank, comparison: Comparison, options: Any, write: Callable) -> None:
    """The variants of a comparison that wait: each is made and checked, then all are timed in
    turn."""
    wrapping, others = comparison
    rows: dict[str, dict] = {}
    variants: dict[str, Variant] = {}
    names = waiting(rank.world, comparison, options, options.held)
    reference = exact(rank, wrapping) if names else {}
    for name in names:
        how = others.get(name, EAGER)
        if how[0] is torch.compile:  # it takes minutes: a run that is cut there has these figures
            timed(rank, variants, rows, write)
        row = {"name": name, "wrapping": wrapping, "ranks": rank.world}
        write({"begun": [row]})
        try:
            variant = Variant(rank, wrapping, how)
            before = len(minidynamo.records.frames)
            loss, spent = timed_first_call(lambda: variant.step().cpu())
            row |= {"first_s": spent.wall} | compiled_since(before)
            found = dict(variant.gradients()) | {"loss": loss}
            of_eager = rows["eager"]["difference"] if "eager" in rows else 0.0
            limit = max(rank.tolerance, 2 * of_eager) if name != "eager" else float("inf")
            row |= compared(rank, found, reference, limit, wrapping != "TP")
            variants[name] = variant
            rows[name] = row
        except Exception as error:  # one variant that fails leaves the others
            write(row | {"failed": f"{type(error).__name__}: {str(error)[:600]}"})
            continue
        write(row)
    timed(rank, variants, rows, write)
    losses = {name: variant.losses() for name, variant in variants.items()}
    for name in variants:
        write(rows[name] | {"losses": losses[name], "eager_losses": losses.get("eager")})


def exact(rank: Rank, wrapping: str) -> dict[str, torch.Tensor]:
    """The loss and the gradients of eager in float32, by name."""
    variant = Variant(rank, "TP" if wrapping == "TP" else "DDP", narrow=False)
    loss = variant.step().cpu()
    return dict(variant.gradients()) | {"loss": loss}


def compiled_since(before: int) -> dict:
    """{graphs, notes} of ours: how many graphs, and what was not compiled."""
    frames = list(minidynamo.records.frames)[before:]
    made = [frame.backend_record for frame in frames if frame.graph is not None]
    halves = [half for one in made if one for half in (one, one.backward) if half]
    notes = [note for half in halves for note in half.notes if note.startswith(("runs", "in "))]
    errors = [frame.skipped or frame.error.strip()[-200:] for frame in frames]
    return {"graphs": len(made), "notes": sorted({str(n)[:200] for n in [*notes, *errors] if n})}


def compared(rank: Rank, found: dict, exact: dict, limit: float, reduced: bool) -> dict:
    """{right, difference, parameter, same_on_all_ranks}.  reduced: all ranks got one result sent,
    so it must be the same to the last bit."""
    worst, at = 0.0, "loss"
    floor = 1e-3 * max(g.norm().item() for name, g in exact.items() if name != "loss")
    for name in found.keys() & exact.keys():
        least = floor if name != "loss" else 0
        off = ((found[name] - exact[name]).norm() / exact[name].norm().clamp(min=least)).item()
        if not off <= worst:
            worst, at = off, name
    gradients = [g for name, g in sorted(found.items()) if name != "loss"]
    sums = torch.stack([g.double().sum() for g in gradients])
    first = sums.clone()
    dist.broadcast(first, 0)
    equal, near = torch.equal(sums, first), found.keys() == exact.keys() and worst <= limit
    everywhere = torch.tensor([float(equal), float(near)], device=rank.device)
    dist.all_reduce(everywhere, op=dist.ReduceOp.MIN)
    same, right = (bool(flag) for flag in everywhere.tolist())
    found_here = {"difference": worst, "parameter": at, "same_on_all_ranks": same}
    return found_here | {"right": right and (same or not reduced)}


def timed(rank: Rank, variants: dict, rows: dict, write: Callable) -> None:
    """Rounds of all variants that are left, each with communication and, where that can be left
    out, without it."""
    if not variants:
        return
    write({"begun": [rows[name] for name in variants]})
    times: dict[tuple[str, bool], list[float]] = {}
    order = random.Random(0)  # the same on all ranks
    rounds = ROUNDS if rank.gpu else 3
    for number in range(rounds):
        for name in order.sample(sorted(variants), len(variants)):
            try:
                sent = timed_steps(rank, variants[name])
                if variants[name].wrapping != "TP":
                    with variants[name].silent():
                        # the first makes parameters whole; the second is a step as all are
                        alone = timed_steps(rank, variants[name])
                        times.setdefault((name, False), []).append(alone)
            except Exception as error:
                del variants[name]
                write(rows.pop(name) | {"failed": f"{type(error).__name__}: {str(error)[:600]}"})
                continue
            times.setdefault((name, True), []).append(sent)
            if number == 0:
                rows[name]["peak"] = peak_of(rank, variants[name])
    for name in variants:
        sent, silent, row = times[name, True], times.get((name, False)), rows[name]
        row["ms"] = spread(sent)
        if silent:
            row["ms_without_communication"] = spread(silent)
            row["exposed_ms"] = statistics.median(a - b for a, b in zip(sent, silent))
        if name != "eager" and "eager" in variants:
            row["eager_ms"] = spread(times["eager", True])
        write(row)


def timed_steps(rank: Rank, variant: Variant) -> float:
    """Milliseconds of the second of two steps."""
    variant.step()
    if not rank.gpu:
        dist.barrier()
        start = time.perf_counter()
        variant.step()
        return (time.perf_counter() - start) * 1e3
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    dist.barrier()
    torch.cuda.synchronize()
    begin.record()
    variant.step()
    end.record()
    torch.cuda.synchronize()
    return begin.elapsed_time(end)


def peak_of(rank: Rank, variant: Variant) -> int:
    """Bytes of one step, above what lay on the GPU before, and this rank's weights."""
    if not rank.gpu:
        return variant.weights()
    variant.step()  # sends what steps without communication have kept
    variant.wrapped.zero_grad(set_to_none=True)
    gc.collect()
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    variant.step()
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated() - before + variant.weights()


def spread(values: list[float]) -> list[float]:
    """[median, lower quartile, upper quartile]."""
    low, middle, high = statistics.quantiles(values, n=4)
    return [middle, low, high]


def main() -> None:
    """One rank of the suite, started by torch.distributed.run."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows")
    parser.add_argument("--only", default="")
    parser.add_argument("--held", type=json.loads, default=[])
    parser.add_argument("--no-peer", action="store_true")
    options = parser.parse_args()
    rank = Rank()

    def write(row: dict) -> None:
        if rank.rank == 0:
            with open(options.rows, "a") as file:
                file.write(json.dumps(row) + "\n")

    for comparison in COMPARISONS:
        measure(rank, comparison, options, write)
        minidynamo.reset()
        if not options.no_peer:
            torch.compiler.reset()
        gc.collect()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
