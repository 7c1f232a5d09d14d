"""Triton kernels, in Triton's interpreter, on the workloads of the C++ kernels (`test_cpp`) and a
few of their own."""

import copy
import os
import re
import types

import pytest

pytest.importorskip("triton", reason="triton is not installed (it has wheels for Linux only)")
if os.environ.get("TRITON_INTERPRET") != "1":
    pytest.skip("needs TRITON_INTERPRET=1 (tests/conftest.py sets it)", allow_module_level=True)

import test_cpp
import test_foreach
import torch
import torch.nn.functional as F
from backend_helpers import pointwise, reduce, run, softmax
from test_cpp import fixed_seed  # noqa: F401

from record_helpers import last_compiled

import minidynamo
import miniinductor
import miniinductor.config as config
from benchmarks.models import MODELS
from benchmarks.runner import largest_difference
from miniinductor.codegen.common import Kernel
from miniinductor.gpu.block_sizes import Config, Launch
from miniinductor.gpu.helpers import with_imports
from miniinductor.gpu import kernel_writer, layouts, tiles, timing
from miniinductor.ops import ops
from miniinductor.gpu import build as triton_build
from miniinductor.gpu.interpreter import load_interpreted

NOT_HERE = {
    "test_the_writer_defines_every_op",
    "test_threads_share_the_rows_of_a_reduction",
    "test_integer_division_by_zero_raises",
    "test_constants_keep_their_value",
    "test_what_is_stored_to_become_a_result_lies_in_its_memory",
    "test_lowest_integer_by_minus_one_does_not_trap",
    "test_accuracy_in_ulp_against_float64",
    "test_kernels_have_names_in_the_profiler",
    "test_every_function_under_every_reduction_becomes_vectors",
    "test_a_roll_is_two_loops_without_a_division",
    "test_more_lanes_than_are_looked_at_stay_in_one_piece",
    "test_every_float_is_rounded_to_16_bits_as_torch_does",
    "test_sums_of_chunks_are_doubles_in_every_loop",
    "test_the_plain_writer_alone",
    "test_lanes_run_along_windows_that_overlap",
    "test_short_rows_of_float16_are_converted_in_vectors",
    "test_short_rows_of_many_rows_of_float16",
    "test_all_groups_of_channels_share_the_lanes",
    "test_an_element_of_float16_that_two_sums_read_is_converted_once",
}  # Triton's interpreter cuts where it makes bfloat16


def with_checked_reads(code):
    """A kernel's lines, each of which must declare just the temporaries that stand in its text:
    from what they declare follows which lines are dropped, and which loads may move."""
    for line in tiles.all_lines(code):
        names = set(re.findall(r"\btmp\d+\b", line.text.split("#")[0])) - {line.makes}
        assert names == {name for name in line.reads if name.startswith("tmp")}, line
    return tiles.without_dead_lines(code)


@pytest.fixture(autouse=True)
def through_triton(request, monkeypatch):
    monkeypatch.setattr(kernel_writer, "without_dead_lines", with_checked_reads)
    # one test counts the kernels of a softmax over few, long rows
    with config.patch(
        cpu_backend="triton", split_reductions="test_softmax[" not in request.node.name
    ):
        yield


for _name, _function in vars(test_cpp).items():
    if (
        _name.startswith("test_")
        and isinstance(_function, types.FunctionType)
        and _name not in NOT_HERE
    ):
        globals()[_name] = _function


def sums_of_exp(x):
    top = reduce(x, "max", [-1])
    e = pointwise(lambda v, m: ops.exp(ops.sub(v, m)), x, top)
    return [top, reduce(e, "sum", [-1])]


@pytest.mark.parametrize("columns", [100, 40_000])
def test_the_maximum_and_the_sum_of_exp_are_found_in_one_loop(columns):
    x = torch.randn(70, columns) * 4
    x[1], x[2, 5:], x[3, 7], x[4, 0] = -torch.inf, -torch.inf, torch.nan, torch.inf
    (top, total), record = run(sums_of_exp, x)
    want = torch.exp(x - x.amax(1, keepdim=True)).sum(1, keepdim=True)
    assert torch.equal(top.nan_to_num(), x.amax(1, keepdim=True).nan_to_num())
    torch.testing.assert_close(total, want, rtol=1e-5, atol=0, equal_nan=True)
    [kernel] = record.kernels
    assert kernel.source.count("for r_start in tl.range(") == (columns > 10_000)


