"""One of two gloo processes: `torchrun` starts them for tests/test_distributed.py.

In:   the names of the checks to run, each a function below, and a folder that both share.
Out:  a line for each check that has passed; the first that fails ends the process.
"""

import datetime
import os
import sys
from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel

import minidynamo
import miniinductor
from minidynamo import records
from miniinductor.autograd.runtime import Backward

FOLDER = sys.argv[1]
Wrap = Callable[[nn.Module, bool], nn.Module]


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.up, self.norm = nn.Linear(width, 8), nn.LayerNorm(8)
        self.down = nn.Linear(8, width)

    def forward(self, x):
        return x + self.down(self.norm(nn.functional.gelu(self.up(x))))


def make() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(Block(6), Block(6), nn.Linear(6, 3))


def whole(tensor):
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor


def same(compiled, eager, what=lambda parameter: parameter) -> None:
    for ours, expected in zip(compiled.parameters(), eager.parameters(), strict=True):
        ours, expected = whole(what(ours)), whole(what(expected))
        torch.testing.assert_close(ours, expected, rtol=1e-4, atol=1e-6)


def step(model: nn.Module, optimizer: torch.optim.Optimizer, seed: int) -> None:
    """One step on data that differ from rank to rank."""
    torch.manual_seed(10 * seed + dist.get_rank())
    data, target = torch.randn(5, 6), torch.randint(0, 3, (5,))
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(data), target).backward()


def train(wrap: Wrap) -> list:
    """Three steps, compared with eager's; the records of what was compiled."""
    minidynamo.reset()
    models = [wrap(make(), True), wrap(make(), False)]
    optimizers = [torch.optim.AdamW(m.parameters(), 0.01) for m in models]
    for number in range(3):
        for model, optimizer in zip(models, optimizers):
            step(model, optimizer, number)
        same(*models, lambda parameter: parameter.grad)
        for optimizer in optimizers:
            optimizer.step()
    same(*models)
    frames = [frame for frame in records.frames if frame.backend_record is not None]
    assert not any(frame.backend_record.notes_of("runs eagerly") for frame in frames)
    return frames


def ddp_around(model: nn.Module, compiled: bool) -> nn.Module:
    """DDP around the compiled module."""
    return DistributedDataParallel(minidynamo.compile(model) if compiled else model)


def ddp_inside(model: nn.Module, compiled: bool) -> nn.Module:
    """The DDP module is compiled."""
    model = DistributedDataParallel(model)
    return minidynamo.compile(model) if compiled else model


def fsdp_around(model: nn.Module, compiled: bool) -> nn.Module:
    """FSDP2's module is compiled: parameters are DTensors outside of forward."""
    fully_shard(model, mesh=init_device_mesh("cpu", (2,)))
    return minidynamo.compile(model) if compiled else model


def fsdp_blocks(model: nn.Module, compiled: bool) -> nn.Module:
    """Each block is compiled, then sharded: FSDP2's hooks stand around the compiled call."""
    mesh = init_device_mesh("cpu", (2,))
    for block in model:
        if compiled:
            block.forward = minidynamo.compile(block.forward, fullgraph=True)
        fully_shard(block, mesh=mesh)
    return fully_shard(model, mesh=mesh)


