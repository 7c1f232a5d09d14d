"""Dynamic shapes in capture: which sizes become symbols, one compilation for many sizes, guards
that read as Python, refusals."""

import math
import os
import re
import warnings
import sys

import pytest
import sympy
import torch
import torch.nn.functional as F

from record_helpers import last_compiled

import minidynamo
import miniinductor
from minidynamo import frame_hook, records
from minidynamo.exceptions import SpecializationError
from miniinductor.sizes.printing import index_text
from benchmarks.error_bound import too_far


@pytest.fixture(autouse=True)
def fresh():
    minidynamo.reset()
    with minidynamo.config.patch(raise_internal_errors=True):
        yield
    minidynamo.reset()


def compilations():
    return sum(record.graph is not None for record in records.frames)


def same(got, expected):
    if isinstance(expected, torch.Tensor):
        return got.dtype == expected.dtype and (
            torch.equal(got, expected) or got.is_floating_point() and not too_far(got, expected)
        )
    if isinstance(expected, (tuple, list)):
        return (
            type(got) is type(expected)
            and len(got) == len(expected)
            and all(map(same, got, expected))
        )
    return type(got) is type(expected) and got == expected


def sweep(fn, calls, dynamic=True, graphs=1, backend="eager"):
    """Run compiled and plain on every tuple of arguments: equal, in so many compilations."""
    compiled = minidynamo.compile(fn, backend=backend, dynamic=dynamic)
    for args in calls:
        torch.manual_seed(0)
        expected = fn(*args)
        torch.manual_seed(0)
        assert same(compiled(*args), expected), args
    assert compilations() == graphs
    return last_compiled()


def guards(record):
    return [guard.code for guard in record.guards if guard.kind in ("EQUAL", "RANGE", "SIZES")]


def sizes(*shapes):
    return [tuple(torch.randn(shape) for shape in group) for group in shapes]


def test_the_example_of_the_paper():
    def f(x, y):
        z = torch.cat([x, y])
        if z.size(0) > 2:
            return z.mul(2)
        return z.add(2)

    record = sweep(f, sizes([(3,), (4,)], [(9,), (2,)], [(5,), (7,)]))
    assert guards(record) == ["x.shape[0] >= 2", "y.shape[0] >= 2"]
    assert [str(d).partition("    #")[0] for d in record.shape_env.decisions if d.proved][:1] == [
        "s0 + s1 > 2    (always)"
    ]


def test_symbols_are_placeholders_before_the_tensors_that_use_them():
    def f(x, y):
        return torch.cat([x, y]).view(-1, x.shape[1] * 2) + x.shape[0]

    record = sweep(f, sizes([(4, 3), (6, 3)], [(2, 5), (4, 5)]))
    nodes = list(record.graph.graph.nodes)
    assert [n.name for n in nodes if n.op == "placeholder"] == ["s0", "s1", "x", "s2", "y"]
    assert "x.shape[1] == y.shape[1]" in guards(record)
    assert any(re.fullmatch(r"\(\(.*\) % .*\) == 0|\(.* % 2\) == 0", g) for g in guards(record)), (
        guards(record)
    )


def test_a_size_of_one_is_another_graph():
    sweep(
        lambda x, y: x + y,
        sizes([(3, 4), (3, 4)], [(5, 6), (5, 6)], [(5, 6), (1, 6)], [(7, 2), (1, 2)]),
        graphs=2,
    )


def test_automatic_dynamic_takes_two_compilations():
    def f(x):
        return torch.softmax(x, -1).sum(0) / x.shape[0]

    record = sweep(f, sizes(*[[(n, 8)] for n in (4, 5, 6, 9, 17)]), dynamic=None, graphs=2)
    assert guards(record) == ["x.shape[0] >= 2"]  # the other size stays a number
    assert "shape[1] == 8" in str([g.code for g in record.guards])


