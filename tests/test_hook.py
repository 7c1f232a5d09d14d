"""The frame hook: signatures, caches, errors, threads, tracing, full stack chunks, reference
counts.  No torch."""

import gc
import sys
import threading
import traceback

import pytest
from other_evaluator import Evaluator

from minidynamo.bytecode import Instruction, assemble, disassemble
from minidynamo.bytecode import assembler as emit
from minidynamo.frame.frame_hook import enabled, get_cache, get_callback, set_cache

STARS = 4 | 8


def yes(func, *params):
    return True


def flat(code, body, varnames=None, extra_stack=0):
    """A replacement: the same parameters, all positional."""
    stars = bool(code.co_flags & 4) + bool(code.co_flags & 8)
    return assemble(
        code,
        body,
        co_varnames=code.co_varnames if varnames is None else varnames,
        co_stacksize=code.co_stacksize + extra_stack,
        co_argcount=code.co_argcount + code.co_kwonlyargcount + stars,
        co_posonlyargcount=0,
        co_kwonlyargcount=0,
        co_flags=code.co_flags & ~STARS,
    )


def patched(code, old, new):
    """The replacement in which constant `old` is `new`."""
    body = disassemble(code)
    for ins in body:
        if ins.op in ("LOAD_CONST", "RETURN_CONST") and ins.arg == old:
            ins.arg = new
    return flat(code, body)


def renewed(func, code, args):
    """An entry: the replacement in which "old" is "new", for all arguments."""
    return yes, patched(code, "old", "new")


def returning(code, value):
    body = [ins for ins in disassemble(code) if ins.op in ("COPY_FREE_VARS", "MAKE_CELL", "RESUME")]
    return flat(code, body + emit.load_const(value) + emit.return_value())


def only(function, entry):
    """A callback with one entry for `function`; everything else runs as is."""

    def callback(func, code, args):
        if code is not function.__code__:
            return set_cache(code, None)
        return entry(func, code, args) if callable(entry) else entry

    return callback


@pytest.fixture(autouse=True)
def hook_is_off_afterwards():
    yield
    assert get_callback() is None


# ---- replacing -----------------------------------------------------------------------------------
def test_every_signature_is_bound_before_the_swap():
    def f(a, /, b, c=3, *args, d, e=5, **kw):
        return "old", a, b, c, args, d, e, kw

    seen = []

    def entry(func, code, args):
        seen.append(args)
        return yes, patched(code, "old", "new")

    run = enabled(f, only(f, entry))
    assert run(1, 2, d=4) == ("new", 1, 2, 3, (), 4, 5, {})
    assert run(1, 2, 9, 10, 11, d=4, e=0, z=1) == ("new", 1, 2, 9, (10, 11), 4, 0, {"z": 1})
    # frame order: positional, keyword-only, *args, **kwargs
    assert seen == [(1, 2, 3, 4, 5, (), {})]
    with pytest.raises(TypeError, match="missing"):
        run(1)
    assert f(1, 2, d=4)[0] == "old"


def test_cells_free_variables_methods_and_super():
    free = 10

    def f(a, b):
        nonlocal free
        get = lambda: a + b + free
        free += 1
        return get(), "old"

    assert enabled(f, only(f, renewed))(1, 2) == (14, "new") and free == 11

    class A:
        def m(self, k):
            return k

    class B(A):
        def m(self, k):
            return super().m(k) + 1, "old"

    b = B()
    B.m = enabled(B.m, only(B.m, renewed))
    assert b.m(3) == B.m(b, 3) == (4, "new")


def test_the_replacement_may_fail_catch_and_loop():
    def f(a):
        try:
            for i in range(a):
                if i == 3:
                    raise ValueError("old")
            return i
        except ValueError as e:
            return str(e)

    run = enabled(f, only(f, renewed))
    assert [run(2), run(9)] == [1, "new"]

    def g(a):
        return 10 / a, "old"

    run = enabled(g, only(g, renewed))
    for _ in range(100):
        with pytest.raises(ZeroDivisionError) as info:
            run(0)
    last = traceback.extract_tb(info.value.__traceback__)[-1]
    assert (last.name, last.line) == ("g", 'return 10 / a, "old"') and last.filename == __file__
    assert run(5) == (2.0, "new")


