"""Random Python programs over symbolic sizes, captured once and run at other sizes, against plain
Python.  `make fuzz-shapes`.

In:   a seed.  Out: the text of a function of two matrices and an int that computes with sizes,
      branches on them, loops and builds lists.

    python tests/sweeps/shapes.py --count 1000 --runs 20 [--backend inductor]
    python tests/sweeps/shapes.py --seed 17 --count 1       # one, with its text and guards

At each further size: a guard holds exactly where nothing is compiled again; the results are those
of plain Python, types and all. tests/sweeps/symbolic.py does the same for the compiler alone.
"""

import argparse
import os
import random
import sys
import time

TESTS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path[:0] = [os.path.dirname(TESTS)]

import torch  # noqa: E402

import minidynamo  # noqa: E402
from benchmarks.error_bound import too_far  # noqa: E402
from minidynamo import records  # noqa: E402
from minidynamo.frame import frame_hook

SIZES = [2, 3, 4, 5, 6, 7, 8, 9, 11, 12, 15, 16, 17, 20, 24, 31, 32, 33]
INTS = (
    "{x}.shape[0]; {x}.shape[1]; len({x}); {x}.numel(); {x}.size(-1); {n} + {m}; "
    "{n} * {k}; {n} // {k}; {n} % {k}; max({n}, {m}); min({n}, {m}); "
    "abs({n} - {m}); int({n} * 0.5); math.ceil({n} / {k}); {n} - {m}; -{n} % {k}; "
    "round({n} / 3); {n} ** 2 // {k}; {x}.stride(0); math.floor({n} / {k}); "
    "divmod({n}, {k})[1]; sum({x}.shape); {x}.shape.numel(); [{n}, {m}][{n} % 2]; "
    "int({n} > {k})"
).split("; ")
TENSORS = (
    "{x} * {n}; {x} + {n} / {k}; {x}[: {n} % 5 + 1]; "
    "{x}[:, {n} % {x}.shape[1]:]; {x}.reshape({x}.shape[1], {x}.shape[0]); "
    "{x}.t(); {x}[::2]; {x}.reshape(-1, 1)[: {n} % 7 + 2] @ {x}[:1]; "
    "torch.cat([{x}, {x}], {k} % 2); {x} - {x}.mean({k} % 2, keepdim=True); "
    "torch.softmax({x}, -1); {x}.new_ones({n} % 6 + 1, {m} % 4 + 2); "
    "torch.arange({n} % 9 + 1)[None].to({x}.dtype) + {n}; "
    "F.pad({x}, (0, {n} % 3, {m} % 2, 0)); ({x} @ {x}.t()) / {x}.shape[1]; "
    "{x}.sum(0)[None].expand({n} % 4 + 1, -1); {x}.flatten()[None]; "
    "{x} / math.sqrt({x}.shape[1]); {x}.contiguous().view(-1, {x}.shape[1]); "
    "{x}.unfold(0, 2, 1).flatten(1) if {x}.shape[0] > 2 else {x}; "
    "{x}.clone().fill_({n}); torch.tril({x}); {x}.roll({n} % 3, 0); "
    "{x}.repeat({n} % 3 + 1, 1); "
    "{x}.view({x}.numel() // {x}.shape[1], {x}.shape[1]) + 1; "
    "torch.zeros({n} % 5 + 2, {x}.shape[1], dtype={x}.dtype) + {x}[0]; "
    "torch.stack([{x}, {x} * 2], 1).flatten(0, 1); {x}.chunk(2)[0]; "
    "torch.where({x} > 0, {x}, {x} * {n}); "
    "{x} + {y} if {x}.shape == {y}.shape else {x} - {n}; "
    "{x}.split({n} % 4 + 1)[-1]; "
    "torch.cat([{x}, {y}]) if {x}.shape[1] == {y}.shape[1] else {y}; "
    "{x}.masked_fill({x} < 0.1, {n} % 3)"
).split("; ")
TESTS_OF = (
    "{n} > {k}; {n} * {k} == {m}; {n} % {k} == 0; {n} <= {m}; "
    "{x}.shape == {y}.shape; {x}.shape[0] != {k}; {x}.is_contiguous(); {n}; "
    "{n} < {m} < {k} * 3; {x}.shape[0] in ({k}, 4, 8)"
).split("; ")


def program(seed):
    """The text of `f(x, y, n0)`."""
    rng = random.Random(seed)
    tensors, ints, lines = ["x", "y"], ["n0"], []

    def fill(template):
        return template.format(
            x=rng.choice(tensors[-3:]),
            y=rng.choice(tensors),
            n=rng.choice(ints),
            m=rng.choice(ints),
            k=rng.randint(2, 6),
        )

    def statements(count, indent):
        for _ in range(count):
            kind = rng.random()
            if kind < 0.35:
                lines.append(f"{indent}n{len(ints)} = {fill(rng.choice(INTS))}")
                ints.append(f"n{len(ints)}")
            elif kind < 0.8 or indent.count(" ") > 4:
                name = f"t{len(tensors)}"
                lines.append(f"{indent}{name} = {fill(rng.choice(TENSORS))}")
                tensors.append(name)
            elif kind < 0.93:
                lines.append(f"{indent}if {fill(rng.choice(TESTS_OF))}:")
                known = len(tensors), len(ints)
                lines.append(f"{indent}    log.append({rng.choice(ints)})")
                statements(rng.randint(1, 2), indent + "    ")
                lines.append(f"{indent}    x = {tensors[-1]}")
                del tensors[known[0] :], ints[known[1] :]
            elif kind < 0.97:
                lines.append(f"{indent}for i in range({fill('{n} % 3')}):")
                lines.append(f"{indent}    x = {fill(rng.choice(TENSORS))}")
            else:
                lines.append(
                    f"{indent}log.append(f'{{{rng.choice(ints)}}} {{{rng.choice(tensors)}.shape}}')"
                )

    statements(rng.randint(3, 8), "    ")
    results = [
        *rng.sample(tensors, min(2, len(tensors))),
        *rng.sample(ints, min(2, len(ints))),
        f"{tensors[-1]}.shape",
    ]
    return "\n".join(
        ["def f(x, y, n0):", "    log = []", *lines, f"    return x, log, {', '.join(results)}"]
    )


