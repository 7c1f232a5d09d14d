"""The grid of the census: small programs that nobody chose for their speed, class by class.

In:   a device ("cpu" or "cuda"; a GPU gets about 16 times the elements).  Out: `Case`s.

    >>> cases = grid("cpu")
    >>> cases["scan/cumsum 1/fp32/(1024, 1024)"].kind
    'scan'

A class is a list of programs crossed with shapes, layouts and dtypes.  `IN_THE_ISSUE` names those
in which ours was once found behind: a census takes them first.  One case in seven is held out (by a
hash of its name), so that what was tuned on the others can be scored on cases it has not seen.
"""

import math
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product

import torch
import torch.nn.functional as F

DTYPES = {
    "fp32": torch.float32,
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
    "fp64": torch.float64,
}
HELD_OUT_OF = 7
IN_THE_ISSUE = (
    "statistics",
    "statistics channels-last",
    "softmax with broadcast",
    "resampling nearest",
    "arg-reductions",
    "few long rows",
    "group norm",
    "layout and dtype",
    "transcendental",
    "attention by hand",
    "rows with broadcast",
    "short axis",
    "scatter",
)


@dataclass(frozen=True)
class Spec:
    """An input: `layout` is "dense", "last" (channels last), "permuted" (the last two axes change
    places in memory).  high: integers below it instead of normal numbers."""

    shape: tuple[int, ...]
    dtype: torch.dtype = torch.float32
    layout: str = "dense"
    high: int = 0

    def tensor(self, device: str, seed: int) -> torch.Tensor:
        """It, on `device`, of a generator of its own."""
        generator = torch.Generator(device).manual_seed(seed)
        order = list(range(len(self.shape)))
        if self.layout == "last":
            order = [0, *order[2:], 1]
        elif self.layout == "permuted":
            order[-2:] = order[-2:][::-1]
        stored = [self.shape[axis] for axis in order]
        if self.high:
            found = torch.randint(self.high, stored, generator=generator, device=device)
            found = found.to(self.dtype)
        else:
            wide = self.dtype if self.dtype.itemsize > 2 else torch.float32
            found = torch.randn(stored, generator=generator, device=device, dtype=wide)
            found = found.to(self.dtype)
        return found.permute([order.index(axis) for axis in range(len(order))])


@dataclass(frozen=True)
class Case:
    """A program with its inputs.  kind: its class.  reads: bytes of inputs that it must read where
    that is not all of them (a gather)."""

    kind: str
    name: str
    function: Callable
    specs: tuple[Spec, ...]
    reads: int | None = None

    def inputs(self, device: str) -> list[torch.Tensor]:
        """Its inputs, the same in every process."""
        return [spec.tensor(device, number) for number, spec in enumerate(self.specs)]

    @property
    def is_held_out(self) -> bool:
        return zlib.crc32(self.name.encode()) % HELD_OUT_OF == 0


Found = Iterator[tuple[str, Callable, tuple[Spec, ...]]]
CLASSES: dict[str, Callable[[int, str], Found]] = {}


def kind(name: str) -> Callable:
    """Register a class: a generator of (name, function, specs), called with a factor of the sizes
    and the device."""

    def register(make: Callable) -> Callable:
        CLASSES[name] = make
        return make

    return register


def grid(device: str) -> dict[str, Case]:
    """Every case of this device, by name."""
    cases = {}
    for kind_, make in CLASSES.items():
        for name, function, specs in make(16 if device == "cuda" else 1, device):
            label = next((k for k, d in DTYPES.items() if d == specs[0].dtype), "int")
            shape = str(specs[0].shape)
            full = f"{kind_}/{name}/{label}/{shape}"
            cases[full] = Case(kind_, full, function, specs, rows_read(kind_, specs))
    return cases


def rows_read(kind_: str, specs: tuple[Spec, ...]) -> int | None:
    """Bytes that a gather must read: its indices, and as many rows as they name."""
    if kind_ != "gather":
        return None
    table, index, *_ = specs
    count = math.prod(index.shape)
    whole = math.prod(table.shape) * table.dtype.itemsize
    rows = count * math.prod(table.shape[1:]) * table.dtype.itemsize
    if len(index.shape) == len(table.shape):  # one element for each index
        rows = count * table.dtype.itemsize
    return min(whole, rows) + count * index.dtype.itemsize