def test_another_use_of_the_maximum_is_not_taken_for_a_softmax():
    x = torch.randn(70, 40_000)

    def other(b):
        top = reduce(b, "max", [-1])
        return [
            reduce(pointwise(lambda v, m: ops.exp(ops.sub(ops.mul(v, v), m)), b, top), "sum", [-1])
        ]

    (got,), _ = run(other, x)
    torch.testing.assert_close(
        got, torch.exp(x * x - x.amax(1, keepdim=True)).sum(1, keepdim=True), rtol=1e-4, atol=1e-3
    )


def test_random_numbers_are_those_of_the_other_code_generators():
    with miniinductor.config.patch(fallback_random=False), torch.no_grad():
        torch.manual_seed(5)
        got = minidynamo.compile(lambda x: torch.rand_like(x))(torch.empty(37, 5))
        torch.manual_seed(5)
        assert torch.equal(
            got, torch.ops.miniinductor.uniform(torch.randint(0, 2**62, [1]), [37, 5])
        )


def test_few_outputs_are_reduced_in_chunks():
    x = torch.randn(3, 100_003)
    (got,), record = run(lambda b: [reduce(b, "sum", [1])], x)
    torch.testing.assert_close(got, x.sum(1, keepdim=True), rtol=1e-4, atol=1e-3)
    assert len(record.kernels) == 2 and record.notes_of("in 24 chunks")


