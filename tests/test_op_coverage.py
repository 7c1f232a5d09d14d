"""Lowerings that the op sweep (`make ops`) asked for, at their edges; through the reference
interpreter of the loop IR."""

import pytest
import torch
import torch.nn.functional as F
from front_helpers import check, fallbacks, interpret

from miniinductor import compile_fx

nan, inf = float("nan"), float("inf")


def x_of(*size, dtype=torch.float32):
    torch.manual_seed(0)
    return (torch.randn(*size) * 4).to(dtype)


@pytest.mark.parametrize(
    "padding,ceil_mode,include,divisor",
    [
        (0, False, True, None),
        (1, False, True, None),
        (1, True, False, None),
        (1, True, True, None),
        (1, False, True, 3),
    ],
)
@pytest.mark.parametrize("kernel,stride", [((3, 4), 2), (6, (3, 2))])
def test_average_pools(padding, ceil_mode, include, divisor, kernel, stride):
    check(
        lambda x: F.avg_pool2d(x, kernel, stride, padding, ceil_mode, include, divisor),
        x_of(2, 3, 11, 13),
        native=divisor is None and kernel != 6,
    )


@pytest.mark.parametrize("size", [(1, 1), (7, 7), (3, 5), (4, 13), (11, 1)])
def test_adaptive_pools(size):
    x = x_of(2, 3, 11, 13)
    check(lambda x: F.adaptive_avg_pool2d(x, size), x, native=size == (1, 1))
    check(lambda x: F.adaptive_avg_pool2d(x.bfloat16(), size), x, native=size == (1, 1))


def test_max_pool_counts_only_what_lies_inside():
    x = torch.full((1, 1, 5, 5), -inf)
    check(lambda x: F.max_pool2d(x, 3, 2, 1, return_indices=True), x)
    x[0, 0, 1, 1] = x[0, 0, 1, 2] = nan
    check(lambda x: F.max_pool2d(x, 3, 2, 1, return_indices=True), x)


@pytest.mark.parametrize("reduce", ["sum", "prod", "mean", "amax", "amin"])
@pytest.mark.parametrize("include_self", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.int64], ids=str)
def test_scatter_reduce(reduce, include_self, dtype):
    x, source = x_of(5, 6, dtype=dtype), x_of(4, 6, dtype=dtype)
    index = torch.randint(0, 5, (4, 6))
    check(
        lambda x, i, s: (
            torch.scatter_reduce(x, 0, i, s, reduce, include_self=include_self),
            torch.scatter_reduce(
                x[0, 0], 0, i[0, 0] * 0, s[0, 0], reduce, include_self=include_self
            ),
        ),
        x,
        index,
        source,
        native=include_self and reduce != "mean",
    )


def test_scatter_reduce_compiled():
    """The same through C++; a NaN wins over every number."""
    x, source, index = x_of(5, 6), x_of(4, 6), torch.randint(0, 5, (4, 6))
    source[0, 0] = nan
    gm = torch.fx.symbolic_trace(
        lambda x, i, s: tuple(
            torch.scatter_reduce(x, 0, i, s, r) for r in ("sum", "prod", "amax", "amin")
        )
    )
    compiled = compile_fx(gm, [x, index, source])
    assert not fallbacks(compiled.record)
    for ours, eager in zip(compiled(x, index, source), gm(x, index, source)):
        torch.testing.assert_close(ours, eager, equal_nan=True)


def test_scalars_where_tensors_are_usual():
    x, i = torch.tensor(3.5), torch.tensor(0)
    check(
        lambda x, i: (
            x.softmax(0),
            x.log_softmax(0),
            x.max(0),
            x.argmin(),
            x.gather(0, i),
            x.index_select(0, i),
            x.unfold(0, 1, 1),
            x.scatter(0, i, 2.0),
            torch.linalg.vector_norm(x),
        ),
        x,
        i,
    )
    check(lambda x: (x.max(1), x.min(1), x.argmax(keepdim=True)), x_of(3, 4).round())
    check(lambda x: (x.max(1), x.min(1)), x_of(3, 4) > 0)


def test_nothing():
    x = torch.empty(0, 3)
    check(lambda x: (x.softmax(1), x.log_softmax(0), x.var(0), x.roll(1), x.t().sum(1)), x)


@pytest.mark.parametrize("offset", [-2, 0, 1])
def test_diagonal_scatter(offset):
    x = x_of(4, 3, 5)
    check(lambda x: torch.diagonal_scatter(x, x.diagonal(offset, 0, 2) * 2, offset, 0, 2), x)
    check(lambda x: x.roll(7) + x.roll(-3, 1), x)


def test_multiply_and_add_rounds_once():
    a, b, c = (x_of(50, dtype=torch.bfloat16) + k for k in range(3))
    check(
        lambda a, b, c: (torch.addcmul(a, b, c, value=0.3), torch.addcdiv(a, b, c, value=0.3)),
        a,
        b,
        c,
    )
    check(lambda a, b, c: torch.addcmul(a, b, c, value=2), *(torch.arange(5) + k for k in range(3)))


