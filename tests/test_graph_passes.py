"""Graph passes for inference: library kernels, layouts, patterns, freezing; each against eager in
float64."""

import copy
import math

import pytest
import torch
import torch.nn.functional as F

import minidynamo
import miniinductor
from miniinductor import config
from benchmarks.error_bound import assert_near


def compiled_of(module, *inputs):
    """compile_fx of a module or function, without a front end."""
    root = module if isinstance(module, torch.nn.Module) else torch.nn.Module()
    gm = torch.fx.GraphModule(
        root,
        torch.fx.Tracer().trace(module)
        if root is module
        else torch.fx.symbolic_trace(module).graph,
    )
    gm.graph.output_node().args = ((gm.graph.output_node().args[0],),)
    gm.recompile()
    with torch.no_grad():
        return miniinductor.compile_fx(gm, list(inputs))


def check(module, *inputs):
    """The record, after the result agreed with eager (strides, dtype, NaN) and with float64."""
    with torch.no_grad():
        compiled = compiled_of(module, *inputs)
        (got,), want = compiled(*inputs), module(*inputs)
        wide = [x.double() if x.is_floating_point() else x for x in inputs]
        exact = (copy.deepcopy(module).double() if isinstance(module, torch.nn.Module) else module)(
            *wide
        )
    assert (got.shape, got.dtype, got.stride()) == (want.shape, want.dtype, want.stride())
    assert torch.equal(got.isnan(), want.isnan())
    floats = {t.dtype for t in (got, *inputs) if t.is_floating_point()}
    narrowest = max(floats, key=lambda dtype: torch.finfo(dtype).eps)
    assert_near(got.to(narrowest), exact.to(narrowest))
    assert not compiled.record.notes_of("runs eagerly")
    return compiled.record


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


# ---- library kernels -----------------------------------------------------------------------------
@pytest.mark.parametrize("bias", [True, False])
def test_large_products_run_in_onednn(bias):
    record = check(torch.nn.Linear(256, 512, bias=bias), torch.randn(3, 64, 256))
    assert record.notes_of("1 matrix products by oneDNN") and "mkldnn" in record.wrapper_source
    record = check(
        lambda x, w: torch.relu(x @ w), torch.randn(256, 512), torch.randn(512, 128)
    )  # weights by rows
    assert record.notes_of("1 matrix products by oneDNN")


def test_products_with_infinities_and_a_switch():
    x, linear = torch.randn(64, 256), torch.nn.Linear(256, 512)
    x[3, 5], x[4, 7], x[5, 0] = float("inf"), float("nan"), -float("inf")
    check(linear, x)
    with config.patch(onednn_products=False):
        assert not check(linear, x).notes_of("oneDNN")
    with torch.backends.mkldnn.flags(enabled=False):
        assert not check(linear, x).notes_of("oneDNN")


# ---- patterns ------------------------------------------------------------------------------------
def heads(*shape):
    """q, k, v of (batch, heads, length, size), as they come from projections: (batch, length,
    heads, size), transposed."""
    batch, count, length, width = shape
    return [torch.randn(batch, length, count, width).transpose(1, 2) for _ in range(3)]


def hugging_face(q, k, v, mask):
    weights = torch.matmul(q, k.transpose(2, 3)) * 0.25
    weights = F.softmax(weights + mask, dim=-1)
    weights = F.dropout(weights, p=0.1, training=False)
    return torch.matmul(weights, v).transpose(1, 2).contiguous()


def nano_gpt(q, k, v, mask):
    scores = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
    return (
        F.dropout(F.softmax(scores.masked_fill(mask == 0, float("-inf")), dim=-1), 0.0, True) @ v
    ).transpose(1, 2)


SPELLINGS = {
    "plain": lambda q, k, v, mask: (q @ k.transpose(-1, -2)).softmax(-1) @ v,
    "timm": lambda q, k, v, mask: (
        torch.matmul((q * 16**-0.5 @ k.transpose(-2, -1)).softmax(dim=3), v)
        .transpose(1, 2)
        .reshape(2, 130, 48)
    ),
    "divided": lambda q, k, v, mask: F.softmax(
        torch.matmul(q, k.permute(0, 1, 3, 2)) / math.sqrt(16), -1
    ).matmul(v),
    "divided by an int": lambda q, k, v, mask: torch.softmax(mask + q @ k.mT / 4, 3) @ v,
    "three dimensions": lambda q, k, v, mask: torch.bmm(
        torch.bmm(q.reshape(6, 130, 16), k.reshape(6, 130, 16).transpose(1, 2)).softmax(2),
        v.reshape(6, 130, 16),
    ),
    "a bias and a mask": lambda q, k, v, mask: (
        (q @ k.mT * 1.0 + mask.tril()[None, None] + mask).softmax(-1) @ v
    ),
    "softmax in float32": lambda q, k, v, mask: (
        F.softmax(q @ k.mT * 0.25 + mask, dim=-1, dtype=torch.float32).to(q.dtype) @ v
    ),
    "softmax of floats": lambda q, k, v, mask: (
        F.softmax((q @ k.mT * 0.25 + mask).float(), dim=-1).type_as(q) @ v
    ),
    "heads that broadcast": lambda q, k, v, mask: (q @ k[:, :1].transpose(-1, -2)).softmax(-1) @ v,
    "hugging face": hugging_face,
}
causal = torch.full((130, 130), -math.inf).triu(1)
MASKS = {
    "causal": causal,
    "finite": causal.clamp(min=torch.finfo(torch.float32).min),
    "bias": torch.randn(1, 3, 130, 130),
    "keys": torch.where(torch.arange(130) < 100, 0.0, -math.inf)[None, None, None],
    "closed rows": causal.index_fill(0, torch.tensor([3, 70]), -math.inf),
    "rows of the lowest number": causal.index_fill(
        0, torch.tensor([3, 70]), torch.finfo(torch.float32).min
    ),
}


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_attention_is_recognised(spelling):
    record = check(SPELLINGS[spelling], *heads(2, 3, 130, 16), causal)
    assert (
        record.notes_of("pattern attention: rewritten 1 times")
        and "miniinductor_attention" in record.wrapper_source
    )
    with config.patch(without_patterns=("attention",)):
        assert not check(SPELLINGS[spelling], *heads(2, 3, 130, 16), causal).notes_of("pattern")


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("special", ["", "q nan", "k inf", "v nan", "q -inf"])
def test_attention_with_masks_and_special_values(mask, special):
    tensors = dict(zip("qkv", heads(2, 3, 130, 16)))
    if special:
        name, value = special.split()
        tensors[name][0, 1, 7, 2] = float(value)
    assert check(hugging_face, *tensors.values(), MASKS[mask]).notes_of("pattern attention")
    check(
        nano_gpt, *tensors.values(), ~MASKS[mask].isinf()
    )  # hides inf and NaN behind its mask, which flash attention does not


