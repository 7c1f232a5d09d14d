"""Run the notebooks from their text sources and build the course's pages.

usage: python notebooks/build.py [NAME ...] [--write] [--no-execute] [--check] [--exercises]
                                 [--nbgrader FOLDER]

In:   notebooks/src/NN_name.py (jupytext, py:percent).
Out:  build/notebooks/NN_name.ipynb    the student's version, executed: exercise stubs are empty,
                                   their check cells were not run
      course/                      the site (Sphinx and myst-nb), from this run; notebooks that were
                                   not run as they are stored
      notebooks/NN_name.ipynb      with --write: the stored notebooks, replaced by this run (timings
                                   change, so git sees a difference)
      notebooks/solutions/         with --exercises: the solved versions, executed, every check PASS
                                   (not committed)
      FOLDER/source/NN_name/       with --nbgrader FOLDER: an nbgrader assignment per notebook; each
                                   check is worth the points of its exercise's level

Tags of cells: `exercise` (what stands between BEGIN SOLUTION and END SOLUTION is the student's
part; `BEGIN SOLUTION instead of pass` leaves `pass` there), `check` (run in the solved version
only), `piece` (a check of the student's own compiler), `volatile` (the output is a measurement:
--check does not compare it), `support` (defines what the exercises use).
--check runs the notebooks again and compares their text outputs with the stored ones.
Sentences are tied to outputs (claims.py): a run that contradicts one fails.
"""

import argparse
import functools
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

from claims import MARK, contradicted

ROOT = Path(__file__).resolve().parent.parent
NOTEBOOKS = ROOT / "notebooks"
SOURCES, SOLUTIONS, SITE, PAGES = (
    NOTEBOOKS / "src",
    NOTEBOOKS / "solutions",
    NOTEBOOKS / "site",
    ROOT / "course",
)
FRESH = ROOT / "build" / "notebooks"
OWN_COMPILER = ROOT / "build" / "my_compiler"  # what the chapters begin here; not the student's
SOLUTION = re.compile(
    r"^([ \t]*)### BEGIN SOLUTION(?: instead of (\w+))?\n.*?^[ \t]*### END SOLUTION\n?", re.S | re.M
)
EMPTY = 'raise NotImplementedError("your turn")'


def step(text):
    print(f"[course] {text}", flush=True)


# ---- from source to notebook
def read(name, marked=False):
    """The notebook of a source; marked: with the marks that tie its sentences (claims.py)."""
    import jupytext

    notebook = jupytext.read(SOURCES / f"{name}.py")
    for cell in notebook.cells:
        if cell.cell_type == "markdown" and not marked:
            cell.source = MARK.sub("", cell.source).rstrip("\n")
    notebook.metadata = {
        "kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}
    }
    return notebook


def tags(cell):
    return cell.metadata.get("tags", [])


def student(notebook):
    """The solutions taken out; the check cells are not to be run."""
    for cell in notebook.cells:
        if "exercise" in tags(cell):
            cell.source = SOLUTION.sub(
                lambda m: f"{m[1]}{m[2] or EMPTY}\n", cell.source + "\n"
            ).rstrip("\n")
        if "check" in tags(cell):
            cell.metadata["tags"] = [*tags(cell), "skip-execution"]
    return notebook


def solved(notebook):
    """The solutions left in, without their markers."""
    for cell in notebook.cells:
        cell.source = re.sub(
            r"^[ \t]*### (BEGIN|END) SOLUTION.*\n?", "", cell.source + "\n", flags=re.M
        ).rstrip("\n")
    return notebook


def graded(name, answer):
    """The cell that nbgrader grades: its last value is the points (partial credit); hidden rows
    stand between nbgrader's marks, and are not in the students' version."""
    from exercises.hidden import HIDDEN

    lines = ["from exercises import grade", "", f'points = grade("{name}", {answer})']
    if name in HIDDEN:
        lines += [
            "### BEGIN HIDDEN TESTS",
            "from exercises.hidden import HIDDEN",
            "",
            f'points = grade("{name}", {answer}, more=HIDDEN["{name}"])',
            "### END HIDDEN TESTS",
        ]
    return "\n".join([*lines, "points"])


def points_of(found):
    """The points of a check cell: those of its exercise's level."""
    from exercises import POINTS, level

    return POINTS[level(found[1])] if found else 1


