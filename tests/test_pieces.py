"""One operation that cannot be compiled costs one eager kernel, never the graph (pieces.py)."""

import contextlib
import copy
import os
import random
import warnings

import pytest
import torch
import torch.nn.functional as F
import torch.utils._pytree as pytree
from torch.testing._internal.common_methods_invocations import op_db

import minidynamo
import miniinductor
from miniinductor import records
from miniinductor.autograd.tracer import Tracer
from miniinductor.errors import CannotTrace

SEED = 45


@pytest.fixture(autouse=True)
def fresh():
    minidynamo.reset()
    records.TOLD.clear()
    yield
    assert not [text for text in records.TOLD if "runs eagerly" in text]


def copies(values):
    return [v.detach().clone().requires_grad_(v.requires_grad) for v in values]


def outcome(function, inputs):
    """(results, inputs after the call, gradients)."""
    inputs = copies(inputs)
    torch.manual_seed(0)
    out = pytree.tree_leaves(function(*inputs))
    out = [t for t in out if isinstance(t, torch.Tensor)]
    learning = [t for t in out if t.requires_grad]
    leaves = [t for t in inputs if t.requires_grad]
    gradients = []
    if learning and leaves:
        total = sum(t.abs().sin().sum() for t in learning)
        gradients = torch.autograd.grad(total, leaves, allow_unused=True)
    return [t.detach() for t in out], [t.detach() for t in inputs], list(gradients)


def check(function, inputs, backend="aot_eager", **how):
    compiled = minidynamo.compile(copy.deepcopy(function), backend=backend, **how)
    for _ in range(2):
        got, want = outcome(compiled, inputs), outcome(function, inputs)
        torch.testing.assert_close(got, want, equal_nan=True, atol=1e-4, rtol=1e-4)


# --- any operation --------------------------------------------------------------------------------
def a_block(x, w):
    h = F.layer_norm(x @ w, (4,)).relu()
    a, b = h.split(2, dim=1)
    return torch.cat([a * b, b], 1) + x.shape[0], h.t()


def writes(x, w):
    x = x * 2
    x[1:].add_(w[1:])
    total = x.sum(0, keepdim=True)
    x.mul_(total)
    return x.view(-1), total.sin()


def writes_to_its_input(w, held):
    held.mul_(2)
    values, places = (w * held.clone()).max(dim=1)
    held[0] = 1.0
    return values * held.clone().sum(), places


PROGRAMS = [a_block, writes, writes_to_its_input]


def nodes_of(program, inputs):
    found = []

    def look(gm, examples):
        found.extend(n.name for n in gm.graph.nodes if n.op.startswith("call"))
        return gm.forward

    minidynamo.compile(program, backend=look)(*copies(inputs))
    minidynamo.reset()
    return found


def untraceable(monkeypatch, names, half):
    """Nothing that comes of these nodes is traced: in both halves, or in the backward one."""
    plain = Tracer.decompose_or_record

    def traced(tracer, func, args, kwargs):
        if names & tracer.meta.get("origins", set()) and (half or tracer.meta.get("backward")):
            raise CannotTrace("the test refuses it")
        return plain(tracer, func, args, kwargs)

    monkeypatch.setattr(Tracer, "decompose_or_record", traced)


@pytest.mark.parametrize("half", ["both", ""])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
def test_each_operation_of_a_program_in_turn(program, half, monkeypatch):
    inputs = [torch.randn(4, 4).requires_grad_(), torch.randn(4, 4)]
    names = nodes_of(program, inputs)
    for name in names:
        with monkeypatch.context() as patch:
            minidynamo.reset()
            untraceable(patch, {name}, half)
            check(program, inputs)
    untraceable(monkeypatch, set(random.Random(SEED).sample(names, 3)), half)
    minidynamo.reset()
    check(program, inputs, dynamic=True)


OPS = [op for op in op_db if torch.float32 in op.dtypes and op.name.isidentifier()]


# MINI_UNTRACEABLE=1000 takes all of them: half an hour
SAMPLE = random.Random(SEED).sample(OPS, min(int(os.environ.get("MINI_UNTRACEABLE", 24)), len(OPS)))


# (a graph with as_strided is not cut)
SAMPLE = [op for op in SAMPLE if "as_strided" not in op.name]


@pytest.mark.parametrize("op", SAMPLE, ids=lambda op: op.name)
def test_ops_of_the_sweep(op, monkeypatch):
    with warnings.catch_warnings(), contextlib.suppress(StopIteration):
        warnings.simplefilter("ignore")
        sample = next(iter(op.sample_inputs("cpu", torch.float32)))
    if not isinstance(sample.input, torch.Tensor) or not sample.input.numel():
        pytest.skip("no tensor")
    learns = op.supports_autograd and not op.name.startswith("linalg_eig")

    def program(x):
        out = op.op(x * 1, *sample.args, **sample.kwargs)
        several = out if isinstance(out, (tuple, list)) else [out]
        return [t * 2 for t in several if isinstance(t, torch.Tensor) and t.is_floating_point()]

    inputs = [sample.input.detach().requires_grad_(learns)]
    untraceable(monkeypatch, {op.name, f"{op.name}_1"}, "both")
    check(program, inputs)


