"""explain: every stage is there, shows itself as text and as HTML, and says so where it was not
reached."""

import functools
import html.parser
import re
import itertools
import random
from pathlib import Path

import pytest
import torch

import minidynamo
import miniinductor
from minidynamo.explain import Code, draw_graph
from minidynamo.explain.draw import draw_joint
from minidynamo.explain.explanation import FrameExplanation
from minidynamo.explain.views import THEMES, TOKENS


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
    e = explained(backend="eager")
    assert "keeps no records" in repr(e.kernels)


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
    with pytest.raises(TypeError, match="go to what explain"):
        minidynamo.explain(chain, torch.randn(3, 5))
    assert (
        repr(minidynamo.compile(chain)) == f"<compiled {chain!r}>"
        and repr(minidynamo.disable(chain)) == f"<disabled {chain!r}>"
    )
    with torch.no_grad():
        assert "nothing was left" in repr(
            minidynamo.explain(lambda x: x @ x)(torch.randn(8, 8)).kernels
        )


def test_long_guards_are_folded_and_mean_the_same():
    source = explained().guard_source.source
    assert max(map(len, source.splitlines())) < 130 and compile(source, "guards", "exec")


def test_breaks_have_lines():
    def f(x):
        x = x + 1
        minidynamo.graph_break()
        return x * 2

    with torch.no_grad():
        e = minidynamo.explain(f)(torch.randn(3))
    (row,) = e.frames[0].breaks.rows
    assert row[0] == f"test_explain.py:{f.__code__.co_firstlineno + 2}"


def test_the_page_holds_every_stage(tmp_path):
    text = open(explained().save(str(tmp_path / "page.html"))).read()
    html.parser.HTMLParser().feed(text)
    for title in ("Source", "guards", "FX graph", "Loop IR, before fusion", "Wrapper", "Kernel "):
        assert re.search(rf"<h[34]>[^<]*{title}", text), title


def test_large_graphs_are_drawn_by_module():
    graph = torch.fx.Graph()
    node = graph.placeholder("x")
    for i in range(300):
        node = graph.call_function(torch.relu, (node,))
        node.meta["module_path"] = f"block.{i // 100}"
    graph.output(node)
    picture = draw_graph(graph)
    assert len(picture.nodes) == 5 and ("block.0", "block.1") in picture.edges
    assert "block.2: 100 operations" in picture.text
    pytest.importorskip("pygraphviz")
    assert picture.svg.startswith("<svg") and 'id="block.1"' in picture.svg


def test_why_recompile_names_the_first_guard_that_fails():
    def scaled(x, options):
        return x * options["scale"]

    e = minidynamo.explain(scaled, backend="eager")(torch.ones(2), {"scale": 2})
    assert not e.why_recompile(torch.ones(2), {"scale": 2}).rows
    ((frame, kind, found, line, *_),) = e.why_recompile(torch.ones(2), {"scale": 3}).rows
    assert (
        frame.endswith("scaled")
        and kind == "EQUALS"
        and "options['scale'] == 2" in found
        and "test_explain.py" in line
    )
    _, (_, kind, found, *_) = e.why_recompile(torch.ones(3), {"scale": 3}).rows
    assert kind == "SHAPE" and "x.shape == (2,)" in found


def test_why_recompile_reads_closures():
    scale = 2

    def scaled(x):
        return x * scale

    e = minidynamo.explain(scaled, backend="eager")(torch.ones(2))
    scale = 5
    ((_, _, found, *_),) = e.why_recompile(torch.ones(2)).rows
    assert "is false" in found and "cell_contents" in found


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
    assert any(
        "addmm" in str(row) and "eager kernel" in row for row in e.saved.rows
    ) and "bytes saved" in repr(e.saved)
    kinds = {kind for _, kind in e.joint.nodes.values()}
    assert {"call", "backward", "saved"} <= kinds and "saved: 96 bytes" in str(e.joint.nodes)
    assert "backward module" in {
        kind for _, kind in draw_joint(e.compiled, by_module=True).nodes.values()
    }
    assert "Joint graph" in open(e.save(tmp_path / "page.html")).read()
    assert "no gradients" in repr(explained().joint)


def test_triton_sources_show_themselves():
    assert "program_id" in Code("row = tl.program_id(0)", "triton")._repr_html_()


