"""The examples in the files' opening docstrings run, and give what stands there.

A name that an example does not make itself (`gm`, `record`, `graph`, ...) is one that `given`
makes: softmax of a 4 x 8 tensor at every stage of its compilation, or what stands in `MORE` for a
file.
"""

import ast
import doctest
import importlib
import os
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

import sympy  # noqa: E402
from backend_helpers import make_graph, pointwise  # noqa: E402
from front_helpers import trace  # noqa: E402
from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: E402

import minidynamo  # noqa: E402
import miniinductor  # noqa: E402
from minidynamo.shapes.symbolic_shapes import ShapeEnv, symbolic_fake  # noqa: E402
from miniinductor import compile as stages  # noqa: E402
from miniinductor.autograd.joint import trace_joint  # noqa: E402
from miniinductor.autograd.partition import partition  # noqa: E402
from miniinductor.codegen import kernels
from miniinductor.codegen.triton.tile_plan import Config, Launch  # noqa: E402
from miniinductor.ir import handlers
from miniinductor.ir.handlers import PrintHandler  # noqa: E402
from miniinductor.ir.ops import ops  # noqa: E402
from miniinductor.lowering import lower_graph  # noqa: E402
from miniinductor.lowering.decompositions import table  # noqa: E402
from miniinductor.records import CompileRecord  # noqa: E402
from miniinductor.schedule.scheduler import Scheduler  # noqa: E402
from miniinductor.sizes.expressions import FloorDiv  # noqa: E402

ROOT = Path(__file__).parent.parent
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
# examples that need a GPU, a code generator at work, or the models' library
ELSEWHERE = (
    "triton/timing tile_plan triton/build triton/expressions cpp/expressions "
    "codegen/kernel_plan foreach benchmarks/models _models ablation "
    "plots runner explain/callers explain/report explain/layout explain/passes explain/stages "
    "benchmarks/census"
).split()


class Checker(doctest.OutputChecker):
    """Where a docstring does not say what comes out, anything may."""

    def check_output(self, want, got, flags):
        return not want or super().check_output(want, got, flags)


