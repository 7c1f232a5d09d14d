"""What needs a GPU: `make test-gpu`.  The kernels of `test_cpp` as machine code, models, streams,
CUDA graphs, bad indices."""

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

if not torch.cuda.is_available():
    pytest.skip("no GPU", allow_module_level=True)
if os.environ.get("TRITON_INTERPRET") == "1":
    pytest.skip(
        "TRITON_INTERPRET=1 keeps kernels off the GPU: use make test-gpu", allow_module_level=True
    )

import backend_helpers
import test_cpp

import minidynamo
import miniinductor
import miniinductor.config as config
from benchmarks.error_bound import assert_no_worse
from benchmarks.models import MODELS
from benchmarks.runner import largest_difference
from benchmarks.workloads import WORKLOADS
from miniinductor.codegen.triton import build as triton_build
from miniinductor.runtime import cuda_graphs

pytestmark = pytest.mark.gpu
same = test_cpp.same
ROOT = Path(__file__).resolve().parent.parent
GPU = torch.device("cuda", 0)
NOT_HERE = {
    "test_the_writer_defines_every_op",
    "test_constants_keep_their_value",
    "test_lowest_integer_by_minus_one_does_not_trap",
    "test_accuracy_in_ulp_against_float64",
    "test_every_function_under_every_reduction_becomes_vectors",
    "test_an_index_out_of_range_raises",
    "test_an_empty_table_raises",
}
SMALLEST = 1.2e-38  # below it, Triton's float32 functions flush to zero


@pytest.fixture(autouse=True)
def on_the_gpu(request, monkeypatch):
    def run(function, *tensors):
        outputs, record = backend_helpers.run(function, *[t.to(GPU) for t in tensors])
        return [o.cpu() for o in outputs], record

    monkeypatch.setattr(test_cpp, "run", run)
    monkeypatch.setattr(test_cpp, "CPU", GPU)
    monkeypatch.setattr(test_cpp, "FLUSHED", SMALLEST)
    monkeypatch.setattr(test_cpp, "POW_ULPS", 5)
    monkeypatch.setattr(
        test_cpp,
        "SPECIAL",
        test_cpp.SPECIAL[~((test_cpp.SPECIAL != 0) & (test_cpp.SPECIAL.abs() < SMALLEST))],
    )
    monkeypatch.setattr(
        test_cpp,
        "same",
        lambda got, want, ulps=8, atol=0.0: same(got, want, ulps, max(atol, SMALLEST)),
    )
    monkeypatch.setattr(backend_helpers, "CPU", GPU)
    torch.manual_seed(0)
    minidynamo.reset()
    with (
        config.patch(split_reductions="test_softmax[" not in request.node.name),
        minidynamo.config.patch(raise_internal_errors=True),
    ):
        yield


_tests = {name: f for name, f in vars(test_cpp).items() if name.startswith("test_")}
globals().update({name: f for name, f in _tests.items() if name not in NOT_HERE})


