"""Prints the Python function that runs a compiled graph.  All decisions were made before.

In:   the steps of a call and the memory plan.  Out: a `Wrapper`: the source, and what it names.

    >>> program = build_program(graph, record)         # compile.py: this stage comes last
    >>> print(record.wrapper_source)
    def call(arg0, arg1):
        recording = is_grad_enabled()
        set_grad_enabled(False)        # eager kernels: no autograd
        try:
            workspace = workspaces.pop() if workspaces else new_workspace()
            (buf0,) = workspace
            torch_mm(arg0, arg1, out=buf0)
            buf1 = empty_cpu((8, 16), (16, 1), float32)
            relu_0(buf0, buf1)
            workspaces.append(workspace)
            return [buf1]
        finally:
            set_grad_enabled(recording)
    <BLANKLINE>

Eager kernels are called by the name that is cheaper to call: torch_mm, not torch.ops.aten.mm.out.
What they take of buffers in the arena are views that are made once per workspace:

            (buf0, buf0_view0, buf1,) = workspace
            torch_mm(buf0_view0, arg1, out=buf1)

Where kernels have overwritten inputs, autograd is told, as eager's in-place ops do:
`increment_version((arg0,))`.

memory.py explains workspaces, and its `Program` compiles the text to a callable.  Mirrors
torch/_inductor/codegen/wrapper.py.  Left out: a C++ wrapper.
"""

import functools
import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import sympy
import torch

from ..autograd.eager_graphs import in_layout
from ..codegen.cpp.expressions import TYPES
from ..codegen.kernels import KernelStep, Step, functions_of
from ..ir.loops import (
    BufferView,
    ComputedBuffer,
    ExternKernel,
    Layout,
    LibraryConstant,
    MultiOutput,
    same_layout,
)
from ..lowering.extern import ATTENTION
from ..records import Listing, Marked, indent
from ..schedule.nodes import Schedule
from ..sizes.expressions import python_code
from ..sizes.symbols import Size, same, sizes
from ..sizes.symbols import size as size_of
from .memory import MemoryPlan, NewWorkspace

aten = torch.ops.aten
# ops whose torch.* form is cheaper to call than the overload, and its out= form, too
FAST_OUT = {
    aten.mm.default: torch.mm,
    aten.bmm.default: torch.bmm,
    aten.addmm.default: torch.addmm,
    aten.baddbmm.default: torch.baddbmm,
}
FAST = {
    **FAST_OUT,
    aten.convolution.default: torch.convolution,
    aten.embedding.default: torch.embedding,
}


def aligned(op: Callable, *args: Any, **kwargs: Any) -> Any:
    """The call with copies of the tensors that do not begin at a multiple of 16 bytes: kernels of
    attention load that many at once."""
    moved = [x.clone() if torch.is_tensor(x) and x.data_ptr() % 16 else x for x in args]
    return op(*moved, **kwargs)


