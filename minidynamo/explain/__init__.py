"""explain: every stage of a compilation as an object that shows itself.

    >>> e = minidynamo.explain(model)(x)
    >>> e                       # a summary; in a notebook: tables and pictures
    >>> e.graph, e.guards, e.bytecode, e.aten, e.loop_ir, e.fusion, e.kernels, e.wrapper
    >>> e.memory_picture, e.breaks, e.times
    >>> e.save("page.html")     # one self-contained file

In:   a function or module and its arguments.  Out: an `Explanation`; the call itself really runs.
Files: running.py (the call), explanation.py (what there is), views.py (how it shows), draw.py
(pictures), page.py (the HTML file).
Mirrors torch/_dynamo/eval_frame.py (`explain`) and the tlparse tool.
"""

import sys

from .draw import Picture, draw_compilations, draw_graph
from .explanation import Explanation
from .listing import also_here
from .running import compilations, explain
from .views import Code, Table, excerpt

__all__ = [
    "explain",
    "Explanation",
    "Picture",
    "draw_graph",
    "compilations",
    "draw_compilations",
    "Code",
    "Table",
    "excerpt",
    "also_here",
]


def load_ipython_extension(shell: object) -> None:
    """`%load_ext minidynamo.explain`: the cell magic `%%minicompile`, see cell_magic.py."""
    from .cell_magic import register

    register(explain, shell)


class _CallablePackage(type(sys)):
    """Importing this package binds its name in `minidynamo`, where `minidynamo.explain(fn)` must
    stay a function."""

    def __call__(self, fn, *args, **options):
        if args:
            raise TypeError("explain(f)(x): the arguments of f go to what explain(f) returns")
        return explain(fn, **options)


sys.modules[__name__].__class__ = _CallablePackage
