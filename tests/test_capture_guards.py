"""Guards: whatever a compiled entry assumed, changing it gives plain Python's result, through a
recompile."""

import builtins
import contextlib
import gc
import math
import sys
import weakref

import pytest
import torch

from record_helpers import last_compiled

import minidynamo
from minidynamo import config, frame_hook, records


@pytest.fixture(autouse=True)
def fresh():
    minidynamo.reset()
    with config.patch(raise_internal_errors=True):
        yield
    minidynamo.reset()


def check(function, *calls):
    """Each call, compiled, equals plain Python; returns how many frames were compiled."""
    compiled = minidynamo.compile(function, backend="eager")
    for args in calls:
        torch.testing.assert_close(compiled(*args), function(*args), equal_nan=True)
    return minidynamo.counters["frames"].total()


A = torch.arange(6.0).reshape(2, 3) - 2


@pytest.mark.parametrize(
    "other",
    [
        A[:, :2],
        A.double(),
        A.t(),
        A.clone().requires_grad_(),
        A.int(),
        torch.empty(0, 3),
        A[0],
        torch.nn.Parameter(A.clone()),
    ],
    ids=str,
)
def test_tensor_metadata(other):
    assert (
        check(
            lambda x: x * x.shape[0] + x.stride()[0] + x.requires_grad,
            (A,),
            (A.clone(),),
            (other,),
            (A,),
        )
        == 2
    )


@pytest.mark.parametrize(
    "first, second",
    [(1, True), (1, 1.0), (0.0, -0.0), (1.0, math.nan), (2, 3), ("a", "b"), (None, 0)],
)
def test_constants_by_value_and_type(first, second):
    def f(x, c):
        return x + (
            1
            if c is True
            else 2
            if isinstance(c, int)
            else 3
            if isinstance(c, str)
            else 4
            if c is None
            else math.copysign(5, c)
            if c == c
            else 6
        )

    assert check(f, (A, first), (A, second), (A, first), (A, second)) == 2


def test_nan_hits():
    """One NaN is as good as another."""
    other = float("nan")
    calls = (A, math.nan), (A, math.nan), (A, other), (A, other)
    assert check(lambda x, c: x + (c != c), *calls) == 1


def test_list_length_and_dict_keys():
    assert check(lambda x, items: x + len(items), (A, [1]), (A, [1]), (A, [1, 2])) == 2
    assert (
        check(
            lambda x, d: x + sum(d.values()) + ("b" in d),
            (A, {"a": 1}),
            (A, {"b": 1}),
            (A, {"a": 1, "b": 1}),
        )
        == 5
    )


SCALE = 2.0


def test_global():
    global SCALE
    compiled = minidynamo.compile(lambda x: x * SCALE, backend="eager")
    for SCALE in (2.0, 3.0, 2.0):
        torch.testing.assert_close(compiled(A), A * SCALE)
    assert minidynamo.counters["frames"].total() == 2


def test_same_tensor_twice():
    def f(x, y):
        x.add_(1)
        return y * 2

    compiled = minidynamo.compile(f, backend="eager")
    for same in (False, True, False, True):
        x = A.clone()
        y = x if same else A.clone()
        torch.testing.assert_close(compiled(x, y), (A + same) * 2)
    assert minidynamo.counters["frames"].total() == 2


def test_grad_mode():
    def f(x):
        return x * 2

    x = A.clone().requires_grad_()
    compiled = minidynamo.compile(f, backend="eager")
    assert compiled(x).requires_grad
    with torch.no_grad():
        assert not compiled(x).requires_grad


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList(
            [torch.nn.Linear(3, 3), torch.nn.Dropout(0.5), torch.nn.BatchNorm1d(3)]
        )
        self.scale = 1.0

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x * self.scale


