"""Run the notebooks from their text sources and render the pages.

usage: python notebooks/build.py [NAME ...] [--no-execute]

In:   notebooks/src/NN_name.py (jupytext, py:percent).  Out: notebooks/NN_name.ipynb, executed and cleaned (no machine
paths, no addresses), and course/NN_name.html with course/index.html.
"""
import argparse
import os
import re
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCES, NOTEBOOKS, PAGES = ROOT / "notebooks" / "src", ROOT / "notebooks", ROOT / "course"


def step(text):
    print(f"[course] {text}", flush=True)


def replacements():
    """Machine-specific text -> what the stored notebook says."""
    import site
    pairs = [(str(ROOT) + "/", ""), (str(ROOT), ".")]
    pairs += [(folder + "/", "") for folder in site.getsitepackages()]
    pairs += [(sys.base_prefix + "/lib/", "python/"), (sys.prefix + "/", "venv/"), (str(Path.home()) + "/", "~/")]
    return pairs


def clean(value, pairs):
    """Outputs without paths of this machine and without addresses of objects."""
    if isinstance(value, dict):
        return {k: clean(v, pairs) if k not in ("image/png",) else v for k, v in value.items()}
    if isinstance(value, list):
        return [clean(v, pairs) for v in value]
    if isinstance(value, str):
        for path, text in pairs:
            value = value.replace(path, text)
        value = re.sub(r"/tmp/ipykernel_\d+/\d+\.py", "notebook", value)
        value = re.sub(r"\b\d{6,12}\.py:", "notebook:", value)
        return re.sub(r"0x[0-9a-f]{8,16}", "0x...", value)
    return value


def execute(source):
    """The executed notebook of one text source."""
    import jupytext
    import nbformat
    from nbclient import NotebookClient
    notebook = jupytext.read(source)
    notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
    os.environ["PYTHONPATH"] = str(ROOT)
    client = NotebookClient(notebook, timeout=900, kernel_name="python3", resources={"metadata": {"path": str(ROOT)}})
    client.execute()
    pairs = replacements()
    for number, cell in enumerate(notebook.cells):
        cell["id"] = f"cell-{number:03d}"
        cell.metadata.pop("execution", None)
        if cell.cell_type == "code":
            cell.outputs = [nbformat.from_dict(clean(output, pairs)) for output in cell.outputs
                            if not (output.output_type == "stream" and output.name == "stderr")]
    notebook.metadata = {k: notebook.metadata[k] for k in ("kernelspec",) if k in notebook.metadata}
    return notebook


def render(notebook_path):
    """One page, and its title."""
    import nbformat
    from nbconvert import HTMLExporter
    notebook = nbformat.read(notebook_path, as_version=4)
    exporter = HTMLExporter(template_name="basic", exclude_input_prompt=True, exclude_output_prompt=True)
    body, _ = exporter.from_notebook_node(notebook)
    title = next((re.sub(r"^#+\s*", "", line) for cell in notebook.cells if cell.cell_type == "markdown"
                  for line in cell.source.splitlines() if line.startswith("#")), notebook_path.stem)
    page = PAGES / f"{notebook_path.stem}.html"
    page.write_text(page_html(title, body))
    return page, title


def page_html(title, body):
    from pygments.formatters import HtmlFormatter
    style = (NOTEBOOKS / "page.css").read_text() + HtmlFormatter(style="friendly").get_style_defs(".highlight")
    return (f'<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
            f"<title>{title}</title><style>{style}</style></head><body><nav><a href='index.html'>the course</a></nav>"
            f"<main>{body}</main></body></html>")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="notebooks to build, such as 00_tour (default: all)")
    parser.add_argument("--no-execute", action="store_true", help="render what is stored")
    options = parser.parse_args()
    import nbformat
    PAGES.mkdir(exist_ok=True)
    names = options.names or sorted(p.stem for p in SOURCES.glob("*.py"))
    links = []
    for name in names:
        path = NOTEBOOKS / f"{name}.ipynb"
        if not options.no_execute:
            step(f"running {name}")
            start = time.time()
            notebook = execute(SOURCES / f"{name}.py")
            nbformat.write(notebook, path)
            step(f"{name} ran in {time.time() - start:.0f} s")
        page, title = render(path)
        links.append(f'<li><a href="{page.name}">{title}</a></li>')
        step(f"page: {page}")
    index = PAGES / "index.html"
    index.write_text(page_html("minidynamo: the course", f"<h1>A real torch.compile, small enough to read</h1><ol start='0'>{''.join(links)}</ol>"))
    step(f"start here: {index}")


if __name__ == "__main__":
    sys.exit(main())
