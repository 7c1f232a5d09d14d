"""The explorer's page in headless Chromium: `make test-explorer` (playwright, axe-core-python, a
`chromium` on PATH).

`MINI_PICTURES=folder` keeps a screenshot of each page in both themes and widths.
"""

import random
import threading
import time
from pathlib import Path

import pytest
import torch

import minidynamo
from minidynamo.explain import layout, live, page
from minidynamo.explain.data import described
from tests.test_live import PROGRAM

from . import programs
from .programs import Opened

playwright = pytest.importorskip("playwright.sync_api")
MODELING = "transformers/models/gpt2/modeling_gpt2.py"
PROGRAMS = {
    "five_lines": programs.explain_five_lines,
    "mlp_training": programs.explain_mlp_training,
    "breaks": programs.explain_breaks,
    "triton": programs.explain_triton,
    "gpt2": lambda: programs.explain_gpt2(2),
    "gpt2_training": lambda: programs.explain_gpt2_training(2),
}
LARGE = {  # name -> (explanation, most bytes)
    "gpt2_12": (lambda: programs.explain_gpt2(12), 1_000_000),
    "gpt2_12_training": (lambda: programs.explain_gpt2_training(12), 1_300_000),
}
LOOKS = [(width, theme) for width in (1280, 390) for theme in ("light", "dark")]


@pytest.fixture(scope="module")
def chromium():
    with programs.browser() as found:
        yield found


@pytest.fixture(autouse=True)
def closed(chromium):
    yield
    for context in chromium.contexts:
        context.close()


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """{name: (path of its page, its document)}"""
    folder = tmp_path_factory.mktemp("pages")
    found = {}
    for name, make in PROGRAMS.items():
        e = make()
        found[name] = (Path(e.save(str(folder / f"{name}.html"))), e.to_json())
    return found


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("width, theme", LOOKS)
def test_a_page_asks_for_nothing_and_is_not_wider_than_the_window(
    chromium, pages, name, width, theme
):
    opened = Opened(chromium, pages[name][0], width, theme)
    opened.picture(f"{name}-{width}-{theme}")
    for view in ("text", "graph", "difference"):
        opened.page.select_option("#pane-stages select[aria-label=View]", view)
    opened.open_all()
    opened.picture(f"{name}-{width}-{theme}-all")
    assert opened.ask("document.scrollingElement.scrollWidth") <= width
    assert opened.click_through() == [] and len(opened.asked) == 1
    ids = opened.ask("[...document.querySelectorAll('[id]')].map(element => element.id)")
    assert len(ids) == len(set(ids))


@pytest.mark.parametrize("name", LARGE)
def test_large_models_are_small_pages(chromium, tmp_path, name):
    make, largest = LARGE[name]
    explanation, start = make(), time.perf_counter()
    path = Path(explanation.save(str(tmp_path / "page.html")))
    made = time.perf_counter()
    nodes = Opened(chromium, path).ask("document.querySelectorAll('*').length")
    print(f"{name}: made in {made - start:.2f} s, opened in {time.perf_counter() - made:.2f} s")
    assert path.stat().st_size < largest and nodes <= 5000


def test_a_page_on_which_nothing_was_compiled_can_be_clicked_through(chromium, tmp_path):
    path = minidynamo.explain(lambda x: x)(torch.ones(3)).save(str(tmp_path / "page.html"))
    assert Opened(chromium, Path(path)).click_through() == []


@pytest.mark.parametrize("name", PROGRAMS)
def test_without_scripts_the_page_can_be_read(chromium, pages, name):
    path, document = pages[name]
    page = chromium.new_context(java_script_enabled=False).new_page()
    page.goto(path.as_uri())
    text = page.locator("noscript, .static").all_inner_texts()[-1]
    for frame in document["frames"]:
        assert frame["source"].split("\n")[0].strip() in text
        assert all(found["reason"] in text for found in frame["breaks"])
        for entry in frame["entries"]:
            assert "type(x) is P_Tensor" in text or "GRAD_MODE" in text
            assert all(kernel["name"] in text for kernel in entry["kernels"])
            assert all(s["title"] in text for s in entry["stages"] if s["kind"] == "fx")


