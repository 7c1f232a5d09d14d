"""Whole graphs on disk: a second process (or a forgotten entry) gives the same without compiling;
anything that matters makes another key."""

import contextlib
import math
import os
import subprocess
import sys

import pytest
import torch
import torch.nn.functional as F

from record_helpers import last_compiled

import minidynamo
import miniinductor
from minidynamo import records
from minidynamo.explain.explanation import STAGES
from miniinductor.extras import graph_cache
from miniinductor.extras.graph_cache import Uncachable, compiler_text, open_entry
from miniinductor.passes import numbers


@pytest.fixture(autouse=True)
def cache(tmp_path):
    with miniinductor.config.patch(cache_dir=str(tmp_path / "cache"), graph_cache=True):
        yield tmp_path / "cache"
    minidynamo.reset()


def is_from_disk(record=None):
    record = record or last_compiled().backend_record
    return bool(record.notes_of("read from disk"))


def twice(function, *args, grad=False, **options):
    """(first result, record), (second result, record): the second from disk; each checked against
    eager."""
    found = []
    for _ in range(2):
        minidynamo.reset()
        results = []
        for f in (function, minidynamo.compile(function, **options)):
            torch.manual_seed(0)
            inputs = [
                a.detach().clone().requires_grad_(a.requires_grad)
                if isinstance(a, torch.Tensor)
                else a
                for a in args
            ]
            with torch.set_grad_enabled(grad):
                out = f(*inputs)
                outputs = [t for t in (out if isinstance(out, tuple) else (out,))]
                if grad:
                    sum(
                        t.square().sum()
                        for t in outputs
                        if isinstance(t, torch.Tensor) and t.requires_grad
                    ).backward()
            results.append(
                [
                    *outputs,
                    *inputs,
                    *[a.grad for a in inputs if isinstance(a, torch.Tensor) and a.grad is not None],
                ]
            )
        torch.testing.assert_close(results[1], results[0], rtol=1e-4, atol=1e-4, check_dtype=True)
        found.append((results[1], last_compiled().backend_record))
    assert not is_from_disk(found[0][1]) and is_from_disk(found[1][1])
    return found


def test_inference_and_its_record():
    (_, first), (_, second) = twice(
        lambda x, w: F.gelu(x @ w).softmax(-1), torch.randn(6, 8), torch.randn(8, 5)
    )
    assert [k.source for k in first.kernels] == [
        k.source for k in second.kernels
    ] and first.wrapper_source == second.wrapper_source
    assert (
        first.fusions == second.fusions
        and first.memory_plan == second.memory_plan
        and first.fallbacks == second.fallbacks
    )
    # what is not kept is made again when somebody looks
    assert (
        str(second.functional_graph.graph) == str(first.functional_graph.graph)
        and second.joint_graph is None
    )
    assert second.loop_ir == first.loop_ir and second.fused_ir == first.fused_ir


def shown_by(function, x, w):
    """Every stage of both halves as text, and what MINI_DEBUG=4 prints."""
    minidynamo.reset()
    with miniinductor.config.patch(debug=4):
        e = minidynamo.explain(function)(x, w)
        e.result.sum().backward()
    stages = {name: repr(getattr(e, name)) for name in STAGES if name not in ("times", "bytecode")}
    return stages, e.compiled


def test_every_stage_shows_on_a_warm_cache_what_it_shows_on_a_cold_one(capsys):
    def f(x, w):
        return F.layer_norm(torch.tanh(x @ w), (5,)).sum(-1, keepdim=True) * x

    x, w = torch.randn(6, 5), torch.randn(5, 5, requires_grad=True)
    cold, first = shown_by(f, x, w)
    printed = capsys.readouterr().err
    warm, second = shown_by(f, x, w)
    assert is_from_disk(second) and is_from_disk(second.backward) and not is_from_disk(first)
    for name, text in cold.items():
        assert warm[name] == text, name
    missing = [name for name, text in warm.items() if text.startswith("(")]
    assert missing == [], missing
    # the program's graph, its loops, why they are one kernel, the kernels: twice, for both halves
    assert capsys.readouterr().err == printed and printed.count("FusionDecision(") >= 2
    assert printed.count('extern "C"') >= 2 and "load(" in printed and "aten" in printed
    assert second.peak_live_bytes == first.peak_live_bytes > 0


