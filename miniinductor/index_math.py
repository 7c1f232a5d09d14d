"""Integer index maths: floor division and remainder as sympy functions, and a simplifier that knows the loops' sizes.

In:   sympy expressions over loop variables.  Out: equal, simpler expressions.

    >>> i, j = sympy.symbols("i j", integer=True, nonnegative=True)
    >>> simplify(FloorDiv(8*i + j, 8), {i: 4, j: 8})
    i
    >>> simplify(8*FloorDiv(i, 8) + Mod(i, 8), {i: 64})
    i
    >>> reshape_index([2, 12], [24])([i])          # where element i of the reshaped tensor lies in the old one
    [FloorDiv(i, 12), Mod(i, 12)]

Both functions round towards minus infinity, as Python does.  Rules hold for all integers unless they ask for bounds.

Mirrors torch/utils/_sympy/functions.py (FloorDiv, ModularIndexing) and torch/_inductor/sizevars.py.  Left out:
ModularIndexing as one node (it is `Mod(FloorDiv(x, a), b)` here), and proofs about unbacked sizes.
"""
import functools
import math

import sympy


class FloorDiv(sympy.Function):
    """floor(a / b)."""
    nargs = (2,)
    is_integer = True

    @classmethod
    def eval(cls, a, b):
        if b == 1 or a == 0:
            return a
        if a.is_Integer and b.is_Integer and b != 0:
            return sympy.Integer(int(a) // int(b))
        if isinstance(a, FloorDiv) and b.is_positive and a.args[1].is_positive:
            return FloorDiv(a.args[0], a.args[1] * b)
        if a == b:
            return sympy.Integer(1)

    def _eval_is_nonnegative(self):
        a, b = self.args
        return True if a.is_nonnegative and b.is_positive else None

    def _sympystr(self, printer):
        return f"({printer.doprint(self.args[0])})//({printer.doprint(self.args[1])})"


class Mod(sympy.Function):
    """a - b*floor(a / b)."""
    nargs = (2,)
    is_integer = True

    @classmethod
    def eval(cls, a, b):
        if b == 1 or a == 0 or a == b:
            return sympy.Integer(0)
        if a.is_Integer and b.is_Integer and b != 0:
            return sympy.Integer(int(a) % int(b))
        if isinstance(a, Mod) and (a.args[1] / b).is_Integer:
            return Mod(a.args[0], b)

    def _eval_is_nonnegative(self):
        return True if self.args[1].is_positive else None

    def _sympystr(self, printer):
        return f"({printer.doprint(self.args[0])})%({printer.doprint(self.args[1])})"


# --- bounds ---------------------------------------------------------------------------------------------------------
def bounds(expr, ranges):
    """(lowest, highest) value of `expr` when each loop variable v runs over 0 .. ranges[v]-1; None where unknown."""
    if expr.is_Integer:
        return int(expr), int(expr)
    if expr in ranges:
        size = ranges[expr]
        return 0, (int(size) - 1 if _is_int(size) else None)
    if expr.is_Add:
        parts = [bounds(a, ranges) for a in expr.args]
        return _sum([p[0] for p in parts]), _sum([p[1] for p in parts])
    if expr.is_Mul:
        coefficient, rest = expr.as_coeff_Mul()
        if coefficient != 1 and coefficient.is_Integer:
            low, high = bounds(rest, ranges)
            scaled = [None if b is None else b * int(coefficient) for b in (low, high)]
            return tuple(scaled) if coefficient > 0 else tuple(reversed(scaled))
    if isinstance(expr, FloorDiv) and expr.args[1].is_Integer and expr.args[1] > 0:
        return tuple(None if b is None else b // int(expr.args[1]) for b in bounds(expr.args[0], ranges))
    if isinstance(expr, Mod) and expr.args[1].is_Integer and expr.args[1] > 0:
        low, high = bounds(expr.args[0], ranges)
        size = int(expr.args[1])
        return 0, (high if high is not None and low is not None and low >= 0 and high < size else size - 1)
    return (0 if expr.is_nonnegative else None), None


def _sum(values):
    return None if any(v is None for v in values) else sum(values)


def _is_int(value):
    return isinstance(value, int) or getattr(value, "is_Integer", False)


# --- the simplifier -------------------------------------------------------------------------------------------------
def simplify(expr, ranges):
    """An expression equal to `expr` for all loop variables in `ranges` (symbol -> size), with fewer divisions."""
    expr = sympy.sympify(expr)
    if not expr.has(FloorDiv, Mod):
        return sympy.expand(expr)
    return _simplify(expr, tuple(sorted(ranges.items(), key=lambda item: item[0].name)))


@functools.lru_cache(20_000)
def _simplify(expr, items):
    ranges = dict(items)

    def visit(e):
        if not e.args or not e.has(FloorDiv, Mod):
            return e
        e = e.func(*[visit(a) for a in e.args])
        if isinstance(e, (FloorDiv, Mod)):
            return _divide(*e.args, ranges, isinstance(e, FloorDiv))
        return e
    return _join_quotient_and_remainder(sympy.expand(visit(expr)))


def _divide(a, b, ranges, floor):
    """FloorDiv(a, b) or Mod(a, b): multiples of b are taken out of a; a rest that lies in [0, b) goes."""
    a = sympy.expand(a)
    whole, rest = sympy.Integer(0), sympy.Integer(0)
    for term in sympy.Add.make_args(a):
        quotient = term / b
        if quotient.as_coeff_Mul()[0].is_Integer and sympy.denom(quotient) == 1:
            whole += quotient
        else:
            rest += term
    low, high = bounds(rest, ranges)
    if low is not None and low >= 0:
        if (b.is_Integer and high is not None and high < b) or rest == 0 or ranges.get(rest) == b:
            return whole if floor else rest
    if b.is_Integer and not rest.is_Integer:     # a common factor of every term and of b; a smaller constant goes
        constant, variable = rest.as_coeff_Add()
        coefficients = [t.as_coeff_Mul()[0] for t in sympy.Add.make_args(variable)]
        if all(c.is_Integer for c in coefficients) and constant.is_Integer:
            factor = math.gcd(int(b), *map(int, coefficients))
            if factor > 1:
                left_over = int(constant) % factor
                inner = sympy.expand((variable + constant - left_over) / factor)
                divided = _divide(inner, b / factor, ranges, floor)
                return whole + divided if floor else factor * divided + left_over
    return whole + FloorDiv(rest, b) if floor else Mod(rest, b)


def _join_quotient_and_remainder(expr):
    """c*b*FloorDiv(a, b) + c*Mod(a, b)  ->  c*a."""
    if not expr.is_Add or not expr.has(Mod):
        return expr
    terms = list(expr.args)
    for term in terms:
        coefficient, factor = _split_factor(term)
        if factor is None:
            continue
        a, b = factor.args
        partner = coefficient * b * FloorDiv(a, b)
        if partner in terms:
            return _join_quotient_and_remainder(sympy.expand(expr - term - partner + coefficient * a))
    return expr


def _split_factor(term):
    """term == coefficient * Mod(...)."""
    for factor in sympy.Mul.make_args(term):
        if isinstance(factor, Mod):
            return term / factor, factor
    return None, None


# --- reshaping ------------------------------------------------------------------------------------------------------
def reshape_index(old, new):
    """A function from an index into `new` sizes to the index into `old` sizes of the same element.

    Neighbouring sizes are matched into groups of equal product, so that [2, 128, 768] -> [2, 128, 12, 64] divides
    nothing: only the last group is touched, and there 768 = 12*64 is a sum.
    """
    groups = reshape_groups(list(old), list(new))

    def reindex(index):
        result = [sympy.Integer(0)] * len(old)
        for old_dims, new_dims in groups:
            linear = sympy.Integer(0)
            for d in new_dims:
                if new[d] != 1:
                    linear = linear * new[d] + index[d]
            rest = [d for d in old_dims if old[d] != 1]
            ranges = {index[d]: new[d] for d in new_dims if isinstance(index[d], sympy.Symbol)}
            for position, d in enumerate(reversed(rest)):
                if position == len(rest) - 1:
                    result[d] = linear
                else:
                    linear = sympy.sympify(linear)
                    result[d] = simplify(Mod(linear, old[d]), ranges)
                    linear = simplify(FloorDiv(linear, old[d]), ranges)
        return result
    return reindex


def reshape_groups(old, new):
    """[(old dims, new dims)] with equal products, as fine as possible."""
    groups, i, j = [], 0, 0
    while i < len(old) or j < len(new):
        left, right = [], []
        product_left = product_right = 1
        if i < len(old):
            left.append(i)
            product_left = old[i]
            i += 1
        if j < len(new):
            right.append(j)
            product_right = new[j]
            j += 1
        while product_left != product_right:
            if not (_is_int(product_left) and _is_int(product_right)) or 0 in (product_left, product_right):
                left += range(i, len(old))          # symbolic (or empty): one group for the rest
                right += range(j, len(new))
                i, j = len(old), len(new)
                break
            if product_left < product_right and i < len(old):
                left.append(i)
                product_left = product_left * old[i]
                i += 1
            elif product_left > product_right and j < len(new):
                right.append(j)
                product_right = product_right * new[j]
                j += 1
            else:       # what is left over on one side is of size 1
                left += range(i, len(old))
                right += range(j, len(new))
                i, j = len(old), len(new)
                break
        groups.append((left, right))
    return groups
