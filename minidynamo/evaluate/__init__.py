"""The symbolic stack machine.

`registry`: where calls and operators are looked up; `operators`: who is asked what `a + b` means;
`calls`: callables of C, and classes; `operations`: what else a rule asks of the frame; `evaluator`:
a frame, inlining, exceptions; `opcodes`: one function per canonical opcode.
"""
