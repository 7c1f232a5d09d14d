"""Programs of styles.py: differential equations, fields of light, graphs, Gaussian processes.

In:   nothing.   Out: programs in the table of `style_table.py`.
"""

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from benchmarks.programs import Compile, Step
from benchmarks.programs.style_table import numbers, program, trained


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
