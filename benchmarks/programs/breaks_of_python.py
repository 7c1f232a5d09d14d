"""Programs of breaks.py that need a feature of Python or NumPy: identity, classes, `with`, tuples.

In:   nothing.   Out: programs in the table of `break_table.py`.
"""

import collections
import contextlib
import itertools
import random
import threading
import typing
from collections.abc import Iterator
from typing import Never

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from benchmarks.programs.break_table import Program, X, linear, program


# ---- NumPy
TABLE = np.linspace(0.5, 1.5, 4).astype(np.float32)


@program(breaks=1)
def from_numpy_of_a_global() -> Program:
    return lambda x: x * torch.from_numpy(TABLE), (X(),)


@program(graphs=2, breaks=4)
def numpy_constants() -> Program:
    def f(x):
        steps = np.linspace(0.0, 1.0, 4)
        table = np.array([[1.0, 2.0], [3.0, 4.0]], dtype=np.float32)
        return x * torch.from_numpy(steps).float() + torch.as_tensor(table).sum()

    return f, (X(),)


@program(breaks=3)
def numpy_of_a_captured_value() -> Program:
    def f(x):
        a = (x * 2).numpy()
        b = np.sin(a) + a.mean(axis=0)
        return torch.from_numpy(b)

    return f, (X(grad=False),)


@program(graphs=0, breaks=2)
def numpy_argument() -> Program:
    def f(a):
        return np.maximum(a, 0.0).sum(axis=1)

    return f, (np.linspace(-1.0, 1.0, 12, dtype=np.float32).reshape(3, 4),)


# ---- identity
@program(graphs=2, breaks=1)
def id_of_a_module() -> Program:
    layer = linear()
    cache = {id(layer): 2.0}
    return lambda x: layer(x) * cache[id(layer)], (X(),)


@program(breaks=4)
def id_of_tensors() -> Program:
    def f(x, y):
        return x + y if id(y) != id(x) and id(x) == id(x) else x - y

    return f, (X(), X())


ACTIVATIONS = {torch.relu, torch.tanh, F.gelu}


KINDS = frozenset({nn.Linear, nn.Conv2d})


@program
def sets_of_functions_and_classes() -> Program:
    layer = linear()

    def f(x):
        x = layer(x) if type(layer) in KINDS else x
        return torch.tanh(x) if torch.tanh in ACTIVATIONS else x

    return f, (X(),)


class Base:
    scale = 1.0


class Derived(Base):
    scale = 2.0


@program(breaks=1)
def subclasses() -> Program:
    def f(x):
        for kind in Base.__subclasses__():
            x = x * kind.scale
        return x

    return f, (X(),)


# ---- the standard library
LOCK, RLOCK = threading.Lock(), threading.RLock()


@program(graphs=2, breaks=4)
def locks() -> Program:
    def f(x):
        with LOCK:
            x = x + 1
        with RLOCK:
            x = x * 2
        return x

    return f, (X(),)


@contextlib.contextmanager
def counted(log: list[str]) -> Iterator[int]:
    log.append("in")
    try:
        yield len(log)
    finally:
        log.append("out")


@program(breaks=1)
def context_managers_of_contextlib() -> Program:
    def f(x, log):
        with contextlib.suppress(ValueError), contextlib.nullcontext(2.0) as scale:
            x = x * scale
        with contextlib.ExitStack() as stack:
            n = stack.enter_context(counted(log))
            stack.callback(log.append, "called")
            x = x + n
        with counted(log) as n:
            return x * n

    return f, (X(), [])


@program(graphs=1, breaks=1)
def class_statement() -> Program:
    def f(x):
        class Pair:
            scale = 3.0

            def __init__(self, a, b):
                self.a, self.b = a, b

            def sum(self):
                return (self.a + self.b) * self.scale

        return Pair(x, x.sin()).sum()

    return f, (X(),)


@program(breaks=1)
def namedtuple_in_a_frame() -> Program:
    def f(x):
        Point = collections.namedtuple("Point", "a b")
        p = Point(x.sin(), b=x.cos())
        return p.a * p.b + p._replace(a=x).a

    return f, (X(),)


@program(graphs=3, breaks=2)
def assertion_on_a_tensor() -> Program:
    def f(x):
        assert torch.isfinite(x).all(), "not finite"
        assert (x < 5).all()
        return x * 2

    return f, (X(),)


def positive(
    x: torch.Tensor, y: torch.Tensor
) -> torch.Tensor:  # not in a test: pytest writes the assertions there anew
    y.add_(1)
    assert (x > 0).all(), f"found {x.min().item():.1f}"
    return x * 2


@program(graphs=3, breaks=2)
def max_of_tensors() -> Program:
    return lambda x: max(x.sum(), x.mean()) + min(x.max(), x[0, 0]), (X(grad=False),)


@program
def module_as_an_argument() -> Program:
    distance = nn.PairwiseDistance()

    def f(x, y, z):
        return F.triplet_margin_with_distance_loss(x, y, z, distance_function=distance)

    return f, (X(), X() + 0.3, X() * 0.5)


# ---- tuples
class Pair(typing.NamedTuple):
    first: torch.Tensor
    second: float = 2.0

    def product(self) -> torch.Tensor:
        return self.first * self.second


class Two(tuple):
    pass


@program
def structseqs() -> Program:
    def f(x):
        q, r = torch.linalg.qr(x @ x.T + torch.eye(3))
        found = torch.max(x, 1)
        return found.values.sum() + (q @ r).sum(), torch.topk(x, 2), found

    return f, (X(),)


@program
def named_tuples_and_subclasses() -> Program:
    def f(x):
        pair = Pair(x.sin())
        two = Two([x, pair.product()])
        return two[0] + two[1], pair, Two((x * 2,))

    return f, (X(),)


# ---- iterators, missing attributes, types
@program(graphs=2, breaks=2)
def itertools_with_tensors() -> Program:
    def f(x):
        sums = list(itertools.accumulate(x.unbind(0)))
        products = list(itertools.accumulate(x.unbind(0), torch.mul, initial=x[0]))
        some = list(itertools.islice(x, 1, None))
        chosen = list(itertools.compress(x.unbind(0), [True, False, True]))
        return sums[-1] + products[-1] + some[0] * chosen[1]

    return f, (X(),)


class Probed:
    def __getattr__(self, name: str) -> Never:
        raise AttributeError(name)


@program
def attribute_error_leaves_the_frame() -> Program:
    def f(x):
        y = x * 2
        Probed().missing
        return y

    def g(x):
        try:
            return compiled(x)
        except AttributeError as error:
            return x + len(str(error))

    compiled = f
    return g, (X(),)


T = typing.TypeVar("T")


@program
def type_variables() -> Program:
    def f(x):
        kinds = {T: 2.0, typing.Optional[T]: 3.0}
        return x * kinds[T] if T is not None else x

    return f, (X(),)


@program
def version_of_torch() -> Program:
    def f(x):
        version = torch.__version__
        parts = tuple(int(part) for part in version.split("+")[0].split(".")[:2])
        letters = "".join(letter for letter in version if letter.isdigit())
        return x + 1 if parts >= (2, 0) and version >= "2.0" else x, letters, version.strip()

    return f, (X(),)


# ---- Python's random numbers
@program(graphs=4, breaks=6)
def random_numbers_of_python() -> Program:
    def f(x):
        first, unused = random.random(), random.random()  # noqa: F841
        x = x * first + random.uniform(2, 3)
        x = torch.lerp(x, x * 2, random.random())
        return x * (first + 2) + random.randint(-3, 9), first, random.randrange(2, 9)

    return f, (X(),)
