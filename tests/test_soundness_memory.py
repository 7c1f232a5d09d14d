"""What a compiled call held is let go: parameters of dead modules, arguments, results."""

import gc
import weakref

import pytest
import torch

import minidynamo
from minidynamo import records
from minidynamo.frame import frame_hook

MODES = {
    "eager": {"backend": "eager"},
    "aot_eager": {"backend": "aot_eager"},
    "inductor": {"backend": "inductor"},
    "dynamic": {"backend": "inductor", "dynamic": True},
    "dynamic eager": {"backend": "eager", "dynamic": True},
    "reduce-overhead": {"backend": "inductor", "mode": "reduce-overhead"},
    "own backend": {"backend": lambda gm, inputs: gm.forward},
}


@pytest.fixture(autouse=True)
def fresh():
    """Where modules of one class die unused, no other is compiled (entries.DEAD)."""
    minidynamo.reset()


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(4, 4)
        self.last = torch.nn.Linear(4, 3)
        self.register_buffer("scale", torch.ones(3))

    def forward(self, x):
        return self.last(self.first(x).relu()) * self.scale


def as_module(model, options):
    return minidynamo.compile(model, **options)


def as_method(model, options):
    return minidynamo.compile(model.forward, **options)


def as_closure(model, options):
    return minidynamo.compile(lambda x: model(x) * 2, **options)


def as_argument(model, options):
    compiled = minidynamo.compile(lambda given, x: given(x) + 1, **options)
    return lambda x: compiled(model, x)


def with_break(model, options):
    def call(x):
        y = model(x)
        minidynamo.graph_break()
        return model.first(x).sum() + y.sum()

    return minidynamo.compile(call, **options)


FORMS = [as_module, as_method, as_closure, as_argument, with_break]
# each form with the default options, each mode with one form
CASES = [(form, "inductor", training) for form in FORMS for training in (False, True)]
CASES += [(as_closure, "aot_eager", False), (as_module, "eager", False)]
CASES += [(as_module, name, True) for name in MODES]


@pytest.fixture
def without_collections():
    """Python looks for cycles only where a test asks it to."""
    minidynamo.compile(lambda x: x + 1)(torch.ones(2))  # torch imports what it needs only now
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("without_collections")
@pytest.mark.parametrize("form, name, training", CASES)
def test_parameters_arguments_and_results_die(form, name, training):
    """One collection is enough, and what no cycle holds needs none."""
    model, x = Model(), torch.randn(5, 4)
    compiled = form(model, MODES[name])
    with torch.set_grad_enabled(training):
        result = compiled(x)
        if training:
            result.sum().backward()
    held = {key: weakref.ref(value) for key, value in model.state_dict(keep_vars=True).items()}
    held |= {
        f"gradient of {k}": weakref.ref(p.grad) for k, p in model.named_parameters() if training
    }
    held |= {"model": weakref.ref(model), "x": weakref.ref(x), "result": weakref.ref(result)}
    del x, result
    assert [key for key in ("x", "result") if held[key]() is not None] == []
    del model, compiled
    gc.collect()
    assert [key for key, reference in held.items() if reference() is not None] == []


def test_entries_of_dead_modules_are_dropped():
    code = Model.forward.__code__
    for backend in ("eager", "inductor"):
        for _ in range(2):
            minidynamo.compile(Model(), backend=backend)(torch.randn(2, 4))
            gc.collect()
        assert frame_hook.get_cache(code) in (None, [])
    assert all(record.code is not code for record in records.frames)


@pytest.mark.parametrize("backend", ["eager", "inductor"])
def test_models_that_are_made_and_die_are_not_held(backend):
    held = []
    for _ in range(5):
        model = Model()
        held += [weakref.ref(model), *map(weakref.ref, model.parameters())]
        minidynamo.compile(model, backend=backend)(torch.randn(2, 4)).sum().backward()
        del model
        gc.collect()
        assert [reference() for reference in held if reference() is not None] == []
    assert len(frame_hook.get_cache(Model.forward.__code__)) <= 1  # one for all that are alike
