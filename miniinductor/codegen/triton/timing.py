"""How long calls take on a GPU: which block sizes, and which of several ways, are the fastest.

In:   functions of a stream.  Out: {name: milliseconds}.

    >>> event_times({"mine": kernel_on_examples, "library's": library_on_examples}, device)
    {'mine': 0.013, "library's": 0.011}
"""

import functools
import importlib.metadata
import json
import random
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias, TypeVar

import torch

from ...errors import ours
from ...ir.loops import Layout
from ...sizes.symbols import extent
from ...toolchain.cpp import strip_comments
from ...toolchain.disk import cannot_write, digest, disk

Name = TypeVar("Name")
OfStream: TypeAlias = Callable[[int], object]  # queues work on the stream with this handle
ROUNDS = 25


@functools.cache
def triton_version() -> str:
    return importlib.metadata.version("triton")


@torch.no_grad()
def examples(
    layouts: Sequence[tuple[Sequence[int], Sequence[int], torch.dtype]], device: torch.device
) -> list[torch.Tensor] | None:
    """Tensors of these (size, stride, dtype): normal numbers (of a generator of their own: the
    user's must not notice), indices 0, which are in range.  None where there is no memory for
    them."""
    generator = torch.Generator(device).manual_seed(0)
    found = []
    for size, stride, dtype in layouts:
        try:
            flat = torch.zeros(extent(size, stride) or 0, dtype=dtype, device=device)
        except torch.cuda.OutOfMemoryError:
            return None
        if dtype.is_floating_point:
            flat.normal_(generator=generator)
        found.append(flat.as_strided(size, stride))
    return found


def event_times(calls: Mapping[Name, OfStream], device: torch.device) -> dict[Name, float]:
    """Milliseconds of each call(stream), in turns of a drawn order, the lower quartile: what
    disturbs can only add, and what one leaves in the cache helps the next."""
    stream, order = torch.cuda.current_stream(device), random.Random(0)
    pairs: dict[Name, list] = {name: [] for name in calls}
    for _ in range(ROUNDS):
        for name in order.sample(list(calls), len(calls)):
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            torch.cuda._sleep(100_000)  # launches must not be part of the time
            start.record(stream)
            calls[name](stream.cuda_stream)
            end.record(stream)
            pairs[name].append((start, end))
    stream.synchronize()
    return {
        name: sorted(start.elapsed_time(end) for start, end in found[2:])[ROUNDS // 4]
        for name, found in pairs.items()
    }


def race(
    calls: Mapping[str, Callable[[dict[str, torch.Tensor], int], None]],
    source: str,
    layouts: Mapping[str, Layout],
    device: torch.device,
) -> dict[str, float]:
    """Milliseconds of each call(tensors, stream), remembered on disk.  layouts: of the tensors that
    they take."""
    about = torch.cuda.get_device_properties(device).name, triton_version(), torch.__version__
    key = digest(strip_comments(source, "#"), layouts, *about)
    known = disk().read(key + ".race")
    if known is not None:
        return json.loads(known)
    numbers = [
        ([int(n) for n in layout.size], [int(n) for n in layout.stride], layout.dtype)
        for layout in layouts.values()
    ]
    tensors = examples(numbers, device)
    if tensors is None:
        return {name: len(name) for name in calls}
    named = dict(zip(layouts, tensors))
    ready = {name: functools.partial(call, named) for name, call in calls.items()}
    with torch.no_grad(), torch.cuda.device(device):
        times = event_times(ready, device)
    keep(key + ".race", json.dumps(times).encode())
    return times


def keep(name: str, content: bytes) -> None:
    """Write it.  Raises CompilerError where that fails."""
    try:
        disk().write(name, content)
    except ours(OSError) as error:
        raise cannot_write(name, error) from error