@pytest.mark.parametrize("fallback_random", [True, False])
def test_training_with_dropout(fallback_random):
    def f(x, w):
        return F.dropout(torch.tanh(x @ w), 0.4, training=True) * x.sum(-1, keepdim=True)

    x, w = torch.randn(6, 8), torch.randn(8, 5, requires_grad=True)
    if fallback_random:
        (_, first), (_, second) = twice(f, x, w, grad=True)
        assert is_from_disk(second.backward) and [k.source for k in first.backward.kernels] == [
            k.source for k in second.backward.kernels
        ]
        assert second.joint_graph is not None and second.backward.loop_ir == first.backward.loop_ir
        assert [s.name for s in second.saved] == [s.name for s in first.saved]
    else:
        with miniinductor.config.patch(fallback_random=False):
            drawn = []
            for _ in range(2):
                minidynamo.reset()
                torch.manual_seed(3)
                drawn.append(minidynamo.compile(f)(x, w))
            assert is_from_disk() and torch.equal(*drawn)


def test_another_backward_half_than_the_one_on_disk():
    """The second process's loss takes other results: only the forward half is on disk, the graph is
    traced again for the other."""

    def f(x, w):
        return torch.tanh(x @ w), torch.sigmoid(x @ w)

    x = torch.randn(4, 6)
    for take in (0, 1):
        minidynamo.reset()
        w = torch.randn(6, 6, requires_grad=True)
        compiled = minidynamo.compile(f)
        want, got = (torch.autograd.grad(g(x, w)[take].square().sum(), w)[0] for g in (f, compiled))
        torch.testing.assert_close(got, want)
    record = last_compiled().backend_record
    assert is_from_disk(record) and not is_from_disk(record.backward)


