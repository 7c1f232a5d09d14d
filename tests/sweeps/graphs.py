"""Random FX graphs, three ways: C++ or Triton kernels against the interpreter of the loop IR
against eager.  `make fuzz-graphs`.

In:   a seed.  Out: a `Program`: a graph of 3 to 12 torch calls over random shapes, strides and
      dtypes, and its inputs.

    # seeds 0..4999; prints every difference with the smallest graph that shows it
    python tests/sweeps/graphs.py --count 5000
    python tests/sweeps/graphs.py --seed 17 --count 1   # one, with its graph and kernels
    # Triton's interpreter, which checks every address
    python tests/sweeps/graphs.py --triton

Several programs become one graph, so that they share one call of the compiler; where the batch
differs, its programs are run alone. Values know whether they are *exact*: made by operations that
IEEE arithmetic determines (inputs, + - * /, minimum, casts, views).  Exact values are compared bit
by bit, and only they are compared, rounded, sorted or indexed with; the others are compared within
a tolerance that grows with the largest number on the way to them.
"""

import argparse
import functools
import os
import random
import subprocess
import sys
import traceback
from dataclasses import dataclass

TESTS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path[:0] = [TESTS, os.path.dirname(TESTS)]

import torch  # noqa: E402
from front_helpers import clone_input, interpret, trace  # noqa: E402
from torch import fx  # noqa: E402

import miniinductor  # noqa: E402
from benchmarks.error_bound import tolerance as tolerance_of
from benchmarks.error_bound import too_far  # noqa: E402
from miniinductor.lowering.decompositions import table  # noqa: E402

FLOATS = [torch.float32] * 5 + [torch.float64, torch.bfloat16, torch.float16]
INTEGERS = [torch.int64, torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8]
SIZES = [0, 1, 1, 2, 2, 3, 4, 5, 7, 8, 16, 17, 24, 33, 40, 64]
MOST_ELEMENTS, LARGEST = 6000, 1e4


@dataclass
class Known:
    """A value of the program: its node, what eager gives, and how far another right result may
    be."""

    node: fx.Node
    value: torch.Tensor
    # 0: exact; else absolute: the bound of the narrowest dtype, times the largest number, among its
    # ancestors
    tolerance: float = 0.0

    @property
    def exact(self):
        return not self.tolerance

    @property
    def kind(self):
        t = self.value.dtype
        return "float" if t.is_floating_point else "bool" if t == torch.bool else "int"


# --- inputs ---------------------------------------------------------------------------------------
def random_shape(rng, rank=None):
    rank = rng.choice([0, 1, 1, 2, 2, 2, 3, 3, 4]) if rank is None else rank
    shape = [rng.choice(SIZES) for _ in range(rank)]
    while rank and _count(shape) > MOST_ELEMENTS:
        shape[rng.randrange(rank)] = rng.choice([1, 2, 3])
    return shape


def _count(shape):
    return functools.reduce(lambda a, b: a * b, shape, 1)


def random_tensor(rng, shape, dtype):
    """Small numbers, sometimes with NaN and infinities, in a random layout."""
    shape = list(shape)
    layout = (
        rng.choice(["plain", "plain", "permuted", "sliced", "expanded", "offset"])
        if shape
        else "plain"
    )
    full, order, expanded = shape, list(range(len(shape))), []
    if layout == "permuted":
        rng.shuffle(order)
        full = [shape[order.index(d)] for d in range(len(shape))]
    elif layout == "sliced":
        full = [2 * n + 1 for n in shape] if _count(shape) < 400 else [n + 2 for n in shape]
    elif layout == "expanded":
        expanded = [d for d in range(len(shape)) if rng.random() < 0.5]
        full = [1 if d in expanded else n for d, n in enumerate(shape)]
    elif layout == "offset":
        full = [shape[0] + 2, *shape[1:]]
    generator = torch.Generator().manual_seed(rng.randrange(1 << 30))
    if dtype == torch.bool:
        x = torch.randint(0, 2, full, generator=generator).bool()
    elif dtype.is_floating_point:
        x = (torch.randn(full, generator=generator) * rng.choice([1, 3])).to(dtype)
        if rng.random() < 0.15 and x.numel():
            flat = x.view(-1)
            for special in (float("nan"), float("inf"), -float("inf"), 0.0, -0.0):
                flat[rng.randrange(flat.numel())] = special
    else:
        x = torch.randint(0 if dtype == torch.uint8 else -9, 10, full, generator=generator).to(
            dtype
        )
    if layout == "permuted":
        return x.permute([order[d] for d in range(len(shape))]) if shape else x
    if layout == "sliced":
        return x[
            tuple(slice(1, 2 * n + 1, 2) if _count(shape) < 400 else slice(1, n + 1) for n in shape)
        ]
    return x.expand(shape) if layout == "expanded" else x[1:-1] if layout == "offset" else x