def dtypes(device: str, *, wide: bool = False) -> list[torch.dtype]:
    """What a class is crossed with.  wide: float64, too, on a CPU (GPUs for models have little)."""
    found = [torch.float32, torch.bfloat16, torch.float16]
    return [*found, torch.float64] if wide and device == "cpu" else found


def rms(x: torch.Tensor, dims: tuple[int, ...] = (-1,)) -> torch.Tensor:
    wide = x if x.dtype == torch.float64 else x.float()
    return (wide * torch.rsqrt(wide.pow(2).mean(dims, keepdim=True) + 1e-6)).to(x.dtype)


# --- statistics of images -------------------------------------------------------------------------
def image_statistics(big: int, device: str, layouts: tuple[str, ...]) -> Found:
    programs: dict[str, Callable] = {
        "var_mean 023": lambda x: torch.var_mean(x, (0, 2, 3), correction=0),
        "sum 023": lambda x: x.sum((0, 2, 3)),
        "amax 023": lambda x: x.amax((0, 2, 3)),
        "sum and square 023": lambda x: (x.sum((0, 2, 3)), (x * x).sum((0, 2, 3))),
        "mean 23": lambda x: x.mean((2, 3)),
        "mean relu 23": lambda x: torch.relu(x).mean((2, 3), keepdim=True) + 1,
        "batch norm": lambda x: F.batch_norm(x, None, None, training=True),
        "batch norm relu": lambda x: torch.relu(F.batch_norm(x, None, None, training=True)),
        "batch norm add relu": lambda x: torch.relu(F.batch_norm(x, None, None, training=True) + x),
        "centre 1": lambda x: x - x.mean(1, keepdim=True),
        "norm 1": lambda x: F.normalize(x, dim=1),
        "rms 1": lambda x: rms(x, (1,)),
    }
    shapes = [(32, 64, 28, 28), (16, 256, 14, 14), (4, 32, 112, 112), (8, 96, 37, 41)]
    for (name, function), (n, *rest), layout, dtype in product(
        programs.items(), shapes, layouts, dtypes(device)
    ):
        yield (f"{name} {layout}", function, (Spec((n * min(big, 8), *rest), dtype, layout),))


@kind("statistics")
def statistics_dense(big: int, device: str) -> Found:
    yield from image_statistics(big, device, ("dense", "permuted"))


@kind("statistics channels-last")
def statistics_last(big: int, device: str) -> Found:
    yield from image_statistics(big, device, ("last",))


@kind("group norm")
def group_norms(big: int, device: str) -> Found:
    programs: dict[str, Callable] = {
        "group norm 32": lambda x, w: F.group_norm(x, 32, w, w),
        "group norm 8 silu": lambda x, w: F.silu(F.group_norm(x, 8, w, w)),
        "group norm 1": lambda x, w: F.group_norm(x, 1, w, w),
        "group norm 32 add": lambda x, w: F.group_norm(x, 32, w, w) + x,
        "instance norm": lambda x, w: F.instance_norm(x, weight=w, bias=w),
        "instance norm relu": lambda x, w: torch.relu(F.instance_norm(x)) * w[:, None, None],
    }
    shapes = [(8, 128, 32, 32), (2, 320, 64, 64), (16, 64, 28, 28)]
    for (name, function), (n, c, *rest), layout, dtype in product(
        programs.items(), shapes, ("dense", "last"), dtypes(device)
    ):
        x = Spec((n * min(big, 8), c, *rest), dtype, layout)
        yield f"{name} {layout}", function, (x, Spec((c,), dtype))


# --- rows -----------------------------------------------------------------------------------------
ROW_SHAPES = [(4096, 256), (2048, 768), (1024, 1024), (512, 4096), (100, 10000), (333, 1823)]


@kind("layer norm")
def layer_norms(big: int, device: str) -> Found:
    programs: dict[str, Callable] = {
        "layer norm": lambda x, w: F.layer_norm(x, w.shape, w, w),
        "layer norm residual": lambda x, w: F.layer_norm(x + w, w.shape, w, w) + x,
        "layer norm gelu": lambda x, w: F.gelu(F.layer_norm(x, w.shape, w, w)),
        "rms norm": lambda x, w: rms(x) * w,
        "rms norm and sum": lambda x, w: (rms(x + w) * w, x + w),
        "var_mean": lambda x, w: torch.var_mean(x * w, -1),
        "l2 normalise": lambda x, w: F.normalize(x * w, dim=-1),
    }
    for (name, function), (n, c), dtype in product(
        programs.items(), ROW_SHAPES, dtypes(device, wide=True)
    ):
        yield name, function, (Spec((n * big, c), dtype), Spec((c,), dtype))


