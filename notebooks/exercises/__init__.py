"""Exercises that check themselves.

In:   the name of an exercise and the student's answer.  Out: a table of PASS and FAIL rows;
      ExerciseFailed if any row failed.

    >>> from exercises import check
    >>> check("02.1", my_function)
    02.1  count the operations
      PASS  a graph of three operations
      FAIL  a graph without operations: expected 0, got None

One registry serves the notebooks, `make test` (every exercise fails when empty and passes with its
solution) and nbgrader.  A check is a generator, one file per chapter (`chapter_02.py`); each
`yield` is one row:

    @exercise("02.1", "count the operations")
    def _(answer):
        yield row("a graph of three operations", lambda: answer(graph), 3)

The first of a chapter is its warm-up, the second its core, the others stretch; one that does not
fit in this order says so: `@exercise("02.4", "...", level="core")`.

No row says PASS for an answer that is empty or that always returns the same: what is true of those,
too ("no graph break", "the argument is not written to") stands in a row with `after=True`, which
counts once the rows above it passed.  An answer that runs inside the compiler is `Watched`, since
the compiler goes on in eager mode where something in it fails.
"""

import importlib
import pkgutil
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

CHECKS = {}
SAID: dict[str, str] = {}  # the levels that exercises state
LEVELS = ("warm-up", "core", "stretch")
POINTS = {"warm-up": 2, "core": 4, "stretch": 6}  # of an exercise, for nbgrader
EMPTY = "your turn"  # what a part that is not written raises
# lines of a long message that say where to look: g++'s first error, which numbers differ
TELLING = re.compile(r"error:|[Gg]reatest absolute difference|Mismatched elements")


class ExerciseFailed(AssertionError):
    """At least one row says FAIL or NOT WRITTEN."""

    def _render_traceback_(self) -> list[str]:
        """What Jupyter shows of it: the rows above say what failed, a traceback says nothing."""
        return [str(self)]


@dataclass
class Row:
    label: str
    passed: bool
    detail: str = ""
    after: bool = False  # counts only if the rows above passed
    missing: list[str] = field(default_factory=list)  # the student's parts that are not written
    curious: bool = False  # a row of the own compiler that only the curious need

    def __str__(self):
        if self.missing:
            named = self.missing if len(self.missing) < 4 else self.missing[:2]
            more = f" and {len(self.missing) - 2} more" if named is not self.missing else ""
            return f"  NOT WRITTEN  {self.label}: {', '.join(named)}{more}"
        return f"  {'PASS' if self.passed else 'FAIL'}  {self.label}" + (
            f": {self.detail}" if self.detail else ""
        )


def exercise(name, title, level=None):
    """Register a check: a generator function of the student's answer that yields `row(...)`s.
    level: of LEVELS, where the number does not say it."""

    def register(function):
        if level:
            SAID[name] = level
        CHECKS[name] = (title, function)
        return function

    return register


def row(label, compute, expected=True, same=None, after=False, secret=False):
    """One row: PASS if `compute()` gives `expected` (compared by `same`, else by
    `alike`).  after: it counts only if the rows above passed.  secret: what was expected is not
    said."""
    try:
        got = compute()
        passed = bool((same or alike)(got, expected))
    except NotImplementedError as error:
        if EMPTY in str(error):
            return Row(label, False, after=after, missing=[str(error)])
        return Row(label, False, explained(error), after)
    except Exception as error:  # the student's code may fail in any way: the other rows go on
        return Row(label, False, explained(error), after)
    told = "" if secret else f"expected {short(expected)}, "
    return Row(label, passed, "" if passed else f"{told}got {short(got)}", after)


def alike(a, b):
    """Equal; a list where a tuple was meant, or the other way round, is no mistake of a student."""
    if isinstance(a, list | tuple) and isinstance(b, list | tuple):
        return len(a) == len(b) and all(map(alike, a, b))
    return a == b


