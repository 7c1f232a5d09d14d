"""What explain tells only where it is asked: seconds of each kernel, machine code; and the symbolic
stack beside each instruction."""

import json
import linecache
from pathlib import Path

import pytest
import torch

import minidynamo
from minidynamo.explain import data, timeline
from tests.explorer import programs, traffic


def entry_of(explanation):
    return explanation.to_json()["frames"][0]["entries"][0]


@pytest.fixture(scope="module")
def looked_at():
    torch.manual_seed(0)
    with torch.no_grad():
        e = minidynamo.explain(programs.five_lines, measure=True, assembly=True)(
            torch.randn(8, 8), torch.randn(8, 8)
        )
    return e.to_json()


def test_every_kernel_is_measured_and_has_its_innermost_loops(looked_at):
    pytest.importorskip("jsonschema").validate(looked_at, data.schema())
    (entry,) = looked_at["frames"][0]["entries"]
    assert looked_at["made"]["copy"]["bytes_per_second"] > 1e8
    assert all(kernel["seconds"] > 0 for kernel in entry["kernels"])
    (eager,) = entry["eager_kernels"]
    assert eager["seconds"] > 0 and eager["bytes"] == 3 * 8 * 8 * 4  # x, w, and their product
    assert [bool(step["kernel"]) for step in entry["steps"]] == [False, True]
    stages = {stage["id"]: stage for stage in entry["stages"]}
    for step in entry["steps"]:
        stage, _, number = step["line"].rpartition("/")
        assert "(" in stages[stage]["text"].split("\n")[int(number) - 1]
    (kernel,) = entry["kernels"]
    source = stages[kernel["stage"]]["text"].split("\n")
    rows = [row for row in kernel["assembly"].split("\n") if row[:5].strip().isdigit()]
    assert rows and all(1 <= int(row[:5]) <= len(source) for row in rows)


def test_nothing_is_measured_unless_asked(looked_at):
    document = programs.explain_five_lines().to_json()
    (entry,) = document["frames"][0]["entries"]
    assert document["made"]["copy"] is None and entry["steps"] == []
    assert all(k["seconds"] is None and not k["assembly"] for k in entry["kernels"])


def test_measuring_changes_no_result():
    """Kernels that write to their inputs, and those that draw numbers, run once for the program."""

    def f(x, steps):
        steps.add_(1)
        x.mul_(2)
        return torch.nn.functional.dropout(x @ x, 0.5), torch.rand(4)

    def run(function):
        torch.manual_seed(3)
        x, steps = torch.arange(16.0).view(4, 4), torch.zeros((), dtype=torch.int64)
        result = function(x, steps)
        return [*getattr(result, "result", result), x, steps, torch.rand(2)]

    with torch.no_grad():
        e = minidynamo.explain(f, measure=True)
        for ours, wanted in zip(run(e), run(f)):
            assert torch.equal(ours, wanted)


def test_the_stack_is_that_of_the_interpreter():
    def f(x, y):
        return x + y * 2

    entry = entry_of(minidynamo.explain(f)(torch.ones(3), torch.ones(3)))
    code = {node["id"]: node["op"] for node in entry["stages"][0]["nodes"]}
    walk = [(code[row["node"]], row["stack"], row["calls"]) for row in entry["walk"]]
    assert [row for row in walk if row[0] == "BINARY_OP"] == [
        ("BINARY_OP", ["x", "y", "constant 2"], 0),
        ("BINARY_OP", ["x", "mul"], 1),
    ]
    assert walk[-1] == ("RETURN_VALUE", ["add"], 2)


def test_loop_ir_is_a_graph(looked_at):
    (entry,) = looked_at["frames"][0]["entries"]
    loops = next(stage for stage in entry["stages"] if stage["kind"] == "loop_ir")
    fused = next(stage for stage in entry["stages"] if stage["kind"] == "fused")
    name = lambda found: found.rpartition("/")[2]  # noqa: E731
    reads = {node["name"]: [*map(name, node["inputs"])] for node in loops["nodes"]}
    assert reads["buf1"] == ["buf0"] and set(reads["buf5"]) == {"buf3", "buf4"}
    (group,) = [node for node in fused["nodes"] if node["op"] == "group"]
    assert [*map(name, group["inputs"])] == ["buf0"]


def test_bytes_are_the_distinct_elements_that_a_kernel_touches():
    """(tests/explorer/traffic.py: of 200 programs.)"""
    wrong, exact, bounds = traffic.wrong_kernels(range(300, 320))
    assert not wrong and exact > 20 and bounds
    look_up = minidynamo.explain(lambda table, ids, x: table[ids] * 2 + x)
    (kernel,) = entry_of(look_up(torch.randn(5000, 8), torch.arange(16), torch.randn(8)))["kernels"]
    assert kernel["bytes_read"] == 16 * 8 + 16 * 8 * 4 + 8 * 4 and kernel["at_most"]


