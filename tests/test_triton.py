"""Triton kernels, in Triton's interpreter, on the workloads of the C++ kernels (`test_cpp`) and a
few of their own."""

import os

import pytest

pytest.importorskip("triton", reason="triton is not installed (it has wheels for Linux only)")
if os.environ.get("TRITON_INTERPRET") != "1":
    pytest.skip("needs TRITON_INTERPRET=1 (tests/conftest.py sets it)", allow_module_level=True)

import test_cpp
import test_foreach
import torch
import torch.nn.functional as F
from backend_helpers import make_graph, reduce, run, softmax
from test_cpp import fixed_seed  # noqa: F401

import minidynamo
import miniinductor
import miniinductor.config as config
from benchmarks.error_bound import assert_near
from benchmarks.models import MODELS
from benchmarks.runner import largest_difference
from miniinductor.codegen.triton import build as triton_build
from miniinductor.codegen.triton.interpreter import load_interpreted

# what is asked of C++ alone, and rounding: Triton's interpreter cuts where it makes bfloat16
NOT_HERE = """
    a_group_norm_of_a_channels_last_image_has_lanes_along_channels accuracy_in_ulp_against_float64
    what_turns_its_input_in_memory_is_tiled_beside_a_reduction constants_keep_their_value
    float16_lanes_are_converted_together_but_moved_as_they_are threads_share_the_rows_of_few_columns
    the_last_lanes_of_a_row_have_accumulators_of_their_own lowest_integer_by_minus_one_does_not_trap
    every_function_under_every_reduction_becomes_vectors what_only_the_lane_decides_is_computed_once
    a_nan_with_bits_that_rounding_would_carry_stays_one a_mean_lies_in_memory_as_its_input_does
    16_bits_are_rounded_where_bits_are_lost_and_once every_float_is_rounded_to_16_bits_as_torch_does
    a_running_log_of_exponentials_loses_no_digits what_only_the_column_decides_is_computed_once
    the_writer_defines_every_op short_elements_that_lie_apart_are_read_in_words
    short_rows_that_are_read_many_times_lie_along_the_columns
""".split()


@pytest.fixture(autouse=True)
def through_triton(request):
    # one test counts the kernels of a softmax over few, long rows
    with config.patch(
        cpu_backend="triton", split_reductions="test_softmax[" not in request.node.name
    ):
        yield


_tests = {name: f for name, f in vars(test_cpp).items() if name.startswith("test_")}
for name in NOT_HERE:
    del _tests[f"test_{name}"]
globals().update(_tests)


def sums_of_exp(x):
    top = x.amax(-1, keepdim=True)
    return top, torch.exp(x - top).sum(-1, keepdim=True)


@pytest.mark.parametrize("columns", [100, 40_000])
def test_the_maximum_and_the_sum_of_exp_are_found_in_one_loop(columns):
    x = torch.randn(140, columns) * 4
    x[1], x[2, 5:], x[3, 7], x[4, 0] = -torch.inf, -torch.inf, torch.nan, torch.inf
    e = minidynamo.explain(sums_of_exp)(x)
    torch.testing.assert_close(e.result, sums_of_exp(x), rtol=1e-5, atol=0, equal_nan=True)
    [kernel] = e.main.compiled.kernels
    assert kernel.source.count("for r_start in tl.range(") == (columns > 10_000)


R = torch.randn


def of_boxes(a, b):
    """Where each box of one set overlaps each of another."""
    low = torch.maximum(a[:, None, :2], b[None, :, :2])
    high = torch.minimum(a[:, None, 2:], b[:, 2:])
    sides = (high - low).clamp(min=0)
    return sides[..., 0] * sides[..., 1]


def changed_in_part(x):
    """The kernel computes the elements again, for the changed part first."""
    e = (x - x.amax(-1, keepdim=True)).exp().sin().exp().sin().exp()
    total = e.sum(-1, keepdim=True)
    return torch.slice_scatter(x, (e / total)[:, :9], 1, 0, 9), e * total