def arguments(rng, layouts):
    a, b, c, d = (rng.choice(SIZES) for _ in range(4))
    b, d = (b, b) if rng.random() < 0.4 else (b, d)
    generator = torch.Generator().manual_seed(a)

    def made(rows, columns, layout):
        return {
            "plain": lambda: torch.randn(rows, columns, generator=generator, dtype=torch.float64),
            "transposed": lambda: torch.randn(
                columns, rows, generator=generator, dtype=torch.float64
            ).t(),
        }[layout]()

    return made(a, b, layouts[0]), made(c, d, layouts[1]), rng.choice(SIZES)


def difference(got, expected, exact=True):
    """What differs, or ''."""
    if type(got) is not type(expected):
        return f"{type(got).__name__}, plain Python gives {type(expected).__name__}"
    if isinstance(expected, torch.Tensor):
        if (got.shape, got.dtype, got.stride()) != (
            expected.shape,
            expected.dtype,
            expected.stride(),
        ):
            return (
                f"{tuple(got.shape)} {got.stride()}, plain Python gives "
                f"{tuple(expected.shape)} {expected.stride()}"
            )
        same = (
            torch.equal(got.nan_to_num(), expected.nan_to_num())
            if exact
            else not too_far(got, expected, 30, "a dozen ops, each of which rounds")
        )
        return "" if same else f"values differ by {(got - expected).abs().max()}"
    if isinstance(expected, (tuple, list)):
        if len(got) != len(expected):
            return f"{len(got)} items, plain Python gives {len(expected)}"
        return next(
            (found for a, b in zip(got, expected) if (found := difference(a, b, exact))), ""
        )
    return "" if got == expected else f"{got!r}, plain Python gives {expected!r}"


def plain(function, args):
    try:
        with torch.no_grad():
            result = function(*args)
        return (
            result
            if all(t.numel() < 100_000 for t in result if isinstance(t, torch.Tensor))
            else None
        )
    except (RuntimeError, IndexError, ValueError, ZeroDivisionError, TypeError):
        return None


def check(seed, runs=20, backend="eager", verbose=False):
    """(what is wrong or '', runs that a guard let through, compilations)."""
    text, rng = program(seed), random.Random(seed + 1)
    space, file = (
        {"torch": torch, "F": torch.nn.functional, "math": __import__("math")},
        f"<program {seed}>",
    )
    exec(compile(text, file, "exec"), space)
    function, layouts = space["f"], rng.choices(["plain", "plain", "transposed"], k=2)
    first = next(
        (
            args
            for args in (arguments(rng, layouts) for _ in range(20))
            if plain(function, args) is not None
        ),
        None,
    )
    if verbose:
        print(text)
    if first is None:
        return "", 0, 0
    minidynamo.reset()
    ran = 0
    with (
        minidynamo.config.patch(raise_internal_errors=True, recompile_limit=10_000),
        torch.no_grad(),
    ):
        compiled = minidynamo.compile(function, backend=backend, dynamic=True)
        for args in [first, *(arguments(rng, layouts) for _ in range(runs * 4))]:
            expected = plain(function, args)
            if expected is None:
                continue
            entries = list(frame_hook.get_cache(function.__code__) or ())
            fits = any(entry[0](function, *args) for entry in entries)
            before = set(records.frames)
            try:
                got = compiled(*args)
            except Exception as error:
                return f"{type(error).__name__}: {error}", ran, len(entries)
            again = any(
                record not in before and record.code is function.__code__
                for record in records.frames
            )
            if entries and fits == again:
                problem = (
                    f"guards {'hold' if fits else 'fail'} and the frame was "
                    f"{'' if again else 'not '}compiled again at "
                    f"{[tuple(a.shape) for a in args[:2]]}"
                )
                return problem, ran, len(entries)
            found = difference(got, expected, exact=backend == "eager")
            if found:
                return (
                    f"{found} at {[tuple(a.shape) for a in args[:2]]}, {args[2]}",
                    ran,
                    len(entries),
                )
            ran += fits
            if ran >= runs or len(entries) > 8:
                break
        if verbose:
            for record in records.frames:
                print(
                    *(record.shape_env.guards() if record.shape_env else ()),
                    record.graph and record.graph.code,
                    sep="\n",
                )
    return "", ran, len(frame_hook.get_cache(function.__code__) or ())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--backend", default="eager")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after so long")
    options = parser.parse_args()
    wrong = runs = graphs = done = 0
    start = time.monotonic()
    for seed in range(options.seed, options.seed + options.count):
        if time.monotonic() - start > options.seconds:
            break
        found, ran, compiled = check(
            seed, options.runs, options.backend, verbose=options.count == 1
        )
        done, runs, graphs = done + 1, runs + ran, graphs + compiled
        if found:
            wrong += 1
            print(f"seed {seed}: {found}", flush=True)
    print(
        f"{done} programs, {runs} runs at sizes that the guards let through, "
        f"{graphs} compilations: {wrong} wrong"
    )
    return wrong > 0


if __name__ == "__main__":
    sys.exit(main())
