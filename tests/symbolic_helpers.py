"""Graphs with symbolic sizes for the tests of the back half: miniinductor alone, no capture.

compiled, env = compile_symbolic(lambda x: x.softmax(-1), [torch.randn(5, 7)], dims=[{0, 1}])
compiled(torch.randn(9, 3))         # the same kernels
"""

from torch import fx
from torch._subclasses.fake_tensor import FakeTensorMode

import minidynamo.functions  # noqa: F401
import miniinductor
from minidynamo.shapes.symbolic_shapes import ShapeEnv, symbolic_fake


class Flat(fx.Tracer):
    """Modules are traced through, so that parameters are get_attr nodes."""

    def is_leaf_module(self, module, name):
        return False


def holds(guard, inputs):
    return eval(
        guard.check.format(*[f"inputs[{i}].shape[{d}]" for i, d in guard.source]),
        {"inputs": inputs},
    )


class Symbolic:
    """A function compiled once; called with tensors only: the symbols are read from them."""

    def __init__(self, function, tensors, dims=None, compile=miniinductor.compile_fx):
        self.env = ShapeEnv()
        dims = dims or [{d for d in range(t.dim())} for t in tensors]
        sources = [[(i, d) for d in range(t.dim())] for i, t in enumerate(tensors)]
        mode = FakeTensorMode(allow_non_fake_inputs=True, static_shapes=True)
        mode.cache_enabled = False
        fakes = [
            symbolic_fake(mode, self.env, t, {d: at[d] for d in ds})
            for t, ds, at in zip(tensors, dims, sources)
        ]
        tracer = Flat()
        graph = tracer.trace(function)
        gm = fx.GraphModule(tracer.root, graph)
        output = next(n for n in gm.graph.nodes if n.op == "output")
        if not isinstance(output.args[0], tuple):
            output.args = ((output.args[0],),)
        first = next(iter(gm.graph.nodes))
        self.symbols = [self.env.wrap(s) for s in self.env.table]
        with gm.graph.inserting_before(first):
            for symbol in self.env.table:
                gm.graph.placeholder(symbol.name).meta["val"] = self.env.wrap(symbol)
        gm.recompile()
        self.read = [row.sources[0] for row in self.env.table.values()]
        self.compiled = compile(gm, [*self.symbols, *fakes])
        self.record = self.compiled.record

    def __call__(self, *tensors):
        return self.compiled(*[tensors[i].shape[d] for i, d in self.read], *tensors)
