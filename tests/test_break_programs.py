"""The programs of break_programs.py: as plain Python, in as few graphs as torch.compile needs.

Values, types, gradients, what is written to the arguments, and random numbers are compared.
"""

import numpy
import pytest
import torch
from break_programs import COUNTS, PROGRAMS
from test_capture_language import fresh  # noqa: F401

import minidynamo

# Whose kernels are worth the seconds that they take to build.
WITH_KERNELS = """
    scripted_function_that_calls_another typed_tensor_classes assertion_on_a_tensor max_of_tensors
    graph_module checkpoint_with_dropout gradient_is_set attribute_of_a_tensor nonzero
    numpy_of_a_captured_value structseqs locks
""".split()


def modules_of(program):
    """The modules that a program finds: itself, or in its closure."""
    cells = getattr(program, "__closure__", None) or ()
    found = [program, *(cell.cell_contents for cell in cells)]
    return [module for module in found if isinstance(module, torch.nn.Module)]


def observed(program, args, compiled):
    """What a program does that can be seen."""
    torch.manual_seed(3)
    result = compiled(*args)
    tensors = [t for t in torch.utils._pytree.tree_leaves(result) if isinstance(t, torch.Tensor)]
    losses = [t.float().sum() for t in tensors if t.requires_grad]
    if losses:
        sum(losses).backward()
    parameters = [dict(module.named_parameters()) for module in modules_of(program)]
    return result, args, parameters, torch.get_rng_state()


def same(ours, plain):
    assert type(ours).__name__ == type(plain).__name__, (ours, plain)
    if isinstance(plain, (torch.Tensor, numpy.ndarray, numpy.generic)):
        torch.testing.assert_close(
            torch.as_tensor(ours), torch.as_tensor(plain), rtol=1e-5, atol=1e-6
        )
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


DATA_DECIDE = """
    nonzero masked_select boolean_index unique bincount item facts_decide_unbacked_numbers
    tolist_into_a_sum where_of_a_condition
""".split()


@pytest.mark.parametrize("name", PROGRAMS)
def test_captured(name):
    check(name, "eager")


@pytest.mark.parametrize("name", WITH_KERNELS)
def test_compiled(name):
    check(name, "inductor")


@pytest.mark.parametrize("name", DATA_DECIDE)
def test_what_only_the_run_knows_stays_in_a_full_graph(name):
    check(name, "eager", fullgraph=True)


def test_a_decision_about_what_only_the_run_knows_is_named():
    def f(x):
        return x[x > 0] if (x > 0).sum().item() > 3 else x

    with pytest.raises(minidynamo.Unsupported, match="u0 > 3"):
        minidynamo.compile(f, backend="eager", fullgraph=True)(torch.ones(2))
