"""Our compiler behind torch.compile, and torch's backends behind ours: static and symbolic sizes,
training, writes, breaks, GPT-2.

The tours (tour_programs.py) run through both combinations; what is special about the border has
tests of its own.
"""

import functools
import importlib.metadata
import pickle
import tomllib
from pathlib import Path

import pytest
import torch
import torch._dynamo as peer
from torch._dynamo.backends.registry import lookup_backend

import minidynamo
from benchmarks.error_bound import assert_near
from minidynamo import backends
from tests.tour_programs import TOURS

ROOT = Path(__file__).resolve().parent.parent
torch.set_num_threads(2)


class Ours:
    """torch.compile, with miniinductor as its backend; `graphs` has the record of each."""

    def __init__(self) -> None:
        self.graphs = []

    def __call__(self, f, **options):
        return torch.compile(f, backend=self.backend, **options)

    def backend(self, gm, example_inputs, **options):
        made = backends.miniinductor(gm, example_inputs, **options)
        self.graphs.append(getattr(made, "record", None))
        return made


def theirs(f, backend="aot_eager", **options):
    return minidynamo.compile(f, backend=lookup_backend(backend), **options)


@pytest.fixture(autouse=True)
def fresh():
    peer.reset()
    minidynamo.reset()
    minidynamo.counters.clear()
    with minidynamo.config.patch(raise_internal_errors=True):
        yield
    peer.reset()
    minidynamo.reset()


@pytest.fixture(params=["ours", "theirs"])
def compose(request):
    return Ours() if request.param == "ours" else theirs


def check(f, compose, calls, **options):
    """f, compiled, gives for all these arguments what it gives uncompiled, and writes the same."""
    compiled = compose(f, **options)
    for args in calls:
        again = [a.clone() if isinstance(a, torch.Tensor) else a for a in args]
        expected = f(*again)
        torch.testing.assert_close(compiled(*args), expected)
        torch.testing.assert_close(list(args), again)


# --- whole programs -------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "name", sorted(set(TOURS) - {"gpt_forward"})
)  # GPT-2 has a test of its own
def test_the_tours_give_what_eager_gives(name, compose):
    expected = TOURS[name](lambda f, **options: f)
    assert_near(TOURS[name](compose), expected)


def test_gpt2_at_two_lengths(compose):
    transformers = pytest.importorskip("transformers")
    settings = transformers.GPT2Config(n_layer=1, n_embd=32, n_head=4, vocab_size=99)
    settings.use_cache = False
    model = transformers.GPT2LMHeadModel(settings).eval()
    compiled = compose(lambda ids: model(input_ids=ids).logits, dynamic=True)
    with torch.no_grad():
        for length in (7, 12):
            ids = torch.randint(0, 99, (2, length))
            torch.testing.assert_close(compiled(ids), model(input_ids=ids).logits)


def test_training_at_many_sizes(compose):
    net = torch.nn.Sequential(torch.nn.Linear(5, 7), torch.nn.LayerNorm(7), torch.nn.GELU())
    compiled = compose(net, dynamic=False)
    for n in (6, 9, 31):
        x = torch.randn(n, 5, requires_grad=True)
        gradients = [
            torch.autograd.grad(model(x).square().sum(), [x, *net.parameters()])
            for model in (compiled, net)
        ]
        torch.testing.assert_close(*gradients)
    for record in compose.graphs if isinstance(compose, Ours) else ():
        assert record.kernels and record.backward.kernels and not record.backward.notes


# --- sizes and guards -----------------------------------------------------------------------------
def test_a_size_is_a_number_at_the_border_and_guarded():
    """Where torch's backend or one that says so stands behind ours."""
    sizes = []

    @minidynamo.torch_backend
    def noting(gm, example_inputs):
        sizes.append([tuple(x.shape) for x in example_inputs])
        return lookup_backend("inductor")(gm, example_inputs)

    def f(x):
        return torch.softmax(x, -1) * x.shape[0]

    calls = [(torch.randn(*shape),) for shape in ((8, 5), (12, 5), (8, 5), (8, 6))]
    check(f, functools.partial(minidynamo.compile, backend=noting), calls, dynamic=True)
    assert sizes == [[(8, 5)], [(12, 5)], [(8, 6)]]


def test_a_graph_of_torch_compile_with_symbols_runs_eagerly():
    compose = Ours()
    check(
        lambda x: torch.softmax(x, -1),
        compose,
        [(torch.randn(n, 5),) for n in (3, 4)],
        dynamic=True,
    )
    assert compose.graphs == [None]


# --- programs that the border could get wrong -----------------------------------------------------
def test_writes_to_arguments(compose):
    def f(x, out):
        out.add_(x.sum(0))
        x.mul_(2)
        return out[1:]

    calls = [(torch.randn(n, n + 1), torch.zeros(n + 1)) for n in (6, 9, 12)]
    check(f, compose, calls, dynamic=True)


# --- how it is found ------------------------------------------------------------------------------
def test_the_entry_point_names_the_backend():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    points = project["entry-points"]["torch_dynamo_backends"]
    point = importlib.metadata.EntryPoint(
        "miniinductor", points["miniinductor"], "torch_dynamo_backends"
    )
    assert point.load() is backends.miniinductor


@minidynamo.torch_backend
def own_backend(gm, example_inputs):
    return lookup_backend("aot_eager")(gm, example_inputs)


def test_a_marked_backend_keeps_its_name_and_can_be_pickled():
    assert own_backend.__name__ == "own_backend"
    assert pickle.loads(pickle.dumps(own_backend)) is own_backend
    calls = [(torch.randn(n),) for n in (3, 5)]
    check(lambda x: x * 2, functools.partial(minidynamo.compile, backend=own_backend), calls)