def test_generators_coroutines_and_class_bodies_run_as_they_are():
    def g(n):
        for i in range(n):
            yield i

    async def c():
        return 5

    def f():
        class Body:
            x = 3

        async_result = c()
        try:
            async_result.send(None)
        except StopIteration as stop:
            return list(g(3)), stop.value, Body.x, [i for i in range(2)], eval("1 + 1")

    asked = []

    def callback(func, code, args):
        asked.append(code.co_name)
        set_cache(code, None)

    assert enabled(f, callback)() == ([0, 1, 2], 5, 3, [0, 1], 2)
    assert not {"g", "c", "Body"} & set(asked) and "f" in asked


# ---- the cache -----------------------------------------------------------------------------------
@pytest.mark.parametrize("change", ["clear", "append", "replace", "skip"])
def test_a_guard_may_change_the_cache_it_is_called_from(change):
    def f(x):
        return "as is"

    code = f.__code__

    def entry(value, verdict):
        def guard(func, x):
            cache = get_cache(code)
            if change == "clear" and cache:
                cache.clear()
            elif change == "append" and len(cache) < 50:
                cache.append(entry(value + 1, verdict))
            elif change == "replace":
                set_cache(code, [])
            elif change == "skip":
                set_cache(code, None)
            gc.collect(0)  # (a whole one takes long in a process full of tests)
            return verdict

        return guard, returning(code, value)

    for verdict in (True, False):
        set_cache(code, [entry(0, verdict) for _ in range(5)])
        assert enabled(f, lambda func, code, args: None)(1) == (0 if verdict else "as is")


# ---- errors --------------------------------------------------------------------------------------
def test_errors_of_callback_and_guard_unwind_the_frame():
    def f(x):
        return x

    def bad(func, *params):
        raise KeyError("guard")

    class Odd:
        def __bool__(self):
            raise KeyError("truth")

    def fails(func, code, args):
        raise RuntimeError("callback")

    def caller(run):
        try:
            run(object())
        except Exception as error:
            return repr(error)

    for _ in range(200):
        assert caller(enabled(f, fails)) == "RuntimeError('callback')"
    code = returning(f.__code__, 1)
    for guard, text in (
        (bad, "KeyError('guard')"),
        (lambda *a: Odd(), "KeyError('truth')"),
        (5, "TypeError(\"'int' object is not callable\")"),
    ):
        for others in ([], [(yes, code)]):
            set_cache(f.__code__, [(guard, code), *others])
            assert caller(enabled(f, fails)) == text
    set_cache(f.__code__, [(lambda *a: [], code), (lambda *a: [1], code)])
    assert enabled(f, fails)(2) == 1


# ---- switching -----------------------------------------------------------------------------------
def test_where_another_tool_is_installed_functions_run_as_they_are():
    def f(x):
        return x, "old"

    set_cache(f.__code__, [(yes, patched(f.__code__, "old", "new"))])
    run, tool = enabled(f, only(f, None)), Evaluator()
    tool.install(tool.address)
    try:
        assert run(3) == (3, "old") and tool.installed() == tool.address
    finally:
        tool.install(tool.default)
    assert run(3) == (3, "new") and tool.installed() == tool.default


