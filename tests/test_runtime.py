"""Building, caching, launching, and the wrapper's memory."""

import errno
import subprocess
import sys

import pytest
import torch
from backend_helpers import build, make_graph, pointwise, run
from test_scheduler import exp, mm

import miniinductor
import miniinductor.config
from miniinductor.ir.ops import ops
from miniinductor.records import CompileRecord
from miniinductor import toolchain as builder
from miniinductor.toolchain import build_kernels

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
    monkeypatch.setattr(builder, "make", lambda *a: pytest.fail("compiled again"))
    [kernel] = build_kernels([(SOURCE % "3", "k")])
    assert torch.equal(launch(kernel), torch.full((8,), 3.0))


def test_a_damaged_file_is_rebuilt(cache):
    source = builder.prelude() + "\n" + (SOURCE % "4").replace("NAME(", "k_0(", 1)
    key = builder.cache_key(source, builder.compiler_command())
    cache.mkdir()
    (cache / f"{key}.so").write_bytes(b"not a library")
    [kernel] = build_kernels([(SOURCE % "4", "k")])
    assert torch.equal(launch(kernel), torch.full((8,), 4.0))
    assert (cache / f"{key}.so").stat().st_size > 1000


def test_a_folder_that_cannot_be_made_falls_back(tmp_path):
    (tmp_path / "file").write_text("")
    with miniinductor.config.patch(cache_dir=str(tmp_path / "file" / "cache")):
        assert builder.disk().folder() != miniinductor.config.cache_dir
        [kernel] = build_kernels([(SOURCE % "5", "k")])
    assert torch.equal(launch(kernel), torch.full((8,), 5.0))


def test_a_missing_compiler_says_what_to_install(cache, monkeypatch):
    builder.find_compiler.cache_clear()
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CXX", raising=False)
    with pytest.raises(builder.CompilerError, match="install g"):
        build_kernels([(SOURCE % "7", "k")])
    monkeypatch.undo()
    builder.find_compiler.cache_clear()


def test_two_processes_build_the_same_kernel(cache):
    code = (
        f"import sys; sys.path[:0] = {sys.path!r}\n"
        f"import torch, miniinductor.config; miniinductor.config.cache_dir = {str(cache)!r}\n"
        "from test_runtime import SOURCE, launch, build_kernels\n"
        "[k] = build_kernels([(SOURCE % '8', 'k')]); print(launch(k)[0].item())"
    )
    command = [sys.executable, "-c", code]
    workers = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
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


def test_the_launcher_takes_views_ints_and_parameters():
    (got,), _ = run(lambda a: [pointwise(ops.neg, a)], torch.nn.Parameter(torch.randn(5)).detach())
    x = torch.randn(10)
    (got,), _ = run(lambda a: [pointwise(ops.neg, a)], x[3:8])
    assert torch.equal(got, -x[3:8])


# --- memory ---------------------------------------------------------------------------------------
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


def test_a_source_that_would_keep_the_compiler_busy_for_ever_is_refused(monkeypatch):
    monkeypatch.setattr(builder, "LONGEST_SOURCE", 100)
    gm = torch.fx.symbolic_trace(lambda x: (torch.relu(x) + 1,))
    compiled = miniinductor.compile_fx(gm, [torch.ones(3)])
    assert torch.equal(compiled(torch.ones(3))[0], torch.full((3,), 2.0))
    assert "too long for the C++ compiler" in compiled.record.notes_of("runs eagerly")[0]
