"""Programs of many graph breaks, with objects that each call makes and counters that live on.

`PROGRAMS`: name -> makes a step; `step(n)` is call number n, with the same sizes in each call; of
the last programs one dimension grows.  A compiler must settle: nothing is compiled after the fifth
call.

    python -m benchmarks.programs.settling     # all, 9 calls each: compilations per call
"""

import dataclasses
import time
import types
from collections import namedtuple
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from benchmarks.programs import Compile, Program, Step, check_all, joining, results
from benchmarks.programs.storms import same

CALLS = 9
SETTLED = 5  # from this call on nothing is compiled
PROGRAMS: dict[str, Program] = {}
program = joining(PROGRAMS)


def pause() -> None:
    """The graph breaks here."""
    time.perf_counter()


# ---- modules and objects that each call makes
@program
def module_argument(compile: Compile) -> Step:
    step = compile(lambda layer, x: layer(x) * 2)
    return lambda n: step(nn.Hardtanh(-n - 1, 7.0), torch.ones(3))


@program
def layer_argument(compile: Compile) -> Step:
    step = compile(lambda layer, x: layer(x).relu())

    def call(n):
        torch.manual_seed(n)
        return step(nn.Linear(3, 3), torch.ones(2, 3))

    return call


@program
def activation_over_a_break(compile: Compile) -> Step:
    def step(x):
        act = nn.LeakyReLU(0.1)
        x = act(x)
        pause()
        return act(x - 1) + 1

    step = compile(step)
    return lambda n: step(torch.ones(3) * n - 2)


class Hinge(nn.Module):
    def __init__(self, margin):
        super().__init__()
        self.margin = margin
        self.distance = nn.PairwiseDistance()

    def forward(self, anchor, near, far):
        return (self.distance(anchor, near) - self.distance(anchor, far) + self.margin).relu()


@program
def triplet_loss(compile: Compile) -> Step:
    def step(points, margin):
        miner, loss = nn.CosineSimilarity(-1), Hinge(margin)
        alike = miner(points[:, None], points[None])
        far = alike.argmin(-1)
        if alike.min() > 2:
            return points
        pause()
        return (
            loss(points, points.roll(1, 0), points[far]).mean() + miner(points, points[far]).sum()
        )

    step = compile(step)
    return lambda n: step(torch.randn(6, 4), 0.2)


@program
def sequence_of_new_modules(compile: Compile) -> Step:
    weight = nn.Linear(4, 4)

    def step(x):
        net = nn.Sequential(weight, nn.Tanh(), weight)
        x = net(x)
        pause()
        return net(x).sum()

    step = compile(step)
    return lambda n: step(torch.ones(2, 4))


@dataclasses.dataclass
class Batch:
    x: torch.Tensor
    scale: float
    index: int
    names: list[str] = dataclasses.field(default_factory=list)


@program
def dataclass_over_a_break(compile: Compile) -> Step:
    def step(x, n):
        batch = Batch(x * 2, 0.5, n)
        pause()
        batch.x = batch.x + batch.index
        pause()
        return batch.x * batch.scale, batch.index

    step = compile(step)
    return lambda n: step(torch.ones(3), n)


@program
def miner_and_reducer(compile: Compile) -> Step:
    """As in libraries of metric learning: modules make modules, which keep statistics."""

    class Reducer(nn.Module):
        def forward(self, losses):
            self.seen = {name: part["indices"].numel() for name, part in losses.items()}
            return sum(part["losses"].mean() for part in losses.values())

    class Loss(nn.Module):
        def __init__(self, margin):
            super().__init__()
            self.margin, self.distance, self.reducer = margin, nn.PairwiseDistance(), Reducer()

        def forward(self, points, labels):
            alike = labels[:, None] == labels[None]
            if not alike.any():
                return points.sum() * 0
            first, second = torch.where(alike)
            far = self.distance(points[first], points[second])
            return self.reducer({"near": {"losses": (far - self.margin).relu(), "indices": first}})

    step = compile(lambda points, labels: Loss(0.1)(points, labels) + Reducer()({}))
    labels = torch.tensor([0, 1, 0, 1, 2])
    return lambda n: step(torch.arange(15.0).reshape(5, 3) * 0.1 * (n + 1), labels)


@program
def function_argument(compile: Compile) -> Step:
    def step(function, x):
        y = function(x)
        pause()
        return function(y) + x

    step = compile(step)
    return lambda n: step(lambda x: x * n + 1, torch.ones(3))


