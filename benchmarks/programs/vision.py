"""Vision models in the style of public ones, small: what they compute with image sizes is what
matters.  `PROGRAMS`: name -> makes the model; `SIZES`: images that each of them takes.

    python -m benchmarks --suite programs --only ^vision/    # beside torch.compile
"""

import functools
import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn

SIZES = ((64, 64), (91, 77), (70, 90), (128, 67))


def block(inputs: int, outputs: int, padding: int = 1) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, padding=padding), nn.BatchNorm2d(outputs), nn.ReLU()
    )


class UNet(nn.Module):
    """kind: how the upsampled image meets the one that was kept."""

    def __init__(self, levels: int = 2, kind: str = "pad", width: int = 4) -> None:
        super().__init__()
        self.kind = kind
        padding = 0 if kind in ("crop", "valid") else 1
        sizes = [width * 2**n for n in range(levels + 1)]
        self.first = block(3, width, padding)
        self.down = nn.ModuleList(block(a, b, padding) for a, b in zip(sizes, sizes[1:]))
        self.up = nn.ModuleList(
            block(a + b, a, padding) for a, b in reversed(list(zip(sizes, sizes[1:])))
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        kept = []
        for down in self.down:
            kept.append(x)
            x = down(F.max_pool2d(x, 2, ceil_mode=self.kind == "ceil"))
        for up in self.up:
            x, skip = F.interpolate(x, scale_factor=2), kept.pop()
            if self.kind == "crop":
                dy, dx = (skip.shape[2] - x.shape[2]) // 2, (skip.shape[3] - x.shape[3]) // 2
                skip = skip[:, :, dy : dy + x.shape[2], dx : dx + x.shape[3]]
            elif self.kind == "size":
                x = F.interpolate(x, size=skip.shape[2:], mode="bilinear")
            else:
                dy, dx = skip.size()[2] - x.size()[2], skip.size()[3] - x.size()[3]
                x = F.pad(x, [dx // 2, dx - dx // 2, dy // 2, dy - dy // 2])
            x = up(torch.cat([skip, x], dim=1))
        return x


class StructuralSimilarity(nn.Module):
    """SSIM at several scales, each half as large as the one before."""

    window: torch.Tensor

    def __init__(self, scales: int = 3) -> None:
        super().__init__()
        self.scales = scales
        line = torch.exp(-((torch.arange(5) - 2.0) ** 2) / 4)
        window = (line[:, None] * line)[None, None]
        self.register_buffer("window", (window / window.sum()).repeat(3, 1, 1, 1))

    def smooth(self, x: torch.Tensor) -> torch.Tensor:
        return F.conv2d(x, self.window, groups=3)

    def at_one_scale(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        mean_x, mean_y = self.smooth(x), self.smooth(y)
        spread_x = self.smooth(x * x) - mean_x**2
        spread_y = self.smooth(y * y) - mean_y**2
        common = self.smooth(x * y) - mean_x * mean_y
        contrast = (2 * common + 0.03) / (spread_x + spread_y + 0.03)
        luminance = (2 * mean_x * mean_y + 0.01) / (mean_x**2 + mean_y**2 + 0.01)
        return (luminance * contrast).flatten(2).mean(-1), contrast.flatten(2).mean(-1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x.flip(-1)
        found = []
        for scale in range(self.scales):
            whole, contrast = self.at_one_scale(x, y)
            found.append(whole if scale == self.scales - 1 else contrast.relu())
            padding = [side % 2 for side in x.shape[2:]]
            x, y = (F.avg_pool2d(image, 2, padding=padding) for image in (x, y))
        return torch.stack(found).prod(0)


class Detector(nn.Module):
    """DETR: images are padded to a common size with a mask, positions are counted in it."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.backbone = nn.Sequential(
            nn.Conv2d(3, width, 7, stride=2, padding=3),
            nn.MaxPool2d(3, 2, 1),
            nn.Conv2d(width, width, 3, stride=2, padding=1),
        )
        self.attention = nn.MultiheadAttention(width, 2, batch_first=True)
        self.queries = nn.Parameter(torch.randn(5, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        small = x[:, :, : x.shape[2] - x.shape[2] // 8, : x.shape[3] - x.shape[3] // 5]
        images = [x[0], small[0]]
        height = max(image.shape[1] for image in images)
        width = max(image.shape[2] for image in images)
        batch = x.new_zeros(2, 3, height, width)
        mask = torch.ones(2, height, width, dtype=torch.bool)
        for n, image in enumerate(images):
            batch[n, :, : image.shape[1], : image.shape[2]].copy_(image)
            mask[n, : image.shape[1], : image.shape[2]] = False
        features = self.backbone(batch)
        mask = F.interpolate(mask[None].float(), size=features.shape[-2:]).to(torch.bool)[0]
        y = (~mask).cumsum(1, dtype=torch.float32)
        y = y / (y[:, -1:, :] + 1e-6) * 2 * math.pi
        places = torch.stack((y.sin(), y.cos()), 1).repeat(1, features.shape[1] // 2, 1, 1)
        tokens = (features + places).flatten(2).transpose(1, 2)
        queries = self.queries.expand(2, -1, -1)
        return self.attention(queries, tokens, tokens, key_padding_mask=mask.flatten(1))[0]


class Yolo(nn.Module):
    """YOLO-tiny: a grid of boxes at two scales; the coarse one is upsampled and joined."""

    boxes: torch.Tensor

    def __init__(self, width: int = 4, anchors: int = 3, classes: int = 2) -> None:
        super().__init__()
        self.anchors = anchors
        self.stem = nn.Sequential(block(3, width), nn.MaxPool2d(2), block(width, width))
        self.deep = nn.Sequential(nn.MaxPool2d(2), block(width, 2 * width))
        self.coarse = nn.Conv2d(2 * width, anchors * (5 + classes), 1)
        self.fine = nn.Conv2d(3 * width, anchors * (5 + classes), 1)
        self.register_buffer("boxes", torch.rand(anchors, 2) * 16)

    def decode(self, x: torch.Tensor, height: int) -> torch.Tensor:
        batch, _, rows, columns = x.shape
        stride = height // rows
        x = x.view(batch, self.anchors, -1, rows, columns).permute(0, 1, 3, 4, 2).contiguous()
        y, x0 = torch.meshgrid(torch.arange(rows), torch.arange(columns), indexing="ij")
        grid = torch.stack((x0, y), 2).view(1, 1, rows, columns, 2).float()
        place = (x[..., 0:2].sigmoid() + grid) * stride
        extent = x[..., 2:4].exp() * self.boxes.view(1, -1, 1, 1, 2)
        found = torch.cat((place, extent, x[..., 4:].sigmoid()), -1)
        return found.view(batch, -1, found.shape[-1])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        stem = self.stem(x)
        deep = self.deep(stem)
        up = F.interpolate(deep, scale_factor=2, mode="nearest")
        up = F.pad(up, (0, stem.shape[3] - up.shape[3], 0, stem.shape[2] - up.shape[2]))
        fine = self.fine(torch.cat((stem, up), 1))
        height = x.shape[2]
        return torch.cat((self.decode(self.coarse(deep), height), self.decode(fine, height)), 1)


class Windows(nn.Module):
    """Swin: the image is padded to whole windows, attention is computed in each, shifted."""

    def __init__(self, width: int = 8, window: int = 4) -> None:
        super().__init__()
        self.window = window
        self.patches = nn.Conv2d(3, width, 4, 4)
        self.project = nn.Linear(width, 3 * width)
        self.merge = nn.Linear(4 * width, width)

    def attend(self, x: torch.Tensor, shift: int) -> torch.Tensor:
        batch, height, width, channels = x.shape
        w = self.window
        x = F.pad(x, (0, 0, 0, (w - width % w) % w, 0, (w - height % w) % w))
        rows, columns = x.shape[1] // w, x.shape[2] // w
        x = x.roll((-shift, -shift), (1, 2))
        x = x.view(batch, rows, w, columns, w, channels).permute(0, 1, 3, 2, 4, 5)
        q, k, v = self.project(x.reshape(-1, w * w, channels)).chunk(3, -1)
        x = F.scaled_dot_product_attention(q, k, v).view(batch, rows, columns, w, w, channels)
        x = x.permute(0, 1, 3, 2, 4, 5).reshape(batch, rows * w, columns * w, channels)
        return x.roll((shift, shift), (1, 2))[:, :height, :width]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.pad(x, (0, (4 - x.shape[3] % 4) % 4, 0, (4 - x.shape[2] % 4) % 4))
        x = self.patches(x).permute(0, 2, 3, 1)
        x = x + self.attend(x, 0)
        x = x + self.attend(x, self.window // 2)
        x = F.pad(x, (0, 0, 0, x.shape[2] % 2, 0, x.shape[1] % 2))
        parts = [x[:, i::2, j::2] for i in (0, 1) for j in (0, 1)]
        return self.merge(torch.cat(parts, -1)).mean((1, 2))


class Pyramid(nn.Module):
    """A feature pyramid: each level is resized to the one below, anchors are laid on each."""

    def __init__(self, width: int = 4) -> None:
        super().__init__()
        self.levels = nn.ModuleList(
            nn.Conv2d(3 if n == 0 else width, width, 3, 2, 1) for n in range(4)
        )

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        height, width = x.shape[2:]
        maps: list[torch.Tensor] = []
        for level in self.levels:
            maps.append(level(x) if not maps else level(maps[-1]))
        found = maps.pop()
        anchors = []
        while maps:
            below = maps.pop()
            found = below + F.interpolate(found, size=below.shape[-2:], mode="nearest")
            rows, columns = found.shape[-2:]
            y = torch.arange(rows) * (height // rows)
            x0 = torch.arange(columns) * (width // columns)
            anchors.append((y[:, None] + x0).flatten())
        return found.mean((2, 3)), torch.cat(anchors)


class Patches(nn.Module):
    """A vision transformer whose positions are resized to the image's grid."""

    def __init__(self, width: int = 8, grid: int = 4, patch: int = 8) -> None:
        super().__init__()
        self.patch = nn.Conv2d(3, width, patch, patch)
        self.places = nn.Parameter(torch.randn(1, width, grid, grid))
        self.head = nn.Linear(width, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.patch(x)
        places = F.interpolate(self.places, size=x.shape[-2:], mode="bicubic")
        x = (x + places).flatten(2).transpose(1, 2)
        x = F.scaled_dot_product_attention(x, x, x)
        return self.head(x.mean(1))


PROGRAMS: dict[str, Callable[[], nn.Module]] = {
    **{f"unet-{n}": functools.partial(UNet, n) for n in (2, 3, 4)},
    **{f"unet-{kind}": functools.partial(UNet, 2, kind) for kind in ("ceil", "crop", "size")},
    "unet-valid": lambda: UNet(2, "valid"),
    "ssim": StructuralSimilarity,
    "detr": Detector,
    "yolo": Yolo,
    "swin": Windows,
    "pyramid": Pyramid,
    "patches": Patches,
}
