"""How large the packages are: lines of code and tokens per file, core and coverage apart.

    python tools/sizes.py                 # every file, then the sums
    python tools/sizes.py --functions     # the longest and the most complex functions, too
    python tools/sizes.py --check         # what breaks the rules: nothing, and exit status 0

Lines are counted as `ruff format` at 100 columns lays them out (CI holds that the tree is
formatted), without comments, docstrings and blank lines.  Tokens are Python's own, without those
for layout. A function's complexity is 1 + its branches: if, loops, except, comprehensions,
conditional expressions, `and`/`or`, cases of a match.

Coverage are the folders that `coverage.py` of each package names in `FOLDERS`; the rest is core.
The rules: the core imports nothing of coverage, not inside functions either; and no function is
over `LIMITS`, but for those in `KNOWN`, which may only become smaller.
"""

import argparse
import ast
import functools
import io
import sys
import tokenize
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("minidynamo", "miniinductor")
# Measuring, showing, and what came before: not on the way of a compiled program.
AROUND = ("minidynamo/bench", "minidynamo/explain", "minidynamo/prior")
# Files that are coverage although they lie in no folder of it.
OTHER_COVERAGE: tuple[str, ...] = ()
LIMITS = {"core": (60, 15), "coverage": (90, 25)}  # lines and complexity of a function
KNOWN = {  # functions over the limits: what they have now, and may not exceed
}

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


@functools.cache
def coverage_places() -> tuple[str, ...]:
    """The paths of the folders of coverage, as the packages name them, and the other files."""
    found = list(OTHER_COVERAGE)
    for package in PACKAGES:
        for node in ast.parse((ROOT / package / "coverage.py").read_text()).body:
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "FOLDERS":
                folders = ast.literal_eval(node.value)
                found += [f"{package}/{folder.replace('.', '/')}/" for folder in folders]
    return tuple(found)


def part_of(name: str) -> str:
    """ "core", "coverage" or "around"."""
    if name.startswith(AROUND):
        return "around"
    return "coverage" if name.startswith(coverage_places()) else "core"


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


# --- the rules ------------------------------------------------------------------------------------
def dotted_name(path: Path, root: Path) -> str:
    """minidynamo/rules/sets.py -> minidynamo.rules.sets; a package's `__init__` is the package."""
    parts = path.relative_to(root).with_suffix("").parts
    return ".".join(part for part in parts if part != "__init__")


def imported_names(node: ast.AST, package: list[str]) -> list[tuple[str, ...]]:
    """What an import in a file of this package means: for each name the dotted modules that it may
    be, the first that there is."""
    if isinstance(node, ast.Import):
        return [(alias.name,) for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        home = package[: len(package) - node.level + 1] if node.level else []
        home += node.module.split(".") if node.module else []
        return [(".".join([*home, alias.name]), ".".join(home)) for alias in node.names]
    if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
        first = node.args[0] if node.args else None
        if isinstance(first, ast.Constant):
            return [(first.value,)]
    return []


def nodes_that_run(tree: ast.AST) -> Iterator[ast.AST]:
    """All but what only a type checker sees."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
            continue
        yield node
        yield from nodes_that_run(node)


def file_imports(files: Iterable[Path], root: Path = ROOT) -> Iterator[tuple[str, str]]:
    """(importing file, imported file), of imports inside functions, too."""
    names = {dotted_name(path, root): path for path in files}
    for path in names.values():
        here = dotted_name(path, root).split(".")
        package = here if path.name == "__init__.py" else here[:-1]
        for node in nodes_that_run(ast.parse(path.read_text())):
            for meanings in imported_names(node, package):
                found = next((names[name] for name in meanings if name in names), path)
                if found != path:
                    yield str(path.relative_to(root)), str(found.relative_to(root))


def imports_of_coverage() -> list[str]:
    """Where the core imports a file of coverage."""
    files = [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]
    return [
        f"{importing} imports {imported}, which is coverage"
        for importing, imported in sorted(set(file_imports(files)))
        if part_of(importing) == "core" and part_of(imported) == "coverage"
    ]


def without_file(function: Function) -> str:
    """minidynamo/guards.py:GuardFunction:_lasts -> GuardFunction:_lasts, wherever it moves."""
    return function.where.partition(":")[2]


def functions_over_limits(sizes: dict[str, Size]) -> list[str]:
    """What is longer or more complex than it may be."""
    problems = []
    for name, size in sizes.items():
        for found in size.functions if part_of(name) != "around" else []:
            allowed = zip(LIMITS[part_of(name)], KNOWN.get(without_file(found), (0, 0)))
            lines, branches = map(max, allowed)
            if found.lines > lines or found.complexity > branches:
                problems.append(
                    f"{found.where} has {found.lines} lines and complexity {found.complexity}; "
                    f"it may have {lines} and {branches}"
                )
    return problems


def no_longer_known(sizes: dict[str, Size]) -> list[str]:
    """Entries of `KNOWN` that nothing needs any more."""
    needed = {
        without_file(found)
        for name, size in sizes.items()
        for found in (size.functions if part_of(name) != "around" else [])
        if found.lines > LIMITS[part_of(name)][0] or found.complexity > LIMITS[part_of(name)][1]
    }
    return [name for name in KNOWN if name not in needed]


def broken_rules() -> list[str]:
    """A sentence for each."""
    return imports_of_coverage() + functions_over_limits(measure())


def total(sizes: dict[str, Size], *parts: str) -> Size:
    return sum((size for name, size in sizes.items() if part_of(name) in parts), Size())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--functions", action="store_true")
    parser.add_argument("--check", action="store_true", help="only what breaks the rules")
    options = parser.parse_args()
    sizes = measure()
    if options.check:
        problems = broken_rules()
        for name in no_longer_known(sizes):
            print(f"{name} is within the limits: it can be taken out of KNOWN")
        print("\n".join(problems) or "no rule is broken")
        sys.exit(bool(problems))
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
