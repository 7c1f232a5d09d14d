"""C++ kernels against torch: every op of the vocabulary, all dtypes, irregular shapes, special
values."""

import functools
import math
import re
import shutil
import subprocess
from unittest.mock import patch

import pytest
import torch
import torch.nn.functional as F
from backend_helpers import missing_ops, pointwise, reduce, run
from record_helpers import last_compiled

import minidynamo
import miniinductor.config
from miniinductor.codegen.cpp.expressions import constant_text
from miniinductor.codegen.cpp.kernel_writer import CppKernelWriter
from miniinductor.ir.loops import Pointwise, TensorBox
from miniinductor.ir.ops import BINARY, COMPARISON, UNARY, UNARY_FLOAT, ops
from miniinductor import devices
from miniinductor import toolchain as build
from tests.soundness.tables import lambdas

CPU = torch.device("cpu")
SPECIAL_TEXT = """0.0 -0.0 1.0 -1.0 0.5 -0.5 2.5 -2.5 1e-30 -1e-30 1e-42 88.0 -88.0 1e30 -1e30 104.0
-104.0 3.4e38 inf -inf nan 1e-4 -1e-4 0.9999999 1.0000001 7.9 4.01"""
SPECIAL = torch.tensor([float(number) for number in SPECIAL_TEXT.split()])


@pytest.fixture(autouse=True)
def fixed_seed():
    torch.manual_seed(0)


def test_the_writer_defines_every_op():
    assert missing_ops(CppKernelWriter) == []


def same(got, want, ulps=8, atol=0.0):
    assert got.dtype == want.dtype and got.shape == want.shape
    if not want.dtype.is_floating_point:
        assert torch.equal(got, want)
        return
    eps = torch.finfo(want.dtype).eps
    torch.testing.assert_close(got, want, rtol=ulps * eps, atol=atol, equal_nan=True)


TORCH_UNARY = {**{n: getattr(torch, n) for n in UNARY if hasattr(torch, n)}}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_unary(dtype):
    """All of them in one graph, since building it is what takes time."""
    x = torch.cat([SPECIAL, torch.randn(1823) * 3, torch.rand(781) * 2 - 1]).to(dtype)
    wanted = {op: TORCH_UNARY[op](x) for op in UNARY if op != "bitwise_not"}
    results = {op: torch.bool if w.dtype == torch.bool else dtype for op, w in wanted.items()}
    got, _ = run(lambda b: [pointwise(getattr(ops, op), b, dtype=results[op]) for op in wanted], x)
    for value, (op, want) in zip(got, wanted.items(), strict=True):
        if op in UNARY_FLOAT and dtype is torch.float32:
            exact = TORCH_UNARY[op](x.double()).float()
            known = torch.isfinite(exact) | ~torch.isfinite(want)
            atol = 2e-7 if op in ("sin", "cos", "tan", "lgamma") else 1e-44
            same(value[known], exact[known], ulps=8, atol=atol)
        else:
            same(value, want, ulps=16, atol=1e-14 if op == "lgamma" else 1e-300)
        if results[op].is_floating_point and op not in ("sign", "lgamma"):
            zeros = x == 0
            signs = torch.signbit(value[zeros]), torch.signbit(want[zeros])
            assert torch.equal(*signs) or want[zeros].isnan().all(), f"signed zeros of {op}"


@pytest.mark.parametrize(
    "op,limit",
    [
        *[(op, 1) for op in "exp2 log10 expm1 sinh cosh asin acos atan".split()],
        ("log1p", 0.85),  # subnormals, too
        *[(op, 2) for op in ("exp", "log", "log2", "sin", "cos")],
        *[("tanh", 5), ("erf", 6), ("erfc", 2), ("sigmoid", 3), ("tan", 3)],
    ],
)
def test_accuracy_in_ulp_against_float64(op, limit):
    every_size = torch.randint(-(2**31), 2**31, (200_003,)).int().view(torch.float32)
    every_size = every_size[every_size.isfinite()]
    near_poles = (torch.arange(-41_000, 41_000).double() * (math.pi / 2)).float()
    x = {
        "exp": torch.linspace(-87, 88.5, 200_003),
        "log": torch.rand(200_003) * 10 + 1e-6,
        "log1p": torch.cat([every_size[every_size > -1], torch.rand(100_000) * 4 - 0.999]),
        **dict.fromkeys(("asin", "acos"), torch.rand(100_003) * 2 - 1),
        **dict.fromkeys(("sin", "cos", "tan", "atan"), torch.cat([every_size, near_poles])),
        "exp2": torch.linspace(-149, 127.99, 200_003),
        **dict.fromkeys(
            ("log2", "log10"), torch.cat([every_size.abs(), 1 + torch.randn(1000) / 1e4])
        ),
        # (beyond 88.5 eager has infinities, too)
        **dict.fromkeys(("sinh", "cosh", "sigmoid"), torch.linspace(-88, 88, 200_003)),
    }.get(op, torch.linspace(-9, 9, 200_003))
    (got,), _ = run(lambda b: [pointwise(getattr(ops, op), b)], x)
    exact = getattr(torch, op)(x.double())
    single = exact.float()
    ulp = (torch.nextafter(single.abs(), torch.tensor(math.inf)) - single.abs()).double()
    error = ((got.double() - exact).abs() / ulp)[exact != 0]
    assert error.max() <= limit, f"{op}: {error.max():.2f} ulp at {x[exact != 0][error.argmax()]}"


FLUSHED = 0.0  # results up to here may be 0: test_gpu raises it
POW_ULPS = 1  # on a GPU: CUDA's powf, up to 5


