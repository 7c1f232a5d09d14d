"""From a PyTorch program to a functional ATen graph: `tracer` records, `functionalize` removes mutation."""
