"""What each piece of the student's own compiler must do: the rows of `check_piece`.

    >>> from exercises.own_checks import check_piece
    >>> check_piece("graph")
    graph  chapter 02: tensor operations as a graph
      PASS  shapes are broadcast from the right
      ...

A check is a generator over the package as `own_compiler.own` imports it; every part of a piece is
needed by one of its rows, which `make test` proves by taking each away in turn.  Rows behind
`FOR_THE_CURIOUS` need what only the curious write: a piece passes without them.
"""

import importlib
import os
import types

import torch

from minidynamo.bytecode import disassemble

from . import ExerciseFailed, close, row, state, summary
from .own_compiler import PIECES, RAN, own

CHECKS = {}
FOR_THE_CURIOUS = "the rows below are for the curious"


def piece(name, title):
    def register(function):
        CHECKS[name] = (title, function)
        return function

    return register


def rows_of(name):
    """The rows of a piece, for the package that is imported now.  Some chapters have turned
    gradients off: not for the rows.  A row in which the reference ran in place of a part of this
    piece is not written yet, whatever came out."""
    rows = []
    with torch.enable_grad():
        piece = importlib.import_module(f"my_compiler.{name}")
        nothing = [*PIECES[name].parts] if vars(piece).get("_is_begun") is False else []
        is_curious = not PIECES[name].everyone
        RAN.clear()
        for each in CHECKS[name][1](piece):
            if each is FOR_THE_CURIOUS:
                is_curious = True
                continue
            each.curious = is_curious
            each.missing = nothing or sorted({part for ran, part in RAN if ran == name})
            rows.append(each)
            RAN.clear()
    return rows


def check_piece(name, package=None):
    """Print the table of a piece; ExerciseFailed unless the rows for everyone pass, and those for
    the curious that are written."""
    if package is None:
        own()
    rows = rows_of(name)
    print(f"{name}  chapter {PIECES[name].chapter}: {CHECKS[name][0]}")
    for group, heading in zip(both_sizes(rows), ("for everyone:", "for the curious:"), strict=True):
        if group:
            print("\n".join([heading, *map(str, group)]))
    everyone, curious = both_sizes(rows)
    wanted = [*everyone, *(each for each in curious if not everyone or not is_unwritten(each))]
    if state(wanted) != "PASS":
        raise ExerciseFailed(summary(wanted))


def all_pieces():
    """Print one line a piece: how many of its rows pass, of those for everyone and of those for the
    curious.  The whole compiler, graded."""
    own()
    head = f"{'':2}  {'':10} {'everyone':>10}  {'the curious':>11}"
    print(head)
    for name, (title, _) in CHECKS.items():
        rows = rows_of(name)
        counts = [
            f"{earned(group):2} of {len(group):2}" if group else "" for group in both_sizes(rows)
        ]
        said = "  NOT WRITTEN" if all(map(is_unwritten, rows)) else ""
        print(f"{PIECES[name].chapter}  {name:10} {counts[0]:>10}  {counts[1]:>11}  {title}{said}")


def both_sizes(rows):
    """The rows for everyone, and the rows for the curious."""
    return [row for row in rows if not row.curious], [row for row in rows if row.curious]


def earned(rows):
    """How many of the rows pass by what the student wrote."""
    return sum(row.passed and not is_unwritten(row) for row in rows)


def is_unwritten(each):
    """Did the reference do what the row asks of the student?"""
    return bool(each.missing)


# --- what the rows use ----------------------------------------------------------------------------
def module(name):
    return importlib.import_module(f"my_compiler.{name}")


def raises(error, compute):
    """Does `compute()` raise `error`?  Another error is the row's."""
    try:
        compute()
    except error:
        return True
    return False


def refuses(compute):
    return raises(module("graph").Refused, compute)


def graph_of(function, *shapes):
    graph = module("graph").Graph()
    graph.outputs = [function(*(graph.input(shape) for shape in shapes))]
    return graph


def compiled(function):
    return importlib.import_module("my_compiler").compile(function)


def agree(function, *calls):
    """Do the compiled function and Python give the same, with each of these argument lists?"""
    fast = compiled(function)
    return all(close(fast(*args), function(*args)) for args in calls)


def X(*shape):
    return torch.arange(float(torch.Size(shape).numel())).reshape(shape) / 4 - 1


