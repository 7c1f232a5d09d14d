"""Scatters of rows: positions are checked."""

import pytest
import torch

import minidynamo


def test_an_index_out_of_range_is_found_by_whoever_has_it():
    function = minidynamo.compile(lambda t, i, v: t.index_add(0, i, v))
    table, index = torch.zeros(50, 64), torch.zeros(2000, dtype=torch.int64)
    function(table, index, torch.ones(2000, 64))
    for bad in (50, -1):
        index[1234] = bad
        with pytest.raises((IndexError, RuntimeError)):
            function(table, index, torch.ones(2000, 64))
