"""A sample of tests/soundness/foreign.py, and whose an exception is."""

import ast
import os
from pathlib import Path

import pytest
import torch

import minidynamo
from miniinductor import errors as rules
from tests.soundness import foreign, runner


def test_exceptions_from_outside_surface_and_the_next_call_is_right():
    assert runner.sample(foreign, 12, "eager,aot_eager") == []


WIDE = {"Exception", "RuntimeError", "OSError", "TypeError", "ValueError", "AttributeError"}
WIDE |= {"KeyError", "IndexError", "LookupError", "AssertionError", "ImportError"}
ALLOWED = {  # before anything is compiled, in a process of its own, the rule itself
    "minidynamo/__main__.py",
    "minidynamo/frame/frame_hook.py",
    "minidynamo/variables/constant.py",
    "miniinductor/autograd/runtime.py",  # saved_by: it raises again what is not autograd's
    "miniinductor/errors.py",
    "miniinductor/codegen/triton/worker.py",
}
PACKAGES = Path(__file__).parent.parent


def swallows(clause):
    """Does this `except` clause catch a class that a handler may raise, and not raise it again?"""
    if clause.type is not None:
        caught = {name.id for name in ast.walk(clause.type) if isinstance(name, ast.Name)}
        if caught & {"ours", "faults"} or not caught & (WIDE | {"BaseException"}):
            return False
    last = clause.body[-1]
    return not (isinstance(last, ast.Raise) and last.exc is None)


def test_every_clause_asks_whose_exception_it_is():
    found = []
    for package in ("minidynamo", "miniinductor"):
        for path in sorted((PACKAGES / package).rglob("*.py")):
            name = str(path.relative_to(PACKAGES))
            if name in ALLOWED or name.startswith(("minidynamo/explain/", "benchmarks/")):
                continue
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.ExceptHandler) and swallows(node):
                    found.append(f"{name}:{node.lineno}")
    assert found == []


class Own(Exception):
    pass


def caught(work):
    try:
        work()
    except BaseException as error:
        return error
    raise AssertionError("nothing was raised")


def raises(error):
    raise error


def interrupted(error):
    """As a handler of a signal raises it: in a function that is given the interrupted frame."""
    import sys

    def handler(number, frame):
        raise error

    handler(14, sys._getframe())


def test_faults_of_ours_are_ours():
    assert rules.is_fault(caught(lambda: torch.ones(2) @ torch.ones(3)).with_traceback(None))
    assert not rules.is_foreign(caught(lambda: raises(Own("of the program"))))
    assert not rules.is_fault(caught(lambda: raises(Own("of the program"))))
    assert rules.is_foreign(caught(lambda: interrupted(Own("of a handler"))))
    assert not rules.is_foreign(caught(lambda: {}["a"]))


def test_an_exception_in_a_guard_surfaces():
    compiled = minidynamo.compile(lambda x, table: x * table["a"], backend="eager")
    x = torch.ones(2)
    compiled(x, {"a": 2})

    class Rude(dict):
        pass

    assert torch.equal(compiled(x, {"a": 3}), x * 3)
    check = minidynamo.guards.guards.answer_failure
    assert check(caught(lambda: {}["a"])) is False
    with pytest.raises(TimeoutError):
        check(caught(lambda: interrupted(TimeoutError("now"))))


def test_no_temporary_file_stays_when_a_build_is_interrupted(tmp_path, monkeypatch):
    import miniinductor
    from miniinductor import toolchain as build

    def interrupt(*arguments):
        raise KeyboardInterrupt

    source = 'extern "C" int NAME(void** args) { return 0; }'
    with miniinductor.config.patch(cache_dir=str(tmp_path)):
        with monkeypatch.context() as broken:
            broken.setattr(os, "replace", interrupt)
            with pytest.raises(KeyboardInterrupt):
                build.build_kernels([(source, "k")])
        assert list(tmp_path.iterdir()) == []
        build.build_kernels([(source, "k")])
