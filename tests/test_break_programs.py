"""Those of benchmarks/programs/breaks.py: as plain Python, in as few graphs as torch.compile needs.

Values, types, gradients, what is written to the arguments, and random numbers are compared.
"""

import copy
import random

import numpy
import pytest
import torch
import torch.utils.checkpoint

import minidynamo
from benchmarks.error_bound import assert_near
from benchmarks.programs.break_table import linear
from benchmarks.programs.breaks import COUNTS, PROGRAMS
from benchmarks.programs.breaks_of_python import positive

pytestmark = pytest.mark.usefixtures("anew")

# Whose kernels are worth the seconds that they take to build.
WITH_KERNELS = """
    scripted_function_that_calls_another typed_tensor_classes assertion_on_a_tensor
    graph_module checkpoint_with_dropout gradient_is_set attribute_of_a_tensor nonzero
    numpy_of_a_captured_value structseqs locks tensor_of_tensors
    tensor_class_of_a_tensor hooks_on_arguments autograd_function_of_mixed_precision

""".split()


def modules_of(program):
    """The modules that a program finds: itself, or in its closure."""
    cells = getattr(program, "__closure__", None) or ()
    found = [program, *(cell.cell_contents for cell in cells)]
    return [module for module in found if isinstance(module, torch.nn.Module)]


def observed(program, args, compiled):
    """What a program does that can be seen."""
    torch.manual_seed(3)
    random.seed(3)
    result = compiled(*args)
    tensors = [t for t in torch.utils._pytree.tree_leaves(result) if isinstance(t, torch.Tensor)]
    losses = [t.float().sum() for t in tensors if t.requires_grad]
    if losses:
        sum(losses).backward()
    parameters = [dict(module.named_parameters()) for module in modules_of(program)]
    return result, args, parameters, torch.get_rng_state(), random.getstate()


def same(ours, plain):
    assert type(ours).__name__ == type(plain).__name__, (ours, plain)
    if isinstance(plain, (torch.Tensor, numpy.ndarray, numpy.generic)):
        assert_near(torch.as_tensor(ours), torch.as_tensor(plain))
    elif isinstance(plain, dict):
        same(list(ours.items()), list(plain.items()))
    elif isinstance(plain, (tuple, list)):
        assert len(ours) == len(plain)
        for one, other in zip(ours, plain):
            same(one, other)
    else:
        assert ours == plain or type(plain).__module__ not in ("builtins", "torch"), (ours, plain)
    if isinstance(plain, torch.Tensor):
        assert ours.requires_grad == plain.requires_grad
        assert vars(ours).keys() == vars(plain).keys()
        if plain.is_leaf:
            same(ours.grad, plain.grad)


def check(name, backend, fullgraph=False):
    program, args = PROGRAMS[name]()
    plain = observed(program, args, program)
    program, args = PROGRAMS[name]()
    compiled = minidynamo.compile(program, backend=backend, fullgraph=fullgraph)
    same(observed(program, args, compiled), plain)
    counters = minidynamo.counters
    found = counters["graphs"].total(), counters["graph_breaks"].total()
    assert found == ((1, 0) if fullgraph else COUNTS[name]), dict(counters["graph_breaks"])
    assert not [text for text in counters["skipped"] if "the compiler failed" in text]


@pytest.mark.parametrize("name", PROGRAMS)
def test_captured(name):
    check(name, "eager")


@pytest.mark.parametrize("name", WITH_KERNELS)
def test_compiled(name):
    check(name, "inductor")


# ---- NumPy
def A():
    return numpy.linspace(-1, 1, 12, dtype=numpy.float32).reshape(3, 4)


def writes(a):
    a[0] = 1
    a[:, 1] *= 2
    b = a.astype(numpy.float32)
    b += 1
    return b


def shares(a):
    b, c, d, e = a.reshape(4, 3), a.ravel(), a.copy(), a.T
    b[0, 0], c[1], d[2], e[0, 2] = 99, 98, 97, 5
    return b, c, d, e


def goes_on_behind_a_break(a):
    total = a.sum()
    minidynamo.graph_break()
    return type(total).__name__, total + 1, a.T


def constants(x):
    steps = numpy.linspace(0, 1, 4) * 2 - numpy.arange(4)
    table = numpy.zeros(4)
    table.fill(3)
    total, positive = table.sum() + steps[1], steps > 0
    return x * torch.from_numpy(steps) + float(total), steps, table, steps.shape, positive


