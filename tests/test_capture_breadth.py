"""Breadth of capture: torch features in a frame, optimizers, generators and handlers that meet a
break.  Each equals plain Python."""

import pathlib
import collections
import copy
import gc
import heapq
import itertools
import logging
import math
import typing
import weakref

import pytest
import torch
import torch.utils._pytree as pytree
import torch.utils.checkpoint
from test_capture_language import fresh, make_test, same  # noqa: F401

import minidynamo
from minidynamo import config, records
from benchmarks.error_bound import assert_near


def X():
    return torch.arange(6.0).reshape(2, 3) / 7 + 0.1


def counts():
    return minidynamo.counters["graphs"].total(), len(minidynamo.counters["graph_breaks"])


# ---- the thread's state
@pytest.mark.parametrize("backend", ["eager", "inductor"])
def test_autocast_entered_in_a_frame(backend):
    def f(x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = x @ x.T
            with torch.autocast("cpu", enabled=False):
                z = x @ x.T
        return y, z, x @ x.T

    compiled = minidynamo.compile(f, backend=backend)
    for _ in range(2):
        same(compiled(X()), f(X()))
        assert not torch.is_autocast_enabled("cpu")
        torch.autocast_increment_nesting()
        assert torch.autocast_decrement_nesting() == 0
    assert counts() == (1, 0)


def test_a_break_inside_autocast_keeps_its_depth(capsys):
    def f(x, w):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = x @ w
            print("here")
            return y, y @ w, torch.is_autocast_enabled("cpu")

    w = torch.eye(3, requires_grad=True)
    compiled = minidynamo.compile(f, backend="eager")
    for _ in range(2):
        same(compiled(X(), w), f(X(), w))
        torch.autocast_increment_nesting()
        assert torch.autocast_decrement_nesting() == 0 and not torch.is_autocast_enabled("cpu")


def test_state_is_restored_when_the_graph_fails():
    def f(x, n):
        with torch.autocast("cpu", dtype=torch.bfloat16), torch.no_grad():
            return x[n]

    compiled = minidynamo.compile(f, backend="eager")
    compiled(X(), torch.tensor([1]))
    with pytest.raises(IndexError):
        compiled(X(), torch.tensor([7]))
    assert torch.is_grad_enabled() and not torch.is_autocast_enabled("cpu")


def test_the_autocast_dtype_set_at_large_is_guarded():
    def f(x):
        with torch.autocast("cpu"):
            return x @ x.T

    compiled = minidynamo.compile(f, backend="eager")
    before = torch.get_autocast_dtype("cpu")
    try:
        for dtype in (torch.bfloat16, torch.float16):
            torch.set_autocast_dtype("cpu", dtype)
            assert compiled(X()).dtype is dtype
    finally:
        torch.set_autocast_dtype("cpu", before)


@make_test(X())
def test_record_function_is_ignored(x):
    torch._C._log_api_usage_once("tests")  # libraries' modules and functions call it
    with torch.profiler.record_function("label"):
        return x + 1


def test_metadata_in_place():
    def f(x):
        w = (x * 2).detach().requires_grad_()
        v = x + 1
        v.t_()
        return w * 3, v

    compiled = minidynamo.compile(f, backend="eager")
    for got, want in zip(compiled(X()), f(X())):
        same(got, want)


# ---- code that autograd sees whole
class Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, n):
        ctx.save_for_backward(x)
        ctx.n = n
        return x**n

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad * 3 * ctx.n * x ** (ctx.n - 1), None


@pytest.mark.parametrize("backend", ["eager", "inductor"])
def test_autograd_function(backend):
    def f(x):
        return Scaled.apply(x * 2, 2) + 1

    grads = []
    for function in (f, minidynamo.compile(f, backend=backend)):
        x = X().requires_grad_()
        y = function(x)
        y.sin().sum().backward()
        grads += [y, x.grad]
    torch.testing.assert_close(grads[2:], grads[:2])
    assert counts() == (1, 0)


# ---- optimizers: `step` is one graph
STEPS = {
    "SGD": dict(lr=0.1),
    "SGD-momentum": dict(lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.1),
    "Adam": {},
    "AdamW": dict(amsgrad=True),
    "SGD-foreach": dict(lr=0.1, momentum=0.9, foreach=True),
    "Adam-foreach": dict(foreach=True),
    "AdamW-foreach": dict(foreach=True),
    "Adam-fused": dict(fused=True),
    "RMSprop": {},
    "Adagrad": dict(lr_decay=0.1),
}


