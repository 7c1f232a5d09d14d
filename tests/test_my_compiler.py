"""The reference of the course's own compiler (notebooks/reference/my_compiler)."""

import os
import sys
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

NOTEBOOKS = Path(__file__).parents[1] / "notebooks"
sys.path[:0] = [str(NOTEBOOKS / "reference"), str(NOTEBOOKS)]

import my_compiler  # noqa: E402
from my_compiler.fusion import fuse  # noqa: E402
from my_compiler.gpu import TritonWriter  # noqa: E402
from my_compiler.graph import Graph, Node, layer_norm  # noqa: E402
from my_compiler.loops import lower  # noqa: E402

torch.manual_seed(0)


def same(ours, theirs):
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)


def both(function, *calls, state=lambda: None):
    """Each call's arguments, in plain Python and compiled; `state` is compared behind each."""
    compiled = my_compiler.compile(function)
    for make in calls:
        plain, ours = make(), make()
        same((compiled(*ours), ours, state()), (function(*plain), plain, state()))
    return compiled.compiler


# --- capture --------------------------------------------------------------------------------------
SCALE = 2.0


def chain(x):
    return (x * SCALE).tanh() + 1


def with_a_print(x, log):
    y = x.exp()
    log.append(y.shape[0])
    print("between")
    return y + len(log)


def with_a_branch(x):
    y = x * 2
    if y.sum() > 0:
        return y + 1
    return y - 1


def with_a_loop_that_breaks(x, log):
    for scale in (1, 2, 3):
        x = x * scale
        print(scale)
        log.append(x)
    return x, log


def within_a_call(x):
    return torch.tanh(x.exp().cumsum(0) + x)


def changes_a_list(x, table):
    table[0] = table[0] + 1
    return x * table[0]


def views(x):
    y = x + 1
    return x, y, y.view(-1), x.transpose(0, 1)


def names_that_a_break_makes(x):
    y = x * 2
    first = second = len(str(y.sum() > 0))
    return y + first, second


def waits_for_a_number(x):
    while x.sum() > 0:
        x = x - 9
    return x * 2


def with_an_iterator(x):
    y = x * 2
    pairs = enumerate((1, 2))
    print("between")
    return [y * number for number, _ in pairs]


def X():
    return torch.arange(6.0).reshape(2, 3) - 2


CASES = [
    (chain, lambda: (X(),), 1),
    (with_a_print, lambda: (X(), [1]), 2),
    (with_a_branch, lambda: (X(),), 2),
    (with_a_branch, lambda: (X() + 9,), 2),
    (with_a_loop_that_breaks, lambda: (X(), []), 0),  # left to Python
    (within_a_call, lambda: (X(),), 1),
    (changes_a_list, lambda: (X(), [0]), 1),
    (views, lambda: (X(),), 1),
    (names_that_a_break_makes, lambda: (X(),), 2),
    (waits_for_a_number, lambda: (X() + 9,), None),  # CPython 3.11 jumps back on a condition
    (with_an_iterator, lambda: (X(),), 0),  # which could not be made again
]


@pytest.mark.parametrize("function, make, entries", CASES)
def test_programs(function, make, entries):
    compiler = both(function, make, make)
    own = [entry for entry in compiler.entries if entry.code.co_filename == __file__]
    assert entries in (None, len(own)), compiler.left_alone


def test_what_a_guard_checks(monkeypatch):
    compiled = my_compiler.compile(chain)
    same(compiled(X()), chain(X()))
    monkeypatch.setitem(globals(), "SCALE", 3.0)
    same(compiled(X()), chain(X()))
    monkeypatch.setattr(Node, "__doc__", "")  # nothing that it has looked at
    same(compiled(X()), chain(X()))
    assert len(compiled.compiler.entries) == 2


def test_sizes_become_symbols_when_they_change():
    def mean_of_rows(x):
        return (x / x.shape[0]).softmax(-1).reshape(-1) * (2 if x.shape[0] > 4 else 1)

    compiled = my_compiler.compile(mean_of_rows)
    for rows in (6, 7, 8, 9, 3, 2, 1):
        x = torch.randn(rows, 5)
        same(compiled(x), mean_of_rows(x))
    assert len(compiled.compiler.entries) == 4  # 6; more than 4; up to 4; and 1, which is no symbol


def test_what_it_does_not_know_runs_as_python():
    for function in (lambda x: -x, lambda x: 1 / x, lambda x: [x, x + 1], lambda x: {"x": x}):
        compiled = my_compiler.compile(function)
        same(compiled(X() + 9), function(X() + 9))
        assert not any(not entry.reason for entry in compiled.compiler.entries)


# --- compilation ----------------------------------------------------------------------------------
def test_kernels_in_triton():
    if os.environ.get("TRITON_INTERPRET") != "1":
        pytest.skip("Triton's interpreter is off in this process")
    graph = Graph()
    x, w = graph.input((6, 37)), graph.input((37,))
    graph.outputs = [layer_norm((x * 3.0).tanh(), (37,), w)]
    steps, [out] = lower(graph)
    tensors = [torch.randn(6, 37), torch.randn(37)]
    memory = {f"in{place}": tensor for place, tensor in enumerate(tensors)}
    for unit in fuse(steps):
        writer = TritonWriter(unit, [])
        for buffer in unit.writes:
            memory[buffer.name] = torch.full(buffer.shape, float("nan"))
        writer.build()(*(memory[buffer.name] for buffer in writer.buffers))
    same(memory[out.name], F.layer_norm((tensors[0] * 3).tanh(), (37,), tensors[1]))
