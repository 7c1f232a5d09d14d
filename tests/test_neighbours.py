"""A good neighbour: other tools in the same process, copies of compiled things, misspelt options.

The long version is `make soak` and `make faults`; docs/how_it_is_tested.md says what is promised.
"""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

import minidynamo

HERE = Path(__file__).parent


@pytest.fixture(autouse=True)
def clean():
    minidynamo.reset()
    with minidynamo.config.patch(raise_internal_errors=True):
        yield
    minidynamo.reset()


def run_python(*arguments, timeout=120, **options):
    """A Python process, in which the tests' folder can be imported."""
    return subprocess.run(
        [sys.executable, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=timeout,
        **options,
    )


# ---- other tools ---------------------------------------------------------------------------------
def test_torch_compile_in_the_same_process():
    """Before, after it raised, inside, around, in turns and in threads."""
    found = run_python(HERE / "beside_torch_compile.py")
    lines = found.stdout.splitlines()
    assert len(lines) == 8, found.stderr[-2000:]
    assert not [line for line in lines if not line.endswith(" ok")]


PROGRAM = """
import torch, minidynamo

def f(x, n):
    y = x.sin() + n
    if n > 1:
        y = y * 2
    return y

x, compiled = torch.randn(8), minidynamo.compile(f, backend="eager")
for n in (1, 2, 3, 4):
    assert torch.allclose(compiled(x, n), f(x, n))
assert dict(minidynamo.counters["frames"]) == {"f": 2}, minidynamo.counters["frames"]
print("right")
"""


@pytest.mark.parametrize(
    "tool",
    [
        ["debugpy", "--listen", "127.0.0.1:0"],
        ["coverage", "run", "--data-file=/dev/null"],
        ["cProfile", "-o", "/dev/null"],
    ],
    ids=lambda tool: tool[0],
)
def test_under_a_debugger_or_a_profiler(tool, tmp_path):
    """The program is right, and none of the tool's own functions is compiled."""
    pytest.importorskip(tool[0])
    (tmp_path / "program.py").write_text(PROGRAM)
    found = run_python("-m", *tool, tmp_path / "program.py")
    assert "right" in found.stdout, found.stderr[-2000:]


@pytest.mark.skipif(sys.version_info < (3, 12), reason="sys.monitoring is of Python 3.12")
def test_under_sys_monitoring():
    lines, tool, events = set(), 4, sys.monitoring.events

    def f(x, n):
        y = x.sin() + n
        return y * 2

    def line(code, number):
        if code is f.__code__:
            lines.add(number - code.co_firstlineno)

    compiled = minidynamo.compile(f, backend="eager")
    sys.monitoring.use_tool_id(tool, "test")
    try:
        sys.monitoring.register_callback(tool, events.LINE, line)
        sys.monitoring.set_events(tool, events.LINE)
        x = torch.randn(8)
        for n in (1, 2, 3):
            assert torch.equal(compiled(x, n), (x.sin() + n) * 2)
    finally:
        sys.monitoring.set_events(tool, 0)
        sys.monitoring.free_tool_id(tool)
    assert minidynamo.counters["frames"]["f"] == 2