@pytest.mark.parametrize("name", STEPS)
def test_optimizer_step(name):
    def train(compiled):
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Linear(4, 2))
        optimizer = getattr(torch.optim, name.partition("-")[0])(model.parameters(), **STEPS[name])
        step = minidynamo.compile(optimizer.step, backend="eager") if compiled else optimizer.step
        for n in range(6):
            optimizer.zero_grad()
            model(X() + n).square().sum().backward()
            step()
        return list(model.parameters()), [
            list(state.values()) for state in optimizer.state.values()
        ]

    for got, want in zip(train(True), train(False)):
        assert_near(got, want)
    graphs, breaks = counts()
    assert (
        breaks == 0 and 1 <= graphs <= 2 and minidynamo.counters["recompiles"].total() <= 1
    )  # the first step makes the state


def test_optimizer_entries_die_with_it():
    model = torch.nn.Linear(3, 2)
    optimizer = torch.optim.Adam(model.parameters())
    model(X()).sum().backward()
    minidynamo.compile(optimizer.step, backend="eager")()
    parameter, seen = weakref.ref(model.weight), weakref.ref(optimizer)
    del model, optimizer
    gc.collect(), gc.collect()  # the optimizer, whose death drops the entry; then the entry
    assert seen() is None and parameter() is None


def test_another_parameter_in_the_group():
    a, b = torch.nn.Parameter(torch.ones(2)), torch.nn.Parameter(torch.ones(2))
    optimizer = torch.optim.SGD([a], lr=0.5, momentum=0.9)
    step = minidynamo.compile(optimizer.step, backend="eager")
    a.grad, b.grad = torch.ones(2), torch.ones(2)
    step()
    step()
    optimizer.param_groups[0]["params"][0] = b
    step()
    assert b.tolist() == [0.5, 0.5]


# ---- breaks in awkward places
@make_test(X(), graphs=2, breaks=1)
def test_break_in_an_except_block(x):
    y = x * 2
    try:
        raise ValueError("a")
    except ValueError as error:
        print("caught", error)
        y = y + 1
    return y * 3


@make_test(X(), graphs=2, breaks=2)
def test_generator_across_a_break(x):
    def steps():
        for i in range(3):
            print(i)
            yield x + i

    total = x * 2
    for value in steps():
        total = total + value
    return total


def test_a_real_generator_is_not_advanced_while_tracing():
    def f(x, numbers):
        return x + next(numbers), next(numbers)

    compiled = minidynamo.compile(f, backend="eager")
    for _ in range(2):
        same(compiled(X(), (n for n in (1, 2, 3))), f(X(), (n for n in (1, 2, 3))))


def test_fork_rng():
    def f(x):
        with torch.random.fork_rng(devices=[]):
            y = torch.rand(3)
        return x + y, torch.rand(3)

    compiled = minidynamo.compile(f, backend="eager")
    for _ in range(2):
        torch.manual_seed(3)
        want = f(X())
        torch.manual_seed(3)
        same(compiled(X()), want)


def test_nothing_outlives_the_resumed_part():
    alive = []

    def f(x):
        alive.append(weakref.ref(x + 1))
        alive.append(alive[0]() is None)
        return x * 2

    compiled = minidynamo.compile(f, backend="eager")
    for _ in range(2):
        alive.clear()
        compiled(X())
        assert alive[1] is True


def test_cannot_split_is_a_skip():
    with config.patch(raise_internal_errors=False):

        def f(x):
            y = x + 1
            return [print(i) or y for i in range(2)], {**locals()}.keys() - {"x", "y"}

        same(minidynamo.compile(f, backend="eager")(X()), f(X()))
    assert not minidynamo.counters["errors"] and not any(record.error for record in records.frames)


@make_test(X())
def test_locals(x):
    a = 1
    y = x + a
    return y, sorted(locals())


# ---- language
class Pair(typing.NamedTuple):
    first: torch.Tensor
    second: int = 4

    def total(self):
        return self.first + self.second

    @property
    def double(self):
        return self.second * 2


@make_test(X())
def test_methods_of_a_named_tuple(x):
    pair = Pair(x)
    return pair.total(), pair.double, pair._replace(second=9).total()


