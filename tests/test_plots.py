"""Plots are honest and of one style: bars begin at zero, colours are those of the course."""

import re
from pathlib import Path

import pytest

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("agg")
from benchmarks import plots  # noqa: E402

ROOT = Path(__file__).resolve().parent.parent
ABOUT = {"device": "a CPU", "threads": 1, "torch": "2.13", "date": "2026-11-29"}


def figures():
    pair = {"eager / ours": (1.3, 1.2, 1.4), "eager / torch.compile": (0.7, 0.6, 0.8)}
    yield plots.speedup_bars([{"name": "softmax", **pair}, {"name": "GPT-2", **pair}], ABOUT)
    slower = {"fusion": (1.5, 1.4, 1.6), "inlining": (1.0, 0.9, 1.1)}
    yield plots.ablation_bars([{"name": "softmax", "slower without": slower}], ABOUT)
    run = plots.recorded("h100_gpu_kernels")
    yield plots.recorded_bars(run, "GB/s", ("copy", "eager", "ours", "torch.compile"))
    yield plots.communication_bars(plots.latest("h*_distributed*")["rows"])


def test_bars_begin_at_zero():
    for figure in figures():
        for axes in figure.axes:
            if not axes.patches:
                continue
            flat = len({round(bar.get_height(), 6) for bar in axes.patches}) == 1
            along, scale = (
                (axes.get_xlim(), axes.get_xscale())
                if flat
                else (axes.get_ylim(), axes.get_yscale())
            )
            assert along[0] == 0 and scale == "linear"
        matplotlib.pyplot.close(figure)


def test_the_course_has_one_style():
    """The style sheet has the colours of LOOKS, and no chapter brings fonts or colours along."""
    cycle = re.findall(r"'([0-9a-f]{6})'", (ROOT / "notebooks" / "matplotlibrc").read_text())
    looks = [plots.LOOKS[name][1].lstrip("#") for name in ("ours", "torch.compile", "eager")]
    assert cycle[:3] == looks
    for path in (ROOT / "notebooks" / "src").glob("*.py"):
        if "plt.subplots" in (text := path.read_text()):
            own = re.findall(
                r"""fontsize=[1-7]\b|edgecolor=|color="(?:0\.|#)\S*|facecolor=""", text
            )
            assert own == [], path.name


def test_stored_measurements_say_where_they_come_from():
    """Those that chapters show: device, versions, threads, date and command."""
    texts = [path.read_text() for path in (ROOT / "notebooks" / "src").glob("*.py")]
    shown = {name for text in texts for name in re.findall(r'recorded(?:_table)?\("(\w+)"', text)}
    assert len(shown) >= 7
    for name in sorted(shown):
        run = plots.recorded(name)
        assert run["machine"].keys() >= {"device", "torch", "python", "threads", "date"}, name
        assert run["command"].startswith("python -m benchmarks --suite "), name


def test_chapters_compare_with_one_limit_of_memory(monkeypatch):
    """The same kernel must not be at its limit in one chapter and far from it in another."""
    monkeypatch.syspath_prepend(str(ROOT / "notebooks"))
    import roof

    for name in ("11_cpp", "15_speed"):
        text = (ROOT / "notebooks" / "src" / f"{name}.py").read_text()
        assert "= measure_roof(variants" in text and "one, other = large(), large()" in text
        assert not re.findall(r"out\.copy_\(|bandwidths?\b *=", text)  # no limit of its own
    monkeypatch.setattr(roof, "SHAPE", (8, 8))
    monkeypatch.setattr(roof, "BYTES", 256)
    x = roof.large()
    found = roof.measure_roof({"sum": lambda: x.sum()}, budget=0.01)
    assert found.fastest in ("copying", "adding", "summing rows") and found.seconds.keys() == {
        "sum"
    }
    assert found.bandwidth > 0
