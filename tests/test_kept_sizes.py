"""Sizes that only the run knows: in the graph where no decision needs them, and only there."""

import pytest
import torch

import minidynamo
from minidynamo import records

WEIGHT = torch.arange(12.0).reshape(4, 3).cos()

# of rows y that a mask chooses of x
WHOLE = {
    "sum": lambda y, x: y.sum() + x,
    "product": lambda y, x: y @ WEIGHT,
    "rows": lambda y, x: torch.softmax(y * 2, 1),
    "scattered": lambda y, x: torch.zeros(4).index_add_(0, y.argmax(1), y[:, 0]),
    "size": lambda y, x: (y.shape, y.shape[0] * 2 + x),
    "again": lambda y, x: y[y[:, 1] > 0] + 1,
    "view": lambda y, x: y.reshape(-1) + 1,
    "slice": lambda y, x: x[: y.shape[0]] + y,  # as many as x has, at most
    "joined": lambda y, x: torch.cat([y, x]),
}
SPLIT = {
    "branch": lambda y, x: x + 1 if y.shape[0] > 2 else x - 1,
    "comparison": lambda y, x: x if y.shape == x.shape else x + 1,
    "squeezed": lambda y, x: (y.squeeze(), y.squeeze(0).dim()),
    "squeezed inside": lambda y, x: torch.squeeze(y[:, :1]).dim() + x,
    "view or copy": lambda y, x: (y.t().reshape(-1).add_(1), y),
    "itself": lambda y, x: (y.t().contiguous().add_(1), y),
    "number": lambda y, x: x + y.sum().item(),
    "loop": lambda y, x: [x + n for n in range(y.shape[0])],
    "slice": lambda y, x: x[: y.shape[0] * 2],
    "text": lambda y, x: x + len(f"{y.shape[0]}"),
}


def inputs():
    for count in (3, 0, 1, 5, 2):
        x = torch.arange(20.0).reshape(5, 4).sin()
        x[:, 0] = torch.where(torch.arange(5) < count, 0.5, -1.0)
        yield x


def graphs_of(part, backend):
    """[graph breaks] of compiling a function of chosen rows, which gives what plain Python does."""

    def f(x):
        return part(x[x[:, 0] > 0], x)

    minidynamo.reset()
    compiled = minidynamo.compile(f, backend=backend)
    for x in inputs():
        torch.testing.assert_close(compiled(x.clone()), f(x.clone()))
    return [found for record in records.frames for found in record.graph_breaks]


@pytest.mark.parametrize("name", WHOLE)
def test_the_graph_is_whole(name):
    assert not graphs_of(WHOLE[name], "eager")
    assert [record.recompile_reason for record in records.frames] == [""]  # for all counts


@pytest.mark.parametrize("name", SPLIT)
def test_a_decision_splits_it_where_the_size_is_made(name):
    found = graphs_of(SPLIT[name], "eager")
    assert found and found[0].kind == "data-dependent"


def test_the_break_names_the_op_and_the_decision():
    found = graphs_of(SPLIT["branch"], "eager")[0]
    assert found.reason.startswith("getitem needs the tensor's values: whether u0 > 2 holds")
    assert found.line == graphs_of.__code__.co_firstlineno + 4  # of f's line


@pytest.mark.parametrize("name", ["product", "scattered", "again"])
def test_kernels_lie_around_such_an_op(name):
    assert not graphs_of(WHOLE[name], "inductor")


def test_a_backend_that_needs_the_size_gets_it():
    """The largest of an unknown number of values: there may be none."""
    parts = {"softmax": lambda y, x: torch.softmax(y[:, 0], 0)}
    found = graphs_of(parts["softmax"], "inductor")
    assert found[0].reason.startswith("getitem needs the tensor's values")
    notes = [note for record in records.frames for note in record.backend_record.notes]
    assert not [note for note in notes if "eagerly" in note]


def test_a_backend_of_the_users_that_cannot_gets_numbers():
    def backend(gm, example_inputs):
        if any("u0" in str(node.meta.get("example_value")) for node in gm.graph.nodes):
            raise ValueError("no symbols, please")
        return gm.forward

    assert graphs_of(WHOLE["product"], backend)


def test_none_stay_without_the_switch():
    with minidynamo.config.patch(capture_unknown_sizes=False):
        assert graphs_of(WHOLE["sum"], "eager")


def test_fullgraph_takes_the_size_for_none_of_1_and_looks():
    def f(x):
        y = x[x[:, 0] > 0].squeeze()
        return y, y.dim()

    compiled = minidynamo.compile(f, backend="eager", fullgraph=True)
    for x in inputs():
        torch.testing.assert_close(compiled(x), f(x))


@pytest.mark.parametrize("split", [torch.split, torch.split_with_sizes, torch.Tensor.split])
def test_a_full_graph_splits_by_numbers_of_the_run(split):
    def f(x, sizes):
        return [part * 2 for part in split(x, sizes.tolist())]

    compiled = minidynamo.compile(f, backend="eager", fullgraph=True)
    for sizes in ([2, 3], [5, 0]):
        x, counts = torch.randn(5, 2), torch.tensor(sizes)
        torch.testing.assert_close(compiled(x, counts), f(x, counts))
