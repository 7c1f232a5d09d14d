"""Symbolic sizes through the back half: compiled once, run at many sizes, against eager."""

import copy
import os

import pytest
import torch
import torch.nn.functional as F
from symbolic_helpers import Symbolic, holds

import minidynamo
import miniinductor
from benchmarks.error_bound import assert_near
from benchmarks.programs import vision
from tests.soundness.tables import lambdas

SIZES = [(6, 10), (2, 3), (17, 33), (5, 1030), (130, 66)]


def same(ours, expected):
    torch.testing.assert_close(
        ours, expected if isinstance(expected, tuple) else (expected,), equal_nan=True
    )


def check(function, make, sizes=SIZES, dims=None):
    """make(*sizes) -> inputs."""
    with torch.no_grad():
        inputs = make(*sizes[0])
        compiled = Symbolic(function, list(inputs), dims)
        assert not [n for n in compiled.record.notes if "eager" in n], compiled.record.notes
        found = [g for g in compiled.env.guards() if g.kind == "SIZES"]
        for values in sizes:
            inputs = make(*values)
            assert all(holds(g, inputs) for g in found), found  # one compilation serves all of them
            expected = function(*inputs)
            ours = tuple(compiled(*inputs))
            same(ours, expected)
            for a, b in zip(ours, expected if isinstance(expected, tuple) else (expected,)):
                if isinstance(b, torch.Tensor) and b.numel():
                    assert a.stride() == b.stride(), (a.stride(), b.stride())
    return compiled


def one(a, b):
    return (torch.randn(a, b),)


def two(a, b):
    return torch.randn(a, b), torch.randn(a, b)


ONE = lambdas(
    "x",
    globals(),
    """
    pointwise: torch.relu(x * 2).exp() - x;
    numbers made of sizes: x * x.shape[0] + x.shape[1] / 2 + x.shape[0] ** 0.5;
    softmax: torch.softmax(x, -1); softmax over rows: torch.softmax(x, 0);
    sums: (x.sum(0), x.mean(1), x.var(0), x.amax(1), x.argmax(0), x.double().prod(1));
    transpose: (x.t() + 1, x.t().contiguous(), x.t().relu().sum(1));
    reshape: (x.reshape(-1) + 1, x.view(-1).view(x.shape) * 2,
        x.unsqueeze(1).expand(-1, 3, -1).reshape(-1, x.shape[1]) + x[:1]);
    slices: (x[1:] + 1, x[:-1] * 2, x[:, 1:] - x[:, :-1], x[::2] + 0, x[-1] + x[0], x[:, -2:] * 3);
    cat: (torch.cat([x, x * 2, x[:1]]), torch.cat([x, x[:, 1:]], 1) + 1);
    stack and split: (torch.stack([x, x + 1], 1), x.unsqueeze(0).expand(4, -1, -1).split(2)[1] + 1,
        x.chunk(2, 1)[0] * 2);
    flip, roll, repeat: (x.flip(0), x.roll(1, 1), x.repeat(2, 3), x.roll((1, -1), (0, 1)),
        x.roll(3));
    pad: (F.pad(x, (1, 2)), F.pad(x, (0, 0, 2, 1), value=3.0) * 2, F.pad(x, (-1, 0)));
    creation: (torch.arange(x.shape[0]) * 2, torch.full((x.shape[1], 2), 1.5) + x[0, 0],
        torch.zeros(x.shape) + x, torch.arange(0, x.shape[1], dtype=torch.float32) + x,
        torch.ones_like(x));
    triangles: (x.tril(), x.triu(1), torch.ones((x.shape[1], x.shape[1])).tril() * 2);
    cumsum: (x.cumsum(0), x.cumsum(1)); layer norm: F.layer_norm(x, (x.shape[1],));
    views of inputs: (x[1:], x.t(), x.view(-1), x.unsqueeze(0), x);
    sizes: (x.shape[0], x.shape[0] * x.shape[1] + 1, x.numel() // 2, x + 1);
    gather: (x[torch.arange(x.shape[0] - 1)], x.gather(1, torch.zeros(x.shape, dtype=torch.int64)),
        x.index_select(1, torch.tensor([1, 0])));
    writes: (x.clone().mul_(2), torch.zeros_like(x).index_put((torch.arange(x.shape[0]),), x),
        x.clone().index_fill(0, torch.tensor([1]), 2.0));
    sort, topk: (x.sort(1)[0], x.topk(2, 1)[1]);
    lookups under a mask: F.pad(x.flatten().index_select(0, torch.arange(x.numel()).flip([0])),
        [1, 0], value=0.5);
    bool: (x > 0, (x > 0).any(1), (x > 0).all(0), torch.where(x > 0, x, -x))
    """,
)


@pytest.mark.parametrize("name", ONE)
def test_one_input(name):
    check(ONE[name], one)


@pytest.mark.parametrize(
    "name", ["pointwise", "softmax", "sums", "transpose", "reshape", "cat", "slices"]
)
def test_other_strides(name):
    function = ONE[name] if name != "reshape" else lambda x: (x.reshape(-1) + 1,)
    check(function, lambda a, b: (torch.randn(b, a).t(),))
    check(function, lambda a, b: (torch.randn(a, 8)[:, :1].expand(a, b),))


