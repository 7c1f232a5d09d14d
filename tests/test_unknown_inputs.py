"""Inputs that are not supported: refused by name, run eagerly, right.  The table of
docs/how_it_is_tested.md, a test a row."""

import os

import pytest
import torch

import minidynamo
from tests.soundness.tables import rows

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.usefixtures("anew")]


def numbers():
    return torch.linspace(-2, 2, 16).reshape(4, 4)


def nested(layout):
    return torch.nested.nested_tensor([numbers(), numbers()[:2]], layout=layout)


def quantised_by_channel():
    return torch.quantize_per_channel(numbers(), torch.ones(4), torch.zeros(4), 0, torch.qint8)


def distributed():
    import torch.distributed
    from torch.distributed.tensor import Replicate, distribute_tensor, init_device_mesh

    if not torch.distributed.is_initialized():
        os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
        store = torch.distributed.HashStore()
        torch.distributed.init_process_group("gloo", rank=0, world_size=1, store=store)
    return distribute_tensor(numbers(), init_device_mesh("cpu", (1,)), [Replicate()])


class Mine(torch.Tensor):
    def __pos__(self):
        return self * 3


def complex_numbers():
    return torch.complex(numbers(), numbers().flip(0))


ROWS = {  # name -> (program, its input, what is said: a break, a note, an eager kernel's reason)
    name: (eval(program, globals()), eval(make, globals()), reason)
    for name, program, make, reason in rows("""
sparse COO :: lambda t: t * 2 + t :: lambda: numbers().to_sparse() ::
    a tensor that is not strided (sparse, mkldnn)
sparse CSR :: lambda t: t.relu() :: lambda: numbers().to_sparse_csr() ::
    a sparse tensor (torch.sparse_csr) is not traced
sparse CSC :: lambda t: t.relu() :: lambda: numbers().to_sparse_csc() ::
    a sparse tensor (torch.sparse_csc) is not traced
sparse BSR :: lambda t: t.to_dense() + 1 :: lambda: numbers().to_sparse_bsr((2, 2)) ::
    a sparse tensor (torch.sparse_bsr) is not traced
nested :: lambda t: t * 2 + 1 :: lambda: nested(torch.strided) :: a nested tensor is not traced
nested, jagged :: lambda t: t.sin() * 2 :: lambda: nested(torch.jagged) ::
    the tensor subclass NestedTensor is not traced
quantised :: lambda t: t.relu() ::
    lambda: torch.quantize_per_tensor(numbers(), 0.1, 0, torch.quint8) ::
    a quantised tensor is not traced
quantised by channel :: lambda t: t.dequantize() * 2 :: quantised_by_channel ::
    a quantised tensor is not traced
oneDNN :: lambda t: t.relu() + t :: lambda: numbers().to_mkldnn() ::
    a tensor that is not strided (sparse, mkldnn)
DTensor :: lambda t: t.sin() * 2 :: distributed :: the tensor subclass DTensor is not traced
a subclass :: lambda t: t * 2 :: lambda: numbers().as_subclass(Mine) ::
    the tensor subclass Mine is not traced
float8, computed with :: lambda t: torch.cat([t, t]).float() * 2 ::
    lambda: numbers().to(torch.float8_e4m3fn) :: torch.float8_e4m3fn numbers
float8, other kinds :: lambda t: (t * 2).to(torch.float8_e5m2fnuz) :: numbers ::
    torch.float8_e5m2fnuz numbers
complex :: lambda t: t * 2 + t.conj() * 1j :: complex_numbers :: complex numbers
complex, of halves :: lambda t: t.real * 2 :: lambda: complex_numbers().to(torch.complex32) ::
    no lowering
""")
}


def plain(tensor):
    """Its numbers, as tensors that torch.equal compares."""
    if hasattr(tensor, "to_local"):
        tensor = tensor.to_local()
    if tensor.is_nested:
        return [part for one in tensor.unbind() for part in plain(one)]
    if tensor.layout != torch.strided:
        tensor = tensor.to_dense()
    if tensor.is_quantized:
        tensor = tensor.dequantize()
    if tensor.dtype.itemsize == 1 and tensor.is_floating_point():
        tensor = tensor.float()
    return [tensor.as_subclass(torch.Tensor)]


def said():
    """Everything that the records say."""
    found = [*minidynamo.counters["graph_breaks"]]
    for frame in minidynamo.records.frames:
        record = frame.backend_record
        if record is not None:
            found += [*record.notes, *[str(fallback.reason) for fallback in record.fallbacks]]
    return "\n".join(found)


@pytest.mark.parametrize("row", ROWS)
def test_what_is_not_supported_is_refused_by_name_and_right(row):
    program, make, reason = ROWS[row]
    given = make()
    expected, got = program(given), minidynamo.compile(program)(given)
    assert type(got) is type(expected) and got.dtype == expected.dtype
    assert got.layout == expected.layout
    for ours, eager in zip(plain(got), plain(expected), strict=True):
        torch.testing.assert_close(ours, eager)
    assert reason in said()
    assert not minidynamo.counters["errors"]


WITHOUT_CLONE = "quantised by channel"  # eager cannot copy that one
REFUSED_AS_INPUTS = [name for name in ROWS if ROWS[name][2].endswith("not traced")]


@pytest.mark.parametrize("row", [row for row in REFUSED_AS_INPUTS if row != WITHOUT_CLONE])
def test_an_argument_of_a_torch_function_is_refused_by_name(row):
    """As a layer's weight is: only the method's break named it, the function's said "opaque(t)"."""
    _, make, reason = ROWS[row]
    given = make()
    got = minidynamo.compile(lambda t, x: (torch.clone(t), torch.sin(x) * 2))(given, numbers())[0]
    assert type(got) is type(given)
    for ours, eager in zip(plain(got), plain(given), strict=True):
        torch.testing.assert_close(ours, eager)
    assert reason in said() and "opaque(" not in said()


def test_the_documentation_has_each_row():
    from pathlib import Path

    text = (Path(__file__).parent.parent / "docs" / "how_it_is_tested.md").read_text()
    for name in ROWS:
        assert f"| {name} |" in text, name
