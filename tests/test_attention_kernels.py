"""Attention on a GPU, as far as that can be seen without one: the rewritten graph of fake CUDA
tensors, and the rows that are computed again."""

import pytest
import torch

import torch.nn.functional as F
from torch._subclasses.fake_tensor import FakeTensorMode

from miniinductor.autograd.joint import trace_forward
from miniinductor.decompositions import table
from miniinductor.graph_passes import optimize
from miniinductor.passes import attention, patterns
from miniinductor.passes.pattern_matcher import apply
from miniinductor.passes.patterns import rewrites
from miniinductor.records import CompileRecord


def on_gpu(*shapes, dtype=torch.bfloat16):
    """Fake CUDA tensors; of a shape of 4, heads as they come from projections: (batch, length,
    heads, size), transposed."""
    with FakeTensorMode():
        return [
            torch.empty(
                shape[0], shape[2], shape[1], shape[3], dtype=dtype, device="cuda"
            ).transpose(1, 2)
            if len(shape) == 4
            else torch.empty(shape, dtype=dtype, device="cuda")
            for shape in shapes
        ]


def rewritten(function, *inputs):
    """Its calls of the attention op, what it computes in all, and the record."""
    gm, record = torch.fx.symbolic_trace(function), CompileRecord()
    gm.graph.output_node().args = ((gm.graph.output_node().args[0],),)
    gm.recompile()
    with torch.no_grad():
        joint = trace_forward(gm, list(inputs), table())
        optimize(joint.graph)
        apply(rewrites(), joint.graph, record, table())
    nodes = [n for n in joint.graph.graph.nodes if n.op == "call_function"]
    return (
        [n for n in nodes if n.target is torch.ops.miniinductor.attention.default],
        [n.target.__name__.split(".")[0] for n in nodes],
        record,
    )


@pytest.fixture(autouse=True)
def with_gpu(monkeypatch):
    monkeypatch.setattr(attention, "why_not_on", lambda device: None)
    monkeypatch.setattr(patterns, "LEAST_ON_GPU", 1)


def hugging_face(q, k, v, mask):
    weights = F.softmax(q @ k.transpose(2, 3) * 0.125 + mask, dim=-1, dtype=torch.float32).to(
        q.dtype
    )
    return (weights @ v).transpose(1, 2).flatten(2)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_layouts_of_the_library_are_kept_where_what_follows_copies(dtype):
    tensors = on_gpu(*[(2, 3, 130, 64)] * 3, dtype=dtype)
    calls, names, record = rewritten(
        lambda q, k, v: ((q @ k.mT / 8).softmax(-1) @ v).transpose(1, 2).flatten(2), *tensors
    )
    assert record.notes_of("pattern attention: rewritten 1 times") and not {"bmm", "clone"} & set(
        names
    )
    assert calls[0].meta["val"].stride() == (130 * 192, 64, 192, 1) and calls[0].args[3:] == (
        None,
        0.125,
    )


@pytest.mark.parametrize(
    "mask, copies",
    [
        ((2, 1, 130, 130), ["constant_pad_nd"]),
        ((2, 1, 1, 128), []),
        ((130, 1), ["constant_pad_nd"]),
        ((130, 128), []),
        ((1, 130, 130, 3), ["clone", "constant_pad_nd"]),
    ],
)
def test_rows_of_masks_are_aligned(mask, copies):
    keys = mask[-1] if mask[-1] > 3 else 130
    q, k, v, plain = on_gpu((2, 3, 130, 64), *[(2, 3, keys, 64)] * 2, mask)
    with plain.fake_mode:
        by_heads = mask[-1] == 3  # T5's: an embedding, permuted
        mask = torch.empty(mask, dtype=q.dtype, device="cuda")
        mask = mask.permute(0, 3, 1, 2) if by_heads else mask
    (call,), names, _ = rewritten(hugging_face, q, k, v, mask)
    value = call.args[3].meta["val"]
    assert sorted({"constant_pad_nd", "clone"} & set(names)) == copies
    assert (
        value.stride(-1) == 1
        and not any(s % 8 for s in value.stride()[:-1])
        and value.shape[-1] == -(-keys // 8) * 8
    )


def test_batches_of_matrices():
    tensors = on_gpu(*[(6, 130, 64)] * 3, (6, 1, 130))
    (call,), names, _ = rewritten(
        lambda q, k, v, mask: torch.bmm((torch.bmm(q, k.mT) + mask).softmax(2), v), *tensors
    )
    assert (
        call.args[0].meta["val"].shape == (1, 6, 130, 64)
        and call.args[3].meta["val"].stride() == (6 * 136, 136, 136, 1)
        and "bmm" not in names
    )


@pytest.mark.parametrize(
    "shape, dtype",
    [
        ((2, 3, 130, 64), torch.float16),
        ((2, 3, 130, 64), torch.float64),
        ((2, 3, 130, 60), torch.bfloat16),
        ((2, 3, 130, 6), torch.float32),
        ((2, 3, 130, 264), torch.float32),
        ((2, 3, 40, 64), torch.bfloat16),
        ((1, 70_000, 64, 64), torch.bfloat16),
    ],
)
def test_what_stays_as_it_is(shape, dtype):
    calls, _, _ = rewritten(
        lambda q, k, v: (q @ k.mT).softmax(-1) @ v, *on_gpu(*[shape] * 3, dtype=dtype)
    )
    assert not calls