def assignment(notebook):
    """The notebook as nbgrader's source version: answers between its BEGIN and END SOLUTION
    lines, checks as graded cells."""
    for number, cell in enumerate(notebook.cells):
        kind = next((tag for tag in ("exercise", "check") if tag in tags(cell)), None)
        if "piece" in tags(
            cell
        ):  # of the student's own compiler, whose files nbgrader does not see
            kind = None
        cell["id"] = f"cell-{number:03d}"
        cell.source = cell.source.replace(
            "### BEGIN SOLUTION instead of pass", "### BEGIN SOLUTION"
        )
        found = re.search(r'^check\("([\d.]+)", (.+)\)$', cell.source, re.M)
        if kind == "check" and found:
            cell.source = graded(*found.groups())
        if kind:
            cell.metadata["nbgrader"] = {
                "schema_version": 3,
                "grade_id": cell["id"],
                "grade": kind == "check",
                "locked": kind == "check",
                "solution": kind == "exercise",
                "task": False,
                **({"points": points_of(found)} if kind == "check" else {}),
            }
    return notebook


def write_assignments(names, folder):
    """FOLDER as an nbgrader course: source/NN_name/NN_name.ipynb and a nbgrader_config.py that
    lets the checks be imported."""
    import nbformat

    folder = Path(folder)
    for name in names:
        (folder / "source" / name).mkdir(parents=True, exist_ok=True)
        nbformat.write(assignment(read(name)), folder / "source" / name / f"{name}.ipynb")
    (folder / "nbgrader_config.py").write_text(
        "import os\nc = get_config()\nc.CourseDirectory.course_id = "
        "'minidynamo'\nc.ExecutePreprocessor.timeout = 600\n"
        f"os.environ['PYTHONPATH'] = {str(NOTEBOOKS)!r} + os.pathsep + {str(ROOT)!r}\n"
    )
    step(f"assignments of {len(names)} notebooks in {folder}: nbgrader generate_assignment NN_name")


def replacements():
    """Machine-specific text -> what the stored notebook says; the environment first, as it
    may lie in our folder."""
    import site

    pairs = [(folder + "/", "") for folder in site.getsitepackages()]
    pairs += [(sys.base_prefix + "/lib/", "python/"), (sys.prefix + "/", "venv/")]
    return pairs + [(str(ROOT) + "/", ""), (str(ROOT), "."), (str(Path.home()) + "/", "~/")]


def clean(value, pairs):
    """Outputs without paths of this machine and without addresses of objects."""
    if isinstance(value, dict):
        return {k: clean(v, pairs) if k not in ("image/png",) else v for k, v in value.items()}
    if isinstance(value, list):
        return [clean(v, pairs) for v in value]
    if isinstance(value, str):
        for path, text in pairs:
            value = value.replace(path, text)
        value = re.sub(r"(?:/[\w.-]+)+/ipykernel_\d+/\d+\.py", "notebook", value)  # any TMPDIR
        value = re.sub(r"\b\d{6,12}\.py:", "notebook:", value)
        return re.sub(r"0x[0-9a-f]{9,16}", "0x...", value)  # addresses, not constants
    return value


def joined(outputs):
    """What was printed in one piece (the kernel sends it as it comes); nothing of stderr."""
    found = []
    for output in outputs:
        if (
            output.output_type == "stream"
            and found
            and found[-1].output_type == "stream"
            and output.name == found[-1].name == "stdout"
        ):
            found[-1].text += output.text
        elif not (output.output_type == "stream" and output.name == "stderr"):
            found.append(output)
    return found


def execute(notebook):
    """Run it in a fresh kernel, in the folder of the notebooks; outputs cleaned of what belongs to
    this machine."""
    import nbformat
    from nbclient import NotebookClient

    os.environ["PYTHONPATH"] = str(ROOT)
    os.environ["PYDEVD_DISABLE_FILE_VALIDATION"] = "1"
    os.environ["MY_COMPILER"] = str(OWN_COMPILER)
    client = NotebookClient(
        notebook,
        timeout=900,
        kernel_name="python3",
        resources={"metadata": {"path": str(NOTEBOOKS)}},
        extra_arguments=["--log-level=ERROR"],
    )  # no word about encryption on this machine's own wires
    client.execute()
    pairs = replacements()
    for number, cell in enumerate(notebook.cells):
        cell["id"] = f"cell-{number:03d}"
        cell.metadata.pop("execution", None)
        if cell.cell_type == "code":
            cell.outputs = [
                nbformat.from_dict(clean(output, pairs)) for output in joined(cell.outputs)
            ]
    return notebook


# ---- comparing
def texts(cell):
    """What a reader of the terminal form sees, with digits beyond the fourth masked."""
    parts = [
        o.get("text") or o.get("data", {}).get("text/plain", "") for o in cell.get("outputs", [])
    ]
    text = "".join("".join(part) for part in parts)
    return re.sub(r"(\d\.\d{3})\d+", r"\1", text).strip()


def differences(stored, fresh):
    """[(cell number, stored text, new text)] of the cells whose text outputs differ.

    Not compared: how wide the columns of a table are.  They are as wide as their cells, and
    those name temporary files."""
    found, narrow = [], functools.partial(re.sub, r"(?m)^-{20,}$| {2,}", "  ")
    for number, (a, b) in enumerate(zip(stored.cells, fresh.cells, strict=True)):
        if (
            a.cell_type == "code"
            and "volatile" not in tags(a)
            and narrow(texts(a)) != narrow(texts(b))
        ):
            found.append((number, texts(a), texts(b)))
    return found


