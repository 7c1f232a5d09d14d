"""Write the API page: headers of modules, docstrings of public functions, in pipeline order.

usage: python api.py ROOT OUT.md      (reads the sources with `ast`; imports nothing)
"""

import ast
import sys
from pathlib import Path

ORDER = {
    "minidynamo": [
        "api",
        "frame_hook",
        "convert_frame",
        "bytecode",
        "symbolic_eval",
        "variables",
        "sources",
        "guards",
        "graph_capture",
        "reconstruct",
        "resume",
        "backends",
        "prior",
        "explain",
        "bench",
    ],
    "miniinductor": [
        "compile",
        "autograd",
        "decompositions",
        "graph_passes",
        "ops",
        "ir",
        "handlers",
        "lowering",
        "dependencies",
        "scheduler",
        "codegen",
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
    parts = [f"### `{path.relative_to(root)}`\n", block(head)]
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


def main(root, out):
    root, text = (
        Path(root),
        [
            "# API",
            "The modules in the order in which a program flows through them: each file's header, "
            "then its public "
            "functions and classes.\n",
        ],
    )
    for name in ORDER:
        text.append(f"## {name}\n")
        package = root / name
        text += [
            module_text(root, path)
            for path in sorted(package.rglob("*.py"), key=lambda p: rank(package, p))
        ]
    Path(out).write_text("\n".join(text))


if __name__ == "__main__":
    main(*sys.argv[1:])