def test_memory_over_time_agrees_with_the_plan():
    with torch.no_grad():
        e = minidynamo.explain(lambda x, w: torch.relu(torch.relu(torch.relu(x @ w) @ w) @ w))(
            torch.randn(64, 64), torch.randn(64, 64)
        )
    picture, compiled = e.memory_picture, e.main.compiled
    assert [b[:1] + b[2:3] for b in compiled.memory_lives] == [
        (name, size) for name, _, size in compiled.memory_plan
    ]
    with (
        torch.no_grad(),
        miniinductor.config.patch(buffer_reuse=False),
    ):  # then the products are made by eager kernels, and shown, too
        own = minidynamo.explain(lambda x, w: torch.relu(x @ w))(
            torch.randn(64, 64), torch.randn(64, 64)
        ).memory_picture
    assert own.arena == 0 and len(own.blocks) == 2
    assert len(picture.steps) == 6 and picture.arena == 2 * 64 * 64 * 4
    assert picture.svg.count("<rect") == len(picture.placed) >= len(compiled.memory_lives)
    assert (
        "bytes 0 to 16,384 of the arena" in picture.text
        and "a tensor of 16,384 bytes" in picture.text
    )


def chains(rng):
    """A random program of products, which are eager kernels, and loops."""
    values, lines = ["x"], ["def f(x, w):"]
    for number in range(rng.randrange(3, 9)):
        a, b = rng.choice(values), rng.choice(values)
        form = rng.choice(
            ["{a} @ w", "torch.relu({a}) @ {b}", "({a} + {b}) @ w", "{a}.sin() * {b}"]
        )
        lines.append(f"    v{number} = {form.format(a=a, b=b)}")
        values.append(f"v{number}")
    kept = rng.sample(values[1:], min(2, len(values) - 1))
    return "\n".join([*lines, f"    return {values[-1]}.sum(0), {' + '.join(kept)}", ""])


def allocated_at_most(function, *arguments):
    """The peak of what torch's allocator gave in one call, and had not got back."""
    with torch.profiler.profile(profile_memory=True) as profile:
        result = function(*arguments)
    events = profile.profiler.kineto_results.events()
    changes = [event.nbytes() for event in events if event.name() == "[memory]"]
    del result
    return max(itertools.accumulate(changes), default=0)


@pytest.mark.parametrize("seed", range(6))
def test_the_memory_picture_ends_at_the_peak_of_live_bytes(seed):
    text, scope = chains(random.Random(seed)), {"torch": torch}
    exec(text, scope)
    arguments = torch.randn(48, 48), torch.randn(48, 48)
    for switches in ({}, {"buffer_reuse": False, "in_place": False}):
        with torch.no_grad(), miniinductor.config.patch(**switches):
            e = minidynamo.explain(scope["f"])(*arguments)
            picture, record = e.memory_picture, e.compiled
            assert picture.top == record.peak_live_bytes > 0
            for step in range(len(picture.steps)):
                here = [row for row in picture.placed if row[3] <= step <= row[4]]
                below = 0
                for _, bottom, size, *_ in sorted(here, key=lambda row: row[1]):
                    assert bottom == below  # nothing overlaps, and there is no gap
                    below += size
                assert below <= picture.top
            if switches:  # each buffer is an allocation: the allocator knows
                found = allocated_at_most(e.compiled_function, *arguments)
                assert found == record.peak_live_bytes, text


def test_records_are_one_line_where_a_student_prints_them():
    e = explained()
    assert (
        "kernels" in repr(e.main.compiled)
        and "stages: source" in repr(e.main)
        and repr(e.main.record).startswith("<FrameRecord of ")
    )
    assert "computes buf" in repr(e.main.compiled.kernels[0]) and repr(minidynamo.counters) == str(
        minidynamo.counters
    )
    assert (
        max(len(repr(r)) for r in (e.main.record, e.main.compiled, e.main.compiled.kernels[0]))
        < 300
    )


def test_the_guard_tree_has_every_guarded_value():
    class Settings:
        def __init__(self):
            self.scale, self.names = 2, ["a"]

    e = minidynamo.explain(lambda x, s: x * s.scale + len(s.names), backend="eager")(
        torch.ones(2), Settings()
    )
    tree = e.guard_tree
    assert ("s", "s.__dict__") in tree.edges and ("s.__dict__", "s.__dict__['names']") in tree.edges
    assert (
        "SHAPE" in tree.nodes["x"][0] and "(surroundings)" in tree.nodes and "EQUALS" in tree.text
    )
    chain = "x"
    for guard in e.main.record.guards:
        sources = guard.source if isinstance(guard.source, tuple) else (guard.source,)
        assert all(s is None or s.name() in tree.nodes for s in sources), (guard, chain)