R = torch.randn
PRODUCTS = {  # function, inputs: each is one kernel
    "bias and gelu": (lambda a, b, c: F.gelu(a @ b + c), (R(70, 50), R(50, 90), R(90))),
    "a full addend": (lambda a, b, c: F.silu(a @ b) * c, (R(70, 50), R(50, 90), R(70, 1))),
    "transposed weight": (
        lambda a, b, c: torch.relu(torch.addmm(c, a, b.t())),
        (R(133, 64), R(257, 64), R(257)),
    ),
    "stored in another order": (
        lambda a, b: (a @ b).reshape(4, 8, 6, 15).transpose(1, 2) + 1,
        (R(32, 50), R(50, 90)),
    ),
    "parts of matrices": (
        lambda a, b: torch.relu(a[:, 3:20] @ b[5:22].t()[:17]),
        (R(33, 64), R(60, 21)),
    ),
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
    assert (
        kernel.source.count("tl.dot") == 1
        and got.dtype == want.dtype
        and got.stride() == want.stride()
    )
    assert (got.double() - exact).norm() <= 2 * (want.double() - exact).norm() + 4 * torch.finfo(
        got.dtype
    ).eps * exact.norm()


def traced(function, count):
    """The graph of a function of `count` tensors that returns one."""
    names = ["a", "b", "c"][:count]
    wrapper = eval(
        f"lambda {', '.join(names)}: (function({', '.join(names)}),)", {"function": function}
    )
    return torch.fx.symbolic_trace(wrapper)


@pytest.mark.parametrize(
    "function, reason",
    [
        (lambda a, b: torch.relu(a @ b).sum(1), "reduces"),
        (lambda a, b: (a @ b).t().contiguous() * 2, "other elements"),
        (lambda a, b: torch.relu(a.long() @ b.long()), "int64"),
    ],
)
def test_products_that_stay_library_calls(function, reason):
    a, b = R(40, 40) * 9, R(40, 40) * 9
    with torch.no_grad(), config.patch(matmul_templates="always"):
        compiled = miniinductor.compile_fx(traced(function, 2), [a, b])
        torch.testing.assert_close(compiled(a, b)[0], function(a, b), rtol=1e-4, atol=1e-3)
    [decision] = [d for d in compiled.record.fusions if d.category == "template"]
    assert not decision.fused and reason in decision.reason


@pytest.mark.parametrize("step, state", [(test_foreach.momentum, 3), (test_foreach.adam, 4)])
def test_an_optimizers_step_is_a_kernel_for_arrays_and_one_for_single_elements(step, state):
    record = test_foreach.compiled_like_eager(step, *test_foreach.tensors(state), kernels=2)
    assert (
        ".copy_(" not in record.wrapper_source
        and "empty_strided" not in record.wrapper_source
        and record.notes_of("one kernel for")
    )
    test_foreach.compiled_like_eager(
        step, *test_foreach.tensors(state), foreach=False, kernels=len(test_foreach.SHAPES)
    )


def test_alike_kernels_are_joined_up_to_so_many_pointers():
    xs = [R(n + 1) for n in range(300)]
    names = [f"x{n}" for n in range(300)]
    with torch.no_grad():
        compiled = miniinductor.compile_fx(
            torch.fx.symbolic_trace(
                eval(f"lambda {', '.join(names)}: ({', '.join(f'{n} + 1' for n in names)})")
            ),
            xs,
        )
    assert sorted(k.source.count("here = ") for k in compiled.record.kernels) == [0, 58, 239]


@pytest.mark.parametrize("follows", [False, True])
def test_results_with_unaligned_rows_come_from_the_template(monkeypatch, follows):
    monkeypatch.setattr(
        layouts, "_on_gpu", lambda node: isinstance(node.meta.get("val"), torch.Tensor)
    )
    monkeypatch.setattr(layouts, "LEAST_PRODUCT", 1)
    a, w = R(130, 64).bfloat16(), R(259, 64).bfloat16()
    function = (lambda a, w: torch.relu(a @ w.t())) if follows else lambda a, w: a @ w.t()
    with torch.no_grad():
        compiled = miniinductor.compile_fx(traced(function, 2), [a, w])
        got, want = compiled(a, w)[0], function(a, w)
        torch.testing.assert_close(got, want)
    [kernel] = compiled.record.kernels
    assert (
        "tl.dot" in kernel.source
        and got.stride() == want.stride()
        and not compiled.record.notes_of("padded")
    )


def test_every_bfloat16_is_read_and_its_reciprocal_is_eagers():
    x = torch.arange(-1 << 15, 1 << 15).to(torch.int16).view(torch.bfloat16)

    def function(x, number):
        return x.float(), x.reciprocal(), 1 / x.float(), x + 1 / number

    for got, want in zip(minidynamo.compile(function)(x, x[3]), function(x, x[3])):
        torch.testing.assert_close(got, want, rtol=0, atol=0, equal_nan=True)
    [kernel] = minidynamo.explain(function)(x, x[3]).main.compiled.kernels
    assert "= reciprocal(" in kernel.source and "= tl.div_rn" not in kernel.source


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int16])
def test_short_integers_are_divided_in_their_own_type(dtype):
    """Triton 3.6 computes `tl.maximum(x, 0)` in 32 bits, and then refuses to divide that by x."""

    def function(x, y):
        return x.relu() % (y + 1), x.relu() // (y + 1), torch.fmod(x.relu(), y + 1)

    x = (torch.arange(300) - 100).to(dtype)
    y = (torch.arange(300) % 7).to(dtype)
    for got, want in zip(minidynamo.compile(function)(x, y), function(x, y)):
        torch.testing.assert_close(got, want, rtol=0, atol=0)
    [kernel] = minidynamo.explain(function)(x, y).main.compiled.kernels
    assert re.search(r"= tl.maximum\(tmp\d+, tmp\d+\)", kernel.source)
    kind, operands = (
        str(dtype).removeprefix("torch."),
        re.findall(r"integer_\w+\((.*)\)", kernel.source),
    )
    for name in set(", ".join(operands).split(", ")) - {"a", "b"}:
        assert re.search(rf"{name} = tmp\d+\.to\(tl\.{kind}\)", kernel.source), kernel.source


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
    if "in0 + x0 + 1" in line:  # called as Triton's own, unchecked
        load_interpreted(str(tmp_path / "kernel.py"), "shifted").function[1,](
            whole[1], whole[4], XBLOCK=8
        )


