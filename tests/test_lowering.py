"""Every lowering family against eager, through the reference interpreter of the loop IR.

Sizes are irregular; values include NaN, infinities, negatives and zeros; layouts include
transposed, sliced and expanded inputs, empty and size-1 dimensions.
"""

import pytest
import torch
import torch.nn.functional as F
from front_helpers import check, fallbacks, interpret, lower

from tests.soundness.tables import lambdas

FLOATS = [torch.float32, torch.float64, torch.bfloat16, torch.float16]
INTEGERS = [torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8]
nan, inf = float("nan"), float("inf")


def special(dtype=torch.float32):
    """Values that find mistakes."""
    values = "0 -0.0 1 -1 0.5 -0.5 1.5 -1.5 2.5 -2.5 3 -3.7 7.25 nan inf -inf 1e-7 100 -100"
    if not dtype.is_floating_point:
        values = "0 1 -1 2 -2 3 -7 100 -100 127 -128"
    if dtype == torch.uint8:
        values = "0 1 2 3 7 100 5 127 6"
    return torch.tensor([float(value) for value in values.split()]).to(dtype)


def layouts(dtype=torch.float32, shape=(5, 7, 3)):
    """Equal shapes, different memory."""
    torch.manual_seed(0)
    make = lambda *s: (torch.randn(*s) * 4).to(dtype)  # noqa: E731
    a, b, c = shape
    return {
        "contiguous": make(a, b, c),
        "permuted": make(c, a, b).permute(1, 2, 0),
        "sliced": make(2 * a, b + 2, c)[::2, 1:-1],
        "expanded": make(1, b, 1).expand(a, b, c),
        "offset": make(a + 1, b, c)[1:],
    }


# --- pointwise ------------------------------------------------------------------------------------
UNARY_FLOAT = """exp exp2 expm1 log log2 log10 log1p sqrt rsqrt reciprocal sin cos tan asin acos
atan sinh cosh tanh asinh acosh atanh erf erfc lgamma sigmoid""".split()
UNARY_ANY = """neg abs sign floor ceil trunc round sgn square relu isnan isinf logical_not signbit
positive""".split()


@pytest.mark.parametrize("name", UNARY_FLOAT)
@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.bool], ids=str
)
def test_unary_float(name, dtype):
    x = special(dtype) if dtype != torch.bool else torch.tensor([True, False])
    check(lambda x: getattr(torch, name)(x), x)


@pytest.mark.parametrize("name", UNARY_ANY)
@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float16, torch.int64, torch.int8, torch.uint8], ids=str
)
def test_unary_any(name, dtype):
    check(lambda x: getattr(torch, name)(x), special(dtype))


BINARY = """add sub mul div maximum minimum remainder fmod atan2 copysign hypot eq ne lt le gt ge
logical_and logical_or logical_xor fmax fmin pow logaddexp xlogy heaviside""".split()


@pytest.mark.parametrize("name", BINARY)
def test_binary_on_all_pairs_of_special_values(name):
    x = special()
    a, b = x[:, None].expand(-1, len(x)).contiguous(), x[None, :]
    check(lambda a, b: getattr(torch, name)(a, b), a, b, native=name not in ("fmax", "fmin"))


@pytest.mark.parametrize(
    "name", "add sub mul maximum minimum eq lt bitwise_and bitwise_or bitwise_xor".split()
)
@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_binary_integers(name, dtype):
    x = special(dtype)
    check(lambda a, b: getattr(torch, name)(a, b), x[:, None], x[None, :])


@pytest.mark.parametrize("mode", [None, "floor", "trunc"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.int32, torch.uint8], ids=str)
def test_division(mode, dtype):
    a = special(dtype)
    values = [3.0, -2.0, 0.3, -0.7, 0.0, nan] if dtype.is_floating_point else [3, 2, 7]
    b = torch.tensor(values).to(dtype)
    few = dtype is not torch.float32 or mode != "floor"
    check(lambda a, b: torch.div(a, b, rounding_mode=mode), a[:, None], b, native=few)
    check(lambda a, b: torch.div(a, b, rounding_mode=mode), a[:9, None], b)


PROMOTIONS = [
    (torch.int64, torch.float32),
    (torch.bool, torch.int8),
    (torch.uint8, torch.int8),
    (torch.bfloat16, torch.float16),
    (torch.float16, torch.float32),
    (torch.int32, torch.bool),
    (torch.float32, torch.float64),
]


