"""A few runs of `make faults` and `make soak`."""

import errno
import mmap

import faults
import pytest
import soak
import torch

import minidynamo
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


def test_a_gradient_for_which_no_memory_can_be_mapped(monkeypatch):
    """A process has so many maps and no more: a large table of zeros is torch's then."""

    def none_left(*arguments, **options):
        raise OSError(errno.ENOMEM, "Cannot allocate memory")

    table = torch.nn.Embedding(70_000, 4)
    words = torch.tensor([1, 5, 1])
    compiled = minidynamo.compile(lambda: table(words).square().sum())
    compiled().backward()
    wanted, table.weight.grad = table.weight.grad, None
    monkeypatch.setattr(mmap, "mmap", none_left)
    compiled().backward()
    assert torch.equal(table.weight.grad, wanted) and wanted[1].abs().sum() > 0


def test_rounds_of_the_soak(tmp_path):
    with miniinductor.config.patch(cache_dir=str(tmp_path / "cache")):
        soaked = soak.Soak(3, tmp_path / "cache")
        (tmp_path / "cache").mkdir(mode=0o700)
        for name in ("sizes", "raising", "threads", "reset", "evicted"):
            getattr(soaked, name)()
    assert not soaked.wrong


def test_growth_is_judged_by_many_rounds():
    assert soak.is_too_much(grown=5 * 1024, rounds=10_000)
    assert not soak.is_too_much(grown=6.5 * 1024, rounds=183)  # a MiB, of a busy machine
