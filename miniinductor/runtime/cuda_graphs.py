"""mode="reduce-overhead": a compiled graph is recorded once as a CUDA graph and replayed with one
launch.

In:   the callable of a compiled graph on one GPU.  Out: a callable that gives the same, with the
      CPU's work per kernel gone.

    first call on a stream     runs as usual: kernels load, libraries allocate their workspaces
    second call                is recorded: the recording holds the addresses of everything it reads
                               and writes
    every later call           puts the inputs where the recording expects them, replays, and
                               returns copies of the outputs

Inputs.  One that lies where it lay before (parameters, buffers, a cache that is written in place)
is used where it lies, and every call checks its address; any other is copied to memory of the
recording.  An input that moves after all makes a new recording in which it is copied, a parameter
one in which it lies elsewhere.  Written inputs that were copied are copied back.

Outputs are copies, because the next replay writes the originals again, except what a training step
keeps for its backward half.  That stays where the forward recording put it and is where the
backward recording reads it.  Storages count their users, so a forward call sees whether a backward
half may still come; it then runs without the recording, and so does that backward half.

Memory.  Recordings of a stream share one pool, for they run one after the other.  A training step
has a pool of its own: between its halves, another graph's replay must not write over what it keeps.
Where a recording would be wrong it is refused, and the refusal recorded.

Mirrors torch/_inductor/cudagraph_trees.py (paper section 4.7).  Left out: trees of graphs (any
output that feeds the next one without a copy), several size variants in one pool.
"""

import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import torch

from ..errors import ours
from ..ir.loops import Graph
from ..records import CompileRecord
from .memory import Program

Stream: TypeAlias = tuple[int, int]  # the device's number, the stream's handle


class Pool:
    """A memory pool; once no graph is left in it torch gives its memory back, so its handle must
    not be used again."""

    def __init__(self) -> None:
        self.handle = torch.cuda.graph_pool_handle()
        # a second thread on the same stream must not come between inputs, replay and copies
        self.lock = threading.Lock()
        # addresses of what the forward recording keeps for its backward half
        self.kept: frozenset[int] = frozenset()


# of recordings that keep nothing; each pool is there as long as a recording uses it
_pools = weakref.WeakValueDictionary[Stream, Pool]()


class Step:
    """A training step: what the recordings of its two halves share."""

    def __init__(self, results: int) -> None:
        """results: how many outputs the forward half gives its caller."""
        self.results, self.pools = results, weakref.WeakValueDictionary[Stream, Pool]()


# other threads may work meanwhile (`thread_local`), but torch empties every device's cache before
# it records
_recording = threading.Lock()


def refusal(graph: Graph) -> str | None:
    """Why a graph that runs on a GPU must not be recorded, or None."""
    if any(buffer.layout is None for buffer in graph.inputs.values()):
        return "sizes are symbolic: a replay would run with those of the recording"
    layouts = [getattr(b, "layout", None) for b in [*graph.inputs.values(), *graph.operations]]
    if any(layout is not None and layout.device.type == "cpu" for layout in layouts):
        return "a tensor of the graph lies on the CPU"
    for buffer in graph.operations:
        tags = getattr(getattr(buffer, "op", None), "tags", ())
        if torch.Tag.data_dependent_output in tags or torch.Tag.dynamic_output_shape in tags:
            return f"{buffer.op} waits for the GPU: its result decides what comes next"
    return None


def current_stream(device: torch.device) -> Stream | None:
    """(device, stream) of the next call; None while another CUDA graph is recorded."""
    number = device.index or 0
    if torch.cuda.is_current_stream_capturing():
        return None
    return number, torch._C._cuda_getCurrentRawStream(number)


def capture(
    run: Callable, inputs: Sequence[Any], pool: Pool, device: torch.device
) -> tuple[Callable[[], None], Sequence[Any]]:
    """Record run(*inputs): (replay, outputs), where outputs are the tensors that each replay
    writes."""
    recording, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream(device)
    # scratch memory (cuBLAS's, ours) belongs to this recording: another one may be replayed beside
    # it on another stream
    torch._C._cuda_clearCublasWorkspaces()
    with (
        _recording,
        torch.cuda.device(device),
        torch.cuda.graph(
            recording, pool=pool.handle, stream=stream, capture_error_mode="thread_local"
        ),
    ):
        outputs = run(*inputs)
    torch._C._cuda_clearCublasWorkspaces()
    getattr(run, "workspaces_of", {}).pop(stream.cuda_stream, None)
    return recording.replay, outputs


def forget_failed_capture(device: torch.device) -> None:
    """The random number generator believes that a failed capture goes on; one that succeeds ends
    it."""
    torch.cuda.synchronize(device)
    with (
        _recording,
        torch.cuda.device(device),
        torch.cuda.graph(torch.cuda.CUDAGraph(), capture_error_mode="thread_local"),
    ):
        torch.zeros(1, device=device)


