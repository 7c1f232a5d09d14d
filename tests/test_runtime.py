"""Building, caching, launching, and the wrapper's memory."""

import errno
import os
import stat
import subprocess
import sys
import threading

import pytest
import torch
from backend_helpers import CPU, build, make_graph, pointwise, reduce, run, softmax
from test_scheduler import exp, mm

import miniinductor
import miniinductor.config
from miniinductor.runtime import compiler
from miniinductor.runtime import build as builder
from miniinductor.ir import BufferView
from miniinductor.ops import ops
from miniinductor.records import CompileRecord
from miniinductor.runtime.build import build_kernels
from benchmarks.error_bound import assert_near, too_far

SOURCE = """extern "C" int NAME(void** args) {
    const float* in0 = (const float*)args[0];   // a comment
    float* out0 = (float*)args[1];
    for (int64_t x0 = 0; x0 < 8; x0++) out0[x0] = in0[x0] + %s;
    return 0;
}
"""


@pytest.fixture
def cache(tmp_path):
    with miniinductor.config.patch(cache_dir=str(tmp_path / "cache")):
        yield tmp_path / "cache"


def launch(kernel):
    x, out = torch.arange(8.0), torch.empty(8)
    kernel(x, out)
    return out - x


def test_equal_sources_are_compiled_once(cache):
    a, b, c = build_kernels(
        [
            (SOURCE % "1", "a"),
            ((SOURCE % "1").replace("comment", "remark"), "b"),
            (SOURCE % "2", "c"),
        ]
    )
    assert a is b and a is not c
    assert torch.equal(launch(a), torch.full((8,), 1.0)) and torch.equal(
        launch(c), torch.full((8,), 2.0)
    )


def test_the_disk_cache_is_used(cache, monkeypatch):
    build_kernels([(SOURCE % "3", "k")])
    [file] = cache.glob("*.so")
    assert list(cache.iterdir()) == [file], "temporary files stay behind"
    monkeypatch.setattr(builder.Compiler, "make", lambda *a: pytest.fail("compiled again"))
    [kernel] = build_kernels([(SOURCE % "3", "k")])
    assert torch.equal(launch(kernel), torch.full((8,), 3.0))


def test_a_damaged_file_is_rebuilt(cache):
    key = builder.cache_key(
        builder.prelude() + "\n" + (SOURCE % "4").replace("NAME(", "k_0(", 1),
        builder.compiler_command(),
    )
    cache.mkdir()
    (cache / f"{key}.so").write_bytes(b"not a library")
    [kernel] = build_kernels([(SOURCE % "4", "k")])
    assert (
        torch.equal(launch(kernel), torch.full((8,), 4.0))
        and (cache / f"{key}.so").stat().st_size > 1000
    )


def test_the_key_depends_on_flags(cache):
    command = builder.compiler_command()
    assert (
        builder.cache_key("x", command)
        != builder.cache_key("x", [*command, "-O0"])
        != builder.cache_key("y", command)
    )


def test_a_folder_that_cannot_be_made_falls_back(tmp_path):
    (tmp_path / "file").write_text("")
    with miniinductor.config.patch(cache_dir=str(tmp_path / "file" / "cache")):
        assert builder.disk().folder() != miniinductor.config.cache_dir
        [kernel] = build_kernels([(SOURCE % "5", "k")])
    assert torch.equal(launch(kernel), torch.full((8,), 5.0))


def test_a_read_only_folder_falls_back(cache, monkeypatch):
    cache.mkdir()
    cache.chmod(stat.S_IRUSR | stat.S_IXUSR)
    monkeypatch.setattr(os, "access", lambda *a: False)  # root may write anyway
    [kernel] = build_kernels([(SOURCE % "6", "k")])
    assert torch.equal(launch(kernel), torch.full((8,), 6.0)) and not list(cache.iterdir())


def test_a_missing_compiler_says_what_to_install(cache, monkeypatch):
    compiler.find_compiler.cache_clear()
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CXX", raising=False)
    with pytest.raises(builder.CompilerError, match="install g"):
        build_kernels([(SOURCE % "7", "k")])
    monkeypatch.undo()
    compiler.find_compiler.cache_clear()


def test_a_refused_kernel_shows_the_compiler_message(cache):
    with pytest.raises(builder.CompilerError, match="nonsense"):
        build_kernels([('extern "C" int NAME(void**) { return nonsense; }', "k")])


