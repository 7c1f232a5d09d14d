"""Whole programs through the whole system: real models, and a function that breaks three times."""

import contextlib
import io
import marshal

import pytest
import torch

import minidynamo
import miniinductor
from benchmarks.models import MODELS
from benchmarks.runner import largest_difference
from minidynamo import records


@pytest.fixture(autouse=True)
def clean():
    minidynamo.reset()
    with minidynamo.config.patch(raise_internal_errors=True), torch.no_grad():
        yield
    minidynamo.reset()


@pytest.mark.parametrize("name", MODELS)
def test_a_real_model_is_one_graph_and_right(name):
    model, inputs = MODELS[name]()
    compiled = minidynamo.compile(model, backend="inductor", fullgraph=True)
    expected = model(**inputs)
    first = compiled(**inputs)
    assert type(first) is type(expected)
    assert largest_difference(expected, first) < 1e-4
    assert sum(minidynamo.counters["graphs"].values()) == 1
    assert not minidynamo.counters["graph_breaks"] and not minidynamo.counters["errors"]
    hits = sum(minidynamo.counters["cache_hits"].values())
    assert largest_difference(expected, compiled(**inputs)) < 1e-4
    assert sum(minidynamo.counters["cache_hits"].values()) == hits + 1
    assert sum(minidynamo.counters["graphs"].values()) == 1
    record = next(f for f in records.frames if f.graph is not None).backend_record
    assert record.kernels and not record.notes_of("runs eagerly")
    assert not [f for f in record.fallbacks if f.kind == "fallback"]


class Announce:
    def __enter__(self):
        print("enter")
        return self

    def __exit__(self, *error):
        print("exit", error[0])


def breaks_three_times(x):
    for i in range(3):
        x = x + i
        print("step", i)  # break 1
    if x.sum().item() > 0:  # break 2
        x = x * 2
    else:
        x = x - 1
    with Announce():
        x = x + len(marshal.dumps((1, 2)))  # break 3
    return x


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
@pytest.mark.parametrize("sign", [1, -1])
def test_three_breaks(backend, sign):
    x = sign * (torch.rand(5) + 3)
    outputs = []
    for function in (breaks_three_times, minidynamo.compile(breaks_three_times, backend=backend)):
        for _ in range(2):
            with contextlib.redirect_stdout(io.StringIO()) as text:
                result = function(x.clone())
            outputs.append((result, text.getvalue()))
    for result, text in outputs[1:]:
        assert torch.allclose(result, outputs[0][0]) and text == outputs[0][1]
    first = breaks_three_times.__code__.co_firstlineno
    reasons = {(f"{reason}") for reason in minidynamo.counters["graph_breaks"]}
    for word, line in (("print", first + 3), ("item", first + 4), ("marshal.dumps", first + 9)):
        assert any(word in reason and f"{__file__}:{line}" in reason for reason in reasons), (
            word,
            line,
            reasons,
        )


def test_mutated_inputs_and_aliased_outputs():
    def f(x):
        x.add_(1)
        return x, x.view(-1), x * 2

    a = torch.randn(3, 4)
    b = a.clone()
    one, flat, double = minidynamo.compile(f)(a)
    expected = f(b)
    assert one is a and flat.data_ptr() == a.data_ptr()
    for got, want in zip((one, flat, double), expected):
        assert torch.allclose(got, want)


def test_without_a_compiler_it_runs_eagerly_and_says_so(monkeypatch, tmp_path):
    import miniinductor
    from miniinductor import toolchain as compiler

    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CXX", raising=False)
    compiler.find_compiler.cache_clear()
    with miniinductor.config.patch(cache_dir=str(tmp_path / "cache")):
        x = torch.randn(7)
        assert torch.equal(minidynamo.compile(lambda x: x * 3 + 0.125)(x), x * 3 + 0.125)
    (frame,) = [f for f in records.frames if f.graph is not None]
    assert frame.backend_record.notes_of("runs eagerly")
    compiler.find_compiler.cache_clear()


def test_debug_levels_print_the_stages(capsys):
    import miniinductor

    with miniinductor.config.patch(debug=4):
        minidynamo.compile(lambda x: torch.relu(x) + 2)(torch.randn(5))
    printed = capsys.readouterr().err
    assert "relu" in printed and "load(" in printed and 'extern "C"' in printed


@pytest.mark.parametrize(
    "make, reason",
    [
        (lambda: torch.eye(3).to_sparse(), "not strided"),
        (lambda: torch.eye(3).as_subclass(type("Own", (torch.Tensor,), {})), "no plain tensor"),
    ],
    ids=["sparse", "a subclass"],
)
def test_what_is_not_compiled_runs_eagerly(make, reason):
    x = make()
    compiled = miniinductor.compile_fx(torch.fx.symbolic_trace(lambda x: (x * 2,)), [x])
    assert reason in compiled.record.notes_of("runs eagerly")[0]
    assert torch.equal(compiled(x)[0].to_dense(), torch.eye(3) * 2)
