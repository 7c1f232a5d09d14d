"""Sums and resampling of 16 bits on a GPU (lowerings/decompositions.py): computed in float32 and
rounded once.  Here on the CPU, with the question for the device answered as a GPU would."""

import pytest
import torch
import torch.nn.functional as F
from torch._decomp import decomposition_table

import minidynamo
from miniinductor.lowerings import decompositions

PROGRAMS = {
    "index_add": lambda t, i, v: t.index_add(0, i, v),
    "index_add twice": lambda t, i, v: t.index_add(0, i, v, alpha=2),
    "index_put": lambda t, i, v: t.index_put((i,), v, accumulate=True),
    "scatter_add": lambda t, i, v: t.scatter_add(0, i[:, None].expand_as(v), v),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_they_are_rounded_once(name, monkeypatch):
    monkeypatch.setattr(
        decompositions, "adds_up_half", lambda x, source: x.dtype in (torch.bfloat16, torch.float16)
    )
    function = PROGRAMS[name]
    index, values = torch.randint(9, (700,)), torch.randn(700, 24).bfloat16()
    table = torch.randn(9, 24).bfloat16()
    found = minidynamo.compile(function)(table, index, values)
    exact = function(table.double(), index, values.double())
    assert found.dtype == torch.bfloat16
    assert torch.allclose(found.double(), exact, rtol=2**-8, atol=1e-4)
    record = minidynamo.records.frames[-1].backend_record
    assert not record.fallbacks


def test_torchs_rule_for_resampling_rounds_once():
    x = torch.randn(2, 3, 13, 17)
    rule = decomposition_table[torch.ops.aten.upsample_bilinear2d.vec]
    for dtype in (torch.bfloat16, torch.float16):
        found = rule(x.to(dtype), [26, 40], False, None)
        exact = F.interpolate(x.to(dtype).double(), size=(26, 40), mode="bilinear")
        assert found.dtype == dtype
        assert torch.allclose(found.double(), exact, rtol=2**-8, atol=1e-3)