# --- what a program may do: choose(rng, program) -> (target, args, kwargs, exact) or None ---------
def clone_and_write(x, source):
    """Writes through a view, which functionalization has to undo."""
    y = x.clone()
    y[..., ::2] += source
    return y


def write_rows(x):
    y = x * 1
    y.transpose(0, -1)[0].mul_(2)
    y.add_(1)
    return y


def put(x, position, value):
    y = x.clone()
    y[position] = value
    return y


# a copy by an eager kernel: memory that a kernel may write into, where it reads the copy last
LIBRARY = torch.library.Library("fuzz", "DEF")
LIBRARY.define("fresh(Tensor x) -> Tensor")
LIBRARY.impl("fresh", torch.clone, "CompositeExplicitAutograd")
MOVES = []


def move(weight=1):
    def register(choose):
        MOVES.extend([choose] * weight)
        return choose

    return register


def pick(rng, program, *kinds, exact=False, rank=0, nonempty=False):
    fitting = [
        v
        for v in program.values
        if (not kinds or v.kind in kinds)
        and (v.exact or not exact)
        and v.value.dim() >= rank
        and (v.value.numel() or not nonempty)
    ]
    return rng.choice(fitting[-8:] if rng.random() < 0.7 else fitting) if fitting else None


def partner(rng, program, x, *kinds, exact=False):
    """A value that broadcasts with x, or a new input that does."""

    def fits(v):
        try:
            return _count(torch.broadcast_shapes(v.value.shape, x.value.shape)) <= MOST_ELEMENTS
        except RuntimeError:
            return False

    fitting = [v for v in program.values if v.kind in kinds and (v.exact or not exact) and fits(v)]
    if fitting and rng.random() < 0.7:
        return rng.choice(fitting)
    shape = [1 if rng.random() < 0.25 else n for n in x.value.shape][rng.choice([0, 0, 0, 1]) :]
    dtype = {"float": rng.choice(FLOATS), "int": rng.choice(INTEGERS), "bool": torch.bool}[
        rng.choice(kinds)
    ]
    return program.input(random_tensor(rng, shape, dtype))


@move(4)
def smooth_unary(rng, program):
    x = pick(rng, program, "float")
    choices = [torch.sin, torch.cos, torch.tanh, torch.sigmoid, torch.erf, torch.atan]
    choices += [torch.nn.functional.silu, torch.asinh, torch.nn.functional.softplus]
    if x and bool(
        torch.isfinite(x.value).all()
    ):  # eager has two kernels for gelu, which differ at inf
        choices += [torch.nn.functional.gelu] * 2
    return x and (rng.choice(choices), (x,), {}, False)


@move(2)
def exact_unary(rng, program):
    x = pick(rng, program, "float", "int")
    if x is None:
        return None
    choices = [torch.neg, torch.abs, torch.relu, torch.square]
    choices += [torch.sign, torch.floor, torch.ceil, torch.round, torch.trunc] * x.exact
    if x.value.dtype == torch.uint8:
        choices.remove(torch.neg)
    return rng.choice(choices), (x,), {}, x.exact


@move(6)
def binary(rng, program):
    x = pick(rng, program, "float", "int")
    y = x and partner(rng, program, x, "float", "int")
    if y is None:
        return None
    choices = [torch.add, torch.sub, torch.mul, torch.maximum, torch.minimum]
    if "float" in (x.kind, y.kind) and x.exact and y.exact:
        choices.append(torch.div)
    a, b = (x, y) if rng.random() < 0.5 else (y, x)
    return rng.choice(choices), (a, b), {}, x.exact and y.exact


