"""A few runs of `make faults` and `make soak`."""

import faults
import pytest
import soak

import miniinductor.config


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