def test_pow_in_ulp_against_float64_and_at_every_special_pair():
    base, exponent = torch.rand(200_003) * 20, torch.randn(200_003) * 20
    (got,), _ = run(lambda b, e: [pointwise(ops.pow, b, e)], base, exponent)
    exact = base.double() ** exponent.double()
    single = exact.float()
    known = single.isfinite() & (single > FLUSHED)
    ulp = (torch.nextafter(single, torch.tensor(math.inf)) - single).double()
    assert ((got.double() - exact).abs() / ulp)[known].max() <= POW_ULPS
    ends = (exact * (1 - 2e-7 * (POW_ULPS - 1))).float().isinf() | (single == 0)
    assert torch.equal(got[ends], single[ends])
    more = torch.tensor([2.0, -2.0, 3.0, -3.0, 2.0**24 + 2, -(2.0**24) + 1, 1e-45, -1e-45])
    special = torch.cat([SPECIAL, more])
    special = special[(special == 0) | ~(special.abs() < FLUSHED)]
    a, b = (t.reshape(-1).contiguous() for t in torch.meshgrid(special, special, indexing="ij"))
    (got,), _ = run(lambda a, b: [pointwise(ops.pow, a, b)], a, b)
    want = (a.double() ** b.double()).float()
    same(got, want, ulps=POW_ULPS, atol=1.5e-45)
    assert torch.equal(torch.signbit(got) & ~want.isnan(), torch.signbit(want) & ~want.isnan())


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("shape", [(4001, 40), (333, 2100), (2, 1500, 33), (1 << 17, 2)])
def test_threads_share_the_columns_of_a_reduction(threads, shape, request):
    """Of equals argmax takes the first."""
    request.addfinalizer(lambda before=torch.get_num_threads(): torch.set_num_threads(before))
    torch.set_num_threads(threads)
    x, axis = torch.randn(shape).round(), len(shape) - 2
    x[..., shape[axis] // 2, -1] = math.nan

    def body(b):
        top = reduce(b, "max", [axis])
        total = reduce(pointwise(lambda v, m: ops.exp(ops.sub(v, m)), b, top), "sum", [axis])
        return [
            pointwise(lambda v, m, s: ops.truediv(ops.exp(ops.sub(v, m)), s), b, top, total),
            reduce(b, "argmax", [axis], dtype=torch.int64),
        ]

    (soft, place), _ = run(body, x)
    torch.testing.assert_close(soft, x.softmax(axis), rtol=1e-5, atol=1e-7, equal_nan=True)
    assert torch.equal(place.squeeze(axis), torch.from_numpy(x.numpy().argmax(axis)))


TORCH_BINARY = {
    "truncdiv": lambda a, b: torch.div(a, b, rounding_mode="trunc"),
    "truediv": torch.true_divide,
    "floordiv": lambda a, b: torch.div(a, b, rounding_mode="floor"),
}


def torch_binary(op):
    return TORCH_BINARY.get(op) or getattr(torch, op)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_binary_float(dtype):
    a, b = torch.meshgrid(SPECIAL, SPECIAL, indexing="ij")
    a = torch.cat([a.flatten(), torch.randn(777)]).to(dtype)
    b = torch.cat([b.flatten(), torch.randn(777)]).to(dtype)
    wanted = {}
    for op in [o for o in BINARY if not o.startswith("bitwise")] + list(COMPARISON):
        wanted[op] = torch_binary(op)(a, b)
        if op in ("fmod", "remainder"):
            wanted[op] = torch_binary(op)(a.double(), b.double()).to(dtype)
    is_tiny = (b != 0) & ((b.abs() < torch.finfo(dtype).tiny) | (a / b).isinf())
    for op, got in zip(wanted, all_of(wanted, a, b), strict=True):
        want = wanted[op]
        if op in ("fmod", "remainder"):  # SLEEF's fmod, as in eager, gives NaN for 1 % 1e-42
            got, want = got[~is_tiny], want[~is_tiny]
        same(got, want, ulps=2, atol=1e-44 if dtype == torch.float32 else 0)


def all_of(wanted, a, b):
    """The operations of {name: eager's result}, in one graph."""
    types = {op: want.dtype for op, want in wanted.items()}
    every = lambda x, y: [pointwise(getattr(ops, o), x, y, dtype=types[o]) for o in types]  # noqa: E731
    return run(every, a, b)[0]


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8])
def test_binary_integer(dtype):
    low, high = (0, 255) if dtype == torch.uint8 else (-120, 120)
    a = torch.randint(low, high, (4001,)).to(dtype)
    b = torch.randint(low, high, (4001,)).to(dtype)
    every = [o for o in BINARY if o not in ("truediv", "atan2", "copysign", "hypot")]
    divisions = ("floordiv", "truncdiv", "remainder", "fmod")
    small = [o for o in every if "shift" in o or o == "pow"]
    plain = [o for o in every + list(COMPARISON) if o not in small and o not in divisions]
    for among, right in ((plain, b), (divisions, b + (b == 0)), (small, b.abs())):
        wanted = {op: torch_binary(op)(a, right) for op in among if op in plain + every}
        for got, want in zip(all_of(wanted, a, right), wanted.values(), strict=True):
            same(got, want)


@pytest.mark.parametrize(
    "op", ["bitwise_and", "bitwise_or", "bitwise_xor", "logical_and", "maximum", "eq", "lt"]
)
def test_binary_bool(op):
    a, b = torch.tensor([True, True, False, False]), torch.tensor([True, False, True, False])
    (got,), _ = run(lambda x, y: [pointwise(getattr(ops, op), x, y)], a, b)
    same(got, torch_binary(op)(a, b))