def test_the_pipeline_is_a_stream_from_source_lines_to_kernels(chromium, pages):
    path, document = pages["five_lines"]
    moved = [sum(row["bytes"]) for row in document["frames"][0]["entries"][0]["flow"]]
    # mm 768, relu 512, sum 288, x * h 544, and softmax's five: 288, 544, 512, 288, 544
    assert moved == [4288, 2784, 1536]
    opened = Opened(chromium, path)
    heads = opened.page.locator(".flow-head").all_inner_texts()
    said = ["4.3 kB", "2.8 kB · −35 %", "1.5 kB · −45 %"]
    assert [head.split("\n")[2] for head in heads[2:5]] == said
    bars = opened.page.locator(".flow-svg > rect").all()
    bars = [float(bar.get_attribute("height")) for bar in bars]
    assert len(bars) == 12  # three lines in four stages
    high = [sum(bars[at : at + 3]) for at in (3, 6, 9)]
    assert high == pytest.approx([high[0] * each / moved[0] for each in moved])
    opened.page.locator(".lane", has_text="softmax").click()
    assert "softmax" in opened.lit("source")[0] and opened.lit("kernels")
    opened.page.locator(".flow-head", has_text="Loop IR").click()
    assert "Loop IR" in opened.page.locator("#pane-stages option:checked").first.inner_text()


def test_a_source_line_its_kernel_line_and_back(chromium, pages):
    opened = Opened(chromium, pages["five_lines"][0])
    page = opened.page
    row = page.locator("#source-rows .row", has_text="torch.relu(x @ w)")
    row.click()
    lit = opened.lit("source")
    assert len(lit) == 1 and "relu" in lit[0]
    assert any("matmul" in line for line in opened.lit("stages"))
    in_kernel = [line for line in opened.lit("kernels") if "? " in line]  # max(x, 0) in C++
    assert in_kernel
    page.locator("#kernels-rows .row.lit", has_text="? ").first.click()
    assert any("relu" in line for line in opened.lit("source"))
    page.keyboard.press("[")
    assert opened.lit("source") == lit
    page.keyboard.press("]")
    assert page.locator("#kernels-rows .row.chosen").count() == 1


SEEN = """pane => { const rows = document.querySelector(`#${pane}-rows`).getBoundingClientRect();
    const inside = (box) => box.top >= rows.top - 1 && box.bottom <= rows.bottom + 1;
    return [...document.querySelectorAll(`#${pane}-rows .row.lit`)]
        .filter(row => inside(row.getBoundingClientRect())).map(row => row.textContent); }"""


def test_what_is_lit_is_seen(chromium, pages):
    """Of a kernel the statements, not its first line; in the window, however far the pane lies."""
    opened = Opened(chromium, pages["five_lines"][0])
    opened.page.locator("#source-rows .row", has_text="softmax(x").click()
    assert any("lane1[k] = mini::maximum" in line for line in opened.ask(f"({SEEN})('kernels')"))
    opened = Opened(chromium, pages["breaks"][0])
    opened.page.locator("#source-rows .row", has_text='print("first")').click()
    box = opened.page.locator("#map-rows .row.lit").first.bounding_box()
    assert box and 0 <= box["y"] <= 900 - box["height"]


