"""Names of programs, functions that change, replaced functions of torch: samples of the generators,
and the cases that were met."""

import pytest
import torch
import torch.nn.functional as F

import minidynamo
from minidynamo import frame_hook
from minidynamo.sources import SourceTree, identifier
from tests.soundness import functions, names, runner

X = torch.arange(4.0) - 1


def test_sample_of_names():
    assert runner.sample(names, 8, "eager,inductor,eager-dynamic") == []


def test_sample_of_functions():
    assert runner.sample(functions, 80, "eager,inductor") == []


def test_a_parameter_called_len_hides_nothing():
    def f(xs, len):
        return sum(xs) * len

    compiled, two = minidynamo.compile(f, backend="eager"), torch.tensor(2.0)
    for n in (2, 3, 4):
        assert torch.equal(compiled([X] * n, two), f([X] * n, two))
    check = frame_hook.get_cache(f.__code__)[-1].record.guard_function
    assert check.parameters == ["xs", "len_"]
    assert "len(xs) == " in check.source


@pytest.mark.parametrize("backend", ["eager", "inductor"])
def test_parameters_called_like_what_guards_read(backend):
    def f(x, dtype, type, int, deterministic, inference, memo, leaf, v1, P_Tensor, s0):
        return x * dtype + type + int * deterministic + inference + memo + leaf + v1 + P_Tensor * s0

    minidynamo.reset()
    compiled = minidynamo.compile(f, backend=backend)
    args = [1, 2.5, 3, True, 5, 6, 7, 8, 9, 10]
    for _ in range(3):
        assert torch.equal(compiled(X, *args), f(X, *args))
    assert sum(minidynamo.counters["frames"].values()) == 1


def test_attributes_called_like_what_modules_and_wrappers_have():
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            for name in ("type_", "graph_", "buf0", "arg0", "call", "empty_cpu", "w", "w_", "w_1"):
                self.register_parameter(name, torch.nn.Parameter(torch.randn(4)))

        def forward(self, x):
            y = (x * self.type_ + self.graph_ * self.buf0).softmax(-1)
            return y + self.arg0 * self.call - self.empty_cpu + self.w + self.w_ * 3 + self.w_1 * 5

    model = Model()
    with torch.no_grad(), minidynamo.config.patch(raise_internal_errors=True):
        torch.testing.assert_close(minidynamo.compile(model)(X), model(X))


def test_each_object_of_an_entry_has_a_name_of_its_own():
    tree, classes = SourceTree(), [type(name, (), {}) for name in ("A", "A", "A_1", "\u00b2", "A")]
    keys = [tree.pinned(cls).key for cls in classes]
    assert len(set(keys)) == 5 and all(key.isidentifier() and key.isascii() for key in keys)
    assert identifier(".1s0") != identifier("L__1s0")


def test_an_attribute_called_like_a_keyword():
    class Options:
        pass

    def f(x, options):
        return x * getattr(options, "class") + getattr(options, "\ufb01")

    options = Options()
    setattr(options, "class", 2)
    setattr(options, "\ufb01", 3)
    compiled = minidynamo.compile(f, backend="eager")
    assert torch.equal(compiled(X, options), f(X, options))
    setattr(options, "\ufb01", 4)
    assert torch.equal(compiled(X, options), f(X, options))


def test_an_older_function_of_torch_is_called_by_its_replacement():
    original = F.relu

    def mine(x):
        return original(x) * 2

    compiled = minidynamo.compile(lambda x: F.relu(x), backend="eager")
    assert torch.equal(compiled(X), X.relu())
    F.relu = mine
    try:
        assert torch.equal(compiled(X), X.relu() * 2)
        assert torch.equal(compiled(X), X.relu() * 2)
    finally:
        F.relu = original
    assert torch.equal(compiled(X), X.relu())


def test_an_input_that_is_called_like_an_operator():
    def f(getitem, index):
        index.add_(1)
        return getitem * 2 + index

    for backend in ("eager", "aot_eager"):
        x, y = torch.ones(3), torch.zeros(3)
        assert torch.equal(minidynamo.compile(f, backend=backend)(x, y), torch.full((3,), 3.0))


def test_a_closure_variable_that_is_deleted_behind_a_break():
    def f(x):
        y = x + 1
        minidynamo.graph_break()
        held = lambda: y  # noqa: E731
        z = held() * 2
        del y
        return y + z

    for function in (f, minidynamo.compile(f, backend="eager")):
        with pytest.raises(UnboundLocalError):
            function(torch.ones(3))


@pytest.mark.parametrize("raising", [True, False])
def test_errors_of_the_program_are_none_of_the_compilers(raising):
    """With `raise_internal_errors`, a graph that has written raises the program's error."""

    def f(x, index):
        x.add_(1)
        return x[index]

    with minidynamo.config.patch(raise_internal_errors=raising), torch.no_grad():
        with pytest.raises(IndexError) as caught:
            minidynamo.compile(f, backend="inductor")(torch.zeros(3), torch.tensor([5]))
    assert not vars(caught.value)


def test_the_programs_default_device_is_not_the_compilers():
    x = torch.ones(3)
    with torch.device("meta"), minidynamo.config.patch(raise_internal_errors=True):
        got = minidynamo.compile(lambda x: x * 0.1)(x)
    assert torch.equal(got, x * 0.1)