@program
def label_argument(compile: Compile) -> Step:
    step = compile(lambda x, label: x * 2 if label.endswith("7") else x + 1)
    return lambda n: step(torch.ones(3), f"batch {n}")


@program
def optimizer_argument(compile: Compile) -> Step:
    def step(weight, optimizer):
        weight.grad = torch.ones_like(weight)
        optimizer.step()
        return weight * 1

    step = compile(step)

    def call(n):
        weight = nn.Parameter(torch.ones(3) * n)
        return step(weight, torch.optim.SGD([weight], 0.1))

    return call


@program
def history_argument(compile: Compile) -> Step:
    history: list[torch.Tensor] = []

    def step(x):
        history.append(x * 2)
        return torch.stack(history).mean(0)

    step = compile(step)
    return lambda n: step(torch.ones(3) * n)


@program
def config_of_each_call(compile: Compile) -> Step:
    def step(x, config):
        x = x * config.scale
        pause()
        return x + config.steps if config.steps > 2 else x - config.steps

    step = compile(step)
    return lambda n: step(torch.ones(3), types.SimpleNamespace(scale=0.1 * n, steps=n + 3))


@program
def meter(compile: Compile) -> Step:
    class Meter:
        def __init__(self):
            self.total, self.count = 0.0, 0

        def update(self, value, n):
            self.total += value * n
            self.count += n

    def step(xs):
        losses = Meter()
        for x in xs:
            losses.update((x * 2).mean().item(), x.shape[0])
        return xs[0] * losses.total, losses.count

    step = compile(step)
    return lambda n: step([torch.ones(3) * k + n for k in range(4)])


# ---- counters and floats that live over breaks


State = namedtuple("State", "y slope before now width")


class Perturbed(nn.Module):
    """As in torchdiffeq: the function that is solved is wrapped in each call."""

    def __init__(self, function):
        super().__init__()
        self.function, self.calls = function, 0

    def forward(self, t, y):
        self.calls += 1
        return self.function(t.to(y.dtype), y)


class Solver:
    def __init__(self, function, y, tolerance, most=50):
        self.function, self.tolerance, self.most = function, tolerance, most
        now = torch.tensor(0.0, dtype=torch.float64)
        self.state = State(y, function(now, y), now, now, torch.tensor(0.1, dtype=torch.float64))

    def advance(self, until):
        steps = 0
        while until > self.state.now:
            assert steps < self.most, f"more than {steps} steps"
            self.state = self.trial(self.state)
            steps += 1
        share = (until - self.state.before) / (self.state.now - self.state.before)
        return self.state.y + (share - 1) * self.state.width * self.state.slope

    def trial(self, state):
        y, slope, _, now, width = state
        guess = y + width * slope
        after = self.function(now + width, guess)
        error = (width * (after - slope)).abs().max()
        accepted = error <= self.tolerance
        wider = width * (self.tolerance / (error + 1e-9)).clamp(0.3, 2.0)
        if accepted:
            return State(y + width / 2 * (slope + after), after, now, now + width, wider)
        return State(y, slope, now, now, wider)


@program
def solver_object(compile: Compile) -> Step:
    net = nn.Linear(3, 3).double()

    def step(y):
        solver = Solver(Perturbed(lambda t, y: torch.tanh(net(y)) * torch.cos(t)), y, 1e-2)
        return torch.stack([solver.advance(t) for t in torch.tensor([0.2, 0.5]).double()])

    step = compile(step)
    return lambda n: step(torch.ones(3).double() * (1 + 0.05 * n))


@program
def event_handler(compile: Compile) -> Step:
    def step(place, speed):
        t, bounces, log = 0.0, 0, []
        while bounces < 3 and t < 2.0:
            place, speed = place + 0.1 * speed, speed - 1.0
            t += 0.1
            if place < 0:
                place, speed = -place, -0.5 * speed
                bounces += 1
                log.append((bounces, t))
        return place, speed, log

    step = compile(step)
    return lambda n: step(torch.tensor(0.5 + 0.01 * n), torch.tensor(0.0))