def test_everything_by_keyboard(chromium, pages):
    opened = Opened(chromium, pages["five_lines"][0])
    page = opened.page
    page.keyboard.press("/")
    page.keyboard.type("softmax")
    page.keyboard.press("Enter")
    assert opened.ask("document.querySelector('#about').textContent").find("softmax") >= 0
    page.locator("#source-rows").focus()
    page.keyboard.press("Home")
    for _ in range(200):
        page.keyboard.press("ArrowDown")
        current = page.locator("#source-rows .row.cursor")
        if "keepdim=True" in current.first.text_content():
            break
    page.keyboard.press("Enter")
    assert any("keepdim" in line for line in opened.lit("source"))
    assert opened.lit("stages")
    before = page.locator("#pane-stages select[aria-label=Stage]").input_value()
    page.keyboard.press(".")
    assert page.locator("#pane-stages select[aria-label=Stage]").input_value() != before
    page.keyboard.press(",")
    page.keyboard.press("g")
    page.locator("#pane-stages svg.graph").focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    assert page.locator("#pane-stages .box.chosen").count() == 1
    page.keyboard.press("Escape")
    assert not opened.lit("source") and opened.said == []
    reached = set()
    for _ in range(120):
        page.keyboard.press("Tab")
        reached.add(opened.ask("document.activeElement.closest('section')?.id ?? 'none'"))
    assert {"pane-source", "pane-stages", "pane-kernels", "pane-guards", "pane-fusion"} <= reached


def test_the_map_shows_breaks_with_their_stacks_and_the_recompilation(chromium, pages):
    opened = Opened(chromium, pages["breaks"][0])
    opened.page.evaluate("document.getElementById('map-rows').style.maxHeight = '4000px'")
    opened.page.wait_for_timeout(100)
    rows = opened.page.locator("#map-rows .row").all_text_contents()
    source = Path(programs.__file__).read_text().split("\n")
    stack = [row for row in rows if "in innermost" in row]
    wanted = source.index('    print("a helper of a helper")') + 1
    assert stack and all(f":{wanted}, in innermost" in row for row in stack[:1])
    assert any("graph_break" in row for row in rows)
    assert any("compiled again" in row and "shape" in row.lower() for row in rows)


@pytest.mark.parametrize("name", ["mlp_training", "breaks"])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_nothing_serious(chromium, pages, name, theme):
    axe = pytest.importorskip("axe_core_python.sync_playwright").Axe()
    opened = Opened(chromium, pages[name][0], theme=theme)
    opened.page.locator("#source-rows .row").nth(12).click()
    for view in ("text", "graph"):
        opened.page.select_option("#pane-stages select[aria-label=View]", view)
        opened.open_all()
        found = axe.run(opened.page)["violations"]
        serious = [
            (one["id"], [node["html"][:160] for node in one["nodes"][:3]])
            for one in found
            if one["impact"] in ("serious", "critical")
        ]
        assert serious == []


def test_the_joint_graph_shows_the_cut(chromium, pages):
    path, document = pages["mlp_training"]
    (entry,) = document["frames"][0]["entries"]
    saved = [one for one in entry["saved"] if not one["is_input"]]
    opened = Opened(chromium, path)
    joint = next(s for s in entry["stages"] if s["kind"] == "joint")
    opened.page.select_option("#pane-stages select[aria-label=Stage]", joint["id"])
    opened.page.select_option("#pane-stages select[aria-label=View]", "graph")
    groups = opened.page.locator("#pane-stages .box.group")
    names = [group.get_attribute("id") for group in groups.all()]
    kinds = opened.kinds()
    for name in names:  # a graph of so many operations is a picture of modules
        opened.page.locator(f"#{name}").click()
        kinds += opened.kinds()
        opened.page.click("#pane-stages button:has-text('all groups')")
    assert names and sum("saved" in kind for kind in kinds) == len(saved)
    assert sum("backward" in kind for kind in kinds) > len(saved)


def test_differences_are_aligned_by_origin(chromium, pages):
    opened = Opened(chromium, pages["five_lines"][0])
    opened.page.keyboard.press("d")
    opened.page.keyboard.press(".")  # from the FX graph to the ATen graph
    rows = opened.page.locator("#stages-rows .row").all_text_contents()
    assert not opened.page.locator("#stages-rows :is(.added, .removed)").count()
    at = next(n for n, row in enumerate(rows) if "~" in row and "softmax = " in row)
    assert all("→" in row for row in rows[at + 1 : at + 6]) and "amax" in rows[at + 1]


