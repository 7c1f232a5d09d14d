"""Two processes that train one model, with the time of everything that matters: for chapter 18.

    python -m torch.distributed.run --standalone --nproc-per-node=2 -m benchmarks.two_ranks

In:   nothing; `torchrun` gives each process its place (RANK, WORLD_SIZE) in environment variables.
Out:  a line of JSON for each part, printed by rank 0: {"part": name, ...}.  Seconds count from the
      start of the backward pass.

In a notebook `two_ranks.run()` starts the two and reads the lines; `timelines` of plots.py draws
the spans.

The wire is slow on purpose.  Two processes on one machine share its memory, so sending costs next
to nothing, and nothing is left to hide.  Here a bucket waits as long as a wire of WIRE bytes a
second would need, in a thread of its own (which costs no processor), and is averaged for real
then.  Computing is real, too.
"""

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

import minidynamo
import miniinductor

WIDTH, INNER, BLOCKS, BATCH = 384, 1024, 6, 768
BUCKET = 3 << 20  # bytes: about one block
WIRE = 200e6  # bytes a second
STEPS = 5


class Block(nn.Module):
    """What a transformer has between its attentions."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.up, self.down = nn.Linear(WIDTH, INNER), nn.Linear(INNER, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(nn.functional.gelu(self.up(self.norm(x))))


def make() -> nn.Sequential:
    """The same model on each rank."""
    torch.manual_seed(0)
    return nn.Sequential(*[Block() for _ in range(BLOCKS)])


def data() -> torch.Tensor:
    """Other rows on each rank."""
    torch.manual_seed(1 + dist.get_rank())
    return torch.randn(BATCH, WIDTH, requires_grad=True)  # so that the first block has a backward


# ---- what happens when
class Events:
    """Spans of one backward pass: (lane, name, begin, end) in seconds since `start`."""

    def __init__(self) -> None:
        self.spans: list[tuple[str, str, float, float]] = []
        self.begin()

    def begin(self) -> None:
        self.start = time.perf_counter()
        self.spans.clear()

    def add(self, lane: str, name: str, begin: float) -> None:
        now = time.perf_counter()
        self.spans.append((lane, name, begin - self.start, now - self.start))


class Wire:
    """A wire for one bucket after the other: DDP's communication hook is `send`."""

    def __init__(self, events: Events) -> None:
        self.events, self.sent = events, 0
        self.thread = ThreadPoolExecutor(1)

    def send(self, state: None, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        """DDP calls this when the last gradient of a bucket is there."""
        done: torch.futures.Future = torch.futures.Future()
        self.sent += 1
        self.thread.submit(self.carry, f"bucket {self.sent}", bucket.buffer(), done)
        return done

    def carry(self, name: str, buffer: torch.Tensor, done: Any) -> None:
        begin = time.perf_counter()
        time.sleep(buffer.numel() * buffer.element_size() / WIRE)
        dist.all_reduce(buffer)
        buffer /= dist.get_world_size()
        self.events.add("wire", name, begin)
        done.set_result(buffer)


def watch_blocks(model: nn.Module, events: Events) -> None:
    """Eager: a span for each block's backward."""
    for number, block in enumerate(model):
        begun: list[float] = []

        def before(*_: Any, begun: list[float] = begun) -> None:
            begun.append(time.perf_counter())

        def after(*_: Any, begun: list[float] = begun, number: int = number) -> None:
            events.add("compute", f"block {number}", begun.pop())

        block.register_full_backward_pre_hook(before)
        block.register_full_backward_hook(after)


def watch_halves(events: Events) -> None:
    """Compiled: a span for each compiled backward half."""
    from miniinductor.autograd.runtime import Backward

    plain = Backward.__call__

    def timed(self: Backward, *args: Any) -> Any:
        begin = time.perf_counter()
        result = plain(self, *args)
        events.add("compute", "half", begin)
        return result

    setattr(Backward, "__call__", timed)


# ---- the parts
class Wrapped:
    """A model in DDP: how it is compiled, and its events."""

    def __init__(self, compiled: bool, buckets: int = 0) -> None:
        self.buckets = buckets
        model = make()
        events = Events()
        if not compiled:
            watch_blocks(model, events)
        inner = minidynamo.compile(model) if compiled else model
        self.model = nn.parallel.DistributedDataParallel(
            inner, bucket_cap_mb=BUCKET / 2**20, gradient_as_bucket_view=True
        )
        self.use(events)

    def use(self, events: Events) -> None:
        self.events, self.wire = events, Wire(events)
        self.model.register_comm_hook(None, self.wire.send)

    def step(self, x: torch.Tensor) -> dict:
        """One step: seconds of its backward pass, and what happened in it."""
        self.model.zero_grad(set_to_none=True)
        x.grad = None
        with miniinductor.config.patch(gradient_buckets=self.buckets):
            loss = self.model(x).square().mean()
        dist.barrier()
        self.wire.sent = 0
        self.events.begin()
        loss.backward()
        seconds = time.perf_counter() - self.events.start
        return {"seconds": seconds, "spans": list(self.events.spans)}


def gradients(model: nn.Module) -> list[torch.Tensor]:
    """Whole gradients: of FSDP2's parameters each rank has a part."""
    found = [p.grad for p in model.parameters() if p.grad is not None]
    return [getattr(g, "full_tensor", lambda g=g: g)().detach().clone() for g in found]


def furthest(found: list[torch.Tensor], expected: list[torch.Tensor]) -> float:
    """The largest difference, relative to the largest number."""
    largest = max(g.abs().max().item() for g in expected)
    pairs = zip(found, expected, strict=True)
    return max((a - b).abs().max().item() for a, b in pairs) / largest


def apart(model: nn.Module) -> float:
    """How far the ranks' weights are from one another."""
    mine = torch.cat([p.detach().flatten() for p in model.parameters()])
    first = mine.clone()
    dist.broadcast(first, 0)
    off = (mine - first).abs().max()
    dist.all_reduce(off, op=dist.ReduceOp.MAX)
    return off.item()


def naive() -> Iterator[dict]:
    """Three steps without averaging, and with averaging when backward is over."""
    for averaged in (False, True):
        model, x = make(), data()
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        for _ in range(3):
            optimizer.zero_grad()
            model(x).square().mean().backward()
            for parameter in model.parameters():
                if averaged:
                    dist.all_reduce(parameter.grad)
                    parameter.grad /= dist.get_world_size()
            optimizer.step()
        yield {"part": "naive", "averaged": averaged, "apart": apart(model)}


def ddp() -> Iterator[dict]:
    """DDP around the module as it is, compiled, and compiled in pieces; the steps in turn."""
    x = data()
    variants = {
        "eager": Wrapped(False),
        "one graph": Wrapped(True),
        "in pieces": Wrapped(True, BUCKET),
    }
    shared = Events()
    watch_halves(shared)
    for name in ("one graph", "in pieces"):
        variants[name].events = variants[name].wire.events = shared
    for variant in variants.values():
        variant.step(x)  # compiles; DDP orders its buckets by what it saw
        variant.step(x)
    steps: dict[str, list[dict]] = {name: [] for name in variants}
    for _ in range(STEPS):
        for name, variant in variants.items():
            steps[name].append(variant.step(x))
    expected = gradients(variants["eager"].model)
    for name, variant in variants.items():
        off = furthest(gradients(variant.model), expected)
        yield {"part": "DDP", "name": name, "off": off} | middle(steps[name])


def middle(steps: list[dict]) -> dict:
    """The step whose time is the median."""
    wanted = statistics.median_low(step["seconds"] for step in steps)
    return next(step for step in steps if step["seconds"] == wanted)


def sharded(each_block: bool) -> nn.Module:
    """Every rank holds a part of each parameter; each block is compiled before, or none."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    model = make()
    for block in model:
        if each_block:
            block.forward = minidynamo.compile(block.forward)
        fully_shard(block, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def fsdp() -> Iterator[dict]:
    """FSDP2: blocks sharded as they are, each compiled before, and the whole compiled after."""
    x, expected = data(), None
    for name in ("eager", "each block", "the whole"):
        minidynamo.reset()
        model = sharded(each_block=name == "each block")
        run: Callable = minidynamo.compile(model) if name == "the whole" else model
        run(x).square().mean().backward()
        found = gradients(model)
        expected = expected or found
        yield {"part": "FSDP2", "name": name, "off": furthest(found, expected)} | sizes(model)


def sizes(model: nn.Module) -> dict:
    """What was captured, and how many numbers of the weights this rank holds."""
    frames = list(minidynamo.records.frames)
    return {
        "graphs": sum(frame.backend_record is not None for frame in frames),
        "breaks": sum(len(frame.graph_breaks) for frame in frames),
        "here": sum(p.to_local().numel() for p in model.parameters()),
        "whole": sum(p.numel() for p in model.parameters()),
    }


# ---- starting them
def run(limit: int = 240) -> list[dict]:
    """Start two ranks and read what they say.  RuntimeError with their last words if they fail."""
    command = [sys.executable, "-W", "ignore", "-m", "torch.distributed.run", "--standalone"]
    command += ["--nproc-per-node=2", "-m", __name__]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=limit)
    if ended.returncode:
        raise RuntimeError(ended.stderr[-2000:])
    return [json.loads(line) for line in ended.stdout.splitlines() if line.startswith("{")]


def main() -> None:
    dist.init_process_group("gloo")
    for part in (naive, fsdp, ddp):
        for row in part():
            if dist.get_rank() == 0:
                print(json.dumps(row), flush=True)
    dist.destroy_process_group()
    sys.stdout.flush()
    os._exit(0)  # the wires' threads wait for more


if __name__ == "__main__":
    main()
