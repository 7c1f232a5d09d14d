"""Pairs of programs that differ in one thing: other keys, and each gives its own results where the
other's graph lies in the cache.

    python -m tests.soundness.cache_keys [--modes eager,aot_eager,graph-cache]

Enumerated, so `count` says nothing.  A case is

    ("constant", n, m)      a program that uses constant n, then the same with constant m (ints,
                            floats by their bits, enums, ...)
    ("together", n, m)      both constants in one program: common subexpressions, tables of
                            constants
    ("text", n, m)          the keys' texts of the two constants must differ, or refuse
    ("part", name)          one thing of the surroundings changes (an option, a switch of torch, an
                            environment variable): the key does
    ("parts", name, name)   two surroundings that are alike but for one thing: two keys
    ("input", name)         one thing of an input changes (strides, dtype, bits, aliasing): the key
                            does
    ("kernel", n, m)        two sources, compilers, flags, processors...: a kernel has two keys
"""

import collections
import contextlib
import enum
import functools
import itertools
import math
import os
import platform
import struct
import sys
import tempfile
from typing import Any

import torch

import minidynamo
import miniinductor
from miniinductor.extras import careful_compiler, graph_cache, kept_libraries
from miniinductor.runtime import build

from . import runner
from .modes import Mode


# --- constants -----------------------------------------------------------------------------------
def nan(bits: int) -> float:
    return struct.unpack("<d", struct.pack("<Q", bits))[0]


class Hidden(enum.IntEnum):
    ONE, TWO = 1, 2

    def __repr__(self):
        return "Hidden"

    __str__ = __repr__


class Plain(enum.IntEnum):
    ONE, TWO = 1, 2


class Words(enum.StrEnum):
    SUM, MEAN = "sum", "mean"

    def __repr__(self):
        return "Words"


class Bits(enum.IntFlag):
    A, B = 1, 2

    def __repr__(self):
        return "Bits"


class Number(int):
    def __repr__(self):
        return "Number"


class Real(float):
    def __repr__(self):
        return "Real"


class Same(int):
    """Equal to all others, with one hash."""

    def __eq__(self, other):
        return True

    def __hash__(self):
        return 0


class Text(str):
    def __repr__(self):
        return "Text"


class Pair(tuple):
    def __repr__(self):
        return "Pair"


Point = collections.namedtuple("Point", "x y")

NUMBERS = [0, 1, 2, -1, 2**40, True, False, 0.0, -0.0, 1.0, 2.0, 0.1, math.inf, -math.inf]
NUMBERS += [nan(0x7FF8000000000000), nan(0xFFF8000000000000), 1j, complex(0.0, -0.0)]
NUMBERS += [complex(nan(0x7FF8000000000000), 0.0), complex(nan(0xFFF8000000000000), 0.0)]
NUMBERS += [complex(-0.0, 0.0), complex(1, 0), Hidden.ONE, Hidden.TWO, Plain.ONE, Plain.TWO]
NUMBERS += [Bits.A, Bits.B, Number(1), Number(2), Real(1.0), Real(2.0), Same(1), Same(2)]
OTHERS = ["sum", "mean", "1", b"1", None, ..., Words.SUM, Words.MEAN, Text("a"), Text("b")]
OTHERS += [slice(1), slice(1, None), slice(1, None, 2), range(2), range(3), (), (1,), (1.0,)]
OTHERS += [(True,), (1, 2), ((1,), 2), (1, (2,)), [1], [1.0], [[1]], {"a": 1}, {"a": 1.0}]
OTHERS += [{1: 1}, {True: 1}, {"a": 1, "b": 2}, {"b": 2, "a": 1}, Pair((1,)), Pair((2,))]
OTHERS += [Point(1, 2), Point(2, 1), torch.Size([1]), torch.Size([1, 2]), torch.float32]
OTHERS += [torch.float64, torch.device("cpu"), torch.device("cpu", 0), torch.device("meta")]
OTHERS += [torch.strided, torch.sparse_coo, torch.contiguous_format, torch.channels_last]
OTHERS += [torch.sin, torch.cos, math.sin, torch.ops.aten.sin.default, torch.ops.aten.sin]
OTHERS += [functools.partial(torch.sin), lambda: 1, NotImplemented, torch.Tensor, int]
CONSTANTS = [*NUMBERS, *OTHERS]


