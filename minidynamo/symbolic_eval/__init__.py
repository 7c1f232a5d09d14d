"""The symbolic stack machine.  `operations`: what Python's operators mean on variables;
`evaluator`: a frame, inlining, exceptions; `opcodes`: one function per canonical opcode."""
