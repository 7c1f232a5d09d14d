"""Masks that are known when a graph is compiled: left out where the attention kernel does the same
by itself."""

import math
import types

import pytest
import torch
import torch.nn.functional as F

import minidynamo
from benchmarks.error_bound import assert_near
from miniinductor.autograd.joint import CALLS
from miniinductor.passes.graph_passes import CLEANING


def causal(q):
    n = q.shape[-2]
    return torch.arange(n)[None, :] <= torch.arange(n)[:, None]


MASKS = {  # made of q's shape -> what becomes of it
    "none": (lambda q: torch.ones(q.shape[-2], q.shape[-2], dtype=torch.bool), "zeros"),
    "expanded": (
        lambda q: torch.zeros(1, 1, 1, q.shape[-2]).expand(q.shape[0], 1, q.shape[-2], q.shape[-2]),
        "zeros",
    ),
    "causal": (causal, "causal"),
    "causal by numbers": (
        lambda q: torch.full((q.shape[-2], q.shape[-2]), -math.inf).triu(1),
        "causal",
    ),
    "per batch": (lambda q: causal(q).expand(q.shape[0], 1, -1, -1), "causal"),
    "a window": (lambda q: causal(q) & ~causal(q).tril(-3), None),
    "not infinite": (lambda q: torch.full((q.shape[-2], q.shape[-2]), -1e9).triu(1), None),
    "one more": (lambda q: torch.full((q.shape[-2], q.shape[-2]), -math.inf).triu(2), None),
    "of an input": (lambda q: torch.zeros(q.shape[-2], q.shape[-2]) + q[0, 0, 0, 0] * 0, None),
    "random": (lambda q: torch.rand(q.shape[-2], q.shape[-2]) < 2, None),
}


@pytest.mark.parametrize("name", MASKS)
@pytest.mark.parametrize("training", [False, True])
def test_masks(name, training, monkeypatch):
    make, expected = MASKS[name]
    changed, old = [], CLEANING["attention masks"]

    def counted(gm):
        changed.append(old(gm))
        return changed[-1]

    monkeypatch.setitem(CLEANING, "attention masks", counted)

    def function(q, k, v):
        return F.scaled_dot_product_attention(q, k, v, attn_mask=make(q))

    torch.manual_seed(0)
    inputs = [torch.randn(2, 3, 16, 8, requires_grad=training) for _ in range(3)]
    minidynamo.reset()
    results = []
    for f in (function, minidynamo.compile(function)):
        out = f(*inputs)
        results.append(
            [out, *(torch.autograd.grad(out.square().sum(), inputs) if training else ())]
        )
    for want, got in zip(*results):
        assert_near(got, want)
    calls = 2 if training else 1
    assert changed and max(changed) == (calls if expected else 0)
    minidynamo.reset()


class OnGpu(torch.Tensor):
    is_cuda = True


@pytest.mark.parametrize("dropout", [0.0, 0.5])
@pytest.mark.parametrize("rows", [1, 16])
def test_an_expanded_mask_on_a_gpu_is_copied_where_nothing_is_dropped(dropout, rows):
    """The library's fused kernels read no mask whose neighbours in a row are one number."""
    given, attention = [], F.scaled_dot_product_attention
    interpreter = types.SimpleNamespace(plain_call=lambda *call: given.append(call))
    expanded, plain = torch.randn(2, 1, rows, 1).expand(2, 1, 16, 16), torch.randn(16, 16)
    for mask in (expanded.as_subclass(OnGpu), expanded, plain.as_subclass(OnGpu), None):
        kwargs = {"attn_mask": mask, "dropout_p": dropout}
        CALLS[attention](interpreter, attention, (), kwargs)
    copied, *others = [kwargs["attn_mask"] for _, _, kwargs in given]
    assert copied.is_contiguous() == (not dropout) and torch.equal(copied, expanded)
    assert [mask is None or mask.is_contiguous() for mask in others] == [False, True, True]
