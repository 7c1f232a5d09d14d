"""A sample of the programs with overlapping writes, and that the generator can fail."""

import pytest
import torch

from tests.soundness import runner, writes
from tests.soundness.modes import MODES


@pytest.mark.parametrize(
    "modes, count",
    [("inductor", 12), ("aot_eager,aot_eager-training", 24), ("inductor-dynamic", 4)],
)
def test_overlapping_writes(modes, count):
    assert runner.sample(writes, count, modes) == []


def test_programs_that_need_one_edge_condition_or_mask_each():
    """In one mode each; what was wrong once in two."""
    numbers = range(-len(writes.KNOWN), 0)
    cases = [(number, "inductor") for number in numbers]
    cases += [(number, "aot_eager") for number in numbers[:3]]
    reports = [runner.attempt(writes, number, MODES[mode]) for number, mode in cases]
    assert [report for report in reports if report] == []


def test_memory_that_nobody_wrote_shows():
    from miniinductor import toolchain as launch

    with writes.poisoned():
        made = launch.empty_cpu((4,), (1,), torch.float32)
    assert bool((made > 1e38).all())
