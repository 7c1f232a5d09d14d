"""CPython bytecode as lists one can edit, and one canonical instruction set for 3.11, 3.12 and
3.13.

In:   a code object.
Out:  `disassemble` gives native `Instruction`s, `canonical` the evaluator's view of them,
      `assemble` a code object again; `emit` writes instructions that are right on every version.

    >>> body = disassemble(f.__code__)
    >>> assert assemble(f.__code__, body).co_code == f.__code__.co_code
    >>> ops, first = canonical(body)          # operations, named as in CPython 3.13

Mirrors torch/_dynamo/bytecode_transformation.py and bytecode_analysis.py (paper section 3.2).
"""

from .assembler import Instruction, assemble, disassemble, slots
from .canonical import CanonicalOp, canonical

__all__ = ["Instruction", "assemble", "disassemble", "slots", "CanonicalOp", "canonical"]
