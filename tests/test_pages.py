"""What the site adds: links in prose and in nothing else, minutes by one formula, the map."""

import re
import sys
from pathlib import Path

import pytest

pytest.importorskip("jupytext")
NOTEBOOKS = Path(__file__).resolve().parent.parent / "notebooks"
sys.path.insert(0, str(NOTEBOOKS))
import pages  # noqa: E402

import build  # noqa: E402

NAMES = sorted(p.stem for p in (NOTEBOOKS / "src").glob("*.py"))
TERMS = pages.glossary((NOTEBOOKS / "site" / "glossary.md").read_text())


def linked(name):
    used: set[str] = set()
    return pages.with_links(build.student(build.read(name)), name, TERMS, used), used


def test_every_chapter_is_on_the_map_once_and_needs_earlier_ones():
    assert [c.name for c in pages.CHAPTERS.values()] == NAMES
    for chapter in pages.CHAPTERS.values():
        assert all(n < chapter.number for n in chapter.needs) and chapter.level in pages.LEVELS


def test_minutes_follow_the_formula():
    for name in NAMES[:3]:
        assert pages.minutes(build.student(build.read(name))) % 5 == 0
    import nbformat

    cell, words = nbformat.v4.new_code_cell, "word " * pages.WORDS_A_MINUTE * 10
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_markdown_cell(words)])
    assert pages.minutes(notebook) == 10
    notebook.cells += [cell("def f(): ...", metadata={"tags": ["exercise"]})]
    assert pages.minutes(notebook) == 20  # 18, rounded up
    notebook.cells += [cell('check_piece("hook")', metadata={"tags": ["check", "piece"]})]
    assert pages.minutes(notebook) == 30  # 18 and about 20 lines at two a minute
    assert (pages.duration(45), pages.duration(65)) == ("45 minutes", "1 h 05")


@pytest.mark.parametrize("name", NAMES)
def test_links_change_no_code_and_no_heading(name):
    source, (notebook, used) = build.student(build.read(name)), linked(name)
    for before, after in zip(source.cells, notebook.cells, strict=True):
        if before.cell_type == "code":
            assert before.source == after.source
        words = lambda text: re.sub(r"\W+", " ", re.sub(r"<nav.*?</nav>|<[^>]*>", "", text))  # noqa: E731
        assert words(before.source).strip() == words(after.source).strip()
        assert not re.search(r"<a [^>]*>[^<]*<a ", after.source)  # no link in a link
    text = "\n".join(c.source for c in notebook.cells if c.cell_type == "markdown")
    assert "aria-current=page" in text and "glossary.html#term-" in text
    assert all((pages.ROOT / file).is_file() for file in used)
    names_files = name not in ("01_eager_and_graph", "17_paper")  # theirs lie in no package
    assert not names_files or 'href="source/' in text or 'href="api/' in text
    assert name == "15_speed" or f'href="{name}.html">{name[:2]}</a>' not in text.split("</nav>")[1]


def test_a_term_is_linked_once_a_chapter():
    seen: set[str] = set()
    once = pages.first_use("A guard, and a Guard in `guard` code.\n\n# guard\n", TERMS, seen)
    assert once.count("<a ") == 1 and "# guard" in once and "`guard`" in once
    assert "<a " not in pages.first_use("a guard again", TERMS, seen)


def test_chapters_are_linked_by_their_numbers():
    said = pages.chapters_linked("see notebooks 08 and 16, and notebook 99", own="16")
    assert said == 'see notebooks <a href="08_autograd.html">08</a> and 16, and notebook 99'


def test_every_term_has_an_anchor_of_its_own():
    anchors = [term.anchor for term in TERMS]
    assert len(set(anchors)) == len(anchors) > 60
    page = pages.glossary_page((NOTEBOOKS / "site" / "glossary.md").read_text())
    assert all(f'id="{anchor}"' in page for anchor in anchors)


def test_a_source_page_shows_the_file(tmp_path):
    pages.write_source_pages({"minidynamo/guards/guards.py"}, tmp_path, "<style></style>")
    text = (tmp_path / pages.source_page("minidynamo/guards/guards.py")).read_text()
    lines = (pages.ROOT / "minidynamo/guards/guards.py").read_text().count("\n")
    assert f'id="L{lines}"' in text and f'id="L{lines + 1}"' not in text


def test_every_plot_has_a_text():
    """Its own, or else the sentence before it; never the name of a file."""
    nbformat = pytest.importorskip("nbformat")
    for name in NAMES:
        stored = nbformat.read(NOTEBOOKS / f"{name}.ipynb", as_version=4)
        for cell in pages.with_texts(stored, build.read(name)).cells:
            if any("image/png" in o.get("data", {}) for o in cell.get("outputs", [])):
                assert len(cell.metadata["mystnb"]["image"]["alt"].split()) > 5, name


def test_an_explorer_becomes_a_page_of_its_own(tmp_path):
    frame = '<iframe srcdoc="&lt;p&gt;whole" title="The explorer of f" style="width:9px"></iframe>'
    (tmp_path / "00_tour.html").write_text(f"<p>before</p>{frame}{frame}")
    pages.explorers_apart(tmp_path)
    text = (tmp_path / "00_tour.html").read_text()
    assert "<iframe" not in text and text.count("<img") == 1 and text.count("<a ") == 2
    assert (tmp_path / "explorer" / "00_tour-2.html").read_text() == "<p>whole"


def test_the_picture_of_the_index_is_what_was_compiled():
    markup = pages.front_picture()
    assert all(word in markup for word in ("def attention", "softmax", "guards", "library call"))
    assert "for (" in markup and 'role="img"' in markup


def test_a_picture_without_words_is_found(tmp_path):
    from check_site import broken_links

    (tmp_path / "a.png").write_bytes(b"")
    page = '<img src="a.png" alt="{}">'
    (tmp_path / "good.html").write_text(page.format("Bars of three kernels"))
    (tmp_path / "bad.html").write_text(page.format("_images/3f2a.png"))
    assert broken_links(tmp_path) == ["bad.html: a.png: a picture without a text"]