@pytest.mark.parametrize("name", WORKLOADS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_workloads(name, dtype):
    function, inputs = WORKLOADS[name]()
    if isinstance(function, torch.nn.Module):
        function = function.to(GPU, dtype)
    inputs = [t.to(GPU, dtype) if t.is_floating_point() else t.to(GPU) for t in inputs]
    with torch.no_grad():
        want = function(*inputs)
        exact = (
            function.double()(*[t.double() for t in inputs])
            if isinstance(function, torch.nn.Module)
            else function(*[t.double() if t.is_floating_point() else t for t in inputs])
        )
        if isinstance(function, torch.nn.Module):
            function = function.to(dtype)
        got = minidynamo.compile(function)(*inputs)
    assert_no_worse(got, want, exact)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("mode", [None, "reduce-overhead"])
def test_models(name, mode):
    model, inputs = MODELS[name]() if name == "resnet" else MODELS[name](layers=2)
    model, inputs = model.to(GPU), {k: v.to(GPU) for k, v in inputs.items()}
    compiled = minidynamo.compile(model, mode=mode)
    with torch.no_grad():
        for _ in range(4):
            inputs = {
                k: torch.randn_like(v) if v.is_floating_point() else torch.randint_like(v, 1000)
                for k, v in inputs.items()
            }
            assert largest_difference(model(**inputs), compiled(**inputs)) < 2e-2


def compiled_graph(function, *inputs, mode=None):
    gm = torch.fx.symbolic_trace(function)
    return miniinductor.compile_fx(gm, list(inputs), mode=mode)


def softmax_gelu(x):
    return (F.gelu(torch.softmax(x, -1)),)


def test_the_current_stream_and_other_threads():
    x = torch.randn(300, 700, device=GPU)
    compiled, want = compiled_graph(softmax_gelu, x), softmax_gelu(x)[0]
    torch.cuda.synchronize()
    streams, results = [torch.cuda.Stream() for _ in range(3)], {}

    def work(i):
        with torch.cuda.stream(streams[i]), torch.no_grad():
            for _ in range(50):
                results[i] = compiled(x)[0]

    threads = [threading.Thread(target=work, args=(i,)) for i in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    torch.cuda.synchronize()
    for result in results.values():
        torch.testing.assert_close(result, want)


def test_a_pointer_that_is_not_aligned():
    whole = torch.randn(4097, device=GPU)
    compiled = compiled_graph(lambda x: (torch.relu(x) + 1,), whole[:4096])
    for x in (whole[:4096], whole[1:]):
        assert torch.equal(compiled(x)[0], torch.relu(x) + 1)


def test_attention_by_hand():
    """The library's kernel, of unaligned tensors, too; a row of infinite scores alone is NaN."""
    q, k, v = (torch.randn(2, 4, 64, 64, device=GPU).bfloat16().requires_grad_() for _ in range(3))
    function = lambda q, k, v: torch.softmax(q @ k.mT * 0.125, -1) @ v  # noqa: E731
    compiled, more = minidynamo.compile(function), torch.randn(q.numel() + 1, device=GPU).bfloat16()
    for inputs in ((q, k, v), (more[1:].view(q.shape).requires_grad_(), k, v)):
        losses = [f(*inputs).float().square().sum() for f in (compiled, function)]
        for ours, eager in zip(*[torch.autograd.grad(loss, inputs) for loss in losses]):
            torch.testing.assert_close(ours, eager, rtol=0.05, atol=0.05)
    with torch.no_grad():
        q[0, 0, 3, 0], k[..., 0] = -torch.inf, k[..., 0].abs() + 1
        out = compiled(q, k, v)
    assert out[0, 0, 3].isnan().all() and out.isnan().sum() == 64


def test_cuda_graphs_replay_with_new_inputs_and_moved_parameters():
    layer = torch.nn.Linear(64, 64).to(GPU)
    compiled = minidynamo.compile(lambda x: F.gelu(layer(x)), mode="reduce-overhead")
    with torch.no_grad():
        kept = []
        for step in range(8):
            x = torch.randn(32, 64, device=GPU)
            if step == 4:
                layer.weight.mul_(2)  # in place: the recording sees it
            if step == 6:
                layer.weight.data = torch.randn(
                    64, 64, device=GPU
                )  # elsewhere: it must be recorded again
            kept.append((compiled(x), F.gelu(layer(x))))
        for got, want in kept:  # earlier outputs are not overwritten
            torch.testing.assert_close(got, want, rtol=1e-3, atol=1e-3)


@pytest.fixture
def recordings(monkeypatch):
    made = []

    class Counted(cuda_graphs.Recording):
        def __init__(self, *arguments):
            super().__init__(*arguments)
            made.append(self)

    monkeypatch.setattr(cuda_graphs, "Recording", Counted)
    return made


@pytest.mark.parametrize("name", ["gpt2", "resnet"])
def test_cuda_graphs_of_training_steps(name, recordings):
    model, inputs = MODELS[name]() if name == "resnet" else MODELS[name](layers=2)
    model, inputs = model.to(GPU), {k: v.to(GPU) for k, v in inputs.items()}
    compiled, grads = minidynamo.compile(model, mode="reduce-overhead"), {}
    for _ in range(5):
        inputs = {
            k: torch.randn_like(v) if v.is_floating_point() else torch.randint_like(v, 1000)
            for k, v in inputs.items()
        }
        for function in (model, compiled):
            model.zero_grad()
            function(**inputs).logits.square().mean().backward()
            grads[function] = [p.grad.clone() for p in model.parameters()]
        scale = max(g.abs().max() for g in grads[model])
        assert all(
            (a - b).abs().max() < 2e-2 * scale for a, b in zip(grads[model], grads[compiled])
        )
    assert len(recordings) == 2


def test_cuda_graphs_keep_what_a_later_backward_needs(recordings):
    model = torch.nn.Sequential(
        torch.nn.Linear(64, 128), torch.nn.GELU(), torch.nn.Linear(128, 64), torch.nn.Tanh()
    ).to(GPU)
    compiled = minidynamo.compile(model, mode="reduce-overhead")
    for count in (1, 1, 1, 3, 1):
        xs, grads = [torch.randn(32, 64, device=GPU) for _ in range(count)], []
        for function in (model, compiled):
            model.zero_grad()
            losses = [function(x).square().sum() for x in xs]
            for loss in losses:
                loss.backward()
            grads.append([p.grad.clone() for p in model.parameters()])
        for want, got in zip(*grads):
            torch.testing.assert_close(got, want, rtol=1e-3, atol=1e-3)
    assert len(recordings) == 2


two_gpus = pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")


@two_gpus
@pytest.mark.parametrize("size", [64, 2048])  # kernels of the larger ones are tuned
@pytest.mark.parametrize("mode", [None, "reduce-overhead", "max-autotune"])
def test_another_gpu_than_the_current_one(mode, size, tmp_path):
    """One compiled function for both devices, a graph for each; the second one's kernels come from
    the first one's cache."""
    function = lambda x, y: torch.softmax(F.gelu(x @ y + 1), -1)  # noqa: E731
    compiled, kept = minidynamo.compile(function, mode=mode), []
    with torch.no_grad(), config.patch(cache_dir=str(tmp_path)):
        for step in range(8):
            device = f"cuda:{1 - step % 2}"
            x, y = (torch.randn(size, size, device=device) for _ in range(2))
            kept.append((compiled(x, y), function(x, y)))
            assert kept[-1][0].device == x.device and torch.cuda.current_device() == 0
        for got, want in kept:
            torch.testing.assert_close(got, want, rtol=1e-2, atol=1e-4)
    assert minidynamo.counters["graphs"].total() == 2


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_products_from_the_template(dtype):
    a, b, c = (
        torch.randn(n, m, device=GPU, dtype=dtype) for n, m in ((300, 520), (520, 1000), (1, 1000))
    )
    function = lambda a, b, c: (F.gelu(a @ b + c),)  # noqa: E731
    exact, eager = function(a.double(), b.double(), c.double())[0], function(a, b, c)[0]
    with config.patch(matmul_templates="always"):
        compiled = compiled_graph(function, a, b, c)
    assert len(compiled.record.kernels) == 1 and "tl.dot" in compiled.record.kernels[0].source
    got, slack = compiled(a, b, c)[0], torch.finfo(dtype).eps * exact.norm()
    assert (got - exact).norm() <= 2 * (eager - exact).norm() + slack


def test_no_worker_outlives_its_jobs_with_an_error():
    assert triton_build.compile_all([]) == {}


def test_an_index_out_of_range_stops_the_kernel():
    code = (
        "import torch, minidynamo\n"
        "f = minidynamo.compile(lambda t, i: t[i] + 1)\n"
        "t = torch.randn(50, 33, device='cuda')\n"
        "i = torch.zeros(500, dtype=torch.long, device='cuda')\n"
        "i[321] = 50\n"
        "with torch.no_grad(): f(t, i); torch.cuda.synchronize()\n"
    )
    result = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert result.returncode != 0 and "index out of range in self" in result.stderr + result.stdout


@pytest.mark.parametrize(
    "name",
    ("pointwise; softmax; sums; layer norm; reshape; cat; slices; transpose; gather; scales").split(
        "; "
    ),
)
def test_symbolic_sizes(name):
    """One compilation; aligned sizes and others, rows within a tile and longer ones."""
    from test_dynamic import SIZES_BY_FLOATS
    from test_symbolic import ONE

    function = (
        (ONE | SIZES_BY_FLOATS)[name]
        if name != "gather"
        else lambda x: x[torch.arange(x.shape[0] - 1, device=x.device)]
    )
    with torch.no_grad():
        compiled = minidynamo.compile(function, dynamic=True)
        for shape in [(48, 160), (64, 256), (17, 33), (9, 1030), (1000, 16)]:
            x = torch.randn(shape, device=GPU)
            for got, want, large in zip(
                *(
                    y if isinstance(y, tuple) else (y,)
                    for y in (compiled(x), function(x.double()), function(x.double().abs()))
                )
            ):
                close = 1e-5 * max(
                    1.0, large.abs().max().item()
                )  # "rounded" adds 250,000 numbers that nearly cancel
                torch.testing.assert_close(got, want.to(got.dtype), rtol=1e-5, atol=close)
    assert minidynamo.counters["graphs"].total() == 1
    assert not [
        n for r in minidynamo.records.frames for n in r.backend_record.notes if "eagerly" in n
    ]


@pytest.mark.parametrize(
    "shape, dim",
    [
        ((300, 70), 1),
        ((700, 300), 0),
        ((200, 40_000), 1),
        ((2, 1_000_000), 1),
        ((1 << 20,), 0),
        ((100_003,), 0),
    ],
)
@pytest.mark.parametrize("kind", ["cumsum", "cumprod", "logcumsumexp"])
def test_scans(kind, shape, dim):
    function = lambda a: (getattr(torch, kind)(a, dim),)  # noqa: E731
    for dtype in (torch.float32, torch.bfloat16, torch.float64):
        x = torch.randn(shape, device=GPU, dtype=torch.float64)
        x = (1 + x / 1000 if kind == "cumprod" else x).to(dtype)
        compiled = compiled_graph(function, x)
        with torch.no_grad():
            (got,), (want,), (exact,) = compiled(x), function(x), function(x.double())
        slack = (
            1e-12 if dtype == torch.float64 else torch.finfo(dtype).eps
        )  # float64: the reference is no better than we are
        assert (got - exact).norm() <= 2 * (want - exact).norm() + slack * exact.norm(), dtype


def test_an_optimizers_step_is_one_kernel_for_all_arrays():
    import test_foreach

    shapes = [(768, 768), (33,), (50_001,), (4096,), (), (7, 3, 5)] * 12
    mine = [[t.to(GPU) for t in ts] for ts in test_foreach.tensors(4, shapes)]
    theirs, compiled = (
        [[t.clone() for t in ts] for ts in mine],
        minidynamo.compile(test_foreach.adam),
    )
    with torch.no_grad():
        for _ in range(3):
            compiled(*mine)
            test_foreach.adam(*theirs)
    for a, b in zip(sum(mine, []), sum(theirs, [])):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)
    [record] = [r.backend_record for r in minidynamo.records.frames]
    assert len(record.kernels) == 2 and ".copy_(" not in record.wrapper_source


@pytest.mark.parametrize("kind", [torch.nn.LSTM, torch.nn.GRU, torch.nn.RNN])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("batch_first", [False, True])
def test_recurrent_networks_give_what_cudnn_gives(kind, dtype, batch_first):
    """tests/test_recurrent.py with the real one: the call runs as it is, between compiled graphs or
    pieces, and what follows keeps the strides that cuDNN gives."""
    options = dict(num_layers=2, bidirectional=True, batch_first=batch_first)
    model, x = kind(64, 32, **options).to(GPU, dtype), torch.randn(50, 16, 64).to(GPU, dtype)
    run = lambda x: model(x * 2)[0].sin()  # noqa: E731
    with torch.no_grad():
        got, want = minidynamo.compile(run)(x), run(x)
    assert got.stride() == want.stride()
    torch.testing.assert_close(got, want)
    compiled = minidynamo.compile(run)
    compiled(x).sum().backward()
    found = [parameter.grad.clone() for parameter in model.parameters()]
    model.zero_grad()
    run(x).sum().backward()
    for ours, eager in zip(found, model.parameters()):
        torch.testing.assert_close(ours, eager.grad)


def test_a_guard_asks_the_device_again():
    minidynamo.reset()  # the entry holds the device: it has no literal
    asks = minidynamo.compile(lambda x: x * torch.cuda.get_device_capability(x.device)[0])
    for _ in range(2):
        asks(torch.ones(3, device="cuda"))
    assert len(minidynamo.records.frames) == 1
