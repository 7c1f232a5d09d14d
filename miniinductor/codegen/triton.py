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

import functools
import itertools
import math
import re
from collections import Counter
from dataclasses import dataclass

import torch

from ..dependencies import LoopBody, int_or_none, loop_variables, merge_loops, runs_along, stride_of
from ..sizes.printing import index_text
from ..sizes.symbols import fill, hint, is_multiple, sizes
from ..sizes.symbols import size as as_size
from .common import Kernel, Scope, Value, indent, origin_text, summary
from .plan import in_data_flow_order, stages_of
from .split_reductions import extreme
from .triton_configs import block_configs, persistent_limit
from .triton_expressions import (
    HELPERS,
    NARROW,
    TritonExpressions,
    compute_dtype,
    literal,
    triton_type,
)

BIG = 2**31 - 1
LONG_ROW = 8192  # a row of which only max and sum(exp) are needed is looped over from here on
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


@dataclass
class Launch:
    """sizes: axis -> elements; configs: block sizes to try, the best guess first."""

    kind: str
    sizes: dict
    configs: list
    dtypes: list  # of the pointers, in order
    asserts: bool  # the kernel checks indices
    extents: list  # elements behind each pointer
    symbols: tuple = ()  # names of the sizes that are arguments, after the pointers
    hints: tuple = ()  # what they are in this run
    longer: object = None  # the kernel for rows that are longer than a tile

    def __getstate__(self):
        return {k: v for k, v in self.__dict__.items() if k != "at"}

    @functools.cached_property
    def at(self):
        """A function of the symbols' values that gives sizes and extents as numbers."""
        return fill((self.sizes, self.extents), self.symbols)

    def grid(self, config, values=()):
        """Programs; values: of the symbols."""
        return (
            math.prod(
                -(-size // config.block(axis))
                for axis, size in self.at(*values)[0].items()
                if axis != "r"
            ),
        )

    def is_wide(self, values):
        """Must indices have 64 bits?  With room for the last tile."""
        sizes, extents = self.at(*values)
        return max(*sizes.values(), *extents) + (1 << 20) > BIG


class Axis:
    """One dimension of the tile: the loops that are flattened into it."""

    def __init__(self, name, variables, sizes, slice_text):
        self.name, self.block, self.slice = name, name.upper() + "BLOCK", slice_text
        self.loops = [(v, as_size(n)) for v, n in zip(variables, sizes)]
        self.numel = math.prod(n for _, n in self.loops)
        self.mask = None
        self.flat = str(self.loops[0][0]) if len(self.loops) == 1 else f"{name}index"

    def index_text(self, start):
        index = f"tl.arange(0, {self.block}){self.slice}"
        return f"{start} + {index}" if start else index

    def lines(self, start):
        """Names of the loop variables, from the flat index that begins at `start`."""
        flat, index, lines = self.flat, self.index_text(start), []
        if len(self.loops) != 1:
            for position, (variable, size) in enumerate(self.loops):
                below, size = (
                    size_text(n)
                    for n in (math.prod(n for _, n in self.loops[position + 1 :]), size)
                )
                text = flat if below == "1" else f"{flat} // {below}"
                if position:
                    text = f"{text} % {size}" if below == "1" else f"({text}) % {size}"
                lines.append(noted(f"{variable} = {text}", f"< {size}"))
        lines.insert(0, noted(f"{flat} = {index}", f"{self.name}: {self.numel}"))
        if self.mask:
            lines.insert(1, f"{self.mask} = {flat} < {size_text(self.numel)}")
        return lines


def noted(line, comment):
    return f"{line:66}  # {comment}" if comment else line


def size_text(n):
    """A number of elements, in brackets where it is an expression."""
    text = index_text(n, "triton")
    return text if text.isalnum() else f"({text})"


def is_maximum(body: LoopBody) -> bool:
    """Does the body find the maximum of what it reads, and nothing else?"""
    ops = {i.op for i in body.walk()}
    return body.reduction_kinds() == ["max"] and ops <= {"load", "to_dtype", "reduction", "store"}


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
        self.accumulators, self.deferred, self.is_online, self.symbols, self.streams = (
            [],
            [],
            False,
            set(),
            False,
        )
        self.maxima, self.padded = (
            set(),
            set(),
        )  # buffers of which a maximum is taken; their values: the lowest number beyond a row's end

    # -- plan --------------------------------------------------------------------------------------
    def plan(self):
        """Axes, the kind of kernel, blocks to try and where masks are needed."""
        bodies = merge_loops([n.body for n in self.nodes])
        outer, inner = bodies[0].outer, max((b.inner for b in bodies), key=len)
        self.bodies = {n.name: b for n, b in zip(self.nodes, bodies)}
        self.is_pointwise, self.columns = not inner, False
        online = False
        if self.is_pointwise:
            self.plan_pointwise(outer, bodies)
        else:
            online = self.plan_reduction(outer, inner)
        self.sizes = {a.name: a.numel for a in self.axes}
        self.configs = self.blocks_to_try(loop_variables("r", len(inner)))
        self.axis_of = {v: a.name for a in self.axes for v, _ in a.loops}
        for axis in self.axes:
            if axis.numel == 0 or not all(self.divides(c, axis) for c in self.configs):
                axis.mask = f"{axis.name}mask"
        self.order_nodes()
        self.streams = self.kind == "looped" and (
            online or not any(self.stage[n.name] > 0 and self.is_inner[n.name] for n in self.nodes)
        )

    def plan_pointwise(self, outer, bodies):
        """One axis; where reads run along another one than writes, a tile of two."""
        x = loop_variables("x", len(outer))
        cut = self.transposed_at(outer, bodies)
        if cut:
            self.kind = "tile"
            self.axes = [
                Axis("y", x[:cut], outer[:cut], "[:, None]"),
                Axis("x", x[cut:], outer[cut:], "[None, :]"),
            ]
        else:
            self.kind, self.axes = "pointwise", [Axis("x", x, outer, "")]

    def plan_reduction(self, outer, inner):
        """Rows and their elements.  Does a loop over a row find its maximum and the sum of its
        exponentials at once (the online softmax)?"""
        x, r = loop_variables("x", len(outer)), loop_variables("r", len(inner))
        self.axes = [Axis("x", x, outer, "[:, None]"), Axis("r", r, inner, "[None, :]")]
        self.columns = self.runs_along_x(x, r)
        numel = math.inf if self.any_row else hint(self.axes[1].numel, math.inf)
        online = numel > LONG_ROW and not self.columns and self.may_be_online()
        is_long = online or numel > persistent_limit(self.columns)
        self.kind = "looped" if is_long else "persistent"
        return online

    def may_be_online(self):
        """No element of a row must be stored, and there is a sum of exponentials."""
        is_stored = any(
            n.name in self.keep and self.bodies[n.name].inner and not n.is_reduction
            for n in self.nodes
        )
        return not is_stored and len(self.sums_of_exp()) > 0

    def blocks_to_try(self, r):
        """Block sizes; only those that divide the sizes, if there are some: they need no masks."""
        tiles = {
            (a.name, a.index)
            for b in self.bodies.values()
            for a in b.reads()
            if not {*r}.isdisjoint(a.index.free_symbols)
        }
        hints = {a: hint(n, 512) for a, n in self.sizes.items()}
        if self.any_row:
            hints["r"] = 2 * LONG_ROW
        configs = block_configs(self.kind, hints, self.columns, len(tiles))
        free = [c for c in configs if all(self.divides(c, a) for a in self.axes)]
        return free or configs

    def divides(self, config, axis):
        """Is the axis cut into whole tiles, whatever its symbols are?  A row in one tile is as long
        as the tile only where it is a number."""
        return is_multiple(axis.numel, config.block(axis.name)) and (
            isinstance(axis.numel, int) or axis.name + self.kind != "rpersistent"
        )

    def transposed_at(self, outer, bodies):
        """Number of loops that belong to y, if some read steps by one along an earlier loop and not
        along the last."""
        for number, variable in enumerate(loop_variables("x", len(outer) - 1)):
            last = loop_variables("x", len(outer))[-1]
            for access in (a for b in bodies for a in b.reads()):
                along_last = int_or_none(stride_of(access.index, last))
                if (
                    along_last not in (0, 1, None)
                    and stride_of(access.index, variable) == 1
                    and min(hint(outer[number], 0), hint(outer[-1], 0)) >= 8
                ):
                    return number + 1
        return None

    def runs_along_x(self, x, r):
        """Do the reduction's reads step through memory by the last outer loop rather than by the
        reduction's?"""
        return bool(x) and runs_along(
            [a for body in self.bodies.values() if body.inner for a in body.reads()], x[-1], r[-1]
        )

    def sums_of_exp(self):
        """Names of nodes that sum up an exp and depend on a maximum over the same loops."""
        maxima = {n.name for n in self.nodes if "max" in self.bodies[n.name].reduction_kinds()}
        reads = {n.name: {a.name for a in n.body.reads()} for n in self.nodes}
        exps = {
            n.name
            for n in self.nodes
            if any(i.op == "exp" for i in n.body.walk()) and reads[n.name] & maxima
        }
        return [
            n.name
            for n in self.nodes
            if "sum" in self.bodies[n.name].reduction_kinds()
            and (n.name in exps or reads[n.name] & exps)
        ]

    def order_nodes(self):
        """Data-flow order, and in which loop (stage) each node runs; -1: before the first."""
        self.is_inner = {n.name: bool(self.bodies[n.name].inner) for n in self.nodes}
        self.makers = {n.name: n for n in self.nodes}
        self.nodes = in_data_flow_order(self.nodes)
        self.stage = stages_of(self.nodes, self.is_inner, self.is_pointwise)
        for body in self.bodies.values():
            if is_maximum(body):
                self.maxima |= {
                    a.name
                    for a in body.reads()
                    if self.buffers[a.name].layout.dtype.is_floating_point
                }

    # -- writing -----------------------------------------------------------------------------------
    def write(self):
        self.plan()
        self.outside = self.scope = Scope()
        if self.kind == "looped":
            for stage in range(-1, max(self.stage.values()) + 1):
                self.write_stage(stage)
        else:
            for node in self.nodes:
                self.play(node)
        launch = Launch(
            self.kind,
            self.sizes,
            self.configs,
            [self.buffers[n].layout.dtype for n in self.pointers],
            self.asserts,
            [self.reach(n) for n in self.pointers],
        )
        if self.kind == "persistent" and not isinstance(self.sizes["r"], int):
            launch.longer = TritonKernelWriter(
                self.group, self.buffers, self.keep, self.order, self.overwritten, any_row=True
            ).write()
        stages = ["STAGES"] if self.kind == "looped" else []
        last = (
            ["tl.debug_barrier()" + " " * 50 + "# every thread has read", *self.last]
            if self.last
            else []
        )
        return self.kernel(
            self.grid_lines() + self.outside.lines + last,
            launch,
            [a.block for a in self.axes] + stages,
        )

    def kernel(self, body, launch, blocks):
        """The finished text: signature, comments, body."""
        notes, nodes = [], [*self.before, *self.nodes]
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
            launch=launch,
        )

    def most_loads(self):
        """How many tiles may wait in registers until they are used."""
        return (
            8
            if self.kind != "persistent"
            else min(4, max(1, WAITING // max(1, hint(self.sizes["r"], 1))))
        )

    def grid_lines(self):
        """Index lines of the axes that the grid runs over; and of r where its row is one tile."""
        if self.kind == "tile":  # x first: programs that run together write whole rows
            y, x = self.axes
            tiles = f"tl.cdiv({size_text(x.numel)}, XBLOCK)"
            return [
                *y.lines(f"tl.program_id(0) // {tiles} * YBLOCK"),
                *x.lines(f"tl.program_id(0) % {tiles} * XBLOCK"),
            ]
        return self.axes[0].lines("tl.program_id(0) * XBLOCK") + (
            self.axes[1].lines("") if self.kind == "persistent" else []
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
        if len(self.nodes) > 1:
            self.scope.add(f"# {node.name}")
        self.bodies[node.name].play(self)

    def write_stage(self, stage):
        """A loop over r for the inner nodes of a stage, then what follows per row."""
        axis, outside = self.axes[1], self.outside
        inner = [
            n
            for n in self.nodes
            if self.stage[n.name] == stage
            and self.is_inner[n.name]
            and (n.is_reduction or n.name in self.keep)
        ]  # other elements are computed where they are needed
        if inner:
            self.accumulators, self.deferred = [], []
            self.scope = Scope(outside)
            for node in inner:
                self.play(node)
            for name in () if self.columns else self.sums_of_exp():
                if self.stage[name] == stage + 1 and self.try_online(self.makers[name]):
                    self.stage[name] = stage
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
                n: v for n, v in self.values.items() if n not in self.makers or "r" not in v.inner
            }
            finished = {a.name: a for a in self.accumulators}
            self.accumulators = []
            for name, index, value, mode in self.deferred:
                self.store(name, index, finished[value.text].finish(self), mode)
        for node in self.nodes:
            if self.stage[node.name] == stage and not self.is_inner[node.name]:
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
            s for s in expr.free_symbols if s not in self.symbol_axes and s not in self.axis_of
        }
        return index_text(expr, "triton")

    def axes_of(self, expr):
        """The axes along which an index changes."""
        axes = set()
        for symbol in expr.free_symbols:
            axes |= (
                self.symbol_axes[symbol]
                if symbol in self.symbol_axes
                else {self.axis_of[symbol]}
                if symbol in self.axis_of
                else set()
            )
        return frozenset(axes)

    def mask_text(self, axes):
        """Which elements along these axes exist; "" for all."""
        masks = [a.mask for a in self.axes if a.mask and a.name in axes]
        return " & ".join(masks + ([self.mask.text] if self.mask is not None else []))

    def shape(self, axes=None):
        return (
            "["
            + ", ".join(a.block if axes is None or a.name in axes else "1" for a in self.axes)
            + "]"
        )

    def all_axes(self, inner):
        return frozenset(a.name for a in self.axes if inner or a.name != "r")

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
            name in self.makers and name != self.node.name
        ):  # elements of an earlier loop: cheaper computed than stored
            return self.replay(self.makers[name])
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
            if self.streams and axes == self.all_axes(True)
            else ""
        )
        padding = (
            'float("-inf")' if name in self.maxima and "r" in axes and self.mask is None else "0"
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
        self.bodies[node.name].play(self)
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
        axes = self.all_axes(self.is_inner[name] and not self.makers[name].is_reduction)
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
        if not self.is_inner[self.node.name]:  # one element
            return value
        start, combine, whole = SCANS[kind]
        value, kind = self.solid(value), triton_type(dtype)
        tile = (
            value
            if value.inner == self.all_axes(True)
            else f"tl.broadcast_to({value}, {self.shape()})"
        )
        whole = as_narrow(whole.format(tile), dtype)
        if self.kind == "persistent":
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
        if not self.is_inner[self.node.name]:  # one element: nothing to reduce
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
        if self.kind == "persistent":
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
            writer.axes[1].mask,
            value.text in writer.padded,
        )
        self.name = writer.outside.fresh("acc")
        typed, full = triton_type(self.element), writer.shape()
        self.full = f"tl.full({full}, {self.start}, {typed})"
        self.value = writer.solid(value)
        spread = value.inner != writer.all_axes(True)
        self.term = f"tl.broadcast_to({self.value}, {full})" if spread else self.value.text
        self.index = f"tl.broadcast_to({writer.index(flat_index)}, {full}).to(tl.int64)"
        self.no_index = f"tl.full({full}, {BIG}, tl.int64)"
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
            f"tl.where({self.mask}, {self.index}, {BIG})",
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