def test_static_means_static():
    sweep(lambda x: x * 2, sizes(*[[(n,)] for n in (4, 5, 6)]), dynamic=False, graphs=3)


def test_ints_that_change_become_symbols():
    def f(x, n):
        return x[:n] * n + x.shape[0] // n

    x = torch.randn(40)
    record = sweep(f, [(x, n) for n in (3, 5, 6, 11)], dynamic=None, graphs=2)
    assert guards(record) == ["2 <= n <= 40"] and not record.graph_breaks


def test_an_int_attribute_that_counts_calls():
    class Counting(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.calls, self.width = 2, 3

        def forward(self, x):
            self.calls += 1
            return x * self.calls + self.width

    ours, plain = Counting(), Counting()
    compiled = minidynamo.compile(ours, backend="eager")
    for _ in range(6):
        x = torch.randn(3)
        assert (
            torch.equal(compiled(x), plain(x))
            and ours.calls == plain.calls
            and type(ours.calls) is int
        )
    assert compilations() == 2


def test_what_needs_the_number_is_pinned_with_its_line():
    def f(x, n):
        for step in range(x.shape[1]):
            x = x + step
        return x, [n] * n, str(x.shape[0])

    record = sweep(f, [(torch.randn(4, 2), 3)])
    assert {
        name: (value, line.rpartition(":")[2]) for name, (value, line) in record.pinned.items()
    } == {
        "x.shape[1]": (2, str(f.__code__.co_firstlineno + 1)),
        "n": (3, str(f.__code__.co_firstlineno + 3)),
        "x.shape[0]": (4, str(f.__code__.co_firstlineno + 3)),
    }
    assert not any(
        n.op == "placeholder" and n.name.startswith("s") for n in record.graph.graph.nodes
    )


def test_marks():
    def f(x):
        return x.sum(1) + x.shape[0]

    x = torch.randn(4, 5)
    minidynamo.mark_dynamic(x, 0)
    compiled = minidynamo.compile(f, backend="eager")
    assert torch.equal(compiled(x), f(x)) and guards(last_compiled()) == ["x.shape[0] >= 2"]
    compiled(torch.randn(9, 5))
    assert compilations() == 1
    y = torch.randn(3, 6)
    minidynamo.mark_static(y, 1)
    minidynamo.reset()
    minidynamo.compile(f, backend="eager", dynamic=True)(y)
    assert guards(last_compiled()) == ["x.shape[0] >= 2"]


def test_a_marked_size_that_is_needed_as_a_number_is_an_error():
    def f(x):
        return sum(x[i] for i in range(x.shape[0]))

    x = torch.randn(4, 5)
    minidynamo.mark_dynamic(x, 0)
    line = f.__code__.co_firstlineno + 1
    with pytest.raises(
        SpecializationError,
        match=r"x.shape\[0\] was marked dynamic, but "
        rf".*test_dynamic.py:{line} needs it as the number 4",
    ):
        minidynamo.compile(f, backend="eager")(x)


def test_sizes_come_back_as_ints():
    def f(x):
        n = x.shape[0] * 2 + 1
        return (
            x.size(),
            x.shape[0],
            n // 3,
            n / 2,
            x.numel(),
            x.stride(),
            math.sqrt(n),
            len(x),
            x * n,
            -n % 4,
            n**2,
            min(n, 7),
            max(n, x.shape[1]),
        )

    sweep(f, sizes([(4, 6)], [(5, 7)], [(12, 3)]))


def test_arithmetic_stays_symbolic():
    def f(x):
        n, m = x.shape
        scale = (
            (n * m) ** -0.5
            + math.ceil(n / 4)
            + int(n * 0.3)
            + abs(m - n)
            + round(n / 3)
            + divmod(n, 3)[1]
        )
        return x * scale, torch.arange(n + m), x.new_zeros(n // 2, m * 2)

    record = sweep(f, sizes(*[[(n, m)] for n, m in ((4, 6), (5, 7), (12, 3), (8, 8), (33, 2))]))
    assert guards(record)[:2] == ["x.shape[0] >= 2", "x.shape[1] >= 2"]


@pytest.mark.parametrize(
    "number_is_a_size",
    [
        lambda x, n: torch.add(x, x, alpha=n) + torch.sub(x, 1, alpha=n),
        lambda x, n: F.pad(x + 1, (1, 1), value=n),
        lambda x, n: x.scatter(1, (x > 0).long(), n),
        lambda x, n: x.index_add(1, torch.tensor([1, 2]), x[:, :2], alpha=n),
    ],
)
def test_numbers_of_ops_that_are_sizes(number_is_a_size):
    def f(x):
        return number_is_a_size(x * 2, x.shape[0])

    compiled = minidynamo.compile(f, dynamic=True)
    for n in (3, 5):
        x = torch.randn(n, 4)
        torch.testing.assert_close(compiled(x), f(x))


def test_a_branch_is_a_guard_with_the_users_line():
    def f(x, y):
        if x.shape[0] * 2 == y.shape[0]:
            return x.sum() + y.sum()
        return x.sum() - y.sum()

    record = sweep(f, sizes([(4,), (8,)], [(5,), (10,)], [(5,), (11,)], [(6,), (11,)]), graphs=2)
    first = records.frames[0]
    assert (
        guards(first)[-1] == "x.shape[0] * 2 == y.shape[0]"
        and guards(record)[-1] == "x.shape[0] * 2 != y.shape[0]"
    )
    assert [g.line for g in first.guards if g.kind == "SIZES"][0].endswith(
        f"test_dynamic.py:{f.__code__.co_firstlineno + 1}"
    )
    assert "x.shape[0] * 2 == y.shape[0]" in record.recompile_reason.replace("(", "").replace(
        ")", ""
    )


def test_proved_relations_are_no_guards():
    def f(x):
        if (
            x.shape[0] + 1 > 2
            and x.shape[0] * x.shape[1] >= x.shape[1]
            and torch.cat([x, x]).shape[0] == x.shape[0] * 2
        ):
            return x * 2

    record = sweep(f, sizes([(4, 3)], [(2, 9)]))
    assert guards(record) == ["x.shape[0] >= 2", "x.shape[1] >= 2"]
    assert sum(decision.proved for decision in record.shape_env.decisions) >= 2


def test_graph_breaks_with_live_sizes(capsys):
    def f(x):
        n = x.shape[0]
        y = x * n
        print("n")
        return y + n, y.view(n * 2, -1).sum(0), n

    compiled = minidynamo.compile(f, backend="eager", dynamic=True)
    for shape in ((4, 6), (5, 8), (7, 4), (6, 6)):
        x = torch.randn(shape)
        assert same(compiled(x), f(x))
    assert compilations() == 2  # before and after the break


def test_side_effects_with_sizes():
    class Box:
        pass

    def f(x, box, log):
        box.rows = x.shape[0]
        log.append((x.shape[0] + 1, x.shape))
        return x * box.rows

    compiled = minidynamo.compile(f, backend="eager", dynamic=True)
    for n in (3, 5, 8):
        ours, plain, x = (Box(), []), (Box(), []), torch.randn(n, 2)
        assert torch.equal(compiled(x, *ours), f(x, *plain))
        assert same((ours[0].rows, ours[1]), (plain[0].rows, plain[1]))
    assert compilations() == 1


def test_layouts():
    def f(x):
        return x.contiguous().view(-1) * 2, x.t().reshape(-1), x.is_contiguous()

    x = torch.randn
    sweep(f, [(x(3, 4),), (x(5, 7),), (x(9, 2),)])
    minidynamo.reset()
    sweep(f, [(x(3, 4).t(),), (x(5, 7).t(),)])
    minidynamo.reset()
    base = torch.randn(8, 40)
    sweep(lambda x: x * 2, [(base[:, :n],) for n in (3, 5, 9)])  # the stride stays 40
    minidynamo.reset()
    sweep(
        lambda x: x * 2,
        [(torch.randn(8, n)[:, :3],) for n in (10, 12, 15, 16)],
        dynamic=None,
        graphs=2,
    )  # here it changes
    for backend in ("eager", "inductor"):
        minidynamo.reset()
        sweep(
            lambda x: (x * 2).sum(0) + x.t().softmax(0)[:, 0],
            [(torch.randn(7, n)[:, 2:],) for n in (10, 11, 12, 15, 16)],
            backend=backend,
        )


def test_writes_and_gradients():
    def f(x, y):
        x.add_(y.shape[0])
        x[:, 0] = 1
        return (x * y).sum(0)

    compiled = minidynamo.compile(f, backend="eager", dynamic=True)
    for n, m in ((3, 4), (5, 6)):
        a, y = torch.randn(n, m), torch.randn(n, m)
        b = a.clone()
        assert torch.equal(compiled(a, y), f(b, y)) and torch.equal(a, b)
    leaf = [torch.randn(3, 4, requires_grad=True), torch.randn(7, 2, requires_grad=True)]
    g = minidynamo.compile(lambda x: (x * 2).mul_(x.shape[0]).sum(), backend="eager", dynamic=True)
    for x in leaf:
        g(x).backward()
        assert torch.equal(x.grad, torch.full_like(x, 2 * x.shape[0]))


def test_every_size_that_violates_a_guard_compiles_again():
    def f(x):
        return x.sum() if x.shape[0] > 6 else x.prod()

    compiled = minidynamo.compile(f, backend="eager", dynamic=True)
    for n in (3, 6, 7, 2, 9, 1):
        x = torch.rand(n)
        assert torch.equal(compiled(x), f(x))
    assert compilations() == 3 and len(frame_hook.get_cache(f.__code__)) == 3


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_backends(backend):
    layer = torch.nn.Linear(6, 3)

    def f(x):
        return F.gelu(layer(x)).softmax(-1).flatten(1)[:, : x.shape[1]] * x.shape[0]

    compiled = minidynamo.compile(f, backend=backend, dynamic=True)
    with torch.no_grad():
        for n, m in ((3, 4), (5, 7), (2, 9)):
            x = torch.randn(n, m, 6)
            torch.testing.assert_close(compiled(x), f(x))
    assert compilations() == 1


SIZES_BY_FLOATS = {
    "scales": lambda x: (
        x * x.shape[1] ** -0.5,
        x / math.sqrt(x.shape[0]),
        x / float(x.numel()),
        x * (x.shape[0] / 3),
    ),
    "half": lambda x: (x[: int(x.shape[0] / 2)] * 2, x[:, math.ceil(x.shape[1] * 0.3) :] + 1),
    "rounded": lambda x: (
        x.new_zeros(round(x.shape[0] * 1.5), x.shape[1]) + x[:1],
        x.repeat(math.floor(x.shape[0] / 4), 1).sum(0),
    ),
    "interpolated": lambda x: F.interpolate(x[None, None], scale_factor=1.5).relu(),
}


@pytest.mark.parametrize(
    "kernels",
    [
        "cpp",
        pytest.param(
            "triton",
            marks=pytest.mark.skipif(
                os.environ.get("TRITON_INTERPRET") != "1", reason="needs Triton's interpreter"
            ),
        ),
    ],
)
@pytest.mark.parametrize("name", SIZES_BY_FLOATS)
def test_sizes_computed_in_floating_point(name, kernels):
    with miniinductor.config.patch(cpu_backend=kernels):
        record = sweep(
            SIZES_BY_FLOATS[name],
            sizes(*[[(n, m)] for n, m in ((9, 6), (11, 7), (12, 4), (16, 8), (33, 5))]),
            backend="inductor",
        )
    assert record.backend_record.kernels and not record.backend_record.notes_of("runs eagerly")


def test_your_own_backend_gets_symints_and_fakes_and_may_decide():
    seen = []

    def backend(gm, inputs):
        seen.extend(inputs)
        assert inputs[0] > 4  # a decision while compiling
        return gm.forward

    compiled = minidynamo.compile(lambda x: x * x.shape[0], backend=backend, dynamic=True)
    compiled(torch.randn(6))
    assert (
        isinstance(seen[0], torch.SymInt)
        and isinstance(seen[1], torch._subclasses.FakeTensor)
        and str(seen[1].shape) == "torch.Size([s0])"
    )
    assert guards(last_compiled()) == ["x.shape[0] >= 5"]


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_a_divisor_made_of_sizes_is_not_zero(backend):
    """The gradient of a variance has `2 / (n - correction)`: C++ gives infinity where Python
    raises."""

    def gradient(function, n):
        x = torch.arange(n * 4.0).reshape(n, 4).sin().requires_grad_()
        function(x).sum().backward()
        return x.grad

    def f(x):
        return x.var(0, correction=2)

    compiled = minidynamo.compile(f, backend=backend, dynamic=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for n in (3, 2, 4):
            torch.testing.assert_close(gradient(compiled, n), gradient(f, n), equal_nan=True)
    assert len(records.frames) == 2


def test_random_programs():
    """A small `make fuzz-shapes`."""
    sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "sweeps"))
    import shapes

    for seed in range(12):
        found, _, _ = shapes.check(seed, runs=8)
        assert not found, (seed, found, shapes.program(seed))


# ---- numbers and sizes that follow from data
DATA = {
    "mask": lambda x: x[x > 0] * 2,
    "nonzero": lambda x: (x > 0).nonzero().sum(0),
    "size": lambda x: (x[x > 0].shape[0] * 2 + 1, x[x > 0].shape),
    "item": lambda x: x * x.argmax().item() + 1,
    "float item": lambda x: x / x.sum().item() + float(x[0]),
    "int": lambda x: int(x.argmax()) + 2,
    "slice": lambda x: x[: int(x.abs().sum().item())] * 2,
    "repeat_interleave": lambda x: x.repeat_interleave((x > 0).long()) + 1,
    "unique": lambda x: x.unique().flip(0),
    "decision": lambda x: x.sum() if x[x > 0].shape[0] > 2 else x.prod(),
}


@pytest.mark.parametrize("backend", ["eager", "inductor"])
@pytest.mark.parametrize("name", DATA)
def test_what_depends_on_data_breaks_the_graph(name, backend):
    torch.manual_seed(0)
    compiled = minidynamo.compile(DATA[name], backend=backend, dynamic=True)
    for x in (torch.randn(9), torch.randn(9), torch.randn(14)):
        assert same(compiled(x), DATA[name](x))
    assert records.frames[0].graph_breaks[0].kind == "data-dependent"
    with pytest.raises(minidynamo.Unsupported, match="under fullgraph=True: .*\n.*test_dynamic"):
        minidynamo.compile(DATA[name], backend=backend, fullgraph=True)(torch.randn(9))


def test_explain_shows_symbols_questions_and_guards(tmp_path):
    def f(x, y):
        z = torch.cat([x, y])
        return z.mul(2) if z.size(0) > 2 and x.shape[0] * 2 == y.shape[0] else z.add(2)

    e = minidynamo.explain(f, backend="eager", dynamic=True)(torch.randn(3), torch.randn(6))
    assert [row[:4] for row in e.symbols.rows] == [
        ("s0", 3, "x.shape[0]", "2 ..."),
        ("s1", 6, "y.shape[0]", "2 ..."),
    ]
    assert ("s0 + s1 > 2", "always so") == e.decisions.rows[0][:2] and any(
        row[:2] == ("s0 * 2 == s1", "guard") for row in e.decisions.rows
    )
    assert [row[1] for row in e.size_guards.rows if row[0] == "SIZES"] == [
        "x.shape[0] * 2 == y.shape[0]"
    ]
    counts = {
        str(d): minidynamo.explain.compilations(
            f,
            [(torch.randn(n), torch.randn(2 * n)) for n in (2, 3, 4, 5)],
            backend="eager",
            dynamic=d,
        )
        for d in (False, None, True)
    }
    assert counts == {"False": [1, 2, 3, 4], "None": [1, 2, 2, 2], "True": [1, 1, 1, 1]}
    minidynamo.explain.draw_compilations(counts, (2, 3, 4, 5), tmp_path / "sweep.svg")
    with pytest.raises(IndexError, match="2 dimensions has no dimension 2"):
        minidynamo.mark_dynamic(torch.randn(2, 3), 2)


def test_inference_mode_and_inputs_that_follow_from_others():
    with torch.inference_mode():
        sweep(lambda x: x.softmax(-1) * x.shape[0], sizes([(4, 3)], [(5, 7)], [(9, 2)]))
    minidynamo.reset()
    compiled = minidynamo.compile(lambda x: (x * x.shape[0]).sum(0), backend="eager", dynamic=True)
    for n in (4, 5, 9):
        base = torch.randn(n, 12, requires_grad=True)
        compiled((base * 2)[:, ::2]).sum().backward()
        assert base.grad[0, 0] == 2 * n and base.grad[0, 1] == 0
    assert compilations() == 1


def test_a_tensor_where_an_int_was():
    y = torch.randn(3)
    sweep(
        lambda x: y * x,
        [(2,), (torch.randn(3),), (3,), (4,), (torch.randn(3),)],
        dynamic=None,
        graphs=3,
    )


@pytest.mark.parametrize("backend", ["eager", "inductor"])
def test_padding_by_nothing_keeps_strides(backend):
    def f(y, n):
        t = torch.nn.functional.pad(y, (0, n % 3, n % 2, 0))
        return t.stride(0), t

    compiled = minidynamo.compile(f, backend=backend, dynamic=True)
    with torch.no_grad():
        for n in (5, 6, 8, 12, 18):
            y = torch.randn(24, 6).t()
            (stride, got), (expected, want) = compiled(y, n), f(y, n)
            assert (
                stride == expected and got.stride() == want.stride() and torch.equal(got, want)
            ), n


def test_an_f_string_that_is_only_passed_on_pins_nothing():
    def f(x):
        log = [f"{x.shape[0]:>4} rows of {{{x.shape[1] * 2}}}"]
        return log, f"{log[0]}!", isinstance(log[0], str), x * 2

    sweep(f, sizes([(4, 3)], [(5, 3)], [(1000, 7)]))


@pytest.mark.parametrize(
    "use",
    [
        len,
        hash,
        str.upper,
        lambda s: s == "4",
        lambda s: s + "b",
        lambda s: {s: 1},
        lambda s: s[0],
        list,
        bool,
    ],
)
def test_text_that_is_looked_at_pins_the_size(use):
    sweep(lambda x: (use(f"{x.shape[0]}"), x * 2), sizes([(4, 3)], [(5, 3)], [(5, 7)]), graphs=2)


def test_formats_that_may_raise_are_the_programs():
    def f(x):
        try:
            return f"{x.shape[0]:c}", f"{x.shape[0]:q}", x
        except ValueError as error:
            return str(error), x * 2

    sweep(f, sizes([(65, 3)], [(66, 3)]), graphs=2)


def test_the_message_of_an_assertion_that_holds_pins_no_size():
    def f(x):
        torch._assert(x.shape[0] % 2 == 0, f"{x.shape[0]} rows and {x.shape[1]} columns")
        return x.view(2, -1) + 1

    compiled = minidynamo.compile(f, backend="eager", dynamic=True, fullgraph=True)
    for rows, columns in ((4, 5), (6, 7), (8, 3)):
        x = torch.randn(rows, columns)
        assert torch.equal(compiled(x), f(x))
    assert sum(minidynamo.counters["graphs"].values()) == 1
    with pytest.raises(AssertionError, match="5 rows and 3 columns"):
        minidynamo.compile(f, backend="eager", dynamic=True)(torch.randn(5, 3))


@pytest.mark.parametrize("number", [float("nan"), float("inf"), -float("inf")])
def test_symbols_beside_numbers_that_are_not_finite(number):
    """Found by the random programs: the number is pinned."""

    def f(x, n):
        y = x * 2
        return (
            y,
            n + number,
            n * number,
            min(n, number),
            n < number,
            x.shape[0] - number,
            number // n,
        )

    compiled = minidynamo.compile(f, backend="eager", dynamic=True)
    for size in (5, 7, 3):
        assert repr(compiled(torch.ones(size, 2), size)) == repr(f(torch.ones(size, 2), size))


@pytest.mark.parametrize("correction", [0, 1, 1.0, 1.3, 2.5])
@pytest.mark.parametrize("dims", [(1,), None])
def test_variances_are_corrected_by_fractions(correction, dims):
    def f(x):
        return torch.var(x, dims, correction=correction)

    compiled = minidynamo.compile(f, dynamic=True)
    for n in (5, 7):
        x = torch.randn(n, n, 3)
        torch.testing.assert_close(compiled(x), f(x))


def test_a_maximum_of_sizes_is_no_fraction():
    """The kernels' functions of sizes compute with integers: a fraction has no text there."""
    s0 = sympy.Symbol("s0", integer=True, positive=True)
    with pytest.raises(NotImplementedError, match="fraction"):
        index_text(sympy.Max(0, s0 - 1.3))


OF_NUMBERS = {
    "one": lambda x, n, t: x + torch.tensor(n),
    "several": lambda x, n, t: x + torch.tensor([n, 2]),
    "nested, of both kinds": lambda x, n, t: x + torch.tensor([[n, 2.5], [n * 2, n / 2]]),
    "of a dtype": lambda x, n, t: x + torch.tensor((n, 3), dtype=torch.float32),
    "floats": lambda x, n, t: (x + torch.tensor([t, t * 2]), torch.as_tensor([[t], [1]])),
    "another's": lambda x, n, t: x + x.new_tensor([n, t]),
    "of sizes": lambda x, n, t: torch.tensor([x.shape[0], n]) * n,
}


@pytest.mark.parametrize("backend", ["eager", "inductor"])
@pytest.mark.parametrize("name", OF_NUMBERS)
def test_tensors_that_are_made_of_symbols(name, backend):
    function = OF_NUMBERS[name]
    compiled = minidynamo.compile(function, backend=backend)
    for n in (3, 5, 7, 2**53 + 3):
        args = torch.ones(2), n, n / 7
        assert same(compiled(*args), function(*args))
    assert compilations() == 2 and not minidynamo.counters["graph_breaks"]


READ_BACK = {
    "listed": lambda x, n: x + sum(torch.tensor([n, 2]).tolist()),
    "asked": lambda x, n: x + 1 if torch.tensor([n]) > 4 else x,
    "one by one": lambda x, n: x[: int(torch.tensor(n))],
    "too small": lambda x, n: x + torch.tensor(n, dtype=torch.uint8),
}


@pytest.mark.parametrize("name", READ_BACK)
def test_numbers_that_are_read_out_of_a_tensor_again_are_plain(name):
    function = READ_BACK[name]
    compiled = minidynamo.compile(function, backend="eager")
    for n in (3, 5, 7):
        assert same(compiled(torch.ones(9), n), function(torch.ones(9), n))
    assert not minidynamo.counters["graph_breaks"]
