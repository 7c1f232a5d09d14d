"""Graph passes for inference: library kernels, layouts, patterns, freezing; each against eager in float64."""
import copy

import pytest
import torch

import miniinductor
from miniinductor import config
from miniinductor.graph_passes import cpu_library


def compiled_of(module, *inputs):
    """compile_fx of a module or function, without a front end."""
    root = module if isinstance(module, torch.nn.Module) else torch.nn.Module()
    gm = torch.fx.GraphModule(root, torch.fx.Tracer().trace(module) if root is module else torch.fx.symbolic_trace(module).graph)
    gm.graph.output_node().args = ((gm.graph.output_node().args[0],),)
    gm.recompile()
    with torch.no_grad():
        return miniinductor.compile_fx(gm, list(inputs))


def check(module, *inputs, tolerance=2e-5):
    """The record, after the result agreed with eager (strides, dtype, NaN) and with float64."""
    with torch.no_grad():
        compiled = compiled_of(module, *inputs)
        (got,), want = compiled(*inputs), module(*inputs)
        wide = [x.double() if x.is_floating_point() else x for x in inputs]
        exact = (copy.deepcopy(module).double() if isinstance(module, torch.nn.Module) else module)(*wide)
    assert (got.shape, got.dtype, got.stride()) == (want.shape, want.dtype, want.stride())
    assert torch.equal(got.isnan(), want.isnan())
    largest = max([1.0, *exact.abs().nan_to_num(0, 0, 0).flatten().tolist()])
    torch.testing.assert_close(got.double(), exact.double(), rtol=tolerance, atol=tolerance * largest, equal_nan=True)
    assert not compiled.record.notes_of("runs eagerly")
    return compiled.record


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


# ---- library kernels ------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("bias", [True, False])
def test_large_products_run_in_onednn(bias):
    record = check(torch.nn.Linear(256, 512, bias=bias), torch.randn(3, 64, 256))
    assert record.notes_of("1 matrix products by oneDNN") and "mkldnn" in record.wrapper_source
    record = check(lambda x, w: torch.relu(x @ w), torch.randn(256, 512), torch.randn(512, 128))        # weights by rows
    assert record.notes_of("1 matrix products by oneDNN")


@pytest.mark.parametrize("x, w", [
    (torch.randn(8, 256), torch.randn(256, 512)),                                       # too small
    (torch.randn(512, 256).t(), torch.randn(512, 512)),                                 # by columns
    (torch.randn(512, 256), torch.randn(256, 1024)[:, ::2]),                            # with gaps
    (torch.randn(512, 256, dtype=torch.float64), torch.randn(256, 512, dtype=torch.float64)),
    (torch.randn(512, 256).bfloat16(), torch.randn(256, 512).bfloat16()),
    (torch.randn(0, 256), torch.randn(256, 512))])
def test_products_that_stay_as_they_are(x, w):
    assert not check(lambda x, w: x @ w, x, w, tolerance=2e-2 if x.dtype == torch.bfloat16 else 2e-5).notes_of("oneDNN")


def test_products_with_infinities_and_a_switch():
    x, linear = torch.randn(64, 256), torch.nn.Linear(256, 512)
    x[3, 5], x[4, 7], x[5, 0] = float("inf"), float("nan"), -float("inf")
    check(linear, x)
    with config.patch(onednn_products=False):
        assert not check(linear, x).notes_of("oneDNN")
    with torch.backends.mkldnn.flags(enabled=False):
        assert not check(linear, x).notes_of("oneDNN")


CONVOLUTIONS = {
    "plain": lambda: torch.nn.Conv2d(3, 8, 3, padding=1), "strided": lambda: torch.nn.Conv2d(3, 8, 5, stride=2, bias=False),
    "grouped": lambda: torch.nn.Conv2d(6, 12, 3, groups=3, dilation=2), "depthwise": lambda: torch.nn.Conv2d(6, 6, 3, groups=6, padding=1),
    "1x1": lambda: torch.nn.Conv2d(6, 8, 1), "1x1 strided": lambda: torch.nn.Conv2d(6, 8, 1, stride=(2, 3), bias=False),
    "1x1 padded": lambda: torch.nn.Conv2d(6, 8, 1, padding=1), "heavy": lambda: torch.nn.Conv2d(64, 64, 3, padding=1),
    "transposed": lambda: torch.nn.ConvTranspose2d(6, 4, 3, stride=2), "patches": lambda: torch.nn.Conv2d(3, 16, 4, stride=4),
}


@pytest.mark.parametrize("kind", CONVOLUTIONS)
@pytest.mark.parametrize("layout", ["plain", "channels_last"])
def test_convolutions_between_other_ops(kind, layout):
    convolution = CONVOLUTIONS[kind]()
    channels = convolution.in_channels
    network = torch.nn.Sequential(torch.nn.Hardtanh(), convolution, torch.nn.BatchNorm2d(convolution.out_channels), torch.nn.ReLU(),
                                  torch.nn.MaxPool2d(2)).eval()
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
            self.patches, self.mixed = torch.nn.Conv2d(3, 8, 2, stride=2), torch.nn.Conv2d(8, 8, 3, padding=1)

        def forward(self, x):
            y = self.mixed(self.patches(x))
            return y.flatten(2).transpose(1, 2).softmax(-1) @ y.view(2, 2, 4, 25).flatten(2).sum(1).view(2, 4, 25)[:, :4].repeat(1, 2, 1)

    assert check(Tokens(), torch.randn(2, 3, 10, 10)).notes_of("channels-last")


def test_a_window_that_overlaps_reads_stored_values():
    network = torch.nn.Sequential(torch.nn.BatchNorm2d(4), torch.nn.GELU(), torch.nn.MaxPool2d(3, stride=1)).eval()
    assert len(check(network, torch.randn(2, 4, 9, 9)).kernels) == 2


assert cpu_library.LEAST_PRODUCT <= 64 * 256 * 512          # the sizes above count on it
