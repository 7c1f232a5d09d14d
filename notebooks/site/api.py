"""Write the API pages, one for each folder: headers of modules, docstrings of public functions, in
pipeline order.

usage: python api.py ROOT FOLDER      (reads the sources with `ast`; imports nothing)
"""

import ast
import sys
from pathlib import Path

ORDER = {
    "minidynamo": [
        "api",
        "frame",
        "convert",
        "bytecode",
        "evaluate",
        "variables",
        "functions",
        "guards",
        "shapes",
        "graph",
        "rebuild",
        "backends",
        "explain",
    ],
    "miniinductor": [
        "compile",
        "autograd",
        "passes",
        "sizes",
        "lowering",
        "ir",
        "schedule",
        "codegen",
        "toolchain",
        "runtime",
    ],
}


def rank(package, path):
    first = path.relative_to(package).parts[0].removesuffix(".py")
    order = ORDER[package.name]
    return order.index(first) if first in order else len(order), path.name != "__init__.py", path


def block(text):
    fence = "~" * 4
    return f"{fence}text\n{text}\n{fence}\n"


def module_text(root, path):
    tree = ast.parse(path.read_text())
    head = ast.get_docstring(tree)
    if not head:
        return ""
    parts = [f"## `{path.name}`\n", block(head)]
    for node in tree.body:
        if (
            isinstance(node, (ast.FunctionDef, ast.ClassDef))
            and not node.name.startswith("_")
            and ast.get_docstring(node)
        ):
            if isinstance(node, ast.FunctionDef):
                parts.append(f"**{node.name}**`({ast.unparse(node.args)})`\n")
            else:
                parts.append(f"**class {node.name}**\n")
            parts.append(block(ast.get_docstring(node)))
    return "\n".join(parts)


def folders(package):
    """The folders of a package in pipeline order, the package's own first."""
    found = {path.parent for path in package.rglob("*.py")}
    return sorted(found, key=lambda f: (f != package, rank(package, f / "__init__.py")))


def main(root, out):
    root, out = Path(root), Path(out)
    out.mkdir(exist_ok=True)
    names = []
    for package in (root / name for name in ORDER):
        for folder in folders(package):
            files = sorted(folder.glob("*.py"), key=lambda path: rank(package, path))
            texts = [text for path in files if (text := module_text(root, path))]
            if texts:
                name = str(folder.relative_to(root)).replace("/", ".")
                names.append(name)
                (out / f"{name}.md").write_text("\n".join([f"# {name}\n", *texts]))
    listed = "\n".join(names)
    (out / "index.md").write_text(
        "# Files of both packages\n\nOne page for each folder, in the order in which a program "
        "flows through them. Each file's header comes first, then its public functions and "
        f"classes.\n\n```{{toctree}}\n:maxdepth: 1\n\n{listed}\n```\n"
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
