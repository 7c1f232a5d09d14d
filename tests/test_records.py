"""What the front end writes down of breaks, recompilations and failures is true, and is told."""

import random
import sys

import pytest
import torch

import minidynamo
from minidynamo import records
from minidynamo.explain.explanation import all_breaks


# --- graph breaks ---------------------------------------------------------------------------------
def program_text(rng):
    """Functions that call one another, some of which break the graph; `f` is the last one."""
    texts = []
    for number in range(rng.randrange(2, 5)):
        body = []
        for _ in range(rng.randrange(2, 5)):
            choices = ["x = x.sin()", "x = x * 2"]
            choices += [f"x = h{rng.randrange(number)}(x)"] * 4 if number else ["mark(x)"]
            body.append("    " + rng.choice(choices))
        texts.append("\n".join([f"def h{number}(x):", *body, "    return x + 1"]))
    calls = [f"    x = h{rng.randrange(len(texts))}(x)" for _ in range(3)]
    texts.append("\n".join(["def f(x):", "    x = x.cos()", *calls, "    return x.exp()"]))
    return "\n".join(texts) + "\n"


@pytest.mark.parametrize("seed", range(12))
def test_breaks_in_called_functions_have_the_stack_that_plain_python_has(seed):
    stacks = []

    @minidynamo.disable
    def mark(x):
        frame, stack = sys._getframe(1), []
        while frame is not None and frame.f_code.co_filename == "<program>":
            stack.insert(0, ("<program>", frame.f_lineno, frame.f_code.co_name))
            frame = frame.f_back
        stacks.append(stack)

    scope = {"mark": mark}
    exec(compile(program_text(random.Random(seed)), "<program>", "exec"), scope)
    scope["f"](torch.ones(2))
    expected = list(stacks)
    minidynamo.reset()
    minidynamo.compile(scope["f"], backend="eager")(torch.ones(2))
    found = [each for record in records.frames for each in record.graph_breaks]
    for each in found:
        assert any(stack[-len(each.stack) :] == each.stack for stack in expected), each.stack
        assert (each.file, each.line) == each.stack[-1][:2]
    # each line of `f` from which one comes: the first that is met is met while all is inlined
    first = {stack[0]: stack for stack in reversed(expected)}
    assert all(stack in [each.stack for each in found] for stack in first.values())
    assert {each.line for each in all_breaks(records.frames)} == {s[-1][1] for s in expected}


def helper(x):
    x = x + 1
    print("in the helper")
    return x * 2


def middle(x):
    return helper(x.cos())


def three_breaks(x):
    x = x.sin()
    print("first")
    x = middle(x)
    minidynamo.graph_break()
    return x.exp()


def test_an_explanation_counts_the_breaks_of_all_frames_once():
    e = minidynamo.explain(three_breaks)(torch.ones(2))
    first = three_breaks.__code__.co_firstlineno
    lines = [first + 2, helper.__code__.co_firstlineno + 2, first + 4]
    assert [row[0] for row in e.breaks.rows] == [f"test_records.py:{line}" for line in lines]
    called_from = f"three_breaks:{first + 3} > middle:{middle.__code__.co_firstlineno + 1}"
    assert [row[-1] for row in e.breaks.rows] == ["", called_from, ""]
    assert e.breaks.title == "3 graph breaks" and len(e.frames[0].breaks.rows) == 1
    drawn = e.frames_picture  # the break in the helper stands at the line of the call
    assert (
        sum(
            "plain Python" in line
            for _, _, _, k, _ in drawn.links
            for line in [drawn.columns[1][1][k]]
        )
        >= 3
    )


def test_a_break_that_is_not_allowed_is_told_with_its_whole_stack():
    with pytest.raises(minidynamo.Unsupported) as error:
        minidynamo.compile(middle, fullgraph=True)(torch.ones(2))
    _, outer, inner, *_ = str(error.value).splitlines()
    assert outer.endswith("in middle") and inner.endswith("in helper")


def test_an_exception_that_leaves_the_frame_is_placed_where_it_was_raised():
    def raises(x):
        raise ValueError(str(x.shape))

    def f(x):
        x = x + 1
        return raises(x)

    minidynamo.reset()
    with pytest.raises(ValueError):
        minidynamo.compile(f, backend="eager")(torch.ones(2))
    found = records.frames[0].graph_breaks[0]
    assert [name for _, _, name in found.stack] == ["f", "raises"]
    assert found.line == raises.__code__.co_firstlineno + 1