def well_formed(picture):
    import xml.dom.minidom

    pytest.importorskip("graphviz")
    svg = xml.dom.minidom.parseString(picture.svg).documentElement
    assert svg.getAttribute("aria-label") == picture.title and picture.title in picture.text
    return picture


def in_lines(x, log, state):
    log.append("start")
    y = x * state["scale"]
    for _ in range(2):
        state["scale"] = state["scale"] + 1
    state["steps"] = state.get("steps", 0) + 1
    if y.sum() > 0:
        y = y + 1
    return y


def test_bytecode_beside_source_covers_every_instruction():
    from minidynamo.explain.draw_code import draw_bytecode

    picture = well_formed(draw_bytecode(in_lines))
    for column in (0, 1):
        covered = [n for c, _, _, a, b in picture.links if c == column for n in range(a, b + 1)]
        assert covered == list(range(len(picture.columns[column + 1][1])))
    loop = next(
        line
        for c, line, _, a, b in picture.links
        if c == 0 and any("FOR_ITER" in text for text in picture.columns[1][1][a : b + 1])
    )
    assert "for _" in picture.columns[0][1][loop]


def test_two_inputs_have_two_tapes(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parent.parent / "notebooks"))
    from prior.tapes import draw_tapes

    def branch(x):
        if x.sum() > 0:
            return torch.relu(x)
        return -x

    picture = well_formed(draw_tapes(branch, torch.ones(2), -torch.ones(2)))
    first, program, second = (lines for _, lines in picture.columns)
    assert "relu" in first[-1] and "neg" in second[-1]
    assert (
        program[[line for c, a, _, line, _ in picture.links if c == 0][-1]].strip()
        == "return torch.relu(x)"
    )


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


def test_a_resume_function_is_a_prefix_and_the_same_body():
    import types

    from minidynamo.bytecode import disassemble
    from minidynamo.explain.draw_code import draw_resume
    from minidynamo.resume import resume_code

    def f(x):
        y = x + 1
        return y * 2

    k = next(
        n
        for n, ins in enumerate(disassemble(f.__code__))
        if ins.pos and ins.pos[0] == f.__code__.co_firstlineno + 2
    )
    resumed = types.FunctionType(resume_code(f.__code__, k, stack=[], live={"y"}), globals())
    assert resumed(3) == 6
    picture = well_formed(draw_resume(f, resumed))
    (_, body), (_, rest) = picture.columns
    new = {n for _, n in picture.notes}
    assert [line.split()[1] for n, line in enumerate(rest) if n not in new] == [
        line.split()[1] for line in body
    ]


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


def test_closures_that_share_a_cell_are_drawn_with_one():
    from minidynamo.explain.draw_code import draw_closure

    def make():
        total = 5

        def add(n):
            nonlocal total
            total += n

        def read():
            return total

        return add, read

    picture = well_formed(draw_closure(*make()))
    assert (
        sorted(picture.edges) == [("function0", "cell0"), ("function1", "cell0")]
        and "cell total\n5" == picture.nodes["cell0"][0]
    )


def test_a_lowered_graph_and_a_loop_body_print_as_loop_ir():
    from miniinductor.dependencies import trace
    from miniinductor.lowering import lower_graph
    from miniinductor.records import CompileRecord

    graph = lower_graph(explained().main.compiled.functional_graph, CompileRecord(), ())
    assert repr(graph).startswith(
        "buf0: float32[3] = reduction i0 < 3, r0 < 5"
    ) and "store(buf0" in repr(graph.operations[0])
    assert repr(trace(graph.operations[0])).startswith("for x0 < 3, r0 < 5:\n    tmp0 = load(")


def test_the_cache_is_drawn_entry_by_entry():
    from minidynamo.explain.draw_code import draw_cache

    def f(x, n):
        return x * n

    minidynamo.reset()
    compiled = minidynamo.compile(f, backend="eager", dynamic=False)
    with torch.no_grad():
        compiled(torch.ones(2), 2), compiled(torch.ones(2), 3)
    picture = well_formed(draw_cache(f))
    assert ("guard0", "code0", "true") in picture.edges and (
        "guard0",
        "guard1",
        "false",
    ) in picture.edges
    assert ("guard1", "callback", "false") in picture.edges and "checks" in picture.nodes["guard1"][
        0
    ]
    answers = {(b, label) for a, b, label in picture.edges if a == "callback"}
    assert answers == {("plain", "None"), ("new", "(guard, code)")}