@kind("softmax")
def softmaxes(big: int, device: str) -> Found:
    programs: dict[str, Callable] = {
        "softmax": lambda x: torch.softmax(x, -1),
        "log softmax": lambda x: torch.log_softmax(x, -1),
        "softmax scaled": lambda x: torch.softmax(x * 0.125, -1),
        "logsumexp": lambda x: torch.logsumexp(x, -1),
        "softmax in fp32": lambda x: torch.softmax(x.float(), -1).to(x.dtype),
        "softmax 0": lambda x: torch.softmax(x, 0),
    }
    for (name, function), (n, c), dtype in product(
        programs.items(), ROW_SHAPES, dtypes(device, wide=True)
    ):
        yield name, function, (Spec((n * big, c), dtype),)


@kind("softmax with broadcast")
def masked_softmaxes(big: int, device: str) -> Found:
    programs: dict[str, tuple[Callable, str]] = {  # letters: the mask's axes, 1 where it has one
        "mask of rows": (lambda x, m: torch.softmax(x * 0.125 + m, -1), "11ss"),
        "mask of batch": (lambda x, m: torch.softmax(x + m, -1), "b1ss"),
        "bias of heads": (lambda x, m: torch.softmax(x + m, -1), "1hss"),
        "bias of columns": (lambda x, m: torch.softmax(x + m, -1), "b11s"),
        "masked": (lambda x, m: torch.softmax(x.masked_fill(m > 0, -1e4), -1), "b11s"),
        "log softmax mask": (lambda x, m: torch.log_softmax(x + m, -1), "11ss"),
    }
    shapes = [(2, 8, 256), (1, 4, 512), (4, 12, 128), (1, 1, 1000)]
    for (name, (function, axes)), (b, h, s), dtype in product(
        programs.items(), shapes, dtypes(device)
    ):
        sizes = {"b": b * min(big, 8), "h": h, "s": s, "1": 1}
        mask = tuple(sizes[axis] for axis in axes)
        yield name, function, (Spec((sizes["b"], h, s, s), dtype), Spec(mask, dtype))


@kind("rows with broadcast")
def rows_with_broadcast(big: int, device: str) -> Found:
    programs: dict[str, Callable] = {
        "sum x*row": lambda x, y, r: (x * r).sum(-1),
        "max of difference": lambda x, y, r: (x - r).abs().amax(-1),
        "sum x*column": lambda x, y, r: (x * y[:, :1]).sum(-1),
        "product of both": lambda x, y, r: ((x + r) * y[:, :1]).mean(-1),
        "cosine": lambda x, y, r: F.cosine_similarity(x, r[None], -1),
        "sum over columns": lambda x, y, r: (x * r).sum(0),
        "weighted average": lambda x, y, r: (x * torch.softmax(r, 0)).sum(-1, keepdim=True) + x,
    }
    for (name, function), (n, c), dtype in product(programs.items(), ROW_SHAPES, dtypes(device)):
        yield (
            name,
            function,
            (Spec((n * big, c), dtype), Spec((n * big, 1), dtype), Spec((c,), dtype)),
        )


@kind("short axis")
def short_axes(big: int, device: str) -> Found:
    programs: dict[str, Callable] = {
        "squared distance": lambda a, b: (a[:, None] - b[None]).square().sum(-1),
        "distance": lambda a, b: (a[:, None] - b[None]).square().sum(-1).sqrt(),
        "manhattan": lambda a, b: (a[:, None] - b[None]).abs().sum(-1),
        "largest": lambda a, b: (a[:, None] - b[None]).abs().amax(-1),
        "kernel": lambda a, b: torch.exp(-(a[:, None] - b[None]).square().sum(-1)),
        "nearest": lambda a, b: (a[:, None] - b[None]).square().sum(-1).amin(-1),
    }
    for (name, function), d, n, dtype in product(
        programs.items(), (2, 3, 8, 16, 32), (512, 1000), dtypes(device)[:2]
    ):
        n *= int(math.sqrt(big))
        yield name, function, (Spec((n, d), dtype), Spec((n, d), dtype))