@pytest.mark.parametrize("left,right", PROMOTIONS, ids=str)
@pytest.mark.parametrize("dims", [(1, 1), (1, 0), (0, 1)], ids=str)
def test_type_promotion(left, right, dims):
    given = zip((left, right), dims)
    operands = [torch.tensor([1, 0, 2] if dim else 2).to(dtype) for dtype, dim in given]
    check(lambda a, b: (a * b, a < b, torch.where(a > 0, a, b)), *operands)


@pytest.mark.parametrize("kind", layouts())
def test_layouts(kind):
    x = layouts()[kind]
    check(lambda x: (x * 2 + 1, x.exp().transpose(0, 2) * 3, x[:, 1:, ::2] - 1), x)


@pytest.mark.parametrize(
    "source", [torch.float32, torch.bfloat16, torch.int64, torch.uint8, torch.bool], ids=str
)
@pytest.mark.parametrize(
    "target", [torch.float32, torch.float16, torch.int32, torch.bool, torch.float64], ids=str
)
def test_conversions(source, target):
    x = torch.tensor([0.0, 1.0, 2.7, 100.0]).to(source)
    check(lambda x: x.to(target), x)


ACTIVATIONS = [
    *(F.gelu, F.silu, F.mish, F.elu, F.celu, F.selu, F.hardswish, F.hardsigmoid, F.hardtanh),
    *(F.relu6, F.leaky_relu, F.softplus, F.softsign, F.tanhshrink, F.softshrink, F.hardshrink),
    *(F.logsigmoid, lambda x: F.gelu(x, approximate="tanh")),
    *(lambda x: F.threshold(x, 0.3, 2.0), lambda x: F.glu(x[:18], 0)),
]


@pytest.mark.parametrize("number", range(len(ACTIVATIONS)))
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_activations(number, dtype):
    x = special(dtype)
    if ACTIVATIONS[number] is F.gelu:
        # eager's vectorised gelu gives NaN at infinity; the formula gives the limit
        x = x[~x.isinf()]
    check(ACTIVATIONS[number], x)


# --- reductions -----------------------------------------------------------------------------------
REDUCTIONS = {
    "sum": torch.sum,
    "mean": torch.mean,
    "amax": torch.amax,
    "amin": torch.amin,
    "logsumexp": torch.logsumexp,
    "var": torch.var,
    "std": torch.std,
    "norm": torch.linalg.vector_norm,
}


@pytest.mark.parametrize("name", REDUCTIONS)
@pytest.mark.parametrize("dims", [(0,), (1,), (-1,), (0, 2), (0, 1, 2), (2, 0)], ids=str)
@pytest.mark.parametrize("keepdim", [False, True])
def test_reductions(name, dims, keepdim):
    for x in layouts().values():
        check(lambda x: REDUCTIONS[name](x, dim=dims, keepdim=keepdim), x, strides=False)


@pytest.mark.parametrize(
    "dtype", [torch.int64, torch.int8, torch.bool, torch.bfloat16, torch.float16], ids=str
)
def test_reductions_of_dtypes(dtype):
    x = (torch.arange(35) % 5).view(5, 7).to(dtype)
    check(lambda x: (x.sum(), x.sum(0), x.any(1), x.all(), x.amax(1)), x)
    if dtype != torch.bool:
        check(lambda x: (x.prod(1), x.argmax(0), x.argmin(), x.max(1), x.min(0)), x)


def test_extremes_with_nan_and_ties():
    x = torch.tensor([[1.0, nan, 3.0], [2.0, 2.0, -1.0], [-inf, inf, inf]])
    check(
        lambda x: (x.max(1), x.min(0), x.argmax(1), x.argmin(0), x.amax(), x.max(), x.argmax()), x
    )


@pytest.mark.parametrize("shape", [(0,), (0, 3), (3, 0)], ids=str)
def test_empty(shape):
    x = torch.empty(shape)
    check(lambda x: (x.sum(), x.sum(-1), x.prod(), x.any(), x.all(), x + 1, x.mean()), x)