@pytest.mark.parametrize(
    "change",
    [
        lambda m: setattr(m, "scale", 2.0),
        lambda m: setattr(m.layers[0], "weight", torch.nn.Parameter(torch.ones(3, 3))),
        lambda m: m.layers.append(torch.nn.Linear(3, 2)),
        lambda m: m.layers.__setitem__(0, torch.nn.Linear(3, 3)),
        lambda m: m.layers[2].train(),
        lambda m: m.layers[0].register_forward_hook(lambda mod, args, out: out + 1),
        lambda m: m.layers[0].register_forward_pre_hook(lambda mod, args: (args[0] * 2,)),
        lambda m: setattr(m.layers[0], "forward", lambda x: x * 5),
        lambda m: m.double(),
    ],
    ids=range(9),
)
def test_module_changes(change):
    torch.manual_seed(0)
    model = Net().eval()
    compiled = minidynamo.compile(model, backend="eager")
    torch.testing.assert_close(compiled(A), model(A))
    compiled(A)
    assert minidynamo.counters["frames"].total() == 1
    change(model)
    x = A.to(model.layers[2].running_mean.dtype)
    before = {k: v.clone() for k, v in model.state_dict().items()}
    expected = model(x)
    model.load_state_dict(before)
    torch.testing.assert_close(compiled(x), expected)
    assert minidynamo.counters["frames"].total() == 2


def test_compiled_module_is_the_module():
    model = Net()
    compiled = minidynamo.compile(model, backend="eager")
    assert isinstance(compiled, torch.nn.Module) and list(compiled.state_dict()) == list(
        model.state_dict()
    )
    assert [*compiled.parameters()][0] is model.layers[0].weight
    compiled.eval()
    assert not model.training and not compiled.training


def test_dead_module_frees_its_entry():
    model = Net().eval()
    minidynamo.compile(model, backend="eager")(A)
    assert len(frame_hook.get_cache(Net.forward.__code__)) == 1
    dead = weakref.ref(model)
    del model
    gc.collect()
    assert dead() is None and frame_hook.get_cache(Net.forward.__code__) == []


def test_recompile_limit():
    compiled = minidynamo.compile(lambda x, n: x + n, backend="eager", dynamic=False)
    with config.patch(recompile_limit=3):
        for n in range(6):
            torch.testing.assert_close(compiled(A, n), A + n)
    assert minidynamo.counters["graphs"].total() == 3
    assert any("recompile_limit" in reason for reason in minidynamo.counters["skipped"])


def test_hits_are_counted():
    compiled = minidynamo.compile(Net().eval(), backend="eager")
    for _ in range(4):
        compiled(A)
    assert minidynamo.counters["cache_hits"].total() == 3 and last_compiled().hits == 3


def test_backends_do_not_share_entries():
    seen = []

    def mine(gm, inputs):
        seen.append(len(inputs))
        return gm.forward

    def f(x):
        return x + 1

    for backend in ("eager", mine, "eager", mine):
        torch.testing.assert_close(minidynamo.compile(f, backend=backend)(A), A + 1)
    assert seen == [1] and minidynamo.counters["frames"].total() == 2


def test_first_failure_is_named():
    minidynamo.compile(lambda x, n: x + n, backend="eager")(A, 1)
    guard = last_compiled().guard_function
    assert guard.first_failure(None, A, 1) is None
    assert "n == 1" in guard.first_failure(None, A, 2)[1]
    assert "shape" in guard.first_failure(None, A[:1], 1)[1]


def test_the_autocast_dtype_is_guarded():
    x = torch.randn(8, 8)
    compiled = minidynamo.compile(lambda x: x @ x)
    with torch.no_grad():
        for dtype in (torch.bfloat16, torch.float16, torch.bfloat16):
            with torch.autocast("cpu", dtype=dtype):
                assert compiled(x).dtype == dtype
        assert compiled(x).dtype == torch.float32


