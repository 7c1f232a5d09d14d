"""The Python function that runs a compiled graph: memory, kernel calls, extern kernels.

In:   a lowered `Graph`.  Out: a callable on the input tensors that returns a list of outputs;
      `record` gets the kernels,
the wrapper's source and the memory plan.

    >>> compiled = build(graph, record)
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

Memory.  A graph output is freshly allocated in each call.  Intermediates live in one *workspace*:
an arena in which buffers whose lives do not overlap share bytes (where sizes are symbols: slots,
for buffers that are equally large for all sizes; the workspaces of a few sizes are kept).  A
workspace is kept between calls, because a fresh page costs more than a pass over it; a call takes
one from a list and puts it back, so that threads and recursive calls never share one.  Memory that
an extern kernel's result may alias is never taken from the arena, nor large buffers in training on
a GPU.

Mirrors torch/_inductor/codegen/wrapper.py and memory_planning.py.  Left out: a C++ wrapper.  What
is written in place: in_place.py.
"""

import functools
import itertools
import math
import textwrap
from dataclasses import dataclass

import sympy
import torch
import torch.utils._pytree as pytree

from .. import config
from ..foreach import Foreach
from ..in_place import may_overwrite
from ..ir import (
    BufferView,
    ConstantBuffer,
    ExternKernel,
    InputBuffer,
    MultiOutput,
    Opaque,
    same_layout,
)
from ..records import KernelRecord
from ..runtime.program import (
    ALIGNMENT,
    NewWorkspace,
    Program,
    WorkspacesBySize,
    build_functions,
    in_layout,
)
from ..runtime.triton_build import race
from ..scheduler import ExternNode, Group, Scheduler, buffer_bytes
from ..sizes.intervals import is_nonnegative
from ..sizes.printing import python_code
from ..sizes.symbols import DERIVED, expand, hint, same, sizes
from ..sizes.symbols import size as as_size
from .common import indent
from .cpp import CppKernelWriter
from .cpp_expressions import TYPES
from .cpp_foreach import ForeachWriter
from .matmul import FusedProduct, MatmulWriter, fuse_products
from .split_reductions import split_reductions
from .triton import TritonKernelWriter
from .triton_foreach import TritonForeachWriter

HANDED_OVER = {
    "cuda"
}  # devices where an output takes the memory of what it is made of: that still lies in the cache
SINGLE = {
    "cuda": 1 << 16
}  # device -> bytes from which on, in training, an intermediate is no part of a workspace
WRITERS = {
    ("triton", FusedProduct): MatmulWriter,
    ("triton", Foreach): TritonForeachWriter,
    ("triton", Group): TritonKernelWriter,
    ("cpp", Foreach): ForeachWriter,
    ("cpp", Group): CppKernelWriter,
}
aten = torch.ops.aten
# ops whose torch.* form is cheaper to call than the out= overload of the same name
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


def build(graph, record):
    """Schedule, generate and compile `graph`; returns the callable.

    Raises NotImplementedError where there is no code generator, CompilerError where its compiler is
    missing or fails."""
    return WrapperWriter(graph, record).program().start()


def language_of(device):
    """Which code generator writes the kernels of a device."""
    if device.type == "cuda":
        return "triton"
    if device.type == "cpu":
        return config.cpu_backend
    raise NotImplementedError(f"there is no code generator for device {device}")