class GraphedCall:
    """`run`, recorded per stream.

    step: in training.  The first of a forward half's outputs are the caller's, the others are kept
    for the backward half, in the recording's own memory; that half reads what a recording in the
    same pools keeps.
    """

    def __init__(
        self,
        run: Callable,
        program: Program,
        record: CompileRecord,
        step: Step | None = None,
        is_backward: bool = False,
    ):
        self.run, self.device, self.record = run, program.device, record
        self.pools = step.pools if step else _pools
        self.results = step.results if step and not is_backward else None
        self.is_backward = is_backward
        inputs, constants = program.inputs, program.constants
        self.held = [t for t in constants.values() if isinstance(t, torch.Tensor)]
        self.written = [inputs.index(name) for name in program.mutations if name in inputs]
        self.written_held = [constants[name] for name in program.mutations if name in constants]
        self.recordings: dict[Stream, Recording] = {}
        self.refused: set[Stream] = set()  # where recording failed
        self.last: dict[Stream, list[int]] = {}  # addresses of an earlier call
        self.moving: set[int] = set()  # inputs that lie elsewhere each time

    def __call__(self, *inputs: Any) -> Sequence[Any]:
        stream = current_stream(self.device)
        if stream is None or stream in self.refused:
            return self.run(*inputs)
        recording = self.recording_for(stream, inputs)
        if recording is None or recording.is_needed():
            return self.run(*inputs)
        return recording.replay(inputs)

    def recording_for(self, stream: Stream, inputs: Sequence[Any]) -> "Recording | None":
        """What serves these inputs, made now if it is time; None: the call runs as usual (a note
        says why, where it cannot be recorded)."""
        addresses = [t.data_ptr() for t in (*inputs, *self.held)]
        pool, known = self.pools.get(stream), self.recordings.get(stream)
        if self.is_backward and (pool is None or not pool.kept <= {*addresses}):
            self.last.setdefault(stream, addresses)  # of a forward call that was not replayed
            return None
        if known is not None:
            if known.fits(addresses):
                return known
            del self.recordings[stream], known  # the next one may take its memory
        before = self.last.get(stream)
        self.last[stream] = addresses
        if before is None:
            return None
        pool = pool or Pool()
        for i, tensor in enumerate(inputs):
            stays = addresses[i] == before[i] or addresses[i] in pool.kept
            if not stays and not isinstance(tensor, torch.nn.Parameter):
                self.moving.add(i)
        try:
            recording = Recording(self, inputs, addresses, pool)
        except ours(RuntimeError) as error:
            forget_failed_capture(self.device)
            self.record.notes.append(f"no CUDA graph: {str(error).splitlines()[0]}")
            self.refused.add(stream)
            return None
        self.pools[stream] = pool
        self.recordings[stream] = recording
        copied = f"{len(recording.copied)} of {len(inputs)} inputs are copied per call"
        self.record.notes.append(f"recorded as a CUDA graph: {copied}")
        return recording


class Recording:
    """One CUDA graph, and where it expects its inputs."""

    def __init__(
        self, owner: GraphedCall, inputs: Sequence[Any], addresses: Sequence[int], pool: Pool
    ):
        if any(t.device.type != owner.device.type for t in inputs):
            raise RuntimeError("an input lies on the CPU")
        moving = owner.moving
        self.pool, self.results = pool, owner.results
        self.fixed = [(i, address) for i, address in enumerate(addresses) if i not in moving]
        self.copied = sorted(moving)
        with torch.no_grad():
            self.own = copies([inputs[i] for i in self.copied])
        own = list(inputs)
        for i, tensor in zip(self.copied, self.own):
            own[i] = tensor
        self.back = [(i, own[i]) for i in owner.written if i in moving]
        self.written = [i for i in owner.written if i not in moving]
        self.written_held = owner.written_held
        self.play, self.outputs = capture(owner.run, own, pool, owner.device)
        kept = self.outputs[self.results :] if self.results is not None else []
        self.storages = list({t.data_ptr(): t.untyped_storage() for t in kept}.values())
        self.users = self.count_users()
        if self.results is not None:
            pool.kept = frozenset(t.data_ptr() for t in kept if t.numel())

    def fits(self, addresses: Sequence[int]) -> bool:
        return all(addresses[i] == address for i, address in self.fixed)

    def count_users(self) -> list[int]:
        return [torch._C._storage_Use_Count(s._cdata) for s in self.storages]

    def is_needed(self) -> bool:
        """Does anybody still hold what the last replay kept?  An earlier call's backward half has
        yet to come."""
        return self.count_users() != self.users

    def replay(self, inputs: Sequence[Any]) -> list[Any]:
        recording = torch.is_grad_enabled()
        with self.pool.lock:
            try:  # `with torch.no_grad()` could be cut short by an exception in its `__exit__`
                torch._C._set_grad_enabled(False)
                if self.own:
                    torch._foreach_copy_(self.own, [inputs[i] for i in self.copied])
                self.play()
                for i, tensor in self.back:
                    inputs[i].copy_(tensor)
                if self.written or self.written_held:  # autograd notices writes by the version
                    written = [*[inputs[i] for i in self.written], *self.written_held]
                    torch.autograd.graph.increment_version(written)
                count = len(self.outputs) if self.results is None else self.results
                return copies(self.outputs[:count]) + [t.detach() for t in self.outputs[count:]]
            finally:
                torch._C._set_grad_enabled(recording)


def copies(values: Sequence[Any]) -> list[Any]:
    """Copies of the tensors among `values`, by one kernel for all of a dtype.  (Of few numbers: its
    programs copy 65,536 each.)"""
    originals = [v for v in values if isinstance(v, torch.Tensor)]
    fresh = [t.new_empty_strided(t.shape, t.stride()) for t in originals]
    if len(fresh) == 1:
        fresh[0].copy_(originals[0])
    elif fresh:
        torch._foreach_copy_(fresh, originals)
    remaining = iter(fresh)
    return [next(remaining) if isinstance(v, torch.Tensor) else v for v in values]
