"""One model of `--suite paper`, in a process of its own: every column compiled, checked, timed.

In:   a model's name, a device, the columns' names.  Out: a row a column: seconds a call of eager,
      ours and torch.compile, seconds of the first call, peak bytes, what was wrong.

A column is how the model runs:

    inference fp32, inference bf16    a forward pass in eval mode
    training fp32, training AMP       forward, loss and backward; AMP: forward under bfloat16
                                      autocast
    capture                           inference fp32, with a backend that runs the graph as it is:
                                      the paper's overhead of capture

Several processes compile at the same time; each is timed alone (`alone.alone`).  A result counts
only if it is right: with the exact result (the same in float64) its error may be twice eager's;
without one, or where eager draws random numbers, it has to be near eager's own, by what eager's
changes when its parameters are rounded once more.
"""

import contextlib
import copy
import functools
import gc
import random
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch

import minidynamo

from ..census import compilers
from ..error_bound import allowed_error
from ..public_models import loss_of
from ..runner import Timing, fresh_caches, interleave, ratio, relative_error, tensors_of
from .alone import alone
from .models import MODELS, build

COLUMNS = ("inference fp32", "inference bf16", "training fp32", "training AMP", "capture")
OURS, PEER = "ours", "torch.compile"
DURING = "@during "  # a line for the process that waits: what takes long, should it take too long
Row = dict[str, Any]
NEAR = {torch.float32: 2e-3, torch.bfloat16: 5e-2}  # of eager's norm: dozens of layers rounded


def compiler_of(label: str, column: str) -> tuple[Callable, Callable[[], None]]:
    """(compile, forget what was compiled)."""
    # torch's fake tensors import torch._dynamo, too: in no one's first call, as in a warm process
    import torch._inductor.config

    compile_it, forget = compilers(label == PEER)[label]
    # this process compiles (ours has processes for Triton): a pool for each model would only wait
    torch._inductor.config.compile_threads = 1
    backend = "eager" if column == "capture" else "inductor"
    return functools.partial(compile_it, backend=backend), forget


class Step:
    """What is called: a forward pass, or a training step that gives the loss and the gradients."""

    def __init__(self, name: str, column: str, device: str) -> None:
        model, inputs, targets = another(name)
        torch.manual_seed(0)
        self.trains, self.amp = column.startswith("training"), column == "training AMP"
        self.device = device
        self.model = model.to(device).train(self.trains)
        arguments = dict(inputs, **targets) if self.trains else inputs
        dtype = torch.bfloat16 if column == "inference bf16" else torch.float32
        self.model = self.model.to(dtype)
        self.arguments = moved(arguments, device, dtype)

    def of(self, function: Callable) -> Callable[[], Any]:
        """A function without arguments that calls `function`, the model or what compiled it."""
        return (lambda: self.train(function)) if self.trains else (lambda: self.infer(function))

    def infer(self, function: Callable) -> Any:
        with torch.no_grad():
            return function(**self.arguments)

    def train(self, function: Callable) -> list[torch.Tensor]:
        self.model.zero_grad(set_to_none=True)
        with torch.autocast(self.device, torch.bfloat16, enabled=self.amp):
            loss = loss_of(function(**self.arguments))
        loss.backward()
        return [loss.detach(), *map(gradient_of, self.model.parameters())]

    def exact(self) -> Any:
        """The result in float64, or None where the model does not run in it."""
        wide = copy.copy(self)
        try:
            wide.model = copy.deepcopy(self.model).double()
            wide.arguments = moved(self.arguments, self.device, torch.float64)
            wide.amp = False
            return results(wide.of(wide.model))
        except Exception:  # a dtype that the model itself has written down, or too little memory
            return None


def gradient_of(parameter: torch.Tensor) -> torch.Tensor:
    """Zeros where there is none: a compiler may return either for what the loss does not use."""
    return torch.zeros_like(parameter) if parameter.grad is None else parameter.grad


