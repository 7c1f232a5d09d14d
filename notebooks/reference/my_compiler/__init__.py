"""my_compiler: a small `torch.compile`, built chapter by chapter.

    >>> from my_compiler import compile
    >>> fast = compile(f)           # f is captured, differentiated, fused, written as C++

One file a chapter, in the order in which a program flows through them:

    graph.py      02  tensor operations as a graph, and passes over it
    hook.py       03  every call of a Python function passes by
    machine.py    04  bytecode, evaluated on symbols
    guards.py     05  where values came from, and what must hold next time
    breaks.py     06  what cannot be captured runs as Python; the rest is captured again
    effects.py    07  what the function did to objects that live on
    autograd.py   08  the backward graph, and the cut between the two
    loops.py      09  operations as loops
    fusion.py     10  loops that share their rows become one kernel
    cpp.py        11  kernels in C++
    gpu.py        12  the same kernels in Triton
    program.py    13  memory, and the program that calls the kernels
    sizes.py      14  sizes that are not numbers

What everyone writes captures, differentiates, fuses and trains a small GPT.  The curious add the
rest of breaks.py and sizes.py, and effects.py and gpu.py.

It knows one device, two kinds of numbers and a few dozen operations.  What it does not know it
leaves to Python: that is slower, and never wrong.  Of minidynamo and miniinductor it uses the C
frame hook, the bytecode assembler, the C++ compiler's driver, and the prelude of maths functions.
"""

from .hook import compile

__all__ = ["compile"]