@make_test(X())
def test_itertools_and_counter(x):
    counter = collections.Counter("abca")
    counter["z"] += 2
    counter.update("ab")
    return (
        x + counter["a"],
        list(itertools.combinations(range(4), 2)),
        list(itertools.permutations("abc", 2)),
        list(itertools.compress("abc", [1, 0, 1])),
        list(itertools.combinations_with_replacement([1, 2], 2)),
        list(itertools.filterfalse(None, [0, 1])),
        dict(counter),
    )


@make_test(X())
def test_sets_and_generators(x):
    s = ({1, 2, 3} & {2, 3, 4}) ^ {3, 9}
    s.update([5, 9])
    s.discard(2)

    def numbers():
        yield 1
        yield 2

    made = numbers()
    first = next(made)
    made.close()
    return x + first, sorted(s | {7} - {9}), list(made)


@make_test(X(), graphs=0, breaks=1)
def test_messages(x):
    def f(a, b, *, c):
        return a

    found = []
    for call in (lambda: f(1, 2, 3, c=4), lambda: f(1, 2, 3)):
        try:
            call()
        except TypeError as error:
            found.append(str(error))
    try:
        try:
            raise KeyError("k")
        except KeyError as error:
            raise ValueError("v") from error
    except ValueError as error:
        found.append(repr(error.__cause__))
    return found


def test_what_is_assumed_of_pinned_objects_is_checked():
    """A builtin that a global hides later, a logger's level, hooks on all modules."""
    namespace = {"logger": logging.getLogger("minidynamo.test"), "linear": torch.nn.Linear(3, 3)}
    exec("def f(x):\n    logger.debug('seen')\n    return linear(x) * len(x)", namespace)
    f, seen = namespace["f"], []
    compiled = minidynamo.compile(f, backend="eager")
    same(compiled(X()), f(X()))
    namespace["len"] = lambda x: 10
    same(compiled(X()), f(X()))
    del namespace["len"]
    hook = torch.nn.modules.module.register_module_forward_hook(
        lambda module, args, result: result + 1
    )
    same(compiled(X()), f(X()))
    hook.remove()
    logger = namespace["logger"]
    logger.addFilter(lambda record: seen.append(record.getMessage()) or False)
    logger.setLevel(logging.DEBUG)
    compiled(X())
    logger.setLevel(logging.WARNING)
    assert seen == ["seen"]


def test_dictionaries_with_tensor_keys_are_guarded():
    a, b = torch.ones(2, requires_grad=True), torch.ones(2, requires_grad=True)

    def f(d, t):
        return t * 2 if t in d else t * 3

    compiled = minidynamo.compile(f, backend="eager")
    for table, tensor in (({a: 1}, a), ({a: 1}, b), ({}, a), ({b: 1}, b)):
        same(compiled(table, tensor), f(table, tensor))


# ---- what a trainer and its helpers write
@make_test(X(), "ab")
def test_text_is_walked_from_its_end(x, text):
    for letter in reversed(text + "c"):
        x = x * (2 if letter == "a" else 3) + len(letter)
    for number in reversed(b"\x01\x02"):
        x = x * number
    return x, [*reversed("xyz")], type(reversed("xyz"))


def test_an_iterator_of_reversed_text_lives_on():
    def f(x):
        letters = reversed("abc")
        first = next(letters)
        minidynamo.graph_break()
        return x + 1, first, type(letters), "".join(letters)

    same(minidynamo.compile(f, backend="eager")(X()), f(X()))


@make_test(X(), "b.txt")
def test_paths_made_of_constants(x, name):
    path = pathlib.Path("a") / name
    return x + len(path.suffix) + (1 if path.name == "b.txt" else 0), str(path), path


def test_gradients_of_several_dtypes_are_clipped_in_eagers_order():
    dtypes = torch.float64, torch.bfloat16, torch.float32, torch.float16
    parameters = [torch.nn.Parameter(torch.ones(3, dtype=dtype)) for dtype in (*dtypes, *dtypes)]

    def f(x):
        return x * torch.nn.utils.clip_grad_norm_(parameters, 1.0)

    found = []
    for function in (f, minidynamo.compile(f, backend="eager", fullgraph=True)):
        for number, parameter in enumerate(parameters):
            parameter.grad = torch.full_like(parameter, 0.3 + number / 7)
        result = function(X())
        found.append([result, *[parameter.grad.clone() for parameter in parameters]])
    for eager, ours in zip(*found):
        assert torch.equal(eager, ours)  # bit by bit: sums have an order


