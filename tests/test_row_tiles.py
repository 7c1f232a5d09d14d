"""Rows whose layouts are mixed (speed/row_tiles.py): results as eager's, stores in whole lines."""

import re

import pytest
import torch
import torch.nn.functional as F
from record_helpers import last_compiled

import minidynamo

PROGRAMS = {
    "instance norm": lambda x, y: F.instance_norm(x),
    "centred": lambda x, y: y + (x - x.mean((2, 3), keepdim=True)),
    "softmax of permuted": lambda x, y: torch.softmax(y.flatten(2).transpose(1, 2), -1),
    "largest of product": lambda x, y: (x * y).amax((2, 3)),
    "rows of both": lambda x, y: (x - y.mean((2, 3), keepdim=True), (x * y).sum((2, 3))),
    "norm over channels": lambda x, y: F.normalize(y, dim=1) * x,
}
CLOSE = {torch.float32: 1e-5, torch.bfloat16: 5e-2, torch.float16: 1e-2, torch.float64: 1e-12}
DTYPES = tuple(CLOSE)


def sources() -> str:
    return "\n".join(str(kernel.source) for kernel in last_compiled().backend_record.kernels)


def images(shape: tuple[int, ...], dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """One with its channels last, one dense."""
    generator = torch.Generator().manual_seed(0)
    x, y = (torch.randn(shape, generator=generator).to(dtype) for _ in range(2))
    return x.contiguous(memory_format=torch.channels_last), y


def as_tuple(result) -> tuple[torch.Tensor, ...]:
    return result if isinstance(result, tuple) else (result,)


@pytest.fixture(params=[1, 2])
def threads(request):
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(4, 32, 8, 8), (3, 40, 5, 7), (2, 9, 37, 1), (1, 600, 6, 9)])
@pytest.mark.parametrize("name", PROGRAMS)
def test_layouts_mixed_in_rows(name, shape, dtype, threads):
    minidynamo.reset()
    function, inputs = PROGRAMS[name], images(shape, dtype)
    with torch.no_grad():
        eager, exact = function(*inputs), function(*[t.double() for t in inputs])
        found = minidynamo.compile(function, fullgraph=True)(*inputs)
    for one, other, number in zip(*map(as_tuple, (found, eager, exact))):
        assert (one.dtype, one.stride()) == (other.dtype, other.stride())
        close = CLOSE[dtype]
        torch.testing.assert_close(one.double(), number, rtol=close, atol=close)


def test_sizes_that_change():
    compiled = minidynamo.compile(PROGRAMS["centred"], dynamic=True)
    for shape in [(4, 32, 8, 8), (3, 40, 9, 9), (2, 17, 4, 4)]:
        inputs = images(shape, torch.float32)
        torch.testing.assert_close(compiled(*inputs), PROGRAMS["centred"](*inputs))


def test_written_in_place():
    def function(x, y):
        y.sub_(x.mean((2, 3), keepdim=True)).mul_(x)
        return y.sum((2, 3))

    x, y = images((4, 32, 8, 8), torch.float32)
    expected = y.clone()
    wanted = function(x, expected)
    torch.testing.assert_close(minidynamo.compile(function)(x, y), wanted)
    torch.testing.assert_close(y, expected)


@pytest.mark.parametrize("dtype", DTYPES[:3])
@pytest.mark.parametrize("name", ["instance norm", "centred", "softmax of permuted"])
def test_no_lane_touches_a_line_of_its_own(name, dtype):
    """The innermost loops read and write along the lanes; what lies across them is transposed."""
    with torch.no_grad():
        minidynamo.compile(PROGRAMS[name], fullgraph=True)(*images((4, 32, 16, 16), dtype))
    source = sources()
    assert "mini::transpose(" in source
    loops = re.findall(r"omp simd.*\n\s*for \(int64_t (\w+) = [^{]*\{([^{}]*)\}", source)
    assert loops
    for lane, body in loops:
        for index in re.findall(r"\b(?:in|out)\d+\[([^\]]*)\]", body):
            assert f"*{lane}" not in index, (lane, index)
