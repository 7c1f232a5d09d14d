"""Random programs over symbolic sizes, compiled once and run at many sizes, against eager.  `make
fuzz-symbolic`.

In:   a seed.  Out: a function over tensors of sizes A, B, C; its graph is captured at one choice of
      them and run at others.

    # seeds 0..999, 6 programs per compilation, 20 other sizes each
    python tests/sweeps/symbolic.py --count 1000
    # one, with its graph and kernels
    python tests/sweeps/symbolic.py --seed 17 --count 1

Operations take their sizes from tensors (`x.shape[0]`), as models do.  Sizes that a guard excludes
are not run: capture would compile again.
"""

import argparse
import os
import random
import sys
import traceback

TESTS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path[:0] = [TESTS, os.path.dirname(TESTS)]

import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402
from symbolic_helpers import Symbolic, holds  # noqa: E402

from benchmarks.error_bound import too_far  # noqa: E402

HINTS = [2, 3, 4, 5, 7, 8, 12, 16, 17, 33]
SIZES = [2, 2, 3, 4, 5, 6, 7, 8, 9, 11, 15, 16, 17, 20, 31, 32, 33, 40, 65]
PER_GRAPH = 6


# --- operations: (rng, x, dims, others) -> (new value, its dims) or None.  dims: a text per dimensi
def unary(rng, x, dims, others):
    name = rng.choice(["exp", "sin", "abs", "neg", "sigmoid", "relu", "square", "tanh"])
    return getattr(torch, name)(x), dims


def binary(rng, x, dims, others):
    fitting = [
        (y, d)
        for y, d in others
        if d == dims
        or d == dims[1:]
        or len(d) == len(dims)
        and all(a == b or b == "1" for a, b in zip(dims, d))
    ]
    if not fitting:
        return x + 0.5, dims
    y, _ = rng.choice(fitting)
    return rng.choice(
        [torch.add, torch.sub, torch.mul, torch.maximum, lambda a, b: torch.where(a > b, a, b)]
    )(x, y), dims


def reduction(rng, x, dims, others):
    if not dims:
        return None
    chosen = sorted(rng.sample(range(len(dims)), rng.randint(1, min(2, len(dims)))))
    keep, name = rng.random() < 0.5, rng.choice(["sum", "mean", "amax", "amin", "var"])
    y = (
        torch.var(x, chosen, correction=0, keepdim=keep)
        if name == "var"
        else getattr(torch, name)(x, chosen, keepdim=keep)
    )
    return y, [("1" if k in chosen else d) for k, d in enumerate(dims) if keep or k not in chosen]


def along(rng, x, dims, others):
    if not dims:
        return None
    d = rng.randrange(len(dims))
    function = rng.choice(
        [
            torch.softmax,
            torch.log_softmax,
            torch.cumsum,
            lambda x, d: torch.roll(x, rng.choice([1, -1]), d),
            lambda x, d: torch.flip(x, [d]),
            lambda x, d: x.sort(d)[0],
        ]
    )
    return function(x, d), dims


def norm(rng, x, dims, others):
    return (F.layer_norm(x, (x.shape[-1],)), dims) if dims and dims[-1] != "1" else None


def transposed(rng, x, dims, others):
    order = rng.sample(range(len(dims)), len(dims))
    y = x.permute(order)
    return (y.contiguous() if rng.random() < 0.3 else y), [dims[d] for d in order]


def merged(rng, x, dims, others):
    if len(dims) < 2:
        return None
    d = rng.randrange(len(dims) - 1)
    return x.flatten(d, d + 1), dims[:d] + [f"{dims[d]}*{dims[d + 1]}"] + dims[d + 2 :]


def unmerged(rng, x, dims, others):
    """[.., A*B, ..] -> [.., A, B, ..], sizes read from a tensor that has them."""
    for k, d in enumerate(dims):
        parts = d.split("*")
        sources = [next(((y, own.index(p)) for y, own in others if p in own), None) for p in parts]
        if len(parts) == 2 and all(sources):
            sizes = [y.shape[at] for y, at in sources]
            shape = [x.shape[i] for i in range(len(dims))]
            return x.reshape(shape[:k] + sizes + shape[k + 1 :]), dims[:k] + parts + dims[k + 1 :]
    return None


def resized(rng, x, dims, others):
    d = rng.randrange(len(dims) + 1)
    if rng.random() < 0.5:
        return x.unsqueeze(d), dims[:d] + ["1"] + dims[d:]
    sizes = [-1] * len(dims)
    y, own = rng.choice(others)
    if rng.random() < 0.5 or not own:
        return x.unsqueeze(d).expand(sizes[:d] + [3] + sizes[d:]), dims[:d] + ["3"] + dims[d:]
    k = rng.randrange(len(own))
    return x.unsqueeze(d).expand(sizes[:d] + [y.shape[k]] + sizes[d:]), dims[:d] + [own[k]] + dims[
        d:
    ]