def use(value: Any) -> Any:
    """A program in which the constant decides the result, and its bits can be seen."""
    if isinstance(value, str):
        return lambda x: getattr(x, {"sum": "sum", "mean": "mean"}.get(str(value), "abs"))()
    if isinstance(value, complex):
        return lambda x: torch.full((2,), value) + x[0, 0]
    return lambda x: (torch.full((2,), float(value)), x * value, torch.copysign(x, x * 0 + value))


def use_both(a: Any, b: Any) -> Any:
    def program(x):
        first = (x * a, x + a, torch.full((2,), a))
        second = (x * b, x + b, torch.full((2,), b))
        # What is returned itself is never merged: another node reads each.
        return [torch.stack((t, t)) for pair in zip(first, second) for t in pair]

    return program


# --- the surroundings -----------------------------------------------------------------------------
@contextlib.contextmanager
def called(setter: Any, before: Any, *arguments: Any):
    setter(*arguments)
    try:
        yield
    finally:
        setter(before)


@contextlib.contextmanager
def attribute(holder: Any, name: str, value: Any):
    before = getattr(holder, name)
    setattr(holder, name, value)
    try:
        yield
    finally:
        setattr(holder, name, before)


@contextlib.contextmanager
def variable(name: str, value: str):
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before


def other(value: Any) -> Any:
    """Another value of an option."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, (int, float)):
        return value * 2 + 1  # (1e25 + 1 is 1e25)
    return value + ("other",) if isinstance(value, tuple) else value + "-other"


def other_option(name: str, value: Any) -> Any:
    """Another value of an option, which may have a few words only."""
    words = miniinductor.config._WORDS.get(name, ())
    return next((word for word in words if word != value), None) or other(value)


def surroundings() -> dict:
    """name -> a context in which one thing differs.  Options and module numbers are found by
    reflection."""
    unimportant = graph_cache.UNIMPORTANT | {"freezing"}
    found = {
        f"option {name}": functools.partial(
            miniinductor.config.patch, **{name: other_option(name, value)}
        )
        for name, value in miniinductor.config.switches().items()
        if name not in unimportant
    }
    for home, module in graph_cache.modules().items():
        for name, value in vars(module).items():
            if module is miniinductor.config or name.startswith("_"):
                continue
            if type(value) in (bool, int, float, str):
                found[f"number {home}.{name}"] = functools.partial(
                    attribute, module, name, other(value)
                )
    found |= {
        "grad mode": torch.no_grad,
        "inference mode": torch.inference_mode,
        "autocast": lambda: torch.autocast("cpu", torch.bfloat16),
        "autocast dtype": lambda: torch.autocast("cpu", torch.float16),
        "default dtype": lambda: called(torch.set_default_dtype, torch.float32, torch.float64),
        "default device": lambda: torch.device("meta"),
        "default device, the same": lambda: torch.device("cpu"),
        "threads": lambda: called(torch.set_num_threads, torch.get_num_threads(), 3),
        "deterministic": lambda: called(torch.use_deterministic_algorithms, False, True),
        "precision": lambda: called(torch.set_float32_matmul_precision, "highest", "medium"),
        "mkldnn": lambda: torch.backends.mkldnn.flags(enabled=False),
        "mkldnn deterministic": lambda: torch.backends.mkldnn.flags(deterministic=True),
        "fill uninitialized": lambda: attribute(
            torch.utils.deterministic, "fill_uninitialized_memory", False
        ),
        "opt_einsum": lambda: attribute(
            torch.backends.opt_einsum, "enabled", not torch.backends.opt_einsum.enabled
        ),
        "flash": lambda: called(torch.backends.cuda.enable_flash_sdp, True, False),
        "math attention": lambda: called(torch.backends.cuda.enable_math_sdp, True, False),
        "cudnn": lambda: torch.backends.cudnn.flags(enabled=False),
        "interpreter": lambda: variable("TRITON_INTERPRET", "other"),
        "processor": lambda: processor("fpu", "sse2"),
    }
    return found


# Surroundings of which the key shows more than one thing; the second of a pair shares all but one.
ALIKE = (
    ("grad mode", "inference mode"),
    ("autocast", "autocast dtype"),
    ("default device", "default device, the same"),
)


@contextlib.contextmanager
def processor(*flags: str):
    """As on a machine that has another one, and shares the folder."""
    with attribute(careful_compiler, "cpu_flags", lambda: frozenset(flags)):
        forget_processor()
        try:
            yield
        finally:
            forget_processor()


def forget_processor() -> None:
    careful_compiler.cpu_name.cache_clear()
    graph_cache.versions_text.cache_clear()


@contextlib.contextmanager
def compiler(version: str):
    """CXX names another one, which answers so when it is asked for its version."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "g++")
        with open(path, "w") as file:
            file.write(f"#!/bin/sh\necho {version}\n")
        os.chmod(path, 0o755)
        with variable("CXX", path):
            yield


