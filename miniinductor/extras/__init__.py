"""The loop IR that runs and prints, and calls that stay whole while tracing.

>>> run_graph(graph, [x])           # interpreter: the loop IR's meaning, with torch tensors
>>> print(graph)                    # printed_ir
"""
