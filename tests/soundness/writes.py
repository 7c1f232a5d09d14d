"""Overlapping writes: random programs that write into several views of one memory, and read it.

    python -m tests.soundness.writes --count 1000 --modes inductor
    python -m tests.soundness.writes --show 17 [--modes inductor]     # one, made small

In:   a seed.  Out: a `Program`: lines of Python that make views of copies of the inputs (and of the
inputs themselves, which may share memory), write into them in every way that torch has, and read
what was written.  A line that eager refuses is left out, so every program runs.

All numbers are small integers, also where they are floats: right answers are equal, bit by bit.
The memory that compiled programs allocate is filled with a pattern first (`poisoned`), so that an
element which nobody wrote shows.  What a workspace still holds of an earlier call shows, too: every
program is called twice, with other numbers.
"""

import argparse
import contextlib
import math
import os
import random
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

os.environ.setdefault("TRITON_INTERPRET", "1")  # triton reads it when it is imported

import torch

import miniinductor
from miniinductor.ir.loops import same_layout
from miniinductor.runtime import memory as runtime_program
from miniinductor.sizes.symbols import is_dense
from miniinductor import toolchain as launch
from tests.soundness import modes, runner
from tests.soundness.modes import Mode
from tests.soundness.tables import items, rows

DTYPES = [torch.float32] * 6 + [torch.float64, torch.float16, torch.bfloat16]
DTYPES += [torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool]
DTYPES += [torch.complex64]
SIZES = [1, 2, 3, 4, 5, 7, 8, 9, 12, 15, 16, 17, 20, 24, 31, 32, 33, 36, 40, 48, 63, 64, 65, 70]
MOST_ELEMENTS = 3000
SWITCHES = (
    "fusion inlining tiling row_reductions in_place buffer_reuse foreach vectorize loop_reordering"
).split()
PATTERN = 0x7F  # float32, bfloat16: 3.4e38; float16: NaN; int8: 127


