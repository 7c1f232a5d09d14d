"""Models of other kinds than transformers and image classifiers: the paper's third group.

In:   a name of `OTHERS`, and a batch size or None (then one that fills a GPU).
Out:  (model, its arguments by name).

The first half comes from packages, which raise ImportError where they are missing; the second is
written here in the style of well-known models.
"""

import importlib
import inspect
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

Built = tuple[nn.Module, dict[str, Any]]
OTHERS: dict[str, Callable[[int | None], Built]] = {}
Factory = Callable[[int], Built]


def model(name: str, batch: int) -> Callable[[Factory], Factory]:
    """Register a function that makes (model, inputs) for a batch size; `batch` fills a GPU."""

    def register(make: Factory) -> Factory:
        OTHERS[name] = lambda asked: make(asked or batch)
        return make

    return register


# ---- from packages -------------------------------------------------------------------------------
def torchvision(kind: str, batch: int, *shape: int, **arguments: Any) -> None:
    """Register torchvision.models' `kind`, whose input is a batch of `shape`."""
    path, _, name = f"torchvision.models.{kind}".rpartition(".")

    def make(batch: int) -> Built:
        made = getattr(importlib.import_module(path), name)(weights=None, **arguments)
        images = next(iter(inspect.signature(made.forward).parameters))  # "x", or "input"
        return made, {images: torch.randn(batch, *shape)}

    model(f"torchvision {name}", batch)(make)


for segmentation in ("fcn_resnet50", "deeplabv3_resnet50", "lraspp_mobilenet_v3_large"):
    torchvision(f"segmentation.{segmentation}", 8, 3, 256, 256, weights_backbone=None)
for video, side in {"r3d_18": 112, "mc3_18": 112, "r2plus1d_18": 112, "mvit_v1_b": 224}.items():
    torchvision(f"video.{video}", 4, 3, 16, side, side)


@model("torchvision raft_small", 4)
def optical_flow(batch: int) -> Built:
    from torchvision.models.optical_flow import raft_small

    frames = {f"image{k}": torch.rand(batch, 3, 128, 128) * 2 - 1 for k in (1, 2)}
    return raft_small(weights=None), frames | {"num_flow_updates": 4}


def detector(kind: str, batch: int) -> None:
    """Register a detector of torchvision: lists of images and of targets."""

    @model(f"torchvision {kind}", batch)
    def make(batch: int) -> Built:
        from torchvision.models import detection

        made = getattr(detection, kind)(weights=None, weights_backbone=None, num_classes=10)
        boxes = torch.tensor([[10.0, 20.0, 90.0, 120.0], [30.0, 40.0, 200.0, 180.0]])
        targets = [{"boxes": boxes, "labels": torch.tensor([1, 2])} for _ in range(batch)]
        return made, {"images": list(torch.rand(batch, 3, 256, 256)), "targets": targets}


detector("retinanet_resnet50_fpn", 4)
detector("fasterrcnn_mobilenet_v3_large_fpn", 4)


def torchaudio(kind: str, batch: int, inputs: Callable[[int], dict], **arguments: Any) -> None:
    """Register torchaudio.models' `kind`."""

    @model(f"torchaudio {kind}", batch)
    def make(batch: int) -> Built:
        from torchaudio import models

        return getattr(models, kind)(**arguments), inputs(batch)


torchaudio(
    "Wav2Letter",
    16,
    lambda batch: {"x": torch.randn(batch, 40, 1000)},
    num_classes=40,
    input_type="mfcc",
    num_features=40,
)
torchaudio("DeepSpeech", 16, lambda batch: {"x": torch.randn(batch, 1, 400, 80)}, n_feature=80)
torchaudio("ConvTasNet", 4, lambda batch: {"input": torch.randn(batch, 1, 16_000)})


def graph_net(kind: str) -> None:
    """Register one of PyG's basic graph networks on a random graph; a batch is 2,000 nodes."""

    @model(f"torch_geometric {kind}", 10)
    def make(batch: int) -> Built:
        from torch_geometric.nn import models

        made = getattr(models, kind)(128, 256, num_layers=3, out_channels=40)
        nodes = 2_000 * batch
        return made, {
            "x": torch.randn(nodes, 128),
            "edge_index": torch.randint(0, nodes, (2, 8 * nodes)),
        }


for kind in ("GCN", "GraphSAGE", "GAT", "GIN"):
    graph_net(kind)


