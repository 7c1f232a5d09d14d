"""Names of programs, functions that change, replaced functions of torch: samples of generators."""

import pytest
import torch

import minidynamo
from tests.soundness import functions, names, runner

X = torch.arange(4.0) - 1


def test_sample_of_names():
    assert runner.sample(names, 4, "eager,inductor,eager-dynamic") == []


def test_sample_of_functions():
    assert runner.sample(functions, 30, "eager,inductor") == []


@pytest.mark.parametrize("backend", ["eager", "inductor"])
def test_parameters_called_like_what_guards_read(backend):
    def f(x, dtype, type, int, deterministic, inference, memo, leaf, v1, P_Tensor, s0):
        return x * dtype + type + int * deterministic + inference + memo + leaf + v1 + P_Tensor * s0

    minidynamo.reset()
    compiled = minidynamo.compile(f, backend=backend)
    args = [1, 2.5, 3, True, 5, 6, 7, 8, 9, 10]
    for _ in range(3):
        assert torch.equal(compiled(X, *args), f(X, *args))
    assert sum(minidynamo.counters["frames"].values()) == 1


@pytest.mark.parametrize("raising", [True, False])
def test_errors_of_the_program_are_none_of_the_compilers(raising):
    """With `raise_internal_errors`, a graph that has written raises the program's error."""

    def f(x, index):
        x.add_(1)
        return x[index]

    with minidynamo.config.patch(raise_internal_errors=raising), torch.no_grad():
        with pytest.raises(IndexError) as caught:
            minidynamo.compile(f, backend="inductor")(torch.zeros(3), torch.tensor([5]))
    assert not vars(caught.value)


def test_the_programs_default_device_is_not_the_compilers():
    x = torch.ones(3)
    with torch.device("meta"), minidynamo.config.patch(raise_internal_errors=True):
        got = minidynamo.compile(lambda x: x * 0.1)(x)
    assert torch.equal(got, x * 0.1)