def test_lowest_integer_by_minus_one_does_not_trap():
    a, b = torch.full((64,), -(2**63)), torch.full((64,), -1)
    (got,), _ = run(lambda x, y: [pointwise(ops.floordiv, x, y)], a, b)
    assert torch.equal(got, a)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_arithmetic_is_float_and_rounds_to_even(dtype):
    x = torch.cat([torch.randn(4099), SPECIAL]).to(dtype)
    (got,), _ = run(lambda b: [pointwise(lambda v: ops.mul(ops.sigmoid(v), v), b)], x)
    same(got, (torch.sigmoid(x.float()) * x.float()).to(dtype), ulps=1.01)
    times_one = lambda v: ops.mul(v, ops.constant(1.0, dtype))  # noqa: E731
    (same_bits,), _ = run(lambda b: [pointwise(times_one, b)], x)
    assert torch.equal(same_bits.isnan(), x.isnan())
    assert torch.equal(same_bits[~x.isnan()], x[~x.isnan()])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_every_float_is_rounded_to_16_bits_as_torch_does(dtype):
    """All signs, exponents and leading bits, with low bits at, next to and between the halves:
    stored, and computed on as a float."""
    edges = [0, 1, 0xFFF, 0x1000, 0x1001, 0x1FFF, 0x2000, 0x3000, 0x7FFF, 0x8000, 0x8001, 0xFFFF]
    x = torch.arange(-(2**15), 2**15)[:, None] * 2**16 + torch.tensor(edges)
    x = x.to(torch.int32).view(torch.float32).flatten()

    def rounded(b):
        narrow = lambda v: ops.to_dtype(v, dtype, torch.float32)  # noqa: E731
        wide = lambda v: ops.to_dtype(narrow(v), torch.float32, dtype)  # noqa: E731
        return [pointwise(wide, b, dtype=torch.float32), pointwise(narrow, b, dtype=dtype)]

    got, _ = run(rounded, x)
    for ours, want in zip(got, (x.to(dtype).float(), x.to(dtype))):
        bits = {4: torch.int32, 2: torch.int16}[ours.itemsize]
        assert torch.equal(ours.isnan(), want.isnan())
        assert torch.equal(ours.nan_to_num(7).view(bits), want.nan_to_num(7).view(bits))


def exact_source(f, *args):
    """The kernels of f, whose results are eager's, bit for bit."""
    minidynamo.reset()
    torch.testing.assert_close(
        minidynamo.compile(f)(*args), f(*args), rtol=0, atol=0, equal_nan=True
    )
    return "".join(k.source for k in last_compiled().backend_record.kernels)


@pytest.mark.parametrize("columns", [1, 16, 37, 100])
def test_float16_lanes_are_converted_together_but_moved_as_they_are(columns):
    """Every code, in rows whose last lanes fill no vector."""
    x = torch.arange(-(2**15), 2**15).short().view(torch.float16)[: 2**16 // columns * columns]
    x = x.view(-1, columns)
    for f in (lambda x: (-x, x * 3.0), lambda x: x.float(), lambda x: x.amax(0)):
        source = exact_source(f, x)
        if columns == 100:
            assert "Widened" in source and "to_float(" not in source
    moved = minidynamo.compile(lambda x: x.t().contiguous().clone())(x)
    assert torch.equal(moved.view(torch.int16), x.t().contiguous().view(torch.int16))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_16_bits_are_rounded_where_bits_are_lost_and_once(dtype):
    a = torch.arange(-(2**15), 2**15).short().view(dtype).view(256, 256)
    b, c = a.flip(0), torch.randn(256, 256).to(dtype)
    for exact in (lambda a: a.clamp(-0.3).abs(), lambda a: torch.where(a > 0, -a, 0.1)):
        source = exact_source(exact, a)
        assert "round_" not in source and "to_bfloat16" not in source
    source = exact_source(lambda a, b: (a - b).abs().amax(1), a, b)  # rounded after the loop
    [term] = re.findall(r"lane0\[k\], (\w+)\)", source)
    [difference] = re.findall(rf"{term} = mini::abs\((\w+)\)", source)
    assert re.search(rf"{difference} = \w+ - \w+;", source)
    exact_source(
        lambda a, b: ((a + b).float().amax(1), (a * b).argmax(1), (a * b).amin(0) + 1), a, b
    )
    exact_source(lambda a: (a * 3 + 1, F.pad(a, (1, 2), value=0.1), a.clamp(max=a.shape[0] + 1)), a)
    centred = lambda a, b: (a + b) - (a + b).mean(1, keepdim=True) * (a + b)  # noqa: E731
    assert source_of(centred, c, c.flip(0)).count("in1[") == 1  # a rounded sum is kept
    source = exact_source(lambda x: (x.t() * 3).contiguous(), c)
    if dtype is torch.float16:
        assert "Widened<16>" in source and "Narrowed<16>" in source


def test_a_nan_with_bits_that_rounding_would_carry_stays_one():
    x = torch.full((64,), 0x7FFFFFFF, dtype=torch.int32).view(torch.float32)
    checked = lambda x: (x.bfloat16(), (x * 2).bfloat16())  # noqa: E731
    plain = lambda x: x.bfloat16() * 2  # noqa: E731
    assert "<false>" not in exact_source(checked, x)
    assert "<false>" in exact_source(plain, x)


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2])
def test_float8_is_made_and_read_as_eager_does(dtype):
    """Every sign, exponent and leading bit, and every code: bit for bit, NaN included."""
    x = (torch.arange(-(2**15), 2**15)[:, None] * 2**16 + torch.tensor([0, 1, 0xFFFF])).int()
    codes = torch.arange(256, dtype=torch.uint8).view(dtype)

    def both(x, codes):
        return x.to(dtype), codes.bfloat16() * 2, codes.double(), codes.to(torch.bool)

    given = x.view(torch.float32), codes
    made, *read = minidynamo.compile(both)(*given)
    assert not minidynamo.records.frames[-1].backend_record.fallbacks
    assert torch.equal(made.view(torch.uint8), given[0].to(dtype).view(torch.uint8))
    torch.testing.assert_close(read, [*both(*given)[1:]], rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.int8, torch.bool])