# --- 02 to 07: capture ----------------------------------------------------------------------------
@piece("graph", "tensor operations as a graph, and passes")
def _(graph):
    yield row(
        "shapes are broadcast from the right", lambda: graph.broadcast((2, 1, 3), (4, 1)), (2, 4, 3)
    )
    yield row(
        "shapes that do not fit are refused", lambda: refuses(lambda: graph.broadcast((2,), (3,)))
    )
    yield row("... in any dimension", lambda: refuses(lambda: graph.broadcast((2, 3), (4, 3))))
    yield row("three shapes at once", lambda: graph.broadcast((2, 1), (1, 3), (4, 1, 1)), (4, 2, 3))
    yield row(
        "a graph runs",
        lambda: graph_of(lambda x: (x * 2).exp(), (2, 3)).run([X(2, 3)])[0],
        (X(2, 3) * 2).exp(),
        same=close,
    )

    def two_inputs(x, y):
        return (x - y).exp()

    def with_two_outputs():
        found = graph_of(lambda x: x.exp(), (3,))
        found.outputs.append(found.inputs[0] * 3)
        graph.without_dead_code(found)
        return found.run([X(3)])

    yield row("what any output needs is kept", with_two_outputs, [X(3).exp(), X(3) * 3], same=close)
    yield row(
        "each input has its place",
        lambda: graph_of(two_inputs, (3,), (3,)).run([X(3), X(3) * 3])[0],
        two_inputs(X(3), X(3) * 3),
        same=close,
    )

    def count(function, optimize, inputs=1):
        found = graph_of(function, *[(2, 3)] * inputs)
        optimize(found)
        return len(found.nodes)

    def dead(x):
        x.exp().tanh()
        return (x + 1).exp() * 2

    yield row("what no output needs is left out", lambda: count(dead, graph.without_dead_code), 4)
    yield row(
        "an input stays", lambda: count(lambda x, y: y + 1, graph.without_dead_code, inputs=2), 3
    )
    yield row(
        "equal operations are computed once",
        lambda: count(lambda x: x.exp() + x.exp(), graph.without_repetition),
        3,
    )
    yield row(
        "... and what is computed of them, too",
        lambda: count(lambda x: (x.exp() + 1) * (x.exp() + 1), graph.without_repetition),
        4,
    )
    yield row(
        "two operations on one argument stay two, and so do two inputs",
        lambda: [
            count(lambda x: x.exp() + x.tanh(), graph.without_repetition),
            count(two_inputs, graph.without_repetition, inputs=2),
        ],
        [4, 4],
    )

    def equal_outputs():
        found = graph.Graph()
        x = found.input((2, 3))
        found.outputs = [x.exp(), x.exp()]
        graph.without_repetition(found)
        return len(found.nodes), found.run([X(2, 3)])

    yield row(
        "two outputs that are equal stay two",
        equal_outputs,
        (3, [X(2, 3).exp()] * 2),
        same=lambda got, wanted: got[0] == wanted[0] and close(got[1], wanted[1]),
    )
    yield row(
        "1 and 1.0 are two arguments",
        lambda: count(lambda x: (x + 1) * (x + 1.0), graph.without_repetition),
        4,
    )
    yield row(
        "softmax of large numbers does not overflow",
        lambda: graph_of(graph.softmax, (2, 3)).run([X(2, 3) * 1000])[0],
        torch.softmax(X(2, 3) * 1000, -1),
        same=close,
    )
    yield row(
        "softmax along the first dimension",
        lambda: graph_of(lambda x: graph.softmax(x, 0), (2, 3)).run([X(2, 3)])[0],
        torch.softmax(X(2, 3), 0),
        same=close,
    )

    def shape_of(function, *shape):
        return graph_of(function, shape).outputs[0].shape

    yield row(
        "reshape: a size of -1 is what is left; a list of sizes",
        lambda: [shape_of(lambda x: x.reshape(*sizes), 4, 3) for sizes in ((2, -1), ([-1],))],
        [(2, 6), (12,)],
    )
    yield row(
        "transpose: dimensions are counted from the end, too",
        lambda: [shape_of(lambda x: x.transpose(*dims), 2, 3, 4) for dims in ((0, 2), (-1, 1))],
        [(4, 3, 2), (2, 4, 3)],
    )
    yield row(
        "reshape to another number of elements is refused",
        lambda: refuses(lambda: shape_of(lambda x: x.reshape(5, -1), 4, 3)),
    )
    yield row(
        "dimensions: one, several, all; counted from 0",
        lambda: [graph_of(lambda x: x, (2, 3, 4)).outputs[0].dims(d) for d in (-1, (0, -2), None)],
        [(2,), (0, 1), (0, 1, 2)],
    )
    yield row(
        "a mean of the last dimension, and of all",
        lambda: [graph_of(f, (2, 3)).run([X(2, 3)])[0] for f in (lambda x: x.mean(-1), _mean)],
        [X(2, 3).mean(-1), X(2, 3).mean()],
        same=close,
    )

    def product_of(*shapes):
        return graph_of(lambda x, y: x @ y, *shapes).outputs[0].shape

    yield row("a product of matrices", lambda: product_of((2, 3), (3, 4)), (2, 4))
    yield row("... of batches of them", lambda: product_of((5, 1, 2, 3), (7, 3, 4)), (5, 7, 2, 4))
    yield row(
        "... of those that do not fit, and of vectors, is refused",
        lambda: [refuses(lambda s=s: product_of(*s)) for s in (((2, 3), (2, 3)), ((3,), (3,)))],
        [True, True],
    )
    yield row(
        "gelu",
        lambda: graph_of(lambda x: graph.gelu(x, "tanh"), (2, 3)).run([X(2, 3)])[0],
        torch.nn.functional.gelu(X(2, 3), approximate="tanh"),
        same=close,
    )
    yield row(
        "... of another kind is refused", lambda: refuses(lambda: graph_of(graph.gelu, (2, 3)))
    )
    yield row(
        "linear, with and without a bias",
        lambda: [
            graph_of(graph.linear, (2, 3), (4, 3)).run([X(2, 3), X(4, 3)])[0],
            graph_of(graph.linear, (2, 3), (4, 3), (4,)).run([X(2, 3), X(4, 3), X(4)])[0],
        ],
        [X(2, 3) @ X(4, 3).t(), X(2, 3) @ X(4, 3).t() + X(4)],
        same=close,
    )

    def entropy(*shapes, dtype=torch.int64):
        found = graph.Graph()
        logits, target = found.input(shapes[0]), found.input(shapes[1], dtype)
        found.outputs = [graph.cross_entropy(logits, target)]
        return found

    target = torch.tensor([2, 0])
    yield row(
        "cross entropy, of large numbers, too",
        lambda: entropy((2, 3), (2,)).run([X(2, 3) * 1000, target])[0],
        torch.nn.functional.cross_entropy(X(2, 3) * 1000, target),
        same=close,
    )
    yield row(
        "... of other shapes, or of targets that are no numbers of classes, is refused",
        lambda: [
            refuses(lambda: entropy((2, 3, 4), (2, 4))),
            refuses(lambda: entropy((2, 3), (2,), dtype=torch.float32)),
        ],
        [True, True],
    )
    yield row(
        "layer_norm of another length, or of two dimensions, is refused",
        lambda: [
            refuses(lambda s=s: graph_of(lambda x: graph.layer_norm(x, s), (2, 3)))
            for s in ((2,), (2, 3))
        ],
        [True, True],
    )
    yield row(
        "layer_norm, without a weight",
        lambda: graph_of(lambda x: graph.layer_norm(x, (3,)), (2, 3)).run([X(2, 3)])[0],
        torch.nn.functional.layer_norm(X(2, 3), (3,)),
        same=close,
    )
    yield row(
        "... with weight, bias and eps",
        lambda: graph_of(
            lambda *xs: graph.layer_norm(xs[0], (3,), *xs[1:], 0.5), (2, 3), (3,), (3,)
        ).run([X(2, 3), X(3), X(3) * 3])[0],
        torch.nn.functional.layer_norm(X(2, 3), (3,), X(3), X(3) * 3, 0.5),
        same=close,
    )


def _mean(x):
    return x.mean()


@piece("hook", "every call passes by")
def _(_):
    def entries(function, *calls):
        fast = compiled(function)
        for call in calls:
            fast(call)
        return len(fast.compiler.entries)

    yield row(
        "the same call a second time needs no second entry",
        lambda: entries(torch_sin, X(3), X(3)),
        1,
    )
    yield row("another dtype does", lambda: entries(torch_sin, X(3), X(2, 2)), 2)
    yield row(
        "after eight entries it is plain Python", lambda: entries(lambda n: n * 2, *range(12)), 8
    )

    def makes_a_function(x):
        return (lambda: x + 1)()

    def why():
        fast = compiled(makes_a_function)
        fast(X(2))
        told = fast.compiler.left_alone.items()
        return any("makes_a_function" in code.co_name and bool(reason) for code, reason in told)

    yield row("what cannot be captured is left alone, and it is written down why", why)

    def tried(function, *calls):
        """The code objects that were evaluated, one for each attempt."""
        breaks, codes = module("breaks"), []
        evaluate = breaks.evaluate
        breaks.evaluate = lambda *args: codes.append(args[1]) or evaluate(*args)
        try:
            fast = compiled(function)
            for call in calls:
                fast(call)
        finally:
            breaks.evaluate = evaluate
        return codes

    yield row(
        "... and not tried again",
        lambda: tried(makes_a_function, X(2), X(3)).count(makes_a_function.__code__),
        1,
    )

    def normalized(x):
        return torch.nn.functional.normalize(x + 1) * 2

    def of_torch():
        folder = torch.__file__.removesuffix("__init__.py")
        return [code.co_name for code in tried(normalized, X(2, 3)) if folder in code.co_filename]

    yield row("a library's code is left alone", of_torch, [])
    yield row("arguments by name", lambda: compiled(scaled)(X(3), scale=3.0), X(3) * 3, same=close)


class Special(torch.Tensor):
    """A class of tensors that this compiler knows nothing of."""


def scaled(x, scale=2.0):
    return x * scale


def by_list(x, scales=[2.0]):  # noqa: B006
    return x * scales[0]


def torch_sin(x):
    return x.exp() * 2


def second(values):
    first, (middle, last) = values
    return first - middle * last


