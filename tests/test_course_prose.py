"""What the course says in its prose is measured, asserted, or on a reviewed list: numbers, sections
of the paper, files of PyTorch.

A number in a text cell is good if a code cell of the same chapter has it, or a stored output that
`make test-notebooks` compares, or if it stands in REVIEWED, with its phrase.  So a file's length, a
measured time or a count of layers cannot go stale in silence.
"""

import ast
import html
import json
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "notebooks"))
import build  # noqa: E402
import claims  # noqa: E402

NAMES = sorted(path.stem for path in build.SOURCES.glob("*.py"))

# Constants of nature and of other people's designs, and small round figures of speech.
REVIEWED = {
    "02": ["hundreds of rewrites", "of 1000 is infinite"],
    "03": ["3.11", "3.12", "3.13"],
    "04": ["3.11", "3.12", "3.13"],
    "05": ["180 degrees"],
    "11": ["ten million", "Sixteen partial results"],
    "12": [
        "132 processors",  # an H100 SXM
        "warps** of 32",
        "sectors of 32 bytes",
        "128 bytes",
        "28 of each 32",
        "thousands of registers",
        "thousands of threads",
        "A hundred and thirty-two kitchens",
        "2019",
    ],
    "15": ["1.8 times faster", "2009", "hundreds of switches"],
}
WORDS = (
    "thirteen|fourteen|fifteen|sixteen|seventeen|eighteen|nineteen|twenty|thirty|forty|fifty|sixty"
    "|seventy|eighty|ninety|dozen|hundred|hundreds|thousand|thousands|million|millions"
)
NUMBER = re.compile(rf"(?<![\w.`/-])(\d[\d,]*(?:\.\d+)?)(?![\w`/-]|\.\d)|\b({WORDS})\b", re.I)
# what is no statement: code, links, exercises' numbers, references to chapters, sections, versions
NO_STATEMENT = [
    r"```.*?```",
    r"^ {4,}.*$",
    r"`[^`]*`",
    r"\]\([^)]*\)",
    r"^#+ .*$",
    r"\*\*\d\d\.\d\*\*",
    r"^\d+\. ",
    r"[Ee]xercises? [\d.]+",
    r"project \d",
    r"(?:[Nn]otebooks?|[Cc]hapters?) \d\d(?:(?:,| and| to) \d\d)*",
    r"\((?:\d\d(?:, )?)+\)",
    r"[(,] ?\d\d\)",
    r"(?:[Rr]equirements?|[Tt]raps?|condition|number|level|step)s? \d(?:(?:,| and) \d)*",
    r"[Ss]ections? \d",
    r"PEP \d+",
    r"PyTorch 2|Python \d\.\d+|ASPLOS 2024",
    r"float(?:16|32|64)|int(?:32|64)|H100s?|H200s?|sm_\d+|GPT-2|ResNet-50|MobileNetV3",
    r"<[^>]*>",
]


def cells(name: str, kind: str) -> list[str]:
    return [cell.source for cell in build.read(name).cells if cell.cell_type == kind]


def numbers_of(text: str) -> list[str]:
    """The numbers that a text states: digits of two places and more, decimals, large words."""
    for pattern in NO_STATEMENT:
        text = re.sub(pattern, " ", text, flags=re.M | re.S if "```" in pattern else re.M)
    found = [m[1] or m[2] for m in NUMBER.finditer(text)]
    return [n for n in found if not re.fullmatch(r"\d", n)]


def backed(name: str) -> str:
    """What the chapter's code and its compared outputs say."""
    stored = json.loads((build.NOTEBOOKS / f"{name}.ipynb").read_text())
    outputs = [
        "".join(output.get("text") or output.get("data", {}).get("text/plain", ""))
        for cell in stored["cells"]
        if "volatile" not in cell["metadata"].get("tags", [])
        for output in cell.get("outputs", [])
    ]
    return "\n".join([*cells(name, "code"), *outputs]).replace("_", "").replace(",", "")


def unbacked(name: str, texts: list[str]) -> list[str]:
    known, wrong = backed(name), []
    for text in texts:
        for phrase in REVIEWED.get(name[:2], ()):
            text = re.sub(r"\s+".join(map(re.escape, phrase.split())), " ", text)
        for number in numbers_of(text):
            digits = number.replace(",", "").lower()
            if not re.search(rf"(?<![\d.]){re.escape(digits)}(?![\d]|\.\d)", known.lower()):
                wrong.append(number)
    return wrong


@pytest.mark.parametrize("name", NAMES)
def test_no_prose_states_a_number_that_nothing_backs(name):
    assert unbacked(name, cells(name, "markdown")) == []


def shown(name: str) -> str:
    """All that a chapter's cells say and print, pictures and volatile outputs too."""
    parts = cells(name, "code")
    for cell in json.loads((build.NOTEBOOKS / f"{name}.ipynb").read_text())["cells"]:
        for output in cell.get("outputs", []):
            parts += ["".join(output.get("text", ""))]
            texts = [v for kind, v in output.get("data", {}).items() if kind != "image/png"]
            parts += [html.unescape(re.sub(r"<[^>]*>", "", "".join(text))) for text in texts]
    return re.sub(r"[\s,_]", "", "\n".join(parts))