@pytest.mark.parametrize("backend", ["eager", "inductor"])
@pytest.mark.parametrize("reentrant", [False, True])
def test_a_checkpoint_that_keeps_no_random_state(backend, reentrant):
    """Whole where nothing is drawn; where something is, plain Python draws anew in backward."""
    weight = torch.linspace(-1, 1, 9).reshape(3, 3)

    def f(x, p):
        def body(v):
            return torch.nn.functional.dropout(torch.sin(v @ weight), p, training=p > 0)

        return torch.utils.checkpoint.checkpoint(
            body, x, use_reentrant=reentrant, preserve_rng_state=False
        )

    for p, graphs_of_f in ((0.0, 1), (0.5, 0)):
        minidynamo.reset()
        found = []
        for function in (f, minidynamo.compile(f, backend=backend)):
            torch.manual_seed(0)
            x = X().requires_grad_()
            result = function(x, p)
            (result * 3).sum().backward()
            found.append((result.detach(), x.grad, torch.rand(1)))
        same(found[1], found[0])
        broken = minidynamo.counters["graph_breaks"].total()
        assert bool(broken) is not bool(graphs_of_f)


def test_a_class_of_modules_may_be_marked_static():
    assert minidynamo.mark_static(torch.nn.Linear) is torch.nn.Linear
    for wrong in (torch.nn.Linear(2, 2), 3, int):
        with pytest.raises(TypeError, match="a tensor or a class of modules"):
            minidynamo.mark_static(wrong)


# ---- state dictionaries: an OrderedDict with an attribute
NORMED = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.BatchNorm1d(3))


def with_note(x):
    made = collections.OrderedDict(a=x + 1)
    made.note = [made["a"]]
    return made


def test_attributes_that_lead_back_or_leave_as_a_dictionary():
    def own(x):
        made = collections.OrderedDict(a=x + 1)
        made.own = made
        return made

    def fields(x):
        made = with_note(x)
        return made, vars(made)

    found = minidynamo.compile(own, backend="eager")(X())
    assert found.own is found
    found, attributes = minidynamo.compile(fields, backend="eager")(X())
    assert vars(found) is attributes


def test_attributes_of_an_ordered_dict_from_outside():
    def f(x, d):
        d.uses = d.uses + 1
        d["last"] = x
        return x * d.scale, getattr(d, "missing", 3), copy.copy(d)

    compiled, worlds = minidynamo.compile(f, backend="eager"), []
    for function in (f, compiled):
        d, log = collections.OrderedDict(a=1), []
        d.scale, d.uses = 2, 0
        for change in ("", "scale", "missing", "items"):
            if change:
                setattr(d, change, 5 if change != "items" else dict(d).items)
            log.append([*function(X(), d), vars(d).keys(), d.uses])
            log[-1][2] = vars(log[-1][2])
        worlds.append(log)
    for ours, plain in zip(*reversed(worlds)):
        same(ours[0], plain[0])
        assert ours[1] == plain[1] and ours[3:] == plain[3:]
        assert list(ours[2]) == list(plain[2])
    assert minidynamo.counters["graphs"].total() <= 5


def test_weights_loaded_in_a_frame():
    """What is loaded may come from outside; a wrong size is plain Python's error."""

    def f(model, state, x):
        keys = model.load_state_dict(state)
        return model(x), keys.missing_keys

    other, state = copy.deepcopy(NORMED), NORMED.state_dict()
    compiled = minidynamo.compile(f, backend="eager")
    for step in range(3):
        with torch.no_grad():
            NORMED[0].weight.add_(step)
        ours, plain = (function(other, state, X()) for function in (compiled, f))
        assert torch.equal(other[0].weight, NORMED[0].weight)
        same(ours, plain)
    assert counts() == (1, 1)  # an OrderedDict that has attributes
    with pytest.raises(RuntimeError, match="size mismatch for 0.weight"):
        compiled(other, {**state, "0.weight": torch.ones(2, 2)}, X())
    with pytest.raises(RuntimeError, match=r"Missing key\(s\) in state_dict: .0.bias"):
        compiled(other, {k: v for k, v in state.items() if k != "0.bias"}, X())