# ---- written here --------------------------------------------------------------------------------
class Timed(nn.Module):
    """A residual block of a diffusion model: normalise, convolve, add the time's embedding."""

    def __init__(self, inputs: int, outputs: int, time: int) -> None:
        super().__init__()
        self.first = nn.Sequential(
            nn.GroupNorm(8, inputs), nn.SiLU(), nn.Conv2d(inputs, outputs, 3, padding=1)
        )
        self.time = nn.Linear(time, outputs)
        self.second = nn.Sequential(
            nn.GroupNorm(8, outputs), nn.SiLU(), nn.Conv2d(outputs, outputs, 3, padding=1)
        )
        self.skip = nn.Conv2d(inputs, outputs, 1)

    def forward(self, x: torch.Tensor, time: torch.Tensor) -> torch.Tensor:
        y = self.first(x) + self.time(time)[:, :, None, None]
        return self.skip(x) + self.second(y)


class Attended(nn.Module):
    """Attention over the pixels of an image."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.norm = nn.GroupNorm(8, channels)
        self.attention = nn.MultiheadAttention(channels, 4, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows = self.norm(x).flatten(2).transpose(1, 2)
        found, _ = self.attention(rows, rows, rows, need_weights=False)
        return x + found.transpose(1, 2).reshape(x.shape)


class DiffusionUNet(nn.Module):
    """Noise of an image at a time: three sizes, attention at the smallest."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.width = width
        time = 4 * width
        self.time = nn.Sequential(nn.Linear(width, time), nn.SiLU(), nn.Linear(time, time))
        self.enter = nn.Conv2d(3, width, 3, padding=1)
        sizes = [(width, width), (width, 2 * width), (2 * width, 4 * width)]
        self.down = nn.ModuleList(Timed(a, b, time) for a, b in sizes)
        self.middle = Attended(4 * width)
        self.up = nn.ModuleList(Timed(2 * b, a, time) for a, b in reversed(sizes))
        self.leave = nn.Conv2d(width, 3, 3, padding=1)

    def forward(self, x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        half = self.width // 2
        speeds = torch.exp(-torch.arange(half, device=t.device) * (9.2 / half))
        angles = t[:, None] * speeds
        time = self.time(torch.cat([angles.sin(), angles.cos()], 1).to(x.dtype))
        x, kept = self.enter(x), []
        for block in self.down:
            x = block(x, time)
            kept.append(x)
            x = F.avg_pool2d(x, 2)
        x = self.middle(x)
        for block in self.up:
            x = F.interpolate(x, scale_factor=2.0, mode="nearest")
            x = block(torch.cat([x, kept.pop()], 1), time)
        return self.leave(x)


@model("diffusion U-Net", 16)
def diffusion(batch: int) -> Built:
    return DiffusionUNet(), {"x": torch.randn(batch, 3, 64, 64), "t": torch.rand(batch)}


@model("segmentation U-Net", 8)
def segmenting(batch: int) -> Built:
    from ..programs.vision import UNet

    return UNet(), {"x": torch.randn(batch, 3, 256, 256)}


@model("DCGAN generator", 64)
def generator(batch: int) -> Built:
    widths = [512, 256, 128, 64]
    layers = [nn.ConvTranspose2d(100, 512, 4, bias=False), nn.BatchNorm2d(512), nn.ReLU()]
    for a, b in zip(widths, widths[1:]):
        convolution = nn.ConvTranspose2d(a, b, 4, stride=2, padding=1, bias=False)
        layers += [convolution, nn.BatchNorm2d(b), nn.ReLU()]
    layers += [nn.ConvTranspose2d(64, 3, 4, 2, 1, bias=False), nn.Tanh()]
    return nn.Sequential(*layers), {"input": torch.randn(batch, 100, 1, 1)}


class Recommender(nn.Module):
    """Dense features and embeddings of bags of ids, multiplied with each other pair by pair."""

    def __init__(self, tables: int = 26, rows: int = 10_000, width: int = 64) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.EmbeddingBag(rows, width, mode="sum") for _ in range(tables))
        self.bottom = nn.Sequential(nn.Linear(13, 512), nn.ReLU(), nn.Linear(512, width), nn.ReLU())
        pairs = (tables + 1) * tables // 2
        self.top = nn.Sequential(
            nn.Linear(pairs + width, 512),
            nn.ReLU(),
            nn.Linear(512, 256),
            nn.ReLU(),
            nn.Linear(256, 1),
        )
        self.register_buffer("pairs", torch.tril_indices(tables + 1, tables + 1, -1))

    def forward(self, dense: torch.Tensor, sparse: torch.Tensor) -> torch.Tensor:
        bottom = self.bottom(dense)
        rows = [bottom] + [table(ids) for table, ids in zip(self.tables, sparse.unbind(1))]
        stacked = torch.stack(rows, 1)
        products = stacked @ stacked.transpose(1, 2)
        return self.top(torch.cat([bottom, products[:, self.pairs[0], self.pairs[1]]], 1)).sigmoid()


