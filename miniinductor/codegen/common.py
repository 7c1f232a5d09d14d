"""What all code generators share: values with a dtype, temporaries named once, index expressions, kernels as text.

In:   op calls of a loop body.  Out: text.

    >>> scope = Scope()
    >>> scope.temporary("in0[x0] * 2", "float", prefix="tmp")      # appends "const float tmp0 = in0[x0] * 2;"
    'tmp0'
    >>> scope.temporary("in0[x0] * 2", "float", prefix="tmp")      # common subexpression: nothing appended
    'tmp0'
    >>> x0, x1 = sympy.symbols("x0 x1", integer=True, nonnegative=True)
    >>> index_text(8*x0 + FloorDiv(x1, 3))
    'x1/3 + 8*x0'

Mirrors torch/_inductor/codegen/common.py (CSE, ExprPrinter).
"""

import functools
import re
from dataclasses import dataclass
from typing import NamedTuple

import sympy
import torch

from ..index_math import FloorDiv, Mod


@dataclass(frozen=True)
class Value:
    """A computed scalar: `text` is a name or literal in the generated code.

    inner: what it varies with.  C++: does it change in the inner loop?  Triton: a frozenset of the tile's axes."""

    text: str
    dtype: torch.dtype
    inner: object = False

    def __str__(self):
        return self.text


class Scope:
    """Lines of one nesting level, and the expressions already computed there (or in a level around it)."""

    def __init__(self, parent=None):
        self.parent, self.lines, self.known = parent, [], {}
        self.counter = parent.counter if parent else {}

    def fresh(self, prefix):
        number = self.counter[prefix] = self.counter.get(prefix, -1) + 1
        return f"{prefix}{number}"

    def lookup(self, expression):
        scope = self
        while scope is not None:
            if expression in scope.known:
                return scope.known[expression]
            scope = scope.parent
        return None

    def temporary(self, expression, c_type, prefix="tmp"):
        """c_type: a C type, or None in Python."""
        name = self.lookup((expression, c_type))
        if name is None:
            name = self.fresh(prefix)
            self.lines.append(
                f"const {c_type} {name} = {expression};" if c_type else f"{name} = {expression}"
            )
            self.known[expression, c_type] = name
        return name

    def add(self, line):
        self.lines.append(line)


@dataclass
class Kernel:
    """`source` has NAME where the function's name goes.  `arguments`: buffer names and size symbols, in order."""

    source: str
    arguments: list
    stored: list  # names of the group whose values it writes to memory
    read: list
    summary: str  # a short word for the kernel's name: "softmax", "add_gelu"
    reruns: bool = False  # C++: it may run a second time, so it must not overwrite what it reads
    launch: object = None  # Triton: how many programs, and which block sizes to try


def summary(nodes, order):
    """ "add_gelu": the last few FX ops of the nodes, each once."""
    words = []
    for name in reversed(in_graph_order({o for n in nodes for o in n.buffer.origins}, order)):
        word = re.sub(
            r"(_(default|tensor_scalar|tensor|scalar|int|dim|self|correction))?(_\d+)?$",
            "",
            name.lower(),
        )
        word = word.strip("_")
        if (
            word.isidentifier()
            and word not in words
            and word not in ("view", "unsqueeze", "permute", "expand")
        ):
            words.insert(0, word)
        if len(words) == 4:
            break
    return "_".join(words)[:40].strip("_") or (
        "reduction" if any(getattr(n, "is_reduction", False) for n in nodes) else "pointwise"
    )


def indent(lines, depth=1):
    return ["    " * depth + line if line else line for line in lines]


SUM, PRODUCT, UNARY, ATOM = 1, 2, 3, 4  # binding strengths


class Dialect(NamedTuple):
    """How a language spells what index expressions need."""

    long_suffix: str
    divide: str  # of non-negative integers
    functions: str  # floordiv and remainder of any integers, maximum, minimum


DIALECTS = {"c": Dialect("LL", "/", "mini::{}<int64_t>"), "triton": Dialect("", "//", "integer_{}")}


# numbers made of sizes in floating point, computed as Python does
ARITHMETIC = {
    "FloatAdd": "({} + {})",
    "FloatSub": "({} - {})",
    "FloatMul": "(({})*({}))",
    "FloatNeg": "(-({}))",
}
FLOATS = {
    "c": ARITHMETIC
    | {
        "TrueDiv": "((double)({})/(double)({}))",
        "ToFloat": "(double)({})",
        "FloatPow": "__builtin_pow({}, {})",
        "Math_sqrt": "__builtin_sqrt({})",
    },
    "triton": ARITHMETIC
    | {
        "TrueDiv": "(tl.cast({}, tl.float64)/tl.cast({}, tl.float64))",
        "ToFloat": "tl.cast({}, tl.float64)",
        "FloatPow": "tl.exp2(tl.log2({})*{})",
        "Math_sqrt": "tl.sqrt({})",
    },
}