def test_equal_layers_are_all_rewritten():
    def layers(q, k, v, mask):
        for _ in range(3):
            q = (q @ k.transpose(-1, -2) * 0.25 + mask).softmax(-1) @ v + q
        return q

    assert check(layers, *heads(2, 3, 130, 16), causal).notes_of("rewritten 3 times")


def test_a_rewrite_of_ones_own():
    from miniinductor.passes.pattern_matcher import Rewrite, apply
    from miniinductor.records import CompileRecord

    rewrite = Rewrite(
        "tanh of twice",
        lambda x, c: torch.sigmoid(x * c) * 2 - 1,
        lambda x, c: torch.tanh(x * (c / 2)),
        [[(4,), 0.123]],
        [],
    )
    for function, count in (
        (lambda x: torch.sigmoid(x * 3.0) * 2 - 1, 1),
        (lambda x: 2 * torch.sigmoid(3.0 * x) - 1, 1),
        (lambda x: torch.sigmoid(x * 3.0) * 2 + 1, 0),
        (lambda x: torch.sigmoid(x) * 2 - 1, 0),
    ):
        x, record = torch.randn(3, 5), CompileRecord()
        gm = compiled_of(function, x).record.functional_graph
        assert apply([rewrite], gm, record, {}).get("tanh of twice", 0) == count
        torch.testing.assert_close(gm(x)[0][0], function(x))
        assert len(record.notes) == count


# ---- freezing ------------------------------------------------------------------------------------
class Frozen(torch.nn.Module):
    """A convolution with batch norm, a large product, and arithmetic on parameters alone."""

    def __init__(self, bias=True):
        super().__init__()
        self.convolution, self.norm = (
            torch.nn.Conv2d(4, 8, 3, padding=1, bias=bias),
            torch.nn.BatchNorm2d(8),
        )
        self.pixelwise, self.linear = (
            torch.nn.Conv2d(8, 8, 1, bias=bias),
            torch.nn.Linear(512, 512, bias=bias),
        )
        self.scale = torch.nn.Parameter(torch.rand(8, 1, 1) + 0.5)
        self.norm.running_mean.uniform_(-1, 1), self.norm.running_var.uniform_(0.5, 2)
        self.eval()

    def forward(self, x):
        y = F.relu(self.norm(self.convolution(x)) * self.scale)
        return (
            self.linear((self.pixelwise(y) / self.scale).reshape(x.shape[0], 512))
            * self.scale.exp().sum()
        )


@pytest.mark.parametrize("bias", [True, False])
def test_freezing_keeps_constants_and_packs(bias):
    with config.patch(freezing=True):
        record = check(Frozen(bias), torch.randn(64, 4, 8, 8))
    assert record.notes_of("freezing: ")
    assert not [k for k in record.kernels if "rsqrt" in k.source or "exp" in k.name]
    assert not check(Frozen(bias), torch.randn(64, 4, 8, 8)).notes_of("freezing")


# ---- numbers -------------------------------------------------------------------------------------
NUMBERS = [0, -1, 255, 256, 65536, True, False, -0.0, 0.1, 1e10, 1e-46, math.inf, -math.inf]
NUMBERS += [math.nan, 2**31, 2**53 + 1, -(2**63)]
DTYPES = [None, torch.bool, torch.uint8, torch.int16, torch.int64, torch.uint16, torch.float16]
DTYPES += [torch.bfloat16, torch.float32, torch.float64, torch.complex64]


def test_arithmetic_with_python_numbers_is_done_while_compiling():
    """By eager's kernels, so that the last bit is eager's; the results are new in each call."""

    def f(x):
        size = torch.tensor(64.3)
        scale = torch.log(torch.sqrt(size) * 3).to(torch.float64)
        return x / scale.float(), scale, torch.tensor(0)

    compiled, x = minidynamo.compile(f), torch.randn(5)
    for _ in range(2):
        (got, scale, zero), (want, exact, _) = compiled(x), f(x)
        assert torch.equal(scale, exact) and zero.item() == 0
        torch.testing.assert_close(got, want)
        zero.add_(1)
        scale.zero_()
    source = minidynamo.records.frames[-1].backend_record.wrapper_source
    assert "_constant" not in source and "log" not in source and "sqrt" not in source