def quoted_and_not_shown(name: str, texts: list[str]) -> list[str]:
    """Code in the prose with a number of three digits and more that no cell of the chapter has."""
    known, spans = shown(name), []
    for text in texts:
        spans += re.findall(r"`([^`]+)`", re.sub(r"```.*?```", "", text, flags=re.S))
    large = [span for span in spans if re.search(r"(?<![\w.])\d{3,}(?![\w.])", span)]
    return [span for span in large if re.sub(r"[\s,_]", "", span) not in known]


@pytest.mark.parametrize("name", NAMES)
def test_what_the_prose_quotes_of_an_output_is_there(name):
    assert quoted_and_not_shown(name, cells(name, "markdown")) == []


def test_a_stale_number_would_be_found():
    assert quoted_and_not_shown("14_dynamic_shapes", ["now: `if (8*s0 >= 99999)`"])
    stale = [
        "`torch/_inductor/scheduler.py` (about 7,000 lines)",
        "an evaluator in forty lines",
        "it is 1.73 times faster",
        "98,731 modules",
    ]
    for text in stale:
        assert unbacked("16_capstone", [text]), text
    assert numbers_of("see notebook 14, exercise 12.1, PEP 523, `x[12]` and section 3") == []


@pytest.mark.parametrize("name", NAMES)
def test_sections_of_the_paper_are_its_chapters(name):
    """2 earlier mechanisms, 3 capture, 4 the compiler, 5 shapes, 6 experiments: what lies deeper
    was not looked up, so it is not named."""
    text = " ".join(cells(name, "markdown"))
    assert [
        s for s in re.findall(r"[Ss]ections? (\d[\d.]*)", text) if s.rstrip(".") not in "23456"
    ] == []


@pytest.mark.parametrize("name", NAMES)
def test_files_of_pytorch_exist(name):
    """Those that an installation has: Python files.  Folders of C++ are not installed."""
    import torch

    root = Path(torch.__file__).parent.parent
    named = set(re.findall(r"`(torch/[\w/]+\.py)`", " ".join(cells(name, "markdown"))))
    assert [file for file in sorted(named) if not (root / file).exists()] == []


@pytest.mark.parametrize("name", NAMES)
def test_no_prose_says_how_long_a_file_is(name):
    assert re.findall(r"[\d,]+ lines\b", " ".join(cells(name, "markdown"))) == []


def core_files() -> list[str]:
    sys.path.insert(0, str(ROOT / "tools"))
    import sizes

    chapters = sizes.chapters(sizes.measure()).values()
    return [file for files in chapters for file in files if file.endswith(".py")]


def listed(name: str) -> list[str]:
    """The files whose public names a chapter lists."""
    calls = re.findall(r"^also_here\((.*?)\)$", "\n".join(cells(name, "code")), re.M | re.S)
    return [file for call in calls for file in re.findall(r'"([^"]+)"', call)]


def test_every_public_name_of_the_core_is_in_a_chapter():
    """In its text or in a list that is made from the sources (`explain.also_here`)."""
    from minidynamo.explain import also_here
    from minidynamo.explain.listing import entries_of

    said: set[str] = set()
    lists: dict[str, set[str]] = {}
    for name in NAMES:
        said |= set(re.findall(r"\w+", (build.SOURCES / f"{name}.py").read_text()))
        for file, entries in also_here(*listed(name)).files.items():
            every = {n for entry in entries for n in (entry.name, *entry.methods)}
            lists.setdefault(file, set()).update(every)
    missing = {}
    for file in core_files():
        entries = entries_of((ROOT / file).read_text())
        names = {n for entry in entries for n in (entry.name, *entry.methods)}
        if left := names - said - lists.get(file, set()):
            missing[file] = sorted(left)
    assert missing == {}
    assert len(core_files()) > 20 and sum(map(len, lists.values())) > 700


def marked_and_stored(name: str) -> tuple[list, list]:
    stored = json.loads((build.NOTEBOOKS / f"{name}.ipynb").read_text())["cells"]
    return build.read(name, marked=True).cells, stored


@pytest.mark.parametrize("name", NAMES)
def test_what_is_said_of_an_output_is_so(name):
    cells, stored = marked_and_stored(name)
    assert claims.contradicted(cells, stored) == []
    assert claims.untied(cells, stored) == []


def test_an_output_that_contradicts_its_sentence_is_found():
    text = "after step 2: -1\nb 3.5\n"
    output = {"cell_type": "code", "metadata": {}, "outputs": [{"text": text}]}
    said = {"cell_type": "markdown", "source": "Nothing is compiled twice.\n"}
    assert claims.untied([output, said], [output, said])
    said["source"] += '<!-- shows: n("after step 2:") == 0 -->'
    assert not claims.untied([output, said], [output, said])
    assert claims.contradicted([output, said], [output, said]) == ['n("after step 2:") == 0']
    assert claims.Output(text).holds('n("b") > 3 and count("2: -1") == 1')
    assert not claims.Output(text).holds('n("c") > 3')


