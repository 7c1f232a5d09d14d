"""`%%minicompile`: a notebook cell whose last line calls a function; the call is explained.

    %load_ext minidynamo.explain

    %%minicompile --dynamic
    def f(x):
        return torch.relu(x).sum()

    f(torch.randn(8))

In:   the cell.   Out: the `Explanation` of its last call, which the notebook shows; the cell's
      names are there afterwards, as after any cell.  What cannot be explained is said in one line
      (IPython's UsageError); an error of the cell's own is shown as that of any cell.
"""

import argparse
import ast
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .explanation import Explanation

Explain = Callable[..., Callable[..., "Explanation"]]  # minidynamo.explain

OPTIONS = "it has --backend NAME, --dynamic and --fullgraph"
ADVICE = "%%minicompile explains the last line of its cell, which must be a call, such as `f(x)`"


def options_of(line: str) -> dict[str, Any]:
    """The options of `minidynamo.compile` that stand behind the magic's name.  Raises UsageError
    for others."""
    from IPython.core.error import UsageError

    parser = argparse.ArgumentParser(prog="%%minicompile", exit_on_error=False, add_help=False)
    parser.add_argument("--backend", default="inductor")
    parser.add_argument("--dynamic", action="store_true", default=None)
    parser.add_argument("--fullgraph", action="store_true")
    try:
        found, rest = parser.parse_known_args(line.split())
    except argparse.ArgumentError as error:
        raise UsageError(f"%%minicompile: {error}") from None
    if rest:
        raise UsageError(f"%%minicompile has no option {rest[0]}: {OPTIONS}")
    return vars(found)


def split(cell: str) -> tuple[str, ast.Call]:
    """The cell without its last statement, and the call that this is.  Raises SyntaxError, and
    UsageError where it is no call."""
    from IPython.core.error import UsageError

    statements = ast.parse(cell).body
    last = statements[-1] if statements else None
    if not isinstance(last, ast.Expr) or not isinstance(last.value, ast.Call):
        raise UsageError(ADVICE)
    lines = cell.splitlines()
    before = [*lines[: last.lineno - 1], lines[last.lineno - 1][: last.col_offset]]
    return "\n".join(before), last.value


def minicompile(explain: Explain, shell: Any, line: str, cell: str) -> "Explanation | None":
    """Run the cell; its last call compiled and explained.  None if what stands before it raised."""
    options = options_of(line)
    try:
        before, call = split(cell)
    except SyntaxError:
        before = cell  # the notebook shows where the error is
    ran = shell.run_cell(before)
    if not ran.success:
        return None  # the notebook has shown the traceback
    explained = ast.Call(ast.Name("explained", ast.Load()), [call.func], [])
    whole = ast.Call(explained, call.args, call.keywords)
    tree = ast.fix_missing_locations(ast.Expression(whole))
    names = shell.user_ns | {"explained": lambda function: explain(function, **options)}
    return eval(compile(tree, "<minicompile>", "eval"), names)


def register(explain: Explain, shell: Any) -> None:
    """What `%load_ext minidynamo.explain` does."""

    def magic(line: str, cell: str) -> "Explanation | None":
        return minicompile(explain, shell, line, cell)

    shell.register_magic_function(magic, "cell", "minicompile")
