"""The bytecode package against CPython itself: the standard library of the running version, read
and written again; every operation has a canonical form, which the evaluator knows.  No torch."""

import dis
import os
import random
import re
import sysconfig
import types
import warnings
from pathlib import Path

import pytest

import minidynamo.bytecode
from minidynamo.bytecode import Instruction, assemble, canonical, disassemble, slots
from minidynamo.bytecode import assembler as emit
from minidynamo.bytecode.assembler import (
    PAIRS,
    VERSION,
    read_exception_table,
    write_exception_table,
)

STDLIB = sysconfig.get_paths()["stdlib"]
MODULES = (
    sorted(name for name in os.listdir(STDLIB) if name.endswith(".py"))
    + (
        "asyncio/base_events.py email/message.py json/decoder.py json/encoder.py "
        "collections/__init__.py unittest/mock.py"
    ).split()
)


def code_objects(code):
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from code_objects(constant)


def library_codes(modules=MODULES):
    for name in modules:
        with open(os.path.join(STDLIB, name), "rb") as file, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield from code_objects(compile(file.read(), name, "exec"))


def resolved(code):
    """What the code does, whatever the numbering of its constants and names; the 3.13 pairs read as
    two."""
    result = []
    for ins in disassemble(code):
        arg = (
            ("->", ins.arg.end - 2)
            if isinstance(ins.arg, Instruction)
            else (type(ins.arg), ins.arg)
        )
        handler = ins.exc and (ins.exc[0].op, ins.exc[1:])
        arg = str(arg) if isinstance(ins.arg, types.CodeType) else arg
        result.append((ins.op, arg, ins.flags, handler, ins.pos))
    return result


def comparable(rows):
    """The same without jump distances, for code whose layout changed."""
    return [(op, arg[0] if arg[0] == "->" else repr(arg), *rest) for op, arg, *rest in rows]


def has_pairs(code):
    return any(op in PAIRS for op in code.co_code[::2])


def test_the_standard_library_round_trips():
    exact = total = 0
    for code in library_codes():
        again = assemble(code, disassemble(code))
        total += 1
        assert slots(again) == slots(code)
        assert (again.co_stacksize, again.co_flags) == (code.co_stacksize, code.co_flags)
        assert comparable(resolved(again)) == comparable(resolved(code)), code
        if not has_pairs(code):  # else the split pairs move everything behind them
            assert again.co_code == code.co_code, code
            assert list(read_exception_table(again)) == list(read_exception_table(code))
            assert list(again.co_positions()) == list(code.co_positions())
            exact += 1
    assert total > 8000 and exact > total / 3


def test_every_operation_of_the_standard_library_has_a_canonical_form():
    """Only module bodies, class bodies and coroutines use operations that no file of the evaluator
    names."""
    package, unknown = Path(minidynamo.bytecode.__file__).parents[1], set()
    files = [file for file in package.rglob("*.py") if file.parent.name != "bytecode"]
    known = set(re.findall(r"\b[A-Z][A-Z_0-9]+\b", "".join(file.read_text() for file in files)))
    for code in library_codes():
        if code.co_flags & 2 and not code.co_flags & (0x80 | 0x200):  # CO_OPTIMIZED, no coroutine
            operations, first = canonical(disassemble(code))
            unknown |= {op.op for op in operations if op.op not in known}
            for op in operations:
                if op.op in ("JUMP", "FOR_ITER", "SEND") or op.op.startswith("POP_JUMP_IF"):
                    assert 0 <= op.arg < len(operations)
                assert op.exc is None or 0 <= op.exc[0] < len(operations)
    generators = {"RETURN_GENERATOR", "YIELD_VALUE", "GET_YIELD_FROM_ITER", "SEND", "END_SEND"}
    assert unknown - generators <= {
        "END_FOR",  # FOR_ITER jumps behind it
        *"MATCH_CLASS MATCH_KEYS MATCH_MAPPING STOPITERATION_ERROR CALL_INTRINSIC_1".split(),
        *"CALL_INTRINSIC_2 PREP_RERAISE_STAR CHECK_EG_MATCH ASYNC_GEN_WRAP".split(),
        *("CLEANUP_THROW", "LOAD_FROM_DICT_OR_DEREF"),
    }, unknown


