"""heapq, whose functions C has written, as Python that the evaluator traces in their place.

    heapq.heappush(queue, (priority, name))         best = heapq.heappop(queue)

In, out: see `symbolic_eval.registry`.  Elements are compared in the order in which C compares them,
by `<` alone; what is no list, and an empty one, is left to plain Python, which complains.
Mirrors torch/_dynamo/polyfills/heapq.py.
"""

import heapq
from collections.abc import Callable
from typing import Any

from ..exceptions import Break
from ..symbolic_eval.registry import rule
from ..variables.base import Frame, Variable
from ..variables.containers import ListVar


# ---- what is traced
def swap(heap: list, one: int, other: int) -> None:
    heap[one], heap[other] = heap[other], heap[one]


def rise(heap: list, top: int, place: int, is_max: bool = False) -> None:
    """Let the element at `place` rise, at most to `top`, above those that it is smaller than; with
    `is_max`, larger than."""
    while place > top:
        parent = (place - 1) // 2
        first, second = (parent, place) if is_max else (place, parent)
        if not heap[first] < heap[second]:
            break
        swap(heap, place, parent)
        place = parent


def sink(heap: list, top: int, is_max: bool = False) -> None:
    """Let the element at `top` sink to a leaf below the smaller (larger) children, and rise from
    there."""
    place, count = top, len(heap)
    while 2 * place + 1 < count:
        child = 2 * place + 1
        first, second = (child + 1, child) if is_max else (child, child + 1)
        if child + 1 < count and not heap[first] < heap[second]:
            child += 1
        swap(heap, place, child)
        place = child
    rise(heap, top, place, is_max)


def replace(heap: list, item: Any, is_max: bool = False) -> Any:
    best = heap[0]
    heap[0] = item
    sink(heap, 0, is_max)
    return best


def pop(heap: list, is_max: bool = False) -> Any:
    last = heap.pop()
    return replace(heap, last, is_max) if heap else last


def arrange(heap: list, is_max: bool = False) -> None:
    for top in range(len(heap) // 2 - 1, -1, -1):
        sink(heap, top, is_max)


# The functions of C, with their parameters.
def heappush(heap: list, item: Any) -> None:
    heap.append(item)
    rise(heap, 0, len(heap) - 1)


def heappop(heap: list) -> Any:
    return pop(heap)


def heapreplace(heap: list, item: Any) -> Any:
    return replace(heap, item)


def heappushpop(heap: list, item: Any) -> Any:
    return replace(heap, item) if heap and heap[0] < item else item


def heapify(heap: list) -> None:
    arrange(heap)


# The largest element first: what nsmallest() and merge(reverse=True) call.
def _heapreplace_max(heap: list, item: Any) -> Any:
    return replace(heap, item, True)


def _heappop_max(heap: list) -> Any:
    return pop(heap, True)


def _heapify_max(heap: list) -> None:
    arrange(heap, True)


# ---- the rules
MAY_BE_EMPTY = (heappush, heappushpop, heapify, _heapify_max)
OF_LARGEST = (_heapreplace_max, _heappop_max, _heapify_max)  # not in every Python


def traced_on_lists(function: Callable) -> Callable:
    """The handler of the function of C that has this one's name."""

    def trace(tx: Frame, heap: Variable, /, *items: Variable) -> Variable:
        empty = type(heap) is ListVar and not heap.items and function not in MAY_BE_EMPTY
        if type(heap) is not ListVar or empty:
            raise Break("arguments", f"heapq.{function.__name__}() of {heap}")
        return tx.output.wrap_pinned(function).call(tx, [heap, *items], {})

    return trace


for _function in (heappush, heappop, heapreplace, heappushpop, heapify, *OF_LARGEST):
    if hasattr(heapq, _function.__name__):
        rule(getattr(heapq, _function.__name__))(traced_on_lists(_function))
