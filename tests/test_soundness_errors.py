"""Errors and values at the edge: what eager raises, zeros' signs, and a sample of the generator."""

import math

import pytest
import torch
import torch.nn.functional as F

import minidynamo
import miniinductor
from tests.soundness import errors, runner
from tests.soundness.modes import MODES
from tests.soundness.tables import lambdas, rows

NAN, INFINITY = float("nan"), float("inf")
three = torch.tensor([1.0, 2.0, 3.0])
grid = torch.arange(8.0).reshape(4, 2)


def positions(*values, dtype=torch.int64):
    return torch.tensor(values, dtype=dtype)


def unsigned(dtype):
    return positions(1, 2, dtype=dtype)


RAISES = {
    name: [eval(cell, globals()) for cell in cells]
    for name, *cells in rows("""
max of nothing :: lambda x: x.max() :: torch.zeros(0)
max of an empty dimension :: lambda x: x.max(0) :: torch.zeros(0, 2)
class too large :: lambda i: F.one_hot(i, 8) :: positions(1, 9)
class negative :: lambda i: F.one_hot(i, 8) :: positions(1, -1)
index_add :: lambda x, i: x.index_add(0, i, x[:2]) :: grid :: positions(1, -1)
index_add of other slices :: lambda x, i: x.index_add(0, i, x[0, :2]) :: grid :: positions(1, 0)
index_copy :: lambda x, i: x.index_copy(0, i, x[:2]) :: grid :: positions(1, -1)
max_unpool :: lambda i: F.max_unpool2d(i * 1.0, i, 2) :: positions(1, 9).view(1, 1, 2)
index_fill :: lambda x, i: x.index_fill(0, i, 1.0) :: grid :: positions(1, 5)
index_select :: lambda x, i: x.index_select(0, i) :: grid :: positions(1, 0, dtype=torch.bool)
one row :: lambda x, i: x[i] :: torch.ones(1, 3) :: positions(0, 5)
scatter into a scalar :: lambda x, i: x.scatter(0, i, 1.0) :: torch.tensor(3.0) :: positions(5)[0]
gather :: lambda x, i: x.gather(0, i) :: three :: positions(5)
singular :: lambda x: torch.linalg.inv(x) :: torch.zeros(3, 3)
singular system :: lambda x: torch.linalg.solve(x, x) :: torch.zeros(3, 3)
not positive definite :: lambda x: torch.linalg.cholesky(x) :: -torch.eye(3)
lu :: lambda x: torch.linalg.lu_factor(x) :: torch.zeros(3, 3)
probability :: lambda x: F.binary_cross_entropy(x, x) :: three
assertion :: lambda x: torch._assert_async(x[0] > 5) :: three
hardshrink of integers :: lambda x: F.hardshrink(x) :: positions(1, 2)
no __round__ :: lambda x: round(x) :: three
no __dict__ :: lambda x: vars([x]) :: three
logit_ of integers :: lambda x: x.logit_() :: positions(1, 2)
margin :: lambda x, i: F.multi_margin_loss(x, i) :: grid :: positions(1, 1, 5, 0)
position in rows of nothing :: lambda x, i: x.index_select(0, i) :: torch.zeros(3, 0) ::
    positions(1, 7)
group_norm of a transposed tensor ::
    lambda x: torch.native_group_norm(x.mT, None, None, 2, 3, 4, 3, 1e-5) :: torch.ones(2, 4, 3)
max_pool3d of channels-last images ::
    lambda x: F.max_pool3d(x.contiguous(memory_format=torch.channels_last), 2) ::
    torch.ones(2, 4, 4, 4)
frac_ of integers :: lambda x: x.frac_() :: positions(1, 2)
upsample_nearest of integers :: lambda x: F.upsample_nearest(x, scale_factor=2) ::
    torch.ones(1, 1, 2, 2, 2, dtype=torch.int64)
out= is expanded ::
    lambda x, out: torch.index_select(x, 1, positions(0, 1), out=out.expand(2, 6)) ::
    torch.ones(3, 6) :: torch.ones(1, 6)
""")
}
RAISES |= {f"add {dtype}": [lambda x: x + x, unsigned(dtype)] for dtype in errors.UNSIGNED}
SIGNS = {
    "-0.0 is not 0": lambda x: x * 0 + -0.0,
    "two zeros": lambda x: (x * 0 + 0.0, x * 0 + -0.0, x * 0.0, x * -0.0),
    "where": lambda x: (torch.where(x > 0, x, 0.0), torch.where(x > 0, x, -0.0)),
    "threshold": lambda x: (F.threshold(x, 0.0, -0.0), x.masked_fill(x > 0, -0.0)),
    "neutral numbers": lambda x: (x + 0.0, x - 0, 0 - x, x * 1, x / 1, x * 0, -(x + 0.0), x - -0.0),
    "sum of one": lambda x: (x[:1].sum(), x[:1].mean(), x.unsqueeze(0).sum(0)),
    "full": lambda x: (torch.full_like(x, 0.0), torch.full_like(x, -0.0)),
    "complex": lambda x: torch.linalg.cross((2 + 3j) * x[1:4], x[2:7:2] + 0j),
}


