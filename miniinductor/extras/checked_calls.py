"""(coverage) What is looked at before a graph is compiled, and before a compiled graph is called.

In:   the arguments of `compile_fx`; those of a call.  Out: TypeError or ValueError, which says what
      is wrong with them; or the reason why a graph runs eagerly.

    >>> compiled = miniinductor.compile_fx(gm, [x])
    >>> compiled.expected[0][:3]            # sizes, strides, dtype: another x raises ValueError
    ((4, 8), (8, 1), torch.float32)

A front end with guards of its own calls `compiled.function`, which looks at nothing.
"""

from collections.abc import Callable, Sequence

import torch
from torch import fx

from .. import dispatch_keys
from ..autograd.joint import has_lazy_bits
from ..compile import Compilation, CompiledGraph
from ..hooks import extends
from ..records import CompileRecord
from ..sizes.symbols import is_symbolic

MODES = (None, "default", "reduce-overhead", "max-autotune")


@extends(Compilation)
class CheckedCompilation(Compilation):
    def for_caller(self) -> CompiledGraph:
        inputs = self.inputs
        compiled = super().for_caller()
        expected = [layout_of(value) for value in inputs]
        return CheckedGraph(compiled.function, compiled.record, expected)

    def run(self) -> CompiledGraph:
        check_arguments(self.gm, self.inputs, self.mode)
        return super().run()

    def eager_reason(self) -> str | None:
        if reason := super().eager_reason():
            return reason
        given = [t for t in self.inputs if isinstance(t, torch.Tensor)]
        tensors = [*given, *self.gm.parameters(), *self.gm.buffers()]
        if any(t.layout != torch.strided for t in tensors):
            return "a tensor that is not strided (sparse, mkldnn)"
        if any(map(has_lazy_bits, tensors)):
            return "a tensor that is negated or conjugated lazily: kernels read memory as it is"
        return None


class CheckedGraph(CompiledGraph):
    """A compiled graph that looks at its inputs.  expected: the layout of each, or None."""

    def __init__(self, function: Callable, record: CompileRecord, expected: Sequence[tuple | None]):
        super().__init__(function, record)
        self.expected = expected

    def __call__(self, *inputs: object) -> object:
        if dispatch_keys.is_unusual():
            return self.record.input_graph(*inputs)
        for n, (value, expected) in enumerate(zip(inputs, self.expected)):
            if expected is not None and (found := layout_of(value)) != expected:
                raise ValueError(
                    f"input {n} of the compiled graph is {found or type(value).__name__} and was "
                    f"compiled as {expected} "
                    "(sizes, strides, dtype, device, lazily negated, lazily conjugated)"
                )
        return self.function(*inputs)


def check_arguments(gm: fx.GraphModule, inputs: Sequence[object], mode: str | None) -> None:
    if mode not in MODES:
        raise ValueError(
            f"unknown mode {mode!r}: use None, 'default', 'reduce-overhead' or 'max-autotune'"
        )
    if not isinstance(gm, fx.GraphModule):
        raise TypeError(
            f"miniinductor compiles an fx.GraphModule, not {type(gm).__name__}: make one by "
            "torch.fx.symbolic_trace(f), or call minidynamo.compile(f)"
        )
    names = [node.name for node in gm.graph.find_nodes(op="placeholder")]
    if len(names) != len(inputs):
        raise ValueError(
            f"the graph takes {len(names)} inputs ({', '.join(names)}), but there are "
            f"{len(inputs)} example inputs"
        )


def layout_of(value: object) -> tuple | None:
    """What a call's input must have in common with the example: sizes, strides, dtype, device, and
    whether it is negated or conjugated lazily.  None for numbers and for symbolic sizes.

    The stride of a dimension of size 1 is of no importance, and counts as 1."""
    if not isinstance(value, torch.Tensor) or is_symbolic(value):
        return None
    shape = tuple(value.shape)
    strides = tuple([1 if n == 1 else stride for n, stride in zip(shape, value.stride())])
    return shape, strides, value.dtype, value.device, value.is_neg(), value.is_conj()
