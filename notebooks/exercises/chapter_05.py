"""Checks of notebook 05: guards."""

import ast
import warnings

import torch

from . import exercise, row


@exercise("05.1", "a guard by hand")
def _(answer):
    def f(x, n):
        return x * n

    def holds(*now):
        guard = answer(f, torch.ones(2, 3), 1)
        return bool(guard(torch.zeros(2, 3), 1)), bool(guard(*now))

    double = torch.ones(2, 3, dtype=torch.float64)
    now = {
        "another value": (torch.ones(2, 3), 2),
        "another shape": (torch.ones(3, 2), 1),
        "another dtype": (double, 1),
        "True is not 1": (torch.ones(2, 3), True),
        "a number where a tensor was": (1.0, 1),
    }
    yield row("the same situation", lambda: holds(torch.ones(2, 3), 1), (True, True))
    for label, arguments in now.items():
        yield row(label, lambda arguments=arguments: holds(*arguments), (True, False))


@exercise("05.2", "who fails first")
def _(answer):
    import minidynamo

    def scaled(x, factor):
        return x * factor

    record = minidynamo.explain(scaled, backend="eager")(torch.ones(2), 3).main.record
    yield row(
        "nothing fails for the same arguments",
        lambda: answer(record, torch.ones(2), 3),
        "all guards hold",
    )

    def named(*now):
        text = answer(record, *now)
        return [word for word in ("shape", "factor") if word in text]

    yield row("another shape is named", lambda: named(torch.ones(5), 3), ["shape"])
    yield row("another factor is named", lambda: named(torch.ones(2), 4), ["factor"])


@exercise("05.3", "a new guard kind")
def _(answer):
    from minidynamo.guards.guards import GuardFunction
    from minidynamo.guards.sources import SourceTree

    def plain():
        guard = answer()  # a guard function would count an error of the check as "false"
        return bool(eval(guard.code, dict(guard.pins)))

    def checks():
        check = GuardFunction(SourceTree(), [], [answer()], []).check
        before, flags = check(None), torch.backends.mkldnn.flags
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # `flags` sets others, too, which not all GPUs have
            with flags(enabled=not torch.backends.mkldnn.enabled):
                changed = check(None)
        return before, changed, check(None)

    def of_pinned_names():
        guard = answer()
        names = {n.id for n in ast.walk(ast.parse(guard.code)) if isinstance(n, ast.Name)}
        return bool(names) and names <= guard.pins.keys()

    yield row("the check runs, and is true now", plain)
    yield row("true now, false with the flag changed, true again", checks, (True, False, True))
    yield row("it prints as Python, and each name in it is pinned", of_pinned_names)


@exercise("05.4", "an unsound guard, found")
def _(answer):
    def scaled(x, n):
        return x * n

    def by_two(x, n):
        return x * 2

    ones = torch.ones(2)
    whole = (torch.tensor([2, 4]), 2)
    sets = [(ones, 2), (torch.ones(3), 2), (ones, 3), (ones, 2.0)]

    def found(guard, candidates, graph=by_two, function=scaled):
        wrong = answer(guard, graph, function, candidates)
        return None if wrong is None else [n for n, c in enumerate(candidates) if c is wrong]

    def only_a_tensor(x, n):
        return isinstance(x, torch.Tensor)

    def equal(x, n):
        return n == 2

    def exact(x, n):
        return type(n) is int and n == 2

    yield row("another number gets through", lambda: found(only_a_tensor, sets), [2])
    yield row(
        "2.0 gets through, and makes floats", lambda: found(equal, [whole, (whole[0], 2.0)]), [1]
    )

    def sound_and_not():
        return found(exact, [*sets, whole]), found(equal, [(whole[0], 2.0)])

    yield row("a sound guard has none", sound_and_not, (None, [0]))

    def strict(x, n):
        return {2: True}[n]

    yield row(
        "a guard that raises does not hold",
        lambda: found(strict, [(ones, 5), (ones, 2), (whole[0], 2.0)]),
        [2],
    )

    def halved(x, n):
        return x / (n - 2)

    nan = (torch.tensor([0.0]), 2)
    yield row(
        "NaN is NaN",
        lambda: found(
            equal, [nan, (ones, 2)], graph=lambda x, n: x * float("nan"), function=halved
        ),
        [1],
    )
