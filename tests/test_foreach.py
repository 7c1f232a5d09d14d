"""Kernels that write in place, and many alike kernels as one: right numbers, and when it must not
happen."""

import copy

import pytest
import torch

import minidynamo
import miniinductor
from benchmarks.error_bound import assert_near
from miniinductor import compile_fx


def compiled_like_eager(function, *args, kernels=None, grad=False, **options):
    """Run both on copies of `args`; results and mutated arguments agree.  Returns the compiled
    graph's record."""
    records = []

    def backend(gm, inputs):
        compiled = compile_fx(gm, inputs)
        records.append(compiled.record)
        return compiled

    minidynamo.reset()
    ours, theirs = copy.deepcopy(args), copy.deepcopy(args)
    with torch.set_grad_enabled(grad), miniinductor.config.patch(**options):
        compiled = minidynamo.compile(function, backend=backend)
        for _ in range(2):
            assert_near(compiled(*ours), function(*theirs))
            assert_near(ours, theirs)
    [record] = records
    if kernels is not None:
        assert len(record.kernels) == kernels, [k.source for k in record.kernels]
    return record


SHAPES = [(64, 33), (33,), (1,), (), (7, 3, 5), (40_000,)]


def tensors(count, shapes=SHAPES):
    generator = torch.Generator().manual_seed(0)
    return [[torch.rand(s, generator=generator) + 0.5 for s in shapes] for _ in range(count)]


def momentum(params, gradients, buffers):
    for p, g, b in zip(params, gradients, buffers):
        b.mul_(0.9).add_(g)
        p.add_(b, alpha=-0.1)


def adam(params, gradients, first, second):
    torch._foreach_lerp_(first, gradients, 0.1)
    torch._foreach_mul_(second, 0.99)
    torch._foreach_addcmul_(second, gradients, gradients, 0.01)
    denominator = torch._foreach_add(torch._foreach_sqrt(second), [1e-8] * len(second))
    torch._foreach_addcdiv_(params, first, denominator, -0.01)


@pytest.mark.parametrize("step,state", [(momentum, 3), (adam, 4)])
def test_an_optimizers_step_is_a_kernel_for_arrays_and_one_for_single_elements(step, state):
    record = compiled_like_eager(step, *tensors(state), kernels=2)
    assert ".copy_(" not in record.wrapper_source and "empty_strided" not in record.wrapper_source
    assert record.notes_of("one kernel for")


@pytest.mark.parametrize(
    "switch", ["foreach", "in_place", "openmp", "vectorize", "fusion", "inlining", "buffer_reuse"]
)
def test_each_switch_gives_the_same_numbers(switch):
    record = compiled_like_eager(adam, *tensors(4), **{switch: False})
    if switch == "foreach":
        assert len(record.kernels) == len(SHAPES)
    if switch == "in_place":
        assert record.wrapper_source.count(".copy_(") == 3 * len(SHAPES)


def test_more_pointers_than_a_kernel_takes():
    record = compiled_like_eager(momentum, *tensors(3, [(3,)] * 700), kernels=3)
    assert all(k.source.count("args[part*3") == 3 for k in record.kernels)


def test_empty_tensors_are_left_out():
    compiled_like_eager(momentum, *tensors(3, [(3,), (0,), (5,)]))


def test_dependent_steps_are_not_joined():
    def chain(x, y):
        return (torch.cumsum(x * 2, 0) * 2, y * 2)

    compiled_like_eager(chain, torch.randn(50), torch.randn(50))


# --- in place -------------------------------------------------------------------------------------
def written_by_copy(function, *args, **options):
    return compiled_like_eager(function, *args, **options).notes_of("written by a copy")


def test_an_old_value_that_is_read_elsewhere_stays():
    def neighbours(x):
        x.add_(x.flip(0))

    assert "other places" in written_by_copy(neighbours, torch.randn(40))[0]

    def transposed(x):
        x.copy_(x.t() * 2 + x)

    assert written_by_copy(transposed, torch.randn(40, 40))

    assert written_by_copy(lambda x: x.copy_(torch.softmax(x, -1)), torch.randn(40, 40))


def test_a_scatter_writes_into_the_input():
    args = torch.randn(3, 9, 4), torch.tensor([7, 2]), torch.randn(3, 2, 4)
    cached = lambda x, i, y: x.index_copy_(1, i, y).amax(-1)  # noqa: E731
    assert not written_by_copy(cached, *args, kernels=2, cpu_backend="triton")
    later = lambda x, i, y: x.sum(-1) + cached(x, i, y)  # noqa: E731
    assert "later" in written_by_copy(later, *args, cpu_backend="triton")[0]
    shifted = lambda x, i, y: cached(x, i, y + x[:, 1:3])  # noqa: E731
    assert written_by_copy(shifted, *args, cpu_backend="triton")


def like(sizes, strides):
    return torch.empty_strided(sizes, strides).copy_(torch.randn(sizes))


@pytest.mark.parametrize("strides", [(1, 5), (8, 1), (16, 2), (2, 10), (1, 8)])
def test_memory_in_any_order_and_with_gaps_is_written_in_place(strides):
    def program(x, y):
        x.mul_(2).add_(y.t())

    assert not written_by_copy(program, like((5, 8), strides), torch.randn(8, 5))

    def through_a_view(x):
        x.t().mul_(x.t() + 1)

    assert not written_by_copy(through_a_view, like((5, 8), strides))


def test_autograd_notices_the_write():
    x = torch.randn(5)
    version = x._version
    compiled_version = minidynamo.compile(lambda x: x.mul_(2))
    with torch.no_grad():
        compiled_version(x)
    assert x._version > version
    with torch.inference_mode():
        y = torch.ones(5)
        compiled_version(y)
        assert torch.equal(y, torch.full((5,), 2.0))


def test_a_result_takes_the_memory_of_what_dies():
    def chain(x, w):
        y = torch.mm(x, w)
        return torch.mm(torch.relu(y) + 1, w)

    record = compiled_like_eager(chain, torch.randn(64, 64), torch.randn(64, 64))
    assert any(place.startswith("in place of") for _, place, _ in record.memory_plan)

    def still_needed(x, w):
        y = torch.mm(x, w)
        return torch.mm(torch.relu(y) + 1, w), torch.mm(y, w), torch.mm(torch.sigmoid(y).t() + y, w)

    compiled_like_eager(still_needed, *torch.randn(2, 64, 64, dtype=torch.float64))