class WrapperWriter:
    def __init__(self, graph, record):
        self.graph, self.record = graph, record
        self.device = main_device(graph)
        if language_of(self.device) == "triton" and config.split_reductions:
            split_reductions(graph, record)
        self.buffers = {**graph.buffers, **graph.inputs, **{b.name: b for b in graph.operations}}
        self.scope = {
            "empty_strided": torch.empty_strided,
            "as_strided": torch.as_strided,
            "math": math,
            **graph.constants,
        }
        self.lines, self.views = [], {}
        self.names, self.symbols = (
            {},
            set(),
        )  # names: kernel -> its name; symbols: sizes that the lines name
        self.owned = getattr(record.functional_graph, "meta", {}).get(
            "owned", False
        )  # inputs are freed after their last use
        # buffer -> the buffer whose memory it takes: a scatter's target, an input that is written
        self.memory_of = {}
        nodes = getattr(
            getattr(record.functional_graph, "graph", record.functional_graph), "nodes", None
        )
        self.order = nodes and {n.name: i for i, n in enumerate(nodes) if n.op == "call_function"}

    def program(self):
        """Schedule, generate and compile; the wrapper as a `Program`."""
        record = self.record
        scheduler = Scheduler(self.graph, record)
        timed = (
            config.matmul_templates == "timed"
            and config.max_autotune
            and self.device.type == "cuda"
        )
        templates = config.matmul_templates != "never" and language_of(self.device) == "triton"
        nodes = scheduler.run(
            *[functools.partial(fuse_products, every=timed or config.matmul_templates == "always")]
            * templates
        )
        self.overwritten = scheduler.overwritten
        self.memory_of.update(self.overwritten)
        with record.timed("codegen"):
            self.plan_uses(nodes)
            steps = [self.step(n) for n in nodes]
        with record.timed("compile kernels"):
            steps = self.compile(steps)
        with record.timed("wrapper"):
            self.plan_memory(steps)
            for position, step in enumerate(steps):
                self.emit(step, position)
            source = self.source()
        record.wrapper_source = source
        steps = [step for step in steps if isinstance(step, KernelStep)]
        functions = {step.name: self.scope[step.name] for step in steps}
        kernels = [
            (*place, list({s.name: (s.name, s.kernel, self.moved(s)) for s in members}.values()))
            for place, members in by_place(steps).items()
        ]
        return Program(
            source,
            {k: v for k, v in self.scope.items() if k not in self.names.values()},
            kernels,
            self.device,
            list(self.graph.inputs),
            self.graph.constants,
            [name for name, _ in self.graph.mutations],
            functions,
        )

    # -- who uses what -----------------------------------------------------------------------------
    def plan_uses(self, nodes):
        """Buffers that must be in memory after their kernel: read by another node, or escaping."""
        self.escaping = {v.name for v in self.graph.results}
        self.used = set(self.escaping)
        for node in nodes:
            self.used |= set(node.read_names)

    def step(self, node):
        if isinstance(node, ExternNode):
            return node
        if isinstance(node, Group):
            return self.kernel_step(node, self.used)
        fused = self.kernel_step(node, self.used)
        if config.matmul_templates == "always" or node.certain:
            return fused
        within = self.used.union(*[part.read_names for part in node.apart])
        apart = [
            part if isinstance(part, ExternNode) else self.kernel_step(part, within)
            for part in node.apart
        ]
        return Alternatives(fused, apart)

    def kernel_step(self, group, used):
        # a scatter writes into memory it takes over, so its own name is always kept
        keep = {name for name in group.names if name in used}
        device = group.nodes[0].buffer.layout.device
        if any(self.buffers[name].layout.device != device for name in group.read_names):
            raise NotImplementedError(f"a kernel on {device} that reads a tensor of another device")
        language = language_of(device)
        kernel = WRITERS[language, type(group)](
            group, self.buffers, keep, self.order, self.overwritten
        ).write()
        for node in group.nodes:
            target = getattr(getattr(node.buffer, "data", None), "target", None)
            if target is not None:
                self.memory_of[node.name] = target
        return KernelStep(group, kernel, language, device)

    def compile(self, steps):
        """The same steps, their kernels in the wrapper's scope; of alternatives the faster one."""
        buffers, parts = (
            self.buffers,
            [
                p
                for s in steps
                for p in ([s.fused, *s.apart] if isinstance(s, Alternatives) else [s])
            ],
        )
        for place, members in by_place([p for p in parts if isinstance(p, KernelStep)]).items():
            self.compile_for(*place, members)
        steps = [p for s in steps for p in (self.faster(s) if isinstance(s, Alternatives) else [s])]
        for step in [s for s in steps if isinstance(s, KernelStep)]:
            kernel = step.kernel
            self.record.kernels.append(
                KernelRecord(
                    name=step.name,
                    language=step.language,
                    source=kernel.source.replace("NAME(", step.name + "(", 1),
                    nodes=list(step.group.names),
                    origins=sorted({str(o) for n in step.group.nodes for o in n.buffer.origins}),
                    bytes_read=sum(buffer_bytes(buffers[n]) for n in kernel.read),
                    bytes_written=sum(buffer_bytes(buffers[n]) for n in kernel.stored),
                )
            )
        return steps

    def faster(self, choice):
        """The steps of the faster alternative, by measuring both; the answer is kept on disk."""
        calls = {"fused": [choice.fused], "apart": choice.apart}

        def run(steps, tensors, stream):
            for step in steps:
                if isinstance(step, KernelStep):
                    self.scope[step.name](*[tensors[a] for a in step.kernel.arguments], stream)
                else:
                    views = [
                        tensors[v.name].as_strided(
                            [*map(int, v.size)], [*map(int, v.stride)], int(v.offset)
                        )
                        for v in step.buffer.args
                    ]
                    step.buffer.out_op(*views, out=tensors[step.buffer.name])

        names = dict.fromkeys(
            name for step in [choice.fused, *choice.apart] for name in step.touched()
        )
        times = race(
            {what: functools.partial(run, steps) for what, steps in calls.items()},
            choice.fused.kernel.source,
            {name: self.buffers[name].layout for name in names},
            self.device,
        )
        self.record.notes.append(
            f"{choice.fused.name}: "
            + ", ".join(f"{what} {ms * 1e3:.1f} us" for what, ms in times.items())
        )
        return calls[min(times, key=times.get)]

    def compile_for(self, language, device, steps):
        functions = build_functions(
            language, device, [s.kernel for s in steps], list(map(self.moved, steps))
        )
        for step, function in zip(steps, functions):
            name = f"{step.kernel.summary}_{len(self.names)}"
            step.name = self.names.setdefault(
                function, name + "_kernel" * (name in self.graph.inputs)
            )  # both are named after operations
            self.scope[step.name] = function

    def moved(self, step):
        """Bytes that a kernel reads and writes."""
        return sum(buffer_bytes(self.buffers[n]) for n in [*step.kernel.read, *step.kernel.stored])

    # -- memory ------------------------------------------------------------------------------------
    def plan_memory(self, steps):
        """Choose for each buffer: arena bytes, or a fresh tensor; and when it dies."""
        self.last_use = {}
        self.pinned = {self.root(name) for name in self.escaping}
        for position, step in enumerate(steps):
            for name in step.touched():
                self.last_use[self.root(name)] = position
            if isinstance(step, ExternNode) and self.may_alias(step.buffer):
                self.pinned |= {self.root(n) for n in step.read_names}
        self.arena, self.slots, self.in_arena = (
            [],
            [0],
            {},
        )  # in_arena: buffer -> (slot, offset in it)
        self.symbolic = any(
            isinstance(storage_bytes(self.buffers[name]), sympy.Expr)
            for step in steps
            for name in step.made()
        )
        handed, lives = self.handed_over(steps), []
        for position, step in enumerate(steps):
            for name in step.made():
                if name in self.memory_of:
                    continue
                place, buffer = self.place(name, step, position, handed), self.buffers[name]
                is_extern, nbytes = (
                    isinstance(buffer, (ExternKernel, MultiOutput)),
                    hint(storage_bytes(buffer), 0),
                )
                if not is_extern or name in self.in_arena:
                    self.record.memory_plan.append((name, place, nbytes))
                if nbytes and not (is_extern and self.may_alias(buffer)):
                    dies = (
                        len(steps) - 1
                        if name in self.pinned
                        else self.last_use.get(self.root(name), position)
                    )
                    lives.append((name, nbytes, position, dies))
        below = list(itertools.accumulate([hint(size, 0) for size in self.slots], initial=0))
        at = {name: below[slot] + offset for name, (slot, offset) in self.in_arena.items()}
        self.record.memory_lives = [(name, at.get(name), *life) for name, *life in lives]
        self.record.memory_steps = [
            step.name if isinstance(step, KernelStep) else step_name(step.buffer) for step in steps
        ]

    def place(self, name, step, position, handed):
        """Choose where `name` lies, from its step to its last use; the choice in words."""
        buffer, life = self.buffers[name], (position, self.last_use.get(name, position))
        nbytes = storage_bytes(buffer)
        size = 1 if self.symbolic else -(-nbytes // ALIGNMENT) * ALIGNMENT
        dying = handed.get(name) if name in self.pinned else self.dying(step, name, position)
        if dying in self.in_arena:
            slot, offset = self.in_arena[name] = self.in_arena[dying]
            self.arena.append((slot if self.symbolic else offset, size, *life, name))
            return f"in place of {dying}"
        if dying:
            self.memory_of[name] = dying
            self.last_use[self.root(name)] = self.last_use.pop(name, position)
            self.pinned |= {dying} if name in self.pinned else set()
            return f"in place of {dying}"
        if (
            not config.buffer_reuse
            or name in self.pinned
            or name in handed.values()
            or not self.may_share(buffer, nbytes)
        ):
            return "new"
        if self.symbolic:
            start, before = place_in_slot(self.slots, self.arena, nbytes, *life)
            self.in_arena[name] = (start, 0)
        else:
            start, before = place_in_arena(self.arena, size, *life)
            self.slots[0] = max(self.slots[0], start + size)
            self.in_arena[name] = (0, start)
        self.arena.append((start, size, *life, name))
        return f"reuse of {before}" if before else "new"

    def may_share(self, buffer, nbytes):
        """May it lie in the arena?  GPU memory is for what both halves of a training step keep:
        there, each large intermediate is the allocator's, and returned after its last use."""
        single = (
            SINGLE.get(self.device.type, math.inf)
            if self.record.joint_graph is not None
            else math.inf
        )
        is_fresh = (
            isinstance(buffer, MultiOutput)
            or isinstance(buffer, ExternKernel)
            and buffer.out_op is None
        )  # the eager kernel's own
        return not is_fresh and buffer.layout.device == self.device and 0 < hint(nbytes, 1) < single

    def handed_over(self, steps):
        """{output: the library kernel's result that it takes the memory of}: gelu(a @ b) over a @
        b."""
        if self.device.type not in HANDED_OVER:
            return {}
        found = {
            name: self.dying(step, name, position)
            for position, step in enumerate(steps)
            for name in step.made()
            if name in self.pinned
        }
        return {
            name: old
            for name, old in found.items()
            if old and isinstance(self.buffers[old], ExternKernel)
        }

    def dying(self, step, name, position):
        """A buffer made in this call that the step reads, element by element and for the last time,
        as it makes `name`; or None."""
        if (
            not (config.in_place and config.buffer_reuse and isinstance(step, KernelStep))
            or step.kernel.reruns
            or name in self.memory_of
        ):
            return None
        if step.language == "triton" and (
            isinstance(step.group, FusedProduct) or step.group.is_reduction or len(step.made()) > 1
        ):
            # its loops may read a value again, and for a second result Triton may load it twice, in
            # other threads
            return None
        new, taken = self.buffers[name], {self.in_arena.get(n, self.root(n)) for n in step.made()}

        def fits(old):
            buffer = self.buffers[old]
            if old in self.in_arena:
                return self.in_arena[old] not in taken and storage_bytes(buffer) == storage_bytes(
                    new
                )
            root = self.buffers[self.root(old)]
            return (
                root.name not in taken
                and self.is_local(root.name)
                and buffer.layout == new.layout
                and not isinstance(root, (InputBuffer, MultiOutput))
                and not (isinstance(root, ExternKernel) and self.may_alias(root))
            )

        return next(
            (
                old
                for old in step.kernel.read
                if self.last_use.get(self.root(old)) == position
                and fits(old)
                and may_overwrite(step.group, name, old, False)
            ),
            None,
        )

    def may_alias(self, buffer):
        """Can the extern kernel's result share memory with its arguments?"""
        if (
            isinstance(buffer, MultiOutput) or buffer.out_op is not None
        ):  # (its kernel was asked already)
            return False
        schema = getattr(buffer.op, "_schema", None)
        return schema is None or any(r.alias_info is not None for r in schema.returns)

    def root(self, name):
        while name in self.memory_of:
            name = self.memory_of[name]
        return name

    # -- lines -------------------------------------------------------------------------------------
    def emit(self, step, position):
        if isinstance(step, KernelStep):
            for name in step.kernel.stored:
                self.allocate(name)
            if step.kernel.stored and all(
                self.buffers[n].layout.numel == 0 for n in step.kernel.stored
            ):
                self.lines.append(f"# {step.name}: nothing to compute, its buffers are empty")
            else:
                arguments = ", ".join(
                    self.symbol(a) if isinstance(a, sympy.Symbol) else a
                    for a in step.kernel.arguments
                )
                self.lines.append(
                    f"{step.name}({arguments}{', stream' if step.device.type == 'cuda' else ''})"
                )
        else:
            self.emit_extern(step.buffer)
        touched = dict.fromkeys(self.root(name) for name in step.touched())
        ended = [
            root for root in touched if self.last_use.get(root) == position and self.is_local(root)
        ]
        if dead := [
            name
            for root in ended
            for name in [root, *[n for n in self.memory_of if self.root(n) == root]]
        ]:
            self.lines.append(f"del {', '.join(dead)}")

    def is_local(self, name):
        """A tensor made in this call, or handed over to it, that nothing needs any more; del
        returns its memory early."""
        buffer = self.buffers.get(name)
        if self.owned and isinstance(buffer, InputBuffer):
            return (
                name not in self.pinned
                and name not in self.escaping
                and name not in self.memory_of.values()
            )
        return (
            name not in self.in_arena
            and name not in self.pinned
            and name not in self.graph.inputs
            and not isinstance(buffer, (InputBuffer, ConstantBuffer))
            and name not in self.graph.constants
            and name not in self.memory_of
        )

    def allocate(self, name):
        if name in self.memory_of:
            self.lines.append(f"{name} = {self.memory_of[name]}     # written in place")
        elif name not in self.in_arena:
            layout = self.buffers[name].layout
            what = f"{self.tuple(layout.size)}, {self.tuple(layout.stride)}"
            if layout.device.type == "cpu" and layout.dtype in TYPES:
                self.lines.append(f"{name} = empty_cpu({what}, {self.named(layout.dtype)})")
            else:
                self.lines.append(
                    f"{name} = empty_strided({what}, dtype={self.named(layout.dtype)}, device={self.named(layout.device)})"
                )

    def emit_extern(self, buffer):
        name = buffer.name
        if isinstance(buffer, MultiOutput):
            path = "".join(f"[{i}]" for i in buffer.index)
            self.lines.append(f"{name} = {self.checked(f'{buffer.source}{path}', buffer)}")
            return
        arguments = [self.argument(a) for a in buffer.args]
        arguments += [f"{k}={self.argument(v)}" for k, v in buffer.kwargs.items()]
        if name in self.in_arena:
            function = FAST_OUT.get(buffer.op, buffer.out_op)
            self.lines.append(
                f"{self.function(function)}({', '.join([*arguments, f'out={name}'])})"
            )
        else:
            function = FAST.get(buffer.op, buffer.op) if not buffer.kwargs else buffer.op
            call = f"{self.function(function)}({', '.join(arguments)})"
            self.lines.append(
                f"{name} = {call if buffer.layout is None else self.checked(call, buffer)}"
            )

    def checked(self, expression, buffer):
        """An eager kernel chooses its result's strides itself; the kernels that read it were
        written for these."""
        self.scope["in_layout"] = in_layout
        return f"in_layout({expression}, {self.tuple(buffer.layout.stride)})"

    def argument(self, value):
        if isinstance(value, BufferView):
            return self.view(value)
        if isinstance(value, Opaque):
            return value.name
        if isinstance(value, (list, tuple)) and not isinstance(value, torch.Size):
            items = ", ".join(self.argument(v) for v in value)
            return (
                f"[{items}]"
                if isinstance(value, list)
                else f"({items}{',' if len(value) == 1 else ''})"
            )
        if isinstance(value, sympy.Basic):
            return self.number(value)
        if value is None or isinstance(value, (bool, int, str)):
            return repr(value)
        if isinstance(value, float):
            return repr(value) if math.isfinite(value) else f"float({str(value)!r})"
        if isinstance(value, torch.dtype):
            return self.named(value)
        return self.bind(value, "constant")

    def view(self, view, exact=False):
        """A buffer as `as_strided` sees it; the buffer itself where that is the same (exact:
        strides of dimensions of size 1 count, too).

        Views of the arena are made once per workspace.  # PyTorch: reinterpret_tensor in each call.
        """
        name, buffer, layout = view.name, self.buffers[view.name], self.buffers[view.name].layout
        in_place = tuple(view.size) == tuple(layout.size) and same(view.offset, layout.offset)
        if (
            in_place
            and same_layout(layout.size, view.stride, layout.stride)
            and (not exact or all(map(same, view.stride, layout.stride)))
        ):
            return name
        root = self.root(view.name)
        if root in self.in_arena:
            key = (root, tuple(view.size), tuple(view.stride), view.offset)
            if key not in self.views:
                self.views[key] = f"{root}_view{sum(k[0] == root for k in self.views)}"
            return self.views[key]
        # as_strided counts from the start of the storage; inputs may themselves be views, so add
        # their own offset
        offset = self.number(view.offset)
        relative = sympy.expand(sympy.sympify(view.offset) - layout.offset)
        if isinstance(buffer, (InputBuffer, ConstantBuffer, ExternKernel, MultiOutput)):
            offset = f"{name}.storage_offset()" + (
                f" + {self.number(relative)}" if relative != 0 else ""
            )
        return f"as_strided({name}, {self.tuple(view.size)}, {self.tuple(view.stride)}, {offset})"

    # -- names and numbers
    def bind(self, value, name):
        """What the value is called in the wrapper: `name`, with a number where that is taken by
        another one."""
        for number in itertools.count():
            known = self.scope.setdefault(key := f"{name}{number or ''}", value)
            if known is value or isinstance(value, torch.device) and known == value:
                return key

    def function(self, function):
        text = (
            str(function)
            if isinstance(function, torch._ops.OpOverload)
            else "torch_" + getattr(function, "__name__", "function")
        )
        return self.bind(function, "".join(c if c.isalnum() else "_" for c in text))

    def named(self, value):
        """The name of a dtype or device."""
        return self.bind(value, str(value).removeprefix("torch.").replace(":", ""))

    def number(self, value):
        value = sympy.sympify(value)
        for symbol in value.free_symbols:
            self.symbol(symbol)
        return str(int(value)) if value.is_Integer else python_code(value)

    def tuple(self, values):
        items = [self.number(v) for v in values]
        return f"({', '.join(items)}{',' if len(items) == 1 else ''})"

    def symbol(self, symbol):
        """The Python name of a size symbol."""
        self.symbols.add(symbol)
        for part in DERIVED[symbol].free_symbols if symbol in DERIVED else ():
            self.symbol(part)
        return symbol.name

    def symbol_lines(self):
        """s0 = arg0.size(1), from the first input that has the size, for symbols that are no inputs
        themselves."""
        lines, known = [], set(self.graph.inputs)
        for name, buffer in self.graph.inputs.items():
            layout = buffer.layout  # None: an int, which has its symbol's name
            for kind, values in (
                (("size", layout.size), ("stride", layout.stride)) if layout else ()
            ):
                for dim, value in enumerate(values):
                    if value in self.symbols and value.name not in known:
                        known.add(value.name)
                        lines.append(f"{value} = {name}.{kind}({dim})")
        return lines + [
            f"{s} = {python_code(DERIVED[s])}"
            for s in sorted(self.symbols & DERIVED.keys(), key=str)
        ]

    # -- the function ------------------------------------------------------------------------------
    def output(self, value):
        if isinstance(value, BufferView):
            return self.view(value, exact=True)
        return (
            "None"
            if value is None
            else self.number(value)
            if not isinstance(value, (bool, float))
            else repr(value)
        )

    def source(self):
        """The function's text: `lines` and, around them from inside to outside, the workspace,
        sizes, the stream, no autograd."""
        body = self.symbol_lines() + self.in_workspace([*self.lines, *self.result_lines()])
        if self.device.type == "cuda":
            number = self.device.index or 0
            self.scope.update(
                current_stream=torch._C._cuda_getCurrentRawStream,
                current_device=torch._C._cuda_getDevice,
                on_device=torch.cuda.device,
            )
            body = [
                f"if current_device() != {number}:",
                f"    with on_device({number}):",
                f"        return call({', '.join(self.graph.inputs)})",
                f"stream = current_stream({number})",
                *body,
            ]
        body = [piece for line in body for piece in wrapped(line)]
        copies = any(value.name not in self.overwritten for _, value in self.graph.mutations)
        if copies or any(isinstance(o, ExternKernel) for o in self.graph.operations):
            self.scope.update(
                is_grad_enabled=torch.is_grad_enabled, set_grad_enabled=torch._C._set_grad_enabled
            )
            body = [
                "recording = is_grad_enabled()",
                "set_grad_enabled(False)        # eager kernels: no autograd",
                "try:",
                *indent(body),
                "finally:",
                "    set_grad_enabled(recording)",
            ]
        inputs = ", ".join(self.graph.inputs)
        if self.owned and inputs:
            return (
                "\n".join(
                    [
                        "def call(*inputs):",
                        "    return call.owned(list(inputs))",
                        "",
                        "def call_owned(inputs):",
                        f"    {inputs}, = inputs",
                        "    inputs.clear()         # no other reference keeps them",
                        *indent(body),
                    ]
                )
                + "\n"
            )
        return "\n".join([f"def call({inputs}):", *indent(body)]) + "\n"

    def result_lines(self):
        """Inputs get their new values when all outputs are there."""
        lines, outputs = [], f"[{', '.join(self.output(o) for o in self.graph.outputs)}]"
        if self.overwritten:  # as an eager kernel would: autograd notices writes by the version
            self.scope["increment_version"] = torch.autograd.graph.increment_version
            lines.append(f"increment_version(({', '.join(self.overwritten.values())},))")
        copies = [
            f"{name}.copy_({self.view(value)})"
            for name, value in self.graph.mutations
            if value.name not in self.overwritten
        ]
        return (
            [*lines, f"outputs = {outputs}", *copies, "return outputs"]
            if copies
            else [*lines, f"return {outputs}"]
        )

    def in_workspace(self, lines):
        """The lines, the last of which returns, between taking a workspace from its list and
        putting it back."""
        if not self.in_arena:
            return lines
        names = [*self.in_arena, *self.views.values()]
        self.scope["new_workspace"] = self.new_workspace()
        take, symbols = [], ", ".join(self.workspace_symbols)
        if symbols:  # one list of workspaces for the sizes of this call; a few are kept
            self.scope["workspaces_for"] = WorkspacesBySize()
            take = [
                f"workspaces = workspaces_for({'stream, ' * (self.device.type == 'cuda')}{symbols})"
            ]
        elif (
            self.device.type == "cuda"
        ):  # calls on one stream run in order: they may share what lies between them
            self.scope["workspaces_of"] = {}
            take = ["workspaces = workspaces_of.setdefault(stream, [])"]
        else:
            self.scope["workspaces"] = []
        return [
            *take,
            f"workspace = workspaces.pop() if workspaces else new_workspace({symbols})",
            f"({', '.join(names)},) = workspace",
            *lines[:-1],
            "workspaces.append(workspace)",
            lines[-1],
        ]

    def new_workspace(self):
        plan = []
        for name, place in self.in_arena.items():
            layout = self.buffers[name].layout
            plan.append((layout.dtype, place, sizes(layout.size), sizes(layout.stride), 0))
        for name, size, stride, view_offset in self.views:
            plan.append(
                (
                    self.buffers[name].layout.dtype,
                    self.in_arena[name],
                    sizes(size),
                    sizes(stride),
                    as_size(view_offset),
                )
            )
        symbols = {
            s
            for n in pytree.tree_leaves((plan, self.slots))
            if isinstance(n, sympy.Expr)
            for s in n.free_symbols
        }
        self.workspace_symbols = sorted(map(self.symbol, symbols))
        return NewWorkspace(plan, self.slots, self.workspace_symbols, self.device)


def main_device(graph):
    """The device of the graph's kernels: that of its GPU tensors, if it has some."""
    devices = {
        b.layout.device
        for b in [*graph.inputs.values(), *graph.buffers.values(), *graph.operations]
        if getattr(b, "layout", None) is not None
    }
    elsewhere = sorted(devices - {torch.device("cpu")}, key=str)
    if len(elsewhere) > 1:
        raise NotImplementedError(f"tensors on several devices: {', '.join(map(str, elsewhere))}")
    return elsewhere[0] if elsewhere else torch.device("cpu")


@dataclass
class Alternatives:
    """Two ways to compute the same; the faster one is taken."""

    fused: object  # a KernelStep
    apart: list


@dataclass
class KernelStep:
    group: object  # a Group, a Foreach or a FusedProduct
    kernel: object  # what its writer made of it
    language: str
    device: torch.device
    name: str = None  # in the wrapper

    def made(self):
        return self.kernel.stored

    def touched(self):
        return [a for a in self.kernel.arguments if isinstance(a, str)]


def by_place(steps):
    """{(language, device): its kernel steps}"""
    places = {}
    for step in steps:
        places.setdefault((step.language, step.device), []).append(step)
    return places


def wrapped(line, width=108):
    """A long call or tuple over several lines, broken at commas, aligned after its opening
    bracket."""
    if (
        len(line) <= width or "(" not in line or ")" not in line or "'" in line or '"' in line
    ):  # never cut a string
        return [line]
    column, depth = line.index("(") + 1, 0
    for end in range(
        column - 1, len(line)
    ):  # a line can only be cut between brackets: up to the one that closes the first
        depth += (line[end] == "(") - (line[end] == ")")
        if not depth:
            break
    pieces = textwrap.wrap(
        line[column:end], max(40, width - column), break_long_words=False, break_on_hyphens=False
    )
    pieces = pieces or [""]
    pieces[-1] += line[end:]
    return [line[:column] + pieces[0], *[" " * column + piece for piece in pieces[1:]]]


def storage_bytes(buffer):
    """Bytes from the first to the last element, perhaps an expression; 0 where there is no
    layout."""
    layout = buffer.layout
    if layout is None or 0 in layout.size:
        return 0
    last = sum((n - 1) * s for n, s in zip(sizes(layout.size), sizes(layout.stride)))
    return expand((last + 1) * layout.dtype.itemsize)


def place_in_slot(slots, arena, nbytes, born, dies):
    """The same where bytes are expressions: a slot that is free during [born, dies] and as large
    for all sizes, or a new one."""
    for k, have in enumerate(slots):
        users = [(b, d, name) for slot, _, b, d, name in arena if slot == k]
        if all(d < born or dies < b for b, d, _ in users) and is_nonnegative(
            sympy.sympify(have - nbytes)
        ):
            return k, max(users)[2]
    slots.append(nbytes)
    return len(slots) - 1, None


def step_name(buffer):
    """What an eager kernel's step is called in the record."""
    return (
        str(buffer.op).split(".")[-2]
        if isinstance(getattr(buffer, "op", None), torch._ops.OpOverload)
        else buffer.name
    )


def place_in_arena(arena, size, born, dies):
    """Lowest offset where `size` bytes are free during [born, dies]; and the name of a dead buffer
    that lay there."""
    busy = sorted((o, n) for o, n, b, d, _ in arena if b <= dies and born <= d)
    offset = 0
    for start, length in busy:
        if start - offset >= size:
            break
        offset = max(offset, start + length)
    before = [
        name for o, n, b, d, name in arena if d < born and o < offset + size and offset < o + n
    ]
    return offset, before[-1] if before else None
