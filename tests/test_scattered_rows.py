"""Scatters of rows: positions that are checked, and messages that are not stored."""

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


MESSAGES = {
    "scatter_add": lambda t, x, i, j: t.scatter_add(0, j[:, None].expand(-1, 33), x[i] * 2),
    "of zeros": lambda t, x, i, j: torch.zeros_like(t).index_add_(0, j, x.index_select(0, i)),
    "largest": lambda t, x, i, j: t.scatter_reduce(0, j[:, None].expand(-1, 33), x[i], "amax"),
}


@pytest.mark.parametrize("program", MESSAGES.values(), ids=MESSAGES)
def test_messages_along_the_edges_of_a_graph_are_not_stored(program):
    """Rows of one tensor added to those of another: the kernel that adds looks at both positions,
    and raises for either as eager does."""
    t, x = torch.zeros(37, 33), torch.randn(50, 33)
    i, j = torch.randint(50, (3001,)), torch.randint(37, (3001,))
    compiled = minidynamo.compile(program)
    torch.testing.assert_close(compiled(t, x, i, j), program(t, x, i, j))
    loops = str(minidynamo.records.frames[-1].backend_record.loop_ir)
    assert "[3001, 33] = pointwise" not in loops and "scatter i0 < 3001" in loops
    for bad in (i.clone(), j.clone()):
        bad[1234] = 99
        both = (bad, j) if bad[:9].equal(i[:9]) else (i, bad)
        with pytest.raises((IndexError, RuntimeError)) as eager:
            program(t, x, *both)
        with pytest.raises(eager.type):
            compiled(t, x, *both)