def error_of(function, tensors):
    with pytest.raises(Exception) as caught:
        function(*[t.clone() for t in tensors])
    return type(caught.value), str(caught.value).split("\n")[0]


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize("name", RAISES)
def test_raises_what_eager_raises(name, backend):
    function, *tensors = RAISES[name]
    wanted = error_of(function, tensors)
    minidynamo.reset()
    with minidynamo.config.patch(raise_internal_errors=True), pytest.raises(Exception):
        minidynamo.compile(function, backend=backend)(*[t.clone() for t in tensors])
    minidynamo.reset()
    with minidynamo.config.patch(raise_internal_errors=False):
        assert error_of(minidynamo.compile(function, backend=backend), tensors) == wanted


def test_what_a_kernel_alone_refuses_is_not_hidden():
    from miniinductor.autograd.eager_graphs import with_eager_errors

    def refuse(x):
        raise IndexError("index out of range in self (in compiled kernel made_up)")

    with pytest.raises(IndexError, match="made_up"):
        with_eager_errors(refuse, torch.fx.symbolic_trace(lambda x: x + 1))(three)


OVERLAPS = {
    "transposed": lambda x: x.add_(x.t()),
    "rows below": lambda x: x[1:].add_(x[:-1]),
    "copy": lambda x: x.clone().flatten()[1:].copy_(x.flatten()[1:]) + x[1:].copy_(x[:-1]).sum(),
    "expanded": lambda x: x[:1].expand(3, 3).add_(1),
    "frac_ of integers": lambda x: x.long().frac_(),
}


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize("name", OVERLAPS)
def test_writes_that_eager_refuses(name, backend):
    x = torch.ones(3, 3)
    wanted = error_of(OVERLAPS[name], [x])
    assert error_of(minidynamo.compile(OVERLAPS[name], backend=backend), [x]) == wanted


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_writes_to_inputs_whose_elements_share_a_place(backend):
    for write in (lambda x: x.add_(1), lambda x: x[1:].mul_(2), lambda x: x.t()[0].add_(1)):
        wanted, given = (torch.arange(5.0).as_strided((3, 3), (1, 1)) for _ in range(2))
        write(wanted)
        minidynamo.compile(write, backend=backend)(given)
        assert torch.equal(given, wanted)


def test_a_batch_norm_of_one_number_a_channel():
    norm = lambda x, m, v: torch.native_batch_norm(x, None, None, m, v, True, 0.1, 1e-5)  # noqa: E731
    wanted, given = ([three[None] * 1, torch.zeros(3), torch.ones(3)] for _ in range(2))
    compiled = miniinductor.compile_fx(torch.fx.symbolic_trace(norm), given)
    pairs = zip((*compiled(*given), *given), (*norm(*wanted), *wanted))
    assert all(torch.equal(a.nan_to_num(7), b.nan_to_num(7)) for a, b in pairs)