@piece("machine", "bytecode on symbols")
def _(_):
    def known(x, n):
        if 1 < n < 5:
            return x - n
        return n - x

    def loop(x):
        for scale in (1, 2, 3):
            x = x * scale + x
        return x

    def calls(x):
        return second((x, (x + 1, 2.0))) - second((x, (3.0, x)))

    yield row(
        "operands keep their order", lambda: agree(lambda x, y: (x - y) / y, (X(3), X(3) + 9))
    )
    yield row("a chain of comparisons", lambda: agree(known, (X(3), 3), (X(3), 7), (X(3), 0)))

    def outside(x, n):
        return x - n if n < 1 or n > 5 else n - x

    yield row("an `or`", lambda: agree(outside, *((X(3), n) for n in (0, 3, 7))))
    yield row("a loop is unrolled", lambda: agree(loop, (X(3),)))
    yield row("a call is inlined, tuples are unpacked", lambda: agree(calls, (X(3),)))

    def breaks(function):
        """Why each entry was split: "" where it was not."""
        fast = compiled(function)
        fast(X(3))
        return [entry.reason for entry in fast.compiler.entries]

    yield row("... into one graph", lambda: breaks(calls), [""])

    def into_two(x):
        first, last = (x, x + 1, x + 2)
        return first - last

    def adds(x):
        x += 1
        return x * 2

    def written():
        x = X(3)
        compiled(adds)(x)
        return x

    yield row(
        "three values into two names: Python's error",
        lambda: raises(ValueError, lambda: compiled(into_two)(X(3))),
    )
    yield row("+= writes into the caller's tensor", written, X(3) + 1, same=close)

    def by_name(x):
        return scaled(scale=3.0, x=x) + scaled(x + 1, scale=2.0)

    yield row("arguments by name, in a call that is inlined", lambda: agree(by_name, (X(3),)))

    def some_calls(x):
        total = torch.exp(x)
        for number in range(len(x.shape) + 1):
            total = total + number * abs(-2)
        return total

    yield row(
        "a function of torch, and Python's own",
        lambda: [agree(some_calls, (X(3),)), *breaks(some_calls)],
        [True, ""],
    )

    def of_a_module():
        torch.manual_seed(0)
        layer = torch.nn.Linear(3, 2)
        fast = compiled(lambda x: layer(x) * 2)
        return [close(fast(X(4, 3)), layer(X(4, 3)) * 2), fast.compiler.entries[0].reason]

    yield row("a module is its forward", of_a_module, [True, ""])

    def by_truth(x, flag):
        return x * 2 if flag else x

    yield row("a flag is true or false", lambda: agree(by_truth, (X(3), True), (X(3), 0)))
    yield row("... into one graph, too", lambda: breaks(by_name), [""])
    yield row(
        "a method of a tensor, and a comparison",
        lambda: agree(lambda x: x.exp() if x.shape[0] >= 3 else x.tanh(), (X(3),), (X(2),)),
    )

    def by_contents(x, values, others):
        if values:
            x = x * 2
        return x + 1 if values == others else x

    yield row(
        "what an object from outside holds is no constant",
        lambda: agree(by_contents, (X(3), [], []), (X(3), [1], [1]), (X(3), [1], [2])),
    )

    def by_pairs(x, values, others):
        return x + 1 if (values, 1) == (others, 1) else x

    yield row(
        "... nor is what lies in a tuple",
        lambda: agree(by_pairs, (X(3), [1], [1]), (X(3), [1], [2])),
    )

    def extended(x, values):
        own = list(values)
        other = own
        own += list(values)
        return x * len(other)

    yield row("+= writes into a list", lambda: agree(extended, (X(3), (1, 2))))

    def hidden():
        names = {"torch": torch}
        exec("def counts(x, values): return x * len(values)", names)
        fast = compiled(names["counts"])
        before = fast(X(3), (1, 2))
        names["len"] = lambda values: 7
        return [before, fast(X(3), (1, 2))]

    yield row(
        "a global that hides a function of Python's, later",
        hidden,
        [X(3) * 2, X(3) * 7],
        same=close,
    )

    def hooked():
        layer = torch.nn.Linear(3, 2)
        fast = compiled(lambda x: layer(x) * 2)
        fast(X(4, 3))
        layer.register_forward_hook(lambda module, args, output: output * 0 + 5)
        return fast(X(4, 3))

    yield row("a module that gets a hook, later", hooked, torch.full((4, 2), 10.0), same=close)

    def changing_default():
        fast = compiled(lambda x: by_list(x) + 1)
        before = fast(X(3))
        by_list.__defaults__[0][0] = 5.0
        after = fast(X(3))
        by_list.__defaults__[0][0] = 2.0
        return [before, after]

    yield row(
        "a default that may change", changing_default, [X(3) * 2 + 1, X(3) * 5 + 1], same=close
    )

    def by_default(x):
        return scaled(x) + x

    yield row(
        "a default of what is inlined",
        lambda: [agree(by_default, (X(3),)), *breaks(by_default)],
        [True, ""],
    )


@piece("guards", "what must hold next time")
def _(guards):
    yield row(
        "1, 1.0 and True are three constants",
        lambda: [guards.same(*pair) for pair in [(1, 1.0), (1, True), (True, 1), (1.0, 1)]],
        [False] * 4,
    )
    yield row("so are 0.0 and -0.0", lambda: guards.same(0.0, -0.0), False)
    yield row("3 is 3", lambda: guards.same(3, 3))
    fits = [torch.float32, (2, 3), False]
    yield row("a tensor fits", lambda: guards.tensor_fits(X(2, 3), *fits))
    open_fits = [torch.float32, (None, 3), False]
    yield row(
        "where any size is allowed: 2 and 9 are, 1 is not",
        lambda: [guards.tensor_fits(X(size, 3), *open_fits) for size in (2, 9, 1)],
        [True, True, False],
    )
    yield row(
        "a parameter fits where gradients are wanted, a tensor without them does not",
        lambda: [
            guards.tensor_fits(tensor, torch.float32, (2, 3), True)
            for tensor in (torch.nn.Parameter(X(2, 3)), X(2, 3))
        ],
        [True, False],
    )
    for label, other in [
        ("fewer dimensions", X(2)),
        ("more dimensions", X(2, 3, 1)),
        ("a class of tensors of its own", X(2, 3).as_subclass(Special)),
        ("another dtype", X(2, 3).double()),
        ("another shape", X(3, 2)),
        ("gradients", X(2, 3).requires_grad_()),
        ("a tensor whose sign is turned lazily", (X(2, 3) * 1j).conj().imag),
        ("a number", 3),
    ]:
        yield row(f"{label}: it does not", lambda: guards.tensor_fits(other, *fits), False)

    def answers(*calls):
        made = guards.Guards(second)
        made.equals("a0['k']", 3)
        check = made.build()
        return [check(second, call) for call in calls]

    yield row(
        "a check on an element of an argument", lambda: answers({"k": 3}, {"k": 4}), [True, False]
    )
    yield row("what cannot be found has failed", lambda: answers({}, None), [False, False])

    def holds(value, *checks):
        made = guards.Guards(second)
        for source, wanted in checks:
            made.equals(source, wanted)
        return made.build()(second, value)

    yield row(
        "... an attribute, too", lambda: [holds(v, ("a0.real", 3)) for v in (3, "3")], [True, False]
    )
    yield row("another type of number", lambda: holds([3.0], ("a0[0]", 3)), False)
    yield row("a dtype", lambda: holds([torch.float32], ("a0[0]", torch.float32)))
    yield row(
        "all of several checks hold", lambda: holds([3, 4], ("a0[0]", 5), ("a0[1]", 4)), False
    )

    def fits_again(example, shape, *others):
        made = guards.Guards(second)
        made.tensor("a0", example, shape)
        return [made.build()(second, other) for other in others]

    yield row(
        "a tensor like the one that was seen",
        lambda: fits_again(X(2, 3), (2, 3), X(2, 3), X(3, 3), X(2, 3).double()),
        [True, False, False],
    )
    yield row(
        "a tensor with one size left open",
        lambda: fits_again(X(2, 3), (None, 3), X(5, 3), X(5, 4)),
        [True, False],
    )
    yield row(
        "a tensor of a class of its own is refused",
        lambda: refuses(lambda: fits_again(X(2).as_subclass(Special), (2,))),
    )
    yield row(
        "a number that does not equal itself is refused",
        lambda: refuses(lambda: guards.Guards(second).equals("a0", float("nan"))),
    )

    def wrapped(example, *others, dynamic=(), more=lambda capture, value: None):
        """What `wrap` makes of the example, and whether its guards let the others through."""
        capture = guards.Capture(second, set(dynamic))
        value = capture.wrap(example, "a0")
        more(capture, value)
        check = capture.guards.build()
        return value, [check(second, other) for other in (example, *others)]

    yield row("a constant is itself, and guarded", lambda: wrapped(3, 3.0), (3, [True, False]))
    yield row(
        "a tensor is an input of the graph",
        lambda: (lambda node, held: [node.op, node.shape, held])(*wrapped(X(2, 3), X(3, 3))),
        ["input", (2, 3), [True, False]],
    )

    def symbolic():
        capture = guards.Capture(second, {("a0", 0), ("a0", 1)})
        node = capture.wrap(X(4, 1, 3), "a0")
        check = capture.guards.build()
        held = [check(second, X(*shape)) for shape in ((9, 1, 3), (4, 2, 3), (4, 1, 5))]
        return getattr(node.shape[0], "text", "no Size"), type(node.shape[1]), capture.sizes, held

    twice = [X(2)] * 2
    yield row(
        "one object under two sources is one value, and must be one again",
        lambda: (lambda value, held: [value.items[0] is value.items[1], held])(
            *wrapped(twice, [X(2), X(2)], more=lambda capture, value: capture.items(value))
        ),
        [True, [True, False]],
    )
    yield row(
        "of a list the length is guarded, and each item",
        lambda: wrapped([1, 2], [1, 2, 3], [1, 3], [1, 2], more=lambda c, value: c.items(value))[1],
        [True, False, False, True],
    )
    yield row(
        "items are looked up once; a set has none",
        lambda: (
            wrapped([1], more=lambda c, v: c.items(v).append(5))[0].items == [1, 5]
            and refuses(lambda: wrapped({1}, more=lambda c, value: c.items(value)))
        ),
    )

    yield row(
        "a function is guarded: itself, its code, its defaults",
        _function_guards(wrapped),
        [True, False, [True, False], [True, False]],
    )
    yield row(
        "of another object the type is guarded",
        lambda: wrapped(types.SimpleNamespace(n=1), types.SimpleNamespace(n=2), [])[1],
        [True, True, False],
    )

    def attribute(value, name, *others):
        found = []
        more = lambda capture, outside: found.append(capture.attribute(outside, name))  # noqa: E731
        return wrapped(value, *others, more=more), found[0]

    one, two = types.SimpleNamespace(n=1), types.SimpleNamespace(n=2)
    yield row(
        "an attribute is guarded",
        lambda: (lambda held, found: [found, held[1]])(*attribute(one, "n", two)),
        [1, [True, False]],
    )
    yield row(
        "a method is a function and its object",
        lambda: (lambda held, found: [found.function.value, found.first is held[0]])(
            *attribute(_Things(), "method")
        ),
        [_Things.method, True],
    )
    yield row("a property is refused", lambda: refuses(lambda: attribute(_Things(), "computed")))
    yield FOR_THE_CURIOUS
    yield row(
        "a size that has changed is a symbol, unless it is 1",
        symbolic,
        ("s0", int, {"s0": "a0.shape[0]"}, [True, False, False]),
    )


