"""The examples of CONTRIBUTING.md run: each takes the place of what is there already."""

import re
import zlib
from pathlib import Path

import pytest
import torch

import minidynamo
import minidynamo.functions  # noqa: F401
import miniinductor
import miniinductor.compile  # noqa: F401  # which fills the tables
from minidynamo.evaluate.opcodes import HANDLERS
from minidynamo.variables.registry import RULES
from miniinductor.languages import CPP
from miniinductor.lowering.decompositions import OURS
from miniinductor.lowering.registry import LOWERINGS, lower, register

ROOT = Path(__file__).resolve().parent.parent
TEXT = (ROOT / "CONTRIBUTING.md").read_text()
EXAMPLES = dict(re.findall(r"<!-- example: ([\w ]+) -->\n```python\n(.*?)```", TEXT, re.S))


@pytest.fixture(autouse=True)
def loaded():
    minidynamo.reset()
    yield
    minidynamo.reset()


@pytest.fixture
def put_in():
    """Runs an example."""
    return lambda name: exec(compile(EXAMPLES[name], f"<{name}>", "exec"), {})


def test_there_are_five_short_ones():
    assert list(EXAMPLES) == ["opcode", "rule", "lowering", "fusion strategy", "chapter"]
    assert all(len(text.splitlines()) < 40 for text in EXAMPLES.values())


def captured(f, *args):
    """Is f one graph, and right?"""
    minidynamo.reset()
    try:
        found = minidynamo.compile(f, backend="eager", fullgraph=True)(*args)
    except minidynamo.Unsupported:
        return False
    torch.testing.assert_close(found, f(*args))
    return True


def test_an_opcode(monkeypatch, put_in):
    def f(x, pair):
        match pair:
            case [a, b]:
                return x * a + b

    monkeypatch.setitem(HANDLERS, "GET_LEN", HANDLERS["GET_LEN"])
    del HANDLERS["GET_LEN"]
    assert not captured(f, torch.ones(3), [2, 3])
    put_in("opcode")
    f.__code__ = f.__code__.replace(co_name="another")  # what is known of a code object is kept
    assert captured(f, torch.ones(3), [2, 3])


def test_a_rule(monkeypatch, put_in):
    def f(x, text):
        return x * (zlib.crc32(text) % 7)

    monkeypatch.setitem(RULES, zlib.crc32, None)
    del RULES[zlib.crc32]
    assert not captured(f, torch.ones(3), b"abc")
    put_in("rule")
    assert captured(f, torch.ones(3), b"abc")
    assert not captured(lambda x: x * zlib.crc32(bytearray(b"abc")), torch.ones(3))


def record_of(f, *inputs):
    graph = torch.fx.symbolic_trace(f)
    with torch.no_grad():
        compiled = miniinductor.compile_fx(graph, inputs)
        torch.testing.assert_close(compiled(*inputs), f(*inputs))
    return compiled.record


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64])
def test_a_lowering(monkeypatch, put_in, dtype):
    def f(a, b):
        return torch.copysign(a, b) + 1

    inputs = [torch.arange(-3, 4).to(dtype), torch.arange(3, -4, -1).to(dtype)]
    for op in [op for op in LOWERINGS if "copysign" in str(op)]:
        monkeypatch.setitem(LOWERINGS, op, LOWERINGS[op])
        del LOWERINGS[op]
    assert [found.reason for found in record_of(f, *inputs).fallbacks] == ["no lowering"]
    put_in("lowering")
    assert not record_of(f, *inputs).fallbacks


def test_a_second_lowering_is_refused(monkeypatch):
    """But for one of the same module of a program's own: a cell of a notebook is run again."""

    def ours(call, x):
        return x

    for table in (LOWERINGS, OURS):
        op = next(iter(table))
        with pytest.raises(ValueError, match="has a rule already"):
            register(table, op, ours)
    with pytest.raises(ValueError, match="has a rule already"):
        lower(torch.ops.aten.exp)(LOWERINGS[torch.ops.aten.exp.default])
    monkeypatch.delitem(LOWERINGS, torch.ops.aten.exp.default)
    for _ in range(2):
        register(LOWERINGS, torch.ops.aten.exp.default, ours)


def test_a_fusion_strategy(monkeypatch, put_in):
    def f(x, y):
        return torch.exp(x), torch.sin(y) * 2

    inputs = [torch.randn(32, 8), torch.randn(32, 8)]
    before = len(record_of(f, *inputs).kernels)
    kept = list(CPP.joiners)
    try:
        put_in("fusion strategy")
        record = record_of(f, *inputs)
    finally:
        CPP.joiners[:] = kept
    assert len(record.kernels) == before - 1
    assert any("neighbours" in note for note in record.notes)


def test_a_chapter(tmp_path, monkeypatch):
    pytest.importorskip("jupytext")
    monkeypatch.syspath_prepend(ROOT / "notebooks")
    import build

    monkeypatch.setattr(build, "SOURCES", tmp_path)
    (tmp_path / "99_dead_code.py").write_text(EXAMPLES["chapter"])
    scope = {}
    for cell in build.solved(build.read("99_dead_code")).cells:
        if cell.cell_type == "code":
            exec(cell.source, scope)
    assert [node.name for node in scope["unread"](scope["traced"].graph)] == ["mul"]
    assert "your turn" in build.student(build.read("99_dead_code")).cells[2].source