@pytest.mark.parametrize("dim", [0, 1, -1])
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_softmax(dim, dtype):
    x = layouts(dtype)["permuted"]
    check(lambda x: (F.softmax(x, dim), F.log_softmax(x, dim)), x)
    rows = torch.tensor([[1.0, -inf, 2.0], [-inf, -inf, -inf], [nan, 1.0, 2.0]]).to(dtype)
    check(lambda x: F.softmax(x, dim), rows)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_norms(dtype):
    x, w, b = torch.randn(3, 6, 5, 5).to(dtype), torch.randn(6).to(dtype), torch.randn(6).to(dtype)
    check(lambda x: F.layer_norm(x, (5, 5)), x)
    check(lambda x, w, b: F.group_norm(x, 3, w, b), x, w, b)
    check(lambda x, w, b: F.batch_norm(x, w * 0, w * 0 + 1, w, b), x, w, b)
    check(lambda x: F.rms_norm(x, (5,)), x)


# --- views ----------------------------------------------------------------------------------------
VIEWS = lambdas(
    "x",
    globals(),
    """
    reshape: x.reshape(7, 15); merge: x.reshape(-1); split_dim: x.reshape(5, 7, 3, 1);
    crossing: x.reshape(15, 7); permute: x.permute(2, 0, 1); transpose: x.transpose(0, -1);
    t_reshape: x.transpose(0, 1).reshape(7, -1); slice: x[1:4, ::3, -2:]; select: x[2, :, -1];
    unsqueeze: x.unsqueeze(1); squeeze: x[:, :1].squeeze(1); expand: x[:, :1].expand(-1, 4, -1);
    flip: x.flip(0, 2); roll: x.roll((2, -3), (0, 1)); diagonal: x.diagonal(1, 0, 1);
    unbind: x.unbind(2); split: x.split(2, 0); chunk: x.chunk(3, 1); repeat: x.repeat(2, 1, 3);
    unfold: x.unfold(1, 3, 2); narrow: x.narrow(1, 2, 3); movedim: x.movedim(0, 2); tile: x.tile(2);
    rot90: x.rot90(); unflatten: x.flatten().unflatten(0, (21, 5));
    stack: torch.stack([x, x * 2], 1); cat: torch.cat([x, x[:, :2], -x], 1);
    view_as: x.reshape(105).view(3, 35); pad: F.pad(x, (1, -2, 0, 3), value=-1.0);
    reflect: F.pad(x, (2, 1), mode="reflect"); replicate: F.pad(x, (2, 1), mode="replicate");
    tril: x.tril(1); triu: x.triu(-1);
    pixel_shuffle: F.pixel_shuffle(x.reshape(1, 105, 1, 1)[:, :100], 5)
""",
)


@pytest.mark.parametrize("name", VIEWS)
@pytest.mark.parametrize("kind", ["contiguous", "permuted", "sliced", "expanded"])
def test_views_of_inputs_and_of_values(name, kind):
    x = layouts()[kind]
    check(lambda x: VIEWS[name](x), x, strides=False)  # a view of an input, stored by the test
    leaves = torch.utils._pytree.tree_leaves
    check(lambda x: [v + 1 for v in leaves(VIEWS[name](x * 2))], x, strides=False)


@pytest.mark.parametrize("name", [n for n in VIEWS if n != "pixel_shuffle"])
def test_views_feeding_a_matrix_product(name):
    """An extern kernel takes a view as (size, stride, offset) where its index is affine, a copy
    elsewhere."""

    def program(x):
        parts = torch.utils._pytree.tree_leaves(VIEWS[name](x * 2))
        flat = parts[0].reshape(-1, parts[0].shape[-1])
        return flat @ flat.t()

    check(program, layouts()["contiguous"])


# --- indexing -------------------------------------------------------------------------------------
def test_indexing():
    x, i, j = torch.randn(6, 5, 4), torch.tensor([3, -1, 0]), torch.tensor([[2], [1]])
    check(
        lambda x, i, j: (x[i], x[:, j, :], x[i, :, i], x[j, i], x[:, i][1:], F.embedding(j, x[0])),
        x,
        i % 4,
        j,
    )
    check(lambda x, i: (x[i], x.index_select(0, i % 6), x[:, :, i]), x, i)
    check(lambda x, i: x.gather(1, i), torch.randn(3, 4), torch.tensor([[0, 3], [1, 1], [2, 0]]))


def test_an_index_out_of_range_raises():
    with pytest.raises(IndexError):
        interpret(lambda x, i: x[i], [torch.randn(3), torch.tensor([0, 3])])