def scatter_reduce(x: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
    """On a GPU the op copies `x` twice."""
    return x.clone().scatter_reduce_(*args, **kwargs)


FAST |= {op: functools.partial(aligned, op) for op in ATTENTION}
FAST[aten.scatter_reduce.two] = scatter_reduce


@dataclass
class Wrapper:
    source: Listing
    scope: dict[str, object]  # the source's globals


def print_wrapper(
    schedule: Schedule,
    steps: Sequence[Step],
    memory: MemoryPlan,
    device: torch.device,
    inference: bool,
) -> Wrapper:
    """The function that runs these steps.

    inference: the results go to the program as they are, not through an autograd function."""
    writer = WrapperWriter(schedule, memory, device, functions_of(steps), inference)
    for step, freed in zip(steps, memory.freed):
        writer.emit(step, freed)
    return Wrapper(writer.source(), writer.scope)


class WrapperWriter:
    """Lines of the function, and the objects that they name."""

    def __init__(
        self,
        schedule: Schedule,
        memory: MemoryPlan,
        device: torch.device,
        kernels: dict[str, Callable],
        inference: bool,
    ):
        self.graph, self.buffers = schedule.graph, schedule.buffers
        self.inference = inference
        self.overwritten = schedule.overwritten
        self.memory, self.device = memory, device
        self.layouts = {name: buffer.layout for name, buffer in self.buffers.items()}
        self.shape_results()
        self.scope: dict[str, object] = {
            "as_strided": torch.as_strided,
            "math": math,
            **self.graph.constants,
            **kernels,
        }
        self.lines: list[str] = []
        # (buffer, size, stride, offset) -> the name of a view of the arena
        self.views: dict[tuple, str] = {}

    def shape_results(self) -> None:
        """A kernel's result is made in the sizes of the output that is all of it: the sum of
        `sum(0, keepdim=True)` as (1,), so that nothing views it as that."""
        taken_over = self.memory.memory_of
        for view in self.graph.results:
            layout = self.layouts[view.name]
            is_own = isinstance(self.buffers[view.name], ComputedBuffer)
            if is_own and view.name not in {*taken_over, *taken_over.values()}:
                shaped = replace(layout, size=tuple(view.size), stride=tuple(view.stride))
                is_all = layout.is_dense and shaped.is_dense and layout.numel == shaped.numel
                if is_all and layout.offset == view.offset:
                    self.layouts[view.name] = shaped

    # -- steps -------------------------------------------------------------------------------------
    def emit(self, step: Step, freed: Sequence[str]) -> None:
        """The lines of one step, and `del` for the names that it is the last to use."""
        before = len(self.lines)
        if isinstance(step, KernelStep):
            self.emit_kernel(step)
        else:
            self.emit_eager(step.buffer)
        self.lines[before:] = [Marked.of(line, marks=step.made()) for line in self.lines[before:]]
        if freed:
            reason = "frees what no later step reads"
            self.lines.append(Marked.of(f"del {', '.join(freed)}", reason=reason))

    def emit_kernel(self, step: KernelStep) -> None:
        for name in step.kernel.stored:
            self.allocate(name)
        given = step.kernel.arguments
        names = [a.name if isinstance(a, sympy.Symbol) else a for a in given]
        if step.group.device.type == "cuda":
            names.append("stream")
        self.lines.append(f"{step.name}({', '.join(names)})")

    def allocate(self, name: str) -> None:
        """The line that makes the tensor for a kernel's result, if it does not lie in the arena."""
        if name in self.memory.memory_of:
            self.lines.append(f"{name} = {self.memory.memory_of[name]}     # written in place")
        elif name not in self.memory.in_arena:
            self.lines.append(f"{name} = {self.new_tensor(self.layouts[name])}")

    def new_tensor(self, layout: Layout) -> str:
        what = f"{tuple_of(layout.size)}, {tuple_of(layout.stride)}"
        dtype = self.named(layout.dtype)
        if layout.device.type == "cpu" and layout.dtype in TYPES:
            return f"empty_cpu({what}, {dtype})"
        self.scope["empty_strided"] = torch.empty_strided
        return f"empty_strided({what}, dtype={dtype}, device={self.named(layout.device)})"

    def emit_eager(self, buffer: ExternKernel | MultiOutput) -> None:
        """The call of an eager kernel, into planned memory where it can write there; or one of its
        results."""
        name = buffer.name
        if isinstance(buffer, MultiOutput):
            value = buffer.source + "".join(f"[{i}]" for i in buffer.index)
        else:
            arguments = [self.argument(a) for a in buffer.args]
            arguments += [f"{k}={self.argument(v)}" for k, v in buffer.kwargs.items()]
            if name in self.memory.in_arena:
                function = self.function(FAST_OUT.get(buffer.op, buffer.out_op))
                self.lines.append(f"{function}({', '.join([*arguments, f'out={name}'])})")
                return
            value = f"{self.function(FAST.get(buffer.op, buffer.op))}({', '.join(arguments)})"
        if buffer.layout is not None:
            # copied at run time where its strides are not those that our kernels were written for
            self.scope["in_layout"] = in_layout
            value = f"in_layout({value}, {tuple_of(buffer.layout.stride)})"
        self.lines.append(f"{name} = {value}")

    # -- arguments
    def argument(self, value: object) -> str:
        """An eager kernel's argument, as an expression."""
        if isinstance(value, BufferView):
            return self.view(value)
        if isinstance(value, LibraryConstant):
            return value.name
        if value is None or isinstance(value, (bool, int, str)):
            return repr(value)
        if isinstance(value, float):
            return repr(value) if math.isfinite(value) else f"float({str(value)!r})"
        if isinstance(value, torch.dtype):
            return self.named(value)
        if isinstance(value, (list, tuple)) and not isinstance(value, torch.Size):
            items = [self.argument(v) for v in value]
            return f"[{', '.join(items)}]" if isinstance(value, list) else tuple_text(items)
        if isinstance(value, sympy.Basic):
            return python_code(value)
        return self.bind(value, "constant")

    def view(self, view: BufferView, exact: bool = False) -> str:
        """A buffer as `as_strided` sees it; the buffer itself where that is the same (exact:
        strides of dimensions of size 1 count, too)."""
        if self.is_whole(view, exact):
            return view.name
        root, numbers = self.memory.root(view.name), (*view.size, *view.stride, view.offset)
        if root in self.memory.in_arena and all(isinstance(n, int) for n in sizes(numbers)):
            key = (root, tuple(view.size), tuple(view.stride), view.offset)
            if key not in self.views:
                self.views[key] = f"{root}_view{sum(k[0] == root for k in self.views)}"
            return self.views[key]
        size, stride = tuple_of(view.size), tuple_of(view.stride)
        return f"as_strided({view.name}, {size}, {stride}, {self.offset(view)})"

    def is_whole(self, view: BufferView, exact: bool) -> bool:
        """Is the view the buffer itself?"""
        layout = self.layouts[view.name]
        return (
            tuple(view.size) == tuple(layout.size)
            and same(view.offset, layout.offset)
            and same_layout(layout.size, view.stride, layout.stride)
            and (not exact or all(map(same, view.stride, layout.stride)))
        )

    def offset(self, view: BufferView) -> str:
        """as_strided counts from the start of the storage; inputs, what is written in their place,
        and what lies in the arena may themselves be views, so their own offset is added."""
        root = self.memory.root(view.name)
        if isinstance(self.buffers[root], ComputedBuffer) and root not in self.memory.in_arena:
            return python_code(view.offset)
        start = self.buffers[view.name].layout.offset
        relative = sympy.expand(sympy.sympify(view.offset) - start)
        more = f" + {python_code(relative)}" if relative != 0 else ""
        return f"{view.name}.storage_offset(){more}"

    # -- names and numbers
    def bind(self, value: object, name: str) -> str:
        """What the value is called in the wrapper: `name`, with a number where that is taken by
        another one."""
        key, number = name, 0
        while True:
            known = self.scope.setdefault(key, value)
            if known is value or isinstance(value, torch.device) and known == value:
                return key
            number += 1
            key = f"{name}{number}"

    def function(self, function: Callable) -> str:
        text = "torch_" + getattr(function, "__name__", "function")
        if isinstance(function, torch._ops.OpOverload):
            text = str(function)
        return self.bind(function, re.sub(r"\W", "_", text))

    def named(self, value: torch.dtype | torch.device) -> str:
        """The name of a dtype or device."""
        return self.bind(value, str(value).removeprefix("torch.").replace(":", ""))

    # -- the function ------------------------------------------------------------------------------
    def output(self, value: object) -> str:
        if isinstance(value, BufferView):
            text = self.view(value, exact=True)
            # eager's output is no view of another tensor (in training, the autograd function sees
            # to that)
            fresh = self.inference and text.startswith("as_strided(")
            return f"{text}.detach()" if fresh else text
        return self.argument(value)

    def source(self) -> Listing:
        """The function's text: `lines` and, around them from inside to outside, the workspace,
        sizes, no autograd."""
        body = self.with_workspace([*self.lines, *self.result_lines()])
        copies = any(value.name not in self.overwritten for _, value in self.graph.mutations)
        if copies or any(isinstance(o, ExternKernel) for o in self.graph.operations):
            body = self.without_autograd(body)
        listing = Listing.of(self.definition(body))
        return listing.written(listing + "\n")

    def definition(self, body: list[str]) -> list[str]:
        inputs = ", ".join(self.graph.inputs)
        if not (self.memory.frees_inputs and inputs):
            return [f"def call({inputs}):", *indent(body)]
        # `boxed` calls in torch/_functorch/_aot_autograd/utils.py
        return [
            "def call(*inputs):",
            "    return call.owned(list(inputs))",
            "",
            "def call_owned(inputs):",
            f"    {inputs}, = inputs",
            "    inputs.clear()         # no other reference keeps them",
            *indent(body),
        ]

    def without_autograd(self, body: list[str]) -> list[str]:
        self.scope.update(
            is_grad_enabled=torch.is_grad_enabled, set_grad_enabled=torch._C._set_grad_enabled
        )
        return [
            "recording = is_grad_enabled()",
            "set_grad_enabled(False)        # eager kernels: no autograd",
            "try:",
            *indent(body),
            "finally:",
            "    set_grad_enabled(recording)",
        ]

    def result_lines(self) -> list[str]:
        """Inputs get their new values when all outputs are there."""
        outputs = f"[{', '.join(self.output(o) for o in self.graph.outputs)}]"
        copies = [
            f"{name}.copy_({self.view(value)})"
            for name, value in self.graph.mutations
            if value.name not in self.overwritten
        ]
        told = []
        if self.overwritten:
            self.scope["increment_version"] = torch.autograd.graph.increment_version
            told = [f"increment_version(({', '.join(self.overwritten.values())},))"]
        if copies:
            return [*told, f"outputs = {outputs}", *copies, "return outputs"]
        return [*told, f"return {outputs}"]

    def with_workspace(self, lines: list[str]) -> list[str]:
        """The lines with the memory that they name; on a GPU also its stream, and the change to
        that device, if another one is current."""
        body = self.in_workspace(lines)
        if self.device.type != "cuda":
            return body
        number = self.device.index or 0
        self.scope.update(
            current_stream=torch._C._cuda_getCurrentRawStream,
            current_device=torch._C._cuda_getDevice,
            on_device=torch.cuda.device,
        )
        return [
            f"if current_device() != {number}:",
            f"    with on_device({number}):",
            f"        return call({', '.join(self.graph.inputs)})",
            f"stream = current_stream({number})",
            *body,
        ]

    def in_workspace(self, lines: list[str]) -> list[str]:
        """The lines, the last of which returns, between taking a workspace from its list and
        putting it back."""
        if not self.memory.in_arena:
            return lines
        plan, is_gpu = self.workspace_plan(), self.device.type == "cuda"
        nbytes = self.memory.arena_bytes
        self.scope["new_workspace"] = NewWorkspace([*plan.values()], nbytes, self.device)
        # calls on one stream of a GPU run in order, so they may share what lies between them
        self.scope["workspaces_of" if is_gpu else "workspaces"] = {} if is_gpu else []
        return [
            *(["workspaces = workspaces_of.setdefault(stream, [])"] if is_gpu else []),
            "workspace = workspaces.pop() if workspaces else new_workspace()",
            f"({', '.join(plan)},) = workspace",
            *lines[:-1],
            "workspaces.append(workspace)",
            lines[-1],
        ]

    def workspace_plan(self) -> dict[str, tuple]:
        """For each tensor of a workspace, and each view of one: dtype, place in the arena, size,
        stride and offset."""
        plan: dict[str, tuple] = {}
        for name, place in self.memory.in_arena.items():
            layout = self.buffers[name].layout
            plan[name] = (layout.dtype, place, sizes(layout.size), sizes(layout.stride), 0)
        for (name, shape, stride, offset), view in self.views.items():
            dtype, place, *_ = plan[name]
            plan[view] = (dtype, place, sizes(shape), sizes(stride), size_of(offset))
        return plan


def tuple_of(values: Iterable[Size]) -> str:
    """Sizes as Python; each symbol is an input of its name."""
    return tuple_text(list(map(python_code, values)))


def tuple_text(items: Sequence[str]) -> str:
    return f"({', '.join(items)}{',' if len(items) == 1 else ''})"