def test_a_product_that_others_read_too_is_stored():
    a, b = R(40, 30), R(30, 20)
    with torch.no_grad(), config.patch(matmul_templates="always"):
        compiled = miniinductor.compile_fx(
            torch.fx.symbolic_trace(lambda a, b: (lambda p: (torch.relu(p), p))(a @ b)), [a, b]
        )
        for got, want in zip(compiled(a, b), (torch.relu(a @ b), a @ b)):
            torch.testing.assert_close(got, want)
    assert len(compiled.record.kernels) == 1 and "tl.dot" in compiled.record.kernels[0].source


def test_sources_compile_for_a_gpu_that_is_not_there(tmp_path):
    """In a worker process, as on a machine with a GPU; the machine code is not run."""
    x = torch.randn(64, 512)
    _, record = run(lambda b: [softmax(b)], x)
    path = tmp_path / "kernel.py"
    path.write_text(record.kernels[0].source)
    name = record.kernels[0].name
    job = {
        "path": str(path),
        "name": name,
        "aligned": ["in0", "out0"],
        "signature": {
            "in0": "*fp32",
            "out0": "*fp32",
            "XBLOCK": "constexpr",
            "RBLOCK": "constexpr",
        },
        "constants": {"XBLOCK": 1, "RBLOCK": 512},
        "num_warps": 4,
        "num_stages": 1,
        "asserts": False,
        "capability": 90,
        "cubin": str(tmp_path / "out.cubin"),
        "triton_cache": str(tmp_path),
        "keep": ["ptx"],
    }
    assert triton_build.compile_all([job]) == {}
    assert (tmp_path / "out.cubin").stat().st_size > 1000 and ".visible .entry" in (
        tmp_path / "out.cubin.ptx"
    ).read_text()
    assert "Error" in triton_build.compile_all([{**job, "name": "nothing"}])[job["cubin"]]
    with config.patch(cache_dir=str(tmp_path / "cache")):
        kept = {**job, "kept": "some.cubin", "cubin": str(tmp_path / "temporary"), "keep": []}
        assert triton_build.compile_and_keep([kept]) == {}
        content = triton_build.disk().read("some.cubin")
        assert content.startswith(b'{"name"') and not (tmp_path / "temporary").exists()
        wrong = triton_build.compile_and_keep([{**kept, "name": "nothing"}])
        assert "Error" in wrong["some.cubin"]
        new = {**kept, "constants": {"XBLOCK": 2, "RBLOCK": 512}}  # Triton has not kept this one
        with config.patch(compiler_seconds=0):
            late = triton_build.compile_and_keep([new])
        assert "did not end within 0 seconds" in late["some.cubin"]
        assert triton_build.compile_and_keep([kept]) == {}  # by other workers


def test_quotients_are_compiled_for_tiles_of_any_size(tmp_path):
    """The interpreter has its own: the PTX that four elements share is seen by the compiler alone,
    and not in tiles of less."""
    body = """@triton.jit
def some(in0, out0, XBLOCK: tl.constexpr):
    x = tl.arange(0, XBLOCK)
    a = tl.load(in0 + x)
    tl.store(out0 + x, divide(a, reciprocal(a)) + divide(tl.full([], 3.0, tl.float32), a))
"""
    path = tmp_path / "some.py"
    path.write_text(with_imports(body, ["divide", "reciprocal"]))
    jobs = [
        {
            "path": str(path),
            "name": "some",
            "aligned": ["in0", "out0"],
            "signature": {"in0": "*fp32", "out0": "*fp32", "XBLOCK": "constexpr"},
            "constants": {"XBLOCK": size},
            "num_warps": 4,
            "num_stages": 1,
            "asserts": False,
            "capability": 90,
            "cubin": str(tmp_path / f"{size}.cubin"),
            "triton_cache": str(tmp_path),
            "keep": ["ptx"],
        }
        for size in (1, 2, 4, 1024)
    ]
    assert triton_build.compile_all(jobs) == {}
    ptx = [(tmp_path / f"{size}.cubin.ptx").read_text() for size in (2, 1024)]
    assert [text.count("@p0 bra DONE") for text in ptx] == [0, 6]  # of 8 elements, 3 quotients


