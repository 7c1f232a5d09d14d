"""One fused group in, one Triton function out.

In:   a scheduler `Group` and the names whose values must be in memory afterwards.  Out: a `Kernel`:
      source, the buffers it
takes, and a `Launch`: how many programs, which block sizes to try.

    @triton.jit
    def softmax_0(in0, out0, XBLOCK: tl.constexpr, RBLOCK: tl.constexpr):
        # in0: arg0_1, float32[16384, 4096];  out0: buf2, float32[16384, 4096]
        x0 = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)[:, None]      # 16384 rows
        r0 = tl.arange(0, RBLOCK)[None, :]                                  # 4096, all in one tile
        tmp0 = tl.load(in0 + (4096*x0 + r0))
        # buf0: amax
        tmp1 = tl.reduce(tmp0, 1, larger)[:, None]
        ...

One program computes one tile; a value is a tile, or broadcasts to one, and knows the axes along
which it varies:

    pointwise     [XBLOCK]            every loop flattened into x
    tile          [YBLOCK, XBLOCK]    reads run along y, writes along x: each side in whole cache lines
    reduction     [XBLOCK, RBLOCK]    persistent: a row fits in one tile, so nothing is read twice
                                      looped: r in steps of RBLOCK; a loop per *stage*: a reduction
                                      ends a stage, and what a later stage needs of an earlier one's
                                      elements is computed again; max(v) and sum(exp(v - max)) go in
                                      one stage: the online softmax

Loop nests, stages and names are those of `cpp`; only where C++ has loops, Triton has axes. Symbolic
sizes are arguments after the pointers: blocks are chosen by hints, masks stay where no divisibility
is known, and a kernel for rows in one tile brings a looped one along for longer rows
(`Launch.longer`). Mirrors torch/_inductor/codegen/triton.py (paper section 4.4).  Left out:
descending to CTA clusters.
"""

import itertools
import re
from collections import Counter

import torch

from ..dependencies import int_or_none
from ..sizes.printing import index_text
from ..sizes.symbols import hint, sizes
from ..sizes.symbols import size as as_size
from ..codegen.common import (
    Kernel,
    Scope,
    Value,
    indent,
    origin_text,
    summary,
)
from .launch import LARGEST_INT32, Launch
from .split_reductions import extreme
from .tile_plan import noted, plan_tiles, size_text
from .expressions import (
    HELPERS,
    NARROW,
    TritonExpressions,
    compute_dtype,
    literal,
    triton_type,
)

NEIGHBOURS = 8  # elements that share one running maximum there: one more exp for all of them
WAITING = 1 << 14  # elements of a row's tiles that are loaded before they are needed
PENDING = "@"  # what only the online softmax may use: "@max acc0", "@shifted acc0", "@exp acc0"

# kind -> (start, how two values combine, how a tile becomes one column)
REDUCERS = {
    "sum": ("0", "{a} + {b}", "tl.sum({a}, 1)"),
    "prod": ("1", "{a} * {b}", "tl.reduce({a}, 1, multiply)"),
    "max": ("lowest", "larger({a}, {b})", "tl.reduce({a}, 1, larger)"),
    "min": ("highest", "smaller({a}, {b})", "tl.reduce({a}, 1, smaller)"),
    "any": ("0", "{a} | {b}", "tl.max({a}, 1)"),
    "argmax": ("lowest", "argument_of_larger({a}, {b})", "tl.reduce(({a}), 1, argument_of_larger)"),
    "argmin": (
        "highest",
        "argument_of_smaller({a}, {b})",
        "tl.reduce(({a}), 1, argument_of_smaller)",
    ),
}

SCANS = {  # kind -> (start, how two values combine, the tile's running values)
    "sum": ("0", "{} + {}", "tl.cumsum({}, 1)"),
    "prod": ("1", "{} * {}", "tl.cumprod({}, 1)"),
    "logaddexp": ('float("-inf")', "log_of_sum({}, {})", "tl.associative_scan({}, 1, log_of_sum)"),
}