@contextlib.contextmanager
def updated_compiler(version: str):
    """The one that is there, replaced by another version of it."""
    with attribute(kept_libraries, "compiler_version", lambda path: version):
        yield


def kernel_surroundings() -> dict:
    """name -> a context in which a kernel's shared object is another one."""
    found = {
        f"without {flag}": functools.partial(
            attribute, build, "FLAGS", tuple(one for one in build.FLAGS if one != flag)
        )
        for flag in build.FLAGS
    }
    found |= {
        "as it is": contextlib.nullcontext,
        "CXX": lambda: compiler("1.0"),
        "version": lambda: updated_compiler("1.0"),
        "later version": lambda: updated_compiler("1.0.1"),
        "processor": lambda: processor("fpu", "sse2"),
        "wider processor": lambda: processor("fpu", "sse2", "avx512f"),
        "machine": lambda: machine("other"),
        "torch": lambda: attribute(torch, "__version__", "0.0"),
        "openmp": lambda: miniinductor.config.patch(openmp=not miniinductor.config.openmp),
        "source": lambda: attribute(sys.modules[__name__], "SOURCE", "int NAME() { return 2; }"),
    }
    return found


@contextlib.contextmanager
def machine(name: str):
    with attribute(platform, "machine", lambda: name):
        forget_processor()
        try:
            yield
        finally:
            forget_processor()


SOURCE = "int NAME() { return 1; }"


def kernel_key() -> str:
    return kept_libraries.cache_key(SOURCE, build.compiler_command())


# --- inputs ---------------------------------------------------------------------------------------
def inputs() -> dict:
    """name -> the two tensors that the graph is compiled for."""
    x, z = torch.ones(4, 4), torch.ones(4, 4, dtype=torch.complex64)
    base = torch.ones(64)
    return {
        "plain": (x, x.clone()),
        "one tensor": (x, x),
        "one memory": (base[:16].view(4, 4), base[16:32].view(4, 4)),
        "offset": (x, base[1:17].view(4, 4)),
        "view": (x, x.clone().view(4, 4)),
        "shape": (x, torch.ones(4, 1)),
        "stride": (x, torch.ones(4, 4).t()),
        "dtype": (x, torch.ones(4, 4, dtype=torch.float64)),
        "requires grad": (x, torch.ones(4, 4, requires_grad=True)),
        "no leaf": (x, torch.ones(4, 4, requires_grad=True).view(4, 4)),
        "parameter": (x, torch.nn.Parameter(torch.ones(4, 4))),
        "frozen parameter": (x, torch.nn.Parameter(torch.ones(4, 4), requires_grad=False)),
        "complex": (x, z),
        "conjugate": (x, z.conj()),
        "negative": (x, z.conj().imag),
        "imaginary": (x, z.imag),
        "zero": (x, torch._efficientzerotensor(4, 4)),
        "meta": (x, torch.ones(4, 4, device="meta")),
    }


def add_graph() -> torch.fx.GraphModule:
    return torch.fx.symbolic_trace(lambda x, y: (x + y, x * 2))


def key(tensors: tuple = (), mode: str | None = None) -> str:
    tensors = tensors or inputs()["plain"]
    try:
        return graph_cache.open_entry(add_graph(), list(tensors), mode).key
    except graph_cache.Uncachable as reason:
        return f"refused: {reason}"


