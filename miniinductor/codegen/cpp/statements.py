"""A kernel's code as a tree: lines, loops, branches and blocks; and its printer.

In:   statements.  Out: text.

    >>> loops = [("x0", 0, 64), ("r0", 0, 96)]
    >>> [loop] = nest([Line("out0[r0] = tmp0;")], loops, Pragma("parallel for"))
    >>> print("\\n".join(printed([loop])))
    #pragma omp parallel for schedule(static)
    for (int64_t x0 = 0; x0 < 64; x0++) {
        for (int64_t r0 = 0; r0 < 96; r0++) {
            out0[r0] = tmp0;
        }
    }

Whoever wraps code asks the tree whether it has a check or a branch (`sets_error`, `has_branch`),
never the text.  PyTorch: writes text through an IndentedBuffer, and decides before.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from ...ir.loops import playing
from ...records import Marked, indent
from ..kernels import marked

Bound: TypeAlias = int | str  # where a loop begins or ends: a number, or text


@dataclass(frozen=True)
class Line:
    text: str
    sets_error: bool = False  # what its check finds is put into `error`
    # the instruction that it computes, if none is said the one that is being played; a list of
    # them; or a text, which says what else the line is for
    origin: Any = field(default_factory=lambda: playing.value, compare=False, repr=False)


class BeforeLanes(Line):
    """A line in the body of a loop over lanes; the kernel has it before that loop.  The text has
    two places, {}: for the number of lanes, and for how many of them this loop runs."""


@dataclass(frozen=True)
class Pragma:
    """What runs the iterations of a loop: threads, vector lanes, or both."""

    threads: str = ""  # "parallel for": new ones; "for": those of the region around it
    simd: bool = False
    collapse: int = 1  # loops whose iterations are shared
    condition: str = ""  # below it, starting threads is not worth it

    def text(self, sets_error: bool) -> str:
        words = ["#pragma omp"]
        words += [self.threads] if self.threads else []
        words += [f"collapse({self.collapse})"] if self.collapse > 1 else []
        words += ["simd"] if self.simd else []
        words += ["nowait"] if self.threads == "for" else []
        words += ["schedule(static)"] if self.threads else []
        if self.condition:
            words.append(f"if ({'parallel: ' if self.simd else ''}{self.condition})")
        words += ["reduction(|:error)"] if sets_error else []
        return " ".join(words)


@dataclass
class Loop:
    """for (int64_t variable = start; variable < end; variable += step)"""

    variable: str
    start: Bound
    end: Bound
    body: "Statements"
    step: Bound = 1
    pragma: Pragma = Pragma()

    @property
    def head(self) -> str:
        advance = "++" if self.step == 1 else f" += {self.step}"
        name = self.variable
        return f"for (int64_t {name} = {self.start}; {name} < {self.end}; {name}{advance}) "


@dataclass
class Branch:
    condition: str
    body: "Statements"

    @property
    def head(self) -> str:
        return f"if ({self.condition}) "


@dataclass
class Block:
    """{ ... }: what is declared in it ends with it."""

    body: "Statements"
    head: str = field(default="", init=False)


Statement: TypeAlias = Line | Loop | Branch | Block
Statements: TypeAlias = Sequence[Statement]


# --- making ---------------------------------------------------------------------------------------
def nest(body: Statements, loops: Sequence[tuple], pragma: Pragma = Pragma()) -> list[Statement]:
    """`body` in loops of (variable, start, end) or (variable, start, end, step).  The first is the
    outermost loop, and the one that gets the pragma."""
    result = list(body)
    for number in reversed(range(len(loops))):
        variable, start, end, *step = loops[number]
        loop = Loop(variable, start, end, result, step[0] if step else 1)
        loop.pragma = Pragma() if number else pragma
        result = [loop]
    return result


# --- asking ---------------------------------------------------------------------------------------
def walk(statements: Statements) -> Iterator[Statement]:
    for statement in statements:
        yield statement
        if not isinstance(statement, Line):
            yield from walk(statement.body)


def sets_error(statements: Statements) -> bool:
    return any(isinstance(s, Line) and s.sets_error for s in walk(statements))


def has_branch(statements: Statements) -> bool:
    return any(isinstance(s, Branch) for s in walk(statements))


# --- printing -------------------------------------------------------------------------------------
def printed(statements: Statements) -> list[str]:
    result: list[str] = []
    for statement in statements:
        if isinstance(statement, Line):
            if not isinstance(statement, BeforeLanes):
                result.append(marked(statement.text, statement.origin))
            continue
        if isinstance(statement, Loop) and statement.pragma != Pragma():
            result.append(around(statement.pragma.text(sets_error(statement.body))))
        opening = around(f"{statement.head}{{")
        result += [opening, *indent(printed(statement.body)), around("}")]
    return result


def around(text: str) -> Marked:
    """A line that computes nothing itself: loops and blocks around others."""
    return Marked.of(text, reason="loops and blocks around what is computed")