def test_short_elements_that_lie_apart_are_read_in_words(dtype):
    """Also where memory begins or ends within a word."""
    index = torch.cat([torch.tensor([0, 999]), torch.randint(0, 1000, (999,))])
    gather = lambda x, index: (x[index], x[index].float() * 2)  # noqa: E731
    for x in (torch.randn(1003) * 3).to(dtype).unfold(0, 1000, 1):
        assert "gathered(" in source_of(gather, x, index)
        torch.testing.assert_close(minidynamo.compile(gather)(x, index), gather(x, index))


def test_a_clamped_position_needs_no_check():
    for gather, checks in ((lambda x, i: x[i.clamp(0, 6)] + 1, 0), (lambda x, i: x[i % 7] + 1, 1)):
        source = exact_source(gather, torch.randn(7, 5), torch.randint(-20, 20, (100,)))
        assert ("INDEX_ERROR" in source or "device_assert" in source) == checks


@pytest.mark.parametrize("place", [lambda x: (x > 0).long(), lambda x: torch.where(x > 0, 0, 1)])
def test_a_position_that_is_a_truth_value(place):
    x = torch.randn(70)
    assert torch.equal(minidynamo.compile(lambda x: x[place(x)])(x), x[place(x)])


@pytest.mark.parametrize("permute", [(0, 1, 2), (2, 1, 0), (1, 0, 2), (0, 2, 1)])
def test_strides(permute):
    x, y = (
        torch.randn(33, 65, 70).permute(permute),
        torch.randn([33, 65, 70][permute[0]], [33, 65, 70][permute[1]], [33, 65, 70][permute[2]]),
    )
    (got,), _ = run(lambda a, b: [pointwise(ops.add, a, b)], x, y)
    assert torch.equal(got, x + y)
    (got,), _ = run(lambda a, b: [pointwise(ops.add, a, b)], x[::2, 1:], y[::2, 1:])
    assert torch.equal(got, x[::2, 1:] + y[::2, 1:])


REDUCED = [
    *[((7, 13), dims) for dims in ([1], [0], [0, 1])],
    *[((1823, 781), dims) for dims in ([0], [1], [0, 1])],
    *[(shape, [1]) for shape in ((3, 5, 7), (4, 100_001), (5, 1), (2, 9001, 33), (6, 0), (0, 6))],
    *[(shape, [0]) for shape in ((300_007,), (1, 5), (9000, 3))],
    *[((3, 5, 7), [0, 2]), ((8, 16, 20, 20), [0, 2, 3])],
]


@pytest.mark.parametrize("shape,dims", REDUCED)
def test_sum(shape, dims):
    x = torch.randn(shape)
    (got,), _ = run(lambda b: [reduce(b, "sum", dims)], x)
    exact = x.double().sum(dims, keepdim=True)
    norm = (x.double() ** 2).sum(dims, keepdim=True).sqrt()
    assert ((got.double() - exact).abs() <= 1e-6 * norm + 1e-12).all()


