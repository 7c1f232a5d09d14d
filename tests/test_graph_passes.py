"""Graph passes for inference: library kernels, layouts; each against eager in
float64."""

import copy
import functools
import math

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

import minidynamo
import miniinductor
from miniinductor import config
from miniinductor.autograd.joint import trace_forward
from miniinductor.decompositions import table
from miniinductor.graph_passes import optimize
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


def test_numbers_of_the_cpu_that_a_gpu_reads():
    """x[..., 0] = 5 on a GPU writes a tensor of no dimensions that lies on the CPU: it becomes the
    number; what comes from outside is copied, once."""

    def function(x, s, i):
        y = torch.ops.aten.copy(x, torch.tensor(5.0)) * torch.tensor(3.0)
        return torch.where(y > 0, torch.tensor(0.5), y) + s, torch.ops.aten.copy(x, s).index_put(
            (i,), s
        )

    with FakeTensorMode():
        inputs = [
            torch.empty(3, 4, device="cuda"),
            torch.empty(()),
            torch.empty(2, dtype=torch.int64, device="cuda"),
        ]
    graphs = []
    minidynamo.compile(function, backend=lambda gm, inputs: graphs.append(gm) or gm.forward)(
        torch.ones(3, 4), torch.tensor(1.0), torch.tensor([0, 1])
    )
    with torch.no_grad():
        joint = trace_forward(graphs[0], inputs, table())
        assert optimize(joint.graph)["numbers"] == 4
    nodes = [n for n in joint.graph.graph.nodes if n.op == "call_function"]
    assert [n.args[0] for n in nodes if n.target is torch.ops.aten.scalar_tensor.default] == [
        5.0,
        3.0,
        0.5,
    ]
    assert [n.kwargs for n in nodes if n.target is torch.ops.aten._to_copy.default] == [
        {"device": torch.device("cuda", 0)}
    ]
    assert all(
        a.meta["val"].device.type == "cuda"
        for n in nodes
        for a in n.all_input_nodes
        if n.target is not torch.ops.aten._to_copy.default
    )