# --- cases ----------------------------------------------------------------------------------------
def cases(count: int, first: int) -> list:
    numbers, everything = range(len(NUMBERS)), range(len(CONSTANTS))
    words = [n for n in everything if isinstance(CONSTANTS[n], str)]
    pairs = [*itertools.permutations(numbers, 2), *itertools.permutations(words, 2)]
    found: list = [("part", name) for name in surroundings()]  # what costs little comes first
    found += [("parts", *pair) for pair in ALIKE]
    found += [("input", *pair) for pair in itertools.combinations(inputs(), 2)]
    found += [("kernel", *pair) for pair in itertools.combinations(kernel_surroundings(), 2)]
    found += [("text", *pair) for pair in itertools.combinations(everything, 2)]
    found += [("together", *pair) for pair in itertools.combinations(numbers, 2)]
    found += [("constant", *pair) for pair in pairs]
    return found


def same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Equal, zeros with their signs; any NaN is any other's equal (kernels may make another)."""
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    if a.is_complex():
        return same_bits(torch.view_as_real(a), torch.view_as_real(b))
    both = torch.equal(a.nan_to_num(7.0), b.nan_to_num(7.0)) if a.is_floating_point() else None
    if both is None:
        return torch.equal(a, b)
    return both and torch.equal(a.isnan(), b.isnan()) and torch.equal(sign(a), sign(b))


def sign(t: torch.Tensor) -> torch.Tensor:
    return torch.signbit(t) & ~t.isnan()


def outcome(function: Any, x: torch.Tensor) -> Any:
    try:
        return torch.utils._pytree.tree_leaves(function(x))
    except Exception as error:
        return type(error).__name__


def compared(program: Any, mode: Mode) -> str:
    x = torch.tensor([[1.0, -2.0], [-0.0, 3.0]])
    with torch.no_grad():
        expected, found = outcome(program, x), outcome(mode.compile(program), x)
    if isinstance(expected, str) or isinstance(found, str):
        return "" if str(expected) == str(found) else f"{found} instead of {expected}"
    if len(expected) == len(found) and all(map(same_bits, found, expected)):
        return ""
    return f"{found} instead of {expected}"


def check(case: tuple, mode: Mode) -> str:
    kind, *rest = case
    if kind == "constant":
        for n in rest:  # the second on the cache of the first
            if report := compared(use(CONSTANTS[n]), mode):
                return f"{CONSTANTS[n]!r} ({type(CONSTANTS[n]).__name__}): {report}"
            minidynamo.reset()
        return ""
    if kind == "together":
        return compared(use_both(*[CONSTANTS[n] for n in rest]), mode)
    if kind == "text":
        texts = [text(CONSTANTS[n]) for n in rest]
        return "" if None in texts or texts[0] != texts[1] else f"both are written {texts[0]!r}"
    if kind == "part":
        torch.set_float32_matmul_precision("highest")  # as the case leaves it
        tensors = inputs()["plain"]  # made before: they would be others in other surroundings
        before = key(tensors)
        with surroundings()[rest[0]]():
            changed = key(tensors)
        if changed == before:
            return f"{rest[0]}: the key stays"
        return "" if key(tensors) == before else "the key does not come back"
    if kind == "parts":
        tensors, keys = inputs()["plain"], []
        for name in rest:
            with surroundings()[name]():
                keys.append(key(tensors))
        return f"the key stays: {keys[0]}" if keys[0] == keys[1] else ""
    if kind == "kernel":
        keys = []
        for name in rest:
            with kernel_surroundings()[name]():
                keys.append(kernel_key())
        return f"the kernel's key stays: {keys[0]}" if keys[0] == keys[1] else ""
    keys = [key(inputs()[name]) for name in rest]
    return f"the key stays: {keys[0]}" if keys[0] == keys[1] else ""


def text(value: Any) -> str | None:
    try:
        return graph_cache.text_of(value)
    except graph_cache.Uncachable:
        return None


if __name__ == "__main__":
    runner.main("tests.soundness.cache_keys", "graph-cache")
