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
from .cpp_reductions import Sums, bound, declarations, parts_of
from .plan import PARALLEL_WORK, estimate
from .strategy import Strategy
from .tree import Line, Pragma, Statement, Statements, nest

MOST_PARTS = 512  # partial results
LEAST = 512  # elements of a part
PARTS = "which part of the loop comes next"


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

    def inner_loop(self, body: Statements, accumulators: Sums) -> list[Statement]:
        writer = self.writer
        first, size = writer.plan.r[0], writer.size(writer.plan.inner[0])
        least = max(1, LEAST // estimate(writer.plan.inner[1:]))
        # (another stage has names of its own)
        rows, blocks = (writer.outside.fresh(name) for name in ("rows", "blocks"))
        wanted = f"({size} + {MOST_PARTS - 1})/{MOST_PARTS}"
        texts = [
            f"const int64_t {rows} = mini::maximum<int64_t>({least}, {wanted});",
            f"const int64_t {blocks} = ({size} + {rows} - 1)/{rows};",
        ]
        of_block = parts_of(accumulators, "block")
        # the loops come first: they may make doubles of the accumulators
        loops = writer.chunks(body, of_block, f"{first}_block", f"{first}_end")
        block = [
            Line(f"const int64_t {first}_block = block*{rows};", origin=PARTS),
            bound(f"{first}_end", f"{first}_block + {rows}", size),
            *declarations(of_block),
            *loops,
            *[b.line(f"{b.name}s[block] = {b.name};") for b in of_block],
        ]
        threads = Pragma("parallel for", condition=writer.threads_if)
        added = [a.update(f"{b.name}s[block]") for a, b in zip(accumulators, of_block)]
        return [
            *[Line(text, origin=PARTS) for text in texts],
            *[b.line(f"{b.c_type} {b.name}s[{MOST_PARTS}];") for b in of_block],
            *nest(block, [("block", 0, blocks)], threads),
            *declarations(accumulators),
            *nest(added, [("block", 0, blocks)] if added else []),
        ]