def test_written_inputs_buffers_views_and_inputs_as_outputs():
    def f(x, y):
        x.add_(1)
        z = torch.exp(y)
        return x, z, z.t(), y[1:], 7

    twice(f, torch.randn(4, 4), torch.randn(4, 4))
    twice(f, torch.randn(4, 4), torch.randn(4, 4, requires_grad=True), grad=True)

    class Running(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = torch.nn.BatchNorm1d(5)
            self.tied = self.norm.weight

        def forward(self, x):
            return self.norm(x) * self.tied

    for _ in range(2):
        minidynamo.reset()
        torch.manual_seed(0)
        plain, model = Running(), Running()
        compiled = minidynamo.compile(model)
        for _ in range(3):
            x = torch.randn(9, 5)
            torch.testing.assert_close(compiled(x), plain(x))
        torch.testing.assert_close([*model.buffers()], [*plain.buffers()])
    assert is_from_disk()


def test_shared_memory_is_still_looked_for():
    def f(x, y):
        x.mul_(2)
        return x + y

    for _ in range(2):
        minidynamo.reset()
        compiled = minidynamo.compile(f)
        a, b = torch.randn(8), torch.randn(8)
        torch.testing.assert_close(compiled(a.clone(), b), f(a.clone(), b))
        mine, want = a.clone(), a.clone()
        torch.testing.assert_close(compiled(mine, mine.view(8)), f(want, want.view(8)))
    assert is_from_disk()


def test_symbolic_sizes_and_what_was_assumed_of_them():
    def f(x):
        return (x.view(-1, 4).softmax(-1), x.sum(0)) if x.shape[0] > 3 else (x, x)

    guards = []
    for _ in range(2):
        minidynamo.reset()
        compiled = minidynamo.compile(f, dynamic=True)
        for n in (8, 12, 5, 2, 20):
            x = torch.randn(n, 4)
            torch.testing.assert_close(compiled(x), f(x))
        compiled_ones = [r for r in records.frames if r.backend_record is not None]
        guards.append([[g.code for g in r.guards] for r in compiled_ones][-1])
    assert is_from_disk(compiled_ones[-1].backend_record) and guards[0] == guards[1]
    (_, first), (_, second) = twice(
        lambda x, w: (x @ w).relu().sum(0),
        torch.randn(6, 4),
        torch.randn(4, 3, requires_grad=True),
        grad=True,
        dynamic=True,
    )
    assert is_from_disk(second.backward)
    twice(
        lambda x: x.new_zeros(round(x.shape[0] * 1.5), math.floor(x.shape[1] / 2)) + x[:1, :1],
        torch.randn(6, 4),
        dynamic=True,
    )


def test_autocast_and_constants():
    def f(x, w):
        return (x @ w).float() * torch.tensor([1.0, -2.0, 0.5]) + x.sum()

    with torch.autocast("cpu", dtype=torch.bfloat16):
        twice(f, torch.randn(4, 4), torch.randn(4, 3))
        twice(f, torch.randn(4, 4), torch.randn(4, 3, requires_grad=True), grad=True)
    minidynamo.reset()
    minidynamo.compile(f)(torch.randn(4, 4), torch.randn(4, 3))
    assert not is_from_disk()


def test_cuda_graph_mode_and_triton():
    twice(lambda x: x.sin() + 1, torch.randn(5), mode="reduce-overhead")
    if os.environ.get("TRITON_INTERPRET") == "1":
        with miniinductor.config.patch(cpu_backend="triton"):
            twice(lambda x, w: F.gelu(x @ w).softmax(-1), torch.randn(6, 8), torch.randn(8, 5))
            twice(lambda x: x.softmax(-1) + 1, torch.randn(6, 8), dynamic=True)


# --- keys -----------------------------------------------------------------------------------------
def f(x, y):
    return torch.relu(x) + y * 2


def key(function=f, inputs=None, mode=None, trace=torch.fx.symbolic_trace):
    return open_entry(trace(function), inputs or [torch.ones(4, 6), torch.ones(4, 6)], mode).key


def ones(*size, **options):
    return torch.ones(*size, **options)


INPUTS = {
    "size": [ones(4, 5), ones(4, 5)],
    "dtype": [ones(4, 6).double(), ones(4, 6)],
    "stride": [ones(6, 4).t(), ones(4, 6)],
    "requires_grad": [ones(4, 6, requires_grad=True), ones(4, 6)],
    "offset": [ones(25)[1:].view(4, 6), ones(4, 6)],
    "parameter": [torch.nn.Parameter(ones(4, 6), requires_grad=False), ones(4, 6)],
    "the same twice": [ones(4, 6)] * 2,
    "device": [ones(4, 6, device="meta"), ones(4, 6)],
    "history": [ones(4, 6, requires_grad=True) * 1, ones(4, 6)],
}
GRAPHS = {
    "op": lambda x, y: torch.sigmoid(x) + y * 2,
    "number": lambda x, y: torch.relu(x) + y * 3,
    "float": lambda x, y: torch.relu(x) + y * 2.0,
    "order": lambda x, y: torch.relu(y) + x * 2,
    "method": lambda x, y: x.relu() + y * 2,
}
STATES = {
    "grad": torch.no_grad,
    "autocast": lambda: torch.autocast("cpu", torch.bfloat16),
    "inference": torch.inference_mode,
    "config": lambda: miniinductor.config.patch(fusion=False),
    "threshold": lambda: replaced("miniinductor.lowering.graph", "MANY_READS", 9),
    "deterministic": lambda: switched(torch.use_deterministic_algorithms, True, False),
    "source": lambda: replaced(graph_cache, "source_hash", lambda: "x"),
    "versions": lambda: replaced(graph_cache, "versions_text", lambda cuda: "x"),
    "dtype": lambda: switched(torch.set_default_dtype, torch.float64, torch.float32),
    "threads": lambda: switched(
        torch.set_num_threads, torch.get_num_threads() + 1, torch.get_num_threads()
    ),
}


@contextlib.contextmanager
def replaced(module, name, value):
    with pytest.MonkeyPatch.context() as patch:
        if callable(value):
            value.__module__ = "miniinductor.extras.graph_cache"
        patch.setattr(
            f"{module}.{name}" if isinstance(module, str) else f"{module.__name__}.{name}", value
        )
        yield


@contextlib.contextmanager
def switched(setter, value, before):
    setter(value)
    try:
        yield
    finally:
        setter(before)


def test_the_key_stays():
    assert key() == key() == key(lambda x, y: torch.relu(x) + y * 2)


@pytest.mark.parametrize("what", [*INPUTS, *GRAPHS, *STATES, "mode"])
def test_the_key_changes(what):
    here = key()
    with (
        STATES[what]()
        if what in STATES and what not in GRAPHS | INPUTS
        else contextlib.nullcontext()
    ):
        there = key(
            GRAPHS.get(what, f),
            INPUTS.get(what) if what != "dtype" else INPUTS["dtype"],
            "max-autotune" if what == "mode" else None,
        )
    assert there != here
    if what == "dtype":
        with STATES["dtype"]():
            assert key() != here


def test_tied_parameters_and_hints_have_keys_of_their_own():
    class Two(torch.nn.Module):
        def __init__(self, tied):
            super().__init__()
            self.a = torch.nn.Parameter(torch.ones(3))
            self.b = self.a if tied else torch.nn.Parameter(torch.ones(3))

        def forward(self, x, y):
            return x * self.a + y * self.b

    inputs = [torch.ones(3), torch.ones(3)]
    assert key(Two(True), inputs) != key(Two(False), inputs) == key(Two(False), inputs)


@pytest.mark.parametrize(
    "reason,make",
    [
        (
            "neither a number nor a function",
            lambda: key(
                torch.fx.symbolic_trace(torch.nn.Sequential(torch.nn.ReLU())),
                [ones(3)],
                trace=lambda gm: with_target(gm),
            ),
        ),
        ("a call of a module", lambda: key(torch.nn.Sequential(torch.nn.ReLU()), [ones(3)])),
        ("freezing", lambda: frozen_key()),
    ],
)
def test_what_has_no_key(reason, make):
    with pytest.raises(Uncachable, match=reason):
        make()


def with_target(gm):
    graph = torch.fx.Graph()
    graph.output((graph.call_function(ones, (graph.placeholder("x"),)),))
    return torch.fx.GraphModule(gm, graph)


def frozen_key():
    with miniinductor.config.patch(freezing=True):
        return key()


def test_a_compiler_that_somebody_changed_is_not_kept(monkeypatch):
    from miniinductor.lowering.registry import LOWERINGS

    monkeypatch.setitem(LOWERINGS, torch.ops.aten.relu.default, lambda call, x: x)
    compiled = miniinductor.compile_fx(torch.fx.symbolic_trace(f), [ones(4, 6), ones(4, 6)])
    assert compiled.record.notes_of("LOWERINGS holds test_graph_cache")


def with_a_number(patch):
    patch.setattr(miniinductor.scheduler, "REACH", 17)


def with_a_dtype(patch):
    patch.setattr(numbers, "EXACT", numbers.EXACT | {torch.complex64})


def with_a_switch(patch):
    patch.setattr(miniinductor.config, "fusion", False)


def with_a_new_name(patch):
    patch.setattr(miniinductor.scheduler, "ANOTHER", 1, raising=False)


@pytest.mark.parametrize("change", [with_a_number, with_a_dtype, with_a_switch, with_a_new_name])
def test_what_is_described_once_is_looked_at_each_time(change):
    before = compiler_text()
    assert compiler_text() == before
    with pytest.MonkeyPatch.context() as patch:
        change(patch)
        changed = compiler_text()
        assert changed != before and compiler_text() == changed
    assert compiler_text() == before


def test_a_set_that_grew_in_place_is_seen():
    before = compiler_text()
    numbers.EXACT.add(torch.complex64)
    try:
        assert compiler_text() != before
    finally:
        numbers.EXACT.remove(torch.complex64)
    assert compiler_text() == before


def with_a_table(patch):
    from miniinductor.lowering.registry import LOWERINGS

    patch.setitem(LOWERINGS, torch.ops.aten.relu.default, lambda call, x: x)


def with_a_method(patch):
    patch.setattr(miniinductor.scheduler.Scheduler, "check_cycle", lambda *_: None)


def with_a_function(patch):
    patch.setattr(miniinductor.scheduler, "clearest", lambda reasons: reasons[0])


@pytest.mark.parametrize("change", [with_a_table, with_a_method, with_a_function])
def test_a_replaced_function_is_seen_after_the_first_time(change):
    before = compiler_text()
    with pytest.MonkeyPatch.context() as patch:
        change(patch)
        for _ in range(2):
            with pytest.raises(Uncachable, match="which is no part of this compiler"):
                compiler_text()
    assert compiler_text() == before


def test_off_means_off(cache):
    with miniinductor.config.patch(graph_cache=False):
        minidynamo.compile(f)(ones(3), ones(3))
    assert not list(cache.glob("*.graph"))


# --- files ----------------------------------------------------------------------------------------
@pytest.mark.parametrize("keep", [0, 10, 500, -33, -1])
def test_a_damaged_entry_is_made_again(cache, keep):
    x = torch.randn(7)
    for round in range(3):
        minidynamo.reset()
        assert torch.equal(minidynamo.compile(lambda x: x.relu() + 11)(x), x.relu() + 11)
        assert is_from_disk() == (round == 2)
        [file] = cache.glob("*.graph")
        if round == 0:
            file.write_bytes(file.read_bytes()[:keep])


def test_kernels_that_are_gone_are_built_again(cache):
    x = torch.randn(7)
    for _ in range(2):
        minidynamo.reset()
        assert torch.equal(minidynamo.compile(lambda x: x.relu() + 12)(x), x.relu() + 12)
        [library] = cache.glob("*.so")
        library.unlink()
    assert is_from_disk()


PROGRAM = """
import sys, torch, minidynamo, miniinductor
from minidynamo import records
from miniinductor.extras import graph_cache
before = graph_cache.compiler_text()
torch.manual_seed(0)
first, second = torch.nn.Linear(6, 20), torch.nn.Linear(20, 5)
model = torch.nn.Sequential(first, torch.nn.GELU(), torch.nn.Dropout(0.3), second)
x = torch.randn(8, 6)
total = 0
for f in (model, minidynamo.compile(model)):
    model.zero_grad()
    torch.manual_seed(1)
    loss = f(x).square().sum()
    loss.backward()
    found = [loss.item(), *[p.grad.sum().item() for p in model.parameters()]]
    total = found if f is model else max(abs(a - b) for a, b in zip(total, found))
record = records.frames[-1].backend_record
print(total < 1e-4, *[bool(r.notes_of("read from disk")) for r in (record, record.backward)])
print(graph_cache.compiler_text() == before)
"""


def test_processes_at_once_and_one_after_them(cache, tmp_path):
    """Equal keys in other processes, whatever the seed of their hashes, and whatever was compiled
    before: compiling changes nothing of what the key says of the compiler."""
    script = tmp_path / "program.py"
    script.write_text(PROGRAM)
    environment = dict(
        os.environ,
        MINI_GRAPH_CACHE="1",
        MINIINDUCTOR_CACHE=str(cache),
        PYTHONPATH=os.pathsep.join(sys.path),
        MINI_RAISE="1",
    )

    def started():
        return subprocess.Popen(
            [sys.executable, str(script)], env=environment, stdout=subprocess.PIPE, text=True
        )

    for child in [started() for _ in range(2)]:
        right, *_, unchanged = child.communicate(timeout=120)[0].split()
        assert right == unchanged == "True"
    assert started().communicate(timeout=120)[0].split() == ["True"] * 4
    assert len(list(cache.glob("*.graph"))) == 2
