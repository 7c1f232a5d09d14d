"""Neither torch nor a package of ours is imported here: the tests of the frame hook, the bytecode
package and the resume functions run without torch.

`python tests/run_pythons.py` runs those on every CPython 3.11-3.13 that it finds.
"""

import gc
import os

import pytest
from other_evaluator import installed_evaluator

# Triton reads this once, when it is first imported (by torch, too): its kernels then run on the
# CPU.  `make test-gpu` sets 0.
os.environ.setdefault("TRITON_INTERPRET", "1")
os.environ.setdefault("MINI_RAISE", "1")  # miniinductor.config.raise_internal_errors


def pytest_addoption(parser):
    parser.addoption("--quick", type=int, default=0, help="run so many tests of each file")


def pytest_collection_modifyitems(config, items):
    """`make quick`: a few tests of each file, spread over it."""
    most = config.getoption("--quick")
    if not most:
        return
    files = {}
    for item in items:
        files.setdefault(item.path, []).append(item)
    kept = set()
    for tests in files.values():
        kept.update(tests[:: max(1, len(tests) // most)][:most])
    config.hook.pytest_deselected(items=[item for item in items if item not in kept])
    items[:] = [item for item in items if item in kept]


@pytest.fixture(scope="module", autouse=True)
def what_was_there_before_is_not_looked_at():
    """Collections of garbage, of which some tests make dozens, pass over what lived before the file
    began: a million objects of imported modules."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def anew():
    """Nothing is compiled yet, and errors of the packages themselves are raised."""
    import minidynamo

    minidynamo.reset()
    with minidynamo.config.patch(raise_internal_errors=True):
        yield
    minidynamo.reset()


@pytest.fixture(autouse=True)
def the_evaluator_of_frames_stays():
    """A test that leaves a hook installed (torch.compile does, where what it runs raises) changes
    how the frames of all later tests run: it belongs into a process of its own."""
    before = installed_evaluator()
    yield
    assert installed_evaluator() == before, "another evaluator of frames was left installed"


def pytest_unconfigure():
    gc.unfreeze()  # nanobind tells of each object that lives when the process ends