# --- memory that nobody wrote shows ---------------------------------------------------------------
def filled(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor that was just allocated, with PATTERN in each byte."""
    storage = tensor.untyped_storage()
    if storage.nbytes():
        torch.empty(0, dtype=torch.uint8).set_(storage).fill_(PATTERN)
    return tensor


@contextlib.contextmanager
def poisoned() -> Iterator[None]:
    """What generated wrappers allocate is filled with PATTERN: outputs and workspaces."""

    def empty_cpu(size: Any, stride: Any, dtype: torch.dtype) -> torch.Tensor:
        return filled(torch.empty_strided(size, stride, dtype=dtype))

    def empty_strided(*args: Any, **kwargs: Any) -> torch.Tensor:
        return filled(torch.empty_strided(*args, **kwargs))

    new_workspace, start = runtime_program.NewWorkspace.__call__, runtime_program.Program.start

    def workspace(self: Any, *symbols: Any) -> tuple:
        tensors = new_workspace(self)
        for tensor in tensors[:1]:
            filled(tensor)
        return tensors

    def started(self: Any) -> Callable:
        self.scope = {**self.scope, "empty_strided": empty_strided}
        return start(self)

    with (
        mock.patch.object(launch, "empty_cpu", empty_cpu),
        mock.patch.object(runtime_program.NewWorkspace, "__call__", workspace),
        mock.patch.object(runtime_program.Program, "start", started),
    ):
        yield


# --- inputs ---------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Input:
    """How an input is made: of its own memory, or as a view of an earlier one (`of`)."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    layout: str = "plain"  # plain, transposed, sliced, expanded, offset
    of: tuple[int, str] | None = None  # number of the other input, what is done to it

    def make(self, generator: torch.Generator, made: list[torch.Tensor]) -> torch.Tensor:
        if self.of is not None:
            number, view = self.of
            return eval("x" + view, {"x": made[number]})
        shape = list(self.shape)
        layout = self.layout if shape else "plain"
        if layout == "expanded":
            shape[0] = 1
        elif layout == "sliced":
            shape[-1] = 2 * shape[-1] + 1
        elif layout == "offset":
            shape[0] += 2
        elif layout == "transposed":
            shape.reverse()
        numbers = torch.randint(-99, 100, shape, generator=generator)
        if self.dtype is torch.bool:
            numbers = numbers > 0
        elif self.dtype is torch.complex64:
            numbers = torch.complex(numbers.float(), numbers.flip(0).float())
        x = numbers.to(self.dtype)
        if layout == "expanded":
            return x.expand(self.shape)
        if layout == "sliced":
            return x[..., 1::2]
        if layout == "offset":
            return x[1:-1]
        return x.permute(*reversed(range(x.dim()))) if layout == "transposed" else x


def make_inputs(inputs: list[Input], seed: int, training: bool) -> list[torch.Tensor]:
    generator, made = torch.Generator().manual_seed(seed), []
    for one in inputs:
        x = one.make(generator, made)
        if training and one.of is None and (x.is_floating_point() or x.is_complex()):
            x = x.detach().requires_grad_()
        made.append(x)
    return made


# --- programs -------------------------------------------------------------------------------------
@dataclass
class Program:
    """Its lines, run eagerly as it grows: `scope` holds the values of its names."""

    rng: random.Random
    training: bool
    seed: int
    inputs: list[Input] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    scope: dict[str, Any] = field(default_factory=dict)
    made: list[torch.Tensor] = field(default_factory=list)
    memories: list[str] = field(default_factory=list)  # names of tensors to write into, and views
    results: list[str] = field(default_factory=list)

    def input(self, one: Input) -> str:
        x = one.make(torch.Generator().manual_seed(self.seed + len(self.inputs)), self.made)
        floats = x.is_floating_point() or x.is_complex()
        if self.training and one.of is None and floats:
            x = x.detach().requires_grad_()
        name = f"x{len(self.inputs)}"
        self.inputs.append(one)
        self.made.append(x)
        self.scope[name] = x
        return name

    def run(self, line: str) -> bool:
        """Append a line, if eager accepts it."""
        try:
            exec(line, {"torch": torch}, self.scope)
        except (RuntimeError, IndexError, TypeError, ValueError, NotImplementedError):
            return False
        self.lines.append(line)
        return True

    def new(self, expression: str) -> str | None:
        """A new name for an expression, or None where eager refuses it, or it is too large."""
        name = f"t{len(self.lines)}_{len(self.scope)}"
        if not self.run(f"{name} = {expression}"):
            return None
        value = self.scope[name]
        if not isinstance(value, torch.Tensor) or value.numel() > 4 * MOST_ELEMENTS:
            self.lines.pop()
            del self.scope[name]
            return None
        return name

    def source(self) -> str:
        names = ", ".join(f"x{number}" for number in range(len(self.inputs)))
        body = [*self.lines, f"return ({', '.join(self.results)},)"]
        return f"def program({names}):\n" + "\n".join(f"    {line}" for line in body) + "\n"


def random_shape(rng: random.Random) -> tuple[int, ...]:
    shape = [rng.choice(SIZES) for _ in range(rng.choice([1, 2, 2, 2, 3, 3, 4]))]
    while math.prod(shape) > MOST_ELEMENTS:
        shape[rng.randrange(len(shape))] = rng.choice([1, 2, 3, 4, 5])
    return tuple(shape)


def one_slice(rng: random.Random, n: int) -> str:
    start, step = rng.randrange(n), rng.choice([1, 1, 1, 2, 2, 3, 4])
    return f"{start}:{rng.randrange(start + 1, n + 1)}" + (f":{step}" if step > 1 else "")


def index_text(rng: random.Random, shape: tuple[int, ...]) -> str:
    """What stands in brackets: slices, whole dimensions, now and then a number."""
    parts = []
    for n in shape:
        kind = rng.random()
        if kind < 0.35:
            parts.append(":")
        elif kind < 0.9:
            parts.append(one_slice(rng, n))
        else:
            parts.append(str(rng.randrange(-n, n)))
    return ", ".join(parts)


def view_text(rng: random.Random, x: torch.Tensor) -> str:
    """A view of x, as what follows its name."""
    dims, shape = x.dim(), tuple(x.shape)
    if not dims or not x.numel():
        return ".unsqueeze(0)"
    a, b = rng.randrange(dims), rng.randrange(dims)
    choices = [f"[{index_text(rng, shape)}]"] * 6
    choices += [f".transpose({a}, {b})", f".select({a}, {rng.randrange(shape[a])})"]
    choices += [f".narrow({a}, {rng.randrange(shape[a])}, 1)", ".unsqueeze(0)", ".flatten()"]
    choices += [f".unbind({a})[{rng.randrange(shape[a])}]", f".chunk(2, {a})[0]", ".squeeze()"]
    if a != b:
        choices += [f".diagonal({rng.choice([-1, 0, 0, 1])}, {a}, {b})"] * 2
    if x.is_contiguous():
        choices += [f".view({shape[0]}, -1)", ".view(-1)"]
        rows = rng.randrange(1, max(2, x.numel() // 3))
        stride = rng.choice([1, 2, 3])
        count = max(1, min(x.numel() // rows, 12))
        start = rng.randrange(max(1, x.numel() - (rows - 1) * count - (count - 1) * stride))
        if x.requires_grad:
            # Of what as_strided reads outside of the view that it is given, after a write to the
            # base, autograd's history differs between plain tensors and subclasses.
            start += x.storage_offset()
        if stride == 1:  # elements of its own each
            choices += [f".as_strided(({rows}, {count}), ({count}, 1), {start})"] * 2
    return rng.choice(choices)


def source_text(program: Program, shape: tuple[int, ...], dtype: torch.dtype) -> str:
    """Something that can be written into a view of that shape."""
    rng, kind = program.rng, program.rng.random()
    if kind < 0.15:
        return str(rng.choice([0, 1, 2, -3, 7])) if dtype is not torch.bool else "True"
    if kind < 0.4:
        fitting = [
            name
            for name, value in program.scope.items()
            if isinstance(value, torch.Tensor) and tuple(value.shape) == shape
        ]
        if fitting:
            return rng.choice(fitting) + rng.choice([".clone()", " * 2", ".clone()"])
    if kind < 0.5 and shape:  # a part of a larger input
        name = program.input(Input((shape[0] + 3, *shape[1:]), dtype, "plain"))
        return f"{name}[{rng.choice([0, 1, 3])}:][:{shape[0]}]"
    if rng.random() < 0.15:
        dtype = rng.choice(DTYPES)
    wanted = list(shape)
    for d in range(len(wanted)):
        if rng.random() < 0.15:
            wanted[d] = 1
    if wanted and rng.random() < 0.1:
        wanted = wanted[1:]
    layouts = ["plain"] * 3 + ["transposed", "sliced", "expanded", "offset"]
    return program.input(Input(tuple(wanted), dtype, rng.choice(layouts) if wanted else "plain"))


def write_line(program: Program, name: str) -> str:
    """A line that writes into the tensor `name`."""
    rng, x = program.rng, program.scope[name]
    shape = tuple(x.shape)
    kind = rng.random()
    if kind < 0.4 and shape and x.numel():
        index = index_text(rng, shape)
        part = eval(f"x[{index}]", {"x": x})
        operator = rng.choice(["=", "=", "=", "+=", "-="]) if x.dtype is not torch.bool else "="
        return f"{name}[{index}] {operator} {source_text(program, tuple(part.shape), x.dtype)}"
    if kind < 0.6:
        method = rng.choice(["copy_", "copy_", "add_", "sub_", "mul_", "maximum"])
        text = source_text(program, shape, x.dtype)
        if method == "mul_":
            return f"{name}.mul_({rng.choice([-1, 2, 0])})"
        if method == "maximum" or method == "copy_" and not text.startswith(("x", "t")):
            return f"{name}.fill_({rng.choice([0, 1, 5])})"
        return f"{name}.{method}({text})"
    if kind < 0.75:
        mask = program.input(Input(shape, torch.bool, rng.choice(["plain", "plain", "offset"])))
        if not shape:
            mask = f"{mask}.clone()"
        source = source_text(program, shape, x.dtype)
        return rng.choice(
            [
                f"{name}.masked_fill_({mask}, {rng.choice([0, 1, 9])})",
                f"{name}[{mask}] = {rng.choice([0, 1, 9])}",
                f"{name}.copy_(torch.where({mask}, {name}, {source}))",
            ]
        )
    if kind < 0.88 and shape and x.numel():
        d = rng.randrange(len(shape))
        positions = sorted(rng.sample(range(shape[d]), rng.randrange(1, shape[d] + 1)))[:9]
        rng.shuffle(positions)
        index = f"torch.tensor({positions})"
        part = (*shape[:d], len(positions), *shape[d + 1 :])
        first = ", ".join([":"] * d + [index])
        return rng.choice(
            [
                f"{name}[{first}] = {source_text(program, part, x.dtype)}",
                f"{name}.index_fill_({d}, {index}, {rng.choice([0, 1, 6])})",
                f"{name}.index_copy_({d}, {index}, {program.input(Input(part, x.dtype))})",
                f"{name}.index_add_({d}, {index}, {program.input(Input(part, x.dtype))})",
            ]
        )
    calls = "zero_() neg_() clamp_(-3,40) abs_() logical_not_()".split()
    return f"{name}.{rng.choice([*calls, f'add_({name})'])}"


def scatter_text(program: Program, name: str) -> str:
    """A copy of `name` in which a part is replaced."""
    rng, x = program.rng, program.scope[name]
    shape = tuple(x.shape)
    if not shape or not x.numel():
        return f"{name}.clone()"
    d = rng.randrange(len(shape))
    kind = rng.choice(["slice", "slice", "select", "diagonal", "as_strided", "index_put"])

    def source(part: torch.Tensor) -> str:
        return program.input(Input(tuple(part.shape), x.dtype, rng.choice(["plain", "offset"])))

    if kind == "slice":
        start, step = rng.randrange(shape[d]), rng.choice([1, 1, 2, 3])
        end = rng.randrange(start + 1, shape[d] + 1)
        part = torch.ops.aten.slice(x, d, start, end, step)
        return f"torch.slice_scatter({name}, {source(part)}, {d}, {start}, {end}, {step})"
    if kind == "select":
        at = rng.randrange(shape[d])
        part = x.select(d, at)
        layout = "plain"
        return (
            f"torch.select_scatter({name}, "
            f"{program.input(Input(tuple(part.shape), x.dtype, layout))}, {d}, {at})"
        )
    if kind == "diagonal" and len(shape) > 1:
        part = x.diagonal(0, 0, 1)
        return f"torch.diagonal_scatter({name}, {source(part)}, 0, 0, 1)"
    if kind == "as_strided":  # anywhere in the memory, which may be that of an input
        places = x.untyped_storage().nbytes() // x.element_size()
        count, step = max(1, x.numel() // 3), rng.choice([1, 2])
        first = x.storage_offset() + rng.choice([0, 0, 1, 3])
        where = f"({count},), ({step},), {first}"
        if (count - 1) * step + first < places:
            if rng.random() < 0.3:
                return f"torch.as_strided_copy({name}, {where})"
            return f"torch.as_strided_scatter({name}, {source(torch.empty(count))}, {where})"
    positions = rng.sample(range(shape[0]), min(shape[0], rng.choice([1, 2, 5])))
    part = torch.empty((len(positions), *shape[1:]))
    accumulate = rng.random() < 0.5
    return f"{name}.index_put((torch.tensor({positions}),), {source(part)}, {accumulate})"


def read_text(program: Program, name: str) -> str:
    """A reduction of `name`, or something pointwise."""
    rng, x = program.rng, program.scope[name]
    dims = x.dim()
    other = rng.choice([n for n in program.memories if program.scope[n].shape == x.shape])
    choices = [f"{name} * 2", f"{name} + {other}", f"{name}.clone()", f"{name} - {other} * 3"]
    choices += [f"torch.where({name} > 3, {name}, {other})", f"{name}.contiguous()", f"{name} != 0"]
    if dims and x.numel():
        d = rng.randrange(dims)
        choices += [f"{name}.sum({d})", f"{name}.amax({d})", f"{name}.sum()", f"{name}.flip({d})"]
        choices += [f"torch.cat(({name}, {other}), {d})", f"{name}.sum({d}, keepdim=True) + {name}"]
        choices += [f"{name}.cumsum({d})", f"{name}.roll(1, {d})"]
        choices += [f"torch.nn.functional.pad({name}, (1, 2))", f"{name}.argmax({d})"]
    return rng.choice(choices)


def grow(program: Program) -> None:
    """One memory of its own, views of it, writes and readers."""
    rng = program.rng
    dtype = rng.choice(DTYPES[:9]) if program.training else rng.choice(DTYPES)
    layouts = ["plain"] * 4 + ["transposed", "sliced", "offset"]
    base = program.input(Input(random_shape(rng), dtype, rng.choice(layouts)))
    names = []
    for _ in range(rng.choice([1, 2, 2, 3])):
        kind = rng.random()
        if kind < 0.6:
            names.append(program.new(f"{base}.clone()"))
        elif kind < 0.75:
            names.append(program.new(f"{base} * 2"))
        elif kind < 0.85:
            names.append(program.new(f"torch.zeros_like({base})"))
        elif not program.training:
            names.append(base)
    if not program.training and rng.random() < 0.15:
        number = int(base[1:])
        view = view_text(rng, program.made[number])
        try:
            part = eval("x" + view, {"x": program.made[number]})
        except (RuntimeError, IndexError):
            part = None
        if part is not None:
            names.append(program.input(Input(tuple(part.shape), dtype, of=(number, view))))
    program.memories = [name for name in names if name is not None]
    for _ in range(rng.randrange(2, 9)):
        if not program.memories:
            return
        name = rng.choice(program.memories)
        kind = rng.random()
        if kind < 0.3:
            if made := program.new(name + view_text(rng, program.scope[name])):
                program.memories.append(made)
        elif kind < 0.75:
            program.run(write_line(program, name))
        elif kind < 0.87:
            if made := program.new(scatter_text(program, name)):
                program.memories.append(made)
        elif made := program.new(read_text(program, name)):
            program.results.append(made)
    program.results += rng.sample(program.memories, min(len(program.memories), 3))


def make_program(seed: int, training: bool, parts: int = 3) -> Program:
    program = Program(random.Random(seed), training, seed)
    for _ in range(parts):
        with contextlib.suppress(RuntimeError):  # autograd refuses a view of this tensor
            grow(program)
    return program


# --- running --------------------------------------------------------------------------------------
def compiled_form(program: Program) -> Callable:
    scope: dict[str, Any] = {"torch": torch}
    exec(compile(program.source(), "<writes>", "exec"), scope)
    return scope["program"]


@dataclass
class Outcome:
    """What a call gave: results, the inputs afterwards, and gradients."""

    results: list[torch.Tensor]
    inputs: list[torch.Tensor]
    gradients: list[torch.Tensor | None]


def call(function: Callable, program: Program, seed: int) -> Outcome:
    inputs = make_inputs(program.inputs, seed, program.training)
    results = list(function(*inputs))
    gradients: list[torch.Tensor | None] = []
    if program.training:
        losses = [
            (r * (k + 1)).abs().sum().double() if r.is_complex() else (r * (k + 1)).double().sum()
            for k, r in enumerate(results)
            if r.requires_grad
        ]
        wanted = [x for x in inputs if x.requires_grad]
        if losses:
            loss = torch.stack(losses).sum()
            gradients = list(torch.autograd.grad(loss, wanted, allow_unused=True))
    return Outcome(results, inputs, gradients)


def shares_memory(tensors: list[torch.Tensor]) -> list[int]:
    """For each tensor the first one that lies in the same storage."""
    places = [t.untyped_storage().data_ptr() if t.numel() else -k for k, t in enumerate(tensors)]
    return [places.index(place) for place in places]


def tensors_differ(want: torch.Tensor, got: torch.Tensor) -> str:
    if (want.dtype, want.shape, want.requires_grad) != (got.dtype, got.shape, got.requires_grad):
        kinds = [f"{t.dtype} {tuple(t.shape)} {t.requires_grad}" for t in (want, got)]
        return " became ".join(kinds)
    want, got = want.detach(), got.detach()
    if want.is_complex():
        want, got = torch.view_as_real(want.resolve_conj()), torch.view_as_real(got.resolve_conj())
    same = (want == got) | (want != want) & (got != got)
    if bool(same.all()):
        return ""
    wrong = (~same).nonzero()
    at = tuple(wrong[0].tolist())
    return f"{len(wrong)} of {want.numel()} elements, first {list(at)}: {want[at]} became {got[at]}"


def gradients_differ(want: torch.Tensor, got: torch.Tensor) -> str:
    """As tensors_differ; equal maxima share a gradient, 1/12 each, whose sums may be rounded."""
    if want.is_floating_point() and want.shape == got.shape and want.dtype == got.dtype:
        if torch.allclose(want, got, rtol=1e-6, atol=0, equal_nan=True):
            return ""
    return tensors_differ(want, got)


def strides_differ(want: torch.Tensor, got: torch.Tensor) -> str:
    """A view with holes may come as a dense tensor; whatever is dense lies as eager's does."""
    if not is_dense(want.shape, want.stride()) or same_layout(
        want.shape, want.stride(), got.stride()
    ):
        return ""
    return f"strides {want.stride()} became {got.stride()}"


def outcomes_differ(want: Outcome, got: Outcome, program: Program) -> str:
    names = [*program.results, *[f"x{k} after" for k in range(len(want.inputs))]]
    for name, a, b in zip(
        names, [*want.results, *want.inputs], [*got.results, *got.inputs], strict=True
    ):
        if text := tensors_differ(a, b) or strides_differ(a, b):
            return f"{name}: {text}"
    for number, (a, b) in enumerate(zip(want.gradients, got.gradients, strict=True)):
        if (a is None) != (b is None) or a is not None and gradients_differ(a, b):
            return f"gradient {number}: {a} became {b}"
    shared = shares_memory([*want.results, *want.inputs])
    if shared != shares_memory([*got.results, *got.inputs]):
        return f"shared memory: {shared} became {shares_memory([*got.results, *got.inputs])}"
    return ""


def difference(program: Program, mode: Mode, switches: dict[str, bool]) -> str:
    function = compiled_form(program)
    # from a filled graph cache, a mutant would run what was compiled before it
    with miniinductor.config.patch(**switches), poisoned():
        compiled = mode.compile(function)
        for seed in (program.seed, program.seed + 1):
            try:
                want = call(function, program, seed)
            except RuntimeError:  # backward refuses what a write has changed
                return ""
            if text := outcomes_differ(want, call(compiled, program, seed), program):
                return f"call {seed - program.seed + 1}: {text}"
    return ""


def switches_of(seed: int) -> dict[str, bool]:
    rng = random.Random(seed)
    off = [name for name in SWITCHES if rng.random() < 0.2] if rng.random() < 0.4 else []
    return dict.fromkeys(off if seed >= 0 else [], False)


FLOATS = torch.float32
MATRIX, WIDE, LONG = Input((16, 24), FLOATS), Input((70, 65), FLOATS), Input((301,), FLOATS)


def known(inputs: str, results: str, lines: str) -> tuple[list[Input], list[str], list[str]]:
    """A program, its lines between "; "; an input that is a shape alone holds floats."""
    given = eval(f"[{inputs}]", globals())
    made = [one if isinstance(one, Input) else Input(one, FLOATS) for one in given]
    return made, items(lines), results.split()


# The first ones were wrong once; each of the others needs one edge, one condition or one mask of
# the compiler to be right.
KNOWN: list[tuple[list[Input], list[str], list[str]]] = [
    known(*row)
    for row in rows("""
(2, 40), (2, 32) :: y z :: y = x0.clone(); y[:, 4:36] = x1; z = x0.clone();
    z[:, 4:36:2] = x1[:, :16]
Input((2, 10), FLOATS, "offset"), (2, 2) :: y :: y = x0.clone();
    v = y.as_strided((2, 3), (3, 1), 4); v.index_copy_(1, torch.tensor([1, 2]), x1)
Input((2, 10), FLOATS, "offset") :: y :: x0.add_(1); y = x0.as_strided((2, 3), (3, 1), 12) * 2
# a clone begins at the start of its memory
Input((5, 4), FLOATS, "offset"), (3,) :: z :: y = x0.clone();
    z = torch.as_strided_scatter(y, x1, (3,), (2,), 1)
Input((5, 4), FLOATS, "offset"), (3,) :: y z :: x0.add_(1);
    y = torch.as_strided_copy(x0, (3,), (2,), 5);
    z = torch.as_strided_scatter(x0, x1, (3,), (2,), 6)
(5, 4) :: z :: y = (x0 * 2)[1:]; y.mul_(3); z = torch.as_strided_copy(y, (3,), (2,), 4)
# a tensor that is not contiguous keeps its strides
Input((20, 4), FLOATS, "transposed"), (20, 1) :: y z :: y = x0.clone();
    y.index_copy_(1, torch.tensor([3]), x1); z = y.flatten()
# eager's slice_scatter begins where its input does
Input((5, 15, 2), FLOATS, "offset") :: v z :: y = x0.clone();
    z = y.as_strided((24, 6), (6, 1), 0); v = y[2:3]; v.mul_(3)
# an eager kernel reads a part of what was written in an input's place
Input((8, 17, 4), FLOATS, "offset"), (8, 9, 1) :: z :: x0.logical_not_();
    z = torch.slice_scatter(x0[:, :9], x1, 2, 2, 4, 2)
# a scatter's target is read by a kernel of its own
MATRIX, (3, 24) :: r y :: y = x0.amax(1, keepdim=True) + x0; r = y.flip(0).cumsum(1);
    y.index_add_(0, torch.tensor([3, 9, 3]), x1)
# read, then overwritten
MATRIX :: r :: r = x0.flip(0).cumsum(0); x0.add_(1)
MATRIX :: r :: x0.mul_(2); r = x0.flip(0).cumsum(0)
MATRIX :: x0 :: x0.copy_(x0.flip(0) + 1)
MATRIX :: r :: s = x0.sum(1); x0.sub_(s[:, None]); r = x0.amax(0)
MATRIX :: x0 :: x0.copy_(x0.flip(1) - x0.sum(1, keepdim=True))
(16, 16) :: x0 :: x0.copy_(x0.t() + 1)
MATRIX, Input((15, 24), FLOATS, of=(0, "[1:]")) :: y :: x0.add_(1); y = x1 * 2; x1.mul_(3)
MATRIX :: y z w :: y = x0.clone(); z = y[1:]; w = x0 * 1
# a result of a reduction, read at other places
MATRIX :: v :: s = x0.amax(1); t = s.flip(0) + s; u = t.flip(0) * 2 + t; v = u.cumsum(0)
# results that live at the same time, each of a kernel of its own
MATRIX :: r :: a = x0.cumsum(1); b = (x0 * 2).cumsum(0); c = a.flip(0).cumsum(1);
    d = (b.flip(1) + a).cumsum(0); r = c + d.flip(0) + b
LONG, (77,) :: a b :: a = x0 + 1; b = x1 * 2
MATRIX :: y q :: y = x0.clone(); p = y.split(8, 1); p[2].mul_(2); p[0].add_(1); q = p[2] + 1
MATRIX :: y v w :: y = x0.clone(); v = y[2:]; y.add_(1); w = v * 2
# the new value has other strides than the input
Input((16, 16), FLOATS, "transposed"), (16, 16) :: w :: t = x1 * 2; w = t.sort(1)[0]; x0.copy_(t)
WIDE, (65, 70) :: y :: y = x0 + x1.t()
LONG, WIDE :: a b c :: a = x0.sum(); b = x1.sum(0); c = x1.sum(1)
# alike, one after the other
LONG :: a b :: a = x0 + 1; b = a.sort()[0] + 1
Input((301,), torch.float16) :: y :: y = x0 * 2 + 1
LONG :: y :: y = x0.clamp(-3, 40) / 2
LONG :: y :: y = torch.nn.functional.pad(x0, (3, 5)).cumsum(0)
LONG, Input((301,), torch.bool) :: y :: y = x0.masked_fill(x1, 5) + 1
(5, 33), (5, 7) :: y r :: y = x0.clone(); y[:, 3:31:4] = x1; y[2:4] += 1; r = y.sum(1)
""")
]


def cases(count: int, first: int) -> list[int]:
    """Seeds; negative: the programs of KNOWN."""
    return [*range(-len(KNOWN), 0), *range(first, first + count)]


def program_of(case: int, mode: Mode) -> Program:
    if case >= 0:
        return make_program(case, mode.training, 1 if mode.name == "triton" else 3)
    inputs, lines, results = KNOWN[case]
    return Program(random.Random(0), mode.training, 0, inputs, lines, results=results)


def check(case: int, mode: Mode) -> str:
    program, switches = program_of(case, mode), switches_of(case)
    if not runs(program):  # a leaf that needs gradients is written
        return ""
    text = difference(program, mode, switches)
    return text and f"{text}\n{switches} {inputs_text(program)}\n{program.source()}"


def inputs_text(program: Program) -> str:
    return "\n".join(f"x{number}: {one}" for number, one in enumerate(program.inputs))


# --- the smallest form ----------------------------------------------------------------------------
def differs(program: Program, mode: Mode, switches: dict[str, bool]) -> str:
    try:
        with mode.active():
            return difference(program, mode, switches)
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def runs(program: Program) -> bool:
    try:
        call(compiled_form(program), program, program.seed)
    except Exception:
        return False
    return True


def shrink(program: Program, mode: Mode, switches: dict[str, bool]) -> Program:
    """Without each line and each result that the difference does not need."""
    for part in ("results", "lines"):
        number = len(getattr(program, part)) - 1
        while number >= 0:
            left = list(getattr(program, part))
            del left[number]
            smaller = Program(
                program.rng,
                program.training,
                program.seed,
                program.inputs,
                left if part == "lines" else program.lines,
                results=left if part == "results" else program.results,
            )
            if left and runs(smaller) and differs(smaller, mode, switches):
                program = smaller
            number -= 1
    return program


def show(seed: int, mode: Mode) -> None:
    program, switches = program_of(seed, mode), switches_of(seed)
    print(differs(program, mode, switches))
    for name in list(switches):
        fewer = {k: v for k, v in switches.items() if k != name}
        if differs(program, mode, fewer):
            switches = fewer
    program = shrink(program, mode, switches)
    used = program.source()
    for number, one in enumerate(program.inputs):
        if f"x{number}" in used.split("\n", 1)[1]:
            print(f"x{number}: {one}")
    print(switches, used, differs(program, mode, switches), sep="\n")


if __name__ == "__main__":
    if "--show" in sys.argv:
        parser = argparse.ArgumentParser()
        parser.add_argument("--show", type=int)
        parser.add_argument("--modes", default="inductor")
        options = parser.parse_args()
        torch.set_num_threads(1)
        for chosen in modes.chosen(options.modes):
            show(options.show, chosen)
    else:
        runner.main("tests.soundness.writes", default_modes="inductor")
