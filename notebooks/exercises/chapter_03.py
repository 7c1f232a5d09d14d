"""Checks of notebook 03: the frame hook."""

from minidynamo.frame import frame_hook

from . import exercise, row


def leaf(n):
    return n + 1


def tree(n):
    return leaf(n) if n == 0 else tree(n - 1) + tree(n - 1)


@exercise("03.1", "count the calls")
def _(answer):
    yield row("a leaf", lambda: answer(leaf, 1), {"leaf": 1})
    yield row("a recursion of depth 3", lambda: answer(tree, 3), {"tree": 15, "leaf": 8})

    def still_plain():
        answer(leaf, 1)
        return frame_hook.get_callback()

    yield row("the hook is off afterwards", still_plain, None, after=True)


WRITTEN = {}  # function -> its code, as it is written below


def start_anew(*functions):
    """As if no answer had been tried before: one may leave a hook, what it keeps at the code of
    these functions, or other code."""
    frame_hook.set_callback(None)
    for function in functions:
        code = WRITTEN.setdefault(function, function.__code__)
        function.__code__ = code.replace()


ran = []


def square(n):
    ran.append(n)
    return n * n


@exercise("03.2", "a memo in the frame hook")
def _(answer):
    start_anew(square)
    yield row("an unknown argument is computed", lambda: answer(square, {})(3), 9)
    ran.clear()
    yield row("a known one is answered from the table", lambda: answer(square, {5: 1234})(5), 1234)
    yield row("without running the function", lambda: list(ran), [], after=True)
    memo = []

    def both():
        memo.append(answer(square, {8: 1, 6: 2}))
        return [memo[0](n) for n in (8, 6, 8, 7)]

    yield row("several entries live side by side", both, [1, 2, 1, 49])
    yield row(
        "1.0 and True are no keys, though they equal 1",
        lambda: [answer(square, {1: 7})(n) for n in (1, 1.0, True)],
        [7, 1.0, 1],
    )


def plain(text):
    return text + "?"


def louder(text):
    return text.upper() + "!?"


def shout(text):
    return plain(text)


def twice_shouted(text):
    return shout(text) + shout(text)


@exercise("03.3", "the hook's decision, in Python", level="core")
def _(answer):
    def is_int(function, n):
        return type(n) is int

    def never(function, n):
        asked.append(n)
        return False

    def refuse(args):
        return None

    asked: list = []
    two = [(is_int, "for ints"), (lambda function, n: True, "for all")]
    yield row("the first guard that holds", lambda: answer([*two], None, (1,), refuse), "for ints")
    yield row("the next one", lambda: answer([*two], None, (1.5,), refuse), "for all")
    yield row(
        "nobody answers", lambda: answer([(is_int, "for ints")], None, ("a",), refuse), "original"
    )

    def new_entry():
        asked.clear()
        cache: list = []
        ran = answer(cache, None, (7,), lambda args: (never, "new"))
        return ran, len(cache), len(asked)

    yield row("a new entry runs at once, its guard is not asked", new_entry, ("new", 1, 0))

    def useless():
        cache: list = []
        for n in range(4):
            answer(cache, None, (n,), lambda args: (never, "new"))
        return len(cache)

    yield row("a guard that never holds: one more entry each time", useless, 4)


@exercise("03.4", "another function in its place")
def _(answer):
    start_anew(plain, louder, shout, twice_shouted)
    yield row("one call", lambda: answer(shout, plain, louder)("a"), "A!?")
    yield row("deeper down", lambda: answer(twice_shouted, plain, louder)("a"), "A!?A!?")
    yield row(
        "again, from the cache",
        lambda: [answer(shout, plain, louder)(t) for t in "bc"],
        ["B!?", "C!?"],
    )

    def outside():
        hooked = answer(shout, plain, louder)
        return hooked("a"), shout("a"), plain("a")

    yield row("outside it is as it was", outside, ("A!?", "a?", "a?"))
