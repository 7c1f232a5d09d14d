"""What calls and operators mean that few programs need, one subject a file.

Each file registers itself in `minidynamo.symbolic_eval.registry` when `minidynamo.coverage` loads
it; the core breaks the graph at a call that nobody has registered.
"""
