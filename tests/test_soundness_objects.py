"""Which objects are one, what their classes answer by code, what custom functions read and write,
who has hooks: samples of the generators."""

import pytest
import torch

import minidynamo
from tests.soundness import class_code, custom_functions, hooks, identity, runner, subclasses
from tests.soundness.modes import MODES


def reports(generator, cases, modes):
    """What differs in these cases, in the modes in turn."""
    chosen = [MODES[name] for name in modes.split(",")]
    found = [runner.attempt(generator, c, chosen[n % len(chosen)]) for n, c in enumerate(cases)]
    return [(case, told) for case, told in zip(cases, found) if told]


def test_sample_of_identity():
    """Each kind of thing with some of the questions."""
    cases = identity.sample(0)
    assert not reports(identity, cases[:: len(cases) // 60], "eager")
    assert not reports(identity, cases[3 :: len(cases) // 2], "aot_eager,inductor")


@pytest.mark.parametrize("turn", range(2))
def test_sample_of_what_classes_answer(turn):
    assert not reports(class_code, class_code.sample(turn)[turn::3], "eager")


def test_sample_of_custom_functions():
    assert not reports(custom_functions, custom_functions.sample(1)[::2], "aot_eager,eager")


def test_sample_of_hooks():
    assert not reports(hooks, hooks.sample(2)[::12], "eager,aot_eager")


def test_sample_of_subclasses():
    """Those that were met, and some others."""
    assert not reports(subclasses, [92515, 465, 14682, 55243, *range(24)], "eager,aot_eager")


class Thing:
    mark = 1

    def method(self):
        pass


ONE = {
    "set": lambda a, b: len({a, b}),
    "key": lambda a, b: {a: 5}.get(b, 7),
    "method": lambda a, b: {a.method: 5}.get(b.method, 7) if isinstance(a, Thing) else 1,
    "id": lambda a, b: {id(a): 5}.get(id(b), 7),
}


@pytest.mark.parametrize("question", ONE)
@pytest.mark.parametrize("make", [Thing, lambda: lambda: 1, lambda: type("Own", (), {})])
def test_objects_that_are_keys_are_two_and_then_one(make, question):
    minidynamo.reset()
    compiled = minidynamo.compile(lambda x, a, b: (x + 1, ONE[question](a, b)), backend="eager")
    first, second, x = make(), make(), torch.ones(2)
    for a, b in [(first, second), (first, second), (first, first), (second, first)]:
        assert compiled(x, a, b)[1] == ONE[question](a, b)
