"""Whole programs through the whole system: real models, and a function that breaks three times."""

import contextlib
import io
import marshal

import pytest
import torch

import minidynamo
import miniinductor
from minidynamo import records
from benchmarks.models import MODELS
from benchmarks.runner import largest_difference
from benchmarks.error_bound import too_far
from miniinductor.runtime import aliased_inputs
from miniinductor.runtime.aliased_inputs import are_apart


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


def test_a_parameter_whose_data_is_replaced():
    model = torch.nn.Linear(3, 2)
    compiled = minidynamo.compile(model)
    x = torch.randn(4, 3)
    compiled(x)
    model.weight.data = torch.randn(2, 3)
    assert not too_far(compiled(x), model(x))
    model.double()
    assert compiled(x.double()).dtype == torch.float64


def test_without_a_compiler_it_runs_eagerly_and_says_so(monkeypatch, tmp_path):
    import miniinductor
    from miniinductor.runtime import compiler

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


ONE_MEMORY = {  # -> two tensors of it, and are they apart?
    "halves": (lambda m: (m[:12].view(3, 4), m[12:24].view(3, 4)), True),
    "columns": (lambda m: (m.view(6, 8)[:3, 1:5], m.view(6, 8)[1:4, 5:6]), True),
    "every other": (lambda m: (m[::2], m[1::2]), True),
    "nothing": (lambda m: (m.view(6, 8)[:3], m[:0].view(3, 0).expand(3, 0)), True),
    "blocks": (lambda m: (m.view(4, 3, 4)[:, :2], m.view(4, 3, 4)[:, 2:]), True),
    "one element": (lambda m: (m[:12], m[11:23]), False),
    "transposed": (lambda m: (m[:16].view(4, 4), m[:16].view(4, 4).t()), False),
    "into the next row": (lambda m: (m.view(6, 8)[:3, 4:], m.as_strided((3, 4), (8, 1), 7)), False),
    "other rows": (lambda m: (m[::2][:8], m[1::3][:8]), False),
    "inside": (lambda m: (m[::2], m[:2]), False),
}


@pytest.mark.parametrize("name", ONE_MEMORY)
def test_writes_to_two_tensors_of_one_memory(name, monkeypatch):
    def f(x, y):
        x.mul_(2)
        y.add_(x.sum())
        return x - 1

    answers = []
    looking = lambda tensors: answers.append(are_apart(tensors)) or answers[-1]  # noqa: E731
    monkeypatch.setattr(aliased_inputs, "are_apart", looking)
    make, apart = ONE_MEMORY[name]
    plain, memory = torch.arange(48.0), torch.arange(48.0)
    args, given = make(plain), make(memory)
    compiled = minidynamo.compile(f)
    for _ in range(2):
        assert torch.equal(f(*args), compiled(*given))
        assert torch.equal(plain, memory)
    assert [t._version for t in given] == [t._version for t in args]
    assert answers == [apart] * 2


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_functions_of_every_16_bit_number(dtype):
    """NaN stays NaN and rounding is eager's, whatever the payload; float16 in whole blocks and in a
    rest."""
    x = torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16).view(dtype)
    functions = [
        torch.abs,
        torch.neg,
        torch.relu,
        torch.sigmoid,
        torch.tanh,
        torch.erf,
        torch.exp,
        torch.expm1,
        torch.log,
        torch.log2,
        torch.log1p,
        torch.sqrt,
        torch.rsqrt,
        torch.reciprocal,
        torch.sin,
        torch.cos,
        torch.atan,
        torch.floor,
        torch.round,
        torch.sign,
        torch.frac,
        lambda x: x * x,
        lambda x: (x + 1) * x,
        lambda x: x.flip(0) - x,
        lambda x: torch.maximum(x, x.flip(0)),
        lambda x: x.float() + 1,
    ]

    def f(x):
        return [g(x) for g in functions]

    compiled = minidynamo.compile(f, fullgraph=True)
    for part in (x, x[:-5]):
        for expected, got in zip(f(part), compiled(part), strict=True):
            assert torch.equal(expected.isnan(), got.isnan())
            torch.testing.assert_close(got, expected, equal_nan=True)


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


# ---- copies --------------------------------------------------------------------------------------