@move(2)
def with_number(rng, program):
    x = pick(rng, program)
    number = rng.choice([2, -1, 0.5, 3, True, -0.25])
    return (
        rng.choice(
            [torch.add, torch.mul]
            + [torch.eq, torch.lt, torch.clamp_min] * x.exact * (x.kind != "bool")
        ),
        (x, number),
        {},
        x.exact,
    )


@move(2)
def integer_arithmetic(rng, program):
    x = pick(rng, program, "int")
    y = x and partner(rng, program, x, "int")
    if y is None:
        return None
    if rng.random() < 0.5:
        return (
            rng.choice([torch.bitwise_and, torch.bitwise_or, torch.bitwise_xor]),
            (x, y),
            {},
            True,
        )
    return rng.choice([divide_floor, divide_remainder, divide_trunc]), (x, y), {}, True


def _divisor(y):
    return y * y % 7 + 1 if y.dtype != torch.uint8 else y % 7 + 1


def divide_floor(x, y):
    return x // _divisor(y)


def divide_remainder(x, y):
    return x % -_divisor(y) if y.dtype != torch.uint8 else x % _divisor(y)


def divide_trunc(x, y):
    return torch.div(x, _divisor(y), rounding_mode="trunc")


@move(2)
def compare(rng, program):
    x = pick(rng, program, "float", "int", exact=True)
    y = x and partner(rng, program, x, "float", "int", exact=True)
    return y and (rng.choice([torch.lt, torch.ge, torch.eq, torch.ne]), (x, y), {}, True)


@move()
def logic(rng, program):
    x = pick(rng, program, "bool")
    y = x and partner(rng, program, x, "bool")
    return y and (
        rng.choice([torch.logical_and, torch.logical_xor, torch.bitwise_or]),
        (x, y),
        {},
        True,
    )


@move(2)
def choice(rng, program):
    x = pick(rng, program, "float", "int")
    mask = x and partner(rng, program, x, "bool")
    if mask is None:
        return None
    if rng.random() < 0.4 and tuple(
        torch.broadcast_shapes(mask.value.shape, x.value.shape)
    ) == tuple(x.value.shape):
        return torch.masked_fill, (x, mask, 3), {}, x.exact
    y = partner(rng, program, x, "float", "int")
    try:
        torch.broadcast_shapes(x.value.shape, y.value.shape, mask.value.shape)
    except RuntimeError:
        return None
    return torch.where, (mask, x, y), {}, x.exact and y.exact


@move(2)
def cast(rng, program):
    x = pick(rng, program)
    target = rng.choice(FLOATS + INTEGERS + [torch.bool])
    if (
        x.kind == "float"
        and not target.is_floating_point
        and not (
            x.exact
            and bool(torch.isfinite(x.value).all())
            and (not x.value.numel() or float(x.value.double().abs().max()) < 100)
        )
    ):
        return None  # what does not fit is undefined
    if x.value.numel() and target == torch.uint8 and float(x.value.double().min()) < 0:
        return None
    return torch.Tensor.to, (x, target), {}, x.exact