IMAGES = (R(8, 64, 28, 28) + 3).to(memory_format=torch.channels_last)
PASSES = {  # function, inputs, kernels, how many read the first input, what one contains
    "var of columns": (lambda x: torch.var_mean(x, 0), (R(3000, 2400),), 2, 1, "_count"),
    "var of a prime number": (lambda x: x.var(0), (R(3001, 70),), 4, 2, "tmp"),
    "std of a middle axis": (lambda x: x.std(1), (R(8, 1024, 64),), 2, 1, "_count"),
    "var of long rows": (lambda x: x.var(1), (R(140, 40_000),), 1, 1, "_count"),
    "batch norm": (lambda x: F.batch_norm(x, None, None, training=True), (IMAGES,), 3, 2, "_count"),
    "group norm": (lambda x: F.group_norm(x, 8), (IMAGES,), 3, 2, "tl.sum"),
    "runs": (lambda x, y: x.contiguous().view(8, 32, 2, 784) * y, (IMAGES, R(32, 1, 1)), 1, 1, "Y"),
    "seven elements": (lambda x: x.sum(1), (R(9, 7, 40, 37).mT,), 1, 1, "YBLOCK"),
    "few long rows": (lambda x: torch.var_mean(x, (0, 2)), (R(35, 64, 1024),), 2, 1, "_chunks"),
    "rows in pieces": (lambda x: x - x.mean((0, 2), True), (R(8, 1024, 256),), 1, 1, "tl.sum"),
    "many columns": (lambda x: x - x.mean(0), (R(256, 16_400),), 1, 1, "tl.range"),
    "softmax of few rows": (lambda x: torch.softmax(x, 1), (R(7, 300_000),), 3, 2, "exp"),
    "softmax of columns": (lambda x: torch.softmax(x, 0), (R(900, 2400),), 3, 2, "exp"),
    "all of a permuted one": (lambda x: x.t().amax(), (R(512, 500),), 2, 1, "in0 + (r0"),
    "boxes": (of_boxes, (torch.rand(70, 4), torch.rand(90, 4)), 1, 1, "YBLOCK"),
    "changed in part": (changed_in_part, (R(140, 40_000),), 1, 1, "tl.where"),
    "window": (lambda x: F.avg_pool2d(x, 3, 1, 1), (R(2, 4, 8, 8),), 1, 1, "in0 + xindex)"),
}


@pytest.mark.parametrize("name", PASSES)
def test_how_often_memory_is_read(name):
    function, inputs, kernels, readers, contained = PASSES[name]
    e = minidynamo.explain(function)(*inputs)
    torch.testing.assert_close(e.result, function(*inputs), rtol=2e-5, atol=2e-5)
    sources = [kernel.source for kernel in e.main.compiled.kernels]
    assert len(sources) == kernels
    assert sum(": arg0," in source for source in sources) == readers
    assert contained in "".join(sources)


