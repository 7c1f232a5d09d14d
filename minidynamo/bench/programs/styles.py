"""Programs in the style of public libraries and examples, written here, tiny.

In:   nothing.   Out: `PROGRAMS`: name -> what takes a compiler and gives `step`, which is called
      with 0, 1, 2... and returns what is to be compared.

    >>> step = PROGRAMS["neural_ode"](minidynamo.compile)
    >>> step(0)

Some need an installed package; they raise ImportError where it is absent.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import nn

from minidynamo.bench.programs import Compile, Program, Step

PROGRAMS: dict[str, Program] = {}


def program(make: Program) -> Program:
    """Decorator: put `make` into the table under its name."""
    PROGRAMS[make.__name__] = make
    return make


def numbers(*shape: int, grad: bool = False) -> torch.Tensor:
    """Values of both signs that are no round ones."""
    values = torch.arange(math.prod(shape), dtype=torch.float32).reshape(shape)
    return torch.sin(values * 1.7 + 0.3).requires_grad_(grad)


def trained(model: nn.Module, loss: torch.Tensor) -> list[torch.Tensor]:
    """The loss and the gradients of all parameters, which are cleared."""
    loss.backward()
    found = [loss.detach(), *(p.grad for p in model.parameters() if p.grad is not None)]
    model.zero_grad()
    return found


# ---- differential equations (torchdiffeq)
class Field(nn.Module):
    """A learned vector field that counts its evaluations."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 2))
        self.evaluations = 0

    def forward(self, t: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        self.evaluations += 1
        return self.net(y**3) + t


class FixedGrid:
    """A solver with a grid of times; `order` is that of the Runge-Kutta step."""

    def __init__(self, func: Field, y0: torch.Tensor, order: int) -> None:
        self.func, self.y0, self.order = func, y0, order

    def step(
        self, t0: torch.Tensor, dt: torch.Tensor, t1: torch.Tensor, y0: torch.Tensor
    ) -> torch.Tensor:
        k1 = self.func(t0, y0)
        if self.order == 1:
            return dt * k1
        k2 = self.func(t0 + dt / 3, y0 + dt * k1 / 3)
        k3 = self.func(t0 + dt * 2 / 3, y0 + dt * (k2 - k1 / 3))
        k4 = self.func(t1, y0 + dt * (k1 - k2 + k3))
        return (k1 + 3 * (k2 + k3) + k4) * dt / 8

    def integrate(self, t: torch.Tensor) -> torch.Tensor:
        solution = torch.empty(len(t), *self.y0.shape, dtype=self.y0.dtype)
        solution[0] = self.y0
        y0 = self.y0
        for j, (t0, t1) in enumerate(zip(t[:-1], t[1:]), 1):
            y0 = y0 + self.step(t0, t1 - t0, t1, y0)
            solution[j] = y0
        return solution


SOLVERS = {"euler": 1, "rk4": 4}


def odeint(
    func: Field,
    y0: torch.Tensor,
    t: torch.Tensor,
    method: str = "rk4",
    options: dict[str, Any] | None = None,
) -> torch.Tensor:
    """y at the times `t` where y' = func(t, y): the interface that such libraries have."""
    options = dict(options or {})
    if method not in SOLVERS:
        raise ValueError(f"method {method} is none of {list(SOLVERS)}")
    assert (t[1:] > t[:-1]).all(), "t must be increasing"
    return FixedGrid(func, y0, SOLVERS[method], **options).integrate(t)


@program
def neural_ode(compile: Compile) -> Step:
    field = Field()
    solve = compile(lambda y, t: odeint(field, y, t, method="rk4"))

    def step(n):
        times = torch.linspace(0.0, 1.0 + 0.1 * n, 5)
        return trained(field, solve(numbers(3, 2), times).square().mean()), field.evaluations

    return step


@program
def neural_ode_whose_times_grow(compile: Compile) -> Step:
    field = Field()
    solve = compile(lambda y, t: odeint(field, y, t, method="euler"))
    return lambda n: solve(numbers(3, 2), torch.linspace(0.0, 1.0, 4 + n)).detach()


def adaptive_heun(
    func: Callable, y: torch.Tensor, t: float, end: float, dt: float, tolerance: float
) -> tuple[torch.Tensor, int]:
    """An adaptive solver: data decide how far each step goes."""
    steps = 0
    while t < end:
        dt = min(dt, end - t)
        k1 = func(t, y)
        k2 = func(t + dt, y + dt * k1)
        error = (dt * (k2 - k1) / 2).abs().max().item()
        if error <= tolerance:
            t, y = t + dt, y + dt * (k1 + k2) / 2
        dt = dt * min(2.0, max(0.3, 0.9 * math.sqrt(tolerance / max(error, 1e-9))))
        steps += 1
    return y, steps


@program
def adaptive_ode(compile: Compile) -> Step:
    field = compile(Field())
    return lambda n: adaptive_heun(field, numbers(3, 2), 0.0, 0.5, 0.1, 0.01 + 0.01 * n)[0].detach()


# ---- recurrent networks
class Sequence(nn.Module):
    """Two LSTM cells over a series of numbers, and on into the future."""

    def __init__(self, width: int = 5) -> None:
        super().__init__()
        self.width = width
        self.first, self.second = nn.LSTMCell(1, width), nn.LSTMCell(width, width)
        self.linear = nn.Linear(width, 1)

    def forward(self, series: torch.Tensor, future: int = 0) -> torch.Tensor:
        outputs = []
        h1 = torch.zeros(series.size(0), self.width)
        c1, h2, c2 = torch.zeros_like(h1), torch.zeros_like(h1), torch.zeros_like(h1)
        for part in series.split(1, dim=1):
            h1, c1 = self.first(part, (h1, c1))
            h2, c2 = self.second(h1, (h2, c2))
            output = self.linear(h2)
            outputs += [output]
        for _ in range(future):
            h1, c1 = self.first(output, (h1, c1))
            h2, c2 = self.second(h1, (h2, c2))
            output = self.linear(h2)
            outputs += [output]
        return torch.cat(outputs, dim=1)


@program
def time_sequence_with_lbfgs(compile: Compile) -> Step:
    model = Sequence()
    forward = compile(model)
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.5, max_iter=4)
    series = numbers(3, 13)

    def step(n):
        def closure():
            optimizer.zero_grad()
            loss = F.mse_loss(forward(series[:, :-1]), series[:, 1:])
            loss.backward()
            return loss

        optimizer.step(closure)
        return [p.detach().clone() for p in model.parameters()]

    return step


