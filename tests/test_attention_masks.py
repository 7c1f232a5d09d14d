"""Masks that are known when a graph is compiled: left out where the attention kernel does the same
by itself."""

import math

import pytest
import torch
import torch.nn.functional as F

import minidynamo
from benchmarks.error_bound import assert_near
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
