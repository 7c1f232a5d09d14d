r"""Functions that a kernel carries when it uses them, and the kernel as a complete file.

    >>> with_imports("@triton.jit\ndef NAME(in0):\n    ...", ["larger"]).splitlines()[4:6]
    ['@triton.jit', 'def larger(a, b):                       # a NaN wins, as in torch']

A line says that it reads the name of a helper, as it does of a value.
"""

from collections.abc import Collection, Iterable

import sympy

from ...sizes.expressions import functions_of
from ...sizes.symbols import Size

# --- quotients ------------------------------------------------------------------------------------
# div.rn and rcp.rn are a few multiplications and, for what is near the ends of float32's range, a
# call.  That branch stands after each element, which then wait for one another.  Here four elements
# share one: what is in range (p) gets the same multiplications, and their bits.
# 0f7E800000 is 2**126: above it, and below 2**-126, the reciprocal is no normal number.
NEWTON = (
    "rcp.approx.ftz.f32 r, {a}; neg.f32 s, {a}; fma.rn.f32 e, s, r, 0f3F800000;",
    "fma.rn.f32 {out}, r, e, r; abs.f32 s, {a};",
    "setp.ge.f32 p{n}, s, 0f00800000; setp.lt.and.f32 p{n}, s, 0f7E800000, p{n};",
)
# 0f0D800000 and 0f71800000 are 2**-100 and 2**100.  Where a is 0 the product q has its sign.
QUOTIENT = (
    "rcp.approx.ftz.f32 r, {b}; neg.f32 s, {b}; fma.rn.f32 e, s, r, 0f3F800000;",
    "fma.rn.f32 r, r, e, r; mul.rn.f32 q, {a}, r; fma.rn.f32 e, s, q, {a};",
    "fma.rn.f32 e, r, e, q; copysign.f32 {out}, q, e; abs.f32 q, q; abs.f32 e, {a};",
    "setp.gt.f32 p{n}, q, 0f0D800000; setp.gt.and.f32 p{n}, e, 0f0D800000, p{n};",
    "setp.eq.or.f32 p{n}, e, 0f00000000, p{n}; setp.lt.and.f32 p{n}, q, 0f71800000, p{n};",
)


def of_four(name: str, operands: int, fast: Iterable[str], slow: str) -> str:
    """The text of a function of tiles, in PTX: `fast` for each of four elements, and where one of
    them is out of its range `slow` for all."""
    names = [
        {"n": n, "out": f"${n}", "a": f"${4 + n}", "b": f"${4 * operands + n}"} for n in range(4)
    ]
    lines = ["{ .reg .f32 r, s, e, q; .reg .pred p<4>;"]
    lines += [line.format_map(one) for one in names for line in fast]
    lines += ["and.pred p0, p0, p1; and.pred p2, p2, p3; and.pred p0, p0, p2; @p0 bra DONE;"]
    lines += [slow.format_map(one) for one in names]
    quoted = "\n".join(f'        "{line} "' for line in [*lines, "DONE: }"])
    registers = ",".join(["=&r"] * 4 + ["r"] * 4 * operands)
    tiles = ", ".join("ab"[:operands])
    return f"""
def {name}({tiles}):  # PTX for four elements
    return tl.inline_asm_elementwise(
{quoted},
        "{registers}", [{tiles}], tl.float32, True, 4)"""


