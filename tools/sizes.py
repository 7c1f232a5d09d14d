"""How large the two packages are: lines of code and tokens of every file that the wheel has.

    python tools/sizes.py                 # every file, then the sums beside the budget
    python tools/sizes.py --functions     # the longest and the most complex functions, too
    python tools/sizes.py --write         # writes the tables of README.md and docs/files.md anew
    python tools/sizes.py --check         # what breaks the rules: nothing, and exit status 0

Lines are counted as `ruff format` at 100 columns lays them out (CI holds that the tree is
formatted), without comments, docstrings and blank lines; of other files than Python's, all lines
that are not empty and no comment.  Tokens are Python's own, without those for layout; of other
files, words, numbers and operators.  A function's complexity is 1 + its branches: if, loops,
except, comprehensions, conditional expressions, `and`/`or`, cases of a match.

The rules: all of both packages but `minidynamo/explain/` fits into `BUDGET`, `explain` and the
benchmarks into theirs; no function is over `LIMITS`; and so much of the public functions has types
as `TYPED` says.
"""

import argparse
import ast
import functools
import io
import operator
import os
import re
import sys
import tokenize
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("minidynamo", "miniinductor")
EXPLAIN = "minidynamo/explain/"  # the explorer has a budget of its own
BUDGET = (24_000, 240_000)  # lines, tokens: they only go down
EXPLAIN_BUDGET = 9_000  # lines
BENCHMARKS = "benchmarks"  # at the top, not in the wheel
BENCHMARKS_BUDGET = 5_990  # lines
LIMITS = (80, 20)  # lines and complexity of a function
TYPED = 0.8  # so much of the public functions says what it takes and gives
READ_IN_AN_HOUR = 300  # lines of code that one means to understand: what careful reviews manage
COURSE = ("src", "reference", "exercises", "prior", "teaching")  # folders of notebooks/
README = ROOT / "README.md"
FILES = ROOT / "docs" / "files.md"
TABLE = "<!-- written by `make sizes`: reading -->"  # before the table of docs/files.md, and after
SIZE_TABLE = "<!-- written by `make sizes`: size -->"  # the README's

# The spine: what one reads first, in the order in which a program flows through it: a folder, and
# its files; at most 30 of 6,000 lines together.
READING = """
A frame comes in
    minidynamo/convert conversion.py
Symbolic evaluation
    minidynamo/evaluate evaluator.py
Sources and guards
    minidynamo/guards sources.py guards.py
The graph under construction
    minidynamo/graph output_graph.py graph_module.py
Bytecode again
    minidynamo/rebuild replacement.py
    minidynamo/bytecode assembler.py
The driver of miniinductor
    miniinductor compile.py
Autograd
    miniinductor/autograd joint.py tracer.py outputs.py partition.py runtime.py
Lowering
    miniinductor/lowering graph.py registry.py
Loop IR
    miniinductor/ir loops.py dependencies.py
Fusion
    miniinductor/schedule nodes.py scheduler.py
Kernels in C++
    miniinductor/codegen kernels.py kernel_plan.py
    miniinductor/codegen/cpp kernel_writer.py lanes.py statements.py
    miniinductor toolchain.py
Memory and the wrapper
    miniinductor/runtime memory.py wrapper.py
"""

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
WORDS = re.compile(r"\w+|[^\w\s]+")
BUILT = (".so", ".pyc", ".pyd")


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


def text_size(path: Path) -> Size:
    """Of a file that is not Python's: lines that are not empty and no comment, and their tokens."""
    lines, tokens, inside = 0, 0, False
    for line in map(str.strip, path.read_text().splitlines()):
        starts = line.startswith(("/*", "//")) or inside
        inside = (inside or line.startswith("/*")) and "*/" not in line
        if line and not starts:
            lines += 1
            tokens += len(WORDS.findall(line))
    return Size(lines, tokens)


def part_of(name: str) -> str:
    """ "explain" or "compiler"."""
    return "explain" if name.startswith(EXPLAIN) else "compiler"


