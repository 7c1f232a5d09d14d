"""Few outer iterations over much: the reduction itself is spread over the threads.

    float block0s[128];
    #pragma omp parallel for schedule(static)
    for (int64_t block = 0; block < 128; block++) {
        float block0 = 0;
        for (int64_t r0 = ...) ...
        block0s[block] = block0;
    }
    double acc0 = 0;
    for (int64_t block = 0; block < 128; block++) { acc0 = acc0 + block0s[block]; }

In:   a stage's inner loop.  Out: a loop over blocks of it, shared by the threads, and their results
      put together.
"""

from .. import config
from ..codegen.cpp_reductions import CHUNK, Sums, bound, declarations, parts_of
from ..codegen.plan import PARALLEL_WORK, estimate
from ..codegen.strategy import Strategy, strategy
from ..codegen.tree import Line, Pragma, Statement, Statements, nest

MOST_PARTS = 512  # partial results


PARTS = "which part of the loop comes next"


@strategy(order=50)
class Spread(Strategy):
    keeps_stack = False

    def applies(self) -> bool:
        writer, plan = self.writer, self.writer.plan
        if plan.is_pointwise or writer.group.has_scan or not config.split_reductions:
            return False
        few_over_much = plan.outer_count < 8 and plan.inner_count >= PARALLEL_WORK
        return writer.parallel and few_over_much

    def loop_nest(self, body: Statements) -> list[Statement]:
        return nest(body, self.writer.outer_loops())

    def inner_loop(self, lines: Statements, accumulators: Sums) -> list[Statement]:
        first, size = self.writer.plan.r[0], self.writer.size(self.writer.plan.inner[0])
        rest = max(1, estimate(self.writer.plan.inner[1:]))
        rows, prologue = max(1, CHUNK // rest), []
        if isinstance(self.writer.plan.inner[0], int):
            rows = max(rows, -(-self.writer.plan.inner[0] // MOST_PARTS))
            blocks = most_blocks = -(-self.writer.plan.inner[0] // rows)
        else:  # (another stage has names of its own)
            names = [self.writer.outside.fresh(name) for name in ("rows", "blocks")]
            prologue = [
                Line(
                    f"const int64_t {names[0]} = mini::maximum<int64_t>({rows}, "
                    f"({size} + {MOST_PARTS - 1})/{MOST_PARTS});",
                    origin=PARTS,
                ),
                Line(
                    f"const int64_t {names[1]} = ({size} + {names[0]} - 1)/{names[0]};",
                    origin=PARTS,
                ),
            ]
            (rows, blocks), most_blocks = names, MOST_PARTS
        of_block = parts_of(accumulators, "block")
        # the loops come first: they may make doubles of the accumulators
        loops = self.writer.chunks(lines, of_block, f"{first}_block", f"{first}_end")
        body = [
            Line(f"const int64_t {first}_block = block * {rows};", origin=PARTS),
            bound(f"{first}_end", f"{first}_block + {rows}", size),
            *declarations(of_block),
            *loops,
            *[b.line(f"{b.name}s[block] = {b.name};") for b in of_block],
        ]
        loop = [("block", 0, blocks)]
        arrays = [b.line(f"{b.c_type} {b.name}s[{most_blocks}];") for b in of_block]
        threads = Pragma("parallel for", condition=self.writer.threads_if)
        result = [*prologue, *arrays, *nest(body, loop, threads), *declarations(accumulators)]
        if accumulators:
            added = [a.update(f"{b.name}s[block]") for a, b in zip(accumulators, of_block)]
            result += nest(added, loop)
        return result
