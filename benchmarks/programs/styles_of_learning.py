"""Programs of styles.py: recurrent networks, mixtures of experts, detection, diffusion, rewards.

In:   nothing.   Out: programs in the table of `style_table.py`.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import nn

from benchmarks.programs import Compile, Program, Step
from benchmarks.programs.style_table import PROGRAMS, numbers, program, trained


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