def test_two_processes_build_the_same_kernel(cache):
    code = (
        f"import sys; sys.path[:0] = {sys.path!r}\n"
        f"import torch, miniinductor.config; miniinductor.config.cache_dir = {str(cache)!r}\n"
        "from test_runtime import SOURCE, launch, build_kernels\n"
        "[k] = build_kernels([(SOURCE % '8', 'k')]); print(launch(k)[0].item())"
    )
    workers = [
        subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    assert [w.communicate(timeout=120)[0].strip() for w in workers] == ["8.0"] * 3
    assert len(list(cache.iterdir())) == 1


def test_a_killed_build_leaves_nothing_that_loads(cache):
    code = (
        f"import sys, time; sys.path[:0] = {sys.path!r}\n"
        f"import torch, miniinductor.config; miniinductor.config.cache_dir = {str(cache)!r}\n"
        "from test_runtime import SOURCE, build_kernels, builder\n"
        "builder.os.replace = lambda *paths: (print('compiled', flush=True), time.sleep(100))\n"
        "build_kernels([(SOURCE % '9', 'k')])"
    )
    child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert child.stdout.readline() == "compiled\n"
    child.kill()
    child.communicate()
    [half] = cache.rglob("*.so")  # what the killed process had not renamed yet
    half.write_bytes(half.read_bytes()[:500])
    [kernel] = build_kernels([(SOURCE % "9", "k")])
    assert torch.equal(launch(kernel), torch.full((8,), 9.0))


@pytest.mark.parametrize("keep", [0, 100, 5000, -33, -1])
def test_a_truncated_library_is_rebuilt_not_loaded(cache, tmp_path, keep):
    [kernel] = build_kernels([(SOURCE % "10", "k")])
    [whole] = cache.glob("*.so")
    content = whole.read_bytes()
    with miniinductor.config.patch(cache_dir=str(tmp_path / "other")):
        (tmp_path / "other").mkdir()
        (tmp_path / "other" / whole.name).write_bytes(content[:keep])
        assert builder.load(whole.name) is None
        [kernel] = build_kernels([(SOURCE % "10", "k")])
        assert torch.equal(launch(kernel), torch.full((8,), 10.0))
        assert (tmp_path / "other" / whole.name).stat().st_size == len(content)


def test_another_torch_or_processor_has_its_own_files(cache, monkeypatch):
    command = builder.compiler_command()
    here = builder.cache_key("x", command)
    with monkeypatch.context() as other:
        other.setattr(torch, "__version__", "2.11.0")
        assert builder.cache_key("x", command) != here
    with monkeypatch.context() as other:
        other.setattr(builder, "cpu_name", lambda: "another processor")
        assert builder.cache_key("x", command) != here
    with monkeypatch.context() as other:
        other.setattr(builder, "compiler_version", lambda compiler: "99.0")
        assert builder.cache_key("x", command) != here
    assert builder.cache_key("x", command) == here


@pytest.mark.parametrize("stage", ["source", "compiler", "rename"])
def test_a_full_disk_runs_eagerly_and_the_next_call_compiles(cache, tmp_path, monkeypatch, stage):
    x = torch.randn(7)
    gm = torch.fx.symbolic_trace(lambda x: (x.relu() + 11,))

    def full(*args):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as disk:
        if stage == "compiler":
            script = tmp_path / "g++"
            script.write_text("#!/bin/sh\necho 'error: No space left on device' >&2; exit 1\n")
            script.chmod(0o755)
            disk.setenv("CXX", str(script))
        else:
            disk.setattr(
                *{"source": (builder.os, "mkdir"), "rename": (builder.os, "replace")}[stage], full
            )
        compiled = miniinductor.compile_fx(gm, [x])
        assert torch.equal(compiled(x)[0], x.relu() + 11)
        [note] = compiled.record.notes_of("runs eagerly")
        assert "free space" in note and "MINIINDUCTOR_CACHE" in note
    compiled = miniinductor.compile_fx(gm, [x])
    assert not compiled.record.notes_of("runs eagerly") and len(compiled.record.kernels) == 1
    assert torch.equal(compiled(x)[0], x.relu() + 11)
    assert not list(cache.glob("tmp*.so")), "temporary files stay behind"


def test_compile_fx_alone_says_what_it_takes():
    def f(x, y):
        return (x + y,)

    with pytest.raises(TypeError, match="symbolic_trace"):
        miniinductor.compile_fx(f, [torch.ones(2)])
    with pytest.raises(ValueError, match=r"takes 2 inputs \(x, y\), but there are 1"):
        miniinductor.compile_fx(torch.fx.symbolic_trace(f), [torch.ones(2)])
    compiled = miniinductor.compile_fx(
        torch.fx.symbolic_trace(lambda x: torch.relu(x) + 1), [torch.randn(3, 4)]
    )
    for wrong, said in (
        (torch.randn(3, 5), r"is \(\(3, 5\)"),
        (torch.randn(4, 3).t(), r"\(1, 3\)"),
        (torch.zeros(3, 4).double(), "float64"),
        ([1], "list"),
    ):
        with pytest.raises(ValueError, match=said):
            compiled(wrong)
    assert compiled(torch.zeros(3, 4)).sum() == 12 and "1 kernels" in repr(compiled)
    with pytest.raises(ValueError, match="unknown mode 'fast'"):
        miniinductor.compile_fx(torch.fx.symbolic_trace(f), [torch.ones(2)] * 2, mode="fast")


def test_texts_of_a_record_are_made_when_read(cache, monkeypatch):
    from miniinductor import compile as stages

    monkeypatch.setattr(
        stages, "listing_of", lambda stage: pytest.fail("printed, but nobody reads it")
    )
    x = torch.randn(5)
    compiled = miniinductor.compile_fx(torch.fx.symbolic_trace(lambda x: (x.exp(),)), [x])
    monkeypatch.undo()
    with miniinductor.config.patch(cache_dir=str(cache)):
        again = miniinductor.compile_fx(torch.fx.symbolic_trace(lambda x: (x.exp(),)), [x])
    assert (
        "exp" in again.record.loop_ir
        and "exp" in again.record.fused_ir
        and again.record.loop_ir is again.record.loop_ir
    )
    assert torch.equal(compiled(x)[0], again(x)[0])


def test_the_launcher_takes_views_ints_and_parameters():
    (got,), _ = run(lambda a: [pointwise(ops.neg, a)], torch.nn.Parameter(torch.randn(5)).detach())
    x = torch.randn(10)
    (got,), _ = run(lambda a: [pointwise(ops.neg, a)], x[3:8])
    assert torch.equal(got, -x[3:8])


def test_the_launcher_refuses_what_has_no_pointer():
    [kernel] = build_kernels([(SOURCE % "1", "a")])
    with pytest.raises((AttributeError, TypeError)):
        kernel("a string", torch.empty(8))


# --- memory ---------------------------------------------------------------------------------------
def chain(a, w):
    for _ in range(6):
        a = exp(
            pointwise(lambda v: ops.mul(ops.tanh(v), ops.constant(0.1, torch.float32)), mm(a, w))
        )
    return [a]


def eager_chain(a, w):
    for _ in range(6):
        a = (torch.tanh(a @ w) * 0.1).exp()
    return a


def test_dead_buffers_are_reused():
    a, w = torch.randn(64, 64), torch.randn(64, 64)
    (got,), record = run(chain, a, w)
    assert_near(got, eager_chain(a, w))
    assert (
        sum(place.startswith(("reuse of", "in place of")) for _, place, _ in record.memory_plan)
        >= 7
    )
    with miniinductor.config.patch(buffer_reuse=False):
        (got,), record = run(chain, a, w)
    assert all(place == "new" for _, place, _ in record.memory_plan)


def test_outputs_never_share_memory_with_later_calls():
    a, w = torch.randn(64, 64), torch.randn(64, 64)
    compiled = build(make_graph(lambda x, y: [mm(exp(x), y), exp(mm(x, y))], a, w), CompileRecord())
    first = compiled(a, w)
    kept = [t.clone() for t in first]
    second = compiled(a + 1, w)
    assert all(torch.equal(t, k) for t, k in zip(first, kept))
    assert not {t.untyped_storage().data_ptr() for t in first} & {
        t.untyped_storage().data_ptr() for t in second
    }


def test_threads_do_not_share_a_workspace():
    a, w = torch.randn(64, 64), torch.randn(64, 64)
    compiled = build(make_graph(chain, a, w), CompileRecord())
    failures = []

    def work(scale):
        for _ in range(100):
            x = a * scale
            if not not too_far(compiled(x, w)[0], eager_chain(x, w)):
                failures.append(scale)

    threads = [threading.Thread(target=work, args=(s,)) for s in (0.1, 0.5, 1.0, 2.0)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert not failures


def test_a_call_after_a_failed_call_is_right():
    from test_cpp import gather

    compiled = build(
        make_graph(
            lambda t, i: [exp(gather(t, i)[0])],
            torch.randn(5, 3),
            torch.zeros(4, dtype=torch.int64),
        ),
        CompileRecord(),
    )
    table = torch.randn(5, 3)
    with pytest.raises(IndexError):
        compiled(table, torch.full((4,), 7))
    torch.testing.assert_close(
        compiled(table, torch.tensor([0, 4, -1, 2]))[0], table[[0, 4, -1, 2]].exp()
    )


def test_inference_mode_and_normal_calls_mix():
    a, w = torch.randn(64, 64), torch.randn(64, 64)
    compiled = build(make_graph(chain, a, w), CompileRecord())
    with torch.inference_mode():
        first = compiled(a, w)[0]
    second = compiled(a, w)[0]
    with torch.inference_mode():
        third = compiled(a, w)[0]
    assert torch.equal(first, second) and torch.equal(second, third)


def test_calls_under_another_default_device_and_with_gradients_on():
    a, w = torch.randn(64, 64), torch.randn(64, 64, requires_grad=True)
    compiled = build(make_graph(chain, a, w.detach()), CompileRecord())
    with torch.device("meta"):
        got = compiled(a, w)[0]
    assert got.device.type == "cpu" and not got.requires_grad and torch.is_grad_enabled()
    assert_near(got, eager_chain(a, w).detach())


def test_mutations_are_written_back():
    x = torch.randn(5)
    graph = make_graph(lambda a: [exp(a)], x)
    graph.mutations = [("arg0", graph.outputs[0])]
    before = x.clone()
    [out] = build(graph, CompileRecord())(x)
    assert torch.equal(x, out)
    torch.testing.assert_close(x, before.exp())


def test_constants_follow_their_data():
    weight = torch.nn.Parameter(torch.ones(4))
    graph = make_graph(lambda a, w: [pointwise(ops.mul, a, w)], torch.randn(4), weight.detach())
    graph.constants["arg1"] = weight
    del graph.inputs["arg1"]
    compiled = build(graph, CompileRecord())
    x = torch.randn(4)
    assert torch.equal(compiled(x)[0], x)
    weight.data = torch.full((4,), 3.0)
    assert torch.equal(compiled(x)[0], x * 3)


def test_outputs_that_are_views_inputs_ints_and_none():
    x = torch.randn(4, 6)
    graph = make_graph(lambda a: [exp(a)], x)
    full = graph.outputs[0]
    graph.outputs = [
        BufferView("arg0", (4, 6), (6, 1)),
        BufferView(full.name, (6, 4), (1, 6)),
        7,
        None,
    ]
    same, transposed, number, nothing = build(graph, CompileRecord())(x)
    assert same is x and number == 7 and nothing is None
    torch.testing.assert_close(transposed, x.exp().t())


def test_tiny_calls_are_cheaper_than_eager():
    import time

    x = torch.randn(16)
    compiled = build(
        make_graph(
            lambda a: [pointwise(lambda v: ops.mul(ops.add(ops.exp(v), v), ops.sin(v)), a)], x
        ),
        CompileRecord(),
    )

    def seconds(function):
        best = 1e9
        for _ in range(20):
            start = time.perf_counter()
            for _ in range(200):
                function(x)
            best = min(best, time.perf_counter() - start)
        return best

    assert seconds(compiled) < seconds(lambda v: (torch.exp(v) + v) * torch.sin(v))


def test_other_devices_are_refused():
    graph = make_graph(lambda a: [exp(a)], torch.randn(4))
    graph.inputs["arg0"].layout.device = torch.device("meta")
    with pytest.raises(NotImplementedError, match="meta"):
        build(graph, CompileRecord())


@pytest.mark.parametrize("sizes", [("n", 8), (5, "n"), ("n", "n")])
@pytest.mark.parametrize(
    "function,reference",
    [
        (lambda a: [softmax(a)], lambda x: x.softmax(-1)),
        (lambda a: [reduce(a, "sum", [0])], lambda x: x.sum(0, keepdim=True)),
        (
            lambda a: [pointwise(ops.sin, reduce(exp(a), "max", [1]))],
            lambda x: x.exp().amax(1, keepdim=True).sin(),
        ),
    ],
)
def test_symbolic_sizes_are_kernel_arguments(sizes, function, reference):
    import sympy

    from miniinductor import ir

    n = sympy.Symbol("n", integer=True, positive=True)
    symbolic = tuple(n if s == "n" else s for s in sizes)
    layout = ir.Layout(CPU, torch.float32, symbolic, ir.contiguous_strides(symbolic))
    graph = ir.Graph()
    graph.inputs["arg0"] = graph.buffers["arg0"] = ir.InputBuffer("arg0", layout)
    with ir.building(graph):
        graph.outputs = [b.as_buffer_view() for b in function(ir.TensorBox(graph.inputs["arg0"]))]
    compiled = build(graph, CompileRecord())
    for size in (3, 8, 501):
        x = torch.randn([size if s == "n" else s for s in sizes])
        assert_near(compiled(x)[0], reference(x))


def test_a_source_that_would_keep_the_compiler_busy_for_ever_is_refused(monkeypatch):
    monkeypatch.setattr(compiler, "LONGEST_SOURCE", 100)
    compiled = miniinductor.compile_fx(
        torch.fx.symbolic_trace(lambda x: (torch.relu(x) + 1,)), [torch.ones(3)]
    )
    assert torch.equal(compiled(torch.ones(3))[0], torch.full((3,), 2.0))
    assert "too long for the C++ compiler" in compiled.record.notes_of("runs eagerly")[0]