def part(rng, x, dims, others):
    real = [k for k, n in enumerate(dims) if n in ("A", "B", "C") or "*" in n]
    if not real:
        return None
    d = rng.choice(real)
    index = [slice(None)] * len(dims)
    what, new = rng.choice(
        [
            (slice(1, None), f"({dims[d]}-1)"),
            (slice(None, -1), f"({dims[d]}-1)"),
            (slice(None, None, 2), "?"),
            (slice(-2, None), "2"),
            (slice(None, 1), "1"),
            (0, None),
            (-1, None),
        ]
    )
    index[d] = what
    return x[tuple(index)], dims[:d] + ([new] if new else []) + dims[d + 1 :]


def joined(rng, x, dims, others):
    if not dims:
        return None
    d = rng.randrange(len(dims))
    alike = [
        (y, own)
        for y, own in others
        if len(own) == len(dims)
        and all(a == b and a != "?" for k, (a, b) in enumerate(zip(dims, own)) if k != d)
    ]
    y, own = rng.choice(alike) if alike else (x * 2, dims)
    if alike and rng.random() < 0.3 and own == dims and "?" not in dims:
        return torch.stack([x, y], d), dims[:d] + ["2"] + dims[d:]
    return torch.cat([x, y] if rng.random() < 0.5 else [y, x, y], d), dims[:d] + ["?"] + dims[
        d + 1 :
    ]


def padded(rng, x, dims, others):
    if not dims:
        return None
    return F.pad(x, [rng.choice([0, 1, 2]), rng.choice([0, 1])], value=0.5), dims[:-1] + ["?"]


def product(rng, x, dims, others):
    if len(dims) < 2 or len(dims) > 3:
        return None
    if rng.random() < 0.5:
        return x @ x.transpose(-1, -2) * 0.1, dims[:-1] + [dims[-2]]
    return x.transpose(-1, -2) @ x * 0.1, dims[:-2] + [dims[-1], dims[-1]]


def counted(rng, x, dims, others):
    """Numbers made of sizes, positions."""
    if not dims:
        return None
    d = rng.randrange(len(dims))
    return rng.choice(
        [
            lambda: x * x.shape[d],
            lambda: x / (x.shape[d] + 1),
            lambda: x + torch.arange(x.shape[-1], dtype=x.dtype),
            lambda: x * x.numel(),
            lambda: x + x.shape[d] ** 0.5,
            lambda: x + torch.full((x.shape[-1],), 0.5, dtype=x.dtype),
        ]
    )(), dims


def masked(rng, x, dims, others):
    if len(dims) < 2:
        return x.masked_fill(x > 0.3, 0.25), dims
    return rng.choice(
        [lambda: x.tril(), lambda: x.triu(1), lambda: x.masked_fill(x.abs() < 0.3, -1.0)]
    )(), dims


def indexed(rng, x, dims, others):
    if not dims or "?" in dims:
        return None
    d = rng.randrange(len(dims))
    at = torch.arange(x.shape[d])
    return rng.choice(
        [
            lambda: x.index_select(d, at.flip([0])),
            lambda: x.transpose(0, d)[at].transpose(0, d),
            lambda: x.index_add(d, at, x),
            lambda: x.gather(d, (x > 0).long() * 0),
        ]
    )(), dims


def written(rng, x, dims, others):
    if not dims:
        return None
    y = x.clone()
    rng.choice(
        [
            lambda: y.mul_(2),
            lambda: y[1:].add_(1),
            lambda: y.select(0, 0).zero_(),
            lambda: y[..., ::2].mul_(3),
        ]
    )()
    return y, dims


OPERATIONS = [
    *(unary, unary, binary, binary, binary, reduction, reduction, along, norm, transposed, merged),
    *(unmerged, unmerged, resized, part, part, joined, padded, product, counted, masked, indexed),
    written,
]


class Program:
    """Inputs' dims, and a function that replays the same choices on tensors or on fx proxies."""

    def __init__(self, seed):
        self.seed = seed
        rng = random.Random(seed)
        self.dims = [
            rng.sample(["A", "B", "C", "4"], rng.randint(1, 3)) for _ in range(rng.randint(1, 2))
        ]
        self.dtype = rng.choice([torch.float64, torch.float64, torch.float32])
        self.layouts = [rng.choice(["plain", "plain", "permuted", "wider"]) for _ in self.dims]
        self.steps = rng.randint(3, 9)

    def inputs(self, sizes):
        generator, result = torch.Generator().manual_seed(self.seed), []
        for dims, layout in zip(self.dims, self.layouts):
            shape = [eval(d, dict(sizes)) for d in dims]
            x = torch.randn(
                shape[::-1]
                if layout == "permuted"
                else [*shape[:-1], shape[-1] * 2]
                if layout == "wider"
                else shape,
                generator=generator,
                dtype=self.dtype,
            )
            result.append(
                x.permute(list(range(len(shape)))[::-1])
                if layout == "permuted"
                else x[..., ::2]
                if layout == "wider"
                else x
            )
        return result

    def __call__(self, *inputs):
        rng = random.Random(self.seed + 1)
        values = [(x, list(d)) for x, d in zip(inputs, self.dims)]
        for _ in range(self.steps):
            x, dims = rng.choice(values[-3:])
            made = None if len(dims) > 4 else rng.choice(OPERATIONS)(rng, x, dims, values)
            if made is not None:
                values.append(made)
        return [v for v, _ in values[-2:]]