# what raises though its result is read in part; i is [1, 7], x has 4 rows
UNREAD = lambdas(
    "x, i",
    globals(),
    """
    index: x[i]; index, part: x[i][:1] + 1;
    bucketize, boundaries of two dimensions: torch.bucketize(i, x.flatten(1));
    index, part of what is made of it: x[i].exp()[:1].sum();
    index, then nothing of it: x[i].expand(0, 2, 2) + 1;
    index, half of a split: x[i].split(1)[0] + 1;
    index, overwritten: torch.slice_scatter(x[i], x[:1], 0, 1, 2); index of an index: x[i[i - 1]];
    constants: torch.zeros(3)[torch.tensor([7])]; index_put: x.clone().index_put_((i,), x[:2]);
    scatter: x.scatter(0, i[:, None], 1.0); take: x.take(i + 4);
    index_fill: x.index_fill(0, i, 1.0); embedding: F.embedding(i, x)[0] * 2;
    nll_loss: F.nll_loss(x[:2], i); margin: F.multi_margin_loss(x[:2], i);
    division: (i // (i - 7))[:1] + 1; singular values: torch.linalg.svd(x * NAN);
    no kernel: i.to(torch.uint16) + i.to(torch.uint16);
    no kernel of several: x.to(torch.complex64).argmax(-1);
    no kernel of that size: F.conv_transpose1d(torch.ones(1, 3, 4).to(torch.uint8),
        torch.ones(3, 3, 3).to(torch.uint8), padding=2);
    transform of nothing: torch.fft.rfft(x[:, :0], dim=0)
    """,
)


@pytest.mark.parametrize("mode", ["aot_eager", "inductor", "inductor-dynamic", "triton"])
@pytest.mark.parametrize("name", UNREAD)
def test_no_check_is_lost(name, mode):
    if mode == "triton" and name == "division":
        return  # a GPU divides by zero
    with MODES[mode].active(), pytest.raises(Exception):
        MODES[mode].compile(UNREAD[name])(grid.clone(), positions(1, 7))


@pytest.mark.parametrize("name", SIGNS)
def test_sign_of_zero(name):
    x = torch.tensor([-0.0, -2.0, 0.0, 3.0, NAN, INFINITY, -INFINITY, 1e-42, -1e-42])
    minidynamo.reset()
    for eager, ours in zip(
        *map(errors.pytree.tree_leaves, (SIGNS[name](x), minidynamo.compile(SIGNS[name])(x)))
    ):
        torch.testing.assert_close(ours, eager, equal_nan=True, rtol=0, atol=0)
        assert not errors.sign_difference([ours], [eager])


def test_generator():
    assert not runner.sample(errors, 9, "eager,aot_eager,inductor", first=3)


ONE = torch.tensor([True, False, True])
TAKES_A_NUMBER = lambdas(
    "n, d",
    globals(),
    """
    full: torch.full((3,), n, dtype=d); full of nothing: torch.full((), n, dtype=d);
    full_like: torch.full_like(torch.zeros(3), n, dtype=d);
    new_full: torch.zeros(3).new_full((2,), n, dtype=d); fill_: torch.zeros(3, dtype=d).fill_(n);
    masked_fill: torch.zeros(3, dtype=d).masked_fill(ONE, n);
    index_fill: torch.zeros(3, dtype=d).index_fill(0, torch.tensor([1]), n);
    scatter: torch.zeros(3, dtype=d).scatter(0, torch.tensor([1]), n);
    pad: F.pad(torch.zeros(3, dtype=d), (1, 1), value=n);
    fill_diagonal_: torch.zeros(3, 3, dtype=d).fill_diagonal_(n);
    clamp: torch.ones(3, dtype=d).clamp(max=n); add: torch.zeros(3, dtype=d) + n;
    hardtanh: F.hardtanh(torch.ones(3, dtype=d), -1, n);
    threshold: F.threshold(torch.ones(3, dtype=d), 0, n);
    alpha: torch.add(torch.ones(3, dtype=d), torch.ones(3, dtype=d), alpha=n);
    addcmul: torch.addcmul(*[torch.ones(3, dtype=d)] * 3, value=n)
    """,
)
TOO_LARGE = [(300, torch.uint8), (-1, torch.uint8), (2**31, torch.int32), (-200, torch.int8)]
TOO_LARGE += [(1e10, torch.float16), (1e39, torch.float32), (1e39, torch.bfloat16)]
TOO_LARGE += [(math.inf, torch.int32), (math.nan, torch.int64), (math.inf, torch.float16)]