def asked_and_shown(name: str) -> list[tuple[str, str]]:
    """(what an excerpt was asked for, what the title of the stored output says) of a chapter."""
    stored = json.loads((build.NOTEBOOKS / f"{name}.ipynb").read_text())
    pairs = []
    for cell in stored["cells"]:
        asked = re.findall(r"^excerpt\(([\w.]+)\)$", "".join(cell["source"]), re.M)
        for output in cell.get("outputs", []) if asked else []:
            text = "".join(output.get("data", {}).get("text/plain", ""))
            pairs.append((asked[-1], text.removeprefix("# ").partition(",")[0]))
    return pairs


@pytest.mark.parametrize("name", NAMES)
def test_an_excerpt_shows_what_was_asked_for(name):
    """Coverage may put a method of its own in the place of the core's: then show another."""
    assert [
        pair for pair in asked_and_shown(name) if not f".{pair[0]}".endswith(f".{pair[1]}")
    ] == []


def excerpts_longer_than(most: int, name: str) -> list[tuple[str, int]]:
    """(title, lines) of the stored outputs that show the compiler's source below `# NAME, FILE`."""
    found = []
    for cell in json.loads((build.NOTEBOOKS / f"{name}.ipynb").read_text())["cells"]:
        for output in cell.get("outputs", []):
            lines = "".join(output.get("data", {}).get("text/plain", "")).splitlines()
            if lines and re.search(r"^# .*, mini(dynamo|inductor)/[\w/]+\.py", lines[0]):
                found.append((lines[0], len(lines) - 1))
    return [pair for pair in found if pair[1] > most]


@pytest.mark.parametrize("name", NAMES)
def test_a_chapter_shows_at_most_12_lines_of_the_compiler_at_a_time(name):
    assert excerpts_longer_than(12, name) == []
    assert excerpts_longer_than(0, "10_fusion")


def said_but_not_shown(name: str) -> list[tuple[str, list[str]]]:
    """(an excerpt, names of which the paragraph behind it speaks and which it does not have), where
    these are more than half of all names: then the text is about an older version."""
    stored = json.loads((build.NOTEBOOKS / f"{name}.ipynb").read_text())["cells"]
    found = []
    for cell, behind in zip(stored, stored[1:], strict=False):
        asked = re.findall(r"^excerpt\(([\w.]+)\)$", "".join(cell["source"]), re.M)
        paragraph = "".join(behind["source"]).split("\n\n")[0]
        names = re.findall(r"`[\w.]*?([A-Za-z_]\w*)(?:\(\))?`", paragraph)
        if asked and behind["cell_type"] == "markdown" and len(names) > 1:
            data = [output.get("data", {}) for output in cell.get("outputs", [])]
            shown = "".join("".join(d.get("text/plain", "")) for d in data)
            shown += html.unescape(
                re.sub("<[^>]*>", "", "".join("".join(d.get("text/html", "")) for d in data))
            )
            missing = [n for n in names if n not in shown]
            if len(missing) > len(names) / 2:
                found.append((asked[-1], missing))
    return found


@pytest.mark.parametrize("name", NAMES)
def test_what_is_said_of_an_excerpt_is_in_it(name):
    assert said_but_not_shown(name) == []


def generated_but_not_shown(name: str) -> list[str]:
    """Names of generated code (`acc0_nan`) in the paragraph behind an output that has no such name:
    then the text is about an older kernel."""
    stored = json.loads((build.NOTEBOOKS / f"{name}.ipynb").read_text())["cells"]
    found = []
    for cell, behind in zip(stored, stored[1:], strict=False):
        if not cell.get("outputs") or behind["cell_type"] != "markdown":
            continue
        paragraph = "".join(behind["source"]).split("\n\n")[0]
        names = re.findall(r"`((?:acc|lane|rest|scratch|tile|tmp|buf)\d\w*)`", paragraph)
        shown = html.unescape(re.sub("<[^>]*>", "", json.dumps(cell["outputs"])))
        found += [n for n in names if not re.search(rf"\b{n}\b", shown.replace("\\n", " "))]
    return found


@pytest.mark.parametrize("name", NAMES)
def test_what_is_said_of_generated_code_is_in_it(name):
    assert generated_but_not_shown(name) == []


@pytest.mark.parametrize("name", NAMES)
def test_what_a_chapter_shows_of_the_sources_is_there(name):
    """The objects of `excerpt(...)`, found by the chapter's own imports: nothing else is run."""
    known: dict = {}
    trees = [ast.parse(plain(cell)) for cell in build.read(name).cells if cell.cell_type == "code"]
    nodes = [node for tree in trees for node in ast.walk(tree)]
    for node in nodes:
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            exec(ast.unparse(node), known)
    for node in nodes:
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "excerpt" and node.args:
            shown = ast.unparse(node.args[0])
            if shown.split(".")[0] in known:  # else of the chapter's own
                eval(shown, known)


def plain(cell):
    """The cell without its lines for IPython."""
    return "\n".join(line for line in cell.source.splitlines() if not line.startswith(("%", "!")))