class _Things:
    def method(self):
        return 1

    @property
    def computed(self):
        return 2


def _function_guards(wrapped):
    def compute():
        def one(x, y=1):
            return x

        def other(x, y=1):
            return x

        def later(change):
            capture_of, held = [], []
            wrapped(one, more=lambda capture, value: capture_of.append(capture))
            check = capture_of[0].guards.build()
            held.append(check(second, one))
            before = one.__code__, one.__defaults__
            change()
            held.append(check(second, one))
            one.__code__, one.__defaults__ = before
            return held

        return [
            *wrapped(one, other)[1],
            later(lambda: setattr(one, "__code__", (lambda x, y=1: y).__code__)),
            later(lambda: setattr(one, "__defaults__", (2,))),
        ]

    return compute


@piece("breaks", "what cannot be captured runs as Python")
def _(breaks):
    said = []

    def says(x, y):
        z = x * 2
        said.append("at " + str(float(y.sum())))
        return z + y

    def branches(x):
        return x * 2 if x.sum() > 0 else x - 1

    def nested(x):
        y = x + 1
        return y * torch.cumsum(x.exp(), 0) - len(str(x.shape))

    def around(x):
        for scale in (2, 3):
            x = x * scale
            said.append(str(scale))
        return x

    def looks(x):
        y = x + 1
        return x, y.reshape(-1), y

    def written_twice(x, one, two):
        one.append(x)
        return len(two)

    def aliases():
        results = []
        for function in (written_twice, compiled(written_twice)):
            both = []
            results.append([function(X(2), [], []), function(X(2), both, both)])
        return results[0] == results[1]

    def shared():
        x = X(2, 2)
        own, flat, y = compiled(looks)(x)
        return own is x and flat.data_ptr() == y.data_ptr()

    def place():
        machine = breaks.evaluate(nested, nested.__code__, (X(3),), set())
        begins = machine.operations[machine.pc]
        return [begins.op, begins.arg, *machine.locals], machine.stack, bool(machine.reason)

    before = row(
        "a refused statement begins behind the one before, with an empty stack",
        place,
        (["LOAD_FAST", "y", "x", "y"], [], True),
    )
    yield before
    if not before.passed:
        return  # code that is built of a wrong stack would end this process

    def rebuilt():
        node = module("graph").Graph().input((2,))
        outside = module("effects").Outside([1], "a0")
        shared = [node, 3]
        real = {node: "a tensor", outside: "an object"}
        made = breaks.rebuild([shared, (outside, "text"), shared], real.__getitem__, {})
        return made, made[0] is made[2], made[0] is shared

    yield row(
        "a value is made anew, what is one list is one again",
        rebuilt,
        ([["a tensor", 3], ("an object", "text"), ["a tensor", 3]], True, False),
    )
    yield row("an iterator is refused", lambda: refuses(lambda: breaks.rebuild(iter([]), list, {})))
    yield row(
        "a shape is a torch.Size afterwards",
        lambda: type(compiled(lambda x: (x + 1, x.shape))(X(3))[1]).__name__,
        "Size",
    )
    yield row("what shares memory in Python shares it here", shared)
    yield row("the base of views of views", lambda: _base(breaks))

    yield FOR_THE_CURIOUS

    def assigns(x):
        y = str(float(x.sum()))
        return y

    def last_of(function):
        native = disassemble(function.__code__)
        return native[breaks.end_of_statement(native, 1)]  # at 0 stands what is no statement's

    ends = row(
        "a statement ends where the stack is empty again",
        lambda: [(found.op, found.arg) for found in [last_of(assigns)]],
        [("STORE_FAST", "y")],
    )
    yield ends
    if not ends.passed:
        return
    yield row(
        "... or with the function", lambda: last_of(lambda x: float(x.sum())).op, "RETURN_VALUE"
    )

    def a_loop(x):
        for scale in (2, 3):
            x = x * scale
        return x

    yield row("a loop cannot stand alone", lambda: refuses(lambda: last_of(a_loop)))

    yield row("a break in the middle", lambda: agree(says, (X(3), X(3))))

    def binds_in_it(x):
        y = x + 1
        z = (y := y * 2).sum() + float(y.sum())
        return y + z

    def stores(x):
        y = x * 2
        z = float(y.sum())
        return y + z

    def deletes(x):
        y = x * 2
        z = y + 1
        del y
        return z.exp()

    def tries(x):
        y = x * 0
        try:
            z = 1 / int(y.sum())
        except ZeroDivisionError:
            z = 3
        return y + z

    yield row(
        "a refused statement that has bound a name before", lambda: agree(binds_in_it, (X(3),))
    )
    yield row("what the refused statement stores", lambda: agree(stores, (X(3),)))
    yield row("a name that is deleted", lambda: agree(deletes, (X(3),)))
    yield row("an error inside of a try", lambda: agree(tries, (X(3),)))
    yield row("a branch on a tensor", lambda: agree(branches, (X(3) + 9,), (X(3) - 9,)))
    yield row("a break in a statement that returns", lambda: agree(nested, (X(3),)))
    yield row("a break in a loop leaves all to Python", lambda: agree(around, (X(3),)))
    yield row("what is written has no second name", aliases)

    def sizes():
        fast = compiled(lambda x: (x / x.shape[0]).exp())
        right = all(close(fast(X(n, 2)), (X(n, 2) / n).exp()) for n in (3, 4, 5, 6))
        return right, len(fast.compiler.entries)

    yield row("a size that changes becomes a symbol: two entries for four", sizes, (True, 2))

    def by_size(x):
        return x * 2 if x.shape[0] < 6 else x + 1

    yield row(
        "a fact about a size is guarded",
        lambda: agree(by_size, *((X(n, 2),) for n in (3, 4, 5, 6, 7))),
    )

    def kept(x, log):
        log.append(x * 2)
        said.append("kept " + str(float(x.sum())))
        return log[0] + x

    def logged(function):
        log = []
        return [function(X(3), log), *log]

    yield row(
        "what was done to a list before the break",
        lambda: logged(compiled(kept)),
        logged(kept),
        same=close,
    )

    def notes(x, log):
        log.append(x)
        return float(x.sum())

    def calls(x, log):
        y = x * 2
        return y + notes(y, log)

    yield row(
        "what an inlined call wrote before it was refused is written once",
        lambda: logged(compiled(calls)),
        logged(calls),
        same=close,
    )

    def undone(x, log):
        y = x * 2
        log.append(1)
        return y, log[7]

    def log_after_an_error():
        log = []
        raises(IndexError, lambda: compiled(undone)(X(3), log))
        return log

    yield row("an error is Python's, and comes once", log_after_an_error, [1])


