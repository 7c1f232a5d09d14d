"""Mutants of what is guarded, and compiled, of tensors' layouts and bits."""

import miniinductor.compile as driver
from minidynamo.graph.output_graph import OutputGraph
from miniinductor.autograd import functionalize, outputs, runtime, writes

from .mutants import mutant


def without_guard(*kinds: str) -> None:
    """No guard of these kinds is made."""
    guard = OutputGraph.guard

    def fewer(self, source, kind, *args, **kwargs):
        if kind not in kinds:
            guard(self, source, kind, *args, **kwargs)

    OutputGraph.guard = fewer


@mutant("no stride guard", "tensors --count 600 --modes aot_eager")
def no_strides():
    without_guard("STRIDE")


@mutant("no guards of shape and strides", "tensors --count 600 --modes aot_eager")
def no_shapes():
    # (alone, the guard of the strides sees nearly every other shape, too)
    without_guard("SHAPE", "STRIDE")


@mutant("no dtype guard", "tensors --count 600 --modes eager")
def no_dtypes():
    without_guard("DTYPE")


@mutant("no guard of bits", "tensors --count 600 --modes inductor,aot_eager")
def no_bits():
    without_guard("VIEW_BITS")


@mutant("no guard of the class", "tensors --count 300 --modes aot_eager")
def no_class():
    without_guard("TENSOR")


@mutant("no guard of requires_grad", "tensors --count 300 --modes aot_eager")
def no_gradients():
    without_guard("GRAD")


@mutant("no guard of the storage offset", "tensors --count 20000 --only strided --modes aot_eager")
def no_offsets():
    OutputGraph.guard_offsets = lambda self, given: None


@mutant("lazily negated inputs are compiled", "layouts --count 60 --modes inductor")
def bits_in_kernels():
    driver.has_lazy_bits = lambda tensor: False


@mutant("lazy views are copied as they are", "layouts --count 80 --modes inductor")
def lazy_views():
    functionalize.LAZY_VIEWS.clear()


@mutant("results lose their bits", "layouts --count 80 --modes aot_eager")
def bits_of_results():
    outputs.has_lazy_bits = lambda tensor: False


@mutant("gradients keep their bits", "layouts --count 20 --modes inductor-training")
def bits_of_gradients():
    runtime.in_memory = lambda tensor, strides: tensor


@mutant("no check of shared memory", "tensors --count 1500 --modes aot_eager,inductor")
def shared_memory():
    writes.guard_shared_memory = lambda run, gm, record: run