# ---- weak references as keys
class Node:
    def __init__(self, number):
        self.number = number


def test_the_end_of_a_weak_key_is_seen():
    def count(x, weights):
        return x * len(weights)

    def look(x, node, weights):
        return x * weights[node]

    counted, looked = (minidynamo.compile(f, backend="eager") for f in (count, look))
    node, other = Node(1), Node(2)
    weights = weakref.WeakKeyDictionary({node: 3, other: 4})
    same(counted(X(), weights), X() * 2)
    same(looked(X(), node, weights), X() * 3)
    alive = weakref.ref(node)
    del node
    gc.collect()
    assert alive() is None and len(weights) == 1  # no entry holds it
    same(counted(X(), weights), X())
    node = Node(1)  # perhaps at the address of the first
    with pytest.raises(KeyError):
        looked(X(), node, weights)


class Holder:
    pass


def test_a_weak_key_that_dies_while_the_frame_runs():
    def f(x, holder, weights):
        holder.node = None
        return x * len(weights), [node.number for node in weights]

    results = []
    for function in (f, minidynamo.compile(f, backend="eager")):
        holder, weights = Holder(), weakref.WeakKeyDictionary()
        holder.node = Node(1)
        weights[holder.node] = 2
        results.append(function(X(), holder, weights))
    same(results[1], results[0])


def test_weak_keys_written_in_a_frame():
    def f(x, layer, cache):
        if layer not in cache:
            cache[layer] = torch.zeros(2)
        cache[layer] = cache[layer] + x.sum(1)
        return layer(x) + cache[layer].sum()

    results = []
    for function in (f, minidynamo.compile(f, backend="eager")):
        torch.manual_seed(0)
        layers, cache = [torch.nn.Linear(3, 3) for _ in range(2)], weakref.WeakKeyDictionary()
        found = [function(X(), layers[n % 2], cache) for n in range(5)]
        found.append([cache[layer] for layer in layers])
        del layers[0]
        gc.collect()
        results.append((found, len(cache)))  # what dies is gone from it
    same(results[1], results[0])


def test_keys_with_an_equality_of_their_own_are_left_to_python():
    class Equal(Node):
        def __eq__(self, other):
            return self.number == other.number

        def __hash__(self):
            return hash(self.number)

    def f(x, node, weights):
        return x * weights[node]

    weights, one = weakref.WeakKeyDictionary(), Equal(1)
    weights[one] = 3
    same(minidynamo.compile(f, backend="eager")(X(), Equal(1), weights), X() * 3)


# ---- functions of C that walk what they are given
def shaped(x, pattern):
    """As einops reads it: products of sizes, by generators."""
    sizes = dict(zip(pattern, x.shape))
    pairs = [(sizes[name], sizes[name] + 1) for name in pattern]
    whole = math.prod(sizes[name] for name in pattern)
    return x.reshape(math.prod(size for size, _ in pairs)) * whole, math.prod([], start=x).shape


def test_products_of_what_a_generator_gives():
    compiled = minidynamo.compile(shaped, backend="eager")
    for rows in (2, 3, 5, 7):
        x = torch.randn(rows, 4)
        same(compiled(x, "ab"), shaped(x, "ab"))
    assert minidynamo.counters["graphs"].total() == 2
    assert minidynamo.counters["graph_breaks"].total() == 0


@make_test(X())
def test_products_are_pythons(x):
    numbers = 3, 0.1, True, 2**70, 1e280, -0.0
    return [math.prod(numbers[:n]) for n in range(7)], math.prod([x, x, 2], start=0.5), x


def lengths(x):
    found = []
    for values in (enumerate([1]), zip([1], [2]), map(abs, [1]), filter(None, [1])):
        try:
            found.append(len(values))
        except TypeError as error:
            found.append(str(error))
        found += [bool(values), list(values)]
    return x + 1, found


def test_iterators_have_no_length():
    compiled = minidynamo.compile(lengths, backend="eager")
    same(compiled(X()), lengths(X()))
    assert minidynamo.counters["graph_breaks"].total() == 0


class Compared:
    def __init__(self, number, log):
        self.number, self.log = number, log

    def __lt__(self, other):
        self.log.append((self.number, other.number))
        if other.number == 99:
            raise ValueError("not this one")
        return self.number < other.number