@kind("few long rows")
def few_long_rows(big: int, device: str) -> Found:
    programs: dict[str, Callable] = {
        "sum": lambda x: x.sum(-1),
        "logsumexp": lambda x: torch.logsumexp(x, -1),
        "softmax": lambda x: torch.softmax(x, -1),
        "var_mean": lambda x: torch.var_mean(x, -1),
        "layer norm": lambda x: F.layer_norm(x, x.shape[-1:]),
        "amax of abs": lambda x: x.abs().amax(-1),
        "norm": lambda x: x / x.norm(dim=-1, keepdim=True),
    }
    shapes = [(1, 1 << 20), (4, 1 << 18), (16, 100_003), (64, 1 << 15)]
    for (name, function), (n, c), dtype in product(programs.items(), shapes, dtypes(device)):
        yield name, function, (Spec((n, c * big), dtype),)


@kind("arg-reductions")
def arg_reductions(big: int, device: str) -> Found:
    programs: dict[str, Callable] = {
        "argmax -1": lambda x: x.argmax(-1),
        "argmin -1": lambda x: (x * 2).argmin(-1),
        "argmax 0": lambda x: x.argmax(0),
        "max -1": lambda x: x.max(-1),
        "argmax of softmax": lambda x: torch.softmax(x, -1).argmax(-1),
    }
    shapes = [(4096, 256), (64, 16384), (8, 1 << 17), (1, 1 << 20), (1000, 1009)]
    for (name, function), (n, c), dtype in product(programs.items(), shapes, dtypes(device)[:2]):
        yield name, function, (Spec((n, c * big) if n < 100 else (n * big, c), dtype),)


@kind("reduction axes")
def reduction_axes(big: int, device: str) -> Found:
    programs: dict[str, Callable] = {
        "sum": lambda x, dims: x.sum(dims),
        "amax": lambda x, dims: x.amax(dims),
        "mean of squares": lambda x, dims: x.square().mean(dims),
        "centred": lambda x, dims: x - x.mean(dims, keepdim=True),
    }
    axes = [(0,), (1,), (2,), (3,), (0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3), (0, 1, 2)]
    axes += [(0, 1, 3), (1, 2, 3), (0, 1, 2, 3)]
    shapes = [(8, 32, 64, 64), (30, 7, 129, 37)]
    for (name, function), dims, shape, layout, dtype in product(
        programs.items(), axes, shapes, ("dense", "permuted"), dtypes(device)
    ):
        spec = Spec((shape[0] * big, *shape[1:]), dtype, layout)
        label = "".join(map(str, dims))
        yield f"{name} {label} {layout}", lambda x, f=function, d=dims: f(x, d), (spec,)


# --- memory ---------------------------------------------------------------------------------------
@kind("gather")
def gathers(big: int, device: str) -> Found:
    programs: dict[str, Callable] = {
        "embedding": lambda t, i: F.embedding(i, t),
        "embedding scaled": lambda t, i: F.embedding(i, t) * 8 + 1,
        "embedding sum of 4": lambda t, i: F.embedding(i.view(-1, 4), t).sum(1),
        "rows softmax": lambda t, i: torch.softmax(t[i], -1),
        "pairs": lambda t, i: (t[i] * t[i.flip(0)]).sum(-1),
    }
    shapes = [(1000, 128), (30000, 64), (50000, 256)]
    for (name, function), (n, c), count, dtype in product(
        programs.items(), shapes, (4096, 16384), dtypes(device)[:2]
    ):
        yield name, function, (Spec((n, c), dtype), Spec((count * big,), torch.int64, high=n))
    for n, c in ((2048, 1024), (512, 4096)):
        for dtype in dtypes(device)[:2]:
            index = Spec((n * big, c), torch.int64, high=c)
            yield "along rows", lambda t, i: t.gather(1, i), (Spec((n * big, c), dtype), index)


