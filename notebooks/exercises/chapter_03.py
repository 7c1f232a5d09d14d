"""Checks of notebook 03: the frame hook."""

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
        from minidynamo import frame_hook

        return frame_hook.get_callback()

    yield row("the hook is off afterwards", still_plain, None, after=True)


ran = []


def square(n):
    ran.append(n)
    return n * n


@exercise("03.2", "a memo in the frame hook")
def _(answer):
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
