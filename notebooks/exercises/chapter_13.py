"""Checks of notebook 13: the wrapper, memory, autotuning, record and replay."""

import functools
import itertools
import random
import time

import torch

from . import Row, Watched, close, exercise, row


@exercise("13.1", "the lowest gap")
def _(answer):
    small = [
        row(
            "a gap, then nothing: two questions",
            lambda: (answer([(0, 8)], 8), answer([], 64)),
            (8, 0),
        ),
        row("a gap at the start", lambda: answer([(64, 64)], 64), 0),
        row("the start is too small", lambda: answer([(64, 64)], 65), 128),
        row("between two, unsorted", lambda: answer([(256, 64), (0, 128)], 128), 128),
        row("a small block under a large one", lambda: answer([(0, 512), (64, 64)], 64), 512),
        row(
            "of two gaps the lowest, not the tightest",
            lambda: answer([(0, 64), (128, 64), (224, 32)], 16),
            64,
        ),
        row("blocks that overlap", lambda: answer([(0, 100), (50, 100), (160, 8)], 12), 168),
    ]
    yield from small
    if not all(each.passed for each in small):
        yield Row("in the real wrapper", False, "this is tried when the rows above pass")
        return

    import minidynamo
    from benchmarks.models import gpt2
    from miniinductor.runtime import memory

    original, watched = memory.place_in_arena, Watched(answer)

    def place(arena, size, born, dies):
        return watched([(o, n) for o, n, b, d, _ in arena if b <= dies and born <= d], size), None

    def explained():
        with torch.no_grad():
            return minidynamo.explain(model)(**inputs)

    @functools.cache
    def with_answer():
        memory.place_in_arena = place
        try:
            return watched.around(explained)
        finally:
            memory.place_in_arena = original
            minidynamo.reset()

    model, inputs = gpt2(layers=1, sequence=16)
    with torch.no_grad():
        expected = model(**inputs).logits
    yield row(
        "in the real wrapper: the numbers are right",
        lambda: with_answer().result.logits,
        expected,
        same=lambda a, b: torch.allclose(a, b, atol=1e-4),
        after=True,
    )
    yield row(
        "no larger than the wrapper's own arena",
        lambda: with_answer().memory_picture.arena <= explained().memory_picture.arena,
        after=True,
    )
    yield row("more than two buffers were placed by it", lambda: watched.calls > 2, after=True)


@exercise("13.2", "record and replay")
def _(answer):
    import minidynamo
    from miniinductor.toolchain import build_kernels

    with torch.no_grad():
        record = minidynamo.explain(lambda x: torch.softmax(x, -1))(torch.randn(4, 8)).main.compiled
    [known] = record.kernels
    (kernel,) = build_kernels([(known.source.replace(known.name + "(", "NAME("), "softmax")])
    traced = []

    def program(stream, x):
        traced.append(1)
        for _ in range(3):
            out = torch.full_like(x, float("nan"))
            stream.launch(kernel, x, out)
            x = out
        return out

    def expected(x):
        return torch.softmax(torch.softmax(torch.softmax(x, -1), -1), -1)

    xs = [torch.randn(4, 8) for _ in range(3)]
    kept, results = [x.clone() for x in xs], [expected(x) for x in xs]
    call = None

    def first():
        nonlocal call
        call = answer(program)
        return call(xs[0])

    yield row("the first call", first, results[0], same=close)
    yield row("another input", lambda: call(xs[1]), results[1], same=close)
    yield row(
        "earlier results stay what they were",
        lambda: (lambda a: (call(xs[2]), a)[1])(call(kept[0].clone())),
        results[0],
        same=close,
    )
    yield row("the program's Python ran once", lambda: len(traced), 1)
    yield row("the caller's tensors stay what they were", lambda: close(xs, kept), after=True)

    def negated(stream, x):
        out = torch.zeros_like(x)
        stream.launch(lambda source, target: torch.neg(source, out=target), x, out)
        return out

    yield row(
        "another program, with whole numbers",
        lambda: answer(negated)(torch.arange(5)),
        -torch.arange(5),
        same=close,
    )


