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
"""

import importlib
import pkgutil
from dataclasses import dataclass

CHECKS = {}


class ExerciseFailed(AssertionError):
    """At least one row says FAIL (or, for an empty answer, that there is nothing to check yet)."""


@dataclass
class Row:
    label: str
    passed: bool
    detail: str = ""

    def __str__(self):
        return f"  {'PASS' if self.passed else 'FAIL'}  {self.label}" + (
            f": {self.detail}" if self.detail else ""
        )


def exercise(name, title):
    """Register a check: a generator function of the student's answer that yields `row(...)`s."""

    def register(function):
        CHECKS[name] = (title, function)
        return function

    return register


def row(label, compute, expected=True, same=None):
    """One row: PASS if `compute()` gives `expected` (compared by `same`, by default ==)."""
    try:
        got = compute()
        passed = bool((same or (lambda a, b: a == b))(got, expected))
    except NotImplementedError as error:
        return Row(label, False, str(error) or "not written yet")
    except (
        Exception
    ) as error:  # the student's code may fail in any way: say how, and go on with the other rows
        return Row(
            label,
            False,
            f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}",
        )
    return Row(label, passed, "" if passed else f"expected {short(expected)}, got {short(got)}")


def close(a, b):
    """For `row(..., same=close)`: two tensors (or tuples of them) with the same numbers."""
    import torch

    torch.testing.assert_close(a, b)
    return True


def short(value, limit=120):
    text = " ".join(repr(value).split())
    return text if len(text) <= limit else text[: limit - 3] + "..."


def load():
    for module in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{module.name}")


def check(name, answer):
    """Print the table of exercise `name` for `answer`; ExerciseFailed unless every row passes."""
    load()
    if name not in CHECKS:
        raise KeyError(f"there is no exercise {name!r}; there are {', '.join(sorted(CHECKS))}")
    title, function = CHECKS[name]
    rows = []
    try:
        rows += function(answer)
    except Exception as error:
        rows.append(
            Row("the check itself could not go on", False, f"{type(error).__name__}: {error}")
        )
    print(f"{name}  {title}")
    print("\n".join(map(str, rows)))
    if not all(r.passed for r in rows):
        raise ExerciseFailed(f"{sum(not r.passed for r in rows)} of {len(rows)} rows failed")