@functools.lru_cache(maxsize=1)
def built(name: str) -> tuple:
    """What `models.build` gives: random weights are drawn once for all columns of a model."""
    return build(name)


def another(name: str) -> tuple:
    """A model of its own for a column; built again where it cannot be copied."""
    try:
        return copy.deepcopy(built(name))
    except Exception:  # tensors that are not leaves, as older weight norms have them
        return build(name)


def moved(value: Any, device: str, dtype: torch.dtype) -> Any:
    """Tensors of nested arguments on the device; floating ones in the dtype."""
    if isinstance(value, dict):
        return {key: moved(part, device, dtype) for key, part in value.items()}
    if isinstance(value, list):
        return [moved(part, device, dtype) for part in value]
    if not isinstance(value, torch.Tensor):
        return value
    return value.to(device, dtype) if value.is_floating_point() else value.to(device)


def results(run: Callable[[], Any], seed: int = 0) -> list[torch.Tensor]:
    """The floating-point tensors of a call that draws from this seed."""
    torch.manual_seed(seed)
    with same_algorithms():
        found = tensors_of(run())
    return [t.detach().clone() for t in found if t.is_floating_point()]


@contextlib.contextmanager
def same_algorithms() -> Iterator[None]:
    """cuDNN takes algorithms that give the same sums each time, in whole float32."""
    with torch.backends.cudnn.flags(enabled=True, deterministic=True, allow_tf32=False):
        yield


class Judge:
    """Says whether a compiler's results are right."""

    def __init__(self, step: Step) -> None:
        eager = step.of(step.model)
        self.eager = results(eager)
        self.dtype = torch.bfloat16 if step.amp else self.eager[0].dtype
        again = results(eager, seed=1)
        self.is_random = step.trains and relative_error(again, self.eager) > 1e-6
        self.repeats = relative_error(results(eager), self.eager)
        exact = None if self.is_random else step.exact()
        self.exact = exact if exact and all(bool(t.isfinite().all()) for t in exact) else None
        self.error = relative_error(self.eager, self.exact) if self.exact else None
        self.sensitivity = 0.0 if self.exact else self.nudged(step)

    def nudged(self, step: Step) -> float:
        """How far eager's results move when its parameters do, by one rounding each.  (Gradients
        through fifty batch norms move by per cents in float32, and by their whole size under
        bfloat16; with dropout, float64 cannot tell: it draws other numbers.)"""
        parameters = [p for p in step.model.parameters() if p.is_floating_point()]
        before = [parameter.detach().clone() for parameter in parameters]
        generator = torch.Generator().manual_seed(0)
        try:
            with torch.no_grad():
                for parameter in parameters:
                    signs = torch.randint(0, 2, parameter.shape, generator=generator) * 2 - 1
                    nudge = 1 + torch.finfo(self.dtype).eps / 2 * signs.to(parameter.device)
                    parameter.copy_(parameter.float() * nudge)
            return relative_error(results(step.of(step.model)), self.eager)
        finally:
            with torch.no_grad():
                for parameter, old in zip(parameters, before):
                    parameter.copy_(old)

    def problem(self, label: str, found: list[torch.Tensor]) -> str:
        """Why the results are wrong, or "".  torch.compile's own random numbers are not judged."""
        if self.is_random and label == PEER:
            return ""
        if self.exact is not None:
            error = relative_error(found, self.exact)
            if error <= allowed_error(self.error, self.dtype):
                return ""
            return f"error {error:.2g} against float64, eager's {self.error:.2g}"
        apart = relative_error(found, self.eager)
        limit = NEAR[self.dtype] + 2 * self.repeats + 2 * self.sensitivity
        return "" if apart <= limit else f"{apart:.2g} from eager where {limit:.2g} is allowed"


