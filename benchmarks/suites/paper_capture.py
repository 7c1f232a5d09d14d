"""--suite paper-capture: ways to capture a graph, side by side, over the models of `--suite paper`.

    --share X    so much of the list, from the beginning of its fair order
    --jobs N     processes at once
    --resume     the rows that --json has already are kept: go on behind them

Tiny sizes on the CPU, one thread: what a mechanism can is asked, and what it costs a call.
"""

from collections.abc import Iterator
from typing import Any

import torch

from ..paper.measure import Row
from ..paper.mechanisms import MECHANISMS, compare, table
from ..paper.models import MODELS, fair_order
from .common import model_rows, suite
from .paper import read_earlier


@suite("paper-capture")
def paper_capture(options: Any, result: dict[str, Any]) -> Iterator[Row]:
    """A row a model, then how many models each mechanism works for."""
    order = fair_order(options.seed)
    result |= {"models": len(MODELS), "seed": options.seed}
    kept = read_earlier(options).get("rows", []) if options.resume else []
    yield from kept
    done = {row["name"] for row in kept}
    names = [name for name in order[: round(options.share * len(order))] if name not in done]
    yield from model_rows("paper-capture", names, of_model, shown, options)
    result["table"] = table(result["rows"])
    for label, cell in result["table"].items():
        print(f"{label:22}", ", ".join(f"{what} {value}" for what, value in cell.items()))


def of_model(name: str, options: Any) -> list[Row]:
    torch.set_num_threads(1)
    return [compare(name)]


def shown(row: Row) -> str:
    states = ", ".join(f"{label} {row['state'][label]}" for label in MECHANISMS)
    microseconds = ", ".join(f"{k} {1e6 * v:.0f}" for k, v in row["overhead"].items())
    return f"{row['name']:38}  {states}; microseconds: {microseconds}"