def test_what_is_no_heap_is_left_to_python():
    for wrong in ([], (1, 2)):
        compiled = minidynamo.compile(lambda x, heap: (x + 1, heapq.heappop(heap)), backend="eager")
        with pytest.raises((IndexError, TypeError), match="index out of range|must be (a )?list"):
            compiled(X(), wrong)


# ---- what torch.compile captures whole
LINEAR = torch.nn.Linear(3, 3)


class Word(str):
    pass


class Scale(torch.nn.Module):
    def __init__(self, factor):
        super().__init__()
        self.factor, self.act = factor, torch.nn.ReLU()
        self.register_buffer("one", torch.ones(3))

    def forward(self, x):
        return self.act(x) * self.factor + self.one


def new_modules(x):
    head = torch.nn.Sequential(torch.nn.ModuleList([LINEAR, torch.nn.Tanh()])[0], Scale(x.shape[0]))
    head.eval()
    both = [head(x), head[1:](x), torch.nn.TripletMarginWithDistanceLoss()(x, x + 1, x * 2)]
    return both, [name for name, _ in head.named_parameters()], len([*head.modules()])


def a_module_cast_to_what_it_is(x):
    return LINEAR.to(torch.float32)(x) + LINEAR.cpu()(x)


def numbers_of_tensors(x):
    seen, total = {id(LINEAR): 3}, x
    for value in (x, total, x + 1):
        if id(value) not in seen:
            seen[id(value)] = len(seen)
            total = total + value
    return total * seen[id(x)]


def numbers_of_containers(x):
    seen = {id(LIMITS): 1, id([]): 2}
    return x * seen[id(LIMITS)] + (id(x) in seen)


LIMITS = {"low": 1}


def tensors_from_their_end(x):
    leaf = x.clone().requires_grad_()
    return [*reversed(x)], reversed(x[0, 0]), leaf.grad


def trees_of_one_kind(x):
    return pytree.tree_map_only(torch.Tensor, lambda value: value * 2, [x, 3, {"k": x}])


def words(x):
    word = Word("ab")
    y = x * len(word) * torch.mul(x, THREE) - Number(2)
    return y, word.upper(), WORD.title(), Number(4).twice(), THREE + 1


class Number(int):
    def twice(self):
        return self * 2


WORD, THREE = Word("cd"), Number(3)


@pytest.mark.parametrize(
    "function",
    [
        *(new_modules, a_module_cast_to_what_it_is, numbers_of_tensors),
        *(numbers_of_containers, tensors_from_their_end),
        trees_of_one_kind,
        words,
    ],
    ids=lambda function: function.__name__,
)
def test_one_graph(function):
    compiled = minidynamo.compile(function, backend="eager", fullgraph=True)
    for _ in range(2):
        same(compiled(X()), function(X()))
    assert counts() == (1, 0)


def test_modules_made_in_a_frame_live_on():
    """Each call makes its own, a gradient reaches what it was made of, a graph break keeps it."""

    def function(x):
        scale = Scale(3)
        minidynamo.graph_break()
        return scale(x), torch.nn.Sequential(LINEAR, scale)

    compiled = minidynamo.compile(function, backend="eager")
    (first, module), (_, other) = compiled(X()), compiled(X())
    same(first, function(X())[0])
    same(module(X()), function(X())[1](X()))
    assert module[0] is LINEAR and module[1] is not other[1] and module[1].factor == 3
    assert str(module) == str(function(X())[1]) and [*module.state_dict()][-1] == "1.one"


def test_a_module_assigned_in_forward():
    class Lazy(torch.nn.Module):
        def forward(self, x):
            if not hasattr(self, "pool"):
                self.pool = torch.nn.AvgPool1d(2) if x.shape[0] == 2 else torch.nn.Identity()
            return self.pool(x)

    for rows in (2, 3):
        ours, plain = Lazy(), Lazy()
        compiled = minidynamo.compile(ours, backend="eager", fullgraph=True)
        for _ in range(2):
            same(compiled(torch.ones(rows, 4)), plain(torch.ones(rows, 4)))
        assert str(ours) == str(plain)


def test_frames_without_a_graph_leave_comprehensions_alone():
    """The frame of a comprehension, whose loop began before it, is not compiled for itself."""

    def function(x):
        return [(n, [*rest]) for n, rest in zip([1, 2], ["ab", "c"])], x

    same(minidynamo.compile(function, backend="eager", fullgraph=True)(X()), function(X()))