def test_rewrites_are_replayed_one_by_one(chromium, pages):
    """What the passes leave is what is lowered; a fusion changes no buffer but its own."""
    path, document = pages["mlp_training"]
    (entry,) = document["frames"][0]["entries"]
    lowered = {s["direction"]: s for s in entry["stages"] if s["id"].endswith("/lowered")}
    opened = Opened(chromium, path)
    opened.page.click("#pane-rewrites .fold")
    list_of = "[...document.querySelectorAll('#pane-rewrites option')].map(one => one.textContent)"
    titles, counts = opened.ask(list_of), []
    assert any("no-ops" in title for title in titles)
    for number, title in enumerate(titles):
        opened.page.select_option("#pane-rewrites select", str(number))
        height = "parseInt(document.querySelector('#rewrites-after-rows .inner').style.height) / 19"
        fact = opened.page.locator("#pane-rewrites .facts").inner_text()
        if "partition" in title:
            counts.append(opened.ask(height))
        elif "fuse" in title:
            changed = opened.page.locator("#rewrites-after-rows .added").count()
            assert fact.startswith("fusion, ") and changed == title.count("buf")
    calls = [
        sum(node["op"].startswith("aten") for node in lowered[half]["nodes"])
        for half in ("forward", "backward")
    ]
    assert counts == calls and opened.said == []


@pytest.mark.parametrize("roof, is_cached", [(1.0, True), (1e18, False)])
def test_what_is_faster_than_memory_comes_from_a_cache(chromium, tmp_path, roof, is_cached):
    with torch.no_grad():
        x = torch.randn(8, 8)
        document = minidynamo.explain(programs.five_lines, measure=True)(x, x).to_json()
    document["made"]["copy"]["bytes_per_second"] = roof
    (tmp_path / "page.html").write_text(page.render(document))
    opened = Opened(chromium, tmp_path / "page.html")
    facts = opened.page.locator("#pane-kernels .facts").inner_text()
    assert ("from cache" in facts, "a second" in facts) == (is_cached, not is_cached)


def test_two_pages_can_be_compared(chromium, pages):
    opened = Opened(chromium, pages["five_lines"][0])
    opened.page.click("#pane-compare .fold")
    opened.page.set_input_files("#pane-compare input[type=file]", str(pages["mlp_training"][0]))
    opened.page.wait_for_selector("#compare-rows .added")
    assert "B" in opened.page.locator(".figures").inner_text() and opened.said == []


def test_the_page_opens_at_the_callers_line_and_no_file_is_blank(chromium, pages):
    opened = Opened(chromium, pages["gpt2"][0])
    assert "minidynamo.explain(model.eval())(ids)" in " ".join(opened.seen("source"))
    files = opened.page.locator("#pane-source select[aria-label=File] option")
    paths = files.all_text_contents()
    assert paths[0].endswith("programs.py") and len(paths) > 5
    for path in paths:
        opened.page.select_option("#pane-source select[aria-label=File]", label=path)
        assert sum(1 for row in opened.seen("source") if row.strip(" 0123456789")) > 5, path


def test_modules_fold_and_share_the_heat_of_a_line(chromium, pages):
    opened = Opened(chromium, pages["gpt2"][0])
    page, rows = opened.page, opened.page.locator("#modules-rows .row")
    page.select_option("#pane-source select[aria-label=File]", label=MODELING)
    page.locator("#source-rows .row", has_text="in 2 modules").first.click()
    assert "modeling_gpt2.py" in page.locator("#pane-modules .note").first.text_content()
    before = rows.count()
    page.locator("#modules-rows .row[data-folded=no] .sign").first.click()
    assert rows.count() == 1
    page.locator("#modules-rows .row .sign").first.click()
    assert rows.count() == before
    page.locator("#modules-rows .row", has_text="ln_f").or_(rows.last).first.click()
    assert opened.lit("stages") and opened.lit("modules") and opened.said == []


def test_arrows_meet_their_boxes(chromium, pages):
    _, document = pages["gpt2"]
    views = layout.Pictures()
    fx = next(s for s in document["frames"][0]["entries"][0]["stages"] if s["kind"] == "fx")
    assert len(fx["nodes"]) > layout.MOST_BOXES and len(views.of_stage(fx)[""]["members"]) < 60
    for picture in views.drawn:
        for _, target, *points in picture["edges"]:
            x, y, width, height = picture["boxes"][target]
            assert x - 2 <= points[-2] <= x + width + 2 and y - 2 <= points[-1] <= y + height + 2


