"""What results share with arguments: the strides of results, and a sample of the generator."""

import pytest
import torch
import torch.nn.functional as F
import torch.utils._pytree as pytree

import minidynamo
from tests.soundness import aliases, runner
from tests.soundness.modes import MODES


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_tensor_of_a_tensor_is_a_copy(backend):
    a, b = torch.ones(3), torch.ones(3)
    minidynamo.reset()
    result = minidynamo.compile(lambda a, b: torch.tensor(a).add_(b), backend=backend)(a, b)
    assert torch.equal(a, torch.ones(3)) and torch.equal(result, 2 * torch.ones(3))


rows, columns = torch.ones(10, 1, 5), torch.ones(1, 5, 10).transpose(1, 2)
images = torch.rand(2, 4, 6, 6).contiguous(memory_format=torch.channels_last)
signals = torch.rand(3, 4, 2).transpose(1, 2)
STRIDES = {  # (function, arguments): what shape functions, or decompositions, lay down otherwise
    "copysign": (torch.copysign, (columns[0], torch.tensor(2.0))),
    "logical_and": (torch.logical_and, (rows, columns)),
    "logaddexp": (torch.logaddexp, (rows, columns)),
    "large": (torch.logical_or, (torch.ones(80, 90), torch.ones(90, 80).t())),
    "logsigmoid": (F.logsigmoid, (columns[0],)),
    "max_unpool2d": (
        lambda x: F.max_unpool2d(*F.max_pool2d(x, 2, return_indices=True), 2),
        (images,),
    ),
    "batch_norm": (lambda x: F.batch_norm(x, None, None, training=True), (signals,)),
    "sort": (torch.sort, (torch.rand(3, 2, 2, 1, 1).permute(0, 1, 3, 2, 4),)),
    "nothing": (lambda x: torch.stack([x, x], 1), (torch.ones(0, 1, 0),)),
}


@pytest.mark.parametrize("mode", ["aot_eager", "inductor", "inductor-dynamic"])
@pytest.mark.parametrize("name", STRIDES)
def test_strides_are_those_of_eager(name, mode):
    function, arguments = STRIDES[name]
    with MODES[mode].active():
        ours = pytree.tree_leaves(MODES[mode].compile(function)(*arguments))
    eager = pytree.tree_leaves(function(*arguments))
    assert [t.stride() for t in ours] == [t.stride() for t in eager]


def test_generator():
    assert not runner.sample(aliases, 24, "eager,aot_eager,inductor", first=1)