class Block(torch.nn.Module):
    """Embedding, attention by a library kernel and by hand, layer norm, tied logits, loss."""

    def __init__(self):
        super().__init__()
        self.embedding, self.norm = torch.nn.Embedding(50, 16), torch.nn.LayerNorm(16)
        self.qkv, self.out = torch.nn.Linear(16, 48), torch.nn.Linear(16, 16)

    def forward(self, ids):
        batch, length = ids.shape[0], ids.shape[1]
        x = self.embedding(ids)
        q, k, v = self.qkv(x).chunk(3, -1)
        q, k, v = (t.view((batch, length, 2, 8)).transpose(1, 2) for t in (q, k, v))
        fused = (
            F.scaled_dot_product_attention(q, k, v, is_causal=True)
            .transpose(1, 2)
            .reshape(batch, length, 16)
        )
        y = self.norm(x + self.out(F.gelu(fused)))
        scores = q @ k.transpose(-1, -2) / 8**0.5 + torch.full((length, length), -1e9).triu(1)
        y = y + (torch.softmax(scores, -1) @ v).transpose(1, 2).flatten(2)
        logits = y @ self.embedding.weight.t()
        return (
            logits,
            F.cross_entropy(logits[:, :-1].reshape(-1, 50), ids[:, 1:].reshape(-1)),
            length * 2,
            y[:, 1:],
        )


def test_a_transformer_block():
    torch.manual_seed(0)
    module = Block().eval()
    with torch.no_grad():
        compiled = Symbolic(module, [torch.randint(0, 50, (3, 7))])
        for shape in [(3, 7), (2, 3), (5, 33), (4, 128)]:
            ids = torch.randint(0, 50, shape)
            assert_near(tuple(compiled(ids)), module(ids))
    assert "s0*s1" in compiled.record.wrapper_source


@pytest.mark.parametrize("partition", ["min-cut", "recompute-all", "save-everything"])
def test_training_with_one_compilation(partition):
    torch.manual_seed(0)
    module = Block()
    plain = copy.deepcopy(module)
    with miniinductor.config.patch(partition=partition):
        compiled = Symbolic(module, [torch.randint(0, 50, (3, 7))])
        for shape in [(3, 7), (2, 3), (5, 33)]:
            ids = torch.randint(0, 50, shape)
            ours, expected = compiled(ids), plain(ids)
            assert_near(tuple(ours), expected)
            for some in (module, plain):
                some.zero_grad()
            for results in (ours, expected):
                (results[1] + results[3].sum()).backward()
            for a, b in zip(module.parameters(), plain.parameters()):
                assert_near(a.grad, b.grad)
    assert "s1" in compiled.record.backward.wrapper_source and not compiled.record.backward.notes


def test_one_library_serves_all_sizes():
    first = Symbolic(lambda x: torch.softmax(x, -1), [torch.randn(6, 200)])
    second = Symbolic(lambda x: torch.softmax(x, -1), [torch.randn(9, 100)])
    assert first.record.kernels[0].source == second.record.kernels[0].source


def test_memory_is_planned_by_sizes():
    """Buffers of symbolic size are made in each call; those of numbers lie in the arena."""

    def f(x):
        for _ in range(6):
            x = x @ x.t().contiguous() @ x
            x = x / x.abs().amax()
        return x

    with torch.no_grad():
        compiled = Symbolic(f, [torch.randn(20, 30)])
        for shape in [(20, 30), (3, 4), (50, 2), (5, 6), (7, 8), (9, 10), (20, 30)]:
            x = torch.randn(shape)
            assert_near(compiled(x)[0], f(x))
    places = [(place, size) for _, place, size in compiled.record.memory_plan]
    assert all(place == "new" or isinstance(size, int) for place, size in places)


@pytest.mark.skipif(os.environ.get("TRITON_INTERPRET") != "1", reason="needs Triton's interpreter")
@pytest.mark.parametrize(
    "name",
    ("pointwise; softmax; sums; layer norm; reshape; cat; slices; transpose; gather").split("; "),
)
def test_triton_kernels_take_sizes_as_arguments(name):
    pytest.importorskip("triton")
    with miniinductor.config.patch(cpu_backend="triton"):
        compiled = check(
            ONE[name], one, [*SIZES[:3], (3, 16), (4, 500)]
        )  # rows of up to 16 in one tile, longer ones in a loop
    assert any(", s0" in kernel.source for kernel in compiled.record.kernels)


@pytest.mark.parametrize("name", ["unet-2", "unet-crop"])
def test_images_of_several_sizes(name):  # pooled, padded, joined: products of quotients
    model = vision.PROGRAMS[name]().eval()
    compiled = minidynamo.compile(model)
    with torch.no_grad():
        for size in vision.SIZES[:3]:
            x = torch.randn(1, 3, *size)
            torch.testing.assert_close(compiled(x), model(x), rtol=1e-4, atol=1e-5)