def test_the_fastest_configuration_is_chosen(monkeypatch, tmp_path):
    """Without a GPU: what is loaded and timed is made up.  One cannot be loaded."""
    asked, found = [], {128: 1.0, 256: 0.999, 512: 1.02, 1024: 3.0}

    def load(self, config, *about):
        if config.block("x") == 2048:
            raise RuntimeError("too many registers")
        return lambda *tensors: config.block("x")

    def event_times(calls, device):
        asked.append(len(calls))
        return {c: found[call()] for c, call in calls.items()}

    _, record = run(lambda b: [softmax(b)], torch.randn(64, 512))
    launch = Launch(
        {"x": 1 << 24},
        [Config((("XBLOCK", n),), 4) for n in (1024, 128, 256, 512, 2048)],
        dict.fromkeys(("in0", "out0"), torch.float32),
        False,
        [1 << 24] * 2,
    )
    kernel = Kernel(record.kernels[0].source, ["x", "y"], [], [], "some", launch=launch)
    monkeypatch.setattr(triton_build.CudaCode, "load", load)
    monkeypatch.setattr(timing, "examples", lambda layouts, device: [])
    monkeypatch.setattr(timing, "event_times", event_times)
    monkeypatch.setattr(
        torch.cuda,
        "get_device_properties",
        lambda device: types.SimpleNamespace(major=9, minor=0, name="a GPU"),
    )
    with config.patch(cache_dir=str(tmp_path)):
        for again in (False, True):
            code = triton_build.CudaCode(
                kernel, triton_build.named_source(kernel), torch.device("cuda", 0), 1 << 28
            )
            assert len(code.configs) == (1 if again else 5)  # the second finds the first's choice
            code.choose({})
            assert code.best.block("x") == 256
        with pytest.raises(triton_build.CompilerError, match="does not fit"):
            code.choose({code.cubin(c, code.assumed(())): "does not fit" for c in code.configs})
    assert asked == [4]


def test_examples_to_time_kernels_on():
    """Expanded inputs, too; the user's generator does not notice."""
    before = torch.random.get_rng_state()
    layouts = [
        ((3, 4), (0, 2), torch.bfloat16),
        ((5,), (1,), torch.int64),
        ((0, 2), (2, 1), torch.float32),
        ((), (), torch.float32),
    ]
    found = timing.examples(layouts, torch.device("cpu"))
    assert (
        [(t.shape, t.stride(), t.dtype) for t in found] == layouts
        and found[0].std() > 0
        and not found[1].any()
    )
    assert torch.equal(before, torch.random.get_rng_state())


def test_without_triton_or_its_interpreter_the_reason_is_named(monkeypatch):
    monkeypatch.setenv("TRITON_INTERPRET", "0")
    assert "TRITON_INTERPRET=1" in triton_build.why_not(torch.device("cpu"))
    monkeypatch.setattr(triton_build.importlib.util, "find_spec", lambda name: None)
    assert "not installed" in triton_build.why_not(torch.device("cuda"))


@pytest.mark.parametrize("name", ["gpt2", "bert"])
def test_models_through_the_interpreter(name):
    model, inputs = MODELS[name](layers=1, sequence=16)
    with torch.no_grad():
        assert largest_difference(model(**inputs), minidynamo.compile(model)(**inputs)) < 1e-4
    minidynamo.reset()


def test_channels_last_and_padding_keep_values_and_strides(monkeypatch):
    """The GPU's layout pass, on CPU tensors."""
    monkeypatch.setattr(
        layouts, "_on_gpu", lambda node: isinstance(node.meta.get("val"), torch.Tensor)
    )
    monkeypatch.setattr(layouts, "LEAST_PRODUCT", 1)
    network = torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3), torch.nn.ReLU(), torch.nn.Conv2d(8, 16, 3)
    ).eval()
    head = torch.nn.Linear(64, 99, bias=False).bfloat16()
    with torch.no_grad(), config.patch(cpu_backend="cpp"):
        for module, x, note in (
            (network, torch.randn(2, 3, 12, 12), "channels-last"),
            (head, torch.randn(32, 64).bfloat16(), "padded"),
        ):
            gm = torch.fx.GraphModule(module, torch.fx.symbolic_trace(module).graph)
            gm.graph.output_node().args = ((gm.graph.output_node().args[0],),)
            gm.recompile()
            compiled = miniinductor.compile_fx(gm, [x])
            (got,), want = compiled(x), module(x)
            torch.testing.assert_close(got, want)
            assert got.stride() == want.stride() and compiled.record.notes_of(note)


