"""Threads and leaks: many threads compile and call at once; nothing is kept alive.

python -m tests.fuzz.threads [--seconds 30] [--calls 10000] [--cycles 200]
"""

import argparse
import gc
import random
import sys
import threading
import time
import types
import weakref

import torch

import minidynamo
from minidynamo import frame_hook


def functions(count):
    """Functions with code objects of their own, with a break and an inlined call each, and what
    they give."""
    made = []
    for n in range(count):
        space = {"torch": torch, "minidynamo": minidynamo}
        exec(
            compile(
                f"def h(x): return x * {n + 1}\n"
                "def f(x, log):\n"
                f"    y = h(x) + {n}\n"
                f"    log.append({n})\n"
                "    minidynamo.graph_break()\n"
                "    try:\n"
                "        return y - len(log), log[5]\n"
                "    except IndexError:\n"
                "        return h(y), None",
                f"<thread {n}>",
                "exec",
            ),
            space,
        )
        made.append(space["f"])
    return made


def hammer(seconds, threads=8, backend="eager"):
    """(calls, errors): every thread calls shared and own functions, some with new shapes (which
    recompile), some reset."""
    shared, errors, calls, stop = functions(6), [], [0] * threads, time.time() + seconds
    plain = functions(6)

    def work(me):
        rng, own, own_plain = random.Random(me), functions(3), functions(3)
        while time.time() < stop and not errors:
            pool, reference = rng.choice([(shared, plain), (own, own_plain)])
            n = rng.randrange(len(pool))
            x = torch.randn(rng.randint(1, 5), 2)
            a, b = [], []
            try:
                if rng.random() < 0.002:
                    minidynamo.reset()
                got, want = minidynamo.compile(pool[n], backend=backend)(x, a), reference[n](x, b)
                if a != b or not torch.equal(got[0], want[0]) or got[1] != want[1]:
                    errors.append(f"thread {me}, function {n}: {got} instead of {want}")
            except Exception as error:
                errors.append(f"thread {me}, function {n}: {type(error).__name__}: {error}")
            calls[me] += 1

    workers = [threading.Thread(target=work, args=(n,), daemon=True) for n in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(seconds + 60)
        if worker.is_alive():
            errors.append("a deadlock")
    if frame_hook.get_callback() is not None:
        errors.append("the hook is still on")
    return calls, errors


def growth(action, rounds, measure):
    """How much `measure()` grew over the second half of `rounds`."""
    for _ in range(rounds // 2):
        action()
    gc.collect()
    before = measure()
    for _ in range(rounds - rounds // 2):
        action()
    gc.collect()
    return measure() - before


def objects():
    return len(gc.get_objects())


def leaks(calls, cycles):
    """{what: growth}; all should be about zero."""
    found = {}
    f, x, log = functions(1)[0], torch.ones(2), []
    compiled = minidynamo.compile(f, backend="eager")

    def call():
        log.clear()
        compiled(x, log)

    found["objects per 10,000 calls"] = growth(call, calls, objects)
    for name, thing in (
        ("tensor", x),
        ("function", f),
        ("code", f.__code__),
        ("list", log),
        ("hook's callback", minidynamo.compile(f, backend="eager")),
    ):
        found[f"references to the {name}"] = growth(
            call, calls // 4, lambda thing=thing: sys.getrefcount(thing)
        )
    entry = frame_hook.get_cache(f.__code__)[0]
    found["references to the replacement code"] = growth(
        call, calls // 4, lambda: sys.getrefcount(entry[1])
    )
    found["references to the guard"] = growth(call, calls // 4, lambda: sys.getrefcount(entry[0]))

    def bad():
        try:
            compiled(x, None)
        except AttributeError:
            pass

    found["objects when it raises"] = growth(bad, calls // 10, objects)
    del entry

    def cycle():
        g = types.FunctionType(f.__code__, f.__globals__)
        minidynamo.compile(g, backend="eager")(x, [])
        minidynamo.reset()

    found["objects per compile and reset"] = growth(cycle, cycles, objects) / (cycles / 2)
    alive = []

    def new_code():
        g = functions(1)[0]
        minidynamo.compile(g, backend="eager")(x, [])
        alive.append(weakref.ref(g.__code__))
        minidynamo.reset()

    for _ in range(10):
        new_code()
    [gc.collect() for _ in range(4)]
    found["dead code objects kept"] = sum(ref() is not None for ref in alive)
    minidynamo.reset()
    for _ in range(2):
        net = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU())
        refs = [weakref.ref(net), weakref.ref(net[0].weight)]
        code, made = torch.nn.Sequential.forward.__code__, minidynamo.compile(net, backend="eager")
        made(torch.ones(1, 2))
        entries = len(frame_hook.get_cache(code) or [])
        del net, made
        [gc.collect() for _ in range(4)]  # the module dies, then what its entries held, then ...
        found["a dead module kept"] = sum(ref() is not None for ref in refs)
        found["entries of a dead module"] = len(frame_hook.get_cache(code) or []) if entries else -1
    return found


def main():
    parser = argparse.ArgumentParser()
    for name, default in (("--seconds", 30), ("--calls", 10000), ("--cycles", 200)):
        parser.add_argument(name, type=int, default=default)
    options = parser.parse_args()
    torch.set_num_threads(1)
    calls, errors = hammer(options.seconds)
    print(
        f"8 threads, {options.seconds} s: {sum(calls)} calls "
        f"({min(calls)} to {max(calls)} per thread), {len(errors)} errors",
        *errors[:5],
        sep="\n  ",
    )
    found = leaks(options.calls, options.cycles)
    for name, value in found.items():
        print(f"{name:40} {value}")
    sys.exit(
        bool(errors)
        or any(
            value > 20 if name.startswith("objects") else value > 0 for name, value in found.items()
        )
    )


if __name__ == "__main__":
    main()