def _base(breaks):
    node = module("graph").Graph().input((2, 3))
    return breaks.base_of(node.transpose(0, 1).reshape(6)) is node


@piece("effects", "what was done to objects that live on")
def _(effects):
    def undone(start, change):
        journal = effects.Journal()
        change(journal, start)
        journal.back_to(0)
        return start

    def keeps(x, log, table):
        log.append(x * 2)
        table[0] = log[0]
        table[1] = log[1]
        return x

    def same_lists():
        results = []
        for function in (keeps, compiled(keeps)):
            log, table = [X(2)], [0, 1]
            function(X(2) + 1, log, table)
            results.append([*log, *table])
        return close(results[1], results[0])

    class Counter:
        count = 0

    def counts(x, counter):
        counter.count = counter.count + 1
        return x * counter.count

    def counted():
        counter = Counter()
        fast = compiled(counts)
        results = [fast(X(2), counter) for _ in range(3)]
        return [close(results[2], X(2) * 3), counter.count, fast.compiler.entries[0].reason]

    yield row("an append is undone", lambda: undone([1], lambda j, t: j.append(t, 2)), [1])
    yield row(
        "an append of what is there already",
        lambda: undone([2, 1], lambda j, t: j.append(t, 2)),
        [2, 1],
    )
    yield row("an element is put back", lambda: undone([1], lambda j, t: j.set_item(t, 0, 2)), [1])
    yield row(
        "a key that was not there is gone again",
        lambda: undone({}, lambda j, t: j.set_item(t, "k", 2)),
        {},
    )

    def several(journal, target):
        journal.append(target, 2)
        journal.set_item(target, 0, 5)
        journal.set_item(target, 0, 6)

    def some_kept():
        journal, target = effects.Journal(), [1]
        several(journal, target)
        journal.back_to(1)
        return target

    yield row("several changes are undone, the last first", lambda: undone([1], several), [1])
    yield row("what came before the mark stays", some_kept, [1, 2])

    def attribute_undone():
        journal, target = effects.Journal(), effects.Outside(None, "a0")
        journal.set_attribute(target, "n", 1)
        seen = dict(target.written), journal.changed == [target]
        journal.back_to(0)
        return [*seen, target.written, journal.changed]

    yield row("an attribute, too", attribute_undone, [{"n": 1}, True, {}, []])
    yield row("an attribute of the caller's object counts on", counted, [True, 3, ""])

    def in_their_place(found, **changes):
        target = effects.Outside(found, "a0")
        for name, value in changes.items():
            setattr(target, name, value)
        effects.replay(target, found, lambda value: value * 10)
        return found

    yield row(
        "replay leaves the final state in the caller's list",
        lambda: in_their_place([1, 5], items=[3]),
        [30],
    )
    yield row(
        "a list that was not looked at stays as it is", lambda: in_their_place([1], items=None), [1]
    )
    yield row(
        "attributes are written",
        lambda: vars(in_their_place(types.SimpleNamespace(n=1), written={"n": 2, "m": 3})),
        {"n": 20, "m": 30},
    )
    yield row("two lists of the caller", same_lists)

    def noted_and_undone():
        journal, target = effects.Journal(), effects.Outside([1], "a0")
        target.items = [1]
        seen = journal.items_of(target) is target.items, journal.changed == [target]
        journal.back_to(0)
        return [*seen, journal.changed]

    yield row("that a list changes is noted, and undone", noted_and_undone, [True, True, []])
    yield row(
        "a list of the frame's own needs no note", lambda: effects.Journal().items_of([1]), [1]
    )
    yield row(
        "an object without elements is refused",
        lambda: refuses(lambda: effects.Journal().items_of(effects.Outside(3, "a0"))),
    )


# --- 08 to 14: compilation ------------------------------------------------------------------------
def gradients(function, *shapes):
    """Do the joint graph's gradients equal autograd's?"""
    autograd = module("autograd")
    tensors = [(X(*shape) + 3).requires_grad_() for shape in shapes]
    result = function(*tensors)
    expected = torch.autograd.grad(result, tensors, torch.ones_like(result))
    graph = graph_of(function, *shapes)
    _, found = autograd.differentiate(graph, list(graph.inputs))
    graph.outputs = found
    given = [tensor.detach() for tensor in tensors]
    return close(graph.run([*given, torch.ones_like(result)]), list(expected))


