"""Checks of notebook 07: side effects."""

import torch

from . import exercise, row


def puzzle(x, a, b):
    a += [2]
    b = b + [3]
    b.append(4)
    return x * len(a), len(a), len(b)


@exercise("07.1", "predict the puzzle")
def _(answer):
    import minidynamo

    a = [1]
    first, second, third = minidynamo.compile(puzzle, backend="eager")(torch.ones(1), a, a)
    minidynamo.reset()
    yield row("the tensor", lambda: float(answer()[0]), first.item(), secret=True)
    yield row("len(a)", lambda: answer()[1], second, secret=True)
    yield row("len(b)", lambda: answer()[2], third, secret=True)


@exercise("07.2", "a list whose writes wait")
def _(answer):
    real = [1, 2]
    shadows = []

    def use():
        shadow = answer(real)
        shadow.append(3)
        shadow[0] = 10
        shadows.append(shadow)
        return [shadow[i] for i in range(len(shadow))]

    yield row("reads see the writes", use, [10, 2, 3])
    yield row("the real list is unchanged", lambda: (shadows[0], list(real))[1], [1, 2])

    def replay():
        same = real
        shadows[0].replay()
        return real, real is same

    yield row("replay brings it up to date, in place", replay, ([10, 2, 3], True))


def writes_one(x, log, table):
    log.append(len(table))
    return x + 1


def writes_nested(x, log, table):
    table["inner"].append(1)
    return x + 1


def writes_nothing(x, log, table):
    log = log + [1]
    return x * len(log)


@exercise("07.3", "find the hidden write")
def _(answer):
    arguments = lambda: (torch.ones(1), [], {"inner": []})  # noqa: E731
    yield row("an append", lambda: set(answer(writes_one, *arguments())), {"log"})
    yield row("a write inside a dict", lambda: set(answer(writes_nested, *arguments())), {"table"})
    yield row(
        "a rebinding is no write",
        lambda: set(answer(writes_nothing, *arguments())),
        set(),
        after=True,
    )


@exercise("07.4", "a journal of writes")
def _(answer):
    def noted():
        journal, a, b = answer(), [1], []
        journal.write(a, "append", 2)
        journal.write(a, "insert", 0, 9)
        return journal.read(a), journal.read(b), a, b

    yield row("reads see the writes, in order; nothing is touched", noted, ([9, 1, 2], [], [1], []))

    def aliased():
        journal, a = answer(), [1]
        b, other = a, [1]
        journal.write(a, "append", 2)
        return journal.read(b), journal.read(other)

    yield row("an alias sees the writes, an equal list does not", aliased, ([1, 2], [1]))

    def replayed():
        journal, a, b = answer(), [1], [5]
        journal.write(a, "append", 2)
        journal.write(b, "extend", [6])
        journal.write(a, "reverse")
        journal.replay()
        journal.replay()
        return a, b, journal.read(a)

    yield row("replayed once, in order", replayed, ([2, 1], [5, 6], [2, 1]))
