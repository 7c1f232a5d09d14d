"""explain: every stage is there, shows itself as text and as HTML, and says so where it was not
reached."""

import itertools
import re

import pytest
import torch

import minidynamo
from minidynamo.explain.draw import draw_joint
from minidynamo.explain.explanation import FrameExplanation


def chain(x, y):
    return torch.softmax(torch.relu(x) + y, -1)


def explained(**options):
    with torch.no_grad():
        return minidynamo.explain(chain, **options)(torch.randn(3, 5), torch.randn(5))


def test_every_stage_shows_itself():
    e = explained()
    for key, _ in FrameExplanation.SECTIONS:
        stage = getattr(e, key)
        assert repr(stage) and stage._repr_html_(), key
    assert "relu" in repr(e.graph) and "amax" in repr(e.aten)
    assert 'extern "C"' in repr(e.kernels) and "load(" in repr(e.loop_ir)
    assert "def " in repr(e.wrapper) and "RETURN_VALUE" in repr(e.bytecode)
    assert all(f"({what})" in repr(e.bytecode) for what in ("count this call", "the graph"))
    assert any("shape" in str(row) for row in e.guards.rows)
    assert torch.allclose(e.result, e.result) and e.frames[0].record.graph is not None


def test_stages_that_were_not_reached_say_so():
    assert "keeps no records" in repr(explained(backend="eager").kernels)


def test_a_backend_that_fails_is_named_in_the_summary():
    for wrong, said in (
        (lambda gm, inputs: gm.nothing, "no attribute 'nothing'"),
        (lambda gm, inputs: 3, "the backend returned int"),
    ):
        with pytest.raises(minidynamo.BackendError, match=said):
            explained(backend=wrong)
        with minidynamo.config.patch(suppress_backend_errors=True):
            e = explained(backend=wrong)
        assert said in e.summary.rows[0][-1] and torch.allclose(e.result.sum(), torch.tensor(3.0))
        assert any(said in text for text in minidynamo.counters["errors"])


@pytest.mark.parametrize(
    "options",
    [{"mode": "max-autotun"}, {"dynamic": "yes"}, {"fullgraph": "no"}, {"backend": "inducter"}],
)
def test_options_that_there_are_not_raise_at_once(options):
    ((name, value),) = options.items()
    with pytest.raises(ValueError, match=f"{name}.*{value}"):
        minidynamo.compile(chain, **options)


def test_mistakes_at_the_prompt_have_clear_answers():
    with pytest.raises(TypeError, match="a function or a module"):
        minidynamo.explain(3)(torch.ones(2))
    with pytest.raises(TypeError, match="go to what explain"):
        minidynamo.explain(chain, torch.randn(3, 5))
    assert repr(minidynamo.compile(chain)) == f"<compiled {chain!r}>"
    assert repr(minidynamo.disable(chain)) == f"<disabled {chain!r}>"
    with torch.no_grad():
        product = minidynamo.explain(lambda x: x @ x)(torch.randn(8, 8))
    assert "nothing was left" in repr(product.kernels)


def test_breaks_have_lines():
    def f(x):
        x = x + 1
        minidynamo.graph_break()
        return x * 2

    with torch.no_grad():
        e = minidynamo.explain(f)(torch.randn(3))
    (row,) = e.frames[0].breaks.rows
    assert row[0] == f"test_explain.py:{f.__code__.co_firstlineno + 2}"


def test_why_recompile_names_the_first_guard_that_fails():
    def scaled(x, options):
        return x * options["scale"]

    e = minidynamo.explain(scaled, backend="eager")(torch.ones(2), {"scale": 2})
    assert not e.why_recompile(torch.ones(2), {"scale": 2}).rows
    ((frame, kind, found, line, *_),) = e.why_recompile(torch.ones(2), {"scale": 3}).rows
    assert frame.endswith("scaled") and kind == "EQUALS" and "test_explain.py" in line
    assert "options['scale'] == 2" in found
    _, (_, kind, found, *_) = e.why_recompile(torch.ones(3), {"scale": 3}).rows
    assert kind == "SHAPE" and "x.shape == (2,)" in found


def test_training_shows_the_joint_graph_and_the_cut(tmp_path):
    model = torch.nn.Sequential(torch.nn.Linear(5, 8), torch.nn.GELU(), torch.nn.LayerNorm(8))
    e = minidynamo.explain(model)(torch.randn(3, 5))
    assert "has not run" in repr(e.backward)
    e.result.sum().backward()
    assert 'extern "C"' in repr(e.backward)
    half = e.compiled.backward
    assert e.backward_loop_ir.source == half.loop_ir and "load(" in half.loop_ir
    assert e.backward_wrapper.source == half.wrapper_source != e.wrapper.source
    assert len(e.backward_fusion.rows) == len(half.fusions) > 0
    assert e.backward_memory_picture.top == half.peak_live_bytes > 0
    assert "tangent" in e.backward_aten.source and e.backward_aten_graph.nodes
    assert any("backward" in stage for stage, _ in e.times.rows)
    assert any("addmm" in str(row) and "eager kernel" in row for row in e.saved.rows)
    assert "bytes saved" in repr(e.saved)
    kinds = {kind for _, kind in e.joint.nodes.values()}
    assert {"call", "backward", "saved"} <= kinds and "saved: 96 bytes" in str(e.joint.nodes)
    of_modules = draw_joint(e.compiled, by_module=True).nodes.values()
    assert "backward module" in {kind for _, kind in of_modules}
    assert "Joint graph" in open(e.save(tmp_path / "page.html")).read()
    assert "no gradients" in repr(explained().joint)


