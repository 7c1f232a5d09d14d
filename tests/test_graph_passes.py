"""Graph passes for inference: library kernels, layouts, patterns, freezing; each against eager in
float64."""

import copy
import functools
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


@pytest.mark.parametrize(
    "x, w",
    [
        (torch.randn(8, 256), torch.randn(256, 512)),  # too small
        (torch.randn(512, 256).t(), torch.randn(512, 512)),  # by columns
        (torch.randn(512, 256), torch.randn(256, 1024)[:, ::2]),  # with gaps
        (torch.randn(512, 256, dtype=torch.float64), torch.randn(256, 512, dtype=torch.float64)),
        (torch.randn(512, 256).bfloat16(), torch.randn(256, 512).bfloat16()),
        (torch.randn(0, 256), torch.randn(256, 512)),
    ],
)
def test_products_that_stay_as_they_are(x, w):
    assert not check(lambda x, w: x @ w, x, w).notes_of("oneDNN")


def test_products_with_infinities_and_a_switch():
    x, linear = torch.randn(64, 256), torch.nn.Linear(256, 512)
    x[3, 5], x[4, 7], x[5, 0] = float("inf"), float("nan"), -float("inf")
    check(linear, x)
    with config.patch(onednn_products=False):
        assert not check(linear, x).notes_of("oneDNN")
    with torch.backends.mkldnn.flags(enabled=False):
        assert not check(linear, x).notes_of("oneDNN")


CONVOLUTIONS = {
    "plain": lambda: torch.nn.Conv2d(3, 8, 3, padding=1),
    "strided": lambda: torch.nn.Conv2d(3, 8, 5, stride=2, bias=False),
    "grouped": lambda: torch.nn.Conv2d(6, 12, 3, groups=3, dilation=2),
    "depthwise": lambda: torch.nn.Conv2d(6, 6, 3, groups=6, padding=1),
    "1x1": lambda: torch.nn.Conv2d(6, 8, 1),
    "1x1 strided": lambda: torch.nn.Conv2d(6, 8, 1, stride=(2, 3), bias=False),
    "1x1 padded": lambda: torch.nn.Conv2d(6, 8, 1, padding=1),
    "heavy": lambda: torch.nn.Conv2d(64, 64, 3, padding=1),
    "transposed": lambda: torch.nn.ConvTranspose2d(6, 4, 3, stride=2),
    "patches": lambda: torch.nn.Conv2d(3, 16, 4, stride=4),
}


@pytest.mark.parametrize("kind", CONVOLUTIONS)
@pytest.mark.parametrize("layout", ["plain", "channels_last"])
def test_convolutions_between_other_ops(kind, layout):
    convolution = CONVOLUTIONS[kind]()
    channels = convolution.in_channels
    network = torch.nn.Sequential(
        torch.nn.Hardtanh(),
        convolution,
        torch.nn.BatchNorm2d(convolution.out_channels),
        torch.nn.ReLU(),
        torch.nn.MaxPool2d(2),
    ).eval()
    network[2].running_mean.uniform_(-1, 1), network[2].running_var.uniform_(0.5, 2)
    x = torch.randn(2, channels, 13, 11)
    x = x.to(memory_format=torch.channels_last) if layout == "channels_last" else x
    record = check(network, x)
    assert kind == "transposed" or record.notes_of("convolutions")
    with config.patch(channels_last=False):
        assert not check(network, x).notes_of("convolutions")