@functools.cache
def measure() -> dict[str, Size]:
    """{path: Size} of every file that the packages have, but for what is built or cached."""
    found = {}
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*")):
            name = str(path.relative_to(ROOT))
            if not path.is_file() or path.suffix in BUILT:
                continue
            found[name] = python_size(path, name) if path.suffix == ".py" else text_size(path)
    return found


@functools.cache
def folder_size(folder: str) -> Size:
    """Of all Python files below it together."""
    paths = sorted((ROOT / folder).rglob("*.py"))
    return sum((python_size(path, str(path.relative_to(ROOT))) for path in paths), Size())


def benchmarks_size() -> Size:
    return folder_size(BENCHMARKS)


# --- for README.md and docs/files.md --------------------------------------------------------------
def chapters(sizes: dict[str, Size]) -> dict[str, list[str]]:
    """What one reads first, in reading order: {chapter: its files}."""
    found: dict[str, list[str]] = {}
    for line in READING.strip().splitlines():
        if not line.startswith(" "):
            found[line] = chapter = []
            continue
        folder, *names = line.split()
        chapter += [path for name in names if (path := f"{folder}/{name}") in sizes]
    return {title: names for title, names in found.items() if names}


def reading_table(sizes: dict[str, Size]) -> list[str]:
    """Each file that one reads first, with its lines; the sum and the time that takes."""
    rows, lines = ["| chapter | files, each with its lines of code | lines |", "|---|---|---|"], 0
    for title, names in chapters(sizes).items():
        folder = os.path.commonpath([os.path.dirname(name) for name in names])
        files = [f"`{name.removeprefix(folder + '/')}` {sizes[name].lines}" for name in names]
        of_chapter = sum(sizes[name].lines for name in names)
        lines += of_chapter
        rows.append(f"| {title} | `{folder}/`: {', '.join(files)} | {of_chapter:,} |")
    hours = round(lines / READ_IN_AN_HOUR)
    return [*rows, f"| together | {hours} hours at {READ_IN_AN_HOUR} lines an hour | {lines:,} |"]


def size_table(sizes: dict[str, Size]) -> list[str]:
    """Lines of code of what one reads whole, of the two packages, and of all there is."""
    spine = [name for names in chapters(sizes).values() for name in names]
    compiler = total(sizes, "compiler").lines
    folders = (BENCHMARKS, "tests", "tools", *(f"notebooks/{folder}" for folder in COURSE))
    every = total(sizes, "compiler", "explain").lines
    every += sum(folder_size(folder).lines for folder in folders)
    return [
        "| part | lines of code |",
        "|---|---|",
        f"| the spine, {len(spine)} files that you read whole | {total_of(spine, sizes):,} |",
        f"| both packages, the spine included | {compiler:,} |",
        f"| with the explorer, the course, benchmarks and tests | {every:,} |",
    ]


def total_of(names: list[str], sizes: dict[str, Size]) -> int:
    return sum(sizes[name].lines for name in names)


def summary_table(sizes: dict[str, Size]) -> list[str]:
    """Sums of each package, of the explorer and of the benchmarks, and the longest and most complex
    functions, beside what they may be."""
    rows = ["| | lines | tokens | typed | longest function | most complex |"]
    rows.append("|---|---|---|---|---|---|")
    for package in PACKAGES:
        of_package = {name: n for name, n in sizes.items() if name.startswith(package)}
        rows += summary_row(package, total(of_package, "compiler"))
    rows += summary_row("**both packages**", total(sizes, "compiler"))
    wanted = [*BUDGET, f"{100 * TYPED:.0f} %", *LIMITS]
    rows.append(f"| *at most; typed: at least* | {' | '.join(map(shown, wanted))} |")
    rows += summary_row("`minidynamo/explain`", total(sizes, "explain"))
    rows.append(f"| *at most* | {EXPLAIN_BUDGET:,} | | | | |")
    rows += summary_row(f"`{BENCHMARKS}`", benchmarks_size())
    rows.append(f"| *at most* | {BENCHMARKS_BUDGET:,} | | | | |")
    return rows