def index_text(expr, language="c"):
    """A sympy index expression as text.  All divisions are floor divisions of values known to be non-negative, or go
    through a function, so `/` and `%` are exact."""
    return _print(sympy.sympify(expr), language)[0]


@functools.lru_cache(50_000)
def _print(expr, language):
    dialect = DIALECTS[language]

    def _within(expr, strength):
        text, own = _print(expr, language)
        return text if own >= strength else f"({text})"

    if expr.is_Integer:
        text = str(int(expr)) + (dialect.long_suffix if abs(int(expr)) > 2**31 - 1 else "")
        return text, (ATOM if expr >= 0 else UNARY)
    if expr.is_Symbol:
        return expr.name, ATOM
    if isinstance(expr, sympy.Add):
        terms = sorted(expr.args, key=_term_key)
        text = _within(terms[0], SUM)
        for term in terms[1:]:
            coefficient, rest = term.as_coeff_Mul()
            negative = coefficient.is_negative
            text += (" - " if negative else " + ") + _within(
                -term if negative else term, PRODUCT if negative else SUM
            )
        return text, SUM
    if isinstance(expr, sympy.Mul):
        coefficient, rest = expr.as_coeff_Mul()
        if coefficient == -1:
            return "-" + _within(rest, UNARY), UNARY
        return "*".join(_within(factor, UNARY) for factor in expr.args), PRODUCT
    if isinstance(expr, sympy.Pow) and expr.exp.is_Integer and 0 < expr.exp < 8:
        return "*".join([_within(expr.base, UNARY)] * int(expr.exp)), PRODUCT
    if isinstance(expr, (FloorDiv, Mod)):
        a, b = expr.args
        floor = isinstance(expr, FloorDiv)
        if _non_negative(a) and _non_negative(b):
            return (
                f"{_within(a, PRODUCT)}{dialect.divide if floor else '%'}{_within(b, UNARY)}",
                PRODUCT,
            )
        function = dialect.functions.format("floordiv" if floor else "remainder")
        return f"{function}({_within(a, SUM)}, {_within(b, SUM)})", ATOM
    if isinstance(expr, (sympy.Max, sympy.Min)):
        function = "maximum" if isinstance(expr, sympy.Max) else "minimum"
        text = _within(expr.args[0], SUM)
        for argument in expr.args[1:]:
            text = f"{dialect.functions.format(function)}({text}, {_within(argument, SUM)})"
        return text, ATOM
    if isinstance(expr, sympy.Abs):
        return (
            f"{dialect.functions.format('maximum')}({_within(expr.args[0], SUM)}, {_within(-expr.args[0], SUM)})",
            ATOM,
        )
    if expr.is_Float:
        return repr(float(expr)), ATOM
    if type(expr).__name__ in FLOATS[language]:
        return FLOATS[language][type(expr).__name__].format(
            *[_within(a, SUM) for a in expr.args]
        ), ATOM
    raise NotImplementedError(f"no text for the index expression {expr} ({type(expr).__name__})")


def _term_key(term):
    coefficient, rest = term.as_coeff_Mul()
    return (rest == 1, coefficient.is_negative or False, str(rest))


def _non_negative(expr):
    """True only when sure: no negative coefficient, and only symbols that are loop variables or sizes."""
    if expr.is_Integer:
        return expr >= 0
    if expr.is_Symbol:
        return not expr.name.startswith("indirect") and not expr.name.startswith("tmp")
    return isinstance(
        expr, (sympy.Add, sympy.Mul, sympy.Pow, FloorDiv, Mod, sympy.Max, sympy.Min)
    ) and all(map(_non_negative, expr.args))


# --- comments ---------------------------------------------------------------------------------------------------------
def in_graph_order(origins, order):
    """Names of the FX nodes, in the order of their graph; what is not computed (inputs, parameters) left out."""
    names = {str(o) for o in origins}
    return sorted(names) if order is None else sorted(names & order.keys(), key=order.get)


def origin_text(origins, order, limit=8):
    """ ": add, mul, ... (3 before)", for comments."""
    names = in_graph_order(origins, order)
    more = f"{len(names) - limit} more, ..., " if len(names) > limit else ""
    return f": {more}{', '.join(names[-limit:])}" if names else ""


def strip_comments(source, sign="//"):
    return re.sub(rf"[ \t]*{sign} [^\n]*", "", source)
