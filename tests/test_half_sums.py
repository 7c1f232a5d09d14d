"""Sums of 16 bits on a GPU (lowerings/decompositions.py): computed in float32 and
rounded once.  Here on the CPU, with the question for the device answered as a GPU would."""

import pytest
import torch

import minidynamo
from miniinductor.lowerings import decompositions

PROGRAMS = {"index_put": lambda t, i, v: t.index_put((i,), v, accumulate=True)}


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