def without_source():
    """Programs that no file holds."""
    scope = {"torch": torch}
    exec(
        "def broken(x):\n    x = x.sin()\n    print('a break')\n    return x.exp()\n"
        "class Module(torch.nn.Module):\n    def forward(self, x):\n        return torch.relu(x)\n",
        scope,
    )
    prompt = eval(compile("lambda x: x + 1", "<stdin>", "eval"))
    made = [scope["broken"], scope["Module"](), prompt, torch.relu, torch.nn.functional.gelu]
    return made + [torch.ones(3).add, torch.nn.ReLU().forward, len, functools.partial(torch.add, 1)]


def name_of(function):
    return getattr(function, "__qualname__", type(function).__name__)


@pytest.mark.parametrize("function", without_source(), ids=name_of)
def test_a_page_is_made_of_what_has_no_source(function, tmp_path):
    with torch.no_grad():
        e = minidynamo.explain(function)(torch.ones(3))
    assert torch.equal(torch.as_tensor(e.result), torch.as_tensor(function(torch.ones(3))))
    text = open(e.save(str(tmp_path / "page.html"))).read()
    html.parser.HTMLParser().feed(text)
    assert repr(e) and e._repr_html_() and repr(e.frames_picture) and repr(e.breaks)
    if "broken" in str(function):
        assert [lines[1:3] for lines in e.frames_picture.links] == [(1, 1), (2, 2), (3, 3)]
        assert e.breaks.rows[0][0] == "<string>:3" and e.source.source == ""


def luminance(colour):
    """Of an sRGB colour "#rrggbb", by WCAG 2."""
    parts = [int(colour[n : n + 2], 16) / 255 for n in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("name", THEMES)
def test_code_can_be_read_in_light_and_in_dark_notebooks(name):
    colours = dict(THEMES[name])
    background = luminance(colours.pop("background"))
    for part, colour in colours.items():
        low, high = sorted([background, luminance(colour)])
        assert (high + 0.05) / (low + 0.05) >= 4.5, part
    assert set(TOKENS) | {"text"} == set(colours)


def test_code_is_coloured_by_class():
    e = explained()
    for stage in (e.kernels, e.wrapper, e.guard_source, e.loop_ir, e.bytecode):
        shown = stage._repr_html_()
        _, style, rest = shown.partition("</style>")
        assert style and rest.startswith(("<b>", "<div"))
        assert "color:" not in rest and "<style" not in rest  # once, and none inline
        for token in set(re.findall(r'class="mini-(\w+)"', rest)) - {"code"}:
            styled = any(token in tokens for tokens in TOKENS.values())
            assert styled or token in {"p", "o", "w", "n", "nn", "na", "nl", "nv", "ne", "vm"}, (
                token
            )
    assert "<script>" not in Code("x = '<script>'")._repr_html_()


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
    lines = ("#555555", "#44546e", "#666666", "#333333")
    for line in lines:
        assert palette.contrast(line, palette.PAPER[0]) >= 3
        assert palette.contrast(palette.PALETTE[line], palette.PAPER[1]) >= 3


def test_what_is_long_is_folded_and_nothing_is_lost():
    """A notebook shows the first lines of a source; the others are in a <details> below them."""
    import re

    from minidynamo.explain.views import MOST_LINES, excerpt

    source = "\n".join([*(f"x{k} = {k}" for k in range(40)), 'text = """', *"abc", '"""'])
    shown = Code(source).html()
    parts = re.findall(r"<pre>(.*?)</pre>", shown, re.S)
    assert [len(part.splitlines()) for part in parts] == [30, 15]
    assert "15 more lines</summary>" in shown and "<details>" not in Code("x = 1").html()
    plain = html.unescape(re.sub(r"<[^>]+>", "", "\n".join(parts)))
    assert plain == source
    assert all(part.count("<span") == part.count("</span") for part in parts)
    part = re.search(r"<pre>(.*?)</pre>", excerpt(Code).html(), re.S)[1]
    assert len(part.splitlines()) == MOST_LINES
