"""How large the packages are: lines of code and tokens per file, core and coverage apart.

    python tools/sizes.py                 # every file, then the sums
    python tools/sizes.py --functions     # the longest and the most complex functions, too

Lines are counted as `ruff format` at 100 columns lays them out (CI holds that the tree is
formatted), without comments, docstrings and blank lines.  Tokens are Python's own, without those
for layout. A function's complexity is 1 + its branches: if, loops, except, comprehensions,
conditional expressions, `and`/`or`, cases of a match.  What is core and what is coverage is said by
`CORE`.
"""

import argparse
import ast
import io
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("minidynamo", "miniinductor")
# Measuring, showing, and what came before: not on the way of a compiled program.
AROUND = ("minidynamo/bench", "minidynamo/explain", "minidynamo/prior")
# Files and folders that a student reads whole; everything else is coverage.
CORE: tuple[str, ...] = ()

LAYOUT = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}
BRANCHES = (
    ast.If,
    ast.IfExp,
    ast.For,
    ast.While,
    ast.ExceptHandler,
    ast.comprehension,
    ast.Assert,
    ast.match_case,
)
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass
class Function:
    where: str
    lines: int
    complexity: int
    typed: bool
    public: bool


@dataclass
class Size:
    """What was counted in one file, or in several."""

    lines: int = 0
    tokens: int = 0
    functions: list[Function] = field(default_factory=list)

    def __add__(self, other: "Size") -> "Size":
        return Size(
            self.lines + other.lines, self.tokens + other.tokens, self.functions + other.functions
        )


def docstring_lines(tree: ast.AST) -> set[int]:
    found: set[int] = set()
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if not isinstance(body, list) or not body:
            continue
        first = body[0]
        if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
            if isinstance(first.value.value, str):
                found.update(range(first.lineno, first.end_lineno + 1))
    return found


def complexity(function: ast.AST) -> int:
    count = 1
    for node in ast.walk(function):
        count += isinstance(node, BRANCHES)
        if isinstance(node, ast.BoolOp):
            count += len(node.values) - 1
        if isinstance(node, ast.comprehension):
            count += len(node.ifs)
    return count


def is_typed(function: ast.FunctionDef) -> bool:
    """Are the result and all parameters annotated (self and cls need not be)?"""
    every = function.args.posonlyargs + function.args.args + function.args.kwonlyargs
    named = [a for a in every if a.arg not in ("self", "cls")]
    stars = [a for a in (function.args.vararg, function.args.kwarg) if a is not None]
    return function.returns is not None and all(a.annotation for a in named + stars)


def functions(tree: ast.AST, path: str, code: set[int]) -> Iterator[Function]:
    """Functions and methods, those within others included in the one around them."""
    for node in getattr(tree, "body", []):
        if isinstance(node, ast.ClassDef):
            yield from functions(node, f"{path}:{node.name}", code)
        elif isinstance(node, FUNCTIONS):
            lines = len(code & set(range(node.lineno, node.end_lineno + 1)))
            public = not node.name.startswith("_")
            where = f"{path}:{node.name}"
            yield Function(where, lines, complexity(node), is_typed(node), public)


def python_size(path: Path, name: str) -> Size:
    text = path.read_text()
    tree = ast.parse(text)
    documentation = docstring_lines(tree)
    lines, tokens = set(), 0
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type in LAYOUT or token.start[0] in documentation:
            continue
        tokens += 1
        lines.update(range(token.start[0], token.end[0] + 1))
    return Size(len(lines), tokens, list(functions(tree, name, lines)))


def c_size(path: Path) -> Size:
    """Lines that are not empty and no comment; C's tokens are not counted."""
    code, inside = 0, False
    for line in map(str.strip, path.read_text().splitlines()):
        starts = line.startswith(("/*", "//")) or inside
        inside = (inside or line.startswith("/*")) and "*/" not in line
        code += bool(line) and not starts
    return Size(code)


def part_of(name: str) -> str:
    """ "core", "coverage" or "around"."""
    if name.startswith(AROUND):
        return "around"
    inside = any(name == place or name.startswith(place + "/") for place in CORE)
    return "core" if inside else "coverage"


def measure() -> dict[str, Size]:
    """{path: Size} of both packages."""
    found = {}
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*")):
            name = str(path.relative_to(ROOT))
            if path.suffix == ".py":
                found[name] = python_size(path, name)
            elif path.suffix in (".c", ".h"):
                found[name] = c_size(path)
    return found


def total(sizes: dict[str, Size], *parts: str) -> Size:
    return sum((size for name, size in sizes.items() if part_of(name) in parts), Size())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--functions", action="store_true")
    options = parser.parse_args()
    sizes = measure()
    for name, size in sizes.items():
        print(f"{size.lines:6} lines {size.tokens:7} tokens  {part_of(name):8}  {name}")
    for parts in (("core",), ("coverage",), ("core", "coverage"), ("around",)):
        size = total(sizes, *parts)
        public = [f for f in size.functions if f.public]
        typed = sum(f.typed for f in public)
        print(
            f"{size.lines:6} lines {size.tokens:7} tokens  {' and '.join(parts)}: "
            f"{typed} of {len(public)} public functions typed"
        )
    if options.functions:
        every = total(sizes, "core", "coverage").functions
        for key in ("lines", "complexity"):
            print(f"\nmost {key}:")
            for found in sorted(every, key=lambda f: -getattr(f, key))[:60]:
                print(f"{getattr(found, key):6}  {found.where}")


if __name__ == "__main__":
    main()