def test_live_shows_the_kernels_before_and_after_a_switch(chromium, tmp_path):
    path = tmp_path / "program.py"
    path.write_text(PROGRAM.replace("* 2", ".softmax(0)"))
    server = live.Server(live.Workshop(path))
    threading.Thread(target=server.workshop.follow).start()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    page = chromium.new_page()
    page.goto(server.address)
    page.wait_for_selector("html[data-ready='1']", state="attached", timeout=120_000)
    assert page.locator("#assembly-rows .row").count() and page.locator("#stages-rows .row").count()
    page.uncheck("input[name=fusion]")
    page.wait_for_selector("html[data-ready='2']", state="attached", timeout=120_000)
    assert page.locator("#changes-rows .added").count()
    assert "kernels" in page.locator("#pane-changes .figures").inner_text()
    server.workshop.done.set()
    server.shutdown()


def test_one_pane_alone(chromium, tmp_path):
    text = programs.explain_five_lines().pane("fusion")._repr_html_()
    (tmp_path / "cell.html").write_text(f"<!doctype html><body>{text}</body>")
    page = chromium.new_page()
    page.goto((tmp_path / "cell.html").as_uri())
    inside = page.frame_locator("iframe")
    inside.locator("#fusion-rows .row").first.wait_for()
    assert inside.locator("section").count() == 1


# --- the guards' form -----------------------------------------------------------------------------
ANSWER = """([entry, values]) => {
    const field = (path, name) => document.querySelector(`[aria-label="${path}: ${name}"]`);
    for (const [path, value] of Object.entries(values)) {
        field(path, 'dtype').value = value.dtype;
        field(path, 'shape').value = value.shape.join(', ');
        field(path, 'stride; empty: contiguous').value = value.stride.join(', ');
        field(path, 'requires_grad').checked = value.requires_grad;
    }
    document.querySelector('.form button[type=submit]').click();
    return [...document.querySelectorAll('.answers li')].map(i => [i.className, i.textContent]);
}"""
DTYPES = [torch.float32, torch.float64, torch.int64, torch.bfloat16]


def changed(rng: random.Random) -> torch.Tensor:
    shape = [rng.choice([8, 8, 8, 1, 5]) for _ in range(rng.choice([2, 2, 2, 2, 1, 3]))]
    x = torch.ones(shape, dtype=rng.choice(DTYPES[:1] * 5 + DTYPES))
    if x.dim() == 2 and rng.random() < 0.3:
        x = x.t() if rng.random() < 0.5 else torch.ones(16, 16, dtype=x.dtype)[::2, : shape[1]]
    return x.requires_grad_(x.is_floating_point() and rng.random() < 0.2)


def test_the_form_agrees_with_real_calls(chromium, pages):
    """500 random changed inputs: does the first entry take them, and else which guard fails?"""
    path, document = pages["five_lines"]
    opened, rng = Opened(chromium, path), random.Random(4)
    e = programs.explain_five_lines()
    (entry,) = document["frames"][0]["entries"]
    guards = e.frames[0].record.guard_function
    for _ in range(500):
        values = {name: changed(rng) for name in ("x", "w")}
        told = {name: next(described(name, value)) for name, value in values.items()}
        ((verdict, text),) = opened.page.evaluate(ANSWER, [entry["id"], told])
        failed = first_failure_in_a_call(guards, values)
        assert (verdict == "passes") == (failed is None), (told, text, failed)
        if failed is not None:
            assert failed.code in text and "expected" in text and "actual" in text


def first_failure_in_a_call(guards, values):
    with torch.no_grad():
        found = guards.first_failure(programs.five_lines, *values.values())
        passes = guards.check(programs.five_lines, *values.values())
    assert passes == (found is None)
    return found[0] if found else None
