"""Where tensors lie in memory, and the bits that say they are negated or conjugated: guarded, and
right in kernels."""

import torch

import minidynamo
from minidynamo.guards import _layouts
from minidynamo.guards import checks as layouts


Fields = type("Fields", (type("Slot", (), {"__slots__": ("by",)}),), {})  # a slot and a __dict__


class Scaled(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("b", torch.arange(16.0).view(4, 4))
        self.fields = Fields()

    def forward(self, x):
        return x + self.b * getattr(self.fields, "by", 3)


def becomes(make):
    def change(b):
        b.data = make()

    return change


CHANGES = {
    "t_": lambda b: b.t_(),
    "transposed data": becomes(lambda: torch.arange(16.0).view(4, 4).t()),
    "set_": lambda b: b.set_(torch.arange(100.0).untyped_storage(), 3, (4, 4), (8, 2)),
    "behind an offset": becomes(lambda: torch.arange(100.0)[1:17].view(4, 4)),
    "expanded": becomes(lambda: torch.ones(1, 1).expand(4, 4)),
    "negated": becomes(lambda: torch._neg_view(torch.arange(16.0).view(4, 4))),
    "doubles": becomes(lambda: torch.arange(16.0, dtype=torch.float64).view(4, 4)),
    "fewer": becomes(lambda: torch.arange(4.0)),
    "own class": lambda b: setattr(b, "__class__", type("Own", (torch.Tensor,), {})),
    "learning": lambda b: b.requires_grad_(),
}


def swapped(b):
    torch.utils.swap_tensors(b, torch.arange(16.0).view(4, 4).t())


def test_layouts_are_read():
    """The same bytes for what a kernel cannot tell apart, and others for all else."""
    assert layouts.are_read()
    read = _layouts.layout
    for name, change in {**CHANGES, "swapped": swapped}.items():
        tensor = torch.arange(16.0).view(4, 4)
        before = read(tensor)
        assert before == read(torch.zeros(4, 4)) != None  # noqa: E711
        change(tensor)
        alike, place = name == "behind an offset", {}
        assert (read(tensor) == before) == alike, name
        assert _layouts.still([_layouts.note(place)], (tensor, before), place) == alike, name
    assert not any(map(read, (3, None, torch.Tensor, [torch.ones(1)], torch.ones(2).to_sparse())))
    with torch.inference_mode():
        made = torch.zeros(4, 4)
    assert read(made) != read(torch.zeros(4, 4))


class Outer(torch.nn.Module):
    def __init__(self, tags):
        super().__init__()
        self.inner, self.tags = torch.nn.ModuleDict({"a": Scaled(), "b": Scaled()}), tags

    def forward(self, x):
        for name, layer in self.inner.items():
            x = layer(x) * 2 if name in self.tags else layer(x) - 1
        return x


Halved = type("Halved", (Scaled,), {"forward": lambda self, x: x / 2})
WRITES = {
    "a buffer": lambda m: setattr(m.inner["b"], "b", torch.ones(4, 4)),
    "data": lambda m: setattr(m.inner["b"].b, "data", torch.ones(4, 4).t().double()),
    "a class": lambda m: setattr(m.inner["b"], "__class__", Halved),
    "fields": lambda m: setattr(m, "__dict__", {**vars(m), "tags": ()}),
    "the order": lambda m: m.inner.update({"a": m.inner.pop("a")}),
    "a hook": lambda m: m.inner["b"].register_forward_hook(lambda m, x, y: y + 1),
    "a method": lambda m: setattr(m.inner["b"], "forward", lambda x: x - 1),
    "a slot": lambda m: setattr(m.inner["b"].fields, "by", 2),
    "a set": lambda m: m.tags.add("b"),
}


def test_writes_are_seen_after_calls_that_found_none():
    x = torch.randn(4, 4)
    for name, write in WRITES.items():
        minidynamo.reset()
        m = Outer({"a"} if name == "a set" else ("a",))
        compiled = minidynamo.compile(m, backend="eager")
        compiled(x), compiled(x)
        assert minidynamo.records.frames[-1].guard_function.namespace["state_seen"] != [b""]
        write(m)
        torch.testing.assert_close(compiled(x), m(x), msg=name)


def test_a_tuple_at_the_address_of_a_dead_one_is_another():
    tuples = lambda n: ("a" * n,), lambda x, t: x * len(t[0])
    defaults = lambda n: lambda x, n=n: x * n, lambda x, f: f(x)
    for make, use in (tuples, defaults):
        compiled = minidynamo.compile(use, backend="eager")
        for n in (1, 1, 1, 2, 2, 3):
            assert compiled(torch.ones(1), make(n)) == n


def test_results_are_made_in_the_sizes_of_the_output():
    x = torch.randn(2, 3)
    changed = lambda x: (x + 1).view(6), lambda x: (x * 2)[None, :, None]
    for f in (lambda x: x.sum(0, True), *changed):
        found = minidynamo.compile(f)(x)
        torch.testing.assert_close(found, f(x))
        assert found.stride() == f(x).stride()
        assert "as_strided" not in minidynamo.explain(f)(x).wrapper.source


def test_what_is_guarded_where_sizes_are_symbols():
    """Number of dimensions, dtype, gradients, bits: each a new entry; another size is none."""
    calls = []
    backend = lambda gm, inputs: calls.append(0) or gm
    minidynamo.reset()
    compiled = minidynamo.compile(lambda x: x * 2, backend=backend, dynamic=True)
    x = torch.ones(4, 5)
    others = (x.double(), torch.ones(4), x.requires_grad_(), torch._neg_view(torch.ones(4, 5)))
    for n, other in enumerate(others, 2):
        [compiled(torch.ones(size, 5)) for size in (4, 6, 7)]
        torch.testing.assert_close(compiled(other), other * 2)
        assert len(calls) == n


def test_nothing_is_compiled_again_without_need():
    module, x = Scaled(), torch.ones(4, 4)
    compiled = minidynamo.compile(module, backend="aot_eager")
    compiled(x)
    before = minidynamo.counters["recompiles"].copy()
    module.b.data = torch.zeros(4, 4)
    module.b.add_(1)
    assert torch.equal(compiled(x), module(x))
    assert minidynamo.counters["recompiles"] == before