class Mlp(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(6, 8), nn.Linear(8, 6)

    def between(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.gelu(x) * torch.sigmoid(x)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(self.between(self.up(x)))


def make_mlps() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(Mlp(), Mlp(), nn.Linear(6, 3))


def in_parallel(model: nn.Module) -> nn.Module:
    """Half of the columns of `up`, half of the rows of `down`, on each rank."""
    mesh = init_device_mesh("cpu", (2,))
    for block in model:
        if isinstance(block, Mlp):
            parallelize_module(block, mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})
    return model


# --- the checks -----------------------------------------------------------------------------------
def check_ddp_around():
    assert [frame.backend_record.backward is not None for frame in train(ddp_around)] == [True]


def check_ddp_inside():
    assert any(frame.backend_record.backward for frame in train(ddp_inside))


def check_fsdp_around():
    train(fsdp_around)


def check_one_graph_for_each_block_of_fsdp():
    frames = train(fsdp_blocks)
    assert len(frames) == 3, frames
    assert not any(frame.graph_breaks for frame in frames)


def check_pieces_are_sent_one_by_one():
    """The last block's bucket is sent before the first block's backward half begins."""
    events = []
    half = Backward
    plain = half.__call__

    def told(self, *args):
        events.append("half")
        return plain(self, *args)

    def sent(state, bucket):
        events.append("bucket")
        work = dist.all_reduce(bucket.buffer().div_(2), async_op=True)
        return work.get_future().then(lambda done: done.value()[0])

    def wrap(model, compiled):
        inner = minidynamo.compile(model) if compiled else model
        wrapped = DistributedDataParallel(inner, bucket_cap_mb=400 / 2**20)
        if compiled:
            wrapped.register_comm_hook(None, sent)
        return wrapped

    half.__call__ = told
    try:
        train(wrap)
        in_one, events[:] = events[:], []
        with miniinductor.config.patch(gradient_buckets=400):
            [frame] = train(wrap)
    finally:
        half.__call__ = plain
    assert in_one.count("half") == 3  # one a step: every bucket is sent behind it
    [note] = frame.backend_record.notes_of("in ")
    pieces = int(note.split()[1])
    # DDP's buckets have their final size from the second step on; here is the third
    halves = [place for place, event in enumerate(events) if event == "half"]
    assert len(halves) == 3 * pieces >= 9, events
    assert "bucket" in events[halves[2 * pieces] : halves[-1]], events


def check_checkpoints_cross():
    """Saved from the compiled and wrapped model, loaded into an eager one, and back; training goes
    on as if nothing had been."""
    compiled, eager = ddp_around(make(), True), make()
    optimizers = [torch.optim.AdamW(m.parameters(), 0.01) for m in (compiled, eager)]
    step(compiled, optimizers[0], 0)
    optimizers[0].step()
    path = os.path.join(FOLDER, f"checkpoint{dist.get_rank()}")
    state = {"model": compiled.module.state_dict(), "optimizer": optimizers[0].state_dict()}
    torch.save(state, path)
    saved = torch.load(path)
    eager.load_state_dict(saved["model"])  # the names are the eager model's
    optimizers[1].load_state_dict(saved["optimizer"])
    eager = DistributedDataParallel(eager)
    for number in (1, 2):
        for model, optimizer in zip((compiled, eager), optimizers):
            step(model, optimizer, number)
            optimizer.step()
    same(compiled, eager)
    with torch.no_grad():
        eager.module[0].up.weight.mul_(2)
    compiled.module.load_state_dict(eager.module.state_dict())  # and the reverse
    for model, optimizer in zip((compiled, eager), optimizers):
        step(model, optimizer, 3)
        optimizer.step()
    same(compiled, eager)


def losses_of(model: nn.Module, optimizer: torch.optim.Optimizer, rows: int = 5) -> list[float]:
    """Of three steps on data that are the same on all ranks."""
    found = []
    for number in range(3):
        torch.manual_seed(number)
        data, target = torch.randn(rows, 6), torch.randint(0, 3, (rows,))
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(data), target)
        loss.backward()
        optimizer.step()
        found.append(loss.item())
    return found


def check_tensor_parallel() -> None:
    """Weights are DTensors: a graph ends before each layer that has them, and begins behind it,
    where tensors are local again; what is compiled between two layers is one graph."""
    expected_model = make_mlps()
    expected = losses_of(expected_model, torch.optim.SGD(expected_model.parameters(), 0.1))
    for what in ("around", "between"):
        minidynamo.reset()
        model = in_parallel(make_mlps())
        if what == "between":
            for block in model:
                if isinstance(block, Mlp):
                    block.between = minidynamo.compile(block.between, fullgraph=True)
        compiled = minidynamo.compile(model) if what == "around" else model
        found = losses_of(compiled, torch.optim.SGD(model.parameters(), 0.1))
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-6)
        same(model, expected_model)
        frames = [frame for frame in records.frames if frame.backend_record is not None]
        assert any(frame.backend_record.kernels for frame in frames), (what, frames)
        if what == "around":  # what runs eagerly is told by its name
            breaks = [str(one) for frame in records.frames for one in frame.graph_breaks]
            assert any("the tensor subclass DTensor is not traced" in one for one in breaks), breaks


def check_ranks_share_a_cache():
    """Both compile the same graph at the same moment, into the same empty folder."""
    cache = os.path.join(FOLDER, "cache")
    x = torch.arange(40.0).view(5, 8) - 20
    minidynamo.reset()
    with miniinductor.config.patch(cache_dir=cache):
        dist.barrier()
        found = minidynamo.compile(lambda x: torch.softmax(x.sin() * 3, -1) + x.mean())(x)
    torch.testing.assert_close(found, torch.softmax(x.sin() * 3, -1) + x.mean())
    dist.barrier()
    files = [name for _, _, names in os.walk(cache) for name in names]
    libraries = [name for name in files if name.endswith(".so")]
    assert len(libraries) == len(set(libraries)) == 1, files


def check_a_rank_dies():
    """The other one, in the middle of a step, gets an error, and does not wait forever."""
    model = ddp_around(make(), True)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    step(model, optimizer, 0)
    if dist.get_rank() == 1:
        os._exit(3)
    step(model, optimizer, 1)
    raise AssertionError("a step without the other rank has ended")


if __name__ == "__main__":
    torch.set_num_threads(1)
    minidynamo.config.raise_internal_errors = True
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=60))
    for name in sys.argv[2:]:
        globals()[f"check_{name}"]()
        os.write(1, f"passed {name} {dist.get_rank()}\n".encode())  # no other line in between
    dist.destroy_process_group()