def test_views_of_channels_last_results():
    class Tokens(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.patches, self.mixed = (
                torch.nn.Conv2d(3, 8, 2, stride=2),
                torch.nn.Conv2d(8, 8, 3, padding=1),
            )

        def forward(self, x):
            y = self.mixed(self.patches(x))
            return y.flatten(2).transpose(1, 2).softmax(-1) @ y.view(2, 2, 4, 25).flatten(2).sum(
                1
            ).view(2, 4, 25)[:, :4].repeat(1, 2, 1)

    assert check(Tokens(), torch.randn(2, 3, 10, 10)).notes_of("channels-last")


def test_as_strided_of_a_channels_last_value_counts_in_eager_strides():
    class Corners(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.convolution = torch.nn.Conv2d(3, 8, 3)

        def forward(self, x):
            return torch.as_strided(self.convolution(x).relu(), (2, 3, 4), (8, 2, 5)) + 1

    assert check(Corners(), torch.randn(2, 3, 10, 10)).notes_of("channels-last")


def test_a_window_that_overlaps_reads_stored_values():
    network = torch.nn.Sequential(
        torch.nn.BatchNorm2d(4), torch.nn.GELU(), torch.nn.MaxPool2d(3, stride=1)
    ).eval()
    assert len(check(network, torch.randn(2, 4, 9, 9)).kernels) == 2


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


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_attention_of_other_types(dtype):
    tensors = [t.to(dtype) for t in (*heads(2, 3, 130, 16), causal)]
    assert check(hugging_face, *tensors).notes_of("pattern attention")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("spelling", ["plain", "three dimensions", "hugging face"])
def test_attention_whose_scores_overflow(spelling, dtype):
    """Rows of which all scores are -inf, some, or none but with a log(sum(exp)) of 0: NaN exactly
    where softmax gives it."""
    q, k, v = (t.to(dtype) for t in heads(2, 3, 130, 16))
    q[:, 1], k[:, 1], k[1, 1, 50] = (
        0,
        -1e30,
        0,
    )  # q = 0: where scores are huge but finite, rounding decides
    q[0, 1, 7] = q[1, 1, 3] = 1e30
    q[1, 2, 9], q[1, 2, 10, 0] = 0, math.inf
    v[1, 1, 50] = 0
    want = SPELLINGS[spelling](q.float(), k.float(), v.float(), torch.zeros(130, 130)).to(
        dtype
    )  # with AMX, eager's bfloat16 matmul
    with torch.no_grad():  # spreads NaN to a row beside it
        compiled = compiled_of(SPELLINGS[spelling], q, k, v, torch.zeros(130, 130, dtype=dtype))
        (got,) = compiled(q, k, v, torch.zeros(130, 130, dtype=dtype))
    assert (
        compiled.record.notes_of("pattern attention")
        and want.isnan().any()
        and not want.isnan().all()
    )
    assert_near(got, want)


@pytest.mark.parametrize("special", ["q inf", "q -inf", "k inf", "k -inf", "k nan", "v inf"])
def test_bfloat16_attention_with_infinities(special):
    """The library's kernel gives numbers where the largest score is inf.  Against float32: with
    AMX, eager's products spread NaN."""
    tensors = dict(zip("qkv", (t.bfloat16() for t in heads(2, 3, 130, 16))))
    name, value = special.split()
    tensors[name][0, 1, 7, 2] = float(value)
    with torch.no_grad():
        (got,) = compiled_of(SPELLINGS["plain"], *tensors.values(), causal)(
            *tensors.values(), causal
        )
    want = SPELLINGS["plain"](*[t.float() for t in tensors.values()], causal).bfloat16()
    assert not want.isfinite().all()
    assert_near(got, want)


def test_patterns_under_autocast():
    """The casts are in the graph; tracing a pattern must not cast again, nor remember that it
    did."""
    tensors = [*heads(2, 3, 130, 16), causal]
    with torch.autocast("cpu", dtype=torch.bfloat16), torch.no_grad():
        compiled = compiled_of(hugging_face, *tensors)
        (got,), want = compiled(*tensors), hugging_face(*tensors)
    assert got.dtype == want.dtype == torch.bfloat16
    assert_near(got, want)
    assert check(hugging_face, *tensors).notes_of("pattern attention")


def uses_weights(q, k, v, mask):
    weights = (q @ k.transpose(-1, -2) + mask).softmax(-1)
    return (weights @ v).sum() + weights.sum()


NOT_ATTENTION = {
    "masked_fill": lambda q, k, v, mask: nano_gpt(q, k, v, ~mask.isinf()),
    "weights are used, too": uses_weights,
    "softmax over queries": lambda q, k, v, mask: (q @ k.transpose(-1, -2)).softmax(-2) @ v,
    "transposed weights": lambda q, k, v, mask: (
        (q @ k.transpose(-1, -2)).softmax(-1).transpose(-1, -2) @ v
    ),
    "a finite fill": lambda q, k, v, mask: (
        (q @ k.transpose(-1, -2)).masked_fill(mask < 0, -1e9).softmax(-1) @ v
    ),
    "a mask that broadcasts the scores": lambda q, k, v, mask: (
        (q[:1] @ k[:1].transpose(-1, -2) + torch.stack([mask, mask])[:, None]).softmax(-1) @ v
    ),
    "a wider mask": lambda q, k, v, mask: (
        (q.bfloat16() @ k.bfloat16().transpose(-1, -2) + mask).softmax(-1).bfloat16() @ v.bfloat16()
    ),
    "values of another size": lambda q, k, v, mask: (
        (q @ k.transpose(-1, -2)).softmax(-1) @ v[..., :9]
    ),
    "a negative scale": lambda q, k, v, mask: (q @ k.transpose(-1, -2) * -2.0).softmax(-1) @ v,
    "short": lambda q, k, v, mask: (
        (q[:, :, :20] @ k[:, :, :20].transpose(-1, -2)).softmax(-1) @ v[:, :, :20]
    ),
    "float16, which overflows": lambda q, k, v, mask: (
        (q.half() @ k.half().mT).softmax(-1) @ v.half()
    ),
    "other values in between": lambda q, k, v, mask: (
        (q @ k.transpose(-1, -2)).relu().softmax(-1) @ v
    ),
}


@pytest.mark.parametrize("case", NOT_ATTENTION)
def test_what_is_not_attention(case):
    assert not check(NOT_ATTENTION[case], *heads(2, 3, 130, 16), causal).notes_of(
        "pattern attention"
    )


def test_equal_layers_are_all_rewritten():
    def layers(q, k, v, mask):
        for _ in range(3):
            q = (q @ k.transpose(-1, -2) * 0.25 + mask).softmax(-1) @ v + q
        return q

    assert check(layers, *heads(2, 3, 130, 16), causal).notes_of("rewritten 3 times")


def test_random_numbers_stay_what_they_were():
    def f(q, k, v, mask):
        torch.rand_like(q)
        return (q @ k.transpose(-1, -2)).softmax(-1) @ v + torch.rand_like(v)

    tensors = [*heads(2, 3, 130, 16), causal]
    compiled = compiled_of(f, *tensors)
    torch.manual_seed(3)
    (got,) = compiled(*tensors)
    torch.manual_seed(3)
    torch.testing.assert_close(got, f(*tensors))


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


def agrees(compiled, module, x):
    with torch.no_grad():
        assert_near(compiled(x)[0], module(x))


@pytest.mark.parametrize("bias", [True, False])
def test_freezing_keeps_constants_and_packs(bias):
    with config.patch(freezing=True):
        record = check(Frozen(bias), torch.randn(64, 4, 8, 8))
    assert record.notes_of("freezing: ")
    assert not [k for k in record.kernels if "rsqrt" in k.source or "exp" in k.name]
    assert not check(Frozen(bias), torch.randn(64, 4, 8, 8)).notes_of("freezing")


def new_storage(model):
    model.linear.weight.data = torch.randn(512, 512)


def optimizer_step(model):
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    with torch.enable_grad():
        model(torch.randn(2, 4, 8, 8)).sum().backward()
    optimizer.step()


CHANGES = {
    "in place": lambda model: model.convolution.weight.mul_(2),
    "statistics": lambda model: model.norm.running_mean.add_(1),
    "state dict": lambda model: model.load_state_dict(Frozen().state_dict()),
    "new storage": new_storage,
    "optimizer": optimizer_step,
    "a bias": lambda model: model.pixelwise.bias.zero_(),
    "a view": lambda model: model.scale.detach()[3].fill_(2.0),
}


@pytest.mark.parametrize("change", CHANGES)
def test_frozen_values_follow_their_parameters(change):
    model, x = Frozen(), torch.randn(64, 4, 8, 8)
    with config.patch(freezing=True), torch.no_grad():
        compiled = compiled_of(model, x)
        assert compiled.record.notes_of("freezing")
        agrees(compiled, model, x)
        for _ in range(2):
            CHANGES[change](model)
            agrees(compiled, model, x)


def test_what_is_not_frozen():
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("seen", torch.zeros(3))
            self.weight = torch.nn.Parameter(torch.randn(3))

        def forward(self, x):
            self.seen.add_(1)
            return x * (self.seen * 2), self.weight.exp()[:2]

    model, x = Model(), torch.randn(4, 3)
    with config.patch(freezing=True), torch.no_grad():
        compiled = minidynamo.compile(model, fullgraph=True)
        for step in range(1, 4):
            scaled, weight = compiled(x)
            torch.testing.assert_close(scaled, x * 2 * step)
            torch.testing.assert_close(weight, model.weight.exp()[:2])
            weight.zero_()  # the caller's own
    with torch.inference_mode():
        model = torch.nn.Linear(512, 512)
        with config.patch(freezing=True):
            compiled = compiled_of(model, torch.randn(64, 512))
        model.weight.mul_(2)  # no version counts that
        x = torch.randn(64, 512)
        torch.testing.assert_close(compiled(x)[0], model(x))
        assert not compiled.record.notes_of("freezing")


# ---- numbers -------------------------------------------------------------------------------------
NUMBERS = [0, -1, 255, 256, 65536, True, False, -0.0, 0.1, 1e10, 1e-46, math.inf, -math.inf]
NUMBERS += [math.nan, 2**31, 2**53 + 1, -(2**63)]
DTYPES = [None, torch.bool, torch.uint8, torch.int16, torch.int64, torch.uint16, torch.float16]
DTYPES += [torch.bfloat16, torch.float32, torch.float64, torch.complex64]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_python_number_is_the_one_that_its_tensor_holds(dtype):
    """Value, sign, dtype, or the same refusal: `torch.tensor` alone, and under an operation."""
    for number in NUMBERS:
        for f in (lambda: torch.tensor(number, dtype=dtype) + 0, lambda: one_of(number, dtype)):
            minidynamo.reset()
            try:
                want = f()
            except (RuntimeError, OverflowError) as error:
                with pytest.raises(type(error)):
                    minidynamo.compile(f)()
                continue
            got = minidynamo.compile(f)()
            assert (got.dtype, got.shape) == (want.dtype, want.shape)
            if dtype is None or not dtype.is_complex:
                got, want = got.double(), want.double()
                assert torch.equal(torch.signbit(got), torch.signbit(want))
            assert torch.allclose(got, want, rtol=0, atol=0, equal_nan=True), (number, got, want)


def one_of(number, dtype):
    return torch.tensor(data=number, dtype=dtype, device="cpu")


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


@pytest.mark.parametrize("number, dtype", [(300, torch.uint8), (2**31, torch.int32)])
def test_a_number_that_a_dtype_has_not_raises_as_in_eager(number, dtype):
    def f(x):
        return x + 1, torch.full((), number, dtype=dtype) * 2

    with pytest.raises(RuntimeError) as eager:
        f(torch.ones(2))
    with pytest.raises(RuntimeError) as ours:
        minidynamo.compile(f)(torch.ones(2))
    assert str(ours.value) == str(eager.value)


@pytest.mark.parametrize("sizes", [(255,), (256,), (300, 7), (1, 65536), (65536, 1), (0, 3)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.bool, torch.int16])
def test_identities_of_all_sizes_are_compiled(sizes, dtype):
    """torch's decomposition counts in the smallest dtype that holds the sizes."""
    minidynamo.reset()
    f = functools.partial(torch.eye, *sizes, dtype=dtype)
    compiled = minidynamo.compile(lambda x: (x + 1, f()), fullgraph=True)
    assert torch.equal(compiled(torch.zeros(2))[1], f())
    assert not minidynamo.counters["raised"]