def test_the_default_device_is_guarded():
    compiled = minidynamo.compile(lambda x: torch.zeros(3) + x.shape[0])
    for name in ("meta", "cpu", "meta"):
        with torch.device(name):
            assert compiled(torch.ones(2)).device.type == name
    assert compiled(torch.ones(2)).device.type == "cpu"


# ---- one change of the environment each: `change` is a setter or a context manager, and the second
# call must be compiled anew
class Base:
    def weight(self):
        return 1


class Derived(Base):
    kept = 1


class Other:
    def weight(self):
        return 5


class Slots:
    __slots__ = ("filled", "empty")


@contextlib.contextmanager
def setting(target, name, value):
    """`setattr` for the block; a name that was not there goes again."""
    before = vars(target).get(name, config)
    setattr(target, name, value)
    try:
        yield
    finally:
        delattr(target, name) if before is config else setattr(target, name, before)


@contextlib.contextmanager
def calling(setter, value, before):
    setter(value)
    try:
        yield
    finally:
        setter(before)


OBJECT = Derived()


def weight(x):
    return x * OBJECT.weight()


STATES = {
    "threads": (
        lambda x: x + torch.get_num_threads(),
        lambda: calling(
            torch.set_num_threads, torch.get_num_threads() + 1, torch.get_num_threads()
        ),
    ),
    "matmul precision": (
        lambda x: x + (torch.get_float32_matmul_precision() == "high"),
        lambda: calling(torch.set_float32_matmul_precision, "high", "highest"),
    ),
    "deterministic": (
        lambda x: x + torch.are_deterministic_algorithms_enabled(),
        lambda: calling(torch.use_deterministic_algorithms, True, False),
    ),
    "fill memory": (
        lambda x: x + torch.utils.deterministic.fill_uninitialized_memory,
        lambda: calling(
            lambda v: setattr(torch.utils.deterministic, "fill_uninitialized_memory", v),
            False,
            True,
        ),
    ),
    "cudnn": (
        lambda x: x + torch.backends.cudnn.enabled,
        lambda: torch.backends.cudnn.flags(enabled=False),
    ),
    "mkldnn": (
        lambda x: x + torch.backends.mkldnn.enabled,
        lambda: torch.backends.mkldnn.flags(enabled=False),
    ),
    "autocast cache": (
        lambda x: x + torch.is_autocast_cache_enabled(),
        lambda: calling(torch.set_autocast_cache_enabled, False, True),
    ),
    "autocast dtype, read outside": (
        lambda x: x.to(torch.get_autocast_dtype("cpu")),
        lambda: calling(
            lambda v: torch.set_autocast_dtype("cpu", v), torch.float16, torch.bfloat16
        ),
    ),
    "anomaly mode": (
        lambda x: x + torch.is_anomaly_enabled(),
        lambda: torch.autograd.set_detect_anomaly(True),
    ),
    "warnings": (
        lambda x: x + torch.is_warn_always_enabled(),
        lambda: calling(torch.set_warn_always, True, False),
    ),
    "default dtype": (
        lambda x: x + torch.zeros(2, 3),
        lambda: calling(torch.set_default_dtype, torch.float64, torch.float32),
    ),
    "inference mode": (lambda x: x * 2, torch.inference_mode),
    "a builtin": (lambda x: x * ord("b"), lambda: setting(builtins, "ord", lambda value: 7)),
    "a global hides a builtin": (
        lambda x: x * abs(-2),
        lambda: setting(sys.modules[__name__], "abs", lambda value: 7),
    ),
    "a method is overridden": (weight, lambda: setting(Derived, "weight", lambda self: 3)),
    "a method of the object": (weight, lambda: setting(OBJECT, "weight", lambda: 3)),
    "other bases": (
        weight,
        lambda: calling(lambda bases: setattr(Derived, "__bases__", bases), (Other,), (Base,)),
    ),
    "isinstance": (
        lambda x: x + isinstance(OBJECT, Other),
        lambda: calling(lambda bases: setattr(Derived, "__bases__", bases), (Other,), (Base,)),
    ),
    "hasattr, on the class": (
        lambda x: x + hasattr(OBJECT, "late"),
        lambda: setting(Derived, "late", 1),
    ),
    "hasattr, on the object": (
        lambda x: x + hasattr(OBJECT, "late"),
        lambda: setting(OBJECT, "late", 1),
    ),
    "__getattr__ appears": (
        lambda x: x + getattr(OBJECT, "late", 1),
        lambda: setting(Derived, "__getattr__", lambda self, name: 4),
    ),
    "a property appears": (
        lambda x: x + OBJECT.kept,
        lambda: setting(Derived, "kept", property(lambda self: 4)),
    ),
}


