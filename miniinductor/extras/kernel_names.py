"""Names of kernels that say what they compute: "add_gelu_3" rather than "pointwise_3".

In:   the nodes of a kernel, and the FX ops that they came from.  Out: the names of the last few.
"""

import re
from collections.abc import Mapping, Sequence

from ..codegen.common import in_graph_order, summary
from ..nodes import Node

OVERLOAD = re.compile(r"(_(default|tensor_scalar|tensor|scalar|int|dim|self|correction))?(_\d+)?$")
VIEWS = ("view", "unsqueeze", "permute", "expand")
plain_summary = summary.answer


@summary.replaced
def last_ops(nodes: Sequence[Node], order: Mapping[str, int] | None) -> str:
    """ "add_gelu": the last few FX ops of the nodes, each once."""
    words: list[str] = []
    for name in reversed(in_graph_order({o for n in nodes for o in n.buffer.origins}, order)):
        word = OVERLOAD.sub("", name.lower()).strip("_")
        if word.isidentifier() and word not in (*words, *VIEWS):
            words.insert(0, word)
        if len(words) == 4:
            break
    return "_".join(words)[:40].strip("_") or plain_summary(nodes, order)
