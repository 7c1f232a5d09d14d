"""Random numbers and the generators' states are eager's."""

import pytest
import torch
from torch import nn

import minidynamo
from benchmarks.error_bound import assert_near
from tests.soundness import randomness, runner


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize("cls", [nn.GRU, nn.LSTM, nn.RNN])
def test_recurrent_networks_drop_what_eager_drops(cls, backend):
    torch.manual_seed(0)
    model, x = cls(4, 5, num_layers=3, dropout=0.5), torch.randn(6, 2, 4)
    torch.manual_seed(1)
    want, state = model(x)[0], torch.get_rng_state()
    torch.manual_seed(1)
    assert_near(minidynamo.compile(model, backend=backend)(x)[0], want)
    assert torch.equal(state, torch.get_rng_state())


@pytest.mark.parametrize("make", [nn.Linear, nn.GRUCell, nn.Bilinear])
def test_looking_at_a_module_that_a_frame_makes_draws_nothing(make):
    sizes = (2, 3, 4) if make is nn.Bilinear else (2, 3)

    def f(x):
        layer = make(*sizes)
        return x + 1, layer.weight if make is nn.Linear else [*layer.parameters()][0]

    torch.manual_seed(0)
    want, state = f(torch.ones(2)), torch.get_rng_state()
    torch.manual_seed(0)
    assert torch.equal(minidynamo.compile(f, backend="eager")(torch.ones(2))[1], want[1])
    assert torch.equal(state, torch.get_rng_state())


def test_sample():
    assert not runner.sample(randomness, 20, "aot_eager,inductor,eager,inductor-training")