@program
def time_sequence_into_the_future(compile: Compile) -> Step:
    model = Sequence()
    forward = compile(model)
    return lambda n: forward(numbers(3, 6), future=2 + n).detach()


class Attending(nn.Module):
    """A decoder of spectrograms: location-sensitive attention, one frame after the other."""

    def __init__(self, width: int = 6, bins: int = 4) -> None:
        super().__init__()
        self.bins = bins
        self.query, self.memory = nn.Linear(width, width), nn.Linear(width, width)
        self.location = nn.Conv1d(2, width, 3, padding=1)
        self.score = nn.Linear(width, 1)
        self.cell = nn.LSTMCell(width + bins, width)
        self.frame, self.gate = nn.Linear(2 * width, bins), nn.Linear(2 * width, 1)

    def initialize(self, memory: torch.Tensor) -> None:
        batch, length, width = memory.shape
        self.hidden = self.cells = memory.new_zeros(batch, width)
        self.weights = self.summed = memory.new_zeros(batch, length)
        self.context = memory.new_zeros(batch, width)
        self.processed = self.memory(memory)

    def decode(
        self, frame: torch.Tensor, memory: torch.Tensor, mask: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        joined = torch.cat((frame, self.context), -1)
        self.hidden, self.cells = self.cell(joined, (self.hidden, self.cells))
        self.hidden = F.dropout(self.hidden, 0.1, self.training)
        places = torch.cat((self.weights[:, None], self.summed[:, None]), 1)
        places = self.location(places).transpose(1, 2)
        energies = self.score(
            torch.tanh(self.query(self.hidden)[:, None] + places + self.processed)
        ).squeeze(-1)
        energies.data.masked_fill_(mask, -float("inf"))
        self.weights = F.softmax(energies, dim=1)
        self.summed = self.summed + self.weights
        self.context = torch.bmm(self.weights[:, None], memory).squeeze(1)
        both = torch.cat((self.hidden, self.context), 1)
        return self.frame(both), self.gate(both).squeeze(-1), self.weights

    def forward(
        self, memory: torch.Tensor, targets: torch.Tensor, lengths: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        self.initialize(memory)
        mask = torch.arange(memory.size(1))[None] >= lengths[:, None]
        frames: list[torch.Tensor] = []
        gates: list[torch.Tensor] = []
        frame = memory.new_zeros(memory.size(0), self.bins)
        while len(frames) < targets.size(0):
            made, gate, _ = self.decode(frame, memory, mask)
            frames += [made]
            gates += [gate]
            frame = targets[len(frames) - 1]
        return torch.stack(frames), torch.stack(gates)


@program
def speech_decoder(compile: Compile) -> Step:
    model = Attending()
    forward = compile(model)

    def step(n):
        frames, gates = forward(numbers(2, 5, 6), numbers(4, 2, 4), torch.tensor([5, 3]))
        return trained(model, frames.square().mean() + gates.sigmoid().mean())

    return step


# ---- fields of light (nerf)
class Encoding:
    """Sines and cosines of growing frequency, as a list of functions."""

    def __init__(self, count: int, with_input: bool = True) -> None:
        self.functions: list[Callable[[torch.Tensor], torch.Tensor]] = []
        if with_input:
            self.functions.append(lambda x: x)
        for frequency in 2.0 ** torch.linspace(0.0, count - 1, count):
            for wave in (torch.sin, torch.cos):
                self.functions.append(
                    lambda x, wave=wave, f=frequency: wave(x * f)  # type: ignore[misc]
                )

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cat([function(x) for function in self.functions], -1)


class Radiance(nn.Module):
    def __init__(self, width: int = 8, skips: tuple[int, ...] = (1,)) -> None:
        super().__init__()
        self.skips, self.encoding = skips, Encoding(2)
        self.points = nn.ModuleList(
            nn.Linear(15 if i == 0 else width + 15 * (i - 1 in skips), width) for i in range(3)
        )
        self.output = nn.Linear(width, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.encoding(x)
        h = x
        for i, layer in enumerate(self.points):
            h = F.relu(self.points[i](h))
            if i in self.skips:
                h = torch.cat([x, h], -1)
        return self.output(h)


def render_rays(
    model: nn.Module,
    origins: torch.Tensor,
    directions: torch.Tensor,
    near: float,
    far: float,
    samples: int,
    perturb: float,
) -> dict[str, torch.Tensor]:
    depths = near * (1.0 - torch.linspace(0.0, 1.0, samples)) + far * torch.linspace(
        0.0, 1.0, samples
    )
    depths = depths.expand(origins.shape[0], samples)
    if perturb > 0.0:
        middle = 0.5 * (depths[..., 1:] + depths[..., :-1])
        upper = torch.cat([middle, depths[..., -1:]], -1)
        lower = torch.cat([depths[..., :1], middle], -1)
        depths = lower + (upper - lower) * torch.rand(depths.shape)
    raw = model(origins[..., None, :] + directions[..., None, :] * depths[..., :, None])
    steps = depths[..., 1:] - depths[..., :-1]
    steps = torch.cat([steps, torch.tensor([1e10]).expand(steps[..., :1].shape)], -1)
    steps = steps * torch.norm(directions[..., None, :], dim=-1)
    opacity = 1.0 - torch.exp(-F.relu(raw[..., 3]) * steps)
    seen = torch.cat([torch.ones((opacity.shape[0], 1)), 1.0 - opacity + 1e-10], -1)
    weights = opacity * torch.cumprod(seen, -1)[:, :-1]
    colors = torch.sum(weights[..., None] * torch.sigmoid(raw[..., :3]), -2)
    result = {"rgb": colors, "depth": torch.sum(weights * depths, -1), "raw": raw}
    for key in result:
        if torch.isnan(result[key]).any() or torch.isinf(result[key]).any():
            result["failed"] = torch.ones(())
    return result


@program
def radiance_field(compile: Compile) -> Step:
    model = Radiance()
    render = compile(render_rays)

    def step(n):
        found = render(model, numbers(4, 3), numbers(4, 3) * 2, 2.0, 6.0, 5, 1.0)
        return trained(model, found["rgb"].square().mean()), found["depth"].detach()

    return step


# ---- mixtures of experts
class Mixture(nn.Module):
    """dispatch: how tokens come to their experts."""

    def __init__(self, dispatch: str, width: int = 4, experts: int = 3, chosen: int = 2) -> None:
        super().__init__()
        self.dispatch, self.chosen = dispatch, chosen
        self.gate = nn.Linear(width, experts, bias=False)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(width, 6), nn.SiLU(), nn.Linear(6, width))
            for _ in range(experts)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weights, places = torch.topk(self.gate(x).softmax(-1), self.chosen, dim=-1)
        weights = weights / weights.sum(-1, keepdim=True)
        result = torch.zeros_like(x)
        if self.dispatch == "dense":
            mask = F.one_hot(places, len(self.experts)).to(x.dtype)
            every = torch.stack([expert(x) for expert in self.experts], -2)
            return (every * (mask * weights[..., None]).sum(-2)[..., None]).sum(-2)
        for number, expert in enumerate(self.experts):
            rows, which = torch.where(places == number)
            if self.dispatch == "skip" and rows.numel() == 0:
                continue
            result.index_add_(0, rows, expert(x[rows]) * weights[rows, which, None])
        return result


def mixture(dispatch: str) -> Program:
    def make(compile):
        model = Mixture(dispatch)
        forward = compile(model)
        return lambda n: trained(model, forward(numbers(6 + n % 2, 4)).square().sum())

    return make


PROGRAMS |= {f"mixture_of_experts_{kind}": mixture(kind) for kind in ("dense", "where", "skip")}


# ---- detection (RetinaNet)
@dataclass
class Boxes:
    """Anchors of one image, as corners."""

    tensor: torch.Tensor
    image_size: tuple[int, int]

    def clipped(self) -> "Boxes":
        height, width = self.image_size
        limits = self.tensor.new_tensor([width, height, width, height])
        return Boxes(self.tensor.clamp(min=0).minimum(limits), self.image_size)

    def __len__(self) -> int:
        return self.tensor.shape[0]


class Levels(NamedTuple):
    scores: list
    deltas: list


class Retina(nn.Module):
    def __init__(self, width: int = 6, classes: int = 3) -> None:
        super().__init__()
        self.classes = classes
        self.body = nn.ModuleList(
            nn.Conv2d(3 if n == 0 else width, width, 3, 2, 1) for n in range(3)
        )
        self.lateral = nn.ModuleList(nn.Conv2d(width, width, 1) for _ in range(3))
        self.scores = nn.Conv2d(width, 2 * classes, 3, padding=1)
        self.deltas = nn.Conv2d(width, 2 * 4, 3, padding=1)

    def features(self, x: torch.Tensor) -> list[torch.Tensor]:
        found = []
        for layer in self.body:
            x = F.relu(layer(x))
            found.append(x)
        results = [self.lateral[-1](found[-1])]
        for layer, feature in zip(list(self.lateral)[-2::-1], found[-2::-1]):
            above = F.interpolate(results[0], size=feature.shape[-2:], mode="nearest")
            results.insert(0, layer(feature) + above)
        return results

    def anchors(self, feature: torch.Tensor, image: torch.Tensor) -> torch.Tensor:
        height, width = feature.shape[-2:]
        step_y, step_x = image.shape[-2] // height, image.shape[-1] // width
        y, x = torch.meshgrid(
            torch.arange(height) * step_y, torch.arange(width) * step_x, indexing="ij"
        )
        centers = torch.stack((x, y, x, y), -1).reshape(-1, 1, 4)
        bases = torch.tensor([[-4.0, -4.0, 4.0, 4.0], [-8.0, -4.0, 8.0, 4.0]])
        return (centers + bases).reshape(-1, 4)

    def forward(self, images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        features = self.features(images)
        levels = Levels([], [])
        for feature in features:
            for head, target in ((self.scores, levels.scores), (self.deltas, levels.deltas)):
                made = head(feature)
                batch, channels, height, width = made.shape
                size = channels // 2
                made = made.view(batch, -1, size, height, width).permute(0, 3, 4, 1, 2)
                target.append(made.reshape(batch, -1, size))
        anchors = torch.cat([self.anchors(feature, images) for feature in features])
        return torch.cat(levels.scores, 1), torch.cat(levels.deltas, 1), anchors


def detections(
    scores: torch.Tensor,
    deltas: torch.Tensor,
    anchors: torch.Tensor,
    image_size: tuple[int, int],
    most: int = 8,
) -> dict[str, torch.Tensor]:
    """The best boxes of one image."""
    chances, order = scores.sigmoid().flatten().topk(most)
    rows, labels = order // scores.shape[1], order % scores.shape[1]
    base, change = anchors[rows], deltas[rows].clamp(-1, 1)
    middle, size = (base[:, :2] + base[:, 2:]) / 2, base[:, 2:] - base[:, :2]
    middle, size = middle + change[:, :2] * size, size * change[:, 2:].exp()
    boxes = Boxes(torch.cat((middle - size / 2, middle + size / 2), 1), image_size).clipped()
    assert len(boxes) == most
    return {"boxes": boxes.tensor, "labels": labels, "scores": chances}


@program
def retina_net(compile: Compile) -> Step:
    model = Retina()

    def whole(images):
        scores, deltas, anchors = model(images)
        size = (images.shape[-2], images.shape[-1])
        return [detections(s, d, anchors, size) for s, d in zip(scores, deltas)]

    detect = compile(whole)

    def step(n):
        with torch.no_grad():
            return detect(numbers(2, 3, 32 + 8 * n, 32))

    return step


@program
def retina_net_is_trained(compile: Compile) -> Step:
    model = Retina()
    forward = compile(model)

    def step(n):
        scores, deltas, _ = forward(numbers(2, 3, 32, 32))
        loss = F.binary_cross_entropy_with_logits(scores, torch.zeros_like(scores))
        return trained(model, loss + F.smooth_l1_loss(deltas, torch.zeros_like(deltas)))

    return step


# ---- graphs (torch_geometric)
class Messages(nn.Module):
    """Message passing: `message`, `aggregate` and `update` may be overridden."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.linear = nn.Linear(inputs, outputs)

    def propagate(self, edges: torch.Tensor, **values: torch.Tensor) -> torch.Tensor:
        source, target = edges
        collected = {f"{name}_j": value.index_select(0, source) for name, value in values.items()}
        made = self.message(**collected)
        return self.aggregate(made, target, values["x"].size(0))

    def message(self, x_j: torch.Tensor) -> torch.Tensor:
        return x_j

    def aggregate(self, made: torch.Tensor, target: torch.Tensor, count: int) -> torch.Tensor:
        index = target.view(-1, 1).expand_as(made)
        return made.new_zeros(count, made.size(1)).scatter_add_(0, index, made)

    def forward(self, x: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
        loops = torch.arange(x.size(0)).repeat(2, 1)
        edges = torch.cat([edges, loops], 1)
        degree = torch.zeros(x.size(0)).scatter_add_(0, edges[1], torch.ones(edges.size(1)))
        scale = degree.pow(-0.5)
        scale[scale == float("inf")] = 0
        return self.propagate(edges, x=self.linear(x) * scale[:, None]) * scale[:, None]


class Attention(Messages):
    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(inputs, outputs)
        self.score = nn.Parameter(numbers(outputs))

    def message(self, x_j: torch.Tensor) -> torch.Tensor:
        return x_j * torch.sigmoid(x_j @ self.score)[:, None]


@program
def graph_network(compile: Compile) -> Step:
    model = nn.ModuleList([Messages(3, 4), Attention(4, 2)])

    def whole(x, edges):
        x = F.dropout(model[0](x, edges).relu(), 0.2)
        return F.log_softmax(model[1](x, edges), dim=1)

    forward = compile(whole)

    def step(n):
        edges = torch.tensor([[0, 1, 2, 3, 0], [1, 2, 3, 0, 2]])[:, : 4 + n % 2]
        return trained(model, forward(numbers(4, 3), edges).square().mean())

    return step


# ---- Gaussian processes (gpytorch)
class Positive(nn.Module):
    """A parameter that is kept positive."""

    def __init__(self, value: float) -> None:
        super().__init__()
        self.raw = nn.Parameter(torch.tensor(value))

    @property
    def value(self) -> torch.Tensor:
        return F.softplus(self.raw)


class Lazy:
    """A matrix that is not made before it is asked for."""

    def __init__(self, make: Callable[[], torch.Tensor]) -> None:
        self.make = make
        self.made: torch.Tensor | None = None

    def evaluate(self) -> torch.Tensor:
        if self.made is None:
            self.made = self.make()
        return self.made

    def add_diagonal(self, value: torch.Tensor) -> "Lazy":
        return Lazy(lambda: self.evaluate() + value * torch.eye(self.evaluate().size(-1)))

    def __matmul__(self, other: torch.Tensor) -> torch.Tensor:
        return self.evaluate() @ other


class Process(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.length, self.scale, self.noise = Positive(0.3), Positive(1.0), Positive(0.1)
        self.mean = nn.Parameter(torch.zeros(()))

    def kernel(self, a: torch.Tensor, b: torch.Tensor) -> Lazy:
        distance = (a[:, None] - b[None]) / self.length.value
        return Lazy(lambda: self.scale.value * torch.exp(-0.5 * distance**2))

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        covariance = self.kernel(x, x).add_diagonal(self.noise.value)
        lower = torch.linalg.cholesky(covariance.evaluate())
        rest = (y - self.mean).unsqueeze(-1)
        solved = torch.cholesky_solve(rest, lower)
        logarithm = 2 * lower.diagonal().log().sum()
        return 0.5 * ((rest * solved).sum() + logarithm + len(x) * math.log(2 * math.pi))


@program
def gaussian_process(compile: Compile) -> Step:
    model = Process()
    loss = compile(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)

    def step(n):
        optimizer.zero_grad()
        x = torch.linspace(0, 1, 6)
        found = trained(model, loss(x, torch.sin(x * 6)))
        return found

    return step


# ---- diffusion
class Scheduler:
    """Which noise is taken away in which step; the state of a run is kept here."""

    def __init__(self, count: int = 10) -> None:
        self.kept = torch.cumprod(1 - torch.linspace(0.01, 0.2, count), 0)
        self.count = count
        self.index: int | None = None

    def step(self, noise: torch.Tensor, t: int, sample: torch.Tensor) -> torch.Tensor:
        before = t - self.count // 5
        kept = self.kept[t]
        earlier = self.kept[before] if before >= 0 else torch.tensor(1.0)
        clean = (sample - (1 - kept) ** 0.5 * noise) / kept**0.5
        self.index = t
        return earlier**0.5 * clean.clamp(-3, 3) + (1 - earlier) ** 0.5 * noise


class Denoiser(nn.Module):
    def __init__(self, width: int = 4) -> None:
        super().__init__()
        self.inner = nn.Conv2d(3, width, 3, padding=1)
        self.time = nn.Linear(4, width)
        self.norm, self.outer = nn.GroupNorm(2, width), nn.Conv2d(width, 3, 3, padding=1)

    def forward(self, x: torch.Tensor, t: int | torch.Tensor) -> torch.Tensor:
        if not torch.is_tensor(t):
            t = torch.tensor([t], dtype=torch.long)
        t = t.expand(x.shape[0])
        frequencies = torch.exp(-math.log(10000) * torch.arange(2, dtype=torch.float32) / 2)
        angles = t[:, None].float() * frequencies[None]
        time = self.time(torch.cat([angles.sin(), angles.cos()], -1))
        return self.outer(F.silu(self.norm(self.inner(x) + time[:, :, None, None])))


@program
def diffusion_sampler(compile: Compile) -> Step:
    model, scheduler = Denoiser(), Scheduler()

    def one(x, t):
        return scheduler.step(model(x, t), t, x)

    one = compile(one)
    state = [numbers(1, 3, 6, 6)]

    def step(n):
        with torch.no_grad():
            state[0] = one(state[0], 8 - 2 * n)
        return state[0], scheduler.index

    return step


# ---- reinforcement learning, adversarial training, style
@program
def actor_critic(compile: Compile) -> Step:
    body, heads = (
        nn.Linear(4, 8),
        nn.ModuleDict({"policy": nn.Linear(8, 2), "value": nn.Linear(8, 1)}),
    )
    model = nn.ModuleList([body, heads])

    def loss(states, actions, rewards, gamma=0.9):
        hidden = F.relu(body(states))
        total, returns = 0, []
        for reward in rewards[::-1]:
            total = reward + gamma * total
            returns.insert(0, total)
        returns = torch.tensor(returns)
        returns = (returns - returns.mean()) / (returns.std() + 1e-6)
        chosen = torch.distributions.Categorical(logits=heads["policy"](hidden))
        values = heads["value"](hidden).squeeze(-1)
        advantage = returns - values.detach()
        return (-chosen.log_prob(actions) * advantage).sum() + F.smooth_l1_loss(values, returns)

    compiled = compile(loss)

    def step(n):
        rewards = [1.0, 0.5, 0.25 * n, 2.0]
        return trained(model, compiled(numbers(4, 4), torch.tensor([0, 1, 1, 0]), rewards))

    return step


@program
def style_transfer(compile: Compile) -> Step:
    layers = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Conv2d(4, 4, 3), nn.ReLU())
    for p in layers.parameters():
        p.requires_grad_(False)
    image = nn.Parameter(numbers(1, 3, 8, 8))

    def gram(x):
        batch, channels, height, width = x.size()
        x = x.view(batch * channels, height * width)
        return torch.mm(x, x.t()).div(batch * channels * height * width)

    def loss(image, target):
        losses = []
        for i, layer in enumerate(layers.children()):
            image, target = layer(image), layer(target)
            if isinstance(layer, nn.ReLU):
                losses.append(F.mse_loss(gram(image), gram(target).detach()))
        return sum(losses)

    compiled = compile(loss)
    return lambda n: trained(nn.ParameterList([image]), compiled(image, numbers(1, 3, 8, 8) * 0.5))


@program
def variational_autoencoder(compile: Compile) -> Step:
    model = nn.ModuleDict({"mean": nn.Linear(6, 2), "log": nn.Linear(6, 2), "out": nn.Linear(2, 6)})

    def loss(x):
        mean, log = model["mean"](x), model["log"](x)
        noise = torch.randn_like(mean)
        made = torch.sigmoid(model["out"](mean + noise * torch.exp(0.5 * log)))
        rest = F.binary_cross_entropy(made, x.sigmoid(), reduction="sum")
        return rest - 0.5 * torch.sum(1 + log - mean.pow(2) - log.exp())

    compiled = compile(loss)
    return lambda n: trained(model, compiled(numbers(3 + n, 6)))


# ---- installed packages
def language_model(name: str, **sizes: int) -> Program:
    def make(compile):
        import transformers

        settings = getattr(transformers, f"{name}Config")(**sizes)
        model = getattr(transformers, f"{name}ForCausalLM")(settings).eval()
        forward = compile(model)
        words = torch.arange(10)[None] % 7

        def step(n):
            with torch.no_grad():
                return forward(words[:, : 5 + n], use_cache=False).logits

        return step

    return make


PROGRAMS["transformers_llama"] = language_model(
    "Llama",
    vocab_size=16,
    hidden_size=8,
    intermediate_size=12,
    num_hidden_layers=1,
    num_attention_heads=2,
    max_position_embeddings=16,
)


@program
def torchvision_resnet(compile: Compile) -> Step:
    import torchvision

    model = torchvision.models.resnet18(num_classes=4).eval()
    forward = compile(model)

    def step(n):
        with torch.no_grad():
            return forward(numbers(1, 3, 32 + 16 * n, 32))

    return step


@program
def timm_vit(compile: Compile) -> Step:
    import timm

    model = timm.create_model("vit_tiny_patch16_224", num_classes=4, depth=1, img_size=32).eval()
    forward = compile(model)
    return lambda n: forward(numbers(1 + n, 3, 32, 32)).detach()


@program
def torch_geometric_gcn(compile: Compile) -> Step:
    from torch_geometric.nn import GCNConv

    model = GCNConv(3, 2)
    forward = compile(model)
    edges = torch.tensor([[0, 1, 2, 3], [1, 2, 3, 0]])
    return lambda n: trained(model, forward(numbers(4 + n, 3), edges).square().sum())


@program
def torchdiffeq_odeint(compile: Compile) -> Step:
    import torchdiffeq

    field = Field()
    solve = compile(lambda y, t: torchdiffeq.odeint(field, y, t, method="rk4"))
    return lambda n: solve(numbers(3, 2), torch.linspace(0, 1, 4)).detach()


@program
def gpytorch_kernel(compile: Compile) -> Step:
    import gpytorch

    kernel = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel())
    matrix = compile(lambda x: kernel(x).to_dense())
    return lambda n: trained(kernel, matrix(numbers(4 + n, 2)).sum())
