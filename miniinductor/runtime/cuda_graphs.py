"""mode="reduce-overhead": a compiled graph is recorded once as a CUDA graph and replayed with one launch.

In:   the callable of a compiled graph on one GPU.  Out: a callable that gives the same, with the CPU's work per kernel gone.

    first call on a stream     runs as usual: kernels load, libraries allocate their workspaces
    second call                is recorded: inputs are copied into tensors of its own, whose addresses the recording holds
    every later call           copies the inputs there, replays, and returns copies of the outputs

Outputs are copies because the next replay writes the originals again.  Where a recording would be wrong it is refused and
the refusal recorded: written inputs, tensors on the CPU, kernels that wait for the GPU.  Parameters are used where they
lie: a parameter whose memory has moved since makes a new recording.  One recording per stream, with a memory pool shared by
all recordings of that stream, which run one after the other.

Mirrors torch/_inductor/cudagraph_trees.py (paper section 4.7).  Left out: trees of graphs (outputs that feed the next one
without a copy), several size variants in one pool.
"""
import weakref

import torch

_pools = weakref.WeakValueDictionary()      # stream -> Pool, as long as a recording uses it


class Pool:
    """A memory pool; once no graph is left in it torch gives its memory back, so its handle must not be used again."""

    def __init__(self):
        self.handle = torch.cuda.graph_pool_handle()


def refusal(graph, device):
    """Why a lowered graph must not be recorded, or None."""
    if device.type != "cuda":
        return "the graph does not run on a GPU"
    if any(name in graph.inputs for name, _ in graph.mutations):
        return "an input is written: a replay would write the copy"
    layouts = [b.layout for b in [*graph.inputs.values(), *graph.operations] if getattr(b, "layout", None) is not None]
    if any(layout.device.type == "cpu" for layout in layouts):
        return "a tensor of the graph lies on the CPU"
    for buffer in graph.operations:
        tags = getattr(getattr(buffer, "op", None), "tags", ())
        if torch.Tag.data_dependent_output in tags or torch.Tag.dynamic_output_shape in tags:
            return f"{buffer.op} waits for the GPU: its result decides what comes next"
    return None


def forget_failed_capture(device):
    """The random number generator believes that a failed capture goes on; one that succeeds ends it."""
    torch.cuda.synchronize(device)
    with torch.cuda.device(device), torch.cuda.graph(torch.cuda.CUDAGraph()):
        torch.zeros(1, device=device)


class GraphedCall:
    """`run`, recorded per stream."""

    def __init__(self, run, graph, device, record):
        self.run, self.device, self.record = run, device, record
        self.held = [t for t in graph.constants.values() if isinstance(t, torch.Tensor)]
        self.recordings = {}

    def __call__(self, *inputs):
        stream = torch._C._cuda_getCurrentRawStream(self.device.index or 0)
        known = self.recordings.get(stream)
        if known is None or torch.cuda.is_current_stream_capturing():
            self.recordings.setdefault(stream, "warm")
            return self.run(*inputs)
        if known == "warm":
            try:
                known = self.recordings[stream] = Recording(self, inputs, stream)
                self.record.notes.append(f"recorded as a CUDA graph: {len(inputs)} inputs are copied per call")
            except RuntimeError as error:
                forget_failed_capture(self.device)
                known = self.recordings[stream] = "refused"
                self.record.notes.append(f"no CUDA graph: {str(error).splitlines()[0]}")
        if known == "refused":
            return self.run(*inputs)
        if not known.fits(inputs):
            del self.recordings[stream]         # a parameter moved: warm up and record again
            return self(*inputs)
        return known.replay(inputs)


class Recording:
    def __init__(self, owner, inputs, stream):
        self.held, self.addresses = owner.held, [t.data_ptr() for t in owner.held]
        with torch.no_grad():
            self.inputs = [torch.empty_strided(t.shape, t.stride(), dtype=t.dtype, device=t.device).copy_(t) for t in inputs]
        self.graph = torch.cuda.CUDAGraph()
        self.pool = _pools.get(stream) or Pool()
        _pools[stream] = self.pool
        with torch.cuda.device(owner.device), torch.cuda.graph(self.graph, pool=self.pool.handle):
            self.outputs = owner.run(*self.inputs)

    def fits(self, inputs):
        return [t.data_ptr() for t in self.held] == self.addresses

    def replay(self, inputs):
        if self.inputs:
            torch._foreach_copy_(self.inputs, inputs)
        self.graph.replay()
        return [o.clone() if isinstance(o, torch.Tensor) else o for o in self.outputs]
