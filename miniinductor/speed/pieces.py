"""The loop over the lanes, cut into parts, or written again with what writing it has shown.

In:   the nodes of one stage.  Out: a loop for each part, with what strategies put before its body
      (`pieces`, `begins_again` and `first_in_lanes` of questions.py; tables.py answers them).
"""

from collections.abc import Sequence

from ..codegen.cpp import CppKernelWriter
from ..nodes import Node


def write_lanes(self: CppKernelWriter, nodes: Sequence[Node]) -> None:
    for plan in self.ask("pieces") or [self.plan]:
        self.plan = plan
        body = self.lane_body(nodes)
        if self.ask("begins_again", body):
            body = self.lane_body(nodes)
        first = self.ask("first_in_lanes", body) or []
        self.outside.lines += self.ask("inner_loop", [*first, *body], self.accumulators)


setattr(CppKernelWriter, "write_lanes", write_lanes)