@move(3)
def rearrange(rng, program):
    x = pick(rng, program, rank=1)
    if x is None:
        return None
    rank, shape = x.value.dim(), list(x.value.shape)
    d, e = rng.randrange(rank), rng.randrange(rank)
    order = rng.sample(range(rank), rank)
    n = shape[d]
    start = rng.randrange(n + 1)
    options = [
        (torch.transpose, (x, d, e)),
        (torch.permute, (x, order)),
        (torch.unsqueeze, (x, d)),
        (torch.flip, (x, [d])),
        (torch.reshape, (x, [-1])) if _count(shape) else None,
        (torch.roll, (x, rng.randrange(5), d)),
        (torch.narrow, (x, d, start, n - start)),
        (torch.diagonal, (x, 0, d, e)) if d != e else None,
        (torch.Tensor.repeat, (x, [rng.choice([1, 2]) for _ in shape])),
        (torch.Tensor.contiguous, (x,)),
        (torch.select, (x, d, rng.randrange(n))) if n else None,
        (torch.squeeze, (x,)),
        (torch.flatten, (x, min(d, e), max(d, e))),
        (torch.ops.aten.slice.Tensor, (x, d, 0, n, 2)),
        (torch.Tensor.unfold, (x, d, min(n, 2), 1)) if n else None,
        (torch.Tensor.expand, (x, [3, *shape])),
        (torch.movedim, (x, d, e)),
    ]
    half = next((k for k in (2, 3, 4) if n and n % k == 0), None)
    if half:
        options += [(torch.reshape, (x, [*shape[:d], half, n // half, *shape[d + 1 :]]))] * 2
    if rank > 1 and _count(shape):
        flat = rng.randrange(rank - 1)
        options += [
            (torch.reshape, (x, [*shape[:flat], shape[flat] * shape[flat + 1], *shape[flat + 2 :]]))
        ] * 2
    options = [o for o in options if o]
    return (*rng.choice(options), {}, x.exact)


@move(2)
def join(rng, program):
    x = pick(rng, program, rank=1)
    if x is None:
        return None
    d = rng.randrange(x.value.dim())
    others = [
        v
        for v in program.values
        if v.value.dim() == x.value.dim()
        and all(a == b for k, (a, b) in enumerate(zip(v.value.shape, x.value.shape)) if k != d)
    ]
    parts = [rng.choice(others) for _ in range(rng.choice([1, 2]))] + [x]
    if rng.random() < 0.3:
        return torch.stack, ([x, x], d), {}, x.exact
    if rng.random() < 0.3:
        return (
            torch.nn.functional.pad,
            (x, [rng.choice([0, 1, 2, -1 if x.value.shape[-1] > 2 else 0]), rng.choice([0, 1])]),
            {},
            x.exact,
        )
    return torch.cat, (parts, d), {}, all(p.exact for p in parts)


@move(4)
def reduce(rng, program):
    x = pick(rng, program, "float", "int", rank=1)
    if x is None:
        return None
    rank = x.value.dim()
    dims = sorted(rng.sample(range(rank), rng.randrange(1, rank + 1)))
    keep = rng.random() < 0.5
    whole = x.kind == "int"
    has = all(x.value.shape[d] for d in dims)
    options = [(torch.sum, (x, dims, keep), whole)]
    if has:
        options += [(torch.amax, (x, dims, keep), x.exact), (torch.amin, (x, dims, keep), x.exact)]
        if x.exact:
            options += [
                (torch.argmax, (x, dims[0], keep), True),
                (torch.argmin, (x,), True),
                (largest_with_place, (x, dims[0]), True),
            ]
        if x.kind == "float":
            options += [
                (torch.mean, (x, dims, keep), False),
                (torch.softmax, (x, dims[0]), False),
                (torch.logsumexp, (x, dims, keep), False),
                (torch.log_softmax, (x, dims[0]), False),
                (
                    torch.linalg.vector_norm,
                    (x, rng.choice([1, 2, float("inf")]), dims, keep),
                    False,
                ),
            ]
            if _count([x.value.shape[d] for d in dims]) > 1:
                options += [(spread, (x, dims, keep), False)]
    if x.kind == "float" and x.value.shape[-1]:
        options += [
            (torch.nn.functional.layer_norm, (x, [x.value.shape[-1]], None, None, 0.1), False)
        ]  # equal rows are divided by sqrt(eps)
    options += [(torch.cumsum, (x, dims[0]), whole)]
    target, args, exact = rng.choice(options)
    return target, args, {}, exact


def largest_with_place(x, dim):
    values, places = torch.max(x, dim)
    return values * 2 + places.clamp(max=50)


def spread(x, dims, keep):
    return torch.var(x, dims, correction=1, keepdim=keep) + 1


@move()
def truth(rng, program):
    x = pick(rng, program, "bool", rank=1)
    return x and (
        rng.choice([torch.any, torch.all]),
        (x, rng.randrange(x.value.dim()), rng.random() < 0.5),
        {},
        True,
    )


@move(2)
def indexed(rng, program):
    x = pick(rng, program, rank=1, nonempty=True)
    if x is None:
        return None
    d = rng.randrange(x.value.dim())
    n = x.value.shape[d]
    many = random_shape(rng, rng.choice([1, 2])) if x.value.numel() < 500 else [3]
    if _count(many) * x.value.numel() / n > MOST_ELEMENTS:
        many = [2]
    index = program.input(
        torch.tensor(
            [rng.randrange(-n, n) for _ in range(_count(many))], dtype=torch.int64
        ).reshape(many)
    )
    if rng.random() < 0.4:
        return torch.ops.aten.index.Tensor, (x, [None] * d + [index]), {}, x.exact
    flat = program.input(index.value.reshape(-1).abs() % n)
    if rng.random() < 0.5 or x.value.dtype in (torch.bool,):
        return torch.index_select, (x, d, flat), {}, x.exact
    shape = [min(2, k) for k in x.value.shape]
    position = program.input(
        torch.tensor([rng.randrange(n) for _ in range(_count(shape))], dtype=torch.int64).reshape(
            shape
        )
    )
    if rng.random() < 0.5:
        return torch.gather, (x, d, position), {}, x.exact
    source = program.input(random_tensor(rng, shape, x.value.dtype))
    return torch.scatter_add, (x, d, position, source), {}, x.kind == "int"


@move()
def write(rng, program):
    x = pick(rng, program, "float", "int", rank=1, nonempty=True)
    if x is None:
        return None
    if rng.random() < 0.3 and x.value.shape[0]:
        return put, (x, rng.randrange(x.value.shape[0]), 5), {}, x.exact
    if rng.random() < 0.4:
        return write_rows, (x,), {}, x.exact
    source = program.input(
        random_tensor(rng, [*x.value.shape[:-1], (x.value.shape[-1] + 1) // 2], x.value.dtype)
    )
    return clone_and_write, (x, source), {}, x.exact


@move()
def images(rng, program):
    x = pick(rng, program, "float", rank=3, nonempty=True)
    if x is None or x.value.dim() > 4 or min(x.value.shape[-2:]) < 3:
        return None
    F = torch.nn.functional
    return rng.choice(
        [
            (F.max_pool2d, (x, 3, rng.choice([1, 2]), 1), {}, x.exact),
            (F.avg_pool2d, (x, (2, 3), 1, (1, 1)), {}, False),
            (F.adaptive_avg_pool2d, (x, (2, 3)), {}, False),
        ]
    )


@move(2)
def fresh(rng, program):
    x = pick(rng, program, "float", "int", "bool")
    return x and (torch.ops.fuzz.fresh.default, (x,), {}, x.exact)


@move()
def product(rng, program):
    x = pick(rng, program, "float", rank=2, nonempty=True)
    if x is None or x.value.dim() != 2 or x.value.dtype != torch.float32:
        return None
    shape = [x.value.shape[1], rng.choice([1, 3, 8])]
    return torch.mm, (x, program.input(random_tensor(rng, shape, torch.float32))), {}, False


# --- products in a row ----------------------------------------------------------------------------
MOST_ROWS = 70  # also the sizes that fill no vector, and those just beyond


def turned_product(x, y):
    """x @ y, whose memory runs along the columns."""
    return (y.t() @ x.t()).t()


def products_in_a_row(rng, program):
    """A product, what a kernel makes of it and of one that is transposed, and a product of that.

    Such a kernel runs in tiles, and may take the memory of the first product, which it reads."""
    rows, inner, columns, last = (rng.randint(1, MOST_ROWS) for _ in range(4))
    matrix = lambda *shape: program.input(  # noqa: E731
        random_tensor(rng, shape, torch.float32)
    )
    x, y = matrix(rows, inner), matrix(inner, columns)
    made = [program.add(target, (x, y), {}, False) for target in (torch.mm, turned_product)]
    for _ in range(rng.randint(1, 4)):
        found = [value for value in made if value is not None]
        if not found:
            return
        unary = rng.choice([torch.relu, torch.abs, torch.neg, torch.sigmoid, torch.sin])
        binary = rng.choice([torch.add, torch.sub, torch.maximum])
        first, other = rng.choice(found), program.add(unary, (rng.choice(found),), {}, False)
        made.append(other and program.add(binary, (first, other), {}, False))
    if made[-1] is not None:
        program.add(
            rng.choice([torch.mm, turned_product]), (made[-1], matrix(columns, last)), {}, False
        )


# --- programs -------------------------------------------------------------------------------------
class Program:
    """The graph under construction, run eagerly as it grows."""

    def __init__(self, seed, graph=None, inputs=None):
        self.graph, self.inputs = graph or fx.Graph(), [] if inputs is None else inputs
        self.values = []
        rng = random.Random(seed)
        for _ in range(rng.choice([1, 2, 2, 3])):
            self.input(
                random_tensor(
                    rng, random_shape(rng), rng.choice(FLOATS * 2 + INTEGERS + [torch.bool])
                )
            )
        first = len(self.values)
        for _ in range(rng.randrange(3, 13)):
            for _ in range(8):
                if self.step(rng):
                    break
        extra = random.Random(f"products {seed}")  # (the seed's other moves stay what they were)
        if extra.random() < 0.25:
            products_in_a_row(extra, self)
        made = self.values[first:]
        self.outputs = [
            v
            for v in made
            if v.node.op == "call_function" and (not v.node.users or rng.random() < 0.2)
        ]

    def input(self, tensor):
        node = self.graph.placeholder(f"x{len(self.inputs)}")
        self.inputs.append(tensor)
        self.values.append(Known(node, tensor))
        return self.values[-1]

    def step(self, rng):
        chosen = rng.choice(MOVES)(rng, self)
        return chosen is not None and self.add(*chosen) is not None

    def add(self, target, args, kwargs, exact):
        """What a call gives, or None: eager does not do this, or the result is no use."""
        unpack = lambda field: fx.node.map_aggregate(
            args, lambda a: getattr(a, field) if isinstance(a, Known) else a
        )  # noqa: E731
        try:
            with torch.no_grad():
                value = target(*unpack("value"), **kwargs)
        except (
            RuntimeError,
            IndexError,
            TypeError,
            NotImplementedError,
            ValueError,
        ):  # eager does not do this
            return None
        finite = value[torch.isfinite(value)] if value.is_floating_point() else value
        if (
            value.numel() > MOST_ELEMENTS
            or value.is_complex()
            or finite.numel()
            and float(finite.double().abs().max()) > LARGEST
        ):
            return None
        if not exact and value.dtype in (torch.float16, torch.bfloat16) and value.numel() > 200:
            return None  # rounding differences of narrow sums grow with the number of terms
        ancestors = []
        fx.node.map_aggregate(
            args, lambda a: ancestors.append(a.tolerance) if isinstance(a, Known) else None
        )
        largest = float(finite.double().abs().max()) if finite.numel() else 0.0
        tolerance = (
            0.0 if exact else max([tolerance_of(value.dtype) * max(1.0, largest), *ancestors])
        )
        self.values.append(
            Known(self.graph.call_function(target, unpack("node"), kwargs), value, tolerance)
        )
        return self.values[-1]


def batch(seeds):
    """(GraphModule of all programs, inputs, [tolerance of each output], [seed of each output])"""
    graph, inputs = fx.Graph(), []
    programs = [Program(seed, graph, inputs) for seed in seeds]
    outputs = [(v, seed) for p, seed in zip(programs, seeds) for v in p.outputs]
    graph.output(tuple(v.node for v, _ in outputs))
    for node in reversed([n for n in graph.nodes if n.op == "placeholder"]):  # placeholders first
        graph._root.append(node)
    return (
        fx.GraphModule(torch.nn.Module(), graph),
        inputs,
        [v.tolerance for v, _ in outputs],
        [seed for _, seed in outputs],
    )


def difference(ours, eager, tolerance, fake):
    """What is wrong, or None.  fake: the result that torch's meta functions promise; for some index
    ops its strides are not eager's."""
    if ours.dtype != eager.dtype or ours.shape != eager.shape:
        return f"{ours.dtype}{list(ours.shape)} instead of {eager.dtype}{list(eager.shape)}"
    if (
        eager.numel()
        and [s for n, s in zip(eager.shape, eager.stride()) if n != 1]
        != [s for n, s in zip(ours.shape, ours.stride()) if n != 1]
        and not _overlaps(eager)
        and ours.stride() != fake.stride()
    ):
        return f"strides {ours.stride()} instead of {eager.stride()}"
    if not tolerance or not eager.is_floating_point():
        return (
            None
            if torch.equal(ours.nan_to_num(77.0), eager.nan_to_num(77.0))
            and torch.equal(ours.isnan(), eager.isnan())
            else f"not equal: {int((ours != eager).sum())} of {eager.numel()} elements"
        )
    return too_far(ours, eager, scale=tolerance / tolerance_of(eager.dtype)) or None


def _overlaps(t):
    return (
        any(s == 0 and n > 1 for n, s in zip(t.shape, t.stride()))
        or not t.is_contiguous()
        and t.numel() == 1
    )


def run(seeds, interpreter=True):
    """[(seed, what differs)] for the programs of these seeds, compiled as one graph."""
    gm, inputs, tolerances, owners = batch(seeds)
    copies = lambda: [clone_input(t) for t in inputs]  # noqa: E731
    with torch.no_grad():
        eager = gm(*copies())
        compiled = miniinductor.compile_fx(gm, copies())
        ways = [(miniinductor.config.cpu_backend, compiled(*copies()))]
        if interpreter:
            ways.append(("interpreter", interpret(gm, copies())[0]))
    notes = compiled.record.notes_of("runs eagerly")
    fakes = eager
    if not notes:
        with torch.no_grad():
            traced = trace(
                gm, copies(), table()
            )  # (the compiler's own graph returns an output that is a view by its source)
        fakes = [
            n.meta["val"] for n in next(n for n in traced.graph.nodes if n.op == "output").args[0]
        ]
    found = [(None, notes[0])] if notes else []
    for way, results in ways:
        assert len(results) == len(eager), (way, len(results), len(eager))
        for ours, want, tolerance, fake, seed in zip(results, eager, tolerances, fakes, owners):
            problem = difference(ours, want, tolerance, fake)
            if problem:
                found.append((seed, f"{way}: {problem}"))
    return found


def check(seeds, interpreter=True):
    """Like `run`; programs of a batch that fails are run alone, so that each problem has its
    seed."""
    try:
        found = run(seeds, interpreter)
        if not found or len(seeds) == 1:
            return [(seeds[0] if seed is None else seed, problem) for seed, problem in found]
    except Exception as error:
        if len(seeds) == 1:
            where = traceback.extract_tb(error.__traceback__)[-1]
            return [
                (
                    seeds[0],
                    f"{type(error).__name__}: {str(error)[:200]} "
                    f"({os.path.basename(where.filename)}:{where.lineno})",
                )
            ]
    return [problem for seed in seeds for problem in check([seed], interpreter)]


def main():
    parser = argparse.ArgumentParser(
        description="random graphs: compiled kernels against the interpreter against eager"
    )
    parser.add_argument("--count", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=0, help="the first")
    parser.add_argument("--batch", type=int, default=12, help="programs per graph")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument(
        "--triton",
        action="store_true",
        help="kernels are Triton's, in its interpreter, instead of C++",
    )
    options = parser.parse_args()
    if options.triton:
        os.environ["TRITON_INTERPRET"], miniinductor.config.cpu_backend = "1", "triton"
    if options.jobs > 1 and options.count > options.batch:
        share = -(-options.count // options.jobs)
        children = [
            subprocess.Popen(
                [
                    *(sys.executable, os.path.abspath(__file__), "--jobs=1"),
                    *(f"--batch={options.batch}", f"--seed={options.seed + k * share}"),
                    f"--count={min(share, options.count - k * share)}",
                    *["--triton"] * options.triton,
                ]
            )
            for k in range(options.jobs)
        ]
        return max(abs(child.wait()) for child in children)
    torch.set_num_threads(1)
    seeds, problems = range(options.seed, options.seed + options.count), 0
    for start in range(0, len(seeds), options.batch):
        part = list(seeds[start : start + options.batch])
        print(
            f"seeds {part[0]} to {part[-1]}", end="\r", flush=True
        )  # the last line, if a kernel ends the process
        for seed, problem in check(part):
            problems += 1
            print(f"seed {seed}: {problem}", flush=True)
    if options.count == 1:
        gm, inputs, tolerances, _ = batch([options.seed])
        print(gm.code, [(t.dtype, tuple(t.shape), t.stride()) for t in inputs], tolerances)
    print(f"{len(seeds)} programs from seed {seeds[0]}: {problems} differences")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
