"""Variables of closures that may be unbound behind a graph break.

In:   a frame that is split, and the name of one of its cell variables.
Out:  whether an instruction may read it before it is written, or delete it before that.

    def f(x):
        def later():
            return y            # y is bound by then
        print("a graph break")
        y = x + 1
        return later()

Without this file, reading one that is unbound raises a NameError, no UnboundLocalError.
"""

from .. import hooks
from ..exceptions import SkipFrame
from ..replacement import Tail
from ..symbolic_eval.code_info import CodeInfo, liveness
from ..symbolic_eval.evaluator import RootFrame


CELL_READS, CELL_WRITES = {"LOAD_DEREF", "DELETE_DEREF"}, {"STORE_DEREF"}


def may_be_unbound(info: CodeInfo, position: int, name: str) -> bool:
    """May an instruction from `position` on read the cell variable `name` before it is
    written?"""
    return name in liveness(info.operations, CELL_READS, CELL_WRITES)[position]


def may_be_deleted(info: CodeInfo, position: int, name: str) -> bool:
    """May an instruction from `position` on delete the cell variable `name`, so that another
    one finds it unbound?"""
    delete = "DELETE_DEREF"
    places = [n for n, op in enumerate(info.operations) if (op.op, op.arg) == (delete, name)]
    if not any(may_be_unbound(info, n + 1, name) for n in places):
        return False
    return name in liveness(info.operations, {delete}, frozenset())[position]


@hooks.KEPT.append
def check_cells(tail: Tail) -> tuple[str, ...]:
    """Such a variable would be a free one of the continuation, where reading it raises another
    error."""
    assert tail.frame.split is not None
    for name in tail.code.co_cellvars:
        if finds_unbound(tail.frame, tail.frame.split[0], name):
            raise SkipFrame(f"the closure variable {name} may be unbound after a graph break")
    return ()


def finds_unbound(frame: RootFrame, position: int, name: str) -> bool:
    empty = name in frame.cells and frame.cells[name].content is None
    if empty and may_be_unbound(frame.info, position, name):
        return True
    return may_be_deleted(frame.info, position, name)
