"""The symbolic stack machine.

`evaluator`: a frame, inlining, the root that can be split; `opcodes`: one function per canonical
opcode, `exceptions`: those of `try`, `raise` and `with`; `operations`: what rules and opcodes ask
of the frame; `operators`: who is asked what `a + b` means; `calls`: callables of C, and classes.
"""
