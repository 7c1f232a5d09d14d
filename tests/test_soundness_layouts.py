"""A sample of the generators of bits, layouts, and changed tensors."""

from tests.soundness import layouts, runner, tensors


def test_operators_on_unusual_layouts():
    assert runner.sample(layouts, 40, "aot_eager", first=3) == []


def test_a_tensor_changes_between_two_calls():
    assert runner.sample(tensors, 60, "eager,aot_eager", first=0) == []
    assert runner.sample(tensors, 6, "inductor", first=100) == []