@pytest.mark.parametrize("name", STATES)
def test_environment(name):
    function, change = STATES[name]
    compiled = minidynamo.compile(function, backend="eager")
    for _ in range(2):
        torch.testing.assert_close(compiled(A), function(A))
    assert minidynamo.counters["frames"].total() == 1
    with change():
        torch.testing.assert_close(compiled(A), function(A))
    assert (
        minidynamo.counters["frames"].total() == 2
        and minidynamo.counters["recompiles"].total() == 1
    )
    torch.testing.assert_close(compiled(A), function(A))
    assert minidynamo.counters["frames"].total() == 2


def inference(x):
    with torch.inference_mode():
        return x.clone()


def with_attribute(x):
    x = x.clone()
    x.late = 1
    return x


LEAF = A.clone().requires_grad_()


@pytest.mark.parametrize(
    "function, first, second",
    [
        (lambda x: x.detach() + x.is_leaf, LEAF, LEAF * 1),
        (lambda x: x.detach() + (x.grad_fn is None), LEAF, A),
        (lambda x: x + x.is_inference(), A, inference(A)),
        (lambda x: x + hasattr(x, "late"), A, with_attribute(A)),
        (lambda x: (x * 2).layout is torch.sparse_coo, A.to_sparse(), A),
        (lambda x: x.real + x.is_conj(), torch.complex(A, A), torch.complex(A, A).conj()),
    ],
    ids=["is_leaf", "grad_fn", "is_inference", "hasattr", "layout", "conj"],
)
def test_tensor_facts(function, first, second):
    assert check(function, (first,), (second,), (first,), (second,)) == 2


def test_the_gradient_is_guarded():
    x = A.clone().requires_grad_()
    compiled = minidynamo.compile(
        lambda x: x.detach() + (0 if x.grad is None else x.grad), backend="eager"
    )
    for grad in (None, torch.ones(2, 3), None, torch.full((2, 3), 4.0)):
        x.grad = grad
        torch.testing.assert_close(compiled(x), A + (0 if grad is None else grad))
    assert minidynamo.counters["frames"].total() == 2


def test_a_slot_is_filled():
    box = Slots()
    box.filled = 1
    compiled = minidynamo.compile(lambda x: x + box.filled + hasattr(box, "empty"), backend="eager")
    torch.testing.assert_close(compiled(A), A + 1)
    box.empty = 0
    torch.testing.assert_close(compiled(A), A + 2)


# ---- the cache
def test_the_entry_that_hit_last_is_tried_first():
    def f(x, n):
        return x + n

    compiled = minidynamo.compile(f, backend="eager", dynamic=False)
    order = lambda: [
        next(g.code[-1] for g in entry.record.guards if g.kind == "EQUALS")
        for entry in frame_hook.get_cache(f.__code__)
    ]  # noqa: E731
    for n in (1, 2, 3):
        compiled(A, n)
    assert sorted(order()) == ["1", "2", "3"]
    for n in (2, 1, 3):
        compiled(A, n)
        assert order()[0] == str(n)