def test_exception_table_encoding():
    rng = random.Random(0)
    entries = []
    position = 0
    for _ in range(300):
        start = position + rng.choice([0, 1, 63, 64, 5000, 300000])
        stop = start + rng.choice([1, 63, 64, 4095, 4096])
        entries.append((start, stop, rng.randrange(1 << 20), rng.randrange(200), rng.randrange(2)))
        position = stop
    table = write_exception_table(entries)
    back = [
        (a // 2, b // 2, c // 2, d, e)
        for a, b, c, d, e in read_exception_table(types.SimpleNamespace(co_exceptiontable=table))
    ]
    assert back == entries


@pytest.mark.parametrize(
    "padding", [0, 1, 100, 126, 127, 128, 129, 254, 255, 256, 257, 1000, 66000]
)
def test_jumps_grow_extended_args(padding):
    def f(n):
        total = 0
        for i in range(n):
            if i % 2:
                total += i
        return total

    body = disassemble(f.__code__)
    for _ in range(3):  # one lot inside the loop, one inside the branch, one in front
        where = next(
            i for i, ins in enumerate(body) if ins.op == ("BINARY_OP", "STORE_FAST", "GET_ITER")[_]
        )
        body[where:where] = [Instruction("NOP", pos=body[where].pos) for _ in range(padding)]
    code = assemble(f.__code__, body)
    assert types.FunctionType(code, globals())(10) == 25
    assert code.co_code.count(dis.opmap["EXTENDED_ARG"]) >= (padding >= 300)


def test_constants_are_kept_apart_by_identity():
    values = (1, True, 1.0, 0.0, -0.0, (0.0,), (-0.0,), "a", b"a", (1,), (True,))
    body = emit.prologue(0) + [ins for value in values for ins in emit.load_const(value)]
    body += emit.build_tuple(len(values)) + emit.return_value()
    got = types.FunctionType(assemble((lambda: None).__code__, body, co_stacksize=20), {})()
    assert [(type(v), str(v)) for v in got] == [(type(v), str(v)) for v in values]


def make(code_like, body, **kwargs):
    return types.FunctionType(
        assemble(code_like.__code__, body, co_stacksize=30, **kwargs), globals()
    )


def test_emitters():
    e = emit
    two = lambda a, b: None
    run = lambda body, *args: make(two, e.prologue(0) + body + e.return_value())(*args)
    a, b = e.load_fast("a"), e.load_fast("b")
    assert run(e.call(e.load_global("max"), a, b), 3, 8) == 8
    assert run(e.call(a + [Instruction("LOAD_ATTR", "upper")]), "x", 0) == "X"
    assert run(a + b + e.build_tuple(2), 1, 2) == (1, 2)
    assert run(a + b + e.copy(2) + e.build_tuple(3), 1, 2) == (1, 2, 1)
    with pytest.raises(UnboundLocalError):
        make(
            lambda a: None,
            e.prologue(0)
            + e.delete_fast("a")
            + [Instruction("LOAD_FAST_CHECK" if VERSION >= (3, 12) else "LOAD_FAST", "a")]
            + e.return_value(),
        )(1)


# ---- the canonical operations, executed ----------------------------------------------------------
class Manager:
    def __init__(self, swallow):
        self.swallow, self.log = swallow, []

    def __enter__(self):
        self.log.append("in")
        return self

    def __exit__(self, kind, value, traceback):
        self.log.append(kind and kind.__name__)
        return self.swallow


class Base:
    def __init__(self, n):
        self.n = n

    def m(self, k):
        return self.n + k


class Derived(Base):
    def __init__(self, n):
        super().__init__(n * 2)

    def m(self, k):
        return super().m(k) + super(Derived, self).m(1)


def control(a, b):
    out = []
    for i in range(a):
        if i == b:
            continue
        elif i > 5:
            break
        out.append(i or "zero")
    else:
        out.append("else")
    while a and b:
        a, b = a - 1, b - 1
    x = None if a else b
    return out, a or b, a and b, x is None, x is not None, a in out, b not in out, 1 < a <= 4


def containers(a, b):
    t = (a, *range(b), "e")
    d = {"k": a, **{"x": b}, 3: t}
    first, *middle, last = t
    (p, q), r = (a, b), {a, *t}
    s = t[1:3], t[::2], t[-1]
    lst = list(range(10))
    lst[2:4] = [a]
    del lst[0], d["k"]
    lst[1] += 5
    rest = sorted(map(str, r)), s, lst, {1: 2, 3: 4}, {1, 2, 3}, [1, 2, 3]
    return t, d, first, middle, last, p, q, rest


def comprehensions(a, b):
    x = "kept"
    squares = [x * x for x in range(a) if x % 2]
    table = {x: [y for y in range(x)] for x in range(b)}
    closure = [f() for f in [lambda y=x: (y, a) for x in range(3)]]
    return squares, table, {x for x in squares}, x, closure, sum(y for y in range(a))


def exceptions(a, b):
    log = []
    try:
        try:
            log.append(a // b)
            [][a]
        except ZeroDivisionError as e:
            log.append(str(e))
            raise ValueError("v") from e
        except (IndexError, KeyError):
            log.append("index")
        else:
            log.append("else")
        finally:
            log.append("finally")
    except ValueError as e:
        log.append((str(e), type(e.__cause__).__name__))
    for i in range(3):
        try:
            if i == 1:
                continue
            log.append(i)
        finally:
            log.append(-i)
    assert log, "no log"
    return log


def managers(a, b):
    m, n = Manager(True), Manager(False)
    with m as x, n:
        x.log.append(a // b)
    with n:
        n.log.append("body")
    try:
        with n:
            raise KeyError(a)
    except KeyError:
        m.log.append("out")
    return m.log, n.log


def calls(a, b, *rest, key=5, **kw):
    def inner(p, /, q=a, *args, k=1, **kws):
        nonlocal a
        a += 1
        return p, q, args, k, kws, a

    args, kwargs = (1, 2, 3), {"k": 4, "z": 5}
    found = [inner(1), inner(1, 2, 3, k=9), inner(*args, **kwargs), inner(*args, 7, k=0)]
    found += [inner(1, **kwargs), rest, key, kw, "a,b".split(",")]
    return found, max([a, b], key=lambda v: -v), (lambda *s, **t: (s, t))(1, u=2)


def variables(a, b):
    if a > 3:
        late = a
    try:
        late
    except UnboundLocalError:
        late = "unbound"
    del b
    try:
        return b
    except NameError as e:
        return type(e).__name__, late


def matching(a, b):
    out = []
    for subject in (a, (a, b), {"k": b, "r": 1}, [1, 2, 3, b], Base(b), "s", None):
        match subject:
            case int(n) if n > 100:
                out.append("big")
            case int():
                out.append("int")
            case (x, y):
                out.append((x, y))
            case [1, *others]:
                out.append(others)
            case {"k": v, **more}:
                out.append((v, more))
            case Base(n=value):
                out.append(value)
            case None:
                out.append("none")
            case _:
                out.append("other")
    return out


def inheritance(a, b):
    return Derived(a).m(b)


FUNCTIONS = [control, containers, comprehensions, exceptions, managers, calls]
FUNCTIONS += [variables, matching, inheritance]
