"""Floats that change from call to call where an operation takes a number: two graphs, and eager's
bits in results and gradients."""

import pytest
import torch
import torch.nn.functional as F

import minidynamo

DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16]
# where a value is not valid (eager raises), it is left out
VALUES = (0.31, 0.52, 2.0, 0.5, -1.0, 0.0, -0.0, 3.0, 1e30, 1.0, -2.0, -0.5)
FIRST = torch.tensor([0])

ARITHMETIC = {
    "pow": lambda x, y, v: x**v,
    "rpow": lambda x, y, v: v**x,
    "pow of a number": lambda x, y, v: torch.pow(v, x),
    "float_power": lambda x, y, v: torch.float_power(x, v),
    "lerp": lambda x, y, v: torch.lerp(x, y, v),
    "addcmul": lambda x, y, v: torch.addcmul(x, x, y, value=v),
    "addcdiv": lambda x, y, v: torch.addcdiv(x, x, y, value=v),
    "methods": lambda x, y, v: (x.addcmul(x, y, value=v), x.addcdiv(x, y, value=v)),
    "lists": lambda x, y, v: torch._foreach_addcmul([x, y], [y, y], [x, x], value=v),
    "rsub": lambda x, y, v: torch.rsub(x, y, alpha=v),
    "xlogy": lambda x, y, v: torch.xlogy(x, v),
    "xlog1py": lambda x, y, v: torch.special.xlog1py(x, v),
    "copysign": lambda x, y, v: torch.copysign(x, v),
    "nan_to_num": lambda x, y, v: torch.nan_to_num(x, v),
    "isclose": lambda x, y, v: torch.isclose(x, y, atol=v),
    "index_add": lambda x, y, v: x.index_add(0, FIRST, y[:1], alpha=v),
    "filled": lambda x, y, v: (torch.full_like(x, v) * y, x.new_full((2,), v)),
    "parts": lambda x, y, v: (F.pad(x, (1, 1), value=v), x.index_fill(0, FIRST, v)),
}
PRODUCTS = {
    "addmm": lambda x, y, v: (torch.addmm(x, x, y, alpha=v), torch.addmm(x, x, y, beta=v)),
    "baddbmm": lambda x, y, v: torch.baddbmm(x[None], x[None], y[None], alpha=v),
    "addr": lambda x, y, v: torch.addr(x, x[0], y[1], alpha=v),
    "attention": lambda x, y, v: F.scaled_dot_product_attention(x[None], y[None], y[None], scale=v),
}
ACTIVATIONS = {
    "leaky_relu": lambda x, y, v: F.leaky_relu(x, v),
    "elu": lambda x, y, v: F.elu(x, v),
    "celu": lambda x, y, v: F.celu(x, v),
    "softplus": lambda x, y, v: F.softplus(x, v),
    "hardtanh": lambda x, y, v: F.hardtanh(x, -abs(v), abs(v)),
    "threshold": lambda x, y, v: F.threshold(x, v, v),
    "softshrink": lambda x, y, v: F.softshrink(x, abs(v)),
    "hardshrink": lambda x, y, v: F.hardshrink(x, v),
    "rrelu": lambda x, y, v: F.rrelu(x, v / 9, v),
}
OTHERS = {
    "in place": lambda x, y, v: (x.clone().lerp_(y, v), x.clone().pow_(v)),
    "as a tensor": lambda x, y, v: x * torch.tensor(v),
    "norm": lambda x, y, v: torch.norm(x, v),
    "normalize": lambda x, y, v: F.normalize(x, eps=v),
    "renorm": lambda x, y, v: torch.renorm(x, 2, 0, v),
    "cdist": lambda x, y, v: torch.cdist(x, y, v),
    "layer_norm": lambda x, y, v: F.layer_norm(x, (4,), eps=v),
    "rms_norm": lambda x, y, v: F.rms_norm(x, (4,), eps=v),
    "losses": lambda x, y, v: (F.huber_loss(x, y, delta=v), F.smooth_l1_loss(x, y, beta=abs(v))),
    "quantile": lambda x, y, v: torch.quantile(x, v),
    "linspace": lambda x, y, v: x + torch.linspace(0.0, v, 4, dtype=x.dtype),
}
OPERATIONS = ARITHMETIC | PRODUCTS | ACTIVATIONS | OTHERS
DROPOUTS = (0.31, 0.52, 0.5, 0.77)


@pytest.fixture(autouse=True)
def fresh():
    minidynamo.reset()


def surrounded(operation):
    """The operation between others, which are exact, and are compiled."""

    def function(x, y, value):
        made = operation(x + 1, y + 1, value)
        if isinstance(made, (tuple, list)):
            return tuple(part * 2 for part in made)
        return (made * 2,)

    return function


def outcome(function, value, dtype):
    """Results and gradients, or None where eager raises."""
    torch.manual_seed(0)
    x, y = (torch.randn(4, 4).to(dtype).requires_grad_() for _ in range(2))
    results = function(x, y, value)
    sums = [result.sum() for result in results if result.requires_grad]
    gradients = torch.autograd.grad(sums, [x, y], allow_unused=True) if sums else ()
    return [*results, *(g for g in gradients if g is not None)]


