"""A sample of the programs with overlapping writes, and that the generator can fail."""

import pytest
import torch

import minidynamo
import miniinductor
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
    from miniinductor.runtime import launch

    with writes.poisoned():
        made = launch.empty_cpu((4,), (1,), torch.float32)
    assert bool((made > 1e38).all())


def test_a_scatter_whose_result_nobody_needs():
    """Its kernel only looks at the positions; what it would have written over has a name alone."""

    def f(x, y, z):
        w = x.clone()
        w[torch.tensor([4, 3])] = y
        return z + 1

    x, y, z = torch.ones(5, 2, requires_grad=True), torch.ones(2), torch.ones(7)
    minidynamo.reset()
    with miniinductor.config.patch(buffer_reuse=False):
        with minidynamo.config.patch(raise_internal_errors=True):
            assert torch.equal(minidynamo.compile(f)(x, y, z), z + 1)


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("is_written", [False, True])
def test_places_counted_from_the_start_of_a_memory(backend, dynamic, is_written):
    """The tensor begins inside of its memory, which is larger than it."""

    def f(x, s):
        if is_written:
            x[1, 0:1] = 5
        return torch.as_strided_scatter(x, s, (1,), (2,), 53), torch.as_strided_copy(
            x, (2, 2), (15, 2), 52
        )

    def arguments():
        memory = torch.arange(240, dtype=torch.int16).view(16, 15)
        return memory[3:5, 7:11:2], torch.tensor([-7], dtype=torch.int16)

    minidynamo.reset()
    compiled = minidynamo.compile(f, backend=backend, dynamic=dynamic)
    for got, want in zip(compiled(*arguments()), f(*arguments())):
        assert torch.equal(got, want)


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_a_written_view_lies_in_the_memory_of_which_it_is_a_part(backend):
    def f(x):
        part = (x * 2)[3:5, 7:11:2]
        part.add_(1)
        return part

    x = torch.arange(240.0).view(16, 15)
    minidynamo.reset()
    got, want = minidynamo.compile(f, backend=backend)(x), f(x)
    assert torch.equal(got, want)
    assert (got.stride(), got.storage_offset()) == (want.stride(), want.storage_offset())


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_a_write_through_as_strided_of_what_a_scatter_has_made(backend):
    """The second scatter took the memory of the first, which a later kernel read once more: its
    value was subtracted twice."""

    def f(x, number, row):
        flat = x.clone().flatten()
        flat[torch.tensor([4, 8, 0])] = number
        flat.as_strided((13, 12), (12, 1), 34)[7:13, 0:6] -= row
        return flat

    x, number, row = torch.randn(15, 13), torch.randn(()), torch.randn(6)
    found = minidynamo.compile(f, backend=backend)(x, number, row)
    torch.testing.assert_close(found, f(x, number, row))