# ---- pages
def build_site(notebooks):
    """Sphinx over {name: notebook file}; a warning is an error."""
    import nbformat
    import pages

    work, files = ROOT / "build" / "site", set()
    shutil.rmtree(work, ignore_errors=True)
    shutil.copytree(SITE, work)
    text = (work / "glossary.md").read_text()
    (work / "glossary.md").write_text(pages.glossary_page(text))
    terms, times = pages.glossary(text), {}
    for name, path in notebooks.items():
        notebook = nbformat.read(path, as_version=4)
        times[name] = pages.minutes(notebook)
        notebook = pages.with_links(pages.with_texts(notebook, read(name)), name, terms, files)
        nbformat.write(notebook, work / f"{name}.ipynb")
    index = work / "index.md"
    lists = {
        f"@PART{n}@": [c.name for c in part.chapters if c.name in notebooks]
        for n, part in enumerate(pages.PARTS)
    }
    page = index.read_text().replace("@MAP@", pages.course_map(times))
    page = page.replace("@PICTURE@", pages.front_picture())
    shutil.copy(ROOT / "docs" / "explorer.png", work / "static")
    for mark, names in lists.items():
        page = page.replace(mark, "\n".join(names))
    index.write_text(page)
    subprocess.run([sys.executable, work / "api.py", ROOT, work / "api"], check=True)
    subprocess.run(
        [
            sys.executable,
            "-m",
            "sphinx",
            "-W",
            "--keep-going",
            "-q",
            "-b",
            "html",
            work,
            ROOT / "build" / "html",
        ],
        check=True,
    )
    from minidynamo.explain.views import code_style

    pages.stack_wide_tables(ROOT / "build" / "html")
    pages.explorers_apart(ROOT / "build" / "html")
    pages.write_source_pages(files, ROOT / "build" / "html", code_style())
    (ROOT / "build" / "html" / "notebooks").mkdir(exist_ok=True)
    for path in notebooks.values():
        shutil.copy(path, ROOT / "build" / "html" / "notebooks")
    shutil.rmtree(PAGES, ignore_errors=True)
    shutil.copytree(
        ROOT / "build" / "html", PAGES, ignore=shutil.ignore_patterns(".doctrees", ".buildinfo")
    )
    from check_site import broken_links

    if wrong := broken_links(PAGES):
        sys.exit("[course] broken links:\n" + "\n".join(wrong))
    step(f"start here: {PAGES / 'index.html'}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="notebooks, such as 00_tour (default: all)")
    parser.add_argument("--write", action="store_true", help="replace the stored notebooks")
    parser.add_argument(
        "--no-execute", action="store_true", help="build the pages from what is stored"
    )
    parser.add_argument(
        "--check", action="store_true", help="run again and compare with what is stored"
    )
    parser.add_argument(
        "--exercises", action="store_true", help="write and run the solved versions"
    )
    parser.add_argument(
        "--nbgrader", metavar="FOLDER", help="write nbgrader assignments, and nothing else"
    )
    options = parser.parse_args()
    import nbformat

    every = sorted(p.stem for p in SOURCES.glob("*.py"))
    if options.nbgrader:
        return write_assignments(options.names or every, options.nbgrader)
    failed, target = (
        False,
        SOLUTIONS if options.exercises else NOTEBOOKS if options.write else FRESH,
    )
    target.mkdir(parents=True, exist_ok=True)
    OWN_COMPILER.parent.mkdir(exist_ok=True)
    shutil.rmtree(OWN_COMPILER, ignore_errors=True)
    if options.exercises:  # the solved compiler, as if the student had written all of it
        shutil.copytree(NOTEBOOKS / "reference" / "my_compiler", OWN_COMPILER)
    shown = {name: NOTEBOOKS / f"{name}.ipynb" for name in every}
    for name in () if options.no_execute else options.names or every:
        start = time.time()
        step(f"running {name}")
        path = NOTEBOOKS / f"{name}.ipynb"
        notebook = execute((solved if options.exercises else student)(read(name)))
        for mark in contradicted(read(name, marked=True).cells, notebook.cells, measured=False):
            failed = True
            step(f"{name}: the text says what its cell does not show: {mark}")
        if options.check:
            for number, before, after in differences(nbformat.read(path, as_version=4), notebook):
                failed = True
                step(f"{name}, cell {number} differs\n--- stored\n{before}\n--- now\n{after}")
        else:
            shown[name] = target / f"{name}.ipynb"
            nbformat.write(notebook, shown[name])
        step(f"{name} took {time.time() - start:.0f} s")
    if not options.check and not options.exercises:
        build_site({name: path for name, path in shown.items() if path.exists()})
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