def test_records_carry_the_failed_guard_and_reset_forgets():
    def f(x, n):
        return x + n

    compiled = minidynamo.compile(f, backend="eager")
    compiled(A, 1), compiled(A, 2)
    assert records.frames[0].failed_guard is None
    failed = records.frames[1].failed_guard
    assert failed.kind == "EQUALS" and "test_capture_guards.py" in failed.line
    assert minidynamo.counters["recompiles"].total() == 1 and minidynamo.counters["frames"] == {
        "f": 2
    }
    minidynamo.reset()
    assert (
        frame_hook.get_cache(f.__code__) == []
        and not records.frames
        and not minidynamo.counters["frames"]
    )
    torch.testing.assert_close(compiled(A, 1), A + 1)
    assert minidynamo.counters["frames"] == {"f": 1}


def test_the_limit_message_says_what_failed():
    compiled = minidynamo.compile(
        lambda x, n: x + n, backend="eager", fullgraph=True, dynamic=False
    )
    with config.patch(recompile_limit=2):
        compiled(A, 1), compiled(A, 2)
        with pytest.raises(
            minidynamo.Unsupported,
            match=r"test_capture_guards.py.* 2 times .config.recompile_limit.*"
            r"Last guard that failed: .*n == ",
        ):
            compiled(A, 3)


HELD = torch.full((3,), 3.0)


@pytest.mark.parametrize(
    "same",
    [
        lambda x, y: x is y,
        lambda x, y: x is HELD,
        lambda x, y: id(x) == id(y),
        lambda x, y: id(x) in {id(y): 1},
        lambda x, y: x in {y: 1, HELD: 2},
        lambda x, y: any(x is other for other in [y]),
    ],
)
def test_which_tensor_it_is(same):
    """Also of one that the graph does not need, and that was another one in the first call."""
    a, b = torch.full((3,), 3.0), torch.full((3,), 3.0)
    calls = [(a, b), (a, a), (HELD, b), (b, HELD), (HELD, HELD), (b, a)]
    check(lambda x, y: x * 2 if same(x, y) else x + 1, *calls)
    minidynamo.reset()
    check(lambda x, y: x * 2 if same(x, y) else x + 1, *calls[::-1])


def test_the_id_of_a_parameter_and_of_an_argument():
    layer = torch.nn.Linear(3, 3)

    def function(x):
        return x * 2 if id(x) in {id(p) for p in layer.parameters()} else x + 1

    check(function, (torch.ones(3) * 3,), (layer.bias,), (torch.ones(3) * 3,))


class Named:
    """An object whose number a program keeps."""


KEPT = Named()
SCALES = {id(KEPT): 5.0, id(HELD): 3.0}
NUMBERS = [id(KEPT), id(HELD)]


def scale_or_raise(x, value):
    try:
        return x * SCALES[id(value)]
    except KeyError:
        return x + 1


@pytest.mark.parametrize(
    "function",
    [
        scale_or_raise,
        lambda x, value: x * SCALES.get(id(value), 1),
        lambda x, value: x * 2 if id(value) in NUMBERS else x + 1,
        lambda x, value: x * 2 if id(value) in set(NUMBERS) else x + 1,
        lambda x, value: x * 2 if id(value) == NUMBERS[0] else x + 1,
        lambda x, value: x * 2 if id(value) != NUMBERS[1] else x + 1,
        lambda x, value: x * 2 if {id(value)} & SCALES.keys() else x + 1,
        lambda x, value: x * 2 if {NUMBERS[0]: 1, NUMBERS[1]: 2}.get(id(value)) else x + 1,
    ],
)
@pytest.mark.parametrize("turn", [0, 1])
def test_ids_that_were_kept_outside(function, turn):
    x, other = torch.ones(3), torch.ones(3)
    for values in ([KEPT, Named(), KEPT], [HELD, other, HELD], [[KEPT], [1], [KEPT]]):
        minidynamo.reset()
        check(function, *[(x, value) for value in values[turn:]])
