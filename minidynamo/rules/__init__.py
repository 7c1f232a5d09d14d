"""What calls and operators mean, one subject a file.

Each file registers itself in `minidynamo.symbolic_eval.registry` when it is loaded; a call that
nobody has registered breaks the graph.
"""