def test_products_are_padded_in_the_backward_graph_too(monkeypatch):
    monkeypatch.setattr(
        layouts, "_on_gpu", lambda node: isinstance(node.meta.get("val"), torch.Tensor)
    )
    monkeypatch.setattr(layouts, "LEAST_PRODUCT", 1)
    notes, old = [], layouts.Relayout.run
    monkeypatch.setattr(
        layouts.Relayout,
        "run",
        lambda self: (old(self), notes.append(self.counts.get("matrix products padded", 0)))[0],
    )
    head = torch.nn.Linear(64, 99, bias=False).bfloat16()
    x, target = torch.randn(32, 64).bfloat16().requires_grad_(), torch.randint(0, 99, (32,))
    grads = []
    with config.patch(cpu_backend="cpp"):
        for function in (head, minidynamo.compile(head)):
            loss = torch.nn.functional.cross_entropy(function(x).float(), target)
            grads.append(torch.autograd.grad(loss, [x, head.weight]))
    for want, got in zip(*grads):
        torch.testing.assert_close(got, want, rtol=2e-2, atol=1e-4)
        assert got.stride() == want.stride()
    assert sum(notes) == 3
    minidynamo.reset()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_convolutions_are_trained_in_channels_last_memory(monkeypatch, dtype):
    """What is saved and the gradients on their way, too; results and gradients of parameters lie as
    in eager."""
    monkeypatch.setattr(
        layouts, "_on_gpu", lambda node: isinstance(node.meta.get("val"), torch.Tensor)
    )
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3, padding=1, bias=False),
        torch.nn.BatchNorm2d(8),
        torch.nn.SiLU(),
        torch.nn.Conv2d(8, 8, 3, groups=8),
        torch.nn.ReLU(),
        torch.nn.MaxPool2d(2),
        torch.nn.Conv2d(8, 16, 1, bias=False),
        torch.nn.Flatten(),
        torch.nn.LazyLinear(5),
    )
    x = torch.randn(4, 3, 12, 12)
    model(x)
    model, x = model.to(dtype), x.to(dtype).requires_grad_()
    compiled = minidynamo.compile(copy.deepcopy(model))
    found = []
    for function, parameters in (
        (model, model.parameters()),
        (compiled, compiled.parameters()),
        (copy.deepcopy(model).double(), None),
    ):
        exact = parameters is None
        out = function(x.double() if exact else x)
        found.append(
            [
                out,
                *torch.autograd.grad(
                    out.square().mean(), [x, *(function.parameters() if exact else parameters)]
                ),
            ]
        )
    for eager, ours, exact in zip(*found):
        assert ours.stride() == eager.stride()
        assert (ours.double() - exact).norm() <= 2 * (eager.double() - exact).norm() + 1e-6
    record = last_compiled().backend_record
    assert bool(record.notes_of("3 convolutions in channels-last memory")) == (
        dtype is torch.bfloat16
    )
    convolutions = [
        n
        for n in record.joint_graph.graph.nodes
        if n.target is torch.ops.aten.convolution_backward.default
    ]
    assert len(convolutions) == 3
    if dtype is torch.bfloat16:
        assert all(
            n.args[i].meta["val"].is_contiguous(memory_format=torch.channels_last)
            for n in convolutions
            for i in range(3)
        )
    minidynamo.reset()