def well_formed(picture):
    import xml.dom.minidom

    pytest.importorskip("graphviz")
    svg = xml.dom.minidom.parseString(picture.svg).documentElement
    assert svg.getAttribute("aria-label") == picture.title and picture.title in picture.text
    return picture


def test_frames_and_breaks_are_joined_to_their_lines():
    def f(x):
        x = torch.relu(x)
        minidynamo.graph_break()
        return x * 2

    with torch.no_grad():
        picture = well_formed(minidynamo.explain(f, backend="eager")(torch.ones(2)).frames_picture)
    joined = {
        picture.columns[1][1][b].partition(":")[2].split()[-1]: picture.columns[0][1][a].strip()
        for _, a, _, b, _ in picture.links
    }
    assert (
        joined["relu"] == "x = torch.relu(x)"
        and joined["mul"] == "return x * 2"
        and "minidynamo.graph_break()" in joined.values()
    )


def test_the_replacement_written_as_python_does_what_the_program_does():
    from minidynamo.explain.draw_code import statements

    def step(x, log, state):
        log.append("start")
        state["steps"] = state.get("steps", 0) + 1
        log.append("end")
        return x * 2

    with torch.no_grad():
        e = minidynamo.explain(step, backend="eager")(torch.ones(1), [], {})
    log, state = ["old"], {}
    lines = [text for kind, text in statements(e.main.record.replacement_code) if kind != "return"]
    exec(
        "\n".join(lines),
        {"graph": lambda x: (x * 2,), "x": torch.ones(1), "log": log, "state": state},
    )
    assert log == ["start", "end"] and state == {"steps": 1}
    picture = well_formed(e.replay)
    assert {
        picture.columns[0][1][a].strip()
        for _, a, _, b, _ in picture.links
        if picture.columns[1][1][b].startswith("log")
    } == {'log.append("start")', 'log.append("end")'}


def test_fusion_joins_each_buffer_to_what_computes_it():
    with torch.no_grad():
        e = minidynamo.explain(lambda x: torch.softmax(x @ x.t(), -1))(torch.randn(8, 8))
    picture = well_formed(e.kernel_picture)
    by = {
        picture.columns[0][1][n].partition(":")[0]: picture.columns[1][1][k]
        for _, a, b, k, _ in picture.links
        for n in range(a, b + 1)
    }
    for kernel in e.main.compiled.kernels:
        assert all(by[buffer] == kernel.name for buffer in kernel.nodes)
    assert len(by) == len(picture.columns[0][1]) and any(
        maker.startswith("library: ") for maker in by.values()
    )


def colours_of(svg):
    """What a drawing is filled and outlined with, names of colours as Graphviz writes them."""
    return set(re.findall(r'(?:fill|stroke)="([^"]+)"', svg)) - {"none", "transparent"}


def test_drawings_use_one_palette_that_can_be_read_in_both_themes():
    from minidynamo.explain import palette
    from minidynamo.explain.draw import STYLES, Picture, Timeline
    from minidynamo.explain.draw_code import Columns

    pytest.importorskip("pygraphviz")
    known = set(palette.PALETTE) | {n for names in palette.NAMES.values() for n in names}
    boxes = {kind: (kind, kind) for kind in STYLES}
    columns = [("a", ["x", "y"]), ("b", ["x", "y"])]
    links = [(0, 0, 0, 0, 0), (0, 1, 1, 1, 1)]
    drawn = [
        Picture("boxes", boxes, [("call", "output", "an edge")]),
        Columns("columns", columns, links, {(1, 1): "a note"}),
        Timeline("bytes", ["one", "two"], [("a", 0, 8, 0, 1), ("b", None, 8, 1, 1)]),
    ]
    for picture in drawn:
        assert colours_of(picture.svg) <= known, picture.title
        assert palette.picture_style() in picture._repr_html_()
    fills = [fill for _, _, fill in STYLES.values()] + ["#d5dcea", "#e1e7f3", "#fafafa"]
    for fill in fills:
        assert palette.contrast(palette.INK[0], fill) >= 4.5
        assert palette.contrast(palette.INK[1], palette.PALETTE[fill]) >= 4.5
    for theme, back in itertools.product((0, 1), ("paper", "bar", "lit", "removed", "input")):
        inks = ("text", "quiet", "comment", "keyword", "string", "number", "accent", "good", "bad")
        for ink in inks:  # of the explorer's page
            assert palette.contrast(palette.PAGE[ink][theme], palette.PAGE[back][theme]) >= 4.5
        lanes = [pair[theme] for name, pair in palette.PAGE.items() if name.startswith("lane")]
        assert all(palette.contrast(lane, palette.PAGE["paper"][theme]) >= 3 for lane in lanes)
    lines = ("#555555", "#44546e", "#666666", "#333333")
    for line in lines:
        assert palette.contrast(line, palette.PAPER[0]) >= 3
        assert palette.contrast(palette.PALETTE[line], palette.PAPER[1]) >= 3