def test_integer_powers_of_tensors():
    base, exponent = torch.tensor([-3, -1, 0, 1, 2])[:, None], torch.tensor([-2, -1, 0, 1, 5])
    check(lambda a, b: a**b, base, exponent)
    check(lambda a, b: a**b, base.to(torch.int8), exponent.to(torch.int32))


def test_complex_values_are_seen_through_views_and_computed_by_eager_kernels():
    def f(x):
        z = torch.fft.fft2(x)
        return z, F.pad(z, (1, 1)), z.flip(0).abs(), torch.fft.ifft2(z, s=(7, 3)).real

    check(f, x_of(4, 5), native=False)


def test_draws_are_torchs_own_and_no_want_of_a_rule():
    _, record = interpret(lambda x: torch.rand_like(x) + torch.randn(3), [x_of(2, 3)])
    assert {f.kind for f in record.fallbacks} == {"extern"}


# --- found by random graphs (tests/sweeps/graphs.py) ----------------------------------------------
def compiled(function, *args):
    gm = torch.fx.symbolic_trace(function)
    return compile_fx(gm, list(args))(*args)


@pytest.mark.parametrize(
    "copy",
    [
        lambda x: x.repeat(1),
        lambda x: x.roll(8),
        lambda x: x.flip(0).flip(0),
        lambda x: torch.floor(x),
    ],
)
def test_a_copy_in_eager_shares_no_memory(copy):
    x = torch.arange(8)
    (out,) = compiled(lambda x: (copy(x),), x)
    out += 1
    assert torch.equal(x, torch.arange(8))
    first, second = compiled(lambda x: (x * 2, copy(x * 2)), x)
    first += 100
    assert torch.equal(second, torch.arange(8) * 2)


def test_two_inputs_that_change_places():
    def f(x, y):
        t = x.clone()
        x.copy_(y)
        y.copy_(t)
        return x + y

    x, y = torch.zeros(3), torch.ones(3)
    assert (
        torch.equal(compiled(f, x, y), torch.ones(3))
        and torch.equal(x, torch.ones(3))
        and torch.equal(y, torch.zeros(3))
    )


def test_scalars_are_rounded_to_narrow_floats_as_eager_does_it():
    for dtype in (torch.float16, torch.bfloat16):
        x, s, whole = x_of(100, dtype=dtype), torch.tensor(0.3337), torch.arange(100) * 7 + 1
        x[0] = 0.3337
        f = lambda x, s, n: (
            x + s,
            s - x,
            x * s,
            s * x,
            x / s,
            s / x,
            x == s,
            x == 0.3337,
            x * 0.3337,
            0.3337 - x,
            x + n,
            n * x,  # noqa: E731
            torch.maximum(x, s),
            x < n,
        )
        for ours, eager in zip(compiled(f, x, s, whole), f(x, s, whole)):
            assert torch.equal(ours, eager)


def test_a_number_wraps_into_its_dtype():
    x = torch.tensor([3, 200], dtype=torch.uint8)
    assert torch.equal(compiled(lambda x: x < -1, x), x < -1)


def test_an_integer_has_no_negative_zero():
    x = torch.tensor([-0.5, 0.5, -1.5] * 30)
    for dtype in (torch.int64, torch.int32, torch.int8):
        assert torch.equal(compiled(lambda x: 1 / x.to(dtype), x), 1 / x.to(dtype))


def test_a_pool_of_a_value_that_is_stored_later():
    def f(x):
        return F.max_pool2d(x - 1, 2), x - 1, (x - 1).mean((0, 1, 2))

    check(f, x_of(8, 5, 64))


# --- scans and lists ------------------------------------------------------------------------------
@pytest.mark.parametrize("name", ["cumsum", "cumprod", "logcumsumexp"])
@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int32, torch.bool], ids=str
)
def test_scans(name, dtype):
    if name == "logcumsumexp" and not dtype.is_floating_point:
        pytest.skip("eager has none for whole numbers")
    x = (
        x_of(3, 1, 7, 5, dtype=dtype) / 8
        if dtype.is_floating_point
        else x_of(3, 1, 7, 5, dtype=dtype)
    )
    if dtype == torch.float32:
        x[0, 0, 2, 3], x[1, 0, 1, 1] = nan, inf
    f = lambda x: tuple(
        getattr(torch, name)(y, d) for d in range(4) for y in (x, x.transpose(2, 3))
    )  # noqa: E731
    check(f, x)
    for ours, eager in zip(compiled(f, x), f(x)):
        torch.testing.assert_close(
            ours,
            eager,
            rtol=1e-6 if dtype == torch.float32 else None,
            atol=0 if dtype == torch.float32 else None,
            equal_nan=True,
        )


def test_scans_of_odd_shapes_and_over_threads():
    f = lambda x: (
        torch.cumsum(x, 0),
        torch.cumsum(x * 2, 0) + 1,
        torch.cumsum(x.reshape(-1, 8).repeat(1, 2), 1),
        x.cumsum(0).sum(),
    )  # noqa: E731
    for n in (8, 40_000, 100_000):
        x = x_of(n)
        for ours, eager in zip(compiled(f, x)[:3], f(x)[:3]):
            assert torch.equal(ours, eager)
    check(lambda x: (x.cumsum(0), x[0, 0].cumsum(0), x[:0].cumsum(1)), x_of(1, 3))