def test_attention_and_products_of_several_results_in_one_graph():
    """Kernels with several results are no products; what they feed stays fused."""
    q = R(2, 4, 16, 8)

    def function(a, b):
        return torch.relu(F.scaled_dot_product_attention(a, a, a) @ b).topk(2)[0]

    for templates in ("timed", "always"):
        with torch.no_grad(), config.patch(matmul_templates=templates):
            compiled = miniinductor.compile_fx(traced(function, 2), [q, R(8, 8)])
        b = R(8, 8)
        torch.testing.assert_close(compiled(q, b)[0], function(q, b), rtol=1e-4, atol=1e-5)
        assert not compiled.record.notes_of("runs eagerly") and compiled.record.kernels


# --- scans, writes in place, comments -------------------------------------------------------------
SCANNED = {
    "rows": ((300, 70), 1),
    "columns": ((70, 30), 0),
    "long rows": ((100, 40_000), 1),
    "in chunks": ((2, 50_000), 1),
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
        assert (
            len(compiled.record.kernels) == (3 if case == "in chunks" else 1)
            and not compiled.record.fallbacks
        )
        assert (
            got.dtype == want.dtype
            and (got.double() - exact).norm()
            <= 2 * (want.double() - exact).norm() + 1e-5 * exact.norm()
        )


def test_a_long_scan_that_no_chunks_divide_is_eagers():
    x = R(100_003)
    with torch.no_grad():
        compiled = miniinductor.compile_fx(traced(lambda a: torch.cumsum(a, 0), 1), [x])
        torch.testing.assert_close(compiled(x)[0], x.cumsum(0))
    assert any("no chunks divide" in f.reason for f in compiled.record.fallbacks)


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
    assert not [
        line
        for line in source.split("# every thread has read")[1].splitlines()
        if line.strip() and "tl.store(" not in line
    ]
    minidynamo.reset()


def test_a_product_does_not_overwrite_what_its_tiles_read():
    a, b = R(40, 40), R(40, 40)
    mine = a.clone()
    with torch.no_grad(), config.patch(matmul_templates="always"):
        compiled = miniinductor.compile_fx(traced(lambda a, b: a.add_(a @ b), 2), [a, b])
        mine.add_(mine @ b)
        compiled(a, b)
        torch.testing.assert_close(a, mine)


def test_every_line_names_its_fx_node():
    with torch.no_grad():
        compiled = miniinductor.compile_fx(
            traced(lambda a, b: torch.softmax(torch.relu(a) * b, -1), 2), [R(6, 40), R(6, 40)]
        )
    body = compiled.record.kernels[0].source.split("tl.arange(0, RBLOCK)")[1].splitlines()[1:]
    origins = [
        line.split("  # ")[-1].strip() for line in body if " = " in line or "tl.store" in line
    ]
    assert [o for i, o in enumerate(origins) if o not in origins[:i]][:3] == [
        "rmask = r0 < 40",
        "relu_default",
        "mul_tensor",
    ]
    assert {"amax_default", "exp_default", "div_tensor"} <= {*origins} and "" not in origins


def test_indices_are_wide_where_they_must_be():
    """Also along the reduction: 4096*r0 does not fit into 32 bits."""
    from backend_helpers import make_graph

    from miniinductor.gpu.kernel_writer import TritonKernelWriter
    from miniinductor.records import CompileRecord
    from miniinductor.scheduler import Scheduler

    for rows, wide in ((1 << 20, True), (1 << 10, False)):
        graph = make_graph(
            lambda x: [reduce(x, "argmax", [0], dtype=torch.int64)],
            torch.empty(rows, 4096, device="meta"),
        )
        [group] = Scheduler(graph, CompileRecord()).live_nodes()
        kernel = TritonKernelWriter(
            group,
            {**graph.buffers, **graph.inputs, **{b.name: b for b in graph.operations}},
            set(group.names),
        ).write()
        assert ("tl.arange(0, RBLOCK).to(tl.int64)[None, :]" in kernel.source) == wide


def test_loads_that_wait_for_nothing_come_first():
    x, y, i = torch.randn(300, 40), torch.randn(40), torch.randint(0, 300, (300,))
    with miniinductor.config.patch(cpu_backend="triton"):
        compiled = miniinductor.compile_fx(
            traced(lambda x, y, i: (x / x.exp().sum(-1, keepdim=True)) * y + x[i], 3), [x, y, i]
        )
        torch.testing.assert_close(
            compiled(x, y, i)[0], (x / x.exp().sum(-1, keepdim=True)) * y + x[i]
        )
    lines = [line for line in compiled.record.kernels[0].source.splitlines() if "tmp" in line]
    assert ["tl.load" in line for line in lines[:4]] == [True, True, True, False] and sum(
        "tl.load" in line for line in lines
    ) == 4


def test_what_lies_beyond_a_row_is_the_lowest_number_where_a_maximum_is_taken():
    x = torch.full((3, 9000), -2.0)
    x[1], x[2, 7] = -float("inf"), float("nan")
    for columns in (9000, 100):
        for function in (
            lambda x: x.amax(-1),
            lambda x: torch.logsumexp(x, -1),
            lambda x: x.amax(-1) * x.sum(-1) + x.argmin(-1),
            lambda x: x.softmax(-1),
        ):
            with miniinductor.config.patch(cpu_backend="triton"):
                compiled = miniinductor.compile_fx(
                    traced(function, 1), [x[:, :columns].contiguous()]
                )
                torch.testing.assert_close(
                    compiled(x[:, :columns].contiguous())[0],
                    function(x[:, :columns]),
                    equal_nan=True,
                )
            assert (
                sum(source.source.count("tl.load(in0") for source in compiled.record.kernels) <= 2
            )  # not once more for another padding


def test_elements_of_a_whole_sum_are_made_where_their_rows_are_reduced(monkeypatch):
    """Cross entropy: one program would gather 8192 elements; the row's own program has its maximum
    and its sum."""
    x, t = torch.randn(8192, 40), torch.randint(0, 40, (8192,))
    t[5] = -100
    with miniinductor.config.patch(cpu_backend="triton"):
        compiled = miniinductor.compile_fx(traced(lambda x, t: F.cross_entropy(x, t), 2), [x, t])
        torch.testing.assert_close(compiled(x, t)[0], F.cross_entropy(x, t))
        assert len(compiled.record.kernels) == 2
        assert compiled.record.notes_of("reduced where the rows are")
        assert (
            "tl.reduce" in compiled.record.kernels[0].source
            and "device_assert" in compiled.record.kernels[0].source
        )
        compiled = miniinductor.compile_fx(
            traced(lambda x: (x.softmax(-1) * x).sum(), 1), [x]
        )  # the elements of a row are many
        torch.testing.assert_close(compiled(x)[0], (x.softmax(-1) * x).sum(), rtol=1e-4, atol=1e-2)


@pytest.mark.parametrize("dims, training", [(1, False), (2, False), (2, True)])
def test_the_bias_of_a_convolution_is_added_by_the_kernel_that_follows(monkeypatch, dims, training):
    monkeypatch.setattr(
        layouts, "_on_gpu", lambda node: isinstance(node.meta.get("val"), torch.Tensor)
    )
    monkeypatch.setattr(config, "onednn_products", False)
    model = (torch.nn.Conv1d, torch.nn.Conv2d)[dims - 1](3, 8, 3, padding=1)
    x = torch.randn(2, 3, *[10] * dims)
    function = lambda x: F.gelu(model(x))  # noqa: E731
    with miniinductor.config.patch(cpu_backend="triton"), torch.set_grad_enabled(training):
        compiled = minidynamo.compile(function)
        torch.testing.assert_close(compiled(x), function(x), rtol=1e-4, atol=1e-5)
    record = last_compiled().backend_record
    assert (
        record.notes_of("1 biases of convolutions added apart")
        and len(record.kernels) == 1 + (dims == 2 and not training) * 2
    )
    assert "add" in record.kernels[-1].source.split("(in0")[0]


def test_tiles_whose_values_fit_in_no_registers_are_not_tried():
    from miniinductor.gpu import block_sizes

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRITON_INTERPRET", "0")
        few, many = (
            block_sizes.block_configs("looped", {"x": 1 << 16, "r": 128}, True, tiles)
            for tiles in (2, 20)
        )
    assert (
        set(many) < set(few)
        and max(c.block("x") * c.block("r") // (32 * c.num_warps) for c in many) <= 256 // 20 < 32
    )
