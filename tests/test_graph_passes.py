"""Graph passes for inference: library kernels, layouts; each against eager in float64."""

import copy

import pytest
import torch
import torch.utils._pytree as pytree
from torch._subclasses.fake_tensor import FakeTensorMode

import minidynamo
import miniinductor
from benchmarks.error_bound import assert_near
from miniinductor import config
from miniinductor.autograd.joint import trace_forward
from miniinductor.lowering.decompositions import table
from miniinductor.passes import library_layouts
from miniinductor.passes.graph_passes import optimize
from miniinductor.records import CompileRecord


def compiled_of(module, *inputs):
    """compile_fx of a module or function, without a front end."""
    root = module if isinstance(module, torch.nn.Module) else torch.nn.Module()
    gm = torch.fx.GraphModule(root, torch.fx.Tracer().trace(module))
    gm.graph.output_node().args = ((gm.graph.output_node().args[0],),)
    gm.recompile()
    with torch.no_grad():
        return miniinductor.compile_fx(gm, list(inputs))


def wide_of(module):
    return copy.deepcopy(module).double() if isinstance(module, torch.nn.Module) else module


def check(module, *inputs):
    """The record, after the result agreed with eager (strides, dtype, NaN) and with float64."""
    with torch.no_grad():
        compiled = compiled_of(module, *inputs)
        (got,), want = compiled(*inputs), module(*inputs)
        exact = wide_of(module)(*[x.double() if x.is_floating_point() else x for x in inputs])
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
    record = check(lambda x, w: torch.relu(x @ w), torch.randn(256, 512), torch.randn(512, 128))
    assert record.notes_of("1 matrix products by oneDNN")


@pytest.mark.parametrize("has", [True, False])
def test_products_of_16_bits_in_float32(has, monkeypatch):
    monkeypatch.setattr(library_layouts, "has_products", lambda dtype: has)
    for dtype in (torch.float16, torch.bfloat16):
        image, of_image = torch.randn(2, 3, 9, 9, dtype=dtype), torch.nn.Conv2d(3, 8, 3)
        found = [check(lambda x, y: x @ y, image, image[:, :, :, :n]) for n in (7, 9)]
        told = [
            bool(r.notes_of("1 products of")) for r in (*found, check(of_image.to(dtype), image))
        ]
        assert told == [False, not has, not has]


def test_products_with_infinities_and_a_switch():
    x, linear = torch.randn(64, 256), torch.nn.Linear(256, 512)
    x[3, 5], x[4, 7], x[5, 0] = float("inf"), float("nan"), -float("inf")
    check(linear, x)
    with config.patch(onednn_products=False):
        assert not check(linear, x).notes_of("oneDNN")
    with torch.backends.mkldnn.flags(enabled=False):
        assert not check(linear, x).notes_of("oneDNN")


def on_fake_gpu(function, *inputs):
    """The forward graph of the function, traced for inputs like these on a GPU; none is needed."""
    graph, captured = [], lambda gm, _: graph.append(gm) or gm.forward
    minidynamo.reset()
    minidynamo.compile(function, backend=captured)(*inputs)
    with FakeTensorMode():
        fakes = [
            torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device="cuda") for x in inputs
        ]
    with torch.no_grad():
        return trace_forward(graph[0], fakes, table()).graph


@pytest.mark.parametrize("turned", ["", "a", "b", "ab"])
@pytest.mark.parametrize("m, k, n", [(12, 16, 257), (12, 19, 16), (13, 16, 16), (13, 19, 257)])
def test_products_on_a_gpu_have_aligned_rows(turned, m, k, n, monkeypatch):
    """Of every product's operands and result; the values are those of the plain product."""
    monkeypatch.setattr(library_layouts, "LEAST_PADDED", 0)
    x, y = torch.randn(m, k).bfloat16(), torch.randn(k, n).bfloat16()
    inputs = [t.t().contiguous() if name in turned else t for name, t in zip("ab", (x, y))]

    def function(a, b):
        return (a.t() if "a" in turned else a) @ (b.t() if "b" in turned else b)

    gm, record = on_fake_gpu(function, *inputs), CompileRecord()
    laid_out = library_layouts.for_gpu(gm, record, convolutions=False)
    needs = k % 8 or n % 8 or "a" in turned and m % 8
    assert bool(record.notes_of("matrix products padded")) == bool(needs)
    [product] = [x for x in laid_out.graph.nodes if x.target is torch.ops.aten.mm.default]
    values = [x.meta["val"] for x in (*product.args, product)]
    assert all(step % 8 == 0 for value in values for step in value.stride() if step != 1)
    want, got = function(*inputs), pytree.tree_leaves(laid_out(*inputs))[0]
    assert got.stride() == want.stride()
    torch.testing.assert_close(got, want)


def test_products_that_stay_as_they_are():
    """Small ones; those of other numbers; large ones of which the result alone is not aligned,
    which our template does; and all before a joint graph is cut."""

    hidden, table = torch.empty(1024, 768).bfloat16(), torch.empty(5003, 768).bfloat16()
    narrow = hidden[:, :765].contiguous(), table[:, :765].contiguous()
    for inputs, products, stays in (
        ((hidden[:8], table), True, True),
        ((hidden.float(), table.float()), True, True),
        ((hidden, table), True, True),
        (narrow, False, True),
        (narrow, True, False),
    ):
        gm = on_fake_gpu(lambda hidden, table: hidden @ table.t(), *inputs)
        assert (library_layouts.for_gpu(gm, CompileRecord(), products=products) is gm) == stays


# ---- numbers -------------------------------------------------------------------------------------
def test_numbers_of_the_cpu_that_a_gpu_reads():
    """x[..., 0] = 5 on a GPU writes a tensor of no dimensions that lies on the CPU: it becomes the
    number; what comes from outside is copied, once."""

    def function(x, s, i):
        y = torch.ops.aten.copy(x, torch.tensor(5.0)) * torch.tensor(3.0)
        filled = torch.ops.aten.copy(x, s).index_put((i,), s)
        return torch.where(y > 0, torch.tensor(0.5), y) + s, filled

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
    scalars = [n.args[0] for n in nodes if n.target is torch.ops.aten.scalar_tensor.default]
    copies = [n.kwargs for n in nodes if n.target is torch.ops.aten._to_copy.default]
    to_gpu = {"dtype": torch.float32, "device": torch.device("cuda", 0)}
    assert (scalars, copies) == ([5.0, 3.0, 0.5], [to_gpu])
    assert all(
        a.meta["val"].device.type == "cuda"
        for n in nodes
        for a in n.all_input_nodes
        if n.target is not torch.ops.aten._to_copy.default
    )
