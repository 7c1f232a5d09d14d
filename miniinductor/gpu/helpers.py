r"""Functions that a kernel carries when it uses them, and the kernel as a complete file.

    >>> with_imports("@triton.jit\ndef NAME(in0):\n    ...").splitlines()[:2]
    ['import triton', 'import triton.language as tl']

Names that occur in a text are carried, and those that occur in their texts.
"""

import re

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
    "reciprocal": """
def reciprocal(x):                      # the bits of tl.div_rn(1, x) for all 2**32 floats, in fewer instructions
    return tl.inline_asm_elementwise("rcp.rn.f32 $0, $1;", "=r,r", [x], tl.float32, True, 1)""",
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
    return tl.where((top == low) & (tl.abs(top) == float("inf")), top, top + libdevice.log1p(libdevice.exp(low - top)))""",
    "integer_floordiv": """
def integer_floordiv(a, b):             # `//` and `%` of integers truncate in Triton
    quotient = a // b
    return tl.where((a % b != 0) & ((a < 0) != (b < 0)), quotient - 1, quotient)""",
    "integer_remainder": """
def integer_remainder(a, b):
    rest = a % b
    return tl.where((rest != 0) & ((rest < 0) != (b < 0)), rest + b, rest)""",
    "integer_maximum": """
def integer_maximum(a, b):
    return tl.maximum(a, b)""",
    "integer_minimum": """
def integer_minimum(a, b):
    return tl.minimum(a, b)""",
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
    small = tl.where(base == 1, result, tl.where(minus_one, tl.where(exponent % 2 == 0, result, -result), result * 0))
    for _ in tl.static_range(6):
        result = tl.where((exponent & 1) != 0, result * base, result)
        base = base * base
        exponent = exponent >> 1
    return tl.where(negative, small, result)""",
}


def with_wide_indices(source: str) -> str:
    """The kernel with indices of 64 bits."""
    return re.sub(r"tl\.(program_id\(\d\)|arange\(0, \w+\))(?!\.to)", r"tl.\1.to(tl.int64)", source)


def with_imports(text: str) -> str:
    """The kernel as a complete file: imports, and the helper functions it uses."""
    needed: dict[str, str] = {}
    frontier = [text]
    while frontier:
        words = {word for part in frontier for word in re.findall(r"[a-z_]\w*", part)}
        found = {name: HELPERS[name] for name in HELPERS if name in words and name not in needed}
        frontier = list(found.values())
        needed |= found
    helpers = "".join(f"@triton.jit{body}\n\n\n" for body in needed.values())
    imports = ["import triton", "import triton.language as tl"]
    if "libdevice." in text + helpers:
        imports.append("from triton.language.extra import libdevice")
    return "\n".join(imports) + f"\n\n\n{helpers}{text}"