@model("recommender", 2048)
def recommender(batch: int) -> Built:
    sparse = torch.randint(0, 10_000, (batch, 26, 4))
    return Recommender(), {"dense": torch.rand(batch, 13), "sparse": sparse}


class Recurrent(nn.Module):
    """A language model of recurrent layers."""

    def __init__(self, layer: type[nn.Module]) -> None:
        super().__init__()
        self.words = nn.Embedding(10_000, 512)
        self.layers = layer(512, 512, num_layers=2, batch_first=True)
        self.out = nn.Linear(512, 10_000)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.out(self.layers(self.words(ids))[0])


@model("LSTM language model", 16)
def lstm(batch: int) -> Built:
    return Recurrent(nn.LSTM), {"ids": torch.randint(0, 10_000, (batch, 64))}


@model("GRU language model", 16)
def gru(batch: int) -> Built:
    return Recurrent(nn.GRU), {"ids": torch.randint(0, 10_000, (batch, 64))}


class Sines(nn.Module):
    """A picture as a function of its coordinates, with sines between the layers."""

    def __init__(self, width: int = 256) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(2 if k == 0 else width, width) for k in range(5))
        self.out = nn.Linear(width, 3)

    def forward(self, points: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            points = torch.sin(5.0 * layer(points))
        return self.out(points)


@model("sine network", 65_536)
def sines(batch: int) -> Built:
    return Sines(), {"points": torch.rand(batch, 2)}


class ActorCritic(nn.Module):
    """A policy over frames of a game: logits of actions and the state's value."""

    def __init__(self, actions: int = 18) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(4, 32, 8, 4),
            nn.ReLU(),
            nn.Conv2d(32, 64, 4, 2),
            nn.ReLU(),
            nn.Conv2d(64, 64, 3),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(3136, 512),
            nn.ReLU(),
        )
        self.actor, self.critic = nn.Linear(512, actions), nn.Linear(512, 1)

    def forward(self, frames: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x = self.body(frames / 255.0)
        return self.actor(x).log_softmax(-1), self.critic(x).squeeze(-1)


@model("actor-critic", 256)
def actor_critic(batch: int) -> Built:
    return ActorCritic(), {"frames": torch.rand(batch, 4, 84, 84) * 255}


class Points(nn.Module):
    """A class for a cloud of points: shared layers, then the largest of each feature."""

    def __init__(self) -> None:
        super().__init__()
        widths, layers = [3, 64, 128, 1024], []
        for a, b in zip(widths, widths[1:]):
            layers += [nn.Conv1d(a, b, 1), nn.BatchNorm1d(b), nn.ReLU()]
        self.each = nn.Sequential(*layers)
        self.all = nn.Sequential(
            nn.Linear(1024, 512), nn.ReLU(), nn.Dropout(0.3), nn.Linear(512, 40)
        )

    def forward(self, points: torch.Tensor) -> torch.Tensor:
        return self.all(self.each(points).amax(2)).log_softmax(-1)


@model("point cloud", 32)
def points(batch: int) -> Built:
    return Points(), {"points": torch.randn(batch, 3, 1024)}


@model("super-resolution", 16)
def super_resolution(batch: int) -> Built:
    layers = [
        *(nn.Conv2d(1, 64, 5, padding=2), nn.Tanh(), nn.Conv2d(64, 32, 3, padding=1), nn.Tanh()),
        *(nn.Conv2d(32, 9, 3, padding=1), nn.PixelShuffle(3)),
    ]
    return nn.Sequential(*layers), {"input": torch.rand(batch, 1, 128, 128)}


@model("autoencoder", 32)
def autoencoder(batch: int) -> Built:
    widths, layers = [3, 32, 64, 128], []
    for a, b in zip(widths, widths[1:]):
        layers += [nn.Conv2d(a, b, 3, 2, 1), nn.GroupNorm(8, b), nn.GELU()]
    for a, b in zip(widths[::-1], widths[-2::-1]):
        layers += [nn.ConvTranspose2d(a, b, 4, 2, 1), nn.GELU()]
    return nn.Sequential(*layers[:-1]), {"input": torch.rand(batch, 3, 128, 128)}


@model("transformer encoder", 16)
def encoder(batch: int) -> Built:
    layer = nn.TransformerEncoderLayer(512, 8, 2048, batch_first=True)
    return nn.TransformerEncoder(layer, 6), {"src": torch.randn(batch, 256, 512)}
