"""Hand-built loop IR graphs for the tests of the back half: no lowering needed.

run(lambda x: [pointwise(x, lambda v: ops.exp(v))], torch.randn(3, 5))    -> (outputs, record)
"""

import torch

from miniinductor.compile import build_program
from miniinductor.ir import loops as ir
from miniinductor.ir.loops import Graph, InputBuffer, Layout, Pointwise, Reduction, TensorBox
from miniinductor.ir.ops import BINARY, COMPARISON, OP_NAMES, UNARY, OpsHandler, ops
from miniinductor.records import CompileRecord

CPU = torch.device("cpu")


def make_graph(function, *tensors):
    graph, boxes = Graph(), []
    for number, tensor in enumerate(tensors):
        buffer = InputBuffer(f"arg{number}", Layout.of(tensor))
        buffer.layout.offset = 0  # kernels get data_ptr(), which counts the storage offset already
        graph.inputs[buffer.name] = graph.buffers[buffer.name] = buffer
        boxes.append(TensorBox(buffer))
    with ir.building(graph):
        graph.outputs = [box.as_buffer_view() for box in function(*boxes)]
    return graph


def build(graph, record):
    """The callable of a lowered graph."""
    return build_program(graph, record).start()


def run(function, *tensors):
    record = CompileRecord()
    return build(make_graph(function, *tensors), record)(*tensors), record


def pointwise(function, *boxes, dtype=None, size=None, realize=False):
    """A new value: function(element of each box); boxes broadcast to `size` by their trailing
    dimensions."""
    size = list(size or max((b.get_size() for b in boxes), key=len))
    loaders = [(b.make_loader(), list(b.get_size())) for b in boxes]

    def body(index):
        values = []
        for loader, own in loaders:
            tail = index[len(index) - len(own) :]
            values.append(loader([i if n != 1 else 0 for i, n in zip(tail, own)]))
        return function(*values)

    box = TensorBox(Pointwise(CPU, dtype or boxes[0].dtype, size, body))
    if realize:
        box.realize()
    return box


def reduce(box, kind, dims, keepdim=True, dtype=None, function=None):
    """Reduce over `dims`; function: applied to each element first."""
    size = list(box.get_size())
    dims = [d % len(size) for d in dims]
    kept = [d for d in range(len(size)) if d not in dims]
    loader = box.make_loader()

    def body(index, rindex):
        full = dict(zip(dims, rindex))
        kept_index = iter([i for d, i in enumerate(index) if d in kept] if keepdim else index)
        value = loader([full[d] if d in full else next(kept_index) for d in range(len(size))])
        return function(value) if function else value

    ranges = (
        [1 if d in dims else n for d, n in enumerate(size)] if keepdim else [size[d] for d in kept]
    )
    result = TensorBox(
        Reduction(CPU, dtype or box.dtype, ranges, body, [size[d] for d in dims], kind, box.dtype)
    )
    result.realize()
    return result


def softmax(x):
    e = pointwise(lambda v, m: ops.exp(ops.sub(v, m)), x, reduce(x, "max", [-1]), realize=True)
    return pointwise(ops.truediv, e, reduce(e, "sum", [-1]))


def layer_norm(x, weight, bias, eps=1e-5):
    count = x.get_size()[-1]

    def const(v):
        return ops.constant(v, torch.float32)

    mean = pointwise(lambda s: ops.mul(s, const(1 / count)), reduce(x, "sum", [-1]), realize=True)
    centred = pointwise(ops.sub, x, mean)
    square = pointwise(lambda v: ops.mul(v, v), centred)
    scale = pointwise(
        lambda s: ops.rsqrt(ops.add(ops.mul(s, const(1 / count)), const(eps))),
        reduce(square, "sum", [-1]),
        realize=True,
    )
    return pointwise(
        lambda v, s, w, b: ops.add(ops.mul(ops.mul(v, s), w), b), centred, scale, weight, bias
    )


def missing_ops(handler_class: type[OpsHandler]) -> list[str]:
    """Ops that `handler_class` (or a base other than OpsHandler) does not define: must be empty."""
    defined = {n for c in handler_class.__mro__ if c not in (OpsHandler, object) for n in vars(c)}
    families = {"default": OP_NAMES, "unary": UNARY, "binary": BINARY + COMPARISON}
    defined.update(*[families[name] for name in families if name in defined])
    return [n for n in OP_NAMES if n not in defined]
