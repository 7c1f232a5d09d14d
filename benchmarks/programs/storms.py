"""Programs with whole numbers that change in each call: decoders with caches, schedulers,
counters, optimizers.

`PROGRAMS`: name -> makes (step, what else to compare): `step(n)` is call number n.  A compiler must
not compile such a program again and again: `run` counts.

    python -m benchmarks.programs.storms   # all, 12 calls each: at most 3 compilations
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from benchmarks.error_bound import too_far
from benchmarks.programs import Compile, Program, Step, check_all, joining, results

CALLS = 12
MOST = 3  # compilations of a code object
PROGRAMS: dict[str, Program] = {}
program = joining(PROGRAMS)


# ---- ints that count
@program
def int_as_an_index(compile: Compile) -> Step:
    weight = torch.randn(40, 4)
    step = compile(lambda weight, token: weight[token] * 2)
    return lambda n: step(weight, 3 * n + 2)


@program
def index_that_is_computed(compile: Compile) -> Step:
    def step(state, i, x):
        state[5 * i + 1] = x
        return state.sum()

    step = compile(step)
    state = torch.zeros(100)
    return lambda n: (step(state, n + 2, torch.tensor(1.5)), state.clone())


@program
def negative_index(compile: Compile) -> Step:
    step = compile(lambda x, n: x[-n] + x[n])
    x = torch.randn(40)
    return lambda n: step(x, n + 2)


@program
def cache_position(compile: Compile) -> Step:
    def step(cache, position, key):
        cache[:, position] = key
        return cache.sum(1)

    step = compile(step)
    cache = torch.zeros(2, 20, 3)
    return lambda n: (step(cache, n, torch.full((2, 3), float(n))), cache.clone())


@program
def decoder(compile: Compile) -> Step:
    class Decoder(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.Embedding(10, 4)
            self.register_buffer("cache", torch.zeros(1, 20, 4))
            self.position = 0

        def forward(self, token):
            x = self.embed(token)
            self.cache[:, self.position] = x
            self.position += 1
            keys = self.cache[:, : self.position]
            weights = (keys @ x[..., None]).softmax(1)
            return (weights * keys).sum(1).argmax(-1)

    model = Decoder().eval()
    forward = compile(model)
    token = [torch.tensor([1])]

    def step(n):
        with torch.no_grad():
            token[0] = forward(token[0])
        return token[0], model.position

    return step


@program
def rotary_offset(compile: Compile) -> Step:
    def step(x, offset):
        places = torch.arange(offset, offset + x.shape[1])
        angles = places[:, None] * torch.tensor([1.0, 0.1])
        return x * angles.cos() + x.flip(-1) * angles.sin()

    step = compile(step)
    return lambda n: step(torch.ones(1, 2, 2), 2 * n)


@program
def int_attribute(compile: Compile) -> Step:
    class Counter(nn.Module):
        def __init__(self):
            super().__init__()
            self.calls = 0

        def forward(self, x):
            self.calls += 1
            return x + self.calls

    module = Counter()
    step = compile(module)
    return lambda n: (step(torch.ones(3)), module.calls)


@program
def global_counter(compile: Compile) -> Step:
    scope: dict[str, Any] = {"torch": torch, "count": 0}
    source = "def step(x):\n    global count\n    count += 1\n    return x * count\n"
    exec(source, scope)
    step = compile(scope["step"])
    return lambda n: (step(torch.ones(3)), scope["count"])


@program
def modulo_schedule(compile: Compile) -> Step:
    def step(x, n):
        return x * 2 if n % 4 == 0 else x + n

    step = compile(step)
    return lambda n: step(torch.ones(3), n + 4)


@program
def masked_training(compile: Compile) -> Step:
    def step(x, n):
        return torch.where(torch.arange(20) < n, x, 0.0).sum()

    step = compile(step)
    return lambda n: step(torch.ones(20), n)


@program
def diffusion(compile: Compile) -> Step:
    betas = torch.linspace(0.01, 0.2, 20)

    def step(x, t):
        alpha = (1 - betas).cumprod(0)[t]
        return x * alpha.sqrt() + (1 - alpha).sqrt() * betas[t]

    step = compile(step)
    return lambda n: step(torch.ones(3), 19 - n)


@program
def moving_average(compile: Compile) -> Step:
    def step(average, x, n):
        decay = min(0.99, (1 + n) / (10 + n))
        average.mul_(decay).add_(x, alpha=1 - decay)
        return average

    step = compile(step)
    average = torch.zeros(3)
    return lambda n: step(average, torch.full((3,), float(n)), n).clone()


# ---- optimizers
def optimizer(make: Callable[[list[nn.Parameter]], Optimizer]) -> Program:
    def build(compile):
        torch.manual_seed(0)
        weight = nn.Parameter(torch.randn(4))
        chosen = make([weight])
        step = compile(chosen.step)

        def call(n):
            weight.grad = torch.cos(weight.detach()) * 0.1
            step()
            return weight.detach().clone()

        return call

    return build


OPTIM = torch.optim
PROGRAMS.update(
    asgd=optimizer(lambda p: OPTIM.ASGD(p, 0.1)), nadam=optimizer(lambda p: OPTIM.NAdam(p, 0.1))
)


def same(a: Any, b: Any) -> bool:
    """Equal, numbers and tensors to the last bit or nearly so."""
    if isinstance(a, (tuple, list)):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, torch.Tensor):
        return not too_far(a, b)
    return type(a) is type(b) and a == b


def run(name: str, compile: Compile, calls: int = CALLS) -> list[tuple[Any, Any]]:
    """The results that are not those of plain Python: [(expected, found)]."""
    expected = results(PROGRAMS[name], lambda function: function, calls)
    found = results(PROGRAMS[name], compile, calls)
    return [pair for pair in zip(expected, found) if not same(*pair)]


def compilations() -> int:
    """Of the code object that was compiled most often."""
    import minidynamo

    again = minidynamo.counters["recompiles"]
    return max(
        (1 + sum(n for text, n in again.items() if text.split(":")[0] == name))
        for name in {text.split(":")[0] for text in again} | {""}
    )


def check(name: str, compile: Compile) -> tuple[str, bool]:
    import minidynamo

    wrong, count = run(name, compile), compilations()
    text = f"{count} compilations"
    if count > MOST:
        text += f"  {dict(minidynamo.counters['recompiles'])}"
    return f"{text}{f'  WRONG {wrong[0]}' if wrong else ''}", not wrong and count <= MOST


if __name__ == "__main__":
    check_all(PROGRAMS, check)