def examples():
    for folder in ("miniinductor", "benchmarks", "minidynamo/explain"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            text = ast.get_docstring(ast.parse(path.read_text())) or ""
            name = path.relative_to(ROOT).as_posix().removesuffix(".py").removesuffix("/__init__")
            if ">>>" in text and not any(part in name for part in ELSEWHERE):
                yield pytest.param(name, text, id=name)


def f(x):
    return torch.softmax(x, -1)


def scheduled(function, *tensors, written=()):
    """A graph's scheduler and nodes; written: inputs whose new values are the last results."""

    def split(*tensors):
        results = function(*tensors)
        return results[: len(results) - len(written)], results[len(results) - len(written) :]

    graph = lower_graph(
        trace(split, list(tensors), table()),
        CompileRecord(),
        [("placeholder", name) for name in written],
    )
    scheduler = Scheduler(graph, CompileRecord())
    schedule = scheduler.schedule
    schedule.nodes = schedule.topological(scheduler.fuse(scheduler.live_nodes()))
    return {"nodes": schedule.nodes, "schedule": schedule}


def exponential():
    return make_graph(lambda x: [pointwise(ops.exp, x)], torch.randn(4, 8)).operations[0]


def in_place(x):
    y = x.clone()
    y[1:3].add_(1)
    return y


def product(after=lambda value: value):
    return {
        "gm": torch.fx.symbolic_trace(lambda x, w: (after(x @ w),)),
        "inputs": [torch.randn(2, 3, requires_grad=True), torch.randn(3, 4, requires_grad=True)],
    }


def training():
    compilation = stages.Compilation(torch.fx.GraphModule({}, torch.fx.Graph()), [])
    start = lambda program, record: program.start()  # noqa: E731
    return {
        "x": torch.randn(4, 8, requires_grad=True),
        "trace_joint": trace_joint,
        "held": [],
        "partition": partition,
        "is_cheap": stages.is_cheap,
        "compile_graph": compilation.compile_functional,
        "start": start,
        "start_forward": lambda parts: start(
            compilation.compile_functional(parts.forward, compilation.record, []), None
        ),
    }


def softmax_schedule():
    gm = trace(lambda x: ([f(x)], []), [torch.randn(4, 8)], table())
    record = CompileRecord(functional_graph=gm)
    graph = lower_graph(gm, record)
    return {"graph": graph, "schedule": stages.make_schedule(graph, record), "record": record}


def softmax_steps():
    found = softmax_schedule()
    schedule, record, device = found["schedule"], found["record"], torch.device("cpu")
    steps = kernels.build_kernels(kernels.write_kernels(schedule, record), schedule, record)
    return {**found, "steps": steps, "main_device": lambda graph: device}


def softmax_plan():
    """The one group of softmax, before its kernel is written."""
    gm = trace(lambda x: ([f(x)], []), [torch.randn(4096, 1024)], table())
    record = CompileRecord()
    (group,) = stages.make_schedule(lower_graph(gm, record), record).nodes
    return {"softmax_group": group}


def softmax_launch():
    config = Config((("XBLOCK", 1), ("RBLOCK", 1024)), num_warps=4)
    sizes, extents = {"x": 16384, "r": 1024}, [16384 * 1024] * 2
    return {
        "launch": Launch(
            sizes, [config], dict.fromkeys(("in0", "out0"), torch.float32), False, extents
        )
    }


def symbolic():
    mode = FakeTensorMode(static_shapes=True)
    mode.cache_enabled = False
    fake = symbolic_fake(mode, ShapeEnv(), torch.randn(12, 4), {0: 0, 1: 1})
    symbols = dict(zip(("s0", "s1"), (n.node.expr for n in fake.shape)))
    i, j = sympy.symbols("i j", integer=True, nonnegative=True)
    return {"fake": fake, "FloorDiv": FloorDiv, "i": i, "j": j, **symbols}


def quotients():
    given = symbolic()
    facts = given["fake"].shape[0].node.shape_env
    return given | {"s": given["s0"], "t": given["s1"], "facts": facts}


def an_index():
    """A node that may raise because of values."""
    graph = trace(lambda x, i: ([x[i]], []), [torch.randn(5), torch.tensor([1])], table()).graph
    return {"node": next(n for n in graph.nodes if n.op == "call_function")}


def explained():
    return minidynamo.explain(f)(torch.randn(4, 8))


MORE = {  # file -> what else its example finds
    "explain/notebook": lambda: {"e": explained()},
    "explain/packing": lambda: {"document": explained().to_json()},
    "explain/data": lambda: {"explain": minidynamo.explain},
    "explain/entry_stages": lambda: {
        "record": minidynamo.explain(f)(torch.randn(4, 8)).main.record
    },
    "codegen/kernel_plan": softmax_plan,
    "codegen/triton/tile_plan": softmax_launch,
    "autograd/fake_mode": lambda: (
        an_index()
        | {
            "aten": torch.ops.aten,
            "rows": torch.ones(10, 1, 5),
            "columns": torch.ones(1, 5, 10).transpose(1, 2),
            "fake_uint16": torch.zeros(1, dtype=torch.uint16),
        }
    ),
    "errors": lambda: {"compile_it": lambda: None, "work": len, "arguments": ([],)},
    "autograd/functionalize": lambda: {"gm": trace(in_place, [torch.randn(5, 3)])},
    "autograd/joint": product,
    "autograd/partition": lambda: {
        "joint": trace_joint(*product(torch.relu).values(), [], table()),
        "is_cheap": stages.is_cheap,
    },
    "autograd/runtime": training,
    "runtime/wrapper": lambda: {
        "graph": lower_graph(
            trace(lambda x, y: ([torch.relu(x @ y)], []), [torch.ones(8, 4), torch.ones(4, 16)]),
            CompileRecord(),
        )
    },
    "ir/dependencies": lambda: {
        "buffer": exponential(),
        "handler": PrintHandler(),
        "trace": handlers.trace,
    },
    "schedule/after_fusion": lambda: scheduled(
        lambda a, b, c: [a.sub(0.1), b.sub(0.1), c.sub(0.1)],
        torch.randn(3),
        torch.randn(5),
        torch.randn(7),
        written=["arg0", "arg1", "arg2"],
    ),
    "passes/graph_passes": lambda: {
        "gm": trace(lambda x: (x.clone().exp() + x.exp(), x.sin())[0], [torch.randn(3)])
    },
    "ir/handlers": lambda: {"buffer": exponential(), "graph": miniinductor.ir.loops.Graph()},
    "codegen/kernels": softmax_schedule,
    "runtime/memory": softmax_steps,
    "autograd/eager_graphs": lambda: {
        "functional": trace(lambda x: ([f(x)], []), [torch.randn(4, 8)], table()),
        "run": f,
    },
    "lowering/graph": lambda: {"gm": trace(lambda x: ([f(x)], []), [torch.randn(4, 8)], table())},
    "toolchain": lambda: {"x": torch.ones(3)},
    "sizes/symbols": symbolic,
    "sizes/prover": symbolic,
    "explain/draw_code": lambda: {"add": (lambda n: lambda x: x + n)(1)},
}


def given(name):
    x = torch.randn(4, 8)
    gm = torch.fx.symbolic_trace(lambda x: (torch.softmax(x, -1),))
    graph = lower_graph(trace(lambda x: ([f(x)], []), [x], table()), CompileRecord())
    return {
        **vars(importlib.import_module(name.replace("/", "."))),
        "torch": torch,
        "sympy": sympy,
        "miniinductor": miniinductor,
        "minidynamo": minidynamo,
        "CompileRecord": CompileRecord,
        "build_program": stages.build_program,
        "PrintHandler": PrintHandler,
        "f": f,
        "model": f,
        "x": x,
        "inputs": [x],
        "gm": gm,
        "example_inputs": [x],
        "record": CompileRecord(input_graph=gm),
        "graph": graph,
        **MORE.get(name.partition("/")[2], dict)(),
    }


@pytest.mark.parametrize("name, text", examples())
def test_the_example_runs(name, text, tmp_path):
    test, said = doctest.DocTestParser().get_doctest(text, given(name), name, name, 0), []
    before = os.getcwd()
    os.chdir(tmp_path)
    try:
        result = doctest.DocTestRunner(Checker(), verbose=False, optionflags=FLAGS).run(
            test, out=said.append
        )
    finally:
        os.chdir(before)
    assert not result.failed, "".join(said)