HELPERS = {
    "larger": """
def larger(a, b):                       # a NaN wins, as in torch
    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)""",
    "smaller": """
def smaller(a, b):
    return tl.minimum(a, b, propagate_nan=tl.PropagateNan.ALL)""",
    "multiply": """
def multiply(a, b):
    return a * b""",
    "one_reciprocal": """
def one_reciprocal(x):                  # the bits of tl.div_rn(1, x), in fewer instructions
    return tl.inline_asm_elementwise("rcp.rn.f32 $0, $1;", "=r,r", [x], tl.float32, True, 1)""",
    "reciprocal": """
def reciprocal(x):                      # the same; four numbers share a branch
    if x.numel < 4:
        return one_reciprocal(x)
    else:
        return reciprocals(x)""",
    "reciprocals": of_four("reciprocals", 1, NEWTON, "rcp.rn.f32 {out}, {a};"),
    "divide": """
def divide(a, b):                       # the bits of tl.div_rn(a, b), in fewer instructions
    a, b = tl.broadcast(a, b)
    if a.numel < 4:
        return tl.div_rn(a, b)
    else:
        return quotients(a, b)""",
    "quotients": of_four("quotients", 2, QUOTIENT, "div.rn.f32 {out}, {a}, {b};"),
    "argument_of_larger": """
def argument_of_larger(a, i, b, j):     # the first of equals; a NaN is larger than everything
    a_wins = (a > b) | ((a != a) & (b == b))
    equal = (a == b) | ((a != a) & (b != b))
    first = a_wins | (equal & (i < j))
    return tl.where(first, a, b), tl.where(first, i, j)""",
    "argument_of_smaller": """
def argument_of_smaller(a, i, b, j):
    a_wins = (a < b) | ((a != a) & (b == b))
    equal = (a == b) | ((a != a) & (b != b))
    first = a_wins | (equal & (i < j))
    return tl.where(first, a, b), tl.where(first, i, j)""",
    "log_of_sum": """
def log_of_sum(a, b):                   # of exp(a) + exp(b)
    top, low = larger(a, b), smaller(a, b)
    both_infinite = (top == low) & (tl.abs(top) == float("inf"))
    return tl.where(both_infinite, top, top + libdevice.log1p(libdevice.exp(low - top)))""",
    "as_index": """
def as_index(x):                        # a float that lies between two positions
    return x.to(tl.int32)""",
    "integer_floordiv": """
def integer_floordiv(a, b):             # `//` and `%` of integers truncate in Triton
    quotient = a // b
    return tl.where((a % b != 0) & ((a < 0) != (b < 0)), quotient - 1, quotient)""",
    "integer_remainder": """
def integer_remainder(a, b):
    rest = a % b
    return tl.where((rest != 0) & ((rest < 0) != (b < 0)), rest + b, rest)""",
    "integer_maximum": """
def integer_maximum(a, b):              # Triton sees which elements have the same, as it would
    return tl.where(a > b, a, b)        # not of tl.maximum""",
    "integer_minimum": """
def integer_minimum(a, b):
    return tl.where(a < b, a, b)""",
    "float_remainder": """
def float_remainder(a, b):
    rest = libdevice.fmod(a, b)
    return tl.where((rest != 0) & ((rest < 0) != (b < 0)), rest + b, rest)""",
    "float_floordiv": """
def float_floordiv(a, b):               # torch's: from the remainder, so that it is exact
    rest = libdevice.fmod(a, b)
    quotient = (a - rest) / b
    quotient = tl.where((rest != 0) & ((rest < 0) != (b < 0)), quotient - 1, quotient)
    whole = tl.floor(quotient)
    whole = tl.where(quotient - whole > 0.5, whole + 1, whole)
    whole = tl.where(quotient == 0, libdevice.copysign(quotient * 0, a / b), whole)
    return tl.where(b == 0, a / b, whole)""",
    "integer_pow": """
def integer_pow(base, exponent):
    result = base * 0 + 1
    negative = exponent < 0
    minus_one = base == base * 0 - 1  # Triton 3.9 refuses to compare an unsigned tensor with -1
    of_minus_one = tl.where(exponent % 2 == 0, result, -result)
    small = tl.where(base == 1, result, tl.where(minus_one, of_minus_one, result * 0))
    for _ in tl.static_range(6):
        result = tl.where((exponent & 1) != 0, result * base, result)
        base = base * base
        exponent = exponent >> 1
    return tl.where(negative, small, result)""",
}


LIBDEVICE = "libdevice"  # what a line reads that calls CUDA's functions
NEEDED = {  # what a helper calls
    "reciprocal": ("one_reciprocal", "reciprocals"),
    "divide": ("quotients",),
    "log_of_sum": ("larger", "smaller", LIBDEVICE),
    "float_remainder": (LIBDEVICE,),
    "float_floordiv": (LIBDEVICE,),
}


def helpers_of(*indices: Size) -> frozenset[str]:
    """The helpers that indices, as printing.py writes them, call."""
    called = {name for index in indices for name in functions_of(sympy.sympify(index))}
    return frozenset(f"integer_{name}" for name in called if f"integer_{name}" in HELPERS)


def with_wide_indices(source: str, blocks: Iterable[str]) -> str:
    """The kernel with indices of 64 bits.  blocks: the names of its block sizes."""
    source = source.replace("return x.to(tl.int32)", "return x.to(tl.int64)")  # as_index
    indices = [f"tl.arange(0, {block})" for block in blocks]
    for index in ["tl.program_id(0)", "tl.program_id(1)", *indices]:
        source = source.replace(index, f"{index}.to(tl.int64)")
    return source


def with_imports(text: str, reads: Collection[str]) -> str:
    """The kernel as a complete file: imports, and the helpers among the names that it reads."""
    used = [name for name in HELPERS if name in reads]
    used += [name for helper in used for name in NEEDED.get(helper, ()) if name not in used]
    kept = [name for name in used if name in HELPERS]
    helpers = "".join(f"@triton.jit{HELPERS[name]}\n\n\n" for name in kept)
    imports = ["import triton", "import triton.language as tl"]
    if LIBDEVICE in {*reads, *used}:
        imports.append("from triton.language.extra import libdevice")
    return "\n".join(imports) + f"\n\n\n{helpers}{text}"