PRODUCTS = {  # function, inputs: each is one kernel
    "bias and gelu": (lambda a, b, c: F.gelu(a @ b + c), (R(70, 50), R(50, 90), R(90))),
    "a full addend": (lambda a, b, c: F.silu(a @ b) * c, (R(70, 50), R(50, 90), R(70, 1))),
    "transposed weight": (lambda a, b, c: F.relu(F.linear(a, b, c)), (R(99, 64), R(70, 64), R(70))),
    "another order": (lambda a, b: (a @ b).view(4, 8, 90).mT + 1, (R(32, 50), R(50, 90))),
    "parts of matrices": (lambda a, b: F.relu(a[:, 3:20] @ b[:, 5:22].t()), (R(33, 64), R(17, 60))),
    "one element": (lambda a, b: torch.relu(a @ b), (R(1, 64), R(64, 1))),
    "one row": (lambda a, b: torch.relu(a @ b), (R(1, 64), R(64, 7))),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", PRODUCTS)
def test_products_with_what_follows_are_one_kernel(name, dtype):
    function, inputs = PRODUCTS[name]
    inputs = [t.to(dtype) for t in inputs]
    with torch.no_grad(), config.patch(matmul_templates="always"):
        compiled = miniinductor.compile_fx(traced(function, len(inputs)), inputs)
        got, want = compiled(*inputs)[0], function(*inputs)
        exact = function(*[t.double() for t in inputs])
    [kernel] = compiled.record.kernels
    assert kernel.source.count("tl.dot") == 1
    assert got.dtype == want.dtype and got.stride() == want.stride()
    room = 4 * torch.finfo(got.dtype).eps * exact.norm()
    assert (got.double() - exact).norm() <= 2 * (want.double() - exact).norm() + room


def traced(function, count):
    """The graph of a function of `count` tensors that returns one."""
    names = ", ".join("abc"[:count])
    return torch.fx.symbolic_trace(
        eval(f"lambda {names}: (function({names}),)", {"function": function})
    )


def test_what_follows_a_product_may_need_what_writes_over_an_operand():
    def function(x, w):
        y = x @ w
        x.copy_(x.sin().exp().sin().exp().sin().exp())
        return y + x[:, :1] + x[:, 1:2] + x[:, 2:3]

    x, w = R(64, 64), R(64, 32)
    mine, want = x.clone(), function(x, w)
    with config.patch(matmul_templates="always"):
        e = minidynamo.explain(function)(mine, w)
    torch.testing.assert_close((e.result, mine), (want, x))
    assert "writes over an operand" in str(e.main.compiled.fusions)


@pytest.mark.parametrize("step, state", [(test_foreach.momentum, 3), (test_foreach.adam, 4)])
def test_an_optimizers_step_is_a_kernel_for_arrays_and_one_for_single_elements(step, state):
    record = test_foreach.compiled_like_eager(step, *test_foreach.tensors(state), kernels=2)
    assert ".copy_(" not in record.wrapper_source and "empty_strided" not in record.wrapper_source
    assert record.notes_of("one kernel for")
    test_foreach.compiled_like_eager(
        step, *test_foreach.tensors(state), foreach=False, kernels=len(test_foreach.SHAPES)
    )


@pytest.mark.parametrize(
    "line",
    [
        "tl.store(out0 + x0, tl.load(in0 + x0 + 1))",
        "tl.store(out0 - 1 + x0, tl.load(in0 + x0))",
        "tl.atomic_add(out0 + 2 * x0, 1.0)",
        "tl.store(out0 + x0, tl.load(in0 + x0 - 3, x0 > 1))",
    ],
)
def test_an_address_outside_of_the_tensors_is_an_error(line, tmp_path):
    """What lies next to them in memory belongs to the same storage here."""
    (tmp_path / "kernel.py").write_text(
        "import triton\nimport triton.language as tl\n\n\n"
        "@triton.jit\ndef shifted(in0, out0, XBLOCK: tl.constexpr):\n"
        f"    x0 = tl.arange(0, XBLOCK)\n    {line}\n"
    )
    whole = torch.zeros(6, 8)
    with pytest.raises(Exception, match="memory outside of the kernel's tensors"):
        load_interpreted(str(tmp_path / "kernel.py"), "shifted")[1,](whole[1], whole[4], XBLOCK=8)
    assert not whole[[0, 2, 3, 5]].any()


def test_sources_compile_for_a_gpu_that_is_not_there(tmp_path):
    """In a worker process, as on a machine with a GPU; the machine code is not run."""
    _, record = run(lambda b: [softmax(b)], torch.randn(64, 512))
    path = tmp_path / "kernel.py"
    path.write_text(record.kernels[0].source)
    name = record.kernels[0].name
    job = {"path": str(path), "name": name, "aligned": ["in0", "out0"], "asserts": False}
    job["signature"] = dict(in0="*fp32", out0="*fp32", XBLOCK="constexpr", RBLOCK="constexpr")
    job |= {"constants": {"XBLOCK": 1, "RBLOCK": 512}, "num_warps": 4, "num_stages": 1}
    job |= {"capability": 90, "kept": "some.cubin", "triton_cache": str(tmp_path), "kinds": ["ptx"]}
    [answer] = triton_build.compile_all([job]).values()
    assert len(answer["code"]) > 1000 and ".visible .entry" in answer["ptx"]
    assert "Error" in triton_build.compile_all([{**job, "name": "nothing"}])["some.cubin"]["error"]
    with config.patch(cache_dir=str(tmp_path / "cache")):
        assert triton_build.compile_and_keep([job, job]) == {}
        assert triton_build.disk().read("some.cubin").startswith(b'{"name"')
        assert "Error" in triton_build.compile_and_keep([{**job, "name": "nothing"}])["some.cubin"]
        new = {**job, "constants": {"XBLOCK": 2, "RBLOCK": 512}}  # Triton has not kept this one
        with config.patch(compiler_seconds=0):
            late = triton_build.compile_and_keep([new])
        assert "did not end within 0 seconds" in late["some.cubin"]
        assert triton_build.compile_and_keep([job]) == {}  # by other workers


@pytest.mark.parametrize("name", ["gpt2", "bert"])
def test_models_through_the_interpreter(name):
    model, inputs = MODELS[name](layers=1, sequence=16)
    with torch.no_grad():
        assert largest_difference(model(**inputs), minidynamo.compile(model)(**inputs)) < 1e-4
    minidynamo.reset()


# --- scans, writes in place, comments -------------------------------------------------------------
SCANNED = {
    "rows": ((300, 70), 1),
    "columns": ((70, 30), 0),
    "long rows": ((100, 40_000), 1),
    "one": ((1, 3), 0),
}


@pytest.mark.parametrize("kind", ["cumsum", "cumprod", "logcumsumexp"])
@pytest.mark.parametrize("case", SCANNED)
def test_scans(kind, case):
    shape, dim = SCANNED[case]
    if kind == "logcumsumexp" and len(case) > 7:
        pytest.skip("one element after the other in the interpreter")
    if kind == "logcumsumexp":
        shape = min(shape[0], 30), min(shape[1], 30)
    function = lambda a: getattr(torch, kind)(a * 1, dim)  # noqa: E731
    for dtype in (torch.float32, torch.bfloat16, torch.int32)[
        : 1 if shape[0] * shape[1] > 30_000 else 3 - (kind == "logcumsumexp")
    ]:
        x = (R(shape) / 100 + 1 if kind == "cumprod" else R(shape)).to(dtype)
        with torch.no_grad():
            compiled = miniinductor.compile_fx(traced(function, 1), [x])
            (got,), want, exact = compiled(x), function(x), function(x.double())
        assert len(compiled.record.kernels) == 1 and not compiled.record.fallbacks
        room = 2 * (want.double() - exact).norm() + 1e-5 * exact.norm()
        assert got.dtype == want.dtype and (got.double() - exact).norm() <= room


def test_what_is_written_in_place_is_stored_last():
    def function(a, b):
        old = a * 2
        a.add_(b)
        return old.sum(1) + a.sum(1)

    a, b = R(6, 40), R(6, 40)
    mine = a.clone()
    want, compiled = function(mine, b), miniinductor.compile_fx(traced(function, 2), [a, b])
    with torch.no_grad():
        torch.testing.assert_close(compiled(a, b)[0], want)
    assert torch.equal(a, mine)
    x, norm, same = R(4, 5, 6, 7), torch.nn.BatchNorm2d(5), torch.nn.BatchNorm2d(5)
    with torch.no_grad():
        torch.testing.assert_close(minidynamo.compile(norm)(x), same(x), rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(norm.running_var, same.running_var)
        wrapper = minidynamo.explain(norm)(x).main.compiled
    assert wrapper.wrapper_source.count("# written in place") >= 2
    source = next(k.source for k in wrapper.kernels if "debug_barrier" in k.source)
    lines = source.split("# every thread has read")[1].splitlines()
    assert all("tl.store(" in line for line in lines if line.strip())
    minidynamo.reset()


def test_one_kernel_writes_rows_of_two_caches_in_place():
    def function(keys, values, at, new):
        keys.index_copy_(1, at, new)
        values.index_copy_(1, at, new * 2)
        return new.sin()

    keys, values, at, new = R(2, 64, 8), R(2, 64, 8), torch.arange(5, 8), R(2, 3, 8)
    mine = keys.clone(), values.clone()
    e = minidynamo.explain(function)(*mine, at, new)
    torch.testing.assert_close((e.result, *mine), (function(keys, values, at, new), keys, values))
    assert len(e.main.compiled.kernels) == 1


def test_every_line_names_its_fx_node():
    with torch.no_grad():
        graph = traced(lambda a, b: torch.softmax(torch.relu(a) * b, -1), 2)
        compiled = miniinductor.compile_fx(graph, [R(6, 40), R(6, 40)])
    body = compiled.record.kernels[0].source.split("tl.arange(0, RBLOCK)")[1].splitlines()[1:]
    origins = [
        line.split("  # ")[-1].strip() for line in body if " = " in line or "tl.store" in line
    ]
    assert [*dict.fromkeys(origins)][:3] == ["rmask = r0 < 40", "relu_default", "mul_tensor"]
    assert {"amax_default", "sum_dim_int_list", "div_tensor"} <= {*origins} and "" not in origins


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_a_divergence_reads_its_rows_once(dtype):
    x, y = R(256, 700).to(dtype), R(256, 700).to(dtype)
    graph = traced(lambda x, y: F.kl_div(x.log_softmax(1), y.softmax(1), reduction="sum"), 2)
    compiled = miniinductor.compile_fx(graph, [x, y])
    assert_near(tuple(compiled(x, y)), graph(x, y))
    assert [len(kernel.nodes) > 4 for kernel in compiled.record.kernels] == [True, False]


def test_a_masked_value_has_the_name_of_the_node_that_masks():
    graph = traced(lambda a, b: torch.cat([a.cos(), b]), 2)
    lines = miniinductor.compile_fx(graph, [R(5), R(4)]).record.kernels[0].source.splitlines()
    assert {line.split("# ")[1] for line in lines if "tl.where" in line} == {"cat_default"}


def test_indices_are_wide_where_they_must_be():
    """Also along the reduction: 4096*r0 does not fit into 32 bits."""
    from miniinductor.codegen.triton.kernel_writer import TritonKernelWriter
    from miniinductor.records import CompileRecord
    from miniinductor.schedule.scheduler import Scheduler

    for rows, wide in ((1 << 20, True), (1 << 10, False)):
        x = torch.empty(rows, 4096, device="meta")
        graph = make_graph(lambda x: [reduce(x, "argmax", [0], dtype=torch.int64)], x)
        [group] = Scheduler(graph, CompileRecord()).live_nodes()
        buffers = {**graph.inputs, **graph.buffers}
        kernel = TritonKernelWriter(group, buffers, set(group.names), {}, {}).write()
        assert ("tl.arange(0, RBLOCK).to(tl.int64)[None, :]" in kernel.source) == wide
