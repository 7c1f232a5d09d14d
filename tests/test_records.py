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


def test_a_break_that_is_not_allowed_is_told_with_its_whole_stack():
    with pytest.raises(minidynamo.Unsupported) as error:
        minidynamo.compile(middle, fullgraph=True)(torch.ones(2))
    _, outer, inner, *_ = str(error.value).splitlines()
    assert outer.endswith("in middle") and inner.endswith("in helper")


# --- guards that failed ---------------------------------------------------------------------------
class Settings:
    def __init__(self, scale):
        self.scale = scale


def uses(x, value=None):
    """Looks at its second argument, whatever it is."""
    if isinstance(value, Settings):
        return x * value.scale
    if isinstance(value, list):
        return x * len(value)
    if isinstance(value, dict):
        return x * value["k"]
    if isinstance(value, str):
        return x * len(value.strip())
    return x + 1 if value is None else x * value


def test_every_entry_is_judged():
    e = minidynamo.explain(uses, backend="eager", dynamic=False)(torch.ones(2))
    e.why_recompile(torch.ones(3))
    e.why_recompile(torch.ones(3).double())
    rows = e.why_recompile(torch.ones(4)).rows
    assert [row[4:] for row in rows] == [
        (0, "(2,)", "(4,)"),
        (1, "(3,)", "(4,)"),
        (2, "torch.float64", "torch.float32"),
    ]
    assert not e.why_recompile(torch.ones(3)).rows


# --- failures, and what is told -------------------------------------------------------------------
@pytest.fixture
def told(caplog):
    minidynamo.reset()
    with minidynamo.config.patch(raise_internal_errors=False):
        yield lambda: [(r.name, r.getMessage()) for r in caplog.records if r.levelname == "WARNING"]


def doubled(x):
    return x * 2


class OutOfMemory(Exception):
    pass


def raises(gm, inputs):
    raise OutOfMemory("no room")


def no_function(gm, inputs):
    return 3


@pytest.mark.parametrize(("backend", "cause"), [(raises, OutOfMemory), (no_function, TypeError)])
@pytest.mark.parametrize("is_registered", [False, True])
def test_a_backend_of_the_users_that_raises_raises(backend, cause, is_registered, told):
    given = backend
    if is_registered:
        minidynamo.register_backend(backend, name=f"test {backend.__name__}")
        given = f"test {backend.__name__}"
    compiled = minidynamo.compile(doubled, backend=given)
    for _ in range(2):
        with pytest.raises(minidynamo.BackendError, match=f"line|{__file__}") as error:
            compiled(torch.ones(2))
        assert type(error.value.__cause__) is cause and "doubled" in str(error.value)
        if cause is OutOfMemory:
            frames = error.value.__cause__.__traceback__
            while frames.tb_next is not None:
                frames = frames.tb_next
            assert frames.tb_frame.f_code is raises.__code__
    with minidynamo.config.patch(suppress_backend_errors=True):
        assert compiled(torch.ones(2)).tolist() == [2, 2]
        assert compiled(torch.ones(2)).tolist() == [2, 2]
    ((logger, text),) = told()
    assert logger == "minidynamo" and backend.__name__ in text and __file__ in text


def test_a_failure_of_our_own_compiler_is_told_once_and_runs_eagerly(told, monkeypatch):
    from minidynamo.convert.conversion import Conversion

    monkeypatch.setattr(Conversion, "is_worth_it", None)
    compiled = minidynamo.compile(doubled)
    for _ in range(3):
        assert compiled(torch.ones(2)).tolist() == [2, 2]
    ((logger, text),) = told()
    line = doubled.__code__.co_firstlineno + 1
    assert logger == "minidynamo" and f"{__file__}:{line}" in text
    assert "TypeError" in text and "hint" in text and "TypeError" in records.frames[-1].error


def test_a_reached_recompile_limit_is_told_once_with_what_changed(told):
    with minidynamo.config.patch(recompile_limit=2):
        compiled = minidynamo.compile(uses, backend="eager", dynamic=False)
        for size in range(2, 8):
            compiled(torch.ones(size))
    ((logger, text),) = told()
    assert logger == "minidynamo" and f"{__file__}:{uses.__code__.co_firstlineno}" in text
    assert "expected (2,); found (4,)" in text and "expected (3,); found (4,)" in text
    assert "hint: mark the size" in text and "recompile_limit" in text
