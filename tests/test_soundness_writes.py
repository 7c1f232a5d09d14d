"""A sample of the programs with overlapping writes, and that the generator can fail."""

import pytest

from tests.soundness import runner, writes
from tests.soundness.modes import MODES


@pytest.mark.parametrize(
    "modes, count",
    [("inductor", 12), ("aot_eager,aot_eager-training", 24), ("inductor-dynamic", 4)],
)
def test_overlapping_writes(modes, count):
    assert runner.sample(writes, count, modes) == []


@pytest.mark.parametrize("mode", ["inductor", "aot_eager"])
@pytest.mark.parametrize("number", range(-len(writes.KNOWN), 0))
def test_programs_that_were_wrong_once(number, mode):
    assert runner.attempt(writes, number, MODES[mode]) == ""


def test_memory_that_nobody_wrote_shows():
    """With the slice's end forgotten in one element, the pattern comes to light."""
    import torch

    from miniinductor.runtime import program

    with writes.poisoned():
        made = program.empty_cpu()((4,), (1,), torch.float32)
    assert bool((made > 1e38).all())