@program
def early_stopping(compile: Compile) -> Step:
    def step(losses):
        best, patience, stopped, kept = float("inf"), 0, 0, losses[0]
        for epoch, loss in enumerate(losses):
            value = (loss * 2).item()
            if value < best:
                best, patience, kept = value, 0, loss * 3
            else:
                patience += 1
            if patience == 2:
                stopped = epoch
                break
        return kept, best, stopped

    step = compile(step)
    return lambda n: step(torch.tensor([5.0, 3, 4, 2, 2.5, 2.6, 1]) + n)


@program
def greedy_decoder(compile: Compile) -> Step:
    table, head = torch.randn(10, 4), torch.randn(4, 10)

    def step(token):
        tokens, hidden = [token], torch.zeros(4)
        for position in range(6):
            hidden = torch.tanh(hidden + table[tokens[-1]] + 0.1 * position)
            token = (hidden @ head).argmax().item()
            tokens.append(token)
            if token == 3:
                break
        return tokens, hidden

    step = compile(step)
    return lambda n: step(n % 3)


@program
def module_counts_over_breaks(compile: Compile) -> Step:
    class Average(nn.Module):
        def __init__(self):
            super().__init__()
            self.calls, self.decay = 0, 0.5
            self.register_buffer("mean", torch.zeros(3))

        def forward(self, x):
            self.calls += 1
            self.mean.mul_(self.decay).add_(x, alpha=1 - self.decay)
            pause()
            self.decay = min(0.99, (1 + self.calls) / (10 + self.calls))
            return x - self.mean / self.calls

    module = Average()
    step = compile(module)
    return lambda n: (step(torch.ones(3) * n), module.calls)


@program
def loss_scaler(compile: Compile) -> Step:
    class Scaler:
        def __init__(self):
            self.scale, self.good = 4.0, 0

        def update(self, gradient):
            if not torch.isfinite(gradient).all():
                self.scale, self.good = self.scale / 2, 0
                return gradient * 0
            self.good += 1
            if self.good % 3 == 0:
                self.scale *= 2.0
            return gradient / self.scale

    scaler = Scaler()
    step = compile(scaler.update)
    return lambda n: (step(torch.ones(3) * (float("inf") if n % 3 == 1 else n)), scaler.scale)


@program
def growing_lists(compile: Compile) -> Step:
    def step(x):
        history, total = [], x
        for k in range(5):
            total = total * 0.5 + k
            history.append(total)
            pause()
            if len(history) > 3:
                history.pop(0)
        return torch.stack(history).sum(0), len(history)

    step = compile(step)
    return lambda n: step(torch.ones(3) + n)


# ---- one dimension grows from call to call


@program
def batches_with_new_modules(compile: Compile) -> Step:
    def step(x):
        norm, loss = nn.Softmax(-1), nn.SmoothL1Loss()
        y = norm(x)
        pause()
        if y.max() > 2:
            return y
        return loss(y, norm(y)) * len(x)

    step = compile(step)
    return lambda n: step(torch.arange(3.0 * (n + 4)).reshape(-1, 3))


@program
def padded_batches(compile: Compile) -> Step:
    def step(x, lengths):
        total, count = x.new_zeros(()), 0
        for row, length in zip(x, lengths):
            total = total + row[:length].sum()
            count += length
            pause()
        return F.pad(x, (0, 1)).sum() + total / count

    step = compile(step)
    return lambda n: step(torch.ones(3, n + 5), [2, 3, n + 4])


def run(name: str, compile: Compile, calls: int = CALLS) -> tuple[list[int], list[Any]]:
    """(frames that each call compiled, results that are not those of plain Python)."""
    import minidynamo

    expected = results(PROGRAMS[name], lambda function: function, calls)
    counts = [minidynamo.counters["frames"].total()]
    count = lambda: counts.append(minidynamo.counters["frames"].total())  # noqa: E731
    found = results(PROGRAMS[name], compile, calls, count)
    wrong = [pair for pair in zip(expected, found) if not same(*pair)]
    return [after - before for before, after in zip(counts, counts[1:])], wrong


def check(name: str, compile: Compile) -> tuple[str, bool]:
    import minidynamo

    counts, wrong = run(name, compile)
    text = f"{counts}{'  DOES NOT SETTLE' * any(counts[SETTLED:])}"
    text += "".join(f"  plain: {why}" for why in minidynamo.counters["skipped"])
    return f"{text}{f'  WRONG {wrong[0]}' if wrong else ''}", not (wrong or any(counts[SETTLED:]))


if __name__ == "__main__":
    check_all(PROGRAMS, check)
