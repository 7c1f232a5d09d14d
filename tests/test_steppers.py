"""Pictures that move are drawn from what really happened, and can be read without a script."""

import re
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
import torch

import minidynamo
from minidynamo.frame import frame_hook

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "notebooks"))
import drawings  # noqa: E402
import steppers  # noqa: E402


def well_formed(stepper):
    """The stepper, after a look at its markup."""
    markup = stepper._repr_html_()
    figure = markup[markup.index("<figure") : markup.index("</figure>") + len("</figure>")]
    figure = re.sub(r" hidden(?=[ >])", ' hidden=""', figure)
    tree = ElementTree.fromstring(figure)
    groups = [part for part in tree if part.get("class") == "st-panels"]
    assert len(groups) == len(stepper.steps) >= 2
    assert [part.get("data-said") for part in groups] == [s.caption for s in stepper.steps]
    # without a script: the last picture and every caption
    assert [n for n, part in enumerate(groups) if part.get("hidden") is None] == [len(groups) - 1]
    assert [item.text for item in tree.iter("li")] == [s.caption for s in stepper.steps]
    pictures = list(tree.iter("svg"))
    assert pictures and all(p.get("aria-label") and p.get("role") == "img" for p in pictures)
    # colours are the theme's: none is written into the picture
    assert not any("fill" in part.attrib or "style" in part.attrib for part in tree.iter())
    for picture in pictures:
        _, _, width, height = map(float, picture.get("viewBox").split())
        assert width == steppers.WIDTH and all(
            float(part.get("x", 0)) <= width for part in picture.iter()
        )
    assert all(button.get("aria-label") for button in tree.iter("button"))
    assert stepper._repr_html_() == markup  # the same names in each run
    return stepper


def captions(stepper):
    return [step.caption for step in well_formed(stepper).steps]


def test_a_call_walks_through_the_cache():
    def program(x):
        return x + x

    def of_int(x):
        return 2 * x

    def callback(function, code, args):
        if code is program.__code__ and type(args[0]) is int:
            return (lambda function, x: type(x) is int), of_int.__code__
        return None

    hooked = frame_hook.enabled(program, callback)
    said = captions(steppers.call_walk(program, hooked, [(1,), (2,), ("a",)]))
    assert "new entry" in said[1] and "of_int" in said[1]
    assert said[3:5] == [
        "program(2): guard 0 holds.",
        "program(2): the code of of_int runs in this frame. The result: 4.",
    ]
    assert said[-2].endswith("guard 0 is false.") and "callback says nothing" in said[-1]


def test_breaks_are_walked_in_order(capsys):
    def program(x):
        x = torch.relu(x)
        print("here")
        return x + 1

    with torch.no_grad():
        said = captions(steppers.breaks_walk(minidynamo.explain(program)(torch.ones(2))))
    assert [s.rpartition(" ")[2] for s in said] == ["graph.", "Python.", "graph."]


def test_the_cut_slides_and_the_last_one_was_chosen():
    x, w = torch.randn(4, 8), torch.randn(8, 8, requires_grad=True)
    e = minidynamo.explain(lambda x, w: torch.tanh(x @ w).exp())(x, w)
    e.result.sum().backward()
    stepper = steppers.cut_walk(e.main.compiled)
    chosen = sum(s.bytes for s in e.main.compiled.saved if not s.is_input)
    said = captions(stepper)
    assert said[0].startswith("The cut behind mm") and said[-1].endswith(f"{chosen:,} bytes.")
    # no straight cut is cheaper than the chosen one
    amounts = [int(s.rpartition(" bytes")[0].rpartition(" ")[2].replace(",", "")) for s in said]
    assert min(amounts) == amounts[-1]


def test_loops_merge_and_bytes_fall_away():
    """The bytes of the last step are those of the kernels that were written."""
    with torch.no_grad():
        e = minidynamo.explain(lambda x: torch.softmax(x, -1))(torch.randn(16, 32))
    compiled = e.main.compiled
    stepper = steppers.fusion_rounds(compiled)
    said = captions(stepper)
    moved = [int(re.search(r"([\d,]+) bytes are moved", s)[1].replace(",", "")) for s in said]
    assert moved == sorted(moved, reverse=True) and moved[0] > moved[-1]
    assert moved[-1] == sum(k.bytes_read + k.bytes_written for k in compiled.kernels)
    frames = [step.panels[0].body.count(">for ") for step in stepper.steps]
    assert frames[-1] == len(compiled.kernels) == 1 and frames[0] == 4


def test_a_warp_moves_sectors():
    scattered, together = [[4 * 100 * t for t in range(32)]], [[4 * t for t in range(32)]]
    stepper = steppers.warp_walk({"scattered": scattered, "together": together})
    assert [s.rpartition("; ")[2] for s in captions(stepper)] == [
        "1024 bytes are moved.", "128 bytes are moved.",
    ]  # fmt: skip
    wanted = [step.panels[0].body.count("st-good") for step in stepper.steps]
    wasted = [step.panels[0].body.count("st-bad") for step in stepper.steps]
    assert wanted == [32, 32] and wasted == [7 * 32, 0]


def test_the_arena_fills():
    def program(x, w):
        for _ in range(3):
            x = torch.relu(x @ w)
        return x + 1

    with torch.no_grad():
        e = minidynamo.explain(program)(torch.randn(16, 16), torch.randn(16, 16))
    picture = e.memory_picture
    stepper = steppers.arena_walk(picture)
    captions(stepper)
    placed = sum(block[1] is not None for block in picture.blocks)
    filled = [step.panels[0].body.count("st-now") + step.panels[0].body.count("st-part")
              for step in stepper.steps]  # fmt: skip
    assert filled == sorted(filled) and filled[-1] == placed


@pytest.mark.parametrize("drawing", [drawings.gpu(), drawings.kernel_shapes()])
def test_a_drawing_has_words_and_the_colours_of_the_theme(drawing):
    markup = drawing._repr_html_()
    picture = ElementTree.fromstring(markup[markup.index("<svg") : markup.index("</svg>") + 6])
    assert picture.get("role") == "img" and drawing.words in picture.get("aria-label")
    assert not any("fill" in part.attrib or "style" in part.attrib for part in picture.iter())
    wide = float(picture.get("viewBox").split()[2])
    assert all(float(part.get("x", 0)) + float(part.get("width", 0)) <= wide + 1
               for part in picture.iter("rect"))  # fmt: skip