def measure(name: str, column: str, device: str, peer: bool) -> Row:
    """One row: what failed stands in it.

    Raises torch.OutOfMemoryError alone: other models take memory too, so that it says nothing.
    """
    row: Row = {"name": name, "group": MODELS[name], "column": column, "problem": {}}
    try:
        step = Step(name, column, device)
        judge, calls = Judge(step), {"eager": step.of(step.model)}
        row["judged by"] = "eager" if judge.exact is None else "float64"
        release(device)
        for label in (OURS, PEER) if peer else (OURS,):
            print(f"{DURING}{label}", flush=True)
            compiled(label, column, step, judge, row, calls)
        del judge
        release(device)
        with alone():
            return row | timed(calls, device)
    except torch.OutOfMemoryError:
        raise
    except ImportError as missing:
        return row | {"absent": str(missing)}
    except Exception as problem:  # eager itself does not run here
        return row | {"eager failed": f"{type(problem).__name__}: {problem}"[:300]}


def compiled(
    label: str, column: str, step: Step, judge: Judge, row: Row, calls: dict[str, Callable]
) -> None:
    """Compile, judge, and enter into the row; into `calls` too, if the result is right."""
    try:
        compile_it, forget = compiler_of(label, column)
        forget()
        run = step.of(compile_it(step.model))
        with fresh_caches():
            start = time.perf_counter()
            run()
            synchronise(step.device)
            row.setdefault("first call s", {})[label] = time.perf_counter() - start
            problem = judge.problem(label, results(run))
            run()
        if label == OURS:
            row |= what_ours_did()
        if problem:
            row["problem"][label] = problem
        else:
            calls[label] = run
    except torch.OutOfMemoryError:
        raise
    except Exception as problem:
        row["problem"][label] = f"{type(problem).__name__}: {problem}"[:300]


def what_ours_did() -> Row:
    """Graphs and breaks of the frames that were compiled, and frames that our compiler gave up."""
    frames = list(minidynamo.records.frames)
    return {
        "graphs": sum(frame.graph is not None for frame in frames),
        "breaks": [b.reason[:100] for frame in frames for b in frame.graph_breaks][:5],
        "given up": [frame.error.strip().splitlines()[-1][:200] for frame in frames if frame.error],
    }


def timed(calls: dict[str, Callable], device: str) -> Row:
    """Seconds, ratios within rounds, and peak bytes beyond what was there before."""
    if device == "cpu":
        timings = interleave(calls, budget=6.0, rounds=(5, 15), shuffled=True)
    else:
        timings = on_gpu(calls)
    row: Row = {"seconds": {label: timing.median for label, timing in timings.items()}}
    for label in calls:
        if label != "eager":
            row[f"eager / {label}"] = ratio(timings, "eager", label)
    if OURS in calls and PEER in calls:
        row[f"{PEER} / {OURS}"] = ratio(timings, PEER, OURS)
    if device == "cuda":
        row["peak bytes"] = {label: peak(call) for label, call in calls.items()}
    return row


def on_gpu(
    calls: dict[str, Callable], rounds: int = 9, span: float = 0.04, most: int = 20
) -> dict[str, Timing]:
    """Seconds of a call by the host's clock, around synchronised batches of about `span` seconds
    (of one call at least, of `most` at most), in another order each round."""
    count, found = {}, {label: Timing([]) for label in calls}
    for label, call in calls.items():
        for _ in range(2):
            batch_of(call, 1)
        count[label] = max(1, min(most, round(span / batch_of(call, 1))))
    order = random.Random(0)
    for _ in range(rounds):
        for label in order.sample(list(calls), len(calls)):
            found[label].seconds.append(batch_of(calls[label], count[label]))
    return found


def batch_of(call: Callable, count: int) -> float:
    """Seconds of one of so many calls."""
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(count):
        call()
    torch.cuda.synchronize()
    return (time.perf_counter() - start) / count


def peak(call: Callable) -> int:
    """Bytes that a call needs at once, beside what lives before it."""
    release("cuda")
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    result = call()
    del result
    return torch.cuda.max_memory_allocated() - before


def synchronise(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def release(device: str) -> None:
    gc.collect()
    if device == "cuda":
        torch.cuda.empty_cache()