@kind("scatter")
def scatters(big: int, device: str) -> Found:
    programs: dict[str, Callable] = {
        "index_add rows": lambda t, i, v: t.index_add(0, i, v),
        "index_add scaled": lambda t, i, v: t.index_add(0, i, v * 2 + 1),
        "index_put rows": lambda t, i, v: t.index_put((i,), v, accumulate=True),
        "scatter_add": lambda t, i, v: t.scatter_add(0, i[:, None].expand_as(v), v),
        "zeros index_add": lambda t, i, v: torch.zeros_like(t).index_add(0, i, v),
        "mean of neighbours": lambda t, i, v: (
            torch.zeros_like(t).index_add(0, i, v)
            / torch.zeros_like(t[:, :1]).index_add(0, i, torch.ones_like(v[:, :1])).clamp(min=1)
        ),
    }
    shapes = [(1000, 64), (20000, 32), (5000, 128), (512, 8)]
    for (name, function), (n, c), count, dtype in product(
        programs.items(), shapes, (8192, 30000), dtypes(device)[:2]
    ):
        index = Spec((count * big,), torch.int64, high=n)
        yield name, function, (Spec((n, c), dtype), index, Spec((count * big, c), dtype))


@kind("scan")
def scans(big: int, device: str) -> Found:
    programs: dict[str, Callable] = {
        "cumsum 1": lambda x: x.cumsum(1),
        "cumsum 0": lambda x: x.cumsum(0),
        "cumsum of exp": lambda x: torch.exp(x).cumsum(1) * 2,
        "cumprod 1": lambda x: (x * 0.01 + 1).cumprod(1),
        "cummax 1": lambda x: x.cummax(1)[0],
        "logcumsumexp 1": lambda x: torch.logcumsumexp(x, 1),
    }
    shapes = [(1024, 1024), (4096, 200), (32, 40000)]
    for (name, function), (n, c), dtype in product(programs.items(), shapes, dtypes(device)[:2]):
        yield name, function, (Spec((n * big, c), dtype),)


def resamplings(big: int, device: str, mode: str) -> Found:
    align = {} if mode == "nearest" else {"align_corners": False}
    programs: dict[str, Callable] = {
        "up 2": lambda x: F.interpolate(x, scale_factor=2, mode=mode, **align),
        "up 2 add": lambda x: F.interpolate(x, scale_factor=2, mode=mode, **align) * 2 + 1,
        "to 48": lambda x: F.interpolate(x, size=(48, 48), mode=mode, **align),
        "down 2": lambda x: F.interpolate(x, scale_factor=0.5, mode=mode, **align),
        "relu up 4": lambda x: F.interpolate(torch.relu(x), scale_factor=4, mode=mode, **align),
    }
    shapes = [(4, 64, 32, 32), (2, 16, 80, 80), (8, 3, 112, 112)]
    for (name, function), shape, layout, dtype in product(
        programs.items(), shapes, ("dense", "last"), dtypes(device)[:2]
    ):
        spec = Spec((shape[0] * min(big, 8), *shape[1:]), dtype, layout)
        yield f"{name} {layout}", function, (spec,)


@kind("resampling nearest")
def nearest(big: int, device: str) -> Found:
    yield from resamplings(big, device, "nearest")


@kind("resampling bilinear")
def bilinear(big: int, device: str) -> Found:
    yield from resamplings(big, device, "bilinear")


@kind("layout and dtype")
def layouts_and_dtypes(big: int, device: str) -> Found:
    programs: dict[str, Callable] = {
        "transposed, half": lambda x: x.transpose(-1, -2).to(torch.bfloat16).contiguous(),
        "transposed, wide": lambda x: x.transpose(-1, -2).float().contiguous() * 2,
        "heads": lambda x: x.transpose(1, 2).contiguous().to(torch.float16),
        "to channels last": lambda x: (x * 2).to(memory_format=torch.channels_last),
        "from channels last": lambda x: (x.to(memory_format=torch.channels_last) + 1).contiguous(),
        "add transposed": lambda x: x.transpose(-1, -2) + x.reshape(x.transpose(-1, -2).shape),
        "to int8": lambda x: (x.transpose(1, 3) * 10).to(torch.int8).contiguous(),
    }
    shapes = [(8, 128, 12, 64), (4, 64, 56, 56), (2, 3, 224, 224)]
    for (name, function), shape, layout, dtype in product(
        programs.items(), shapes, ("dense", "last"), dtypes(device)
    ):
        spec = Spec((shape[0] * big, *shape[1:]), dtype, layout)
        yield f"{name} {layout}", function, (spec,)


