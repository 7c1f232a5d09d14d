"""Checks of notebook 05: guards."""

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
    yield row("another shape is named", lambda: "shape" in answer(record, torch.ones(5), 3))
    yield row("another factor is named", lambda: "factor" in answer(record, torch.ones(2), 4))


@exercise("05.3", "a new guard kind")
def _(answer):
    from minidynamo.guards import GuardFunction
    from minidynamo.sources import SourceTree

    def plain():
        guard = answer()  # a guard function would count an error of the check as "false"
        return bool(eval(guard.code, dict(guard.pins)))

    def checks():
        check = GuardFunction(SourceTree(), [], [answer()], []).check
        before, flags = check(None), torch.backends.mkldnn.flags
        with flags(enabled=not torch.backends.mkldnn.enabled):
            changed = check(None)
        return before, changed, check(None)

    yield row("the check runs, and is true now", plain)
    yield row("true now, false with the flag changed, true again", checks, (True, False, True))
    yield row("it prints as Python that names the flag", lambda: "enabled" in answer().code)
