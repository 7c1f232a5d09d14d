"""Checks of notebook 10: scheduling and fusion."""

import torch

from . import Watched, close, exercise, row


@exercise("10.1", "the same iteration")
def _(answer):
    yield row("y[i] and y[i]", lambda: answer((1, 0), (1, 0)), True)
    yield row("y[i] and y[i - 1]", lambda: answer((1, 0), (1, -1)), False)
    yield row("y[i] and y[i + 1]", lambda: answer((1, 0), (1, 1)), False)
    yield row("y[2 i] and y[i]", lambda: answer((2, 0), (1, 0)), False)
    yield row("y[i] and y[2 i]", lambda: answer((1, 0), (2, 0)), False)
    yield row("y[i + 1] and y[2 i], equal for i = 1 only", lambda: answer((1, 1), (2, 0)), False)
    yield row("y[3 i + 1] and y[3 i + 1]", lambda: answer((3, 1), (3, 1)), True)


@exercise("10.2", "bytes saved")
def _(answer):
    sizes = {"x": 100, "y": 40, "z": 4}
    yield row(
        "both read x",
        lambda: answer({"reads": {"x"}, "writes": {"y"}}, {"reads": {"x"}, "writes": {"z"}}, sizes),
        100,
    )
    yield row(
        "the second reads what the first writes",
        lambda: answer({"reads": {"x"}, "writes": {"y"}}, {"reads": {"y"}, "writes": {"z"}}, sizes),
        40,
    )
    yield row(
        "both",
        lambda: answer(
            {"reads": {"x"}, "writes": {"y"}}, {"reads": {"x", "y"}, "writes": {"z"}}, sizes
        ),
        140,
    )
    yield row(
        "nothing in common",
        lambda: answer({"reads": {"x"}, "writes": {"y"}}, {"reads": {"z"}, "writes": set()}, sizes),
        0,
    )


def contested(big, small):
    """`a` may be fused with a distant reader of a large buffer or with a near reader of a small
    one, not with both."""
    return big.sum(0), small.exp() + 1, big.sin() + big.sum(0)


@exercise("10.3", "a better score")
def _(answer):
    for kind in ("vertical", "prologue", "epilogue", "reductions"):
        yield row(
            f"of kind {kind!r}: before a horizontal one",
            lambda kind=kind: answer(kind, 1, 9) > answer("horizontal", 10**9, 0),
        )
    yield row(
        "more bytes come first", lambda: answer("vertical", 1000, 9) > answer("vertical", 10, 0)
    )
    yield row(
        "of equal pairs, the nearer", lambda: answer("vertical", 10, 1) > answer("vertical", 10, 5)
    )

    import minidynamo
    from miniinductor.schedule.scheduler import Scheduler

    original = Scheduler.candidates
    watched = Watched(answer)

    def candidates(self, nodes, decided):
        def score(candidate):
            first, second, category, saved = candidate
            return watched(category, saved, abs(self.rank[first] - self.rank[second]))

        return sorted(original(self, nodes, decided), key=score, reverse=True)

    def compiled():
        Scheduler.candidates = candidates
        try:
            with torch.no_grad():
                return watched.around(lambda: minidynamo.explain(contested)(x, y))
        finally:
            Scheduler.candidates = original
            minidynamo.reset()

    x, y = torch.randn(40, 30), torch.randn(30)
    yield row(
        "in the real scheduler: the numbers are right",
        lambda: list(compiled().result),
        list(contested(x, y)),
        same=close,
        after=True,
    )
    yield row(
        "no more memory traffic than with the scheduler's own score",
        lambda: traffic(compiled()) <= traffic(minidynamo.explain(contested)(x, y)),
        after=True,
    )


def traffic(explanation):
    return sum(k.bytes_read + k.bytes_written for k in explanation.main.compiled.kernels)


def node(reads: str, writes: str) -> dict:
    return {"reads": set(reads), "writes": set(writes)}


@exercise("10.4", "greedy fusion")
def _(answer):
    sizes = {"x": 100, "y": 100, "z": 10, "w": 40, "v": 7}

    def groups(**nodes):
        return sorted(sorted(group) for group in answer(nodes, sizes))

    yield row(
        "a chain is one group",
        lambda: groups(a=node("x", "y"), b=node("y", "z"), c=node("z", "w")),
        [["a", "b", "c"]],
    )
    yield row(
        "nodes that share nothing stay apart",
        lambda: groups(a=node("x", "y"), b=node("z", "w")),
        [["a"], ["b"]],
    )
    yield row(
        "readers of the same buffer",
        lambda: groups(a=node("x", "z"), b=node("x", "w")),
        [["a", "b"]],
    )
    yield row(
        "two writers and their reader",
        lambda: groups(a=node("x", "y"), b=node("v", "w"), c=node("yw", "z")),
        [["a", "b", "c"]],
    )

    def blocked():
        """`m` reads what `a` makes and hands on a view without bytes: no pair with it saves."""
        free = dict(sizes, p=0, q=0)
        nodes = {"a": node("x", "p"), "m": node("p", "q"), "c": node("xq", "z")}
        return sorted(sorted(group) for group in answer(nodes, free))

    yield row("a third node in between: a cycle", blocked, [["a"], ["c"], ["m"]])

    def two_between():
        free = dict(sizes, p=0, q=0, r=0)
        nodes = {
            "a": node("x", "p"),
            "m": node("p", "q"),
            "n": node("q", "r"),
            "c": node("xr", "z"),
        }
        return sorted(sorted(group) for group in answer(nodes, free))

    yield row("two nodes in between", two_between, [["a"], ["c"], ["m"], ["n"]])

    free = dict(sizes, p=0, q=0)

    def in_either_direction():
        """`a` and `c` are one first; then `m` stands between `k` and what `c` reads."""
        nodes = {"a": node("xw", ""), "k": node("w", "p"), "m": node("p", "q"), "c": node("xq", "")}
        return sorted(sorted(group) for group in answer(nodes, free))

    yield row(
        "a third node in between, in the other order",
        in_either_direction,
        [["a", "c"], ["k"], ["m"]],
    )

    def greedy():
        """`a` and `d` may be one, or `b` and `c`: each waits for the other pair."""
        nodes = {"a": node("z", "p"), "b": node("y", "q"), "c": node("yp", ""), "d": node("zq", "")}
        return sorted(sorted(group) for group in answer(nodes, free))

    yield row("of two possible pairs, the one that saves more", greedy, [["a"], ["b", "c"], ["d"]])
