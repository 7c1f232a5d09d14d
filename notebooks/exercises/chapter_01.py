"""Checks of notebook 01: eager mode and graph mode."""

import torch

from . import close, exercise, row


@exercise("01.1", "does the recording generalise?")
def _(answer):
    ones = torch.ones(3)
    yield row("a straight chain is safe", lambda: answer(lambda x: torch.relu(x) + 1, ones, -ones))
    yield row(
        "a branch on data is not",
        lambda: answer(lambda x: x if x.sum() > 0 else -x * 2, ones, -ones),
        False,
    )
    yield row(
        "a number from a tensor is not",
        lambda: answer(lambda x: x / float(x.max()), ones, ones * 3),
        False,
    )


def cat_of_list(x):
    parts = [x, x * 2]
    return torch.cat(parts)


def nested_lists(x):
    return torch.cat([torch.cat([x + x]), x * 2])


def with_a_dict(x):
    d = {"a": x}
    return x


@exercise("01.2", "lists in the scripted language")
def _(answer):
    from prior import NotScriptable

    yield row(
        "a list display is accepted",
        lambda: answer(cat_of_list)(torch.ones(2)),
        torch.tensor([1.0, 1, 2, 2]),
        same=close,
    )

    def refuses():
        try:
            answer(with_a_dict)
        except NotScriptable:
            return True
        return False

    yield row(
        "a list inside a list, with a sum in it",
        lambda: answer(nested_lists)(torch.ones(2)),
        torch.tensor([2.0, 2, 2, 2]),
        same=close,
    )
    yield row("a dictionary is still refused", refuses, after=True)


@exercise("01.3", "a stager with a guard")
def _(answer):
    state = {"training": True, "traced": 0}

    def function(x):
        state["traced"] += 1
        return x * 0.5 if state["training"] else x

    def compute():
        staged = answer(function, lambda: state["training"])
        results = [staged(torch.ones(2)), staged(torch.ones(2))]
        state["training"] = False
        return [*results, staged(torch.ones(2))]

    yield row(
        "each flag gives its own program",
        compute,
        [torch.full((2,), 0.5)] * 2 + [torch.ones(2)],
        same=lambda a, b: all(torch.equal(x, y) for x, y in zip(a, b, strict=True)),
    )
    yield row("two programs were traced, the second call was a hit", lambda: state["traced"], 2)


@exercise("01.4", "a key for a recorded program")
def _(answer):
    first = [("add", ("x", "y"), "t"), ("mul", ("t", "x"), "u")]
    renamed = [("add", ("b", "a"), "c"), ("mul", ("c", "b"), "a2")]
    other = [("add", ("b", "a"), "c"), ("mul", ("c", "a"), "d")]

    def same(one, two):
        keys = answer(one), answer(two)
        return {hash(key) for key in keys} and None not in keys and keys[0] == keys[1]

    yield row("other names, the same program", lambda: same(first, renamed))
    yield row(
        "another wiring is another program",
        lambda: (same(first, renamed), same(first, other)),
        (True, False),
    )
    yield row(
        "1 and 1.0 are different",
        lambda: (
            same([("mul", ("x", 1), "t")], [("mul", ("y", 1), "s")]),
            same([("mul", ("x", 1), "t")], [("mul", ("x", 1.0), "t")]),
        ),
        (True, False),
    )
    yield row(
        "a name is no number, whichever number it gets",
        lambda: [
            same([("mul", ("x", "x"), "t")], [("mul", ("x", second), "t")])
            for second in ("x", 0, 1, 2)
        ],
        [True, False, False, False],
    )
    yield row(
        "other operations are different",
        lambda: (
            same([("sin", ("x",), "t")], [("sin", ("y",), "x")]),
            same([("sin", ("x",), "t")], [("cos", ("x",), "t")]),
        ),
        (True, False),
    )
