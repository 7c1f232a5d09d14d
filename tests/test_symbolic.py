"""Symbolic sizes through the back half: compiled once, run at many sizes, against eager."""

import contextlib
import copy
import itertools
import os
import re
import types

import pytest
import sympy
import torch
import torch.nn.functional as F
from symbolic_helpers import Symbolic

import miniinductor
from miniinductor.gpu import split_reductions as splitting
from miniinductor.sizes.ranges import multiples
from miniinductor.sizes import ranges
from miniinductor.sizes.expressions import FloorDiv, Mod
from benchmarks.error_bound import assert_near

SIZES = [(6, 10), (2, 3), (17, 33), (5, 1030), (130, 66)]


def same(ours, expected):
    torch.testing.assert_close(
        ours, expected if isinstance(expected, tuple) else (expected,), equal_nan=True
    )


def holds(guard, inputs):
    return eval(
        guard.check.format(*[f"inputs[{i}].shape[{d}]" for i, d in guard.source]),
        {"inputs": inputs},
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


ONE = {
    "pointwise": lambda x: torch.relu(x * 2).exp() - x,
    "numbers made of sizes": lambda x: x * x.shape[0] + x.shape[1] / 2 + x.shape[0] ** 0.5,
    "softmax": lambda x: torch.softmax(x, -1),
    "softmax over rows": lambda x: torch.softmax(x, 0),
    "sums": lambda x: (x.sum(0), x.mean(1), x.var(0), x.amax(1), x.argmax(0), x.double().prod(1)),
    "transpose": lambda x: (x.t() + 1, x.t().contiguous(), x.t().relu().sum(1)),
    "reshape": lambda x: (
        x.reshape(-1) + 1,
        x.view(-1).view(x.shape) * 2,
        x.unsqueeze(1).expand(-1, 3, -1).reshape(-1, x.shape[1]) + x[:1],
    ),
    "slices": lambda x: (
        x[1:] + 1,
        x[:-1] * 2,
        x[:, 1:] - x[:, :-1],
        x[::2] + 0,
        x[-1] + x[0],
        x[:, -2:] * 3,
    ),
    "cat": lambda x: (torch.cat([x, x * 2, x[:1]]), torch.cat([x, x[:, 1:]], 1) + 1),
    "stack and split": lambda x: (
        torch.stack([x, x + 1], 1),
        x.unsqueeze(0).expand(4, -1, -1).split(2)[1] + 1,
        x.chunk(2, 1)[0] * 2,
    ),
    "flip, roll, repeat": lambda x: (
        x.flip(0),
        x.roll(1, 1),
        x.repeat(2, 3),
        x.roll((1, -1), (0, 1)),
        x.roll(3),
    ),
    "pad": lambda x: (F.pad(x, (1, 2)), F.pad(x, (0, 0, 2, 1), value=3.0) * 2, F.pad(x, (-1, 0))),
    "creation": lambda x: (
        torch.arange(x.shape[0]) * 2,
        torch.full((x.shape[1], 2), 1.5) + x[0, 0],
        torch.zeros(x.shape) + x,
        torch.arange(0, x.shape[1], dtype=torch.float32) + x,
        torch.ones_like(x),
    ),
    "triangles": lambda x: (x.tril(), x.triu(1), torch.ones((x.shape[1], x.shape[1])).tril() * 2),
    "cumsum": lambda x: (x.cumsum(0), x.cumsum(1)),
    "layer norm": lambda x: F.layer_norm(x, (x.shape[1],)),
    "views of inputs": lambda x: (x[1:], x.t(), x.view(-1), x.unsqueeze(0), x),
    "sizes": lambda x: (x.shape[0], x.shape[0] * x.shape[1] + 1, x.numel() // 2, x + 1),
    "gather": lambda x: (
        x[torch.arange(x.shape[0] - 1)],
        x.gather(1, torch.zeros(x.shape, dtype=torch.int64)),
        x.index_select(1, torch.tensor([1, 0])),
    ),
    "writes": lambda x: (
        x.clone().mul_(2),
        torch.zeros_like(x).index_put((torch.arange(x.shape[0]),), x),
        x.clone().index_fill(0, torch.tensor([1]), 2.0),
    ),
    "sort, topk": lambda x: (x.sort(1)[0], x.topk(2, 1)[1]),
    "lookups under a mask": lambda x: F.pad(
        x.flatten().index_select(0, torch.arange(x.numel()).flip([0])), [1, 0], value=0.5
    ),
    "bool": lambda x: (x > 0, (x > 0).any(1), (x > 0).all(0), torch.where(x > 0, x, -x)),
}


@pytest.mark.parametrize("name", ONE)
def test_one_input(name):
    check(ONE[name], one)


@pytest.mark.parametrize(
    "name", ["pointwise", "softmax", "sums", "transpose", "reshape", "cat", "slices"]
)
def test_other_strides(name):
    check(
        ONE[name] if name != "reshape" else lambda x: (x.reshape(-1) + 1,),
        lambda a, b: (torch.randn(b, a).t(),),
    )
    check(
        ONE[name] if name != "reshape" else lambda x: (x.reshape(-1) + 1,),
        lambda a, b: (torch.randn(a, 8)[:, :1].expand(a, b),),
    )


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
    assert "s0 * s1" in compiled.record.wrapper_source


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


def test_inputs_that_are_written_and_inputs_with_gradients():
    def f(x, y):
        z = x * 2
        y.add_(1)
        return z.exp() * y, z.t(), y[1:]

    compiled = Symbolic(f, [torch.randn(4, 5, requires_grad=True), torch.randn(4, 5)])
    for shape in [(4, 5), (7, 3)]:
        a, b = torch.randn(shape, requires_grad=True), torch.randn(shape)
        c, d = a.detach().clone().requires_grad_(), b.clone()
        ours, expected = compiled(a, b), f(c, d)
        torch.testing.assert_close(tuple(ours), expected)
        ours[0].sum().backward(), expected[0].sum().backward()
        torch.testing.assert_close((a.grad, b), (c.grad, d))


def test_convolution_and_pooling():
    weight = torch.randn(8, 3, 3, 3)
    check(
        lambda x: F.max_pool2d(F.relu(F.conv2d(x, weight, padding=1)), 2).mean((2, 3)),
        lambda a, b: (torch.randn(a, 3, b, b + 4),),
        [(4, 16), (2, 10), (5, 34)],
    )  # torch 2.11 asks whether pooling divides
    check(
        lambda x: (F.avg_pool2d(x, 3, padding=1), F.avg_pool2d(x, 2, ceil_mode=True)),
        lambda a, b: (torch.randn(a, 3, b, b + 5),),
        [(4, 16), (2, 10), (5, 34)],
    )  # likewise


def test_one_library_serves_all_sizes():
    first = Symbolic(lambda x: torch.softmax(x, -1), [torch.randn(6, 200)])
    second = Symbolic(lambda x: torch.softmax(x, -1), [torch.randn(9, 100)])
    assert first.record.kernels[0].source == second.record.kernels[0].source


def test_memory_is_planned_by_sizes():
    """Buffers of equal symbolic size share a slot; a few workspaces are kept."""

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
    assert any(
        "reuse" in place or "in place" in place for _, place, _ in compiled.record.memory_plan
    )
    assert len(compiled.compiled.function.__globals__["workspaces_for"]) <= 4


def test_a_size_only_in_a_backward_compile_is_not_guarded_late():
    """The guards are settled when the forward half is compiled: the backward half adds none."""
    compiled = Symbolic(
        lambda x: torch.softmax(x.reshape(-1), 0).sum() + x[:, ::2].sum(),
        [torch.randn(4, 6, requires_grad=True)],
    )
    before = list(map(str, compiled.env.guards()))
    x = torch.randn(8, 3, requires_grad=True)
    compiled(x)[0].backward()
    assert list(map(str, compiled.env.guards())) == before
    assert_near(x.grad, torch.tensor([[1.0, 0, 1]]).expand(8, 3))


def test_cuda_graphs_are_refused():
    from miniinductor.ir import Graph, InputBuffer
    from miniinductor.gpu.cuda_graphs import refusal

    assert "symbolic" in refusal(
        Graph(inputs={"s0": InputBuffer("s0", None)}), torch.device("cuda")
    )


def test_sizes_found_equal_while_tracing():
    """`z` is added: its size is the sum's, so one symbol is replaced by the others; both stay
    inputs."""

    def f(x, y, z):
        return torch.cat([x, y]) * z, x + 1

    def make(a, b):
        return torch.randn(a), torch.randn(b), torch.randn(a + b)

    check(f, make, [(3, 4), (5, 2), (17, 33)])
    module = Symbolic(f, [t.requires_grad_() for t in make(3, 4)])
    inputs = [t.requires_grad_() for t in make(5, 2)]
    module(*inputs)[0].sum().backward()
    torch.testing.assert_close(inputs[2].grad, torch.cat(inputs[:2]).detach())


@pytest.mark.skipif(os.environ.get("TRITON_INTERPRET") != "1", reason="needs Triton's interpreter")
@pytest.mark.parametrize(
    "name",
    [
        "pointwise",
        "softmax",
        "sums",
        "layer norm",
        "reshape",
        "cat",
        "slices",
        "transpose",
        "gather",
    ],
)
def test_triton_kernels_take_sizes_as_arguments(name):
    pytest.importorskip("triton")
    with miniinductor.config.patch(cpu_backend="triton"):
        compiled = check(
            ONE[name], one, [*SIZES[:3], (3, 16), (4, 500)]
        )  # rows of up to 16 in one tile, longer ones in a loop
    assert any(", s0" in kernel.source for kernel in compiled.record.kernels)


@pytest.mark.skipif(os.environ.get("TRITON_INTERPRET") != "1", reason="needs Triton's interpreter")
def test_triton_loops_over_rows_that_are_longer_than_the_first_ones():
    """By blocks for long rows: the online softmax cannot do with four elements."""
    pytest.importorskip("triton")
    with miniinductor.config.patch(cpu_backend="triton"):
        check(
            lambda x: torch.exp(x - x.amax(-1, keepdim=True)).sum(-1),
            one,
            [(5, 3), (4, 2), (6, 10), (2, 5000)],
        )


@pytest.mark.skipif(os.environ.get("TRITON_INTERPRET") != "1", reason="needs Triton's interpreter")
def test_triton_reductions_in_chunks_of_a_symbolic_length(monkeypatch):
    pytest.importorskip("triton")
    for name, value in {
        "LEAST_ELEMENTS": 64,
        "LEAST_ROWS": 4,
        "LEAST_CHUNK": 16,
        "PROGRAMS": 16,
    }.items():
        monkeypatch.setattr(splitting, name, value)
    with miniinductor.config.patch(cpu_backend="triton"):
        compiled = check(
            lambda x: (
                x.sum(0),
                x.t().amax(),
                (x / 9 + 1).prod(),
                (x > 2).any(),
                F.mse_loss(x, x.flip(0)),
            ),
            one,
            [(48, 16), (17, 33), (9, 103), (100, 3), (2, 2), (3, 400)],
        )
    assert (
        len(compiled.record.notes_of("in 12 chunks")) == 1
        and len(compiled.record.notes_of("in 16 chunks")) == 4
    )


@pytest.mark.skipif(os.environ.get("TRITON_INTERPRET") != "1", reason="needs Triton's interpreter")
def test_triton_kernels_know_the_sizes_of_what_they_read_a_part_of():
    pytest.importorskip("triton")
    with miniinductor.config.patch(cpu_backend="triton"):
        check(
            lambda x, y: x[: y.shape[0]] * 2,
            lambda a, b: (torch.randn(a, 4), torch.randn(b)),
            [(9, 5), (12, 7), (33, 8)],
            [{0}, {0}],
        )


@pytest.mark.skipif(os.environ.get("TRITON_INTERPRET") != "1", reason="needs Triton's interpreter")
def test_triton_needs_no_mask_where_blocks_divide_every_size():
    pytest.importorskip("triton")
    with miniinductor.config.patch(cpu_backend="triton"):
        assert (
            "mask"
            not in check(lambda x: x.repeat(1, 65536) * 2, one, [(2, 3), (3, 2)])
            .record.kernels[0]
            .source
        )
        assert (
            "mask"
            in check(lambda x: x.repeat(1, 12) * 2, one, [(2, 3), (3, 2)]).record.kernels[0].source
        )


@pytest.mark.skipif(os.environ.get("TRITON_INTERPRET") != "1", reason="needs Triton's interpreter")
def test_what_a_gpu_kernel_assumes_of_its_sizes(monkeypatch):
    """Compiled for a GPU that is not there; launches are only noted: (function, grid)."""
    pytest.importorskip("triton")
    from miniinductor.gpu import build as triton_build
    from miniinductor.devices import LANGUAGES
    from miniinductor.speed import _launcher

    kernels, launched, loaded = [], [], []
    build = triton_build.build_triton_kernels
    monkeypatch.setattr(
        LANGUAGES["triton"],
        "build",
        lambda device, some, moved: kernels.extend(some) or build(device, some, moved),
    )
    with miniinductor.config.patch(cpu_backend="triton"):
        check(ONE["softmax"], one, [(6, 32)])
    monkeypatch.setattr(
        torch.cuda,
        "get_device_properties",
        lambda device: types.SimpleNamespace(major=9, minor=0, name="none"),
    )
    monkeypatch.setattr(triton_build, "why_not", lambda device: None)
    monkeypatch.setattr(
        _launcher, "load_cubin", lambda code, *rest: loaded.append(code) or len(loaded) - 1
    )
    monkeypatch.setattr(
        _launcher,
        "CudaKernel",
        lambda function, name, device, *grid_and_rest: (
            lambda *arguments: launched.append((function, grid_and_rest[0], len(arguments)))
        ),
    )
    monkeypatch.setattr(torch.cuda, "device", lambda device: contextlib.nullcontext())
    codes, choose = [], triton_build.CudaCode.choose
    monkeypatch.setattr(
        triton_build.CudaCode,
        "choose",
        lambda self, errors: (codes.append(self), choose(self, errors)),
    )
    [kernel] = build(torch.device("cuda", 0), kernels)
    x = torch.empty(0)
    for sizes in [
        (6, 32),
        (16, 32),
        (48, 16),
        (6, 5),
        (7, 40),
        (16, 48),
        (1 << 28, 32),
        (0, 32),
        (16, 32),
    ]:
        kernel(x, x, *sizes, 7)
    [code] = codes
    block = code.best.block("x")
    assert [(f, g) for f, g, _ in launched] == [
        (0, -(-6 // block)),
        (1, -(-16 // block)),
        (1, -(-48 // block)),
        (0, -(-6 // block)),
        (0, -(-7 // block)),
        (1, -(-16 // block)),
        (2, -(-(1 << 28) // block)),
        (1, -(-16 // block)),
    ]  # 2: indices of 64 bits
    assert code.at_sizes.cache_info().currsize == 8


@pytest.mark.skipif(os.environ.get("TRITON_INTERPRET") != "1", reason="needs Triton's interpreter")
def test_triton_leaves_products_of_symbolic_sizes_to_the_library():
    pytest.importorskip("triton")
    with miniinductor.config.patch(cpu_backend="triton", matmul_templates="always"):
        compiled = check(lambda x: torch.relu(x @ x.t()), one, SIZES[:3])
    assert any("symbolic" in decision.reason for decision in compiled.record.fusions)


def test_a_size_that_a_guard_says_is_a_multiple_gives_simpler_indices():
    """`x.view(-1, 8)` learns that 8 divides the width; without that, each element is found by
    divisions."""

    def f(x):
        return (
            x.relu().reshape(x.shape[0], -1, 8).sum(-1),
            x.exp().view(-1, x.shape[1] // 8, 8) * 2,
        )

    record = check(f, one, [(6, 32), (3, 24), (17, 40), (4, 16)]).record
    bodies = "".join(k.source[k.source.index("{") :].replace("s1/8", "") for k in record.kernels)
    assert "/" not in re.sub("//.*", "", bodies) and "%" not in bodies, bodies


def test_divisions_by_what_divides_a_size():
    i, j = sympy.symbols("i j", integer=True, nonnegative=True)
    s, t = sympy.symbols("s t", integer=True, positive=True)
    questions = [
        FloorDiv(s * i + j, 8),
        FloorDiv(8 * i + j, s),
        Mod(8 * i + j, s),
        Mod(i * s * t + j, 8),
        8 * FloorDiv(s, 8) * i + j,
    ]
    answers = [
        i * FloorDiv(s, 8),
        FloorDiv(i, FloorDiv(s, 8)),
        j + 8 * Mod(i, FloorDiv(s, 8)),
        j,
        i * s + j,
    ]
    with multiples({s: 8}):
        assert [ranges.simplify(q, {j: 8}) for q in questions] == answers
    assert ranges.simplify(questions[0], {j: 8}) != answers[0]
    for values in itertools.product(range(5), range(8), (8, 16, 40), (1, 3)):
        given = dict(zip((i, j, s, t), values))
        for q, a in zip(questions, answers):
            assert q.subs(given) == a.subs(given), (q, a, given)