ON_ARRAYS = {  # -> is it whole?
    writes: False,
    shares: False,
    goes_on_behind_a_break: False,
    lambda a: (a.astype(int) / 2, a.mean(), a.std(axis=0)): False,
    lambda a: (a.shape, isinstance(a, numpy.ndarray)): False,
    lambda a: (torch.from_numpy(a) * 2, torch.tensor(a) + 1, torch.as_tensor(a).sin()): False,
    lambda a: (torch.from_numpy(a) * 2).numpy(): False,
    lambda a: constants(torch.ones(4)): False,
}


@pytest.mark.parametrize("function", ON_ARRAYS)
def test_numpy(function):
    plain, args = observed(function, [A()], function)[:2]
    compiled = minidynamo.compile(function, backend="eager")
    for _ in range(2):
        same(observed(function, [A()], compiled)[:2], (plain, args))
    assert (not minidynamo.counters["graph_breaks"]) is ON_ARRAYS[function]


# ---- assertions
def test_a_failed_assertion_is_the_programs_own():
    for backend in ("eager", "inductor"):
        compiled, y = minidynamo.compile(positive, backend=backend), torch.zeros(2)
        compiled(torch.ones(2), y)
        with pytest.raises(AssertionError, match="found -1.0"):
            compiled(-torch.ones(2), y)
        assert y.tolist() == [2, 2]


# ---- torch.utils.checkpoint
def checkpointed(layers, x):
    for layer in layers:
        x = torch.utils.checkpoint.checkpoint(layer, x, use_reentrant=False)
    return x.square().mean()


def saved_bytes(function):
    records = [r.backend_record for r in minidynamo.records.frames if r.backend_record]
    return sum(a.bytes for a in records[-1].saved if not a.is_input)


def test_what_a_checkpoint_makes_is_not_kept():
    def layer():
        return torch.nn.Sequential(linear(4, 32), torch.nn.GELU(), linear(32, 4))

    layers = torch.nn.ModuleList(layer() for _ in range(3))
    other, x, saved = copy.deepcopy(layers), torch.randn(8, 4), []
    checkpointed(layers, x).backward()
    for function in (checkpointed, lambda layers, x: layers[2](layers[1](layers[0](x))).mean()):
        minidynamo.reset()
        loss = minidynamo.compile(function, backend="inductor", fullgraph=True)(other, x)
        saved.append(saved_bytes(function))
        if function is checkpointed:
            loss.backward()
    for ours, plain in zip(other.parameters(), layers.parameters()):
        torch.testing.assert_close(ours.grad, plain.grad)
    assert saved[0] <= 3 * 8 * 4 * 4 < saved[1]


# ---- Python's random numbers
def drawn_before_a_decision(x):
    kept = random.random()
    x = x * random.uniform(1, 2)
    if random.random() < 0.5:
        x = x + random.randint(1, 5)
    random.seed(len(x))
    return x * random.random(), kept


def drawn_in_a_loop(x):
    for layer in range(4):
        if random.random() < 0.4:
            x = x + layer
    return x


def drawn_as_a_size(x):
    size = random.randint(1, 3)
    return x[:size] * size, torch.zeros(size), [7, 8, 9][size - 1], x**size


def drawn_where_an_index_is_wrong(x):
    y = x * random.random()
    try:
        return y[torch.tensor([1, 9])]
    except IndexError:
        return y * random.random() + random.randint(0, 3)


def drawn_with_kinds(x):
    number, whole = random.random(), random.randint(0, 9)
    return type(number), type(whole), x.long() * number, x.long() // 2 * whole, x.half() + whole


def drawn_and_raised(x):
    scale = 1 / (random.uniform(0, 0) + 0)
    return x * scale


DRAWING = [drawn_before_a_decision, drawn_in_a_loop, drawn_as_a_size, drawn_with_kinds]
DRAWING += [drawn_where_an_index_is_wrong, drawn_and_raised]


@pytest.mark.parametrize("backend", ["eager", "inductor"])
@pytest.mark.parametrize("function", DRAWING)
def test_what_python_draws_and_where_it_stops(function, backend):
    found = []
    for called in (function, minidynamo.compile(function, backend=backend)):
        random.seed(11)
        rows = []
        for n in range(3):
            try:
                rows.append(called(torch.arange(4.0) + n))
            except ZeroDivisionError as error:
                rows.append(str(error))
            rows.append(hash(random.getstate()))
        found.append(rows)
    same(found[1], found[0])
