"""mode="reduce-overhead": a compiled graph is recorded once as a CUDA graph and replayed with one
launch.

In:   the callable of a compiled graph on one GPU.  Out: a callable that gives the same, with the
      CPU's work per kernel gone.

    first call on a stream     runs as usual: kernels load, libraries allocate their workspaces
    second call                is recorded: the recording holds the addresses of everything it reads and writes
    every later call           puts the inputs where the recording expects them, replays, and returns copies of the outputs

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

import torch

from ..foreign import ours

new_pools = weakref.WeakValueDictionary  # stream -> Pool, as long as a recording uses it
_pools = new_pools()  # of recordings that keep nothing
# other threads may work meanwhile (`thread_local`), but torch empties every device's cache before
# it records
_recording = threading.Lock()


class Pool:
    """A memory pool; once no graph is left in it torch gives its memory back, so its handle must
    not be used again."""

    def __init__(self):
        self.handle = torch.cuda.graph_pool_handle()
        self.lock = (
            threading.Lock()
        )  # a second thread on the same stream must not come between inputs, replay and copies
        self.kept = (
            frozenset()
        )  # addresses of what the forward recording keeps for its backward half


def refusal(graph, device):
    """Why a lowered graph must not be recorded, or None."""
    if device.type != "cuda":
        return "the graph does not run on a GPU"
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


def current_stream(device):
    """(device's number, the stream's handle: each device has a stream 0); None while somebody else
    records."""
    number = device.index or 0
    return (
        None
        if torch.cuda.is_current_stream_capturing()
        else (number, torch._C._cuda_getCurrentRawStream(number))
    )


def is_on_cpu(tensor):
    return tensor.device.type == "cpu"


def capture(run, inputs, pool, device):
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


def forget_failed_capture(device):
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

    pools: where recordings of one stream find their pool.  results: number of outputs that the
    caller gets; the others are kept for a backward half, in the recording's own memory.
    is_backward: reads what a forward recording of the same `pools` keeps.
    """

    def __init__(self, run, program, record, pools=_pools, results=None, is_backward=False):
        self.run, self.device, self.record, self.pools = run, program.device, record, pools
        self.results, self.is_backward = results, is_backward
        self.held = [t for t in program.constants.values() if isinstance(t, torch.Tensor)]
        self.written = [
            program.inputs.index(name) for name in program.mutations if name in program.inputs
        ]
        self.written_held = [
            program.constants[name] for name in program.mutations if name in program.constants
        ]
        self.recordings, self.last, self.moving = {}, {}, set()

    def __call__(self, *inputs):
        stream = current_stream(self.device)
        pool, known = self.pools.get(stream), self.recordings.get(stream)
        addresses = [t.data_ptr() for t in (*inputs, *self.held)]
        if stream is None or known == "refused":
            return self.run(*inputs)
        if self.is_backward and (
            pool is None or not pool.kept <= {*addresses}
        ):  # of a forward call that was not replayed
            self.last.setdefault(stream, addresses)
            return self.run(*inputs)
        if isinstance(known, Recording) and not known.fits(addresses):
            del self.recordings[stream]
            known = None
        if known is None:
            before = self.last.get(stream)
            self.last[stream] = addresses
            if before is None:
                return self.run(*inputs)
            known = self.recordings[stream] = self.record_on(stream, inputs, addresses, before)
            if known == "refused":
                return self.run(*inputs)
        if known.is_needed():  # an earlier call's backward half has yet to come
            return self.run(*inputs)
        return known.replay(inputs)

    def record_on(self, stream, inputs, addresses, before):
        pool = self.pools.get(stream) or Pool()
        self.moving |= {
            i
            for i, t in enumerate(inputs)
            if addresses[i] != before[i]
            and addresses[i] not in pool.kept
            and not isinstance(t, torch.nn.Parameter)
        }
        try:
            recording = Recording(self, inputs, addresses, pool)
        except ours(RuntimeError) as error:
            forget_failed_capture(self.device)
            self.record.notes.append(f"no CUDA graph: {str(error).splitlines()[0]}")
            return "refused"
        self.pools[stream] = pool
        self.record.notes.append(
            f"recorded as a CUDA graph: {len(recording.copied)} of {len(inputs)} inputs are copied per call"
        )
        return recording


class Recording:
    def __init__(self, owner, inputs, addresses, pool):
        if any(is_on_cpu(t) for t in inputs):
            raise RuntimeError("an input lies on the CPU")
        self.pool, self.results = pool, owner.results
        self.fixed = [(i, address) for i, address in enumerate(addresses) if i not in owner.moving]
        self.copied = sorted(owner.moving)
        own = list(inputs)
        with torch.no_grad():
            for i in self.copied:
                own[i] = torch.empty_strided(
                    own[i].shape, own[i].stride(), dtype=own[i].dtype, device=own[i].device
                ).copy_(own[i])
        self.own = [own[i] for i in self.copied]
        self.back = [(i, own[i]) for i in owner.written if i in owner.moving]
        self.written, self.written_held = (
            [i for i in owner.written if i not in owner.moving],
            owner.written_held,
        )
        self.play, self.outputs = capture(owner.run, own, pool, owner.device)
        kept = self.outputs[self.results :] if self.results is not None else []
        self.storages = list({t.data_ptr(): t.untyped_storage() for t in kept}.values())
        self.users = self.count_users()
        if self.results is not None:
            pool.kept = frozenset(t.data_ptr() for t in kept if t.numel())

    def fits(self, addresses):
        return all(addresses[i] == address for i, address in self.fixed)

    def count_users(self):
        return [torch._C._storage_Use_Count(s._cdata) for s in self.storages]

    def is_needed(self):
        """Does anybody still hold what the last replay kept?"""
        return self.count_users() != self.users

    def replay(self, inputs):
        recording = torch.is_grad_enabled()
        with self.pool.lock:
            try:  # `with torch.no_grad()` could be cut short by an exception in its `__exit__`
                torch._C._set_grad_enabled(False)
                return self.replay_now(inputs)
            finally:
                torch._C._set_grad_enabled(recording)

    def replay_now(self, inputs):
        if self.own:
            torch._foreach_copy_(self.own, [inputs[i] for i in self.copied])
        self.play()
        for i, tensor in self.back:
            inputs[i].copy_(tensor)
        if self.written or self.written_held:  # autograd notices writes by the version
            torch.autograd.graph.increment_version(
                [*[inputs[i] for i in self.written], *self.written_held]
            )
        count = len(self.outputs) if self.results is None else self.results
        return copies(self.outputs[:count]) + [t.detach() for t in self.outputs[count:]]


def record_half(run, program, record, half):
    """The function that replays `run`; half: of a training step, or None."""
    if half is None:
        return GraphedCall(run, program, record)
    return GraphedCall(run, program, record, half.pools, half.results, half.is_backward)


def copies(values):
    """Copies of the tensors among `values`, by one kernel for all of a dtype."""
    originals = [v for v in values if isinstance(v, torch.Tensor)]
    fresh = [
        torch.empty_strided(t.shape, t.stride(), dtype=t.dtype, device=t.device) for t in originals
    ]
    if fresh:
        torch._foreach_copy_(fresh, originals)
    fresh = iter(fresh)
    return [next(fresh) if isinstance(v, torch.Tensor) else v for v in values]