# ---- threads, tracing, stacks --------------------------------------------------------------------
def test_threads_have_their_own_callbacks():
    def f(x):
        return x, "old"

    set_cache(f.__code__, [(lambda func, x: x % 2 == 0, patched(f.__code__, "old", "new"))])
    run, failures, barrier = enabled(f, only(f, None)), [], threading.Barrier(8)

    def work(hooked):
        barrier.wait()
        for i in range(3000):
            got = (run if hooked else f)(i)
            if got != (i, "new" if hooked and i % 2 == 0 else "old") or get_callback() is not None:
                failures.append((hooked, i, got))

    threads = [threading.Thread(target=work, args=(n % 2,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_tracing_sees_the_function_and_not_the_guards():
    def guard(func, x):
        return True

    def f(x):
        y = x + 1
        return y

    set_cache(f.__code__, [(guard, flat(f.__code__, disassemble(f.__code__)))])
    run, events = enabled(f, lambda *a: None), []

    def tracer(frame, event, arg):
        events.append((frame.f_code.co_name, event))
        return tracer

    old = sys.gettrace()
    sys.settrace(tracer)
    try:
        run(1)
    finally:
        sys.settrace(old)
    events = [e for e in events if e[0] in ("f", "guard")]
    assert events == [("f", "call"), ("f", "line"), ("f", "line"), ("f", "return")]

    profile = []
    sys.setprofile(lambda frame, event, arg: profile.append((frame.f_code.co_name, event)))
    try:
        run(1)
    finally:
        sys.setprofile(None)
    assert [e for e in profile if e[0] in ("f", "guard")] == [("f", "call"), ("f", "return")]


def jump_if_false(target):
    """Pop a value of any type; if it is false, jump forward."""
    if sys.version_info < (3, 12):
        return [Instruction("POP_JUMP_FORWARD_IF_FALSE", target)]
    return ([Instruction("TO_BOOL")] if sys.version_info >= (3, 13) else []) + [
        Instruction("POP_JUMP_IF_FALSE", target)
    ]


def wide(code, size, count):
    """The replacement of g(n, k): needs `size` slots, then calls on; at the bottom it returns 0."""
    names = tuple(f"x{i}" for i in range(size))
    body = emit.prologue(0)
    for name in names:
        body += emit.load_fast("n") + emit.store_fast(name)
    end = emit.load_const(0)
    body += emit.load_fast("n") + jump_if_false(end[0])
    body += (
        emit.load_const(1)
        + emit.call(
            emit.load_global(count),
            emit.load_fast("n") + emit.load_const(1) + [Instruction("BINARY_OP", 10)],
            emit.load_fast("k"),
        )
        + [Instruction("BINARY_OP", 0)]
        + emit.return_value()
    )
    body += end + emit.load_fast(names[-1]) + emit.pop_top() + emit.return_value()
    return flat(code, body, code.co_varnames + names, 20)


def chunk_g(n, k):
    return 1 + chunk_g(n - 1, k) if n else 0


@pytest.mark.parametrize("size", [1, 7, 50, 300, 1900, 5000])
def test_frames_that_do_not_fit_their_stack_chunk(size):
    """Replacements far larger than the frame, nested: sooner or later the 16 KB chunk is full."""
    code = chunk_g.__code__
    set_cache(code, [(yes, wide(code, size, "chunk_g"))])
    run = enabled(chunk_g, lambda *a: None)
    try:
        for depth in (0, 1, 5, 40, 120):
            assert run(depth, object()) == depth
        before = len(gc.get_objects())
        for _ in range(20):
            run(60, object())
        assert len(gc.get_objects()) < before + 50
    finally:
        set_cache(code, [])


def test_no_references_leak():
    def f(a, b, *args, c=1):
        d = (a, b)
        if a is None:
            raise ValueError
        return d

    code = f.__code__
    set_cache(
        code, [(lambda func, a, *rest: a != b"", patched(code, 1, 1)), (yes, returning(code, None))]
    )
    run, a, b = enabled(f, lambda *args: None), object(), object()

    def many(n):
        for i in range(n):
            run(a, b, b, c=a)
            run(b"", a)
            try:
                run(None, b)
            except ValueError:
                pass

    many(100)
    entries = [x for e in get_cache(code) for x in e]

    def counts():
        return [sys.getrefcount(x) for x in (a, b, f, code, run, *entries)]

    before = counts()
    many(5000)
    assert counts() == before
