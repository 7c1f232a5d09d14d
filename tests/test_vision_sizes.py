"""Vision models whose images change their size: the second size is compiled with symbols, in
bounded time, and the third needs no compilation, or few."""

import inspect
import logging

import pytest
import torch

import minidynamo
from benchmarks.programs.vision import PROGRAMS, SIZES
from miniinductor.sizes import prover

# compilations for the four sizes: those whose shapes are a matter of parity need more
MORE = {"ssim": 4, "swin": 4}
# torch 2.11's rule of pooling asks whether a size is even: a compilation for each of the answers
PARITY_IS_ASKED = "bool(" in inspect.getsource(torch._meta_registrations.div_rtn)
# `make vision` runs all of them
QUICK = """unet-2 unet-4 unet-crop unet-size ssim detr yolo swin pyramid patches""".split()


def run(name, sizes, **options):
    """The model at these sizes, against eager; the compiled frames' records."""
    minidynamo.reset()
    torch.manual_seed(0)
    model = PROGRAMS[name]().eval()
    compiled = minidynamo.compile(model, backend="eager", **options)
    with torch.no_grad():
        for size in sizes:
            x = torch.randn(1, 3, *size)
            torch.testing.assert_close(compiled(x), model(x), atol=1e-3, rtol=1e-3)
    return [record for record in minidynamo.records.frames if record.graph is not None]


@pytest.mark.parametrize("name", QUICK)
def test_sizes_that_change(name):
    records = run(name, SIZES)
    assert not minidynamo.counters["graph_breaks"]
    assert len(records) <= (len(SIZES) if PARITY_IS_ASKED else MORE.get(name, 2))
    # what a question costs does not grow with the number of facts
    assert all(r.shape_env is None or r.shape_env.steps < 10_000 for r in records)


@pytest.mark.parametrize("name", ["unet-2", "detr"])
def test_symbols_from_the_start(name):
    records = run(name, SIZES[1:], dynamic=True)
    assert all(record.shape_env.table for record in records)
    assert len(records) == 1 or PARITY_IS_ASKED


def test_nothing_is_asked_about_the_number_of_elements():
    """Torch's rule for convolutions asks `input.numel() > 20480`."""
    *_, record = run("unet-2", [(16, 16), (36, 40), (200, 164)])
    texts = [guard.code for guard in record.guards if guard.kind == "SIZES"]
    assert not [text for text in texts if "20480" in text]
    assert sum(minidynamo.counters["graphs"].values()) == 2


def test_where_a_budget_is_spent_the_frame_runs_as_plain_python(caplog):
    with minidynamo.config.patch(size_steps=5), caplog.at_level(logging.WARNING, "minidynamo"):
        run("unet-crop", SIZES[:2])
    assert "size_steps" in caplog.text and "vision.py" in caplog.text


def test_terms_beyond_all_measure_are_not_multiplied_out(monkeypatch):
    """The prover does not know, then; that is never wrong."""
    monkeypatch.setattr(prover, "MOST_TERMS", 3)
    monkeypatch.setattr(prover, "MOST_STEPS", 1)
    prover.polynomial.cache_clear()
    try:
        run("unet-size", SIZES[:2])
    finally:
        prover.polynomial.cache_clear()