def explained(error: BaseException) -> str:
    """What a student needs of an error: its first line, the lines of it that say where, and the
    error that caused it."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    found = [f"{type(error).__name__}: {lines[0] if lines else ''}"]
    found += [line for line in lines[1:] if TELLING.search(line)][:2]
    if error.__cause__ is not None:
        found.append("because of " + explained(error.__cause__))
    return "\n        ".join(found)


class Watched:
    """An answer that the compiler calls: an error in it is kept, since the compiler would go on in
    eager mode and the numbers would be right."""

    def __init__(self, answer: Callable) -> None:
        self.answer, self.calls, self.error = answer, 0, None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self.calls += 1
        try:
            result = self.answer(*args, **kwargs)
        except Exception as error:
            self.error = self.error or error
            raise
        if result is None:
            self.error = self.error or TypeError("your function returned None")
        return result

    def around(self, compute: Callable) -> Any:
        """compute(), if the answer was called in it and went well."""
        self.calls, self.error = 0, None
        try:
            result = compute()
        except Exception:
            if self.error is not None:
                raise self.error from None
            raise
        if self.error is not None:
            raise self.error
        if not self.calls:
            raise AssertionError("your function was never called")
        return result


def record_of(explanation: Any) -> Any:
    """What the compiler noted.  Raises where it failed and the program ran eagerly: a row would
    say that None has no kernels, and the reason would stand in a warning only."""
    main = explanation.main
    if main.compiled is None:
        reason = (main.record.error or "").strip().splitlines()[-1:]
        raise AssertionError("\n".join(["the compiler failed", *(f"error: {r}" for r in reason)]))
    return main.compiled


def close(a, b):
    """For `row(..., same=close)`: two tensors (or tuples of them) with the same numbers."""
    import torch

    torch.testing.assert_close(a, b)
    return True


def short(value, limit=120):
    text = " ".join(repr(value).split())
    return text if len(text) <= limit else text[: limit - 3] + "..."


def level(name: str) -> str:
    """warm-up, core or stretch: what the check says, or by the order in the chapter."""
    load()
    return SAID.get(name) or LEVELS[min(int(name[3:]), len(LEVELS)) - 1]


def grade(name: str, answer: Any, more: Callable | None = None) -> float:
    """For nbgrader: the table, and the points for the rows that pass.  more: hidden rows, which
    count as the others do.  Nothing is raised; nbgrader takes the number as partial credit."""
    load()
    title, function = CHECKS[name]
    rows = rows_of(function, answer)
    if more is not None:
        rows += rows_of(more, answer)
    print(f"{name}  {title}")
    print("\n".join(map(str, rows)))
    return points(name, rows)


def points(name: str, rows: list[Row]) -> float:
    """What the rows of an exercise are worth: the points of its level, in the share that pass."""
    return round(POINTS[level(name)] * sum(r.passed for r in rows) / len(rows), 2)


def state(rows: list[Row]) -> str:
    """PASS if every row passes, FAIL if one that is written does not, else NOT WRITTEN."""
    lacking = [r for r in rows if r.missing or not r.passed]
    if not lacking:
        return "PASS"
    is_unwritten = any(r.missing for r in lacking) and all(r.missing or r.after for r in lacking)
    return "NOT WRITTEN" if is_unwritten else "FAIL"


def load():
    for module in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{module.name}")


def rows_of(function, answer) -> list[Row]:
    """The rows of a check; one that counts only after others is no PASS before those are, and no
    row fails for an answer of which nothing is written."""
    rows: list[Row] = []
    try:
        for each in function(answer):
            if rows and all(r.missing for r in rows) and (each.after or not each.passed):
                each = Row(each.label, False, after=each.after, missing=rows[0].missing)
            elif each.after and each.passed and not all(r.passed for r in rows):
                each = Row(each.label, False, "this counts when the rows above pass", True)
            rows.append(each)
    except Exception as error:
        rows.append(Row("the check itself could not go on", False, explained(error)))
    return rows


def check(name, answer):
    """Print the table of exercise `name` for `answer`; ExerciseFailed unless every row passes."""
    load()
    if name not in CHECKS:
        raise KeyError(f"there is no exercise {name!r}; there are {', '.join(sorted(CHECKS))}")
    title, function = CHECKS[name]
    rows = rows_of(function, answer)
    print(f"{name}  {title}")
    print("\n".join(map(str, rows)))
    importlib.import_module(f"{__name__}.board").note(name, rows)
    if state(rows) != "PASS":
        raise ExerciseFailed(summary(rows))


def summary(rows: list[Row]) -> str:
    """How many rows do not pass, in one line: "2 of 7 rows fail, 3 are not written"."""
    unwritten = sum(bool(r.missing) for r in rows)
    failed = sum(not r.passed and not r.missing for r in rows)
    if not failed:
        return f"{unwritten} of {len(rows)} rows are not written"
    more = f", {unwritten} are not written" if unwritten else ""
    return f"{failed} of {len(rows)} rows fail{more}"