def shown(number: object) -> str:
    return f"{number:,}" if isinstance(number, int) else str(number or "")


def summary_row(title: str, size: Size) -> list[str]:
    """One row of the table; none where there is nothing to count."""
    public = [f.typed for f in size.functions if f.public]
    if not public:
        return []
    share = f"{100 * sum(public) / len(public):.0f} %"
    worst = []
    for key in ("lines", "complexity"):
        found = max(size.functions, key=operator.attrgetter(key))
        worst.append(f"{getattr(found, key)} `{found.where.rpartition(':')[2]}`")
    return [f"| {title} | {size.lines:,} | {size.tokens:,} | {share} | {' | '.join(worst)} |"]


def write_tables(sizes: dict[str, Size]) -> None:
    """The tables of README.md and docs/files.md, between their marks."""
    for path, mark, table in ((README, SIZE_TABLE, size_table), (FILES, TABLE, reading_table)):
        before, _, after = path.read_text().split(mark)
        path.write_text(mark.join([before, "\n" + "\n".join(table(sizes)) + "\n\n", after]))


# --- the rules ------------------------------------------------------------------------------------
def dotted_name(path: Path, root: Path) -> str:
    """minidynamo/graph/x.py -> minidynamo.graph.x; a package's `__init__` is the package."""
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


def over_budget(sizes: dict[str, Size]) -> list[str]:
    """Sums that are larger than they may be."""
    compiler, explain = total(sizes, "compiler"), total(sizes, "explain")
    sums = (
        ("lines of both packages without explain", compiler.lines, BUDGET[0]),
        ("tokens of both packages without explain", compiler.tokens, BUDGET[1]),
        ("lines of explain", explain.lines, EXPLAIN_BUDGET),
        ("lines of the benchmarks", benchmarks_size().lines, BENCHMARKS_BUDGET),
    )
    return [f"{n:,} {what}; {most:,} are allowed" for what, n, most in sums if n > most]


def functions_over_limits(sizes: dict[str, Size]) -> list[str]:
    """What is longer or more complex than it may be."""
    return [
        f"{found.where} has {found.lines} lines and complexity {found.complexity}; "
        f"it may have {LIMITS[0]} and {LIMITS[1]}"
        for size in sizes.values()
        for found in size.functions
        if found.lines > LIMITS[0] or found.complexity > LIMITS[1]
    ]


def functions_without_types(sizes: dict[str, Size]) -> list[str]:
    """A sentence, if fewer public functions say what they take and give than should."""
    public = [f for size in sizes.values() for f in size.functions if f.public]
    untyped = [found.where for found in public if not found.typed]
    if len(untyped) <= (1 - TYPED) * len(public):
        return []
    return [f"{len(untyped)} of {len(public)} public functions are untyped: {untyped[:5]}"]


def broken_rules() -> list[str]:
    """A sentence for each."""
    sizes = measure()
    return over_budget(sizes) + functions_over_limits(sizes) + functions_without_types(sizes)


def total(sizes: dict[str, Size], *parts: str) -> Size:
    return sum((size for name, size in sizes.items() if part_of(name) in parts), Size())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--functions", action="store_true")
    parser.add_argument("--write", action="store_true", help="write the tables of the pages anew")
    parser.add_argument("--check", action="store_true", help="only what breaks the rules")
    options = parser.parse_args()
    sizes = measure()
    if options.check:
        problems = broken_rules()
        print("\n".join(problems) or "no rule is broken")
        sys.exit(bool(problems))
    for name, size in sizes.items():
        print(f"{size.lines:6} lines {size.tokens:7} tokens  {part_of(name):8}  {name}")
    print("", *summary_table(sizes), sep="\n")
    if options.write:
        write_tables(sizes)
    if options.functions:
        every = total(sizes, "compiler").functions
        for key in ("lines", "complexity"):
            print(f"\nmost {key}:")
            for found in sorted(every, key=lambda f: -getattr(f, key))[:60]:
                print(f"{getattr(found, key):6}  {found.where}")


if __name__ == "__main__":
    main()
