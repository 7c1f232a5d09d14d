"""A few runs of `make faults` and `make soak`."""

import gc

import faults
import pytest
import soak
import torch

import miniinductor.config
from miniinductor.runtime import build


@pytest.fixture(autouse=True)
def one_thread(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    yield
    faults.forget()


def test_faults_of_the_operating_system():
    count, wrong = faults.check(sample=4, seed=7)
    assert count == 4 and not wrong, wrong


def test_the_harness_notices_what_it_looks_for(monkeypatch):
    monkeypatch.setattr(faults, "act", lambda stage: False)
    with pytest.raises(AssertionError, match="another result"):
        faults.run("warm")


def test_rounds_of_the_soak(tmp_path):
    with miniinductor.config.patch(cache_dir=str(tmp_path / "cache"), cache_bytes=1 << 20):
        soaked = soak.Soak(3, tmp_path / "cache")
        (tmp_path / "cache").mkdir(mode=0o700)
        for name in ("sizes", "raising", "threads", "reset", "evicted"):
            getattr(soaked, name)()
    assert not soaked.wrong


def test_libraries_that_nobody_can_call_are_unloaded(tmp_path):
    """One stays, on which the runtime of OpenMP depends; a kernel that is kept can be called."""
    source = 'extern "C" int NAME(void** args) { ((float*)args[0])[0] += %d; return 0; }'
    folder = tmp_path / "libraries"
    with miniinductor.config.patch(cache_dir=str(folder)):
        kernels = [build.build_kernels([(source % n, "add")])[0] for n in range(4)]
        assert mapped(folder) >= 4
        del kernels[:3]
        gc.collect()
        assert mapped(folder) <= 2
        x = torch.zeros(1)
        kernels[0](x)
        assert x == 3


def mapped(folder):
    """How many libraries of this folder lie in memory."""
    with open("/proc/self/maps") as file:
        return len({line.split()[-1] for line in file if str(folder) in line})
