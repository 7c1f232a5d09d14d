"""Where tensors lie in memory, and the bits that say they are negated or conjugated: guarded, and
right in kernels."""

import pytest
import torch

import minidynamo
from minidynamo import _layouts, layouts

BACKENDS = ["eager", "aot_eager", "inductor"]


class Scaled(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("b", torch.arange(16.0).view(4, 4))

    def forward(self, x):
        return x + self.b * 2


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
    for read in (_layouts.layout, _layouts.plain_layout):
        for name, change in {**CHANGES, "swapped": swapped}.items():
            tensor = torch.arange(16.0).view(4, 4)
            before = read(tensor)
            assert before == read(torch.zeros(4, 4)) != None  # noqa: E711
            change(tensor)
            alike = name == "behind an offset" or name == "learning" and read is not _layouts.layout
            assert (read(tensor) == before) == alike, name
        for other in (3, None, torch.Tensor, [torch.ones(1)], torch.ones(2).to_sparse()):
            assert read(other) is None
    with torch.inference_mode():
        made = torch.zeros(4, 4)
    assert _layouts.plain_layout(made) == _layouts.plain_layout(torch.zeros(4, 4))
    assert _layouts.layout(made) != _layouts.layout(torch.zeros(4, 4))


def test_what_is_guarded_where_sizes_are_symbols():
    """Number of dimensions, dtype, gradients, bits: each a new entry; another size is none."""
    calls = []

    def backend(gm, inputs):
        calls.append(0)
        return gm

    minidynamo.reset()
    compiled = minidynamo.compile(lambda x: x * 2, backend=backend, dynamic=True)
    x = torch.ones(4, 5)
    with torch.inference_mode():
        made = torch.ones(4, 5)
    others = (
        x.double(),
        torch.ones(4),
        x.requires_grad_(),
        torch._neg_view(torch.ones(4, 5)),
        made,
    )
    for n, other in enumerate(others, 2):
        for size in (4, 6, 7):
            compiled(torch.ones(size, 5))
        torch.testing.assert_close(compiled(other), other * 2)
        assert len(calls) == n


@pytest.mark.parametrize("name", CHANGES)
@pytest.mark.parametrize("backend", BACKENDS)
def test_an_argument_lies_elsewhere(name, backend):
    compiled, x = minidynamo.compile(lambda x: x * 2 + x.sum(), backend=backend), torch.ones(4, 4)
    for change in (lambda x: None, lambda x: None, CHANGES[name], lambda x: None):
        x = torch.arange(16.0).view(4, 4)
        with torch.no_grad():
            change(x)
            got, want = compiled(x), x * 2 + x.sum()
        assert torch.equal(want, got) and want.stride() == got.stride()


@pytest.mark.parametrize("name", CHANGES)
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_buffer_lies_elsewhere(name, backend):
    module, x = Scaled(), torch.ones(4, 4)
    compiled = minidynamo.compile(module, backend=backend)
    with torch.no_grad():
        for _ in range(3):
            compiled(x)
        CHANGES[name](module.b)
        for _ in range(2):
            want, got = module(x), compiled(x)
            assert torch.equal(want, got) and want.stride() == got.stride()


def test_nothing_is_compiled_again_without_need():
    module, x = Scaled(), torch.ones(4, 4)
    compiled = minidynamo.compile(module, backend="aot_eager")
    compiled(x)
    before = sum(minidynamo.counters["recompiles"].values())
    module.b.data = torch.zeros(4, 4)
    module.b.add_(1)
    assert torch.equal(compiled(x), module(x))
    assert sum(minidynamo.counters["recompiles"].values()) == before


# --- bits -----------------------------------------------------------------------------------------
def numbers():
    return torch.complex(torch.arange(1.0, 5), torch.arange(2.0, 6))


def made_and_written(z):
    y = z.clone()
    v = y.conj().imag
    v.mul_(3)
    v[1:3] = 7.0
    return y, v + 1


def written(v):
    v.add_(1)
    return v * 2


BITS = {
    "input": (lambda v: v * 2, lambda: numbers().conj().imag),
    "input, copied": (lambda v: v.clone(), lambda: numbers().conj().imag),
    "input, seen": (lambda v: v.view(2, 2), lambda: numbers().conj().imag),
    "input, written": (written, lambda: numbers().conj().imag),
    "made": (lambda z: z.conj().imag + 1, numbers),
    "made, given back": (lambda z: (z.conj().imag, z.conj(), z.clone().conj()), numbers),
    "made and written": (made_and_written, numbers),
    "asked": (lambda z: (z.conj().imag.is_neg(), z.conj().is_conj(), z + 1), numbers),
    "resolved": (lambda z: torch.view_as_real(z.conj().resolve_conj()) + 1, numbers),
    "resolved input": (lambda v: v.resolve_neg() + 0, lambda: numbers().conj().imag),
    "real of conjugate": (lambda z: z.real + z.imag, lambda: numbers().conj()),
    "negated view": (lambda v: torch._neg_view(v) + 1, lambda: torch.arange(4.0)),
    "negated complex": (lambda z: torch.view_as_real(torch._neg_view(z)) + 1, numbers),
    "product": (lambda z: z.view(2, 2) @ z.view(2, 2).mH, numbers),
    "refused": (lambda z: torch.view_as_real(z.conj()), numbers),
}


@pytest.mark.parametrize("name", BITS)
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_bits(name, backend):
    function, make = BITS[name]
    compiled, mine, ours = minidynamo.compile(function, backend=backend), make(), make()
    try:
        want = function(mine)
    except RuntimeError:
        with pytest.raises(RuntimeError):
            compiled(ours)
        return
    got = compiled(ours)
    assert torch.equal(mine, ours)
    for a, b in zip(*[r if isinstance(r, tuple) else (r,) for r in (want, got)]):
        if not isinstance(a, torch.Tensor):
            assert a is b
            continue
        assert torch.allclose(a, b)
        assert (a.is_neg(), a.is_conj(), a.stride()) == (b.is_neg(), b.is_conj(), b.stride())


@pytest.mark.parametrize(
    "call",
    [
        lambda x: torch.nn.functional.one_hot((x > 0).long(), 2),
        lambda x: x.roll(1, 2),
        lambda x: torch.cat([x, x], 1),
        lambda x: x.index_select(1, torch.tensor([0, 2])),
        lambda x: x.repeat_interleave(2, 1),
        lambda x: torch.nn.functional.pixel_shuffle(x, 2),
    ],
)
def test_results_of_images_whose_channels_lie_last_lie_as_eagers_do(call):
    x = torch.randn(2, 8, 16, 16).to(memory_format=torch.channels_last)
    assert minidynamo.compile(call)(x).stride() == call(x).stride()
