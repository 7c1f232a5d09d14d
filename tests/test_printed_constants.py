"""Constants next to operators: torch.fx prints graphs as Python text, where `(-2) ** t` is not
`-2 ** t`, `infj` is a name and `-0-1j` has lost a sign."""

import itertools
import random

import pytest
import torch
from torch import fx

import minidynamo
from miniinductor import compile_fx

CONSTANTS = """-2 -1.5 2 ~1 True -0.0 -2j 2-1j -1j complex(-0.0,2.0) complex(1.0,float('inf'))
    -float('inf') float('nan') -float('nan') -n -(n+1) -2**63""".split()
OPERATORS = "+ - * / // % ** << >> & | ^ == <".split()
CALLS = """torch.mul(t,{0}) torch.pow({0},t) t.pow({0}) torch.full((3,),{0}) t.add({0},alpha={0})
    torch.where(t>2,t,{0}) torch.full_like(t,fill_value={0})""".split()
PROGRAMS = [f"c = ({c}) {o} t" for c, o in itertools.product(CONSTANTS, OPERATORS)]
PROGRAMS += [f"c = t {o} ({c})" for c, o in itertools.product(CONSTANTS, OPERATORS)]
PROGRAMS += [f"c = {c}; c {o}= t" for c, o in itertools.product(CONSTANTS, OPERATORS[:-2])]
PROGRAMS += [f"c = {call.format(c)}" for c, call in itertools.product(CONSTANTS, CALLS)]


def function_of(program, before=""):
    scope = {"torch": torch}
    exec(f"def f(t):\n n = t.shape[0]\n {before}\n {program}\n return c", scope)
    return scope["f"]


def bits(function, t):
    """Of the result, where all NaNs are one; or the class of the error."""
    try:
        result = function(t)
    except Exception as error:
        return type(error)
    parts = torch.view_as_real(result.resolve_conj()) if result.is_complex() else result
    return result.dtype, [(x, 1 / x if x and x == x else str(x)) for x in parts.flatten().tolist()]


def as_called(gm, inputs):
    return lambda *args: gm(*args)


@pytest.mark.parametrize("tensor", [torch.arange(1, 5), torch.arange(4) - 1.5])
def test_the_graph_says_what_the_program_says(tensor):
    for program in random.Random(0).sample(PROGRAMS, 250) + [f"c = ({c}) ** t" for c in CONSTANTS]:
        function = function_of(program)
        for dynamic in {None, "n" in program or None}:
            minidynamo.reset()
            compiled = minidynamo.compile(function, backend=as_called, dynamic=dynamic)
            found, wanted = bits(compiled, tensor), bits(function, tensor)
            assert str(found) == str(wanted), program


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
@pytest.mark.parametrize("constant", ["-2", "-1j", "-n"])
def test_graphs_that_run_eagerly(constant, backend):
    function = function_of(f"c = ({constant}) ** t", "(t + t).unfold(0, 2, 1).abs_()")
    minidynamo.reset()
    assert bits(minidynamo.compile(function, backend=backend), torch.arange(1, 5)) == bits(
        function, torch.arange(1, 5)
    )


@pytest.mark.parametrize("constant", [-2, -1j, complex(0, float("inf"))])
def test_graphs_of_others_that_run_eagerly(constant):
    gm = fx.symbolic_trace(lambda t: ((t + t).unfold(0, 2, 1).abs_(), constant**t))
    compiled = compile_fx(gm, [torch.arange(1, 5)])
    assert any("runs eagerly" in note for note in compiled.record.notes)
    found = compiled.function(torch.arange(1, 5))[1]
    torch.testing.assert_close(found, constant ** torch.arange(1, 5), equal_nan=True)