def test_scattering():
    x, i = torch.zeros(5, 4), torch.tensor([[0, 1, 2, 0], [2, 0, 0, 1]])
    source = torch.randn(2, 4)
    check(lambda x, i, s: (x.scatter(0, i, s * 2), x.scatter(0, i, 3.0)), x, i, source)
    check(lambda x, i, s: (x.scatter_add(0, i, s), x.amax(1).dot(x[:, 0])), x, i, source)
    check(lambda x, i, s: x.index_add(0, i[0, 1:3], s, alpha=2), x, i, source)
    check(lambda x, i, s: x.index_copy(0, i[0, 1:3], s), x, i, source)
    check(lambda x, i, s: x[0, 0].scatter_add(0, i[0, 0] * 0, s[0]), x, i, source)
    source[0, 0] = float("nan")
    for how in ("sum", "mean", "prod", "amax", "amin"):
        for is_in in (True, False):
            check(
                lambda x, i, s: x.scatter_reduce(0, i, s, how, include_self=is_in), x + 1, i, source
            )
    check(lambda x, i, s: torch.index_put(x, (i[0, :2], i[1, 1:3]), s[0, :2]), x, i, source)
    check(lambda x, i, s: torch.index_put(x, (i[0],), s[:1], accumulate=True), x, i, source)


def test_pooling_and_resampling():
    x = torch.randn(2, 3, 11, 9)
    check(
        lambda x: (
            F.max_pool2d(x, 3, 2, 1),
            F.max_pool2d(x, 2, ceil_mode=True),
            F.avg_pool2d(x, 3, 2),
            F.adaptive_avg_pool2d(x, 1),
            F.max_pool2d(x, 3, 1, 1, return_indices=True)[1],
        ),
        x,
    )


# --- layouts of results, extern kernels -----------------------------------------------------------
def test_results_have_the_strides_of_eager():
    x = torch.randn(2, 3, 5, 7).to(memory_format=torch.channels_last)
    check(
        lambda x: (x * 2, x.contiguous() + 1, (x + 1).transpose(1, 2), x.sum(1, keepdim=True) * x),
        x,
    )


def test_random_numbers_follow_the_generator():
    torch.manual_seed(3)
    check(
        lambda x: (F.dropout(x, 0.3, training=True), torch.rand(4), torch.randn_like(x)),
        torch.randn(50),
        native=False,
    )
    torch.manual_seed(3)  # the first draw is not used
    check(lambda x: (torch.rand(3), x)[1] + torch.rand(5), torch.randn(5), native=False)


def test_an_unknown_op_falls_back_and_is_recorded():
    record = check(lambda x: torch.linalg.inv(x) + 1, torch.eye(3) * 2, native=False)
    assert fallbacks(record) == ["aten.linalg_inv_ex.default: no lowering"]


def test_eager_copies_and_normalizes_float16():
    x = torch.randn(2, 8, 6, 6).half().to(memory_format=torch.channels_last)
    record = check(lambda x: (torch.cat([x, x * 2], -1), F.group_norm(x, 4)), x, native=False)
    assert len(fallbacks(record)) == 2
    check(lambda x: (torch.cat([x, x * 2], -1), F.group_norm(x, 4)), x.to(torch.bfloat16))


def test_complex_numbers_fall_back():
    check(lambda x: torch.view_as_real(torch.polar(x, x)).sum(), torch.rand(4), native=False)


# --- what is stored -------------------------------------------------------------------------------
def test_a_chain_of_pointwise_ops_is_one_buffer():
    graph, _ = lower(lambda x: ((x + 1) * 2).exp().transpose(0, 1) - 3, [torch.randn(4, 5)])
    assert len(graph.operations) == 1


def test_a_linear_layer_copies_nothing():
    """[2, 5, 8] seen as [10, 8] is the same memory: the index is affine again after
    simplification."""
    graph, _ = lower(
        lambda x, w: F.linear(x * 2, w).view(2, 5, 2, 3).transpose(1, 2) + 1,
        [torch.randn(2, 5, 8), torch.randn(6, 8)],
    )
    kinds = " ".join(type(o).__name__ for o in graph.operations)
    assert kinds == "ComputedBuffer ExternKernel ComputedBuffer"


RANGES = [(0, 10, 3), (5, -7, -2), (0, 1e39, 5e38), (1e38, 3e38, 1e38), (2**24, 2**24 + 9, 1)]
RANGES += [(2**53, 2**53 + 8, 1), (-(10**15), 0, 3 * 10**14), (0.5, 9, 2), (0.1, 1, 0.1)]