@piece("autograd", "the backward graph and the cut")
def _(autograd):
    yield row("a sum goes to both", lambda: gradients(lambda x, y: x + y - x, (2, 3), (2, 3)))
    yield row(
        "a product, and a quotient",
        lambda: gradients(lambda x, y: x * y + x / (y * 2), (2, 3), (2, 3)),
    )
    yield row("of what was broadcast", lambda: gradients(lambda x, y: x * y, (2, 3), (3,)))
    yield row("of what had size 1", lambda: gradients(lambda x, y: x * y, (2, 3), (2, 1)))
    yield row("relu: nothing below 0", lambda: gradients(lambda x: (x - 3).relu() * 2, (2, 6)))
    yield row("the largest element", lambda: gradients(lambda x: x.amax(-1) * 2, (2, 3)))
    yield row("equal ones share it", lambda: gradients(lambda x: x.expand((2, 3)).amax(-1), (2, 1)))
    yield row("matrices", lambda: gradients(lambda x, y: x @ y, (2, 3), (3, 4)))
    yield row("batches of matrices", lambda: gradients(lambda x, y: x @ y, (5, 2, 3), (3, 4)))

    yield row("a sum of rows", lambda: gradients(lambda x: x.sum(-1) * 2, (2, 3)))
    yield row("a sum that keeps its dimension", lambda: gradients(lambda x: x.sum(0, True), (2, 3)))
    yield row(
        "three dimensions change places, and back",
        lambda: gradients(lambda x, y: x.permute(2, 0, 1) * y, (2, 3, 4), (4, 2, 3)),
    )

    def halves(function, *shapes):
        """Forward half, then backward half: outputs and gradients, and what autograd says."""
        tensors = [(X(*shape) + 3).requires_grad_() for shape in shapes]
        result = function(*tensors)
        expected = torch.autograd.grad(result, tensors, torch.ones_like(result))
        graph = graph_of(function, *shapes)
        inputs, outputs = list(graph.inputs), list(graph.outputs)
        tangents, found = autograd.differentiate(graph, inputs)
        graph.outputs = [*outputs, *found]
        kept = autograd.cut(graph, tangents, found)
        forward = autograd.part(graph, inputs, [*outputs, *kept])
        backward = autograd.part(graph, [*kept, *tangents], found)
        got, *saved = forward.run([tensor.detach() for tensor in tensors])
        given = backward.run([*saved, torch.ones_like(result)])
        again = {"matmul"} & {node.op for node in backward.nodes if node.shape == (2, 4)}
        return close([got, *given], [result, *expected]) and not again

    yield row(
        "two halves give what the whole gives, and the product is not made again",
        lambda: halves(lambda x, y: (x @ y).tanh(), (2, 3), (3, 4)),
    )
    yield row("one matrix, many others", lambda: gradients(lambda x, y: x @ y, (2, 3), (5, 3, 4)))

    def after(function):
        graph = graph_of(function, (2, 3))
        found = autograd.computed_of(graph, [graph.nodes[1]])
        return [graph.nodes.index(node) for node in graph.nodes if node in found]

    yield row(
        "what is computed of the second of five nodes",
        lambda: after(lambda x: (x + 1).exp() * x.tanh()),
        [1, 2, 4],
    )

    def saved(function, *shapes):
        graph = graph_of(function, *shapes)
        tangents, found = autograd.differentiate(graph, [graph.inputs[0]])
        graph.outputs += [node for node in found if node is not None]
        return autograd.cut(graph, tangents, [node for node in found if node is not None])

    def cheap(x):
        return (x.exp() * 2).tanh().exp().sum(-1)

    yield row(
        "nothing is saved that the input gives",
        lambda: [node.op for node in saved(cheap, (4, 8))],
        ["input"],
    )

    def computed(function, *shapes):
        return [n.shape for n in saved(function, *shapes) if n.op != "input"]

    yield row(
        "a product is not computed twice",
        lambda: computed(lambda x, w: (x @ w).tanh().sum(-1), (4, 8), (8, 2)),
        [(4, 2)],
    )

    def narrow(x, v, w, scale):
        return ((x @ v).expand((4, 64)) * scale + (x @ w).expand((4, 64))).exp().sum(-1)

    yield row(
        "two narrow values are saved rather than a wide one",
        lambda: computed(narrow, (4, 8), (8, 1), (8, 1), (64,)),
        [(4, 1), (4, 1)],
    )


@piece("loops", "operations as loops")
def _(loops):
    def steps(function, *shapes):
        return loops.lower(graph_of(function, *shapes))[0]

    def reads_twice(x):
        y = x.exp()
        return y + y.transpose(0, 1)

    def indices(function, *shapes):
        return [load.index for load in loops.loads(steps(function, *shapes)[-1].value)]

    yield row("a chain is one loop", lambda: len(steps(lambda x: (x * 2).exp() + 1, (2, 3))), 1)
    yield row(
        "a transposed tensor is read the other way",
        lambda: indices(lambda x: x.transpose(0, 1) + 1, (2, 3)),
        [("c", "i0")],
    )
    yield row(
        "three dimensions change places",
        lambda: indices(lambda x: x.permute(2, 0, 1) + 1, (2, 3, 4)),
        [("i1", "c", "i0")],
    )
    yield row(
        "an operation inside an operation reads, too",
        lambda: indices(lambda x, y: (x * 2).exp() + y, (2, 3), (2, 3)),
        [("i0", "c"), ("i0", "c")],
    )
    yield row(
        "a size of 1 is always at 0",
        lambda: indices(lambda x, y: x + y, (2, 3), (2, 1)),
        [("i0", "c"), ("i0", "0")],
    )
    yield row(
        "fewer dimensions: the last places of the index",
        lambda: indices(lambda x, y: x + y, (2, 3), (3,)),
        [("i0", "c"), ("c",)],
    )
    yield row(
        "a reduction is a loop that keeps its row",
        lambda: [
            (s.rows, s.columns, s.reduction) for s in steps(lambda x: x.exp().sum(-1), (2, 3))
        ],
        [((2,), 3, "sum")],
    )
    yield row(
        "so is one whose result has the dimension still",
        lambda: [s.rows for s in steps(lambda x: x.sum(-1, keepdim=True), (2, 3))],
        [(2,)],
    )
    yield row(
        "its value is an element of the argument",
        lambda: indices(lambda x: x.exp().sum(-1), (2, 3)),
        [("i0", "c")],
    )
    yield row(
        "what is dear and read twice is a loop of its own",
        lambda: [
            len(steps(lambda x: x.exp() + x.exp().transpose(0, 1), (3, 3))),
            len(steps(reads_twice, (3, 3))),
        ],
        [1, 2],
    )
    yield row(
        "a size of 1 that comes or goes moves the others, and makes no step",
        lambda: indices(lambda x: x.reshape(1, 3, 2).transpose(1, 2) + 1, (3, 1, 2)),
        [("c", "0", "i1")],
    )

    def externs(function, *shapes):
        found = steps(function, *shapes)
        return [(step.op, *step.args) for step in found if isinstance(step, loops.Extern)]

    yield row(
        "any other shape is torch's, with a base",
        lambda: [
            *externs(lambda x: x.reshape(-1) + 1, (2, 3)),
            steps(lambda x: x.reshape(-1) + 1, (2, 3))[0].buffer.base.name,
        ],
        [("reshape", "in0", "(6, )"), "in0"],
    )
    yield row(
        "torch takes a transposed argument as it is, and a computed one out of memory",
        lambda: externs(lambda x, y: x.transpose(0, 1) @ (y * 2), (3, 2), (3, 4)),
        [("matmul", "in0.permute((1, 0, ))", "buf0")],
    )
    yield row(
        "what torch is called with is what it reads",
        lambda: [b.name for b in steps(lambda x, y: x @ y.transpose(0, 1), *[(2, 3)] * 2)[0].reads],
        ["in0", "in1"],
    )
    yield row(
        "dear is an exponential, or more than four operations",
        lambda: [
            len(steps(f, (3, 3)))
            for f in (_squared(lambda x: x + 1), _squared(lambda x: x * x * x * x * x * x))
        ],
        [1, 2],
    )
    yield row(
        "a sum over rows is torch's",
        lambda: [type(s).__name__ for s in steps(lambda x: x.sum(0), (2, 3))],
        ["Extern"],
    )
    yield row(
        "... and so is one over rows and columns",
        lambda: [type(s).__name__ for s in steps(lambda x: x.sum((0, 1)), (2, 3))],
        ["Extern"],
    )
    yield row(
        "a product of matrices is torch's",
        lambda: [type(s).__name__ for s in steps(lambda x, y: x @ y + 1, (2, 2), (2, 2))],
        ["Extern", "Loop"],
    )


def _squared(function):
    """What the function gives, used twice."""

    def squared(x):
        y = function(x)
        return y * y.transpose(0, 1)

    return squared


