"""Fusion: which nodes become one kernel, and the reasons why others do not."""

import pytest
import torch
from backend_helpers import CPU, layer_norm, make_graph, pointwise, reduce, run, softmax

import miniinductor.config
from benchmarks.error_bound import assert_near
from miniinductor.compile import make_schedule
from miniinductor.ir.loops import ExternKernel, Layout, TensorBox, contiguous_strides, current_graph
from miniinductor.ir.ops import ops
from miniinductor.records import CompileRecord


def schedule(function, *tensors):
    record = CompileRecord()
    return make_schedule(make_graph(function, *tensors), record).nodes, record


def names(nodes):
    return [n.names for n in nodes]


def exp(box):
    return pointwise(ops.exp, box, realize=True)


def extern(op, *boxes, size=None):
    """An eager kernel over realized boxes, with a contiguous result."""
    views = [b.as_buffer_view() for b in boxes]
    size = tuple(size or boxes[0].get_size())
    layout = Layout(CPU, torch.float32, size, contiguous_strides(size))
    return TensorBox(
        current_graph().add(
            ExternKernel,
            layout,
            frozenset(),
            op=op,
            args=tuple(views),
            out_op=torch.ops.aten.mm.out,
        )
    )


def mm(a, b):
    return extern(torch.ops.aten.mm.default, a, b, size=[a.get_size()[0], b.get_size()[1]])


def test_a_chain_is_one_kernel():
    nodes, record = schedule(lambda a: [exp(exp(exp(a)))], torch.randn(5, 7))
    assert names(nodes) == [["buf0", "buf1", "buf2"]]
    assert all(d.fused and d.category == "vertical" for d in record.fusions)


@pytest.mark.parametrize(
    "function,tensors",
    [
        (lambda a: [softmax(a)], [(64, 50)]),
        (lambda a, w, b: [layer_norm(a, w, b)], [(64, 50), (50,), (50,)]),
    ],
)
def test_softmax_and_layer_norm_are_one_kernel(function, tensors):
    nodes, _ = schedule(function, *[torch.randn(s) for s in tensors])
    assert len(nodes) == 1 and nodes[0].is_reduction


def test_only_what_escapes_is_stored():
    _, record = run(lambda a: [exp(exp(a))], torch.randn(64, 3))
    assert record.kernels[0].bytes_written == record.kernels[0].bytes_read == 64 * 3 * 4
    (_, middle), record = run(lambda a: [exp(exp(a)), exp(a)], torch.randn(64, 3))
    assert len(record.kernels) == 1 and record.kernels[0].bytes_written == 2 * 64 * 3 * 4


@pytest.mark.parametrize(
    "function,kernels,categories",
    [
        (lambda a, b: [exp(a), pointwise(ops.sin, a, realize=True)], 1, ["horizontal"]),
        (lambda a, b: [reduce(a, "sum", [1]), reduce(a, "max", [1])], 1, ["horizontal"]),
        (lambda a, b: [exp(a), reduce(b, "sum", [0])], 2, []),
    ],
)
def test_independent_nodes_fuse_if_they_share_reads(function, kernels, categories):
    nodes, record = schedule(function, torch.randn(9, 9), torch.randn(9, 9))
    assert len(nodes) == kernels and [d.category for d in record.fusions] == categories


def test_shifted_reads_are_refused_with_the_two_elements():
    def shifted(a):
        first = exp(a)
        load = first.make_loader()
        from miniinductor.ir.loops import Pointwise

        return [
            TensorBox(Pointwise(CPU, torch.float32, [9], lambda i: ops.neg(load([8 - i[0]])))),
            first,
        ]

    nodes, record = schedule(shifted, torch.randn(9))
    assert len(nodes) == 2
    [decision] = record.fusions
    assert not decision.fused and "element 8 - x0" in decision.reason
    (got, first), _ = run(shifted, torch.arange(9.0))
    assert torch.equal(got, -first.flip(0))


def test_cycles_through_an_extern_kernel_are_refused():
    def around(a, w):
        first = exp(a)
        return [pointwise(ops.add, first, mm(first, w))]

    a, w = torch.randn(9, 9), torch.randn(9, 9)
    nodes, record = schedule(around, a, w)
    assert len(nodes) == 3 and any("cycle" in d.reason for d in record.fusions)
    (got,), _ = run(around, a, w)
    torch.testing.assert_close(got, a.exp() + a.exp() @ w)


def test_dead_buffers_are_dropped():
    def dead(a):
        exp(a)
        return [pointwise(ops.sin, a)]

    nodes, record = schedule(dead, torch.randn(4))
    assert names(nodes) == [["buf1"]] and "dropped" in record.notes[0]


def test_a_stored_residual_is_reused_by_the_norm_and_kept():
    def block(a, b, w, bias):
        h = pointwise(ops.add, a, b, realize=True)
        return [layer_norm(h, w, bias), h]

    x = [torch.randn(40, 64), torch.randn(40, 64), torch.randn(64), torch.randn(64)]
    (normed, h), record = run(block, *x)
    assert len(record.kernels) == 1
    assert torch.equal(h, x[0] + x[1])
    assert_near(normed, torch.nn.functional.layer_norm(h, (64,), x[2], x[3]))


def test_fusion_off_gives_one_kernel_per_buffer():
    with miniinductor.config.patch(fusion=False):
        nodes, record = schedule(lambda a: [softmax(a)], torch.randn(8, 8))
    assert len(nodes) == 4 and record.fusions == []


def test_fused_ir_is_readable():
    _, record = schedule(lambda a: [softmax(a)], torch.randn(8, 8))
    assert (
        record.fused_ir.startswith("reduction kernel over [8] x reduce [8]")
        and "buf3" in record.fused_ir
    )
