"""A sample of `tests/soundness/endless.py`: what iterates for ever while it is traced ends."""

import subprocess
import sys

import pytest
import torch

import minidynamo
from tests.soundness import endless, runner


def test_sample():
    assert not runner.sample(endless, 24, "eager")


@pytest.mark.parametrize("number", range(-len(endless.OTHERS), -len(endless.OTHERS) + 3))
def test_containers_fed_from_themselves(number, monkeypatch):
    monkeypatch.setattr(endless, "cases", lambda count, first: [len(endless.programs()) + number])
    assert not runner.sample(endless, 1, "eager")


def test_a_refusal_says_what_the_limit_was():
    def f(x):
        return x + 1, "a" * 10**8

    minidynamo.reset()
    assert len(minidynamo.compile(f, backend="eager")(torch.ones(2))[1]) == 10**8
    assert any("step_limit" in reason for reason in minidynamo.counters["graph_breaks"])


CONTAINS_ITSELF = """
import sys, threading, torch, minidynamo

def f(x, items):
    items.append(items)
    return x + 1, str(items)

def check():
    assert minidynamo.compile(f, backend="eager")(torch.ones(1), [1])[1] == "[1, [...]]"
    print("right")

if len(sys.argv) > 1:
    threading.stack_size(int(sys.argv[1]) << 10)
    thread = threading.Thread(target=check)
    thread.start()
    thread.join()
else:
    check()
"""


@pytest.mark.parametrize("size, argument", [(1500, ""), (8192, ""), (8192, 1000)])
def test_a_list_that_contains_itself_fits_on_every_stack(size, argument):
    """Kilobytes of the main thread's stack; of another thread's, on which it runs."""
    command = f"ulimit -s {size}; exec {sys.executable} -W ignore - {argument}"
    ran = subprocess.run(
        ["sh", "-c", command], input=CONTAINS_ITSELF, capture_output=True, text=True
    )
    assert ran.stdout == "right\n", ran.stderr[-500:]