@pytest.mark.parametrize("name", TAKES_A_NUMBER)
def test_numbers_that_a_dtype_does_not_hold(name):
    """The same value, or the same error: half().masked_fill(mask, -1e10) raises."""
    for number, dtype in TOO_LARGE:

        def f(x):
            return x + 1, TAKES_A_NUMBER[name](number, dtype)

        x, found = torch.zeros(2), []
        minidynamo.reset()
        for function in (f, minidynamo.compile(f)):
            try:
                found.append(function(x)[1])
            except (RuntimeError, ValueError) as error:
                found.append((type(error), str(error)))
        eager, ours = found
        if isinstance(eager, tuple) or isinstance(ours, tuple):
            assert ours == eager, (number, dtype)
        else:
            torch.testing.assert_close(ours, eager, equal_nan=True)


OPERANDS = [torch.tensor([1, 0, 3]).to(d) for d in (torch.int8, torch.uint8, torch.int32)]
OPERANDS += [torch.tensor([1.0, 0, 3]).to(d) for d in (torch.float16, torch.float32, torch.float64)]
OPERANDS += [torch.tensor([True, False, True])]
OPERAND_NUMBERS = [300, -129, 2**31, 2**40, 2**63, 1e39, 1e5, 1.5, True, math.inf, math.nan]
WITH_A_NUMBER = lambdas(
    "x, n",
    globals(),
    """
    where: torch.where(x > 0, x, n); where of numbers: torch.where(x > 0, n, 0);
    full of its own dtype: torch.full((2,), n);
    scalar_tensor: torch.scalar_tensor(n, dtype=x.dtype); n - x: n - x; x + n: x + n; x < n: x < n;
    alpha: torch.add(x, x, alpha=n); alpha of sub: torch.sub(x, x, alpha=n); clamp: x.clamp(0, n);
    power: x**n; linspace: torch.linspace(0, n, 3, dtype=x.dtype);
    logspace: torch.logspace(0, 1, 3, base=n, dtype=x.dtype);
    masked_fill with a tensor: x.masked_fill(x > 0, torch.tensor(n));
    index_fill with a tensor: x.index_fill(0, torch.tensor([0]), torch.tensor(n));
    nan_to_num: x.nan_to_num(n); xlogy: torch.xlogy(x, n)
    """,
)


@pytest.mark.parametrize("name", WITH_A_NUMBER)
def test_numbers_of_every_kind_beside_tensors_of_every_dtype(name):
    """The same elements in the same dtype, or an error of the same class.  What eager computes is
    compiled as one graph for a dtype, and what it refuses one by one."""
    op, turn = WITH_A_NUMBER[name], [*WITH_A_NUMBER].index(name) % 2
    for x in OPERANDS[turn::2]:
        held, eager = [], []
        for number in OPERAND_NUMBERS:
            try:
                eager.append(op(x, number))
                held.append(number)
            except (RuntimeError, ValueError) as error:
                minidynamo.reset()
                with pytest.raises(type(error)):
                    minidynamo.compile(lambda x, number=number: op(x, number))(x)
        minidynamo.reset()
        with minidynamo.config.patch(raise_internal_errors=True):
            ours = minidynamo.compile(lambda x, held=held: [op(x, n) for n in held])(x)
        torch.testing.assert_close(ours, eager, equal_nan=True)