def test_comments_of_kernels_name_the_lines_of_the_program():
    def f(x, w):
        h = torch.relu(x @ w)
        return torch.softmax(h * 2, -1)

    first = f.__code__.co_firstlineno
    here = lambda line: f"test_explorer_measured.py:{first + line}"  # noqa: E731
    e = minidynamo.explain(f)(torch.randn(8, 8), torch.randn(8, 8, requires_grad=True))
    e.result.sum().backward()
    forward, backward = e.main.compiled, e.main.compiled.backward
    source = forward.kernels[0].source
    assert f"{{\n    // h = torch.relu(x @ w): {here(1)}\n" in source
    assert f"    // buf0 = mm: {here(1)}\n" in source and "more, ..." not in source
    gradient = f"// gradient of return torch.softmax(h * 2, -1): {here(2)}"
    assert gradient in backward.kernels[0].source


def test_a_line_of_the_program_cannot_leave_its_comment():
    space = {"torch": torch}
    text = "def f(x):\n    NAME = torch.sin\n    return NAME(x) + 1  # \N{SNOWMAN} \\\n"
    file = "/torch/a\nint wrong;"  # in a folder that is not torch's own
    linecache.cache[file] = len(text), None, text.splitlines(keepends=True), file
    exec(compile(text, file, "exec"), space)
    e = minidynamo.explain(lambda x: space["f"](x))(torch.ones(3))
    assert torch.allclose(e.result, torch.ones(3).sin() + 1)
    (kernel,) = e.main.compiled.kernels
    assert "return NAME(x) + 1 # \\u2603 \\\\: a\\nint wrong;:3\n" in kernel.source
    del linecache.cache[file]  # what a prompt runs has no text: the op stands there
    (kernel,) = minidynamo.explain(space["f"])(torch.ones(3)).main.compiled.kernels
    assert "    // sin: a\\nint wrong;:3\n" in kernel.source


def test_the_timeline_tells_where_time_goes(tmp_path):
    """In Chrome's format: stages lie within their frame, the lines of a call follow one another."""
    e = programs.explain_mlp_training()
    path = e.timeline.save(str(tmp_path / "trace.json"))
    found = json.loads(Path(path).read_text())["traceEvents"]
    tracks = {event["pid"]: event["args"]["name"] for event in found if event["ph"] == "M"}
    slices = [event for event in found if event["ph"] == "X"]
    calls = [f"call of MLP.forward, {half}" for half in ("forward", "backward")]
    assert {*tracks.values()} == {"compiling", *calls}
    stages = [one for one in slices if tracks[one["pid"]] == "compiling"]
    (frame,) = [one for one in stages if one["name"] == "MLP.forward"]
    end = frame["ts"] + frame["dur"]
    within = [one["name"] for one in stages if frame["ts"] <= one["ts"] <= end - one["dur"] + 0.1]
    assert {"trace", "graph", "backend", "guards", "lower", "fusion", "codegen"} <= {*within}
    assert {one["name"] for one in stages if one["ts"] > end} >= {"fusion", "codegen"}  # backward
    for half, record in (("forward", e.main.compiled), ("backward", e.main.compiled.backward)):
        lines = [one for one in slices if tracks[one["pid"]].endswith(half)]
        kinds = {one["name"]: one["cat"] for one in lines}
        assert all(kinds[kernel.name] == "kernel" for kernel in record.kernels)
        assert {"library", "allocation"} <= {*kinds.values()}
        wanted = [one for one in lines if one["cat"] in ("kernel", "library")]
        assert all("programs.py:3" in one["args"]["source"] for one in wanted)
        for one, after in zip(lines, lines[1:]):
            assert abs(one["ts"] + one["dur"] - after["ts"]) < 0.1


def test_the_timeline_of_measured_kernels_has_what_was_measured():
    with torch.no_grad():
        e = minidynamo.explain(programs.five_lines, measure=True)(*torch.randn(2, 8, 8))
    (kernel,) = entry_of(e)["kernels"]
    (found,) = [one for one in e.timeline.slices if one.kind == "kernel"]
    assert found.end - found.start == pytest.approx(kernel["seconds"])


def test_the_timeline_has_what_a_gpu_did_beside_the_line_that_launched_it():
    """As CUPTI tells it: a launch within the call, and its kernel, which may run behind that."""
    with torch.no_grad():
        e = minidynamo.explain(programs.five_lines)(*torch.randn(2, 8, 8))
    (line,) = [one for one in e.timeline.slices if one.kind == "kernel"]
    at = (line.start + line.end) / 2
    told = (
        ("cuLaunchKernel", "", at, 7),
        ("sum_0<MemLaunch>", "gpu", line.end + 9, 7),
        ("Memset", "gpu", at, 8),
    )
    told += ("cudaStreamSynchronize", "", at, 9), ("cudaMalloc", "", at, 5), ("late", "", at + 9, 4)
    e.works = [timeline.Work(name, on, on + 1, to, number) for name, to, on, number in told]
    found = {one.name: one for one in e.timeline.slices if one.name in [name for name, *_ in told]}
    kinds = {name: (one.kind, one.track) for name, one in found.items()}
    host = "call of five_lines, forward"
    assert kinds.pop("sum_0<MemLaunch>") == ("kernel", "gpu") and kinds.pop("Memset") == (
        "copy",
        "gpu",
    )
    assert (
        kinds.pop("cuLaunchKernel") == ("launch", host)
        and found["sum_0<MemLaunch>"].source == line.source
    )
    assert kinds == {"cudaStreamSynchronize": ("wait", host)}