class TritonKernelWriter(TritonExpressions):
    """Plays the bodies of a group into Triton lines."""

    def __init__(self, group, buffers, keep, order=None, overwritten={}, any_row=False):
        """any_row: a loop over rows whose length is symbolic, however short this run's are."""
        self.group, self.buffers, self.keep, self.order, self.any_row = (
            group,
            buffers,
            set(keep),
            order,
            any_row,
        )
        self.overwritten, self.origin, self.last = (
            overwritten,
            "",
            [],
        )  # last: stores over memory that the kernel reads
        self.nodes, self.before = list(group.nodes), []  # before: nodes of a template
        self.pointers, self.values, self.raw = {}, {}, {}
        self.stored, self.read, self.literals, self.symbol_axes = [], [], set(), {}
        self.mask, self.asserts, self.replaying = None, False, False
        self.accumulators, self.deferred, self.is_online = [], [], False
        self.symbols = set()
        # values of buffers of which a maximum is taken: the lowest number beyond a row's end
        self.padded = set()

    # -- writing -----------------------------------------------------------------------------------
    def make_plan(self):
        return plan_tiles(self.nodes, self.buffers, self.keep, self.any_row)

    def write(self):
        self.plan = self.make_plan()
        self.outside = self.scope = Scope()
        if self.plan.kind == "looped":
            for stage in range(-1, max(self.plan.stage.values()) + 1):
                self.write_stage(stage)
        else:
            for node in self.plan.nodes:
                self.play(node)
        launch = Launch(
            self.plan.kind,
            self.plan.sizes,
            self.plan.configs,
            [self.buffers[n].layout.dtype for n in self.pointers],
            self.asserts,
            [self.reach(n) for n in self.pointers],
        )
        if self.plan.kind == "persistent" and not isinstance(self.plan.sizes["r"], int):
            launch.longer = TritonKernelWriter(
                self.group, self.buffers, self.keep, self.order, self.overwritten, any_row=True
            ).write()
        stages = ["STAGES"] if self.plan.kind == "looped" else []
        last = (
            ["tl.debug_barrier()" + " " * 50 + "# every thread has read", *self.last]
            if self.last
            else []
        )
        return self.kernel(
            self.grid_lines() + self.outside.lines + last,
            launch,
            [a.block for a in self.plan.axes] + stages,
        )

    def kernel(self, body, launch, blocks):
        """The finished text: signature, comments, body."""
        notes, nodes = [], [*self.before, *self.plan.nodes]
        for name, pointer in self.pointers.items():
            layout = self.buffers[name].layout
            notes.append(
                f"# {pointer}: {name}, {str(layout.dtype).removeprefix('torch.')}{list(sizes(layout.size))}"
                f"{origin_text(getattr(self.buffers[name], 'origins', ()), self.order, limit=3)}"
            )
        origins = {o for n in nodes for o in n.buffer.origins}
        body = loads_first(without_dead_lines(body), self.most_loads())
        symbols = {
            s
            for n in (*launch.sizes.values(), *launch.extents)
            if not isinstance(n, int)
            for s in n.free_symbols
        }
        symbols = sorted(symbols | self.symbols, key=str)
        launch.symbols, launch.hints = tuple(map(str, symbols)), tuple(hint(s, 1) for s in symbols)
        parameters = [
            *self.pointers.values(),
            *launch.symbols,
            *[f"{b}: tl.constexpr" for b in blocks],
        ]
        lines = [
            "@triton.jit",
            f"def NAME({', '.join(parameters)}):",
            *indent(
                [
                    f"# computes {', '.join(n.buffer.name for n in nodes)}{origin_text(origins, self.order, limit=12)}",
                    *notes,
                    *body,
                ]
            ),
        ]
        source = with_imports("\n".join(lines) + "\n")
        if not symbols and launch.is_wide(()):
            source = with_wide_indices(source)
        return Kernel(
            source,
            [*self.pointers, *symbols],
            list(self.stored),
            list(self.read),
            summary(nodes, self.order),
            reruns=self.reads_again(),
            launch=launch,
        )

    def reads_again(self):
        """A loop may read a value again, and for a second result it may be loaded twice, in other
        threads."""
        return self.group.is_reduction or len(self.stored) > 1

    def most_loads(self):
        """How many tiles may wait in registers until they are used."""
        return (
            8
            if self.plan.kind != "persistent"
            else min(4, max(1, WAITING // max(1, hint(self.plan.sizes["r"], 1))))
        )

    def grid_lines(self):
        """Index lines of the axes that the grid runs over; and of r where its row is one tile."""
        if self.plan.kind == "tile":  # x first: programs that run together write whole rows
            y, x = self.plan.axes
            tiles = f"tl.cdiv({size_text(x.numel)}, XBLOCK)"
            return [
                *y.lines(f"tl.program_id(0) // {tiles} * YBLOCK"),
                *x.lines(f"tl.program_id(0) % {tiles} * XBLOCK"),
            ]
        return self.plan.axes[0].lines("tl.program_id(0) * XBLOCK") + (
            self.plan.axes[1].lines("") if self.plan.kind == "persistent" else []
        )

    def reach(self, name):
        """Elements from the first to the last one of a buffer."""
        layout = self.buffers[name].layout
        return (
            as_size(1 + sum((n - 1) * s for n, s in zip(sizes(layout.size), sizes(layout.stride))))
            if 0 not in layout.size
            else 0
        )

    def play(self, node):
        self.node = node
        if len(self.plan.nodes) > 1:
            self.scope.add(f"# {node.name}")
        self.plan.bodies[node.name].play(self)

    def write_stage(self, stage):
        """A loop over r for the inner nodes of a stage, then what follows per row."""
        axis, outside = self.plan.axes[1], self.outside
        inner = [
            n
            for n in self.plan.nodes
            if self.plan.stage[n.name] == stage
            and self.plan.is_inner(n.name)
            and (n.is_reduction or n.name in self.keep)
        ]  # other elements are computed where they are needed
        if inner:
            self.accumulators, self.deferred = [], []
            self.scope = Scope(outside)
            for node in inner:
                self.play(node)
            for name in () if self.plan.columns else self.plan.sums_of_exp():
                if self.plan.stage[name] == stage + 1 and self.try_online(self.plan.makers[name]):
                    self.plan.stage[name] = stage
            lines, self.scope = self.scope.lines, outside
            for accumulator in self.accumulators:
                outside.add(accumulator.declaration)
            # STAGES - 1 tiles ahead are on their way to shared memory while one is worked on
            outside.add(
                f"for r_start in tl.range(0, {size_text(axis.numel)}, RBLOCK, num_stages=STAGES):"
            )
            outside.lines += indent(
                axis.lines("r_start")
                + lines
                + [line for a in self.accumulators for line in a.update]
            )
            self.values = {
                n: v
                for n, v in self.values.items()
                if n not in self.plan.makers or "r" not in v.inner
            }
            finished = {a.name: a for a in self.accumulators}
            self.accumulators = []
            for name, index, value, mode in self.deferred:
                self.store(name, index, finished[value.text].finish(self), mode)
        for node in self.plan.nodes:
            if self.plan.stage[node.name] == stage and not self.plan.is_inner(node.name):
                self.play(node)

    # -- online softmax: sum(exp(v - max(v))) in the loop that finds the maximum -------------------
    def try_online(self, node):
        """Play `node` with the running maximum in place of the maximum.  False, and nothing
        changed, where it needs more."""
        scope, values = self.scope, dict(self.values)
        before = (
            list(scope.lines),
            dict(scope.known),
            list(self.outside.lines),
            dict(self.outside.known),
        )
        self.is_online, count = True, len(self.accumulators)
        try:
            self.play(node)
            done = True
        except NotOnline:
            (scope.lines, scope.known, self.outside.lines, self.outside.known), done = before, False
            del self.accumulators[count:]
        self.is_online, self.values = False, values
        return done

    def pending(self, value, state):
        """The accumulator of a maximum, if `value` is its `state` (max, shifted, exp)."""
        text = getattr(value, "text", "")
        return next((a for a in self.accumulators if text == f"{PENDING}{state} {a.name}"), None)

    def sub(self, a, b):
        maximum = self.pending(b, "max")
        if maximum is None:
            return self.binary("sub", a, b)
        if a.text != maximum.value.text:
            raise NotOnline
        return Value(f"{PENDING}shifted {maximum.name}", a.dtype, a.inner)

    def exp(self, x):
        maximum = self.pending(x, "shifted")
        return (
            self.unary("exp", x)
            if maximum is None
            else Value(f"{PENDING}exp {maximum.name}", x.dtype, x.inner)
        )

    # -- indices and masks -------------------------------------------------------------------------
    def index(self, expr):
        """Print an index; sizes in it become arguments."""
        self.symbols |= {
            s for s in expr.free_symbols if s not in self.symbol_axes and s not in self.plan.axis_of
        }
        return index_text(expr, "triton")

    def axes_of(self, expr):
        """The axes along which an index changes."""
        axes = set()
        for symbol in expr.free_symbols:
            axes |= (
                self.symbol_axes[symbol]
                if symbol in self.symbol_axes
                else {self.plan.axis_of[symbol]}
                if symbol in self.plan.axis_of
                else set()
            )
        return frozenset(axes)

    def mask_text(self, axes):
        """Which elements along these axes exist; "" for all."""
        masks = [a.mask for a in self.plan.axes if a.mask and a.name in axes]
        return " & ".join(masks + ([self.mask.text] if self.mask is not None else []))

    def shape(self, axes=None):
        return (
            "["
            + ", ".join(a.block if axes is None or a.name in axes else "1" for a in self.plan.axes)
            + "]"
        )

    def all_axes(self, inner):
        return frozenset(a.name for a in self.plan.axes if inner or a.name != "r")

    def element(self, name, index, axes, written):
        """The pointers to elements, as a tile that varies along `axes` at least."""
        name = self.memory(name)
        if name not in self.pointers:
            kind = "inout" if name in self.overwritten.values() else "out" if written else "in"
            self.pointers[name] = f"{kind}{sum(p.startswith(kind) for p in self.pointers.values())}"
        text, own = self.index(index), self.axes_of(index)
        if not axes <= own:
            text = (
                f"tl.full({self.shape(axes)}, {text}, tl.int32)"
                if not own
                else f"tl.broadcast_to({text}, {self.shape(axes | own)})"
            )
        elif not text.isalnum():
            text = f"({text})"
        return f"{self.pointers[name]} + {text}"

    def memory(self, name):
        """The buffer that holds it: an input that is written in place, or its own."""
        return self.overwritten.get(name, name)

    def temporary(self, expression, dtype, axes):
        """Name a value where it is known: what does not change along r, before the loop over r."""
        if PENDING in expression:
            raise NotOnline
        scope = self.scope if "r" in axes else self.outside
        name = self.scope.lookup((expression, None))
        if name is None:
            name = scope.temporary(expression, None)
            scope.lines[-1] = noted(scope.lines[-1], self.origin)
        return Value(name, dtype, axes)

    def line(self, text):
        """A line without a value of its own."""
        self.scope.add(noted(text, self.origin))

    # -- memory ------------------------------------------------------------------------------------
    def load(self, name, index):
        if name in self.values:
            return self.values[name]
        dtype = self.buffers[name].layout.dtype
        if self.is_online:
            for stored, _, value, _ in self.deferred:
                if stored == name:
                    return Value(f"{PENDING}max {value.text}", dtype, frozenset("x"))
        if (
            name in self.plan.makers and name != self.node.name
        ):  # elements of an earlier loop: cheaper computed than stored
            return self.replay(self.plan.makers[name])
        if int_or_none(self.buffers[name].layout.numel) == 0:
            return self.constant(0, dtype)
        if name not in self.stored and name not in self.read:
            self.read.append(name)
        axes = self.axes_of(index)
        pointed = self.mask.inner if self.mask is not None else frozenset()
        mask = self.mask_text(axes | pointed)
        text = self.element(name, index, pointed, False)
        # what one loop reads once should not drive out what others will read
        once = (
            ', eviction_policy="evict_first"'
            if self.plan.streams and axes == self.all_axes(True)
            else ""
        )
        padding = (
            'float("-inf")'
            if name in self.plan.maxima and "r" in axes and self.mask is None
            else "0"
        )
        text = (
            f"tl.load({text}, {mask}, other={padding}{once})" if mask else f"tl.load({text}{once})"
        )
        value = self.temporary(
            f"{text}.to(tl.float32)" if dtype in NARROW else text, dtype, axes | pointed
        )
        if padding != "0":
            self.padded.add(value.text)
        return value

    def replay(self, node):
        before, self.node, self.replaying = (self.node, self.replaying), node, True
        self.plan.bodies[node.name].play(self)
        self.node, self.replaying = before
        return self.values[node.name]

    def store(self, name, index, value, mode=None):
        if any(a.name == value.text for a in self.accumulators):
            self.deferred.append((name, index, value, mode))
            return
        dtype = self.buffers[name].layout.dtype
        if mode is None:
            self.values[name] = Value(value.text, dtype, value.inner)
        if name not in self.keep or self.replaying:
            return
        if name not in self.stored:
            self.stored.append(name)
        axes = self.all_axes(self.plan.is_inner(name) and not self.plan.makers[name].is_reduction)
        target, mask = self.element(name, index, axes, True), self.mask_text(axes)
        text = self.raw.get((value.text, dtype)) or (
            f"{self.solid(value)}.to({triton_type(dtype)})" if dtype in NARROW else value.text
        )
        if mode not in (None, "atomic_add"):
            raise NotImplementedError(f"a Triton kernel that stores with {mode}")
        mask = f", {mask}" if mask else ""
        if mode == "atomic_add":
            self.line(f'tl.atomic_add({target}, {self.solid(value)}{mask}, sem="relaxed")')
        elif name in self.overwritten:
            self.last.append(noted(f"tl.store({target}, {text}{mask})", self.origin))
        else:
            self.line(f"tl.store({target}, {text}{mask})")

    # -- reductions --------------------------------------------------------------------------------
    def scan(self, dtype, kind, value):
        if not self.plan.is_inner(self.node.name):  # one element
            return value
        start, combine, whole = SCANS[kind]
        value, kind = self.solid(value), triton_type(dtype)
        tile = (
            value
            if value.inner == self.all_axes(True)
            else f"tl.broadcast_to({value}, {self.shape()})"
        )
        whole = as_narrow(whole.format(tile), dtype)
        if self.plan.kind == "persistent":
            return self.temporary(whole, dtype, self.all_axes(True))
        carry = self.outside.fresh("carry")  # the last element of the tile before
        self.outside.add(noted(f"{carry} = tl.full([XBLOCK, 1], {start}, {kind})", self.origin))
        result = self.temporary(combine.format(carry, whole), dtype, self.all_axes(True))
        self.line(
            f"{carry} = tl.sum(tl.where(tl.arange(0, RBLOCK)[None, :] == RBLOCK - 1, {result}, 0), 1)[:, None]"
        )
        return result

    def reduction(self, dtype, src_dtype, kind, value, flat_index):
        maximum = self.pending(value, "exp")
        if maximum is not None:
            if kind != "sum" or maximum.kind != "max":
                raise NotOnline
            maximum.sum_of_exp = self.outside.fresh("acc")
            maximum.full = maximum.full.replace("RBLOCK", f"RBLOCK // {NEIGHBOURS}")
            self.accumulators.append(OnlineSum(maximum))
            return Value(maximum.sum_of_exp, dtype, self.all_axes(True))
        if not self.plan.is_inner(self.node.name):  # one element: nothing to reduce
            return (
                self.constant(0, dtype)
                if kind.startswith("arg")
                else self.to_dtype(value, torch.bool if kind == "any" else dtype)
            )
        element = torch.int32 if kind == "any" else dtype if kind in ("sum", "prod") else src_dtype
        if value.dtype != element:
            value = (
                self.to_dtype(value, torch.bool)
                if kind == "any" and value.dtype is not torch.bool
                else value
            )
            value = self.to_dtype(value, element)
        accumulator = Accumulator(self, kind, element, dtype, value, flat_index)
        if self.plan.kind == "persistent":
            return accumulator.whole(self)
        self.accumulators.append(accumulator)
        return Value(accumulator.name, dtype, self.all_axes(True))


def as_narrow(text, dtype):
    """What Triton reduces or scans of integers of 8 or 16 bits has 32."""
    narrow = not dtype.is_floating_point and dtype is not torch.bool and dtype.itemsize < 4
    return f"{text}.to({triton_type(dtype)})" if narrow else text


class NotOnline(Exception):
    """A node uses the maximum for something else than exp(v - max)."""


class Accumulator:
    """A reduction under way: its tile of partial results, or, where the row is one tile, the row
    itself."""

    def __init__(self, writer, kind, element, dtype, value, flat_index):
        self.kind, self.dtype, self.element = kind, dtype, compute_dtype(element)
        start, self.combining, self.ending = REDUCERS[kind]
        if kind in ("max", "min") and not element.is_floating_point:
            self.combining, self.ending = f"tl.{kind}imum({{a}}, {{b}})", f"tl.{kind}({{a}}, 1)"
        self.start = (
            literal(extreme(self.element, start == "lowest"), self.element)
            if start in ("lowest", "highest")
            else f"{start}.0"
            if self.element.is_floating_point
            else start
        )
        self.has_index, self.mask, self.padded = (
            kind.startswith("arg"),
            writer.plan.axes[1].mask,
            value.text in writer.padded,
        )
        self.name = writer.outside.fresh("acc")
        typed, full = triton_type(self.element), writer.shape()
        self.full = f"tl.full({full}, {self.start}, {typed})"
        self.value = writer.solid(value)
        spread = value.inner != writer.all_axes(True)
        self.term = f"tl.broadcast_to({self.value}, {full})" if spread else self.value.text
        self.index = f"tl.broadcast_to({writer.index(flat_index)}, {full}).to(tl.int64)"
        self.no_index = f"tl.full({full}, {LARGEST_INT32}, tl.int64)"
        self.sum_of_exp, self.result = (
            None,
            None,
        )  # the online sum that follows this maximum; the finished column

    @property
    def declaration(self):
        return (
            f"{self.name}, {self.name}_index = {self.full}, {self.no_index}"
            if self.has_index
            else f"{self.name} = {self.full}"
        )

    @property
    def update(self):
        """What one step of the loop does."""
        name, (term, index) = self.name, self.inside()
        if self.has_index:
            pair = f"{name}, {name}_index"
            return [f"{pair} = {self.combining.format(a=pair, b=f'{term}, {index}')}"]
        if (
            self.sum_of_exp
        ):  # each group of neighbours keeps its own maximum, and its sum relative to that
            total, top = self.sum_of_exp, f"{name}_new"
            return [
                f"groups = tl.reshape({term}, [XBLOCK, RBLOCK // {NEIGHBOURS}, {NEIGHBOURS}])",
                f"{top} = larger({name}, tl.reduce(groups, 2, larger))",
                f'base = tl.where({top} == float("-inf"), 0.0, {top})',
                f"{total} = {total} * tl.exp({name} - base) + tl.sum(tl.exp(groups - base[:, :, None]), 2)",
                f"{name} = {top}",
            ]
        text = self.combining.format(a=name, b=self.value)
        return [
            f"{name} = tl.where({self.mask}, {text}, {name})" if self.mask else f"{name} = {text}"
        ]

    def inside(self):
        """Value and index, with what lies beyond the end of the row made neutral."""
        if not self.mask or self.padded and self.kind == "max":
            return self.term, self.index
        return (
            f"tl.where({self.mask}, {self.term}, {self.start})",
            f"tl.where({self.mask}, {self.index}, {LARGEST_INT32})",
        )

    def whole(self, writer):
        term, index = self.inside()
        return self.column(writer, f"{term}, {index}" if self.has_index else term)

    def finish(self, writer):
        return self.column(
            writer, f"{self.name}, {self.name}_index" if self.has_index else self.name
        )

    def column(self, writer, tile):
        text = self.ending.format(a=tile) + ("[1]" if self.has_index else "") + "[:, None]"
        text = (
            f"{text} != 0"
            if self.kind == "any"
            else text
            if self.has_index
            else as_narrow(text, self.element)
        )
        self.result = writer.temporary(text, self.dtype, frozenset("x"))
        return self.result


class OnlineSum:
    """sum(exp(v - max)), updated together with its maximum."""

    update = ()

    def __init__(self, maximum):
        self.maximum, self.name = maximum, maximum.sum_of_exp

    @property
    def declaration(self):
        return f"{self.name} = {self.maximum.full.replace(self.maximum.start, '0.0')}"

    def finish(self, writer):
        top = self.maximum
        text = f"tl.sum({self.name} * tl.exp({top.name} - {top.result}), 1)[:, None]"
        return writer.temporary(text, top.dtype, frozenset("x"))


def without_dead_lines(lines):
    """Without temporaries that nobody uses: the wide copy of a value that is only stored."""
    while True:
        used = Counter(
            name for line in lines for name in re.findall(r"\btmp\d+\b", line.split("  # ")[0])
        )
        kept = [
            line for line in lines if not (m := re.match(r" *(tmp\d+) = ", line)) or used[m[1]] > 1
        ]
        if len(kept) == len(lines):
            return lines
        lines = kept


def loads_first(lines, most):
    """Loads that wait for nothing stand before all computation, up to `most` in a block of lines,
    so that they are under way together."""

    def waits(line):
        load = re.match(r" *tmp\d+ = (tl\.load\(in\d+ .*)", line.split("  # ")[0])
        return load is None or re.search(r"\btmp\d", load[1])

    def ordered(block):
        first = next(
            (k for k, line in enumerate(block) if re.match(r" *tmp\d+ = ", line)), len(block)
        )
        first -= first > 0 and block[first - 1].lstrip().startswith("#")
        early = [line for line in block[first:] if not waits(line)][:most]
        rest = [line for line in block[first:] if line not in early]
        return (
            block
            if [line for line in block[first:] if "#" != line.lstrip()[0]][: len(early)] == early
            else block[:first] + early + rest
        )

    blocks = itertools.groupby(lines, lambda line: len(line) - len(line.lstrip()))
    return [line for _, block in blocks for line in ordered(list(block))]


def with_wide_indices(source):
    """The kernel with indices of 64 bits."""
    return re.sub(r"tl\.(program_id\(\d\)|arange\(0, \w+\))(?!\.to)", r"tl.\1.to(tl.int64)", source)


def with_imports(text):
    """The kernel as a complete file: imports, and the helper functions it uses."""
    needed, frontier = {}, [text]
    while frontier:
        words = {word for part in frontier for word in re.findall(r"[a-z_]\w*", part)}
        frontier = [HELPERS[n] for n in HELPERS if n in words and n not in needed]
        needed |= {n: HELPERS[n] for n in HELPERS if n in words}
    helpers = "".join(f"@triton.jit{body}\n\n\n" for body in needed.values())
    libdevice = (
        "from triton.language.extra import libdevice\n" if "libdevice." in text + helpers else ""
    )
    return f"import triton\nimport triton.language as tl\n{libdevice}\n\n{helpers}{text}"
