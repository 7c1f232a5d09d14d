"""--suite combinations: two front ends and two back ends, each with each, on the CPU.

Every program runs with torch.compile's capture and with ours, and behind each with torch's inductor
and with ours.  A row says how many graphs were captured, how many kernels were generated, what the
first call took, and how long a steady call takes beside eager (interleaved).
`tools/documentation.py` writes `docs/combinations.md` from it.
"""

import time
from typing import Any
from collections.abc import Callable

import torch
import torch.nn.functional as F

import minidynamo
from minidynamo import records
from minidynamo.extras import torch_frontend

from ..models import gpt2
from ..runner import agrees, fresh_caches, interleave, peer_compile, ratio
from .common import Options, Row, suite, wanted

CAPTURES, BACKENDS = ("torch.compile", "minidynamo"), ("torch's inductor", "miniinductor")


def softmax_of_a_product() -> Any:
    x, y = torch.randn(512, 256), torch.randn(256, 1024)
    return (lambda: lambda x, y: torch.softmax(F.gelu(x @ y), -1)), [(x, y)], {}


def a_break() -> Any:
    """A graph break between two halves."""

    def f(x):
        y = F.gelu(x) * torch.sigmoid(x)
        largest = y.amax().item()
        return torch.softmax(y / largest, -1)

    return (lambda: f), [(torch.randn(1024, 512),)], {}


def many_sizes() -> Any:
    """Five sizes, with symbols from the first on."""
    calls = [(torch.randn(n, 256),) for n in (512, 384, 640, 96, 768)]
    return (lambda: lambda x: F.layer_norm(F.gelu(x), (256,)) + x.mean(0)), calls, {"dynamic": True}


def gpt2_forward() -> Any:
    model, inputs = gpt2(layers=2, sequence=64)
    model.config.use_cache = False
    return (lambda: lambda ids: model(input_ids=ids).logits), [(inputs["input_ids"],)], {}


def gpt2_training() -> Any:
    """Forward, loss and backward."""
    model, inputs = gpt2(layers=2, sequence=64)
    model.config.use_cache = False
    model.train(False)  # no dropout: all combinations see the same numbers

    def loss_of(ids):
        return model(input_ids=ids, labels=ids).loss

    def build(compiler=None):
        compiled = compiler(loss_of) if compiler else loss_of

        def step(ids):
            model.zero_grad()
            loss = compiled(ids)
            loss.backward()
            return loss.detach(), model.transformer.wte.weight.grad

        return step

    return build, [(inputs["input_ids"],)], {}


PROGRAMS = {
    "softmax(gelu(x @ y))": softmax_of_a_product,
    "a graph break": a_break,
    "five sizes": many_sizes,
    "GPT-2, 2 layers": gpt2_forward,
    "GPT-2, 2 layers, training": gpt2_training,
}


class Combination:
    """One capture with one backend; counts graphs and kernels."""

    def __init__(self, capture: str, backend: str) -> None:
        self.capture, self.backend = capture, backend
        self.graphs = 0
        self.records: list[Any] = []

    def compiler(self, options: dict[str, Any]) -> Any:
        """What compiles a function."""
        if self.capture == "torch.compile":
            return lambda f: peer_compile(f, backend=self.as_torchs_backend(), **options)
        if self.backend == "miniinductor":
            return lambda f: minidynamo.compile(f, **options)
        return lambda f: minidynamo.compile(f, backend=self.inductor(), **options)

    def inductor(self) -> Any:
        from torch._dynamo.backends.registry import lookup_backend

        return lookup_backend("inductor")

    def as_torchs_backend(self) -> Any:
        chosen = torch_frontend.miniinductor
        if self.backend != "miniinductor":
            chosen = self.inductor()

        def counted(gm, example_inputs):
            self.graphs += 1
            made = chosen(gm, example_inputs)
            self.records.append(getattr(made, "record", None))
            return made

        return counted

    def counts(self, since: int) -> Any:
        """{graphs, kernels}; kernels of both halves.  since: torch's count of kernels before."""
        from torch._inductor import metrics

        ours, graphs = self.records, self.graphs
        if self.capture == "minidynamo":
            ours = [record.backend_record for record in records.frames if record.graph is not None]
            graphs = len(ours)
        kernels = metrics.generated_kernel_count - since
        if self.backend == "miniinductor":
            halves = [half for record in ours if record for half in (record, record.backward)]
            kernels = sum(len(half.kernels) for half in halves if half)
        return {"graphs": graphs, "kernels": kernels}


def compiled_by(
    combination: Combination, build: Callable, calls: list[tuple[Any, ...]], options: dict[str, Any]
) -> Any:
    """(function, {first_s, graphs, kernels, right}) of one combination."""
    import torch._dynamo
    from torch._inductor import metrics

    torch._dynamo.reset()
    minidynamo.reset()
    records.frames.clear()
    since, eager = metrics.generated_kernel_count, build()
    compiler = combination.compiler(options)
    # a program that is no plain function compiles a part of itself
    function = build(compiler) if build.__code__.co_argcount else compiler(build())
    with fresh_caches():
        start = time.perf_counter()
        results = [function(*args) for args in calls]
        seconds = time.perf_counter() - start
        right = all(agrees(eager(*args), found) for args, found in zip(calls, results))
    return function, {"first_s": seconds, "right": right, **combination.counts(since)}


@suite("combinations")
def combinations(options: Options, result: Row) -> Any:
    """Both captures with both backends.  With one thread, processor seconds are measured: other
    processes of the machine then count less."""
    one = torch.get_num_threads() == 1
    clock = time.process_time if one else time.perf_counter
    for name, program in PROGRAMS.items():
        if not wanted(name, options):
            continue
        torch.manual_seed(0)
        build, calls, settings = program()
        eager = build()
        for capture in CAPTURES:
            for backend in BACKENDS:
                with torch.set_grad_enabled("training" in name):
                    combination = Combination(capture, backend)
                    function, row = compiled_by(combination, build, calls, settings)
                    both = {"eager": lambda: eager(*calls[0]), "this": lambda: function(*calls[0])}
                    timings = interleave(both, budget=2.0, rounds=(15, 40), clock=clock)
                row |= {"name": name, "capture": capture, "backend": backend}
                row["clock"] = clock.__name__
                row["ms"] = {key: 1e3 * timing.median for key, timing in timings.items()}
                row["eager / this"] = ratio(timings, "eager", "this")
                print(
                    f"{name:26} {capture:14} {backend:17} graphs {row['graphs']} kernels "
                    f"{row['kernels']:3} first {row['first_s']:6.2f} s  eager/this "
                    f"{row['eager / this'][0]:.2f}  {'right' if row['right'] else 'WRONG'}",
                    flush=True,
                )
                yield row