def expected(function, value, dtype):
    try:
        return outcome(function, value, dtype)
    except (RuntimeError, ValueError, ZeroDivisionError):
        return None


def same_bits(found, plain):
    assert found.dtype == plain.dtype and found.stride() == plain.stride()
    assert found.requires_grad == plain.requires_grad
    assert torch.equal(found.isnan(), plain.isnan())
    bits = [t.detach().nan_to_num().reshape(-1).view(torch.uint8) for t in (found, plain)]
    assert torch.equal(*bits)


def check(operation, backend, dtype, values=VALUES):
    """From the second graph on: the first has the number in its kernels."""
    function, graph_count = surrounded(operation), minidynamo.counters["graphs"]
    before, compiled = graph_count.total(), minidynamo.compile(function, backend=backend)
    for value in values:
        plain = expected(function, value, dtype)
        if plain is None:
            continue
        found = outcome(compiled, value, dtype)
        if graph_count.total() - before > 1 or backend != "inductor":
            for pair in zip(found, plain, strict=True):
                same_bits(*pair)
    assert graph_count.total() - before <= 2
    assert minidynamo.counters["graph_breaks"].total() == 0


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", OPERATIONS)
def test_a_float_that_changes_is_read(name, dtype, backend):
    check(OPERATIONS[name], backend, dtype)


@pytest.mark.parametrize("backend", ["eager", "inductor"])
def test_dropout_has_eagers_random_numbers(backend):
    check(lambda x, y, v: F.dropout(x, v), backend, torch.float32, DROPOUTS)


@pytest.mark.parametrize("backend", ["eager", "inductor"])
def test_dropout_of_nothing_gives_its_argument(backend):
    compiled = minidynamo.compile(lambda x, v: F.dropout(x, v), backend=backend)
    x = torch.randn(4)
    for value in (0.5, 0.3, 0.0):
        found = compiled(x, value)
    assert found is x


def test_infinities_have_graphs_of_their_own():
    compiled = minidynamo.compile(lambda x, v: torch.nan_to_num(x, v), backend="eager")
    x = torch.tensor([1.0, float("nan")])
    for value in (0.5, 0.3, float("inf"), 0.7, float("inf")):
        assert torch.equal(compiled(x, value), torch.nan_to_num(x, value))
    assert minidynamo.counters["graphs"].total() == 3


def test_what_writes_in_place_keeps_its_numbers():
    compiled = minidynamo.compile(lambda x, v: F.elu(x, v, inplace=True), backend="eager")
    for value in (0.5, 0.3, 0.7):
        x = torch.linspace(-2, 2, 9)
        assert torch.equal(compiled(x.clone(), value), F.elu(x, value))
    assert minidynamo.counters["graphs"].total() == 3


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_pieces_know_whether_gradients_are_recorded(backend, caplog):
    def function(x, v):
        with torch.no_grad():
            y = F.leaky_relu(x.sin(), v) + 1
        return y * x, y

    compiled = minidynamo.compile(function, backend=backend)
    for value in (0.5, 0.3, 0.7):
        x = torch.randn(4, requires_grad=True)
        found, plain = compiled(x, value), function(x, value)
        torch.testing.assert_close(found, plain)
        assert [t.requires_grad for t in found] == [True, False]
        gradients = [torch.autograd.grad(made[0].sum(), x) for made in (found, plain)]
        torch.testing.assert_close(*gradients)
    assert "runs eagerly" not in caplog.text


def only_tensors(gm, example_inputs):
    """A backend that knows nothing of numbers."""
    if any(node.target == "item" for node in gm.graph.nodes):
        raise NotImplementedError("item()")
    return gm.forward


def test_backends_that_cannot_read_get_pieces():
    compiled = minidynamo.compile(lambda x, v: F.celu(x.sin(), v) + 1, backend=only_tensors)
    x = torch.randn(4)
    for value in (0.5, 0.3, 0.7):
        assert torch.equal(compiled(x, value), F.celu(x.sin(), value) + 1)
    assert minidynamo.counters["graphs"].total() == 2


@pytest.mark.parametrize("name", ["addcmul_", "addcdiv_"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_sixteen_bits_that_are_written_are_rounded_once(name, dtype):
    """Eager's kernel multiplies and adds in float32; of addcmul_ it may do so in one step."""
    torch.manual_seed(0)
    x, a, b = (torch.randn(300, 200).to(dtype) for _ in range(3))
    compiled = minidynamo.compile(lambda x, v: getattr(x, name)(a, b, value=v) * 1, backend="eager")
    for value in (0.31, 0.52, 0.77):
        plain = getattr(x.clone(), name)(a, b, value=value)
        assert (compiled(x.clone(), value) != plain).sum() < 60
    assert minidynamo.counters["graphs"].total() == 2