@kind("windows")
def windows(big: int, device: str) -> Found:
    programs: dict[str, Callable] = {
        "average pool": lambda x: F.avg_pool2d(x, 3, 2, 1),
        "max pool": lambda x: F.max_pool2d(x, 3, 2, 1),
        "relu max pool": lambda x: F.max_pool2d(torch.relu(x), 2),
        "padded": lambda x: F.pad(x, (1, 2, 3, 0)) * 2,
        "reflected": lambda x: F.pad(x, (2, 2, 2, 2), mode="reflect") + 1,
        "unfolded": lambda x: x.unfold(3, 3, 1).sum(-1),
        "rolled": lambda x: x.roll((3, 5), (2, 3)) + x,
        "shuffled": lambda x: F.pixel_shuffle(F.pixel_unshuffle(x, 2) + 1, 2) * 2,
    }
    for (name, function), layout, dtype in product(
        programs.items(), ("dense", "last"), dtypes(device)[:2]
    ):
        yield f"{name} {layout}", function, (Spec((8 * min(big, 8), 32, 56, 56), dtype, layout),)


@kind("joined")
def joined(big: int, device: str) -> Found:
    programs: dict[str, Callable] = {
        "cat -1": lambda x, y: torch.cat([x, y * 2], -1),
        "cat 0": lambda x, y: torch.cat([x + 1, torch.relu(y)], 0),
        "stack": lambda x, y: torch.stack([x, y, x * y], 1),
        "halves": lambda x, y: F.silu(x.chunk(2, -1)[0]) * x.chunk(2, -1)[1] + y.chunk(2, -1)[0],
        "rotary": lambda x, y: x * y + torch.cat([-x.chunk(2, -1)[1], x.chunk(2, -1)[0]], -1) * y,
        "cat and sum": lambda x, y: torch.cat([x, y], -1).sum(-1),
    }
    shapes = [(1024, 1024), (4096, 130)]
    for (name, function), shape, dtype in product(programs.items(), shapes, dtypes(device)):
        spec = Spec((shape[0] * big, shape[1]), dtype)
        yield name, function, (spec, spec)


# --- arithmetic -----------------------------------------------------------------------------------
@kind("transcendental")
def transcendental(big: int, device: str) -> Found:
    programs: dict[str, Callable] = {
        "sin cos exp": lambda x: torch.sin(x) * torch.cos(x) + torch.exp(-x.abs()),
        "chain of 8": lambda x: torch.tanh(
            torch.sin(torch.exp(-torch.log1p(torch.cos(torch.sigmoid(torch.erf(torch.atan(x)))))))
        ),
        "gelu": lambda x: F.gelu(x),
        "gelu tanh": lambda x: F.gelu(x, approximate="tanh"),
        "mish": lambda x: F.mish(x),
        "softplus log": lambda x: torch.log(F.softplus(x) + 1),
        "log of abs": lambda x: torch.log(x.abs() + 1),
        "exp": lambda x: torch.exp(x),
        "tanh": lambda x: torch.tanh(x),
        "sin": lambda x: torch.sin(x * 10),
        "pow": lambda x: torch.pow(x.abs() + 1, 1.7),
        "erf": lambda x: torch.erf(x),
        "sigmoid chain": lambda x: torch.sigmoid(torch.sigmoid(x) * x) * x,
        "atan2": lambda x: torch.atan2(x, x.flip(0)),
        "expm1 log1p": lambda x: torch.expm1(x) + torch.log1p(x.abs()),
        "hyperbolic": lambda x: torch.sinh(x) - torch.cosh(x) + torch.asinh(x),
    }
    for (name, function), size, dtype in product(
        programs.items(), (1 << 20, 1_000_003), dtypes(device, wide=True)
    ):
        yield name, function, (Spec((size * big,), dtype),)


