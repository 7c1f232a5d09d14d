"""What results share with arguments: what issue 18 found, and a sample of the generator."""

import pytest
import torch

import minidynamo
import miniinductor
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


@pytest.mark.parametrize("grad", [True, False])
def test_a_view_of_a_result_whose_rule_ends_in_a_view(grad: bool):
    """`stack` is lowered as a view of a `cat`; the program's own view is of the stack alone."""

    def stacked(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        both = torch.stack([x, x])
        return both, both.unfold(0, 2, 1)

    compiled = miniinductor.compile_fx(torch.fx.symbolic_trace(stacked), [torch.randn(3)])
    assert not compiled.record.notes_of("runs eagerly")
    x = torch.randn(3, requires_grad=grad)
    both, view = minidynamo.compile(stacked, fullgraph=True)(x)
    assert view._base is both
    view.mul_(2)
    assert torch.equal(both, torch.stack([x, x]) * 2)