def difference(ours, expected):
    if (
        isinstance(expected, torch.Tensor)
        and ours.dtype == expected.dtype
        and ours.shape == expected.shape
    ):
        if (
            expected.numel()
            and ours.stride() != expected.stride()
            and any(
                n > 1 and a != b for n, a, b in zip(ours.shape, ours.stride(), expected.stride())
            )
        ):
            return f"strides {ours.stride()}, eager's are {expected.stride()}"
        return too_far(ours, expected, 10, "a dozen ops, each of which rounds") or None
    return f"{ours.dtype} {tuple(ours.shape)}, eager gives {expected.dtype} {tuple(expected.shape)}"


def usable(seed, sizes):
    """The program, if it runs in eager at these sizes."""
    program = Program(seed)
    try:
        results = program(*program.inputs(sizes))
    except (RuntimeError, IndexError):
        return None
    return program if all(r.numel() < 200_000 for r in results) else None


def check(seeds, runs=20, verbose=False):
    """[(seed, what is wrong)] and how many runs there were; the programs of `seeds` become one
    graph."""
    rng = random.Random(seeds[0])
    sizes = {name: rng.choice(HINTS) for name in "ABC"}
    programs = [p for p in (usable(s, sizes) for s in seeds) if p]
    if not programs:
        return [], 0
    counts = [len(p.dims) for p in programs]

    def whole(*inputs):
        results, at = [], 0
        for program, count in zip(programs, counts):
            results += program(*inputs[at : at + count])
            at += count
        return tuple(results)

    make = lambda sizes: [x for p in programs for x in p.inputs(sizes)]  # noqa: E731
    code = "def captured({0}):\n    return whole({0})".format(
        ", ".join(f"x{i}" for i in range(sum(counts)))
    )
    scope = {"whole": whole}
    exec(code, scope)
    try:
        with torch.no_grad():
            dims = [
                {k for k, d in enumerate(own) if d in "ABC"} for p in programs for own in p.dims
            ]
            compiled = Symbolic(scope["captured"], make(sizes), dims)
            if verbose:
                print(
                    compiled.record.aten_graph.graph,
                    *[k.source for k in compiled.record.kernels],
                    compiled.record.wrapper_source,
                    sep="\n",
                )
                print(sizes, *compiled.env.guards(), sep="\n")
            notes = [n for n in compiled.record.notes if "runs eagerly" in n]
            if notes:
                return [(seeds[0], notes[0])], 0
            ran = 0
            for attempt in range(runs * 4):
                inputs = make(sizes)
                if all(holds(g, inputs) for g in compiled.env.guards()):
                    try:
                        expected = whole(*inputs)
                    except (RuntimeError, IndexError):
                        expected = None
                    if expected is not None:
                        ran += 1
                        for k, (ours, theirs) in enumerate(zip(compiled(*inputs), expected)):
                            if wrong := difference(ours, theirs):
                                return [(programs[k // 2].seed, f"{wrong} at {sizes}")], ran
                    if ran >= runs:
                        break
                sizes = {name: rng.choice(SIZES) for name in "ABC"}
            return [], ran
    except Exception as error:
        where = "".join(traceback.format_tb(error.__traceback__)[-2:])
        return [(seeds[0], f"{type(error).__name__}: {str(error)[:300]}\n{where}")], 0


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--runs", type=int, default=20)
    options = parser.parse_args()
    wrong = runs = 0
    for first in range(options.seed, options.seed + options.count, PER_GRAPH):
        seeds = list(range(first, min(first + PER_GRAPH, options.seed + options.count)))
        found, ran = check(seeds, options.runs, verbose=options.count == 1)
        if found and len(seeds) > 1:  # alone: smaller
            alone = [one for s in seeds for one in check([s], options.runs)[0]]
            found = alone or found
        for seed, what in found:
            wrong += 1
            print(f"seed {seed}: {what}", flush=True)
        runs += ran * len(seeds)
    print(f"{options.count} programs, {runs} runs: {wrong} wrong")
    return wrong > 0


if __name__ == "__main__":
    sys.exit(main())
