"""Chapter 13: memory, and the program that calls the kernels.

The *wrapper* is a Python function that allocates buffers, calls the kernels in their order, and
lets go of every buffer behind its last reader.  A buffer whose last reader has run is used again
by the next one of the same size: memory that has just been used still lies in the cache.

`compile_graph` makes the whole: one program, or, where gradients are wanted, one for each half.

Results are contiguous.  Eager mode would keep the strides of a transposed argument; the numbers are
the same, their order in memory is not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch

from miniinductor.toolchain import build_kernels

from .autograd import computed_of, cut, differentiate, part
from .cpp import Writer, stored_buffers
from .fusion import Kernel, Unit, fuse, writes
from .graph import EAGER, Graph, Node, optimize
from .loops import Buffer, lower
from .sizes import product, text_of


class Program:
    """A compiled graph: call it with a list of tensors, and with {symbol: size}.

    symbols: those in its shapes.  units: its kernels.  sources: their C++.  source: the wrapper."""

    def __init__(self, graph: Graph, symbols: Iterable[str] = ()) -> None:
        optimize(graph)
        self.graph = graph
        self.symbols = list(symbols)
        steps, self.outputs = lower(graph)
        self.units = fuse(steps)
        self.sources: list[str] = []
        self.memory = Memory(self.units, self.outputs)
        self.source = self.wrapper()
        kernels = build_kernels([(source, "kernel") for source in self.sources])
        variables = {f"kernel{number}": kernel for number, kernel in enumerate(kernels)}
        variables |= {"torch": torch, "EAGER": EAGER}
        exec(compile(self.source, "<wrapper>", "exec"), variables)
        self.function: Callable = variables["call"]

    def __call__(self, tensors: list[torch.Tensor], sizes: dict[str, int]) -> list[torch.Tensor]:
        plain = [tensor.detach().contiguous() for tensor in tensors]
        with torch.no_grad():
            return self.function(*plain, *(sizes[name] for name in self.symbols))

    def wrapper(self) -> str:
        """The text of `call(in0, in1, ..., s0, ...)`: for each unit its call, then a `del` for each
        name that is dead after it.  It returns a list of the outputs."""
        names = [f"in{number}" for number in range(len(self.graph.inputs))]
        lines = [f"def call({', '.join([*names, *self.symbols])}):"]
        for number, unit in enumerate(self.units):
            lines += self.call_of(unit)
            lines += [f"    del {name}" for name in self.memory.dead_after(number)]
        results = ", ".join(buffer.name for buffer in self.outputs)
        return "\n".join([*lines, f"    return [{results}]", ""])

    def call_of(self, unit: Unit) -> list[str]:
        """The wrapper's lines for one unit.  A call of torch gives its buffer a value.  A kernel
        of ours is written (`Writer(...).source()` joins `sources`), gets memory for what it
        stores, and is called by its number: kernel0, kernel1, ..."""
        if not isinstance(unit, Kernel):
            return [f"    {unit.buffer.name} = EAGER[{unit.op!r}]({', '.join(unit.args)})"]
        stored = stored_buffers(unit, self.memory.read_elsewhere(unit))
        writer = Writer(unit, stored, self.symbols)
        kernel = f"kernel{len(self.sources)}"
        self.sources.append(writer.source())
        made = [buffer for buffer in unit.writes if buffer in stored]
        lines = [f"    {buffer.name} = {self.memory.take(buffer)}" for buffer in made]
        arguments = [*(buffer.name for buffer in writer.buffers), *self.symbols]
        return [*lines, f"    {kernel}({', '.join(arguments)})"]


class Memory:
    """Which buffers are alive when, and which memory can be used again."""

    def __init__(self, units: list[Unit], outputs: list[Buffer]) -> None:
        self.units = units
        self.outputs = {*outputs, *(buffer.root for buffer in outputs)}
        self.last: dict[Buffer, int] = {}  # the number of the unit that touches it last
        for number, unit in enumerate(units):
            for buffer in [*unit.reads, *writes(unit)]:
                self.last |= {buffer: number, buffer.root: number}
        self.owned: list[Buffer] = []  # in memory that this program has made
        self.free: list[Buffer] = []

    def read_elsewhere(self, kernel: Kernel) -> set[Buffer]:
        """What other units read, and the outputs."""
        others = (unit.reads for unit in self.units if unit is not kernel)
        return {buffer for reads in others for buffer in reads} | self.outputs

    def take(self, buffer: Buffer) -> str:
        """The expression that gives memory to a buffer: a free one of its size, seen in its shape,
        or a new one."""
        self.owned.append(buffer)
        shape = text_of(tuple(buffer.shape))
        for other in self.free:
            if size_of(other) == size_of(buffer) and other.dtype == buffer.dtype:
                self.free.remove(other)
                return f"{other.name}.view({shape})"
        return f"torch.empty({shape}, dtype={buffer.dtype})"

    def dead_after(self, number: int) -> list[str]:
        """Results of torch's kernels that nobody reads behind unit `number`.  Memory of our own
        goes to `free` instead, and keeps its name.  A buffer without memory has no variable."""
        ended = [b for b, last in self.last.items() if last == number and b not in self.outputs]
        self.free += [buffer for buffer in ended if buffer in self.owned]
        by_torch = [unit.buffer for unit in self.units if not isinstance(unit, Kernel)]
        return [buffer.name for buffer in ended if buffer in by_torch]


def size_of(buffer: Buffer) -> str:
    return text_of(product(buffer.shape))


# --- with gradients -------------------------------------------------------------------------------
class Differentiable:
    """Two programs, one for each half, behind one function that autograd knows."""

    def __init__(self, graph: Graph, symbols: list[str], wanted: list[Node]) -> None:
        """Differentiate, `optimize` the joint graph (its outputs are the graph's, and the gradients
        that there are), cut, and make a Program of each half: outputs and what is saved from the
        inputs, gradients from what is saved and the tangents.

        places: of which inputs there are gradients.  count: of outputs.  fixed: which of those are
        not computed of a wanted input (`computed_of`)."""
        inputs, outputs = list(graph.inputs), list(graph.outputs)
        tangents, gradients = differentiate(graph, wanted)
        graph.outputs = [*outputs, *(g for g in gradients if g is not None)]
        optimize(graph)
        pairs = zip(wanted, gradients, strict=True)
        found = {inputs.index(node): gradient for node, gradient in pairs if gradient is not None}
        self.places = list(found)
        saved = cut(graph, tangents, list(found.values()))
        self.forward = Program(part(graph, inputs, [*outputs, *saved]), symbols)
        self.backward = Program(part(graph, [*saved, *tangents], list(found.values())), symbols)
        self.count = len(outputs)
        depends = computed_of(graph, wanted)
        self.fixed = [place for place, out in enumerate(outputs) if out not in depends]

    def __call__(self, tensors: list[torch.Tensor], sizes: dict[str, int]) -> list[torch.Tensor]:
        return list(Boundary.apply(self, sizes, *tensors))


class Boundary(torch.autograd.Function):
    """Where autograd meets a compiled graph."""

    @staticmethod
    def forward(ctx: Any, halves: Differentiable, sizes: dict[str, int], *tensors: Any) -> Any:
        results = halves.forward(list(tensors), sizes)
        ctx.halves, ctx.sizes, ctx.number = halves, sizes, len(tensors)
        ctx.save_for_backward(*results[halves.count :])
        ctx.mark_non_differentiable(*(results[place] for place in halves.fixed))
        return tuple(results[: halves.count])

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *tangents: Any) -> Any:
        """Run the backward half on what was saved and the tangents.  A gradient for each argument
        of `forward` behind ctx: `halves.places` says which tensors have one, the rest is None."""
        found = ctx.halves.backward([*ctx.saved_tensors, *tangents], ctx.sizes)
        gradients: list[Any] = [None] * ctx.number
        for place, gradient in zip(ctx.halves.places, found, strict=True):
            gradients[place] = gradient
        return (None, None, *gradients)


def compile_graph(graph: Graph, examples: list, symbols: list[str]) -> Program | Differentiable:
    """A program for the graph, which autograd can go through if an input requires gradients."""
    pairs = zip(graph.inputs, examples, strict=True)
    wanted = [node for node, example in pairs if example.requires_grad]
    if wanted and graph.outputs and torch.is_grad_enabled():
        return Differentiable(graph, symbols, wanted)
    return Program(graph, symbols)