# --- what is known to be refused ------------------------------------------------------------------
def sizes(*shapes):
    return [[torch.randn(shape)] for shape in shapes]


def pooled(x):
    x = F.conv2d(x.to(memory_format=torch.channels_last), torch.ones(4, 3, 3, 3) / 27)
    return F.adaptive_avg_pool2d(x, 1)


def resized(mode, dtype=torch.float32, **how):
    def resize(x):
        if not how:
            return F.interpolate(x.to(dtype), size=[n + 3 for n in x.shape[2:]], mode=mode) * 2
        return F.interpolate(x.to(dtype), mode=mode, **how) * 2

    return resize


IMAGES = sizes((2, 3, 4, 5), (2, 3, 7, 6))
ROWS = sizes((2, 3, 6), (2, 3, 9))
AT_OTHER_SIZES = {
    "bilinear by size": (resized("bilinear"), IMAGES),
    "bilinear by factor": (resized("bilinear", scale_factor=2), IMAGES),
    "linear": (resized("linear", scale_factor=1.5), ROWS),
    "trilinear": (resized("trilinear", scale_factor=2), sizes((1, 2, 3, 4, 5), (1, 2, 5, 3, 4))),
    "nearest in 16 bits": (resized("nearest", torch.bfloat16, scale_factor=2), IMAGES),
    "nearest bytes": (resized("nearest", torch.uint8, scale_factor=2), IMAGES),
    "nearest-exact": (resized("nearest-exact"), sizes((1, 2, 3, 4, 5), (1, 2, 5, 3, 4))),
    "area": (resized("area", scale_factor=1.5), IMAGES),
    "pooling, channels last": (pooled, IMAGES),
}


@pytest.mark.parametrize("learns", [False, True])
@pytest.mark.parametrize("name", AT_OTHER_SIZES)
def test_at_the_second_size(name, learns):
    program, calls = AT_OTHER_SIZES[name]
    if learns and ("bytes" in name or name == "nearest-exact" or "16 bits" in name):
        pytest.skip("has no gradient, or an eager kernel for it")
    compiled = minidynamo.compile(program, backend="aot_eager" if learns else "inductor")
    for inputs in [*calls, calls[-1]]:
        inputs = [inputs[0].requires_grad_(learns)]
        want = outcome(program, inputs)
        torch.testing.assert_close(outcome(compiled, inputs), want, atol=1e-4, rtol=1e-4)
    if not name.startswith(("area", "bilinear", "linear", "trilinear", "nearest")):
        assert not records.TOLD


class Statistics(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("seen", torch.zeros(3))

    def forward(self, x):
        self.seen.data.mul_(0.5).add_(x.detach().mean(0))
        return x.sin() * self.seen


class Overwrites(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone(), x * 2

    @staticmethod
    def backward(ctx, one, other):
        return one.copy_(other)


def with_gradients_inside(x, w):
    with torch.enable_grad():
        y = (x * w).sin()
    return y.cos()


def overwritten(x, w):
    one, other = Overwrites.apply(x * w)
    return one + other * 3


REFUSED = {
    "a mask is written": lambda x, w: x.clone().masked_fill_(x > 0, 0) + torch.where(x > 0, x, w),
    "a complex number": lambda x, w: (x * 2j / (2 - 1j)).abs() * w,
    "rrelu": lambda x, w: F.rrelu(x * w, training=True),
    "a gradient is written": overwritten,
    "a buffer's data is written": Statistics(),
}


@pytest.mark.parametrize("backend", ["inductor", "aot_eager"])
@pytest.mark.parametrize("name", REFUSED)
def test_what_was_refused(name, backend):
    count = 1 if name.startswith("a buffer") else 2
    inputs = [torch.randn(3, 3).requires_grad_(count == 2) for _ in range(count)]
    check(REFUSED[name], inputs, backend=backend)


def test_gradients_that_are_turned_on_belong_to_the_graph():
    x, w = torch.randn(4), torch.randn(4, requires_grad=True)
    with torch.no_grad():
        minidynamo.compile(with_gradients_inside)(x, w)
        got = minidynamo.compile(lambda x, w: with_gradients_inside(x, w))(x, w)
    assert not got.requires_grad
    assert any("gradients are turned on" in text for text in records.TOLD)
    records.TOLD.clear()


def test_modes_that_end_before_the_cut(monkeypatch):
    def program(x, w):
        with torch.no_grad(), torch.autocast("cpu", enabled=False):
            angles = x.cos()
        return (x @ w * angles).tanh() + angles

    untraceable(monkeypatch, {"tanh"}, "both")
    check(program, [torch.randn(4, 4).requires_grad_(), torch.randn(4, 4)])


def test_a_graph_of_its_own():
    gm = torch.fx.symbolic_trace(lambda x: x.sin() + 1)
    compiled = miniinductor.compile_fx(gm, [torch.ones(3)])
    assert not compiled.record.notes_of("between compiled pieces")
