"""Checks of notebook 05: guards."""

import torch

from . import exercise, row


@exercise("05.1", "a guard by hand")
def _(answer):
    def f(x, n):
        return x * n

    guard = lambda: answer(f, torch.ones(2, 3), 1)  # noqa: E731
    yield row("the same situation", lambda: guard()(torch.zeros(2, 3), 1))
    yield row("another value", lambda: bool(guard()(torch.ones(2, 3), 2)), False)
    yield row("another shape", lambda: bool(guard()(torch.ones(3, 2), 1)), False)
    yield row(
        "another dtype", lambda: bool(guard()(torch.ones(2, 3, dtype=torch.float64), 1)), False
    )
    yield row("True is not 1", lambda: bool(guard()(torch.ones(2, 3), True)), False)
    yield row("a number where a tensor was", lambda: bool(guard()(1.0, 1)), False)


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

    def checks():
        check = GuardFunction(SourceTree(), [], [answer()], []).check
        before, flags = check(None), torch.backends.mkldnn.flags
        with flags(enabled=not torch.backends.mkldnn.enabled):
            changed = check(None)
        return before, changed, check(None)

    yield row("true now, false with the flag changed, true again", checks, (True, False, True))
    yield row("it prints as Python that names the flag", lambda: "enabled" in answer().code)