@piece("fusion", "which loops become one kernel")
def _(fusion):
    def units(function, *shapes):
        return fusion.fuse(module("loops").lower(graph_of(function, *shapes))[0])

    def kernels(function, *shapes):
        return [
            len(unit.loops) for unit in units(function, *shapes) if isinstance(unit, fusion.Kernel)
        ]

    def softmax(x):
        return module("graph").softmax(x, -1)

    def around(x, w):
        y = x.exp()
        return (y @ w) * y.sum(-1, keepdim=True) + y

    def turned(x):
        y = x.amax(-1)
        return y + y.reshape(2, 2).transpose(0, 1).reshape(4)

    def bytes_of_pair():
        steps, _ = module("loops").lower(graph_of(lambda x: x.exp().sum(-1) + x.sum(-1), (4, 8)))
        first, second = (fusion.Kernel([step]) for step in steps[:2])
        return fusion.shared_bytes(first, second)

    yield row("a softmax is one kernel", lambda: kernels(softmax, (4, 8)), [4])

    def needs():
        plan = fusion.Plan(module("loops").lower(graph_of(softmax, (4, 8)))[0])
        return [[plan.units.index(other) for other in plan.before(unit)] for unit in plan.units]

    yield row("what each loop of a softmax reads", needs, [[], [0], [1], [1, 2]])

    def one_round():
        plan = fusion.Plan(module("loops").lower(graph_of(softmax, (4, 8)))[0])
        return plan.fuse_best(), len(plan.units)

    yield row("one round fuses one pair", one_round, (True, 3))

    def order():
        steps, _ = module("loops").lower(graph_of(softmax, (4, 8)))
        [kernel] = fusion.fuse(steps)
        return [steps.index(loop) for loop in kernel.loops]

    yield row("in a kernel the loops keep their order", order, [0, 1, 2, 3])
    yield row(
        "two loops over x share its bytes: 4 rows, 8 columns, 4 bytes each",
        bytes_of_pair,
        4 * 8 * 4,
    )

    def pairs():
        plan = fusion.Plan(module("loops").lower(graph_of(softmax, (4, 8)))[0])
        return [bytes_of for bytes_of, _, _ in plan.candidates()]

    def outer(x):
        of_rows, of_columns = x.sum(-1), x.transpose(0, 1).sum(-1)
        return of_rows.reshape(4, 1) @ of_columns.reshape(1, 8)

    def reductions(unit):
        return sum(bool(loop.reduction) for loop in getattr(unit, "loops", ()))

    def mirrored(x):
        y = x.exp()
        return y + y.transpose(0, 1)

    yield row(
        "a softmax has four pairs that share bytes; the most come first",
        pairs,
        [144, 144, 128, 128],
    )
    yield row("what was reshaped is not fused", lambda: kernels(turned, (4, 8)), [1, 1])
    yield row(
        "sums of rows and of columns are two kernels",
        lambda: [n for n in map(reductions, units(outer, (4, 8))) if n],
        [1, 1],
    )
    yield row("a reader of other rows is not fused", lambda: kernels(mirrored, (4, 4)), [1, 1])

    def of_symbols():
        facts: list[str] = []
        loops, size = module("loops"), module("sizes").Size
        pair = []
        for name in ("s0", "s1"):
            buffer = loops.Buffer(name, (size(4, name, facts), 8), torch.float32)
            pair.append(fusion.Kernel([loops.Loop(buffer, buffer.shape[:1], 8, None, 1.0)]))
        return fusion.may_be_fused(*pair), facts, fusion.may_be_fused(pair[0], pair[0])

    yield row(
        "rows of two symbols that happen to be equal stay two kernels",
        of_symbols,
        (False, [], True),
    )
    yield row(
        "nothing is fused around a product that lies between",
        lambda: [len(kernels(around, (4, 4), (4, 4))), len(units(around, (4, 4), (4, 4)))],
        [2, 3],
    )
    yield row(
        "what is fused runs before the product that reads it",
        lambda: [
            type(unit).__name__ for unit in units(lambda x, w: softmax(x) @ w, (4, 4), (4, 4))
        ],
        ["Kernel", "Extern"],
    )


def run(function, *shapes):
    """Does the compiled graph give what torch gives?"""
    tensors = [X(*shape) for shape in shapes]
    program = module("program").Program(graph_of(function, *shapes))
    return close(program(tensors, {})[0], function(*tensors))


@piece("cpp", "kernels in C++")
def _(cpp):
    def softmax_kernel():
        softmax = module("graph").softmax
        steps, _ = module("loops").lower(graph_of(lambda x: softmax(x, -1), (4, 40)))
        return module("fusion").fuse(steps)[0]

    yield row(
        "a softmax walks over its columns three times", lambda: len(cpp.passes(softmax_kernel())), 3
    )
    yield row(
        "of its four results two lie in memory",
        lambda: len(cpp.stored_buffers(softmax_kernel(), {softmax_kernel().writes[-1]})),
        1,
    )

    def fifth():
        [step], _ = module("loops").lower(graph_of(lambda x: x + 1, (2, 3, 4, 5)))
        return cpp.Writer(module("fusion").Kernel([step]), set(), [])

    def offset():
        loops = module("loops")
        load = loops.Load(loops.Buffer("b", (2, 3, 4), torch.float32), ("i0", "i1", "c"))
        text = fifth().place(load)
        return eval(text[text.index("[") + 1 : text.rindex("]")], {"i0": 1, "i1": 2, "c": 3})

    place = row("element (1, 2, 3) of 2 x 3 x 4 is number 23", offset, 23)
    yield place
    if not place.passed:
        return  # a kernel that writes to wrong places would end this process
    yield row(
        "one pragma for all dimensions of the rows",
        lambda: [
            "".join(line.split())
            for line in fifth().row_loops()
            if "#pragma" in line and "omp parallel for" in " ".join(line.split())
        ],
        ["#pragmaompparallelforcollapse(3)"],
        same=lambda got, wanted: len(got) == 1 and got[0].startswith(wanted[0]),
    )
    yield row("rows, columns, a rest of columns", lambda: run(lambda x: x.exp() * 2, (3, 37)))
    yield row(
        "sums and largest elements", lambda: run(lambda x: x.sum(-1) + (-x).amax(-1), (3, 37))
    )

    def own_softmax(x):
        e = (x - x.amax(-1, keepdim=True)).exp()
        return e / e.sum(-1, keepdim=True)

    yield row("results of the row are used in it", lambda: run(own_softmax, (3, 37)))
    yield row(
        "numbers, infinity and sizes",
        lambda: run(lambda x: (x * 0.5 - 1) / float("inf") + x / x.shape[1], (3, 37)),
    )
    yield row(
        "four dimensions, one of them read across",
        lambda: run(lambda x: x.transpose(1, 2) + 1, (2, 3, 4, 5)),
    )


@piece("gpu", "the same kernels in Triton")
def _(gpu):
    def text():
        steps, _ = module("loops").lower(graph_of(lambda x: x.exp().sum(-1), (4, 8)))
        return gpu.TritonWriter(module("fusion").fuse(steps)[0], []).source()

    bare = str.maketrans("", "", "() ")  # parentheses and spaces are the student's choice
    yield row(
        "a mask keeps out what lies beyond the last column", lambda: "c<8" in text().translate(bare)
    )
    yield row("one program a row", lambda: "tl.program_id(0)" in text())
    yield row(
        "a load of columns has a mask",
        lambda: [
            line for line in text().splitlines() if "tl.load" in line and "inside" not in line
        ],
        [],
    )

    def writer(function):
        steps, _ = module("loops").lower(graph_of(function, (4, 8)))
        return gpu.TritonWriter(module("fusion").Kernel(steps), [])

    yield row(
        "numbers, infinity too",
        lambda: [eval(writer(torch_sin).number(x)) for x in (0.5, float("inf"))],
        [0.5, float("inf")],
    )
    yield row("it is built as a function", lambda: callable(writer(torch_sin).build()))
    if os.environ.get("TRITON_INTERPRET") == "1":
        norm = module("graph").layer_norm
        yield row(
            "a layer norm in the interpreter",
            lambda: _in_triton(gpu, lambda x: norm(x, (37,)), (6, 37)),
            torch.nn.functional.layer_norm(X(6, 37), (37,)),
            same=close,
        )
        yield row(
            "rows of two dimensions",
            lambda: _in_triton(gpu, lambda x: x.exp() + 1, (2, 4, 5)),
            X(2, 4, 5).exp() + 1,
            same=close,
        )


