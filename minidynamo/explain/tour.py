"""`python -m minidynamo tour`: one function through every stage, in a terminal, in half a minute.

In:   nothing.   Out: each stage as text, then the time of a call beside eager's.

    python -m minidynamo tour
"""

import statistics
import timeit

import torch

from .. import api
from .running import explain

PROGRAM = """\
import torch


def f(x, y):
    return torch.softmax(x * y, -1)
"""
KINDS = ("TENSOR", "DTYPE", "SHAPE", "STRIDE", "DEVICE")  # of the guards that are shown
STAGES = """
1. THE PROGRAM

{program}
2. THE GRAPH: the tensor operations of f, recorded while its bytecode was read.

{e.graph}

3. THE GUARDS: the compiled code runs again only where all of them hold. Of the
   {e.guards.title} these five are about x (P_Tensor and P_dtype are objects that they keep):

{guards}

4. THE LOOP IR, before fusion: each buffer is a loop over its elements.

{e.loop_ir}

5. THE KERNEL: the loops that could be fused share one loop nest, written in C++.

{e.kernels}"""
END = """\
6. THE TIME of a call (median of 50): eager {eager:.2f} ms, compiled {ours:.2f} ms.

NEXT
   notebooks/00_tour.ipynb             the course begins: GPT-2 through the same stages
   python -m minidynamo explain -o page.html your_program.py
                                       your own program through them, as a page
   docs/files.md                       the files of the compiler, in the order of the stages"""


def main(arguments: list[str]) -> int:
    """Print the tour, which needs no arguments; 1 if nothing was compiled."""
    scope: dict = {}
    # (frames of this package's own files are never compiled)
    exec(compile(PROGRAM, "program.py", "exec"), scope)
    calls = scope["f"], api.compile(scope["f"])
    inputs = torch.randn(2, 512, 1024).unbind()
    e = explain(calls[1])(*inputs)
    shown = [f"   {code}" for kind, code, _ in e.guards.rows if kind in KINDS and "x" in code]
    print(STAGES.format(program=PROGRAM, e=e, guards="\n".join(shown)))
    if not e.main.compiled.kernels:
        print("nothing was compiled: python -m minidynamo doctor says why")
        return 1
    rounds = [[timeit.timeit(lambda: f(*inputs), number=1) for f in calls] for _ in range(50)]
    eager, ours = (statistics.median(times) * 1e3 for times in zip(*rounds))
    print(END.format(eager=eager, ours=ours))
    return 0