def test_lists_of_tensors():
    def f(a, b, c, d):
        xs, ys = [a, b], [c, d]
        total = torch._foreach_add(xs, ys, alpha=2)
        torch._foreach_mul_(total, 0.5)
        torch._foreach_lerp_(total, ys, 0.1)
        torch._foreach_addcdiv_(
            total,
            xs,
            torch._foreach_add(torch._foreach_sqrt(torch._foreach_abs(ys)), 1.0),
            [0.1, 0.2],
        )
        torch._foreach_addcmul_(total, xs, ys, value=-2)
        torch._foreach_copy_(ys, xs)
        return (
            *total,
            *torch._foreach_norm(xs),
            *torch._foreach_maximum(xs, ys),
            *torch._foreach_div(xs, [2.0, 3.0]),
        )

    check(f, x_of(5, 3), x_of(7), x_of(5, 3) * 2, x_of(7) * 3)


def test_forms_that_are_rare():
    x, none = x_of(4, 6), torch.empty(0, dtype=torch.int64)
    check(lambda seed: torch.ops.miniinductor.uniform(seed, [3, 5]), torch.tensor([7]))
    check(lambda x: (x.slice_scatter(x[:0], 0, 2, 2), x.roll(5), x.roll(-31), x[:0].roll(1)), x)
    check(lambda x, i: (x.index_put((i,), x[:0]), x.index_copy(0, i, x[:0])), x, none)
    check(lambda x, three: x.index_put((x > 0,), three), x, torch.tensor(3.0))
    check(lambda x: x.diagonal_scatter(x[0, :3], -1), x)


def test_two_inputs_change_places():
    def swap(x, y):
        kept = x.clone()
        x.copy_(y)
        y.copy_(kept)
        return kept + 1

    check(swap, x_of(3, 4), x_of(3, 4) + 1)


def test_the_loop_ir_shows_masks_and_positions():
    table, ids = x_of(9, 4), torch.tensor([1, 8])
    text = compile_fx(
        torch.fx.symbolic_trace(lambda t, i: (torch.cat([t[i], t]),)), [table, ids]
    ).record.loop_ir
    assert "indirect_indexing(" in text and "masked(" in text


@pytest.mark.parametrize("dtype", [torch.int64, torch.float32], ids=str)
def test_a_split_extreme(dtype):
    """Chunks that are cut short are filled up with what loses against every number."""
    from front_helpers import lower

    from miniinductor.gpu.split_reductions import rewrite_reductions
    from miniinductor.extras.interpreter import run_graph

    x = -x_of(131101, dtype=dtype).abs() - 1
    graph, record = lower(lambda x: (x.amax(), x.neg().amin()), [x])
    rewrite_reductions(graph, record)
    assert len(record.notes_of("too few")) == 2
    assert [t.item() for t in run_graph(graph, [x])] == [x.amax().item(), x.neg().amin().item()]


def compiled_call(function, *args):
    """The compiled graph of one call."""
    graph = torch.fx.Graph()
    inputs = [graph.placeholder(f"x{n}") for n in range(len(args))]
    graph.output(graph.call_function(function, tuple(inputs)))
    return compile_fx(torch.fx.GraphModule(torch.nn.Module(), graph), list(args))


def runs_eagerly(compiled):
    return [note for note in compiled.record.notes if note.startswith("runs eagerly")]


@pytest.mark.parametrize(
    "function, x",
    [
        (lambda x: torch.linalg.lstsq(x, x[:, :2], driver="gels"), x_of(4, 3)),
        (lambda x: torch.linalg.lstsq(x, x[:, :2], driver="gelsd").solution, x_of(4, 3)),
        (lambda x: torch.linalg.lstsq(x, x[:, :2], driver="gelsd"), x_of(4, 3)),
    ],
)
def test_questions_about_values(function, x):
    compiled = compiled_call(function, x)
    torch.testing.assert_close(compiled(x), function(x), equal_nan=True)
    assert runs_eagerly(compiled), compiled.record.notes


def test_losses_that_look_at_values():
    x, y, var = x_of(3, 4), x_of(3, 4) * 2, x_of(3, 4).abs() + 0.1
    compiled = compiled_call(F.gaussian_nll_loss, x, y, var)
    assert runs_eagerly(compiled)
    torch.testing.assert_close(compiled(x, y, var), F.gaussian_nll_loss(x, y, var))
    with pytest.raises(ValueError, match="var has negative entry"):
        compiled(x, y, -var)

    def ctc(scores, *others):
        return F.ctc_loss(scores.log_softmax(2), *others)

    lengths = torch.tensor([6, 5]), torch.tensor([3, 2])
    args = x_of(6, 2, 4), torch.tensor([[1, 2, 1], [3, 1, 0]]), *lengths
    compiled = compiled_call(ctc, *args)
    torch.testing.assert_close(compiled(*args), ctc(*args))
