"""Lines of code per file, without comments, blank lines and docstrings, in pipeline order; the budget of the compiler itself is 12,000.

usage: python tools/sizes.py
"""

import ast
import io
import sys
import tokenize
from pathlib import Path

BUDGET = 12_000
AROUND = (
    "bench",
    "explain",
    "prior",
)  # measuring, showing, and what came before: not on the way of a compiled program


def python_lines(path):
    """Lines that hold a token other than a comment or a docstring."""
    text = path.read_text()
    documentation = set()
    for node in ast.walk(ast.parse(text)):
        body = getattr(node, "body", None)
        if (
            isinstance(body, list)
            and body
            and isinstance(body[0], ast.Expr)
            and isinstance(body[0].value, ast.Constant)
            and isinstance(body[0].value.value, str)
        ):
            documentation.update(range(body[0].lineno, body[0].end_lineno + 1))
    lines = set()
    skip = {
        tokenize.COMMENT,
        tokenize.NL,
        tokenize.NEWLINE,
        tokenize.INDENT,
        tokenize.DEDENT,
        tokenize.ENDMARKER,
    }
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in skip:
            lines.update(range(token.start[0], token.end[0] + 1))
    return len(lines - documentation)


def c_lines(path):
    text, code, inside = path.read_text(), 0, False
    for line in text.splitlines():
        line = line.strip()
        starts = line.startswith(("/*", "//")) or inside
        inside = (inside or line.startswith("/*")) and "*/" not in line
        code += bool(line) and not starts
    return code


def main():
    root = Path(__file__).parent.parent
    total, around = 0, 0
    for package in ("minidynamo", "miniinductor"):
        subtotal = 0
        for path in sorted(
            p for suffix in ("py", "c", "h") for p in (root / package).rglob(f"*.{suffix}")
        ):
            count = python_lines(path) if path.suffix == ".py" else c_lines(path)
            subtotal += count
            around += count if path.relative_to(root).parts[1] in AROUND else 0
            print(f"{count:6}  {path.relative_to(root)}" + ("    over 700" if count > 700 else ""))
        print(f"{subtotal:6}  {package}\n")
        total += subtotal
    print(
        f"{total - around:6}  the compiler, of {BUDGET}\n{around:6}  around it: {', '.join(AROUND)}\n{total:6}  both packages"
    )
    return total - around > BUDGET


if __name__ == "__main__":
    sys.exit(main())
