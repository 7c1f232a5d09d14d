"""`python -m minidynamo doctor` and `bench`, `%%minicompile`, and what runs without a compiler.

The compiler is hidden by an empty PATH; the kernel cache is an empty folder then.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import __main__ as benchmarks_command
from minidynamo import __main__ as command_line

ROOT = Path(__file__).resolve().parent.parent


def run(tmp_path, *arguments, hidden=False):
    """(exit status, what is printed) of a command in a process of its own."""
    environment = os.environ | {"MINIINDUCTOR_CACHE": str(tmp_path / "cache"), "MINI_RAISE": "0"}
    environment["PYTHONPATH"] = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    environment.pop("CXX", None)
    if hidden:
        (tmp_path / "empty").mkdir(exist_ok=True)
        environment["PATH"] = str(tmp_path / "empty")
    command = [sys.executable, "-W", "ignore", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=tmp_path)
    return done.returncode, done.stdout + done.stderr


# --- doctor ---------------------------------------------------------------------------------------
def test_doctor_finds_all_that_is_needed(tmp_path):
    status, text = run(tmp_path, "-m", "minidynamo", "doctor")
    assert status == 0, text
    assert "all that compiling needs is there" in text and "missing" not in text


def test_doctor_says_what_to_do_without_a_compiler(tmp_path):
    status, text = run(tmp_path, "-m", "minidynamo", "doctor", hidden=True)
    assert status == 1
    assert "missing  a C++ compiler" in text and "apt install g++" in text


@pytest.mark.parametrize("gone", ["torch", "sympy", "minidynamo.frame.frame_hook"])
def test_doctor_runs_where_a_module_is_missing(monkeypatch, capsys, gone):
    monkeypatch.setitem(sys.modules, gone, None)
    assert command_line.doctor() == 1
    assert f"missing  {gone}" in capsys.readouterr().out


# --- the commands ---------------------------------------------------------------------------------
def test_the_commands_are_there(capsys):
    assert {"doctor", "explain"} <= set(command_line.COMMANDS)
    assert command_line.main(["--help"]) == 0
    assert "doctor" in capsys.readouterr().out
    assert command_line.main(["explain", "--help"]) == 0
    assert "page" in capsys.readouterr().out


def test_the_tour_shows_every_stage_and_the_time(capsys):
    assert command_line.main(["tour"]) == 0
    said = capsys.readouterr().out
    headings = re.findall(r"^(\d\. THE \w+)", said, re.MULTILINE)
    assert [
        each.split()[-1] for each in headings
    ] == "PROGRAM GRAPH GUARDS LOOP KERNEL TIME".split()
    assert "softmax: f32[512, 1024]  <- mul" in said and "x.shape == (512, 1024)" in said
    assert len(re.findall(r"^   x\.|^   type\(x", said, re.MULTILINE)) == 5
    assert re.search(r"^buf0: .*reduction i0 < 512, r0 < 1024", said, re.MULTILINE)
    assert len(re.findall(r"^extern", said, re.MULTILINE)) == 1 and "mini::exp(" in said
    assert float(re.search(r"compiled (\S+) ms", said)[1]) > 0
    for name in re.findall(r"^   (\S+/\S+) ", said, re.MULTILINE):
        assert (ROOT / name).exists(), name


def test_the_tour_without_a_compiler_says_why(tmp_path):
    status, text = run(tmp_path, "-m", "minidynamo", "tour", hidden=True)
    assert status == 1 and "doctor says why" in text and "6. THE TIME" not in text


def test_the_benchmarks_help_has_a_line_for_each_suite(capsys):
    with pytest.raises(SystemExit):
        benchmarks_command.main(["--help"])
    lines = dict(re.findall(r"^  (\S+) +(.+)$", capsys.readouterr().out, re.MULTILINE))
    assert all(len(lines.get(name, "")) > 10 for name in benchmarks_command.SUITES)


# --- without a compiler ---------------------------------------------------------------------------
PROGRAM = """
import torch, minidynamo, miniinductor, logging
logging.basicConfig()
def f(x):
    y = torch.softmax(x * 2, -1)
    print("a break")
    return y.sum(0) + 1
x = torch.randn(5, 7)
with torch.no_grad():
    for backend in ("eager", "aot_eager", "inductor"):
        minidynamo.reset()
        torch.testing.assert_close(minidynamo.compile(f, backend=backend)(x), f(x))
        frames = [record for record in minidynamo.records.frames if record.graph is not None]
        print(backend, len(frames), [len(getattr(r.backend_record, "kernels", ())) for r in frames])
    print(*[note for record in frames for note in record.backend_record.notes], sep="\\n")
    explained = minidynamo.explain(f)(x)
    print(len(str(explained.guards)) > 100, "softmax" in str(explained.graph))
net = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.GELU())
for model in (net, minidynamo.compile(net)):
    model(torch.ones(2, 3)).sum().backward()
    print("gradient", round(float(net[0].weight.grad.sum()), 4))
    net.zero_grad()
"""


def test_programs_run_without_a_compiler_and_it_is_said(tmp_path):
    script = tmp_path / "program.py"
    script.write_text(PROGRAM)
    status, text = run(tmp_path, str(script), hidden=True)
    assert status == 0, text
    lines = text.splitlines()
    assert {"eager 2 [0, 0]", "aot_eager 2 [0, 0]", "inductor 2 [0, 0]", "True True"} <= set(lines)
    assert "needs a C++ compiler and found none" in text
    one, another = [line for line in lines if line.startswith("gradient")]
    assert one == another


# --- %%minicompile --------------------------------------------------------------------------------
@pytest.fixture
def shell():
    interactive = pytest.importorskip("IPython.core.interactiveshell")
    made = interactive.InteractiveShell.instance()
    made.run_cell("%load_ext minidynamo.explain")
    yield made
    interactive.InteractiveShell.clear_instance()


CELL = """
import torch

def twice(x, scale=1):
    return torch.relu(x) * 2 * scale

twice(torch.ones(3),
      scale=3)"""


def test_the_cell_magic_explains_the_last_call(shell):
    explained = shell.run_cell_magic("minicompile", "--backend eager", CELL)
    assert explained.result.tolist() == [6.0, 6.0, 6.0]
    assert "relu" in str(explained.graph) and "twice" in str(explained)
    assert shell.user_ns["twice"](torch_ones()).tolist() == [2.0, 2.0]


def torch_ones():
    import torch

    return torch.ones(2)


def test_the_table_of_chapters_names_each():
    from tests.chapters_without_compiler import expected

    chapters = sorted(path.stem for path in (ROOT / "notebooks" / "src").glob("*.py"))
    assert sorted(expected()) == chapters
    assert all(ran <= every for ran, every in expected().values())