@kind("quantisation")
def quantisation(big: int, device: str) -> Found:
    def per_row(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        scale = x.abs().amax(-1, keepdim=True).float() / 127 + 1e-6
        return (x / scale).round().clamp(-127, 127).to(torch.int8), scale

    def fake(x: torch.Tensor) -> torch.Tensor:
        return (x * 16).round().clamp(-128, 127) / 16

    def groups(x: torch.Tensor) -> torch.Tensor:
        part = x.reshape(-1, 32)
        scale = part.abs().amax(-1, keepdim=True) / 7 + 1e-4
        return ((part / scale).round() * scale).reshape(x.shape)

    programs: dict[str, Callable] = {
        "per row": per_row,
        "fake": fake,
        "groups of 32": groups,
        "there and back": lambda x: (x * 20).to(torch.int8).to(x.dtype) / 20,
        "per column": lambda x: (x / (x.abs().amax(0) / 127 + 1e-4)).round().to(torch.int8),
        "whole tensor": lambda x: (x / (x.abs().amax() / 127)).round().to(torch.int8),
    }
    shapes = [(1024, 1024), (512, 4096)]
    for (name, function), shape, dtype in product(programs.items(), shapes, dtypes(device)):
        yield name, function, (Spec((shape[0] * big, shape[1]), dtype),)


@kind("pointwise with broadcast")
def pointwise(big: int, device: str) -> Found:
    programs: dict[str, Callable] = {
        "bias relu": lambda x, r: torch.relu(x + r),
        "bias gelu residual": lambda x, r: F.gelu(x + r) + x,
        "outer": lambda x, r: x[:, :1] * r + x,
        "where": lambda x, r: torch.where(x > r, x, r * 0.1),
        "two outputs": lambda x, r: (x * r, x + r),
        "leaky, clamped": lambda x, r: F.leaky_relu(x * r, 0.1).clamp(-2, 2),
    }
    for (name, function), (n, c), layout, dtype in product(
        programs.items(), ROW_SHAPES[1:5:2], ("dense", "permuted"), dtypes(device, wide=True)
    ):
        spec = Spec((n * big, c), dtype, layout)
        yield f"{name} {layout}", function, (spec, Spec((c,), dtype))


@kind("losses")
def losses(big: int, device: str) -> Found:
    programs: dict[str, Callable] = {
        "mse": lambda x, y: F.mse_loss(x, y),
        "huber": lambda x, y: F.smooth_l1_loss(x, y),
        "bce": lambda x, y: F.binary_cross_entropy_with_logits(x, torch.sigmoid(y)),
        "kl": lambda x, y: F.kl_div(F.log_softmax(x, -1), F.log_softmax(y, -1), log_target=True),
        "soft cross entropy": lambda x, y: -(torch.softmax(y, -1) * F.log_softmax(x, -1)).sum(-1),
        "focal": lambda x, y: (torch.sigmoid(x).square() * F.logsigmoid(-x) * y).mean(),
        "cosine": lambda x, y: 1 - F.cosine_similarity(x, y, -1),
    }
    shapes = [(1024, 1024), (2048, 500), (64, 32000)]
    for (name, function), (n, c), dtype in product(programs.items(), shapes, dtypes(device)[:2]):
        yield name, function, (Spec((n * big, c), dtype), Spec((n * big, c), dtype))


@kind("backward formulas")
def backwards(big: int, device: str) -> Found:
    aten = torch.ops.aten
    programs: dict[str, Callable] = {
        "softmax": lambda g, y: aten._softmax_backward_data(g, y, -1, y.dtype),
        "gelu": lambda g, y: aten.gelu_backward(g, y),
        "gelu and bias": lambda g, y: (aten.gelu_backward(g, y), aten.gelu_backward(g, y).sum(0)),
        "tanh": lambda g, y: aten.tanh_backward(g, torch.tanh(y)),
        "layer norm": lambda g, y: (
            g - g.mean(-1, keepdim=True) - y * (g * y).mean(-1, keepdim=True)
        ),
        "weight of norm": lambda g, y: ((g * y).sum(0), g.sum(0)),
        "relu": lambda g, y: g * (y > 0),
    }
    for (name, function), (n, c), dtype in product(
        programs.items(), ROW_SHAPES[1:5], dtypes(device)[:2]
    ):
        yield name, function, (Spec((n * big, c), dtype), Spec((n * big, c), dtype))


@kind("attention by hand")
def attention(big: int, device: str) -> Found:
    def plain(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return torch.softmax(q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5, -1) @ v

    def causal(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        scores = q @ k.transpose(-1, -2) / 8
        allowed = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).tril()
        return torch.softmax(scores.masked_fill(~allowed, -torch.inf), -1) @ v

    def capped(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        scores = torch.tanh(q @ k.transpose(-1, -2) / 50) * 50
        return torch.softmax(scores.float(), -1).to(q.dtype) @ v

    programs: dict[str, Callable] = {"plain": plain, "causal": causal, "capped": capped}
    shapes = [(1, 8, 256, 64), (1, 4, 512, 64), (2, 12, 128, 32)]
    for (name, function), (b, h, s, d), dtype in product(programs.items(), shapes, dtypes(device)):
        spec = Spec((b * min(big, 8), h, s, d), dtype)
        yield name, function, (spec, spec, spec)
