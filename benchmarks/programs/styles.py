"""Programs in the style of public libraries and examples, written here, tiny: differential
equations, graphs, Gaussian processes, mixtures of experts, rewards, what packages have.

In:   nothing.   Out: `PROGRAMS`: name -> what takes a compiler and gives `step`, which is called
      with 0, 1, 2... and returns what is to be compared.

    >>> step = PROGRAMS["neural_ode"](minidynamo.compile)
    >>> step(0)

Some need an installed package; they raise ImportError where it is absent.
"""

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from benchmarks.programs import Compile, Program, Step, joining, numbers

PROGRAMS: dict[str, Program] = {}
program = joining(PROGRAMS)


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
@program
def transformers_llama(compile: Compile) -> Step:
    import transformers

    sizes: dict[str, Any] = dict(
        vocab_size=16, hidden_size=8, intermediate_size=12, max_position_embeddings=16
    )
    settings = transformers.LlamaConfig(num_hidden_layers=1, num_attention_heads=2, **sizes)
    forward = compile(transformers.LlamaForCausalLM(settings).eval())
    words = torch.arange(10)[None] % 7

    def step(n):
        with torch.no_grad():
            return forward(words[:, : 5 + n], use_cache=False).logits

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
