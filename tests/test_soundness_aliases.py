"""What results share with arguments: what issue 18 found, and a sample of the generator."""

import pytest
import torch

import minidynamo
from tests.soundness import aliases, runner
from tests.soundness.modes import MODES


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_tensor_of_a_tensor_is_a_copy(backend):
    a, b = torch.ones(3), torch.ones(3)
    minidynamo.reset()
    result = minidynamo.compile(lambda a, b: torch.tensor(a).add_(b), backend=backend)(a, b)
    assert torch.equal(a, torch.ones(3)) and torch.equal(result, 2 * torch.ones(3))


@pytest.mark.parametrize("mode", ["eager", "inductor"])
@pytest.mark.parametrize("name", [n for n in aliases.CONVERSIONS if n.startswith(("torch.", "to"))])
def test_conversions(name, mode):
    for write in ("result inside", "argument outside"):
        case = ("conversion", name, "plain", write, "float32")
        assert not runner.attempt(aliases, case, MODES[mode])


def test_generator():
    assert not runner.sample(aliases, 60, "eager,aot_eager,inductor", first=1)