@exercise("13.3", "choose by timing")
def _(answer):
    def clock(speeds, seed):
        """A machine that gets 3 percent slower with each run, and is interrupted in one of ten."""
        noise, runs = random.Random(seed), []

        def seconds(candidate):
            runs.append(candidate)
            return (
                speeds[candidate]
                * 1.03 ** len(runs)
                * (10 if noise.random() < 0.1 else 1)
                * noise.uniform(0.99, 1.01)
            )

        return seconds, runs

    speeds = {"a": 1.5, "b": 1.0, "c": 2.0, "d": 1.7}
    others = {"b": 2.0, "a": 1.7, "d": 1.5, "c": 1.0}

    def chosen(speeds, seed, rounds=9):
        seconds, runs = clock(speeds, seed)
        return answer(list(speeds), seconds, rounds), runs

    def most_runs(rounds):
        _, runs = chosen(speeds, 0, rounds)
        return max(map(runs.count, speeds))

    def at_most(got, limit):
        return got <= limit

    yield row(
        "on an unkind machine, 20 times",
        lambda: [chosen(speeds, seed)[0] for seed in range(20)],
        ["b"] * 20,
    )
    yield row(
        "the fastest one is measured last",
        lambda: [chosen(others, seed)[0] for seed in range(20)],
        ["c"] * 20,
    )
    yield row("at most 9 runs each", lambda: most_runs(9), 9, same=at_most, after=True)
    yield row("at most 3, where 3 are asked for", lambda: most_runs(3), 3, same=at_most, after=True)

    from miniinductor.toolchain import build_kernels

    def source(passes):
        """A running value over 256 kB of floats, so many times."""
        return (
            'extern "C" int NAME(void** args) { const float* x = (const float*)args[0]; double '
            "total = 0;\n"
            f"for (long p = 0; p < {passes}; p++) for (long i = 0; i < 65536; i++) total = total * "
            "0.5 + x[i];\n"
            "*(float*)args[1] = (float)total; return 0; }"
        )

    def real():
        passes = [40, 1, 80]
        kernels = dict(zip(passes, build_kernels([(source(n), "running") for n in passes])))
        x, out = torch.randn(65536), torch.full((1,), float("nan"))

        def seconds(n):
            start = time.perf_counter()
            kernels[n](x, out)
            return time.perf_counter() - start

        return answer(passes, seconds, 9)

    yield row("real kernels: one pass over an array, 40 and 80", real, 1)


@exercise("13.4", "a plan for the arena")
def _(answer):
    chain = [("a", 64, 0, 1), ("b", 64, 1, 2), ("c", 64, 2, 3), ("d", 64, 3, 4)]
    yield row("a chain needs two places", lambda: answer(chain), {"a": 0, "b": 64, "c": 0, "d": 64})
    mixed = [("s", 16, 0, 3), ("x", 64, 0, 1), ("y", 96, 2, 3)]
    yield row("the largest first", lambda: answer(mixed), {"y": 0, "x": 0, "s": 96})
    yield row(
        "the last step is shared",
        lambda: answer([("a", 32, 0, 5), ("b", 32, 5, 9), ("c", 32, 6, 9)]),
        {"a": 0, "b": 32, "c": 0},
    )
    equals = [("a", 64, 1, 2), ("b", 64, 2, 3), ("z", 64, 0, 9)]
    yield row(
        "of equals, the one that begins first", lambda: answer(equals), {"z": 0, "a": 64, "b": 128}
    )

    def overlaps():
        """Two of one plan that share a byte and a step, each with its offset; None if there are
        none in 30 plans."""
        draw = random.Random(0)
        for _ in range(30):
            lives = []
            for number in range(6):
                first = draw.randint(0, 8)
                last = first + draw.randint(0, 6)
                lives.append((f"t{number}", 16 * draw.randint(1, 6), first, last))
            offsets = answer(list(lives))
            for one, other in itertools.combinations(lives, 2):
                (a, size, first, last), (b, length, begin, end) = one, other
                at_once = begin <= last and first <= end
                apart = offsets[a] + size <= offsets[b] or offsets[b] + length <= offsets[a]
                if at_once and not apart:
                    return f"{one} at {offsets[a]}, {other} at {offsets[b]}"
        return None

    yield row("30 random plans: nothing overlaps", overlaps, None)
