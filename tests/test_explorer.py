"""The explorer's page without a browser: it needs nothing but itself, text stays text, it is small.
`make test-explorer` looks at it in headless Chromium."""

import base64
import html.parser
import itertools
import json
import os
import re
import subprocess
import sys
import textwrap
import zlib
from pathlib import Path

import pytest
import torch

import minidynamo
from minidynamo.explain import command, layout, page, report
from tests.explorer import programs

ROOT = Path(__file__).resolve().parent.parent
MODULES = sorted((ROOT / "minidynamo" / "explain" / "page").glob("*.js"))


class Tags(html.parser.HTMLParser):
    """The ids, the addresses and the text of a page."""

    def __init__(self, text):
        super().__init__()
        self.ids, self.addresses, self.tags = [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        for name, value in attributes:
            if name == "id":
                self.ids.append(value)
            if name in ("src", "href", "srcset", "action", "data"):
                self.addresses.append(value)


def content(text):
    """What the page's script unpacks."""
    data = text.partition('id="data">')[2].partition("</script>")[0]
    return json.loads(zlib.decompress(base64.b64decode(data)))


@pytest.fixture(scope="module")
def five():
    return programs.explain_five_lines().to_json()


@pytest.fixture(scope="module")
def training():
    return programs.explain_mlp_training().to_json()


def test_the_page_is_complete_in_itself(training):
    text = page.render(training)
    tags = Tags(text)
    assert tags.addresses == [] and "link" not in tags.tags and "iframe" not in tags.tags
    assert len(tags.ids) == len(set(tags.ids))
    assert "https://" not in text and text.count("http://") == text.count("http://www.w3.org/2000")
    assert "default-src 'none'" in text


def test_a_reader_without_scripts_sees_source_guards_graphs_and_kernels(training):
    static = page.render(training).partition("<noscript>")[2].partition("</noscript>")[0]
    (entry,) = training["frames"][0]["entries"]
    shown = html.unescape(static)
    assert training["frames"][0]["source"] in shown
    assert all(page.short_path(guard["code"]) in shown for guard in entry["guards"])
    kinds = ("fx", "aten", "joint", "kernel", "loop_ir")
    assert all(stage["text"] in shown for stage in entry["stages"] if stage["kind"] in kinds)


def test_the_packed_document_has_every_node(training):
    packed = content(page.render(training))
    at = lambda table, steps: [table[n + k] for k, n in enumerate(itertools.accumulate(steps))]
    stages = [stage for entry in page.entries(training) for stage in entry["stages"]]
    ids, origins, texts = [], [], []
    for stage in [stage for entry in page.entries(packed) for stage in entry["stages"]]:
        names = at(packed["names"], stage["nodes"]["name"])
        origins += stage["nodes"].get("origins", [None] * len(names))
        ids += [f"{stage['id']}/{name}" for name in names]
        texts.append("\n".join(at(packed["texts"], stage["text"])))
    assert texts == [stage["text"] for stage in stages]
    assert ids == [node["id"] for stage in stages for node in stage["nodes"]]
    for n, node in enumerate(node for stage in stages for node in stage["nodes"]):
        listed = (
            origins[n] if isinstance(origins[n], list) else [origins[n]] * (origins[n] is not None)
        )
        assert [ids[n - k] if isinstance(k, int) else k for k in listed] == node["origins"]


def test_pages_are_small(five):
    assert len(page.render(five)) < 200_000
    script = page.script()
    assert len(script) < 170_000 and script.count("\n") < 3800


def test_text_stays_text():
    nasty = '</script></noscript><img src=x onerror="alert(1)">'

    def f(x):
        return x + 1

    f.__doc__ = nasty
    f.__qualname__ = nasty
    code = f.__code__.replace(co_name=nasty, co_filename=f"/tmp/{nasty}.py", co_qualname=nasty)
    f.__code__ = code
    with torch.no_grad():
        text = page.render(minidynamo.explain(f)(torch.ones(3)).to_json())
    assert "<img" not in text and "img" not in Tags(text).tags
    assert text.count("</noscript>") == 1


# --- layout ---------------------------------------------------------------------------------------
@pytest.mark.parametrize("count, modules", [(5, 0), (400, 0), (400, 7), (3000, 100)])
def test_every_node_is_in_one_picture_and_no_picture_is_large(count, modules):
    group = lambda n: f"h.{n * modules // count}.{'ab'[n % 2]}" if modules else ""
    read = lambda n: [f"s/{m}" for m in (n - 1, n // 2) if 0 <= m < n]
    same = {"op": "add", "shape": ""}
    names = [{"id": f"s/{n}", "name": f"op{n}"} | same for n in range(count)]
    nodes = [one | {"group": group(n), "inputs": read(n)} for n, one in enumerate(names)]
    pictures = layout.Pictures()
    views = pictures.of_stage({"nodes": nodes})
    members = [member for view in views.values() for member in view["members"]]
    assert sorted(m for m in members if isinstance(m, int)) == list(range(count))
    assert {m for m in members if isinstance(m, str)} == views.keys() - {""}
    for view in views.values():
        picture = pictures.drawn[view["picture"]]
        assert len(view["members"]) == len(picture["boxes"]) <= 150
        for x, y, width, height in picture["boxes"]:
            assert x >= -1 and x + width <= picture["width"] + 1
            assert y >= -1 and y + height <= picture["height"] + 1
    assert len(pictures.drawn) <= 60


# --- the script and the style ---------------------------------------------------------------------
@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.name)
def test_a_module_explains_itself_and_reads_no_html(path):
    text = path.read_text()
    assert text.startswith("// ") and max(map(len, text.splitlines())) <= 120
    for word in ("innerHTML outerHTML insertAdjacentHTML eval( document.write fetch(").split():
        assert word not in text or (word, path.name) == ("fetch(", "live.js"), word


# --- notebooks and the command --------------------------------------------------------------------
PROGRAM = """
import sys, torch, minidynamo

@minidynamo.compile
def f(x):
    return torch.relu(x) + 1

f(torch.ones(3, requires_grad=True)).sum().backward()
print(sys.argv[1:], __name__, sys.modules["__main__"].f is f)
if sys.argv[1:] == ["wrong"]:
    raise ValueError("the program's own")
sys.exit(3)
"""


@pytest.fixture
def program(tmp_path):
    path = tmp_path / "program.py"
    path.write_text(textwrap.dedent(PROGRAM))
    return path


def run(*arguments, **environment):
    return subprocess.run(
        [sys.executable, *map(str, arguments)],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": str(ROOT)} | environment,
    )


def test_the_command_runs_a_program_unchanged_and_writes_its_page(program, tmp_path):
    wanted = tmp_path / "page.html"
    done = run("-m", "minidynamo", "explain", program, "a", "-b", "-o", wanted)
    assert (done.returncode, done.stdout) == (3, "['a', '-b'] __main__ True\n"), done.stderr
    page = content(wanted.read_text())
    assert page["frames"][0]["function"] == "f"
    assert any(file["path"].endswith("program.py") and file["text"] for file in page["files"])
    told = re.findall(r"minidynamo: (\w+): (\d+) kernel", done.stderr)
    (entry,) = page["frames"][0]["entries"]
    assert [name for name, _ in told] == ["f", "backward"]
    assert sum(int(count) for _, count in told) == len(entry["kernels"])


@pytest.mark.parametrize(
    "text, wanted", [("", "@minidynamo.compile"), ("\nf = torch.compile(torch.sin)", "--redirect")]
)
def test_a_program_that_compiles_nothing_has_no_page(tmp_path, text, wanted):
    script, page = tmp_path / "plain.py", tmp_path / "page.html"
    script.write_text(f"import sys, torch{text}\nprint(1)\nsys.exit(0)\n")
    done = run("-m", "minidynamo", "explain", "-o", page, script)
    assert (done.returncode, done.stdout) == (1, "1\n") and not page.exists()
    assert wanted in done.stderr and done.stderr.count("\n") == 1
    done = run("-m", "minidynamo", "explain", script, "-o", tmp_path / "none" / "page.html")
    assert done.returncode == 2 and "there is no folder" in done.stderr
    assert not (tmp_path / "none").exists()


def test_mistakes_before_the_script_are_refused_with_what_was_meant(capsys, program):
    for arguments, text in [
        (["--mesure", program], "did you mean --measure?"),
        (["--set", "fusin=False", program], "did you mean fusion?"),
        (["-o"], "needs a value"),
    ]:
        assert command.main([*map(str, arguments)]) == 2
        assert text in capsys.readouterr().err
    assert command.main(["--help"]) == 0 and "example:" in capsys.readouterr().out


def test_redirect_compiles_what_torch_would_and_the_page_opens_at_the_caller(tmp_path):
    script, page = tmp_path / "theirs.py", tmp_path / "page.html"
    script.write_text(THEIRS)
    done = run("-m", "minidynamo", "explain", "--redirect", "-o", page, script)
    assert (done.returncode, done.stdout) == (0, "minidynamo.explain.redirect\n"), done.stderr
    assert "leaves out: options" in done.stderr
    found = content(page.read_text())
    assert [f["path"].rpartition("/")[2] for f in found["files"]][0] == "theirs.py"
    names = {f["id"]: f["path"] for f in found["files"]}
    assert found["opens"]["place"]["line"] == 9 and found["opens"]["entry"] == "f0.0"
    assert names[found["opens"]["place"]["file"]].endswith("theirs.py")
    assert [f["caller"]["line"] for f in found["frames"]] == [9, 10]


THEIRS = """import torch
@torch.compile(mode="default", options={"a": 1})
def f(x):
    return torch.relu(x) * 2

m = torch.nn.TransformerEncoderLayer(8, 2, 16)
m.compile(backend="inductor")
with torch.no_grad():
    f(torch.ones(3))
    m(torch.ones(2, 3, 8))
print(torch.compile.__module__)
"""


def test_a_report_has_the_ranks_side_by_side_and_marks_what_differs(tmp_path, monkeypatch, capsys):
    for rank in ("0", "1"):
        monkeypatch.setenv("RANK", rank)
        with torch.no_grad():
            calls = [(torch.ones(n, 8),) for n in (8, 5, 5)[: 1 + int(rank)]]
            e = minidynamo.explain(programs.breaking).calls(calls)
        e.save(str(tmp_path / f"job-{rank}.html"))
    (tmp_path / "not_ours.html").write_text("<p>")
    assert report.main([str(tmp_path)]) == 0 and "2 processes" in capsys.readouterr().out
    rows = report.rows_of(report.pages_in(tmp_path))
    cells = [row.cells["rank 1"] for row in rows]
    assert rows == sorted(rows, key=lambda row: -row.seconds) and rows[0].seconds > 0
    assert any("print()" in text for cell in cells for text in cell.breaks)
    assert any("SHAPE" in text for cell in cells for text in cell.again)
    assert any(row.differs(["rank 0", "rank 1"]) for row in rows)
    text = (tmp_path / "index.html").read_text()
    assert "job-1.html#f0" in text and "compiled again" in text and "<script" not in text
    assert report.main([str(tmp_path / "none")]) == 2 and not (tmp_path / "none").exists()
    (tmp_path / "empty").mkdir()
    assert report.main([str(tmp_path / "empty")]) == 1 and "MINI_TRACE" in capsys.readouterr().err
