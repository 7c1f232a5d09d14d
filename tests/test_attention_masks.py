"""Attention: masks that are known when a graph is compiled are left out where the library's kernel
does the same by itself; attention that is written by hand becomes that kernel."""

import math
import types

import pytest
import torch
import torch.nn.functional as F

import minidynamo
from benchmarks.error_bound import assert_near, assert_no_worse
from miniinductor.autograd.joint import CALLS
from miniinductor.lowering import decompositions
from miniinductor.passes.graph_passes import CLEANING
from miniinductor.runtime.wrapper import aligned
from record_helpers import last_compiled


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


def softmax(x):
    return torch.softmax(x, -1)


def autocast(q, k, v):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return softmax(q.float() @ k.float().mT * 0.25) @ v.float()


def written(q, k, v):
    scores = q @ k.mT
    scores.mul_(v.mean())
    return softmax(scores) @ v


def upcast(q, k, v):
    weights = F.softmax(torch.matmul(q, k.transpose(2, 3)) / 4, dim=-1, dtype=torch.float32)
    return F.dropout(weights, 0.1, False).to(q.dtype) @ v


BY_HAND = {  # -> is it the library's kernel?
    "plain": (lambda q, k, v: softmax(q @ k.mT * q.shape[-1] ** -0.5) @ v, True),
    "upcast": (upcast, True),
    "autocast": (autocast, True),
    "in 32 bits": (lambda q, k, v: (softmax(q.float() @ k.float().mT) @ v.float()).to(q), False),
    "rounded late": (lambda q, k, v: softmax(q.float() @ k.float().mT).to(q.dtype) @ v, False),
    "twice": (lambda q, k, v: softmax(softmax(q @ k.mT)) @ v, False),
    "scaled late": (lambda q, k, v: (softmax(q @ k.mT) * 2) @ v, False),
    "columns": (lambda q, k, v: torch.softmax(q @ k.mT, -2) @ v, False),
    "negative": (lambda q, k, v: softmax(q @ k.mT * -0.5) @ v, False),
    "through another dtype": (
        lambda q, k, v: softmax((q @ k.mT).to(torch.float64).to(q)) @ v,
        False,
    ),
    "written": (written, False),
    "unaligned": (lambda q, k, v: softmax(q[..., :7] @ k[..., :7].mT) @ v[..., :7], False),
    "a vector": (lambda q, k, v: softmax(q @ k[0, 0, 0]) @ v.sum((0, 1))[:16], False),
}


@pytest.mark.parametrize("name", BY_HAND)
@pytest.mark.parametrize("training", [False, True])
def test_attention_by_hand_is_the_librarys_kernel(name, training, monkeypatch):
    function, is_fused = BY_HAND[name]
    kernel = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default
    monkeypatch.setitem(decompositions.KERNELS_OF_ROWS, kernel, ())
    torch.manual_seed(0)
    given = [torch.randn(2, 3, 16, 16, dtype=torch.bfloat16) for _ in range(3)]
    given[0][0, 0, 3] = math.inf

    def results(f, inputs):
        inputs = [x.clone().requires_grad_(training) for x in inputs]
        out = f(*inputs)
        loss = out.nan_to_num().float().square().sum()
        return [out, *(torch.autograd.grad(loss, inputs) if training else ())]

    minidynamo.reset()
    eager, ours = results(function, given), results(minidynamo.compile(function), given)
    ops = [fallback.op for fallback in last_compiled().backend_record.fallbacks]
    assert (str(kernel) in ops) == is_fused
    for want, got, exact in zip(eager, ours, results(function, [x.double() for x in given])):
        if not is_fused:
            assert_near(got, want)
        elif name != "autocast":
            rows = ~want.isnan()
            assert torch.equal(~got.isnan(), rows)
            assert_no_worse(got[rows], want[rows], exact[rows])
    minidynamo.reset()


def test_the_librarys_kernel_gets_aligned_tensors():
    tensor = torch.randn(65)[1:]
    seen, number = aligned(lambda *given, scale: given, tensor, 2, scale=1.0)
    assert seen.data_ptr() % 16 == 0 and torch.equal(seen, tensor) and number == 2