@pytest.mark.parametrize("shape,dims", [c for c in REDUCED if 0 not in c[0]])
def test_other_reductions(shape, dims):
    x = torch.randn(shape)
    near_one, is_large = 1 + 0.01 * x, x > 3.5
    product, found = near_one.double(), is_large
    for d in dims:
        product, found = product.prod(d, keepdim=True), found.any(d, keepdim=True)
    (got,), _ = run(lambda b: [reduce(b, "prod", dims)], near_one)
    torch.testing.assert_close(got, product.float(), rtol=1e-4, atol=1e-6)
    (got,), _ = run(lambda b: [reduce(b, "any", dims)], is_large)
    assert torch.equal(got, found)
    poisoned = x.clone()
    poisoned.view(-1)[x.numel() // 2] = math.nan
    for values in (x, poisoned, torch.full_like(x, -math.inf), torch.full_like(x, math.inf)):
        got, _ = run(lambda b: [reduce(b, "max", dims), reduce(b, "min", dims)], values)
        for ours, function in zip(got, (torch.amax, torch.amin)):
            want = function(values, dims, keepdim=True)
            assert torch.equal(ours.isnan(), want.isnan())
            assert torch.equal(ours.nan_to_num(7), want.nan_to_num(7))


@pytest.mark.parametrize("kind", ["argmax", "argmin"])
@pytest.mark.parametrize(
    "shape,dim",
    [((7, 13), 1), ((7, 13), 0), ((301, 55), 1), ((301, 55), 0), ((100_003,), 0), ((1, 4), 0)],
)
def test_arg_reductions_take_the_first_of_equals_and_nan(kind, shape, dim):
    function = getattr(torch, kind)
    lowest = torch.full(shape, -math.inf if kind == "argmax" else math.inf)
    floats = torch.randn(shape), torch.randint(0, 3, shape).float(), lowest
    for x in (*floats, torch.randint(-2, 2, shape)):
        for poison in (False, True):
            x = x.clone()
            if poison and x.dtype.is_floating_point:
                x.view(-1)[x.numel() // 2] = math.nan
                x.view(-1)[-1] = math.nan
            (got,), _ = run(lambda b: [reduce(b, kind, [dim], dtype=torch.int64)], x)
            values, best = x.gather(dim, got), x.gather(dim, function(x, dim, keepdim=True))
            torch.testing.assert_close(values, best, rtol=0, atol=0, equal_nan=True)
            hits = (x == values) | (x.isnan() & values.isnan())
            assert torch.equal(got, hits.int().argmax(dim, keepdim=True)), "not the first"


@pytest.mark.parametrize("shape", [(50, 33), (5000, 40), (3, 700)])
def test_statistics_over_rows(shape):
    x, statistics = torch.randn(shape), lambda x: (m := x.mean(0), (x - m).square().sum(0))
    found = minidynamo.compile(statistics, fullgraph=True)(x)
    torch.testing.assert_close(found, statistics(x), rtol=1e-4, atol=1e-4)


def test_where_and_masked_do_not_touch_what_the_mask_hides():
    x = torch.randn(100)

    def shifted(b):
        load = b.make_loader()

        def body(index):
            i = index[0]
            inside = ops.lt(ops.index_expr(i, torch.int64), ops.constant(100, torch.int64))
            return ops.masked(inside, lambda: load([i]), -3.0)

        return [TensorBox(Pointwise(CPU, torch.float32, [1_000_000], body))]

    (got,), _ = run(shifted, x)
    assert torch.equal(got[:100], x) and (got[100:] == -3).all()
    y = torch.randn(100)
    larger = lambda v, w: ops.where(ops.gt(v, w), v, w)  # noqa: E731
    (got,), _ = run(lambda a, b: [pointwise(larger, a, b)], x, y)
    assert torch.equal(got, torch.where(x > y, x, y))


def gather(table, index):
    load, at, (rows, width) = table.make_loader(), index.make_loader(), table.get_size()

    def body(i):
        return load([ops.indirect_indexing(at(i[:1]), rows), i[1]])

    return [TensorBox(Pointwise(CPU, table.dtype, [index.get_size()[0], width], body))]


@pytest.mark.parametrize("count", [5, 5000])
def test_indirect_indexing(count):
    table, index = torch.randn(50, 33), torch.randint(-50, 50, (count,))
    (got,), _ = run(gather, table, index)
    assert torch.equal(got, table[index])


@pytest.mark.parametrize("bad", [50, -51, 2**40])
def test_an_index_out_of_range_raises(bad):
    table, index = torch.randn(50, 33), torch.randint(0, 50, (500,))
    index[321] = bad
    with pytest.raises(IndexError, match="out of range"):
        run(gather, table, index)


def test_an_empty_table_raises():
    with pytest.raises(IndexError):
        run(gather, torch.randn(0, 33), torch.zeros(5, dtype=torch.int64))


def test_constants_keep_their_value():
    assert constant_text(math.inf, torch.float32) == "mini::inf"
    assert constant_text(-(2**63), torch.int64) == "(-9223372036854775807LL - 1)"
    for value in (0.1, 1e-45, -0.0, 3.4028234663852886e38, 2.0**-126):
        constant = lambda v: ops.constant(value, torch.float32)  # noqa: B023, E731
        (got,), _ = run(lambda b: [pointwise(constant, b)], torch.zeros(3))
        want = torch.full((3,), value)
        assert torch.equal(got, want) and torch.equal(torch.signbit(got), torch.signbit(want))


# --- switches and instruction sets ----------------------------------------------------------------
def sample(x, y):
    """One of each kind of kernel: pointwise maths, both forms of reductions, stages, transposes,
    argmax."""
    soft = torch.softmax(x, -1)
    pooled = y[:280].view(4, 7, 10, 777)
    return (
        torch.tanh(x) + torch.erf(y) * torch.exp(-x * x),
        torch.sin(x) * torch.cos(y) + torch.log2(y.abs() + 1),
        *(soft, torch.softmax(y, 0), torch.cumsum(y, 0) + y.mean(0), y - y.std(0)),
        *(x.sum(0), x.sum(1), x.sum(), torch.var_mean(x, 1), x.amax(0), x.amax(1), x.argmax(1)),
        *(x.t().contiguous() + 1, torch.fmod(x, 0.3), (x.half() + 1).float()),
        (x.bfloat16() * y.bfloat16()).float(),
        F.layer_norm(soft, (soft.shape[1],)),
        F.batch_norm(pooled, None, None, None, None, True),
    )


def compiled_sample():
    import minidynamo

    minidynamo.reset()
    torch.manual_seed(0)
    x, y = torch.randn(301, 777), torch.randn(301, 777)
    x[3, 5], x[200, 700] = math.nan, 30.0
    return minidynamo.compile(sample)(x, y), sample(x, y)


@pytest.mark.parametrize(
    "switch",
    (
        "vectorize openmp tiling loop_reordering row_reductions "
        "split_reductions fusion inlining buffer_reuse in_place foreach"
    ).split(),
)
def test_a_switch_changes_no_result(switch):
    with miniinductor.config.patch(**{switch: False}):
        torch.testing.assert_close(*compiled_sample(), equal_nan=True, rtol=2e-6, atol=2e-5)


@pytest.mark.parametrize(
    "flags,vectorize",
    [("-mavx2 -mfma -mf16c", True), ("-mavx2 -mfma", False), ("", True), ("", False)],
)
def test_other_instruction_sets(flags, vectorize, monkeypatch):
    """What an AVX2 host, or one without either, compiles: the same numbers."""
    from miniinductor import toolchain as compiler

    if not {"avx2", "fma"} <= {*compiler.cpu_flags()}:
        pytest.skip("this processor has no AVX2")
    native, fewer = compiler.FLAGS, [f for f in compiler.cpu_flags() if "avx512" not in f]
    monkeypatch.setattr(
        compiler,
        "FLAGS",
        (*[f for f in native if f != "-march=native"], "-march=x86-64", *flags.split()),
    )
    monkeypatch.setattr(devices, "cpu_flags", lambda: fewer)
    with miniinductor.config.patch(vectorize=vectorize):
        torch.testing.assert_close(*compiled_sample(), equal_nan=True, rtol=2e-6, atol=2e-5)
        exact_source(lambda x: (x * 3.0, x.amax(0)), torch.randn(9, 37).half())


# what is the same in each row, odd indices, short lanes: function, shapes of its arguments,
# what its kernels have or (not) lack
LANES = {
    "reflect": (lambda x: F.pad(x, (2, 1, 1, 3), mode="reflect"), [(2, 3, 9, 21)], "not error"),
    "replicate": (lambda x: F.pad(x, (2, 1, 1, 3), mode="replicate"), [(2, 3, 9, 21)], "not error"),
    "circular": (lambda x: F.pad(x, (2, 1, 1, 3), mode="circular"), [(2, 3, 9, 21)], None),
    "constant": (lambda x: F.pad(x, (2, 1, 1, 3), value=7.0), [(2, 3, 9, 21)], None),
    "cat": (lambda x, y: torch.cat([x, y, x], -1) * 2, [(9, 21), (9, 17)], None),
    "bilinear": (lambda x: F.interpolate(x, size=(13, 29), mode="bilinear"), [(2, 3, 9, 21)], None),
    "corners": (lambda x: F.interpolate(x, (40, 5), None, "bilinear", True), [(4, 3, 9, 21)], None),
    "bicubic": (lambda x: F.interpolate(x, scale_factor=2, mode="bicubic"), [(1, 2, 9, 12)], None),
    "nearest": (lambda x: F.interpolate(x, size=(13, 29)), [(2, 3, 9, 21)], None),
    "pixel shuffle": (lambda x: F.pixel_shuffle(x, 2), [(2, 8, 9, 21)], None),
    "pairs": (
        lambda x, c: torch.stack([x[..., ::2] * c - x[..., 1::2], x[..., 1::2] * c], -1).flatten(2),
        [(5, 9, 42), (9, 21)],
        "out0[2*r0",
    ),
    "colours": (lambda x, m: x * m + 1, [(4, 25, 3), (3,)], "not r0 < 3;"),
    "colours of pixels": (
        lambda x: F.interpolate(x.permute(0, 3, 1, 2), (20, 29), None, "bilinear", True),
        [(2, 9, 21, 3)],
        "not r0 < 3;",
    ),
    "two of colours": (lambda x, m: (y := torch.exp(x * m), y - m), [(8, 25, 3), (3,)], None),
    "distances": (lambda x, y: (x[:, None] - y).abs().sum(-1), [(9, 3), (70, 3)], "not acc0"),
    "normalized": (lambda x, m, s: (x - m) / s, [(12, 16, 3), (3,), (3,)], None),
    "few rows": (lambda x, m: x * torch.exp(m), [(3, 7, 3), (3,)], None),
    "exp of a row": (lambda x, m: x * torch.exp(m), [(5, 30, 70), (5, 1, 70)], None),
    "columns": (lambda x, y: ((x / y) * (x - torch.exp(y))).sum(0), [(50, 37), (37,)], None),
    "products": (lambda x, y: (x[:, :, None] * y).sum(1), [(35, 19), (19, 37)], "acc0[37]"),
    "batch": (
        lambda x, y: (x[:, :, None] - y[:, None]).prod(-1),
        [(2, 33, 9), (2, 65, 9)],
        "Table",
    ),
    "flipped": (lambda x, y: (x[:, None] - y.flip(1)).amin(-1), [(33, 19), (57, 19)], "Table"),
    "in two": (lambda x, y: torch.logsumexp(x[:, None] * y, -1), [(40, 19), (57, 19)], "Table"),
    "padded": (lambda x, y: (x[:, None] - F.pad(y, (1, 2))).sum(-1), [(33, 19), (35, 16)], None),
    "long rows": (lambda x, y: (x[:, None] - y).sum(-1), [(33, 300), (70, 300)], "not Table"),
}


@pytest.mark.parametrize("name", LANES)
@pytest.mark.parametrize("threads", [1, 3])
def test_lanes_and_rows(name, threads, request):
    function, shapes, expected = LANES[name]
    before = torch.get_num_threads()
    request.addfinalizer(lambda: torch.set_num_threads(before))
    torch.set_num_threads(threads)
    inputs = [torch.randn(s) for s in shapes]
    for inputs in (inputs, [t.to(torch.float64) for t in inputs]):
        compiled = miniinductor.compile_fx(torch.fx.symbolic_trace(function), inputs)
        torch.testing.assert_close(compiled(*inputs), function(*inputs), rtol=1e-5, atol=1e-5)
        source = "".join(k.source for k in compiled.record.kernels)
        if expected and 'extern "C"' in source:
            wanted = not expected.startswith("not ")
            assert (expected.removeprefix("not ") in source.split("{", 1)[1]) == wanted, source


def source_of(function, *inputs) -> str:
    """Of its one kernel."""
    minidynamo.compile(function, fullgraph=True)(*inputs)
    [kernel] = last_compiled().backend_record.kernels
    return kernel.source


def test_what_only_the_lane_decides_is_computed_once():
    """Resampling looks its columns up in arrays that are filled before the outer loops."""
    x, resize = torch.randn(2, 3, 20, 24), lambda x: F.interpolate(x, (37, 41), mode="bilinear")
    before, loops = source_of(resize, x).split("for (int64_t x0", 1)
    assert "to_integer" in before
    assert "to_integer" not in loops[loops.index("for (int64_t r0") :]
    torch.testing.assert_close(minidynamo.compile(resize)(x), resize(x))
    outside = lambda x: x[:, (torch.arange(40) * 1.5).long()]  # noqa: E731
    with pytest.raises(IndexError):
        minidynamo.compile(outside, fullgraph=True)(torch.randn(16, 58))
    x = torch.randn(16, 59)
    torch.testing.assert_close(minidynamo.compile(outside, fullgraph=True)(x), outside(x))


def test_what_only_the_column_decides_is_computed_once():
    """Each channel's deviation lies in an array, which all rows read."""
    x = torch.randn(4, 24, 8, 8).to(memory_format=torch.channels_last)
    norm = lambda x: F.batch_norm(x, None, None, training=True)  # noqa: E731
    *before, rows = source_of(norm, x).split("for (int64_t r0 =")
    assert "mini::rsqrt" in before[-1] and "mini::rsqrt" not in rows
    torch.testing.assert_close(minidynamo.compile(norm)(x), norm(x))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_short_rows_that_are_read_many_times_lie_along_the_columns(dtype):
    """They are copied and converted once; the number of points may be symbolic, or zero."""
    ways = [lambda d: d.square().sum(-1).sqrt(), lambda d: d.abs().amax(-1), lambda d: d.argmin(-1)]
    # (a difference that is rounded, and has several readers, is kept instead)
    distances = lambda d: [way(d) for way in ways[: 3 if dtype.itemsize > 2 else 1]]  # noqa: E731
    minidynamo.reset()
    compiled = minidynamo.compile(lambda x, y: distances(x[:, None] - y), fullgraph=True)
    for many, few in [(40, 33), (57, 21), (1, 38), (33, 1), (0, 20)]:
        x, y = torch.randn(many, 17).to(dtype), torch.randn(few, 17).to(dtype)
        x[:1, 3] = math.nan
        torch.testing.assert_close(compiled(x, y), distances(x[:, None] - y), equal_nan=True)
        if many >= 40:
            [kernel] = last_compiled().backend_record.kernels
            before, loops = kernel.source.split("acc0", 1)
            assert "in1[" in before and "in1[" not in loops


def test_what_turns_its_input_in_memory_is_tiled_beside_a_reduction():
    """Eager's instance norm of a channels-last image lies densely in memory."""
    x = torch.randn(2, 40, 16, 16).to(memory_format=torch.channels_last)
    norm = minidynamo.compile(lambda x: F.instance_norm(x), fullgraph=True)
    torch.testing.assert_close(norm(x), F.instance_norm(x))
    sums, apart = last_compiled().backend_record.kernels
    assert "tile0" in apart.source and "tile0" not in sums.source


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_threads_share_the_rows_of_few_columns(dtype, request):
    request.addfinalizer(functools.partial(torch.set_num_threads, torch.get_num_threads()))
    torch.set_num_threads(3)
    x = torch.randn(7, 24, 41, 40).to(dtype).to(memory_format=torch.channels_last)
    norm = lambda x: torch.sin(F.batch_norm(x, None, None, training=True))  # noqa: E731
    extremes = lambda x: (x.amax((0, 2, 3)), (x > 4).any(0).any(1).any(1), x.sum((0, 2, 3)))  # noqa: E731
    for function in (norm, extremes, lambda x: x.permute(0, 2, 3, 1).flatten(0, 2).argmin(0)):
        minidynamo.reset()
        torch.testing.assert_close(minidynamo.compile(function, fullgraph=True)(x), function(x))
        source = "".join(k.source for k in last_compiled().backend_record.kernels)
        assert ("_share" in source) == ("argmin" not in source)
    minidynamo.compile(lambda x: x.flatten().amax(0))(torch.rand(300_001))
    (kernel,) = last_compiled().backend_record.kernels  # each part has whole groups of lanes:
    assert "/32768*64" in kernel.source


FUNCTIONS = (
    *("exp", "exp2", "log", "log2", "log10", "log1p", "expm1", "tanh", "erf", "erfc", "sigmoid"),
    *("sin", "cos", "tan", "sinh", "cosh", "asin", "acos", "atan", "asinh", "acosh", "atanh"),
    *("sqrt", "rsqrt"),
)
REDUCTIONS = lambdas(
    "x",
    globals(),
    """
    sum: x.sum(-1); prod: x.prod(-1); amax: x.amax(-1); amin: x.amin(-1); argmax: x.argmax(-1);
    any: (x > 2).any(-1); softmax: torch.softmax(x, -1); columns: x.amax(0);
    argmin of columns: x.argmin(0); var: x.var(-1); norm: torch.nn.functional.layer_norm(x, (320,));
    logsumexp: x.logsumexp(-1); mean of all: x.mean(); scan: x.cumsum(-1)
""",
)


@pytest.mark.skipif(shutil.which("g++") is None, reason="asks g++ what it has vectorised")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("reduction", REDUCTIONS)
@patch("miniinductor.languages.build_cpp_kernels", lambda texts: [lambda *args: 0] * len(texts))
def test_every_function_under_every_reduction_becomes_vectors(reduction, dtype, tmp_path):
    """The compiler names the loops of which it made vectors: all that call a function.  The library
    lacks no function of libm (sincos is its one for both), which would be called for one element
    after the other.  All kernels are built together, none before."""
    sources, x = [build.prelude()], torch.rand(40, 320, dtype=dtype)
    named = [(name, getattr(torch, name)) for name in FUNCTIONS]
    named += [("pow", lambda x: x**1.7), ("atan2", lambda x: torch.atan2(x, x + 1))]
    named += [("twice", lambda x: (-x.log()).log()), ("sincos", lambda x: x.sin() + x.cos())]
    named += [("fmod", lambda x: x.remainder(0.3))] if reduction != "scan" else []
    for name, function in named:
        minidynamo.reset()
        minidynamo.compile(lambda x, f=function: REDUCTIONS[reduction](f(x)), fullgraph=True)(x)
        for number, kernel in enumerate(last_compiled().backend_record.kernels):
            sources.append(re.sub(r'("C" int )\w+\(', rf"\1{name}_kernel{number}(", kernel.source))
            # a scan goes element by element: what is costly comes before it
            is_scan = "scan0 =" in kernel.source
            assert not is_scan or not re.search(r"mini::(?!r?sqrt)", kernel.source)
    path, library = tmp_path / "kernels.cpp", tmp_path / "kernels.so"
    path.write_text("\n".join(sources))
    command = [*build.compiler_command(), "-fopt-info-vec-optimized", str(path), "-o", str(library)]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    vectorised = {int(n) for n in re.findall(r"kernels.cpp:(\d+):\d+: optimized: loop vect", said)}
    lines, first = path.read_text().splitlines(), len(sources[0].splitlines())
    loops = [n for n, line in enumerate(lines) if "omp simd" in line and n > first]
    for start, end in zip(loops, [*loops[1:], len(lines)]):
        body = "\n".join(lines[start:end])
        if re.search(r" = mini::\w+\(", body):
            assert vectorised & set(range(start, end + 1)), body
    lacks = subprocess.run(["nm", "-u", str(library)], capture_output=True, text=True, check=True)
    called = {line.split()[-1].split("@")[0] for line in lacks.stdout.splitlines()}
    called -= {"log"} if reduction == "logsumexp" else set()  # once a row, behind its loop
    if reduction != "var":  # which begins with a row's first element
        assert not [name for name, _ in named if {name, f"{name}f"} & called], called
    assert not {"Sleef_expd8_u10", "Sleef_tanhd8_u10"} & called  # they stand in the loop


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_a_running_log_of_exponentials_loses_no_digits(dtype):
    """Also where it is small beside its terms, and after infinities and NaNs."""
    some = (math.inf, -math.inf, math.nan, 0.0, -0.0, 1e-40, 1e-3, 5.0, -1e30, 1e30)
    x = torch.cartesian_prod(*[torch.tensor(some)] * 4)
    x = torch.cat([x, torch.randn(500, 4) * 300, torch.tensor([[0.0, -40, 0, 0]])]).to(dtype)
    running = minidynamo.compile(lambda x: x.logcumsumexp(1), fullgraph=True)
    assert_close = functools.partial(torch.testing.assert_close, rtol=1e-13, atol=1e-300)
    assert_close(running(x), x.logcumsumexp(1), equal_nan=True)
    long = torch.randn(3, 5000, dtype=dtype) * 9
    exact = torch.stack([long.double()[:, :n].logsumexp(1) for n in range(1, 5000, 99)], 1)
    assert_close(running(long)[:, ::99], exact.to(dtype))
    (kernel,) = last_compiled().backend_record.kernels
    assert "_rest" in kernel.source  # beside the largest: a function's result waits for no other


@pytest.mark.parametrize("count", [37, 45, 95, 127, 196])
def test_the_last_lanes_of_a_row_have_accumulators_of_their_own(count):
    """Powers of two: 196 = 3 * 64 + 4."""
    x = torch.randn(3, 5, count)
    x[1, 2, -1] = math.nan
    for axes in (-1, (0, 2)):
        minidynamo.reset()
        every = lambda x: (x.sum(axes), x.amax(axes), (x > 2).any(-1), x.argmax(-1), x.prod(-1))  # noqa: B023, E731
        torch.testing.assert_close(minidynamo.compile(every)(x), every(x), equal_nan=True)
        sources = "".join(k.source for k in last_compiled().backend_record.kernels)
        assert "lane4_0[4]" in sources and not re.search(r"k < (5|13|31|63);", sources)


@pytest.mark.parametrize("groups", [3, 24])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_a_group_norm_of_a_channels_last_image_has_lanes_along_channels(groups, dtype):
    """Each channel's factor and summand are computed before the loop over pixels."""
    x = (torch.randn(2, 24, 9, 8) * 2 + 5).to(dtype).to(memory_format=torch.channels_last)
    norm = lambda x, w: F.group_norm(x, groups, w, w + 1)  # noqa: E731
    arguments = x, torch.randn(24).to(dtype)
    minidynamo.reset()
    found, exact = minidynamo.compile(norm)(*arguments), norm(*(t.double() for t in arguments))
    margin = 1e-5 if dtype is torch.float32 else 2e-2
    torch.testing.assert_close(found.double(), exact, rtol=margin, atol=margin)
    assert found.stride() == norm(*arguments).stride()
    record = last_compiled().backend_record
    assert not record.fallbacks and "rsqrt" not in record.kernels[-1].source


def test_a_mean_lies_in_memory_as_its_input_does():
    """One loop through both axes of the images, which lie there in turn."""
    x = torch.randn(3, 17, 20, 12).transpose(-1, -2)
    centred = lambda x: x - x.mean(1, keepdim=True)  # noqa: E731
    torch.testing.assert_close(minidynamo.compile(centred)(x), centred(x))
    assert "x1 < 240;" in source_of(centred, x)


@pytest.mark.parametrize("width", [16, 32, 48, 72, 112, 120])
def test_short_rows_of_float16(width):
    minidynamo.reset()  # else sizes become symbolic
    x = torch.randn(40, width).to(torch.float16)
    functions = [
        lambda x: x * 2 + 1,
        lambda x: x.amax(-1),
        lambda x: x.argmax(-1),
        lambda x: torch.softmax(x, -1),
        lambda x: x.float().cumsum(-1).sum(-1),
    ]
    for function in functions:
        found = minidynamo.compile(function, fullgraph=True)(x)
        torch.testing.assert_close(found, function(x), rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("dim", [0, 1, 2, 3])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
def test_what_follows_a_sum_of_a_transposed_tensor_is_in_its_kernel(dim, dtype):
    """The sum's loops are in the order of its input's memory, the others in the result's order."""
    x = torch.randn(6, 7, 37, 29).to(dtype).transpose(-1, -2)
    minidynamo.reset()
    found = minidynamo.compile(lambda x: x.sum(dim).sin() * 2)(x)
    torch.testing.assert_close(found, x.sum(dim).sin() * 2, rtol=1e-2, atol=2e-2)
    assert len(last_compiled().backend_record.kernels) == 1
