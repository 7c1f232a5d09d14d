"""A good neighbour: other tools in the same process, copies of compiled things, misspelt options.

The long version is `make soak` and `make faults`; docs/how_it_is_tested.md says what is promised.
"""

import copy
import gc
import inspect
import io
import os
import pickle
import subprocess
import sys
import threading
import weakref
from pathlib import Path

import pytest
import torch

import minidynamo
import miniinductor

HERE = Path(__file__).parent

pytestmark = pytest.mark.usefixtures("anew")


def run_python(*arguments, timeout=120, **options):
    """A Python process, in which the packages and the tests' folder can be imported."""
    environment = dict(options.pop("env", os.environ))
    folders = [str(HERE.parent), environment.get("PYTHONPATH", "")]
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, folders))
    return subprocess.run(
        [sys.executable, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=timeout,
        env=environment,
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
assert not minidynamo.counters["errors"], minidynamo.counters["errors"]
"""
ONLY_ITS_OWN = """
assert dict(minidynamo.counters["frames"]) == {"f": 2}, minidynamo.counters["frames"]
"""
RIGHT = """
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
    (tmp_path / "program.py").write_text(PROGRAM + ONLY_ITS_OWN + RIGHT)
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


# ---- modules and functions that are compiled -----------------------------------------------------
class Model(torch.nn.Module):
    def __init__(self, activation=torch.relu):
        super().__init__()
        self.linear = torch.nn.Linear(3, 3)
        self.activation = activation

    def forward(self, x):
        return self.activation(self.linear(x))


def plain(x, y=2, *, k=3):
    """The function's text."""
    return x.sin() * y + k


plain.tag = 5
alone = minidynamo.compile(plain, backend="eager", dynamic=True)


@minidynamo.compile(backend="eager")
def decorated(x):
    return x.cos() + 1


RETURNING = ["eval", "train", "float", "double", "cpu", "requires_grad_", "share_memory"]


@pytest.mark.parametrize("name", RETURNING)
def test_what_returns_the_module_returns_the_compiled_one(name):
    compiled = minidynamo.compile(Model(), backend="eager")
    assert getattr(compiled, name)() is compiled
    assert compiled.to(torch.float64) is compiled and compiled.apply(lambda m: None) is compiled
    assert compiled.linear.weight.dtype == torch.float64
    assert compiled.zero_grad() is None


BACKENDS = ["eager", "aot_eager", "inductor"]


@pytest.mark.parametrize("learns", [False, True], ids=["inference", "training"])
@pytest.mark.parametrize("backend", BACKENDS)
def test_tensors_that_compiled_code_has_met_can_be_swapped(backend, learns):
    """`torch.utils.swap_tensors` refuses a tensor to which a weak reference points."""
    held, model = torch.randn(3), Model()

    def f(x, factor):
        return model(x) * held + factor

    compiled = minidynamo.compile(f, backend=backend, dynamic=False)
    x, factor = torch.randn(2, 3), torch.randn(2, 3)
    model.requires_grad_(learns)
    for dtype, columns in ((torch.float32, 3), (torch.float32, 1), (torch.float64, 3)):
        assert torch.allclose(compiled(x, factor), f(x, factor))
        if learns:
            compiled(x, factor).sum().backward()
            model.zero_grad()
        model.linear.to(dtype)
        torch.utils.swap_tensors(held, torch.randn(3, dtype=dtype))
        torch.utils.swap_tensors(factor, torch.randn(2, columns, dtype=dtype))
        torch.utils.swap_tensors(x, torch.randn(2, 3, dtype=dtype))
        other = torch.nn.Parameter(torch.randn(3, 3, dtype=dtype), requires_grad=learns)
        torch.utils.swap_tensors(model.linear.weight, other)
        assert torch.allclose(compiled(x, factor), f(x, factor))


def through_torch_save(value):
    file = io.BytesIO()
    torch.save(value, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


COPIES = {
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "pickle": lambda value: pickle.loads(pickle.dumps(value)),
    "torch.save": through_torch_save,
}


@pytest.mark.parametrize("again", COPIES.values(), ids=COPIES)
def test_copies_of_compiled_functions(again):
    x = torch.randn(3)
    assert again(decorated) is decorated  # as functions are: found under its name
    model = again(Model(decorated))
    assert model.activation is decorated and model(x).shape == (3,)
    assert minidynamo.counters["frames"]["decorated"] == 1


def counting(gm, example_inputs):
    counting.graphs += 1
    return gm.forward


class Counting:
    __call__ = staticmethod(counting)


@pytest.mark.parametrize(
    "backend", [counting, Counting(), "aot_eager"], ids=["function", "object", "name"]
)
@pytest.mark.parametrize("again", COPIES.values(), ids=COPIES)
def test_copies_of_compiled_modules_keep_backend_and_options(again, backend):
    counting.graphs = 0
    module = minidynamo.compile(Model(), backend=backend, dynamic=True, fullgraph=True)
    other, x = again(module), torch.randn(2, 3)
    assert type(other) is type(module) and torch.equal(other(x), module._orig_mod(x))
    compiler = other._compiler
    assert (compiler.dynamic, compiler.fullgraph, compiler.mode) == (True, True, None)
    assert counting.graphs == (backend != "aot_eager")
    other(torch.randn(5, 3))
    assert minidynamo.counters["recompiles"].total() == 0


def test_a_function_that_is_not_under_its_name_is_not_pickled():
    assert copy.deepcopy(alone) is alone
    with pytest.raises(pickle.PicklingError, match="not the same object"):
        pickle.dumps(alone)


def test_a_compiled_function_has_what_the_function_has():
    assert alone.tag == 5 and alone.__defaults__ == (2,) and alone.__kwdefaults__ == {"k": 3}
    assert alone.__code__ is plain.__code__ and alone.__globals__ is globals()
    assert inspect.signature(alone) == inspect.signature(plain) and alone.__doc__ == plain.__doc__
    assert not hasattr(alone, "there_is_none")
    assert inspect.getsource(alone) == inspect.getsource(plain)
    compiled, x = minidynamo.compile(lambda x, y=2: x * y, backend="eager"), torch.ones(2)
    assert compiled(x)[0] == 2
    compiled.__defaults__ = (10,)
    assert compiled(x)[0] == 10


@pytest.mark.parametrize("config", [minidynamo.config, miniinductor.config])
def test_a_misspelt_option_raises(config):
    with pytest.raises(AttributeError, match="no option 'debgu': did you mean debug?"):
        config.debgu = 2
    with pytest.raises(AttributeError, match="no option 'debgu'"):
        config.patch(debgu=2).__enter__()
    before = config.debug
    config.debug = before + 0
    assert config.debug == before


# ---- memory --------------------------------------------------------------------------------------
class Backend:
    def __call__(self, gm, example_inputs):
        return gm.forward


def test_a_backend_is_not_kept_after_reset():
    backend = Backend()
    alive = weakref.ref(backend)
    minidynamo.compile(plain, backend=backend)(torch.randn(3))
    del backend
    minidynamo.reset()
    gc.collect()
    assert alive() is None


# ---- differentiating twice -----------------------------------------------------------------------
def test_differentiating_compiled_code_twice_says_what_to_do():
    def penalty(x, weight):
        return torch.tanh(x @ weight).sum(1)

    x, weight = torch.randn(4, 3, requires_grad=True), torch.randn(3, 3, requires_grad=True)

    def step(function):
        [gradient] = torch.autograd.grad(function(x, weight).sum(), x, create_graph=True)
        gradient.square().sum().backward()
        return weight.grad

    with pytest.raises(RuntimeError, match="cannot be differentiated twice.*backend=.eager") as e:
        step(minidynamo.compile(penalty))
    assert "create_graph=True" in str(e.traceback[1].statement)
    expected = step(penalty).clone()
    weight.grad = None
    torch.testing.assert_close(step(minidynamo.compile(penalty, backend="eager")), expected)


# ---- torch's older tracers
def summed(x):
    return torch.sin(x) + x.sum()


def test_another_thread_is_compiled_while_torch_jit_traces():
    counts, compiled = [], minidynamo.compile(summed, backend="eager")

    def body(x):
        thread = threading.Thread(target=compiled, args=(torch.ones(2),))
        thread.start()
        thread.join()
        counts.append(minidynamo.counters["graphs"].total())
        return x + 1

    torch.jit.trace(body, torch.ones(2), check_trace=False)
    assert counts == [1]


# ---- warnings that are errors --------------------------------------------------------------------
class Step(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 4)

    def forward(self, x):
        y = torch.relu(self.layer(x))
        print(end="")  # what follows is given a tensor that is no leaf
        return torch.softmax(y.reshape(-1, 2).expand(3, -1, -1), -1)[:, : x.shape[0]] * x.shape[0]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("learns", [False, True], ids=["inference", "training"])
@pytest.mark.parametrize("backend", BACKENDS)
def test_where_warnings_are_errors_frames_are_compiled_still(backend, learns):
    """Of torch's own warnings: sizes among a graph's arguments (static: docs/limits.md)."""
    model = Step()
    compiled = minidynamo.compile(model, backend=backend, dynamic=True)
    for rows in (2, 3, 6):
        x = torch.randn(rows, 4, requires_grad=learns) * 1
        torch.testing.assert_close(compiled(x), model(x))
        if learns:
            compiled(x).sum().backward()
    assert minidynamo.counters["graphs"].total() == 2


def test_the_filters_of_the_program_stay_as_they_are():
    """Also where a warning had to be silenced while a frame was compiled."""
    program = """
import warnings, torch, torch.fx.experimental.symbolic_shapes, torch.onnx, torch._dynamo
import torch._inductor.config
warnings.simplefilter("error", UserWarning)
before = list(warnings.filters)
import minidynamo
model = torch.nn.Linear(3, 3)
compiled = minidynamo.compile(lambda x: (x * 2).sum(0), dynamic=True)
for rows in (3, 4):
    compiled(model(torch.randn(rows, 3))).sum().backward()
assert warnings.filters == before, set(warnings.filters) ^ set(before)
print("right")
"""
    found = run_python("-c", program)
    assert "right" in found.stdout, found.stderr[-2000:]