BEYOND = 1 << 14  # elements on both sides of a buffer, where nothing may be written


def _in_triton(gpu, function, shape):
    """The result of the student's kernels.  Each buffer lies inside a larger tensor, so that a
    store without a mask is seen, and does not end this process."""
    steps, [out] = module("loops").lower(graph_of(function, shape))
    around, memory = {}, {}

    def room(name, shape):
        count = torch.Size(shape).numel()
        around[name] = torch.full((count + 2 * BEYOND,), float("nan"))
        memory[name] = around[name][BEYOND : BEYOND + count].view(shape)

    room("in0", shape)
    memory["in0"].copy_(X(*shape))
    for unit in module("fusion").fuse(steps):
        writer = gpu.TritonWriter(unit, [])
        for buffer in unit.writes:
            room(buffer.name, buffer.shape)
        writer.build()(*(memory[buffer.name] for buffer in writer.buffers))
    for name, tensor in around.items():
        beyond = torch.cat((tensor[:BEYOND], tensor[-BEYOND:]))
        assert beyond.isnan().all(), f"something was written in front of or behind {name}"
    return memory[out.name]


@piece("program", "memory, and the calls of the kernels")
def _(program):
    def chain(x):
        for _ in range(4):
            x = (x @ x).tanh()
        return x

    def trained():
        x, w = X(2, 3).requires_grad_(), X(3, 4).requires_grad_()
        index = torch.tensor([1, 0])

        def loss(index, x, w):
            return torch.nn.functional.embedding(index, x) @ w

        results = []
        for function in (loss, compiled(loss)):
            result = function(index, x, w)
            results.append(torch.autograd.grad(result.sum(), (x, w)))
        return close(list(results[1]), list(results[0]))

    yield row("gradients go where they are wanted", trained)

    def kinds():
        found = []
        for wanted, mode in ((True, True), (False, True), (True, False)):
            x = X(2, 3).requires_grad_(wanted)
            with torch.set_grad_enabled(mode):
                graph = graph_of(torch_sin, (2, 3))
                found.append(type(program.compile_graph(graph, [x], [])).__name__)
        return found

    yield row(
        "two halves only where gradients are wanted",
        kinds,
        ["Differentiable", "Program", "Program"],
    )

    def flags():
        x, w = X(2, 3), X(2, 3).requires_grad_()
        results = compiled(lambda x, w: (x * 2, x * w))(x, w)
        return [result.requires_grad for result in results]

    yield row("a result that depends on no parameter needs no gradient", flags, [False, True])
    yield row(
        "an output in another shape than it was computed in",
        lambda: run(lambda x: (x + 1).reshape(-1), (2, 3)),
    )
    yield row("kernels and products in their order", lambda: run(chain, (4, 4)))
    yield row(
        "memory is used again",
        lambda: program.Program(graph_of(chain, (4, 4))).source.count("torch.empty"),
        1,
    )

    def made_for(function, *shapes):
        return program.Program(graph_of(function, *shapes)).source.count("torch.empty")

    def of_other_shapes(x, a, b):
        return ((a @ (x @ x).tanh()) @ b).tanh()  # 4 x 4 elements are stored, then 2 x 8

    shapes = (4, 4), (2, 4), (4, 8)
    yield row("... for another shape, too", lambda: made_for(of_other_shapes, *shapes), 1)
    yield row("... seen in that shape", lambda: run(of_other_shapes, *shapes))
    yield row(
        "memory of another size is not taken",
        lambda: run(lambda x, w: ((x @ x).tanh() @ w).tanh() @ w.transpose(0, 1), (4, 4), (4, 8)),
    )

    def both_alive(x):
        first = (((x @ x).tanh() @ x) * 0.5).tanh()
        later = (first @ x).exp()
        return first @ later

    yield row("one block is not given to two", lambda: run(both_alive, (4, 4)))

    def two_outputs():
        found = module("graph").Graph()
        x = found.input((4, 4))
        first = (x @ x).tanh()
        found.outputs = [first, (first @ first).exp()]
        wanted = (X(4, 4) @ X(4, 4)).tanh()
        return close(program.Program(found)([X(4, 4)], {}), [wanted, (wanted @ wanted).exp()])

    yield row("an output's memory is not used again", two_outputs)

    def view_and_more(x):
        stored = (x @ x).tanh()
        turned = stored.reshape(2, 8)
        later = ((x @ stored) * 2).tanh() @ x
        return turned @ later.reshape(8, 2)

    yield row(
        "the memory of a view that is still read is not used again",
        lambda: run(view_and_more, (4, 4)),
    )
    yield row(
        "what stays in registers gets no memory: two of a softmax's four results do",
        lambda: made_for(module("graph").softmax, (3, 5)),
        2,
    )

    def kept_products() -> list[str]:
        made = program.Program(graph_of(chain, (4, 4)))
        products = [unit.buffer.name for unit in made.units if hasattr(unit, "op")]
        return [name for name in products if f"del {name}\n" not in made.source]

    yield row("what torch has made is let go", kept_products, [])
    yield row(
        "what stays in registers has no variable to let go",
        lambda: run(module("graph").softmax, (3, 5)),
    )


@piece("sizes", "sizes that are not numbers")
def _(sizes):
    def size():
        return sizes.Size(8, "s0", [])

    def facts(compare):
        n = size()
        return compare(n), n.facts

    yield row("a product of numbers", lambda: sizes.product([2, 3, 4]), 24)
    yield row("of none", lambda: sizes.product([]), 1)

    def as_a_number():
        n = size()
        return type(sizes.plain(n)), n.facts, sizes.plain("text")

    yield row(
        "where only a number will do the program relies on it",
        as_a_number,
        (int, ["s0 == 8"], "text"),
    )
    yield row(
        "texts of tuples, numbers and flags",
        lambda: [
            eval(sizes.text_of(value), {"s0": 11})  # their blanks and last commas may differ
            for value in ((2, size(), (True, 0.5)), (size(),), ())
        ],
        [(2, 11, (True, 0.5)), (11,), ()],
    )
    yield FOR_THE_CURIOUS
    yield row(
        "arithmetic is written down", lambda: sizes.text_of((size() + 1) * 2), "((s0 + 1) * 2)"
    )
    yield row("from both sides", lambda: sizes.text_of(20 - size()), "(20 - s0)")
    yield row("... with their values", lambda: (int(20 - size()), int(size() - 20)), (12, -12))
    yield row("with the value of this call", lambda: int(size() // 3), 2)
    yield row("a comparison is a fact", lambda: facts(lambda n: n > 4), (True, ["s0 > 4"]))
    yield row("so is one that fails", lambda: facts(lambda n: n == 4), (False, ["not (s0 == 4)"]))
    yield row("of what was computed", lambda: facts(lambda n: n + 1 > 4), (True, ["(s0 + 1) > 4"]))
    yield row(
        "of two sizes", lambda: facts(lambda n: n < sizes.Size(9, "s1", [])), (True, ["s0 < s1"])
    )
    yield row(
        "what is true of every size is no fact",
        lambda: facts(lambda n: n == n and n == sizes.Size(8, "s0", n.facts)),
        (True, []),
    )
    yield row(
        "a float is none of its business", lambda: ((size() + 1) * 0.5, size() < 8.5), (4.5, True)
    )
    yield row(
        "a product of three", lambda: sizes.text_of(sizes.product([2, size(), 3])), "((2 * s0) * 3)"
    )
    yield row("a product of sizes", lambda: sizes.text_of(sizes.product([2, size()])), "(2 * s0)")
    now = {"a0": (2, 3), "a1": (4,), "a2": (1,)}
    yield row(
        "sizes that are others than before",
        lambda: sizes.changed(now, {"a0": (2, 5), "a1": (4,), "a3": (7,)}),
        {("a0", 1)},
    )
