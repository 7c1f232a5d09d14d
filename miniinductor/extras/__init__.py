"""Coverage of the driver and of the tracer: plans kept on disk, graphs cut at sizes that only the
run knows, calls that torch's own rules would take apart wrongly.

Each file registers itself (coverage.py).
"""
